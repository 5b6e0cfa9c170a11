import BindruneCapture
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

/// What is counted and timed of a trace's connections.
@Suite struct StatisticsTests {
  private func statistics(_ packets: Packets, times: [Int: Int64] = [:]) -> TraceStatistics {
    var sink = DissectingSink(TraceStatistics())
    for (record, octets) in packets.records {
      var record = record
      if let time = times[record.number] { record.time = time }
      sink.receive(record, octets.span)
    }
    sink.pause()
    return sink.sink
  }

  @Test func session() throws {
    let found = statistics(Packets.session)
    #expect(found.records == 13 && found.events == 2 && found.data == 11 && found.connections.count == 1)
    let link = try #require(found.connections.first)
    #expect(link.connection == 0x40 && link.role == .central && link.peer?.text == "70:F2:8F:31:A2:FA")
    #expect(link.ending == HCIStatus(rawValue: 0x13) && (link.firstRecord, link.lastRecord) == (1, 13))
    // 7 + 7 + 5 + 5 octets of requests and 7 of pairing; 8 + 9 + 6 + 1 of responses, 5 of a notification, 12 of
    // signaling.
    #expect((link.frames.fromHost.count, link.frames.fromHost.octets) == (5, 31))
    #expect((link.frames.toHost.count, link.frames.toHost.octets) == (6, 41))
    let kinds = link.sortedKinds.map {
      "\($0.kind.direction == .fromHost ? ">" : "<") \($0.kind.name) \($0.amount.count)"
    }
    #expect(
      kinds == [
        "> ATT_FIND_INFORMATION_REQ 1", "< ATT_FIND_INFORMATION_RSP 1", "> ATT_READ_BY_TYPE_REQ 1",
        "< ATT_READ_BY_TYPE_RSP 1", "> ATT_READ_BY_GROUP_TYPE_REQ 1", "< ATT_READ_BY_GROUP_TYPE_RSP 1",
        "> ATT_WRITE_REQ 1", "< ATT_WRITE_RSP 1", "< ATT_HANDLE_VALUE_NTF 1", "> Pairing Request (0x01) 1",
        "< L2CAP_CONNECTION_PARAMETER_UPDATE_REQ 1",
      ])
    // Each record is a millisecond after the one before.
    let times = try #require(link.roundTrips[.init(isIndication: false, asker: .fromHost)])
    #expect(times.count == 4 && times.shortest == .milliseconds(1) && times.longest == .milliseconds(1))
    #expect(link.hints.unanswered == 0 && link.roundTrips.count == 1)
    #expect(
      link.changes.map(\.value) == [
        .parameters(interval: .milliseconds(30), latency: 0, timeout: .seconds(2))
      ])
  }

  /// The MTU is the smaller of both, and at least 23: Vol 3, Part F, §3.4.2.2.
  @Test(arguments: [(517, 185, 185), (100, 517, 100), (517, 20, 23)]) func mtu(_ client: Int, _ server: Int, _ mtu: Int)
  {
    var packets = Packets()
    packets.frame(.fromHost, [0x02, UInt8(client & 0xFF), UInt8(client >> 8)])
    packets.frame(.fromController, [0x03, UInt8(server & 0xFF), UInt8(server >> 8)])
    let link = statistics(packets).connections[0]
    #expect(link.attMTU == mtu && link.changes.map(\.value) == [.mtu(mtu)] && link.role == nil)
  }

  /// A handle that is used again is another connection; a question without an answer is one.
  @Test func handlesUsedAgain() {
    var packets = Packets.session
    packets.add(.fromController, "04 3E 13 01 00 40 00 01 01 FA A2 31 8F F2 70 18 00 00 00 C8 00 00")
    packets.frame(.fromHost, octets("0A 03 00"))
    let found = statistics(packets).connections
    #expect(found.count == 2 && found[1].role == .peripheral && found[1].frames.fromHost.count == 1)
    #expect(found[1].hints.unanswered == 1 && found[1].ending == nil && found[0].hints.unanswered == 0)
  }

  private static func linked() -> Packets {
    var packets = Packets()
    packets.add(.fromController, "04 3E 13 01 00 40 00 00 01 FA A2 31 8F F2 70 18 00 00 00 C8 00 00")
    return packets
  }
  /// Vol 3, Part A, §4.22 … §4.24, §4.6: a channel with its SDUs, K-frames and credits. Each record is 1 ms after the
  /// one before.
  @Test func channels() throws {
    var packets = Self.linked()
    // SPSM 0x0080, CID 0x0040, MTU 64, MPS 23, 2 credits; CID 0x0041, MTU 30, MPS 25, 1 credit.
    packets.frame(.fromHost, channel: 5, octets("14 01 0A 00 80 00 40 00 40 00 17 00 02 00"))
    packets.frame(.fromController, channel: 5, octets("15 01 0A 00 41 00 1E 00 19 00 01 00 00 00"))
    packets.frame(.fromHost, channel: 0x41, octets("03 00 0A 0B 0C"))
    packets.frame(.fromController, channel: 5, octets("16 05 04 00 41 00 03 00"))
    packets.frame(.fromController, channel: 0x40, octets("1E 00") + [UInt8](repeating: 1, count: 21))
    packets.frame(.fromController, channel: 0x40, [UInt8](repeating: 1, count: 9))
    packets.frame(.fromHost, channel: 5, octets("16 02 04 00 40 00 05 00"))
    packets.frame(.fromHost, channel: 5, octets("06 03 04 00 41 00 40 00"))
    packets.frame(.fromController, channel: 5, octets("07 03 04 00 41 00 40 00"))
    // The channel has ended: this belongs to none.
    packets.frame(.fromHost, channel: 0x41, octets("03 00 0A 0B 0C"))
    let link = statistics(packets).connections[0], channel = try #require(link.channels.first)
    #expect(link.channels.count == 1 && channel.spsm == 0x80 && !channel.isEnhanced && channel.asker == .fromHost)
    #expect((channel.host, channel.peer) == (0x40, 0x41) && channel.isClosed)
    #expect((channel.openedRecord, channel.lastRecord) == (3, 10) && channel.duration == .milliseconds(7))
    let sent = channel.sent, received = channel.received
    #expect((sent.mtu, sent.mps) == (30, 25) && (received.mtu, received.mps) == (64, 23))
    #expect((sent.sdus, sent.frames, sent.octets) == (1, 1, 3) && (sent.credits, sent.creditPackets) == (3, 1))
    #expect(sent.waits == 1 && sent.waited == .milliseconds(1) && sent.longestWait == .milliseconds(1))
    #expect((received.sdus, received.frames, received.octets) == (1, 2, 30))
    #expect((received.credits, received.creditPackets, received.waits) == (5, 1, 1))
  }
  /// Vol 3, Part A, §4.25 … §4.28: asked for by the peer, answered twice, refused in part, reconfigured by the peer.
  @Test func enhancedChannels() throws {
    var packets = Self.linked()
    packets.frame(.fromController, channel: 5, octets("17 07 0C 00 27 00 40 00 41 00 05 00 50 00 51 00"))
    packets.frame(.fromHost, channel: 5, octets("18 07 0C 00 00 00 00 00 00 00 0D 00 00 00 00 00"))
    packets.frame(.fromHost, channel: 5, octets("18 07 0C 00 60 00 61 00 06 00 04 00 40 00 00 00"))
    packets.frame(.fromController, channel: 5, octets("19 08 06 00 80 00 70 00 50 00"))
    packets.frame(.fromHost, channel: 5, octets("1A 08 02 00 00 00"))
    let link = statistics(packets).connections[0], channel = try #require(link.channels.first)
    #expect(link.channels.count == 1 && channel.isEnhanced && channel.asker == .fromController && !channel.isClosed)
    #expect((channel.spsm, channel.host, channel.peer) == (0x27, 0x40, 0x50))
    // What the host sends is received by the peer, by the peer's terms.
    #expect((channel.sent.mtu, channel.sent.mps, channel.sent.credits) == (0x80, 0x70, 5))
    #expect((channel.received.mtu, channel.received.mps, channel.received.credits) == (0x60, 0x61, 6))
  }
  /// More channels than are counted; requests without an answer, answers without a request.
  @Test func manyChannels() {
    var packets = Self.linked()
    for number in 0..<200 {
      let id = UInt8(number % 255 + 1), cid = UInt8(0x40 + number % 0x30)
      packets.frame(
        .fromHost, channel: 5, [0x14, id] + octets("0A 00 80 00") + [cid, 0] + octets("40 00 17 00 02 00"))
      if number % 10 == 9 { continue }
      packets.frame(.fromController, channel: 5, [0x15, id] + octets("0A 00 41 00 1E 00 19 00 01 00 00 00"))
      packets.frame(.fromController, channel: 5, [0x15, id] + octets("0A 00 41 00 1E 00 19 00 01 00 00 00"))
    }
    let link = statistics(packets).connections[0]
    #expect(link.channels.count == 128 && link.uncountedChannels == 180 - 128)
  }

  /// The controller reports the third packet 130 ms after the second: the interval is 30 ms.
  @Test func completions() {
    var packets = Packets()
    packets.add(.fromController, "04 3E 13 01 00 40 00 00 01 FA A2 31 8F F2 70 18 00 00 00 C8 00 00")
    for _ in 0..<3 { packets.frame(.fromHost, octets("52 03 00 01")) }
    packets.add(.fromController, "04 13 05 01 40 00 02 00")
    packets.add(.fromController, "04 13 05 01 40 00 01 00")
    // More than was sent: a controller's mistake must not count.
    packets.add(.fromController, "04 13 05 01 40 00 FF FF")
    let base: Int64 = 1_700_000_000_000_000_000
    let times = [1: 0, 2: 1, 3: 2, 4: 3, 5: 20, 6: 150, 7: 151].mapValues { base + Int64($0) * 1_000_000 }
    let hints = statistics(packets, times: times).connections[0].hints
    #expect(hints.completion.count == 2 && hints.late == 1)
    #expect(hints.completion.shortest == .milliseconds(19) && hints.completion.longest == .milliseconds(130))
  }

  /// On the air a repeated sequence number is a retransmission: Vol 6, Part B, §4.5.9.
  @Test func retransmissions() {
    var sink = DissectingSink(TraceStatistics())
    // Central 0, 1, 1, 0; Peripheral 0, 0: bit 3 of the header.
    for (number, (side, header)) in [
      (LinkLayerDirection.central, UInt8(0x01)), (.peripheral, 0x01), (.central, 0x09), (.central, 0x09),
      (.peripheral, 0x01), (.central, 0x01),
    ].enumerated() {
      let octets: [UInt8] = [0x78, 0x56, 0x34, 0x12, header, 0, 1, 2, 3]
      let record = CaptureRecord(
        number: number + 1, time: Int64(number), content: .linkLayer(LinkLayerReception(side)),
        octets: Octets(0, octets.count))
      sink.receive(record, octets.span)
    }
    let link = sink.sink.connections[0]
    #expect(link.connection == 0x1234_5678 && link.hints.repeated.fromHost == 1 && link.hints.repeated.toHost == 1)
  }

  /// Bins double when the time needs it, and keep the sum.
  @Test func series() {
    var series = TraceSeries()
    for second in 0..<1000 { series.add(3, at: Int64(second) * 1_000_000_000) }
    #expect(series.bins.count <= TraceSeries.mostBins && series.bins.reduce(0, +) == 3000 && series.width > 10_000_000)
    series.add(1, at: .max)
    series.add(1, at: -5)
    #expect(series.bins.count <= TraceSeries.mostBins && series.bins.reduce(0, +) == 3002)
  }

  /// 500 connections; then more than are counted, on clocks that jump by centuries.
  @Test func many() {
    var packets = Packets()
    for handle in 0..<500 {
      packets.frame(.fromHost, handle: UInt16(handle), octets("0A 03 00"))
      packets.frame(.fromController, handle: UInt16(handle), octets("0B 01"))
    }
    let found = statistics(packets)
    #expect(found.connections.count == 500 && found.connections.allSatisfy { $0.hints.unanswered == 0 })
    var more = Packets()
    for handle in 0..<2000 { more.frame(.fromHost, handle: UInt16(handle), octets("0A 03 00")) }
    let wild = Dictionary(uniqueKeysWithValues: (1...2000).map { ($0, $0.isMultiple(of: 2) ? Int64.min : .max) })
    let bounded = statistics(more, times: wild)
    #expect(bounded.connections.count == TraceStatistics.mostConnections)
    #expect(bounded.uncounted == 2000 - TraceStatistics.mostConnections)
  }
  @Test func nothing() { #expect(statistics(Packets()).connections.isEmpty) }

  // MARK: tshark

  /// tshark's counts of ATT PDUs by handle, direction and opcode, in HCI traces.
  private static let tshark = ["/usr/bin/tshark", "/usr/local/bin/tshark"].first {
    FileManager.default.isExecutableFile(atPath: $0)
  }
  private static let traces =
    OwnTraces.names.filter { $0.hasPrefix("bumble") || $0.hasPrefix("facade") }.map(OwnTraces.path)
    + PublicTraces.names.filter { $0.hasSuffix(".log") }.map(PublicTraces.path)
  @Test(.enabled(if: tshark != nil, "tshark is not installed"), arguments: traces)
  func anotherToolCountsTheSame(_ path: String) throws {
    let process = Process(), pipe = Pipe()
    process.executableURL = URL(filePath: try #require(Self.tshark))
    process.arguments = [
      "-r", path, "-Y", "btatt", "-T", "fields", "-e", "bthci_acl.chandle", "-e", "hci_h4.direction", "-e",
      "btatt.opcode",
    ]
    process.standardOutput = pipe
    process.standardError = FileHandle.nullDevice
    try process.run()
    let output = String(decoding: pipe.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
    process.waitUntilExit()
    #expect(process.terminationStatus == 0)
    var expected: [String: Int] = [:]
    for row in output.split(separator: "\n") {
      let columns = row.split(separator: "\t", omittingEmptySubsequences: false)
      // The debug handles of a vendor's controller, which tshark takes for connections: see ../shared/traces.
      guard columns.count == 3, !["0x0edc", "0x0ff1"].contains(columns[0]) else { continue }
      expected["\(columns[0]) \(columns[1] == "0x00" ? "S" : "R") \(columns[2])", default: 0] += 1
    }
    var file = try TraceFile(path: path), sink = DissectingSink(TraceStatistics())
    try file.read(into: &sink)
    var counted: [String: Int] = [:]
    for link in sink.sink.connections where ![0x0EDC, 0x0FF1].contains(link.connection) {
      for (kind, amount) in link.kinds where kind.layer == .att {
        let handle = hexDigits(UInt64(link.connection), 4).lowercased()
        let opcode = hexDigits(UInt64(kind.number), 2).lowercased()
        counted["0x\(handle) \(kind.direction == .fromHost ? "S" : "R") 0x\(opcode)", default: 0] += amount.count
      }
    }
    #expect(counted == expected)
  }
}
