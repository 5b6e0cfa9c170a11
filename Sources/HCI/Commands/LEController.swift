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
