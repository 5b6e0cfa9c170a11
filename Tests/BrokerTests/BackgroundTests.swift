import BindruneWire
import Foundation
import NIOConcurrencyHelpers
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// A core alone, powered on, and the commands that it gives its host.
struct CoreLab {
  var core = BrokerCore()
  var now = Instant.zero
  /// What the host does now.
  private(set) var scans: [ScanID: (parameters: ScanParameters, filter: ScanFilter)] = [:]
  private(set) var sets: [AdvertisingSetID: (sources: [AdvertisingPacker.Source], parameters: AdvertisingParameters)] =
    [:]
  private(set) var disabled: Set<AttributeHandle> = []
  private(set) var answers: [ServerRequestID: ServerAnswer] = [:]
  private(set) var begun: [(RequestID, HostOperation)] = []
  /// Since `take…`.
  private var events: [SessionID: [BrokerEvent]] = [:]
  private(set) var others: [BrokerEffect] = []
  private var last: UInt64 = 0

  init(sets: Int = 4) {
    core.add(SessionID(rawValue: 1000), now: now)
    core.receive(.opened(advertisingSets: sets), now: now)
    drain()
  }
  mutating func drain() {
    while let effect = core.nextEffect() {
      switch effect {
      case .host(.beginScan(let id, let parameters, let filter)): scans[id] = (parameters, filter)
      case .host(.endScan(let id)): scans[id] = nil
      case .host(.advertise(let set, let sources, let parameters)): sets[set] = (sources, parameters)
      case .host(.stopAdvertising(let set)): sets[set] = nil
      case .host(.setEnabled(let isEnabled, let service)):
        if isEnabled { disabled.remove(service) } else { disabled.insert(service) }
      case .host(.answer(let id, _, let answer)): answers[id] = answer
      case .host(.begin(let id, let operation, _)): begun.append((id, operation))
      case .deliver(let session, let event): events[session, default: []].append(event)
      default: others.append(effect)
      }
    }
  }
  mutating func app(_ number: Int, _ modes: Set<BackgroundMode> = []) -> AppID {
    let app = AppID(rawValue: number)
    core.register(app, modes, now: now)
    drain()
    return app
  }
  mutating func session(_ number: Int, _ app: AppID, _ identity: ManagerIdentity? = nil) -> SessionID {
    let session = SessionID(rawValue: number)
    core.add(session, of: app, as: identity, now: now)
    drain()
    return session
  }
  mutating func move(_ app: AppID, _ life: AppLife) {
    core.move(app, to: life, now: now)
    drain()
  }
  mutating func ask(_ session: SessionID, _ request: BrokerRequest.Central) {
    core.request(.central(request), of: session, now: now)
    drain()
  }
  mutating func ask(_ session: SessionID, _ request: BrokerRequest.Peripheral) {
    core.request(.peripheral(request), of: session, now: now)
    drain()
  }
  mutating func receive(_ event: BrokerHostEvent) {
    if case .advertisingEnded(let set, _) = event { sets[set] = nil }
    core.receive(event, now: now)
    drain()
  }
  mutating func advertise(_ session: SessionID, _ name: String, _ services: [BluetoothUUID]) {
    ask(session, .startAdvertising(newID(), localName: name, services: services))
    for set in sets.keys.sorted(by: { $0.rawValue < $1.rawValue }) { receive(.advertisingStarted(set)) }
  }
  mutating func publish(_ session: SessionID) throws -> Pulse {
    ask(session, .addService(newID(), Pulse.description))
    let published = takeEvents(session).compactMap { event -> PublishedService? in
      if case .completed(_, .success(.published(let service))) = event { service } else { nil }
    }
    return Pulse(service: try #require(published.first))
  }
  mutating func newID() -> OperationID {
    last += 1
    return OperationID(rawValue: last)
  }
  mutating func takeEvents(_ session: SessionID) -> [BrokerEvent] {
    defer { events[session] = nil }
    return events[session] ?? []
  }
  mutating func takeOthers() -> [BrokerEffect] {
    defer { others = [] }
    return others
  }
  /// The apps that are to run.
  mutating func takeWakes() -> [AppID] {
    takeOthers().compactMap { if case .wake(let app, _) = $0 { app } else { nil } }
  }
}

/// What the life of an app allows. Rows S1 … S33, S131, S141, S142, S147.
@Suite struct BackgroundTests {
  private static let link = LinkID(rawValue: 1)
  private static let peer = PeerID(PeerAddress(DeviceAddress(0xC000_0000_0001), .random))

  @Test("S1, S2, S9, S23, S25, S26, S27: scans in the background")
  func scans() {
    var lab = CoreLab()
    let plain = lab.app(1), moded = lab.app(2, [.central]), other = lab.app(3, [.central, .peripheral])
    let a = lab.session(1, plain), b = lab.session(2, moded), c = lab.session(3, other)
    func wish(_ services: [BluetoothUUID]) -> BrokerRequest.Central {
      .scan(services: services, solicitedServices: [], allowsDuplicates: true)
    }
    lab.ask(a, wish(["180D"]))
    lab.ask(b, wish(["180F"]))
    lab.ask(c, wish([]))
    #expect(lab.scans.values.map(\.parameters) == Array(repeating: ScanParameters(), count: 3))
    // In the background: each device once. Somebody in the foreground scans, so as often as before.
    lab.move(moded, .background)
    #expect(lab.scans.values.first { $0.filter.services == ["180F"] }?.parameters == .init(coalescesDuplicates: true))
    #expect(lab.scans.count == 3)
    // Not without the mode, and not for all devices.
    lab.move(plain, .background)
    #expect(lab.scans.count == 2 && !lab.scans.values.contains { $0.filter.services == ["180D"] })
    lab.move(other, .background)
    #expect(
      lab.scans.values.map(\.parameters) == [ScanParameters(intent: .background, coalescesDuplicates: true)])
    // Suspension changes nothing on the air.
    lab.move(moded, .suspended)
    #expect(lab.scans.count == 1)
    // What was asked for comes back.
    for app in [plain, moded, other] { lab.move(app, .foreground) }
    #expect(lab.scans.values.map(\.parameters) == Array(repeating: ScanParameters(), count: 3))
    // A scan that begins in the background, and one that ends there.
    lab.move(plain, .suspended)
    lab.ask(a, .stopScan)
    lab.move(moded, .background)
    lab.ask(b, wish(["1805"]))
    #expect(lab.scans.count == 2)
    lab.move(plain, .foreground)
    #expect(lab.scans.count == 2)
  }

  @Test("S10, S29, S30, S31, S33, S142, S147: advertising in the background, and in few sets")
  func advertising() {
    for count in [1, 2, 4] {
      var lab = CoreLab(sets: count)
      let plain = lab.app(1), moded = lab.app(2, [.peripheral]), other = lab.app(3, [.peripheral])
      let sessions = [lab.session(1, plain), lab.session(2, moded), lab.session(3, other)]
      for (index, session) in sessions.enumerated() { lab.advertise(session, "App \(index)", ["180D"]) }
      func sources(_ lab: CoreLab) -> [String: Bool] {
        Dictionary(
          uniqueKeysWithValues: lab.sets.values.flatMap(\.sources).map { ($0.data.localName ?? "", $0.isInBackground) })
      }
      for session in sessions {
        let hasBegun = lab.takeEvents(session).contains {
          if case .completed(_, .success(.done)) = $0 { true } else { false }
        }
        #expect(hasBegun)
      }
      #expect(lab.sets.count == min(count, 3) && sources(lab) == ["App 0": false, "App 1": false, "App 2": false])
      lab.move(moded, .background)
      #expect(sources(lab) == ["App 0": false, "App 1": true, "App 2": false])
      #expect(lab.sets.values.allSatisfy { $0.parameters.interval == .balanced })
      lab.move(plain, .background)
      #expect(sources(lab) == ["App 1": true, "App 2": false])
      lab.move(other, .suspended)
      #expect(sources(lab) == ["App 1": true, "App 2": true])
      // All advertisers are in the background.
      #expect(lab.sets.values.allSatisfy { $0.parameters.interval == .background })
      // The packer's part: no name, UUIDs in the overflow area. S30, S31, S32.
      let packed = AdvertisingPacker(.coreBluetooth).pack(lab.sets.values.flatMap(\.sources))
      #expect(packed.overflow == ["180D"] && !packed.payloads.advertising.contains(where: { $0 == 0x09 }))
      for app in [plain, moded, other] { lab.move(app, .foreground) }
      #expect(sources(lab).count == 3 && lab.sets.values.allSatisfy { $0.parameters.interval == .balanced })
      #expect(lab.sets.count <= count)
      // A set that fails ends its sessions' advertising, and no other's.
      let failing = lab.sets.first!
      lab.receive(.advertisingEnded(failing.key, BluetoothError(.controller, "full")))
      #expect(sources(lab).count == 3 - failing.value.sources.count)
    }
  }

  @Test("S10: advertising that is asked for while it is forbidden begins later")
  func advertisingLater() {
    var lab = CoreLab()
    let app = lab.app(1), session = lab.session(1, app)
    lab.move(app, .background)
    lab.advertise(session, "Later", ["180D"])
    #expect(lab.sets.isEmpty && lab.takeEvents(session).allSatisfy { if case .completed = $0 { false } else { true } })
    lab.move(app, .foreground)
    lab.receive(.advertisingStarted(lab.sets.keys.first!))
    #expect(lab.takeEvents(session).contains { if case .completed(_, .success(.done)) = $0 { true } else { false } })
  }

  @Test("S11, S129, S130, S131, S141: services of an app that cannot answer; those of others")
  func services() throws {
    var lab = CoreLab()
    let plain = lab.app(1), moded = lab.app(2, [.peripheral])
    let a = lab.session(1, plain), b = lab.session(2, moded)
    let one = try lab.publish(a), two = try lab.publish(b)
    lab.receive(.linkUp(Self.link, Self.peer, .peripheral, mtu: 23))
    // A request waits when the app leaves the foreground.
    lab.receive(.readRequested(ServerRequestID(rawValue: 1), Self.link, one.control, offset: 0))
    lab.move(plain, .background)
    #expect(lab.disabled == [one.service.handle])
    #expect(lab.answers == [ServerRequestID(rawValue: 1): .rejected(.unlikelyError)])
    lab.move(moded, .suspended)
    #expect(lab.disabled == [one.service.handle])
    // A service that is published meanwhile.
    let three = try lab.publish(a)
    #expect(lab.disabled == [one.service.handle, three.service.handle])
    lab.ask(a, .removeAllServices)
    #expect(lab.core.serving.services.keys.sorted { $0.rawValue < $1.rawValue } == [two.service.handle])
    lab.move(plain, .foreground)
    lab.ask(a, .removeAllServices)
    #expect(lab.core.serving.database.attribute(two.control) != nil)
  }

  @Test("S3, S8, S12, S13, S18, S24, S28: which events wait, and which wake")
  func wakes() throws {
    var lab = CoreLab()
    let plain = lab.app(1), central = lab.app(2, [.central]), peripheral = lab.app(3, [.peripheral])
    let sessions = [lab.session(1, plain), lab.session(2, central), lab.session(3, peripheral)]
    _ = lab.takeOthers()
    func holds(_ effects: [BrokerEffect]) -> [SessionID: Bool] {
      effects.reduce(into: [:]) { if case .hold(let session, let isHeld) = $1 { $0[session] = isHeld } }
    }
    for app in [plain, central, peripheral] { lab.move(app, .background) }
    #expect(holds(lab.takeOthers()) == [sessions[0]: true])
    for app in [plain, central, peripheral] { lab.move(app, .suspended) }
    #expect(holds(lab.takeOthers()) == [sessions[1]: true, sessions[2]: true])

    let pulse = try lab.publish(sessions[2])
    _ = lab.takeOthers()
    lab.move(peripheral, .awake)
    lab.move(peripheral, .suspended)
    for session in sessions.prefix(2) { lab.ask(session, .connect(UUID(Self.peer), ConnectOptions())) }
    lab.ask(sessions[1], .scan(services: ["180D"], solicitedServices: [], allowsDuplicates: false))
    _ = lab.takeOthers()
    /// Every app is suspended anew before each event.
    func woken(_ event: BrokerHostEvent) -> [AppID] {
      for app in [plain, central, peripheral] {
        lab.move(app, .awake)
        lab.move(app, .suspended)
      }
      _ = lab.takeOthers()
      lab.receive(event)
      lab.receive(event)  // One wake-up is enough.
      return lab.takeWakes()
    }
    let scan = try #require(lab.scans.keys.first)
    #expect(woken(.discovered(scan, Self.peer, DiscoveredPeer(peer: UUID(Self.peer)))) == [central])
    #expect(woken(.linkUp(Self.link, Self.peer, .central, mtu: 100)) == [central])
    let read = lab.newID()
    lab.ask(sessions[1], .readRSSI(read, UUID(Self.peer)))
    #expect(woken(.completed(try #require(lab.begun.last?.0), .success(.rssi(-40)))) == [central])
    #expect(woken(.mtuChanged(Self.link, 200)) == [])
    #expect(woken(.subscriptionChanged(Self.link, pulse.measurement, .notification)) == [peripheral])
    #expect(woken(.readRequested(ServerRequestID(rawValue: 1), Self.link, pulse.control, offset: 0)) == [peripheral])
    #expect(woken(.written(Self.link, ServerWrite(handle: pulse.index, offset: 0, value: Data([1])))) == [peripheral])
    #expect(Set(woken(.linkDown(Self.link, .connectionTimeout))) == [central, peripheral])
    // The state of the adapter wakes both kinds; an app without modes gets it when it resumes.
    #expect(Set(woken(.failed(BluetoothError(.transport, "gone")))) == [central, peripheral])
  }

  @Test("S4, S14, S15, S16, S17: alerts of apps that no event wakes")
  func alerts() {
    var lab = CoreLab()
    let plain = lab.app(1), moded = lab.app(2, [.central])
    let sessions = [lab.session(1, plain), lab.session(2, moded)]
    let device = UUID(Self.peer)
    for (number, alerts) in [ConnectOptions.Alerts.connection, .disconnection, .notification, []].enumerated() {
      for session in sessions { lab.ask(session, .connect(device, ConnectOptions(alerts: alerts))) }
      for life in [AppLife.foreground, .background, .suspended] {
        for app in [plain, moded] { lab.move(app, life) }
        _ = lab.takeOthers()
        let link = LinkID(rawValue: UInt32(10 * number + 1))
        for session in sessions { lab.ask(session, .connect(device, ConnectOptions(reconnects: true, alerts: alerts))) }
        lab.receive(.linkUp(link, Self.peer, .central, mtu: 100))
        lab.core.considerValues(3, from: device, for: sessions[0], now: lab.now)
        lab.core.considerValues(3, from: device, for: sessions[1], now: lab.now)
        lab.receive(.linkDown(link, .connectionTimeout))
        let told = lab.takeOthers().compactMap { effect -> AppAlert? in
          guard case .alert(let app, let alert) = effect else { return nil }
          #expect(app == plain && life == .suspended)
          return alert
        }
        let all: [AppAlert] = [
          .connected(device, name: nil), .disconnected(device, name: nil), .notified(device, name: nil, count: 3),
        ]
        #expect(told == (life == .suspended && number < 3 ? [all[number]] : []), "\(alerts), \(life)")
      }
    }
  }
}

/// The same over the air.
@Suite(.virtualTime, .hang) struct BackgroundOverTheAirTests {
  private let app = AppID(rawValue: 1)

  @Test("S8, S12, S13: what happens while an app is suspended is delivered when it resumes, in order")
  func heldEvents() async throws {
    let room = Room(), sensor = try Sensor(), (host, peer) = try await room.sensor(sensor), adapter = room.adapter()
    adapter.register(app, [])
    let probe = try await Probe.poweredOn(adapter, of: app), witness = try await Probe.poweredOn(adapter)
    for session in [probe, witness] {
      session.send(.connect(peer, ConnectOptions()))
      try await session.connected(peer)
      try await session.ask { .discoverServices($0, peer, nil) }
      try await session.ask { .discoverCharacteristics($0, peer, sensor.service, nil) }
    }
    try await probe.ask { .setNotifying($0, peer, sensor.measurement, true) }
    try await witness.ask { .setNotifying($0, peer, sensor.measurement, true) }
    adapter.move(app, to: .suspended)
    let before = try await probe.history().count
    for number in UInt8(1)...3 {
      #expect(await host.notify([number], of: sensor.measurement).isEmpty)
      #expect(try await witness.value(of: sensor.measurement) == [number])
    }
    await host.disconnectAll()
    try await witness.disconnected(peer)
    #expect(try await probe.history().count == before)
    adapter.move(app, to: .foreground)
    #expect(try await probe.disconnected(peer).error != nil)
    let late = try await probe.history()[before...]
    let values = late.flatMap { event -> [UInt8] in
      if case .values(_, _, let values) = event { values.flatMap { [UInt8]($0) } } else { [] }
    }
    #expect(values == [1, 2, 3])
  }

  @Test("S11, S131: a central reads a dynamic value, a stored value and a descriptor of a foreground-only app")
  func disabledServices() async throws {
    let ward = try await Ward()
    ward.adapter.register(app, [])
    let probe = try await Probe.poweredOn(ward.adapter, of: app), other = try await ward.session()
    let pulse = try await probe.publishPulse(), open = try await other.publishPulse()
    try await other.advertise("Other")
    let link = try await ward.link()
    _ = try await link.discover()
    #expect(try await link.read(try await link.characteristic(pulse.location)) == [2])
    ward.adapter.move(app, to: .background)
    try await other.waitForEvents()
    for handle in [pulse.location, pulse.control] {
      let characteristic = try await link.characteristic(handle)
      #expect(
        await link.attError { (link) throws(BluetoothError) in _ = try await link.read(characteristic) }
          == .unlikelyError)
    }
    let measurement = try await link.characteristic(pulse.measurement)
    #expect(
      await link.attError { (link) throws(BluetoothError) in _ = try await link.subscribe(to: measurement) }
        == .unlikelyError)
    #expect(try await link.read(try await link.characteristic(open.location)) == [2])
    ward.adapter.move(app, to: .foreground)
    try await probe.waitForEvents()
    #expect(try await link.read(try await link.characteristic(pulse.location)) == [2])
  }

  @Test("S18, S24, S28: an event wakes the app, and it gets the event")
  func woken() async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor()), adapter = room.adapter()
    let needs = NIOLockedValueBox<[AppNeed]>([])
    adapter.whenAppNeeds { [app] id, need in
      #expect(id == app)
      needs.withLockedValue { $0.append(need) }
      adapter.move(id, to: .awake)
    }
    adapter.register(app, [.central])
    let probe = try await Probe.poweredOn(adapter, of: app)
    adapter.move(app, to: .suspended)
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    #expect(needs.withLockedValue { $0 } == [.run("a connection")])
    withExtendedLifetime(host) {}
  }

  @Test("S18: an app that stops before it has taken the event that woke it is woken again")
  func wokenAgain() async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor()), adapter = room.adapter()
    let needs = NIOLockedValueBox<[AppNeed]>([])
    adapter.register(app, [.central])
    let probe = try await Probe.poweredOn(adapter, of: app)
    adapter.whenAppNeeds { id, need in
      let isFirst = needs.withLockedValue { needs in
        needs.append(need)
        return needs.count == 1
      }
      probe.isStalled = isFirst
      adapter.move(id, to: .awake)
      if isFirst { adapter.move(id, to: .suspended) }
    }
    adapter.move(app, to: .suspended)
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    #expect(needs.withLockedValue { $0 } == [.run("a connection"), .run("a connection")])
    withExtendedLifetime(host) {}
  }
}
