import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneGAP

/// The machines' tables of transitions, printed by asking them for every phase with every event: Fixtures/Transitions,
/// from which the diagrams are drawn. `BINDRUNE_RECORD=1 swift test --filter TransitionTests` rewrites them.
@Suite struct TransitionTests {
  @Test func scanner() throws {
    let scan = ControllerScan.seeking
    var other = scan
    other.isActive = true
    try check(
      "scanner.txt",
      phases: [.off, .settingParameters(scan), .enabling(scan), .on(scan), .disabling] as [BindruneGAP.Scanner.Phase],
      events: [
        ("a scan is wanted", .go(scan)), ("another scan is wanted", .go(other)), ("no scan is wanted", .go(nil)),
        ("accepted", .accepted(scan)), ("accepted for a scan that is unwanted", .accepted(nil)), ("refused", .refused),
      ] as [(String, BindruneGAP.Scanner.Event)]
    ) { BindruneGAP.Scanner.move(from: $0, on: $1).map { (name($0.phase), $0.command.map { name($0) }) } }
  }

  @Test func advertisingSet() throws {
    let target = try target("one")
    let phases: [AdvertisingSet.Phase] = [
      .off(nil), .setting(.parameters, target, .request), .setting(.data(0), target, .restart),
      .setting(.enable, target, .retry), .on(target), .changing(.data(0), target), .disabling(target),
      .ended(.connected, target), .blocked(target),
    ]
    let events: [(String, AdvertisingSet.Event)] = [
      ("a command is needed", .need(.parameters, target, .request)),
      ("data are needed", .need(.data(0), target, .restart, staysOn: true)),
      ("all is as wanted", .reached(target)), ("unwanted", .needNothing), ("called", .called),
      ("accepted", .accepted(next: nil)), ("piece accepted", .accepted(next: .data(251))),
      ("refused", .refused(.final)), ("refused because of links", .refused(.untilLinkDown)),
      ("end", .ended(.connected)), ("link down", .linkDown),
    ]
    try check("advertising-set.txt", phases: phases, events: events) {
      AdvertisingSet.move(from: $0, on: $1).map { (name($0.phase), $0.command.map { name($0) }) }
    }
  }
  /// A refused request does not wait for a link to go down; a refused restart does, unless one went down meanwhile.
  @Test func causesOfAnAdvertisingSet() throws {
    let target = try target("one")
    func cause(_ before: AdvertisingSet.Cause, _ event: AdvertisingSet.Event) -> AdvertisingSet.Cause? {
      guard
        case .setting(.enable, target, let cause) = AdvertisingSet.move(
          from: .setting(.enable, target, before), on: event)?.phase
      else { return nil }
      return cause
    }
    for before in [AdvertisingSet.Cause.request, .restart, .retry] { #expect(cause(before, .called) == .request) }
    #expect(cause(.restart, .linkDown) == .retry)
    #expect(cause(.request, .linkDown) == nil)
    #expect(cause(.retry, .linkDown) == nil)
  }

  @Test func connections() throws {
    let attempt = Connections.Attempt(peers: [Bench.peer], usesList: false, parameters: .balanced)
    let now = Instant(nanoseconds: 0)
    let phases: [Connections.Phase] = [
      .idle, .listing(.clear), .creating(attempt), .creating(attempt, isOver: true), .initiating(attempt, since: now),
      .cancelling(attempt, deadline: now), .blocked(until: now),
    ]
    let events: [(String, Connections.Event)] = [
      ("the list needs a change", .needsChange(.clear)), ("an attempt is wanted", .needs(attempt)),
      ("another attempt is wanted", .superseded), ("no request is left", .needsNothing), ("accepted", .accepted),
      ("refused", .refused(.final)), ("refused during an earlier attempt", .refused(.isBusy)),
      ("refused without room", .refused(.hasNoRoom)), ("no answer", .refused(.noAnswer)),
      ("link", .linkUp(isAttempted: true)), ("other link", .linkUp(isAttempted: false)),
      ("failure", .failed(hasNoRoom: false)), ("failure without room", .failed(hasNoRoom: true)),
      ("cancelled", .cancelled), ("link down or request", .chance), ("time over", .timeOver),
    ]
    try check("connections.txt", phases: phases, events: events) {
      Connections.move(from: $0, on: $1, now: now).map { (name($0.phase), $0.command.map { name($0) }) }
    }
  }

  private func target(_ text: String) throws -> AdvertisingSet.Target {
    var bench = Bench.started()
    bench.advertise(text)
    let target = bench.core.advertiser.sets.first?.phase.target
    return try #require(target)
  }
  /// The form of Fixtures/Machines, with the phases themselves as headings.
  private func check<Phase, Event>(
    _ file: String, phases: [Phase], events: [(String, Event)],
    sourceLocation: SourceLocation = #_sourceLocation,
    move: (Phase, Event) -> (phase: String, command: String?)?
  ) throws {
    var found = ""
    for phase in phases {
      found += name(phase) + "\n"
      for (event, value) in events {
        guard let (next, command) = move(phase, value) else { continue }
        found += "  \(event) → \(next)" + (command.map { ": \($0)" } ?? "") + "\n"
      }
    }
    let url = VectorFile.fixtures.appending(path: "Transitions").appending(path: file)
    if ProcessInfo.processInfo.environment["BINDRUNE_RECORD"] != nil {
      return try found.write(to: url, atomically: true, encoding: .utf8)
    }
    #expect(found == (try String(contentsOf: url, encoding: .utf8)), sourceLocation: sourceLocation)
  }
}
