import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

/// A host's effects, in order, and their octets.
///
/// A driver whose application uses the core while it handles effects exchanges an empty batch for the core's, memory
/// for memory:
///
///     while core.takeBatch(&batch) {
///       while let effect = batch.nextEffect() { … }    // ranges lie in `batch.withBytes(of:)`
///     }
///
/// Values are stored apart from the other effects: they are the majority, and an effect is as large as its largest
/// case.
public struct HostBatch: ~Copyable {
  /// All effects but `.value`.
  @usableFromInline var effects = Deque<HostEffect>()
  @usableFromInline var values = UniqueArray<HostValue>()
  /// The numbers already taken.
  @usableFromInline var effectsTaken = 0, valuesTaken = 0
  /// The memory that the ranges of both refer to.
  @usableFromInline var octets = UniqueArray<UInt8>()

  public init() {}

  @inlinable @inline(__always) public var isEmpty: Bool { valuesTaken == values.count && effects.isEmpty }
  /// The next effect. Its ranges are valid until an effect is added to a batch that has become empty.
  @inlinable @inline(__always) public mutating func nextEffect() -> HostEffect? {
    if let value = nextValue() {
      return .value(value.link, value.handle, value.octets, isIndication: value.isIndication)
    }
    if effects.isEmpty { return nil }
    effectsTaken &+= 1
    return effects.removeFirst()
  }
  /// The next effect if it is a value; nil if it is another effect.
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
  /// A copy of the octets of a range.
  @inlinable @inline(__always) public func bytes(of range: Octets) -> [UInt8] { range.array(in: octets.span) }

  mutating func append(_ effect: HostEffect) { effects.append(effect) }
  /// Appends a value whose `octets` were kept just before.
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
  /// Drops the octets once all effects have been taken.
  @inline(__always) private mutating func forgetTaken() {
    octets.removeAll(keepingCapacity: true)
    values.removeAll(keepingCapacity: true)
    (effectsTaken, valuesTaken) = (0, 0)
  }
}

/// A notification, or an indication that the bearer has confirmed: `HostEffect.value` with more details.
public struct HostValue: BitwiseCopyable, Sendable {
  public let link: LinkID
  public let handle: AttributeHandle
  /// A range of the batch's octets.
  public let octets: Octets
  public let isIndication: Bool
  /// The handle is the link's Service Changed value; the client has processed the change.
  public let isServiceChanged: Bool
  /// The number of other effects before it.
  @usableFromInline let place: Int
}
