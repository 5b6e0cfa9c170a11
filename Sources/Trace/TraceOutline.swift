import BindruneATT
import BindruneCapture
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// What may differ between two runs of the same thing.
public enum TraceFreedom: String, Sendable, CaseIterable {
  /// Device addresses, if each of one trace always stands for the same one of the other.
  case addresses
  /// Connection handles and adapters, if each of one trace always stands for the same one of the other.
  case handles
  /// What chance makes: keys, Rand, EDIV, Random and Confirm values, check values, public keys, signatures, RSSI.
  case random
  /// When a packet came, in which order packets of different streams did, and how many there are of what time alone
  /// makes: advertising reports and Number Of Completed Packets events.
  case times
  /// Octets of attribute values and of advertised data.
  case values
  /// All but ``values``.
  public static var usual: Set<TraceFreedom> { [.addresses, .handles, .random, .times] }
}

/// The packets of a trace in a form that two runs of the same thing share, as a ``TraceSink``:
///
///     var one = DissectingSink(TraceOutline()), other = DissectingSink(TraceOutline())
///     try first.read(into: &one)
///     try second.read(into: &other)
///     let difference = TraceDifference(one.sink, other.sink)
///
/// A packet is kept as its record number, a hash of 64 bits, and which devices and connections it names: 16 octets.
/// Packets belong to streams, such as the PDUs of one protocol in one direction of a connection: correct runs may
/// differ in how streams interleave.
public struct TraceOutline: TraceSink, Sendable {
  /// Addresses and connections that are told apart.
  static var most: Int { 65_536 }
  /// Packets that are kept; further ones are only counted.
  public static var mostPackets: Int { 4 << 20 }

  /// A sequence of packets whose order counts.
  public struct Stream: Hashable, Sendable, CustomStringConvertible {
    /// Ordinal numbers, from 1, in the order of the trace. 0: no connection.
    var adapter: Int, link: Int
    var name: String
    public var description: String {
      (adapter > 1 ? "adapter \(adapter), " : "") + (link > 0 ? "connection \(link), " : "") + name
    }
  }
  struct Packet: Sendable {
    var hash: UInt64
    var number: UInt32
    /// The place in `references` of what it names; 0: nothing that is free.
    var names: UInt32
  }
  /// What stands in the place of a free field: a connection, an address, or an adapter, by its ordinal number.
  struct Reference: Hashable, Sendable {
    enum Kind: Sendable { case connection, address }
    var kind: Kind
    var ordinal: Int
  }
  /// A connection of the trace.
  public struct Connection: Sendable {
    /// From 1, in the order of the trace; with bound handles the handle.
    public var ordinal: Int
    /// nil: the trace does not show the beginning.
    public var role: LinkRole?
    public var peer: DeviceAddress?
    public var firstRecord: Int
    /// Its address's ordinal number; with bound addresses none.
    var address: Int?
  }
  public let free: Set<TraceFreedom>
  var streams: [Stream: [Packet]] = [:]
  /// Packets that are not compared, because their number is a matter of time.
  public private(set) var ignored = 0
  public private(set) var records = 0
  /// Packets whose contents the trace does not show: encrypted, cut by the recorder, or fragments without their frame.
  public private(set) var encrypted = 0, cut = 0, broken = 0
  /// Records that are missing; packets beyond ``mostPackets``; advertising from the air, which is not compared.
  public private(set) var missing = 0, notKept = 0, advertising = 0
  public private(set) var connections: [Connection] = []
  /// Lists of references; the first one is empty.
  private(set) var references: [[Reference]] = [[]]
  private var places: [[Reference]: UInt32] = [[]: 0]
  private var kept = 0

  private struct Link: Hashable { var adapter: UInt16, connection: UInt32 }
  private var adapters: [UInt16: Int] = [:]
  private var links: [Link: Int] = [:]
  private var addresses: [[UInt8]: Int] = [:]
  private var start: Int64?
  private var finder = SensitiveFinder(findsHandles: true)

  public init(free: Set<TraceFreedom> = TraceFreedom.usual) { self.free = free }

  // MARK: TraceSink

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    records += 1
    if start == nil { start = record.time }
    missing += Int(record.missingBefore)
    if record.isCut { cut += 1 }
    if case .linkLayer = record.content, LinkLayerHeader(bytes)?.isAdvertising == true { advertising += 1 }
    guard case .packet = record.content, bytes.count > 0 else { return }
    let octets = bytes.array
    switch HCIPacketType(rawValue: bytes[0]) {
    case .acl: return  // its frames are compared
    case .command: add(octets, .hci, record, nil, "commands")
    case .event: event(octets, record)
    case .synchronous: data(octets, record, "synchronous data")
    case .iso: data(octets, record, "isochronous data")
    case nil: add(octets, .hci, record, nil, "unknown packets", record.direction)
    }
  }
  private mutating func data(_ octets: [UInt8], _ record: CaptureRecord, _ name: String) {
    let handle = DataHandle(octets.span)?.handle.rawValue ?? 0
    add(octets, .hci, record, UInt32(handle), name, record.direction)
  }
  /// Their number is a matter of time.
  private static let timed: Set<EventName> = [
    EventName(of: NumberOfCompletedPackets.self), EventName(of: LEAdvertisingReport.self),
    EventName(of: LEDirectedAdvertisingReport.self), EventName(of: LEExtendedAdvertisingReport.self),
    EventName(le: 0x0F),  // LE Periodic Advertising Report
  ]
  private mutating func event(_ octets: [UInt8], _ record: CaptureRecord) {
    guard let kind = EventName(octets.span) else { return add(octets, .hci, record, nil, "events") }
    if free.contains(.times), Self.timed.contains(kind) {
      ignored += 1
      return
    }
    var handle: UInt32?
    do throws(WireError) {
      let event = try HCIEvent(octets.span)
      handle = event.connectionHandle.map { UInt32($0.rawValue) }
      switch event {
      // The handle stands for another connection from here on.
      case .leConnectionComplete(let event) where event.status == .success:
        open(record, event.connectionHandle, event.role, event.peerAddress)
      case .leEnhancedConnectionComplete(let event) where event.status == .success:
        open(record, event.connectionHandle, event.role, event.peerAddress)
      default: break
      }
    } catch {}
    // Answers of commands and other events have no order between them.
    let isAnswer = kind == EventName(of: CommandComplete.self) || kind == EventName(of: CommandStatus.self)
    add(octets, .hci, record, isAnswer ? nil : handle, isAnswer ? "answers of commands" : "events")
  }

  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    let form: Explanation.Form?, name: String
    switch frame.channel {
    case .attribute: (form, name) = (.att, Self.name(payload))
    case .securityManager: (form, name) = (.smp, "SMP")
    case .leSignaling: (form, name) = (.signaling, "signaling")
    default:
      // The bearer's PDUs are compared, not how they were cut.
      if frame.bearer != nil { return }
      (form, name) = (nil, frame.channel.name ?? "channel \(frame.channel.text)")
    }
    add(payload.array, form, record, frame.connection, name, frame.direction)
  }
  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    let bearer = frame.bearer.map { " of bearer \($0.text)" } ?? ""
    add(pdu.array, .att, record, frame.connection, Self.name(pdu) + bearer, frame.direction)
  }
  /// A server's values come when they come, between its responses.
  private static func name(_ pdu: Span<UInt8>) -> String {
    switch pdu.isEmpty ? nil : ATTOpcode(rawValue: pdu[0]).kind {
    case .notification, .indication: "ATT notifications and indications"
    case .command: "ATT commands"
    case .response: "ATT responses"
    case .request, nil: "ATT requests"
    case .confirmation: "ATT confirmations"
    }
  }
  public mutating func violation(
    _: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {
    broken += 1
    add([], nil, record, UInt32(handle.rawValue), "broken fragments", direction)
  }
  /// The trace has been read: `count` packets from the air were encrypted, see ``Dissector/encryptedCount``.
  public mutating func end(encrypted count: Int) { encrypted = count }

  // MARK: Ordinals

  private mutating func open(
    _ record: CaptureRecord, _ handle: ConnectionHandle, _ role: LinkRole, _ peer: DeviceAddress
  ) {
    let octets = (0..<6).map { UInt8(truncatingIfNeeded: peer.value >> (8 * $0)) }
    let address = free.contains(.addresses) ? ordinal(octets) : nil
    guard free.contains(.handles) else {
      if !connections.contains(where: { $0.ordinal == Int(handle.rawValue) }), connections.count < Self.most {
        connections.append(
          Connection(
            ordinal: Int(handle.rawValue), role: role, peer: peer, firstRecord: record.number, address: address))
      }
      return
    }
    let link = Link(adapter: record.adapter, connection: UInt32(handle.rawValue))
    guard connections.count < Self.most else {
      links[link] = nil
      return
    }
    connections.append(
      Connection(
        ordinal: connections.count + 1, role: role, peer: peer, firstRecord: record.number, address: address))
    links[link] = connections.count
  }
  private mutating func ordinal(_ record: CaptureRecord, _ connection: UInt32) -> Int {
    if !free.contains(.handles) { return Int(connection) }
    let link = Link(adapter: record.adapter, connection: connection)
    if let known = links[link] { return known }
    guard connections.count < Self.most else { return 0 }
    connections.append(Connection(ordinal: connections.count + 1, firstRecord: record.number))
    links[link] = connections.count
    return connections.count
  }
  private mutating func ordinal(_ adapter: UInt16) -> Int {
    if !free.contains(.handles) { return Int(adapter) }
    if let known = adapters[adapter] { return known }
    guard adapters.count < Self.most else { return 0 }
    adapters[adapter] = adapters.count + 1
    return adapters.count
  }
  /// nil: no device's address, or one too many.
  private mutating func ordinal(_ address: [UInt8]) -> Int? {
    if address.allSatisfy({ $0 == 0 }) || address.allSatisfy({ $0 == 0xFF }) { return nil }
    if let known = addresses[address] { return known }
    guard addresses.count < Self.most else { return nil }
    addresses[address] = addresses.count + 1
    return addresses.count
  }
  /// The place of a list of references.
  private mutating func place(of names: [Reference]) -> UInt32 {
    if let known = places[names] { return known }
    guard references.count < Self.most else { return 0 }
    references.append(names)
    places[names] = UInt32(references.count - 1)
    return UInt32(references.count - 1)
  }

  // MARK: Packets

  private mutating func add(
    _ octets: [UInt8], _ form: Explanation.Form?, _ record: CaptureRecord, _ connection: UInt32?, _ name: String,
    _ direction: HCIDirection? = nil
  ) {
    guard kept < Self.mostPackets else {
      notKept += 1
      return
    }
    kept += 1
    let link = connection.map { ordinal(record, $0) } ?? 0
    var hash = Hash(), names: [Reference] = []
    hash.add(UInt64(octets.count))
    var octets = octets
    var fields: [SensitiveField] = []
    if let form { fields = finder.find(in: octets, as: form) }
    for field in fields {
      // What stands in the place of a free field.
      let number: Int
      switch field.kind {
      case .address where free.contains(.addresses):
        guard let ordinal = ordinal(Array(octets[field.range])) else { continue }
        names.append(Reference(kind: .address, ordinal: ordinal))
        number = 1
      case .handle where free.contains(.handles) && field.range.count == 2:
        let handle = UInt32(octets.span.little16(field.range.lowerBound) & 0x0FFF)
        names.append(Reference(kind: .connection, ordinal: ordinal(record, handle)))
        // Above a handle are flags.
        octets[field.range.lowerBound] = 0
        octets[field.range.lowerBound + 1] &= 0xF0
        continue
      case .keyIdentifier where free.contains(.random): number = octets[field.range].allSatisfy { $0 == 0 } ? 0 : 1
      case .key, .pairingRandom, .confirm, .check, .publicKey, .signature, .signalStrength:
        if !free.contains(.random) { continue }
        number = 0
      case .value:
        if !free.contains(.values) { continue }
        number = 0
      default: continue
      }
      for index in field.range { octets[index] = 0 }
      hash.add(UInt64(number))
    }
    hash.add(octets)
    let side = direction == nil ? "" : direction == .fromHost ? " from the host" : " to the host"
    var stream = Stream(adapter: ordinal(record.adapter), link: link, name: name + side)
    if !free.contains(.times) {
      hash.add(UInt64(bitPattern: record.time.subtractingReportingOverflow(start ?? 0).partialValue))
      stream = Stream(adapter: 0, link: 0, name: "all packets")
    }
    streams[stream, default: []].append(
      Packet(hash: hash.value, number: UInt32(clamping: record.number), names: place(of: names)))
  }

  /// FNV-1a, of 64 bits. https://www.ietf.org/archive/id/draft-eastlake-fnv-21.html
  private struct Hash {
    private(set) var value: UInt64 = 0xCBF2_9CE4_8422_2325
    mutating func add(_ number: UInt64) {
      for place in 0..<8 { add(octet: UInt8(truncatingIfNeeded: number >> UInt64(8 * place))) }
    }
    mutating func add(_ octets: [UInt8]) { for octet in octets { add(octet: octet) } }
    private mutating func add(octet: UInt8) { value = (value ^ UInt64(octet)) &* 0x0000_0100_0000_01B3 }
  }
}
