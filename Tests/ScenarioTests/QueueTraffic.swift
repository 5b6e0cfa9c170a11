import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport

/// Hosts with several links each offer each other values at random. A model of every queue follows the offers and the
/// packets between hosts and controllers. Every answer, every PDU and every ready edge is compared with the model; a
/// difference is a fault, as text.
struct QueueTraffic: ~Copyable {
  /// The service of each host: three values that notify, one that indicates, one to read and write.
  struct Values {
    let database: Database
    let notifying: [AttributeHandle], indicating: AttributeHandle, long: AttributeHandle, writable: AttributeHandle
    init() throws {
      var builder = DatabaseBuilder()
      builder.genericAccess(name: "traffic")
      (notifying, indicating, long, writable) = builder.service("180D") {
        (
          [
            $0.characteristic("2A37", .notify).value, $0.characteristic("2A1C", .notify).value,
            $0.characteristic("2A5B", .notify).value,
          ],
          $0.characteristic("2A05", .indicate).value,
          $0.characteristic("2A38", [.read, .write], value: .stored([UInt8](repeating: 5, count: 300))).value,
          $0.characteristic("2A39", [.read, .write, .writeWithoutResponse]).value
        )
      }
      database = try builder.build()
    }
  }
  /// One end of a link: the model of its queue.
  struct End {
    struct Entry: Equatable { var opcode: UInt8, handle: AttributeHandle, value: [UInt8] }
    let host: Int, peer: Int, handle: UInt16
    /// Known once the host has reported it, after the run in which it came up.
    var link: LinkID?
    /// The other end's index in `ends`.
    var other: Int?
    var isUp = true, isInUse = false
    var mtu = 23, ownMTU = 0, peerMTU = 0
    var isExchanging = false
    var waiting: [Entry] = []
    /// Its first packet has been sent to the controller.
    var inFlight: Entry?
    var sent: [Entry] = []
    var arrived = 0
    var isRefused = false, edges = 0, hasNewEdge = false
    var isIndicating = false
    /// The opcode of a request whose response has not begun to leave.
    var unanswered: UInt8?
    var used: Int { waiting.reduce(0) { $0 + QueueTraffic.space($1.value.count) } }
    var longest: Int { min(mtu - 3, 512) }
    /// The most octets of an entry: those of the longest PDU, which is a Multiple Handle Value Notification.
    var longestEntry: Int { mtu - 3 }
  }
  /// The octets of the queue that a value takes, see `NotificationQueue`.
  static func space(_ count: Int) -> Int { 8 + (count + 7) / 8 * 8 }

  var world: World<TestHost>
  private var chance: SplitMix64
  private let values: Values
  private let capacities: [Int]
  private var ends: [End] = []
  private var frames = AirFrames()
  private var apart: [(Int, Int)] = []
  private var seen: [Int] = []
  private var connecting: [Set<RequestID>] = []
  private var confirmations: [Int] = []
  private(set) var faults: [String] = []
  /// How often each situation of the contract occurred.
  private(set) var done: [String: Int] = [:]

  init(seed: UInt64) throws {
    chance = SplitMix64(seed: seed)
    values = try Values()
    var air = AirConfiguration.realistic
    air.loss = [0, 0.01, 0.01, 0.1].randomElement(using: &chance) ?? 0
    if Int.random(in: 0..<8, using: &chance) == 0 { air = .ideal }
    world = World(seed: seed, configuration: air)
    world.air.startRecording()
    var capacities: [Int] = []
    for index in 0..<Int.random(in: 2...4, using: &chance) {
      let own = address(index + 1)
      var controller = Bool.random(using: &chance) ? ControllerConfiguration(address: own) : .legacy(address: own)
      controller.aclDataLength = [27, 64, 251].randomElement(using: &chance) ?? 27
      controller.aclBufferCount = UInt8.random(in: 1...16, using: &chance)
      let capacity = [0, 520, 600, 1024, 4096, 16384].randomElement(using: &chance) ?? 0
      let mtu = [23, 65, 247, 515, 517].randomElement(using: &chance) ?? 23
      capacities.append((max(capacity, 528) + 7) & ~7)
      seen.append(0)
      connecting.append([])
      confirmations.append(0)
      world.add(
        TestHost(values.database) {
          $0.queueCapacity = capacity
          $0.preferredMTU = mtu
        }, controller)
    }
    self.capacities = capacities
    for host in 0..<world.hostCount { perform(host) { host, now in host.core.start(now: now) } }
    world.run(for: .milliseconds(100))
    for host in 0..<world.hostCount { advertise(host) }
  }

  private mutating func random(_ range: Range<Int>) -> Int { Int.random(in: range, using: &chance) }
  private mutating func perform(_ host: Int, _ body: (inout TestHost, Instant) -> Void) {
    world.withHost(host) { host, now in
      body(&host, now)
      host.drain()
    }
  }
  private mutating func count(_ name: String) { done[name, default: 0] += 1 }
  private mutating func fault(_ end: Int, _ text: String) {
    if faults.count < 20 { faults.append("\(world.now) host \(ends[end].host) to \(ends[end].peer): \(text)") }
  }

  // MARK: Actions

  mutating func run(steps: Int) {
    for host in 0..<world.hostCount { connect(host, to: (host + 1) % world.hostCount) }
    pass(.milliseconds(150))
    for _ in 0..<steps {
      let up = ends.indices.filter { ends[$0].isUp && ends[$0].link != nil }
      if let end = up.randomElement(using: &chance), random(0..<8) > 0 {
        use(end)
      } else {
        let host = random(0..<world.hostCount), other = random(0..<world.hostCount)
        switch random(0..<8) {
        case 0 where host != other:
          world.separate(host, other)
          apart.append((host, other))
        case 1...2: reunite()
        case 3...5 where host != other: connect(host, to: other)
        default: offerToTheDead()
        }
      }
      pass(.milliseconds(random(0..<6) == 0 ? random(0..<300) : random(0..<20)))
    }
  }
  private mutating func advertise(_ host: Int) {
    perform(host) { host, now in
      do throws(AdvertisingError) {
        let parameters = AdvertisingParameters(interval: .every(.milliseconds(20)), restartsAfterConnection: true)
        try host.core.advertise(AdvertisingData(localName: "traffic"), parameters, now: now)
      } catch { preconditionFailure("\(error)") }
    }
  }
  private mutating func connect(_ host: Int, to other: Int) {
    var parameters = ConnectionParameters.fast
    parameters.supervisionTimeout = SupervisionTimeout(.seconds(1))
    let peer = PeerAddress(address(other + 1), .public)
    perform(host) { host, now in host.core.connect(to: peer, parameters, id: host.newID(), now: now) }
    connecting[host].insert(RequestID(rawValue: world.readHost(host) { $0.lastRequest }))
  }
  private mutating func reunite() {
    for (a, b) in apart { world.reunite(a, b) }
    apart = []
  }
  private mutating func ask(_ end: Int, _ body: (RequestID, inout Client) -> Void) {
    guard let link = ends[end].link else { return }
    perform(ends[end].host) { host, _ in
      let id = host.newID()
      host.core.withClient(of: link, id: id) { body(id, &$0) }
    }
  }
  private mutating func use(_ end: Int) {
    let values = values
    switch random(0..<32) {
    case 0...15: burst(end)
    case 16...18: indicate(end)
    case 19...21: subscribe(end, random(0..<4))
    case 22:
      let handle = values.notifying[random(0..<3)]
      ask(end) { id, client in client.unsubscribe(id, handle) }
    case 23...28: ask(end) { id, client in client.readLong(id, values.long) }
    case 29...30:
      let value = [UInt8](repeating: 1, count: random(0..<100))
      ask(end) { id, client in client.write(id, values.writable, value.span) }
    default:
      guard let link = ends[end].link else { return }
      count("disconnect")
      perform(ends[end].host) { host, now in host.core.disconnect(link, id: host.newID(), now: now) }
    }
  }

  /// Subscribes to the value that indicates, for 3, or to one of those that notify.
  private mutating func subscribe(_ end: Int, _ which: Int) {
    let handle = which == 3 ? values.indicating : values.notifying[which]
    ask(end) { id, client in client.subscribe(id, handle, which == 3 ? .indication : .notification) }
  }
  /// Offers values until `count` have been offered, or some have been refused.
  private mutating func burst(_ end: Int) {
    let sizes = [0..<21, 0..<60, 200..<260, 0..<601].randomElement(using: &chance) ?? 0..<21
    var refusals = 0
    for _ in 0..<random(1..<60) where refusals < 3 {
      let isCommand = random(0..<3) == 0 && !isAsking(end)
      let handle = isCommand ? values.writable : values.notifying[random(0..<3)]
      let serial = UInt32(truncatingIfNeeded: done["offer"] ?? 0)
      let mark = [UInt8(end & 0xFF)] + (0..<4).map { UInt8(truncatingIfNeeded: serial >> (8 * $0)) }
      let value = Array((mark + [UInt8](repeating: UInt8(serial & 0xFF), count: 600)).prefix(random(sizes)))
      if offer(end, isCommand, handle, value) == .full { refusals += 1 }
    }
  }
  /// Makes one offer, whose answer must be the model's.
  @discardableResult
  private mutating func offer(
    _ end: Int, _ isCommand: Bool, _ handle: AttributeHandle, _ value: [UInt8]
  ) -> SendAnswer? {
    guard let link = ends[end].link else { return nil }
    count("offer")
    let host = ends[end].host
    let isWanted =
      isCommand
      || world.readHost(host) { host in
        host.subscriptions.last { $0.link == link && $0.handle == handle }?.2.contains(.notification) == true
      }
    let answer = world.withHost(host) { host, _ in
      isCommand ? host.write(command: value, to: handle, on: link) : host.notify(value, of: handle, on: link)
    }
    let kept = Array(value.prefix(ends[end].longest))
    let fits = ends[end].used + Self.space(kept.count) <= capacities[host]
    let expected: SendAnswer? =
      !isWanted ? nil : !fits ? .full : kept.count < value.count ? .cut(to: ends[end].longest) : .queued
    if answer != expected { fault(end, "\(value.count) octets: \(answer as Any), not \(expected as Any)") }
    switch answer {
    case .full:
      count("full")
      ends[end].isRefused = true
    case .queued, .cut:
      if answer != .queued { count("cut") }
      ends[end].waiting.append(.init(opcode: isCommand ? 0x52 : 0x1B, handle: handle, value: kept))
    default: break
    }
    if ends[end].used > capacities[host] { fault(end, "\(ends[end].used) octets wait of \(capacities[host])") }
    return answer
  }
  private mutating func indicate(_ end: Int) {
    guard let link = ends[end].link else { return }
    let host = ends[end].host, handle = values.indicating, value = [UInt8](repeating: 3, count: random(0..<600))
    let isWanted = world.readHost(host) { host in
      host.subscriptions.last { $0.link == link && $0.handle == handle }?.2.contains(.indication) == true
    }
    let answer = world.withHost(host) { host, _ in host.indicate(value, of: handle, on: link) }
    let expected: SendAnswer? =
      !isWanted
      ? nil
      : ends[end].isIndicating ? .full : value.count > ends[end].longest ? .cut(to: ends[end].longest) : .queued
    if answer != expected { fault(end, "indication: \(answer as Any), not \(expected as Any)") }
    guard answer?.isAccepted == true else { return }
    count("indication")
    ends[end].isIndicating = true
  }
  private mutating func offerToTheDead() {
    guard let end = ends.filter({ !$0.isUp && $0.link != nil }).randomElement(using: &chance), let link = end.link
    else { return }
    count("offer after the end")
    let handles = values
    let answers = world.withHost(end.host) { host, _ in
      [
        host.notify([1], of: handles.notifying[0], on: link), host.write(command: [1], to: handles.writable, on: link),
        host.indicate([1], of: handles.indicating, on: link),
      ]
    }
    if answers != [.closed, .closed, .closed] { faults.append("\(link) is down, but \(answers)") }
    // A request also ends, once: `finish` checks that.
    perform(end.host) { host, _ in
      let id = host.newID()
      host.core.withClient(of: link, id: id) { $0.read(id, handles.long) }
    }
  }

  // MARK: Invariants

  /// Advances the time and checks the events.
  private mutating func pass(_ time: Duration) {
    if case .stepLimit = world.run(for: time) { faults.append("somebody talks without end") }
    for record in world.air.takeRecords() {
      for sight in frames.read(record) { observe(sight, record) }
    }
    pair()
    for host in 0..<world.hostCount { checkArrivals(host) }
    for end in ends.indices where ends[end].isUp { check(end: end) }
    // The promise of an edge: a value of the MTU is accepted at once.
    for end in ends.indices where ends[end].isUp && ends[end].hasNewEdge && ends[end].link != nil && !isAsking(end) {
      ends[end].hasNewEdge = false
      let answer = offer(end, true, values.writable, [UInt8](repeating: 2, count: ends[end].longest))
      if answer != .queued { fault(end, "ready, but \(answer as Any)") }
      count("edge")
    }
  }
  /// A request of this end's host may not have left: a command must follow it, which `OrderTests` checks.
  private func isAsking(_ end: Int) -> Bool {
    let connecting = connecting[ends[end].host]
    return world.readHost(ends[end].host) { host in host.unfinished.contains { !connecting.contains($0) } }
  }
  private func end(_ stream: AirFrames.Stream) -> Int? {
    ends.lastIndex {
      $0.isUp && $0.handle == stream.handle && world.controller(of: $0.host) == stream.controller
    }
  }
  private mutating func observe(_ sight: AirFrames.Sight, _ record: PacketRecord) {
    switch sight {
    case .reset: break
    case .fault(let text): faults.append("\(record.time): \(text)")
    case .linkUp(let handle, let peer):
      for host in 0..<world.hostCount where world.controller(of: host) == record.controller {
        ends.append(End(host: host, peer: Int(peer[0]) - 1, handle: handle))
      }
    case .linkDown(let handle):
      let stream = AirFrames.Stream(controller: record.controller, handle: handle, isToHost: true)
      guard let end = end(stream) else { return }
      if !ends[end].waiting.isEmpty { count("purge") }
      ends[end].isUp = false
      (ends[end].waiting, ends[end].inFlight, ends[end].isRefused) = ([], nil, false)
    case .began(let stream, 4, let length, let first):
      guard !stream.isToHost else { return }
      guard let end = end(stream) else { return faults.append("\(record.time): data of no link") }
      if let opcode = first.first { began(opcode, length, first, end) }
    case .payload(let stream, 4, let pdu):
      guard let end = end(stream), let opcode = pdu.first else { return }
      if stream.isToHost { came(opcode, pdu, end) } else { left(opcode, pdu, end) }
    case .began, .payload: break
    }
  }

  /// The first packet of a PDU is sent to the controller: here the PDU leaves the queue.
  private mutating func began(_ opcode: UInt8, _ length: Int, _ first: [UInt8], _ end: Int) {
    let isQueued = [0x1B, 0x52].contains(opcode)
    if let request = ends[end].unanswered {
      if isQueued || [0x1D].contains(opcode) {
        fault(end, "0x\(hex([opcode])) before the response to 0x\(hex([request]))")
      } else if opcode == 0x01 || opcode == request + 1 {
        ends[end].unanswered = nil
        if !ends[end].waiting.isEmpty { count("overtaking response") }
      }
    }
    if opcode == 0x02 { ends[end].isExchanging = true }
    if opcode == 0x03 {
      ends[end].ownMTU = Int(first[1]) | Int(first[2]) << 8
      ends[end].mtu = max(ends[end].mtu, min(ends[end].ownMTU, ends[end].peerMTU))
    }
    guard isQueued else { return }
    if ends[end].isExchanging { fault(end, "a value during our MTU exchange") }
    guard !ends[end].waiting.isEmpty else { return fault(end, "a value that was never offered, or twice") }
    let entry = ends[end].waiting.removeFirst()
    if entry.opcode != opcode || entry.value.count + 3 != length { fault(end, "not the value that has waited longest") }
    ends[end].inFlight = entry
    if ends[end].isRefused, ends[end].used + Self.space(ends[end].longestEntry) <= capacities[ends[end].host] {
      ends[end].isRefused = false
      ends[end].edges += 1
      ends[end].hasNewEdge = true
    }
  }
  /// A whole PDU has been sent to the controller.
  private mutating func left(_ opcode: UInt8, _ pdu: [UInt8], _ end: Int) {
    if opcode == 0x02 { ends[end].ownMTU = Int(pdu[1]) | Int(pdu[2]) << 8 }
    guard [0x1B, 0x52].contains(opcode) else { return }
    guard let entry = ends[end].inFlight else { return }
    ends[end].inFlight = nil
    let handle = AttributeHandle(rawValue: UInt16(pdu[1]) | UInt16(pdu[2]) << 8)
    if entry != End.Entry(opcode: opcode, handle: handle, value: Array(pdu[3...])) { fault(end, "another value") }
    if opcode == 0x1B { ends[end].sent.append(entry) }
  }
  /// A PDU came from the peer.
  private mutating func came(_ opcode: UInt8, _ pdu: [UInt8], _ end: Int) {
    switch opcode {
    case 0x02:
      ends[end].peerMTU = Int(pdu[1]) | Int(pdu[2]) << 8
      ends[end].unanswered = opcode
    case 0x03:
      ends[end].isExchanging = false
      ends[end].mtu = max(ends[end].mtu, min(ends[end].ownMTU, Int(pdu[1]) | Int(pdu[2]) << 8))
    case 0x04, 0x06, 0x08, 0x0A, 0x0C, 0x0E, 0x10, 0x12, 0x16, 0x18, 0x20: ends[end].unanswered = opcode
    case 0x1E:
      if !ends[end].isIndicating { fault(end, "a confirmation of nothing") }
      ends[end].isIndicating = false
      confirmations[ends[end].host] += 1
    default: break
    }
  }
  /// Assigns new ends their link, and connects both ends of a link.
  private mutating func pair() {
    for index in ends.indices where ends[index].isUp && ends[index].link == nil {
      let peer = address(ends[index].peer + 1)
      ends[index].link = world.readHost(ends[index].host) { $0.ups.last { $0.peer.firstAddress.address == peer }?.link }
    }
    for a in ends.indices where ends[a].isUp && !ends[a].isInUse && ends[a].link != nil {
      ends[a].isInUse = true
      ask(a) { id, client in client.discoverAll(id) }
      for which in 0..<4 where random(0..<4) > 0 { subscribe(a, which) }
    }
    for a in ends.indices where ends[a].isUp && ends[a].other == nil {
      let b = ends.indices.last {
        ends[$0].isUp && ends[$0].other == nil && ends[$0].host == ends[a].peer && ends[$0].peer == ends[a].host
      }
      guard let b else { continue }
      ends[a].other = b
      ends[b].other = a
    }
  }
  /// The PDUs that arrive equal those sent on that link, in order.
  private mutating func checkArrivals(_ host: Int) {
    let all = world.readHost(host) { $0.values }, handles = values
    defer { seen[host] = all.count }
    for (link, handle, value, isIndication) in all[seen[host]...] where !isIndication {
      guard let end = ends.lastIndex(where: { $0.host == host && $0.link == link }), let other = ends[end].other
      else { continue }
      count("arrival")
      guard handles.notifying.contains(handle), ends[end].arrived < ends[other].sent.count else {
        fault(other, "a value arrived that was never sent, or twice")
        continue
      }
      if ends[other].sent[ends[end].arrived] != End.Entry(opcode: 0x1B, handle: handle, value: value) {
        fault(other, "values arrive in another order")
      }
      ends[end].arrived += 1
    }
  }
  private mutating func check(end: Int) {
    guard let link = ends[end].link else { return }
    let (mtu, edges, isUp) = world.readHost(ends[end].host) { host in
      (host.core.mtu(of: link), host.edges[link] ?? 0, host.links.contains(link))
    }
    if !isUp { fault(end, "\(link) is down for the host alone") }
    if mtu != ends[end].mtu { fault(end, "ATT_MTU \(mtu as Any), not \(ends[end].mtu)") }
    if edges != ends[end].edges { fault(end, "\(edges) edges, not \(ends[end].edges)") }
  }

  /// Ends all activity, and checks that nothing remains.
  mutating func finish() {
    reunite()
    for host in 0..<world.hostCount { perform(host) { host, now in host.core.stopAdvertising(now: now) } }
    for _ in 0..<150 where isBusy { pass(.milliseconds(300)) }
    for host in 0..<world.hostCount {
      for id in world.readHost(host, { $0.unfinished }) where connecting[host].contains(id) {
        perform(host) { host, now in host.core.cancel(id, now: now) }
      }
    }
    pass(.seconds(3))
    for host in 0..<world.hostCount {
      let counts = world.air.faults(of: world.controller(of: host)), confirmed = confirmations[host]
      if counts.dataBeyondBuffers + counts.malformedPackets > 0 { faults.append("host \(host): \(counts)") }
      faults += world.readHost(host) { tested in
        var found: [String] = []
        if !tested.unfinished.isEmpty { found.append("no completion: \(tested.unfinished.map(\.rawValue))") }
        if !tested.overfinished.isEmpty { found.append("completed twice: \(tested.overfinished.map(\.rawValue))") }
        if tested.needlessEdges > 0 || !tested.full.isEmpty {
          found.append("\(tested.needlessEdges) edges too many, none on \(tested.full)")
        }
        if tested.confirmations != confirmed { found.append("\(tested.confirmations) confirmations of \(confirmed)") }
        if !tested.indicating.isEmpty { found.append("not confirmed: \(tested.indicating)") }
        if !tested.violations.isEmpty { found.append("\(tested.violations)") }
        return found.map { "host \(host): \($0)" }
      }
    }
    for end in ends.indices where ends[end].isUp {
      if !ends[end].waiting.isEmpty { fault(end, "\(ends[end].waiting.count) values still wait") }
      if ends[end].unanswered != nil { fault(end, "a request without a response") }
      if let other = ends[end].other, ends[other].isUp, ends[other].arrived != ends[end].sent.count {
        fault(end, "\(ends[other].arrived) of \(ends[end].sent.count) values arrived")
      }
    }
  }
  private var isBusy: Bool {
    for host in 0..<world.hostCount {
      let mayWait = connecting[host]
      let waits = world.readHost(host) { host in
        !host.full.isEmpty || !host.indicating.isEmpty || host.unfinished.contains { !mayWait.contains($0) }
      }
      if waits || world.air.usedBuffers(of: world.controller(of: host)) > 0 { return true }
    }
    return ends.contains { $0.isUp && !$0.waiting.isEmpty }
  }
}
