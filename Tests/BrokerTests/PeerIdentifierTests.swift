import Testing

@testable import BindruneBroker

@Suite struct PeerIdentifierTests {
  @Test func holdsTheAddress() {
    let address = DeviceAddress(0xF0F1_F2F3_F4F5), peer = PeerID(PeerAddress(address, .random))
    // RFC 9562, §5.8: version 8 in the seventh octet, the variant's bits 10 in the ninth.
    #expect(UUID(peer).uuidString == "F5F4F3F2-F1F0-8001-B14E-4472756E6500")
    #expect(PeerID(UUID(peer)) == peer && peer.firstAddress == PeerAddress(address, .random))
    let other = PeerID(PeerAddress(address, .public))
    #expect(UUID(other).uuidString == "F5F4F3F2-F1F0-8000-B14E-4472756E6500")
    #expect(PeerID(UUID(other)) == other && other != peer)
    // An address that a controller has resolved is the same device.
    #expect(UUID(PeerID(PeerAddress(address, .randomIdentity))) == UUID(peer))
  }
  @Test("former identifiers are bounded: those of devices that nobody needs go first, and what the host names is none")
  func aliases() {
    var aliases = PeerAliases()
    func peer(_ number: UInt64) -> PeerID { PeerID(PeerAddress(DeviceAddress(0xC000_0000_0000 | number), .random)) }
    let known = peer(1)
    aliases.merge(peer(2), into: known) { $0 == known }
    for number in UInt64(100)..<3_000 { aliases.merge(peer(number * 2), into: peer(number * 2 + 1)) { $0 == known } }
    #expect(aliases.count == PeerAliases.capacity && aliases[peer(2)] == known)
    #expect(aliases[peer(200)] == nil && aliases[peer(5_998)] == peer(5_999))
    aliases.merge(known, into: peer(3)) { $0 == peer(3) }
    #expect(aliases[peer(2)] == peer(3) && aliases[known] == peer(3))
    aliases.remove(known)
    #expect(aliases[known] == nil && aliases[peer(2)] == peer(3))
  }
  @Test("identifiers of one manufacturer's devices differ in the first eight characters, which programs show")
  func oneMaker() {
    let identifiers = (0..<100).map { UUID(PeerID(PeerAddress(DeviceAddress(0x0000_5E00_5300 + $0), .public))) }
    #expect(Set(identifiers.map { $0.uuidString.prefix(8) }).count == 100)
  }
  @Test(
    "an identifier from elsewhere names no device",
    arguments: [
      "F5F4F3F2-F1F0-4001-B14E-4472756E6500", "F5F4F3F2-F1F0-8002-B14E-4472756E6500",
      "F5F4F3F2-F1F0-8001-B14E-4472756E6501", "00000000-0000-0000-0000-000000000000",
    ])
  func foreign(text: String) throws {
    #expect(PeerID(try #require(UUID(uuidString: text))) == nil)
  }
}
