import BindruneSystem
import BindruneTransport

/// What an app says about itself to the daemon: a JSON file beside its executable, with the same name and
/// `.bindrune.json`, or the file that `BINDRUNE_MANIFEST` names. An app without such a file has its executable's name
/// as identifier, and nothing else.
///
///     { "identifier": "org.example.lock", "UIBackgroundModes": ["bluetooth-central"], "relaunch": ["/usr/bin/lock", "--background"] }
public struct AppManifest: Decodable, Equatable, Sendable {
  /// Names the app in all its runs: 1 … 128 letters, digits, dots, hyphens and underscores.
  public var identifier: String
  /// S19 … S22, with the key of an app's property list.
  public var backgroundModes: Set<BackgroundMode>
  /// The command that starts the app when one of its tasks completes, and its arguments. It runs as the daemon's user,
  /// so the daemon accepts it from apps of that user only.
  public var relaunch: [String]?
  /// The systemd unit that the daemon starts for the same purpose: for an app of its own user, and for another that its
  /// administrator's table names with this unit.
  public var unit: String?
  var canRelaunch: Bool { relaunch != nil || unit != nil }

  public init(
    identifier: String, backgroundModes: Set<BackgroundMode> = [], relaunch: [String]? = nil, unit: String? = nil
  ) {
    self.identifier = identifier
    self.backgroundModes = backgroundModes
    self.relaunch = relaunch
    self.unit = unit
  }
  private enum CodingKeys: String, CodingKey {
    case identifier, relaunch, unit
    case backgroundModes = "UIBackgroundModes"
  }
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: CodingKeys.self)
    identifier = try container.decode(String.self, forKey: .identifier)
    let modes = try container.decodeIfPresent([BackgroundMode].self, forKey: .backgroundModes) ?? []
    backgroundModes = Set(modes)
    relaunch = try container.decodeIfPresent([String].self, forKey: .relaunch)
    unit = try container.decodeIfPresent(String.self, forKey: .unit)
    if let (key, mistake) = mistake {
      throw DecodingError.dataCorruptedError(
        forKey: CodingKeys(stringValue: key) ?? .identifier, in: container, debugDescription: mistake)
    }
  }
  /// A property that may not be as it is, and why.
  var mistake: (key: String, why: String)? {
    if !Self.isIdentifier(identifier) {
      return (
        "identifier", "an identifier has 1 … 128 letters, digits, dots, hyphens and underscores, and no dot in front"
      )
    }
    if let relaunch, relaunch.first?.hasPrefix("/") != true {
      return ("relaunch", "the command to relaunch begins with an absolute path")
    }
    if let unit, !Self.isUnit(unit) {
      return ("unit", "a unit is the name of a systemd service, such as lock.service")
    }
    if unit != nil, relaunch != nil { return ("unit", "an app is relaunched by a command or by a unit, not by both") }
    return nil
  }
  static func isIdentifier(_ name: String) -> Bool {
    (1...128).contains(name.utf8.count) && name.utf8.allSatisfy(isAllowed) && !name.hasPrefix(".")
  }
  /// systemd.unit(5), "Description". A hyphen in front would be an option of systemctl.
  static func isUnit(_ name: String) -> Bool {
    name.hasSuffix(".service") && name.utf8.count <= 255 && !name.hasPrefix("-") && !name.hasPrefix(".")
      && name.utf8.allSatisfy {
        isAllowed($0) || [UInt8(ascii: "@"), UInt8(ascii: ":"), UInt8(ascii: "\\")].contains($0)
      }
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

extension AppManifest {
  /// The manifest of the program at `executable`. `read` returns a file's text; nil: there is no such file. Throws a
  /// sentence that names the file and the mistake.
  static func ofProgram(
    at executable: String, environment: (String) -> String?, read: (String) throws -> String?
  ) throws(FrameError) -> AppManifest {
    let named = environment("BINDRUNE_MANIFEST").flatMap { $0.isEmpty ? nil : $0 },
      path = named ?? executable + ".bindrune.json"
    let text: String?
    do { text = try read(path) } catch let planted as PlantedPath {
      throw FrameError("\(planted.sentence(or: "name another manifest in BINDRUNE_MANIFEST")).")
    } catch {
      throw FrameError("The manifest \(path) cannot be read (\(error)): mend or remove it.")
    }
    if let text {
      do { return try JSONDecoder().decode(AppManifest.self, from: Data(text.utf8)) } catch {
        throw FrameError("The manifest \(path) is not valid: \(error.cause).")
      }
    }
    if let named { throw FrameError("There is no manifest \(named): correct BINDRUNE_MANIFEST.") }
    let name = executable.split(separator: "/").last.map(String.init) ?? ""
    let letters = name.utf8.map { isAllowed($0) ? $0 : UInt8(ascii: "_") }.prefix(128)
    let identifier = String(decoding: letters, as: UTF8.self)
    return AppManifest(identifier: identifier.isEmpty || identifier.hasPrefix(".") ? "app" : identifier)
  }
  /// This process's.
  static func ofThisProgram() throws(FrameError) -> AppManifest {
    let executable =
      (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
    return try ofProgram(
      at: executable, environment: AdapterChoice.variable, read: AdapterChoice.text(ofFile:))
  }
}

extension Error {
  /// Where in a JSON text, and what is wrong there.
  var cause: String {
    switch self as? DecodingError {
    case .dataCorrupted(let context), .keyNotFound(_, let context), .typeMismatch(_, let context),
      .valueNotFound(_, let context):
      let path = context.codingPath.map(\.stringValue).joined(separator: ".")
      return (path.isEmpty ? "" : "at \(path): ") + context.debugDescription
    default: return "\(self)"
    }
  }
}
