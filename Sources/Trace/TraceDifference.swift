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
/// A packet is kept as its record number and a hash of 64 bits: 16 octets. Packets belong to streams, such as the PDUs
/// of one protocol in one direction of a connection: correct runs may differ in how streams interleave.
public struct TraceOutline: TraceSink, Sendable {
  /// Addresses and connections that are told apart.
  static var most: Int { 65_536 }

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
    var number: Int
    var hash: UInt64
  }
  public let free: Set<TraceFreedom>
  var streams: [Stream: [Packet]] = [:]
  /// Packets that are not compared, because their number is a matter of time.
  public private(set) var ignored = 0
  public private(set) var records = 0

  private struct Link: Hashable { var adapter: UInt16, connection: UInt32 }
  private var adapters: [UInt16: Int] = [:]
  private var links: [Link: Int] = [:]
  private var linkCount = 0
  private var addresses: [[UInt8]: Int] = [:]
  private var start: Int64?
  private var finder = SensitiveFinder(findsHandles: true)

  public init(free: Set<TraceFreedom> = TraceFreedom.usual) { self.free = free }

  // MARK: TraceSink

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    records += 1
    if start == nil { start = record.time }
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
      case .leConnectionComplete(let event) where event.status == .success: open(record, event.connectionHandle)
      case .leEnhancedConnectionComplete(let event) where event.status == .success:
        open(record, event.connectionHandle)
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
    add([], nil, record, UInt32(handle.rawValue), "broken fragments", direction)
  }

  // MARK: Ordinals

  private mutating func open(_ record: CaptureRecord, _ handle: ConnectionHandle) {
    linkCount += 1
    links[Link(adapter: record.adapter, connection: UInt32(handle.rawValue))] = linkCount
  }
  private mutating func ordinal(_ record: CaptureRecord, _ connection: UInt32) -> Int {
    if !free.contains(.handles) { return Int(connection) }
    let link = Link(adapter: record.adapter, connection: connection)
    if let known = links[link] { return known }
    guard links.count < Self.most else { return 0 }
    linkCount += 1
    links[link] = linkCount
    return linkCount
  }
  private mutating func ordinal(_ adapter: UInt16) -> Int {
    if !free.contains(.handles) { return Int(adapter) }
    if let known = adapters[adapter] { return known }
    guard adapters.count < Self.most else { return 0 }
    adapters[adapter] = adapters.count + 1
    return adapters.count
  }
  private mutating func ordinal(_ address: [UInt8]) -> Int {
    if address.allSatisfy({ $0 == 0 }) || address.allSatisfy({ $0 == 0xFF }) { return Int(address[0]) }
    if let known = addresses[address] { return 256 + known }
    guard addresses.count < Self.most else { return 0 }
    addresses[address] = addresses.count + 1
    return 256 + addresses.count
  }

  // MARK: Packets

  private mutating func add(
    _ octets: [UInt8], _ form: Explanation.Form?, _ record: CaptureRecord, _ connection: UInt32?, _ name: String,
    _ direction: HCIDirection? = nil
  ) {
    let link = connection.map { ordinal(record, $0) } ?? 0
    var hash = Hash()
    hash.add(UInt64(octets.count))
    var octets = octets
    var fields: [SensitiveField] = []
    if let form { fields = finder.find(in: octets, as: form) }
    for field in fields {
      // What stands in the place of a free field.
      let number: Int
      switch field.kind {
      case .address where free.contains(.addresses): number = ordinal(Array(octets[field.range]))
      case .handle where free.contains(.handles) && field.range.count == 2:
        number = ordinal(record, UInt32(octets.span.little16(field.range.lowerBound) & 0x0FFF))
        // Above a handle are flags.
        octets[field.range.lowerBound] = 0
        octets[field.range.lowerBound + 1] &= 0xF0
        hash.add(UInt64(number))
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
    streams[stream, default: []].append(Packet(number: record.number, hash: hash.value))
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

/// Where two traces part.
public struct TraceDifference: Sendable {
  /// The first packet of a stream that differs; nil: the stream has ended there.
  public struct Place: Sendable {
    public var stream: TraceOutline.Stream
    public var first: Int?
    public var second: Int?
    /// Packets of the stream that are equal before it.
    public var equal: Int
  }
  /// A place for each stream that differs, in the order of the traces.
  public let places: [Place]
  /// Packets that are equal, up to the places, and packets of the longer of each two streams.
  public let equal: Int, compared: Int
  public let ignored: (Int, Int)
  public var isEqual: Bool { places.isEmpty }

  public init(_ one: TraceOutline, _ other: TraceOutline) {
    var places: [Place] = [], equal = 0, compared = 0
    for stream in Set(one.streams.keys).union(other.streams.keys) {
      let a = one.streams[stream] ?? [], b = other.streams[stream] ?? []
      let same = zip(a, b).prefix { $0.hash == $1.hash }.count
      equal += same
      compared += max(a.count, b.count)
      if same == a.count, same == b.count { continue }
      places.append(
        Place(
          stream: stream, first: same < a.count ? a[same].number : nil, second: same < b.count ? b[same].number : nil,
          equal: same))
    }
    func order(_ place: Place) -> (Int, String) {
      (min(place.first ?? .max, place.second ?? .max), place.stream.description)
    }
    self.places = places.sorted { order($0) < order($1) }
    (self.equal, self.compared, ignored) = (equal, compared, (one.ignored, other.ignored))
  }
}
