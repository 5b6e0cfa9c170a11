import BindruneATT
import BindruneWire

/// The Database Hash: 128 bits that change whenever services, includes, characteristics or descriptors do. Vol 3, Part
/// G, §7.3.
public struct DatabaseHash: BitwiseCopyable, Sendable, Hashable {
  /// The octets in wire order, the first one in the least significant bits of `low`.
  public var low: UInt64
  public var high: UInt64
  public init(low: UInt64, high: UInt64) {
    self.low = low
    self.high = high
  }
  /// `nil` unless there are 16 octets.
  public init?(_ octets: Span<UInt8>) {
    guard octets.count == 16 else { return nil }
    self.init(low: 0, high: 0)
    for index in 0..<8 {
      low |= UInt64(octets[index]) << UInt64(8 * index)
      high |= UInt64(octets[8 + index]) << UInt64(8 * index)
    }
  }
  /// The 16 octets in wire order.
  public var octets: [UInt8] {
    (0..<16).map { UInt8(truncatingIfNeeded: ($0 < 8 ? low : high) >> UInt64(8 * ($0 % 8))) }
  }

  /// Read Using Characteristic UUID, because the handle may have changed: Vol 3, Part G, §7.3.
  static var request: ATTPDU {
    let request = ReadByTypeRequest.with {
      $0.startingHandle = HandleRange.all.first
      $0.endingHandle = HandleRange.all.last
      $0.attributeType = .databaseHash
    }
    return .readByTypeRequest(request)
  }
}

extension DatabaseHash: CustomStringConvertible, LosslessStringConvertible {
  /// 32 hexadecimal digits in wire order.
  public var description: String { octets.map { hexDigits(UInt64($0), 2) }.joined() }
  public init?(_ text: String) {
    var octets: [UInt8] = [], digits = Array(text.utf8)[...]
    guard digits.count == 32 else { return nil }
    while let high = digits.popFirst(), let low = digits.popFirst() {
      guard let high = Character(UnicodeScalar(high)).hexDigitValue,
        let low = Character(UnicodeScalar(low)).hexDigitValue
      else { return nil }
      octets.append(UInt8(high << 4 | low))
    }
    self.init(octets.span)
  }
}

/// Value of the Client Supported Features characteristic (0x2B29), its first octet. Vol 3, Part G, §7.2.
public struct ClientSupportedFeatures: OptionSet, OpenNumber {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }

  /// The client understands 0x12, Database Out Of Sync.
  @inlinable public static var robustCaching: Self { Self(rawValue: 0x01) }
  @inlinable public static var enhancedATTBearer: Self { Self(rawValue: 0x02) }
  /// The client understands Multiple Handle Value Notifications.
  @inlinable public static var multipleHandleValueNotifications: Self { Self(rawValue: 0x04) }
}
