import BindruneWire
import DequeModule
import Foundation

@testable import Bindrune
@testable import BindruneBroker

/// A core, and a host that answers every command, one event at a time, about devices that come and go. No time passes
/// in it, and no chance.
struct ModelHost {
  private(set) var core: BrokerCore
  var now = Instant.zero
  /// Devices in range. All have `BrokerWorld.remote`.
  private(set) var present: Set<PeerID> = []
  private(set) var links: [LinkID: PeerID] = [:]
  private(set) var outstanding: [RequestID: HostOperation] = [:]
  private(set) var scans: Set<ScanID> = []
  private(set) var sets: Set<AdvertisingSetID> = []
  private(set) var answers: [ServerRequestID: ServerAnswer] = [:]
  private(set) var ports: Set<PortName> = []
  /// PSMs to which peers may open channels.
  private(set) var listening: Set<UInt16> = []
  /// Those that a session has.
  private(set) var channels: [ArrivedChannel: (session: SessionID, peer: UUID)] = [:]
  /// Those that came and that nobody has got.
  private(set) var dropped = 0
  /// Since they were taken.
  private var delivered: [(SessionID, BrokerEvent)] = []
  private var others: [BrokerEffect] = []
  private enum Event {
    case host(BrokerHostEvent)
    case answer(RequestID)
    case cancelled(RequestID)
    case channel(UInt16, LinkID)
  }
  private var events = Deque<Event>()
  private var lastLink: UInt32 = 0, lastQuestion: UInt32 = 0, lastChannel: UInt64 = 0
  private var arrived: Set<ArrivedChannel> = []
  private(set) var count = 0

  init(_ core: BrokerCore = BrokerCore()) { self.core = core }

  /// What the test does with the core.
  mutating func with<Result>(_ body: (inout BrokerCore, Instant) -> Result) -> Result {
    defer { drain() }
    return body(&core, now)
  }
  mutating func takeDelivered() -> [(SessionID, BrokerEvent)] {
    defer { delivered = [] }
    return delivered
  }
  mutating func takeOthers() -> [BrokerEffect] {
    defer { others = [] }
    return others
  }
  /// The next event of the host; false: there is none.
  mutating func step() -> Bool {
    guard let event = events.popFirst() else { return false }
    count += 1
    switch event {
    case .host(let event): receive(event)
    case .answer(let id): answer(id)
    case .cancelled(let id): finish(id, .failure(BluetoothError(.cancelled, "cancelled")))
    case .channel(let psm, let link):
      // Else the host refuses it.
      guard links[link] != nil, listening.contains(psm) else { break }
      receive(.channelAccepted(newChannel(), psm: psm, link))
    }
    return true
  }
  mutating func runToRest() { while step() {} }
  /// Until there are no timers.
  mutating func passTime() {
    while let deadline = core.deadline {
      now = deadline
      core.expire(now: now)
      drain()
      runToRest()
    }
  }

  // MARK: The air

  mutating func arrive(_ peer: PeerID) {
    guard present.insert(peer).inserted else { return }
    for (id, operation) in outstanding.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
      if case .connect(peer, _) = operation { events.append(.answer(id)) }
    }
  }
  mutating func leave(_ peer: PeerID) {
    present.remove(peer)
    if let link = link(of: peer) { takeDown(link, .connectionTimeout) }
  }
  func link(of peer: PeerID) -> LinkID? { links.first { $0.value == peer }?.key }
  /// A central connects.
  mutating func connectCentral(_ peer: PeerID) -> LinkID { raise(peer, .peripheral) }
  mutating func discover(_ peer: PeerID) {
    for scan in scans.sorted(by: { $0.rawValue < $1.rawValue }) {
      receive(.discovered(scan, peer, DiscoveredPeer(peer: UUID(peer), localName: "Peer", services: ["180D"])))
    }
  }
  mutating func change(_ configuration: ClientCharacteristicConfiguration, of handle: AttributeHandle, on link: LinkID)
  {
    events.append(.host(.subscriptionChanged(link, handle, configuration)))
  }
  mutating func ask(_ handle: AttributeHandle, on link: LinkID, isRead: Bool) {
    lastQuestion += 1
    let id = ServerRequestID(rawValue: lastQuestion)
    events.append(
      .host(
        isRead
          ? .readRequested(id, link, handle, offset: 0)
          : .writeRequested(id, link, [ServerWrite(handle: handle, offset: 0, value: Data([1]))])))
  }
  /// The link's peer opens a channel.
  mutating func openChannel(_ psm: UInt16, on link: LinkID) { events.append(.channel(psm, link)) }
  /// The only service of channels that devices have.
  static var devicePSM: UInt16 { 0x81 }

  /// Requests of clients that nobody has answered.
  var questions: Int { Int(lastQuestion) - answers.count }

  /// The controller is gone.
  mutating func fail() {
    let error = BluetoothError(.transport, "it is gone")
    for id in outstanding.keys.sorted(by: { $0.rawValue < $1.rawValue }) { finish(id, .failure(error)) }
    receive(.failed(error))
  }

  // MARK: The core

  private mutating func receive(_ event: BrokerHostEvent) {
    switch event {
    case .subscriptionChanged(let link, _, _), .readRequested(_, let link, _, _), .writeRequested(_, let link, _):
      if links[link] == nil { return }
    case .advertisingStarted(let set): if !sets.contains(set) { return }
    default: break
    }
    core.receive(event, now: now)
    drain()
    // As the driver does with those that are neither lent nor dropped.
    dropped += arrived.count
    arrived = []
  }
  private mutating func newChannel() -> ArrivedChannel {
    lastChannel += 1
    let new = ArrivedChannel(rawValue: lastChannel)
    arrived.insert(new)
    return new
  }
  private mutating func drain() {
    while let effect = core.nextEffect() {
      switch effect {
      case .open: events.append(.host(.opened(advertisingSets: 4)))
      case .close:
        forget()
        events.append(.host(.closed))
      case .host(let command): carryOut(command)
      case .deliver(let session, let event): delivered.append((session, event))
      case .lendPort(let name, _): ports.insert(name)
      case .takePort(let name): ports.remove(name)
      case .takePorts(let session): ports = ports.filter { $0.session != session }
      case .lendChannel(let channel, let session, let use):
        guard arrived.remove(channel) != nil else { continue }
        switch use {
        case .opened(_, let peer): channels[channel] = (session, peer)
        case .accepted(let central, _): channels[channel] = (session, central)
        }
      case .dropChannel(let channel): if arrived.remove(channel) != nil { dropped += 1 }
      case .endChannels(let session, let peer):
        channels = channels.filter { $0.value.session != session || $0.value.peer != peer }
      case .retire, .hold, .wake, .alert: others.append(effect)
      case .log: break
      }
    }
    // A session that has been closed keeps none.
    ports = ports.filter { core.isKnown($0.session) }
    channels = channels.filter { core.isKnown($0.value.session) }
  }
  private mutating func carryOut(_ command: HostCommand) {
    switch command {
    case .begin(let id, let operation, _):
      outstanding[id] = operation
      if case .connect(let peer, _) = operation, !present.contains(peer) { return }
      events.append(.answer(id))
    case .cancel(let id): events.append(.cancelled(id))
    case .beginScan(let id, _, _): scans.insert(id)
    case .endScan(let id): scans.remove(id)
    case .advertise(let set, _, _):
      sets.insert(set)
      events.append(.host(.advertisingStarted(set)))
    case .stopAdvertising(let set): sets.remove(set)
    case .answer(let id, _, let answer): answers[id] = answer
    case .listen(let id, _):
      // The host listens at once; the answer is an event.
      let psm = (0x80...0xFF).first { !listening.contains($0) }
      if let psm { listening.insert(psm) }
      events.append(
        .host(.listening(id, psm.map { .success($0) } ?? .failure(BluetoothError(.invalidArgument, "no PSM")))))
    case .stopListening(let psm): listening.remove(psm)
    case .insert, .remove, .setValue, .setEnabled: break
    }
  }
  private mutating func finish(_ id: RequestID, _ result: Result<HostAnswer, BluetoothError>) {
    if outstanding.removeValue(forKey: id) != nil { receive(.completed(id, result)) }
  }
  private mutating func answer(_ id: RequestID) {
    guard let operation = outstanding[id] else { return }
    if case .connect(let peer, _) = operation {
      guard present.contains(peer) else { return }
      if link(of: peer) != nil { return finish(id, .failure(BluetoothError(.busy, "there is a link"))) }
      _ = raise(peer, .central)
      return finish(id, .success(.linked(peer)))
    }
    guard let link = operation.link, links[link] != nil else {
      return finish(id, .failure(BluetoothError(.disconnected, "the link is down")))
    }
    switch operation {
    case .disconnect: takeDown(link, .connectionTerminatedByLocalHost)
    case .readRSSI: finish(id, .success(.rssi(-40)))
    case .discoverServices, .discoverIncludedServices, .discoverCharacteristics, .discoverDescriptors, .discoverAll:
      finish(id, .success(.database(BrokerWorld.remote)))
    case .read: finish(id, .success(.value(Array("Name".utf8))))
    case .openChannel(_, let psm, _, _):
      guard psm.rawValue == Self.devicePSM else {
        return finish(id, .failure(BluetoothError(.refused, "SPSM not supported")))
      }
      finish(id, .success(.channel(newChannel())))
    default: finish(id, .success(.done))
    }
  }
  private mutating func raise(_ peer: PeerID, _ role: LinkRole) -> LinkID {
    lastLink += 1
    let link = LinkID(rawValue: lastLink)
    links[link] = peer
    receive(.linkUp(link, peer, role, mtu: 100))
    return link
  }
  private mutating func forget() {
    events = []
    links = [:]
    outstanding = [:]
    scans = []
    sets = []
    listening = []
    channels = [:]
  }
  /// Requests on the link end first.
  private mutating func takeDown(_ link: LinkID, _ reason: HCIStatus) {
    for (id, operation) in outstanding.sorted(by: { $0.key.rawValue < $1.key.rawValue }) where operation.link == link {
      if case .disconnect = operation {
        finish(id, .success(.done))
      } else {
        finish(id, .failure(BluetoothError(.disconnected, "the link is down")))
      }
    }
    if let peer = links.removeValue(forKey: link) { channels = channels.filter { $0.value.peer != UUID(peer) } }
    receive(.linkDown(link, reason))
  }
}
