import BindruneWire

/// What the host knows about its controller. Vol 4, Part E, §7.4 and §7.8.
public struct ControllerInfo: BitwiseCopyable, Sendable {
  public var version = ReadLocalVersionInformation.Return()
  public var commands = SupportedCommands()
  public var lmpFeatures = LMPFeatures()
  public var features = LEFeatures()
  /// The public address; all zeros or all ones if the controller has none.
  public var address = DeviceAddress()
  /// Data octets of the longest ACL packet, and the number of buffers for them.
  public var aclLength = 0
  public var aclCount = 0
  /// Whether the buffers also serve BR/EDR: the controller has none for LE alone.
  public var buffersAreShared = false
  /// The longest link layer payload that the controller can send, 27 … 251 octets, and its duration in µs.
  public var maximumTxOctets: UInt16 = 27
  public var maximumTxTime: UInt16 = 328
  /// The limit of advertising data in octets, 31 … 1,650; more than 31 only with extended PDUs.
  public var maximumAdvertisingDataLength = 31
  /// Entries of the Filter Accept List; 0 if it cannot be used.
  public var filterAcceptListSize = 0
  /// Entries of the resolving list; 0 if it cannot be used.
  public var resolvingListSize = 0
  /// The number of advertising sets; more than one only with the extended commands. Vol 4, Part E, §7.8.58.
  public var maximumAdvertisingSets = 1
  /// Whether to use the extended commands if the controller has them: see `usesExtendedCommands`.
  public var prefersExtendedCommands = true

  public init() {}

  /// There is no public address: a random static one must be set before scanning, advertising or connecting.
  public var needsRandomAddress: Bool { !address.isValidPublic }
  /// Whether advertising, scanning and connecting use the extended commands; else all three use the legacy ones.
  ///
  /// After a command of one kind a controller refuses those of the other until it is reset (§3.1.1), so this is decided
  /// once, for all roles: for the extended ones if they are preferred and complete for everything that the controller
  /// supports with the legacy ones.
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
  /// It also supports BR/EDR.
  public var isDualMode: Bool { lmpFeatures.contains(.leSupported) && !lmpFeatures.contains(.brEDRNotSupported) }

  /// The later events that the controller can send and this stack handles; empty: it needs no mask.
  public var eventMaskPage2: EventMaskPage2 { UsedEvents(features, version.hciVersion).page2 }
  /// The LE Meta events that the controller can send and this stack handles. It may refuse a reserved bit, so the mask
  /// has only those of its features, and the ones of a controller without any.
  public var leEventMask: LEEventMask { UsedEvents(features, version.hciVersion).le.union(.standard) }
}

/// Why a controller could not be started.
public enum StartFailure: Error, BitwiseCopyable, Sendable, Equatable, CustomStringConvertible {
  /// No answer to a mandatory command; of HCI_Reset: there is no controller.
  case timedOut(HCIOpcode)
  /// The start exceeded `HCILayer.Configuration.startTimeout` during this command: the controller is slow, or leaves
  /// many commands without an answer.
  case tookTooLong(HCIOpcode)
  case refused(HCIOpcode, HCIStatus)
  /// The answer was too short or too long.
  case malformed(HCIOpcode)
  /// The controller has no ACL buffers, neither for LE nor shared ones.
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

/// Starts an unknown controller. Vol 6, Part D, §2.1.
///
/// # Phases
/// One command after another, in the order of `Step`. Commands that the controller lacks are skipped, and one that it
/// refuses or does not answer counts as lacking; only the first three must succeed, and there must be buffers.
struct ControllerStart {
  enum Step: UInt8 {
    case reset, version, commands, features, leFeatures, address, hostSupport, eventMask, eventMaskPage2,
      leEventMask, leBuffers, buffers, dataLength, acceptListSize, resolvingListSize, advertisingDataLength,
      advertisingSets, done
  }
  private(set) var step = Step.reset
  private(set) var info = ControllerInfo()

  init(prefersExtendedCommands: Bool) { info.prefersExtendedCommands = prefersExtendedCommands }

  /// Queues the first command.
  mutating func begin(into queue: inout CommandQueue, now: Instant) { perform(.send(now), &queue) }

  /// Takes the result of this step's command, continues to the next necessary step, and queues its command.
  mutating func advance(
    _ outcome: CommandOutcome, in packet: Span<UInt8>, into queue: inout CommandQueue, now: Instant
  ) throws(StartFailure) {
    if outcome.ending == .answered, outcome.status == .success {
      do throws(WireError) {
        _ = try table(.learn(outcome.returnParameters), &queue, packet)
      } catch {
        if isRequired { throw .malformed(outcome.opcode) }
      }
    } else if isRequired {
      throw outcome.ending == .answered ? .refused(outcome.opcode, outcome.status) : .timedOut(outcome.opcode)
    }
    repeat { step = Step(rawValue: step.rawValue + 1) ?? .done } while !perform(.check, &queue)
    if step == .done, info.aclCount == 0 { throw .noBuffers }
    perform(.send(now), &queue)
  }
  private var isRequired: Bool { step.rawValue <= Step.commands.rawValue }

  /// What to do with the step's command.
  private enum Work {
    /// Only check whether it is needed.
    case check
    case send(Instant)
    /// Learn from these return parameters.
    case learn(Octets)
  }
  @discardableResult private mutating func perform(_ work: Work, _ queue: inout CommandQueue) -> Bool {
    do throws(WireError) { return try table(work, &queue, Span()) } catch {
      preconditionFailure("only an answer can be malformed")
    }
  }

  /// The table of steps: the command of each, the condition under which it is useful, and what its answer provides.
  /// True if the controller has the command, and it is useful.
  private mutating func table(
    _ work: Work, _ queue: inout CommandQueue, _ packet: Span<UInt8>
  ) throws(WireError) -> Bool {
    switch step {
    case .reset: return row(Reset(), work, &queue)
    case .version:
      return try row(ReadLocalVersionInformation(), work, &queue, packet) { info, answer in info.version = answer }
    case .commands:
      return try row(ReadLocalSupportedCommands(), work, &queue, packet) { info, answer in
        info.commands = SupportedCommands(answer.supportedCommands, in: packet)
      }
    case .features:
      return try row(ReadLocalSupportedFeatures(), work, &queue, packet) { $0.lmpFeatures = $1.lmpFeatures }
    case .leFeatures:
      return try row(LEReadLocalSupportedFeatures(), work, &queue, packet) { $0.features = $1.leFeatures }
    case .address: return try row(ReadBDADDR(), work, &queue, packet) { $0.address = $1.bdADDR }
    case .hostSupport:
      let command = WriteLEHostSupport.with { $0.leSupportedHost = true }
      return row(command, work, &queue, if: info.isDualMode)
    case .eventMask: return row(SetEventMask(), work, &queue)
    case .eventMaskPage2:
      let command = SetEventMaskPage2.with { $0.eventMaskPage2 = info.eventMaskPage2 }
      return row(command, work, &queue, if: !info.eventMaskPage2.isEmpty)
    case .leEventMask:
      let command = LESetEventMask.with { $0.leEventMask = info.leEventMask }
      return row(command, work, &queue)
    case .leBuffers:
      return try row(LEReadBufferSize(), work, &queue, packet) { info, answer in
        guard answer.leACLDataPacketLength > 0, answer.totalNumLEACLDataPackets > 0 else { return }
        info.aclLength = Int(answer.leACLDataPacketLength)
        info.aclCount = Int(answer.totalNumLEACLDataPackets)
      }
    case .buffers:
      return try row(ReadBufferSize(), work, &queue, packet, if: info.aclCount == 0) { info, answer in
        guard answer.aclDataPacketLength > 0, answer.totalNumACLDataPackets > 0 else { return }
        info.aclLength = Int(answer.aclDataPacketLength)
        info.aclCount = Int(answer.totalNumACLDataPackets)
        info.buffersAreShared = true
      }
    case .dataLength:
      return try row(LEReadMaximumDataLength(), work, &queue, packet) { info, answer in
        info.maximumTxOctets = max(27, answer.supportedMaxTXOctets)
        info.maximumTxTime = max(328, answer.supportedMaxTXTime)
      }
    case .acceptListSize:
      let isUseful =
        info.commands.contains(LEAddDeviceToFilterAcceptList.self)
        && info.commands.contains(LERemoveDeviceFromFilterAcceptList.self)
      return try row(LEReadFilterAcceptListSize(), work, &queue, packet, if: isUseful) {
        $0.filterAcceptListSize = Int($1.filterAcceptListSize)
      }
    case .resolvingListSize:
      let isUseful =
        info.features.contains(.llPrivacy) && info.commands.contains(LEAddDeviceToResolvingList.self)
        && info.commands.contains(LERemoveDeviceFromResolvingList.self)
        && info.commands.contains(LESetAddressResolutionEnable.self)
      return try row(LEReadResolvingListSize(), work, &queue, packet, if: isUseful) {
        $0.resolvingListSize = Int($1.resolvingListSize)
      }
    // These count as extended commands: a host that uses the legacy ones must not send them.
    case .advertisingDataLength:
      return try row(LEReadMaximumAdvertisingDataLength(), work, &queue, packet, if: info.usesExtendedCommands) {
        $0.maximumAdvertisingDataLength = min(max(31, Int($1.maxAdvertisingDataLength)), 1650)
      }
    case .advertisingSets:
      return try row(LEReadNumberOfSupportedAdvertisingSets(), work, &queue, packet, if: info.usesExtendedCommands) {
        $0.maximumAdvertisingSets = max(1, Int($1.numSupportedAdvertisingSets))
      }
    case .done: return true
    }
  }

  /// A step whose answer provides information.
  private mutating func row<C: HCICommand>(
    _ command: C, _ work: Work, _ queue: inout CommandQueue, _ packet: Span<UInt8>, if isUseful: Bool = true,
    _ learn: (inout ControllerInfo, C.Return) -> Void
  ) throws(WireError) -> Bool {
    if case .learn(let parameters) = work { learn(&info, try C.decodeReturn(parameters, in: packet)) }
    return row(command, work, &queue, if: isUseful)
  }
  /// A step that needs only the status.
  private func row<C: HCICommand>(
    _ command: C, _ work: Work, _ queue: inout CommandQueue, if isUseful: Bool = true
  ) -> Bool {
    if case .send(let now) = work { queue.append(command, now: now) }
    return isRequired || isUseful && info.commands.contains(C.self)
  }
}

extension CommandQueue {
  /// A command without ranges always fits its packet.
  mutating func append<C: HCICommand>(_ command: C, tag: UInt32 = 0, now: Instant) {
    do throws(WireError) {
      try append(command, from: Span(), tag: tag, now: now)
    } catch {
      preconditionFailure("\(C.name) is incomplete, or has ranges whose source is to be passed: \(error)")
    }
  }
}
