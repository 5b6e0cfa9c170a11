import BindruneWire
import BindruneHCI

/// A PDU in Basic L2CAP mode (B-frame), the only one of the fixed channels. Vol 3, Part A, §3.1.
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
}
