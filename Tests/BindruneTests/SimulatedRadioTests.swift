import Bindrune
import BindruneSimulator
import BindruneTransport
import BindruneWire
import Glibc
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// A host that sends its commands one by one, each after the answer to the one before, and records what it receives.
private final class ScriptedHost: HCIReceiver, @unchecked Sendable {
  // Everything happens on the transport's loop.
  let transport: any HCITransport
  private var commands: ArraySlice<[UInt8]>
  private(set) var packets: [[UInt8]] = []
  private(set) var error: TransportError?
  private var waiting: (predicate: (ScriptedHost) -> Bool, promise: EventLoopPromise<Void>)?

  init(_ transport: any HCITransport, _ commands: [String]) {
    self.transport = transport
    self.commands = commands.map { octets($0) }[...]
  }
  /// From any thread.
  func begin() async throws {
    try await transport.eventLoop.submit {
      self.transport.start(self)
      self.next()
    }.get()
  }
  private func next() {
    guard let command = commands.popFirst() else { return }
    transport.send(command.span)
    transport.flush()
  }
  func received(_ packet: Span<UInt8>) {
    packets.append(packet.indices.map { packet[$0] })
    if packet[1] == 0x0E { next() }
  }
  func receivedAll() { check() }
  func writable() {}
  func failed(_ error: TransportError) {
    self.error = error
    check()
  }
  private func check() {
    guard let waiting, waiting.predicate(self) else { return }
    self.waiting = nil
    waiting.promise.succeed()
  }
  /// Waits until `predicate` holds.
  func wait(
    _ sourceLocation: SourceLocation = #_sourceLocation, until predicate: @escaping @Sendable (ScriptedHost) -> Bool
  ) async throws {
    let loop = transport.eventLoop
    try await loop.flatSubmit {
      let promise = loop.makePromise(of: Void.self)
      self.waiting = (predicate, promise)
      let limit = loop.scheduleTask(in: .seconds(Int64(Hang.seconds))) {
        Issue.record("heard only \(self.packets.map { hex($0) })", sourceLocation: sourceLocation)
        self.waiting = nil
        promise.fail(CancellationError())
      }
      promise.futureResult.whenComplete { _ in limit.cancel() }
      self.check()
      return promise.futureResult
    }.get()
  }
  func close() async throws { try await transport.eventLoop.submit { self.transport.close() }.get() }
}

private let reset = "01 03 0C 00"
private let resetAnswer = octets("04 0E 04 01 03 0C 00")
/// Reset, 100 ms non-connectable advertising, the name "Bind", on.
private let advertising = [
  reset, "01 06 20 0F A0 00 A0 00 03 00 00 00 00 00 00 00 00 07 00",
  "01 08 20 20 06 05 09 42 69 6E 64" + String(repeating: " 00", count: 25), "01 0A 20 01 01",
]
/// Reset, every event, passive scanning.
private let scanning = [
  reset, "01 01 0C 08 FF FF FF FF FF FF FF 3F", "01 0B 20 07 00 10 00 10 00 00 00", "01 0C 20 02 01 00",
]
private func isReport(_ packet: [UInt8]) -> Bool {
  packet.starts(with: [0x04, 0x3E]) && packet[3] == 0x02 && packet.dropLast().suffix(6) == octets("05 09 42 69 6E 64")
}

private func withRadio(on loop: any EventLoop, _ body: (SimulatedRadio) async throws -> Void) async throws {
  let radio = SimulatedRadio(on: loop)
  do { try await body(radio) } catch { Issue.record(error) }
  try await radio.eventLoop.submit { radio.close() }.get()
}

@Suite(.virtualTime, .hang) struct SimulatedRadioTests {
  /// A host that is started again has its address, and so its bonds; no two have the same.
  @Test func anAddressIsFreeAgain() async throws {
    let lab = Lab(), one = try await lab.host(), two = try await lab.host()
    let first = await one.ownAddress, second = await two.ownAddress
    #expect(first.address.text == "00:00:5E:00:53:01" && second.address.text == "00:00:5E:00:53:02")
    await one.close()
    try await eventually { try await lab.controllerCount() == 1 }
    let again = try await lab.host(), another = try await lab.host()
    #expect(await again.ownAddress == first)
    #expect(await another.ownAddress.address.text == "00:00:5E:00:53:03")
    for host in [two, again, another] { await host.close() }
  }

  @Test func hostsOfTheProcessHearEachOther() async throws {
    try await withRadio(on: VirtualLoop.current) { radio in
      let speaker = ScriptedHost(radio.controller(), advertising)
      let listener = ScriptedHost(radio.controller(), scanning)
      try await speaker.begin()
      try await listener.begin()
      // Several intervals: the timer repeats by itself.
      try await listener.wait { $0.packets.filter(isReport).count >= 3 }
      #expect(listener.packets[0] == resetAnswer)
      // Each has an address of its own.
      #expect(listener.packets.first(where: isReport)?[7..<13] == octets("01 53 00 5E 00 00")[...])
    }
  }

  @Test func closingTheRadioEndsItsControllers() async throws {
    try await withRadio(on: VirtualLoop.current) { radio in
      let host = ScriptedHost(radio.controller(), [reset])
      try await host.begin()
      try await host.wait { $0.packets == [resetAnswer] }
      try await radio.eventLoop.submit { radio.close() }.get()
      try await host.wait { $0.error == .closed }
      let late = ScriptedHost(radio.controller(), [reset])
      try await late.begin()
      try await late.wait { $0.error == .closed }
    }
  }
}

/// For hosts of other processes.
@Suite(.realTime, .hang) struct RadioServerTests {
  private let loop = RealTime.nextLoop()

  @Test func foreignHostsShareTheRadio() async throws {
    try await withRadio(on: loop) { radio in
      let server = try await radio.listen(on: .tcp(host: "127.0.0.1", port: 0))
      let speaker = ScriptedHost(radio.controller(), advertising)
      let stream = try await H4Stream.connect(to: server.address, on: radio.eventLoop)
      let listener = ScriptedHost(stream, scanning)
      try await speaker.begin()
      try await listener.begin()
      try await listener.wait { $0.packets.contains(where: isReport) }
      await server.close()
    }
  }

  @Test func aClosedConnectionTakesItsControllerAlong() async throws {
    try await withRadio(on: loop) { radio in
      let server = try await radio.listen(on: .tcp(host: "127.0.0.1", port: 0))
      // Its own loop: to the radio the other end is another process.
      let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
      let host = ScriptedHost(try await H4Stream.connect(to: server.address, on: group.next()), [reset])
      let garbler = ScriptedHost(
        try await H4Stream.connect(to: server.address, on: group.next()), ["47 45 54 20 2F"])
      try await host.begin()
      try await host.wait { $0.packets == [resetAnswer] }
      try await garbler.begin()
      try await garbler.wait { $0.error == .closed }
      let one = try await radio.eventLoop.submit { radio.controllerCount }.get()
      #expect(one == 1)
      try await host.close()
      let inProcess = ScriptedHost(radio.controller(), [reset])
      try await inProcess.begin()
      try await inProcess.close()
      // The connection's end reaches the radio later: poll for it, within the time limit.
      while try await radio.eventLoop.submit({ radio.controllerCount }).get() > 0 { await Task.yield() }
      await server.close()
      try await group.shutdownGracefully()
    }
  }

  @Test func aSpecificationOpens() async throws {
    try await withRadio(on: loop) { radio in
      let server = try await radio.listen(on: .tcp(host: "127.0.0.1", port: 0))
      for spec in [TransportSpec.sim, server.address] {
        let host = ScriptedHost(try await spec.open(on: radio.eventLoop, radio: radio), [reset])
        try await host.begin()
        try await host.wait { $0.packets == [resetAnswer] }
        try await host.close()
      }
      await server.close()
      // A port that stays bound: another process could listen on a port that was closed.
      let silent = Self.boundSocket()
      defer { close(silent.descriptor) }
      let nobody = TransportSpec.tcp(host: "127.0.0.1", port: silent.port)
      await #expect(throws: TransportError.refused(nobody)) { _ = try await nobody.open(on: radio.eventLoop) }
      await #expect(throws: TransportError.self) { _ = try await TransportSpec.sim.open(on: radio.eventLoop) }
      await #expect(throws: TransportError.trace(path: "/no/such/file", "No such file or directory")) {
        _ = try await TransportSpec.sim.open(on: radio.eventLoop, radio: radio, trace: "/no/such/file")
      }
    }
  }
  /// It does not listen.
  private static func boundSocket() -> (descriptor: CInt, port: Int) {
    let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_in(), size = socklen_t(MemoryLayout<sockaddr_in>.size)
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = unsafe inet_addr("127.0.0.1")
    let status = unsafe withUnsafeMutablePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe bind(descriptor, $0, size) == 0 ? unsafe getsockname(descriptor, $0, &size) : -1
      }
    }
    #expect(status == 0)
    return (descriptor, Int(UInt16(bigEndian: address.sin_port)))
  }
}
