import BindruneCapture
import BindruneReport
import BindruneToolbox
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import Testing

/// PDUs shorter and longer than their fields, in frames and packets whose own lengths are right: `check`, `show`,
/// `report` with its replay, `scrub` and `explain` read each of them.
@Suite("Lengths of PDUs") struct LengthTests {
  /// A trace in memory.
  private struct Packets {
    var list: [(direction: HCIDirection, octets: [UInt8])] = []
    init() {}
    /// A connection, so that frames belong to one whose every packet is here; the host is its Central.
    init(isCentral: Bool) {
      list.append((.fromHost, [1, 3, 0x0C, 0]))
      list.append((.fromController, [4, 0x0E, 4, 1, 3, 0x0C, 0]))
      list.append(
        (
          .fromController,
          [4, 0x3E, 19, 1, 0, 0x40, 0, isCentral ? 0 : 1, 1, 1, 0, 0, 0, 0xDE, 0xC0, 24, 0, 0, 0, 0xF4, 1, 0]
        ))
    }
    mutating func frame(_ channel: UInt8, _ pdu: [UInt8], fromHost: Bool, handle: UInt8 = 0x40) {
      let total = pdu.count + 4
      list.append(
        (
          fromHost ? .fromHost : .fromController,
          [
            2, handle, fromHost ? 0 : 0x20, UInt8(total & 0xFF), UInt8(total >> 8), UInt8(pdu.count & 0xFF),
            UInt8(pdu.count >> 8), channel, 0,
          ] + pdu
        ))
    }
    /// Returns what the checker found.
    @discardableResult func read() -> [CheckFinding] {
      var trace = CapturedTrace(), collector = ReportCollector(), checker = DissectingSink(Checker())
      for (index, packet) in list.enumerated() {
        let record = CaptureRecord(
          number: index + 1, time: 1_700_000_000_000_000_000 + Int64(index) * 1_000_000, direction: packet.direction,
          octets: Octets(0, packet.octets.count))
        trace.receive(record, packet.octets.span)
        collector.receive(record, packet.octets.span)
        checker.receive(record, packet.octets.span)
      }
      checker.pause()
      collector.pause()
      #expect(collector.page(title: "lengths").count > 10_000)
      var scrubber = TraceScrubber(seed: 7)
      scrubber.scrubsValues = true
      let (shared, report) = scrubber.scrub(trace)
      let proof = ScrubProof(trace, shared, report)
      #expect(proof.changedRecords.isEmpty)
      // A list repeats its packets, and to explain one takes longer than all else.
      let frames = list.map(\.octets).filter { $0.first == 2 && $0.count > 9 }
      for octets in Set(frames + frames.map { Array($0[9...]) }) { _ = Explanation(of: octets).lines() }
      // The connection has no command that opens it.
      return checker.sink.findings.filter { $0.number > 3 }
    }
  }

  /// The case of a report: L2CAP_CREDIT_BASED_CONNECTION_REQ for one channel and one octet behind it. Vol 3, Part A,
  /// §4: on LE a frame has exactly one command, and Length is that of its data alone.
  @Test func anOctetBehindTheChannels() {
    var packets = Packets(isCentral: true)
    packets.frame(5, [0x17, 1, 10, 0, 0x80, 0, 64, 0, 64, 0, 1, 0, 0x40, 0, 0x55], fromHost: true)
    let findings = packets.read()
    #expect(findings.map { "\($0.number) \($0.rule.id)" } == ["4 l2cap.signal-single"], "\(findings)")
  }
  /// Octets behind a request and a response open no channel: data on 0x0055 is on none.
  @Test func octetsBehindAResponseAreNoChannel() {
    var packets = Packets(isCentral: true)
    packets.frame(5, [0x17, 1, 10, 0, 0x80, 0, 64, 0, 64, 0, 1, 0, 0x40, 0, 0x41, 0], fromHost: true)
    packets.frame(5, [0x18, 1, 10, 0, 64, 0, 64, 0, 9, 0, 0, 0, 0x50, 0, 0x55, 0], fromHost: false)
    packets.frame(0x50, [1, 0, 7], fromHost: true)
    packets.frame(0x55, [1, 0, 7], fromHost: true)
    let findings = packets.read()
    #expect(
      findings.map { "\($0.number) \($0.rule.id)" } == [
        "4 l2cap.signal-single", "5 l2cap.signal-single", "7 l2cap.channel-open",
      ],
      "\(findings)")
  }

  private static let fills: [@Sendable (Int) -> UInt8] = [
    { UInt8(truncatingIfNeeded: $0) }, { $0 % 2 == 0 ? 0x40 : 0 },
  ]

  /// Every signaling code, stated length and number of octets behind it; a response after its request.
  @Test(arguments: 0...0x1C) func signaling(_ code: Int) {
    for fill in Self.fills {
      var packets = Packets(isCentral: code % 2 == 0), identifier: UInt8 = 0
      for stated in 0...20 {
        for actual in Set([0, max(0, stated - 1), stated, stated + 1, stated + 2]).sorted() {
          identifier = identifier == 255 ? 1 : identifier + 1
          for isFromHost in [true, false] {
            if code > 0 {
              let request = [UInt8(code - 1), identifier, 18, 0] + (0..<19).map(fill)
              packets.frame(5, request, fromHost: !isFromHost)
            }
            packets.frame(
              5, [UInt8(code), identifier, UInt8(stated), 0] + (0..<actual).map(fill), fromHost: isFromHost)
          }
        }
      }
      for length in 0..<4 { packets.frame(5, Array([UInt8(code), 1, 0, 0].prefix(length)), fromHost: true) }
      packets.read()
    }
  }
  /// Every ATT opcode with up to 22 octets behind it; a response after its request.
  @Test(arguments: Array(0...0x24) + [0x52, 0xD2, 0xFF]) func attribute(_ opcode: Int) {
    for fill in Self.fills {
      var packets = Packets(isCentral: true)
      for kind: UInt8 in [1, 2, 7] {
        for length in 0...22 {
          for isFromHost in [true, false] {
            if opcode > 0, opcode < 0x52 {
              // A request for declarations: lists of them are read further.
              let request: [UInt8] =
                length % 2 == 0 ? [1, 0, 0xFF, 0xFF, 3, 0x28] : [1, 0, 0xFF, 0xFF, 0, 0x28]
              packets.frame(4, [UInt8(opcode - 1)] + request, fromHost: !isFromHost)
            }
            var pdu = [UInt8(opcode)] + (0..<length).map(fill)
            if length > 0 { pdu[1] = kind }
            packets.frame(4, pdu, fromHost: isFromHost)
          }
        }
      }
      packets.read()
    }
  }
  /// Every code of the Security Manager with up to 65 octets, within a pairing.
  @Test(arguments: 0...0x10) func security(_ code: Int) {
    for isCentral in [true, false] {
      var packets = Packets(isCentral: isCentral)
      for length in Set(0...18).union([31, 32, 33, 63, 64, 65]).sorted() {
        packets.frame(6, [1, 3, 0, 0x0D, 16, 7, 7], fromHost: isCentral)
        packets.frame(6, [2, 3, 0, 0x0D, 16, 7, 7], fromHost: !isCentral)
        packets.frame(6, [UInt8(code)] + (0..<length).map(Self.fills[0]), fromHost: length % 2 == 0)
      }
      packets.read()
    }
  }

  private static let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().appending(path: "Fixtures/Traces")
  private static let names = ((try? FileManager.default.contentsOfDirectory(atPath: folder.path)) ?? [])
    .filter { $0.hasSuffix(".btsnoop") }.sorted()

  /// The project's traces: a packet of each kind is preceded by itself cut at each octet, and followed by itself with
  /// an octet more; the lengths of the packet and the frame are those that it has then.
  @Test(arguments: names) func recorded(_ name: String) throws {
    var file = [UInt8](try Data(contentsOf: Self.folder.appending(path: name))), parser = CaptureParser(), at = 0
    var packets = Packets(), kinds: Set<[UInt8]> = []
    while true {
      var span = file.mutableSpan
      guard case .record(let record) = try parser.next(&span, at: &at, isLast: true) else { break }
      guard case .packet = record.content, let direction = record.direction else { continue }
      let packet = Array(file[record.octets.range])
      packets.list.append((direction, packet))
      guard packet.count > 3, packet.count < 80, packets.list.count < 1_200 else { continue }
      let kind =
        [direction == .fromHost ? 1 : 0]
        + (packet[0] == 2 ? Array(packet.dropFirst(7).prefix(3)) : Array(packet.prefix(4)))
      guard kinds.insert(kind).inserted else { continue }
      for (length, cut) in Self.cuts(packet) where length != packet.count { packets.list.append((direction, cut)) }
      packets.list.append((direction, packet))
    }
    #expect(kinds.count > 3)
    packets.read()
  }
  /// The packet with every number of octets behind its headers, which state that number.
  private static func cuts(_ packet: [UInt8]) -> [(Int, [UInt8])] {
    switch packet[0] {
    case 1 where Int(packet[3]) == packet.count - 4, 4 where Int(packet[2]) == packet.count - 3:
      let header = packet[0] == 1 ? 4 : 3
      return (header...packet.count + 1).filter { $0 - header < 256 }.map { length in
        var cut = Array((packet + [0x55]).prefix(length))
        cut[header - 1] = UInt8(length - header)
        return (length, cut)
      }
    case 2 where packet.count >= 9 && Int(packet[5]) | Int(packet[6]) << 8 == packet.count - 9:
      return (9...packet.count + 1).map { length in
        var cut = Array((packet + [0x55]).prefix(length))
        for (place, value) in [(3, length - 5), (5, length - 9)] {
          cut[place] = UInt8(value & 0xFF)
          cut[place + 1] = UInt8(value >> 8)
        }
        return (length, cut)
      }
    default: return []
    }
  }
}
