import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Our client against our server, each behind its bearer.
@Suite struct ClientServerTests {
  /// The expected result of a discovery, taken from the database itself.
  static func expected(_ database: Database) -> RemoteCounts {
    var counts = RemoteCounts()
    for attribute in database.allAttributes {
      switch attribute.type {
      case .primaryService, .secondaryService: counts.services += 1
      case .include: counts.includes += 1
      case .characteristic: counts.characteristics += 1
      default: counts.others += 1
      }
    }
    counts.others -= counts.characteristics
    return counts
  }
  struct RemoteCounts: Equatable {
    var services = 0, includes = 0, characteristics = 0, others = 0
    init() {}
    init(_ remote: RemoteDatabase) {
      services = remote.services.count
      includes = remote.includes.count
      characteristics = remote.characteristics.count
      // With those that discovery has inferred.
      others = remote.descriptors.count + remote.characteristics.count { !$0.descriptorsAreKnown }
    }
  }

  /// The fewest requests that can discover all of `database`, whose every descriptor is a configuration in a gap of
  /// one: each list response holds entries of one length (Vol 3, Part F, §3.4.4.2, §3.4.4.10), as many as fit, and a
  /// search that does not reach its last handle takes one more to learn that nothing follows.
  static func fewestRequests(_ database: Database, mtu: Int) -> Int {
    /// For entries of these lengths, in this order.
    func responses(_ lengths: [Int]) -> Int {
      var count = 0, room = 0, last = 0
      for length in lengths {
        if length != last || room < length { (count, room) = (count + 1, mtu - 2) }
        room -= length
        last = length
      }
      return count
    }
    var services: [Int] = [], characteristics: [Int] = []
    for attribute in database.allAttributes {
      let count = database.value(attribute.handle)?.count ?? 0
      switch attribute.type {
      case .primaryService: services.append(4 + count)
      case .characteristic: characteristics.append(2 + count)
      default: break
      }
    }
    // Primary services and their end; no secondary ones; no includes; characteristics, the last of which ends the range
    // or is followed by its descriptor alone.
    let endsWithValue = database.allAttributes.last?.type != .clientCharacteristicConfiguration
    return responses(services) + 1 + 1 + 1 + responses(characteristics) + (endsWithValue ? 0 : 1)
  }

  /// B5: a full discovery needs the fewest requests. BlueZ needs 85 and 26.
  @Test(arguments: [(23, 83), (64, 0), (247, 0), (517, 23)]) func roundTrips(mtu: Int, known: Int) throws {
    let database = try Database.workload(services: 10)
    let pair = Pair(database, mtu: mtu)
    pair.client.discoverAll(1)
    pair.run()
    #expect(pair.effects() == [.completed(1, .discovered)])
    let fewest = Self.fewestRequests(database, mtu: mtu)
    #expect(pair.roundTrips == fewest)
    if known > 0 { #expect(fewest == known) }
    #expect(RemoteCounts(pair.client.remote) == Self.expected(database))
    #expect(pair.client.remote.descriptors.isEmpty)
    #expect(pair.client.remote.services.allSatisfy { pair.client.remote.characteristics(of: $0).count == 10 })
  }

  /// Services of all kinds, with gaps, in all forms that the server's builder supports.
  static func richDatabase() -> Database {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "Bindrune")
    builder.genericAttribute()
    builder.reserve(3)
    let battery = builder.service("180F") { service in
      service.characteristic("2A19", [.read, .notify], value: [0x57])
      return service.handle
    }
    let secondary = builder.service("A0B10020-1D1D-4BBD-8E5C-6F0E5F1A0C00", .secondary) { service in
      service.characteristic("A0B10021-1D1D-4BBD-8E5C-6F0E5F1A0C00", .read, value: [1])
      return service.handle
    }
    builder.service("A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", at: 0x0100, end: 0x01FF) { service in
      service.include(battery)
      service.include(secondary)
      service.characteristic("A0B10001-1D1D-4BBD-8E5C-6F0E5F1A0C00", [.read, .write], value: .stored(Array(0...255)))
      service.userDescription("a long value")
      service.descriptor("A0B10002-1D1D-4BBD-8E5C-6F0E5F1A0C00", value: [9])
      service.descriptor("2904", value: [4, 0, 0xAD, 0x27, 1, 0, 0])
      service.reserve(4)
      service.characteristic("A0B10003-1D1D-4BBD-8E5C-6F0E5F1A0C00", [.read, .indicate, .notify], value: [7])
      service.userDescription("two descriptors")
      service.characteristic("2A38", .read, value: [2])
    }
    builder.service("180D", at: 0xFFF0, end: 0xFFFF) { $0.characteristic("2A37", .notify, value: [0, 60]) }
    return try! builder.build()
  }

  /// As it is, or also with the questions that the client leaves out first.
  @Test(arguments: [23, 64, 247, 517], [false, true]) func everythingOfARichDatabase(mtu: Int, infers: Bool) {
    let database = Self.richDatabase()
    let pair = Pair(database, mtu: mtu)
    pair.client.discoverAll(1, infersDescriptors: infers)
    pair.run()
    #expect(pair.effects() == [.completed(1, .discovered)])
    #expect(RemoteCounts(pair.client.remote) == Self.expected(database))
    let unread = pair.client.remote.characteristics.filter { !$0.descriptorsAreKnown }
    #expect(unread.isEmpty != infers)
    for range in unread.compactMap(\.descriptorRange) {
      pair.client.discoverDescriptors(2, in: range)
      pair.run()
      #expect(pair.effects() == [.completed(2, .discovered)])
    }
    let remote = pair.client.remote
    #expect(remote.isComplete && remote.characteristics.allSatisfy(\.descriptorsAreKnown))
    #expect(RemoteCounts(remote) == Self.expected(database))
    for attribute in database.allAttributes {
      switch attribute.type {
      case .primaryService, .secondaryService:
        let service = remote.service(at: attribute.handle)
        #expect(service?.endHandle == attribute.groupEnd)
        #expect(service?.isPrimary == (attribute.type == .primaryService))
      case .include: #expect(remote.includes.contains { $0.handle == attribute.handle && $0.uuid != nil })
      case .characteristic: #expect(remote.characteristic(at: attribute.handle) != nil)
      default:
        let known =
          remote.characteristic(valueHandle: attribute.handle)?.uuid ?? remote.descriptor(at: attribute.handle)?.uuid
        #expect(known == attribute.type, "\(attribute)")
      }
    }
  }

  @Test(arguments: [23, 48, 517]) func readingAndWriting(mtu: Int) throws {
    let pair = Pair(Self.richDatabase(), mtu: mtu)
    pair.client.discoverAll(1)
    pair.run()
    let long = try #require(pair.client.remote.characteristic("A0B10001-1D1D-4BBD-8E5C-6F0E5F1A0C00")).valueHandle
    let none: [UInt8] = []
    pair.client.readLong(2, long)
    pair.run()
    #expect(pair.value() == Array(0...255))
    // Every length around the ends of the parts, by both procedures.
    for count in [0, 1, mtu - 5, mtu - 4, mtu - 3, mtu - 2, 2 * (mtu - 5), 2 * (mtu - 5) + 1, 511, 512]
    where count <= 512 {
      for isLong in [false, true] {
        let value = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 3 &+ count) }
        // Written in parts, a value does not become shorter than it was.
        pair.client.write(3, long, none.span)
        if isLong { pair.client.writeLong(4, long, value.span) } else { pair.client.write(4, long, value.span) }
        pair.client.readLong(5, long)
        pair.run()
        let effects = pair.effects()
        #expect(effects.prefix(2) == [.completed(3, .done), .completed(4, .done)])
        guard case .completed(5, .value(let octets))? = effects.last else {
          Issue.record("\(count): \(effects)")
          continue
        }
        #expect(pair.client.bytes(of: octets) == value)
      }
    }
    pair.client.read(6, uuid: "2A19")
    pair.run()
    guard case .completed(6, .values(let octets))? = pair.effects().last else {
      Issue.record("no values")
      return
    }
    #expect(pair.client.values(of: octets).map { pair.client.bytes(of: $0.value) } == [[0x57]])
  }

  @Test func subscribing() throws {
    let pair = Pair(Self.richDatabase(), mtu: 23)
    // Without the descriptors: the client searches them when it needs them.
    pair.client.discoverPrimaryServices(1, "180D")
    pair.run()
    let service = try #require(pair.client.remote.service("180D"))
    pair.client.discoverCharacteristics(2, in: service.range)
    pair.run()
    let value = try #require(pair.client.remote.characteristic("2A37", in: "180D")).valueHandle
    pair.client.subscribe(3, value)
    pair.run()
    #expect(pair.effects() == [.completed(1, .discovered), .completed(2, .discovered), .completed(3, .done)])
    #expect(pair.server.configuration(of: value, on: BearerID(rawValue: 2)) == .notification)
    pair.notify(value, [0, 61])
    guard case .value(value, let octets, .notification)? = pair.effects().first else {
      Issue.record("no value")
      return
    }
    #expect(pair.client.bytes(of: octets) == [0, 61])
    pair.indicate(value, [9])
    guard case .value(value, _, .indication)? = pair.effects().first else {
      Issue.record("no indication")
      return
    }
    pair.client.unsubscribe(4, value)
    pair.run()
    #expect(pair.effects() == [.completed(4, .done)])
    #expect(pair.server.configuration(of: value, on: BearerID(rawValue: 2)) == [])
  }
}
