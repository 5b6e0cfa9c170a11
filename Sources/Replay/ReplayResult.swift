import BindruneATT
import BindruneTrace
import BindruneWire
import BindruneHCI
import BindruneSMP

/// A difference between the recorded host and ours that no freedom explains.
public struct ReplayDivergence: Sendable, Equatable {
  /// What makes it one.
  public enum Cause: Sendable, Equatable {
    /// Both send a PDU of this stream, with other octets.
    case different
    /// Only the recorded host sends one.
    case missing
    /// Only ours sends one.
    case extra
    /// Ours has ended the link.
    case linkEnded
    /// The recorded host sends on a bearer that is dead, because the request or indication of this record had no answer
    /// within 30 s. Vol 3, Part F, §3.3.3.
    case bearerDead(since: Int)
  }
  /// The record at which it shows.
  public var number: Int
  public var adapter: UInt16
  public var handle: UInt16
  public var role: LinkRole
  public var stream: ReplayStream
  /// What the recorded host sent, and ours, without the headers of ACL and L2CAP; nil: nothing.
  public var recorded: [UInt8]?
  public var ours: [UInt8]?
  public var cause: Cause
  /// Divergences of one group have one cause: the first, and those that follow from it.
  public var group: Int
  /// It is the first of its group.
  public var isFirst: Bool
  /// The first rule of BindruneTrace's `Checker` that the recorded host breaks at this record: then the fault is the
  /// recorded host's.
  public var breach: CheckRule?

  /// The recorded host does what the Specification forbids; false: the divergence alone does not tell whose fault it is.
  public var isRecordedHostsFault: Bool {
    if case .bearerDead = cause { return true }
    return breach != nil
  }
  /// Why it is a divergence, in a sentence.
  public var reason: String {
    switch cause {
    case .different: return difference
    case .missing: return "The recorded host sends this, ours sends nothing."
    case .extra: return "Ours sends this, the recorded host sends nothing."
    case .linkEnded: return "The recorded host sends this, ours has ended the link."
    case .bearerDead(let record):
      return """
        Record \(record) had no answer within 30 s, so the bearer is dead and the recorded host may send no request, \
        command, notification or indication on it (Vol 3, Part F, §3.3.3).
        """
    }
  }
  /// The first field that differs, by name.
  private var difference: String {
    let left = Self.lines(recorded, stream).dropLast(), right = Self.lines(ours, stream).dropLast()
    guard left.first == right.first else {
      return "The recorded host sends \(left.first ?? "nothing"), ours \(right.first ?? "nothing")."
    }
    for (one, other) in zip(left, right) where one != other { return "Recorded is \(one), ours is \(other)." }
    return
      "The recorded PDU has \(recorded?.count ?? 0) octets, ours \(ours?.count ?? 0), and their beginnings are equal."
  }
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
  /// All, in the order of the trace.
  public internal(set) var divergences: [ReplayDivergence] = []
  /// How often each freedom was used, and the records at which it was used first.
  public internal(set) var freedoms: [ReplayFreedom: Use] = [:]
  /// PDUs and commands of the recorded host that belong to the streams, or to channels.
  public internal(set) var offeredCount = 0
  /// Those of them that were passed over, by the freedom that permits it.
  public internal(set) var passedOver: [ReplayFreedom: Int] = [:]
  /// Records behind the first missing one: none of them was replayed.
  public internal(set) var recordsBehindGap = 0
  /// Records that were replayed.
  public internal(set) var records = 0
  var groupCount = 0

  public struct Use: Sendable, Equatable {
    public internal(set) var count = 0
    public internal(set) var numbers: [Int] = []
  }

  public var comparedCount: Int { links.reduce(0) { $0 + $1.compared.values.reduce(0, +) } }
  public var equalCount: Int { links.reduce(0) { $0 + $1.equal.values.reduce(0, +) } }
  public var divergenceCount: Int { divergences.count }
  public var isEqual: Bool { divergences.isEmpty }
  /// The divergences that do not follow from another.
  public var first: [ReplayDivergence] { divergences.filter(\.isFirst) }

  /// Why an absence of divergences says nothing about the trace, in a sentence; nil: at least half of it was compared.
  public var insufficiency: String? {
    if offeredCount == 0 {
      return """
        Nothing was compared: the host of this trace sends no ATT or SMP PDU, no LE signal, and no command that \
        encrypts or ends a link; record a connection at its host.
        """
    }
    if recordsBehindGap > records {
      return """
        Most of the trace was not replayed: packets are missing, and \(recordsBehindGap) records lie behind them, \
        \(records) before; record without loss, or cut the part behind with trace convert.
        """
    }
    let compared = comparedCount
    guard compared == 0 || compared * 2 < offeredCount else { return nil }
    let reasons = passedOver.sorted { ($1.value, $0.key.rawValue) < ($0.value, $1.key.rawValue) }.prefix(3)
      .map { "\($0.key.rawValue): \($0.value)" }
    let head = compared == 0 ? "Nothing was compared" : "Only \(compared) of \(offeredCount) PDUs were compared"
    return "\(head): most were passed over (\(reasons.joined(separator: ", "))); record whole connections."
  }

  mutating func use(_ freedom: ReplayFreedom, at number: Int) {
    freedoms[freedom, default: Use()].count += 1
    let known = freedoms[freedom]?.numbers ?? []
    if known.count < 5, known.last != number { freedoms[freedom]?.numbers.append(number) }
  }
  /// A PDU of the recorded host is not compared.
  mutating func pass(_ freedom: ReplayFreedom, at number: Int) {
    use(freedom, at: number)
    passedOver[freedom, default: 0] += 1
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
