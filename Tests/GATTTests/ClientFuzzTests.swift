import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// For any answers of a server: no trap, every request completed once after a bounded number of PDUs, and a consistent
/// `remote`.
@Suite struct ClientFuzzTests {
  /// Answers of our own server, some of them damaged, which reach deep into each procedure.
  @Test func spoiltAnswers() {
    let database = ClientServerTests.richDatabase()
    var chance = SplitMix64(seed: Fuzz.seed), closed = 0, completed: [String: Int] = [:], most = 0
    for number in 0..<Fuzz.sequences {
      let world = HostileWorld(
        database, mtu: [23, 23, 64, 517][number % 4], spoils: [0, 0, 0, 0.02, 0.2, 1][number % 6])
      // Half of the servers send no damaged answers: every random request to them must succeed.
      world.submit(chance: &chance)
      world.run(&chance)
      most = max(most, world.requests)
      #expect(world.requests < 2_000, "case \(number) of seed \(Fuzz.seed)")
      #expect(world.completions.allSatisfy { $0.value == 1 }, "case \(number) of seed \(Fuzz.seed)")
      #expect(world.completions.count == world.submitted, "case \(number) of seed \(Fuzz.seed)")
      #expect(world.mostEffects < 600, "case \(number) of seed \(Fuzz.seed)")
      let remote = RemoteShape(world.client.remote)
      #expect(remote.isSound, "case \(number) of seed \(Fuzz.seed)")
      closed += world.isClosed ? 1 : 0
      for (kind, count) in world.outcomes { completed[kind, default: 0] += count }
    }
    print("fuzz: at most \(most) requests, \(closed) bearers timed out, \(completed)")
    for kind in ["discovered", "value", "values", "done", "hash", "malformed", "att", "closed", "cancelled", "changed"]
    {
      #expect((completed[kind] ?? 0) > 0, "no case ended as \"\(kind)\"")
    }
  }

  /// Any PDU, in any phase, directly into the client, on two bearers that open and close.
  @Test func anyPDU() {
    let samples = [
      "01 0A 0300 02", "01 0A 0300 05", "05 01 0300 0229 0400 0129", "05 02 0300 000C5F1A5F6E5C8EBD4B1D1D0000B1A0",
      "07 0100 0500 0600 FFFF",
      "09 07 0200 10 0300 372A", "09 08 0200 1000 2000 0F18", "0B 48454C4C4F", "0D 48454C4C4F", "0F 0102",
      "11 06 0100 0500 0D18 0600 0900 0F18", "13", "17 0401 0000 A5A5", "19", "1B 0300 0102", "1D 0300 0102",
      "21 0100 AA 0000", "23 0300 0100 AA 0400 0000",
    ].map(octets)
    var chance = SplitMix64(seed: Fuzz.seed), packet = PacketBuffer()
    var configuration = ClientConfiguration()
    configuration.repeatsWhenSecured = true
    var client = Client(configuration: configuration)
    var id: UInt64 = 0, open = Set<UInt64>()
    let bearers = [BearerID(rawValue: 1), BearerID(rawValue: 2)]
    var closed = Set(bearers)
    for bytes in Fuzz(samples) {
      guard let pdu = try? ATTPDU(bytes.span) else { continue }
      let bearer = bearers[Int.random(in: 0..<2, using: &chance)]
      switch UInt8.random(in: 0..<50, using: &chance) {
      case 0:
        client.close(.timedOut, on: bearer)
        closed.insert(bearer)
      case 1...10 where closed.contains(bearer):
        client.open(bearer)
        closed.remove(bearer)
      default: break
      }
      client.makeRequests(on: bearer, after: 0)
      if open.count < 3 {
        id += 1
        open.insert(id)
        ask(&client, RequestID(rawValue: id), .random(in: 0..<kinds, using: &chance), &chance)
      }
      if Bool.random(using: &chance) {
        _ = packet.fill { client.nextRequest(on: bearer, after: 0, mtu: 23, into: &$0) }
      }
      if let victim = open.randomElement(using: &chance), UInt8.random(in: 0..<20, using: &chance) == 0 {
        client.cancel(RequestID(rawValue: victim))
      }
      switch bytes[0] {
      case 0x1B, 0x1D, 0x23: client.receive(value: pdu, in: bytes.span, on: bearer, now: .zero)
      default: client.receive(response: pdu, in: bytes.span, on: bearer, mtu: 23, now: .zero)
      }
      while let effect = client.nextEffect() {
        switch effect {
        case .completed(let id, let result):
          #expect(open.remove(id.rawValue) != nil, "completed twice")
          if case .value(let octets) = result { #expect(client.bytes(of: octets).count < 600) }
          if case .values(let octets) = result { _ = client.values(of: octets) }
        case .value(_, let octets, _): _ = client.bytes(of: octets)
        case .valuesLost, .ignored, .servicesChanged, .rediscovered, .securityNeeded: break
        }
      }
      if UInt8.random(in: 0..<4, using: &chance) == 0 {
        client.securityEnded(isSecured: Bool.random(using: &chance))
        while let effect = client.nextEffect() {
          guard case .completed(let id, _) = effect else { continue }
          #expect(open.remove(id.rawValue) != nil, "completed twice")
        }
      }
    }
    for bearer in bearers { client.close(.disconnected, on: bearer) }
    while let effect = client.nextEffect() {
      if case .completed(let id, _) = effect { open.remove(id.rawValue) }
    }
    #expect(open.isEmpty)
    let shape = RemoteShape(client.remote)
    #expect(shape.isSound)
  }

  /// A correct server and three bearers, in any order, which close one after another: nothing waits forever, every
  /// request completes once, and an executed queue was prepared on one bearer.
  @Test func severalBearers() {
    let database = ClientServerTests.richDatabase()
    var chance = SplitMix64(seed: Fuzz.seed), executed = 0, closed = 0
    for number in 0..<max(Fuzz.sequences / 4, 50) {
      let world = BearersWorld(database)
      world.run(&chance)
      executed += world.executed
      closed += world.closed
      #expect(world.failures == [], "case \(number) of seed \(Fuzz.seed)")
      #expect(world.completions.allSatisfy { $0.value == 1 }, "case \(number) of seed \(Fuzz.seed)")
      #expect(world.completions.count == world.submitted, "case \(number) of seed \(Fuzz.seed)")
    }
    print("fuzz: \(executed) queues executed, \(closed) bearers closed")
    #expect(executed > 0 && closed > 0)
  }

  /// A server that always has one more entry: a discovery ends with the handles.
  @Test func aServerWithoutEnd() {
    let dialogue = Dialogue()
    dialogue.client.discoverAll(1)
    var requests = 0
    while let request = dialogue.request() {
      requests += 1
      guard requests < 300_000 else { break }
      let first = UInt16(request[1]) | UInt16(request[2]) << 8
      let next = first &+ 1, low = [request[1], request[2]], after = [UInt8(next & 0xFF), UInt8(next >> 8)]
      switch request[0] {
      case 0x10: dialogue.respond([0x11, 6] + low + low + [0x0D, 0x18])
      case 0x08 where request[5] == 0x02: dialogue.respond([0x09, 6] + low + low + [0xFF, 0xFF])
      case 0x08: dialogue.respond([0x09, 7] + low + [0x02] + after + [0x37, 0x2A])
      case 0x04: dialogue.respond([0x05, 1] + low + [0x01, 0x29])
      default: dialogue.respond([0x0B, 0x0D, 0x18])
      }
    }
    #expect(requests < 300_000)
    #expect(dialogue.effects().last == "1 discovered")
  }
}

/// Makes a random request of one of the `kinds`.
private let kinds: UInt8 = 16
private func ask(_ client: inout Client, _ id: RequestID, _ kind: UInt8, _ chance: inout SplitMix64) {
  let handles = (0..<3).map { _ in AttributeHandle(rawValue: .random(in: 0...0x20, using: &chance)) }
  let value = [UInt8](repeating: 0xA5, count: .random(in: 0...60, using: &chance))
  switch kind {
  case 0: client.discoverAll(id)
  case 1: client.discoverPrimaryServices(id, Bool.random(using: &chance) ? "180F" : nil)
  case 2: client.discoverIncludedServices(id, in: .all)
  case 3: client.discoverCharacteristics(id, in: .all)
  case 4: client.discoverDescriptors(id, in: .all)
  case 5: client.read(id, handles[0])
  case 6:
    client.readLong(id, client.remote.characteristic("A0B10001-1D1D-4BBD-8E5C-6F0E5F1A0C00")?.valueHandle ?? 0x0104)
  case 7: client.read(id, uuid: "2803")
  case 8: Bool.random(using: &chance) ? client.readMultiple(id, handles) : client.readMultipleVariable(id, handles)
  case 9: client.write(id, handles[0], value.span)
  case 10: client.writeReliable(id, [(0x0104, value), (0x0104, [1])])
  case 11, 12:
    client.subscribe(id, client.remote.characteristics.randomElement(using: &chance)?.valueHandle ?? handles[0])
  case 13:
    client.unsubscribe(id, client.remote.characteristics.randomElement(using: &chance)?.valueHandle ?? handles[0])
  case 14: client.readDatabaseHash(id)
  default: client.followChanges(id)
  }
}

/// A client whose server's answers are damaged on the way.
private final class HostileWorld {
  var client = Client()
  var requests = 0, submitted = 0, isClosed = false, mostEffects = 0
  var completions: [RequestID: Int] = [:], outcomes: [String: Int] = [:]
  private var server: Server, nobody: Server
  private var bearer: Bearer
  private let mtu: Int, spoils: Double
  private var now = Instant.zero
  private var packet = PacketBuffer(), response = PacketBuffer()

  init(_ database: Database, mtu: Int, spoils: Double) {
    self.mtu = mtu
    self.spoils = spoils
    server = Server(database: database)
    server.open(BearerID(rawValue: 1))
    nobody = Server(database: database)
    var configuration = BearerConfiguration()
    configuration.preferredMTU = mtu
    bearer = Bearer(BearerID(rawValue: 1), configuration: configuration)
    client.open(bearer.id)
  }

  func submit(chance: inout SplitMix64) {
    for _ in 0...Int.random(in: 0...3, using: &chance) {
      submitted += 1
      ask(&client, RequestID(rawValue: UInt64(submitted)), .random(in: 0..<kinds, using: &chance), &chance)
    }
  }

  func run(_ chance: inout SplitMix64) {
    while packet.fill({ bearer.nextPDU(into: &$0, now: now, client: &client) }), requests < 3_000 {
      requests += 1
      if UInt8.random(in: 0..<50, using: &chance) == 0 {
        client.cancel(RequestID(rawValue: .random(in: 1...4, using: &chance)))
      }
      meddle(&chance)
      receive(answer(packet.bytes, &chance))
      drain()
      // After an invalid answer the peer sends nothing more, and 30 s later the bearer closes.
      if !bearer.hasPDU(client: client), let deadline = bearer.deadline {
        now = deadline
        bearer.expire(now: now, server: &server, client: &client)
        isClosed = true
      }
      drain()
    }
    drain()
  }
  /// PDUs that a server may send at any time, and others.
  private func meddle(_ chance: inout SplitMix64) {
    guard spoils > 0, Double.random(in: 0..<1, using: &chance) < 0.1 else { return }
    let changed = client.remote.characteristic(.serviceChanged)?.valueHandle.rawValue ?? 3
    let low = UInt8.random(in: 0...0x40, using: &chance), high = UInt8.random(in: 0...0x60, using: &chance)
    switch UInt8.random(in: 0..<6, using: &chance) {
    case 0, 1: receive([0x1D, UInt8(changed & 0xFF), UInt8(changed >> 8), low, 0, high, 0])
    case 2: receive([0x1D, UInt8(changed & 0xFF), UInt8(changed >> 8), 1, 0, 0xFF, 0xFF])
    case 3: receive([0x1B, low, 0, high])
    case 4: receive([0x23, low, 0, 1, 0, high, low, 0, 0, 0])
    // An answer to no request, or to another.
    default:
      receive(
        [[0x13], [0x0B, 1, 2], [0x01, 0x0A, 3, 0, 0x0A], [0x19], [0x11, 6, 1, 0, 5, 0, 0, 0x18]][Int(low) % 5])
    }
  }
  private func receive(_ bytes: [UInt8]) {
    bearer.receive(bytes.span, now: now, server: &nobody, client: &client)
  }

  private func answer(_ request: [UInt8], _ chance: inout SplitMix64) -> [UInt8] {
    let wrote = response.fill { output in
      guard let pdu = try? ATTPDU(request.span) else { return false }
      let ticket = RequestTicket(bearer: BearerID(rawValue: 1), number: 1)
      return server.respond(to: pdu, in: request.span, as: ticket, now: now, response: &output) == .now
    }
    while server.nextEffect() != nil {}
    var bytes = wrote ? response.bytes : [0x01, request[0], 0, 0, 0x0E]
    guard Double.random(in: 0..<1, using: &chance) < spoils else { return bytes }
    switch UInt8.random(in: 0..<6, using: &chance) {
    case 0, 1:
      for _ in 0...Int.random(in: 0...2, using: &chance) {
        let index = Int.random(in: min(1, bytes.count - 1)..<bytes.count, using: &chance)
        bytes[index] ^= 1 << UInt8.random(in: 0...7, using: &chance)
      }
    case 2: bytes = Array(bytes.prefix(.random(in: 0...bytes.count, using: &chance)))
    case 3:
      let error: UInt8 = Bool.random(using: &chance) ? 0x12 : .random(in: 0...0x14, using: &chance)
      bytes = [0x01, request[0], request.count > 1 ? request[1] : 0, 0, error]
    case 4:
      for index in bytes.indices.dropFirst() where Bool.random(using: &chance) {
        bytes[index] = .random(in: 0...(Bool.random(using: &chance) ? 0xFF : 0x20), using: &chance)
      }
    default: bytes.append(contentsOf: (0..<4).map { _ in .random(in: 0...0xFF, using: &chance) })
    }
    return bytes
  }

  private func drain() {
    while bearer.nextEffect() != nil {}
    var effects = 0
    defer { mostEffects = max(mostEffects, effects) }
    while let effect = client.nextEffect() {
      effects += 1
      guard case .completed(let id, let result) = effect else { continue }
      completions[id, default: 0] += 1
      let kind: String
      switch result {
      case .done: kind = "done"
      case .value(let octets):
        kind = "value"
        #expect(client.bytes(of: octets).count <= 517)
      case .values(let octets):
        kind = "values"
        #expect(client.values(of: octets).count <= 0xFFFF)
      case .discovered: kind = "discovered"
      case .databaseHash: kind = "hash"
      case .failed(.att): kind = "att"
      case .failed(.malformedResponse): kind = "malformed"
      case .failed(.cancelled): kind = "cancelled"
      case .failed(.databaseChanged): kind = "changed"
      case .failed(.bearerClosed): kind = "closed"
      case .failed: kind = "refused"
      }
      outcomes[kind, default: 0] += 1
    }
  }
}

/// A client with three bearers, and its server.
private final class BearersWorld {
  private(set) var submitted = 0, executed = 0, closed = 0
  private(set) var completions: [RequestID: Int] = [:], failures: [String] = []
  private var client = Client(), server: Server
  private var packet = PacketBuffer(), response = PacketBuffer(capacity: 23)
  private var bearers = (1...3).map { BearerID(rawValue: $0) }
  /// The request in flight on each.
  private var asked: [BearerID: [UInt8]] = [:]
  /// The bearers that have prepared writes in the server's queue.
  private var preparing: Set<BearerID> = []

  init(_ database: Database) {
    server = Server(database: database)
    server.open(bearers[0])
    for bearer in bearers.dropFirst() { server.open(bearer, beside: bearers[0]) }
    for bearer in bearers { client.open(bearer) }
  }

  func run(_ chance: inout SplitMix64) {
    for step in 0..<20_000 {
      if submitted < 12, UInt8.random(in: 0..<4, using: &chance) == 0 {
        submitted += 1
        client.makeRequests(on: .random(of: bearers, &chance), after: 0)
        ask(&client, RequestID(rawValue: UInt64(submitted)), .random(in: 0..<kinds, using: &chance), &chance)
      }
      if UInt8.random(in: 0..<60, using: &chance) == 0 {
        client.cancel(RequestID(rawValue: .random(in: 1...12, using: &chance)))
      }
      if bearers.count > 1, UInt8.random(in: 0..<150, using: &chance) == 0 {
        close(.random(of: bearers, &chance), &chance)
      }
      let bearer = BearerID.random(of: bearers, &chance)
      if let request = asked.removeValue(forKey: bearer) {
        let answer = answer(request, on: bearer)
        guard let pdu = try? ATTPDU(answer.span) else { return failures.append("\(hex(answer)) does not decode") }
        client.receive(response: pdu, in: answer.span, on: bearer, mtu: 23, now: .zero)
      } else if packet.fill({ client.nextRequest(on: bearer, after: 0, mtu: 23, into: &$0) }) {
        asked[bearer] = packet.bytes
      }
      while let effect = client.nextEffect() {
        if case .completed(let id, _) = effect { completions[id, default: 0] += 1 }
        if case .ignored(let violation) = effect { failures.append("\(violation)") }
      }
      let isQuiet = asked.isEmpty && !bearers.contains { client.hasRequest(on: $0) }
      if submitted == 12, isQuiet { return }
      if step == 19_999 { failures.append("no end") }
    }
  }
  private func answer(_ request: [UInt8], on bearer: BearerID) -> [UInt8] {
    let wrote = response.fill { output in
      guard let pdu = try? ATTPDU(request.span) else { return false }
      let ticket = RequestTicket(bearer: bearer, number: 1)
      return server.respond(to: pdu, in: request.span, as: ticket, now: .zero, response: &output) == .now
    }
    while server.nextEffect() != nil {}
    switch request[0] {
    case 0x16: if wrote, response.bytes[0] == 0x17 { preparing.insert(bearer) }
    case 0x18:
      if request[1] == 1, preparing != [bearer] { failures.append("\(preparing) prepared, \(bearer) executes") }
      if request[1] == 1 { executed += 1 }
      preparing = []
    default: break
    }
    return wrote ? response.bytes : [0x01, request[0], 0, 0, 0x0E]
  }
  /// The server has received the request in flight, or has not.
  private func close(_ bearer: BearerID, _ chance: inout SplitMix64) {
    if let request = asked.removeValue(forKey: bearer), Bool.random(using: &chance) { _ = answer(request, on: bearer) }
    client.close(.timedOut, on: bearer)
    server.close(bearer)
    bearers.removeAll { $0 == bearer }
    closed += 1
  }
}

extension BearerID {
  fileprivate static func random(of bearers: [BearerID], _ chance: inout SplitMix64) -> BearerID {
    bearers[Int.random(in: 0..<bearers.count, using: &chance)]
  }
}

/// The invariants of every `RemoteDatabase`.
private struct RemoteShape {
  let isSound: Bool
  init(_ remote: RemoteDatabase) {
    func increases(_ handles: [UInt16]) -> Bool { zip(handles, handles.dropFirst()).allSatisfy { $0 < $1 } }
    isSound =
      increases(remote.services.map(\.handle.rawValue)) && increases(remote.includes.map(\.handle.rawValue))
      && increases(remote.characteristics.map(\.handle.rawValue))
      && increases(remote.descriptors.map(\.handle.rawValue))
      && remote.services.allSatisfy { $0.handle.rawValue <= $0.endHandle.rawValue }
      && remote.characteristics.allSatisfy {
        $0.handle.rawValue < $0.valueHandle.rawValue && $0.valueHandle.rawValue <= $0.endHandle.rawValue
      }
    _ = remote.description
  }
}
