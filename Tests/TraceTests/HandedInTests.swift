import BindruneCapture
import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneTrace

/// What people hand in: streams without a header, captures of USB, bug reports and archives, and files that are no
/// traces.
@Suite struct HandedInTests {
  private static func octets(_ records: [Seen]) -> [[UInt8]] { records.map(\.octets) }

  // MARK: Streams

  /// The records' own times and losses: BlueZ, monitor/tty.h. 8 is the time in 100 microseconds, 1 to 7 are drops.
  @Test func serialMonitor() throws {
    #expect(
      try read(Formats.serialMonitor).seen.records.map(\.time) == [0, 2_500, 5_000, 7_500, 9_999].map { $0 * 100_000 })
    var parser = CaptureParser(format: .serialMonitor), at = 0
    var file: [UInt8] = [13, 0, 2, 0, 0, 7, 4, 3, 8, 10, 0, 0, 0, 0x03, 0x0C]
    file += [0x00]
    file[0] = UInt8(file.count - 2)
    var bytes = file.mutableSpan
    guard case .record(let record) = try parser.next(&bytes, at: &at, isLast: true) else {
      Issue.record("no record")
      return
    }
    #expect(record.missingBefore == 3 && record.time == 1_000_000 && record.octets.count == 4)
  }

  /// Octets that are no packet are skipped up to the next two packets.
  @Test(arguments: ["hcidump", "serial monitor", "H4"]) func streamsResynchronize(_ name: String) throws {
    let one = try #require(Formats.all.first { $0.name == name }).octets
    let file = one + [0xEE, 0xEE, 0xEE, 0xEE, 0xEE] + one
    #expect(try read(file).error != nil)
    let (seen, gaps, error) = try read(file, resynchronizes: true)
    #expect(gaps == 1 && error == nil)
    #expect(Self.octets(seen.records) == Self.octets(Formats.expected) + Self.octets(Formats.expected))
  }

  /// A btsnoop file whose beginning is lost is none of the formats that are recognized by their records; nor is noise.
  @Test func damagedFilesAreNotGuessed() throws {
    for cut in [1, 4, 8, 16, 17, 20, 24, 36, 40] {
      for datalink in [1001, 1002, 2001] {
        let (seen, _, error) = try read(Array(Formats.btsnoop(datalink).dropFirst(cut)))
        #expect(seen.records.isEmpty && error != nil, "\(datalink) without \(cut) octets")
      }
    }
    var chance = SplitMix64(seed: 11), taken = 0
    for _ in 0..<2_000 {
      let noise = (0..<600).map { _ in UInt8.random(in: 0...255, using: &chance) }
      var parser = CaptureParser(), octets = noise, at = 0
      var bytes = octets.mutableSpan
      if case .record? = try? parser.next(&bytes, at: &at, isLast: true) { taken += 1 }
    }
    #expect(taken == 0)
  }

  /// The host's first fragment has flag 0, the controller's 2, and fragments that continue 1: Vol 4, Part E, §5.4.2.
  @Test func directionsAreInferred() throws {
    let file = [
      // Interleaved: ten octets of the host's 15, nine of the controller's 14, then the rest of each.
      "01 03 0C 00", "04 0E 04 01 03 0C 00",
      "02 40 00 0A 00 0B 00 04 00 52 03 00 01 02 03", "02 40 20 09 00 0A 00 04 00 1B 03 00 01 02",
      "02 40 10 05 00 04 05 06 07 08", "02 40 10 05 00 03 04 05 06 07", "02 41 10 01 00 00",
    ].map { TestSupport.octets($0) }
    let (seen, _, error) = try read(file.flatMap { $0 })
    #expect(error == nil && Self.octets(seen.records) == file)
    let directions: [HCIDirection] = [
      .fromHost, .fromController, .fromHost, .fromController, .fromHost, .fromController, .fromController,
    ]
    #expect(seen.records.map(\.direction) == directions)
  }

  // MARK: Text

  @Test func textWithoutOctets() throws {
    let text = """
      Bluetooth monitor ver 5.66
      < HCI Command: Reset (0x03|0x0003) plen 0    #1 [hci0] 0.000001
      > HCI Event: Command Complete (0x0e) plen 4   #2 [hci0] 0.000200
            Reset (0x03|0x0003) ncmd 1
              Status: Success (0x00)

      """
    let (_, _, error) = try read(Array(text.utf8))
    #expect(error?.description.contains("btmon -w") == true)
  }
  /// Packets with their octets among others, in colour, with the date, and in hcidump's form with offsets.
  @Test func textOfOtherForms() throws {
    let text = """
      HCI sniffer - Bluetooth packet analyzer ver 5.50
      < HCI Command: Set Event Mask (0x03|0x0001) plen 8
          0000: ff ff fb ff 07 f8 bf 3d                           .......=
      > HCI Event: Command Complete (0x0e) plen 4
          Set Event Mask (0x03|0x0001) ncmd 1
      \u{1B}[0;35m> HCI Event: Vendor (0xff) plen 2\u{1B}[0m      #7 [hci2] 2024-02-29 12:00:01.500000
              01 ad                                            ..

      """
    let (seen, _, error) = try read(Array(text.utf8))
    #expect(error == nil)
    #expect(
      Self.octets(seen.records) == [
        TestSupport.octets("01 01 0C 08 FF FF FB FF 07 F8 BF 3D"), TestSupport.octets("04 FF 02 01 AD"),
      ])
    // 29 February 2024, 12:00:01.5 UTC.
    #expect(seen.records.last?.time == 1_709_208_001_500_000_000 && seen.records.last?.adapter == 2)
  }

  // MARK: USB

  /// An event comes in transfers of the endpoint's packet size: Vol 4, Part B, §2.1.1. Other devices' transfers between
  /// them are none of its.
  @Test func eventsInPieces() throws {
    let event = Formats.packets[4].octets
    func transfer(_ part: [UInt8], device: UInt8 = 2) -> [UInt8] {
      Formats.usbLinux([4] + part, true, 64, device: device)
    }
    let mouse: [UInt8] = [0x01, 0x00, 0xFF, 0x02]
    let records = [
      Formats.usbLinux(Formats.packets[0].octets, false, 64), transfer(mouse, device: 7),
      transfer(Array(event[1..<17])), transfer(mouse, device: 7), transfer(Array(event[17...])),
      // The answer of a device to its host, which has no data, and a disk's block.
      Formats.usbLinux([2, 1, 2, 3, 4, 5], true, 64, endpoint: 0x81, device: 9),
    ]
    let (seen, _, error) = try read(Self.pcap(220, records))
    #expect(error == nil && Self.octets(seen.records) == [Formats.packets[0].octets, event])
  }
  /// The numbers of Wireshark's frames stay: others are passed over.
  @Test func numbersOfFrames() throws {
    struct Numbers: CaptureSink {
      var numbers: [Int] = []
      mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) { numbers.append(record.number) }
    }
    let mouse = Formats.usbLinux([4, 1, 0, 0xFF, 2], true, 64, device: 7)
    let file = try ScratchFile(Self.pcap(220, [mouse, Formats.usbLinux(Formats.packets[0].octets, false, 64), mouse]))
    var trace = try TraceFile(path: file.path), sink = Numbers()
    try trace.read(into: &sink)
    #expect(sink.numbers == [2])
  }
  private static func pcap(_ type: Int, _ records: [[UInt8]]) -> [UInt8] {
    var file = Formats.little32(0xA1B2_C3D4) + [2, 0, 4, 0] + Formats.little32(0) + Formats.little32(0)
    file += Formats.little32(65_535) + Formats.little32(type)
    for record in records {
      file += Formats.little32(1) + Formats.little32(0) + Formats.little32(record.count)
      file += Formats.little32(record.count) + record
    }
    return file
  }

  // MARK: pcapng

  private static func block(_ type: Int, _ body: [UInt8]) -> [UInt8] {
    let padded = body + [UInt8](repeating: 0, count: (4 - body.count % 4) % 4)
    return Formats.little32(type) + Formats.little32(padded.count + 12) + padded + Formats.little32(padded.count + 12)
  }
  private static func packet(_ interface: Int, _ data: [UInt8], options: [UInt8] = []) -> [UInt8] {
    let padding = [UInt8](repeating: 0, count: (4 - data.count % 4) % 4), length = Formats.little32(data.count)
    return block(
      6,
      Formats.little32(interface) + Formats.little32(0) + Formats.little32(0) + length + length + data + padding
        + options)
  }
  private static func section(_ types: [UInt8]) -> [UInt8] {
    types.reduce(
      block(0x0A0D_0D0A, Formats.little32(0x1A2B_3C4D) + [1, 0, 0, 0] + [UInt8](repeating: 0xFF, count: 8))
    ) { $0 + block(1, [$1, 0, 0, 0] + Formats.little32(0)) }
  }
  @Test func foreignInterfaces() throws {
    let file =
      Self.section([1, 201]) + Self.packet(0, [UInt8](repeating: 0, count: 60))
      + Self.packet(1, Formats.payload(0, 201)) + Self.packet(0, [1, 2, 3]) + Self.packet(1, Formats.payload(1, 201))
    let scratch = try ScratchFile(file)
    var trace = try TraceFile(path: scratch.path), sink = SeenSink()
    try trace.read(into: &sink)
    #expect(Self.octets(sink.records) == Formats.packets[..<2].map(\.octets))
    #expect(trace.remarks.count == 1 && trace.remarks.first?.contains("2 packets") == true)
  }
  /// epb_flags: option 2, of which bits 0 and 1 are 1 for inbound, 2 for outbound. It stands against the packet's flags.
  @Test func directionsOfBlocks() throws {
    let outbound: [UInt8] = [2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0],
      inbound: [UInt8] = [2, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    let data = Formats.packets[3].octets
    let comment: [UInt8] = [1, 0, 3, 0, 0x61, 0x62, 0x63, 0]
    let file =
      Self.section([187]) + Self.packet(0, data, options: outbound) + Self.packet(0, data, options: comment + inbound)
    #expect(try read(file).seen.records.map(\.direction) == [.fromHost, .fromController])
  }

  // MARK: btsnoop

  /// An original length that is less than the included one, or none: the included one bounds the record.
  @Test(arguments: [0, 3]) func originalLengths(_ original: Int) throws {
    var file = Formats.btsnoop(1002), at = 16
    while at < file.count {
      let included = Int(file[at + 7])
      file.replaceSubrange(at..<at + 4, with: Formats.big32(original))
      at += 24 + included
    }
    let (seen, _, error) = try read(file)
    #expect(error == nil && seen.records == Formats.expected && seen.cut == 0)
    #expect(try read(file, resynchronizes: true).seen.records == Formats.expected)
  }

  // MARK: Bug reports. system/bt/tools/scripts/btsnooz.py of Android.

  /// The section of a bug report, as that script reads it.
  private static func report(_ version: UInt8, octets: ([UInt8]) -> [UInt8] = { $0 }) -> [UInt8] {
    let (section, count) = section(version)
    let text = Data(octets(section)).base64EncodedString(options: .lineLength76Characters)
    return Array(
      """
      ========================================================
      == dumpstate: 2023-11-14 22:13:20
      ========================================================
      \(String(repeating: "A line of another section: -- <b> \n", count: 2_000))
      --- BEGIN:BTSNOOP_LOG_SUMMARY (\(count) bytes in) ---
      \(text)
      --- END:BTSNOOP_LOG_SUMMARY ---
      a line after it
      """.utf8)
  }
  private static func section(_ version: UInt8) -> (octets: [UInt8], count: Int) {
    var records: [UInt8] = [], before = Formats.packets[0].micro
    for packet in Formats.packets {
      let isReceived = packet.direction == .fromController
      let type: UInt8 = packet.octets[0] == 4 ? 0x10 : packet.octets[0] == 1 ? 0x20 : isReceived ? 0x11 : 0x21
      let length: [UInt8] = [UInt8(packet.octets.count), 0]
      records += (version == 1 ? length : length + length) + Formats.little32(Int(packet.micro - before)) + [type]
      records += packet.octets.dropFirst()
      before = packet.micro
    }
    // A zlib stream of a stored block: RFC 1950, RFC 1951, §3.2.4.
    var low: UInt32 = 1, high: UInt32 = 0
    for octet in records { (low, high) = ((low + UInt32(octet)) % 65_521, (high + low + UInt32(octet)) % 65_521) }
    let count = records.count
    var stream: [UInt8] = [
      0x78, 0x01, 0x01, UInt8(count & 0xFF), UInt8(count >> 8), ~UInt8(count & 0xFF), ~UInt8(count >> 8),
    ]
    stream += records + Formats.big32(Int(high << 16 | low))
    let last = (Formats.seconds * 1_000_000 + Formats.packets[4].micro)
    let header = [version] + Formats.big64(last).reversed()
    return (header + stream, count)
  }
  @Test(arguments: [UInt8(1), 2]) func bugReports(_ version: UInt8) throws {
    let (seen, _, error) = try read(Self.report(version))
    #expect(error == nil && seen.records == Formats.expected)
    // btsnooz_hci.log, and through gzip, as people attach it.
    #expect(try read(Self.section(version).octets).seen.records == Formats.expected)
    #expect(try read(Self.packed("gzip -c", Self.report(version))).seen.records == Formats.expected)
  }
  @Test func damagedBugReports() throws {
    // Cut in the middle, a changed octet, another format, no section.
    for change: ([UInt8]) -> [UInt8] in [
      { Array($0.dropLast(20)) }, { octets in octets.indices.map { $0 == 40 ? octets[$0] ^ 1 : octets[$0] } },
      { [3] + $0.dropFirst() }, { Array($0.prefix(8)) },
    ] {
      let (seen, _, error) = try read(Self.report(2, octets: change))
      #expect(seen.records.count <= 5 && error?.description.contains("BTSNOOP_LOG_SUMMARY") == true)
    }
    let (_, _, error) = try read(Array("== dumpstate\n--- no section ---\n".utf8))
    #expect(error?.description.contains("BTSNOOP_LOG_SUMMARY") == true)
  }

  // MARK: Archives

  private static func packed(_ command: String, _ octets: [UInt8]) throws -> [UInt8] {
    let file = try ScratchFile(octets), shell = Process()
    shell.executableURL = URL(filePath: "/bin/sh")
    shell.arguments = ["-c", "\(command) '\(file.path)' >'\(file.path).out'"]
    try shell.run()
    shell.waitUntilExit()
    defer { try? FileManager.default.removeItem(atPath: file.path + ".out") }
    return [UInt8](try Data(contentsOf: URL(filePath: file.path + ".out")))
  }
  /// A zip archive as its description has it (APPNOTE.TXT, §4.3): entries that are stored, or deflated by gzip.
  private static func zip(_ entries: [(name: String, day: UInt8, octets: [UInt8], isDeflated: Bool)]) throws -> [UInt8]
  {
    var file: [UInt8] = [], directory: [UInt8] = []
    for entry in entries {
      // gzip's member: ten octets of header, the stream, the checksum and the length.
      let member = try packed("gzip -nc", entry.octets)
      let stream = entry.isDeflated ? Array(member[10..<(member.count - 8)]) : entry.octets
      let crc = Array(member[(member.count - 8)..<(member.count - 4)]), name = Array(entry.name.utf8)
      let fields: [UInt8] =
        [20, 0, 0, 0, entry.isDeflated ? 8 : 0, 0, 0, 0, entry.day, 0x57] + crc + Formats.little32(stream.count)
        + Formats.little32(entry.octets.count) + [UInt8(name.count), 0, 0, 0]
      directory += Array("PK".utf8) + [1, 2, 20, 0] + fields + [UInt8](repeating: 0, count: 10)
      directory += Formats.little32(file.count) + name
      file += Array("PK".utf8) + [3, 4] + fields + name + stream
    }
    let count = UInt8(entries.count)
    let end: [UInt8] = Array("PK".utf8) + [5, 6, 0, 0, 0, 0, count, 0, count, 0] + Formats.little32(directory.count)
    return file + directory + end + Formats.little32(file.count) + [3, 0] + Array("end".utf8)
  }
  private static let folder = "FS/data/misc/bluetooth/logs/"

  @Test func archives() throws {
    let new = Formats.btsnoop(1002), old = Array(new.prefix(16 + 24 + 4))
    let file = try ScratchFile(
      Self.zip([
        ("version.txt", 9, Array("1.0".utf8), false), (Self.folder + "btsnoop_hci.log.last", 1, old, true),
        (Self.folder + "btsnoop_hci.log", 2, new, true), (Self.folder + "notes.txt", 9, Array("none".utf8), true),
      ]))
    var trace = try TraceFile(path: file.path), sink = SeenSink()
    try trace.read(into: &sink)
    #expect(sink.records == Formats.expected && trace.remarks.first?.contains("btsnoop_hci.log.last") == true)
  }
  /// A compressed file in an archive; a bug report's text in one; one that is named.
  @Test func whatArchivesHold() throws {
    let packed = try Self.packed("gzip -c", Formats.pcapng(201, isLittle: true))
    #expect(try read(Self.zip([("a/capture.pcapng.gz", 1, packed, false)])).seen.records == Formats.expected)
    #expect(try read(Self.zip([("a/", 1, [], false), ("a/x", 1, packed, true)])).seen.records == Formats.expected)
    let report = try Self.zip([("main_entry.txt", 1, [0x61], false), ("bugreport-x.txt", 1, Self.report(2), true)])
    #expect(try read(report).seen.records == Formats.expected)
    let name = NSTemporaryDirectory() + "/bindrune-\(UUID().uuidString).zip"
    try Data(Self.zip([("one", 1, Formats.btsnoop(1002), true), ("two.pcap", 2, [1, 2, 3], true)]))
      .write(to: URL(filePath: name))
    defer { try? FileManager.default.removeItem(atPath: name) }
    var trace = try TraceFile(path: name + ":one"), sink = SeenSink()
    try trace.read(into: &sink)
    #expect(sink.records == Formats.expected)
    var absent = try TraceFile(path: name + ":three")
    #expect(throws: TraceError.self) { try absent.read(into: &sink) }
  }
  @Test func damagedArchives() throws {
    let whole = try Self.zip([("btsnoop_hci.log", 1, Formats.btsnoop(1002), true)])
    for count in stride(from: 4, to: whole.count, by: 7) {
      let (seen, _, error) = try read(Array(whole.prefix(count)))
      #expect(seen.records.isEmpty && error != nil, "\(count) octets")
    }
    // Another checksum: gzip sees it, behind the packets.
    var wrong = whole
    wrong[14] ^= 1
    if let place = wrong.indices.last(where: { Array(wrong[$0...].prefix(4)) == [0x50, 0x4B, 1, 2] }) {
      wrong[place + 16] ^= 1
    }
    #expect(try read(wrong).error?.description.contains("gzip ended") == true)
    let letters = try Self.zip([("letter.doc", 1, [1, 2], false), ("other.doc", 1, [1, 2], false)])
    #expect(try read(letters).error?.description.contains("zip archive") == true)
    // In flipped octets: an error or records, in bounded time.
    for octets in Fuzz([whole], cases: 60, longest: 2_000) { _ = try read(octets) }
  }

  // MARK: No traces

  @Test func whatElseTheyAre() throws {
    // A buffer's header of 72 octets, then the header of a system's event.
    var etl = Formats.little32(65_536) + Formats.little32(4_096) + Formats.little32(4_096)
    etl += [UInt8](repeating: 0, count: 60) + [2, 0, 2, 0xC0] + [UInt8](repeating: 0, count: 100)
    for (octets, words) in [
      (etl, "BTETLParse"), ([0x7F] + Array("ELF".utf8) + [UInt8](repeating: 0, count: 40), "ELF"),
      (Array("%PDF-1.7\n%....................".utf8), "PDF"),
      ([0x89] + Array("PNG\r\n".utf8) + [UInt8](repeating: 0, count: 40), "PNG"),
      ([UInt8](repeating: 0x61, count: 257) + Array("ustar".utf8) + [UInt8](repeating: 0, count: 300), "sysdiagnose"),
      (Array("{\"a\": [1, 2, 3], \"b\": \"a text\"}\n".utf8), "JSON"),
      (Array("Notes of a meeting, and no packets.\n".utf8), "text"),
    ] as [([UInt8], String)] {
      let (seen, _, error) = try read(octets)
      #expect(
        seen.records.isEmpty && error?.isNoTrace == true && error?.description.contains(words) == true, "\(words)")
    }
  }
}
