import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Vol 3, Part G, §2.5.2, §7: a client's cached database, and how the client learns of changes.
@Suite struct ClientCachingTests {
  /// Generic Attribute with everything for robust caching, and a heart rate.
  static let discovery = """
    > 10 0100 FFFF 0028
    < 11 06 0100 0800 0118  1000 1300 0D18
    > 10 1400 FFFF 0028
    < 01 10 1400 0A
    > 10 0900 FFFF 0128
    < 01 10 0900 0A
    > 08 0100 1300 0228
    < 01 08 0100 0A
    > 08 0100 1300 0328
    < 09 07 0200 20 0300 052A  0500 0A 0600 292B  0700 02 0800 2A2B  1100 10 1200 372A
    > 08 1200 1300 0328
    < 01 08 1200 0A
    """
  static let text = "00112233445566778899AABBCCDDEEFF"
  static let hash = "> 08 0100 FFFF 2A2B\n< 09 12 0800 \(text)"
  static let otherHash = "> 08 0100 FFFF 2A2B\n< 09 12 0800 FF112233445566778899AABBCCDDEEFF"

  /// A client that has read the hash and discovered everything.
  static func synchronized() -> Dialogue {
    let dialogue = Dialogue(mtu: 64)
    dialogue.client.readDatabaseHash(100)
    dialogue.client.discoverAll(101)
    dialogue.play(hash + "\n" + discovery)
    #expect(dialogue.effects() == ["100 hash \(text)", "101 discovered"])
    return dialogue
  }

  @Test func theFirstConnectionAndTheNext() {
    let first = Self.synchronized()
    #expect(first.client.remote.isComplete)
    #expect(first.client.remote.hash?.description == Self.text)
    first.client.followChanges(1)
    first.play(
      """
      > 12 0600 05
      < 13
      > 04 0400 0400            # discovery has inferred it: its type is read before it is written
      < 05 01 0400 0229
      > 12 0400 0200
      < 13
      """)
    #expect(first.effects() == ["1 done"])
    #expect(first.client.remote.isComplete && first.client.remote.hash?.description == Self.text)

    let next = Dialogue(mtu: 64)
    next.client.readDatabaseHash(1)
    next.play(Self.hash)
    #expect(next.effects() == ["1 hash \(Self.text)"])
    next.client.restore(first.client.remote)
    next.client.followChanges(2)
    next.play("> 12 0600 05\n< 13\n> 12 0400 0200\n< 13")
    #expect(next.effects() == ["2 done"])
    #expect(next.client.remote == first.client.remote)
  }

  @Test(arguments: [
    ("01 08 0100 0A", "1 hash none"), ("01 08 0100 05", "1 att 05 08 01"),
    (
      "09 03 0800 01",
      "1 malformedResponse(BindruneGATT.ResponseViolation.declarationLength(BindruneATT.AttributeHandle(rawValue: 8), 1))"
    ),
  ]) func noHash(response: String, result: String) {
    let dialogue = Dialogue()
    dialogue.client.readDatabaseHash(1)
    dialogue.play("> 08 0100 FFFF 2A2B\n< \(response)")
    #expect(dialogue.effects() == [result])
    // The database discovered then has no hash.
    dialogue.client.discoverAll(2)
    dialogue.play("> 10 0100 FFFF 0028\n< 01 10 0100 0A\n> 10 0100 FFFF 0128\n< 01 10 0100 0A")
    #expect(dialogue.client.remote.hash == nil)
  }

  @Test func aHashServesOneDiscovery() {
    let dialogue = Self.synchronized()
    dialogue.client.discoverAll(1)
    dialogue.play(Self.discovery)
    #expect(dialogue.client.remote.hash == nil, "the database may have changed since the hash")
  }

  /// A part is discovered again: the database stays complete if the part is unchanged.
  @Test(arguments: [("10", true), ("12", false)]) func aPartAgain(properties: String, isComplete: Bool) {
    let dialogue = Self.synchronized(), before = dialogue.client.remote
    dialogue.client.discoverCharacteristics(1, in: HandleRange(0x10, 0x13))
    dialogue.play(
      """
      > 08 1000 1300 0328
      < 09 07 1100 \(properties) 1200 372A
      > 08 1200 1300 0328
      < 01 08 1200 0A
      """)
    #expect(dialogue.effects() == ["1 discovered"])
    #expect((dialogue.client.remote == before) == isComplete && dialogue.client.remote.isComplete == isComplete)
    #expect((dialogue.client.remote.cacheText != nil) == isComplete)
  }

  @Test func followingWhatIsNotThere() {
    let dialogue = Dialogue()
    dialogue.client.followChanges(1)
    #expect(dialogue.request() == nil)
    #expect(dialogue.effects() == ["1 done"])
  }

  @Test func followingWhatIsRefused() {
    let dialogue = Self.synchronized()
    dialogue.client.followChanges(1)
    dialogue.client.followChanges(2)
    dialogue.play(
      """
      > 12 0600 05
      < 01 12 0600 13    # the features are a courtesy
      > 04 0400 0400
      < 05 01 0400 0229
      > 12 0400 0200
      < 01 12 0400 05
      > 12 0600 05
      < 13
      > 12 0400 0200
      < 13
      """)
    #expect(dialogue.effects() == ["1 att 05 12 04", "2 done"])
  }

  // MARK: Service Changed

  @Test func servicesThatChange() {
    let dialogue = Self.synchronized()
    dialogue.client.subscribe(1, 0x12)
    dialogue.play("> 04 1300 1300\n< 05 01 1300 0229\n> 12 1300 0100\n< 13")
    dialogue.client.read(2, 3)
    dialogue.play("> 0A 0300", isOver: false)
    dialogue.client.read(3, 0x12)
    dialogue.client.unsubscribe(4, 0x12)
    dialogue.client.read(5, 8)
    dialogue.send(octets("1D 0300 1200 2000"))
    #expect(
      dialogue.effects() == [
        "1 done", "indication 3: 12 00 20 00", "changed 0010-0020", "3 databaseChanged", "4 databaseChanged",
      ])
    #expect(dialogue.client.remote.services.map(\.uuid) == ["1801"])
    #expect(!dialogue.client.remote.isComplete && dialogue.client.remote.hash == nil)
    dialogue.respond(octets("0B 01"))
    dialogue.play(
      """
      > 0A 0800
      < 0B 02
      > 08 0100 FFFF 2A2B
      < 09 12 0800 FF112233445566778899AABBCCDDEEFF
      > 10 1000 2000 0028        # the changed range, and nothing else
      < 11 06 1000 1500 0D18
      > 10 1600 2000 0028
      < 01 10 1600 0A
      > 10 1600 2000 0128
      < 01 10 1600 0A
      > 08 1000 1500 0228
      < 01 08 1000 0A
      > 08 1000 1500 0328
      < 09 07 1100 10 1200 372A  1400 02 1500 382A
      """)
    #expect(dialogue.effects() == ["2 value 01", "5 value 02", "rediscovered 0010-0020"])
    let remote = dialogue.client.remote
    #expect(remote.isComplete && remote.hash?.description == "FF112233445566778899AABBCCDDEEFF")
    #expect(remote.services.map(\.uuid) == ["1801", "180D"])
    #expect(remote.characteristics.map(\.valueHandle.rawValue) == [3, 6, 8, 0x12, 0x15])
    #expect(remote.characteristics.map(\.descriptorsAreKnown) == [false, true, true, false, true])
    #expect(remote.descriptors.isEmpty)
    // Its subscription ended with the service, and what was read of it.
    dialogue.client.subscribe(6, 0x12)
    dialogue.play("> 04 1300 1300\n< 05 01 1300 0229\n> 12 1300 0100\n< 13")
    #expect(dialogue.effects() == ["6 done"])
  }

  /// Everything has changed, Service Changed itself included, and changes again before the client has discovered it:
  /// the handle is still that of Service Changed. Vol 3, Part G, §7.1.
  @Test func changesWhileNothingIsKnown() {
    let services = """
      > 10 0100 FFFF 0028
      < 11 06 0100 0800 0118  1000 1300 0D18
      > 10 1400 FFFF 0028
      < 01 10 1400 0A
      """
    let dialogue = Dialogue(mtu: 64)
    dialogue.client.discoverPrimaryServices(1)
    dialogue.play(services)
    dialogue.client.discoverCharacteristics(2, in: HandleRange(0x01, 0x08))
    dialogue.play(
      """
      > 08 0100 0800 0328
      < 09 07 0200 20 0300 052A  0500 0A 0600 292B  0700 02 0800 2A2B
      """)
    dialogue.client.followChanges(3)
    dialogue.play("> 12 0600 05\n< 13\n> 04 0400 0400\n< 05 01 0400 0229\n> 12 0400 0200\n< 13")
    #expect(dialogue.effects() == ["1 discovered", "2 discovered", "3 done"])
    let changed = ["indication 3: 01 00 FF FF", "changed 0001-FFFF"]
    for _ in 0..<2 {
      dialogue.send(octets("1D 0300 0100 FFFF"))
      #expect(dialogue.effects() == changed)
      #expect(dialogue.client.remote.isEmpty)
    }
    // The client has found the service again, but not yet its contents.
    dialogue.client.discoverPrimaryServices(4)
    dialogue.play(services)
    #expect(dialogue.effects() == ["4 discovered"])
    dialogue.send(octets("1D 0300 0100 FFFF"))
    #expect(dialogue.effects() == changed)
    // Another unknown handle is not Service Changed.
    dialogue.send(octets("1D 0500 0100 FFFF"))
    #expect(dialogue.effects() == ["indication 5: 01 00 FF FF"])
  }

  @Test func moreChangesMeanwhile() {
    let dialogue = Self.synchronized()
    dialogue.send(octets("1D 0300 1000 1300"))
    dialogue.play("> 08 0100 FFFF 2A2B", isOver: false)
    dialogue.send(octets("1D 0300 1400 1500"))
    dialogue.send(octets("1D 0300 1800 1900"))
    #expect(
      dialogue.effects() == [
        "indication 3: 10 00 13 00", "changed 0010-0013", "indication 3: 14 00 15 00", "changed 0014-0015",
        "indication 3: 18 00 19 00", "changed 0018-0019",
      ])
    dialogue.play(
      """
      < 01 08 0100 0A
      > 10 1000 1300 0028
      < 01 10 1000 0A
      > 10 1000 1300 0128
      < 01 10 1000 0A
      > 08 0100 FFFF 2A2B
      < 01 08 0100 0A
      > 10 1400 1900 0028        # the later ones together
      < 01 10 1400 0A
      > 10 1400 1900 0128
      < 01 10 1400 0A
      """)
    #expect(dialogue.effects() == ["rediscovered 0010-0013", "rediscovered 0014-0019"])
    #expect(dialogue.client.remote.isComplete)
    #expect(dialogue.client.remote.services.map(\.uuid) == ["1801"])
  }

  @Test func aChangeDuringADiscovery() {
    let dialogue = Self.synchronized()
    dialogue.client.discoverAll(1)
    let lines = Self.discovery.split(separator: "\n")
    dialogue.play(lines.prefix(3).joined(separator: "\n"), isOver: false)
    dialogue.send(octets("1D 0300 1000 1300"))
    dialogue.play(lines.dropFirst(3).joined(separator: "\n"), isOver: false)
    #expect(dialogue.effects() == ["indication 3: 10 00 13 00", "changed 0010-0013", "1 discovered"])
    #expect(!dialogue.client.remote.isComplete, "results in the changed range may belong to either database")
    dialogue.play(
      """
      \(Self.hash)
      > 10 1000 1300 0028
      < 01 10 1000 0A
      > 10 1000 1300 0128
      < 01 10 1000 0A
      """)
    #expect(dialogue.effects() == ["rediscovered 0010-0013"])
    #expect(dialogue.client.remote.services.map(\.uuid) == ["1801"])
    #expect(dialogue.client.remote.hash?.description == Self.text)
  }

  @Test func aChangeOfSomethingHalfKnown() {
    // A client that has discovered one service only reports the change, and discovers nothing unrequested.
    let dialogue = Dialogue()
    dialogue.client.discoverCharacteristics(1, in: HandleRange(1, 9))
    dialogue.play("> 08 0100 0900 0328\n< 09 07 0200 20 0300 052A\n> 08 0300 0900 0328\n< 01 08 0300 0A")
    dialogue.send(octets("1D 0300 0100"))
    #expect(
      dialogue.effects() == ["1 discovered", "indication 3: 01 00", "ignored changedRange", "changed 0001-FFFF"])
    #expect(dialogue.client.remote.isEmpty)
    #expect(dialogue.request() == nil)
  }

  @Test func aRediscoveryThatFails() {
    let dialogue = Self.synchronized()
    dialogue.send(octets("1D 0300 1000 1300"))
    dialogue.play("> 08 0100 FFFF 2A2B\n< 01 08 0100 0A\n> 10 1000 1300 0028\n< 01 10 1000 0E")
    dialogue.send(octets("1D 0300 1000 1300"))
    dialogue.close(1, .timedOut)
    #expect(
      dialogue.effects() == [
        "indication 3: 10 00 13 00", "changed 0010-0013",
        "rediscovered 0010-0013 att(Unlikely Error (0x0E), ATT_READ_BY_GROUP_TYPE_REQ (0x10), "
          + "BindruneATT.AttributeHandle(rawValue: 16))",
        "indication 3: 10 00 13 00", "changed 0010-0013",
      ])
  }

  // MARK: Database Out Of Sync

  @Test func theSameDatabaseAfterAll() {
    let dialogue = Self.synchronized()
    dialogue.client.read(1, 0x12)
    dialogue.client.read(2, 3)
    dialogue.play(
      """
      > 0A 1200
      < 01 0A 1200 12
      \(Self.hash)
      > 0A 1200
      < 0B 77
      > 0A 0300
      < 01 0A 0300 12
      \(Self.hash)
      > 0A 0300
      < 01 0A 0300 12       # the second time it is the caller's
      """)
    #expect(dialogue.effects() == ["1 value 77", "2 att 12 0A 03"])
    #expect(dialogue.client.remote.isComplete)
  }

  @Test(arguments: [otherHash, "> 08 0100 FFFF 2A2B\n< 01 08 0100 0A"]) func anotherDatabase(hash: String) {
    let dialogue = Self.synchronized()
    dialogue.client.read(1, 0x12)
    dialogue.client.read(2, 8)
    dialogue.client.discoverPrimaryServices(3, "180D")
    dialogue.play(
      """
      > 0A 1200
      < 01 0A 1200 12
      \(hash)
      > 06 0100 FFFF 0028 0D18
      < 01 06 0100 0A
      \(hash)
      \(Self.discovery)
      """)
    #expect(
      dialogue.effects() == [
        "changed 0001-FFFF", "2 databaseChanged", "1 databaseChanged", "3 discovered", "rediscovered 0001-FFFF",
      ])
    #expect(dialogue.client.remote.isComplete)
  }

  @Test func handlesThatCameFromElsewhere() {
    // The client has discovered nothing, so nothing can be out of date.
    let dialogue = Dialogue()
    dialogue.write(1, 3, octets("01"))
    dialogue.writeLong(2, 3, octets("01"))
    dialogue.play(
      """
      > 12 0300 01
      < 01 12 0300 12
      > 08 0100 FFFF 2A2B
      < 01 08 0100 0A
      > 12 0300 01
      < 13
      > 16 0300 0000 01
      < 17 0300 0000 01
      > 18 01
      < 01 18 0000 12
      > 08 0100 FFFF 2A2B
      < 01 08 0100 0A
      > 18 01
      < 19
      """)
    #expect(dialogue.effects() == ["1 done", "2 done"])
  }

  @Test func inTheMidstOfADiscovery() {
    let dialogue = Dialogue(mtu: 64)
    dialogue.client.readDatabaseHash(1)
    dialogue.client.discoverAll(2)
    dialogue.play(
      """
      \(Self.otherHash)
      > 10 0100 FFFF 0028
      < 11 06 0100 0800 0118  1000 1300 0D18
      > 10 1400 FFFF 0028
      < 01 10 1400 12
      \(Self.hash)
      \(Self.discovery)
      """)
    #expect(dialogue.effects() == ["1 hash FF112233445566778899AABBCCDDEEFF", "2 discovered"])
    #expect(dialogue.client.remote.hash?.description == Self.text)
  }

  @Test func inTheMidstOfARediscovery() {
    let dialogue = Self.synchronized()
    dialogue.send(octets("1D 0300 1000 1300"))
    dialogue.play(
      """
      \(Self.otherHash)
      > 10 1000 1300 0028
      < 01 10 1000 12
      \(Self.hash)
      \(Self.discovery)
      """)
    #expect(
      dialogue.effects() == [
        "indication 3: 10 00 13 00", "changed 0001-FFFF", "rediscovered 0001-FFFF",
      ])
    #expect(dialogue.client.remote.isComplete && dialogue.client.remote.hash?.description == Self.text)
  }

  /// Cancelled before the request for the hash: the client still empties the server's queue.
  @Test func cancelledBetweenPartsThatAreOutOfSync() {
    let dialogue = Self.synchronized()
    dialogue.client.writeReliable(1, [(0x12, [1]), (3, [2])])
    dialogue.play(
      """
      > 16 1200 0000 01
      < 17 1200 0000 01
      > 16 0300 0000 02
      < 01 16 0300 12
      """, isOver: false)
    dialogue.client.cancel(1)
    dialogue.client.read(2, 0x12)
    dialogue.play("> 18 00\n< 19\n> 0A 1200\n< 0B 77")
    #expect(dialogue.effects() == ["1 cancelled", "2 value 77"])
  }

  /// A request that got 0x12 and is cancelled at any point is not repeated.
  @Test(arguments: 1...3) func cancelledMeanwhile(after steps: Int) {
    let dialogue = Self.synchronized()
    dialogue.client.read(1, 0x12)
    dialogue.client.read(2, 8)
    let script = ["> 0A 1200", "< 01 0A 1200 12", "> 08 0100 FFFF 2A2B", "< 09 12 0800 \(Self.text)"]
    dialogue.play(script.prefix(steps).joined(separator: "\n"), isOver: false)
    dialogue.client.cancel(1)
    #expect(dialogue.effects() == ["1 cancelled"])
    if steps != 2 { dialogue.play(script[steps], isOver: false) }
    dialogue.play("> 0A 0800\n< 0B")
    #expect(dialogue.effects() == ["2 value "])
  }
}
