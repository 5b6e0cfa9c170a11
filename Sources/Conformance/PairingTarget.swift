import BindruneToolbox
import BindruneWire
import DequeModule
import BindruneSMP

/// Our own Security Manager under test: one channel 0x0006, in virtual time, without a controller.
///
/// It drives the machine as `HostCore` does: it drains PDUs and effects after every event. The script is the
/// application, the user and the controller.
public final class PairingTarget: VirtualTarget {
  private let role: PairingRole
  private let addresses: PairingAddresses
  private var manager: SecurityManager
  private var settings = PairingSettings()
  private var consents = true
  private var chance: Chance
  var now = Instant.zero
  private var packet = PacketBuffer(capacity: SecurityManager.longestPDU)

  var outgoing = Deque<[UInt8]>()
  var events = Deque<ApplicationEvent>()
  var results = Deque<ProcedureResult>()
  /// The key that an initiator has given to its controller.
  private var keyOfLink: SecurityKey?

  /// `seed` determines all that the stack draws at random.
  public init(_ roles: PairingRoles, seed: UInt64 = 1) {
    role = roles.role ?? .responder
    addresses = roles.addresses
    chance = Chance(seed: seed)
    // A script names what it needs more, and what it accepts less.
    settings.isBonding = false
    settings.distributes = []
    settings.requests = []
    settings.keySizes = .shortest...(.longest)
    manager = SecurityManager(role: role, addresses: addresses, settings: settings)
  }

  // MARK: The tester's side

  public func send(_ pdu: [UInt8]) throws(TargetError) {
    manager.receive(pdu.span, now: now, using: &chance)
    pump()
  }
  public func receive(within time: Duration) throws(TargetError) -> Received {
    nextPDU(within: time)
  }
  public func wait(_ time: Duration) throws(TargetError) { pass(time) }
  /// The link ends, and a new one begins. What the stack knows of failed attempts remains: Vol 3, Part H, §2.3.6.
  public func reconnect() throws(TargetError) {
    manager.linkClosed(now: now)
    let attempts = manager.attempts
    manager = SecurityManager(role: role, addresses: addresses, settings: settings, attempts: attempts)
    outgoing.removeAll()
    events.removeAll()
    results.removeAll()
    keyOfLink = nil
  }

  public func result(within time: Duration) throws(TargetError) -> ProcedureResult? {
    nextResult(within: time)
  }
  public func event(within time: Duration) throws(TargetError) -> ApplicationEvent? {
    nextEvent(within: time)
  }
  public func value(within time: Duration) throws(TargetError) -> ReceivedValue? {
    throw .unsupported("the channel smp carries no values")
  }
  public func key(within time: Duration) throws(TargetError) -> [UInt8]? {
    pass(time) { key != nil }
    return key.map { array($0.number) }
  }
  /// An initiator starts the encryption; a responder is asked for the key, with EDIV and Rand of 0.
  /// Vol 3, Part H, §2.4.4.
  private var key: SecurityKey? { role == .initiator ? keyOfLink : manager.key(ediv: 0, rand: 0) }

  public var takesCommands: Bool { true }
  public func perform(_ command: Command) throws(TargetError) {
    switch command {
    case .pairing(let option): try set(option)
    case .pair: start { manager throws(PairingRefusal) in try manager.pair(now: now) }
    case .requestSecurity: start { manager throws(PairingRefusal) in try manager.requestSecurity(now: now) }
    case .answer(let answer):
      guard take(answer) else { throw .failed("no question is open that this answers") }
    case .encryption(let isOn):
      if !isOn { keyOfLink = nil }
      manager.encryptionChanged(isEncrypted: isOn, now: now, using: &chance)
    case .mtu, .security, .signing, .authorized, .set, .notify, .indicate, .insert, .remove, .call, .channels:
      throw .unsupported("the channel smp has no \"\(command.script)\"")
    }
    pump()
  }

  private func start(_ body: (inout SecurityManager) throws(PairingRefusal) -> Void) {
    do throws(PairingRefusal) { try body(&manager) } catch { results.append(.failed("\(error)")) }
  }
  private func take(_ answer: UsersAnswer) -> Bool {
    switch answer {
    case .yes: manager.confirmNumbers(now: now)
    case .no: manager.refuse(now: now) || manager.refuseSecurityRequest()
    case .passkey(let passkey): manager.enter(passkey: passkey, now: now, using: &chance)
    case .keypress(let key): manager.notify(KeypressNotificationType(rawValue: key), now: now)
    }
  }

  private func set(_ option: PairingOption) throws(TargetError) {
    switch option {
    case .ioCapability(let io): settings.ioCapability = IOCapability(rawValue: io)
    case .protection(let protection): settings.protection = protection
    case .secureConnections(let secureConnections): settings.secureConnections = secureConnections
    case .bonding(let isOn): settings.isBonding = isOn
    case .keySizes(let sizes):
      guard let least = EncryptionKeySize(sizes.lowerBound),
        let most = EncryptionKeySize(sizes.upperBound)
      else { throw .failed("a key has 7 to 16 octets") }
      settings.keySizes = least...most
    case .keypresses(let isOn): settings.sendsKeypresses = isOn
    case .sends(let keys): settings.distributes = keys
    case .takes(let keys): settings.requests = keys
    case .identity(let pattern):
      let octets = pattern.octets ?? []
      guard octets.count == 23 else { throw .failed("an identity has 23 octets: IRK, address, its type") }
      settings.identity = PairingIdentity(
        irk: SecurityKey(number(Array(octets[..<16]))), address: PairingAddress(octets: Array(octets[16...])))
    case .peersData(let pattern):
      let octets = pattern.octets ?? []
      switch octets.count {
      case 16: settings.peersData = .legacy(SecurityKey(number(octets)))
      case 32:
        settings.peersData = .secureConnections(
          confirm: number(Array(octets[..<16])), random: SecurityKey(number(Array(octets[16...]))))
      default: throw .failed("out of band data have 16 octets, or 32 for LE Secure Connections")
      }
    case .ownData:
      let data = OwnOutOfBandData(using: &chance)
      settings.ownData = data
      events.append(ApplicationEvent(.showsData, array(data.confirm) + array(data.random.number)))
    case .requiresOutOfBand(let isOn): settings.requiresOutOfBand = isOn
    case .acceptsDebugKey(let isOn): settings.acceptsDebugKey = isOn
    case .accepts(let isOn): settings.acceptsPairing = isOn
    case .consents(let isOn): consents = isOn
    case .onDemand: throw .unsupported("pairing on-demand is a setting of a client")
    }
    manager.settings = settings
  }

  // MARK: Effects and time

  /// Repeats until nothing moves: PDUs to send, and effects.
  private func pump() {
    while true {
      if let effect = nextEffect() {
        handle(effect)
      } else if packet.fill({ manager.nextPDU(into: &$0, now: now) }) {
        outgoing.append(packet.bytes)
      } else {
        return
      }
    }
  }
  /// A function of its own, for the access to `manager` must end before `handle` begins one: the optimiser of Swift
  /// 6.3.1 extends it over the body of an `if let` whose condition makes it, and the program aborts.
  @inline(never) private func nextEffect() -> SecurityEffect? { manager.nextEffect() }

  private func handle(_ effect: SecurityEffect) {
    switch effect {
    case .requestConsent, .considerIdentity:
      _ = consents ? manager.accept(now: now, using: &chance) : manager.refuse(now: now)
    case .displayPasskey(let passkey): events.append(ApplicationEvent(.showsPasskey, array(UInt128(passkey), 4)))
    case .requestPasskey: events.append(ApplicationEvent(.asksPasskey))
    case .compareNumbers(let number): events.append(ApplicationEvent(.asksComparison, array(UInt128(number), 4)))
    case .considerSecurityRequest(let authReq): events.append(ApplicationEvent(.asksSecurity, [authReq.rawValue]))
    case .encrypt(let key): keyOfLink = key
    case .showKeypress(let key): events.append(ApplicationEvent(.showsKeypress, [key.rawValue]))
    case .completed(let result): results.append(.paired(PairedBy(result)))
    case .failed(let error):
      keyOfLink = nil
      results.append(ProcedureResult(error))
    case .resumed: results.append(.encrypted)
    case .report: break
    }
  }

  var deadline: Instant? { manager.deadline }
  func expire() {
    manager.expire(now: now)
    pump()
  }
}

extension ProcedureResult {
  fileprivate init(_ error: PairingError) {
    self =
      switch error {
      case .ours(let reason), .peers(let reason): .pairingFailed(reason)
      case .timedOut: .timeout
      case .encryptionFailed, .linkClosed: .failed("\(error)")
      }
  }
}

extension PairedBy {
  fileprivate init(_ result: PairingResult) {
    let method: Method =
      switch result.method {
      case .justWorks: .justWorks
      case .numericComparison: .numericComparison
      case .passkeyEntry: .passkeyEntry
      case .outOfBand: .outOfBand
      }
    self.init(method, isSecureConnections: result.isSecureConnections, keySize: result.keySize.count)
  }
}

/// Random numbers from a seed: AES-128 in counter mode.
private struct Chance: RandomNumberGenerator {
  private let cipher: AES128
  private var counter: UInt128 = 0

  init(seed: UInt64) { cipher = AES128(key: UInt128(seed)) }
  mutating func next() -> UInt64 {
    counter += 1
    return UInt64(truncatingIfNeeded: cipher.encrypt(counter))
  }
}
