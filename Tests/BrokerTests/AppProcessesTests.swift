import BindruneSystem
import BindruneTransport
import Foundation
import NIOConcurrencyHelpers
import SystemPackage
import TestSupport
import Testing

@testable import BindruneBroker

/// Programs that the daemon starts, for real.
@Suite(.hang) struct AppProcessesTests {
  private static let place = AppProcesses.Place(socket: "/run/x.socket", adapter: "hci1")

  private static func newFolder() throws -> String {
    let folder = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path
    try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: false)
    return folder
  }

  /// The sentence about the end of what this command starts.
  private func end(of command: [String]) async throws -> String {
    try await withCheckedThrowingContinuation { (done: CheckedContinuation<String, any Error>) in
      let manifest = AppManifest(identifier: "x", relaunch: command)
      do throws(FrameError) {
        try AppProcesses.real.launch(manifest, getuid(), Self.place) { done.resume(returning: $0) }
      } catch { done.resume(throwing: error) }
    }
  }

  @Test("How a program ended is said, once")
  func ends() async throws {
    #expect(try await end(of: ["/bin/false"]) == "/bin/false has ended with status 1")
    #expect(try await end(of: ["/bin/true"]) == "/bin/true has ended with status 0")
    #expect(try await end(of: ["/bin/sh", "-c", "kill -9 $$"]) == "/bin/sh has ended with signal 9")
  }
  @Test("A program that cannot be started is an error with its cause")
  func cannotStart() async throws {
    for (path, cause) in [("/nonexistent/app", "No such file or directory"), ("/etc/passwd", "Permission denied")] {
      await #expect(throws: FrameError("\(path) cannot be started: \(cause)")) { try await end(of: [path]) }
    }
    let other = AppManifest(identifier: "x", relaunch: ["/bin/true"]), nobody = AppManifest(identifier: "x")
    #expect(throws: FrameError.self) { try AppProcesses.real.launch(other, getuid() &+ 1, Self.place) { _ in } }
    #expect(throws: FrameError("its manifest names no command")) {
      try AppProcesses.real.launch(nobody, getuid(), Self.place) { _ in }
    }
  }
  @Test("A program that another user could have written is not started, and such a manifest is not believed")
  func plantedPrograms() async throws {
    let folder = try Self.newFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let program = folder + "/app", manifest = program + ".bindrune.json"
    try Data("#!/bin/sh\nexit 3\n".utf8).write(to: URL(fileURLWithPath: program))
    try Data(#"{"identifier":"a.b"}"#.utf8).write(to: URL(fileURLWithPath: manifest))
    func set(_ mode: mode_t, _ path: String) { #expect(unsafe chmod(path, mode) == 0) }
    func identifier() throws -> String {
      try AppManifest.ofProgram(at: program, environment: { _ in nil }, read: AdapterChoice.text(ofFile:)).identifier
    }
    set(0o755, program)
    set(0o644, manifest)
    #expect(try await end(of: [program]) == "\(program) has ended with status 3")
    #expect(try identifier() == "a.b")
    set(0o757, program)
    set(0o646, manifest)
    let error = await #expect(throws: FrameError.self) { try await end(of: [program]) }
    #expect(error?.description.hasPrefix("\(program) is not safe, as other users may write to \(program): ") == true)
    let other = #expect(throws: FrameError.self) { try identifier() }
    #expect(
      other?.description
        == "\(manifest) is not safe, as other users may write to \(manifest): close it with chmod go-w \(manifest), or name another manifest in BINDRUNE_MANIFEST."
    )
    set(0o755, program)
    set(0o644, manifest)
    set(0o757, folder)
    await #expect(throws: FrameError.self) { try await end(of: [program]) }
    #expect(throws: FrameError.self) { try identifier() }
  }
  @Test("A socket that another user could replace is not listened at")
  func aPlantedSocket() async throws {
    let folder = try Self.newFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    #expect(unsafe chmod(folder, 0o777) == 0)
    let error = await #expect(throws: AppDaemon.Failure.self) { try await AppDaemon(sharing: [], at: folder + "/a") }
    #expect(error?.description.contains("other users may write to \(folder)") == true)
    #expect(unsafe chmod(folder, 0o755) == 0)
    let daemon = try await AppDaemon(sharing: [], at: folder + "/a")
    await daemon.stop()
  }
  @Test("The socket has its owner, group and mode before it has its name: an app that waits for it is never refused")
  func theSocketAppearsComplete() async throws {
    let folder = try Self.newFolder()
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let group = unsafe String(cString: getgrgid(getgid()).pointee.gr_name)
    // What a daemon that was killed leaves.
    try StreamSocket.listening(atPath: folder + "/apps", replaces: false).close()
    let changes = inotify_init1(CInt(IN_NONBLOCK))
    defer { close(changes) }
    #expect(unsafe inotify_add_watch(changes, folder, UInt32(IN_CREATE | IN_ATTRIB | IN_MOVED_TO)) >= 0)
    let daemon = try await AppDaemon(
      AppDaemon.Configuration(
        socket: .path(folder + "/apps", mode: 0o660, group: group), adapters: [], state: folder + "/state"),
      logger: .silent)
    // inotify(7): the descriptor of the watch, the mask, a cookie and the length of the name, which follows.
    var events = [UInt8](repeating: 0, count: 4096)
    let count = unsafe read(changes, &events, events.count)
    func word(_ offset: Int) -> Int {
      unsafe Int(events.withUnsafeBytes { unsafe $0.loadUnaligned(fromByteOffset: offset, as: UInt32.self) })
    }
    var offset = 0, masks: [Int] = []
    while offset < count {
      let name = String(decoding: events[(offset + 16)...].prefix { $0 != 0 }, as: UTF8.self)
      if name == "apps" { masks.append(word(offset + 4)) }
      offset += 16 + word(offset + 12)
    }
    #expect(masks == [Int(IN_MOVED_TO)])
    let attributes = try FileManager.default.attributesOfItem(atPath: folder + "/apps")
    #expect(attributes[.posixPermissions] as? Int == 0o660)
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder).filter { $0.hasSuffix("~") } == [])
    let socket = try StreamSocket.connected(toPath: folder + "/apps")
    try socket.close()
    await daemon.stop()
    #expect(!FileManager.default.fileExists(atPath: folder + "/apps"))
  }
  @Test(
    "A unit is started for an app of the daemon's user, and for what the administrator's table names, and for nobody else"
  )
  func units() throws {
    let lock = AppManifest(identifier: "org.example.lock", unit: "lock.service")
    func why(_ manifest: AppManifest, _ user: UInt32, by daemon: UInt32, _ table: [String] = []) throws -> String? {
      RelaunchRule.refusal(of: manifest, user: user, by: daemon, Set(try table.map { try RelaunchRule(text: $0) }))
    }
    let rule = "1000:org.example.lock=lock.service"
    for daemon: UInt32 in [0, 100, 1001] {
      #expect(try why(lock, daemon, by: daemon) == nil)
      #expect(try why(lock, 1000, by: daemon)?.hasSuffix("--relaunch \(rule)") == true)
      #expect(try why(lock, 1000, by: daemon, [rule]) == nil)
      // Another user, app or unit than in the table.
      #expect(try why(lock, 1002, by: daemon, [rule]) != nil)
      #expect(try why(AppManifest(identifier: "other", unit: "lock.service"), 1000, by: daemon, [rule]) != nil)
      let shell = AppManifest(identifier: "org.example.lock", unit: "debug-shell.service")
      #expect(try why(shell, 1000, by: daemon, [rule]) != nil)
    }
    #expect(try RelaunchRule(text: "root:a=b@c.service") == RelaunchRule(user: 0, identifier: "a", unit: "b@c.service"))
    for text in [
      "", "a=b.service", "root:=b.service", "root:a", "root:a=b", "root:a=--x.service", "no such:a=b.service",
    ] {
      #expect(throws: AppDaemon.Failure.self, "\(text)") { try RelaunchRule(text: text) }
    }
  }
  @Test("A signal reaches the process that connected, and none that is another user's or has its number later")
  func signals() throws {
    let child = try ChildProcess.start("/bin/sleep", ["sleep", "1000"], adding: [:])
    let process = AppProcess(child, of: getuid()), known = try #require(process.stopped)
    try AppProcesses.real.stop(process)
    var status: CInt = 0
    #expect(unsafe waitpid(child, &status, WUNTRACED) == child && status & 0xFF == 0x7F)
    // A daemon that begins anew finds it by its number and start.
    #expect(AppProcess(known) != nil && StoppedProcess(text: known.text) == known)
    var other = known
    other.start += 1
    #expect(AppProcess(other) == nil)
    other = known
    other.user = getuid() &+ 1
    #expect(AppProcess(other) == nil)
    // The number says nothing: it has to be the user's process too.
    for action in [AppProcesses.real.stop, AppProcesses.real.kill] {
      #expect(throws: FrameError.self) { try action(AppProcess(child, of: getuid() &+ 1)) }
      // Also with a descriptor, for the process may execute another user's program.
      let held = try ChildProcess.ending(of: child)
      #expect(throws: FrameError.self) { try action(AppProcess(child, of: getuid() &+ 1, held)) }
      #expect(throws: FrameError.self) { try action(AppProcess(getpid(), of: getuid())) }
      #expect(throws: FrameError.self) { try action(AppProcess(0, of: getuid())) }
    }
    try AppProcesses.real.kill(process)
    #expect(unsafe waitpid(child, &status, 0) == child && status & 0x7F == SIGKILL)
    // It has ended, and its number may be anybody's: the descriptor is its own.
    try AppProcesses.real.kill(process)
    #expect(AppProcess(known) == nil)
  }
  @Test("A program learns where the daemon is, and gets none of the daemon's files and blocked signals")
  func environment() async throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString.prefix(8))")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let output = folder.appending(path: "output").path
    // Not closed on exec: as sockets that systemd passes.
    let open = folder.appending(path: "socket").path
    let file = try FileDescriptor.open(FilePath(open), .writeOnly, options: .create, permissions: .ownerReadWrite)
    defer { try? file.close() }
    let words = ["echo $BINDRUNE_SOCKET $BINDRUNE_HCI", "grep SigBlk /proc/self/status", "ls -l /proc/$$/fd"]
    #expect(
      try await end(of: ["/bin/sh", "-c", "{ \(words.joined(separator: ";")); } >\(output)"]).hasSuffix("status 0"))
    let text = try String(contentsOfFile: output, encoding: .utf8), lines = text.split(separator: "\n")
    try #require(lines.count > 3, "\(text)")
    #expect(lines[0] == "/run/x.socket broker:hci1" && lines[1].hasSuffix("0000000000000000"))
    #expect(text.contains("0 -> /dev/null") && text.contains(output) && !text.contains(open), "\(text)")
  }
}
