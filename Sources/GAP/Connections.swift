import BindruneWire
import DequeModule
import GATT
import HCI

/// # Connections
/// **Overview**: turns requests to connect into the controller's one Create Connection at a time.
///
/// **Function**: a request waits for as long as it takes; `cancel` ends it at any moment. A connection that comes up after
/// its request was cancelled is taken down again, so that no link is left over. Vol 4, Part E, §7.8.12, §7.8.13, §7.8.66.
///
/// **Phases**: idle → creating (command sent) → initiating (accepted) → idle; cancelling from either, until the
/// controller has said so with a Connection Complete event.
struct Connections {
  struct Request: BitwiseCopyable {
    var id: RequestID
    var peer: PeerAddress
    var parameters: ConnectionParameters
  }
  private enum Phase: BitwiseCopyable {
    case idle
    case creating(Request)
    case initiating(Request)
    /// The caller has been told already. `deadline`: a controller that never reports the end of a cancelled attempt
    /// must not stop the next one.
    case cancelling(commandSent: Bool, deadline: Instant)
  }
  /// What became of a connection that came up, or of an attempt that did not.
  enum Verdict: BitwiseCopyable {
    /// A central connected to us, or a request of ours succeeded.
    case linkUp(RequestID?)
    /// Nobody wants it any more.
    case unwanted
    case failed(RequestID, HostFailure)
    case nothing
  }
  /// Requests that may wait at once.
  static let capacity = 64
  static let cancelTimeout: Duration = .seconds(2)

  private var phase = Phase.idle
  private var waiting = Deque<Request>()
  private let tag: UInt32
  var usesExtendedCommands = false
  var ownAddressType = OwnAddressType.public

  init(tag: UInt32) { self.tag = tag }

  /// The controller has forgotten everything: hands out the requests that fail with it.
  mutating func reset() -> [RequestID] {
    var orphans = waiting.map(\.id)
    if case .creating(let request) = phase { orphans.append(request.id) }
    if case .initiating(let request) = phase { orphans.append(request.id) }
    waiting.removeAll()
    phase = .idle
    return orphans
  }

  /// False when too many requests wait already.
  mutating func connect(_ request: Request, hci: inout HCILayer, now: Instant) -> Bool {
    guard waiting.count < Self.capacity else { return false }
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
    case .creating(let request) where request.id == id:
      // Cancelling before the command is answered would be refused (0x0C): sent once it has been.
      phase = .cancelling(commandSent: false, deadline: now + Self.cancelTimeout)
      return true
    case .initiating(let request) where request.id == id:
      hci.send(LECreateConnectionCancel(), tag: tag, now: now)
      phase = .cancelling(commandSent: true, deadline: now + Self.cancelTimeout)
      return true
    default: return false
    }
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

  /// A command with our tag has been answered.
  mutating func answered(_ outcome: CommandOutcome, hci: inout HCILayer, now: Instant) -> Verdict {
    switch phase {
    case .creating(let request):
      if outcome.status == .success {
        phase = .initiating(request)
        return .nothing
      }
      phase = .idle
      step(&hci, now)
      return .failed(request.id, .controller(outcome.status))
    case .cancelling(commandSent: false, let deadline):
      if outcome.status == .success {
        hci.send(LECreateConnectionCancel(), tag: tag, now: now)
        phase = .cancelling(commandSent: true, deadline: deadline)
      } else {
        phase = .idle
        step(&hci, now)
      }
      return .nothing
    // Cancel was answered. Success is followed by a Connection Complete event; 0x0C means that one is on its way or here.
    case .cancelling(commandSent: true, _), .idle, .initiating: return .nothing
    }
  }

  /// A Connection Complete event of any kind.
  mutating func completed(
    _ status: HCIStatus, role: LinkRole, hci: inout HCILayer, now: Instant
  ) -> Verdict {
    if status == .success && role == .peripheral { return .linkUp(nil) }
    defer { step(&hci, now) }
    switch phase {
    case .creating(let request), .initiating(let request):
      phase = .idle
      return status == .success ? .linkUp(request.id) : .failed(request.id, .controller(status))
    case .cancelling:
      phase = .idle
      return status == .success ? .unwanted : .nothing
    case .idle: return status == .success ? .unwanted : .nothing
    }
  }

  var deadline: Instant? {
    if case .cancelling(_, let deadline) = phase { return deadline }
    return nil
  }
  mutating func expire(hci: inout HCILayer, now: Instant) {
    guard case .cancelling(_, let deadline) = phase, deadline <= now else { return }
    phase = .idle
    step(&hci, now)
  }
}
