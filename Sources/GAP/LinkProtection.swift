import BindruneATT
import BindruneToolbox
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneSMP

/// What a pairing asks the user, or shows. Vol 3, Part H, §2.3.5.
public enum PairingQuestion: BitwiseCopyable, Sendable, Equatable {
  /// The peer wants to pair by this method, or as Peripheral has asked for security, or has refused a request without
  /// it: `.consent` or `.refuse`. `replaces`: a bond whose place the pairing takes, with a key that is not weaker. A
  /// pairing asks again, also after digits, when the peer distributes the identity of another bonded device.
  case consent(PairingMethod, replaces: ReplacedBond?)
  /// Show six digits, zeros in front, which the user enters on the peer. Needs no answer.
  case display(UInt32)
  /// Ask for the six digits that the peer displays: `.passkey` or `.refuse`.
  case enterPasskey
  /// Show six digits, zeros in front, and ask whether the peer shows the same: `.numbersMatch` or `.refuse`.
  case compare(UInt32)
  /// The user does this on the peer while entering the displayed digits. Needs no answer.
  case keypress(KeypressNotificationType)
}

/// What the user answers.
public enum PairingAnswer: BitwiseCopyable, Sendable, Equatable {
  case consent
  /// Six digits, 0 … 999,999; a greater number fails the pairing.
  case passkey(UInt32)
  case numbersMatch
  /// The user does this while entering the passkey. The question stays open.
  case keypress(KeypressNotificationType)
  /// Ends the pairing, at any time.
  case refuse
}

/// # LinkProtection
/// **Overview**: the pairing of a link, and what protects it. Vol 3, Part C, §10; Vol 6, Part B, §5.1.3.
///
/// **Function**: `manager` pairs. A Central starts the encryption, with the key of a bond or of the pairing; as a
/// Peripheral the host answers the controller's request for one of them. It is a procedure of the link until the
/// controller reports the result, and `security` changes only with that report.
struct LinkProtection: ~Copyable {
  var manager: SecurityManager
  var security = LinkSecurity()
  /// A pairing that is over but for the last PDUs, which the peer has not acknowledged: a disconnection now would lose
  /// keys.
  var delivery: Delivery?
  struct Delivery {
    let result: PairingResult
    /// `DataCredits.completed` when the peer has acknowledged all of them.
    let completed: UInt32
  }
  /// The application's requests that end with the pairing, Security Request or encryption in progress.
  var requests: [RequestID] = []
  /// Calls of `HostCore.pair` that wait for the end of an encryption with the bond's key.
  var pairings: [(id: RequestID, settings: PairingSettings?)] = []
  /// The server has refused a request of GATT's client, which waits for more security.
  var refusal: ATTError? {
    get { if case .help(let refusal)? = due { refusal } else { nil } }
    set { if leaving == nil { due = newValue.map { .help($0) } } }
  }
  /// The link ends when the peer has our Pairing Failed.
  var leaving: Leaving? {
    get { if case .leave(let leaving)? = due { leaving } else { nil } }
    set { due = newValue.map { .leave($0) } }
  }
  struct Leaving: BitwiseCopyable {
    let deadline: Instant
    /// `DataCredits.completed` when the peer has acknowledged it; nil: it is not sent yet.
    var completed: UInt32?
  }
  /// What the host must do for the link. One value, because every packet of the link asks for its deadline.
  private var due: Due?
  private enum Due: BitwiseCopyable { case help(ATTError), leave(Leaving) }
  /// Why the host ends the link: it could not be encrypted, or its peer would take the place of another.
  var failure: HCIStatus?
  /// GATT's server knows the client as the bonded one.
  var isClientRestored = false
  /// The peer has encrypted the link with its bond's key, or has just made it, and the link is still encrypted.
  var hasProvenBond: Bool { isClientRestored && security.isBonded && security.key != nil }

  /// The open question to which `.consent` is the answer.
  var question: Question?
  enum Question {
    case pairing(ReplacedBond?)
    /// Whose place the peer would take with the identity that it has distributed; nil: that is refused.
    case identity(ReplacedBond?)
  }
  var isIdentityAsked: Bool { if case .identity = question { true } else { false } }
  /// Whose place the user lets the peer take, in the pairing in progress.
  var consented: [PeerID] = []
  /// Failures of `manager` that have been counted with those of all peers.
  var countedFailures: UInt32 = 0

  init(_ manager: consuming SecurityManager, isBonded: Bool) {
    self.manager = manager
    security.isBonded = isBonded
  }
  /// `HostCore.secure` has something to do.
  var hasWork: Bool { manager.hasEffect || refusal != nil }
  var deadline: Instant? {
    switch due {
    // `HostCore.demandSecurity`: at once.
    case .help: return .zero
    case .leave(let leaving): return .earliest(leaving.deadline, manager.deadline)
    case nil: return manager.deadline
    }
  }
}

// MARK: - The user

extension LinkProtection {
  enum AnswerOutcome: BitwiseCopyable {
    case taken
    /// The identity may claim more: `HostCore.considerIdentity` goes on.
    case identityAccepted
    /// It is not to an open question, and has no effect.
    case unwanted
  }
  /// The user's answer.
  mutating func answer(_ answer: PairingAnswer, now: Instant, using chance: inout HostChance) -> AnswerOutcome {
    if answer == .consent, consent() { return .identityAccepted }
    let isTaken =
      switch answer {
      case .consent: manager.accept(now: now, using: &chance)
      case .passkey(let digits): manager.enter(passkey: digits, now: now, using: &chance)
      case .numbersMatch: manager.confirmNumbers(now: now)
      case .keypress(let key): manager.notify(key, now: now)
      case .refuse: refuse(now: now)
      }
    return isTaken ? .taken : .unwanted
  }
  /// The user consents to what was asked last. True: to an identity, which may claim more.
  private mutating func consent() -> Bool {
    defer { question = nil }
    switch question {
    case .identity(let claim?):
      consented.append(claim.peer)
      return true
    case .pairing(let replaced?):
      consented.append(replaced.peer)
      return false
    case .identity(nil), .pairing(nil), nil: return false
    }
  }
  /// The user refuses the pairing. Who would have taken the place of a bonded device must wait before the next attempt.
  private mutating func refuse(now: Instant) -> Bool {
    let isAttempt = if case .pairing(let replaced?) = question { !replaced.isProven } else { false }
    return manager.refuse(now: now, isAttempt: isAttempt)
  }
  /// The user has consented to what the pairing on the link replaces, in so far as somebody must.
  func isConsented(_ replaced: ReplacedBond, to result: PairingResult) -> Bool {
    switch replaced.ground {
    case .key: true
    // A user who compares or enters digits takes part in any case.
    case .address: result.isAuthenticated || consented.contains(replaced.peer)
    case .identity: consented.contains(replaced.peer)
    }
  }
  enum IdentityVerdict {
    case accepted, ask(ReplacedBond)
    /// The pairing's key is weaker than that of a bond which it would replace.
    case refused
  }
  /// What comes of the identity that the peer has distributed, which makes these claims.
  mutating func judge(
    _ claims: [ReplacedBond], now: Instant, using chance: inout HostChance
  ) -> IdentityVerdict {
    let strength = manager.keyStrength
    if let strength, claims.contains(where: { $0.strength.map { strength.isWeaker(than: $0) } ?? false }) {
      question = .identity(nil)
      _ = manager.refuse(now: now)
      return .refused
    }
    if let claim = claims.first(where: { !consented.contains($0.peer) }) {
      question = .identity(claim)
      return .ask(claim)
    }
    _ = manager.accept(now: now, using: &chance)
    return .accepted
  }
}

// MARK: - Ends

extension LinkProtection {
  /// The pairing, Security Request or encryption in progress has ended: the requests that have awaited it.
  mutating func takeRequests() -> [RequestID] {
    defer { (requests, question, consented) = ([], nil, []) }
    return requests
  }
  /// The encryption with the bond's key has ended: the calls that have awaited it.
  mutating func takePairings() -> [(id: RequestID, settings: PairingSettings?)] {
    defer { pairings = [] }
    return pairings
  }
  /// The pairing has failed. Returns whether for lack of room for its bond, or over the identity that the peer has
  /// distributed, and whether that counts with the failures of all peers.
  mutating func failed(_ error: PairingError) -> (isForLackOfRoom: Bool, isOfClaim: Bool, counts: Bool) {
    let lacksRoom = error == .ours(.authenticationRequirements) && !manager.settings.bondsUnauthenticated
    return (lacksRoom, isIdentityAsked, counts(error))
  }
  /// True once for each failure that counts with those of all peers.
  private mutating func counts(_ error: PairingError) -> Bool {
    // A user who refuses is not to be asked again and again, by one stranger after another.
    let isRefusal = error == .ours(.pairingNotSupported)
    guard manager.failures != countedFailures || isRefusal else { return false }
    countedFailures = manager.failures
    return true
  }
  /// What the pairing has made, once the peer has acknowledged `completed` packets.
  mutating func takeDelivery(completed: UInt32) -> PairingResult? {
    guard let delivery, Int32(bitPattern: completed &- delivery.completed) >= 0 else { return nil }
    self.delivery = nil
    return delivery.result
  }
  /// True once, when the link that must end may: the peer has our Pairing Failed, or has had the time for it.
  /// `outstanding`: packets that the peer has not acknowledged, beside `completed` that it has.
  mutating func leaves(completed: UInt32, outstanding: Int, now: Instant) -> Bool {
    guard var leaving else { return false }
    if now < leaving.deadline {
      if leaving.completed == nil {
        if manager.hasPDU { return false }
        leaving.completed = completed &+ UInt32(outstanding)
        self.leaving = leaving
      }
      if let wanted = leaving.completed, Int32(bitPattern: completed &- wanted) < 0 { return false }
    }
    self.leaving = nil
    failure = .authenticationFailure
    return true
  }
  /// The link has ended. True: a pairing had only to be delivered.
  mutating func close(now: Instant) -> Bool {
    refusal = nil
    manager.linkClosed(now: now)
    return delivery.take() != nil
  }
}

// MARK: - Encryption

extension LinkProtection {
  /// As Peripheral: the key that the Central's controller asks for; nil: we have none.
  func key(
    ediv: UInt16, rand: UInt64, of bond: Bond?
  ) -> (key: SecurityKey, strength: KeyStrength, source: LinkProcedure.KeySource)? {
    if manager.isPairing {
      // A bond's key would take the place of the pairing's.
      guard let key = manager.key(ediv: ediv, rand: rand), let strength = manager.keyStrength else { return nil }
      return (key, strength, .pairing)
    }
    guard let bond, let own = bond.ours.longTermKey, own.ediv == ediv, own.rand == rand else { return nil }
    return (own.key, bond.strength, .bond)
  }
}

extension PairingAddress {
  init(_ address: PeerAddress) { self.init(address.address, isRandom: address.isRandom) }
}
extension PeerAddress {
  init(_ address: PairingAddress) { self.init(address.address, address.isRandom ? .random : .public) }
}
