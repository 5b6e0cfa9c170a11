import BindruneCapture
import BindruneTrace
import BindruneWire
import Foundation
import TestSupport
import Testing

/// `Explanation`: every octet has one place, values are the Specification's, wrong octets are named.
@Suite struct ExplainTests {
  private func picture(_ octets: [UInt8], as form: Explanation.Form? = nil) -> String {
    Explanation(of: octets, as: form).lines().map(\.text).joined(separator: "\n")
  }
  /// What is wrong with the partition of the octets into leaves, or with the picture.
  private func faults(_ explanation: Explanation) -> [String] {
    var at = 0, faults: [String] = []
    for row in explanation.rows where row.isLeaf && row.width > 0 {
      if row.bit != at { faults.append("\(row.label) is at bit \(row.bit), not \(at)") }
      at = row.bit + row.width
    }
    if at != 8 * explanation.octets.count { faults.append("the leaves end at bit \(at)") }
    for line in explanation.lines() where line.text.unicodeScalars.count > 80 {
      faults.append("too wide: \(line.text)")
    }
    return faults
  }

  @Test(
    arguments: [("att.txt", .att), ("hci.txt", .hci), ("l2cap.txt", .l2cap), ("smp.txt", .smp)]
      as [(String, Explanation.Form)])

  func everyVectorIsExplained(file: String, form: Explanation.Form) throws {
    for vector in try VectorFile(file).vectors {
      let explanation = Explanation(of: vector.octets, as: form)
      #expect(explanation.isSound, "\(vector)\n\(picture(vector.octets, as: form))")
      #expect(faults(explanation).isEmpty, "\(vector): \(faults(explanation))")
      // Every prefix still has all its octets in the picture.
      for count in vector.octets.indices {
        let cut = Explanation(of: Array(vector.octets[..<count]), as: form)
        #expect(faults(cut).isEmpty, "\(vector), \(count) octets: \(faults(cut))")
      }
    }
  }

  /// The section at run time is that of the message's comment.
  @Test func sectionsAreThoseOfTheComments() throws {
    let sources = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appending(path: "Sources")
    let files = try #require(FileManager.default.enumerator(at: sources, includingPropertiesForKeys: nil))
    var checked = 0
    for case let url as URL in files where url.pathExtension == "swift" {
      var comment = ""
      for line in try String(contentsOf: url, encoding: .utf8).split(separator: "\n") {
        if line.hasPrefix("///") { comment += line } else if line == "}" { comment = "" }
        if line.hasPrefix("  public static var section: StaticString {"), let found = line.firstMatch(of: #/"(.+)"/#) {
          #expect(comment.contains("\(found.1)"), "\(url.lastPathComponent): \(line)")
          checked += 1
        }
      }
    }
    #expect(checked >= 150)
  }

  /// Sample data of Vol 3, Part H, §2.2.3: the request's octets, most significant first there.
  @Test func aPairingRequest() {
    let text = picture([0x01, 0x01, 0x00, 0x00, 0x10, 0x07, 0x07])
    #expect(text.contains("Vol 3, Part H, §3.5.1"))
    #expect(text.contains("DisplayYesNo"))
    #expect(text.contains("   4  10                      Maximum Encryption Key Size: 16"))
    #expect(text.contains(".... .1..               SignKey: CSRK: yes"))
  }
  /// A read request in an ACL packet: the layouts of Vol 4, Part E, §5.4.2, Vol 3, Part A, §3.1, Part F, §3.4.4.3.
  @Test func layersInLayers() {
    let text = picture([0x02, 0x40, 0x20, 0x07, 0x00, 0x03, 0x00, 0x04, 0x00, 0x0A, 0x03, 0x00])
    #expect(text.contains("   1  .... 0000 0100 0000     Handle: 0x0040"))
    #expect(text.contains("   7  04 00                   Channel ID: 0x0004 (Attribute Protocol)"))
    #expect(text.contains("ATT_READ_REQ") && text.contains("Vol 3, Part F, §3.4.4.3"))
    #expect(text.contains("  10  03 00                   Attribute Handle: 0x0003"))
  }
  /// Units of Vol 3, Part A, §4.20: 1.25 ms and 10 ms.
  @Test func units() {
    let text = picture([0x0C, 0, 5, 0, 0x12, 1, 8, 0, 24, 0, 40, 0, 0, 0, 0xF4, 0x01])
    #expect(text.contains("24 × 1.25 ms = 30 ms") && text.contains("40 × 1.25 ms = 50 ms"))
    #expect(text.contains("500 × 10 ms = 5000 ms"))
  }
  @Test func advertisingData() {
    let text = picture([2, 1, 6, 5, 9, 0x64, 0x65, 0x73, 0x6B, 3, 3, 0x0D, 0x18, 2, 0x0A, 0xF4], as: .ad)
    #expect(text.contains("LE General Discoverable Mode: yes") && text.contains("Name: \"desk\""))
    #expect(text.contains("UUID: 0x180D") && text.contains("Tx Power Level: -12 dBm"))
  }

  /// Each kind of error: its place, and what was expected.
  @Test(
    arguments: [
      (.att, [0x0C, 0x03, 0x00, 0x16], "Value Offset needs 2 octets; available: 1."),
      (.att, [0x05, 0x03, 0x01, 0x00, 0x00, 0x2A], "Format is 3, which the Specification forbids. Allowed: 1 … 2."),
      (.att, [0x0A, 0x03, 0x00, 0x00], "1 octet after the last field; expected: none."),
      (.att, [0x14], "Opcode 0x14 identifies no message that is known here."),
      (.att, [0x09, 0x01, 0x03], "Length has or gives 1 octet; expected: 2."),
      (.smp, [0x01, 0x03, 0x00, 0x01, 0x06, 0, 0], "Allowed: 7 … 16."),
      (.hci, [0x04, 0x0F, 0x05, 0, 1, 3, 0x0C], "Parameter_Total_Length needs 8 octets; available: 7."),
      (.ad, [0x05, 0x09, 0x41], "The AD structure states 5 octets; available: 2."),
    ] as [(Explanation.Form, [UInt8], String)])
  func wrongOctets(form: Explanation.Form, octets: [UInt8], sentence: String) {
    let explanation = Explanation(of: octets, as: form)
    #expect(!explanation.isSound)
    #expect(explanation.rows.contains { $0.text.contains(sentence) }, "\(picture(octets, as: explanation.form))")
    #expect(faults(explanation).isEmpty)
  }

  @Test func detection() {
    #expect(Explanation(of: [0x04, 0x0E, 0x04, 0x01, 0x03, 0x0C, 0x00]).form == .hci)
    #expect(Explanation(of: [0x03, 0x00, 0x04, 0x00, 0x0A, 0x03, 0x00]).form == .l2cap)
    #expect(Explanation(of: [0x0A, 0x03, 0x00]).form == .att)
    #expect(Explanation(of: [0x02, 0x01, 0x06, 0x03, 0x03, 0x0D, 0x18]).form == .ad)
  }

  /// A header that states the packet's length decides, also where the rest is wrong: Vol 4, Part E, §5.4. The other form
  /// is Pairing Random, Vol 3, Part H, §3.5.4.
  @Test func headersThatFit() {
    let packet: [UInt8] = [0x04, 0x0E, 0x0E, 0x01, 0x16, 0x20] + [UInt8](repeating: 0, count: 11)
    let explanation = Explanation(of: packet)
    #expect(explanation.form == .hci && !explanation.isSound && !explanation.isGuess)
    #expect(explanation.alternatives == [.smp])
    #expect(Explanation(of: packet + [0]).isGuess)
    let headers: [[UInt8]] = [
      [1, 0xFF, 0xFC, 2], [2, 0x40, 0, 2, 0], [3, 0x40, 0, 2], [4, 0xFF, 2], [5, 0x40, 0, 2, 0xC0],
    ]
    for header in headers {
      let explanation = Explanation(of: header + [0xAA, 0xBB])
      #expect(explanation.form == .hci && !explanation.isGuess, "\(header)")
    }
    #expect(Explanation(of: [0x0A, 0x03, 0x00]).isGuess && !Explanation(of: [0x0A, 0x03, 0x00], as: .att).isGuess)
  }

  /// Octets that break a rule of the checker by themselves.
  @Test(
    arguments: [
      (.ad, [0x0A, 0x09, 0x53, 0x65, 0x6E, 0x73, 0x6F, 0x72, 0x20, 0xC3, 0x28], "ad.name"),
      (.ad, [0x02, 0x01, 0x03], "ad.flags-modes"), (.ad, [0x05, 0x12, 0x06, 0x00, 0x05, 0x00], "ad.interval-range"),
      (.ad, [0x03, 0x09, 0x41, 0x42, 0x03, 0x09, 0x43, 0x44], "ad.once"),
      (.att, [0x01, 0x08, 0x01, 0x00, 0x00], "att.error-code"),
      // A list of attributes whose handles do not ascend. Vol 3, Part F, §3.4.3.2.
      (.att, [0x05, 0x01, 0x04, 0x00, 0x00, 0x28, 0x03, 0x00, 0x03, 0x28], "att.list-ascending"),
      (.att, [0x0A, 0x00, 0x00], "att.handle-zero"),
      (.hci, [0x02, 0x40, 0x20, 0x07, 0x00, 0x03, 0x00, 0x04, 0x00, 0x0A, 0x00, 0x00], "att.handle-zero"),
      // A scan window that is longer than its interval. Vol 4, Part E, §7.8.10.
      (.hci, [0x01, 0x0B, 0x20, 0x07, 0x01, 0x10, 0x00, 0x20, 0x00, 0x00, 0x00], "hci.scan-window"),
    ] as [(Explanation.Form, [UInt8], String)])
  func brokenRules(form: Explanation.Form, octets: [UInt8], rule: String) {
    var explanation = Explanation(of: octets, as: form)
    #expect(explanation.isSound)
    explanation.judge()
    let marks = explanation.rows.filter { $0.kind == .problem }.map(\.label)
    #expect(marks.contains(rule) && !explanation.isSound, "\(marks)")
  }

  /// Every record of every fixture of the checker: marked with what the checker finds, and with nothing else.
  @Test func recordsAreMarkedAsTheCheckerFinds() throws {
    for fixture in CheckTests.cases() {
      let script = try fixture.script()
      let findings = script.check().findings
      for number in script.packets.indices.map({ $0 + 1 }) {
        var sink = DissectingSink(ExplainedRecord(number))
        script.run(into: &sink)
        guard let explanation = sink.sink.explanation(as: nil) else { continue }
        let own = findings.filter { $0.number == number }
        #expect(explanation.isSound == own.isEmpty, "\(fixture.place), record \(number)")
        for finding in own {
          #expect(explanation.rows.contains { $0.kind == .problem && $0.label == finding.rule.id }, "\(fixture.place)")
        }
      }
    }
  }

  /// What the recorder has cut is no fault of its sender.
  @Test func cutRecords() throws {
    let packet = octets("02 40 00 07 00 03 00 04 00 0A 03 00")
    for count in 1..<packet.count {
      var sink = DissectingSink(ExplainedRecord(1))
      let record = CaptureRecord(
        number: 1, direction: .fromHost, originalCount: packet.count, octets: Octets(0, count))
      sink.receive(record, packet.span.extracting(first: count))
      sink.pause()
      let explanation = try #require(sink.sink.explanation(as: nil))
      #expect(explanation.isSound, "\(count)")
      #expect(explanation.rows.last?.label == "The recorder kept \(count) of 12 octets.")
    }
  }

  /// 100,000 packets through detection and every form: rows, never a trap.
  @Test func badInput() throws {
    let samples = try ["att.txt", "hci.txt", "l2cap.txt", "smp.txt"].flatMap {
      try VectorFile($0).vectors.map(\.octets)
    }
    for packet in Fuzz(samples, cases: 100_000 / 7, longest: 80) {
      var detected = Explanation(of: packet)
      detected.judge()
      for form in Explanation.Form.allCases {
        let explanation = Explanation(of: packet, as: form)
        let found = faults(explanation)
        if !found.isEmpty {
          Issue.record("\(form) \(packet): \(found.prefix(3))")
          return
        }
      }
    }
  }
}
