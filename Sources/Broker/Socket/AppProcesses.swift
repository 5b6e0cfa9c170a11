import BindruneSystem
import BindruneTransport
import BindruneWire
import Dispatch
import Glibc
import SystemPackage

/// What the daemon does with the processes of apps. Every function may be called from any thread.
struct AppProcesses: Sendable {
  /// The process stops running. Throws why not.
  var stop: @Sendable (AppProcess) throws(FrameError) -> Void
  /// It runs again.
  var resume: @Sendable (AppProcess) -> Void
  var kill: @Sendable (AppProcess) throws(FrameError) -> Void
  /// Starts what the manifest names, as this user, or throws why not. The process connects by itself. `failed`: it has
  /// ended with this sentence; it may have connected before.
  var launch:
    @Sendable (AppManifest, _ user: UInt32, Place, _ failed: @escaping @Sendable (String) -> Void) throws(FrameError) ->
      Void

  /// Where a relaunched process finds this daemon, as its earlier process did, whatever the daemon's own environment
  /// says.
  struct Place: Sendable, Equatable {
    /// Nil: where the app looks by itself.
    var socket: String?
    /// Nil: the daemon's first.
    var adapter: String?

    var variables: [String: String] {
      var variables = ["BINDRUNE_HCI": adapter.map { "broker:\($0)" } ?? "broker"]
      variables["BINDRUNE_SOCKET"] = socket
      return variables
    }
  }

  /// Signals to real processes, which are started as children.
  static var real: AppProcesses {
    AppProcesses(
      stop: { process throws(FrameError) in try process.signal(SIGSTOP) }, resume: { try? $0.signal(SIGCONT) },
      kill: { process throws(FrameError) in try process.signal(SIGKILL) },
      launch: { manifest, user, place, failed throws(FrameError) in try spawn(manifest, user, place, failed) })
  }
  private static func spawn(
    _ manifest: AppManifest, _ user: UInt32, _ place: Place, _ failed: @escaping @Sendable (String) -> Void
  ) throws(FrameError) {
    let path: String, words: [String], variables: [String: String]
    if let unit = manifest.unit {
      path = "/usr/bin/systemctl"
      // A daemon of root, or of a user of its own, asks the machine's systemd; polkit decides whether it may.
      let isOfUser = getuid() >= 1000
      words = ["systemctl"] + (isOfUser ? ["--user"] : []) + ["--no-ask-password", "start", unit]
      variables = [:]
    } else if let command = manifest.relaunch, let program = command.first {
      // Whatever the table says: a command would run with the daemon's rights.
      guard user == getuid() else {
        throw FrameError(
          "it belongs to user \(user), and bindruned runs as user \(getuid()): let its manifest name a unit")
      }
      if let planted = try? FilePath(text: program).planted(.file) {
        throw FrameError(planted.sentence(or: "let its manifest name another command"))
      }
      path = program
      words = command
      variables = place.variables
    } else {
      throw FrameError("its manifest names no command")
    }
    do throws(Errno) {
      let child = try ChildProcess.start(path, words, adding: variables)
      try watch(child) { status in
        if status == 0, manifest.unit != nil { return }
        let name = manifest.unit ?? path
        failed("\(name) has ended with \(status < 128 ? "status \(status)" : "signal \(status - 128)")")
      }
    } catch { throw FrameError("\(path) cannot be started: \(error)") }
  }
  /// Calls `ended` once with the child's status. No thread waits for it.
  private static func watch(_ child: pid_t, _ ended: @escaping @Sendable (CInt) -> Void) throws(Errno) {
    let ending: FileDescriptor
    do throws(Errno) { ending = try ChildProcess.ending(of: child) } catch {
      // Without that it would end unnoticed. Its number is its own until its status has been taken.
      Glibc.kill(-child, SIGKILL)
      throw error
    }
    let source = DispatchSource.makeReadSource(fileDescriptor: ending.rawValue)
    // The handler keeps its source until it is cancelled.
    source.setEventHandler {
      guard let status = ChildProcess.status(of: child) else { return }
      source.cancel()
      ended(status)
    }
    source.setCancelHandler { try? ending.close() }
    source.activate()
  }
}

/// A line of the administrator's table: for this app of this user the daemon starts this unit.
///
/// A manifest is the app's own statement. Who starts a unit decides with whose rights a program begins, and systemd
/// obeys root, and a user's own processes, without a question. So a manifest is enough only if the app runs as the
/// daemon's user, who may start the unit anyway.
package struct RelaunchRule: Hashable, Sendable {
  package var user: UInt32
  package var identifier: String
  package var unit: String
  package init(user: UInt32, identifier: String, unit: String) {
    (self.user, self.identifier, self.unit) = (user, identifier, unit)
  }

  /// `USER:IDENTIFIER=UNIT`, the user by name or number. Throws one sentence.
  package init(text: String) throws(AppDaemon.Failure) {
    let shown = text.printable(limit: 200)
    guard let colon = text.firstIndex(of: ":"), let equals = text[colon...].firstIndex(of: "=") else {
      throw AppDaemon.Failure(
        description: "\"\(shown)\" is not USER:APP=UNIT: write, for example, alice:org.example.lock=lock.service.")
    }
    let name = String(text[..<colon]), identifier = String(text[text.index(after: colon)..<equals])
    let unit = String(text[text.index(after: equals)...])
    guard let user = UInt32(name) ?? (unsafe getpwnam(name)?.pointee.pw_uid) else {
      throw AppDaemon.Failure(
        description:
          "\"\(shown)\" names user \(name.printable(limit: 40)), whom this machine does not have: correct it.")
    }
    guard AppManifest.isIdentifier(identifier) else {
      throw AppDaemon.Failure(description: "\"\(shown)\" does not name an app: write the identifier of its manifest.")
    }
    guard AppManifest.isUnit(unit) else {
      throw AppDaemon.Failure(
        description: "\"\(shown)\" does not name a unit: write the name of a systemd service, such as lock.service.")
    }
    self.init(user: user, identifier: identifier, unit: unit)
  }

  /// Nil: a daemon of user `daemon` may relaunch the app as its manifest says; else why not.
  static func refusal(
    of manifest: AppManifest, user: UInt32, by daemon: UInt32, _ table: Set<RelaunchRule>
  ) -> String? {
    guard user != daemon, let unit = manifest.unit else { return nil }
    if table.contains(RelaunchRule(user: user, identifier: manifest.identifier, unit: unit)) { return nil }
    return
      """
      it belongs to user \(user), and bindruned, which runs as user \(daemon), may not start \(unit) for it: start \
      bindruned with --relaunch \(user):\(manifest.identifier)=\(unit)
      """
  }
}
