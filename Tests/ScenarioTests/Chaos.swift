import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// Hosts that act at random on each other. `finish` checks the invariants.
struct Chaos: ~Copyable {
  var world: World<TestHost>
  private var chance: SplitMix64
  private let peripheral: Peripheral
  private var configurations: [ControllerConfiguration] = []
  /// Numbered values: the last number given to each host's link.
  private var numbers: [[LinkID: UInt32]] = []
  private var apart: [(Int, Int)] = []
  private var restarts: [Int] = []
  /// Requests to connect, which may wait forever.
  private var connecting: [Set<RequestID>] = []
  private var trace = AirTrace()
  /// All packets between hosts and controllers, for comparisons.
  private(set) var log: [PacketRecord] = []
  var keepsLog = false
  private(set) var done: [String: Int] = [:]
  var traced: Int { trace.requestCount }

  init(seed: UInt64) throws {
    chance = SplitMix64(seed: seed)
    peripheral = try Peripheral()
    var air = AirConfiguration.realistic
    air.loss = [0, 0, 0.01, 0.01, 0.1, 0.3].randomElement(using: &chance) ?? 0
    if Int.random(in: 0..<8, using: &chance) == 0 { air = .ideal }
    world = World(seed: seed, configuration: air)
    world.air.startRecording()
    for index in 0..<Int.random(in: 2...5, using: &chance) {
      let own = address(index + 1)
      var controller = Bool.random(using: &chance) ? ControllerConfiguration(address: own) : .legacy(address: own)
      controller.aclDataLength = [27, 28, 64, 251].randomElement(using: &chance) ?? 27
      controller.aclBufferCount = [1, 2, 3, 8, 20].randomElement(using: &chance) ?? 1
      controller.commandCredits = [1, 1, 2, 5].randomElement(using: &chance) ?? 1
      controller.maximumConnections = [1, 2, 8, 8].randomElement(using: &chance) ?? 8
      controller.filterAcceptListSize = [0, 1, 2, 8].randomElement(using: &chance) ?? 8
      if Bool.random(using: &chance) { controller.features.insert(.le2MPHY) }
      controller.terminatesOnReset = Bool.random(using: &chance)
      if Int.random(in: 0..<4, using: &chance) == 0 {
        controller.commandCreditDelay = .milliseconds(5)
      }
      configurations.append(controller)
      numbers.append([:])
      restarts.append(0)
      connecting.append([])
      world.add(TestHost(peripheral.database) { $0.queueCapacity = 2048 }, controller)
      start(index)
    }
    world.run(for: .milliseconds(100))
  }

  private mutating func start(_ host: Int) {
    world.withHost(host) { host, now in
      host.core.start(now: now)
      host.drain()
    }
  }
  private mutating func pick<Element>(_ list: [Element]) -> Element? { list.randomElement(using: &chance) }
  private mutating func octets(_ count: ClosedRange<Int>) -> [UInt8] {
    let seed = UInt8.random(in: 0...255, using: &chance)
    return (0..<Int.random(in: count, using: &chance)).map { UInt8(truncatingIfNeeded: $0) &+ seed }
  }

  // MARK: Actions

  mutating func run(steps: Int) {
    for host in 0..<world.hostCount {
      advertise(host)
      connect(host, to: (host + 1) % world.hostCount)
    }
    world.run(for: .milliseconds(200))
    for host in 0..<world.hostCount {
      for link in world.readHost(host, { $0.links }) { subscribe(to: link, host) }
    }
    for _ in 0..<steps {
      let host = Int.random(in: 0..<world.hostCount, using: &chance)
      if let link = pick(world.readHost(host, { $0.links })), Int.random(in: 0..<4, using: &chance) > 0 {
        use(link, host)
      } else {
        act(host)
      }
      let pause = Int.random(in: 0..<8, using: &chance) == 0 ? 200 : 15
      world.run(for: .milliseconds(Int.random(in: 0...pause, using: &chance)))
      checkAir()
    }
  }

  /// Something that needs no link.
  private mutating func act(_ host: Int) {
    let other = Int.random(in: 0..<world.hostCount, using: &chance)
    switch Int.random(in: 0..<20, using: &chance) {
    case 0:
      let parameters = ScanParameters(
        isActive: Bool.random(using: &chance), coalescesDuplicates: Bool.random(using: &chance))
      let id = ScanID(rawValue: UInt64.random(in: 0...2, using: &chance))
      perform(host, "scan") { host, now in host.core.startScan(parameters, id: id, now: now) }
    case 1:
      let id = ScanID(rawValue: UInt64.random(in: 0...2, using: &chance))
      perform(host, "stop scan") { host, now in host.core.stopScan(id: id, now: now) }
    case 2...5: advertise(host)
    case 6: perform(host, "stop advertising") { host, now in host.core.stopAdvertising(now: now) }
    case 7...11: if other != host { connect(host, to: other) }
    case 12...17:
      guard let id = pick(world.readHost(host) { $0.unfinished }) else { return }
      perform(host, "cancel") { host, now in host.core.cancel(id, now: now) }
    default: accident(host, other)
    }
  }
  private mutating func advertise(_ host: Int) {
    let restarts = Int.random(in: 0..<4, using: &chance) > 0
    perform(host, "advertise") { host, now in
      let parameters = AdvertisingParameters(
        interval: .every(.milliseconds(20)), restartsAfterConnection: restarts)
      do throws(AdvertisingError) {
        try host.core.advertise(AdvertisingData(localName: "chaos", serviceUUIDs: ["180D"]), parameters, now: now)
      } catch { Issue.record("\(error)") }
    }
  }
  private mutating func connect(_ host: Int, to other: Int) {
    var parameters = ConnectionParameters.fast
    parameters.interval = ConnectionInterval(.milliseconds(pick([15, 30, 50]) ?? 15))
    parameters.supervisionTimeout = SupervisionTimeout(.seconds(1))
    let peer = PeerAddress(address(other + 1), .public)
    perform(host, "connect") { host, now in host.core.connect(to: peer, parameters, id: host.newID(), now: now) }
    connecting[host].insert(RequestID(rawValue: world.readHost(host) { $0.lastRequest }))
  }

  /// Something with a link, as client or server.
  private mutating func use(_ link: LinkID, _ host: Int) {
    let peripheral = peripheral
    switch Int.random(in: 0..<37, using: &chance) {
    case 0...1: ask(host, link, "discover") { id, client in client.discoverAll(id) }
    case 2: ask(host, link, "read") { id, client in client.read(id, peripheral.short) }
    case 3: ask(host, link, "read long") { id, client in client.readLong(id, peripheral.long) }
    case 4: ask(host, link, "read by UUID") { id, client in client.read(id, uuid: "2A38") }
    case 5:
      let value = octets(0...60)
      ask(host, link, "write") { id, client in client.write(id, peripheral.writable, value.span) }
    case 6:
      let value = octets(100...512)
      ask(host, link, "write long") { id, client in client.writeLong(id, peripheral.long, value.span) }
    case 7: ask(host, link, "read dynamic") { id, client in client.readLong(id, peripheral.dynamic) }
    case 8:
      let value = octets(0...20)
      ask(host, link, "write dynamic") { id, client in client.write(id, peripheral.dynamic, value.span) }
    case 9...13: subscribe(to: link, host)
    case 14: ask(host, link, "unsubscribe") { id, client in client.unsubscribe(id, peripheral.notifying) }
    case 15...20: notify(host)
    case 32...33:
      for link in world.readHost(host, { $0.core.subscribers(of: peripheral.indicating) }) {
        let value = octets(0...40)
        perform(host, "indicate") { host, _ in _ = host.indicate(value, of: peripheral.indicating, on: link) }
      }
    case 23:
      let value = octets(0...20), burst = Int.random(in: 1...100, using: &chance)
      perform(host, "write command") { host, _ in
        for _ in 0..<burst { _ = host.write(command: value, to: peripheral.writable, on: link) }
      }
    case 24:
      let isWaitedFor = Bool.random(using: &chance)
      perform(host, "disconnect") { host, now in
        host.core.disconnect(link, id: isWaitedFor ? host.newID() : nil, now: now)
      }
    case 25:
      let parameters = ConnectionParameters(
        interval: ConnectionInterval(.milliseconds(40)), supervisionTimeout: SupervisionTimeout(.seconds(1)))
      perform(host, "update") { host, now in host.core.updateParameters(link, parameters, now: now) }
    case 34:
      let wish = pick(ConnectionLatency.allCases) ?? .low
      request(host, "wish") { core, id, now in
        core.updateParameters(link, ConnectionParameterRange(wish), id: id, now: now)
      }
    case 35:
      request(host, "strength") { core, id, now in core.readRSSI(link, id: id, now: now) }
      request(host, "features") { core, id, now in core.readFeatures(link, id: id, now: now) }
    case 36:
      let phys = pick([PHYSet.le1M, .le2M, [.le1M, .le2M]]) ?? .le1M
      request(host, "modulation") { core, id, now in
        core.setPHYs(link, PHYPreferences(transmit: phys, receive: phys), id: id, now: now)
      }
    case 26...27:
      guard let id = pick(world.readHost(host) { $0.unfinished }) else { return }
      perform(host, "cancel") { host, now in host.core.cancel(id, now: now) }
    default: answer(host)
    }
  }
  private mutating func subscribe(to link: LinkID, _ host: Int) {
    let isNotified = Bool.random(using: &chance), handle = isNotified ? peripheral.notifying : peripheral.indicating
    ask(host, link, "discover") { id, client in client.discoverAll(id) }
    ask(host, link, "subscribe") { id, client in
      client.subscribe(id, handle, isNotified ? .notification : .indication)
    }
  }
  private mutating func accident(_ host: Int, _ other: Int) {
    switch Int.random(in: 0..<6, using: &chance) {
    case 0...1 where host != other:
      count("separate")
      world.separate(host, other)
      apart.append((host, other))
    case 2...3: reunite()
    case 4:
      count("restart")
      restarts[host] += 1
      start(host)
    case 5:
      count("replace")
      world.replaceController(of: host, configurations[host])
      start(host)
    default: break
    }
  }
  private mutating func reunite() {
    for (a, b) in apart { world.reunite(a, b) }
    apart = []
  }
  /// Sends values with their sender's link and a number, as many as there is room for and at most 30 in a row.
  private mutating func notify(_ host: Int) {
    let peripheral = peripheral, burst = Int.random(in: 1...30, using: &chance)
    for link in world.readHost(host, { $0.core.subscribers(of: peripheral.notifying) }) {
      for _ in 0..<burst {
        let number = numbers[host][link] ?? 0
        let value = [link.rawValue, number].flatMap { word in
          (0..<4).map { UInt8(truncatingIfNeeded: word >> (8 * $0)) }
        }
        let more = octets(0...200)
        let answer = world.withHost(host) { host, _ in host.notify(value + more, of: peripheral.notifying, on: link) }
        count("notify")
        guard answer?.isAccepted == true else { break }
        numbers[host][link] = number + 1
      }
    }
  }
  /// Answers or refuses requests of clients to the application.
  private mutating func answer(_ host: Int) {
    for question in world.readHost(host, { $0.questions }) {
      let value = octets(0...20), isYes = Int.random(in: 0..<4, using: &chance) > 0
      perform(host, "answer") { host, now in host.answer(question.id, isYes ? value : nil, now: now) }
    }
  }
  private mutating func request(
    _ host: Int, _ name: String, _ body: (inout HostCore, RequestID, Instant) -> Void
  ) {
    perform(host, name) { host, now in body(&host.core, host.newID(), now) }
  }
  private mutating func ask(_ host: Int, _ link: LinkID, _ name: String, _ body: (RequestID, inout Client) -> Void) {
    perform(host, name) { host, _ in
      let id = host.newID()
      host.core.withClient(of: link, id: id) { body(id, &$0) }
    }
  }
  private mutating func perform(_ host: Int, _ name: String, _ body: (inout TestHost, Instant) -> Void) {
    count(name)
    world.withHost(host) { host, now in
      body(&host, now)
      host.drain()
    }
  }
  private mutating func count(_ name: String) { done[name, default: 0] += 1 }

  // MARK: Invariants

  private mutating func checkAir() {
    let records = world.air.takeRecords()
    trace.check(records)
    if keepsLog { log += records }
  }

  /// Ends all activity, and returns the violated invariants.
  mutating func finish() -> [String] {
    var faults: [String] = []
    reunite()
    for host in 0..<world.hostCount {
      perform(host, "stop") { host, now in
        for id in UInt64(0)...2 { host.core.stopScan(id: ScanID(rawValue: id), now: now) }
        host.core.stopAdvertising(now: now)
      }
    }
    // Longer than any time-out: 40 s of an update, 30 s of a transaction and the second in which it ends the link.
    let end = world.now + .seconds(45)
    while world.now < end, isBusy {
      for host in 0..<world.hostCount { answer(host) }
      if case .stepLimit = world.run(for: .milliseconds(300)) { return ["somebody talks without end"] }
    }
    // Only connection requests without an answer remain.
    for host in 0..<world.hostCount {
      for id in world.readHost(host, { $0.unfinished }) {
        perform(host, "cancel") { host, now in host.core.cancel(id, now: now) }
      }
    }
    // Longer than the supervision time-outs of all latencies: a link without its other end times out meanwhile.
    world.run(for: .seconds(8))
    checkAir()
    faults += trace.faults
    for host in 0..<world.hostCount { faults += check(host) }
    return faults
  }

  /// Something is in progress that will end.
  private var isBusy: Bool {
    for index in 0..<world.hostCount {
      let mayWait = connecting[index]
      let isSending = world.air.usedBuffers(of: world.controller(of: index)) > 0
      let isBusy = world.readHost(index) { host in
        isSending || !host.questions.isEmpty || !host.full.isEmpty || !host.indicating.isEmpty || !host.scans.isEmpty
          || host.isAdvertising
          || host.unfinished.contains { !mayWait.contains($0) }
      }
      if isBusy { return true }
    }
    return false
  }
  private mutating func check(_ index: Int) -> [String] {
    var faults: [String] = []
    let controller = world.controller(of: index), hostCount = world.hostCount
    let handles = world.air.handles(of: controller), counts = world.air.faults(of: controller)
    let used = world.air.usedBuffers(of: controller)
    // The Reset of a restart does not wait for a controller that may have stopped answering.
    if counts.commandsWithoutCredit > restarts[index] { faults.append("\(counts)") }
    if counts.dataBeyondBuffers + counts.malformedPackets > 0 { faults.append("\(counts)") }
    if used > 0 { faults.append("\(used) buffers in use") }
    world.readHost(index) { host in
      if !host.isStarted || host.failures > 0 { faults.append("not running, \(host.failures) failures") }
      if !host.unfinished.isEmpty { faults.append("no completion: \(host.unfinished.map(\.rawValue))") }
      if !host.overfinished.isEmpty { faults.append("completions of \(host.overfinished.map(\.rawValue))") }
      if host.needlessEdges > 0 { faults.append("\(host.needlessEdges) edges too many") }
      if !host.full.isEmpty { faults.append("no edge on \(host.full)") }
      if !host.indicating.isEmpty { faults.append("not confirmed: \(host.indicating)") }
      if !host.questions.isEmpty { faults.append("\(host.questions.count) questions to the application") }
      if !host.scans.isEmpty || host.isAdvertising { faults.append("scans or advertises") }
      if host.links.count != handles.count { faults.append("\(host.links), but the controller has \(handles)") }
      if let deadline = host.core.deadline, deadline < world.now { faults.append("a deadline in the past") }
      // Expected outcomes, not faults.
      let accepted = [
        "parametersRejected", "applicationTooSlow", "transactionTimedOut", "advertising: 0x09", "advertising: 0x0C",
        "scan: 0x0C",
      ]
      for violation in host.violations where !accepted.contains(where: violation.hasPrefix) { faults.append(violation) }
      // Numbers of one sender, from zero, without gaps.
      var next: [LinkID: (sender: UInt32, number: UInt32)] = [:]
      for (link, handle, value, _) in host.values where handle == peripheral.notifying {
        let words = [0, 4].map { at in (0..<4).reduce(UInt32(0)) { $0 | UInt32(value[at + $1]) << UInt32(8 * $1) } }
        let (sender, expected) = next[link] ?? (words[0], 0)
        if words != [sender, expected] { faults.append("\(link): \(words), not \([sender, expected])") }
        next[link] = (sender, words[1] + 1)
      }
      // On links that still exist all of them have arrived.
      for up in host.ups where host.links.contains(up.link) {
        guard let peer = (0..<hostCount).first(where: { address($0 + 1) == up.peer.firstAddress.address }) else {
          continue
        }
        let theirs = world.readHost(peer) { other in
          other.ups.last { other.links.contains($0.link) && $0.peer.firstAddress.address == address(index + 1) }?.link
        }
        guard let theirs else {
          faults.append("\(up.link) with host \(peer), which has none")
          continue
        }
        let sent = numbers[peer][theirs] ?? 0, got = next[up.link]?.number ?? 0
        if sent != got { faults.append("\(got) of \(sent) values arrived on \(up.link)") }
      }
    }
    return faults.map { "host \(index): \($0)" }
  }
}

func address(_ number: Int) -> DeviceAddress { DeviceAddress(0x00A0_5000_0000 + UInt64(number)) }
