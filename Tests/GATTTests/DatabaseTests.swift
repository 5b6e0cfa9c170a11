import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

@Suite struct DatabaseTests {
  @Test func handlesAndGroups() throws {
    var builder = DatabaseBuilder()
    let (service, measurement, location) = builder.service("180D") { service in
      let measurement = service.characteristic("2A37", .notify)
      let location = service.characteristic("2A38", .read, value: [2])
      service.userDescription("where")
      return (service.handle, measurement, location)
    }
    let database = try builder.build()
    #expect(service == handle(1))
    #expect(
      [measurement.declaration, measurement.value, measurement.configuration] == [handle(2), handle(3), handle(4)])
    #expect([location.declaration, location.value, location.configuration] == [handle(5), handle(6), nil])
    #expect(database.allAttributes.map(\.handle.rawValue) == [1, 2, 3, 4, 5, 6, 7])
    #expect(database.allAttributes.map(\.groupEnd.rawValue) == [7, 4, 3, 4, 7, 6, 7])
    #expect(database.allAttributes.map(\.type) == ["2800", "2803", "2A37", "2902", "2803", "2A38", "2901"])
    #expect(database.attribute(handle(3))?.permissions == AttributePermissions.none)
    #expect(database.attribute(handle(6))?.permissions == .readable)
    #expect(database.value(handle(2)).map(hex) == "10 03 00 37 2A")
    #expect(database.value(handle(6)) == [2])
    #expect(database.value(handle(8)) == nil)
    #expect(database.attribute(handle(0)) == nil)
    #expect(database.count == 7 && database.lastHandle == handle(7))
  }

  @Test func explicitHandles() throws {
    let database = try richDatabase()
    #expect(database.lastHandle == handle(0x48))
    #expect(database.attribute(handle(0x10))?.groupEnd == handle(0x1F))
    #expect(database.attribute(handle(0x20))?.type == .secondaryService)
    #expect(database.attribute(handle(0x15)) == nil)
    #expect(database.value(handle(0x31)).map(hex) == "10 00 1F 00 0F 18")
    #expect(database.value(handle(0x32)).map(hex) == "20 00 22 00")
    #expect(database.attribute(handle(0x3A))?.isDynamic == true)

    var builder = DatabaseBuilder()
    builder.service("1802", at: handle(0xFFF0), end: handle(0xFFFF)) { service in
      service.reserve(2)
      service.characteristic("2A06", .writeWithoutResponse, at: handle(0xFFF8), valueAt: handle(0xFFFA))
    }
    let last = try builder.build()
    #expect(last.allAttributes.map(\.handle.rawValue) == [0xFFF0, 0xFFF8, 0xFFFA])
    #expect(last.value(handle(0xFFF8)).map(hex) == "04 FA FF 06 2A")
    let tester = ServerUnderTest(last)
    #expect(tester.ask("10 01 00 FF FF 00 28") == "11 06 F0 FF FF FF 02 18")
    #expect(tester.ask("04 F1 FF FF FF") == "05 01 F8 FF 03 28 FA FF 06 2A")
    #expect(tester.ask("04 FF FF FF FF") == "01 04 FF FF 0A")
  }

  /// Services may come in any order of their explicit handles, and include one that comes later.
  @Test func orderOfServices() throws {
    var builder = DatabaseBuilder()
    builder.service("1811", at: handle(0x20)) { $0.include(handle(0x30)) }
    builder.service("180F", at: handle(0x30)) { $0.characteristic("2A19", .read) }
    builder.service("180A", at: handle(0x10)) { $0.characteristic("2A29", .read, value: .text("us")) }
    let database = try builder.build()
    #expect(
      database.allAttributes.map(\.handle.rawValue) == [0x10, 0x11, 0x12, 0x20, 0x21, 0x30, 0x31, 0x32])
    #expect(database.value(handle(0x21)).map(hex) == "30 00 32 00 0F 18")
    #expect(ServerUnderTest(database).ask("06 01 00 FF FF 00 28 0F 18") == "07 30 00 32 00")
  }

  @Test func emptyDatabase() throws {
    let tester = ServerUnderTest(try DatabaseBuilder().build())
    #expect(tester.ask("10 01 00 FF FF 00 28") == "01 10 01 00 0A")
    #expect(tester.ask("06 01 00 FF FF 00 28 0F 18") == "01 06 01 00 0A")
    #expect(tester.ask("08 01 00 FF FF 03 28") == "01 08 01 00 0A")
    #expect(tester.ask("04 01 00 FF FF") == "01 04 01 00 0A")
    #expect(tester.ask("0A 01 00") == "01 0A 01 00 01")
  }

  @Test func genericServices() throws {
    var builder = DatabaseBuilder()
    #expect(builder.genericAccess(name: "Bindrune", appearance: 0x0341) == handle(3))
    let changed = builder.genericAttribute()
    #expect([changed.declaration, changed.value, changed.configuration] == [handle(7), handle(8), handle(9)])
    let tester = ServerUnderTest(try builder.build())
    #expect(tester.ask("10 01 00 FF FF 00 28") == "11 06 01 00 05 00 00 18 06 00 0D 00 01 18")
    #expect(
      tester.ask("08 06 00 FF FF 03 28") == "09 07 07 00 20 08 00 05 2A 0A 00 0A 0B 00 29 2B 0C 00 02 0D 00 2A 2B")
    #expect(tester.ask("0A 07 00") == "0B 20 08 00 05 2A")
    #expect(tester.ask("0A 08 00") == "01 0A 08 00 02")
  }

  @Test func presentationFormat() throws {
    var builder = DatabaseBuilder()
    builder.service("180F") { service in
      service.characteristic("2A19", .read)
      var format = CharacteristicPresentationFormat()
      format.format = 0x04
      format.unit = UUID16(rawValue: 0x27AD)
      format.nameSpace = 1
      service.presentationFormat(format)
    }
    #expect(ServerUnderTest(try builder.build()).ask("0A 04 00") == "0B 04 00 AD 27 01 00 00")
  }

  @Test func invalidDatabases() {
    func error<Result>(_ body: (inout DatabaseBuilder) -> Result) -> DatabaseError? {
      var builder = DatabaseBuilder()
      _ = body(&builder)
      do throws(DatabaseError) {
        _ = try builder.build()
        return nil
      } catch {
        return error
      }
    }
    #expect(error { $0.service("180D", at: handle(0)) { _ in } } == .handleOutOfRange(0))
    #expect(
      error { $0.service("180D", at: handle(0xFFFF)) { $0.characteristic("2A37", .read) } }
        == .handleOutOfRange(0x10000))
    #expect(
      error { builder in
        builder.service("180D", at: handle(5)) { $0.characteristic("2A37", .read) }
        builder.service("180F", at: handle(7)) { _ in }
      } == .handleNotAscending(handle(7)))
    #expect(
      error { $0.service("180D", at: handle(5)) { $0.characteristic("2A37", .read, at: handle(5)) } }
        == .handleNotAscending(handle(5)))
    #expect(
      error { $0.service("180D", end: handle(2)) { $0.characteristic("2A37", .read) } } == .groupEndTooLow(handle(2)))
    #expect(
      error { builder in
        builder.service("180D", end: handle(9)) { _ in }
        builder.service("180F", at: handle(9)) { _ in }
      } == .handleNotAscending(handle(9)))
    #expect(error { $0.service("180D") { $0.include(handle(9)) } } == .includeOfNothing(handle(2)))
    let long = AttributeValue.stored(Array(repeating: 0, count: 513))
    #expect(error { $0.service("180D") { $0.characteristic("2A37", .read, value: long) } } == .valueTooLong(handle(3)))
    let fixed = AttributeValue.fixed(Array(repeating: 0, count: 513))
    #expect(error { $0.service("180D") { $0.characteristic("2A37", .read, value: fixed) } } == .valueTooLong(handle(3)))
    let limited = AttributeValue.stored([1, 2], upTo: 1)
    #expect(
      error { $0.service("180D") { $0.characteristic("2A37", .read, value: limited) } } == .valueTooLong(handle(3)))
  }

  /// The indexes agree with a plain search, on random databases.
  @Test func indexesAgreeWithASearch() throws {
    for seed in UInt64(1)...20 {
      var chance = SplitMix64(seed: seed)
      var builder = DatabaseBuilder()
      for _ in 0..<Int.random(in: 1...20, using: &chance) {
        builder.reserve(Int.random(in: 0...3, using: &chance))
        builder.service(uuid(&chance), Bool.random(using: &chance) ? .primary : .secondary) { service in
          for _ in 0..<Int.random(in: 0...6, using: &chance) {
            service.characteristic(uuid(&chance), [.read, .notify], value: [1, 2])
            service.reserve(Int.random(in: 0...2, using: &chance))
          }
        }
      }
      let database = try builder.build()
      let tester = ServerUnderTest(database, mtu: 512)
      for _ in 0..<100 {
        let start = UInt16.random(in: 1...UInt16(database.lastHandle.rawValue + 2), using: &chance)
        let end = UInt16.random(in: start...UInt16(database.lastHandle.rawValue + 3), using: &chance)
        let range = hex([UInt8(start & 0xFF), UInt8(start >> 8), UInt8(end & 0xFF), UInt8(end >> 8)])
        let type = uuid(&chance)
        let found = database.allAttributes.filter {
          $0.type == type && start <= $0.handle.rawValue && $0.handle.rawValue <= end
        }
        let response = octets(tester.ask("08 \(range) \(wire(type))"))
        if found.isEmpty {
          #expect(response == [0x01, 0x08, UInt8(start & 0xFF), UInt8(start >> 8), 0x0A])
        } else {
          let handles = stride(from: 2, to: response.count, by: 4).map {
            UInt16(response[$0]) | UInt16(response[$0 + 1]) << 8
          }
          #expect(response[1] == 4 && handles == found.map(\.handle.rawValue))
        }
        let services = database.allAttributes.filter { attribute in
          attribute.type == .primaryService && start <= attribute.handle.rawValue && attribute.handle.rawValue <= end
            && database.value(attribute.handle).map(hex) == wire(type)
        }
        let matches = octets(tester.ask("06 \(range) 00 28 \(wire(type))"))
        let expected = services.flatMap { service in
          [service.handle, service.groupEnd].flatMap { [UInt8($0.rawValue & 0xFF), UInt8($0.rawValue >> 8)] }
        }
        #expect(services.isEmpty ? matches[0] == 0x01 : matches == [0x07] + expected)
      }
    }
  }
  private func uuid(_ chance: inout SplitMix64) -> BluetoothUUID {
    let number = UInt16.random(in: 0...9, using: &chance)
    return Bool.random(using: &chance) ? .short(0xA000 + number) : custom(UInt64(number))
  }
  private func wire(_ uuid: BluetoothUUID) -> String {
    if case .short(let value) = uuid { return hex([UInt8(value & 0xFF), UInt8(value >> 8)]) }
    return customOctets(UInt8(truncatingIfNeeded: uuid.high >> 32))
  }
}

/// Services that come and go. Vol 3, Part G, §2.5.2.
@Suite struct DatabaseChangeTests {
  private func small() throws -> Database {
    var builder = DatabaseBuilder()
    builder.service("180F", at: handle(0x10), end: handle(0x1F)) {
      $0.characteristic("2A19", [.read, .notify], value: [1])
    }
    builder.service("180D", at: handle(0x30)) { $0.characteristic("2A37", .notify) }
    return try builder.build()
  }

  @Test func insertion() throws {
    var database = try small()
    let before = database.hash
    var builder = DatabaseBuilder(after: database)
    builder.service("180A") { service in
      service.include(handle(0x10))
      service.characteristic("2A29", .read, value: .text("us"))
    }
    builder.service(custom(1), .secondary, at: handle(0x20)) { $0.characteristic(custom(2), .indicate) }
    try database.insert(builder)
    #expect(
      database.allAttributes.map(\.handle.rawValue)
        == [0x10, 0x11, 0x12, 0x13, 0x20, 0x21, 0x22, 0x23, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37])
    #expect(database.value(handle(0x35)).map(hex) == "10 00 1F 00 0F 18")
    #expect(database.hash != before)
    let tester = ServerUnderTest(database)
    #expect(tester.ask("10 01 00 FF FF 00 28") == "11 06 10 00 1F 00 0F 18 30 00 33 00 0D 18 34 00 37 00 0A 18")
    #expect(tester.ask("0A 37 00") == "0B 75 73")
    #expect(tester.ask("12 23 00 02 00") == "13" && tester.ask("0A 33 00") == "0B 00 00")
    #expect(tester.ask("08 01 00 FF FF 02 29") == "09 04 13 00 00 00 23 00 02 00 33 00 00 00")
  }

  @Test func removal() throws {
    var database = try small()
    let before = database.hash
    try database.remove(service: handle(0x30))
    #expect(database.lastHandle == handle(0x13) && database.attribute(handle(0x31)) == nil)
    // Its handles stay reserved for clients that cached them; the rest is unchanged.
    var builder = DatabaseBuilder(after: database)
    let added = builder.service("180D") { $0.characteristic("2A37", .notify) }
    #expect(added.declaration == handle(0x35))
    try database.insert(builder)
    try database.remove(service: handle(0x34))
    var again = DatabaseBuilder()
    again.service("180D", at: handle(0x30)) { $0.characteristic("2A37", .notify) }
    try database.insert(again)
    #expect(database.hash == before)
    #expect(database.allAttributes == (try small()).allAttributes)
  }

  /// Removing a service that others include also removes their includes: the others keep their handles and their
  /// subscriptions.
  @Test func removalWithIncludes() throws {
    var builder = DatabaseBuilder()
    builder.genericAttribute()
    builder.service("180F", at: handle(0x10)) { $0.characteristic("2A19", .read, value: [1]) }
    builder.service("180D", at: handle(0x20)) { service in
      service.include(handle(0x30))
      service.include(handle(0x10))
      service.characteristic("2A37", .notify)
    }
    builder.service("180A", at: handle(0x30)) { _ in }
    let tester = ServerUnderTest(try builder.build())
    #expect(tester.ask("12 04 00 02 00") == "13" && tester.ask("12 25 00 01 00") == "13")
    _ = tester.effectTexts()
    let before = tester.server.database.hash
    try tester.server.remove(service: handle(0x10), andIncludes: true)
    #expect(tester.effectTexts() == [] && tester.server.database.hash != before)
    #expect(tester.ask("10 10 00 FF FF 00 28") == "11 06 20 00 25 00 0D 18 30 00 30 00 0A 18")
    #expect(tester.ask("08 20 00 25 00 02 28") == "09 08 21 00 30 00 30 00 0A 18")
    #expect(tester.ask("0A 22 00") == "01 0A 22 00 01" && tester.ask("0A 25 00") == "0B 01 00")
    // §7.1: from the Generic Attribute service, whose hash has changed, to the end of the service that included it.
    #expect(tester.server.takeServiceChanged(on: tester.bearer)?.value == [0x01, 0x00, 0x25, 0x00])
  }

  /// When all handles have been assigned, a new service gets those of removed services.
  @Test func handlesAreGivenOutAgain() throws {
    var database = try small()
    func add(_ count: Int) throws(DatabaseError) -> UInt16 {
      var builder = DatabaseBuilder(after: database, for: count)
      let service = builder.service("180A") { service in
        for _ in 1..<count { service.descriptor("2901", value: []) }
        return service.handle
      }
      try database.insert(builder)
      return service.rawValue
    }
    #expect(try add(0xFFFF - 0x33) == 0x34)
    // Before the first, and between 0x1F and 0x30; no 17 consecutive handles are free.
    #expect(try add(15) == 0x01 && add(16) == 0x20)
    #expect(throws: DatabaseError.handleOutOfRange(0x10000)) { try add(1) }
    try database.remove(service: handle(0x30))
    #expect(throws: DatabaseError.handleOutOfRange(0x10000)) { try add(5) }
    #expect(try add(4) == 0x30)
    try database.remove(service: handle(0x34))
    #expect(try add(0xFFFF - 0x33) == 0x34)
  }

  /// A refused change changes nothing.
  @Test func refusedChanges() throws {
    var builder = DatabaseBuilder()
    builder.genericAttribute()
    let battery = builder.service("180F") { service in
      service.characteristic("2A19", .read, value: [1])
      return service.handle
    }
    let includer = builder.service("180D") { $0.include(battery) }
    var database = try builder.build()
    let before = database.hash
    func error(_ change: (inout Database) throws(DatabaseError) -> Void) -> DatabaseError? {
      do throws(DatabaseError) { try change(&database) } catch { return error }
      return nil
    }
    #expect(error { (d) throws(DatabaseError) in try d.remove(service: handle(0x77)) } == .noSuchService(handle(0x77)))
    #expect(error { (d) throws(DatabaseError) in try d.remove(service: handle(2)) } == .noSuchService(handle(2)))
    #expect(error { (d) throws(DatabaseError) in try d.remove(service: handle(1)) } == .permanentService(handle(1)))
    #expect(error { (d) throws(DatabaseError) in try d.remove(service: battery) } == .includedBy(includer))
    for (first, last) in [(UInt16(1), UInt16(1)), (8, 8), (9, 9), (5, 0x20)] {
      var builder = DatabaseBuilder()
      builder.service("180A", at: handle(0x30)) { _ in }
      builder.service("180A", at: handle(first), end: handle(last)) { _ in }
      #expect(error { (d) throws(DatabaseError) in try d.insert(builder) } == .handleNotAscending(handle(first)))
    }
    var nothing = DatabaseBuilder()
    nothing.service("180A", at: handle(0x30)) { $0.include(handle(0x40)) }
    #expect(error { (d) throws(DatabaseError) in try d.insert(nothing) } == .includeOfNothing(handle(0x31)))
    var full = DatabaseBuilder()
    full.service("180A", at: handle(0xFFFF)) { _ in }
    #expect(error { (d) throws(DatabaseError) in try d.insert(full) } == nil)
    try database.remove(service: handle(0xFFFF))
    var beyond = DatabaseBuilder(after: database)
    beyond.service("180A") { _ in }
    #expect(error { (d) throws(DatabaseError) in try d.insert(beyond) } == .handleOutOfRange(0x10000))
    #expect(database.hash == before)
  }

  /// With connected clients, subscriptions end with their service, and a reused slot is empty.
  @Test func whileConnected() throws {
    let tester = ServerUnderTest(try small())
    #expect(tester.ask("12 33 00 01 00") == "13" && tester.ask("12 13 00 01 00") == "13")
    _ = tester.effectTexts()
    try tester.server.remove(service: handle(0x30))
    #expect(tester.effectTexts() == ["1 subscribed 0x0032 0"])
    #expect(tester.ask("0A 33 00") == "01 0A 33 00 01" && tester.ask("0A 13 00") == "0B 01 00")
    #expect(tester.server.subscribers(of: handle(0x32)) == [])
    var builder = DatabaseBuilder(after: tester.server.database)
    let added = builder.service("180D") { $0.characteristic("2A37", [.notify, .indicate]) }
    try tester.server.insert(builder)
    #expect(tester.ask("0A 37 00") == "0B 00 00" && added.configuration == handle(0x37))
    #expect(tester.ask("12 37 00 02 00") == "13" && tester.effectTexts() == ["1 subscribed 0x0036 2"])
    #expect(tester.ask("0A 13 00") == "0B 01 00")
    // Values keep their storage.
    #expect(tester.ask("0A 12 00") == "0B 01" && tester.setValue(0x12, [9]) && tester.ask("0A 12 00") == "0B 09")
  }

  /// Repeated adding and removing takes no more memory than once.
  @Test func comingAndGoing() throws {
    let tester = ServerUnderTest(try small())
    for round in 0..<300 {
      var builder = DatabaseBuilder()
      builder.service(custom(UInt64(round)), at: handle(0x40)) {
        $0.characteristic("2A37", .notify, value: .stored([1], upTo: 20))
      }
      try tester.server.insert(builder)
      #expect(tester.ask("12 43 00 01 00") == "13")
      #expect(tester.effectTexts() == ["1 subscribed 0x0042 1"])
      try tester.server.remove(service: handle(0x40))
      #expect(tester.effectTexts() == ["1 subscribed 0x0042 0"])
    }
    #expect(tester.server.database.hash == (try small()).hash)
  }

  @Test func genericAccess() throws {
    var builder = DatabaseBuilder()
    var preferred = PreferredConnectionParameters()
    preferred.minimumConnectionInterval = 6
    preferred.maximumConnectionInterval = 24
    preferred.peripheralLatency = 4
    preferred.connectionSupervisionTimeoutMultiplier = 500
    builder.genericAccess(name: "B", preferredParameters: preferred, resolvesCentralAddresses: true)
    builder.genericAttribute(serverFeatures: [])
    let tester = ServerUnderTest(try builder.build())
    // Vol 3, Part C, §12.3 and §12.4.
    #expect(tester.ask("08 01 00 FF FF 04 2A") == "09 0A 07 00 06 00 18 00 04 00 F4 01")
    #expect(tester.ask("08 01 00 FF FF A6 2A") == "09 03 09 00 01")
    #expect(tester.ask("08 01 00 FF FF 3A 2B") == "09 02 13 00")
  }
}

/// Which attributes have a value that can be set.
@Suite struct NoValueTests {
  /// Declarations cannot be set: the index and the Database Hash would be wrong.
  @Test func declarationsAreNotSet() throws {
    var builder = DatabaseBuilder()
    builder.service("180D") { _ = $0.characteristic("2A37", [.read, .notify], value: [1]) }
    let tester = ServerUnderTest(try builder.build()), hash = tester.server.database.hash
    #expect(
      !tester.setValue(1, [0x00, 0x01]) && !tester.setValue(2, [2, 3, 0, 0x37, 0x2A]) && tester.setValue(3, [2]))
    #expect(tester.ask("06 01 00 01 00 00 28 0D 18") == "07 01 00 04 00" && tester.server.database.hash == hash)
  }
  /// A configuration is not a value that can be sent, although a client writes it to subscribe.
  @Test func aConfigurationIsNotSent() throws {
    var builder = DatabaseBuilder()
    builder.service("180D") { _ = $0.characteristic("2A37", .notify) }
    let tester = ServerUnderTest(try builder.build())
    #expect(tester.ask("12 04 00 01 00") == "13")
    for raw in UInt16(1)...5 {
      let attribute = AttributeHandle(rawValue: raw), bearer = tester.bearer, isSent = raw == 3
      #expect(tester.server.mayNotify(attribute, to: bearer) == isSent)
      #expect(tester.server.mayBeSent(attribute, to: bearer).isEmpty != isSent)
      #expect(tester.server.configuration(of: attribute, on: bearer).isEmpty != isSent)
      #expect(tester.server.subscribers(of: attribute).isEmpty != isSent)
    }
  }
  /// A Prepare Write Request longer than the ATT_MTU is refused and not queued: its echo would not fit.
  @Test func aPreparedPartThatIsTooLongIsNotQueued() throws {
    var builder = DatabaseBuilder()
    builder.service("180D") { _ = $0.characteristic("2A39", [.read, .write], value: [1]) }
    let tester = ServerUnderTest(try builder.build(), mtu: 23)
    let tooLong = [0x16, 3, 0, 0, 0] + [UInt8](repeating: 9, count: 19)
    #expect(tester.ask(tooLong) == [0x01, 0x16, 3, 0, 0x04])
    #expect(tester.ask("18 01") == "19" && tester.ask("0A 03 00") == "0B 01")
  }
}
