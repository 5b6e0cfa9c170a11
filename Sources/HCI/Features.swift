import BindruneWire

/// The features of a controller's link layer. Vol 6, Part B, §4.6; the higher bits survive unnamed.
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
}

/// Page 0 of the LMP features. Vol 2, Part C, §3.3; only those that an LE host uses are named.
public struct LMPFeatures: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
  public static var brEDRNotSupported: LMPFeatures { LMPFeatures(rawValue: 1 << 37) }
  public static var leSupported: LMPFeatures { LMPFeatures(rawValue: 1 << 38) }
}

/// Which events the controller sends. Vol 4, Part E, §7.3.1: bit n is, for the older events, event code n + 1.
public struct EventMask: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
  @inlinable init(bit: UInt64) { rawValue = 1 << bit }
  public static var disconnectionComplete: EventMask { EventMask(bit: 4) }
  public static var encryptionChange: EventMask { EventMask(bit: 7) }
  public static var readRemoteVersionInformationComplete: EventMask { EventMask(bit: 11) }
  public static var hardwareError: EventMask { EventMask(bit: 15) }
  public static var dataBufferOverflow: EventMask { EventMask(bit: 25) }
  public static var encryptionKeyRefreshComplete: EventMask { EventMask(bit: 47) }
  public static var leMeta: EventMask { EventMask(bit: 61) }
  /// Command Complete, Command Status and Number Of Completed Packets cannot be masked and their bits are reserved, but
  /// on in the default mask; a controller that evaluates them nevertheless must not leave the host without credits.
  public static var unmaskable: EventMask { EventMask(rawValue: 1 << 13 | 1 << 14 | 1 << 18) }
  /// The events that this stack uses.
  public static var standard: EventMask {
    [
      .disconnectionComplete, .encryptionChange, .readRemoteVersionInformationComplete, .hardwareError,
      .dataBufferOverflow, .encryptionKeyRefreshComplete, .leMeta, .unmaskable,
    ]
  }
}

/// Which of the later events the controller sends. Vol 4, Part E, §7.3.69.
public struct EventMaskPage2: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
  @inlinable init(bit: UInt64) { rawValue = 1 << bit }
  public static var authenticatedPayloadTimeoutExpired: EventMaskPage2 { EventMaskPage2(bit: 23) }
  /// Encryption Change [v2], which the controller then sends in place of [v1].
  public static var encryptionChangeV2: EventMaskPage2 { EventMaskPage2(bit: 25) }
}

/// Which LE Meta events the controller sends. Vol 4, Part E, §7.8.1: bit n is subevent code n + 1.
public struct LEEventMask: OpenNumber, OptionSet {
  public var rawValue: UInt64
  @inlinable @inline(__always) public init(rawValue: UInt64) { self.rawValue = rawValue }
  @inlinable init(bit: UInt64) { rawValue = 1 << bit }
  public static var connectionComplete: LEEventMask { LEEventMask(bit: 0) }
  public static var advertisingReport: LEEventMask { LEEventMask(bit: 1) }
  public static var connectionUpdateComplete: LEEventMask { LEEventMask(bit: 2) }
  public static var readRemoteFeaturesComplete: LEEventMask { LEEventMask(bit: 3) }
  public static var longTermKeyRequest: LEEventMask { LEEventMask(bit: 4) }
  public static var remoteConnectionParameterRequest: LEEventMask { LEEventMask(bit: 5) }
  public static var dataLengthChange: LEEventMask { LEEventMask(bit: 6) }
  public static var enhancedConnectionComplete: LEEventMask { LEEventMask(bit: 9) }
  public static var directedAdvertisingReport: LEEventMask { LEEventMask(bit: 10) }
  public static var phyUpdateComplete: LEEventMask { LEEventMask(bit: 11) }
  public static var extendedAdvertisingReport: LEEventMask { LEEventMask(bit: 12) }
  public static var scanTimeout: LEEventMask { LEEventMask(bit: 16) }
  public static var advertisingSetTerminated: LEEventMask { LEEventMask(bit: 17) }
  public static var scanRequestReceived: LEEventMask { LEEventMask(bit: 18) }
  /// The events of every LE controller; the value after a reset.
  public static var standard: LEEventMask {
    [
      .connectionComplete, .advertisingReport, .connectionUpdateComplete, .readRemoteFeaturesComplete,
      .longTermKeyRequest,
    ]
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
