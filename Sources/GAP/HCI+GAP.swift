import ATT
import BasicContainers
import BindruneWire
import GATT
import HCI

// The controller's commands and events, and the GAP machines that use them: Vol 3, Part C, §9.
extension HostCore {
  /// The sender of a command; the lower 16 bits are a connection handle, or an advertising handle, if there is one.
  enum Tag {
    static var scanner: UInt32 { 0x1_0000 }
    static var advertiser: UInt32 { 0x2_0000 }
    static var connections: UInt32 { 0x3_0000 }
    static var address: UInt32 { 0x4_0000 }
    static var disconnect: UInt32 { 0x5_0000 }
    static var unanswered: UInt32 { 0x6_0000 }
    static var update: UInt32 { 0x7_0000 }
    static var privacy: UInt32 { 0x8_0000 }
    static var rssi: UInt32 { 0x11_0000 }
    static var phys: UInt32 { 0x12_0000 }
    static var phyUpdate: UInt32 { 0x13_0000 }
    static var defaultPHYs: UInt32 { 0x14_0000 }
    static var application: UInt32 { 0x15_0000 }
    static var encryption: UInt32 { 0x16_0000 }
    static var parametersReply: UInt32 { 0x17_0000 }
    /// An application asked for the command, and learns that it has failed.
    static func mayFail(_ sender: UInt32) -> Bool {
      switch sender {
      case rssi, phys, phyUpdate, defaultPHYs, application: true
      default: false
      }
    }
  }

  // MARK: From above

  /// Begins with `.scanStarted`, or ends with `.scanFailed`; `.discovered` follows for each device that meets `filter`.
  /// A call with the same id restarts the scan, and reports devices again. Scans with different ids run concurrently;
  /// each reports what its caller asked for, regardless of the others.
  public mutating func startScan(
    _ parameters: ScanParameters = ScanParameters(), filter: ScanFilter = ScanFilter(),
    id: ScanID = ScanID(rawValue: 0), now: Instant
  ) {
    if phase == .running, parameters.isValid {
      scans.begin(id, parameters, filter)
    } else {
      scans.end(id)
      emit(.scanFailed(id, phase == .running ? .invalidHCICommandParameters : .commandDisallowed))
    }
    scan(now)
  }
  /// Emits `.scanStopped`; no discovery of this scan follows.
  public mutating func stopScan(id: ScanID = ScanID(rawValue: 0), now: Instant) {
    scans.end(id)
    emit(.scanStopped(id))
    scan(now)
  }
  /// Brings the controller to the union of all scans.
  private mutating func scan(_ now: Instant) {
    guard phase == .running else { return }
    wantScan(now)
    drain(now)
  }
  mutating func wantScan(_ now: Instant) {
    report(scanner.want(scans.merged ?? (privacy.seeking == .scanning ? .seeking : nil), hci: &hci, now: now), now)
  }

  /// Advertises, concurrently with other numbers, up to `ControllerInfo.maximumAdvertisingSets` sets at once. Ends with
  /// `.advertisingStarted` or `.advertisingFailed`; `.advertisingStopped` follows at the end. Of several calls in a row
  /// for one number the last one prevails, and has the one outcome; a duration or a number of events restarts. If only
  /// data of up to 251 octets change, advertising continues without a gap. Returns what is sent and what is left out.
  @discardableResult
  public mutating func advertise(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters(),
    as id: AdvertisingSetID = .first, now: Instant
  ) throws(AdvertisingError) -> PackedAdvertisement {
    try advertise([parameters.source(of: data)], parameters, as: id, now: now)
  }
  /// The same for the data of several applications in one advertisement, which share its room. The sources say which of them are
  /// in the background, and `parameters` need not.
  @discardableResult
  public mutating func advertise(
    _ sources: [AdvertisingPacker.Source], _ parameters: AdvertisingParameters, as id: AdvertisingSetID = .first,
    now: Instant
  ) throws(AdvertisingError) -> PackedAdvertisement {
    try parameters.check(usesExtendedCommands: controller?.usesExtendedCommands == true)
    let packed = try packed(sources, parameters)
    guard phase == .running, privacy.permitsConnections || !parameters.kind.isConnectable else {
      emit(.advertisingFailed(id, .commandDisallowed))
      return packed
    }
    try advertiser.advertise(packed.payloads, parameters, as: id, hci: &hci, now: now)
    drain(now)
    return packed
  }
  /// Changes the data of an advertising set; its duration and its number of events continue. Ends as `advertise` does.
  @discardableResult
  public mutating func setAdvertisingData(
    _ data: AdvertisingData, of id: AdvertisingSetID = .first, now: Instant
  ) throws(AdvertisingError) -> PackedAdvertisement {
    guard let parameters = advertiser.parameters(of: id) else { throw .notAdvertising(id) }
    let packed = try packed([parameters.source(of: data)], parameters)
    advertiser.change(id, packed.payloads, hci: &hci, now: now)
    drain(now)
    return packed
  }
  private func packed(
    _ sources: [AdvertisingPacker.Source], _ parameters: AdvertisingParameters
  ) throws(AdvertisingError) -> PackedAdvertisement {
    do throws(AdvertisingDataError) { return try pack(sources, parameters) } catch { throw .data(error) }
  }
  /// What `advertise` would send on this controller, and what it would leave out.
  public func pack(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) throws(AdvertisingDataError) -> PackedAdvertisement {
    try pack([parameters.source(of: data)], parameters)
  }
  private func pack(
    _ sources: [AdvertisingPacker.Source], _ parameters: AdvertisingParameters
  ) throws(AdvertisingDataError) -> PackedAdvertisement {
    // ADV_DIRECT_IND has no data.
    if parameters.kind.peer != nil { return PackedAdvertisement(advertising: 0, scanResponse: 0) }
    let isExtended = controller?.usesExtendedCommands == true
    if !isExtended, parameters.maximumEvents != nil { throw .extendedUnavailable }
    let packer = AdvertisingPacker(
      parameters.policy, kind: parameters.kind,
      longestExtended: isExtended ? controller?.maximumAdvertisingDataLength : nil)
    let packed = packer.pack(sources)
    if parameters.policy == .everything, !packed.missed.isEmpty { throw .leftOut(packed.missed) }
    return packed
  }
  /// How many sets this controller advertises at once: at most 16, by their SIDs.
  public var maximumAdvertisingSets: Int { advertiser.capacity }
  /// Ends with `.advertisingStopped`.
  public mutating func stopAdvertising(_ id: AdvertisingSetID = .first, now: Instant) {
    advertiser.stop(id, hci: &hci, now: now)
    drain(now)
  }

  /// Ends with `.completed(id, …)`, after `.linkUp` if it succeeds. Any number of requests may wait, for 1,024 peers at
  /// most; an absent peer delays no other. Without `timeout` it waits without limit. `.busy`: there is a link with this
  /// peer already, or a request for one, or too many peers are wanted.
  public mutating func connect(
    to peer: PeerAddress, _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil, id: RequestID,
    now: Instant
  ) {
    connect(to: [peer], parameters, timeout: timeout, id: id, now: now)
  }
  /// Connects to a peer by its identity address, or by the address by which it became known.
  public mutating func connect(
    to peer: PeerID, _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil, id: RequestID,
    now: Instant
  ) {
    connect(to: [peers.address(of: peer)], parameters, timeout: timeout, id: id, now: now)
  }
  /// Connects to the first of `peers` that is reached, and to no other.
  public mutating func connect(
    to peers: [PeerAddress], _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil, id: RequestID,
    now: Instant
  ) {
    guard phase == .running else { return emit(.completed(id, .failed(.notStarted))) }
    guard !peers.isEmpty, parameters.isValid else {
      return emit(.completed(id, .failed(.invalidParameters)))
    }
    if !privacy.permitsConnections {
      return emit(.completed(id, .failed(.refused(.connect, .commandDisallowed))))
    }
    var different: [PeerAddress] = []
    for address in peers {
      let peer = privacy.identities.resolve(address) ?? address
      if upper.contains(address: peer) { return emit(.completed(id, .failed(.busy))) }
      if !different.contains(peer) { different.append(peer) }
    }
    let request = Connections.Request(
      id: id, peers: different, onAir: different.map { addressToConnect(to: $0) }, parameters: parameters,
      deadline: timeout.map { now + $0 }, cause: hci.cause)
    if !connections.connect(request, hci: &hci, now: now) { emit(.completed(id, .failed(.busy))) }
    drain(now)
  }

  /// Ends the request if it has not ended yet: exactly one completion in any case. The host disconnects a link that
  /// still comes up, without an effect.
  public mutating func cancel(_ id: RequestID, now: Instant) {
    if applicationCommands.cancel(id) { return emit(.completed(id, .failed(.cancelled))) }
    if connections.cancel(id, hci: &hci, now: now) {
      emit(.completed(id, .failed(.cancelled)))
      return drain(now)
    }
    for index in 0..<upper.links.count {
      if let place = upper.links[index].disconnectRequests.firstIndex(of: id) {
        upper.links[index].disconnectRequests.remove(at: place)
        return emit(.completed(id, .failed(.cancelled)))
      }
      if cancelUpdate(id, at: index) { return }
      if upper.links[index].requests.remove(id) { return emit(.completed(id, .failed(.cancelled))) }
      upper.links[index].client.cancel(id)
      collect(at: index)
    }
  }

  private mutating func report(_ outcome: Scanner.Outcome?, _ now: Instant) {
    switch outcome {
    case .started: for id in scans.start() { emit(.scanStarted(id)) }
    case .failed(let status):
      for id in scans.removeAll() { emit(.scanFailed(id, status)) }
      pauseSeeking(status, now)
    case nil: break
    }
  }
  mutating func reportAdvertising() {
    while let (id, outcome) = advertiser.nextOutcome() {
      switch outcome {
      case .started: emit(.advertisingStarted(id))
      case .ended(let reason): emit(.advertisingStopped(id, reason))
      case .failed(let status): emit(.advertisingFailed(id, status))
      }
    }
  }

  mutating func reportFailedConnections() {
    while let (id, failure) = connections.nextFailure() { emit(.completed(id, .failed(failure))) }
  }

  // MARK: From the controller

  mutating func handle(_ indication: HCIIndication, in packet: Span<UInt8>, _ now: Instant) {
    switch indication {
    case .nothing, .acl: break
    case .event(let event): if phase == .running { handle(event, in: packet, now) }
    // Commands of a controller's earlier start have no caller any more.
    case .command(let outcome): if phase == .running || phase == .settingAddress { handle(outcome, in: packet, now) }
    case .started(let info): started(info, now)
    case .startFailed(let failure): startFailed(failure)
    case .violation(let violation):
      emit(.violation(nil, .hci(violation)))
      // The controller's links and ours differ from now on.
      if case .handleInUse = violation, phase == .running { controllerFailed(.unspecifiedError, now) }
    }
  }

  private mutating func started(_ info: ControllerInfo, _ now: Instant) {
    controller = info
    // All commands of one kind: Vol 4, Part E, §3.1.1.
    advertiser.prepare(info)
    scanner.usesExtendedCommands = info.usesExtendedCommands
    connections.usesExtendedCommands = info.usesExtendedCommands
    connections.acceptListSize = info.filterAcceptListSize
    privacy.start(listSize: info.resolvingListSize, now: now)
    let isRandom = info.needsRandomAddress
    identityAddress = PeerAddress(
      isRandom ? configuration.randomStaticAddress : info.address, isRandom ? .random : .public)
    use(privacy.makeAddress(not: info.address).map { PeerAddress($0, .random) } ?? identityAddress)
    guard ownAddress.isRandom else { return run() }
    let command = LESetRandomAddress.with { $0.randomAddress = ownAddress.address }
    hci.send(command, tag: Tag.address, mayBeRefused: false, now: now)
    phase = .settingAddress
  }
  private mutating func run() {
    phase = .running
    emit(.started)
  }
  private mutating func startFailed(_ failure: StartFailure) {
    phase = .stopped
    emit(.startFailed(failure))
  }
  /// The controller's state is unknown: only a reset helps, which the driver decides.
  private mutating func controllerFailed(_ status: HCIStatus, _ now: Instant) {
    emit(.controllerFailed(status))
    dropEverything(now)
  }

  private mutating func handle(_ outcome: CommandOutcome, in packet: Span<UInt8>, _ now: Instant) {
    let handle = ConnectionHandle(rawValue: UInt16(truncatingIfNeeded: outcome.tag)), sender = outcome.tag & 0xFFFF_0000
    // The queue had no room for a command of the core's own: the controller accepts none, and our state and its state
    // differ from now on.
    if outcome.ending == .aborted, !Tag.mayFail(sender) { return controllerFailed(.memoryCapacityExceeded, now) }
    switch sender {
    case Tag.scanner: report(scanner.completed(outcome, hci: &hci, now: now), now)
    case Tag.advertiser:
      advertiser.completed(outcome, hci: &hci, now: now)
      reportAdvertising()
    case Tag.connections:
      connections.answered(outcome, hci: &hci, now: now)
      reportFailedConnections()
    case Tag.address where phase == .settingAddress:
      // Without an address of its own a controller can neither advertise nor connect: Vol 4, Part E, §7.8.4.
      if outcome.status == .success {
        run()
      } else {
        startFailed(outcome.timedOut ? .timedOut(outcome.opcode) : .refused(outcome.opcode, outcome.status))
      }
    case Tag.privacy: privacyChanged(outcome)
    case Tag.disconnect where outcome.status != .success: disconnectRefused(handle, outcome, now)
    case Tag.update where outcome.status != .success: updateRefused(handle, outcome.status, now)
    case Tag.parametersReply where outcome.status != .success: peersUpdateEnded(handle)
    case Tag.rssi: rssiRead(outcome, handle, in: packet)
    case Tag.phys: physRead(outcome, handle, in: packet)
    case Tag.phyUpdate where outcome.status != .success:
      phyUpdateEnded(handle, .failed(outcome.failure(of: .setPHYs)))
    case Tag.defaultPHYs: defaultPHYsSet(outcome)
    case Tag.encryption where outcome.status != .success:
      encryptionRefused(handle, outcome, now)
    case Tag.application: applicationCommandEnded(outcome, in: packet)
    default: break
    }
  }

  private mutating func handle(_ event: HCIEvent, in packet: Span<UInt8>, _ now: Instant) {
    switch event {
    case .leAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while let report = cursor.next(in: packet) { hear(report, in: packet, now) }
    case .leExtendedAdvertisingReport(let event):
      var cursor = event.reports.cursor
      while let report = cursor.next(in: packet) { hear(report, in: packet, now) }
    case .leConnectionComplete(let event):
      let names = identify(event.peerAddress, event.peerAddressType, now)
      connectionComplete(
        event.status, event.connectionHandle, event.role, names.address, onAir: names.onAir,
        ConnectionParameters(event.connectionInterval, event.peripheralLatency, event.supervisionTimeout), now)
    case .leEnhancedConnectionComplete(let event):
      let names = identify(event.peerAddress, event.peerAddressType, now), other = event.peerResolvablePrivateAddress
      connectionComplete(
        event.status, event.connectionHandle, event.role, names.address,
        onAir: other.value == 0 ? names.onAir : PeerAddress(other, .random),
        ConnectionParameters(event.connectionInterval, event.peripheralLatency, event.supervisionTimeout), now)
    case .disconnectionComplete(let event) where event.status == .success:
      linkDown(event.connectionHandle, event.reason, now)
    case .leConnectionUpdateComplete(let event):
      updateComplete(
        event.status, event.connectionHandle,
        ConnectionParameters(event.connectionInterval, event.peripheralLatency, event.supervisionTimeout), now)
    case .lePHYUpdateComplete(let event): phyUpdateComplete(event)
    case .leDataLengthChange(let event): dataLengthChanged(event)
    case .leAdvertisingSetTerminated(let event):
      if event.status == .success { linkUp(event.connectionHandle, from: event.advertisingHandle.number) }
      advertiser.terminated(event.advertisingHandle.number, event.status, hci: &hci, now: now)
      reportAdvertising()
    case .leRemoteConnectionParameterRequest(let event): answer(event, now)
    case .leLongTermKeyRequest(let event): answer(event, now)
    case .encryptionChange(let event):
      encryptionChanged(event.connectionHandle, event.status, isOn: event.encryptionEnabled != 0, now)
    case .encryptionChangeV2(let event):
      encryptionChanged(event.connectionHandle, event.status, isOn: event.encryptionEnabled != 0, now)
    case .authenticatedPayloadTimeoutExpired(let event): authenticationTimedOut(event.connectionHandle, now)
    case .encryptionKeyRefreshComplete(let event):
      encryptionChanged(event.connectionHandle, event.status, isOn: true, now)
    case .hardwareError(let event):
      emit(.violation(nil, .hardwareError(event.hardwareCode)))
      controllerFailed(.hardwareFailure, now)
    default: break
    }
  }

  // MARK: Reports

  private mutating func hear(_ report: LEAdvertisingReport.Report, in packet: Span<UInt8>, _ now: Instant) {
    let type = report.eventType, names = identify(report.address, report.addressType, now)
    hear(
      AdvertisementReport(
        address: names.address, addressOnAir: names.onAir,
        isConnectable: type == .connectableScannableUndirected || type == .connectableDirected,
        isScannable: type == .connectableScannableUndirected || type == .scannableUndirected,
        isScanResponse: type == .scanResponse, isDirected: type == .connectableDirected, isLegacy: true,
        isTruncated: false, rssi: report.rssi == 127 ? nil : report.rssi),
      report.data.array(in: packet), now)
  }
  private mutating func hear(_ report: LEExtendedAdvertisingReport.Report, in packet: Span<UInt8>, _ now: Instant) {
    guard let joined = scanner.joiner.take(report, in: packet) else { return }
    let names = identify(report.address, report.addressType, now)
    hear(
      AdvertisementReport(
        address: names.address, addressOnAir: names.onAir, isConnectable: report.connectable,
        isScannable: report.scannable,
        isScanResponse: report.scanResponse, isDirected: report.directed, isLegacy: report.legacy,
        isTruncated: joined.isTruncated, rssi: report.rssi == 127 ? nil : report.rssi),
      joined.earlier + joined.data.array(in: packet), now)
  }
  /// Receives every complete report.
  private mutating func hear(_ report: AdvertisementReport, _ octets: [UInt8], _ now: Instant) {
    // The report crossed the end of the last scan.
    if scans.isEmpty { return }
    scans.hear(HeardPDU(report: report, octets: octets), now: now)
    reportDiscoveries()
  }
  mutating func reportDiscoveries() {
    for pending in scans.takeDiscoveries() {
      let scanResponse = pending.scanResponse ?? [], split = pending.advertising.count
      let range = upper.batch.keep(pending.advertising.span, scanResponse.span)
      var discovery = pending.discovery
      discovery.peer = peers.id(of: discovery.address)
      discovery.advertising = Octets(Int(range.offset), split)
      discovery.scanResponse = pending.scanResponse.map { Octets(Int(range.offset) + split, $0.count) }
      for id in pending.scans { emit(.discovered(id, discovery)) }
    }
  }
}
