import BindruneWire

/// A channel. Vol 3, Part A, §2.1.
public struct ChannelID: OpenNumber {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  /// The Attribute Protocol.
  @inlinable public static var attribute: ChannelID { ChannelID(rawValue: 0x0004) }
  /// L2CAP LE Signaling.
  @inlinable public static var leSignaling: ChannelID { ChannelID(rawValue: 0x0005) }
  /// The Security Manager Protocol.
  @inlinable public static var securityManager: ChannelID { ChannelID(rawValue: 0x0006) }
}

/// A channel of a link: its number here, the lengths of its payloads, and their recipient.
public struct L2CAPChannel: Sendable {
  @usableFromInline enum Taker: BitwiseCopyable, Sendable { case upper, signaling }
  public let id: ChannelID
  /// Octets of an information payload. A shorter one has no opcode, or no whole header of a command.
  public let lengths: ClosedRange<Int>
  @usableFromInline let taker: Taker

  /// A channel that the layer above carries. `longestPayload`: the greatest useful MTU of the channel, at least 1.
  public init(_ id: ChannelID, longestPayload: Int) { self.init(id, 1...longestPayload, .upper) }
  private init(_ id: ChannelID, _ lengths: ClosedRange<Int>, _ taker: Taker) {
    self.id = id
    self.lengths = lengths
    self.taker = taker
  }

  /// The channels of every link. The layer above may replace one by carrying a channel of the same number.
  static var own: [L2CAPChannel] { [.leSignaling] }
  /// MTU_sig of LE-U holds every command of this stack: Vol 3, Part A, §4.
  static var leSignaling: L2CAPChannel { L2CAPChannel(.leSignaling, SignalHeader.count...23, .signaling) }
}
