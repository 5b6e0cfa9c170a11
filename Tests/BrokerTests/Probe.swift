import Foundation
import NIOCore
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

// Foundation and the transport have types with these names.
typealias Adapter = BindruneBroker.Adapter

/// A session that records its events.
final class Probe: EventQueueReader, @unchecked Sendable {
  // Sendable: everything happens on the adapter's event loop, or, of operations, in the one task of the test.
  let adapter: Adapter
  private(set) var session: DirectSession!
  /// All of it, in order.
  private(set) var log: [BrokerEvent] = []
  /// Events that no test has taken yet.
  private var fresh: [BrokerEvent] = []
  private var check: (() -> Void)?
  private var last: UInt64 = 0
  /// From now on its app takes no events: they wait in the queue, or are dropped by its bounds.
  var isStalled = false

  init(_ adapter: Adapter, of app: AppID = .own, as identity: ManagerIdentity? = nil) {
    self.adapter = adapter
    let events = EventQueue()
    events.reader = self
    session = DirectSession(on: adapter, of: app, as: identity, events: events)
  }
  func eventsWait(in queue: EventQueue) {
    if isStalled { return }
    for case let event? in queue.takeAll() { hear(event) }
  }
  func eventsDropped(_ count: Int, from queue: EventQueue) {
    if !isStalled { Issue.record("\(count) events were dropped") }
  }
  /// A session on an existing adapter.
  static func poweredOn(
    _ adapter: Adapter, of app: AppID = .own, as identity: ManagerIdentity? = nil,
    at location: SourceLocation = #_sourceLocation
  ) async throws -> Probe {
    let probe = Probe(adapter, of: app, as: identity)
    try await probe.state(.poweredOn, at: location)
    return probe
  }
  private func hear(_ event: BrokerEvent) {
    // Tests wait for values one by one.
    if case .values(let peer, let handle, let values) = event, values.count > 1 {
      for value in values { hear(.values(peer, handle, [value])) }
      return
    }
    log.append(event)
    fresh.append(event)
    check?()
  }

  func send(_ request: BrokerRequest.Central) { session.send(request) }
  func send(_ request: BrokerRequest.Peripheral) { session.send(request) }

  /// Takes events until `pick` returns a value; only a hang ends the wait.
  @discardableResult
  func wait<Result: Sendable>(
    _ what: String, at location: SourceLocation = #_sourceLocation,
    _ pick: @escaping @Sendable (BrokerEvent) -> Result?
  ) async throws -> Result {
    let loop = adapter.eventLoop
    return try await loop.flatSubmit { () -> EventLoopFuture<Result> in
      let promise = loop.makePromise(of: Result.self)
      let limit = loop.scheduleTask(in: .seconds(Int64(Hang.seconds))) {
        self.check = nil
        Issue.record("no \(what), only \(self.fresh)", sourceLocation: location)
        promise.fail(CancellationError())
      }
      self.check = {
        for (index, event) in self.fresh.enumerated() {
          guard let result = pick(event) else { continue }
          self.fresh.remove(at: index)
          self.check = nil
          limit.cancel()
          return promise.succeed(result)
        }
      }
      self.check?()
      return promise.futureResult
    }.get()
  }
  func state(_ state: AdapterState, at location: SourceLocation = #_sourceLocation) async throws {
    try await wait("\(state)", at: location) { if case .adapter(state) = $0 { true } else { nil } }
  }
  @discardableResult
  func connected(_ peer: UUID, at location: SourceLocation = #_sourceLocation) async throws -> Int {
    try await wait("connection", at: location) {
      if case .connected(peer, _, let longest) = $0 { longest } else { nil }
    }
  }
  struct End: Sendable {
    let error: BluetoothError?
    let isReconnecting: Bool
    let seconds: Double
  }
  @discardableResult
  func disconnected(_ peer: UUID, at location: SourceLocation = #_sourceLocation) async throws -> End {
    try await wait("disconnection", at: location) {
      if case .disconnected(peer, let error, let isReconnecting, let seconds) = $0 {
        End(error: error, isReconnecting: isReconnecting, seconds: seconds)
      } else {
        nil
      }
    }
  }
  func value(of handle: AttributeHandle, at location: SourceLocation = #_sourceLocation) async throws -> [UInt8] {
    try await wait("value", at: location) {
      if case .values(_, handle, let data) = $0 { data.map { [UInt8]($0) }.first } else { nil }
    }
  }

  func newID() -> OperationID {
    last += 1
    return OperationID(rawValue: last)
  }
  func completion(
    of id: OperationID, at location: SourceLocation = #_sourceLocation
  ) async throws -> Result<BrokerAnswer, BluetoothError> {
    try await wait("answer", at: location) { if case .completed(id, let result) = $0 { result } else { nil } }
  }
  @discardableResult
  func ask(
    at location: SourceLocation = #_sourceLocation, _ request: (OperationID) -> BrokerRequest.Central
  ) async throws -> BrokerAnswer {
    try await result(of: { .central(request($0)) }, at: location).get()
  }
  @discardableResult
  func ask(
    at location: SourceLocation = #_sourceLocation, _ request: (OperationID) -> BrokerRequest.Peripheral
  ) async throws -> BrokerAnswer {
    try await result(of: { .peripheral(request($0)) }, at: location).get()
  }
  func errorCode(
    at location: SourceLocation = #_sourceLocation, _ request: (OperationID) -> BrokerRequest.Central
  ) async throws -> BluetoothError.Code? {
    try await result(of: { .central(request($0)) }, at: location).errorCode
  }
  func errorCode(
    at location: SourceLocation = #_sourceLocation, _ request: (OperationID) -> BrokerRequest.Peripheral
  ) async throws -> BluetoothError.Code? {
    try await result(of: { .peripheral(request($0)) }, at: location).errorCode
  }
  private func result(
    of request: (OperationID) -> BrokerRequest, at location: SourceLocation
  ) async throws -> Result<BrokerAnswer, BluetoothError> {
    let id = newID()
    session.send(request(id))
    return try await completion(of: id, at: location)
  }

  /// Waits for events on their way to the session, by a round trip through the adapter.
  func waitForEvents() async throws {
    let id = newID()
    send(.readRSSI(id, UUID()))
    _ = try await completion(of: id)
  }
  /// Everything so far.
  func history() async throws -> [BrokerEvent] { try await adapter.eventLoop.submit { self.log }.get() }
}

/// A session's events, for a test that only waits for them.
final class EventStream: EventQueueReader {
  let queue = EventQueue(), events: AsyncStream<BrokerEvent>
  private let continuation: AsyncStream<BrokerEvent>.Continuation

  init() {
    (events, continuation) = AsyncStream.makeStream()
    queue.reader = self
  }
  func eventsWait(in queue: EventQueue) { for case let event? in queue.takeAll() { continuation.yield(event) } }
  func eventsDropped(_ count: Int, from queue: EventQueue) { Issue.record("\(count) events were dropped") }
}

extension Result<BrokerAnswer, BluetoothError> {
  fileprivate var errorCode: BluetoothError.Code? { if case .failure(let error) = self { error.code } else { nil } }
}
extension [BrokerEvent] {
  var states: [AdapterState] { compactMap { if case .adapter(let state) = $0 { state } else { nil } } }
}

/// Adapters and foreign hosts on one radio, by default without loss, in the test's own time.
struct Room: Sendable {
  let radio: SimulatedRadio
  init(_ air: AirConfiguration = .ideal) { radio = SimulatedRadio(on: VirtualLoop.current, configuration: air) }

  /// With short delays; `open`: another transport to the controller.
  func adapter(
    _ patience: AdapterPatience = .short,
    open: (@Sendable (any EventLoop) async throws(TransportError) -> any HCITransport)? = nil
  ) -> Adapter {
    let radio = radio
    let onRadio: @Sendable (any EventLoop) async throws(TransportError) -> any HCITransport = {
      _ async throws(TransportError) in radio.controller()
    }
    return Adapter(on: radio.eventLoop, patience: patience, logger: .silent, open: open ?? onRadio)
  }
  func host(
    _ database: Database, _ configuration: HostConfiguration = HostConfiguration(),
    observer: (any HostObserver)? = nil
  ) async throws -> BluetoothHost {
    let host = BluetoothHost(radio.controller(), configuration: configuration, database: database, observer: observer)
    try await host.start()
    return host
  }
  /// A peripheral with a `Sensor`, advertising, and its identifier.
  func sensor(_ sensor: Sensor, name: String = "Sensor") async throws -> (BluetoothHost, UUID) {
    let host = try await host(sensor.database)
    try await host.advertiseAsSensor(name)
    return (host, UUID(PeerID(await host.ownAddress)))
  }
}
extension Adapter {
  /// Isolated to the host, if one runs.
  func withHost(_ body: @Sendable (isolated BluetoothHost) -> Void) { host?.assumeIsolated { body($0) } }
}
extension AdapterPatience {
  static var short: AdapterPatience {
    AdapterPatience(
      first: .milliseconds(1), longest: .milliseconds(8), establishing: .milliseconds(50), seeking: .milliseconds(1))
  }
}
extension BluetoothHost {
  func advertiseAsSensor(_ name: String = "Sensor") async throws {
    var parameters = AdvertisingParameters(interval: .every(.milliseconds(20)))
    parameters.restartsAfterConnection = true
    try await advertise(AdvertisingData(localName: name, serviceUUIDs: ["180D"]), parameters)
  }
}

extension BluetoothHost {
  func disconnectAll() { for link in links { begin(.disconnect(link.id)) } }
}

/// A database with one characteristic of each kind.
struct Sensor: Sendable {
  let database: Database
  let service: AttributeHandle
  let measurement: AttributeHandle, location: AttributeHandle, control: AttributeHandle
  let long: AttributeHandle, silent: AttributeHandle
  static let longValue = (0..<512).map { UInt8(truncatingIfNeeded: $0 &* 7) }

  init(name: String = "Belt") throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: name)
    builder.genericAttribute()
    var found: [AttributeHandle] = []
    builder.service("180D") { service in
      found.append(service.characteristic("2A37", .notify).value)
      found.append(service.characteristic("2A38", [.read, .write, .writeWithoutResponse], value: [2]).value)
      found.append(service.characteristic("2A39", .write, value: .stored([0])).value)
    }
    builder.service("A4E649F4-4BE5-11E5-885D-FEFF819CDC9F") { service in
      found.append(service.characteristic("2A9F", [.read, .write], value: .stored(Self.longValue)).value)
      found.append(service.characteristic("2A19", .read, value: .stored([50])).value)
    }
    database = try builder.build()
    service = AttributeHandle(rawValue: found[0].rawValue - 2)
    (measurement, location, control, long, silent) = (found[0], found[1], found[2], found[3], found[4])
  }
}
