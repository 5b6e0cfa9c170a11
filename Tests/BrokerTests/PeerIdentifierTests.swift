import BindruneBroker
import Testing

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
