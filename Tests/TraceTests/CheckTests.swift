import BindruneCapture
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

/// `Fixtures/Checks`: for each rule a trace that keeps it and one that breaks it.
///
///     # att.mtu-once
///     pass
///       connect
///       host att 02 F7 00
///     fail
///       connect
///       host att 02 F7 00
///       peer att 03 F7 00
///       host att 02 F7 00 !
///
/// `!` marks the lines with a finding of the rule, `!att.timeout` those of another one that is broken as well; no other
/// rule may have one. Lines:
///
/// | line | stands for |
/// |---|---|
/// | `host hci 01 03 0C 00`, `controller hci 04 …` | a packet, H4 packet type octet first |
/// | `host command 0C03`, `host command 2005 01 …` | a command: its opcode and parameters |
/// | `controller complete 0C03 00` | Command Complete: an opcode and its return parameters |
/// | `controller status 200D 00` | Command Status: an opcode and the status |
/// | `controller event 05 00 40 00 13`, `controller le 07 …` | an event: its code, or an LE event's subevent, and its parameters |
/// | `host att …`, `peer att …`, `smp`, `sig` | a PDU of a channel, in one packet on connection 0x0040 |
/// | `host acl 0040 2 …`, `peer acl …` | an ACL packet: handle, boundary flag, data |
/// | `host l2cap 0044 …` | a frame of a channel |
/// | `reset` | HCI_Reset and its Command Complete |
/// | `connect`, `connect peripheral` | reset; the host creates connection 0x0040, or a Central connects to it |
/// | `wait 31s` | time passes |
/// | `cut 7 peer att …` | the recorder kept 7 octets of the packet |
/// | `host empty` | a packet without an octet |
@Suite struct CheckTests {
  struct Case: CustomTestStringConvertible {
    var rule: String
    var isPass: Bool
    /// The first of its rule.
    var isFirst: Bool
    var place: String
    var lines: [(number: Int, text: String)]
    var testDescription: String { "\(rule) \(isPass ? "kept" : "broken") (\(place))" }
    /// Its packets, without the marks.
    func script() throws -> CheckScript {
      var script = CheckScript()
      for line in lines { try script.append(line.text.prefix { $0 != "!" }.description) }
      return script
    }
  }

  static func files() -> [URL] {
    let folder = VectorFile.fixtures.appending(path: "Checks")
    let files = (try? FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)) ?? []
    return files.filter { $0.pathExtension == "txt" }.sorted { $0.path < $1.path }
  }
  static func cases() -> [Case] {
    var cases: [Case] = []
    for file in files() {
      let lines = (try? String(contentsOf: file, encoding: .utf8))?.components(separatedBy: "\n") ?? []
      var rule = ""
      for (index, line) in lines.enumerated() {
        let text = line.trimmingCharacters(in: .whitespaces)
        let place = "\(file.lastPathComponent):\(index + 1)"
        if text.isEmpty || text.hasPrefix("//") { continue }
        if text.hasPrefix("# ") {
          rule = String(text.dropFirst(2))
        } else if text == "pass" || text == "fail" {
          let isFirst = cases.last?.rule != rule
          cases.append(Case(rule: rule, isPass: text == "pass", isFirst: isFirst, place: place, lines: []))
        } else {
          cases[cases.count - 1].lines.append((index + 1, text))
        }
      }
    }
    return cases
  }

  @Test(arguments: cases()) func fixture(_ fixture: Case) throws {
    var script = CheckScript()
    var expected: [String] = []
    for line in fixture.lines {
      let words = line.text.split(separator: " ")
      try script.append(words.filter { !$0.hasPrefix("!") }.joined(separator: " "))
      for word in words where word.hasPrefix("!") {
        expected.append("line \(line.number): \(word == "!" ? fixture.rule : String(word.dropFirst()))")
      }
      script.places += Array(repeating: line.number, count: script.packets.count - script.places.count)
    }
    let checker = script.check()
    let found = checker.findings.map {
      "line \(script.places[$0.number - 1]): \($0.rule.id): \($0.seen); \($0.allowed)"
    }
    let places = checker.findings.map { "line \(script.places[$0.number - 1]): \($0.rule.id)" }
    #expect(places.sorted() == expected.sorted(), "\(found)")
    #expect(fixture.isPass != expected.contains { $0.hasSuffix(" " + fixture.rule) }, "a breach is marked with !")
    let rule = try #require(CheckRule(id: fixture.rule))
    // An extra trace may show that a rule does not apply.
    if !fixture.isPass || fixture.isFirst { #expect(checker.judgements(of: rule) > 0, "the rule was not judged") }
    for finding in checker.findings {
      #expect(!finding.seen.isEmpty && !finding.allowed.isEmpty && !finding.seen.hasSuffix("."))
    }
  }

  @Test func everyRuleHasFixtures() {
    let cases = Self.cases()
    let lacking = CheckRule.allCases.flatMap { rule in
      [true, false].compactMap { isPass in
        cases.contains { $0.rule == rule.id && $0.isPass == isPass } ? nil : "\(rule.id) \(isPass ? "pass" : "fail")"
      }
    }
    #expect(lacking == [])
    #expect(CheckRule.allCases.count >= 80)
    #expect(Set(CheckRule.allCases.map(\.id)).count == CheckRule.allCases.count)
    for rule in CheckRule.allCases {
      #expect(rule.id.hasPrefix(rule.area.rawValue + "."))
      #expect(CheckRule(id: rule.id) == rule)
      #expect(rule.sentence.hasSuffix("."))
    }
  }

  /// A recorder with a limit may cut an ACL packet at every octet.
  @Test func cutPackets() throws {
    var script = CheckScript()
    try script.append("connect")
    try script.append("host att 0A 03 00")
    let packet = try #require(script.packets.last).octets
    for count in 0...packet.count {
      var sink = DissectingSink(Checker())
      let record = CaptureRecord(
        number: 1, direction: .fromHost, originalCount: packet.count, octets: Octets(0, count))
      sink.receive(record, packet.span.extracting(first: count))
      sink.pause()
      #expect(sink.sink.findings.allSatisfy { $0.rule == .packetType && count == 0 }, "\(count) \(sink.sink.findings)")
    }
  }

  /// Mutations of the fixtures, packets that the recorder has cut, and clocks that jump: never a trap.
  @Test func mutations() throws {
    let seeds = try Self.cases().map { fixture in
      let script = try fixture.script()
      return script.packets.flatMap { [UInt8(clamping: $0.octets.count)] + $0.octets }
    }
    var judged = 0
    for octets in Fuzz(seeds, longest: 1_500) {
      var sink = DissectingSink(Checker()), at = 0, number = 0
      while at < octets.count {
        // Octets are cut into packets by lengths that are mutated, too.
        let count = min(Int(octets[at]), octets.count - at - 1)
        let packet = Array(octets[at + 1..<at + 1 + count])
        number += 1
        let isCut = at % 61 == 0, time = at % 97 == 0 ? Int64.min : at % 89 == 0 ? .max : Int64(at) &* 1_000_000
        let fromHost = packet.first == 1 || (packet.count > 2 && packet.first == 2 && packet[2] & 0x30 == 0)
        let record = CaptureRecord(
          number: number, time: time, direction: at % 101 == 0 ? nil : fromHost ? .fromHost : .fromController,
          adapter: at % 53 == 0 ? 1 : 0, originalCount: count + (isCut ? 9 : 0), octets: Octets(0, count))
        sink.receive(record, packet.span)
        at += 1 + count
      }
      sink.pause()
      judged += sink.sink.judgements(of: .packetType)
    }
    #expect(judged > 1_000)
  }
}

/// Packets in the short form of `Fixtures/Checks`.
struct CheckScript {
  var packets: [(direction: HCIDirection, time: Int64, octets: [UInt8])] = []
  /// How many octets of a packet its recorder has kept, by the packet's place.
  var kept: [Int: Int] = [:]
  /// The line of each packet.
  var places: [Int] = []
  private var time: Int64 = 1_700_000_000_000_000_000

  struct Mistake: Error { var line: String }

  mutating func append(_ line: String) throws {
    let words = line.split(separator: " ").map(String.init)
    guard let first = words.first else { throw Mistake(line: line) }
    switch first {
    case "wait":
      guard words.count == 2, let seconds = Double(words[1].dropLast()) else { throw Mistake(line: line) }
      time += Int64(seconds * 1e9)
    case "reset":
      try append("host command 0C03")
      try append("controller complete 0C03 00")
    case "connect":
      try append("reset")
      if words.count > 1 {
        // Advertising, ADV_IND every 100 ms; then connection 0x0040, role Peripheral, peer C0:11:22:33:44:55.
        try append("host command 2006 A0 00 A0 00 00 00 00 00 00 00 00 00 00 07 00")
        try append("controller complete 2006 00")
        try append("host command 200A 01")
        try append("controller complete 200A 00")
        try append("controller le 01 00 40 00 01 01 55 44 33 22 11 C0 18 00 00 00 48 00 00")
      } else {
        try append("host command 200D 60 00 30 00 00 01 55 44 33 22 11 C0 00 18 00 28 00 00 00 48 00 00 00 00 00")
        try append("controller status 200D 00")
        try append("controller le 01 00 40 00 00 01 55 44 33 22 11 C0 18 00 00 00 48 00 00")
      }
    case "cut":
      guard words.count > 2, let count = Int(words[1]) else { throw Mistake(line: line) }
      try append(words[2...].joined(separator: " "))
      kept[packets.count - 1] = count
    case "host", "peer", "controller":
      guard words.count >= 3 || words.last == "empty" else { throw Mistake(line: line) }
      let direction: HCIDirection = first == "host" ? .fromHost : .fromController
      time += 1_000_000
      packets.append((direction, time, try packet(words[1], Array(words[2...]), direction, line)))
    default: throw Mistake(line: line)
    }
  }

  private func octets(_ words: [String], _ line: String) throws -> [UInt8] {
    try words.map { word in
      guard word.count == 2, let octet = UInt8(word, radix: 16) else { throw Mistake(line: line) }
      return octet
    }
  }
  private func number(_ word: String, _ line: String) throws -> [UInt8] {
    guard word.count == 4, let number = UInt16(word, radix: 16) else { throw Mistake(line: line) }
    return [UInt8(number & 0xFF), UInt8(number >> 8)]
  }
  private func packet(_ kind: String, _ words: [String], _ direction: HCIDirection, _ line: String) throws -> [UInt8] {
    func little(_ count: Int) -> [UInt8] { [UInt8(count & 0xFF), UInt8(count >> 8)] }
    func frame(_ channel: [UInt8], _ payload: [UInt8]) -> [UInt8] {
      let data = little(payload.count) + channel + payload
      return [0x02, 0x40, direction == .fromHost ? 0x00 : 0x20] + little(data.count) + data
    }
    let rest = Array(words.dropFirst())
    switch kind {
    case "empty": return []
    case "hci": return try octets(words, line)
    case "command":
      let parameters = try octets(rest, line)
      return [0x01] + (try number(words[0], line)) + [UInt8(parameters.count)] + parameters
    case "complete":
      let parameters = try octets(rest, line)
      return [0x04, 0x0E, UInt8(3 + parameters.count), 0x01] + (try number(words[0], line)) + parameters
    case "status": return [0x04, 0x0F, 0x04] + (try octets(rest, line)) + [0x01] + (try number(words[0], line))
    case "event":
      let parameters = try octets(rest, line)
      return [0x04] + (try octets([words[0]], line)) + [UInt8(parameters.count)] + parameters
    case "le": return [0x04, 0x3E, UInt8(words.count)] + (try octets(words, line))
    case "att": return frame([0x04, 0x00], try octets(words, line))
    case "sig": return frame([0x05, 0x00], try octets(words, line))
    case "smp": return frame([0x06, 0x00], try octets(words, line))
    case "l2cap": return frame(try number(words[0], line), try octets(rest, line))
    case "acl":
      guard words.count >= 2, let flag = UInt8(words[1]) else { throw Mistake(line: line) }
      let data = try octets(Array(words.dropFirst(2)), line)
      let handle = try number(words[0], line)
      return [0x02, handle[0], handle[1] | flag << 4] + little(data.count) + data
    default: throw Mistake(line: line)
    }
  }

  func check(_ rules: Set<CheckRule> = Set(CheckRule.allCases)) -> Checker {
    var sink = DissectingSink(Checker(rules: rules))
    run(into: &sink)
    return sink.sink
  }
  /// The records, each with the octets that its recorder has kept, and the end of the trace.
  func run(into sink: inout some CaptureSink & ~Copyable) {
    for (index, packet) in packets.enumerated() {
      let record = CaptureRecord(
        number: index + 1, time: packet.time, direction: packet.direction, originalCount: packet.octets.count,
        octets: Octets(0, kept[index] ?? packet.octets.count))
      sink.receive(record, packet.octets.span.extracting(first: kept[index] ?? packet.octets.count))
    }
    sink.pause()
  }
}
