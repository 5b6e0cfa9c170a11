/// A message that a number identifies: a PDU, a signal, a command, an event.
///
/// The declaration says everything once: `fields`, number, name and section. `Scripts/messages` writes each protocol's
/// list from its declarations: the enum, the switch that decodes a number, and the one that visits a value.
public protocol WireMessage: WireRecord {
  /// The number within the protocol: an opcode or a code; of an LE Meta event the subevent code above the event code.
  static var messageNumber: UInt16 { get }
  /// The Specification's name: `HCI_LE_Set_Scan_Enable`.
  static var name: StaticString { get }
  /// Where the Specification defines it: `Vol 4, Part E, §7.8.11`.
  static var section: StaticString { get }
  /// Passes the field that precedes `fields` and identifies the message. None if a header contains it.
  static func identify(_ visit: inout some FieldVisitor) throws(WireError)
}
extension WireMessage {
  @inlinable @inline(__always) public static func identify(_ visit: inout some FieldVisitor) throws(WireError) {}
}

/// A source of a message's fields: decoded, random or default ones.
public protocol WireMessageReader { mutating func read<M: WireRecord>() throws(WireError) -> M }
extension WireDecoder: WireMessageReader {
  @inlinable @inline(__always) public mutating func read<M: WireRecord>() throws(WireError) -> M { try message(M.self) }
}
extension WireArbitrary: WireMessageReader {
  public mutating func read<M: WireRecord>() throws(WireError) -> M { try message(M.self) }
}
/// The default fields: a message that stands for its type.
public struct WireDefaults: WireMessageReader {
  public init() {}
  public func read<M: WireRecord>() -> M { M() }
}

/// Receives one message and its type.
public protocol WireMessageVisitor { mutating func visit<M: WireMessage>(_ message: M) throws(WireError) }
extension WireEncoder: WireMessageVisitor {
  @inlinable @inline(__always) public mutating func visit<M: WireMessage>(_ message: M) throws(WireError) {
    try M.identify(&self)
    try self.message(message)
  }
}
/// The fields without the number: the caller prints the message's name.
extension WireDescriber: WireMessageVisitor {
  public mutating func visit<M: WireMessage>(_ message: M) throws(WireError) {
    var message = message
    try message.fields(&self)
  }
}
extension WireLayout: WireMessageVisitor {
  public mutating func visit<M: WireMessage>(_: M) throws(WireError) {
    try M.identify(&self)
    record(M.self)
  }
}
/// What a message's declaration says about it.
public struct WireFacts: WireMessageVisitor {
  public private(set) var number: UInt16 = 0, name: StaticString = "", section: StaticString = ""
  public init() {}
  public mutating func visit<M: WireMessage>(_: M) {
    number = M.messageNumber
    name = M.name
    section = M.section
  }
}
