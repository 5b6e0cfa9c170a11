import BindruneWire

/// The frames of a control on the daemon's socket, which stand beside the messages of apps: `Frame` in the broker.
package enum DaemonFrameKind: UInt8 {
  /// A `DaemonControl`, the only frame of its connection.
  case control = 5
  /// UTF-8: one line of the answer to a control.
  case line
  /// UTF-8: the answer is complete if it is empty, else one sentence with the cause and the cure.
  case end
}

/// What a user, or a tool, asks the daemon about the apps of a machine, in place of a session. Decision 0054.
package enum DaemonControl: Equatable, Sendable {
  /// One line for each app: see `AppRow`.
  case list
  /// `life`: the name of an `AppLife`.
  case move(app: String, life: String)
  /// The daemon's log, a line each, until the connection ends.
  case log
  /// A line for each manager for which this process of the app was relaunched: its mode, a tab, its restoration
  /// identifier.
  case launched(app: String)

  package static var version: Int { 1 }

  /// Words with a tab between them.
  package var text: String {
    let words: [String] =
      switch self {
      case .list: ["list"]
      case .move(let app, let life): ["move", app, life]
      case .log: ["log"]
      case .launched(let app): ["launched", app]
      }
    return (["\(Self.version)"] + words).joined(separator: "\t")
  }
  /// Throws a sentence.
  package init(text: String) throws(DaemonAnswerError) {
    let words = text.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
    guard words.first == "\(Self.version)" else {
      throw DaemonAnswerError(
        "Version \(words.first?.printable(limit: 20) ?? "") of the controls is not bindruned's, \(Self.version): "
          + "install the same version of both.")
    }
    switch (words.dropFirst().first, words.count) {
    case ("list", 2): self = .list
    case ("move", 4): self = .move(app: words[2], life: words[3])
    case ("log", 2): self = .log
    case ("launched", 3): self = .launched(app: words[2])
    default:
      throw DaemonAnswerError(
        "bindruned has no control \"\(text.printable(limit: 60))\": install the same version of both programs.")
    }
  }
}

/// An app, as a line of the answer to `DaemonControl.list`: the properties in this order, with a tab between them.
package struct AppRow: Equatable, Sendable {
  package var identifier: String
  package var user: UInt32
  /// The name of an `AppLife`.
  package var life: String
  /// Nil: it has no process.
  package var pid: Int32?
  /// S20, S21.
  package var modes: [String]
  /// Managers of its process, and those that are preserved for the next.
  package var managers: Int
  package var preserved: Int
  package var canRelaunch: Bool

  package init(
    identifier: String, user: UInt32, life: String, pid: Int32?, modes: [String], managers: Int, preserved: Int,
    canRelaunch: Bool
  ) {
    (self.identifier, self.user, self.life, self.pid) = (identifier, user, life, pid)
    (self.modes, self.managers, self.preserved, self.canRelaunch) = (modes, managers, preserved, canRelaunch)
  }
  package var text: String {
    [
      identifier, "\(user)", life, pid.map { "\($0)" } ?? "", modes.joined(separator: " "), "\(managers)",
      "\(preserved)", canRelaunch ? "yes" : "no",
    ].joined(separator: "\t")
  }
  /// Nil: it is no such line.
  package init?(text: String) {
    let words = text.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
    guard words.count == 8, let user = UInt32(words[1]), let managers = Int(words[5]), let preserved = Int(words[6])
    else {
      return nil
    }
    self.init(
      identifier: words[0], user: user, life: words[2], pid: Int32(words[3]),
      modes: words[4].split(separator: " ").map(String.init), managers: managers, preserved: preserved,
      canRelaunch: words[7] == "yes")
  }
}

/// Why a control has no answer, or a bad one: one sentence with the cause and the cure.
package struct DaemonAnswerError: Error, Equatable, CustomStringConvertible {
  package let description: String
  package init(_ description: String) { self.description = description }
}
