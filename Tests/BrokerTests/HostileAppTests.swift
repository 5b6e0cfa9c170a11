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

/// Apps that send anything to a daemon with a running adapter, over real sockets.
@Suite(.hang) struct HostileAppTests {
  /// 2,000 frames, or `BINDRUNE_FUZZ_CASES`.
  private static var count: Int { Fuzz.cases == 10_000 ? 2_000 : Fuzz.cases }

  @Test("Random, changed, cut and misplaced frames end their own connection at most")
  func frames() async throws {
    print("frames to a daemon: \(Self.count), seed \(Fuzz.seed)")
    var chance = SplitMix64(seed: Fuzz.seed)
    let lab = try await ServerLab(), sensor = try Sensor(), device = try await lab.host(sensor.database)
    try await device.advertiseAsSensor()
    let peer = UUID(PeerID(await device.ownAddress))
    let calm = SocketApp(lab, AppManifest(identifier: "calm"))
    try await calm.state(.poweredOn)
    calm.session.send(.connect(peer, ConnectOptions()))
    try await calm.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
    _ = try await calm.ask { .discoverServices($0, peer, nil) }
    _ = try await calm.ask { .discoverCharacteristics($0, peer, sensor.service, nil) }

    let samples = FrameTests.frames
    let requests = FrameTests.requests.map { AppMessage.request($0).frame }
    var sent = 0, connections = 0, refusals = 0, welcomes = 0, first = 0
    let begin = memory()
    while sent < Self.count {
      var octets: [UInt8] = []
      if Int.random(in: 0..<8, using: &chance) > 0 {
        let roles: [ManagerIdentity?] = [nil, nil, ManagerIdentity(.central), ManagerIdentity(.peripheral)]
        octets +=
          AppMessage.hello(
            .init(
              manifest: AppManifest(identifier: "hostile\(Int.random(in: 0..<4, using: &chance))"),
              manager: roles.randomElement(using: &chance)!)
          ).frame
        sent += 1
      }
      for _ in 0..<Int.random(in: 1...40, using: &chance) {
        sent += 1
        switch Int.random(in: 0..<20, using: &chance) {
        case 0:
          octets += (0..<Int.random(in: 1...200, using: &chance)).map { _ in UInt8.random(in: 0...255, using: &chance) }
        case 1:
          var frame = samples.randomElement(using: &chance)!
          for _ in 0..<Int.random(in: 1...4, using: &chance) {
            frame[Int.random(in: frame.indices, using: &chance)] = .random(in: 0...255, using: &chance)
          }
          octets += frame
        case 2:
          let frame = samples.randomElement(using: &chance)!
          octets += frame.prefix(Int.random(in: 0..<frame.count, using: &chance))
        case 3: octets += samples.randomElement(using: &chance)!
        default: octets += requests.randomElement(using: &chance)!
        }
      }
      connections += 1
      let answer = try await answer(to: octets, lab, splitAt: Int.random(in: 0...octets.count, using: &chance))
      var all = answer
      while let frame = try Frame.read(from: &all) {
        switch try DaemonMessage(frame) {
        case .refused: refusals += 1
        case .welcome: welcomes += 1
        default: if frame.number == Frame.numberOfJSON { refusals += 1 }
        }
      }
      if connections % 20 == 0 {
        // The calm app has its link and its answers.
        #expect(try await calm.ask { .read($0, peer, sensor.location) } == .value(Data([2])), "after \(sent) frames")
      }
      if connections == 100 { first = memory() }
    }
    _ = try await calm.ask { .read($0, peer, sensor.location) }
    // One of the frames is an app's greeting that has a restoration identifier: what that app began goes on without it,
    // until now.
    while try await lab.lines(.list).contains(where: { !$0.hasPrefix("calm\t") && !$0.contains("\tterminated\t") }) {}
    try await lab.adapter.eventLoop.submit { [adapter = lab.adapter] in
      let sessions = adapter.core.sessions
      for session in sessions.ids.compactMap({ sessions[$0] }) where session.preservation != nil {
        if let identity = session.identity { adapter.drop(identity, of: session.app) }
      }
    }.get()
    let left = try await lab.adapter.eventLoop.submit { [adapter = lab.adapter] in
      let core = adapter.core
      return
        "\(core.sessions.ids.count) \(core.central.scans.count) \(core.serving.services.count) \(core.serving.advertising.count)"
        + " \(core.links.all.count) \(core.serving.requests.count)"
    }.get()
    #expect(left == "1 0 0 0 1 0", "sessions, scans, services, advertising, links and requests")
    #expect(!calm.log.contains { if case .disconnected = $0 { true } else { false } })
    #expect(refusals > connections / 4 && welcomes > connections / 4, "\(refusals), \(welcomes) of \(connections)")
    print(
      "frames to a daemon: \(sent) in \(connections) connections, \(welcomes) admitted, \(refusals) refused; "
        + "RSS \(begin) kB, after 100 connections \(first) kB, at the end \(memory()) kB")
    withExtendedLifetime(device) {}
    try await lab.close()
  }

  /// Everything that the daemon writes until it closes the connection. The app has closed its own half.
  private func answer(to octets: [UInt8], _ lab: ServerLab, splitAt place: Int) async throws -> ByteBuffer {
    let gathered = Gatherer()
    let channel = try await ClientBootstrap(group: lab.radio.eventLoop)
      .channelOption(.allowRemoteHalfClosure, value: true)
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(gathered) }
      }.connect(unixDomainSocketPath: lab.path).get()
    // The daemon may have closed it already.
    try? await channel.writeAndFlush(ByteBuffer(bytes: octets[..<place])).get()
    try? await channel.writeAndFlush(ByteBuffer(bytes: octets[place...])).get()
    try? await channel.close(mode: .output).get()
    try? await channel.closeFuture.get()
    return gathered.octets
  }
  private func memory() -> Int {
    let text = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = text.split(separator: "\n").first { $0.hasPrefix("VmRSS:") }
    return line.flatMap { Int($0.filter(\.isNumber)) } ?? 0
  }
}

/// What came, and the end of the other side's half is the end of both.
private final class Gatherer: ChannelInboundHandler, Sendable {
  typealias InboundIn = ByteBuffer
  private let box = NIOLockedValueBox(ByteBuffer())
  var octets: ByteBuffer { box.withLockedValue { $0 } }
  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var new = unwrapInboundIn(data)
    box.withLockedValue { _ = $0.writeBuffer(&new) }
  }
  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if case ChannelEvent.inputClosed = event { context.close(promise: nil) }
  }
  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
