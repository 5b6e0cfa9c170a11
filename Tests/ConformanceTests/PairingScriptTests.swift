import BindruneConformance
import BindruneWire
import Foundation
import BindruneSMP
import TestSupport
import Testing

/// The scripts of the channel smp together: what they cover, and what they notice.
@Suite struct PairingScriptTests {
  /// A passing script: its transcript, and how its pairing ended.
  struct Played {
    var name: String
    var script: Script
    var transcript: [String]

    var role: PairingRole { script.pairing.role! }
    var results: [ExpectedResult] {
      script.steps.compactMap { if case .result(let result) = $0.action { result } else { nil } }
    }
    /// The PDUs that the side under test has received (`<`), or sent (`>`).
    func pdus(_ direction: Character) -> [[UInt8]] {
      transcript.filter { $0.first == direction }.map { line in
        line.split(separator: " ").dropFirst().compactMap { UInt8($0, radix: 16) }
      }
    }
    func shows(_ words: String) -> Bool { transcript.contains { $0.hasPrefix(words) } }
  }
  static func played() throws -> [Played] {
    var played: [Played] = []
    for file in ScriptTests.files where ScriptTests.name(file).hasPrefix("SM/") {
      for script in try file.scripts() {
        let verdict = Runner.run(script, against: PairingTarget(script.pairing))
        #expect(verdict.outcome == .passed, "\(file.name(of: script))")
        played.append(Played(name: file.name(of: script), script: script, transcript: verdict.transcript))
      }
    }
    return played
  }

  /// Vol 3, Part H, §2.3.5.1, Table 2.8, written down from the Specification: a row for each IO capability of the
  /// responder, a column for each of the initiator. J: Just Works; N: Numeric Comparison; i, r: the initiator, the
  /// responder displays the passkey; b: both enter it. Two letters: legacy pairing, then LE Secure Connections.
  static let table = """
    J  J  r  J  r
    J  JN r  J  rN
    i  i  b  J  i
    J  J  J  J  J
    i  iN r  J  iN
    """.split(separator: "\n").map { $0.split(separator: " ").map(String.init) }

  /// Each row of the table is played from both sides, with legacy pairing and LE Secure Connections, and the side under
  /// test does there what the table says.
  @Test func eachRowOfTheMethodTable() throws {
    var seen: [String: Set<String>] = [:]
    for played in try Self.played() {
      let pdus = played.pdus("<") + played.pdus(">")
      guard case .paired(let how) = played.results.last,
        let request = pdus.first(where: { $0[0] == 0x01 }), let response = pdus.first(where: { $0[0] == 0x02 }),
        (request[3] | response[3]) & 0x04 != 0, request[2] | response[2] == 0
      else { continue }
      let did: String
      switch how.method {
      case .justWorks: did = "J"
      case .numericComparison: did = played.shows("asks comparison") ? "N" : "?"
      case .passkeyEntry:
        let shows = played.shows("shows passkey"), asks = played.shows("asks passkey")
        did = shows == asks ? "?" : shows ? "displays" : "enters"
      case .outOfBand: did = "?"
      }
      #expect(how.isSecureConnections == (request[3] & response[3] & 0x08 != 0))
      let cell = Self.table[Int(response[1])][Int(request[1])]
      let letter = how.isSecureConnections ? cell.last! : cell.first!
      let expected =
        switch letter {
        case "J", "N": "\(letter)"
        case "i": played.role == .initiator ? "displays" : "enters"
        case "r": played.role == .responder ? "displays" : "enters"
        default: "enters"
        }
      #expect(did == expected, "\(played.name)")
      seen["\(played.role) \(how.isSecureConnections)", default: []].insert("\(request[1]) \(response[1])")
    }
    #expect(seen.count == 4)
    for (key, cells) in seen { #expect(cells.count == 25, "\(key)") }
  }

  /// Each reason of Vol 3, Part H, §3.5.5, Table 3.7 is received by both roles, also one that is reserved; and sent,
  /// where the stack has a use for it: it is LE only (0x0D, 0x0E), it is never too busy (0x10), and a Central is not
  /// asked too often (0x09).
  @Test func eachReasonOfPairingFailed() throws {
    var sent: [PairingRole: Set<UInt8>] = [:], received: [PairingRole: Set<UInt8>] = [:]
    for played in try Self.played() {
      for pdu in played.pdus(">") where pdu[0] == 0x05 { sent[played.role, default: []].insert(pdu[1]) }
      for pdu in played.pdus("<") where pdu[0] == 0x05 && pdu.count == 2 {
        if played.results.contains(.pairingFailed(PairingFailure(rawValue: pdu[1]))) {
          received[played.role, default: []].insert(pdu[1])
        }
      }
    }
    let known = Set<UInt8>(0x01...0x10)
    #expect(received == [.initiator: known.union([0xFF]), .responder: known.union([0xFF])])
    let never: Set<UInt8> = [0x0D, 0x0E, 0x10]
    #expect(sent == [.initiator: known.subtracting(never.union([0x09])), .responder: known.subtracting(never)])
  }

  /// Every PDU of Vol 3, Part H, §3.3 in both directions, as far as the role has it.
  @Test func everyPDUOfBothRoles() throws {
    var codes: [String: Set<UInt8>] = [:]
    for played in try Self.played() {
      codes["\(played.role) sends", default: []].formUnion(played.pdus(">").map { $0[0] })
      codes["\(played.role) gets", default: []].formUnion(played.pdus("<").map { $0[0] })
    }
    let all = Set<UInt8>(0x01...0x0E)
    // Of the passkey's two devices, the one that enters it notifies: here the responder.
    #expect(codes["initiator sends"] == all.subtracting([0x02, 0x0B, 0x0E]))
    #expect(codes["responder sends"] == all.subtracting([0x01]))
    #expect(codes["initiator gets"]!.isSuperset(of: all))
    #expect(codes["responder gets"]!.isSuperset(of: all.subtracting([0x02, 0x0E])))
  }

  /// The example in FORMAT.md.
  @Test func theExamplePasses() throws {
    let parts = try TextFile.read("\(ScriptTests.folder)/FORMAT.md").components(separatedBy: "```\n")
    let examples = try parts.filter { $0.contains("channel: smp\n") && $0.hasPrefix("title:") }
      .flatMap { try Script.all($0, file: "FORMAT.md") }
    #expect(examples.count == 2)
    for script in examples {
      let verdict = Runner.run(script, against: PairingTarget(script.pairing))
      #expect(verdict.outcome == .passed, "\(verdict.transcript)")
    }
  }

  /// A stack that makes one mistake fails a script of each method.
  @Test(arguments: Mistake.all) func aWrongStackFails(_ mistake: Mistake) throws {
    var failures = 0
    for file in ScriptTests.files where mistake.concerns(ScriptTests.name(file)) {
      for script in try file.scripts() {
        let target = Mistaken(PairingTarget(script.pairing), mistake.change, key: mistake.key)
        guard case .failed(let failure) = Runner.run(script, against: target).outcome else {
          // A mistake that this case gives no occasion for.
          #expect(!target.isMade, "\(file.name(of: script)) passes: \(mistake)")
          continue
        }
        #expect(target.isMade, "\(file.name(of: script)) fails without a mistake: \(failure)")
        failures += 1
      }
    }
    #expect(failures >= 10, "\(mistake)")
  }

  struct Mistake: Sendable, CustomTestStringConvertible {
    var testDescription: String
    /// Of the scripts that have an occasion for it: pairings that succeed.
    var folders: Set<Substring>
    /// A PDU that the stack sends, and what it sends instead.
    var change: @Sendable ([UInt8]) -> [UInt8] = { $0 }
    var key: @Sendable ([UInt8]) -> [UInt8] = { $0 }

    func concerns(_ name: String) -> Bool {
      let parts = name.split(separator: "/")
      return parts[0] == "SM" && folders.contains(parts[2])
        && ["BV-01-C", "BV-02-C", "own-numeric-comparison"].contains(parts[3])
    }

    static let all = [
      Mistake(testDescription: "a number that is not the committed one", folders: ["JW", "PKE"]) {
        flipped($0, code: 0x04)
      },
      Mistake(testDescription: "a wrong confirm value", folders: ["JW", "PKE", "SCPK"]) {
        flipped($0, code: 0x03)
      },
      Mistake(testDescription: "a wrong check value", folders: ["SCJW", "SCPK", "SCOB"]) {
        flipped($0, code: 0x0D)
      },
      Mistake(testDescription: "another public key", folders: ["SCJW", "SCPK"]) {
        $0[0] == 0x0C ? [0x0C] + DebugKey.publicKey : $0
      },
      Mistake(testDescription: "another key", folders: ["JW", "PKE", "SCJW", "SCPK"], key: { $0.reversed() }),
      Mistake(
        testDescription: "a key of 7 octets", folders: ["JW", "SCJW"],
        key: { Array($0.prefix(7)) + [UInt8](repeating: 0, count: 9) }),
    ]
  }
}

/// A PDU of this code with another last octet.
private func flipped(_ pdu: [UInt8], code: UInt8) -> [UInt8] {
  guard pdu[0] == code, let last = pdu.last else { return pdu }
  return Array(pdu.dropLast()) + [last ^ 0x01]
}
/// A stack with a mistake.
private final class Mistaken: ConformanceTarget {
  private let target: PairingTarget
  private let change: ([UInt8]) -> [UInt8]
  private let changeKey: ([UInt8]) -> [UInt8]
  private(set) var isMade = false

  init(_ target: PairingTarget, _ change: @escaping ([UInt8]) -> [UInt8], key: @escaping ([UInt8]) -> [UInt8]) {
    self.target = target
    self.change = change
    changeKey = key
  }
  func send(_ pdu: [UInt8]) throws(TargetError) { try target.send(pdu) }
  func receive(within time: Duration) throws(TargetError) -> Received {
    let received = try target.receive(within: time)
    guard case .pdu(let pdu) = received else { return received }
    return .pdu(note(pdu, change(pdu)))
  }
  private func note(_ right: [UInt8], _ wrong: [UInt8]) -> [UInt8] {
    if right != wrong { isMade = true }
    return wrong
  }
  func wait(_ time: Duration) throws(TargetError) { try target.wait(time) }
  func reconnect() throws(TargetError) { try target.reconnect() }
  var takesCommands: Bool { true }
  func perform(_ command: Command) throws(TargetError) { try target.perform(command) }
  func result(within time: Duration) throws(TargetError) -> ProcedureResult? { try target.result(within: time) }
  func value(within time: Duration) throws(TargetError) -> ReceivedValue? { try target.value(within: time) }
  func event(within time: Duration) throws(TargetError) -> ApplicationEvent? { try target.event(within: time) }
  func key(within time: Duration) throws(TargetError) -> [UInt8]? {
    guard let key = try target.key(within: time) else { return nil }
    return note(key, changeKey(key))
  }
}

/// The public key of the Specification's debug key pair, which the stack has not made. Vol 3, Part H, §2.3.5.6.1.
private enum DebugKey {
  static var publicKey: [UInt8] {
    let x: [UInt64] = [0x20b003d2_f297be2c, 0x5e2c83a7_e9f9a5b9, 0xeff49111_acf4fddb, 0xcc030148_0e359de6]
    let y: [UInt64] = [0xdc809c49_652aeb6d, 0x63329abf_5a52155c, 0x766345c2_8fed3024, 0x741c8ed0_1589d28b]
    return [x, y].flatMap { words in
      words.reversed().flatMap { word in (0..<8).map { UInt8(truncatingIfNeeded: word >> (8 * $0)) } }
    }
  }
}
