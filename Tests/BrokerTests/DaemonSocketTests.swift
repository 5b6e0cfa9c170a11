import BindruneTransport
import Foundation
import Glibc
import Testing

@testable import BindruneControl

/// Whether a Core Bluetooth program uses bindruned, and by which socket.
@Suite struct DaemonSocketTests {
  @Test("broker, or nothing and a socket that is there, is bindruned")
  func theDaemon() throws {
    func daemon(
      _ adapter: String? = nil, _ environment: [String: String] = [:], _ files: [String: String] = [:],
      there: Set<String> = []
    ) throws -> DaemonSocket? {
      try DaemonSocket.chosen(
        adapter, environment: { environment[$0] ?? ["HOME": "/home/ada"][$0] }, read: { files[$0] }
      ) { there.contains($0) }
    }
    let etc = "/etc/bindrune/config", system = "/run/bindrune/apps.socket", own = "/run/user/7/bindrune-apps.socket"
    let user = ["XDG_RUNTIME_DIR": "/run/user/7"]
    #expect(try daemon() == nil)
    #expect(try daemon(there: [system]) == DaemonSocket(path: system))
    #expect(try daemon(nil, user, there: [system, own]) == DaemonSocket(path: own))
    #expect(try daemon(nil, user, there: [system]) == DaemonSocket(path: system))
    #expect(try daemon(nil, ["XDG_RUNTIME_DIR": "run"], there: [system, "run/bindrune-apps.socket"])?.path == system)
    #expect(try daemon(nil, ["BINDRUNE_SOCKET": "/s"], there: [system]) == nil)
    #expect(try daemon(nil, ["BINDRUNE_SOCKET": "/s"], there: ["/s"])?.path == "/s")
    // What names a controller decides.
    #expect(try daemon("hci0", there: [system]) == nil)
    #expect(try daemon(nil, ["BINDRUNE_HCI": "sim"], there: [system]) == nil)
    #expect(try daemon(nil, [:], [etc: "adapter = hci1"], there: [system]) == nil)
    #expect(try daemon(nil, [:], [etc: "adapter = broker"])?.path == system)
    #expect(try daemon("broker", ["BINDRUNE_HCI": "sim"]) == DaemonSocket(path: system))
    #expect(try daemon(nil, ["BINDRUNE_HCI": "broker:hci1"]) == DaemonSocket(path: system, adapter: "hci1"))
    #expect(throws: TransportError.self) { try daemon(nil, [:], [etc: "adapter"], there: [system]) }
  }
  @Test func theUsersSocketOfTheDaemon() throws {
    let root = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path
    try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: root) }
    func set(_ mode: mode_t) { #expect(unsafe chmod(root, mode) == 0) }
    set(0o755)
    let path = root + "/bindrune-apps.socket"
    func chosen(_ variables: [String: String]) throws -> DaemonSocket? {
      try DaemonSocket.chosen(environment: { variables[$0] }, read: { _ in nil }, isThere: { _ in true })
    }
    let own = try chosen(["XDG_RUNTIME_DIR": root])
    #expect(own == DaemonSocket(path: path))
    set(0o777)
    #expect(throws: TransportError.self) { try chosen(["XDG_RUNTIME_DIR": root]) }
    // What the user names may be another user's.
    let named = try chosen(["XDG_RUNTIME_DIR": "/none", "BINDRUNE_SOCKET": path])
    #expect(named == DaemonSocket(path: path))
  }
}
