import BindruneWire

/// Page 0 of the features of a controller's link layer. Vol 6, Part B, §4.6; bits without a name survive.
public struct LEFeatures: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
  @inlinable init(bit: UInt64) { rawValue = 1 << bit }
  public static var leEncryption: LEFeatures { LEFeatures(bit: 0) }
  public static var connectionParametersRequestProcedure: LEFeatures { LEFeatures(bit: 1) }
  public static var extendedRejectIndication: LEFeatures { LEFeatures(bit: 2) }
  public static var peripheralInitiatedFeaturesExchange: LEFeatures { LEFeatures(bit: 3) }
  public static var lePing: LEFeatures { LEFeatures(bit: 4) }
  public static var leDataPacketLengthExtension: LEFeatures { LEFeatures(bit: 5) }
  public static var llPrivacy: LEFeatures { LEFeatures(bit: 6) }
  public static var extendedScannerFilterPolicies: LEFeatures { LEFeatures(bit: 7) }
  public static var le2MPHY: LEFeatures { LEFeatures(bit: 8) }
  public static var leCodedPHY: LEFeatures { LEFeatures(bit: 11) }
  public static var leExtendedAdvertising: LEFeatures { LEFeatures(bit: 12) }
  public static var lePeriodicAdvertising: LEFeatures { LEFeatures(bit: 13) }
  public static var channelSelectionAlgorithm2: LEFeatures { LEFeatures(bit: 14) }
  /// There are pages after this one.
  public static var llExtendedFeatureSet: LEFeatures { LEFeatures(bit: 63) }

  /// The pages after page 0, and the octets in each of them.
  @inlinable public static var furtherPages: UInt8 { 10 }
  @inlinable public static var octetsOfFurtherPage: Int { 24 }
  @inlinable public static var octetsOfAllPages: Int { width + Int(furtherPages) * octetsOfFurtherPage }
}

/// Page 0 of the LMP features. Vol 2, Part C, §3.3; only those that an LE host uses are named.
public struct LMPFeatures: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
  public static var brEDRNotSupported: LMPFeatures { LMPFeatures(rawValue: 1 << 37) }
  public static var leSupported: LMPFeatures { LMPFeatures(rawValue: 1 << 38) }
}

/// What a controller must have so that it has a command or sends an event. Vol 4, Part E, §3.1, Table 3.1.
public struct HCIRequirement: BitwiseCopyable, Sendable {
  private enum Other: BitwiseCopyable, Sendable { case nothing, brEDR, filterAcceptList }
  private var features = LEFeatures(), alternatives = LEFeatures(), version = CoreVersion(), other = Other.nothing

  public static var nothing: HCIRequirement { HCIRequirement() }
  /// Each of these features; the commands or events of a later edition also the version of HCI.
  public static func features(_ features: LEFeatures, since version: CoreVersion = CoreVersion()) -> HCIRequirement {
    HCIRequirement(features: features, version: version)
  }
  /// At least one of these features.
  public static func oneFeature(of alternatives: LEFeatures) -> HCIRequirement {
    HCIRequirement(alternatives: alternatives)
  }
  /// This version of HCI or a later one.
  public static func version(_ version: CoreVersion) -> HCIRequirement { HCIRequirement(version: version) }
  /// BR/EDR, or buffers that it would share.
  public static var brEDR: HCIRequirement { HCIRequirement(other: .brEDR) }
  /// A Filter Accept List with entries.
  public static var filterAcceptList: HCIRequirement { HCIRequirement(other: .filterAcceptList) }

  /// Whether a controller with these properties meets it.
  public func isMet(
    by features: LEFeatures, _ version: CoreVersion, hasBREDR: Bool = true, hasFilterAcceptList: Bool = true
  ) -> Bool {
    guard features.isSuperset(of: self.features), version >= self.version else { return false }
    if !alternatives.isEmpty, features.isDisjoint(with: alternatives) { return false }
    return switch other {
    case .nothing: true
    case .brEDR: hasBREDR
    case .filterAcceptList: hasFilterAcceptList
    }
  }
}

/// Which events the controller sends. Vol 4, Part E, §7.3.1: bit n is event code n + 1.
public struct EventMask: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
  @inlinable init(bit: UInt64) { rawValue = 1 << bit }
  public static var leMeta: EventMask { EventMask(bit: 61) }
  /// Command Complete, Command Status and Number Of Completed Packets cannot be masked and their bits are reserved, but
  /// on in the default mask; a controller that evaluates them nevertheless must not leave the host without credits.
  public static var unmaskable: EventMask { [.commandComplete, .commandStatus, .numberOfCompletedPackets] }
  /// The events that this stack uses.
  public static var standard: EventMask { UsedEvents().page1 }
}

/// Which of the later events the controller sends. Vol 4, Part E, §7.3.69: bit n is event code n + 64. It sends
/// Encryption Change [v2] in place of [v1].
public struct EventMaskPage2: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
  @inlinable init(bit: UInt64) { rawValue = 1 << bit }
}

/// Which LE Meta events the controller sends. Vol 4, Part E, §7.8.1: bit n is subevent code n + 1.
public struct LEEventMask: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
  @inlinable init(bit: UInt64) { rawValue = 1 << bit }
  /// The events of every LE controller; the value after a reset.
  public static var standard: LEEventMask {
    [
      .connectionComplete, .advertisingReport, .connectionUpdateComplete, .readRemoteFeaturesComplete,
      .longTermKeyRequest,
    ]
  }
}

/// The masks of the events that this stack uses, of those that a controller can send.
struct UsedEvents: EventVisitor {
  private(set) var page1: EventMask = [], page2: EventMaskPage2 = [], le: LEEventMask = []
  private let features: LEFeatures, version: CoreVersion
  init(_ features: LEFeatures = LEFeatures(rawValue: .max), _ version: CoreVersion = CoreVersion(rawValue: .max)) {
    (self.features, self.version) = (features, version)
    do throws(WireError) { try HCIEvent.each(&self) } catch {}
  }
  mutating func visitEvent<E: HCIEventMessage>(_: E) {
    guard E.isUsed, E.requirement.isMet(by: features, version) else { return }
    switch EventMaskBit(E.self) {
    case .page1(let bit): page1.insert(bit)
    case .page2(let bit): page2.insert(bit)
    case .le(let bit):
      page1.insert(.leMeta)
      le.insert(bit)
    case .none: break
    }
  }
}
/// The bit that masks an event.
public enum EventMaskBit: BitwiseCopyable, Sendable {
  case page1(EventMask), page2(EventMaskPage2), le(LEEventMask)
  /// Vendor-specific, or without a bit.
  case none
  public init<E: HCIEventMessage>(_: E.Type) {
    self =
      if let subevent = E.subevent { .le(LEEventMask(bit: UInt64(subevent - 1))) } else {
        switch E.code {
        case 1...64: .page1(EventMask(bit: UInt64(E.code - 1)))
        case 65..<128: .page2(EventMaskPage2(bit: UInt64(E.code - 64)))
        default: .none
        }
      }
  }
}

/// The position of a command in the Supported_Commands bit map. Vol 4, Part E, §6.27.
public struct SupportedCommandBit: BitwiseCopyable, Sendable, Equatable {
  public var octet: UInt8, bit: UInt8
  @inlinable public init(_ octet: UInt8, _ bit: UInt8) {
    self.octet = octet
    self.bit = bit
  }
}

/// The 64 octets that Read Local Supported Commands returns. Vol 4, Part E, §6.27.
public struct SupportedCommands: BitwiseCopyable, Sendable {
  private var words: [8 of UInt64] = .init(repeating: 0)
  /// No command.
  public init() {}
  /// The first 64 octets of `bits`; missing ones are zero.
  public init(_ bits: Octets, in packet: Span<UInt8>) {
    for i in 0..<min(64, Int(bits.count)) { words[i / 8] |= UInt64(bits.byte(i, in: packet)) << UInt64(i % 8 * 8) }
  }
  public subscript(bit: SupportedCommandBit) -> Bool {
    get { words[Int(bit.octet & 63) / 8] >> UInt64(bit.octet % 8 * 8 + bit.bit) & 1 == 1 }
    set {
      let mask: UInt64 = 1 << UInt64(bit.octet % 8 * 8 + bit.bit), index = Int(bit.octet & 63) / 8
      words[index] = newValue ? words[index] | mask : words[index] & ~mask
    }
  }
  /// A command without a bit counts as supported: it is mandatory.
  public func contains<C: HCICommand>(_: C.Type) -> Bool { C.supportedBit.map { self[$0] } ?? true }
  /// False for an opcode that this stack does not support.
  public func contains(_ opcode: HCIOpcode) -> Bool {
    guard let command = AnyCommand(default: opcode) else { return false }
    return command.supportedBit.map { self[$0] } ?? true
  }
  /// Appends the 64 octets, as a controller returns them. The caller guarantees room (traps otherwise).
  public func write(into output: inout OutputRawSpan) {
    for i in 0..<8 { output.append(littleEndian: words[i]) }
  }
}
