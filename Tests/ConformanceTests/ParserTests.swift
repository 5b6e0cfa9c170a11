import BindruneATT
import BindruneConformance
import BindruneL2CAP
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// The grammar of scripts and databases, and the errors of invalid ones.
@Suite struct ParserTests {
  static let head = "title: T\nside: server\n"
  func script(_ lines: String) throws(FileError) -> Script { try Script(Self.head + lines, file: "s") }

  /// The line, the position of the error and a word of it. The head has two lines.
  static let wrongLines: [(String, Int, Int, String)] = [
    ("< 0A 3", 3, 6, "half an octet"),
    ("< 0A ??", 3, 6, "wildcard"),
    ("< 0A ...", 3, 6, "wildcard"),
    ("> 0A ... 00", 3, 10, "may follow ..."),
    ("> 0A ?", 3, 6, "wildcard is ??"),
    ("< {x}", 3, 3, "x has not been captured"),
    ("< {x:2}", 3, 3, "capture"),
    ("> {x:0}", 3, 3, "1 to 512"),
    ("< [40-7F]", 3, 3, "a range in octets to send"),
    ("> [7F-40]", 3, 3, "the least first"),
    ("> [40-]", 3, 3, "the least first"),
    ("> [4-7F]", 3, 3, "the least first"),
    ("> [40-7F", 3, 3, "the least first"),
    ("> {x:[40-7F]", 3, 13, "closing }"),
    ("< {x:[40-7F]}", 3, 3, "capture"),
    ("ignore", 3, 7, "octets are missing"),
    ("repeat {x}\nend", 3, 8, "x has not been captured"),
    ("> {x:2}\nrepeat {x} {x}\nend", 4, 8, "as one name says"),
    ("listen", 3, 7, "the SPSM"),
    ("listen 0x0100 mtu 64 mps 64", 3, 8, "0x0001 to 0x00FF"),
    ("listen 0 mtu 64 mps 64", 3, 8, "0x0001 to 0x00FF"),
    ("listen 0x0080", 3, 14, "the lengths are missing"),
    ("listen 0x0080 mps 64", 3, 15, "the lengths are missing"),
    ("listen 0x0080 mtu 22 mps 64", 3, 19, "23 to 65535"),
    ("listen 0x0080 mtu 64 mps 65534", 3, 26, "23 to 65533"),
    ("listen 0x0080 mtu 64 mps 64 key6", 3, 29, "key7 to key16"),
    ("listen 0x0080 mtu 64 mps 64 most", 3, 33, "how many channels"),
    ("connect 0x0080 mtu 64 mps 64 twice", 3, 30, "enhanced"),
    ("connect 0x0080 mtu 64 mps 64 enhanced 6", 3, 39, "one to five"),
    ("connect 0x0080 mtu 63 mps 64 enhanced 1", 3, 15, "64 or more"),
    ("connect 0x0080 mtu 64 mps 63 enhanced 1", 3, 15, "64 or more"),
    ("send", 3, 5, "the number of a channel"),
    ("send {cid} 01", 3, 6, "cid has not been captured"),
    ("send 40 00 ??", 3, 12, "wildcard"),
    ("close", 3, 6, "the number of a channel"),
    ("reading fast", 3, 9, "off, on"),
    ("reconfigure mtu 63 mps 64 40 00", 3, 17, "64 to 65535"),
    ("reconfigure mtu 64 mps 64", 3, 26, "the number of a channel"),
    ("fragments 0", 3, 11, "1 to 65535"),
    ("parameters 24 40 0", 3, 19, "the timeout"),
    ("parameters 24 40 0 65536", 3, 20, "16 bits"),
    ("decide now", 3, 8, "should end here"),
    ("opened {cid}", 3, 8, "cid has not been captured"),
    ("> {x:2", 3, 7, "closing }"),
    ("> {}", 3, 4, "a name is missing"),
    ("> * 3", 3, 3, "repeats"),
    ("> 00*x", 3, 6, "how often"),
    ("> 00*0", 3, 5, "limit"),
    ("> \"abc", 3, 3, "no end"),
    (">", 3, 2, "octets are missing"),
    ("> 0B |", 3, 7, "octets are missing"),
    ("< 0A, 0B", 3, 5, "should end here"),
    ("0A 03 00", 3, 1, "is not a step"),
    ("= 0A", 3, 1, "this does not begin a step"),
    ("wait", 3, 5, "a time is missing"),
    ("wait 3", 3, 6, "a time is missing"),
    ("wait 3700s", 3, 6, "a time is missing"),
    ("wait 99999999999999999999s", 3, 6, "a time is missing"),
    ("mtu 22", 3, 5, "23 to 517"),
    ("mtu 518", 3, 5, "23 to 517"),
    ("< 0A 03 00\nmtu 64", 4, 1, "move the line up"),
    ("security much", 3, 10, "authenticated, encrypted, keys, none"),
    ("security encrypted 6", 3, 20, "7 to 16"),
    ("notify 3 01", 3, 8, "a handle"),
    ("notify 0x0003 01,", 3, 18, "a handle"),
    ("insert", 3, 7, "a database file"),
    ("remove all", 3, 8, "a handle"),
    ("set 0x10000 01", 3, 5, "a handle"),
    ("set 0x0003 bit(00*4, 00)", 3, 11, "a function in the octets"),
    ("call dance", 3, 6, "the procedures are"),
    ("call discover-includes 0x0001", 3, 24, "a range"),
    ("call subscribe 0x0003 all", 3, 23, "indications, notifications"),
    ("call read-uuid 2A0", 3, 16, "no UUID"),
    ("result great", 3, 8, "a result is"),
    ("result error 0", 3, 8, "0x01 to 0xFF"),
    ("result services 0x0001", 3, 17, "a range"),
    ("value 0x0003 01", 3, 7, "notification"),
    ("closed now", 3, 8, "should end here"),
    ("repeat\nend", 3, 7, "how often"),
    ("repeat 0\nend", 3, 8, "1 to 256"),
    ("repeat 2\nend", 4, 1, "no steps"),
    ("repeat 2\nclosed", 3, 1, "its end is missing"),
    ("end", 3, 1, "nothing is open"),
    ("or", 3, 1, "between either and end"),
    ("either\nclosed\nend", 5, 1, "a branch begins"),
    ("either\n> 01\nor\nend", 6, 1, "a branch begins"),
    ("either now", 3, 8, "should end here"),
    ("let = 01", 3, 5, "a name and its octets"),
    ("let a 01", 3, 7, "a name and its octets"),
    ("check 01", 3, 9, "= or != is missing"),
    ("check {round} = 00", 3, 7, "round has not been captured"),
    ("check {pk} = 00", 3, 7, "pk has not been captured"),
    ("< f9(00)", 3, 3, "is not a function"),
    ("< f4(00, 00)", 3, 3, "4 arguments"),
    ("< bit(00, 00", 3, 13, "closing )"),
    ("< bit(??, 00)", 3, 7, "wildcard"),
    ("asks nicely", 3, 6, "comparison, passkey, security"),
    ("shows off", 3, 7, "keypress, oob, passkey"),
    ("pairing fast", 3, 9, "the settings are"),
    ("pairing io 0x05", 3, 12, "0x00 to 0x04"),
    ("pairing key-size 16 7", 3, 21, "the shortest first"),
    ("pairing sends enc link", 3, 19, "enc, id and sign"),
    ("pairing mitm", 3, 13, "off, required, wanted"),
    ("answer perhaps", 3, 8, "an answer is"),
    ("answer passkey x", 3, 16, "six digits"),
    ("encryption", 3, 11, "off, on"),
    ("< 0A 03 00\npairing on-demand on", 4, 1, "move the line up"),
    ("result paired somehow", 3, 15, "numeric-comparison"),
    ("result pairing-failed 0", 3, 23, "0x01 to 0xFF"),
  ]
  @Test(arguments: wrongLines) func wrongLine(_ line: String, _ number: Int, _ column: Int, _ word: String) {
    #expect { try script(line) } throws: { error in
      guard let error = error as? FileError else { return false }
      #expect(error.line == number && error.column == column, "\(error)")
      #expect(error.message.contains(word), "\(error)")
      return true
    }
  }

  @Test(arguments: [
    ("", "s:1:1: no title; begin the file with \"title: …\""),
    ("title: T", "s:1:1: no steps; say what to send with <, and what must come back with >"),
    ("title: T\ntitle: U\nclosed", "s:2:1: title: is a duplicate; remove one"),
    (
      "titel: T\nclosed",
      "s:1:1: unknown key titel:; the head has title:, section:, database:, side:, channel:, role:, initiator:, "
        + "responder:, tester-key:, each:"
    ),
    ("title:\nclosed", "s:1:7: title: has no value; write it after the colon"),
    ("title: T\nside: left\nclosed", "s:2:1: side: is server or client"),
    ("title: T\nchannel: hci\nclosed", "s:2:1: channel: is smp or l2cap or att"),
    (
      "title: T\nchannel: l2cap\nrole: initiator\nclosed",
      "s:3:1: role: of the channel l2cap is central or peripheral"
    ),
    (
      "title: T\nrole: central\nchannel: smp\nclosed",
      "s:2:1: role: of the channel smp is initiator or responder"
    ),
    ("title: T\nchannel: smp\nclosed", "s:1:1: no role under test; add \"role: initiator\" or \"role: responder\""),
    ("title: T\nrole: left\nclosed", "s:2:1: role: is responder or peripheral or initiator or central"),
    (
      "title: T\ninitiator: 00:11:22:33:44 random\nclosed",
      "s:2:1: initiator: is an address and its type, as C0:00:5E:00:53:01 random, or … public"
    ),
    ("title: T\neach: a b\nclosed", "s:2:10: each: has names, then = and their values, as in each: a b = 00 01, 00 02"),
    ("title: T\neach: a b = 01\nclosed", "s:2:15: a case has a value for each of a, b"),
  ]) func wrongHead(_ text: String, _ expected: String) {
    #expect(throws: FileError.self) { try Script(text, file: "s") }
    do { _ = try Script(text, file: "s") } catch { #expect("\(error)" == expected) }
  }

  @Test func everyKindOfStep() throws {
    let script = try Script(
      """
      # A comment
      title: All of it  # and another
      section: Vol 3, Part F, §3.4
      database: a # b.json
      side: client\r

      < 0A 0300 "a#\\"b" 00*2 # comment
      > {name:2} ?? "|" | nothing | 01...
      < {name}*2
      nothing
      nothing 250ms
      call write-reliable 0x0003 01, 0x0004 02 03
      result values 0x0003 01 ??, 0x0004
      result characteristics 0x0002 0x0003 0x12 2a19, 0x0004 0x0005 0x02 0000180D-0000-1000-8000-00805F9B34FB
      """, file: "s")
    #expect(script.title == "All of it" && script.database == "a" && script.side == .client)
    #expect(script.section == "Vol 3, Part F, §3.4")
    let sent = OctetPattern([0x0A, 3, 0, 0x61, 0x23, 0x22, 0x62, 0, 0])
    let first = OctetPattern(parts: [.capture("name", count: 2), .any, .octet(0x7C)])
    let last = OctetPattern(parts: [.octet(1), .rest])
    let name = OctetPattern(parts: [.captured("name"), .captured("name")])
    let three = AttributeHandle(rawValue: 3), four = AttributeHandle(rawValue: 4)
    let written = [HandleOctets(handle: three, octets: [1]), HandleOctets(handle: four, octets: [2, 3])]
    let read = [
      ExpectedResult.Value(handle: three, octets: OctetPattern(parts: [.octet(1), .any])),
      ExpectedResult.Value(handle: four, octets: OctetPattern()),
    ]
    let expected: [Action] = [
      .send(sent), .expect([.pdu(first), .nothing, .pdu(last)]), .send(name), .nothing(.seconds(1)),
      .nothing(.milliseconds(250)), .command(.call(.writeReliable(written))), .result(.values(read)),
      .result(.found(.characteristics, ["0x0002 0x0003 0x12 2A19", "0x0004 0x0005 0x02 180D"])),
    ]
    #expect(script.steps.map(\.action) == expected)
    #expect(script.steps[0].text == "< 0A 0300 \"a#\\\"b\" 00*2" && script.steps[0].line == 7)
  }

  /// A command sent over a control connection as text is parsed there as the same command.
  @Test(arguments: [
    "mtu 64", "security keys", "security authenticated", "security encrypted 7",
    "signing 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F 10, 7",
    "signing 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F 10, 0 authenticated", "authorized", "unauthorized",
    "insert /b/more.json", "remove 0x0030", "notify 0x0012 01, 0x0015 02 03", "set 0x0012 01 02", "notify 0x0012",
    "indicate 0x0012 FF",
    "call exchange-mtu", "call discover-all", "call discover-services", "call discover-services 180F",
    "call discover-includes 0x0001-0xFFFF", "call discover-characteristics 0x0001-0x0005 2A00",
    "call discover-descriptors 0x0004-0x0004", "call read 0x0003", "call read-long 0x0003",
    "call read-uuid A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00 0x0001-0xFFFF", "call read-multiple 0x0003 0x0005",
    "call read-multiple-variable 0x0003 0x0005", "call write 0x0003 01", "call write-without-response 0x0003 01",
    "call write-signed 0x0003 01", "call write-long 0x0003 01", "call write-reliable 0x0003 01, 0x0005 02 03",
    "call subscribe 0x0003 indications",
    "call subscribe 0x0003 notifications", "call unsubscribe 0x0003", "call read-database-hash", "call follow-changes",
    "pairing io 0x04", "pairing mitm required", "pairing sc only", "pairing bonding on", "pairing key-size 7 16",
    "pairing keypresses off", "pairing sends enc id sign", "pairing takes none", "pairing identity 01 02",
    "pairing oob-data 01 02", "pairing oob-own", "pairing oob-required on", "pairing debug-key on",
    "pairing accepts off",
    "pairing consents off", "pairing on-demand on", "pair", "request-security", "answer yes", "answer no",
    "answer passkey 12", "answer keypress 4", "encryption on", "encryption off", "listen 0x0080 mtu 64 mps 23",
    "listen 0x0027 mtu 64 mps 64 most 2 authenticated authorized key16 later", "decide",
    "connect 0x0080 mtu 65535 mps 65533",
    "connect 0x0027 mtu 64 mps 64 enhanced 5", "send 40 00 01 02", "send 40 00", "close 40 00", "reading on",
    "reading off",
    "reconfigure mtu 128 mps 64 40 00 41 00", "fragments 27", "parameters 24 40 0 500",
  ]) func commandsAreText(_ line: String) throws {
    let command = try #require(try Command(line: line, file: "c"))
    #expect(command.script == line)
  }

  @Test func controlLines() throws {
    let lines = """
      insert ../b/more.json  # from where the script stands
      remove 0x0030
      security encrypted 7
      security none
      authorized
      unauthorized
      notify 0x0003 01, 0x0004 02 03
      """
    let script = try Script(Self.head + lines, file: "/a/s.exchange")
    let values = [
      HandleOctets(handle: AttributeHandle(rawValue: 3), octets: [1]),
      HandleOctets(handle: AttributeHandle(rawValue: 4), octets: [2, 3]),
    ]
    let commands: [Command] = [
      .insert("/a/../b/more.json"), .remove(AttributeHandle(rawValue: 0x30)), .security(.encrypted, keySize: 7),
      .security(.none, keySize: 16), .authorized(true), .authorized(false), .notify(values),
    ]
    #expect(script.steps.map(\.action) == commands.map { .command($0) })
    #expect(commands[0].script == "insert /b/more.json")
  }

  /// A file with cases is a script for each, in which the values stand in place of the names.
  @Test func cases() throws {
    let text = "title: T\nside: server\neach: a b = 00 01ff, 02 03\n< {a} {b}\n> {c:1}\n< {c}\n"
    let scripts = try Script.all(text, file: "s")
    #expect(scripts.map(\.variant) == ["00 01ff", "02 03"])
    #expect(scripts.map(\.steps[0].text) == ["< 00 01ff", "< 02 03"])
    #expect(scripts.map(\.steps[0].action) == [.send(OctetPattern([0, 1, 0xFF])), .send(OctetPattern([2, 3]))])
    #expect(scripts[1].steps[2].action == .send(OctetPattern(parts: [.captured("c")])))
  }

  @Test func blocks() throws {
    let script = try script(
      "repeat 2\n  < 0A\n  either\n    > 0B\n  or\n    > 01 ... | nothing\n    < {round}\n  end\nend\nclosed")
    func step(_ line: Int, _ text: String, _ action: Action) -> Step { Step(line: line, text: text, action: action) }
    let rest = Expectation.pdu(OctetPattern(parts: [.octet(1), .rest]))
    let branches = [
      [step(6, "> 0B", .expect([.pdu(OctetPattern([0x0B]))]))],
      [
        step(8, "> 01 ... | nothing", .expect([rest, .nothing])),
        step(9, "< {round}", .send(OctetPattern(parts: [.captured("round")]))),
      ],
    ]
    let repeated = [step(4, "< 0A", .send(OctetPattern([0x0A]))), step(5, "either", .either(branches))]
    #expect(script.steps == [step(3, "repeat 2", .repeated(.fixed(2), repeated)), step(12, "closed", .closed)])
  }

  // MARK: Databases

  /// The text with a mark where the error is, and the error.
  static let wrongDatabases: [(String, String)] = [
    ("▸", "the file ends where a value is missing"),
    ("▸[]", "a list instead of a database in { }"),
    ("{} ▸x", "\"x\" after the end of the JSON value; remove it"),
    ("▸{}", "a database without \"services\"; add it"),
    (
      #"{"services": [], ▸"services": []}"#,
      "the key \"services\" is a duplicate (first in line 1); remove one"
    ),
    (#"{▸"Services": []}"#, "unknown key \"Services\"; a database has title, services, channels"),
    (#"{"services": ▸{}}"#, "\"services\" must be a list, in [ ], and this is an object"),
    (service(#""uuid": ▸"180""#), "\"uuid\" is a UUID: \"180F\", or \"A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00\""),
    (service(#""uuid": "180F", "type": ▸"third""#), "\"type\" is one of primary, secondary"),
    (
      service(#""uuid": "180F", "handle": ▸0"#),
      "\"handle\" is a number from 1 to 65535, or in hex as \"0x0010\""
    ),
    (
      service(#""uuid": "180F", "handle": ▸"0xFFFF1""#),
      "\"handle\" is a number from 1 to 65535, or in hex as \"0x0010\""
    ),
    (
      "{\"services\": [\n▸{\"uuid\": \"180F\", \"end\": 1, \"includes\": [{\"service\": 1}]}]}",
      "\"end\" 0x0001 is below the last attribute of its service; raise it"
    ),
    (
      "{\"services\": [\n{\"uuid\": \"180F\", \"handle\": 5},\n ▸{\"uuid\": \"180F\", \"handle\": 5}]}",
      "handle 0x0005 is taken or below the one before it; give it a higher one"
    ),
    (
      characteristic(#"▸"propertys": ["read"]"#),
      "unknown key \"propertys\"; a characteristic has uuid, properties, handle, valueHandle, descriptors, value, kept, "
        + "fixed, maximum, read, write, delay, readError, writeError"
    ),
    (
      characteristic(#""properties": [▸"reed"]"#),
      "no property; a property is one of authenticatedSignedWrites, broadcast, extendedProperties, indicate, notify, "
        + "read, write, writeWithoutResponse"
    ),
    (characteristic(#""properties": [], "value": "01 ▸0""#), "half an octet; octets are pairs of hex digits"),
    (
      characteristic(#""properties": [], "value": "▸bit(00*4, 00)""#),
      "a function in the octets of a value; write the octets"
    ),
    (
      characteristic(#""properties": [], ▸"value": "00*513""#),
      "513 octets where at most 512 are allowed (Vol 3, Part F, §3.2.9: 512)"
    ),
    (
      characteristic(#""properties": [], ▸"value": "00 01", "maximum": 1"#),
      "2 octets where at most 1 are allowed (Vol 3, Part F, §3.2.9: 512)"
    ),
    (
      characteristic(#""properties": [], "fixed": true, ▸"maximum": 1"#),
      "a fixed value is always as long as \"value\"; remove \"maximum\" or \"fixed\""
    ),
    (
      characteristic(#""properties": [], "read": ▸"always""#),
      "\"read\" is one of authenticated, encrypted, none, open, or a list of one of them, \"authorized\", \"key7\" to "
        + "\"key16\", and of \"write\" \"signed\""
    ),
    (
      characteristic(#""properties": [], "write": ["encrypted", ▸"key6"]"#),
      "\"write\" is one of authenticated, encrypted, none, open, or a list of one of them, \"authorized\", \"key7\" to "
        + "\"key16\", and of \"write\" \"signed\""
    ),
    (
      characteristic(#""properties": [], "kept": "databaseHash", ▸"value": "00""#),
      "the server itself maintains this value; remove \"value\" or \"kept\""
    ),
    (characteristic(#""properties": [], "delay": ▸"soon""#), "\"delay\" is a time, as \"100ms\" or \"2s\""),
    (
      characteristic(#""properties": ["notify"], "descriptors": [{"uuid": "2902", ▸"value": "00 00"}]"#),
      "each client has its own Client Characteristic Configuration, readable, initially 0000; remove \"value\""
    ),
    (
      service(#""uuid": "180F", "includes": [▸{"service": 9}]"#),
      "no service is declared at the handle that the include at 0x0002 names"
    ),
    (channel(#""psm": ▸"0x0100", "action": "echo""#), "\"psm\" is a number from 1 to 255, or in hex as \"0x0010\""),
    (channel(#""psm": ▸39, "action": "echo""#), "PSM 0x0027 is that of ATT; choose another"),
    (
      channel(#""psm": 128, "action": "echo"}, {"psm": ▸"0x80", "action": "discard""#),
      "PSM 0x0080 is that of a channel above; choose another"
    ),
    (channel(#""action": ▸"print""#), "\"action\" is one of discard, echo"),
    (channel(#""action": "echo", "security": ▸"open""#), "\"security\" is one of authenticated, encrypted, none"),
    (#"{"services": [], "channels": [▸{"psm": 128}]}"#, "a channel without \"action\"; add it"),
    (channel(#""action": "echo", ▸"mtu": 64"#), "unknown key \"mtu\"; a channel has psm, security, action"),
    (#"{"services": [{"uuid": "180F"▸]}"#, "\"]\" instead of a comma or the closing brace"),
    (#"{"title": "a\▸q"}"#, "\\q is not an escape; a backslash itself is written \\\\"),
    ("{\"title\": \"a▸\n\"}", "a string ends in the line where it began; close it with \""),
    (
      String(repeating: "[", count: 64) + "▸" + String(repeating: "[", count: 36),
      "nested more than 64 levels deep; reduce the nesting"
    ),
  ]
  static func service(_ members: String) -> String { "{\"services\": [{\(members)}]}" }
  static func channel(_ members: String) -> String { "{\"services\": [], \"channels\": [{\(members)}]}" }
  static func characteristic(_ members: String) -> String {
    service("\"uuid\": \"180F\", \"characteristics\": [{\"uuid\": \"2A19\", \(members)}]")
  }
  @Test(arguments: wrongDatabases) func wrongDatabase(_ text: String, _ expected: String) {
    let before = text.prefix { $0 != "▸" }.split(separator: "\n", omittingEmptySubsequences: false)
    let place = "d:\(before.count):\((before.last?.count ?? 0) + 1)"
    do {
      _ = try DatabaseFile(text.filter { $0 != "▸" }, file: "d")
      Issue.record("\(text) is read without an error")
    } catch { #expect("\(error)" == "\(place): \(expected)") }
  }

  @Test func channels() throws {
    let file = try DatabaseFile(
      #"""
      { "services": [], "channels": [
        { "action": "discard" }, { "psm": "0x0080", "security": "authenticated", "action": "echo" } ] }
      """#, file: "d")
    let second = DatabaseChannel(psm: SPSM(rawValue: 0x80), security: .authenticated, action: .echo)
    #expect(file.channels == [DatabaseChannel(psm: nil, security: .none, action: .discard), second])
  }

  @Test func aDatabaseIsTakenAsWritten() throws {
    let file = try DatabaseFile(
      """
      { "services": [
        { "uuid": "180F", "handle": "0x0010", "end": 31, "includes": [{ "service": "0x0020", "handle": 18 }],
          "characteristics": [
            { "uuid": "2A19", "properties": ["read", "notify"], "handle": 20, "valueHandle": 22, "value": "57 \\"x\\"",
              "descriptors": [{ "uuid": "2901" }, { "uuid": "2902", "write": "encrypted" }] },
            { "uuid": "2A1A", "properties": ["notify"], "read": "open", "delay": "2s", "value": "01" } ] },
        { "uuid": "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", "type": "secondary", "handle": "0x0020" } ] }
      """, file: "d")
    let lines = file.database.allAttributes.map { attribute in
      "\(attribute.handle.script) \(attribute.groupEnd.script) \(attribute.type) \(attribute.permissions.write != .none)"
    }
    #expect(
      lines == [
        "0x0010 0x001F 2800 false", "0x0012 0x0012 2802 false", "0x0014 0x0018 2803 false", "0x0016 0x0016 2A19 false",
        "0x0017 0x0017 2901 false", "0x0018 0x0018 2902 true", "0x0019 0x001F 2803 false", "0x001A 0x001A 2A1A false",
        "0x0020 0x0020 2801 false",
      ])
    #expect(file.database.value(AttributeHandle(rawValue: 0x12)) == [0x20, 0, 0x20, 0])
    #expect(file.database.value(AttributeHandle(rawValue: 0x16)) == [0x57, 0x78])
    #expect(
      file.applicationValues == [
        AttributeHandle(rawValue: 0x1A): ApplicationValue(value: [1], maximum: 512, delay: .seconds(2))
      ])
  }

  /// Random texts, and scripts with a character changed: an error or a script, never a trap.
  @Test func noTextTraps() throws {
    var generator = SplitMix64(seed: 0x0010)
    let seeds = [
      "title: T\nside: server\nmtu 64\n< 0A {x}\n> {x:2}*3 ... | nothing\ncall read-uuid 2A00 0x0001-0x0005\n",
      "title: T\nresult services 0x0001-0x0005 1800\nvalue indication 0x0003 \"a\\\"\"\n",
      #"{"services": [{"uuid": "180F", "handle": "0x0010", "characteristics": [{"uuid": "2A19", "properties": ["read"]}]}]}"#,
      "title: T\nchannel: smp\nrole: responder\neach: a b = 00 01, 02 03\nrepeat 2\n"
        + "< {a} f4({pkx}, {x}, 00*16, bit(01*4, {round}))\nend\neither\n> 01 {b}\nor\n> nothing\nend\nlet x = 01\ncheck {x} != 00\nasks passkey\nkey s1(00, 01, 02)\n",
      "title: T\nchannel: l2cap\nrole: central\nlisten 0x0080 mtu 64 mps 64 most 2 key16\n> {x:[40-7F]} [01-FF]\n"
        + "repeat {x}\nsend {x} 00 01\nend\nconnect 0x0081 mtu 64 mps 64 enhanced 5\nignore 05 00 ...\n",
      "parameters 24 40 0 500", "reconfigure mtu 64 mps 64 40 00", "call write-reliable 0x0003 01, 0x0005 02 03",
      "call discover-characteristics 0x0001-0x0005 2A00",
    ]
    let alphabet = Array("0123456789ABCDEFx{}[]():,.*?|<>#\"\\ \n\r\tstwcanlo-é\u{0}")
    for _ in 0..<3000 {
      var text = Array(seeds.randomElement(using: &generator)!)
      for _ in 0..<Int.random(in: 1...6, using: &generator) {
        let at = Int.random(in: 0..<text.count, using: &generator)
        switch Int.random(in: 0..<3, using: &generator) {
        case 0: text[at] = alphabet.randomElement(using: &generator)!
        case 1: text.insert(alphabet.randomElement(using: &generator)!, at: at)
        default: text.removeSubrange(at...)
        }
        if text.isEmpty { text = [" "] }
      }
      _ = try? Script(String(text), file: "s")
      _ = try? DatabaseFile(String(text), file: "d")
      _ = try? Command(line: String(text), file: "c")
    }
  }
}

extension AttributeHandle {
  fileprivate var script: String { "0x" + hexDigits(UInt64(rawValue), 4) }
}
