import Bindrune
import Foundation
import Glibc
import TestSupport
import Testing

/// The story of the seed "Core Bluetooth Background Processing for iOS Apps", §"Performing Long-Term Actions in the
/// Background", with processes: a radio, bindruned, Examples/DoorLock, Examples/DoorLockApp, and another app on the
/// same adapter.
@Suite("Door lock", .realTime, .hang) struct DoorLockTests {
  enum AppEnd: String, CaseIterable, Sendable {
    case killed, terminated
  }
  private static let identifier = "org.example.doorlock"

  @Test(
    "S39–S43, S54, S55, S64, S67: the app has no process when the lock comes back, and the door opens",
    arguments: [
      (AppEnd.killed, false), (.terminated, false), (.killed, true),
    ])
  func story(app end: AppEnd, daemonIsKilled: Bool) async throws {
    try await withFolder { folder in
      let home = try Home(folder), log = StoryLog("app \(end.rawValue)\(daemonIsKilled ? ", bindruned killed" : "")")
      let radio = try home.run("bindrune", "controllers --name street")
      try await log.line(radio, "radio", "listening on sim:street")
      var daemon = try home.daemon()
      try await log.error(daemon, "bindruned", "ready")
      // The daemon's controller is the first of the radio, before and after: an app without anything to find keeps it
      // open.
      let neighbour = try home.run("HeartRateCentral")
      try await log.error(neighbour, "another app", "looking for a heart rate sensor")

      var lock = try home.lock()
      try await log.line(lock, "lock", "advertising")
      let app = try home.run("DoorLockApp")
      try await log.line(app, "app", "looking for the lock")
      try await log.name(app, "connected to ")
      try await log.line(lock, "lock", "open")
      try await log.line(app, "app", "the door is open")

      // The user leaves: the lock falls silent, and the app asks for the connection again.
      let requests = try await home.requests()
      lock.signal(SIGKILL)
      _ = await lock.end()
      log.add("lock", "out of range")
      try await log.line(app, "app", "out of reach: the lock is waited for")
      while try await home.requests() == requests {}

      switch end {
      case .killed: app.signal(SIGKILL)
      case .terminated:
        let terminated = try await home.run("bindrune", "apps terminate \(Self.identifier)").end()
        #expect(terminated.status == 0, "\(terminated.errors)")
      }
      #expect(await app.end().status == 128 + SIGKILL)
      log.add("app", end.rawValue)
      try await log.error(daemon, "bindruned", "\(Self.identifier) has ended, and its managers are preserved")
      let row = try #require(try await home.apps()[Self.identifier])
      #expect(row["life"] as? String == "terminated", "\(row)")

      if daemonIsKilled {
        while !home.isPreserved { try await Task.sleep(for: .milliseconds(1)) }
        daemon.signal(SIGKILL)
        #expect(await daemon.end().status == 128 + SIGKILL)
        log.add("bindruned", "killed")
        daemon = try home.daemon()
        try await log.error(daemon, "bindruned", "\(Self.identifier) has 1 preserved managers")
        try await log.error(neighbour, "another app", "looking for a heart rate sensor")
      }

      // The user comes home.
      lock = try home.lock()
      try await log.line(lock, "lock", "advertising")
      try await log.error(daemon, "bindruned", "\(Self.identifier) is relaunched for a connection")
      // On a slow machine ten seconds do not suffice the app, and a stopped one asks for nothing: its user looks at it.
      while try await home.run("bindrune", "apps foreground \(Self.identifier)").end().status != 0 {}
      try await log.name(daemon, "restored: ")
      try await log.name(daemon, "connected to ")
      try await log.line(lock, "lock", "open")
      try await log.line(daemon, "app", "the door is open")
      let apps = try await home.apps()
      #expect(apps[Self.identifier]?["life"] as? String == "foreground", "\(apps)")
      #expect(apps["HeartRateCentral"]?["life"] as? String == "foreground" && neighbour.isRunning, "\(apps)")
      log.print()

      // It is a new process, which the daemon would relaunch again.
      let second = try #require(apps[Self.identifier]?["pid"] as? Int)
      daemon.signal(SIGTERM)
      #expect(await daemon.status() == 0)
      kill(Int32(second), SIGKILL)
      for process in [lock, neighbour, radio] { process.signal(SIGTERM) }
      #expect(await lock.end().status == 0)
      _ = await (neighbour.end(), radio.end())
    }
  }

  /// What was seen, for people.
  private final class StoryLog {
    private var lines: [String]
    init(_ title: String) { lines = ["the door lock, \(title)"] }
    func add(_ who: String, _ what: String) { lines.append("  \(who): \(what)") }
    func line(_ process: Tool, _ who: String, _ text: String) async throws { add(who, try await process.line(text)) }
    func error(_ process: Tool, _ who: String, _ text: String) async throws {
      _ = try await process.errorLine(text)
      add(who, text)
    }
    /// The lock advertises itself as Door, and its device has a name of its own (0x2A00, Core Vol 3, Part C, §12.1),
    /// which takes the place of the advertised one as soon as the host has read it: on a slow machine before the app
    /// says the name.
    func name(_ process: Tool, _ text: String) async throws {
      let line = try await process.line(text)
      #expect(line == text + "Door" || line == text + Self.deviceName, "the lock's name")
      add("app", line)
    }
    private static let deviceName: String = {
      var name = [CChar](repeating: 0, count: 256)
      guard unsafe gethostname(&name, name.count) == 0 else { return "" }
      return String(decoding: name.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }()
    func print() { Swift.print(lines.joined(separator: "\n")) }
  }

  /// A user's files, and programs with the environment for them.
  private struct Home {
    private let folder: URL
    private let port: UInt16
    private var state: String { folder.appending(path: "state").path }

    init(_ folder: URL) throws {
      self.folder = folder
      port = try Self.freePort()
      // The example's manifest, with the place of this build.
      let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()
      let text = try String(
        contentsOf: root.appending(path: "Examples/DoorLockApp/DoorLockApp.bindrune.json"), encoding: .utf8)
      let installed = #""/usr/local/bin/DoorLockApp""#, manifest = folder.appending(path: "manifest.json").path
      try #require(text.contains(installed))
      let words = ["/usr/bin/env", "BINDRUNE_MANIFEST=\(manifest)", Tool.folder.appending(path: "DoorLockApp").path]
      try text.replacing(installed, with: words.map { #""\#($0)""# }.joined(separator: ", "))
        .write(toFile: manifest, atomically: true, encoding: .utf8)
    }
    private static func freePort() throws -> UInt16 {
      let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
      defer { close(descriptor) }
      var address = sockaddr_in(), length = socklen_t(MemoryLayout<sockaddr_in>.size)
      address.sin_family = sa_family_t(AF_INET)
      // 127.0.0.1, and a port of the system's choice.
      address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
      let isBound = unsafe withUnsafeMutablePointer(to: &address) { pointer in
        unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
          unsafe bind(descriptor, pointer, length) == 0 && getsockname(descriptor, pointer, &length) == 0
        }
      }
      try #require(isBound)
      return UInt16(bigEndian: address.sin_port)
    }

    func run(_ program: String, _ arguments: String = "", _ variables: String = "") throws -> Tool {
      let path = Tool.folder.appending(path: program).path, folder = folder.path
      return try Tool.shell(
        "exec env XDG_RUNTIME_DIR=\(folder) BINDRUNE_BONDS=\(folder)/phone-bonds BINDRUNE_SOCKET=\(folder)/apps.socket "
          + "BINDRUNE_HCI=broker \(program == "DoorLockApp" ? "BINDRUNE_MANIFEST=\(folder)/manifest.json " : "")"
          + "\(variables) \(path) \(arguments)")
    }
    func lock() throws -> Tool {
      try run("DoorLock", "", "BINDRUNE_HCI=sim:street BINDRUNE_BONDS=\(folder.path)/lock-bonds")
    }
    /// Its environment does not say where its socket is: a relaunched app has to learn that.
    func daemon() throws -> Tool {
      try run(
        "bindruned",
        "--hci sim:street --socket \(folder.path)/apps.socket --state \(state) --log-level info --metrics 127.0.0.1:\(port)",
        "BINDRUNE_SOCKET=")
    }
    var isPreserved: Bool {
      (try? FileManager.default.contentsOfDirectory(atPath: state))?.contains { $0.hasSuffix("doorlock.record") }
        ?? false
    }
    /// `bindrune apps list`, by identifier.
    func apps() async throws -> [String: [String: any Sendable]] {
      let end = try await run("bindrune", "apps list --json").end()
      #expect(end.status == 0, "\(end.errors)")
      return Dictionary(try end.objects().map { ($0["identifier"] as? String ?? "", $0) }) { first, _ in first }
    }
    /// How many requests the daemon has got.
    func requests() async throws -> Int {
      let page = #"exec 3<>/dev/tcp/127.0.0.1/\#(port); printf "GET /metrics HTTP/1.0\r\n\r\n" >&3; cat <&3"#
      let end = try await Tool.shell("exec bash -c '\(page)'").end()
      let line = end.lines.first { $0.hasPrefix("bindrune_requests_total ") }
      return try #require(line.flatMap { Int($0.split(separator: " ")[1].filter(\.isNumber)) }, "\(end)")
    }
  }
}
