import BindruneATT
import BindruneCapture
import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneL2CAP

/// # AirMonitor
/// **Overview**: what a trace says about the air now: who advertises, which links there are and with what parameters,
/// how many packets each layer has a second, how much waits in the controller, and the values of attributes. As a
/// ``TraceSink``:
///
///     var monitor = DissectingSink(AirMonitor())
///     try file.read(into: &monitor)
///     for link in monitor.sink.links { print(link.connection, link.mtu ?? 23) }
///
/// **Function**: its time is that of the records, so that a recording and a running host look the same. A clock that is
/// set back stands still here. Only what the trace shows is known: a trace that begins in the middle leaves fields nil.
///
/// Memory is bounded by the constants below: a new device or value replaces the one silent for longest, a new link one
/// that has ended.
public struct AirMonitor: TraceSink {
  public static var mostDevices: Int { 1_024 }
  public static var mostLinks: Int { 512 }
  public static var mostValues: Int { 1_024 }
  /// Octets that are kept of a value.
  public static var mostOctets: Int { 64 }
  /// Changes that wait for ``takeChanges()``; further ones are dropped.
  public static var mostChanges: Int { 10_000 }
  static var mostAdapters: Int { 64 }

  /// Records so far, of all kinds.
  public private(set) var records = 0
  /// Nanoseconds since the first record.
  public private(set) var now: Int64 = 0
  /// Nanoseconds since 1970 of the first record; nil: there was none.
  public private(set) var start: Int64?
  public private(set) var adapters: [AirAdapter] = []
  /// Links that exist or have ended, the newest last.
  public internal(set) var links: [AirLink] = []

  struct ValueKey: Hashable {
    var adapter: UInt16, connection: UInt32, side: TraceNames.ServerSide, handle: UInt16
  }
  private var totals = [Int](repeating: 0, count: AirLayer.allCases.count)
  private var rates = [SecondSeries](repeating: SecondSeries(), count: AirLayer.allCases.count)
  private var found: [UInt64: AirDevice] = [:]
  private var places = 0
  var known: [ValueKey: AirValue] = [:]
  var names = TraceNames()
  var pending = PendingHandles()
  /// Who answers a request, and on which bearer.
  struct AskedKey: Hashable {
    var adapter: UInt16, connection: UInt32, side: TraceNames.ServerSide, bearer: ChannelID?
  }
  /// Writes without a response yet.
  var writes: [AskedKey: (key: ValueKey, octets: [UInt8], length: Int)] = [:]
  private let keepsChanges: Bool
  private var changes: [AirChange] = []

  /// `keepsChanges`: ``takeChanges()`` will be called.
  public init(keepsChanges: Bool = false) { self.keepsChanges = keepsChanges }

  // MARK: Questions

  /// The second of ``now``, from 0.
  public var second: Int { Int(now / 1_000_000_000) }
  /// Nanoseconds since the first record, for nanoseconds since 1970.
  public func elapsed(_ time: Int64) -> Int64 {
    let (difference, overflow) = time.subtractingReportingOverflow(start ?? time)
    return overflow ? now : max(now, difference)
  }
  public func total(_ layer: AirLayer) -> Int { totals[layer.index] }
  public func rate(_ layer: AirLayer) -> SecondSeries { rates[layer.index] }
  /// In the order of discovery.
  public var devices: [AirDevice] { found.values.sorted { $0.place < $1.place } }
  /// By link and handle.
  public var values: [AirValue] {
    known.values.sorted {
      ($0.adapter, $0.connection, $0.side == .host ? 1 : 0, $0.handle)
        < ($1.adapter, $1.connection, $1.side == .host ? 1 : 0, $1.handle)
    }
  }
  /// The name that the peer of a link has advertised.
  public func name(of link: AirLink) -> String? {
    guard let peer = link.peer, let type = link.peerType else { return nil }
    return found[Self.key(peer, type)]?.name
  }
  /// What changed since the last call, in order.
  public mutating func takeChanges() -> [AirChange] {
    defer { changes.removeAll(keepingCapacity: true) }
    return changes
  }

  // MARK: Records

  /// Time goes on without a record, to this many nanoseconds since the first one.
  public mutating func advance(to elapsed: Int64) {
    if start != nil { now = max(now, elapsed) }
  }

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    if start == nil { start = record.time }
    now = elapsed(record.time)
    records += 1
    switch record.content {
    case .packet:
      guard bytes.count > 0 else { return }
      names.learn(record, bytes)
      switch HCIPacketType(rawValue: bytes[0]) {
      case .command: count(.command)
      case .event: event(record, bytes)
      case .acl: data(record, bytes)
      case .synchronous, .iso, nil: break
      }
    case .linkLayer: linkLayer(record, bytes)
    case .monitor, .note: break
    }
  }

  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    count(.l2cap)
    if frame.direction == nil, record.content != .packet, let place = link(record.adapter, frame.connection) {
      links[place].received += 1
      links[place].packets.add(1, at: second)
    }
    switch frame.channel {
    case .attribute:
      count(.att)
      if frame.isWhole { attribute(frame, payload) }
    case .leSignaling:
      count(.signaling)
      if frame.isWhole { signal(frame, payload, record) }
    case .classicSignaling: count(.signaling)
    case .securityManager: count(.smp)
    default: channelFrame(frame, payload, record)
    }
  }
  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    count(.att)
    if frame.isWhole { attribute(frame, pdu) }
  }

  public mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {}

  mutating func count(_ layer: AirLayer) {
    totals[layer.index] += 1
    rates[layer.index].add(1, at: second)
  }
  mutating func note(_ kind: AirChange.Kind) {
    guard keepsChanges, changes.count < Self.mostChanges else { return }
    changes.append(AirChange(time: now, kind: kind))
  }

  /// The place in ``adapters``; nil: there are too many.
  mutating func adapter(_ number: UInt16) -> Int? {
    if let place = adapters.firstIndex(where: { $0.number == number }) { return place }
    guard adapters.count < Self.mostAdapters else { return nil }
    adapters.append(AirAdapter(number))
    return adapters.count - 1
  }
  mutating func change(_ adapter: Int, _ body: (inout AirAdapter) -> Void) { body(&adapters[adapter]) }

  // MARK: Advertisers

  private static func key(_ address: DeviceAddress, _ type: AddressType) -> UInt64 {
    // A controller that has resolved an address reports the identity's type.
    address.value | UInt64(type.rawValue & 1) << 48 | (type == .anonymous ? 1 << 49 : 0)
  }

  /// `rssi`: in dBm; 127: not known. Vol 4, Part E, §7.7.65.2.
  mutating func heard(
    _ address: DeviceAddress, _ type: AddressType, rssi: Int8, _ data: Octets, _ bytes: Span<UInt8>
  ) {
    count(.advertising)
    let key = Self.key(address, type)
    var device: AirDevice
    // Taken out, so that its series is changed in place.
    if let before = found.removeValue(forKey: key) {
      device = before
    } else {
      if found.count == Self.mostDevices,
        let oldest = found.min(by: { ($0.value.lastHeard, $0.value.place) < ($1.value.lastHeard, $1.value.place) })
      {
        found[oldest.key] = nil
      }
      places += 1
      device = AirDevice(address: address, type: type, place: places)
    }
    let name = device.name
    var cursor = ADCursor(data)
    while let structure = cursor.next(in: bytes) {
      let isComplete = structure.type == .completeLocalName
      guard isComplete || (structure.type == .shortenedLocalName && !device.hasCompleteName) else { continue }
      device.name = String(decoding: structure.data.array(in: bytes), as: UTF8.self)
      device.hasCompleteName = isComplete
    }
    device.rssi = rssi == 127 ? nil : Int(rssi)
    if rssi != 127 { device.strengths.add(Int(rssi), at: second) }
    device.reports += 1
    device.lastHeard = now
    if device.reports == 1 || device.name != name { note(.device(device)) }
    found[key] = device
  }

  // MARK: The link layer

  /// Advertising PDUs. Vol 6, Part B, §2.3.
  private mutating func linkLayer(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    count(.linkLayer)
    guard case .linkLayer(let reception) = record.content, !reception.isBroken else { return }
    let rssi = reception.rssi ?? 127
    guard let header = LinkLayerHeader(bytes), header.isAdvertising, let payload = header.payload(in: bytes) else {
      return
    }
    switch header.pduType {
    case .advInd, .advNonconnInd, .scanRsp, .advScanInd:
      guard let found = AdvertisingPayload(bytes, at: payload) else { return }
      heard(found.advA, header.txAdd ? .random : .public, rssi: rssi, found.advData, bytes)
    case .advDirectInd:
      guard let found = DirectedPayload(bytes, at: payload) else { return }
      heard(found.advA, header.txAdd ? .random : .public, rssi: rssi, Octets(), bytes)
    case .extended:
      guard let found = ExtendedPayload(bytes, at: payload), found.hasAdvA else { return }
      heard(found.advA, header.txAdd ? .random : .public, rssi: rssi, found.advData, bytes)
    case .connectInd:
      guard let connect = ConnectIndication(header, bytes) else { return }
      var link = AirLink(adapter: record.adapter, connection: connect.aa)
      link.isLE = true
      link.peer = connect.advA
      link.peerType = header.rxAdd ? .random : .public
      link.interval = connect.interval
      link.latency = connect.latency
      link.supervisionTimeout = connect.timeout
      (link.mtu, link.isFromStart) = (Bearer.defaultMTU, true)
      (link.txPHY, link.rxPHY) = (.le1M, .le1M)
      open(link)
    default: break
    }
  }
}

extension AirLayer {
  fileprivate var index: Int {
    switch self {
    case .command: 0
    case .event: 1
    case .dataSent: 2
    case .dataReceived: 3
    case .advertising: 4
    case .l2cap: 5
    case .signaling: 6
    case .att: 7
    case .smp: 8
    case .linkLayer: 9
    }
  }
}
