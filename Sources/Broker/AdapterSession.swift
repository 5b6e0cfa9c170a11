import Foundation
import NIOCore
import Synchronization

/// A request, and where it stands among the values that its session has offered to the same peer.
struct PlacedRequest {
  let request: BrokerRequest
  let place: SendPort.Fence?
}

/// The adapter's end of a session: its requests on their way down, its events on their way up, its ports. Everything on the
/// event loop but what the lock guards.
final class AdapterSession: @unchecked Sendable {
  // Sendable: the lock, or the event loop.

  private let deliver: @Sendable (BrokerEvent) -> Void
  private let eventLoop: any EventLoop
  let id: SessionID

  // MARK: Under the lock

  private let lock = NSLock()
  private var requests: [PlacedRequest] = []
  private var isClosed = false
  private var commandPorts: [UUID: SendPort] = [:]
  private var notificationPorts: [UUID: SendPort] = [:]
  private static let lastID = Atomic<Int>(0)

  // MARK: On the event loop

  /// What has been told in this turn of the loop.
  private var told: [BrokerEvent] = []

  init(on eventLoop: any EventLoop, deliver: @escaping @Sendable (BrokerEvent) -> Void) {
    self.eventLoop = eventLoop
    self.deliver = deliver
    id = SessionID(rawValue: Self.lastID.add(1, ordering: .relaxed).newValue)
  }

  /// Tells the application's side, unless the session has been closed. All of one turn goes over at its end, so that the
  /// other side is woken for many values and not for each.
  func tell(_ event: BrokerEvent) {
    told.append(event)
    if told.count == 1 { eventLoop.execute { self.handOver() } }
  }
  private func handOver() {
    var events: [BrokerEvent] = []
    swap(&events, &told)
    for event in events {
      if lock.withLock({ isClosed }) { return }
      deliver(event)
    }
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
    lock.withLock {
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
