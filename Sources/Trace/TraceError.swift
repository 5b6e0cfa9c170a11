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

  public var description: String {
    switch self {
    case .open(let path, let error): "Cannot open \(path): \(error)."
    case .read(let path, let error): "Cannot read \(path): \(error)."
    case .damaged(let path, let error): "\(path): \(error)."
    case .noGzip(let path, let error): "\(path) is compressed and gzip does not start: \(error). Install gzip."
    case .unpacking(let path, let status):
      "\(path): gzip ended with status \(status): the compressed file is damaged or cut."
    }
  }
}
