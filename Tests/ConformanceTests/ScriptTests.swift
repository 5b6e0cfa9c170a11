import ATT
import BindruneConformance
import Foundation
import TestSupport
import Testing

/// Runs `Fixtures/Scripts` against our own stack, as `bindrune conform Fixtures/Scripts` does.
@Suite struct ScriptTests {
  static let folder = VectorFile.fixtures.appending(path: "Scripts").path
  static let files = (try? ScriptFile.all([folder])) ?? []

  /// `GATT/SR/GAR/BV-01-C`
  static func name(_ file: ScriptFile) -> String { String(file.name.dropFirst(folder.count + 1)) }

  static func run(_ script: Script, _ file: ScriptFile) throws -> Verdict {
    let database = try script.database.map { try ScriptFile.database(file.neighbour($0)) } ?? DatabaseFile()
    return Runner.run(script, against: StackTarget(database))
  }

  @Test func thereAreManyOfThem() {
    #expect(Self.files.count >= 150)
    #expect(Set(Self.files.map(\.path)).count == Self.files.count)
  }

  /// `IDS.md` gives the source of each test ID among the names.
  @Test func everyTestIDIsListed() throws {
    let listed = try TextFile.read("\(Self.folder)/IDS.md").split(separator: "\n")
      .filter { $0.hasPrefix("| GATT/") }.compactMap { $0.split(separator: " ").dropFirst().first.map(String.init) }
    let used = Self.files.map(Self.name)
      .filter { $0.hasPrefix("GATT/") && $0.wholeMatch(of: /GATT\/(?:CL|SR)\/[A-Z]+\/B[IV]-\d\d-C/) != nil }
    #expect(listed.sorted() == used.sorted())
    #expect(used.count >= 100)
  }

  @Test(arguments: files.map(\.path)) func passes(_ path: String) throws {
    let file = ScriptFile(path: path), script = try file.script(), verdict = try Self.run(script, file)
    #expect(verdict.outcome == .passed, "\(Self.name(file)): \(verdict.transcript.suffix(6))")
    #expect(script.side != nil && script.section.contains("§"), "a script names the side under test and the section")
    #expect(Self.name(file).contains("/CL/") ? script.side == .client : true)
    #expect(Self.name(file).contains("/SR/") ? script.side == .server : true)
  }

  /// A script with a wrong expectation fails in that line: so the runner checks every line of every script.
  @Test(arguments: files.map(\.path)) func failsWhereAnotherAnswerIsExpected(_ path: String) throws {
    let file = ScriptFile(path: path), script = try file.script()
    for (index, step) in script.steps.enumerated() {
      guard case .expect(let alternatives) = step.action, alternatives.count == 1,
        case .pdu(var pattern) = alternatives[0],
        let at = pattern.parts.lastIndex(where: { if case .octet = $0 { true } else { false } }),
        case .octet(let octet) = pattern.parts[at]
      else { continue }
      pattern.parts[at] = .octet(octet ^ 0x01)
      var wrong = script
      wrong.steps[index].action = .expect([.pdu(pattern)])
      guard case .failed(let failure) = try Self.run(wrong, file).outcome else {
        Issue.record("\(Self.name(file)):\(step.line) passes with \(pattern)")
        return
      }
      #expect(failure.line == step.line)
      // For a long script, its first lines suffice.
      if index > 40 { return }
    }
  }

  /// Every PDU occurs in a passing script of the server, and in one of the client.
  @Test func everyPDUOnBothSides() throws {
    // What our stack does not support yet. An unnecessary line is an error, too.
    let missing: Set<String> = [
      "D2 client"  // Signed Write Command: there are no keys
    ]
    var proofs: [String: [String]] = [:]
    for file in Self.files {
      let script = try file.script(), verdict = try Self.run(script, file)
      guard verdict.outcome == .passed, let side = script.side else { continue }
      for line in verdict.transcript {
        let words = line.split(separator: " ")
        guard words.count > 1, words[0] == "<" || words[0] == ">", let octet = UInt8(words[1], radix: 16) else {
          continue
        }
        let isReceived = words[0] == "<"
        guard let kind = ATTOpcode(rawValue: octet).kind,
          isReceived == (side == .server ? kind.isClients : !kind.isClients)
        else { continue }
        let key = "\(words[1]) \(side)"
        if proofs[key, default: []].last != Self.name(file) { proofs[key, default: []].append(Self.name(file)) }
      }
    }
    print("| PDU | server | client |\n|---|---|---|")
    for opcode in ATTOpcode.all {
      let code = hex([opcode.rawValue])
      func cell(_ side: Side) -> String {
        let all = proofs["\(code) \(side)"] ?? []
        // Prefers a script with an ID of the test suite, and among those one of valid behaviour.
        let best = all.first { $0.contains("/BV-") } ?? all.first { $0.hasSuffix("-C") } ?? all.first
        guard let best else { return "–" }
        return best + (all.count > 1 ? " and \(all.count - 1) more" : "")
      }
      print("| \(code) \(opcode) | \(cell(.server)) | \(cell(.client)) |")
    }
    let all = Set(ATTOpcode.all.flatMap { opcode in Side.allCases.map { "\(hex([opcode.rawValue])) \($0)" } })
    #expect(all.subtracting(proofs.keys) == missing)
  }
}

extension ATTOpcode.Kind {
  /// Sent by the client: Vol 3, Part F, §3.3.
  fileprivate var isClients: Bool {
    switch self {
    case .command, .request, .confirmation: true
    case .response, .notification, .indication: false
    }
  }
}
