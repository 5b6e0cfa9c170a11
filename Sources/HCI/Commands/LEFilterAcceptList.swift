import BindruneWire

/// LE Read Filter Accept List Size. Vol 4, Part E, §7.8.14.
public struct LEReadFilterAcceptListSize: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x000F) }
  public static var name: StaticString { "HCI_LE_Read_Filter_Accept_List_Size" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.14" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(26, 6) }
  public static var requirement: HCIRequirement { .filterAcceptList }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var filterAcceptListSize: UInt8 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Filter_Accept_List_Size", &filterAcceptListSize)
    }
  }
}

/// LE Clear Filter Accept List. Vol 4, Part E, §7.8.15.
///
/// Like the two below, refused with 0x0C while the list is in use.
public struct LEClearFilterAcceptList: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0010) }
  public static var name: StaticString { "HCI_LE_Clear_Filter_Accept_List" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.15" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(26, 7) }
  public static var requirement: HCIRequirement { .filterAcceptList }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}

/// LE Add Device To Filter Accept List. Vol 4, Part E, §7.8.16.
///
/// `addressType` 0xFF stands for all anonymous advertisers; the address is then ignored.
public struct LEAddDeviceToFilterAcceptList: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0011) }
  public static var name: StaticString { "HCI_LE_Add_Device_To_Filter_Accept_List" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.16" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(27, 0) }
  public static var requirement: HCIRequirement { .filterAcceptList }
  public var addressType = AddressType()
  public var address = DeviceAddress()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Address_Type", &addressType)
    try visit.value("Address", &address)
  }
}

/// LE Remove Device From Filter Accept List. Vol 4, Part E, §7.8.17.
public struct LERemoveDeviceFromFilterAcceptList: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0012) }
  public static var name: StaticString { "HCI_LE_Remove_Device_From_Filter_Accept_List" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.17" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(27, 1) }
  public static var requirement: HCIRequirement { .filterAcceptList }
  public var addressType = AddressType()
  public var address = DeviceAddress()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Address_Type", &addressType)
    try visit.value("Address", &address)
  }
}
