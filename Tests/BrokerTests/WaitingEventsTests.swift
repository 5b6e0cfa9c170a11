import Foundation
import Testing

@testable import BindruneBroker

/// The events that a program finds after it has taken none for a while: Decision 0027.
@Suite struct WaitingEventsTests {
  private let peer = Self.peer(1), other = Self.peer(2), peers = (1...8).map { Self.peer($0) }
  private static func peer(_ number: UInt64) -> UUID {
    UUID(PeerID(PeerAddress(DeviceAddress(number), .random)))
  }
  private func request(_ number: UInt64) -> ServerRequest { ServerRequest(rawValue: number) }
  private func read(_ number: UInt64) -> BrokerEvent {
    .readRequested(request(number), central: peer, 3, offset: 0, longestUpdate: 20)
  }
  private func command(_ octet: UInt8) -> BrokerEvent {
    .writeRequested(
      request(0).ofCommand, central: peer, [ServerWrite(handle: 5, offset: 0, value: Data([octet]))], longestUpdate: 20)
  }
  private func down(_ peer: UUID) -> BrokerEvent { .disconnected(peer, nil, isReconnecting: true, seconds: 0) }
  private func up(_ peer: UUID) -> BrokerEvent { .connected(peer, name: nil, longestWrite: 20) }

  private static func afterTheFirstState() -> WaitingEvents {
    var waiting = WaitingEvents()
    _ = waiting.append(.adapter(.poweredOn))
    _ = waiting.takeAll()
    return waiting
  }
  /// The rest of `events` after 1,024 others, as texts.
  private func left(_ events: [BrokerEvent]) -> [String] {
    var waiting = Self.afterTheFirstState()
    for _ in 0..<1024 { _ = waiting.append(command(0)) }
    for event in events { _ = waiting.append(event) }
    return Array(words(&waiting).dropFirst(1024))
  }
  private func words(_ waiting: inout WaitingEvents) -> [String] {
    let count = waiting.count, items = waiting.takeAll().compactMap { $0 }
    #expect(count == items.count && waiting.isEmpty)
    return items.map { event in
      let number: (UUID) -> Int = { (peers.firstIndex(of: $0) ?? 99) + 1 }
      switch event {
      case .adapter(let state): return String("\(state)".prefix { $0 != "(" })
      case .subscribed(let peer, let handle, _): return "subscribed \(number(peer)) \(handle.rawValue)"
      case .unsubscribed(let peer, let handle): return "unsubscribed \(number(peer)) \(handle.rawValue)"
      case .readRequested(let request, _, _, _, _): return "read \(request.rawValue)"
      case .writeRequested(_, _, let writes, _): return "write \(writes[0].value[0])"
      case .requestEnded(let request): return "ended \(request.rawValue)"
      case .nameChanged(let peer, let name): return "name \(number(peer)) \(name ?? "")"
      case .servicesChanged(let peer, let range):
        return "services \(number(peer)) \(range.first.rawValue) \(range.last.rawValue)"
      case .connected(let peer, _, _): return "up \(number(peer))"
      case .disconnected(let peer, _, _, _): return "down \(number(peer))"
      case .readyToUpdate(let peer): return "ready \(number(peer))"
      case .readyToWrite(let peer): return "ready to write \(number(peer))"
      case .longestUpdateChanged(let peer, let count): return "longest \(number(peer)) \(count)"
      case .longestWriteChanged(let peer, let count): return "longest write \(number(peer)) \(count)"
      case .linkedPeers(let peers): return "links \(peers.count)"
      default: return "\(event)"
      }
    }
  }

  /// Below 1,024 the queue drops nothing but requests that have ended.
  @Test func aFewAreAllKept() {
    var waiting = Self.afterTheFirstState()
    for _ in 0..<100 {
      for event in [
        BrokerEvent.subscribed(peer, 3, longestUpdate: 20), .nameChanged(peer, "a"), .unsubscribed(peer, 3), read(1),
        .linkedPeers([]), .requestEnded(request(1)), .adapter(.poweredOn), .servicesChanged(peer, HandleRange(1, 2)),
        up(peer), down(peer),
      ] { _ = waiting.append(event) }
    }
    let one = [
      "subscribed 1 3", "name 1 a", "unsubscribed 1 3", "links 0", "poweredOn", "services 1 1 2", "up 1", "down 1",
    ]
    #expect(words(&waiting) == Array(repeating: one, count: 100).flatMap { $0 })
  }
  /// Each value counts, also in a batch: the last ones are dropped.
  @Test func valuesThatCameTogether() {
    var waiting = WaitingEvents()
    let value = Data([1])
    #expect(waiting.append(.values(peer, 3, BrokerValues(repeatElement(value, count: 65_530)))) == 0)
    #expect(waiting.append(.values(peer, 3, BrokerValues((0..<10).map { Data([$0]) }))) == 4)
    #expect(waiting.append(.values(other, 3, [value, value])) == 2)
    #expect(waiting.count == 65_536)
    let kept = waiting.takeAll().compactMap { item -> [Data]? in
      if case .values(peer, 3, let values) = item { Array(values) } else { nil }
    }
    #expect(kept.map(\.count) == [65_530, 6] && kept.last == (0..<6).map { Data([$0]) })
    #expect(waiting.isEmpty && waiting.append(.values(peer, 3, [value])) == 0)
  }
  /// The program has taken no state yet: the last one is its first.
  @Test func theFirstState() {
    var waiting = WaitingEvents()
    for state in [AdapterState.unknown, .poweredOff(""), .resetting(""), .poweredOn] {
      _ = waiting.append(.adapter(state))
      _ = waiting.append(.linkedPeers([]))
    }
    #expect(words(&waiting) == ["poweredOn", "links 0"])
  }
  @Test func subscriptions() {
    #expect(left([.subscribed(peer, 3, longestUpdate: 20), .unsubscribed(peer, 3)]) == [])
    #expect(
      left([.unsubscribed(peer, 3), .subscribed(peer, 3, longestUpdate: 20)]) == ["unsubscribed 1 3", "subscribed 1 3"])
    // The last state counts, whatever came before, separately for each characteristic and each central.
    for count in 1...9 {
      let toggles = (0..<count).map { turn -> BrokerEvent in
        turn.isMultiple(of: 2) ? .unsubscribed(peer, 3) : .subscribed(peer, 3, longestUpdate: 20)
      }
      let last = count.isMultiple(of: 2) ? ["unsubscribed 1 3", "subscribed 1 3"] : ["unsubscribed 1 3"]
      #expect(left(toggles) == last)
      #expect(
        left([.subscribed(other, 3, longestUpdate: 20)] + toggles + [.subscribed(peer, 7, longestUpdate: 20)])
          == ["subscribed 2 3"] + last + ["subscribed 1 7"])
    }
    // The central's writes in between keep their place.
    #expect(
      left([
        .unsubscribed(peer, 3), command(1), .subscribed(peer, 3, longestUpdate: 20), command(2), .unsubscribed(peer, 3),
        command(3),
      ]) == ["unsubscribed 1 3", "write 1", "write 2", "write 3"])
  }
  @Test func requests() {
    #expect(left([read(1), read(2), .requestEnded(request(1)), .requestEnded(request(9))]) == ["read 2", "ended 9"])
    // A command stays: no central waits for an answer, and its write has happened.
    #expect(left([command(7), .requestEnded(request(0).ofCommand)]).first == "write 7")
  }
  @Test func lastWords() {
    #expect(
      left([
        .nameChanged(peer, "a"), .readyToWrite(peer), .nameChanged(other, "b"), up(peer), .nameChanged(peer, "c"),
        .longestWriteChanged(peer, 20), .readyToWrite(peer), .longestWriteChanged(peer, 182), .readyToUpdate(peer),
        .longestUpdateChanged(peer, 20), .readyToUpdate(peer), .linkedPeers([]),
        .linkedPeers([LinkedPeer(peer: peer)]),
      ]) == ["name 2 b", "up 1", "name 1 c", "ready to write 1", "longest write 1 182", "ready 1", "links 1"])
    #expect(
      left([
        .servicesChanged(peer, HandleRange(9, 12)), .servicesChanged(other, HandleRange(1, 2)),
        .servicesChanged(peer, HandleRange(3, 4)),
      ]) == ["services 2 1 2", "services 1 3 12"])
  }
  /// A link that reconnects automatically: an end, and a begin after it.
  @Test func reconnections() {
    #expect(left([up(peer), down(peer)]) == ["up 1", "down 1"])
    #expect(left([down(peer), up(peer), down(peer), up(other), up(peer), down(peer)]) == ["down 1", "up 2"])
    #expect(left([down(peer), up(peer), down(peer), up(peer)]) == ["down 1", "up 1"])
    // A final end is kept.
    let end = BrokerEvent.disconnected(peer, nil, isReconnecting: false, seconds: 0)
    #expect(left([down(peer), up(peer), end]) == ["down 1", "up 1", "down 1"])
  }
  @Test func states() {
    #expect(left([.adapter(.poweredOff("")), .adapter(.poweredOn)]) == ["poweredOff", "poweredOn"])
    let flap: [BrokerEvent] = [.adapter(.resetting("")), .adapter(.poweredOn), .linkedPeers([])]
    #expect(left([.adapter(.poweredOn)] + flap + flap + flap) == ["resetting", "poweredOn", "links 0"])
    #expect(
      left([.adapter(.poweredOff("")), .adapter(.poweredOn), .adapter(.unsupported(""))]) == [
        "poweredOff", "unsupported",
      ])
    #expect(
      left([.adapter(.unsupported("")), .adapter(.poweredOff("")), .adapter(.poweredOn)]) == [
        "unsupported", "poweredOn",
      ])
  }
  /// 600,000 events of the kinds that a device can repeat leave as many as there are devices and attributes.
  @Test func isBounded() {
    var waiting = Self.afterTheFirstState(), generator = SystemRandomNumberGenerator(), most = 0
    var subscribed: Set<Int> = []
    for number in 0..<600_000 {
      let peer = peers[number % 8], handle = AttributeHandle(rawValue: UInt16(number / 8 % 4 + 1))
      switch Int.random(in: 0..<5, using: &generator) {
      case 0: _ = waiting.append(.nameChanged(peer, "name"))
      case 1: _ = waiting.append(.servicesChanged(peer, HandleRange(1, 9)))
      case 2:
        _ = waiting.append(read(UInt64(number)))
        _ = waiting.append(.requestEnded(request(UInt64(number))))
      default:
        let key = number % 32
        let event: BrokerEvent =
          subscribed.remove(key) != nil ? .unsubscribed(peer, handle) : .subscribed(peer, handle, longestUpdate: 20)
        if case .subscribed = event { subscribed.insert(key) }
        _ = waiting.append(event)
      }
      most = max(most, waiting.count)
    }
    // Names and services of 8, subscriptions of 32, and one request.
    #expect(most <= 1024 + 8 + 8 + 32 + 1)
    var isSubscribed: [String: Bool] = [:]
    for word in words(&waiting) where word.contains("subscribed") {
      let parts = word.split(separator: " ", maxSplits: 1)
      isSubscribed[String(parts[1])] = parts[0] == "subscribed"
    }
    #expect(isSubscribed.values.count { $0 } == subscribed.count)
    // Unknown devices, each with an address of its own, leave nothing.
    for number in 0..<100_000 {
      let stranger = Self.peer(UInt64(number))
      _ = waiting.append(.subscribed(stranger, 3, longestUpdate: 20))
      _ = waiting.append(.longestUpdateChanged(stranger, 182))
      _ = waiting.append(.unsubscribed(stranger, 3))
    }
    #expect(waiting.count <= 1024 + 1)
  }
  /// `.unknown` does not count as a state: until another has been taken, only the last state is kept.
  @Test func theFirstKnownState() {
    var waiting = WaitingEvents()
    _ = waiting.append(.adapter(.unknown))
    #expect(words(&waiting) == ["unknown"])
    for state in [AdapterState.poweredOff(""), .poweredOn] { _ = waiting.append(.adapter(state)) }
    #expect(words(&waiting) == ["poweredOn"])
    for state in [AdapterState.poweredOff(""), .poweredOn] { _ = waiting.append(.adapter(state)) }
    #expect(words(&waiting) == ["poweredOff", "poweredOn"])
  }
}

extension AttributeHandle: ExpressibleByIntegerLiteral {
  public init(integerLiteral value: UInt16) { self.init(rawValue: value) }
}
