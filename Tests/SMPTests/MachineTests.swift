import BindruneToolbox
import BindruneWire
import Foundation
import TestSupport
import Testing

@testable import BindruneSMP

/// Every phase against every input, for both roles: Fixtures/Machines/security-manager-….txt. `BINDRUNE_RECORD=1 swift
/// test` writes them; the diff is the review.
@Suite struct MachineTests {
  @Test(arguments: PairingRole.allCases) func everyPhaseAgainstEveryInput(_ role: PairingRole) throws {
    let found = matrix(role)
    for phase in [
      "idle", "legacy awaitingPasskey", "legacy awaitingConfirm", "legacy awaitingRandom",
      "secureConnections awaitingPublicKey", "secureConnections awaitingPasskey", "secureConnections awaitingConfirm",
      "secureConnections awaitingRandom", "secureConnections awaitingComparison", "secureConnections awaitingCheck",
      "awaitingEncryption", "distributing", "silent", role == .initiator ? "awaitingResponse" : "awaitingConsent",
    ] { #expect(found.contains(": \(phase)\n"), "\(phase) is not in the matrix") }
    let file = VectorFile.fixtures.appending(path: "Machines/security-manager-\(role).txt")
    if ProcessInfo.processInfo.environment["BINDRUNE_RECORD"] != nil {
      return try found.write(to: file, atomically: true, encoding: .utf8)
    }
    let expected = try String(contentsOf: file, encoding: .utf8)
    for (found, expected) in zip(found.split(separator: "\n"), expected.split(separator: "\n")) {
      #expect(found == expected)
    }
    #expect(found.count == expected.count)
  }

  private typealias Input = (name: String, act: (inout Bench) -> Void)
  /// The PDUs of a peer that does not play by the rules.
  private var pdus: [Input] {
    let samples: [(String, String)] = [
      ("Pairing Request", "01 03 00 0D 10 07 07"), ("Pairing Response", "02 03 00 0D 10 07 07"),
      ("Pairing Confirm", "03" + String(repeating: " 11", count: 16)),
      ("Pairing Random", "04" + String(repeating: " 22", count: 16)), ("Pairing Failed", "05 08"),
      ("Encryption Information", "06" + String(repeating: " 33", count: 16)),
      ("Central Identification", "07 34 12 EF CD AB 89 67 45 23 01"),
      ("Identity Information", "08" + String(repeating: " 44", count: 16)),
      ("Identity Address Information", "09 00 01 53 00 5E 00 00"),
      ("Signing Information", "0A" + String(repeating: " 55", count: 16)), ("Security Request", "0B 0D"),
      ("Pairing Public Key", "0C" + String(repeating: " 66", count: 64)),
      ("Pairing DHKey Check", "0D" + String(repeating: " 77", count: 16)), ("Keypress Notification", "0E 01"),
      ("reserved code", "0F"), ("no octet", ""), ("short Pairing Request", "01 03"), ("short Pairing Failed", "05"),
      ("short Pairing Random", "04 22"),
    ]
    return samples.map { name, text in (name, { $0.machine.receive(octets(text).span, now: $0.now, using: &$0.chance) })
    }
  }
  /// What users, controllers, time and a peer that plays by the rules do.
  private var acts: [Input] {
    [
      ("pair", { $0.command { machine, now in try machine.pair(now: now) } }),
      ("request security", { $0.command { machine, now in try machine.requestSecurity(now: now) } }),
      ("accept", { bench in bench.answer { $0.accept(now: $1, using: &$2) } }),
      ("enter 000001", { bench in bench.answer { $0.enter(passkey: 1, now: $1, using: &$2) } }),
      ("confirm numbers", { bench in bench.answer { machine, now, _ in machine.confirmNumbers(now: now) } }),
      ("notify key", { bench in bench.answer { machine, now, _ in machine.notify(.digitEntered, now: now) } }),
      ("refuse", { bench in bench.answer { machine, now, _ in machine.refuse(now: now) } }),
      ("refuse Security Request", { bench in bench.answer { machine, _, _ in machine.refuseSecurityRequest() } }),
      ("encrypted", { $0.machine.encryptionChanged(isEncrypted: true, now: $0.now, using: &$0.chance) }),
      ("not encrypted", { $0.machine.encryptionChanged(isEncrypted: false, now: $0.now, using: &$0.chance) }),
      (
        "30 s",
        {
          $0.now = $0.now + .seconds(30)
          $0.machine.expire(now: $0.now)
        }
      ),
      ("link closed", { $0.machine.linkClosed(now: $0.now) }),
      ("next of the peer", { $0.next() }),
    ]
  }

  private func matrix(_ role: PairingRole) -> String {
    // One way there to each phase: the first that the methods pass through, in steps of the peer. Of the other methods,
    // what leads to yet another phase.
    var text = "", found: [String: [String: Set<String>]] = [:], tried: Set<[String]> = []
    func add(_ title: String, _ way: Way? = nil, _ make: () -> Bench) {
      let phase = name(make().machine.phase)
      guard tried.insert([way.map { "\($0)" } ?? "", phase]).inserted else { return }
      var lines = ""
      for input in found[phase] == nil ? acts + pdus : acts {
        var bench = make()
        input.act(&bench)
        let outcome = bench.outcome(), next = name(bench.machine.phase)
        guard found[phase, default: [:]][input.name, default: []].insert(next).inserted else { continue }
        lines += "  \(input.name) → \(outcome)\n"
      }
      if !lines.isEmpty { text += "\(title): \(phase)\n" + lines }
    }
    add("at the start") { Bench(role, .justWorks) }
    if role == .responder {
      add("after request security") {
        var bench = Bench(role, .justWorks)
        bench.command { machine, now in try machine.requestSecurity(now: now) }
        _ = bench.outcome()
        return bench
      }
    }
    let entering: [Way] =
      role == .initiator ? [.passkeyFromResponder] : [.legacyPasskeyFromInitiator, .passkeyFromInitiator]
    for way in [.legacyPasskey, .legacyJustWorks, .justWorks, .numericComparison] + entering {
      for answers in Answers.allCases {
        for steps in 0..<12 {
          add("\(way), \(steps) steps, \(answers)", way) {
            var bench = Bench(role, way)
            bench.begin()
            for _ in 0..<steps { bench.step(answers) }
            _ = bench.outcome()
            return bench
          }
        }
      }
    }
    add("after 30 s of a pairing") {
      var bench = Bench(role, .justWorks)
      bench.begin()
      bench.step(.answered)
      bench.now = bench.now + .seconds(60)
      bench.machine.expire(now: bench.now)
      _ = bench.outcome()
      return bench
    }
    return text
  }
}

/// What the machine's user answers.
private enum Answers: CaseIterable { case unanswered, consented, answered }

/// A machine and a peer of ours that plays by the rules.
private struct Bench: ~Copyable {
  var machine: SecurityManager
  var peer: SecurityManager
  var chance = SplitMix64(seed: 1)
  var now = Instant.zero
  private var notes: [String] = []
  private var sent: [[UInt8]] = []
  private var passkey: UInt32 = 1

  init(_ role: PairingRole, _ way: Way) {
    var (i, r) = way.settings
    i.sendsKeypresses = true
    r.sendsKeypresses = true
    machine = SecurityManager(role: role, addresses: TwoMachines.addresses, settings: role == .initiator ? i : r)
    peer = SecurityManager(
      role: role == .initiator ? .responder : .initiator, addresses: TwoMachines.addresses,
      settings: role == .initiator ? r : i)
  }
  mutating func begin() {
    if machine.role == .initiator {
      command { machine, now in try machine.pair(now: now) }
    } else {
      try? peer.pair(now: now)
    }
  }
  mutating func command(_ body: (inout SecurityManager, Instant) throws -> Void) {
    do { try body(&machine, now) } catch PairingRefusal.tooEarly { notes.append("refused: tooEarly") } catch {
      notes.append("refused: \(error)")
    }
  }
  mutating func answer(_ body: (inout SecurityManager, Instant, inout SplitMix64) -> Bool) {
    if !body(&machine, now, &chance) { notes.append("not asked") }
  }
  /// What we have sent goes to the peer, and its next PDU comes.
  mutating func next() {
    take()
    for pdu in sent { peer.receive(pdu.span, now: now, using: &chance) }
    sent = []
    while let effect = peer.nextEffect() {
      switch effect {
      case .requestConsent: _ = peer.accept(now: now, using: &chance)
      case .displayPasskey(let displayed): passkey = displayed
      case .requestPasskey: _ = peer.enter(passkey: passkey, now: now, using: &chance)
      case .compareNumbers: _ = peer.confirmNumbers(now: now)
      default: break
      }
    }
    if let pdu = peer.takePDU(now) { machine.receive(pdu.span, now: now, using: &chance) }
  }
  /// The peer's next PDU; our user and the controllers, if they answer.
  mutating func step(_ answers: Answers) {
    next()
    if answers == .unanswered { return }
    while let effect = machine.nextEffect() {
      switch effect {
      case .requestConsent: _ = machine.accept(now: now, using: &chance)
      case _ where answers == .consented: break
      case .displayPasskey(let displayed): passkey = displayed
      case .requestPasskey: _ = machine.enter(passkey: passkey, now: now, using: &chance)
      case .compareNumbers: _ = machine.confirmNumbers(now: now)
      default: break
      }
    }
    guard name(machine.phase) == "awaitingEncryption", name(peer.phase) == "awaitingEncryption" else { return }
    machine.encryptionChanged(isEncrypted: true, now: now, using: &chance)
    peer.encryptionChanged(isEncrypted: true, now: now, using: &chance)
  }
  private mutating func take() { while let pdu = machine.takePDU(now) { sent.append(pdu) } }
  /// The phase, what has been sent and the effects.
  mutating func outcome() -> String {
    let before = sent.count
    take()
    let pdus = sent.dropFirst(before).map { pdu in
      let code = SMPCode(rawValue: pdu[0])
      return "sends \(code == .pairingFailed ? "\(PairingFailure(rawValue: pdu[1]))" : "\(code.name!)")"
    }
    let effects = machine.takeEffects().map { effect in
      switch effect {
      case .displayPasskey: "displayPasskey"
      case .compareNumbers: "compareNumbers"
      case .completed(let result): "completed: \(result.method)"
      case .report(let violation): "report: \(violation)"
      default: "\(effect)"
      }
    }
    defer { notes = [] }
    let all = notes + pdus + effects
    return name(machine.phase) + (all.isEmpty ? "" : ": " + all.joined(separator: ", "))
  }
}

private func name(_ phase: SecurityManager.Phase) -> String {
  func first(_ value: Any) -> String { String("\(value)".prefix { $0 != "(" }) }
  switch phase {
  case .pairing(.legacy(let pairing), _): return "legacy \(first(pairing.step))"
  case .pairing(.secureConnections(let pairing), _): return "secureConnections \(first(pairing.step))"
  case .pairing(let stage, _): return first(stage)
  default: return first(phase)
  }
}
