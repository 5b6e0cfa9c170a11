/// Identifies an app of a broker. No number is used twice in a process.
struct AppID: Hashable, Sendable {
  var rawValue: Int
  /// The app of all sessions of a process that has a broker of its own.
  static var own: AppID { AppID(rawValue: 0) }
}

/// What an app may do in the background, in the spelling of an app's property list: rows S20 and S21 of the seeds.
public enum BackgroundMode: String, Decodable, CaseIterable, Sendable {
  case central = "bluetooth-central"
  case peripheral = "bluetooth-peripheral"
}

/// The phases of an app's life.
public enum AppLife: String, CaseIterable, Sendable {
  case foreground
  /// It runs, and its user does not see it.
  case background
  /// It runs in the background for a short time, because an event has woken or relaunched it.
  case awake
  /// It does not run, and its process exists.
  case suspended
  /// It has no process.
  case terminated

  var isForeground: Bool { self == .foreground }
  /// Its process runs.
  var isRunning: Bool { self != .suspended && self != .terminated }
}

/// What a session says about the manager that it serves.
public struct ManagerIdentity: Hashable, Sendable {
  /// The mode that the manager needs in the background.
  public var role: BackgroundMode
  /// Names the manager in all runs of its app; nil: it ends with its process. S55, S59, S157.
  public var restoreIdentifier: String?
  public init(_ role: BackgroundMode, restoreIdentifier: String? = nil) {
    self.role = role
    self.restoreIdentifier = restoreIdentifier
  }
}

/// What a suspended app's user is told. S14 … S17.
public enum AppAlert: Equatable, Sendable {
  case connected(UUID, name: String?)
  case disconnected(UUID, name: String?)
  /// How many values have come together.
  case notified(UUID, name: String?, count: Int)
}
