import BindruneTransport
import BindruneWire
import NIOCore

/// What an app writes to the daemon, besides values. Decision 0053.
enum AppMessage: Codable, Equatable, Sendable {
  /// The first of every connection.
  case hello(Hello)
  case request(BrokerRequest)
  /// The app has released the manager. Without it the end of the connection counts as the end of the process.
  case close

  struct Hello: Codable, Equatable, Sendable {
    var version = Frame.version
    var manifest: AppManifest
    var manager: ManagerIdentity?
    /// Names the adapter; nil: the daemon's first.
    var adapter: String?
    /// The process was connected before, and has learnt that the adapter is resetting: nothing is restored.
    var isReconnecting = false
  }
}

/// What the daemon writes to an app, besides values and credit.
enum DaemonMessage: Codable, Sendable {
  case welcome
  /// One sentence with the cause and the remedy. The connection ends.
  case refused(String)
  /// Before the event that gives the app a use for it. `credit`: octets that the daemon takes, with `costOfValue` for each value.
  case port(UInt32, SendPort.Kind, peer: UUID, longest: Int, credit: Int)
  case portEnded(UInt32)
  case events([BrokerEvent])
}

extension SendPort.Kind: Codable {
  public init(from decoder: any Decoder) throws {
    self = try decoder.singleValueContainer().decode(Bool.self) ? .notification : .command
  }
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(self == .notification)
  }
}

/// A frame of the socket between an app and the daemon.
///
///     length, 4 octets, of what follows │ kind, 1 octet │ contents
///
/// | kind | contents | direction |
/// |---|---|---|
/// | 1 message | JSON | both |
/// | 2 value | port, 4 octets; handle, 2; the value | to the daemon |
/// | 3 values | peer, 16 octets; handle, 2; each value after its length, 2 | to the app |
/// | 4 credit | port, 4 octets; octets that the daemon takes in addition, 4 | to the app |
/// | 5 control | text of a `DaemonControl` | to the daemon |
/// | 6 line, 7 end | text of its answer | to the app |
enum Frame: Equatable, Sendable {
  case message(Data)
  case value(port: UInt32, AttributeHandle, [UInt8])
  case values(UUID, AttributeHandle, BrokerValues)
  case credit(port: UInt32, UInt32)
  case control(String)
  case line(String)
  case end(String)

  static var version: Int { 1 }
  /// Octets of one frame, without its length.
  static var longest: Int { 1 << 20 }
  /// Octets that a value costs of its port's credit, besides its own.
  static var costOfValue: Int { 4 }

  init(_ message: some Encodable) throws(FrameError) {
    do { self = .message(try JSONEncoder().encode(message)) } catch {
      throw FrameError("a message cannot be written: \(error)")
    }
  }
  static func decode<Message: Decodable>(_ type: Message.Type, _ contents: Data) throws(FrameError) -> Message {
    do { return try JSONDecoder().decode(type, from: contents) } catch {
      throw FrameError("a message of \(contents.count) octets is not one of \(Message.self): \(error.cause)")
    }
  }

  private typealias Kind = DaemonFrameKind

  func write(to buffer: inout ByteBuffer) {
    let start = buffer.writerIndex
    buffer.writeInteger(0, as: UInt32.self)
    switch self {
    case .message(let contents):
      buffer.writeInteger(Kind.message.rawValue)
      buffer.writeBytes(contents)
    case .value(let port, let handle, let value):
      Self.writeValueHeader(port, handle, value.count, to: &buffer, at: start)
      buffer.writeBytes(value)
      return
    case .values(let peer, let handle, let values):
      buffer.writeInteger(Kind.values.rawValue)
      buffer.writeUUIDBytes(peer)
      buffer.writeInteger(handle.rawValue, endianness: .little)
      buffer.writeBytes(values.octets)
    case .credit(let port, let octets):
      buffer.writeInteger(Kind.credit.rawValue)
      buffer.writeInteger(port, endianness: .little)
      buffer.writeInteger(octets, endianness: .little)
    case .control(let text), .line(let text), .end(let text):
      buffer.writeInteger(textKind.rawValue)
      buffer.writeString(text)
    }
    buffer.setInteger(UInt32(buffer.writerIndex - start - 4), at: start, endianness: .little)
  }
  private var textKind: Kind {
    switch self {
    case .control: .control
    case .line: .line
    default: .end
    }
  }
  /// For a value that is lent: the caller writes its octets.
  static func writeValueHeader(
    _ port: UInt32, _ handle: AttributeHandle, _ count: Int, to buffer: inout ByteBuffer, at start: Int? = nil
  ) {
    let length = UInt32(7 + count)
    if let start {
      buffer.setInteger(length, at: start, endianness: .little)
    } else {
      buffer.writeInteger(length, endianness: .little)
    }
    buffer.writeInteger(Kind.value.rawValue)
    buffer.writeInteger(port, endianness: .little)
    buffer.writeInteger(handle.rawValue, endianness: .little)
  }

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
    guard var contents = buffer.readSlice(length: Int(length)), let number = contents.readInteger(as: UInt8.self) else {
      return nil
    }
    switch Kind(rawValue: number) {
    case .message: return .message(Data(contents.readableBytesView))
    case .value:
      guard let port = contents.readInteger(endianness: .little, as: UInt32.self),
        let handle = contents.readInteger(endianness: .little, as: UInt16.self), contents.readableBytes <= 512
      else { throw FrameError("a value of \(length) octets; it has a port, a handle and at most 512 octets") }
      return .value(port: port, AttributeHandle(rawValue: handle), Array(contents.readableBytesView))
    case .values:
      guard let peer = contents.readUUIDBytes(),
        let handle = contents.readInteger(endianness: .little, as: UInt16.self),
        let values = BrokerValues(octets: Array(contents.readableBytesView))
      else { throw FrameError("values of \(length) octets, whose lengths do not add up") }
      return .values(peer, AttributeHandle(rawValue: handle), values)
    case .credit:
      guard let port = contents.readInteger(endianness: .little, as: UInt32.self),
        let octets = contents.readInteger(endianness: .little, as: UInt32.self), contents.readableBytes == 0
      else { throw FrameError("a credit of \(length) octets; it has 9") }
      return .credit(port: port, octets)
    case .control: return .control(String(buffer: contents))
    case .line: return .line(String(buffer: contents))
    case .end: return .end(String(buffer: contents))
    case nil: throw FrameError("a frame of the unknown kind \(number)")
    }
  }
}

/// What the other end of the socket has done wrong.
struct FrameError: Error, Equatable, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

extension Error {
  /// Where in a JSON text, and what is wrong there.
  var cause: String {
    switch self as? DecodingError {
    case .dataCorrupted(let context), .keyNotFound(_, let context), .typeMismatch(_, let context),
      .valueNotFound(_, let context):
      let path = context.codingPath.map(\.stringValue).joined(separator: ".")
      return (path.isEmpty ? "" : "at \(path): ") + context.debugDescription
    default: return "\(self)"
    }
  }
}

extension ByteBuffer {
  fileprivate mutating func writeUUIDBytes(_ uuid: UUID) {
    _ = unsafe withUnsafeBytes(of: uuid.uuid) { unsafe writeBytes($0) }
  }
  fileprivate mutating func readUUIDBytes() -> UUID? {
    guard let octets = readSlice(length: 16) else { return nil }
    // `UUID()` would be a random one, which costs three system calls.
    var uuid: uuid_t = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    unsafe withUnsafeMutableBytes(of: &uuid) { unsafe $0.copyBytes(from: octets.readableBytesView) }
    return UUID(uuid: uuid)
  }
}
