import BindruneCapture
import BindruneHCI
import BindruneTrace
import BindruneWire
import TestSupport
import Testing

/// What happened on a connection, in words: each failure has its cause among the troubles.
@Suite struct StoryTests {
  struct Failure: CustomTestStringConvertible {
    var name: String
    var lines: [String]
    /// Of the sentence that tells the cause, and the line that shows it, from 1; 0: the last.
    var cause: String
    var line = 0
    var ending: String
    var testDescription: String { name }
  }

  /// A characteristic 2A37 at 0x0003 that notifies, with its configuration at 0x0004.
  private static let discovery = [
    "host att 08 01 00 FF FF 03 28", "peer att 09 07 02 00 12 03 00 37 2A", "host att 04 04 00 FF FF",
    "peer att 05 01 04 00 02 29", "host att 04 05 00 FF FF", "peer att 01 04 05 00 0A",
  ]
  private static let subscription = ["host att 12 04 00 01 00", "peer att 13"]
  private static let confirms = [
    "host smp 03 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11",
    "peer smp 03 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22 22",
    "host smp 04 33 33 33 33 33 33 33 33 33 33 33 33 33 33 33 33",
  ]
  private static let encryption = [
    "host command 2019 40 00 01 00 00 00 00 00 00 00 01 00 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11 11",
    "controller status 2019 00",
  ]

  static let failures = [
    Failure(
      name: "supervision timeout", lines: ["connect"] + discovery + ["wait 5s", "controller event 05 00 40 00 08"],
      cause: "the peer vanished: nothing was heard of it for the supervision timeout of 720 ms",
      ending: "the supervision timeout ended it (0x08, Connection Timeout)"),
    Failure(
      name: "never established", lines: ["connect", "controller event 05 00 40 00 3E"],
      cause: "the connection was never established: the peer did not answer", ending: "it ended with 0x3E"),
    Failure(
      name: "MIC failure",
      lines: ["connect"] + encryption + ["controller event 08 00 40 00 01", "controller event 05 00 40 00 3D"],
      cause: "the keys of the two sides differ", ending: "it ended with 0x3D"),
    Failure(
      name: "lost bond",
      lines: ["connect"] + encryption + ["controller event 08 06 40 00 00", "controller event 05 00 40 00 16"],
      cause: "the peer has no key for this bond: it has forgotten it", line: 4, ending: "our host ended it (0x16"),
    Failure(
      name: "our lost bond",
      lines: [
        "connect peripheral", "controller le 05 40 00 01 02 03 04 05 06 07 08 09 0A", "host command 201B 40 00",
        "controller complete 201B 00 40 00", "controller event 05 00 40 00 13",
      ], cause: "our host has no key for the bond", line: 3, ending: "the peer ended it (0x13"),
    Failure(
      name: "refused parameters",
      lines: [
        "connect", "peer sig 12 01 08 00 06 00 0C 00 00 00 C8 00", "host sig 13 01 02 00 01 00",
        "controller event 05 00 40 00 13",
      ], cause: "our host refused the connection parameters", line: 3, ending: "the peer ended it"),
    Failure(
      name: "unanswered request",
      lines: ["connect"] + discovery + ["host att 0A 03 00", "wait 45s", "controller event 05 00 40 00 16"],
      cause: "ATT_READ_REQ of 0x0003 (2A37) was never answered by the peer", line: 8, ending: "our host ended it"),
    Failure(
      name: "wrong passkey",
      lines: ["connect", "host smp 01 02 00 05 10 00 00", "peer smp 02 00 00 05 10 00 00"] + confirms + [
        "peer smp 05 04", "controller event 05 00 40 00 13",
      ], cause: "pairing failed, the peer says (0x04, Confirm Value Failed): the two sides used different passkeys",
      line: 7, ending: "the peer ended it"),
    Failure(
      name: "a confirmation without passkeys",
      lines: ["connect", "host smp 01 03 00 01 10 00 00", "peer smp 02 03 00 01 10 00 00"] + confirms + [
        "peer smp 05 04", "controller event 05 00 40 00 13",
      ], cause: "the two sides used different values for the confirmation", line: 7, ending: "the peer ended it"),
    Failure(
      name: "unconfirmed indication",
      lines: [
        "connect peripheral", "peer att 08 01 00 FF FF 03 28", "host att 09 07 02 00 20 03 00 37 2A",
        "peer att 12 04 00 02 00", "host att 13", "host att 1D 03 00 01", "wait 31s", "controller event 05 00 40 00 16",
      ], cause: "ATT_HANDLE_VALUE_IND of 0x0003 (2A37) was never confirmed by the peer", line: 6,
      ending: "our host ended it"),
    Failure(
      name: "MTU of 23",
      lines: ["connect"] + discovery + subscription + [
        "peer att 1B 03 00 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41",
        "peer att 1B 03 00 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41 41",
        "controller event 05 00 40 00 13",
      ], cause: "2 values fill all 20 octets that the MTU of 23 leaves", line: 10, ending: "the peer ended it"),
    Failure(
      name: "not subscribed", lines: ["connect"] + discovery + ["wait 20s", "controller event 05 00 40 00 16"],
      cause: "our host has not subscribed: 0x0003 (2A37) notifies", line: 3, ending: "our host ended it"),
    Failure(
      name: "Service Changed ignored",
      lines: [
        "connect", "host att 08 01 00 FF FF 03 28",
        "peer att 09 07 02 00 20 03 00 05 2A 05 00 02 06 00 37 2A", "host att 12 04 00 02 00", "peer att 13",
        "peer att 1D 03 00 05 00 FF FF", "host att 1E", "host att 0A 06 00", "peer att 01 0A 06 00 01",
        "controller event 05 00 40 00 16",
      ], cause: "the client ignored Service Changed", line: 8, ending: "our host ended it"),
    Failure(
      name: "hardware error", lines: ["connect"] + discovery + ["controller event 10 22", "reset"],
      cause: "the controller reported a hardware error (code 0x22)", line: 8,
      ending: "the controller reported a hardware error"),
    Failure(
      name: "reset", lines: ["connect"] + discovery + ["reset"], cause: "the controller was reset",
      ending: "the controller was reset"),
  ]

  private func story(_ script: CheckScript) -> TraceStory {
    var sink = DissectingSink(TraceStory())
    script.run(into: &sink)
    return sink.sink
  }

  @Test(arguments: failures) func cause(_ failure: Failure) throws {
    var script = CheckScript()
    for (index, line) in failure.lines.enumerated() {
      try script.append(line)
      script.places += Array(repeating: index + 1, count: script.packets.count - script.places.count)
    }
    let story = story(script), link = try #require(story.links.first)
    let told = "\(link.sentence) \(link.troubles)"
    #expect(story.links.count == 1 && link.ending.hasPrefix(failure.ending), "\(told)")
    let isCentral = !failure.lines[0].hasSuffix("peripheral")
    #expect(link.beginning == "our host is \(isCentral ? "Central" : "Peripheral") to C0:11:22:33:44:55")
    // The first trouble is the cause, and the record that shows it is named.
    let trouble = try #require(link.troubles.first)
    #expect(trouble.sentence.hasPrefix(failure.cause) || trouble.sentence.contains(failure.cause), "\(told)")
    #expect(script.places[trouble.number - 1] == (failure.line == 0 ? failure.lines.count : failure.line), "\(told)")
  }

  /// A connection on which all went well has no trouble, whoever ends it.
  @Test func noTrouble() throws {
    var script = CheckScript()
    try (["connect"] + Self.discovery + Self.subscription).forEach { try script.append($0) }
    for line in ["peer att 1B 03 00 41", "host att 0A 03 00", "peer att 0B 41", "controller event 05 00 40 00 13"] {
      try script.append(line)
    }
    let link = try #require(story(script).links.first)
    #expect(link.troubles.isEmpty, "\(link.troubles)")
    #expect(link.deeds == "5 requests of ours, 1 value received" && link.ending.hasPrefix("the peer ended it"))
  }

  /// What is only still waiting when the trace ends is no trouble.
  @Test func theTraceEnds() throws {
    var script = CheckScript()
    try (["connect", "host att 0A 03 00"]).forEach { try script.append($0) }
    let link = try #require(story(script).links.first)
    #expect(link.troubles.isEmpty && link.ending == "the trace ends while it lasts")
  }

  /// A trace without an end: what has ended is taken, what lasts stays.
  @Test func ended() throws {
    var script = CheckScript()
    for line in ["connect", "controller event 05 00 40 00 08", "connect"] { try script.append(line) }
    var story = story(script)
    #expect(story.takeEnded().map(\.troubles.count) == [1])
    #expect(story.links.count == 1 && story.takeEnded().isEmpty)
  }

  /// No trap, and bounded memory, whatever a trace has.
  @Test func mutations() throws {
    let seeds = try Self.failures.map { failure in
      var script = CheckScript()
      for line in failure.lines { try script.append(line) }
      return script.packets.flatMap { [UInt8(clamping: $0.octets.count)] + $0.octets }
    }
    var told = 0
    for octets in Fuzz(seeds, longest: 1_500) {
      var sink = DissectingSink(TraceStory()), at = 0, number = 0
      while at < octets.count {
        let count = min(Int(octets[at]), octets.count - at - 1), packet = Array(octets[at + 1..<at + 1 + count])
        number += 1
        let fromHost = packet.first == 1 || (packet.count > 2 && packet.first == 2 && packet[2] & 0x30 == 0)
        let record = CaptureRecord(
          number: number, time: at % 97 == 0 ? .min : Int64(at) &* 1_000_000,
          direction: at % 101 == 0 ? nil : fromHost ? .fromHost : .fromController, octets: Octets(0, count))
        sink.receive(record, packet.span)
        at += 1 + count
      }
      sink.pause()
      told += sink.sink.links.count
      #expect(sink.sink.links.allSatisfy { $0.troubles.count <= LinkStory.mostTroubles })
    }
    #expect(told > 0)
  }
}
