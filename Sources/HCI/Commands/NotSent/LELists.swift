import BindruneWire

// No host here sends these: the simulator and the trace tools know them.

/// LE Clear Resolving List. Vol 4, Part E, §7.8.40.
public struct LEClearResolvingList: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0029) }
  public static var name: StaticString { "HCI_LE_Clear_Resolving_List" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.40" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(34, 5) }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}

/// LE Read Peer Resolvable Address. Vol 4, Part E, §7.8.42.
///
/// The private address with which the peer was last heard. 0x02: it is not in the list, or has not been heard.
public struct LEReadPeerResolvableAddress: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x002B) }
  public static var name: StaticString { "HCI_LE_Read_Peer_Resolvable_Address" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.42" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(34, 7) }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  public var peerIdentityAddressType = AddressType()
  public var peerIdentityAddress = DeviceAddress()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Peer_Identity_Address_Type", &peerIdentityAddressType)
    try visit.value("Peer_Identity_Address", &peerIdentityAddress)
  }

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var peerResolvableAddress = DeviceAddress()
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Peer_Resolvable_Address", &peerResolvableAddress)
    }
  }
}

/// LE Read Local Resolvable Address. Vol 4, Part E, §7.8.43.
///
/// The private address that we use with the peer. 0x02: it is not in the list, or there is none.
public struct LEReadLocalResolvableAddress: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x002C) }
  public static var name: StaticString { "HCI_LE_Read_Local_Resolvable_Address" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.43" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(35, 0) }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  public var peerIdentityAddressType = AddressType()
  public var peerIdentityAddress = DeviceAddress()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Peer_Identity_Address_Type", &peerIdentityAddressType)
    try visit.value("Peer_Identity_Address", &peerIdentityAddress)
  }

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var localResolvableAddress = DeviceAddress()
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Local_Resolvable_Address", &localResolvableAddress)
    }
  }
}

/// LE Set Resolvable Private Address Timeout. Vol 4, Part E, §7.8.45.
///
/// How long the controller uses a private address of ours: 1 … 3,600 s, 900 after a reset.
public struct LESetResolvablePrivateAddressTimeout: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x002E) }
  public static var name: StaticString { "HCI_LE_Set_Resolvable_Private_Address_Timeout" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.45" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(35, 2) }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  public var rpaTimeout: UInt16 = 900
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("RPA_Timeout", &rpaTimeout)
  }
}

/// LE Clear Advertising Sets. Vol 4, Part E, §7.8.60.
public struct LEClearAdvertisingSets: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x003D) }
  public static var name: StaticString { "HCI_LE_Clear_Advertising_Sets" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.60" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(37, 1) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}
