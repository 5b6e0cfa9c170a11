import BindruneATT
import BindruneGAP
import BindruneGATT
import BindruneReplay
import BindruneSimulator
import BindruneWire
import TestSupport
import Testing

/// A recording of our own in which everything happens: pairing, bonds, signed writes, values, services that come and
/// go.
@Suite("Replay: a life of two devices") struct LifeTests {
  private static let server = 0, client = 1

  @Test(arguments: [false, true], [false, true]) func everything(isSecureConnections: Bool, robustCaching: Bool) throws
  {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "replay")
    builder.genericAttribute(robustCaching: robustCaching)
    let (notifying, secret, signed) = builder.service("7B1F0001-9A4E-4C53-8E2B-5D6C7F8091A2") {
      (
        $0.characteristic("7B1F0002-9A4E-4C53-8E2B-5D6C7F8091A2", [.notify, .indicate]),
        $0.characteristic(
          "7B1F0003-9A4E-4C53-8E2B-5D6C7F8091A2", [.read, .write], value: [42],
          permissions: AttributePermissions(read: .encrypted, write: .encrypted)
        ).value,
        $0.characteristic(
          "7B1F0004-9A4E-4C53-8E2B-5D6C7F8091A2", [.read, .authenticatedSignedWrites], value: [1],
          permissions: AttributePermissions(read: .open, write: .open)
        ).value
      )
    }
    func configure(_ configuration: inout HostConfiguration) {
      configuration.pairing.secureConnections = isSecureConnections ? .supported : .off
    }
    var recording = Recording(seed: 780)
    recording.add(try builder.build(), configure)
    recording.add(Database()) {
      configure(&$0)
      // Signed writes are for links that are not encrypted.
      $0.encryptsBondedLinks = false
    }

    // They meet, pair, and the client learns all.
    var link = try connect(&recording)
    recording.client(Self.client, link) { $0.discoverAll($1) }
    #expect(recording.pair(Self.client, on: link, with: Self.server)?.isSuccess == true)
    #expect(recording.client(Self.client, link) { $0.read($1, secret) } == .value([42]))
    recording.client(Self.client, link) { $0.followChanges($1) }
    #expect(recording.client(Self.client, link) { $0.subscribe($1, notifying.value) } == .done)
    try send([1, 2], of: notifying.value, &recording)
    // A service comes while they are connected.
    let battery = try insert("180F", "2A19", &recording)
    recording.client(Self.client, link) { $0.discoverAll($1) }
    #expect(recording.client(Self.client, link) { $0.read($1, battery.value) } == .value([7]))
    recording.disconnect(Self.client, link)

    // Signed writes on a link that is not encrypted; then it is.
    link = try connect(&recording)
    for value in 0..<2 as Range<UInt8> { sign([value], to: signed, on: link, &recording) }
    recording.ask(Self.client) { core, id, now in core.encrypt(link, id: id, now: now) }
    #expect(recording.client(Self.client, link) { $0.read($1, signed) } == .value([1]))
    try send([3], of: notifying.value, &recording)
    recording.disconnect(Self.client, link)

    // A service goes and another comes while they are apart: the client is told when the link is encrypted.
    try recording.world.withHost(Self.server) { host, now throws(DatabaseError) in
      try host.core.remove(service: battery.service)
      host.drain()
    }
    _ = try insert("180A", "2A29", &recording)
    link = try connect(&recording)
    recording.ask(Self.client) { core, id, now in core.encrypt(link, id: id, now: now) }
    recording.world.run(for: .seconds(2))
    recording.client(Self.client, link) { $0.discoverAll($1) }
    #expect(recording.client(Self.client, link) { $0.read($1, secret) } == .value([42]))
    recording.disconnect(Self.client, link)

    for host in [Self.server, Self.client] {
      let packets = recording.trace(of: host)
      for seed in [recording.seed(of: host), nil] {
        let result = try Replay(packets, seed: seed).run()
        #expect(result.isEqual && result.insufficiency == nil, "host \(host), seed \(seed as Any): \(text(result))")
        #expect(result.comparedCount > 20)
      }
    }
  }
  private func connect(_ recording: inout Recording) throws -> LinkID {
    try recording.advertise()
    let link = try recording.connect(Self.client)
    recording.world.run(for: .seconds(1))
    return link
  }
  private func send(_ value: [UInt8], of handle: AttributeHandle, _ recording: inout Recording) throws {
    let link = try #require(recording.world.readHost(Self.server) { $0.links.first })
    _ = recording.world.withHost(Self.server) { host, _ in host.notify(value, of: handle, on: link) }
    recording.world.run(for: .seconds(1))
  }
  private func insert(
    _ service: BluetoothUUID, _ characteristic: BluetoothUUID, _ recording: inout Recording
  ) throws -> (service: AttributeHandle, value: AttributeHandle) {
    let handles = try recording.world.withHost(Self.server) { host, now throws(DatabaseError) in
      var builder = DatabaseBuilder(after: host.core.database)
      let handles = builder.service(service) { ($0.handle, $0.characteristic(characteristic, .read, value: [7]).value) }
      try host.core.insert(builder)
      host.drain()
      return handles
    }
    recording.world.run(for: .seconds(3))
    return handles
  }
  private func sign(
    _ value: [UInt8], to handle: AttributeHandle, on link: LinkID, _ recording: inout Recording
  ) {
    recording.world.withHost(Self.client) { host, _ in
      if case .storeBond = host.core.write(signed: value.span, to: handle, on: link) {
        for bond in host.core.allBonds { host.core.stored(bond) }
        _ = host.core.write(signed: value.span, to: handle, on: link)
      }
      host.drain()
    }
    recording.world.run(for: .seconds(1))
  }
}
