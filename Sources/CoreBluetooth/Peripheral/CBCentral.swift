import BindruneBroker
import Foundation

/// A central that is connected to this peripheral. While it has subscribed to something, the manager shows it as the
/// same object.
open class CBCentral: CBPeer, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock.
  private let lock = NSLock()
  private var longest: Int
  private var sendPort: SendPort?

  init(identifier: UUID, longestUpdate: Int) {
    longest = longestUpdate
    super.init(identifier: identifier)
  }

  /// Octets of one notification or indication: min(ATT_MTU − 3, 512). Longer values are cut to that.
  /// Core Specification, Vol 3, Part F, §3.4.7.1 and §3.2.9.
  open var maximumUpdateValueLength: Int { min(lock.withLock { sendPort?.longestValue ?? longest }, 512) }
  func setLongestUpdate(_ count: Int) { lock.withLock { longest = count } }

  /// Where its notifications are put, from its first subscription until its link ends.
  var port: SendPort? {
    get { lock.withLock { sendPort } }
    set { lock.withLock { sendPort = newValue } }
  }

  open override var description: String {
    "\(Log.name(self).dropLast()), identifier = \(identifier), maximumUpdateValueLength = \(maximumUpdateValueLength)>"
  }
}
