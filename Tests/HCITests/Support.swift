import BindruneWire
import BindruneHCI
import TestSupport
import Testing

extension Instant {
  static func ms(_ milliseconds: UInt64) -> Instant { Instant(nanoseconds: milliseconds * 1_000_000) }
}

/// Command Complete with a status and `rest`.
func complete(_ opcode: HCIOpcode, _ status: HCIStatus = .success, _ rest: [UInt8] = [], number: UInt8 = 1) -> [UInt8] {
  let value = opcode.rawValue
  return [4, 0x0E, UInt8(4 + rest.count), number, UInt8(value & 0xFF), UInt8(value >> 8), status.rawValue] + rest
}
/// Command Status.
func status(_ opcode: HCIOpcode, _ status: HCIStatus = .success, number: UInt8 = 1) -> [UInt8] {
  [4, 0x0F, 4, status.rawValue, number, UInt8(opcode.rawValue & 0xFF), UInt8(opcode.rawValue >> 8)]
}
/// LE Connection Complete of a central.
func connected(_ handle: UInt16, _ status: HCIStatus = .success) -> [UInt8] {
  [4, 0x3E, 19, 1, status.rawValue, UInt8(handle & 0xFF), UInt8(handle >> 8), 0, 1, 6, 5, 4, 3, 2, 0xC1]
    + [24, 0, 0, 0, 0xF4, 1, 0]
}
func disconnected(_ handle: UInt16, _ status: HCIStatus = .success) -> [UInt8] {
  [4, 5, 4, status.rawValue, UInt8(handle & 0xFF), UInt8(handle >> 8), 0x13]
}
func completed(_ packets: [(UInt16, UInt16)]) -> [UInt8] {
  var event: [UInt8] = [4, 0x13, UInt8(1 + 4 * packets.count), UInt8(packets.count)]
  for (handle, count) in packets {
    event += [UInt8(handle & 0xFF), UInt8(handle >> 8), UInt8(count & 0xFF), UInt8(count >> 8)]
  }
  return event
}

/// A description of a controller: its features, and its answers to the commands of the start.
struct PaperController {
  var lacks: [SupportedCommandBit] = []
  var features: LEFeatures = [
    .leEncryption, .connectionParametersRequestProcedure, .lePing, .leDataPacketLengthExtension, .leExtendedAdvertising,
  ]
  var lmpFeatures: LMPFeatures = [.leSupported, .brEDRNotSupported]
  var address: [UInt8] = [6, 5, 4, 3, 2, 1]
  var leBuffers: [UInt8] = [251, 0, 8]
  /// Commands without an answer.
  var silent: Set<HCIOpcode> = []
  var refused: [HCIOpcode: HCIStatus] = [:]
  var maximumAdvertisingData: UInt16 = 1650

  func answer(_ opcode: HCIOpcode) -> [UInt8]? {
    if silent.contains(opcode) { return nil }
    if let status = refused[opcode] { return complete(opcode, status) }
    switch opcode {
    case ReadLocalVersionInformation.opcode: return complete(opcode, .success, [13, 0, 0, 13, 0xF1, 5, 0, 0])
    case ReadLocalSupportedCommands.opcode:
      var bits = [UInt8](repeating: 0xFF, count: 64)
      for bit in lacks { bits[Int(bit.octet)] &= ~(1 << bit.bit) }
      return complete(opcode, .success, bits)
    case ReadLocalSupportedFeatures.opcode: return complete(opcode, .success, little(lmpFeatures.rawValue))
    case LEReadLocalSupportedFeatures.opcode: return complete(opcode, .success, little(features.rawValue))
    case ReadBDADDR.opcode: return complete(opcode, .success, address)
    case LEReadBufferSize.opcode: return complete(opcode, .success, leBuffers)
    case ReadBufferSize.opcode: return complete(opcode, .success, [0xFD, 3, 64, 6, 0, 0, 0])
    case LEReadMaximumDataLength.opcode: return complete(opcode, .success, [251, 0, 0x48, 8, 251, 0, 0x48, 8])
    case LEReadMaximumAdvertisingDataLength.opcode:
      return complete(
        opcode, .success, [UInt8(maximumAdvertisingData & 0xFF), UInt8(maximumAdvertisingData >> 8)])
    case LEReadNumberOfSupportedAdvertisingSets.opcode: return complete(opcode, .success, [7])
    default: return complete(opcode)
    }
  }
  private func little(_ value: UInt64) -> [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) } }
}

/// An HCI layer and its output.
struct Bench: ~Copyable {
  var layer: HCILayer
  var now = Instant.ms(1)
  private var packet = PacketBuffer()
  init(_ configuration: HCILayer.Configuration = HCILayer.Configuration()) {
    layer = HCILayer(configuration: configuration)
  }

  mutating func nextCommand() -> [UInt8]? {
    let now = now
    return packet.fill { layer.nextCommand(into: &$0, now: now) } ? packet.bytes : nil
  }
  /// The opcodes of all commands that may be sent now.
  mutating func sent() -> [HCIOpcode] {
    var opcodes: [HCIOpcode] = []
    while let command = nextCommand() {
      opcodes.append(HCIOpcode(rawValue: UInt16(command[1]) | UInt16(command[2]) << 8))
    }
    return opcodes
  }
  @discardableResult mutating func receive(_ packet: [UInt8]) -> HCIIndication { layer.receive(packet.span, now: now) }

  /// Starts with `controller`, and advances the clock to each time-out. Returns the opcodes sent and how it ended.
  mutating func start(_ controller: PaperController = PaperController()) -> (opcodes: [HCIOpcode], end: HCIIndication) {
    layer.start(now: now)
    var opcodes: [HCIOpcode] = []
    for _ in 0..<100 {
      var indication = HCIIndication.nothing
      if let command = nextCommand() {
        let opcode = HCIOpcode(rawValue: UInt16(command[1]) | UInt16(command[2]) << 8)
        opcodes.append(opcode)
        if let answer = controller.answer(opcode) { indication = receive(answer) }
      } else if let deadline = layer.deadline {
        now = max(now, deadline)
        indication = layer.expire(now: now)
      } else {
        break
      }
      switch indication {
      case .nothing: continue
      default: return (opcodes, indication)
      }
    }
    return (opcodes, .nothing)
  }
}

extension HCIIndication {
  var isNothing: Bool { if case .nothing = self { true } else { false } }
  var outcome: CommandOutcome? { if case .command(let outcome) = self { outcome } else { nil } }
  var violation: HCIViolation? { if case .violation(let violation) = self { violation } else { nil } }
  var event: HCIEvent? { if case .event(let event) = self { event } else { nil } }
  var started: ControllerInfo? { if case .started(let info) = self { info } else { nil } }
  var failure: StartFailure? { if case .startFailed(let failure) = self { failure } else { nil } }
}

/// `#expect` for conditions on values that cannot be copied, which the macro cannot take apart.
func expect(_ condition: Bool, _ comment: Comment? = nil, sourceLocation: SourceLocation = #_sourceLocation) {
  #expect(condition, comment, sourceLocation: sourceLocation)
}
