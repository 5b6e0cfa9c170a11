/// Entries of a message, still in the packet: decoding the message checked their shape; the cursor decodes each on
/// demand.
///
///     var cursor = response.attributeDataList.cursor
///     while let entry = cursor.next(in: packet) { … }
///
/// Only this module makes lists that are not empty, so `byteCount` is a whole number of strides, and `Cursor` does not
/// check that again (measured: 10 instructions per PDU). Ranges have 16 bits: no packet exceeds 65,535 octets.
public struct WireList<Element: WireRecord>: BitwiseCopyable, Sendable {
  @usableFromInline let offset: UInt16
  @usableFromInline let byteCount: UInt16
  /// Octets per entry; 0 if each has its own length.
  @usableFromInline let stride: UInt16
  /// The number of entries, if the message carries it.
  @usableFromInline let count: UInt16

  @inlinable @inline(__always) public init() {
    offset = 0
    byteCount = 0
    stride = 0
    count = 0
  }
  /// A list that ends beyond 16 bits is a `WireError` of the field `label`.
  @inlinable @inline(__always)
  init(_ offset: Int, _ byteCount: Int, stride: Int, count: Int = 0, _ label: StaticString) throws(WireError) {
    let end = offset &+ byteCount
    if end > 0xFFFF { throw .tooLarge(label, end) }
    self.offset = UInt16(truncatingIfNeeded: offset)
    self.byteCount = UInt16(truncatingIfNeeded: byteCount)
    self.stride = UInt16(truncatingIfNeeded: stride)
    self.count = UInt16(truncatingIfNeeded: count)
  }

  @inlinable @inline(__always) public var isEmpty: Bool { byteCount == 0 }
  /// The octets of all entries together.
  @inlinable @inline(__always) public var octets: Octets { Octets(Int(offset), Int(byteCount)) }
  /// A cursor before the first entry.
  @inlinable @inline(__always) public var cursor: Cursor {
    Cursor(at: Int(offset), end: Int(offset) &+ Int(byteCount), stride: Int(stride))
  }

  public struct Cursor {
    @usableFromInline var at: Int
    @usableFromInline let end: Int
    @usableFromInline let stride: Int
    @inlinable @inline(__always) init(at: Int, end: Int, stride: Int) {
      self.at = at
      self.end = end
      self.stride = stride
    }
    /// The next entry.
    ///
    /// Traps when `packet` is not the packet that the list was decoded from: it is shorter, or an entry no longer
    /// decodes. A peer's bytes cannot cause that, only a caller that confuses packets.
    @inlinable @inline(__always) public mutating func next(in packet: Span<UInt8>) -> Element? {
      guard at < end else { return nil }
      precondition(end <= packet.count, "not the packet of this list")
      let measure = Element.measure
      let chained = measure.isCounted && !measure.isOpen
      let stride = measure.isOpen ? self.stride : measure.shortest
      var element = Element()
      defer { extendLifetime(packet) }
      var decoder = unsafe WireDecoder(packet, at, chained ? end : at &+ stride)
      do throws(WireError) { try element.fields(&decoder) } catch { preconditionFailure("not the packet of this list") }
      at = chained ? decoder.at : at &+ stride
      return element
    }
  }
}
