import BindruneGAP
import BindruneL2CAP
import BindruneSimulator
import BindruneWire
import NIOCore
import Synchronization
import TestSupport
import Testing

@testable import Bindrune

/// The same octets for the same number.
private func octets(_ number: Int, _ count: Int) -> [UInt8] {
  (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ number) }
}

/// Channels between two hosts on one radio. `ChannelCallsTests` has the octets, `CreditChannelTests` the machine.
@Suite("LinkChannel", .virtualTime, .hang) struct LinkChannelTests {
  /// Two hosts, and their link at both ends.
  private struct Pair {
    let lab: Lab
    let central: BluetoothHost, peripheral: BluetoothHost
    let link: Link

    init(packetsPerEvent: Int? = nil, agents: Bool = true) async throws {
      lab = Lab(packetsPerEvent: packetsPerEvent)
      var hosts: [BluetoothHost] = []
      for _ in 0..<2 {
        let host = BluetoothHost(lab.radio.controller(), agent: agents ? JustWorksAgent() : RefusingAgent())
        try await host.start()
        hosts.append(host)
      }
      (central, peripheral) = (hosts[0], hosts[1])
      try await peripheral.advertiseFast()
      link = try await central.connect(to: peripheral.ownAddress, .fast)
    }
    /// Offers SDUs of 100 octets until nothing is accepted any more, because the peer gives no credits. Returns how
    /// many were accepted.
    func fill(_ channel: LinkChannel) async throws -> Int {
      var accepted = 0, before = -1
      while accepted > before {
        before = accepted
        while try channel.port.offer(octets(accepted, 100)) { accepted += 1 }
        // Meanwhile the radio carries what the peer takes without a reader.
        for _ in 0..<2 { _ = try await link.readRSSI() }
      }
      return accepted
    }
    /// A channel that the central opens: its ends at both.
    func channel(
      mtu: Int = 2048, capacity: Int = 16 * 1024, of theirs: Int = 2048
    ) async throws -> (here: LinkChannel, there: LinkChannel) {
      let listener = try await peripheral.listen(mtu: theirs)
      let here = try await link.openChannel(psm: listener.psm, mtu: mtu, capacity: capacity)
      for try await there in listener { return (here, there) }
      throw BluetoothError(.disconnected, "no channel came")
    }
  }
  private func code(_ body: () async throws -> Void) async -> BluetoothError.Code? {
    do { try await body() } catch { return (error as? BluetoothError)?.code }
    return nil
  }

  // MARK: Data

  /// SDUs of all lengths, also none, in both directions at once: whole and in order.
  @Test(arguments: [23, 100, 2048, 65_535]) func sdusOfEachLength(mtu: Int) async throws {
    let pair = try await Pair()
    let (here, there) = try await pair.channel(mtu: mtu, of: mtu)
    #expect(here.longestSDU == mtu && there.longestSDU == mtu && here.mtu == mtu)
    #expect(!here.isIncoming && there.isIncoming && here.psm == there.psm && here.psm.rawValue == 0x0080)
    let lengths = [0, 1, 22, mtu, 0, mtu - 1, min(mtu, 245), min(mtu, 246), mtu]
    for (from, to) in [(here, there), (there, here)] {
      async let sent: Void = {
        for (number, length) in lengths.enumerated() { try await from.send(octets(number, length)) }
      }()
      var received = to.received.makeAsyncIterator()
      for (number, length) in lengths.enumerated() { #expect(try await received.next() == octets(number, length)) }
      try await sent
    }
    await #expect(throws: BluetoothError.self) { try await here.send([UInt8](repeating: 0, count: mtu + 1)) }
  }

  /// A reader that does not read stops the writer; all arrives when it reads.
  @Test func aReaderThatStopsStopsTheWriter() async throws {
    let pair = try await Pair()
    let (here, there) = try await pair.channel(mtu: 100, capacity: 1024)
    let accepted = try await pair.fill(here)
    // Capacities: 10 here, 80 in the core (8,192 octets), 2 SDUs' worth of credits on the way or there.
    #expect(accepted > 20 && accepted < 120, "\(accepted)")
    #expect(here.port.readyEdges <= 20)
    var received = there.received.makeAsyncIterator()
    for number in 0..<accepted { #expect(try await received.next() == octets(number, 100)) }
    try await here.port.waitUntilReady()
    #expect(try here.port.offer([1]))
    #expect(try await received.next() == [1])
  }

  /// A stream uses what the link layer carries, and gets its credits meanwhile. On LE 2M five packets of 251 octets, each
  /// with an empty one in answer, fit into 7.5 ms: 5 × (1,048 + 150 + 44 + 150) µs. Vol 6, Part B, §2.1, §4.1.1. 247 of
  /// 251 octets are a K-frame's, which is 98.4 %; in the simulator a packet with credits takes the place of one of data,
  /// here for each SDU of eight K-frames or for each eighth one.
  @Test(arguments: [(2_048, 0.87), (16_384, 0.96)]) func aStreamFillsTheLink(mtu: Int, least: Double) async throws {
    let lab = Lab(packetsPerEvent: 100)
    var configuration = ControllerConfiguration(), hosts: [BluetoothHost] = []
    configuration.features.insert(.le2MPHY)
    for _ in 0..<2 {
      let host = BluetoothHost(lab.radio.controller(configuration))
      try await host.start()
      hosts.append(host)
    }
    try await hosts[0].advertiseFast()
    let link = try await hosts[1].connect(to: hosts[0].ownAddress, .fast)
    try await link.setPHYs(PHYPreferences(transmit: .le2M, receive: .le2M))
    let listener = try await hosts[0].listen(mtu: mtu), count = 60, size = 8 * 247 - 2
    let here = try await link.openChannel(psm: listener.psm, mtu: mtu)
    var channels = listener.makeAsyncIterator()
    let there = try #require(try await channels.next())
    async let sent: Void = { for number in 0..<count { try await here.send(octets(number, size)) } }()
    var received = there.received.makeAsyncIterator(), start: NIODeadline?
    for _ in 0..<count {
      let sdu = try await received.next()
      #expect(sdu?.count == size)
      if start == nil { start = lab.radio.eventLoop.now }
    }
    try await sent
    let time = Double((lab.radio.eventLoop.now - (try #require(start))).nanoseconds) / 1e9
    let share = Double((count - 1) * size) / time / (5 * 251 / 0.0075)
    #expect(share > least && share < 1, "\(share)")
  }

  /// Several producers share a port: nothing is lost, and each one's order stays.
  @Test func severalProducers() async throws {
    let pair = try await Pair()
    let (here, there) = try await pair.channel(mtu: 64, capacity: 256)
    async let all: Void = withThrowingTaskGroup(of: Void.self) { group in
      for producer in UInt8(0)..<4 {
        group.addTask { for number in UInt8(0)..<100 { try await here.send([producer, number]) } }
      }
      try await group.waitForAll()
    }
    var next = [UInt8](repeating: 0, count: 4), received = there.received.makeAsyncIterator()
    for _ in 0..<400 {
      let sdu = try #require(try await received.next())
      #expect(sdu.count == 2 && sdu[1] == next[Int(sdu[0])])
      next[Int(sdu[0])] += 1
    }
    try await all
  }

  // MARK: Ends

  /// What was accepted arrives before the end, which both sides see once.
  @Test(arguments: [true, false]) func closing(byClient: Bool) async throws {
    let pair = try await Pair()
    let (here, there) = try await pair.channel(mtu: 100)
    let (closer, other) = byClient ? (here, there) : (there, here)
    for number in 0..<50 { try await closer.send(octets(number, 100)) }
    async let close: Void = closer.close()
    var received = other.received.makeAsyncIterator()
    for number in 0..<50 { #expect(try await received.next() == octets(number, 100)) }
    #expect(try await received.next() == nil)
    await close
    #expect(await closer.closed == .here)
    #expect(await other.closed == .byPeer)
    await #expect(throws: BluetoothError.channelIsClosed) { try await closer.send([1]) }
    await #expect(throws: BluetoothError.channelIsClosed) { try await other.send([1]) }
    #expect(try !other.port.offer([1]))
    // The link stays, and so do others.
    let (next, _) = try await pair.channel()
    #expect(next.id == here.id)
  }

  /// A close that waits for a peer that does not read can be given up.
  @Test(arguments: [true, false]) func droppingWhatWaits(byCancelling: Bool) async throws {
    let pair = try await Pair()
    let (here, there) = try await pair.channel(mtu: 100)
    _ = try await pair.fill(here)
    if byCancelling {
      let task = Task { await here.close() }
      _ = try await pair.link.readRSSI()
      task.cancel()
      await task.value
    } else {
      await here.close(dropping: true)
    }
    #expect(await here.closed == .here)
    #expect(await there.closed == .byPeer)
  }

  /// The last reference that is released closes the channel, after what was accepted.
  @Test func released() async throws {
    let pair = try await Pair()
    var (here, there): (LinkChannel?, LinkChannel) = try await pair.channel(mtu: 100)
    for number in 0..<50 { try await here?.send(octets(number, 100)) }
    here = nil
    var count = 0
    for try await sdu in there.received {
      #expect(sdu == octets(count, 100))
      count += 1
    }
    #expect(count == 50)
    #expect(await there.closed == .byPeer)
  }

  /// The end of the link, or of the host, ends channels, waits and listeners, each once with its reason.
  @Test(arguments: [true, false]) func theLinkGoes(withTheHost: Bool) async throws {
    let pair = try await Pair()
    let listener = try await pair.peripheral.listen()
    let (here, there) = try await pair.channel(mtu: 100)
    _ = try await pair.fill(here)
    let waiting = Task { try await here.port.waitUntilReady() }
    let closed = Task { await here.closed }
    let accepting = Task { for try await _ in listener {} }
    let opening = Task { try await pair.link.openChannel(psm: SPSM(rawValue: 0x00FE)) }
    await #expect(throws: BluetoothError.self) { try await opening.value }
    if withTheHost { await pair.central.close() } else { try await pair.link.disconnect() }
    await #expect(throws: BluetoothError.self) { try await waiting.value }
    guard case .failed(let reason) = await closed.value else {
      Issue.record("\(await closed.value)")
      return
    }
    #expect(reason.code == .disconnected)
    guard case .failed = await there.closed else {
      Issue.record("\(await there.closed)")
      return
    }
    await pair.peripheral.close()
    await #expect(throws: BluetoothError.self) { try await accepting.value }
  }

  /// `closed` of a cancelled task: the channel stays.
  @Test func cancelledWaits() async throws {
    let pair = try await Pair()
    let (here, there) = try await pair.channel()
    let waiting = Task { await here.closed }
    waiting.cancel()
    #expect(await waiting.value == .failed(.cancelled))
    try await here.send([1])
    var received = there.received.makeAsyncIterator()
    #expect(try await received.next() == [1])
  }

  // MARK: Opening

  @Test func refusals() async throws {
    let pair = try await Pair()
    #expect(await code { _ = try await pair.link.openChannel(psm: SPSM(rawValue: 0x0080)) } == .refused)
    #expect(
      await code { _ = try await pair.link.openChannel(psm: SPSM(rawValue: 0x0080), mtu: 22) } == .invalidArgument)
    #expect(
      await code { _ = try await pair.link.openChannel(psm: SPSM(rawValue: 0x0080), mtu: 65_536) } == .invalidArgument)
    #expect(await code { _ = try await pair.link.openChannel(psm: SPSM(rawValue: 0x0100)) } == .invalidArgument)
    for psm in [0x0000, 0x0100] as [UInt16] {
      #expect(await code { _ = try await pair.peripheral.listen(psm: SPSM(rawValue: psm)) } == .invalidArgument)
    }
    #expect(await code { _ = try await pair.peripheral.listen(mtu: 22) } == .invalidArgument)
    let listener = try await pair.peripheral.listen(psm: SPSM(rawValue: 0x0025))
    #expect(await code { _ = try await pair.peripheral.listen(psm: listener.psm) } == .invalidArgument)
    await listener.end()
    #expect(await code { _ = try await pair.link.openChannel(psm: SPSM(rawValue: 0x0025)) } == .refused)
    // 56 numbers on each side.
    let again = try await pair.peripheral.listen()
    var channels: [LinkChannel] = []
    for _ in 0..<56 { channels.append(try await pair.link.openChannel(psm: again.psm)) }
    #expect(Set(channels.map(\.id)).count == 56)
    #expect(await code { _ = try await pair.link.openChannel(psm: again.psm) } == .busy)
    await channels.removeLast().close()
    channels.append(try await pair.link.openChannel(psm: again.psm))
  }

  /// A listener that is released listens no more; its channels stay.
  @Test func releasedListener() async throws {
    let pair = try await Pair()
    let (here, there) = try await pair.channel()
    while await code({ _ = try await pair.link.openChannel(psm: here.psm) }) != .refused {}
    try await here.send([1])
    var received = there.received.makeAsyncIterator()
    #expect(try await received.next() == [1])
  }

  /// A service that wants an encrypted link: the client's host pairs, as for a request, or the call says why it cannot.
  @Test(arguments: [true, false]) func security(pairs: Bool) async throws {
    let pair = try await Pair(agents: pairs)
    let listener = try await pair.peripheral.listen(security: .encrypted)
    if pairs {
      let channel = try await pair.link.openChannel(psm: listener.psm)
      #expect(await pair.central.links.first?.security.isEncrypted == true)
      try await channel.send([1])
    } else {
      #expect(await code { _ = try await pair.link.openChannel(psm: listener.psm) } == .pairing)
    }
    // Just Works cannot authenticate: Vol 3, Part H, §2.3.5.1.
    let strict = try await pair.peripheral.listen(security: .authenticated)
    #expect(await code { _ = try await pair.link.openChannel(psm: strict.psm) } == .pairing)
  }
}
