import BindruneWire

// No host here sends this: the simulator and the trace tools know it.

/// Read Remote Version Information. Vol 4, Part E, §7.1.23.
public struct ReadRemoteVersionInformation: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.linkControl, 0x001D) }
  public static var name: StaticString { "HCI_Read_Remote_Version_Information" }
  public static var section: StaticString { "Vol 4, Part E, §7.1.23" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(2, 7) }
  public static var isDispensable: Bool { true }
  public static var isAnsweredByStatus: Bool { true }
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
  }
}
