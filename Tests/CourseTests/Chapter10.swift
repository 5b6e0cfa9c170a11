import BindruneATT
import BindruneWire
import TestSupport
import Testing

// snippet 1
/// How a belt sits: an invented PDU.
struct FitReport: WireRecord {
  var sensor = AttributeHandle()
  var contact: UInt8 = 0
  var resistance: UInt16 = 0  // ohms
  var note = Octets()

  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Sensor", &sensor)
    try visit.value("Contact", &contact)
    try visit.value("Resistance", &resistance)
    try visit.octets("Note", &note)
  }
}
// end

// snippet 4
enum Contact: UInt8, ClosedNumber {
  case none = 0
  case weak = 1
  case good = 2
}
struct CheckedReport: WireRecord {
  var contact = Contact.none
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) { try visit.value("Contact", &contact) }
}
// end

@Suite("Course 10: a new PDU", .hang) struct Chapter10 {
  @Test func page() throws {
    try course("10-a-new-pdu", exercises: [10, 15]) { page in
      // snippet 2
      var arena: [UInt8] = []
      var report = FitReport()
      report.sensor = AttributeHandle(rawValue: 0x000A)
      report.contact = 2
      report.resistance = 1500
      report.note = Octets(Array("ok".utf8), in: &arena)

      let octets = try report.encoded(from: arena.span)
      print(hex(octets))
      let decoded = try WireDecoder.decode(FitReport.self, octets.span)
      print(decoded.description(in: octets.span))
      for field in FitReport.layout { print(field.label, "bit", field.bit ?? -1, "width", field.width ?? -1) }
      page.shows()

      // snippet 3
      var chance = SystemRandomNumberGenerator()
      for _ in 0..<1000 {
        var arena: [UInt8] = []
        let report = FitReport.arbitrary(using: &chance, in: &arena)
        let octets = try report.encoded(from: arena.span)
        let again = try WireDecoder.decode(FitReport.self, octets.span).encoded(from: octets.span)
        guard again == octets else { fatalError(hex(octets)) }
      }
      for count in 0..<5 {
        let short = Array(octets[..<count])
        do { _ = try WireDecoder.decode(FitReport.self, short.span) } catch { print(count, error) }
      }
      page.shows()

      // snippet 5
      do { _ = try WireDecoder.decode(CheckedReport.self, [0x07].span) } catch { print(error) }
      page.shows()
    }
  }
}
