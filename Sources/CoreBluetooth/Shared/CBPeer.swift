public import Foundation

/// A remote device.
open class CBPeer: NSObject, NSCopying, @unchecked Sendable {
  // Sendable: what changes is guarded by its manager's lock.
  let peer: UUID
  init(identifier: UUID) { peer = identifier }

  /// Identifies the device: the same in every run of every program on this machine, as long as the device keeps its
  /// address.
  open var identifier: UUID { peer }
  /// Key-value coding, which Linux does not have, for the keys that programs read: `identifier` is an `NSUUID`. For
  /// another key it returns nil and writes a line on standard error; Apple's raises an exception.
  open func value(forKey key: String) -> Any? {
    if key == "identifier" { return identifier as NSUUID }
    Log.misuse(self, "has no value for the key \(key).")
    return nil
  }
  open func copy(with zone: NSZone? = nil) -> Any { self }
}
