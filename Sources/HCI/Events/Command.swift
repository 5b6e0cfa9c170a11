import BindruneWire

/// Command Complete. Vol 4, Part E, §7.7.14.
///
/// `numHCICommandPackets`: how many commands the host may send now; 0 stops it; opcode 0x0000 reports only the number.
public struct CommandComplete: HCIEventMessage {
  public static var code: UInt8 { 0x0E }
  public static var name: StaticString { "HCI_Command_Complete" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.14" }
  public var numHCICommandPackets: UInt8 = 1
  public var commandOpcode = HCIOpcode()
  public var returnParameters = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Num_HCI_Command_Packets", &numHCICommandPackets)
    try visit.value("Command_Opcode", &commandOpcode)
    try visit.octets("Return_Parameters", &returnParameters)
  }
}

/// Command Status. Vol 4, Part E, §7.7.15.
public struct CommandStatus: HCIEventMessage {
  public static var code: UInt8 { 0x0F }
  public static var name: StaticString { "HCI_Command_Status" }
  public static var section: StaticString { "Vol 4, Part E, §7.7.15" }
  public var status = HCIStatus()
  public var numHCICommandPackets: UInt8 = 1
  public var commandOpcode = HCIOpcode()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Num_HCI_Command_Packets", &numHCICommandPackets)
    try visit.value("Command_Opcode", &commandOpcode)
  }
}
