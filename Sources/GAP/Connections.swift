import BindruneWire
import DequeModule
import GATT
import HCI

/// # Connections
/// **Overview**: turns requests to connect into the controller's one Create Connection at a time.
///
/// **Function**: a request waits for as long as it takes; `cancel` ends it at any moment. A connection that comes up though
/// nobody wants it, or not any more, is taken down again, so that no link is left over. Vol 4, Part E, §7.8.12, §7.8.13,
/// §7.8.66.
///
/// **Phases**: idle → creating (command sent) → initiating (accepted) → idle.
/// Cancelled: creating → abandoned (cancelling before the answer would be refused, 0x0C) → cancelling; initiating →
/// cancelling → idle, with a Connection Complete event, or when its time is up: a controller that never tells of the end of
/// a cancelled attempt (Bumble's does not) must not stop the next one.
struct Connections {
  struct Request: BitwiseCopyable {
    var id: RequestID
    var peer: PeerAddress
    var parameters: ConnectionParameters
  }
  enum Phase: BitwiseCopyable {
    case idle
    case creating(Request)
    case initiating(Request)
    // The caller has been told already.
    case abandoned(Request)
    case cancelling(Request, deadline: Instant)
  }
  /// What became of a connection that came up, or of an attempt that did not.
  enum Verdict: BitwiseCopyable {
    /// A central connected to us, or a request of ours succeeded.
    case linkUp(RequestID?)
    /// Nobody wants it.
    case unwanted
    case failed(RequestID, HostFailure)
    case nothing
  }
  /// Requests that may wait at once.
  static let capacity = 64
  static let cancelTimeout: Duration = .seconds(2)

  private(set) var phase = Phase.idle
  private var waiting = Deque<Request>()
  private let tag: UInt32
  var usesExtendedCommands = false
  var ownAddressType = OwnAddressType.public

  init(tag: UInt32) { self.tag = tag }

  /// The attempt that the controller is at.
  private var attempt: Request? {
    switch phase {
    case .idle: nil
    case .creating(let request), .initiating(let request), .abandoned(let request), .cancelling(let request, _): request
    }
  }
  /// The request whose caller waits for that attempt.
  private var active: Request? {
    switch phase {
    case .creating(let request), .initiating(let request): request
    case .idle, .abandoned, .cancelling: nil
    }
  }

  /// The controller has forgotten everything: hands out the requests that fail with it.
  mutating func reset() -> [RequestID] {
    let orphans = (active.map { [$0.id] } ?? []) + waiting.map(\.id)
    waiting.removeAll()
    phase = .idle
    return orphans
  }

  /// False when too many requests wait already, or one for the same peer.
  mutating func connect(_ request: Request, hci: inout HCILayer, now: Instant) -> Bool {
    guard waiting.count < Self.capacity, active?.peer != request.peer,
      !waiting.contains(where: { $0.peer == request.peer })
    else { return false }
    waiting.append(request)
    step(&hci, now)
    return true
  }

  /// True when `id` was waiting or under way: it has ended, and this is the caller's one completion.
  mutating func cancel(_ id: RequestID, hci: inout HCILayer, now: Instant) -> Bool {
    if let index = waiting.firstIndex(where: { $0.id == id }) {
      waiting.remove(at: index)
      return true
    }
    switch phase {
    case .creating(let request) where request.id == id: phase = .abandoned(request)
    case .initiating(let request) where request.id == id: sendCancel(request, &hci, now)
    default: return false
    }
    return true
  }
  private mutating func sendCancel(_ request: Request, _ hci: inout HCILayer, _ now: Instant) {
    hci.send(LECreateConnectionCancel(), tag: tag, now: now)
    phase = .cancelling(request, deadline: now + Self.cancelTimeout)
  }

  private mutating func step(_ hci: inout HCILayer, _ now: Instant) {
    guard case .idle = phase, let request = waiting.popFirst() else { return }
    if usesExtendedCommands {
      var command = LEExtendedCreateConnection()
      command.peerAddressType = request.peer.type
      command.peerAddress = request.peer.address
      command.ownAddressType = ownAddressType
      command.le1M.scanInterval = ScanInterval(.milliseconds(60))
      command.le1M.scanWindow = ScanInterval(.milliseconds(60))
      command.le1M.connectionIntervalMin = request.parameters.interval
      command.le1M.connectionIntervalMax = request.parameters.interval
      command.le1M.maxLatency = request.parameters.latency
      command.le1M.supervisionTimeout = request.parameters.supervisionTimeout
      hci.send(command, tag: tag, now: now)
    } else {
      var command = LECreateConnection()
      command.leScanInterval = ScanInterval(.milliseconds(60))
      command.leScanWindow = ScanInterval(.milliseconds(60))
      command.peerAddressType = request.peer.type
      command.peerAddress = request.peer.address
      command.ownAddressType = ownAddressType
      command.connectionIntervalMin = request.parameters.interval
      command.connectionIntervalMax = request.parameters.interval
      command.maxLatency = request.parameters.latency
      command.supervisionTimeout = request.parameters.supervisionTimeout
      hci.send(command, tag: tag, now: now)
    }
    phase = .creating(request)
  }

  /// A command with our tag has ended.
  mutating func answered(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) -> Verdict {
    // What came of cancelling, the event says or its absence: even a refusal (0x0C) can mean that a link is on its way.
    if outcome.opcode == LECreateConnectionCancel.opcode { return .nothing }
    switch phase {
    case .idle, .initiating, .cancelling: return .nothing
    case .creating(let request) where outcome.status == .success:
      phase = .initiating(request)
      return .nothing
    case .abandoned(let request) where outcome.status == .success || outcome.timedOut:
      sendCancel(request, &hci, now)
      return .nothing
    case .creating(let request) where outcome.timedOut:
      // The controller may have heard it all the same.
      sendCancel(request, &hci, now)
      return .failed(request.id, .controller(outcome.status))
    case .creating(let request):
      phase = .idle
      step(&hci, now)
      return .failed(request.id, .controller(outcome.status))
    case .abandoned:
      phase = .idle
      step(&hci, now)
      return .nothing
    }
  }

  /// A Connection Complete event of any kind.
  mutating func completed(
    _ status: HCIStatus, _ role: LinkRole, _ peer: DeviceAddress, hci: inout HCILayer, now: Instant
  ) -> Verdict {
    if status == .success && role == .peripheral { return .linkUp(nil) }
    guard let attempt else { return status == .success ? .unwanted : .nothing }
    // Late news of an attempt before this one.
    if status == .success && peer != attempt.peer.address { return .unwanted }
    if status == .unknownConnectionIdentifier && active != nil { return .nothing }
    let request = active
    phase = .idle
    step(&hci, now)
    guard let request else { return status == .success ? .unwanted : .nothing }
    return status == .success ? .linkUp(request.id) : .failed(request.id, .controller(status))
  }

  var deadline: Instant? {
    if case .cancelling(_, let deadline) = phase { return deadline }
    return nil
  }
  mutating func expire(hci: inout HCILayer, now: Instant) {
    guard let deadline, deadline <= now else { return }
    phase = .idle
    step(&hci, now)
  }
}
