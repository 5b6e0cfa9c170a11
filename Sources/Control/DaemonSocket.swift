import BindruneSystem
import BindruneTransport
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
