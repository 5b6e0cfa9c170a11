import BindruneATT
import BindruneReplay
import BindruneSimulator
import BindruneToolbox
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneSMP
import TestSupport
import Testing

/// Pairings of our own hosts, of every method and with every end, replay whole though the replay does not know the
/// random numbers; and what a host must not do is found beside them.
@Suite("Replay: pairings") struct PairingTraceTests {
  typealias Sample = OwnTraceTests.Sample
  private static let server = 0, client = 1

  /// A server with a protected value, and its client.
  private struct Pair: ~Copyable {
    let subject: Subject
    var recording: Recording
    let name: String
    init(
      _ name: String, seed: UInt64, server: (inout HostConfiguration) -> Void = { _ in },
      client: (inout HostConfiguration) -> Void = { _ in }
    ) throws {
      self.name = name
      subject = try Subject()
      recording = Recording(seed: seed)
      recording.add(subject.database, server)
      recording.add(Database(), client)
    }
    /// The client's link, and the server's.
    mutating func connect() throws -> (LinkID, LinkID) {
      try recording.advertise()
      let link = try recording.connect(PairingTraceTests.client)
      return (link, try #require(recording.world.readHost(PairingTraceTests.server) { $0.links.first }))
    }
    /// A link that is encrypted with the bond, where there is one.
    mutating func connectAgain() throws {
      let (link, _) = try connect()
      recording.world.run(for: .seconds(2))
      recording.client(PairingTraceTests.client, link) { [subject] in $0.read($1, subject.secret) }
      recording.disconnect(PairingTraceTests.client, link)
    }
    mutating func end(_ link: LinkID) { recording.disconnect(PairingTraceTests.client, link) }
    mutating func forget(_ host: Int) {
      recording.world.withHost(host) { host, now in
        for bond in host.core.allBonds { _ = host.core.removeBond(with: bond.peer, now: now) }
        host.drain()
      }
    }
    mutating func samples() -> [Sample] {
      [PairingTraceTests.server, PairingTraceTests.client].map {
        Sample(
          name: "\(name), \($0 == 0 ? "peripheral" : "central")", packets: recording.trace(of: $0),
          seed: recording.seed(of: $0))
      }
    }
  }

  // MARK: Samples

  /// Each method, legacy and Secure Connections, begun by either side; then a link with the bond; then the same again.
  private static func methods() throws -> [Sample] {
    let capabilities: [(String, IOCapability, IOCapability)] = [
      ("Just Works", .noInputNoOutput, .noInputNoOutput), ("compare", .displayYesNo, .displayYesNo),
      ("central enters", .displayOnly, .keyboardOnly), ("peripheral enters", .keyboardOnly, .displayOnly),
      ("both enter", .keyboardOnly, .keyboardOnly),
    ]
    var samples: [Sample] = [], seed: UInt64 = 100
    for (name, server, client) in capabilities {
      for isSecureConnections in [false, true] {
        for isAsked in [false, true] {
          seed += 1
          func configure(_ io: IOCapability) -> (inout HostConfiguration) -> Void {
            {
              $0.pairing.ioCapability = io
              $0.pairing.secureConnections = isSecureConnections ? .supported : .off
            }
          }
          var pair = try Pair(
            "\(name), \(isSecureConnections ? "Secure Connections" : "legacy")\(isAsked ? ", asked" : "")", seed: seed,
            server: configure(server), client: configure(client))
          for _ in 0..<2 {
            let (link, other) = try pair.connect()
            pair.recording.world.run(for: .seconds(1))
            let ending =
              isAsked
              ? pair.recording.pair(Self.server, on: other, with: Self.client)
              : pair.recording.pair(Self.client, on: link, with: Self.server)
            try check(ending?.isSuccess == true, "\(pair.name): \(String(describing: ending))")
            pair.end(link)
            try pair.connectAgain()
          }
          samples += pair.samples()
        }
      }
    }
    return samples
  }
  /// Users who refuse or err, and another attempt after the back-off.
  private static func refusals() throws -> [Sample] {
    var samples: [Sample] = [], seed: UInt64 = 200
    for isSecureConnections in [false, true] {
      let kind = isSecureConnections ? "Secure Connections" : "legacy"
      func configure(_ io: IOCapability) -> (inout HostConfiguration) -> Void {
        {
          $0.pairing.ioCapability = io
          $0.pairing.secureConnections = isSecureConnections ? .supported : .off
        }
      }
      let wishes: [(String, IOCapability, IOCapability, (Int, PairingQuestion, UInt32?) -> PairingAnswer?)] = [
        (
          "no consent", .noInputNoOutput, .noInputNoOutput,
          { if case .consent = $1 { .refuse } else { Recording.agreement(with: $1, $2) } }
        ),
        (
          "other numbers at the peripheral", .displayYesNo, .displayYesNo,
          { if $0 == 0, case .compare = $1 { .refuse } else { Recording.agreement(with: $1, $2) } }
        ),
        (
          "other numbers at the central", .displayYesNo, .displayYesNo,
          { if $0 == 1, case .compare = $1 { .refuse } else { Recording.agreement(with: $1, $2) } }
        ),
        (
          "no passkey at the central", .displayOnly, .keyboardOnly,
          { if case .enterPasskey = $1 { .refuse } else { Recording.agreement(with: $1, $2) } }
        ),
        (
          "no passkey at the peripheral", .keyboardOnly, .displayOnly,
          { if case .enterPasskey = $1 { .refuse } else { Recording.agreement(with: $1, $2) } }
        ),
        (
          "wrong passkey at the central", .displayOnly, .keyboardOnly,
          { if case .enterPasskey = $1 { .passkey(($2 ?? 0) ^ 1) } else { Recording.agreement(with: $1, $2) } }
        ),
        (
          "wrong passkey at the peripheral", .keyboardOnly, .displayOnly,
          { if case .enterPasskey = $1 { .passkey(($2 ?? 0) ^ 4) } else { Recording.agreement(with: $1, $2) } }
        ),
      ]
      for (name, server, client, answer) in wishes {
        seed += 1
        var pair = try Pair("\(name), \(kind)", seed: seed, server: configure(server), client: configure(client))
        let (link, _) = try pair.connect()
        let ending = pair.recording.pair(Self.client, on: link, with: Self.server, answer: answer)
        if isSecureConnections || client != .displayYesNo { try check(ending?.isSuccess != true, "\(pair.name)") }
        // Too early, where the attempt may have been a guess; then late enough.
        pair.recording.pair(Self.client, on: link, with: Self.server, answer: answer)
        pair.recording.world.run(for: .seconds(20))
        let last = pair.recording.pair(Self.client, on: link, with: Self.server)
        try check(last?.isSuccess == true, "\(pair.name): \(String(describing: last))")
        pair.end(link)
        try pair.connectAgain()
        samples += pair.samples()
      }
    }
    return samples
  }
  /// What hosts demand and their peers do not give.
  private static func demands() throws -> [Sample] {
    let demands: [(String, (inout PairingSettings) -> Void, (inout PairingSettings) -> Void)] = [
      ("protection", { $0.protection = .required }, { _ in }),
      ("Secure Connections Only", { $0.secureConnections = .only }, { $0.secureConnections = .off }),
      (
        "a long key", { _ in },
        { $0.keySizes = .shortest...(EncryptionKeySize(8) ?? .shortest) }
      ),
      ("no pairing", { $0.acceptsPairing = false }, { _ in }),
      ("data out of band", { $0.requiresOutOfBand = true }, { _ in }),
    ]
    var samples: [Sample] = [], seed: UInt64 = 300
    for (name, strict, other) in demands {
      for isServerStrict in [false, true] {
        seed += 1
        var pair = try Pair(
          "the \(isServerStrict ? "peripheral" : "central") demands \(name)", seed: seed,
          server: { isServerStrict ? strict(&$0.pairing) : other(&$0.pairing) },
          client: { isServerStrict ? other(&$0.pairing) : strict(&$0.pairing) })
        let (link, _) = try pair.connect()
        // Refused, then with other settings.
        pair.recording.pair(Self.client, on: link, with: Self.server)
        pair.recording.world.run(for: .seconds(20))
        pair.recording.pair(Self.client, on: link, with: Self.server, PairingSettings())
        pair.recording.client(Self.client, link) { [subject = pair.subject] in $0.read($1, subject.readOnly) }
        pair.end(link)
        samples += pair.samples()
      }
    }
    return samples
  }
  /// Short keys, no bonding, keypresses, signatures, the debug key.
  private static func features() throws -> [Sample] {
    let features: [(String, (inout PairingSettings) -> Void)] = [
      ("short keys", { $0.keySizes = .shortest ... .shortest }),
      (
        "short keys, legacy",
        {
          $0.keySizes = .shortest ... .shortest
          $0.secureConnections = .off
        }
      ),
      ("no bonding", { $0.isBonding = false }),
      ("keypresses", { $0.sendsKeypresses = true }),
      (
        "signatures",
        {
          $0.distributes = [.encKey, .idKey, .signKey]
          $0.requests = [.encKey, .idKey, .signKey]
        }
      ),
      (
        "signatures, legacy",
        {
          $0.distributes = [.encKey, .idKey, .signKey]
          $0.requests = [.encKey, .idKey, .signKey]
          $0.secureConnections = .off
        }
      ),
      (
        "debug keys",
        {
          $0.usesDebugKey = true
          $0.acceptsDebugKey = true
        }
      ),
    ]
    var samples: [Sample] = [], seed: UInt64 = 400
    for (name, set) in features {
      for isKeyboard in [false, true] {
        seed += 1
        var pair = try Pair(
          name + (isKeyboard ? ", passkey" : ""), seed: seed,
          server: {
            set(&$0.pairing)
            if isKeyboard { $0.pairing.ioCapability = .displayOnly }
          },
          client: {
            set(&$0.pairing)
            if isKeyboard { $0.pairing.ioCapability = .keyboardOnly }
            // The central alone.
            if name == "debug keys" { $0.pairing.usesDebugKey = true }
          })
        let (link, _) = try pair.connect()
        var isTyping = name == "keypresses"
        pair.recording.pair(Self.client, on: link, with: Self.server) { host, question, shown in
          if case .enterPasskey = question, isTyping {
            isTyping = false
            return .keypress(KeypressNotificationType(rawValue: 0))
          }
          return Recording.agreement(with: question, shown)
        }
        for type in [1, 4] as [UInt8] where name == "keypresses" && isKeyboard {
          pair.recording.world.withHost(Self.client) { host, now in
            host.core.answer(.keypress(KeypressNotificationType(rawValue: type)), on: link, now: now)
            host.drain()
          }
          pair.recording.world.run(for: .milliseconds(200))
        }
        if name == "keypresses", isKeyboard {
          let shown = pair.recording.world.readHost(Self.server) { host in
            host.asked.compactMap { if case .display(let digits) = $0.question { digits } else { nil } }.last
          }
          pair.recording.world.withHost(Self.client) { host, now in
            host.core.answer(.passkey(shown ?? 0), on: link, now: now)
            host.drain()
          }
          pair.recording.world.run(for: .seconds(5))
        }
        pair.recording.client(Self.client, link) { [subject = pair.subject] in $0.read($1, subject.secret) }
        pair.end(link)
        try pair.connectAgain()
        samples += pair.samples()
      }
    }
    return samples
  }
  /// Data out of band: legacy, and Secure Connections with the data of one side or of both; and those of another key.
  private static func outOfBand() throws -> [Sample] {
    var samples: [Sample] = [], seed: UInt64 = 500
    for kind in 0..<5 {
      seed += 1
      var chance = SplitMix64(seed: seed)
      let ours = OwnOutOfBandData(using: &chance), theirs = OwnOutOfBandData(using: &chance)
      let other = OwnOutOfBandData(using: &chance)
      let name = ["legacy", "of the central", "of the peripheral", "of both", "of another key"][kind]
      var pair = try Pair(
        "out of band, \(name)", seed: seed,
        server: {
          $0.pairing.ownData = ours
          if kind == 0 { $0.pairing.peersData = .legacy(SecurityKey(7)) }
          if kind == 2 || kind == 3 { $0.pairing.peersData = theirs.forPeer }
          if kind == 0 { $0.pairing.secureConnections = .off }
        },
        client: {
          $0.pairing.ownData = theirs
          if kind == 0 { $0.pairing.peersData = .legacy(SecurityKey(7)) }
          if kind == 1 || kind == 3 { $0.pairing.peersData = ours.forPeer }
          if kind == 4 { $0.pairing.peersData = other.forPeer }
        })
      let (link, _) = try pair.connect()
      let ending = pair.recording.pair(Self.client, on: link, with: Self.server)
      try check(ending?.isSuccess == (kind != 4), "\(pair.name): \(String(describing: ending))")
      pair.recording.client(Self.client, link) { [subject = pair.subject] in $0.read($1, subject.readOnly) }
      pair.end(link)
      try pair.connectAgain()
      samples += pair.samples()
    }
    return samples
  }
  /// Bonds that one side has lost, and what both do then; requests that need more security.
  private static func bonds() throws -> [Sample] {
    var samples: [Sample] = [], seed: UInt64 = 600
    for isSecureConnections in [false, true] {
      let kind = isSecureConnections ? "Secure Connections" : "legacy"
      func configure(_ configuration: inout HostConfiguration) {
        configuration.pairing.secureConnections = isSecureConnections ? .supported : .off
        configuration.encryptsBondedLinks = false
      }
      for loser in [Self.server, Self.client] {
        seed += 1
        var pair = try Pair(
          "the \(["peripheral", "central"][loser]) loses its bond, \(kind)", seed: seed, server: configure,
          client: configure)
        let (link, _) = try pair.connect()
        pair.recording.pair(Self.client, on: link, with: Self.server)
        pair.end(link)
        pair.forget(loser)
        let (again, _) = try pair.connect()
        pair.recording.ask(Self.client) { core, id, now in core.encrypt(again, id: id, now: now) }
        pair.recording.world.run(for: .seconds(2))
        pair.end(again)
        pair.forget(1 - loser)
        let (third, _) = try pair.connect()
        pair.recording.pair(Self.client, on: third, with: Self.server)
        pair.recording.client(Self.client, third) { [subject = pair.subject] in $0.read($1, subject.secret) }
        pair.end(third)
        try pair.connectAgain()
        samples += pair.samples()
      }
      seed += 1
      var weaker = try Pair(
        "weaker after the bonds are removed, \(kind)", seed: seed,
        server: {
          $0.pairing.ioCapability = .displayYesNo
          $0.pairing.secureConnections = isSecureConnections ? .supported : .off
          $0.pairing.identity = PairingIdentity(
            irk: SecurityKey(99), address: PairingAddress(Recording.address(Self.server), isRandom: false))
        },
        client: {
          $0.pairing.ioCapability = .keyboardDisplay
          $0.pairing.secureConnections = isSecureConnections ? .supported : .off
        })
      let (link, _) = try weaker.connect()
      // An IRK, so that the central's controller gets the bond.
      let before = weaker.recording.pair(Self.client, on: link, with: Self.server)
      try check(before?.isSuccess == true, "\(String(describing: before))")
      weaker.end(link)
      weaker.forget(Self.server)
      weaker.forget(Self.client)
      let (second, _) = try weaker.connect()
      var settings = PairingSettings()
      settings.secureConnections = .off
      settings.protection = .notNeeded
      let ending = weaker.recording.pair(Self.client, on: second, with: Self.server, settings)
      try check(ending?.isSuccess == true, "\(String(describing: ending))")
      weaker.end(second)
      try weaker.connectAgain()
      samples += weaker.samples()

      seed += 1
      // The peripheral asks for security, and the bond is enough.
      var asked = try Pair("a Security Request with a bond, \(kind)", seed: seed, server: configure, client: configure)
      let (first, _) = try asked.connect()
      asked.recording.pair(Self.client, on: first, with: Self.server)
      asked.end(first)
      let (later, other) = try asked.connect()
      asked.recording.pair(Self.server, on: other, with: Self.client)
      asked.recording.client(Self.client, later) { [subject = asked.subject] in $0.read($1, subject.secret) }
      asked.end(later)
      samples += asked.samples()

      for (name, isOnDemand, answer) in [
        ("pairs", true, PairingAnswer.consent), ("may not", false, .consent), ("is refused by its user", true, .refuse),
      ] {
        seed += 1
        var demand = try Pair(
          "a refused client \(name), \(kind)", seed: seed, server: configure,
          client: {
            configure(&$0)
            $0.pairsOnDemand = isOnDemand
          })
        for _ in 0..<2 {
          let (link, _) = try demand.connect()
          let id = demand.recording.world.withHost(Self.client) { [subject = demand.subject] host, now in
            let id = host.newID()
            host.core.withClient(of: link, id: id) { $0.read(id, subject.secret) }
            host.drain()
            return id
          }
          demand.recording.wait(for: id, of: Self.client, with: Self.server) { host, question, shown in
            if host == Self.client, case .consent = question {
              answer
            } else {
              Recording.agreement(with: question, shown)
            }
          }
          demand.end(link)
        }
        samples += demand.samples()
      }
    }
    return samples
  }

  /// A recording that is not as intended tests nothing.
  private struct Unintended: Error { var text: String }
  private static func check(_ isIntended: Bool, _ text: String) throws {
    if !isIntended { throw Unintended(text: text) }
  }
  private static let made: Result<[Sample], any Error> = Result {
    try methods() + refusals() + demands() + features() + outOfBand() + bonds()
  }
  static let samples = (try? made.get()) ?? []

  // MARK: Violations

  /// The payloads of host's SMP PDUs, by their place in the trace, the first of each code.
  private static func own(_ packets: [ReplayPacket]) -> [(place: Int, pdu: [UInt8])] {
    var seen: Set<UInt8> = []
    return packets.indices.compactMap { place in
      let octets = packets[place].octets
      guard packets[place].direction == .fromHost, octets.count > 9, octets[0] == 2, octets[7] == 6,
        octets[2] >> 4 & 3 == 0, seen.insert(octets[9]).inserted
      else { return nil }
      return (place, Array(octets[9...]))
    }
  }
  private static func frame(_ pdu: [UInt8], like octets: [UInt8]) -> [UInt8] {
    let count = UInt8(pdu.count)
    return Array(octets[..<3]) + [count + 4, 0, count, 0, octets[7], 0] + pdu
  }
  private static func divergence(_ packets: [ReplayPacket]) throws -> Int? {
    try Replay(packets).run().divergences.first?.number
  }

  /// Codes, lengths, reasons, the order, and what is left out: each is found at its record.
  @Test(
    arguments: samples.filter { sample in
      !sample.name.contains("asked")
        && ["Just Works", "compare", "enter", "out of band", "signatures", "other numbers"].contains {
          sample.name.contains($0)
        }
    })
  func aWrongPDUDiverges(_ sample: Sample) throws {
    for (place, pdu) in Self.own(sample.packets) {
      var packets = sample.packets
      let octets = packets[place].octets, number = packets[place].number
      // Another code of the same length, or one octet less.
      var other = pdu
      other[0] = [0x03: 0x04, 0x04: 0x03, 0x0C: 0x0D, 0x0D: 0x03, 0x06: 0x08, 0x08: 0x0A, 0x0A: 0x06][pdu[0]] ?? 0x0E
      packets[place].octets = Self.frame(other, like: octets)
      if pdu[0] != 0x0E { #expect(try Self.divergence(packets) == number, "code \(pdu[0])") }
      if pdu[0] > 0x02, pdu[0] != 0x0B, pdu[0] != 0x0E {
        packets[place].octets = Self.frame(pdu.dropLast(), like: octets)
        #expect(try Self.divergence(packets) == number, "length of \(pdu[0])")
      }
      // A reason that nothing gives.
      if pdu[0] == 0x05 {
        packets[place].octets = Self.frame([0x05, pdu[1] == 0x0A ? 0x07 : 0x0A], like: octets)
        #expect(try Self.divergence(packets) == number, "reason \(pdu[1])")
      }
      // A key that the Central has not offered.
      if pdu[0] == 0x02 {
        packets[place].octets = Self.frame(Array(pdu[..<6]) + [pdu[6] | 0x10], like: octets)
        #expect(try Self.divergence(packets) == number, "keys \(pdu[6])")
      }
      packets.remove(at: place)
      // Those begin something, or a user answers with them.
      let isAnswer = pdu[0] == 0x0D && sample.name.contains("other numbers")
      if !isAnswer, ![0x01, 0x02, 0x05, 0x0B, 0x0E].contains(pdu[0]) {
        #expect(try Self.divergence(packets) != nil, "no \(pdu[0])")
      }
    }
  }
  /// A host that accepts a random number which is not that of the confirm value: Vol 3, Part H, §2.3.5.5, §2.3.5.6.2.
  @Test(
    arguments: samples.filter {
      $0.name.hasSuffix("central") && ($0.name.contains("Just Works") || $0.name.contains("compare"))
    })
  func aWrongRandomNumberMustBeRefused(_ sample: Sample) throws {
    var packets = sample.packets
    let place = try #require(
      packets.firstIndex {
        $0.direction == .fromController && $0.octets.count == 26 && $0.octets[0] == 2 && $0.octets[7] == 6
          && $0.octets[9] == 4
      })
    packets[place].octets[20] ^= 0x10
    let result = try Replay(packets).run()
    #expect(result.divergenceCount > 0)
    #expect(result.divergences.contains { $0.ours == [0x05, 0x04] }, "\(text(result))")
  }
  /// The key of a bond that the trace shows is that of its pairing: Vol 3, Part H, §2.4.4.
  @Test(arguments: samples.filter { $0.name.contains("Just Works") })
  func anotherKeyDiverges(_ sample: Sample) throws {
    var packets = sample.packets
    let key = { (packet: ReplayPacket) in
      packet.octets.starts(with: [1, 0x19, 0x20]) || packet.octets.starts(with: [1, 0x1A, 0x20])
    }
    let places = packets.indices.filter { key(packets[$0]) }
    // The pairing's own, then that of the next link.
    let place = try #require(places.dropFirst().first)
    packets[place].octets[packets[place].octets.count - 1] ^= 1
    #expect(try Self.divergence(packets) == packets[place].number)
  }
  /// A host that pairs in a weaker way over a bond: the commands of the resolving list show that the bond was removed
  /// first.
  @Test(arguments: samples.filter { $0.name.contains("weaker after") && $0.name.hasSuffix("central") })
  func aWeakerPairingOverABond(_ sample: Sample) throws {
    let result = try Replay(sample.packets).run()
    #expect(result.isEqual && result.freedoms[.bondRemoved]?.count == 1, "\(text(result))")
    let kept = sample.packets.filter {
      !$0.octets.starts(with: [1, 0x28, 0x20]) && !$0.octets.starts(with: [1, 0x29, 0x20])
    }
    #expect(kept.count < sample.packets.count)
    #expect(try Replay(kept).run().divergenceCount > 0)
  }

  /// A trace that begins in the middle of a pairing: that is not compared, what follows is.
  @Test(arguments: samples.filter { $0.name.contains("Just Works") || $0.name.contains("enter") })
  func aTraceThatBeginsInAPairing(_ sample: Sample) throws {
    let own = Self.own(sample.packets)
    let begin = try #require(own.first { [0x03, 0x0C].contains($0.pdu[0]) }).place
    let packets = Array(sample.packets[begin...])
    let result = try Replay(packets).run()
    #expect(result.isEqual && result.freedoms[.pairingNotCompared] != nil, "\(text(result))")
    // The next link's key is that of the bond.
    var wrong = packets
    let place = try #require(
      wrong.lastIndex {
        $0.octets.starts(with: [1, 0x19, 0x20]) || $0.octets.starts(with: [1, 0x1A, 0x20])
      })
    wrong[place].octets[wrong[place].octets.count - 1] ^= 1
    #expect(try Self.divergence(wrong) == packets[place].number)
  }

  // MARK: Tests

  @Test func recordingsAreAsIntended() throws { #expect(try Self.made.get().count == 154) }

  @Test(arguments: samples) func replaysWhole(_ sample: Sample) throws {
    let result = try Replay(sample.packets).run()
    #expect(result.isEqual && result.comparedCount > 0, "\(text(result))")
    let seeded = try Replay(sample.packets, seed: sample.seed).run()
    #expect(seeded.isEqual && seeded.comparedCount == result.comparedCount, "\(text(seeded))")
  }
}
