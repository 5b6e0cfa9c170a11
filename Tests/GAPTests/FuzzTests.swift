import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

@testable import BindruneGAP
@testable import BindruneHCI

/// A controller that sends anything at any time causes no trap, one completion for each request, and no growth of
/// memory.
@Suite("HostCore: bad input") struct HostCoreFuzzTests {
  /// The core's progress when the packets arrive.
  enum Station: CaseIterable { case stopped, starting, settingAddress, running, busy, central, peripheral }

  @Test(arguments: Station.allCases) func anyPacketsOfAController(_ station: Station) throws {
    let count = Station.allCases.count, place = UInt64(Station.allCases.firstIndex(of: station) ?? 0)
    var chance = SplitMix64(seed: Fuzz.seed &* 31 &+ place)
    var visit = try Visit(station)
    for packet in Fuzz(try Self.samples(), cases: Fuzz.cases / count, seed: Fuzz.seed &+ place) {
      visit.bench.receive(packet)
      visit.checkBounds(packet)
      visit.checkNotes(packet)
      try visit.act(&chance)
      visit.checkNotes(packet)
      let isOver = name(visit.bench.core.phase) == "stopped" && station != .stopped
      if isOver || Int.random(in: 0..<100, using: &chance) == 0 {
        visit.end()
        visit = try Visit(station)
      }
    }
    visit.end()
  }

  /// Packets of controllers: all events of the vectors, and data on the links 0x40 and 0x41 with every ATT PDU and
  /// L2CAP frame of the vectors, whole and in two parts.
  private static func samples() throws -> [[UInt8]] {
    var samples = try VectorFile("hci.txt").vectors.map(\.octets).filter { $0[0] != 1 }
    for handle: UInt16 in [0x40, 0x41] {
      samples += [
        connectionComplete(handle, .central), connectionComplete(handle, .peripheral, Bench.otherPeer),
        disconnectionComplete(handle), completedPackets(handle, 1),
        [4, 0x3E, 0x0A, 3, 0] + little(handle) + [0x28, 0, 0, 0, 0xF4, 1],
        [4, 0x3E, 0x0B, 6] + little(handle) + [0x18, 0, 0x28, 0, 0, 0, 0xF4, 1],
        data(handle, channel: 5, octets("12 07 08 00 18 00 28 00 00 00 F4 01")),
        data(handle, channel: 5, octets("13 01 02 00 00 00")), data(handle, channel: 6, octets("01 03 00 01 10 07 07")),
      ]
      for vector in try VectorFile("att.txt").vectors {
        samples.append(data(handle, vector.octets))
        let frame = Array(data(handle, vector.octets).dropFirst(5)), half = frame.count / 2
        samples.append([2] + little(handle | 0x2000) + little(UInt16(half)) + frame[..<half])
        samples.append([2] + little(handle | 0x1000) + little(UInt16(frame.count - half)) + frame[half...])
      }
    }
    samples.append(connectionComplete(0, .central, Bench.peer, .unknownConnectionIdentifier))
    return samples.filter { $0.count > 1 && $0[1] != 0x10 } + [octets("04 10 01 00")]
  }
}

/// One core, from its first start to its last.
private struct Visit: ~Copyable {
  var bench: Bench
  private var lastID: UInt64 = 100
  private let notifying: AttributeHandle

  init(_ station: HostCoreFuzzTests.Station) throws {
    var builder = DatabaseBuilder()
    notifying = builder.service("180D") {
      let value = $0.characteristic("2A37", .notify).value
      _ = $0.characteristic("2A38", [.read, .write], value: .stored([1, 2, 3]))
      _ = $0.characteristic("2A9F", [.read, .write], value: .dynamic)
      return value
    }
    var controller = PaperController()
    if station == .settingAddress { controller.address = [0, 0, 0, 0, 0, 0] }
    if station == .busy || station == .peripheral { controller.features.insert(.leExtendedAdvertising) }
    if station == .busy { controller.acceptListSize = 2 }
    bench = Bench(try builder.build(), controller: controller)
    bench.isReading = false
    switch station {
    case .stopped: break
    case .starting: bench.perform { core, now in core.start(now: now) }
    case .settingAddress:
      bench.controller.silent = [LESetRandomAddress.opcode]
      bench.start()
    case .running: bench.start()
    case .busy:
      bench.start()
      bench.perform { core, now in core.startScan(now: now) }
      bench.advertise("fuzz")
      bench.answerAll()
      connect(Bench.peer)
      connect(Bench.otherPeer)
    case .central:
      bench.start()
      connect(Bench.peer)
      bench.answerAll()
      bench.receive(connectionComplete(0x40))
      bench.receive(data(0x40, [3, 5, 2]))
      ask { id, client in client.discoverAll(id) }
      ask { id, client in client.write(id, AttributeHandle(rawValue: 3), [UInt8](repeating: 1, count: 300).span) }
      connect(Bench.otherPeer)
    case .peripheral:
      bench.start()
      bench.advertise("fuzz")
      bench.answerAll()
      bench.receive(connectionComplete(0x40, .peripheral))
      bench.receive(data(0x40, [0x12] + little(notifying.rawValue + 1) + [1, 0]))
      bench.receive(connectionComplete(0x41, .peripheral, Bench.otherPeer))
      ask { id, client in client.readLong(id, AttributeHandle(rawValue: 3)) }
    }
  }

  private mutating func newID() -> RequestID {
    lastID += 1
    return RequestID(rawValue: lastID)
  }
  private mutating func connect(_ peer: PeerAddress) {
    let id = newID()
    bench.perform { core, now in core.connect(to: peer, id: id, now: now) }
  }
  private var link: LinkID { LinkID(rawValue: bench.core.lastLink) }
  private mutating func ask(_ body: (RequestID, inout Client) -> Void) {
    let id = newID(), link = link
    bench.perform { core, _ in core.withClient(of: link, id: id) { body(id, &$0) } }
  }

  /// Other events meanwhile: the controller answers, time passes, the application acts.
  mutating func act(_ chance: inout SplitMix64) throws {
    let link = link, notifying = notifying
    switch Int.random(in: 0..<30, using: &chance) {
    case 0...5: bench.answer()
    case 6: bench.answer(.commandDisallowed)
    case 7: bench.wait(.milliseconds(Int.random(in: 1...3000, using: &chance)))
    case 8: if Bool.random(using: &chance) { bench.wait(.seconds(31)) }
    case 9: connect(Bool.random(using: &chance) ? Bench.peer : Bench.otherPeer)
    case 10:
      let id = RequestID(rawValue: lastID &- UInt64.random(in: 0..<4, using: &chance))
      bench.perform { core, now in core.cancel(id, now: now) }
    case 11: ask { id, client in client.discoverAll(id) }
    case 12: ask { id, client in client.subscribe(id, AttributeHandle(rawValue: 3)) }
    case 13:
      let id = newID()
      bench.perform { core, now in core.disconnect(link, id: id, now: now) }
    case 14:
      for _ in 0..<20 { _ = bench.core.notify([UInt8](repeating: 7, count: 20).span, of: notifying, on: link) }
      bench.perform { _, _ in }
    case 15:
      let parameters = ScanParameters(
        isActive: Bool.random(using: &chance), coalescesDuplicates: Bool.random(using: &chance))
      let filter = Bool.random(using: &chance) ? ScanFilter() : ScanFilter(services: ["180D"], name: .prefix("A"))
      let id = ScanID(rawValue: UInt64.random(in: 0...2, using: &chance))
      bench.perform { core, now in core.startScan(parameters, filter: filter, id: id, now: now) }
    case 16:
      let id = ScanID(rawValue: UInt64.random(in: 0...2, using: &chance))
      bench.perform { core, now in core.stopScan(id: id, now: now) }
    case 17: bench.advertise("\(lastID % 3)", restarts: lastID % 2 == 0)
    case 18: bench.perform { core, now in core.stopAdvertising(now: now) }
    case 19: bench.perform { core, now in core.updateParameters(link, .fast, now: now) }
    case 20:
      let id = newID(), wish = ConnectionLatency.allCases[Int(id.rawValue % 3)]
      bench.perform { core, now in core.updateParameters(link, ConnectionParameterRange(wish), id: id, now: now) }
    case 21:
      let id = newID()
      bench.perform { core, now in core.readRSSI(link, id: id, now: now) }
      let other = newID()
      bench.perform { core, now in core.readFeatures(link, id: other, now: now) }
    case 22:
      let id = newID(), other = newID()
      bench.perform { core, now in core.readPHYs(link, id: id, now: now) }
      bench.perform { core, now in core.setPHYs(link, PHYPreferences(transmit: .le2M), id: other, now: now) }
    case 23:
      let id = newID()
      bench.perform { core, now in core.setDefaultPHYs(PHYPreferences(receive: .leCoded), id: id, now: now) }
    case 24:
      let id = newID(), timeout = Bool.random(using: &chance) ? Duration.seconds(1) : nil
      bench.perform { core, now in
        core.connect(to: [Bench.thirdPeer, Bench.otherPeer], timeout: timeout, id: id, now: now)
      }
    case 25: bench.answer(.connectionLimitExceeded)
    default: break
    }
  }

  func checkBounds(_ packet: [UInt8]) {
    let core = bench.core.upper.batch.octets.count, capacity = bench.core.upper.batch.octets.capacity
    if core > 8192 || capacity > 1 << 16 { Issue.record("\(core) octets in the arena after \(hex(packet))") }
  }

  /// The core's notes of what each link wants, and of its deadline, are right: it does not check again.
  func checkNotes(_ packet: [UInt8]) {
    var least: Instant?
    for place in 0..<bench.core.upper.links.count {
      let handle = bench.core.upper.links[place].handle, index = bench.core.hci.credits.index(handle)
      // A link whose disconnection was asked for keeps what it has.
      let wants =
        index.map {
          bench.core.hci.credits.links[$0].wants || bench.core.hci.credits.links[$0].isStopped
        } ?? false
      if !wants, index != nil, bench.core.l2cap.hasPacket(for: handle, upper: bench.core.upper) {
        Issue.record("\(handle.rawValue) has a packet that is not noted after \(hex(packet))")
      }
      least = .earliest(least, bench.core.deadline(at: place))
    }
    if bench.core.upper.deadlines.least != least {
      Issue.record("\(least?.description ?? "no deadline") is not noted after \(hex(packet))")
    }
  }

  /// After the last start everything has ended, once.
  consuming func end() {
    bench.start()
    var endings: [RequestID: Int] = [:], ups: Set<LinkID> = [], downs: [LinkID: Int] = [:]
    for effect in bench.effects {
      switch effect {
      case .completed(let id, _): endings[id, default: 0] += 1
      case .linkUp(let link, _, _, _): ups.insert(link)
      case .linkDown(let link, _): downs[link, default: 0] += 1
      default: break
      }
    }
    for number in 101..<lastID + 1 where endings[RequestID(rawValue: number)] != 1 {
      Issue.record("request \(number) ended \(endings[RequestID(rawValue: number)] ?? 0) times")
    }
    for link in ups where downs[link] != 1 { Issue.record("\(link) went down \(downs[link] ?? 0) times") }
    #expect(endings.count == Int(lastID) - 100 && downs.count == ups.count)
    expect(bench.core.upper.links.count == 0)
  }
}
