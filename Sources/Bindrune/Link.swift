import ATT
import BindruneWire
import GAP
import GATT
import HCI

/// A link to a peer, and its GATT client: a value to pass around; it does not keep the link up.
///
///     let link = try await host.connect(to: advertisement.peer)
///     let database = try await link.discoverAll()
///     for try await value in link.notifications(of: measurement) { … }
public struct Link: Sendable, Identifiable {
  public let id: LinkID
  public let peer: PeerAddress
  public let role: LinkRole
  public let host: Host

  /// Everything the server shows: services, includes, characteristics, descriptors. Vol 3, Part G, §4.4 … §4.7.
  public func discoverAll() async throws(BluetoothError) -> RemoteDatabase {
    _ = try await procedure { $0.discoverAll($1) }
    guard let database = await host.remoteDatabase(of: id) else { throw .linkIsDown }
    return database
  }
  /// The whole value, however long: Read, then Read Blob. Vol 3, Part G, §4.8.1, §4.8.3.
  public func read(_ handle: AttributeHandle) async throws(BluetoothError) -> [UInt8] {
    guard case .value(let value) = try await procedure({ $0.readLong($1, handle) }) else { return [] }
    return value
  }
  /// Writes and waits for the answer; more than MTU − 3 octets travel as a long write. Vol 3, Part G, §4.9.3, §4.9.4.
  public func write(_ value: [UInt8], to handle: AttributeHandle) async throws(BluetoothError) {
    _ = try await procedure { $0.write($1, handle, value.span) }
  }
  /// Write Without Response. False: the queue is full; nothing was sent. Vol 3, Part G, §4.9.1.
  @discardableResult
  public func writeWithoutResponse(_ value: [UInt8], to handle: AttributeHandle) async throws(BluetoothError) -> Bool {
    try await host.write(command: value, to: handle, on: id)
  }
  /// Subscribes when iteration begins, unsubscribes when it ends; indications where the server has no notifications.
  /// 1,024 values may wait for the reader; after that the sequence ends with `.overflow`. A cancelled task ends it.
  public func notifications(of characteristic: RemoteCharacteristic) -> NotificationSequence {
    NotificationSequence(link: self, characteristic: characteristic)
  }
  /// Takes the link down and returns when it is.
  public func disconnect() async throws(BluetoothError) {
    let id = id
    _ = try await host.request { core, request, now in core.disconnect(id, id: request, now: now) }
  }
  /// Asks for other connection parameters and returns at once: a central sets them, a peripheral asks the central over
  /// L2CAP, which may refuse. Vol 3, Part A, §4.20.
  public func updateParameters(_ parameters: ConnectionParameters) async {
    await host.updateParameters(parameters, of: id)
  }
  /// ATT_MTU in force, 23 … 517.
  public var mtu: Int { get async { await host.mtu(of: id) ?? 23 } }

  /// A port for one producer of notifications (as a server) or of writes without response (as a client).
  public func sendPort(
    _ kind: SendPort.Kind, to handle: AttributeHandle, capacity: Int = 16 * 1024
  ) async throws(BluetoothError) -> SendPort {
    try await host.sendPort(kind, to: handle, on: id, capacity: capacity)
  }

  private func procedure(
    _ start: @Sendable (inout Client, RequestID) -> Void
  ) async throws(BluetoothError) -> RequestOutcome {
    let id = id
    return try await host.request { core, request, _ in core.withClient(of: id, id: request) { start(&$0, request) } }
  }
}
