import Glibc

/// Where `sim:NAME` is found: a socket with that name in a folder that every process of one user knows.
///
///     $XDG_RUNTIME_DIR/bindrune/NAME.sock    the user's runtime folder, where the login has made one
///     /tmp/bindrune-UID/NAME.sock            otherwise
///
/// Beside it lies NAME.sock.lock, the `LockFile` of the process that runs the radio.
///
/// XDG Base Directory Specification 0.8, "Environment variables": the runtime folder is its user's and nobody else's, and
/// a path that is not absolute counts as none. Whoever could put a socket into the folder could pass for a controller, so
/// the folder has to be the user's own and closed to all others.
struct SharedRadio {
  let name: String
  var user = geteuid()
  /// Of the environment, `XDG_RUNTIME_DIR`.
  var runtimeFolder = unsafe getenv("XDG_RUNTIME_DIR").map { unsafe String(cString: $0) }
  var temporaryFolder = "/tmp"

  init(_ name: String) { self.name = name }

  /// Letters, digits, '-', '_' and '.' of ASCII, not beginning with '.': a file's name, on any terminal the same.
  static func isName(_ name: String) -> Bool {
    !name.isEmpty && !name.hasPrefix(".")
      && name.utf8.allSatisfy { octet in
        switch octet {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."): true
        default: false
        }
      }
  }

  /// The socket's path, in a folder that is there, or `creates` has made, and that nobody else can write to.
  func path(creates: Bool) throws(TransportError) -> String {
    guard Self.isName(name) else { throw TransportSpec.badName("sim:" + name) }
    let folder = folder, path = "\(folder)/\(name).sock"
    if path.utf8.count > TransportSpec.longestPath {
      throw .specification(
        "The socket of sim:\(name) would be \(path), \(path.utf8.count) octets where the system takes "
          + "\(TransportSpec.longestPath): use a shorter name")
    }
    if creates, unsafe mkdir(folder, 0o700) != 0, errno != EEXIST {
      throw .unsuitable(.radio(name: name), "the folder \(folder) cannot be made: \(systemWords(errno))")
    }
    switch try status(folder) {
    case nil where !creates: throw .noRadio(name: name, path: path)
    case let status?:
      if status.st_mode & S_IFMT != S_IFDIR { throw refusal(folder, "is no folder") }
      if status.st_uid != user { throw refusal(folder, "belongs to another user") }
      // Nothing of others' can be in it: it was made closed, and is looked at before each use.
      if status.st_mode & 0o077 != 0 {
        throw .unsuitable(.radio(name: name), "other users may enter \(folder), close it with chmod 700 \(folder)")
      }
    case nil: throw refusal(folder, "is gone again")
    }
    return path
  }

  private var folder: String {
    if let runtimeFolder, runtimeFolder.hasPrefix("/"), let status = try? status(runtimeFolder),
      status.st_mode & S_IFMT == S_IFDIR, status.st_uid == user
    {
      return runtimeFolder + "/bindrune"
    }
    return "\(temporaryFolder)/bindrune-\(user)"
  }

  private func refusal(_ folder: String, _ why: String) -> TransportError {
    .unsuitable(
      .radio(name: name), "\(folder) \(why), remove it, or set XDG_RUNTIME_DIR to a folder of your own with mode 0700")
  }

  /// Of the file itself, not of what a symbolic link leads to; nil where there is none.
  private func status(_ path: String) throws(TransportError) -> stat? {
    var status = stat()
    if unsafe lstat(path, &status) == 0 { return status }
    if errno == ENOENT || errno == ENOTDIR { return nil }
    throw TransportError(errno: errno, at: .radio(name: name))
  }
}
