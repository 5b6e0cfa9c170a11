import BindruneSystem
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
      let before = try FileDescriptor.pipeEnds(),
        after: (readEnd: FileDescriptor, writeEnd: FileDescriptor)
      defer {
        try? before.readEnd.close()
        try? before.writeEnd.close()
      }
      after = try FileDescriptor.pipeEnds()
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

  private static func start(
    _ file: FileDescriptor, _ before: FileDescriptor, _ output: FileDescriptor
  ) throws(Errno) -> pid_t {
    let files: [ChildProcess.File] = [
      .copy(file, as: STDIN_FILENO), .copy(output, as: STDOUT_FILENO),
      // After those: 10 may be the number of one of them.
      .copy(before, as: 10), .nothing(as: STDERR_FILENO),
    ]
    // A process that ignores SIGPIPE would pass that on, and gzip would unpack what is no longer read.
    return try ChildProcess.start(
      "/bin/sh", ["sh", "-c", "cat /dev/fd/10 - | gzip -dc"], files: files, signals: .defaults([SIGPIPE]),
      hasOwnGroup: false)
  }

  /// Closes the pipe and does not wait for gzip, which ends with its next output, or with the file that it reads: that
  /// may be a pipe on which nothing comes. A later call takes its status.
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
      children.removeAll { ChildProcess.status(of: $0) != nil }
    }
  }

  /// Closes the pipe and waits for gzip, which then ends at once. Its exit status, the first time; 128 + n: signal n.
  func finish() -> CInt? {
    guard let child else { return nil }
    try? output.close()
    self.child = nil
    return ChildProcess.wait(for: child)
  }
}
