import ATT
import BindruneSimulator
import HCI
import TestSupport
import Testing

/// What the packets between hosts and controllers say about the Attribute Protocol, from the outside: L2CAP frames are put
/// together here once more, so that nothing of the stack judges itself.
struct AirTrace {
  /// One direction of one link at one controller.
  private struct Stream: Hashable {
    var controller: ControllerID, handle: UInt16, isToHost: Bool
    var reverse: Stream { Stream(controller: controller, handle: handle, isToHost: !isToHost) }
  }
  private var frames: [Stream: [UInt8]] = [:]
  /// The request, or indication, that has no answer yet.
  private var requests: [Stream: UInt8] = [:]
  private var indications: Set<Stream> = []
  private(set) var faults: [String] = []
  private(set) var requestCount = 0

  mutating func check(_ records: [PacketRecord]) { for record in records { check(record) } }

  private mutating func check(_ record: PacketRecord) {
    let bytes = record.bytes
    switch bytes[0] {
    case 1 where bytes[1] == 0x03 && bytes[2] == 0x0C: forget { $0.controller == record.controller }
    case 4 where bytes[1] == 0x05:
      let handle = UInt16(bytes[4]) | UInt16(bytes[5]) << 8
      forget { $0.controller == record.controller && $0.handle == handle }
    case 2:
      let word = UInt16(bytes[1]) | UInt16(bytes[2]) << 8
      let stream = Stream(controller: record.controller, handle: word & 0x0FFF, isToHost: record.isToHost)
      if word >> 12 & 0b11 == 0b01 {
        frames[stream, default: []] += bytes[5...]
      } else {
        if let left = frames[stream], !left.isEmpty { faults.append("\(record.time): a frame that was not completed") }
        frames[stream] = Array(bytes[5...])
      }
      guard let frame = frames[stream], frame.count >= 4 else { return }
      let length = Int(frame[0]) | Int(frame[1]) << 8
      guard frame.count >= 4 + length else { return }
      frames[stream] = []
      if frame.count > 4 + length { faults.append("\(record.time): a frame longer than it says") }
      if frame[2] == 4, frame[3] == 0, length > 0 { check(pdu: frame[4], on: stream, record) }
    default: break
    }
  }
  /// Vol 3, Part F, §3.3.2.
  private mutating func check(pdu opcode: UInt8, on stream: Stream, _ record: PacketRecord) {
    switch opcode {
    case 0x02, 0x04, 0x06, 0x08, 0x0A, 0x0C, 0x0E, 0x10, 0x12, 0x16, 0x18, 0x20:
      requestCount += 1
      if let other = requests[stream] {
        faults.append("\(record.time) \(stream): request \(hex([opcode])) before the answer to \(hex([other]))")
      }
      requests[stream] = opcode
    case 0x01, 0x03, 0x05, 0x07, 0x09, 0x0B, 0x0D, 0x0F, 0x11, 0x13, 0x17, 0x19, 0x21:
      guard let request = requests.removeValue(forKey: stream.reverse) else {
        return faults.append("\(record.time) \(stream): response \(hex([opcode])) to nothing")
      }
      if opcode != 0x01, opcode != request + 1 {
        faults.append("\(record.time) \(stream): response \(hex([opcode])) to \(hex([request]))")
      }
    case 0x1D:
      if !indications.insert(stream).inserted { faults.append("\(record.time) \(stream): two indications at once") }
    case 0x1E:
      if indications.remove(stream.reverse) == nil {
        faults.append("\(record.time) \(stream): confirmation of nothing")
      }
    default: break
    }
  }
  private mutating func forget(_ isMeant: (Stream) -> Bool) {
    frames = frames.filter { !isMeant($0.key) }
    requests = requests.filter { !isMeant($0.key) }
    indications = indications.filter { !isMeant($0) }
  }
}
