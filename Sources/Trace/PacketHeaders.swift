import BindruneHCI
import BindruneWire

// What names a packet and its link, also where the recorder has cut the packet, or its parameters are malformed: the
// declarations of whole packets would refuse both.

extension WireRecord {
  /// The record at this place. Nil: the recorder has cut the packet before its end, or it is malformed.
  init?(_ packet: Span<UInt8>, at place: Range<Int>) {
    guard packet.count >= place.upperBound,
      let found = try? WireDecoder.decode(Self.self, packet, from: place.lowerBound, to: place.upperBound)
    else { return nil }
    self = found
  }
}

/// The header of an ACL Data packet. Vol 4, Part E, §5.4.2.
package struct ACLHeader: WireRecord {
  package var handle = ConnectionHandle(), packetBoundaryFlag = PacketBoundaryFlag.firstNonFlushable
  package var broadcastFlag: UInt8 = 0
  package var dataTotalLength: UInt16 = 0

  package init() {}
  package mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.bits("Handle", &handle, 12)
    try visit.bits("Packet_Boundary_Flag", &packetBoundaryFlag, 2)
    try visit.bits("Broadcast_Flag", &broadcastFlag, 2)
    try visit.value("Data_Total_Length", &dataTotalLength)
  }
  /// `packet`: H4 packet type octet first. Nil: it was cut within the header.
  package init?(_ packet: Span<UInt8>) { self.init(packet, at: 1..<ACLPacket.headerCount) }
}

/// The beginning of an ACL, Synchronous or ISO Data packet. Vol 4, Part E, §5.4.2, §5.4.3, §5.4.5.
struct DataHandle: WireRecord {
  var handle = ConnectionHandle()
  /// The header of each kind divides these differently.
  var flags: UInt8 = 0

  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.bits("Connection_Handle", &handle, 12)
    try visit.bits("Flags", &flags, 4)
  }
  /// `packet`: H4 packet type octet first. Nil: it was cut before that.
  init?(_ packet: Span<UInt8>) { self.init(packet, at: 1..<3) }
}

/// What an event is: its code, and of an LE Meta event the subevent code. Vol 4, Part E, §5.4.4, §7.7.65.
struct EventName: WireRecord, Hashable {
  private var packetType = HCIPacketType.event
  private(set) var code: UInt8 = 0
  private var parameterTotalLength: UInt8 = 0
  private(set) var subevent: UInt8 = 0

  init() {}
  init<E: HCIEventMessage>(of _: E.Type) { (code, subevent) = (E.code, E.subevent ?? 0) }
  /// An LE Meta event that has no declaration.
  init(le subevent: UInt8) { (code, self.subevent) = (LEConnectionComplete.code, subevent) }
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("HCI packet type", &packetType)
    try visit.value("Event_Code", &code)
    try visit.value("Parameter_Total_Length", &parameterTotalLength)
    if code == LEConnectionComplete.code { try visit.value("Subevent_Code", &subevent) }
  }
  /// `packet`: H4 packet type octet first. Nil: it is no event, or cut before that.
  init?(_ packet: Span<UInt8>) {
    guard packet.count > 1,
      let found = EventName(packet, at: 0..<(packet[1] == LEConnectionComplete.code ? 4 : 3)),
      found.packetType == .event
    else { return nil }
    (code, subevent) = (found.code, found.subevent)
  }
}
