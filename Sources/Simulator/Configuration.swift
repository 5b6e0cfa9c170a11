import BindruneWire
import BindruneHCI

/// A controller on one `Air`.
public struct ControllerID: BitwiseCopyable, Sendable, Hashable, Comparable, CustomStringConvertible {
  /// From zero, never reused.
  public let number: Int
  /// The controller's index in the air, which is reused after its removal.
  let index: Int
  /// The controller with this number, on an air from which none has been removed.
  public init(_ number: Int) { self.init(number: number, index: number) }
  init(number: Int, index: Int) {
    self.number = number
    self.index = index
  }
  public static func < (a: ControllerID, b: ControllerID) -> Bool { a.number < b.number }
  public var description: String { "controller \(number)" }
}

/// How the air between controllers behaves.
public struct AirConfiguration: Sendable {
  /// Data moves immediately, without connection events, and nothing within reach is lost once a link exists.
  /// Advertising keeps its intervals.
  public var isInstant = false
  /// The probability that one packet on the air is not received, 0 … 1. On a link it is repeated.
  public var loss = 0.0
  /// The upper end of advDelay, which is added to every advertising interval. Vol 6, Part B, §4.4.2.2.1: 10 ms.
  public var advertisingDelay = Duration.milliseconds(10)
  /// Whether simultaneous answers to one advertisement collide, so that only one of them is heard.
  public var collides = true
  /// The weakest signal that a receiver can hear, in dBm. Vol 6, Part A, §4.1 requires −70; real ones reach −95.
  public var sensitivity: Int8 = -95
  /// RSSI differs from packet to packet by up to this many dB.
  public var fading: UInt8 = 3
  /// The delay from a controller to its host, for answers and data: shortest and longest.
  public var delivery: ClosedRange<Duration> = .zero ... .zero
  /// Data packets in each direction in one connection event; `nil`: as many as fit into the interval.
  public var packetsPerEvent: Int?
  /// The time that a controller takes for a command.
  public var commandLatency = Duration.zero

  public init() {}
  /// No loss, no delay, nothing random: data reaches the other host's controller before `receive` returns.
  public static var ideal: AirConfiguration {
    var air = AirConfiguration()
    air.isInstant = true
    air.advertisingDelay = .zero
    air.collides = false
    air.fading = 0
    return air
  }
  /// A quiet room: connection events, one packet in a hundred lost, half a millisecond for a command.
  public static var realistic: AirConfiguration {
    var air = AirConfiguration()
    air.loss = 0.01
    air.delivery = .microseconds(100) ... .microseconds(400)
    air.commandLatency = .microseconds(500)
    return air
  }
}

/// The properties of a controller.
public struct ControllerConfiguration: Sendable {
  /// BD_ADDR; zero for a controller without one.
  public var address: DeviceAddress
  public var position = Position()
  /// HCI_Version and LMP_Version (Assigned Numbers §2.1): 0x08 is 4.2, 0x0D is 5.4.
  public var version = CoreVersion(rawValue: 0x0D)
  /// Company_Identifier. 0xFFFF is unassigned.
  public var companyIdentifier = CompanyIdentifier(rawValue: 0xFFFF)
  /// LE features (Vol 6, Part B, §4.6); they determine the commands (Vol 4, Part E, §3.1).
  public var features: LEFeatures
  /// The pages of features after page 0, 24 octets each, with `.llExtendedFeatureSet`: at most ten.
  public var furtherFeatures: [UInt8] = []
  /// Octets in one ACL data packet, both ways: 27 … 65,535.
  public var aclDataLength: UInt16 = 251
  /// ACL data packets the controller holds for all links together.
  public var aclBufferCount: UInt8 = 8
  /// LE data uses the buffers of BR/EDR: LE Read Buffer Size returns 0 (Vol 4, Part E, §7.8.2).
  public var sharesBuffers = false
  /// A dual-mode controller from an LE host's point of view: Write LE Host Support and Read Buffer Size exist, the
  /// other commands of BR/EDR do not.
  public var isDualMode = false
  /// Supported maximum of data octets in one packet on the air, 27 … 251.
  public var maximumDataOctets: UInt16 = 251
  /// Entries of the Filter Accept List; 0: neither the list nor its commands exist.
  public var filterAcceptListSize: UInt8 = 8
  /// The maximum number of links.
  public var maximumConnections = 8
  /// Entries of the resolving list, if LL Privacy is among the features.
  public var resolvingListSize = 8
  /// Num_HCI_Command_Packets in every answer.
  public var commandCredits: UInt8 = 1
  /// If set, answers carry no command credit, which follows after this time in an event of its own.
  public var commandCreditDelay: Duration?
  /// Radiated power in dBm.
  public var transmitPower: Int8 = 0
  /// The maximum number of advertising sets. Vol 4, Part E, §7.8.58.
  public var advertisingSets = 8
  /// Commands that it never answers, as on some controllers.
  public var unansweredCommands: [HCIOpcode] = []
  /// Commands that it lacks although it could support them.
  public var unknownCommands: [HCIOpcode] = []
  /// HCI Reset ends links with LL_TERMINATE_IND, so that the peer sees 0x13 at once; otherwise the controller becomes
  /// silent, and the peer's supervision time-out ends them with 0x08. Vol 4, Part E, §7.3.2 allows both.
  public var terminatesOnReset = true
  /// Octets that the controller keeps for its host; beyond it, data stays unacknowledged on the air and reports are
  /// dropped.
  public var hostBacklog = 1 << 16

  /// A Bluetooth 5.4 controller.
  public init(address: DeviceAddress = DeviceAddress()) {
    self.address = address
    features = [
      .leEncryption, .connectionParametersRequestProcedure, .extendedRejectIndication,
      .peripheralInitiatedFeaturesExchange, .lePing, .leDataPacketLengthExtension, .llPrivacy,
      .extendedScannerFilterPolicies, .leExtendedAdvertising,
    ]
  }
  /// A Bluetooth 4.2 controller: 27-octet packets, legacy commands only, no resolving list.
  public static func legacy(address: DeviceAddress = DeviceAddress()) -> ControllerConfiguration {
    var controller = ControllerConfiguration(address: address)
    controller.version = CoreVersion(rawValue: 0x08)
    controller.features.subtract([
      .leDataPacketLengthExtension, .llPrivacy, .extendedScannerFilterPolicies, .leExtendedAdvertising,
    ])
    controller.aclDataLength = 27
    controller.maximumDataOctets = 27
    return controller
  }
}
