import BindruneToolbox
import BindruneWire
import HCI

/// A command that the simulated controller supports.
protocol Executable: HCICommand {
  /// Executes the command, and returns its return parameters. If the answer is a Command Status, only the status
  /// counts. What must follow the answer goes into `medium.errands`.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return
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
    guard knows(opcode) else { return complete(opcode, .unknownHCICommand, now: medium.now) }
    perform(try AnyCommand(packet), packet, &medium)
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
    case .readTransmitPowerLevel(let command): run(command, packet, &medium)
    case .setControllerToHostFlowControl(let command): run(command, packet, &medium)
    case .hostBufferSize(let command): run(command, packet, &medium)
    case .setEventMaskPage2(let command): run(command, packet, &medium)
    case .hostNumberOfCompletedPackets(let command): perform(command, packet, &medium)
    case .writeLEHostSupport(let command): run(command, packet, &medium)
    case .readAuthenticatedPayloadTimeout(let command): run(command, packet, &medium)
    case .writeAuthenticatedPayloadTimeout(let command): run(command, packet, &medium)
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
    case .leLongTermKeyRequestReply(let command): run(command, packet, &medium)
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
    case .leSetHostChannelClassification(let command): run(command, packet, &medium)
    case .leReadChannelMap(let command): run(command, packet, &medium)
    case .leEncrypt(let command): completeEncryption(command, packet, now: medium.now)
    case .leRand(let command): run(command, packet, &medium)
    case .leEnableEncryption(let command): run(command, packet, &medium)
    case .leReadSupportedStates(let command): run(command, packet, &medium)
    case .leReceiverTest(let command): run(command, packet, &medium)
    case .leReceiverTestV2(let command): run(command, packet, &medium)
    case .leTransmitterTest(let command): run(command, packet, &medium)
    case .leTransmitterTestV2(let command): run(command, packet, &medium)
    case .leTestEnd(let command): run(command, packet, &medium)
    case .leReadRFPathCompensation(let command): run(command, packet, &medium)
    case .leWriteRFPathCompensation(let command): run(command, packet, &medium)
    case .unknown(let opcode, _): complete(opcode, .unknownHCICommand, now: medium.now)
    }
  }

  /// Whether this controller, as configured, has the command. Vol 4, Part E, §3.1 lists which feature implies which
  /// command.
  func knows(_ opcode: HCIOpcode) -> Bool {
    if configuration.unknownCommands.contains(opcode) { return false }
    switch opcode.rawValue {
    case 0x0C7B, 0x0C7C: return has(.lePing)
    case 0x0C6D, 0x1005: return configuration.isDualMode || configuration.sharesBuffers
    case 0x2060: return configuration.version.rawValue >= 0x0B
    case 0x2035...0x203D, 0x2041...0x2043, 0x204C, 0x204D: return has(.leExtendedAdvertising)
    case 0x2022...0x2024, 0x202F: return has(.leDataPacketLengthExtension)
    case 0x200F...0x2012: return configuration.filterAcceptListSize > 0
    case 0x2030...0x2034: return choosesPHYs
    case 0x2020, 0x2021: return has(.connectionParametersRequestProcedure)
    case 0x2017...0x201B: return has(.leEncryption)
    case 0x2027...0x202E, 0x204E: return has(.llPrivacy)
    default: return AnyCommand(default: opcode) != nil
    }
  }
  /// Read Local Supported Commands. Vol 4, Part E, §7.4.2: exactly the commands that are not answered with 0x01.
  private mutating func completeSupportedCommands(now: Instant) {
    var supported = SupportedCommands()
    for group: UInt16 in [0x0400, 0x0C00, 0x1000, 0x1400, 0x2000] {
      for command in 0..<0x80 as Range<UInt16> {
        let opcode = HCIOpcode(rawValue: group | command)
        if knows(opcode), let bit = AnyCommand(default: opcode)?.supportedBit { supported[bit] = true }
      }
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

  /// LE Encrypt. Vol 4, Part E, §7.8.22: least significant octet first on the wire, the most significant one first in the cipher.
  private mutating func completeEncryption(_ command: LEEncrypt, _ packet: Span<UInt8>, now: Instant) {
    let block = AES128(key: number(command.key.octets, in: packet)).encrypt(number(command.plaintextData, in: packet))
    let bytes = (0..<16).map { UInt8(truncatingIfNeeded: block >> (8 * $0)) }
    var result = LEEncrypt.Return(.success)
    result.encryptedData = Octets(0, 16)
    complete(LEEncrypt.self, result, from: bytes.span, now: now)
  }

  /// Vol 4, Part E, §7.3.1, §7.3.69 and §7.8.1. Command answers and Number Of Completed Packets bypass this: they cannot be
  /// masked.
  func isEnabled(_ code: UInt8, _ subevent: UInt8?) -> Bool {
    if code == AuthenticatedPayloadTimeoutExpired.code {
      return eventMaskPage2.contains(.authenticatedPayloadTimeoutExpired)
    }
    // An event since Core 5.3.
    if code == EncryptionChangeV2.code {
      return eventMaskPage2.contains(.encryptionChangeV2) && configuration.version.rawValue >= 0x0C
    }
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
/// 128 bits, least significant octet first.
func number(_ octets: Octets, in packet: Span<UInt8>) -> UInt128 {
  (0..<16).reversed().reduce(0) { $0 << 8 | UInt128(octets.byte($1, in: packet)) }
}
