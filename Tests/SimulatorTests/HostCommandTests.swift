import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Commands that foreign hosts use: random numbers, encryption, states, channels, power, tests.
@Suite struct HostCommandTests {
  @Test func chanceIsSeeded() {
    func numbers(_ seed: UInt64) -> [[UInt8]] {
      var lab = Lab(seed: seed, hosts: 2)
      return (0..<16).map { Array(lab.ask($0 % 2, "01 18 20 00").dropFirst(6)) }
    }
    let first = numbers(3)
    #expect(first.allSatisfy { $0.count == 9 && $0[0] == 0 } && Set(first).count == 16)
    #expect(first == numbers(3) && first != numbers(4))
  }
  /// LTK, SKD and session key of the sample data in Vol 6, Part C, §1.
  @Test func encrypting() {
    var lab = Lab(hosts: 1)
    let answer = lab.ask(
      0,
      "01 17 20 20 BF 01 FB 9D 4E F3 BC 36 D8 74 F5 39 41 38 68 4C 13 02 F1 E0 DF CE BD AC 79 68 57 46 35 24 13 02")
    #expect(hex(answer) == "04 0E 14 01 17 20 00 66 C6 C2 27 8E 3B 8E 05 3E 7E A3 26 52 1B AD 99")
  }

  // MARK: LE Read Supported States

  enum State: CustomStringConvertible {
    case advertising(AdvertisingType), scanning(ScanType), initiating, central, peripheral
    var description: String {
      switch self {
      case .advertising(let type): type.text
      case .scanning(let type): type.text
      case .initiating: "initiating"
      case .central: "central"
      case .peripheral: "peripheral"
      }
    }
  }
  /// The table of Vol 4, Part E, §7.8.27, line n for bit n: one state, or two at a time.
  private static let states: [[State]] = {
    let broadcasting: [State] = [.advertising(.nonConnectableUndirected), .advertising(.scannableUndirected)]
    let connectable: [State] = [
      .advertising(.connectableScannableUndirected), .advertising(.connectableDirectedHighDutyCycle),
    ]
    let low = State.advertising(.connectableDirectedLowDutyCycle)
    let passive = State.scanning(.passive), active = State.scanning(.active)
    var lines: [[State]] = (broadcasting + connectable + [passive, active, .initiating, .peripheral]).map { [$0] }
    for scan in [passive, active] { lines += (broadcasting + connectable).map { [$0, scan] } }
    for other in [State.initiating, .central, .peripheral] { lines += broadcasting.map { [$0, other] } }
    for other in [State.initiating, .central, .peripheral] { lines += [passive, active].map { [$0, other] } }
    lines.append([.initiating, .central])
    lines += [[low], [low, passive], [low, active]]
    for other in [State.initiating, .central, .peripheral] { lines += (connectable + [low]).map { [$0, other] } }
    lines.append([.initiating, .peripheral])
    return lines
  }()
  /// The controller can do what it reports: the test makes the links first, then enters both states.
  @Test(arguments: [1, 2, 8]) func supportedStates(links: Int) {
    var configuration = ControllerConfiguration(address: Lab.address(0))
    configuration.maximumConnections = links
    #expect(Self.states.count == 42)
    var possible: UInt64 = 0
    for (bit, line) in Self.states.enumerated() {
      var lab = Lab(.ideal, [configuration, ControllerConfiguration(address: Lab.address(1))])
      for state in line {
        if case .central = state { _ = lab.connect(0, 1) }
        if case .peripheral = state { _ = lab.connect(1, 0) }
      }
      if line.allSatisfy({ lab.enter($0) }) { possible |= 1 << UInt64(bit) }
    }
    var lab = Lab(.ideal, [configuration])
    let answer = lab.ask(0, "01 1C 20 00")
    #expect(answer.dropFirst(7).reversed().reduce(0) { $0 << 8 | UInt64($1) } == possible)
    #expect(possible == (links > 1 ? 0x3FF_FFFF_FFFF : 0x007_EFFF_FFFF))
  }
  // MARK: Channels and power

  @Test(arguments: 0..<2) func channelMaps(air: Int) {
    var lab = Lab(LinkTests.airs[air], hosts: 2)
    #expect(hex(lab.ask(0, "01 14 20 05 00 00 00 00 00")) == "04 0E 04 01 14 20 12")
    #expect(hex(lab.ask(0, "01 14 20 05 FE FF FF FF FF")) == "04 0E 04 01 14 20 00", "reserved bits")
    _ = lab.connect(0, 1)
    let read = "01 15 20 02 01 00"
    for host in 0..<2 { #expect(hex(lab.ask(host, read)) == "04 0E 0B 01 15 20 00 01 00 FE FF FF FF 1F") }
    // The central's host decides for an existing link; the peripheral's does not.
    #expect(hex(lab.ask(0, "01 14 20 05 FF 01 00 00 00")) == "04 0E 04 01 14 20 00")
    #expect(hex(lab.ask(1, "01 14 20 05 00 00 00 00 03")) == "04 0E 04 01 14 20 00")
    lab.run(200)
    for host in 0..<2 { #expect(hex(lab.ask(host, read)) == "04 0E 0B 01 15 20 00 01 00 FF 01 00 00 00") }
    // One channel, all that the host permits, is too few for a link: the controller uses others as well.
    #expect(hex(lab.ask(0, "01 14 20 05 01 00 00 00 00")) == "04 0E 04 01 14 20 00")
    lab.run(200)
    #expect(hex(lab.ask(0, read)) == "04 0E 0B 01 15 20 00 01 00 FF FF FF FF 1F")
    #expect(lab.ask(0, "01 15 20 02 09 00").dropFirst(6).first == 0x02)
  }
  @Test func transmitPower() {
    var strong = ControllerConfiguration(address: Lab.address(0))
    strong.transmitPower = 8
    var lab = Lab(.ideal, [strong, ControllerConfiguration(address: Lab.address(1))])
    _ = lab.connect(0, 1)
    for type in ["00", "01"] {
      #expect(hex(lab.ask(0, "01 2D 0C 03 01 00 \(type)")) == "04 0E 07 01 2D 0C 00 01 00 08")
    }
    #expect(lab.ask(0, "01 2D 0C 03 02 00 00").dropFirst(6).first == 0x02)
    #expect(lab.ask(0, "01 2D 0C 03 01 00 02").dropFirst(6).first == 0x12)
  }
  /// The compensation is added to the radiated power, and subtracted from the RSSI. Vol 4, Part E, §7.8.76.
  @Test func pathCompensation() {
    var lab = Lab(hosts: 2)
    #expect(hex(lab.ask(0, "01 4C 20 00")) == "04 0E 08 01 4C 20 00 00 00 00 00")
    #expect(lab.ask(0, "01 4D 20 04 01 05 00 00").dropFirst(6).first == 0x12, "128.1 dB")
    for host in 0..<2 { #expect(lab.ask(host, "01 4D 20 04 1E 00 14 00").dropFirst(6).first == 0) }
    #expect(hex(lab.ask(0, "01 4C 20 00")) == "04 0E 08 01 4C 20 00 1E 00 14 00")
    // A set that includes its power: 0 dBm, and 3 dB more; at a tenth of a metre −20 dBm arrive, and 2 dB were added.
    _ = lab.ask(0, "01 36 20 19 01 40 00 20 00 00 20 00 00 07 00 00 00 00 00 00 00 00 00 7F 01 00 01 05 00")
    _ = lab.ask(0, "01 39 20 06 01 01 01 00 00 00")
    lab.command(1, LESetExtendedScanParameters())
    let enable = LESetExtendedScanEnable.with { $0.enable = true }
    lab.command(1, enable)
    lab.run(50)
    let report = lab.packets(1).first { $0[1] == 0x3E } ?? []
    #expect(report.count > 18 && report[17] == 3 && Int8(bitPattern: report[18]) == -22, "\(hex(report))")
    #expect(lab.status(0, Reset()) == 0)
    #expect(hex(lab.ask(0, "01 4C 20 00")) == "04 0E 08 01 4C 20 00 00 00 00 00")
  }

  // MARK: Direct test mode

  /// 37 octets on LE 1M are 376 µs on the air: one packet every 625 µs. Vol 6, Part F, §4.1.6.
  @Test(arguments: [0.0, 0.25, 1.0]) func aTestIsCounted(loss: Double) {
    var air = AirConfiguration.ideal
    air.loss = loss
    var lab = Lab(air, hosts: 4)
    #expect(lab.ask(0, "01 1D 20 01 13").dropFirst(6).first == 0)
    #expect(lab.ask(2, "01 1D 20 01 14").dropFirst(6).first == 0, "another channel")
    lab.run(20)
    #expect(lab.ask(1, "01 1E 20 03 13 25 00").dropFirst(6).first == 0)
    lab.run(624)
    // A transmitter reports no count.
    #expect(hex(lab.ask(1, "01 1F 20 00")) == "04 0E 06 01 1F 20 00 00 00")
    lab.run(500)
    let answer = lab.ask(0, "01 1F 20 00"), counted = Int(answer[7]) | Int(answer[8]) << 8
    #expect(counted == Int(1000 * (1 - loss)), "625 ms of 625 µs each")
    #expect(hex(lab.ask(2, "01 1F 20 00")) == "04 0E 06 01 1F 20 00 00 00")
    #expect(lab.ask(2, "01 1F 20 00").dropFirst(6).first == 0x0C, "no test")
  }
  /// The packets of a transmitter that continues, is reset, or is removed count while it transmits.
  @Test(arguments: 0..<3) func aTestWithoutAnEnd(how: Int) {
    var lab = Lab(hosts: 2)
    #expect(lab.ask(0, "01 1D 20 01 27").dropFirst(6).first == 0)
    #expect(lab.ask(1, "01 1E 20 03 27 00 07").dropFirst(6).first == 0)
    lab.run(624)
    if how == 1 { lab.send(1, "01 03 0C 00") }
    if how == 2 { lab.world.removeController(of: 1) }
    if how > 0 { lab.run(1000) }
    let answer = lab.ask(0, "01 1F 20 00"), counted = Int(answer[7]) | Int(answer[8]) << 8
    #expect((998...1000).contains(counted))
  }
  @Test func invalidTests() {
    var coded = ControllerConfiguration(address: Lab.address(0))
    coded.features.insert(.leCodedPHY)
    var lab = Lab(.ideal, [coded])
    for (command, status) in [
      ("01 1D 20 01 28", 0x12), ("01 1E 20 03 28 00 00", 0x12), ("01 1E 20 03 00 00 08", 0x12),
      ("01 33 20 03 00 04 00", 0x12), ("01 33 20 03 00 01 02", 0x12), ("01 33 20 03 00 00 00", 0x12),
      ("01 34 20 04 00 00 00 05", 0x12), ("01 33 20 03 00 02 00", 0x11), ("01 34 20 04 00 00 00 02", 0x11),
      ("01 34 20 04 00 00 00 04", 0x00), ("01 1D 20 01 00", 0x0C), ("01 1F 20 00", 0x00),
    ] as [(String, UInt8)] {
      #expect(lab.ask(0, command).dropFirst(6).first == status, "\(command)")
    }
    lab.scan(0)
    lab.run(1)
    #expect(lab.ask(0, "01 1D 20 01 00").dropFirst(6).first == 0x0C, "not in standby")
  }
}

extension Lab {
  /// Sends a command, and returns the Command Complete that comes at once.
  fileprivate mutating func ask(_ host: Int, _ command: String) -> [UInt8] {
    _ = packets(host)
    send(host, command)
    run(1)
    return packets(host).first { $0[1] == 0x0E } ?? []
  }
  /// Host 0 goes into a state; false when its controller refuses.
  fileprivate mutating func enter(_ state: HostCommandTests.State) -> Bool {
    switch state {
    case .advertising(let type):
      let parameters = LESetAdvertisingParameters.with {
        $0.advertisingType = type
        $0.peerAddress = Lab.address(5)
      }
      let enable = LESetAdvertisingEnable.with { $0.advertisingEnable = true }
      return status(0, parameters) == 0 && status(0, enable) == 0
    case .scanning(let type):
      let parameters = LESetScanParameters.with { $0.leScanType = type }
      let enable = LESetScanEnable.with { $0.leScanEnable = true }
      return status(0, parameters) == 0 && status(0, enable) == 0
    case .initiating: return status(0, Lab.creation(to: Lab.address(6))) == 0
    case .central, .peripheral: return world.air.linkCount(of: ControllerID(0)) == 1
    }
  }

}
