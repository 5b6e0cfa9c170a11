import BindruneSystem
import Glibc
import SystemPackage

/// Finds the socket of `sim:NAME`, in a folder that every process of one user can determine.
///
///     $XDG_RUNTIME_DIR/bindrune/NAME.sock    the user's runtime folder, where the login has made one
///     /tmp/bindrune-UID/NAME.sock            otherwise
///
/// Next to it is NAME.sock.lock, the `LockFile` of the process that runs the radio.
///
/// XDG Base Directory Specification 0.8, "Environment variables": the runtime folder belongs to its user alone, and a
/// path that is not absolute is ignored. A process that could put a socket into the folder could pose as a controller,
/// so the folder must be the user's own and closed to all others.
struct SharedRadio {
  let name: String
  var user = UserID(geteuid())
  /// From the environment, `XDG_RUNTIME_DIR`.
  var runtimeFolder = unsafe getenv("XDG_RUNTIME_DIR").map { unsafe FilePath(platformString: $0) }
  var temporaryFolder: FilePath = "/tmp"

  init(_ name: String) { self.name = name }

  /// ASCII letters, digits, '-', '_' and '.', not beginning with '.': a file name that every terminal shows unchanged.
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

  /// The socket's path, in a folder that exists, or that `creates` permits to make, and to which no other user can
  /// write.
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
          throw .unsuitable(.radio(name: name), "the folder \(folder) cannot be created: \(error)")
        }
      }
    }
    switch try status(folder) {
    case nil where !creates: throw .noRadio(name: name, path: path.string)
    case let status?:
      if status.type != .directory { throw refusal(folder, "is not a folder") }
      if status.userID != user { throw refusal(folder, "belongs to another user") }
      // Nothing of others' can be in it: it was made closed, and is looked at before each use.
      if !status.permissions.isDisjoint(with: [.groupReadWriteExecute, .otherReadWriteExecute]) {
        throw .unsuitable(.radio(name: name), "other users may enter \(folder), close it with chmod 700 \(folder)")
      }
    case nil: throw refusal(folder, "has disappeared")
    }
    // The folder is the user's own, but not those above it.
    if let planted = try? folder.planted(.folder) {
      throw .unsuitable(
        .radio(name: name), planted.sentence(or: "set XDG_RUNTIME_DIR to a folder of your own with mode 0700"))
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

  /// The status of the file itself, not of a symbolic link's target; nil if there is none.
  private func status(_ path: FilePath) throws(TransportError) -> Stat? {
    do throws(Errno) { return try path.stat(followTargetSymlink: false) } catch {
      if error == .noSuchFileOrDirectory || error == .notDirectory { return nil }
      throw TransportError(error, at: .radio(name: name))
    }
  }
}
