import Foundation
import Testing

@Suite("Tool: explain", .realTime, .hang) struct ToolExplainTests {
  @Test func spellingsOfOctets() async throws {
    let plain = try await Tool.run(["explain", "0A", "03", "00"])
    #expect(plain.status == 0 && plain.output.contains("ATT_READ_REQ"))
    for spelling in ["0a0300", "0A:03:00", "0x0A, 0x03, 0x00", "0A 03\n00"] {
      #expect(try await Tool.run(["explain", spelling]).output == plain.output)
    }
    #expect(try await Tool.shell("echo 0A 03 00 | bindrune explain -").end().output == plain.output)
  }
  @Test func namesOfUUIDs() async throws {
    let run = try await Tool.run(["explain", "--as", "att", "08 01 00 FF FF 03 28"])
    #expect(run.output.contains("Attribute Type: 0x2803 (Characteristic)"), "\(run.output)")
  }
  @Test(arguments: [("0A 0G", "Character 5"), ("0A 3", "one digit"), ("  ", "no octets")])
  func badDigits(text: String, cause: String) async throws {
    let run = try await Tool.run(["explain", text])
    #expect(run.status != 0 && run.errors.contains(cause), "\(run.errors)")
  }
  @Test func wrongOctetsAndJSON() async throws {
    let run = try await Tool.run(["explain", "--as", "att", "--json", "0A 03"])
    let object = try #require(try run.objects().first)
    #expect(run.status != 0 && object["sound"] as? Bool == false && object["as"] as? String == "att")
  }
}
