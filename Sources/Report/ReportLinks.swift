import BindruneATT
import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneL2CAP

/// A connection of the trace.
struct ReportLink {
  var adapter: UInt16
  /// The connection handle; in a link-layer capture the access address.
  var handle: UInt32
  /// nil: the trace does not show its beginning.
  var role: LinkRole?
  /// The peer's address, or the name that a key gives to it.
  var peer = ""
  /// The records with which it begins and ends.
  var first: Int
  var last: Int?
  /// Why it ended.
  var reason = ""
  /// Parameters over time: the record, what it is about, and the value in words.
  var changes: [(record: Int, about: String, text: String)] = []
  var isFromAir = false
  var book = ChannelBook()

  /// ``changes``, and what its channels carried from their openings on.
  var story: [(record: Int, about: String, text: String)] {
    var story = changes
    for channel in book.channels {
      let about = "Channel 0x" + hexDigits(UInt64(channel.host), 4)
      let opener = channel.asker == .fromHost ? "host" : "peer"
      story.append(
        (
          channel.openedRecord, about,
          "PSM 0x\(hexDigits(UInt64(channel.spsm), 4)), the peer's 0x\(hexDigits(UInt64(channel.peer), 4)), "
            + "opened by the \(opener)"
        ))
      for (verb, stream) in [("sent", channel.sent), ("received", channel.received)] where stream.frames > 0 {
        func count(_ number: Int, _ what: String) -> String { "\(number) \(what)\(number == 1 ? "" : "s")" }
        var text = "\(verb) \(octetCount(stream.octets)) in \(count(stream.sdus, "SDU"))"
        text += " and \(count(stream.frames, "K-frame"))"
        if stream.waits > 0 {
          let times = stream.waits == 1 ? "once" : "\(stream.waits) times"
          text += ", without credit \(times), \(Int((stream.waited / .milliseconds(1)).rounded())) ms"
        }
        story.append((channel.lastRecord, about, text))
      }
      if channel.isClosed { story.append((channel.lastRecord, about, "closed")) }
    }
    return story.enumerated().sorted { ($0.element.record, $0.offset) < ($1.element.record, $1.offset) }.map(\.element)
  }
}

/// # ReportLinks
/// **Overview**: follows connections and devices: which records belong to which, which record answers which, how strong
/// devices are heard, and how many packets the controller holds.
struct ReportLinks {
  /// Devices whose names and signal strengths are kept; further ones have none.
  static var mostDevices: Int { 4_096 }
  private(set) var list: [ReportLink] = []
  private var current: [UInt64: Int] = [:]
  /// Names that devices advertise, by address.
  private(set) var devices: [(address: String, name: String)] = []
  private var places: [String: Int] = [:]
  /// Record, device, dBm.
  private(set) var strengths: [Int] = []
  /// Record, link, packets that the controller has sent.
  private(set) var completed: [Int] = []
  /// Adapter, buffers, octets of each.
  private(set) var buffers: [Int] = []
  /// The records of what waits for an answer.
  private var pending: [Question: Int] = [:]
  private enum Question: Hashable {
    case command(adapter: UInt16, opcode: UInt16)
    case attribute(link: UInt64, bearer: ChannelID?, isFromHost: Bool, isIndication: Bool)
  }

  private func key(_ adapter: UInt16, _ handle: UInt32) -> UInt64 { UInt64(adapter) << 32 | UInt64(handle) }

  /// The link of a packet; begins one that the trace has not shown.
  mutating func link(_ adapter: UInt16, _ handle: UInt32, at record: Int, isFromAir: Bool, opens: Bool) -> Int? {
    if let known = current[key(adapter, handle)] { return known }
    guard opens else { return nil }
    var link = ReportLink(adapter: adapter, handle: handle, first: record)
    link.isFromAir = isFromAir
    list.append(link)
    current[key(adapter, handle)] = list.count - 1
    return list.count - 1
  }
  /// The link with a handle of HCI, if one is known.
  func known(_ adapter: UInt16, _ handle: ConnectionHandle) -> Int? { current[key(adapter, UInt32(handle.rawValue))] }
  mutating func change(_ link: Int, _ record: Int, _ about: String, _ text: String) {
    list[link].changes.append((record, about, text))
  }

  // MARK: Events

  mutating func receive(_ event: HCIEvent, _ adapter: UInt16, _ record: Int, _ bytes: Span<UInt8>, _ names: TraceNames)
  {
    switch event {
    case .leConnectionComplete(let event) where event.status == .success:
      begin(
        adapter, event.connectionHandle, event.role, event.peerAddress, event.peerAddressType, record, names,
        parameters(event.connectionInterval, event.peripheralLatency, event.supervisionTimeout))
    case .leEnhancedConnectionComplete(let event) where event.status == .success:
      begin(
        adapter, event.connectionHandle, event.role, event.peerAddress, event.peerAddressType, record, names,
        parameters(event.connectionInterval, event.peripheralLatency, event.supervisionTimeout))
    case .disconnectionComplete(let event) where event.status == .success:
      guard let link = known(adapter, event.connectionHandle) else { return }
      list[link].last = record
      list[link].reason = event.reason.text
    case .leConnectionUpdateComplete(let event) where event.status == .success:
      guard let link = known(adapter, event.connectionHandle) else { return }
      change(
        link, record, "Connection parameters",
        parameters(event.connectionInterval, event.peripheralLatency, event.supervisionTimeout))
    case .leDataLengthChange(let event):
      guard let link = known(adapter, event.connectionHandle) else { return }
      change(
        link, record, "Data length", "\(event.maxTXOctets) octets to the peer, \(event.maxRXOctets) from it")
    case .lePHYUpdateComplete(let event) where event.status == .success:
      guard let link = known(adapter, event.connectionHandle) else { return }
      change(link, record, "PHY", "\(event.txPHY.text) to the peer, \(event.rxPHY.text) from it")
    case .encryptionChange(let event):
      encryption(adapter, event.connectionHandle, event.status, event.encryptionEnabled != 0, record)
    case .encryptionChangeV2(let event):
      encryption(adapter, event.connectionHandle, event.status, event.encryptionEnabled != 0, record)
    case .numberOfCompletedPackets(let event):
      var cursor = event.handles.cursor
      while let entry = cursor.next(in: bytes) {
        guard let link = known(adapter, entry.connectionHandle) else { continue }
        completed += [record, link, Int(entry.numCompletedPackets)]
      }
    case .leAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while let report = cursor.next(in: bytes) { heard(report.address, report.rssi, report.data, record, bytes) }
    case .leExtendedAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while let report = cursor.next(in: bytes) { heard(report.address, report.rssi, report.data, record, bytes) }
    default: break
    }
  }
  /// The controller was reset: it has no connections any more. Vol 4, Part E, §7.3.2.
  mutating func reset(_ adapter: UInt16, _ record: Int) {
    for (place, link) in current where UInt16(place >> 32) == adapter {
      list[link].last = record
      list[link].reason = "the controller was reset"
      current[place] = nil
    }
  }
  private func parameters(_ interval: ConnectionInterval, _ latency: UInt16, _ timeout: SupervisionTimeout) -> String {
    "interval \(interval.text), latency \(latency), supervision timeout \(timeout.text)"
  }
  private mutating func begin(
    _ adapter: UInt16, _ handle: ConnectionHandle, _ role: LinkRole, _ address: DeviceAddress, _ type: AddressType,
    _ record: Int, _ names: TraceNames, _ parameters: String
  ) {
    var link = ReportLink(adapter: adapter, handle: UInt32(handle.rawValue), role: role, first: record)
    link.peer = names.name(of: address, type) ?? address.text
    link.changes.append((record, "Connection parameters", parameters))
    list.append(link)
    let place = key(adapter, link.handle)
    // The trace does not show the end of the one before.
    if let before = current[place], list[before].last == nil { list[before].last = record }
    current[place] = list.count - 1
    // Requests of an earlier connection with this handle stay unanswered.
    for question in pending.keys {
      if case .attribute(place, _, _, _) = question { pending[question] = nil }
    }
  }
  private mutating func encryption(
    _ adapter: UInt16, _ handle: ConnectionHandle, _ status: HCIStatus, _ isOn: Bool, _ record: Int
  ) {
    guard let link = known(adapter, handle) else { return }
    change(link, record, "Encryption", status == .success ? (isOn ? "on" : "off") : "failed: \(status.text)")
  }
  /// How strong the peer of a link is heard, from the answer to Read RSSI. Vol 4, Part E, §7.5.4.
  mutating func strength(_ complete: CommandComplete, _ adapter: UInt16, _ record: Int, _ bytes: Span<UInt8>) {
    guard complete.commandOpcode == ReadRSSI.opcode,
      let answer = try? ReadRSSI.decodeReturn(complete.returnParameters, in: bytes), answer.status == .success
    else { return }
    // 127: not available.
    guard answer.rssi != 127, let link = known(adapter, answer.handle), !list[link].peer.isEmpty else { return }
    guard let device = places[list[link].peer] ?? add(list[link].peer) else { return }
    strengths += [record, device, Int(answer.rssi)]
  }
  private mutating func heard(
    _ address: DeviceAddress, _ rssi: Int8, _ data: Octets, _ record: Int, _ bytes: Span<UInt8>
  ) {
    let text = address.text
    guard let device = places[text] ?? add(text) else { return }
    if devices[device].name.isEmpty, let name = advertisedName(data, bytes) { devices[device].name = name }
    // 127: not available.
    if rssi != 127 { strengths += [record, device, Int(rssi)] }
  }
  private func advertisedName(_ data: Octets, _ bytes: Span<UInt8>) -> String? {
    var cursor = ADCursor(data)
    while let structure = cursor.next(in: bytes) {
      guard structure.type == .completeLocalName || structure.type == .shortenedLocalName else { continue }
      return String(decoding: structure.data.array(in: bytes), as: UTF8.self).printable(limit: 60)
    }
    return nil
  }
  private mutating func add(_ address: String) -> Int? {
    guard devices.count < Self.mostDevices else { return nil }
    devices.append((address, ""))
    places[address] = devices.count - 1
    return devices.count - 1
  }
  /// The name that a device advertises.
  func name(of address: String) -> String { places[address].map { devices[$0].name } ?? "" }

  /// The buffers of a controller, from the answer to LE Read Buffer Size, [v1] or [v2]. Vol 4, Part E, §7.8.2.
  mutating func buffers(_ complete: CommandComplete, _ adapter: UInt16, _ bytes: Span<UInt8>) {
    let size: Int, count: Int, parameters = complete.returnParameters
    switch complete.commandOpcode {
    case LEReadBufferSize.opcode:
      guard let answer = try? LEReadBufferSize.decodeReturn(parameters, in: bytes), answer.status == .success else {
        return
      }
      (size, count) = (Int(answer.leACLDataPacketLength), Int(answer.totalNumLEACLDataPackets))
    case LEReadBufferSizeV2.opcode:
      guard let answer = try? LEReadBufferSizeV2.decodeReturn(parameters, in: bytes), answer.status == .success else {
        return
      }
      (size, count) = (Int(answer.leACLDataPacketLength), Int(answer.totalNumLEACLDataPackets))
    default: return
    }
    if count > 0 { buffers += [Int(adapter), count, size] }
  }

  // MARK: Channels

  /// A frame of the link that is neither of the Attribute Protocol nor of the Security Manager.
  mutating func channel(_ link: Int, _ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord) {
    guard let direction = frame.direction, !payload.isEmpty else { return }
    if frame.channel == .leSignaling {
      list[link].book.signal(payload, direction, record)
    } else {
      list[link].book.frame(frame, payload, direction, record)
    }
  }

  // MARK: Answers

  /// The record that a command's event answers; remembers a command.
  mutating func command(_ adapter: UInt16, _ opcode: UInt16, _ record: Int) {
    pending[.command(adapter: adapter, opcode: opcode)] = record
  }
  mutating func commandAnswered(_ adapter: UInt16, _ opcode: UInt16) -> Int? {
    pending.removeValue(forKey: .command(adapter: adapter, opcode: opcode))
  }
  /// The request that an ATT PDU answers; remembers a request or an indication.
  mutating func answered(_ frame: TraceFrame, _ opcode: ATTOpcode, _ record: Int) -> Int? {
    guard let direction = frame.direction else { return nil }
    let isFromHost = direction == .fromHost
    func question(_ isAskersHost: Bool, isIndication: Bool) -> Question {
      .attribute(
        link: key(frame.adapter, frame.connection), bearer: frame.bearer, isFromHost: isAskersHost,
        isIndication: isIndication)
    }
    switch opcode.kind {
    case .request: pending[question(isFromHost, isIndication: false)] = record
    case .indication: pending[question(isFromHost, isIndication: true)] = record
    case .response: return pending.removeValue(forKey: question(!isFromHost, isIndication: false))
    case .confirmation: return pending.removeValue(forKey: question(!isFromHost, isIndication: true))
    case .notification, .command, nil: break
    }
    return nil
  }
}
