import BindruneWire

// Values that many services use. GATT Specification Supplement, §3; comments give the units.
//
//     let time = try WireDecoder.decode(DateTime.self, value.span)
//     let octets = try time.encoded(from: Span())

/// Battery Level (0x2A19).
public struct BatteryLevel: WireRecord {
  /// Per cent, 0 … 100; more is reserved.
  public var level: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Battery Level", &level)
  }
}

/// Date Time (0x2A08): the device's local time, without its time zone.
public struct DateTime: WireRecord {
  /// 1582 … 9999; 0 means unknown, as for month and day.
  public var year: UInt16 = 0
  public var month: UInt8 = 0
  public var day: UInt8 = 0
  public var hours: UInt8 = 0
  public var minutes: UInt8 = 0
  public var seconds: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Year", &year)
    try visit.value("Month", &month)
    try visit.value("Day", &day)
    try visit.value("Hours", &hours)
    try visit.value("Minutes", &minutes)
    try visit.value("Seconds", &seconds)
  }
  /// `2026-11-21 14:05:09`
  public var text: String {
    func digits(_ value: UInt8) -> String { value < 10 ? "0\(value)" : "\(value)" }
    return "\(year)-\(digits(month))-\(digits(day)) \(digits(hours)):\(digits(minutes)):\(digits(seconds))"
  }
}

/// Current Time (0x2A2B): Exact Time 256 and the reason of the clock's last adjustment.
public struct CurrentTime: WireRecord {
  public struct AdjustReason: OptionSet, OpenNumber {
    public var rawValue: UInt8
    @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
    @inlinable public static var manualTimeUpdate: Self { Self(rawValue: 0x01) }
    @inlinable public static var externalReferenceTimeUpdate: Self { Self(rawValue: 0x02) }
    @inlinable public static var changeOfTimeZone: Self { Self(rawValue: 0x04) }
    @inlinable public static var changeOfDST: Self { Self(rawValue: 0x08) }
  }
  public var dateTime = DateTime()
  /// 1 Monday … 7 Sunday; 0 means unknown.
  public var dayOfWeek: UInt8 = 0
  /// 1/256 s.
  public var fractions256: UInt8 = 0
  public var adjustReason = AdjustReason()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try dateTime.fields(&visit)
    try visit.value("Day of Week", &dayOfWeek)
    try visit.value("Fractions256", &fractions256)
    try visit.value("Adjust Reason", &adjustReason)
  }
}

/// PnP ID (0x2A50).
public struct PnPID: WireRecord {
  /// The authority that assigned `vendorID`.
  public struct VendorIDSource: OpenNumber, Hashable {
    public var rawValue: UInt8
    @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
    @inlinable @inline(__always) public init() { rawValue = 0 }
    @inlinable public static var bluetoothSIG: Self { Self(rawValue: 1) }
    @inlinable public static var usbImplementersForum: Self { Self(rawValue: 2) }
  }
  public var vendorIDSource = VendorIDSource.bluetoothSIG
  public var vendorID: UInt16 = 0
  public var productID: UInt16 = 0
  /// 0xJJMN is version JJ.M.N.
  public var productVersion: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Vendor ID Source", &vendorIDSource)
    try visit.value("Vendor ID", &vendorID)
    try visit.value("Product ID", &productID)
    try visit.value("Product Version", &productVersion)
  }
}

/// Appearance (0x2A01): the device's appearance to its user. Assigned Numbers, §2.6.
public struct Appearance: OpenNumber, WireRecord, Hashable {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  public init(category: UInt16, subcategory: UInt16 = 0) { rawValue = category << 6 | subcategory & 0x3F }
  /// The upper 10 bits: the category, which `AssignedNumbers` names.
  public var category: UInt16 { rawValue >> 6 }
  /// The lower 6 bits: the subcategory; 0 is the generic one.
  public var subcategory: UInt16 { rawValue & 0x3F }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Appearance", &self)
  }
}
