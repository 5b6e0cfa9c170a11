import BindruneWire

/// A channel, also as an entry of a signaling command's list. Vol 3, Part A, §2.1.
public struct ChannelID: OpenNumber, WireRecord, Hashable {
  public var rawValue: UInt16
  @inlinable @inline(__always) public init(rawValue: UInt16) { self.rawValue = rawValue }
  @inlinable @inline(__always) public init() { rawValue = 0 }
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("CID", &self)
  }
  /// The Attribute Protocol.
  @inlinable public static var attribute: ChannelID { ChannelID(rawValue: 0x0004) }
  /// L2CAP LE Signaling.
  @inlinable public static var leSignaling: ChannelID { ChannelID(rawValue: 0x0005) }
  /// The Security Manager Protocol.
  @inlinable public static var securityManager: ChannelID { ChannelID(rawValue: 0x0006) }
  /// The numbers that we assign to channels which open on a link: 56 of the 64 that LE-U has, because a `ChannelSet` is
  /// one word. Each device assigns its own: Vol 3, Part A, §2.1.
  @inlinable public static var dynamic: Range<UInt16> { 0x0040..<0x0078 }
}

/// Channels of a link, by their numbers here, in one word: the fixed channels 0x0000 … 0x0007 and 56 of the dynamic
/// ones (`ChannelID.dynamic`).
public struct ChannelSet: BitwiseCopyable, Sendable, Equatable {
  /// Bits 0 … 7: the fixed channels; 8 … 63: the dynamic ones.
  @usableFromInline var bits: UInt64 = 0
  @inlinable @inline(__always) public init() {}
  @inlinable @inline(__always) init(bits: UInt64) { self.bits = bits }

  @inlinable @inline(__always) public var isEmpty: Bool { bits == 0 }
  @inlinable @inline(__always) public func contains(_ channel: ChannelID) -> Bool {
    bits & ChannelSet.bit(channel) != 0
  }
  /// Has no effect for a number that no set can contain.
  @inlinable @inline(__always) public mutating func insert(_ channel: ChannelID) { bits |= ChannelSet.bit(channel) }
  @inlinable @inline(__always) public mutating func remove(_ channel: ChannelID) { bits &= ~ChannelSet.bit(channel) }
  @inlinable @inline(__always) public func intersection(_ other: ChannelSet) -> ChannelSet {
    ChannelSet(bits: bits & other.bits)
  }

  @inline(__always) mutating func set(_ channel: ChannelID, _ isMember: Bool) {
    let bit = ChannelSet.bit(channel)
    bits = isMember ? bits | bit : bits & ~bit
  }
  @inlinable @inline(__always) public mutating func formUnion(_ other: ChannelSet) { bits |= other.bits }

  /// 0 for a number that no set can contain.
  @inlinable @inline(__always) static func bit(_ channel: ChannelID) -> UInt64 {
    let number = channel.rawValue
    if number < 8 { return 1 &<< UInt64(number) }
    return ChannelID.dynamic.contains(number) ? 1 &<< UInt64(number &- 0x0038) : 0
  }
  @inlinable @inline(__always) static func channel(_ bit: Int) -> ChannelID {
    ChannelID(rawValue: UInt16(truncatingIfNeeded: bit < 8 ? bit : bit &+ 0x0038))
  }
}

/// Up to eight of our channels, in order, in one word: those of a request. Those that it refused have the number 0.
public struct ChannelList: BitwiseCopyable, Sendable, Equatable {
  /// An octet each: the numbers of LE-U's dynamic channels have no more.
  private var octets: UInt64 = 0
  public private(set) var count = 0
  public init() {}
  /// Channels in one enhanced request: Vol 3, Part A, §4.25.
  public static var most: Int { 5 }

  public subscript(index: Int) -> ChannelID {
    precondition((0..<count).contains(index))
    return ChannelID(rawValue: UInt16(truncatingIfNeeded: octets >> (8 * UInt64(index)) & 0xFF))
  }
  public func contains(_ channel: ChannelID) -> Bool {
    for index in 0..<count where self[index] == channel { return true }
    return false
  }
  public mutating func append(_ channel: ChannelID) {
    precondition(count < 8 && channel.rawValue <= 0xFF)
    octets |= UInt64(channel.rawValue) << (8 * UInt64(count))
    count += 1
  }
}

/// A channel that exists as long as its link: its number here, the lengths of its payloads, and its kind.
public struct L2CAPChannel: Sendable {
  @usableFromInline enum Kind: BitwiseCopyable, Sendable {
    /// The layer above carries it. It exists as long as the link, and has the same number on both sides.
    case fixed
    /// L2CAP's own: `SignalingChannel`.
    case signaling
  }
  public let id: ChannelID
  /// Octets of an information payload. A shorter one has no opcode, or no whole header of a command.
  public let lengths: ClosedRange<Int>
  @usableFromInline let kind: Kind

  /// A channel that the layer above carries: traps unless `id` fits into a `ChannelSet`. `longestPayload`: the greatest
  /// useful MTU of the channel, at least 1.
  public init(_ id: ChannelID, longestPayload: Int) { self.init(id, 1...longestPayload, .fixed) }
  private init(_ id: ChannelID, _ lengths: ClosedRange<Int>, _ kind: Kind) {
    precondition(ChannelSet.bit(id) != 0, "0x0000 … 0x0007, or 0x0040 … 0x0077")
    self.id = id
    self.lengths = lengths
    self.kind = kind
  }

  /// MTU_sig of LE-U holds every command of this stack: Vol 3, Part A, §4.
  static var leSignaling: L2CAPChannel { L2CAPChannel(.leSignaling, SignalHeader.count...23, .signaling) }
}
