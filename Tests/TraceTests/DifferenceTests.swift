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

  // MARK: Alignment

  /// `count` reads of handles from 1 on, each with its value, but without those that are left out, and one more of
  /// 0x0FFF before each in `more`.
  private func reads(_ count: Int, without left: Set<Int> = [], more: Set<Int> = []) -> Packets {
    var packets = Packets()
    packets.add(.fromController, "04 3E 13 01 00 40 00 00 01 \(one) 18 00 00 00 C8 00 00")
    for number in 1...count {
      let handle = [UInt8(truncatingIfNeeded: number), UInt8(number >> 8)]
      if more.contains(number) { packets.frame(.fromHost, channel: 4, [0x0A, 0xFF, 0x0F]) }
      if left.contains(number) { continue }
      packets.frame(.fromHost, channel: 4, [0x0A] + handle)
      packets.frame(.fromController, channel: 4, [0x0B] + handle)
    }
    return packets
  }
  /// What each difference has of the first trace, and of the second: 0 is nothing, else the first and the last record;
  /// and the number of packets of both.
  private func numbers(_ place: TraceDifference.Place) -> [[Int]] {
    place.hunks.map {
      [$0.first?.first ?? 0, $0.first?.last ?? 0, $0.second?.first ?? 0, $0.second?.last ?? 0]
        + [($0.first?.count ?? 0) + ($0.second?.count ?? 0)]
    }
  }
  /// A packet that only one trace has is one difference, and what follows it is equal.
  @Test(arguments: [30, 3_000]) func insertions(count: Int) throws {
    let whole = outline(reads(count))
    let added = TraceDifference(whole, outline(reads(count, more: [10, 20])))
    let place = try #require(added.places.first)
    #expect(added.places.count == 1 && place.stream.description == "connection 1, ATT requests from the host")
    // A record for the connection, two for each of nine reads: the added one is the 20th.
    #expect(numbers(place) == [[0, 0, 20, 20, 1], [0, 0, 41, 41, 1]])
    #expect((place.equal, place.equalInAll, place.onlyFirst, place.onlySecond) == (9, count, 0, 2))
    #expect(added.equal == 2 * count + 1 && added.compared == 2 * count + 3 && !place.isAtEnd)
    let removed = TraceDifference(whole, outline(reads(count, without: [5])))
    #expect(removed.places.count == 2 && removed.places.allSatisfy { $0.onlyFirst == 1 && $0.onlySecond == 0 })
    #expect(removed.places.allSatisfy { $0.hunkCount == 1 })
  }
  /// A connection more before the others: it is one difference, with its commands.
  @Test func oneConnectionMore() throws {
    func run(_ peers: [(address: String, handle: String, value: String)]) -> Packets {
      var packets = Packets()
      for (address, handle, value) in peers {
        packets.add(.fromHost, "01 0D 20 19 60 00 30 00 00 01 \(address) 01 18 00 28 00 00 00 F4 01 00 00 00 00")
        packets.add(.fromController, "04 3E 13 01 00 \(handle) 00 00 01 \(address) 18 00 00 00 C8 00 00")
        packets.add(.fromHost, "02 \(handle) 00 07 00 03 00 04 00 0A \(value) 00")
        packets.add(.fromController, "02 \(handle) 20 06 00 02 00 04 00 0B \(value)")
        packets.add(.fromController, "04 05 04 00 \(handle) 00 13")
      }
      return packets
    }
    let a = [(one, "40", "03"), (other, "41", "05")], extra = ("21 22 23 24 25 E6", "42", "09")
    let difference = TraceDifference(outline(run(a)), outline(run([extra] + a)))
    #expect(difference.unmatched.map(\.connection.ordinal) == [1] && difference.unmatched[0].packets == 4)
    #expect(!difference.unmatched[0].isOfFirst && difference.unmatched[0].connection.firstRecord == 2)
    #expect(difference.matched.map { [$0.0, $0.1] } == [[1, 2], [2, 3]])
    #expect(difference.places.map(\.stream.description) == ["commands"])
    #expect(numbers(difference.places[0]) == [[0, 0, 1, 1, 1]])
    #expect(difference.equal == 10 && difference.compared == 15)
    // The same devices in another order, and another handle each.
    let swapped = TraceDifference(outline(run(a)), outline(run([(other, "40", "05"), (one, "41", "03")])))
    #expect(swapped.matched.map { [$0.0, $0.1] } == [[1, 2], [2, 1]])
    #expect(swapped.unmatched.isEmpty && swapped.places.map(\.stream.description) == ["commands"])
  }
  /// Two sequences that Myers' algorithm gives up: the result says so, and what is equal at both ends stays equal.
  @Test func tooManyDifferences() throws {
    func values(_ octets: [UInt8]) -> Packets {
      var packets = Packets()
      for octet in octets { packets.frame(.fromController, channel: 4, [0x1B, 3, 0, octet]) }
      return packets
    }
    // Values that repeat, in other orders: nothing to cut at.
    let a = (0..<4_000).map { UInt8($0 * 7 % 11) }, b = (0..<4_000).map { UInt8($0 * $0 % 13 + 100) }
    let difference = TraceDifference(outline(values([200] + a + [201])), outline(values([200] + b + [201])))
    let place = try #require(difference.places.first)
    #expect(place.isCoarse && place.equalInAll == 2 && place.hunkCount == 1)
    #expect(place.onlyFirst == 4_000 && place.onlySecond == 4_000)
  }

  // MARK: What cannot be compared

  /// Traces of which nothing was compared, or some packets cannot be read, are not called equal.
  @Test func insufficient() throws {
    let empty = TraceDifference(outline(Packets()), outline(Packets()))
    #expect(empty.isEqual && empty.insufficiency?.hasPrefix("Nothing was compared: ") == true)
    #expect(TraceDifference(outline(run(one)), outline(run(one))).insufficiency == nil)
    func changed(_ body: (inout TraceOutline) -> Void) -> TraceDifference {
      var sink = outline(run(one))
      body(&sink)
      return TraceDifference(sink, outline(run(one)))
    }
    let encrypted = changed { $0.end(encrypted: 7) }
    #expect(encrypted.isEqual && encrypted.insufficiency?.hasPrefix("7 and 0 packets are encrypted") == true)
    // A packet of which the recorder has kept the beginning; records that it has lost.
    var cut = run(one), lost = run(one)
    cut.records[2].record.originalCount += 10
    lost.records[2].record.missingBefore = 3
    #expect(
      TraceDifference(outline(lost), outline(run(one))).insufficiency?.hasPrefix("3 and 0 records are missing") == true)
    #expect(TraceDifference(outline(cut), outline(cut)).insufficiency?.hasPrefix("1 and 1 packets were cut") == true)
    // A difference is one all the same.
    #expect(TraceDifference(outline(cut), outline(run(other, value: "50"))).insufficiency == nil)
  }
}
