import BindruneWire

/// LE Create Connection. Vol 4, Part E, §7.8.12.
///
/// Ends with LE Connection Complete or LE Enhanced Connection Complete.
public struct LECreateConnection: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x000D) }
  public static var name: StaticString { "HCI_LE_Create_Connection" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.12" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(26, 4) }
  public static var isAnsweredByStatus: Bool { true }
  public var leScanInterval = ScanInterval(rawValue: 0x0010)
  public var leScanWindow = ScanInterval(rawValue: 0x0010)
  public var initiatorFilterPolicy = InitiatorFilterPolicy()
  public var peerAddressType = AddressType()
  public var peerAddress = DeviceAddress()
  public var ownAddressType = OwnAddressType()
  public var connectionIntervalMin = ConnectionInterval(rawValue: 24)
  public var connectionIntervalMax = ConnectionInterval(rawValue: 40)
  public var maxLatency: UInt16 = 0
  public var supervisionTimeout = SupervisionTimeout(rawValue: 500)
  public var minCELength = ConnectionEventLength()
  public var maxCELength = ConnectionEventLength()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("LE_Scan_Interval", &leScanInterval)
    try visit.value("LE_Scan_Window", &leScanWindow)
    try visit.value("Initiator_Filter_Policy", &initiatorFilterPolicy)
    try visit.value("Peer_Address_Type", &peerAddressType)
    try visit.value("Peer_Address", &peerAddress)
    try visit.value("Own_Address_Type", &ownAddressType)
    try visit.value("Connection_Interval_Min", &connectionIntervalMin)
    try visit.value("Connection_Interval_Max", &connectionIntervalMax)
    try visit.value("Max_Latency", &maxLatency)
    try visit.value("Supervision_Timeout", &supervisionTimeout)
    try visit.value("Min_CE_Length", &minCELength)
    try visit.value("Max_CE_Length", &maxCELength)
  }
}

/// LE Create Connection Cancel. Vol 4, Part E, §7.8.13.
///
/// The connection complete event follows with status 0x02, or with a link that came up first.
public struct LECreateConnectionCancel: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x000E) }
  public static var name: StaticString { "HCI_LE_Create_Connection_Cancel" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.13" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(26, 5) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}

/// LE Connection Update. Vol 4, Part E, §7.8.18.
public struct LEConnectionUpdate: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0013) }
  public static var name: StaticString { "HCI_LE_Connection_Update" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.18" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(27, 2) }
  public static var isAnsweredByStatus: Bool { true }
  public var connectionHandle = ConnectionHandle()
  public var connectionIntervalMin = ConnectionInterval(rawValue: 24)
  public var connectionIntervalMax = ConnectionInterval(rawValue: 40)
  public var maxLatency: UInt16 = 0
  public var supervisionTimeout = SupervisionTimeout(rawValue: 500)
  public var minCELength = ConnectionEventLength()
  public var maxCELength = ConnectionEventLength()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Connection_Interval_Min", &connectionIntervalMin)
    try visit.value("Connection_Interval_Max", &connectionIntervalMax)
    try visit.value("Max_Latency", &maxLatency)
    try visit.value("Supervision_Timeout", &supervisionTimeout)
    try visit.value("Min_CE_Length", &minCELength)
    try visit.value("Max_CE_Length", &maxCELength)
  }
}

/// LE Read Remote Features. Vol 4, Part E, §7.8.21.
///
/// Ends with LE Read Remote Features Complete: page 0 of the peer's features.
public struct LEReadRemoteFeatures: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0016) }
  public static var name: StaticString { "HCI_LE_Read_Remote_Features" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.21" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(27, 5) }
  public static var isDispensable: Bool { true }
  public static var isAnsweredByStatus: Bool { true }
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
  }
}

/// LE Remote Connection Parameter Request Reply. Vol 4, Part E, §7.8.31.
public struct LERemoteConnectionParameterRequestReply: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0020) }
  public static var name: StaticString { "HCI_LE_Remote_Connection_Parameter_Request_Reply" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.31" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(33, 4) }
  public static var requirement: HCIRequirement { .features(.connectionParametersRequestProcedure) }
  public typealias Return = ConnectionReturn
  public var connectionHandle = ConnectionHandle()
  public var intervalMin = ConnectionInterval(rawValue: 24)
  public var intervalMax = ConnectionInterval(rawValue: 40)
  public var maxLatency: UInt16 = 0
  public var timeout = SupervisionTimeout(rawValue: 500)
  public var minCELength = ConnectionEventLength()
  public var maxCELength = ConnectionEventLength()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Interval_Min", &intervalMin)
    try visit.value("Interval_Max", &intervalMax)
    try visit.value("Max_Latency", &maxLatency)
    try visit.value("Timeout", &timeout)
    try visit.value("Min_CE_Length", &minCELength)
    try visit.value("Max_CE_Length", &maxCELength)
  }
}

/// LE Remote Connection Parameter Request Negative Reply. Vol 4, Part E, §7.8.32.
public struct LERemoteConnectionParameterRequestNegativeReply: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0021) }
  public static var name: StaticString { "HCI_LE_Remote_Connection_Parameter_Request_Negative_Reply" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.32" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(33, 5) }
  public static var requirement: HCIRequirement { .features(.connectionParametersRequestProcedure) }
  public typealias Return = ConnectionReturn
  public var connectionHandle = ConnectionHandle()
  public var reason = HCIStatus.unacceptableConnectionParameters
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Reason", &reason)
  }
}

/// LE Set Data Length. Vol 4, Part E, §7.8.33.
///
/// 27 … 251 octets, 328 … 17,040 µs.
public struct LESetDataLength: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0022) }
  public static var name: StaticString { "HCI_LE_Set_Data_Length" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.33" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(33, 6) }
  public static var requirement: HCIRequirement { .features(.leDataPacketLengthExtension) }
  public static var isDispensable: Bool { true }
  public typealias Return = ConnectionReturn
  public var connectionHandle = ConnectionHandle()
  public var txOctets: UInt16 = 27
  public var txTime: UInt16 = 328
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("TX_Octets", &txOctets)
    try visit.value("TX_Time", &txTime)
  }
}

/// LE Read Maximum Data Length. Vol 4, Part E, §7.8.46.
public struct LEReadMaximumDataLength: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x002F) }
  public static var name: StaticString { "HCI_LE_Read_Maximum_Data_Length" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.46" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(35, 3) }
  public static var requirement: HCIRequirement { .features(.leDataPacketLengthExtension) }
  public static var isDispensable: Bool { true }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var supportedMaxTXOctets: UInt16 = 0
    public var supportedMaxTXTime: UInt16 = 0
    public var supportedMaxRXOctets: UInt16 = 0
    public var supportedMaxRXTime: UInt16 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Supported_Max_TX_Octets", &supportedMaxTXOctets)
      try visit.value("Supported_Max_TX_Time", &supportedMaxTXTime)
      try visit.value("Supported_Max_RX_Octets", &supportedMaxRXOctets)
      try visit.value("Supported_Max_RX_Time", &supportedMaxRXTime)
    }
  }
}

/// LE Extended Create Connection [v1]. Vol 4, Part E, §7.8.66.
///
/// One group of parameters per bit of `initiatingPHYs`, lowest bit first; a group whose bit is off is not on the wire.
public struct LEExtendedCreateConnection: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0043) }
  public static var name: StaticString { "HCI_LE_Extended_Create_Connection" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.66" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(37, 7) }
  public static var requirement: HCIRequirement { .features(.leExtendedAdvertising) }
  public static var isAnsweredByStatus: Bool { true }
  public var initiatorFilterPolicy = InitiatorFilterPolicy()
  public var ownAddressType = OwnAddressType()
  public var peerAddressType = AddressType()
  public var peerAddress = DeviceAddress()
  public var initiatingPHYs = PHYSet.le1M
  public var le1M = Parameters(), le2M = Parameters(), leCoded = Parameters()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Initiator_Filter_Policy", &initiatorFilterPolicy)
    try visit.value("Own_Address_Type", &ownAddressType)
    try visit.value("Peer_Address_Type", &peerAddressType)
    try visit.value("Peer_Address", &peerAddress)
    try visit.value("Initiating_PHYs", &initiatingPHYs)
    if initiatingPHYs.contains(.le1M) { try le1M.fields(&visit) }
    if initiatingPHYs.contains(.le2M) { try le2M.fields(&visit) }
    if initiatingPHYs.contains(.leCoded) { try leCoded.fields(&visit) }
  }

  public struct Parameters: WireRecord {
    public var scanInterval = ScanInterval(rawValue: 0x0010)
    public var scanWindow = ScanInterval(rawValue: 0x0010)
    public var connectionIntervalMin = ConnectionInterval(rawValue: 24)
    public var connectionIntervalMax = ConnectionInterval(rawValue: 40)
    public var maxLatency: UInt16 = 0
    public var supervisionTimeout = SupervisionTimeout(rawValue: 500)
    public var minCELength = ConnectionEventLength()
    public var maxCELength = ConnectionEventLength()
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Scan_Interval", &scanInterval)
      try visit.value("Scan_Window", &scanWindow)
      try visit.value("Connection_Interval_Min", &connectionIntervalMin)
      try visit.value("Connection_Interval_Max", &connectionIntervalMax)
      try visit.value("Max_Latency", &maxLatency)
      try visit.value("Supervision_Timeout", &supervisionTimeout)
      try visit.value("Min_CE_Length", &minCELength)
      try visit.value("Max_CE_Length", &maxCELength)
    }
  }
}

/// LE Read All Remote Features. Vol 4, Part E, §7.8.129.
///
/// Ends with LE Read All Remote Features Complete.
public struct LEReadAllRemoteFeatures: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0088) }
  public static var name: StaticString { "HCI_LE_Read_All_Remote_Features" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.129" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(47, 3) }
  /// A controller may have it without the LL Extended Feature Set: Vol 4, Part E, §3.1, Table 3.1.
  public static var requirement: HCIRequirement { .version(CoreVersion(rawValue: 0x0E)) }
  public static var isDispensable: Bool { true }
  public static var isAnsweredByStatus: Bool { true }
  public var connectionHandle = ConnectionHandle()
  /// How many pages after page 0: 0 … 10.
  public var pagesRequested = LEFeatures.furtherPages
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Pages_Requested", &pagesRequested)
  }
}
