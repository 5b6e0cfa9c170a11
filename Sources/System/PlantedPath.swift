import Glibc
import SystemPackage

/// Why a program must not believe, or run, what a path names: another user could have planted it.
///
/// The rule holds for every file and folder whose contents a program takes for its own user's word: bonds, caches of
/// attributes, manifests of apps, configurations, the state and the socket of bindruned.
///
/// - The file, and each folder and symbolic link on the way to it, belongs to root or to this user.
/// - Nobody else may write to the file or to those folders. Other users may write to a folder above that is sticky,
///   such as /tmp: there only an owner renames or removes.
/// - The private group of a user counts as the user: its number is the user's, as login.defs(5), USERGROUPS_ENAB, makes
///   it.
///
/// A file that the user names to be read as data, such as a trace, may be anybody's.
package struct PlantedPath: Error, Equatable, CustomStringConvertible {
  package enum Fault: Equatable, Sendable {
    /// It belongs to this user.
    case owner(UInt32)
    /// Users besides root and this one may write to it.
    case writable
    case isNoFolder
  }
  /// What the program was about to use.
  package let subject: FilePath
  /// The part of its path that breaks the rule.
  package let path: FilePath
  package let fault: Fault

  /// The cause, as the end of a sentence.
  package var cause: String {
    switch fault {
    case .owner(let user): "\(path) belongs to user \(user)"
    case .writable: "other users may write to \(path)"
    case .isNoFolder: "\(path) is not a folder"
    }
  }
  /// One sentence with the cause and the cure, without its full stop. `alternative`: what the user may do instead.
  package func sentence(or alternative: String) -> String {
    let cure =
      switch fault {
      case .owner: "make it yours with chown"
      case .writable: "close it with chmod go-w \(path)"
      case .isNoFolder: "move it away"
      }
    return "\(subject) is not safe, as \(cause): \(cure), or \(alternative)"
  }
  package var description: String { sentence(or: "use another place") + "." }
}

extension FilePath {
  /// What a program is about to use.
  package enum Use: Sendable {
    /// A file, which it reads. It may be missing: then nobody else can put one there, unless the folder is sticky.
    case file
    /// A folder, in which it reads or makes files: others may not write to it, although it is sticky.
    case folder
    /// A socket: its mode says who may connect.
    case socket
  }

  /// How the path breaks the rule of `PlantedPath`; nil: it does not. What is missing breaks no rule. Looks at every
  /// folder and link that the system passes on the way, in order.
  package func planted(_ use: Use) throws(Errno) -> PlantedPath? {
    var place: FilePath = "/", rest: [String] = []
    func put(_ path: FilePath) {
      if path.isAbsolute { place = "/" }
      rest += path.components.reversed().map(\.string)
    }
    put(isAbsolute ? self : try Self.currentFolder().pushing(self))
    if let fault = try place.fault(of: Errno.typed { try place.stat() }, isEnd: rest.isEmpty, use) {
      return PlantedPath(subject: self, path: place, fault: fault)
    }
    var links = 0
    while let name = rest.popLast() {
      if name == "." { continue }
      if name == ".." {
        place.removeLastComponent()
        continue
      }
      let next = place.appending(name), status: Stat
      do throws(Errno) {
        status = try Errno.typed { try next.stat(followTargetSymlink: false) }
      } catch .noSuchFileOrDirectory { return nil }
      if let fault = next.fault(of: status, isEnd: rest.isEmpty, use) {
        return PlantedPath(subject: self, path: next, fault: fault)
      }
      if status.type == .symbolicLink {
        links += 1
        guard links <= 40 else { throw .tooManySymbolicLinkLevels }  // as the kernel: path_resolution(7)
        put(FilePath(text: try next.target()))
      } else {
        place = next
      }
    }
    return nil
  }
  /// The same for a file that has been opened: the name may have led elsewhere meanwhile. `status`: the open file's.
  package func planted(_ status: Stat, _ use: Use) -> PlantedPath? {
    fault(of: status, isEnd: true, use).map { PlantedPath(subject: self, path: self, fault: $0) }
  }
  func fault(of status: Stat, isEnd: Bool, _ use: Use) -> PlantedPath.Fault? {
    let user = geteuid(), owner = status.userID.rawValue
    guard owner == user || owner == 0 else { return .owner(owner) }
    if status.type == .symbolicLink { return nil }
    if isEnd, use == .socket { return nil }
    if isEnd, use == .folder, status.type != .directory { return .isNoFolder }
    let isPrivateGroup = user != 0 && status.groupID.rawValue == getegid() && getegid() == user
    let writers: FilePermissions = isPrivateGroup ? .otherWrite : [.groupWrite, .otherWrite]
    if status.permissions.isDisjoint(with: writers) { return nil }
    return !isEnd && status.permissions.contains(.saveText) ? nil : .writable
  }
  private static func currentFolder() throws(Errno) -> FilePath {
    guard let pointer = unsafe getcwd(nil, 0) else { throw Errno(rawValue: errno) }
    defer { unsafe free(pointer) }
    return unsafe FilePath(platformString: pointer)
  }

  /// Why `trustedContents` has none.
  package enum DistrustedFile: Error, CustomStringConvertible {
    case system(Errno)
    case planted(PlantedPath)
    package var description: String {
      switch self {
      case .system(let error): error.description
      case .planted(let planted): planted.description
      }
    }
  }
  /// The contents of a regular file that nobody but root and this user can have written: as `contents(upTo:)`, which
  /// follows no link.
  package func trustedContents(upTo limit: Int) throws(DistrustedFile) -> [UInt8] {
    let planted: PlantedPath?
    do throws(Errno) { planted = try self.planted(.file) } catch { throw .system(error) }
    if let planted { throw .planted(planted) }
    do throws(Errno) { return try contents(upTo: limit, isTrusted: true) } catch { throw .system(error) }
  }
}
