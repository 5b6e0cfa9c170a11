import BindruneTransport
import Foundation
import NIOCore
import Synchronization
import TestSupport
import Testing

@testable import BindruneBroker

/// Retries after repeated failures come after growing delays.
@Suite(.virtualTime, .hang) struct PatienceTests {
  @Test func waits() {
    let patience = AdapterPatience()
    #expect((1...6).map { patience.wait(after: $0).nanoseconds / 1_000_000 } == [250, 500, 1000, 2000, 4000, 4000])
    #expect(
      (1...9).map { patience.wait(afterUnheard: $0).nanoseconds / 1_000_000 }
        == [20, 40, 80, 160, 320, 640, 1280, 2560, 4000])
    #expect(patience.wait(after: 1000) == patience.longest && patience.wait(afterUnheard: 1000) == patience.longest)
  }

  /// A controller that starts and is lost at once.
  @Test func aControllerThatFlaps() async throws {
    let room = Room(), ways = Ways()
    var patience = AdapterPatience.short
    patience.steady = .seconds(3600)
    let adapter = room.adapter(patience) { _ async throws(TransportError) in await ways.open(room.radio) }
    let probe = Probe(adapter)
    for failures in 0..<4 {
      try await probe.state(.poweredOn)
      #expect(try await adapter.eventLoop.submit { adapter.core.failures }.get() == failures)
      try await ways.cut()
      try await probe.wait("resetting") { if case .adapter(.resetting) = $0 { true } else { nil } }
    }
    try await probe.state(.poweredOn)
    probe.session.close()
  }
  /// After a controller has worked for a while, the delays begin again.
  @Test func aControllerThatIsSteadyAgain() async throws {
    let room = Room(), ways = Ways()
    var patience = AdapterPatience.short
    patience.steady = .milliseconds(1)
    let adapter = room.adapter(patience) { _ async throws(TransportError) in await ways.open(room.radio) }
    let probe = Probe(adapter)
    try await probe.state(.poweredOn)
    try await ways.cut()
    try await probe.state(.poweredOn)
    try await eventually { try await adapter.eventLoop.submit { adapter.core.failures }.get() == 0 }
    probe.session.close()
  }

  /// Every attempt ends with Connection Failed to be Established (0x3E: Vol 1, Part F, §2.58), at once.
  @Test func aControllerThatNeverEstablishes() async throws {
    let room = Room(), refusals = Refusals(count: .max)
    var patience = AdapterPatience.short
    patience.retrying = .seconds(3600)
    patience.longest = .seconds(3600)
    let adapter = room.adapter(patience) { _ async throws(TransportError) in refusals.open(room.radio) }
    let probe = try await Probe.poweredOn(adapter),
      peer = UUID(PeerID(PeerAddress(DeviceAddress(0xC0FF_EE00_0001), .random)))
    probe.send(.connect(peer, ConnectOptions()))
    try await eventually { refusals.made.load(ordering: .relaxed) > 0 }
    for _ in 0..<20 { try await probe.waitForEvents() }
    #expect(refusals.made.load(ordering: .relaxed) == 1)
    // It can still be cancelled.
    probe.send(.cancelConnection(peer))
    #expect(try await probe.disconnected(peer).error == nil)
    probe.session.close()
  }
  @Test func oneThatEstablishesInTheEnd() async throws {
    let room = Room(), refusals = Refusals(count: 3), (host, peer) = try await room.sensor(try Sensor())
    let adapter = room.adapter { _ async throws(TransportError) in refusals.open(room.radio) }
    let probe = try await Probe.poweredOn(adapter)
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    #expect(refusals.made.load(ordering: .relaxed) == 3)
    probe.session.close()
    withExtendedLifetime(host) {}
  }
}

/// A controller of the radio whose first attempts to connect end with 0x3E.
private final class Refusals: Sendable {
  let made = Atomic<Int>(0)
  private let count: Int
  init(count: Int) { self.count = count }

  func open(_ radio: SimulatedRadio) -> any HCITransport {
    let (host, end) = MemoryTransport.pair(on: radio.eventLoop)
    radio.eventLoop.execute { Between(end, radio.controller(), self).begin() }
    return host
  }
  fileprivate func takesNext() -> Bool {
    guard made.load(ordering: .relaxed) < count else { return false }
    made.add(1, ordering: .relaxed)
    return true
  }

  private final class Between: HCIReceiver, @unchecked Sendable {
    // Sendable: everything is on the radio's loop.
    private let host: any HCITransport, controller: any HCITransport, refusals: Refusals
    init(_ host: any HCITransport, _ controller: any HCITransport, _ refusals: Refusals) {
      (self.host, self.controller, self.refusals) = (host, controller, refusals)
    }
    func begin() {
      controller.start(Back(host))
      host.start(self)
    }
    func received(_ packet: Span<UInt8>) {
      // LE Extended Create Connection: Vol 4, Part E, §7.8.66.
      guard packet.count > 3, packet[0] == 0x01, packet[1] == 0x43, packet[2] == 0x20, refusals.takesNext() else {
        return controller.send(packet)
      }
      let accepted = octets("04 0F 04 00 01 43 20")
      host.send(accepted.span)
      // LE Enhanced Connection Complete with an error, so the other fields are meaningless: §7.7.65.10.
      let failed = octets("04 3E 1F 0A 3E") + [UInt8](repeating: 0, count: 29)
      host.send(failed.span)
      host.flush()
    }
    func receivedAll() { controller.flush() }
    func writable() {}
    func failed(_ error: TransportError) { controller.close() }
  }
  private final class Back: HCIReceiver, @unchecked Sendable {
    private let host: any HCITransport
    init(_ host: any HCITransport) { self.host = host }
    func received(_ packet: Span<UInt8>) { host.send(packet) }
    func receivedAll() { host.flush() }
    func writable() {}
    func failed(_ error: TransportError) { host.close() }
  }
}
