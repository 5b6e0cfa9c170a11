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
  static var scanReq: Self { Self(rawValue: 3) }
  static var scanRsp: Self { Self(rawValue: 4) }
  static var connectInd: Self { Self(rawValue: 5) }
  static var advScanInd: Self { Self(rawValue: 6) }
  /// Every PDU of extended advertising but the requests: their Extended Header tells them apart, in part.
  static var extended: Self { Self(rawValue: 7) }
  static var auxConnectRsp: Self { Self(rawValue: 8) }
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
  /// Reads the header of an advertising PDU whose access address is another one.
  mutating func takeAdvertising(_ packet: Span<UInt8>) {
    guard !isAdvertising, packet.count >= Self.count else { return }
    pduType = AdvertisingPDUType(rawValue: packet[4] & 0x0F)
    (chSel, txAdd, rxAdd) = (packet[4] >> 5 & 1, packet[4] & 0x40 != 0, packet[4] & 0x80 != 0)
  }
  var isAdvertising: Bool { accessAddress == Self.advertising }
  /// The place of the payload, if `packet` has all of it.
  func payload(in packet: Span<UInt8>) -> Range<Int>? {
    let end = Self.count + Int(length)
    return packet.count >= end ? Self.count..<end : nil
  }
}

/// The payload of ADV_IND, ADV_NONCONN_IND, SCAN_RSP and ADV_SCAN_IND. Vol 6, Part B, §2.3.1, §2.3.2.2.
struct AdvertisingPayload: WireRecord {
  var advA = DeviceAddress()
  var advData = Octets()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("AdvA", &advA)
    try visit.octets("AdvData", &advData)
  }
}

/// The payload of ADV_DIRECT_IND. Vol 6, Part B, §2.3.1.2.
struct DirectedPayload: WireRecord {
  var advA = DeviceAddress(), targetA = DeviceAddress()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("AdvA", &advA)
    try visit.value("TargetA", &targetA)
  }
}

/// The payload of SCAN_REQ and AUX_SCAN_REQ. Vol 6, Part B, §2.3.2.1.
struct ScanRequestPayload: WireRecord {
  var scanA = DeviceAddress(), advA = DeviceAddress()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("ScanA", &scanA)
    try visit.value("AdvA", &advA)
  }
}

/// The Common Extended Advertising Payload. Vol 6, Part B, §2.3.4.
struct ExtendedPayload: WireRecord {
  var extendedHeaderLength: UInt8 = 0, advMode: UInt8 = 0
  /// Bits 0 to 6: which of the fields below are present.
  var extendedHeaderFlags: UInt8 = 0
  var advA = DeviceAddress(), targetA = DeviceAddress()
  var cteInfo: UInt8 = 0
  var did: UInt16 = 0
  var sid: UInt8 = 0
  var channelIndex: UInt8 = 0, ca: UInt8 = 0, offsetUnits: UInt8 = 0
  var auxOffset: UInt16 = 0
  var auxPHY: UInt8 = 0
  var syncInfo = Octets()
  var txPower: Int8 = 0
  /// Additional Controller Advertising Data.
  var acad = Octets()
  var advData = Octets()
  init() {}
  var hasAdvA: Bool { extendedHeaderFlags & 0x01 != 0 }
  var hasAuxPtr: Bool { extendedHeaderFlags & 0x10 != 0 }

  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.bits("Extended Header Length", &extendedHeaderLength, 6)
    try visit.bits("AdvMode", &advMode, 2)
    var left = Int(extendedHeaderLength)
    if left > 0 {
      try visit.value("Extended Header Flags", &extendedHeaderFlags)
      // The lengths of the fields, by their flags' bits.
      left = [6, 6, 1, 2, 3, 18, 1].enumerated().reduce(left - 1) { left, field in
        extendedHeaderFlags >> UInt8(field.offset) & 1 == 1 ? left - field.element : left
      }
      guard left >= 0 else { throw .invalid("Extended Header Length", UInt64(extendedHeaderLength)) }
    }
    if hasAdvA { try visit.value("AdvA", &advA) }
    if extendedHeaderFlags & 0x02 != 0 { try visit.value("TargetA", &targetA) }
    if extendedHeaderFlags & 0x04 != 0 { try visit.value("CTEInfo", &cteInfo) }
    if extendedHeaderFlags & 0x08 != 0 {
      try visit.bits("Advertising DID", &did, 12)
      try visit.bits("SID", &sid, 4)
    }
    if hasAuxPtr {
      try visit.bits("Channel Index", &channelIndex, 6)
      try visit.bits("CA", &ca, 1)
      try visit.bits("Offset Units", &offsetUnits, 1)
      try visit.bits("AUX Offset", &auxOffset, 13)
      try visit.bits("AUX PHY", &auxPHY, 3)
    }
    if extendedHeaderFlags & 0x20 != 0 { try visit.octets("SyncInfo", &syncInfo, .exactly(18)) }
    if extendedHeaderFlags & 0x40 != 0 { try visit.value("TxPower", &txPower) }
    if left > 0 { try visit.octets("ACAD", &acad, .exactly(left)) }
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
