import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Which events a controller sends, by Table 3.1 of Vol 4, Part E, §3.1, the column for LE.
@Suite struct EventRequirementTests {
  struct Event: Hashable { let code: UInt8, subevent: UInt8? }
  struct Row {
    let event: Event, name: String, requirement: CommandRequirementTests.Requirement
    init(_ code: UInt8, _ name: String, _ requirement: CommandRequirementTests.Requirement) {
      (event, self.name, self.requirement) = (Event(code: code, subevent: nil), name, requirement)
    }
    init(le subevent: UInt8, _ name: String, _ requirement: CommandRequirementTests.Requirement) {
      (event, self.name, self.requirement) = (Event(code: 0x3E, subevent: subevent), name, requirement)
    }
  }
  /// Events of features that no controller here supports are left out: like all others, they must not occur.
  static let table = [
    Row(0x05, "Disconnection Complete", .mandatory),  // C.3
    Row(0x08, "Encryption Change [v1]", .with(.leEncryption)),  // C.4
    Row(0x0C, "Read Remote Version Information Complete", .mandatory),  // C.3
    Row(0x0E, "Command Complete", .mandatory),
    Row(0x0F, "Command Status", .mandatory),
    Row(0x10, "Hardware Error", .optional),
    Row(0x13, "Number Of Completed Packets", .mandatory),  // C.3
    Row(0x1A, "Data Buffer Overflow", .optional),
    Row(0x30, "Encryption Key Refresh Complete", .with(.leEncryption)),  // C.4
    Row(0x57, "Authenticated Payload Timeout Expired", .with(.lePing)),  // C.5
    Row(0x59, "Encryption Change [v2]", .onlyWith(.leEncryption)),
    Row(le: 0x01, "LE Connection Complete", .mandatory),  // C.3
    Row(le: 0x02, "LE Advertising Report", .mandatory),  // C.98
    Row(le: 0x03, "LE Connection Update Complete", .mandatory),  // C.3
    Row(le: 0x04, "LE Read Remote Features Complete", .mandatory),  // C.3
    Row(le: 0x05, "LE Long Term Key Request", .with(.leEncryption)),  // C.61
    // C.6
    Row(le: 0x06, "LE Remote Connection Parameter Request", .with(.connectionParametersRequestProcedure)),
    Row(le: 0x07, "LE Data Length Change", .withElseOptional(.leDataPacketLengthExtension)),  // C.8
    // C.24
    Row(le: 0x0A, "LE Enhanced Connection Complete [v1]", .withElseOptional([.llPrivacy, .leExtendedAdvertising])),
    Row(le: 0x0B, "LE Directed Advertising Report", .with(.llPrivacy)),  // C.63
    Row(le: 0x0C, "LE PHY Update Complete", .withElseOptional(CommandRequirementTests.phys)),  // C.11
    Row(le: 0x0D, "LE Extended Advertising Report", .with(.leExtendedAdvertising)),  // C.19
    Row(le: 0x11, "LE Scan Timeout", .with(.leExtendedAdvertising)),  // C.19
    Row(le: 0x12, "LE Advertising Set Terminated", .with(.leExtendedAdvertising)),  // C.17
    Row(le: 0x13, "LE Scan Request Received", .with(.leExtendedAdvertising)),  // C.17
    Row(le: 0x14, "LE Channel Selection Algorithm", .with(.channelSelectionAlgorithm2)),  // C.23
    Row(le: 0x2B, "LE Read All Remote Features Complete", .withElseOptional(.llExtendedFeatureSet)),  // C.72
  ]

  /// Two controllers of one kind do everything that causes events. They refuse commands that they lack, without an
  /// event.
  @Test(arguments: CommandRequirementTests.configurations)
  func featuresAndEventsAgree(configuration: ControllerConfiguration) {
    let pair = (0..<2).map { host in
      var controller = configuration
      controller.address = Lab.address(host)
      return controller
    }
    var lab = Lab(.ideal, pair), seen: Set<Event> = []
    Self.scanLegacy(&lab, &seen)
    Self.connect(&lab, &seen)
    // Vol 4, Part E, §3.1.1: extended commands only after a reset.
    for host in 0..<2 {
      for command in ["01 03 0C 00", "01 01 0C 08 FF FF FF FF FF FF FF 3F", "01 01 20 08 FF FF 1F 00 00 00 00 00"] {
        lab.send(host, command)
      }
    }
    Self.scanExtended(&lab, &seen)
    for row in Self.table {
      #expect(
        row.requirement.allows(seen.remove(row.event) != nil, with: configuration.features), "\(row.name)")
    }
    #expect(seen.isEmpty)
  }
  private static func note(_ lab: inout Lab, _ seen: inout Set<Event>) {
    for packet in (0..<2).flatMap({ lab.packets($0) }) where packet[0] == 4 {
      seen.insert(Event(code: packet[1], subevent: packet[1] == 0x3E ? packet[3] : nil))
    }
  }
  /// Legacy advertising, and then directed advertising at an unresolvable address.
  private static func scanLegacy(_ lab: inout Lab, _ seen: inout Set<Event>) {
    lab.advertise(0)
    lab.scan(1)
    lab.run(50)
    lab.enableAdvertising(0, false)
    lab.command(1, LESetScanEnable())
    lab.run(1)
    lab.advertise(0, .connectableDirectedLowDutyCycle) {
      $0.peerAddressType = .random
      $0.peerAddress = ResolvingListTests.resolvable
    }
    var parameters = LESetScanParameters(), enable = LESetScanEnable()
    parameters.scanningFilterPolicy = .extendedUnfiltered
    enable.leScanEnable = true
    lab.command(1, parameters)
    lab.command(1, enable)
    lab.run(50)
    lab.enableAdvertising(0, false)
    lab.command(1, LESetScanEnable())
    lab.run(1)
    note(&lab, &seen)
  }
  /// A link for each of the two connection events and of the two versions of Encryption Change, and every procedure of
  /// a link.
  private static func connect(_ lab: inout Lab, _ seen: inout Set<Event>) {
    for (mask, page2) in [("FD", "00"), ("FF", "02")] {
      for host in 0..<2 {
        lab.send(host, "01 01 20 08 FF \(mask) 1F 00 00 00 00 00")
        lab.send(host, "01 63 0C 08 00 00 80 \(page2) 00 00 00 00")
      }
      lab.advertise(0)
      lab.command(1, Lab.creation(to: Lab.address(0)))
      lab.run(500)
      let packets = lab.packets(1), central = octets(of: Lab.handle(packets))
      let own = lab.packets(0), peripheral = octets(of: Lab.handle(own))
      for packet in packets + own where packet[1] == 0x3E { seen.insert(Event(code: 0x3E, subevent: packet[3])) }
      lab.send(1, "02 \(central) 05 00 01 00 04 00 0A")
      for command in [
        // Read Remote Version Information, LE Read Remote Features, LE Connection Update
        "01 1D 04 02 \(central)", "01 16 20 02 \(central)",
        "01 13 20 0E \(central) 0A 00 0A 00 00 00 64 00 00 00 00 00",
        // LE Set Data Length, LE Set PHY
        "01 22 20 06 \(central) 50 00 10 05", "01 32 20 07 \(central) 00 02 02 00 00",
        "01 32 20 07 \(central) 00 04 04 00 00",
      ] {
        lab.send(1, command)
        lab.run(100)
      }
      // Encryption, twice, and a silence longer than Write Authenticated Payload Timeout allows.
      for _ in 0..<2 {
        lab.send(1, "01 19 20 1C \(central)" + String(repeating: " 00", count: 26))
        lab.run(100)
        lab.send(0, "01 1A 20 12 \(peripheral)" + String(repeating: " 00", count: 16))
        lab.run(100)
      }
      lab.send(1, "01 7C 0C 04 \(central) 0A 00")
      lab.run(10)
      lab.world.separate(0, 1)
      lab.run(300)
      lab.world.reunite(0, 1)
      lab.run(100)
      lab.send(0, "01 13 20 0E \(peripheral) 10 00 10 00 00 00 64 00 00 00 00 00")
      lab.run(100)
      lab.send(1, "01 06 04 03 \(central) 13")
      lab.run(100)
      note(&lab, &seen)
    }
  }
  private static func octets(of handle: UInt16) -> String {
    hex([UInt8(truncatingIfNeeded: handle), UInt8(handle >> 8)])
  }
  /// A scannable set for half a second that reports scan requests, and a scan of 100 ms.
  private static func scanExtended(_ lab: inout Lab, _ seen: inout Set<Event>) {
    for command in [
      "01 36 20 19 01 02 00 20 00 00 20 00 00 07 00 00 00 00 00 00 00 00 00 7F 01 00 01 05 01",
      "01 38 20 06 01 03 01 02 01 09", "01 39 20 06 01 01 01 32 00 00",
    ] { lab.send(0, command) }
    for command in ["01 41 20 08 00 00 01 01 10 00 10 00", "01 42 20 06 01 00 0A 00 00 00"] { lab.send(1, command) }
    lab.run(1000)
    note(&lab, &seen)
  }
}
