import BindruneCapture
import SystemPackage

/// A trace that cannot be read, or not to its end. Records before the place were delivered.
public enum TraceError: Error, Sendable, CustomStringConvertible {
  case open(path: String, Errno)
  case read(path: String, Errno)
  case damaged(path: String, CaptureError)
  /// The file is compressed, and `gzip`, which unpacks it, cannot be started.
  case noGzip(path: String, Errno)
  /// gzip found the compressed octets damaged, or cut.
  case unpacking(path: String, status: CInt)
  /// A zip archive that is damaged, encrypted, in another archive or in a pipe.
  case unreadableArchive(path: String)
  /// None of the archive's files is a trace, or the one that was named is not there.
  case nothingInArchive(path: String, files: [String])
  /// `FILE:NAME` of a file that is no archive.
  case noArchive(path: String)
  /// The section of an Android bug report is cut, or is none.
  case damagedSection(path: String)

  /// True: the file is another one than a trace.
  public var isNoTrace: Bool {
    switch self {
    case .nothingInArchive: true
    case .damaged(_, let error):
      switch error.reason {
      case .unknownFormat, .empty, .foreign, .text, .textWithoutOctets: true
      default: false
      }
    default: false
    }
  }

  public var description: String {
    switch self {
    case .open(let path, let error): "Cannot open \(path): \(error)."
    case .read(let path, let error): "Cannot read \(path): \(error)."
    case .damaged(let path, let error):
      if case .unknownFormat = error.reason, let file = ForeignFile(name: path) {
        "\(path): this is not a trace that can be read; by its name it is \(file.name): \(file.remedy)."
      } else {
        "\(path): \(error)."
      }
    case .unreadableArchive(let path):
      """
      \(path) is a zip archive that cannot be read here: it is damaged or encrypted, or comes through a pipe or from \
      another archive. Extract the trace, and read that.
      """
    case .nothingInArchive(let path, let files):
      """
      \(path) is a zip archive of \(files.count) files, none of which is the trace that is looked for. Name one of them, \
      as \(path):\(files.first ?? "NAME"), or extract it.
      """
    case .noArchive(let path): "\(path): this names a file in a zip archive, which it is not. Leave the name out."
    case .damagedSection(let path):
      """
      \(path): the section BTSNOOP_LOG_SUMMARY of the bug report is cut or damaged. Take the file btsnoop_hci.log of \
      the report instead, or make a new report.
      """
    case .noGzip(let path, let error): "\(path) is compressed and gzip does not start: \(error). Install gzip."
    case .unpacking(let path, let status):
      "\(path): gzip ended with status \(status): the compressed file is damaged or cut."
    }
  }
}
