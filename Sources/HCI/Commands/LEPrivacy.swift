import BindruneWire

// The resolving list, by which the controller recognizes private addresses. Vol 6, Part B, §6. While address resolution
// is enabled, the list cannot change during advertising, scanning or initiating (0x0C).

/// LE Add Device To Resolving List. Vol 4, Part E, §7.8.38.
///
/// `peerIRK` zero: the peer uses its identity address; `localIRK` zero: we use ours with this peer.
public struct LEAddDeviceToResolvingList: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0027) }
  public static var name: StaticString { "HCI_LE_Add_Device_To_Resolving_List" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.38" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(34, 3) }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  public var peerIdentityAddressType = AddressType()
  public var peerIdentityAddress = DeviceAddress()
  public var peerIRK = SecretNumber(), localIRK = SecretNumber()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Peer_Identity_Address_Type", &peerIdentityAddressType)
    try visit.value("Peer_Identity_Address", &peerIdentityAddress)
    try visit.value("Peer_IRK", &peerIRK)
    try visit.value("Local_IRK", &localIRK)
  }
  public init(_ type: AddressType, _ address: DeviceAddress, peerIRK: UInt128, localIRK: UInt128) {
    peerIdentityAddressType = type
    peerIdentityAddress = address
    self.peerIRK = SecretNumber(peerIRK)
    self.localIRK = SecretNumber(localIRK)
  }
}

/// LE Remove Device From Resolving List. Vol 4, Part E, §7.8.39.
public struct LERemoveDeviceFromResolvingList: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0028) }
  public static var name: StaticString { "HCI_LE_Remove_Device_From_Resolving_List" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.39" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(34, 4) }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  public var peerIdentityAddressType = AddressType()
  public var peerIdentityAddress = DeviceAddress()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Peer_Identity_Address_Type", &peerIdentityAddressType)
    try visit.value("Peer_Identity_Address", &peerIdentityAddress)
  }
}

/// LE Read Resolving List Size. Vol 4, Part E, §7.8.41.
///
/// The number depends on free memory, and may change at any time.
public struct LEReadResolvingListSize: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x002A) }
  public static var name: StaticString { "HCI_LE_Read_Resolving_List_Size" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.41" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(34, 6) }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var resolvingListSize: UInt8 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Resolving_List_Size", &resolvingListSize)
    }
  }
}

/// LE Set Address Resolution Enable. Vol 4, Part E, §7.8.44.
///
/// The controller refuses it with 0x0C while advertising, scanning or initiating is on.
public struct LESetAddressResolutionEnable: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x002D) }
  public static var name: StaticString { "HCI_LE_Set_Address_Resolution_Enable" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.44" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(35, 1) }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  public var addressResolutionEnable = false
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Address_Resolution_Enable", &addressResolutionEnable)
  }
}

/// LE Set Privacy Mode. Vol 4, Part E, §7.8.77.
public struct LESetPrivacyMode: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x004E) }
  public static var name: StaticString { "HCI_LE_Set_Privacy_Mode" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.77" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(39, 2) }
  public static var requirement: HCIRequirement { .features(.llPrivacy) }
  public var peerIdentityAddressType = AddressType()
  public var peerIdentityAddress = DeviceAddress()
  public var privacyMode = PrivacyMode()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Peer_Identity_Address_Type", &peerIdentityAddressType)
    try visit.value("Peer_Identity_Address", &peerIdentityAddress)
    try visit.value("Privacy_Mode", &privacyMode)
  }
}
