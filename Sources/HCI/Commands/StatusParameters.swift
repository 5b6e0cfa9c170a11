import BindruneWire

/// Read RSSI. Vol 4, Part E, §7.5.4.
///
/// For an LE link: the strength of the last reception, in dBm; 127 means unknown.
public struct ReadRSSI: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.statusParameters, 0x0005) }
  public static var name: StaticString { "HCI_Read_RSSI" }
  public static var section: StaticString { "Vol 4, Part E, §7.5.4" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(15, 5) }
  public static var isDispensable: Bool { true }
  public var handle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Handle", &handle)
  }

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var handle = ConnectionHandle()
    public var rssi: Int8 = 127
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Handle", &handle)
      try visit.value("RSSI", &rssi)
    }
  }
}
