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

  /// A form that nobody named, and that no header of HCI decides, is a guess.
  @Test func guesses() async throws {
    #expect(try await Tool.run(["explain", "02 01 06"]).output.contains("which is a guess; --as also fits: ad."))
    let run = try await Tool.run(["explain", "--json", "04 0E 0E 01 16 20 00 00 00 00 00 00 00 00 00 00 00"])
    let object = try #require(try run.objects().first)
    #expect(run.status == 1 && object["as"] as? String == "hci" && object["guessed"] as? Bool == false)
    #expect(object["also"] as? [String] == ["smp"])
  }

  // MARK: A packet of a trace

  @Test func traceOnStandardInput() async throws {
    let plain = try await Tool.run(["explain", Self.trace + ":262"]).output
      .replacing(Self.trace, with: "standard input")
    let piped = try await Tool.shell("bindrune explain -:262 < \(Self.trace)").end()
    #expect(piped.status == 0 && piped.output == plain && plain.contains("standard input"))
    let object = try await Tool.shell("bindrune explain -:262 --json < \(Self.trace)").end()
    #expect(object.status == 0 && object.output.hasPrefix("{"))
    let none = try await Tool.shell("bindrune explain -:99999 < \(Self.trace)").end()
    #expect(none.status == 1 && none.errors.contains("has no packet 99999"))
  }

  private static let trace = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures/Traces/bumble-peripheral-mtu-517.btsnoop").path
  /// Records 260 … 262 are the fragments of one response.
  @Test func fragmentsOfATrace() async throws {
    let whole = try await Tool.run(["explain", Self.trace + ":262"])
    #expect(whole.output.contains("whose fragments are in the frames 260, 261, 262."), "\(whole.output)")
    #expect(whole.status == 0 && whole.output.contains("ATT_READ_RSP"))
    let run = try await Tool.run(["explain", "--json", Self.trace + ":262"])
    let objects = try run.objects()
    #expect(objects.count == 1 && objects[0]["frames"] as? [Int] == [260, 261, 262], "\(run.output)")
    let rows = try #require(objects[0]["rows"] as? [[String: Any]])
    #expect(rows.compactMap { $0["octets"] as? String }.joined(separator: " ") == objects[0]["octets"] as? String)
    // One fragment alone is the HCI packet that it is.
    let first = try await Tool.run(["explain", Self.trace + ":260"])
    #expect(first.output.contains("HCI ACL Data") && !first.output.contains("fragments are"), "\(first.output)")
  }
  @Test(arguments: [
    (Self.trace + ":1000000", "has no packet 1000000"), ("nowhere.btsnoop:3", "Cannot open nowhere"),
    (Self.trace, "names no packet: packets are numbered from 1, so the first is \(Self.trace):1."),
    (Self.trace + ":0", "names no packet"), (Self.trace + ":x", "names no packet"),
  ])
  func noSuchPacket(place: String, cause: String) async throws {
    let run = try await Tool.run(["explain", place])
    #expect(run.status != 0 && run.errors.contains(cause), "\(run.errors)")
  }
}
