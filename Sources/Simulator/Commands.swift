import BindruneToolbox
import BindruneWire
import BindruneHCI

/// A command that the simulated controller supports. `Scripts/messages` writes `perform`, which runs it.
protocol Simulated: HCICommand {
  /// Executes the command and answers it.
  func run(on controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>)
}
/// One whose answer is a Command Status, or return parameters without octets of free length.
protocol Executable: Simulated {
  /// Executes the command, and returns its return parameters. If the answer is a Command Status, only the status
  /// counts. What must follow the answer goes into `medium.errands`.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return
}
extension Executable {
  func run(on controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) {
    let result = execute(&controller, &medium, packet)
    if Self.isAnsweredByStatus {
      controller.answer(Self.opcode, result.status, now: medium.now)
    } else {
      controller.complete(Self.self, result, now: medium.now)
    }
  }
}
extension CommandReturn {
  init(_ status: HCIStatus) {
    self.init()
    self.status = status
  }
}

extension VirtualController {
  /// Receives one command packet from the host. Vol 4, Part E, §5.4.1. The controller answers every command, except
  /// those that the configuration excludes.
  mutating func receiveCommand(_ packet: Span<UInt8>, _ medium: inout Medium) {
    guard packet.count >= 4 else {
      faults.malformedPackets += 1
      return
    }
    let opcode = HCIOpcode(rawValue: UInt16(packet[1]) | UInt16(packet[2]) << 8)
    let needsCredit = opcode != HostNumberOfCompletedPackets.opcode
    if needsCredit, outstandingCommands >= Int(configuration.commandCredits) { faults.commandsWithoutCredit += 1 }
    // A host that far behind does not read its answers: the controller keeps nothing more for it.
    if isBacklogged || configuration.unansweredCommands.contains(opcode) { return }
    if needsCredit { outstandingCommands += 1 }
    do throws(WireError) {
      try obey(opcode, packet, &medium)
    } catch {
      faults.malformedPackets += 1
      if !needsCredit { outstandingCommands += 1 }
      if AnyCommand(default: opcode)?.isAnsweredByStatus == true {
        answer(opcode, .invalidHCICommandParameters, now: medium.now)
      } else {
        complete(opcode, .invalidHCICommandParameters, now: medium.now)
      }
    }
    if let delay = configuration.commandCreditDelay, needsCredit {
      medium.schedule.plan(.commandCredit(id), at: medium.now + air.commandLatency + delay)
    }
  }
  private mutating func obey(_ opcode: HCIOpcode, _ packet: Span<UInt8>, _ medium: inout Medium) throws(WireError) {
    guard configuration.knows(opcode) else { return complete(opcode, .unknownHCICommand, now: medium.now) }
    perform(try AnyCommand(packet), packet, &medium)
  }

  /// Vol 4, Part E, §7.3.1, §7.3.69 and §7.8.1. Command answers and Number Of Completed Packets bypass this: they
  /// cannot be masked.
  func isEnabled<E: HCIEventMessage>(_: E.Type) -> Bool {
    guard configuration.meets(E.requirement) else { return false }
    return switch EventMaskBit(E.self) {
    case .page1(let bit): eventMask.contains(bit)
    case .page2(let bit): eventMaskPage2.contains(bit)
    case .le(let bit): eventMask.contains(.leMeta) && leEventMask.contains(bit)
    case .none: true
    }
  }

  /// Vol 4, Part E, §3.1.1: true when commands of this set are allowed; from now on only they are.
  mutating func uses(_ set: CommandSet) -> Bool {
    if commandSet == .undecided { commandSet = set }
    return commandSet == set
  }
}

extension ControllerConfiguration {
  /// Whether a controller with this configuration has the command.
  func knows(_ opcode: HCIOpcode) -> Bool {
    guard !unknownCommands.contains(opcode), let command = AnyCommand(default: opcode) else { return false }
    return meets(command.requirement)
  }
  func meets(_ requirement: HCIRequirement) -> Bool {
    requirement.isMet(
      by: features, version, hasBREDR: isDualMode || sharesBuffers, hasFilterAcceptList: filterAcceptListSize > 0)
  }
}

// MARK: Controller and baseband, information

extension ReadLocalSupportedCommands: Simulated {
  /// Vol 4, Part E, §7.4.2: exactly the commands that are not answered with 0x01.
  func run(on controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) {
    var known = KnownCommands(configuration: controller.configuration)
    do throws(WireError) { try AnyCommand.each(&known) } catch {}
    var bytes = PacketBuffer(capacity: 64)
    _ = bytes.fill { output in
      known.commands.write(into: &output)
      return true
    }
    let result = Return.with { $0.supportedCommands = Octets(0, 64) }
    bytes.withBytes { controller.complete(Self.self, result, from: $0, now: medium.now) }
  }
}
private struct KnownCommands: CommandVisitor {
  let configuration: ControllerConfiguration
  var commands = SupportedCommands()
  mutating func visitCommand<C: HCICommand>(_: C) {
    if let bit = C.supportedBit, configuration.knows(C.opcode) { commands[bit] = true }
  }
}

extension SetEventMask: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    controller.eventMask = eventMask
    return Return(.success)
  }
}
extension Reset: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    for connection in controller.connections { medium.errands.append(.abandon(connection.end)) }
    controller.endTest(&medium)
    controller.reset()
    return Return(.success)
  }
}
extension SetEventMaskPage2: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    controller.eventMaskPage2 = eventMaskPage2
    return Return(.success)
  }
}
extension WriteLEHostSupport: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    Return(.success)
  }
}
extension ReadLocalVersionInformation: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.hciVersion = controller.configuration.version
    result.lmpVersion = controller.configuration.version
    result.companyIdentifier = controller.configuration.companyIdentifier
    return result
  }
}
extension ReadLocalSupportedFeatures: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.lmpFeatures = controller.configuration.isDualMode ? .leSupported : [.leSupported, .brEDRNotSupported]
    return result
  }
}
extension ReadBufferSize: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.aclDataPacketLength = controller.configuration.aclDataLength
    result.totalNumACLDataPackets = UInt16(controller.configuration.aclBufferCount)
    return result
  }
}
extension ReadBDADDR: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.bdADDR = controller.configuration.address
    return result
  }
}
extension LESetEventMask: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    controller.leEventMask = leEventMask
    return Return(.success)
  }
}
extension LEReadBufferSize: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    if controller.configuration.sharesBuffers { return result }
    result.leACLDataPacketLength = controller.configuration.aclDataLength
    result.totalNumLEACLDataPackets = controller.configuration.aclBufferCount
    return result
  }
}
extension LEReadBufferSizeV2: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    if controller.configuration.sharesBuffers { return result }
    result.leACLDataPacketLength = controller.configuration.aclDataLength
    result.totalNumLEACLDataPackets = controller.configuration.aclBufferCount
    return result
  }
}
extension LEReadLocalSupportedFeatures: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.leFeatures = controller.configuration.features
    return result
  }
}
extension LESetRandomAddress: Executable {
  /// Refused while the address may be in use. Vol 4, Part E, §7.8.4.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    if controller.advertisers[0].isEnabled || controller.scanner.isEnabled || controller.initiator != nil {
      return Return(.commandDisallowed)
    }
    controller.randomAddress = randomAddress
    return Return(.success)
  }
}
extension LEReadSupportedStates: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.leStates = controller.supportedStates
    return result
  }
}
extension VirtualController {
  /// The table of Vol 4, Part E, §7.8.27 has 42 lines: advertising of five kinds, scanning of two, initiating and both
  /// connection roles, singly and in pairs. Each has its own state here, and none excludes another; only a controller
  /// limited to one link neither initiates (bits 28 and 41) nor advertises connectably (35 … 40) while it has that
  /// link.
  var supportedStates: LEStates {
    let all: UInt64 = 1 << 42 - 1, secondLink: UInt64 = 1 << 28 | 0x7F << 35
    return LEStates(rawValue: configuration.maximumConnections > 1 ? all : all & ~secondLink)
  }
}
extension LERand: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    result.randomNumber = controller.addressChance.next()
    return result
  }
}
extension LEReadRFPathCompensation: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    var result = Return(.success)
    (result.rfTXPathCompensationValue, result.rfRXPathCompensationValue) = controller.rfPath
    return result
  }
}
extension LEWriteRFPathCompensation: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    let range: ClosedRange<Int16> = -1280...1280
    guard range.contains(rfTXPathCompensationValue), range.contains(rfRXPathCompensationValue) else {
      return Return(.invalidHCICommandParameters)
    }
    controller.rfPath = (rfTXPathCompensationValue, rfRXPathCompensationValue)
    return Return(.success)
  }
}
