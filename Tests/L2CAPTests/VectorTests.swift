import BindruneWire
import BindruneHCI
import BindruneL2CAP
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

  @Test func everyMessageHasAVector() throws {
    var declared = Declared()
    try AnySignal.each(&declared)
    for vector in file.vectors where vector.name != "B-frame" {
      #expect(declared.codes["\(vector.name)"] == vector.octets[4], "\(vector)")
    }
    #expect(Set(declared.codes.keys).union(["B-frame"]) == Set(file.vectors.map(\.name)))
  }

  @Test func writtenCommandsAreTheVectors() throws {
    for vector in file.vectors where vector.name != "B-frame" {
      let frame = Array(vector.octets[L2CAPFrame.headerCount...])
      let signal = try #require(try AnySignal(frame.span))
      var buffer = PacketBuffer()
      _ = try buffer.fill { output throws(WireError) in
        try signal.writeCommand(identifier: frame[1], into: &output, from: frame.span)
        return true
      }
      #expect(buffer.bytes == frame, "\(vector)")
    }
  }
}

/// The signals of this stack.
private struct Declared: WireMessageVisitor {
  var codes: [String: UInt8] = [:]
  mutating func visit<M: WireMessage>(_: M) { codes["\(M.name)"] = UInt8(M.messageNumber) }
}

private protocol RecordVisitor: WireMessageVisitor {
  mutating func record<R: WireRecord>(_: R.Type, from field: Int) throws(WireError)
}
extension RecordVisitor {
  mutating func visit<M: WireMessage>(_: M) throws(WireError) { try record(Command<M>.self, from: 5) }
}
private func visit(_ packet: [UInt8], _ visitor: inout some RecordVisitor) throws(WireError) {
  guard packet.count >= 4, packet[2] == 5 else { return try visitor.record(L2CAPFrame.self, from: 0) }
  var defaults = WireDefaults()
  guard packet.count > 4, let signal = try AnySignal(SignalCode(rawValue: packet[4]), &defaults) else {
    throw WireError.truncated("Code", needed: 1, available: 0)
  }
  try signal.visit(&visitor)
}
private struct Command<S: WireMessage>: WireRecord {
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
  mutating func record<R: WireRecord>(_: R.Type, from field: Int) throws(WireError) {
    let record = try WireDecoder.decode(R.self, packet.span)
    // The headers' fields are always the same; the text begins after them.
    let fields = record.description(in: packet.span)
    text = fields.split(separator: ", ").dropFirst(field).joined(separator: ", ")
    octets = try record.encoded(from: packet.span)
  }
}
private struct Fields: RecordVisitor {
  var fields: [WireLayout.Field] = []
  mutating func record<R: WireRecord>(_: R.Type, from field: Int) { fields = R.layout }
}
