import BindruneCapture
import BindruneHCI
import BindruneWire

/// A packet from the air in words: the Specification's name of its PDU, its fields, and what the sniffer says of it.
struct LinkLayerText {
  var name = "Link-layer packet"
  var fields: String
  var problem: String?
  /// Who advertises, and the place of the data.
  var advertiser: (address: DeviceAddress, type: AddressType, data: Octets)?
  /// False: the packet is encrypted.
  private var isReadable = true

  /// `encryption`: that of the packet's connection, which may change with it.
  init(
    _ bytes: Span<UInt8>, _ reception: LinkLayerReception, _ record: CaptureRecord,
    _ encryption: inout LinkLayerEncryption
  ) {
    fields = "\(bytes.count) octets"
    defer {
      let words = Self.text(reception)
      if !words.isEmpty { fields += ", " + words }
      if reception.isMICValid == false { problem = problem ?? "the MIC is wrong" }
    }
    if reception.isCRCValid == false {
      problem = "the CRC is wrong"
      return
    }
    guard var header = LinkLayerHeader(bytes) else {
      problem = "the packet ends within its header"
      return
    }
    guard let place = header.payload(in: bytes) else {
      problem =
        record.isCut
        ? "the recorder kept \(bytes.count) of \(record.originalCount) octets"
        : "Length: \(header.length) octets, \(bytes.count - LinkLayerHeader.count) available"
      return
    }
    // Periodic advertising has an access address of its own.
    if reception.isAuxiliary { header.takeAdvertising(bytes) }
    if reception.kind == .isochronous {
      name = "Isochronous PDU"
      return
    }
    do throws(WireError) {
      if header.isAdvertising || reception.isAuxiliary {
        try takeAdvertising(header, place, reception, bytes)
      } else {
        try takeData(header, place, reception, bytes, &encryption)
      }
    } catch {
      problem = error.description
    }
  }

  /// `RSSI: -50 dBm, Channel: 37, LE 2M`; what the sniffer does not say is left out.
  private static func text(_ reception: LinkLayerReception) -> String {
    var words: [String] = []
    if let rssi = reception.rssi { words.append("RSSI: \(rssi) dBm") }
    if let channel = reception.channel { words.append("Channel: \(channel)") }
    switch reception.phy {
    case .le2M: words.append("LE 2M")
    case .leCoded: words.append("LE Coded")
    case .le1M, nil: break
    }
    return words.joined(separator: ", ")
  }

  // MARK: Advertising. Vol 6, Part B, §2.3.

  private mutating func takeAdvertising(
    _ header: LinkLayerHeader, _ place: Range<Int>, _ reception: LinkLayerReception, _ bytes: Span<UInt8>
  ) throws(WireError) {
    let isSecondary = reception.isAuxiliary
    let sender: AddressType = header.txAdd ? .random : .public
    var flags = ["TxAdd: \(header.txAdd ? "random" : "public")"]
    switch header.pduType {
    case .advDirectInd, .scanReq, .connectInd: flags.append("RxAdd: \(header.rxAdd ? "random" : "public")")
    default: break
    }
    if header.chSel == 1 { flags.append("ChSel: 1") }
    fields = flags.joined(separator: ", ")
    switch header.pduType {
    case .advInd, .advNonconnInd, .scanRsp, .advScanInd:
      name = header.pduType.name(isSecondary: isSecondary)
      let payload: AdvertisingPayload = try decode(bytes, place)
      advertiser = (payload.advA, sender, payload.advData)
    case .advDirectInd:
      name = header.pduType.name(isSecondary: isSecondary)
      let payload: DirectedPayload = try decode(bytes, place)
      advertiser = (payload.advA, sender, Octets())
    case .scanReq:
      name = header.pduType.name(isSecondary: isSecondary)
      let _: ScanRequestPayload = try decode(bytes, place)
    case .connectInd:
      name = header.pduType.name(isSecondary: isSecondary)
      let _: ConnectIndication = try decode(bytes, place)
    case .extended, .auxConnectRsp:
      name = header.pduType.name(isSecondary: isSecondary)
      let payload: ExtendedPayload = try decode(bytes, place)
      // Data in what is not known to be on a secondary channel: the primary ones have a pointer to it.
      if header.pduType == .extended, !payload.advData.isEmpty || reception.isAuxiliary {
        name = reception.kind.flatMap { Self.names[$0] } ?? "Extended advertising PDU"
      }
      if payload.hasAdvA { advertiser = (payload.advA, sender, payload.advData) }
    default:
      name = "Advertising PDU 0x" + hexDigits(UInt64(header.pduType.rawValue), 2)
      fields = hex(bytes.extracting(place))
    }
  }
  private static let names: [LinkLayerPDUKind: String] = [
    .auxAdvInd: "AUX_ADV_IND", .auxChainInd: "AUX_CHAIN_IND", .auxSyncInd: "AUX_SYNC_IND", .auxScanRsp: "AUX_SCAN_RSP",
  ]
  private mutating func decode<Payload: WireRecord>(_ bytes: Span<UInt8>, _ place: Range<Int>) throws(WireError)
    -> Payload
  {
    let payload: Payload = try WireDecoder.decode(Payload.self, bytes, from: place.lowerBound, to: place.upperBound)
    fields += ", " + payload.text(in: bytes)
    return payload
  }

  // MARK: Data. Vol 6, Part B, §2.4.

  private mutating func takeData(
    _ header: LinkLayerHeader, _ place: Range<Int>, _ reception: LinkLayerReception, _ bytes: Span<UInt8>,
    _ encryption: inout LinkLayerEncryption
  ) throws(WireError) {
    let payload = bytes.extracting(place)
    isReadable = reception.isMICValid != false && encryption.receive(header, reception, payload)
    let sequence = "NESN: \(header.nesn ? 1 : 0), SN: \(header.sn ? 1 : 0), MD: \(header.md)"
    guard header.llid == .control else {
      name = "LL Data PDU"
      let kind =
        switch header.llid {
        case .start: "start"
        case .continuation: header.length == 0 ? "empty" : "continuation"
        default: "0x" + hexDigits(UInt64(header.llid.rawValue), 2)
        }
      fields = "LLID: \(kind), \(sequence), Length: \(header.length)"
      if encryption.isOn, !payload.isEmpty { fields += isReadable ? ", decrypted" : ", encrypted" }
      return
    }
    name = "LL Control PDU"
    fields = "\(sequence), Length: \(header.length)"
    guard isReadable else {
      fields += ", encrypted"
      return
    }
    guard !payload.isEmpty else { throw .truncated("Opcode", needed: 1, available: 0) }
    if encryption.isOn, payload[0] != LLStartEncReq.opcode { fields += ", decrypted" }
    guard let type = LinkLayerControls.byOpcode[payload[0]] else {
      name = "LL Control PDU 0x" + hexDigits(UInt64(payload[0]), 2)
      fields = hex(payload)
      return
    }
    name = type.name
    if let described = try LinkLayerControls.describe(bytes, place), !described.fields.isEmpty {
      fields = described.fields + ", " + fields
    }
  }
}

extension LinkLayerReception {
  /// The Central's side stands where the host's does in a trace of HCI.
  var side: HCIDirection? {
    switch direction {
    case .central: .fromHost
    case .peripheral: .fromController
    case .unknown: nil
    }
  }
}

extension AdvertisingPDUType {
  /// Vol 6, Part B, §2.3, Table 2.3. `isSecondary`: on another channel than 37 to 39.
  func name(isSecondary: Bool) -> String {
    switch self {
    case .advInd: "ADV_IND"
    case .advDirectInd: "ADV_DIRECT_IND"
    case .advNonconnInd: "ADV_NONCONN_IND"
    case .scanReq: isSecondary ? "AUX_SCAN_REQ" : "SCAN_REQ"
    case .scanRsp: "SCAN_RSP"
    case .connectInd: isSecondary ? "AUX_CONNECT_REQ" : "CONNECT_IND"
    case .advScanInd: "ADV_SCAN_IND"
    case .extended: "ADV_EXT_IND"
    case .auxConnectRsp: "AUX_CONNECT_RSP"
    default: "Advertising PDU"
    }
  }
}
