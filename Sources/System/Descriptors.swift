import CBindruneSystem
import Glibc
import SystemPackage

/// How all modules make descriptors: by the functions of CBindruneSystem. Each is closed in programs that this process
/// starts, from its first moment: a flag that is set afterwards comes too late for a child that another thread starts
/// in between, and then a socket stays open after the process that it belongs to, as the app's does for bindruned.
///
/// `ArrowTests` forbids the system's own calls elsewhere. opendir(3), pidfd_open(2) and SO_PEERPIDFD set the flag
/// themselves. NIO does not for its sockets, so its channels get sockets from here (`StreamSocket`, `StreamListener`).
extension FileDescriptor {
  /// open(2).
  package static func opened(
    _ path: FilePath, _ mode: AccessMode, options: OpenOptions = [], permissions: FilePermissions? = nil
  ) throws(Errno) -> FileDescriptor {
    let permissions = Int32(permissions?.rawValue ?? 0)
    return try made(
      unsafe path.withPlatformString {
        unsafe bindrune_open($0, mode.rawValue | options.rawValue, permissions)
      })
  }
  /// memfd_create(2): a file without a place, which is gone with its last descriptor.
  package static func inMemory(_ name: String) throws(Errno) -> FileDescriptor {
    try made(unsafe bindrune_memory_file(name))
  }
  /// pipe2(2).
  package static func pipeEnds() throws(Errno) -> (readEnd: FileDescriptor, writeEnd: FileDescriptor) {
    var ends: [CInt] = [-1, -1]
    guard unsafe bindrune_pipe(&ends) == 0 else { throw Errno(rawValue: errno) }
    return (FileDescriptor(rawValue: ends[0]), FileDescriptor(rawValue: ends[1]))
  }
  /// socket(2).
  package static func socket(
    _ family: CInt, _ kind: SocketKind, _ protocolNumber: CInt = 0, isNonBlocking: Bool = false
  ) throws(Errno) -> FileDescriptor {
    let flags = isNonBlocking ? CInt(SOCK_NONBLOCK.rawValue) : 0
    return try made(bindrune_socket(family, kind.number | flags, protocolNumber))
  }
  package enum SocketKind: Sendable {
    case stream, packets, datagrams, raw
    /// socket(2)'s `type`.
    package var number: CInt {
      let type =
        switch self {
        case .stream: SOCK_STREAM
        case .packets: SOCK_SEQPACKET
        case .datagrams: SOCK_DGRAM
        case .raw: SOCK_RAW
        }
      return CInt(type.rawValue)
    }
  }
  /// accept4(2): the next connection of a listening socket.
  package func accepted(isNonBlocking: Bool = false) throws(Errno) -> FileDescriptor {
    try Self.made(bindrune_accept(rawValue, isNonBlocking ? CInt(SOCK_NONBLOCK.rawValue) : 0))
  }
  /// fcntl(2): another descriptor of the same file, with the least free number from `least` on.
  package func copied(from least: CInt = 0) throws(Errno) -> FileDescriptor {
    try Self.made(bindrune_copy(rawValue, least))
  }
  private static func made(_ number: CInt) throws(Errno) -> FileDescriptor {
    if number < 0 { throw Errno(rawValue: errno) }
    return FileDescriptor(rawValue: number)
  }

  /// dup2(2): the file becomes this process's standard stream, which children inherit, as they do all three.
  package func replace(_ stream: FileDescriptor) { _ = Glibc.dup2(rawValue, stream.rawValue) }
  /// Opens /dev/null, for a standard stream that was closed when this process began.
  package static func openNothing() { _ = try? FileDescriptor.open(FilePath("/dev/null"), .readOnly) }

  /// One that this process has not made: from its parent, such as systemd's sockets, or by a library without the flag.
  package func closeInChildren() { _ = fcntl(rawValue, F_SETFD, FD_CLOEXEC) }
}

/// The contents of a small file of /proc; nil: it cannot be read.
package func octets(ofProcFile path: String) -> [UInt8]? {
  guard let file = try? FileDescriptor.opened(FilePath(path), .readOnly) else { return nil }
  defer { try? file.close() }
  var octets = [UInt8](repeating: 0, count: 4096)
  guard let count = unsafe try? octets.withUnsafeMutableBytes({ unsafe try file.read(into: $0) }) else { return nil }
  return Array(octets[..<count])
}
