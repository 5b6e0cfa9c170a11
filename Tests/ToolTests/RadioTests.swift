import Foundation
import Glibc
import TestSupport
import Testing

@testable import Bindrune

/// `controllers --name`, and the verbs that join it, each in a process of its own.
@Suite("Radio", .realTime, .hang) struct RadioTests {
  /// The tool, for a user whose runtime folder is `folder`.
  private func tool(_ folder: URL, _ arguments: String) throws -> Tool {
    try Tool.shell("exec env XDG_RUNTIME_DIR=\(folder.path) \(Tool.path) \(arguments)")
  }
  private func socket(_ folder: URL) -> String { folder.appending(path: "bindrune/desk.sock").path }

  @Test(arguments: [SIGINT, SIGTERM]) func processesMeet(signal: Int32) async throws {
    try await withFolder { folder in
      let radio = try tool(folder, "controllers --name desk")
      #expect(try await radio.line("listening on ") == "listening on sim:desk")
      let server = try tool(folder, "serve --hci sim:desk --name Belt")
      _ = try await server.line("serving Belt as ")
      let scan = try tool(folder, "scan --hci sim:desk --service 180D --json")
      _ = try await scan.line(#""name":"Belt""#)
      scan.signal(SIGINT)
      let heard = await scan.end()
      #expect(heard.status == 0 && heard.errors == "", "\(heard.errors)")
      let explored = try await tool(folder, "explore --hci sim:desk --name Belt").end()
      #expect(explored.status == 0 && explored.output.contains("Heart Rate Measurement 2A37"), "\(explored.errors)")

      // Only one can have the name, and a second one does not harm the first.
      expectSentence(
        try await tool(folder, "controllers --name desk").end(), "The radio sim:desk is already running: join it")
      let bench = try await tool(folder, "bench --hci sim:desk --hci sim:desk --count 3 --json").end()
      #expect(bench.status == 0, "\(bench.errors)")
      #expect(try bench.objects().last?["virtual"] as? Bool == true)

      radio.signal(signal)
      #expect(await radio.end().status == 0)
      #expect(!FileManager.default.fileExists(atPath: socket(folder)))
      expectSentence(await server.end(), "closed the connection")
      expectSentence(
        try await tool(folder, "scan --hci sim:desk").end(),
        #"No process runs the radio sim:desk (at \#(socket(folder))): start it with "bindrune controllers --name desk"."#
      )
    }
  }

  /// A peripheral and a central bond; each keeps its own file. Both processes end, and so does the radio. Their
  /// successors encrypt with the bond: neither agent permits a new pairing. Then the peripheral's bond is removed, and
  /// the central reports that. Vol 3, Part C, §10.3.2; Vol 1, Part F, §2.6.
  @Test func bondsOutliveProcesses() async throws {
    try await withFolder { folder in
      let profile = folder.appending(path: "lock.json"), ours = "--bonds \(folder.path)/ours"
      let lost = folder.path + "/locks", theirs = "--bonds \(lost)"
      try Data(
        #"""
        { "title": "A lock", "services": [ { "uuid": "FFE0", "characteristics": [
          { "uuid": "FFE1", "properties": ["read"], "value": "2A", "read": "encrypted" } ] } ] }
        """#.utf8
      ).write(to: profile)
      /// `verbs` run beside a server on a new radio, where the server is always the first, so both keep their
      /// addresses.
      func withLock(
        _ agent: String, _ verbs: (_ run: (String) async throws -> Tool.End) async throws -> Void
      ) async throws {
        let radio = try tool(folder, "controllers --name desk")
        _ = try await radio.line("listening on ")
        let lock = try tool(
          folder, "serve --hci sim:desk --name Lock --profile \(profile.path) \(theirs) --agent \(agent)")
        _ = try await lock.line("serving Lock as 00:00:5E:00:53:01/public")
        try await verbs { try await tool(folder, "\($0) --hci sim:desk --name Lock \(ours)").end() }
        lock.signal(SIGINT)
        let end = await lock.end()
        #expect(end.status == 0 && end.errors == "", "\(end)")
        radio.signal(SIGINT)
        #expect(await radio.end().status == 0)
      }
      func read(_ agent: String) -> String { "read --format hex FFE1 --agent \(agent)" }
      func addresses(_ file: String) async throws -> [String] {
        try await BondFile(path: file).all().entries.map { "\($0.adapter) \($0.bond.address)" }
      }
      let first = "00:00:5E:00:53:01/public", second = "00:00:5E:00:53:02/public"

      try await withLock("accept") { run in
        let paired = try await run("pair --json")
        #expect(paired.status == 0, "\(paired)")
        let object = try #require(try paired.objects().last)
        #expect(object["event"] as? String == "paired" && object["address"] as? String == first, "\(object)")
        #expect(object["encrypted"] as? Bool == true && object["bonded"] as? Bool == true, "\(object)")
      }
      #expect(try await addresses(folder.path + "/ours") == ["\(second) \(first)"])
      #expect(try await addresses(lost) == ["\(first) \(second)"])

      try await withLock("refuse") { run in
        let value = try await run(read("refuse"))
        #expect(value.status == 0 && value.lines == ["2A"], "\(value)")
      }
      try await withLock("refuse") { run in
        let bonded = try await run("pair --json")
        let object = try #require(try bonded.objects().last, "\(bonded)")
        #expect(object["event"] as? String == "encrypted" && object["encrypted"] as? Bool == true, "\(object)")
      }

      let removed = try await Tool("bonds", "remove", "00:00:5E:00:53:02", "--bonds", lost).end()
      #expect(removed.status == 0 && removed.lines == ["removed \(second) of adapter \(first)"], "\(removed)")
      let cure = "no longer has the key of the bond"
      try await withLock("accept") { run in
        let end = try await run("pair")
        // The verb asks for the encryption before or after the host has ended the link, which it encrypts by itself.
        expectSentence(end, "The device \(cure), 0x06 (PIN or Key Missing)")
        #expect(
          end.errors.contains(": remove the bond, and pair again: \"bindrune bonds remove \(first)\" removes it here."))
      }
      // Nor do other verbs pair anew, even with an agent that would let them.
      try await withLock("accept") { run in
        expectSentence(
          try await run(read("accept")), "The device \(cure), 0x06 (PIN or Key Missing), so the link was ended")
      }
      // Only the user removes the bond here: another device could use the address.
      #expect(try await addresses(folder.path + "/ours") == ["\(second) \(first)"])
      let cured = try await Tool("bonds", "remove", first, "--bonds", folder.path + "/ours").end()
      #expect(cured.status == 0, "\(cured)")
      try await withLock("accept") { run in
        let value = try await run(read("accept"))
        #expect(value.status == 0 && value.lines == ["2A"], "\(value)")
      }
    }
  }

  @Test func theSocketOfAKilledProcessIsReplaced() async throws {
    try await withFolder { folder in
      for _ in 0..<2 {
        let radio = try tool(folder, "controllers --name desk")
        _ = try await radio.line("listening on sim:desk")
        #expect(try await tool(folder, "scan --hci sim:desk --duration 0.1").end().status == 0)
        radio.signal(SIGKILL)
        #expect(await radio.end().status == 128 + SIGKILL)
        #expect(FileManager.default.fileExists(atPath: socket(folder)))
        expectSentence(try await tool(folder, "scan --hci sim:desk").end(), "No process runs the radio sim:desk")
      }
    }
  }

  /// For a host that needs an address, and one that knows the name.
  @Test func oneRadioTwoWays() async throws {
    try await withFolder { folder in
      let radio = try tool(folder, "controllers --name desk --listen tcp:127.0.0.1:0")
      #expect(try await radio.line("listening on ") == "listening on sim:desk")
      let spec = String(try await radio.line("listening on ").dropFirst("listening on ".count))
      let server = try tool(folder, "serve --hci \(spec) --name Belt")
      _ = try await server.line("serving Belt as ")
      let scan = try tool(folder, "scan --hci sim:desk --json")
      _ = try await scan.line(#""name":"Belt""#)
      scan.signal(SIGINT)
      _ = await scan.end()
      radio.signal(SIGINT)
      #expect(await radio.end().status == 0)
      _ = await server.end()
    }
  }

  /// Of many that start at once exactly one gets the address, and the others report that; the next round finds it free,
  /// whether its owner ended or was killed.
  @Test(arguments: [SIGTERM, SIGKILL], ["--name desk", "--listen unix:"])
  func exactlyOneRuns(signal: Int32, address: String) async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "desk.sock").path, isNamed = address == "--name desk"
      let (option, spec) = isNamed ? (address, "sim:desk") : (address + path, "unix:" + path)
      for _ in 0..<3 {
        let many = try (0..<6).map { _ in try tool(folder, "controllers \(option)") }
        let listening = try await withThrowingTaskGroup(of: Tool?.self) { group in
          for one in many {
            group.addTask {
              guard (try? await one.line("listening on ")) == nil else { return one }
              expectSentence(
                await one.end(),
                isNamed ? "The radio sim:desk is already running" : "Another process is listening at \(spec)")
              return nil
            }
          }
          return try await group.reduce(into: [Tool]()) { if let one = $1 { $0.append(one) } }
        }
        #expect(listening.count == 1)
        // Others can join it.
        let scan = try await tool(folder, "scan --hci \(spec) --duration 0.1").end()
        #expect(scan.status == 0, "\(scan.errors)")
        for one in listening {
          one.signal(signal)
          _ = await one.end()
        }
      }
    }
  }

  /// Without a descriptor for the next connection the radio waits, and does not spin; then it continues.
  @Test func moreHostsThanDescriptors() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "hci.sock").path
      // Fewer than 40 hosts need, more than ten do: a process inherits descriptors from who runs the tests.
      let radio = try Tool.shell(
        "ulimit -n 32; NIO_SINGLETON_GROUP_LOOP_COUNT=1 exec \(Tool.path) controllers --listen unix:\(path)")
      _ = try await radio.line("listening on ")
      var hosts = (0..<40).map { _ in connection(to: path) }
      defer { for host in hosts { close(host) } }
      for host in hosts {
        let written = unsafe write(host, [0x01, 0x03, 0x0C, 0x00] as [UInt8], 4)
        #expect(written == 4)
      }
      // The first host is served. A process that spins never gives up the processor voluntarily.
      #expect(answer(of: hosts[0]) == [0x04, 0x0E, 0x04, 0x01, 0x03, 0x0C, 0x00])
      let before = radio.voluntarySwitches
      while radio.voluntarySwitches < before + 20 {
        try #require(radio.isRunning, "it never slept")
        try await Task.sleep(for: .milliseconds(20))
      }
      // Those that waited have their turn.
      for host in hosts[..<30] { close(host) }
      hosts.removeFirst(30)
      for host in hosts { #expect(answer(of: host) == [0x04, 0x0E, 0x04, 0x01, 0x03, 0x0C, 0x00]) }
      radio.signal(SIGTERM)
      #expect(await radio.end().status == 0)
    }
  }
  private func connection(to path: String) -> Int32 {
    let descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: path.utf8) }
    let size = socklen_t(MemoryLayout<sockaddr_un>.size)
    let status = unsafe withUnsafePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { unsafe connect(descriptor, $0, size) }
    }
    #expect(status == 0, "\(errno)")
    return descriptor
  }
  /// The next seven octets; fewer if the other side has closed.
  private func answer(of host: Int32) -> [UInt8] {
    var octets: [UInt8] = [], room = [UInt8](repeating: 0, count: 7)
    while octets.count < 7 {
      let count = unsafe read(host, &room, 7 - octets.count)
      if count <= 0 { break }
      octets += room[..<count]
    }
    return octets
  }

  /// The name's file is removed too if the other address is taken.
  @Test func halfOfItIsNone() async throws {
    try await withFolder { folder in
      let end = try await tool(folder, "controllers --name desk --listen unix:/no/such/folder/hci.sock").end()
      expectSentence(end, "unix:/no/such/folder/hci.sock")
      #expect(end.output == "" && !FileManager.default.fileExists(atPath: socket(folder)))
    }
  }

  @Test func whereItCannotBe() async throws {
    try await withFolder { folder in
      let place = folder.appending(path: "bindrune")
      try FileManager.default.createDirectory(at: place, withIntermediateDirectories: false)
      try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: place.path)
      for verb in ["controllers --name desk", "scan --hci sim:desk"] {
        expectSentence(try await tool(folder, verb).end(), "chmod 700 \(place.path)")
      }
      let name = String(repeating: "n", count: 100)
      expectSentence(try await tool(folder, "controllers --name \(name)").end(), "use a shorter name")
    }
  }

  @Test(arguments: ["controllers", "controllers --name ''", "controllers --name .x", "controllers --name a/b"])
  func usage(arguments: String) async throws {
    let end = try await Tool.shell("bindrune \(arguments)").end()
    #expect(end.status == 64 && end.output == "" && end.errors.hasPrefix("Error: "))
    #expect(
      end.errors.contains(arguments == "controllers" ? "add --name desk" : "for example sim:desk"), "\(end.errors)")
  }
}
