import BindruneControl
import BindruneTransport
import BindruneWire
import Glibc
import Logging
import NIOCore

/// What the daemon has done since it began.
struct Counters: Sendable {
  var sessions = 0, refusals = 0, wakes = 0, alerts = 0, relaunches = 0, relaunchFailures = 0
  /// Events that apps have not taken in time.
  var dropped = 0
  var requests = 0, valuesReceived = 0, valuesSent = 0

  mutating func add(_ connection: AppConnection) {
    dropped += connection.dropped
    requests += connection.requests
    valuesReceived += connection.valuesReceived
    valuesSent += connection.valuesSent
  }
}

private struct MetricsText {
  private(set) var text = ""
  mutating func begin(_ name: String, _ kind: String, _ help: String) {
    text += "# HELP \(name) \(help)\n# TYPE \(name) \(kind)\n"
  }
  /// `value` of a label is escaped.
  mutating func sample(_ name: String, _ label: String, _ value: String, _ count: Int) {
    let value = value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"")
    text += "\(name){\(label)=\"\(value)\"} \(count)\n"
  }
  mutating func one(_ name: String, _ kind: String, _ help: String, _ count: Int) {
    begin(name, kind, help)
    text += "\(name) \(count)\n"
  }
}

extension AppServer {
  /// Answers what a user has asked about apps: about one's own, and about all as root or as the daemon's user.
  func control(_ connection: AppConnection, _ text: String, _ credentials: Credentials) {
    do throws(DaemonAnswerError) {
      switch try DaemonControl(text: text) {
      case .list:
        for (key, app) in apps.sorted(by: { $0.value.id.rawValue < $1.value.id.rawValue })
        where credentials.mayManage(key.user) {
          connection.answer(row(key, app).text)
        }
      case .move(let name, let word):
        guard let life = AppLife(rawValue: word) else {
          throw DaemonAnswerError(
            "An app is not \(word.printable(limit: 40)): write \(AppLife.allCases.map(\.rawValue).joined(separator: ", "))."
          )
        }
        for key in try wanted(name, credentials) {
          guard apps[key]?.pid != nil else {
            throw DaemonAnswerError("App \(name.printable()) has no process: start it.")
          }
          move(key, to: life)
        }
      case .log:
        guard credentials.mayManage(0) else {
          throw DaemonAnswerError("The log names the apps of all users: read it as root, or as user \(getuid()).")
        }
        listeners[ObjectIdentifier(connection)] = connection
        return
      case .launched(let name):
        for identity in apps[Key(user: credentials.uid, identifier: name)]?.launchedFor ?? [] {
          connection.answer("\(identity.role.rawValue)\t\(identity.restoreIdentifier ?? "")")
        }
      }
      connection.endAnswer("")
    } catch {
      connection.endAnswer(error.description)
    }
  }
  /// Prometheus, "Text-based format", version 0.0.4.
  func metrics(failedWrites: Int) async -> String {
    var counts: [(String, AdapterCounts?)] = []
    for named in adapters { counts.append((named.name, try? await named.adapter.counts.get())) }
    let now = try? await eventLoop.submit { self.countNow() }.get()
    var text = MetricsText()
    let (counters, lives, connections) = now ?? (Counters(), [:], 0)
    text.begin("bindrune_apps", "gauge", "Apps by their life.")
    for life in AppLife.allCases { text.sample("bindrune_apps", "life", life.rawValue, lives[life] ?? 0) }
    text.one("bindrune_managers", "gauge", "Managers of running apps.", connections)
    text.begin("bindrune_adapter_up", "gauge", "1: the adapter is powered on.")
    for (name, count) in counts { text.sample("bindrune_adapter_up", "adapter", name, count?.isOn == true ? 1 : 0) }
    text.begin("bindrune_links", "gauge", "Links of the adapter, in both roles.")
    for (name, count) in counts { text.sample("bindrune_links", "adapter", name, count?.links ?? 0) }
    text.begin("bindrune_values_total", "counter", "Values of characteristics that have passed through the socket.")
    text.sample("bindrune_values_total", "direction", "from_apps", counters.valuesReceived)
    text.sample("bindrune_values_total", "direction", "to_apps", counters.valuesSent)
    text.one("bindrune_requests_total", "counter", "Requests of apps, without values.", counters.requests)
    text.one("bindrune_events_dropped_total", "counter", "Events that apps have not taken in time.", counters.dropped)
    text.one("bindrune_managers_total", "counter", "Managers that have connected.", counters.sessions)
    text.one("bindrune_refused_total", "counter", "Managers that were refused.", counters.refusals)
    text.one("bindrune_wakes_total", "counter", "Suspended processes that an event has resumed.", counters.wakes)
    text.one("bindrune_alerts_total", "counter", "Alerts for users of suspended apps.", counters.alerts)
    text.one("bindrune_relaunches_total", "counter", "Attempts to relaunch an app.", counters.relaunches)
    text.one("bindrune_relaunch_failures_total", "counter", "Relaunches that have failed.", counters.relaunchFailures)
    text.one(
      "bindrune_state_write_failures_total", "counter", "Changes of state that the disk has not taken.", failedWrites)
    return text.text
  }
  private func countNow() -> (Counters, [AppLife: Int], Int) {
    var counters = counters, lives: [AppLife: Int] = [:], connections = 0
    for app in apps.values {
      lives[core.life(of: app.id) ?? .terminated, default: 0] += 1
      connections += app.connections.count
      for connection in app.connections.values { counters.add(connection) }
    }
    return (counters, lives, connections)
  }
  private func wanted(_ name: String, _ credentials: Credentials) throws(DaemonAnswerError) -> [Key] {
    let known = apps.keys.filter { $0.identifier == name }
    let own = known.filter { credentials.mayManage($0.user) }
    if own.isEmpty, let other = known.first {
      throw DaemonAnswerError("App \(name.printable()) belongs to user \(other.user): ask as that user, or as root.")
    }
    if own.isEmpty {
      throw DaemonAnswerError("There is no app \(name.printable()): \"bindrune apps list\" names those that there are.")
    }
    return own
  }
  private func row(_ key: Key, _ app: App) -> AppRow {
    AppRow(
      identifier: key.identifier, user: key.user, life: core.life(of: app.id)?.rawValue ?? "terminated", pid: app.pid,
      modes: app.manifest.backgroundModes.map(\.rawValue).sorted(), managers: app.connections.count,
      preserved: app.kept.count, canRelaunch: app.manifest.canRelaunch)
  }
}

extension AppServer.Credentials {
  /// Root and the daemon's user manage all apps, others their own.
  func mayManage(_ user: UInt32) -> Bool { uid == 0 || uid == getuid() || uid == user }
}
