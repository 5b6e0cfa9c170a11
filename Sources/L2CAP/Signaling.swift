import BindruneWire
import BindruneHCI

/// The code of a signaling command. Vol 3, Part A, §4, Table 4.2.
public struct SignalCode: OpenNumber, ExpressibleByIntegerLiteral {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init(integerLiteral value: UInt8) { rawValue = value }
  @inlinable @inline(__always) public init() { rawValue = 0 }

  /// Whether it needs an answer, so that it is rejected if it is not understood. Responses do not, nor do credits
  /// (0x16), the only indication: two stacks would reject each other for ever.
  @inlinable public var isRequest: Bool {
    switch rawValue {
    case 0x01, 0x03, 0x05, 0x07, 0x09, 0x0B, 0x0D, 0x0F, 0x11, 0x13, 0x15, 0x16, 0x18, 0x1A: false
    default: true
    }
  }
}

/// The header of a signaling command. Vol 3, Part A, §4. On LE a frame contains exactly one command.
public struct SignalHeader: WireRecord {
  public var code = SignalCode()
  /// Links a response to its request; never 0.
  public var identifier: UInt8 = 0
  /// Octets of the fields.
  public var length: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Code", &code)
    try visit.value("Identifier", &identifier)
    try visit.value("Length", &length)
  }
  @inlinable public static var count: Int { 4 }
}

/// The fields of a signaling command.
///
/// `Scripts/messages` writes the list of all from these declarations: `SignalList.swift`.
public protocol L2CAPSignal: WireMessage { static var code: SignalCode { get } }
extension L2CAPSignal { public static var messageNumber: UInt16 { UInt16(code.rawValue) } }

extension AnySignal {
  /// The command in `frame`, header first; nil when this stack does not support its code. Ranges in it refer to
  /// `frame`.
  public init?(_ frame: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(frame) }
    var decoder = try unsafe WireDecoder(frame), header = SignalHeader()
    try header.fields(&decoder)
    try self.init(header.code, &decoder)
  }
  public var code: SignalCode {
    var facts = WireFacts()
    do throws(WireError) { try visit(&facts) } catch {}
    return SignalCode(rawValue: UInt8(truncatingIfNeeded: facts.number))
  }
  /// Appends the whole command. Ranges are copied from `source`. The caller guarantees room.
  public func writeCommand(
    identifier: UInt8, into output: inout OutputRawSpan, from source: Span<UInt8>
  ) throws(WireError) {
    defer { extendLifetime(source) }
    let start = output.byteCount
    var header = SignalHeader()
    header.code = code
    header.identifier = identifier
    try header.encode(into: &output, from: source)
    var encoder = unsafe WireEncoder(&output, source)
    try visit(&encoder)
    unsafe encoder.commit(&output)
    output.patch(UInt16(output.byteCount - start - SignalHeader.count), at: start + 2)
  }
  /// The fields as text.
  public func describe(in frame: Span<UInt8>) -> String {
    defer { extendLifetime(frame) }
    var describer = unsafe WireDescriber(frame)
    do throws(WireError) { try visit(&describer) } catch {}
    return describer.text
  }
}

/// L2CAP_COMMAND_REJECT_RSP. Vol 3, Part A, §4.1.
public struct CommandRejectResponse: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x01 }
  public static var name: StaticString { "L2CAP_COMMAND_REJECT_RSP" }
  public static var section: StaticString { "Vol 3, Part A, §4.1" }
  public var reason = RejectReason.commandNotUnderstood
  /// Empty; or the MTU_sig in force (2 octets); or the local and remote channel IDs (4 octets).
  public var reasonData = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Reason", &reason)
    try visit.octets("Reason Data", &reasonData)
  }
}
/// Why a command was rejected. Vol 3, Part A, §4.1, Table 4.3.
public struct RejectReason: OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable public static var commandNotUnderstood: RejectReason { RejectReason(rawValue: 0x0000) }
  @inlinable public static var signalingMTUExceeded: RejectReason { RejectReason(rawValue: 0x0001) }
  @inlinable public static var invalidCIDInRequest: RejectReason { RejectReason(rawValue: 0x0002) }
}

/// L2CAP_CONNECTION_PARAMETER_UPDATE_REQ. Vol 3, Part A, §4.20. From the peripheral to the central only.
public struct ConnectionParameterUpdateRequest: L2CAPSignal, Equatable {
  @inlinable public static var code: SignalCode { 0x12 }
  public static var name: StaticString { "L2CAP_CONNECTION_PARAMETER_UPDATE_REQ" }
  public static var section: StaticString { "Vol 3, Part A, §4.20" }
  /// Not more than `intervalMax`.
  public var intervalMin = ConnectionInterval(rawValue: 24)
  public var intervalMax = ConnectionInterval(rawValue: 40)
  /// Connection events that the peripheral may skip: 0 … 499, and so few that the timeout exceeds two more intervals.
  public var latency: UInt16 = 0
  public var timeout = SupervisionTimeout(rawValue: 500)
  @inlinable public init() {}
  @inlinable public init(
    intervalMin: ConnectionInterval, intervalMax: ConnectionInterval, latency: UInt16, timeout: SupervisionTimeout
  ) {
    self.intervalMin = intervalMin
    self.intervalMax = intervalMax
    self.latency = latency
    self.timeout = timeout
  }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Interval Min", &intervalMin)
    try visit.value("Interval Max", &intervalMax)
    try visit.value("Latency", &latency)
    try visit.value("Timeout", &timeout)
  }
  /// Every field is in its range, and they are consistent: (1 + latency) × intervalMax × 1.25 ms × 2 < timeout × 10 ms.
  /// L2CAP would allow equality (Vol 3, Part A, §4.20), the controller's command does not (Vol 4, Part E, §7.8.18).
  @inlinable public var isValid: Bool {
    (6...3200).contains(intervalMin.rawValue) && (6...3200).contains(intervalMax.rawValue) && intervalMin <= intervalMax
      && latency <= 499 && (10...3200).contains(timeout.rawValue)
      && (1 + Int(latency)) * Int(intervalMax.rawValue) < Int(timeout.rawValue) * 4
  }
}

/// L2CAP_CONNECTION_PARAMETER_UPDATE_RSP. Vol 3, Part A, §4.21.
public struct ConnectionParameterUpdateResponse: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x13 }
  public static var name: StaticString { "L2CAP_CONNECTION_PARAMETER_UPDATE_RSP" }
  public static var section: StaticString { "Vol 3, Part A, §4.21" }
  /// 0 accepted, 1 rejected.
  public var result: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Result", &result)
  }
}
