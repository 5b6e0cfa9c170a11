// System calls that swift-system lacks, with its types: folders, locks, the clock.
import Glibc
import SystemPackage

// The interface of this module uses them.
@_exported import struct SystemPackage.Errno
@_exported import struct SystemPackage.FileDescriptor

extension Errno {
  /// The result of a C call that reports failure by −1 and `errno`. Not repeated after a signal.
  @discardableResult
  package static func check<Result: SignedInteger>(_ call: () -> Result) throws(Errno) -> Result {
    let result = call()
    if result == -1 { throw Errno(rawValue: errno) }
    return result
  }
  /// The result of a swift-system call without a declared error type: all of them throw Errno.
  package static func typed<Result>(_ call: () throws -> Result) throws(Errno) -> Result {
    do { return try call() } catch { throw error as? Errno ?? .ioError }
  }

  /// ENODEV, named by its meaning for an adapter.
  package static var noSuchDevice: Errno { .operationNotSupportedByDevice }
  // Errors without a name in swift-system.
  package static var blockedByRadioSwitch: Errno { Errno(rawValue: ERFKILL) }
  package static var badStateOfDescriptor: Errno { Errno(rawValue: EBADFD) }
}

extension FileDescriptor.OpenOptions {
  /// Opening a terminal does not make it the process's controlling one.
  package static var noControllingTerminal: Self { Self(rawValue: O_NOCTTY) }
}

extension FilePath {
  /// `text` up to its first zero, as C reads it; `init(_:)` does not accept zeros.
  package init(text: String) { self = unsafe text.withPlatformString { unsafe FilePath(platformString: $0) } }

  /// The names in a folder, sorted.
  package func names() throws(Errno) -> [String] {
    guard let folder = unsafe withPlatformString({ unsafe opendir($0) }) else { throw Errno(rawValue: errno) }
    defer { unsafe closedir(folder) }
    var names: [String] = []
    while let entry = unsafe readdir(folder) {
      let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) { pointer in
        unsafe String(cString: UnsafeRawPointer(pointer).assumingMemoryBound(to: CChar.self))
      }
      if name != ".", name != ".." { names.append(name) }
    }
    return names.sorted()
  }

  /// The target of a symbolic link, unresolved.
  package func target() throws(Errno) -> String {
    var octets = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = try Errno.check { unsafe withPlatformString { unsafe readlink($0, &octets, octets.count) } }
    return String(decoding: octets.prefix(count).lazy.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  /// The contents of a regular file. Follows no link, and does not wait for a pipe. Throws `.fileTooLarge` for more
  /// than `limit` octets, `.noSuchAddressOrDevice` for a file that is not regular.
  package func contents(upTo limit: Int) throws(Errno) -> [UInt8] { try contents(upTo: limit, isTrusted: false) }
  /// `isTrusted`: for `trustedContents`. Another user may have made the file since its path was examined.
  func contents(upTo limit: Int, isTrusted: Bool) throws(Errno) -> [UInt8] {
    try Errno.typed {
      let descriptor = try FileDescriptor.opened(
        self, .readOnly, options: [.noFollow, .nonBlocking, .noControllingTerminal])
      return try descriptor.closeAfter {
        let status = try descriptor.stat()
        guard status.type == .regular else { throw Errno.noSuchAddressOrDevice }
        if isTrusted, fault(of: status, isEnd: true, .file) != nil { throw Errno.notPermitted }
        let octets = try descriptor.readAll(upTo: limit + 1)
        if octets.count > limit { throw Errno.fileTooLarge }
        return octets
      }
    }
  }

  /// Makes a file with these contents, which only its owner may read. Throws `.fileExists` if the name is taken.
  package func create(_ octets: [UInt8]) throws(Errno) {
    let file = try Errno.typed {
      try FileDescriptor.opened(
        self, .writeOnly, options: [.create, .exclusiveCreate, .noFollow], permissions: .ownerReadWrite)
    }
    do throws(Errno) { try Errno.typed { try file.closeAfter { _ = try file.writeAll(octets) } } } catch {
      try? remove()
      throw error
    }
  }

  package func makeFolder(_ permissions: FilePermissions) throws(Errno) {
    try Errno.check { unsafe withPlatformString { unsafe mkdir($0, permissions.rawValue) } }
  }
  /// Makes the folder and those above it that are missing, with the mode 0700, and puts their names onto the disk.
  package func makeFolders() throws(Errno) {
    let parent = removingLastComponent()
    do throws(Errno) { try makeFolder(.ownerReadWriteExecute) } catch .fileExists { return } catch {
      guard error == .noSuchFileOrDirectory, !parent.isEmpty else { throw error }
      try parent.makeFolders()
      do throws(Errno) { try makeFolder(.ownerReadWriteExecute) } catch .fileExists {}
    }
    try (parent.isEmpty ? "." : parent).synchroniseFolder()
  }
  /// Replaces the file. A reader finds the old contents or the new ones, complete, whenever this process or the machine
  /// stops; after the return the new ones are on the disk. `draft` is a name in the same folder that nobody else uses
  /// meanwhile.
  package func replace(with octets: [UInt8], by draft: FilePath) throws(Errno) {
    do throws(Errno) {
      do throws(Errno) { try draft.remove() } catch .noSuchFileOrDirectory {}
      try Errno.typed {
        let descriptor = try FileDescriptor.opened(
          draft, .writeOnly, options: [.create, .exclusiveCreate, .noFollow],
          permissions: .ownerReadWrite)
        try descriptor.closeAfter {
          _ = try descriptor.writeAll(octets)
          try descriptor.synchronise()
        }
      }
      try draft.rename(to: self)
      let folder = removingLastComponent()
      try (folder.isEmpty ? "." : folder).synchroniseFolder()
    } catch {
      try? draft.remove()
      throw error
    }
  }
  /// Puts the names in the folder onto the disk.
  package func synchroniseFolder() throws(Errno) {
    try Errno.typed {
      let descriptor = try FileDescriptor.opened(self, .readOnly, options: [.directory])
      try descriptor.closeAfter {
        // A file system that cannot do so for a folder says EINVAL.
        do throws(Errno) { try descriptor.synchronise() } catch .invalidArgument {}
      }
    }
  }
  package func remove() throws(Errno) { try Errno.check { unsafe withPlatformString { unsafe unlink($0) } } }
  /// Renames the file to `path`, replacing any file there.
  package func rename(to path: FilePath) throws(Errno) {
    try Errno.check {
      unsafe withPlatformString { old in unsafe path.withPlatformString { unsafe Glibc.rename(old, $0) } }
    }
  }
}

extension FileDescriptor {
  /// The rest of the file, at most `limit` octets. Files of /proc and /sys do not report their size.
  package func readAll(upTo limit: Int) throws(Errno) -> [UInt8] {
    var octets: [UInt8] = [], part = [UInt8](repeating: 0, count: 16_384)
    while octets.count < limit {
      let count = try Errno.typed {
        try unsafe part.withUnsafeMutableBytes {
          try unsafe read(into: .init(rebasing: $0.prefix(limit - octets.count)))
        }
      }
      if count == 0 { break }
      octets += part.prefix(count)
    }
    return octets
  }

  /// flock(2). Throws `.resourceTemporarilyUnavailable` while another owner has it.
  package func lock() throws(Errno) {
    while true {
      do throws(Errno) {
        try Errno.check { flock(rawValue, LOCK_EX | LOCK_NB) }
        return
      } catch .interrupted {}
    }
  }
  package func unlock() { flock(rawValue, LOCK_UN) }

  /// fsync(2): returns when the file's contents are on the disk.
  package func synchronise() throws(Errno) { try Errno.check { fsync(rawValue) } }
}

/// Microseconds since 1970, from the system's clock.
package func wallClockMicroseconds() -> UInt64 {
  var time = timespec()
  unsafe clock_gettime(CLOCK_REALTIME, &time)
  return UInt64(clamping: time.tv_sec) &* 1_000_000 &+ UInt64(clamping: time.tv_nsec / 1_000)
}
