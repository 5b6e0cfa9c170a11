import BindruneATT
import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneHCI
import BindruneL2CAP
import TestSupport
import Testing

/// Keeps lines.
struct LineSink: TraceLineSink {
  var lines: [TraceLine] = []
  mutating func receive(_ line: TraceLine) { lines.append(line) }
  mutating func flush() {}
}

/// Packets in memory as records: `>` from the host, `<` to it.
struct Packets {
  var records: [(record: CaptureRecord, octets: [UInt8])] = []
  mutating func add(_ direction: HCIDirection?, _ octets: [UInt8], adapter: UInt16 = 0) {
    let number = records.count + 1
    let record = CaptureRecord(
      number: number, time: 1_700_000_000_000_000_000 + Int64(number) * 1_000_000, direction: direction,
      adapter: adapter, octets: Octets(0, octets.count))
    records.append((record, octets))
  }
  mutating func add(_ direction: HCIDirection?, _ text: String) { add(direction, octets(text)) }
  /// A frame in ACL packets of at most `size` octets.
  mutating func frame(
    _ direction: HCIDirection, channel: UInt8 = 4, handle: UInt16 = 0x40, size: Int = 251, _ payload: [UInt8]
  ) {
    var rest = [UInt8(payload.count & 0xFF), UInt8(payload.count >> 8), channel, 0] + payload
    var flag: UInt16 = direction == .fromHost ? 0 : 2
    repeat {
      let part = rest.prefix(size)
      let word = handle | flag << 12
      add(
        direction,
        [2, UInt8(word & 0xFF), UInt8(word >> 8), UInt8(part.count & 0xFF), UInt8(part.count >> 8)] + part)
      rest.removeFirst(part.count)
      flag = 1
    } while !rest.isEmpty
  }
  func lines(_ filter: TraceFilter = TraceFilter(), irks: [TraceNames.Identity] = []) -> [TraceLine] {
    var sink = DissectingSink(TraceLines(LineSink(), filter: filter, identities: irks))
    for (record, octets) in records where sink.wantsMore { sink.receive(record, octets.span) }
    sink.pause()
    return sink.sink.output.lines
  }
  func fields() -> [String] {
    var sink = DissectingSink(TraceFields())
    for (record, octets) in records { sink.receive(record, octets.span) }
    return String(decoding: sink.sink.output, as: UTF8.self).split(separator: "\n").map(String.init)
  }

  /// A connection, discovery of a heart rate service, a subscription, a notification, the end.
  static let session: Packets = {
    var packets = Packets()
    packets.add(.fromController, "04 3E 13 01 00 40 00 00 01 FA A2 31 8F F2 70 18 00 00 00 C8 00 00")
    packets.frame(.fromHost, octets("10 01 00 FF FF 00 28"))
    packets.frame(.fromController, octets("11 06 01 00 04 00 0D 18"))
    packets.frame(.fromHost, octets("08 01 00 04 00 03 28"))
    packets.frame(.fromController, octets("09 07 02 00 10 03 00 37 2A"))
    packets.frame(.fromHost, octets("04 04 00 04 00"))
    packets.frame(.fromController, octets("05 01 04 00 02 29"))
    packets.frame(.fromHost, octets("12 04 00 01 00"))
    packets.frame(.fromController, octets("13"))
    packets.frame(.fromController, octets("1B 03 00 06 48"))
    packets.frame(.fromController, channel: 5, octets("12 01 08 00 06 00 0C 00 00 00 C8 00"))
    packets.frame(.fromHost, channel: 6, octets("01 03 00 01 10 07 07"))
    packets.add(.fromController, "04 05 04 00 40 00 13")
    return packets
  }()
}

@Suite struct LinesTests {
  @Test func aLinePerPacket() {
    let lines = Packets.session.lines()
    #expect(lines.map(\.number) == Array(1...13))
    #expect(
      lines.map { "\($0.layer) \($0.name)" } == [
        "hci HCI_LE_Connection_Complete", "att ATT_READ_BY_GROUP_TYPE_REQ", "att ATT_READ_BY_GROUP_TYPE_RSP",
        "att ATT_READ_BY_TYPE_REQ", "att ATT_READ_BY_TYPE_RSP", "att ATT_FIND_INFORMATION_REQ",
        "att ATT_FIND_INFORMATION_RSP", "att ATT_WRITE_REQ", "att ATT_WRITE_RSP", "att ATT_HANDLE_VALUE_NTF",
        "sig L2CAP_CONNECTION_PARAMETER_UPDATE_REQ", "smp Pairing Request", "hci HCI_Disconnection_Complete",
      ])
    #expect(lines.allSatisfy { $0.problem == nil })
    #expect(lines[7].fields == "Attribute Handle: 0x0004, Attribute Value: 01 00")
  }

  /// A packet that its recorder cut, at every octet: the line says how much was kept, also before the opcode. An empty
  /// PDU is one of a sender that states no octets.
  @Test(arguments: [UInt8(4), 5, 6]) func cutByTheRecorder(_ channel: UInt8) {
    var packets = Packets()
    packets.frame(.fromHost, channel: channel, [0x0A, 0x03, 0x00])
    let whole = packets.records[0].octets
    for kept in 0..<whole.count {
      packets.records[0].octets = Array(whole.prefix(kept))
      packets.records[0].record.octets = Octets(0, kept)
      packets.records[0].record.originalCount = whole.count
      #expect(packets.lines().map(\.problem) == ["the recorder kept \(kept) of 12 octets"])
      var checker = DissectingSink(Checker())
      let (record, octets) = packets.records[0]
      checker.receive(record, octets.span)
      checker.pause()
      #expect(checker.sink.findings.isEmpty, "\(kept): \(checker.sink.findings)")
    }
    var empty = Packets()
    empty.frame(.fromHost, [])
    #expect(empty.lines().map(\.problem) == ["an empty PDU"])
  }

  /// Names come from the trace's own discovery; a response without a handle has that of its request.
  @Test func namesOfAttributes() {
    let lines = Packets.session.lines()
    #expect(lines[7].meaning == "Client Characteristic Configuration" && lines[7].handle == 4)
    #expect(lines[8].meaning == "Client Characteristic Configuration" && lines[8].handle == 4)
    #expect(lines[9].meaning == "Heart Rate Measurement" && lines[9].handle == 3)
    #expect(lines[1].meaning == nil)
  }

  /// Sample data of Vol 3, Part H, Appendix D.7 and §1.3.2.3 of Vol 6, Part B: the IRK resolves 70:81:94:0D:FB:AA.
  @Test func privateAddresses() {
    var packets = Packets()
    packets.add(.fromController, "04 3E 13 01 00 40 00 00 01 AA FB 0D 94 81 70 18 00 00 00 C8 00 00")
    let irk: UInt128 = 0xEC02_34A3_57C8_AD05_3410_10A6_0A39_7D9B
    #expect(packets.lines(irks: [.init(name: "watch", irk: irk)])[0].meaning == "watch")
    #expect(packets.lines(irks: [.init(name: "watch", irk: irk + 1)])[0].meaning == nil)
  }

  @Test func filters() {
    func numbers(_ set: (inout TraceFilter) -> Void) -> [Int] {
      var filter = TraceFilter()
      set(&filter)
      return Packets.session.lines(filter).map(\.number)
    }
    #expect(numbers { $0.layers = [.smp, .sig] } == [11, 12])
    #expect(numbers { $0.handles = [3] } == [10])
    #expect(numbers { $0.opcodes = [0x1B] } == [10])
    #expect(numbers { $0.connections = [0x41] } == [])
    #expect(numbers { $0.connections = [0x40] } == Array(1...13))
    #expect(numbers { $0.frames = 8...9 } == [8, 9])
    // What is not shown is learnt from all the same.
    var filter = TraceFilter()
    filter.frames = 10...10
    #expect(Packets.session.lines(filter).map(\.meaning) == ["Heart Rate Measurement"])
  }

  /// Two links and two directions at once, cut into pieces that alternate.
  @Test func fragments() {
    let one = octets("1B 03 00") + [UInt8](repeating: 1, count: 60),
      two = octets("12 07 00") + [UInt8](repeating: 2, count: 50)
    var first = Packets(), second = Packets(), both = Packets()
    first.frame(.fromController, handle: 0x40, size: 27, one)
    second.frame(.fromHost, handle: 0x41, size: 27, two)
    for index in 0..<3 {
      both.add(.fromController, first.records[index].octets)
      if index < second.records.count { both.add(.fromHost, second.records[index].octets) }
    }
    let lines = both.lines()
    #expect(lines.map(\.layer) == [.hci, .hci, .hci, .hci, .att, .att] && lines.allSatisfy { $0.problem == nil })
    #expect(lines[4].octets == one && lines[5].octets == two)
    #expect(both.fields().map { $0.prefix(20) }.count == 2)
  }
  @Test func brokenFragments() {
    var packets = Packets()
    packets.add(.fromController, "02 40 10 03 00 01 02 03")
    packets.add(.fromController, "02 40 20 05 00 08 00 04 00 1B")
    packets.add(.fromController, "02 40 20 05 00 01 00 04 00 0B")
    packets.add(.fromController, "02 40 20 08 00 02 00 04 00 0B 0B 0B 0B")
    packets.add(.fromController, "02 40 30 05 00 01 00 04 00 0B")
    let lines = packets.lines()
    #expect(
      lines.map(\.problem) == [
        "a continuing fragment without a first one", nil, "the frame before is incomplete: 5 octets of 12",
        "the fragments have 8 octets, their frame 6",
        "packet boundary or broadcast flags that LE does not have",
      ])
    #expect(lines[2].name == "ATT_READ_RSP")
  }

  /// What a peer or a file says reaches no terminal raw.
  @Test func controlCharacters() {
    let text = Array("\u{1B}[2J\u{7}\u{202E}evil\n".utf8)
    let record = CaptureRecord(number: 1, content: .monitor(.systemNote), octets: Octets(0, text.count))
    var sink = DissectingSink(TraceLines(LineSink()))
    sink.receive(record, text.span)
    sink.pause()
    let line = sink.sink.output.lines[0]
    #expect(line.fields.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value < 0x7F }, "\(line.fields)")
  }

  /// The lines of programs' logs, as BlueZ's monitor records them: well-formed, and not.
  @Test func userLogging() {
    let long = [6, 2, 0x61, 0] + [UInt8](repeating: 0x1B, count: 4 << 20)
    let cases: [([UInt8], String)] = [
      (UserLogging(message: "connect(to:) #2").octets, "bindrune: connect(to:) #2"),
      ([3, 3] + "ab\0text".utf8, "ab: text"), ([3, 2] + "abtext".utf8, "ab: text"), ([6, 0] + "text\0".utf8, ": text"),
      ([6, 2] + "a\0\u{1B}[2J\u{202E}\0".utf8, "a: \\u{1B}[2J\\u{202E}"),
      // The identifier exceeds the record.
      ([6, 200] + "text".utf8, "\\u{6}\u{FFFD}text"),
    ]
    for (octets, text) in cases { #expect(fields(octets) == text) }
    for octets in [long, [6, 0], [6], []] {
      #expect(fields(octets).unicodeScalars.allSatisfy(\.isPrintable) && fields(octets).utf8.count < 8_000)
    }
    let line = UserLogging(priority: 3, identifier: "x", message: "y")
    #expect(UserLogging(line.octets.span) == line)
    let cut = UserLogging(identifier: String(repeating: "x", count: 300), message: "y")
    #expect(UserLogging(cut.octets.span)?.message == "y")
    #expect(UserLogging(long.span)?.message.utf8.count == 4 << 20)
    for octets in Fuzz([line.octets], longest: 60) { _ = UserLogging(octets.span) }
  }
  private func fields(_ octets: [UInt8]) -> String {
    let record = CaptureRecord(number: 1, content: .monitor(.userLogging), octets: Octets(0, octets.count))
    var sink = DissectingSink(TraceLines(LineSink()))
    sink.receive(record, octets.span)
    sink.pause()
    return sink.sink.output.lines[0].fields
  }

  /// Mutations of a session: lines for every record, of printable text, and never a trap.
  @Test func mutations() {
    let session = Packets.session
    for octets in Fuzz([session.records.flatMap { [UInt8($0.octets.count)] + $0.octets }], longest: 1_000) {
      // Octets are cut into packets by lengths that are mutated, too.
      var packets = Packets(), at = 0
      while at < octets.count {
        let count = min(Int(octets[at]), octets.count - at - 1)
        packets.add(at % 3 == 0 ? .fromHost : .fromController, Array(octets[at + 1..<at + 1 + count]))
        at += 1 + count
      }
      let lines = packets.lines()
      #expect(lines.count == packets.records.count)
      for line in lines {
        let words = line.name + line.fields + (line.meaning ?? "") + (line.problem ?? "")
        #expect(words.unicodeScalars.allSatisfy { $0.value >= 0x20 && $0.value != 0x7F })
      }
      _ = packets.fields()
    }
  }

  /// tshark decodes the same commands, events and ACL headers.
  @Test(.enabled(if: PublicTraces.arePresent, PublicTraces.absence), arguments: PublicTraces.names)
  func equalWiresharks(_ name: String) throws {
    let rows = try PublicTraces.rows(name, "hci")
    if rows.isEmpty { return }  // a link-layer capture
    struct Codes: CaptureSink {
      var codes: [String] = []
      var statuses: [Int: String] = [:]
      mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
        func hex(_ number: some FixedWidthInteger, _ digits: Int) -> String {
          let text = String(number, radix: 16)
          return "0x" + String(repeating: "0", count: digits - text.count) + text
        }
        guard record.content == .packet else { return codes.append("other") }
        let direction = record.direction == .fromHost ? "S" : "R"
        do throws(WireError) {
          switch HCIPacketType(rawValue: bytes[0]) {
          case .command: codes.append("\(direction) cmd \(hex(try AnyCommand(bytes).opcode.rawValue, 4))   ")
          case .acl:
            let acl = try ACLPacket(bytes)
            codes.append("\(direction) acl \(hex(acl.handle.rawValue, 4)) \(acl.packetBoundaryFlag.rawValue)")
          case .event:
            let event = try HCIEvent(bytes)
            var opcode = "", subevent = ""
            if case .commandComplete(let complete) = event { opcode = hex(complete.commandOpcode.rawValue, 4) }
            if case .commandStatus(let status) = event { opcode = hex(status.commandOpcode.rawValue, 4) }
            if let number = event.subevent { subevent = hex(number, 2) }
            // Of the events that this stack has, also the status and the link.
            let text = event.describe(in: bytes)
            let status = text.firstMatch(of: #/(?:^|, )Status: 0x(..)/#).map { "0x\($0.1.lowercased())" }
            if let status { statuses[record.number] = status }
            codes.append("\(direction) evt \(opcode) \(hex(event.code, 2)) \(subevent)")
          default: codes.append("other")
          }
        } catch { codes.append("\(error)") }
      }
    }
    var file = try TraceFile(path: PublicTraces.path(name)), codes = Codes()
    try file.read(into: &codes)
    #expect(codes.codes.count == rows.count)
    for (row, code) in zip(rows, codes.codes) {
      func field(_ name: String) -> String { row[name] ?? "" }
      let wanted =
        switch field("kind") {
        case "cmd": "\(field("dir")) cmd \(field("cmd_opcode"))   "
        case "acl": "\(field("dir")) acl \(field("acl_conn")) \(field("pb"))"
        case "evt": "\(field("dir")) evt \(field("cmd_opcode")) \(field("evt_code")) \(field("le_subevent"))"
        default: "other"
        }
      #expect(code == wanted, "record \(field("frame"))")
      if let status = Int(field("frame")).flatMap({ codes.statuses[$0] }), field("status") != "" {
        #expect(status == field("status"), "record \(field("frame"))")
      }
    }
  }

  /// The lines name what the checker finds, each finding once: also what only a later packet shows.
  @Test func marks() throws {
    for fixture in CheckTests.cases() {
      let script = try fixture.script()
      var sink = DissectingSink(MarkedLines(LineSink()))
      script.run(into: &sink)
      let findings = script.check().findings
      for finding in findings {
        let sentence = "\(finding.rule.id): \(finding.seen); allowed: \(finding.allowed)  (\(finding.rule.section))"
        let lines = sink.sink.output.lines.filter {
          $0.number == finding.number && $0.problem?.contains(sentence) == true
        }
        #expect(lines.count == 1, "\(fixture.place): \(sentence)")
      }
      let marks = sink.sink.output.lines.compactMap(\.problem).joined().components(separatedBy: "; allowed: ").count - 1
      #expect(marks == findings.count, "\(fixture.place)")
      let late = sink.sink.output.lines.count { $0.name.hasPrefix("Record ") }
      #expect(sink.sink.output.lines.count - late == script.packets.count, "\(fixture.place)")
    }
  }
}
