import BindruneWire

/// Receives one command and its type: also its return parameters.
public protocol CommandVisitor { mutating func visitCommand<C: HCICommand>(_ command: C) throws(WireError) }
extension CommandVisitor where Self: WireMessageVisitor {
  @inlinable public mutating func visitCommand<C: HCICommand>(_ command: C) throws(WireError) { try visit(command) }
}
extension WireEncoder: CommandVisitor, EventVisitor {}
extension WireDescriber: CommandVisitor, EventVisitor {}
extension WireFacts: CommandVisitor, EventVisitor {}

/// A command's or an event's fields, not inlined into the switch of all.
func read<M: WireRecord>(_ reader: inout some WireMessageReader) throws(WireError) -> M { try reader.read() }

extension AnyCommand {
  /// The command in `packet`, H4 packet type octet first. Ranges in it refer to `packet`.
  public init(_ packet: Span<UInt8>) throws(WireError) {
    let header = try WireDecoder.decode(CommandHeader.self, packet, to: min(packet.count, CommandHeader.count))
    let parameters = Octets(CommandHeader.count, packet.count - CommandHeader.count)
    defer { extendLifetime(packet) }
    var decoder = try unsafe WireDecoder(packet), skipped = CommandHeader()
    try skipped.fields(&decoder)
    self = try AnyCommand(header.opcode, &decoder) ?? .unknown(header.opcode, parameters)
    try checkTotalLength(header.parameterTotalLength, Int(parameters.count))
  }

  /// The command of `opcode` with default parameters; nil when this stack does not support it.
  public init?(default opcode: HCIOpcode) {
    var defaults = WireDefaults()
    do throws(WireError) {
      guard let command = try AnyCommand(opcode, &defaults) else { return nil }
      self = command
    } catch {
      return nil
    }
  }

  public var opcode: HCIOpcode { facts.opcode }
  /// `HCI_LE_Set_Scan_Enable`; `Unknown Command` for an opcode that this stack does not support.
  public var name: StaticString { facts.name }
  public var isAnsweredByStatus: Bool { facts.isAnsweredByStatus }
  /// See `HCICommand.isDispensable`.
  public var isDispensable: Bool { facts.isDispensable }
  /// Its bit of Read Local Supported Commands; nil for a command without one, and for `.unknown`.
  public var supportedBit: SupportedCommandBit? { facts.supportedBit }
  /// What a controller that has the command must have. Nothing for `.unknown`.
  public var requirement: HCIRequirement { facts.requirement }
  private var facts: Facts {
    var facts = Facts()
    if case .unknown(let opcode, _) = self { facts.opcode = opcode }
    do throws(WireError) { try visit(&facts) } catch {}
    return facts
  }

  /// Appends the packet, H4 packet type octet first; ranges are copied from `source`.
  public func writePacket(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    try output.appendAll { output, start throws(WireError) in
      try CommandHeader(opcode).encode(into: &output, from: source)
      var encoder = unsafe WireEncoder(&output, source)
      if case .unknown(_, var parameters) = self { try encoder.octets("Parameters", &parameters) }
      try visit(&encoder)
      unsafe encoder.commit(&output)
      try CommandHeader.close(&output, from: start)
    }
  }

  /// The parameters as text; empty when there are none.
  public func describe(in packet: Span<UInt8>) -> String {
    defer { extendLifetime(packet) }
    if case .unknown(_, let parameters) = self {
      return UnknownParameters(parameters: parameters).description(in: packet)
    }
    var describer = unsafe WireDescriber(packet)
    do throws(WireError) { try visit(&describer) } catch {}
    return describer.text
  }
  /// The return parameters of a Command Complete for this command as text.
  public func describe(return parameters: Octets, in packet: Span<UInt8>) -> String {
    unsafe packet.withUnsafeBufferPointer { bytes in
      var text = unsafe ReturnText(bytes, parameters)
      text.text = unsafe UnknownParameters("Return_Parameters", parameters: parameters).description(in: bytes.span)
      // Parameters that do not decode stay hex.
      do throws(WireError) { try visit(&text) } catch {}
      return text.text
    }
  }
}

private struct Facts: CommandVisitor {
  var opcode = HCIOpcode(), name: StaticString = "Unknown Command", isAnsweredByStatus = false, isDispensable = false
  var supportedBit: SupportedCommandBit?, requirement = HCIRequirement.nothing
  mutating func visitCommand<C: HCICommand>(_: C) {
    opcode = C.opcode
    name = C.name
    isAnsweredByStatus = C.isAnsweredByStatus
    isDispensable = C.isDispensable
    supportedBit = C.supportedBit
    requirement = C.requirement
  }
}
@safe private struct ReturnText: CommandVisitor {
  private let packet: UnsafeBufferPointer<UInt8>
  private let parameters: Octets
  var text = ""
  init(_ packet: UnsafeBufferPointer<UInt8>, _ parameters: Octets) {
    unsafe self.packet = packet
    self.parameters = parameters
  }
  mutating func visitCommand<C: HCICommand>(_: C) throws(WireError) {
    text = unsafe try C.decodeReturn(parameters, in: packet.span).description(in: packet.span)
  }
}
struct UnknownParameters: WireRecord {
  var label: StaticString = "Parameters", parameters = Octets()
  init() {}
  init(_ label: StaticString = "Parameters", parameters: Octets) {
    self.label = label
    self.parameters = parameters
  }
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    if !parameters.isEmpty { try visit.octets(label, &parameters) }
  }
}
