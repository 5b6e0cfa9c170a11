import BindruneWire
import BindruneHCI

/// A PDU in Basic L2CAP mode (B-frame), the only one of the fixed channels. Vol 3, Part A, §3.1. The K-frames of
/// credit-based channels have the same header.
///
/// `Recombiner` and `Fragmenter` read and write the same four octets in place; a test compares them with this
/// declaration.
public struct L2CAPFrame: WireRecord {
  /// Octets of the payload.
  public var pduLength: UInt16 = 0
  public var channelID = ChannelID()
  public var informationPayload = Octets()
  @inlinable public init() {}
  @inlinable public init(_ channelID: ChannelID, _ informationPayload: Octets) {
    pduLength = UInt16(truncatingIfNeeded: informationPayload.count)
    self.channelID = channelID
    self.informationPayload = informationPayload
  }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("PDU Length", &pduLength)
    try visit.value("Channel ID", &channelID)
    try visit.octets("Information Payload", &informationPayload, .exactly(Int(pduLength)))
  }
  /// Octets of the Basic L2CAP header.
  @inlinable public static var headerCount: Int { 4 }
}

/// The first PDU of an SDU on a credit-based channel (K-frame). Vol 3, Part A, §3.4. Those that follow for the same SDU
/// have no length of it.
public struct CreditFrame: WireRecord {
  /// Octets of everything behind the Channel ID: at most the receiver's MPS.
  public var pduLength: UInt16 = 0
  public var channelID = ChannelID()
  /// Octets of the whole SDU: at most the receiver's MTU.
  public var sduLength: UInt16 = 0
  public var informationPayload = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("PDU Length", &pduLength)
    try visit.value("Channel ID", &channelID)
    try visit.value("L2CAP SDU Length", &sduLength)
    try visit.octets(
      "Information Payload", &informationPayload, .exactly(max(Int(pduLength) - CreditFrame.lengthCount, 0)))
  }
  /// Octets of the SDU's length.
  @inlinable public static var lengthCount: Int { 2 }
}

/// Violations of L2CAP by a peer or a controller. The link continues in every case.
public enum L2CAPViolation: Sendable {
  /// A packet for a connection handle that is not open. Ignored.
  case unknownLink
  /// The controller assigned a connection handle of more than 12 bits. The link is not opened: Vol 4, Part E, §5.4.2.
  case illegalHandle
  /// A packet boundary flag of 0b11 or a broadcast flag, which LE-U does not have. Ignored: Vol 4, Part E, §5.4.2.
  case illegalFlags
  /// A continuing fragment while no frame is incomplete. Ignored: Vol 3, Part A, §7.2.2.
  case orphanFragment(count: Int)
  /// A first fragment while a frame is incomplete: that frame is dropped, the new one is accepted. Vol 3, Part A,
  /// §7.2.2.
  case incompleteFrame(received: Int, expected: Int?)
  /// The fragments have more octets than the frame's header states. The frame is dropped: Vol 3, Part A, §7.2.2.
  case overlongFragment(received: Int, expected: Int)
  /// A payload longer than the channel's MTU (Vol 3, Part A, §5.1). Dropped, and never stored whole. On the signaling
  /// channel a request gets Command Reject, Signaling MTU exceeded (§4, §4.1).
  case frameTooLong(ChannelID, length: Int)
  /// A payload too short for its channel. Ignored.
  case frameTooShort(ChannelID, length: Int)
  /// A channel that is not open here (Vol 3, Part A, §2.1). Ignored.
  case unknownChannel(ChannelID)
  /// A signaling command with a wrong length or field. A request is rejected (Vol 3, Part A, §4.1), anything else
  /// ignored.
  case malformedSignal(SignalCode, WireError)
  /// Identifier 0, which no command may have. Ignored: Vol 3, Part A, §4.
  case illegalIdentifier(SignalCode)
  /// A request that is not supported here, or not from this role. Rejected, Command not understood: Vol 3, Part A,
  /// §4.1.
  case rejectedSignal(SignalCode)
  /// A response to no request, or an unexpected command that needs no answer. Ignored.
  case unexpectedSignal(SignalCode, identifier: UInt8)
  /// The limit of waiting answers for one link is reached; this request gets none.
  case tooManySignals(SignalCode)
  /// A K-frame that the channel does not allow: the channel is disconnected.
  case channel(ChannelID, ChannelFault)
  /// Credits of 0, which is outside the range (Vol 3, Part A, §4.24), or for a channel that is not open. Ignored.
  case unexpectedCredits(ChannelID, credits: UInt16)
  /// A request for channels whose parameters are not allowed. Refused with this result: Vol 3, Part A, §4.23, §4.26.
  case channelsRefused(ChannelResult)
  /// A request for other parameters that is not allowed. Refused with this result: Vol 3, Part A, §4.28.
  case reconfigurationRefused(ReconfigureResult)
  /// A response that opens channels which cannot be: their opening fails, and those that the peer may believe open are
  /// disconnected. Vol 3, Part A, §4.23, §4.26.
  case invalidResponse(SignalCode)
}

/// What ends a credit-based channel: Vol 3, Part A, §10.1, unless another section is named.
public enum ChannelFault: BitwiseCopyable, Sendable, Equatable {
  /// A K-frame came while the peer had no credit.
  case noCredit
  /// A K-frame is longer than our MPS: §3.4.
  case frameTooLong(length: Int)
  /// The first K-frame of an SDU does not have the two octets of its length: §3.4.
  case sduLengthMissing
  /// An SDU is longer than our MTU: §3.4.
  case sduTooLong(length: Int)
  /// The K-frames of an SDU have more octets than its length states: §3.4.3.
  case sduOverrun(received: Int, expected: Int)
  /// The credits that the peer gave exceed 65,535 together: §4.24.
  case tooManyCredits
}
