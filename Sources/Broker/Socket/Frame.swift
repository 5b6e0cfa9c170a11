import BindruneTransport
import BindruneWire
import NIOCore

/// A frame of the socket between an app and the daemon.
///
///     length, 4 octets, of what follows │ number, 1 octet │ the fields of the message of that number
///
/// A number that a side does not know, and what stands behind the fields that it knows, come from a later version: they
/// are ignored. The page `Protocol` of this module has every message.
struct Frame: Sendable {
  let number: UInt8
  let octets: ByteBuffer
  var contents: MessageReader { MessageReader(octets, of: number) }

  /// Octets of one frame, without its length.
  static var longest: Int { 1 << 20 }
  /// Octets that a value costs of its port's credit, besides its own.
  static var costOfValue: Int { 4 }
  /// The same of an SDU and its channel's credit. It stands for the memory that an SDU takes which waits in the daemon,
  /// so that many short ones cost no more than their credit.
  static var costOfSDU: Int { 48 }
  /// A message of version 1, which was JSON, in either direction.
  static var numberOfJSON: UInt8 { 1 }

  /// The next frame, which is removed from `buffer`; nil: it is not complete.
  static func read(from buffer: inout ByteBuffer, longest: Int = Frame.longest) throws(FrameError) -> Frame? {
    guard let length = buffer.getInteger(at: buffer.readerIndex, endianness: .little, as: UInt32.self) else {
      return nil
    }
    guard length > 0, length <= longest else {
      throw FrameError("a frame of \(length) octets; at most \(longest) are allowed here, and at least 1")
    }
    guard buffer.readableBytes >= 4 + Int(length) else { return nil }
    buffer.moveReaderIndex(forwardBy: 4)
    guard var octets = buffer.readSlice(length: Int(length)), let number = octets.readInteger(as: UInt8.self) else {
      return nil
    }
    return Frame(number: number, octets: octets)
  }
}

/// The frames in what a socket delivers, in pieces of any length.
struct FrameReader {
  /// What has come and is in no frame yet.
  private var rest = ByteBuffer()

  mutating func append(_ piece: ByteBuffer) {
    if rest.readableBytes == 0 {
      rest = piece
    } else {
      rest.discardReadBytes()
      rest.writeImmutableBuffer(piece)
    }
  }
  /// The next frame; nil: it is not complete.
  mutating func next(longest: Int = Frame.longest) throws(FrameError) -> Frame? {
    let frame = try Frame.read(from: &rest, longest: longest)
    // A channel uses the memory of a piece again if nobody holds it.
    if rest.readableBytes == 0 { rest = ByteBuffer() }
    return frame
  }
}

/// The versions of the messages that a program speaks. Two programs speak the highest that both have.
struct MessageVersions: Equatable, Sendable, CustomStringConvertible {
  var lowest: UInt16
  var highest: UInt16
  /// 1 was JSON.
  static var ofThisProgram: MessageVersions { MessageVersions(lowest: 2, highest: 3) }
  /// The first that has channels of L2CAP.
  static var withChannels: UInt16 { 3 }

  func highest(with other: MessageVersions) -> UInt16? {
    let common = min(highest, other.highest)
    return common >= max(lowest, other.lowest) ? common : nil
  }
  /// What a greeting begins with in every version, whatever stands behind it.
  init(ofGreeting frame: Frame) throws(FrameError) {
    self.init(lowest: 0, highest: 0)
    var contents = frame.contents
    try contents.field("Lowest Version", &lowest)
    try contents.field("Highest Version", &highest)
  }
  init(lowest: UInt16, highest: UInt16) { (self.lowest, self.highest) = (lowest, highest) }
  var description: String { lowest == highest ? "\(lowest)" : "\(lowest) … \(highest)" }

  /// For an app of version 1, in its JSON: it shows the sentence. `sentence` has neither quotation marks nor
  /// backslashes.
  static func refusalInJSON(_ sentence: String) -> ByteBuffer {
    var writer = MessageWriter()
    writer.writeText(Frame.numberOfJSON, #"{"refused":{"_0":""# + sentence + #""}}"#)
    return writer.buffer
  }
}

/// What the other end of the socket has done wrong.
struct FrameError: Error, Equatable, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// A port of a session, by its number, which only grows.
protocol NumberedPort { var number: UInt32 { get } }

extension Array where Element: NumberedPort {
  /// Where the port is. The array is in the order of numbers.
  private func place(of number: UInt32) -> Int? {
    var range = startIndex..<endIndex
    while !range.isEmpty {
      let middle = range.lowerBound + range.count / 2
      if self[middle].number == number { return middle }
      range = self[middle].number < number ? middle + 1..<range.upperBound : range.lowerBound..<middle
    }
    return nil
  }
  func port(_ number: UInt32) -> Element? { place(of: number).map { self[$0] } }
  mutating func removePort(_ number: UInt32) -> Element? { place(of: number).map { remove(at: $0) } }
}
