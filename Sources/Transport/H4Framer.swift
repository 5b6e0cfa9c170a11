import BindruneWire
import BindruneHCI

/// Cuts a stream of octets into HCI packets: the UART transport's framing. Vol 4, Part A, §2.
///
/// **Overview.** A packet is a type octet, a header with a length, and that many octets:
///
///     01 command   opcode ×2, length            02 ACL   handle ×2, length ×2     03 synchronous   handle ×2, length
///     04 event     code, length                 05 ISO   handle ×2, length ×2 (14 bits)
///
/// **Function.** The caller repeats `next` until that returns `.needMore`. A packet that lies whole in `bytes` is
/// returned as a range of them, without a copy; one that began in earlier bytes is assembled here and returned. The
/// framer keeps at most one unfinished packet, whose announced length it has checked.
///
/// **Phases.** `.packets`; `.searching` after `resynchronise`, until the answer to HCI_Reset; `.lost`, which reports
/// its error once and ignores everything after it.
public struct H4Framer: ~Copyable {
  /// Octets that may follow the header, per type.
  public struct Limits: Sendable {
    /// Controllers may announce 65,535; real ones stay below 1,100, emulated ones send whole L2CAP frames.
    public var acl = 4096
    /// Vol 4, Part E, §5.4.5: an SDU fragment of at most 4,095 octets with 8 octets before it.
    public var iso = 4103
    /// Octets dropped during the search for the answer to HCI_Reset before the framer gives up.
    public var search = 1 << 20
    public init() {}
  }

  public enum Step: Sendable, Equatable {
    /// A packet in `bytes`.
    case packet(Range<Int>)
    /// A packet that began in earlier bytes.
    case assembled([UInt8])
    /// All `bytes` have been processed.
    case needMore
    /// The framing is lost; returned once.
    case lost(FramingError)
  }

  private enum Phase { case packets, searching(dropped: Int), lost }
  private var phase = Phase.packets
  private let direction: HCIDirection
  private let limits: Limits
  /// The beginning of an incomplete packet.
  private var held: [UInt8] = []
  /// Position of the next octet in the stream.
  private var offset: UInt64 = 0
  /// The last eight octets while searching.
  private var window: UInt64 = 0

  /// `direction` determines the legal types: a controller sends no commands, a host no events.
  public init(_ direction: HCIDirection, limits: Limits = Limits()) {
    self.direction = direction
    self.limits = limits
  }

  /// Drops everything until the answer to HCI_Reset. Does not restore a lost stream.
  public mutating func resynchronise() {
    if case .lost = phase { return }
    phase = .searching(dropped: 0)
    held = []
    window = 0
  }

  /// The next step from `bytes[index…]`; moves `index`. After `.needMore` the next call brings new bytes.
  public mutating func next(in bytes: Span<UInt8>, at index: inout Int) -> Step {
    switch phase {
    case .lost:
      index = bytes.count
      return .needMore
    case .searching(let dropped): return search(bytes, &index, dropped)
    case .packets: return held.isEmpty ? whole(bytes, &index) : completeHeld(bytes, &index)
    }
  }

  /// HCI_Reset's Command Complete: 04 0E 04, Num_HCI_Command_Packets, 03 0C, Status. Vol 4, Part E, §7.7.14.
  public static func isResetAnswer(_ packet: Span<UInt8>) -> Bool {
    guard packet.count == 7 else { return false }
    var window: UInt64 = 0
    for index in packet.indices { window = window << 8 | UInt64(packet[index]) }
    return isResetAnswer(window)
  }
  private static func isResetAnswer(_ window: UInt64) -> Bool {
    window & 0x00FF_FFFF_00FF_FF00 == 0x0004_0E04_0003_0C00
  }

  // MARK: Phases

  private mutating func search(_ bytes: Span<UInt8>, _ index: inout Int, _ dropped: Int) -> Step {
    var dropped = dropped
    while index < bytes.count {
      window = window << 8 | UInt64(bytes[index])
      index += 1
      offset += 1
      dropped += 1
      if dropped >= 7, Self.isResetAnswer(window) {
        phase = .packets
        return .assembled((0..<7).map { UInt8(truncatingIfNeeded: window >> (8 * (6 - $0))) })
      }
      if dropped >= limits.search {
        return lose(.noResetAnswer(dropped), at: offset - 1, UInt8(truncatingIfNeeded: window), bytes, &index)
      }
    }
    phase = .searching(dropped: dropped)
    return .needMore
  }

  /// No packet is incomplete.
  private mutating func whole(_ bytes: Span<UInt8>, _ index: inout Int) -> Step {
    let available = bytes.count - index
    if available == 0 { return .needMore }
    let size = size(of: bytes, from: index)
    switch size {
    case .packet(let length) where length <= available:
      index += length
      offset += UInt64(length)
      return .packet(index - length..<index)
    case .packet(let need), .header(let need):
      held.reserveCapacity(need)
      for place in index..<bytes.count { held.append(bytes[place]) }
      offset += UInt64(available)
      index = bytes.count
      return .needMore
    case .wrong(let reason): return lose(reason, at: offset, bytes[index], bytes, &index)
    }
  }

  /// Adds octets to the incomplete packet in `held`.
  private mutating func completeHeld(_ bytes: Span<UInt8>, _ index: inout Int) -> Step {
    while true {
      let size = size(of: held.span, from: 0)
      let need: Int
      switch size {
      case .packet(let length): need = length
      case .header(let length): need = length
      case .wrong(let reason): return lose(reason, at: offset - UInt64(held.count), held[0], bytes, &index)
      }
      if case .packet = size, need == held.count {
        let packet = held
        held = []
        return .assembled(packet)
      }
      let taken = min(need - held.count, bytes.count - index)
      if taken == 0 { return .needMore }
      held.reserveCapacity(need)
      for place in index..<index + taken { held.append(bytes[place]) }
      index += taken
      offset += UInt64(taken)
    }
  }

  private mutating func lose(
    _ reason: FramingError.Reason, at place: UInt64, _ octet: UInt8, _ bytes: Span<UInt8>, _ index: inout Int
  ) -> Step {
    phase = .lost
    held = []
    index = bytes.count
    return .lost(FramingError(reason, offset: place, octet: octet))
  }

  // MARK: Headers

  private enum Size {
    /// A packet of this many octets, type and header included.
    case packet(Int)
    /// The header needs this many octets.
    case header(Int)
    case wrong(FramingError.Reason)
  }

  /// The size according to the header at `start`; at least its first octet is available.
  private func size(of bytes: Span<UInt8>, from start: Int) -> Size {
    let header: Int
    let limit: Int
    let type = HCIPacketType(rawValue: bytes[start])
    switch type {
    case .command where direction == .fromHost: (header, limit) = (4, 255)
    case .acl: (header, limit) = (5, limits.acl)
    case .synchronous: (header, limit) = (4, 255)
    case .event where direction == .fromController: (header, limit) = (3, 255)
    case .iso: (header, limit) = (5, limits.iso)
    default: return .wrong(.packetType)
    }
    guard bytes.count - start >= header else { return .header(header) }
    var length = Int(bytes[start + header - 1])
    if header == 5 { length = length << 8 | Int(bytes[start + 3]) }
    if type == .iso { length &= 0x3FFF }  // two bits are reserved: Vol 4, Part E, §5.4.5
    return length > limit ? .wrong(.length(length)) : .packet(header + length)
  }
}
