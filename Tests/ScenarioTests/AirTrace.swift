import BindruneATT
import BindruneSimulator
import BindruneHCI
import TestSupport
import Testing

/// Checks the Attribute Protocol in the packets between hosts and controllers, independently of the stack.
struct AirTrace {
  private typealias Stream = AirFrames.Stream
  private var frames = AirFrames()
  /// The request or indication without an answer.
  private var requests: [Stream: UInt8] = [:]
  private var indications: Set<Stream> = []
  private(set) var faults: [String] = []
  private(set) var requestCount = 0

  mutating func check(_ records: [PacketRecord]) { for record in records { check(record) } }

  private mutating func check(_ record: PacketRecord) {
    for sight in frames.read(record) {
      switch sight {
      case .reset: forget { $0.controller == record.controller }
      case .linkDown(let handle): forget { $0.controller == record.controller && $0.handle == handle }
      case .payload(let stream, 4, let pdu): if let opcode = pdu.first { check(pdu: opcode, on: stream, record) }
      case .fault(let fault): faults.append("\(record.time): \(fault)")
      case .linkUp, .began, .payload: break
      }
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
    requests = requests.filter { !isMeant($0.key) }
    indications = indications.filter { !isMeant($0) }
  }
}
