import BindruneWire

// No host here sends these: the simulator and the trace tools know them.

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
