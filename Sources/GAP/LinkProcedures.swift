import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// What the controllers of a link, or its hosts, are busy with.
enum LinkProcedure: BitwiseCopyable {
  enum Kind: BitwiseCopyable { case parameterUpdate, phyUpdate, dataLengthUpdate, featureExchange, encryption }
  enum KeySource: BitwiseCopyable { case pairing, bond }

  /// Of either side: `ParameterUpdate.way`.
  case parameterUpdate(ParameterUpdate)
  /// The request that awaits it, unless that was cancelled.
  case phyUpdate(RequestID?)
  /// From the command to its answer: an event follows only if the length changes.
  case dataLengthUpdate
  /// To the event with the peer's features. The requests that await it are in `LinkRequests`: they share the answer.
  case featureExchange
  /// With a key of this strength.
  case encryption(KeyStrength, KeySource)

  var kind: Kind {
    switch self {
    case .parameterUpdate: .parameterUpdate
    case .phyUpdate: .phyUpdate
    case .dataLengthUpdate: .dataLengthUpdate
    case .featureExchange: .featureExchange
    case .encryption: .encryption
    }
  }
  /// What the application has asked for, and waits for. The requests that await an encryption are in `LinkProtection`,
  /// because pairings answer them too.
  var request: RequestID? {
    get {
      switch self {
      case .parameterUpdate(let update): update.id
      case .phyUpdate(let id): id
      case .dataLengthUpdate, .featureExchange, .encryption: nil
      }
    }
    set {
      switch self {
      case .parameterUpdate(var update):
        update.id = newValue
        self = .parameterUpdate(update)
      case .phyUpdate: self = .phyUpdate(newValue)
      case .dataLengthUpdate, .featureExchange, .encryption: break
      }
    }
  }
}

/// # LinkProcedures
/// **Overview**: the running procedures of a link, at most one of each kind.
///
/// **Function**: `begin` adds one, and replaces one of the same kind; who learns its end takes it with `end`. The link
/// layer gives a procedure 40 s, which end the link (Vol 6, Part B, §5.2). The host gives each as long: `takeOverdue`
/// ends those of a controller that reports nothing even then, and of a central that agreed and did nothing.
struct LinkProcedures {
  static var timeout: Duration { .seconds(40) }

  private var running: [(procedure: LinkProcedure, deadline: Instant)] = []
  /// When `takeOverdue` must act. Stored, because every packet of the link asks.
  private(set) var deadline: Instant?

  subscript(kind: LinkProcedure.Kind) -> LinkProcedure? { place(of: kind).map { running[$0].procedure } }
  var parameterUpdate: ParameterUpdate? {
    if case .parameterUpdate(let update)? = self[.parameterUpdate] { update } else { nil }
  }
  var isEncrypting: Bool { self[.encryption] != nil }

  mutating func begin(_ procedure: LinkProcedure, now: Instant) {
    end(procedure.kind)
    running.append((procedure, now + Self.timeout))
    noteDeadline()
  }
  @discardableResult mutating func end(_ kind: LinkProcedure.Kind) -> LinkProcedure? {
    defer { noteDeadline() }
    return place(of: kind).map { running.remove(at: $0).procedure }
  }
  mutating func endParameterUpdate() -> ParameterUpdate? {
    if case .parameterUpdate(let update)? = end(.parameterUpdate) { update } else { nil }
  }
  /// Returns whose key it is.
  mutating func endEncryption() -> LinkProcedure.KeySource? {
    if case .encryption(_, let source)? = end(.encryption) { source } else { nil }
  }
  /// Ends one whose time is up, the one that began first.
  mutating func takeOverdue(now: Instant) -> LinkProcedure? {
    defer { noteDeadline() }
    return running.firstIndex { $0.deadline <= now }.map { running.remove(at: $0).procedure }
  }
  /// Ends all. Returns the requests that have awaited them.
  mutating func takeRequests() -> [RequestID] {
    defer { self = LinkProcedures() }
    return running.compactMap { $0.procedure.request }
  }
  /// True if `id` awaited one of them, which continues without it.
  mutating func cancel(_ id: RequestID) -> Bool {
    guard let place = running.firstIndex(where: { $0.procedure.request == id }) else { return false }
    running[place].procedure.request = nil
    return true
  }
  private func place(of kind: LinkProcedure.Kind) -> Int? { running.firstIndex { $0.procedure.kind == kind } }
  private mutating func noteDeadline() { deadline = running.reduce(nil) { .earliest($0, $1.deadline) } }
}

extension HostCore {
  /// The controller, or the peer's host, is to do this. Returns the handle for the command.
  @discardableResult
  mutating func begin(_ procedure: LinkProcedure, at index: Int, _ now: Instant) -> ConnectionHandle {
    withLink(at: index) {
      $0.procedures.begin(procedure, now: now)
      return $0.handle
    }
  }
  /// Ends the procedures of a link whose time is up.
  mutating func expireProcedures(at index: Int, _ now: Instant) {
    while let procedure = withLink(at: index, { $0.procedures.takeOverdue(now: now) }) {
      switch procedure {
      case .parameterUpdate(let update): if update.way != .peers { ended(update, .lmpOrLLResponseTimeout, at: index) }
      case .phyUpdate(let id):
        if let id { emit(.completed(id, .failed(.refused(.setPHYs, .lmpOrLLResponseTimeout)))) }
      case .dataLengthUpdate: break
      case .featureExchange: featuresEnded(.failed(.refused(.readFeatures, .lmpOrLLResponseTimeout)), at: index)
      case .encryption(_, let source): encryptionTimedOut(source, at: index, now)
      }
    }
  }
  /// The controller has answered a command, or reported, so that a procedure has ended which no request awaits.
  mutating func procedureEnded(_ kind: LinkProcedure.Kind, _ handle: ConnectionHandle) {
    guard let index = upper.index(of: handle) else { return }
    withLink(at: index) { _ = $0.procedures.end(kind) }
  }
}
