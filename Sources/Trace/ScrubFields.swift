import BindruneCapture
import BindruneHCI
import BindruneL2CAP
import BindruneWire

/// Octets that belong together: of one record, or of several that carry the parts of a frame.
struct ScrubPlace {
  struct Piece {
    /// The record, counted from 0.
    var record: Int
    var range: Range<Int>
  }
  private(set) var first: Piece
  private(set) var more: [Piece] = []

  init(_ record: Int, _ range: Range<Int>) { first = Piece(record: record, range: range) }
  var count: Int { more.reduce(first.range.count) { $0 + $1.range.count } }
  var isScattered: Bool { !more.isEmpty }
  var pieces: [Piece] { [first] + more }

  mutating func append(_ other: ScrubPlace) { more += other.pieces }
  /// A part, counted from the beginning.
  subscript(range: Range<Int>) -> ScrubPlace {
    if more.isEmpty {
      let start = first.range.lowerBound
      return ScrubPlace(first.record, start + range.lowerBound..<start + range.upperBound)
    }
    var at = 0, part: ScrubPlace?
    for piece in pieces {
      let inside = range.clamped(to: at..<at + piece.range.count)
      if !inside.isEmpty {
        let start = piece.range.lowerBound - at
        let found = ScrubPlace(piece.record, start + inside.lowerBound..<start + inside.upperBound)
        if part == nil { part = found } else { part?.append(found) }
      }
      at += piece.range.count
    }
    return part ?? ScrubPlace(first.record, first.range.lowerBound..<first.range.lowerBound)
  }
}

/// What is to be done with some octets of a trace.
struct ScrubField {
  enum Kind: Hashable {
    case replace(SensitiveField.Kind)
    /// Not understood: becomes zeros.
    case zero
    /// A program's text, not understood: becomes letters.
    case text
    /// Stays, and may hold an original anywhere.
    case open
  }
  var kind: Kind
  var label: StaticString
  var place: ScrubPlace
  /// What precedes a part of a name or value in its attribute.
  var prefix: [UInt8] = []
}

/// A record of the trace that waits until all its fields are known.
struct ScrubEntry {
  enum Mark: UInt8 {
    /// A declared field.
    case declared
    case open
    /// What is replaced, or zero.
    case done
    /// A header, which tells what the packet is.
    case header
  }
  var record: CaptureRecord
  var octets: [UInt8]
  /// What is written.
  var new: [UInt8]
  var marks: [Mark]

  init(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    self.record = record
    octets = bytes.array
    new = octets
    marks = [Mark](repeating: .declared, count: octets.count)
    let count = min(Self.headerCount(of: octets, record.content), octets.count)
    for index in 0..<count { marks[index] = .header }
  }
  /// The type, a command's opcode, an event's code and an ACL packet's header, with their lengths.
  static func headerCount(of octets: [UInt8], _ content: CaptureRecord.Content) -> Int {
    guard content == .packet else { return 0 }
    return switch octets.first {
    case HCIPacketType.command.rawValue?: 4
    case HCIPacketType.event.rawValue?: 3
    case HCIPacketType.acl.rawValue?: 5
    default: 1
    }
  }
}

/// # ScrubChannels
/// **Overview**: the credit-based channels of a trace, as far as it takes to tell the length of an SDU, which stays,
/// from what the SDU holds. Vol 3, Part A, §3.4.3.
struct ScrubChannels {
  private static var mostLinks: Int { 512 }
  private static var mostChannels: Int { 64 }
  private struct Channel {
    var host: ChannelID, peer: ChannelID
    /// Octets of the SDU that are to come, from the host and from the peer.
    var sent = 0, received = 0
  }
  private struct Link {
    var requests = ChannelRequests()
    var channels: [Channel] = []
  }
  private var links: [UInt64: Link] = [:]

  private static func key(_ frame: TraceFrame) -> UInt64 { UInt64(frame.adapter) << 32 | UInt64(frame.connection) }
  mutating func forget(_ adapter: UInt16, _ connection: UInt32) {
    links[UInt64(adapter) << 32 | UInt64(connection)] = nil
  }

  /// A frame of the LE signaling channel.
  mutating func learn(_ frame: TraceFrame, _ payload: Span<UInt8>) {
    guard let direction = frame.direction, !payload.isEmpty else { return }
    let key = Self.key(frame)
    guard links.count < Self.mostLinks || links[key] != nil else { return }
    var link = links.removeValue(forKey: key) ?? Link()
    defer { links[key] = link }
    for event in link.requests.receive(payload.extracting(first: payload.signalCount(at: 0)), direction) {
      switch event {
      case .opened(let opening):
        link.channels.removeAll { $0.host == opening.host || $0.peer == opening.peer }
        guard link.channels.count < Self.mostChannels else { continue }
        link.channels.append(Channel(host: opening.host, peer: opening.peer))
      case .closed(let number, let owner):
        link.channels.removeAll { (owner == .fromHost ? $0.host : $0.peer) == number }
      case .reconfigured, .credited: break
      }
    }
  }
  /// The octets of a K-frame's payload that are an SDU's length.
  mutating func lengthCount(_ frame: TraceFrame, _ payload: Span<UInt8>) -> Int {
    guard let direction = frame.direction, let link = links[Self.key(frame)],
      let place = link.channels.firstIndex(where: { (direction == .fromHost ? $0.peer : $0.host) == frame.channel })
    else { return 0 }
    var left = direction == .fromHost ? link.channels[place].sent : link.channels[place].received
    let isFirst = left == 0 && payload.count >= CreditFrame.lengthCount
    if isFirst { left = Int(payload.little16(0)) + CreditFrame.lengthCount }
    left = max(0, left - frame.length)
    if direction == .fromHost {
      links[Self.key(frame)]?.channels[place].sent = left
    } else {
      links[Self.key(frame)]?.channels[place].received = left
    }
    return isFirst ? CreditFrame.lengthCount : 0
  }
}
