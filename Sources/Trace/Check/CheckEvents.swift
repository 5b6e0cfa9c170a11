import BindruneCapture
import BindruneWire
import HCI

// The controller's events: their form, the commands that they answer, and the connections that they are about.

extension CheckAdapter {
  mutating func event(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    guard bytes.count >= Self.eventHeader else {
      if record.isCut { return }
      return report.judge(
        .eventLength, false, by: .controller, seen: "\(bytes.count) octets", allowed: "a header of \(Self.eventHeader)")
    }
    let stated = Int(bytes[2]), actual = record.originalCount - Self.eventHeader
    report.judge(
      .eventLength, stated == actual, by: .controller, seen: "Parameter_Total_Length \(stated) with \(actual) octets",
      allowed: "\(actual)")
    guard stated == actual, !record.isCut else { return }
    mask(bytes, &report)
    let event: HCIEvent
    do throws(WireError) { event = try HCIEvent(bytes) } catch {
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
    // Command Complete, Command Status and Number Of Completed Packets cannot be disabled.
    case 0x0E, 0x0F, 0x13: break
    case 0x01...0x40:
      guard let eventMask, isSettled(0x0C01) else { break }
      report.judge(
        .eventMask, eventMask >> UInt64(event - 1) & 1 == 1, by: .controller, seen: "event \(code(event))",
        allowed: "the events of Event_Mask 0x\(hexDigits(eventMask, 16))")
    default: break
    }
    guard event == 0x3E, bytes.count > 3, (1...64).contains(bytes[3]), let eventMaskLE, isSettled(0x2001) else {
      return
    }
    report.judge(
      .eventMaskLE, eventMaskLE >> UInt64(bytes[3] - 1) & 1 == 1, by: .controller, seen: "LE event \(code(bytes[3]))",
      allowed: "the events of LE_Event_Mask 0x\(hexDigits(eventMaskLE, 16))")
  }

  private mutating func receive(_ event: HCIEvent, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    switch event {
    case .commandComplete: complete(bytes, &report)
    case .commandStatus: status(bytes, &report)
    case .numberOfCompletedPackets:
      for index in 0..<Int(bytes[3]) {
        completed(bytes.little16(4 + 4 * index) & 0x0FFF, Int(bytes.little16(6 + 4 * index)), &report)
      }
    case .disconnectionComplete:
      guard bytes[3] == 0 else { return }
      known(bytes.little16(4), &report)
      close(bytes.little16(4) & 0x0FFF, &report)
    case .encryptionChange, .encryptionChangeV2, .encryptionKeyRefreshComplete: encryption(bytes, &report)
    case .leConnectionComplete: connection(bytes, 15, &report)
    case .leEnhancedConnectionComplete: connection(bytes, 27, &report)
    case .leConnectionUpdateComplete:
      guard bytes[4] == 0 else { return }
      known(bytes.little16(5), &report)
      parameters(bytes, 7, &report)
    case .leLongTermKeyRequest: keyRequest(bytes.little16(4), &report)
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
    case .leAdvertisingSetTerminated(let event): sets[UInt8(truncatingIfNeeded: event.advertisingHandle.wire)] = false
    case .unknown(let event, _): unknown(event, bytes, &report)
    case .unknownLE(let event, _): unknownLE(event, bytes, &report)
    default:
      guard let handle = event.connectionHandle, succeeds(event, bytes) else { return }
      known(handle.rawValue, &report)
    }
  }
  /// An event that reports a failure may be about a connection that has just ended.
  private func succeeds(_ event: HCIEvent, _ bytes: Span<UInt8>) -> Bool {
    switch event {
    case .readRemoteVersionInformationComplete: bytes[3] == 0
    case .leReadRemoteFeaturesComplete, .lePHYUpdateComplete: bytes[4] == 0
    default: true
    }
  }
  @discardableResult private mutating func known(_ handle: UInt16, _ report: inout CheckReport) -> Int? {
    report.connection = handle & 0x0FFF
    return link(handle & 0x0FFF, by: .controller, .eventConnection, &report)
  }

  /// Events of BR/EDR and of isochronous channels open handles that are not LE-U's.
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
    // LE Enhanced Connection Complete, version 2, begins as version 1.
    case 0x29 where bytes.count >= 33: connection(bytes, 27, &report)
    default: break
    }
  }
  private mutating func openOther(_ handle: UInt16) {
    open(CheckLink(handle & 0x0FFF, .classic, isFromStart: isFromStart))
  }

  // MARK: Answers

  private mutating func complete(_ bytes: Span<UInt8>, _ report: inout CheckReport) {
    commandCredits = Int(bytes[3])
    let opcode = bytes.little16(4)
    // Opcode 0 only reports credits.
    guard opcode != 0, bytes.count > 6 else { return }
    let isSuccess = bytes[6] == 0
    let command = answered(opcode, &report)
    kind(opcode, isSuccess, byStatus: false, &report)
    if isSuccess { returned(opcode, bytes, &report) }
    guard isSuccess else { return }
    switch opcode {
    case Self.resetOpcode: reset(&report)
    case 0x1005 where bytes.count >= 12: bufferSize(Int(bytes.little16(7)), Int(bytes.little16(10)), isLE: false)
    case 0x2002 where bytes.count >= 10, 0x2060 where bytes.count >= 10:
      bufferSize(Int(bytes.little16(7)), Int(bytes[9]), isLE: true)
    default: if let command { succeeded(opcode, command.argument) }
    }
  }
  private mutating func status(_ bytes: Span<UInt8>, _ report: inout CheckReport) {
    commandCredits = Int(bytes[4])
    let opcode = bytes.little16(5)
    guard opcode != 0 else { return }
    _ = answered(opcode, &report)
    guard bytes[3] == 0 else { return }
    kind(opcode, true, byStatus: true, &report)
    if opcode == 0x200D || opcode == 0x2043 {
      isInitiating = true
      hasInitiated = true
    }
  }

  private mutating func answered(_ opcode: UInt16, _ report: inout CheckReport) -> PendingCommand? {
    guard let place = pending.firstIndex(where: { $0.opcode == opcode }) else {
      // The command may be older than the trace.
      if isFromStart, pending.count < Self.mostPending {
        report.judge(
          .replyMatches, false, by: .controller, seen: Self.name(opcode),
          allowed: pending.isEmpty ? "none" : pending.map { Self.name($0.opcode) }.joined(separator: ", "))
      }
      return nil
    }
    report.judge(.replyMatches, true, by: .controller, seen: "", allowed: "")
    return pending.remove(at: place)
  }
  /// A failure may come as either event.
  private func kind(_ opcode: UInt16, _ isSuccess: Bool, byStatus: Bool, _ report: inout CheckReport) {
    guard isSuccess, let command = AnyCommand(default: HCIOpcode(rawValue: opcode)) else { return }
    report.judge(
      .replyKind, command.isAnsweredByStatus == byStatus, by: .controller,
      seen: "\(command.name) by Command \(byStatus ? "Status" : "Complete")",
      allowed: "Command \(byStatus ? "Complete" : "Status")")
  }
  private mutating func returned(_ opcode: UInt16, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    guard AnyCommand(default: HCIOpcode(rawValue: opcode)) != nil else { return }
    let count = bytes.count - 6
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

  private mutating func succeeded(_ opcode: UInt16, _ argument: UInt64) {
    let isOn = argument & 0xFF != 0
    switch opcode {
    case 0x0C01: eventMask = argument
    case 0x2001: eventMaskLE = argument
    case 0x200A:
      isAdvertising = isOn
      if isOn { hasAdvertised = true }
    case 0x200C, 0x2042: isScanning = isOn
    case 0x202D: resolvesAddresses = isOn
    case 0x2039: enableSets(argument)
    case 0x203C: sets[UInt8(truncatingIfNeeded: argument)] = nil
    case 0x203D: sets.removeAll()
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

  private mutating func connection(_ bytes: Span<UInt8>, _ at: Int, _ report: inout CheckReport) {
    let isCentral = bytes[7] == 0
    // 0x3C ends directed advertising; another failure ends the creation of a connection.
    guard bytes[4] == 0 else {
      if bytes[4] == 0x3C { isAdvertising = false } else { isInitiating = false }
      return
    }
    let handle = bytes.little16(5) & 0x0FFF
    report.connection = handle
    handleRange(handle, by: .controller, &report)
    report.judge(
      .handleUnique, !links.contains { $0.handle == handle && $0.isFromStart }, by: .controller,
      seen: "connection handle \(code(handle, 4)) again", allowed: "a free one")
    if isFromStart {
      report.judge(
        .connectionCause, isCentral ? hasInitiated : hasAdvertised, by: .controller,
        seen: "a connection as \(isCentral ? "Central" : "Peripheral")",
        allowed: isCentral ? "one that the host creates" : "one while advertising")
    }
    parameters(bytes, at, &report)
    if isCentral { isInitiating = false } else if isAdvertising == true { isAdvertising = false }
    var link = CheckLink(handle, .le, isFromStart: true)
    link.role = isCentral ? .central : .peripheral
    // Types 2 and 3 are identity addresses of the types 0 and 1.
    var peer = UInt64(bytes[8] & 1) << 48
    for index in 0..<6 { peer |= UInt64(bytes[9 + index]) << (8 * UInt64(index)) }
    link.peer = peer
    open(link)
  }
  /// Interval, latency and supervision timeout, in units of 1.25 ms, connection events and 10 ms.
  private func parameters(_ bytes: Span<UInt8>, _ at: Int, _ report: inout CheckReport) {
    let interval = UInt32(bytes.little16(at)), latency = UInt32(bytes.little16(at + 2))
    let timeout = UInt32(bytes.little16(at + 4))
    report.judge(
      .connectionParameters, timeout * 4 > (1 + latency) * interval, by: .controller,
      seen: "interval \(interval) × 1.25 ms, latency \(latency), timeout \(timeout * 10) ms",
      allowed: "a timeout above (1 + latency) × interval × 2")
  }

  private mutating func keyRequest(_ handle: UInt16, _ report: inout CheckReport) {
    guard let place = known(handle, &report) else { return }
    if let role = links[place].role {
      report.judge(
        .keyRequestToPeripheral, role == .peripheral, by: .controller, seen: "the Central is asked",
        allowed: "a question to the Peripheral")
    }
    links[place].keyRequested = true
  }
  private mutating func encryption(_ bytes: Span<UInt8>, _ report: inout CheckReport) {
    guard bytes[3] == 0, let place = known(bytes.little16(4), &report), links[place].transport == .le else { return }
    if links[place].isFromStart {
      report.judge(
        .encryptionCause, links[place].hasEncryptionCause, by: .controller, seen: "a change of encryption",
        allowed: "one that the host has asked for")
    }
    links[place].encryptionChanged(bytes[1] == 0x30 || bytes[6] != 0)
  }

  // MARK: Advertising reports

  private func reports(_ report: inout CheckReport) {
    guard let isScanning, isSettled(0x200C, 0x2042) else { return }
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
    advertisingData.receive(
      data.range, of: bytes, isScanResponse: isScanResponse, by: .peer,
      device: address.value | UInt64(type.rawValue) << 48, &report)
  }
}
