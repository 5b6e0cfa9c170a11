import BindruneConformance
import BindruneHCI
import BindruneL2CAP
import Foundation
import TestSupport
import Testing

/// The scripts of the channel l2cap together: what they cover, and what they notice.
@Suite struct ChannelScriptTests {
  static let files = ScriptTests.files.filter { file in
    ["L2CAP/", "own/channels/"].contains { ScriptTests.name(file).hasPrefix($0) }
  }

  /// The signaling commands of passing scripts: what the side under test has received (`<`), or sent (`>`).
  static func commands(_ direction: Character) throws -> [[UInt8]] {
    var commands: [[UInt8]] = []
    for file in files {
      for script in try file.scripts() {
        let verdict = Runner.run(script, against: ChannelTarget(script.linkRole))
        #expect(verdict.outcome == .passed, "\(file.name(of: script))")
        commands += verdict.transcript.filter { $0.hasPrefix("\(direction) 05 00 ") }.map { line in
          line.split(separator: " ").dropFirst(3).compactMap { UInt8($0, radix: 16) }
        }
      }
    }
    return commands
  }

  /// Every command of LE in both directions: Vol 3, Part A, §4, Table 4.2.
  @Test func everyCommand() throws {
    let all: Set<UInt8> = [0x01, 0x06, 0x07, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1A]
    #expect(try Set(Self.commands("<").map { $0[0] }).isSuperset(of: all))
    #expect(try Set(Self.commands(">").map { $0[0] }) == all)
  }

  /// Every result of Vol 3, Part A, §4.23, §4.26 and §4.28 is received. Those that L2CAP and its application have a use
  /// for are sent: nothing is ever pending.
  @Test func everyResult() throws {
    func results(_ commands: [[UInt8]], _ code: UInt8, at place: Int) -> Set<UInt8> {
      Set(commands.filter { $0[0] == code && $0.count >= place + 2 && $0[1] != 0 }.map { $0[place] })
    }
    let received = try Self.commands("<"), sent = try Self.commands(">")
    let le: Set<UInt8> = [0x00, 0x02, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B]
    #expect(results(received, 0x15, at: 12).isSuperset(of: le))
    #expect(results(sent, 0x15, at: 12) == le)
    #expect(results(received, 0x18, at: 10).isSuperset(of: le.union([0x0D, 0x0E, 0x0F])))
    #expect(results(sent, 0x18, at: 10) == le.subtracting([0x0B]).union([0x0C]))
    #expect(results(received, 0x1A, at: 4).isSuperset(of: 0x00...0x04))
    #expect(results(sent, 0x1A, at: 4) == Set(0x00...0x04))
  }

  /// Faults of other stacks, each with the scripts that notice it.
  @Test(arguments: [
    (
      "more octets than the length of the SDU",
      ["L2CAP/LE/CFC/BV-28-C", "own/channels/frames/later-longer-than-its-sdu"]
    ),
    ("beyond MPS or MTU", ["L2CAP/LE/CFC/BV-26-C", "L2CAP/LE/CFC/BV-27-C", "own/channels/frames/limits-of-lengths"]),
    ("K-frames without credits", ["L2CAP/ECFC/BI-02-C", "own/channels/credits/none-left"]),
    ("credits beyond 65,535", ["L2CAP/LE/CFC/BI-01-C", "own/channels/credits/limit"]),
    ("credits of zero, or for a fixed channel", ["L2CAP/ECFC/BI-01-C", "own/channels/credits/no-channel"]),
    ("a Source CID in use", ["L2CAP/LE/CFC/BV-20-C", "own/channels/requests/source-in-use"]),
    ("the response to a disconnection", ["L2CAP/LE/CFC/BV-09-C", "own/channels/disconnect/identifier-and-order"]),
    ("a stray response, or none", ["own/channels/responses/stray", "own/channels/responses/none"]),
    ("an application that gives up", ["own/channels/responses/after-giving-up"]),
    ("MTU or MPS out of range", ["own/channels/requests/lengths", "own/channels/responses/invalid"]),
    ("a response with a number out of range", ["own/channels/responses/invalid-enhanced"]),
    ("a first K-frame of 0 or 1 octets", ["own/channels/frames/empty", "own/channels/frames/no-length"]),
    ("a first K-frame longer than its SDU, and more of it", ["own/channels/frames/first-longer-than-its-sdu"]),
    ("no service, and credits for an unknown channel", ["L2CAP/LE/CFC/BV-05-C", "own/channels/credits/no-channel"]),
    ("K-frames that do not fill packets evenly", ["own/channels/frames/uneven-fragments"]),
    ("requests with the identifier of a pending one", ["own/channels/requests/same-identifier"]),
    ("the result of a reconfiguration", ["L2CAP/ECFC/BV-22-C", "own/channels/reconfigure/results"]),
  ]) func aFaultHasAScript(_ fault: String, _ scripts: [String]) {
    let names = Set(Self.files.map(ScriptTests.name))
    for script in scripts { #expect(names.contains(script), "\(fault)") }
  }

  /// The example in FORMAT.md.
  @Test func theExamplePasses() throws {
    let parts = try TextFile.read("\(ScriptTests.folder)/FORMAT.md").components(separatedBy: "```\n")
    let examples = try parts.filter { $0.contains("channel: l2cap\n") && $0.hasPrefix("title:") }
      .flatMap { try Script.all($0, file: "FORMAT.md") }
    #expect(examples.count == 1)
    for script in examples {
      let verdict = Runner.run(script, against: ChannelTarget(script.linkRole))
      #expect(verdict.outcome == .passed, "\(verdict.transcript)")
    }
  }

  /// A PDU is a channel and its payload, and a step about no channel fails.
  @Test(arguments: [
    ("< 05", "channel, two octets"), ("send 40 00 01", "is not open"), ("close 40 00", "no channel"),
    ("close 40", "two octets"), ("close 39 00", "no channel"), ("mtu 64", "has no \"mtu 64\""),
    ("reconfigure mtu 64 mps 64 40 00", "notOpen"), ("reconfigure mtu 64 mps 64 40", "of two octets"),
    ("parameters 5 40 0 500", "out of range"),
  ]) func impossibleSteps(_ line: String, _ reason: String) throws {
    let script = try Script("title: T\nchannel: l2cap\n\(line)\n", file: "s")
    switch Runner.run(script, against: ChannelTarget(.peripheral)).outcome {
    case .passed: Issue.record("\(line) passes")
    case .failed(let failure): #expect(failure.got.contains(reason) && failure.line == 3)
    case .skipped(let why): #expect(why.contains(reason))
    }
  }

  /// What the application learns and no step expects fails a script.
  @Test func anUnexpectedEvent() throws {
    let request = "< 05 00 14 01 0A 00 80 00 60 00 40 00 40 00 05 00\n> 05 00 15 ...\n"
    let script = try Script("title: T\nchannel: l2cap\nlisten 0x0080 mtu 64 mps 64\n" + request, file: "s")
    guard case .failed(let failure) = Runner.run(script, against: ChannelTarget(.peripheral)).outcome else {
      Issue.record("it passes")
      return
    }
    #expect(failure.step == "the end of the script" && failure.got == "opened 40 00")
  }

  // MARK: Wrong stacks

  /// Each wrong stack fails the scripts that are about its mistake, and the right one none.
  @Test(arguments: Mistake.allCases) func aWrongStackFails(_ mistake: Mistake) throws {
    var failed: Set<String> = []
    for file in Self.files {
      for script in try file.scripts() {
        let target = WrongChannels(ChannelTarget(script.linkRole), mistake)
        guard case .failed(let failure) = Runner.run(script, against: target).outcome else { continue }
        #expect(target.isMade, "\(file.name(of: script)) fails without a mistake: \(failure)")
        failed.insert(ScriptTests.name(file))
      }
    }
    print("\(mistake): \(failed.count) scripts fail")
    #expect(failed.isSuperset(of: mistake.scripts), "\(mistake): \(mistake.scripts.subtracting(failed))")
    if mistake == .none { #expect(failed == []) }
  }

  enum Mistake: String, CaseIterable, CustomTestStringConvertible {
    case none
    /// It sends K-frames without credits.
    case ignoresCredits
    /// It accepts K-frames without credits.
    case countsNoCredits
    case acceptsLongSDUs
    case acceptsLongFrames
    case givesNoCreditsBack
    /// It assigns the number of a channel to the next one, too.
    case reusesItsNumbers
    /// It opens a second channel for a Source CID.
    case acceptsSourcesInUse
    case answersIdentifierZero
    /// It reads the MPS without the two octets of an SDU's length.
    case cutsTooLong
    /// It answers a disconnection with the channels in its own order.
    case swapsTheResponse
    case acceptsEveryReconfiguration
    /// It discards the rest of an SDU without disconnecting.
    case neverDisconnects

    var testDescription: String { rawValue }
    var scripts: Set<String> {
      switch self {
      case .none: []
      case .ignoresCredits:
        ["L2CAP/LE/CFC/BV-06-C", "L2CAP/ECFC/BV-06-C", "own/channels/credits/within-an-sdu"]
      case .countsNoCredits: ["L2CAP/ECFC/BI-02-C", "own/channels/credits/none-left"]
      case .acceptsLongSDUs: ["L2CAP/LE/CFC/BV-26-C", "L2CAP/ECFC/BV-33-C", "own/channels/frames/limits-of-lengths"]
      case .acceptsLongFrames: ["L2CAP/LE/CFC/BV-27-C", "L2CAP/ECFC/BV-34-C", "own/channels/frames/limits-of-lengths"]
      case .givesNoCreditsBack:
        ["L2CAP/LE/CFC/BV-07-C", "L2CAP/ECFC/BV-07-C", "own/channels/credits/reader-stops"]
      case .reusesItsNumbers: ["L2CAP/LE/CFC/BV-29-C", "own/channels/signals/own-identifiers"]
      case .acceptsSourcesInUse: ["L2CAP/LE/CFC/BV-20-C", "own/channels/requests/source-in-use"]
      case .answersIdentifierZero: ["own/channels/signals/identifier-zero"]
      case .cutsTooLong: ["L2CAP/COS/CFC/BV-01-C", "L2CAP/COS/ECFC/BV-01-C", "L2CAP/LE/CFC/BV-32-C"]
      case .swapsTheResponse: ["L2CAP/LE/CFC/BV-09-C", "L2CAP/ECFC/BV-09-C"]
      case .acceptsEveryReconfiguration: ["L2CAP/ECFC/BI-03-C", "L2CAP/ECFC/BI-04-C", "L2CAP/ECFC/BI-05-C"]
      case .neverDisconnects: ["L2CAP/LE/CFC/BV-28-C", "L2CAP/LE/CFC/BI-01-C", "own/channels/frames/empty"]
      }
    }
  }
}

/// Our stack with a mistake: between it and the tester, fields of commands are changed, so that it believes something
/// wrong, or says it.
private final class WrongChannels: ConformanceTarget {
  private let target: ChannelTarget
  private let mistake: ChannelScriptTests.Mistake
  private(set) var isMade = false

  init(_ target: ChannelTarget, _ mistake: ChannelScriptTests.Mistake) {
    self.target = target
    self.mistake = mistake
  }

  /// Changes the two octets at `place` behind the command's header, if they are not `number` already.
  private func set(_ pdu: inout [UInt8], _ place: Int, _ number: Int) {
    guard pdu.count >= place + 8 else { return }
    let octets = [UInt8(number & 0xFF), UInt8(number >> 8 & 0xFF)]
    if Array(pdu[place + 6..<place + 8]) != octets { isMade = true }
    pdu.replaceSubrange(place + 6..<place + 8, with: octets)
  }
  private func number(_ pdu: [UInt8], _ place: Int) -> Int {
    pdu.count >= place + 8 ? Int(pdu[place + 6]) | Int(pdu[place + 7]) << 8 : 0
  }
  private func isCommand(_ pdu: [UInt8]) -> Bool { pdu.count >= 6 && pdu[0] == 0x05 && pdu[1] == 0 }

  /// The lengths that it states, where it accepts any.
  private var stated: (mtu: UInt16, mps: UInt16) = (0, 0)

  func send(_ pdu: [UInt8]) throws(TargetError) {
    var pdu = pdu
    if isCommand(pdu) {
      switch (mistake, pdu[2]) {
      case (.ignoresCredits, 0x14): set(&pdu, 8, 0xFFFF)
      case (.ignoresCredits, 0x15), (.ignoresCredits, 0x17): set(&pdu, 6, 0xFFFF)
      case (.ignoresCredits, 0x18): set(&pdu, 4, 0xFFFF)
      case (.ignoresCredits, 0x16):
        isMade = true
        return
      case (.cutsTooLong, 0x14) where number(pdu, 6) >= 23: set(&pdu, 6, number(pdu, 6) + 2)
      case (.cutsTooLong, 0x17) where number(pdu, 4) >= 64: set(&pdu, 4, number(pdu, 4) + 2)
      case (.acceptsSourcesInUse, 0x14) where number(pdu, 2) == 0x60 && isRequested: set(&pdu, 2, 0x7E)
      case (.acceptsSourcesInUse, 0x14): isRequested = true
      case (.answersIdentifierZero, _) where pdu[3] == 0:
        isMade = true
        pdu[3] = 1
        isZero = true
      default: break
      }
    }
    try target.send(pdu)
  }
  private var isRequested = false, isZero = false

  func receive(within time: Duration) throws(TargetError) -> Received {
    while true {
      let received = try target.receive(within: time)
      guard case .pdu(var pdu) = received, isCommand(pdu) else { return received }
      switch (mistake, pdu[2]) {
      case (.givesNoCreditsBack, 0x16), (.neverDisconnects, 0x06):
        isMade = true
        continue
      case (.countsNoCredits, 0x14): set(&pdu, 8, number(pdu, 8) / 2)
      case (.countsNoCredits, 0x15), (.countsNoCredits, 0x17): set(&pdu, 6, number(pdu, 6) / 2)
      case (.countsNoCredits, 0x18): set(&pdu, 4, number(pdu, 4) / 2)
      case (.acceptsLongSDUs, 0x14): set(&pdu, 4, Int(stated.mtu))
      case (.acceptsLongSDUs, 0x15) where number(pdu, 8) == 0: set(&pdu, 2, Int(stated.mtu))
      case (.acceptsLongSDUs, 0x17): set(&pdu, 2, Int(stated.mtu))
      case (.acceptsLongSDUs, 0x18) where number(pdu, 2) != 0: set(&pdu, 0, Int(stated.mtu))
      case (.acceptsLongFrames, 0x14): set(&pdu, 6, Int(stated.mps))
      case (.acceptsLongFrames, 0x15) where number(pdu, 8) == 0: set(&pdu, 4, Int(stated.mps))
      case (.acceptsLongFrames, 0x17): set(&pdu, 4, Int(stated.mps))
      case (.acceptsLongFrames, 0x18) where number(pdu, 0) != 0: set(&pdu, 2, Int(stated.mps))
      case (.reusesItsNumbers, 0x14): set(&pdu, 2, 0x40)
      case (.answersIdentifierZero, _) where isZero: pdu[3] = 0
      case (.swapsTheResponse, 0x07):
        let (destination, source) = (number(pdu, 0), number(pdu, 2))
        set(&pdu, 0, source)
        set(&pdu, 2, destination)
      case (.acceptsEveryReconfiguration, 0x1A): set(&pdu, 0, 0)
      default: break
      }
      return .pdu(pdu)
    }
  }
  func perform(_ command: Command) throws(TargetError) {
    var command = command
    switch command {
    case .channels(.listen(let spsm, var offer)):
      stated = (offer.lengths.mtu, offer.lengths.mps)
      offer.lengths = accepted(offer.lengths)
      command = .channels(.listen(spsm, offer))
    case .channels(.connect(let spsm, let lengths, let count)):
      stated = (lengths.mtu, lengths.mps)
      command = .channels(.connect(spsm, accepted(lengths), enhanced: count))
    default: break
    }
    try target.perform(command)
  }
  private func accepted(_ lengths: ChannelLengths) -> ChannelLengths {
    switch mistake {
    case .acceptsLongSDUs: ChannelLengths(mtu: 65_535, mps: lengths.mps)
    case .acceptsLongFrames: ChannelLengths(mtu: lengths.mtu, mps: 1_000)
    default: lengths
    }
  }
  func wait(_ time: Duration) throws(TargetError) { try target.wait(time) }
  func reconnect() throws(TargetError) { try target.reconnect() }
  var takesCommands: Bool { true }
  func result(within time: Duration) throws(TargetError) -> ProcedureResult? { try target.result(within: time) }
  func value(within time: Duration) throws(TargetError) -> ReceivedValue? { try target.value(within: time) }
  func event(within time: Duration) throws(TargetError) -> ApplicationEvent? { try target.event(within: time) }
  func key(within time: Duration) throws(TargetError) -> [UInt8]? { try target.key(within: time) }
}
