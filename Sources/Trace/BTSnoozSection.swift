import BindruneSystem
import BindruneWire
import Glibc
import SystemPackage

/// The packets in the text of an Android bug report: the section `BTSNOOP_LOG_SUMMARY`, in base64. It has the format's
/// version, the microseconds of the last packet, and a zlib stream of records, each with the time since the one before.
///
/// So the first packet's time is known when all have been read: the stream, which is small, is unpacked twice.
struct BTSnoozSection {
  /// Octets of the section, and those of its records: Android's ring has a quarter of a mebibyte. More is damage.
  static var mostOctets: Int { 16 << 20 }
  static var mostUnpacked: Int { 64 << 20 }

  private enum Phase { case before, within, after, asFile }
  private var phase = Phase.before
  /// The beginning of the current line.
  private var line: [UInt8] = []
  private var octets: [UInt8] = []
  private var bits: UInt32 = 0, bitCount = 0

  init() {}
  /// The section's octets as a file, `btsnooz_hci.log`: nothing is base64. nil: `beginning` is that of none.
  init?(file beginning: Span<UInt8>) {
    guard beginning.count > 15, Self.hasHeader(beginning.extracting(first: 11).array) else { return nil }
    phase = .asFile
  }
  /// The format's version, and behind the time zlib's header (RFC 1950, §2.2): deflate, no dictionary.
  private static func hasHeader(_ octets: [UInt8]) -> Bool {
    octets.count >= 11 && (octets[0] == 1 || octets[0] == 2) && octets[9] & 0x0F == 8
      && (Int(octets[9]) << 8 | Int(octets[10])) % 31 == 0 && octets[10] & 0x20 == 0
  }

  var isBegun: Bool { phase != .before }
  var isEnded: Bool { phase == .after }

  /// The text's next octets.
  mutating func receive(_ bytes: Span<UInt8>) {
    for index in bytes.indices {
      switch phase {
      case .before:
        if bytes[index] == UInt8(ascii: "\n") {
          if Self.isBeginning(line) { phase = .within }
          line.removeAll(keepingCapacity: true)
        } else if line.count < 128 {
          line.append(bytes[index])
        }
      case .within: decode(bytes[index])
      case .after: return
      case .asFile:
        octets.append(bytes[index])
        if octets.count >= Self.mostOctets { phase = .after }
      }
    }
  }
  private static func isBeginning(_ line: [UInt8]) -> Bool {
    let words = Array("--- BEGIN:BTSNOOP_LOG_SUMMARY".utf8)
    guard line.count >= words.count else { return false }
    return (0...(line.count - words.count)).contains { line[$0...].starts(with: words) }
  }
  /// RFC 4648, §4. The line of dashes ends the section.
  private mutating func decode(_ octet: UInt8) {
    let value: UInt8
    switch octet {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = octet - UInt8(ascii: "A")
    case UInt8(ascii: "a")...UInt8(ascii: "z"): value = octet - UInt8(ascii: "a") + 26
    case UInt8(ascii: "0")...UInt8(ascii: "9"): value = octet - UInt8(ascii: "0") + 52
    case UInt8(ascii: "+"): value = 62
    case UInt8(ascii: "/"): value = 63
    case UInt8(ascii: "-"):
      phase = .after
      return
    default: return
    }
    bits = bits << 6 | UInt32(value)
    bitCount += 6
    if bitCount >= 8 {
      bitCount -= 8
      octets.append(UInt8(truncatingIfNeeded: bits >> UInt32(bitCount)))
      if octets.count >= Self.mostOctets { phase = .after }
    }
  }

  /// The records.
  struct Records {
    var version: UInt8
    /// Nanoseconds since 1970 before the first record's own time.
    var start: Int64
    var unpacker: Unpacker
    /// False: the section was cut, or is damaged.
    var isWhole: Bool
  }
  /// nil: the section is none that Android writes.
  func records() throws(Errno) -> Records? {
    guard octets.count > 15, Self.hasHeader(octets) else { return nil }
    let last = (1...8).reversed().reduce(UInt64(0)) { $0 << 8 | UInt64(octets[$1]) }, stream = octets[9...]
    let file = try FileDescriptor.inMemory("btsnooz")
    defer { try? file.close() }
    do { try file.writeAll(Unpacker.header + stream.dropFirst(2)) } catch { throw error as? Errno ?? .ioError }
    func unpacker() throws(Errno) -> Unpacker {
      do { _ = try file.seek(offset: 0, from: .start) } catch { throw error as? Errno ?? .ioError }
      return try Unpacker(file, before: [], isChecked: false)
    }
    var measure = Measure(octets[0])
    try measure.read(unpacker())
    let sum = stream.suffix(4).reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
    let start = Int64(truncatingIfNeeded: last &- measure.microseconds)
    return Records(
      version: octets[0], start: start.multipliedReportingOverflow(by: 1_000).partialValue, unpacker: try unpacker(),
      isWhole: sum == measure.sum)
  }

  /// The time that the records take, and their checksum.
  private struct Measure {
    private(set) var microseconds: UInt64 = 0
    /// RFC 1950, §8.2.
    var sum: UInt32 { high << 16 | low }
    private var low: UInt32 = 1, high: UInt32 = 0
    private let headerCount: Int
    private var header: [UInt8] = []
    private var skipping = 0
    /// A record without even its type: reading ends there.
    private(set) var isDamaged = false

    init(_ version: UInt8) { headerCount = version == 1 ? 7 : 9 }
    mutating func read(_ unpacker: Unpacker) throws(Errno) {
      defer { _ = unpacker.finish() }
      var block = [UInt8](repeating: 0, count: 65_536), total = 0
      while total < BTSnoozSection.mostUnpacked {
        let count: Int
        do { count = unsafe try block.withUnsafeMutableBytes { unsafe try unpacker.output.read(into: $0) } } catch {
          throw error as? Errno ?? .ioError
        }
        if count == 0 || isDamaged { return }
        total += count
        receive(block[..<count])
      }
    }
    private mutating func receive(_ octets: ArraySlice<UInt8>) {
      for octet in octets {
        low = (low + UInt32(octet)) % 65_521
        high = (high + low) % 65_521
        if skipping > 0 {
          skipping -= 1
          continue
        }
        header.append(octet)
        guard header.count == headerCount else { continue }
        microseconds &+= (2...5).reversed().reduce(UInt64(0)) { $0 << 8 | UInt64(header[headerCount - 7 + $1]) }
        skipping = (Int(header[0]) | Int(header[1]) << 8) - 1
        if skipping < 0 { isDamaged = true }
        header.removeAll(keepingCapacity: true)
      }
    }
  }
}
