import BindruneWire

// No host here sends these: the simulator and the trace tools know them.

/// Read Transmit Power Level. Vol 4, Part E, §7.3.35.
///
/// The transmit power of a link, in dBm.
public struct ReadTransmitPowerLevel: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x002D) }
  public static var name: StaticString { "HCI_Read_Transmit_Power_Level" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.35" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(10, 2) }
  public var connectionHandle = ConnectionHandle()
  public var type = TransmitPowerType.current
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Type", &type)
  }

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var connectionHandle = ConnectionHandle()
    public var txPowerLevel: Int8 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Connection_Handle", &connectionHandle)
      try visit.value("TX_Power_Level", &txPowerLevel)
    }
  }
}

/// LE Read Advertising Physical Channel Tx Power. Vol 4, Part E, §7.8.6.
///
/// The level is in dBm, −20 … +20.
public struct LEReadAdvertisingPhysicalChannelTxPower: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0007) }
  public static var name: StaticString { "HCI_LE_Read_Advertising_Physical_Channel_Tx_Power" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.6" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(25, 6) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var txPowerLevel: Int8 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("TX_Power_Level", &txPowerLevel)
    }
  }
}

/// LE Read RF Path Compensation. Vol 4, Part E, §7.8.75.
public struct LEReadRFPathCompensation: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x004C) }
  public static var name: StaticString { "HCI_LE_Read_RF_Path_Compensation" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.75" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(39, 0) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var rfTXPathCompensationValue: Int16 = 0
    public var rfRXPathCompensationValue: Int16 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("RF_TX_Path_Compensation_Value", &rfTXPathCompensationValue)
      try visit.value("RF_RX_Path_Compensation_Value", &rfRXPathCompensationValue)
    }
  }
}

/// LE Write RF Path Compensation. Vol 4, Part E, §7.8.76.
///
/// The gain of the path between the controller and its antenna, in tenths of a dB: −1,280 … 1,280. It corrects the
/// transmit power in advertisements and the measured strength.
public struct LEWriteRFPathCompensation: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x004D) }
  public static var name: StaticString { "HCI_LE_Write_RF_Path_Compensation" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.76" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(39, 1) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public var rfTXPathCompensationValue: Int16 = 0
  public var rfRXPathCompensationValue: Int16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("RF_TX_Path_Compensation_Value", &rfTXPathCompensationValue)
    try visit.value("RF_RX_Path_Compensation_Value", &rfRXPathCompensationValue)
  }
}

/// The power level to read. Vol 4, Part E, §7.3.35.
public enum TransmitPowerType: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case current = 0, maximum = 1
  public var text: String { self == .current ? "current" : "maximum" }
}
