import BindruneWire
import BindruneGAP
import BindruneHCI

/// # The text of a bond file
/// **Function**: a line for each bond, the longest unused first: the adapter's identity address, the peer's address,
/// and the octets of ``Bond/octets``. The last line has the CRC-32 of everything before it, so that damage is noticed.
///
///     bindrune-bonds 1
///     C0:FF:EE:00:00:01/random F0:F1:F2:F3:F4:F5/random 01F5F4F3F2F1F0…
///     crc32 9C0B12A7
extension BondList {
  private static var heading: String { "bindrune-bonds " }
  private static var format: String { "1" }
  private static var ending: String { "crc32 " }

  package var text: [UInt8] {
    var text = Array("\(Self.heading)\(Self.format)\n".utf8)
    for entry in entries {
      text += "\(entry.adapter) \(entry.bond.address) ".utf8
      for octet in entry.bond.octets { text += [hexDigit(octet >> 4), hexDigit(octet & 0xF)] }
      text.append(UInt8(ascii: "\n"))
    }
    text += "\(Self.ending)\(hexDigits(UInt64(crc32(text[...])), 8))\n".utf8
    return text
  }

  package init(text: [UInt8]) throws(BondTextError) {
    // Zeros: the file system lost the contents.
    if text.allSatisfy({ $0 == 0 }) { throw .damaged("it is empty") }
    guard text.starts(with: Self.heading.utf8) else { throw .foreign }
    guard let end = text.firstIndex(of: UInt8(ascii: "\n")) else { throw .damaged("it is cut short") }
    let format = String(decoding: text[Self.heading.utf8.count..<end], as: UTF8.self)
    guard format == Self.format else {
      let isNumber = !format.isEmpty && format.utf8.count < 10 && format.utf8.allSatisfy { $0.isDigit }
      throw isNumber ? .otherFormat(format) : .damaged("its first line has no number")
    }
    guard text.last == UInt8(ascii: "\n") else { throw .damaged("it is cut short") }
    let lines = text.dropLast().split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false)
    let last = lines[lines.count - 1]
    guard lines.count > 1, last.starts(with: Self.ending.utf8) else { throw .damaged("it is cut short") }
    let found = hexDigits(UInt64(crc32(text[..<last.startIndex])), 8)
    guard last.dropFirst(Self.ending.utf8.count).elementsEqual(found.utf8) else {
      throw .damaged("its checksum is wrong")
    }
    for (index, line) in lines.enumerated().dropFirst().dropLast() {
      let entry: Entry
      do throws(BondLineError) { entry = try Self.entry(line) } catch {
        throw .damaged("its line \(index + 1) \(error.reason)")
      }
      guard append(entry) else { throw .damaged("its line \(index + 1) is a second bond with that peer") }
    }
  }

  private static func entry(_ line: ArraySlice<UInt8>) throws(BondLineError) -> Entry {
    let parts = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
    guard parts.count == 3 else { throw BondLineError(reason: "has not three parts") }
    guard let adapter = PeerAddress(bondText: parts[0]) else {
      throw BondLineError(reason: "does not begin with an address")
    }
    guard let octets = octets(hex: parts[2]) else { throw BondLineError(reason: "does not end with octets") }
    let bond: Bond
    do throws(WireError) { bond = try Bond(octets.span) } catch {
      throw BondLineError(reason: "has a bad record (\(error))")
    }
    guard parts[1].elementsEqual("\(bond.address)".utf8) else {
      throw BondLineError(reason: "names another peer than its record")
    }
    return Entry(adapter: adapter, bond: bond)
  }
  private struct BondLineError: Error { var reason: String }
}

/// Why a text is not one of bonds. Contains nothing of the text but the number of its format.
package enum BondTextError: Error, Equatable {
  /// It does not begin as a bond file does: it may be a file of somebody else.
  case foreign
  case otherFormat(String)
  /// How, as the end of "is damaged:".
  case damaged(String)

  /// The end of a sentence about the file.
  package var words: String {
    switch self {
    case .foreign: "is not a file of bonds"
    case .otherFormat(let format): "was written by another version of Bindrune, in format \(format)"
    case .damaged(let how): "is damaged: \(how)"
    }
  }
}

extension PeerAddress {
  /// Of `F0:F1:F2:F3:F4:F5/random`, as ``description`` writes it.
  fileprivate init?(bondText text: ArraySlice<UInt8>) {
    let text = String(decoding: text, as: UTF8.self)
    let digits = text.prefix { $0 != "/" }.filter { $0 != ":" }
    guard let value = UInt64(digits, radix: 16) else { return nil }
    self.init(DeviceAddress(value), text.hasSuffix("/random") ? .random : .public)
    if description != text { return nil }
  }
}

/// The octets of pairs of upper-case hex digits; nil: other text, or none.
private func octets(hex: ArraySlice<UInt8>) -> [UInt8]? {
  guard !hex.isEmpty, hex.count.isMultiple(of: 2) else { return nil }
  var octets: [UInt8] = []
  octets.reserveCapacity(hex.count / 2)
  for index in stride(from: hex.startIndex, to: hex.endIndex, by: 2) {
    guard let high = hexValue(hex[index]), let low = hexValue(hex[index + 1]) else { return nil }
    octets.append(high << 4 | low)
  }
  return octets
}
private func hexDigit(_ value: UInt8) -> UInt8 {
  value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "A") + value - 10
}
private func hexValue(_ digit: UInt8) -> UInt8? {
  switch digit {
  case _ where digit.isDigit: digit - UInt8(ascii: "0")
  case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
  default: nil
  }
}
extension UInt8 {
  fileprivate var isDigit: Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(self) }
}

/// CRC-32 as in gzip: polynomial 0x04C11DB7, reflected. RFC 1952, §8.
func crc32(_ octets: some Sequence<UInt8>) -> UInt32 {
  var crc: UInt32 = .max
  for octet in octets {
    crc ^= UInt32(octet)
    for _ in 0..<8 { crc = crc & 1 == 0 ? crc >> 1 : crc >> 1 ^ 0xEDB8_8320 }
  }
  return ~crc
}
