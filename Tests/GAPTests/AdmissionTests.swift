import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

@testable import BindruneGAP

/// A value becomes a packet when the controller has a buffer for its link, and never earlier.
@Suite struct AdmissionTests {
  private struct Station: ~Copyable {
    var bench: Bench
    let link: LinkID, notifying: AttributeHandle, read: AttributeHandle
  }
  /// A peripheral with a client that has subscribed, on a controller with `buffers` buffers of 27 octets.
  private static func bench(buffers: UInt8) throws -> Station {
    var builder = DatabaseBuilder()
    let (notifying, read) = builder.service("180D") {
      ($0.characteristic("2A37", [.notify, .indicate]).value, $0.characteristic("2A38", .read, value: [7]).value)
    }
    var controller = PaperController()
    controller.buffers = [27, 0, buffers]
    var bench = Bench.started(try builder.build(), controller: controller)
    bench.receive(connectionComplete(0x40, .peripheral))
    // Client Characteristic Configuration: both. Vol 3, Part G, §3.3.3.3.
    bench.receive(data(0x40, [0x12] + little(notifying.rawValue + 1) + [3, 0]))
    bench.receive(completedPackets(0x40, 1))
    bench.answerAll()
    guard
      case .linkUp(let link, _, _, _)? = bench.effects.first(where: { if case .linkUp = $0 { true } else { false } })
    else { throw CancellationError() }
    _ = bench.takeAll()
    return Station(bench: bench, link: link, notifying: notifying, read: read)
  }
  /// A notification of 20 times `octet`: one packet.
  private static func packet(_ handle: AttributeHandle, _ octet: UInt8) -> String {
    hex([2, 0x40, 0x00, 27, 0, 23, 0, 4, 0, 0x1B] + little(handle.rawValue) + [UInt8](repeating: octet, count: 20))
  }
  private static let response = hex([2, 0x40, 0x00, 6, 0, 2, 0, 4, 0, 0x0B, 7])

  @Test func aResponseOvertakesWhatHasNoBuffer() throws {
    var station = try Self.bench(buffers: 2)
    let link = station.link, notifying = station.notifying, read = station.read
    station.bench.perform { core, _ in
      for octet in UInt8(1)...5 {
        let value = [UInt8](repeating: octet, count: 20)
        expect(core.notify(value.span, of: notifying, on: link) == .queued)
      }
      expect(core.indicate([9].span, of: notifying, on: link) == .queued)
    }
    let indication = hex([2, 0x40, 0x00, 8, 0, 4, 0, 4, 0, 0x1D] + little(notifying.rawValue) + [9])
    // Two buffers, two packets
    same(station.bench.takeAll(), [Self.packet(notifying, 1), Self.packet(notifying, 2)])
    station.bench.receive(data(0x40, [0x0A] + little(read.rawValue)))
    // Without a buffer the response waits as well
    same(station.bench.takeAll(), [])
    station.bench.receive(completedPackets(0x40, 1))
    // Before values that were offered before the request came
    same(station.bench.takeAll(), [Self.response])
    station.bench.receive(completedPackets(0x40, 2))
    same(station.bench.takeAll(), [Self.packet(notifying, 3), Self.packet(notifying, 4)])
    station.bench.receive(data(0x40, [0x0A] + little(read.rawValue)))
    station.bench.receive(completedPackets(0x40, 1))
    station.bench.receive(completedPackets(0x40, 1))
    same(station.bench.takeAll(), [Self.response, Self.packet(notifying, 5)])
    station.bench.receive(completedPackets(0x40, 2))
    // In its order: the application requested it last
    same(station.bench.takeAll(), [indication])
  }

  /// Service Changed is an indication too, of which the application learns nothing: an indication of its own that was
  /// refused meanwhile becomes possible when Service Changed is confirmed, and the core reports that. Vol 3, Part F,
  /// §3.4.7.3.
  @Test func anIndicationBehindServiceChanged() throws {
    var builder = DatabaseBuilder()
    let changed = builder.genericAttribute()
    let indicating = builder.service("180D") { $0.characteristic("2A37", .indicate) }
    var bench = Bench.started(try builder.build())
    bench.receive(connectionComplete(0x40, .peripheral))
    for case let configuration? in [changed.configuration, indicating.configuration] {
      bench.receive(data(0x40, [0x12] + little(configuration.rawValue) + [2, 0]))
      bench.receive(completedPackets(0x40, 1))
    }
    bench.answerAll()
    guard
      case .linkUp(let link, _, _, _)? = bench.effects.first(where: { if case .linkUp = $0 { true } else { false } })
    else { throw CancellationError() }
    _ = bench.takeAll()
    let indication = hex([2, 0x40, 0, 8, 0, 4, 0, 4, 0, 0x1D] + little(indicating.value.rawValue) + [9])
    for isRefused in [false, true] {
      bench.perform { core, _ in
        var more = DatabaseBuilder(after: core.database)
        more.service("180F") { _ in }
        do throws(DatabaseError) { try core.insert(more) } catch { expect(false) }
        if isRefused { expect(core.indicate([9].span, of: indicating.value, on: link) == .full) }
      }
      // §7.1 of Vol 3, Part G: from the Generic Attribute service to the new one.
      let last: UInt8 = isRefused ? 14 : 13
      let range = hex([2, 0x40, 0, 11, 0, 7, 0, 4, 0, 0x1D] + little(changed.value.rawValue) + [1, 0, last, 0])
      same(bench.takeAll(), [range])
      bench.receive(completedPackets(0x40, 1))
      bench.receive(data(0x40, [0x1E]))
      same(bench.takeAll(), isRefused ? ["readyToSend(link 1)"] : [])
    }
    bench.perform { core, _ in expect(core.indicate([9].span, of: indicating.value, on: link) == .queued) }
    same(bench.takeAll(), [indication])
    bench.receive(completedPackets(0x40, 1))
    bench.receive(data(0x40, [0x1E]))
    same(bench.takeAll(), ["indicationConfirmed(link 1, \(String(reflecting: indicating.value)))"])
  }

  /// The frame in progress is completed first: Vol 3, Part A, §7.2.1. No other part of the value was in a packet
  /// before.
  @Test func aResponseWaitsForTheRestOfAFrameAndNoMore() throws {
    var station = try Self.bench(buffers: 1)
    let link = station.link, notifying = station.notifying, read = station.read
    station.bench.receive(data(0x40, [0x02, 0x00, 0x01]))  // Exchange MTU Request: 256
    let answer = hex([2, 0x40, 0, 7, 0, 3, 0, 4, 0, 0x03, 0x05, 0x02])
    same(station.bench.takeAll(), [answer, "mtuChanged(link 1, mtu: 256)"])
    station.bench.receive(completedPackets(0x40, 1))
    station.bench.perform { core, _ in
      for octet in UInt8(1)...2 {
        let value = [UInt8](repeating: octet, count: 40)
        expect(core.notify(value.span, of: notifying, on: link) == .queued)
      }
    }
    let first = { (octet: UInt8) in
      let headers: [UInt8] = [2, 0x40, 0x00, 27, 0, 43, 0, 4, 0, 0x1B]
      return hex(headers + little(notifying.rawValue) + [UInt8](repeating: octet, count: 20))
    }
    let rest = { (octet: UInt8) in hex([2, 0x40, 0x10, 20, 0] + [UInt8](repeating: octet, count: 20)) }
    same(station.bench.takeAll(), [first(1)])
    station.bench.receive(data(0x40, [0x0A] + little(read.rawValue)))
    var sent: [String] = []
    for _ in 0..<4 {
      station.bench.receive(completedPackets(0x40, 1))
      let packets = station.bench.takeAll()
      #expect(packets.count == 1)
      sent += packets
    }
    #expect(sent == [rest(1), Self.response, first(2), rest(2)])
  }

  /// A link's waiting values end with it: none leaves on another link, and the core accepts no more.
  @Test func nothingOutlivesTheLink() throws {
    var station = try Self.bench(buffers: 1)
    let link = station.link, notifying = station.notifying
    station.bench.perform { core, _ in
      for octet in UInt8(1)...3 {
        let value = [UInt8](repeating: octet, count: 20)
        expect(core.notify(value.span, of: notifying, on: link) == .queued)
      }
    }
    _ = station.bench.takeAll()
    station.bench.receive(disconnectionComplete(0x40))
    station.bench.receive(connectionComplete(0x40, .peripheral))
    station.bench.answerAll()
    let sent = station.bench.takeAll()
    #expect(!sent.contains { $0.contains(hex([0x1B] + little(notifying.rawValue))) }, "\(sent)")
    station.bench.perform { core, _ in
      expect(core.notify([1].span, of: notifying, on: link) == .closed)
      expect(core.write(command: [1].span, to: notifying, on: link) == .closed)
      expect(core.indicate([1].span, of: notifying, on: link) == .closed)
    }
  }
}
