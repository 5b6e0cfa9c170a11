import BindruneATT
import BindruneWire
import Foundation
import BindruneHCI
import BindruneL2CAP
import TestSupport
import Testing

// snippet 2
/// `0A 03 00`: octets as this course writes them.
func hex(_ octets: [UInt8]) -> String {
  octets.map { ($0 < 16 ? "0" : "") + String($0, radix: 16, uppercase: true) }.joined(separator: " ")
}
/// What `write` appends to an empty packet.
func written(_ write: (inout OutputRawSpan) throws(WireError) -> Void) throws(WireError) -> [UInt8] {
  var packet = PacketBuffer()
  _ = try packet.fill { output throws(WireError) in
    try write(&output)
    return true
  }
  return packet.bytes
}
// end

@Suite("Course 1: a packet by hand", .hang) struct Chapter1 {
  @Test func page() throws {
    try course("01-a-packet-by-hand", exercises: [5, 5]) { page in
      // snippet
      let question: [UInt8] = [0x0A, 0x03, 0x00]
      print(hex(question))
      page.shows()

      // snippet
      var request = ReadRequest()
      request.attributeHandle = AttributeHandle(rawValue: 0x0003)
      let theirs = try written { output throws(WireError) in
        try ATTPDU.readRequest(request).encode(into: &output, from: Span())
      }
      print(hex(theirs), theirs == question ? "the same" : "another packet")
      page.shows()

      // snippet
      let length = UInt16(question.count), channel: UInt16 = 0x0004
      let frame = [UInt8(length & 0xFF), UInt8(length >> 8), UInt8(channel & 0xFF), UInt8(channel >> 8)] + question
      let packet = [0x02, 0x40, 0x00, UInt8(frame.count), 0x00] + frame
      print(hex(packet))
      page.shows()

      // snippet
      let acl = try ACLPacket(packet.span)
      let l2cap = try WireDecoder.decode(L2CAPFrame.self, packet.span, from: Int(acl.data.offset))
      let pdu = l2cap.informationPayload.array(in: packet.span)
      print("link", acl.handle.text, "channel", l2cap.channelID.text)
      print(try ATTPDU(pdu.span).describe(in: pdu.span))
      page.shows()

      // snippet
      do {
        _ = try ATTPDU([0x0C, 0x03, 0x00, 0x16].span)
      } catch {
        print(error)
      }
      page.shows()
    }
  }

  /// The workbench has the functions that the first page shows, and its first program.
  @Test func workbench() throws {
    let bench = try String(contentsOf: Page.root.appending(path: "Examples/Workbench/main.swift"), encoding: .utf8)
    let helpers = try Snippet.all(in: String(contentsOfFile: #filePath, encoding: .utf8))[0]
    #expect(bench.contains(helpers.lines.joined(separator: "\n")))
    #expect(bench.contains("let question: [UInt8] = [0x0A, 0x03, 0x00]\nprint(hex(question))\n"))
  }
}
