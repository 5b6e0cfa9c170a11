import BindruneCapture
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import TestSupport
import Testing

/// ``AirMonitor`` over the project's traces, compared with what tshark counts in them, and over packets made here.
@Suite("Trace: the air") struct AirTests {
  private func monitor(_ name: String) throws -> AirMonitor {
    var file = try TraceFile(path: OwnTraces.path(name)), sink = DissectingSink(AirMonitor())
    try file.read(into: &sink)
    return sink.sink
  }

  /// Every PDU of the channels is counted. `NAME.tsv` is tshark's: frame, direction, connection, layer.
  @Test(arguments: OwnTraces.names) func frames(_ name: String) throws {
    let url = OwnTraces.folder.appending(path: name + ".tsv")
    var expected: [String: Int] = [:]
    for line in try String(contentsOf: url, encoding: .utf8).split(separator: "\n") {
      expected[String(line.split(separator: "\t", omittingEmptySubsequences: false)[3]), default: 0] += 1
    }
    let monitor = try monitor(name)
    // One has no connection.
    #expect(expected.isEmpty == (name == "rootcanal-advertise"))
    for layer in [AirLayer.att, .smp, .signaling] {
      #expect(monitor.total(layer) == expected[layer.rawValue] ?? 0, "\(layer)")
    }
  }

  /// The lines of `tshark -q -z io,phs`: commands, events, ACL packets, L2CAP frames.
  @Test(arguments: [
    ("bumble-central", 815, 23, 260, 532, 494), ("pairing-sc-jw-central", 152, 22, 63, 67, 65),
    ("rootcanal-serve", 190, 24, 78, 88, 86), ("kernel-monitor", 192, 33, 73, 68, 68),
  ]) func packets(_ name: String, records: Int, commands: Int, events: Int, data: Int, frames: Int) throws {
    let monitor = try monitor(name)
    #expect(monitor.total(.command) == commands)
    #expect(monitor.total(.event) == events)
    #expect(monitor.total(.dataSent) + monitor.total(.dataReceived) == data)
    #expect(monitor.total(.l2cap) == frames)
    #expect(name == "kernel-monitor" || monitor.records == records)
    // Each is in one second.
    for layer in AirLayer.allCases {
      #expect(
        (0...monitor.second).reduce(0) { $0 + monitor.rate(layer).count(at: $1) } == monitor.total(layer), "\(layer)")
    }
  }

  /// The table of `tshark -q -z io,stat,1,"hci_h4.type==1","hci_h4.type==4","hci_h4.type==2","btatt"`.
  @Test func seconds() throws {
    let monitor = try monitor("rootcanal-serve")
    #expect(monitor.second == 5)
    func counts(_ layers: AirLayer...) -> [Int] {
      (0...5).map { second in layers.reduce(0) { $0 + monitor.rate($1).count(at: second) } }
    }
    #expect(counts(.command) == [22, 2, 0, 0, 0, 0])
    #expect(counts(.event) == [24, 31, 13, 5, 1, 4])
    #expect(counts(.dataSent, .dataReceived) == [0, 54, 22, 6, 1, 5])
    #expect(counts(.att) == [0, 52, 22, 6, 1, 5])
  }

  /// The parameters that tshark shows in the events and the exchange of the MTU.
  @Test func links() throws {
    let central = try monitor("pairing-sc-jw-central")
    #expect(central.links.count == 2)
    let first = try #require(central.links.first)
    #expect(first.connection == 1 && first.role == .central && first.peer?.text == "F0:F1:F2:F3:F4:F5")
    #expect(first.interval == ConnectionInterval(rawValue: 24) && first.latency == 0)
    #expect(first.supervisionTimeout == SupervisionTimeout(rawValue: 500) && first.mtu == 517)
    #expect(first.isEncrypted == true && first.reason?.rawValue == 0x13 && first.ended != nil)
    #expect(central.links.map { $0.sent + $0.received }.reduce(0, +) == 67)
    #expect(central.adapters.first?.buffers == 64 && central.adapters.first?.used == 0)
    #expect(central.devices.first { $0.name == "InteropPeer" }?.rssi == -50)

    let serving = try monitor("rootcanal-serve")
    #expect(serving.links.map(\.connection).sorted() == [0x0200, 0x0201])
    #expect(serving.links.allSatisfy { $0.role == .peripheral && $0.mtu == 247 && $0.reason?.rawValue == 0x13 })
    #expect(serving.adapters.first?.buffers == 20)
  }

  // MARK: Packets made here

  /// Feeds packets, at these milliseconds; H4 packet type octet first; `host` is from the host.
  private static func feed(
    _ sink: inout DissectingSink<AirMonitor>, _ packets: [(at: Int64, host: Bool, octets: [UInt8])]
  ) {
    for packet in packets {
      let record = CaptureRecord(
        number: 1, time: 1_000_000_000_000 + packet.at * 1_000_000,
        direction: packet.host ? .fromHost : .fromController,
        octets: Octets(0, packet.octets.count))
      sink.receive(record, packet.octets.span)
    }
  }
  private static let connection: [UInt8] =
    [0x04, 0x3E, 0x13, 0x01, 0x00, 0x40, 0x00, 0x00, 0x01, 0xF5, 0xF4, 0xF3, 0xF2, 0xF1, 0xF0, 0x18, 0x00, 0x00, 0x00]
    + [0xF4, 0x01, 0x00]
  /// An ATT PDU in one packet of connection 0x0040.
  private static func att(_ pdu: [UInt8], fromHost: Bool) -> [UInt8] {
    [0x02, 0x40, fromHost ? 0x00 : 0x20, UInt8(pdu.count + 4), 0x00, UInt8(pdu.count), 0x00, 0x04, 0x00] + pdu
  }

  /// Packets wait in the controller until Number Of Completed Packets, and a link's end discards the rest.
  @Test func buffers() {
    var sink = DissectingSink(AirMonitor())
    let data = Self.att([0x52, 0x03, 0x00, 0x01], fromHost: true)
    Self.feed(
      &sink,
      [
        (0, false, [0x04, 0x0E, 0x07, 0x03, 0x02, 0x20, 0x00, 0xFB, 0x00, 0x08]), (1, false, Self.connection),
        (2, true, data), (3, true, data), (4, true, data),
      ])
    #expect(sink.sink.adapters[0].commandCredits == 3)
    #expect(sink.sink.adapters[0].buffers == 8 && sink.sink.adapters[0].used == 3)
    #expect(sink.sink.links[0].inController == 3)
    Self.feed(&sink, [(5, false, [0x04, 0x13, 0x05, 0x01, 0x40, 0x00, 0x02, 0x00])])
    #expect(sink.sink.adapters[0].used == 1)
    // More than were sent: a controller's mistake does not go below none.
    Self.feed(&sink, [(6, false, [0x04, 0x13, 0x05, 0x01, 0x40, 0x00, 0x09, 0x00]), (7, true, data)])
    #expect(sink.sink.adapters[0].used == 1)
    Self.feed(&sink, [(8, false, [0x04, 0x05, 0x04, 0x00, 0x40, 0x00, 0x08])])
    #expect(sink.sink.adapters[0].used == 0 && sink.sink.links[0].reason?.rawValue == 0x08)
  }

  /// Connection Complete, of BR/EDR: Vol 4, Part E, §7.7.3. One of another length is ignored.
  @Test func classicConnection() {
    var sink = DissectingSink(AirMonitor())
    let complete: [UInt8] = [
      0x04, 0x03, 0x0B, 0x00, 0x40, 0x00, 0xF5, 0xF4, 0xF3, 0xF2, 0xF1, 0xF0, 0x01, 0x00,
    ]
    Self.feed(&sink, [(0, false, [0x04, 0x03, 0x09] + complete[3..<12])])
    #expect(sink.sink.links.isEmpty)
    Self.feed(&sink, [(1, false, complete)])
    let link = sink.sink.links.first
    #expect(link?.connection == 0x0040 && link?.isLE == false)
    #expect(link?.peer == DeviceAddress(0xF0F1_F2F3_F4F5) && link?.peerType == .public)
  }

  /// ADV_IND and CONNECT_IND: Vol 6, Part B, §2.1, §2.3, §2.3.1.1, §2.3.3.1. One of another length is ignored.
  @Test func advertisingPackets() {
    var sink = DissectingSink(AirMonitor())
    let advertiser: [UInt8] = [0xF5, 0xF4, 0xF3, 0xF2, 0xF1, 0xF0], crc: [UInt8] = [0xAA, 0xBB, 0xCC]
    func feed(_ header: UInt8, _ payload: [UInt8]) {
      let octets = [0xD6, 0xBE, 0x89, 0x8E, header, UInt8(payload.count)] + payload + crc
      let record = CaptureRecord(
        number: 1, time: 1_000_000_000_000, direction: nil, content: .linkLayer(.unknown),
        octets: Octets(0, octets.count))
      sink.receive(record, octets.span)
    }
    // TxAdd is bit 6, RxAdd bit 7.
    feed(0x40, advertiser + [0x04, 0x09, 0x42, 0x65, 0x64])
    #expect(sink.sink.devices.map(\.name) == ["Bed"] && sink.sink.devices.first?.type == .random)
    #expect(sink.sink.devices.first?.address == DeviceAddress(0xF0F1_F2F3_F4F5))
    // The address of the initiator, that of the advertiser, the access address, CRCInit, WinSize, WinOffset, the
    // interval of 30 ms, a latency of 1, a timeout of 5 s, the channel map, Hop and SCA.
    let connect: [UInt8] =
      [1, 2, 3, 4, 5, 6] + advertiser + [0x27, 0x4A, 0x65, 0x50, 0x11, 0x22, 0x33, 0x02, 0x04, 0x00]
      + [0x18, 0x00, 0x01, 0x00, 0xF4, 0x01, 0xFF, 0xFF, 0xFF, 0xFF, 0x1F, 0x25]
    feed(0x85, Array(connect.dropLast()))
    #expect(sink.sink.links.isEmpty)
    feed(0x85, connect)
    let link = sink.sink.links.first
    #expect(
      link?.connection == 0x5065_4A27 && link?.peer == DeviceAddress(0xF0F1_F2F3_F4F5) && link?.peerType == .random)
    #expect(link?.interval?.rawValue == 24 && link?.latency == 1 && link?.supervisionTimeout?.rawValue == 500)
  }

  /// A write counts when the server has accepted it; equal values are no change.
  @Test func values() {
    var sink = DissectingSink(AirMonitor(keepsChanges: true))
    func values(_ monitor: AirMonitor) -> [String] {
      monitor.values.map { "\($0.handle) \($0.cause) \($0.octets) \($0.count)" }
    }
    Self.feed(&sink, [(0, false, Self.connection), (1, true, Self.att([0x12, 0x05, 0x00, 0x07], fromHost: true))])
    #expect(values(sink.sink) == [])
    Self.feed(&sink, [(2, false, Self.att([0x01, 0x12, 0x05, 0x00, 0x03], fromHost: false))])
    #expect(values(sink.sink) == [])
    Self.feed(
      &sink,
      [
        (3, true, Self.att([0x12, 0x05, 0x00, 0x08], fromHost: true)),
        (4, false, Self.att([0x13], fromHost: false)),
        (5, true, Self.att([0x0A, 0x03, 0x00], fromHost: true)),
        (6, false, Self.att([0x0B, 0x41, 0x42], fromHost: false)),
        (7, false, Self.att([0x1B, 0x09, 0x00, 0x01], fromHost: false)),
        (8, false, Self.att([0x1B, 0x09, 0x00, 0x01], fromHost: false)),
      ])
    #expect(values(sink.sink) == ["3 read [65, 66] 1", "5 written [8] 1", "9 notified [1] 2"])
    let changes = sink.sink.takeChanges().filter { if case .value = $0.kind { true } else { false } }
    #expect(changes.map(\.time) == [4_000_000, 6_000_000, 7_000_000])
    #expect(sink.sink.takeChanges().isEmpty)
    // The handle has another device behind it now.
    Self.feed(&sink, [(9, false, Self.connection)])
    #expect(values(sink.sink) == [] && sink.sink.links.count == 2 && sink.sink.links[0].ended == 9_000_000)
  }

  /// A clock that is set back stands still, and one that jumps ahead costs nothing.
  @Test func clocks() {
    var sink = DissectingSink(AirMonitor()), reset: [UInt8] = [0x01, 0x03, 0x0C, 0x00]
    Self.feed(&sink, [(2_000, true, reset), (0, true, reset), (2_500, true, reset)])
    #expect(sink.sink.now == 500_000_000 && sink.sink.rate(.command).count(at: 0) == 3)
    reset[3] = 0
    Self.feed(&sink, [(4_000_000_000_000, true, reset)])
    #expect(sink.sink.second == 3_999_999_998 && sink.sink.rate(.command).count(at: 3_999_999_998) == 1)
    let ends = CaptureRecord(number: 1, time: .min, direction: .fromHost, octets: Octets(0, reset.count))
    sink.receive(ends, reset.span)
    #expect(sink.sink.second == 3_999_999_998)
  }

  /// Any octets: nothing traps, and memory stays within its bounds.
  @Test func anyOctets() {
    var generator = SplitMix64(seed: 7)
    var sink = DissectingSink(AirMonitor(keepsChanges: true))
    for number in 0..<60_000 {
      var octets = (0..<Int(generator.next() % 40)).map { _ in UInt8(truncatingIfNeeded: generator.next()) }
      // Mostly events, advertising reports and data, else little of it would be decoded.
      switch (number % 4, octets.count) {
      case (0, 4...):
        octets[0] = 0x04
        octets[1] = number % 8 == 0 ? 0x3E : octets[1]
        octets[2] = UInt8(octets.count - 3)
        octets[3] = UInt8(generator.next() % 0x20)
      case (1, 5...):
        octets[0] = 0x02
        octets[3] = UInt8(octets.count - 5)
        octets[4] = 0
      default: break
      }
      let content: CaptureRecord.Content = number % 7 == 0 ? .linkLayer(.unknown) : .packet
      let record = CaptureRecord(
        number: number + 1, time: Int64(number) * 1_000_000, direction: number % 3 == 0 ? .fromHost : .fromController,
        content: content, adapter: UInt16(generator.next() % 80), octets: Octets(0, octets.count))
      sink.receive(record, octets.span)
    }
    #expect(sink.sink.links.count <= AirMonitor.mostLinks && sink.sink.devices.count <= AirMonitor.mostDevices)
    #expect(sink.sink.values.count <= AirMonitor.mostValues && sink.sink.adapters.count <= 64)
    #expect(sink.sink.takeChanges().count <= AirMonitor.mostChanges && !sink.sink.links.isEmpty)
  }
}
