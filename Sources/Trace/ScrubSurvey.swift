import BindruneATT
import BindruneCapture
import BindruneGATT
import BindruneToolbox
import BindruneWire
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// A field of a trace to replace: its kind, and its places in ``CapturedTrace/storage``.
struct ScrubSite {
  var kind: SensitiveField.Kind
  var label: String
  /// The record's number.
  var number: Int
  /// Places of the octets, in their order: a frame may lie in several packets.
  var places: [Int]
  /// What precedes a part of a name or value in its attribute.
  var prefix: [UInt8] = []
}

/// Finds what a trace holds of addresses, names, keys and values.
struct ScrubSurvey: TraceSink {
  private let trace: CapturedTrace
  private let scrubsValues: Bool
  private(set) var sites: [ScrubSite] = []
  /// Octets that no declaration divides into fields: what is found there by chance may be replaced.
  private(set) var isOpaque: [Bool]
  /// What stays as it is, with the number of packets or fields.
  private(set) var kept: [String: Int] = [:]
  /// Frames in more than one packet: places of their octets.
  private(set) var scattered: [(number: Int, places: [Int])] = []
  /// Pairing Confirm values that a Pairing Random opens.
  private(set) var commitments: [Commitment] = []
  struct Commitment {
    /// Sites of the confirm value, of X of the sender's public key and the other's, and of the random value.
    var confirm: Int, own: Int, other: Int, random: Int
    var z: UInt8
  }

  private var names = TraceNames()
  private var pending = PendingHandles()
  /// The place of the record that is being read.
  private var index = -1
  private struct Side: Hashable { var adapter: UInt16, connection: UInt32, direction: HCIDirection? }
  /// Places behind the ACL headers of the packets since a first fragment.
  private var fragments: [Side: [Int]] = [:]
  private struct Pairing {
    var x: Int?
    var confirm: Int?
  }
  private var pairings: [Side: Pairing] = [:]
  private struct Bearer: Hashable { var side: Side, number: ChannelID? }
  /// Places of the K-frames since the last PDU of an enhanced bearer.
  private var segments: [Bearer: [Int]] = [:]
  private struct Attribute: Hashable { var bearer: Bearer, handle: UInt16 }
  /// The beginning of a value that is read in parts.
  private var parts: [Attribute: [UInt8]] = [:]

  init(_ trace: CapturedTrace, scrubsValues: Bool) {
    self.trace = trace
    self.scrubsValues = scrubsValues
    isOpaque = [Bool](repeating: false, count: trace.storage.count)
  }

  private mutating func add(_ kind: SensitiveField.Kind, _ label: String, _ number: Int, _ places: [Int]) {
    sites.append(ScrubSite(kind: kind, label: label, number: number, places: places))
  }
  private mutating func leave(_ what: String, _ places: [Int]) {
    kept[what, default: 0] += 1
    for place in places { isOpaque[place] = true }
  }

  // MARK: Records

  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    index += 1
    let base = Int(trace.records[index].octets.offset), number = record.number
    let all = Array(base..<base + bytes.count)
    names.learn(record, bytes)
    switch record.content {
    case .packet:
      guard bytes.count > 0 else { return }
      switch HCIPacketType(rawValue: bytes[0]) {
      case .acl: fragment(record, bytes, base)
      case .command, .event:
        for field in SensitiveField.find(in: bytes.array, as: .hci) {
          self.field(field, number, Array(all[field.range]))
        }
      case .synchronous: leave("synchronous data, mostly audio", all)
      case .iso: leave("isochronous data", all)
      case nil: leave("packets of unknown types", all)
      }
    case .monitor(.newIndex) where bytes.count >= 8:
      add(.address(isRandom: false), "New Index", number, Array(all[2..<8]))
    case .monitor(.indexInformation) where bytes.count >= 6:
      add(.address(isRandom: false), "Index Information", number, Array(all[0..<6]))
    case .monitor(.controlCommand), .monitor(.controlEvent):
      // BlueZ's management protocol: a cookie of four octets and an opcode of two; it loads the keys of all bonds.
      if all.count > 6 { add(.opaque, "management protocol", number, Array(all[6...])) }
    case .monitor(.systemNote), .monitor(.userLogging), .note: text(bytes.array, number, all)
    case .monitor(.vendorDiagnostics): leave("vendor diagnostics", all)
    case .monitor, .linkLayer: break
    }
  }
  private mutating func field(_ field: SensitiveField, _ number: Int, _ places: [Int]) {
    switch field.kind {
    case .handle, .signalStrength: break
    case .opaque:
      let isVendor = field.label.contains("endor")
      leave(isVendor ? "vendor packets" : "octets without a declaration: \(field.label)", places)
    case .value:
      for place in places { isOpaque[place] = true }
      if scrubsValues {
        add(.value, field.label, number, places)
      } else {
        leave("manufacturer and service data", places)
      }
    default: add(field.kind, field.label, number, places)
    }
  }
  /// Addresses in a program's text, as 12:34:56:78:9A:BC.
  private mutating func text(_ bytes: [UInt8], _ number: Int, _ all: [Int]) {
    leave("notes of programs, whose text may name anything", all)
    var at = 0
    while at + 17 <= bytes.count {
      let isAddress = (0..<17).allSatisfy { offset in
        let octet = bytes[at + offset]
        return offset % 3 == 2 ? octet == UInt8(ascii: ":") : Character(Unicode.Scalar(octet)).isHexDigit
      }
      if isAddress { add(.address(isRandom: nil), "text", number, Array(all[at..<at + 17])) }
      at += isAddress ? 17 : 1
    }
  }

  // MARK: Frames

  private mutating func fragment(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ base: Int) {
    guard let header = ACLHeader(bytes) else { return }
    let places = Array(base + ACLPacket.headerCount..<base + bytes.count)
    // Until its frame is known, nothing of it is.
    for place in places { isOpaque[place] = true }
    // A format without directions: both sides share the handle, and the dissector says which one it was.
    for direction in record.direction.map({ [$0] }) ?? [.fromHost, .fromController] {
      let side = Side(adapter: record.adapter, connection: UInt32(header.handle.rawValue), direction: direction)
      if header.packetBoundaryFlag == .continuing {
        fragments[side, default: []] += places
      } else {
        fragments[side] = places
      }
    }
  }

  mutating func violation(_: L2CAPViolation, _: ConnectionHandle, _: HCIDirection?, of _: CaptureRecord) {
    kept["fragments that make no frame", default: 0] += 1
  }

  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    let side = Side(adapter: frame.adapter, connection: frame.connection, direction: frame.direction)
    guard let found = fragments.removeValue(forKey: side), found.count >= L2CAPFrame.headerCount + payload.count else {
      kept["frames whose packets are cut", default: 0] += 1
      return
    }
    let places = Array(found[L2CAPFrame.headerCount..<L2CAPFrame.headerCount + payload.count])
    if let first = places.first, let last = places.last, last - first != places.count - 1 {
      scattered.append((record.number, places))
    }
    for place in found { isOpaque[place] = false }
    switch frame.channel {
    case .attribute: attribute(frame, payload, record.number, places, side)
    case .securityManager, .classicSecurityManager: security(payload, record.number, places, side)
    case .leSignaling, .classicSignaling: break
    case _ where frame.bearer != nil:
      // Until its PDU is known, nothing of it is.
      for place in places { isOpaque[place] = true }
      segments[Bearer(side: side, number: frame.bearer), default: []] += places
    default: leave("data of \(frame.channel.name ?? "channel \(frame.channel.text)")", places)
    }
  }
  mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    let side = Side(adapter: frame.adapter, connection: frame.connection, direction: frame.direction)
    let bearer = Bearer(side: side, number: frame.bearer)
    guard let found = segments[bearer], found.count == CreditFrame.lengthCount + pdu.count else { return }
    segments[bearer] = nil
    let places = Array(found.dropFirst(CreditFrame.lengthCount))
    if let first = places.first, let last = places.last, last - first != places.count - 1 {
      scattered.append((record.number, places))
    }
    for place in found { isOpaque[place] = false }
    attribute(frame, pdu, record.number, places, side)
  }
  mutating func pause() {
    if !segments.isEmpty { kept["K-frames of enhanced bearers that make no PDU", default: 0] += segments.count }
    segments = [:]
  }

  private mutating func security(_ payload: Span<UInt8>, _ number: Int, _ places: [Int], _ side: Side) {
    let octets = payload.array, code = octets.first.map { SMPCode(rawValue: $0) }
    var other = side
    other.direction = side.direction?.opposite
    let isWhole = (try? SMPPDU(payload)) != nil
    for field in SensitiveField.find(in: octets, as: .smp) {
      let site = sites.count
      self.field(field, number, Array(places[field.range]))
      guard sites.count > site else { continue }
      switch field.kind {
      case .publicKey where isWhole: pairings[side, default: Pairing()].x = site
      case .confirm where isWhole: pairings[side, default: Pairing()].confirm = site
      case .pairingRandom where isWhole:
        guard let confirm = pairings[side]?.confirm, let own = pairings[side]?.x, let theirs = pairings[other]?.x else {
          continue
        }
        // Vol 3, Part H, §2.3.5.6: 0 without a passkey, else 0x80 and the passkey's bit.
        for z: UInt8 in [0, 0x80, 0x81]
        where f4(x(own), x(theirs), number128(site), z) == number128(confirm) {
          commitments.append(Commitment(confirm: confirm, own: own, other: theirs, random: site, z: z))
        }
      default: break
      }
    }
    // A new pairing has new keys.
    if code == PairingRequest.code {
      pairings[side] = nil
      pairings[other] = nil
    }
  }
  private func x(_ site: Int) -> UInt256 {
    let octets = sites[site].places.prefix(32).map { trace.storage[$0] }
    return UInt256(leastSignificantFirst: octets.span)
  }
  private func number128(_ site: Int) -> UInt128 {
    let octets = sites[site].places.map { trace.storage[$0] }
    return UInt128(leastSignificantFirst: octets.span)
  }

  // MARK: Attributes

  private enum Meaning { case structure, name, address, identifier, application }
  private func meaning(_ uuid: BluetoothUUID?) -> Meaning {
    switch uuid {
    // Declarations, descriptors and the values of the Generic Access and Generic Attribute services.
    case .primaryService, .secondaryService, .include, .characteristic, .characteristicExtendedProperties,
      .clientCharacteristicConfiguration, .serverCharacteristicConfiguration, .characteristicPresentationFormat,
      .characteristicAggregateFormat, .appearance, .peripheralPrivacyFlag, .peripheralPreferredConnectionParameters,
      .serviceChanged, .centralAddressResolution, .resolvablePrivateAddressOnly, .clientSupportedFeatures,
      .databaseHash, .serverSupportedFeatures:
      .structure
    case .deviceName, .serialNumberString: .name
    case .reconnectionAddress: .address
    // Made of an address.
    case .systemID: .identifier
    default: .application
    }
  }

  private mutating func attribute(
    _ frame: TraceFrame, _ payload: Span<UInt8>, _ number: Int, _ places: [Int], _ side: Side
  ) {
    let octets = payload.array
    guard let first = octets.first else { return }
    let opcode = ATTOpcode(rawValue: first)
    let asked = pending.handle(frame, payload)
    do throws(WireError) { names.learn(frame, try ATTPDU(payload), in: payload) } catch {}
    for field in SensitiveField.find(in: octets, as: .att) {
      let range = field.range
      guard field.kind == .value else {
        self.field(field, number, Array(places[range]))
        continue
      }
      var handle = asked, meaning = Meaning.application
      switch opcode {
      // A service or a group, and what a client looks for.
      case FindByTypeValueRequest.opcode, ReadByGroupTypeResponse.opcode: meaning = .structure
      default:
        // In the list, the handle of each value precedes it.
        if opcode == ReadByTypeResponse.opcode {
          handle = range.lowerBound >= 2 ? payload.little16(range.lowerBound - 2) : nil
        }
        var uuid: BluetoothUUID?
        if let handle { uuid = names.uuid(of: AttributeHandle(rawValue: handle), in: frame, opcode: opcode) }
        meaning = self.meaning(uuid)
        // A Client Characteristic Configuration whose discovery the trace lacks looks like this.
        if uuid == nil, range.count == 2 {
          let configuration = ClientCharacteristicConfiguration(rawValue: payload.little16(range.lowerBound))
          if configuration.isSubset(of: [.notification, .indication]) { meaning = .structure }
        }
      }
      let bearer = Bearer(side: side, number: frame.bearer)
      attribute(meaning, octets, Array(places[range]), range, opcode, handle, number, bearer)
    }
  }
  private mutating func attribute(
    _ meaning: Meaning, _ octets: [UInt8], _ places: [Int], _ range: Range<Int>, _ opcode: ATTOpcode, _ handle: UInt16?,
    _ number: Int, _ bearer: Bearer
  ) {
    let kind: SensitiveField.Kind
    switch meaning {
    case .structure: return
    case .name: kind = .name
    case .address where range.count == 6: kind = .address(isRandom: nil)
    case .address, .identifier: kind = .value
    case .application:
      for place in places { isOpaque[place] = true }
      guard scrubsValues else { return leave("values of characteristics", []) }
      kind = .value
    }
    add(kind, "Attribute Value", number, places)
    // A long value: what was read of it so far, and the next part.
    let isLater = opcode == ReadBlobResponse.opcode
    guard let handle, isLater || opcode == ReadResponse.opcode else { return }
    let attribute = Attribute(bearer: bearer, handle: handle)
    if isLater { sites[sites.count - 1].prefix = parts[attribute] ?? [] }
    guard parts.count < 4096 || parts[attribute] != nil else { return }
    parts[attribute] = (isLater ? parts[attribute] ?? [] : []) + octets[range]
    if parts[attribute]?.count ?? 0 > 1024 { parts[attribute] = [] }
  }
}

// What GATT's layer does not need. Assigned Numbers, §3.8.
extension BluetoothUUID {
  fileprivate static var peripheralPrivacyFlag: Self { .short(0x2A02) }
  fileprivate static var reconnectionAddress: Self { .short(0x2A03) }
  fileprivate static var systemID: Self { .short(0x2A23) }
  fileprivate static var serialNumberString: Self { .short(0x2A25) }
  fileprivate static var resolvablePrivateAddressOnly: Self { .short(0x2AC9) }
}
