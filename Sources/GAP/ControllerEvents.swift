import BasicContainers
import BindruneWire
import BindruneHCI

// What the controller says, and which part of the host it is for: indications of HCI, ends of commands, events.
extension HostCore {
  /// Who has sent a command: the upper half of its tag. The lower half is a connection handle, or an advertising
  /// handle, or the number of an application's command, if there is one.
  enum Sender: UInt16, BitwiseCopyable {
    case scanner = 1
    case advertiser
    case connections
    case address
    case disconnect
    case unanswered
    case update
    case privacy
    case rssi
    case phys
    case phyUpdate
    case defaultPHYs
    case application
    case encryption
    case parametersReply
    case dataLength
    case features

    var tag: UInt32 { UInt32(rawValue) << 16 }
    func tag(_ number: UInt16) -> UInt32 { tag | UInt32(number) }
    func tag(_ link: ConnectionHandle) -> UInt32 { tag(link.rawValue) }
    /// An application asked for the command, and learns that it has failed.
    var mayFail: Bool {
      switch self {
      case .rssi, .phys, .phyUpdate, .defaultPHYs, .features, .application: true
      case .scanner, .advertiser, .connections, .address, .disconnect, .unanswered, .update, .privacy, .encryption,
        .parametersReply, .dataLength:
        false
      }
    }
  }

  // MARK: The controller itself

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
    connections.list.size = info.filterAcceptListSize
    privacy.start(listSize: info.resolvingListSize, now: now)
    let isRandom = info.needsRandomAddress
    identityAddress = PeerAddress(
      isRandom ? configuration.randomStaticAddress : info.address, isRandom ? .random : .public)
    use(privacy.makeAddress(not: info.address).map { PeerAddress($0, .random) } ?? identityAddress)
    guard ownAddress.isRandom else { return run() }
    let command = LESetRandomAddress.with { $0.randomAddress = ownAddress.address }
    hci.withCause(hci.startCause) { $0.send(command, tag: Sender.address.tag, mayBeRefused: false, now: now) }
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

  // MARK: Ends of commands

  private mutating func handle(_ outcome: CommandOutcome, in packet: Span<UInt8>, _ now: Instant) {
    let sender = Sender(rawValue: UInt16(truncatingIfNeeded: outcome.tag >> 16))
    let handle = ConnectionHandle(rawValue: UInt16(truncatingIfNeeded: outcome.tag)),
      isDone = outcome.status == .success
    // The queue had no room for a command of the core's own: the controller accepts none, and our state and its state
    // differ from now on.
    if outcome.ending == .aborted, sender?.mayFail != true { return controllerFailed(.memoryCapacityExceeded, now) }
    switch sender {
    case .scanner: report(scanner.completed(outcome, hci: &hci, now: now), now)
    case .advertiser:
      advertiser.completed(outcome, hci: &hci, now: now)
      reportAdvertising()
    case .connections:
      connections.answered(outcome, hci: &hci, now: now)
      reportFailedConnections()
    case .address: addressSet(outcome)
    case .privacy: privacyChanged(outcome)
    // An event follows a command that the controller has accepted.
    case .disconnect: if !isDone { disconnectRefused(handle, outcome, now) }
    case .update: if !isDone { updateRefused(handle, outcome.status, now) }
    case .parametersReply: if !isDone { peersUpdateEnded(handle) }
    case .phyUpdate: if !isDone { phyUpdateEnded(handle, .failed(outcome.failure(of: .setPHYs))) }
    case .encryption: if !isDone { encryptionRefused(handle, outcome, now) }
    case .dataLength: procedureEnded(.dataLengthUpdate, handle)
    case .rssi: rssiRead(outcome, handle, in: packet)
    case .phys: physRead(outcome, handle, in: packet)
    case .defaultPHYs: defaultPHYsSet(outcome)
    case .features: if !isDone { featuresRefused(outcome, handle) }
    case .application: applicationCommandEnded(outcome, in: packet)
    case .unanswered, nil: break
    }
  }
  /// Without an address of its own a controller can neither advertise nor connect: Vol 4, Part E, §7.8.4.
  private mutating func addressSet(_ outcome: CommandOutcome) {
    guard phase == .settingAddress else { return }
    if outcome.status == .success { return run() }
    startFailed(outcome.timedOut ? .timedOut(outcome.opcode) : .refused(outcome.opcode, outcome.status))
  }

  // MARK: Events

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
    case .disconnectionComplete(let event):
      if event.status == .success { linkDown(event.connectionHandle, event.reason, now) }
    case .leConnectionUpdateComplete(let event):
      updateComplete(
        event.status, event.connectionHandle,
        ConnectionParameters(event.connectionInterval, event.peripheralLatency, event.supervisionTimeout), now)
    case .lePHYUpdateComplete(let event): phyUpdateComplete(event)
    case .leDataLengthChange(let event): dataLengthChanged(event)
    case .leReadRemoteFeaturesComplete(let event):
      featuresRead(event.connectionHandle, event.status, RemoteFeatures(event.leFeatures))
    case .leReadAllRemoteFeaturesComplete(let event):
      featuresRead(event.connectionHandle, event.status, RemoteFeatures(event.leFeatures.array(in: packet)))
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
    // Of no consequence here: HCI has handled the answers and credits, and the host asks for none of the others.
    case .readRemoteVersionInformationComplete, .commandComplete, .commandStatus, .numberOfCompletedPackets,
      .dataBufferOverflow, .leDirectedAdvertisingReport, .leScanTimeout, .leScanRequestReceived, .unknownLE, .vendor,
      .unknown:
      break
    }
  }
}
