import BindruneCapture
import BindruneToolbox
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import Testing

@testable import BindruneReport

/// What the page's script is given, read as JSON; the page itself is clicked through by Tests/Report/run.
@Suite struct ReportTests {
  static let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures/Traces")
  static let names = ((try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? [])
    .filter { $0.hasSuffix(".btsnoop") }.sorted()

  /// Every record's byte map, its texts formed as the page forms them, is the explanation of its octets.
  @Test(arguments: names) func byteMaps(_ name: String) throws {
    let page = try Page(path: Self.folder.appending(path: name).path, replays: false)
    var packets = PacketSink()
    var file = try TraceFile(path: Self.folder.appending(path: name).path)
    try file.read(into: &packets)
    #expect(packets.packets.count == page.count)
    for (place, (record, octets)) in packets.packets.enumerated() {
      let split = page.split(place)
      #expect(Array(page.octets(place).prefix(split ?? octets.count)) == octets, "record \(record.number)")
      guard record.content == .packet else { continue }
      var expected = Explanation(of: octets, as: .hci).rows.map(Page.Row.init)
      if let split {
        let joined = Array(page.octets(place)[split...])
        expected += Explanation(of: joined, as: .l2cap).rows.map { row in
          var row = Page.Row(row)
          row.bit += 8 * split
          return row
        }
      }
      let rows = page.rows(place)
      #expect(rows.count == expected.count, "record \(record.number)")
      for (row, wanted) in zip(rows, expected) {
        // The page names UUIDs.
        let isEqual = row.text == wanted.text || row.text.hasPrefix(wanted.text + " (")
        #expect(
          row.kind == wanted.kind && row.bit == wanted.bit && row.width == wanted.width && row.label == wanted.label
            && isEqual, "record \(record.number): \(row), not \(wanted)")
      }
    }
  }

  /// Names, attributes and connections are those of `trace show`.
  @Test(arguments: names) func lines(_ name: String) throws {
    let page = try Page(path: Self.folder.appending(path: name).path, replays: false)
    var lines = DissectingSink(TraceLines(Lines()))
    var file = try TraceFile(path: Self.folder.appending(path: name).path)
    try file.read(into: &lines)
    #expect(lines.sink.output.lines.count == page.count)
    for (place, line) in lines.sink.output.lines.enumerated() where line.layer != .note {
      #expect(page.string(page.numbers("names")[place]) == line.name)
      #expect(page.string(page.numbers("meanings")[place]) == line.meaning ?? "")
      #expect(page.numbers("handles")[place] == Int(line.handle ?? 0))
      #expect(page.numbers("flags")[place] & 3 == (line.direction.map { $0 == .fromHost ? 1 : 2 } ?? 0))
      #expect(TraceLayer.allCases[page.numbers("flags")[place] >> 5] == line.layer)
    }
  }

  /// The method of each recorded pairing, as its recorder chose it: the name of the file has it.
  @Test(arguments: names.filter { $0.hasPrefix("pairing-") }) func pairings(_ name: String) throws {
    let page = try Page(path: Self.folder.appending(path: name).path, replays: false)
    let stories = page.objects("pairings").filter { ($0["steps"] as? [Any] ?? []).count > 4 }
    #expect(!stories.isEmpty)
    for story in stories {
      let title = page.string(story["title"] as? Int ?? 0), listener = page.string(story["listener"] as? Int ?? 0)
      let isSecure = name.contains("-sc-")
      #expect(title.hasPrefix(isSecure ? "LE Secure Connections" : "Legacy pairing"), "\(title)")
      let methods = [
        "-jw-": "Just Works", "-passkey-": "Passkey Entry", "-entry-": "Passkey Entry",
        "-numeric-": "Numeric Comparison",
        "-oob-": "Out of Band",
      ]
      for (part, method) in methods where name.contains(part) { #expect(title.contains(method), "\(title)") }
      if !isSecure, !title.contains("Out of Band") { #expect(listener.hasPrefix("Everything"), "\(listener)") }
      if isSecure { #expect(!listener.hasPrefix("Everything"), "\(listener)") }
    }
  }

  @Test func answersAndCredits() throws {
    var trace = Made()
    trace.event([0x3E, 19, 1, 0, 0x40, 0, 0, 0, 1, 2, 3, 4, 5, 6, 24, 0, 0, 0, 100, 0, 0])
    trace.att([0x0A, 3, 0], fromHost: true)  // 2
    trace.event([0x13, 5, 1, 0x40, 0, 1, 0])
    trace.att([0x0B, 7], fromHost: false)  // 4
    trace.att([0x1D, 3, 0, 9], fromHost: false)  // 5
    trace.att([0x1E], fromHost: true)  // 6
    trace.packet([1, 3, 0x0C, 0], .fromHost)  // 7
    trace.event([0x0E, 4, 1, 3, 0x0C, 0])  // 8
    let page = try trace.page()
    #expect(page.numbers("answers") == [0, 0, 0, 2, 0, 1, 0, 1])
    #expect(page.numbers("completed") == [2, 0, 1])
    #expect(page.numbers("links") == [0, 0, -1, 0, 0, 0, -1, -1])
    let link = try #require(page.objects("connections").first)
    #expect(page.string(link["peer"] as? Int ?? 0) == "06:05:04:03:02:01" && link["role"] as? Int == 1)
    // Both values of the attribute, where they stand in their packets.
    let attributes = try #require(page.objects("servers").first?["attributes"] as? [[Any]])
    #expect(attributes.first?.last as? [Int] == [3, 10, 1, 0, 4, 12, 1, 5])
  }

  /// Read RSSI tells how strong a link's peer is heard, beside the reports of its advertising: Vol 4, Part E, §7.5.4.
  /// 127: not available.
  @Test func strengthOfALink() throws {
    var trace = Made()
    trace.event([0x3E, 12, 2, 1, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0xB0])
    trace.event([0x3E, 19, 1, 0, 0x40, 0, 0, 0, 1, 2, 3, 4, 5, 6, 24, 0, 0, 0, 100, 0, 0])
    for octets: [UInt8] in [
      [0, 0x40, 0, 0xC4], [0, 0x40, 0, 127], [2, 0x40, 0, 0xC4], [0, 0x41, 0, 0xC4], [0, 0x40],
    ] {
      trace.event([0x0E, UInt8(3 + octets.count), 1, 0x05, 0x14] + octets)
    }
    let page = try trace.page()
    #expect(page.numbers("strengths") == [0, 0, -80, 2, 0, -60])
    #expect((page.json["devices"] as? [[Int]])?.count == 1)
  }

  /// A recorder that dropped records says so at the next one.
  @Test func missingRecords() throws {
    var trace = Made()
    trace.packet([1, 3, 0x0C, 0], .fromHost)
    trace.packet([1, 3, 0x0C, 0], .fromHost)
    trace.packets[1].0.missingBefore = 3
    let page = try trace.page(), problems = page.numbers("problems")
    #expect(problems.first == 1 && page.string(problems.last ?? 0) == "records are missing before this one")
  }

  /// A call stands before its packet, in the connection of that; a line of another program in none.
  @Test func calls() throws {
    var trace = Made()
    trace.event([0x3E, 19, 1, 0, 0x40, 0, 0, 0, 1, 2, 3, 4, 5, 6, 24, 0, 0, 0, 100, 0, 0])
    trace.logging(UserLogging(message: "read(_:) #6</script>\u{1B}").octets)  // 2
    trace.att([0x0A, 3, 0], fromHost: true)
    trace.logging(UserLogging(identifier: "bluetoothd", message: "read").octets)
    trace.att([0x12, 3, 0], fromHost: true)
    trace.logging(UserLogging(message: "close() #7").octets)  // 6
    trace.packet([1, 3, 0x0C, 0], .fromHost)
    let page = try trace.page()
    #expect(page.numbers("links") == [0, 0, 0, -1, 0, -1, -1])
    #expect(page.string(page.numbers("names")[1]) == "User Logging bindrune: read(_:) #6</script>\\u{1B}")
    #expect(!String(decoding: try trace.document(), as: UTF8.self).contains("#6</script>"))
  }

  /// Fragments: the last one has the whole frame behind its own octets.
  @Test func joinedFrames() throws {
    var trace = Made()
    trace.packet([2, 0x40, 0x20, 5, 0, 5, 0, 4, 0, 0x1B], .fromController)
    trace.packet([2, 0x40, 0x10, 4, 0, 3, 0, 8, 9], .fromController)
    let page = try trace.page()
    #expect(page.split(0) == nil && page.split(1) == 9)
    #expect(Array(page.octets(1)[9...]) == [5, 0, 4, 0, 0x1B, 3, 0, 8, 9])
    #expect(page.rows(1).contains { $0.label == "Attribute Handle" && $0.text == "0x0003" && $0.bit == 8 * 14 })
  }

  // MARK: Bad input

  /// Names of a device, a file and a note with markup and control characters: none of it stands in the document.
  @Test func hostileText() throws {
    let markup = "</script><script>alert(1)</script><!--\u{202E}\u{0}\u{1B}"
    var trace = Made()
    let name = Array(markup.utf8.prefix(26))
    trace.event(
      [0x3E, UInt8(14 + name.count), 2, 1, 0, 0, 1, 2, 3, 4, 5, 6, UInt8(name.count + 2), UInt8(name.count + 1), 9]
        + name
        + [0xC0])
    trace.note(Array(repeating: UInt8(ascii: "<"), count: 60_000) + Array(markup.utf8))
    let document = try trace.document(title: markup, warnings: [markup])
    let text = String(decoding: document, as: UTF8.self)
    #expect(text.components(separatedBy: "<script").count == 3)
    #expect(text.components(separatedBy: "</script>").count == 3)
    #expect(!text.contains("<!--") && !text.contains("\u{202E}") && !text.contains("\u{1B}") && !text.contains("\u{0}"))
    // A text of a trace is cut, its octets are not: they are in base64.
    #expect(document.count < 250_000)
    let page = try Page(document)
    #expect(page.count == 2 && page.octets(1).count == 60_000 + markup.utf8.count)
    #expect(page.json["file"] as? String == markup.printable())
  }

  /// The policy permits exactly the style and the script of the document.
  @Test func policy() throws {
    let text = String(decoding: try Made().document(), as: UTF8.self)
    func between(_ start: String, _ end: String) throws -> String {
      let from = try #require(text.range(of: start)?.upperBound)
      return String(text[from..<(try #require(text.range(of: end, range: from..<text.endIndex)?.lowerBound))])
    }
    let policy = try between("Content-Security-Policy\" content=\"", "\"")
    func hash(_ text: String) -> String { Data(sha256(Array(text.utf8).span)).base64EncodedString() }
    #expect(policy.hasPrefix("default-src 'none'; ") && !policy.contains("unsafe"))
    #expect(policy.contains("style-src 'sha256-\(hash(try between("<style>", "</style>")))'"))
    #expect(policy.contains("script-src 'sha256-\(hash(try between("<script>", "</script>")))'"))
    for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://", "https://"] {
      let script = try between("<script>", "</script>").replacing("\"http://www.w3.org/2000/svg\"", with: "")
      #expect(!script.contains(word), "\(word)")
    }
  }

  @Test func nothingAndOne() throws {
    #expect(try Page(Made().document()).count == 0)
    var one = Made()
    one.packet([1, 3, 0x0C, 0], .fromHost)
    let page = try one.page()
    #expect(page.count == 1 && page.string(page.numbers("names")[0]) == "HCI_Reset")
  }

  @Test func manyConnections() throws {
    var trace = Made()
    for number in 1...500 {
      let low = UInt8(number & 0xFF), high = UInt8(number >> 8)
      trace.event([0x3E, 19, 1, 0, low, high, 0, 1, low, high, 0, 0, 0, 0xC0, 24, 0, 0, 0, 100, 0, 0])
    }
    for number in 1...500 { trace.att([0x0A, 3, 0], fromHost: true, handle: UInt16(number)) }
    let page = try trace.page()
    #expect(page.objects("connections").count == 500)
    #expect(page.numbers("links")[500...].elementsEqual(0..<500))
  }

  /// A handle that is used again is another connection.
  @Test func handlesAreUsedAgain() throws {
    var trace = Made()
    for number in UInt8(1)...2 {
      trace.event([0x3E, 19, 1, 0, 0x40, 0, 0, 0, number, 2, 3, 4, 5, 6, 24, 0, 0, 0, 100, 0, 0])
      trace.att([0x0A, 3, 0], fromHost: true)
      trace.event([5, 4, 0, 0x40, 0, 0x13])
    }
    let page = try trace.page()
    #expect(page.numbers("links") == [0, 0, 0, 1, 1, 1])
    #expect(page.objects("connections").map { $0["last"] as? Int } == [2, 5])
  }

  /// `--from` and `--to`: what comes before is learnt from, and no place outside is named.
  @Test func aPart() throws {
    let path = Self.folder.appending(path: "bumble-central.btsnoop").path
    let whole = try Page(path: path, replays: false)
    let from = whole.count / 2, to = from + 20
    let part = try Page(path: path, frames: from...to, replays: true)
    #expect(part.count == 21 && part.json["first"] as? Int == from)
    for place in 0..<part.count {
      #expect(part.octets(place) == whole.octets(place + from - 1))
      #expect(
        part.string(part.numbers("meanings")[place]) == whole.string(whole.numbers("meanings")[place + from - 1]))
    }
    for (place, back) in part.numbers("answers").enumerated() { #expect(back <= place) }
    for finding in part.json["findings"] as? [[Int]] ?? [] { #expect((0..<part.count).contains(finding[0])) }
  }

  @Test func longTracesEnd() throws {
    var collector = ReportCollector(replays: false)
    collector.limit = 100
    var trace = Made()
    for _ in 0..<300 { trace.packet([1, 3, 0x0C, 0], .fromHost) }
    for packet in trace.packets where collector.wantsMore { collector.receive(packet.0, packet.1.span) }
    collector.pause()
    #expect(collector.isCut && collector.records == 100)
    let page = try Page(collector.page(title: "long"))
    #expect(page.count == 100)
    #expect((page.json["warnings"] as? [String])?.first?.contains("--from and --to") == true)
  }

  /// Any octets make a page: packets with flipped bits, cut at any place.
  @Test func anything() throws {
    var chance = Chance(seed: 19)
    var packets = PacketSink()
    var file = try TraceFile(path: Self.folder.appending(path: "bumble-explore.btsnoop").path)
    try file.read(into: &packets)
    for _ in 0..<40 {
      var collector = ReportCollector(replays: false)
      for (record, octets) in packets.packets {
        var octets = octets, record = record
        if Int.random(in: 0..<3, using: &chance) == 0, !octets.isEmpty {
          octets[Int.random(in: octets.indices, using: &chance)] ^= 1 << UInt8.random(in: 0..<8, using: &chance)
        }
        if Int.random(in: 0..<8, using: &chance) == 0 {
          octets.removeLast(Int.random(in: 0...octets.count, using: &chance))
        }
        record.octets = Octets(0, octets.count)
        record.originalCount = octets.count
        collector.receive(record, octets.span)
      }
      collector.pause()
      let page = try Page(collector.page(title: "anything"))
      #expect(page.count == packets.packets.count)
      for place in 0..<page.count { _ = page.rows(place) }
    }
  }

  /// Reads on an enhanced bearer beside one on the fixed channel: answers, values and the channel stand where they are.
  /// The host's number of the channel is 0x0040, the peer's 0x0051.
  @Test func enhancedBearers() throws {
    let link = "04 3E 13 01 00 40 00 00 01 FA A2 31 8F F2 70 18 00 00 00 C8 00 00"
    let packets: [(HCIDirection, String)] = [
      (.fromController, link), (.fromController, "04 08 04 00 40 00 01"),
      (.fromHost, "02 40 00 12 00 0E 00 05 00 17 01 0A 00 27 00 40 00 40 00 05 00 40 00"),
      (.fromController, "02 40 20 12 00 0E 00 05 00 18 01 0A 00 40 00 40 00 01 00 00 00 51 00"),
      (.fromHost, "02 40 00 07 00 03 00 04 00 0A 05 00"), (.fromHost, "02 40 00 09 00 05 00 51 00 03 00 0A 03 00"),
      (.fromController, "02 40 20 09 00 05 00 40 00 03 00 0B 41 42"),
      (.fromController, "02 40 20 06 00 02 00 04 00 0B 77"),
      // A notification in two K-frames, the last credit's use, and more credits.
      (.fromController, "02 40 20 08 00 04 00 40 00 05 00 1B 03"),
      (.fromController, "02 40 20 07 00 03 00 40 00 00 43 44"),
      (.fromController, "02 40 20 0C 00 08 00 05 00 16 02 04 00 51 00 05 00"),
    ]
    var collector = ReportCollector(replays: false)
    for (index, (direction, text)) in packets.enumerated() {
      let octets = text.split(separator: " ").map { UInt8($0, radix: 16) ?? 0 }
      let record = CaptureRecord(
        number: index + 1, time: Int64(index) * 1_000_000, direction: direction, octets: Octets(0, octets.count))
      collector.receive(record, octets.span)
    }
    collector.pause()
    let page = try Page(collector.page(title: "bearers"))
    #expect(page.numbers("answers")[6...7] == [1, 3])
    #expect(page.string(page.numbers("names")[9]) == "ATT_HANDLE_VALUE_NTF")
    let server = try #require(page.objects("servers").first)
    var values: [String] = []
    for attribute in server["attributes"] as? [[Any]] ?? [] {
      let list = attribute[7] as? [Int] ?? []
      for at in stride(from: 0, to: list.count, by: 4) {
        let octets = page.octets(list[at])[list[at + 1]..<list[at + 1] + list[at + 2]]
        values.append("\(list[at]): \(octets.map { String($0, radix: 16) }.joined(separator: " "))")
      }
    }
    #expect(values.sorted() == ["6: 41 42", "7: 77"])
    let changes = try #require(page.objects("connections").first?["changes"] as? [Int])
    let story = stride(from: 0, to: changes.count, by: 3).map {
      "\(changes[$0]) \(page.string(changes[$0 + 1])): \(page.string(changes[$0 + 2]))"
    }
    #expect(
      story.filter { $0.contains("Channel") } == [
        "3 Channel 0x0040: PSM 0x0027, the peer's 0x0051, opened by the host",
        "10 Channel 0x0040: sent 3 octets in 1 SDU and 1 K-frame, without credit once, 5 ms",
        "10 Channel 0x0040: received 8 octets in 2 SDUs and 3 K-frames",
      ])
  }
}

private struct Chance: RandomNumberGenerator {
  var state: UInt64
  init(seed: UInt64) { state = seed }
  mutating func next() -> UInt64 {
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return state ^ state >> 29
  }
}
