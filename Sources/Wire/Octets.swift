/// A range of the packet that a message was decoded from (or will be encoded from): a message refers to trailing bytes
/// instead of copying them.
///
///     let value = response.attributeValue          // of `packet`
///     let bytes = packet.extracting(value.range)   // a span, to look at while the packet is borrowed
///     let kept = value.array(in: packet)           // a copy, to keep
///
/// Valid only with its own packet and only while that is lent. With a packet too short for the range every one of these
/// functions traps. A peer cannot cause that: ranges from ``WireDecoder`` lie within the packet.
public struct Octets: BitwiseCopyable, Sendable, Equatable {
  public var offset: UInt32
  public var count: UInt32

  /// No octets.
  @inlinable @inline(__always) public init() {
    offset = 0
    count = 0
  }
  @inlinable @inline(__always) public init(_ offset: Int, _ count: Int) {
    self.offset = UInt32(truncatingIfNeeded: offset)
    self.count = UInt32(truncatingIfNeeded: count)
  }

  @inlinable @inline(__always) public var isEmpty: Bool { count == 0 }
  /// The range as the packet's indices: `packet.extracting(octets.range)` is the bytes.
  @inlinable @inline(__always) public var range: Range<Int> {
    unsafe Range(uncheckedBounds: (Int(offset), Int(offset) &+ Int(count)))
  }
  /// The octet at `index`, which counts from the beginning of the range.
  @inlinable @inline(__always) public func byte(_ index: Int, in packet: Span<UInt8>) -> UInt8 {
    precondition(UInt(bitPattern: index) < UInt(count))
    return packet[Int(offset) &+ index]
  }
  /// Lends the bytes to `body`.
  @inlinable @inline(__always) public func withBytes<Result, Failure: Error>(
    in packet: Span<UInt8>, _ body: (Span<UInt8>) throws(Failure) -> Result
  ) throws(Failure) -> Result {
    try body(packet.extracting(range))
  }
  /// Appends the bytes to `output`, which has room for them (traps otherwise).
  @inlinable @inline(__always) public func copyBytes(in packet: Span<UInt8>, into output: inout OutputRawSpan) {
    output.append(contentsOf: packet.extracting(range))
  }
  /// A copy of the bytes. Allocates.
  public func array(in packet: Span<UInt8>) -> [UInt8] {
    unsafe packet.extracting(range).withUnsafeBufferPointer { unsafe Array($0) }
  }
  /// True when the bytes are those of `other`.
  @inlinable public func equals(_ other: Span<UInt8>, in packet: Span<UInt8>) -> Bool {
    guard Int(count) == other.count else { return false }
    let bytes = packet.extracting(range)
    for i in bytes.indices where bytes[i] != other[i] { return false }
    return true
  }
}

extension Octets {
  /// Appends `bytes` to `arena`, from which a message will be encoded.
  public init(_ bytes: some Collection<UInt8>, in arena: inout [UInt8]) {
    self.init(arena.count, bytes.count)
    arena += bytes
  }
}

/// Types that a visitor's `octets` fills: ``Octets``, or a message's own type around it.
public protocol OctetsField { var octets: Octets { get set } }
extension Octets: OctetsField {
  @inlinable @inline(__always) public var octets: Octets {
    get { self }
    set { self = newValue }
  }
}

/// Types that a visitor's `uuid` fills: ``BluetoothUUID``, or a message's own type around it.
public protocol UUIDField { var uuid: BluetoothUUID { get set } }
extension BluetoothUUID: UUIDField {
  @inlinable @inline(__always) public var uuid: BluetoothUUID {
    get { self }
    set { self = newValue }
  }
}
