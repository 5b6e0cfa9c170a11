import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// Where two runs of the same thing part.
@Suite struct DifferenceTests {
  private func outline(_ packets: Packets, _ free: Set<TraceFreedom> = TraceFreedom.usual) -> TraceOutline {
    var sink = DissectingSink(TraceOutline(free: free))
    for (record, octets) in packets.records { sink.receive(record, octets.span) }
    sink.pause()
    return sink.sink
  }
  /// A connection to `address`, most significant octet last, a question and its answer, and an event of time.
  private func run(
    _ address: String, handle: String = "40", value: String = "48", rssi: String = "C0", completed: Int = 1,
    delay: Int64 = 0
  ) -> Packets {
    var packets = Packets()
    packets.add(.fromController, "04 3E 0C 02 01 00 00 \(address) 00 \(rssi)")
    packets.add(.fromController, "04 3E 13 01 00 \(handle) 00 00 01 \(address) 18 00 00 00 C8 00 00")
    packets.add(.fromHost, "02 \(handle) 00 07 00 03 00 04 00 0A 03 00")
    for _ in 0..<completed { packets.add(.fromController, "04 13 05 01 \(handle) 00 01 00") }
    packets.add(.fromController, "02 \(handle) 20 06 00 02 00 04 00 0B \(value)")
    for index in packets.records.indices { packets.records[index].record.time += delay * Int64(index) }
    return packets
  }
  private let one = "01 02 03 04 05 C6", other = "11 12 13 14 15 D6"

  @Test func freedoms() {
    let first = run(one), second = run(other, handle: "41", rssi: "B0", completed: 3, delay: 77)
    let difference = TraceDifference(outline(first), outline(second))
    #expect(difference.isEqual && difference.compared == 3 && difference.equal == 3)
    #expect(difference.ignored.0 == 2 && difference.ignored.1 == 4)
    // Each freedom is needed: without it they differ.
    for freedom in [TraceFreedom.addresses, .handles, .times] {
      let free = TraceFreedom.usual.subtracting([freedom])
      #expect(!TraceDifference(outline(first, free), outline(second, free)).isEqual, "\(freedom)")
    }
    // RSSI is chance; to compare reports the times must be bound.
    let exact: Set<TraceFreedom> = [.addresses, .handles]
    #expect(!TraceDifference(outline(run(one), exact), outline(run(one, rssi: "B0"), exact)).isEqual)
    let chance = exact.union([.random])
    #expect(TraceDifference(outline(run(one), chance), outline(run(one, rssi: "B0"), chance)).isEqual)
    #expect(TraceDifference(outline(run(one), []), outline(run(one), [])).isEqual)
  }

  @Test func theFirstPlace() throws {
    let difference = TraceDifference(outline(run(one)), outline(run(one, value: "49", completed: 3)))
    let place = try #require(difference.places.first)
    #expect(difference.places.count == 1 && place.stream.description == "connection 1, ATT responses to the host")
    #expect((place.first, place.second, place.equal) == (5, 7, 0) && difference.equal == 2)
    let free = TraceFreedom.usual.union([.values])
    #expect(TraceDifference(outline(run(one), free), outline(run(one, value: "49"), free)).isEqual)
  }

  /// A free address must stand for one device throughout.
  @Test func addressesAreConsistent() {
    func runs(_ addresses: [String]) -> Packets {
      var packets = Packets()
      for address in addresses {
        packets.add(.fromController, "04 3E 13 01 00 40 00 00 01 \(address) 18 00 00 00 C8 00 00")
      }
      return packets
    }
    let twice = outline(runs([one, other, one]))
    #expect(TraceDifference(twice, outline(runs([other, one, other]))).isEqual)
    #expect(!TraceDifference(twice, outline(runs([one, other, other]))).isEqual)
  }

  /// One trace is the beginning of the other; an empty trace.
  @Test func ends() throws {
    var longer = run(one)
    longer.add(.fromController, "04 05 04 00 40 00 13")
    let place = try #require(TraceDifference(outline(run(one)), outline(longer)).places.first)
    #expect(place.first == nil && place.second == 6 && place.equal == 1)
    #expect(!TraceDifference(outline(Packets()), outline(longer)).isEqual)
    #expect(TraceDifference(outline(Packets()), outline(Packets())).isEqual)
  }

  /// Two runs of a pairing differ in every key; the recorded one equals itself.
  @Test func chance() {
    func pairing(_ octet: UInt8) -> Packets {
      var packets = Packets()
      for code in [UInt8(0x03), 0x04, 0x06, 0x08] {
        packets.frame(.fromHost, channel: 6, [code] + [UInt8](repeating: octet, count: 16))
      }
      packets.frame(.fromHost, channel: 6, [0x07] + [UInt8](repeating: octet, count: 10))
      return packets
    }
    #expect(TraceDifference(outline(pairing(1)), outline(pairing(2))).isEqual)
    let bound = TraceFreedom.usual.subtracting([.random])
    #expect(!TraceDifference(outline(pairing(1), bound), outline(pairing(2), bound)).isEqual)
    // A link with and one without a key's identifier are not the same.
    #expect(!TraceDifference(outline(pairing(1)), outline(pairing(0))).isEqual)
  }
}
