import BindruneATT
import BindruneWire
import BindruneHCI
import BindruneSMP

/// A way in which two correct hosts may differ, which a replay therefore does not count as a divergence.
public enum ReplayFreedom: String, Sendable, CaseIterable {
  case connectionBefore = "connection before the trace"
  case subscriptionBefore = "subscription before the trace"
  case keysBefore = "keys before the trace"
  case database = "database that the trace does not show"
  case servicesChanged = "services changed by the application"
  case applicationValue = "value set by the application"
  case entries = "fewer entries than fit"
  case discovery = "discovery strategy"
  case mtuExchange = "time of the MTU exchange"
  case noCall = "request without a call of our client"
  case order = "order of PDUs"
  case parameters = "parameters chosen by policy"
  case ownAddress = "own address"
  case randomValues = "random values and keys"
  case pairingComputed = "pairing that depends on random values"
  case pairingNotCompared = "pairing before the trace"
  case refusal = "refusal by the user"
  case channelRefusal = "refusal of a channel"
  case channels = "credit-based channels"
  case bondRemoved = "bond removed by the user"
  case endOfLink = "end of the link"

  /// What the freedom permits, in a sentence.
  public var meaning: String {
    switch self {
    case .connectionBefore: "The trace begins on this link: our host was given a connection of the same role."
    case .subscriptionBefore:
      "The host sends values to which no client subscribed in the trace: our host was subscribed."
    case .keysBefore: "The trace does not show the pairing: our host was given the key that the recorded host used."
    case .database: "The trace shows values without their declarations: our host was given a characteristic for them."
    case .applicationValue:
      "The recorded server returned another value than the one last read or written: our application set that value."
    case .servicesChanged:
      "A search finds services that an earlier one did not find, or no longer finds them: our application changed them."
    case .entries:
      "The recorded server's list ends earlier than ours; the client asks for the rest."
    case .discovery: "Our client asks further or other questions to discover the same attributes."
    case .mtuExchange: "Our client exchanges the MTU at another time, or at all."
    case .noCall: "Our client sends no such request, or not alone; the peer's answer was kept from it."
    case .order: "PDUs that do not depend on each other leave in another order."
    case .parameters: "Values that a host chooses: MTU, pairing features, connection parameters."
    case .ownAddress: "The trace does not show the host's address, which the pairing contains."
    case .randomValues: "Both hosts draw their own random numbers and keys: only code and length were compared."
    case .pairingComputed:
      "The peer's values depend on the host's random numbers: they were computed again for those of our host."
    case .pairingNotCompared: "The trace begins in the middle of this pairing, which was not compared."
    case .refusal: "The recorded host's user refused a pairing: so did ours."
    case .channelRefusal:
      "The recorded host rejects requests for channels, which it does not support: ours refuses for lack of a service."
    case .channels:
      "Credit-based channels are an application's, enhanced bearers of ATT too: our host has none, and nothing was compared."
    case .bondRemoved:
      "The recorded host behaves as one that has no bond any more, without a contrary sign: ours was removed."
    case .endOfLink: "The link ended before the recorded host sent what ours had ready."
    }
  }
}

/// A difference between the recorded host and ours that no freedom explains.
public struct ReplayDivergence: Sendable, Equatable {
  /// The record at which it shows.
  public var number: Int
  public var adapter: UInt16
  public var handle: UInt16
  public var role: LinkRole
  public var stream: ReplayStream
  /// What the recorded host sent, and ours, without the headers of ACL and L2CAP; nil: nothing.
  public var recorded: [UInt8]?
  public var ours: [UInt8]?
}

/// What the comparison of one link gave.
public struct ReplayLink: Sendable, Equatable {
  public var adapter: UInt16
  public var handle: UInt16
  public var role: LinkRole
  /// Recorded PDUs of the host that were compared, and those of them that were equal or differ only as a freedom
  /// permits.
  public var compared: [ReplayStream: Int] = [:]
  public var equal: [ReplayStream: Int] = [:]
  public var divergences = 0
}

/// What a replay found.
public struct ReplayResult: Sendable, Equatable {
  public internal(set) var links: [ReplayLink] = []
  /// Up to `mostDivergences`, in the order of the trace.
  public internal(set) var divergences: [ReplayDivergence] = []
  public internal(set) var divergenceCount = 0
  /// How often each freedom was used, and the records at which it was used first.
  public internal(set) var freedoms: [ReplayFreedom: Use] = [:]
  public static var mostDivergences: Int { 100 }

  public struct Use: Sendable, Equatable {
    public internal(set) var count = 0
    public internal(set) var numbers: [Int] = []
  }

  public var comparedCount: Int { links.reduce(0) { $0 + $1.compared.values.reduce(0, +) } }
  public var equalCount: Int { links.reduce(0) { $0 + $1.equal.values.reduce(0, +) } }
  public var isEqual: Bool { divergenceCount == 0 }

  mutating func use(_ freedom: ReplayFreedom, at number: Int) {
    freedoms[freedom, default: Use()].count += 1
    let known = freedoms[freedom]?.numbers ?? []
    if known.count < 5, known.last != number { freedoms[freedom]?.numbers.append(number) }
  }
  mutating func add(_ divergence: ReplayDivergence) {
    divergenceCount += 1
    if divergences.count < Self.mostDivergences { divergences.append(divergence) }
  }
}

extension ReplayDivergence {
  /// A side, decoded: the PDU's name, then a line for each field, then the octets.
  public static func lines(_ pdu: [UInt8]?, _ stream: ReplayStream) -> [String] {
    guard let pdu else { return ["(nothing)"] }
    var name = "an invalid PDU", fields = ""
    do throws(WireError) {
      switch stream {
      case .client, .server, .values, .confirmations:
        name = pdu.first.flatMap { ATTOpcode(rawValue: $0).name }.map { "\($0)" } ?? "ATT"
        fields = try ATTPDU(pdu.span).describe(in: pdu.span)
      case .security:
        name = "Security Manager"
        let decoded = try SMPPDU(pdu.span)
        name = "\(decoded.name)"
        fields = decoded.describe(in: pdu.span)
      case .signaling: name = "LE signaling 0x" + hexDigits(UInt64(pdu.first ?? 0), 2)
      case .commands:
        let command = try AnyCommand(pdu.span)
        name = "\(command.name)"
        fields = command.describe(in: pdu.span)
      }
    } catch { fields = "\(error)" }
    return [name] + fields.split(separator: ", ").map { String($0).printable(limit: 1_000) } + [octets(pdu)]
  }
  private static func octets(_ pdu: [UInt8]) -> String {
    let shown = pdu.prefix(64).map { hexDigits(UInt64($0), 2) }.joined(separator: " ")
    return pdu.count > 64 ? shown + " … (\(pdu.count) octets)" : shown
  }
}
