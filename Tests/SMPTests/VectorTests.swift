import BindruneWire
import BindruneSMP
import TestSupport
import Testing

/// Fixtures/Vectors/smp.txt, both ways, and every prefix.
@Suite struct SMPVectorTests {
  let file: VectorFile
  init() throws { file = try VectorFile("smp.txt") }

  func roundTrip(_ octets: [UInt8]) throws(WireError) -> (text: String, octets: [UInt8]) {
    let pdu = try SMPPDU(octets.span)
    return (pdu.describe(in: octets.span), try encode(pdu, from: octets.span))
  }

  @Test func everyVectorGoesBothWays() throws {
    let wrong = try file.check(roundTrip) { octets in (try? SMPPDU(octets.span).layout) ?? [] }
    #expect(wrong.isEmpty, "\(wrong.joined(separator: "\n"))")
  }

  @Test func everyPDUHasAVector() throws {
    let present = Set(file.vectors.map { $0.octets[0] })
    for code in (0...0xFF).map(SMPCode.init(rawValue:)) {
      #expect((code.name != nil) == code.isKnown && SMPCode.all.contains(code) == code.isKnown, "\(code)")
    }
    for code in SMPCode.all { #expect(present.contains(code.rawValue), "\(code) has no vector") }
    for vector in file.vectors { #expect("\(try SMPPDU(vector.octets.span).name)" == vector.name, "\(vector)") }
  }

  @Test(arguments: [
    ("", #"truncated "Code": needed 1, available 0"#),
    ("0F", #"unknown "Code": 0x0F"#),
    ("01 03 02 01 10 00 00", #"invalid "OOB Data Flag": 0x02"#),
    ("01 03 00 01 06 00 00", #"invalid "Maximum Encryption Key Size": 0x06"#),
    ("02 03 00 01 11 00 00", #"invalid "Maximum Encryption Key Size": 0x11"#),
    ("03 00", #"truncated "Confirm Value": needed 16, available 1"#),
    ("05", #"truncated "Reason": needed 1, available 0"#),
    ("05 04 00", "trailing: 1 octets after the last field"),
    ("09 02 01 53 00 5E 00 00", #"invalid "AddrType": 0x02"#),
  ])
  func wrongOctetsNameTheField(_ packet: String, _ expected: String) {
    let packet = octets(packet)
    do throws(WireError) {
      Issue.record("\(hex(packet)) decodes to \(try SMPPDU(packet.span).name)")
    } catch {
      #expect(error.description == expected)
    }
  }

  /// Three PDUs have a key; their texts have the number of its octets.
  @Test func textsHideKeys() throws {
    for vector in file.vectors where [0x06, 0x08, 0x0A].contains(vector.octets[0]) {
      let text = try SMPPDU(vector.octets.span).describe(in: vector.octets.span)
      #expect(text.hasSuffix(": (secret, 16 octets)"), "\(text)")
    }
  }
}

/// WireArbitrary × every PDU, and bad input.
@Suite struct SMPPropertyTests {
  @Test(arguments: SMPCode.all) func valuesGoThroughBytes(_ code: SMPCode) throws {
    var arbitrary = WireArbitrary(SplitMix64(seed: Fuzz.seed))
    for round in 0..<500 {
      let pdu = try SMPPDU(code, &arbitrary)
      let packet = try encode(pdu, from: arbitrary.arena.span)
      let again = try SMPPDU(packet.span)
      #expect(again.code == code && packet.first == code.rawValue)
      #expect(again.describe(in: packet.span) == pdu.describe(in: arbitrary.arena.span))
      #expect(try encode(again, from: packet.span) == packet, "\(code), round \(round), seed \(Fuzz.seed)")
    }
  }

  @Test func badInputIsAnErrorAndWhatDecodesEncodesEqual() throws {
    var decoded = 0
    for packet in Fuzz(try VectorFile("smp.txt").vectors.map(\.octets), longest: 70) {
      do throws(WireError) {
        let pdu = try SMPPDU(packet.span)
        decoded += 1
        _ = pdu.describe(in: packet.span)
        let again = try encode(pdu, from: packet.span)
        if again != packet { Issue.record("\(hex(packet)) encodes to \(hex(again))") }
      } catch {
        if case .noRoom = error.reason { Issue.record("\(hex(packet)): \(error)") }
      }
    }
    #expect(decoded > Fuzz.cases / 20)
  }
}

/// The octets of `pdu`.
func encode(_ pdu: SMPPDU, from source: Span<UInt8>) throws(WireError) -> [UInt8] {
  var buffer = PacketBuffer(capacity: 128)
  var failure: WireError?
  _ = buffer.fill { output in
    do throws(WireError) { try pdu.encode(into: &output, from: source) } catch { failure = error }
    return failure == nil
  }
  if let failure { throw failure }
  return buffer.bytes
}
