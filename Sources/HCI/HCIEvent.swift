import BindruneWire

/// Receives one event and its type: also what masks it.
public protocol EventVisitor { mutating func visitEvent<E: HCIEventMessage>(_ event: E) throws(WireError) }
extension EventVisitor where Self: WireMessageVisitor {
  @inlinable public mutating func visitEvent<E: HCIEventMessage>(_ event: E) throws(WireError) { try visit(event) }
}

extension HCIEvent {
  /// The event in `packet`, H4 packet type octet first. Ranges in it refer to `packet`.
  public init(_ packet: Span<UInt8>) throws(WireError) {
    let header = try WireDecoder.decode(EventHeader.self, packet, to: min(packet.count, EventHeader.count))
    let available = packet.count - EventHeader.count
    defer { extendLifetime(packet) }
    var decoder = try unsafe WireDecoder(packet), skipped = EventHeader(), subevent: UInt8 = 0
    try skipped.fields(&decoder)
    if header.code == 0x3E { try decoder.value("Subevent_Code", &subevent) }
    if let event = try HCIEvent(code: header.code, subevent: subevent, &decoder) {
      self = event
    } else {
      switch header.code {
      case 0x3E: self = .unknownLE(subevent: subevent, Octets(EventHeader.count + 1, available - 1))
      case 0xFF: self = .vendor(Octets(EventHeader.count, available))
      default: self = .unknown(code: header.code, Octets(EventHeader.count, available))
      }
    }
    try checkTotalLength(header.parameterTotalLength, available)
  }

  /// The event with default parameters; nil when this stack does not support it. `subevent` applies to code 0x3E only.
  public init?(default code: UInt8, subevent: UInt8 = 0) {
    var defaults = WireDefaults()
    do throws(WireError) {
      guard let event = try HCIEvent(code: code, subevent: subevent, &defaults) else { return nil }
      self = event
    } catch {
      return nil
    }
  }

  public var code: UInt8 {
    switch self {
    case .unknownLE: 0x3E
    case .vendor: 0xFF
    case .unknown(let code, _): code
    default: UInt8(truncatingIfNeeded: facts.number)
    }
  }
  /// The subevent code of an LE Meta event.
  public var subevent: UInt8? {
    if case .unknownLE(let subevent, _) = self { return subevent }
    return code == 0x3E ? UInt8(truncatingIfNeeded: facts.number >> 8) : nil
  }
  /// `HCI_LE_Connection_Complete`; `Unknown Event` for one that this stack does not support.
  public var name: StaticString {
    switch self {
    case .unknownLE, .vendor, .unknown: "Unknown Event"
    default: facts.name
    }
  }
  private var facts: WireFacts {
    var facts = WireFacts()
    do throws(WireError) { try visit(&facts) } catch {}
    return facts
  }

  /// Appends the packet, H4 packet type octet first; ranges are copied from `source`.
  public func writePacket(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    try output.appendAll { output, start throws(WireError) in
      try EventHeader(code).encode(into: &output, from: source)
      var encoder = unsafe WireEncoder(&output, source)
      switch self {
      case .unknownLE(var subevent, var parameters):
        try encoder.value("Subevent_Code", &subevent)
        try encoder.octets("Parameters", &parameters)
      case .vendor(var parameters), .unknown(_, var parameters): try encoder.octets("Parameters", &parameters)
      default: try visit(&encoder)
      }
      unsafe encoder.commit(&output)
      try EventHeader.close(&output, from: start)
    }
  }

  /// The parameters as text; the return parameters of a Command Complete by their names.
  public func describe(in packet: Span<UInt8>) -> String {
    defer { extendLifetime(packet) }
    switch self {
    case .unknownLE(_, let parameters), .vendor(let parameters), .unknown(_, let parameters):
      return UnknownParameters(parameters: parameters).description(in: packet)
    case .commandComplete(let event):
      let returned = (AnyCommand(default: event.commandOpcode) ?? .unknown(event.commandOpcode, Octets()))
        .describe(return: event.returnParameters, in: packet)
      return "Num_HCI_Command_Packets: \(event.numHCICommandPackets), "
        + "Command_Opcode: \(event.commandOpcode.text)" + (returned.isEmpty ? "" : ", " + returned)
    default:
      var describer = unsafe WireDescriber(packet)
      do throws(WireError) { try visit(&describer) } catch {}
      return describer.text
    }
  }
}
