import ATT
import BindruneWire
import GATT
import HCI
import SMP

/// What a pairing asks the user, or shows. Vol 3, Part H, §2.3.5.
public enum PairingQuestion: BitwiseCopyable, Sendable, Equatable {
  /// The peer wants to pair by this method, or as Peripheral has asked for security, or has refused a request without it:
  /// `.consent` or `.refuse`. `replaces`: a bond whose place the pairing takes, with a key that is not weaker. A pairing
  /// asks again, also after digits, when the peer distributes the identity of another bonded device.
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
/// **Overview**: the pairing of a link, and its encryption. Vol 3, Part C, §10; Vol 6, Part B, §5.1.3.
///
/// **Function**: `manager` pairs. A Central starts the encryption, with the key of a bond or of the pairing; as a Peripheral
/// the host answers the controller's request for one of them. The controller reports the result.
///
/// **Phases** of the encryption: quiet → starting → quiet. The link's `security` changes only with the controller's report.
struct LinkProtection: ~Copyable {
  enum KeySource: BitwiseCopyable { case pairing, bond }
  enum Phase: BitwiseCopyable {
    case quiet
    /// The controllers are to encrypt the link with a key of this strength.
    case starting(KeyStrength, KeySource, deadline: Instant)
  }
  /// The procedure response time-out: Vol 6, Part B, §5.2.
  static var timeout: UInt64 { 40 }

  var manager: SecurityManager
  var phase = Phase.quiet
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
  /// Nothing is in progress.
  var isIdle: Bool {
    guard case .quiet = phase, delivery == nil else { return false }
    return manager.isIdle
  }
  /// The controllers are encrypting the link with the bond's key, and nothing else is in progress.
  var isEncryptingWithBond: Bool {
    guard case .starting(_, .bond, _) = phase, delivery == nil else { return false }
    return manager.isIdle
  }
  var deadline: Instant? {
    switch due {
    // `HostCore.demandSecurity`: at once.
    case .help: return .zero
    case .leave(let leaving): return .earliest(leaving.deadline, manager.deadline)
    case nil: break
    }
    guard case .starting(_, _, let deadline) = phase else { return manager.deadline }
    return .earliest(deadline, manager.deadline)
  }
}

extension PairingAddress {
  init(_ address: PeerAddress) { self.init(address.address, isRandom: address.isRandom) }
}
extension PeerAddress {
  init(_ address: PairingAddress) { self.init(address.address, address.isRandom ? .random : .public) }
}
