import BindruneATT
import BindruneReplay
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

/// Databases that change, lists that end early, searches that continue elsewhere, and subscriptions that are older than
/// the trace.
@Suite("Replay: databases") struct DatabaseTraceTests {
  private static let server = 0, client = 1

  /// The host's first packet with an ATT opcode, from a place on.
  private static func place(_ opcode: UInt8, in packets: [ReplayPacket], from start: Int = 0) throws -> Int {
    try #require(
      packets.indices.first {
        let octets = packets[$0].octets
        return $0 >= start && packets[$0].direction == .fromHost && octets.count > 9 && octets[0] == 2 && octets[7] == 4
          && octets[9] == opcode
      })
  }
  /// The packet without its last octets.
  private static func cut(_ octets: [UInt8], by count: Int) -> [UInt8] {
    var result = Array(octets.dropLast(count))
    result[3] -= UInt8(count)
    result[5] -= UInt8(count)
    return result
  }

  /// A service that is inserted while a client is connected, and removed again: Vol 3, Part G, §2.5.2, §7.1.
  @Test(arguments: [false, true]) func servicesComeAndGo(isSubscribed: Bool) throws {
    let subject = try Subject()
    var recording = Recording(seed: isSubscribed ? 700 : 701)
    recording.add(subject.database)
    recording.add()
    try recording.advertise()
    let link = try recording.connect(Self.client)
    recording.client(Self.client, link) { $0.discoverAll($1) }
    if isSubscribed { recording.client(Self.client, link) { $0.followChanges($1) } }
    let handles = try recording.world.withHost(Self.server) { host, now throws(DatabaseError) in
      var builder = DatabaseBuilder(after: host.core.database)
      let handles = builder.service("180F") { ($0.handle, $0.characteristic("2A19", .read, value: [50]).value) }
      try host.core.insert(builder)
      host.drain()
      return handles
    }
    recording.world.run(for: .seconds(5))
    if !isSubscribed { recording.client(Self.client, link) { $0.discoverAll($1) } }
    #expect(recording.client(Self.client, link) { $0.read($1, handles.1) } == .value([50]))
    try recording.world.withHost(Self.server) { host, now throws(DatabaseError) in
      try host.core.remove(service: handles.0)
      host.drain()
    }
    recording.world.run(for: .seconds(5))
    if !isSubscribed { recording.client(Self.client, link) { $0.discoverAll($1) } }
    recording.disconnect(Self.client, link)
    let packets = recording.trace(of: Self.server)
    let result = try Replay(packets).run()
    #expect(result.isEqual, "\(text(result))")
    #expect(result.freedoms[.servicesChanged]?.count == 2, "\(text(result))")
    let other = try Replay(recording.trace(of: Self.client)).run()
    #expect(other.isEqual, "\(text(other))")

    guard isSubscribed else { return }
    // Service Changed that leaves out what has changed.
    var wrong = packets
    let place = try Self.place(0x1D, in: packets)
    wrong[place].octets[12] += 1
    #expect(try Replay(wrong).run().divergences.first?.ours == Array(packets[place].octets[9...]))
  }

  /// A server may end a list early; the client asks for the rest. Vol 3, Part F, §3.4.4.10.
  @Test func fewerEntriesThanFit() throws {
    let subject = try Subject()
    var recording = Recording(seed: 702)
    recording.add(subject.database) { $0.preferredMTU = 23 }
    recording.add()
    try recording.advertise()
    let link = try recording.connect(Self.client)
    recording.client(Self.client, link) { $0.discoverPrimaryServices($1) }
    recording.client(Self.client, link) { $0.discoverPrimaryServices($1) }
    recording.disconnect(Self.client, link)
    let packets = recording.trace(of: Self.server)
    let place = try Self.place(0x11, in: packets)
    #expect(packets[place].octets.count == 9 + 2 + 3 * 6)
    var fewer = packets
    fewer[place].octets = Self.cut(packets[place].octets, by: 6)
    let result = try Replay(fewer).run()
    #expect(result.isEqual && result.freedoms[.entries]?.numbers == [packets[place].number], "\(text(result))")
    // Not a part of one, and no others.
    fewer[place].octets = Self.cut(packets[place].octets, by: 3)
    #expect(try Replay(fewer).run().divergences.first?.number == packets[place].number)
    fewer[place].octets = Self.cut(packets[place].octets, by: 6)
    fewer[place].octets[15] ^= 1
    #expect(try Replay(fewer).run().divergenceCount > 0)
  }

  /// A client that continues a search for characteristics behind the last value, not behind its declaration. Vol 3,
  /// Part G, §4.6.1.
  @Test func behindTheValue() throws {
    let subject = try Subject()
    var recording = Recording(seed: 703)
    recording.add(subject.database) { $0.preferredMTU = 23 }
    recording.add()
    try recording.advertise()
    let link = try recording.connect(Self.client)
    recording.client(Self.client, link) { $0.discoverCharacteristics($1, in: .all) }
    recording.disconnect(Self.client, link)
    let packets = recording.trace(of: Self.client)
    let first = try Self.place(0x08, in: packets), second = try Self.place(0x08, in: packets, from: first + 1)
    var behind = packets
    behind[second].octets[10] += 1
    let result = try Replay(behind).run()
    #expect(result.isEqual && result.freedoms[.discovery]?.numbers == [packets[second].number], "\(text(result))")
    // A handle further a declaration may be missed.
    behind[second].octets[10] += 1
    #expect(try Replay(behind).run().divergences.first?.number == packets[second].number)
  }

  /// Our client's search of everything, where the last service has all handles to the end: what it knows from one
  /// request saves another.
  @Test func everything() throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "replay")
    builder.genericAttribute(robustCaching: false)
    builder.service("180D") {
      $0.characteristic("2A37", [.notify, .indicate])
      $0.characteristic("2A38", .read, value: [1])
    }
    builder.service("7B1F0001-9A4E-4C53-8E2B-5D6C7F8091A2", end: AttributeHandle(rawValue: 0xFFFF)) {
      $0.characteristic("7B1F0002-9A4E-4C53-8E2B-5D6C7F8091A2", .read, value: [1])
      $0.characteristic("7B1F0003-9A4E-4C53-8E2B-5D6C7F8091A2", .read, value: [2])
      $0.characteristic("7B1F0004-9A4E-4C53-8E2B-5D6C7F8091A2", .read, value: [3])
    }
    var recording = Recording(seed: 704)
    recording.add(try builder.build()) { $0.preferredMTU = 64 }
    recording.add()
    try recording.advertise()
    let link = try recording.connect(Self.client)
    recording.client(Self.client, link) { $0.discoverAll($1) }
    recording.disconnect(Self.client, link)
    for host in [Self.server, Self.client] {
      let result = try Replay(recording.trace(of: host)).run()
      #expect(result.isEqual && result.freedoms[.discovery] == nil, "\(text(result))")
    }
  }

  /// Signed writes with the key of a pairing in the trace, or of one before it. Vol 3, Part H, §2.4.5.
  @Test(arguments: [false, true]) func signedWrites(isPairingShown: Bool) throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "replay")
    let signed = builder.service("7B1F0001-9A4E-4C53-8E2B-5D6C7F8091A2") {
      $0.characteristic(
        "7B1F0002-9A4E-4C53-8E2B-5D6C7F8091A2", [.read, .authenticatedSignedWrites], value: [1],
        permissions: AttributePermissions(read: .open, write: .open)
      ).value
    }
    func configure(_ configuration: inout HostConfiguration) {
      configuration.encryptsBondedLinks = false
      configuration.pairing.distributes = [.encKey, .idKey, .signKey]
      configuration.pairing.requests = [.encKey, .idKey, .signKey]
    }
    var recording = Recording(seed: isPairingShown ? 707 : 708)
    recording.add(try builder.build(), configure)
    recording.add(Database(), configure)
    try recording.advertise()
    let link = try recording.connect(Self.client)
    #expect(recording.pair(Self.client, on: link, with: Self.server)?.isSuccess == true)
    recording.disconnect(Self.client, link)
    try recording.advertise()
    let again = try recording.connect(Self.client)
    for value in 0..<3 as Range<UInt8> {
      recording.world.withHost(Self.client) { host, _ in
        for _ in 0..<2 {
          let octets = [value, 7]
          if case .storeBond = host.core.write(signed: octets.span, to: signed, on: again) {
            for bond in host.core.allBonds { host.core.stored(bond) }
          } else {
            break
          }
        }
        host.drain()
      }
      recording.world.run(for: .seconds(1))
    }
    #expect(recording.client(Self.client, again) { $0.read($1, signed) } == .value([2, 7]))
    recording.disconnect(Self.client, again)
    for host in [Self.server, Self.client] {
      var packets = recording.trace(of: host)
      if !isPairingShown {
        let begin = try #require(
          packets.firstIndex { $0.octets.starts(with: [4, 0x3E]) && [1, 0x0A].contains($0.octets[3]) })
        let end = try #require(packets.firstIndex { $0.octets.starts(with: [4, 5]) })
        packets.removeSubrange(begin...end)
      }
      let result = try Replay(packets).run()
      #expect(result.isEqual, "\(text(result))")
      guard host == Self.client else { continue }
      #expect((result.freedoms[.keysBefore] == nil) == isPairingShown)
      // Another signature, or another counter.
      let place = try Self.place(0xD2, in: packets)
      packets[place].octets[packets[place].octets.count - (isPairingShown ? 1 : 12)] ^= 2
      let next = try Self.place(0xD2, in: packets, from: place + 1)
      if isPairingShown {
        #expect(try Replay(packets).run().divergences.first?.number == packets[place].number)
      } else {
        #expect(try Replay(packets).run().divergences.first?.number == packets[next].number)
      }
    }
  }

  /// A bonded client's subscription that is older than the trace; and one that no bond explains. Vol 3, Part G,
  /// §3.3.3.3.
  @Test(arguments: [false, true]) func subscriptionsOfABond(isBonded: Bool) throws {
    let subject = try Subject()
    var recording = Recording(seed: isBonded ? 705 : 706)
    recording.add(subject.database)
    recording.add()
    try recording.advertise()
    let link = try recording.connect(Self.client)
    if isBonded { #expect(recording.pair(Self.client, on: link, with: Self.server)?.isSuccess == true) }
    recording.client(Self.client, link) { $0.discoverAll($1) }
    #expect(recording.client(Self.client, link) { $0.subscribe($1, subject.notifying.value) } == .done)
    recording.disconnect(Self.client, link)
    try recording.advertise()
    let again = try recording.connect(Self.client)
    recording.world.run(for: .seconds(2))
    let configuration = try #require(subject.notifying.configuration)
    recording.client(Self.client, again) { $0.discoverCharacteristics($1, in: .all) }
    recording.client(Self.client, again) { $0.discoverDescriptors($1, in: HandleRange(configuration, configuration)) }
    #expect(recording.client(Self.client, again) { $0.read($1, configuration) } == .value([isBonded ? 1 : 0, 0]))
    let other = try #require(recording.world.readHost(Self.server) { $0.links.first })
    if isBonded {
      _ = recording.world.withHost(Self.server) { host, _ in
        host.notify([1, 2], of: subject.notifying.value, on: other)
      }
      recording.world.run(for: .seconds(1))
    }
    recording.disconnect(Self.client, again)
    var packets = recording.trace(of: Self.server)
    // The first link is not in the trace.
    let begin = try #require(
      packets.firstIndex { $0.octets.starts(with: [4, 0x3E]) && [1, 0x0A].contains($0.octets[3]) })
    let end = try #require(packets.firstIndex { $0.octets.starts(with: [4, 5]) })
    packets.removeSubrange(begin...end)
    let place = try Self.place(0x0B, in: packets)
    if isBonded {
      let result = try Replay(packets).run()
      #expect(result.isEqual && result.freedoms[.subscriptionBefore]?.count == 1, "\(text(result))")
      #expect(result.freedoms[.keysBefore]?.count == 1)
    } else {
      #expect(try Replay(packets).run().isEqual)
      packets[place].octets[10] = 1
      #expect(try Replay(packets).run().divergences.first?.number == packets[place].number)
    }
  }
}
