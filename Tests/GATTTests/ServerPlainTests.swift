import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// The server behind its bearer, with its indexes and shortcuts, gives the same octets and effects as a plain one that
/// searches a table.
@Suite struct ServerPlainTests {
  static let shards = 5
  /// Requests to one database before the next is built.
  static let perDatabase = 400

  @Test(arguments: 0..<shards) func sameAnswers(shard: Int) throws {
    let databases = (Fuzz.pdus - 1) / (Self.shards * Self.perDatabase) + 1
    print("server against the plain one: \(databases) databases × \(Self.perDatabase) requests, seed \(Fuzz.seed)")
    var wrong = 0
    for number in 0..<databases where wrong < 3 {
      wrong += try Self.compare(seed: Fuzz.seed &* 1_000_003 &+ UInt64(number * Self.shards + shard))
    }
  }

  /// Sends requests to one database. Returns the number of wrong answers.
  static func compare(seed: UInt64) throws -> Int {
    var services = RandomServices(seed: seed), plain = PlainServer()
    let database = try services.build(into: &plain)
    let mtus = [23, 23, 24, 27, 64, 185, 247, 512, 517, Int.random(in: 23...517, using: &services.chance)]
    let mtu = mtus.randomElement(using: &services.chance) ?? 23
    let served = ServedBearer(database, mtu: mtu)
    served.application = plain.application
    var wrong = 0
    for index in 0..<perDatabase {
      try change(served, &plain, &services)
      let request = services.request(to: plain, mtu: mtu)
      let expected = plain.respond(to: request, mtu: mtu), answered = served.ask(request)
      if answered == expected, served.events == plain.events { continue }
      Issue.record(
        """
        seed \(seed), request \(index), MTU \(mtu): \(hex(request))
        answered \(answered.map(hex) ?? "nothing"), told \(served.events)
        expected \(expected.map(hex) ?? "nothing"), told \(plain.events)
        """)
      wrong += 1
      if wrong == 3 { break }
    }
    return wrong
  }

  /// Changes between requests: the link's protection, values, services.
  private static func change(
    _ served: ServedBearer, _ plain: inout PlainServer, _ services: inout RandomServices
  ) throws {
    if services.one(in: 20) {
      plain.security = BearerSecurity(rawValue: .random(in: 0...3, using: &services.chance)) ?? .none
      plain.keySize = Int.random(in: 7...16, using: &services.chance)
      plain.isAuthorized = services.one(in: 2)
      served.setSecurity(plain.security, keySize: plain.keySize, isAuthorized: plain.isAuthorized)
    }
    if services.one(in: 8), let row = plain.attributes.randomElement(using: &services.chance),
      row.type != PlainUUID(0x2902)
    {
      #expect(served.mayBeSent(row.handle) == plain.mayBeSent(row.handle))
    }
    if services.one(in: 30), let row = plain.attributes.randomElement(using: &services.chance),
      // The application's values; services change only by inserting and removing.
      !(0x2800...0x2803).contains(where: { row.type == PlainUUID($0) })
    {
      let value = (0..<Int.random(in: 0...24, using: &services.chance)).map { UInt8($0) }
      #expect(served.setValue(row.handle, value) == plain.setValue(row.handle, value))
    }
    if services.one(in: 200) {
      if services.one(in: 2) {
        try served.insert(services.insertion(into: &plain))
      } else if let service = services.removal(from: &plain) {
        try served.remove(service)
        // The order is unspecified.
        #expect(Set(served.events) == Set(plain.events))
      }
      served.application = plain.application
    }
  }

  /// Every lookup of the index, after services were added and removed: each handle, its successor, each type and each
  /// service from each handle on.
  @Test func everyLookup() throws {
    for seed in Fuzz.seed..<Fuzz.seed + 12 {
      var services = RandomServices(seed: seed &* 7_919), plain = PlainServer()
      var database = try services.build(into: &plain)
      for _ in 0..<5 {
        if services.one(in: 2) {
          try database.insert(services.insertion(into: &plain))
        } else if let service = services.removal(from: &plain) {
          try database.remove(service: service)
        }
        let rows = plain.attributes
        #expect(database.count == rows.count && Int(database.lastHandle.rawValue) == rows.last?.handle ?? 0)
        var handles = Set([0, 1, 0xFFFF])
        for row in rows { handles.formUnion([row.handle - 1, row.handle, min(row.handle + 1, 0xFFFF)]) }
        for raw in handles {
          let row = rows.first { $0.handle == raw }, found = database.attribute(handle(UInt16(raw)))
          let isSame =
            found.map { Int($0.groupEnd.rawValue) } == row?.end && found?.isDynamic == row.map(isDynamic)
            && found.map { PlainUUID(octets(of: $0.type)) } == row?.type
          if !isSame { Issue.record("seed \(seed): handle \(raw)") }
        }
        try checkLists(database, &plain, handles, seed)
      }
    }
  }
  private func checkLists(
    _ database: Database, _ plain: inout PlainServer, _ handles: Set<Int>, _ seed: UInt64
  ) throws {
    let served = ServedBearer(database, mtu: 517)
    served.application = plain.application
    let types = Set(plain.attributes.map(\.type)).union([PlainUUID(0x2800), PlainUUID(0xABCD)])
    var values = Set<[UInt8]>()
    for row in plain.attributes {
      if case .stored(let value, _, _) = row.value, row.type == PlainUUID(0x2800) || row.type == PlainUUID(0x2801) {
        values.insert(value)
      }
    }
    // Of several hundred attributes only some.
    let some = handles.sorted().enumerated().filter { $0.offset % (1 + handles.count / 30) == 0 }.map(\.element)
    for raw in some {
      let range = [UInt8(raw & 0xFF), UInt8(raw >> 8), 0xFF, 0xFF]
      var requests = [[0x04] + range, [0x10] + range + [0x00, 0x28], [0x10] + range + [0x01, 0x28]]
      for type in types { requests.append([0x08] + range + type.octets) }
      for value in values { requests.append([0x06] + range + [0x00, 0x28] + value) }
      for request in requests {
        let expected = plain.respond(to: request, mtu: 517), answered = served.ask(request)
        if answered == expected { continue }
        Issue.record(
          "seed \(seed): \(hex(request)): \(answered.map(hex) ?? "nothing"), not \(expected.map(hex) ?? "nothing")")
        return
      }
    }
  }
  private func isDynamic(_ row: PlainServer.Attribute) -> Bool { if case .dynamic = row.value { true } else { false } }
  private func octets(of uuid: BluetoothUUID) -> [UInt8] {
    [uuid.low, uuid.high].flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (8 * $0)) } }
  }
}
