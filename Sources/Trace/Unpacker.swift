import CBluetooth
import Glibc
import Synchronization
import SystemPackage

/// The program `gzip`, which unpacks a file while it is read. Decision 0050 says why it is a program.
final class Unpacker {
  let output: FileDescriptor
  private var child: pid_t?

  /// The first octets of gzip's files. RFC 1952, §2.3.1.
  static var magic: [UInt8] { [0x1F, 0x8B] }

  /// Unpacks `file`, of which `magic` has already been read: a pipe cannot be rewound, so another one brings it back.
  init(_ file: FileDescriptor) throws(Errno) {
    Self.collect()
    do {
      let before = try Self.pipe(),
        after: (readEnd: FileDescriptor, writeEnd: FileDescriptor)
      defer {
        try? before.readEnd.close()
        try? before.writeEnd.close()
      }
      after = try Self.pipe()
      defer { try? after.writeEnd.close() }
      _ = unsafe try Self.magic.withUnsafeBytes { unsafe try before.writeEnd.write($0) }
      do { child = try Self.start(file, before.readEnd, after.writeEnd) } catch {
        try? after.readEnd.close()
        throw error
      }
      output = after.readEnd
    } catch {
      throw error as? Errno ?? .ioError
    }
  }

  /// Closed in other programs from the beginning: one that another thread starts now would keep the pipe open.
  private static func pipe() throws(Errno) -> (readEnd: FileDescriptor, writeEnd: FileDescriptor) {
    var ends: [CInt] = [-1, -1]
    guard unsafe bindrune_pipe(&ends) == 0 else { throw Errno(rawValue: errno) }
    return (FileDescriptor(rawValue: ends[0]), FileDescriptor(rawValue: ends[1]))
  }
  private static func start(
    _ file: FileDescriptor, _ before: FileDescriptor, _ output: FileDescriptor
  ) throws(Errno) -> pid_t {
    var files = unsafe posix_spawn_file_actions_t(), attributes = posix_spawnattr_t(), signals = sigset_t()
    var child: pid_t = 0
    unsafe posix_spawn_file_actions_init(&files)
    unsafe posix_spawnattr_init(&attributes)
    defer {
      unsafe posix_spawn_file_actions_destroy(&files)
      unsafe posix_spawnattr_destroy(&attributes)
    }
    unsafe posix_spawn_file_actions_adddup2(&files, file.rawValue, STDIN_FILENO)
    unsafe posix_spawn_file_actions_adddup2(&files, output.rawValue, STDOUT_FILENO)
    // Last: 10 may be the number of one of those.
    unsafe posix_spawn_file_actions_adddup2(&files, before.rawValue, 10)
    unsafe posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0)
    // A process that ignores SIGPIPE would pass that on, and gzip would unpack what is no longer read.
    unsafe sigemptyset(&signals)
    unsafe sigaddset(&signals, SIGPIPE)
    unsafe posix_spawnattr_setsigdefault(&attributes, &signals)
    unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF))
    let words = ["sh", "-c", "cat /dev/fd/10 - | gzip -dc"]
    var arguments: [UnsafeMutablePointer<CChar>?] = unsafe words.map { unsafe strdup($0) }
    unsafe arguments.append(nil)
    let status = unsafe posix_spawn(&child, "/bin/sh", &files, &attributes, &arguments, environ)
    for place in unsafe arguments.indices { unsafe free(arguments[place]) }
    if status != 0 { throw Errno(rawValue: status) }
    return child
  }

  /// Closes the pipe and does not wait for gzip, which ends with its next output, or with the file that it reads: that may be
  /// a pipe on which nothing comes. A later call takes its status.
  func abandon() {
    guard let child else { return }
    try? output.close()
    self.child = nil
    Self.collect(child)
  }
  /// Abandoned processes whose status nobody has taken.
  private static let abandoned = Mutex<[pid_t]>([])
  private static func collect(_ child: pid_t? = nil) {
    abandoned.withLock { children in
      if let child { children.append(child) }
      children.removeAll { waitpid($0, nil, WNOHANG) != 0 }
    }
  }

  /// Closes the pipe and waits for gzip, which then ends at once. Its exit status, the first time; 128 + n: signal n.
  func finish() -> CInt? {
    guard let child else { return nil }
    try? output.close()
    self.child = nil
    var status: CInt = 0
    while unsafe waitpid(child, &status, 0) == -1, errno == EINTR {}
    return status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
  }
}

extension FileDescriptor {
  static func readable(_ path: FilePath) throws(Errno) -> FileDescriptor {
    let number = unsafe path.withPlatformString { unsafe bindrune_open($0, O_RDONLY, 0) }
    if number < 0 { throw Errno(rawValue: errno) }
    return FileDescriptor(rawValue: number)
  }
}
