import BindruneWire
import BindruneHCI

/// Who sent the ACL packets of a capture without directions: the host begins a frame with another flag than the
/// controller (Vol 4, Part E, §5.4.2), and a fragment belongs to the side whose frame lacks octets.
///
/// Memory is bounded: the links are those of a handle's 12 bits.
struct InferredDirections: Sendable {
  /// Octets that the frames of the host and of the controller still lack, by handle.
  private var missing: [UInt16: (host: Int, controller: Int)] = [:]

  /// `packet`: from its handle on.
  mutating func direction(_ packet: Span<UInt8>) -> HCIDirection? {
    guard packet.count >= 4 else { return nil }
    let word = packet.little16(0), length = Int(packet.little16(2)), handle = word & 0x0FFF
    var open = missing[handle] ?? (0, 0)
    let direction: HCIDirection
    switch PacketBoundaryFlag(rawValue: UInt8(truncatingIfNeeded: word >> 12 & 3)) {
    case .continuing:
      direction = open.host > 0 ? .fromHost : .fromController
      if direction == .fromHost { open.host -= length } else { open.controller -= length }
    case .firstNonFlushable:
      direction = .fromHost
      open.host = Self.lacking(packet, length)
    default:
      direction = .fromController
      open.controller = Self.lacking(packet, length)
    }
    missing[handle] = open.host > 0 || open.controller > 0 ? open : nil
    return direction
  }
  /// What the frame lacks whose beginning the packet has.
  private static func lacking(_ packet: Span<UInt8>, _ length: Int) -> Int {
    packet.count >= 6 && length >= 2 ? 4 + Int(packet.little16(4)) - length : 0
  }
}

extension CaptureParser {
  /// The direction of an ACL packet that has none. `record`: its packet's type octet first.
  @inline(never) mutating func infer(_ record: inout CaptureRecord, _ bytes: Span<UInt8>) {
    guard record.content == .packet, record.octets.count > 4, record.missingType == nil,
      bytes[Int(record.octets.offset)] == HCIPacketType.acl.rawValue
    else { return }
    record.direction = directions.direction(bytes.extracting(record.octets.range).extracting(droppingFirst: 1))
  }
}
