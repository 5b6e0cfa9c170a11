import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// A database as text, for storage between connections.
@Suite struct RemoteDatabaseTextTests {
  private static let text = """
    bindrune-gatt 2
    hash 00112233445566778899AABBCCDDEEFF
    service 0001 0008 primary 1801
    service 0010 0013 primary 180D
    characteristic 0002 0003 0004 20 2A05
    characteristic 0005 0006 0006 0A 2B29
    characteristic 0007 0008 0008 02 2B2A
    characteristic 0011 0012 0013 10 2A37
    descriptor 0004 -
    descriptor 0013 2902
    end 10

    """

  @Test func bothWays() throws {
    let client = ClientCachingTests.synchronized()
    #expect(client.client.remote.cacheText == Self.text.replacing("descriptor 0013 2902", with: "descriptor 0013 -"))
    client.client.subscribe(1, 0x12)
    client.play("> 04 1300 1300\n< 05 01 1300 0229\n> 12 1300 0100\n< 13")
    let remote = client.client.remote
    #expect(remote.cacheText == Self.text)
    let read = try RemoteDatabase(cacheText: Self.text)
    #expect(read == remote)
    #expect(read.characteristics.map(\.descriptorsAreKnown) == [false, true, true, true])
    // All kinds of attributes: secondary services, includes, long UUIDs.
    let pair = Pair(ClientServerTests.richDatabase(), mtu: 64)
    pair.client.readDatabaseHash(1)
    pair.client.discoverAll(2)
    pair.run()
    var rich = pair.client.remote
    if rich.hash == nil {
      #expect(rich.cacheText == nil, "without a hash its validity cannot be checked")
      let dialogue = ClientCachingTests.synchronized()
      rich = dialogue.client.remote
    }
    #expect(try RemoteDatabase(cacheText: try #require(rich.cacheText)) == rich)
    #expect(RemoteDatabase().cacheText == nil)
  }

  /// Version 1 could not tell what the server had said from what was inferred: where that is possible the client asks.
  @Test func versionOne() throws {
    let read = try RemoteDatabase(
      cacheText: """
        bindrune-gatt 1
        hash 00112233445566778899AABBCCDDEEFF
        service 0010 0030 primary 180D
        characteristic 0011 0012 0013 10 2A37
        characteristic 0014 0015 0017 10 2A38
        characteristic 0018 0019 001A 01 2A39
        characteristic 001B 001C 001D 80 2A3A
        characteristic 001E 001F 0020 02 2A3B
        characteristic 0021 0022 0023 12 2A3C
        descriptor 0013 2902
        descriptor 0016 2901
        descriptor 0017 2902
        descriptor 001A 2903
        descriptor 001D 2900
        descriptor 0020 2901
        descriptor 0023 2901
        end 16

        """)
    #expect(read.descriptors.map(\.handle.rawValue) == [0x16, 0x17, 0x20, 0x23])
    #expect(read.characteristics.map(\.descriptorsAreKnown) == [false, true, false, false, true, true])
    let written = try #require(read.cacheText)
    #expect(written.hasPrefix("bindrune-gatt 2\n") && written.contains("\ndescriptor 001A -\n"))
    let again = try RemoteDatabase(cacheText: written)
    #expect(again == read && again.cacheText == written)
    #expect(again.characteristics.map(\.descriptorsAreKnown) == read.characteristics.map(\.descriptorsAreKnown))
  }

  @Test(
    arguments: [
      ("bindrune-gatt 2", "bindrune-gatt 3", 1, .noHeading), ("hash 00", "hash ", 2, .badHash),
      ("service 0001", "servis 0001", 3, .unknownLine),
      ("service 0001 0008", "service 0009 0008", 3, .handlesNotIncreasing),
      ("service 0010", "service 0001", 4, .handlesNotIncreasing), ("service 0010", "service 00010", 4, .badHandle),
      ("service 0010", "service 0000", 4, .badHandle), ("primary 180D", "tertiary 180D", 4, .unknownLine),
      ("180D", "180G", 4, .badUUID), ("0002 0003 0004", "0002 0002 0004", 5, .handlesNotIncreasing),
      ("0004 20 2A05", "0004 2G 2A05", 5, .badProperties), ("0004 20 2A05", "0004 20 2A05 1", 5, .unknownLine),
      ("descriptor 0004 -", "descriptor 0009 -", 9, .badHandle), ("gatt 2", "gatt 1", 9, .badUUID),
      ("descriptor 0013 2902", "descriptor 0004 2902", 10, .handlesNotIncreasing),
      ("descriptor 0013 2902\n", "", 10, .noEnd), ("end 10\n", "", 11, .noEnd), ("end 10", "end 9", 11, .noEnd),
      ("end 10", "end 10\nend 11", 12, .afterTheEnd), ("hash 00112233445566778899AABBCCDDEEFF\n", "", 10, .noEnd),
    ] as [(String, String, Int, CacheTextError.Reason)])
  func whatIsNoDatabase(old: String, new: String, line: Int, reason: CacheTextError.Reason) {
    let text = Self.text.replacing(old, with: new, maxReplacements: 1)
    #expect(throws: CacheTextError(line: line, reason: reason)) { try RemoteDatabase(cacheText: text) }
  }

  /// Any text gives a typed error, or a database whose lists are in order.
  @Test func anyText() throws {
    var chance = SplitMix64(seed: Fuzz.seed), taken = 0
    for number in 0..<Fuzz.cases {
      var octets = Array(Self.text.utf8)
      for _ in 0...Int.random(in: 0...2, using: &chance) {
        let index = Int.random(in: 0..<octets.count, using: &chance)
        switch UInt8.random(in: 0..<4, using: &chance) {
        case 0: octets[index] = .random(in: 0x0A...0x7F, using: &chance)
        case 1: octets.remove(at: index)
        case 2: octets.insert(Array("0123456789ABCDEF -\n".utf8).randomElement(using: &chance)!, at: index)
        default: octets.removeSubrange(index...)
        }
        if octets.isEmpty { break }
      }
      do throws(CacheTextError) {
        let remote = try RemoteDatabase(cacheText: String(decoding: octets, as: UTF8.self))
        taken += 1
        #expect(
          zip(remote.services, remote.services.dropFirst()).allSatisfy { $0.handle.rawValue < $1.handle.rawValue })
        _ = (remote.description, remote.characteristics.map { remote.descriptors(of: $0) })
      } catch { #expect(error.line > 0, "case \(number) of seed \(Fuzz.seed)") }
    }
    print("fuzz: \(taken) texts were databases")
    #expect(taken > 0)
  }
}
