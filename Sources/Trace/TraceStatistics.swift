import BindruneATT
import BindruneCapture
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// # TraceStatistics
/// **Overview**: counts and times what a trace has of each connection, as a ``TraceSink``:
///
///     var statistics = DissectingSink(TraceStatistics())
///     try file.read(into: &statistics)
///     for link in statistics.sink.connections { print(link.connection, link.frames.fromHost.count) }
///
/// **Function**: like the checker it follows connections on its own and trusts nothing: a trace may begin in the
/// middle. A handle that is used again is another connection. Memory is bounded by ``mostConnections`` and the bounds
/// of ``ConnectionStatistics``.
public struct TraceStatistics: TraceSink, Sendable {
  /// Connections that are counted; the packets of further ones are only numbered.
  public static var mostConnections: Int { 1_024 }
  private static var mostCommands: Int { 256 }

  public private(set) var connections: [ConnectionStatistics] = []
  /// Packets of connections beyond ``mostConnections``.
  public private(set) var uncounted = 0
  public private(set) var records = 0
  /// By H4 packet type and direction; what is no HCI packet is in neither.
  public private(set) var commands = 0, events = 0, data = 0, synchronous = 0, iso = 0
  /// Notes and records of a monitor beside packets; packets from the air.
  public private(set) var notes = 0, linkLayer = 0
  /// Advertising reports in events, each device's counted by itself.
  public private(set) var advertisingReports = 0
  /// From commands to their Command Complete or Command Status events.
  public private(set) var commandTimes = Histogram()
  /// Nanoseconds since 1970 of the first record, and the latest time of any.
  public private(set) var firstTime: Int64?, lastTime: Int64?

  private struct Link: Hashable { var adapter: UInt16, connection: UInt32 }
  /// Places in `connections`.
  private var open: [Link: Int] = [:]
  private struct Command: Hashable { var adapter: UInt16, opcode: UInt16 }
  private var waiting: [Command: Int64] = [:]

  public init() {}

  // MARK: Records

  public mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    records += 1
    if firstTime == nil { firstTime = record.time }
    lastTime = max(lastTime ?? record.time, record.time)
    switch record.content {
    case .packet: packet(record, bytes)
    case .linkLayer(let reception): linkLayer(record, reception, bytes)
    case .monitor(let opcode):
      notes += 1
      // An adapter that is opened or closed has no connections.
      if [.newIndex, .deleteIndex, .openIndex, .closeIndex].contains(opcode) {
        for link in open.keys where link.adapter == record.adapter { close(link) }
      }
    case .note: notes += 1
    }
  }
  private mutating func packet(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    guard bytes.count > 0 else { return }
    switch HCIPacketType(rawValue: bytes[0]) {
    case .command:
      commands += 1
      guard bytes.count >= 3, waiting.count < Self.mostCommands else { return }
      waiting[Command(adapter: record.adapter, opcode: bytes.little16(1))] = record.time
    case .event:
      events += 1
      event(record, bytes)
    case .acl:
      data += 1
      guard let header = ACLHeader(bytes), let place = place(record, UInt32(header.handle.rawValue)) else { return }
      connections[place].saw(record.number, record.time)
      connections[place].packets[record.direction].add(Int(header.dataTotalLength))
      if record.direction == .fromHost { connections[place].send(record.time) }
    case .synchronous: synchronous += 1
    case .iso: iso += 1
    case nil: break
    }
  }

  private mutating func event(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    let event: HCIEvent
    do throws(WireError) { event = try HCIEvent(bytes) } catch { return }
    switch event {
    case .commandComplete(let complete): answered(complete.commandOpcode, record)
    case .commandStatus(let status): answered(status.commandOpcode, record)
    case .leConnectionComplete(let event) where event.status == .success:
      opened(
        record, event.connectionHandle, event.role, event.peerAddress, event.peerAddressType,
        event.connectionInterval, event.peripheralLatency, event.supervisionTimeout)
    case .leEnhancedConnectionComplete(let event) where event.status == .success:
      opened(
        record, event.connectionHandle, event.role, event.peerAddress, event.peerAddressType,
        event.connectionInterval, event.peripheralLatency, event.supervisionTimeout)
    case .disconnectionComplete(let event) where event.status == .success:
      let link = Link(adapter: record.adapter, connection: UInt32(event.connectionHandle.rawValue))
      guard let place = open[link] else { return }
      connections[place].saw(record.number, record.time)
      connections[place].ending = event.reason
      close(link)
    case .leConnectionUpdateComplete(let event) where event.status == .success:
      change(
        record, event.connectionHandle,
        .parameters(
          interval: event.connectionInterval.duration, latency: event.peripheralLatency,
          timeout: event.supervisionTimeout.duration))
    case .leDataLengthChange(let event):
      change(record, event.connectionHandle, .dataLength(tx: event.maxTXOctets, rx: event.maxRXOctets))
    case .lePHYUpdateComplete(let event) where event.status == .success:
      change(record, event.connectionHandle, .phy(tx: event.txPHY, rx: event.rxPHY))
    case .encryptionChange(let event) where event.status == .success:
      change(record, event.connectionHandle, .encryption(event.encryptionEnabled != 0))
    case .encryptionChangeV2(let event) where event.status == .success:
      change(record, event.connectionHandle, .encryption(event.encryptionEnabled != 0))
    case .numberOfCompletedPackets(let event):
      var cursor = event.handles.cursor
      while let entry = cursor.next(in: bytes) {
        let link = Link(adapter: record.adapter, connection: UInt32(entry.connectionHandle.rawValue))
        if let place = open[link] { connections[place].complete(Int(entry.numCompletedPackets), record.time) }
      }
    case .leAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while cursor.next(in: bytes) != nil { advertisingReports += 1 }
    case .leExtendedAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while cursor.next(in: bytes) != nil { advertisingReports += 1 }
    default: break
    }
  }
  private mutating func answered(_ opcode: HCIOpcode, _ record: CaptureRecord) {
    guard
      let begin = waiting.removeValue(forKey: Command(adapter: record.adapter, opcode: opcode.rawValue))
    else { return }
    let (time, overflow) = record.time.subtractingReportingOverflow(begin)
    if !overflow, time >= 0 { commandTimes.add(.nanoseconds(time)) }
  }

  // MARK: Connections

  private mutating func opened(
    _ record: CaptureRecord, _ handle: ConnectionHandle, _ role: LinkRole, _ peer: DeviceAddress,
    _ type: AddressType, _ interval: ConnectionInterval, _ latency: UInt16, _ timeout: SupervisionTimeout
  ) {
    let link = Link(adapter: record.adapter, connection: UInt32(handle.rawValue))
    close(link)
    guard let place = place(record, link.connection) else { return }
    connections[place].role = role
    connections[place].peer = peer
    connections[place].peerType = type
    connections[place].change(
      .parameters(interval: interval.duration, latency: latency, timeout: timeout.duration), record.number, record.time)
  }
  private mutating func close(_ link: Link) {
    guard let place = open.removeValue(forKey: link) else { return }
    connections[place].hints.unanswered += connections[place].asked.count
    connections[place].asked = [:]
    connections[place].sent = []
  }
  private mutating func change(
    _ record: CaptureRecord, _ handle: ConnectionHandle, _ value: ConnectionStatistics.Change.Value
  ) {
    guard let place = place(record, UInt32(handle.rawValue)) else { return }
    connections[place].saw(record.number, record.time)
    connections[place].change(value, record.number, record.time)
  }
  private mutating func place(_ record: CaptureRecord, _ connection: UInt32) -> Int? {
    let link = Link(adapter: record.adapter, connection: connection)
    if let place = open[link] { return place }
    guard connections.count < Self.mostConnections else {
      uncounted += 1
      return nil
    }
    connections.append(
      ConnectionStatistics(
        adapter: record.adapter, connection: connection, number: record.number, time: record.time))
    open[link] = connections.count - 1
    return connections.count - 1
  }

  // MARK: The air

  private mutating func linkLayer(_ record: CaptureRecord, _ reception: LinkLayerReception, _ bytes: Span<UInt8>) {
    linkLayer += 1
    guard !reception.isBroken, let header = LinkLayerHeader(bytes) else { return }
    if header.isAdvertising {
      guard let connect = ConnectIndication(header, bytes) else { return }
      return close(Link(adapter: record.adapter, connection: connect.aa))
    }
    guard !reception.isOutsideConnections, let place = place(record, header.accessAddress) else { return }
    connections[place].saw(record.number, record.time)
    let side = reception.side
    connections[place].packets[side].add(Int(header.length))
    // Without sides the sequence numbers of two senders are one series.
    guard side != nil else { return }
    if connections[place].sequence[side] == header.sn { connections[place].hints.repeated[side] += 1 }
    connections[place].sequence[side] = header.sn
  }

  // MARK: Frames

  public mutating func violation(
    _: L2CAPViolation, _ handle: ConnectionHandle, _: HCIDirection?, of record: CaptureRecord
  ) {
    guard let place = open[Link(adapter: record.adapter, connection: UInt32(handle.rawValue))] else { return }
    connections[place].hints.violations += 1
  }

  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard let place = open[Link(adapter: frame.adapter, connection: frame.connection)] else { return }
    let elapsed = connections[place].elapsed(record.time)
    connections[place].frames[frame.direction].add(frame.length)
    connections[place].throughput[frame.direction].add(frame.length, at: elapsed)
    switch frame.channel {
    case .attribute where payload.count > 0:
      count(place, .att, UInt16(payload[0]), frame, frame.length)
      attribute(place, frame, payload, record)
    case .securityManager where payload.count > 0: count(place, .smp, UInt16(payload[0]), frame, frame.length)
    case .leSignaling, .classicSignaling: signals(place, frame, payload, record)
    default:
      // Of a bearer its PDUs are counted.
      if frame.bearer == nil { count(place, .l2cap, frame.channel.rawValue, frame, frame.length) }
      if let direction = frame.direction { connections[place].book.frame(frame, payload, direction, record) }
    }
  }
  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    guard !pdu.isEmpty, let place = open[Link(adapter: frame.adapter, connection: frame.connection)] else { return }
    count(place, .att, UInt16(pdu[0]), frame, frame.length)
    attribute(place, frame, pdu, record)
  }
  private mutating func count(_ place: Int, _ layer: TraceLayer, _ number: UInt16, _ frame: TraceFrame, _ octets: Int) {
    connections[place].count(
      ConnectionStatistics.Kind(layer: layer, number: number, direction: frame.direction), octets)
  }
  /// A frame of the signaling channel has several commands on BR/EDR, one on LE. Vol 3, Part A, §4.
  private mutating func signals(
    _ place: Int, _ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord
  ) {
    var at = 0
    while at < payload.count {
      let count = payload.signalCount(at: at)
      self.count(place, .sig, UInt16(payload[at]), frame, count)
      if frame.channel == .leSignaling, let direction = frame.direction {
        connections[place].book.signal(payload.extracting(at..<at + count), direction, record)
      }
      at += count
    }
  }
  private mutating func attribute(
    _ place: Int, _ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord
  ) {
    let opcode = ATTOpcode(rawValue: payload[0])
    // Without directions the sides of a question and its answer are one.
    let other: HCIDirection? = frame.direction.map { $0 == .fromHost ? .fromController : .fromHost }
    switch opcode.kind {
    case .request:
      connections[place].ask(.init(isIndication: false, asker: frame.direction), on: frame.bearer, record.time)
    case .response: connections[place].answer(.init(isIndication: false, asker: other), on: frame.bearer, record.time)
    case .indication:
      connections[place].ask(.init(isIndication: true, asker: frame.direction), on: frame.bearer, record.time)
    case .confirmation:
      connections[place].answer(.init(isIndication: true, asker: other), on: frame.bearer, record.time)
    case .command, .notification, nil: break
    }
    // Both sides have at least 23. Vol 3, Part F, §3.4.2. An enhanced bearer has its channel's.
    guard payload.count >= 3, frame.channel == .attribute else { return }
    if opcode == ExchangeMTURequest.opcode { connections[place].clientMTU = max(23, Int(payload.little16(1))) }
    if opcode == ExchangeMTUResponse.opcode, let client = connections[place].clientMTU {
      let mtu = min(client, max(23, Int(payload.little16(1))))
      connections[place].attMTU = mtu
      connections[place].change(.mtu(mtu), record.number, record.time)
    }
  }

  /// The end: what still waits has no answer.
  public mutating func pause() {
    for link in Array(open.keys) {
      guard let place = open[link] else { continue }
      connections[place].hints.unanswered += connections[place].asked.count
      connections[place].asked = [:]
    }
  }
}
