import BindruneWire

/// LE Read PHY. Vol 4, Part E, §7.8.47.
public struct LEReadPHY: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0030) }
  public static var name: StaticString { "HCI_LE_Read_PHY" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.47" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(35, 4) }
  public static var requirement: HCIRequirement { .oneFeature(of: [.le2MPHY, .leCodedPHY]) }
  public static var isDispensable: Bool { true }
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
  }

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var connectionHandle = ConnectionHandle()
    public var txPHY = PHY.le1M, rxPHY = PHY.le1M
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Connection_Handle", &connectionHandle)
      try visit.value("TX_PHY", &txPHY)
      try visit.value("RX_PHY", &rxPHY)
    }
  }
}

/// LE Set Default PHY. Vol 4, Part E, §7.8.48.
///
/// The controller's preferences for future links.
public struct LESetDefaultPHY: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0031) }
  public static var name: StaticString { "HCI_LE_Set_Default_PHY" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.48" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(35, 5) }
  public static var requirement: HCIRequirement { .oneFeature(of: [.le2MPHY, .leCodedPHY]) }
  public static var isDispensable: Bool { true }
  public var allPHYs = PHYIndifference(rawValue: 0)
  public var txPHYs = PHYSet.le1M, rxPHYs = PHYSet.le1M
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("All_PHYs", &allPHYs)
    try visit.value("TX_PHYs", &txPHYs)
    try visit.value("RX_PHYs", &rxPHYs)
  }
}

/// LE Set PHY. Vol 4, Part E, §7.8.49.
///
/// Ends with LE PHY Update Complete, whether or not anything has changed.
public struct LESetPHY: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0032) }
  public static var name: StaticString { "HCI_LE_Set_PHY" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.49" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(35, 6) }
  public static var requirement: HCIRequirement { .oneFeature(of: [.le2MPHY, .leCodedPHY]) }
  public static var isDispensable: Bool { true }
  public static var isAnsweredByStatus: Bool { true }
  public var connectionHandle = ConnectionHandle()
  public var allPHYs = PHYIndifference(rawValue: 0)
  public var txPHYs = PHYSet.le1M, rxPHYs = PHYSet.le1M
  public var phyOptions = PHYOptions()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("All_PHYs", &allPHYs)
    try visit.value("TX_PHYs", &txPHYs)
    try visit.value("RX_PHYs", &rxPHYs)
    try visit.value("PHY_Options", &phyOptions)
  }
}

/// The directions in which the host has no preference. Vol 4, Part E, §7.8.48.
public struct PHYIndifference: OpenNumber, OptionSet {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable public static var transmitter: PHYIndifference { PHYIndifference(rawValue: 1) }
  @inlinable public static var receiver: PHYIndifference { PHYIndifference(rawValue: 2) }
}

/// The preferred coding on LE Coded. Vol 4, Part E, §7.8.49.
public struct PHYOptions: OpenNumber, Hashable {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16 = 0) { self.rawValue = rawValue }
  /// Two symbols a bit: 500 kbit/s.
  public static var s2: PHYOptions { PHYOptions(rawValue: 1) }
  /// Eight symbols a bit: 125 kbit/s, the longest range.
  public static var s8: PHYOptions { PHYOptions(rawValue: 2) }
}
