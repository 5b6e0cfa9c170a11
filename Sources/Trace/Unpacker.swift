import BindruneSystem
import Glibc
import Synchronization
import SystemPackage

/// The program `gzip`, which unpacks a file while it is read. Decision 0050 says why it is a program; Decision 0080 how
/// it unpacks zip's entries and zlib's streams too.
final class Unpacker {
  let output: FileDescriptor
  /// gzip's status says whether the octets were whole.
  let isChecked: Bool
  private var child: pid_t?

  /// The first octets of gzip's files. RFC 1952, §2.3.1.
  static var magic: [UInt8] { [0x1F, 0x8B] }
  /// A gzip member's header without a name and a time, for a deflate stream that has another one. RFC 1952, §2.3.
  static var header: [UInt8] { magic + [8, 0, 0, 0, 0, 0, 0, 0xFF] }

  /// Unpacks `file` from its place on, of which `before` has already been read: a pipe cannot be rewound, so another
  /// one brings it back. `isChecked`: false for a stream without gzip's trailer, whose end gzip takes for damage.
  convenience init(_ file: FileDescriptor, before: [UInt8], isChecked: Bool = true) throws(Errno) {
    try self.init(file, before, after: [], isChecked: isChecked, "cat /dev/fd/10 - | gzip -dc")
  }
  /// Unpacks an entry of a zip archive: `file` is at its first octet. `size` octets follow; gzip checks the trailer.
  convenience init(_ file: FileDescriptor, deflated size: UInt32, trailer: [UInt8]) throws(Errno) {
    try self.init(
      file, Self.header, after: trailer, isChecked: true,
      "{ cat /dev/fd/10; head -c \(size); cat /dev/fd/11; } | gzip -dc")
  }
  /// An entry that is not compressed.
  convenience init(_ file: FileDescriptor, stored size: UInt32) throws(Errno) {
    try self.init(file, [], after: [], isChecked: true, "head -c \(size)")
  }

  /// `before` and `after`: the octets of descriptors 10 and 11, fewer than a pipe holds.
  private init(
    _ file: FileDescriptor, _ before: [UInt8], after: [UInt8], isChecked: Bool, _ script: String
  ) throws(Errno) {
    Self.collect()
    self.isChecked = isChecked
    let first = try Self.pipe(before)
    defer { try? first.close() }
    let last = try Self.pipe(after)
    defer { try? last.close() }
    let ends = try FileDescriptor.pipeEnds()
    defer { try? ends.writeEnd.close() }
    output = ends.readEnd
    let files: [ChildProcess.File] = [
      .copy(file, as: STDIN_FILENO), .copy(ends.writeEnd, as: STDOUT_FILENO),
      // After those: 10 may be the number of one of them.
      .copy(first, as: 10), .copy(last, as: 11), .nothing(as: STDERR_FILENO),
    ]
    do throws(Errno) {
      // A process that ignores SIGPIPE would pass that on, and gzip would unpack what is no longer read.
      child = try ChildProcess.start(
        "/bin/sh", ["sh", "-c", script], files: files, signals: .defaults([SIGPIPE]), hasOwnGroup: false)
    } catch {
      try? output.close()
      throw error
    }
  }
  /// A pipe that has these octets, and then ends. Its number is one that no step of a child takes.
  private static func pipe(_ octets: [UInt8]) throws(Errno) -> FileDescriptor {
    let ends = try FileDescriptor.pipeEnds()
    defer {
      try? ends.readEnd.close()
      try? ends.writeEnd.close()
    }
    do { _ = unsafe try octets.withUnsafeBytes { unsafe try ends.writeEnd.write($0) } } catch {
      throw error as? Errno ?? .ioError
    }
    return try ends.readEnd.copied(from: 12)
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
