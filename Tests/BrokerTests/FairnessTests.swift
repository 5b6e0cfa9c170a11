import BindruneSimulator
import Foundation
import NIOCore
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// What an app notices of others on its adapter that flood or stall.
@Suite("Fairness", .virtualTime, .hang) struct FairnessTests {
  enum Others: String {
    case none = "alone"
    case sameLink = "another app floods the same central"
    case otherLink = "another app floods a second central"
    case stalled = "another app takes no events of a device that floods it"
  }
  /// Of values that leave one at a time, every 100 ms.
  struct Figure: CustomStringConvertible {
    var values = 0
    var mean = 0.0, greatest = 0.0
    var description: String {
      "\(values) values, after \(decimals(mean)) ms in the mean and \(decimals(greatest)) ms at most"
    }
    private func decimals(_ number: Double) -> String { String(format: "%.1f", number) }
  }

  @Test("An app that floods or stalls costs the others no value, and two connection intervals at most")
  func figures() async throws {
    let alone = try await measure(.none)
    print("fairness: \(Others.none.rawValue): \(alone)")
    #expect(alone.values == Self.count)
    for others in [Others.sameLink, .otherLink, .stalled] {
      let figure = try await measure(others)
      print("fairness: \(others.rawValue): \(figure)")
      #expect(figure.values == Self.count)
      // On the same link the values in the controller's buffers, which nobody can take back, leave first.
      let most = (others == .sameLink ? 2 : 0.5) * Self.interval
      #expect(figure.mean <= alone.mean + most && figure.greatest <= alone.greatest + most)
    }
  }

  private static var count: Int { 40 }
  /// Milliseconds: of links with `ConnectionParameters.balanced`.
  private static var interval: Double { 30 }

  private func measure(_ others: Others) async throws -> Figure {
    var air = AirConfiguration()
    air.collides = false
    let room = Room(air), loop = room.radio.eventLoop, adapter = room.adapter(), recorder = Recorder()
    for number in 1...3 { adapter.register(AppID(rawValue: number), [.central, .peripheral]) }
    let calm = try await Probe.poweredOn(adapter, of: AppID(rawValue: 1)), pulse = try await calm.publishPulse()
    let loud = try await Probe.poweredOn(adapter, of: AppID(rawValue: 2)), flood = try await loud.publishPulse()
    try await calm.advertise("Calm")
    let phone = try await room.host(Database(), observer: recorder)
    let own = try #require(
      try await loop.submit { () -> PeerAddress? in adapter.host?.assumeIsolated { $0.ownAddress } }.get())
    func subscribe(_ host: BluetoothHost, _ handles: [AttributeHandle]) async throws -> [Any] {
      let link = try await host.connect(to: own, .balanced)
      _ = try await link.discover()
      var held: [Any] = [link]
      for handle in handles { held.append(try await link.subscribe(to: try await link.characteristic(handle))) }
      return held
    }
    var held = try await subscribe(
      phone, others == .sameLink ? [pulse.measurement, flood.measurement] : [pulse.measurement])
    let peer = try await calm.subscribed(to: pulse.measurement).central
    var floods: [RepeatedTask] = []
    switch others {
    case .none: break
    case .sameLink:
      try await loud.subscribed(to: flood.measurement)
      floods.append(Self.flood(loud, peer, flood.measurement, on: loop))
    case .otherLink:
      let second = try await room.host(Database())
      held += try await subscribe(second, [flood.measurement])
      held.append(second)
      floods.append(
        Self.flood(loud, try await loud.subscribed(to: flood.measurement).central, flood.measurement, on: loop))
    case .stalled:
      let far = room.adapter(), device = try await Probe.poweredOn(far), source = try await device.publishPulse()
      try await device.advertise("Device")
      let address = try #require(
        try await loop.submit { () -> PeerAddress? in far.host?.assumeIsolated { $0.ownAddress } }.get())
      let stalled = try await Probe.poweredOn(adapter, of: AppID(rawValue: 3)), id = UUID(PeerID(address))
      stalled.send(.connect(id, ConnectOptions()))
      try await stalled.connected(id)
      try await stalled.ask { .discoverServices($0, id, nil) }
      try await stalled.ask { .discoverCharacteristics($0, id, source.service.handle, nil) }
      try await stalled.ask { .setNotifying($0, id, source.measurement, true) }
      let central = try await device.subscribed(to: source.measurement).central
      try await loop.submit { stalled.isStalled = true }.get()
      floods.append(Self.flood(device, central, source.measurement, on: loop))
      held += [device, stalled] as [Any]
    }
    let figure = try await recorder.measure(calm, peer, pulse.measurement, Self.count, on: loop)
    for flood in floods { flood.cancel() }
    withExtendedLifetime(held) {}
    return figure
  }
  /// As many values of 200 octets as there is room for, at every moment.
  private static func flood(_ probe: Probe, _ peer: UUID, _ handle: AttributeHandle, on loop: any EventLoop)
    -> RepeatedTask
  {
    loop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(1)) { _ in
      guard let port = probe.session.port(.notification, of: peer) else { return }
      while port.offer([UInt8](repeating: 0xFF, count: 200), to: handle) {}
    }
  }
}

/// When the values of a session arrive at a central.
private final class Recorder: HostObserver, @unchecked Sendable {
  // Sendable: everything is on the event loop.
  private var sent: [NIODeadline] = [], delays: [Double] = []
  private var handle = AttributeHandle(), count = 0
  private var isDone: EventLoopPromise<Void>?

  func host(_ host: isolated BluetoothHost, did event: HostEvent) {}
  func host(
    _ host: isolated BluetoothHost, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool,
    on link: LinkID
  ) {
    guard handle == self.handle, !isIndication, value.count == 1, Int(value[0]) == delays.count else { return }
    let now = host.transport.eventLoop.now
    delays.append(Double((now - sent[delays.count]).nanoseconds) / 1e6)
    if delays.count == count { isDone?.succeed() }
  }

  func measure(
    _ probe: Probe, _ peer: UUID, _ handle: AttributeHandle, _ count: Int, on loop: any EventLoop
  ) async throws -> FairnessTests.Figure {
    try await loop.flatSubmit { [self] () -> EventLoopFuture<Void> in
      let promise = loop.makePromise(of: Void.self)
      (self.handle, self.count, isDone) = (handle, count, promise)
      // Not in step with the connection events.
      loop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(103)) { [self] task in
        guard sent.count < count else { return task.cancel() }
        let number = UInt8(sent.count)
        sent.append(loop.now)
        #expect(probe.session.port(.notification, of: peer)?.offer([number], to: handle) == true)
      }
      return promise.futureResult
    }.get()
    return try await loop.submit { [self] in
      .init(values: delays.count, mean: delays.reduce(0, +) / Double(delays.count), greatest: delays.max() ?? 0)
    }.get()
  }
}
