import BindruneCapture
import BindruneWire
import BindruneHCI

// The host's commands: their form, their credits, and whether the controller's state permits them.

extension CheckAdapter {
  mutating func command(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    guard bytes.count >= Self.commandHeader else {
      loseReplies()
      if record.isCut { return }
      return report.judge(
        .commandLength, false, by: .host, seen: "\(bytes.count) octets", allowed: "a header of \(Self.commandHeader)")
    }
    let opcode = HCIOpcode(rawValue: bytes.little16(1)), stated = Int(bytes[3]),
      actual = record.originalCount - Self.commandHeader
    report.subject = .command(opcode)
    report.judge(
      .commandLength, stated == actual, by: .host, seen: "Parameter_Total_Length \(stated) with \(actual) octets",
      allowed: "\(actual)")
    credits(opcode, &report)
    var argument: UInt64?
    if !record.isCut, stated == actual, let command = form(opcode, bytes, &report) {
      // The argument is the first octet, or the first eight.
      argument = (0..<min(8, stated)).reduce(0) {
        $0 | UInt64(bytes[Self.commandHeader + $1]) << (8 * UInt64($1))
      }
      permitted(command, opcode, bytes, &report)
    }
    if pending.count < Self.mostPending, opcode != HostNumberOfCompletedPackets.opcode {
      pending.append(PendingCommand(opcode: opcode, argument: argument))
    }
  }

  /// Packet type, opcode and Parameter_Total_Length. Vol 4, Part E, §5.4.1.
  private static var commandHeader: Int { 4 }

  private mutating func credits(_ opcode: HCIOpcode, _ report: inout CheckReport) {
    let isReset = opcode == Reset.opcode
    if !isReset {
      report.judge(
        .resetAlone, !pending.contains { $0.opcode == Reset.opcode }, by: .host, seen: "\(Self.name(opcode))",
        allowed: "none before the Command Complete of HCI_Reset")
    }
    // Host_Number_Of_Completed_Packets has no answer and needs no credit: Vol 4, Part E, §7.3.40.
    guard opcode != HostNumberOfCompletedPackets.opcode, let left = commandCredits else { return }
    report.judge(
      .commandCredits, left > 0, by: .host, seen: Self.name(opcode),
      allowed: "no command before the controller permits one")
    // How many a controller permits that has received too many is not known.
    commandCredits = left > 0 ? left - 1 : nil
  }

  static func name(_ opcode: HCIOpcode) -> String {
    opcode.shownName ?? opcode.unknownName
  }
  /// `pending` has no command that may change what `state` is.
  func isSettled(_ opcodes: HCIOpcode...) -> Bool { !pending.contains { opcodes.contains($0.opcode) } }
  func isSettled(_ opcode: HCIOpcode) -> Bool { !pending.contains { $0.opcode == opcode } }

  // MARK: Form

  /// Nil if the parameters are not those of the command, so that nothing else can be read from them.
  private func form(_ opcode: HCIOpcode, _ bytes: Span<UInt8>, _ report: inout CheckReport) -> AnyCommand? {
    var command: AnyCommand?, problem: String?
    do throws(WireError) {
      let read = try AnyCommand(bytes)
      if case .unknown = read { return read }
      problem = Self.rangeProblem(read)
      command = read
    } catch { problem = error.description }
    report.judge(
      .commandParameters, problem == nil, by: .host, seen: "\(Self.name(opcode)): \(problem ?? "")",
      allowed: "the parameters of its definition")
    guard problem == nil, let command else { return nil }
    switch command {
    // High duty cycle directed advertising has no interval.
    case .leSetAdvertisingParameters(let command) where command.advertisingType != .connectableDirectedHighDutyCycle:
      advertisingIntervals(
        UInt32(command.advertisingIntervalMin.rawValue), UInt32(command.advertisingIntervalMax.rawValue), &report)
    case .leSetExtendedAdvertisingParameters(let command):
      advertisingIntervals(
        command.primaryAdvertisingIntervalMin.rawValue.value, command.primaryAdvertisingIntervalMax.rawValue.value,
        &report)
    case .leSetScanParameters(let command): scanWindow(command.leScanInterval, command.leScanWindow, &report)
    case .leSetExtendedScanParameters(let command):
      let phys = command.scanningPHYs
      if phys.contains(.le1M) { scanWindow(command.le1M.scanInterval, command.le1M.scanWindow, &report) }
      if phys.contains(.leCoded) { scanWindow(command.leCoded.scanInterval, command.leCoded.scanWindow, &report) }
    case .leCreateConnection(let command):
      scanWindow(command.leScanInterval, command.leScanWindow, &report)
      connection(AskedParameters(command), &report)
    case .leConnectionUpdate(let command): connection(AskedParameters(command), &report)
    case .leRemoteConnectionParameterRequestReply(let command): connection(AskedParameters(command), &report)
    case .leExtendedCreateConnection(let command):
      let groups: [(PHYSet, LEExtendedCreateConnection.Parameters)] = [
        (.le1M, command.le1M), (.le2M, command.le2M), (.leCoded, command.leCoded),
      ]
      for (phy, group) in groups where command.initiatingPHYs.contains(phy) {
        // The scan parameters of LE 2M are ignored: Vol 4, Part E, §7.8.66.
        if phy != .le2M { scanWindow(group.scanInterval, group.scanWindow, &report) }
        connection(AskedParameters(group), &report)
      }
    case .leSetRandomAddress(let command): randomAddress(command.randomAddress, &report)
    case .leSetAdvertisingSetRandomAddress(let command): randomAddress(command.randomAddress, &report)
    default: break
    }
    return command
  }

  /// The parameters of a connection that a host asks for, as several commands have them.
  private struct AskedParameters {
    var least: UInt16, most: UInt16, latency: UInt16, timeout: UInt16
    var from: UInt16, to: UInt16
    private init(
      _ least: ConnectionInterval, _ most: ConnectionInterval, _ latency: UInt16, _ timeout: SupervisionTimeout,
      _ from: ConnectionEventLength, _ to: ConnectionEventLength
    ) {
      (self.least, self.most, self.latency) = (least.rawValue, most.rawValue, latency)
      (self.timeout, self.from, self.to) = (timeout.rawValue, from.rawValue, to.rawValue)
    }
    init(_ command: LECreateConnection) {
      self.init(
        command.connectionIntervalMin, command.connectionIntervalMax, command.maxLatency, command.supervisionTimeout,
        command.minCELength, command.maxCELength)
    }
    init(_ command: LEConnectionUpdate) {
      self.init(
        command.connectionIntervalMin, command.connectionIntervalMax, command.maxLatency, command.supervisionTimeout,
        command.minCELength, command.maxCELength)
    }
    init(_ command: LERemoteConnectionParameterRequestReply) {
      self.init(
        command.intervalMin, command.intervalMax, command.maxLatency, command.timeout, command.minCELength,
        command.maxCELength)
    }
    init(_ group: LEExtendedCreateConnection.Parameters) {
      self.init(
        group.connectionIntervalMin, group.connectionIntervalMax, group.maxLatency, group.supervisionTimeout,
        group.minCELength, group.maxCELength)
    }
  }

  /// Ranges that the fields' types do not have, because other commands give them other ranges.
  private static func rangeProblem(_ command: AnyCommand) -> String? {
    func within(_ name: StaticString, _ value: UInt16, _ range: ClosedRange<UInt16>) -> String? {
      range.contains(value)
        ? nil : "\(name) \(code(value, 4)) is not \(code(range.lowerBound, 4)) to \(code(range.upperBound, 4))"
    }
    func connection(_ asked: AskedParameters) -> String? {
      within("Connection_Interval_Min", asked.least, 0x0006...0x0C80)
        ?? within("Connection_Interval_Max", asked.most, 0x0006...0x0C80)
        ?? within("Max_Latency", asked.latency, 0...0x01F3)
        ?? within("Supervision_Timeout", asked.timeout, 0x000A...0x0C80)
    }
    func scan(_ interval: ScanInterval, _ window: ScanInterval) -> String? {
      within("LE_Scan_Interval", interval.rawValue, 0x0004...0x4000)
        ?? within("LE_Scan_Window", window.rawValue, 0x0004...0x4000)
    }
    switch command {
    case .leSetAdvertisingParameters(let command) where command.advertisingType != .connectableDirectedHighDutyCycle:
      return within("Advertising_Interval_Min", command.advertisingIntervalMin.rawValue, 0x0020...0x4000)
        ?? within("Advertising_Interval_Max", command.advertisingIntervalMax.rawValue, 0x0020...0x4000)
        ?? (command.advertisingChannelMap & 0x07 == 0 ? "Advertising_Channel_Map names no channel" : nil)
    case .leSetScanParameters(let command): return scan(command.leScanInterval, command.leScanWindow)
    case .leCreateConnection(let command):
      return scan(command.leScanInterval, command.leScanWindow) ?? connection(AskedParameters(command))
    case .leConnectionUpdate(let command): return connection(AskedParameters(command))
    case .leRemoteConnectionParameterRequestReply(let command): return connection(AskedParameters(command))
    case .leSetDataLength(let command):
      return within("TX_Octets", command.txOctets, 0x001B...0x00FB)
        ?? within("TX_Time", command.txTime, 0x0148...0x4290)
    // High duty cycle directed advertising has no interval.
    case .leSetExtendedAdvertisingParameters(let command) where !command.highDutyCycle:
      let isLong =
        command.primaryAdvertisingIntervalMin.rawValue.value >= 0x20
        && command.primaryAdvertisingIntervalMax.rawValue.value >= 0x20
      return isLong ? nil : "the interval is below 0x000020"
    default: return nil
    }
  }

  private func advertisingIntervals(_ least: UInt32, _ most: UInt32, _ report: inout CheckReport) {
    report.judge(
      .advertisingIntervals, least <= most, by: .host, seen: "\(least) to \(most)", allowed: "the lesser one first")
  }
  private func scanWindow(_ interval: ScanInterval, _ window: ScanInterval, _ report: inout CheckReport) {
    let interval = interval.rawValue, window = window.rawValue
    report.judge(
      .scanWindow, window <= interval, by: .host, seen: "window \(window), interval \(interval)",
      allowed: "a window of at most \(interval)")
  }
  private func connection(_ asked: AskedParameters, _ report: inout CheckReport) {
    let least = asked.least, most = asked.most, latency = UInt32(asked.latency), timeout = UInt32(asked.timeout)
    report.judge(
      .connectionIntervals, least <= most, by: .host, seen: "\(least) to \(most)", allowed: "the lesser one first")
    // Units of 10 ms and 1.25 ms.
    report.judge(
      .supervisionTimeout, timeout * 4 > (1 + latency) * UInt32(most), by: .host,
      seen: "timeout \(timeout * 10) ms, latency \(latency), interval \(milliseconds(most))",
      allowed: "a timeout above \(milliseconds(UInt64(1 + latency) * UInt64(most) * 2))")
    report.judge(
      .eventLengths, asked.from <= asked.to, by: .host, seen: "\(asked.from) to \(asked.to)",
      allowed: "the lesser one first")
  }
  private func milliseconds(_ units: some BinaryInteger) -> String { "\(Double(Int(units)) * 1.25) ms" }

  /// A random address: static 0b11, resolvable 0b01 or non-resolvable 0b00, with a random part that is neither all
  /// zeros nor all ones.
  private func randomAddress(_ address: DeviceAddress, _ report: inout CheckReport) {
    let text = address.text, address = address.value
    let kind = address >> 46, part = kind == 1 ? address >> 24 & 0x3F_FFFF : address & 0x3FFF_FFFF_FFFF
    let ones: UInt64 = kind == 1 ? 0x3F_FFFF : 0x3FFF_FFFF_FFFF
    report.judge(
      .randomAddressKind, kind != 2 && part != 0 && part != ones, by: .host,
      seen: "\(text)", allowed: "a static or private address")
  }

  // MARK: State

  private mutating func permitted(
    _ command: AnyCommand, _ opcode: HCIOpcode, _ bytes: Span<UInt8>, _ report: inout CheckReport
  ) {
    generation(command, opcode, &report)
    switch command {
    case .leSetAdvertisingParameters:
      if let isAdvertising, isSettled(LESetAdvertisingEnable.opcode) {
        busy(.advertisingParametersBusy, !isAdvertising, "advertising", opcode, &report)
      }
    case .leSetScanParameters, .leSetExtendedScanParameters:
      if let isScanning, isSettled(LESetScanEnable.opcode, LESetExtendedScanEnable.opcode) {
        busy(.scanParametersBusy, !isScanning, "scanning", opcode, &report)
      }
    case .leSetRandomAddress:
      if let isAdvertising, let isScanning, let isInitiating, isUseSettled {
        let state = isAdvertising ? "advertising" : isScanning ? "scanning" : "initiating"
        busy(.randomAddressBusy, !isAdvertising && !isScanning && !isInitiating, state, opcode, &report)
      }
    case .leAddDeviceToResolvingList, .leRemoveDeviceFromResolvingList, .leClearResolvingList:
      if let isAdvertising, let isScanning, let isInitiating, let resolvesAddresses, isUseSettled,
        isSettled(LESetAddressResolutionEnable.opcode, LESetExtendedAdvertisingEnable.opcode)
      {
        let isBusy = isAdvertising || isScanning || isInitiating || sets.values.contains(true)
        busy(.resolvingListBusy, !resolvesAddresses || !isBusy, "address resolution and a use of it", opcode, &report)
      }
    case .leCreateConnection, .leExtendedCreateConnection:
      if let isInitiating, isInitiationSettled {
        busy(.createConnectionBusy, !isInitiating, "creating a connection", opcode, &report)
      }
    case .leSetExtendedAdvertisingParameters(let command):
      sets[command.advertisingHandle.number] = sets[command.advertisingHandle.number] ?? false
    case .leSetExtendedAdvertisingEnable(let command) where command.enable:
      var cursor = command.sets.cursor
      while let set = cursor.next(in: bytes) { advertisingSet(set.advertisingHandle, &report) }
    case .leEnableEncryption(let command):
      if let place = links.firstIndex(where: { $0.handle == command.connectionHandle.rawValue }) {
        report.of(links[place])
        identifiers(command.encryptedDiversifier, command.randomNumber.rawValue, place, by: .host, &report)
      }
      encryption(opcode, command.connectionHandle, &report)
    case .leLongTermKeyRequestReply(let command): encryption(opcode, command.connectionHandle, &report)
    case .leLongTermKeyRequestNegativeReply(let command): encryption(opcode, command.connectionHandle, &report)
    // The host's own advertising data.
    case .leSetAdvertisingData(let command):
      // The field has 31 octets, of which the first are the data.
      let count = Int(command.advertisingDataLength.wire)
      advertise(command.advertisingData.range.prefix(count), bytes, isScanResponse: false, &report)
    case .leSetScanResponseData(let command):
      let count = Int(command.scanResponseDataLength.wire)
      advertise(command.scanResponseData.range.prefix(count), bytes, isScanResponse: true, &report)
    case .leSetExtendedAdvertisingData(let command):
      advertisingSet(command.advertisingHandle, &report)
      // Only complete data is whole structures.
      guard command.operation == .complete else { break }
      advertise(command.advertisingData.range, bytes, isScanResponse: false, &report)
    case .leSetExtendedScanResponseData(let command):
      advertisingSet(command.advertisingHandle, &report)
      guard command.operation == .complete else { break }
      advertise(command.scanResponseData.range, bytes, isScanResponse: true, &report)
    default: break
    }
  }
  /// No command waits that begins or ends the creation of a connection.
  private var isInitiationSettled: Bool {
    isSettled(LECreateConnection.opcode, LEExtendedCreateConnection.opcode, LECreateConnectionCancel.opcode)
  }
  /// The same of advertising and scanning too.
  private var isUseSettled: Bool {
    isInitiationSettled
      && isSettled(LESetAdvertisingEnable.opcode, LESetScanEnable.opcode, LESetExtendedScanEnable.opcode)
  }
  private func busy(
    _ rule: CheckRule, _ holds: Bool, _ state: String, _ opcode: HCIOpcode, _ report: inout CheckReport
  ) {
    report.judge(rule, holds, by: .host, seen: "\(Self.name(opcode)) while \(state) is enabled", allowed: "it disabled")
  }
  private func advertisingSet(_ handle: AdvertisingHandle, _ report: inout CheckReport) {
    guard knowsSets else { return }
    report.judge(
      .advertisingSetKnown, sets[handle.number] != nil, by: .host, seen: "advertising handle \(code(handle.number))",
      allowed: sets.isEmpty ? "none" : sets.keys.sorted().map { code($0) }.joined(separator: ", "))
  }

  /// Legacy and extended commands are not mixed. Vol 4, Part E, §3.1.1, Table 3.2.
  private mutating func generation(_ command: AnyCommand, _ opcode: HCIOpcode, _ report: inout CheckReport) {
    let isLegacy: Bool
    switch command {
    case .leSetAdvertisingParameters, .leReadAdvertisingPhysicalChannelTxPower, .leSetAdvertisingData,
      .leSetScanResponseData, .leSetAdvertisingEnable, .leSetScanParameters, .leSetScanEnable, .leCreateConnection:
      isLegacy = true
    case .leSetAdvertisingSetRandomAddress, .leSetExtendedAdvertisingParameters, .leSetExtendedAdvertisingData,
      .leSetExtendedScanResponseData, .leSetExtendedAdvertisingEnable, .leRemoveAdvertisingSet,
      .leClearAdvertisingSets, .leSetExtendedScanParameters, .leSetExtendedScanEnable, .leExtendedCreateConnection:
      isLegacy = false
    default: return
    }
    if isFromStart {
      report.judge(
        .legacyOrExtended, !(isLegacy ? usesExtended : usesLegacy), by: .host,
        seen: "\(Self.name(opcode)) after \(isLegacy ? "extended" : "legacy") commands",
        allowed: "\(isLegacy ? "extended" : "legacy") commands")
    }
    if isLegacy { usesLegacy = true } else { usesExtended = true }
  }

  private mutating func encryption(
    _ opcode: HCIOpcode, _ handle: ConnectionHandle, _ report: inout CheckReport
  ) {
    guard let place = links.firstIndex(where: { $0.handle == handle.rawValue }) else { return }
    let link = links[place]
    report.of(link)
    if opcode == LEEnableEncryption.opcode {
      if let role = link.role {
        report.judge(
          .encryptionByCentral, role == .central, by: .host, seen: "\(Self.name(opcode)) as Peripheral",
          allowed: "Security Request")
      }
    } else if link.isFromStart, let keyRequested = link.keyRequested {
      report.judge(
        .keyReplyAsked, keyRequested, by: .host, seen: "\(Self.name(opcode)) without a request",
        allowed: "an answer to each request")
    }
    links[place].keyRequested = false
    links[place].isConfirmed = true
    guard opcode != LELongTermKeyRequestNegativeReply.opcode else { return }
    links[place].encryptionStarts()
    links[place].pairing.encryptionStarts(&report)
  }

  private mutating func advertise(
    _ range: Range<Int>, _ bytes: Span<UInt8>, isScanResponse: Bool, _ report: inout CheckReport
  ) {
    guard !range.isEmpty else { return }
    advertisingData.receive(range, of: bytes, isScanResponse: isScanResponse, by: .host, device: nil, &report)
  }
}
