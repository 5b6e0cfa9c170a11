import BindruneCapture
import BindruneWire
import BindruneHCI

// The controller's events: their form, the commands that they answer, and the connections that they are about.

extension HCIStatus {
  /// Ends a connection whose peer may have been silent since the supervision timeout began.
  fileprivate var showsThatPeerVanished: Bool {
    switch self {
    case .connectionTimeout, .lmpOrLLResponseTimeout, .connectionTerminatedMICFailure, .connectionFailedToBeEstablished:
      true
    default: false
    }
  }
}

extension CheckAdapter {
  mutating func event(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    guard bytes.count >= Self.eventHeader else {
      lose(bytes.count > 1 ? bytes[1] : CommandComplete.code, nil)
      if record.isCut { return }
      return report.judge(
        .eventLength, false, by: .controller, seen: "\(bytes.count) octets", allowed: "a header of \(Self.eventHeader)")
    }
    let stated = Int(bytes[2]), actual = record.originalCount - Self.eventHeader
    report.judge(
      .eventLength, stated == actual, by: .controller, seen: "Parameter_Total_Length \(stated) with \(actual) octets",
      allowed: "\(actual)")
    let subevent = bytes.count > Self.eventHeader ? bytes[Self.eventHeader] : nil
    report.subject = .event(bytes[1], bytes[1] == LEConnectionComplete.code ? subevent : nil)
    guard stated == actual, !record.isCut else { return lose(bytes[1], subevent) }
    mask(bytes, &report)
    let event: HCIEvent
    do throws(WireError) { event = try HCIEvent(bytes) } catch {
      lose(bytes[1], subevent)
      return report.judge(
        .eventParameters, false, by: .controller, seen: "event \(code(bytes[1])): \(error)",
        allowed: "the parameters of its definition")
    }
    report.judge(.eventParameters, true, by: .controller, seen: "", allowed: "")
    receive(event, bytes, &report)
  }

  /// Packet type, code and Parameter_Total_Length. Vol 4, Part E, §5.4.4.
  private static var eventHeader: Int { 3 }

  /// Bits of the masks: the bit of an event is its code less one. Vol 4, Part E, §7.3.1 and §7.8.1.
  private func mask(_ bytes: Span<UInt8>, _ report: inout CheckReport) {
    let event = bytes[1]
    switch event {
    // These three cannot be disabled.
    case CommandComplete.code, CommandStatus.code, NumberOfCompletedPackets.code: break
    case 0x01...0x40:
      guard let eventMask, isSettled(SetEventMask.opcode) else { break }
      report.judge(
        .eventMask, eventMask >> UInt64(event - 1) & 1 == 1, by: .controller, seen: "event \(code(event))",
        allowed: "the events of Event_Mask 0x\(hexDigits(eventMask, 16))")
    default: break
    }
    guard event == LEConnectionComplete.code, bytes.count > 3, (1...64).contains(bytes[3]), let eventMaskLE,
      isSettled(LESetEventMask.opcode)
    else { return }
    report.judge(
      .eventMaskLE, eventMaskLE >> UInt64(bytes[3] - 1) & 1 == 1, by: .controller, seen: "LE event \(code(bytes[3]))",
      allowed: "the events of LE_Event_Mask 0x\(hexDigits(eventMaskLE, 16))")
  }

  private mutating func receive(_ event: HCIEvent, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    switch event {
    case .commandComplete(let event): complete(event, bytes, &report)
    case .commandStatus(let event): status(event, &report)
    case .numberOfCompletedPackets(let event):
      var cursor = event.handles.cursor
      while let entry = cursor.next(in: bytes) {
        completed(entry.connectionHandle.rawValue, Int(entry.numCompletedPackets), &report)
      }
    case .disconnectionComplete(let event):
      guard event.status == .success else { return }
      // A host's own stack may log the end of a connection again.
      guard !closed.contains(event.connectionHandle.rawValue) else { return }
      if let place = known(event.connectionHandle, &report) {
        if event.reason.showsThatPeerVanished {
          links[place].timePasses(&report)
        } else {
          links[place].isAlive(&report)
        }
      }
      close(event.connectionHandle.rawValue, &report)
    case .encryptionChange(let event):
      encryption(event.status, event.connectionHandle, isOn: event.encryptionEnabled != 0, &report)
    case .encryptionChangeV2(let event):
      let isOn = event.encryptionEnabled != 0
      encryption(event.status, event.connectionHandle, isOn: isOn, &report)
      if event.status == .success, isOn {
        keySize(Int(event.encryptionKeySize), event.connectionHandle, &report)
      }
    case .encryptionKeyRefreshComplete(let event):
      encryption(event.status, event.connectionHandle, isOn: true, &report)
    case .leConnectionComplete, .leEnhancedConnectionComplete, .unknownLE(0x29, _):
      if let new = ReportedConnection(event, bytes) { connection(new, &report) }
    case .leConnectionUpdateComplete(let event):
      guard event.status == .success else { return }
      if let place = known(event.connectionHandle, &report) {
        links[place].supervisionTimeout = Int64(event.supervisionTimeout.rawValue) * 10_000_000
      }
      parameters(event.connectionInterval, event.peripheralLatency, event.supervisionTimeout, &report)
    case .leLongTermKeyRequest(let event): keyRequest(event, &report)
    case .leAdvertisingReport(let event):
      reports(&report)
      var cursor = event.reports.cursor
      while let entry = cursor.next(in: bytes) {
        advertised(
          entry.data, isScanResponse: entry.eventType == .scanResponse, entry.address, entry.addressType, bytes, &report
        )
      }
    case .leExtendedAdvertisingReport(let event):
      reports(&report)
      var cursor = event.reports.cursor
      while let entry = cursor.next(in: bytes) {
        let device = entry.address.value | UInt64(entry.addressType.rawValue) << 48 | UInt64(entry.advertisingSID) << 56
        guard isWhole(device, entry.dataStatus) else { continue }
        advertised(entry.data, isScanResponse: entry.scanResponse, entry.address, entry.addressType, bytes, &report)
      }
    case .leDirectedAdvertisingReport: reports(&report)
    case .leScanTimeout: isScanning = false
    case .leAdvertisingSetTerminated(let event): sets[event.advertisingHandle.number] = false
    case .unknown(let event, _): unknown(event, bytes, &report)
    case .unknownLE(let event, _): unknownLE(event, bytes, &report)
    default:
      guard let handle = event.connectionHandle, succeeds(event) else { return }
      known(handle, &report)
    }
  }
  /// An event that reports a failure may be about a connection that has just ended.
  private func succeeds(_ event: HCIEvent) -> Bool {
    switch event {
    case .readRemoteVersionInformationComplete(let event): event.status == .success
    case .leReadRemoteFeaturesComplete(let event): event.status == .success
    case .leReadAllRemoteFeaturesComplete(let event): event.status == .success
    case .lePHYUpdateComplete(let event): event.status == .success
    default: true
    }
  }
  @discardableResult private mutating func known(_ handle: ConnectionHandle, _ report: inout CheckReport) -> Int? {
    report.connection = handle.rawValue
    guard let place = link(handle.rawValue, by: .controller, .eventConnection, &report) else { return nil }
    links[place].isConfirmed = true
    report.of(links[place])
    return place
  }

  /// Events of BR/EDR and of isochronous channels open handles that are not LE-U's. The host does not have them, so
  /// they have no declarations: their codes and offsets stand here.
  private mutating func unknown(_ event: UInt8, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    switch event {
    // Connection Complete and Synchronous Connection Complete: status, handle.
    case 0x03, 0x2C: if bytes.count >= 6, bytes[3] == 0 { openOther(bytes.little16(4)) }
    default: break
    }
  }
  private mutating func unknownLE(_ event: UInt8, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    switch event {
    // LE CIS Established: status, handle.
    case 0x19, 0x2A: if bytes.count >= 7, bytes[4] == 0 { openOther(bytes.little16(5)) }
    // LE Create BIG Complete and LE BIG Sync Established have lists of handles.
    case 0x1B, 0x1D: hasStreams = true
    default: break
    }
  }
  private mutating func openOther(_ handle: UInt16) {
    open(CheckLink(handle & 0x0FFF, .classic, isFromStart: isFromStart))
  }

  // MARK: Answers

  private mutating func complete(_ event: CommandComplete, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    commandCredits = Int(event.numHCICommandPackets)
    let opcode = event.commandOpcode, parameters = event.returnParameters
    guard opcode != .none, !parameters.isEmpty else { return }
    let isSuccess = HCIStatus(rawValue: parameters.byte(0, in: bytes)) == .success
    report.subject = .command(opcode)
    let command = answered(opcode, &report)
    if command != nil { support(opcode, isSuccess, &report) }
    kind(opcode, isSuccess, byStatus: false, &report)
    guard isSuccess else { return }
    returned(opcode, parameters, bytes, &report)
    switch opcode {
    case Reset.opcode: reset(&report)
    case ReadLocalSupportedCommands.opcode:
      guard let answer = try? ReadLocalSupportedCommands.decodeReturn(parameters, in: bytes) else { break }
      supported = SupportedCommands(answer.supportedCommands, in: bytes)
    case ReadBufferSize.opcode:
      guard let size = try? ReadBufferSize.decodeReturn(parameters, in: bytes) else { break }
      bufferSize(Int(size.aclDataPacketLength), Int(size.totalNumACLDataPackets), isLE: false)
    case LEReadBufferSize.opcode:
      guard let size = try? LEReadBufferSize.decodeReturn(parameters, in: bytes) else { break }
      bufferSize(Int(size.leACLDataPacketLength), Int(size.totalNumLEACLDataPackets), isLE: true)
    case LEReadBufferSizeV2.opcode:
      guard let size = try? LEReadBufferSizeV2.decodeReturn(parameters, in: bytes) else { break }
      bufferSize(Int(size.leACLDataPacketLength), Int(size.totalNumLEACLDataPackets), isLE: true)
    default: if let command { succeeded(opcode, command.argument) }
    }
  }
  private mutating func status(_ event: CommandStatus, _ report: inout CheckReport) {
    commandCredits = Int(event.numHCICommandPackets)
    let opcode = event.commandOpcode
    guard opcode != .none else { return }
    report.subject = .command(opcode)
    if answered(opcode, &report) != nil { support(opcode, event.status == .success, &report) }
    guard event.status == .success else { return }
    kind(opcode, true, byStatus: true, &report)
    if opcode == LECreateConnection.opcode || opcode == LEExtendedCreateConnection.opcode {
      isInitiating = true
      hasInitiated = true
    }
  }

  private mutating func answered(_ opcode: HCIOpcode, _ report: inout CheckReport) -> PendingCommand? {
    guard let place = pending.firstIndex(where: { $0.opcode == opcode }) else {
      // It answers only a command with an error: Vol 4, Part E, §7.3.40.
      if opcode == HostNumberOfCompletedPackets.opcode { return nil }
      // The command may be older than the trace.
      if !mayHavePending, pending.count < Self.mostPending {
        report.judge(
          .replyMatches, false, by: .controller, seen: Self.name(opcode),
          allowed: pending.isEmpty ? "none" : pending.map { Self.name($0.opcode) }.joined(separator: ", "))
      }
      return nil
    }
    report.judge(.replyMatches, true, by: .controller, seen: "", allowed: "")
    return pending.remove(at: place)
  }
  /// The answer shows who is wrong about a command whose bit is 0.
  private mutating func support(_ opcode: HCIOpcode, _ isSuccess: Bool, _ report: inout CheckReport) {
    guard let commands = supported, let bit = AnyCommand(default: opcode)?.supportedBit else { return }
    report.judge(
      .commandSupported, commands[bit], by: isSuccess ? .controller : .host,
      seen: "\(Self.name(opcode))\(isSuccess ? " succeeds" : ""), whose bit of Supported_Commands is 0",
      allowed: isSuccess ? "the bit 1, or a failure" : "commands whose bit is 1")
    // The controller's list is wrong: it says nothing of other commands, either.
    if isSuccess, !commands[bit] { supported = nil }
  }
  /// A failure may come as either event.
  private func kind(_ opcode: HCIOpcode, _ isSuccess: Bool, byStatus: Bool, _ report: inout CheckReport) {
    guard isSuccess, let command = AnyCommand(default: opcode) else { return }
    report.judge(
      .replyKind, command.isAnsweredByStatus == byStatus, by: .controller,
      seen: "\(command.name) by Command \(byStatus ? "Status" : "Complete")",
      allowed: "Command \(byStatus ? "Complete" : "Status")")
  }
  private mutating func returned(
    _ opcode: HCIOpcode, _ parameters: Octets, _ bytes: Span<UInt8>, _ report: inout CheckReport
  ) {
    guard AnyCommand(default: opcode) != nil else { return }
    let count = Int(parameters.count)
    var problem: String?
    if returnLengths[opcode] != count {
      problem = Explanation(of: bytes.array, as: .hci).rows.first { $0.kind == .problem }?.text
      // A clause, not a sentence.
      if problem?.last == "." { problem?.removeLast() }
      if problem == nil { returnLengths[opcode] = count }
    }
    report.judge(
      .returnParameters, problem == nil, by: .controller, seen: "\(Self.name(opcode)): \(problem ?? "")",
      allowed: "the return parameters of its definition")
  }

  private mutating func succeeded(_ opcode: HCIOpcode, _ argument: UInt64?) {
    // What a malformed command has changed is not known.
    guard let argument else {
      switch opcode {
      case SetEventMask.opcode: eventMask = nil
      case LESetEventMask.opcode: eventMaskLE = nil
      case LESetAdvertisingEnable.opcode: (isAdvertising, hasAdvertised) = (nil, true)
      case LESetScanEnable.opcode, LESetExtendedScanEnable.opcode: isScanning = nil
      case LESetAddressResolutionEnable.opcode: resolvesAddresses = nil
      case LESetExtendedAdvertisingEnable.opcode: (knowsSets, isAdvertising, hasAdvertised) = (false, nil, true)
      case LESetExtendedAdvertisingParameters.opcode, LERemoveAdvertisingSet.opcode: knowsSets = false
      default: break
      }
      return
    }
    let isOn = argument & 0xFF != 0
    switch opcode {
    case SetEventMask.opcode: eventMask = argument
    case LESetEventMask.opcode: eventMaskLE = argument
    case LESetAdvertisingEnable.opcode:
      isAdvertising = isOn
      if isOn { hasAdvertised = true }
    case LESetScanEnable.opcode, LESetExtendedScanEnable.opcode: isScanning = isOn
    case LESetAddressResolutionEnable.opcode: resolvesAddresses = isOn
    case LESetExtendedAdvertisingEnable.opcode: enableSets(argument)
    case LERemoveAdvertisingSet.opcode: sets[UInt8(truncatingIfNeeded: argument)] = nil
    case LEClearAdvertisingSets.opcode:
      sets.removeAll()
      knowsSets = true
    default: break
    }
  }
  /// Enable, Num_Sets, then four octets for each set, of which the argument has the first.
  private mutating func enableSets(_ argument: UInt64) {
    let isOn = argument & 0xFF != 0, count = argument >> 8 & 0xFF
    if isOn { hasAdvertised = true }
    if count == 0 || count > 1 {
      for handle in sets.keys { sets[handle] = isOn }
    } else {
      sets[UInt8(truncatingIfNeeded: argument >> 16)] = isOn
    }
  }

  // MARK: Connections

  private mutating func connection(_ new: ReportedConnection, _ report: inout CheckReport) {
    let isCentral = new.role == .central
    // This error ends directed advertising; another failure ends the creation of a connection.
    guard new.status == .success else {
      if new.status == .advertisingTimeout { isAdvertising = false } else { isInitiating = false }
      return
    }
    let handle = new.handle.rawValue
    report.connection = handle
    handleRange(handle, by: .controller, &report)
    report.judge(
      .handleUnique, !links.contains { $0.handle == handle && $0.isFromStart && !$0.mayHaveEnded }, by: .controller,
      seen: "connection handle \(code(handle, 4)) again", allowed: "a free one")
    if isFromStart {
      report.judge(
        .connectionCause, isCentral ? hasInitiated : hasAdvertised, by: .controller,
        seen: "a connection as \(isCentral ? "Central" : "Peripheral")",
        allowed: isCentral ? "one that the host creates" : "one while advertising")
    }
    parameters(new.interval, new.latency, new.timeout, &report)
    if isCentral { isInitiating = false } else if isAdvertising == true { isAdvertising = false }
    var link = CheckLink(handle, .le, isFromStart: true)
    link.role = isCentral ? .central : .peripheral
    link.supervisionTimeout = Int64(new.timeout.rawValue) * 10_000_000
    link.peer = new.peer
    open(link)
  }
  /// Interval, latency and supervision timeout, in units of 1.25 ms, connection events and 10 ms.
  private func parameters(
    _ interval: ConnectionInterval, _ latency: UInt16, _ timeout: SupervisionTimeout, _ report: inout CheckReport
  ) {
    let interval = UInt32(interval.rawValue), latency = UInt32(latency), timeout = UInt32(timeout.rawValue)
    report.judge(
      .connectionParameters, timeout * 4 > (1 + latency) * interval, by: .controller,
      seen: "interval \(interval) × 1.25 ms, latency \(latency), timeout \(timeout * 10) ms",
      allowed: "a timeout above (1 + latency) × interval × 2")
  }

  private mutating func keyRequest(_ event: LELongTermKeyRequest, _ report: inout CheckReport) {
    guard let place = known(event.connectionHandle, &report) else { return }
    identifiers(event.encryptedDiversifier, event.randomNumber.rawValue, place, by: .peer, &report)
    if let role = links[place].role {
      report.judge(
        .keyRequestToPeripheral, role == .peripheral, by: .controller, seen: "the Central is asked",
        allowed: "a question to the Peripheral")
    }
    links[place].keyRequested = true
  }
  private mutating func encryption(
    _ status: HCIStatus, _ handle: ConnectionHandle, isOn: Bool, _ report: inout CheckReport
  ) {
    guard status == .success, let place = known(handle, &report), links[place].transport == .le else { return }
    if links[place].isFromStart {
      report.judge(
        .encryptionCause, links[place].hasEncryptionCause, by: .controller, seen: "a change of encryption",
        allowed: "one that the host has asked for")
    }
    links[place].encryptionChanged(isOn)
  }

  /// Vol 3, Part H, §2.3.4.
  private func keySize(_ size: Int, _ handle: ConnectionHandle, _ report: inout CheckReport) {
    guard let place = links.firstIndex(where: { $0.handle == handle.rawValue }) else { return }
    let isLE = links[place].transport == .le
    let least = isLE ? links[place].pairing.agreedKeySize ?? 7 : 1
    report.judge(
      .encryptionKeySize, (least...16).contains(size), by: .controller, seen: "a key of \(size) octets",
      allowed: "\(least) to 16")
  }
  /// EDIV and Rand name a key that was distributed; the key that a pairing has just made has none.
  func identifiers(
    _ diversifier: UInt16, _ random: UInt64, _ place: Int, by party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    guard links[place].pairing.hasUnnamedKey else { return }
    report.judge(
      .identifiersZero, diversifier == 0 && random == 0, by: party,
      seen: "EDIV \(code(diversifier, 4)) and Rand 0x\(hexDigits(random, 16)) for the key that the pairing made",
      allowed: "zeros")
  }

  // MARK: Advertising reports

  private func reports(_ report: inout CheckReport) {
    guard let isScanning, isSettled(LESetScanEnable.opcode, LESetExtendedScanEnable.opcode) else { return }
    report.judge(
      .reportWhileScanning, isScanning, by: .controller, seen: "a report while scanning is disabled", allowed: "none")
  }
  /// A report with all of a device's data: neither a part nor the last of several.
  private mutating func isWhole(_ device: UInt64, _ status: AdvertisingDataStatus) -> Bool {
    let wasPart = partlyReported.remove(device) != nil
    if status == .complete { return !wasPart }
    // Nothing follows what the controller has truncated.
    if status == .truncated { return false }
    if partlyReported.count == Self.mostPartlyReported { partlyReported.removeAll() }
    partlyReported.insert(device)
    return false
  }
  private mutating func advertised(
    _ data: Octets, isScanResponse: Bool, _ address: DeviceAddress, _ type: AddressType, _ bytes: Span<UInt8>,
    _ report: inout CheckReport
  ) {
    guard data.count > 0 else { return }
    report.peer = address
    advertisingData.receive(
      data.range, of: bytes, isScanResponse: isScanResponse, by: .peer,
      device: address.value | UInt64(type.rawValue) << 48, &report)
  }
}
