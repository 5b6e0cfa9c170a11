import BindruneATT
import BindruneCapture
import BindruneWire
import BindruneHCI
import BindruneL2CAP

// HCI packets: links and their parameters, and what the controller can take.

extension AirMonitor {
  // MARK: Data

  mutating func data(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    count(record.direction == .fromHost ? .dataSent : .dataReceived)
    guard let header = ACLHeader(bytes), let adapter = adapter(record.adapter) else { return }
    if record.direction == nil { change(adapter) { $0.knowsDirections = false } }
    guard let place = link(record.adapter, UInt32(header.handle.rawValue)) else { return }
    if record.direction == nil { links[place].countsWaiting = false }
    if record.direction == .fromHost {
      links[place].sent += 1
      links[place].waiting += 1
    } else {
      links[place].received += 1
    }
    links[place].packets.add(1, at: second)
    updateBuffers(adapter)
  }

  /// The existing link with this handle: a trace that begins in the middle does not show its beginning. nil: there are
  /// too many.
  mutating func link(_ adapter: UInt16, _ connection: UInt32) -> Int? {
    if let place = existing(adapter, connection) { return place }
    return open(AirLink(adapter: adapter, connection: connection))
  }
  private func existing(_ adapter: UInt16, _ connection: UInt32) -> Int? {
    links.lastIndex { $0.connection == connection && $0.adapter == adapter && $0.ended == nil }
  }
  @discardableResult mutating func open(_ link: AirLink) -> Int? {
    var link = link
    link.opened = now
    // Its beginning shows the end of one before, which the trace lacks.
    if let before = existing(link.adapter, link.connection) { end(before, nil) }
    if links.count == Self.mostLinks {
      guard let oldest = links.firstIndex(where: { $0.ended != nil }) else { return nil }
      links.remove(at: oldest)
    }
    // The handle has another device behind it now.
    known = known.filter { $0.key.adapter != link.adapter || $0.key.connection != link.connection }
    links.append(link)
    note(.opened(link))
    return links.count - 1
  }
  private mutating func end(_ place: Int, _ reason: HCIStatus?) {
    links[place].ended = now
    links[place].reason = reason
    // The controller discards what it holds. Vol 4, Part E, §4.1.1.
    links[place].waiting = 0
    note(.ended(links[place]))
  }

  /// Packets in the controller's buffers for LE data.
  private mutating func updateBuffers(_ adapter: Int) {
    let controller = adapters[adapter]
    var used = 0, isKnown = controller.knowsDirections
    for link in links where link.adapter == controller.number && link.ended == nil {
      // Buffers of BR/EDR are their own unless LE shares them.
      if link.isLE == false, !controller.sharesBuffers { continue }
      used += link.waiting
      if !link.isFromStart { isKnown = false }
    }
    change(adapter) { $0.used = isKnown ? used : nil }
  }

  // MARK: Events

  mutating func event(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    count(.event)
    guard !record.isCut, let adapter = adapter(record.adapter) else { return }
    let event: HCIEvent
    do throws(WireError) { event = try HCIEvent(bytes) } catch { return }
    switch event {
    case .commandComplete(let event): complete(adapter, event, bytes)
    case .commandStatus(let status): change(adapter) { $0.commandCredits = Int(status.numHCICommandPackets) }
    case .numberOfCompletedPackets(let event):
      var cursor = event.handles.cursor
      while let entry = cursor.next(in: bytes) {
        guard let place = existing(record.adapter, UInt32(entry.connectionHandle.rawValue)) else { continue }
        links[place].waiting = max(0, links[place].waiting - Int(entry.numCompletedPackets))
      }
      updateBuffers(adapter)
    case .disconnectionComplete(let event) where event.status == .success:
      if let place = existing(record.adapter, UInt32(event.connectionHandle.rawValue)) { end(place, event.reason) }
      updateBuffers(adapter)
    case .leConnectionComplete, .leEnhancedConnectionComplete, .unknownLE:
      if let new = ReportedConnection(event, bytes) { connected(record.adapter, new) }
    case .unknown:
      guard let new = ClassicConnectionComplete(event, bytes), new.status == .success else { return }
      var link = AirLink(adapter: record.adapter, connection: UInt32(new.connectionHandle.rawValue))
      (link.isLE, link.peer, link.peerType) = (false, new.bdADDR, .public)
      (link.isFromStart, link.countsWaiting) = (true, true)
      open(link)
    case .leConnectionUpdateComplete(let event) where event.status == .success:
      update(record, event.connectionHandle, .parameters) {
        ($0.interval, $0.latency) = (event.connectionInterval, event.peripheralLatency)
        $0.supervisionTimeout = event.supervisionTimeout
      }
    case .lePHYUpdateComplete(let event) where event.status == .success:
      update(record, event.connectionHandle, .phy) { ($0.txPHY, $0.rxPHY) = (event.txPHY, event.rxPHY) }
    case .leDataLengthChange(let event):
      update(record, event.connectionHandle, .dataLength) {
        ($0.maxTXOctets, $0.maxRXOctets) = (Int(event.maxTXOctets), Int(event.maxRXOctets))
      }
    case .encryptionChange(let event) where event.status == .success:
      update(record, event.connectionHandle, .encryption) { $0.isEncrypted = event.encryptionEnabled != 0 }
    case .encryptionChangeV2(let event) where event.status == .success:
      update(record, event.connectionHandle, .encryption) { $0.isEncrypted = event.encryptionEnabled != 0 }
    case .leAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while let report = cursor.next(in: bytes) {
        heard(report.address, report.addressType, rssi: report.rssi, report.data, bytes)
      }
    case .leExtendedAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while let report = cursor.next(in: bytes) {
        heard(report.address, report.addressType, rssi: report.rssi, report.data, bytes)
      }
    case .leDirectedAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while let report = cursor.next(in: bytes) {
        heard(report.address, report.addressType, rssi: report.rssi, Octets(0, 0), bytes)
      }
    default: break
    }
  }

  private mutating func update(
    _ record: CaptureRecord, _ handle: ConnectionHandle, _ field: AirChange.LinkField, _ body: (inout AirLink) -> Void
  ) {
    guard let place = link(record.adapter, UInt32(handle.rawValue)) else { return }
    body(&links[place])
    links[place].isLE = links[place].isLE ?? true
    note(.changed(links[place], field))
  }

  private mutating func connected(_ adapter: UInt16, _ new: ReportedConnection) {
    guard new.status == .success else { return }
    var link = AirLink(adapter: adapter, connection: UInt32(new.handle.rawValue))
    (link.isLE, link.isFromStart, link.isEncrypted, link.countsWaiting) = (true, true, false, true)
    (link.role, link.peer, link.peerType) = (new.role, new.peer, new.peerType)
    (link.interval, link.latency, link.supervisionTimeout) = (new.interval, new.latency, new.timeout)
    link.mtu = Bearer.defaultMTU
    open(link)
  }

  private mutating func complete(_ adapter: Int, _ event: CommandComplete, _ bytes: Span<UInt8>) {
    change(adapter) { $0.commandCredits = Int(event.numHCICommandPackets) }
    let number = adapters[adapter].number, parameters = event.returnParameters
    guard !parameters.isEmpty, parameters.byte(0, in: bytes) == HCIStatus.success.rawValue else { return }
    switch event.commandOpcode {
    case Reset.opcode:
      for place in links.indices where links[place].adapter == number && links[place].ended == nil { end(place, nil) }
      updateBuffers(adapter)
    case ReadBufferSize.opcode:
      guard let size = try? ReadBufferSize.decodeReturn(parameters, in: bytes) else { return }
      change(adapter) { $0.buffersClassic = Int(size.totalNumACLDataPackets) }
    case LEReadBufferSize.opcode:
      guard let size = try? LEReadBufferSize.decodeReturn(parameters, in: bytes) else { return }
      change(adapter) { $0.buffersLE = Int(size.totalNumLEACLDataPackets) }
    case LEReadBufferSizeV2.opcode:
      guard let size = try? LEReadBufferSizeV2.decodeReturn(parameters, in: bytes) else { return }
      change(adapter) { $0.buffersLE = Int(size.totalNumLEACLDataPackets) }
    case LEReadPHY.opcode:
      guard let answer = try? LEReadPHY.decodeReturn(parameters, in: bytes),
        let place = existing(number, UInt32(answer.connectionHandle.rawValue))
      else { return }
      let phys = (answer.txPHY, answer.rxPHY)
      if let tx = links[place].txPHY, let rx = links[place].rxPHY, (tx, rx) == phys { return }
      (links[place].txPHY, links[place].rxPHY) = phys
      note(.changed(links[place], .phy))
    default: break
    }
  }

  // MARK: Channels

  /// A frame of the LE signaling channel, which has one command: Vol 3, Part A, §4.
  mutating func signal(_ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord) {
    guard let direction = frame.direction, !payload.isEmpty, let place = link(frame.adapter, frame.connection) else {
      return
    }
    let command = payload.extracting(first: payload.signalCount(at: 0))
    for channel in links[place].book.signal(command, direction, record) {
      note(.channel(links[place], links[place].channels[channel]))
    }
  }
  mutating func channelFrame(_ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord) {
    guard let direction = frame.direction, let place = existing(frame.adapter, frame.connection) else { return }
    links[place].book.frame(frame, payload, direction, record)
  }

  // MARK: Attributes

  mutating func attribute(_ frame: TraceFrame, _ payload: Span<UInt8>) {
    guard payload.count > 0 else { return }
    let asked = pending.handle(frame, payload)
    let pdu: ATTPDU
    do throws(WireError) { pdu = try ATTPDU(payload) } catch { return }
    names.learn(frame, pdu, in: payload)
    let side = side(of: frame, pdu.opcode)
    let waiting = AskedKey(adapter: frame.adapter, connection: frame.connection, side: side, bearer: frame.bearer)
    func key(_ handle: UInt16) -> ValueKey {
      ValueKey(adapter: frame.adapter, connection: frame.connection, side: side, handle: handle)
    }
    switch pdu {
    case .exchangeMTURequest(let request): exchange(frame, Int(request.clientRxMTU), isRequest: true)
    case .exchangeMTUResponse(let response): exchange(frame, Int(response.serverRxMTU), isRequest: false)
    case .readResponse(let response):
      if let asked { take(response.attributeValue, key(asked), .read, frame, pdu.opcode, payload) }
    case .handleValueNotification(let value):
      take(value.attributeValue, key(value.attributeHandle.rawValue), .notified, frame, pdu.opcode, payload)
    case .handleValueIndication(let value):
      take(value.attributeValue, key(value.attributeHandle.rawValue), .indicated, frame, pdu.opcode, payload)
    case .multipleHandleValueNotification(let values):
      var cursor = values.handleLengthValueTupleList.cursor
      while let value = cursor.next(in: payload) {
        take(value.attributeValue, key(value.attributeHandle.rawValue), .notified, frame, pdu.opcode, payload)
      }
    case .writeCommand(let write):
      take(write.attributeValue, key(write.attributeHandle.rawValue), .written, frame, pdu.opcode, payload)
    // A server may refuse it.
    case .writeRequest(let write):
      guard writes.count < Self.mostValues || writes[waiting] != nil else { return }
      writes[waiting] = (
        key(write.attributeHandle.rawValue), Self.beginning(write.attributeValue, payload),
        Int(write.attributeValue.count)
      )
    case .writeResponse:
      guard let write = writes.removeValue(forKey: waiting) else { return }
      store(write.octets, write.length, write.key, .written, frame, pdu.opcode)
    case .errorResponse: writes[waiting] = nil
    default: break
    }
  }
  /// The side whose attributes a PDU is about.
  private func side(of frame: TraceFrame, _ opcode: ATTOpcode) -> TraceNames.ServerSide {
    guard let direction = frame.direction else { return .unknown }
    return switch opcode.kind {
    case .command, .request, .confirmation, nil: direction == .fromHost ? .peer : .host
    case .response, .notification, .indication: direction == .fromHost ? .host : .peer
    }
  }
  private static func beginning(_ octets: Octets, _ payload: Span<UInt8>) -> [UInt8] {
    Array(octets.array(in: payload).prefix(mostOctets))
  }
  private mutating func take(
    _ octets: Octets, _ key: ValueKey, _ cause: AirValue.Cause, _ frame: TraceFrame, _ opcode: ATTOpcode,
    _ payload: Span<UInt8>
  ) {
    store(Self.beginning(octets, payload), Int(octets.count), key, cause, frame, opcode)
  }
  private mutating func store(
    _ octets: [UInt8], _ length: Int, _ key: ValueKey, _ cause: AirValue.Cause, _ frame: TraceFrame,
    _ opcode: ATTOpcode
  ) {
    if known[key] == nil, known.count == Self.mostValues,
      let oldest = known.min(by: { ($0.value.time, $0.key.handle) < ($1.value.time, $1.key.handle) })
    {
      known[oldest.key] = nil
    }
    var value =
      known[key]
      ?? AirValue(adapter: key.adapter, connection: key.connection, side: key.side, handle: key.handle)
    let isNew = value.count == 0 || value.octets != octets || value.length != length
    value.uuid = names.uuid(of: AttributeHandle(rawValue: key.handle), in: frame, opcode: opcode) ?? value.uuid
    (value.octets, value.length, value.cause, value.time) = (octets, length, cause, now)
    value.count += 1
    known[key] = value
    if isNew { note(.value(value)) }
  }

  /// ATT_MTU is the lesser of what both sides receive, and at least the default. Vol 3, Part F, §3.4.2.2.
  private mutating func exchange(_ frame: TraceFrame, _ size: Int, isRequest: Bool) {
    // An enhanced bearer has its channel's MTU.
    guard frame.channel == .attribute, let place = existing(frame.adapter, frame.connection) else { return }
    // Each side may ask; a capture without directions has one request at a time.
    let asker = frame.direction == nil || (frame.direction == .fromHost) == isRequest ? 1 : 0
    if isRequest {
      links[place].requestedMTU[asker] = size
    } else if let requested = links[place].requestedMTU[asker].take() {
      links[place].mtu = max(Bearer.defaultMTU, min(requested, size))
      note(.changed(links[place], .mtu))
    }
  }
}
