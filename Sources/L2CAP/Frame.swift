import BindruneWire
import HCI

/// A PDU in Basic L2CAP mode (B-frame), the only one of the fixed channels. Vol 3, Part A, §3.1.
///
/// `Recombiner` and `Fragmenter` read and write the same four octets by hand, in place; a test holds them equal to this.
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

/// How a peer, or its controller or ours, can be wrong about L2CAP. The link goes on in every case.
public enum L2CAPViolation: Sendable {
  /// A packet for a connection handle that is not open. Ignored.
  case unknownLink
  /// The controller gave a connection handle of more than 12 bits. The link is not opened: Vol 4, Part E, §5.4.2.
  case illegalHandle
  /// A packet boundary flag of 0b11 or a broadcast flag, which LE-U does not have. Ignored: Vol 4, Part E, §5.4.2.
  case illegalFlags
  /// A continuing fragment though no frame is incomplete. Ignored: Vol 3, Part A, §7.2.2.
  case orphanFragment(count: Int)
  /// A first fragment though a frame is incomplete: that frame is dropped, the new one is taken. Vol 3, Part A, §7.2.2.
  case incompleteFrame(received: Int, expected: Int?)
  /// The fragments hold more octets than the frame's header says. The frame is dropped: Vol 3, Part A, §7.2.2.
  case overlongFragment(received: Int, expected: Int)
  /// A payload longer than the channel's MTU (Vol 3, Part A, §5.1). Discarded, without ever having been kept whole. On the
  /// signaling channel a request gets Command Reject, Signaling MTU exceeded (§4, §4.1).
  case frameTooLong(ChannelID, length: Int)
  /// A payload too short to say anything on its channel. Ignored.
  case frameTooShort(ChannelID, length: Int)
  /// A channel that is not open here (Vol 3, Part A, §2.1). Ignored.
  case unknownChannel(ChannelID)
  /// A signaling command whose length or fields are wrong. A request has been rejected (Vol 3, Part A, §4.1), anything
  /// else is ignored.
  case malformedSignal(SignalCode, WireError)
  /// Identifier 0, which no command may have. Ignored: Vol 3, Part A, §4.
  case illegalIdentifier(SignalCode)
  /// A request that is not supported here, or not from this role. Rejected, Command not understood: Vol 3, Part A, §4.1.
  case rejectedSignal(SignalCode)
  /// A response to nothing that was asked, or a command that needs no answer and means nothing here. Ignored.
  case unexpectedSignal(SignalCode, identifier: UInt8)
  /// More answers wait for the controller than are kept for one link; this request gets none.
  case tooManySignals(SignalCode)
  /// A reserved Security Manager command, or Pairing Failed though nobody pairs. Ignored: Vol 3, Part H, §3.3.
  case unexpectedSecurityCommand(UInt8)
}
