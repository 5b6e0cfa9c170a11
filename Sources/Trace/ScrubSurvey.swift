import BindruneATT
import BindruneCapture
import BindruneGATT
import BindruneToolbox
import BindruneWire
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// # ScrubSurvey
/// **Overview**: finds what a trace holds of addresses, names, keys and values, and what nothing declares, for each
/// pass over the trace: the one that collects originals, the one that writes, and the one that proves.
///
/// **Function**: a record waits in `entries` while a frame of which it has a part is incomplete. Its owner passes
/// records on, and takes the fields after each, then the entries before `held`. Memory is bounded: when more than
/// ``mostWaiting`` octets wait, the oldest frame is given up, and its octets are as those of no frame.
struct ScrubSurvey: TraceSink {
  static var mostWaiting: Int { 4 << 20 }
  private static var mostSides: Int { 256 }

  private let scrubsValues: Bool, keepsUnknown: Bool
  private var fields: [ScrubField] = []
  /// Frames in more than one record.
  private var scattered: [ScrubPlace] = []
  /// Pairing Confirm values that a Pairing Random opens: by the record that has them.
  private(set) var commitments: [Int: Commitment] = [:]
  struct Commitment {
    /// The sender's public key, the other's, and the random value.
    var own: [UInt8], other: [UInt8], random: [UInt8]
    var z: UInt8
  }
  private(set) var entries: [ScrubEntry] = []
  /// The number of the first entry.
  private var base = 0
  private var waitingCount = 0

  private var finder = SensitiveFinder(findsHandles: false)
  private var names = TraceNames()
  private var pending = PendingHandles()
  private var channels = ScrubChannels()
  private struct Side: Hashable { var adapter: UInt16, connection: UInt32, direction: HCIDirection? }
  /// Connections of BR/EDR, by adapter and handle.
  private var classic: Set<UInt32> = []
  /// The ACL packet that is read, until its frame comes.
  private var current: (side: Side, place: ScrubPlace)?
  /// Octets behind the ACL headers of the packets since a first fragment.
  private var fragments: [Side: ScrubPlace] = [:]
  private struct Pairing {
    var publicKey: [UInt8]?
    var confirm: (record: Int, value: UInt128)?
  }
  private var pairings: [Side: Pairing] = [:]
  /// Devices of which the last report had a part of their data.
  private var partial: Set<UInt64> = []
  private struct Bearer: Hashable { var side: Side, number: ChannelID? }
  /// The K-frames since the last PDU of an enhanced bearer.
  private var segments: [Bearer: ScrubPlace] = [:]
  private struct Attribute: Hashable { var bearer: Bearer, handle: UInt16 }
  /// The beginning of a value that is read in parts.
  private var parts: [Attribute: [UInt8]] = [:]
  private var meanings: [BluetoothUUID: Meaning] = [:]

  init(scrubsValues: Bool, keepsUnknown: Bool) {
    self.scrubsValues = scrubsValues
    self.keepsUnknown = keepsUnknown
  }

  // MARK: Entries

  func octets(of place: ScrubPlace) -> [UInt8] {
    if !place.isScattered { return Array(entries[place.first.record - base].octets[place.first.range]) }
    return place.pieces.flatMap { entries[$0.record - base].octets[$0.range] }
  }
  /// Calls `body` with each octet's entry and index.
  mutating func change(_ place: ScrubPlace, _ body: (inout ScrubEntry, _ index: Int, _ number: Int) -> Void) {
    var number = 0
    for piece in place.pieces {
      for index in piece.range {
        body(&entries[piece.record - base], index, number)
        number += 1
      }
    }
  }
  /// The fields that were found since the last call.
  mutating func takeFields() -> [ScrubField] {
    if fields.isEmpty { return [] }
    defer { fields = [] }
    return fields
  }
  /// The frames in more than one record that were found since the last call.
  mutating func takeScattered() -> [ScrubPlace] {
    if scattered.isEmpty { return [] }
    defer { scattered = [] }
    return scattered
  }
  /// After a record: takes the entries that wait for nothing, in their order.
  mutating func release() -> [ScrubEntry] {
    var first = base + entries.count
    for place in fragments.values { first = min(first, place.first.record) }
    for place in segments.values { first = min(first, place.first.record) }
    defer { base = first }
    if first == base + entries.count {
      defer { (entries, waitingCount) = ([], 0) }
      return entries
    }
    let released = Array(entries.prefix(first - base))
    for entry in released { waitingCount -= entry.octets.count }
    entries.removeFirst(released.count)
    return released
  }
  /// The records that a caller has passed.
  var count: Int { base + entries.count }

  /// After a record, before its fields are taken: what its packet leaves open.
  mutating func settle() {
    if let (side, place) = current.take() { fragments[side] = place }
    while waitingCount > Self.mostWaiting || fragments.count + segments.count > Self.mostSides {
      let oldest = fragments.min { $0.value.first.record < $1.value.first.record }
      let segment = segments.min { $0.value.first.record < $1.value.first.record }
      if let segment, segment.value.first.record <= oldest?.value.first.record ?? .max {
        segments[segment.key] = nil
        giveUp(segment.value, keeping: CreditFrame.lengthCount)
      } else if let oldest {
        fragments[oldest.key] = nil
        giveUp(oldest.value, keeping: L2CAPFrame.headerCount)
      } else {
        return
      }
      // What waited for it is free.
      if fragments.isEmpty, segments.isEmpty { return }
      var first = Int.max
      for place in fragments.values { first = min(first, place.first.record) }
      for place in segments.values { first = min(first, place.first.record) }
      let waiting = entries.dropFirst(first - base).reduce(0) { $0 + $1.octets.count }
      if waiting <= Self.mostWaiting, fragments.count + segments.count <= Self.mostSides { return }
    }
  }
  /// A frame that will not be known: only its header stays.
  private mutating func giveUp(_ place: ScrubPlace, keeping count: Int) {
    if place.count > count { unknown("fragments that make no frame", place[count..<place.count]) }
  }
  private mutating func giveUpAll() {
    for place in fragments.values { giveUp(place, keeping: L2CAPFrame.headerCount) }
    for place in segments.values { giveUp(place, keeping: CreditFrame.lengthCount) }
    fragments = [:]
    segments = [:]
  }
  mutating func pause() {}
  /// The trace ends.
  mutating func end() {
    settle()
    giveUpAll()
  }

  private mutating func add(_ kind: SensitiveField.Kind, _ label: StaticString, _ place: ScrubPlace) {
    fields.append(ScrubField(kind: .replace(kind), label: label, place: place))
  }
  /// Octets that nothing declares.
  private mutating func unknown(_ label: StaticString, _ place: ScrubPlace, isText: Bool = false) {
    if place.count == 0 { return }
    fields.append(ScrubField(kind: keepsUnknown ? .open : isText ? .text : .zero, label: label, place: place))
  }
  /// A field of `whole`, of which `header` octets tell what it is and stay.
  private mutating func field(_ field: SensitiveField, of whole: ScrubPlace, header: Int) {
    let range = field.range.clamped(to: min(header, whole.count)..<whole.count)
    if range.isEmpty { return }
    let place = whole[range]
    switch field.kind {
    case .handle, .signalStrength: break
    case .opaque: unknown(field.label, place)
    case .value: if scrubsValues { add(.value, field.label, place) } else { unknown(field.label, place) }
    default: add(field.kind, field.label, place)
    }
  }

  // MARK: Records

  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    // A frame whose fragments are missing does not end.
    if record.missingBefore > 0 { giveUpAll() }
    let number = count, entry = ScrubEntry(record, bytes)
    entries.append(entry)
    waitingCount += bytes.count
    names.learn(record, bytes)
    func place(_ range: Range<Int>) -> ScrubPlace { ScrubPlace(number, range.clamped(to: 0..<bytes.count)) }
    switch record.content {
    case .packet:
      guard bytes.count > 0 else { return }
      switch HCIPacketType(rawValue: bytes[0]) {
      case .acl: fragment(record, bytes, number)
      case .command, .event:
        if bytes[0] == HCIPacketType.event.rawValue { link(record, bytes) }
        let header = ScrubEntry.headerCount(of: entry.octets, .packet), later = laterPart(record, bytes)
        for field in finder.find(in: entry.octets, as: .hci) where field.range.upperBound <= later ?? .max {
          self.field(field, of: place(0..<bytes.count), header: header)
        }
        if let later { unknown("later parts of advertising data", place(later..<bytes.count)) }
      // Packet type, handle and length.
      case .synchronous: unknown("synchronous data, mostly audio", place(min(4, bytes.count)..<bytes.count))
      case .iso: unknown("isochronous data", place(min(5, bytes.count)..<bytes.count))
      case nil: unknown("packets of unknown types", place(1..<bytes.count))
      }
    case .monitor(.newIndex) where bytes.count >= 8: add(.address(isRandom: false), "New Index", place(2..<8))
    case .monitor(.indexInformation) where bytes.count >= 6:
      add(.address(isRandom: false), "Index Information", place(0..<6))
    case .monitor(.controlCommand), .monitor(.controlEvent):
      // BlueZ's management protocol: a cookie of four octets and an opcode of two; it loads the keys of all bonds.
      if bytes.count > 6 { add(.opaque, "contents of the management protocol", place(6..<bytes.count)) }
    case .monitor(.systemNote), .note: text(entry.octets, place(0..<bytes.count))
    // Before the text stand a priority and the length of the program's name.
    case .monitor(.userLogging): text(entry.octets, place(min(2, bytes.count)..<bytes.count))
    case .monitor(.vendorDiagnostics): unknown("vendor diagnostics", place(0..<bytes.count))
    case .monitor(.newIndex), .monitor(.deleteIndex), .monitor(.openIndex), .monitor(.closeIndex),
      .monitor(.indexInformation), .monitor(.controlOpen), .monitor(.controlClose):
      break
    case .monitor: unknown("records of unknown kinds", place(0..<bytes.count))
    case .linkLayer: break
    }
  }
  /// Addresses in a program's text, as 12:34:56:78:9A:BC.
  private mutating func text(_ bytes: [UInt8], _ place: ScrubPlace) {
    unknown("notes of programs", place, isText: true)
    guard keepsUnknown else { return }
    var at = place.first.range.lowerBound
    while at + 17 <= bytes.count {
      let isAddress = (0..<17).allSatisfy { offset in
        let octet = bytes[at + offset]
        return offset % 3 == 2 ? octet == UInt8(ascii: ":") : Character(Unicode.Scalar(octet)).isHexDigit
      }
      if isAddress { add(.address(isRandom: nil), "text", ScrubPlace(place.first.record, at..<at + 17)) }
      at += isAddress ? 17 : 1
    }
  }
  /// Where a part of advertising data begins that is not the first: an AD structure may begin anywhere in it. Vol 4, Part
  /// E, §7.8.54, §7.8.55, §7.7.65.13.
  private mutating func laterPart(_ record: CaptureRecord, _ bytes: Span<UInt8>) -> Int? {
    if bytes[0] == HCIPacketType.command.rawValue {
      guard bytes.count > 8 else { return nil }
      let opcode = bytes.little16(1)
      // Operation: an intermediate fragment, or the last one.
      let isLater = (opcode == 0x2037 || opcode == 0x2038) && (bytes[5] == 0 || bytes[5] == 2)
      return isLater ? 8 : nil
    }
    // One report, as those that are divided are.
    guard bytes.count > 29, bytes[1] == 0x3E, bytes[3] == 0x0D, bytes[4] == 1 else { return nil }
    let address = (8..<14).reduce(UInt64(record.adapter) << 48) { $0 ^ UInt64(bytes[$1]) << UInt64(8 * ($1 - 8)) }
    let device = address ^ UInt64(bytes[16]) << 56, isLater = partial.remove(device) != nil
    // Data_Status: more data to come.
    if bytes[5] >> 5 & 3 == 1, partial.count < 4_096 { partial.insert(device) }
    return isLater ? 29 : nil
  }
  /// Which connections are not LE's. Vol 4, Part E, §7.7.3, §7.7.5, §7.7.65.1.
  private mutating func link(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    guard bytes.count >= 7 else { return }
    func key(_ at: Int) -> UInt32 { UInt32(record.adapter) << 16 | UInt32(bytes.little16(at) & 0x0FFF) }
    switch (bytes[1], bytes[3]) {
    case (0x03, 0), (0x2C, 0): if classic.count < 4_096 { classic.insert(key(4)) }
    case (0x05, 0):
      classic.remove(key(4))
      channels.forget(record.adapter, key(4) & 0xFFFF)
    case (0x3E, 0x01), (0x3E, 0x0A), (0x3E, 0x29):
      classic.remove(key(5))
      channels.forget(record.adapter, key(5) & 0xFFFF)
    default: break
    }
  }

  // MARK: Frames

  private mutating func fragment(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ number: Int) {
    guard let header = ACLHeader(bytes) else { return }
    let data = ScrubPlace(number, ACLPacket.headerCount..<bytes.count)
    let isFirst = header.packetBoundaryFlag != .continuing
    // The dissector ignores a packet of another length, unless its recorder cut it.
    let declared = Int(header.dataTotalLength)
    guard declared == data.count || (record.isCut && declared > data.count) else {
      return giveUp(data, keeping: isFirst ? L2CAPFrame.headerCount : 0)
    }
    func side(_ direction: HCIDirection) -> Side {
      Side(adapter: record.adapter, connection: UInt32(header.handle.rawValue), direction: direction)
    }
    let own =
      record.direction
      ?? (header.packetBoundaryFlag == .firstNonFlushable || (!isFirst && fragments[side(.fromHost)] != nil)
        ? .fromHost : .fromController)
    if isFirst {
      if let before = fragments.removeValue(forKey: side(own)) { giveUp(before, keeping: L2CAPFrame.headerCount) }
      current = (side(own), data)
    } else if var before = fragments.removeValue(forKey: side(own)) {
      before.append(data)
      current = (side(own), before)
    } else {
      giveUp(data, keeping: 0)
    }
  }

  mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of _: CaptureRecord
  ) {
    // The frame before has been given up.
    if case .incompleteFrame = violation { return }
    if let (_, place) = current.take() { giveUp(place, keeping: L2CAPFrame.headerCount) }
  }

  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard let (side, found) = current.take() else { return }
    guard found.count >= L2CAPFrame.headerCount + payload.count else {
      return giveUp(found, keeping: L2CAPFrame.headerCount)
    }
    let end = L2CAPFrame.headerCount + payload.count, place = found[L2CAPFrame.headerCount..<end]
    mark(found[0..<L2CAPFrame.headerCount])
    // Behind a packet that was cut nothing has a place.
    if found.count > end { unknown("fragments that make no frame", found[end..<found.count]) }
    if found.isScattered, !payload.isEmpty { scattered.append(place) }
    if classic.contains(UInt32(frame.adapter) << 16 | frame.connection & 0xFFFF) {
      switch frame.channel {
      case .classicSignaling: signals(payload, place)
      case .classicSecurityManager: security(payload, place, side)
      default: unknown("data of BR/EDR channels", place)
      }
      return
    }
    switch frame.channel {
    case .attribute: attribute(frame, payload, place, side)
    case .securityManager, .classicSecurityManager: security(payload, place, side)
    case .leSignaling:
      channels.learn(frame, payload)
      signals(payload, place)
    case .classicSignaling: signals(payload, place)
    case _ where frame.bearer != nil:
      let bearer = Bearer(side: side, number: frame.bearer)
      if segments[bearer]?.append(place) == nil { segments[bearer] = place }
    default:
      let count = min(payload.count, channels.lengthCount(frame, payload))
      unknown("data of channels", place[count..<payload.count])
    }
  }
  private mutating func mark(_ header: ScrubPlace) {
    change(header) { entry, index, _ in entry.marks[index] = .header }
  }
  mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    let side = Side(adapter: frame.adapter, connection: frame.connection, direction: frame.direction)
    guard let found = segments.removeValue(forKey: Bearer(side: side, number: frame.bearer)) else { return }
    let end = CreditFrame.lengthCount + pdu.count
    guard found.count >= end, end > CreditFrame.lengthCount else {
      return giveUp(found, keeping: CreditFrame.lengthCount)
    }
    if found.count > end { unknown("fragments that make no frame", found[end..<found.count]) }
    let place = found[CreditFrame.lengthCount..<end]
    if found.isScattered { scattered.append(place) }
    attribute(frame, pdu, place, side)
  }

  /// A frame of the signaling channel has several commands on BR/EDR.
  private mutating func signals(_ payload: Span<UInt8>, _ place: ScrubPlace) {
    var at = 0
    while at < payload.count {
      let count = payload.signalCount(at: at), octets = payload.extracting(at..<at + count).array
      for field in finder.find(in: octets, as: .signaling) {
        self.field(field, of: place[at..<at + count], header: SignalHeader.count)
      }
      at += count
    }
  }

  private mutating func security(_ payload: Span<UInt8>, _ place: ScrubPlace, _ side: Side) {
    let octets = payload.array, code = octets.first.map { SMPCode(rawValue: $0) }
    var other = side
    other.direction = side.direction?.opposite
    let isWhole = (try? SMPPDU(payload)) != nil
    for field in finder.find(in: octets, as: .smp) {
      self.field(field, of: place, header: 1)
      let value = Array(octets[field.range])
      switch field.kind {
      case .publicKey where isWhole: pairings[side, default: Pairing()].publicKey = value
      case .confirm where isWhole:
        pairings[side, default: Pairing()].confirm = (
          place[field.range].first.record, UInt128(leastSignificantFirst: value.span)
        )
      case .pairingRandom where isWhole:
        guard let confirm = pairings[side]?.confirm, let own = pairings[side]?.publicKey,
          let theirs = pairings[other]?.publicKey, own.count == 64, theirs.count == 64
        else { continue }
        func x(_ key: [UInt8]) -> UInt256 { UInt256(leastSignificantFirst: key[..<32].array.span) }
        // Vol 3, Part H, §2.3.5.6: 0 without a passkey, else 0x80 and the passkey's bit.
        for z: UInt8 in [0, 0x80, 0x81]
        where f4(x(own), x(theirs), UInt128(leastSignificantFirst: value.span), z) == confirm.value {
          commitments[confirm.record] = Commitment(own: own, other: theirs, random: value, z: z)
        }
      default: break
      }
    }
    if pairings.count > 4_096 { pairings = [:] }
    // A new pairing has new keys.
    if code == PairingRequest.code {
      pairings[side] = nil
      pairings[other] = nil
    }
  }

  // MARK: Attributes

  private enum Meaning { case structure, name, address, personal, application, unknown }
  private mutating func meaning(_ uuid: BluetoothUUID?) -> Meaning {
    guard let uuid else { return .unknown }
    if let known = meanings[uuid] { return known }
    let found = Self.meaning(uuid)
    if meanings.count < 4_096 { meanings[uuid] = found }
    return found
  }
  private static func meaning(_ uuid: BluetoothUUID) -> Meaning {
    switch uuid {
    // Declarations, descriptors and the values of the Generic Access and Generic Attribute services.
    case .primaryService, .secondaryService, .include, .characteristic, .characteristicExtendedProperties,
      .clientCharacteristicConfiguration, .serverCharacteristicConfiguration, .characteristicPresentationFormat,
      .characteristicAggregateFormat, .appearance, .peripheralPrivacyFlag, .peripheralPreferredConnectionParameters,
      .serviceChanged, .centralAddressResolution, .resolvablePrivateAddressOnly, .clientSupportedFeatures,
      .databaseHash, .serverSupportedFeatures:
      .structure
    case .deviceName: .name
    case .reconnectionAddress: .address
    default:
      switch uuid.shortValue {
      case let number? where personalTexts.contains(number): .name
      case let number? where personalValues.contains(number): .personal
      // A value whose meaning is assigned; others belong to their maker.
      case _? where uuid.assignedName != nil: .application
      default: .unknown
      }
    }
  }
  /// Serial Number String, Email Address, First Name, Last Name, Object Name, Bearer Provider Name, Call Friendly Name.
  /// Assigned Numbers, §3.8.
  private static let personalTexts: Set<UInt32> = [0x2A25, 0x2A87, 0x2A8A, 0x2A90, 0x2ABE, 0x2BB3, 0x2BC2]
  /// System ID, which is made of an address; New Alert; Location and Speed, Navigation, Latitude, Longitude; of a user:
  /// Age, Date of Birth, Gender, Height, Weight; calls and who calls; the number of a medical device.
  private static let personalValues: Set<UInt32> = [
    0x2A23, 0x2A46, 0x2A67, 0x2A68, 0x2AAE, 0x2AAF, 0x2A80, 0x2A85, 0x2A8C, 0x2A8E, 0x2A98, 0x2BB9, 0x2BBC, 0x2BBD,
    0x2BBE, 0x2BC1, 0x2BFF,
  ]

  private mutating func attribute(
    _ frame: TraceFrame, _ payload: Span<UInt8>, _ place: ScrubPlace, _ side: Side
  ) {
    let octets = payload.array
    guard let first = octets.first else { return }
    let opcode = ATTOpcode(rawValue: first)
    let asked = pending.handle(frame, payload)
    do throws(WireError) { names.learn(frame, try ATTPDU(payload), in: payload) } catch {}
    for field in finder.find(in: octets, as: .att) {
      let range = field.range
      guard field.kind == .value else {
        // Of a list of handles that is malformed nothing is personal.
        let isList = opcode == ReadMultipleRequest.opcode || opcode == ReadMultipleVariableRequest.opcode
        if field.kind != .opaque || !isList { self.field(field, of: place, header: 1) }
        continue
      }
      var handle = asked, meaning = Meaning.unknown
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
      attribute(meaning, octets, place[range], range, opcode, handle, bearer)
    }
  }
  private mutating func attribute(
    _ meaning: Meaning, _ octets: [UInt8], _ place: ScrubPlace, _ range: Range<Int>, _ opcode: ATTOpcode,
    _ handle: UInt16?, _ bearer: Bearer
  ) {
    let kind: SensitiveField.Kind
    switch meaning {
    case .structure: return
    case .name: kind = .name
    case .address where range.count == 6: kind = .address(isRandom: nil)
    case .address, .personal: kind = .value
    case .application where !scrubsValues:
      fields.append(ScrubField(kind: .open, label: "values of characteristics", place: place))
      return
    case .unknown where keepsUnknown && !scrubsValues:
      return unknown("values of attributes that the trace does not name", place)
    // Replaced, not zeroed: where values were equal, or not, they still are.
    case .application, .unknown: kind = .value
    }
    add(kind, "Attribute Value", place)
    // A long value: what was read of it so far, and the next part.
    let isLater = opcode == ReadBlobResponse.opcode
    guard let handle, isLater || opcode == ReadResponse.opcode else { return }
    let attribute = Attribute(bearer: bearer, handle: handle)
    if isLater { fields[fields.count - 1].prefix = parts[attribute] ?? [] }
    guard parts.count < 4096 || parts[attribute] != nil else { return }
    parts[attribute] = (isLater ? parts[attribute] ?? [] : []) + octets[range]
    if parts[attribute]?.count ?? 0 > 1024 { parts[attribute] = [] }
  }
}

extension ArraySlice<UInt8> {
  fileprivate var array: [UInt8] { Array(self) }
}

// What GATT's layer does not need. Assigned Numbers, §3.8.
extension BluetoothUUID {
  fileprivate static var peripheralPrivacyFlag: Self { .short(0x2A02) }
  fileprivate static var reconnectionAddress: Self { .short(0x2A03) }
  fileprivate static var resolvablePrivateAddressOnly: Self { .short(0x2AC9) }
}
