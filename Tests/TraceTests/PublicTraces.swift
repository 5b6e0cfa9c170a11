import Foundation
import Testing

/// Ten public captures of phones and sniffers, with the PDUs that tshark and an independent reader found in them. They
/// are not part of the project: tests over them are skipped where they are absent.
enum PublicTraces {
  static let folder: URL = {
    let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
    let path = ProcessInfo.processInfo.environment["BINDRUNE_TRACES"] ?? "../shared/traces"
    return URL(filePath: path, relativeTo: root)
  }()
  static let names: [String] =
    ((try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? [])
    .filter { $0 != "README.md" && $0 != "expected" }.sorted()
  static var arePresent: Bool { !names.isEmpty }
  static var absence: Comment { "the public captures are not here: BINDRUNE_TRACES names their folder" }
  static func path(_ name: String) -> String { folder.appending(path: name).path }

  /// The rows of an expected table, by the names of their columns.
  static func rows(_ name: String, _ kind: String) throws -> [[String: String]] {
    let url = folder.appending(path: "expected/\(name).\(kind).tsv")
    guard FileManager.default.fileExists(atPath: url.path) else { return [] }
    let lines = try String(contentsOf: url, encoding: .utf8).split(separator: "\n")
    let columns = lines[0].split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
    return lines.dropFirst().map { line in
      let fields = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
      return Dictionary(uniqueKeysWithValues: zip(columns, fields))
    }
  }
}

/// The traces that the project has recorded.
enum OwnTraces {
  static let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures/Traces")
  /// Without their extension.
  static let names: [String] =
    ((try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? [])
    .filter { $0.hasSuffix(".btsnoop") }.map { String($0.dropLast(8)) }.sorted()
  static func path(_ name: String) -> String { folder.appending(path: name + ".btsnoop").path }
}
