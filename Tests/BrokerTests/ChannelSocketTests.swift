import BindruneTransport
import BindruneWire
import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// Who uses a channel: notes what comes.
private final class ChannelReader: SessionChannelUser {
  private struct State {
    var sdus: [[UInt8]] = []
    var rooms = 0
    var ends: [BluetoothError?] = []
  }
  private let state = NIOLockedValueBox(State())
  let channel: SessionChannel
  /// SDUs are taken as they come.
  private let takes: Bool

  init(_ channel: SessionChannel, takes: Bool = true) {
    (self.channel, self.takes) = (channel, takes)
    channel.begin(self)
  }
  func received(_ sdu: [UInt8]) {
    state.withLockedValue { $0.sdus.append(sdu) }
    if takes { channel.taken(1) }
  }
  func hasRoom() { state.withLockedValue { $0.rooms += 1 } }
  func ended(_ error: BluetoothError?) { state.withLockedValue { $0.ends.append(error) } }

  var sdus: [[UInt8]] { state.withLockedValue { $0.sdus } }
  var rooms: Int { state.withLockedValue { $0.rooms } }
  var ends: [BluetoothError?] { state.withLockedValue { $0.ends } }
  func until(sdus count: Int) async throws { try await eventually { [self] in sdus.count >= count } }
  /// How it has ended.
  func end() async throws -> BluetoothError? {
    try await eventually { [self] in !ends.isEmpty }
    #expect(ends.count == 1)
    return ends[0]
  }
  /// Offers these, waiting for room.
  func send(_ sdus: [[UInt8]]) async throws {
    for sdu in sdus {
      while true {
        let before = rooms
        if channel.offer(sdu) { break }
        try await eventually { [self] in rooms > before || !ends.isEmpty }
        if !ends.isEmpty { throw CancellationError() }
      }
    }
  }
}

/// SDUs of every length, also none.
private func samples(_ count: Int, longest: Int = 2048) -> [[UInt8]] {
  (0..<count).map { number in
    let length = [0, 1, 23, 24, 247, longest, number % (longest + 1)][number % 7]
    return (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 3 &+ number) }
  }
}

/// Channels of L2CAP of apps, over real sockets and a simulated radio.
@Suite(.hang, .serialized) struct ChannelSocketTests {
  /// A daemon, and a device with a service of channels.
  private final class Lab: Sendable {
    let lab: ServerLab, device: BluetoothHost, peer: UUID, psm: UInt16
    /// What the device has accepted.
    private let accepted = NIOLockedValueBox<[LinkChannel]>([])

    init() async throws {
      lab = try await ServerLab()
      device = try await lab.host(try Sensor().database)
      try await device.advertiseAsSensor()
      peer = UUID(PeerID(await device.ownAddress))
      let listener = try await device.listen(), accepted = accepted
      psm = listener.psm.rawValue
      Task { for try await channel in listener { accepted.withLockedValue { $0.append(channel) } } }
    }
    func nextAccepted() async throws -> LinkChannel {
      try await eventually { [self] in accepted.withLockedValue { !$0.isEmpty } }
      return accepted.withLockedValue { $0.removeFirst() }
    }
    /// An app that is connected to the device.
    func app(_ name: String) async throws -> SocketApp {
      let app = SocketApp(lab, AppManifest(identifier: name))
      try await app.state(.poweredOn)
      app.session.send(.connect(peer, ConnectOptions()))
      let peer = peer
      try await app.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
      return app
    }
    func open(_ app: SocketApp) async throws -> (SessionChannel, LinkChannel) {
      let peer = peer, psm = psm
      guard case .channel(let near) = try await app.ask({ .openChannel($0, peer, psm: psm) }) else {
        throw CancellationError()
      }
      return (near, try await nextAccepted())
    }
    func close() async throws {
      await device.close()
      try await lab.close()
    }
    /// What the daemon has of channels.
    func left() async throws -> String {
      let adapter = lab.adapter
      return try await adapter.eventLoop.submit {
        let channels = adapter.core.channels
        return "\(channels.openings.count) \(channels.publications.count) \(channels.published.count)"
      }.get()
    }
  }
  private static func received(_ count: Int, of channel: LinkChannel) async throws -> [[UInt8]] {
    var sdus: [[UInt8]] = []
    for try await sdu in channel.received {
      sdus.append(sdu)
      if sdus.count == count { break }
    }
    return sdus
  }

  @Test("SDUs keep their boundaries and their order, in both directions and of several apps at once")
  func octets() async throws {
    let lab = try await Lab(), sdus = samples(300)
    var apps: [SocketApp] = []
    try await withThrowingTaskGroup(of: Void.self) { group in
      for name in ["one", "two"] {
        let app = try await lab.app(name)
        apps.append(app)
        for _ in 0..<2 {
          let (near, far) = try await lab.open(app)
          #expect(near.psm == lab.psm && near.mtu == 2048 && near.longestSDU == 2048)
          let reader = ChannelReader(near)
          group.addTask { try await reader.send(sdus) }
          group.addTask { for sdu in sdus.reversed() { try await far.send(sdu) } }
          group.addTask {
            let came = try await Self.received(sdus.count, of: far)
            #expect(came == sdus)
          }
          group.addTask {
            try await reader.until(sdus: sdus.count)
            #expect(reader.sdus == sdus.reversed())
          }
        }
      }
      try await group.waitForAll()
    }
    for app in apps { app.session.close() }
    try await lab.close()
  }

  @Test("An app that takes nothing stops its peer, and delays nobody")
  func anAppThatTakesNothing() async throws {
    let lab = try await Lab(), app = try await lab.app("one"), other = try await lab.app("two")
    let (near, far) = try await lab.open(app), reader = ChannelReader(near, takes: false)
    let peer = lab.peer, count = 400, sdu = [UInt8](repeating: 7, count: 500)
    let sending = Task { for _ in 0..<count { try await far.send(sdu) } }
    // What may come has come when a request has been answered, and nothing has come since.
    var before = -1
    while reader.sdus.count > before {
      before = reader.sdus.count
      for _ in 0..<5 { _ = try await app.ask { .readRSSI($0, peer) } }
    }
    // The credits of two SDUs of 2,048 octets: of Vol 3, Part A, §3.4.3.
    #expect(before >= 4 && before <= 9, "\(before)")
    // Another channel of the app, and one of another app, move.
    for app in [app, other] {
      let (here, there) = try await lab.open(app), user = ChannelReader(here)
      async let sent: Void = user.send(samples(50))
      #expect(try await Self.received(50, of: there) == samples(50))
      try await sent
    }
    #expect(reader.sdus.count == before)
    // Each SDU that it takes lets the next come.
    var taken = 0
    while taken < count {
      let had = taken
      try await eventually { reader.sdus.count > had }
      taken = reader.sdus.count
      near.taken(taken - had)
    }
    try await sending.value
    #expect(reader.sdus.count == count && reader.ends.isEmpty)
    try await lab.close()
  }

  @Test("A peer that reads nothing stops the app, which gets one edge when there is room again")
  func aPeerThatReadsNothing() async throws {
    let lab = try await Lab(), app = try await lab.app("one"), peer = lab.peer
    let (near, far) = try await lab.open(app), reader = ChannelReader(near)
    let sdu = [UInt8](repeating: 9, count: 1000)
    var offered = 0, before = -1
    while offered > before {
      before = offered
      while near.offer(sdu) { offered += 1 }
      for _ in 0..<5 { _ = try await app.ask { .readRSSI($0, peer) } }
    }
    // The app's port 4,096 octets, the daemon's credit 8,192, the adapter's port 16 kB, GAP 8 kB, the peer's credits.
    #expect(offered >= 16 && offered <= 48, "\(offered)")
    // Another channel of the same link moves.
    let (other, end) = try await lab.open(app), mover = ChannelReader(other)
    async let moved: Void = mover.send(samples(50))
    #expect(try await Self.received(50, of: end) == samples(50))
    try await moved
    let rooms = reader.rooms
    #expect(try await Self.received(offered, of: far).allSatisfy { $0 == sdu })
    try await eventually { reader.rooms == rooms + 1 }
    #expect(near.isReady() && near.offer([1]))
    #expect(try await Self.received(1, of: far) == [[1]])
    try await lab.close()
  }

  @Test("What an app has sent before it closes arrives; each side gets one end")
  func closes() async throws {
    let lab = try await Lab(), app = try await lab.app("one"), sdus = samples(12, longest: 700)
    // By the app.
    var (near, far) = try await lab.open(app)
    var reader = ChannelReader(near)
    try await reader.send(sdus)
    near.close()
    near.close()
    #expect(try await Self.received(.max, of: far) == sdus)
    #expect(await far.closed == .byPeer)
    #expect(try await reader.end() == nil)
    #expect(!near.offer([1]) && !near.isReady())
    // By the peer.
    (near, far) = try await lab.open(app)
    reader = ChannelReader(near)
    for sdu in sdus { try await far.send(sdu) }
    await far.close()
    #expect(try await reader.end() == nil && reader.sdus == sdus)
    #expect(!near.offer([1]))
    // By both.
    (near, far) = try await lab.open(app)
    reader = ChannelReader(near)
    near.close(dropping: true)
    async let closing: Void = far.close(dropping: true)
    #expect(try await reader.end() == nil)
    await closing
    // Dropping, also after a close that waits.
    (near, far) = try await lab.open(app)
    reader = ChannelReader(near)
    while near.offer([UInt8](repeating: 1, count: 2000)) {}
    near.close()
    near.close(dropping: true)
    #expect(try await reader.end() == nil)
    #expect(await far.closed == .byPeer)
    #expect(near.isReady() == false && reader.ends.count == 1)
    withExtendedLifetime(far) {}
    try await lab.close()
  }

  @Test("The link, the session, the process, the adapter: each end is one error for the app")
  func ends() async throws {
    let lab = try await Lab(), app = try await lab.app("one"), peer = lab.peer
    // Another app keeps the link.
    let other = try await lab.app("two"), (kept, keptFar) = try await lab.open(other), keeper = ChannelReader(kept)
    // The app's use of the link.
    var (near, far) = try await lab.open(app)
    var reader = ChannelReader(near)
    app.session.send(.cancelConnection(peer))
    #expect(try await reader.end()?.code == .disconnected)
    #expect(await far.closed == .byPeer)
    try await app.wait { if case .disconnected(peer, nil, _, _) = $0 { true } else { nil } }
    // The process.
    let dying = try await lab.app("three")
    (near, far) = try await lab.open(dying)
    reader = ChannelReader(near)
    try await lab.lab.loop.submit { [server = lab.lab.server] in
      let key = AppServer.Key(user: getuid(), identifier: "three")
      for connection in server.apps[key]?.connections.values ?? [:].values { connection.close() }
    }.get()
    #expect(try await reader.end()?.code == .notStarted)
    #expect(await far.closed == .byPeer)
    // The session.
    let closing = try await lab.app("four")
    (near, far) = try await lab.open(closing)
    reader = ChannelReader(near)
    closing.session.close()
    #expect(try await reader.end()?.code == .disconnected)
    #expect(await far.closed == .byPeer)
    #expect(keeper.ends.isEmpty && kept.offer([1, 2]))
    #expect(try await Self.received(1, of: keptFar) == [[1, 2]])
    // The link.
    await lab.device.close()
    #expect(try await keeper.end() != nil)
    try await eventually { try await lab.left() == "0 0 0" }
    try await lab.close()
  }

  @Test("A channel that nobody takes, or that is released, closes")
  func released() async throws {
    let lab = try await Lab(), app = try await lab.app("one"), peer = lab.peer, psm = lab.psm
    let events = EventQueue(), hello = AppMessage.Hello(manifest: AppManifest(identifier: "two"))
    let careless = RemoteSession(to: lab.lab.path, hello, events: events, on: lab.lab.loop, .standard)
    func take(_ isLast: (BrokerEvent) -> Bool) async throws {
      while !events.takeAll().contains(where: { $0.map(isLast) ?? false }) { await Task.yield() }
    }
    try await take { if case .adapter(.poweredOn) = $0 { true } else { false } }
    careless.send(.connect(peer, ConnectOptions()))
    try await take { if case .connected = $0 { true } else { false } }
    careless.send(.openChannel(OperationID(rawValue: 1), peer, psm: psm))
    try await take { if case .completed(_, .success(.channel)) = $0 { true } else { false } }
    let dropped = try await lab.nextAccepted()
    #expect(await dropped.closed == .byPeer)
    // The queue is closed while the answer is on its way.
    careless.send(.openChannel(OperationID(rawValue: 2), peer, psm: psm))
    let late = try await lab.nextAccepted()
    careless.close()
    #expect(await late.closed == .byPeer)
    #expect(try await app.ask { .readRSSI($0, peer) } != .done)
    try await lab.close()
  }

  @Test("Apps publish: each has its PSM, a channel goes to its owner, and wakes it when it is suspended")
  func publishes() async throws {
    let lab = try await Lab(), adapter = lab.lab.adapter
    let one = SocketApp(lab.lab, AppManifest(identifier: "one", backgroundModes: [.peripheral]))
    let two = SocketApp(lab.lab, AppManifest(identifier: "two"))
    for app in [one, two] { try await app.state(.poweredOn) }
    #expect(try await one.ask { .publishChannel($0, isEncrypted: false) } == .psm(0x80))
    #expect(try await two.ask { .publishChannel($0, isEncrypted: false) } == .psm(0x81))
    await #expect(throws: BluetoothError.self) {
      _ = try await two.ask { .unpublishChannel($0, psm: 0x80) }
    }
    _ = try await one.ask { .startAdvertising($0, localName: "One", services: ["180D"]) }
    let own = try await adapter.eventLoop.submit { adapter.host?.assumeIsolated { $0.ownAddress } }.get()
    let link = try await lab.device.connect(to: try #require(own), .fast)
    var channels: [(LinkChannel, ChannelReader)] = []
    for (app, psm) in [(two, UInt16(0x81)), (one, 0x80)] {
      let far = try await link.openChannel(psm: SPSM(rawValue: psm))
      let near = try await app.wait { event -> SessionChannel? in
        if case .channelAccepted(let channel, _, _) = event { channel } else { nil }
      }
      #expect(near.psm == psm)
      channels.append((far, ChannelReader(near)))
    }
    for (far, reader) in channels {
      try await far.send([1, 2, 3])
      try await reader.until(sdus: 1)
      #expect(reader.sdus == [[1, 2, 3]] && reader.channel.offer([4]))
      #expect(try await Self.received(1, of: far) == [[4]])
    }
    // What is open stays when the PSM goes.
    #expect(try await two.ask { .unpublishChannel($0, psm: 0x81) } == .done)
    await #expect(throws: BluetoothError.self) { _ = try await link.openChannel(psm: SPSM(rawValue: 0x81)) }
    #expect(channels[0].1.channel.offer([5]))
    #expect(try await Self.received(1, of: channels[0].0) == [[5]])
    // A suspended app.
    try await lab.lab.move("one", to: .suspended)
    try await lab.lab.until("stop")
    let late = try await link.openChannel(psm: SPSM(rawValue: 0x80))
    try await lab.lab.until("resume")
    let woken = try await one.wait { event -> SessionChannel? in
      if case .channelAccepted(let channel, _, _) = event { channel } else { nil }
    }
    #expect(woken.offer([6]))
    #expect(try await Self.received(1, of: late) == [[6]])
    // Its end frees its PSM, and ends its channels.
    one.session.close()
    #expect(await channels[1].0.closed == .byPeer)
    #expect(await late.closed == .byPeer)
    #expect(try await two.ask { .publishChannel($0, isEncrypted: false) } == .psm(0x80))
    try await lab.close()
  }

  @Test("The process of a preserved manager ends with its channels and its PSM; the manager goes on without them")
  func preserved() async throws {
    let lab = try await Lab(), identity = ManagerIdentity(.central, restoreIdentifier: "lock"), peer = lab.peer
    let app = SocketApp(lab.lab, AppManifest(identifier: "one"), identity, reconnectsAfter: .hours(1))
    try await app.state(.poweredOn)
    app.session.send(.connect(peer, ConnectOptions()))
    try await app.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
    let (near, far) = try await lab.open(app), reader = ChannelReader(near)
    try await lab.lab.breakConnections()
    #expect(try await reader.end()?.code == .notStarted)
    #expect(await far.closed == .byPeer)
    try await eventually { try await lab.left() == "0 0 0" }
    let next = SocketApp(lab.lab, AppManifest(identifier: "one"), identity)
    let state = try await next.wait { if case .restored(let state) = $0 { state } else { nil } }
    #expect(state.peers.first?.isConnected == true)
    let (again, there) = try await lab.open(next), user = ChannelReader(again)
    #expect(again.offer([1]))
    #expect(try await Self.received(1, of: there) == [[1]])
    withExtendedLifetime(user) {}
    try await lab.close()
  }

  @Test("What comes before anybody uses the channel waits: SDUs, room, and the end", arguments: [false, true])
  func early(isEnded: Bool) async throws {
    let loop = MultiThreadedEventLoopGroup.singleton.next(), carrier = Carrier()
    let reader = try await loop.submit { () -> ChannelReader in
      let channel = SessionChannel(carrier, on: loop)
      channel.channelReceived([1])
      channel.channelIsReady()
      channel.channelReceived([2])
      if isEnded { channel.channelEnded(.byPeer) }
      return ChannelReader(channel)
    }.get()
    try await loop.submit {}.get()
    #expect(reader.sdus == [[1], [2]] && reader.rooms == (isEnded ? 0 : 1) && reader.ends.count == (isEnded ? 1 : 0))
    try await loop.submit {
      reader.channel.channelReceived([3])
      reader.channel.channelIsReady()
      reader.channel.channelEnded(.byPeer)
      reader.channel.channelEnded(.byPeer)
    }.get()
    #expect(reader.sdus.count == (isEnded ? 2 : 3) && reader.rooms == (isEnded ? 0 : 2) && reader.ends.count == 1)
  }
  private final class Carrier: ChannelCarrier {
    let psm = SPSM(rawValue: 0x80), mtu = 23, port = ChannelPort(longestSDU: 23, capacity: 64) {}
    func taken(_ count: Int) {}
    func beginClosing(dropping: Bool) {}
  }

  @Test("A daemon of version 2 has no channels: the app answers itself, once, and asks it for nothing new")
  func anOlderDaemon() async throws {
    let path = "/tmp/bindrune-old-\(UInt64.random(in: 0 ... .max)).socket"
    let loop = MultiThreadedEventLoopGroup.singleton.next(), frames = NIOLockedValueBox<[UInt8]>([])
    let answer = DaemonMessage.welcome(version: 2).frame + DaemonMessage.event(.adapter(.poweredOn)).frame
    let server = try await ServerBootstrap(group: loop).childChannelInitializer { channel in
      channel.eventLoop.makeCompletedFuture {
        try channel.pipeline.syncOperations.addHandler(OldDaemon(answer: answer, frames: frames))
      }
    }.bind(unixDomainSocketPath: path).get()
    let stream = EventStream()
    let hello = AppMessage.Hello(manifest: AppManifest(identifier: "a"))
    let session = RemoteSession(to: path, hello, events: stream.queue, on: loop, .standard)
    session.send(.openChannel(OperationID(rawValue: 1), UUID(), psm: 0x80))
    session.send(.publishChannel(OperationID(rawValue: 2), isEncrypted: true))
    session.send(.unpublishChannel(OperationID(rawValue: 3), psm: 0x80))
    session.send(.stopAdvertising)
    var codes: [UInt64: [BluetoothError.Code]] = [:]
    for await event in stream.events {
      guard case .completed(let id, .failure(let error)) = event else { continue }
      codes[id.rawValue, default: []].append(error.code)
      if codes.count == 3 { break }
    }
    #expect(codes == [1: [.refused], 2: [.refused], 3: [.refused]])
    try await eventually { frames.withLockedValue { $0.count } >= 2 }
    let asked: [AppMessage.Number] = [.hello, .stopAdvertising]
    #expect(frames.withLockedValue { $0 } == asked.map(\.rawValue))
    session.close()
    try? await server.close()
    try? FileManager.default.removeItem(atPath: path)
  }
}

/// An app that writes what it likes.
private final class RawApp: Sendable {
  private struct State {
    var buffer = ByteBuffer()
    var messages: [DaemonMessage] = []
    /// Octets by channel that the daemon has taken.
    var accepted: [UInt32: Int] = [:]
    var isClosed = false
  }
  private let state = NIOLockedValueBox(State())
  private let channel: any Channel

  init(_ lab: ServerLab, _ name: String) async throws {
    let state = state
    channel = try await ClientBootstrap(group: lab.loop).channelInitializer { channel in
      channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Gatherer(state)) }
    }.connect(unixDomainSocketPath: lab.path).get()
    try await write([.hello(.init(manifest: AppManifest(identifier: name)))])
    try await wait { if case .event(.adapter(.poweredOn)) = $0 { true } else { nil } }
  }
  func write(_ messages: [AppMessage]) async throws {
    // The daemon may have closed it.
    try? await channel.writeAndFlush(ByteBuffer(bytes: messages.flatMap(\.frame))).get()
  }
  /// Takes messages until `pick` returns a value.
  @discardableResult
  func wait<Value>(_ pick: (DaemonMessage) -> Value?) async throws -> Value {
    while true {
      let (message, isClosed) = state.withLockedValue { state in
        (state.messages.isEmpty ? nil : state.messages.removeFirst(), state.isClosed)
      }
      if let message {
        if let value = pick(message) { return value }
      } else if isClosed {
        throw CancellationError()
      } else {
        await Task.yield()
      }
    }
  }
  func accepted(on channel: UInt32) -> Int { state.withLockedValue { $0.accepted[channel] ?? 0 } }
  /// The sentence with which the daemon ends the connection.
  func refusal() async throws -> String { try await wait { if case .refused(let why) = $0 { why } else { nil } } }
  func close() async { try? await channel.close().get() }

  private final class Gatherer: ChannelInboundHandler, Sendable {
    typealias InboundIn = ByteBuffer
    private let state: NIOLockedValueBox<State>
    init(_ state: NIOLockedValueBox<State>) { self.state = state }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      var new = unwrapInboundIn(data)
      state.withLockedValue { state in
        state.buffer.writeBuffer(&new)
        while let frame = try? Frame.read(from: &state.buffer), let message = try? DaemonMessage(frame) {
          state.messages.append(message)
          if case .sdusAccepted(let channel, let octets) = message {
            state.accepted[channel, default: 0] += Int(octets)
          }
        }
      }
    }
    func channelInactive(context: ChannelHandlerContext) { state.withLockedValue { $0.isClosed = true } }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
  }
}

extension ChannelSocketTests {
  /// Such an app, with a channel.
  private static func raw(_ lab: Lab, _ name: String) async throws -> (RawApp, ChannelDescription, LinkChannel) {
    let app = try await RawApp(lab.lab, name), peer = lab.peer
    try await app.write([.request(.central(.connect(peer, ConnectOptions())))])
    try await app.wait { if case .event(.connected(peer, _, _)) = $0 { true } else { nil } }
    let (channel, far) = try await open(app, lab, 1)
    return (app, channel, far)
  }
  private static func open(
    _ app: RawApp, _ lab: Lab, _ id: UInt64
  ) async throws -> (ChannelDescription, LinkChannel) {
    try await app.write([.request(.central(.openChannel(OperationID(rawValue: id), lab.peer, psm: lab.psm)))])
    let channel = try await app.wait {
      if case .channel(OperationID(rawValue: id), let channel) = $0 { channel } else { nil }
    }
    return (channel, try await lab.nextAccepted())
  }

  @Test("An app that breaks a rule of its channel loses its connection, with a sentence; others do not")
  func hostileApps() async throws {
    let lab = try await Lab(), calm = try await lab.app("calm")
    let (near, far) = try await lab.open(calm), reader = ChannelReader(near)
    let long = ByteBuffer(repeating: 7, count: 2048)
    let faults: [(messages: [AppMessage], why: String)] = [
      // The calm app's channel has the number 1, too; these are numbers of this app's.
      ([.sdu(channel: 2, long)], "something for channel 2, which it was never given"),
      ([.sdusTaken(channel: 2, 1)], "something for channel 2, which it was never given"),
      ([.closeChannel(.max, dropping: true)], "something for channel 4294967295, which it was never given"),
      (
        [.sdu(channel: 1, ByteBuffer(repeating: 7, count: 2049))],
        "an SDU of 2049 octets on channel 1, which takes at most 2048"
      ),
      ([AppMessage](repeating: .sdu(channel: 1, long), count: 64), "more SDUs on channel 1 than it has credit for"),
      (
        [AppMessage](repeating: .sdu(channel: 1, ByteBuffer()), count: 20_000),
        "more SDUs on channel 1 than it has credit for"
      ),
      ([.sdusTaken(channel: 1, 1)], "1 SDUs taken of channel 1, of which it has 0"),
      (
        [.sdusTaken(channel: 1, 0), .sdusTaken(channel: 1, .max)],
        "4294967295 SDUs taken of channel 1, of which it has 0"
      ),
      (
        [.closeChannel(1, dropping: false), .sdu(channel: 1, ByteBuffer())],
        "an SDU on channel 1, which it has closed"
      ),
      (
        [.closeChannel(1, dropping: true), .closeChannel(1, dropping: false), .sdu(channel: 1, ByteBuffer())],
        "an SDU on channel 1, which it has closed"
      ),
    ]
    for (number, fault) in faults.enumerated() {
      let (app, channel, end) = try await Self.raw(lab, "hostile\(number)")
      #expect(channel == ChannelDescription(number: 1, psm: lab.psm, mtu: 2048, longestSDU: 2048, credit: 8192))
      try await app.write(fault.messages)
      #expect(try await app.refusal() == "This app has sent \(fault.why).")
      #expect(await end.closed == .byPeer)
    }
    // The credit of SDUs that came, once and no more.
    let (app, _, end) = try await Self.raw(lab, "twice")
    try await end.send([1])
    try await app.wait { if case .sdu(channel: 1, _) = $0 { true } else { nil } }
    try await app.write([.sdusTaken(channel: 1, 1), .sdusTaken(channel: 1, 1)])
    #expect(try await app.refusal() == "This app has sent 1 SDUs taken of channel 1, of which it has 0.")
    #expect(reader.ends.isEmpty && near.offer([1, 2]))
    #expect(try await Self.received(1, of: far) == [[1, 2]])
    try await lab.close()
  }

  @Test("What an app sends on a channel that has ended meanwhile is ignored; the next channel has another number")
  func crossing() async throws {
    let lab = try await Lab(), (app, _, far) = try await Self.raw(lab, "one"), peer = lab.peer
    try await far.send([1])
    await far.close()
    var sdus = 0
    try await app.wait {
      if case .sdu(channel: 1, _) = $0 { sdus += 1 }
      return if case .channelEnded(1, nil) = $0 { true } else { nil }
    }
    #expect(sdus == 1)
    try await app.write([
      .sdu(channel: 1, ByteBuffer(repeating: 1, count: 60_000)), .sdusTaken(channel: 1, .max),
      .closeChannel(1, dropping: false), .request(.central(.readRSSI(OperationID(rawValue: 9), peer))),
    ])
    try await app.wait {
      if case .event(.completed(OperationID(rawValue: 9), .success)) = $0 { true } else { nil }
    }
    #expect(try await Self.open(app, lab, 2).0.number == 2)
    await app.close()
    try await lab.close()
  }

  /// 40 apps, or a twentieth of `BINDRUNE_FUZZ_CASES`.
  @Test("Apps that use their channels in any order, by the rules and against them: each gets what the rules say")
  func anyOrder() async throws {
    let count = Fuzz.cases == 10_000 ? 40 : Fuzz.cases / 20
    print("apps with channels: \(count), seed \(Fuzz.seed)")
    var chance = SplitMix64(seed: Fuzz.seed), refusals = 0, sent: UInt64 = 0
    let lab = try await Lab(), calm = try await lab.app("calm"), peer = lab.peer
    let (near, calmFar) = try await lab.open(calm), reader = ChannelReader(near)
    for number in 0..<count {
      let (app, first, firstFar) = try await Self.raw(lab, "app\(number % 4)")
      var channels = [(first, firstFar)], untaken: [UInt32: Int] = [:], spent: [UInt32: Int] = [:]
      var last: UInt64 = 1, isWrong = false
      func ask() async throws {
        sent += 1
        let id = OperationID(rawValue: 1000 + sent)
        try await app.write([.request(.central(.readRSSI(id, peer)))])
        try await app.wait { if case .event(.completed(id, .success)) = $0 { true } else { nil } }
      }
      for _ in 0..<30 where !isWrong {
        let (channel, far) = channels.randomElement(using: &chance)!, place = channel.number
        switch Int.random(in: 0..<16, using: &chance) {
        case 0:
          guard channels.count < 4 else { continue }
          last += 1
          channels.append(try await Self.open(app, lab, last))
        case 1...6:
          let length = Int.random(in: 0...2048, using: &chance), cost = length + 48
          // The peer takes each, so that credit comes back.
          while 8192 + app.accepted(on: place) - spent[place, default: 0] < cost { try await ask() }
          spent[place, default: 0] += cost
          try await app.write([.sdu(channel: place, ByteBuffer(repeating: 3, count: length))])
          #expect(try await Self.received(1, of: far).map(\.count) == [length])
        case 7...10:
          try await far.send([UInt8](repeating: 5, count: Int.random(in: 0...500, using: &chance)))
          try await app.wait { if case .sdu(channel: place, _) = $0 { true } else { nil } }
          untaken[place, default: 0] += 1
        case 11, 12:
          let taken = Int.random(in: 0...2, using: &chance), had = untaken[place] ?? 0
          try await app.write([.sdusTaken(channel: place, UInt32(taken))])
          isWrong = taken > had
          untaken[place] = had - taken
        case 13:
          guard channels.count > 1 else { continue }
          try await app.write([.closeChannel(place, dropping: Bool.random(using: &chance))])
          try await app.wait { if case .channelEnded(place, nil) = $0 { true } else { nil } }
          channels.removeAll { $0.0.number == place }
        case 14:
          guard Int.random(in: 0..<4, using: &chance) == 0 else { continue }
          try await app.write([.sdu(channel: .random(in: 100 ... .max, using: &chance), ByteBuffer())])
          isWrong = true
        default: try await ask()
        }
      }
      if isWrong {
        refusals += 1
        #expect(try await app.refusal().hasPrefix("This app has sent "), "app \(number)")
      }
      await app.close()
      for (_, far) in channels { #expect(await far.closed == .byPeer) }
    }
    #expect(refusals > count / 8 && refusals < count, "\(refusals) of \(count)")
    #expect(reader.ends.isEmpty && near.offer([1, 2]))
    #expect(try await Self.received(1, of: calmFar) == [[1, 2]])
    try await eventually { try await lab.left() == "0 0 0" }
    try await lab.close()
  }
}

/// Answers the first frame, and notes the numbers of all.
private final class OldDaemon: ChannelInboundHandler, @unchecked Sendable {
  // Sendable: the box; the rest is on the channel's event loop.
  typealias InboundIn = ByteBuffer
  private let frames: NIOLockedValueBox<[UInt8]>
  private var answer: [UInt8], buffer = ByteBuffer()
  init(answer: [UInt8], frames: NIOLockedValueBox<[UInt8]>) { (self.answer, self.frames) = (answer, frames) }
  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var new = unwrapInboundIn(data)
    buffer.writeBuffer(&new)
    while let frame = try? Frame.read(from: &buffer) { frames.withLockedValue { $0.append(frame.number) } }
    context.writeAndFlush(NIOAny(ByteBuffer(bytes: answer)), promise: nil)
    answer = []
  }
}
