import CBindruneSystem
import DequeModule
import Glibc

/// The address of a socket.
public enum SocketAddress: Sendable, Hashable, CustomStringConvertible {
  /// Port 0, for listening only: the system chooses one.
  case tcp(host: String, port: Int)
  /// At most 107 octets of UTF-8.
  case unix(path: String)

  public var description: String {
    switch self {
    case .tcp(let host, let port): host.contains(":") ? "tcp:[\(host)]:\(port)" : "tcp:\(host):\(port)"
    case .unix(let path): "unix:" + path
    }
  }
}

/// How a socket separates messages.
public enum MessageFraming: Sendable {
  /// ATT PDUs: packets of a SOCK_SEQPACKET socket; on TCP each with its length in front, two octets, least significant
  /// first.
  case pdus
  /// Lines of text, on a stream of either kind.
  case lines
}

/// A closed socket, or a failure with the call and the system's reason.
public struct SocketError: Error, Sendable, Equatable, CustomStringConvertible {
  public var description: String
}

/// A socket that carries messages, for a single-threaded caller. It blocks only in the calls that have a time limit.
public final class MessageSocket {
  public enum Received: Sendable, Equatable {
    case message([UInt8])
    case nothing
    case closed
  }
  fileprivate let descriptor: CInt
  private let isPacket: Bool
  private let framing: MessageFraming
  /// Octets of the next messages, on a stream, from `start` on.
  private var rest: [UInt8] = []
  private var start = 0
  /// Messages that the other end has not accepted yet, and the octets sent of the first.
  private var unsent = Deque<[UInt8]>()
  private var sent = 0
  private var isClosed = false

  private init(_ descriptor: CInt, isPacket: Bool, _ framing: MessageFraming) {
    self.descriptor = descriptor
    self.isPacket = isPacket
    self.framing = framing
  }
  deinit { Glibc.close(descriptor) }

  public static func connect(to address: SocketAddress, _ framing: MessageFraming) throws(SocketError) -> MessageSocket
  {
    let (descriptor, isPacket) = try unsafe makeSocket(address, framing) { descriptor, address, length in
      unsafe Glibc.connect(descriptor, address, length)
    }
    return MessageSocket(descriptor, isPacket: isPacket, framing)
  }

  /// True while messages wait because the other end does not read. Each further `send` then needs more memory.
  public var hasUnsent: Bool { !unsent.isEmpty }

  /// Sends a message, or keeps what the other end does not accept yet. False when the other end has closed.
  public func send(_ message: [UInt8]) throws(SocketError) -> Bool {
    switch framing {
    case .pdus where isPacket: unsent.append(message)
    case .pdus:
      unsent.append(
        [UInt8(truncatingIfNeeded: message.count), UInt8(truncatingIfNeeded: message.count >> 8)] + message)
    case .lines: unsent.append(message + [UInt8(ascii: "\n")])
    }
    return try flush()
  }
  /// The same, but waits until the other end has accepted it, for at most `time`.
  public func send(_ message: [UInt8], within time: Duration) throws(SocketError) -> Bool {
    let clock = ContinuousClock(), end = clock.now + time
    var isThere = try send(message)
    while isThere, hasUnsent {
      let left = end - clock.now
      guard left > .zero else {
        throw SocketError(description: "The other end has accepted nothing for \(time.components.seconds) s.")
      }
      try Self.wait(for: [self], [], within: left)
      isThere = try flush()
    }
    return isThere
  }
  /// Sends as much of the waiting messages as the other end accepts now. False when the other end has closed.
  public func flush() throws(SocketError) -> Bool {
    while let message = unsent.first {
      let count = unsafe message.withUnsafeBytes { bytes in
        let rest = unsafe UnsafeRawBufferPointer(rebasing: bytes[sent...])
        return unsafe Glibc.send(descriptor, rest.baseAddress, rest.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
      }
      if count < 0 {
        if errno == EINTR { continue }
        if errno == EAGAIN { return true }
        if errno == EPIPE || errno == ECONNRESET { return false }
        throw failure("send")
      }
      sent += count
      if sent == message.count {
        unsent.removeFirst()
        sent = 0
      }
    }
    return true
  }

  /// Waits until one of `sockets` can send its waiting messages, or has something to read, or its end, while nothing
  /// waits; or until one of `listeners` has a connection; for at most `time`.
  public static func wait(
    for sockets: [MessageSocket?], _ listeners: [MessageListener?], within time: Duration
  ) throws(SocketError) {
    var entries = sockets.compactMap(\.self).map {
      pollfd(fd: $0.descriptor, events: Int16($0.hasUnsent ? POLLOUT : POLLIN), revents: 0)
    }
    entries += listeners.compactMap(\.self).map { pollfd(fd: $0.descriptor, events: Int16(POLLIN), revents: 0) }
    let milliseconds = CInt(clamping: (max(time, .zero).nanoseconds + 999_999) / 1_000_000)
    let ready = unsafe poll(&entries, nfds_t(entries.count), milliseconds)
    if ready < 0, errno != EINTR { throw SocketError("poll", errno) }
  }

  /// The next message, after at most `time`.
  public func receive(within time: Duration) throws(SocketError) -> Received {
    let clock = ContinuousClock(), end = clock.now + time
    while true {
      if let message = takeMessage() { return .message(message) }
      if isClosed { return .closed }
      let left = max(end - clock.now, .zero)
      var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
      let ready = unsafe poll(&entry, 1, CInt(clamping: (left.nanoseconds + 999_999) / 1_000_000))
      if ready < 0, errno != EINTR { throw failure("poll") }
      if ready > 0 {
        if let packet = try read() { return .message(packet) }
      } else if left == .zero {
        return .nothing
      }
    }
  }

  /// Reads what is available. A packet is returned, a stream's octets are kept.
  private func read() throws(SocketError) -> [UInt8]? {
    var buffer = [UInt8](repeating: 0, count: 65_536)
    let count = unsafe buffer.withUnsafeMutableBytes { room in
      unsafe recv(descriptor, room.baseAddress, room.count, 0)
    }
    if count < 0 {
      if errno == EINTR || errno == EAGAIN { return nil }
      if errno != ECONNRESET { throw failure("recv") }
    }
    // A SEQPACKET socket also returns 0 for an empty packet; no PDU is empty, so it means the end.
    if count <= 0 {
      isClosed = true
      return nil
    }
    if isPacket { return Array(buffer[..<count]) }
    rest.removeFirst(start)
    start = 0
    rest += buffer[..<count]
    if framing == .lines, rest.count > 1 << 20 {
      throw SocketError(description: "A line of more than a megabyte was received.")
    }
    return nil
  }

  private func takeMessage() -> [UInt8]? {
    switch framing {
    case .pdus:
      guard !isPacket, rest.count >= start + 2 else { return nil }
      let first = start + 2, count = Int(rest[start]) | Int(rest[start + 1]) << 8
      guard rest.count >= first + count else { return nil }
      start = first + count
      return Array(rest[first..<start])
    case .lines:
      guard let end = rest[start...].firstIndex(of: UInt8(ascii: "\n")) else { return nil }
      defer { start = end + 1 }
      return Array(rest[start..<end])
    }
  }

  private func failure(_ call: String) -> SocketError { SocketError(call, errno) }
}

/// A listening socket.
public final class MessageListener {
  fileprivate let descriptor: CInt
  private let isPacket: Bool
  private let framing: MessageFraming
  private let path: String?
  /// The address to connect to, with the port that the system chose.
  public let address: SocketAddress

  public init(on address: SocketAddress, _ framing: MessageFraming) throws(SocketError) {
    if case .unix(let path) = address { Self.removeDeadSocket(path) }
    (descriptor, isPacket) = try unsafe makeSocket(address, framing) { descriptor, address, length in
      var yes: CInt = 1
      unsafe setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<CInt>.size))
      return unsafe bind(descriptor, address, length)
    }
    self.framing = framing
    guard listen(descriptor, 16) == 0 else { throw SocketError("listen", errno) }
    switch address {
    case .unix(let path):
      self.path = path
      self.address = address
    case .tcp(let host, let port):
      path = nil
      self.address = .tcp(host: host, port: port == 0 ? Self.port(of: descriptor) : port)
    }
  }
  deinit {
    close(descriptor)
    if let path { unsafe unlink(path) }
  }

  /// The next connection; nil if there is none within `time`.
  public func accept(within time: Duration) throws(SocketError) -> MessageSocket? {
    var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    let ready = unsafe poll(&entry, 1, CInt(clamping: time.nanoseconds / 1_000_000))
    guard ready > 0 else {
      if ready < 0, errno != EINTR { throw SocketError("poll", errno) }
      return nil
    }
    let accepted = bindrune_accept(descriptor, 0)
    guard accepted >= 0 else {
      if errno == EINTR || errno == ECONNABORTED || errno == EAGAIN { return nil }
      throw SocketError("accept", errno)
    }
    setNoDelay(accepted)
    return MessageSocket(accepted: accepted, isPacket: isPacket, framing)
  }

  /// Removes a socket file without a listener, which a dead program left behind.
  private static func removeDeadSocket(_ path: String) {
    var status = stat()
    guard unsafe stat(path, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK else { return }
    if (try? MessageSocket.connect(to: .unix(path: path), .pdus)) != nil { return }
    if (try? MessageSocket.connect(to: .unix(path: path), .lines)) != nil { return }
    unsafe unlink(path)
  }
  private static func port(of descriptor: CInt) -> Int {
    var address = sockaddr_in6(), length = socklen_t(MemoryLayout<sockaddr_in6>.size)
    _ = unsafe withUnsafeMutablePointer(to: &address) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe getsockname(descriptor, $0, &length) }
    }
    // The port has the same offset in both families.
    return Int(UInt16(bigEndian: address.sin6_port))
  }
}

extension MessageSocket {
  fileprivate convenience init(accepted: CInt, isPacket: Bool, _ framing: MessageFraming) {
    self.init(accepted, isPacket: isPacket, framing)
  }
}

extension SocketError {
  fileprivate init(_ call: String, _ number: CInt) {
    description = unsafe "\(call): \(String(cString: strerror(number)))"
  }
}

/// Creates a socket for `address` and lets `use` connect or bind it.
private func makeSocket(
  _ address: SocketAddress, _ framing: MessageFraming,
  _ use: (CInt, UnsafePointer<sockaddr>, socklen_t) -> CInt
) throws(SocketError) -> (CInt, isPacket: Bool) {
  switch address {
  case .unix(let path):
    let isPacket = framing == .pdus
    let kind = isPacket ? SOCK_SEQPACKET : SOCK_STREAM
    let descriptor = bindrune_socket(AF_UNIX, CInt(kind.rawValue), 0)
    guard descriptor >= 0 else { throw SocketError("socket", errno) }
    var name = sockaddr_un()
    name.sun_family = sa_family_t(AF_UNIX)
    let octets = Array(path.utf8)
    guard octets.count < MemoryLayout.size(ofValue: name.sun_path) else {
      close(descriptor)
      throw SocketError(description: "The path of \(address) is too long for a socket; 107 octets are the limit.")
    }
    unsafe withUnsafeMutableBytes(of: &name.sun_path) { room in unsafe room.copyBytes(from: octets) }
    let result = unsafe withUnsafePointer(to: &name) { pointer in
      unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe use(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    guard result == 0 else {
      let number = errno
      close(descriptor)
      throw SocketError("\(address)", number)
    }
    return (descriptor, isPacket)
  case .tcp(let host, let port):
    var hints = unsafe addrinfo(), list: UnsafeMutablePointer<addrinfo>?
    unsafe hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
    let status = unsafe getaddrinfo(host, String(port), &hints, &list)
    guard status == 0 else {
      throw SocketError(description: unsafe "\(address): \(String(cString: gai_strerror(status)))")
    }
    defer { unsafe freeaddrinfo(list) }
    var next = unsafe list, number = ENOENT
    while let info = unsafe next {
      unsafe next = info.pointee.ai_next
      let descriptor = unsafe bindrune_socket(info.pointee.ai_family, CInt(SOCK_STREAM.rawValue), 0)
      guard descriptor >= 0 else { continue }
      if let name = unsafe info.pointee.ai_addr, unsafe use(descriptor, name, info.pointee.ai_addrlen) == 0 {
        setNoDelay(descriptor)
        return (descriptor, false)
      }
      number = errno
      close(descriptor)
    }
    throw SocketError("\(address)", number)
  }
}

/// Sends a PDU without delay. Fails on a unix socket, which has no delay.
private func setNoDelay(_ descriptor: CInt) {
  var yes: CInt = 1
  _ = unsafe setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<CInt>.size))
}
