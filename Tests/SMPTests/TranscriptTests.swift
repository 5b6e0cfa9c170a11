import BindruneToolbox
import BindruneWire
import Foundation
import BindruneSMP
import TestSupport
import Testing

/// Pairings of another stack with itself (Fixtures/Pairings): with its random numbers each of our machines, in the
/// place of either of its devices, sends the same octets and makes the same key.
@Suite struct TranscriptTests {
  @Test func everyTranscriptFromBothSides() throws {
    let transcripts = try Transcript.all()
    #expect(transcripts.count == 9)
    for transcript in transcripts {
      for role in PairingRole.allCases { try replay(transcript, role) }
    }
  }

  private func replay(_ transcript: Transcript, _ role: PairingRole) throws {
    let comment: Comment = "\(transcript.title), \(role)"
    var settings = PairingSettings()
    let features = try #require(transcript.pdus.first { $0.role == role }).octets
    let authReq = AuthReq(rawValue: features[3])
    settings.ioCapability = IOCapability(rawValue: features[1])
    settings.protection = authReq.contains(.mitm) ? .wanted : .notNeeded
    settings.secureConnections = authReq.contains(.sc) ? .supported : .off
    settings.distributes = []
    settings.requests = []
    // What the machine draws, in its order: the private key, then the random numbers that it sends.
    var draws: [UInt128] = []
    let peer: PairingRole = role == .initiator ? .responder : .initiator
    if let data = transcript.data[peer] {
      settings.peersData = .secureConnections(confirm: data.confirm, random: SecurityKey(data.random))
      let key = try #require(transcript.privateKeys[role])
      var scripted = Scripted([key.high, key.low, try #require(transcript.data[role]).random])
      settings.ownData = OwnOutOfBandData(using: &scripted)
      #expect(settings.ownData?.confirm == transcript.data[role]?.confirm, comment)
    } else if let key = transcript.privateKeys[role] {
      draws += [key.high, key.low]
    }
    // A passkey that is displayed is drawn between them.
    if transcript.displays(role) { draws.append(Scripted.passkey) }
    for pdu in transcript.pdus where pdu.role == role && pdu.octets[0] == 0x04 {
      let random = Array(pdu.octets.dropFirst())
      draws.append(UInt128(leastSignificantFirst: random.span))
    }
    var chance = Scripted(draws)

    var machine = SecurityManager(role: role, addresses: try transcript.addresses(), settings: settings)
    if role == .initiator { try machine.pair(now: .zero) }
    var key: SecurityKey?
    var numbers: [UInt32] = []
    func attend(_ machine: inout SecurityManager) {
      while let effect = machine.nextEffect() {
        switch effect {
        case .requestConsent: _ = machine.accept(now: .zero, using: &chance)
        case .requestPasskey: _ = machine.enter(passkey: 123_456, now: .zero, using: &chance)
        case .displayPasskey(let passkey): #expect(passkey == 123_456, comment)
        case .compareNumbers(let number):
          numbers.append(number)
          _ = machine.confirmNumbers(now: .zero)
        case .encrypt(let made): key = made
        default: Issue.record("\(transcript.title), \(role): \(effect)")
        }
      }
    }
    attend(&machine)
    for pdu in transcript.pdus {
      if pdu.role == role {
        let sent = machine.takePDU(.zero) ?? []
        #expect(hex(sent) == hex(pdu.octets), comment)
      } else {
        machine.receive(pdu.octets.span, now: .zero, using: &chance)
        attend(&machine)
      }
    }
    key = key ?? machine.key(ediv: 0, rand: 0)
    #expect(key?.number == transcript.key, comment)
    #expect(numbers.allSatisfy { $0 == transcript.number } && numbers.isEmpty == (transcript.number == nil), comment)
    #expect(chance.isEmpty, comment)
  }
}

/// Numbers that are known before.
private struct Scripted: RandomNumberGenerator {
  /// What `UInt32.random(in: 0..<1_000_000)` makes 123,456 of: the upper half of a product of 32 bits.
  static let passkey: UInt128 = 0
  private var words: [UInt64] = []
  init(_ numbers: [UInt128]) {
    for number in numbers {
      if number == Self.passkey {
        words.append((123_456 << 32) / 1_000_000 + 2)
      } else {
        words += [UInt64(truncatingIfNeeded: number >> 64), UInt64(truncatingIfNeeded: number)]
      }
    }
  }
  var isEmpty: Bool { words.isEmpty }
  mutating func next() -> UInt64 { words.isEmpty ? 0 : words.removeFirst() }
}

/// One section of Fixtures/Pairings/transcripts.txt.
private struct Transcript {
  var title = ""
  var privateKeys: [PairingRole: UInt256] = [:]
  var data: [PairingRole: (confirm: UInt128, random: UInt128)] = [:]
  var linkAddresses: [PairingRole: PairingAddress] = [:]
  var pdus: [(role: PairingRole, octets: [UInt8])] = []
  var number: UInt32?
  var key: UInt128 = 0

  func addresses() throws -> PairingAddresses {
    PairingAddresses(
      initiator: try #require(linkAddresses[.initiator]), responder: try #require(linkAddresses[.responder]))
  }
  func displays(_ role: PairingRole) -> Bool {
    title.contains(role == .initiator ? "the initiator displays" : "the responder displays")
  }

  static func all() throws -> [Transcript] {
    let url = VectorFile.fixtures.appending(path: "Pairings/transcripts.txt")
    return try String(contentsOf: url, encoding: .utf8).split(separator: "\n\n").map { section in
      var lines = section.split(separator: "\n").map(String.init)
      var transcript = Transcript()
      transcript.title = lines.removeFirst()
      for line in lines {
        let words = line.split(separator: " ").map(String.init)
        let role: PairingRole = words[1] == "initiator" ? .initiator : .responder
        switch words[0] {
        case ">": transcript.pdus.append((.initiator, octets(words.dropFirst().joined())))
        case "<": transcript.pdus.append((.responder, octets(words.dropFirst().joined())))
        case "private":
          transcript.privateKeys[role] = UInt256(
            high: try #require(UInt128(words[2].prefix(32), radix: 16)),
            low: try #require(UInt128(words[2].suffix(32), radix: 16)))
        case "data":
          transcript.data[role] = (
            try #require(UInt128(words[2], radix: 16)), try #require(UInt128(words[3], radix: 16))
          )
        case "address":
          let value = try #require(UInt64(words[2].replacing(":", with: ""), radix: 16))
          transcript.linkAddresses[role] = PairingAddress(DeviceAddress(value), isRandom: words[3] == "random")
        case "number": transcript.number = UInt32(words[1])
        case "key": transcript.key = try #require(UInt128(words[1], radix: 16))
        default: Issue.record("\(line)")
        }
      }
      return transcript
    }
  }
}
