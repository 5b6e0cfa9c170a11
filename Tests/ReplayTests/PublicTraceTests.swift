import BindruneReplay
import BindruneTrace
import Foundation
import Testing

/// Public captures of phones and sniffers, which are not part of the project: our host in the place of theirs.
@Suite("Replay: public traces") struct PublicTraceTests {
  private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent()
  private static let folder: URL = {
    let path = ProcessInfo.processInfo.environment["BINDRUNE_TRACES"] ?? "../shared/traces"
    return URL(filePath: path, relativeTo: root)
  }()
  private static let names: [String] =
    ((try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? [])
    .filter { $0 != "README.md" && $0 != "expected" }.sorted()

  /// PDUs compared, those that are equal, and the freedoms used; or why the capture cannot be replayed.
  private static let expected: [(prefix: String, result: String)] = [
    ("brandonasuncion", "noFrames"),
    ("csacca", "306 306 time of the MTU exchange 1"),
    ("elkusbry", "341 341 connection before the trace 1"),
    ("joelarula_darkelf__filterdlog1", "64 64 connection before the trace 1"),
    ("joelarula_darkelf__test1", "64 64 connection before the trace 1"),
    ("mauricelam", "noFrames"),
    ("mikeryan", "linkLayer"),
    ("syssi", "107 107 connection before the trace 1, discovery strategy 1"),
    ("whad-team", "linkLayer"),
    (
      "whoisbe",
      "163 163 keys before the trace 1, discovery strategy 7, time of the MTU exchange 3, "
        + "request without a call of our client 4, order of PDUs 5"
    ),
  ]

  @Test(.enabled(if: !names.isEmpty, "the public captures are not here: BINDRUNE_TRACES names their folder"))
  func results() throws {
    for (prefix, expected) in Self.expected {
      let name = try #require(Self.names.first { $0.hasPrefix(prefix) })
      var words = ""
      do {
        let result = try FixtureTests.replay(Self.folder.appending(path: name)).run()
        #expect(result.isEqual, "\(prefix): \(result.divergenceCount) divergences")
        let freedoms = ReplayFreedom.allCases.compactMap { freedom in
          result.freedoms[freedom].map { "\(freedom.rawValue) \($0.count)" }
        }
        words = "\(result.comparedCount) \(result.equalCount) \(freedoms.joined(separator: ", "))"
      } catch let error as ReplayError { words = "\(error.name)" }
      #expect(words == expected, "\(prefix)")
    }
  }

  private static let cases: [URL] = {
    let folder = URL(filePath: "../shared/cases/peers", relativeTo: root)
    let all = (try? FileManager.default.contentsOfDirectory(at: folder, includingPropertiesForKeys: nil)) ?? []
    return all.filter { $0.pathExtension == "btsnoop" }.sorted { $0.path < $1.path }
  }()
  /// Recordings of our own host with other stacks, which ended in a trap or a divergence once.
  @Test(.enabled(if: !cases.isEmpty, "../shared/cases/peers is not here")) func ownHostWithOthers() throws {
    for url in Self.cases {
      let result = try FixtureTests.replay(url).run()
      #expect(result.isEqual && result.comparedCount > 0, "\(url.lastPathComponent): \(result.divergenceCount)")
    }
  }
}

extension ReplayError {
  fileprivate var name: String {
    switch self {
    case .noPackets: "noPackets"
    case .linkLayer: "linkLayer"
    case .noFrames: "noFrames"
    case .tooLarge: "tooLarge"
    case .cut: "cut"
    }
  }
}
