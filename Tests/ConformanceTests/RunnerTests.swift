import BindruneATT
import BindruneConformance
import TestSupport
import Testing

/// The runner reports each fault, and no faulty script passes.
@Suite struct RunnerTests {
  func verdict(_ lines: String) throws -> Verdict {
    let database = try DatabaseFile(
      """
      { "services": [ { "uuid": "FFE0", "characteristics": [
        { "uuid": "FFE1", "properties": ["read", "write"], "value": "01 02" },
        { "uuid": "FFE2", "properties": ["notify"], "descriptors": [ { "uuid": "2902" } ] },
        { "uuid": "FFE3", "properties": ["read"], "value": "07", "delay": "8s" } ] } ] }
      """, file: "d")
    return Runner.run(try Script("title: T\n" + lines, file: "s"), against: StackTarget(database))
  }
  func failure(_ lines: String) throws -> String {
    guard case .failed(let failure) = try verdict(lines).outcome else { return "no failure" }
    return "\(failure.line) \(failure.step): \(failure.expected); \(failure.got)"
  }

  @Test(arguments: [
    ("< 0A 03 00\n> 0B 01 03", "3 > 0B 01 03: 0B 01 03; 0B 01 02"),
    ("< 0A 03 00\n> 0B 01", "3 > 0B 01: 0B 01; 0B 01 02"),
    ("< 0A 03 00\n> 0B [02-FF] 02", "3 > 0B [02-FF] 02: 0B [02-FF] 02; 0B 01 02"),
    ("ignore 0B 01 ...\n< 0A 03 00\n> 0B 09", "4 > 0B 09: 0B 09; nothing"),
    ("ignore 0A ...\n< 0A 03 00\nnothing", "4 nothing: nothing within 1s; 0B 01 02"),
    (
      "let many = 01 02 03\nrepeat {many}\nnothing\nend",
      "3 repeat {many}: a count of one or two octets; 01 02 03"
    ),
    ("< 0A 03 00\n> 0B 01 02 ??", "3 > 0B 01 02 ??: 0B 01 02 ??; 0B 01 02"),
    ("< 0A 03 00\n> 0B 02 | nothing", "3 > 0B 02 | nothing: 0B 02 | nothing; 0B 01 02"),
    ("> 0B", "2 > 0B: 0B; nothing"),
    ("< 0A 03 00", "2 the end of the script: nothing; 0B 01 02"),
    ("< 0A 03 00\nnothing 5s", "3 nothing 5s: nothing within 5s; 0B 01 02"),
    ("< 0A 08 00\n> 0B 07", "3 > 0B 07: 0B 07; nothing"),  // 8 s are more than 5
    ("closed", "2 closed: the end of the bearer; nothing"),
    ("< 0A 03 00\n> 0B {a:1} 02\n< 0A 03 00\n> 0B 01 {a}", "5 > 0B 01 {a}: 0B 01 {a}; 0B 01 02"),
    ("call read 0x0003\n> 0A 03 00\nresult done", "4 result done: done; no result"),
    ("call read 0x0003\n> 0A 03 00\n< 0B 01\nresult value 02", "5 result value 02: value 02; value 01"),
    (
      "call read 0x0003\n> 0A 03 00\n< 01 0A 03 00 02\nresult error 0x01",
      "5 result error 0x01: error 0x01; error 0x02 0x0003"
    ),
    (
      "< 1B 03 00 01\nvalue indication 0x0003 01",
      "3 value indication 0x0003 01: indication 0x0003 01; notification 0x0003 01"
    ),
    ("value notification 0x0003", "2 value notification 0x0003: notification 0x0003 ; no value"),
    ("set 0x0001 00", "2 set 0x0001 00: that it can be done; 0x0001 cannot have a value of that length"),
    (
      "< 0A 03 00\n> 0B {a:2} | nothing\nreconnect\n> 0B {b:1} | nothing\n< {b}",
      "6 < {b}: octets called b; none: another alternative came"
    ),
  ]) func fails(_ lines: String, _ expected: String) throws { #expect(try failure(lines) == expected) }

  @Test(arguments: [
    "< 0A 03 00\n> 0B {a:2}\n< 12 03 00 {a} {a}\n> 13\n< 0A 03 00\n> 0B {a}*2",
    "< 0A 03 00\n> 0B ...",
    "< 0A 03 00\n> 01 ... | 0B ?? ??",
    "< 0A 08 00\nwait 8s\n> 0B 07",
    "< 0A 08 00\nnothing 7s\n> 0B 07",
    "set 0x0003 05\n< 0A 03 00\n> 0B 05",
    "set 0x0008 09\n< 0A 08 00\nwait 8s\n> 0B 09",
    "notify 0x0005 01\nnothing\n< 12 06 00 01 00\n> 13\nnotify 0x0005 02\n> 1B 05 00 02",
    "< 52 03 00 09\n> nothing",
    "mtu 100\n< 02 17 00\n> 03 64 00",
    "< 0A 03 00\n> [0A-0B] {a:[01-01]} [00-02]\ncheck {a} = 01",
    "let two = 02 00\nrepeat {two}\n< 0A 03 00\n> 0B 01 02\nend",
    "ignore 0B ...\n< 0A 03 00\n< 0A 03 00\n> 0B 01 02\n< 0A 01 00\n> 0B E0 FF\nnothing\n< 0A 03 00",
  ]) func passes(_ lines: String) throws { #expect(try verdict(lines).outcome == .passed) }

  @Test func theTranscriptHasEveryPDU() throws {
    let transcript = try verdict("< 0A 03 00\n> 0B ...\nreconnect\n< 0A 01 00\n> 0B E0 FF").transcript
    #expect(transcript == ["< 0A 03 00", "> 0B 01 02", "reconnect", "< 0A 01 00", "> 0B E0 FF"])
  }
}
