import BindruneWire

/// The first octet of a packet on a transport: Vol 4, Part A, §2. The kernel's user channel has it too.
public enum HCIPacketType: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  case command = 1, acl = 2, synchronous = 3, event = 4, iso = 5
}

/// The direction of packets. HCI names it from the host's side: commands go out, events come in.
public enum HCIDirection: BitwiseCopyable, Sendable, Hashable {
  case fromHost, fromController
  public var opposite: HCIDirection { self == .fromHost ? .fromController : .fromHost }
}

/// A command: its parameters and return parameters. Vol 4, Part E, §7.
///
/// `Scripts/messages` writes the list of all from these declarations: `CommandList.swift`.
public protocol HCICommand: WireMessage {
  static var opcode: HCIOpcode { get }
  /// Its bit of Read Local Supported Commands; nil if it has none.
  static var supportedBit: SupportedCommandBit? { get }
  /// What a controller that has it must have.
  static var requirement: HCIRequirement { get }
  /// The return parameters of Command Complete, Status first.
  associatedtype Return: CommandReturn = StatusReturn
  /// The answer is an immediate Command Status and a later event, instead of Command Complete.
  static var isAnsweredByStatus: Bool { get }
  /// Links work without it: after one missing answer the host does not send it again.
  static var isDispensable: Bool { get }
}
extension HCICommand {
  public static var messageNumber: UInt16 { opcode.rawValue }
  public static var requirement: HCIRequirement { .nothing }
  public static var isAnsweredByStatus: Bool { false }
  public static var isDispensable: Bool { false }
}

/// The return parameters of a command.
public protocol CommandReturn: WireRecord { var status: HCIStatus { get set } }
/// Commands that return nothing but a status.
public struct StatusReturn: CommandReturn {
  public var status = HCIStatus()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
  }
}
/// Commands about a link that return its handle.
public struct ConnectionReturn: CommandReturn {
  public var status = HCIStatus()
  public var connectionHandle = ConnectionHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Status", &status)
    try visit.value("Connection_Handle", &connectionHandle)
  }
}

/// The parameters of an event. Vol 4, Part E, §7.7.
///
/// `Scripts/messages` writes the list of all from these declarations: `EventList.swift`. The masks derive from the
/// list: see `EventMask`.
public protocol HCIEventMessage: WireMessage {
  static var code: UInt8 { get }
  /// Of LE Meta events only.
  static var subevent: UInt8? { get }
  /// What a controller that sends it must have.
  static var requirement: HCIRequirement { get }
  /// The host evaluates it, and so does not mask it.
  static var isUsed: Bool { get }
}
/// An LE Meta event: code 0x3E, identified by the octet after the header. Vol 4, Part E, §7.7.65.
public protocol LEMetaMessage: HCIEventMessage { static var subeventCode: UInt8 { get } }
extension HCIEventMessage {
  public static var messageNumber: UInt16 { UInt16(code) | UInt16(subevent ?? 0) << 8 }
  public static var subevent: UInt8? { nil }
  public static var requirement: HCIRequirement { .nothing }
  public static var isUsed: Bool { true }
}
extension LEMetaMessage {
  public static var code: UInt8 { 0x3E }
  public static var subevent: UInt8? { subeventCode }
  @inlinable @inline(__always) public static func identify(_ visit: inout some FieldVisitor) throws(WireError) {
    var subevent = subeventCode
    try visit.value("Subevent_Code", &subevent)
  }
}

/// The header of a command, H4 packet type octet included.
struct CommandHeader: WireRecord {
  static var count: Int { 4 }
  var packetType = HCIPacketType.command
  var opcode = HCIOpcode()
  var parameterTotalLength: UInt8 = 0
  init() {}
  init(_ opcode: HCIOpcode) { self.opcode = opcode }
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.packetType(.command, &packetType)
    try visit.value("Opcode", &opcode)
    try visit.value("Parameter_Total_Length", &parameterTotalLength)
  }
  /// Writes the length of the packet that begins at `start`, once it is known.
  static func close(_ output: inout OutputRawSpan, from start: Int) throws(WireError) {
    try output.closePacket(from: start, header: count)
  }
}
/// The header of an event, H4 packet type octet included.
@usableFromInline struct EventHeader: WireRecord {
  @inlinable static var count: Int { 3 }
  var packetType = HCIPacketType.event
  var code: UInt8 = 0
  var parameterTotalLength: UInt8 = 0
  @usableFromInline init() {}
  init(_ code: UInt8) { self.code = code }
  @usableFromInline mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.packetType(.event, &packetType)
    try visit.value("Event_Code", &code)
    try visit.value("Parameter_Total_Length", &parameterTotalLength)
  }
  static func close(_ output: inout OutputRawSpan, from start: Int) throws(WireError) {
    try output.closePacket(from: start, header: count)
  }
}
/// Compares the length in the header with the packet's. Called after the parameters, whose errors are more specific.
@inlinable func checkTotalLength(_ declared: UInt8, _ available: Int) throws(WireError) {
  if Int(declared) < available { throw .trailing("Parameter_Total_Length", available - Int(declared)) }
  if Int(declared) > available {
    throw .truncated("Parameter_Total_Length", needed: Int(declared), available: available)
  }
}
extension FieldVisitor {
  /// Visits the H4 packet type octet; any other than `expected` is an error.
  @inlinable @inline(__always)
  mutating func packetType(_ expected: HCIPacketType, _ type: inout HCIPacketType) throws(WireError) {
    try value("HCI packet type", &type)
    if type != expected {
      throw .unknown("HCI packet type", Int(type.rawValue))
    }
  }
}
extension OutputRawSpan {
  /// Sets the length octet, the last of a header of `header` octets, to the number of octets after it.
  mutating func closePacket(from start: Int, header: Int) throws(WireError) {
    let length = byteCount - start - header
    guard length <= 255 else {
      throw .tooLarge("Parameter_Total_Length", length)
    }
    patch(octet: UInt8(length), at: start + header - 1)
  }
  private mutating func patch(octet: UInt8, at offset: Int) {
    unsafe withUnsafeMutableBytes { room, _ in unsafe room[offset] = octet }
  }
}

extension HCICommand {
  /// Appends the whole packet, H4 packet type octet first; ranges are copied from `source`.
  /// `output` is unchanged when this throws.
  public func writePacket(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    try output.appendAll { output, start throws(WireError) in
      try CommandHeader(Self.opcode).encode(into: &output, from: source)
      try encode(into: &output, from: source)
      try CommandHeader.close(&output, from: start)
    }
  }
  /// The return parameters in a Command Complete: `parameters` is a range of `packet`.
  ///
  /// A controller that refuses a command may omit everything after the status; the rest then has its defaults.
  public static func decodeReturn(_ parameters: Octets, in packet: Span<UInt8>) throws(WireError) -> Return {
    let start = Int(parameters.offset), end = start + Int(parameters.count)
    if end - start == 1 {
      let only = try WireDecoder.decode(StatusReturn.self, packet, from: start, to: end)
      if only.status != .success {
        let answer = Return.with { $0.status = only.status }
        return answer
      }
    }
    return try WireDecoder.decode(Return.self, packet, from: start, to: end)
  }
  /// Appends the Command Complete event that answers this command, H4 packet type octet first.
  public static func writeComplete(
    _ answer: Return, numHCICommandPackets: UInt8 = 1, into output: inout OutputRawSpan, from source: Span<UInt8>
  ) throws(WireError) {
    try output.appendAll { output, start throws(WireError) in
      var complete = CommandComplete()
      complete.numHCICommandPackets = numHCICommandPackets
      complete.commandOpcode = opcode
      try EventHeader(CommandComplete.code).encode(into: &output, from: source)
      try complete.encode(into: &output, from: source)
      try answer.encode(into: &output, from: source)
      try EventHeader.close(&output, from: start)
    }
  }
}
extension HCIEventMessage {
  /// Appends the whole packet, H4 packet type octet first; ranges are copied from `source`.
  /// `output` is unchanged when this throws.
  public func writePacket(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    try output.appendAll { output, start throws(WireError) in
      try EventHeader(Self.code).encode(into: &output, from: source)
      var encoder = unsafe WireEncoder(&output, source)
      try encoder.visit(self)
      unsafe encoder.commit(&output)
      try EventHeader.close(&output, from: start)
    }
  }
}

/// The part of an L2CAP PDU that an ACL packet carries. Vol 4, Part E, §5.4.2.
public enum PacketBoundaryFlag: UInt8, ClosedNumber, BitwiseCopyable, Sendable {
  /// The first fragment, as a host sends it over LE.
  case firstNonFlushable = 0
  case continuing = 1
  /// The first fragment, automatically flushable, as a controller sends it.
  case first = 2
  /// A complete PDU: only between AMP controllers, not over LE.
  case complete = 3
}

/// HCI ACL Data packet, without the H4 packet type octet. Vol 4, Part E, §5.4.2.
public struct ACLPacket: WireRecord {
  public var handle = ConnectionHandle(), packetBoundaryFlag = PacketBoundaryFlag.firstNonFlushable
  public var broadcastFlag: UInt8 = 0
  public var data = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.bits("Handle", &handle, 12)
    try visit.bits("Packet_Boundary_Flag", &packetBoundaryFlag, 2)
    try visit.bits("Broadcast_Flag", &broadcastFlag, 2)
    try visit.octets(lengthIn: "Data_Total_Length", UInt16.self, "Data", &data)
  }
}
extension ACLPacket {
  /// H4 packet type octet, handle and flags, Data_Total_Length.
  @inlinable public static var headerCount: Int { 5 }
  /// The ACL packet in `packet`, H4 packet type octet first. Ranges in it refer to `packet`.
  @inlinable @inline(__always) public init(_ packet: Span<UInt8>) throws(WireError) {
    guard packet.count > 0 else { throw .truncated("HCI packet type", needed: 1, available: 0) }
    guard packet[0] == HCIPacketType.acl.rawValue else {
      throw .unknown("HCI packet type", Int(packet[0]))
    }
    self = try WireDecoder.decode(ACLPacket.self, packet, from: 1)
  }
  /// Appends the header of a packet whose `count` data octets follow. The caller guarantees room (traps otherwise).
  @inlinable public static func writeHeader(
    _ handle: ConnectionHandle, _ flag: PacketBoundaryFlag, count: Int, into output: inout OutputRawSpan
  ) {
    output.append(HCIPacketType.acl.rawValue)
    output.append(littleEndian: handle.rawValue & 0x0FFF | UInt16(flag.rawValue) << 12)
    output.append(littleEndian: UInt16(count))
  }
  /// Appends the whole packet, H4 packet type octet first; the data are copied from `source`.
  @inlinable public func writePacket(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    guard output.freeCapacity > 0 else { throw .noRoom("HCI packet type", needed: 1, available: 0) }
    try output.appendAll { output, _ throws(WireError) in
      output.append(HCIPacketType.acl.rawValue)
      try encode(into: &output, from: source)
    }
  }
}
