/// What an app says about itself to the daemon: a JSON file beside its executable, with the same name and `.bindrune.json`, or the file that
/// `BINDRUNE_MANIFEST` names.
///
///     { "identifier": "org.example.lock", "UIBackgroundModes": ["bluetooth-central"], "relaunch": ["/usr/bin/lock", "--background"] }
public struct AppManifest: Codable, Equatable, Sendable {
  /// Names the app in all its runs: 1 … 128 letters, digits, dots, hyphens and underscores.
  public var identifier: String
  /// S19 … S22, with the key of an app's property list.
  public var backgroundModes: Set<BackgroundMode>
  /// The command that starts the app when one of its tasks completes, and its arguments; nil: it is not started.
  public var relaunch: [String]?

  public init(identifier: String, backgroundModes: Set<BackgroundMode> = [], relaunch: [String]? = nil) {
    self.identifier = identifier
    self.backgroundModes = backgroundModes
    self.relaunch = relaunch
  }
  private enum CodingKeys: String, CodingKey {
    case identifier, relaunch
    case backgroundModes = "UIBackgroundModes"
  }
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    identifier = try container.decode(String.self, forKey: .identifier)
    guard (1...128).contains(identifier.utf8.count), identifier.utf8.allSatisfy(Self.isAllowed),
      !identifier.hasPrefix(".")
    else {
      throw DecodingError.dataCorruptedError(
        forKey: .identifier, in: container,
        debugDescription:
          "an identifier has 1 … 128 letters, digits, dots, hyphens and underscores, and no dot in front")
    }
    let modes = try container.decodeIfPresent([BackgroundMode].self, forKey: .backgroundModes) ?? []
    backgroundModes = Set(modes)
    relaunch = try container.decodeIfPresent([String].self, forKey: .relaunch)
    if let relaunch, relaunch.first?.hasPrefix("/") != true {
      throw DecodingError.dataCorruptedError(
        forKey: .relaunch, in: container, debugDescription: "the command to relaunch begins with an absolute path")
    }
  }
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: CodingKeys.self)
    try container.encode(identifier, forKey: .identifier)
    try container.encode(backgroundModes.sorted { $0.rawValue < $1.rawValue }, forKey: .backgroundModes)
    try container.encodeIfPresent(relaunch, forKey: .relaunch)
  }
  /// It is the name of a file too.
  private static func isAllowed(_ octet: UInt8) -> Bool {
    switch octet {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"),
      UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"):
      true
    default: false
    }
  }
}
