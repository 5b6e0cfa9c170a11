import CBindruneSystem
import Glibc

/// The text of a file of foreign origin.
package enum TextFile {
  /// The limit for a script or a database.
  private static var limit: Int { 1 << 20 }
  /// How long to wait for a pipe, in milliseconds.
  private static var patience: CInt { 10_000 }

  /// The whole file, at most a megabyte. A pipe is read to its end; one without a writer is empty.
  package static func read(_ path: String) throws(FileError) -> String {
    // Opening a pipe would otherwise wait for a writer.
    let descriptor = unsafe bindrune_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0)
    guard descriptor >= 0 else {
      throw FileError(
        path,
        errno == ENOENT || errno == ENOTDIR
          ? "no such file; check the path" : "cannot be read; check that it is a file, and its permissions")
    }
    defer { close(descriptor) }
    var status = stat()
    guard unsafe fstat(descriptor, &status) == 0, [S_IFREG, S_IFIFO].contains(status.st_mode & S_IFMT) else {
      throw FileError(path, "cannot be read; check that it is a file, and its permissions")
    }
    var octets: [UInt8] = [], part = [UInt8](repeating: 0, count: 65_536)
    while true {
      let count = unsafe part.withUnsafeMutableBytes { unsafe Glibc.read(descriptor, $0.baseAddress, $0.count) }
      if count == 0 { break }
      if count > 0 {
        octets += part[..<count]
        guard octets.count <= limit else {
          throw FileError(path, "more than a megabyte; no script or database is so long")
        }
      } else if errno == EAGAIN {
        var entry = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        guard unsafe poll(&entry, 1, patience) != 0 else {
          throw FileError(path, "this pipe has delivered nothing for 10 s; check that its writer is running")
        }
      } else if errno != EINTR {
        throw FileError(path, "cannot be read; check that it is a file, and its permissions")
      }
    }
    guard let text = String(validating: octets, as: UTF8.self) else {
      throw FileError(path, "not UTF-8; save it as UTF-8 text")
    }
    return text
  }
}
