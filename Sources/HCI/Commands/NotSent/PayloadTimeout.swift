import BindruneWire

// No host here sends these: the simulator and the trace tools know them.

/// Read Authenticated Payload Timeout. Vol 4, Part E, §7.3.93.
public struct ReadAuthenticatedPayloadTimeout: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.controllerAndBaseband, 0x007B) }
  public static var name: StaticString { "HCI_Read_Authenticated_Payload_Timeout" }
  public static var section: StaticString { "Vol 4, Part E, §7.3.93" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(32, 4) }
  public static var requirement: HCIRequirement { .features(.lePing) }
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
  public static var requirement: HCIRequirement { .features(.lePing) }
  public typealias Return = ConnectionReturn
  public var connectionHandle = ConnectionHandle()
  public var authenticatedPayloadTimeout = AuthenticatedPayloadTimeout.standard
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Authenticated_Payload_Timeout", &authenticatedPayloadTimeout)
  }
}
