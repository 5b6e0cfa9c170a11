import BasicContainers
import BindruneATT
import BindruneGATT
import BindruneWire
import TestSupport
import Testing

/// What several bearers do for one client: reads at once, and a discovery in parts.
@Suite struct ClientSharingTests {
  private static func dialogue(bearers: UInt16 = 3) -> Dialogue {
    let dialogue = Dialogue()
    for number in 2...bearers { dialogue.open(number) }
    return dialogue
  }

  // MARK: Reads

  /// All are made on bearer 1. A long read delays none of the others.
  @Test func readsLeaveOnAnyBearer() {
    let dialogue = Self.dialogue(), full = String(repeating: "55", count: 22)
    dialogue.client.readLong(1, 3)
    #expect(!dialogue.hasRequest(on: 2), "bearer 1 takes it")
    dialogue.client.read(2, 5)
    dialogue.client.read(3, uuid: "2A00")
    dialogue.client.readMultiple(4, [7, 9])
    dialogue.client.read(5, 11)
    dialogue.play("> 0A 0300\n2> 0A 0500\n3> 08 0100 FFFF 002A")
    #expect(!dialogue.hasRequest(on: 2) && !dialogue.hasRequest(on: 3))
    dialogue.play("2< 0B 05\n2> 0E 0700 0900\n3< 01 08 0100 0A\n3> 0A 0B00\n< 0B \(full)\n> 0C 0300 1600\n2< 0F 07")
    dialogue.play("< 0D 66\n3< 0B 0B")
    #expect(
      dialogue.effects() == [
        "2 value 05", "3 att 0A 08 01", "4 value 07", "1 value \(hex([UInt8](repeating: 0x55, count: 22))) 66",
        "5 value 0B",
      ])
  }

  /// What a caller has asked before it still precedes a read: a write, and the parts of a long one.
  @Test func aReadFollowsAWrite() {
    let dialogue = Self.dialogue()
    dialogue.write(1, 3, [1])
    dialogue.client.read(2, 3)
    #expect(dialogue.hasRequest(on: 1) && !dialogue.hasRequest(on: 2), "the write has not left")
    dialogue.play("> 12 0300 01\n2> 0A 0300\n2< 0B 01\n< 13")
    dialogue.writeLong(3, 3, [2])
    dialogue.client.read(4, 3)
    dialogue.play("> 16 0300 0000 02")
    #expect(!dialogue.hasRequest(on: 2))
    dialogue.play("< 17 0300 0000 02\n> 18 01\n2> 0A 0300\n< 19\n2< 0B 02")
    dialogue.client.read(5, 3)
    dialogue.write(6, 3, [3])
    dialogue.client.read(7, 3)
    dialogue.play("> 0A 0300")
    #expect(!dialogue.hasRequest(on: 2), "the write is made on bearer 1, and a read waits behind it")
    dialogue.play("< 0B 02\n> 12 0300 03\n3> 0A 0300\n< 13\n3< 0B 03")
    #expect(
      dialogue.effects() == ["2 value 01", "1 done", "3 done", "4 value 02", "5 value 02", "6 done", "7 value 03"])
  }

  /// A read that was made after three commands leaves after them, on any bearer; and commands wait for a read.
  @Test func aReadFollowsCommands() {
    let dialogue = Self.dialogue(), first = BearerID(rawValue: 1)
    dialogue.client.read(1, 3)
    dialogue.play("> 0A 0300")
    dialogue.client.makeRequests(on: first, after: 3)
    dialogue.client.read(2, 5)
    #expect(dialogue.holdsCommands(on: 1))
    dialogue.client.commandsSent = 2
    #expect(dialogue.request(on: 2) == nil)
    dialogue.client.commandsSent = 3
    #expect(dialogue.request(on: 2).map { hex($0) } == "0A 05 00")
    #expect(!dialogue.holdsCommands(on: 1))
    dialogue.client.makeRequests(on: first, after: nil)
    dialogue.client.read(3, 7)
    #expect(!dialogue.hasRequest(on: 3), "its place is not known")
    dialogue.client.place(3, on: first, after: 3)
    #expect(dialogue.request(on: 3).map { hex($0) } == "0A 07 00")
  }

  /// The request ends with the bearer that it has left on.
  @Test func aBearerCloses() {
    let dialogue = Self.dialogue()
    dialogue.client.read(1, 3)
    dialogue.client.read(2, 5)
    dialogue.client.read(3, 7)
    dialogue.play("> 0A 0300\n2> 0A 0500")
    dialogue.close(2)
    #expect(dialogue.effects() == ["2 bearerClosed(BindruneATT.BearerClosure.disconnected)"])
    dialogue.play("3> 0A 0700\n3< 0B 07\n< 0B 03")
    #expect(dialogue.effects() == ["3 value 07", "1 value 03"])
  }

  // MARK: Discovery

  /// Rounds: in each, every bearer that has a request sends it, and all are answered.
  private static func rounds(
    _ database: Database, bearers: UInt16, mtu: Int = 247, infersDescriptors: Bool = true
  ) -> (Int, RemoteDatabase) {
    let crowd = Crowd(database, bearers: bearers, mtu: mtu)
    crowd.client.discoverAll(1, infersDescriptors: infersDescriptors)
    var rounds = 0
    while crowd.ask() > 0 {
      rounds += 1
      while crowd.answer(0) {}
    }
    #expect(crowd.ends() == ["1 discovered"])
    return (rounds, crowd.client.remote)
  }

  /// On four bearers it takes less than half as many rounds as on one.
  @Test func aDiscoveryInParts() throws {
    let database = try Database.workload(services: 10), (alone, known) = Self.rounds(database, bearers: 1)
    #expect(known.services.count == 10 && known.characteristics.count == 100)
    for bearers in 2...6 as ClosedRange<UInt16> {
      let (rounds, remote) = Self.rounds(database, bearers: bearers)
      #expect(remote == known)
      print("\(bearers) bearers: \(rounds) rounds, one: \(alone)")
      if bearers >= 4 { #expect(2 * rounds <= alone) }
    }
  }

  /// Whatever order the bearers ask and are answered in, and whatever they are asked besides, the client learns the same
  /// as on one. It asks for every descriptor: which of those that it infers a response goes on to differs.
  @Test(arguments: 0..<8) func anyOrder(_ part: UInt64) throws {
    for seed in (part * 25)..<(part * 25 + 25) {
      var services = RandomServices(seed: seed), plain = PlainServer()
      let database = try services.build(into: &plain), mtu = [64, 100, 247, 517][Int(seed % 4)]
      let known = Self.rounds(database, bearers: 1, mtu: mtu, infersDescriptors: false).1
      var chance = SplitMix64(seed: seed)
      let crowd = Crowd(database, bearers: UInt16.random(in: 2...6, using: &chance), mtu: mtu)
      crowd.client.discoverAll(1, infersDescriptors: false)
      var reads: UInt64 = 1
      repeat {
        if reads < 10, Bool.random(using: &chance) {
          reads += 1
          crowd.client.read(RequestID(rawValue: reads), 1)
        }
        _ = crowd.ask(Int.random(in: 0..<crowd.count, using: &chance))
        if Bool.random(using: &chance), crowd.inFlight > 0 {
          _ = crowd.answer(Int.random(in: 0..<crowd.inFlight, using: &chance))
        }
      } while crowd.inFlight > 0 || crowd.hasRequest
      let ends = crowd.ends()
      #expect(ends.count == Int(reads) && ends.contains("1 discovered"), "seed \(seed): \(ends)")
      #expect(crowd.client.remote == known, "seed \(seed)")
    }
  }

  /// What the server refuses on another bearer is asked again on the one whose request it is.
  @Test func aRefusalOnAnotherBearer() {
    let dialogue = Self.dialogue(bearers: 2)
    dialogue.client.discoverAll(1)
    dialogue.play("> 10 0100 3F00 0028\n2> 10 4000 FFFF 0028\n2< 01 10 4000 05")
    #expect(dialogue.effects() == [] && !dialogue.hasRequest(on: 2))
    dialogue.play("< 01 10 0100 0A\n> 10 4000 FFFF 0028\n< 01 10 4000 05")
    #expect(dialogue.effects() == ["1 att 05 10 40"])
    #expect(!dialogue.hasRequest(on: 2))
  }
  @Test func nonsenseOnAnotherBearer() {
    let dialogue = Self.dialogue(bearers: 2)
    dialogue.client.discoverAll(1)
    // A handle outside of the range.
    dialogue.play("> 10 0100 3F00 0028\n2> 10 4000 FFFF 0028\n2< 11 06 0200 0300 0F18")
    #expect(dialogue.effects() == [])
    dialogue.play("< 01 10 0100 0A")
    #expect(dialogue.effects().first?.hasPrefix("1 malformedResponse") == true)
  }
  /// A response to a discovery that has ended concerns no other.
  @Test func aLateResponse() {
    let dialogue = Self.dialogue(bearers: 2)
    dialogue.client.discoverAll(1)
    #expect(dialogue.request(on: 2).map { hex($0) } == "10 01 00 3F 00 00 28")
    dialogue.client.cancel(1)
    dialogue.client.discoverAll(2)
    dialogue.play("> 10 0100 3F00 0028")
    dialogue.play("2< 11 06 0100 0500 0018\n2> 10 4000 FFFF 0028\n2< 01 10 4000 0A\n< 01 10 0100 0A", isOver: false)
    #expect(dialogue.request().map { hex($0) } == "10 01 00 FF FF 01 28")
    dialogue.play("< 01 10 0100 0A")
    #expect(dialogue.effects() == ["1 cancelled", "2 discovered"])
    #expect(dialogue.client.remote.services.isEmpty)
  }
  /// Another bearer asks for what was in flight on one that closes; the discovery ends with its own bearer.
  @Test func bearersCloseMeanwhile() {
    let dialogue = Self.dialogue(bearers: 3)
    dialogue.client.discoverAll(1)
    dialogue.play("> 10 0100 3F00 0028\n2> 10 4000 7F00 0028\n3> 10 8000 FFFF 0028")
    dialogue.close(2)
    dialogue.play("3< 01 10 8000 0A\n3> 10 4000 7F00 0028")
    dialogue.close(1)
    #expect(dialogue.effects() == ["1 bearerClosed(BindruneATT.BearerClosure.disconnected)"])
    dialogue.play("3< 01 10 4000 0A")
    #expect(!dialogue.hasRequest(on: 3))
  }
}

/// A client and a server with several bearers between them. The test decides which asks, and which is answered.
private final class Crowd {
  var client = Client()
  private var server: Server
  private var near = UniqueArray<Bearer>(), far = UniqueArray<Bearer>()
  private var packet = PacketBuffer()
  private var noServer = Server(database: try! DatabaseBuilder().build()), noClient = Client()
  /// Requests that have not been answered: the bearer, and the PDU.
  private var flying: [(Int, [UInt8])] = []

  init(_ database: Database, bearers: UInt16, mtu: Int) {
    server = Server(database: database)
    for number in 1...bearers {
      let id = BearerID(rawValue: number)
      near.append(Bearer(id, kind: .enhanced(mtu: mtu)))
      far.append(Bearer(id, kind: .enhanced(mtu: mtu)))
      client.open(id)
      if number == 1 { server.open(id) } else { server.open(id, beside: BearerID(rawValue: 1)) }
    }
  }
  var count: Int { near.count }
  var inFlight: Int { flying.count }
  var hasRequest: Bool { near.indices.contains { client.hasRequest(on: near[$0].id) } }

  /// Sends what this bearer has to send; false if it has nothing.
  func ask(_ bearer: Int) -> Bool {
    let said = near[bearer].hasPDU(client: client)
    let wrote = packet.fill { near[bearer].nextPDU(into: &$0, now: .zero, client: &client) }
    #expect(said == wrote)
    if wrote { flying.append((bearer, packet.bytes)) }
    return wrote
  }
  /// Sends what each bearer has to send; returns how many had something.
  func ask() -> Int { near.indices.count { ask($0) } }
  /// Answers a request in flight; false if there is none.
  func answer(_ place: Int) -> Bool {
    guard place < flying.count else { return false }
    let (bearer, request) = flying.remove(at: place)
    far[bearer].receive(request.span, now: .zero, server: &server, client: &noClient)
    #expect(packet.fill { far[bearer].nextPDU(into: &$0, now: .zero, client: &noClient) })
    let response = packet.bytes
    near[bearer].receive(response.span, now: .zero, server: &noServer, client: &client)
    return true
  }
  func ends() -> [String] {
    var ends: [String] = []
    while let effect = client.nextEffect() {
      guard case .completed(let id, let result) = effect else {
        ends.append("\(effect)")
        continue
      }
      if case .discovered = result { ends.append("\(id.rawValue) discovered") } else { ends.append("\(id.rawValue)") }
    }
    return ends
  }
}
