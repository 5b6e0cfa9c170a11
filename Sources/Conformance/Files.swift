import Foundation

/// A script on disk.
public struct ScriptFile: Sendable {
  public var path: String
  /// What results name it by: its path, as it was given, without the extension.
  public var name: String { path.hasSuffix(".exchange") ? String(path.dropLast(".exchange".count)) : path }

  public init(path: String) { self.path = path }

  /// The scripts at `paths`; of a folder all in it and below, in the order of their names.
  public static func all(_ paths: [String]) throws(FileError) -> [ScriptFile] {
    var files: [ScriptFile] = []
    for path in paths {
      // Foundation's own question for folders takes an unsafe pointer; this one follows no link, so it is asked of the URL.
      let url = URL(filePath: path).resolvingSymlinksInPath()
      guard let attributes = try? FileManager.default.attributesOfItem(atPath: url.path) else {
        throw FileError(path, "no such file or folder; name a script (*.exchange) or a folder of them")
      }
      guard attributes[.type] as? FileAttributeType == .typeDirectory else {
        files.append(ScriptFile(path: path))
        continue
      }
      let base = path.hasSuffix("/") ? String(path.dropLast()) : path
      let names = (FileManager.default.enumerator(atPath: base)?.allObjects as? [String] ?? [])
        .filter { $0.hasSuffix(".exchange") }.sorted()
      if names.isEmpty { throw FileError(path, "no *.exchange in this folder; name one that has scripts") }
      files += names.map { ScriptFile(path: "\(base)/\($0)") }
    }
    return files
  }

  public func script() throws(FileError) -> Script { try Script(TextFile.read(path), file: path) }
  /// The path of a file that the script names.
  public func neighbour(_ other: String) -> String {
    other.hasPrefix("/") ? other : URL(filePath: path).deletingLastPathComponent().appending(path: other).path
  }
  public static func database(_ path: String, genericAccessName: String? = nil) throws(FileError) -> DatabaseFile {
    try DatabaseFile(TextFile.read(path), file: path, genericAccessName: genericAccessName)
  }
}
