import BindruneWire
import BindruneHCI
import BindruneL2CAP
import TestSupport
import Testing

// snippet 2
/// Joins the frames of one link from its ACL packets. Vol 3, Part A, §7.2.2.
struct Joiner {
  enum Fault: Error { case noBeginning, tooMuch, unfinished }
  struct Frame { var channel: UInt16, payload: [UInt8] }
  private var octets: [UInt8] = []
  private var isCollecting = false

  /// One ACL packet; the result is the frame that it completes.
  mutating func receive(_ packet: [UInt8]) throws -> Frame? {
    let acl = try ACLPacket(packet.span)
    if acl.packetBoundaryFlag == .continuing {
      guard isCollecting else { throw Fault.noBeginning }
    } else {
      if isCollecting {
        isCollecting = false
        throw Fault.unfinished
      }
      octets = []
      isCollecting = true
    }
    octets += acl.data.array(in: packet.span)

    // The fragment may be shorter than the header: then nobody knows the length yet.
    guard octets.count >= 4 else { return nil }
    let length = Int(octets[0]) | Int(octets[1]) << 8
    guard octets.count >= 4 + length else { return nil }
    isCollecting = false
    guard octets.count == 4 + length else { throw Fault.tooMuch }
    return Frame(channel: UInt16(octets[2]) | UInt16(octets[3]) << 8, payload: Array(octets[4...]))
  }
}
// end

// snippet 3
/// The ACL packets in which the stack sends a frame, each with at most `length` octets of it.
func fragments(_ payload: [UInt8], _ channel: ChannelID, length: Int) -> [[UInt8]] {
  var fragmenter = Fragmenter(longestPayload: payload.count), packet = PacketBuffer(capacity: 9 + payload.count)
  let link = ConnectionHandle(rawValue: 0x0040)
  _ = packet.fill { output in
    Fragmenter.begin(&output)
    output.append(contentsOf: payload.span)
    fragmenter.seal(from: 0, on: channel, of: link, aclLength: length, &output)
    return true
  }
  var packets = [packet.bytes]
  while packet.fill({ fragmenter.writeNext(of: link, aclLength: length, into: &$0) }) { packets.append(packet.bytes) }
  return packets
}
// end

@Suite("Course 3: L2CAP", .hang) struct Chapter3 {
  @Test func page() throws {
    try course("03-l2cap-in-forty-lines", exercises: [10, 10]) { page in
      // snippet
      var frame = L2CAPFrame(ChannelID.attribute, Octets(0, 3))
      frame.pduLength = 3
      let octets = try frame.encoded(from: [0x0A, 0x03, 0x00].span)
      print(hex(octets))
      page.shows()

      // snippet 4
      let name = [0x0B] + Array("Heart Rate Sensor in the kitchen".utf8)
      var joiner = Joiner()
      for packet in fragments(name, .attribute, length: 20) {
        let joined = try joiner.receive(packet)
        print(hex(packet), joined.map { "→ \($0.payload.count) octets for channel \($0.channel)" } ?? "")
      }
      page.shows()

      // snippet 5
      var chance = SystemRandomNumberGenerator()
      for _ in 0..<1000 {
        let payload = (0..<Int.random(in: 0...600, using: &chance)).map { UInt8(truncatingIfNeeded: $0) }
        let packets = fragments(payload, .attribute, length: Int.random(in: 1...251, using: &chance))
        let joined = try packets.compactMap { try joiner.receive($0) }
        guard joined.count == 1, joined[0].payload == payload else { fatalError("\(packets.map(hex))") }
      }
      print("1000 frames, all whole")
      page.shows()

      // snippet 6
      do {
        for packet in [fragments(name, .attribute, length: 20)[0], fragments([0x13], .attribute, length: 20)[0]] {
          _ = try joiner.receive(packet)
        }
      } catch {
        print("a frame that never ended:", error)
      }
      page.shows()
    }
  }
}
