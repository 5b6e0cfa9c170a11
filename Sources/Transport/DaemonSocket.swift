import BindruneSystem
import BindruneWire
import Glibc
import SystemPackage

/// Where a Core Bluetooth program finds bindruned, and whether it uses it.
///
///     BINDRUNE_SOCKET                          the path of the daemon's socket, if it is set
///     $XDG_RUNTIME_DIR/bindrune-apps.socket    a daemon of this user, if it is there
///     /run/bindrune/apps.socket                the machine's
///
/// `broker` in place of a controller (see `AdapterChoice`) is the daemon's first adapter, `broker:NAME` its adapter of
/// that name. A program for which nothing names a controller uses the daemon if its socket is there.
package struct DaemonSocket: Equatable, Sendable {
  package var path: String
  /// As the daemon's option `--hci` spells it; nil: its first.
  package var adapter: String?

  package static var ofTheMachine: String { "/run/bindrune/apps.socket" }
  /// Nil: the environment has no folder for it. XDG Base Directory Specification 0.8, "Environment variables": a path
  /// that is not absolute is ignored.
  package static func ofTheUser(_ environment: (String) -> String? = AdapterChoice.variable) -> String? {
    environment("XDG_RUNTIME_DIR").flatMap { $0.hasPrefix("/") ? $0 + "/bindrune-apps.socket" : nil }
  }

  /// The path of the daemon's socket for this process, whether it is there or not.
  package static func path(
    _ environment: (String) -> String? = AdapterChoice.variable, isThere: (String) -> Bool = Self.isThere
  ) -> String {
    if let path = environment("BINDRUNE_SOCKET"), !path.isEmpty { return path }
    return ofTheUser(environment).flatMap { isThere($0) ? $0 : nil } ?? ofTheMachine
  }
  /// Nil: the program uses a controller of its own. `adapter`: what the program names. Throws as `AdapterChoice`.
  package static func chosen(
    _ adapter: String? = nil, environment: (String) -> String? = AdapterChoice.variable,
    read: (String) throws -> String? = AdapterChoice.text(ofFile:), isThere: (String) -> Bool = Self.isThere
  ) throws(TransportError) -> DaemonSocket? {
    let text = try AdapterChoice.named(adapter, environment: environment, read: read)
    let path = path(environment, isThere: isThere)
    let socket: DaemonSocket? =
      switch text {
      case nil: isThere(path) ? DaemonSocket(path: path) : nil
      case "broker": DaemonSocket(path: path)
      case let text? where text.hasPrefix("broker:") && text.count > 7:
        DaemonSocket(path: path, adapter: String(text.dropFirst(7)))
      default: nil
      }
    if socket != nil, let planted = planted(path, environment) { throw .specification(planted) }
    return socket
  }
  /// Why the user's own socket is not used, as a sentence without its full stop. The machine's is in a folder of root,
  /// and one that BINDRUNE_SOCKET names may be another user's on purpose.
  static func planted(_ path: String, _ environment: (String) -> String? = AdapterChoice.variable) -> String? {
    guard path == ofTheUser(environment), let planted = try? FilePath(text: path).planted(.socket) else { return nil }
    return planted.sentence(or: "name another socket in BINDRUNE_SOCKET")
  }
  package static func isThere(_ path: String) -> Bool { (try? FilePath(text: path).stat())?.type == .socket }
}

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

extension DaemonControl {
  /// Asks the daemon at `path`, and calls `line` with each line of its answer. It blocks its thread, so it is not for
  /// event loops. `limit`: seconds for each part of the answer; nil: any time.
  package func ask(at path: String, within limit: Int? = 5, line: (String) -> Void) throws(DaemonAnswerError) {
    if let planted = DaemonSocket.planted(path) { throw DaemonAnswerError(planted + ".") }
    let failure: String
    do throws(Errno) { failure = try converse(path, limit, line) } catch {
      let why =
        switch error {
        case .noSuchFileOrDirectory, .connectionRefused:
          "bindruned does not run here: start it, or set BINDRUNE_SOCKET to its socket"
        case .permissionDenied, .notPermitted: "you may not use it: have yourself added to the socket's group"
        case .resourceTemporarilyUnavailable: "bindruned does not answer: look at its log, and start it again"
        case .connectionReset, .brokenPipe: "bindruned has ended the connection: look at its log, and start it again"
        case .badMessage: "what listens there is not bindruned: correct BINDRUNE_SOCKET"
        default: "\(error)"
        }
      throw DaemonAnswerError("\(path.printable()): \(why).")
    }
    if !failure.isEmpty { throw DaemonAnswerError(failure) }
  }
  /// Returns the contents of the last frame.
  private func converse(_ path: String, _ limit: Int?, _ line: (String) -> Void) throws(Errno) -> String {
    let socket = try StreamSocket.connected(toPath: path, isNonBlocking: false)
    defer { try? socket.close() }
    if let limit { try socket.setTimeouts(seconds: limit) }
    let text = Array(text.utf8), length = UInt32(text.count + 1)
    try socket.send(
      (0..<4).map { UInt8(truncatingIfNeeded: length >> (8 * $0)) } + [DaemonFrameKind.control.rawValue] + text)
    while true {
      let header = try socket.readAll(upTo: 5)
      guard header.count == 5 else { throw header.isEmpty ? .connectionReset : .badMessage }
      let count = header[..<4].reversed().reduce(0) { $0 << 8 | Int($1) }
      guard (1...65_536).contains(count) else { throw .badMessage }
      let contents = try socket.readAll(upTo: count - 1)
      guard contents.count == count - 1 else { throw .badMessage }
      let text = String(decoding: contents, as: UTF8.self)
      switch DaemonFrameKind(rawValue: header[4]) {
      case .line: line(text)
      case .end: return text
      default: throw .badMessage
      }
    }
  }
}

extension FileDescriptor {
  fileprivate func setTimeouts(seconds: Int) throws(Errno) {
    var time = timeval(tv_sec: seconds, tv_usec: 0)
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
      try Errno.check {
        unsafe setsockopt(rawValue, SOL_SOCKET, option, &time, socklen_t(MemoryLayout<timeval>.size))
      }
    }
  }
  /// All of it. A closed socket is an error, and no signal.
  fileprivate func send(_ octets: [UInt8]) throws(Errno) {
    var rest = octets[...]
    while !rest.isEmpty {
      let count = try Errno.check {
        unsafe rest.withUnsafeBytes { unsafe Glibc.send(rawValue, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      }
      rest = rest.dropFirst(count)
    }
  }
}
