import Foundation
import NIOCore
import TestSupport
import Testing

@testable import BindruneBroker

/// Any request in any state: nothing traps, and every operation ends exactly once.
@Suite(.virtualTime, .hang) struct ChaosTests {
  @Test(arguments: [Fuzz.seed, Fuzz.seed + 1, Fuzz.seed + 2]) func anything(_ seed: UInt64) async throws {
    print("broker chaos, seed \(seed)")
    var chance = SplitMix64(seed: seed)
    let room = Room(), sensor = try Sensor(), ways = Ways()
    let (one, first) = try await room.sensor(sensor), (two, second) = try await room.sensor(sensor)
    let adapter = room.adapter { _ async throws(TransportError) in await ways.open(room.radio) }
    var probes = [Probe(adapter), Probe(adapter)]
    let peers = [
      first, first, first, second, second, UUID(PeerID(PeerAddress(DeviceAddress(0xC000_0000_0001), .random))), UUID(),
    ]
    let handles = [
      sensor.measurement, sensor.location, sensor.control, sensor.long, sensor.silent,
      AttributeHandle(rawValue: 0), AttributeHandle(rawValue: 1), AttributeHandle(rawValue: 0xFFFF),
    ]
    let lists: [[BluetoothUUID]?] = [nil, [], ["180D"], ["180D", "2A37", "A4E649F4-4BE5-11E5-885D-FEFF819CDC9F"]]
    var asked: [ObjectIdentifier: [(OperationID, UUID)]] = [:], all = probes

    for step in 0..<1000 {
      let probe = probes.randomElement(using: &chance)!, id = probe.newID()
      let peer = peers.randomElement(using: &chance)!, handle = handles.randomElement(using: &chance)!
      let list = lists.randomElement(using: &chance)!, flag = Bool.random(using: &chance)
      func ask(_ request: BrokerRequest.Central) {
        asked[ObjectIdentifier(probe), default: []].append((id, peer))
        probe.send(request)
      }
      switch Int.random(in: 0..<22, using: &chance) {
      case 0: probe.send(.scan(services: list ?? [], solicitedServices: flag ? ["180D"] : [], allowsDuplicates: flag))
      case 1: probe.send(.stopScan)
      case 2, 3, 4, 5:
        probe.send(.connect(peer, ConnectOptions(startDelay: step % 5 == 0 ? 0.001 : 0, reconnects: flag)))
      case 6: if flag { probe.send(.cancelConnection(peer)) }
      case 7: ask(.readRSSI(id, peer))
      case 8: ask(.discoverServices(id, peer, list))
      case 9: ask(.discoverIncludedServices(id, peer, handle, list))
      case 10: ask(.discoverCharacteristics(id, peer, handle, list))
      case 11: ask(.discoverDescriptors(id, peer, handle))
      case 12: ask(.read(id, peer, handle))
      case 13: ask(.write(id, peer, handle, Data(count: Int.random(in: 0...600, using: &chance))))
      case 14, 15: ask(.setNotifying(id, peer, handle, flag))
      case 16: _ = probe.session.port(.command, of: peer)?.offer([1, 2, 3], to: handle)
      case 17: if step % 3 == 0 { await (flag ? one : two).disconnectAll() }
      case 18: await (flag ? one : two).notify([1], of: sensor.measurement)
      default:
        if step % 200 == 0 {
          try await ways.cutIfOpen()
        } else if step % 31 == 0 {
          probe.session.close()
          probes.removeAll { $0 === probe }
          probes.append(Probe(adapter))
          all.append(probes[probes.count - 1])
        } else {
          // Some time for progress: each device in range is connected, or no session wants it.
          let there = [first, second].compactMap { PeerID($0) }
          try await eventually {
            try await adapter.eventLoop.submit {
              there.allSatisfy { peer in
                switch adapter.core.central.reaches[peer] {
                case .linked, nil: true
                default: false
                }
              }
            }.get()
          }
          try await probe.waitForEvents()
        }
      }
    }
    for probe in probes {
      for peer in peers { probe.send(.cancelConnection(peer)) }
    }
    try await eventually {
      try await adapter.eventLoop.submit {
        adapter.core.central.operations.isEmpty && adapter.core.central.configurations.isEmpty
          && adapter.core.central.reaches.isEmpty
          && adapter.core.sessions.ids.allSatisfy { adapter.core.sessions[$0]?.interests.isEmpty == true }
      }.get()
    }
    for probe in probes { try await probe.waitForEvents() }

    var successes = 0
    for probe in all {
      let events = try await probe.history()
      successes += events.filter { if case .completed(_, .success) = $0 { true } else { false } }.count
      let isOpen = probes.contains { $0 === probe }
      for (id, peer) in asked[ObjectIdentifier(probe)] ?? [] {
        let answers = events.filter { if case .completed(id, _) = $0 { true } else { false } }.count
        #expect(answers <= 1, "seed \(seed): \(id) was answered \(answers) times")
        // An operation has no answer only if the end of the link, of the adapter or of the session ended it.
        let isCovered =
          !isOpen
          || events.contains {
            switch $0 {
            case .disconnected(peer, _, _, _), .adapter(.resetting): true
            default: false
            }
          }
        #expect(answers == 1 || isCovered, "seed \(seed): \(id) was not answered")
      }
      try check(events, "seed \(seed)")
    }
    // Otherwise all requests concerned devices that are not connected.
    #expect(successes >= 20, "seed \(seed): only \(successes) were carried out")
    withExtendedLifetime((one, two)) {}
  }

  /// Connections and their ends alternate, and a peer causes no event while it is not connected.
  private func check(_ events: [BrokerEvent], _ seed: String) throws {
    var connected: Set<UUID> = []
    for event in events {
      switch event {
      case .adapter(let state): if state != .poweredOn { connected = [] }
      case .connected(let peer, _, _): connected.insert(peer)
      case .disconnected(let peer, let error, _, _):
        let was = connected.remove(peer) != nil
        #expect(error == nil || was, "\(seed): lost without having been connected")
      case .connectionFailed(let peer, _): #expect(!connected.contains(peer), "\(seed): failed while connected")
      case .values(let peer, _, _), .servicesChanged(let peer, _), .nameChanged(let peer, _),
        .longestWriteChanged(let peer, _):
        #expect(connected.contains(peer), "\(seed): \(event) while it is not connected")
      default: break
      }
    }
  }
}

extension Ways {
  func cutIfOpen() async throws { if isOpen { try await cut() } }
}
