import BasicContainers
import BindruneWire
import HCI

// What the controller says, and which part of the host it is for: indications of HCI, ends of commands, events.
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

  // MARK: Ends of commands

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
}
