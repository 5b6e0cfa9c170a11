import Glibc
import SystemPackage

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
  var user = UserID(geteuid())
  /// Of the environment, `XDG_RUNTIME_DIR`.
  var runtimeFolder = unsafe getenv("XDG_RUNTIME_DIR").map { unsafe FilePath(platformString: $0) }
  var temporaryFolder: FilePath = "/tmp"

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
  func path(creates: Bool) throws(TransportError) -> FilePath {
    guard Self.isName(name) else { throw TransportSpec.badName("sim:" + name) }
    let folder = folder, path = folder.appending("\(name).sock")
    if path.length > TransportSpec.longestPath {
      throw .specification(
        "The socket of sim:\(name) would be \(path), \(path.length) octets where the system takes "
          + "\(TransportSpec.longestPath): use a shorter name")
    }
    if creates {
      do throws(Errno) { try folder.makeFolder(.ownerReadWriteExecute) } catch {
        if error != .fileExists {
          throw .unsuitable(.radio(name: name), "the folder \(folder) cannot be made: \(error)")
        }
      }
    }
    switch try status(folder) {
    case nil where !creates: throw .noRadio(name: name, path: path.string)
    case let status?:
      if status.type != .directory { throw refusal(folder, "is no folder") }
      if status.userID != user { throw refusal(folder, "belongs to another user") }
      // Nothing of others' can be in it: it was made closed, and is looked at before each use.
      if !status.permissions.isDisjoint(with: [.groupReadWriteExecute, .otherReadWriteExecute]) {
        throw .unsuitable(.radio(name: name), "other users may enter \(folder), close it with chmod 700 \(folder)")
      }
    case nil: throw refusal(folder, "is gone again")
    }
    return path
  }

  private var folder: FilePath {
    if let runtimeFolder, runtimeFolder.isAbsolute, let status = try? status(runtimeFolder),
      status.type == .directory, status.userID == user
    {
      return runtimeFolder.appending("bindrune")
    }
    return temporaryFolder.appending("bindrune-\(user.rawValue)")
  }

  private func refusal(_ folder: FilePath, _ why: String) -> TransportError {
    .unsuitable(
      .radio(name: name), "\(folder) \(why), remove it, or set XDG_RUNTIME_DIR to a folder of your own with mode 0700")
  }

  /// Of the file itself, not of what a symbolic link leads to; nil where there is none.
  private func status(_ path: FilePath) throws(TransportError) -> Stat? {
    do throws(Errno) { return try path.stat(followTargetSymlink: false) } catch {
      if error == .noSuchFileOrDirectory || error == .notDirectory { return nil }
      throw TransportError(error, at: .radio(name: name))
    }
  }
}
