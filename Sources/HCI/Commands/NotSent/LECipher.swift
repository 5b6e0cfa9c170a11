import BindruneWire

// No host here sends these: the simulator and the trace tools know them.

/// LE Encrypt. Vol 4, Part E, §7.8.22.
///
/// AES-128 of one block. Key and data are numbers, as FIPS-197 prints them.
public struct LEEncrypt: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0017) }
  public static var name: StaticString { "HCI_LE_Encrypt" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.22" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(27, 6) }
  public static var requirement: HCIRequirement { .features(.leEncryption) }
  public var key = SecretNumber()
  public var plaintextData: UInt128 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Key", &key)
    try visit.value("Plaintext_Data", &plaintextData)
  }

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var encryptedData: UInt128 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Encrypted_Data", &encryptedData)
    }
  }
}

/// LE Rand. Vol 4, Part E, §7.8.23.
public struct LERand: HCICommand {
  public static var opcode: HCIOpcode { HCIOpcode(.le, 0x0018) }
  public static var name: StaticString { "HCI_LE_Rand" }
  public static var section: StaticString { "Vol 4, Part E, §7.8.23" }
  public static var supportedBit: SupportedCommandBit? { SupportedCommandBit(27, 7) }
  public static var requirement: HCIRequirement { .features(.leEncryption) }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}

  public struct Return: CommandReturn {
    public var status = HCIStatus()
    public var randomNumber: UInt64 = 0
    @inlinable public init() {}
    @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Status", &status)
      try visit.value("Random_Number", &randomNumber)
    }
  }
}
