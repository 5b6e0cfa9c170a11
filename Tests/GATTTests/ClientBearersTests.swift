import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Two bearers of one client: their own state, and the state that they share.
@Suite struct ClientBearersTests {
  private static func dialogue(bearers: UInt16 = 2) -> Dialogue {
    let dialogue = Dialogue()
    for number in 2...bearers { dialogue.open(number) }
    return dialogue
  }
  /// A characteristic with value 3 and configuration 4 is known, and another with value 6.
  private static func discovered(bearers: UInt16 = 2) -> Dialogue {
    let dialogue = Dialogue()
    dialogue.client.discoverAll(100)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 FFFF 0D18
      > 08 0100 FFFF 0228
      < 01 08 0100 0A
      > 08 0100 FFFF 0328
      < 09 07 0200 12 0300 372A  0500 0A 0600 382A
      > 08 0600 FFFF 0328
      < 01 08 0600 0A
      > 04 0700 FFFF
      < 01 04 0700 0A
      """, isOver: false)
    #expect(dialogue.effects() == ["100 discovered"])
    for number in 2...bearers { dialogue.open(number) }
    return dialogue
  }

  /// Vol 3, Part F, §3.3.2: one request on each bearer.
  @Test func eachHasItsRequest() {
    let dialogue = Self.dialogue()
    dialogue.client.read(1, 3)
    dialogue.client.read(2, 5)
    dialogue.ask(on: 2)
    dialogue.client.read(3, 7)
    dialogue.client.read(4, 9)
    dialogue.play("> 0A 0300\n2> 0A 0700")
    #expect(dialogue.request(on: 2) == nil)
    dialogue.play("2< 0B 07\n2> 0A 0900\n< 0B 03\n> 0A 0500\n< 0B 05\n2< 0B 09")
    #expect(dialogue.effects() == ["3 value 07", "1 value 03", "2 value 05", "4 value 09"])
    dialogue.respond(octets("0B 01"), on: 2)
    #expect(dialogue.effects() == ["ignored unexpectedResponse"])
  }

  @Test func aDiscoveryAndARead() {
    let dialogue = Self.dialogue()
    dialogue.client.discoverPrimaryServices(1)
    dialogue.ask(on: 2)
    dialogue.client.readLong(2, 3)
    let full = String(repeating: "55", count: 22)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      2> 0A 0300
      2< 0B \(full)
      2> 0C 0300 1600
      < 11 06 0100 0500 0018
      > 10 0600 FFFF 0028
      2< 0D 66
      < 01 10 0600 0A
      """)
    #expect(dialogue.effects() == ["2 value \(hex([UInt8](repeating: 0x55, count: 22))) 66", "1 discovered"])
    #expect(dialogue.client.remote.services.map(\.uuid) == ["1800"])
  }

  /// They take turns: each bearer's next discovery comes after those that wait on the others.
  @Test func discoveriesOneAfterAnother() {
    let dialogue = Self.dialogue(bearers: 3)
    for (id, number) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
      dialogue.ask(on: UInt16(number))
      dialogue.client.discoverPrimaryServices(RequestID(rawValue: UInt64(id)), "180D")
    }
    dialogue.client.read(5, 3)
    #expect(dialogue.request(on: 2) == nil && dialogue.request(on: 3) == nil)
    let ask = "06 0100 FFFF 0028 0D18", none = "01 06 0100 0A"
    dialogue.play("> \(ask)")
    #expect(dialogue.request(on: 2) == nil && dialogue.request(on: 3) == nil)
    dialogue.play("< \(none)\n2> \(ask)")
    #expect(dialogue.request(on: 3) == nil)
    dialogue.play("2< \(none)\n3> \(ask)\n3< \(none)\n> \(ask)\n3> 0A 0300\n3< 0B 01\n< \(none)")
    #expect(dialogue.effects() == ["1 discovered", "3 discovered", "4 discovered", "5 value 01", "2 discovered"])
  }

  /// Vol 3, Part F, §3.4.6: a client has one queue.
  @Test func preparedWritesOneAfterAnother() {
    let dialogue = Self.dialogue()
    dialogue.client.writeReliable(1, [(3, [1]), (5, [2])])
    dialogue.ask(on: 2)
    dialogue.writeLong(2, 7, [3])
    dialogue.play("> 16 0300 0000 01\n< 17 0300 0000 01\n> 16 0500 0000 02")
    #expect(dialogue.request(on: 2) == nil)
    dialogue.play("< 17 0500 0000 02\n> 18 01")
    #expect(dialogue.request(on: 2) == nil)
    dialogue.play("< 19\n2> 16 0700 0000 03\n2< 17 0700 0000 03\n2> 18 01\n2< 19")
    #expect(dialogue.effects() == ["1 done", "2 done"])
  }

  /// Only the MTU decides whether a value must be prepared.
  @Test func aLongWriteWaits() {
    let dialogue = Self.dialogue()
    dialogue.client.discoverPrimaryServices(1, "180D")
    dialogue.ask(on: 2)
    dialogue.write(2, 3, [UInt8](repeating: 7, count: 21))
    dialogue.write(3, 3, [8])
    dialogue.play("> 06 0100 FFFF 0028 0D18")
    #expect(dialogue.request(on: 2) == nil)
    #expect(dialogue.holdsCommands(on: 2))
    let first = "0300 0000 " + hex([UInt8](repeating: 7, count: 18)), second = "0300 1200 07 07 07"
    dialogue.play(
      """
      < 01 06 0100 0A
      2> 16 \(first)
      2< 17 \(first)
      2> 16 \(second)
      2< 17 \(second)
      2> 18 01
      2< 19
      2> 12 0300 08
      2< 13
      """)
    #expect(dialogue.effects() == ["1 discovered", "2 done", "3 done"])
    #expect(!dialogue.holdsCommands(on: 2))
  }

  // MARK: Ends

  @Test func closingOne() {
    let dialogue = Self.discovered()
    dialogue.client.subscribe(1, 3)
    dialogue.play("> 04 0400 0400\n< 05 01 0400 0229\n> 12 0400 0100\n< 13")
    dialogue.client.read(2, 3)
    dialogue.client.discoverPrimaryServices(3, "180D")
    dialogue.ask(on: 2)
    dialogue.client.read(4, 6)
    dialogue.client.discoverPrimaryServices(5, "180F")
    dialogue.play("> 0A 0300\n2> 0A 0600")
    dialogue.close(1, .timedOut)
    dialogue.close(1, .timedOut)
    #expect(
      dialogue.effects() == [
        "1 done", "2 bearerClosed(BindruneATT.BearerClosure.timedOut)",
        "3 bearerClosed(BindruneATT.BearerClosure.timedOut)",
      ])
    dialogue.ask(on: 1)
    dialogue.client.read(6, 3)
    #expect(dialogue.effects() == ["6 bearerClosed(BindruneATT.BearerClosure.timedOut)"])
    dialogue.play("2< 0B 01\n2> 06 0100 FFFF 0028 0F18\n2< 01 06 0100 0A")
    #expect(dialogue.client.remote.characteristics.count == 2)
    dialogue.ask(on: 2)
    dialogue.client.subscribe(7, 3)
    #expect(dialogue.effects() == ["4 value 01", "5 discovered", "7 done"])
    dialogue.send(octets("1B 0300 09"), on: 1)
    dialogue.send(octets("1B 0300 0A"), on: 2)
    #expect(dialogue.effects() == ["notification 3: 0A"])

    dialogue.close(2)
    #expect(dialogue.client.remote.characteristics.count == 2)
    dialogue.open(3)
    dialogue.client.subscribe(8, 3)
    dialogue.play("3> 12 0400 0100\n3< 13")
    #expect(dialogue.effects() == ["8 done"])
  }

  /// The exclusive procedure ends with its bearer, and the next begins.
  @Test func closingWhatOthersWaitFor() {
    let dialogue = Self.dialogue()
    dialogue.client.discoverPrimaryServices(1, "180D")
    dialogue.ask(on: 2)
    dialogue.client.discoverPrimaryServices(2, "180D")
    dialogue.play("> 06 0100 FFFF 0028 0D18")
    #expect(dialogue.request(on: 2) == nil)
    dialogue.close()
    dialogue.play("2> 06 0100 FFFF 0028 0D18\n2< 01 06 0100 0A")
    #expect(dialogue.effects() == ["1 bearerClosed(BindruneATT.BearerClosure.disconnected)", "2 discovered"])
  }

  /// Parts prepared on a bearer that has closed are still in the client's queue: the client cancels them before it
  /// prepares others.
  @Test(arguments: [false, true]) func closingALongWrite(isCancelled: Bool) {
    let dialogue = Self.dialogue(bearers: 3)
    dialogue.client.writeReliable(1, [(3, [1]), (5, [2])])
    dialogue.play("> 16 0300 0000 01\n< 17 0300 0000 01\n> 16 0500 0000 02")
    dialogue.ask(on: 2)
    dialogue.client.read(2, 9)
    dialogue.writeLong(3, 7, [3])
    dialogue.close()
    dialogue.play("2> 0A 0900\n2< 0B\n2> 18 00")
    if isCancelled { dialogue.client.cancel(3) }
    dialogue.play("2< 19")
    if !isCancelled { dialogue.play("2> 16 0700 0000 03\n2< 17 0700 0000 03\n2> 18 01\n2< 19") }
    #expect(dialogue.request(on: 2) == nil)
    dialogue.ask(on: 3)
    dialogue.writeLong(4, 7, [4])
    dialogue.play("3> 16 0700 0000 04\n3< 17 0700 0000 04\n3> 18 01\n3< 19")
    #expect(
      dialogue.effects() == [
        "1 bearerClosed(BindruneATT.BearerClosure.disconnected)", "2 value ", isCancelled ? "3 cancelled" : "3 done",
        "4 done",
      ])
  }

  /// The server may have accepted: the client writes the previous configuration again.
  @Test func closingASubscription() {
    let dialogue = Self.discovered()
    dialogue.client.subscribe(1, 3)
    dialogue.play("> 04 0400 0400\n< 05 01 0400 0229\n> 12 0400 0100")
    dialogue.close()
    dialogue.play("2> 12 0400 0000\n2< 13")
    #expect(dialogue.effects() == ["1 bearerClosed(BindruneATT.BearerClosure.disconnected)"])
  }

  @Test func cancellingOnEither() {
    let dialogue = Self.dialogue()
    dialogue.client.discoverPrimaryServices(1, "180D")
    dialogue.client.read(2, 3)
    dialogue.ask(on: 2)
    dialogue.client.discoverPrimaryServices(3, "180F")
    dialogue.client.read(4, 5)
    dialogue.client.read(5, 7)
    dialogue.play("> 06 0100 FFFF 0028 0D18")
    dialogue.client.cancel(4)
    #expect(dialogue.request(on: 2) == nil)
    // It delayed those behind it.
    dialogue.client.cancel(3)
    dialogue.play("2> 0A 0700")
    dialogue.client.cancel(5)
    dialogue.client.cancel(1)
    dialogue.client.cancel(2)
    #expect(dialogue.effects() == ["4 cancelled", "3 cancelled", "5 cancelled", "1 cancelled", "2 cancelled"])
    dialogue.client.discoverPrimaryServices(6, "180F")
    dialogue.play("2< 0B 01")
    #expect(dialogue.request(on: 2) == nil, "the answer to the discovery is still to come")
    dialogue.play("< 01 06 0100 0A\n2> 06 0100 FFFF 0028 0F18\n2< 01 06 0100 0A")
    #expect(dialogue.effects() == ["6 discovered"])
  }

  /// Each bearer has its own commands.
  @Test func places() {
    let dialogue = Self.dialogue(), first = BearerID(rawValue: 1), second = BearerID(rawValue: 2)
    dialogue.client.makeRequests(on: first, after: 3)
    dialogue.client.read(1, 3)
    dialogue.client.makeRequests(on: second, after: nil)
    dialogue.client.read(2, 5)
    dialogue.client.discoverPrimaryServices(3, "180D")
    #expect(dialogue.request(on: 1, after: 2) == nil && dialogue.holdsCommands(on: 1))
    #expect(!dialogue.hasRequest(on: 2) && !dialogue.holdsCommands(on: 2))
    dialogue.client.place(2, on: first, after: 8)
    #expect(!dialogue.hasRequest(on: 2))
    dialogue.client.place(2, on: second, after: 7)
    #expect(dialogue.request(on: 2, after: 6) == nil && dialogue.holdsCommands(on: 2))
    #expect(dialogue.request(on: 1, after: 3).map { hex($0) } == "0A 03 00")
    #expect(dialogue.request(on: 2, after: 7).map { hex($0) } == "0A 05 00")
    #expect(!dialogue.holdsCommands(on: 1) && !dialogue.holdsCommands(on: 2))
  }

  // MARK: Changes of services

  /// Waiting requests fail on every bearer; the client's own requests continue on another one.
  @Test func changesConcernAllBearers() {
    let dialogue = Self.discovered()
    dialogue.client.read(1, 3)
    dialogue.client.read(2, 3)
    dialogue.ask(on: 2)
    dialogue.client.read(3, 6)
    dialogue.client.read(4, 6)
    dialogue.play("> 0A 0300\n2> 0A 0600")
    dialogue.respond(octets("01 0A 0600 12"), on: 2)
    dialogue.play("2> 08 0100 FFFF 2A2B\n2< 01 08 0100 0A")
    #expect(
      dialogue.effects() == [
        "changed 0001-FFFF", "2 databaseChanged", "4 databaseChanged", "3 databaseChanged",
      ])
    dialogue.play("< 0B 01\n> 10 0100 3F00 0028")
    dialogue.close()
    dialogue.play("2> 10 0100 FFFF 0028\n2< 01 10 0100 0A\n2> 10 0100 FFFF 0128\n2< 01 10 0100 0A")
    #expect(dialogue.effects() == ["1 value 01", "rediscovered 0001-FFFF"])
    #expect(dialogue.client.remote.isEmpty && dialogue.client.remote.isComplete)
  }

  /// 0x12 on one bearer while the other discovers: the client decides afterwards whether the request continues.
  @Test(arguments: [false, true]) func outOfSync(isToldOnBoth: Bool) {
    let dialogue = Self.discovered()
    dialogue.client.discoverPrimaryServices(1, "180F")
    dialogue.ask(on: 2)
    dialogue.client.read(2, 3)
    dialogue.client.read(3, 6)
    dialogue.play("> 06 0100 FFFF 0028 0F18\n2> 0A 0300\n2< 01 0A 0300 12", isOver: false)
    #expect(dialogue.request(on: 2) == nil && dialogue.holdsCommands(on: 2))
    let hash = "08 0100 FFFF 2A2B", none = "01 08 0100 0A"
    if isToldOnBoth {
      dialogue.play("< 01 06 0100 12\n> \(hash)\n< \(none)\n> 06 0100 FFFF 0028 0F18", isOver: false)
      #expect(dialogue.effects() == ["changed 0001-FFFF", "2 databaseChanged", "3 databaseChanged"])
    } else {
      dialogue.play("< 01 06 0100 0A\n2> \(hash)\n2< \(none)", isOver: false)
      #expect(dialogue.effects() == ["1 discovered", "changed 0001-FFFF", "3 databaseChanged", "2 databaseChanged"])
    }
    // The client discovers what has changed, with bearer 2's help unless another discovery is in flight.
    #expect(dialogue.request(on: 2).map { hex($0) } == (isToldOnBoth ? nil : "10 01 00 3F 00 00 28"))
    #expect(!dialogue.holdsCommands(on: 2))
  }
}
