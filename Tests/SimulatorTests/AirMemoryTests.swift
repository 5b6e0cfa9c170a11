import BindruneWire
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneSimulator

/// A radio that runs for weeks keeps only its present state.
@Suite struct AirMemoryTests {
  /// A restart removes the events planned for earlier starts: advertising, its end, and the end of a scan.
  @Test(arguments: [true, false]) func restartsLeaveNothingBehind(isExtended: Bool) {
    var air = Air(seed: 1, configuration: .realistic)
    let id = air.addController(ControllerConfiguration(address: Lab.address(0)))
    let others = (1..<4).map { air.addController(ControllerConfiguration(address: Lab.address($0))) }
    // Advertising every 10.24 s that has a long end; a scan of 655 s.
    let prepare =
      isExtended
      ? [
        "01 36 20 19 01 00 00 00 40 00 00 40 00 07 00 00 00 00 00 00 00 00 00 7F 01 00 01 05 00",
        "01 41 20 08 00 00 01 00 10 00 10 00",
      ]
      : ["01 06 20 0F 00 40 00 40 03 00 00 00 00 00 00 00 00 07 00", "01 0B 20 07 00 10 00 10 00 00 00"]
    let cycle =
      isExtended
      ? [
        "01 39 20 06 01 01 01 FF FF 00", "01 39 20 02 00 00", "01 42 20 06 01 00 FF FF 00 00",
        "01 42 20 06 00 00 00 00 00 00",
      ]
      : ["01 0A 20 01 01", "01 0A 20 01 00", "01 0C 20 02 01 00", "01 0C 20 02 00 00"]
    for command in ["01 01 0C 08 FF FF FF FF FF FF FF 3F", "01 01 20 08 FF FF 1F 00 00 00 00 00"] + prepare {
      #expect(air.send(id, command) == 0)
    }
    for other in others {
      for command in prepare.prefix(1) + cycle.prefix(1) { #expect(air.send(other, command) == 0) }
    }
    var largest = 0
    for round in 0..<20_000 {
      for command in cycle { #expect(air.send(id, command) == 0) }
      air.advance(to: .zero + .microseconds(Int64(round) * 100))
      largest = max(largest, air.medium.schedule.count)
    }
    #expect(largest <= 130, "\(largest) entries")
    // The others' planned events were not dropped: three of them, every 10.24 s for a minute.
    #expect(air.send(id, cycle[2]) == 0)
    var heard = 0
    for _ in 0..<60 {
      air.advance(to: air.now + .seconds(1))
      var packet = PacketBuffer()
      while packet.fill({ air.nextPacket(from: id, into: &$0, now: air.now) }) { heard += 1 }
    }
    #expect((12...21).contains(heard), "\(heard) reports")
  }

  @Test func controllersThatHaveGoneAreNotKept() {
    var air = Air(seed: 1, configuration: .ideal)
    let first = air.addController(ControllerConfiguration(address: Lab.address(0)))
    var seen: Set<ControllerID> = [first]
    for round in 1...5_000 {
      let pair = (0..<2).map { air.addController(ControllerConfiguration(address: Lab.address(round * 2 + $0))) }
      for id in pair {
        #expect(seen.insert(id).inserted, "a number is given once")
        #expect(air.isPresent(id) == true)
        _ = air.send(id, "01 06 20 0F 20 00 20 00 03 00 00 00 00 00 00 00 00 07 00")
        _ = air.send(id, "01 0A 20 01 01")
      }
      air.separate(pair[0], pair[1])
      air.advance(to: air.now + .milliseconds(5))
      for id in pair.shuffled() { air.removeController(id) }
      #expect(pair.map { air.isPresent($0) } == [false, false])
    }
    #expect(air.controllers.count == 3 && air.controllersAdded == 10_001)
    #expect(air.medium.schedule.count <= 130)
    #expect(air.medium.radio.separatedCount == 0)
    #expect(air.isPresent(first) == true)
  }

  /// A new controller takes the slot of a removed one, but not its ID, its timers or its links.
  @Test(arguments: 0..<2) func aPlaceThatIsUsedAgain(air index: Int) {
    var lab = Lab(LinkTests.airs[index], hosts: 3)
    let old = lab.world.controller(of: 0)
    _ = lab.connect(0, 1, timeout: 100)
    lab.advertise(0, .nonConnectableUndirected, interval: 0x400)
    lab.run(1)
    lab.world.replaceController(of: 0, ControllerConfiguration(address: Lab.address(7)))
    let new = lab.world.controller(of: 0)
    #expect(new != old && new.number == 3 && old.number == 0)
    lab.command(0, SetEventMask())
    lab.command(0, LESetEventMask())
    lab.run(1)
    #expect(lab.world.air.linkCount(of: old) == 0 && lab.world.air.linkCount(of: new) == 0)
    // A packet for the old one has no effect.
    lab.world.air.receive(octets("01 0A 20 01 01").span, at: old, now: lab.world.now)
    lab.world.air.inject(octets("04 10 01 01").span, from: old)
    lab.world.air.move(old, to: Position(x: 5000))
    lab.world.separate(0, 2)
    lab.world.air.reunite(old, lab.world.controller(of: 2))
    _ = lab.packets(0)
    lab.scan(2)
    lab.run(900)
    #expect(lab.packets(0) == [])
    #expect(lab.packets(2).allSatisfy { $0[1] == 0x0E }, "the old one's advertising is over")
    // The peer's link to the old one ends by its own time-out, although a controller is in its place.
    lab.run(300)
    #expect(lab.hexes(1) == ["04 05 04 00 01 00 08"])
    lab.world.reunite(0, 2)
    _ = lab.packets(1)
    lab.advertise(0)
    lab.run(100)
    #expect(lab.packets(2).contains { $0[1] == 0x3E && $0[7] == 8 })
    // And it has links of its own.
    lab.command(1, Lab.creation(to: Lab.address(7)))
    lab.run(100)
    #expect(lab.world.air.linkCount(of: new) == 1)
  }
}

extension Air {
  /// Sends a command, and returns the status in its Command Complete.
  fileprivate mutating func send(_ id: ControllerID, _ command: String) -> UInt8 {
    receive(octets(command).span, at: id, now: now)
    var packet = PacketBuffer(), status: UInt8 = 0xFF
    while packet.fill({ nextPacket(from: id, into: &$0, now: now + .milliseconds(1)) }) {
      let bytes = packet.bytes
      if bytes[1] == 0x0E { status = bytes[6] }
    }
    return status
  }
}
