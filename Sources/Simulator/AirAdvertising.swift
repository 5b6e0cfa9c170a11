import BindruneWire
import HCI

// Advertising, scanning and initiating: how two controllers find each other. Vol 6, Part B, §4.4.

extension Air {
  /// One advertising event: the same PDU on each channel in turn, and what the others make of it.
  mutating func advertise(_ id: ControllerID, _ generation: UInt32) {
    let i = id.index
    guard let set = controllers[i].advertiser(generation) else { return }
    let advertiser = controllers[i].advertisers[set]
    guard let address = controllers[i].address(of: advertiser) else { return }
    controllers[i].advertisers[set].events += 1
    let isLast = advertiser.maximumEvents > 0 && advertiser.events + 1 >= advertiser.maximumEvents
    var next = medium.now + advertiser.period
    if !advertiser.isHighDuty { next += medium.radio.random.duration(upTo: configuration.advertisingDelay) }
    if !isLast { medium.schedule.plan(.advertising(id, generation: generation), at: next) }

    for channel in 0..<3 where advertiser.channelMap >> channel & 1 == 1 {
      // A PDU, a request and its response are on the air for about a millisecond.
      let time = medium.now + .microseconds(1200 * Int64(channel))
      var requests: [Request] = []
      for other in 0..<controllers.count where other != i && controllers[other].isPresent {
        let scans = controllers[other].scans(channel, at: time, isLegacy: advertiser.isLegacy)
        let initiates = controllers[other].initiates(channel, at: time)
        guard scans || initiates, let strength = carry(from: i, to: other) else { continue }
        if scans {
          report(advertiser, address, isResponse: false, strength, from: i, to: other)
          if controllers[other].scanner.isActive, advertiser.isScannable, isAdmitted(other, by: i, advertiser, 1) {
            requests.append(Request(from: other, connects: false))
          }
        }
        if initiates, controllers[other].wants(advertiser, address), isAdmitted(other, by: i, advertiser, 2) {
          requests.append(Request(from: other, connects: true))
        }
      }
      if configuration.collides, requests.count > 1 {
        // All start 150 µs after the PDU: the advertiser understands one of them at most.
        requests = [requests[Int(medium.radio.random.next() % UInt64(requests.count))]]
      }
      for request in requests where request.connects {
        if connect(request.from, i, set, address) { return }
      }
      for request in requests where !request.connects {
        guard carry(from: request.from, to: i) != nil else { continue }
        controllers[i].reportScanRequest(
          advertiser, controllers[request.from].address(controllers[request.from].scanner.ownAddressType),
          now: medium.now)
        guard let strength = carry(from: i, to: request.from) else { continue }
        report(advertiser, address, isResponse: true, strength, from: i, to: request.from)
      }
    }
    if isLast {
      controllers[i].advertisers[set].isEnabled = false
      controllers[i].reportTermination(
        controllers[i].advertisers[set], .limitReached, ConnectionHandle(), now: medium.now)
    }
  }
  /// What a scanner has heard of an advertisement or a response. Extended data are a chain of PDUs, AUX_ADV_IND or
  /// AUX_SCAN_RSP and then AUX_CHAIN_IND, each of which may be lost, and what follows it with it. Vol 6, Part B, §2.3.4.9.
  private mutating func report(
    _ advertiser: Advertiser, _ address: AirAddress, isResponse: Bool, _ strength: Int8, from i: Int, to other: Int
  ) {
    // ADV_DIRECT_IND has no data; a scannable extended advertisement has it in its response.
    let data = isResponse ? advertiser.scanResponse.octets : advertiser.takesData ? advertiser.data.octets : []
    var received = min(data.count, Self.octetsInPDU)
    while received < data.count, carry(from: i, to: other) != nil {
      received = min(received + Self.octetsInPDU, data.count)
    }
    controllers[other].report(
      advertiser, address, isResponse: isResponse, data[..<received], isWhole: received == data.count, strength,
      now: medium.now)
  }
  /// Octets of advertising data in one PDU of a chain, of which a controller may choose the length.
  private static var octetsInPDU: Int { 245 }
  /// Whether an advertiser with a filter answers somebody: bit 0 is for scan requests, bit 1 for connect requests.
  private func isAdmitted(_ other: Int, by i: Int, _ advertiser: Advertiser, _ bit: UInt8) -> Bool {
    if advertiser.filterPolicy & bit == 0 { return true }
    let type = bit == 1 ? controllers[other].scanner.ownAddressType : controllers[other].initiator?.ownAddressType
    guard let type, let address = controllers[other].address(type) else { return false }
    return controllers[i].accepts(address)
  }
  /// SCAN_REQ or CONNECT_IND.
  private struct Request { var from: Int, connects: Bool }

  /// One packet from one controller to another: its strength there, if it arrives.
  mutating func carry(from a: Int, to b: Int) -> Int8? {
    medium.radio.receive(
      controllers[a].configuration.transmitPower, controllers[a].id, controllers[a].configuration.position,
      controllers[b].id, controllers[b].configuration.position)
  }

  /// Advertising has ended without a connection: LE Connection Complete with 0x3C for legacy commands (Vol 4, Part E,
  /// §7.8.9), LE Advertising Set Terminated for a set (§7.8.56).
  mutating func endAdvertising(_ id: ControllerID, _ generation: UInt32) {
    let i = id.index
    guard let set = controllers[i].advertiser(generation) else { return }
    let advertiser = controllers[i].advertisers[set]
    controllers[i].advertisers[set].isEnabled = false
    if advertiser.handle == nil {
      controllers[i].reportNoConnection(.advertisingTimeout, .peripheral, now: medium.now)
    } else {
      controllers[i].reportTermination(advertiser, .advertisingTimeout, ConnectionHandle(), now: medium.now)
    }
  }
  mutating func reportCancelled(_ id: ControllerID) {
    controllers[id.index].reportNoConnection(.unknownConnectionIdentifier, .central, now: medium.now)
  }

  /// The duration or the period of extended scanning is over. Vol 4, Part E, §7.8.65.
  mutating func scanTimer(_ id: ControllerID, _ generation: UInt32) {
    let i = id.index
    guard controllers[i].scanner.isEnabled, controllers[i].scanner.generation == generation,
      let duration = controllers[i].scanner.duration
    else { return }
    guard let period = controllers[i].scanner.period else {
      controllers[i].scanner.stop()
      return controllers[i].emit(LEScanTimeout(), now: medium.now)
    }
    let event = Schedule.Event.scanning(id, generation: generation)
    if controllers[i].scanner.isPausing {
      controllers[i].scanner.isPausing = false
      if controllers[i].scanner.forgetsEachPeriod { controllers[i].scanner.forget() }
      medium.schedule.plan(event, at: medium.now + duration)
    } else {
      controllers[i].scanner.isPausing = true
      medium.schedule.plan(event, at: medium.now + (period - duration))
    }
  }

  /// CONNECT_IND. Returns true when the advertiser has received it. The initiator does not know: its link begins in any
  /// case, and ends with 0x3E when the other end never speaks. Vol 6, Part B, §4.5.
  private mutating func connect(_ c: Int, _ p: Int, _ set: Int, _ address: AirAddress) -> Bool {
    guard let initiator = controllers[c].initiator, !controllers[c].isFull,
      let own = controllers[c].address(initiator.ownAddressType)
    else { return false }
    // An advertiser ignores an initiator it is connected to already, and one too many. Vol 6, Part B, §4.5.
    let isWelcome = !controllers[p].isFull && !controllers[p].connections.contains { $0.peer == own }
    let isReceived = carry(from: c, to: p) != nil && isWelcome
    let parameters = initiator.request.chosen, now = medium.now
    let central = controllers[c].makeHandle()
    let peripheral = isReceived ? controllers[p].makeHandle() : ConnectionHandle()
    let link = medium.links.open(
      central: LinkEnd(controllers[c].id, central), peripheral: LinkEnd(controllers[p].id, peripheral), parameters,
      start: now)
    controllers[c].initiator = nil
    controllers[c].open(central, link, .central, address, parameters, now: now)
    prepareLength(link, .central)
    if isReceived {
      controllers[p].advertisers[set].isEnabled = false
      controllers[p].open(peripheral, link, .peripheral, own, parameters, now: now)
      let advertiser = controllers[p].advertisers[set]
      if advertiser.handle != nil { controllers[p].reportTermination(advertiser, .success, peripheral, now: now) }
      prepareLength(link, .peripheral)
    } else {
      medium.links[link].peripheral.isOpen = false
    }
    if configuration.isInstant {
      noteReach(link)
      serve(link)
    } else {
      // The transmit window begins 1.25 ms after CONNECT_IND. Vol 6, Part B, §4.5.3.
      medium.schedule.plan(.connectionEvent(link), at: now + .microseconds(2500))
    }
    return isReceived
  }
  /// The host's suggested data length holds for every new link. Vol 4, Part E, §7.8.35.
  private mutating func prepareLength(_ link: LinkID, _ role: LinkRole) {
    let i = medium.links[link][role].controller.index
    guard controllers[i].has(.leDataPacketLengthExtension) else { return }
    let most = controllers[i].configuration.maximumDataOctets
    medium.links[link][role].length = DataLength(
      receive: most, transmit: min(controllers[i].suggestedOctets, most))
    if controllers[i].suggestedOctets > 27 { medium.links[link].startLengthUpdate(role) }
  }
}

extension VirtualController {
  func scans(_ channel: Int, at time: Instant, isLegacy: Bool) -> Bool {
    scanner.isEnabled && !scanner.isPausing && (isLegacy || scanner.isExtended)
      && scanner.listening.hears(channel: channel, at: time)
  }
  func initiates(_ channel: Int, at time: Instant) -> Bool {
    initiator?.listening.hears(channel: channel, at: time) ?? false
  }
  /// Whether the advertiser is the one to connect to, and open to us.
  func wants(_ advertiser: Advertiser, _ address: AirAddress) -> Bool {
    guard let initiator, advertiser.isConnectable, advertiser.isLegacy || initiator.isExtended else { return false }
    guard initiator.peer.map({ $0 == address }) ?? accepts(address) else { return false }
    return !advertiser.isDirected || advertiser.peer == self.address(initiator.ownAddressType)
  }

  /// LE Advertising Report, or LE Extended Advertising Report. Vol 4, Part E, §7.7.65.2 and §7.7.65.13.
  /// `isWhole`: there is no more data than that.
  mutating func report(
    _ advertiser: Advertiser, _ address: AirAddress, isResponse: Bool, _ data: ArraySlice<UInt8>, isWhole: Bool,
    _ strength: Int8, now: Instant
  ) {
    if advertiser.isDirected, advertiser.peer != self.address(scanner.ownAddressType) { return }
    if scanner.filterPolicy & 1 == 1, !(advertiser.isAnonymous ? acceptsAnonymous : accepts(address)) { return }
    // A host that does not read gets no more of them.
    guard !isBacklogged, scanner.admits(advertiser, address, isResponse: isResponse) else { return }
    do throws(WireError) {
      if !scanner.isExtended {
        try reportLegacy(advertiser, address, isResponse, Array(data), strength, now: now)
        return
      }
      // As much as an event holds. Data status 1: more follows, 2: more was there and is lost.
      var start = 0
      repeat {
        let end = min(start + 229, data.count), isLast = end == data.count
        try reportExtended(
          advertiser, address, isResponse, data[start..<end], status: !isLast ? 1 : isWhole ? 0 : 2, strength, now: now)
        start = end
      } while start < data.count
    } catch {}
  }
  private mutating func reportLegacy(
    _ advertiser: Advertiser, _ address: AirAddress, _ isResponse: Bool, _ data: [UInt8], _ strength: Int8, now: Instant
  ) throws(WireError) {
    var bytes = data, report = LEAdvertisingReport.Report()
    report.eventType = isResponse ? .scanResponse : advertiser.legacyType
    report.addressType = address.type
    report.address = address.value
    report.data = Octets(0, data.count)
    report.rssi = strength
    var event = LEAdvertisingReport()
    event.reports = try List([report], in: &bytes)
    emit(event, from: bytes.span, now: now)
  }
  private mutating func reportExtended(
    _ advertiser: Advertiser, _ address: AirAddress, _ isResponse: Bool, _ data: ArraySlice<UInt8>, status: UInt8,
    _ strength: Int8, now: Instant
  ) throws(WireError) {
    var bytes = Array(data), report = LEExtendedAdvertisingReport.Report()
    report.legacy = advertiser.isLegacy
    report.connectable = advertiser.isConnectable
    report.scannable = advertiser.isScannable
    report.directed = advertiser.isDirected
    report.scanResponse = isResponse
    report.dataStatus = status
    report.addressType = advertiser.isAnonymous ? .anonymous : address.type
    report.address = advertiser.isAnonymous ? DeviceAddress() : address.value
    if !advertiser.isLegacy {
      report.secondaryPHY = .le1M
      report.advertisingSID = advertiser.sid
    }
    if advertiser.tellsPower { report.txPower = advertiser.power }
    report.rssi = strength
    if advertiser.isDirected {
      report.directAddressType = advertiser.peer.type
      report.directAddress = advertiser.peer.value
    }
    report.data = Octets(0, bytes.count)
    var event = LEExtendedAdvertisingReport()
    event.reports = try List([report], in: &bytes)
    emit(event, from: bytes.span, now: now)
  }
  /// Somebody has asked for the scan response. Vol 4, Part E, §7.7.65.19.
  mutating func reportScanRequest(_ advertiser: Advertiser, _ scanner: AirAddress?, now: Instant) {
    guard advertiser.reportsScanRequests, let handle = advertiser.handle, let scanner else { return }
    var event = LEScanRequestReceived()
    event.advertisingHandle = handle
    event.scannerAddressType = scanner.type
    event.scannerAddress = scanner.value
    emit(event, now: now)
  }
  /// The end of an advertising set's activity. Vol 4, Part E, §7.7.65.18.
  mutating func reportTermination(
    _ advertiser: Advertiser, _ status: HCIStatus, _ connection: ConnectionHandle, now: Instant
  ) {
    var event = LEAdvertisingSetTerminated()
    event.status = status
    event.advertisingHandle = advertiser.handle ?? 0
    event.connectionHandle = connection
    event.numCompletedExtendedAdvertisingEvents = UInt8(clamping: advertiser.maximumEvents > 0 ? advertiser.events : 0)
    emit(event, now: now)
  }

  /// A link has begun at this end.
  mutating func open(
    _ handle: ConnectionHandle, _ link: LinkID, _ role: LinkRole, _ peer: AirAddress, _ parameters: LinkParameters,
    now: Instant
  ) {
    connections.append(Connection(handle: handle, link: link, role: role, peer: peer))
    reportConnection(.success, handle, role, peer, parameters, now: now)
  }
  /// No link: cancelled, or nobody came.
  mutating func reportNoConnection(_ status: HCIStatus, _ role: LinkRole, now: Instant) {
    let nobody = AirAddress(isRandom: false, DeviceAddress())
    let nothing = LinkParameters(interval: 0, latency: 0, timeout: 0)
    reportConnection(status, ConnectionHandle(), role, nobody, nothing, now: now)
  }
  /// LE Enhanced Connection Complete where the host wants it, else LE Connection Complete. Vol 4, Part E, §7.7.65.10.
  private mutating func reportConnection(
    _ status: HCIStatus, _ handle: ConnectionHandle, _ role: LinkRole, _ peer: AirAddress, _ parameters: LinkParameters,
    now: Instant
  ) {
    if leEventMask.contains(.enhancedConnectionComplete) {
      var event = LEEnhancedConnectionComplete()
      event.status = status
      event.connectionHandle = handle
      event.role = role
      event.peerAddressType = peer.type
      event.peerAddress = peer.value
      event.connectionInterval = ConnectionInterval(rawValue: parameters.interval)
      event.peripheralLatency = parameters.latency
      event.supervisionTimeout = SupervisionTimeout(rawValue: parameters.timeout)
      emit(event, now: now)
    } else {
      var event = LEConnectionComplete()
      event.status = status
      event.connectionHandle = handle
      event.role = role
      event.peerAddressType = peer.type
      event.peerAddress = peer.value
      event.connectionInterval = ConnectionInterval(rawValue: parameters.interval)
      event.peripheralLatency = parameters.latency
      event.supervisionTimeout = SupervisionTimeout(rawValue: parameters.timeout)
      emit(event, now: now)
    }
  }
}
