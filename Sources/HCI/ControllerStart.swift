import BindruneWire

/// What the host has learned about its controller. Vol 4, Part E, §7.4 and §7.8.
public struct ControllerInfo: BitwiseCopyable, Sendable {
  public var version = ReadLocalVersionInformation.Return()
  public var commands = SupportedCommands()
  public var lmpFeatures = LMPFeatures()
  public var features = LEFeatures()
  /// The public address; all zeros or all ones where the controller has none.
  public var address = DeviceAddress()
  /// Data octets of the longest ACL packet, and the number of buffers for them.
  public var aclLength = 0
  public var aclCount = 0
  /// The buffers serve BR/EDR too: the controller has none of LE's own.
  public var buffersAreShared = false
  /// The longest link layer payload the controller can send, 27 … 251 octets, and its time in µs.
  public var maximumTxOctets: UInt16 = 27
  public var maximumTxTime: UInt16 = 328
  /// The most octets of advertising data, 31 … 1,650; more than 31 only with extended PDUs.
  public var maximumAdvertisingDataLength = 31
  /// Entries of the Filter Accept List; 0 where it cannot be used.
  public var filterAcceptListSize = 0
  /// Entries of the resolving list; 0 where it cannot be used.
  public var resolvingListSize = 0
  /// How many things it advertises at once; more than one only by the extended commands. Vol 4, Part E, §7.8.58.
  public var maximumAdvertisingSets = 1
  /// The extended commands are to be used, where the controller has them: see `usesExtendedCommands`.
  public var prefersExtendedCommands = true

  public init() {}

  /// There is no public address: a random static one must be set before scanning, advertising or connecting.
  public var needsRandomAddress: Bool { address.value == 0 || address.value == 0xFFFF_FFFF_FFFF }
  /// Advertising, scanning and connecting go by the extended commands; else by the legacy ones, all three of them.
  ///
  /// Once a controller has had a command of one kind it refuses those of the other until it is reset (§3.1.1), so this is
  /// decided once, for all roles: by the extended ones where they are preferred and none is missing for anything that the
  /// controller can do by the legacy ones.
  public var usesExtendedCommands: Bool {
    guard prefersExtendedCommands, features.contains(.leExtendedAdvertising) else { return false }
    let advertises =
      commands.contains(LESetExtendedAdvertisingParameters.self) && commands.contains(LESetExtendedAdvertisingData.self)
      && commands.contains(LESetExtendedScanResponseData.self) && commands.contains(LESetExtendedAdvertisingEnable.self)
      && commands.contains(LERemoveAdvertisingSet.self)
      && (!needsRandomAddress || commands.contains(LESetAdvertisingSetRandomAddress.self))
    let scans = commands.contains(LESetExtendedScanParameters.self) && commands.contains(LESetExtendedScanEnable.self)
    let connects = commands.contains(LEExtendedCreateConnection.self)
    return (advertises || !commands.contains(LESetAdvertisingEnable.self))
      && (scans || !commands.contains(LESetScanEnable.self))
      && (connects || !commands.contains(LECreateConnection.self))
  }
  /// It speaks BR/EDR too.
  public var isDualMode: Bool { lmpFeatures.contains(.leSupported) && !lmpFeatures.contains(.brEDRNotSupported) }

  /// What the controller can send and this stack handles. A reserved bit may be refused, so features are asked first.
  ///
  /// LE Directed Advertising Report is not among them: it comes only with Scanning_Filter_Policy 2 and 3, which this
  /// stack does not use. Vol 4, Part E, §7.7.65.11.
  public var leEventMask: LEEventMask {
    var mask = LEEventMask.standard
    if features.contains(.connectionParametersRequestProcedure) { mask.insert(.remoteConnectionParameterRequest) }
    if features.contains(.leDataPacketLengthExtension) { mask.insert(.dataLengthChange) }
    if features.contains(.le2MPHY) || features.contains(.leCodedPHY) { mask.insert(.phyUpdateComplete) }
    if features.contains(.llPrivacy) { mask.insert(.enhancedConnectionComplete) }
    if features.contains(.leExtendedAdvertising) {
      mask.formUnion([.enhancedConnectionComplete, .extendedAdvertisingReport, .advertisingSetTerminated])
    }
    return mask
  }
}

/// Why a controller could not be started.
public enum StartFailure: Error, BitwiseCopyable, Sendable, Equatable, CustomStringConvertible {
  /// No answer to a command that every controller has; of HCI_Reset: there is no controller.
  case timedOut(HCIOpcode)
  /// The start as a whole took longer than `HCILayer.Configuration.startTimeout`, and was still at this command: the
  /// controller is slow, or leaves many commands without an answer.
  case tookTooLong(HCIOpcode)
  case refused(HCIOpcode, HCIStatus)
  /// The answer was too short or too long.
  case malformed(HCIOpcode)
  /// It has no ACL buffers, neither for LE nor shared ones.
  case noBuffers

  public var description: String {
    switch self {
    case .timedOut(let opcode): "the controller does not answer \(name(opcode))"
    case .tookTooLong(let opcode): "the controller takes too long and is still at \(name(opcode))"
    case .refused(let opcode, let status): "the controller refuses \(name(opcode)): \(status)"
    case .malformed(let opcode): "the controller's answer to \(name(opcode)) is malformed"
    case .noBuffers: "the controller has no buffers for ACL data"
    }
  }
  private func name(_ opcode: HCIOpcode) -> String { AnyCommand(default: opcode).map { "\($0.name)" } ?? opcode.text }
}

/// From an unknown controller to one that is ready. Vol 6, Part D, §2.1.
///
/// # Phases
/// One command after another, in the order of `Step`. Those the controller does not have are left out, and one that it
/// has but does not answer or refuses counts as not there; only the first three must succeed, and there must be buffers.
struct ControllerStart {
  enum Step: UInt8 {
    case reset, version, commands, features, leFeatures, address, hostSupport, eventMask, leEventMask, leBuffers,
      buffers, dataLength, acceptListSize, resolvingListSize, advertisingDataLength, advertisingSets, done
  }
  private(set) var step = Step.reset
  private(set) var info = ControllerInfo()

  init(prefersExtendedCommands: Bool) { info.prefersExtendedCommands = prefersExtendedCommands }

  /// Queues the command of this step.
  func send(into queue: inout CommandQueue, now: Instant) {
    switch step {
    case .reset: queue.append(Reset(), now: now)
    case .version: queue.append(ReadLocalVersionInformation(), now: now)
    case .commands: queue.append(ReadLocalSupportedCommands(), now: now)
    case .features: queue.append(ReadLocalSupportedFeatures(), now: now)
    case .leFeatures: queue.append(LEReadLocalSupportedFeatures(), now: now)
    case .address: queue.append(ReadBDADDR(), now: now)
    case .hostSupport:
      var command = WriteLEHostSupport()
      command.leSupportedHost = true
      queue.append(command, now: now)
    case .eventMask: queue.append(SetEventMask(), now: now)
    case .leEventMask:
      var command = LESetEventMask()
      command.leEventMask = info.leEventMask
      queue.append(command, now: now)
    case .leBuffers: queue.append(LEReadBufferSize(), now: now)
    case .buffers: queue.append(ReadBufferSize(), now: now)
    case .dataLength: queue.append(LEReadMaximumDataLength(), now: now)
    case .acceptListSize: queue.append(LEReadFilterAcceptListSize(), now: now)
    case .resolvingListSize: queue.append(LEReadResolvingListSize(), now: now)
    case .advertisingDataLength: queue.append(LEReadMaximumAdvertisingDataLength(), now: now)
    case .advertisingSets: queue.append(LEReadNumberOfSupportedAdvertisingSets(), now: now)
    case .done: break
    }
  }

  /// Takes what became of this step's command and goes on to the next step there is.
  mutating func advance(_ outcome: CommandOutcome, in packet: Span<UInt8>) throws(StartFailure) {
    let isRequired = step.rawValue <= Step.commands.rawValue
    if outcome.ending == .answered, outcome.status == .success {
      do throws(WireError) {
        try learn(outcome.returnParameters, in: packet)
      } catch {
        if isRequired { throw .malformed(outcome.opcode) }
      }
    } else if isRequired {
      throw outcome.ending == .answered ? .refused(outcome.opcode, outcome.status) : .timedOut(outcome.opcode)
    }
    repeat { step = Step(rawValue: step.rawValue + 1) ?? .done } while !isNeeded
    if step == .done, info.aclCount == 0 { throw .noBuffers }
  }

  private mutating func learn(_ parameters: Octets, in packet: Span<UInt8>) throws(WireError) {
    switch step {
    case .version: info.version = try ReadLocalVersionInformation.decodeReturn(parameters, in: packet)
    case .commands:
      let answer = try ReadLocalSupportedCommands.decodeReturn(parameters, in: packet)
      info.commands = SupportedCommands(answer.supportedCommands, in: packet)
    case .features:
      info.lmpFeatures = try ReadLocalSupportedFeatures.decodeReturn(parameters, in: packet).lmpFeatures
    case .leFeatures:
      info.features = try LEReadLocalSupportedFeatures.decodeReturn(parameters, in: packet).leFeatures
    case .address: info.address = try ReadBDADDR.decodeReturn(parameters, in: packet).bdADDR
    case .leBuffers:
      let answer = try LEReadBufferSize.decodeReturn(parameters, in: packet)
      guard answer.leACLDataPacketLength > 0, answer.totalNumLEACLDataPackets > 0 else { return }
      info.aclLength = Int(answer.leACLDataPacketLength)
      info.aclCount = Int(answer.totalNumLEACLDataPackets)
    case .buffers:
      let answer = try ReadBufferSize.decodeReturn(parameters, in: packet)
      guard answer.aclDataPacketLength > 0, answer.totalNumACLDataPackets > 0 else { return }
      info.aclLength = Int(answer.aclDataPacketLength)
      info.aclCount = Int(answer.totalNumACLDataPackets)
      info.buffersAreShared = true
    case .dataLength:
      let answer = try LEReadMaximumDataLength.decodeReturn(parameters, in: packet)
      info.maximumTxOctets = max(27, answer.supportedMaxTXOctets)
      info.maximumTxTime = max(328, answer.supportedMaxTXTime)
    case .acceptListSize:
      info.filterAcceptListSize = Int(
        try LEReadFilterAcceptListSize.decodeReturn(parameters, in: packet).filterAcceptListSize)
    case .resolvingListSize:
      info.resolvingListSize = Int(try LEReadResolvingListSize.decodeReturn(parameters, in: packet).resolvingListSize)
    case .advertisingDataLength:
      let answer = try LEReadMaximumAdvertisingDataLength.decodeReturn(parameters, in: packet)
      info.maximumAdvertisingDataLength = min(max(31, Int(answer.maxAdvertisingDataLength)), 1650)
    case .advertisingSets:
      let answer = try LEReadNumberOfSupportedAdvertisingSets.decodeReturn(parameters, in: packet)
      info.maximumAdvertisingSets = max(1, Int(answer.numSupportedAdvertisingSets))
    case .reset, .hostSupport, .eventMask, .leEventMask, .done: break
    }
  }

  /// The controller has the command of this step, and it tells something.
  private var isNeeded: Bool {
    switch step {
    case .reset, .version, .commands, .done: true
    case .features: info.commands.contains(ReadLocalSupportedFeatures.self)
    case .leFeatures: info.commands.contains(LEReadLocalSupportedFeatures.self)
    case .address: info.commands.contains(ReadBDADDR.self)
    case .hostSupport: info.isDualMode && info.commands.contains(WriteLEHostSupport.self)
    case .eventMask: info.commands.contains(SetEventMask.self)
    case .leEventMask: info.commands.contains(LESetEventMask.self)
    case .leBuffers: info.commands.contains(LEReadBufferSize.self)
    case .buffers: info.aclCount == 0 && info.commands.contains(ReadBufferSize.self)
    case .dataLength: info.commands.contains(LEReadMaximumDataLength.self)
    case .acceptListSize:
      info.commands.contains(LEReadFilterAcceptListSize.self)
        && info.commands.contains(LEAddDeviceToFilterAcceptList.self)
        && info.commands.contains(LERemoveDeviceFromFilterAcceptList.self)
    case .resolvingListSize:
      info.features.contains(.llPrivacy) && info.commands.contains(LEReadResolvingListSize.self)
        && info.commands.contains(LEAddDeviceToResolvingList.self)
        && info.commands.contains(LERemoveDeviceFromResolvingList.self)
        && info.commands.contains(LESetAddressResolutionEnable.self)
    // Extended commands like the others: a host that goes by the legacy ones must not send them.
    case .advertisingDataLength:
      info.usesExtendedCommands && info.commands.contains(LEReadMaximumAdvertisingDataLength.self)
    case .advertisingSets:
      info.usesExtendedCommands && info.commands.contains(LEReadNumberOfSupportedAdvertisingSets.self)
    }
  }
}

extension CommandQueue {
  /// A command without ranges always fits its packet.
  mutating func append<C: HCICommand>(_ command: C, tag: UInt32 = 0, now: Instant) {
    do throws(WireError) {
      try append(command, from: Span(), tag: tag, now: now)
    } catch {
      preconditionFailure("the command has ranges: pass their source")
    }
  }
}
