import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Which commands a controller has, by Table 3.1 of Vol 4, Part E, §3.1, the column for LE.
///
/// The conditions are those of the Specification for a controller that advertises, scans, initiates and has links in
/// both roles, as all of ours do: C.1, C.2, C.3, C.15, C.36, C.59, C.62, C.94, C.97 and C.98 make their commands
/// mandatory.
@Suite struct CommandRequirementTests {
  enum Requirement {
    case mandatory, optional
    /// Mandatory with one of these features, otherwise excluded.
    case with(LEFeatures)
    /// Mandatory with one of these features, otherwise optional.
    case withElseOptional(LEFeatures)
    /// Optional with this feature, otherwise excluded.
    case onlyWith(LEFeatures)

    /// Whether a controller with these features may have the command, or lack it.
    func allows(_ isThere: Bool, with features: LEFeatures) -> Bool {
      switch self {
      case .mandatory: isThere
      case .optional: true
      case .with(let feature): isThere == !features.isDisjoint(with: feature)
      case .withElseOptional(let feature): isThere || features.isDisjoint(with: feature)
      case .onlyWith(let feature): !isThere || !features.isDisjoint(with: feature)
      }
    }
  }
  struct Row {
    let opcode: UInt16, octet: UInt8, bit: UInt8, name: String, requirement: Requirement
    init(_ opcode: UInt16, _ octet: UInt8, _ bit: UInt8, _ name: String, _ requirement: Requirement) {
      (self.opcode, self.octet, self.bit) = (opcode, octet, bit)
      (self.name, self.requirement) = (name, requirement)
    }
    var place: SupportedCommandBit { SupportedCommandBit(octet, bit) }
  }
  static let phys: LEFeatures = [.le2MPHY, .leCodedPHY]
  /// Place in Supported_Commands by §6.27. Commands of features that no controller here supports are left out: their
  /// bits must be clear, like all others.
  static let table = [
    Row(0x0406, 0, 5, "Disconnect", .mandatory),  // C.3
    Row(0x041D, 2, 7, "Read Remote Version Information", .mandatory),  // C.3
    Row(0x0C01, 5, 6, "Set Event Mask", .mandatory),
    Row(0x0C03, 5, 7, "Reset", .mandatory),
    Row(0x0C2D, 10, 2, "Read Transmit Power Level", .mandatory),  // C.3
    Row(0x0C31, 10, 5, "Set Controller To Host Flow Control", .optional),  // C.96
    Row(0x0C33, 10, 6, "Host Buffer Size", .mandatory),  // C.107: with the one before
    Row(0x0C35, 10, 7, "Host Number Of Completed Packets", .mandatory),  // C.107
    Row(0x0C63, 22, 2, "Set Event Mask Page 2", .optional),  // C.145
    Row(0x0C7B, 32, 4, "Read Authenticated Payload Timeout", .with(.lePing)),  // C.5
    Row(0x0C7C, 32, 5, "Write Authenticated Payload Timeout", .with(.lePing)),  // C.5
    Row(0x1001, 14, 3, "Read Local Version Information", .mandatory),
    Row(0x1003, 14, 5, "Read Local Supported Features", .mandatory),
    Row(0x1009, 15, 1, "Read BD_ADDR", .mandatory),
    Row(0x1405, 15, 5, "Read RSSI", .mandatory),  // C.3
    Row(0x2001, 25, 0, "LE Set Event Mask", .mandatory),
    Row(0x2002, 25, 1, "LE Read Buffer Size [v1]", .mandatory),  // C.3
    Row(0x2003, 25, 2, "LE Read Local Supported Features", .mandatory),
    Row(0x2005, 25, 4, "LE Set Random Address", .mandatory),  // C.1
    Row(0x2006, 25, 5, "LE Set Advertising Parameters", .mandatory),  // C.97
    Row(0x2007, 25, 6, "LE Read Advertising Physical Channel Tx Power", .mandatory),  // C.97
    Row(0x2008, 25, 7, "LE Set Advertising Data", .mandatory),  // C.97
    Row(0x2009, 26, 0, "LE Set Scan Response Data", .mandatory),  // C.15
    Row(0x200A, 26, 1, "LE Set Advertising Enable", .mandatory),  // C.97
    Row(0x200B, 26, 2, "LE Set Scan Parameters", .mandatory),  // C.98
    Row(0x200C, 26, 3, "LE Set Scan Enable", .mandatory),  // C.98
    Row(0x200D, 26, 4, "LE Create Connection", .mandatory),  // C.59
    Row(0x200E, 26, 5, "LE Create Connection Cancel", .mandatory),  // C.94
    Row(0x200F, 26, 6, "LE Read Filter Accept List Size", .mandatory),
    Row(0x2010, 26, 7, "LE Clear Filter Accept List", .mandatory),
    Row(0x2011, 27, 0, "LE Add Device To Filter Accept List", .mandatory),
    Row(0x2012, 27, 1, "LE Remove Device From Filter Accept List", .mandatory),
    Row(0x2013, 27, 2, "LE Connection Update", .mandatory),  // C.62
    Row(0x2014, 27, 3, "LE Set Host Channel Classification", .mandatory),  // C.36
    Row(0x2015, 27, 4, "LE Read Channel Map", .mandatory),  // C.3
    Row(0x2016, 27, 5, "LE Read Remote Features", .mandatory),  // C.3
    Row(0x2017, 27, 6, "LE Encrypt", .with(.leEncryption)),  // C.4
    Row(0x2018, 27, 7, "LE Rand", .with(.leEncryption)),  // C.4
    Row(0x2019, 28, 0, "LE Enable Encryption", .with(.leEncryption)),  // C.60
    Row(0x201A, 28, 1, "LE Long Term Key Request Reply", .with(.leEncryption)),  // C.61
    Row(0x201B, 28, 2, "LE Long Term Key Request Negative Reply", .with(.leEncryption)),  // C.61
    Row(0x201C, 28, 3, "LE Read Supported States", .mandatory),
    Row(0x201D, 28, 4, "LE Receiver Test [v1]", .mandatory),  // C.2
    Row(0x201E, 28, 5, "LE Transmitter Test [v1]", .mandatory),  // C.1
    Row(0x201F, 28, 6, "LE Test End", .mandatory),
    Row(
      // C.6
      0x2020, 33, 4, "LE Remote Connection Parameter Request Reply", .with(.connectionParametersRequestProcedure)),
    Row(
      0x2021, 33, 5, "LE Remote Connection Parameter Request Negative Reply",
      .with(.connectionParametersRequestProcedure)),  // C.6
    Row(0x2022, 33, 6, "LE Set Data Length", .withElseOptional(.leDataPacketLengthExtension)),  // C.8
    // C.8
    Row(0x2023, 33, 7, "LE Read Suggested Default Data Length", .withElseOptional(.leDataPacketLengthExtension)),
    // C.8
    Row(0x2024, 34, 0, "LE Write Suggested Default Data Length", .withElseOptional(.leDataPacketLengthExtension)),
    Row(0x2027, 34, 3, "LE Add Device To Resolving List", .with(.llPrivacy)),  // C.9
    Row(0x2028, 34, 4, "LE Remove Device From Resolving List", .with(.llPrivacy)),  // C.9
    Row(0x2029, 34, 5, "LE Clear Resolving List", .with(.llPrivacy)),  // C.9
    Row(0x202A, 34, 6, "LE Read Resolving List Size", .with(.llPrivacy)),  // C.9
    Row(0x202B, 34, 7, "LE Read Peer Resolvable Address", .onlyWith(.llPrivacy)),  // C.10
    Row(0x202C, 35, 0, "LE Read Local Resolvable Address", .onlyWith(.llPrivacy)),  // C.10
    Row(0x202D, 35, 1, "LE Set Address Resolution Enable", .with(.llPrivacy)),  // C.9
    Row(0x202E, 35, 2, "LE Set Resolvable Private Address Timeout", .with(.llPrivacy)),  // C.9
    Row(0x202F, 35, 3, "LE Read Maximum Data Length", .withElseOptional(.leDataPacketLengthExtension)),  // C.8
    Row(0x2030, 35, 4, "LE Read PHY", .withElseOptional(phys)),  // C.11
    Row(0x2031, 35, 5, "LE Set Default PHY", .withElseOptional(phys)),  // C.11
    Row(0x2032, 35, 6, "LE Set PHY", .withElseOptional(phys)),  // C.11
    Row(0x2033, 35, 7, "LE Receiver Test [v2]", .withElseOptional(phys)),  // C.13
    Row(0x2034, 36, 0, "LE Transmitter Test [v2]", .withElseOptional(phys)),  // C.12
    Row(0x2035, 36, 1, "LE Set Advertising Set Random Address", .with(.leExtendedAdvertising)),  // C.17
    Row(0x2036, 36, 2, "LE Set Extended Advertising Parameters [v1]", .with(.leExtendedAdvertising)),  // C.17
    Row(0x2037, 36, 3, "LE Set Extended Advertising Data", .with(.leExtendedAdvertising)),  // C.17
    Row(0x2038, 36, 4, "LE Set Extended Scan Response Data", .with(.leExtendedAdvertising)),  // C.17
    Row(0x2039, 36, 5, "LE Set Extended Advertising Enable", .with(.leExtendedAdvertising)),  // C.17
    Row(0x203A, 36, 6, "LE Read Maximum Advertising Data Length", .with(.leExtendedAdvertising)),  // C.17
    Row(0x203B, 36, 7, "LE Read Number of Supported Advertising Sets", .with(.leExtendedAdvertising)),  // C.17
    Row(0x203C, 37, 0, "LE Remove Advertising Set", .with(.leExtendedAdvertising)),  // C.17
    Row(0x203D, 37, 1, "LE Clear Advertising Sets", .with(.leExtendedAdvertising)),  // C.17
    Row(0x2041, 37, 5, "LE Set Extended Scan Parameters", .with(.leExtendedAdvertising)),  // C.19
    Row(0x2042, 37, 6, "LE Set Extended Scan Enable", .with(.leExtendedAdvertising)),  // C.19
    Row(0x2043, 37, 7, "LE Extended Create Connection [v1]", .with(.leExtendedAdvertising)),  // C.20
    // C.22: mandatory with transmit power in advertisements, which is in the extended header.
    Row(0x204C, 39, 0, "LE Read RF Path Compensation", .withElseOptional(.leExtendedAdvertising)),
    Row(0x204D, 39, 1, "LE Write RF Path Compensation", .withElseOptional(.leExtendedAdvertising)),
    Row(0x204E, 39, 2, "LE Set Privacy Mode", .with(.llPrivacy)),  // C.9
    Row(0x2060, 41, 5, "LE Read Buffer Size [v2]", .optional),  // C.55
    Row(0x2088, 47, 3, "LE Read All Remote Features", .withElseOptional(.llExtendedFeatureSet)),  // C.71
  ]

  /// The usual kinds, and each feature with commands on and off.
  static var configurations: [ControllerConfiguration] {
    let base = ControllerConfiguration()
    var all = [base, .legacy()]
    for feature: LEFeatures in [
      .connectionParametersRequestProcedure, .leDataPacketLengthExtension, .leExtendedAdvertising, .le2MPHY,
      .leCodedPHY, .lePing, [.leEncryption, .lePing],
      // C.63 makes an event of the extended filter policies mandatory with LL Privacy, and excludes it without.
      [.llPrivacy, .extendedScannerFilterPolicies],
    ] {
      var other = base
      other.features.formSymmetricDifference(feature)
      all.append(other)
    }
    var bare = base
    bare.features = []
    return all + [bare]
  }

  @Test(arguments: Self.configurations) func featuresAndCommandsAgree(configuration: ControllerConfiguration) {
    var configuration = configuration
    configuration.address = Lab.address(0)
    let features = configuration.features
    var lab = Lab(.ideal, [configuration])
    lab.send(0, "01 03 20 00")
    lab.run(1)
    #expect(lab.packets(0).first?.dropFirst(7) == Self.octets(of: features.rawValue)[...], "LE_Features")
    var supported = Self.supportedCommands(&lab)
    let all = supported
    for row in Self.table {
      let isSupported = supported[row.place]
      supported[row.place] = false
      #expect(row.requirement.allows(isSupported, with: features), "\(row.name)")
    }
    for octet in 0..<64 as Range<UInt8> {
      for bit in 0..<8 as Range<UInt8> { #expect(!supported[SupportedCommandBit(octet, bit)], "\(octet), \(bit)") }
    }
    Self.expectAnswers(&lab, all)
  }
  /// A controller answers every opcode whose bit is set with another status than Unknown HCI Command, and no others.
  private static func expectAnswers(_ lab: inout Lab, _ supported: SupportedCommands) {
    let places = Dictionary(uniqueKeysWithValues: table.map { ($0.opcode, $0.place) })
    for group: UInt16 in [0x0400, 0x0800, 0x0C00, 0x1000, 0x1400, 0x1800, 0x2000, 0xFC00] {
      for opcode in group..<group + 0x100 where opcode != Reset.opcode.rawValue {
        // Too long for any command: refused for its length, or as unknown.
        lab.send(0, [1, UInt8(opcode & 0xFF), UInt8(opcode >> 8), 80] + [UInt8](repeating: 0, count: 80))
        lab.run(1)
        let packet = lab.packets(0).first ?? []
        let status = packet.count < 4 ? 0xFF : packet[1] == 0x0F ? packet[3] : packet[6]
        // Read Local Supported Commands has no bit of its own.
        let isKnown = opcode == 0x1002 || places[opcode].map { supported[$0] } ?? false
        #expect(status == (isKnown ? 0x12 : 0x01), "\(opcode)")
      }
    }
  }
  private static func supportedCommands(_ lab: inout Lab) -> SupportedCommands {
    lab.send(0, "01 02 10 00")
    lab.run(1)
    let answer = lab.packets(0).first ?? []
    #expect(answer.count == 71)
    return SupportedCommands(Octets(7, 64), in: answer.span)
  }
  private static func octets(of number: UInt64) -> [UInt8] {
    (0..<8).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
  }

  /// The bits in the table equal those of the commands' types.
  @Test func placesAgreeWithTheCommands() {
    for row in Self.table {
      guard let command = AnyCommand(default: HCIOpcode(rawValue: row.opcode)) else { continue }
      #expect(command.supportedBit == row.place, "\(row.name)")
    }
  }

  /// The commands that hosts send at their start regardless of Supported_Commands; all others depend on it.
  @Test(arguments: [
    // Linux 6.1, hci_sync.c.
    """
    01 03 0C 00, 01 03 10 00, 01 01 10 00, 01 09 10 00, 01 02 10 00, 01 03 20 00, 01 02 20 00, 01 1C 20 00, 01 01 0C \
    08 90 E8 04 02 00 80 00 20, 01 01 20 08 1F 00 00 00 00 00 00 00
    """,
    // Zephyr 3.7, hci_core.c, with its entropy pool from LE Rand and flow control towards it.
    """
    01 03 0C 00, 01 03 10 00, 01 01 10 00, 01 02 10 00, 01 33 0C 07 45 00 00 03 00 00 00, 01 31 0C 01 01, 01 03 20 00, \
    01 02 20 00, 01 1C 20 00, 01 01 20 08 1F 00 00 00 00 00 00 00, 01 01 0C 08 10 88 00 02 00 80 00 20, 01 18 20 00, \
    01 18 20 00, 01 18 20 00, 01 18 20 00, 01 18 20 00, 01 18 20 00, 01 18 20 00, 01 18 20 00, 01 09 10 00
    """,
    // NimBLE 1.7, ble_hs_startup.c and ble_hs_hci.c.
    """
    01 03 0C 00, 01 01 10 00, 01 02 10 00, 01 03 10 00, 01 03 20 00, 01 01 0C 08 90 80 00 02 00 80 00 20, 01 63 0C 08 \
    00 00 80 00 00 00 00 00, 01 01 20 08 1F 02 00 00 00 00 00 00, 01 02 20 00, 01 09 10 00, 01 18 20 00, 01 05 20 06 \
    66 55 44 33 22 C1
    """,
    // BTstack 1.6, hci.c, with flow control towards it.
    """
    01 03 0C 00, 01 01 10 00, 01 02 10 00, 01 09 10 00, 01 03 10 00, 01 33 0C 07 FB 00 00 04 00 00 00, 01 31 0C 01 01, \
    01 01 0C 08 FF FF FF FF FF FF FF 3D, 01 02 20 00, 01 01 20 08 FF 0F 00 00 00 00 00 00, 01 2F 20 00, 01 24 20 04 FB \
    00 48 08, 01 0F 20 00, 01 18 20 00
    """,
    // Bumble 0.0.236, host.py.
    """
    01 03 0C 00, 01 02 10 00, 01 03 20 00, 01 01 10 00, 01 01 0C 08 FF FF FF FF FF FF FF 3F, 01 01 20 08 FF FF 1F 00 \
    00 00 00 00, 01 60 20 00, 01 23 20 00, 01 24 20 04 FB 00 48 08, 01 09 10 00
    """,
  ])
  func hostsStart(commands: String) {
    var lab = Lab(hosts: 1)
    for command in commands.split(separator: ", ") {
      let packet = TestSupport.octets(String(command))
      lab.send(0, packet)
      lab.run(1)
      let answer = lab.packets(0).first ?? []
      #expect(answer.count > 6 && answer[1] == 0x0E && Array(answer[4...5]) == Array(packet[1...2]), "\(command)")
      #expect(answer.count > 6 && answer[6] == 0, "\(command): \(hex(answer))")
    }
  }
}
