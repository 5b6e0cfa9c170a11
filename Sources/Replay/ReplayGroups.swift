import BindruneGAP

/// Which divergences have one cause.
///
/// A divergence follows from an earlier one
/// - of its stream, until the two hosts agree in that stream again,
/// - of security or commands on its link, which decide what the link permits, and of later links to the same peer,
///   until a pairing with it has succeeded,
/// - with the same PDUs.
struct ReplayGroups {
  private struct Trouble {
    var streams: [ReplayStream: Int] = [:]
    var whole: Int?
  }
  /// The PDUs of a divergence.
  private struct Pair: Hashable {
    var stream: ReplayStream
    var recorded: [UInt8]?, ours: [UInt8]?
  }
  private(set) var count = 0
  private var links: [Int: Trouble] = [:]
  private var pairs: [Pair: Int] = [:]
  private var peers: [PeerID: Int] = [:]
  private var accused: Set<Int> = []

  /// The group of a divergence, and whether it is the first of it.
  mutating func place(
    _ stream: ReplayStream, _ recorded: [UInt8]?, _ ours: [UInt8]?, on link: Int, with peer: PeerID?
  ) -> (group: Int, isFirst: Bool) {
    let pair = Pair(stream: stream, recorded: recorded, ours: ours), trouble = links[link]
    let known = trouble?.whole ?? trouble?.streams[stream] ?? peer.flatMap { peers[$0] } ?? pairs[pair]
    let group = known ?? count
    if known == nil { count += 1 }
    links[link, default: Trouble()].streams[stream] = group
    if stream == .security || stream == .commands {
      links[link]?.whole = group
      if let peer { peers[peer] = group }
    }
    if pairs[pair] == nil { pairs[pair] = group }
    return (group, known == nil)
  }
  /// The two hosts have sent the same.
  mutating func agreed(in stream: ReplayStream, on link: Int) { links[link]?.streams[stream] = nil }
  /// A pairing has succeeded.
  mutating func paired(with peer: PeerID) { peers[peer] = nil }
  /// True the first time: the recorded host sends on the dead bearer of this link.
  mutating func accuse(_ link: Int) -> Bool { accused.insert(link).inserted }
}

/// Service Changed indications of one link that only one of two hosts has sent so far: when a host sends them is its
/// policy, such as before or after the encryption. Vol 3, Part G, §7.1.
struct ServiceChanges {
  /// Of the recorded host and of ours.
  private var theirs: [[UInt8]] = []
  private(set) var ours: [[UInt8]] = []

  mutating func addTheirs(_ pdu: [UInt8]) { theirs.append(pdu) }
  /// The services change: what was indicated before says nothing of it.
  mutating func forgetTheirs() { theirs = [] }
  mutating func addOurs(_ pdu: [UInt8]) { ours.append(pdu) }
  /// A recorded one says all of ours.
  func hasTheirs(covering pdu: [UInt8]) -> Bool { theirs.contains { Self.covers($0, pdu) } }
  /// Takes those of ours that the recorded one says too; false: there is none.
  mutating func takeOurs(coveredBy pdu: [UInt8]) -> Bool {
    let count = ours.count
    ours.removeAll { Self.covers(pdu, $0) }
    return ours.count < count
  }
  /// Both are indications of 7 octets of the same handle, and the first one's range has all of the other's.
  static func covers(_ one: [UInt8], _ other: [UInt8]) -> Bool {
    one.count == 7 && other.count == 7 && one[..<3] == other[..<3] && one.little16(3) <= other.little16(3)
      && one.little16(5) >= other.little16(5)
  }
}
