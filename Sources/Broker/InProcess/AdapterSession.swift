import FoundationEssentials
import NIOConcurrencyHelpers
import NIOCore
import Synchronization

/// A request, and where it stands among the values that its session has offered to the same peer.
struct PlacedRequest {
  let request: BrokerRequest
  let place: SendPort.Fence?
}

/// The adapter's end of a session: its requests on their way down, its events on their way up, its ports. Everything on
/// the event loop but what the lock guards.
final class AdapterSession: @unchecked Sendable {
  // Sendable: the lock, or the event loop.

  private let events: EventQueue
  private let eventLoop: any EventLoop
  /// Its own, or that of a preserved session whose place it takes. On the event loop.
  private(set) var id: SessionID

  // MARK: Under the lock

  private let lock = NIOLock()
  private var requests: [PlacedRequest] = []
  private var isClosed = false
  private var commandPorts: [UUID: SendPort] = [:]
  private var notificationPorts: [UUID: SendPort] = [:]
  private static let lastID = Atomic<Int>(0)

  // MARK: On the event loop

  // Release builds do not check that no two accesses to these overlap (70 instructions for each value): an event queue
  // calls nobody back on this thread.
  /// Events of this turn of the loop.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var undelivered: [BrokerEvent] = []
  /// Its app does not run.
  private var isHeld = false
  /// Values that have come since then, by peer, and that the core has not counted.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var heldValues: [UUID: Int] = [:]

  init(on eventLoop: any EventLoop, events: EventQueue) {
    self.eventLoop = eventLoop
    self.events = events
    id = SessionID(rawValue: Self.lastID.add(1, ordering: .relaxed).newValue)
  }

  /// Puts an event into the session's queue, unless the session has been closed. Events go over in batches: at the end
  /// of a batch of the host, or at the end of the event loop's turn.
  func deliver(_ event: BrokerEvent) {
    if undelivered.isEmpty { eventLoop.execute { self.handOver() } }
    undelivered.append(event)
  }
  /// The same for values, which come in batches of the host only: `handOver` follows.
  func deliver(_ values: BrokerValues, of handle: AttributeHandle, from peer: UUID) {
    undelivered.append(.values(peer, handle, values))
    if isHeld { heldValues[peer, default: 0] += values.count }
  }
  /// While it is held, its events wait in its queue. Returns those that the app has not taken before.
  @discardableResult
  func hold(_ isHeld: Bool) -> [BrokerEvent] {
    self.isHeld = isHeld
    handOver()
    return events.hold(isHeld)
  }
  func takeHeldValues() -> [UUID: Int] {
    if heldValues.isEmpty { return [:] }
    defer { heldValues = [:] }
    return heldValues
  }
  func handOver() {
    if undelivered.isEmpty { return }
    events.put(undelivered)
    undelivered.removeAll(keepingCapacity: true)
  }

  /// Those of its channels that its owner still keeps.
  private var channels: [(peer: UUID, channel: WeakChannel)] = []
  private struct WeakChannel { weak var channel: SessionChannel? }
  func add(_ channel: SessionChannel, with peer: UUID) {
    channels.removeAll { $0.channel.channel == nil }
    channels.append((peer, WeakChannel(channel: channel)))
  }
  /// `peer` nil: all.
  func endChannels(with peer: UUID? = nil) {
    for entry in channels where peer == nil || entry.peer == peer { entry.channel.channel?.abandon() }
    channels.removeAll { peer == nil || $0.peer == peer }
  }

  /// Takes the place of a preserved session.
  func replace(_ id: SessionID) { self.id = id }
  /// Closes it, and returns the events that were not taken.
  func takeRemaining() -> [BrokerEvent] {
    handOver()
    let remaining = events.takeRemaining()
    _ = close()
    return remaining
  }

  // MARK: From any thread

  /// True if the caller must schedule a drain.
  func put(_ request: BrokerRequest) -> Bool {
    lock.withLock {
      let place = request.line.flatMap { ports($0.kind)[$0.peer]?.fence() }
      requests.append(PlacedRequest(request: request, place: place))
      return requests.count == 1
    }
  }
  /// In the order in which they were put.
  func takeRequests() -> [PlacedRequest] {
    lock.withLock {
      defer { requests = [] }
      return requests
    }
  }
  /// True the first time.
  func close() -> Bool {
    events.close()
    return lock.withLock {
      defer {
        isClosed = true
        commandPorts = [:]
        notificationPorts = [:]
      }
      return !isClosed
    }
  }
  func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort? { lock.withLock { ports(kind)[peer] } }
  private func ports(_ kind: SendPort.Kind) -> [UUID: SendPort] {
    kind == .command ? commandPorts : notificationPorts
  }
  func setPort(_ port: SendPort?, _ kind: SendPort.Kind, of peer: UUID) {
    lock.withLock {
      // A session that has been closed keeps none.
      let port = isClosed ? nil : port
      if kind == .command { commandPorts[peer] = port } else { notificationPorts[peer] = port }
    }
  }
  /// Below poweredOn there is nowhere to send.
  func removePorts() {
    lock.withLock {
      commandPorts = [:]
      notificationPorts = [:]
    }
  }
}
