import BindruneWire
import Foundation
import BindruneGAP
import TestSupport
import Testing

@testable import BindruneTool

@Suite("Tool: scan", .realTime, .hang) struct ScanTests {
  // MARK: The table, without a terminal

  private func peer(_ number: UInt64) -> PeerAddress { PeerAddress(DeviceAddress(0xC0FF_EE00_0000 | number), .random) }
  private func said(_ name: String?, services: [BluetoothUUID] = [], manufacturer: [UInt8]? = nil) -> AdvertisingData {
    var data = AdvertisingData(localName: name, serviceUUIDs: services)
    data.manufacturerData = manufacturer
    return data
  }
  private func picture(
    _ table: DeviceTable, _ columns: Int, _ rows: Int, at seconds: Double = 2, hasColour: Bool = false
  )
    -> [String]
  {
    table.picture(
      title: "scanning sim", in: Screen.Size(columns: columns, rows: rows), at: .seconds(seconds), hasColour: hasColour)
  }

  /// Core Specification Supplement, Part A, §1.4: manufacturer data of several companies.
  @Test func severalCompanies() {
    var table = DeviceTable(), data = said(nil, manufacturer: [0x4C, 0x00, 0x10])
    data.manufacturerDataList += [[0xCD, 0x0A, 1], [0x4C, 0x00, 0x11], [7]]
    table.heard(peer(2), data, rssi: -40, at: .seconds(1))
    #expect(picture(table, 120, 24)[2].contains("company 004C, 0ACD"), "\(picture(table, 120, 24))")
  }
  @Test func table() {
    var table = DeviceTable()
    table.heard(peer(1), said("Belt", services: ["180D", "180F"]), rssi: -85, at: .zero)
    table.heard(peer(2), said(nil, manufacturer: [0x4C, 0x00, 0x10]), rssi: -40, at: .seconds(1))
    table.heard(peer(1), said(nil, services: ["180D", "180F"]), rssi: -85, at: .seconds(1))
    table.heard(peer(3), said("Phone"), rssi: nil, overflow: ["C007"], at: .seconds(2))
    #expect(
      picture(table, 87, 24) == [
        "scanning sim · 3 devices · 2 s",
        "NAME                 ADDRESS            dBm           SEEN     AGE  SERVICES",
        "(no name)            C0:FF:EE:00:00:02   -40 ▁▃▅▆█      1×     1 s  company 004C",
        "Belt                 C0:FF:EE:00:00:01   -85 ▁▃         2×     1 s  Heart Rate, Battery",
        "Phone                C0:FF:EE:00:00:03     ?            1×     0 s  C007 (overflow)",
      ])
    // The less important columns are dropped first.
    #expect(picture(table, 120, 24)[1].contains("ADDRESS                   dBm"))
    #expect(picture(table, 80, 24)[1] == "NAME                 ADDRESS            dBm            AGE  SERVICES")
    #expect(picture(table, 60, 24)[1] == "NAME                     dBm         SERVICES")
    #expect(picture(table, 24, 24)[3] == "Belt                 -85")
    #expect(picture(table, 6, 24) == ["scann…", "NAME", "(no n…", "Belt", "Phone"])
  }

  /// For any window and names, no line is too wide, and there are not too many.
  @Test func everyWindow() {
    let names: [String?] = [
      nil, "", "Belt", String(repeating: "n", count: 248), "寝室の温度計と湿度計", "👩‍👩‍👧‍👦❤️🇩🇪", "e\u{301}\u{302}",
      "a\u{202E}b\u{1B}[2J",
    ]
    var table = DeviceTable()
    for number in 0..<40 {
      let services: [BluetoothUUID] = number % 3 == 0 ? ["180D", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"] : []
      table.heard(
        peer(UInt64(number)), said(names[number % names.count], services: services), rssi: -30 - 2 * number, at: .zero)
    }
    for columns in 1...130 {
      for rows in [1, 2, 3, 5, 24, 42, 43, 100] {
        let lines = picture(table, columns, rows)
        #expect(lines.count == min(rows, 42), "\(columns) × \(rows)")
        #expect(lines.allSatisfy { $0.columns <= columns }, "\(columns) × \(rows)")
        #expect(lines.allSatisfy { $0.unicodeScalars.allSatisfy(\.isPrintable) })
        if rows == 24 { #expect(lines.last == "… 19 more".cut(to: columns)) }
      }
    }
    // Colour does not change the text.
    let plain = picture(table, 80, 24), painted = picture(table, 80, 24, hasColour: true)
    #expect(painted.map { $0.replacing(/\u{1B}\[[0-9]*m/, with: "") }.map { $0.replacing(#/ +$/#, with: "") } == plain)
    #expect(painted != plain)
  }
  @Test(arguments: [
    ("Belt", 4), ("寝室", 4), ("e\u{301}", 1), ("❤\u{FE0F}", 2), ("한글", 4), ("🇩🇪", 2), ("\u{200B}", 0), ("…▇×", 3),
  ])
  func columns(text: String, width: Int) {
    #expect(text.columns == width)
  }

  /// A device keeps its row while its strength changes little; a silent one moves down, and returns.
  @Test func order() {
    var table = DeviceTable()
    for number: UInt64 in 1...3 { table.heard(peer(number), said(nil), rssi: -60, at: .zero) }
    for (step, rssi) in [-62, -58, -63, -57, -64, -60].enumerated() {
      table.heard(peer(UInt64(step % 3 + 1)), said(nil), rssi: rssi, at: .zero)
      #expect(table.rows(at: .zero).map(\.peer) == [peer(1), peer(2), peer(3)])
    }
    for _ in 0..<20 { table.heard(peer(3), said(nil), rssi: -30, at: .seconds(5)) }
    #expect(table.rows(at: .seconds(5)).map(\.peer) == [peer(3), peer(1), peer(2)])
    table.heard(peer(1), said(nil), rssi: -60, at: .seconds(12))
    #expect(table.rows(at: .seconds(16)).map(\.peer) == [peer(1), peer(3), peer(2)])
    table.heard(peer(2), said(nil), rssi: -60, at: .seconds(16))
    #expect(table.rows(at: .seconds(16)).map(\.peer) == [peer(1), peer(2), peer(3)])
  }

  @Test func memoryIsBounded() {
    var table = DeviceTable()
    for number in 0..<UInt64(DeviceTable.capacity + 100) {
      table.heard(peer(number), said(nil), rssi: -60, at: .milliseconds(Int64(number)))
      table.heard(peer(0), said(nil), rssi: -60, at: .milliseconds(Int64(number)))  // is heard all the time
    }
    #expect(table.count == DeviceTable.capacity)
    let kept = Set(table.rows(at: .zero).map(\.peer))
    #expect(kept.contains(peer(0)) && !kept.contains(peer(1)) && kept.contains(peer(UInt64(DeviceTable.capacity + 99))))
  }

  // MARK: In a pipe

  @Test func filters() async throws {
    let (radio, spec) = try await controllers()
    let name = "A name for the scan response"
    let advertiser = try Tool(
      "advertise", "--hci", spec, "--policy", "standard", "--name", name, "--service", "180D", "--manufacturer",
      "FFFF01")
    _ = try await advertiser.line("advertising as ")
    for (arguments, isFound) in [
      ([], true), (["--name", name], true), (["--name", "A name*"], true), (["--name", "A name"], false),
      (["--rssi", "-127"], true), (["--rssi", "20"], false), (["--manufacturer", "0xFFFF"], true),
      (["--manufacturer", "76"], false), (["--service", "180D", "--service", "1234"], true),
      (["--service", "180D", "--manufacturer", "76"], false),
    ] as [([String], Bool)] {
      let scan = ["--hci", spec] + arguments
      // A device that the filter excludes is never found.
      let end = try await isFound ? Tool.scan(scan, until: " dBm ") : Tool.run(["scan", "--duration", "0.5"] + scan)
      #expect(end.status == 0 && end.lines.last == (isFound ? "1 device" : "0 devices"), "\(arguments): \(end.output)")
    }
    let json = ["--hci", spec, "--json"]
    // Its advertisement and its scan response are one discovery; a passive scan gets no name.
    let named = try await Tool.scan(json, until: name).objects()
    #expect(named.last?["name"] as? String == name && named.count <= 2)
    let all = try await Tool.scan(json + ["--duplicates"], until: "180D", times: 3).objects()
    #expect(all.count >= 3)
    let once = try await Tool.run(["scan", "--duration", "1"] + json).objects()
    #expect(once.count <= 2, "\(once.count)")
    let passive = try await Tool.scan(json + ["--passive"], until: "180D").objects()
    let heard = try #require(passive.first)
    #expect(passive.count == 1 && heard["name"] is NSNull && heard["scan_response"] as? Bool == false)
    #expect(heard["services"] as? [String] == ["180D"])
    advertiser.signal(SIGINT)
    _ = await advertiser.end()
    radio.signal(SIGINT)
    _ = await radio.end()
  }

  // MARK: On a terminal

  @Test func live() async throws {
    let terminal = try Terminal("scan", "--hci", "sim", columns: 80, rows: 24)
    let first = try await terminal.screen { $0.lines.contains { $0.hasPrefix("Virtual Heart Rate") } }
    #expect(first.isAlternate && !first.isCursorVisible && first.lines.count == 3)
    #expect(first.lines[0].hasPrefix("scanning sim · 1 device · ") && first.lines[2].hasSuffix("Heart Rate, Battery"))
    // The window changes its size, and the picture follows.
    terminal.resize(columns: 24, rows: 2)
    _ = try await terminal.screen { $0.lines.count == 2 && $0.lines[0] == "scanning sim · 1 device…" }
    terminal.resize(columns: 100, rows: 30)
    _ = try await terminal.screen { $0.lines.count == 3 && $0.lines[1].contains("SEEN") }
    terminal.signal(SIGINT)
    let (screen, status) = await terminal.end()
    #expect(status == 0 && !screen.isAlternate && screen.isCursorVisible && screen.faults == [])
    #expect(screen.lines.count == 3 && screen.lines[1].hasPrefix("Virtual Heart Rate"), "\(screen.lines)")
    #expect(screen.lines.last == "1 device")
  }

  /// The devices found and the error are on the normal screen afterwards.
  @Test func anErrorAfterThePicture() async throws {
    let (radio, spec) = try await controllers()
    let terminal = try Terminal("scan", "--hci", spec, columns: 80, rows: 24)
    _ = try await terminal.screen { $0.isAlternate && $0.lines.count == 2 }
    radio.signal(SIGKILL)
    let (screen, status) = await terminal.end()
    #expect(status == 1 && !screen.isAlternate && screen.isCursorVisible && screen.faults == [])
    #expect(screen.lines.contains("0 devices") && screen.lines.contains { $0.contains("closed the connection") })
  }

  @Test func aTerminalThatCannot() async throws {
    let terminal = try Terminal(
      "scan", "--hci", "sim", columns: 200, rows: 24, environment: ["TERM": "dumb", "NO_COLOR": "1"])
    _ = try await terminal.screen { $0.lines.contains { $0.contains("Virtual Heart Rate") } }
    terminal.signal(SIGINT)
    let (screen, status) = await terminal.end()
    #expect(status == 0 && screen.faults == [] && screen.lines.count == 2)
    #expect(screen.lines[0].contains("Virtual Heart Rate") && screen.lines[1] == "1 device")
  }
}
