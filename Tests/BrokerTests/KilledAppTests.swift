import BindruneWire
import Foundation
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// The process of an app ends at every step of every operation: before the request, after it, between any two events of
/// the host that belong to it, and after all of them.
@Suite struct KilledAppTests {
  private static let shared = BrokerWorld.peers[0], own = BrokerWorld.peers[1], far = BrokerWorld.peers[2]
  private static let client = BrokerWorld.peers[3]
  private static let service = AttributeHandle(rawValue: 0x10), value = AttributeHandle(rawValue: 0x12)
  private static let control = AttributeHandle(rawValue: 0x15)

  /// What the app is doing when it ends.
  enum Operation: String, CaseIterable, Sendable {
    case connect, connectAbsent, connectLater, cancelConnection, cancelAbsent, scan, stopScan, readRSSI
    case discoverServices, discoverIncludedServices, discoverCharacteristics, discoverDescriptors
    case read, write, subscribe, subscribeOfItsOwn, unsubscribe
    case addService, removeService, removeAllServices, setValue, startAdvertising, stopAdvertising, setLatency
    case clientSubscribes, clientReads, clientWrites, respond, reject
    case openChannel, publishChannel, unpublishChannel, clientOpensChannel
  }

  /// The app that ends, another one that shares all it can with it, and a client.
  private struct Lab {
    static let app = AppID(rawValue: 1), other = AppID(rawValue: 2)
    static let session = SessionID(rawValue: 1), bystander = SessionID(rawValue: 2)
    var host = ModelHost()
    var pulse: Pulse?, link = LinkID(rawValue: 0)
    private var last: UInt64 = 0

    init(isPreserved: Bool) throws {
      for peer in [shared, own, client] { host.arrive(peer) }
      for (app, session, name) in [
        (Self.other, Self.bystander, "b"), (Self.app, Self.session, isPreserved ? "a" : nil),
      ] {
        host.with { $0.register(app, [.central, .peripheral], now: $1) }
        host.with { $0.add(session, of: app, as: ManagerIdentity(.central, restoreIdentifier: name), now: $1) }
        host.runToRest()
        connect(shared, session)
        ask(session, .setNotifying(newID(), UUID(shared), value, true))
        host.runToRest()
        ask(session, .scan(services: ["180F"], solicitedServices: [], allowsDuplicates: false))
        pulse = Pulse(service: try publish(session))
        ask(session, .startAdvertising(newID(), localName: "App", services: ["180D"]))
        host.runToRest()
      }
      link = host.connectCentral(client)
      host.change(.notification, of: try #require(pulse).measurement, on: link)
      host.runToRest()
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
    mutating func connect(_ peer: PeerID, _ session: SessionID) {
      ask(session, .connect(UUID(peer), ConnectOptions()))
      host.runToRest()
      ask(session, .discoverServices(newID(), UUID(peer), nil))
      host.runToRest()
      ask(session, .discoverCharacteristics(newID(), UUID(peer), service, nil))
      host.runToRest()
      ask(session, .discoverDescriptors(newID(), UUID(peer), value))
      host.runToRest()
    }
    mutating func publish(_ session: SessionID) throws -> PublishedService {
      _ = host.takeDelivered()
      ask(session, .addService(newID(), Pulse.description))
      host.runToRest()
      let published = host.takeDelivered().compactMap { session, event -> PublishedService? in
        if case .completed(_, .success(.published(let service))) = event { service } else { nil }
      }
      return try #require(published.first)
    }
    /// What the operation needs before.
    mutating func prepare(_ operation: Operation) {
      switch operation {
      case .subscribeOfItsOwn, .cancelConnection: connect(own, Self.session)
      case .cancelAbsent: ask(Self.session, .connect(UUID(far), ConnectOptions()))
      case .unpublishChannel, .clientOpensChannel:
        ask(Self.session, .publishChannel(newID(), isEncrypted: false))
        ask(Self.session, .openChannel(newID(), UUID(shared), psm: ModelHost.devicePSM))
      default: break
      }
      host.runToRest()
      if let pulse, operation == .respond || operation == .reject {
        host.ask(pulse.control, on: link, isRead: operation == .respond)
        host.runToRest()
      }
    }
    mutating func begin(_ operation: Operation) {
      let id = newID(), peer = UUID(shared), session = Self.session
      let service = KilledAppTests.service, value = KilledAppTests.value, control = KilledAppTests.control
      guard let pulse else { return }
      switch operation {
      case .connect: ask(session, .connect(UUID(own), ConnectOptions(reconnects: true)))
      case .connectAbsent: ask(session, .connect(UUID(far), ConnectOptions()))
      case .connectLater: ask(session, .connect(UUID(own), ConnectOptions(startDelay: 5)))
      case .cancelConnection: ask(session, .cancelConnection(UUID(own)))
      case .cancelAbsent: ask(session, .cancelConnection(UUID(far)))
      case .scan: ask(session, .scan(services: ["180D"], solicitedServices: ["1805"], allowsDuplicates: true))
      case .stopScan: ask(session, .stopScan)
      case .readRSSI: ask(session, .readRSSI(id, peer))
      case .discoverServices: ask(session, .discoverServices(id, peer, ["180D", "1800"]))
      case .discoverIncludedServices: ask(session, .discoverIncludedServices(id, peer, service, nil))
      case .discoverCharacteristics: ask(session, .discoverCharacteristics(id, peer, service, nil))
      case .discoverDescriptors: ask(session, .discoverDescriptors(id, peer, value))
      case .read: ask(session, .read(id, peer, control))
      case .write: ask(session, .write(id, peer, control, Data([1])))
      case .subscribe: ask(session, .setNotifying(id, peer, value, true))
      case .subscribeOfItsOwn: ask(session, .setNotifying(id, UUID(own), value, true))
      case .unsubscribe: ask(session, .setNotifying(id, peer, value, false))
      case .addService: ask(session, .addService(id, Pulse.description))
      case .removeService: ask(session, .removeService(pulse.service.handle))
      case .removeAllServices: ask(session, .removeAllServices)
      case .setValue: ask(session, .setValue(pulse.location, Data([3])))
      case .startAdvertising:
        ask(session, .stopAdvertising)
        ask(session, .startAdvertising(id, localName: "Again", services: ["1805"]))
      case .stopAdvertising: ask(session, .stopAdvertising)
      case .setLatency: ask(session, .setDesiredLatency(UUID(KilledAppTests.client), .low))
      case .clientSubscribes: host.change(.indication, of: pulse.alarm, on: link)
      case .clientReads: host.ask(pulse.control, on: link, isRead: true)
      case .clientWrites: host.ask(pulse.control, on: link, isRead: false)
      case .respond:
        if let request = host.core.serving.requests.keys.first {
          ask(session, .respond(request, central: UUID(KilledAppTests.client), Data([1])))
        }
      case .reject:
        if let request = host.core.serving.requests.keys.first {
          ask(session, .reject(request, central: UUID(KilledAppTests.client), .unlikelyError))
        }
      case .openChannel:
        ask(session, .openChannel(id, peer, psm: ModelHost.devicePSM))
        ask(session, .openChannel(newID(), peer, psm: 0x99))
      case .publishChannel: ask(session, .publishChannel(id, isEncrypted: true))
      case .unpublishChannel: ask(session, .unpublishChannel(id, psm: 0x80))
      case .clientOpensChannel: host.openChannel(0x80, on: link)
      }
    }
    /// The kernel closes the socket of the process.
    mutating func kill() {
      _ = host.takeDelivered()
      _ = host.with { $0.end(Self.app, now: $1) }
      host.with { $0.move(Self.app, to: .terminated, now: $1) }
    }
  }

  @Test(
    "At every step: nothing of the app remains but what is preserved, and no other app notices",
    arguments: [false, true])
  func everyStep(isPreserved: Bool) throws {
    var steps = 0
    for operation in Operation.allCases {
      var end = 0, isOver = false
      // −1: before the request.
      for step in -1..<100 where !isOver {
        let place = "\(operation), killed after step \(step)"
        var lab = try Lab(isPreserved: isPreserved)
        lab.prepare(operation)
        let bystander = try #require(lab.host.core.plan(of: Lab.bystander))
        if step >= 0 { lab.begin(operation) }
        for _ in 0..<max(0, step) where !isOver { isOver = !lab.host.step() }
        end = step
        lab.kill()
        lab.host.runToRest()
        check(lab, isPreserved: isPreserved, place)
        if isPreserved { try restore(&lab, place) }
        // The manager is released, or what was preserved is forgotten: nothing is left in either case.
        for session in lab.host.core.preserved(of: Lab.app) { lab.host.with { $0.remove(session, now: $1) } }
        if lab.host.core.isKnown(Lab.session) { lab.host.with { $0.remove(Lab.session, now: $1) } }
        lab.host.runToRest()
        lab.host.passTime()
        checkNothingIsLeft(lab, bystander, place)
        steps += 1
      }
      #expect(isOver && end < 99, "\(operation) does not come to rest")
    }
    print("apps killed at \(steps) steps of \(Operation.allCases.count) operations, preserved: \(isPreserved)")
    #expect(steps > 3 * Operation.allCases.count)
  }

  /// After its end, before its next process.
  private func check(_ lab: Lab, isPreserved: Bool, _ place: String) {
    let core = lab.host.core
    #expect(core.isKnown(Lab.session) == isPreserved, "\(place)")
    #expect(
      (core.apps[Lab.app] != nil) == isPreserved, "\(place): a driver numbers the next process of such an app anew")
    #expect(isPreserved || !lab.host.ports.contains { $0.session == Lab.session }, "\(place): ports")
    #expect(core.central.operations.isEmpty && core.central.parts.isEmpty, "\(place): \(core.central.operations)")
    #expect(core.central.configurations.isEmpty, "\(place): \(core.central.configurations)")
    // Nobody answers for it, so the core does. One that came after its end waits for the next process.
    let waiting = core.serving.requests.values.map(\.session)
    #expect(isPreserved ? waiting.allSatisfy { $0 == Lab.session } : waiting.isEmpty, "\(place): \(waiting)")
    #expect(lab.host.questions == waiting.count, "\(place)")
    // Channels end with the process, also if it is preserved.
    #expect(lab.host.channels.isEmpty && lab.host.listening.isEmpty, "\(place): \(lab.host.channels)")
    let channels = core.channels
    #expect(
      channels.openings.isEmpty && channels.publications.isEmpty && channels.published.isEmpty, "\(place): \(channels)")
  }
  private func restore(_ lab: inout Lab, _ place: String) throws {
    lab.host.with { $0.move(Lab.app, to: .awake, now: $1) }
    let waiting = lab.host.takeDelivered().filter { $0.0 == Lab.session }.map(\.1)
    lab.host.with { $0.restore(Lab.session, before: waiting, now: $1) }
    let events = lab.host.takeDelivered().filter { $0.0 == Lab.session }.map(\.1)
    guard case .restored(let state)? = events.first, case .adapter(.poweredOn)? = events.dropFirst().first else {
      Issue.record("\(place): \(events)")
      return
    }
    // Its own events: to the bystander nothing has happened.
    let shared = try #require(state.peers.first { $0.peer == UUID(Self.shared) }, "\(place)")
    #expect(shared.isConnected, "\(place)")
    let name = PortName(session: Lab.session, kind: .command, peer: UUID(Self.shared))
    #expect(lab.host.ports.contains(name), "\(place)")
  }
  private func checkNothingIsLeft(_ lab: Lab, _ bystander: PreservedManager, _ place: String) {
    let host = lab.host, core = lab.host.core, only = Lab.bystander
    #expect(core.sessions.ids == [only], "\(place): \(core.sessions.ids)")
    #expect(core.plan(of: only) == bystander, "\(place)")
    #expect(host.outstanding.isEmpty, "\(place): the host goes on with \(host.outstanding)")
    #expect(Set(host.links.values) == [Self.shared, Self.client], "\(place): \(host.links)")
    #expect(core.links.all.count == 2 && Set(core.central.reaches.keys) == [Self.shared, Self.client], "\(place)")
    #expect(core.central.connects.isEmpty && core.central.disconnects.isEmpty && core.timers.isEmpty, "\(place)")
    for link in core.central.links.values {
      #expect(link.found.keys.allSatisfy { $0 == only }, "\(place)")
      #expect(link.subscriptions.values.flatMap(\.readers).allSatisfy { $0.session == only }, "\(place)")
    }
    #expect(core.readers(of: Self.value, on: host.link(of: Self.shared)!).count == 1, "\(place)")
    #expect(host.scans.count == 1 && core.central.scans.values.allSatisfy { $0 == only }, "\(place)")
    #expect(core.serving.services.values.map(\.session) == [only] && core.serving.requests.isEmpty, "\(place)")
    #expect(Array(core.serving.advertising.keys) == [only] && core.serving.advertisers == [only], "\(place)")
    #expect(host.sets.count == 1 && core.serving.updates.isEmpty && host.questions == 0, "\(place)")
    #expect(
      core.serving.clients.values.allSatisfy { $0.subscriptions.isEmpty && !$0.sessions.contains(Lab.session) },
      "\(place)")
    #expect(host.ports.allSatisfy { $0.session == only }, "\(place): \(host.ports)")
  }
}
