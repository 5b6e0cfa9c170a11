import BindruneATT
import BindruneToolbox
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneSMP
import TestSupport
import Testing

@testable import BindruneGAP

/// A link's encryption, bonds and GATT's permissions, against a scripted controller. Two hosts that pair are in
/// `SecurityScenarioTests`.
@Suite struct LinkSecurityTests {
  private static let link = LinkID(rawValue: 1)
  private static let strength = KeyStrength(isAuthenticated: true, isSecureConnections: true)
  private static let encrypted = "encrypted (Secure Connections, authenticated, 16 octets)"

  /// A bond with `Bench.peer`.
  private static func bond(
    _ strength: KeyStrength = strength, ediv: UInt16 = 0, rand: UInt64 = 0, client: [UInt8] = []
  ) -> Bond {
    var ours = DistributedKeys(), peers = DistributedKeys()
    ours.longTermKey = LongTermKey(key: SecurityKey(0x01), ediv: ediv, rand: rand)
    peers.longTermKey = LongTermKey(key: SecurityKey(0x02), ediv: ediv, rand: rand)
    var bond = Bond(peer: PeerID(Bench.peer), address: Bench.peer, strength: strength, ours: ours, peers: peers)
    bond.client = client
    return bond
  }
  /// A value that needs encryption at 0x0003 (and its configuration at 0x0004), one that needs authentication at
  /// 0x0006.
  private static func database() throws -> Database {
    var builder = DatabaseBuilder()
    builder.service("180D") {
      $0.characteristic("2A37", .notify, permissions: AttributePermissions(read: .encrypted), configuring: .encrypted)
      $0.characteristic("2A38", .read, value: [7], permissions: AttributePermissions(read: .authenticated))
    }
    return try builder.build()
  }
  private static func linked(
    _ role: LinkRole, _ bond: Bond? = nil, _ database: Database = Database(),
    _ configure: (inout HostConfiguration) -> Void = { _ in }
  ) -> Bench {
    var bench = Bench.started(database, configure)
    if let bond {
      bench.perform { core, now in
        do throws(IdentityError) { try core.add(bond, now: now) } catch { Issue.record(error) }
      }
    }
    if role == .central {
      bench.perform { core, now in core.connect(to: Bench.peer, id: RequestID(rawValue: 1), now: now) }
      bench.answerAll()
    }
    bench.receive(connectionComplete(0x40, role))
    return bench
  }
  private static func keyRequest(ediv: UInt16 = 0, rand: UInt64 = 0) -> [UInt8] {
    [4, 0x3E, 13, 5] + little(0x40) + (0..<8).map { UInt8(truncatingIfNeeded: rand >> (8 * $0)) } + little(ediv)
  }
  private static func encryptionChange(_ status: HCIStatus = .success, isOn: Bool = true) -> [UInt8] {
    [4, 0x08, 4, status.rawValue] + little(0x40) + [isOn ? 1 : 0]
  }

  /// Vol 4, Part E, §7.7.65.5: the key that the Central names, or a refusal. Vol 3, Part C, §10.3.1: 0x0F while both
  /// have a key, 0x05 where the key is too weak.
  @Test func aPeripheralAnswersWithTheBondsKey() throws {
    let bond = Self.bond(ediv: 0x1234, rand: 0x0102_0304_0506_0708)
    var bench = Self.linked(.peripheral, bond, try Self.database())
    bench.answerAll()
    bench.forget()
    bench.receive(data(0x40, [0x0A, 0x06, 0x00]))
    same(bench.takeAll(), ["02 40 00 09 00 05 00 04 00 01 0A 06 00 0F"])
    for (ediv, rand) in [(0x1234, 0x0102_0304_0506_0709), (0, 0)] as [(UInt16, UInt64)] {
      bench.receive(Self.keyRequest(ediv: ediv, rand: rand))
      same(bench.takeAll(), ["LE_Long_Term_Key_Request_Negative_Reply"])
      bench.answerAll()
    }
    bench.receive(Self.keyRequest(ediv: 0x1234, rand: 0x0102_0304_0506_0708))
    same(bench.takeAll(), ["LE_Long_Term_Key_Request_Reply"])
    #expect(bench.lastCommand.contains("Long_Term_Key") && !bench.lastCommand.contains("01 00 00"))
    bench.answerAll()
    bench.receive(Self.encryptionChange())
    #expect(bench.takeAll().contains("securityChanged(link 1, \(Self.encrypted), bonded)"))
    same(bench.core.security(of: Self.link), LinkSecurity(key: Self.strength, isBonded: true))
    bench.receive(data(0x40, [0x0A, 0x06, 0x00]))
    same(bench.takeAll(), ["02 40 00 06 00 02 00 04 00 0B 07"])
  }

  /// A Central encrypts a bonded link by itself. A peer that has lost the key keeps its bond here.
  @Test(arguments: [HCIStatus.success, .pinOrKeyMissing, .connectionTimeout])
  func aCentralEncryptsABondedLink(_ status: HCIStatus) {
    var bench = Self.linked(.central, Self.bond())
    #expect(bench.sent.contains("LE_Enable_Encryption"))
    bench.answerAll()
    bench.forget()
    bench.perform { core, now in core.encrypt(Self.link, id: RequestID(rawValue: 2), now: now) }
    same(bench.takeAll(), [])
    bench.receive(Self.encryptionChange(status, isOn: status == .success))
    let after: [String] =
      switch status {
      case .success:
        ["securityChanged(link 1, \(Self.encrypted), bonded)", "2: \(Self.encrypted), bonded"]
      case .pinOrKeyMissing: ["encryptionFailed(link 1, 0x06)", "2: refused to encrypt 0x06"]
      default: ["encryptionFailed(link 1, 0x08)", "2: refused to encrypt 0x08"]
      }
    let texts = bench.takeTexts()
    same(texts.filter { !$0.hasPrefix("bondChanged") }.sorted(), after.sorted())
    #expect(texts.contains("bondChanged(\(Bench.peer))") == (status == .success))
    #expect(bench.core.allBonds.count == 1 && bench.core.allBonds.first?.peers == Self.bond().peers)
  }
  /// The Central ignores a Security Request while it encrypts the link: Vol 3, Part H, §2.4.6. The controller could
  /// refuse a second command, and that would end the first.
  @Test func aSecurityRequestWhileTheLinkIsBeingEncrypted() {
    var bench = Self.linked(.central, Self.bond())
    let request = data(0x40, channel: 6, [0x0B, 0x0D])
    #expect(bench.sent.filter { $0 == "LE_Enable_Encryption" }.count == 1)
    bench.receive(request)
    bench.answerAll()
    bench.receive(request)
    bench.answerAll()
    #expect(bench.sent.filter { $0 == "LE_Enable_Encryption" }.count == 1, "\(bench.sent)")
    bench.forget()
    bench.receive(Self.encryptionChange())
    same(bench.takeAll().filter { $0.hasPrefix("LE_Enable") }, [])
    same(bench.core.security(of: Self.link), LinkSecurity(key: Self.strength, isBonded: true))
    // Later the Peripheral may want a new key of the link: Vol 6, Part B, §5.1.3.2.
    bench.receive(request)
    same(bench.takeAll().filter { $0.hasPrefix("LE_Enable") }, ["LE_Enable_Encryption"])
  }
  /// The command's refusal, and a controller that reports nothing: Vol 6, Part B, §5.2.
  @Test func encryptionThatDoesNotBegin() {
    var bench = Self.linked(.central, Self.bond())
    while bench.unanswered.first?.opcode != LEEnableEncryption.opcode { bench.answer() }
    bench.forget()
    bench.perform { core, now in core.encrypt(Self.link, id: RequestID(rawValue: 2), now: now) }
    bench.answer(.commandDisallowed)
    same(bench.takeTexts(), ["encryptionFailed(link 1, 0x0C)", "2: refused to encrypt 0x0C"])
    bench = Self.linked(.central, Self.bond())
    bench.perform { core, now in core.encrypt(Self.link, id: RequestID(rawValue: 3), now: now) }
    bench.answerAll()
    bench.receive(data(0x40, [0x03, 0x17, 0x00]))  // our MTU exchange is not to time out
    bench.forget()
    bench.wait(.seconds(39))
    same(bench.takeAll(), [])
    bench.wait(.seconds(2))
    same(bench.takeAll(), ["Disconnect(64, 0x05)", "encryptionFailed(link 1, 0x22)", "3: refused to encrypt 0x22"])
  }
  /// A link to a bonded peer is being encrypted when the application asks to pair: the call waits for the end of that.
  @Test(arguments: [LinkRole.central, .peripheral]) func aPairingWaitsForTheEncryption(_ role: LinkRole) {
    func start() -> Bench {
      var bench = Self.linked(role, Self.bond())
      if role == .peripheral { bench.receive(Self.keyRequest()) }
      bench.answerAll()
      bench.forget()
      bench.perform { core, now in core.pair(Self.link, id: RequestID(rawValue: 2), now: now) }
      bench.perform { core, now in core.pair(Self.link, PairingSettings(), id: RequestID(rawValue: 3), now: now) }
      same(bench.takeAll(), [])
      return bench
    }
    // The first needs no pairing, the second wants one with its settings.
    var bench = start()
    bench.receive(Self.encryptionChange())
    same(bench.takeTexts().filter { $0.hasPrefix("2:") || $0.hasPrefix("3:") }, ["2: \(Self.encrypted), bonded"])
    expect(!bench.core.upper.links[0].protection.manager.isIdle)
    bench.receive(disconnectionComplete(0x40))
    same(bench.takeTexts().filter { $0.hasPrefix("2:") || $0.hasPrefix("3:") }.count, 1)
    // The peer no longer has the key, or is another device: the link ends (Decision 0059), and no pairing begins on it.
    bench = start()
    bench.receive(Self.encryptionChange(.pinOrKeyMissing, isOn: false))
    expect(bench.core.upper.links[0].protection.manager.isIdle)
    same(
      bench.takeTexts().filter { $0.hasPrefix("2:") || $0.hasPrefix("3:") },
      ["2: refused to encrypt 0x06", "3: refused to encrypt 0x06"])
    // The link ends first.
    bench = start()
    bench.receive(disconnectionComplete(0x40))
    same(bench.takeTexts().filter { $0.hasPrefix("2:") || $0.hasPrefix("3:") }, ["2: noSuchLink", "3: noSuchLink"])
  }
  /// Vol 4, Part E, §7.8.25: a key is not lost behind the application's commands, however many wait.
  @Test func aKeyBehindManyCommands() throws {
    var bench = Self.linked(.peripheral, Self.bond())
    bench.answerAll()
    for number in 0..<2000 {
      bench.perform { core, now in
        do throws(WireError) {
          try core.send(LERand(), id: RequestID(rawValue: UInt64(100 + number)), now: now)
        } catch { Issue.record(error) }
      }
    }
    #expect(bench.takeTexts().contains { $0.contains("refused to send 0x44") })
    bench.receive(Self.keyRequest())
    bench.answerAll()
    #expect(bench.takeAll().contains("LE_Long_Term_Key_Request_Reply"))
    expect(bench.core.isRunning)
  }
  /// A controller that accepts no command and asks for ever: memory is bounded, and the end is not silent.
  @Test func moreKeysThanAnyControllerAsksFor() {
    var bench = Self.linked(.peripheral, Self.bond())
    bench.answerAll()
    bench.forget()
    for _ in 0..<20_000 where bench.core.isRunning { bench.receive(Self.keyRequest(ediv: 1)) }
    #expect(bench.takeTexts().contains("controllerFailed 0x07"))
  }
  /// The controller refuses the reply: the link is not encrypted, and the application learns it at once.
  @Test func aReplyThatIsRefused() {
    var bench = Self.linked(.peripheral, Self.bond())
    bench.answerAll()
    bench.forget()
    bench.receive(Self.keyRequest())
    bench.answer(.commandDisallowed)
    same(bench.takeTexts(), ["encryptionFailed(link 1, 0x0C)"])
  }
  @Test func withoutABondNothingIsEncrypted() {
    for role in [LinkRole.central, .peripheral] {
      var bench = Self.linked(role)
      bench.answerAll()
      bench.forget()
      bench.perform { core, now in core.encrypt(Self.link, id: RequestID(rawValue: 2), now: now) }
      bench.perform { core, now in core.encrypt(LinkID(rawValue: 9), id: RequestID(rawValue: 3), now: now) }
      same(bench.takeAll(), ["2: notBonded", "3: noSuchLink"])
      // A report without a key of ours changes nothing.
      bench.receive(Self.encryptionChange())
      same(bench.takeAll(), [])
      same(bench.core.security(of: Self.link), LinkSecurity.none)
    }
  }
  /// A key refresh that fails leaves the link unprotected: Vol 6, Part B, §5.1.3.2.
  @Test func aRefreshThatFails() {
    var bench = Self.linked(.central, Self.bond())
    bench.answerAll()
    bench.receive(Self.encryptionChange())
    bench.perform { core, now in core.encrypt(Self.link, id: RequestID(rawValue: 2), now: now) }
    bench.answerAll()
    bench.forget()
    bench.receive([4, 0x30, 3, HCIStatus.pinOrKeyMissing.rawValue] + little(0x40))
    same(
      bench.takeTexts(),
      [
        "securityChanged(link 1, not encrypted, bonded)", "encryptionFailed(link 1, 0x06)",
        "2: refused to encrypt 0x06",
      ])
  }
  /// A command that the controller refuses changes nothing on the link.
  @Test func aRefreshThatDoesNotBegin() {
    var bench = Self.linked(.central, Self.bond())
    bench.answerAll()
    bench.receive(Self.encryptionChange())
    bench.perform { core, now in core.encrypt(Self.link, id: RequestID(rawValue: 2), now: now) }
    bench.forget()
    while bench.unanswered.first?.opcode != LEEnableEncryption.opcode { bench.answer() }
    bench.answer(.commandDisallowed)
    same(bench.takeTexts(), ["encryptionFailed(link 1, 0x0C)", "2: refused to encrypt 0x0C"])
    same(bench.core.security(of: Self.link), LinkSecurity(key: Self.strength, isBonded: true))
  }
  /// Vol 4, Part E, §7.7.75.
  @Test func packetsThatNobodyAuthenticates() {
    var bench = Self.linked(.central, Self.bond())
    bench.answerAll()
    bench.receive(Self.encryptionChange())
    bench.forget()
    bench.receive([4, 0x57, 2] + little(0x40))
    same(bench.takeAll(), ["Disconnect(64, 0x05)", "link 1 authenticationTimedOut"])
  }

  /// Subscriptions of an earlier link count when the peer has proven that it is the peer. Vol 3, Part G, §3.3.3.3.
  @Test func aClientsRecordCountsWithTheKey() throws {
    var record = ClientRecord()
    record.configurations = [
      .init(descriptor: AttributeHandle(rawValue: 4), characteristic: "2A37", value: .notification)
    ]
    let database = try Self.database()
    record.databaseHash = database.hash
    var bench = Self.linked(.peripheral, Self.bond(client: record.octets), database)
    bench.answerAll()
    bench.forget()
    let value: [UInt8] = [1]
    bench.perform { core, _ in
      expect(core.notify(value.span, of: AttributeHandle(rawValue: 3), on: Self.link) == nil)
    }
    bench.receive(Self.keyRequest())
    bench.answerAll()
    bench.receive(Self.encryptionChange())
    #expect(bench.takeTexts().contains { $0.hasPrefix("subscriptionChanged(link 1, ") })
    bench.forget()
    bench.perform { core, _ in
      expect(core.notify(value.span, of: AttributeHandle(rawValue: 3), on: Self.link)?.isAccepted == true)
    }
    same(bench.sent, ["02 40 00 08 00 04 00 04 00 1B 03 00 01"])
    // What it changes is stored with the bond.
    bench.forget()
    bench.receive(data(0x40, [0x12, 0x04, 0x00, 0, 0]))
    let stored = try #require(bench.stored.last)
    #expect(try ClientRecord(stored.client.span).configurations.isEmpty && stored.peer == PeerID(Bench.peer))
  }
  @Test func aRecordThatDoesNotDecode() throws {
    var bench = Self.linked(.peripheral, Self.bond(client: [1, 2, 3]), try Self.database())
    bench.answerAll()
    bench.receive(Self.keyRequest())
    bench.answerAll()
    bench.forget()
    bench.receive(Self.encryptionChange())
    #expect(bench.takeTexts().contains("link 1 clientRecord"))
    same(bench.core.security(of: Self.link)?.isEncrypted, true)
  }

  /// Without consent to pair a device answers Pairing Not Supported, and ignores reserved codes. Vol 3, Part H, §3.3,
  /// §3.5.5.
  @Test func aHostThatDoesNotPair() {
    var bench = Self.linked(.peripheral) { $0.pairing.acceptsPairing = false }
    bench.answerAll()
    bench.forget()
    bench.receive(data(0x40, channel: 6, octets("01 03 00 01 10 00 00")))
    same(bench.takeAll(), ["02 40 00 06 00 02 00 06 00 05 05"])
    bench.receive(data(0x40, channel: 6, octets("0F")))
    bench.receive(data(0x40, channel: 6, octets("05 05")))
    same(bench.takeAll(), ["link 1 smp", "link 1 smp"])
  }
  /// A core without random numbers has no secret to make a key from, and says so.
  @Test func aHostWithoutRandomNumbers() {
    var bench = Bench.started(hasChance: false)
    bench.perform { core, now in core.connect(to: Bench.peer, id: RequestID(rawValue: 1), now: now) }
    bench.answerAll()
    bench.receive(connectionComplete(0x40, .central))
    bench.answerAll()
    bench.forget()
    bench.perform { core, now in core.pair(Self.link, id: RequestID(rawValue: 2), now: now) }
    #expect(bench.takeTexts().contains { $0.contains("noRandomNumbers") })
  }
  /// A pairing that does not end the link's other traffic, and its end with the link. Vol 3, Part H, §3.4.
  @Test func aPairingEndsOnce() {
    for end in ["timeout", "link", "refusal", "reset"] {
      var bench = Self.linked(.central)
      bench.answerAll()
      bench.forget()
      bench.perform { core, now in core.pair(Self.link, id: RequestID(rawValue: 2), now: now) }
      same(bench.takeAll(), ["02 40 00 0B 00 07 00 06 00 01 03 00 0D 10 05 07"])
      bench.perform { core, now in core.pair(Self.link, id: RequestID(rawValue: 3), now: now) }
      bench.perform { core, now in
        core.pair(Self.link, PairingSettings(), id: RequestID(rawValue: 4), now: now)
      }
      same(bench.takeAll(), ["4: busy"])
      switch end {
      case "timeout": bench.wait(.seconds(31))
      case "link": bench.receive(disconnectionComplete(0x40))
      case "refusal": bench.receive(data(0x40, channel: 6, octets("05 05")))
      default: bench.perform { core, now in core.start(now: now) }
      }
      let ends = bench.takeTexts().filter { $0.hasPrefix("2:") || $0.hasPrefix("3:") || $0.hasPrefix("pairingEnded") }
      same(ends.count, 3, "\(end): \(ends)")
      #expect(ends.dropFirst().allSatisfy { $0.contains("pairingFailed") }, "\(end): \(ends)")
      same(bench.core.allBonds, [])
    }
  }

  // MARK: A server that wants more security

  private static let refusal = octets("01 0A 03 00 05")
  /// Reads 0x0003 and 0x0005; the server refuses the first.
  private static func refused(_ bench: inout Bench) {
    bench.answerAll()
    // Our Exchange MTU Request has left.
    bench.receive(data(0x40, [0x03, 0x17, 0x00]))
    bench.forget()
    for (id, handle) in [(2, 3), (3, 5)] as [(UInt64, UInt16)] {
      bench.perform { core, _ in
        core.withClient(of: link, id: RequestID(rawValue: id)) {
          $0.read(RequestID(rawValue: id), AttributeHandle(rawValue: handle))
        }
      }
    }
    same(bench.takeAll(), ["02 40 00 07 00 03 00 04 00 0A 03 00"])
    bench.receive(data(0x40, refusal))
  }

  /// The request waits for the pairing, and fails with the server's reason if that fails; the next one goes on.
  @Test func aRefusedRequestWaitsForAPairing() {
    var bench = Self.linked(.central)
    Self.refused(&bench)
    same(bench.takeAll(), ["02 40 00 0B 00 07 00 06 00 01 03 00 0D 10 05 07"])
    bench.receive(data(0x40, channel: 6, octets("05 05")))
    let all = bench.takeAll()
    same(all.first, "02 40 00 07 00 03 00 04 00 0A 05 00")
    #expect(all.contains { $0.hasPrefix("2: ") && $0.contains("0x05") }, "\(all)")
    #expect(!all.contains { $0.hasPrefix("3: ") }, "\(all)")
  }
  @Test func aRefusedRequestOfAHostThatDoesNotPair() {
    var bench = Self.linked(.central) { $0.pairsOnDemand = false }
    Self.refused(&bench)
    let all = bench.takeAll()
    same(all.first, "02 40 00 07 00 03 00 04 00 0A 05 00")
    #expect(all.contains { $0.hasPrefix("2: ") && $0.contains("0x05") }, "\(all)")
  }
  /// With a bond the link is encrypted on demand: the request is repeated once, whatever the answer.
  @Test func aRefusedRequestIsRepeatedOnce() {
    var bench = Self.linked(.central, Self.bond()) { $0.encryptsBondedLinks = false }
    Self.refused(&bench)
    same(bench.takeAll(), ["LE_Enable_Encryption"])
    bench.answerAll()
    bench.receive(Self.encryptionChange())
    #expect(bench.takeAll().contains("02 40 00 07 00 03 00 04 00 0A 03 00"))
    bench.receive(data(0x40, Self.refusal))
    let all = bench.takeAll()
    same(all.first, "02 40 00 07 00 03 00 04 00 0A 05 00")
    #expect(all.contains { $0.hasPrefix("2: ") && $0.contains("0x05") }, "\(all)")
  }
  /// A cancelled request is not repeated, and its caller hears it once.
  @Test func aWaitingRequestIsCancelled() {
    var bench = Self.linked(.central, Self.bond()) { $0.encryptsBondedLinks = false }
    Self.refused(&bench)
    bench.answerAll()
    bench.forget()
    bench.perform { core, now in core.cancel(RequestID(rawValue: 2), now: now) }
    let all = bench.takeAll()
    same(all.first, "02 40 00 07 00 03 00 04 00 0A 05 00")
    same(all.filter { $0.hasPrefix("2: ") }.count, 1)
    bench.receive(Self.encryptionChange())
    same(bench.takeAll().filter { $0.hasPrefix("2: ") || $0.contains("0A 03 00") }, [])
  }

  // MARK: A bonded peer is believed on an encrypted link alone: Decision 0059

  private static func read(_ bench: inout Bench, id: UInt64 = 7) {
    bench.perform { core, _ in
      core.withClient(of: link, id: RequestID(rawValue: id)) {
        $0.read(RequestID(rawValue: id), AttributeHandle(rawValue: 3))
      }
    }
  }
  /// A central's requests wait, its commands are refused and values are ignored, until the link is encrypted.
  @Test func nothingIsBelievedBeforeTheEncryption() {
    var bench = Self.linked(.central, Self.bond())
    bench.answerAll()
    bench.receive(data(0x40, [0x03, 0x17, 0x00]))  // our MTU exchange
    bench.forget()
    Self.read(&bench)
    let value: [UInt8] = [1]
    bench.perform { core, _ in
      expect(core.write(command: value.span, to: AttributeHandle(rawValue: 3), on: Self.link) == .full)
    }
    same(bench.takeAll(), [])
    bench.receive(data(0x40, octets("1B 03 00 2A")))
    bench.receive(data(0x40, octets("23 03 00 01 00 2A 05 00 01 00 2B")))
    same(bench.takeAll(), ["link 1 gatt", "link 1 gatt", "link 1 gatt"])
    // An indication is confirmed, or the server would send no other, and not reported: Vol 3, Part F, §3.4.7.2.
    bench.receive(data(0x40, octets("1D 03 00 2A")))
    same(bench.takeAll(), ["02 40 00 05 00 01 00 04 00 1E", "link 1 gatt"])
    bench.receive(Self.encryptionChange())
    let all = bench.takeAll()
    #expect(all.contains("02 40 00 07 00 03 00 04 00 0A 03 00") && all.contains("readyToSend(link 1)"), "\(all)")
    bench.receive(data(0x40, octets("1B 03 00 2A")))
    #expect(bench.takeTexts().contains { $0.hasPrefix("value(") })
  }
  /// Whatever has failed, the link ends, and says what: BLESA. Vol 3, Part C, §10.3.1.
  @Test(arguments: [
    HCIStatus.pinOrKeyMissing, .authenticationFailure, .unsupportedRemoteFeature, .connectionTimeout, .unspecifiedError,
  ]) func aFailedEncryptionEndsTheLink(_ status: HCIStatus) {
    // The reason is 0x16 in Disconnection Complete; some controllers repeat that of the command.
    for (role, reason) in [
      (LinkRole.central, HCIStatus.connectionTerminatedByLocalHost), (.peripheral, .connectionTerminatedByLocalHost),
      (.central, .authenticationFailure), (.peripheral, .authenticationFailure),
    ] {
      var bench = Self.linked(role, Self.bond())
      bench.answerAll()
      bench.receive(data(0x40, [0x03, 0x17, 0x00]))
      if role == .peripheral {
        bench.receive(Self.keyRequest())
        bench.answerAll()
      }
      bench.forget()
      Self.read(&bench)
      bench.receive(Self.encryptionChange(status, isOn: false))
      #expect(bench.sent.contains("Disconnect(64, 0x05)"), "\(role): \(bench.sent)")
      #expect(!bench.sent.contains { $0.hasSuffix("0A 03 00") }, "\(role): \(bench.sent)")
      bench.answerAll()
      bench.forget()
      bench.receive(data(0x40, octets("1B 03 00 2A")))
      bench.receive(disconnectionComplete(0x40, reason))
      let texts = bench.takeTexts()
      #expect(texts.contains("link 1 down: 0x\(hex([status.rawValue]))"), "\(role): \(texts)")
      #expect(texts.contains { $0.hasPrefix("7: ") } && !texts.contains { $0.hasPrefix("value(") }, "\(texts)")
    }
  }
  /// A controller that switches the encryption off: Vol 4, Part E, §7.7.8.
  @Test func encryptionThatEnds() {
    var bench = Self.linked(.central, Self.bond())
    bench.answerAll()
    bench.receive(Self.encryptionChange())
    bench.forget()
    bench.receive(Self.encryptionChange(isOn: false))
    same(bench.takeAll(), ["Disconnect(64, 0x05)", "securityChanged(link 1, not encrypted, bonded)"])
  }
  /// As Peripheral our client's request has the host ask the Central to encrypt: Vol 3, Part H, §2.4.6. Without an
  /// answer the link ends.
  @Test(arguments: [true, false]) func aPeripheralsClientAsksForEncryption(isAnswered: Bool) {
    var bench = Self.linked(.peripheral, Self.bond())
    bench.answerAll()
    bench.receive(data(0x40, [0x02, 0x17, 0x00]))
    bench.forget()
    Self.read(&bench)
    bench.wait(.seconds(1))
    let sent = bench.takeAll()
    #expect(sent.count == 1 && sent.first?.hasPrefix("02 40 00 06 00 02 00 06 00 0B") == true, "\(sent)")
    if isAnswered {
      bench.receive(Self.keyRequest())
      bench.answerAll()
      bench.receive(Self.encryptionChange())
      #expect(bench.takeAll().contains("02 40 00 07 00 03 00 04 00 0A 03 00"))
    } else {
      bench.wait(.seconds(31))
      #expect(bench.takeAll().contains("Disconnect(64, 0x05)"))
    }
  }
  /// Who insists, and a bond that has no key for the link, talk to whoever has the address.
  @Test func requestsThatDoNotWait() {
    var keyless = Self.bond()
    keyless.peers.longTermKey = nil
    for (bond, encrypts) in [(Self.bond(), false), (keyless, true)] {
      var bench = Self.linked(.central, bond) { $0.encryptsBondedLinks = encrypts }
      bench.answerAll()
      bench.receive(data(0x40, [0x03, 0x17, 0x00]))
      bench.forget()
      Self.read(&bench)
      same(bench.takeAll(), ["02 40 00 07 00 03 00 04 00 0A 03 00"])
    }
  }
  /// Nothing is sent on a link whose disconnection has been asked for; if the controller refuses that, all of it is.
  @Test func nothingFollowsADisconnection() {
    for isRefused in [false, true] {
      var bench = Self.linked(.central)
      bench.answerAll()
      bench.receive(data(0x40, [0x03, 0x17, 0x00]))
      bench.forget()
      bench.perform { core, now in core.disconnect(Self.link, id: RequestID(rawValue: 9), now: now) }
      Self.read(&bench)
      let value: [UInt8] = [1]
      for _ in 0..<2 {
        let answer = bench.write { core, output in
          core.write(command: value.span, to: AttributeHandle(rawValue: 3), on: Self.link, into: &output)
        }
        expect(answer != .closed)
      }
      bench.receive(data(0x40, octets("0A 01 00")))
      bench.receive(data(0x40, channel: 6, octets("01 03 00 01 10 00 00")))
      same(bench.sent, ["Disconnect(64, 0x13)"])
      bench.forget()
      if isRefused {
        bench.answer(.commandDisallowed)
        #expect(bench.sent.contains("02 40 00 07 00 03 00 04 00 0A 03 00"), "\(bench.sent)")
      } else {
        bench.answerAll()
        bench.receive(completedPackets(0x40, 0))
        bench.receive(disconnectionComplete(0x40, .connectionTerminatedByLocalHost))
        same(bench.sent, [])
        #expect(bench.takeTexts().filter { $0.hasPrefix("7: ") }.count == 1)
      }
    }
  }
  /// A removed bond ends the wait.
  @Test func aRemovedBondEndsTheWait() {
    var bench = Self.linked(.peripheral, Self.bond())
    bench.answerAll()
    bench.receive(data(0x40, [0x02, 0x17, 0x00]))
    bench.forget()
    Self.read(&bench)
    bench.perform { core, now in expect(core.removeBond(with: PeerID(Bench.peer), now: now)) }
    #expect(bench.takeAll().contains("02 40 00 07 00 03 00 04 00 0A 03 00"))
  }

  // MARK: Signed writes

  /// The peer's database, and a bond with signature keys, the same on both sides.
  private static func signingBond(_ strength: KeyStrength = strength, ours: UInt32 = 0, peers: UInt32 = 0) -> Bond {
    var bond = bond(strength)
    bond.ours.csrk = SecurityKey(0xC5)
    bond.peers.csrk = SecurityKey(0xC5)
    bond.ourSignCounter = ours
    bond.peersSignCounter = peers
    return bond
  }
  /// The bond as the core has it.
  private static func kept(_ bench: borrowing Bench) throws -> Bond {
    let bond = bench.core.bond(with: PeerID(Bench.peer))
    return try #require(bond)
  }
  private static func write(_ value: [UInt8], _ bench: inout Bench) -> SignedWriteAnswer? {
    var answer: SignedWriteAnswer?
    bench.perform { core, _ in
      answer = core.write(signed: value.span, to: AttributeHandle(rawValue: 3), on: link)
    }
    return answer
  }
  /// Signs only with counters that a stored bond has reserved, so that a restart repeats none. Vol 3, Part H, §2.4.5.
  /// The signatures are from OpenSSL's AES-CMAC.
  @Test func aSignedWriteOfOurs() throws {
    var bench = Self.linked(.peripheral, Self.signingBond())
    bench.answerAll()
    bench.forget()
    same(Self.write([1], &bench), .storeBond)
    same(Self.write([1], &bench), .storeBond)
    same(bench.takeAll(), [])
    let stored = try Self.kept(bench)
    bench.perform { core, _ in core.stored(stored) }
    same(Self.write([1], &bench), .queued)
    same(Self.write([2], &bench), .queued)
    same(
      bench.takeAll(),
      [
        "02 40 00 14 00 10 00 04 00 D2 03 00 01 00 00 00 00 3E 6A A5 20 2F 35 95 F5",
        "02 40 00 14 00 10 00 04 00 D2 03 00 02 01 00 00 00 A6 D4 7B 78 FF 7D CD 30",
      ])
    // After a crash: the stored bond begins where the reserved counters end.
    bench = Self.linked(.peripheral, stored)
    bench.answerAll()
    bench.forget()
    same(Self.write([3], &bench), .storeBond)
    let later = try Self.kept(bench)
    // The store of an earlier pairing's bond reserves nothing.
    var other = later
    other.ours.csrk = SecurityKey(0xC6)
    bench.perform { core, _ in core.stored(other) }
    same(Self.write([3], &bench), .storeBond)
    bench.perform { core, _ in core.stored(later) }
    same(Self.write([3], &bench), .queued)
    same(bench.takeAll(), ["02 40 00 14 00 10 00 04 00 D2 03 00 03 40 00 00 00 BA 0E BC 7F 99 88 75 84"])
  }
  /// Over an encrypted link a plain Write Command: Vol 3, Part G, §4.9.2. A value is never cut.
  @Test func signedWritesThatAreNotSigned() {
    var bench = Self.linked(.peripheral, Self.signingBond())
    bench.answerAll()
    same(Self.write([UInt8](repeating: 0, count: 9), &bench), .tooLong(limit: 8))
    bench.receive(Self.keyRequest())
    bench.answerAll()
    bench.receive(Self.encryptionChange())
    bench.forget()
    same(Self.write([1], &bench), .queued)
    same(bench.takeAll(), ["02 40 00 08 00 04 00 04 00 52 03 00 01"])
    same(Self.write([UInt8](repeating: 0, count: 21), &bench), .tooLong(limit: 20))
    bench.receive(disconnectionComplete(0x40))
    same(Self.write([1], &bench), .closed)
    for bond in [nil, Self.bond(), Self.signingBond(ours: .max)] {
      bench = Self.linked(.peripheral, bond)
      same(Self.write([1], &bench), .noSigningKey)
    }
  }
  /// The last counters before none is left: a short reservation.
  @Test func theLastSignCounters() throws {
    var bench = Self.linked(.peripheral, Self.signingBond(ours: .max - 2))
    bench.answerAll()
    same(Self.write([1], &bench), .storeBond)
    let stored = try Self.kept(bench)
    same(stored.ourSignCounter, UInt32.max)
    bench.perform { core, _ in core.stored(stored) }
    same((0..<3).map { _ in Self.write([1], &bench) }, [.queued, .queued, .noSigningKey])
  }
  /// A signed write of the peer counts once, also after a restart. Vol 3, Part C, §10.4.2. The link is not encrypted.
  @Test func aSignedWriteOfThePeer() throws {
    var builder = DatabaseBuilder()
    builder.service("180D") { $0.characteristic("2A39", .authenticatedSignedWrites, value: [0]) }
    let database = try builder.build()
    let signed = octets("D2 03 00 01 00 00 00 00 3E 6A A5 20 2F 35 95 F5")
    var bench = Self.linked(.peripheral, Self.signingBond(), database)
    bench.answerAll()
    bench.forget()
    bench.receive(data(0x40, octets("12 03 00 01")))
    same(bench.takeAll(), ["02 40 00 09 00 05 00 04 00 01 12 03 00 0F"])
    bench.receive(data(0x40, signed))
    let texts = bench.takeTexts()
    #expect(texts.contains("bondChanged(\(Bench.peer))") && texts.contains { $0.contains("written") }, "\(texts)")
    let stored = try Self.kept(bench)
    same(stored.peersSignCounter, 1)
    for isRestarted in [false, true] {
      if isRestarted {
        bench = Self.linked(.peripheral, stored, database)
        bench.answerAll()
        bench.forget()
      }
      bench.receive(data(0x40, signed))
      same(bench.takeAll(), ["link 1 signatureRefused"])
    }
    bench.perform { core, now in expect(core.removeBond(with: PeerID(Bench.peer), now: now)) }
    bench.forget()
    bench.receive(data(0x40, octets("D2 03 00 02 01 00 00 00 A6 D4 7B 78 FF 7D CD 30")))
    same(bench.takeAll(), ["link 1 signatureRefused"])
  }

  // MARK: Bonds

  /// The bond that has been unused for the longest time goes, and the driver gets its peer.
  @Test func bondsInTheOrderOfTheirUse() {
    var bonds = Bonds()
    let peers = (1...3).map { PeerAddress(DeviceAddress(UInt64($0)), .public) }
    for peer in peers {
      var bond = Self.bond()
      bond = Bond(peer: PeerID(peer), address: peer, strength: bond.strength, ours: bond.ours, peers: bond.peers)
      bonds.put(bond)
    }
    bonds.use(PeerID(peers[0]))
    #expect(bonds.all.map(\.address) == [peers[1], peers[2], peers[0]])
    #expect(bonds.other(than: PeerID(peers[0]), at: peers[1])?.address == peers[1])
    #expect(bonds.other(than: PeerID(peers[1]), at: peers[1]) == nil)
    #expect(bonds.remove(PeerID(peers[2])) != nil && bonds.remove(PeerID(peers[2])) == nil)
  }
  @Test func aRemovedBondIsForgotten() {
    var bench = Self.linked(.peripheral, Self.bond())
    bench.answerAll()
    bench.forget()
    bench.perform { core, now in expect(core.removeBond(with: PeerID(Bench.peer), now: now)) }
    same(
      bench.takeTexts(), ["securityChanged(link 1, not encrypted)", "bondRemoved(\(Bench.peer))"])
    bench.perform { core, now in expect(!core.removeBond(with: PeerID(Bench.peer), now: now)) }
    bench.receive(Self.keyRequest())
    same(bench.takeAll(), ["LE_Long_Term_Key_Request_Negative_Reply"])
  }
  /// A key stands in no text.
  @Test func keysAreNotInTexts() {
    let number: UInt128 = 0x0BAD_CAFE_0BAD_CAFE_0BAD_CAFE_0BAD_CAFE
    var bond = Self.bond(), texts = ["\(bond)", String(reflecting: bond)], dumped = ""
    bond.ours.irk = SecurityKey(number)
    bond.peers.csrk = SecurityKey(number)
    dump(bond, to: &dumped)
    texts += ["\(bond)", String(reflecting: bond), dumped]
    for text in texts {
      #expect(!text.contains(String(number)) && !text.uppercased().contains("BADCAFE"), "\(text)")
    }
    #expect(dumped.contains("secret"))
    #expect(texts[0] == "\(Bench.peer), Secure Connections, authenticated, 16 octets")
  }
}
