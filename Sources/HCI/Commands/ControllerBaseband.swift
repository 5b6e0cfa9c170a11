import BindruneWire

/// Set Event Mask. Vol 4, Part E, §7.3.1.
public struct SetEventMask: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x0001) }
  public static var name: StaticString { "HCI_Set_Event_Mask" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.1" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(5, 6) }
  public var eventMask = EventMask.standard
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Event_Mask", &eventMask)
  }
}

/// Reset. Vol 4, Part E, §7.3.2.
///
/// After it the controller has no links, an empty command queue and default parameters.
public struct Reset: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x0003) }
  public static var name: StaticString { "HCI_Reset" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.2" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(5, 7) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}

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

/// Set Controller To Host Flow Control. Vol 4, Part E, §7.3.38.
///
/// The controller refuses it with 0x0C while there is a link.
public struct SetControllerToHostFlowControl: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x0031) }
  public static var name: StaticString { "HCI_Set_Controller_To_Host_Flow_Control" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.38" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(10, 5) }
  public var flowControlEnable = HostFlowControl.off
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Flow_Control_Enable", &flowControlEnable)
  }
}

/// Host Buffer Size. Vol 4, Part E, §7.3.39.
///
/// The longest data packet that the host accepts, and the number of its buffers if controller-to-host flow control is
/// on.
public struct HostBufferSize: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x0033) }
  public static var name: StaticString { "HCI_Host_Buffer_Size" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.39" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(10, 6) }
  public var hostACLDataPacketLength: UInt16 = 0
  public var hostSynchronousDataPacketLength: UInt8 = 0
  public var hostTotalNumACLDataPackets: UInt16 = 0
  public var hostTotalNumSynchronousDataPackets: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Host_ACL_Data_Packet_Length", &hostACLDataPacketLength)
    try visit.value("Host_Synchronous_Data_Packet_Length", &hostSynchronousDataPacketLength)
    try visit.value("Host_Total_Num_ACL_Data_Packets", &hostTotalNumACLDataPackets)
    try visit.value("Host_Total_Num_Synchronous_Data_Packets", &hostTotalNumSynchronousDataPackets)
  }
}

/// Host Number Of Completed Packets. Vol 4, Part E, §7.3.40.
///
/// Needs no command credit, and is answered only if its parameters are wrong.
public struct HostNumberOfCompletedPackets: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x0035) }
  public static var name: StaticString { "HCI_Host_Number_Of_Completed_Packets" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.40" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(10, 7) }
  public var handles = WireList<Completed>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(countIn: "Num_Handles", "Handles", &handles)
  }

  public struct Completed: WireRecord {
    public var connectionHandle = ConnectionHandle()
    public var hostNumCompletedPackets: UInt16 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Connection_Handle", &connectionHandle)
      try visit.value("Host_Num_Completed_Packets", &hostNumCompletedPackets)
    }
  }
}

/// Set Event Mask Page 2. Vol 4, Part E, §7.3.69.
public struct SetEventMaskPage2: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x0063) }
  public static var name: StaticString { "HCI_Set_Event_Mask_Page_2" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.69" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(22, 2) }
  public var eventMaskPage2 = EventMaskPage2()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Event_Mask_Page_2", &eventMaskPage2)
  }
}

/// Write LE Host Support. Vol 4, Part E, §7.3.79.
///
/// Only for controllers that also support BR/EDR: informs the link manager of an LE host.
public struct WriteLEHostSupport: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x006D) }
  public static var name: StaticString { "HCI_Write_LE_Host_Support" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.79" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(24, 6) }
  public var leSupportedHost = false
  public var unused: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("LE_Supported_Host", &leSupportedHost)
    try visit.value("Unused", &unused)
  }
}

/// Read Authenticated Payload Timeout. Vol 4, Part E, §7.3.93.
public struct ReadAuthenticatedPayloadTimeout: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x007B) }
  public static var name: StaticString { "HCI_Read_Authenticated_Payload_Timeout" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.93" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(32, 4) }
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
  }

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var connectionHandle = ConnectionHandle()
    public var authenticatedPayloadTimeout = AuthenticatedPayloadTimeout.standard
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Connection_Handle", &connectionHandle)
      try visit.value("Authenticated_Payload_Timeout", &authenticatedPayloadTimeout)
    }
  }
}

/// Write Authenticated Payload Timeout. Vol 4, Part E, §7.3.94.
///
/// How long an encrypted link may go without a packet with a valid MIC before the controller reports it. At least
/// connInterval × (1 + connPeripheralLatency).
public struct WriteAuthenticatedPayloadTimeout: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x007C) }
  public static var name: StaticString { "HCI_Write_Authenticated_Payload_Timeout" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.94" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(32, 5) }
  public typealias Return = ConnectionReturn
  public var connectionHandle = ConnectionHandle()
  public var authenticatedPayloadTimeout = AuthenticatedPayloadTimeout.standard
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Authenticated_Payload_Timeout", &authenticatedPayloadTimeout)
  }
}

/// The power level to read. Vol 4, Part E, §7.3.35.
public enum TransmitPowerType: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case current = 0, maximum = 1
  public var text: String { self == .current ? "current" : "maximum" }
}
/// The data that the controller holds back until the host has room. Vol 4, Part E, §7.3.38.
public enum HostFlowControl: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case off = 0, acl = 1, synchronous = 2, both = 3
  public var text: String {
    switch self {
    case .off: "off"
    case .acl: "ACL"
    case .synchronous: "synchronous"
    case .both: "ACL and synchronous"
    }
  }
}
