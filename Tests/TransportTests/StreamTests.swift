import BindruneTransport
import BindruneWire
import Foundation
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@Suite(.realTime, .hang) struct StreamTests {
  private static let loopback = TransportSpec.tcp(host: "127.0.0.1", port: 0)

  /// A server that passes the recorder of each connection to `serve` before the start.
  private func withServer(
    on spec: TransportSpec = loopback, serve: @escaping @Sendable (H4Stream, Recorder) -> Void,
    _ body: (any EventLoop, H4Server) async throws -> Void
  ) async throws {
    try await withLoop { loop in
      let accepted = Accepted()
      let server = try await H4Server.listen(on: spec, loop: loop) { stream in
        accepted.streams.append(stream)
        let recorder = Recorder(loop)
        serve(stream, recorder)
        stream.start(recorder)
      }
      try await body(loop, server)
      await server.close()
      try await loop.run { accepted.streams.forEach { $0.close() } }
      for stream in accepted.streams { try await stream.closeFuture.get() }
    }
  }
  /// Only used on the loop, and after it.
  private final class Accepted: @unchecked Sendable { var streams: [H4Stream] = [] }

  private func echo(on spec: TransportSpec) async throws {
    try await withServer(on: spec) { stream, recorder in
      recorder.onPacket = { _, packet in
        stream.send(packet)
        stream.flush()
      }
    } _: { loop, server in
      let stream = try await H4Stream.connect(to: server.address, on: loop)
      let recorder = Recorder(loop)
      try await loop.run {
        stream.start(recorder)
        for number in 0..<500 { stream.send(acl(number, count: number)) }
        stream.flush()
      }
      try await recorder.wait { $0.packets.count == 500 }
      try await loop.run {
        #expect(recorder.packets.indices.allSatisfy { recorder.packets[$0] == acl($0, count: $0) })
        #expect(recorder.batches > 0)
        stream.close()
      }
      try await stream.closeFuture.get()
      #expect(recorder.errors.isEmpty)
    }
  }

  @Test func tcpCarriesPacketsBothWays() async throws { try await echo(on: Self.loopback) }
  @Test func aUnixSocketCarriesPacketsBothWays() async throws {
    let path = socketPath()
    defer { try? FileManager.default.removeItem(atPath: path + ".lock") }
    try await echo(on: .unix(path: path))
    #expect(!FileManager.default.fileExists(atPath: path))
  }

  /// A child that lives longer than the connection would keep it open.
  @Test func noChildInheritsAnything() async throws {
    let path = socketPath()
    defer { try? FileManager.default.removeItem(atPath: path + ".lock") }
    try await withServer(on: .unix(path: path), serve: { _, _ in }) { loop, server in
      let stream = try await H4Stream.connect(to: server.address, on: loop)
      let recorder = Recorder(loop)
      try await loop.run { stream.start(recorder) }
      let own = try await loop.run { openDescriptors().filter { Self.paths($0).contains(path) } }
      #expect(own.count >= 2)
      #expect(own.allSatisfy { fcntl($0, F_GETFD) & FD_CLOEXEC != 0 })
      try await loop.run { stream.close() }
    }
  }

  /// Nor does a child that is started between the creation of a socket and a flag: there is no such moment.
  @Test func noChildInheritsAnythingAtAnyMoment() async throws {
    let inherited = Mutex<Set<String>>([]), isOver = Atomic(false), children = Atomic(0)
    let ended = DispatchSemaphore(value: 0)
    Thread.detachNewThread {
      while !isOver.load(ordering: .relaxed) {
        guard let output = unsafe popen("exec ls -l /proc/self/fd 2>/dev/null", "r") else { break }
        var text = "", line = [CChar](repeating: 0, count: 512)
        while unsafe fgets(&line, CInt(line.count), output) != nil {
          text += String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        }
        unsafe pclose(output)
        children.add(1, ordering: .relaxed)
        inherited.withLock { $0.formUnion(text.matches(of: #/socket:\[\d+\]/#).map { String($0.output) }) }
      }
      ended.signal()
    }
    let path = socketPath()
    defer { try? FileManager.default.removeItem(atPath: path + ".lock") }
    var own: Set<String> = []
    try await withLoop { loop in
      for round in 0..<120 {
        let spec = round.isMultiple(of: 2) ? Self.loopback : .unix(path: path)
        let (streams, continuation) = AsyncStream.makeStream(of: H4Stream.self)
        let server = try await H4Server.listen(on: spec, loop: loop) { continuation.yield($0) }
        let stream = try await H4Stream.connect(to: server.address, on: loop)
        var accepted = streams.makeAsyncIterator()
        let other = try #require(await accepted.next())
        let port = if case .tcp(_, let port) = server.address { port } else { -1 }
        for descriptor in openDescriptors()
        where Self.ports(descriptor).contains(port) || Self.paths(descriptor).contains(path) {
          if let name = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(descriptor)") {
            own.insert(name)
          }
        }
        try await loop.run {
          stream.close()
          other.close()
        }
        try await stream.closeFuture.get()
        try await other.closeFuture.get()
        await server.close()
      }
    }
    isOver.store(true, ordering: .relaxed)
    while ended.wait(timeout: .now()) != .success { try await Task.sleep(for: .milliseconds(1)) }
    #expect(own.count >= 300 && children.load(ordering: .relaxed) > 5)
    #expect(inherited.withLock { $0 }.isDisjoint(with: own))
  }
  /// The ports of a TCP socket's two ends.
  private static func ports(_ descriptor: CInt) -> [Int] {
    [true, false].compactMap { isOwn in
      var name = sockaddr_in(), size = socklen_t(MemoryLayout<sockaddr_in>.size)
      let result = unsafe withUnsafeMutablePointer(to: &name) {
        unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          unsafe isOwn ? getsockname(descriptor, $0, &size) : getpeername(descriptor, $0, &size)
        }
      }
      return result == 0 && CInt(name.sin_family) == AF_INET ? Int(UInt16(bigEndian: name.sin_port)) : nil
    }
  }

  /// What a descriptor's two ends are called, if it is a Unix socket.
  private static func paths(_ descriptor: CInt) -> [String] {
    [true, false].map { isOwn in
      var address = [UInt8](repeating: 0, count: 128), size = socklen_t(128)
      let result = unsafe address.withUnsafeMutableBytes { bytes in
        let pointer = unsafe bytes.baseAddress.unsafelyUnwrapped.assumingMemoryBound(to: sockaddr.self)
        return unsafe isOwn ? getsockname(descriptor, pointer, &size) : getpeername(descriptor, pointer, &size)
      }
      return result == 0 ? String(decoding: address[2...].prefix { $0 != 0 }, as: UTF8.self) : ""
    }
  }

  /// As while a child that another thread forks has not come to its `exec`: it has each descriptor of this process.
  @Test(arguments: [true, false]) func aClosedListenerRefusesThoughAChildHasIt(isUnix: Bool) async throws {
    let path = socketPath()
    defer { try? FileManager.default.removeItem(atPath: path) }
    let socket =
      try isUnix
      ? StreamSocket.listening(atPath: path, replaces: false) : StreamSocket.listening(atHost: "127.0.0.1", port: 0)
    let child = try socket.duplicate()
    let listener = StreamListener(socket) { try? $0.close() }
    let spec = isUnix ? TransportSpec.unix(path: path) : .tcp(host: "127.0.0.1", port: try #require(listener.port))
    try await withLoop { loop in
      let stream = try await H4Stream.connect(to: spec, on: loop)
      try await loop.run { stream.close() }
      await listener.close()
      await #expect(throws: TransportError.refused(spec)) { try await H4Stream.connect(to: spec, on: loop) }
    }
    try child.close()
  }

  @Test func aRefusedPortSaysSo() async throws {
    try await withLoop { loop in
      let server = try await H4Server.listen(on: Self.loopback, loop: loop) { _ in }
      await server.close()
      await #expect(throws: TransportError.refused(server.address)) {
        try await H4Stream.connect(to: server.address, on: loop)
      }
    }
  }

  @Test func failedConnectionsNameTheCause() async throws {
    let path = socketPath()
    try await withLoop { loop in
      await #expect(throws: TransportError.notFound(.unix(path: path))) {
        try await H4Stream.connect(to: .unix(path: path), on: loop)
      }
      let nowhere = TransportSpec.tcp(host: "no-such-host.invalid", port: 1)
      await #expect(throws: TransportError.unresolved(nowhere)) { try await H4Stream.connect(to: nowhere, on: loop) }
      for spec in [TransportSpec.sim, Self.loopback] {
        let error = await #expect(throws: TransportError.self) { try await H4Stream.connect(to: spec, on: loop) }
        if case .unsuitable(spec, _) = error {} else { Issue.record("\(String(describing: error))") }
      }
    }
  }

  @Test func silenceEndsTheAttempt() async throws {
    try await withLoop { loop in
      // The server does not accept: once its backlog is full, the system leaves further attempts unanswered.
      let server = try await ServerBootstrap(group: loop).serverChannelOption(.backlog, value: 1)
        .serverChannelOption(.autoRead, value: false).bind(host: "127.0.0.1", port: 0).get()
      let spec = TransportSpec.tcp(host: "127.0.0.1", port: try #require(server.localAddress?.port))
      var streams: [H4Stream] = []
      do throws(TransportError) {
        while streams.count < 8 {
          streams.append(try await H4Stream.connect(to: spec, on: loop, timeout: .milliseconds(200)))
        }
        print("skipped: this system queues \(streams.count) connections")
      } catch {
        #expect(error == .timedOut(spec, seconds: 1))
        #expect(error.description.contains("No answer from \(spec) in 1 s"))
      }
      for stream in streams { try await loop.run { stream.close() } }
      try await server.close()
    }
  }

  @Test func anAddressInUseIsNotTakenAndAnAbandonedSocketIs() async throws {
    let path = socketPath(), spec = TransportSpec.unix(path: path)
    defer { for end in [".lock", "x.lock"] { try? FileManager.default.removeItem(atPath: path + end) } }
    try await withServer(on: spec, serve: { _, _ in }) { loop, server in
      await #expect(throws: TransportError.addressInUse(spec)) {
        try await H4Server.listen(on: spec, loop: loop) { _ in }
      }
    }
    try await withServer(serve: { _, _ in }) { loop, server in
      await #expect(throws: TransportError.addressInUse(server.address)) {
        try await H4Server.listen(on: server.address, loop: loop) { _ in }
      }
    }
    try await withLoop { loop in
      // The remains of a killed process: a socket file without a listener.
      let dead = try await H4Server.listen(on: .unix(path: path + "x"), loop: loop) { _ in }
      try FileManager.default.moveItem(atPath: path + "x", toPath: path)
      await dead.close()
      await #expect(throws: TransportError.refused(spec)) { try await H4Stream.connect(to: spec, on: loop) }
      let server = try await H4Server.listen(on: spec, loop: loop) { _ in }
      await server.close()
    }
  }

  /// Connects to a server that sends `octets`, and closes if the test says so; returns the recorder.
  private func hear(_ octets: [UInt8], thenClose: Bool) async throws -> (packets: [[UInt8]], errors: [TransportError]) {
    var heard: (packets: [[UInt8]], errors: [TransportError]) = ([], [])
    try await withLoop { loop in
      let server = try await ServerBootstrap(group: loop)
        .childChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.addHandler(Speaker(octets, thenClose))
          }
        }
        .bind(host: "127.0.0.1", port: 0).get()
      let stream = try await H4Stream.connect(
        to: .tcp(host: "127.0.0.1", port: try #require(server.localAddress?.port)), on: loop)
      let recorder = Recorder(loop)
      try await loop.run { stream.start(recorder) }
      try await recorder.wait { !$0.errors.isEmpty }
      try await stream.closeFuture.get()
      heard = try await loop.run {
        stream.send(acl(1))
        stream.flush()
        #expect(!stream.isWritable)
        return (recorder.packets, recorder.errors)
      }
      try await server.close()
    }
    return heard
  }

  private final class Speaker: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    let octets: [UInt8]
    let thenClose: Bool
    init(_ octets: [UInt8], _ thenClose: Bool) {
      self.octets = octets
      self.thenClose = thenClose
    }
    func channelActive(context: ChannelHandlerContext) {
      context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: octets)), promise: nil)
      if thenClose { context.close(promise: nil) }
    }
  }

  @Test func aPeerThatClosesInThePacketIsClosedOnce() async throws {
    // Repeated, because the end can come before, with or after the start.
    for _ in 0..<50 {
      let heard = try await hear(acl(1) + acl(2).dropLast(3), thenClose: true)
      #expect(heard.packets == [acl(1)])
      #expect(heard.errors == [.closed])
    }
  }

  @Test func garbageIsLossOfFramingOnce() async throws {
    let heard = try await hear(acl(1) + Array("HTTP/1.1 400 Bad Request\r\n\r\n".utf8), thenClose: false)
    #expect(heard.packets == [acl(1)])
    #expect(heard.errors == [.framing(FramingError(.packetType, offset: 25, octet: 0x48))])
  }

  @Test func theAnswerToResetIsFoundInAStreamThatIsUnderWay() async throws {
    try await withServer { stream, recorder in
      recorder.onPacket = { _, packet in
        guard packet[0] == 0x01 else { return }
        // The rest of a packet, then a late event, then the answer.
        stream.send(octets("FF 07 00 04 13 05 01 40 00 02 00 04 0E 04 01 03 0C 00"))
        stream.send(acl(7))
        stream.flush()
      }
    } _: { loop, server in
      let stream = try await H4Stream.connect(to: server.address, on: loop)
      let recorder = Recorder(loop)
      try await loop.run {
        stream.resynchronise()
        stream.start(recorder)
        stream.send(octets("01 03 0C 00"))
        stream.flush()
      }
      try await recorder.wait { $0.packets == [octets("04 0E 04 01 03 0C 00"), acl(7)] }
      try await loop.run { stream.close() }
    }
  }

  @Test func aPeerThatDoesNotReadStopsTheSender() async throws {
    try await withLoop { loop in
      let slow = Slow()
      let server = try await H4Server.listen(on: Self.loopback, loop: loop) { slow.stream = $0 }
      let stream = try await H4Stream.connect(to: server.address, on: loop)
      let (recorder, atServer) = (Recorder(loop), Recorder(loop))
      let sent = try await loop.run {
        stream.start(recorder)
        var sent = 0
        while stream.isWritable, sent < 200_000 {
          stream.send(acl(sent, count: 100))
          sent += 1
        }
        stream.flush()
        #expect(recorder.writables == 0)
        return sent
      }
      #expect(sent < 200_000)
      // The connection may be accepted only now.
      try await loop.run { slow.begin(atServer) }
      try await atServer.wait { $0.packets.count == sent }
      try await recorder.wait { $0.writables == 1 }
      try await loop.run {
        #expect(atServer.packets.indices.allSatisfy { atServer.packets[$0] == acl($0, count: 100) })
        stream.close()
      }
      try await atServer.wait { $0.errors == [.closed] }
      await server.close()
    }
  }
  /// Only used on the loop.
  private final class Slow: @unchecked Sendable {
    var stream: H4Stream? { didSet { if let recorder { stream?.start(recorder) } } }
    private var recorder: Recorder?
    func begin(_ recorder: Recorder) {
      self.recorder = recorder
      stream?.start(recorder)
    }
  }

  @Test func aSenderThatNeverStopsIsStopped() async throws {
    try await withLoop { loop in
      let slow = Slow()
      let server = try await H4Server.listen(on: Self.loopback, loop: loop) { slow.stream = $0 }
      let stream = try await H4Stream.connect(to: server.address, on: loop)
      let recorder = Recorder(loop)
      try await loop.run {
        stream.start(recorder)
        let packet = acl(0, count: 1000)
        for _ in 0..<100_000 { stream.send(packet) }
      }
      try await recorder.wait { !$0.errors.isEmpty }
      try await loop.run {
        if case .overflow = recorder.errors[0] {} else { Issue.record("\(recorder.errors)") }
        #expect(recorder.errors.count == 1)
        slow.stream?.close()
      }
      await server.close()
    }
  }

  private func socketPath() -> String { "/tmp/bindrune-\(UInt64.random(in: 0 ... .max)).sock" }
}
