import BindruneWire
import BindruneHCI

/// Who sent a link-layer packet.
public enum LinkLayerDirection: BitwiseCopyable, Sendable, Equatable { case unknown, central, peripheral }

/// How a packet was modulated. Vol 6, Part A, §1.
public enum LinkLayerPHY: UInt8, BitwiseCopyable, Sendable, Equatable { case le1M, le2M, leCoded }

/// What a packet is, where its access address and its header do not say it alone.
public enum LinkLayerPDUKind: UInt8, BitwiseCopyable, Sendable, Equatable {
  /// Extended and periodic advertising on the secondary channels, in the order of the pseudo-headers' numbers.
  case auxAdvInd, auxChainInd, auxSyncInd, auxScanRsp
  case data
  /// Of a connected or a broadcast isochronous stream.
  case isochronous
}

/// What a sniffer says about a packet that it received. nil: it does not say.
public struct LinkLayerReception: BitwiseCopyable, Sendable, Equatable {
  public var direction = LinkLayerDirection.unknown
  public var kind: LinkLayerPDUKind?
  /// The channel index, 0 to 39: 37, 38 and 39 are those of primary advertising. Vol 6, Part B, §1.4.1.
  public var channel: UInt8?
  /// The strength of the signal, in dBm.
  public var rssi: Int8?
  /// False: octets of the packet, also those of its header, are not what was sent.
  public var isCRCValid: Bool?
  /// True: the sniffer had the key, and the packet is plain text.
  public var isDecrypted = false
  /// False: what the sniffer decrypted is not what was sent.
  public var isMICValid: Bool?
  public var phy: LinkLayerPHY?

  public init(_ direction: LinkLayerDirection = .unknown) { self.direction = direction }
  /// Nothing beside the packet.
  public static var unknown: LinkLayerReception { LinkLayerReception() }
  public static var central: LinkLayerReception { LinkLayerReception(.central) }
  public static var peripheral: LinkLayerReception { LinkLayerReception(.peripheral) }

  /// True for a packet on a secondary channel of advertising.
  public var isAuxiliary: Bool { kind.map { $0.rawValue <= LinkLayerPDUKind.auxScanRsp.rawValue } ?? false }
  /// True if the packet belongs to no connection, whatever its access address.
  public var isOutsideConnections: Bool { isAuxiliary || kind == .isochronous }
  /// True if the packet's octets cannot be believed.
  public var isBroken: Bool { isCRCValid == false || isMICValid == false }

  /// The channel index of a frequency of 2402 + 2 × `number` MHz; nil for another frequency. Vol 6, Part B, §1.4.1.
  static func channel(rf number: Int) -> UInt8? {
    switch number {
    case 0: 37
    case 1...11: UInt8(number - 1)
    case 12: 38
    case 13...38: UInt8(number - 2)
    case 39: 39
    default: nil
    }
  }
}

extension CaptureRecord {
  /// LINKTYPE_BLUETOOTH_LE_LL_WITH_PHDR: ten octets, little-endian, with the radio channel, signal, noise, offenses of
  /// the access address, the reference access address and flags, which say what of these is valid.
  mutating func takeFromLinkLayerHeader(_ bytes: Span<UInt8>) {
    let start = Int(octets.offset)
    let flags = octets.count >= 10 ? bytes.little16(start + 8) : 0
    guard skip(10) else {
      content = .note(0)
      return
    }
    var reception = LinkLayerReception()
    if flags & 0x0040 == 0 { reception.channel = LinkLayerReception.channel(rf: Int(bytes[start])) }
    if flags & 0x0002 != 0 { reception.rssi = Int8(bitPattern: bytes[start + 1]) }
    reception.isDecrypted = flags & 0x0008 != 0
    if flags & 0x0400 != 0 { reception.isCRCValid = flags & 0x0800 != 0 }
    let type = flags >> 7 & 7
    switch type {
    // Auxiliary advertising has its kind in the bits of the MIC.
    case 1: reception.kind = LinkLayerPDUKind(rawValue: UInt8(flags >> 12 & 3))
    case 2: (reception.direction, reception.kind) = (.central, .data)
    case 3: (reception.direction, reception.kind) = (.peripheral, .data)
    case 4: (reception.direction, reception.kind) = (.central, .isochronous)
    case 5: (reception.direction, reception.kind) = (.peripheral, .isochronous)
    case 6: reception.kind = .isochronous
    default: break
    }
    if type != 1, flags & 0x1000 != 0 { reception.isMICValid = flags & 0x2000 != 0 }
    reception.phy = LinkLayerPHY(rawValue: UInt8(flags >> 14))
    content = .linkLayer(reception)
  }

  /// The header of Nordic's sniffer, 17 octets in every version: the board; six octets of its protocol; ten about the
  /// reception: flags, channel, the negative of the RSSI. Of the older versions some have no octet that says so: then
  /// nothing but the packet is taken.
  mutating func takeFromNordic(isOld: Bool, _ bytes: Span<UInt8>) {
    let start = Int(octets.offset)
    guard skip(17) else {
      content = .note(0)
      return
    }
    var reception = LinkLayerReception()
    let beginsAsFirst = bytes.big16(start) == 0xBEEF
    if beginsAsFirst || bytes[start + 7] == 10 {
      let flags = bytes[start + 8]
      // Version 3 tells advertising from data by the packet type: its bits 1 and 2 are then the kind of PDU.
      let isAdvertising = !beginsAsFirst && bytes[start + 3] >= 3 && bytes[start + 6] == 2
      reception.isCRCValid = flags & 1 != 0
      reception.channel = bytes[start + 9] < 40 ? bytes[start + 9] : nil
      reception.rssi = Int8(exactly: -Int(bytes[start + 10]))
      if isAdvertising {
        if let channel = reception.channel, channel < 37 { reception.kind = LinkLayerPDUKind(rawValue: flags >> 1 & 3) }
      } else {
        reception.direction = flags & 2 != 0 ? .central : .peripheral
        // Without the key no MIC is right: only a right one says something.
        if flags & 0b1100 == 0b1100 { (reception.isMICValid, reception.isDecrypted) = (true, true) }
      }
      if !isOld { reception.phy = LinkLayerPHY(rawValue: flags >> 4 & 7) }
    }
    content = .linkLayer(reception)
  }

  /// Per-Packet Information: its length, the link type of the packet, fields. Ubertooth's field has the frequency and
  /// the RSSI. https://web.archive.org/web/2012/http://www.cacetech.com/documents/PPI%20Header%20format%201.0.7.pdf
  mutating func takeFromPPI(_ bytes: Span<UInt8>) {
    let start = Int(octets.offset), count = Int(octets.count)
    guard count >= 8, Int(bytes.little16(start + 2)) >= 8, skip(Int(bytes.little16(start + 2))) else {
      content = .note(0)
      return
    }
    let end = Int(octets.offset)
    switch bytes.little32(start + 4) {
    // Ubertooth first wrote the type for private use.
    case 147, 251: content = .linkLayer(.unknown)
    case 187: take(.h4, bytes)
    case 201: take(.h4WithDirection, bytes)
    case 256: take(.leLinkLayerWithHeader, bytes)
    default: content = .note(0)
    }
    guard case .linkLayer(var reception) = content else { return }
    var field = start + 8
    while field + 4 <= end {
      let length = Int(bytes.little16(field + 2)), value = field + 4
      guard value + length <= end else { break }
      if bytes.little16(field) == 30_006, length >= 11 {
        let frequency = Int(bytes.little16(value + 1))
        if frequency % 2 == 0 { reception.channel = LinkLayerReception.channel(rf: (frequency - 2_402) / 2) }
        reception.rssi = Int8(bitPattern: bytes[value + 10])
      }
      field = value + length
    }
    content = .linkLayer(reception)
  }

  /// On LE Coded an octet follows the access address, the coding indicator: it is removed, so that all packets are
  /// alike.
  mutating func removeCodingIndicator(_ bytes: inout MutableSpan<UInt8>) {
    guard case .linkLayer(let reception) = content, reception.phy == .leCoded, octets.count > 5 else { return }
    let start = Int(octets.offset)
    for index in stride(from: start + 4, to: start, by: -1) { bytes[index] = bytes[index - 1] }
    octets = Octets(start + 1, Int(octets.count) - 1)
    originalCount -= 1
  }
}
