import BindruneWire
import HCI
import L2CAP
import TestSupport
import Testing

@Suite struct VectorTests {
  let file: VectorFile
  init() throws { file = try VectorFile("l2cap.txt") }

  @Test func everyVectorGoesBothWays() throws {
    let wrong = try file.check(
      { packet throws(WireError) in
        var check = RoundTrip(packet: packet)
        try visit(packet, &check)
        return (check.text, check.octets)
      },
      layout: { packet in
        var fields = Fields()
        do throws(WireError) { try visit(packet, &fields) } catch {}
        return fields.fields
      })
    #expect(wrong.isEmpty, "\(wrong.joined(separator: "\n"))")
  }

  @Test func everyMessageHasAVector() {
    let codes = Set(file.vectors.filter { $0.name != "B-frame" }.map { $0.octets[4] })
    for code in 0...UInt8.max { #expect((signal(code) != nil) == codes.contains(code), "code \(code)") }
    #expect(file.vectors.contains { $0.name == "B-frame" })
  }

  @Test func writtenCommandsAreTheVectors() throws {
    for vector in file.vectors where vector.name != "B-frame" {
      let type = try #require(signal(vector.octets[4]))
      #expect(try rewritten(type, vector.octets) == Array(vector.octets[4...]), "\(vector)")
    }
  }
}

/// The signals of this stack.
private func signal(_ code: UInt8) -> (any L2CAPSignal.Type)? {
  let all: [any L2CAPSignal.Type] = [
    CommandRejectResponse.self, DisconnectionRequest.self, ConnectionParameterUpdateRequest.self,
    ConnectionParameterUpdateResponse.self,
  ]
  return all.first { $0.code.rawValue == code }
}
private func rewritten<S: L2CAPSignal>(_: S.Type, _ packet: [UInt8]) throws -> [UInt8] {
  let message = try WireDecoder.decode(S.self, packet.span, from: L2CAPFrame.headerCount + SignalHeader.count)
  var buffer = PacketBuffer()
  _ = try buffer.fill { output throws(WireError) in
    try message.writeCommand(identifier: packet[5], into: &output, from: packet.span)
    return true
  }
  return buffer.bytes
}

private protocol RecordVisitor {
  mutating func visit<R: WireRecord>(_: R.Type, from field: Int) throws(WireError)
}
private func visit(_ packet: [UInt8], _ visitor: inout some RecordVisitor) throws(WireError) {
  if packet.count >= 4, packet[2] == 5 {
    guard packet.count > 4, let type = signal(packet[4]) else {
      throw WireError.truncated("Code", needed: 1, available: 0)
    }
    return try visit(type, &visitor)
  }
  try visitor.visit(L2CAPFrame.self, from: 0)
}
private func visit<S: L2CAPSignal>(_: S.Type, _ visitor: inout some RecordVisitor) throws(WireError) {
  try visitor.visit(Command<S>.self, from: 5)
}
private struct Command<S: L2CAPSignal>: WireRecord {
  var pduLength: UInt16 = 0, channelID = ChannelID(), header = SignalHeader(), signal = S()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("PDU Length", &pduLength)
    try visit.value("Channel ID", &channelID)
    try header.fields(&visit)
    try signal.fields(&visit)
  }
}
private struct RoundTrip: RecordVisitor {
  let packet: [UInt8]
  var text = "", octets: [UInt8] = []
  mutating func visit<R: WireRecord>(_: R.Type, from field: Int) throws(WireError) {
    let record = try WireDecoder.decode(R.self, packet.span)
    // The headers' fields are always the same; the text begins after them.
    let fields = record.description(in: packet.span)
    text = fields.split(separator: ", ").dropFirst(field).joined(separator: ", ")
    octets = try record.encoded(from: packet.span)
  }
}
private struct Fields: RecordVisitor {
  var fields: [WireLayout.Field] = []
  mutating func visit<R: WireRecord>(_: R.Type, from field: Int) { fields = R.layout }
}
