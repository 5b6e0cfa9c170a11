import BindruneATT
import BindruneConformance
import Foundation
import BindruneSMP
import TestSupport
import Testing

/// Runs `Fixtures/Scripts` against our own stack, as `bindrune conform Fixtures/Scripts` does.
@Suite struct ScriptTests {
  static let folder = VectorFile.fixtures.appending(path: "Scripts").path
  static let files = (try? ScriptFile.all([folder])) ?? []

  /// `GATT/SR/GAR/BV-01-C`
  static func name(_ file: ScriptFile) -> String { String(file.name.dropFirst(folder.count + 1)) }

  static func run(_ script: Script, _ file: ScriptFile) throws -> Verdict {
    switch script.channel {
    case .smp: return Runner.run(script, against: PairingTarget(script.pairing))
    case .l2cap: return Runner.run(script, against: ChannelTarget(script.linkRole))
    case .att: break
    }
    let database = try script.database.map { try ScriptFile.database(file.neighbour($0)) } ?? DatabaseFile()
    return Runner.run(script, against: StackTarget(database))
  }

  @Test func thereAreManyOfThem() {
    #expect(Self.files.count >= 750)
    #expect(Set(Self.files.map(\.path)).count == Self.files.count)
  }

  /// The test below changes something in nearly every script.
  @Test func nearlyEveryScriptExpectsSomething() throws {
    let counts = try Self.files.map { try $0.scripts()[0].wrong.count }
    print("\(counts.reduce(0, +)) expectations, in \(counts.count { $0 > 0 }) of \(counts.count) scripts")
    #expect(counts.count { $0 == 0 } <= 20)
    #expect(counts.reduce(0, +) >= 2000)
  }

  /// `IDS.md` gives the source of each test ID among the names.
  @Test func everyTestIDIsListed() throws {
    let listed = try TextFile.read("\(Self.folder)/IDS.md").split(separator: "\n")
      .filter { line in ["| GATT/", "| SM/", "| L2CAP/"].contains { line.hasPrefix($0) } }.compactMap {
        $0.split(separator: " ").dropFirst().first.map(String.init)
      }
    let used = Self.files.map(Self.name)
      .filter {
        $0.wholeMatch(of: /(?:GATT\/(?:CL|SR)\/|SM\/(?:CEN|PER)\/|L2CAP\/(?:(?:COS|LE)\/)?)[A-Z]+\/B[IV]-\d\d-C/) != nil
      }
    #expect(listed.sorted() == used.sorted())
    #expect(used.count >= 280)
  }

  @Test(arguments: files.map(\.path)) func passes(_ path: String) throws {
    let file = ScriptFile(path: path), name = Self.name(file)
    for script in try file.scripts() {
      let verdict = try Self.run(script, file)
      #expect(verdict.outcome == .passed, "\(name) \(script.variant ?? ""): \(verdict.transcript.suffix(6))")
      #expect(script.section.contains("§"), "a script names the section")
      #expect(name.hasPrefix("SM/") == (script.channel == .smp))
      let isOfChannels = name.hasPrefix("L2CAP/") || name.hasPrefix("own/channels/")
      #expect(isOfChannels == (script.channel == .l2cap))
      if script.channel == .l2cap { continue }
      guard script.channel == .att else {
        #expect(script.pairing.role == (name.hasPrefix("SM/CEN/") ? .initiator : .responder))
        continue
      }
      #expect(script.side != nil, "a script names the side under test")
      #expect(name.contains("/CL/") ? script.side == .client : true)
      #expect(name.contains("/SR/") ? script.side == .server : true)
    }
  }

  /// A script with a wrong expectation fails in that line: so the runner checks every line of every script.
  @Test(arguments: files.map(\.path)) func failsWhereAnotherAnswerIsExpected(_ path: String) throws {
    let file = ScriptFile(path: path)
    for script in try file.scripts() {
      // For a long script, its first lines suffice.
      for (number, wrong) in script.wrong.prefix(40).enumerated() {
        guard case .failed(let failure) = try Self.run(wrong.script, file).outcome else {
          Issue.record("\(Self.name(file)):\(wrong.line) passes with another expectation, number \(number)")
          return
        }
        #expect(failure.line == wrong.line, "\(Self.name(file))")
      }
      // The other cases of the file have the same lines.
      if script.variant != nil { return }
    }
  }

  /// Every PDU occurs in a passing script of the server, and in one of the client.
  @Test func everyPDUOnBothSides() throws {
    var proofs: [String: [String]] = [:]
    for file in Self.files {
      let script = try #require(try file.scripts().first)
      guard script.channel == .att else { continue }
      let verdict = try Self.run(script, file)
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
    #expect(all.subtracting(proofs.keys) == [])
  }
}

extension Script {
  /// The script with one expectation wrong, for each line that has one.
  fileprivate var wrong: [(line: Int, script: Script)] {
    steps.indices.flatMap { index in
      steps[index].wrong.map { step in
        var script = self
        script.steps[index] = step.step
        return (step.line, script)
      }
    }
  }
}
extension Step {
  fileprivate var wrong: [(line: Int, step: Step)] {
    func step(_ action: Action) -> [(line: Int, step: Step)] {
      var step = self
      step.action = action
      return [(line, step)]
    }
    switch action {
    case .expect(let alternatives):
      guard alternatives.count == 1, case .pdu(let pattern) = alternatives[0] else { return [] }
      return pattern.wrong.flatMap { step(.expect([.pdu($0)])) }
    case .key(let pattern): return pattern.wrong.flatMap { step(.key($0)) }
    case .event(let kind, let pattern): return pattern.wrong.flatMap { step(.event(kind, $0)) }
    case .check(let left, let right, let isEqual): return step(.check(left, right, isEqual: !isEqual))
    case .result(.paired(let how)):
      var size = how, kind = how, method = how
      size.keySize = how.keySize == 16 ? 15 : how.keySize + 1
      kind.isSecureConnections.toggle()
      method.method = how.method == .justWorks ? .passkeyEntry : .justWorks
      return [size, kind, method].flatMap { step(.result(.paired($0))) }
    case .result(.pairingFailed(let reason)):
      return step(.result(.pairingFailed(PairingFailure(rawValue: reason.rawValue ^ 1))))
    case .repeated(let count, let steps):
      return steps.indices.flatMap { index in
        steps[index].wrong.map { inner in
          var steps = steps, step = self
          steps[index] = inner.step
          step.action = .repeated(count, steps)
          return (inner.line, step)
        }
      }
    default: return []
    }
  }
}
extension OctetPattern {
  /// With another octet, and with another result of its function.
  fileprivate var wrong: [OctetPattern] {
    var patterns: [OctetPattern] = []
    if let at = parts.lastIndex(where: { if case .octet = $0 { true } else { false } }),
      case .octet(let octet) = parts[at]
    {
      var pattern = self
      pattern.parts[at] = .octet(octet ^ 0x01)
      patterns.append(pattern)
    }
    if let at = parts.firstIndex(where: { if case .result = $0 { true } else { false } }),
      case .result(let function, var arguments) = parts[at]
    {
      var pattern = self
      if function == .g2 {
        arguments[3] = OctetPattern([UInt8](repeating: 0xE7, count: 16))
        pattern.parts[at] = .result(.g2, arguments)
      } else {
        pattern.parts[at] = .result(.shortened, [OctetPattern(parts: [parts[at]]), OctetPattern([0x01])])
      }
      patterns.append(pattern)
    }
    return patterns
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
