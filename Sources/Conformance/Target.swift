import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneSMP

/// A stack under test, as a tester sees it: one ATT bearer, one Security Manager channel, or the channels of one link,
/// and commands besides.
///
/// `StackTarget`, `PairingTarget` and `ChannelTarget` are our own, in virtual time; `SocketTarget` is any stack on a
/// socket, in real time.
public protocol ConformanceTarget: AnyObject {
  /// Sends one PDU to the side under test.
  func send(_ pdu: [UInt8]) throws(TargetError)
  /// The next PDU from it, after at most `time`.
  func receive(within time: Duration) throws(TargetError) -> Received
  /// Lets time pass; PDUs that arrive meanwhile are kept.
  func wait(_ time: Duration) throws(TargetError)
  /// Ends the bearer, or the link, and begins another. The database remains.
  func reconnect() throws(TargetError)
  /// False if it accepts only PDUs; a script that needs commands is then skipped.
  var takesCommands: Bool { get }
  func perform(_ command: Command) throws(TargetError)
  /// How the last procedure ended; nil if it has not within `time`.
  func result(within time: Duration) throws(TargetError) -> ProcedureResult?
  /// The next value that the client passes to its application.
  func value(within time: Duration) throws(TargetError) -> ReceivedValue?
  /// The next thing that the side under test asks its application or user, or shows them.
  func event(within time: Duration) throws(TargetError) -> ApplicationEvent?
  /// The key with which it has its controller encrypt the link: 16 octets, the least significant first.
  func key(within time: Duration) throws(TargetError) -> [UInt8]?
}

/// A stack of ours that `StackServer` offers: it does not wait for itself.
protocol ServedTarget: ConformanceTarget {
  /// The time until its next event.
  var timeToDeadline: Duration? { get }
  /// Lets time pass.
  func pass(_ time: Duration)
  /// The next PDU, without waiting; nil: none.
  var ready: Received? { get }
  /// The lines of the control connection that answer no command: values, questions, results.
  func takeLines() -> [String]
  /// Drops what no script asks for.
  func forgetLines()
}

/// What a side under test asks its application or user, shows them, or tells them of channels.
public struct ApplicationEvent: Sendable, Equatable {
  public enum Kind: String, Sendable, CaseIterable {
    /// Enter the six digits that the other device shows.
    case asksPasskey = "asks passkey"
    /// Compare six digits, a number of four octets.
    case asksComparison = "asks comparison"
    /// Secure the link: with the AuthReq of a Security Request, or with the ATT error of a refused request.
    case asksSecurity = "asks security"
    /// Six digits, a number of four octets.
    case showsPasskey = "shows passkey"
    /// What the peer's user does while entering them: one octet.
    case showsKeypress = "shows keypress"
    /// The data to give the tester out of band: a confirm value and a random number.
    case showsData = "shows oob"
    /// A channel is open: its number here.
    case opened
    /// A channel that the application asked for does not open: its number here, and the result with which the tester
    /// refused it, if that is the reason.
    case failed
    /// An open channel has ended: its number here.
    case ended
    /// An SDU, behind the number of its channel.
    case received

    static let asked: [String: Kind] = [
      "passkey": .asksPasskey, "comparison": .asksComparison, "security": .asksSecurity,
    ]
    static let ofChannels: [String: Kind] = [
      "opened": .opened, "failed": .failed, "ended": .ended, "received": .received,
    ]
    static let shown: [String: Kind] = ["passkey": .showsPasskey, "keypress": .showsKeypress, "oob": .showsData]
  }
  public var kind: Kind
  public var octets: [UInt8]

  public init(_ kind: Kind, _ octets: [UInt8] = []) {
    self.kind = kind
    self.octets = octets
  }
}

extension ApplicationEvent: CustomStringConvertible {
  /// In the syntax of scripts.
  public var description: String { octets.isEmpty ? kind.rawValue : "\(kind.rawValue) \(hexText(octets))" }
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
  case paired(PairedBy)
  case pairingFailed(PairingFailure)
  case encrypted
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
    case .paired(let how): how.description
    case .pairingFailed(let reason): reason.script
    case .encrypted: "encrypted"
    }
  }
}

extension PairedBy: CustomStringConvertible {
  /// In the syntax of scripts.
  public var description: String {
    "paired \(method.rawValue) \(isSecureConnections ? "secure-connections" : "legacy") \(keySize)"
  }
}
extension PairingFailure {
  /// In the syntax of scripts.
  var script: String { "pairing-failed 0x\(hexDigits(UInt64(rawValue), 2))" }
}

func items(_ items: [String]) -> String { items.isEmpty ? "none" : items.joined(separator: ", ") }

/// `0B 01 02`
func hexText(_ octets: some Sequence<UInt8>) -> String {
  octets.map { hexDigits(UInt64($0), 2) }.joined(separator: " ")
}
