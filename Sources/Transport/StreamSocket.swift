import BindruneSystem
import Dispatch
import Glibc
import NIOCore
import NIOPosix
import SystemPackage

/// Sockets for NIO's channels, which are closed in children from their first moment: NIO's own are not. Unix sockets,
/// and TCP.
package enum StreamSocket {
  // MARK: Unix sockets: unix(7)

  /// A socket that is connected to the one at `path`.
  package static func connected(toPath path: String, isNonBlocking: Bool = true) throws(Errno) -> FileDescriptor {
    try unsafe unixSocket(path, isNonBlocking: isNonBlocking) { unsafe Glibc.connect($0, $1, $2) }
  }
  /// A socket that listens at `path`. `replaces`: an existing socket there is removed; anything else is `.notSocket`.
  package static func listening(atPath path: String, replaces: Bool) throws(Errno) -> FileDescriptor {
    let name = FilePath(text: path)
    if replaces, let status = try? name.stat(followTargetSymlink: false) {
      guard status.type == .socket else { throw .notSocket }
      try name.remove()
    }
    return try listening(try unsafe unixSocket(path, isNonBlocking: true) { unsafe Glibc.bind($0, $1, $2) })
  }
  /// A socket that listens at `path`, in the place of a socket that is there; anything else there is `.notSocket`.
  /// `group`: of the file; nil: this process's.
  ///
  /// The file has its group and mode before it has its name. Who connects meanwhile finds the socket before it or none,
  /// and is not refused.
  package static func listening(
    atPath path: String, mode: FilePermissions, group: gid_t?
  ) throws(Errno) -> FileDescriptor {
    let name = FilePath(text: path), draft = path + "~"
    if let status = try? name.stat(followTargetSymlink: false), status.type != .socket { throw .notSocket }
    let socket = try listening(atPath: draft, replaces: true)
    do throws(Errno) {
      return try closing(socket) { () throws(Errno) in
        if let group { try Errno.check { unsafe chown(draft, uid_t.max, group) } }
        try Errno.check { unsafe chmod(draft, mode.rawValue) }
        try FilePath(text: draft).rename(to: name)
      }
    } catch {
      try? FilePath(text: draft).remove()
      throw error
    }
  }
  /// Octets of UTF-8 of such a path: the draft's name has one more.
  package static var longestPathWithMode: Int { TransportSpec.longestPath - 1 }
  private static func unixSocket(
    _ path: String, isNonBlocking: Bool, _ use: (CInt, UnsafePointer<sockaddr>, socklen_t) -> CInt
  ) throws(Errno) -> FileDescriptor {
    let octets = Array(path.utf8)
    guard octets.count <= TransportSpec.longestPath else { throw .fileNameTooLong }
    var name = sockaddr_un()
    name.sun_family = sa_family_t(AF_UNIX)
    unsafe withUnsafeMutableBytes(of: &name.sun_path) { unsafe $0.copyBytes(from: octets) }
    let socket = try FileDescriptor.socket(AF_UNIX, .stream, isNonBlocking: isNonBlocking)
    return try closing(socket) { () throws(Errno) in
      _ = try Errno.check {
        unsafe withUnsafePointer(to: &name) {
          unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            unsafe use(socket.rawValue, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
          }
        }
      }
    }
  }

  // MARK: TCP: tcp(7)

  /// A socket that is connected to the first address of `host` that answers, each in its share of `time`. Blocks its
  /// thread.
  package static func connected(toHost host: String, port: Int, within time: Duration) throws -> FileDescriptor {
    let clock = ContinuousClock(), end = clock.now + time
    var failure: (any Error)?, addresses = try resolved(host, port)[...]
    while let address = addresses.popFirst() {
      let share = (end - clock.now) / (addresses.count + 1)
      do { return try connected(to: address, within: max(share, .milliseconds(1))) } catch {
        failure = failure as? Errno == .connectionRefused ? failure : error
      }
    }
    throw failure ?? Errno.addressNotAvailable
  }
  private static func connected(to address: Address, within time: Duration) throws(Errno) -> FileDescriptor {
    let socket = try FileDescriptor.socket(address.family, .stream, isNonBlocking: true)
    return try closing(socket) { () throws(Errno) in
      do throws(Errno) {
        try Errno.check { unsafe address.withName { unsafe Glibc.connect(socket.rawValue, $0, $1) } }
        return
      } catch { if error != .nowInProgress { throw error } }
      var state = pollfd(fd: socket.rawValue, events: Int16(POLLOUT), revents: 0)
      let (seconds, attoseconds) = time.components
      let milliseconds = seconds * 1_000 + attoseconds / 1_000_000_000_000_000
      while unsafe poll(&state, 1, CInt(clamping: milliseconds)) < 0 {
        if errno != EINTR { throw Errno(rawValue: errno) }
      }
      if state.revents == 0 { throw .timedOut }
      var error: CInt = 0, size = socklen_t(MemoryLayout<CInt>.size)
      try Errno.check { unsafe getsockopt(socket.rawValue, SOL_SOCKET, SO_ERROR, &error, &size) }
      if error != 0 { throw Errno(rawValue: error) }
    }
  }
  /// A socket that listens at the first address of `host` that can be used. Blocks its thread.
  package static func listening(atHost host: String, port: Int) throws -> FileDescriptor {
    var failure: (any Error)?
    for address in try resolved(host, port) {
      do throws(Errno) {
        let socket = try FileDescriptor.socket(address.family, .stream, isNonBlocking: true)
        var yes: CInt = 1
        unsafe setsockopt(socket.rawValue, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<CInt>.size))
        return try listening(
          try closing(socket) { () throws(Errno) in
            _ = try Errno.check { unsafe address.withName { unsafe Glibc.bind(socket.rawValue, $0, $1) } }
          })
      } catch { failure = failure ?? error }
    }
    throw failure ?? Errno.addressNotAvailable
  }
  private struct Address {
    let family: CInt
    /// A `sockaddr` of the family.
    var name: [UInt8]
    func withName(_ use: (UnsafePointer<sockaddr>, socklen_t) -> CInt) -> CInt {
      unsafe name.withUnsafeBytes { bytes in
        guard let start = bytes.baseAddress else { return -1 }
        return unsafe use(start.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
      }
    }
  }
  private static func resolved(_ host: String, _ port: Int) throws -> [Address] {
    var hints = unsafe addrinfo(), list: UnsafeMutablePointer<addrinfo>?
    unsafe hints.ai_socktype = FileDescriptor.SocketKind.stream.number
    guard unsafe getaddrinfo(host, "\(port)", &hints, &list) == 0 else {
      throw Errno.addressNotAvailable
    }
    defer { unsafe freeaddrinfo(list) }
    var addresses: [Address] = [], next = unsafe list
    while let info = unsafe next {
      unsafe next = info.pointee.ai_next
      guard let name = unsafe info.pointee.ai_addr else { continue }
      let octets = unsafe UnsafeRawBufferPointer(start: name, count: Int(info.pointee.ai_addrlen))
      unsafe addresses.append(Address(family: info.pointee.ai_family, name: Array(octets)))
    }
    return addresses
  }

  private static func listening(_ socket: FileDescriptor) throws(Errno) -> FileDescriptor {
    try closing(socket) { () throws(Errno) in _ = try Errno.check { Glibc.listen(socket.rawValue, 256) } }
  }
  /// Closes the socket if `body` throws.
  private static func closing(_ socket: FileDescriptor, _ body: () throws(Errno) -> Void) throws(Errno)
    -> FileDescriptor
  {
    do throws(Errno) {
      try body()
      return socket
    } catch {
      try? socket.close()
      throw error
    }
  }
}

/// Accepts the connections of a listening socket, until it is closed.
package final class StreamListener: @unchecked Sendable {
  // Sendable: everything that changes is on the queue.
  private let descriptor: FileDescriptor
  private let source: any DispatchSourceRead
  private let queue = DispatchQueue(label: "bindrune.listener")
  /// The file of a Unix socket, which is removed at the end if it is still that one.
  private let file: (path: FilePath, status: Stat)?
  private var isClosed = false
  private var waiting: [CheckedContinuation<Void, Never>] = []

  /// It owns the socket. `path`: of the socket's file, if it is to be removed at the end. `accept` owns each
  /// connection, which does not block.
  package init(
    _ listening: FileDescriptor, removing path: String? = nil, accept: @escaping @Sendable (FileDescriptor) -> Void
  ) {
    descriptor = listening
    _ = fcntl(listening.rawValue, F_SETFL, fcntl(listening.rawValue, F_GETFL) | O_NONBLOCK)
    file = path.flatMap { path in
      let path = FilePath(text: path)
      return (try? path.stat(followTargetSymlink: false)).map { (path, $0) }
    }
    source = DispatchSource.makeReadSource(fileDescriptor: listening.rawValue, queue: queue)
    source.setEventHandler { [self] in acceptAll(accept) }
    source.setCancelHandler { [self] in
      // Closing is not enough: a forked child also has the descriptor until its `exec`, and connections would wait there.
      _ = Glibc.shutdown(descriptor.rawValue, CInt(SHUT_RDWR))
      try? descriptor.close()
      removeFile()
      isClosed = true
      for continuation in waiting { continuation.resume() }
      waiting = []
    }
    source.activate()
  }
  private func acceptAll(_ accept: (FileDescriptor) -> Void) {
    while !source.isCancelled {
      do throws(Errno) { accept(try descriptor.accepted(isNonBlocking: true)) } catch {
        switch error {
        case .interrupted, .connectionAbort: continue
        case .resourceTemporarilyUnavailable: return
        default:
          // This process has no descriptor left: without a pause it would spin, as the connection stays.
          source.suspend()
          queue.asyncAfter(deadline: .now() + .milliseconds(100)) { [self] in source.resume() }
          return
        }
      }
    }
  }
  private func removeFile() {
    guard let (path, before) = file, let now = try? path.stat(followTargetSymlink: false),
      now.deviceID == before.deviceID, now.inode == before.inode
    else { return }
    try? path.remove()
  }

  /// The port that the system chose; nil: not TCP.
  package var port: Int? {
    var name = sockaddr_in6(), size = socklen_t(MemoryLayout<sockaddr_in6>.size)
    let result = unsafe withUnsafeMutablePointer(to: &name) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe getsockname(descriptor.rawValue, $0, &size) }
    }
    guard result == 0, [AF_INET, AF_INET6].contains(CInt(name.sin6_family)) else { return nil }
    // The port has the same offset in both families.
    return Int(UInt16(bigEndian: name.sin6_port))
  }
  /// The path of a Unix socket; nil: it has none.
  package var path: String? {
    var name = sockaddr_un(), size = socklen_t(MemoryLayout<sockaddr_un>.size)
    let result = unsafe withUnsafeMutablePointer(to: &name) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe getsockname(descriptor.rawValue, $0, &size) }
    }
    guard result == 0, CInt(name.sun_family) == AF_UNIX else { return nil }
    let path = unsafe withUnsafeBytes(of: &name.sun_path) {
      unsafe String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
    }
    return path.isEmpty ? nil : path
  }

  /// Accepts no more, and returns when the socket and its file are gone. Accepted connections stay.
  package func close() async {
    await withCheckedContinuation { (done: CheckedContinuation<Void, Never>) in
      queue.async { [self] in
        if isClosed { return done.resume() }
        waiting.append(done)
        source.cancel()
      }
    }
  }
}
