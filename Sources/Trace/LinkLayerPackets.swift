import BindruneHCI
import BindruneWire

// Packets on the air, without their preambles: a CRC may follow. They stand here because the host has no link layer;
// the simulator's is not this one, as what judges must not share the machines of what is judged.

/// The type of an advertising physical channel PDU. Vol 6, Part B, §2.3.
struct AdvertisingPDUType: OpenNumber {
  var rawValue: UInt8
  static var advInd: Self { Self(rawValue: 0) }
  static var advDirectInd: Self { Self(rawValue: 1) }
  static var advNonconnInd: Self { Self(rawValue: 2) }
  static var scanRsp: Self { Self(rawValue: 4) }
  static var connectInd: Self { Self(rawValue: 5) }
  static var advScanInd: Self { Self(rawValue: 6) }
}

/// What a data physical channel PDU carries. Vol 6, Part B, §2.4.
struct LinkLayerID: OpenNumber {
  var rawValue: UInt8
  /// A continuation fragment of an L2CAP frame, or nothing.
  static var continuation: Self { Self(rawValue: 1) }
  /// The start of an L2CAP frame, or a whole one.
  static var start: Self { Self(rawValue: 2) }
  static var control: Self { Self(rawValue: 3) }
}

/// The beginning of a packet: its access address, and its PDU's header. Vol 6, Part B, §2.1, §2.3, §2.4.
struct LinkLayerHeader: WireRecord {
  static var count: Int { 6 }
  /// The access address of advertising. Vol 6, Part B, §2.1.2.
  static var advertising: UInt32 { 0x8E89_BED6 }

  var accessAddress: UInt32 = 0
  // Of an advertising PDU:
  var pduType = AdvertisingPDUType.advInd
  var chSel: UInt8 = 0
  /// The address of the sender, and that of the receiver, is random.
  var txAdd = false, rxAdd = false
  // Of a data PDU:
  var llid = LinkLayerID.continuation
  /// The sequence number, and the next expected one.
  var sn = false, nesn = false
  var md: UInt8 = 0, cp: UInt8 = 0
  /// Octets of the PDU's payload.
  var length: UInt8 = 0
  private var reserved: UInt8 = 0

  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Access Address", &accessAddress)
    if isAdvertising {
      try visit.bits("PDU Type", &pduType, 4)
      try visit.bits("RFU", &reserved, 1)
      try visit.bits("ChSel", &chSel, 1)
      try visit.bits("TxAdd", &txAdd, 1)
      try visit.bits("RxAdd", &rxAdd, 1)
    } else {
      try visit.bits("LLID", &llid, 2)
      try visit.bits("NESN", &nesn, 1)
      try visit.bits("SN", &sn, 1)
      try visit.bits("MD", &md, 1)
      try visit.bits("CP", &cp, 1)
      try visit.bits("RFU", &reserved, 2)
    }
    try visit.value("Length", &length)
  }
  /// Nil: the packet was cut within its header.
  init?(_ packet: Span<UInt8>) { self.init(packet, at: 0..<Self.count) }
  var isAdvertising: Bool { accessAddress == Self.advertising }
  /// The place of the payload, if `packet` has all of it.
  func payload(in packet: Span<UInt8>) -> Range<Int>? {
    let end = Self.count + Int(length)
    return packet.count >= end ? Self.count..<end : nil
  }
}

/// The payload of ADV_IND, ADV_NONCONN_IND, SCAN_RSP and ADV_SCAN_IND; of ADV_DIRECT_IND with TargetA in the place of
/// the data. Vol 6, Part B, §2.3.1, §2.3.2.2.
struct AdvertisingPayload: WireRecord {
  var advA = DeviceAddress()
  var advData = Octets()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("AdvA", &advA)
    try visit.octets("AdvData", &advData)
  }
}

/// The payload of CONNECT_IND. Vol 6, Part B, §2.3.3.1.
struct ConnectIndication: WireRecord {
  var initA = DeviceAddress(), advA = DeviceAddress()
  /// The access address of the new connection.
  var aa: UInt32 = 0
  var crcInit: UInt24 = 0
  var winSize: UInt8 = 0
  var winOffset: UInt16 = 0
  var interval = ConnectionInterval()
  var latency: UInt16 = 0
  var timeout = SupervisionTimeout()
  var chM = Octets()
  var hop: UInt8 = 0, sca: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("InitA", &initA)
    try visit.value("AdvA", &advA)
    try visit.value("AA", &aa)
    try visit.value("CRCInit", &crcInit)
    try visit.value("WinSize", &winSize)
    try visit.value("WinOffset", &winOffset)
    try visit.value("Interval", &interval)
    try visit.value("Latency", &latency)
    try visit.value("Timeout", &timeout)
    try visit.octets("ChM", &chM, .exactly(5))
    try visit.bits("Hop", &hop, 5)
    try visit.bits("SCA", &sca, 3)
  }
  /// Nil for a packet with another header, and for one with another length than the Specification's.
  init?(_ header: LinkLayerHeader, _ packet: Span<UInt8>) {
    guard header.isAdvertising, header.pduType == .connectInd, let payload = header.payload(in: packet)
    else { return nil }
    self.init(packet, at: payload)
  }
}
