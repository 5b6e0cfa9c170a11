public import Foundation

/// A remote device.
open class CBPeer: NSObject, NSCopying, @unchecked Sendable {
  // Sendable: what changes is guarded by its manager's lock.
  let peer: UUID
  init(identifier: UUID) { peer = identifier }

  /// Who it is: the same in every run of every program on this machine, as long as the device keeps its address.
  open var identifier: UUID { peer }
  open func copy(with zone: NSZone? = nil) -> Any { self }
}
