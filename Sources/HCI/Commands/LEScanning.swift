import BindruneWire

/// LE Set Scan Parameters. Vol 4, Part E, §7.8.10.
public struct LESetScanParameters: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x000B) }
  public static var name: StaticString { "HCI_LE_Set_Scan_Parameters" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.10" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(26, 2) }
  public var leScanType = ScanType.passive
  public var leScanInterval = ScanInterval(rawValue: 0x0010)
  public var leScanWindow = ScanInterval(rawValue: 0x0010)
  public var ownAddressType = OwnAddressType()
  public var scanningFilterPolicy = ScanningFilterPolicy()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("LE_Scan_Type", &leScanType)
    try visit.value("LE_Scan_Interval", &leScanInterval)
    try visit.value("LE_Scan_Window", &leScanWindow)
    try visit.value("Own_Address_Type", &ownAddressType)
    try visit.value("Scanning_Filter_Policy", &scanningFilterPolicy)
  }
}

/// LE Set Scan Enable. Vol 4, Part E, §7.8.11.
public struct LESetScanEnable: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x000C) }
  public static var name: StaticString { "HCI_LE_Set_Scan_Enable" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.11" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(26, 3) }
  public var leScanEnable = false
  public var filterDuplicates = false
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("LE_Scan_Enable", &leScanEnable)
    try visit.value("Filter_Duplicates", &filterDuplicates)
  }
}

/// LE Set Extended Scan Parameters. Vol 4, Part E, §7.8.64.
///
/// One group of parameters per bit of `scanningPHYs`, lowest bit first; a group whose bit is off is not on the wire.
public struct LESetExtendedScanParameters: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0041) }
  public static var name: StaticString { "HCI_LE_Set_Extended_Scan_Parameters" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.64" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(37, 5) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var ownAddressType = OwnAddressType()
  public var scanningFilterPolicy = ScanningFilterPolicy()
  public var scanningPHYs = PHYSet.le1M
  public var le1M = Parameters(), leCoded = Parameters()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Own_Address_Type", &ownAddressType)
    try visit.value("Scanning_Filter_Policy", &scanningFilterPolicy)
    try visit.value("Scanning_PHYs", &scanningPHYs)
    if scanningPHYs.contains(.le1M) { try le1M.fields(&visit) }
    if scanningPHYs.contains(.leCoded) { try leCoded.fields(&visit) }
  }

  public struct Parameters: WireRecord {
    public var scanType = ScanType.passive
    public var scanInterval = ScanInterval(rawValue: 0x0010)
    public var scanWindow = ScanInterval(rawValue: 0x0010)
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Scan_Type", &scanType)
      try visit.value("Scan_Interval", &scanInterval)
      try visit.value("Scan_Window", &scanWindow)
    }
  }
}

/// LE Set Extended Scan Enable. Vol 4, Part E, §7.8.65.
public struct LESetExtendedScanEnable: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0042) }
  public static var name: StaticString { "HCI_LE_Set_Extended_Scan_Enable" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.65" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(37, 6) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var enable = false
  public var filterDuplicates = FilterDuplicates()
  public var duration = ScanDuration()
  public var period = ScanPeriod()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Enable", &enable)
    try visit.value("Filter_Duplicates", &filterDuplicates)
    try visit.value("Duration", &duration)
    try visit.value("Period", &period)
  }
}
