import BindruneWire
import Foundation
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// A `BrokerCore`, sessions with random requests, and a model of a host that answers, delays, refuses and fails at any
/// step. Every effect of the core is checked against the requests and events before it.
struct BrokerWorld {
  private(set) var core: BrokerCore
  private(set) var sessions: [SessionModel] = []
  private let faults = Faults()
  /// The faults found, as texts.
  var wrongs: [String] { faults.all }
  /// All effects, for comparing two runs.
  private(set) var trace: [String]?
  /// How many operations have succeeded, and how many links came up: a run without them proves nothing.
  private(set) var successes = 0, linksUp = 0, deaths = 0
  private var chance: SplitMix64
  private var now = Instant.zero
  private var events: [(at: Instant, order: Int, event: Event)] = []
  private var order = 0
  /// From now on the host refuses, loses and ends nothing.
  private var isCalm = false

  // The host.
  private enum Life { case none, opening, running, closing }
  private var life = Life.none
  private var links: [LinkID: PeerID] = [:]
  private var mtus: [LinkID: Int] = [:]
  private var outstanding: [RequestID: HostOperation] = [:]
  private var scans: Set<ScanID> = []
  private var sets: Set<AdvertisingSetID> = []
  private var mostSets = 1
  private var questions: [ServerRequestID: LinkID] = [:]
  private var subscribed: Set<Subscription> = []
  private var served = Set<AttributeHandle>()
  private var listening: Set<UInt16> = [], listens: [RequestID: UInt16] = [:]
  /// Channels that are neither lent nor dropped.
  private var arrived: Set<ArrivedChannel> = []
  private(set) var lent = 0
  private var lastLink: UInt32 = 0, lastQuestion: UInt32 = 0, lastCommand: UInt64 = 0, lastChannel: UInt64 = 0
  private struct Subscription: Hashable { let link: LinkID, handle: AttributeHandle }

  private enum Event {
    case host(BrokerHostEvent)
    case answer(RequestID)
    case linkDown(LinkID, HCIStatus)
    case listening(RequestID)
    case unanswered(ServerRequestID)
  }

  static let peers = (1...6).map { PeerID(PeerAddress(DeviceAddress(0xC000_0000_0000 + UInt64($0)), .random)) }
  /// The peers in range.
  static let present = peers.prefix(4)
  static let remote: RemoteDatabase = {
    let text = """
      bindrune-gatt 2
      hash 00112233445566778899AABBCCDDEEFF
      service 0001 0004 primary 1801
      service 0005 0009 primary 1800
      service 0010 0020 primary 180D
      characteristic 0006 0007 0007 02 2A00
      characteristic 0011 0012 0013 10 2A37
      characteristic 0014 0015 0020 0A 2A39
      descriptor 0013 2902
      end 9
      """
    do { return try RemoteDatabase(cacheText: text) } catch { fatalError("\(error)") }
  }()

  struct SessionModel {
    let id: SessionID
    var isOpen = true
    var isPoweredOn = false
    /// Unanswered operations, and their peers.
    var waiting: [OperationID: UUID?] = [:]
    var asked: Set<UUID> = []
    var connected: Set<UUID> = []
    /// The longest write without response to each connected peer, as last reported.
    var longestWrites: [UUID: Int] = [:]
    var hasScanned = false
    var services: [PublishedService] = []
    /// Unanswered requests of clients.
    var requests: [ServerRequest: UUID] = [:]
    var psms: Set<UInt16> = []
    var ports: Set<PortName> = []
    var values: Set<AttributeHandle> { Set(services.flatMap { $0.characteristics.map(\.value) }) }
  }

  init(seed: UInt64, isTraced: Bool = false) {
    chance = SplitMix64(seed: seed)
    core = BrokerCore()
    trace = isTraced ? [] : nil
    for _ in 0..<Int.random(in: 1...5, using: &chance) { addSession() }
  }

  // MARK: Running

  mutating func run(steps: Int) {
    for _ in 0..<steps {
      if Int.random(in: 0..<3, using: &chance) == 0 { pass() } else { act() }
      if !faults.all.isEmpty { return }
    }
    calmDown()
  }
  private mutating func chanceOf(_ number: Int) -> Bool { Int.random(in: 0..<number, using: &chance) == 0 }

  /// Advances to the next timer; false if there is none.
  @discardableResult
  private mutating func pass() -> Bool {
    let next = events.min { ($0.at, $0.order) < ($1.at, $1.order) }
    guard let at = [next?.at, core.deadline].compactMap({ $0 }).min() else { return false }
    now = max(now, at)
    if let deadline = core.deadline, deadline <= now {
      core.expire(now: now)
      faults.expect(core.deadline.map { $0 > now } ?? true, "a timer that has expired is still due")
    } else if let next {
      events.removeAll { $0.order == next.order }
      happen(next.event)
    }
    drain()
    return true
  }
  private mutating func later(_ event: Event, within longest: Int = 500) {
    order += 1
    events.append((now + .milliseconds(Int.random(in: 0...longest, using: &chance)), order, event))
  }

  // MARK: Sessions

  private mutating func addSession() {
    let id = SessionID(rawValue: sessions.count + 1)
    sessions.append(SessionModel(id: id))
    core.add(id, now: now)
    drain()
  }
  private mutating func close(_ index: Int) {
    sessions[index].isOpen = false
    sessions[index].ports = []
    core.remove(sessions[index].id, now: now)
    drain()
  }
  private mutating func ask(_ request: BrokerRequest, of index: Int) {
    core.request(request, of: sessions[index].id, now: now)
    drain()
  }
  private mutating func newOperation(of index: Int, about peer: UUID?) -> OperationID {
    order += 1
    let id = OperationID(rawValue: UInt64(order))
    sessions[index].waiting[id] = .some(peer)
    return id
  }

  /// One request of one session.
  private mutating func act() {
    let open = sessions.indices.filter { sessions[$0].isOpen }
    guard let index = open.randomElement(using: &chance) else { return addSession() }
    let peer = UUID(Self.peers.randomElement(using: &chance)!), flag = Bool.random(using: &chance)
    let handle = AttributeHandle(rawValue: [0x01, 0x07, 0x10, 0x12, 0x15].randomElement(using: &chance)!)
    func central(_ request: BrokerRequest.Central) { ask(.central(request), of: index) }
    func peripheral(_ request: BrokerRequest.Peripheral) { ask(.peripheral(request), of: index) }
    func operation() -> OperationID { newOperation(of: index, about: peer) }
    switch Int.random(in: 0..<44, using: &chance) {
    case 0: if open.count > 1 || chanceOf(4) { close(index) }
    case 1: if sessions.count < 40 { addSession() }
    case 2...9:
      sessions[index].asked.insert(peer)
      central(.connect(peer, ConnectOptions(startDelay: chanceOf(4) ? 2 : 0, reconnects: flag)))
    case 10, 11: central(.cancelConnection(peer))
    case 12:
      sessions[index].hasScanned = true
      central(.scan(services: flag ? ["180D"] : [], solicitedServices: flag ? ["1805"] : [], allowsDuplicates: flag))
    case 13: central(.stopScan)
    case 14: central(.readRSSI(operation(), peer))
    case 15, 16: central(.discoverServices(operation(), peer, flag ? ["180D", "1800"] : nil))
    case 17: central(.discoverCharacteristics(operation(), peer, handle, nil))
    case 18: central(.discoverIncludedServices(operation(), peer, handle, nil))
    case 19: central(.discoverDescriptors(operation(), peer, handle))
    case 20: central(.read(operation(), peer, handle))
    case 21: central(.write(operation(), peer, handle, Data([1])))
    case 22...26: central(.setNotifying(operation(), peer, handle, flag))
    case 27, 28:
      guard sessions[index].services.count < 4 else { return }
      peripheral(.addService(newOperation(of: index, about: nil), Pulse.description))
    case 29:
      guard let service = sessions[index].services.randomElement(using: &chance) else { return }
      sessions[index].services.removeAll { $0 == service }
      peripheral(.removeService(service.handle))
    case 30:
      peripheral(.startAdvertising(newOperation(of: index, about: nil), localName: "Name", services: ["180D"]))
    case 31: peripheral(.stopAdvertising)
    case 32...34: answerOne(of: index)
    case 35: peripheral(.setDesiredLatency(peer, .low))
    case 37, 38: central(.openChannel(operation(), peer, psm: 0x80))
    case 39: peripheral(.publishChannel(newOperation(of: index, about: nil), isEncrypted: flag))
    case 40:
      let psm = sessions[index].psms.sorted().randomElement(using: &chance) ?? 0x80
      sessions[index].psms.remove(psm)
      peripheral(.unpublishChannel(newOperation(of: index, about: nil), psm: psm))
    case 36: peripheral(.respond(ServerRequest(rawValue: .random(in: 0...20, using: &chance)), central: peer, nil))
    default: occur()
    }
  }
  private mutating func answerOne(of index: Int) {
    guard let (id, central) = sessions[index].requests.min(by: { $0.key.rawValue < $1.key.rawValue }) else { return }
    sessions[index].requests[id] = nil
    ask(
      .peripheral(
        chanceOf(2) ? .respond(id, central: central, Data([1])) : .reject(id, central: central, .readNotPermitted)),
      of: index)
  }

  /// Something that happens on the air, or to the controller.
  private mutating func occur() {
    guard life == .running else { return }
    let link = links.keys.sorted { $0.rawValue < $1.rawValue }.randomElement(using: &chance)
    switch (Int.random(in: 0..<14, using: &chance), link) {
    case (0, _): if !isCalm, chanceOf(4) { die() }
    case (1, let link?): later(.linkDown(link, .connectionTimeout))
    case (2, _):
      // A central connects.
      guard let peer = Self.peers.randomElement(using: &chance), !links.values.contains(peer) else { return }
      raise(peer, .peripheral)
    case (3, _):
      guard let scan = scans.sorted(by: { $0.rawValue < $1.rawValue }).randomElement(using: &chance) else { return }
      let peer = Self.peers.randomElement(using: &chance)!
      deliver(.discovered(scan, peer, DiscoveredPeer(peer: UUID(peer), localName: "Peer", services: ["180D"])))
    case (4, let link?):
      if chanceOf(3) {
        deliver(
          .encryptionFailed(
            link, [.pinOrKeyMissing, .lmpOrLLResponseTimeout, .commandDisallowed].randomElement(using: &chance)!))
      } else {
        deliver(.mtuChanged(link, .random(in: 23...517, using: &chance)))
      }
    case (5, let link?):
      let range = HandleRange(AttributeHandle(rawValue: 0x10), AttributeHandle(rawValue: 0x20))
      subscribed = subscribed.filter { $0.link != link || !range.contains($0.handle) }
      deliver(.servicesChanged(link, range, Self.remote))
    case (6, let link?), (7, let link?):
      guard let handle = served.sorted(by: { $0.rawValue < $1.rawValue }).randomElement(using: &chance) else { return }
      deliver(.subscriptionChanged(link, handle, chanceOf(3) ? [] : .notification))
    case (8...10, let link?):
      // One request at a time for each link: Vol 3, Part F, §3.3.2.
      guard let handle = served.sorted(by: { $0.rawValue < $1.rawValue }).randomElement(using: &chance),
        !questions.values.contains(link)
      else { return }
      lastQuestion += 1
      let id = ServerRequestID(rawValue: lastQuestion)
      questions[id] = link
      if chanceOf(4) { later(.unanswered(id), within: 5_000) }
      if chanceOf(2) {
        deliver(.readRequested(id, link, handle, offset: 0))
      } else {
        deliver(.writeRequested(id, link, [ServerWrite(handle: handle, offset: 0, value: Data([1]))]))
      }
    case (11, let link?):
      guard let handle = served.sorted(by: { $0.rawValue < $1.rawValue }).randomElement(using: &chance) else { return }
      deliver(.written(link, ServerWrite(handle: handle, offset: 0, value: Data([1]))))
    case (12...13, let link?):
      guard let psm = listening.sorted().randomElement(using: &chance) else { return }
      deliver(.channelAccepted(newChannel(), psm: psm, link))
    default: break
    }
  }
  private mutating func newChannel() -> ArrivedChannel {
    lastChannel += 1
    let new = ArrivedChannel(rawValue: lastChannel)
    arrived.insert(new)
    return new
  }

  /// The end: the host fails no more, and all sessions release everything.
  private mutating func calmDown() {
    isCalm = true
    runToRest()
    faults.expect(life == .running || !sessions.contains(where: \.isOpen), "the controller was not opened again")
    for index in sessions.indices where sessions[index].isOpen {
      while !sessions[index].requests.isEmpty { answerOne(of: index) }
    }
    runToRest()
    for session in sessions where session.isOpen {
      faults.expect(session.waiting.isEmpty, "\(session.id) still waits for \(session.waiting)")
      for peer in Self.present {
        guard case .connecting = core.sessions[session.id]?.interests[peer] else { continue }
        faults.expect(false, "\(session.id) is not connected to \(peer), which is there")
      }
      for (link, peer) in links where session.connected.contains(UUID(peer)) {
        let longest = session.longestWrites[UUID(peer)], mtu = mtus[link] ?? 0
        faults.expect(longest == mtu - 3, "\(session.id) writes \(longest ?? 0) octets to \(peer) with ATT_MTU \(mtu)")
      }
    }
    faults.expect(questions.isEmpty, "clients' requests were not answered: \(questions)")
    let wanted = Set(
      core.central.links.flatMap { link, state in
        state.subscriptions.filter { !$0.value.readers.isEmpty }.keys.map { Subscription(link: link, handle: $0) }
      })
    faults.expect(subscribed == wanted, "subscribed to \(subscribed), wanted \(wanted)")

    // One session stays, so that the host stays open: nothing of the others remains.
    addSession()
    for index in sessions.indices.dropLast() where sessions[index].isOpen { close(index) }
    runToRest()
    for link in links.keys.sorted(by: { $0.rawValue < $1.rawValue }) { happen(.linkDown(link, .connectionTimeout)) }
    drain()
    runToRest()
    let central = core.central, serving = core.serving
    faults.expect(core.sessions.ids.count == 1 && core.links.all.isEmpty, "sessions or links are left")
    faults.expect(
      central.reaches.isEmpty && central.connects.isEmpty && central.unheard.isEmpty && central.disconnects.isEmpty
        && central.links.isEmpty && central.operations.isEmpty && central.parts.isEmpty
        && central.configurations.isEmpty && central.scans.isEmpty, "left: \(central)")
    faults.expect(
      serving.services.isEmpty && serving.values.isEmpty && serving.clients.isEmpty && serving.requests.isEmpty
        && serving.updates.isEmpty && serving.advertising.isEmpty, "left: \(serving)")
    let channels = core.channels
    faults.expect(
      channels.openings.isEmpty && channels.publications.isEmpty && channels.published.isEmpty, "left: \(channels)")
    faults.expect(listening.isEmpty && arrived.isEmpty, "the host listens: \(listening)")
    faults.expect(
      outstanding.isEmpty && scans.isEmpty && sets.isEmpty, "the host goes on with \(outstanding) \(scans) \(sets)")
    close(sessions.count - 1)
    runToRest()
    faults.expect(life == .none && core.timers.isEmpty, "the host is not closed: \(life)")
    if case .idle = core.phase {} else { faults.expect(false, "the core is \(core.phase)") }
  }
  /// Until there are no timers.
  private mutating func runToRest() {
    for _ in 0..<100_000 { if !faults.all.isEmpty || !pass() { return } }
    faults.expect(false, "it does not come to rest")
  }

  // MARK: Effects

  private mutating func drain() {
    while let effect = core.nextEffect() {
      trace?.append("\(now) \(effect)")
      carryOut(effect)
    }
    // The number of waiting events is bounded by the requests.
    faults.expect(
      core.central.parts.count <= outstanding.count || life != .running, "requests that the host does not know")
    faults.expect(core.serving.requests.count <= questions.count || life != .running, "clients' requests that are over")
  }
  private mutating func carryOut(_ effect: BrokerEffect) {
    switch effect {
    case .open:
      faults.expect(life == .none, "opened twice")
      life = .opening
      if !isCalm, chanceOf(4) {
        later(.host(.openingFailed(OpeningFailure(state: .unsupported("it refuses")))), within: 3_000)
      } else {
        later(.host(.opened(advertisingSets: .random(in: 1...3, using: &chance))), within: 3_000)
      }
    case .close:
      faults.expect(life == .running, "closed while it is \(life)")
      life = .closing
      forget()
      later(.host(.closed))
    case .retire:
      faults.expect(life == .none && !sessions.contains(where: \.isOpen), "retired too soon")
    case .host(let command):
      faults.expect(life == .running, "\(command) while no host runs")
      carryOut(command)
    case .deliver(let session, let event):
      guard let index = sessions.firstIndex(where: { $0.id == session }) else {
        return faults.expect(false, "\(event) is for nobody")
      }
      if sessions[index].isOpen { check(event, index) }
    case .lendPort(let name, let link):
      faults.expect(links[link] != nil, "a port of a link that is down")
      guard let index = sessions.firstIndex(where: { $0.id == name.session }) else { return }
      faults.expect(sessions[index].ports.insert(name).inserted, "\(name) is lent twice")
    case .takePort(let name):
      guard let index = sessions.firstIndex(where: { $0.id == name.session }) else { return }
      sessions[index].ports.remove(name)
    case .takePorts(let session):
      guard let index = sessions.firstIndex(where: { $0.id == session }) else { return }
      sessions[index].ports = []
    case .endChannels: break
    case .dropChannel(let channel): faults.expect(arrived.remove(channel) != nil, "\(channel) did not come")
    case .lendChannel(let channel, let session, let use):
      faults.expect(arrived.remove(channel) != nil, "\(channel) did not come")
      lent += 1
      guard let index = sessions.firstIndex(where: { $0.id == session && $0.isOpen }) else {
        return faults.expect(false, "\(effect) is for nobody")
      }
      switch use {
      case .opened(let id, let peer):
        faults.expect(sessions[index].waiting.removeValue(forKey: id) != nil, "\(id) was answered before")
        faults.expect(sessions[index].connected.contains(peer), "a channel without a connection")
      case .accepted(let central, _):
        faults.expect(links.values.contains { UUID($0) == central }, "a channel of a link that is down")
      }
    case .hold, .wake, .alert: faults.expect(false, "\(effect) for apps in the foreground")
    case .log: break
    }
  }

  /// The events that a session may get, and when.
  private mutating func check(_ event: BrokerEvent, _ index: Int) {
    let session = sessions[index]
    func about(_ peer: UUID) {
      faults.expect(session.asked.contains(peer), "\(session.id) never asked for \(peer): \(event)")
    }
    func connected(_ peer: UUID) {
      faults.expect(session.connected.contains(peer), "\(session.id) is not connected: \(event)")
    }
    func own(_ handle: AttributeHandle) {
      faults.expect(session.values.contains(handle), "\(handle) is not of \(session.id): \(event)")
    }
    switch event {
    case .adapter(let state):
      sessions[index].isPoweredOn = state == .poweredOn
      if state == .poweredOn { return }
      sessions[index].connected = []
      sessions[index].services = []
      sessions[index].psms = []
      sessions[index].requests = [:]
      // The state event ends all requests to devices.
      sessions[index].waiting = session.waiting.filter { $0.value == nil }
      faults.expect(sessions[index].ports.isEmpty, "ports without an adapter: \(session.ports)")
    case .completed(let id, let result):
      faults.expect(
        sessions[index].waiting.removeValue(forKey: id) != nil, "\(id) is not \(session.id)'s, or was answered before")
      if case .success = result { successes += 1 }
      if case .success(.published(let service)) = result {
        sessions[index].services.append(service)
        for other in sessions where other.id != session.id && other.isOpen {
          faults.expect(other.values.isDisjoint(with: sessions[index].values), "two sessions have one handle")
        }
      }
      if case .success(.psm(let psm)) = result {
        for other in sessions where other.isOpen {
          faults.expect(!other.psms.contains(psm), "PSM \(psm) of \(session.id) is another's, too")
        }
        sessions[index].psms.insert(psm)
      }
    case .connected(let peer, _, let longest):
      about(peer)
      sessions[index].longestWrites[peer] = longest
      sessions[index].connected.insert(peer)
      let name = PortName(session: session.id, kind: .command, peer: peer)
      faults.expect(session.ports.contains(name), "connected without a port")
    case .connectionFailed(let peer, _):
      about(peer)
      faults.expect(!session.connected.contains(peer), "failed while connected")
    case .disconnected(let peer, let error, _, _):
      about(peer)
      let was = sessions[index].connected.remove(peer) != nil
      faults.expect(error == nil || was, "lost without having been connected")
      faults.expect(
        !session.ports.contains(PortName(session: session.id, kind: .command, peer: peer)), "disconnected with a port")
      sessions[index].waiting = session.waiting.filter { $0.value != peer }
    case .longestWriteChanged(let peer, let longest):
      connected(peer)
      sessions[index].longestWrites[peer] = longest
    case .nameChanged(let peer, _), .servicesChanged(let peer, _): connected(peer)
    case .discovered, .scanFailed: faults.expect(session.hasScanned, "\(session.id) does not scan: \(event)")
    case .subscribed(let peer, let handle, _):
      own(handle)
      let name = PortName(session: session.id, kind: .notification, peer: peer)
      faults.expect(session.ports.contains(name), "subscribed without a port")
    case .readRequested(let id, let central, let handle, _, _):
      own(handle)
      sessions[index].requests[id] = central
    case .writeRequested(let id, let central, let writes, _):
      for write in writes { own(write.handle) }
      if !id.isCommand { sessions[index].requests[id] = central }
    case .requestEnded(let id): sessions[index].requests[id] = nil
    case .linkedPeers(let linked):
      faults.expect(linked.count == core.links.all.count || life != .running, "not all links")
    case .unsubscribed, .longestUpdateChanged, .advertisingEnded: break
    case .values, .readyToWrite, .readyToUpdate, .restored, .channelAccepted:
      faults.expect(false, "the core does not say \(event)")
    }
  }

  // MARK: The host

  private mutating func carryOut(_ command: HostCommand) {
    switch command {
    case .begin(let id, let operation, _):
      faults.expect(id.rawValue > lastCommand, "\(id) is not new")
      lastCommand = id.rawValue
      outstanding[id] = operation
      if case .connect(let peer, _) = operation, !Self.present.contains(peer), !links.values.contains(peer) { return }
      later(.answer(id))
    case .cancel(let id):
      faults.expect(id.rawValue <= lastCommand, "\(id) was never begun")
      guard outstanding[id] != nil else { return }
      // Or the request completes first.
      if chanceOf(2) {
        finish(id, .failure(BluetoothError(.cancelled, "cancelled")))
      } else {
        later(.answer(id))
      }
    case .beginScan(let id, _, _):
      if !isCalm, chanceOf(8) { return later(.host(.scanFailed(id, BluetoothError(.controller, "no scan")))) }
      scans.insert(id)
    case .endScan(let id): scans.remove(id)
    case .advertise(let set, _, _):
      sets.insert(set)
      faults.expect(sets.count <= mostSets, "more sets than the controller has")
      if !isCalm, chanceOf(4) {
        later(.host(.advertisingEnded(set, BluetoothError(.controller, "no set"))))
      } else {
        later(.host(.advertisingStarted(set)))
      }
    case .stopAdvertising(let set): sets.remove(set)
    case .insert: served.formUnion(core.serving.values.keys)
    case .remove: served.formIntersection(core.serving.values.keys)
    case .setValue, .setEnabled: break
    case .listen(let id, _):
      guard let psm = (0x80...0xFF).first(where: { !listening.contains($0) && !listens.values.contains($0) }) else {
        return
      }
      listens[id] = psm
      later(.listening(id))
    case .stopListening(let psm): faults.expect(listening.remove(psm) != nil, "nobody listens to PSM \(psm)")
    case .answer(let id, let link, _):
      faults.expect(questions.removeValue(forKey: id) == link, "\(id) was answered twice, or nobody waits for it")
    }
  }
  private mutating func happen(_ event: Event) {
    switch event {
    case .host(.openingFailed(let failure)):
      life = .none
      deliver(.openingFailed(failure))
    case .host(.opened(let number)):
      life = .running
      mostSets = number
      served = []
      if !isCalm, chanceOf(6) {
        // It fails before it is known to run.
        deaths += 1
        deliver(.failed(BluetoothError(.transport, "it is gone")))
      }
      deliver(.opened(advertisingSets: number))
    case .host(.closed):
      life = .none
      deliver(.closed)
    case .host(.scanFailed(let id, let error)): if life == .running { deliver(.scanFailed(id, error)) }
    case .host(.advertisingStarted(let set)):
      if life == .running, sets.contains(set) { deliver(.advertisingStarted(set)) }
    case .host(.advertisingEnded(let set, let error)):
      if life == .running, sets.remove(set) != nil { deliver(.advertisingEnded(set, error)) }
    case .host(.mtuChanged(let link, let mtu)): if links[link] != nil { deliver(.mtuChanged(link, mtu)) }
    case .host(let event): deliver(event)
    case .answer(let id): answer(id)
    case .linkDown(let link, let reason): takeDown(link, reason)
    case .listening(let id):
      guard let psm = listens.removeValue(forKey: id) else { return }
      if !isCalm, chanceOf(6) { return deliver(.listening(id, .failure(BluetoothError(.invalidArgument, "none")))) }
      listening.insert(psm)
      deliver(.listening(id, .success(psm)))
    case .unanswered(let id):
      guard life == .running, let link = questions.removeValue(forKey: id) else { return }
      deliver(.requestUnanswered(link))
    }
  }
  private mutating func deliver(_ event: BrokerHostEvent) {
    switch event {
    case .linkUp(let link, _, _, let mtu), .mtuChanged(let link, let mtu): mtus[link] = mtu
    case .linkDown(let link, _): mtus[link] = nil
    default: break
    }
    core.receive(event, now: now)
    drain()
    faults.expect(arrived.isEmpty, "neither lent nor dropped: \(arrived)")
  }
  private mutating func finish(_ id: RequestID, _ result: Result<HostAnswer, BluetoothError>) {
    guard life == .running, outstanding.removeValue(forKey: id) != nil else { return }
    deliver(.completed(id, result))
  }
  private mutating func answer(_ id: RequestID) {
    guard life == .running, let operation = outstanding[id] else { return }
    if case .connect(let peer, _) = operation { return connect(id, peer) }
    guard let link = operation.link, links[link] != nil else {
      return finish(id, .failure(BluetoothError(.disconnected, "the link is down")))
    }
    if case .disconnect = operation {
      if !isCalm, chanceOf(8) { return finish(id, .failure(BluetoothError(.refused, "it stays up"))) }
      return takeDown(link, .connectionTerminatedByLocalHost)
    }
    if case .unsubscribe(_, let handle) = operation { subscribed.remove(Subscription(link: link, handle: handle)) }
    if !isCalm, chanceOf(6) { return finish(id, .failure(BluetoothError(.att, "refused"))) }
    switch operation {
    case .readRSSI: finish(id, .success(.rssi(-40)))
    case .discoverServices, .discoverIncludedServices, .discoverCharacteristics, .discoverDescriptors, .discoverAll:
      finish(id, .success(.database(Self.remote)))
    case .read: finish(id, .success(.value(Array("Name".utf8))))
    case .subscribe(_, let handle, _):
      faults.expect(subscribed.insert(Subscription(link: link, handle: handle)).inserted, "subscribed twice")
      finish(id, .success(.done))
    case .openChannel: finish(id, .success(.channel(newChannel())))
    default: finish(id, .success(.done))
    }
  }
  private mutating func connect(_ id: RequestID, _ peer: PeerID) {
    if links.values.contains(peer) { return finish(id, .failure(BluetoothError(.busy, "there is a link"))) }
    switch isCalm ? 9 : Int.random(in: 0..<10, using: &chance) {
    case 0: finish(id, .failure(BluetoothError(.connectionLimitReached, "no room")))
    case 1:
      finish(id, .failure(BluetoothError(.connectionFailed, "not heard", status: .connectionFailedToBeEstablished)))
    case 2:
      // The device did not receive it.
      let link = raise(peer, .central)
      finish(id, .success(.linked(peer)))
      later(.linkDown(link, .connectionFailedToBeEstablished), within: 200)
    default:
      let link = raise(peer, .central)
      finish(id, .success(.linked(peer)))
      if links[link] != nil, !chanceOf(3) { later(.host(.mtuChanged(link, 247)), within: 100) }
    }
  }
  @discardableResult
  private mutating func raise(_ peer: PeerID, _ role: LinkRole) -> LinkID {
    lastLink += 1
    linksUp += 1
    let link = LinkID(rawValue: lastLink)
    links[link] = peer
    // The host reports a link when its events are handled: the exchange may have ended by then.
    deliver(.linkUp(link, peer, role, mtu: chanceOf(4) ? 185 : 23))
    return link
  }
  /// Requests on the link end first.
  private mutating func takeDown(_ link: LinkID, _ reason: HCIStatus) {
    guard life == .running, links[link] != nil else { return }
    for (id, operation) in outstanding.sorted(by: { $0.key.rawValue < $1.key.rawValue }) where operation.link == link {
      if case .disconnect = operation {
        finish(id, .success(.done))
      } else {
        finish(id, .failure(BluetoothError(.disconnected, "the link is down")))
      }
    }
    links[link] = nil
    subscribed = subscribed.filter { $0.link != link }
    questions = questions.filter { $0.value != link }
    deliver(.linkDown(link, reason))
  }
  private mutating func die() {
    deaths += 1
    for id in outstanding.keys.sorted(by: { $0.rawValue < $1.rawValue }) {
      finish(id, .failure(BluetoothError(.transport, "it is gone")))
    }
    deliver(.failed(BluetoothError(.transport, "it is gone")))
  }
  private mutating func forget() {
    links = [:]
    mtus = [:]
    outstanding = [:]
    scans = []
    sets = []
    questions = [:]
    subscribed = []
    served = []
    listening = []
    listens = [:]
  }
}

private final class Faults {
  private(set) var all: [String] = []
  func expect(_ condition: Bool, _ text: @autoclosure () -> String) {
    if !condition { all.append(text()) }
  }
}
