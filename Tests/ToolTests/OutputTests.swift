import Bindrune
import BindruneWire
import Foundation
import BindruneGAP
import Synchronization
import TestSupport
import Testing

@testable import BindruneTool

/// Output without a reader blocks nothing and ends nothing; the tool never prints others' text raw.
@Suite("Tool: output", .realTime, .hang) struct OutputTests {
  /// Waits until the file at `path` has `octets` in it.
  private func wait(for octets: [UInt8], in path: String) async throws {
    let end = ContinuousClock.now + .seconds(25)
    while ContinuousClock.now < end {
      if let file = FileManager.default.contents(atPath: path), file.range(of: Data(octets)) != nil { return }
      try await Task.sleep(for: .milliseconds(20))
    }
    Issue.record("\(octets) never came into \(path)")
  }
  private let extendedAdvertisingEnable: [UInt8] = [0x01, 0x39, 0x20]  // Vol 4, Part E, §7.8.56
  private let reset: [UInt8] = [0x01, 0x03, 0x0C, 0x00]  // §7.3.2

  /// The tool still ends by a signal or by time, and leaves the controller reset.
  @Test(arguments: [SIGINT, SIGTERM, 0]) func anEndWithoutReader(signal: Int32) async throws {
    try await withFolder { folder in
      let trace = folder.appending(path: "trace.btsnoop").path
      let tool = try Tool.paused(
        ["serve", "--hci", "sim", "--trace", trace] + (signal == 0 ? ["--duration", "0.5"] : []))
      try await wait(for: extendedAdvertisingEnable, in: trace)
      if signal != 0 { tool.signal(signal) }
      // 128 + n if unread lines were lost: not if the signal came before the first line.
      #expect([0, signal == 0 ? 0 : 128 + signal].contains(await tool.status()))
      #expect(FileManager.default.contents(atPath: trace)?.suffix(4) == Data(reset))
    }
  }

  /// A paused reader loses no output of a finished verb, and a signal ends the wait for it.
  @Test(arguments: [true, false]) func aPausedReader(goesOn: Bool) async throws {
    let demo = try Tool.paused(["demo"])
    _ = try await demo.errorLine("Waiting until standard output is read")
    if goesOn {
      demo.resumeReading()
      let end = await demo.end()
      #expect(end.status == 0 && !end.output.contains("dropped"))
      #expect(end.lines.filter { $0.first?.isNumber == true }.count == 9)
      #expect(end.lines.contains("  link 1 is down"))
    } else {
      demo.signal(SIGINT)
      #expect(await demo.status() == 128 + SIGINT)
    }
  }

  /// The tool serves clients while no one reads its output: more lines than the 4,096 events that the host keeps for a
  /// slow reader.
  @Test func servingWithoutReader() async throws {
    let air = try await Air(), server = try Tool.paused(["serve", "--hci", air.spec, "--name", "Unread"])
    try await withThrowingTaskGroup(of: Void.self) { group in
      for _ in 0..<4 {
        let host = BluetoothHost(air.radio.controller())
        group.addTask {
          try await host.start()
          let link = try await host.connect(to: try await host.find("Unread"))
          let battery = try #require(try await link.discoverAll().characteristic("2A19"))
          // Each is two requests, two events of the server's host, and two lines.
          for _ in 0..<650 { try await link.subscribe(to: battery).end() }
          await host.close()
        }
      }
      try await group.waitForAll()
    }
    server.signal(SIGINT)
    #expect(await server.status() == 128 + SIGINT)
    try await air.close()
  }

  /// A pipe as trace file: refused without a reader, and harmless if its reader does not read.
  @Test func aTraceIntoAPipe() async throws {
    try await withFolder { folder in
      let pipe = folder.appending(path: "pipe").path
      #expect(unsafe mkfifo(pipe, 0o600) == 0)
      expectSentence(try await Tool("scan", "--hci", "sim", "--trace", pipe).end(), "this pipe has no reader yet")
      let reader = unsafe open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
      defer { close(reader) }
      let end = try await Tool("scan", "--hci", "sim", "--duration", "0.5", "--trace", pipe).end()
      #expect(end.status == 0 && end.lines.last == "1 device", "\(end.errors)")
      var header = [UInt8](repeating: 0, count: 16)
      let count = unsafe header.withUnsafeMutableBytes { unsafe read(reader, $0.baseAddress, $0.count) }
      #expect(count == 16 && header.starts(with: "btsnoop\0".utf8))
    }
  }

  /// None of these accepts output; the shell opens them before the program begins.
  static let unusable = ["2>&-", "2>/dev/full", "2>$fifo 3>&-"]
  /// Standard error without a reader: the third is a pipe whose only reader, 3, is closed as soon as it is open.
  private func shell(_ redirection: String, _ command: String, _ folder: URL) throws -> Tool {
    let fifo = folder.appending(path: "fifo").path
    return try Tool.shell("fifo=\(fifo); mkfifo $fifo; exec 3<>$fifo; exec \(redirection); \(command)")
  }
  @Test(arguments: unusable) func logLinesWithoutAReader(redirection: String) async throws {
    try await withFolder { folder in
      let explore = "explore --hci sim --name 'Virtual Heart Rate' --json --log-level trace"
      let heard = try await Tool.shell("bindrune \(explore)").end()
      #expect(heard.status == 0 && heard.errors.contains(" up: ") && heard.errors.contains("ATT_MTU"))
      let unheard = try await shell(redirection, "bindrune \(explore)", folder).end()
      #expect(unheard.status == 0 && unheard.lines == heard.lines && unheard.errors == "")
    }
  }
  /// The same for a program that uses Core Bluetooth only. The controller refuses to advertise again after a
  /// connection, which the facade logs; then the controller fails, and the program continues with the next one.
  @Test(arguments: ["2>&2"] + unusable) func aFacadesLinesThatNobodyTakes(redirection: String) async throws {
    try await withFolder { folder in
      let enables = Atomic(0)
      let air = try await Air { stream in
        Interceptor(stream) { packet, program in
          // LE Set Extended Advertising Enable with Enable 1, Vol 4, Part E, §7.8.56.
          guard packet.starts(with: [0x01, 0x39, 0x20]), packet[4] == 1 else { return true }
          guard enables.add(1, ordering: .relaxed).newValue == 2 else { return true }
          // Unspecified Error, Vol 1, Part F, §2.31; then Hardware Error, Vol 4, Part E, §7.7.16.
          program.send(([0x04, 0x0E, 0x04, 0x01, 0x39, 0x20, 0x1F] as [UInt8]).span)
          program.send(([0x04, 0x10, 0x01, 0x42] as [UInt8]).span)
          program.flush()
          return false
        }
      }
      let path = Tool.folder.appending(path: "HeartRatePeripheral").path
      let sensor = try shell(redirection, "BINDRUNE_HCI=\(air.spec) exec \(path)", folder)
      _ = try await sensor.line("advertising")
      let host = BluetoothHost(air.radio.controller())
      try await host.start()
      // The link may go down before `connect` returns, which then throws.
      _ = try? await host.connect(to: try await host.find("Heart Rate"))
      _ = try await sensor.line("advertising")
      sensor.signal(SIGTERM)
      let end = await sensor.end()
      #expect(end.status == 0, "\(end.errors)")
      #expect(end.errors.contains("is not advertising any more") == (redirection == "2>&2"), "\(end.errors)")
      await host.close()
      try await air.close()
    }
  }

  @Test func closedStreams() async throws {
    expectSentence(try await Tool.shell("bindrune overflow 180D >&-").end(), "Standard output failed: Bad file")
    expectSentence(try await Tool.shell("bindrune demo --brief >&-").end(), "Standard output failed: Bad file")
    let silent = try await Tool.shell("bindrune overflow 180D --json 2>&-").end()
    #expect(silent.status == 0 && silent.errors == "" && silent.lines.count == 1)
    let wrong = try await Tool.shell(
      "bindrune overflow wrong 2>&-; echo $?; bindrune scan --hci wrong >&- 2>&- <&-; echo $?"
    ).end()
    #expect(wrong.lines == ["64", "64"] && wrong.errors == "")
  }

  @Test func textOfOthers() async throws {
    let escapes = "\u{1B}[31m\nError: forged\u{202E}"
    func check(_ arguments: [String], _ words: String) async throws {
      let end = try await Tool.run(arguments), errors = end.errors
      #expect(end.status != 0 && errors.contains(words), "\(errors)")
      #expect(!errors.contains("\u{1B}") && !errors.contains("\u{202E}") && !errors.contains("\nError"), "\(errors)")
    }
    let shown = #"\u{1B}[31m\nError: forged\u{202E}"#
    try await check(["scan", "--hci", "tcp:\(escapes)"], shown)
    try await check(["scan", "--hci=\(escapes)"], shown)
    try await check([escapes], shown)
    try await check(["serve", "--hci", "unix:/no/\(escapes)"], shown)
    try await check(["serve", "--hci", "sim", "--profile", "/no/\(escapes)"], shown)
    try await check(["demo", "--trace", "/no/\(escapes)"], shown)
    try await check(["explore", "--hci", "sim", "--timeout", "0.1", "--name", escapes], shown)
    try await withFolder { folder in
      let profile = folder.appending(path: "profile.json").path
      try #"{ "ke\u001By\u202E\n": 1 }"#.write(toFile: profile, atomically: true, encoding: .utf8)
      try await check(["serve", "--hci", "sim", "--profile", profile], #"unknown key "ke\u{1B}y\u{202E}\n""#)
    }
    let long = try await Tool("overflow", String(repeating: "x", count: 100_000)).end()
    #expect(long.status == 64 && long.errors.utf8.count < 10_000)
  }

  /// Values that may occur several times, in an advertisement and in its scan response (Core Specification Supplement,
  /// Part A, §1.4, §1.11), are all shown, and no JSON object names a member twice (RFC 8259, §4). Both forms name a
  /// structure of an impossible length.
  @Test func valuesThatRepeatAreShown() async throws {
    var data = AdvertisingData()
    data.manufacturerDataList = [[0x44, 0x54, 1, 2], [0x44, 0x54, 0x3B, 0x3D], [0xCD, 0x0A, 0x22, 0x33]]
    data.serviceData = [[0, 0xB8, 1], [0, 0xB8, 2]].map { AdvertisingData.ServiceData(uuid: "FED8", data: $0) }
    let air = try await Air(), advertiser = BluetoothHost(air.radio.controller())
    let scanner = BluetoothHost(air.radio.controller())
    try await advertiser.start()
    try await scanner.start()
    let packed = try await advertiser.advertise(data, AdvertisingParameters(policy: .standard))
    #expect(packed.scanResponse.count > 0)
    // The filter finds each of the companies.
    for company: UInt16 in [0x5444, 0x0ACD] {
      let filter = ScanFilter(manufacturer: ScanFilter.Manufacturer(companyIdentifier: company))
      for try await heard in scanner.scan(filter: filter) where heard.hasScanResponse {
        let text = heard.json.description
        #expect(text.contains(#""manufacturer_data":"44540102""#), "\(text)")
        #expect(text.contains(#""manufacturer_data_all":["44540102","44543B3D","CD0A2233"]"#), "\(text)")
        #expect(text.contains(#""service_data":{"FED8":"00B801"}"#), "\(text)")
        let all = #""service_data_all":[{"uuid":"FED8","data":"00B801"},{"uuid":"FED8","data":"00B802"}]"#
        #expect(text.contains(all) && !text.contains("malformed"), "\(text)")
        for part in ["5444: 0102", "5444: 3B3D", "0ACD: 2233", "FED8: 00B801", "FED8: 00B802"] {
          #expect(heard.line.contains(part), "\(heard.line)")
        }
        var odd = heard
        odd.data = AdvertisingData(decoding: ([2, 1, 6, 3, 0x0A, 1, 2] as [UInt8]).span)
        let remark = "the Tx Power Level at octet 3 has a length that this type cannot have"
        #expect(odd.json.description.contains(#""malformed":"\#(remark)""#) && odd.line.contains(remark))
        break
      }
    }
    await scanner.close()
    await advertiser.close()
    try await air.close()
    let bits = try await Tool("overflow", "180D", "180D", "--json").end()
    #expect(bits.output.components(separatedBy: #""180D":"#).count == 2, "\(bits.output)")
  }

  /// Programs read JSON: nothing is changed, and characters that control a terminal are escaped.
  @Test func json() throws {
    let name = "a\u{202E}\u{2066}b\u{1B}\u{85}\u{2028}\u{F0000}👩‍👧 \"\\"
    var line = JSONLine()
    line.add("name", name)
    let text = line.description
    #expect(text == #"{"name":"a\u202e\u2066b\u001b\u0085\u2028\udb80\udc00👩‍👧 \"\\"}"#)
    let object = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: String]
    #expect(object?["name"] == name)
  }
}

extension BluetoothHost {
  /// The address of the device that advertises this name.
  fileprivate func find(_ name: String) async throws -> PeerAddress {
    for try await advertisement in scan() where advertisement.name == name { return advertisement.address }
    throw BluetoothError(.cancelled, "the scan ended")
  }
}
