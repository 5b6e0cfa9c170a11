import BindruneWire

/// LE Enable Encryption. Vol 4, Part E, §7.8.24.
///
/// Only the central's host sends it; the peripheral's host is then asked for its key.
public struct LEEnableEncryption: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0019) }
  public static var name: StaticString { "HCI_LE_Enable_Encryption" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.24" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(28, 0) }
  public static var requirement: HCIRequirement { .features(.leEncryption) }
  public static var isAnsweredByStatus: Bool { true }
  public var connectionHandle = ConnectionHandle()
  public var randomNumber = LongTermKeyRand()
  public var encryptedDiversifier: UInt16 = 0
  public var longTermKey = SecretNumber()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Random_Number", &randomNumber)
    try visit.value("Encrypted_Diversifier", &encryptedDiversifier)
    try visit.value("Long_Term_Key", &longTermKey)
  }
}

/// LE Long Term Key Request Reply. Vol 4, Part E, §7.8.25.
///
/// The key that the peripheral's host has for the Random_Number and Encrypted_Diversifier of the request.
public struct LELongTermKeyRequestReply: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x001A) }
  public static var name: StaticString { "HCI_LE_Long_Term_Key_Request_Reply" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.25" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(28, 1) }
  public static var requirement: HCIRequirement { .features(.leEncryption) }
  public typealias Return = ConnectionReturn
  public var connectionHandle = ConnectionHandle()
  public var longTermKey = SecretNumber()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
    try visit.value("Long_Term_Key", &longTermKey)
  }
}

/// LE Long Term Key Request Negative Reply. Vol 4, Part E, §7.8.26.
///
/// There is no key: the encryption procedure of the central ends with 0x06.
public struct LELongTermKeyRequestNegativeReply: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x001B) }
  public static var name: StaticString { "HCI_LE_Long_Term_Key_Request_Negative_Reply" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.26" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(28, 2) }
  public static var requirement: HCIRequirement { .features(.leEncryption) }
  public typealias Return = ConnectionReturn
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Connection_Handle", &connectionHandle)
  }
}
