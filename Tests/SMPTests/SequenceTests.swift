import BindruneToolbox
import BindruneWire
import BindruneSMP
import TestSupport
import Testing

/// One machine against a peer and a user who do anything. `BINDRUNE_FUZZ_CASES` sets the number of sequences.
@Suite struct SequenceTests {
  /// Random PDUs, answers, silences and ends of the link: no trap; every pairing and every Security Request ends
  /// exactly once; keys leave only over an encrypted link; what waits is bounded; a time-out silences the channel.
  @Test func anySequence() throws {
    let cases = Fuzz.pairings
    print("pairings: \(cases) sequences, seed \(Fuzz.seed)")
    let samples = try VectorFile("smp.txt").vectors.map(\.octets)
    var completed = 0, failed: [String: Int] = [:]
    for number in 0..<cases {
      var subject = Subject(seed: Fuzz.seed &* 1_000_003 &+ UInt64(number), samples)
      subject.run(steps: 40)
      #expect(subject.wrong.isEmpty, "sequence \(number), seed \(Fuzz.seed): \(subject.wrong)")
      completed += subject.completed
      for failure in subject.failures { failed["\(failure)", default: 0] += 1 }
    }
    print("pairings: \(completed) completed, \(failed.values.reduce(0, +)) failed in \(failed.count) ways")
    // The sequences get somewhere.
    if cases >= 2_000 { #expect(failed.count >= 12 && completed > cases / 100, "\(completed), \(failed)") }
  }
}

/// A machine, a peer that is another one half of the time and nobody's the other half, and a user.
private struct Subject: ~Copyable {
  var chance: SplitMix64
  let role: PairingRole
  var machine: SecurityManager
  var peer: SecurityManager
  let samples: [[UInt8]]
  var now = Instant.zero
  /// Pairings and Security Requests that have begun and not ended.
  var open = 0
  var isEncrypted = false
  var hasTimedOut = false
  var completed = 0
  var failures: [PairingError] = []
  var wrong: [String] = []
  var passkey: UInt32 = 0

  init(seed: UInt64, _ samples: [[UInt8]]) {
    chance = SplitMix64(seed: seed)
    self.samples = samples
    role = Bool.random(using: &chance) ? .initiator : .responder
    let ways = [
      Way.legacyJustWorks, .legacyPasskey, .legacyOutOfBand, .legacyJustWorks, .legacyPasskey, .justWorks,
      .numericComparison,
    ]
    let settings = ways.randomElement(using: &chance)!.settings
    let (own, others) =
      role == .initiator ? (settings.initiator, settings.responder) : (settings.responder, settings.initiator)
    machine = SecurityManager(role: role, addresses: TwoMachines.addresses, settings: own)
    peer = SecurityManager(
      role: role == .initiator ? .responder : .initiator, addresses: TwoMachines.addresses, settings: others)
  }

  mutating func run(steps: Int) {
    // Most sequences are honest for a while.
    let isHonest = UInt8.random(in: 0..<4, using: &chance) > 0
    if isHonest { begin() }
    let honest = isHonest ? Int.random(in: 0..<steps, using: &chance) : 0
    for step in 0..<steps {
      if step < honest { exchange() } else { disturb() }
      takeEffects()
    }
    machine.linkClosed(now: now)
    takeEffects()
    if open != 0 { wrong.append("\(open) without an end") }
    if machine.takePDU(now) != nil { wrong.append("a PDU after the end of the link") }
  }
  private mutating func begin() {
    do throws(PairingRefusal) {
      if role == .initiator {
        try machine.pair(now: now)
      } else {
        try peer.pair(now: now)
        return
      }
      open += 1
    } catch {}
  }
  /// One PDU each way, and the peer's user.
  private mutating func exchange() {
    if let pdu = machine.takePDU(now) { peer.receive(pdu.span, now: now, using: &chance) }
    answerAsPeer()
    if let pdu = peer.takePDU(now) { machine.receive(pdu.span, now: now, using: &chance) }
  }
  private mutating func answerAsPeer() {
    while let effect = peer.nextEffect() {
      switch effect {
      case .requestConsent: _ = peer.accept(now: now, using: &chance)
      case .displayPasskey(let displayed): passkey = displayed
      case .requestPasskey: _ = peer.enter(passkey: passkey, now: now, using: &chance)
      case .compareNumbers: _ = peer.confirmNumbers(now: now)
      case .encrypt(let key): encrypt(machine.key(ediv: 0, rand: 0) == key)
      default: break
      }
    }
  }
  private mutating func encrypt(_ isEncrypted: Bool) {
    self.isEncrypted = isEncrypted
    machine.encryptionChanged(isEncrypted: isEncrypted, now: now, using: &chance)
    peer.encryptionChanged(isEncrypted: isEncrypted, now: now, using: &chance)
  }
  private mutating func disturb() {
    switch UInt8.random(in: 0..<16, using: &chance) {
    case 0: begin()
    case 1:
      do throws(PairingRefusal) {
        try machine.requestSecurity(now: now)
        open += 1
      } catch {}
    case 2: _ = machine.accept(now: now, using: &chance)
    case 3: _ = machine.enter(passkey: Bool.random(using: &chance) ? passkey : 7, now: now, using: &chance)
    case 4: _ = machine.confirmNumbers(now: now)
    case 5: _ = machine.refuse(now: now)
    case 6: _ = machine.notify(.digitEntered, now: now)
    case 7: if Bool.random(using: &chance) { encrypt(.random(using: &chance)) }
    case 8:
      now = now + .seconds(Int.random(in: 0...40, using: &chance))
      machine.expire(now: now)
      peer.expire(now: now)
    case 9, 10, 11: exchange()
    default:
      var pdu = samples.randomElement(using: &chance)!
      if Bool.random(using: &chance) {
        pdu[Int.random(in: 0..<pdu.count, using: &chance)] ^= 1 << UInt8.random(in: 0..<8, using: &chance)
      }
      if UInt8.random(in: 0..<8, using: &chance) == 0 { pdu.removeLast() }
      machine.receive(pdu.span, now: now, using: &chance)
    }
  }
  private mutating func takeEffects() {
    while let effect = machine.nextEffect() {
      switch effect {
      case .requestConsent, .considerIdentity:
        // A Security Request becomes the pairing.
        if open == 0 { open = 1 }
        if UInt8.random(in: 0..<4, using: &chance) > 0 { _ = machine.accept(now: now, using: &chance) }
      case .displayPasskey(let displayed): passkey = displayed
      case .requestPasskey:
        if Bool.random(using: &chance) { _ = machine.enter(passkey: passkey, now: now, using: &chance) }
      case .compareNumbers: if Bool.random(using: &chance) { _ = machine.confirmNumbers(now: now) }
      case .encrypt(let key):
        if UInt8.random(in: 0..<4, using: &chance) > 0 { encrypt(peer.key(ediv: 0, rand: 0) == key) }
      case .completed:
        completed += 1
        open -= 1
        if !isEncrypted { wrong.append("completed without encryption") }
      case .failed(let error):
        failures.append(error)
        open -= 1
      case .resumed: open -= 1
      case .considerSecurityRequest, .showKeypress, .report: break
      }
    }
    if !(0...1).contains(open) { wrong.append("\(open) open") }
    if machine.isPairing, machine.deadline == nil || open == 0 { wrong.append("a pairing without deadline or request") }
  }
}
