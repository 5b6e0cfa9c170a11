// A peer's identifier: its `PeerID` as a UUID, reversibly. So an identifier means the same device in every run and in
// every process of a machine, without a store. The octets of the address stand in reverse, because the first of an
// address are its maker's: programs show the beginning of an identifier, and the devices of one maker look different
// there.
//
//     F5F4F3F2-F1F0-8001-B14E-4472756E6500     the device that became known as F0:F1:F2:F3:F4:F5
//     address       │└ 0: public, 1: random
//                   └ version 8: "custom", RFC 9562, §5.8

/// Behind the variant's two bits (10, the first of 0xB1), "NDrune" and a zero.
private let tag: UInt64 = 0xB14E_4472_756E_6500

extension UUID {
  /// The identifier of the peer.
  public init(_ peer: PeerID) {
    let first = peer.firstAddress
    let high = first.address.value.byteSwapped | 0x8000 | (first.isRandom ? 1 : 0)
    func octet(_ word: UInt64, _ index: UInt64) -> UInt8 { UInt8(truncatingIfNeeded: word >> (56 - 8 * index)) }
    self.init(
      uuid: (
        octet(high, 0), octet(high, 1), octet(high, 2), octet(high, 3), octet(high, 4), octet(high, 5), octet(high, 6),
        octet(high, 7), octet(tag, 0), octet(tag, 1), octet(tag, 2), octet(tag, 3), octet(tag, 4), octet(tag, 5),
        octet(tag, 6), octet(tag, 7)
      ))
  }
}

extension PeerID {
  /// The peer with this identifier; nil: the identifier is not one of this machine's.
  public init?(_ identifier: UUID) {
    let octets = unsafe withUnsafeBytes(of: identifier.uuid) { unsafe [UInt8]($0) }
    let words = [octets[..<8], octets[8...]].map { $0.reduce(UInt64(0)) { $0 << 8 | UInt64($1) } }
    guard words[1] == tag, words[0] & 0xFFFE == 0x8000 else { return nil }
    let address = DeviceAddress((words[0] & ~0xFFFF).byteSwapped)
    self.init(PeerAddress(address, words[0] & 1 == 1 ? .random : .public))
  }
}
