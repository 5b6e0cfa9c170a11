import BasicContainers
import BindruneWire
import DequeModule

/// Packets in a row, first in, first out: one piece of memory, no allocation once it is warm.
///
/// A packet may be held back until an instant: that is how answers and data take time. A later packet never overtakes.
struct PacketQueue: ~Copyable {
  private(set) var bytes = UniqueArray<UInt8>()
  private var packets = Deque<Entry>()
  private var start = 0

  private struct Entry {
    var count: Int32, tag: UInt8, release: Instant
  }

  var isEmpty: Bool { packets.isEmpty }
  /// Number of packets.
  var count: Int { packets.count }
  /// Octets waiting.
  var octets: Int { bytes.count - start }
  /// When the first packet may go.
  var release: Instant? { packets.first?.release }
  /// Where the first packet lies in `bytes`; empty when there is none.
  var front: Range<Int> { start..<start + Int(packets.first?.count ?? 0) }
  /// The number that was put in with the first packet.
  var tag: UInt8 { packets.first?.tag ?? 0 }

  /// Appends a packet made of two parts.
  mutating func append(_ head: Span<UInt8>, _ body: Span<UInt8>, tag: UInt8 = 0, release: Instant = .zero) {
    var release = release
    if let last = packets.last { release = max(release, last.release) }
    bytes.append(copying: head)
    bytes.append(copying: body)
    packets.append(Entry(count: Int32(head.count + body.count), tag: tag, release: release))
  }
  mutating func removeFirst() {
    guard let first = packets.popFirst() else { return }
    start += Int(first.count)
    if packets.isEmpty {
      bytes.removeAll(keepingCapacity: true)
      start = 0
    } else if start >= 4096, start * 2 >= bytes.count {
      bytes.removeSubrange(0..<start)
      start = 0
    }
  }
  mutating func removeAll() {
    packets.removeAll(keepingCapacity: true)
    bytes.removeAll(keepingCapacity: true)
    start = 0
  }
}
