import BindruneATT
import BindruneReplay
import BindruneTrace
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import TestSupport
import Testing

/// Traces that our own hosts record replay without a divergence, at both ends.
@Suite("Replay: our own traces") struct OwnTraceTests {
  /// A recorded trace and the seed of its host.
  struct Sample: CustomTestStringConvertible, Sendable {
    let name: String
    let packets: [ReplayPacket]
    let seed: UInt64
    var testDescription: String { name }
  }

  /// Discovery, reads, long reads, writes of all kinds, errors, values in both directions.
  static func attributes(mtu: Int, seed: UInt64) throws -> [Sample] {
    let subject = try Subject()
    var recording = Recording(seed: seed)
    let server = recording.add(subject.database) { $0.preferredMTU = mtu }
    let client = recording.add { $0.preferredMTU = mtu }
    try recording.advertise()
    let link = try recording.connect(client)
    recording.client(client, link) { $0.discoverAll($1) }
    recording.client(client, link) { $0.read($1, subject.short) }
    recording.client(client, link) { $0.readLong($1, subject.long) }
    recording.client(client, link) { $0.readMultiple($1, [subject.short, subject.readOnly]) }
    recording.client(client, link) { $0.read($1, uuid: "2A00") }
    let short = Subject.pattern(11, 3), long = Subject.pattern(290, 5)
    recording.client(client, link) { client, id in client.write(id, subject.short, short.span) }
    recording.client(client, link) { client, id in client.writeLong(id, subject.long, long.span) }
    recording.client(client, link) {
      $0.writeReliable($1, [(subject.short, [8, 9]), (subject.long, Subject.pattern(40))])
    }
    recording.client(client, link) { $0.readLong($1, subject.long) }
    // Errors: a value that may not be written, a handle that does not exist.
    recording.client(client, link) { client, id in client.write(id, subject.readOnly, short.span) }
    recording.client(client, link) { $0.read($1, AttributeHandle(rawValue: 0x0FFF)) }
    _ = recording.world.withHost(client) { host, _ in host.write(command: [5, 6, 7], to: subject.short, on: link) }
    recording.world.run(for: .seconds(1))
    recording.client(client, link) { $0.subscribe($1, subject.notifying.value) }
    recording.client(client, link) { $0.subscribe($1, subject.indicating.value) }
    let other = try #require(recording.world.readHost(server) { $0.links.first })
    for value in 0..<3 {
      _ = recording.world.withHost(server) { host, _ in
        host.notify([UInt8(value), 1, 2], of: subject.notifying.value, on: other)
      }
      recording.world.run(for: .milliseconds(300))
    }
    _ = recording.world.withHost(server) { host, _ in host.indicate([7, 7], of: subject.indicating.value, on: other) }
    recording.world.run(for: .seconds(1))
    recording.disconnect(client, link)
    return [
      Sample(
        name: "attributes, MTU \(mtu), server", packets: recording.trace(of: server), seed: recording.seed(of: server)),
      Sample(
        name: "attributes, MTU \(mtu), client", packets: recording.trace(of: client), seed: recording.seed(of: client)),
    ]
  }
  /// Three clients of one server at the same time.
  static func severalLinks(seed: UInt64) throws -> [Sample] {
    let subject = try Subject()
    var recording = Recording(seed: seed)
    let server = recording.add(subject.database)
    var samples: [Sample] = [], links: [(Int, LinkID)] = []
    for _ in 0..<3 {
      let client = recording.add()
      try recording.advertise()
      links.append((client, try recording.connect(client)))
    }
    for (client, link) in links { recording.client(client, link) { $0.discoverAll($1) } }
    for (client, link) in links {
      let value = [UInt8(client), 4]
      recording.client(client, link) { client, id in client.write(id, subject.short, value.span) }
    }
    for (client, link) in links.reversed() {
      recording.client(client, link) { $0.readLong($1, subject.long) }
      recording.disconnect(client, link)
    }
    samples.append(
      Sample(name: "several links, server", packets: recording.trace(of: server), seed: recording.seed(of: server)))
    for (client, _) in links {
      samples.append(
        Sample(
          name: "several links, client \(client)", packets: recording.trace(of: client),
          seed: recording.seed(of: client)))
    }
    return samples
  }
  /// A pairing, a protected value, and a second connection that is encrypted with the bond.
  static func pairing(isSecureConnections: Bool, isNumeric: Bool, fromPeripheral: Bool, seed: UInt64) throws -> [Sample]
  {
    let subject = try Subject()
    func configure(_ configuration: inout HostConfiguration) {
      configuration.pairing.secureConnections = isSecureConnections ? .supported : .off
      configuration.pairing.ioCapability = isNumeric ? .displayYesNo : .noInputNoOutput
    }
    var recording = Recording(seed: seed)
    let server = recording.add(subject.database, configure)
    let client = recording.add(Database(), configure)
    try recording.advertise()
    let link = try recording.connect(client)
    let other = try #require(recording.world.readHost(server) { $0.links.first })
    let ending =
      fromPeripheral
      ? recording.pair(server, on: other, with: client) : recording.pair(client, on: link, with: server)
    #expect(ending?.isSuccess == true, "\(String(describing: ending))")
    #expect(recording.client(client, link) { $0.read($1, subject.secret) } == .value([42]))
    recording.disconnect(client, link)
    try recording.advertise()
    let again = try recording.connect(client)
    recording.world.run(for: .seconds(2))
    #expect(recording.client(client, again) { $0.read($1, subject.secret) } == .value([42]))
    recording.disconnect(client, again)
    let kind =
      "\(isSecureConnections ? "Secure Connections" : "legacy")\(isNumeric ? ", numeric" : "")\(fromPeripheral ? ", asked" : "")"
    return [
      Sample(name: "\(kind), peripheral", packets: recording.trace(of: server), seed: recording.seed(of: server)),
      Sample(name: "\(kind), central", packets: recording.trace(of: client), seed: recording.seed(of: client)),
    ]
  }
  /// A channel of the application, and enhanced bearers with reads on all of them, beside a pairing and reads on the
  /// first bearer.
  static func channels(seed: UInt64) throws -> [Sample] {
    let subject = try Subject()
    var recording = Recording(seed: seed)
    let server = recording.add(subject.database) { $0.enhancedBearers = 2 }
    let client = recording.add { $0.enhancedBearers = 2 }
    try recording.advertise()
    let link = try recording.connect(client), settings = ChannelSettings(mtu: 100), psm = SPSM(rawValue: 0x80)
    recording.client(client, link) { $0.discoverAll($1) }
    recording.world.withHost(server) { host, _ in _ = host.core.listen(psm, ChannelService(settings)) }
    recording.ask(client) { core, id, now in core.openChannel(psm, settings, on: link, id: id, now: now) }
    recording.world.withHost(client) { host, _ in
      for count in [1, 100, 0] {
        #expect(
          host.core.send([UInt8](repeating: 7, count: count).span, on: ChannelID(rawValue: 0x40), of: link) == .queued)
      }
    }
    #expect(recording.pair(client, on: link, with: server)?.isSuccess == true)
    #expect(recording.world.readHost(client) { $0.bearers[link] } == 2)
    recording.world.withHost(client) { host, _ in
      for handle in [subject.short, subject.readOnly, subject.short] {
        let id = host.newID()
        host.core.withClient(of: link, id: id) { $0.read(id, handle) }
      }
    }
    recording.world.run(for: .seconds(2))
    recording.world.withHost(client) { host, now in
      host.core.closeChannel(ChannelID(rawValue: 0x40), of: link, now: now)
      host.drain()
    }
    recording.client(client, link) { $0.read($1, subject.readOnly) }
    recording.disconnect(client, link)
    return [
      Sample(name: "channels, peripheral", packets: recording.trace(of: server), seed: recording.seed(of: server)),
      Sample(name: "channels, central", packets: recording.trace(of: client), seed: recording.seed(of: client)),
    ]
  }
  static let samples: [Sample] = {
    do {
      return try attributes(mtu: 23, seed: 1) + attributes(mtu: 517, seed: 2) + attributes(mtu: 100, seed: 3)
        + severalLinks(seed: 4)
        + pairing(isSecureConnections: false, isNumeric: false, fromPeripheral: false, seed: 5)
        + pairing(isSecureConnections: true, isNumeric: false, fromPeripheral: false, seed: 6)
        + pairing(isSecureConnections: true, isNumeric: true, fromPeripheral: false, seed: 7)
        + pairing(isSecureConnections: true, isNumeric: false, fromPeripheral: true, seed: 8)
        + pairing(isSecureConnections: false, isNumeric: false, fromPeripheral: true, seed: 9)
        + channels(seed: 10)
    } catch {
      Issue.record(error)
      return []
    }
  }()

  @Test(arguments: samples) func replaysWithoutDivergence(_ sample: Sample) throws {
    let result = try Replay(sample.packets, seed: sample.seed).run()
    #expect(result.isEqual, "\(text(result))")
    #expect(result.comparedCount > 5)
    // What our host does by itself is the same again: only what its applications chose may differ.
    let used = Set(result.freedoms.keys)
    #expect(used.isSubset(of: [.database, .order, .discovery, .channels]), "\(text(result))")
    #expect(used.contains(.channels) == sample.name.hasPrefix("channels"))
    #expect(try Replay(sample.packets, seed: sample.seed).run() == result)
  }
  /// Whether the application let the client infer descriptors is found from its questions: it is no freedom.
  @Test(arguments: [false, true], [23, 100]) func inferredDescriptors(infers: Bool, mtu: Int) throws {
    let subject = try Subject()
    var recording = Recording(seed: 12)
    _ = recording.add(subject.database) { $0.preferredMTU = mtu }
    let client = recording.add { $0.preferredMTU = mtu }
    try recording.advertise()
    let link = try recording.connect(client)
    #expect(recording.client(client, link) { $0.discoverAll($1, infersDescriptors: infers) } == .done)
    #expect(recording.client(client, link) { $0.subscribe($1, subject.notifying.value) } == .done)
    #expect(recording.client(client, link) { $0.subscribe($1, subject.indicating.value) } == .done)
    recording.disconnect(client, link)
    let result = try Replay(recording.trace(of: client), seed: recording.seed(of: client)).run()
    #expect(result.isEqual && result.freedoms[.discovery] == nil, "\(text(result))")
    #expect(result.comparedCount > 5)
  }
  /// Without the seed keys and random values differ, and nothing else.
  /// The host and the simulator's controller keep the rules of the Specification.
  @Test(arguments: samples) func breaksNoRule(_ sample: Sample) throws {
    var sink = DissectingSink(Checker())
    for packet in sample.packets { sink.receive(packet.record, packet.octets.span) }
    sink.pause()
    let texts = sink.sink.findings.map { "\($0.number) \($0.rule.id) \($0.party.rawValue): \($0.seen); \($0.allowed)" }
    #expect(texts == [])
    #expect(sink.sink.judgements(of: .replyMatches) > 10)
  }
  @Test(arguments: samples) func replaysWithoutSeed(_ sample: Sample) throws {
    let result = try Replay(sample.packets).run()
    #expect(result.isEqual, "\(text(result))")
  }
}

func text(_ result: ReplayResult) -> String {
  var lines = ["\(result.equalCount) of \(result.comparedCount) equal, \(result.divergenceCount) divergences"]
  for divergence in result.divergences.prefix(3) {
    lines.append("record \(divergence.number), \(divergence.stream), \(divergence.role):")
    lines.append(
      "  recorded: " + ReplayDivergence.lines(divergence.recorded, divergence.stream).joined(separator: " | "))
    lines.append("  ours:     " + ReplayDivergence.lines(divergence.ours, divergence.stream).joined(separator: " | "))
  }
  for (freedom, use) in result.freedoms.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
    lines.append("  \(freedom.rawValue): \(use.count), records \(use.numbers)")
  }
  return lines.joined(separator: "\n")
}
