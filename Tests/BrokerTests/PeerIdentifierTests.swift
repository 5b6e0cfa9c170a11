import BindruneBroker
import Testing

@Suite struct PeerIdentifierTests {
  @Test func holdsTheAddress() {
    let address = DeviceAddress(0xF0F1_F2F3_F4F5), peer = PeerAddress(address, .random)
    // RFC 9562, §5.8: version 8 in the seventh octet, the variant's bits 10 in the ninth.
    #expect(UUID(peer).uuidString == "F0F1F2F3-F4F5-8001-B14E-4472756E6500")
    #expect(PeerAddress(UUID(peer)) == peer)
    let other = PeerAddress(address, .public)
    #expect(UUID(other) != UUID(peer))
    #expect(PeerAddress(UUID(other)) == other)
    // What a controller has resolved is the same device.
    #expect(UUID(PeerAddress(address, .randomIdentity)) == UUID(peer))
  }
  @Test(
    "an identifier from elsewhere names no device",
    arguments: [
      "F0F1F2F3-F4F5-4001-B14E-4472756E6500", "F0F1F2F3-F4F5-8002-B14E-4472756E6500",
      "F0F1F2F3-F4F5-8001-B14E-4472756E6501", "00000000-0000-0000-0000-000000000000",
    ])
  func foreign(text: String) throws {
    #expect(PeerAddress(try #require(UUID(uuidString: text))) == nil)
  }
}
