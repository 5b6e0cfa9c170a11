import ATT
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
///
/// Values wait apart from the other effects: they are most of what there is, and an effect is as large as its largest case.
public struct HostBatch: ~Copyable {
  /// All effects but `.value`.
  @usableFromInline var effects = Deque<HostEffect>()
  @usableFromInline var values = UniqueArray<HostValue>()
  /// How many of each have been taken.
  @usableFromInline var effectsTaken = 0, valuesTaken = 0
  /// Where the ranges of both lie.
  @usableFromInline var octets = UniqueArray<UInt8>()

  public init() {}

  @inlinable @inline(__always) public var isEmpty: Bool { valuesTaken == values.count && effects.isEmpty }
  /// The next effect. Ranges in it are valid until an effect is added to a batch that has become empty.
  @inlinable @inline(__always) public mutating func nextEffect() -> HostEffect? {
    if let value = nextValue() {
      return .value(value.link, value.handle, value.octets, isIndication: value.isIndication)
    }
    if effects.isEmpty { return nil }
    effectsTaken &+= 1
    return effects.removeFirst()
  }
  /// The same where the next effect is a value; nil where it is another one.
  @inlinable @inline(__always) public mutating func nextValue() -> HostValue? {
    guard valuesTaken < values.count, values[valuesTaken].place == effectsTaken else { return nil }
    let value = values[valuesTaken]
    valuesTaken &+= 1
    return value
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
  /// `octets` have been kept, just before.
  @inline(__always) mutating func append(
    value octets: Octets, of handle: AttributeHandle, isIndication: Bool, isServiceChanged: Bool, on link: LinkID
  ) {
    values.append(
      HostValue(
        link: link, handle: handle, octets: octets, isIndication: isIndication, isServiceChanged: isServiceChanged,
        place: effectsTaken &+ effects.count))
  }
  /// Keeps octets for an effect that is about to be appended.
  @inline(__always) mutating func keep(_ bytes: Span<UInt8>) -> Octets {
    if isEmpty { forgetTaken() }
    let range = Octets(octets.count, bytes.count)
    octets.append(copying: bytes)
    return range
  }
  /// The same for octets in two pieces.
  mutating func keep(_ bytes: Span<UInt8>, _ more: Span<UInt8>) -> Octets {
    let first = keep(bytes)
    octets.append(copying: more)
    return Octets(Int(first.offset), bytes.count + more.count)
  }
  /// Nothing refers to the octets once all effects have been taken.
  @inline(__always) private mutating func forgetTaken() {
    octets.removeAll(keepingCapacity: true)
    values.removeAll(keepingCapacity: true)
    (effectsTaken, valuesTaken) = (0, 0)
  }
}

/// A notification, or an indication that the bearer has confirmed: what `HostEffect.value` holds, and more.
public struct HostValue: BitwiseCopyable, Sendable {
  public let link: LinkID
  public let handle: AttributeHandle
  /// In the batch's octets.
  public let octets: Octets
  public let isIndication: Bool
  /// Its handle is that of the link's Service Changed value; the client has processed the change.
  public let isServiceChanged: Bool
  /// So many other effects come before it.
  @usableFromInline let place: Int
}
