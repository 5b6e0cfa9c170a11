import BindruneAdapters
import BindruneTransport
import Foundation
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import BindruneBroker

/// The controller's states, as the sessions see them (rows S75, S105, S134, S158).
@Suite(.virtualTime, .hang) struct AdapterStateTests {
  @Test func unknownThenPoweredOn() async throws {
    let adapter = Room().adapter()
    let first = try await Probe.poweredOn(adapter), second = try await Probe.poweredOn(adapter)
    #expect(try await first.history().states == [.unknown, .poweredOn])
    // The second one finds it open.
    guard case .adapter(.poweredOn)? = try await second.history().first else {
      Issue.record("\(try await second.history())")
      return
    }
  }

  /// The adapter retries a failed opening, and reports only changes of the state.
  @Test func isTriedAgain() async throws {
    let room = Room(), nobody = TransportError.refused(.tcp(host: "127.0.0.1", port: 9))
    let attempts = Attempts([nobody, nobody, .permissionDenied(.unix(path: "/x"))])
    let adapter = room.adapter { _ async throws(TransportError) in
      try attempts.next()
      return room.radio.controller()
    }
    let probe = try await Probe.poweredOn(adapter)
    #expect(
      try await probe.history().states == [
        .unknown, .unsupported(nobody.description),
        .unauthorized(TransportError.permissionDenied(.unix(path: "/x")).description), .poweredOn,
      ])
  }
  /// It does not retry an impossible choice.
  @Test func aWrongChoiceStays() async throws {
    let attempts = Attempts([.specification("no such thing")])
    let adapter = Room().adapter { _ async throws(TransportError) in
      try attempts.next()
      throw .specification("asked again")
    }
    let probe = Probe(adapter)
    try await probe.state(.unsupported("no such thing."))
    try await probe.waitForEvents()
    #expect(attempts.left == 0)
    #expect(try await adapter.eventLoop.submit { if case .hopeless = adapter.core.phase { true } else { false } }.get())
    #expect(try await probe.errorCode { .readRSSI($0, UUID()) } == .notStarted)
  }

  /// An adapter runs on its own loop, the controller's part too.
  @Test func aControllerOnAnotherLoop() async throws {
    let room = Room()
    let elsewhere = SimulatedRadio(on: MultiThreadedEventLoopGroup.singleton.next())
    #expect(elsewhere.eventLoop !== room.radio.eventLoop)
    let probe = Probe(room.adapter { _ async throws(TransportError) in elsewhere.controller() })
    try await probe.state(
      .unsupported("The controller that was provided is on another event loop: open it on the one that is given."))
    probe.session.close()
  }

  /// The controller is lost while everything is active: one event, and none about earlier requests.
  @Test func resettingAndBack() async throws {
    let room = Room(), (host, peer) = try await room.sensor(try Sensor()), ways = Ways()
    let adapter = room.adapter { loop async throws(TransportError) in await ways.open(room.radio) }
    let probe = try await Probe.poweredOn(adapter)
    probe.send(.scan(services: [], solicitedServices: [], allowsDuplicates: true))
    probe.send(.connect(peer, ConnectOptions(reconnects: true)))
    try await probe.connected(peer)
    try await ways.cut()
    try await probe.wait("resetting") { if case .adapter(.resetting(let why)) = $0, !why.isEmpty { true } else { nil } }
    #expect(probe.session.port(.command, of: peer) == nil)
    try await probe.state(.poweredOn)
    let events = try await probe.history()
    let lost = try #require(events.firstIndex { if case .adapter(.resetting) = $0 { true } else { false } })
    for event in events[(lost + 1)...] {
      guard case .adapter = event else {
        Issue.record("\(event) after the adapter was lost")
        continue
      }
    }
    // And everything is available again.
    #expect(try await probe.errorCode { .readRSSI($0, peer) } == .disconnected)
    probe.send(.connect(peer, ConnectOptions()))
    try await probe.connected(peer)
    withExtendedLifetime(host) {}
  }
  /// If it does not come back, the reason becomes the state.
  @Test func resettingAndGone() async throws {
    let room = Room(), ways = Ways(), gone = TransportError.unplugged(.adapter(3))
    let attempts = Attempts([nil, gone, gone, gone, gone, gone])
    let adapter = room.adapter { loop async throws(TransportError) in
      try attempts.next()
      return await ways.open(room.radio)
    }
    let probe = try await Probe.poweredOn(adapter)
    try await ways.cut()
    try await probe.wait("resetting") { if case .adapter(.resetting) = $0 { true } else { nil } }
    try await probe.state(.unsupported(gone.description))
    try await probe.state(.poweredOn)
  }

  @Test func endsWithItsLastSession() async throws {
    let room = Room(), adapter = room.adapter()
    let first = try await Probe.poweredOn(adapter), second = try await Probe.poweredOn(adapter)
    #expect(try await room.radio.eventLoop.submit { room.radio.controllerCount }.get() == 1)
    first.session.close()
    try await second.waitForEvents()
    #expect(try await room.radio.eventLoop.submit { room.radio.controllerCount }.get() == 1)
    let count = try await first.history().count
    second.session.close()
    second.session.close()
    try await eventually { try await room.radio.eventLoop.submit { room.radio.controllerCount }.get() == 0 }
    // And opens again with the next session, even while it is being closed.
    let third = try await Probe.poweredOn(adapter)
    third.session.close()
    _ = try await Probe.poweredOn(adapter)
    #expect(try await first.history().count == count)
  }
  /// A released session is closed.
  @Test func aReleasedSession() async throws {
    let room = Room(), adapter = room.adapter()
    do { _ = try await Probe.poweredOn(adapter) }
    try await eventually { try await room.radio.eventLoop.submit { room.radio.controllerCount }.get() == 0 }
  }

  @Test func aChoiceHasOneAdapter() {
    let registry = AdapterRegistry()
    let first = registry.adapter(.success(AdapterChoice(spec: .sim)))
    #expect(registry.adapter(.success(AdapterChoice(spec: .sim, trace: "/x"))) === first)
    #expect(registry.adapter(.success(AdapterChoice(spec: .adapter(7)))) !== first)
    first.registration?.leave()
    first.registration?.end()
    #expect(registry.adapter(.success(AdapterChoice(spec: .sim))) === first)
    for _ in 0..<2 { first.registration?.leave() }
    first.registration?.end()
    #expect(registry.adapter(.success(AdapterChoice(spec: .sim))) !== first)
  }

  /// A program that chooses none gets the default adapter, or its error.
  @Test func aSessionOfAWrongChoice() async throws {
    let reader = EventStream(), session = DirectSession(adapter: "bogus", events: reader.queue)
    for await event in reader.events {
      guard case .adapter(.unsupported(let why)) = event else { continue }
      #expect(why.contains("bogus"))
      break
    }
    session.close()
  }

  /// Two on one radio in one process, for embedders.
  @Test func whatTheProgramProvides() async throws {
    let room = Room(), radio = room.radio
    for name in ["provided-left", "provided-right"] {
      DirectSession.provideAdapter(named: name, on: radio.eventLoop) { _ async throws(TransportError) in
        radio.controller()
      }
    }
    let left = AdapterRegistry.shared.adapter("provided-left")
    #expect(AdapterRegistry.shared.adapter("provided-left") === left)
    #expect(AdapterRegistry.shared.adapter("provided-right") !== left)
    let probe = try await Probe.poweredOn(left)
    let other = try await Probe.poweredOn(AdapterRegistry.shared.adapter("provided-right"))
    // By its name, as the facade requests it: the same controller, and so no third one.
    let reader = EventStream(), session = DirectSession(adapter: "provided-left", events: reader.queue)
    for await event in reader.events { if case .adapter(.poweredOn) = event { break } }
    #expect(try await radio.eventLoop.submit { radio.controllerCount }.get() == 2)
    session.close()
    for probe in [probe, other] { probe.session.close() }
  }

  /// Each cause gives the state that a user expects, with its message.
  @Test func causes() {
    func name(_ state: AdapterState) -> String { String("\(state)".prefix { $0 != "(" }) }
    let expected: [(AdapterError, String)] = [
      (.noKernelSupport(release: "6.1"), "unsupported"), (.notLoaded(release: "6.1", isInstalled: true), "unsupported"),
      (.foreignNetwork, "unsupported"), (.notFound(0, present: [], hint: nil), "unsupported"),
      (.notFound(0, present: [], hint: .switchedOff("phy0", isHard: false)), "poweredOff"),
      (.up(0, daemon: true), "poweredOff"), (.up(0, daemon: false), "poweredOff"),
      (.taken(0, candidates: []), "poweredOff"), (.inSetUp(0), "poweredOff"), (.blocked(0, isHard: true), "poweredOff"),
      (.noCapability(program: "x", isWithheld: false), "unauthorized"), (.userNamespace, "unauthorized"),
      (.filtered, "unauthorized"), (.system(0, .ioError), "unsupported"),
    ]
    for (error, state) in expected {
      #expect(name(AdapterState(error)) == state, "\(error)")
      #expect(AdapterState(error).hindrance?.contains(error.cause) == true)
    }
    #expect(AdapterState(.up(0, daemon: true)).hindrance?.contains("--take-down") == false)
    #expect(AdapterState(.up(0, daemon: true)).hindrance?.contains("BINDRUNE_TAKE_DOWN=1") == true)
  }
}

/// The errors of the attempts to open, in order; nil: none, as after the last.
final class Attempts: @unchecked Sendable {
  private let lock = NSLock()
  private var errors: [TransportError?]
  init(_ errors: [TransportError?]) { self.errors = errors }
  func next() throws(TransportError) {
    let error = lock.withLock { errors.isEmpty ? nil : errors.removeFirst() }
    if let error { throw error }
  }
  var left: Int { lock.withLock { errors.count } }
}

/// Transports to controllers that the test can cut.
actor Ways {
  private var last: (any HCITransport)?
  var isOpen: Bool { last != nil }
  func open(_ radio: SimulatedRadio) async -> any HCITransport {
    // The controller is behind a pair of its own, whose far end is closed to cut it.
    let (host, end) = MemoryTransport.pair(on: radio.eventLoop)
    radio.eventLoop.execute { radio.attach(end) }
    last = end
    return host
  }
  func cut() async throws {
    let end = try #require(last)
    try await end.eventLoop.submit { end.close() }.get()
  }
}
