import BindruneWire

// No host here sends these: the simulator and the trace tools know them.

/// LE Read Buffer Size [v2]. Vol 4, Part E, §7.8.2.
public struct LEReadBufferSizeV2: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0060) }
  public static var name: StaticString { "HCI_LE_Read_Buffer_Size [v2]" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.2" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(41, 5) }
  public static var requirement: HCIRequirement { .version(CoreVersion(rawValue: 0x0B)) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var leACLDataPacketLength: UInt16 = 0
    public var totalNumLEACLDataPackets: UInt8 = 0
    public var isoDataPacketLength: UInt16 = 0
    public var totalNumISODataPackets: UInt8 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("LE_ACL_Data_Packet_Length", &leACLDataPacketLength)
      try visit.value("Total_Num_LE_ACL_Data_Packets", &totalNumLEACLDataPackets)
      try visit.value("ISO_Data_Packet_Length", &isoDataPacketLength)
      try visit.value("Total_Num_ISO_Data_Packets", &totalNumISODataPackets)
    }
  }
}

/// LE Read Supported States. Vol 4, Part E, §7.8.27.
///
/// The states and pairs of states that the link layer supports: bit n is line n of that section's table.
public struct LEReadSupportedStates: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x001C) }
  public static var name: StaticString { "HCI_LE_Read_Supported_States" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.27" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(28, 3) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var leStates = LEStates(rawValue: 0)
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("LE_States", &leStates)
    }
  }
}

/// LE Read Suggested Default Data Length. Vol 4, Part E, §7.8.34.
public struct LEReadSuggestedDefaultDataLength: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0023) }
  public static var name: StaticString { "HCI_LE_Read_Suggested_Default_Data_Length" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.34" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(33, 7) }
  public static var requirement: HCIRequirement { .features(.leDataPacketLengthExtension) }
  public static var isDispensable: Bool { true }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var suggestedMaxTXOctets: UInt16 = 27
    public var suggestedMaxTXTime: UInt16 = 328
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Suggested_Max_TX_Octets", &suggestedMaxTXOctets)
      try visit.value("Suggested_Max_TX_Time", &suggestedMaxTXTime)
    }
  }
}

/// LE Write Suggested Default Data Length. Vol 4, Part E, §7.8.35.
public struct LEWriteSuggestedDefaultDataLength: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0024) }
  public static var name: StaticString { "HCI_LE_Write_Suggested_Default_Data_Length" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.35" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(34, 0) }
  public static var requirement: HCIRequirement { .features(.leDataPacketLengthExtension) }
  public static var isDispensable: Bool { true }
  public var suggestedMaxTXOctets: UInt16 = 27
  public var suggestedMaxTXTime: UInt16 = 328
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Suggested_Max_TX_Octets", &suggestedMaxTXOctets)
    try visit.value("Suggested_Max_TX_Time", &suggestedMaxTXTime)
  }
}

/// States, and pairs of them, that a link layer supports. Vol 4, Part E, §7.8.27.
public struct LEStates: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
}
