import Bindrune
import BindruneTransport
import Foundation
import NIOPosix
import Synchronization
import TestSupport
import Testing

private let isTsharkHere = FileManager.default.isExecutableFile(atPath: "/usr/bin/tshark")
private let isScriptHere = FileManager.default.isExecutableFile(atPath: "/usr/bin/script")

@Suite("Tool", .realTime, .hang) struct ToolTests {
  // MARK: Demo

  @Test func demo() async throws {
    try await withFolder { folder in
      let trace = folder.appending(path: "demo.btsnoop")
      let end = try await Tool("demo", "--trace", trace.path).end()
      #expect(end.status == 0 && end.errors == "")
      let steps = end.lines.filter { $0.first?.isNumber == true }.map { $0.split(separator: " ")[1] }
      #expect(
        steps == ["start", "scan", "connect", "MTU", "discover", "read", "write", "subscribe", "disconnect"])
      #expect(end.lines.filter { $0.hasPrefix("Heart Rate Measurement ") }.count == 10)
      // Each layer of a packet on a line; only text in a pipe.
      for layer in ["HCI ", "L2CAP ", "ATT "] { #expect(end.lines.contains { $0.contains(layer) }) }
      #expect(!end.output.contains("\u{1B}") && !end.output.contains("\r"))
      // A step's packets follow it.
      let order = [
        "connect", "HCI_LE_Extended_Create_Connection", "MTU", "ATT_EXCHANGE_MTU_REQ", "discover",
        "ATT_READ_BY_GROUP_TYPE_REQ",
        "disconnect", "ATT_WRITE_REQ", "HCI_Disconnect",
      ]
      var rest = end.lines[...]
      for text in order {
        let place = try #require(rest.firstIndex { $0.contains(" " + text) }, "\(text)")
        rest = rest[(place + 1)...]
      }
      let octets = try Data(contentsOf: trace)
      #expect(octets.starts(with: Array("btsnoop\0".utf8) + [0, 0, 0, 1, 0, 0, 0x03, 0xEA]))
    }
  }

  @Test(.enabled(if: isTsharkHere)) func anotherToolReadsTheTrace() async throws {
    try await withFolder { folder in
      let trace = folder.appending(path: "demo.btsnoop").path
      let end = try await Tool.shell(
        "bindrune demo --brief --trace \(trace) && tshark -r \(trace) -T fields -e _ws.col.Protocol -e _ws.malformed"
      ).end()
      let packets = end.lines.filter { $0.hasPrefix("HCI_") || $0.hasPrefix("ATT") || $0.hasPrefix("L2CAP") }
      #expect(end.status == 0 && packets.count > 50 && packets.contains { $0.hasPrefix("ATT") })
      #expect(!packets.contains { $0.contains("alformed") })
    }
  }

  // MARK: Verbs against each other

  @Test(arguments: ["tcp", "unix"]) func serveAndExploreMeet(kind: String) async throws {
    try await withFolder { folder in
      let (radio, spec) = try await controllers(kind == "tcp" ? "tcp:127.0.0.1:0" : "unix:\(folder.path)/hci.sock")
      let server = try Tool("serve", "--hci", spec, "--name", "Belt \"1\"")
      _ = try await server.line("serving Belt \"1\" as ")

      let heard = try await Tool.scan("--hci", spec, "--service", "180d", "--json", until: "Belt")
      #expect(heard.status == 0)
      let report = try #require(try heard.objects().last)
      #expect(report["name"] as? String == "Belt \"1\"" && report["services"] as? [String] == ["180D", "180F"])
      let address = try #require(report["address"] as? String)

      let plain = try await Tool("explore", "--hci", spec, "--address", address).end()
      #expect(plain.status == 0 && plain.errors == "", "\(plain.errors)")
      #expect(plain.lines.contains { $0.contains("Heart Rate Measurement 2A37 [notify]") })
      #expect(plain.lines.last?.hasPrefix("5 services, 11 characteristics, 3 descriptors; ATT_MTU 517") == true)

      let json = try await Tool("explore", "--hci", spec, "--name", "Belt \"*", "--json").end()
      #expect(json.status == 0, "\(json.errors)")
      let objects = try json.objects()
      #expect(objects.filter { $0["event"] as? String == "service" }.map { $0["uuid"] as? String }.contains("180D"))
      let location = objects.first { $0["uuid"] as? String == "2A38" }
      #expect(location?["value"] as? String == "01" && location?["properties"] as? [String] == ["read"])
      #expect(objects.last?["event"] as? String == "done" && objects.last?["mtu"] as? Int == 517)

      // The server has printed both connections and their ends, and ends on request.
      for text in ["connected: ", "disconnected: ", "connected: ", "disconnected: "] { _ = try await server.line(text) }
      server.signal(SIGINT)
      #expect(await server.end().status == 0)
      radio.signal(SIGTERM)
      #expect(await radio.end().status == 0)
      #expect(!FileManager.default.fileExists(atPath: "\(folder.path)/hci.sock"))
    }
  }

  @Test func advertiseIsSeenAndConnectedTo() async throws {
    let (radio, spec) = try await controllers()
    let advertiser = try Tool(
      "advertise", "--hci", spec, "--policy", "standard", "--name", "Rune", "--service", "180D", "--service", "180f",
      "--manufacturer",
      "FFFF0102",
      "--json")
    // Octets composed by hand: Core Specification Supplement, Part A, §1.1 – §1.4.
    let began = try await advertiser.line("\"advertising\"")
    #expect(began.contains(#""pdus":"legacy","advertising_data":"02010605030D180F1805FFFFFF0102050952756E65""#))
    #expect(began.contains(#""scan_response":"","name":"Rune","name_is_shortened":false,"services":["180D","180F"]"#))
    let heard = try await Tool.scan("--hci", spec, "--service", "180F", "--json", until: "Rune")
    let report = try #require(try heard.objects().last)
    #expect(report["name"] as? String == "Rune" && report["manufacturer_data"] as? String == "FFFF0102")
    let explored = try await Tool("explore", "--hci", spec, "--name", "Rune").end()
    #expect(explored.status == 0 && explored.output.contains("\"Rune\""), "\(explored.errors)")
    for text in [#"{"event":"connected","address":""#, #"{"event":"disconnected","address":""#] {
      _ = try await advertiser.line(text)
    }
    advertiser.signal(SIGINT)
    #expect(await advertiser.end().status == 0)
    radio.signal(SIGINT)
    _ = await radio.end()
  }
  @Test func advertiseShowsWhatItSays() async throws {
    let name = String(repeating: "n", count: 40)
    let end = try await Tool(
      "advertise", "--hci", "sim", "--policy", "standard", "--name", name, "--service", "180D", "--duration", "0.2"
    )
    .end()
    #expect(end.status == 0 && end.errors == "", "\(end.errors)")
    let expected: [String] = [
      "advertising data, 7 of 31 octets", "  flags: general discoverable, BR/EDR not supported", "    02 01 06",
      "  services: Heart Rate (180D)", "    03 03 0D 18", "scan response, 31 of 31 octets",
      "  shortened name: \"\(name.prefix(29))\"", "    1E 08 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E",
      "    6E 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E 6E",
    ]
    #expect(Array(end.lines.dropLast(3)) == expected)
    #expect(end.lines.suffix(3).first == "shortened: the name, which has 40 octets")
    #expect(end.lines.suffix(2).first?.hasPrefix("advertising as ") == true)
    #expect(end.lines.suffix(2).first?.hasSuffix(" with legacy PDUs for 0.2 s") == true)
    #expect(end.lines.last == "advertising has ended: the time is over")
    // More than legacy PDUs hold.
    let services = ["A0B10000", "A0B10001", "A0B10002"].flatMap { ["--service", "\($0)-1D1D-4BBD-8E5C-6F0E5F1A0C00"] }
    let long = try await Tool.shell(
      "bindrune advertise --hci sim --policy everything --name Long --json --duration 0.1 \(services.joined(separator: " "))"
    ).end()
    let objects = try long.objects()
    #expect(objects.first?["pdus"] as? String == "extended" && objects.first?["scan_response"] as? String == "")
    #expect((objects.first?["services"] as? [String])?.count == 3 && objects.last?["event"] as? String == "ended")
  }
  @Test func advertiseTooMuch() async throws {
    let name = try await Tool("advertise", "--hci", "sim", "--name", String(repeating: "ß", count: 125)).end()
    #expect(name.status == 64 && name.errors.contains("--name has 250 octets and a device's name has at most 248"))
    let services = (0..<16).map { "--service A0B100\(["0", "1"][$0 / 10])\($0 % 10)-1D1D-4BBD-8E5C-6F0E5F1A0C00" }
    expectSentence(
      try await Tool.shell(
        "bindrune advertise --hci sim --policy everything --name n \(services.joined(separator: " "))"
      ).end(),
      "needs 16 octets and 0 are free, and 1 more")
    expectSentence(
      try await Tool.shell(
        "bindrune advertise --hci sim --policy everything --name n \(services.dropLast().joined(separator: " "))"
      ).end(),
      "the name needs 3 octets and 0 are free")
    for manufacturer in ["F", "FF", "GG00"] {
      let end = try await Tool("advertise", "--hci", "sim", "--name", "n", "--manufacturer", manufacturer).end()
      #expect(end.status == 64 && end.output == "")
    }
  }

  @Test func scan() async throws {
    let end = try await Tool.scan("--hci", "sim", until: "Virtual Heart Rate")
    #expect(end.status == 0 && end.errors == "" && end.lines.last == "1 device")
    #expect(end.lines.count == 2 && end.lines[0].contains("Virtual Heart Rate"))
    let none = try await Tool("scan", "--hci", "sim", "--duration", "0.3", "--service", "1234").end()
    #expect(none.status == 0 && none.lines == ["0 devices"])
  }

  /// Two that trace on one radio: each connection has its file.
  @Test func controllersTrace() async throws {
    try await withFolder { folder in
      let path = folder.appending(path: "air").path
      let radio = try Tool("controllers", "--listen", "tcp:127.0.0.1:0", "--trace", path)
      let spec = String(try await radio.line("listening on ").dropFirst("listening on ".count))
      for _ in 0..<2 { #expect(try await Tool("scan", "--hci", spec, "--duration", "0.1").end().status == 0) }
      radio.signal(SIGINT)
      #expect(await radio.end().status == 0)
      for name in [path, path + ".2"] { #expect(try Data(contentsOf: URL(filePath: name)).count > 200) }
    }
  }

  // MARK: What goes wrong

  @Test func noPeer() async throws {
    expectSentence(try await Tool("scan", "--hci", "tcp:127.0.0.1:1").end(), "Nothing is listening at tcp:127.0.0.1:1")
    expectSentence(try await Tool("serve", "--hci", "unix:/no/such.sock").end(), "no socket at unix:/no/such.sock")
    expectSentence(try await Tool("scan", "--hci", "serial:/no/such").end(), "no device at serial:/no/such")
    expectSentence(try await Tool("scan", "--hci", "sim", "--take-down").end(), "only an adapter of this machine")
    expectSentence(
      try await Tool("explore", "--hci", "sim", "--name", "Nobody", "--timeout", "0.2").end(), "named \"Nobody\"",
      status: 2)
    expectSentence(
      try await Tool("explore", "--hci", "sim", "--name", "No*", "--timeout", "0.2").end(),
      "No device whose name begins with \"No\" was heard in 0.2 s", status: 2)
    expectSentence(
      try await Tool("explore", "--hci", "sim", "--address", "00:11:22:33:44:55/random", "--timeout", "0.2").end(),
      "00:11:22:33:44:55/random did not answer in 0.2 s", status: 2)
    expectSentence(try await Tool("demo", "--trace", "/no/such/file").end(), "The trace file /no/such/file failed")
    expectSentence(try await Tool.shell("bindrune demo > /dev/full").end(), "Standard output failed: No space left")
  }

  /// HCI Hardware Error (0x10, Vol 4, Part E, §7.7.16) in the place of the answer to LE Extended Create Connection
  /// (0x2043).
  @Test func theControllerFailsWhileExploreConnects() async throws {
    let air = try await Air { stream in
      Interceptor(stream) { packet, program in
        guard packet.starts(with: [0x01, 0x43, 0x20]) else { return true }
        program.send(([0x04, 0x10, 0x01, 0x42] as [UInt8]).span)
        program.flush()
        return false
      }
    }
    let end = try await Tool("explore", "--hci", air.spec, "--address", "C0:FF:EE:00:00:01/random").end()
    expectSentence(end, "The controller failed, ")
    #expect(!end.errors.contains("closed"))
    try await air.close()
  }

  /// Service Changed while `explore` reads: what it has printed no longer holds. Vol 3, Part G, §7.1.
  @Test(arguments: [false, true]) func theServicesChangeWhileExploreReads(isJSON: Bool) async throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "Changing")
    let changed = builder.genericAttribute().value.rawValue
    let next = builder.service("FFE0") { service in
      service.characteristic("FFE1", .read, value: .dynamic)
      return service.characteristic("FFE2", .read, value: [2]).value.rawValue
    }
    let old = builder.service("FFE3") { service in
      service.characteristic("FFE4", .read, value: [4])
      return service.handle
    }
    // The program has not subscribed, so the test indicates: once, when the program reads the value after the dynamic
    // one.
    let isIndicated = Mutex(false)
    let air = try await Air { stream in
      Interceptor(stream) { packet, program in
        guard packet.count == 12, packet[0] == 0x02, packet[7...10] == [0x04, 0x00, 0x0A, UInt8(next)],
          !isIndicated.withLock({ was in
            defer { was = true }
            return was
          })
        else { return true }
        let indication: [UInt8] = [0x1D, UInt8(changed), 0, UInt8(next) + 1, 0, 0xFF, 0xFF]
        let frame = [UInt8(indication.count), 0, 0x04, 0x00] + indication
        program.send(([0x02, packet[1], packet[2] & 0x0F | 0x20, UInt8(frame.count), 0] + frame).span)
        program.flush()
        return true
      }
    }
    let host = BluetoothHost(air.radio.controller(), database: try builder.build())
    try await host.start()
    try await host.advertise(AdvertisingData(localName: "Changing"))
    // From now on: a request that nobody hears is refused.
    let events = await host.events
    let serving = Task {
      var isChanged = false
      for try await case .readRequested(let request) in events {
        if !isChanged {
          isChanged = true
          try await host.remove(service: old)
          var services = DatabaseBuilder(after: await host.database)
          services.service("FFE5") { $0.characteristic("FFE6", .read, value: [6]) }
          try await host.insert(services)
        }
        try await request.respond([1])
      }
    }
    let explore = ["explore", "--hci", air.spec, "--name", "Changing"]
    let end = try await Tool.run(explore + (isJSON ? ["--json"] : []))
    #expect(end.status == 0 && isIndicated.withLock { $0 }, "\(end)")
    let words = isJSON ? "{\"event\":\"services_changed\"}" : "The device has changed its services: exploring it again."
    let parts = end.lines.split(separator: words, omittingEmptySubsequences: false)
    #expect(parts.count == 2 && end.errors == "", "\(end)")
    let last = parts.last?.joined() ?? ""
    #expect(last.contains("FFE5") && last.contains("FFE6") && !last.contains("FFE3"), "\(end)")
    serving.cancel()
    await host.close()
    try await air.close()
  }

  @Test(arguments: [("silent", "HCI_Reset"), ("garbage", "HCI_Reset"), ("closing", "closed the connection")])
  func noController(kind: String, words: String) async throws {
    let server = try await H4Server.listen(
      on: .tcp(host: "127.0.0.1", port: 0), loop: MultiThreadedEventLoopGroup.singleton.next()
    ) { stream in
      switch kind {
      case "closing": stream.close()
      case "garbage":
        stream.send([UInt8]("HTTP/1.1 400 Bad Request\r\n\r\n".utf8).span)
        stream.flush()
      default: break
      }
    }
    expectSentence(try await Tool("scan", "--hci", "\(server.address)").end(), words)
    await server.close()
  }

  @Test(arguments: ["peer", "controllers"]) func lostInTheMiddle(who: String) async throws {
    // Reading 190 values takes more than 10 s: enough time, whatever else runs.
    let profile = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent().appending(path: "Fixtures/Scripts/databases/attributes-300.json").path
    let (radio, spec) = try await controllers()
    let server = try Tool("serve", "--hci", spec, "--name", "Many", "--profile", profile)
    _ = try await server.line("serving ")
    let explorer = try Tool("explore", "--hci", spec, "--name", "Many")
    _ = try await explorer.line("A000")
    if who == "peer" {
      server.signal(SIGINT)
      expectSentence(await explorer.end(), "The link went down")
      #expect(await server.end().status == 0)
      radio.signal(SIGINT)
      #expect(await radio.end().status == 0)
    } else {
      radio.signal(SIGKILL)
      expectSentence(await explorer.end(), "closed the connection")
      expectSentence(await server.end(), "closed the connection")
    }
  }

  // MARK: Early ends

  @Test func aReaderThatLeaves() async throws {
    let end = try await Tool.shell(
      "{ bindrune scan --hci sim --json; echo status $? >&2; } | head -1; { bindrune demo; echo status $? >&2; } | head -1"
    ).end()
    #expect(end.errors == "status 0\nstatus 0\n")
  }

  @Test func interrupted() async throws {
    let scan = try Tool("scan", "--hci", "sim")
    _ = try await scan.line("Virtual Heart Rate")
    scan.signal(SIGINT)
    let end = await scan.end()
    #expect(end.status == 0 && end.lines.last == "1 device" && end.errors == "")

    let other = try await Tool("demo", signal: SIGTERM, at: "1 start").end()
    #expect(other.status == 128 + SIGTERM && other.errors == "")
  }

  // MARK: Appearance

  @Test(.enabled(if: isScriptHere)) func onATerminal() async throws {
    let scan = "\(Tool.path) scan --hci sim --duration 3"
    let colour = try await Tool.shell("env -u NO_COLOR TERM=xterm script -qec '\(scan)' /dev/null").end()
    #expect(colour.status == 0)
    #expect(colour.output.contains("\u{1B}[1mVirtual Heart Rate\u{1B}[0m"), "\(colour.output.debugDescription)")
    #expect(colour.output.contains("scanning sim · 1 device"))
    let plain = try await Tool.shell("NO_COLOR=1 TERM=xterm script -qec '\(scan)' /dev/null").end()
    #expect(plain.output.contains("scanning sim · 1 device") && !plain.output.contains("m" + "Virtual Heart Rate"))
    #expect(!plain.output.contains("\u{1B}[0m"))
  }

  @Test(arguments: [
    "", "demo", "scan", "explore", "read", "write", "subscribe", "serve", "advertise", "bench", "controllers",
  ]) func help(
    verb: String
  )
    async throws
  {
    let end = try await (verb.isEmpty ? Tool("--help") : Tool(verb, "--help")).end()
    #expect(end.status == 0 && end.errors == "" && end.output.contains("USAGE: bindrune"))
    if !verb.isEmpty { #expect(end.output.contains("--trace <file>") && end.output.contains("--log-level <level>")) }
  }

  /// Without `--hci` a verb uses the controller that a Core Bluetooth program would.
  @Test func theControllerThatTheEnvironmentNames() async throws {
    let scan = try await Tool.shell("BINDRUNE_HCI=sim bindrune scan --json --duration 0.3").end()
    #expect(scan.status == 0 && scan.errors == "", "\(scan.errors)")
    expectSentence(
      try await Tool.shell("BINDRUNE_HCI=tcp:127.0.0.1:1 bindrune explore --name x").end(), "tcp:127.0.0.1:1")
    expectSentence(
      try await Tool.shell("BINDRUNE_HCI=tcp:127.0.0.1:1 BINDRUNE_TAKE_DOWN=perhaps bindrune scan").end(),
      "BINDRUNE_TAKE_DOWN is \"perhaps\"")
    try await withFolder { folder in
      try FileManager.default.createDirectory(
        at: folder.appending(path: "bindrune"), withIntermediateDirectories: true)
      try Data("adapter = sim\ntrace = \(folder.path)/trace\n".utf8).write(
        to: folder.appending(path: "bindrune/config"))
      let end = try await Tool.shell(
        "env -u BINDRUNE_HCI XDG_CONFIG_HOME=\(folder.path) $0 scan --duration 0.3; ls \(folder.path)"
          .replacing("$0", with: Tool.path)
      ).end()
      #expect(end.status == 0 && end.errors == "" && end.lines.contains("trace"), "\(end.errors)")
    }
  }

  @Test func usage() async throws {
    for arguments in [
      ["scan", "--hci", "hcix"], ["scan", "--hci", "sim", "--duration", "0"], ["explore", "--hci", "sim"],
    ] {
      let end = try await Tool.shell("bindrune \(arguments.joined(separator: " "))").end()
      #expect(end.status == 64 && end.errors.hasPrefix("Error: ") && end.output == "")
    }
  }
}
