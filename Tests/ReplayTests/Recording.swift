import BindruneATT
import BindruneReplay
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneSMP
import TestSupport

/// Two or more hosts in a world, whose packets are recorded at both controllers. The first host is the Peripheral.
struct Recording: ~Copyable {
  var world: World<TestHost>
  private let seed: UInt64

  init(seed: UInt64 = 1, air: AirConfiguration = .ideal) {
    self.seed = seed
    world = World(seed: seed, configuration: air)
  }
  /// The seed of a host's random numbers.
  static func seed(of host: Int, in seed: UInt64) -> UInt64 { seed * 16 + UInt64(host) }

  @discardableResult
  mutating func add(_ database: Database = Database(), _ configure: (inout HostConfiguration) -> Void = { _ in }) -> Int
  {
    let index = world.hostCount
    var host = TestHost(database, seed: Self.seed(of: index, in: seed), configure)
    host.trace = []
    _ = world.add(host, ControllerConfiguration(address: Self.address(index)))
    world.withHost(index) { host, now in
      host.core.start(now: now)
      host.drain()
    }
    world.run(for: .seconds(5)) { world in world.readHost(index) { !$0.isStarted } }
    return index
  }
  static func address(_ host: Int) -> DeviceAddress { DeviceAddress(0x0000_00A0_0000 | UInt64(host + 1)) }

  mutating func advertise(_ host: Int = 0) throws {
    try world.withHost(host) { host, now throws(AdvertisingError) in
      _ = try host.core.advertise(AdvertisingData(localName: "replay", serviceUUIDs: ["180D"]), now: now)
      host.drain()
    }
    world.run(for: .seconds(1)) { world in world.readHost(host) { !$0.isAdvertising } }
  }
  mutating func connect(_ central: Int, to peripheral: Int = 0) throws -> LinkID {
    let peer = PeerAddress(Self.address(peripheral), .public)
    guard case .linked(let link)? = ask(central, { core, id, now in core.connect(to: peer, .fast, id: id, now: now) })
    else { throw Missing.link }
    return link
  }
  enum Missing: Error { case link, completion(String) }

  @discardableResult mutating func ask(
    _ host: Int, _ start: (inout HostCore, RequestID, Instant) -> Void
  ) -> TestHost.Ending? {
    let id = world.withHost(host) { host, now in
      let id = host.newID()
      start(&host.core, id, now)
      host.drain()
      return id
    }
    world.run(for: .seconds(60)) { world in world.readHost(host) { $0.ending(id) == nil } }
    return world.readHost(host) { $0.ending(id) }
  }
  /// A procedure of the client.
  @discardableResult mutating func client(
    _ host: Int, _ link: LinkID, _ body: @escaping (inout Client, RequestID) -> Void
  ) -> TestHost.Ending? {
    ask(host) { core, id, _ in core.withClient(of: link, id: id) { body(&$0, id) } }
  }
  /// Pairs, and answers both users' questions. `answer`: the host, its question, and the digits that a host has
  /// displayed.
  @discardableResult mutating func pair(
    _ host: Int, on link: LinkID, with other: Int, _ settings: PairingSettings? = nil,
    answer: (Int, PairingQuestion, UInt32?) -> PairingAnswer? = { Recording.agreement(with: $1, $2) }
  ) -> TestHost.Ending? {
    let id = world.withHost(host) { host, now in
      let id = host.newID()
      host.core.pair(link, settings, id: id, now: now)
      host.drain()
      return id
    }
    return wait(for: id, of: host, with: other, answer: answer)
  }
  /// Answers both users' questions until a request of `host` has ended.
  @discardableResult mutating func wait(
    for id: RequestID, of host: Int, with other: Int,
    answer: (Int, PairingQuestion, UInt32?) -> PairingAnswer? = { Recording.agreement(with: $1, $2) }
  ) -> TestHost.Ending? {
    var shown: UInt32?
    for round in 0..<400 {
      world.run(for: .milliseconds(100))
      for place in [host, other] {
        world.readHost(place) { host in
          for asked in host.asked.dropFirst(host.answered) {
            if case .display(let digits) = asked.question { shown = digits }
          }
        }
      }
      for place in [host, other] {
        world.withHost(place) { host, now in
          while host.answered < host.asked.count {
            let asked = host.asked[host.answered]
            // The other device may display digits.
            if asked.question == .enterPasskey, shown == nil, round < 20 { return }
            host.answered += 1
            if case .display(let digits) = asked.question { shown = digits }
            if let answer = answer(place, asked.question, shown) {
              host.core.answer(answer, on: asked.link, now: now)
            }
            host.drain()
          }
        }
      }
      if world.readHost(host, { $0.ending(id) != nil }) { break }
    }
    world.run(for: .seconds(2))
    return world.readHost(host) { $0.ending(id) }
  }
  /// What a user answers who wants the pairing.
  static func agreement(with question: PairingQuestion, _ shown: UInt32?) -> PairingAnswer? {
    switch question {
    case .consent: .consent
    case .compare: .numbersMatch
    case .enterPasskey: .passkey(shown ?? 271_828)
    case .display, .keypress: nil
    }
  }
  mutating func disconnect(_ host: Int, _ link: LinkID) {
    ask(host) { core, id, now in core.disconnect(link, id: id, now: now) }
    world.run(for: .seconds(1))
  }

  /// What was recorded at a host's controller.
  mutating func trace(of host: Int) -> [ReplayPacket] {
    world.run(for: .seconds(1))
    return world.readHost(host) { host in
      (host.trace ?? []).enumerated().map { index, packet in
        ReplayPacket(
          number: index + 1, time: 1_700_000_000_000_000_000 + Int64(packet.at.nanoseconds),
          direction: packet.isFromHost ? .fromHost : .fromController, octets: packet.octets)
      }
    }
  }
  func seed(of host: Int) -> UInt64 { Self.seed(of: host, in: seed) }
}

/// A database with values of all kinds.
struct Subject {
  let database: Database
  let long: AttributeHandle, short: AttributeHandle, secret: AttributeHandle, readOnly: AttributeHandle
  let notifying: CharacteristicHandles, indicating: CharacteristicHandles
  static func pattern(_ count: Int, _ seed: UInt8 = 7) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31) &+ seed }
  }

  init() throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "replay")
    builder.genericAttribute(robustCaching: false)
    (notifying, indicating) = builder.service("180D") {
      ($0.characteristic("2A37", .notify), $0.characteristic("2A38", .indicate))
    }
    (long, short, secret, readOnly) = builder.service("7B1F0001-9A4E-4C53-8E2B-5D6C7F8091A2") {
      (
        $0.characteristic("7B1F0002-9A4E-4C53-8E2B-5D6C7F8091A2", [.read, .write], value: .stored(Self.pattern(300)))
          .value,
        $0.characteristic(
          "7B1F0003-9A4E-4C53-8E2B-5D6C7F8091A2", [.read, .write, .writeWithoutResponse], value: [1, 2, 3]
        ).value,
        $0.characteristic(
          "7B1F0004-9A4E-4C53-8E2B-5D6C7F8091A2", [.read, .write], value: [42],
          permissions: AttributePermissions(read: .encrypted, write: .encrypted)
        ).value,
        $0.characteristic("7B1F0005-9A4E-4C53-8E2B-5D6C7F8091A2", .read, value: [9]).value
      )
    }
    database = try builder.build()
  }
}
