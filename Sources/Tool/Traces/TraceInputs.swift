import ArgumentParser
import BindruneSystem
import BindruneTransport
import BindruneWire
import SystemPackage

/// One of the files that a verb reads.
struct TraceInput: Sendable {
  enum Origin: Sendable {
    /// An argument: it must be a trace.
    case named
    /// A file of a folder, which may have other files too.
    case found
    /// A folder, or a file in it, that cannot be read: the sentence that says why.
    case failed(String)
  }
  var path: String
  var origin: Origin

  init(_ path: String, _ origin: Origin) {
    self.path = path
    self.origin = origin
  }
  /// For people and programs: not escaped.
  var name: String { path == "-" ? "standard input" : path }
}

/// The files that the arguments of a verb stand for. An argument that is a folder stands for the files in it and below
/// it, in the order of their paths' octets, which depends on no locale and no file system. Names that begin with a dot
/// are left out. A link to a file counts as that file; a link to a folder is not followed, since it may lead back.
///
/// The first octets of a file tell whether it is a trace, and so its reader decides: see ``NotATrace``.
struct TraceInputs {
  private(set) var files: [TraceInput] = []
  private(set) var hasFolder = false
  /// Links to folders, and pipes, sockets and devices.
  private var links = Examples(), others = Examples()

  /// The status if something could not be read to its end.
  static let unreadable: CInt = 2

  /// More than one argument, or a folder: the output has a summary, and its records name their file.
  var areSeveral: Bool { hasFolder || files.count > 1 }

  /// Throws if interrupted.
  init(_ arguments: [String]) throws {
    for argument in arguments {
      guard Self.isFolder(argument) else {
        files.append(TraceInput(argument, .named))
        continue
      }
      hasFolder = true
      files += try search(argument)
    }
  }
  static func isFolder(_ argument: String) -> Bool {
    argument != "-" && (try? FilePath(text: argument).stat())?.type == .directory
  }

  private mutating func search(_ folder: String) throws -> [TraceInput] {
    var found: [TraceInput] = [], folders = [folder]
    while let folder = folders.popLast() {
      if Interruption.cause != nil { throw CancellationError() }
      do throws(Errno) {
        for name in try FilePath(text: folder).names() where !name.hasPrefix(".") {
          let path = folder.hasSuffix("/") ? folder + name : "\(folder)/\(name)"
          do throws(Errno) {
            let file = FilePath(text: path)
            let isLink = try file.stat(followTargetSymlink: false).type == .symbolicLink
            switch try file.stat().type {
            case .regular: found.append(TraceInput(path, .found))
            case .directory where isLink: links.add(path)
            case .directory: folders.append(path)
            default: others.add(path)
            }
          } catch { found.append(TraceInput(path, .failed(Self.sentence(path, error)))) }
        }
      } catch { found.append(TraceInput(folder, .failed("Cannot read the folder \(folder): \(error)."))) }
    }
    return found.sorted { $0.path.utf8.lexicographicallyPrecedes($1.path.utf8) }
  }
  private static func sentence(_ path: String, _ error: Errno) -> String {
    // Octets that are not UTF-8 became U+FFFD, so that the path leads to no file.
    error == .noSuchFileOrDirectory && path.unicodeScalars.contains("\u{FFFD}")
      ? "Cannot open \(path): its name is not UTF-8. Rename it."
      : "Cannot open \(path): \(error)."
  }

  /// Says which files of the folders were not read. `skipped` are those that are not traces. Throws if nothing was
  /// read.
  func report(skipped: Examples, read count: Int) throws {
    var skipped = skipped
    skipped.add(others)
    if let names = links.text {
      Console.warn("\(names): links to folders are not followed. Name the folders that they lead to.")
    }
    if let names = skipped.text {
      Console.warn("\(names): not a trace, skipped. A file that is an argument is read whatever it is.")
    }
    if count == 0 {
      Console.error("Error: There is no trace in these folders.")
      throw ExitCode(Self.unreadable)
    }
  }

  /// Paths that a sentence names: the first one, and the number of the others.
  struct Examples {
    private var first: String?
    private var count = 0
    mutating func add(_ path: String) { add(path, 1) }
    mutating func add(_ others: Examples) {
      if let path = others.first { add(path, others.count) }
    }
    private mutating func add(_ path: String, _ number: Int) {
      first = min(first ?? path, path)
      count += number
    }
    /// `a/notes.txt`, `a/notes.txt and 3 other files`.
    var text: String? {
      first.map { $0 + (count > 1 ? " and \(counted(count - 1, "other file"))" : "") }
    }
  }
}
