public import Foundation

/// A remote device.
open class CBPeer: NSObject, NSCopying, @unchecked Sendable {
  // Sendable: what changes is guarded by its manager's lock.
  let peer: UUID
  init(identifier: UUID) { peer = identifier }

  /// Who it is: the same in every run of every program on this machine, as long as the device keeps its address.
  open var identifier: UUID { peer }
  /// Key-value coding, which Linux has not, for the keys that programs read: `identifier` is an `NSUUID`. Another key is nil, and
  /// is told on standard error, where Apple's raises an exception.
  open func value(forKey key: String) -> Any? {
    if key == "identifier" { return identifier as NSUUID }
    Log.misuse(self, "has no value for the key \(key).")
    return nil
  }
  open func copy(with zone: NSZone? = nil) -> Any { self }
}
