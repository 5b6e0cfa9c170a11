import Glibc

/// The text of a file that somebody else may have made.
package enum TextFile {
  /// As much as a script or a database may have.
  private static var limit: Int { 1 << 20 }
  /// How long a pipe may keep its reader waiting, in milliseconds.
  private static var patience: CInt { 10_000 }

  /// The whole of the file, of a megabyte at most. A pipe is read to its end; one that nobody writes to has nothing.
  package static func read(_ path: String) throws(FileError) -> String {
    // Opening a pipe would wait for a writer, who may never come.
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    guard descriptor >= 0 else {
      throw FileError(
        path,
        errno == ENOENT || errno == ENOTDIR
          ? "no such file; is the path right?" : "cannot be read; is it a file, and may you read it?")
    }
    defer { close(descriptor) }
    var status = stat()
    guard unsafe fstat(descriptor, &status) == 0, [S_IFREG, S_IFIFO].contains(status.st_mode & S_IFMT) else {
      throw FileError(path, "cannot be read; is it a file, and may you read it?")
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
          throw FileError(path, "nothing has come from this pipe for 10 s; does its writer run?")
        }
      } else if errno != EINTR {
        throw FileError(path, "cannot be read; is it a file, and may you read it?")
      }
    }
    guard let text = String(validating: octets, as: UTF8.self) else {
      throw FileError(path, "not UTF-8; save it as UTF-8 text")
    }
    return text
  }
}
