import BasicContainers
import BindruneWire

// SDUs of credit-based channels, and the K-frames that carry them: Vol 3, Part A, §3.4. The first K-frame of an SDU
// begins with its length, in two octets.

/// Memory that no SDU uses. A channel takes memory from here when it begins an SDU, and returns it at the end: so one
/// without an SDU in progress has none, and one that is always busy allocates none.
@usableFromInline struct SDUBuffers: ~Copyable {
  /// The limits of what is kept: buffers, and octets of each.
  static var most: Int { 4 }
  static var largest: Int { 8_192 }
  private var spares = UniqueArray<UniqueArray<UInt8>>()

  init() {}
  var count: Int { spares.count }
  /// An empty buffer with room for `capacity` octets.
  mutating func take(capacity: Int) -> UniqueArray<UInt8> {
    guard let last = spares.popLast() else { return UniqueArray(minimumCapacity: capacity) }
    var buffer = last
    buffer.reserveCapacity(capacity)
    return buffer
  }
  /// Takes the memory of `buffer`, which is empty and has none afterwards.
  mutating func takeBack(_ buffer: inout UniqueArray<UInt8>) {
    var used = UniqueArray<UInt8>()
    swap(&used, &buffer)
    guard used.capacity > 0, used.capacity <= SDUBuffers.largest, spares.count < SDUBuffers.most else { return }
    used.removeAll(keepingCapacity: true)
    spares.append(used)
  }
}

/// # SDUJoiner
/// **Overview**: joins the SDUs of one channel from its K-frames.
///
/// **Function**: an SDU that lies whole in one K-frame is not copied. A longer one is collected in memory for exactly
/// the length that its first K-frame states, which is at most the channel's MTU.
///
/// **Phases**: idle → collecting → complete (until `finish`) → idle.
@usableFromInline struct SDUJoiner: ~Copyable {
  enum Phase: BitwiseCopyable {
    case idle
    case collecting(length: Int)
    case complete
  }
  @usableFromInline enum Outcome: BitwiseCopyable {
    /// More K-frames follow.
    case incomplete
    /// The SDU is the K-frame's payload, without the two octets of its length.
    case inFrame
    /// The SDU is `bytes`, until `finish`.
    case joined
    case fault(ChannelFault)
  }
  private(set) var phase = Phase.idle
  @usableFromInline private(set) var bytes = UniqueArray<UInt8>()

  init() {}

  /// The payload of a K-frame, not longer than the MPS.
  @inline(__always)
  mutating func receive(_ payload: Span<UInt8>, mtu: Int, _ buffers: inout SDUBuffers) -> Outcome {
    guard case .collecting(let length) = phase else { return begin(payload, mtu: mtu, &buffers) }
    guard bytes.count + payload.count <= length else {
      return .fault(.sduOverrun(received: bytes.count + payload.count, expected: length))
    }
    bytes.append(copying: payload)
    if bytes.count < length { return .incomplete }
    phase = .complete
    return .joined
  }
  private mutating func begin(_ payload: Span<UInt8>, mtu: Int, _ buffers: inout SDUBuffers) -> Outcome {
    guard payload.count >= CreditFrame.lengthCount else { return .fault(.sduLengthMissing) }
    let length = Int(payload[0]) | Int(payload[1]) << 8, octets = payload.count - CreditFrame.lengthCount
    guard length <= mtu else { return .fault(.sduTooLong(length: length)) }
    guard octets <= length else { return .fault(.sduOverrun(received: octets, expected: length)) }
    if octets == length { return .inFrame }
    phase = .collecting(length: length)
    bytes = buffers.take(capacity: length)
    bytes.append(copying: payload.extracting(CreditFrame.lengthCount..<payload.count))
    return .incomplete
  }
  /// Ends the SDU, complete or not.
  mutating func finish(_ buffers: inout SDUBuffers) {
    phase = .idle
    buffers.takeBack(&bytes)
  }
}

/// # SDUCutter
/// **Overview**: cuts the SDUs of one channel into K-frames of the length that the peer accepts.
///
/// **Function**: the first K-frame is written together with the SDU; what exceeds it is kept here and written with each
/// further credit. So an SDU that fits, as most do, is not copied.
///
/// **Phases**: idle → begun (the octets of `bytes` from `start` on wait) → idle.
struct SDUCutter: ~Copyable {
  private var bytes = UniqueArray<UInt8>()
  private var start = 0

  init() {}
  /// A rest of the SDU waits.
  var isBegun: Bool { start < bytes.count }

  /// Removes what exceeds the first K-frame, which begins at `frame` with two octets for the SDU's length, and sets
  /// that length.
  mutating func begin(frameAt frame: Int, longestFrame: Int, _ output: inout OutputRawSpan, _ buffers: inout SDUBuffers)
  {
    precondition(!isBegun, "an SDU is finished before the next begins")
    let octets = output.byteCount - frame
    output.patch(UInt16(octets - CreditFrame.lengthCount), at: frame)
    guard octets > longestFrame else { return }
    bytes = buffers.take(capacity: octets - longestFrame)
    unsafe output.withUnsafeMutableBytes { written, _ in
      let rest = unsafe UnsafeRawBufferPointer(rebasing: written[frame + longestFrame..<frame + octets])
      unsafe rest.withMemoryRebound(to: UInt8.self) { rest in unsafe bytes.append(copying: rest) }
    }
    start = 0
    output.truncate(to: frame + longestFrame)
  }
  /// The same for an SDU that `write` appends to memory of `capacity` octets, because `output` may not have room for
  /// the longest. False, without an SDU, if `write` returns false.
  mutating func begin(
    capacity: Int, longestFrame: Int, _ output: inout OutputRawSpan, _ buffers: inout SDUBuffers,
    _ write: (inout OutputRawSpan) -> Bool
  ) -> Bool {
    precondition(!isBegun, "an SDU is finished before the next begins")
    bytes = buffers.take(capacity: capacity)
    start = 0
    var wrote = false
    bytes.append(addingCount: capacity) { room in
      unsafe room.withUnsafeMutableBufferPointer { memory, count in
        let memory = UnsafeMutableRawBufferPointer(memory)
        var raw = unsafe OutputRawSpan(buffer: memory, initializedCount: 0)
        wrote = write(&raw)
        count = unsafe raw.finalize(for: memory)
      }
    }
    guard wrote else {
      finish(&buffers)
      return false
    }
    output.append(littleEndian: UInt16(bytes.count))
    writeNext(longestFrame: longestFrame - CreditFrame.lengthCount, into: &output, &buffers)
    return true
  }
  /// Appends the next K-frame's payload.
  @inline(__always)
  mutating func writeNext(longestFrame: Int, into output: inout OutputRawSpan, _ buffers: inout SDUBuffers) {
    let end = min(start &+ longestFrame, bytes.count)
    output.append(contentsOf: bytes.span.extracting(start..<end))
    start = end
    if !isBegun { finish(&buffers) }
  }
  /// Ends the SDU, sent or not.
  mutating func finish(_ buffers: inout SDUBuffers) {
    start = 0
    buffers.takeBack(&bytes)
  }
}
