import ArgumentParser
import BindruneSystem
import BindruneTransport
import BindruneWire
import Glibc

/// What systemd and its services say to each other: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3).
struct ServiceNotifier: Sendable {
  private let address: [UInt8]?
  /// Nil: nobody watches.
  private let interval: Duration?

  /// Reads NOTIFY_SOCKET and WATCHDOG_USEC, and removes them, so that relaunched apps do not speak for the daemon.
  init() throws {
    let socket = AdapterChoice.variable("NOTIFY_SOCKET") ?? ""
    // "@" stands for the zero of an abstract name: unix(7).
    let address = socket.hasPrefix("@") ? [0] + Array(socket.utf8.dropFirst()) : Array(socket.utf8)
    self.address = address.isEmpty || address.count > 107 ? nil : address
    let isOwn = AdapterChoice.variable("WATCHDOG_PID").map { $0 == "\(getpid())" } ?? true
    interval =
      isOwn ? AdapterChoice.variable("WATCHDOG_USEC").flatMap { Int64($0) }.map { .microseconds(max($0, 2) / 2) } : nil
    for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] { unsafe unsetenv(name) }
  }

  /// Nil: systemd passes no socket. The first one is 3.
  static func passedSocket() -> CInt? {
    defer { for name in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] { unsafe unsetenv(name) } }
    guard AdapterChoice.variable("LISTEN_PID") == "\(getpid())",
      let count = AdapterChoice.variable("LISTEN_FDS").flatMap({ Int($0) }), count > 0
    else { return nil }
    FileDescriptor(rawValue: 3).closeInChildren()
    return 3
  }

  /// A datagram. Errors have nobody to go to.
  func send(_ text: String) {
    guard let address else { return }
    guard let descriptor = try? FileDescriptor.socket(AF_UNIX, .datagrams) else { return }
    defer { try? descriptor.close() }
    var name = sockaddr_un()
    name.sun_family = sa_family_t(AF_UNIX)
    unsafe withUnsafeMutableBytes(of: &name.sun_path) { unsafe $0.copyBytes(from: address) }
    let octets = Array(text.utf8), length = socklen_t(MemoryLayout<sa_family_t>.size + address.count)
    _ = unsafe withUnsafeBytes(of: &name) {
      unsafe sendto(
        descriptor.rawValue, octets, octets.count, Int32(MSG_NOSIGNAL),
        $0.baseAddress?.assumingMemoryBound(to: sockaddr.self),
        length)
    }
  }
  /// Tells systemd that the daemon lives, each time that `answer` returns, until the task is cancelled.
  func keepAlive(_ answer: @Sendable () async -> Void) async {
    guard let interval else { return }
    while !Task.isCancelled {
      await answer()
      send("WATCHDOG=1")
      try? await Task.sleep(for: interval)
    }
  }
}
