import BindruneWire
import Foundation
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// Channels of L2CAP in the core: whose they are, and what ends them. `BrokerWorld` has any order of it.
@Suite struct ChannelCoreTests {
  private static let peer = BrokerWorld.peers[0], client = BrokerWorld.peers[1]
  private static let one = SessionID(rawValue: 1), two = SessionID(rawValue: 2)

  /// Two sessions that are both connected to the same device.
  private struct Lab {
    var host = ModelHost()
    private var last: UInt64 = 0

    init() {
      host.arrive(peer)
      for session in [one, two] {
        host.with { $0.add(session, now: $1) }
        host.runToRest()
        ask(session, .connect(UUID(peer), ConnectOptions()))
      }
      host.runToRest()
      _ = host.takeDelivered()
    }
    mutating func newID() -> OperationID {
      last += 1
      return OperationID(rawValue: last)
    }
    mutating func ask(_ session: SessionID, _ request: BrokerRequest.Central) {
      host.with { $0.request(.central(request), of: session, now: $1) }
    }
    mutating func ask(_ session: SessionID, _ request: BrokerRequest.Peripheral) {
      host.with { $0.request(.peripheral(request), of: session, now: $1) }
    }
    /// Answers so far: `1 psm 128`, `2 failed refused`, by operation.
    mutating func answers() -> [String] {
      host.takeDelivered().compactMap { _, event in
        guard case .completed(let id, let result) = event else { return nil }
        switch result {
        case .success(.psm(let psm)): return "\(id.rawValue) psm \(psm)"
        case .success(let answer): return "\(id.rawValue) \(answer)"
        case .failure(let error): return "\(id.rawValue) failed \(error.code)"
        }
      }
    }
    /// Publishes, and returns the PSM.
    mutating func publish(_ session: SessionID) -> [String] {
      ask(session, .publishChannel(newID(), isEncrypted: false))
      host.runToRest()
      return answers()
    }
    var owners: [Int] { host.channels.sorted { $0.key.rawValue < $1.key.rawValue }.map(\.value.session.rawValue) }
  }

  @Test("A channel is the session's that has asked for it; a refusal is an answer")
  func opens() {
    var lab = Lab()
    lab.ask(Self.two, .openChannel(lab.newID(), UUID(Self.peer), psm: ModelHost.devicePSM))
    lab.ask(Self.one, .openChannel(lab.newID(), UUID(Self.peer), psm: 0x99))
    lab.ask(Self.one, .openChannel(lab.newID(), UUID(Self.peer), psm: ModelHost.devicePSM))
    lab.ask(Self.one, .openChannel(lab.newID(), UUID(Self.client), psm: ModelHost.devicePSM))
    lab.host.runToRest()
    // The driver answers for channels that are lent.
    #expect(lab.answers() == ["4 failed disconnected", "2 failed refused"])
    #expect(lab.owners == [2, 1] && lab.host.dropped == 0)
  }
  @Test("The end of a session's use of the link ends its channels and no others, and what is being opened is dropped")
  func cancels() {
    var lab = Lab()
    for session in [Self.one, Self.two] {
      lab.ask(session, .openChannel(lab.newID(), UUID(Self.peer), psm: ModelHost.devicePSM))
    }
    lab.host.runToRest()
    #expect(lab.owners == [1, 2])
    lab.ask(Self.one, .openChannel(lab.newID(), UUID(Self.peer), psm: ModelHost.devicePSM))
    lab.ask(Self.one, .cancelConnection(UUID(Self.peer)))
    #expect(lab.owners == [2])
    lab.host.runToRest()
    // The host has opened it before it was cancelled, and nobody gets it.
    #expect(lab.answers().isEmpty && lab.owners == [2] && lab.host.dropped == 1)
    #expect(lab.host.core.channels.openings.isEmpty)
  }
  @Test("A link that goes ends what is being opened, without an answer of its own")
  func theLinkGoes() {
    var lab = Lab()
    lab.ask(Self.one, .openChannel(lab.newID(), UUID(Self.peer), psm: ModelHost.devicePSM))
    lab.host.leave(Self.peer)
    lab.host.runToRest()
    #expect(lab.answers().isEmpty && lab.host.core.channels.openings.isEmpty && lab.owners.isEmpty)
  }
  @Test("A PSM is one session's: another gets another, may not end it, and gets it when it is free")
  func publishes() {
    var lab = Lab()
    #expect(lab.publish(Self.one) == ["1 psm 128"] && lab.publish(Self.two) == ["2 psm 129"])
    lab.ask(Self.two, .unpublishChannel(lab.newID(), psm: 0x80))
    #expect(lab.answers() == ["3 failed invalidArgument"] && lab.host.listening == [0x80, 0x81])
    lab.ask(Self.one, .unpublishChannel(lab.newID(), psm: 0x80))
    #expect(lab.answers() == ["4 done"] && lab.host.listening == [0x81])
    #expect(lab.publish(Self.two) == ["5 psm 128"])
    lab.host.with { $0.remove(Self.two, now: $1) }
    #expect(lab.host.listening.isEmpty && lab.host.core.channels.published.isEmpty)
  }
  @Test("128 PSMs are all that there are")
  func allPSMs() {
    var lab = Lab()
    for number in 0..<128 { #expect(lab.publish(Self.one) == ["\(number + 1) psm \(0x80 + number)"]) }
    #expect(lab.publish(Self.two) == ["129 failed invalidArgument"])
  }
  @Test("A channel of a peer is the session's that has the PSM, and nobody's when that has gone")
  func accepts() {
    var lab = Lab()
    #expect(lab.publish(Self.one) == ["1 psm 128"] && lab.publish(Self.two) == ["2 psm 129"])
    let link = lab.host.connectCentral(Self.client)
    lab.host.openChannel(0x81, on: link)
    lab.host.openChannel(0x80, on: link)
    lab.host.runToRest()
    #expect(lab.owners == [2, 1])
    // Channels that are open stay.
    lab.ask(Self.two, .unpublishChannel(lab.newID(), psm: 0x81))
    #expect(lab.owners == [2, 1])
    // One that was on its way when its PSM went.
    lab.host.with { $0.receive(.channelAccepted(ArrivedChannel(rawValue: 99), psm: 0x81, link), now: $1) }
    #expect(lab.owners == [2, 1])
    lab.host.with { $0.remove(Self.two, now: $1) }
    #expect(lab.owners == [1])
    lab.host.leave(Self.client)
    #expect(lab.owners.isEmpty && lab.host.listening == [0x80])
  }
  @Test("The end of the adapter ends PSMs and channels: each request to publish is answered once")
  func theAdapterGoes() {
    var lab = Lab()
    #expect(lab.publish(Self.one) == ["1 psm 128"])
    lab.ask(Self.two, .publishChannel(lab.newID(), isEncrypted: true))
    lab.ask(Self.two, .openChannel(lab.newID(), UUID(Self.peer), psm: ModelHost.devicePSM))
    lab.host.fail()
    // The host ends what it was doing first.
    #expect(lab.answers() == ["3 failed transport", "2 failed notStarted"])
    for (number, request) in [
      BrokerRequest.Peripheral.publishChannel(lab.newID(), isEncrypted: false),
      .unpublishChannel(lab.newID(), psm: 0x80),
    ].enumerated() {
      lab.ask(Self.one, request)
      #expect(lab.answers() == ["\(4 + number) failed notStarted"])
    }
    lab.ask(Self.one, .openChannel(lab.newID(), UUID(Self.peer), psm: 0x80))
    #expect(lab.answers() == ["6 failed notStarted"])
    lab.host.runToRest()
    lab.host.passTime()
    #expect(lab.answers().isEmpty && lab.publish(Self.two) == ["7 psm 128"])
  }
  @Test("A session that ends before its PSM is known leaves none behind")
  func aSessionThatEndsEarly() {
    var lab = Lab()
    lab.ask(Self.one, .publishChannel(lab.newID(), isEncrypted: false))
    lab.host.with { $0.remove(Self.one, now: $1) }
    lab.host.runToRest()
    #expect(lab.answers().isEmpty && lab.host.listening.isEmpty)
    #expect(lab.host.core.channels.publications.isEmpty && lab.host.core.channels.published.isEmpty)
  }
}
