import BindruneToolbox
import BindruneWire
import BindruneSMP
import TestSupport
import Testing

/// What goes wrong: every step of every way, in every manner. Nothing is kept, and each side gets one result.
@Suite struct FailureTests {
  /// The number of PDUs of a pairing that succeeds.
  private func count(_ way: Way) throws -> Int {
    let machines = way.machines()
    try machines.pair()
    return machines.sent.count
  }
  /// The PDUs of a passkey's first, second and last rounds stand for those of all.
  private func steps(_ way: Way) throws -> [Int] {
    let count = try count(way)
    return count < 40 ? Array(0..<count) : Array(0..<14) + Array(count - 16..<count)
  }
  /// Each side that has begun has ended once; only a side that has everything has completed.
  private func checkEnds(_ machines: TwoMachines, _ comment: String) {
    #expect(machines.ends(.initiator).count == 1, "\(comment): \(machines.effects)")
    let hasBegun = machines.effects.contains { if case .requestConsent = $0.effect { true } else { false } }
    #expect(machines.ends(.responder).count == (hasBegun ? 1 : 0), "\(comment): \(machines.effects)")
    for role in PairingRole.allCases {
      #expect(!machines.isPairing(role) && machines.deadline(role) == nil, "\(comment)")
    }
  }

  /// A peer that stops at each step: §3.4.
  @Test(arguments: Way.allCases) func silenceAtEachStep(_ way: Way) throws {
    for step in try steps(way) {
      let machines = way.machines()
      machines.carry = { number, _, octets in number < step ? octets : nil }
      try machines.pair()
      machines.expire()
      checkEnds(machines, "\(way), step \(step)")
      #expect(machines.now <= Instant.zero + .seconds(60))
      let sent = machines.sent.count
      for role in PairingRole.allCases where machines.failure(role) == .timedOut {
        // The channel is silent until the link ends.
        machines.receive(octets("01 03 00 0D 10 00 00"), role)
        machines.receive(octets("05 08"), role)
        #expect(machines.takeEffects(role) == [.report(.afterTimeOut(0x01)), .report(.afterTimeOut(0x05))])
        machines.carry = { _, _, octets in octets }
        machines.run()
        #expect(machines.sent.count == sent)
        if role == .initiator {
          #expect(throws: PairingRefusal.silent) { try machines.initiator.pair(now: machines.now) }
        } else {
          #expect(throws: PairingRefusal.silent) { try machines.responder.requestSecurity(now: machines.now) }
        }
      }
      #expect(machines.failure(.initiator) == .timedOut || machines.failure(.responder) == .timedOut, "\(way), \(step)")
    }
  }
  @Test(arguments: Way.allCases) func theLinkEndsAtEachStep(_ way: Way) throws {
    for step in try steps(way) {
      let machines = way.machines()
      machines.stop = step
      try machines.pair()
      machines.disconnect()
      checkEnds(machines, "\(way), step \(step)")
      #expect(machines.failure(.initiator) == .linkClosed, "\(way), step \(step)")
      #expect(machines.takePDU(.initiator) == nil && machines.takePDU(.responder) == nil)
      #expect(throws: PairingRefusal.silent) { try machines.initiator.pair(now: machines.now) }
    }
  }
  /// A PDU without its last octet: §3.5.5, Invalid Parameters.
  @Test(arguments: Way.allCases) func truncationAtEachStep(_ way: Way) throws {
    for step in try steps(way) {
      let machines = way.machines()
      machines.carry = { number, _, octets in number == step ? Array(octets.dropLast()) : octets }
      try machines.pair()
      let receiver: PairingRole = machines.sent[step].role == .initiator ? .responder : .initiator
      if step == 0 {
        #expect(machines.sent[1].octets == [0x05, 0x0A] && machines.failure(.initiator) == .peers(.invalidParameters))
        continue
      }
      let isLastWord = receiver == .responder && machines.codes[..<step].contains(.identityInformation)
      if isLastWord {
        // The initiator has sent all its keys before the responder can refuse one.
        checkEnds(machines, "\(way), step \(step)")
        #expect(machines.failure(.responder) == .ours(.invalidParameters) && machines.result(.initiator) != nil)
      } else {
        checkFailed(machines, .ours(.invalidParameters), at: receiver, "\(way), step \(step)")
      }
    }
  }
  /// A PDU of 128 or 256 bits with one bit changed: the reason is that of its check.
  @Test(arguments: Way.allCases) func aChangedBitAtEachStep(_ way: Way) throws {
    for step in try steps(way) {
      for bit in [0, 100] {
        let machines = way.machines()
        machines.carry = { number, _, octets in
          var octets = octets
          if number == step, octets.count >= 17 { octets[1 + bit / 8] ^= 1 << (bit % 8) }
          return octets
        }
        try machines.pair()
        let code = SMPCode(rawValue: machines.sent[step].octets[0])
        let sender = machines.sent[step].role, receiver: PairingRole = sender == .initiator ? .responder : .initiator
        let comment = "\(way), step \(step), \(code)"
        switch code {
        case .pairingConfirm: checkFailed(machines, .ours(.confirmValueFailed), at: receiver, comment)
        case .pairingRandom where way == .outOfBand, .pairingRandom where way.isUnchecked(sender):
          // The random number is no one's commitment: the DHKey checks differ, or the users see two numbers.
          if way == .numericComparison {
            let numbers = machines.effects.compactMap { if case .compareNumbers(let n) = $0.effect { n } else { nil } }
            #expect(numbers.count == 2 && numbers[0] != numbers[1], "\(comment)")
          }
          checkFailed(machines, .ours(.dhKeyCheckFailed), at: .responder, comment)
        case .pairingRandom: checkFailed(machines, .ours(.confirmValueFailed), at: receiver, comment)
        case .pairingPublicKey, .pairingDHKeyCheck:
          checkFailed(machines, .ours(.dhKeyCheckFailed), at: receiver, comment)
        default: #expect(machines.result(.initiator) != nil && machines.result(.responder) != nil, "\(comment)")
        }
      }
    }
  }
  private func checkFailed(_ machines: TwoMachines, _ error: PairingError, at role: PairingRole, _ comment: String) {
    checkEnds(machines, comment)
    #expect(machines.failure(role) == error, "\(comment)")
    guard case .ours(let reason) = error else { return }
    #expect(machines.failure(role == .initiator ? .responder : .initiator) == .peers(reason), "\(comment)")
    #expect(machines.result(.initiator) == nil && machines.result(.responder) == nil, "\(comment)")
  }

  /// A man in the middle changes what phase 1 says. Whatever he does, two results are the same or none is.
  @Test(arguments: Way.allCases) func changedFeatures(_ way: Way) throws {
    for pdu in 0..<2 {
      for octet in 1..<7 {
        for bit in 0..<8 {
          let machines = way.machines()
          machines.carry = { number, _, octets in
            var octets = octets
            if number == pdu { octets[octet] ^= 1 << bit }
            return octets
          }
          try machines.pair()
          machines.expire()
          let comment = "\(way), PDU \(pdu), octet \(octet), bit \(bit)"
          if let a = machines.result(.initiator), let b = machines.result(.responder) {
            // The key distribution and the key size are not authenticated by Secure Connections: §2.3.5.6.5.
            #expect(way.isSecureConnections && octet >= 4, "\(comment)")
            #expect(a.method == b.method && a.keySize == b.keySize, "\(comment)")
            #expect(a.ours.longTermKey == b.peers.longTermKey && a.ours.irk == b.peers.irk, "\(comment)")
          }
          #expect(machines.ends(.initiator).count == 1 && machines.ends(.responder).count <= 1, "\(comment)")
        }
      }
    }
  }

  /// The users enter other digits than those displayed.
  @Test(arguments: [
    Way.legacyPasskey, .legacyPasskeyFromInitiator, .passkeyFromInitiator, .passkeyFromResponder, .passkeyByBoth,
  ])
  func wrongPasskey(_ way: Way) throws {
    for change in [1, 1 << 19, 0x0FFF0] as [UInt32] {
      let machines = way.machines()
      machines.attend = { _, effect in effect != .requestPasskey }
      try machines.pair()
      let asked = machines.effects.filter { $0.effect == .requestPasskey }.map(\.role)
      let displayed = machines.effects.compactMap { if case .displayPasskey(let n) = $0.effect { n } else { nil } }
        .first
      for (number, role) in asked.enumerated() {
        #expect(machines.enter(((displayed ?? 7) ^ (number == 0 ? change : 0)) % 1_000_000, role))
        #expect(!machines.enter(1, role), "only once")
      }
      machines.run()
      checkEnds(machines, "\(way)")
      // The responder is the first to see the initiator's number.
      #expect(machines.failure(.responder) == .ours(.confirmValueFailed), "\(way), \(change)")
      // With Secure Connections a wrong passkey fails in the round of its first wrong bit: it reveals no later one.
      if way.isSecureConnections, change == 1 {
        #expect(machines.codes.filter { $0 == .pairingRandom }.count == 1)
      }
    }
  }
  /// What a user refuses, in each place, with its reason: §3.5.5.
  @Test(arguments: PairingRole.allCases) func refusals(_ role: PairingRole) throws {
    func check(_ way: Way, _ question: @escaping (SecurityEffect) -> Bool, _ reason: PairingFailure) throws {
      let machines = way.machines()
      var isAsked = false
      machines.attend = { asked, effect in
        guard asked == role, question(effect) else { return true }
        isAsked = true
        return false
      }
      try machines.pair()
      #expect(isAsked && machines.refuse(role))
      machines.run()
      checkFailed(machines, .ours(reason), at: role, "\(way)")
    }
    let passkey: Way = role == .initiator ? .passkeyFromResponder : .passkeyFromInitiator
    try check(passkey, { $0 == .requestPasskey }, .passkeyEntryFailed)
    if role == .initiator { try check(.legacyPasskey, { $0 == .requestPasskey }, .passkeyEntryFailed) }
    try check(
      .numericComparison, { if case .compareNumbers = $0 { true } else { false } }, .numericComparisonFailed)
    if role == .responder {
      try check(.justWorks, { if case .requestConsent = $0 { true } else { false } }, .pairingNotSupported)
    } else {
      try check(.justWorks, { if case .encrypt = $0 { true } else { false } }, .unspecifiedReason)
    }
    let idle = Way.justWorks.machines()
    #expect(idle.refuse(.responder) == false)
    #expect(!idle.enter(1, role) && !idle.notify(.cleared, role))
  }
  /// A number that is no passkey is no passkey.
  @Test func sevenDigits() throws {
    for way in [Way.legacyPasskey, .passkeyFromResponder] {
      let machines = way.machines()
      machines.attend = { _, effect in effect != .requestPasskey }
      try machines.pair()
      #expect(machines.enter(1_000_000, .initiator))
      machines.run()
      checkFailed(machines, .ours(.passkeyEntryFailed), at: .initiator, "\(way)")
    }
  }

  // MARK: Attacks

  /// CVE-2020-26558, CVE-2018-5383: the peer sends our own key back, with either Y, or a point beside the curve.
  @Test(arguments: PairingRole.allCases) func reflectedAndInvalidKeys(_ role: PairingRole) throws {
    for kind in ["reflected", "negated", "zero", "beside"] {
      let machines = Way.numericComparison.machines()
      var own: [UInt8] = []
      let step = role == .initiator ? 3 : 2
      if role == .responder {
        // The responder's key becomes known only afterwards; a twin with the same chance tells it.
        let twin = Way.numericComparison.machines()
        try twin.pair()
        own = twin.sent[3].octets
      }
      machines.carry = { number, _, octets in
        if number == 2, role == .initiator { own = octets }
        guard number == step else { return octets }
        switch kind {
        case "reflected": return own
        case "negated": return Array(own[..<33]) + negated(Array(own[33...]))
        case "zero": return [0x0C] + [UInt8](repeating: 0, count: 64)
        default: return Array(octets[..<64]) + [octets[64] ^ 1]
        }
      }
      try machines.pair()
      checkFailed(machines, .ours(.dhKeyCheckFailed), at: role, "\(kind)")
    }
  }
  /// p − Y, least significant octet first: the other point with the same X.
  private func negated(_ y: [UInt8]) -> [UInt8] {
    let p = octets("FFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF").reversed()
    var borrow = 0
    return zip(p, y).map { p, y in
      let difference = Int(p) - Int(y) - borrow
      borrow = difference < 0 ? 1 : 0
      return UInt8(truncatingIfNeeded: difference)
    }
  }
  /// A peer without the passkey sends back what we send: our confirm value, and our random number.
  @Test(arguments: [Way.legacyPasskey, .passkeyFromResponder, .passkeyByBoth])
  func reflectedConfirmValues(_ way: Way) throws {
    let machines = way.machines()
    var own: [UInt8] = []
    machines.carry = { _, from, octets in
      guard octets[0] == 0x03 else { return octets }
      if from == .initiator { own = octets }
      return from == .initiator ? octets : own
    }
    try machines.pair()
    checkFailed(machines, .ours(.confirmValueFailed), at: .initiator, "\(way)")
    #expect(!machines.codes.contains(.pairingRandom), "before it reveals anything")
  }
  @Test func repeatedNonces() throws {
    let machines = Way.outOfBand.machines()
    var own: [UInt8] = []
    machines.carry = { _, from, octets in
      guard octets[0] == 0x04 else { return octets }
      if from == .initiator { own = octets }
      return own
    }
    try machines.pair()
    checkFailed(machines, .ours(.confirmValueFailed), at: .initiator, "Out of Band")
  }
  /// A private address is no identity (§3.6.5), nor is an invalid static one (Vol 6, Part B, §1.3.2.1), nor what stands
  /// for no address, nor an address of ours; Key Rejected.
  @Test(arguments: [Way.justWorks, .legacyJustWorks], PairingRole.allCases)
  func anIdentityThatIsNone(_ way: Way, _ claimant: PairingRole) throws {
    let victim: PairingRole = claimant == .initiator ? .responder : .initiator
    let random: [UInt64] = [
      0x4000_5E00_5301, 0x0000_5E00_5301, 0x8000_5E00_5301, 0, 0xC000_0000_0000, 0xFFFF_FFFF_FFFF,
    ]
    let settings = way.settings
    let theirs = (victim == .initiator ? settings.initiator : settings.responder).identity?.address
    let onAir = victim == .initiator ? TwoMachines.addresses.initiator : TwoMachines.addresses.responder
    let hidden = PairingAddress(DeviceAddress(0x0000_5E00_53AA), isRandom: false)
    let claims =
      random.map { PairingAddress(DeviceAddress($0), isRandom: true) }
      + [0, 0xFFFF_FFFF_FFFF].map { PairingAddress(DeviceAddress($0), isRandom: false) }
      + [onAir, hidden, try #require(theirs)]
    for claim in claims {
      let machines = way.machines()
      machines.tell(claimant) { $0.settings.identity?.address = claim }
      machines.tell(victim) {
        $0.settings.ownIdentityAddress = hidden
        // The claimant would refuse its own lie.
        $0.settings.distributes.remove(.idKey)
      }
      try machines.pair()
      #expect(machines.failure(victim) == .ours(.keyRejected), "\(claim)")
      #expect(machines.result(victim) == nil, "\(claim)")
    }
  }
  /// A key before the link is encrypted, or out of its order, is not taken.
  @Test func keysOutOfPlace() throws {
    let early = Way.justWorks.machines()
    early.attend = { _, effect in if case .encrypt = effect { false } else { true } }
    try early.pair()
    early.receive(octets("08 9B 7D 39 0A A6 10 10 34 05 AD C8 57 A3 34 02 EC"), .initiator)
    early.run()
    checkFailed(early, .ours(.unspecifiedReason), at: .initiator, "early")

    let swapped = Way.justWorks.machines()
    swapped.carry = { _, from, octets in octets[0] == 0x08 && from == .responder ? nil : octets }
    try swapped.pair()
    checkFailed(swapped, .ours(.unspecifiedReason), at: .initiator, "swapped")
  }
  /// A response asks for a key that the request does not offer: §3.6.1.
  @Test func aResponseThatAsksForMore() throws {
    for octet in 5...6 {
      let machines = Way.justWorks.machines()
      machines.initiator.settings.distributes = [.idKey]
      machines.initiator.settings.requests = [.idKey]
      machines.carry = { number, _, octets in
        var octets = octets
        if number == 1 { octets[octet] |= 0x04 }
        return octets
      }
      try machines.pair()
      checkFailed(machines, .ours(.invalidParameters), at: .initiator, "octet \(octet)")
    }
  }
  /// A receiver ignores the reserved bits of key distribution: §3.6.1.
  @Test(arguments: [Way.legacyJustWorks, .justWorks]) func reservedBitsOfKeyDistribution(_ way: Way) throws {
    for pdu in 0...1 {
      for octet in 5...6 {
        for bit in 4..<8 {
          let machines = way.machines()
          machines.carry = { number, _, octets in
            var octets = octets
            if number == pdu { octets[octet] |= 1 << bit }
            return octets
          }
          try machines.pair()
          let comment = "\(pdu) \(octet) \(bit)"
          if way == .justWorks {
            for role in PairingRole.allCases { #expect(machines.result(role) != nil, "\(comment)") }
          } else {
            // Phase 1 has passed; c1 contains the octets, of which each side has others: §2.2.3.
            checkFailed(machines, .ours(.confirmValueFailed), at: .responder, comment)
          }
        }
      }
    }
  }
  @Test(arguments: [Way.legacyJustWorks, .justWorks]) func theEncryptionFails(_ way: Way) throws {
    let machines = way.machines()
    machines.attend = { _, effect in if case .encrypt = effect { false } else { true } }
    try machines.pair()
    for role in PairingRole.allCases { machines.encryptionChanged(false, role) }
    machines.run()
    checkEnds(machines, "\(way)")
    #expect(machines.failure(.initiator) == .encryptionFailed && machines.failure(.responder) == .encryptionFailed)
    #expect(!machines.codes.contains(.pairingFailed))
  }

  // MARK: Answers outside of a pairing: §3.3 and §3.5.5

  @Test func whatIsIgnoredAndWhatIsNot() {
    for role in PairingRole.allCases {
      let machines = Way.justWorks.machines()
      for code in 0...0xFF as ClosedRange<UInt8> where !(0x01...0x0E).contains(code) {
        machines.receive([code, 1, 2, 3], role)
        #expect(machines.takeEffects(role) == [.report(.reserved(SMPCode(rawValue: code)))])
      }
      machines.receive([], role)
      #expect(machines.takeEffects(role) == [.report(.empty)])
      // A failure is never answered with a failure, whole or not.
      machines.receive([0x05, 0x08], role)
      machines.receive([0x05], role)
      #expect(machines.takePDU(role) == nil)
    }
    let responder = Way.justWorks.machines()
    responder.receive([0x01, 0x03], .responder)
    #expect(responder.takePDU(.responder) == [0x05, 0x0A])
    responder.receive(octets("01 05 00 0D 10 00 00"), .responder)
    #expect(responder.takePDU(.responder) == [0x05, 0x0A], "a reserved IO capability")
    #expect(!responder.isPairing(.responder))
  }
  /// Requests that nobody takes the answers of do not fill the memory.
  @Test func answersAreBounded() {
    let machines = Way.justWorks.machines()
    machines.responder.settings.acceptsPairing = false
    for _ in 0..<1_000 { machines.receive(octets("01 03 00 0D 10 00 00"), .responder) }
    var answers = 0
    while machines.takePDU(.responder) == [0x05, 0x05] { answers += 1 }
    #expect(answers == 16)
  }

  // MARK: Repeated attempts: §2.3.6

  @Test func theWaitDoublesAndFades() throws {
    let machines = Way.legacyPasskey.machines()
    var waits: [Int] = []
    machines.attend = { _, effect in effect != .requestPasskey }
    for _ in 0..<12 {
      try machines.pair()
      let displayed = machines.effects.compactMap { if case .displayPasskey(let n) = $0.effect { n } else { nil } }
        .last!
      #expect(machines.enter(displayed ^ 1, .initiator))
      machines.run()
      #expect(machines.failure(.responder) == .ours(.confirmValueFailed))
      let next = try #require(machines.tell(.responder) { $0.attempts.nextAttempt(now: machines.now) })
      waits.append(Int((next - machines.now).components.seconds))
      // Both count: neither begins, and a peer that does not count is refused.
      #expect(throws: PairingRefusal.tooEarly(until: next)) { try machines.initiator.pair(now: machines.now) }
      #expect(throws: PairingRefusal.tooEarly(until: next)) {
        try machines.responder.requestSecurity(now: machines.now)
      }
      machines.receive(octets("01 03 00 0D 10 00 00"), .responder)
      #expect(machines.takePDU(.responder) == [0x05, 0x09])
      machines.now = next
    }
    #expect(waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 512, 512])
    // Nine quiet minutes after the last wait leave one failure.
    machines.now = machines.now + .seconds(9 * 60)
    try machines.pair()
    _ = machines.refuse(.initiator)
    machines.run()
    let next = try #require(machines.tell(.initiator) { $0.attempts.nextAttempt(now: machines.now) })
    #expect(next - machines.now == .seconds(2))
    // A success forgets them.
    machines.now = next
    machines.attend = { _, _ in true }
    try machines.pair()
    #expect(machines.result(.initiator) != nil)
    #expect(machines.tell(.initiator) { $0.attempts } == PairingAttempts())
  }
  /// What a user refuses before anything is guessed is no attempt.
  @Test func consentIsNoGuess() throws {
    let machines = Way.justWorks.machines()
    machines.attend = { _, effect in if case .requestConsent = effect { false } else { true } }
    try machines.pair()
    _ = machines.refuse(.responder)
    machines.run()
    #expect(machines.failure(.initiator) == .peers(.pairingNotSupported))
    #expect(machines.tell(.responder) { $0.attempts } == PairingAttempts())
    machines.attend = { _, _ in true }
    try machines.pair()
    #expect(machines.result(.initiator) != nil, "at once")
  }
  /// An initiator that asks for consent to Just Works sends nothing of phase 2 before it.
  @Test(arguments: [Way.legacyJustWorks, .justWorks]) func consentOfTheInitiator(_ way: Way) throws {
    for isRefused in [false, true] {
      let machines = way.machines()
      machines.initiator.settings.asksConsent = true
      machines.attend = { role, effect in
        if case .requestConsent = effect { role == .responder } else { true }
      }
      try machines.pair()
      #expect(machines.codes == [.pairingRequest, .pairingResponse])
      machines.attend = { _, _ in true }
      if isRefused {
        #expect(machines.refuse(.initiator))
        machines.run()
        #expect(machines.failure(.responder) == .peers(.pairingNotSupported))
        #expect(machines.failure(.initiator) == .ours(.pairingNotSupported))
      } else {
        #expect(machines.tell(.initiator) { $0.accept(now: machines.now, using: &machines.chance) })
        machines.run()
        #expect(machines.result(.initiator)?.method == .justWorks && machines.result(.responder) != nil)
      }
    }
  }
  /// A side that asks about identities sends nothing after the peer's before it has accepted it; refused, the pairing
  /// fails with Key Rejected: Vol 3, Part H, §3.5.5, §3.6.5.
  @Test(arguments: [Way.legacyJustWorks, .justWorks, .numericComparison], PairingRole.allCases)
  func consentToAnIdentity(_ way: Way, _ role: PairingRole) throws {
    for answer in ["accept", "refuse", "none"] {
      let machines = way.machines()
      machines.tell(role) { $0.settings.asksIdentity = true }
      machines.attend = { _, effect in if case .considerIdentity = effect { false } else { true } }
      try machines.pair()
      let identity = try #require(
        (role == .initiator ? way.settings.responder : way.settings.initiator).identity)
      let asked = machines.effects.compactMap { (of, effect) -> PairingRole? in
        effect == .considerIdentity ? of : nil
      }
      let open = machines.tell(role) { $0.openIdentity }
      #expect(open?.identity == identity && open?.method == way.method)
      #expect(asked == [role])
      #expect(machines.result(role) == nil && machines.isPairing(role))
      let sent = machines.sent.filter { $0.role == role }.compactMap { $0.octets.first }
      #expect(sent.contains(SMPCode.identityInformation.rawValue) == (role == .responder))
      switch answer {
      case "accept":
        #expect(machines.tell(role) { $0.accept(now: machines.now, using: &machines.chance) })
        machines.run()
        #expect(machines.result(.initiator) != nil && machines.result(.responder) != nil)
        #expect(machines.tell(role) { !$0.accept(now: machines.now, using: &machines.chance) })
      case "refuse":
        #expect(machines.refuse(role))
        machines.run()
        #expect(machines.failure(role) == .ours(.keyRejected) && machines.result(role) == nil)
        if role == .initiator { #expect(machines.failure(.responder) == .peers(.keyRejected)) }
        #expect(machines.tell(role) { $0.attempts.nextAttempt(now: machines.now) } != nil)
      default:
        machines.expire()
        #expect(machines.failure(role) == .timedOut && machines.result(role) == nil)
      }
    }
  }
  /// Just Works without a bond, where both can say so; else Authentication Requirements.
  @Test(arguments: Way.allCases, PairingRole.allCases) func bondsWithAuthenticationOnly(_ way: Way, _ role: PairingRole)
    throws
  {
    let machines = way.machines()
    machines.tell(role) { $0.settings.bondsUnauthenticated = false }
    try machines.pair()
    for role in PairingRole.allCases { #expect(machines.result(role)?.isBonding == way.method.isAuthenticated) }
    if way.method != .justWorks { return }
    #expect(machines.result(.initiator)?.peers.irk == nil && machines.result(.responder)?.peers.irk == nil)
    // It could compare digits, and the peer cannot.
    let hoping = way.machines()
    hoping.tell(role) {
      $0.settings.bondsUnauthenticated = false
      $0.settings.ioCapability = .keyboardDisplay
    }
    try hoping.pair()
    if role == .initiator {
      #expect(hoping.failure(.initiator) == .ours(.authenticationRequirements))
    } else {
      #expect(hoping.result(.initiator)?.isBonding == false && hoping.result(.responder)?.isBonding == false)
    }
  }
  /// After failures with others the peer's requests get Repeated Attempts, but not a pairing that this side has asked
  /// for.
  @Test func busyWithOthers() throws {
    let machines = Way.justWorks.machines()
    machines.now = machines.now.adding(seconds: 100)
    machines.responder.busyUntil = machines.now.adding(seconds: 1)
    try machines.pair()
    #expect(machines.failure(.initiator) == .peers(.repeatedAttempts))
    try machines.responder.requestSecurity(now: machines.now)
    machines.run()
    #expect(machines.result(.initiator) != nil)
    machines.now = machines.now.adding(seconds: 1)
    try machines.pair()
    #expect(machines.ends(.initiator).count == 3 && machines.result(.responder) != nil)
  }
  /// An allowance, then 1, 2, 4 … 64 s; each quiet minute forgets one.
  @Test func attemptsOfAll() throws {
    var attempts = PairingAttempts(allowance: 2), now = Instant.zero.adding(seconds: 10), waits: [Duration] = []
    for _ in 0..<12 {
      attempts.recordFailure(now: now)
      waits.append(attempts.nextAttempt(now: now).map { $0 - now } ?? .zero)
    }
    #expect(waits == [0, 0, 1, 2, 4, 8, 16, 32, 64, 64, 64, 64].map { .seconds($0) })
    now = now.adding(seconds: 64 + 60 * 20)
    attempts.recordFailure(now: now)
    #expect(attempts.nextAttempt(now: now) == nil)
    // The allowance comes back, too.
    attempts.recordFailure(now: now)
    now = now.adding(seconds: 60)
    attempts.recordFailure(now: now)
    #expect(attempts.nextAttempt(now: now) == nil)
  }
  /// Digits are consent enough, and a user who has asked for the pairing is not asked again.
  @Test func noConsentOfTheInitiator() throws {
    for (way, asksConsent) in [(Way.numericComparison, true), (.passkeyFromInitiator, true), (.justWorks, false)] {
      let machines = way.machines()
      machines.initiator.settings.asksConsent = asksConsent
      try machines.pair()
      #expect(machines.result(.initiator) != nil)
      let asked = machines.effects.filter { if case .requestConsent = $0.effect { true } else { false } }
      #expect(asked.map(\.role) == [.responder])
    }
  }
}

extension Way {
  /// Whether the random number of `sender` has no confirm value: Numeric Comparison and Just Works of Secure
  /// Connections have the responder's only.
  fileprivate func isUnchecked(_ sender: PairingRole) -> Bool {
    isSecureConnections && sender == .initiator && (method == .justWorks || method == .numericComparison)
  }
}
