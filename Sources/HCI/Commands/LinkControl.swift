import BindruneWire

/// Disconnect. Vol 4, Part E, §7.1.6.
public struct Disconnect: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.linkControl, 0x0006) }
  public static var name: StaticString { "HCI_Disconnect" }
  public static var section: StaticString { "Vol 4, Part E, §7.1.6" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(0, 5) }
  public static var isAnsweredByStatus: Bool { true }
  public var connectionHandle = ConnectionHandle()
  public var reason = HCIStatus.remoteUserTerminatedConnection
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Reason", &reason)
  }
}
