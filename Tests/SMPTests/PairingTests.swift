import BindruneToolbox
import BindruneWire
import BindruneSMP
import TestSupport
import Testing

/// Two machines pair: every way, every combination of capabilities.
@Suite struct PairingTests {
  /// 5 × 5 IO capabilities × (legacy, Secure Connections, only one side has them) × MITM of either side.
  @Test(arguments: IOCapability.all) func everyCombination(_ io: IOCapability) throws {
    for other in IOCapability.all {
      for (i, r) in [(false, false), (true, true), (true, false)] {
        for mitm in 0..<4 {
          let machines = TwoMachines(
            .all(io, sc: i ? .supported : .off, mitm & 1 == 0 ? .notNeeded : .wanted, identity: 1),
            .all(other, sc: r ? .supported : .off, mitm & 2 == 0 ? .notNeeded : .wanted, identity: 2),
            seed: UInt64(mitm))
          try machines.pair()
          let sc = i && r
          let method = mitm == 0 ? .justWorks : MethodTableTests.expected(io, other, sc: sc)
          checkCompleted(machines, method, sc: sc, "\(io), \(other), sc \(sc), mitm \(mitm)")
        }
      }
    }
  }
  @Test(arguments: Way.allCases) func everyWay(_ way: Way) throws {
    let machines = way.machines()
    try machines.pair()
    checkCompleted(machines, way.method, sc: way.isSecureConnections, "\(way)")
    let confirms = machines.codes.filter { $0 == .pairingConfirm }.count
    let expected =
      switch (way, way.method) {
      case (_, .passkeyEntry) where way.isSecureConnections: 40
      case (.outOfBand, _): 0
      default: way.isSecureConnections ? 1 : 2
      }
    #expect(confirms == expected)

    // No text shows a key, nor does a dump.
    let results = PairingRole.allCases.compactMap(machines.result)
    var text = "\(machines.effects) \(way.settings) \(results)"
    dump(machines.effects, to: &text)
    dump(way.settings, to: &text)
    var keys = results.flatMap { [$0.ours, $0.peers] }.flatMap { [$0.longTermKey?.key, $0.irk, $0.csrk] }
    keys += [machines.linkKey, way.settings.initiator.ownData?.random]
    for key in keys.compactMap({ $0?.number }) {
      #expect(key > 0xFFFF_FFFF && !text.contains("\(key)") && !text.contains(String(key, radix: 16)), "\(way)")
    }
  }

  /// Both have what was agreed on, the same keys, and each side's distributed keys as the other's received ones.
  private func checkCompleted(
    _ machines: TwoMachines, _ method: PairingMethod, sc: Bool, _ comment: String
  ) {
    let (a, b) = (machines.result(.initiator), machines.result(.responder))
    guard let a, let b, machines.ends(.initiator).count == 1, machines.ends(.responder).count == 1 else {
      Issue.record("\(comment): \(machines.effects)")
      return
    }
    #expect(a.method == method && b.method == method, "\(comment)")
    #expect(a.isSecureConnections == sc && b.isSecureConnections == sc, "\(comment)")
    #expect(a.isAuthenticated == (method != .justWorks) && a.isAuthenticated == b.isAuthenticated, "\(comment)")
    #expect(a.keySize == .longest && a.isBonding && b.isBonding, "\(comment)")
    #expect(a.ours == b.peers && a.peers == b.ours, "\(comment)")
    for keys in [a.ours, a.peers] {
      #expect(keys.longTermKey != nil && keys.irk != nil && keys.identityAddress != nil && keys.csrk != nil)
      #expect((keys.longTermKey?.ediv == 0 && keys.longTermKey?.rand == 0) == sc, "\(comment)")
    }
    #expect(a.ours.csrk != a.peers.csrk && a.ours.irk != a.peers.irk)
    #expect((a.ours.longTermKey == a.peers.longTermKey) == sc, "\(comment)")
    #expect((machines.linkKey == a.ours.longTermKey?.key) == sc, "\(comment)")
    let phase2: [SMPCode] =
      sc ? [.encryptionInformation, .centralIdentification] : [.pairingPublicKey, .pairingDHKeyCheck]
    for code in phase2 { #expect(!machines.codes.contains(code), "\(comment)") }
    let keys: [SMPCode] =
      (sc ? [] : [.encryptionInformation, .centralIdentification])
      + [.identityInformation, .identityAddressInformation, .signingInformation]
    #expect(machines.codes.suffix(2 * keys.count) == keys + keys, "\(comment)")
    #expect(machines.sent.suffix(2 * keys.count).map(\.role).first == .responder)
    #expect(!machines.isPairing(.initiator) && !machines.isPairing(.responder))
    #expect(machines.deadline(.initiator) == nil && machines.deadline(.responder) == nil)
  }

  /// Users see what they have to compare, and only then.
  @Test func bothSeeTheSameNumber() throws {
    for seed in 0..<20 as Range<UInt64> {
      let machines = Way.numericComparison.machines(seed: seed)
      try machines.pair()
      let numbers = machines.effects.compactMap { if case .compareNumbers(let n) = $0.effect { n } else { nil } }
      #expect(numbers.count == 2 && Set(numbers).count == 1 && numbers[0] < 1_000_000)
    }
  }

  /// No keys are asked for, or none are to be kept.
  @Test(arguments: [Way.legacyJustWorks, .justWorks]) func withoutBonding(_ way: Way) throws {
    for (i, r) in [(false, true), (true, false), (false, false)] {
      let machines = way.machines()
      machines.initiator.settings.isBonding = i
      machines.responder.settings.isBonding = r
      try machines.pair()
      let a = try #require(machines.result(.initiator)), b = try #require(machines.result(.responder))
      #expect(!a.isBonding && !b.isBonding && a.ours.irk == nil && b.peers.csrk == nil)
      #expect(!machines.codes.contains(.identityInformation) && !machines.codes.contains(.encryptionInformation))
      #expect(machines.linkKey != nil)
    }
  }
  /// Keys one way only; an IRK of zeros is no IRK; a link key is never promised.
  @Test(arguments: [Way.legacyJustWorks, .justWorks]) func keysOfOneSide(_ way: Way) throws {
    for isInitiators in [false, true] {
      let machines = way.machines()
      machines.initiator.settings.distributes = isInitiators ? [.idKey, .linkKey] : []
      machines.responder.settings.distributes = isInitiators ? [] : [.idKey, .linkKey]
      machines.initiator.settings.requests = [.encKey, .idKey, .linkKey]
      machines.initiator.settings.identity?.irk = SecurityKey(0)
      try machines.pair()
      let a = try #require(machines.result(.initiator))
      #expect((a.ours.identityAddress != nil) == isInitiators && (a.peers.identityAddress != nil) == !isInitiators)
      #expect(a.ours.irk == nil && (a.peers.irk != nil) == !isInitiators)
      #expect(machines.result(.responder)?.peers.irk == nil)
      #expect(machines.sent[1].octets[5] & 0x08 == 0 && machines.sent[1].octets[6] & 0x08 == 0)
    }
  }

  /// The shorter of both lengths, and the key with only so many octets; one that is too short fails the pairing.
  @Test(arguments: [Way.legacyJustWorks, .justWorks]) func keySizes(_ way: Way) throws {
    for octets in 7...16 {
      let size = EncryptionKeySize(octets)!
      for isInitiators in [false, true] {
        let machines = way.machines()
        machines.initiator.settings.keySizes = .shortest...(isInitiators ? size : .longest)
        machines.responder.settings.keySizes = .shortest...(isInitiators ? .longest : size)
        try machines.pair()
        let a = try #require(machines.result(.initiator)), key = try #require(machines.linkKey)
        #expect(a.keySize == size && machines.result(.responder)?.keySize == size)
        #expect(key == key.reduced(to: octets) && (octets == 16 || key.number >> (8 * octets) == 0))
        #expect(key.number >> (8 * (octets - 1)) != 0, "not shorter either (1 in 256 would be)")
        for ltk in [a.ours.longTermKey, a.peers.longTermKey] { #expect(ltk?.key == ltk?.key.reduced(to: octets)) }
      }
      for (isInitiators, isOnly) in [(false, false), (true, false), (false, true), (true, true)] where octets < 16 {
        if isOnly, !way.isSecureConnections { continue }
        let machines = way.machines()
        let demands: (inout PairingSettings) -> Void = {
          if isOnly { $0.secureConnections = .only } else { $0.keySizes = EncryptionKeySize(octets + 1)!...(.longest) }
        }
        if isInitiators {
          demands(&machines.initiator.settings)
          machines.responder.settings.keySizes = .shortest...size
        } else {
          demands(&machines.responder.settings)
          machines.initiator.settings.keySizes = .shortest...size
        }
        try machines.pair()
        #expect(
          machines.failure(isInitiators ? .initiator : .responder) == (isInitiators ? .ours(.encryptionKeySize) : nil))
        #expect(machines.failure(.initiator) == (isInitiators ? .ours(.encryptionKeySize) : .peers(.encryptionKeySize)))
        #expect(machines.linkKey == nil)
      }
    }
  }

  /// Shorter keys are the application's choice: without it, either side refuses a peer that offers 15 octets.
  @Test(arguments: [Way.legacyJustWorks, .justWorks], [false, true])
  func keysOf16Octets(_ way: Way, isInitiators: Bool) throws {
    let machines = way.machines(), size = EncryptionKeySize(15)!
    if isInitiators {
      machines.responder.settings.keySizes = .shortest...size
    } else {
      machines.initiator.settings.keySizes = .shortest...size
    }
    try machines.pair()
    #expect(
      machines.failure(isInitiators ? .initiator : .responder) == (isInitiators ? .ours(.encryptionKeySize) : nil))
    #expect(machines.failure(.initiator) == (isInitiators ? .ours(.encryptionKeySize) : .peers(.encryptionKeySize)))
    #expect(machines.linkKey == nil)
  }

  /// What one side demands and the other does not have.
  @Test func demands() throws {
    func check(
      _ i: PairingSettings, _ r: PairingSettings, _ reason: PairingFailure, byInitiator: Bool, line: Int = #line
    ) throws {
      let machines = TwoMachines(i, r)
      try machines.pair()
      #expect(machines.failure(.initiator) == (byInitiator ? .ours(reason) : .peers(reason)), "line \(line)")
      // A responder that refuses the request has not begun.
      #expect(machines.failure(.responder) == (byInitiator ? .peers(reason) : nil), "line \(line)")
      #expect(!machines.codes.contains(.pairingConfirm) && machines.linkKey == nil)
    }
    let requires = PairingSettings.all(.keyboardDisplay, .required), none = PairingSettings.all(.noInputNoOutput)
    try check(requires, none, .authenticationRequirements, byInitiator: true)
    try check(none, requires, .authenticationRequirements, byInitiator: false)
    let only = PairingSettings.all(sc: .only), legacy = PairingSettings.all(sc: .off)
    try check(only, legacy, .authenticationRequirements, byInitiator: true)
    try check(legacy, only, .authenticationRequirements, byInitiator: false)
    var needsData = PairingSettings.all()
    needsData.requiresOutOfBand = true
    try check(needsData, none, .oobNotAvailable, byInitiator: true)
    try check(none, needsData, .oobNotAvailable, byInitiator: false)
    // Data of the other kind, and data of us that we have not given.
    var hasLegacyData = PairingSettings.all()
    hasLegacyData.peersData = .legacy(SecurityKey(1))
    try check(hasLegacyData, none, .oobNotAvailable, byInitiator: false)
    try check(none, hasLegacyData, .oobNotAvailable, byInitiator: false)
    var closed = PairingSettings.all()
    closed.acceptsPairing = false
    try check(none, closed, .pairingNotSupported, byInitiator: false)
  }

  /// Vol 3, Part C, §10.2.4: Secure Connections, authenticated, 16 octets.
  @Test func secureConnectionsOnly() throws {
    let machines = Way.numericComparison.machines()
    for role in PairingRole.allCases {
      machines.tell(role) {
        $0.settings.secureConnections = .only
        $0.settings.protection = .required
      }
    }
    try machines.pair()
    let result = try #require(machines.result(.initiator))
    #expect(result.isSecureConnections && result.isAuthenticated && result.keySize == .longest)
  }
  /// Only one side has the other's data: enough for Secure Connections, in either direction.
  @Test func dataOfOneSide() throws {
    for isInitiators in [false, true] {
      var (i, r) = Way.outOfBand.settings
      if isInitiators { i.peersData = nil } else { r.peersData = nil }
      let machines = TwoMachines(i, r)
      try machines.pair()
      #expect(machines.result(.initiator)?.method == .outOfBand && machines.result(.responder)?.method == .outOfBand)
      #expect(machines.result(.initiator)?.ours == machines.result(.responder)?.peers)
    }
  }
  @Test func wrongDataFails() throws {
    for isInitiators in [false, true] {
      var (i, r) = Way.outOfBand.settings
      let wrong = PeersOutOfBandData.secureConnections(confirm: 1, random: SecurityKey(2))
      if isInitiators { i.peersData = wrong } else { r.peersData = wrong }
      let machines = TwoMachines(i, r)
      try machines.pair()
      let failing: PairingRole = isInitiators ? .initiator : .responder
      #expect(machines.failure(failing) == .ours(.confirmValueFailed))
      #expect(machines.failure(isInitiators ? .responder : .initiator) == .peers(.confirmValueFailed))
    }
    var (i, r) = Way.legacyOutOfBand.settings
    (i.peersData, r.peersData) = (.legacy(SecurityKey(1)), .legacy(SecurityKey(2)))
    let machines = TwoMachines(i, r)
    try machines.pair()
    #expect(machines.failure(.responder) == .ours(.confirmValueFailed))
  }

  /// Vol 3, Part H, §2.3.5.6.1: the key that everybody knows, only where it is allowed, and never kept.
  @Test func debugKeys() throws {
    for (initiators, accepted) in [(true, true), (false, true), (true, false), (false, false)] {
      var (i, r) = Way.justWorks.settings
      if initiators { i.usesDebugKey = true } else { r.usesDebugKey = true }
      if initiators { r.acceptsDebugKey = accepted } else { i.acceptsDebugKey = accepted }
      let machines = TwoMachines(i, r)
      try machines.pair()
      if accepted {
        for role in PairingRole.allCases {
          let result = try #require(machines.result(role))
          #expect(result.usesDebugKey && !result.isBonding && !result.isAuthenticated)
        }
      } else {
        #expect(machines.failure(initiators ? .responder : .initiator) == .ours(.authenticationRequirements))
        #expect(machines.linkKey == nil)
      }
    }
    var (i, r) = Way.justWorks.settings
    (i.usesDebugKey, i.acceptsDebugKey, r.usesDebugKey, r.acceptsDebugKey) = (true, true, true, true)
    let machines = TwoMachines(i, r)
    try machines.pair()
    #expect(machines.result(.initiator)?.usesDebugKey == true, "both may")
  }

  /// Vol 3, Part H, §3.5.8.
  @Test(arguments: [Way.legacyPasskey, .passkeyFromResponder, .passkeyFromInitiator]) func keypresses(_ way: Way) throws
  {
    let entering: PairingRole = way == .passkeyFromInitiator ? .responder : .initiator
    for isAgreed in [true, false] {
      let machines = way.machines()
      machines.initiator.settings.sendsKeypresses = true
      machines.responder.settings.sendsKeypresses = isAgreed
      machines.attend = { _, effect in effect != .requestPasskey }
      try machines.pair()
      let keys: [KeypressNotificationType] = [.entryStarted, .digitEntered, .digitErased, .cleared, .entryCompleted]
      for key in keys {
        #expect(machines.notify(key, entering))
        machines.run()
      }
      let shown = machines.effects.compactMap { if case .showKeypress(let key) = $0.effect { key } else { nil } }
      #expect(shown == (isAgreed ? keys : []))
      let passkey = try #require(
        machines.effects.compactMap { if case .displayPasskey(let n) = $0.effect { n } else { nil } }.first)
      #expect(machines.enter(passkey, entering))
      machines.run()
      #expect(machines.result(.initiator)?.method == way.method)
    }
  }

  // MARK: Security Request: Vol 3, Part H, §2.4.6

  @Test func aSecurityRequestLeadsToPairing() throws {
    let machines = Way.justWorks.machines()
    try machines.responder.requestSecurity(now: machines.now)
    #expect(throws: PairingRefusal.busy) { try machines.responder.requestSecurity(now: .zero) }
    machines.run()
    #expect(machines.codes.prefix(2) == [.securityRequest, .pairingRequest] && machines.sent[0].octets[1] == 0x0D)
    #expect(machines.ends(.responder).count == 1 && machines.result(.responder) != nil)
  }
  @Test func aSecurityRequestIsRefusedOrResumedOrForgotten() throws {
    let refused = Way.justWorks.machines()
    refused.attend = { _, _ in false }
    try refused.responder.requestSecurity(now: refused.now)
    refused.run()
    #expect(refused.tell(.initiator) { $0.refuseSecurityRequest() })
    refused.run()
    #expect(refused.ends(.responder) == [.failed(.peers(.pairingNotSupported))])

    let resumed = Way.justWorks.machines()
    resumed.attend = { _, _ in false }
    try resumed.responder.requestSecurity(now: resumed.now)
    resumed.run()
    resumed.encryptionChanged(true, .responder)
    resumed.run()
    #expect(resumed.ends(.responder) == [.resumed])

    let forgotten = Way.justWorks.machines()
    forgotten.attend = { _, _ in false }
    try forgotten.responder.requestSecurity(now: forgotten.now)
    forgotten.run()
    forgotten.expire()
    #expect(forgotten.ends(.responder) == [.failed(.timedOut)] && forgotten.now == Instant.zero + .seconds(30))
    // A Security Request starts the timer too, and whatever the timer ends is silent from then on: §3.4.
    forgotten.attend = { _, _ in true }
    let sent = forgotten.sent.count
    forgotten.receive(octets("01 03 00 0D 10 00 00"), .responder)
    #expect(forgotten.takeEffects(.responder) == [.report(.afterTimeOut(0x01))])
    forgotten.run()
    #expect(forgotten.sent.count == sent)
    #expect(throws: PairingRefusal.silent) { try forgotten.responder.requestSecurity(now: forgotten.now) }
  }
  /// One that crosses the Pairing Request is ignored by the Central; the Peripheral's ends with the pairing.
  @Test func aSecurityRequestThatCrossesThePairingRequest() throws {
    let machines = Way.justWorks.machines()
    try machines.initiator.pair(now: machines.now)
    machines.receive(octets("0B 0D"), .initiator)
    machines.run()
    #expect(machines.result(.initiator) != nil && machines.ends(.initiator).count == 1)
    // And one that is not sent yet is not sent.
    let late = Way.justWorks.machines()
    try late.responder.requestSecurity(now: late.now)
    late.receive(octets("01 03 00 0D 10 00 00"), .responder)
    late.run()
    #expect(!late.codes.contains(.securityRequest))
  }

  @Test func commandsOfTheOtherRole() throws {
    let machines = Way.justWorks.machines()
    #expect(throws: PairingRefusal.wrongRole) { try machines.responder.pair(now: .zero) }
    #expect(throws: PairingRefusal.wrongRole) { try machines.initiator.requestSecurity(now: .zero) }
    machines.receive(octets("01 03 00 0D 10 00 00"), .initiator)
    machines.receive(octets("0B 0D"), .responder)
    #expect(machines.takePDU(.initiator) == [0x05, 0x07] && machines.takePDU(.responder) == [0x05, 0x07])
    #expect(machines.takeEffects(.initiator) == [] && machines.takeEffects(.responder) == [])
  }

  /// A key of this pairing is given for its own numbers, in its own stage, by a Peripheral.
  @Test func theKeyIsThereWhenItIsAskedFor() throws {
    for way in [Way.justWorks, .legacyJustWorks] {
      let machines = way.machines()
      #expect(machines.key(.responder) == nil)
      machines.attend = { _, effect in if case .encrypt = effect { false } else { true } }
      try machines.pair()
      let wanted = try #require(
        machines.effects.compactMap { if case .encrypt(let key) = $0.effect { key } else { nil } }.first)
      #expect(machines.key(.responder) == wanted && machines.key(.initiator) == nil)
      #expect(machines.key(.responder, ediv: 1) == nil && machines.key(.responder, rand: 1) == nil)
      machines.encryptionChanged(true, .responder)
      #expect(machines.key(.responder) == nil)
    }
  }
}
