import BindruneBroker
public import Foundation

/// What services, characteristics and descriptors have in common.
open class CBAttribute: NSObject, @unchecked Sendable {
  // Sendable: what changes is guarded by a lock.
  private let type: CBUUID
  /// Guards what the properties of something that was found show: its manager's.
  let shared: Lock
  init(uuid: CBUUID, guardedBy lock: Lock) {
    type = uuid
    shared = lock
  }
  /// For something of this device, whose class guards it with a lock of its own.
  init(uuid: CBUUID) {
    type = uuid
    shared = Lock()
  }

  /// What it is, as the Specification or its maker has numbered it.
  open var uuid: CBUUID { type }
}
