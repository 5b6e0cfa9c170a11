import BindruneWire
import BindruneGAP
import BindruneSMP

/// Answers for a program's user when a device pairs. Vol 3, Part C, §5.2.2.4; Vol 3, Part H, §2.3.5.
///
///     struct Screen: PairingAgent {
///       var ioCapability: IOCapability { .displayYesNo }
///       func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer? {
///         switch question {
///         case .consent(_, replaces: let bond?) where !bond.isProven:
///           await ask("Is this the device that replaces \(bond.address)?") ? .consent : .refuse
///         case .consent: .consent
///         case .compare(let number): await ask("Does the device show \(number)?") ? .numbersMatch : .refuse
///         default: nil
///         }
///       }
///     }
public protocol PairingAgent: Sendable {
  /// What the program can show and ask: it decides by which method devices pair.
  var ioCapability: IOCapability { get }
  /// False: no device pairs, whichever side begins. Default: true.
  var permitsPairing: Bool { get }
  /// The answer; nil if the question needs none. The pairing times out 30 s after the last step. If it ends before the
  /// answer, the task of this call is cancelled.
  func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer?
  /// Nothing is left to show; nil: the devices have paired.
  func pairingEnded(on link: Link, _ error: BluetoothError?) async
}
extension PairingAgent {
  public var permitsPairing: Bool { true }
  public func pairingEnded(on link: Link, _ error: BluetoothError?) async {}
}

/// The agent of a program without one: it lets devices pair without a user, by Just Works, which a man in the middle
/// can imitate. So such a pairing does not open characteristics that need authentication. Without a user nobody can say
/// that a device has been reset, so it refuses to replace a bond, unless the peer has proven with the bond's key to be
/// the bonded device: remove the bond first (Decision 0060).
public struct JustWorksAgent: PairingAgent {
  public init() {}
  public var ioCapability: IOCapability { .noInputNoOutput }
  public func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer? {
    guard case .consent(_, let replaced) = question else { return .refuse }
    return replaced?.isProven ?? true ? .consent : .refuse
  }
}

extension Link {
  /// What protects the link now.
  public var security: LinkSecurity { get async { await host.security(of: id) } }

  /// Pairs with the peer, and keeps the keys unless one side does not want that. A peripheral asks the central to pair,
  /// or to encrypt with the bond. Returns what protects the link then.
  ///
  /// `settings`: for this pairing; nil: `HostConfiguration.pairing`. The new key is never weaker than that of a bond
  /// with the peer: to permit a weaker one, `BluetoothHost.removeBond` first.
  @discardableResult
  public func pair(_ settings: PairingSettings? = nil) async throws(BluetoothError) -> LinkSecurity {
    try await host.request(.pair(id, settings), \.security)
  }
  /// Forgets the bond with the peer; false if there is none. What protects the link now continues to.
  @discardableResult
  public func unpair() async -> Bool { await host.removeBond(with: peer) }
  /// Encrypts the link with the key of the bond with its peer. A central does so by itself as soon as the link is up.
  @discardableResult
  public func encrypt() async throws(BluetoothError) -> LinkSecurity {
    try await host.request(.encrypt(id), \.security)
  }
}

extension BluetoothHost {
  package func security(of link: LinkID) -> LinkSecurity { core.security(of: link) ?? .none }

  /// The bonds of this host, the longest unused first.
  public var bonds: [Bond] { core.allBonds }
  /// Forgets the bond with this peer; false if there is none. A link that it encrypts stays encrypted.
  @discardableResult public func removeBond(with peer: PeerID) -> Bool {
    perform { core, now in core.removeBond(with: peer, now: now) }
  }

  /// Bonds that were stored.
  func add(_ bonds: [Bond]) {
    for bond in bonds {
      do throws(BluetoothError) {
        try changeIdentities("add the bond with \(bond.address)") { (core, now) throws(IdentityError) in
          try core.add(bond, now: now)
        }
      } catch {
        logger.error("\(error)")
      }
    }
  }
  /// Stores a bond that is new or has changed, or removes it. The task's value is the failure, which is logged.
  @discardableResult func storeBond(_ peer: PeerID) -> Task<BluetoothError?, Never> {
    let bond = core.bond(with: peer), adapter = core.identityAddress, earlier = savingBonds, bondStore = bondStore
    let saving = Task { () -> BluetoothError? in
      _ = await earlier?.value
      do throws(BluetoothError) {
        guard let bond else {
          try await bondStore?.remove(peer, of: adapter)
          return nil
        }
        for forgotten in try await bondStore?.save(bond, of: adapter) ?? [] {
          logger.notice("forgot the bond with \(forgotten), because the store is full")
          removeBond(with: forgotten)
        }
        core.stored(bond)
        return nil
      } catch {
        logger.error("\(error)")
        return error
      }
    }
    savingBonds = saving
    return saving
  }

  // MARK: Questions

  /// Has the agent answer.
  func ask(_ question: PairingQuestion, of id: LinkID) {
    report(.pairingAsked(id, question))
    guard let link = link(id) else { return }
    let agent = agent
    let task = Task {
      guard let answer = await agent.answer(question, from: link), !Task.isCancelled else { return }
      if case .consent(_, let bond?) = question, case .refuse = answer {
        logger.notice(
          """
          \(id): refused to replace the bond with \(bond); if the device is to pair anew, remove that bond, or have a \
          user answer
          """
        )
      }
      _ = self.perform { core, now in core.answer(answer, on: id, now: now) }
    }
    linkStates[id]?.questions.append(task)
  }
  func pairingEnded(on id: LinkID, _ error: PairingError?) {
    let error = error.map { BluetoothError($0).during("pair with \(peerText(id))") }
    linkStates[id]?.endQuestions()
    report(.pairingEnded(id, error))
    guard let link = link(id) else { return }
    let agent = agent
    Task { await agent.pairingEnded(on: link, error) }
    logger.info("\(id): \(error.map { "\($0)" } ?? "paired with \(peerText(id))")")
  }
}

extension BluetoothError {
  init(_ error: PairingError) {
    self =
      switch error {
      case .ours(let reason):
        BluetoothError(.pairing, "This host ended the pairing, \(reason)\(Self.ownCure(for: reason)).")
      case .peers(let reason):
        BluetoothError(.pairing, "The device ended the pairing, \(reason)\(Self.cure(for: reason)).")
      case .timedOut:
        BluetoothError(.pairing, "No answer came for 30 s, and this link cannot pair any more: connect again.")
      case .encryptionFailed:
        BluetoothError(.pairing, "The controllers could not encrypt the link with the new key: pair again.")
      case .linkClosed: BluetoothError(.disconnected, "The link went down during the pairing: connect again.")
      }
  }
  init(_ refusal: PairingRefusal) {
    self =
      switch refusal {
      case .wrongRole: BluetoothError(.invalidArgument, "Only a central pairs, and only a peripheral asks for it.")
      case .busy: BluetoothError(.busy, "The link is being paired already: wait for the end.")
      case .tooEarly: BluetoothError(.pairing, "The last pairing has failed too short a time ago: wait, and try again.")
      case .silent:
        BluetoothError(.pairing, "A pairing, or the request for one, has timed out on this link: connect again.")
      case .noRandomNumbers:
        BluetoothError(.pairing, "The host has no random numbers for keys: give it a generator when you make it.")
      }
  }
  /// What the user can do about a pairing that this host has ended.
  private static func ownCure(for reason: PairingFailure) -> String {
    switch reason {
    // Vol 3, Part H, §3.5.5: the user has refused, or the settings do.
    case .pairingNotSupported:
      ": its user refused, its settings accept no pairing, or a bond would have been replaced that no user has given up; "
        + "allow it, or remove the bond, and pair again"
    case .keyRejected:
      ": the device distributed an identity that is another bonded device's, or that none can have; if it is that "
        + "device, remove the bond, and pair again"
    default: cure(for: reason)
    }
  }
  /// What the user can do about it.
  private static func cure(for reason: PairingFailure) -> String {
    switch reason {
    case .passkeyEntryFailed, .confirmValueFailed, .numericComparisonFailed: ": compare the digits, and pair again"
    case .authenticationRequirements:
      ": one side needs digits that the other can neither show nor take, or a stronger key"
    case .pairingNotSupported: ": bring the device into its pairing mode"
    case .repeatedAttempts: ": wait, and pair again"
    default: ""
    }
  }
}
