import BindruneATT
import BindruneGAP

/// Consecutive values of one characteristic, with all octets in one piece of memory: those waiting when the reader
/// asked.
///
///     for try await batch in rate.batches {
///       for value in batch { print(value.value) }                    // a copy of each value
///       for index in batch.indices { batch.withValue(at: index) { sum += $0.count } }    // or none
///     }
public struct ReceivedBatch: Sendable, RandomAccessCollection {
  public let handle: AttributeHandle
  /// Octets that may wait, counting `costOfValue` for each value.
  private let capacity: Int
  private var octets: [UInt8] = []
  private var values: [Value] = []
  /// The reader has taken those before it.
  public private(set) var startIndex = 0
  private struct Value {
    var start: Int, end: Int
    var isIndication: Bool
  }
  static var costOfValue: Int { 16 }

  init(_ handle: AttributeHandle, capacity: Int) {
    self.handle = handle
    self.capacity = capacity
  }

  public var endIndex: Int { values.count }
  /// A copy of the value.
  public subscript(index: Int) -> ReceivedValue {
    precondition(index >= startIndex, "this value has been taken")
    let value = values[index]
    return ReceivedValue(
      handle: handle, value: Array(octets[value.start..<value.end]), isIndication: value.isIndication)
  }
  /// Lends the octets of a value.
  public func withValue<Result, Failure: Error>(
    at index: Int, _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    precondition(index >= startIndex, "this value has been taken")
    return try body(octets.span.extracting(values[index].start..<values[index].end))
  }
}

extension ReceivedBatch: Pile {
  /// Octets that wait, plus the cost of each value.
  private var used: Int { isEmpty ? 0 : octets.count - values[startIndex].start + Self.costOfValue * count }

  /// Returns nil if it accepts the value, else the reason. A single value always fits.
  mutating func append(_ value: Span<UInt8>, isIndication: Bool) -> BluetoothError? {
    guard isEmpty || used + value.count + Self.costOfValue <= capacity else { return .overflow(octets: capacity) }
    let start = octets.count
    unsafe value.withUnsafeBufferPointer { unsafe octets.append(contentsOf: $0) }
    values.append(Value(start: start, end: octets.count, isIndication: isIndication))
    return nil
  }
  mutating func popFirst() -> ReceivedValue? {
    guard let value = first else { return nil }
    startIndex += 1
    if isEmpty {
      octets.removeAll(keepingCapacity: true)
      values.removeAll(keepingCapacity: true)
      startIndex = 0
    } else if startIndex >= 64, startIndex * 2 >= values.count {
      forgetTaken()
    }
    return value
  }
  /// Called when at least half of all have been taken, so each value moves at most once on average.
  private mutating func forgetTaken() {
    let start = values[startIndex].start
    octets.removeSubrange(..<start)
    values.removeSubrange(..<startIndex)
    for index in values.indices {
      values[index].start -= start
      values[index].end -= start
    }
    startIndex = 0
  }
  mutating func takeAll() -> Self {
    var all = ReceivedBatch(handle, capacity: capacity)
    swap(&all, &self)
    // The next batch is probably about as large.
    octets.reserveCapacity(Swift.min(all.octets.count, 1 << 16))
    values.reserveCapacity(Swift.min(all.values.count, 1 << 10))
    return all
  }
}
