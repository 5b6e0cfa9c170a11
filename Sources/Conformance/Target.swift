import ATT
import BindruneWire
import GATT

/// A stack under test, as a tester sees it: one ATT bearer, and commands besides.
///
/// There are two: `StackTarget`, our own in virtual time, and `SocketTarget`, any stack on a socket, in real time.
public protocol ConformanceTarget: AnyObject {
  /// Sends one PDU to the side under test.
  func send(_ pdu: [UInt8]) throws(TargetError)
  /// The next PDU from it, after at most `time`.
  func receive(within time: Duration) throws(TargetError) -> Received
  /// Lets time pass; PDUs that arrive meanwhile are kept.
  func wait(_ time: Duration) throws(TargetError)
  /// Ends the bearer and begins another. The database remains.
  func reconnect() throws(TargetError)
  /// False if it accepts only PDUs; a script that needs commands is then skipped.
  var takesCommands: Bool { get }
  func perform(_ command: Command) throws(TargetError)
  /// How the last procedure ended; nil if it has not within `time`.
  func result(within time: Duration) throws(TargetError) -> ProcedureResult?
  /// The next value that the client passes to its application.
  func value(within time: Duration) throws(TargetError) -> ReceivedValue?
}

public enum Received: Sendable, Equatable {
  case pdu([UInt8])
  case nothing
  /// The bearer is closed: no PDU follows.
  case closed
}

public struct ReceivedValue: Sendable, Equatable {
  public var kind: ValueKind
  public var handle: AttributeHandle
  public var octets: [UInt8]
}

public enum ProcedureResult: Sendable, Equatable {
  case done
  case value([UInt8])
  case values([HandleOctets])
  case error(ATTError, AttributeHandle)
  /// The reason.
  case failed(String)
  case timeout
  case found([Found: [String]])
}

/// Why a step is impossible.
public enum TargetError: Error, Sendable, Equatable {
  /// The side under test does not support this command, so the script has no result.
  case unsupported(String)
  case failed(String)
}

extension ProcedureResult: CustomStringConvertible {
  /// In the syntax of scripts.
  public var description: String {
    switch self {
    case .done: "done"
    case .value(let octets): "value \(hexText(octets))"
    case .values(let values):
      "values " + values.map { "\($0.handle.script) \(hexText($0.octets))" }.joined(separator: ", ")
    case .error(let error, let handle): "error 0x\(hexDigits(UInt64(error.rawValue), 2)) \(handle.script)"
    case .failed(let why): "failed (\(why))"
    case .timeout: "timeout"
    case .found(let found):
      Found.allCases.filter { found[$0] != nil }.map { "\($0.rawValue) \(items(found[$0] ?? []))" }.joined(
        separator: "; ")
    }
  }
}

func items(_ items: [String]) -> String { items.isEmpty ? "none" : items.joined(separator: ", ") }

/// `0B 01 02`
func hexText(_ octets: some Sequence<UInt8>) -> String {
  octets.map { hexDigits(UInt64($0), 2) }.joined(separator: " ")
}
