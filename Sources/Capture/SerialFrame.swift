import BindruneWire
import BindruneHCI

extension CaptureRecord {
  /// The packet in a frame of the three-wire transport (Vol 4, Part D, §4.1) or of the BlueCore Serial Protocol, whose
  /// header has the same four octets: sequence numbers and flags, packet type and length, a checksum. A frame that
  /// still has its SLIP delimiters (Vol 4, Part D, §3) is unpacked in place.
  ///
  /// Frames of the transport itself, such as acknowledgements, stay notes with their type.
  mutating func takeFromSerialFrame(isThreeWire: Bool, _ bytes: inout MutableSpan<UInt8>) {
    var start = Int(octets.offset), end = start + Int(octets.count)
    // A header may begin with the octet of a delimiter: its checksum decides.
    if !Self.isSerialHeader(bytes.span, start, end), end - start >= 2, bytes[start] == 0xC0 {
      var written = start, at = start + 1
      while at < end, bytes[at] != 0xC0 {
        var octet = bytes[at]
        if octet == 0xDB, at + 1 < end {
          at += 1
          octet = bytes[at] == 0xDC ? 0xC0 : bytes[at] == 0xDD ? 0xDB : bytes[at]
        }
        bytes[written] = octet
        written += 1
        at += 1
      }
      end = written
    }
    let isHeader = Self.isSerialHeader(bytes.span, start, end)
    let count = isHeader ? Int(bytes[start + 1] >> 4) | Int(bytes[start + 2]) << 4 : 0
    guard isHeader, start + 4 + count <= end else {
      content = .note(0xFF)
      return
    }
    let channel = bytes[start + 1] & 0x0F
    start += 4
    octets = Octets(start, count)
    originalCount = count
    let type: HCIPacketType? =
      if isThreeWire { HCIPacketType(rawValue: channel) } else {
        switch channel {
        case 5: direction == .fromController ? .event : .command
        case 6: .acl
        case 7: .synchronous
        default: nil
        }
      }
    if let type { prepend(type) } else { content = .note(channel) }
  }

  private static func isSerialHeader(_ bytes: Span<UInt8>, _ start: Int, _ end: Int) -> Bool {
    end - start >= 4 && (0..<4).reduce(UInt8(0)) { $0 &+ bytes[start + $1] } == 0xFF
  }
}
