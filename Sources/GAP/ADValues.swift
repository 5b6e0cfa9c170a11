import BindruneWire
import BindruneHCI

// The less common AD types, by name: each property reads and writes a structure of `other`. Core Specification
// Supplement, Part A. For types whose formats other specifications define (mesh, BIGInfo, 3D, electronic shelf labels,
// out-of-band values), `data(of:)` returns the octets.
extension AdvertisingData {
  /// The data of the first such structure in `other`.
  public func data(of type: ADType) -> [UInt8]? { other.first { $0.type == type }?.data }
  /// Nil removes all structures of this type from `other`. A structure holds at most 254 octets on the air.
  public mutating func setData(_ data: [UInt8]?, of type: ADType) {
    let place = other.firstIndex { $0.type == type } ?? other.count
    other.removeAll { $0.type == type }
    if let data { other.insert(Structure(type: type, data: data), at: place) }
  }
  /// The data, if its length is valid for the type.
  private func soundData(of type: ADType) -> [UInt8]? {
    data(of: type).flatMap { type.accepts(octets: $0.count) ? $0 : nil }
  }
  private func value(of type: ADType) -> UInt64? { soundData(of: type).map { number($0) } }
  private mutating func set(_ value: UInt64?, _ width: Int, of type: ADType) {
    setData(value.map { octets($0, width) }, of: type)
  }
  private func text(of type: ADType) -> String? { data(of: type).map { String(decoding: $0, as: UTF8.self) } }

  /// Three octets. §1.6.
  public var classOfDevice: UInt32? {
    get { value(of: .classOfDevice).map { UInt32($0) } }
    set { set(newValue.map { UInt64($0) }, 3, of: .classOfDevice) }
  }

  /// The connection intervals that a peripheral prefers, in units of 1.25 ms, 0x0006 … 0x0C80; 0xFFFF: no preference.
  public struct ConnectionIntervalRange: BitwiseCopyable, Sendable, Hashable {
    public var minimum: UInt16
    public var maximum: UInt16
    public init(minimum: UInt16, maximum: UInt16) {
      self.minimum = minimum
      self.maximum = maximum
    }
  }
  /// §1.9.
  public var peripheralConnectionIntervalRange: ConnectionIntervalRange? {
    get {
      value(of: .peripheralConnectionIntervalRange).map {
        ConnectionIntervalRange(
          minimum: UInt16(truncatingIfNeeded: $0), maximum: UInt16(truncatingIfNeeded: $0 >> 16))
      }
    }
    set {
      set(
        newValue.map { UInt64($0.minimum) | UInt64($0.maximum) << 16 }, 4, of: .peripheralConnectionIntervalRange)
    }
  }

  /// The intended recipients, by public addresses. §1.13. Empty: no such structure.
  public var publicTargetAddresses: [DeviceAddress] {
    get { addresses(.publicTargetAddress) }
    set { setAddresses(newValue, .publicTargetAddress) }
  }
  /// The intended recipients, by random addresses. §1.14. Empty: no such structure.
  public var randomTargetAddresses: [DeviceAddress] {
    get { addresses(.randomTargetAddress) }
    set { setAddresses(newValue, .randomTargetAddress) }
  }
  private func addresses(_ type: ADType) -> [DeviceAddress] {
    guard let data = soundData(of: type) else { return [] }
    return stride(from: 0, to: data.count, by: 6).map { DeviceAddress(number(data[$0..<$0 + 6])) }
  }
  private mutating func setAddresses(_ addresses: [DeviceAddress], _ type: ADType) {
    setData(addresses.isEmpty ? nil : addresses.flatMap { octets($0.value, 6) }, of: type)
  }

  /// From the long form (up to 4 octets) or the short one, in steps of 625 µs. §1.15. The setter writes as few octets
  /// as possible.
  public var advertisingInterval: Duration? {
    get {
      (value(of: .advertisingIntervalLong) ?? value(of: .advertisingInterval)).map { .microseconds(Int64($0) * 625) }
    }
    set {
      let units = newValue.map { UInt64(max(0, min($0.nanoseconds / 625_000, 0xFFFF_FFFF))) }
      set(units.flatMap { $0 <= 0xFFFF ? $0 : nil }, 2, of: .advertisingInterval)
      set(units.flatMap { $0 > 0xFFFF ? $0 : nil }, units ?? 0 > 0xFF_FFFF ? 4 : 3, of: .advertisingIntervalLong)
    }
  }

  /// Public or random. §1.16.
  public var leDeviceAddress: PeerAddress? {
    get {
      soundData(of: .leBluetoothDeviceAddress).map {
        PeerAddress(DeviceAddress(number($0.prefix(6))), $0[6] & 1 == 0 ? .public : .random)
      }
    }
    set {
      setData(newValue.map { octets($0.address.value, 6) + [$0.isRandom ? 1 : 0] }, of: .leBluetoothDeviceAddress)
    }
  }

  /// §1.17.
  public struct LERole: OpenNumber, Hashable, ExpressibleByIntegerLiteral {
    public var rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }
    public init(integerLiteral value: UInt8) { rawValue = value }
    public static var peripheralOnly: LERole { 0x00 }
    public static var centralOnly: LERole { 0x01 }
    public static var peripheralPreferred: LERole { 0x02 }
    public static var centralPreferred: LERole { 0x03 }
  }
  public var leRole: LERole? {
    get { value(of: .leRole).map { LERole(rawValue: UInt8(truncatingIfNeeded: $0)) } }
    set { set(newValue.map { UInt64($0.rawValue) }, 1, of: .leRole) }
  }

  /// §1.18. On the wire a scheme is one code point: this property expands `http:` and `https:`, and returns a URI
  /// without a known scheme unchanged. Assigned Numbers, §2.7.
  public var uri: String? {
    get {
      guard let text = text(of: .uri), let scheme = text.unicodeScalars.first else { return nil }
      let rest = String(text.unicodeScalars.dropFirst())
      return Self.uriSchemes.first { $0.code == scheme }.map { $0.scheme + rest } ?? text
    }
    set {
      setData(
        newValue.map { uri in
          if let (code, scheme) = Self.uriSchemes.first(where: { !$0.scheme.isEmpty && uri.hasPrefix($0.scheme) }) {
            return Array(String(code).utf8) + Array(uri.utf8.dropFirst(scheme.utf8.count))
          }
          // Unchanged: a code point below U+0100 that is not a letter already stands for a scheme.
          let hasCode = uri.unicodeScalars.first.map { $0.value < 0x20 || (0x7F...0xFF).contains($0.value) } == true
          return (hasCode ? [] : [0x01]) + Array(uri.utf8)
        }, of: .uri)
    }
  }
  /// The empty scheme first.
  private static var uriSchemes: [(code: UnicodeScalar, scheme: String)] {
    [("\u{01}", ""), ("\u{16}", "http:"), ("\u{17}", "https:")]
  }

  /// The bits of LE features, bit 0 in the first octet; the lower 64 of a longer field. §1.19. The setter omits
  /// trailing zeros.
  public var leSupportedFeatures: UInt64? {
    get { value(of: .leSupportedFeatures) }
    set { set(newValue, newValue.map { (64 - $0.leadingZeroBitCount + 7) / 8 } ?? 0, of: .leSupportedFeatures) }
  }

  /// A new channel map for periodic advertising, and the event from which it applies. §1.20.
  public struct ChannelMapUpdate: BitwiseCopyable, Sendable, Hashable {
    /// Bit n is channel n, 0 … 36.
    public var channelMap: UInt64
    public var instant: UInt16
    public init(channelMap: UInt64, instant: UInt16) {
      self.channelMap = channelMap
      self.instant = instant
    }
  }
  public var channelMapUpdate: ChannelMapUpdate? {
    get {
      value(of: .channelMapUpdateIndication).map {
        ChannelMapUpdate(channelMap: $0 & 0xFF_FFFF_FFFF, instant: UInt16(truncatingIfNeeded: $0 >> 40))
      }
    }
    set {
      set(
        newValue.map { $0.channelMap & 0xFF_FFFF_FFFF | UInt64($0.instant) << 40 }, 7, of: .channelMapUpdateIndication)
    }
  }

  /// The name of a broadcast. Octets that are not UTF-8 read as U+FFFD.
  public var broadcastName: String? {
    get { text(of: .broadcastName) }
    set { setData(newValue.map { Array($0.utf8) }, of: .broadcastName) }
  }

  /// Encrypted data, for holders of the key. §1.23: randomizer, encrypted AD structures, message integrity check.
  public struct EncryptedData: Sendable, Hashable {
    /// Five octets.
    public var randomizer: [UInt8]
    public var payload: [UInt8]
    /// Four octets.
    public var mic: [UInt8]
    public init(randomizer: [UInt8], payload: [UInt8], mic: [UInt8]) {
      self.randomizer = randomizer
      self.payload = payload
      self.mic = mic
    }
  }
  public var encryptedData: EncryptedData? {
    get {
      soundData(of: .encryptedAdvertisingData).map {
        EncryptedData(
          randomizer: Array($0.prefix(5)), payload: Array($0.dropFirst(5).dropLast(4)), mic: Array($0.suffix(4)))
      }
    }
    set { setData(newValue.map { $0.randomizer + $0.payload + $0.mic }, of: .encryptedAdvertisingData) }
  }

  /// When and how to respond to periodic advertising. §1.24.
  public struct ResponseTiming: BitwiseCopyable, Sendable, Hashable {
    public var responseAccessAddress: UInt32
    public var numberOfSubevents: UInt8
    /// In units of 1.25 ms.
    public var subeventInterval: UInt8
    /// In units of 1.25 ms.
    public var responseSlotDelay: UInt8
    /// In units of 0.125 ms.
    public var responseSlotSpacing: UInt8
    public init(
      responseAccessAddress: UInt32, numberOfSubevents: UInt8, subeventInterval: UInt8, responseSlotDelay: UInt8,
      responseSlotSpacing: UInt8
    ) {
      self.responseAccessAddress = responseAccessAddress
      self.numberOfSubevents = numberOfSubevents
      self.subeventInterval = subeventInterval
      self.responseSlotDelay = responseSlotDelay
      self.responseSlotSpacing = responseSlotSpacing
    }
  }
  public var periodicAdvertisingResponseTiming: ResponseTiming? {
    get {
      soundData(of: .periodicAdvertisingResponseTimingInformation).map {
        ResponseTiming(
          responseAccessAddress: UInt32(number($0.prefix(4))), numberOfSubevents: $0[4], subeventInterval: $0[5],
          responseSlotDelay: $0[6], responseSlotSpacing: $0[7])
      }
    }
    set {
      setData(
        newValue.map {
          octets(UInt64($0.responseAccessAddress), 4) + [
            $0.numberOfSubevents, $0.subeventInterval, $0.responseSlotDelay, $0.responseSlotSpacing,
          ]
        }, of: .periodicAdvertisingResponseTimingInformation)
    }
  }
}
