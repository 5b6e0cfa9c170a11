import ATT
import BindruneWire
import DequeModule
import GAP
import GATT
import HCI

/// What waits on one link, above the core.
struct LinkState {
  var values: [AttributeHandle: [Mailbox<ReceivedValue>]] = [:]
  /// The one indication that may be outstanding.
  let confirmation = Waiters()
  /// The ports with values to send, in turn: until they have sent them they live, even if nobody else holds them.
  var sending = Deque<SendPort>()
  /// All ports that somebody holds.
  private var ports: [WeakPort] = []
  private struct WeakPort { weak var port: SendPort? }

  mutating func add(_ port: SendPort) {
    ports.removeAll { $0.port == nil }
    ports.append(WeakPort(port: port))
  }
  func mtuChanged(_ mtu: Int) {
    for entry in ports { entry.port?.mtuChanged(mtu) }
  }
  /// The link is gone; called once, after the state has left `Host.links`.
  func end(_ error: BluetoothError) {
    for mailbox in values.values.joined() { mailbox.finish(error) }
    for entry in ports { entry.port?.close(error) }
    confirmation.resume(.failure(error))
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
        do throws(BluetoothError) {
          subscription = try await sequence.link.host.subscribe(to: sequence.characteristic, on: sequence.link.id)
        } catch  where error.code == .cancelled {
          return nil
        }
      }
      return try await subscription?.mailbox.take()
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
  ///
  /// The peer may have missed the connection's first packets: then the link goes down soon, with the status
  /// `.connectionFailedToBeEstablished`, and to connect again is all that helps. Vol 6, Part B, §4.5.
  public func connect(
    to peer: PeerAddress, _ parameters: ConnectionParameters = .balanced
  ) async throws(BluetoothError) -> Link {
    let outcome = try await request { core, id, now in core.connect(to: peer, parameters, id: id, now: now) }
    guard case .linked(let id) = outcome else { throw .linkIsDown }
    return Link(id: id, peer: peer, role: .central, host: self)
  }

  func remoteDatabase(of link: LinkID) -> RemoteDatabase? { core.remoteDatabase(of: link) }
  func updateParameters(_ parameters: ConnectionParameters, of link: LinkID) {
    perform { core, now in core.updateParameters(link, parameters, now: now) }
  }
  func mtu(of link: LinkID) -> Int? { core.mtu(of: link) }

  func write(command value: [UInt8], to handle: AttributeHandle, on link: LinkID) throws(BluetoothError) -> Bool {
    guard links[link] != nil, let mtu = core.mtu(of: link) else { throw .linkIsDown }
    let limit = min(mtu - 3, NotificationQueue.longestValue)
    guard value.count <= limit else {
      throw BluetoothError(
        .invalidArgument,
        "\(value.count) octets do not fit one write without response, which carries \(limit): use write.")
    }
    return perform { core, _ in core.write(command: value.span, to: handle, on: link).isAccepted }
  }

  func subscribe(
    to characteristic: RemoteCharacteristic, on link: LinkID
  ) async throws(BluetoothError) -> SubscriptionHandle {
    guard links[link] != nil else { throw .linkIsDown }
    let mailbox = Mailbox<ReceivedValue>(capacity: 1024, overflow: .end)
    // Before the CCCD is written: the first value may come before the answer does.
    links[link]?.values[characteristic.valueHandle, default: []].append(mailbox)
    do throws(BluetoothError) {
      _ = try await request { core, id, _ in
        core.withClient(of: link, id: id) { $0.subscribe(id, characteristic.valueHandle) }
      }
    } catch {
      remove(mailbox, of: characteristic.valueHandle, on: link)
      throw error
    }
    return SubscriptionHandle(mailbox: mailbox, host: self, link: link, characteristic: characteristic)
  }
  func unsubscribe(_ mailbox: Mailbox<ReceivedValue>, _ characteristic: RemoteCharacteristic, on link: LinkID) {
    mailbox.abandon()
    let handle = characteristic.valueHandle
    guard remove(mailbox, of: handle, on: link) else { return }
    // Nobody waits for its end. The client counts subscribers, and asks the server when the last one has gone.
    let id = newRequest()
    perform { core, _ in core.withClient(of: link, id: id) { $0.unsubscribe(id, handle) } }
  }
  @discardableResult
  private func remove(_ mailbox: Mailbox<ReceivedValue>, of handle: AttributeHandle, on link: LinkID) -> Bool {
    guard let all = links[link]?.values[handle] else { return false }
    let others = all.filter { $0 !== mailbox }
    links[link]?.values[handle] = others.isEmpty ? nil : others
    return others.count < all.count
  }

  // MARK: Ports

  func sendPort(
    _ kind: SendPort.Kind, to handle: AttributeHandle, on link: LinkID, capacity: Int
  ) throws(BluetoothError) -> SendPort {
    guard links[link] != nil, let mtu = core.mtu(of: link) else { throw .linkIsDown }
    let port = SendPort(link: link, handle: handle, kind: kind, capacity: capacity, mtu: mtu) { [weak self] port in
      self?.onEventLoop { host in
        host.links[link]?.sending.append(port)
        host.sendFromPorts(of: link)
      }
    }
    links[link]?.add(port)
    return port
  }
  /// Fills the link's queue from its ports, a value each in turn, until it is full or they are empty.
  func sendFromPorts(of link: LinkID) {
    guard var sending = links[link]?.sending, !sending.isEmpty else { return }
    perform { core, _ in
      defer { links[link]?.sending = sending }
      while let port = sending.popFirst() {
        let rest = port.sendNext { value in
          switch port.kind {
          // For a client that has unsubscribed meanwhile the value is gone, as it would be on the air.
          case .notification: core.notify(value.span, of: port.handle, on: link) != .full
          case .command: core.write(command: value.span, to: port.handle, on: link) != .full
          }
        }
        switch rest {
        case .nothing: break
        case .more: sending.append(port)
        // The bearer will say when there is room again.
        case .refused: return sending.prepend(port)
        }
      }
    }
  }
}
