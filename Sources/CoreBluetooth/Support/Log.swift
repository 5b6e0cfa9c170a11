import BindruneBroker
import BindruneWire
import Foundation

/// Messages for the author of the program: a call that cannot be carried out, and why Bluetooth is not available. Each
/// is a line on standard error; Apple's go to the system's log.
final class Log: @unchecked Sendable {
  // Sendable: everything that changes is guarded by the lock.
  static let shared = Log(to: .shared)
  private let output: StandardError
  private let lock = NSLock()
  private var listeners: [@Sendable (String) -> Void] = []
  init(to output: StandardError) { self.output = output }

  /// `object` is the one that was misused: `API MISUSE: <CBPeripheralManager: 0x5581…> …`.
  static func misuse(_ object: AnyObject, _ sentence: String) {
    shared.write("API MISUSE: \(name(object)) \(sentence)")
  }
  static func note(_ object: AnyObject, _ sentence: String) { shared.write("\(name(object)) \(sentence)") }
  /// Class and address of the object.
  static func name(_ object: AnyObject) -> String {
    "<\(type(of: object)): 0x\(String(UInt(bitPattern: ObjectIdentifier(object)), radix: 16))>"
  }

  /// Every line from now on, for tests.
  func listen(_ listener: @escaping @Sendable (String) -> Void) { lock.withLock { listeners.append(listener) } }
  /// In any case one line: names come from the air.
  func write(_ text: String) {
    let line = text.printable()
    for listener in lock.withLock({ listeners }) { listener(line) }
    output.line("[CoreBluetooth] \(line)")
  }
}
