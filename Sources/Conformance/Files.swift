import FoundationEssentials
import BindruneGATT

/// A script on disk.
public struct ScriptFile: Sendable {
  public var path: String
  /// The script's name in results: its path, as given, without the extension.
  public var name: String { path.hasSuffix(".exchange") ? String(path.dropLast(".exchange".count)) : path }

  public init(path: String) { self.path = path }

  /// The scripts at `paths`; for a folder, all scripts in it and below, sorted by name.
  public static func all(_ paths: [String]) throws(FileError) -> [ScriptFile] {
    var files: [ScriptFile] = []
    for path in paths {
      // Foundation's test for folders needs an unsafe pointer; the URL's does not, but follows no links.
      let url = URL(filePath: path).resolvingSymlinksInPath()
      guard let attributes = try? FileManager.default.attributesOfItem(atPath: url.path) else {
        throw FileError(path, "no such file or folder; name a script (*.exchange) or a folder of them")
      }
      guard attributes[.type] as? FileAttributeType == .typeDirectory else {
        files.append(ScriptFile(path: path))
        continue
      }
      let base = path.hasSuffix("/") ? String(path.dropLast()) : path
      let names = ((try? FileManager.default.subpathsOfDirectory(atPath: base)) ?? [])
        .filter { $0.hasSuffix(".exchange") }.sorted()
      if names.isEmpty { throw FileError(path, "no *.exchange in this folder; name one that has scripts") }
      files += names.map { ScriptFile(path: "\(base)/\($0)") }
    }
    return files
  }

  /// Its script, or one for each of its cases.
  public func scripts() throws(FileError) -> [Script] { try Script.all(TextFile.read(path), file: path) }
  /// The name of one of its scripts: `SM/CEN/own-just-works [00 01]`.
  public func name(of script: Script) -> String { script.variant.map { "\(name) [\($0)]" } ?? name }
  /// The path of a file that the script names.
  public func neighbour(_ other: String) -> String {
    other.hasPrefix("/") ? other : URL(filePath: path).deletingLastPathComponent().appending(path: other).path
  }
  /// `existing`: what the file's services are inserted into.
  public static func database(
    _ path: String, genericAccessName: String? = nil, after existing: Database = Database()
  ) throws(FileError) -> DatabaseFile {
    try DatabaseFile(TextFile.read(path), file: path, genericAccessName: genericAccessName, after: existing)
  }
}
