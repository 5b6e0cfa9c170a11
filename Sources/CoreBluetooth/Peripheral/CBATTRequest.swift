import BindruneBroker
public import Foundation

/// A central's request to read or to write a value that the program keeps. `CBPeripheralManager.respond` answers it.
open class CBATTRequest: NSObject, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock.
  private let lock = NSLock()
  private let sender: CBCentral
  private let target: CBCharacteristic
  private let start: Int
  private var octets: Data?
  let answer: ExpectedAnswer
  /// True for the first of the requests that came together: the one to respond to.
  let isFirst: Bool

  init(
    from central: CBCentral, for characteristic: CBCharacteristic, offset: Int, value: Data?, answer: ExpectedAnswer,
    isFirst: Bool = true
  ) {
    sender = central
    target = characteristic
    start = offset
    octets = value
    self.answer = answer
    self.isFirst = isFirst
  }

  open var central: CBCentral { sender }
  open var characteristic: CBCharacteristic { target }
  /// Octets of the value that come before what is read or written.
  open var offset: Int { start }
  /// Of a write: what is to be written at the offset. Of a read: nil, and to be set to the value from the offset on.
  open var value: Data? {
    get { lock.withLock { octets } }
    set { lock.withLock { octets = newValue } }
  }

  open override var description: String {
    "\(Log.name(self).dropLast()), central = \(sender.identifier), characteristic = \(target.uuid), offset = \(start)>"
  }
}

/// The one answer that a central waits for, to the requests that came together. When the program releases the last of
/// them without a response, no answer can follow: the central receives an error then, rather than after its 30 s.
final class ExpectedAnswer: @unchecked Sendable {
  // Sendable: it never changes.
  let id: ServerRequest
  let central: UUID
  let isRead: Bool
  private weak var manager: CBPeripheralManager?

  init(_ id: ServerRequest, of central: UUID, isRead: Bool, from manager: CBPeripheralManager) {
    self.id = id
    self.central = central
    self.isRead = isRead
    self.manager = manager
  }
  /// A write without response needs no answer.
  deinit { manager?.requestReleased(id, of: central, isReported: !id.isCommand) }
  func isFrom(_ manager: CBPeripheralManager) -> Bool { self.manager === manager }
}
