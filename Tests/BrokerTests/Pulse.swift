import BindruneBroker
import Foundation
import Testing

@testable import BindruneBroker

/// The service of these tests' peripherals: one characteristic of each kind.
struct Pulse {
  static let description = ServiceDescription(
    uuid: "180D",
    characteristics: [
      .init(
        uuid: "2A37", properties: [.notify, .indicate], permissions: .none,
        descriptors: [.init(uuid: "2901", value: Data("beats".utf8)), .init(uuid: "2904", value: Data(format))]),
      .init(uuid: "2A38", properties: .read, permissions: .readable, value: Data([2])),
      .init(uuid: "2A39", properties: [.read, .write], permissions: .open),
      .init(uuid: "2A9F", properties: .writeWithoutResponse, permissions: .writable),
      .init(uuid: "2A05", properties: .indicate, permissions: .none),
    ])
  /// An unsigned 8-bit number of beats a minute. Vol 3, Part G, §3.3.3.5; Assigned Numbers, §2.4.1, §3.5.
  static let format: [UInt8] = [0x04, 0x00, 0xAF, 0x27, 0x01, 0x00, 0x00]

  let service: PublishedService
  var measurement: AttributeHandle { service.characteristics[0].value }
  var location: AttributeHandle { service.characteristics[1].value }
  var control: AttributeHandle { service.characteristics[2].value }
  var index: AttributeHandle { service.characteristics[3].value }
  var alarm: AttributeHandle { service.characteristics[4].value }
}

extension Probe {
  @discardableResult
  func publish(
    _ description: ServiceDescription, at location: SourceLocation = #_sourceLocation
  ) async throws -> PublishedService {
    guard case .published(let service) = try await ask(at: location, { .addService($0, description) }) else {
      throw CancellationError()
    }
    return service
  }
  func publishPulse(at location: SourceLocation = #_sourceLocation) async throws -> Pulse {
    Pulse(service: try await publish(Pulse.description, at: location))
  }
  func advertise(_ name: String, at location: SourceLocation = #_sourceLocation) async throws {
    try await ask(at: location) { .startAdvertising($0, localName: name, services: ["180D"]) }
  }

  struct Read: Sendable {
    let id: ServerRequest, central: UUID, handle: AttributeHandle, offset: Int
  }
  func readRequest(at location: SourceLocation = #_sourceLocation) async throws -> Read {
    try await wait("read", at: location) {
      guard case .readRequested(let id, let central, let handle, let offset, _) = $0 else { return nil }
      return Read(id: id, central: central, handle: handle, offset: offset)
    }
  }
  func writeRequest(
    at location: SourceLocation = #_sourceLocation
  ) async throws -> (id: ServerRequest, central: UUID, writes: [ServerWrite]) {
    try await wait("write", at: location) {
      if case .writeRequested(let id, let central, let writes, _) = $0 { (id, central, writes) } else { nil }
    }
  }
  @discardableResult
  func subscribed(
    to handle: AttributeHandle, at location: SourceLocation = #_sourceLocation
  ) async throws -> (central: UUID, longest: Int) {
    try await wait("subscription", at: location) {
      if case .subscribed(let central, handle, let longest) = $0 { (central, longest) } else { nil }
    }
  }
  func unsubscribed(
    from handle: AttributeHandle, at location: SourceLocation = #_sourceLocation
  ) async throws {
    try await wait("end of a subscription", at: location) {
      if case .unsubscribed(_, handle) = $0 { true } else { nil }
    }
  }
}

/// An adapter and a foreign central.
struct Ward {
  let room = Room()
  let adapter: Adapter
  let central: BluetoothHost
  init(_ adapter: (Room) -> Adapter = { $0.adapter() }) async throws {
    self.adapter = adapter(room)
    central = try await room.host(Database())
  }
  func session(at location: SourceLocation = #_sourceLocation) async throws -> Probe {
    try await Probe.poweredOn(adapter, at: location)
  }
  /// The address that centrals see.
  func address() async throws -> PeerAddress {
    let adapter = adapter
    return try #require(
      try await adapter.eventLoop.submit { () -> PeerAddress? in
        adapter.host?.assumeIsolated { $0.ownAddress }
      }.get())
  }
  /// The central's link to a session that advertises.
  func link() async throws -> Link { try await central.connect(to: try await address(), .fast) }
  /// A session that has published a `Pulse` and advertises, and the central's link, after a full discovery.
  func linked() async throws -> (session: Probe, pulse: Pulse, link: Link) {
    let session = try await session()
    let pulse = try await session.publishPulse()
    try await session.advertise("Pulse")
    let link = try await link()
    _ = try await link.discover()
    return (session, pulse, link)
  }
}

extension Link {
  func characteristic(_ value: AttributeHandle) async throws -> RemoteCharacteristic {
    try #require(await database.characteristics.first { $0.valueHandle == value })
  }
  /// The server's answer.
  func attError(_ body: (Link) async throws(BluetoothError) -> Void) async -> ATTError? {
    do throws(BluetoothError) { try await body(self) } catch { return error.attError }
    return nil
  }
}
