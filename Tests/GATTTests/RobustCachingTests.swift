import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Our client and our server over a change of services. Vol 3, Part G, §2.5.2, §7.
@Suite struct RobustCachingTests {
  @Test(arguments: [23, 247]) func aServiceThatComes(mtu: Int) throws {
    var builder = DatabaseBuilder()
    builder.genericAttribute()
    let level = builder.service("180F") { $0.characteristic("2A19", [.read, .notify], value: [87]).value }
    let pair = Pair(try builder.build(), mtu: mtu)
    pair.client.readDatabaseHash(1)
    pair.client.discoverAll(2)
    pair.client.followChanges(3)
    pair.client.subscribe(4, level)
    pair.run()
    let before = pair.client.remote, hash = try #require(before.hash)
    #expect(
      pair.effects() == [
        .completed(1, .databaseHash(hash)), .completed(2, .discovered), .completed(3, .done), .completed(4, .done),
      ])

    var more = DatabaseBuilder(after: pair.server.database)
    more.service("180D") { $0.characteristic("2A38", .read, value: [1]) }
    try pair.server.insert(more)
    // A request before the indication gets 0x12; the hash differs, and the client discovers everything again.
    pair.client.read(5, level)
    pair.run()
    #expect(
      pair.effects() == [
        .servicesChanged(.all), .completed(5, .failed(.databaseChanged)), .rediscovered(.all, nil),
      ])
    let after = pair.client.remote
    #expect(after.isComplete && after.hash != nil && after.hash != hash)
    #expect(after.services.map(\.uuid) == before.services.map(\.uuid) + ["180D"])
    #expect(after.services.prefix(before.services.count) == before.services[...])

    // The late indication covers the new service, and Generic Attribute, whose Database Hash has changed (§7.1).
    let due = pair.server.takeServiceChanged(on: BearerID(rawValue: 2))
    let (changed, value) = try #require(due)
    pair.indicate(changed, value)
    let generic = try #require(after.service("1801")).range, new = try #require(after.service("180D")).range
    let range = HandleRange(generic.first, new.last)
    #expect(
      pair.effects().dropFirst() == [.servicesChanged(range), .rediscovered(range, nil)],
      "after the indication itself")
    #expect(pair.client.remote == after)
    pair.client.read(6, level)
    pair.run()
    #expect(pair.value() == [87])
  }
}
