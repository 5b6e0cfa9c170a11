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
    case LEReadFilterAcceptListSize.opcode: try run(LEReadFilterAcceptListSize.self, packet, &medium)
    case LEClearFilterAcceptList.opcode: try run(LEClearFilterAcceptList.self, packet, &medium)
    case LEAddDeviceToFilterAcceptList.opcode: try run(LEAddDeviceToFilterAcceptList.self, packet, &medium)
    case LERemoveDeviceFromFilterAcceptList.opcode: try run(LERemoveDeviceFromFilterAcceptList.self, packet, &medium)
    case LESetAdvertisingSetRandomAddress.opcode: try run(LESetAdvertisingSetRandomAddress.self, packet, &medium)
    case LESetExtendedAdvertisingData.opcode: try run(LESetExtendedAdvertisingData.self, packet, &medium)
    case LESetExtendedScanResponseData.opcode: try run(LESetExtendedScanResponseData.self, packet, &medium)
    case LESetExtendedAdvertisingEnable.opcode: try run(LESetExtendedAdvertisingEnable.self, packet, &medium)
    case LEReadMaximumAdvertisingDataLength.opcode: try run(LEReadMaximumAdvertisingDataLength.self, packet, &medium)
    case LEReadNumberOfSupportedAdvertisingSets.opcode:
      try run(LEReadNumberOfSupportedAdvertisingSets.self, packet, &medium)
    case LERemoveAdvertisingSet.opcode: try run(LERemoveAdvertisingSet.self, packet, &medium)
    case LEClearAdvertisingSets.opcode: try run(LEClearAdvertisingSets.self, packet, &medium)
    default: complete(opcode, .unknownHCICommand, now: medium.now)
    }
  }
  static func unspokenBit(_ opcode: HCIOpcode) -> SupportedCommandBit? {
    switch opcode.rawValue {
    case 0x200F: SupportedCommandBit(26, 6)
    case 0x2010: SupportedCommandBit(26, 7)
    case 0x2011: SupportedCommandBit(27, 0)
    case 0x2012: SupportedCommandBit(27, 1)
    case 0x2019: SupportedCommandBit(28, 0)
    case 0x2035...0x203B: SupportedCommandBit(36, UInt8(opcode.rawValue - 0x2034))
    case 0x203C: SupportedCommandBit(37, 0)
    case 0x203D: SupportedCommandBit(37, 1)
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

// MARK: Filter Accept List. Vol 4, Part E, §7.8.14 – §7.8.17

extension VirtualController {
  static var acceptListSize: Int { 8 }
  /// It may not be changed while something goes by it.
  fileprivate var usesAcceptList: Bool {
    advertisers.contains { $0.isEnabled && $0.filterPolicy != 0 }
      || (scanner.isEnabled && scanner.filterPolicy & 1 == 1)
      || (initiator.map { $0.peer == nil } ?? false)
  }
  func accepts(_ address: AirAddress) -> Bool { acceptList.contains(address) }
}
struct LEReadFilterAcceptListSize: Unspoken {
  static var number: UInt16 { 0x200F }
  struct Return: CommandReturn {
    var status = HCIStatus(), filterAcceptListSize: UInt8 = 0
    mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Filter_Accept_List_Size", &filterAcceptListSize)
    }
  }
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.filterAcceptListSize = UInt8(VirtualController.acceptListSize)
    return result
  }
}
struct LEClearFilterAcceptList: Unspoken {
  static var number: UInt16 { 0x2010 }
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesAcceptList { return Return(.commandDisallowed) }
    controller.acceptList.removeAll()
    return Return(.success)
  }
}
struct LEAddDeviceToFilterAcceptList: Unspoken {
  static var number: UInt16 { 0x2011 }
  var addressType = AddressType(), address = DeviceAddress()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Address_Type", &addressType)
    try visit.value("Address", &address)
  }
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesAcceptList { return Return(.commandDisallowed) }
    guard addressType.rawValue <= 1 else { return Return(.invalidHCICommandParameters) }
    let entry = AirAddress(addressType, address)
    if controller.accepts(entry) { return Return(.success) }
    if controller.acceptList.count == VirtualController.acceptListSize { return Return(.memoryCapacityExceeded) }
    controller.acceptList.append(entry)
    return Return(.success)
  }
}
struct LERemoveDeviceFromFilterAcceptList: Unspoken {
  static var number: UInt16 { 0x2012 }
  var addressType = AddressType(), address = DeviceAddress()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Address_Type", &addressType)
    try visit.value("Address", &address)
  }
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> StatusReturn {
    if controller.usesAcceptList { return Return(.commandDisallowed) }
    guard addressType.rawValue <= 1 else { return Return(.invalidHCICommandParameters) }
    controller.acceptList.removeAll { $0 == AirAddress(addressType, address) }
    return Return(.success)
  }
}
