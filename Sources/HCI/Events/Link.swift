import BindruneWire

/// Disconnection Complete. Vol 4, Part E, §7.7.5.
public struct DisconnectionComplete: HCIEventMessage {
  public static var code: UInt8 { 0x05 }
  public static var name: StaticString { "HCI_Disconnection_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.5" }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  public var reason = HCIStatus()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Reason", &reason)
  }
}

/// Encryption Change. Vol 4, Part E, §7.7.8.
///
/// Version [v1]. `encryptionEnabled`: 0 off, 1 on (LE: AES-CCM).
public struct EncryptionChange: HCIEventMessage {
  public static var code: UInt8 { 0x08 }
  public static var name: StaticString { "HCI_Encryption_Change" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.8" }
  public static var requirement: HCIRequirement { .features(.leEncryption) }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  public var encryptionEnabled: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Encryption_Enabled", &encryptionEnabled)
  }
}

/// Encryption Change [v2]. Vol 4, Part E, §7.7.8.
///
/// `encryptionEnabled` as in [v1]; `encryptionKeySize` in octets, 7 … 16 if the link is encrypted.
public struct EncryptionChangeV2: HCIEventMessage {
  public static var code: UInt8 { 0x59 }
  public static var name: StaticString { "HCI_Encryption_Change [v2]" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.8" }
  public static var requirement: HCIRequirement { .features(.leEncryption, since: CoreVersion(rawValue: 0x0C)) }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  public var encryptionEnabled: UInt8 = 0
  public var encryptionKeySize: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Encryption_Enabled", &encryptionEnabled)
    try visit.value("Encryption_Key_Size", &encryptionKeySize)
  }
}

/// Encryption Key Refresh Complete. Vol 4, Part E, §7.7.39.
///
/// The link has changed its key while encrypted, or status gives the reason why not.
public struct EncryptionKeyRefreshComplete: HCIEventMessage {
  public static var code: UInt8 { 0x30 }
  public static var name: StaticString { "HCI_Encryption_Key_Refresh_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.39" }
  public static var requirement: HCIRequirement { .features(.leEncryption) }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
  }
}

/// Read Remote Version Information Complete. Vol 4, Part E, §7.7.12.
public struct ReadRemoteVersionInformationComplete: HCIEventMessage {
  public static var code: UInt8 { 0x0C }
  public static var name: StaticString { "HCI_Read_Remote_Version_Information_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.12" }
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  public var version = CoreVersion()
  public var companyIdentifier = CompanyIdentifier()
  public var subversion: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Version", &version)
    try visit.value("Company_Identifier", &companyIdentifier)
    try visit.value("Subversion", &subversion)
  }
}

/// Hardware Error. Vol 4, Part E, §7.7.16.
///
/// The controller is in an unknown state: the host resets it.
public struct HardwareError: HCIEventMessage {
  public static var code: UInt8 { 0x10 }
  public static var name: StaticString { "HCI_Hardware_Error" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.16" }
  public var hardwareCode: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Hardware_Code", &hardwareCode)
  }
}

/// Number Of Completed Packets. Vol 4, Part E, §7.7.19.
public struct NumberOfCompletedPackets: HCIEventMessage {
  public static var code: UInt8 { 0x13 }
  public static var name: StaticString { "HCI_Number_Of_Completed_Packets" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.19" }
  public var handles = WireList<Completed>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(countIn: "Num_Handles", "Handles", &handles)
  }

  public struct Completed: WireRecord {
    public var connectionHandle = ConnectionHandle()
    public var numCompletedPackets: UInt16 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Connection_Handle", &connectionHandle)
      try visit.value("Num_Completed_Packets", &numCompletedPackets)
    }
  }
}

/// Data Buffer Overflow. Vol 4, Part E, §7.7.26.
///
/// The host sent more packets than there are buffers. `linkType`: 1 is ACL.
public struct DataBufferOverflow: HCIEventMessage {
  public static var code: UInt8 { 0x1A }
  public static var name: StaticString { "HCI_Data_Buffer_Overflow" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.26" }
  public var linkType: UInt8 = 0x01
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Link_Type", &linkType)
  }
}

/// Authenticated Payload Timeout Expired. Vol 4, Part E, §7.7.75.
///
/// The encrypted link has received no packet with a valid MIC for the time that Write Authenticated Payload Timeout
/// set.
public struct AuthenticatedPayloadTimeoutExpired: HCIEventMessage {
  public static var code: UInt8 { 0x57 }
  public static var name: StaticString { "HCI_Authenticated_Payload_Timeout_Expired" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.75" }
  public static var requirement: HCIRequirement { .features([.leEncryption, .lePing]) }
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
  }
}
