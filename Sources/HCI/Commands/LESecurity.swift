import BindruneWire

/// LE Long Term Key Request Negative Reply. Vol 4, Part E, §7.8.26.
///
/// There is no key: the encryption procedure of the central ends with 0x06.
public struct LELongTermKeyRequestNegativeReply: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x001B) }
  public static var name: StaticString { "HCI_LE_Long_Term_Key_Request_Negative_Reply" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(28, 2) }
  public typealias Return = ConnectionReturn
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
  }
}
