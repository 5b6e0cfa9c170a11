import BindruneWire
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// Twenty apps and fifty devices over a long time: nothing leaks, no event is lost, and every table of both cores is
/// bounded.
@Suite struct SoakTests {
  /// 3, or `BINDRUNE_SOAK_HOURS`: 168 are a week.
  private static var hours: Int { ProcessInfo.processInfo.environment["BINDRUNE_SOAK_HOURS"].flatMap { Int($0) } ?? 3 }

  @Test(
    "Apps that run, wait, end and are relaunched, and devices that come and go: each event arrives, and nothing is left"
  )
  func week() {
    let begin = ContinuousClock.now, soak = Soak(seed: Fuzz.seed)
    print("soak: \(Self.hours) h, seed \(Fuzz.seed)")
    for hour in 1...Self.hours where soak.faults.isEmpty {
      soak.run(until: .zero + .seconds(hour * 3600))
      soak.checkTables("after \(hour) h")
      if hour % 24 == 0 {
        print("soak: \(hour) h, \(soak.figures.events) events, RSS \(SoakFigures.memory("VmRSS:")) kB")
      }
    }
    if soak.faults.isEmpty { soak.end() }
    for fault in soak.faults.prefix(5) { Issue.record("seed \(Fuzz.seed): \(fault)") }
    print(soak.figures.text)
    print(
      "soak: greatest tables: \(soak.tables.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: ", "))"
    )
    print("soak: peak RSS \(SoakFigures.memory("VmHWM:")) kB, \(ContinuousClock.now - begin)")
    let figures = soak.figures
    #expect(figures.delivered > 0 && figures.waited > 0 && figures.relaunches > 0 && figures.wakes > 0)
    #expect(figures.owed == figures.delivered + figures.dropped + figures.ended)
  }
}

/// `BrokerCore` and `AppCore`, joined as `Adapter` and `AppServer` join them, over a model of the host. Processes,
/// users and the air are drawn.
private final class Soak {
  /// An event that must not be lost.
  private enum Mark: Equatable {
    case values(UUID, Range<UInt32>)
    case restored, completed(OperationID), connectionFailed(UUID), disconnected(UUID)
    /// A crowded queue combines these.
    case connected(UUID), interrupted(UUID), subscribed(UUID, AttributeHandle), unsubscribed(UUID, AttributeHandle)

    var isCombined: Bool {
      switch self {
      case .connected, .interrupted, .subscribed, .unsubscribed: true
      case .values, .restored, .completed, .connectionFailed, .disconnected: false
      }
    }
    init?(_ event: BrokerEvent) {
      switch event {
      case .values(let peer, _, let values):
        guard let range = Soak.range(of: values) else { return nil }
        self = .values(peer, range)
      case .restored: self = .restored
      case .completed(let id, _): self = .completed(id)
      case .connectionFailed(let peer, _): self = .connectionFailed(peer)
      case .disconnected(let peer, _, let isReconnecting, _):
        self = isReconnecting ? .interrupted(peer) : .disconnected(peer)
      case .connected(let peer, _, _): self = .connected(peer)
      case .subscribed(let peer, let handle, _): self = .subscribed(peer, handle)
      case .unsubscribed(let peer, let handle): self = .unsubscribed(peer, handle)
      // The end of a request removes it from the queue.
      case .readRequested, .writeRequested, .requestEnded: return nil
      case .adapter, .discovered, .scanFailed, .nameChanged, .longestWriteChanged, .servicesChanged, .readyToWrite,
        .linkedPeers, .longestUpdateChanged, .readyToUpdate, .advertisingEnded, .channelAccepted:
        return nil
      }
    }
  }
  /// Counts what a queue drops.
  private final class Reader: EventQueueReader {
    private let count = Atomic(0)
    var dropped: Int { count.load(ordering: .relaxed) }
    func eventsWait(in queue: EventQueue) {}
    func eventsDropped(_ dropped: Int, from queue: EventQueue) { count.add(dropped, ordering: .relaxed) }
  }
  private struct Manager {
    let app: Int, role: BackgroundMode
    var queue = EventQueue(), reader = Reader()
    var isHeld = false
    /// Its process has ended, and it is preserved.
    var isPreserved = false
    /// What its queue must yield.
    var owed: [Mark] = []
    var isCrowded = true
    /// Events that have come since it has taken any, no fewer than the queue counts: from 1,024 on it combines some.
    var waiting = 0
    /// The devices that it has connected, or asked for; those whose values it has been promised.
    var wanted: Set<UUID> = [], promised: Set<UUID> = []
    var services: [AttributeHandle] = []
    /// The next event that it takes must be `.restored`, or the state if there was nothing to restore.
    var isNew = true
    /// It has been held, and has taken nothing since.
    var hasWaited = false

    init(_ app: Int, _ role: BackgroundMode) {
      (self.app, self.role) = (app, role)
      queue.reader = reader
    }
  }
  private struct Process {
    let number: Int
    var isStopped = false
    var sessions: [SessionID] = []
  }
  private struct SoakApp {
    let identities: [ManagerIdentity], modes: Set<BackgroundMode>, canLaunch: Bool
    /// Nil: nothing of it is known.
    var id: AppID?
    var process: Process?
    /// Its user has it in the foreground.
    var isShown = false
    /// An attempt to relaunch that has neither failed nor succeeded.
    var launched: Instant?
    /// A task of it has completed since then without a process.
    var waiting: Instant?
    var lastAttempt = Instant.zero
  }
  private enum Event {
    case act(Int), live(Int), move(PeerID), send(PeerID), appear(PeerID), visit(PeerID)
    case begin(Int, isLaunched: Bool), launchFailed(Int, AppID), kill(Int, process: Int), noticed(
      Int, AppID, isKept: Bool)
    case unanswered(LinkID, ServerRequest), fail
  }

  private(set) var faults: [String] = []
  private(set) var figures = SoakFigures()
  /// The greatest size of each.
  private(set) var tables: [String: Int] = [:]
  private var host = ModelHost(), system = AppCore()
  private var chance: SplitMix64
  private var now = Instant.zero
  /// The latest first.
  private var schedule: [(at: Instant, event: Event)] = []
  private var apps: [SoakApp] = []
  private var managers: [SessionID: Manager] = [:]
  /// Sessions of the process that is ending.
  private var ending: Set<SessionID> = []
  private var numbers: [AppID: Int] = [:]
  private var operations: [OperationID: UUID] = [:]
  private var sequence: [PeerID: UInt32] = [:]
  private var lastApp = 0, lastSession = 1, lastProcess = 0, lastOperation: UInt64 = 0
  private var baseline: [String: Int] = [:]
  /// No process begins any more.
  private var isOver = false
  /// The last events, for a fault.
  private var recent: [String] = []

  private static let keeper = SessionID(rawValue: 1)
  private static let peers = (1...50).map { PeerID(PeerAddress(DeviceAddress(0xC100_0000_0000 + UInt64($0)), .random)) }
  private static let service = AttributeHandle(rawValue: 0x10)
  private static let value = AttributeHandle(rawValue: 0x12), control = AttributeHandle(rawValue: 0x15)

  init(seed: UInt64) {
    chance = SplitMix64(seed: seed)
    // It keeps the adapter open.
    host.with { $0.add(Self.keeper, now: $1) }
    perform()
    baseline = sizes()
    let modes: [Set<BackgroundMode>] = [[.central], [.peripheral], [.central, .peripheral], []]
    for number in 0..<20 {
      // Half of them are restored, most of these by a command.
      let isRestored = number % 2 == 0 || number % 5 == 0
      func identity(_ role: BackgroundMode) -> ManagerIdentity {
        ManagerIdentity(role, restoreIdentifier: isRestored ? "\(role.rawValue)\(number)" : nil)
      }
      let identities =
        number % 3 == 0
        ? [identity(.central), identity(.peripheral)]
        : number % 4 == 1 ? [identity(.peripheral)] : [identity(.central)]
      apps.append(
        SoakApp(identities: identities, modes: modes[number / 5 % 4], canLaunch: isRestored && number % 8 != 6))
      later(.act(number), 60)
      later(.live(number), 60)
    }
    for peer in Self.peers {
      if chanceOf(2) { host.arrive(peer) }
      for (event, mean) in [
        (Event.move(peer), 2400), (.send(peer), 60), (.appear(peer), 300), (.visit(peer), 1200),
      ] { later(event, mean) }
    }
    later(.fail, 20_000)
  }

  // MARK: Time

  func run(until end: Instant) {
    while faults.isEmpty {
      let times = [schedule.last?.at, host.core.deadline, system.deadline]
      guard let next = times.compactMap({ $0 }).min(), next <= end else { break }
      now = max(now, next)
      host.now = now
      figures.events += 1
      if let deadline = host.core.deadline, deadline <= now {
        host.with { $0.expire(now: $1) }
      } else if let deadline = system.deadline, deadline <= now {
        system.expire(now: now)
        perform()
        checkLives()
      } else if let (_, event) = schedule.popLast() {
        if recent.count >= 12 { recent.removeFirst() }
        recent.append("\(now) \(event)")
        happen(event)
      }
      perform()
    }
    now = max(now, end)
    host.now = now
  }
  private func later(_ event: Event, _ mean: Int) { after(event, .milliseconds(drawn(mean * 1000))) }
  private func after(_ event: Event, _ time: Duration) {
    let at = now + time
    var low = 0, high = schedule.count
    while low < high {
      let middle = (low + high) / 2
      if schedule[middle].at > at { low = middle + 1 } else { high = middle }
    }
    schedule.insert((at, event), at: low)
  }
  private func drawn(_ mean: Int) -> Int { Int.random(in: 0...2 * mean, using: &chance) }
  private func chanceOf(_ number: Int) -> Bool { Int.random(in: 0..<number, using: &chance) == 0 }
  private func expect(_ condition: Bool, _ text: @autoclosure () -> String) {
    if !condition { faults.append("\(now): \(text().prefix(500))\n\(recent.joined(separator: "\n"))") }
  }

  private func happen(_ event: Event) {
    switch event {
    case .act(let number):
      act(number)
      later(event, 60)
    case .live(let number):
      live(number)
      // Users forget some of them for hours.
      later(event, number % 5 == 4 ? 10_000 : 300)
    case .move(let peer):
      if host.present.contains(peer) { host.leave(peer) } else { host.arrive(peer) }
      later(event, 2400)
    case .send(let peer):
      send(from: peer)
      later(event, 60)
    case .appear(let peer):
      if host.present.contains(peer) { host.discover(peer) }
      later(event, 300)
    case .visit(let peer):
      visit(peer)
      later(event, 1200)
    case .begin(let number, let isLaunched): begin(number, isLaunched: isLaunched)
    case .launchFailed(let number, let app):
      guard apps[number].id == app, apps[number].process == nil else { return }
      figures.failedLaunches += 1
      apps[number].launched = nil
      system.launchFailed(app, "a test", now: now)
    case .kill(let number, let process): if apps[number].process?.number == process { endProcess(number) }
    case .noticed(let number, let app, let isKept): noticed(number, app, isKept: isKept)
    case .unanswered(let link, let request):
      guard host.core.serving.clients[link]?.request == request else { return }
      host.with { $0.receive(.requestUnanswered(link), now: $1) }
    case .fail:
      if isRunning {
        figures.failures += 1
        host.fail()
      }
      later(event, 20_000)
    }
  }
  private var isRunning: Bool { if case .running = host.core.phase { true } else { false } }

  // MARK: The air

  private static func range(of values: BrokerValues) -> Range<UInt32>? {
    var first: UInt32?, count: UInt32 = 0
    values.visit { value in
      let number = (0..<4).reduce(UInt32(0)) { $0 | UInt32(value[$1]) << UInt32(8 * $1) }
      guard number == (first ?? number) + count else {
        count = 0
        return false
      }
      if first == nil { first = number }
      count += 1
      return true
    }
    return first.flatMap { count == 0 ? nil : $0..<$0 + count }
  }
  /// As `Adapter` hands over the values of a batch.
  private func send(from peer: PeerID) {
    guard isRunning, let link = host.link(of: peer) else { return }
    let readers = host.core.readers(of: Self.value, on: link)
    let promised = Set(managers.filter { $0.value.promised.contains(UUID(peer)) }.keys)
    expect(Set(readers.map(\.session)) == promised, "readers \(readers), promised to \(promised)")
    if readers.isEmpty { return }
    let isStream = peer.rawValue % 10 == 0, first = sequence[peer, default: 0]
    let count = UInt32(Int.random(in: 1...(isStream ? 3000 : 3), using: &chance)), range = first..<first &+ count
    sequence[peer] = first &+ count
    figures.sent += range.count
    var octets: [UInt8] = []
    for number in range {
      octets += [4, 0]
      for index in 0..<4 { octets.append(UInt8(truncatingIfNeeded: number >> UInt32(8 * index))) }
    }
    guard let values = BrokerValues(octets: octets) else { return expect(false, "values") }
    for reader in readers {
      guard managers[reader.session] != nil else { continue }
      figures.owed += range.count
      put(.values(reader.peer, Self.value, values), into: reader.session)
    }
    for reader in readers where managers[reader.session]?.isHeld == true {
      host.with { $0.considerValues(range.count, from: reader.peer, for: reader.session, now: $1) }
      perform()
    }
  }
  /// The device connects as a client, subscribes or asks.
  private func visit(_ peer: PeerID) {
    guard isRunning, host.present.contains(peer) else { return }
    let link = host.link(of: peer) ?? host.connectCentral(peer)
    perform()
    let services = host.core.serving.services.sorted { $0.key.rawValue < $1.key.rawValue }
    guard let service = services.randomElement(using: &chance)?.value else { return }
    host.change(chanceOf(3) ? [] : .notification, of: service.published.characteristics[0].value, on: link)
    host.runToRest()
    guard service.isEnabled, host.core.serving.clients[link]?.request == nil else { return }
    figures.requests += 1
    host.ask(service.published.characteristics[2].value, on: link, isRead: chanceOf(2))
    host.runToRest()
    if let request = host.core.serving.clients[link]?.request {
      after(.unanswered(link, request), .seconds(25))
    }
  }

  // MARK: What apps do

  private func newOperation(_ peer: UUID) -> OperationID {
    lastOperation += 1
    let id = OperationID(rawValue: lastOperation)
    operations[id] = peer
    return id
  }
  private func ask(_ session: SessionID, _ request: BrokerRequest.Central) {
    host.with { $0.request(.central(request), of: session, now: $1) }
    perform()
  }
  private func ask(_ session: SessionID, _ request: BrokerRequest.Peripheral) {
    host.with { $0.request(.peripheral(request), of: session, now: $1) }
    perform()
  }
  private func act(_ number: Int) {
    guard let process = apps[number].process, !process.isStopped,
      let session = process.sessions.randomElement(using: &chance), let manager = managers[session]
    else { return }
    let device = Self.peers.randomElement(using: &chance) ?? Self.peers[0], far = UUID(device)
    let near = manager.wanted.sorted { $0.uuidString < $1.uuidString }.randomElement(using: &chance) ?? far
    switch (manager.role, Int.random(in: 0..<12, using: &chance)) {
    case (.central, 0...3):
      guard manager.wanted.count < 6 else {
        managers[session]?.wanted.remove(near)
        return ask(session, .cancelConnection(near))
      }
      managers[session]?.wanted.insert(far)
      let options = ConnectOptions(
        startDelay: chanceOf(5) ? 30 : 0, reconnects: chanceOf(2),
        alerts: chanceOf(2) ? [.connection, .notification] : [])
      ask(session, .connect(far, options))
    case (.central, 4...7):
      ask(session, .discoverServices(newOperation(near), near, nil))
      // An app uses what it has found, so these succeed from the next time on.
      ask(session, .discoverCharacteristics(newOperation(near), near, Self.service, nil))
      ask(session, .setNotifying(newOperation(near), near, Self.value, true))
    case (.central, 8): ask(session, .setNotifying(newOperation(near), near, Self.value, false))
    case (.central, 9): ask(session, .scan(services: ["180D"], solicitedServices: [], allowsDuplicates: chanceOf(2)))
    case (.central, 10): ask(session, .stopScan)
    case (.central, _): ask(session, .read(newOperation(near), near, Self.control))
    case (.peripheral, 0...4):
      if manager.services.count < 3 { ask(session, .addService(newOperation(near), Pulse.description)) }
    case (.peripheral, 5), (.peripheral, 6):
      guard let service = manager.services.first else { return }
      managers[session]?.services.removeFirst()
      ask(session, .removeService(service))
    case (.peripheral, 7...9):
      ask(session, .startAdvertising(newOperation(near), localName: "App", services: ["180D"]))
    case (.peripheral, _): ask(session, .stopAdvertising)
    }
  }
  /// What the user and the system do.
  private func live(_ number: Int) {
    guard let process = apps[number].process, let id = apps[number].id else {
      // A user starts one that is preserved more rarely, so that the system does it.
      if apps[number].id == nil || chanceOf(8) { begin(number, isLaunched: false) }
      return
    }
    switch Int.random(in: 0..<16, using: &chance) {
    case 0...5:
      apps[number].isShown = false
      system.move(id, to: .background, now: now)
    case 6...8:
      apps[number].isShown = true
      system.move(id, to: .foreground, now: now)
    case 9, 10:
      apps[number].isShown = false
      system.move(id, to: .suspended, now: now)
    case 11: system.move(id, to: .terminated, now: now)
    case 12, 13: endProcess(number)
    default: if !process.isStopped { leave(number) }
    }
  }

  // MARK: Processes

  /// As `AppServer` admits the sessions of a process.
  private func begin(_ number: Int, isLaunched: Bool) {
    // It is refused: another process of the app runs already.
    guard apps[number].process == nil else { return }
    if isLaunched { figures.relaunches += 1 }
    let id: AppID
    if let known = apps[number].id {
      id = known
    } else {
      lastApp += 1
      id = AppID(rawValue: lastApp)
      apps[number].id = id
      numbers[id] = number
    }
    lastProcess += 1
    figures.processes += 1
    apps[number].process = Process(number: lastProcess)
    apps[number].launched = nil
    apps[number].waiting = nil
    system.begin(id, canLaunch: apps[number].canLaunch, now: now)
    let life = system.life(of: id) ?? .foreground
    apps[number].isShown = life == .foreground
    host.with { $0.register(id, apps[number].modes, life, now: $1) }
    perform()
    for identity in apps[number].identities { admit(identity, number, id) }
    perform()
  }
  private func admit(_ identity: ManagerIdentity, _ number: Int, _ id: AppID) {
    if let session = host.core.preserved(identity, of: id) {
      restore(session)
      apps[number].process?.sessions.append(session)
    } else {
      lastSession += 1
      let session = SessionID(rawValue: lastSession)
      managers[session] = Manager(number, identity.role)
      apps[number].process?.sessions.append(session)
      host.with { $0.add(session, of: id, as: identity, now: $1) }
      perform()
    }
  }
  /// As `Adapter.restore`.
  private func restore(_ session: SessionID) {
    let waiting = takeRemaining(of: session).filter(\.outlivesProcess)
    figures.restored += 1
    replaceQueue(of: session)
    managers[session]?.isPreserved = false
    managers[session]?.hasWaited = true
    host.with { $0.restore(session, before: waiting, now: $1) }
    let services = host.core.serving.services(of: session)
    managers[session]?.services = services
    deliverAll()
    for event in waiting { put(event, into: session) }
    perform()
  }
  private func replaceQueue(of session: SessionID) {
    let queue = EventQueue(), reader = Reader()
    queue.reader = reader
    managers[session]?.queue = queue
    managers[session]?.reader = reader
    managers[session]?.isHeld = false
    managers[session]?.isCrowded = true
    managers[session]?.isNew = true
  }
  /// Its socket is closed: as `Adapter.end` and `AppServer.endSessions`.
  private func endProcess(_ number: Int) {
    guard let process = apps[number].process, let id = apps[number].id else { return }
    apps[number].process = nil
    apps[number].isShown = false
    ending = Set(process.sessions)
    let kept = host.with { $0.end(id, now: $1) }
    for session in process.sessions where !host.core.isKnown(session) { forget(session) }
    for session in kept where ending.contains(session) { keepEvents(of: session) }
    perform()
    ending = []
    after(.noticed(number, id, isKept: !kept.isEmpty), .milliseconds(drawn(10)))
    if !isOver, chanceOf(8) { after(.begin(number, isLaunched: false), .milliseconds(drawn(10))) }
  }
  /// What waits for it ends with it.
  private func forget(_ session: SessionID) {
    for event in takeRemaining(of: session) {
      if case .values(_, _, let values) = event { figures.ended += values.count }
    }
    managers[session] = nil
  }
  /// As `Adapter.keepEvents`.
  private func keepEvents(of session: SessionID) {
    figures.preserved += 1
    let left = takeRemaining(of: session)
    replaceQueue(of: session)
    managers[session]?.isPreserved = true
    managers[session]?.isHeld = true
    managers[session]?.queue.hold(true)
    for event in left { put(event, into: session) }
    host.with { core, _ in core.consider(left: left, for: session) }
  }
  private func noticed(_ number: Int, _ id: AppID, isKept: Bool) {
    guard apps[number].id == id, apps[number].process == nil else { return }
    system.end(id, isKept: isKept, now: now)
    perform()
    if isKept { return }
    apps[number].id = nil
    apps[number].waiting = nil
    numbers[id] = nil
  }
  /// The app closes its managers, and ends.
  private func leave(_ number: Int) {
    guard let process = apps[number].process else { return }
    ending = Set(process.sessions)
    for session in process.sessions {
      forget(session)
      host.with { $0.remove(session, now: $1) }
      perform()
    }
    apps[number].process?.sessions = []
    endProcess(number)
  }

  // MARK: Effects

  private func perform() {
    var isDone = false
    while !isDone {
      host.runToRest()
      deliverAll()
      isDone = true
      for effect in host.takeOthers() {
        isDone = false
        perform(effect)
      }
      while let effect = system.nextEffect() {
        isDone = false
        perform(effect)
      }
      for session in managers.keys.sorted(by: { $0.rawValue < $1.rawValue }) where take(session) { isDone = false }
    }
  }
  private func perform(_ effect: BrokerEffect) {
    switch effect {
    case .hold(let session, let isHeld):
      managers[session]?.isHeld = isHeld
      managers[session]?.hasWaited = true
      let left = managers[session]?.queue.hold(isHeld) ?? []
      host.with { core, _ in core.consider(left: left, for: session) }
    case .wake(let app, let why):
      if let number = numbers[app], apps[number].process == nil, apps[number].canLaunch, apps[number].waiting == nil {
        apps[number].waiting = now
        apps[number].lastAttempt = now
      }
      system.wake(app, why, now: now)
    case .alert(let app, _):
      figures.alerts += 1
      expect(host.core.apps[app]?.life == .suspended, "an alert of an app that is not suspended")
    default: expect(false, "\(effect)")
    }
  }
  private func perform(_ effect: AppCore.Effect) {
    switch effect {
    case .move(let app, let life):
      figures.moves += 1
      host.with { $0.move(app, to: life, now: $1) }
    case .stop(let app): if let number = numbers[app] { apps[number].process?.isStopped = true }
    case .resume(let app):
      figures.wakes += 1
      if let number = numbers[app] { apps[number].process?.isStopped = false }
    case .kill(let app):
      guard let number = numbers[app], let process = apps[number].process else { return }
      after(.kill(number, process: process.number), .milliseconds(drawn(50)))
    case .launch(let app): launch(app)
    case .log: break
    }
  }
  private func launch(_ app: AppID) {
    guard let number = numbers[app] else { return expect(false, "\(app) is launched, and unknown") }
    expect(apps[number].process == nil, "app \(number) is launched, and runs")
    expect(
      apps[number].launched.map { now >= $0 + system.limits.launch } ?? true, "app \(number) is launched twice at once")
    figures.launches += 1
    apps[number].launched = now
    apps[number].lastAttempt = now
    switch Int.random(in: 0..<8, using: &chance) {
    case 0: after(.launchFailed(number, app), .milliseconds(drawn(500)))
    // It hangs.
    case 1: break
    default: after(.begin(number, isLaunched: true), .milliseconds(drawn(2_000)))
    }
  }

  // MARK: Events

  private func deliverAll() { for (session, event) in host.takeDelivered() { deliver(event, to: session) } }
  private func deliver(_ event: BrokerEvent, to session: SessionID) {
    if session == Self.keeper { return }
    guard managers[session] != nil else {
      return expect(ending.contains(session), "\(event) to \(session), which has been closed")
    }
    switch event {
    case .completed(let id, .success(.notifying(let isOn))):
      guard let peer = operations[id] else { return expect(false, "an answer to nothing") }
      if isOn { managers[session]?.promised.insert(peer) } else { managers[session]?.promised.remove(peer) }
    case .completed(_, .success(.published(let service))): managers[session]?.services.append(service.handle)
    case .connected(let peer, _, _):
      figures.connections += 1
      expect(managers[session]?.wanted.contains(peer) == true, "\(session) is connected to what it has not asked for")
    case .disconnected(let peer, _, let isReconnecting, _):
      managers[session]?.promised.remove(peer)
      if !isReconnecting { managers[session]?.wanted.remove(peer) }
    case .connectionFailed(let peer, _): managers[session]?.wanted.remove(peer)
    case .adapter(let state) where state != .poweredOn:
      managers[session]?.promised = []
      // What is preserved is begun again.
      if managers[session]?.isPreserved == false {
        managers[session]?.wanted = []
        managers[session]?.services = []
      }
    default: break
    }
    if case .completed(let id, _) = event { operations[id] = nil }
    put(event, into: session)
  }
  private func put(_ event: BrokerEvent, into session: SessionID) {
    guard let manager = managers[session] else { return }
    let before = manager.reader.dropped
    manager.queue.put([event])
    let dropped = manager.reader.dropped - before
    if case .values(_, _, let values) = event { managers[session]?.waiting += values.count }
    managers[session]?.waiting += 1
    if managers[session]?.waiting ?? 0 >= 1024 { managers[session]?.isCrowded = true }
    guard var mark = Mark(event) else { return }
    if case .values(let peer, let range) = mark {
      figures.dropped += dropped
      if range.count == dropped { return }
      mark = .values(peer, range.lowerBound..<range.upperBound - UInt32(dropped))
    } else {
      expect(dropped == 0, "\(event) is dropped")
    }
    managers[session]?.owed.append(mark)
  }
  /// The events are exactly those that the manager is owed. A crowded queue may have combined some.
  private func settle(_ events: [BrokerEvent], _ session: SessionID) {
    guard let manager = managers[session] else { return }
    var owed = manager.owed[...]
    for event in events {
      guard let mark = Mark(event) else { continue }
      while let first = owed.first, first != mark, first.isCombined, manager.isCrowded { owed = owed.dropFirst() }
      expect(owed.first == mark, "\(session) gets \(mark), and is owed \(owed.prefix(3))")
      owed = owed.dropFirst()
    }
    expect(owed.allSatisfy { $0.isCombined && manager.isCrowded }, "\(session) does not get \(owed.prefix(3))")
    managers[session]?.owed = []
    managers[session]?.waiting = 0
  }
  private func takeRemaining(of session: SessionID) -> [BrokerEvent] {
    guard let manager = managers[session] else { return [] }
    let events = manager.queue.takeRemaining()
    settle(events, session)
    return events
  }
  /// What the app does with its events. False: there are none.
  private func take(_ session: SessionID) -> Bool {
    // Nobody reads what waits for the next process.
    guard let manager = managers[session], !manager.isPreserved else { return false }
    let events = manager.queue.takeAll().compactMap { $0 }
    guard let first = events.first else { return false }
    expect(!manager.isHeld, "a manager that is held gets \(first)")
    settle(events, session)
    if manager.isNew {
      switch first {
      case .restored, .adapter: break
      default: expect(false, "the first event of \(session) is \(first)")
      }
    }
    for event in events {
      switch event {
      case .values(_, _, let values):
        figures.delivered += values.count
        if manager.hasWaited { figures.waited += values.count }
      case .adapter:
        managers[session]?.isNew = false
        managers[session]?.isCrowded = false
      case .readRequested(let request, let central, _, _, _):
        host.with { $0.request(.peripheral(.respond(request, central: central, Data([1]))), of: session, now: $1) }
      case .writeRequested(let request, let central, _, _):
        host.with { $0.request(.peripheral(.respond(request, central: central, nil)), of: session, now: $1) }
      default: break
      }
    }
    managers[session]?.hasWaited = false
    return true
  }

  // MARK: Checks

  private func checkLives() {
    for (number, app) in apps.enumerated() {
      guard let id = app.id, app.process != nil else { continue }
      expect(!app.isShown || system.life(of: id) == .foreground, "app \(number) is shown, and \(system.life(of: id)!)")
      expect(host.core.apps[id]?.life == system.life(of: id), "the cores disagree about app \(number)")
    }
  }
  /// What the cores keep belongs to what lives.
  func checkTables(_ place: String) {
    let core = host.core, central = core.central, serving = core.serving
    let known = Set(managers.keys).union([Self.keeper])
    expect(Set(core.sessions.ids) == known && core.sessions.ids.count == known.count, "\(place): \(core.sessions.ids)")
    expect(Set(core.apps.keys).isSubset(of: Set(numbers.keys).union([.own])), "\(place): apps \(core.apps.keys.count)")
    var wanted = Set(central.links.values.map(\.peer)), delayed = 0
    for (session, manager) in managers {
      let interests = core.sessions[session]?.interests ?? [:]
      expect(manager.wanted.isSuperset(of: interests.keys.map { UUID($0) }), "\(place): interests of \(session)")
      wanted.formUnion(interests.keys)
      for case .delayed in interests.values { delayed += 1 }
    }
    expect(wanted.isSuperset(of: central.reaches.keys), "\(place): \(central.reaches.count) reaches")
    expect(wanted.isSuperset(of: central.unheard.keys), "\(place): unheard")
    expect(
      Set(core.links.all.map(\.id)) == Set(host.links.keys) && Set(central.links.keys) == Set(host.links.keys)
        && Set(serving.clients.keys) == Set(host.links.keys), "\(place): links")
    // The host has answered everything but connection requests for devices that are not there.
    expect(Set(central.connects.keys) == Set(host.outstanding.keys), "\(place): \(host.outstanding)")
    expect(
      central.disconnects.isEmpty && central.operations.isEmpty && central.parts.isEmpty
        && central.configurations.isEmpty && serving.updates.isEmpty, "\(place): requests are left")
    expect(Set(central.scans.keys) == host.scans && central.scans.values.allSatisfy(known.contains), "\(place): scans")
    expect(
      serving.services.values.allSatisfy { managers[$0.session] != nil }
        && serving.services.count <= 3 * managers.count,
      "\(place): services")
    expect(
      serving.requests.values.allSatisfy { host.links[$0.link] != nil && managers[$0.session] != nil },
      "\(place): requests")
    expect(
      Set(serving.advertisers) == Set(serving.advertising.keys)
        && serving.advertisers.allSatisfy { managers[$0] != nil } && Set(serving.sets.keys) == host.sets,
      "\(place): advertising")
    expect(host.ports.allSatisfy { managers[$0.session] != nil }, "\(place): ports")
    let sizes = sizes()
    let waiting = central.reaches.values.count { $0.link == nil }
    expect(sizes["broker.timers.due", default: 0] <= delayed + waiting + 2, "\(place): timers \(sizes)")
    expect(sizes["apps.apps", default: 0] <= numbers.count, "\(place): \(sizes)")
    expect(sizes["apps.timers.due", default: 0] <= numbers.count, "\(place): \(sizes)")
    expect(sizes["broker.effects", default: 0] + sizes["apps.effects", default: 0] == 0, "\(place): effects wait")
    expect(sizes["broker.central.names.names", default: 0] <= Self.peers.count, "\(place): names")
    // A task that has completed is followed by attempts to relaunch.
    for (number, app) in apps.enumerated() where app.process == nil {
      guard let since = app.waiting else { continue }
      let last = max(since, app.lastAttempt)
      expect(
        now < last + system.limits.longestRetry + system.limits.launch + .seconds(1), "app \(number) is not relaunched")
    }
    checkLives()
  }
  /// All apps release what they have and end, and all devices leave.
  func end() {
    schedule = []
    isOver = true
    for number in apps.indices {
      run(until: now + .seconds(1))
      begin(number, isLaunched: false)
      run(until: now + .seconds(1))
      if let id = apps[number].id { system.move(id, to: .foreground, now: now) }
      perform()
      leave(number)
      run(until: now + .seconds(1))
    }
    for peer in Self.peers { host.leave(peer) }
    // Launches that hang, and the adapter's patience.
    run(until: now + .seconds(7200))
    checkTables("at the end")
    expect(managers.isEmpty && numbers.isEmpty && host.outstanding.isEmpty && host.links.isEmpty, "something goes on")
    let left = sizes().filter { $0.value > baseline[$0.key, default: 0] && !$0.key.hasPrefix("broker.central.names.") }
    expect(left.isEmpty, "left: \(left)")
    host.with { $0.remove(Self.keeper, now: $1) }
    host.runToRest()
    if case .idle = host.core.phase {} else { expect(false, "the core is \(host.core.phase)") }
    expect(host.core.timers.isEmpty && system.deadline == nil, "timers are left")
  }

  /// The size of every table of both cores, by its name; those of one name together.
  private func sizes() -> [String: Int] {
    var sizes: [String: Int] = [:]
    measureTables(of: host.core, "broker", &sizes)
    measureTables(of: system, "apps", &sizes)
    tables.merge(sizes.filter { $0.value > 0 }) { max($0, $1) }
    return sizes
  }
}
