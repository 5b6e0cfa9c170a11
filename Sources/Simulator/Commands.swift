import BindruneWire
import HCI

/// A command that the simulated controller obeys.
protocol Executable: HCICommand {
  /// Does what the command says, and returns what the answer says. Where the answer is a Command Status, only the status
  /// counts; what must come after the answer is left in `medium.errands`.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return
}
extension CommandReturn {
  init(_ status: HCIStatus) {
    self.init()
    self.status = status
  }
}
extension ConnectionReturn {
  init(_ status: HCIStatus, _ handle: ConnectionHandle) {
    self.init(status)
    connectionHandle = handle
  }
}

extension VirtualController {
  /// One command packet from the host. Vol 4, Part E, §5.4.1. Every one is answered, unless the configuration says
  /// that this controller never answers it.
  mutating func receiveCommand(_ packet: Span<UInt8>, _ medium: inout Medium) {
    guard packet.count >= 4 else {
      faults.malformedPackets += 1
      return
    }
    let opcode = HCIOpcode(rawValue: UInt16(packet[1]) | UInt16(packet[2]) << 8)
    if outstandingCommands >= Int(configuration.commandCredits) { faults.commandsWithoutCredit += 1 }
    // A host that far behind does not read its answers: nothing more is kept for it.
    if isBacklogged || configuration.unansweredCommands.contains(opcode) { return }
    outstandingCommands += 1
    do throws(WireError) {
      try obey(opcode, packet, &medium)
    } catch {
      faults.malformedPackets += 1
      if AnyCommand(default: opcode)?.isAnsweredByStatus ?? (opcode == LEEnableEncryption.opcode) {
        answer(opcode, .invalidHCICommandParameters, now: medium.now)
      } else {
        complete(opcode, .invalidHCICommandParameters, now: medium.now)
      }
    }
    if let delay = configuration.commandCreditDelay {
      medium.schedule.plan(.commandCredit(id), at: medium.now + air.commandLatency + delay)
    }
  }
  private mutating func obey(_ opcode: HCIOpcode, _ packet: Span<UInt8>, _ medium: inout Medium) throws(WireError) {
    guard knows(opcode) else { return complete(opcode, .unknownHCICommand, now: medium.now) }
    let command = try AnyCommand(packet)
    if case .unknown = command { return try performUnspoken(opcode, packet, &medium) }
    perform(command, packet, &medium)
  }

  mutating func run<C: Executable>(_ command: C, _ packet: Span<UInt8>, _ medium: inout Medium) {
    let result = command.execute(&self, &medium, packet)
    if C.isAnsweredByStatus {
      answer(C.opcode, result.status, now: medium.now)
    } else {
      complete(C.self, result, now: medium.now)
    }
  }
  private mutating func perform(_ command: AnyCommand, _ packet: Span<UInt8>, _ medium: inout Medium) {
    switch command {
    case .disconnect(let command): run(command, packet, &medium)
    case .readRemoteVersionInformation(let command): run(command, packet, &medium)
    case .setEventMask(let command): run(command, packet, &medium)
    case .reset(let command): run(command, packet, &medium)
    case .writeLEHostSupport(let command): run(command, packet, &medium)
    case .readLocalVersionInformation(let command): run(command, packet, &medium)
    case .readLocalSupportedCommands: completeSupportedCommands(now: medium.now)
    case .readLocalSupportedFeatures(let command): run(command, packet, &medium)
    case .readBufferSize(let command): run(command, packet, &medium)
    case .readBDADDR(let command): run(command, packet, &medium)
    case .leSetEventMask(let command): run(command, packet, &medium)
    case .leReadBufferSize(let command): run(command, packet, &medium)
    case .leReadBufferSizeV2(let command): run(command, packet, &medium)
    case .leReadLocalSupportedFeatures(let command): run(command, packet, &medium)
    case .leSetRandomAddress(let command): run(command, packet, &medium)
    case .leSetAdvertisingParameters(let command): run(command, packet, &medium)
    case .leReadAdvertisingPhysicalChannelTxPower(let command): run(command, packet, &medium)
    case .leSetAdvertisingData(let command): run(command, packet, &medium)
    case .leSetScanResponseData(let command): run(command, packet, &medium)
    case .leSetAdvertisingEnable(let command): run(command, packet, &medium)
    case .leSetScanParameters(let command): run(command, packet, &medium)
    case .leSetScanEnable(let command): run(command, packet, &medium)
    case .leSetExtendedAdvertisingParameters(let command): run(command, packet, &medium)
    case .leSetAdvertisingSetRandomAddress(let command): run(command, packet, &medium)
    case .leSetExtendedAdvertisingData(let command): run(command, packet, &medium)
    case .leSetExtendedScanResponseData(let command): run(command, packet, &medium)
    case .leSetExtendedAdvertisingEnable(let command): run(command, packet, &medium)
    case .leReadMaximumAdvertisingDataLength(let command): run(command, packet, &medium)
    case .leReadNumberOfSupportedAdvertisingSets(let command): run(command, packet, &medium)
    case .leRemoveAdvertisingSet(let command): run(command, packet, &medium)
    case .leClearAdvertisingSets(let command): run(command, packet, &medium)
    case .leSetExtendedScanParameters(let command): run(command, packet, &medium)
    case .leSetExtendedScanEnable(let command): run(command, packet, &medium)
    case .leCreateConnection(let command): run(command, packet, &medium)
    case .leExtendedCreateConnection(let command): run(command, packet, &medium)
    case .leCreateConnectionCancel(let command): run(command, packet, &medium)
    case .leReadFilterAcceptListSize(let command): run(command, packet, &medium)
    case .leClearFilterAcceptList(let command): run(command, packet, &medium)
    case .leAddDeviceToFilterAcceptList(let command): run(command, packet, &medium)
    case .leRemoveDeviceFromFilterAcceptList(let command): run(command, packet, &medium)
    case .leConnectionUpdate(let command): run(command, packet, &medium)
    case .leReadRemoteFeatures(let command): run(command, packet, &medium)
    case .leLongTermKeyRequestNegativeReply(let command): run(command, packet, &medium)
    case .leRemoteConnectionParameterRequestReply(let command): run(command, packet, &medium)
    case .leRemoteConnectionParameterRequestNegativeReply(let command): run(command, packet, &medium)
    case .leSetDataLength(let command): run(command, packet, &medium)
    case .leReadSuggestedDefaultDataLength(let command): run(command, packet, &medium)
    case .leWriteSuggestedDefaultDataLength(let command): run(command, packet, &medium)
    case .leReadMaximumDataLength(let command): run(command, packet, &medium)
    case .readRSSI(let command): run(command, packet, &medium)
    case .leReadPHY(let command): run(command, packet, &medium)
    case .leSetDefaultPHY(let command): run(command, packet, &medium)
    case .leSetPHY(let command): run(command, packet, &medium)
    case .leAddDeviceToResolvingList(let command): run(command, packet, &medium)
    case .leRemoveDeviceFromResolvingList(let command): run(command, packet, &medium)
    case .leClearResolvingList(let command): run(command, packet, &medium)
    case .leReadResolvingListSize(let command): run(command, packet, &medium)
    case .leReadPeerResolvableAddress(let command): run(command, packet, &medium)
    case .leReadLocalResolvableAddress(let command): run(command, packet, &medium)
    case .leSetAddressResolutionEnable(let command): run(command, packet, &medium)
    case .leSetResolvablePrivateAddressTimeout(let command): run(command, packet, &medium)
    case .leSetPrivacyMode(let command): run(command, packet, &medium)
    default: complete(command.opcode, .unknownHCICommand, now: medium.now)
    }
  }

  /// Whether this controller, as it is configured, has the command.
  func knows(_ opcode: HCIOpcode) -> Bool {
    if configuration.unknownCommands.contains(opcode) { return false }
    switch opcode.rawValue {
    case 0x0C6D, 0x1005: return configuration.isDualMode || configuration.sharesBuffers
    case 0x2060: return configuration.version.rawValue >= 0x0B
    case 0x2035...0x203D, 0x2041...0x2043: return has(.leExtendedAdvertising)
    case 0x2022...0x2024, 0x202F: return has(.leDataPacketLengthExtension)
    case 0x200F...0x2012: return configuration.filterAcceptListSize > 0
    case 0x2030...0x2032: return choosesPHYs
    case 0x2020, 0x2021: return has(.connectionParametersRequestProcedure)
    case 0x2019, 0x201B: return has(.leEncryption)
    case 0x2027...0x202E, 0x204E: return has(.llPrivacy)
    default: return Self.opcodes.contains(opcode.rawValue)
    }
  }
  /// Every opcode of `perform` and `performUnspoken`.
  private static let opcodes: [UInt16] = [
    0x0406, 0x041D, 0x0C01, 0x0C03, 0x0C6D, 0x1001, 0x1002, 0x1003, 0x1005, 0x1009, 0x1405, 0x2001, 0x2002, 0x2003,
    0x2005,
    0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2010, 0x2011, 0x2012, 0x2013,
    0x2016, 0x2019, 0x201B, 0x2020, 0x2021, 0x2022, 0x2023, 0x2024, 0x2027, 0x2028, 0x2029, 0x202A, 0x202B, 0x202C,
    0x202D, 0x202E, 0x204E, 0x202F, 0x2030, 0x2031, 0x2032, 0x2035, 0x2036, 0x2037, 0x2038, 0x2039,
    0x203A, 0x203B, 0x203C, 0x203D, 0x2041, 0x2042, 0x2043, 0x2060,
  ]
  /// Read Local Supported Commands. Vol 4, Part E, §7.4.2: exactly what is answered with something else than 0x01.
  private mutating func completeSupportedCommands(now: Instant) {
    var supported = SupportedCommands()
    for number in Self.opcodes where knows(HCIOpcode(rawValue: number)) {
      let opcode = HCIOpcode(rawValue: number)
      if let bit = AnyCommand(default: opcode)?.supportedBit ?? Self.unspokenBit(opcode) { supported[bit] = true }
    }
    var bytes = PacketBuffer(capacity: 64)
    _ = bytes.fill { output in
      supported.write(into: &output)
      return true
    }
    var result = ReadLocalSupportedCommands.Return()
    result.supportedCommands = Octets(0, 64)
    bytes.withBytes { complete(ReadLocalSupportedCommands.self, result, from: $0, now: now) }
  }

  /// Vol 4, Part E, §7.3.1 and §7.8.1. Command answers and Number Of Completed Packets do not come here: nothing masks them.
  func isEnabled(_ code: UInt8, _ subevent: UInt8?) -> Bool {
    if code == 0 || code > 64 { return true }
    guard eventMask.rawValue >> UInt64(code - 1) & 1 == 1 else { return false }
    guard let subevent else { return true }
    return leEventMask.rawValue >> UInt64(subevent - 1) & 1 == 1
  }

  /// Vol 4, Part E, §3.1.1: true when commands of this set are allowed; from now on only they are.
  mutating func uses(_ set: CommandSet) -> Bool {
    if commandSet == .undecided { commandSet = set }
    return commandSet == set
  }
}

// MARK: Controller and baseband, information

extension SetEventMask: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    controller.eventMask = eventMask
    return Return(.success)
  }
}
extension Reset: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    for connection in controller.connections { medium.errands.append(.abandon(connection.link, connection.role)) }
    controller.reset()
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
  /// Refused while it may be in use. Vol 4, Part E, §7.8.4.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    if controller.advertisers[0].isEnabled || controller.scanner.isEnabled || controller.initiator != nil {
      return Return(.commandDisallowed)
    }
    controller.randomAddress = randomAddress
    return Return(.success)
  }
}
