import BindruneCapture
import BindruneWire
import HCI

// The host's commands: their form, their credits, and whether the controller's state permits them.

extension CheckAdapter {
  mutating func command(_ record: CaptureRecord, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    guard bytes.count >= Self.commandHeader else {
      if record.isCut { return }
      return report.judge(
        .commandLength, false, by: .host, seen: "\(bytes.count) octets", allowed: "a header of \(Self.commandHeader)")
    }
    let opcode = bytes.little16(1), stated = Int(bytes[3]), actual = record.originalCount - Self.commandHeader
    report.judge(
      .commandLength, stated == actual, by: .host, seen: "Parameter_Total_Length \(stated) with \(actual) octets",
      allowed: "\(actual)")
    credits(opcode, &report)
    let parameters = record.isCut || stated != actual ? nil : bytes
    var argument: UInt64 = 0
    if let parameters, form(opcode, parameters, &report) {
      // The argument is the first octet, or the first eight.
      for index in 0..<min(8, stated) {
        argument |= UInt64(parameters[Self.commandHeader + index]) << (8 * UInt64(index))
      }
      permitted(opcode, parameters, &report)
    }
    if pending.count < Self.mostPending, opcode != Self.hostCompletedPackets {
      pending.append(PendingCommand(opcode: opcode, argument: argument))
    }
  }

  /// Packet type, opcode and Parameter_Total_Length. Vol 4, Part E, §5.4.1.
  private static var commandHeader: Int { 4 }
  private static var hostCompletedPackets: UInt16 { 0x0C35 }
  static var resetOpcode: UInt16 { 0x0C03 }

  private mutating func credits(_ opcode: UInt16, _ report: inout CheckReport) {
    let isReset = opcode == Self.resetOpcode
    if !isReset {
      report.judge(
        .resetAlone, !pending.contains { $0.opcode == Self.resetOpcode }, by: .host, seen: "\(Self.name(opcode))",
        allowed: "none before the Command Complete of HCI_Reset")
    }
    // Host_Number_Of_Completed_Packets has no answer and needs no credit: Vol 4, Part E, §7.3.40.
    guard opcode != Self.hostCompletedPackets, let left = commandCredits else { return }
    report.judge(
      .commandCredits, left > 0, by: .host, seen: Self.name(opcode),
      allowed: "no command before the controller permits one")
    commandCredits = max(0, left - 1)
  }

  static func name(_ opcode: UInt16) -> String {
    let opcode = HCIOpcode(rawValue: opcode)
    return opcode.shownName ?? opcode.unknownName
  }
  /// `pending` has no command that may change what `state` is.
  func isSettled(_ opcodes: UInt16...) -> Bool { !pending.contains { opcodes.contains($0.opcode) } }

  // MARK: Form

  /// False if the parameters are not those of the command, so that nothing else can be read from them.
  private func form(_ opcode: UInt16, _ bytes: Span<UInt8>, _ report: inout CheckReport) -> Bool {
    var problem: String?
    do throws(WireError) {
      if case .unknown = try AnyCommand(bytes) { return true }
      problem = Self.rangeProblem(opcode, bytes)
    } catch { problem = error.description }
    report.judge(
      .commandParameters, problem == nil, by: .host, seen: "\(Self.name(opcode)): \(problem ?? "")",
      allowed: "the parameters of its definition")
    guard problem == nil else { return false }
    switch opcode {
    case 0x2006 where bytes[8] != 1:  // High duty cycle directed advertising has no interval.
      advertisingIntervals(UInt32(bytes.little16(4)), UInt32(bytes.little16(6)), &report)
    case 0x2036: advertisingIntervals(bytes.little24(7), bytes.little24(10), &report)
    case 0x200B: scanWindow(bytes, 5, &report)
    case 0x2041:
      var at = 7
      while at + 5 <= bytes.count {
        scanWindow(bytes, at + 1, &report)
        at += 5
      }
    case 0x200D:
      scanWindow(bytes, 4, &report)
      connection(bytes, 17, &report)
    case 0x2013, 0x2020: connection(bytes, 6, &report)
    case 0x2043:
      var at = 14, phys = bytes[13]
      while at + 16 <= bytes.count {
        // The scan parameters of LE 2M are ignored: Vol 4, Part E, §7.8.66.
        if phys & (~phys &+ 1) != 0x02 { scanWindow(bytes, at, &report) }
        connection(bytes, at + 4, &report)
        phys &= phys &- 1
        at += 16
      }
    case 0x2005: randomAddress(bytes, 4, &report)
    case 0x2035: randomAddress(bytes, 5, &report)
    default: break
    }
    return true
  }

  /// Ranges that the fields' types do not have, because other commands give them other ranges.
  private static func rangeProblem(_ opcode: UInt16, _ bytes: Span<UInt8>) -> String? {
    func within(_ name: StaticString, _ at: Int, _ range: ClosedRange<UInt16>) -> String? {
      let value = bytes.little16(at)
      return range.contains(value)
        ? nil : "\(name) \(code(value, 4)) is not \(code(range.lowerBound, 4)) to \(code(range.upperBound, 4))"
    }
    func connection(_ at: Int) -> String? {
      within("Connection_Interval_Min", at, 0x0006...0x0C80) ?? within(
        "Connection_Interval_Max", at + 2, 0x0006...0x0C80)
        ?? within("Max_Latency", at + 4, 0...0x01F3) ?? within("Supervision_Timeout", at + 6, 0x000A...0x0C80)
    }
    func scan(_ at: Int) -> String? {
      within("LE_Scan_Interval", at, 0x0004...0x4000) ?? within("LE_Scan_Window", at + 2, 0x0004...0x4000)
    }
    switch opcode {
    case 0x2006 where bytes[8] != 1:
      return within("Advertising_Interval_Min", 4, 0x0020...0x4000)
        ?? within("Advertising_Interval_Max", 6, 0x0020...0x4000)
        ?? (bytes[17] & 0x07 == 0 ? "Advertising_Channel_Map names no channel" : nil)
    case 0x200B: return scan(5)
    case 0x200D: return scan(4) ?? connection(17)
    case 0x2013, 0x2020: return connection(6)
    case 0x2022: return within("TX_Octets", 6, 0x001B...0x00FB) ?? within("TX_Time", 8, 0x0148...0x4290)
    case 0x2036 where bytes.little24(7) < 0x20 || bytes.little24(10) < 0x20:
      // High duty cycle directed advertising has no interval.
      return bytes[5] & 0x08 != 0 ? nil : "the interval is below 0x000020"
    default: return nil
    }
  }

  private func advertisingIntervals(_ least: UInt32, _ most: UInt32, _ report: inout CheckReport) {
    report.judge(
      .advertisingIntervals, least <= most, by: .host, seen: "\(least) to \(most)", allowed: "the lesser one first")
  }
  private func scanWindow(_ bytes: Span<UInt8>, _ at: Int, _ report: inout CheckReport) {
    let interval = bytes.little16(at), window = bytes.little16(at + 2)
    report.judge(
      .scanWindow, window <= interval, by: .host, seen: "window \(window), interval \(interval)",
      allowed: "a window of at most \(interval)")
  }
  /// Interval min, max, latency, timeout, and the lengths of connection events.
  private func connection(_ bytes: Span<UInt8>, _ at: Int, _ report: inout CheckReport) {
    let least = bytes.little16(at), most = bytes.little16(at + 2), latency = UInt32(bytes.little16(at + 4))
    let timeout = UInt32(bytes.little16(at + 6)), from = bytes.little16(at + 8), to = bytes.little16(at + 10)
    report.judge(
      .connectionIntervals, least <= most, by: .host, seen: "\(least) to \(most)", allowed: "the lesser one first")
    // Units of 10 ms and 1.25 ms.
    report.judge(
      .supervisionTimeout, timeout * 4 > (1 + latency) * UInt32(most), by: .host,
      seen: "timeout \(timeout * 10) ms, latency \(latency), interval \(milliseconds(most))",
      allowed: "a timeout above \(milliseconds(UInt64(1 + latency) * UInt64(most) * 2))")
    report.judge(.eventLengths, from <= to, by: .host, seen: "\(from) to \(to)", allowed: "the lesser one first")
  }
  private func milliseconds(_ units: some BinaryInteger) -> String { "\(Double(Int(units)) * 1.25) ms" }

  /// A random address: static 0b11, resolvable 0b01 or non-resolvable 0b00, with a random part that is neither all
  /// zeros nor all ones.
  private func randomAddress(_ bytes: Span<UInt8>, _ at: Int, _ report: inout CheckReport) {
    var address: UInt64 = 0
    for index in 0..<6 { address |= UInt64(bytes[at + index]) << (8 * UInt64(index)) }
    let kind = address >> 46, part = kind == 1 ? address >> 24 & 0x3F_FFFF : address & 0x3FFF_FFFF_FFFF
    let ones: UInt64 = kind == 1 ? 0x3F_FFFF : 0x3FFF_FFFF_FFFF
    report.judge(
      .randomAddressKind, kind != 2 && part != 0 && part != ones, by: .host,
      seen: "\(DeviceAddress(address).text)", allowed: "a static or private address")
  }

  // MARK: State

  private mutating func permitted(_ opcode: UInt16, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    generation(opcode, &report)
    switch opcode {
    case 0x2006:
      if let isAdvertising, isSettled(0x200A) {
        busy(.advertisingParametersBusy, !isAdvertising, "advertising", opcode, &report)
      }
    case 0x200B, 0x2041:
      if let isScanning, isSettled(0x200C, 0x2042) {
        busy(.scanParametersBusy, !isScanning, "scanning", opcode, &report)
      }
    case 0x2005:
      if let isAdvertising, let isScanning, let isInitiating, isSettled(0x200A, 0x200C, 0x2042, 0x200D, 0x2043, 0x200E)
      {
        let state = isAdvertising ? "advertising" : isScanning ? "scanning" : "initiating"
        busy(.randomAddressBusy, !isAdvertising && !isScanning && !isInitiating, state, opcode, &report)
      }
    case 0x2027, 0x2028, 0x2029:
      if let isAdvertising, let isScanning, let isInitiating, let resolvesAddresses,
        isSettled(0x200A, 0x200C, 0x2042, 0x200D, 0x2043, 0x200E, 0x202D, 0x2039)
      {
        let isBusy = isAdvertising || isScanning || isInitiating || sets.values.contains(true)
        busy(.resolvingListBusy, !resolvesAddresses || !isBusy, "address resolution and a use of it", opcode, &report)
      }
    case 0x200D, 0x2043:
      if let isInitiating, isSettled(0x200D, 0x2043, 0x200E) {
        busy(.createConnectionBusy, !isInitiating, "creating a connection", opcode, &report)
      }
    case 0x2036: sets[bytes[4]] = sets[bytes[4]] ?? false
    case 0x2037, 0x2038: advertisingSet(bytes[4], &report)
    case 0x2039 where bytes[4] != 0:
      for index in 0..<Int(bytes[5]) { advertisingSet(bytes[6 + 4 * index], &report) }
    case 0x2019, 0x201A, 0x201B: encryption(opcode, bytes.little16(4), &report)
    default: break
    }
    advertise(opcode, bytes, &report)
  }
  private func busy(
    _ rule: CheckRule, _ holds: Bool, _ state: String, _ opcode: UInt16, _ report: inout CheckReport
  ) {
    report.judge(rule, holds, by: .host, seen: "\(Self.name(opcode)) while \(state) is enabled", allowed: "it disabled")
  }
  private func advertisingSet(_ handle: UInt8, _ report: inout CheckReport) {
    guard isFromStart else { return }
    report.judge(
      .advertisingSetKnown, sets[handle] != nil, by: .host, seen: "advertising handle \(code(handle))",
      allowed: sets.isEmpty ? "none" : sets.keys.sorted().map { code($0) }.joined(separator: ", "))
  }

  /// Legacy and extended commands are not mixed. Vol 4, Part E, §3.1.1, Table 3.2.
  private mutating func generation(_ opcode: UInt16, _ report: inout CheckReport) {
    let isLegacy: Bool
    switch opcode {
    case 0x2006...0x200D: isLegacy = true
    case 0x2035...0x2039, 0x203C, 0x203D, 0x2041...0x2043: isLegacy = false
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

  private mutating func encryption(_ opcode: UInt16, _ handle: UInt16, _ report: inout CheckReport) {
    guard let place = links.firstIndex(where: { $0.handle == handle }) else { return }
    report.connection = handle
    let link = links[place]
    if opcode == 0x2019 {
      if let role = link.role {
        report.judge(
          .encryptionByCentral, role == .central, by: .host, seen: "\(Self.name(opcode)) as Peripheral",
          allowed: "Security Request")
      }
    } else if link.isFromStart {
      report.judge(
        .keyReplyAsked, link.keyRequested, by: .host, seen: "\(Self.name(opcode)) without a request",
        allowed: "an answer to each request")
    }
    links[place].keyRequested = false
    guard opcode != 0x201B else { return }
    links[place].hasEncryptionCause = true
    links[place].pairing.encryptionStarts(&report)
  }

  /// The host's own advertising data.
  private mutating func advertise(_ opcode: UInt16, _ bytes: Span<UInt8>, _ report: inout CheckReport) {
    let start: Int, length: Int
    switch opcode {
    case 0x2008, 0x2009: (start, length) = (5, Int(bytes[4]))
    // Only complete data is whole structures.
    case 0x2037, 0x2038: (start, length) = (8, bytes[5] == 3 ? Int(bytes[7]) : 0)
    default: return
    }
    guard start + length <= bytes.count, length > 0 else { return }
    advertisingData.receive(
      start..<start + length, of: bytes, isScanResponse: opcode == 0x2009 || opcode == 0x2038, by: .host, device: nil,
      &report)
  }
}

extension Span<UInt8> {
  func little24(_ at: Int) -> UInt32 { UInt32(little16(at)) | UInt32(self[at + 2]) << 16 }
}
