import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Flow control of data towards the host. Vol 4, Part E, §4.2, §7.3.38 – §7.3.40.
@Suite struct HostFlowTests {
  private static func size(_ length: UInt16, _ count: UInt16) -> HostBufferSize {
    let command = HostBufferSize.with {
      $0.hostACLDataPacketLength = length
      $0.hostTotalNumACLDataPackets = count
    }
    return command
  }
  private static var on: SetControllerToHostFlowControl {
    let command = SetControllerToHostFlowControl.with { $0.flowControlEnable = .acl }
    return command
  }
  /// Host 1 has given its controller `buffers` buffers; host 0 is its central.
  private func lab(_ air: Int, buffers: UInt16, _ configuration: ControllerConfiguration? = nil) -> Lab {
    var lab = Lab(
      LinkTests.airs[air],
      [
        ControllerConfiguration(address: Lab.address(0)),
        configuration ?? ControllerConfiguration(address: Lab.address(1)),
      ])
    #expect(lab.status(1, Self.size(251, buffers)) == 0)
    #expect(lab.status(1, Self.on) == 0)
    _ = lab.connect(0, 1)
    return lab
  }
  private func completed(_ count: Int, _ handle: Int = 1) -> String {
    "01 35 0C 05 01 \(hex([UInt8(handle)])) 00 \(hex([UInt8(count)])) 00"
  }
  private func data(_ packets: [[UInt8]]) -> [UInt8] { packets.filter { $0[0] == 2 }.map { $0[5] } }

  @Test(arguments: 0..<2, [HostFlowControl.off, .acl, .synchronous, .both]) func buffers(
    air: Int, flow: HostFlowControl
  ) {
    var lab = Lab(LinkTests.airs[air], hosts: 2)
    #expect(lab.status(1, Self.size(251, 3)) == 0)
    var on = SetControllerToHostFlowControl()
    on.flowControlEnable = flow
    #expect(lab.status(1, on) == 0)
    _ = lab.connect(0, 1)
    for n in 0..<8 { lab.data(0, 1, [UInt8(n)]) }
    lab.run(200)
    guard flow == .acl || flow == .both else { return #expect(data(lab.packets(1)) == Array(0..<8)) }
    #expect(data(lab.packets(1)) == [0, 1, 2])
    // The host's report needs no credit, and has no answer.
    let faults = lab.world.air.faults(of: ControllerID(1)).commandsWithoutCredit
    lab.send(1, "01 09 10 00")
    lab.send(1, completed(2))
    lab.run(50)
    let packets = lab.packets(1)
    #expect(packets.count == 3 && data(packets) == [3, 4] && packets.count { $0[1] == 0x0E } == 1)
    #expect(lab.world.air.faults(of: ControllerID(1)).commandsWithoutCredit == faults)
    lab.send(1, completed(3))
    lab.run(50)
    #expect(data(lab.packets(1)) == [5, 6, 7])
    lab.run(1000)
    #expect(lab.packets(1) == [])
  }
  /// Events do not wait for data.
  @Test(arguments: 0..<2) func eventsPass(air: Int) {
    var lab = self.lab(air, buffers: 1)
    for n in 0..<4 { lab.data(0, 1, [UInt8(n)]) }
    lab.run(200)
    #expect(data(lab.packets(1)) == [0])
    lab.data(1, 1, [9])
    lab.send(1, "01 09 10 00")
    lab.run(200)
    #expect(lab.hexes(1).sorted() == ["04 0E 0A 01 09 10 00 02 44 33 22 11 00", "04 13 05 01 01 00 01 00"])
  }
  /// The end of a link frees its buffers without a report, and no data of it follow Disconnection Complete.
  @Test(arguments: 0..<2) func theEndOfALink(air: Int) {
    var lab = Lab(LinkTests.airs[air], hosts: 3)
    #expect(lab.status(1, Self.size(251, 2)) == 0)
    #expect(lab.status(1, Self.on) == 0)
    for peer in [0, 2] { _ = lab.connect(peer, 1) }
    for n in 0..<4 {
      lab.data(0, 1, [UInt8(n)])
      lab.run(20)
    }
    lab.data(2, 1, [0x22])
    lab.run(100)
    #expect(data(lab.packets(1)) == [0, 1])
    let disconnect = Disconnect.with { $0.connectionHandle = ConnectionHandle(rawValue: 1) }
    lab.command(0, disconnect)
    lab.run(100)
    #expect(lab.hexes(1) == ["04 05 04 00 01 00 13", "02 02 20 01 00 22"])
    // This report is too late, but no error.
    lab.send(1, completed(2))
    lab.run(10)
    #expect(lab.packets(1) == [])
    for n in 5..<8 { lab.data(2, 1, [UInt8(n)]) }
    lab.run(100)
    #expect(data(lab.packets(1)) == [5])
  }
  @Test func invalidReports() {
    var lab = Lab(hosts: 2)
    #expect(lab.status(1, Self.size(0, 1)) == 0x12)
    #expect(lab.status(1, Self.size(27, 0)) == 0x12)
    lab.send(1, "01 31 0C 01 04")
    lab.run(1)
    #expect(lab.hexes(1) == ["04 0E 04 01 31 0C 12"])
    #expect(lab.status(1, Self.size(27, 2)) == 0)
    #expect(lab.status(1, Self.on) == 0)
    _ = lab.connect(0, 1)
    #expect(lab.status(1, Self.on) == 0x0C && lab.status(1, Self.size(27, 2)) == 0x0C, "there is a link")
    lab.data(0, 1, [1])
    lab.run(1)
    _ = lab.packets(1)
    // More than the host ever had, and a truncated list: both are answered, and the next command has its credit.
    for wrong in [completed(2), "01 35 0C 04 01 01 00 01", "01 35 0C 00"] {
      lab.send(1, wrong)
      lab.run(1)
      #expect(lab.hexes(1) == ["04 0E 04 01 35 0C 12"])
    }
    let faults = lab.world.air.faults(of: ControllerID(1))
    lab.send(1, "01 09 10 00")
    lab.run(1)
    #expect(lab.packets(1).count == 1)
    #expect(lab.world.air.faults(of: ControllerID(1)).commandsWithoutCredit == faults.commandsWithoutCredit)
  }
  /// Packets are cut to the host's length, with and without flow control.
  @Test(arguments: 0..<2, [true, false]) func packetLength(air: Int, isControlled: Bool) {
    var lab = Lab(LinkTests.airs[air], hosts: 2)
    #expect(lab.status(1, Self.size(8, 2)) == 0)
    if isControlled { #expect(lab.status(1, Self.on) == 0) }
    _ = lab.connect(0, 1)
    lab.data(0, 1, [UInt8](0..<20))
    lab.run(100)
    let pieces = [
      "02 01 20 08 00 00 01 02 03 04 05 06 07", "02 01 10 08 00 08 09 0A 0B 0C 0D 0E 0F", "02 01 10 04 00 10 11 12 13",
    ]
    guard isControlled else { return #expect(lab.hexes(1) == pieces) }
    #expect(lab.hexes(1) == Array(pieces[..<2]))
    lab.send(1, completed(1))
    lab.run(1)
    #expect(lab.hexes(1) == [pieces[2]])
  }
  /// Waiting packets count as the host's backlog: they stop the other end, so that memory stays bounded.
  @Test(arguments: 0..<2) func aHostThatGivesNothingBack(air: Int) {
    var reader = ControllerConfiguration(address: Lab.address(1))
    reader.hostBacklog = 100
    var lab = self.lab(air, buffers: 1, reader)
    for n in 0..<8 { lab.data(0, 1, [UInt8](repeating: UInt8(n), count: 27)) }
    lab.run(1000)
    #expect(data(lab.packets(1)) == [0])
    // Four more of 32 octets fill the backlog of 100, and one is on its way.
    #expect((3...4).contains(lab.world.air.usedBuffers(of: ControllerID(0))))
    for n in 1..<8 {
      lab.send(1, completed(1))
      lab.run(100)
      #expect(data(lab.packets(1)) == [UInt8(n)])
    }
    lab.run(100)
    #expect(lab.world.air.usedBuffers(of: ControllerID(0)) == 0)
  }
  @Test func resetTurnsItOff() {
    var lab = self.lab(0, buffers: 1)
    for n in 0..<3 { lab.data(0, 1, [UInt8(n)]) }
    lab.run(10)
    #expect(lab.status(1, Reset()) == 0)
    lab.command(1, SetEventMask())
    lab.run(10)
    _ = lab.connect(0, 1)
    for n in 0..<3 { lab.data(0, 2, [UInt8(n)]) }
    lab.run(10)
    #expect(data(lab.packets(1)) == [0, 1, 2])
  }
}
