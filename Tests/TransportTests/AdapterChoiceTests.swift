import Foundation
import SystemPackage
import Testing

@testable import BindruneTransport

@Suite struct AdapterChoiceTests {
  let home = "/home/ada/.config/bindrune/config", etc = "/etc/bindrune/config"
  func choice(
    _ adapter: String? = nil, _ environment: [String: String] = [:], _ files: [String: String] = [:]
  ) throws(TransportError) -> AdapterChoice {
    try AdapterChoice(adapter, environment: { environment[$0] ?? ["HOME": "/home/ada"][$0] }) { files[$0] }
  }
  func sentence(
    _ adapter: String? = nil, _ environment: [String: String] = [:], _ files: [String: String] = [:]
  ) -> String? {
    do { _ = try choice(adapter, environment, files) } catch { return error.description }
    return nil
  }

  @Test func theFirstSourceDecides() throws {
    #expect(try choice() == AdapterChoice(spec: .adapter(0)))
    #expect(try choice(nil, [:], [etc: "adapter = hci3"]).spec == .adapter(3))
    #expect(try choice(nil, [:], [etc: "adapter = hci3", home: "adapter=hci2"]).spec == .adapter(2))
    #expect(try choice(nil, ["BINDRUNE_HCI": "sim"], [home: "adapter = hci2"]).spec == .sim)
    #expect(try choice(nil, ["BINDRUNE_HCI": ""], [home: "adapter = hci2"]).spec == .adapter(2))
    #expect(try choice("tcp:127.0.0.1:9000", ["BINDRUNE_HCI": "sim"]).spec == .tcp(host: "127.0.0.1", port: 9000))
    // Only the first existing file counts.
    #expect(try choice(nil, [:], [etc: "adapter = hci3", home: ""]).spec == .adapter(0))
    let config = try choice(
      nil, ["XDG_CONFIG_HOME": "/x"], ["/x/bindrune/config": "adapter = hci5", home: "adapter = hci2"])
    #expect(config.spec == .adapter(5))
    // Relative paths are ignored: XDG Base Directory Specification.
    #expect(try choice(nil, ["XDG_CONFIG_HOME": "x"], [home: "adapter = hci2"]).spec == .adapter(2))
  }
  @Test func takesDownAndTrace() throws {
    let file = "# mine\r\n\r\n  adapter = hci1  \r\ntake-down = yes\ntrace = /tmp/a = b.btsnoop\n"
    let expected = AdapterChoice(spec: .adapter(1), takesDown: true, trace: "/tmp/a = b.btsnoop")
    #expect(try choice(nil, [:], [home: file]) == expected)
    #expect(try choice(nil, ["BINDRUNE_TAKE_DOWN": "0"], [home: file]).takesDown == false)
    #expect(
      try choice(nil, ["BINDRUNE_TAKE_DOWN": "1", "BINDRUNE_TRACE": "/t"])
        == AdapterChoice(spec: .adapter(0), takesDown: true, trace: "/t"))
    let traced = AdapterChoice(spec: .sim, trace: "/t", tracesCalls: true)
    #expect(try choice("sim", [:], [home: "trace = /t\ntrace-calls = yes"]) == traced)
    #expect(try choice("sim", ["BINDRUNE_TRACE": "/t", "BINDRUNE_TRACE_CALLS": "1"]) == traced)
    #expect(try choice("sim", ["BINDRUNE_TRACE_CALLS": "0"], [home: "trace-calls = yes"]).tracesCalls == false)
    // Only an adapter of this machine can be taken down.
    #expect(try choice("sim", ["BINDRUNE_TAKE_DOWN": "1"]).takesDown == false)
  }
  @Test func signals() throws {
    #expect(try choice().handlesSignals)
    #expect(try !choice(nil, [:], [home: "signals = no"]).handlesSignals)
    #expect(try choice(nil, ["BINDRUNE_SIGNALS": "1"], [home: "signals = no"]).handlesSignals)
    #expect(try !choice("sim", ["BINDRUNE_SIGNALS": "off"]).handlesSignals)
    #expect(sentence(nil, ["BINDRUNE_SIGNALS": "perhaps"])?.contains("BINDRUNE_SIGNALS is \"perhaps\"") == true)
    #expect(sentence(nil, [:], [home: "signals = maybe"])?.contains("signals is \"maybe\": write yes or no") == true)
  }
  /// A sentence with the place and the remedy.
  @Test func errorsNameTheCause() {
    #expect(sentence("hci")?.contains("hci0") == true)
    #expect(sentence(nil, ["BINDRUNE_HCI": "bogus"])?.hasPrefix("BINDRUNE_HCI: ") == true)
    #expect(sentence(nil, ["BINDRUNE_TAKE_DOWN": "perhaps"])?.contains("1 or 0") == true)
    #expect(sentence(nil, ["BINDRUNE_TRACE_CALLS": "all"])?.contains("BINDRUNE_TRACE_CALLS is \"all\"") == true)
    for (text, words) in [
      ("adapter = bogus", "line 1: \"bogus\""), ("\nadapter", "line 2: \"adapter\" sets nothing"),
      ("adapter =", "sets nothing"), ("take-down = maybe", "write yes or no"), ("speed = 3", "there is no \"speed\""),
    ] {
      let said = sentence(nil, [:], [home: text])
      #expect(said?.hasPrefix(home) == true && said?.contains(words) == true, "\(said ?? "nothing")")
    }
    // A choice made elsewhere does not hide an invalid file.
    #expect(sentence("sim", [:], [home: "speed = 3"]) != nil)
    #expect(throws: TransportError.self) {
      try AdapterChoice(environment: { ["HOME": "/home/ada"][$0] }) { _ in throw Errno.permissionDenied }
    }
  }
  @Test func filesAreRead() throws {
    let path = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path
    #expect(try AdapterChoice.text(ofFile: path) == nil)
    try Data("adapter = sim".utf8).write(to: URL(filePath: path))
    defer { try? FileManager.default.removeItem(atPath: path) }
    #expect(try AdapterChoice.text(ofFile: path) == "adapter = sim")
  }
  /// An object at the configuration's path that is not a file is refused with a message, without blocking.
  @Test func otherKindsOfFilesAreRefused() throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path
    try FileManager.default.createDirectory(atPath: folder + "/bindrune/config", withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: folder) }
    func sentence() -> String? {
      do throws(TransportError) {
        _ = try AdapterChoice(environment: { ["XDG_CONFIG_HOME": folder][$0] })
        return nil
      } catch { return error.description }
    }
    let path = folder + "/bindrune/config"
    #expect(sentence() == "\(path) cannot be read (it is not a regular file): mend or remove it.")
    #expect(unsafe rmdir(path) == 0)
    #expect(unsafe mkfifo(path, 0o600) == 0)
    #expect(sentence() == "\(path) cannot be read (it is not a regular file): mend or remove it.")
    #expect(unsafe unlink(path) == 0)
    try String(repeating: "#\n", count: 40_000).write(toFile: path, atomically: true, encoding: .utf8)
    #expect(sentence() == "\(path) cannot be read (it has more than 65536 octets): mend or remove it.")
    try String(repeating: "#\n", count: 32_768).write(toFile: path, atomically: true, encoding: .utf8)
    #expect(sentence() == nil)
  }

  /// `broker` is no controller: a program that drives one itself says so.
  @Test func theDaemonIsNoController() {
    #expect(sentence("broker")?.contains("name a controller here") == true)
    #expect(sentence("broker:hci1")?.contains("name a controller here") == true)
  }
}
