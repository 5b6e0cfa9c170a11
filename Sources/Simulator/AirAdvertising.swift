import BindruneWire
import BindruneHCI

// Advertising, scanning and initiating: how two controllers find each other. Vol 6, Part B, §4.4.

extension Air {
  /// Performs one advertising event: the same PDU on each channel in turn, and the reactions of the other controllers.
  mutating func advertise(_ id: ControllerID, _ generation: UInt32) {
    let i = id.index
    guard isPresent(id), let set = controllers[i].advertiser(generation) else { return }
    var advertiser = controllers[i].advertisers[set]
    guard let address = controllers[i].address(of: advertiser, now: medium.now) else { return }
    if advertiser.isDirected { advertiser.peer = controllers[i].target(of: advertiser, now: medium.now) }
    controllers[i].advertisers[set].events += 1
    let isLast = advertiser.maximumEvents > 0 && advertiser.events + 1 >= advertiser.maximumEvents
    var next = medium.now + advertiser.period
    if !advertiser.isHighDuty { next += medium.radio.random.duration(upTo: configuration.advertisingDelay) }
    if !isLast { medium.schedule.plan(.advertising(id, generation: generation), at: next) }

    for channel in 0..<3 where advertiser.channelMap >> channel & 1 == 1 {
      // A PDU, a request and its response take about a millisecond on the air.
      let time = medium.now + .microseconds(1200 * Int64(channel))
      var requests: [Request] = []
      for other in 0..<controllers.count where other != i && controllers[other].isPresent {
        let scan = controllers[other].scan(of: advertiser, channel, at: time)
        let initiates = controllers[other].initiates(advertiser, channel, at: time)
        guard scan != nil || initiates, let strength = carry(from: i, to: other) else { continue }
        guard let who = controllers[other].resolvingList.identify(address) else { continue }
        if let scan, let target = controllers[other].target(of: advertiser, from: who) {
          report(advertiser, who, target, isResponse: false, strength, from: i, to: other)
          if scan.isActive, advertiser.isScannable, !target.isUnresolved,
            let asker = asker(other, controllers[other].scanner.ownAddressType, who, by: i, advertiser, 1)
          {
            requests.append(Request(from: other, to: who, asker: asker, purpose: .scanResponse(target)))
          }
        }
        if initiates, controllers[other].wants(advertiser, who), let initiator = controllers[other].initiator,
          let asker = asker(other, initiator.ownAddressType, who, by: i, advertiser, 2)
        {
          requests.append(Request(from: other, to: who, asker: asker, purpose: .connection))
        }
      }
      if configuration.collides, requests.count > 1 {
        // All start 150 µs after the PDU: the advertiser can receive at most one of them.
        requests = [requests[Int(medium.radio.random.next() % UInt64(requests.count))]]
      }
      for request in requests where request.connects {
        if connect(request, i, set, address) { return }
      }
      for request in requests {
        guard case .scanResponse(let target) = request.purpose, carry(from: request.from, to: i) != nil
        else { continue }
        controllers[i].reportScanRequest(advertiser, request.asker, now: medium.now)
        guard let strength = carry(from: i, to: request.from) else { continue }
        report(advertiser, request.to, target, isResponse: true, strength, from: i, to: request.from)
      }
    }
    if isLast {
      controllers[i].advertisers[set].isEnabled = false
      controllers[i].reportTermination(
        controllers[i].advertisers[set], .limitReached, .absent, now: medium.now)
    }
  }
  /// Reports what a scanner has heard of an advertisement or a response. Extended data are a chain of PDUs, AUX_ADV_IND
  /// or AUX_SCAN_RSP and then AUX_CHAIN_IND; the loss of one also loses those after it. Vol 6, Part B, §2.3.4.9.
  private mutating func report(
    _ advertiser: Advertiser, _ who: Identified, _ target: AdvertisingTarget, isResponse: Bool, _ strength: Int8,
    from i: Int, to other: Int
  ) {
    // ADV_DIRECT_IND has no data; a scannable extended advertisement has it in its response.
    let data = isResponse ? advertiser.scanResponse.octets : advertiser.takesData ? advertiser.data.octets : []
    var received = min(data.count, Self.octetsInPDU)
    while received < data.count, carry(from: i, to: other) != nil {
      received = min(received + Self.octetsInPDU, data.count)
    }
    controllers[other].report(
      advertiser, who, target, isResponse: isResponse, data[..<received], isWhole: received == data.count, strength,
      now: medium.now)
  }
  /// Octets of advertising data in one PDU of a chain; a controller may choose the length.
  private static var octetsInPDU: Int { 245 }
  /// The device that asks, as the advertiser identifies it; nil if the advertiser does not answer: its filter (bit 0 is
  /// for scan requests, bit 1 for connect requests) or its privacy mode forbids it.
  private mutating func asker(
    _ other: Int, _ type: OwnAddressType, _ who: Identified, by i: Int, _ advertiser: Advertiser, _ bit: UInt8
  ) -> Identified? {
    guard let own = controllers[other].address(type, towards: who.identity, now: medium.now),
      let asker = controllers[i].resolvingList.identify(own)
    else { return nil }
    return advertiser.filterPolicy.rawValue & bit == 0 || controllers[i].accepts(asker.identity) ? asker : nil
  }
  /// SCAN_REQ or CONNECT_IND: the advertiser as the requester identifies it, and vice versa.
  private struct Request {
    var from: Int, to: Identified, asker: Identified, purpose: Purpose
    enum Purpose { case connection, scanResponse(AdvertisingTarget) }
    var connects: Bool { if case .connection = purpose { true } else { false } }
  }

  /// Sends one packet from one controller to another: its strength there, if it arrives.
  mutating func carry(from a: Int, to b: Int) -> Int8? {
    medium.radio.receive(
      controllers[a].configuration.transmitPower, controllers[a].id, controllers[a].configuration.position,
      controllers[b].id, controllers[b].configuration.position)
  }

  /// Advertising has ended without a connection: LE Connection Complete with 0x3C for legacy commands (Vol 4, Part E,
  /// §7.8.9), LE Advertising Set Terminated for a set (§7.8.56).
  mutating func endAdvertising(_ id: ControllerID, _ generation: UInt32) {
    let i = id.index
    guard isPresent(id), let set = controllers[i].advertiser(generation) else { return }
    let advertiser = controllers[i].advertisers[set]
    controllers[i].advertisers[set].isEnabled = false
    if advertiser.handle == nil {
      controllers[i].reportNoConnection(.advertisingTimeout, .peripheral, now: medium.now)
    } else {
      controllers[i].reportTermination(advertiser, .advertisingTimeout, .absent, now: medium.now)
    }
  }
  mutating func reportCancelled(_ id: ControllerID) {
    controllers[id.index].reportNoConnection(.unknownConnectionIdentifier, .central, now: medium.now)
  }

  /// The duration or the period of extended scanning has elapsed. Vol 4, Part E, §7.8.65.
  mutating func scanTimer(_ id: ControllerID, _ generation: UInt32) {
    let i = id.index
    guard isPresent(id), controllers[i].scanner.isEnabled, controllers[i].scanner.generation == generation,
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

  /// CONNECT_IND. Returns true when the advertiser has received it. The initiator cannot know: its link begins in any
  /// case, and ends with 0x3E if the other end stays silent. Vol 6, Part B, §4.5.
  private mutating func connect(_ request: Request, _ p: Int, _ set: Int, _ address: AirAddress) -> Bool {
    let c = request.from
    // CONNECT_IND uses the PHY of the advertisement, AUX_CONNECT_REQ that of AUX_ADV_IND, and the link begins there.
    let advertised = controllers[p].advertisers[set], phy = advertised.isLegacy ? PHY.le1M : advertised.secondaryPHY
    guard let initiator = controllers[c].initiator, let parameters = initiator.parameters(on: phy),
      !controllers[c].isFull
    else { return false }
    // An advertiser ignores an initiator that it is already connected to, and one beyond its limit. Vol 6, Part B,
    // §4.5.
    let isWelcome = !controllers[p].isFull && !controllers[p].connections.contains { $0.peer == request.asker.identity }
    let isReceived = carry(from: c, to: p) != nil && isWelcome
    let now = medium.now
    let central = controllers[c].makeHandle()
    let peripheral = isReceived ? controllers[p].makeHandle() : .absent
    let link = medium.links.open(
      central: LinkEnd(controllers[c].id, central, phy), peripheral: LinkEnd(controllers[p].id, peripheral, phy),
      parameters, controllers[c].linkChannels, start: now)
    let own = LinkPlace(link, .central), peers = own.other
    controllers[c].initiator = nil
    controllers[c].open(
      central, own, request.to, own: request.asker.air, initiator.ownAddressType, parameters, now: now)
    prepareLength(own)
    if isReceived {
      controllers[p].advertisers[set].isEnabled = false
      let advertiser = controllers[p].advertisers[set]
      controllers[p].open(
        peripheral, peers, request.asker, own: address, advertiser.ownAddressType, parameters, now: now)
      if advertiser.handle != nil { controllers[p].reportTermination(advertiser, .success, peripheral, now: now) }
      prepareLength(peers)
    } else {
      medium.links[peers].close()
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
  private mutating func prepareLength(_ end: LinkPlace) {
    let i = medium.links[end].controller.index
    guard controllers[i].has(.leDataPacketLengthExtension) else { return }
    let most = controllers[i].configuration.maximumDataOctets
    medium.links[end].length = DataLength(receive: most, transmit: min(controllers[i].suggestedOctets, most))
    if controllers[i].suggestedOctets > 27 { medium.links[end].startLengthUpdate() }
  }
}

extension VirtualController {
  /// The scan parameters with which this controller hears the advertisement, if it does: legacy PDUs on LE 1M, extended
  /// ones on their primary PHY, and their auxiliary PDUs on the secondary one. Vol 4, Part E, §7.8.64; Vol 6, Part B,
  /// §2.3.4.
  func scan(of advertiser: Advertiser, _ channel: Int, at time: Instant) -> PHYScan? {
    guard scanner.isEnabled, !scanner.isPausing, advertiser.isLegacy || scanner.isExtended,
      advertiser.isLegacy || phys.contains(advertiser.secondaryPHY.set),
      let scan = scanner[advertiser.primaryPHY], scan.listening.hears(channel: channel, at: time)
    else { return nil }
    return scan
  }
  /// Vol 4, Part E, §7.8.66.
  func initiates(_ advertiser: Advertiser, _ channel: Int, at time: Instant) -> Bool {
    guard let listening = initiator?[advertiser.primaryPHY] else { return false }
    return (advertiser.isLegacy || phys.contains(advertiser.secondaryPHY.set))
      && listening.hears(channel: channel, at: time)
  }
  /// Whether the advertiser is one to connect to, and accepts our connection.
  func wants(_ advertiser: Advertiser, _ who: Identified) -> Bool {
    guard let initiator, advertiser.isConnectable, advertiser.isLegacy || initiator.isExtended else { return false }
    guard initiator.peer.map({ $0 == who.identity || $0 == who.air }) ?? accepts(who.identity) else { return false }
    // A connected device is ignored, even if the list contains it. Vol 6, Part B, §4.5.
    if connections.contains(where: { $0.peer == who.identity }) { return false }
    return !advertiser.isDirected || ownIdentity(of: advertiser.peer, initiator.ownAddressType) != nil
  }

  /// The scanning filter policy; nil: the scanner ignores the advertisement. Vol 6, Part B, §4.3.3.
  func target(of advertiser: Advertiser, from who: Identified) -> AdvertisingTarget? {
    if scanner.filterPolicy.usesAcceptList, !(advertiser.isAnonymous ? acceptsAnonymous : accepts(who.identity)) {
      return nil
    }
    guard advertiser.isDirected else { return .anybody }
    if let own = ownIdentity(of: advertiser.peer, scanner.ownAddressType) { return .scanner(own) }
    return scanner.filterPolicy.isExtended && advertiser.peer.isResolvablePrivate ? .unresolved(advertiser.peer) : nil
  }

  /// LE Advertising Report, LE Directed Advertising Report or LE Extended Advertising Report. Vol 4, Part E, §7.7.65.2,
  /// §7.7.65.11 and §7.7.65.13. `isWhole`: there are no further data.
  mutating func report(
    _ advertiser: Advertiser, _ who: Identified, _ target: AdvertisingTarget, isResponse: Bool,
    _ data: ArraySlice<UInt8>, isWhole: Bool, _ strength: Int8, now: Instant
  ) {
    let strength = atAntenna(strength)
    // A host that does not read gets no further reports.
    guard !isBacklogged, scanner.admits(advertiser, who.identity, isResponse: isResponse) else { return }
    do throws(WireError) {
      if !scanner.isExtended {
        if case .unresolved(let target) = target { return try reportDirected(who, target, strength, now: now) }
        return try reportLegacy(advertiser, who, isResponse, Array(data), strength, now: now)
      }
      // As many octets as an event holds.
      var start = 0
      repeat {
        let end = min(start + 229, data.count), isLast = end == data.count
        try reportExtended(
          advertiser, who, target, isResponse, data[start..<end],
          status: !isLast ? .incomplete : isWhole ? .complete : .truncated,
          strength,
          now: now)
        start = end
      } while start < data.count
    } catch {}
  }
  private mutating func reportLegacy(
    _ advertiser: Advertiser, _ who: Identified, _ isResponse: Bool, _ data: [UInt8], _ strength: Int8, now: Instant
  ) throws(WireError) {
    var bytes = data, report = LEAdvertisingReport.Report()
    report.eventType = isResponse ? .scanResponse : advertiser.legacyType
    report.addressType = who.type
    report.address = who.identity.value
    report.data = Octets(0, data.count)
    report.rssi = strength
    var event = LEAdvertisingReport()
    event.reports = try WireList([report], in: &bytes)
    emit(event, from: bytes.span, now: now)
  }
  private mutating func reportDirected(
    _ who: Identified, _ target: AirAddress, _ strength: Int8, now: Instant
  ) throws(WireError) {
    var bytes: [UInt8] = [], report = LEDirectedAdvertisingReport.Report()
    report.addressType = who.type
    report.address = who.identity.value
    report.directAddress = target.value
    report.rssi = strength
    var event = LEDirectedAdvertisingReport()
    event.reports = try WireList([report], in: &bytes)
    emit(event, from: bytes.span, now: now)
  }
  private mutating func reportExtended(
    _ advertiser: Advertiser, _ who: Identified, _ target: AdvertisingTarget, _ isResponse: Bool,
    _ data: ArraySlice<UInt8>, status: AdvertisingDataStatus, _ strength: Int8, now: Instant
  ) throws(WireError) {
    var bytes = Array(data), report = LEExtendedAdvertisingReport.Report()
    report.legacy = advertiser.isLegacy
    report.connectable = advertiser.isConnectable
    report.scannable = advertiser.isScannable
    report.directed = advertiser.isDirected
    report.scanResponse = isResponse
    report.dataStatus = status
    report.addressType = advertiser.isAnonymous ? .anonymous : who.type
    report.address = advertiser.isAnonymous ? DeviceAddress() : who.identity.value
    report.primaryPHY = advertiser.primaryPHY
    if !advertiser.isLegacy {
      report.secondaryPHY = advertiser.secondaryPHY
      report.advertisingSID = advertiser.sid
    }
    if advertiser.tellsPower { report.txPower = advertiser.power }
    report.rssi = strength
    switch target {
    case .anybody: break
    case .scanner(let own):
      report.directAddressType = own.type
      report.directAddress = own.identity.value
    case .unresolved(let target):
      report.directAddressType = .unresolved
      report.directAddress = target.value
    }
    report.data = Octets(0, bytes.count)
    var event = LEExtendedAdvertisingReport()
    event.reports = try WireList([report], in: &bytes)
    emit(event, from: bytes.span, now: now)
  }
  /// A scanner has requested the scan response. Vol 4, Part E, §7.7.65.19.
  mutating func reportScanRequest(_ advertiser: Advertiser, _ scanner: Identified, now: Instant) {
    guard advertiser.reportsScanRequests, let handle = advertiser.handle else { return }
    let event = LEScanRequestReceived.with {
      $0.advertisingHandle = AdvertisingHandle(handle)
      $0.scannerAddressType = scanner.type
      $0.scannerAddress = scanner.identity.value
    }
    emit(event, now: now)
  }
  /// The end of an advertising set's activity. Vol 4, Part E, §7.7.65.18.
  mutating func reportTermination(
    _ advertiser: Advertiser, _ status: HCIStatus, _ connection: ConnectionHandle, now: Instant
  ) {
    let event = LEAdvertisingSetTerminated.with {
      $0.status = status
      $0.advertisingHandle = AdvertisingHandle(advertiser.handle ?? 0)
      $0.connectionHandle = connection
      $0.numCompletedExtendedAdvertisingEvents = UInt8(clamping: advertiser.maximumEvents > 0 ? advertiser.events : 0)
    }
    emit(event, now: now)
  }

  /// A link has begun at this end, with the address `own`.
  mutating func open(
    _ handle: ConnectionHandle, _ end: LinkPlace, _ peer: Identified, own: AirAddress,
    _ ownType: OwnAddressType, _ parameters: LinkParameters, now: Instant
  ) {
    connections.append(Connection(handle: handle, end: end, peer: peer.identity))
    // Only an address that the controller made: the host knows any other. Vol 4, Part E, §7.7.65.10.
    let isMade = ownType.rawValue >= 2 && resolvingList.entries.contains { $0.local.address == own.value }
    reportConnection(
      .success, handle, end.role, peer, local: isMade ? own.value : DeviceAddress(), parameters, now: now)
  }
  /// No link: cancelled, or no connection.
  mutating func reportNoConnection(_ status: HCIStatus, _ role: LinkRole, now: Instant) {
    let none = AirAddress(isRandom: false, DeviceAddress()), nobody = Identified(air: none, identity: none)
    let nothing = LinkParameters(interval: ConnectionInterval(), latency: 0, timeout: SupervisionTimeout())
    reportConnection(status, .absent, role, nobody, local: DeviceAddress(), nothing, now: now)
  }
  /// LE Enhanced Connection Complete if the host has enabled it, else LE Connection Complete. Vol 4, Part E,
  /// §7.7.65.10.
  private mutating func reportConnection(
    _ status: HCIStatus, _ handle: ConnectionHandle, _ role: LinkRole, _ peer: Identified, local: DeviceAddress,
    _ parameters: LinkParameters, now: Instant
  ) {
    if isEnabled(LEEnhancedConnectionComplete.self) {
      let event = LEEnhancedConnectionComplete.with {
        $0.status = status
        $0.connectionHandle = handle
        $0.role = role
        $0.peerAddressType = peer.type
        $0.peerAddress = peer.identity.value
        $0.localResolvablePrivateAddress = local
        $0.peerResolvablePrivateAddress = peer.privateAddress
        $0.connectionInterval = parameters.interval
        $0.peripheralLatency = parameters.latency
        $0.supervisionTimeout = parameters.timeout
      }
      emit(event, now: now)
    } else {
      let event = LEConnectionComplete.with {
        $0.status = status
        $0.connectionHandle = handle
        $0.role = role
        $0.peerAddressType = peer.identity.type
        $0.peerAddress = peer.identity.value
        $0.connectionInterval = parameters.interval
        $0.peripheralLatency = parameters.latency
        $0.supervisionTimeout = parameters.timeout
      }
      emit(event, now: now)
    }
  }
}
extension ConnectionHandle {
  /// For events about no link, which have the field all the same.
  fileprivate static var absent: ConnectionHandle { ConnectionHandle(rawValue: 0) }
}
