import FoundationEssentials

/// Values of one characteristic, in order, all their octets in one piece of memory. `visit` lends each value; iteration
/// copies each one into a `Data`.
public struct BrokerValues: Sequence, Equatable, Sendable, ExpressibleByArrayLiteral {
  /// Before each value its length, two octets.
  private(set) var octets: [UInt8] = []
  public private(set) var count = 0
  public var isEmpty: Bool { count == 0 }

  public init(_ values: some Sequence<Data> = []) {
    for value in values { append(value.span) }
  }
  public init(arrayLiteral values: Data...) { self.init(values) }
  /// Nil: the lengths do not add up.
  init?(octets: [UInt8]) {
    var place = 0, count = 0
    while place < octets.count {
      guard place + 2 <= octets.count else { return nil }
      place = Self.range(of: octets, at: place).upperBound
      count += 1
    }
    guard place == octets.count else { return nil }
    self.octets = octets
    self.count = count
  }
  /// Empty, with memory for as many octets as `other` has, 64 KiB at most: the next values are often as many as the
  /// last.
  init(asLongAs other: BrokerValues) { octets.reserveCapacity(Swift.min(other.octets.count, 1 << 16)) }

  /// Appends a copy of `value`, which has 65,535 octets at most (traps otherwise).
  mutating func append(_ value: Span<UInt8>) {
    let count = UInt16(value.count)
    octets.append(UInt8(truncatingIfNeeded: count))
    octets.append(UInt8(truncatingIfNeeded: count >> 8))
    unsafe value.withUnsafeBufferPointer { unsafe octets.append(contentsOf: $0) }
    self.count += 1
  }
  /// The first `count` values, or all if they are fewer.
  func first(_ count: Int) -> BrokerValues { BrokerValues(prefix(count)) }

  /// Lends each value to `body`, in order, until that returns false.
  public func visit(_ body: (Span<UInt8>) -> Bool) {
    var place = 0
    while place < octets.count {
      let range = Self.range(of: octets, at: place)
      place = range.upperBound
      if !body(octets.span.extracting(range)) { return }
    }
  }
  /// Where the value is whose length stands at `place`.
  @inline(__always) private static func range(of octets: [UInt8], at place: Int) -> Range<Int> {
    let start = place + 2
    return start..<start + (Int(octets[place]) | Int(octets[place + 1]) << 8)
  }

  public func makeIterator() -> Iterator { Iterator(octets: octets) }
  public struct Iterator: IteratorProtocol {
    fileprivate let octets: [UInt8]
    private var place = 0
    fileprivate init(octets: [UInt8]) { self.octets = octets }

    public mutating func next() -> Data? {
      guard place < octets.count else { return nil }
      let range = BrokerValues.range(of: octets, at: place)
      place = range.upperBound
      return Data(octets[range])
    }
  }
}
