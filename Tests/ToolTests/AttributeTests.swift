import Foundation
import TestSupport
import Testing

/// `read`, `write` and `subscribe`, on the sensor of `sim` and on the services of a file.
@Suite("Tool: attributes", .realTime, .hang) struct AttributeTests {
  private let sensor = ["--hci", "sim", "--name", "Virtual Heart*"]

  @Test func readPrintsAValue() async throws {
    for (arguments, line) in [
      (["battery-level"], "87 %"), (["2A19"], "87 %"), (["180F/2a19"], "87 %"), (["--format", "hex", "2A19"], "57"),
      (["--format", "utf8", "Model Number String"], "Virtual Heart Rate Belt"),
      (["model_number_string"], "\"Virtual Heart Rate Belt\""),
    ] {
      let end = try await Tool.run(["read"] + sensor + arguments)
      #expect(end.status == 0 && end.errors == "" && end.lines == [line], "\(arguments): \(end)")
    }
  }
  @Test func readPrintsSeveralAndJSON() async throws {
    let several = try await Tool.run(["read"] + sensor + ["battery-level", "device-name", "2A37/2902"])
    #expect(
      several.lines == ["battery-level\t87 %", "device-name\t\"Virtual Heart Rate\"", "2A37/2902\toff"], "\(several)")
    let json = try await Tool.run(["read"] + sensor + ["--format", "json", "2A19"])
    let object = try #require(try json.objects().first)
    #expect(object["event"] as? String == "value" && object["uuid"] as? String == "2A19")
    #expect(object["name"] as? String == "Battery Level" && object["value"] as? String == "57")
    #expect(object["text"] as? String == "87 %")
    // The same by the handle printed there.
    let handle = "0x" + String(try #require(object["handle"] as? Int), radix: 16)
    let byHandle = try await Tool.run(["read"] + sensor + ["--format", "hex", handle])
    #expect(byHandle.status == 0 && byHandle.lines == ["57"])
  }
  @Test func whatIsNotThere() async throws {
    expectSentence(
      try await Tool.run(["read"] + sensor + ["2A6E"]), "The device has no attribute 2A6E", status: 3)
    // Generic Attribute, Heart Rate and Battery have one each.
    expectSentence(
      try await Tool.run(["read"] + sensor + ["2902"]), "attributes 2902, 0x", status: 3)
    expectSentence(
      try await Tool.run(["read"] + sensor + ["heart-rate-measurement"]), "Read Not Permitted", status: 4)
    expectSentence(
      try await Tool.run(["subscribe"] + sensor + ["body-sensor-location"]), "sends no values", status: 3)
    expectSentence(
      try await Tool.run(["read", "--hci", "sim", "--name", "Nobody", "--timeout", "0.2", "2A19"]), "\"Nobody\"",
      status: 2)
    for arguments in [
      ["read", "2A19"], ["read"] + sensor, ["read"] + sensor + ["2A37/"], ["write"] + sensor + ["2A39", "1"],
    ] {
      let end = try await Tool.run(arguments)
      #expect(end.status == 64 && end.output == "", "\(end)")
    }
  }

  @Test func subscribePrintsValues() async throws {
    let some = try await Tool.run(["subscribe"] + sensor + ["--count", "2", "heart-rate-measurement"])
    #expect(some.status == 0 && some.errors == "" && some.lines.count == 2, "\(some)")
    #expect(some.lines.allSatisfy { $0.hasSuffix(" bpm") })
    let json = try await Tool.run(["subscribe"] + sensor + ["--count", "1", "--format", "json", "2A37"])
    let object = try #require(try json.objects().first)
    #expect(object["event"] as? String == "notification" && object["uuid"] as? String == "2A37")
    #expect((object["value"] as? String)?.hasPrefix("00") == true && object["seconds"] as? Double != nil)
    // The battery's level does not change.
    expectSentence(
      try await Tool.run(["subscribe"] + sensor + ["--count", "1", "--duration", "0.3", "battery-level"]),
      "0 of 1 values came within 0.3 s", status: 5)
  }
  @Test func subscribeEndsWell() async throws {
    let several = try Tool.running(["subscribe"] + sensor + ["2A37", "2A19"])
    #expect(try await several.line("2A37\t").hasSuffix(" bpm"))
    several.signal(SIGINT)
    #expect(await several.end().status == 0)
    let piped = try await Tool.shell(
      "{ bindrune subscribe --hci sim --name 'Virtual*' 2A37; echo status $? >&2; } | head -1"
    ).end()
    #expect(piped.errors == "status 0\n" && piped.lines.count == 1)
  }

  /// A read returns the value written, in each notation.
  @Test func writeIsRead() async throws {
    try await withFolder { folder in
      let profile = folder.appending(path: "profile.json"), radio = try await controllers()
      try #"""
      { "services": [ { "uuid": "FFE0", "characteristics": [
        { "uuid": "FFE1", "properties": ["read", "write", "writeWithoutResponse"], "value": "00" } ] } ] }
      """#.write(to: profile, atomically: true, encoding: .utf8)
      let server = try Tool("serve", "--hci", radio.spec, "--name", "Store", "--profile", profile.path)
      _ = try await server.line("serving ")
      let device = "--hci \(radio.spec) --name Store"
      for (write, value) in [
        ("bindrune write \(device) FFE1 01:02", "0102"), ("bindrune write \(device) --format utf8 FFE1 é", "C3A9"),
        ("echo 0a 0b | bindrune write \(device) FFE1", "0A0B"),
        ("printf 'a\\n' | bindrune write \(device) --format utf8 FFE1", "610A"),
        ("bindrune write \(device) --without-response FFE1 ff", "FF"),
      ] {
        let end = try await Tool.shell("\(write) && bindrune read \(device) --format hex FFE1").end()
        #expect(end.status == 0 && end.errors == "" && end.lines == [value], "\(write): \(end)")
      }
      let long = String(repeating: "5A", count: 300)
      let end = try await Tool.shell(
        "bindrune write \(device) FFE1 \(long) && bindrune read \(device) --format hex FFE1"
      ).end()
      #expect(end.lines == [long], "\(end)")
      expectSentence(
        try await Tool.shell("echo hello | bindrune write \(device) FFE1").end(), "not hexadecimal digits")
      server.signal(SIGINT)
      radio.tool.signal(SIGINT)
      _ = await (server.end(), radio.tool.end())
    }
  }
  @Test func theDeviceRefuses() async throws {
    // Heart Rate Service, §3.3: anything but 1 is 0x80.
    expectSentence(
      try await Tool.run(["write"] + sensor + ["heart-rate-control-point", "02"]), "0x80", status: 4)
    let accepted = try await Tool.run(["write"] + sensor + ["heart-rate-control-point", "01"])
    #expect(accepted.status == 0 && accepted.output == "" && accepted.errors == "", "\(accepted)")
  }
}
