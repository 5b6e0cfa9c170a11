import BindruneWire

// The signaling commands of channels that open on a link.

/// L2CAP_DISCONNECTION_REQ. Vol 3, Part A, §4.6. Fixed channels cannot be disconnected.
public struct DisconnectionRequest: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x06 }
  public static var name: StaticString { "L2CAP_DISCONNECTION_REQ" }
  public static var section: StaticString { "Vol 3, Part A, §4.6" }
  /// The channel's number at the receiver.
  public var destinationCID = ChannelID()
  /// The channel's number at the sender.
  public var sourceCID = ChannelID()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Destination CID", &destinationCID)
    try visit.value("Source CID", &sourceCID)
  }
}

/// L2CAP_DISCONNECTION_RSP. Vol 3, Part A, §4.7. Both numbers are those of the request, in its order.
public struct DisconnectionResponse: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x07 }
  public static var name: StaticString { "L2CAP_DISCONNECTION_RSP" }
  public static var section: StaticString { "Vol 3, Part A, §4.7" }
  /// The channel's number at the sender of this response.
  public var destinationCID = ChannelID()
  /// The channel's number at the device that asked.
  public var sourceCID = ChannelID()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Destination CID", &destinationCID)
    try visit.value("Source CID", &sourceCID)
  }
}

/// L2CAP_LE_CREDIT_BASED_CONNECTION_REQ. Vol 3, Part A, §4.22.
public struct LECreditBasedConnectionRequest: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x14 }
  public static var name: StaticString { "L2CAP_LE_CREDIT_BASED_CONNECTION_REQ" }
  public static var section: StaticString { "Vol 3, Part A, §4.22" }
  public var spsm = SPSM()
  /// The channel's number at the sender.
  public var sourceCID = ChannelID()
  /// The longest SDU that the sender accepts: at least 23 octets.
  public var mtu: UInt16 = 23
  /// The longest payload of a K-frame that the sender accepts: 23 … 65,533 octets.
  public var mps: UInt16 = 23
  /// K-frames that the receiver may send before it gets more credits.
  public var initialCredits: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("SPSM", &spsm)
    try visit.value("Source CID", &sourceCID)
    try visit.value("MTU", &mtu)
    try visit.value("MPS", &mps)
    try visit.value("Initial Credits", &initialCredits)
  }
}

/// L2CAP_LE_CREDIT_BASED_CONNECTION_RSP. Vol 3, Part A, §4.23. The other fields have no meaning if it refuses.
public struct LECreditBasedConnectionResponse: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x15 }
  public static var name: StaticString { "L2CAP_LE_CREDIT_BASED_CONNECTION_RSP" }
  public static var section: StaticString { "Vol 3, Part A, §4.23" }
  /// The channel's number at the sender.
  public var destinationCID = ChannelID()
  public var mtu: UInt16 = 0
  public var mps: UInt16 = 0
  public var initialCredits: UInt16 = 0
  public var result = ChannelResult.success
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Destination CID", &destinationCID)
    try visit.value("MTU", &mtu)
    try visit.value("MPS", &mps)
    try visit.value("Initial Credits", &initialCredits)
    try visit.value("Result", &result)
  }
}

/// L2CAP_FLOW_CONTROL_CREDIT_IND. Vol 3, Part A, §4.24.
public struct FlowControlCreditIndication: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x16 }
  public static var name: StaticString { "L2CAP_FLOW_CONTROL_CREDIT_IND" }
  public static var section: StaticString { "Vol 3, Part A, §4.24" }
  /// The channel's number at the sender.
  public var cid = ChannelID()
  /// K-frames that the receiver may send in addition: 1 … 65,535.
  public var credits: UInt16 = 1
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("CID", &cid)
    try visit.value("Credits", &credits)
  }
}

/// L2CAP_CREDIT_BASED_CONNECTION_REQ. Vol 3, Part A, §4.25: one to five channels with the same parameters.
public struct CreditBasedConnectionRequest: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x17 }
  public static var name: StaticString { "L2CAP_CREDIT_BASED_CONNECTION_REQ" }
  public static var section: StaticString { "Vol 3, Part A, §4.25" }
  public var spsm = SPSM()
  /// At least 64 octets.
  public var mtu: UInt16 = 64
  /// 64 … 65,533 octets.
  public var mps: UInt16 = 64
  /// Of each channel: 1 … 65,535.
  public var initialCredits: UInt16 = 1
  /// The channels' numbers at the sender.
  public var sourceCIDs = WireList<ChannelID>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("SPSM", &spsm)
    try visit.value("MTU", &mtu)
    try visit.value("MPS", &mps)
    try visit.value("Initial Credits", &initialCredits)
    try visit.list("Source CID", &sourceCIDs)
  }
}

/// L2CAP_CREDIT_BASED_CONNECTION_RSP. Vol 3, Part A, §4.26.
public struct CreditBasedConnectionResponse: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x18 }
  public static var name: StaticString { "L2CAP_CREDIT_BASED_CONNECTION_RSP" }
  public static var section: StaticString { "Vol 3, Part A, §4.26" }
  public var mtu: UInt16 = 0
  public var mps: UInt16 = 0
  public var initialCredits: UInt16 = 0
  public var result = ChannelResult.success
  /// The channels' numbers at the sender, in the order of the request; 0 for one that is refused.
  public var destinationCIDs = WireList<ChannelID>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("MTU", &mtu)
    try visit.value("MPS", &mps)
    try visit.value("Initial Credits", &initialCredits)
    try visit.value("Result", &result)
    try visit.list("Destination CID", &destinationCIDs, .each(minimum: 0))
  }
}

/// L2CAP_CREDIT_BASED_RECONFIGURE_REQ. Vol 3, Part A, §4.27: what the sender accepts on one to five of its channels.
public struct CreditBasedReconfigureRequest: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x19 }
  public static var name: StaticString { "L2CAP_CREDIT_BASED_RECONFIGURE_REQ" }
  public static var section: StaticString { "Vol 3, Part A, §4.27" }
  /// At least 64 octets, and no less than before.
  public var mtu: UInt16 = 64
  /// 64 … 65,533 octets; less than before only for a single channel.
  public var mps: UInt16 = 64
  /// The channels' numbers at the sender, which is the destination of the K-frames concerned.
  public var destinationCIDs = WireList<ChannelID>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("MTU", &mtu)
    try visit.value("MPS", &mps)
    try visit.list("Destination CID", &destinationCIDs)
  }
}

/// L2CAP_CREDIT_BASED_RECONFIGURE_RSP. Vol 3, Part A, §4.28. All channels of the request are changed, or none is.
public struct CreditBasedReconfigureResponse: L2CAPSignal {
  @inlinable public static var code: SignalCode { 0x1A }
  public static var name: StaticString { "L2CAP_CREDIT_BASED_RECONFIGURE_RSP" }
  public static var section: StaticString { "Vol 3, Part A, §4.28" }
  public var result = ReconfigureResult.success
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Result", &result)
  }
}

/// Simplified Protocol/Service Multiplexer: the protocol or service of a credit-based channel. Vol 3, Part A, §4.22.
public struct SPSM: OpenNumber, Hashable {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  /// Enhanced bearers of the Attribute Protocol. Vol 3, Part G, §5.4.
  @inlinable public static var eatt: SPSM { SPSM(rawValue: 0x0027) }
  /// Those of LE: Vol 3, Part A, §4.22.
  @inlinable public static var all: ClosedRange<UInt16> { 0x0001...0x00FF }
  /// Those that the Bluetooth SIG assigns.
  @inlinable public static var assigned: ClosedRange<UInt16> { 0x0001...0x007F }
  /// Those that a device assigns to its own services.
  @inlinable public static var dynamic: ClosedRange<UInt16> { 0x0080...0x00FF }
}

/// The answer to a request for channels. Vol 3, Part A, §4.23, §4.26.
public struct ChannelResult: OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable public static var success: ChannelResult { ChannelResult(rawValue: 0x0000) }
  @inlinable public static var spsmNotSupported: ChannelResult { ChannelResult(rawValue: 0x0002) }
  /// Of an enhanced request, only the channels whose destination is 0 are refused.
  @inlinable public static var noResources: ChannelResult { ChannelResult(rawValue: 0x0004) }
  @inlinable public static var insufficientAuthentication: ChannelResult { ChannelResult(rawValue: 0x0005) }
  @inlinable public static var insufficientAuthorization: ChannelResult { ChannelResult(rawValue: 0x0006) }
  @inlinable public static var encryptionKeySizeTooShort: ChannelResult { ChannelResult(rawValue: 0x0007) }
  @inlinable public static var insufficientEncryption: ChannelResult { ChannelResult(rawValue: 0x0008) }
  /// As `noResources`.
  @inlinable public static var invalidSourceCID: ChannelResult { ChannelResult(rawValue: 0x0009) }
  /// As `noResources`.
  @inlinable public static var sourceCIDAlreadyAllocated: ChannelResult { ChannelResult(rawValue: 0x000A) }
  @inlinable public static var unacceptableParameters: ChannelResult { ChannelResult(rawValue: 0x000B) }
  /// The next three: only of an enhanced request.
  @inlinable public static var invalidParameters: ChannelResult { ChannelResult(rawValue: 0x000C) }
  @inlinable public static var pending: ChannelResult { ChannelResult(rawValue: 0x000D) }
  @inlinable public static var authenticationPending: ChannelResult { ChannelResult(rawValue: 0x000E) }
  @inlinable public static var authorizationPending: ChannelResult { ChannelResult(rawValue: 0x000F) }

  /// Another response follows.
  @inlinable public var isPending: Bool { (0x000D...0x000F).contains(rawValue) }
}

/// The answer to a request for other parameters of channels. Vol 3, Part A, §4.28.
public struct ReconfigureResult: OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable public static var success: ReconfigureResult { ReconfigureResult(rawValue: 0x0000) }
  @inlinable public static var mtuReduced: ReconfigureResult { ReconfigureResult(rawValue: 0x0001) }
  /// The MPS would be less than before, and the request names several channels.
  @inlinable public static var mpsReduced: ReconfigureResult { ReconfigureResult(rawValue: 0x0002) }
  @inlinable public static var invalidDestinationCID: ReconfigureResult { ReconfigureResult(rawValue: 0x0003) }
  @inlinable public static var unacceptableParameters: ReconfigureResult { ReconfigureResult(rawValue: 0x0004) }
}
