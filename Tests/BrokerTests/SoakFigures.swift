import Foundation

/// What a soak has seen.
struct SoakFigures {
  var events = 0
  /// Values sent, and one for each session that is owed one.
  var sent = 0, owed = 0
  /// Taken by an app: at once, or after they had waited for it. Dropped: `WaitingEvents` had no room. Ended: with their
  /// process.
  var delivered = 0, waited = 0, dropped = 0, ended = 0
  var connections = 0, links = 0, wakes = 0, alerts = 0, moves = 0, processes = 0
  var launches = 0, relaunches = 0, failedLaunches = 0, preserved = 0, restored = 0, failures = 0, requests = 0
  var text: String {
    """
    soak: \(events) events, \(processes) processes, \(moves) moves, \(wakes) wakes, \(alerts) alerts, \(failures) \
    failures of the adapter
    soak: \(preserved) managers preserved, \(restored) restored; \(launches) launches, \(relaunches) relaunches, \
    \(failedLaunches) failed
    soak: \(connections) connections of managers, \(requests) requests of clients
    soak: \(sent) values sent, \(owed) owed to sessions: \(delivered) delivered, \(waited) of them had waited, \
    \(dropped) dropped, \(ended) ended with their process
    """
  }

  /// kB, by the name of its line in /proc/self/status.
  static func memory(_ name: String) -> Int {
    let text = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
    let line = text.split(separator: "\n").first { $0.hasPrefix(name) }
    return line.flatMap { Int($0.filter(\.isNumber)) } ?? 0
  }
}

/// Adds the sizes of the tables of a value of the broker, and of those in them.
func measureTables(of value: Any, _ path: String, _ sizes: inout [String: Int]) {
  let mirror = Mirror(reflecting: value)
  switch mirror.displayStyle {
  case .collection?, .set?, .dictionary?:
    sizes[path, default: 0] += mirror.children.count
    for child in mirror.children { measureTables(of: child.value, path, &sizes) }
  case .optional?, .enum?, .tuple?: for child in mirror.children { measureTables(of: child.value, path, &sizes) }
  case .struct? where String(reflecting: type(of: value)).hasPrefix("BindruneBroker."):
    for child in mirror.children { measureTables(of: child.value, "\(path).\(child.label ?? "")", &sizes) }
  default: break
  }
}
