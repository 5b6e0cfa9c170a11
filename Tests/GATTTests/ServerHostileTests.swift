import BindruneATT
import BindruneToolbox
import BindruneWire
import Foundation
import TestSupport
import Testing

@testable import BindruneGATT

/// A hostile client at the other end of a bearer: sequences of PDUs, half of them valid, half mutated, against bearer
/// and server with every kind of attribute, an application that answers at random, changes of the database, of
/// security, of the MTU, and time.
///
/// Invariants: no trap; exactly one response to each accepted request, in order; every PDU within the MTU; the server's
/// memory within its bounds; the bearer closes if an indication is not confirmed for 30 s, and for no other reason.
@Suite struct ServerHostileTests {
  /// 20,000 sequences, or `BINDRUNE_FUZZ_CASES`.
  static let sequences = ProcessInfo.processInfo.environment["BINDRUNE_FUZZ_CASES"].flatMap { Int($0) } ?? 20_000

  @Test func anySequence() throws {
    let database = try Self.database()
    let seed = Fuzz.seed
    print("hostile clients: \(Self.sequences) sequences, seed \(seed)")
    var requests = 0, responses = 0, closed = 0, questions = 0, records = 0
    for sequence in 0..<Self.sequences {
      let hostile = Hostile(database, seed: seed &* 1_000_003 &+ UInt64(sequence))
      hostile.run()
      requests += hostile.requests
      responses += hostile.responses
      questions += hostile.questions
      records += hostile.recordCount
      if hostile.closure != nil { closed += 1 }
      if !hostile.failures.isEmpty {
        Issue.record("sequence \(sequence) of seed \(seed): \(hostile.failures.joined(separator: "; "))")
        return
      }
    }
    // The sequences must cause enough events.
    #expect(responses > Self.sequences && requests >= responses && questions > Self.sequences / 4)
    #expect(closed > 0 && records > 0)
  }

  static func database() throws -> Database {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "Bindrune", appearance: 0x0341)
    builder.genericAttribute(serverFeatures: [])
    let battery = builder.service("180F", at: handle(0x20), end: handle(0x2F)) { service in
      service.characteristic("2A19", [.read, .notify], value: [0x57])
      service.userDescription("level")
      return service.handle
    }
    let secondary = builder.service(custom(1), .secondary) { service in
      service.characteristic(custom(2), .read, value: .text("2nd"))
      return service.handle
    }
    builder.service(custom(0), at: handle(0x40)) { service in
      service.include(battery)
      service.include(secondary)
      for _ in 0..<3 { service.characteristic("AA01", [.read, .write, .writeWithoutResponse], value: .dynamic) }
      service.characteristic("AA01", [.read, .write], value: .stored([1, 2, 3], upTo: 20))
      service.characteristic(
        "AA01", [.read, .write], value: .dynamic, permissions: .init(read: .encrypted, write: .encrypted))
      service.characteristic(
        "AA02", [.read, .write, .notify, .indicate], value: .stored((0..<512).map { UInt8($0 & 0xFF) }))
      service.characteristic(
        "AA03", [.read, .write], value: .fixed([9, 9, 9, 9]),
        permissions: .init(read: .authenticated.withKey(of: 16), write: .open.withAuthorization))
      service.characteristic("AA04", .indicate)
      service.descriptor(.characteristicExtendedProperties, value: .fixed([1, 0]))
    }
    return try builder.build()
  }
}

/// One client, one server, one bearer, and their events.
private final class Hostile {
  static let waitingOctets = 4096, preparedOctets = 1024
  var bearer: Bearer
  var server: Server
  var client = Client()
  var now = Instant.zero
  var chance: SplitMix64
  private var buffer = PacketBuffer(capacity: 600)
  /// Opcodes of the accepted requests without a response.
  private var expected: [UInt8] = []
  private var waiting: [ServerRequestID] = []
  /// The times when our unconfirmed indication, and our Exchange MTU Request, were sent.
  private var indicatedAt: Instant?, askedAt: Instant?
  private(set) var requests = 0, responses = 0, questions = 0, recordCount = 0
  private(set) var failures: [String] = []
  private var isTransient = false
  var closure: BearerClosure? { bearer.closure }
  private var id: BearerID { bearer.id }

  init(_ database: Database, seed: UInt64) {
    chance = SplitMix64(seed: seed)
    var bearerConfiguration = BearerConfiguration()
    bearerConfiguration.preferredMTU = [23, 48, 247, 517].randomElement(using: &chance) ?? 23
    bearerConfiguration.queueCapacity = 1024
    bearer = Bearer(BearerID(rawValue: 1), configuration: bearerConfiguration)
    var configuration = ServerConfiguration()
    configuration.waitingEffects = 16
    configuration.waitingOctets = Self.waitingOctets
    configuration.preparedOctets = Self.preparedOctets
    configuration.preparedRuns = 8
    server = Server(database: database, configuration: configuration)
    server.open(bearer.id)
  }

  func run() {
    for _ in 0..<number(1...24) {
      step()
      checkBounds()
      if closure != nil { break }
    }
    finish()
  }
  private func number(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &chance) }
  private func fail(_ text: String) { if failures.count < 5 { failures.append(text) } }

  private func step() {
    switch number(0...19) {
    case 0...11: receive(PDUs.next(&chance))
    case 12: answer()
    case 13: drain()
    case 14:
      let security = BearerSecurity(rawValue: UInt8(number(0...3))) ?? .none
      server.setSecurity(security, keySize: number(7...16), of: id)
      let key = ClientSigning(key: SecurityKey(0), counter: UInt32(number(0...2)), isAuthenticated: number(0...1) == 0)
      server.setSigning(number(0...1) == 0 ? key : nil, of: id)
      server.setAuthorized(number(0...1) == 1, of: id)
    case 15: changeDatabase()
    case 16:
      let value = [UInt8](repeating: 7, count: number(0...600)),
        raw = handle([0x22, 0x50, 0x55].randomElement(using: &chance) ?? 1)
      let wanted = server.mayBeSent(raw, to: id)
      if wanted.contains(.notification) { _ = bearer.offer(notification: raw, value.span) }
      if wanted.contains(.indication) { _ = bearer.indicate(raw, value.span) }
    case 17: _ = bearer.exchangeMTU()
    case 18:
      let record = ClientRecord(), bond = BondID(rawValue: 1)
      if number(0...1) == 0 {
        server.bond(id, as: bond)
      } else {
        try? server.restore(record.octets.span, of: bond, on: id)
      }
    default: pass(.milliseconds(number(0...20_000)))
    }
    takeEffects()
  }

  private func receive(_ pdu: [UInt8]) {
    let kind = pdu.first.map { ATTOpcode(rawValue: $0) }
    bearer.receive(pdu.span, now: now, server: &server, client: &client)
    var isTaken = kind.map { $0.kind == .request || $0.kind == nil } ?? false
    while let effect = bearer.nextEffect() {
      if case .violation(.requestDropped) = effect { isTaken = false }
      take(effect)
    }
    if isTaken {
      requests += 1
      expected.append(pdu[0])
    }
    if number(0...1) == 0 { drain() }
  }
  /// What the bearer sends.
  private func drain(_ limit: Int = .max) {
    var left = limit
    while left > 0, buffer.fill({ output in bearer.nextPDU(into: &output, now: now, client: &client) }) {
      left -= 1
      let pdu = buffer.bytes, opcode = ATTOpcode(rawValue: pdu[0])
      if pdu.count > bearer.mtu { fail("\(pdu.count) octets for an MTU of \(bearer.mtu)") }
      if opcode.kind == .indication { indicatedAt = now }
      if opcode.kind == .request { askedAt = now }
      guard opcode.kind == .response else { continue }
      responses += 1
      guard !expected.isEmpty else {
        fail("\(hex(pdu)) for no request")
        continue
      }
      let request = expected.removeFirst()
      let isAnswer = pdu[0] == request &+ 1 || pdu.count == 5 && pdu[0] == 0x01 && pdu[1] == request
      if !isAnswer { fail("\(hex(pdu)) for \(hex([request]))") }
    }
  }
  private func answer() {
    guard let question = waiting.randomElement(using: &chance) else { return }
    var response = PacketBuffer(capacity: bearer.mtu), outcome = AnswerOutcome.unwanted(.unknown)
    let value = [UInt8](repeating: 5, count: number(0...3) == 0 ? number(0...600) : number(0...4))
    let choice = number(0...3)
    _ = response.fill { output in
      switch choice {
      case 0: outcome = server.refuse(question, .init(rawValue: 0x80), into: &output)
      case 1: outcome = server.answerWrite(question, into: &output)
      default: outcome = server.answerRead(question, with: value.span, into: &output)
      }
      return true
    }
    if case .unwanted(.wrongKind) = outcome { return }
    waiting.removeAll { $0 == question }
    guard case .response(let ticket) = outcome else {
      // It may have closed, without the effect having been read.
      if case .unwanted(let reason) = outcome, reason != .tooLate { fail("an open question is answered by \(reason)") }
      return
    }
    if !response.withBytes({ bearer.respond(to: ticket, with: $0, now: now, server: &server) }) {
      fail("a response that the bearer does not wait for")
    }
  }
  private func pass(_ time: Duration) {
    now += time
    bearer.expire(now: now, server: &server, client: &client)
    takeBearerEffects()
  }
  private func changeDatabase() {
    if isTransient {
      do throws(DatabaseError) { try server.remove(service: handle(0x70)) } catch { fail("\(error)") }
    } else {
      var builder = DatabaseBuilder()
      builder.service("AA00", at: handle(0x70)) { service in
        service.characteristic("AA01", [.read, .write], value: .dynamic)
        service.characteristic("AA04", .indicate)
      }
      do throws(DatabaseError) { try server.insert(builder) } catch { fail("\(error)") }
    }
    isTransient.toggle()
  }

  private func take(_ effect: BearerEffect) {
    switch effect {
    case .indicationConfirmed: indicatedAt = nil
    case .closed(let reason):
      let since = [indicatedAt, askedAt].compactMap { $0 }.min()
      if reason == .timedOut, since.map({ $0 + .seconds(30) <= now }) != true { fail("closed too early") }
    case .answeredForApplication, .indicationFailed, .mtuChanged, .ready, .violation: break
    }
  }
  private func takeBearerEffects() { while let effect = bearer.nextEffect() { take(effect) } }
  private func takeEffects() {
    takeBearerEffects()
    if bearer.canIndicate, let change = server.takeServiceChanged(on: id) {
      if !bearer.indicate(change.handle, change.value.span).isAccepted { fail("Service Changed was not taken") }
    }
    // Sometimes the effects are not read for a while.
    if number(0...3) == 0 { return }
    while let effect = server.nextEffect() {
      switch effect {
      case .readRequested(let id, _, _, _): ask(id)
      case .writeRequested(let id, _, _, _, let octets, let following):
        if octets.range.upperBound > server.arenaCount { fail("octets out of the arena") }
        if following == 0 { ask(id) }
      case .requestCancelled(let id, _): waiting.removeAll { $0 == id }
      case .store(_, let octets):
        recordCount += 1
        do throws(WireError) { _ = try ClientRecord(server.bytes(of: octets).span) } catch { fail("\(error)") }
      case .written, .subscriptionChanged, .signCounterChanged, .signatureRefused: break
      }
    }
    while client.nextEffect() != nil {}
  }
  private func ask(_ id: ServerRequestID) {
    questions += 1
    waiting.append(id)
  }

  /// Bounds of memory, and of time.
  private func checkBounds() {
    if let indicatedAt, closure == nil, bearer.deadline.map({ $0 > indicatedAt + .seconds(30) }) == true {
      fail("a late deadline")
    }
    if server.arenaCount > Self.waitingOctets + 512 { fail("an arena of \(server.arenaCount)") }
    if server.effects.count > 16 + 8 { fail("\(server.effects.count) effects") }
    if server.ended.count > EndedRequest.remembered || server.changes.count > DatabaseChange.remembered {
      fail("a long memory")
    }
    guard server.sessions.count == 1, server.clients.count == 1 else {
      return fail("\(server.sessions.count) sessions, \(server.clients.count) clients")
    }
    for octets in [server.clients[0].prepared.bytes.count, server.sessions[0].executing.bytes.count]
    where octets > Self.preparedOctets { fail("prepared") }
    for runs in [server.clients[0].prepared.runs.count, server.sessions[0].executing.runs.count] where runs > 8 {
      fail("prepared")
    }
    if server.sessions[0].collected.response.count > bearer.mtu || server.sessions[0].collected.handles.count > 650 {
      fail("collected")
    }
    if server.database.values.count > 8192 || server.clients[0].configurations.count > 8 { fail("a growing database") }
    // Two responses at most wait, and one request.
    if expected.count > 2 { fail("\(expected.count) requests are open") }
  }

  /// At the end every open request is answered, unless the bearer has closed.
  private func finish() {
    for _ in 0..<4 where closure == nil {
      drain()
      if expected.isEmpty { break }
      // The client confirms, so that time does not close the bearer.
      if indicatedAt != nil { bearer.receive([UInt8(0x1E)].span, now: now, server: &server, client: &client) }
      takeBearerEffects()
      pass(.seconds(25))
    }
    drain()
    if closure == nil {
      if !expected.isEmpty { fail("\(hex(expected)) not answered") }
      bearer.receive([UInt8(0x04), 1, 0, 1, 0].span, now: now, server: &server, client: &client)
      expected.append(0x04)
      requests += 1
      drain()
      if !expected.isEmpty { fail("no answer afterwards") }
    }
    bearer.close(client: &client)
    server.close(id)
    while server.nextEffect() != nil {}
    if server.sessions.count != 0 || server.clients.count != 0 || server.arenaCount != 0 { fail("something is left") }
    for question in waiting {
      var response = PacketBuffer(capacity: 517), outcome = AnswerOutcome.unwanted(.unknown)
      _ = response.fill { output in
        outcome = server.answerWrite(question, into: &output)
        return true
      }
      guard case .unwanted = outcome, response.count == 0 else { return fail("answered after the end") }
    }
  }
}

/// Random PDUs of a client: half of them as the Specification requires, half of those damaged.
private enum PDUs {
  static let handles: [UInt16] = [
    0, 1, 3, 8, 9, 0xB, 0xD, 0x22, 0x23, 0x44, 0x46, 0x48, 0x4A, 0x4C, 0x4E, 0x4F, 0x51, 0x54, 0x72, 0xFFFF,
  ]
  static let types: [[UInt8]] = ["0028", "0128", "0228", "0328", "0229", "2A2B", "01AA", "02AA", "002A", "FFFF"].map {
    octets($0)
  }

  static func next(_ chance: inout SplitMix64) -> [UInt8] {
    var pdu = valid(&chance)
    guard Bool.random(using: &chance) else { return pdu }
    switch Int.random(in: 0...4, using: &chance) {
    case 0: pdu[Int.random(in: 0..<pdu.count, using: &chance)] ^= 1 << UInt8.random(in: 0...7, using: &chance)
    case 1: pdu.removeLast(Int.random(in: 1...pdu.count, using: &chance))
    case 2: pdu += some(1...600, &chance)
    case 3: pdu[0] = .random(in: 0...255, using: &chance)
    default: pdu = some(0...40, &chance)
    }
    return pdu
  }
  private static func some(_ count: ClosedRange<Int>, _ chance: inout SplitMix64) -> [UInt8] {
    (0..<Int.random(in: count, using: &chance)).map { _ in .random(in: 0...255, using: &chance) }
  }
  private static func pair(_ number: UInt16) -> [UInt8] { [UInt8(number & 0xFF), UInt8(number >> 8)] }
  private static func handle(_ chance: inout SplitMix64) -> [UInt8] { pair(handles.randomElement(using: &chance) ?? 1) }
  private static func range(_ chance: inout SplitMix64) -> [UInt8] {
    if Bool.random(using: &chance) { return [1, 0, 0xFF, 0xFF] }
    let a = UInt16.random(in: 1...0x80, using: &chance), b = UInt16.random(in: 1...0x80, using: &chance)
    return pair(min(a, b)) + pair(max(a, b))
  }
  private static func type(_ chance: inout SplitMix64) -> [UInt8] { types.randomElement(using: &chance) ?? [0, 0x28] }

  private static func valid(_ chance: inout SplitMix64) -> [UInt8] {
    switch Int.random(in: 0...19, using: &chance) {
    case 0: return [0x04] + range(&chance)
    case 1: return [0x06] + range(&chance) + type(&chance) + [0x0F, 0x18]
    case 2...4: return [0x08] + range(&chance) + type(&chance)
    case 5, 6: return [0x0A] + handle(&chance)
    case 7: return [0x0C] + handle(&chance) + pair(.random(in: 0...600, using: &chance))
    case 8, 9:
      let opcode: UInt8 = Bool.random(using: &chance) ? 0x0E : 0x20
      return (0..<Int.random(in: 2...6, using: &chance)).reduce([opcode]) { pdu, _ in pdu + handle(&chance) }
    case 10: return [0x10] + range(&chance) + type(&chance)
    case 11, 12: return [0x12] + handle(&chance) + some(0...4, &chance)
    // Subscriptions, features.
    case 13:
      let writes: [[UInt8]] = [
        [0x09, 0, 2, 0], [0x23, 0, 1, 0], [0x4F, 0, 3, 0], [0x51, 0, 2, 0], [0x0B, 0, 1], [0x0B, 0, 5],
      ]
      return [0x12] + (writes.randomElement(using: &chance) ?? [])
    case 14, 15: return [0x16] + handle(&chance) + pair(.random(in: 0...8, using: &chance)) + some(0...12, &chance)
    case 16: return [0x18, .random(in: 0...1, using: &chance)]
    case 17: return [0x52] + handle(&chance) + some(0...30, &chance)
    case 18: return [0x1E]
    default:
      return [[0x02, 0xF7, 0x00], [0x1B, 3, 0, 1], [0x1D, 3, 0, 1], [0xD2] + some(14...20, &chance)].randomElement(
        using: &chance) ?? [0x1E]
    }
  }
}
