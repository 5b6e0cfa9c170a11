import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Invariants for every seed: determinism, order, counts, and no trap.
@Suite struct WorldTests {
  /// Sends numbered packets as fast as its credits allow, and records those received.
  struct Talker: HCIHost {
    var script: [[UInt8]] = []
    var handle: UInt16?
    var credits = 0, toSend = 0, sent = 0
    var received: [[UInt8]] = []
    var disconnections = 0
    var buffers = 0

    mutating func receive(_ packet: Span<UInt8>, now: Instant) {
      let bytes = packet.indices.map { packet[$0] }
      switch (bytes[0], bytes[1]) {
      case (2, _): received.append(Array(bytes.dropFirst(5)))
      case (4, 0x13):
        #expect(bytes[3] == 1)
        credits += Int(bytes[6])
        #expect(credits <= buffers)
      case (4, 0x05):
        handle = nil
        disconnections += 1
      case (4, 0x3E) where bytes[3] == 0x01 && bytes[4] == 0:
        handle = UInt16(bytes[5]) | UInt16(bytes[6]) << 8
        credits = buffers
      default: break
      }
    }
    mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
      if !script.isEmpty {
        let packet = script.removeFirst()
        output.append(contentsOf: packet.span)
        return true
      }
      guard let handle, credits > 0, sent < toSend else { return false }
      credits -= 1
      ACLPacket.writeHeader(ConnectionHandle(rawValue: handle), .firstNonFlushable, count: 20, into: &output)
      // The number of the message, which the other end checks.
      output.append(littleEndian: UInt32(sent))
      for _ in 0..<16 { output.append(0xAA) }
      sent += 1
      return true
    }
    var deadline: Instant? { nil }
    mutating func expire(now: Instant) {}
  }

  private func pair(_ seed: UInt64, _ air: AirConfiguration, buffers: UInt8 = 4, messages: Int) -> World<Talker> {
    var world = World<Talker>(seed: seed, configuration: air)
    for index in 0..<2 {
      var controller = ControllerConfiguration(address: Lab.address(index))
      controller.aclBufferCount = buffers
      var talker = Talker()
      talker.toSend = messages
      talker.buffers = Int(buffers)
      talker.script = [octets("01 01 0C 08 FF FF FF FF FF FF FF 3F")]
      if index == 0 {
        talker.script += [
          octets("01 06 20 0F 20 00 20 00 00 00 00 00 00 00 00 00 00 07 00"), octets("01 0A 20 01 01"),
        ]
      } else {
        talker.script += [
          octets("01 0D 20 19 10 00 10 00 00 00 01 44 33 22 11 00 00 06 00 06 00 00 00 64 00 00 00 00 00")
        ]
      }
      world.add(talker, controller)
    }
    return world
  }
  private func isInOrder(_ received: [[UInt8]]) -> Bool {
    received.enumerated().allSatisfy { index, bytes in
      UInt32(bytes[0]) | UInt32(bytes[1]) << 8 | UInt32(bytes[2]) << 16 == UInt32(index)
    }
  }

  @Test func sameSeedSameBytes() {
    func log(_ seed: UInt64) -> [PacketRecord] {
      var air = AirConfiguration.realistic
      air.loss = 0.2
      var world = pair(seed, air, messages: 50)
      world.air.startRecording()
      world.run(for: .seconds(3))
      return world.air.takeRecords()
    }
    let first = log(7)
    #expect(first.count > 150)
    #expect(first == log(7))
    #expect(first != log(8))
  }

  @Test(arguments: 0..<40) func nothingIsLostOrReordered(seed: Int) {
    var air = seed % 4 == 0 ? AirConfiguration.ideal : .realistic
    air.loss = 0
    air.packetsPerEvent = seed % 3 == 0 ? 1 : nil
    air.delivery = .zero ... .milliseconds(seed % 7)
    let messages = 100
    var world = pair(UInt64(seed), air, buffers: UInt8(1 + seed % 6), messages: messages)
    // A CONNECT_IND may be lost as well, but this test concerns links.
    world.run(for: .seconds(1)) { world in world.readHost(1) { $0.handle == nil } }
    world.air.setLoss(Double(seed % 5) * 0.08)
    let outcome = world.run(for: .seconds(60)) { world in
      world.readHost(0) { $0.received.count } < messages || world.readHost(1) { $0.received.count } < messages
    }
    #expect(outcome == .conditionMet)
    world.run(for: .milliseconds(200))
    for host in 0..<2 {
      world.readHost(host) { host in
        #expect(host.disconnections == 0)
        #expect(host.received.count == messages)
        #expect(isInOrder(host.received))
        #expect(host.credits == host.buffers)
      }
      #expect(world.air.usedBuffers(of: ControllerID(host)) == 0)
      #expect(world.air.faults(of: ControllerID(host)).dataBeyondBuffers == 0)
    }
  }

  @Test(arguments: 0..<20) func absencesAndReturns(seed: Int) {
    var air = seed % 2 == 0 ? AirConfiguration.ideal : .realistic
    air.loss = air.isInstant ? 0 : 0.1
    var world = pair(UInt64(seed), air, messages: 0)
    var random = SeededGenerator(seed: UInt64(seed))
    for _ in 0..<20 {
      for host in 0..<2 { world.withHost(host) { host, _ in host.toSend += 100 } }
      world.run(for: .milliseconds(Int.random(in: 1...100, using: &random)))
      world.separate(0, 1)
      world.run(for: .milliseconds(Int.random(in: 1...1200, using: &random)))
      world.reunite(0, 1)
      let used = (0..<2).map { world.air.usedBuffers(of: ControllerID($0)) }
      #expect(used.allSatisfy { (0...4).contains($0) })
    }
    for host in 0..<2 {
      world.readHost(host) { host in
        #expect(isInOrder(host.received))
        #expect(host.disconnections <= 1)
      }
    }
    #expect(
      world.readHost(0) { $0.disconnections } == 0
        || world.air.usedBuffers(of: ControllerID(0)) + world.air.linkCount(of: ControllerID(0)) == 0)
  }

  @Test func runsAreBounded() {
    struct Chatterbox: HCIHost {
      mutating func receive(_ packet: Span<UInt8>, now: Instant) {}
      mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
        output.append(contentsOf: [1, 3, 12, 0].span)
        return true
      }
      var deadline: Instant? { .zero }
      mutating func expire(now: Instant) {}
    }
    var world = World<Chatterbox>(seed: 1)
    world.stepLimit = 1000
    world.add(Chatterbox(), ControllerConfiguration())
    #expect(world.run(for: .seconds(1)) == .stepLimit)
  }

  @Test func nothingToWaitFor() {
    var world = World<RawHost>(seed: 1)
    world.add(RawHost(), ControllerConfiguration())
    #expect(world.run(for: .seconds(3600)) == .idle)
    #expect(world.now == .zero + .seconds(3600))
  }

  /// A controller that is idle, connected, or busy with everything answers or ignores every packet from a host.
  @Test(arguments: [true, false]) func badInput(isInstant: Bool) {
    var air = isInstant ? AirConfiguration.ideal : .realistic
    air.loss = isInstant ? 0 : 0.05
    var samples: [[UInt8]] = [octets("02 01 00 03 00 01 02 03"), octets("02 01 10 01 00 FF")]
    for opcode in 0...0xFFFF {
      guard let command = AnyCommand(default: HCIOpcode(rawValue: UInt16(opcode))), command.opcode != Reset.opcode
      else {
        continue
      }
      samples.append(Self.packet(command))
    }
    samples += [
      "01 0F 20 00", "01 10 20 00", "01 11 20 07 00 02 44 33 22 11 00", "01 12 20 07 00 02 44 33 22 11 00",
      "01 19 20 1C 01 00 08 07 06 05 04 03 02 01 34 12" + String(repeating: " 00", count: 16),
      "01 1A 20 12 01 00" + String(repeating: " 00", count: 16), "01 7C 0C 04 01 00 0A 00", "01 7B 0C 02 01 00",
      "01 17 20 20 BF 01 FB 9D 4E F3 BC 36 D8 74 F5 39 41 38 68 4C 13 02 F1 E0 DF CE BD AC 79 68 57 46 35 24 13 02",
      "01 14 20 05 FF 01 00 00 00", "01 31 0C 01 01",
      "01 33 0C 07 1B 00 00 02 00 00 00", "01 35 0C 05 01 01 00 01 00", "01 35 0C 09 02 01 00 01 00 02 00 FF FF",
      "01 1D 20 01 13", "01 1E 20 03 13 25 00", "01 33 20 03 13 03 00", "01 34 20 04 13 25 00 04", "01 1F 20 00",
      "01 4D 20 04 00 05 00 FB", "01 2D 0C 03 01 00 01", "01 35 20 07 01 01 02 03 04 05 C0",
      "01 36 20 19 01 13 00 20 00 00 20 00 00 07 00 00 00 00 00 00 00 00 00 7F 01 00 01 05 00",
      "01 36 20 19 02 40 00 20 00 00 20 00 00 07 00 00 00 00 00 00 00 00 00 7F 01 00 01 05 00",
      "01 37 20 07 02 03 01 03 02 01 06", "01 38 20 06 01 03 01 02 01 09", "01 39 20 0A 01 02 01 00 00 00 02 00 00 00",
      "01 39 20 02 00 00", "01 3A 20 00", "01 3B 20 00", "01 3C 20 01 01", "01 3D 20 00",
    ].map(octets)
    // One host with the extended commands, the others with the legacy ones; two with every PHY.
    let controllers = [LEFeatures(), [.le2MPHY, .leCodedPHY], [.le2MPHY, .leCodedPHY]].enumerated().map {
      var controller = ControllerConfiguration(address: Lab.address($0.offset))
      controller.features.formUnion($0.element)
      return controller
    }
    var lab = Lab(air, controllers)
    lab.command(2, LESetExtendedScanParameters())
    _ = lab.connect(0, 1)
    var count = 0, linked = 0
    for var packet in Fuzz(samples, cases: Fuzz.cases / 2, longest: 300) {
      if count % 50 == 0 {
        lab.advertise(1)
        lab.command(0, Lab.creation(to: Lab.address(1)))
        lab.scan(2)
      }
      // Every second packet names a link, if there is one.
      if count % 2 == 0, let handle = lab.world.air.handles(of: ControllerID(count % 3)).last {
        linked += 1
        let place = packet.first == 1 ? 4 : 1
        if packet.count > place + 1 {
          packet[place] = UInt8(handle.rawValue & 0xFF)
          packet[place + 1] = packet[place + 1] & 0xF0 | UInt8(handle.rawValue >> 8)
        }
      }
      lab.send(count % 3, packet)
      if count % 7 == 0 { lab.world.run(for: .milliseconds(5)) }
      count += 1
      for host in 0..<3 {
        let used = lab.world.air.usedBuffers(of: ControllerID(host))
        #expect((0...8).contains(used))
      }
      if count % 100 == 0 { (0..<3).forEach { _ = lab.packets($0) } }
    }
    #expect(linked > count / 20)
    // It still works.
    for host in 0..<3 { lab.send(host, "01 03 0C 00") }
    lab.world.run(for: .seconds(1))
    for host in 0..<3 { #expect(lab.hexes(host).last == "04 0E 04 01 03 0C 00") }
  }
  private static func packet(_ command: AnyCommand) -> [UInt8] {
    var buffer = PacketBuffer()
    let zeros = [UInt8](repeating: 0, count: 300)
    do throws(WireError) {
      _ = try buffer.fill { (output) throws(WireError) in
        try command.writePacket(into: &output, from: zeros.span)
        return true
      }
    } catch {
      // A field of fixed length: the default has none. Its parameters are zeros.
      return [1, UInt8(command.opcode.rawValue & 0xFF), UInt8(command.opcode.rawValue >> 8), 32] + zeros.prefix(32)
    }
    return buffer.bytes
  }
  /// A host that sends and never reads.
  @Test func aDeafHostCostsBoundedMemory() {
    var air = Air(seed: 1, configuration: .ideal)
    let id = air.addController(ControllerConfiguration(address: Lab.address(0)))
    let command = octets("01 01 10 00"), nonsense = octets("07")
    for _ in 0..<100_000 {
      air.receive(command.span, at: id, now: .zero)
      air.receive(nonsense.span, at: id, now: .zero)
    }
    var buffer = PacketBuffer(), count = 0
    while buffer.fill({ air.nextPacket(from: id, into: &$0, now: .zero) }) { count += buffer.count }
    #expect(count <= (1 << 16) + 300)
  }
}
