import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// The HCI face: bytes in, bytes out. Vol 4, Part E, §7.
@Suite struct CommandTests {
  @Test func resetAndInformation() {
    var lab = Lab(hosts: 1)
    for command in ["01 03 0C 00", "01 01 10 00", "01 09 10 00", "01 02 20 00"] {
      lab.send(0, command)
      lab.run(1)
    }
    #expect(
      lab.hexes(0) == [
        "04 0E 04 01 03 0C 00",
        "04 0E 0C 01 01 10 00 0D 00 00 0D FF FF 00 00",
        "04 0E 0A 01 09 10 00 01 44 33 22 11 00",
        "04 0E 07 01 02 20 00 FB 00 08",
      ])
  }

  @Test func unknownAndMalformedCommands() {
    var lab = Lab(hosts: 1)
    for command in ["01 FF FF 00", "01 0C 20 01 01", "01 0C 20 02 01", "01 0D 20 00", "01 0C"] {
      lab.send(0, command)
      lab.run(1)
    }
    #expect(
      lab.hexes(0) == [
        "04 0E 04 01 FF FF 01", "04 0E 04 01 0C 20 12", "04 0E 04 01 0C 20 12", "04 0F 04 12 01 0D 20",
      ])
    #expect(lab.world.air.faults(of: ControllerID(0)).malformedPackets == 4)
  }

  @Test func unknownPacketTypeIsAHardwareError() {
    var lab = Lab(hosts: 1)
    lab.send(0, "09 00 00 00")
    lab.run(1)
    #expect(lab.hexes(0) == ["04 10 01 01"])
  }

  @Test func withoutEventMaskThereAreNoLEEvents() {
    var lab = Lab(hosts: 2)
    lab.send(1, "01 03 0C 00")
    lab.advertise(0)
    lab.scan(1)
    lab.run(200)
    #expect(lab.packets(1).allSatisfy { $0[1] == 0x0E })
  }

  @Test func legacyAndExtendedDoNotMix() {
    var lab = Lab(hosts: 1)
    #expect(lab.status(0, LESetScanParameters()) == 0)
    #expect(lab.status(0, LESetExtendedScanParameters()) == 0x0C)
    #expect(lab.status(0, LEExtendedCreateConnection()) == 0x0C)
    #expect(lab.status(0, Reset()) == 0)
    #expect(lab.status(0, LESetExtendedScanParameters()) == 0)
    #expect(lab.status(0, LESetAdvertisingParameters()) == 0x0C)
    #expect(lab.status(0, LESetScanEnable()) == 0x0C)
  }

  @Test func randomAddressStaysWhileInUse() {
    var lab = Lab(hosts: 1)
    var address = LESetRandomAddress()
    address.randomAddress = DeviceAddress(0xC0_0000_0000_01)
    lab.scan(0)
    lab.run(1)
    #expect(lab.status(0, address) == 0x0C)
    #expect(lab.status(0, LESetScanEnable()) == 0)
    #expect(lab.status(0, address) == 0)
    lab.advertise(0)
    lab.run(1)
    #expect(lab.status(0, address) == 0x0C)
  }

  @Test func aMissingRandomAddress() {
    var lab = Lab(.ideal, [ControllerConfiguration()])
    let enable = LESetAdvertisingEnable.with { $0.advertisingEnable = true }
    #expect(lab.status(0, enable) == 0x12)
    let parameters = LESetAdvertisingParameters.with { $0.ownAddressType = .random }
    #expect(lab.status(0, parameters) == 0)
    #expect(lab.status(0, enable) == 0x12)
    var address = LESetRandomAddress()
    address.randomAddress = DeviceAddress(0xC0_0000_0000_01)
    #expect(lab.status(0, address) == 0)
    #expect(lab.status(0, enable) == 0)
  }

  @Test func parametersOutOfRange() {
    var lab = Lab(hosts: 1)
    var advertising = LESetAdvertisingParameters()
    advertising.advertisingIntervalMin = AdvertisingInterval(rawValue: 0x1F)
    #expect(lab.status(0, advertising) == 0x12)
    advertising = LESetAdvertisingParameters()
    advertising.advertisingChannelMap = 0
    #expect(lab.status(0, advertising) == 0x12)
    var scan = LESetScanParameters()
    scan.leScanWindow = ScanInterval(rawValue: 0x20)
    #expect(lab.status(0, scan) == 0x12)
    var create = Lab.creation(to: Lab.address(1))
    create.connectionIntervalMin = ConnectionInterval(rawValue: 5)
    #expect(lab.status(0, create) == 0x12)
    create = Lab.creation(to: Lab.address(1), interval: 3200, timeout: 800)
    #expect(lab.status(0, create) == 0x12, "the time-out must be longer than two intervals")
    #expect(lab.status(0, Lab.creation(to: Lab.address(1), interval: 3200, timeout: 801)) == 0)
  }

  @Test func stateErrors() {
    var lab = Lab(hosts: 2)
    #expect(lab.status(0, LECreateConnectionCancel()) == 0x0C)
    let none = ConnectionHandle(rawValue: 0)
    #expect(lab.status(0, Disconnect.with { $0.connectionHandle = none }) == 0x02)
    #expect(lab.status(0, LEReadRemoteFeatures.with { $0.connectionHandle = none }) == 0x02)
    #expect(lab.status(0, LESetDataLength.with { $0.connectionHandle = none }) == 0x02)
    #expect(lab.status(0, LELongTermKeyRequestNegativeReply.with { $0.connectionHandle = none }) == 0x02)
    #expect(lab.status(0, Lab.creation(to: Lab.address(1))) == 0)
    #expect(lab.status(0, Lab.creation(to: Lab.address(1))) == 0x0C)
    #expect(lab.status(0, LECreateConnectionCancel()) == 0)
    let (handle, _) = lab.connect(0, 1)
    #expect(lab.status(0, Lab.creation(to: Lab.address(1))) == 0x0B)
    let negative = LELongTermKeyRequestNegativeReply.with { $0.connectionHandle = ConnectionHandle(rawValue: handle) }
    #expect(lab.status(0, negative) == 0x0C)
    let disconnect = Disconnect.with {
      $0.connectionHandle = ConnectionHandle(rawValue: handle)
      $0.reason = 0x08
    }
    #expect(lab.status(0, disconnect) == 0x12)
  }

  @Test func theNumberOfLinksIsLimited() {
    var small = ControllerConfiguration(address: Lab.address(0))
    small.maximumConnections = 1
    var lab = Lab(.ideal, [small, ControllerConfiguration(address: Lab.address(1))])
    _ = lab.connect(0, 1)
    #expect(lab.status(0, Lab.creation(to: Lab.address(7))) == 0x09)
    #expect(lab.status(0, LESetAdvertisingParameters()) == 0)
    let enable = LESetAdvertisingEnable.with { $0.advertisingEnable = true }
    #expect(lab.status(0, enable) == 0x09)
  }

  @Test func creditsCanComeLate() {
    var slow = ControllerConfiguration(address: Lab.address(0))
    slow.commandCreditDelay = .milliseconds(3)
    var lab = Lab(.ideal, [slow])
    lab.run(20)
    _ = lab.packets(0)
    lab.send(0, "01 01 10 00")
    lab.run(1)
    #expect(lab.hexes(0) == ["04 0E 0C 00 01 10 00 0D 00 00 0D FF FF 00 00"])
    lab.run(1)
    #expect(lab.hexes(0) == [])
    lab.run(2)
    #expect(lab.hexes(0) == ["04 0E 03 01 00 00"])
  }
  /// Two commands at once, and a separate event with the credit of each: a host that obeys the numbers never exceeds
  /// the controller's limit.
  @Test func creditsThatComeLateComeOneByOne() {
    var slow = ControllerConfiguration(address: Lab.address(0))
    slow.commandCreditDelay = .milliseconds(3)
    slow.commandCredits = 2
    var lab = Lab(.ideal, [slow])
    lab.run(20)
    _ = lab.packets(0)
    lab.send(0, "01 09 10 00")
    lab.run(1)
    lab.send(0, "01 09 10 00")
    lab.run(1)
    _ = lab.packets(0)
    lab.run(10)
    #expect(lab.hexes(0) == ["04 0E 03 01 00 00", "04 0E 03 01 00 00"])
  }

  @Test func aHostThatDoesNotWaitIsCounted() {
    var lab = Lab(hosts: 1)
    let before = lab.world.air.faults(of: ControllerID(0)).commandsWithoutCredit
    lab.send(0, "01 01 10 00")
    lab.send(0, "01 09 10 00")
    lab.run(1)
    #expect(lab.packets(0).count == 2)
    #expect(lab.world.air.faults(of: ControllerID(0)).commandsWithoutCredit == before + 1)
  }

  @Test func someCommandsAreNeverAnswered() {
    var mute = ControllerConfiguration(address: Lab.address(0))
    mute.unansweredCommands = [ReadBDADDR.opcode]
    var lab = Lab(.ideal, [mute])
    lab.send(0, "01 09 10 00")
    lab.run(5000)
    #expect(lab.hexes(0) == [])
  }

  @Test func answersTakeTime() {
    var air = AirConfiguration.ideal
    air.commandLatency = .milliseconds(5)
    var lab = Lab(air, [ControllerConfiguration(address: Lab.address(0))])
    lab.run(20)
    _ = lab.packets(0)
    lab.send(0, "01 03 0C 00")
    lab.run(4)
    #expect(lab.hexes(0) == [])
    lab.run(1)
    #expect(lab.hexes(0) == ["04 0E 04 01 03 0C 00"])
  }

  @Test func legacyControllerHasNoExtendedCommands() {
    var lab = Lab(.ideal, [.legacy(address: Lab.address(0))])
    #expect(lab.status(0, LESetExtendedScanParameters()) == 0x01)
    #expect(lab.status(0, LEReadMaximumDataLength()) == 0x01)
    #expect(lab.status(0, LESetScanParameters()) == 0)
  }
}
