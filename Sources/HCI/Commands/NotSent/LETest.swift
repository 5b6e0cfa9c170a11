import BindruneWire

// No host here sends these: the simulator and the trace tools know them.

// Direct test mode: a controller sends reference packets on one channel, or counts those that it receives.
// Vol 6, Part F; the channels are 0 … 39, channel n at 2402 + 2 n MHz.

/// LE Receiver Test. Vol 4, Part E, §7.8.28.
///
/// Version [v1]: on LE 1M.
public struct LEReceiverTest: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x001D) }
  public static var name: StaticString { "HCI_LE_Receiver_Test" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.28" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(28, 4) }
  public var rxChannel: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("RX_Channel", &rxChannel)
  }
}

/// LE Receiver Test [v2]. Vol 4, Part E, §7.8.28.
public struct LEReceiverTestV2: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0033) }
  public static var name: StaticString { "HCI_LE_Receiver_Test [v2]" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.28" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(35, 7) }
  public static var requirement: HCIRequirement { .oneFeature(of: [.le2MPHY, .leCodedPHY]) }
  public var rxChannel: UInt8 = 0
  public var phy = PHY.le1M
  public var modulationIndex: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("RX_Channel", &rxChannel)
    try visit.value("PHY", &phy)
    try visit.value("Modulation_Index", &modulationIndex)
  }
}

/// LE Transmitter Test. Vol 4, Part E, §7.8.29.
///
/// Version [v1]: on LE 1M. `packetPayload` 0 … 7 chooses a bit pattern.
public struct LETransmitterTest: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x001E) }
  public static var name: StaticString { "HCI_LE_Transmitter_Test" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.29" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(28, 5) }
  public var txChannel: UInt8 = 0
  public var testDataLength: UInt8 = 0
  public var packetPayload: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("TX_Channel", &txChannel)
    try visit.value("Test_Data_Length", &testDataLength)
    try visit.value("Packet_Payload", &packetPayload)
  }
}

/// LE Transmitter Test [v2]. Vol 4, Part E, §7.8.29.
///
/// `phy` 3 is LE Coded with S = 8, 4 with S = 2.
public struct LETransmitterTestV2: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0034) }
  public static var name: StaticString { "HCI_LE_Transmitter_Test [v2]" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.29" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(36, 0) }
  public static var requirement: HCIRequirement { .oneFeature(of: [.le2MPHY, .leCodedPHY]) }
  public var txChannel: UInt8 = 0
  public var testDataLength: UInt8 = 0
  public var packetPayload: UInt8 = 0
  public var phy = PHY.le1M
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("TX_Channel", &txChannel)
    try visit.value("Test_Data_Length", &testDataLength)
    try visit.value("Packet_Payload", &packetPayload)
    try visit.value("PHY", &phy)
  }
}

/// LE Test End. Vol 4, Part E, §7.8.30.
///
/// `numPackets` is the receiver's count; 0 after a transmitter's test.
public struct LETestEnd: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x001F) }
  public static var name: StaticString { "HCI_LE_Test_End" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.30" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(28, 6) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var numPackets: UInt16 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Num_Packets", &numPackets)
    }
  }
}
