import BindruneWire
import HCI

// Commands that the host of this package does not speak yet, and that a controller must have all the same, because of the
// features it shows or because other hosts use them. Each moves to HCI with the first code there that sends it; then
// `AnyCommand` decodes it, and its line in `performUnspoken` and its bit in `unspokenBit` go.

extension VirtualController {
  mutating func performUnspoken(
    _ opcode: HCIOpcode, _ packet: Span<UInt8>, _ medium: inout Medium
  ) throws(WireError) {
    switch opcode {
    case LEEnableEncryption.opcode: try run(LEEnableEncryption.self, packet, &medium)
    default: complete(opcode, .unknownHCICommand, now: medium.now)
    }
  }
  static func unspokenBit(_ opcode: HCIOpcode) -> SupportedCommandBit? {
    switch opcode.rawValue {
    case 0x2019: SupportedCommandBit(28, 0)
    default: nil
    }
  }
  private mutating func run<C: Executable>(
    _: C.Type, _ packet: Span<UInt8>, _ medium: inout Medium
  ) throws(WireError) { run(try Decoder.decode(C.self, packet, from: 4), packet, &medium) }
}
/// Opcode, name and bit of such a command are told in one place.
protocol Unspoken: Executable { static var number: UInt16 { get } }
extension Unspoken {
  static var opcode: HCIOpcode { HCIOpcode(rawValue: number) }
  static var name: StaticString { "" }
  static var supportedBit: SupportedCommandBit? { VirtualController.unspokenBit(opcode) }
}

/// LE Enable Encryption. Vol 4, Part E, §7.8.24. The peer's host is asked for its key.
struct LEEnableEncryption: Unspoken {
  static var number: UInt16 { 0x2019 }
  static var isAnsweredByStatus: Bool { true }
  var connectionHandle = ConnectionHandle(), randomNumber = LongTermKeyRand(), encryptedDiversifier: UInt16 = 0
  var longTermKey = Octets()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Random_Number", &randomNumber)
    try visit.value("Encrypted_Diversifier", &encryptedDiversifier)
    try visit.octets("Long_Term_Key", &longTermKey, .exactly(16))
  }
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else { return Return(.unknownConnectionIdentifier) }
    guard end.role == .central, !medium.links[end.link].central.awaitsEncryption else {
      return Return(.commandDisallowed)
    }
    medium.links[end.link].central.awaitsEncryption = true
    medium.send(.encryptionRequest(random: randomNumber, diversifier: encryptedDiversifier), end)
    return Return(.success)
  }
}
