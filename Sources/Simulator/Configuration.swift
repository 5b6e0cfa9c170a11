import BindruneWire
import HCI

/// A controller on one `Air`.
public struct ControllerID: BitwiseCopyable, Sendable, Hashable, Comparable, CustomStringConvertible {
  /// Counted from zero, never given twice.
  public let number: Int
  /// Where the air keeps the controller. The place of one that has gone is used again.
  let index: Int
  /// The controller of that number on an air from which none has gone.
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
  /// Data moves when it is handed over, there are no connection events, and nothing that is in reach is ever lost once a
  /// link exists. Advertising keeps its intervals.
  public var isInstant = false
  /// Probability that one packet on the air is not received, 0 … 1. On a link it is sent again at the next chance.
  public var loss = 0.0
  /// The upper end of advDelay, which is added to every advertising interval. Vol 6, Part B, §4.4.2.2.1: 10 ms.
  public var advertisingDelay = Duration.milliseconds(10)
  /// Whether two answers to the same advertisement disturb each other, so that only one of them is heard.
  public var collides = true
  /// What a receiver can just hear, in dBm. Vol 6, Part A, §4.1 asks for −70; real ones reach −95.
  public var sensitivity: Int8 = -95
  /// RSSI differs from packet to packet by up to this many dB.
  public var fading: UInt8 = 3
  /// From the answer or the data being known in the controller to its host getting it: shortest and longest.
  public var delivery: ClosedRange<Duration> = .zero ... .zero
  /// Data packets in each direction in one connection event; what fits into the interval where this is `nil`.
  public var packetsPerEvent: Int?
  /// How long a controller takes for a command.
  public var commandLatency = Duration.zero

  public init() {}
  /// No loss, no delay, no chance: data is at the other host's controller before `receive` returns.
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

/// What kind of controller it is.
public struct ControllerConfiguration: Sendable {
  /// BD_ADDR; zero for a controller that has none.
  public var address: DeviceAddress
  public var position = Position()
  /// HCI_Version and LMP_Version (Assigned Numbers §2.1): 0x08 is 4.2, 0x0D is 5.4.
  public var version = CoreVersion(rawValue: 0x0D)
  /// Company_Identifier. 0xFFFF is nobody's.
  public var companyIdentifier = CompanyIdentifier(rawValue: 0xFFFF)
  /// LE features (Vol 6, Part B, §4.6); they decide which commands there are (Vol 4, Part E, §3.1).
  ///
  /// LE Encryption is not among those of `init`, because links do not encrypt yet. A test may claim it: then a peripheral's
  /// host is asked for its key, and can say that it has none.
  public var features: LEFeatures
  /// Octets in one ACL data packet, both ways: 27 … 65,535.
  public var aclDataLength: UInt16 = 251
  /// ACL data packets the controller holds for all links together.
  public var aclBufferCount: UInt8 = 8
  /// LE data goes through the buffers of BR/EDR: LE Read Buffer Size says 0 (Vol 4, Part E, §7.8.2).
  public var sharesBuffers = false
  /// A dual-mode controller as far as an LE host looks at it: Write LE Host Support and Read Buffer Size exist, the other
  /// commands of BR/EDR do not.
  public var isDualMode = false
  /// Supported maximum of data octets in one packet on the air, 27 … 251.
  public var maximumDataOctets: UInt16 = 251
  /// Entries of the Filter Accept List; 0: it has none, nor its commands.
  public var filterAcceptListSize: UInt8 = 8
  /// Links it can have at once.
  public var maximumConnections = 8
  /// Entries of the resolving list, where LL Privacy is among the features.
  public var resolvingListSize = 8
  /// Num_HCI_Command_Packets in every answer.
  public var commandCredits: UInt8 = 1
  /// When set, answers carry no command credit, and it comes this much later, alone.
  public var commandCreditDelay: Duration?
  /// Radiated power in dBm.
  public var transmitPower: Int8 = 0
  /// Advertising sets it can have at once. Vol 4, Part E, §7.8.58.
  public var advertisingSets = 8
  /// Commands it never answers, as some controllers do.
  public var unansweredCommands: [HCIOpcode] = []
  /// Commands it does not know although it could.
  public var unknownCommands: [HCIOpcode] = []
  /// HCI Reset ends links with LL_TERMINATE_IND, so that the peer sees 0x13 at once, instead of falling silent, so that the
  /// peer's supervision time-out ends them with 0x08. Vol 4, Part E, §7.3.2 allows both.
  public var terminatesOnReset = true
  /// Octets for its host that the controller holds; beyond that data stays unacknowledged on the air and reports are dropped.
  public var hostBacklog = 1 << 16

  /// A Bluetooth 5.4 controller.
  public init(address: DeviceAddress = DeviceAddress()) {
    self.address = address
    features = [
      .connectionParametersRequestProcedure, .extendedRejectIndication,
      .peripheralInitiatedFeaturesExchange, .leDataPacketLengthExtension, .llPrivacy, .extendedScannerFilterPolicies,
      .leExtendedAdvertising,
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
