import BindruneWire

// No host here sends these: the simulator and the trace tools know them.

/// LE Set Host Channel Classification. Vol 4, Part E, §7.8.19.
///
/// The data channels that the host does not know to be bad.
public struct LESetHostChannelClassification: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0014) }
  public static var name: StaticString { "HCI_LE_Set_Host_Channel_Classification" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.19" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(27, 3) }
  public var channelMap = ChannelMap.all
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Channel_Map", &channelMap)
  }
}

/// LE Read Channel Map. Vol 4, Part E, §7.8.20.
///
/// The data channels that a link uses.
public struct LEReadChannelMap: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0015) }
  public static var name: StaticString { "HCI_LE_Read_Channel_Map" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.20" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(27, 4) }
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
  }

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var connectionHandle = ConnectionHandle()
    public var channelMap = ChannelMap.all
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Connection_Handle", &connectionHandle)
      try visit.value("Channel_Map", &channelMap)
    }
  }
}

/// Data channels 0 … 36, bit n for channel n, in five octets. Vol 4, Part E, §7.8.19.
public struct ChannelMap: WireValue, Hashable {
  /// The three highest of its 40 bits are reserved.
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue & 0xFF_FFFF_FFFF }
  @inlinable @inline(__always) public static var width: Int { 5 }
  @inlinable @inline(__always) public static var isClosed: Bool { false }
  @inlinable @inline(__always) public init?(wire: UInt64) { self.init(rawValue: wire) }
  @inlinable @inline(__always) public var wire: UInt64 { rawValue }
  public var text: String { "0x" + hexDigits(wire, 10) }
  public static var all: ChannelMap { ChannelMap(rawValue: 0x1F_FFFF_FFFF) }
}
