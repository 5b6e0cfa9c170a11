import ATT
import BindruneWire
import GAP
import GATT
import HCI

/// What waits on one link, above the core.
struct LinkState {
  var values: [AttributeHandle: [Mailbox<ReceivedValue>]] = [:]
  var ports: [SendPort] = []
  var confirmations: [AttributeHandle: CheckedContinuation<Result<Void, BluetoothError>, Never>] = [:]

  /// The link is gone; called once, after the state has left `Host.links`.
  func end(_ error: BluetoothError) {
    for mailbox in values.values.joined() { mailbox.finish(error) }
    for port in ports { port.close(error) }
    for confirmation in confirmations.values { confirmation.resume(returning: .failure(error)) }
  }
  func mtuChanged(_ mtu: Int) {
    for port in ports { port.mtuChanged(mtu) }
  }
  mutating func confirmed(_ handle: AttributeHandle) {
    confirmations.removeValue(forKey: handle)?.resume(returning: .success(()))
  }
}

/// A notification, or an indication that has been confirmed.
public struct ReceivedValue: Sendable, Hashable {
  public var handle: AttributeHandle
  public var value: [UInt8]
  public var isIndication: Bool
}

/// The values of one characteristic, in order and without gaps: see `Link.notifications(of:)`.
public struct NotificationSequence: AsyncSequence, Sendable {
  public typealias Element = ReceivedValue
  public typealias Failure = BluetoothError
  let link: Link
  let characteristic: RemoteCharacteristic

  public func makeAsyncIterator() -> Iterator { Iterator(sequence: self) }

  public struct Iterator: AsyncIteratorProtocol {
    let sequence: NotificationSequence
    private var subscription: SubscriptionHandle?
    init(sequence: NotificationSequence) { self.sequence = sequence }

    public mutating func next() async throws(BluetoothError) -> ReceivedValue? { try await next(isolation: nil) }
    public mutating func next(isolation actor: isolated (any Actor)?) async throws(BluetoothError) -> ReceivedValue? {
      if subscription == nil {
        subscription = try await sequence.link.host.subscribe(to: sequence.characteristic, on: sequence.link.id)
      }
      guard let subscription else { return nil }
      return try await subscription.mailbox.take().get()
    }
  }
}

/// Unsubscribes when the last iterator lets go of it.
final class SubscriptionHandle: Sendable {
  let mailbox: Mailbox<ReceivedValue>
  private let host: Host
  private let link: LinkID
  private let characteristic: RemoteCharacteristic
  init(mailbox: Mailbox<ReceivedValue>, host: Host, link: LinkID, characteristic: RemoteCharacteristic) {
    self.mailbox = mailbox
    self.host = host
    self.link = link
    self.characteristic = characteristic
  }
  deinit {
    host.onEventLoop { [mailbox, link, characteristic] host in host.unsubscribe(mailbox, characteristic, on: link) }
  }
}

extension Host {
  // MARK: Central

  /// Connects; waits for as long as it takes, unless the task is cancelled. Then nothing is left behind.
  public func connect(
    to peer: PeerAddress, _ parameters: ConnectionParameters = .balanced
  ) async throws(BluetoothError) -> Link {
    let outcome = try await request { core, id, now in core.connect(to: peer, parameters, id: id, now: now) }
    guard case .linked(let id) = outcome else { throw BluetoothError(.connectionFailed, "the link did not come up") }
    return Link(id: id, peer: peer, role: .central, host: self)
  }

  func remoteDatabase(of link: LinkID) -> RemoteDatabase? { core.remoteDatabase(of: link) }
  func updateParameters(_ parameters: ConnectionParameters, of link: LinkID) {
    perform { core, now in core.updateParameters(link, parameters, now: now) }
  }
  func mtu(of link: LinkID) -> Int? { core.mtu(of: link) }

  func write(command value: [UInt8], to handle: AttributeHandle, on link: LinkID) throws(BluetoothError) -> Bool {
    guard let mtu = core.mtu(of: link) else { throw BluetoothError(.disconnected, "the link is down") }
    guard value.count <= min(mtu - 3, 512) else {
      throw BluetoothError(
        .invalidArgument,
        "\(value.count) octets do not fit one write without response: \(min(mtu - 3, 512)) do; use write")
    }
    return perform { core, _ in core.write(command: value.span, to: handle, on: link).isAccepted }
  }

  func subscribe(
    to characteristic: RemoteCharacteristic, on link: LinkID
  ) async throws(BluetoothError) -> SubscriptionHandle {
    guard links[link] != nil else { throw BluetoothError(.disconnected, "the link is down") }
    let mailbox = Mailbox<ReceivedValue>(capacity: 1024, overflow: .end)
    // Before the CCCD is written: the first value may come before the answer does.
    links[link]?.values[characteristic.valueHandle, default: []].append(mailbox)
    let handle = SubscriptionHandle(mailbox: mailbox, host: self, link: link, characteristic: characteristic)
    _ = try await request { core, id, _ in
      core.withClient(of: link, id: id) {
        $0.subscribe(
          id, characteristic.valueHandle, characteristic.properties.contains(.notify) ? .notification : .indication)
      }
    }
    return handle
  }
  func unsubscribe(_ mailbox: Mailbox<ReceivedValue>, _ characteristic: RemoteCharacteristic, on link: LinkID) {
    mailbox.finish()
    let handle = characteristic.valueHandle
    links[link]?.values[handle]?.removeAll { $0 === mailbox }
    guard links[link] != nil, links[link]?.values[handle]?.isEmpty != false else { return }
    links[link]?.values[handle] = nil
    lastRequest += 1
    let id = RequestID(rawValue: lastRequest)
    perform { core, _ in core.withClient(of: link, id: id) { $0.unsubscribe(id, characteristic.valueHandle) } }
  }

  // MARK: Ports

  func sendPort(
    _ kind: SendPort.Kind, to handle: AttributeHandle, on link: LinkID, capacity: Int
  ) throws(BluetoothError) -> SendPort {
    guard links[link] != nil, let mtu = core.mtu(of: link) else {
      throw BluetoothError(.disconnected, "the link is down")
    }
    let port = SendPort(link: link, handle: handle, kind: kind, capacity: capacity, mtu: mtu) { [weak self] port in
      self?.onEventLoop { host in host.drain(port) }
    }
    links[link]?.ports.append(port)
    return port
  }
  func drain(_ port: SendPort) {
    perform { core, _ in
      _ = port.drain { value in
        switch port.kind {
        // A client that has unsubscribed meanwhile gets nothing: the value is gone, as it would be on the air.
        case .notification: core.notify(value.span, of: port.handle, on: port.link) != .full
        case .command: core.write(command: value.span, to: port.handle, on: port.link) != .full
        }
      }
    }
  }
  func drainPorts(of link: LinkID) {
    for port in links[link]?.ports ?? [] { drain(port) }
  }
}
