import BindruneCapture
import BindruneHCI
import BindruneWire
import TestSupport
import Testing

@testable import BindruneTrace

/// Captures from the air: link types 251, 256 and 272 (https://www.tcpdump.org/linktypes.html). tshark 4.0.17 finds the
/// same packets, LL_START_ENC_REQ and unfragmented PDUs in these files; it does not join fragments there.
@Suite struct LinkLayerTests {
  private static let access: [UInt8] = [0x27, 0x4A, 0x65, 0x50]
  /// A data PDU: LLID, sequence number, payload. Vol 6, Part B, §2.4.
  private static func data(_ llid: UInt8, _ payload: [UInt8], sequence: UInt8 = 0) -> [UInt8] {
    access + [llid | sequence << 3, UInt8(payload.count)] + payload + [0, 0, 0]
  }
  private static func frame(_ channel: UInt8, _ payload: [UInt8]) -> [UInt8] {
    [UInt8(payload.count), 0, channel, 0] + payload
  }
  /// A Central's read request, its Peripheral's response in two fragments of which the first is repeated, a Pairing
  /// Request, LL_START_ENC_REQ, and two data PDUs that are encrypted from there on.
  static let packets: [(isCentral: Bool, octets: [UInt8])] = {
    let response = frame(4, [0x0B] + Array(repeating: 0x41, count: 22)), sealed: [UInt8] = Array(1...16)
    return [
      (true, data(2, frame(4, [0x0A, 0x03, 0x00]))),
      (false, data(2, Array(response.prefix(20)))), (false, data(2, Array(response.prefix(20)))),
      (false, data(1, Array(response.dropFirst(20)), sequence: 1)),
      (true, data(2, frame(6, [0x01, 0x03, 0x00, 0x01, 0x10, 0x07, 0x07]), sequence: 1)),
      (false, data(3, [0x05])), (true, data(2, sealed)), (false, data(1, sealed)), (true, data(1, [])),
    ]
  }()
  static func file(_ type: Int) -> [UInt8] {
    var file = Formats.little32(0xA1B2_C3D4) + [2, 0, 4, 0] + Formats.little32(0) + Formats.little32(0)
    file += Formats.little32(65_535) + Formats.little32(type)
    for (index, packet) in packets.enumerated() {
      let direction: UInt8 = packet.isCentral ? 1 : 0
      let head: [UInt8] =
        switch type {
        // RF channel, signal, noise, offenses, reference access address; flags: dewhitened, and the type of PDU.
        case 256: [12, 0xC4, 0, 0] + access + (packet.isCentral ? [0x01, 0x01] : [0x81, 0x01])
        // Board; length, version 3, counter, packet type; length of the header, flags: CRC and direction, channel,
        // signal, event counter, time.
        case 272:
          [9] + [UInt8(packet.octets.count + 10), 0, 3, UInt8(index), 0, 6]
            + [10, 0x01 | direction << 1, 12, 60, 0, 0, 0, 0, 0, 0]
        default: []
        }
      let record = head + packet.octets
      file += Formats.little32(Int(Formats.seconds)) + Formats.little32(index)
      file += Formats.little32(record.count) + Formats.little32(record.count) + record
    }
    return file
  }
  static let rows = [
    "1\t-\t0x50654a27\tatt\t0x0a\t0x0003\t\t0a0300",
    "4\t-\t0x50654a27\tatt\t0x0b\t0x0003\t" + String(repeating: "41", count: 22) + "\t0b"
      + String(repeating: "41", count: 22),
    "5\t-\t0x50654a27\tsmp\t0x01\t\t030001100707\t01030001100707",
  ]

  @Test(arguments: [251, 256, 272]) func pdusInTheClear(_ type: Int) throws {
    let file = try ScratchFile(Self.file(type))
    var trace = try TraceFile(path: file.path), fields = DissectingSink(TraceFields())
    try trace.read(into: &fields)
    let found = String(decoding: fields.sink.output, as: UTF8.self).split(separator: "\n").map(String.init)
    #expect(found == Self.rows)
    // Two data PDUs with octets; an empty one has nothing to encrypt.
    #expect(fields.dissector.encryptedCount == 2)
  }

  // MARK: What the sniffer says

  /// The lines of packets with a header of link type 256: channel and RSSI, then the flags.
  private static func lines(_ packets: [(flags: Int, octets: [UInt8])]) throws -> (
    lines: [TraceLine], monitor: AirMonitor
  ) {
    var file = Formats.little32(0xA1B2_C3D4) + [2, 0, 4, 0] + Formats.little32(0) + Formats.little32(0)
    file += Formats.little32(65_535) + Formats.little32(256)
    for packet in packets {
      let head: [UInt8] = [12, 0xC4, 0, 0, 0, 0, 0, 0, UInt8(packet.flags & 0xFF), UInt8(packet.flags >> 8)]
      let record = head + packet.octets
      file += Formats.little32(0) + Formats.little32(0) + Formats.little32(record.count)
      file += Formats.little32(record.count) + record
    }
    let scratch = try ScratchFile(file)
    var trace = try TraceFile(path: scratch.path), lines = DissectingSink(TraceLines(KeptLines()))
    try trace.read(into: &lines)
    var again = try TraceFile(path: scratch.path), monitor = DissectingSink(AirMonitor())
    try again.read(into: &monitor)
    return (lines.sink.output.lines, monitor.sink)
  }
  private struct KeptLines: TraceLineSink {
    var lines: [TraceLine] = []
    mutating func receive(_ line: TraceLine) { lines.append(line) }
    mutating func flush() {}
  }
  /// Dewhitened, signal valid, CRC checked and right; of data from the Central and from the Peripheral.
  private static let right = 0x0C03, central = 0x0C03 | 2 << 7, peripheral = 0x0C03 | 3 << 7
  private static let decrypted = 0x0008, micRight = 0x3000, micWrong = 0x1000
  private static func advertising(_ type: UInt8, _ payload: [UInt8]) -> [UInt8] {
    [0xD6, 0xBE, 0x89, 0x8E, type, UInt8(payload.count)] + payload + [0, 0, 0]
  }
  private static let address: [UInt8] = [0xF5, 0xF4, 0xF3, 0xF2, 0xF1, 0xF0]

  /// RF channel 12 is channel index 38 (Vol 6, Part B, §1.4.1); 0xC4 is −60 dBm.
  @Test func reception() throws {
    let (lines, monitor) = try Self.lines([
      (Self.right, Self.advertising(0x40, Self.address + [0x04, 0x09, 0x42, 0x65, 0x64])),
      // CRC checked and wrong: no device, and the octets are not believed.
      (0x0403, Self.advertising(0x00, [1, 2, 3, 4, 5, 6])),
    ])
    #expect(lines.map(\.name) == ["ADV_IND", "Link-layer packet"])
    #expect(lines[0].fields.contains("RSSI: -60 dBm") && lines[0].fields.contains("Channel: 38"))
    #expect(lines[0].fields.contains("AdvA: F0:F1:F2:F3:F4:F5") && lines[0].meaning == "\"Bed\"")
    #expect(lines[1].problem == "the CRC is wrong")
    #expect(monitor.devices.map(\.name) == ["Bed"] && monitor.devices.first?.rssi == -60)
  }
  /// A wrong CRC changes no connection and ends no frame.
  @Test func wrongCRCOfData() throws {
    let request = Self.data(2, Self.frame(4, [0x0A, 0x03, 0x00]))
    let (lines, monitor) = try Self.lines([
      (Self.central & ~0x0800, request), (Self.central & ~0x0800, Self.data(3, [0x05])),
    ])
    #expect(lines.allSatisfy { $0.layer == .ll } && monitor.links.isEmpty)
    // The start of encryption was not believed either.
    let (after, _) = try Self.lines([(Self.central & ~0x0800, Self.data(3, [0x05])), (Self.central, request)])
    #expect(after.last?.name == "ATT_READ_REQ")
  }
  /// From the start of encryption on: what the sniffer has decrypted, with and without the MIC behind it, what it has
  /// not, and what it says is wrong.
  @Test func decryptedData() throws {
    let request = Self.frame(4, [0x0A, 0x03, 0x00]), start = (Self.central, Self.data(3, [0x05]))
    let sealed: [UInt8] = [0x91, 0x22, 0x73, 0x44, 0x15, 0x66, 0x37, 0x88, 0x09, 0xAA, 0x1B]
    let flag = Self.central | Self.decrypted
    let (lines, _) = try Self.lines([
      start, (flag | Self.micRight, Self.data(2, request)), (flag, Self.data(2, request + [1, 2, 3, 4], sequence: 1)),
      (Self.central, Self.data(2, sealed)), (flag | Self.micWrong, Self.data(2, request, sequence: 1)),
      (flag, Self.data(3, [0x12])),
    ])
    #expect(lines.map(\.layer) == [.ll, .att, .att, .ll, .ll, .ll])
    #expect(lines[1].octets == [0x0A, 0x03, 0x00] && lines[2].octets == lines[1].octets)
    #expect(lines[3].fields.contains("encrypted") && lines[4].problem == "the MIC is wrong")
    #expect(lines[1].direction == .fromHost && lines[5].name == "LL_PING_REQ")
  }
  /// No flag, but lengths that fit; and packets of the same lengths that are encrypted.
  @Test func decryptedWithoutFlag() throws {
    let long = Self.frame(4, [0x1B, 0x03, 0x00] + Array(repeating: 0x41, count: 30))
    let start = (Self.central, Self.data(3, [0x05]))
    let (lines, _) = try Self.lines([
      start, (Self.central, Self.data(2, Self.frame(4, [0x0A, 0x03, 0x00]))),
      (Self.peripheral, Self.data(2, Array(long.prefix(27)))),
      (Self.peripheral, Self.data(1, Array(long.dropFirst(27)), sequence: 1)),
    ])
    #expect(lines.map(\.name) == ["LL_START_ENC_REQ", "ATT_READ_REQ", "LL Data PDU", "ATT_HANDLE_VALUE_NTF"])
    var chance = SplitMix64(seed: 3), found = 0
    for _ in 0..<200 {
      let sealed = (0..<27).map { _ in
        (Self.central, Self.data(2, (0..<11).map { _ in UInt8.random(in: 0...255, using: &chance) }))
      }
      found += try Self.lines([start] + sealed).lines.filter { $0.layer != .ll }.count
    }
    #expect(found == 0)
  }
  /// The coding indicator of LE Coded, an octet behind the access address, and the 2M PHY: bits 14 and 15.
  @Test func modulations() throws {
    let request = Self.data(2, Self.frame(4, [0x0A, 0x03, 0x00]))
    let coded = Array(request.prefix(4)) + [0x01] + request.dropFirst(4)
    let (lines, _) = try Self.lines([(Self.central | 2 << 14, coded), (Self.central | 1 << 14, Self.data(3, [0x12]))])
    #expect(lines.map(\.name) == ["ATT_READ_REQ", "LL_PING_REQ"] && lines[1].fields.contains("LE 2M"))
  }

  // MARK: PDUs

  /// Each control PDU of Table 2.18 has the length that the Specification gives it: Vol 6, Part B, §2.4.2.
  @Test func controlPDUs() throws {
    let lengths = [
      12, 8, 2, 23, 13, 1, 1, 2, 9, 9, 1, 1, 6, 2, 9, 24, 24, 3, 1, 1, 9, 9, 3, 3, 5, 3, 2, 1, 35, 2, 2, 36, 9, 16, 4,
      4,
      5, 5, 11, 11, 4, 11, 43,
    ]
    #expect(LinkLayerControls.all.count == lengths.count)
    for (opcode, length) in lengths.enumerated() {
      let pdu = [UInt8(opcode)] + [UInt8](repeating: 0, count: length - 1)
      let name = try LinkLayerControls.describe(pdu.span, 0..<length)?.name
      #expect(name?.hasPrefix("LL_") == true, "\(opcode)")
      for wrong in [length - 1, length + 4] where wrong > 0 {
        let other = Array((pdu + [0, 0, 0, 0]).prefix(wrong))
        #expect(throws: WireError.self) { _ = try LinkLayerControls.describe(other.span, 0..<wrong) }
      }
    }
    #expect(try LinkLayerControls.describe([0x30].span, 0..<1) == nil)
  }
  @Test func fieldsOfPDUs() throws {
    let (lines, _) = try Self.lines([
      (Self.central, Self.data(3, [0x0C, 0x0D, 0x59, 0x00, 0x34, 0x12])),
      (Self.central, Self.data(3, [0x02, 0x13])), (Self.central, Self.data(3, [0x77, 0x01])),
      (Self.central, Self.data(3, [0x14, 0x1B])),
      (
        Self.right,
        Self.advertising(
          0x85,
          [1, 2, 3, 4, 5, 6] + Self.address + [
            0x27, 0x4A, 0x65, 0x50, 0x11, 0x22, 0x33, 0x02, 0x04, 0x00, 0x18, 0x00, 0x01, 0x00, 0xF4, 0x01, 0xFF, 0xFF,
            0xFF,
            0xFF, 0x1F, 0x25,
          ])
      ),
      // Extended header of ten octets with AdvA and ADI (flags 0x09), AdvMode 0, then data.
      (Self.right, Self.advertising(0x47, [0x09, 0x09] + Self.address + [0x34, 0x52] + [0x02, 0x01, 0x06])),
      (Self.right, Self.advertising(0x07, [0x02, 0x09, 0x00])),
    ])
    #expect(lines[0].name == "LL_VERSION_IND" && lines[0].fields.contains("Subversion: 4660"))
    #expect(lines[1].name == "LL_TERMINATE_IND" && lines[1].fields.contains("0x13"))
    #expect(lines[2].name == "LL Control PDU 0x77" && lines[3].problem != nil)
    #expect(lines[4].name == "CONNECT_IND" && lines[4].fields.contains("Interval: 24 (30 ms)"))
    #expect(lines[4].fields.contains("Latency: 1") && lines[4].fields.contains("Hop: 5"))
    #expect(lines[5].name == "Extended advertising PDU" && lines[5].fields.contains("SID: 5"))
    #expect(lines[5].fields.contains("Advertising DID: 564") && lines[6].problem != nil)
  }
  /// Types of PDU in bits 7 to 9 of the flags: 1 is auxiliary advertising, its kind in bits 12 and 13; 6 is a broadcast
  /// isochronous stream. Neither makes a connection of its access address.
  @Test func packetsOutsideConnections() throws {
    let chain = Array(Self.access) + [0x07, 0x05, 0x01, 0x00, 0x02, 0x01, 0x06, 0, 0, 0]
    let (lines, monitor) = try Self.lines([
      (Self.right | 1 << 7 | 2 << 12, chain), (Self.right | 6 << 7, Self.data(2, Self.frame(4, [0x0A, 0x03, 0x00]))),
      (Self.right | 1 << 7, Self.advertising(0x47, [0x09, 0x09] + Self.address + [0x34, 0x52] + [0x02, 0x01, 0x06])),
      (Self.right | 1 << 7, Self.advertising(0xC3, Self.address + Self.address)),
    ])
    #expect(lines.map(\.name) == ["AUX_SYNC_IND", "Isochronous PDU", "AUX_ADV_IND", "AUX_SCAN_REQ"])
    #expect(monitor.links.isEmpty && monitor.devices.count == 1)
  }
  /// Seeded packets of any kind: a line for each, never a trap.
  @Test func anyOctets() throws {
    var samples = Self.packets.map(\.octets)
    samples.append(Self.advertising(0x47, [0x1B, 0x7F] + (0..<40).map { UInt8($0) }))
    samples += LinkLayerControls.all.map { Self.data(3, [$0.opcode] + Array(repeating: 1, count: 40)) }
    var sink = DissectingSink(TraceLines(KeptLines())), count = 0
    for octets in Fuzz(samples, longest: 300) where !octets.isEmpty {
      count += 1
      sink.receive(
        CaptureRecord(number: count, content: .linkLayer(.central), octets: Octets(0, octets.count)), octets.span)
    }
    sink.pause()
    #expect(sink.sink.output.lines.count == count)
  }
}
