import BasicContainers
import BindruneWire

/// # LinkDeadlines
/// **Overview**: a deadline for each link, or none, and the least of all in constant time.
///
/// **Function**: a tournament tree in one array. Its second half are the deadlines, in the order of the links; node n
/// of the first half is the lesser of nodes 2n and 2n + 1, so node 1 is the least of all. A changed deadline costs as
/// many comparisons as the tree is high: five for 32 links.
struct LinkDeadlines: ~Copyable {
  private static var never: Instant { Instant(nanoseconds: .max) }
  private var nodes: UniqueArray<Instant>
  private var count = 0
  /// The number of links that fit: a power of two.
  private var width: Int { nodes.count / 2 }

  init() { nodes = UniqueArray(repeating: LinkDeadlines.never, count: 2) }

  var least: Instant? { nodes[1] == LinkDeadlines.never ? nil : nodes[1] }
  func isDue(_ index: Int, now: Instant) -> Bool { nodes[width + index] <= now }

  @inline(__always) mutating func set(_ index: Int, to deadline: Instant?) {
    let node = nodes.count &>> 1 &+ index, deadline = deadline ?? LinkDeadlines.never
    if nodes[node] != deadline { change(node, to: deadline) }
  }
  private mutating func change(_ leaf: Int, to deadline: Instant) {
    nodes[leaf] = deadline
    var node = leaf / 2
    while node > 0 {
      play(node)
      node /= 2
    }
  }
  private mutating func play(_ node: Int) { nodes[node] = min(nodes[2 * node], nodes[2 * node + 1]) }
  private mutating func playAll() { for node in (1..<width).reversed() { play(node) } }

  /// Appends a link without a deadline.
  mutating func append() {
    count += 1
    if count <= width { return }
    var wider = UniqueArray(repeating: LinkDeadlines.never, count: nodes.count * 2)
    for place in 0..<width { wider[2 * width + place] = nodes[width + place] }
    nodes = wider
    playAll()
  }
  /// Later links move up.
  mutating func remove(at index: Int) {
    count -= 1
    for place in index..<count { nodes[width + place] = nodes[width + place + 1] }
    nodes[width + count] = LinkDeadlines.never
    playAll()
  }
}
