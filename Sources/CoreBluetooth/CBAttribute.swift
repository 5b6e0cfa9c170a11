public import Foundation

/// What services, characteristics and descriptors have in common.
open class CBAttribute: NSObject, @unchecked Sendable {
  // Sendable: what changes is guarded by its manager's lock.
  private let type: CBUUID
  init(uuid: CBUUID) { type = uuid }

  /// What it is, as the Specification or its maker has numbered it.
  open var uuid: CBUUID { type }
}
