import BindruneWire

/// A decoded event. Vol 4, Part E, §5.4.4 and §7.7; the LE Meta events (§7.7.65) are cases like the others.
///
/// The package's only switches over events are the two here: a new event is one case and one line in each.
public enum HCIEvent: BitwiseCopyable, Sendable {
  case disconnectionComplete(DisconnectionComplete)
  case encryptionChange(EncryptionChange)
  case readRemoteVersionInformationComplete(ReadRemoteVersionInformationComplete)
  case commandComplete(CommandComplete)
  case commandStatus(CommandStatus)
  case hardwareError(HardwareError)
  case numberOfCompletedPackets(NumberOfCompletedPackets)
  case dataBufferOverflow(DataBufferOverflow)
  case encryptionKeyRefreshComplete(EncryptionKeyRefreshComplete)
  case authenticatedPayloadTimeoutExpired(AuthenticatedPayloadTimeoutExpired)
  case encryptionChangeV2(EncryptionChangeV2)
  case leConnectionComplete(LEConnectionComplete)
  case leAdvertisingReport(LEAdvertisingReport)
  case leConnectionUpdateComplete(LEConnectionUpdateComplete)
  case leReadRemoteFeaturesComplete(LEReadRemoteFeaturesComplete)
  case leLongTermKeyRequest(LELongTermKeyRequest)
  case leRemoteConnectionParameterRequest(LERemoteConnectionParameterRequest)
  case leDataLengthChange(LEDataLengthChange)
  case leEnhancedConnectionComplete(LEEnhancedConnectionComplete)
  case leDirectedAdvertisingReport(LEDirectedAdvertisingReport)
  case lePHYUpdateComplete(LEPHYUpdateComplete)
  case leExtendedAdvertisingReport(LEExtendedAdvertisingReport)
  case leScanTimeout(LEScanTimeout)
  case leAdvertisingSetTerminated(LEAdvertisingSetTerminated)
  case leScanRequestReceived(LEScanRequestReceived)
  /// An LE Meta event of another subevent code, with what follows the code.
  case unknownLE(subevent: UInt8, Octets)
  /// Event code 0xFF: vendor-specific.
  case vendor(Octets)
  /// Any other event code.
  case unknown(code: UInt8, Octets)

  /// An event with the parameters from `reader`; nil when this stack does not support it.
  init?<R: EventReader>(code: UInt8, subevent: UInt8, _ reader: inout R) throws(WireError) {
    switch code {
    case 0x05: self = .disconnectionComplete(try reader.read())
    case 0x08: self = .encryptionChange(try reader.read())
    case 0x0C: self = .readRemoteVersionInformationComplete(try reader.read())
    case 0x0E: self = .commandComplete(try reader.read())
    case 0x0F: self = .commandStatus(try reader.read())
    case 0x10: self = .hardwareError(try reader.read())
    case 0x13: self = .numberOfCompletedPackets(try reader.read())
    case 0x1A: self = .dataBufferOverflow(try reader.read())
    case 0x30: self = .encryptionKeyRefreshComplete(try reader.read())
    case 0x3E:
      switch subevent {
      case 0x01: self = .leConnectionComplete(try reader.read())
      case 0x02: self = .leAdvertisingReport(try reader.read())
      case 0x03: self = .leConnectionUpdateComplete(try reader.read())
      case 0x04: self = .leReadRemoteFeaturesComplete(try reader.read())
      case 0x05: self = .leLongTermKeyRequest(try reader.read())
      case 0x06: self = .leRemoteConnectionParameterRequest(try reader.read())
      case 0x07: self = .leDataLengthChange(try reader.read())
      case 0x0A: self = .leEnhancedConnectionComplete(try reader.read())
      case 0x0B: self = .leDirectedAdvertisingReport(try reader.read())
      case 0x0C: self = .lePHYUpdateComplete(try reader.read())
      case 0x0D: self = .leExtendedAdvertisingReport(try reader.read())
      case 0x11: self = .leScanTimeout(try reader.read())
      case 0x12: self = .leAdvertisingSetTerminated(try reader.read())
      case 0x13: self = .leScanRequestReceived(try reader.read())
      default: return nil
      }
    case 0x57: self = .authenticatedPayloadTimeoutExpired(try reader.read())
    case 0x59: self = .encryptionChangeV2(try reader.read())
    default: return nil
    }
  }

  /// Passes the event to `visitor`, except `.unknown`, `.unknownLE` and `.vendor`.
  public func visit<V: EventVisitor>(_ visitor: inout V) throws(WireError) {
    switch self {
    case .disconnectionComplete(let event): try visitor.visit(event)
    case .encryptionChange(let event): try visitor.visit(event)
    case .readRemoteVersionInformationComplete(let event): try visitor.visit(event)
    case .commandComplete(let event): try visitor.visit(event)
    case .commandStatus(let event): try visitor.visit(event)
    case .hardwareError(let event): try visitor.visit(event)
    case .numberOfCompletedPackets(let event): try visitor.visit(event)
    case .dataBufferOverflow(let event): try visitor.visit(event)
    case .encryptionKeyRefreshComplete(let event): try visitor.visit(event)
    case .authenticatedPayloadTimeoutExpired(let event): try visitor.visit(event)
    case .encryptionChangeV2(let event): try visitor.visit(event)
    case .leConnectionComplete(let event): try visitor.visit(event)
    case .leAdvertisingReport(let event): try visitor.visit(event)
    case .leConnectionUpdateComplete(let event): try visitor.visit(event)
    case .leReadRemoteFeaturesComplete(let event): try visitor.visit(event)
    case .leLongTermKeyRequest(let event): try visitor.visit(event)
    case .leRemoteConnectionParameterRequest(let event): try visitor.visit(event)
    case .leDataLengthChange(let event): try visitor.visit(event)
    case .leEnhancedConnectionComplete(let event): try visitor.visit(event)
    case .leDirectedAdvertisingReport(let event): try visitor.visit(event)
    case .lePHYUpdateComplete(let event): try visitor.visit(event)
    case .leExtendedAdvertisingReport(let event): try visitor.visit(event)
    case .leScanTimeout(let event): try visitor.visit(event)
    case .leAdvertisingSetTerminated(let event): try visitor.visit(event)
    case .leScanRequestReceived(let event): try visitor.visit(event)
    case .unknownLE, .vendor, .unknown: break
    }
  }
}

/// A source of an event's parameters.
protocol EventReader { mutating func read<E: HCIEventMessage>() throws(WireError) -> E }
extension WireDecoder: EventReader {
  mutating func read<E: HCIEventMessage>() throws(WireError) -> E { try message(E.self) }
}
/// Receives one event and its type.
public protocol EventVisitor { mutating func visit<E: HCIEventMessage>(_ event: E) throws(WireError) }

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
    var defaults = Defaults()
    do throws(WireError) {
      guard let event = try HCIEvent(code: code, subevent: subevent, &defaults) else { return nil }
      self = event
    } catch {
      return nil
    }
  }

  public var code: UInt8 { facts.code }
  /// The subevent code of an LE Meta event.
  public var subevent: UInt8? { facts.subevent }
  /// `HCI_LE_Connection_Complete`; `Unknown Event` for one that this stack does not support.
  public var name: StaticString { facts.name }
  private var facts: Facts {
    var facts = Facts()
    switch self {
    case .unknownLE(let subevent, _):
      facts.code = 0x3E
      facts.subevent = subevent
    case .vendor: facts.code = 0xFF
    case .unknown(let code, _): facts.code = code
    default: do throws(WireError) { try visit(&facts) } catch {}
    }
    return facts
  }

  /// Appends the packet, H4 packet type octet first; ranges are copied from `source`.
  public func writePacket(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    try output.appendAll { output, start throws(WireError) in
      try EventHeader(code).encode(into: &output, from: source)
      var encoder = unsafe WireEncoder(&output, source)
      if var subevent { try encoder.value("Subevent_Code", &subevent) }
      switch self {
      case .unknownLE(_, var parameters), .vendor(var parameters), .unknown(_, var parameters):
        try encoder.octets("Parameters", &parameters)
      default: try visit(&encoder)
      }
      unsafe encoder.commit(&output)
      try EventHeader.close(&output, from: start)
    }
  }

  /// The parameters as text; the return parameters of a Command Complete by their names.
  public func describe(in packet: Span<UInt8>) -> String {
    unsafe packet.withUnsafeBufferPointer { bytes in
      var text = unsafe Text(bytes)
      switch self {
      case .unknownLE(_, let parameters), .vendor(let parameters), .unknown(_, let parameters):
        text.text = unsafe UnknownParameters(parameters: parameters).description(in: bytes.span)
      case .commandComplete(let event):
        let returned = unsafe (AnyCommand(default: event.commandOpcode) ?? .unknown(event.commandOpcode, Octets()))
          .describe(return: event.returnParameters, in: bytes.span)
        text.text =
          "Num_HCI_Command_Packets: \(event.numHCICommandPackets), "
          + "Command_Opcode: \(event.commandOpcode.text)" + (returned.isEmpty ? "" : ", " + returned)
      default: do throws(WireError) { try visit(&text) } catch {}
      }
      return text.text
    }
  }
}

private struct Facts: EventVisitor {
  var code: UInt8 = 0, subevent: UInt8?, name: StaticString = "Unknown Event"
  mutating func visit<E: HCIEventMessage>(_: E) {
    code = E.code
    subevent = E.subevent
    name = E.name
  }
}
