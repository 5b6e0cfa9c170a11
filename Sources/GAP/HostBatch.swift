import BasicContainers
import BindruneWire
import DequeModule

/// What a host has to say, in order, and the octets that belong to it.
///
/// A driver whose application uses the core while it is told exchanges an empty batch for the core's, memory for memory:
///
///     while core.takeBatch(&batch) {
///       while let effect = batch.nextEffect() { … }    // ranges lie in `batch.withBytes(of:)`
///     }
public struct HostBatch: ~Copyable {
  @usableFromInline var effects = Deque<HostEffect>()
  /// Where the ranges of `effects` lie.
  @usableFromInline var octets = UniqueArray<UInt8>()

  public init() {}

  @inlinable @inline(__always) public var isEmpty: Bool { effects.isEmpty }
  /// Ranges in it are valid until an effect is added to a batch that has become empty.
  @inlinable @inline(__always) public mutating func nextEffect() -> HostEffect? {
    effects.isEmpty ? nil : effects.removeFirst()
  }
  /// Lends the octets of a range in an effect.
  @inlinable @inline(__always)
  public borrowing func withBytes<Result, Failure: Error>(
    of range: Octets, _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try body(octets.span.extracting(range.range))
  }
  /// A copy of them.
  @inlinable @inline(__always) public func bytes(of range: Octets) -> [UInt8] { range.array(in: octets.span) }

  mutating func append(_ effect: HostEffect) { effects.append(effect) }
  /// Keeps octets for an effect that is about to be appended.
  @inline(__always) mutating func keep(_ bytes: Span<UInt8>, _ more: Span<UInt8> = Span()) -> Octets {
    // Nothing refers to the octets once all effects have been taken.
    if effects.isEmpty { octets.removeAll(keepingCapacity: true) }
    let range = Octets(octets.count, bytes.count + more.count)
    octets.append(copying: bytes)
    octets.append(copying: more)
    return range
  }
}
