import ATT
import BindruneWire
import GATT
import TestSupport
import Testing

/// A database as text, for storage between connections.
@Suite struct RemoteDatabaseTextTests {
  private static let text = """
    bindrune-gatt 1
    hash 00112233445566778899AABBCCDDEEFF
    service 0001 0008 primary 1801
    service 0010 0013 primary 180D
    characteristic 0002 0003 0004 20 2A05
    characteristic 0005 0006 0006 0A 2B29
    characteristic 0007 0008 0008 02 2B2A
    characteristic 0011 0012 0013 10 2A37
    descriptor 0004 2902
    descriptor 0013 2902
    end 10

    """

  @Test func bothWays() throws {
    let remote = ClientCachingTests.synchronized().client.remote
    #expect(remote.cacheText == Self.text)
    #expect(try RemoteDatabase(cacheText: Self.text) == remote)
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

  @Test(
    arguments: [
      ("bindrune-gatt 1", "bindrune-gatt 2", 1, .noHeading), ("hash 00", "hash ", 2, .badHash),
      ("service 0001", "servis 0001", 3, .unknownLine),
      ("service 0001 0008", "service 0009 0008", 3, .handlesNotIncreasing),
      ("service 0010", "service 0001", 4, .handlesNotIncreasing), ("service 0010", "service 00010", 4, .badHandle),
      ("service 0010", "service 0000", 4, .badHandle), ("primary 180D", "tertiary 180D", 4, .unknownLine),
      ("180D", "180G", 4, .badUUID), ("0002 0003 0004", "0002 0002 0004", 5, .handlesNotIncreasing),
      ("0004 20 2A05", "0004 2G 2A05", 5, .badProperties), ("0004 20 2A05", "0004 20 2A05 1", 5, .unknownLine),
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
