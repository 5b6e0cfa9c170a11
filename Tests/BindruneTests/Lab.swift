import Bindrune
import BindruneTransport
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// The database of the peripheral in these tests: one attribute of each kind.
struct Belt {
  let database: Database
  let short: AttributeHandle, long: AttributeHandle, dynamic: AttributeHandle
  let notifying: AttributeHandle, indicating: AttributeHandle
  static let longValue = (0..<512).map { UInt8(truncatingIfNeeded: $0 &* 7) }

  init() throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "Belt")
    (short, long, dynamic, notifying, indicating) = builder.service("180D") { service in
      (
        service.characteristic("2A38", [.read, .write, .writeWithoutResponse], value: [2]).value,
        service.characteristic("2A39", [.read, .write], value: .stored(Self.longValue)).value,
        service.characteristic("2A9F", [.read, .write], value: .dynamic).value,
        service.characteristic("2A37", .notify).value,
        service.characteristic("2A05", .indicate).value
      )
    }
    database = try builder.build()
  }
}

/// Hosts on one radio without loss or delay.
final class Lab: Sendable {
  let radio: SimulatedRadio
  /// In virtual time, without `eventLoop`. `packetsPerEvent`: data leaves in connection events, so many packets in
  /// each; nil: at once.
  init(on eventLoop: (any EventLoop)? = nil, packetsPerEvent: Int? = nil) {
    var configuration = AirConfiguration.ideal
    configuration.packetsPerEvent = packetsPerEvent
    configuration.isInstant = packetsPerEvent == nil
    radio = SimulatedRadio(on: eventLoop ?? VirtualLoop.current, configuration: configuration)
  }
  /// In real time, which sockets need.
  static func overSockets() -> Lab { Lab(on: RealTime.nextLoop()) }

  func host(
    _ database: Database = Database(), _ configuration: HostConfiguration = HostConfiguration(),
    observer: (any HostObserver)? = nil
  ) async throws -> BluetoothHost {
    let host = BluetoothHost(radio.controller(), configuration: configuration, database: database, observer: observer)
    try await host.start()
    return host
  }
  /// A host whose packets pass through `Relay`.
  func relayedHost(
    _ database: Database = Database(), observer: (any HostObserver)? = nil
  ) async throws -> (BluetoothHost, Relay) {
    let (host, relay) = try await unstartedHost(database, observer: observer)
    try await host.start()
    return (host, relay)
  }
  func unstartedHost(
    _ database: Database = Database(), observer: (any HostObserver)? = nil
  ) async throws -> (BluetoothHost, Relay) {
    let radio = radio
    let (transport, relay) = try await radio.eventLoop.submit {
      let (host, end) = MemoryTransport.pair(on: radio.eventLoop)
      return (host, Relay(end, radio.controller()))
    }.get()
    return (BluetoothHost(transport, database: database, observer: observer), relay)
  }
  /// A host over TCP, by a relay: in a lab over sockets.
  func streamedHost(_ database: Database = Database()) async throws -> (BluetoothHost, Relay) {
    let radio = radio
    let relays = AsyncStream.makeStream(of: Relay.self)
    let server = try await H4Server.listen(on: .tcp(host: "127.0.0.1", port: 0), loop: radio.eventLoop) { stream in
      relays.continuation.yield(Relay(stream, radio.controller()))
    }
    let stream = try await H4Stream.connect(to: server.address, on: RealTime.nextLoop())
    let host = BluetoothHost(stream, database: database)
    try await host.start()
    await server.close()
    for await relay in relays.stream { return (host, relay) }
    throw CancellationError()
  }
  /// Central, peripheral, and the central's link.
  func linked(_ belt: Belt) async throws -> (central: BluetoothHost, peripheral: BluetoothHost, link: Link) {
    let (central, peripheral) = (try await host(), try await host(belt.database))
    try await peripheral.advertiseFast()
    return (central, peripheral, try await central.connect(to: peripheral.ownAddress, .fast))
  }
  func controllerCount() async throws -> Int { try await radio.eventLoop.submit { self.radio.controllerCount }.get() }
}

extension BluetoothHost {
  func advertiseFast(_ name: String = "Belt") async throws {
    try await advertise(
      AdvertisingData(localName: name, serviceUUIDs: ["180D"]),
      AdvertisingParameters(interval: .every(.milliseconds(20))))
  }
  func find(_ name: String) async throws -> Advertisement {
    for try await advertisement in scan() where advertisement.name == name { return advertisement }
    throw BluetoothError(.cancelled, "the scan ended")
  }
}
extension Link {
  func discovered(_ uuid: BluetoothUUID) async throws -> RemoteCharacteristic {
    try #require(try await discoverAll().characteristic(uuid))
  }
}

/// Sits between a host and its controller: shows what the host sends, and simulates faults of controllers.
final class Relay: HCIReceiver, @unchecked Sendable {
  // Everything happens on the radio's loop.
  private let host: any HCITransport
  private let controller: any HCITransport
  private let back: Back
  private var isSilent = false
  let commands: AsyncStream<[UInt8]>
  private let seen: AsyncStream<[UInt8]>.Continuation

  /// On the loop.
  init(_ host: any HCITransport, _ controller: any HCITransport) {
    (self.host, self.controller) = (host, controller)
    (commands, seen) = AsyncStream.makeStream()
    back = Back(host)
    controller.start(back)
    host.start(self)
  }
  func received(_ packet: Span<UInt8>) {
    if packet[0] == 0x01 { seen.yield(packet.indices.map { packet[$0] }) }
    if !isSilent { controller.send(packet) }
  }
  func receivedAll() { controller.flush() }
  func writable() {}
  func failed(_ error: TransportError) {
    seen.finish()
    controller.close()
  }

  private final class Back: HCIReceiver, @unchecked Sendable {
    let host: any HCITransport
    var onPacket: (([UInt8]) -> Void)?
    init(_ host: any HCITransport) { self.host = host }
    func received(_ packet: Span<UInt8>) {
      onPacket?(packet.indices.map { packet[$0] })
      host.send(packet)
    }
    func receivedAll() { host.flush() }
    func writable() {}
    func failed(_ error: TransportError) { host.close() }
  }

  func fromController(_ text: String) async throws {
    try await onLoop {
      $0.host.send(octets(text).span)
      $0.host.flush()
    }
  }
  /// From now on passes every packet from the controller to the host to `body`.
  func watch(_ body: @escaping @Sendable ([UInt8]) -> Void) async throws {
    try await onLoop { $0.back.onPacket = body }
  }
  func fallSilent() async throws { try await onLoop { $0.isSilent = true } }
  func close() async throws {
    try await onLoop {
      $0.host.close()
      $0.controller.close()
    }
  }
  private func onLoop(_ body: @escaping @Sendable (Relay) -> Void) async throws {
    try await host.eventLoop.submit { body(self) }.get()
  }
  /// Waits until the host sends a command that begins with these octets.
  func command(_ text: String) async {
    for await command in commands where command.starts(with: octets(text)) { return }
    Issue.record("the host never sent \(text)")
  }
}

/// The code of the error that ends `body`.
func errorCode(
  at location: SourceLocation = #_sourceLocation, _ body: @escaping @Sendable () async throws(BluetoothError) -> Void
) async throws -> BluetoothError.Code? {
  try await within(at: location) {
    do throws(BluetoothError) { try await body() } catch { return error.code }
    return nil
  }
}
