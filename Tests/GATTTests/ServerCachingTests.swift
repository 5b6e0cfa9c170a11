import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Database Hash, Service Changed, robust caching, bonds: Vol 3, Part G, §2.5.2 and §7.
@Suite struct ServerCachingTests {
  /// The database of Vol 3, Part G, Appendix B.
  static func sampleDatabase() throws -> Database {
    var builder = DatabaseBuilder()
    builder.service("1800") { service in
      service.characteristic("2A00", [.read, .write], value: .text("name"))
      service.characteristic("2A01", .read, value: .fixed([0, 0]))
    }
    builder.genericAttribute()
    builder.service("1808") { service in
      service.include(handle(0x14))
      service.characteristic("2A18", [.read, .indicate, .extendedProperties])
      service.descriptor(.characteristicExtendedProperties, value: .fixed([0, 0]))
    }
    builder.service("180F", .secondary) { $0.characteristic("2A19", .read, value: [100]) }
    return try builder.build()
  }

  /// Vol 3, Part G, Appendix B: F1CA2D48 ECF58BAC 8A8830BB B9FBA990; on the wire least significant octet first.
  @Test func specifiedHash() throws {
    let database = try Self.sampleDatabase()
    #expect(database.lastHandle == handle(0x16))
    #expect(database.hash == 0xF1CA_2D48_ECF5_8BAC_8A88_30BB_B9FB_A990)
    let tester = ServerUnderTest(database)
    #expect(
      tester.ask("08 01 00 FF FF 2A 2B") == "09 12 0D 00 90 A9 FB B9 BB 30 88 8A AC 8B F5 EC 48 2D CA F1")
    // Values are not part of it, nor are types that GATT does not define.
    #expect(tester.ask("12 03 00 41") == "13")
    #expect(tester.server.database.hash == 0xF1CA_2D48_ECF5_8BAC_8A88_30BB_B9FB_A990)
  }

  /// Services that come and go: 0x10 … 0x12 in a gap, and the next free ones.
  struct Cache {
    let tester: ServerUnderTest
    init(features: String? = "01", subscribed: Bool = true) throws {
      var builder = DatabaseBuilder()
      builder.genericAccess(name: "B")  // 0001 … 0005
      builder.genericAttribute()  // 0006 … 000D
      builder.service("180F", at: handle(0x20)) {
        $0.characteristic("2A19", [.read, .write, .notify], value: [1])  // 0020 … 0023
      }
      tester = ServerUnderTest(try builder.build())
      if let features { #expect(tester.ask("12 0B 00 " + features) == "13") }
      if subscribed { #expect(tester.ask("12 09 00 02 00") == "13") }
      _ = tester.effectTexts()
    }
    func change() throws {
      var builder = DatabaseBuilder(after: tester.server.database)
      builder.service("180A") { $0.characteristic("2A29", .read, value: .text("us")) }
      try tester.server.insert(builder)
    }
    func indication() -> String? {
      guard let (handle, value) = tester.server.takeServiceChanged(on: tester.bearer) else { return nil }
      return "\(handle.text) \(hex(value))"
    }
    func confirm() { tester.server.confirmed(on: tester.bearer, now: .zero) }
    /// A Read Request at a handle: what is answered tells the phase, and may end it.
    func reading() -> String { tester.ask("0A 22 00") }
  }

  @Test func featuresAreNotCleared() throws {
    let tester = try Cache(features: nil).tester
    #expect(tester.ask("0A 0B 00") == "0B 00")
    #expect(tester.ask("12 0B 00 04") == "13")
    #expect(tester.server.features(of: tester.bearer) == .multipleHandleValueNotifications)
    #expect(tester.ask("12 0B 00 01") == "01 12 0B 00 13")
    #expect(tester.ask("12 0B 00") == "01 12 0B 00 13")
    #expect(tester.ask("12 0B 00 05") == "13")
    // More octets, and bits that are not defined: taken, and ignored.
    #expect(tester.ask("12 0B 00 FD 01") == "13")
    #expect(tester.ask("0A 0B 00") == "0B 05")
    #expect(tester.ask("12 0B 00 " + hex(Array(repeating: 0xFF, count: 17))) == "01 12 0B 00 0D")
    #expect(tester.ask("16 0B 00 00 00 02") == "17 0B 00 00 00 02")
    #expect(tester.ask("18 01") == "01 18 0B 00 13")
    #expect(tester.ask("06 01 00 FF FF 29 2B 05") == "07 0B 00 0B 00")
    #expect(tester.effectTexts() == [])
    // Each client's own, and forgotten with it.
    tester.server.open(tester.bearer)
    #expect(tester.ask("0A 0B 00") == "0B 00")
  }

  /// §7.1: the range of the service, and of the Generic Attribute service, whose Database Hash has changed.
  @Test func serviceChangedRange() throws {
    let cache = try Cache(features: nil)
    try cache.change()
    #expect(cache.tester.server.database.attribute(handle(0x24))?.type == .primaryService)
    #expect(cache.indication() == "0x0008 06 00 26 00")
    #expect(cache.indication() == nil, "one at a time")
    try cache.tester.server.remove(service: handle(0x20))
    #expect(cache.indication() == nil)
    cache.confirm()
    #expect(cache.indication() == "0x0008 06 00 23 00")
    cache.confirm()
    cache.confirm()
    #expect(cache.indication() == nil)
    // Without Database Hash only the service itself; without a subscription nothing.
    var builder = DatabaseBuilder()
    builder.genericAttribute(robustCaching: false)
    let tester = ServerUnderTest(try builder.build())
    try tester.server.insert(battery(at: 0x20, after: tester.server.database))
    #expect(tester.server.takeServiceChanged(on: tester.bearer) == nil)
    #expect(tester.ask("12 04 00 02 00") == "13")
    #expect(tester.server.takeServiceChanged(on: tester.bearer) == nil, "lost: §7.1")
    try tester.server.remove(service: handle(0x20))
    let change = tester.server.takeServiceChanged(on: tester.bearer)
    #expect(change?.handle == handle(3) && change?.value == [0x20, 0, 0x23, 0])
  }
  private func battery(at raw: UInt16, after database: borrowing Database) -> DatabaseBuilder {
    var builder = DatabaseBuilder(after: database)
    builder.service("180F", at: handle(raw)) { $0.characteristic("2A19", [.read, .notify], value: [1]) }
    return builder
  }

  /// §2.5.2.1: every phase × every input, as in the table of ServerCaching.swift.
  enum Phase: CaseIterable { case aware, unaware, toldByError, toldByHash, deaf }
  private func cache(_ phase: Phase) throws -> Cache {
    // `deaf`: unaware, and has not said that it knows robust caching.
    let cache = try Cache(features: phase == .deaf ? nil : "01")
    if phase == .aware { return cache }
    try cache.change()
    if phase == .toldByError { #expect(cache.reading() == "01 0A 22 00 12") }
    if phase == .toldByHash { #expect(cache.tester.ask("08 01 00 FF FF 2A 2B").hasPrefix("09 12 0D 00")) }
    return cache
  }
  /// What is answered in each phase, and what is answered to a Read Request afterwards.
  @Test(arguments: [
    // Requests at handles.
    ("0A 22 00", "0B 01", "01 0A 22 00 12"), ("0C 22 00 00 00", "0D 01", "01 0C 22 00 12"),
    ("0E 22 00 05 00", "0F 01 00 00", "01 0E 22 00 12"),
    ("20 22 00 05 00", "21 01 00 01 02 00 00 00", "01 20 22 00 12"),
    ("12 22 00 01", "13", "01 12 22 00 12"), ("16 22 00 00 00 01", "17 22 00 00 00 01", "01 16 22 00 12"),
    // Even of the hash; and of what is not there.
    ("0A 77 00", "01 0A 77 00 01", "01 0A 77 00 12"),
    // Read By Type within a range, for anything but discovery.
    ("08 01 00 FF 00 00 2A", "09 03 03 00 42", "01 08 01 00 12"),
    ("08 02 00 FF FF 00 2A", "09 03 03 00 42", "01 08 02 00 12"),
  ])
  func requestAtHandles(pdu: String, answer: String, refusal: String) throws {
    for phase in Phase.allCases {
      let cache = try cache(phase)
      #expect(cache.tester.ask(pdu) == (phase == .unaware ? refusal : answer), "\(phase)")
      // Once told, the next request makes it aware: nothing is refused twice.
      #expect(cache.reading() == "0B 01", "\(phase)")
      if phase == .unaware || phase == .deaf { continue }
      try cache.change()
      #expect(cache.reading() == "01 0A 22 00 12", "another change: \(phase)")
    }
  }
  @Test(arguments: [
    ("04 20 00 20 00", "05 01 20 00 00 28"), ("06 01 00 FF FF 00 28 0F 18", "07 20 00 23 00"),
    ("10 20 00 23 00 00 28", "11 06 20 00 23 00 0F 18"), ("08 20 00 23 00 03 28", "09 07 21 00 1A 22 00 19 2A"),
    ("08 20 00 23 00 02 28", "01 08 20 00 0A"), ("08 01 00 FF FF 19 2A", "09 03 22 00 01"), ("18 00", "19"),
  ])
  func requestOfWhatThereIs(pdu: String, answer: String) throws {
    for phase in Phase.allCases {
      let cache = try cache(phase)
      #expect(cache.tester.ask(pdu) == answer, "\(phase)")
      // It makes a client aware that has been told, and no other.
      #expect(cache.reading() == (phase == .unaware ? "01 0A 22 00 12" : "0B 01"), "\(phase)")
    }
  }
  @Test func hashConfirmationCommandAndClosing() throws {
    for phase in Phase.allCases {
      var cache = try cache(phase)
      #expect(cache.tester.ask("08 01 00 FF FF 2A 2B").hasPrefix("09 12 0D 00"), "\(phase)")
      #expect(cache.reading() == "0B 01", "\(phase)")

      cache = try self.cache(phase)
      #expect((cache.indication() == nil) == (phase == .aware))
      cache.confirm()
      #expect(cache.reading() == "0B 01", "\(phase)")

      cache = try self.cache(phase)
      _ = cache.tester.effectTexts()
      cache.tester.command("52 22 00 07")
      let isIgnored = phase != .aware && phase != .deaf
      #expect(cache.tester.effectTexts().isEmpty == isIgnored, "\(phase)")

      // Not bonded: aware again with the next link.
      cache = try self.cache(phase)
      cache.tester.server.open(cache.tester.bearer)
      #expect(cache.tester.ask("12 0B 00 01") == "13")
      #expect(cache.reading() == "0B 01", "\(phase)")
    }
  }
  /// Reading the hash by its handle relies on the handle: §7.3 requires Read Using Characteristic UUID.
  @Test func hashAtItsHandle() throws {
    #expect(try cache(.unaware).tester.ask("0A 0D 00") == "01 0A 0D 00 12")
    let deaf = try cache(.deaf)
    #expect(deaf.tester.ask("0A 0D 00").hasPrefix("0B"))
  }

  /// Values are held back until the client is change-aware; Service Changed is not.
  @Test func noValuesForTheUnaware() throws {
    for phase in Phase.allCases {
      // Subscribed before, because a request would change the phase.
      let other = try Cache(features: phase == .deaf ? nil : "01")
      #expect(other.tester.ask("12 23 00 01 00") == "13")
      if phase != .aware { try other.change() }
      if phase == .toldByError { #expect(other.reading() == "01 0A 22 00 12") }
      if phase == .toldByHash { _ = other.tester.ask("08 01 00 FF FF 2A 2B") }
      let sent = other.tester.server.mayBeSent(handle(0x22), to: other.tester.bearer)
      #expect(sent == (phase == .aware || phase == .deaf ? .notification : []), "\(phase)")
    }
  }

  /// Vol 3, Part C, §10.3.1.1: the configuration outlasts the link's security.
  @Test func noValuesWithoutSecurity() throws {
    var builder = DatabaseBuilder()
    builder.service("180D") { service in
      service.characteristic("2A37", .notify, configuring: .encrypted)  // 0002 … 0004
      service.characteristic("2A38", [.read, .notify], permissions: .init(read: .encrypted))  // 0005 … 0007
    }
    let tester = ServerUnderTest(try builder.build())
    #expect(tester.ask("12 04 00 01 00") == "01 12 04 00 05")
    #expect(tester.ask("12 07 00 01 00") == "01 12 07 00 05", "as much as for reading the value")
    tester.server.setSecurity(.encrypted, of: tester.bearer)
    #expect(tester.ask("12 04 00 01 00") == "13" && tester.ask("12 07 00 01 00") == "13")
    for raw in [UInt16(3), 6] {
      tester.server.setSecurity(.encrypted, of: tester.bearer)
      #expect(tester.server.mayBeSent(handle(raw), to: tester.bearer) == .notification)
      tester.server.setSecurity(.keysAvailable, of: tester.bearer)
      #expect(tester.server.mayBeSent(handle(raw), to: tester.bearer) == [])
    }
  }

  /// §3.4.6.3 of Vol 3, Part F: writes prepared for services that have changed since are not executed.
  @Test func preparedForAnotherDatabase() throws {
    let cache = try Cache(features: nil, subscribed: false)
    #expect(cache.tester.ask("16 22 00 00 00 07") == "17 22 00 00 00 07")
    try cache.change()
    #expect(cache.tester.ask("18 01") == "19" && cache.tester.server.database.value(handle(0x22)) == [7])
    #expect(cache.tester.ask("16 22 00 00 00 08") == "17 22 00 00 00 08")
    try cache.tester.server.remove(service: handle(0x20))
    #expect(cache.tester.ask("18 01") == "01 18 22 00 12")
    #expect(cache.tester.ask("18 01") == "19")
  }

  // MARK: Bonds

  private func restored(_ cache: Cache, _ record: [UInt8], _ bearer: UInt16 = 1) throws {
    cache.tester.server.open(BearerID(rawValue: bearer))
    cache.tester.bearer = BearerID(rawValue: bearer)
    try cache.tester.server.restore(record.span, of: BondID(rawValue: 7), on: cache.tester.bearer)
  }

  @Test func bondedClientIsRemembered() throws {
    let bond = BondID(rawValue: 7), cache = try Cache(), tester = cache.tester
    tester.server.bond(tester.bearer, as: bond)
    #expect(tester.effectTexts() == ["bond 7 stored"])
    #expect(tester.ask("12 23 00 01 00") == "13")
    #expect(tester.effectTexts() == ["1 subscribed 0x0022 1", "bond 7 stored"])
    #expect(tester.effectTexts() == [])
    // The last change to store may come with the link's end.
    #expect(tester.ask("12 0B 00 05") == "13")
    tester.server.close(tester.bearer)
    #expect(
      tester.effectTexts() == ["bond 7 stored", "1 subscribed 0x0008 0", "1 subscribed 0x0022 0"])
    let octets = try #require(tester.records[bond]), record = try ClientRecord(octets.span)
    #expect(record.features == [.robustCaching, .multipleHandleValueNotifications] && record.isAware)
    #expect(record.configurations.map(\.descriptor) == [handle(9), handle(0x23)] && record.octets == octets)

    try restored(cache, octets, 2)
    #expect(
      tester.effectTexts() == ["2 subscribed 0x0008 2", "2 subscribed 0x0022 1", "bond 7 stored"])
    #expect(tester.ask("0A 23 00") == "0B 01 00" && tester.ask("0A 0B 00") == "0B 05")
    #expect(cache.indication() == nil)
    // A client that is not bonded is forgotten.
    let stranger = BearerID(rawValue: 3)
    tester.server.open(stranger)
    tester.bearer = stranger
    #expect(tester.ask("0A 23 00") == "0B 00 00" && tester.ask("0A 0B 00") == "0B 00")
  }

  /// What the client configures before its link is encrypted counts: §3.3.3.3.
  @Test func configuredBeforeTheRecord() throws {
    let bond = BondID(rawValue: 7), cache = try Cache(), tester = cache.tester
    tester.server.bond(tester.bearer, as: bond)
    #expect(tester.ask("12 23 00 01 00") == "13" && tester.ask("12 0B 00 05") == "13")
    _ = tester.effectTexts()
    tester.server.close(tester.bearer)
    _ = tester.effectTexts()
    let record = try #require(tester.records[bond])
    // Indications of 0x0008 and notifications of 0x0022 are in the record.
    tester.bearer = BearerID(rawValue: 2)
    tester.server.open(tester.bearer)
    #expect(tester.ask("12 23 00 00 00") == "13" && tester.ask("12 0B 00 01") == "13")
    try tester.server.restore(record.span, of: bond, on: tester.bearer)
    #expect(tester.effectTexts() == ["2 subscribed 0x0008 2", "bond 7 stored"])
    #expect(tester.ask("0A 23 00") == "0B 00 00" && tester.ask("0A 0B 00") == "0B 05")
    let octets = try #require(tester.records[bond]), stored = try ClientRecord(octets.span)
    #expect(stored.configurations.map(\.descriptor) == [handle(9)])
  }

  /// A characteristic in the slot of a removed one has its own configuration, which the record restores: §3.3.3.3.
  @Test func aSlotThatIsUsedAgain() throws {
    func tester(serviceAt raw: UInt16) throws -> ServerUnderTest {
      var builder = DatabaseBuilder()
      builder.service("180F", at: handle(raw)) { $0.characteristic("2A19", [.read, .notify], value: [1]) }
      return ServerUnderTest(try builder.build())
    }
    let bond = BondID(rawValue: 7), earlier = try tester(serviceAt: 0x30)
    earlier.server.bond(earlier.bearer, as: bond)
    #expect(earlier.ask("12 33 00 01 00") == "13")
    _ = earlier.effectTexts()
    let record = try #require(earlier.records[bond])
    // The client configures another characteristic before the link is encrypted, and its service goes.
    let later = try tester(serviceAt: 0x20)
    #expect(later.ask("12 23 00 00 00") == "13")
    try later.server.remove(service: handle(0x20))
    try later.server.insert(battery(at: 0x30, after: later.server.database))
    try later.server.restore(record.span, of: bond, on: later.bearer)
    #expect(later.ask("0A 33 00") == "0B 01 00")
  }

  /// §2.5.2, §7.1: a change while it was disconnected is indicated on its return, until it confirms.
  @Test func changesWhileAway() throws {
    let bond = BondID(rawValue: 7), cache = try Cache(), tester = cache.tester
    tester.server.bond(tester.bearer, as: bond)
    _ = tester.effectTexts()
    tester.server.close(tester.bearer)
    let away = try #require(tester.records[bond])
    try cache.change()
    try restored(cache, away)
    #expect(cache.indication() == "0x0008 06 00 26 00")
    #expect(cache.reading() == "01 0A 22 00 12")
    _ = tester.effectTexts()
    // Disconnected before its confirmation.
    tester.server.close(tester.bearer)
    _ = tester.effectTexts()
    try restored(cache, try #require(tester.records[bond]))
    #expect(cache.reading() == "01 0A 22 00 12", "after a new connection the error is sent again")
    #expect(cache.indication() == "0x0008 06 00 26 00")
    cache.confirm()
    _ = tester.effectTexts()
    tester.server.close(tester.bearer)
    _ = tester.effectTexts()
    try restored(cache, try #require(tester.records[bond]))
    #expect(cache.indication() == nil && cache.reading() == "0B 01")
    // For the record of an unknown database, as after an update, everything has changed.
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "B")
    builder.genericAttribute()
    builder.service("180D", at: handle(0x20)) { $0.characteristic("2A37", .notify) }
    let other = Cache(ServerUnderTest(try builder.build()))
    try restored(other, away)
    #expect(other.indication() == "0x0008 01 00 FF FF")
  }

  /// The subscription to a handle that now belongs to another characteristic is dropped.
  @Test func configurationsOfAnotherDatabase() throws {
    let bond = BondID(rawValue: 7), cache = try Cache(), tester = cache.tester
    #expect(tester.ask("12 23 00 01 00") == "13")
    tester.server.bond(tester.bearer, as: bond)
    _ = tester.effectTexts()
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "B")
    builder.genericAttribute()
    builder.service("180D", at: handle(0x20)) { $0.characteristic("2A37", .notify) }
    let other = Cache(ServerUnderTest(try builder.build()))
    try restored(other, try #require(tester.records[bond]))
    #expect(other.tester.effectTexts() == ["1 subscribed 0x0008 2", "bond 7 stored"])
    #expect(other.tester.ask("08 01 00 FF FF 2A 2B").hasPrefix("09 12"))
    #expect(other.tester.ask("0A 23 00") == "0B 00 00")
  }

  /// Service Changed without the descriptor that §7.1 requires, as a profile may describe it: no client can subscribe
  /// to it, and the server neither indicates nor asks a list of subscriptions about it.
  @Test func serviceChangedWithoutConfiguration() throws {
    var builder = DatabaseBuilder()
    builder.service(.genericAttribute) {
      $0.characteristic(.serviceChanged, .indicate, value: .fixed([0, 0, 0, 0]), configured: false)  // 0001 … 0003
    }
    builder.service("180F") { $0.characteristic("2A19", [.read, .notify], value: [1]) }  // 0004 … 0007
    let cache = Cache(ServerUnderTest(try builder.build())), tester = cache.tester
    // A bonded client comes back; its record has another database's hash.
    try restored(cache, ClientRecord().octets)
    #expect(cache.indication() == nil)
    // Services come and go while it is connected.
    try cache.change()
    #expect(cache.indication() == nil)
    try tester.server.remove(service: handle(4))
    #expect(cache.indication() == nil)
    let allowed = tester.server.mayBeSent(handle(3), to: tester.bearer)
    let mayNotify = tester.server.mayNotify(handle(3), to: tester.bearer)
    let configuration = tester.server.configuration(of: handle(3), on: tester.bearer)
    let subscribers = tester.server.subscribers(of: handle(3))
    #expect(allowed == [] && !mayNotify && configuration == [] && subscribers == [])
  }

  /// Invalid octets for a record: a named error, and a client without a record.
  @Test func badRecords() throws {
    let good = ClientRecord().octets
    #expect(good.count == 23)
    for count in 0..<good.count {
      let short = Array(good[..<count])
      #expect(throws: WireError.self) { try ClientRecord(short.span) }
    }
    for bad in [[2] + good.dropFirst(), good + [1], good + Array(repeating: 0, count: 19)] {
      let cache = try Cache()
      #expect(throws: WireError.self) { try restored(cache, bad) }
      #expect(cache.reading() == "0B 01")
    }
    var chance = SplitMix64(seed: 5)
    for _ in 0..<2000 {
      let octets =
        [1] + (0..<Int.random(in: 0...100, using: &chance)).map { _ in UInt8.random(in: 0...255, using: &chance) }
      guard let record = try? ClientRecord(octets.span) else { continue }
      let cache = try Cache()
      try restored(cache, octets)
      _ = cache.indication()
      let again = try ClientRecord(record.octets.span)
      #expect(again == record)
    }
  }
}
extension ServerCachingTests.Cache {
  init(_ tester: ServerUnderTest) { self.tester = tester }
}
