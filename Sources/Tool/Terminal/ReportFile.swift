import BindruneSystem
import BindruneTransport
import BindruneWire
import Glibc
import SystemPackage

/// A file that another program reads. It is written to a draft beside it and gets its name when it is complete, so no
/// reader sees a part of it.
struct ReportFile {
  private let path: String, option: String
  private let draft: FilePath
  private let file: FileDescriptor
  private var isOpen = true

  /// Makes the draft, so that a path that cannot be written is known before anything is read. `option` names the path.
  init(_ path: String, option: String) throws(Failure) {
    self.path = path
    self.option = option
    draft = FilePath(text: "\(path).\(getpid())")
    do {
      // A device or a pipe must not be replaced.
      if let old = try? FileDescriptor.opened(
        FilePath(text: path), .readOnly, options: [.nonBlocking, .noControllingTerminal])
      {
        let isRegular = try old.closeAfter { try old.stat().type == .regular }
        if !isRegular { throw Errno.invalidArgument }
      }
      file = try FileDescriptor.opened(
        draft, .writeOnly, options: [.create, .exclusiveCreate, .noFollow],
        permissions: [.ownerReadWrite, .groupRead, .otherRead])
    } catch { throw Self.failure(path, option, error) }
  }
  private static func failure(_ path: String, _ option: String, _ error: any Error) -> Failure {
    Failure("Cannot write the report \(path): \(error). \(option) names a file in a folder that you may write.")
  }
  func write(_ text: String) throws(Failure) {
    do { try file.writeAll(text.utf8) } catch { throw Self.failure(path, option, error) }
  }

  /// Gives the report its name.
  mutating func finish() throws(Failure) {
    do {
      isOpen = false
      try file.close()
      try draft.rename(to: FilePath(text: path))
    } catch {
      try? draft.remove()
      throw Self.failure(path, option, error)
    }
  }
  /// Removes a draft that was not finished.
  mutating func close() {
    guard isOpen else { return }
    isOpen = false
    try? file.close()
    try? draft.remove()
  }
}
