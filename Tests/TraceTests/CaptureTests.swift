import BindruneCapture
import BindruneWire
import Foundation
import Glibc
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneTrace

/// A record as a test compares it.
struct Seen: Equatable, CustomStringConvertible {
  var time: Int64
  var direction: HCIDirection?
  var adapter: UInt16 = 0
  var content = CaptureRecord.Content.packet
  var octets: [UInt8]
  var description: String {
    "\(time) \(direction.map { $0 == .fromHost ? ">" : "<" } ?? "-") \(adapter) \(content) \(hexBytes(octets))"
  }
}
private func hexBytes(_ octets: [UInt8]) -> String { octets.map { String($0, radix: 16) }.joined(separator: " ") }

/// Keeps the records.
struct SeenSink: CaptureSink {
  var records: [Seen] = []
  var cut = 0
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    if record.isCut { cut += 1 }
    records.append(
      Seen(
        time: record.time, direction: record.direction, adapter: record.adapter, content: record.content,
        octets: bytes.indices.map { bytes[$0] }))
  }
}

/// A file of a test, deleted with it.
struct ScratchFile: ~Copyable {
  let path = NSTemporaryDirectory() + "/bindrune-trace-\(UInt64.random(in: 0 ... .max))"
  init(_ octets: [UInt8]) throws { try Data(octets).write(to: URL(filePath: path)) }
  deinit { try? FileManager.default.removeItem(atPath: path) }
}

func read(_ octets: [UInt8], resynchronizes: Bool = false) throws -> (seen: SeenSink, gaps: Int, error: TraceError?) {
  let file = try ScratchFile(octets)
  var trace = try TraceFile(path: file.path), sink = SeenSink()
  trace.resynchronizes = resynchronizes
  do throws(TraceError) { try trace.read(into: &sink) } catch { return (sink, trace.gapCount, error) }
  return (sink, trace.gapCount, nil)
}

/// The same five packets in each format, written octet by octet as the format's own description has it.
enum Formats {
  static let seconds: Int64 = 1_700_000_000
  /// Reset, its Command Complete, an ACL packet in each direction, LE Connection Complete.
  static let packets: [(direction: HCIDirection, micro: Int64, octets: [UInt8])] = [
    (.fromHost, 1, octets("01 03 0C 00")),
    (.fromController, 250_000, octets("04 0E 04 01 03 0C 00")),
    (.fromHost, 500_000, octets("02 40 00 07 00 03 00 04 00 0A 03 00")),
    (.fromController, 750_000, octets("02 40 20 05 00 01 00 04 00 0B")),
    (.fromController, 999_999, octets("04 3E 13 01 00 40 00 01 00 11 22 33 44 55 66 18 00 00 00 C8 00 00")),
  ]
  static var expected: [Seen] {
    packets.map { Seen(time: seconds * 1_000_000_000 + $0.micro * 1_000, direction: $0.direction, octets: $0.octets) }
  }
  static func big32(_ value: Int) -> [UInt8] { (0..<4).map { UInt8(value >> (24 - 8 * $0) & 0xFF) } }
  static func little32(_ value: Int) -> [UInt8] { big32(value).reversed() }
  static func big64(_ value: Int64) -> [UInt8] { (0..<8).map { UInt8(value >> (56 - 8 * $0) & 0xFF) } }

  static func btsnoop(_ datalink: Int) -> [UInt8] {
    var file = Array("btsnoop\0".utf8) + big32(1) + big32(datalink)
    for packet in packets {
      let type = packet.octets[0], isReceived = packet.direction == .fromController
      var data = packet.octets, flags = (isReceived ? 1 : 0) | (type == 1 || type == 4 ? 2 : 0)
      switch datalink {
      case 1001: data.removeFirst()
      case 1003, 1004:
        // Four octets of header: sequence numbers, type and length, checksum. BCSP has channels of its own.
        let channel = datalink == 1004 ? Int(type) : type == 2 ? 6 : 5, count = data.count - 1
        let head = [UInt8(0xC0), UInt8(channel | (count & 0xF) << 4), UInt8(count >> 4)]
        data[0] = 0xFF &- head.reduce(0, &+)
        data = head + data
      case 2001:
        data.removeFirst()
        let opcode = [1: 2, 4: 3, 2: isReceived ? 5 : 4][Int(type)] ?? 0
        flags = 3 << 16 | opcode
      default: break
      }
      file += big32(data.count) + big32(data.count) + big32(flags) + big32(0)
      file += big64((seconds + 62_168_256_000) * 1_000_000 + packet.micro) + data
    }
    return file
  }
  static func packetLogger(isLittle: Bool) -> [UInt8] {
    let number = isLittle ? little32 : big32
    return packets.flatMap { packet -> [UInt8] in
      let isReceived = packet.direction == .fromController
      let type: UInt8 = packet.octets[0] == 1 ? 0 : packet.octets[0] == 4 ? 1 : isReceived ? 3 : 2
      return number(packet.octets.count + 8) + number(Int(seconds)) + number(Int(packet.micro)) + [type]
        + packet.octets.dropFirst()
    }
  }
  static func payload(_ index: Int, _ type: Int) -> [UInt8] {
    let packet = packets[index], isReceived = packet.direction == .fromController
    switch type {
    case 201: return big32(isReceived ? 1 : 0) + packet.octets
    case 254:
      let opcode = [1: 2, 4: 3, 2: isReceived ? 5 : 4][Int(packet.octets[0])] ?? 0
      return [0, 3, 0, UInt8(opcode)] + packet.octets.dropFirst()
    case 192: return [0, 0, 8, 0] + little32(187) + packet.octets
    case 189, 220: return usbLinux(packet.octets, isReceived, type == 189 ? 48 : 64)
    case 249: return usbPcap(packet.octets, isReceived)
    default: return packet.octets
    }
  }
  /// Documentation/usb/usbmon.rst of Linux: the structure of the binary interface.
  static func usbLinux(
    _ packet: [UInt8], _ isReceived: Bool, _ header: Int, endpoint: UInt8? = nil, device: UInt8 = 2
  ) -> [UInt8] {
    let kind: UInt8 = packet[0] == 1 ? 2 : packet[0] == 4 ? 1 : 3, data = Array(packet.dropFirst())
    let number = endpoint ?? (kind == 2 ? 0 : kind == 1 ? 0x81 : isReceived ? 0x82 : 2)
    var octets = [UInt8](repeating: 0, count: 8)
    octets += [UInt8(ascii: isReceived ? "C" : "S"), kind, number, device, 1, 0, kind == 2 ? 0 : 0x2D, 0]
    octets += [UInt8](repeating: 0, count: 16) + little32(data.count) + little32(data.count)
    octets += kind == 2 ? [0x20, 0, 0, 0, 0, 0, UInt8(data.count), 0] : [UInt8](repeating: 0, count: 8)
    return octets + [UInt8](repeating: 0, count: header - 48) + data
  }
  /// USBPcap's own description: https://desowin.org/usbpcap/captureformat.html
  static func usbPcap(_ packet: [UInt8], _ isReceived: Bool) -> [UInt8] {
    let kind: UInt8 = packet[0] == 1 ? 2 : packet[0] == 4 ? 1 : 3
    var data = Array(packet.dropFirst())
    if kind == 2 { data = [0x20, 0, 0, 0, 0, 0, UInt8(data.count), 0] + data }
    let header: UInt8 = kind == 2 ? 28 : 27
    var octets: [UInt8] = [header, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, isReceived ? 1 : 0, 1, 0, 5, 0]
    octets += [kind == 2 ? 0 : kind == 1 ? 0x81 : isReceived ? 0x82 : 2, kind] + little32(data.count)
    return octets + (kind == 2 ? [0] : []) + data
  }
  /// BlueZ, tools/hcidump.c: struct hcidump_hdr.
  static var hcidump: [UInt8] {
    packets.flatMap { packet -> [UInt8] in
      [UInt8(packet.octets.count), 0, packet.direction == .fromController ? 1 : 0, 0] + little32(Int(seconds))
        + little32(Int(packet.micro)) + packet.octets
    }
  }
  /// BlueZ, monitor/tty.h: opcode, flags, the length of the extended header, which has the time in 100 microseconds.
  static var serialMonitor: [UInt8] {
    packets.flatMap { packet -> [UInt8] in
      let isReceived = packet.direction == .fromController
      let opcode = [1: 2, 4: 3, 2: isReceived ? 5 : 4][Int(packet.octets[0])] ?? 0
      return [UInt8(packet.octets.count - 1 + 9), 0, UInt8(opcode), 0, 0, 5, 8] + little32(Int(packet.micro / 100))
        + packet.octets.dropFirst()
    }
  }
  private static func hex(_ octets: some Sequence<UInt8>) -> String {
    octets.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined(separator: " ")
  }
  /// The output of `hcidump --raw`: 20 octets a line.
  static var hcidumpText: String {
    "HCI sniffer - Bluetooth packet analyzer ver 5.50\ndevice: hci0 snap_len: 1500 filter: 0xffffffff\n"
      + packets.map { packet in
        let lines = stride(from: 0, to: packet.octets.count, by: 20).map {
          hex(packet.octets[$0..<min($0 + 20, packet.octets.count)]).uppercased() + " \n"
        }
        return (packet.direction == .fromHost ? "< " : "> ") + lines.joined(separator: "  ")
      }.joined()
  }
  /// The output of btmon, with the octets of every packet: 16 a line, and as text behind them.
  static var btmonText: String {
    "Bluetooth monitor ver 5.66\n= New Index: 00:00:5E:00:53:00 (Primary,USB,hci3)   [hci3] 0.000001\n"
      + packets.enumerated().map { index, packet in
        let octets = packet.octets, sign = packet.direction == .fromHost ? "<" : ">"
        let body = Array(octets.dropFirst(octets[0] == 4 ? 3 : octets[0] == 1 ? 4 : 5))
        let words =
          switch octets[0] {
          case 1: "HCI Command: Reset (0x03|0x0003) plen \(octets[3])"
          case 4: "HCI Event: Some (Name) (0x\(hex([octets[1]]))) plen \(octets[2])"
          default:
            "ACL Data \(sign == "<" ? "TX" : "RX"): Handle 64 flags 0x0\(octets[2] >> 4) dlen \(octets[3])"
          }
        let lines = stride(from: 0, to: body.count, by: 16).map {
          let part = body[$0..<min($0 + 16, body.count)], digits = hex(part)
          return "        " + digits + String(repeating: " ", count: 49 - digits.utf8.count)
            + String(repeating: ".", count: part.count) + "\n"
        }
        return "\(sign) \(words)   #\(index + 1) [hci3] 0.00000\(index)\n      Decoded: 0x00\n" + lines.joined()
      }.joined()
  }
  static func pcap(_ type: Int, isLittle: Bool, isNano: Bool) -> [UInt8] {
    let number = isLittle ? little32 : big32
    var file = number(isNano ? 0xA1B2_3C4D : 0xA1B2_C3D4)
    file += isLittle ? [2, 0, 4, 0] : [0, 2, 0, 4]
    file += number(0) + number(0) + number(65_535) + number(type)
    for (index, packet) in packets.enumerated() {
      let data = payload(index, type)
      file += number(Int(seconds)) + number(Int(packet.micro) * (isNano ? 1_000 : 1))
      file += number(data.count) + number(data.count) + data
    }
    return file
  }
  /// With options, a block of statistics in between, and times in 1/1024 s or microseconds.
  static func pcapng(_ type: Int, isLittle: Bool, isSimple: Bool = false) -> [UInt8] {
    let number = isLittle ? little32 : big32
    let half: (Int) -> [UInt8] = {
      isLittle ? [UInt8($0 & 0xFF), UInt8($0 >> 8)] : [UInt8($0 >> 8), UInt8($0 & 0xFF)]
    }
    func block(_ type: Int, _ body: [UInt8]) -> [UInt8] {
      let padded = body + [UInt8](repeating: 0, count: (4 - body.count % 4) % 4)
      return number(type) + number(padded.count + 12) + padded + number(padded.count + 12)
    }
    var file = block(0x0A0D_0D0A, number(0x1A2B_3C4D) + half(1) + half(0) + [UInt8](repeating: 0xFF, count: 8))
    // if_tsresol 6: microseconds; if_tsoffset: a million seconds.
    let offset = big64(1_000_000)
    file += block(
      1,
      half(type) + half(0) + number(0) + half(9) + half(1) + [6, 0, 0, 0] + half(14) + half(8)
        + (isLittle ? offset.reversed() : offset) + half(0) + half(0))
    file += block(5, number(0) + number(0) + number(0))
    for (index, packet) in packets.enumerated() {
      let data = payload(index, type), time = (seconds - 1_000_000) * 1_000_000 + packet.micro
      let head = number(0) + number(Int(time >> 32)) + number(Int(time & 0xFFFF_FFFF)) + number(data.count)
      file += isSimple ? block(3, number(data.count) + data) : block(6, head + number(data.count) + data)
    }
    return file
  }

  /// Those whose records have a header of a fixed length before the packet.
  static var withPlainHeaders: Set<String> {
    Set(all.map(\.name)).subtracting([189, 192, 220, 249].flatMap { ["pcap \($0)", "pcapng \($0)"] })
      .subtracting(withoutMagic)
  }
  /// Those that are recognized by their first records.
  static let withoutMagic: Set<String> = ["hcidump", "serial monitor", "H4", "hcidump --raw", "btmon's text"]

  /// Every format and variant, by its name.
  static let all: [(name: String, octets: [UInt8], adapter: UInt16, hasTimes: Bool)] = {
    var all: [(String, [UInt8], UInt16, Bool)] = []
    for datalink in [1001, 1002, 1003, 1004] { all.append(("btsnoop \(datalink)", btsnoop(datalink), 0, true)) }
    all.append(("btsnoop 2001", btsnoop(2001), 3, true))
    for isLittle in [false, true] {
      let end = isLittle ? "little" : "big"
      all.append(("PacketLogger \(end)", packetLogger(isLittle: isLittle), 0, true))
      for type in [187, 201, 254] {
        for isNano in [false, true] {
          let file = pcap(type, isLittle: isLittle, isNano: isNano)
          all.append(("pcap \(type) \(end) \(isNano ? "ns" : "us")", file, type == 254 ? 3 : 0, true))
        }
        all.append(
          ("pcapng \(type) \(end)", pcapng(type, isLittle: isLittle), type == 254 ? 3 : 0, true))
      }
    }
    for type in [147, 189, 192, 220, 249] {
      all.append(("pcap \(type)", pcap(type, isLittle: true, isNano: false), 0, true))
      all.append(("pcapng \(type)", pcapng(type, isLittle: true), 0, true))
    }
    all.append(("hcidump", hcidump, 0, true))
    all.append(("serial monitor", serialMonitor, 0, false))
    all.append(("H4", packets.flatMap(\.octets), 0, false))
    all.append(("hcidump --raw", Array(hcidumpText.utf8), 0, false))
    all.append(("btmon's text", Array(btmonText.utf8), 3, false))
    return all.map { (name: $0.0, octets: $0.1, adapter: $0.2, hasTimes: $0.3) }
  }()
}

@Suite struct CaptureTests {
  @Test(arguments: Formats.all.indices) func everyFormat(_ index: Int) throws {
    let format = Formats.all[index]
    let (seen, gaps, error) = try read(format.octets)
    #expect(error == nil && gaps == 0, "\(format.name)")
    var expected = Formats.expected
    for index in expected.indices { expected[index].adapter = format.adapter }
    // A stream of H4 has no times, the monitor's serial line none of the day.
    if !format.hasTimes, seen.records.count == expected.count {
      for index in expected.indices { expected[index].time = seen.records[index].time }
    }
    #expect(seen.records == expected, "\(format.name)")
  }

  /// Simple Packet Blocks have no time.
  @Test func simplePacketBlocks() throws {
    let (seen, _, error) = try read(Formats.pcapng(201, isLittle: true, isSimple: true))
    #expect(error == nil && seen.records.map(\.octets) == Formats.packets.map(\.octets))
    #expect(seen.records.allSatisfy { $0.time == 0 })
  }

  /// Cut anywhere, every whole record before the end is delivered, and an error names the octet where the cut record
  /// begins.
  @Test(arguments: Formats.all.indices) func cutAtEveryOctet(_ index: Int) throws {
    let format = Formats.all[index]
    let whole = try read(format.octets).seen.records
    var ends = Set<Int>()
    for count in 0..<format.octets.count {
      let (seen, _, error) = try read(Array(format.octets.prefix(count)))
      // The time of a text's line may be cut.
      #expect(
        seen.records.map(\.octets) == whole.prefix(seen.records.count).map(\.octets), "\(format.name), \(count) octets")
      if error == nil { ends.insert(seen.records.count) } else { #expect(error?.description.isEmpty == false) }
      if case .damaged(_, let damage)? = error { #expect(damage.offset <= count) }
    }
    // The cuts between two records are no damage.
    let fewest = Formats.withoutMagic.contains(format.name) ? 2 : 1
    #expect(ends.isSuperset(of: fewest..<whole.count), "\(format.name): \(ends)")
  }

  /// A file of more than one buffer, and a record that is longer than what the buffer has left.
  @Test func filesLongerThanTheBuffer() throws {
    var file: [UInt8] = [], expected: [[UInt8]] = [], chance = SplitMix64(seed: 7)
    BTSnoop.appendHeader(to: &file)
    while file.count < 3_500_000 {
      let count = Int.random(in: 0...1_000, using: &chance)
      let packet =
        [2, 0x40, 0x20, UInt8(count & 0xFF), UInt8(count >> 8)]
        + (0..<count).map { _ in UInt8.random(in: 0...255, using: &chance) }
      BTSnoop.append(packet.span, .fromController, time: 1_700_000_000_000_000, to: &file)
      expected.append(packet)
    }
    let (seen, _, error) = try read(file)
    #expect(error == nil && seen.records.map(\.octets) == expected)
  }

  // MARK: Damage

  @Test func sizesThatLie() throws {
    // The included length of the second record: 4 GB, more than the original length, more than the file.
    let second = 16 + 24 + 4
    for (length, words) in [(0xFFFF_FFFF, "implausible"), (300_000, "implausible"), (60, "contradicts")] {
      var file = Formats.btsnoop(1002)
      file.replaceSubrange(second + 4..<second + 8, with: Formats.big32(length))
      let (seen, _, error) = try read(file)
      #expect(seen.records.count == 1)
      let text = error?.description ?? ""
      #expect(text.contains(words) && text.contains("octet \(second)"), "\(text)")
    }
  }

  /// Octets in the middle are overwritten: the records after them are found again.
  @Test(arguments: Formats.all.indices.filter { Formats.withPlainHeaders.contains(Formats.all[$0].name) })
  func resynchronizes(_ index: Int) throws {
    let format = Formats.all[index]
    // What a serial frame holds is known only after its checksum, and a pcapng block by its two lengths.
    let whole = try read(format.octets).seen.records
    var file = format.octets
    // The fourth record's header: its lengths become noise.
    guard
      let place = file.indices.dropLast(30).last(where: {
        Array(file[$0..<$0 + 9]) == octets("40 20 05 00 01 00 04 00 0B")
      })
    else {
      Issue.record("\(format.name) lacks the packet")
      return
    }
    let header =
      format.name.hasPrefix("btsnoop")
      ? 24 : format.name.hasPrefix("Packet") ? 13 : format.name.hasPrefix("pcapng") ? 28 : 16
    for octet in place - header - 4..<place - header + 8 where octet >= 0 { file[octet] = 0xEE }
    let (plain, _, error) = try read(file)
    #expect(error != nil && plain.records.count < whole.count, "\(format.name)")
    let (seen, gaps, after) = try read(file, resynchronizes: true)
    #expect(
      gaps >= 1 && seen.records.last?.octets == whole.last?.octets, "\(format.name): \(String(describing: after))")
  }

  /// Seeded mutations of every format: an error or records, never a trap; every record lies within the file.
  @Test func mutations() throws {
    let cases = Fuzz.cases / Formats.all.count
    for format in Formats.all {
      var count = 0
      for octets in Fuzz([format.octets], cases: cases, longest: 2_000) {
        for resynchronizes in [false, true] {
          let (seen, _, _) = try parse(octets, resynchronizes)
          count += seen
          #expect(seen <= octets.count)
        }
      }
      #expect(count > 0, "\(format.name)")
    }
  }
  /// Without a file: a mutation costs microseconds.
  func parse(_ octets: [UInt8], _ resynchronizes: Bool) throws -> (records: Int, gaps: Int, error: CaptureError?) {
    var parser = CaptureParser(), octets = octets, at = 0, records = 0, gaps = 0
    while true {
      var bytes = octets.mutableSpan
      do throws(CaptureError) {
        switch try parser.next(&bytes, at: &at, isLast: true) {
        case .record(let record):
          records += 1
          let room = record.isAssembled ? parser.assembled.count : octets.count
          #expect(record.octets.range.upperBound <= room && record.originalCount >= Int(record.octets.count))
        case .needs(let count):
          Issue.record("asks for \(count) octets behind the end")
          return (records, gaps, nil)
        case .end: return (records, gaps, nil)
        }
      } catch {
        guard resynchronizes, parser.format != nil else { return (records, gaps, error) }
        gaps += 1
        #expect(parser.resume(octets.span, at: &at, isLast: true) == nil)
        if at >= octets.count { return (records, gaps, error) }
      }
    }
  }

  @Test func whatIsNoTrace() throws {
    for (text, words) in [
      ("", "is empty"), ("hello, this is a text file and no trace at all", "not a trace but text without packets"),
      ("btsnoop\0\0\0\0\u{2}\0\0\u{3}\u{0}", "version 2"),
    ] {
      let (seen, _, error) = try read(Array(text.utf8))
      #expect(seen.records.isEmpty && error?.description.contains(words) == true, "\(String(describing: error))")
    }
    #expect(throws: TraceError.self) { _ = try TraceFile(path: "/nonexistent/trace") }
    // Ethernet, also as the only interface.
    #expect(try read(Formats.pcapng(1, isLittle: true)).error?.description.contains("link type 1 ") == true)
    let (_, _, error) = try read(Formats.pcap(1, isLittle: true, isNano: false))
    #expect(error?.description.contains("link type 1 ") == true)
  }

  // MARK: gzip

  @Test func compressed() throws {
    let file = try ScratchFile(Formats.btsnoop(1002))
    let gzip = Process()
    gzip.executableURL = URL(filePath: "/bin/sh")
    gzip.arguments = ["-c", "gzip -c '\(file.path)' >'\(file.path).gz'"]
    try gzip.run()
    gzip.waitUntilExit()
    defer { try? FileManager.default.removeItem(atPath: file.path + ".gz") }
    let packed = [UInt8](try Data(contentsOf: URL(filePath: file.path + ".gz")))
    #expect(packed.starts(with: [0x1F, 0x8B]))
    #expect(try read(packed).seen.records == Formats.expected)
    // Cut: what gzip could unpack, then an error.
    let (seen, _, error) = try read(Array(packed.dropLast(10)))
    #expect(seen.records == Array(Formats.expected.prefix(seen.records.count)))
    #expect(error?.description.contains("gzip ended") == true)
  }

  /// A file that is left in its middle does not wait for gzip, which may wait itself: here for a pipe.
  @Test func compressedAndLeft() throws {
    let path = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path
    #expect(unsafe mkfifo(path, 0o600) == 0)
    defer { try? FileManager.default.removeItem(atPath: path) }
    let reader = unsafe open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
    let writer = unsafe open(path, O_WRONLY | O_CLOEXEC)
    _ = fcntl(reader, F_SETFL, 0)
    defer { close(reader) }
    let unpacker = try Unpacker(.init(rawValue: reader), before: Unpacker.magic)
    unpacker.abandon()
    #expect(unpacker.finish() == nil, "left")
    close(writer)
  }

  // MARK: Writing

  @Test(arguments: CaptureWriter.Format.allCases) func writtenIsRead(_ format: CaptureWriter.Format) throws {
    var writer = CaptureWriter(format), file: [UInt8] = []
    writer.begin(&file)
    for (index, seen) in Formats.expected.enumerated() {
      let record = CaptureRecord(
        number: index + 1, time: seen.time, direction: seen.direction, octets: Octets(0, seen.octets.count))
      #expect(writer.append(record, seen.octets.span, to: &file))
    }
    let (seen, _, error) = try read(file)
    #expect(error == nil && seen.records == Formats.expected && writer.omitted == 0)
  }
  /// A clock before 1970: each format has the time again, pcapng with if_tsoffset (option 14).
  @Test(arguments: CaptureWriter.Format.allCases) func negativeTimes(_ format: CaptureWriter.Format) throws {
    var writer = CaptureWriter(format), file: [UInt8] = []
    writer.begin(&file)
    let packet = Formats.packets[0].octets,
      times: [Int64] = [-62_000_000_000_000_000, -1_000, 0, 5_000, -3_000_000_000]
    for time in times.map({ max($0, -9_000_000_000_000_000_000) }) {
      writer.append(
        CaptureRecord(number: 1, time: time, direction: .fromHost, octets: Octets(0, packet.count)), packet.span,
        to: &file)
    }
    #expect(try read(file).seen.records.map(\.time) == times)
  }
  /// A packet that a recorder cut stays one, with its original length.
  @Test(arguments: CaptureWriter.Format.allCases) func cutPackets(_ format: CaptureWriter.Format) throws {
    var writer = CaptureWriter(format), file: [UInt8] = []
    writer.begin(&file)
    let packet = Array(Formats.packets[2].octets.prefix(8))
    let record = CaptureRecord(number: 1, direction: .fromHost, originalCount: 12, octets: Octets(0, packet.count))
    writer.append(record, packet.span, to: &file)
    let (seen, _, error) = try read(file)
    #expect(error == nil && seen.cut == 1 && seen.records.map(\.octets) == [packet])
  }
  @Test func whatAFormatCannotHold() {
    var writer = CaptureWriter(.btsnoop), file: [UInt8] = []
    let note: [UInt8] = [1, 2]
    let record = CaptureRecord(number: 1, content: .monitor(.systemNote), octets: Octets(0, 2))
    let kept = writer.append(record, note.span, to: &file)
    #expect(!kept && writer.omitted == 1 && file.isEmpty)
  }
}
