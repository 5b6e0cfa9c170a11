import BindruneWire
import BindruneHCI

/// Commands and events of BR/EDR, and of LE beyond the ones that this stack sends, whose messages have no declaration:
/// where they hold addresses, names and keys. Vol 4, Part E, §7.1, §7.3, §7.7, §7.8.
enum ClassicFields {
  private typealias Entry = (offset: Int, count: Int, kind: SensitiveField.Kind)
  private static let address: SensitiveField.Kind = .address(isRandom: false)

  /// nil: the packet is not in the table.
  static func find(_ octets: [UInt8], _ finder: inout SensitiveFinder) -> [SensitiveField]? {
    switch HCIPacketType(rawValue: octets[0]) {
    case .command:
      guard octets.count >= 4 else { return nil }
      let opcode = octets.span.little16(1)
      switch opcode {
      case 0x0C11: return pairs(octets, 4)
      // A BR/EDR event filter for one address: Filter_Type 1 or 2, Filter_Condition_Type 2.
      case 0x0C05:
        return octets.count >= 6 && octets[5] == 2 && octets[4] != 0 ? place([(2, 6, address)], octets, 4) : []
      case 0x0C52: return data(octets, 5, &finder)
      case 0x203F: return data(octets, 7, &finder)
      default: return command(opcode).map { place($0, octets, 4) }
      }
    case .event:
      guard octets.count >= 3 else { return nil }
      switch octets[1] {
      case 0x0E:
        guard octets.count >= 7 else { return nil }
        let opcode = octets.span.little16(4)
        if opcode == 0x0C51 { return data(octets, 8, &finder) }
        return answer(opcode).map { place($0, octets, 6) }
      case 0x3E: return octets.count >= 4 ? leEvent(octets[3]).map { place($0, octets, 4) } : nil
      case 0x15: return pairs(octets, 3)
      // One result's address is first; of several, the arrays follow each other.
      case 0x02, 0x22:
        let count = octets.count > 3 ? Int(octets[3]) : 0
        return place((0..<count).map { (1 + 6 * $0, 6, address) }, octets, 3)
      case 0x2F: return place([(1, 6, address)], octets, 3) + data(octets, 18, &finder)
      default: return event(octets[1]).map { place($0, octets, 3) }
      }
    default: return nil
    }
  }

  private static func place(_ entries: [Entry], _ octets: [UInt8], _ start: Int) -> [SensitiveField] {
    entries.compactMap { entry in
      let from = start + entry.offset, to = min(octets.count, from + entry.count)
      // A packet cut within a field still has a part of it.
      guard from < to else { return nil }
      if case .address = entry.kind, to - from < 6 {
        return SensitiveField(kind: .opaque, range: from..<to, label: "cut")
      }
      return SensitiveField(kind: entry.kind, range: from..<to, label: "BR/EDR")
    }
  }
  /// Addresses and link keys by turns, after their number.
  private static func pairs(_ octets: [UInt8], _ start: Int) -> [SensitiveField] {
    guard octets.count > start else { return [] }
    return place(
      (0..<Int(octets[start])).flatMap { [(1 + 22 * $0, 6, address), (7 + 22 * $0, 16, .key)] }, octets, start)
  }
  /// AD structures from `start` on.
  private static func data(
    _ octets: [UInt8], _ start: Int, _ finder: inout SensitiveFinder
  ) -> [SensitiveField] {
    guard start < octets.count else { return [] }
    return finder.find(in: Array(octets[start...]), as: .ad).map { field in
      var field = field
      field.range = field.range.lowerBound + start..<field.range.upperBound + start
      return field
    }
  }

  private static func command(_ opcode: UInt16) -> [Entry]? {
    switch opcode {
    case 0x0405, 0x0408, 0x0409, 0x040A, 0x040C, 0x040E, 0x0419, 0x041A, 0x0429, 0x042A, 0x042B, 0x042C, 0x042D, 0x042F,
      0x0433, 0x0434, 0x043E, 0x080B, 0x0C0D, 0x0C12, 0x0C60:
      [(0, 6, address)]
    case 0x040B: [(0, 6, address), (6, 16, .key)]
    case 0x040D: [(0, 6, address), (7, 16, .pairingRandom)]
    case 0x042E: [(0, 6, address), (6, 4, .pairingRandom)]
    case 0x0430: [(0, 6, address), (6, 16, .pairingRandom), (22, 16, .pairingRandom)]
    case 0x0445:
      [
        (0, 6, address), (6, 16, .pairingRandom), (22, 16, .pairingRandom), (38, 16, .pairingRandom),
        (54, 16, .pairingRandom),
      ]
    case 0x0C13: [(0, 248, .name)]
    case 0x2026, 0x205E: [(0, 64, .publicKey)]
    case 0x2044: [(3, 6, .address(isRandom: nil))]
    case 0x2047, 0x2048: [(1, 6, .address(isRandom: nil))]
    default: nil
    }
  }
  /// Return parameters, the status first.
  private static func answer(_ opcode: UInt16) -> [Entry]? {
    switch opcode {
    case 0x0408, 0x040B, 0x040C, 0x040D, 0x040E, 0x041A, 0x042B, 0x042C, 0x042D, 0x042E, 0x042F, 0x0430, 0x0433, 0x0434,
      0x0445, 0x0C60:
      [(1, 6, address)]
    case 0x0C14: [(1, 248, .name)]
    case 0x0C57: [(1, 16, .pairingRandom), (17, 16, .pairingRandom)]
    case 0x0C7D:
      [(1, 16, .pairingRandom), (17, 16, .pairingRandom), (33, 16, .pairingRandom), (49, 16, .pairingRandom)]
    default: nil
    }
  }
  private static func event(_ code: UInt8) -> [Entry]? {
    switch code {
    case 0x03, 0x2C: [(1, 2, .handle), (3, 6, address)]
    case 0x04, 0x16, 0x17, 0x20, 0x31, 0x32, 0x34, 0x35, 0x3C, 0x3D: [(0, 6, address)]
    case 0x07: [(1, 6, address), (7, 248, .name)]
    case 0x12, 0x36: [(1, 6, address)]
    case 0x18: [(0, 6, address), (6, 16, .key)]
    case 0x33, 0x3B: [(0, 6, address), (6, 4, .pairingRandom)]
    default: nil
    }
  }
  /// From the octet behind the subevent code.
  private static func leEvent(_ subevent: UInt8) -> [Entry]? {
    switch subevent {
    case 0x08: [(1, 64, .publicKey)]
    case 0x09: [(1, 32, .key)]
    case 0x0E: [(5, 6, .address(isRandom: nil))]
    case 0x18: [(9, 6, .address(isRandom: nil))]
    case 0x29:
      [
        (1, 2, .handle), (5, 6, .address(isRandom: nil)), (11, 6, .address(isRandom: true)),
        (17, 6, .address(isRandom: true)),
      ]
    default: nil
    }
  }

  // MARK: Numbers only

  /// A command or event without a declaration whose parameters are handles, times, modes and other numbers.
  static func isHarmless(_ octets: [UInt8]) -> Bool {
    switch HCIPacketType(rawValue: octets[0]) {
    case .command: return octets.count >= 3 && isHarmless(command: octets.span.little16(1))
    case .event:
      guard octets.count >= 4 else { return true }
      switch octets[1] {
      case 0x0E: return octets.count >= 6 && isHarmless(command: octets.span.little16(4))
      // Synchronization, antennas, isochronous channels, power, subrating. Vol 4, Part E, §7.7.65.
      case 0x3E: return [0x10, 0x11, 0x15, 0x16, 0x17, 0x2A].contains(octets[3]) || (0x19...0x23).contains(octets[3])
      case let code: return plainEvents.contains(code)
      }
    default: return false
    }
  }
  /// Vol 4, Part E, §7.7.
  private static let plainEvents: Set<UInt8> = [
    0x01, 0x06, 0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x10, 0x11, 0x14, 0x19, 0x1A, 0x1B, 0x1C, 0x1D, 0x1E, 0x21, 0x23, 0x2D,
    0x2E, 0x30, 0x38, 0x39, 0x48, 0x57, 0x58,
  ]
  private static func isHarmless(command opcode: UInt16) -> Bool {
    switch opcode {
    // Link control. Vol 4, Part E, §7.1.
    case 0x0401...0x0404, 0x0406, 0x040F, 0x0411, 0x0413, 0x0415, 0x0417, 0x041B...0x041F, 0x0428, 0x043D: true
    // Link policy and the controller's configuration, without what the table has. §7.2, §7.3.
    case 0x0801...0x0811, 0x0C01...0x0C10, 0x0C15...0x0C4F, 0x0C53...0x0C56, 0x0C58...0x0C5F, 0x0C61...0x0C7C: true
    // What the controller is and counts. §7.4, §7.5.
    case 0x1001...0x1008, 0x100A...0x100F, 0x1401...0x1408: true
    // LE: tests, periodic advertising and its synchronization, antennas, isochronous channels without keys. §7.8.
    case 0x201D...0x201F, 0x2033, 0x2034, 0x203E, 0x2040, 0x2045, 0x2046, 0x2049...0x204D, 0x204F...0x205D,
      0x2060...0x2067, 0x206A, 0x206C...0x207F:
      true
    default: false
    }
  }
}
