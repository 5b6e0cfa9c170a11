import Foundation
import TestSupport
import Testing

/// The verbs that search for adapters, on any machine: the tests ask the kernel about its Bluetooth support, too.
@Suite("Doctor", .realTime, .hang) struct DoctorTests {
  /// Whether this process gets an HCI socket: AF_BLUETOOTH 31, BTPROTO_HCI 1.
  private static let hasSockets: Bool = {
    let descriptor = socket(31, CInt(SOCK_RAW.rawValue), 1)
    if descriptor >= 0 { close(descriptor) }
    return descriptor >= 0
  }()
  /// The adapters in /sys.
  private static let names = ((try? FileManager.default.contentsOfDirectory(atPath: "/sys/class/bluetooth")) ?? [])
    .filter { $0.hasPrefix("hci") && UInt16($0.dropFirst(3)) != nil }.sorted()

  @Test func adapters() async throws {
    let plain = try await Tool("adapters").end()
    #expect(plain.status == 0 && plain.errors == "")
    let json = try await Tool("adapters", "--json").end()
    #expect(json.status == 0 && json.errors == "")
    let listed = try json.objects().compactMap { $0["name"] as? String }
    #expect(listed == Self.names)
    if listed.isEmpty {
      #expect(plain.lines.count == 1 && plain.output.hasSuffix(".\n") && plain.output.contains("Bluetooth"))
    } else {
      #expect(plain.lines.map { String($0.prefix { $0 != " " }) } == listed)
    }
  }

  @Test func doctor() async throws {
    let plain = try await Tool("doctor").end()
    let json = try await Tool("doctor", "--json").end()
    #expect(plain.errors == "" && json.errors == "" && json.lines.count == 1)
    #expect(!plain.output.contains("\u{1B}") && plain.lines.first == "This machine")
    let object = try #require(try json.objects().first)
    let isWell = try #require(object["ok"] as? Bool)
    #expect(plain.status == (isWell ? 0 : 1) && json.status == plain.status)
    let checks = try #require(object["checks"] as? [[String: Any]])
    #expect(checks.map { $0["check"] as? String } == ["socket", "userNamespace", "capability", "adapter"])
    #expect(checks[0]["verdict"] as? String == (Self.hasSockets ? "passed" : "failed"))
    #expect((object["adapters"] as? [[String: Any]])?.map { $0["name"] as? String } == Self.names)
    // Each failure has its advice.
    #expect(plain.lines.count { $0.hasPrefix("  ✗ ") } <= plain.lines.count { $0.contains("→ ") })
    if isWell {
      #expect(plain.lines.last?.contains("can be opened: `bindrune scan --hci hci") == true)
    } else {
      #expect(plain.output.contains("No adapter can be opened yet: follow the arrows"))
    }
  }

  /// On a machine without Bluetooth, the tool says so, and what is still possible.
  @Test(.enabled(if: !hasSockets && names.isEmpty)) func withoutBluetooth() async throws {
    let end = try await Tool("doctor", "hci0").end()
    #expect(end.status == 1 && end.errors == "")
    let place = try #require(end.lines.firstIndex { $0.hasPrefix("  ✗ Bluetooth ") })
    #expect(end.lines[place].contains("Bluetooth") && end.lines[place + 1].contains("→ "))
    #expect(end.lines.contains("  ? adapter         cannot be seen from here"))
    #expect(end.output.contains("hci0 cannot be opened yet") && end.lines.last?.contains("`bindrune demo`") == true)
    #expect(try await Tool("doctor", "hci0", "--open").end().lines.contains("  ? opening         not tried"))
  }

  @Test func noSuchAdapter() async throws {
    let end = try await Tool("doctor", "hci60000", "--json").end()
    #expect(end.status == 1)
    let object = try #require(try end.objects().first)
    #expect(object["ok"] as? Bool == false)
    let adapter = try #require((object["adapters"] as? [[String: Any]])?.first)
    #expect(adapter["name"] as? String == "hci60000" && adapter["ok"] as? Bool == false)
    let checks = try #require(adapter["checks"] as? [[String: Any]])
    #expect(checks.count == 1 && checks[0]["verdict"] as? String == (Self.hasSockets ? "failed" : "unknown"))
    for name in ["hci", "hci65535", "hci-1", "hci+1", "hci00", "eth0", "0", "sim"] {
      let usage = try await Tool.shell("bindrune doctor -- \(name)").end()
      #expect(usage.status == 64 && usage.errors.hasPrefix("Error: ") && usage.output == "", "\(name)")
    }
  }

  @Test(.enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/script"))) func onATerminal() async throws {
    let colour = try await Tool.shell("env -u NO_COLOR TERM=xterm script -qc '\(Tool.path) doctor' /dev/null").end()
    #expect(colour.output.contains("\u{1B}[1mThis machine\u{1B}[0m"))
    #expect(
      colour.output.contains(Self.hasSockets ? "\u{1B}[32m✓\u{1B}[0m Bluetooth" : "\u{1B}[31m✗\u{1B}[0m Bluetooth"))
    #expect(!colour.output.contains("`"))
  }

  /// With no_new_privs and without the capability, sudo would not help, so the doctor does not advise it.
  @Test(.enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/setpriv") && geteuid() == 0))
  func withoutTheCapability() async throws {
    for (options, word) in [
      ("--bounding-set -net_admin --inh-caps -net_admin", "withheld"),
      ("--reuid 65534 --regid 65534 --clear-groups", "`sudo setcap cap_net_admin+ep \(Tool.path)`"),
      ("--reuid 65534 --regid 65534 --clear-groups --no-new-privs", "withheld"),
    ] {
      let end = try await Tool.shell("setpriv \(options) \(Tool.path) doctor").end()
      #expect(end.status == 1, "\(end.errors)")
      let place = try #require(end.lines.firstIndex { $0.hasPrefix("  ✗ CAP_NET_ADMIN ") }, "\(options)\n\(end.output)")
      #expect((end.lines[place] + end.lines[place + 1]).contains(word), "\(end.output)")
    }
  }

  @Test(arguments: ["doctor", "adapters"]) func help(verb: String) async throws {
    let end = try await Tool(verb, "--help").end()
    #expect(end.status == 0 && end.output.contains("USAGE: bindrune \(verb)") && end.output.contains("--json"))
  }
}
