import BindruneWire

/// LE Set Event Mask. Vol 4, Part E, §7.8.1.
public struct LESetEventMask: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0001) }
  public static var name: StaticString { "HCI_LE_Set_Event_Mask" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.1" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(25, 0) }
  public var leEventMask = LEEventMask.standard
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("LE_Event_Mask", &leEventMask)
  }
}

/// LE Read Buffer Size. Vol 4, Part E, §7.8.2.
///
/// Version [v1]. Zeros mean that LE shares the BR/EDR buffers.
public struct LEReadBufferSize: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0002) }
  public static var name: StaticString { "HCI_LE_Read_Buffer_Size" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.2" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(25, 1) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var leACLDataPacketLength: UInt16 = 0
    public var totalNumLEACLDataPackets: UInt8 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("LE_ACL_Data_Packet_Length", &leACLDataPacketLength)
      try visit.value("Total_Num_LE_ACL_Data_Packets", &totalNumLEACLDataPackets)
    }
  }
}

/// LE Read Buffer Size [v2]. Vol 4, Part E, §7.8.2.
public struct LEReadBufferSizeV2: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0060) }
  public static var name: StaticString { "HCI_LE_Read_Buffer_Size [v2]" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.2" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(41, 5) }
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

/// LE Read Local Supported Features. Vol 4, Part E, §7.8.3.
public struct LEReadLocalSupportedFeatures: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0003) }
  public static var name: StaticString { "HCI_LE_Read_Local_Supported_Features" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.3" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(25, 2) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var leFeatures = LEFeatures()
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("LE_Features", &leFeatures)
    }
  }
}

/// LE Set Random Address. Vol 4, Part E, §7.8.4.
///
/// The controller refuses it with 0x0C while legacy advertising, scanning or initiating is on.
public struct LESetRandomAddress: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0005) }
  public static var name: StaticString { "HCI_LE_Set_Random_Address" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.4" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(25, 4) }
  public var randomAddress = DeviceAddress()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Random_Address", &randomAddress)
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

/// LE Read RF Path Compensation. Vol 4, Part E, §7.8.75.
public struct LEReadRFPathCompensation: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x004C) }
  public static var name: StaticString { "HCI_LE_Read_RF_Path_Compensation" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.75" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(39, 0) }
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
  public var rfTXPathCompensationValue: Int16 = 0
  public var rfRXPathCompensationValue: Int16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("RF_TX_Path_Compensation_Value", &rfTXPathCompensationValue)
    try visit.value("RF_RX_Path_Compensation_Value", &rfRXPathCompensationValue)
  }
}

/// States, and pairs of them, that a link layer supports. Vol 4, Part E, §7.8.27.
public struct LEStates: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
}
