import BindruneHCI
import BindruneSMP
import BindruneWire

/// What happened on a connection, in words: how it began, what it did, what went wrong, and who ended it.
public struct LinkStory: Sendable {
  /// Something that went wrong, or that explains why nothing happened.
  public struct Trouble: Sendable {
    /// The record that shows it, from 1.
    public var number: Int
    public var sentence: String
  }
  public var adapter: UInt16
  public var connection: UInt32
  /// The records of its first and its last packet.
  public var firstRecord: Int, lastRecord: Int
  /// `our host is Central to C0:11:22:33:44:55`.
  public var beginning: String
  /// `MTU 247, encrypted; 12 requests, 40 values received`.
  public var deeds: String
  /// `the peer ended it (0x13, Remote User Terminated Connection)`.
  public var ending: String
  /// In the order of the trace; the first ``mostTroubles``.
  public internal(set) var troubles: [Trouble] = []
  public static var mostTroubles: Int { 16 }

  /// What followed the beginning.
  public var course: String { (deeds.isEmpty ? "" : deeds + "; ") + ending }
  /// All but the troubles.
  public var sentence: String { "\(beginning); \(course)" }

  mutating func add(_ number: Int, _ sentence: String) {
    guard troubles.count < Self.mostTroubles, !troubles.contains(where: { $0.sentence == sentence }) else { return }
    troubles.append(Trouble(number: number, sentence: sentence))
    troubles.sort { $0.number < $1.number }
  }
}

/// What a number that ends or refuses something usually means.
enum TroubleWords {
  static func status(_ status: HCIStatus) -> String {
    "0x\(hexDigits(UInt64(status.rawValue), 2))" + (status.name.map { ", \($0)" } ?? "")
  }
  static func ending(_ reason: HCIStatus) -> String {
    switch reason {
    case .remoteUserTerminatedConnection: "the peer ended it (\(status(reason)))"
    case .connectionTerminatedByLocalHost: "our host ended it (\(status(reason)))"
    case .connectionTimeout: "the supervision timeout ended it (\(status(reason)))"
    default: "it ended with \(status(reason))"
    }
  }
  /// Why a connection ended, if that is a trouble. `silence`: the supervision timeout.
  static func trouble(
    _ reason: HCIStatus, silence: String?, isJustEncrypted: Bool
  ) -> String? {
    switch reason {
    case .remoteUserTerminatedConnection, .connectionTerminatedByLocalHost: return nil
    case .connectionTimeout:
      return "the peer vanished: nothing was heard of it for the supervision timeout"
        + (silence.map { " of \($0)" } ?? "") + "; it is out of reach, was switched off, or has restarted"
    case .connectionFailedToBeEstablished:
      return
        "the connection was never established: the peer did not answer its first packets; it is at the edge of reach, or"
        + " was about to stop advertising"
    case .connectionTerminatedMICFailure where isJustEncrypted:
      return
        "the keys of the two sides differ: the first encrypted packet failed its check (MIC failure); remove the bond on"
        + " both sides and pair again"
    case .connectionTerminatedMICFailure:
      return "an encrypted packet failed its check (MIC failure): a link layer has lost count, or somebody interfered"
    case .lmpOrLLResponseTimeout: return "the peer\'s link layer did not answer a procedure within 40 s"
    case .pinOrKeyMissing: return "a side has no key for the bond: one of them has forgotten it"
    case .authenticationFailure: return "a side refused to go on without the authentication that it wants"
    case 0x14: return "the peer has no resources for this connection"
    case 0x15: return "the peer is being switched off"
    case .unacceptableConnectionParameters: return "a side did not accept the connection's parameters"
    case .instantPassed: return "the two link layers missed the moment of a change (instant passed)"
    default: return "the connection ended with \(status(reason))"
    }
  }
  static func encryption(_ failure: HCIStatus) -> String {
    switch failure {
    case .pinOrKeyMissing:
      "the peer has no key for this bond: it has forgotten it (\(status(failure))); remove the bond here and pair again"
    case .connectionTerminatedMICFailure: "encryption failed: the keys of the two sides differ (\(status(failure)))"
    default: "encryption failed: \(status(failure))"
    }
  }
  static func pairing(_ reason: PairingFailure, method: CheckPairing.Method?) -> String {
    let number = "0x\(hexDigits(UInt64(reason.rawValue), 2))" + (reason.name.map { ", \($0)" } ?? "")
    let isPasskey =
      switch method {
      case .passkey, .legacy(isPasskey: true): true
      default: false
      }
    let cause: String? =
      switch reason {
      case .confirmValueFailed where isPasskey: "the two sides used different passkeys"
      case .confirmValueFailed: "the two sides used different values for the confirmation"
      case .passkeyEntryFailed: "the user cancelled the entry of the passkey"
      case .oobNotAvailable: "a side lacks the out-of-band data"
      case .authenticationRequirements: "the two sides cannot authenticate each other as one of them demands"
      case .pairingNotSupported: "the side does not pair, or not now"
      case .encryptionKeySize: "the key would be too short for one of them"
      case .unspecifiedReason: "often the user's refusal"
      case .repeatedAttempts: "too many attempts: it accepts the next one later"
      case .dhKeyCheckFailed: "the two sides have computed different keys"
      case .numericComparisonFailed: "the user said that the numbers differ, or refused"
      case .keyRejected: "a distributed key was not acceptable"
      default: nil
      }
    return "(\(number))" + (cause.map { ": \($0)" } ?? "")
  }
}
