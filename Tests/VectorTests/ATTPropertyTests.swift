import BindruneATT
import BindruneWire
import TestSupport
import Testing

/// WireArbitrary × every PDU, and bad input: value → bytes → value; what decodes encodes to the same octets.
@Suite struct ATTPropertyTests {
  @Test(arguments: ATTOpcode.all) func valuesGoThroughBytes(_ opcode: ATTOpcode) throws {
    var arbitrary = WireArbitrary(SplitMix64(seed: Fuzz.seed))
    for round in 0..<500 {
      let pdu = try ATTPDU(opcode, &arbitrary)
      let packet = try encode(pdu, from: arbitrary.arena.span)
      let again = try ATTPDU(packet.span)
      let text = pdu.describe(in: arbitrary.arena.span)
      #expect(again.opcode == opcode && packet.first == opcode.rawValue)
      #expect(again.describe(in: packet.span) == text, "\(opcode), round \(round), seed \(Fuzz.seed)")
      #expect(try encode(again, from: packet.span) == packet, "\(opcode), round \(round), seed \(Fuzz.seed)")
      // Ranges have 16 bits in lists: a new arena begins before their limit.
      if arbitrary.arena.count > 40_000 { arbitrary = WireArbitrary(arbitrary.chance) }
    }
  }

  /// Encoding a PDU into an output that is too small is an error and writes nothing.
  @Test func noRoomIsAnError() throws {
    for vector in try VectorFile("att.txt").vectors {
      let pdu = try ATTPDU(vector.octets.span)
      for room in vector.octets.indices {
        var buffer = PacketBuffer(capacity: 64)
        var written = -1
        var isRefused = false
        _ = buffer.fill { output in
          for _ in 0..<(64 - room) { output.append(0) }
          do throws(WireError) { try pdu.encode(into: &output, from: vector.octets.span) } catch {
            if case .noRoom = error.reason { isRefused = true }
          }
          written = output.byteCount
          return true
        }
        #expect(isRefused && written == 64 - room, "\(vector), room for \(room)")
      }
    }
  }

  /// Encoding from another packet is an error if the ranges do not lie within it, never a trap.
  @Test func theWrongSourceIsAnError() throws {
    for vector in try VectorFile("att.txt").vectors {
      let pdu = try ATTPDU(vector.octets.span)
      for count in vector.octets.indices {
        let shorter = Array(vector.octets[..<count])
        do throws(WireError) { _ = try encode(pdu, from: shorter.span) } catch {
          guard case .outsideSource(_, UInt16(count)) = error.reason else { throw error }
        }
        _ = pdu.describe(in: shorter.span)
      }
    }
  }

  @Test func badInputIsAnErrorAndWhatDecodesEncodesEqual() throws {
    let samples = try VectorFile("att.txt").vectors.map(\.octets)
    var decoded = 0
    for packet in Fuzz(samples) {
      do throws(WireError) {
        let pdu = try ATTPDU(packet.span)
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
