import Foundation
import TestSupport
import Testing

/// What `bindrune advertise` sends. The octets are captures of iPhones, with the flags of an LE-only device, or
/// composed by hand from the Core Specification Supplement, Part A; masks consist of observed bits
/// (Fixtures/Vectors/overflow.txt).
@Suite("Tool: advertise", .realTime, .hang) struct AdvertiseTests {
  private static let long = "12345678-9ABC-DEF0-1234-56789ABCDEF0"
  private static let longOnAir = "f0debc9a78563412f0debc9a78563412"
  private static let captured = """
    4382 4F02 DDC3 77EA B5BB 8AE4 2A9C DBB5 1135 6B07 20F8 AB5D 2B63 E29E 21C2 19BB D0EB 4021 3D92 885C 89C4 1FBB CE5C \
    712F 2412 26FE 9770 A9D8 9AF2 4ADF 6FB4 E852 6619
    """.split(separator: " ").map(String.init)
  private static func services(_ uuids: [String]) -> [String] { uuids.flatMap { ["--service", $0] } }
  /// A UUID of 16 bits on the air, the least significant octet first.
  private static func onAir(_ uuids: some Sequence<String>) -> String {
    uuids.map { ($0.suffix(2) + $0.prefix(2)).lowercased() }.joined()
  }
  private static func onAir(_ text: String) -> String { text.utf8.map { String(format: "%02x", $0) }.joined() }

  struct Dry: Sendable, CustomTestStringConvertible {
    var testDescription: String
    var arguments: [String]
    var advertising: String
    var scanResponse = ""
    var overflow: [String] = []
    var isShortened = false
    var leftOut: [String] = []
  }
  private static let onlyNameAndServices = "is not sent by this policy, which sends a name and services"
  static let runs: [Dry] = [
    Dry(testDescription: "nothing: flags", arguments: [], advertising: "020106"),
    Dry(
      testDescription: "capture: Fred and C007", arguments: ["--name", "Fred", "--service", "C007"],
      advertising: "020106030307c0050946726564"),
    Dry(
      testDescription: "capture: a UUID of 128 bits and a long name",
      arguments: ["--service", long, "--name", "0123456789"],
      advertising: "0201061107" + longOnAir + "09083031323334353637", isShortened: true),
    Dry(
      testDescription: "capture: two UUIDs of 128 bits and LightBlue",
      arguments: services([long, "B82AB3FC-1595-4F6A-80F0-FE094CC218F9"]) + ["--name", "LightBlue"],
      advertising: "0201061106" + longOnAir + "09084c69676874426c75",
      scanResponse: "14ff4c000101000000000000000000000000000000", overflow: ["B82AB3FC-1595-4F6A-80F0-FE094CC218F9"],
      isShortened: true),
    Dry(
      testDescription: "eight UUIDs of 16 bits after one of 128, and a name that no room is left for",
      arguments: services([long, "180D", "180F", "181A", "1809", "0458", "0970", "0B0C", "1135"])
        + ["--name", "LightBlue"],
      advertising: "02010609020d180f181a180918" + "1107" + longOnAir,
      scanResponse: "14ff4c0001" + "00008000040000000000800000000400" + "09084c69676874426c75",
      overflow: ["0458", "0970", "0B0C", "1135"], isShortened: true),
    Dry(
      testDescription: "capture: 33 UUIDs in the foreground", arguments: services(captured),
      advertising: "0201061b02" + onAir(captured.prefix(13)),
      scanResponse: "14ff4c00010000000000000000100f0e0d0c0b0a09", overflow: Array(captured.dropFirst(13))),
    Dry(
      testDescription: "capture: 33 UUIDs in the background",
      arguments: services(captured) + ["--background", "--name", "Fred"],
      advertising: "02010614ff4c00010807060504030201100f0e0d0c0b0a09", overflow: captured,
      leftOut: ["name is not sent in the background"]),
    Dry(
      testDescription: "the same UUID twice, in two forms",
      arguments: services(["c007", "C007", "0000C007-0000-1000-8000-00805F9B34FB"]), advertising: "020106030307c0"),
    Dry(
      testDescription: "300 octets of name, cut between characters",
      arguments: ["--name", String(repeating: "ß", count: 150)],
      advertising: "0201061b08" + onAir(String(repeating: "ß", count: 13)), isShortened: true),
    Dry(
      testDescription: "what Core Bluetooth does not send",
      arguments: ["--manufacturer", "FFFF01", "--tx-power", "-8", "--solicit", "180D", "--service-data", "180F=64"],
      advertising: "020106",
      leftOut: [
        "Tx Power Level", "service data", "manufacturer data", "solicited service 180D",
      ].map { "\($0) \(onlyNameAndServices)" }),
    Dry(
      testDescription: "standard: any data",
      arguments: [
        "--policy", "standard", "--service", "180D", "--solicit", "1805", "--tx-power", "-8", "--appearance", "0x0341",
        "--service-data", "180F=64", "--manufacturer", "FFFF0102", "--name", "Rune",
      ],
      advertising: "02010603030d180314051802 0af803194103 0416 0f1864 05ffffff0102".filter { $0 != " " },
      scanResponse: "050952756e65"),
    Dry(
      testDescription: "standard: a long name moves, and is cut",
      arguments: ["--policy", "standard", "--service", "180D", "--name", String(repeating: "n", count: 300)],
      advertising: "02010603030d18", scanResponse: "1e08" + onAir(String(repeating: "n", count: 29)), isShortened: true),
    Dry(
      testDescription: "extended: all in one place",
      arguments: ["--policy", "extended", "--name", String(repeating: "n", count: 200)] + services(captured),
      advertising: "0201064303" + onAir(captured) + "ad08" + onAir(String(repeating: "n", count: 172)),
      isShortened: true),
  ]

  @Test(arguments: runs) func dryRun(_ run: Dry) async throws {
    let end = try await Tool.run(["advertise", "--dry-run", "--json"] + run.arguments)
    #expect(end.status == 0 && end.errors == "" && end.lines.count == 1)
    let object = try #require(try end.objects().first)
    #expect(Set(object.keys) == ["advertising", "scanResponse", "overflow", "shortened", "leftOut"])
    #expect(object["advertising"] as? String == run.advertising)
    #expect(object["scanResponse"] as? String == run.scanResponse)
    #expect(object["overflow"] as? [String] == run.overflow)
    #expect(object["shortened"] as? String == (run.isShortened ? "name" : nil))
    #expect(Set(object["leftOut"] as? [String] ?? ["?"]) == Set(run.leftOut))
    #expect(!run.isShortened == (object["shortened"] is NSNull))
  }

  @Test func dryRunInWords() async throws {
    let end = try await Tool.run(
      ["advertise", "--dry-run", "--name", "LightBlue", "--manufacturer", "FFFF01"]
        + Self.services([Self.long, "180D", "180F", "181A", "1809", "1001", "3333"]))
    #expect(end.status == 0 && end.errors == "")
    #expect(
      end.lines == [
        "advertising data, 31 of 31 octets", "  flags: general discoverable, BR/EDR not supported", "    02 01 06",
        "  services, not all: Heart Rate (180D), Battery (180F), Environmental Sensing (181A), Health Thermometer (1809)",
        "    09 02 0D 18 0F 18 1A 18 09 18", "  services: \(Self.long)",
        "    11 07 F0 DE BC 9A 78 56 34 12 F0 DE BC 9A 78 56", "    34 12",
        "scan response, 31 of 31 octets", "  overflow area: 1001, 3333",
        "    14 FF 4C 00 01 00 00 00 00 00 00 00 02 00 00 00", "    00 00 00 00 00",
        "  shortened name: \"LightBlu\"", "    09 08 4C 69 67 68 74 42 6C 75",
        "overflow: 1001 (bit 57), 3333 (bit 57)", "shortened: the name, which has 9 octets",
        "left out: manufacturer data \(Self.onlyNameAndServices)",
      ])
    let small = try await Tool("advertise", "--dry-run", "--service", "C007", "--hci", "hci60000").end()
    #expect(small.status == 0 && small.lines.last == "scan response, empty")
  }

  /// Like an iPhone's app in the background: only a scan that names a service still finds it.
  @Test func onTheAir() async throws {
    let (radio, spec) = try await controllers()
    let advertiser = try Tool("advertise", "--hci", spec, "--background", "--service", "1001", "--name", "Fred")
    for line in ["  overflow area: 1001", "left out: name is not sent in the background", "advertising as "] {
      _ = try await advertiser.line(line)
    }
    let hit = try await Tool.scan("--hci", spec, "--service", "3333", "--json", until: "address")
    let report = try #require(try hit.objects().last)
    #expect(report["overflow"] as? [String] == ["3333"] && report["services"] as? [String] == [])
    #expect(report["name"] is NSNull)
    let plain = try await Tool.scan("--hci", spec, "--service", "3333", until: "3333")
    #expect(plain.lines.count == 2 && plain.lines[0].contains("3333 (overflow)"), "\(plain.output)")
    let miss = try await Tool("scan", "--hci", spec, "--service", "C007", "--duration", "0.6").end()
    #expect(miss.lines == ["0 devices"])
    let all = try await Tool.scan("--hci", spec, "--json", until: "address")
    #expect(try all.objects().last?["overflow"] as? [String] == [])
    // A connected central still reads a name.
    let address = try #require(report["address"] as? String)
    let explored = try await Tool("explore", "--hci", spec, "--address", address).end()
    #expect(explored.status == 0 && explored.output.contains("\"Fred\""), "\(explored.errors)")
    advertiser.signal(SIGINT)
    #expect(await advertiser.end().status == 0)
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  @Test(
    arguments: [
      (["--dry-run", "--name", ""], "--name is empty: leave it out to advertise no name."),
      (["--dry-run", "--service", "18"], "\"18\" is not a UUID: write 180D, or 128 bits as "),
      (["--dry-run", "--solicit", "x"], "\"x\" is not a UUID: write 180D, or 128 bits as "),
      (
        ["--dry-run", "--service-data", "180F"],
        "write the service, = and two hexadecimal digits for each octet, as 180F=64."
      ),
      (
        ["--dry-run", "--service-data", "180F=6"],
        "write the service, = and two hexadecimal digits for each octet, as 180F=64."
      ),
      (["--dry-run", "--service-data", "F=64"], "\"F\" is not a UUID"),
      (
        ["--dry-run", "--manufacturer", "FF"],
        "--manufacturer begins with a company identifier of two octets: FFFF is for tests."
      ),
      (["--dry-run", "--appearance", "65536"], "--appearance"), (["--dry-run", "--tx-power", "200"], "--tx-power"),
      (["--dry-run", "--policy", "iphone"], "--policy"),
      (
        ["--dry-run", "--interval", "slow"], "write fast, balanced, background or a number of milliseconds, 20 or more."
      ),
      (["--dry-run", "--policy", "standard", "--background"], "--background requires --policy coreBluetooth"),
      (
        ["--hci", "sim", "--name", String(repeating: "n", count: 249)],
        "--name has 249 octets and a device's name has at most 248"
      ),
    ] as [([String], String)])
  func usage(arguments: [String], words: String) async throws {
    let end = try await Tool.run(["advertise"] + arguments)
    #expect(end.status == 64 && end.output == "" && end.errors.hasPrefix("Error: "))
    #expect(end.errors.contains(words), "\(end.errors)")
  }
}
