import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneL2CAP

/// The machine of a credit-based channel.
@Suite struct CreditChannelTests {
  static let peer = CreditChannel.Endpoint(cid: ChannelID(rawValue: 0x0041), mtu: 256, mps: 100, credits: 2)
  static let phases: [CreditChannel.Phase] = [
    .free, .opening, .abandoned, .requested(peer), .answering(peer), .open(peer), .finishing(peer, deadline: .zero),
    .closing(peer.cid, isAwaited: true), .closing(peer.cid, isAwaited: false),
  ]
  static let events: [(String, CreditChannel.Event)] = [
    ("the layer above asks", .open), ("the peer asks", .requested(peer)), ("success", .opened(peer)),
    ("invalid success", .openedWrongly(peer.cid)), ("refusal", .refused), ("accepted", .accepted),
    ("declined", .declined), ("response sent", .responseSent), ("close", .close(deadline: nil)),
    ("close in an SDU", .close(deadline: .zero)), ("SDU sent", .sent), ("violation", .violated),
    ("disconnection request", .disconnectionRequested), ("disconnection response", .disconnected),
    ("time over", .timeOver), ("link down", .linkDown),
  ]
  static func name(_ phase: CreditChannel.Phase) -> String {
    if case .closing(_, isAwaited: true) = phase { return "closing, awaited" }
    return "\(phase)".components(separatedBy: "(")[0]
  }

  /// The table of transitions, printed by asking it for every phase with every event: Fixtures/Transitions, from which
  /// the diagram is drawn. `BINDRUNE_RECORD=1 swift test --filter CreditChannelTests` rewrites it.
  @Test func transitions() throws {
    var found = ""
    for phase in Self.phases {
      found += Self.name(phase) + "\n"
      for (event, value) in Self.events {
        guard let move = CreditChannel.move(from: phase, on: value) else { continue }
        var commands = move.disconnects ? ["disconnect"] : []
        if let report = move.report { commands.append("report \(report)") }
        found += "  \(event) → \(Self.name(move.phase))"
        found += (commands.isEmpty ? "" : ": " + commands.joined(separator: ", ")) + "\n"
      }
    }
    let url = VectorFile.fixtures.appending(path: "Transitions").appending(path: "credit-channel.txt")
    if ProcessInfo.processInfo.environment["BINDRUNE_RECORD"] != nil {
      return try found.write(to: url, atomically: true, encoding: .utf8)
    }
    #expect(found == (try String(contentsOf: url, encoding: .utf8)))
  }
  /// Whatever happens, the layer above is told once that a channel opens or does not, and once that it ends; and every
  /// channel ends with its link.
  @Test func everyPathTellsOnce() {
    var chance = SplitMix64(seed: Fuzz.seed)
    for _ in 0..<5_000 {
      let isOurs = Bool.random(using: &chance)
      var phase = CreditChannel.move(from: .free, on: isOurs ? .open : .requested(Self.peer))!.phase
      var reports: [CreditChannel.Report] = [], disconnections = 0
      let steps = (0..<8).map { _ in Self.events[.random(in: 2..<Self.events.count, using: &chance)] }
      for (_, event) in steps + [("", .linkDown)] {
        guard phase != .free, let move = CreditChannel.move(from: phase, on: event) else { continue }
        if move.disconnects { disconnections += 1 }
        #expect(move.disconnects == { if case .closing = move.phase { true } else { false } }())
        if let report = move.report { reports.append(report) }
        phase = move.phase
      }
      #expect(phase == .free && disconnections <= 1)
      #expect(
        reports == [.opened, .closed] || reports == [.notOpened] || (!isOurs && reports.isEmpty), "\(reports)")
    }
  }

  /// Twice the K-frames of the longest SDU, at least 4; given back when half of them are owed, or a quarter and the peer
  /// has not more than half.
  @Test func windows() {
    for (mtu, mps, size) in [(23, 23, 4), (245, 247, 4), (512, 247, 6), (2_048, 247, 18), (65_535, 23, 5_700)] {
      var window = CreditWindow()
      window.resize(mtu: UInt16(mtu), mps: UInt16(mps))
      let initial = Int(window.give())
      #expect(initial == size, "\(mtu) \(mps)")
    }
    var window = CreditWindow()
    window.resize(mtu: 512, mps: 247)
    let initial = window.give()
    #expect(initial == 6)
    // An SDU of two K-frames, then one of one.
    var accepted = [window.receiveFrame(), window.receiveFrame()]
    window.endSDU(isTaken: false)
    accepted.append(window.receiveFrame())
    window.endSDU(isTaken: false)
    #expect(accepted == [true, true, true] && !window.isDue && window.atPeer == 3)
    window.take(1)
    #expect(window.isDue && window.owed == 2)
    window.take(1)
    let isDue = window.isDue, given = window.give()
    #expect(isDue && given == 3 && window.atPeer == 6 && !window.isDue)
    window.take(1)
    #expect(window.owed == 0)
    // The layer above reads nothing: six K-frames, and no more.
    for _ in 0..<6 {
      let isAccepted = window.receiveFrame()
      window.endSDU(isTaken: false)
      #expect(isAccepted && !window.isDue)
    }
    let isAccepted = window.receiveFrame()
    #expect(!isAccepted)
  }
  /// The longest SDUs one after another, each taken when it is whole: the peer always has credits for most of the next.
  @Test(arguments: [23, 512, 2_048, 16_384]) func aStreamDoesNotStop(mtu: Int) {
    var window = CreditWindow(), least = Int.max, packets = 0
    window.resize(mtu: UInt16(mtu), mps: 247)
    _ = window.give()
    let frames = (mtu + 2 + 246) / 247
    for _ in 0..<100 {
      for _ in 0..<frames {
        let isAccepted = window.receiveFrame()
        #expect(isAccepted)
        least = min(least, window.atPeer)
        if window.isDue {
          packets += 1
          _ = window.give()
        }
      }
      window.endSDU(isTaken: true)
      if window.isDue {
        packets += 1
        _ = window.give()
      }
    }
    // A batch each SDU, of short ones each second one.
    #expect(least >= window.size / 4 && packets <= 100)
  }
  /// A peer that cuts an SDU into more K-frames than necessary is not stopped in it.
  @Test func wastefulPeers() {
    var window = CreditWindow()
    window.resize(mtu: 512, mps: 247)
    _ = window.give()
    for number in 0..<512 {
      let isAccepted = window.receiveFrame()
      #expect(isAccepted, "\(number)")
      if window.isDue { _ = window.give() }
    }
    window.endSDU(isTaken: false)
    #expect(window.atPeer + window.owed == 3)
    window.take(1)
    #expect(window.atPeer + window.owed == 6)
  }
  @Test func aWindowGrowsWithTheLongestSDU() {
    var window = CreditWindow()
    window.resize(mtu: 512, mps: 247)
    _ = window.give()
    window.resize(mtu: 1_024, mps: 247)
    #expect(window.size == 10 && window.owed == 4 && !window.isDue)
    window.resize(mtu: 1_024, mps: 512)
    #expect(window.size == 10)
  }
}
