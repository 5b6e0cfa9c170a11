import BindruneATT
import BindruneWire
import TestSupport
import Testing

/// Fixtures/Vectors/att.txt, both ways, and every prefix.
@Suite struct ATTVectorTests {
  let file: VectorFile
  init() throws { file = try VectorFile("att.txt") }

  func roundTrip(_ octets: [UInt8]) throws(WireError) -> (text: String, octets: [UInt8]) {
    let pdu = try ATTPDU(octets.span)
    return (pdu.describe(in: octets.span), try encode(pdu, from: octets.span))
  }

  @Test func everyVectorGoesBothWays() throws {
    let wrong = try file.check(roundTrip) { octets in (try? ATTPDU(octets.span).layout) ?? [] }
    #expect(wrong.isEmpty, "\(wrong.joined(separator: "\n"))")
  }

  @Test func everyPDUHasAVector() {
    let present = Set(file.vectors.map { $0.octets[0] })
    // The properties of each opcode agree with the decoding switch.
    for opcode in (0...0xFF).map(ATTOpcode.init(rawValue:)) {
      #expect((opcode.name != nil) == opcode.isKnown, "\(opcode)")
    }
    for opcode in ATTOpcode.all { #expect(present.contains(opcode.rawValue), "\(opcode) has no vector") }
  }

  @Test func vectorsAreNamedAsTheirPDUs() throws {
    for vector in file.vectors {
      let pdu = try ATTPDU(vector.octets.span)
      #expect("\(pdu.name)" == vector.name, "\(vector)")
      #expect(pdu.opcode.rawValue == vector.octets[0], "\(vector)")
    }
  }

  @Test func anOctetTooManyIsTrailing() throws {
    for vector in file.vectors {
      guard try ATTPDU(vector.octets.span).layout.allSatisfy({ $0.width != nil }) else { continue }
      let longer = vector.octets + [0]
      do throws(WireError) {
        _ = try ATTPDU(longer.span)
        Issue.record("\(vector): one octet more decodes")
      } catch {
        #expect(error.reason == .trailing(1), "\(vector): \(error)")
      }
    }
  }

  @Test(arguments: [
    ("05 03 01 00 00 2A", #"invalid "Format": 0x03"#),
    ("05 01 01 00 00", #"truncated "Information Data": needed 4, available 3"#),
    ("07", #"truncated "Handles Information List": needed 4, available 0"#),
    ("08 01 00 FF FF 00 28 00", #"wrong length "Attribute Type": 3, expected 16"#),
    ("09 01 00 00", #"wrong length "Length": 1, expected 2"#),
    ("09 00", #"wrong length "Length": 0, expected 2"#),
    ("09 07 02 00 02 03 00 00 2A 04", #"truncated "Attribute Data List": needed 7, available 1"#),
    ("11 03 00 00 00", #"wrong length "Length": 3, expected 4"#),
    ("0E 03 00", #"truncated "Set Of Handles": needed 4, available 2"#),
    ("23 03 00 05 00 AA", #"truncated "Attribute Value": needed 5, available 1"#),
    ("D2 03 00 AA", #"truncated "Authentication Signature": needed 12, available 1"#),
    ("14 00", #"unknown "Opcode": 0x14"#),
    ("", #"truncated "Opcode": needed 1, available 0"#),
  ])
  func wrongOctetsNameTheField(_ packet: String, _ expected: String) {
    let packet = octets(packet)
    do throws(WireError) {
      Issue.record("\(hex(packet)) decodes to \(try ATTPDU(packet.span).name)")
    } catch {
      #expect(error.description == expected)
    }
  }
}

/// The octets of `pdu`; the output has room for any PDU.
func encode(_ pdu: ATTPDU, from source: Span<UInt8>) throws(WireError) -> [UInt8] {
  var buffer = PacketBuffer(capacity: 1024)
  var failure: WireError?
  _ = buffer.fill { output in
    do throws(WireError) { try pdu.encode(into: &output, from: source) } catch { failure = error }
    return failure == nil
  }
  if let failure { throw failure }
  return buffer.bytes
}
