import BindruneSimulator

/// The L2CAP frames in the packets between hosts and controllers, recombined here independently, so that no part of the
/// stack judges itself. Vol 4, Part E, §5.4.2; Vol 3, Part A, §3.1.
struct AirFrames {
  /// One direction of one link at one controller.
  struct Stream: Hashable {
    var controller: ControllerID, handle: UInt16, isToHost: Bool
    var reverse: Stream { Stream(controller: controller, handle: handle, isToHost: !isToHost) }
  }
  enum Sight {
    /// HCI_Reset: all links of this controller have ended.
    case reset
    /// Disconnection Complete of this handle.
    case linkDown(UInt16)
    /// (Enhanced) Connection Complete without an error: the handle, and the peer's address, least significant octet
    /// first.
    case linkUp(UInt16, peer: [UInt8])
    /// The first packet of a frame: the length of its payload, and as many octets of it as the packet carries.
    case began(Stream, channel: UInt8, length: Int, first: [UInt8])
    /// A frame is complete.
    case payload(Stream, channel: UInt8, [UInt8])
    case fault(String)
  }
  private var frames: [Stream: [UInt8]] = [:]

  /// The events of one packet, in order.
  mutating func read(_ record: PacketRecord) -> [Sight] {
    let bytes = record.bytes
    switch bytes[0] {
    case 1 where bytes[1] == 0x03 && bytes[2] == 0x0C:
      frames = frames.filter { $0.key.controller != record.controller }
      return [.reset]
    case 4 where bytes[1] == 0x05 && bytes[3] == 0:
      let handle = UInt16(bytes[4]) | UInt16(bytes[5]) << 8
      frames = frames.filter { $0.key.controller != record.controller || $0.key.handle != handle }
      return [.linkDown(handle)]
    case 4 where bytes[1] == 0x3E && [0x01, 0x0A].contains(bytes[3]) && bytes[4] == 0:
      return [.linkUp(UInt16(bytes[5]) | UInt16(bytes[6]) << 8, peer: Array(bytes[9..<15]))]
    case 2: return readData(record)
    default: return []
    }
  }
  private mutating func readData(_ record: PacketRecord) -> [Sight] {
    let bytes = record.bytes, word = UInt16(bytes[1]) | UInt16(bytes[2]) << 8
    let stream = Stream(controller: record.controller, handle: word & 0x0FFF, isToHost: record.isToHost)
    var sights: [Sight] = []
    if word >> 12 & 0b11 == 0b01 {
      frames[stream, default: []] += bytes[5...]
    } else {
      if let left = frames[stream], !left.isEmpty { sights.append(.fault("a frame that was not completed")) }
      frames[stream] = Array(bytes[5...])
      if bytes.count >= 9 {
        let length = Int(bytes[5]) | Int(bytes[6]) << 8
        sights.append(.began(stream, channel: bytes[7], length: length, first: Array(bytes[9...])))
      }
    }
    guard let frame = frames[stream], frame.count >= 4 else { return sights }
    let length = Int(frame[0]) | Int(frame[1]) << 8
    guard frame.count >= 4 + length else { return sights }
    frames[stream] = []
    if frame.count > 4 + length { sights.append(.fault("a frame longer than it says")) }
    return sights + [.payload(stream, channel: frame[2], Array(frame[4..<4 + length]))]
  }
}
