import BindruneCapture
import BindruneWire
import BindruneHCI

/// The highest layer of a packet that a trace shows.
public enum TraceLayer: String, Sendable, Hashable, CaseIterable {
  case hci
  case l2cap
  /// L2CAP signaling.
  case sig
  case att
  case smp
  /// A packet from the air without a frame of L2CAP.
  case ll
  /// What Linux's monitor reports beside packets, and notes of other recorders.
  case note
}

/// One packet of a trace, described.
public struct TraceLine: Sendable {
  /// The record's number, from 1.
  public var number: Int
  /// Nanoseconds since 1970.
  public var time: Int64
  /// Nanoseconds since the trace's first record; negative where the clock was set back.
  public var elapsed: Int64
  public var direction: HCIDirection?
  public var adapter: UInt16
  public var layer: TraceLayer
  /// The connection handle; in a link-layer capture the access address.
  public var connection: UInt32?
  /// Of the highest layer: the PDU's or command's opcode, the event's code.
  public var opcode: UInt16?
  /// The attribute that the PDU is about; for a response without a handle that of its request.
  public var handle: UInt16?
  /// The enhanced bearer of an ATT PDU: its channel's number at the host. nil: the fixed channel, or another layer.
  public var bearer: UInt16?
  /// The Specification's name: `ATT_READ_REQ`.
  public var name: String
  /// The fields, by the Specification's names.
  public var fields: String
  /// What the trace reveals about the numbers: the characteristic's name, the device's.
  public var meaning: String?
  /// Why the packet, or a part of it, is not valid.
  public var problem: String?
  /// What the sniffer says of a packet from the air.
  public var reception: LinkLayerReception?
  /// The layers below, outermost first.
  public var below: [Layer] = []
  /// The PDU of the highest layer.
  public var octets: [UInt8] = []

  public struct Layer: Sendable {
    public var name: String
    public var fields: String
  }
}

/// Receives the lines of a trace.
public protocol TraceLineSink {
  mutating func receive(_ line: TraceLine)
  /// No more lines for the moment.
  mutating func flush()
}
