import BindruneWire

/// Read Local Version Information. Vol 4, Part E, §7.4.1.
public struct ReadLocalVersionInformation: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.informational, 0x0001) }
  public static var name: StaticString { "HCI_Read_Local_Version_Information" }
  public static var section: StaticString { "Vol 4, Part E, §7.4.1" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(14, 3) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var hciVersion = CoreVersion()
    public var hciSubversion: UInt16 = 0
    public var lmpVersion = CoreVersion()
    public var companyIdentifier = CompanyIdentifier()
    public var lmpSubversion: UInt16 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("HCI_Version", &hciVersion)
      try visit.value("HCI_Subversion", &hciSubversion)
      try visit.value("LMP_Version", &lmpVersion)
      try visit.value("Company_Identifier", &companyIdentifier)
      try visit.value("LMP_Subversion", &lmpSubversion)
    }
  }
}

/// Read Local Supported Commands. Vol 4, Part E, §7.4.2.
public struct ReadLocalSupportedCommands: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.informational, 0x0002) }
  public static var name: StaticString { "HCI_Read_Local_Supported_Commands" }
  public static var section: StaticString { "Vol 4, Part E, §7.4.2" }
  public static var supportedBit: SupportedCommandBit? { nil }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var supportedCommands = Octets()
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.octets("Supported_Commands", &supportedCommands, .exactly(64))
    }
  }
}

/// Read Local Supported Features. Vol 4, Part E, §7.4.3.
public struct ReadLocalSupportedFeatures: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.informational, 0x0003) }
  public static var name: StaticString { "HCI_Read_Local_Supported_Features" }
  public static var section: StaticString { "Vol 4, Part E, §7.4.3" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(14, 5) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var lmpFeatures = LMPFeatures()
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("LMP_Features", &lmpFeatures)
    }
  }
}

/// Read Buffer Size. Vol 4, Part E, §7.4.5.
///
/// The BR/EDR buffers, shared with LE if LE Read Buffer Size returns 0.
public struct ReadBufferSize: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.informational, 0x0005) }
  public static var name: StaticString { "HCI_Read_Buffer_Size" }
  public static var section: StaticString { "Vol 4, Part E, §7.4.5" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(14, 7) }
  public static var requirement: HCIRequirement { .brEDR }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var aclDataPacketLength: UInt16 = 0
    public var synchronousDataPacketLength: UInt8 = 0
    public var totalNumACLDataPackets: UInt16 = 0
    public var totalNumSynchronousDataPackets: UInt16 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("ACL_Data_Packet_Length", &aclDataPacketLength)
      try visit.value("Synchronous_Data_Packet_Length", &synchronousDataPacketLength)
      try visit.value("Total_Num_ACL_Data_Packets", &totalNumACLDataPackets)
      try visit.value("Total_Num_Synchronous_Data_Packets", &totalNumSynchronousDataPackets)
    }
  }
}

/// Read BD ADDR. Vol 4, Part E, §7.4.6.
public struct ReadBDADDR: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.informational, 0x0009) }
  public static var name: StaticString { "HCI_Read_BD_ADDR" }
  public static var section: StaticString { "Vol 4, Part E, §7.4.6" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(15, 1) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var bdADDR = DeviceAddress()
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("BD_ADDR", &bdADDR)
    }
  }
}
