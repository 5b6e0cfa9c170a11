import ATT
import BindruneWire
import GATT

/// A stack under test, as a tester sees it: one ATT bearer, and what the stack can be told besides.
///
/// Two there are: `StackTarget`, our own in virtual time, and `SocketTarget`, any that speaks over a socket, in real time.
public protocol ConformanceTarget: AnyObject {
  /// Sends one PDU to the side under test.
  func send(_ pdu: [UInt8]) throws(TargetError)
  /// The next PDU from it, waiting so long at most.
  func receive(within time: Duration) throws(TargetError) -> Received
  /// Lets time pass; what comes meanwhile is kept.
  func wait(_ time: Duration) throws(TargetError)
  /// Ends the bearer and begins another. The database stays.
  func reconnect() throws(TargetError)
  /// False when it can be told nothing but PDUs; a script that needs more is not even begun.
  var takesCommands: Bool { get }
  func perform(_ command: Command) throws(TargetError)
  /// How the procedure called last has ended; nil when it has not within `time`.
  func result(within time: Duration) throws(TargetError) -> ProcedureResult?
  /// The next value that the client hands its application.
  func value(within time: Duration) throws(TargetError) -> ReceivedValue?
}

public enum Received: Sendable, Equatable {
  case pdu([UInt8])
  case nothing
  /// The bearer is given up: no PDU will come.
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
  /// Why, in words.
  case failed(String)
  case timeout
  case found([Found: [String]])
}

/// Why a step cannot be done.
public enum TargetError: Error, Sendable, Equatable {
  /// The side under test cannot be told this; the script says nothing about it then.
  case unsupported(String)
  case failed(String)
}

extension ProcedureResult: CustomStringConvertible {
  /// As a script writes it.
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
