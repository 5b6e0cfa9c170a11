import BindruneWire
import Foundation
import NIOConcurrencyHelpers
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// Managers that outlive the process of their app. Rows S5, S39 … S72.
@Suite struct RestorationTests {
  private static let peer = PeerID(PeerAddress(DeviceAddress(0xC000_0000_0001), .random))
  private static let far = PeerID(PeerAddress(DeviceAddress(0xC000_0000_0002), .random))
  private static let link = LinkID(rawValue: 1)
  private static let central = ManagerIdentity(.central, restoreIdentifier: "central")
  private static let peripheral = ManagerIdentity(.peripheral, restoreIdentifier: "peripheral")

  private func end(_ app: AppID, _ lab: inout CoreLab) -> [SessionID] {
    let kept = lab.core.end(app, now: lab.now)
    lab.move(app, .terminated)
    return kept
  }
  private func restore(_ session: SessionID, _ app: AppID, _ lab: inout CoreLab) -> [BrokerEvent] {
    lab.move(app, .awake)
    _ = lab.takeEvents(session)
    lab.core.restore(session, now: lab.now)
    lab.drain()
    return lab.takeEvents(session)
  }

  @Test("S5, S40, S46, S56, S62, S65: only managers with an identifier and something to do are kept")
  func whatIsKept() throws {
    var lab = CoreLab()
    let app = lab.app(1, [.central, .peripheral])
    let named = lab.session(1, app, Self.central), idle = lab.session(2, app, Self.peripheral)
    let nameless = lab.session(3, app, ManagerIdentity(.central)), plain = lab.session(4, app)
    for session in [named, nameless, plain] { lab.ask(session, .connect(UUID(Self.far), ConnectOptions())) }
    for session in [nameless, plain] {
      lab.ask(session, .scan(services: ["180D"], solicitedServices: [], allowsDuplicates: false))
    }
    #expect(end(app, &lab) == [named])
    #expect(lab.scans.isEmpty && lab.core.sessions[idle] == nil && lab.core.sessions[nameless] == nil)
    // The connection request goes on: S39, S41.
    #expect(lab.core.central.reaches[Self.far] != nil)
    #expect(lab.core.preserved(Self.central, of: app) == named)
    #expect(lab.core.preserved(Self.peripheral, of: app) == nil)
    // A manager that had begun nothing gets its state first.
    let again = lab.session(5, app, Self.peripheral)
    guard case .adapter(.poweredOn)? = lab.takeEvents(again).first else {
      Issue.record("no state")
      return
    }
    lab.core.remove(named, now: lab.now)
    lab.drain()
    #expect(lab.core.central.reaches[Self.far] != .awaitingRetry && lab.core.sessions[named] == nil)
  }

  @Test("S42, S43, S47–S49, S53, S64, S66, S67, S68, S71, S72: a central manager")
  func centralManager() throws {
    var lab = CoreLab()
    let app = lab.app(1, [.central]), session = lab.session(1, app, Self.central)
    let device = UUID(Self.peer), far = UUID(Self.far)
    for peer in [device, far] { lab.ask(session, .connect(peer, ConnectOptions())) }
    lab.ask(session, .scan(services: ["180D"], solicitedServices: ["1805"], allowsDuplicates: true))
    lab.receive(.linkUp(Self.link, Self.peer, .central, mtu: 100))
    func answer(_ request: (OperationID) -> BrokerRequest.Central, _ result: HostAnswer) throws {
      lab.ask(session, request(lab.newID()))
      lab.receive(.completed(try #require(lab.begun.last?.0), .success(result)))
    }
    let service = AttributeHandle(rawValue: 0x10), value = AttributeHandle(rawValue: 0x12)
    try answer({ .discoverServices($0, device, ["180D"]) }, .database(BrokerWorld.remote))
    try answer({ .discoverCharacteristics($0, device, service, ["2A37"]) }, .database(BrokerWorld.remote))
    try answer({ .discoverDescriptors($0, device, value) }, .database(BrokerWorld.remote))
    try answer({ .setNotifying($0, device, value, true) }, .done)
    // A read is under way when the process ends.
    lab.ask(session, .read(lab.newID(), device, value))
    let read = try #require(lab.begun.last?.0)
    _ = lab.takeOthers()
    #expect(end(app, &lab) == [session])
    #expect(lab.scans.count == 2 && lab.core.central.links[Self.link]?.subscriptions[value]?.readers.count == 1)
    _ = lab.takeEvents(session)
    lab.receive(.completed(read, .success(.value([1]))))
    #expect(lab.takeEvents(session).isEmpty && lab.takeWakes().isEmpty)

    // A task completes.
    lab.core.considerValues(1, from: device, for: session, now: lab.now)
    lab.drain()
    #expect(lab.takeWakes() == [app])
    let restored = restore(session, app, &lab)
    guard case .restored(let state)? = restored.first, case .adapter(.poweredOn)? = restored.dropFirst().first else {
      Issue.record("\(restored)")
      return
    }
    #expect(state.scan == .init(services: ["180D"], solicitedServices: ["1805"], allowsDuplicates: true))
    #expect(state.peers.map(\.peer) == [device, far] && state.peers.map(\.isConnected) == [true, false])
    #expect(state.peers[0].longestWrite == 97)
    let tree = state.peers[0].services
    #expect(tree.map(\.service.uuid) == ["180D"] && tree[0].isDiscovered && tree[0].includes == nil)
    let found = try #require(tree[0].characteristics)
    #expect(found.map(\.characteristic.handle) == [value] && found[0].isNotifying)
    #expect(found[0].descriptors?.map(\.uuid) == ["2902"])
    let ports = lab.takeOthers().filter { if case .lendPort = $0 { true } else { false } }
    #expect(ports.count == 1)
    // It is a session like any other now.
    lab.ask(session, .cancelConnection(far))
    #expect(lab.takeEvents(session).contains { if case .disconnected(far, nil, _, _) = $0 { true } else { false } })
    #expect(lab.core.preserved(of: app).isEmpty)
  }

  @Test("S28, S41, S50, S51, S52, S70: a peripheral manager")
  func peripheralManager() throws {
    var lab = CoreLab()
    let app = lab.app(1, [.peripheral]), session = lab.session(1, app, Self.peripheral)
    let pulse = try lab.publish(session)
    lab.advertise(session, "Lock", ["180D"])
    lab.receive(.linkUp(Self.link, Self.peer, .peripheral, mtu: 50))
    lab.receive(.subscriptionChanged(Self.link, pulse.measurement, .notification))
    lab.receive(.readRequested(ServerRequestID(rawValue: 1), Self.link, pulse.control, offset: 0))
    #expect(end(app, &lab) == [session])
    // The dead process cannot answer.
    #expect(lab.answers == [ServerRequestID(rawValue: 1): .rejected(.unlikelyError)])
    #expect(lab.sets.values.flatMap(\.sources).map(\.isInBackground) == [true] && lab.disabled.isEmpty)
    _ = lab.takeOthers()
    lab.receive(.readRequested(ServerRequestID(rawValue: 2), Self.link, pulse.control, offset: 0))
    #expect(lab.takeWakes() == [app])
    let restored = restore(session, app, &lab)
    guard case .restored(let state)? = restored.first else {
      Issue.record("\(restored)")
      return
    }
    #expect(state.advertisement == .init(localName: "Lock", services: ["180D"]))
    #expect(state.services.map(\.published) == [pulse.service])
    #expect(state.services.map(\.description) == [Pulse.description])
    #expect(
      state.services[0].subscriptions == [
        .init(central: UUID(Self.peer), handle: pulse.measurement, longestUpdate: 47)
      ])
    // The request that woke it is still to be answered.
    lab.ask(session, .respond(ServerRequest(rawValue: 2), central: UUID(Self.peer), Data([7])))
    #expect(lab.answers[ServerRequestID(rawValue: 2)] == .value(Data([7])))
    #expect(lab.takeOthers().contains { if case .lendPort = $0 { true } else { false } })
  }

  @Test("S39, S41: preserved managers survive the adapter's restart, and its being switched off")
  func restarts() throws {
    for state in [AdapterState.poweredOff("off"), .unsupported("gone")] {
      var lab = CoreLab()
      let app = lab.app(1, [.central, .peripheral])
      let one = lab.session(1, app, Self.central), two = lab.session(2, app, Self.peripheral)
      lab.ask(one, .connect(UUID(Self.far), ConnectOptions(reconnects: true)))
      lab.ask(one, .scan(services: ["180D"], solicitedServices: [], allowsDuplicates: false))
      let pulse = try lab.publish(two)
      lab.ask(
        two,
        .addService(
          lab.newID(), ServiceDescription(uuid: "1805", includes: [pulse.service.handle], characteristics: [])))
      lab.advertise(two, "Lock", ["180D"])
      let plans = [one, two].map { lab.core.plan(of: $0) }
      #expect(end(app, &lab) == [one, two])
      lab.receive(.failed(BluetoothError(.transport, "gone")))
      lab.receive(.closed)
      lab.now = lab.core.deadline!
      lab.core.expire(now: lab.now)
      lab.drain()
      lab.receive(.openingFailed(OpeningFailure(state: state)))
      #expect([one, two].map { lab.core.plan(of: $0) } == plans)
      lab.now = lab.core.deadline!
      lab.core.expire(now: lab.now)
      lab.drain()
      lab.receive(.opened(advertisingSets: 1))
      #expect(lab.core.central.reaches[Self.far] != nil && lab.core.serving.services.count == 2)
      #expect(lab.core.plan(of: two)?.advertisement?.localName == "Lock")
      #expect(lab.sets.values.flatMap(\.sources).contains { $0.data.localName == "Lock" })
      let included = lab.core.serving.services.values.first { $0.description.uuid == "1805" }?.description.includes
      #expect(included == lab.core.serving.services.filter { $0.value.description.uuid == "180D" }.map(\.key))
      _ = lab.takeOthers()
      lab.receive(.linkUp(Self.link, Self.far, .central, mtu: 100))
      #expect(lab.takeWakes() == [app])
      let restored = restore(one, app, &lab)
      guard case .restored(let state)? = restored.first else {
        Issue.record("\(restored)")
        return
      }
      #expect(state.peers.map(\.isConnected) == [true] && state.scan?.services == ["180D"])
    }
  }

  @Test("S45: a manager of an earlier run of the daemon, whose adapter works later")
  func fromAFile() {
    var core = BrokerCore(), lab = CoreLab()
    let app = lab.app(1, [.central]), first = lab.session(1, app, Self.central)
    lab.ask(first, .connect(UUID(Self.far), ConnectOptions(startDelay: 3)))
    let plan = lab.core.plan(of: first)!
    core.register(app, [.central], .terminated, now: .zero)
    core.add(SessionID(rawValue: 9), of: app, as: plan.identity, now: .zero)
    core.plan(plan, for: SessionID(rawValue: 9), now: .zero)
    #expect(core.preserved(Self.central, of: app) == SessionID(rawValue: 9))
    core.receive(.opened(advertisingSets: 1), now: .zero)
    // Its delay is over.
    #expect(core.central.reaches[Self.far] != nil)
    #expect(core.plan(of: SessionID(rawValue: 9))?.peers.map(\.identifier) == [UUID(Self.far)])
  }
}

/// The story of seed A, §"Use Core Bluetooth to perform long-term actions in the background", under virtual time.
@Suite(.virtualTime, .hang) struct DoorLockTests {
  /// What the system and the app do, in order.
  private final class Log: Sendable {
    private let lines = NIOLockedValueBox<[String]>([])
    func add(_ line: String) { lines.withLockedValue { $0.append(line) } }
    var all: [String] { lines.withLockedValue { $0 } }
  }

  @Test("S39, S41, S42, S43, S64, S67: the lock comes back in range days after the app was terminated")
  func days() async throws {
    let room = Room(), sensor = try Sensor(), log = Log(), app = AppID(rawValue: 1)
    let identity = ManagerIdentity(.central, restoreIdentifier: "lock")
    let (lock, device) = try await room.sensor(sensor, name: "Lock"), adapter = room.adapter()
    adapter.register(app, [.central])
    adapter.whenAppNeeds { id, need in if case .run(let why) = need { log.add("relaunch for \(why)") } }

    let first = try await Probe.poweredOn(adapter, of: app, as: identity)
    first.send(.connect(device, ConnectOptions()))
    try await first.connected(device)
    log.add("connected")
    // The user leaves the house, and the app asks for the connection again.
    await lock.stopAdvertising()
    await lock.disconnectAll()
    try await first.disconnected(device)
    first.send(.connect(device, ConnectOptions()))
    try await first.waitForEvents()
    log.add("disconnected, waiting")
    await withCheckedContinuation { done in
      adapter.end(app) { isKept in
        #expect(isKept)
        done.resume()
      }
    }
    adapter.move(app, to: .terminated)
    log.add("terminated")

    // Five days.
    try await VirtualLoop.current.pass(.hours(120))
    #expect(!log.all.contains("relaunch for a connection"))
    log.add("five days later")
    try await lock.advertiseAsSensor("Lock")
    while !log.all.contains("relaunch for a connection") {
      try await room.radio.eventLoop.scheduleTask(in: .milliseconds(10)) {}.futureResult.get()
    }

    adapter.move(app, to: .awake)
    let second = Probe(adapter, of: app, as: identity)
    try await second.connected(device)
    let events = try await second.history()
    guard case .restored(let state)? = events.first, case .adapter(.poweredOn)? = events.dropFirst().first else {
      Issue.record("\(events)")
      return
    }
    #expect(state.peers.map(\.peer) == [device])
    log.add("restored, connected")
    try await second.ask { .discoverServices($0, device, ["180D"]) }
    try await second.ask { .discoverCharacteristics($0, device, sensor.service, nil) }
    try await second.ask { .write($0, device, sensor.control, Data([1])) }
    #expect(await lock.database.value(sensor.control) == [1])
    log.add("the lock is open")
    // The first process's session has no effect any more.
    first.send(.cancelConnection(device))
    first.session.close()
    try await second.waitForEvents()
    #expect(try await !second.history().contains { if case .disconnected = $0 { true } else { false } })
    #expect(
      log.all == [
        "connected", "disconnected, waiting", "terminated", "five days later", "relaunch for a connection",
        "restored, connected", "the lock is open",
      ])
  }
}
