import BindruneATT
import BindruneSimulator
import BindruneToolbox
import BindruneTrace
import BindruneCapture
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import TestSupport
import Testing

// snippet 4
/// What one ACL packet leads to: both can happen at once.
struct Outcome { var frame: Joiner.Frame?, fault: Joiner.Fault? }

struct KindJoiner {
  private var octets: [UInt8] = []
  private var isCollecting = false
  /// At most this many octets are kept; of longer messages the others are only counted.
  let limit: Int
  private var count = 0
  var kept: Int { octets.count }
  init(limit: Int = 512) { self.limit = limit }

  mutating func receive(_ packet: [UInt8]) throws -> Outcome {
    let acl = try ACLPacket(packet.span), piece = acl.data.array(in: packet.span)
    var outcome = Outcome()
    if acl.packetBoundaryFlag == .continuing {
      guard isCollecting else { return Outcome(fault: .noBeginning) }
    } else {
      if isCollecting { outcome.fault = .unfinished }
      (octets, count, isCollecting) = ([], 0, true)
    }
    octets += piece.prefix(limit + 4 - octets.count)
    count += piece.count
    guard count >= 4 else { return outcome }
    let length = Int(octets[0]) | Int(octets[1]) << 8
    guard count >= 4 + length else { return outcome }
    isCollecting = false
    if count > 4 + length || length > limit {
      outcome.fault = .tooMuch
    } else {
      outcome.frame = Joiner.Frame(channel: UInt16(octets[2]) | UInt16(octets[3]) << 8, payload: Array(octets[4...]))
    }
    return outcome
  }
}
// end

// snippet 14
struct Share: TraceSink {
  var counts: [UInt8: (pdus: Int, octets: Int)] = [:]
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard frame.channel == .attribute, payload.count > 0 else { return }
    counts[payload[0], default: (0, 0)].pdus += 1
    counts[payload[0], default: (0, 0)].octets += payload.count
  }
  mutating func record(_: CaptureRecord, _: Span<UInt8>) {}
  mutating func violation(_: L2CAPViolation, _: ConnectionHandle, _: HCIDirection?, of _: CaptureRecord) {}
}
// end

// snippet 16
/// A belt and a phone that has subscribed to the heart rate, as in the chapter.
func subscribedWorld(
  _ body: (inout World<Box>, _ belt: Int, _ phone: Int, _ rate: AttributeHandle) throws -> Void
) throws {
  var world = World<Box>(seed: 9), builder = DatabaseBuilder()
  builder.genericAccess(name: "Belt")
  let rate = builder.service("180D") { $0.characteristic("2A37", .notify).value }
  let belt = world.add(Box(try builder.build()), ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)))
  let phone = world.add(Box(Database()), ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5302)))
  for host in [belt, phone] { world.withHost(host) { $0.core.start(now: $1) } }
  world.run(for: .seconds(1))
  try world.withHost(belt) { _ = try $0.core.advertise(AdvertisingData(localName: "Belt"), now: $1) }
  let address = PeerAddress(DeviceAddress(0x0000_5E00_5301), .public), id = RequestID(rawValue: 2)
  world.withHost(phone) { $0.core.connect(to: address, id: RequestID(rawValue: 1), now: $1) }
  world.run(for: .seconds(5)) { $0.readHost(phone) { $0.link == nil } }
  let link = world.readHost(phone) { $0.link! }
  world.withHost(phone) { box, _ in box.core.withClient(of: link, id: id) { $0.discoverAll(id) } }
  world.run(for: .seconds(5)) { $0.readHost(phone) { $0.isReading } }
  world.withHost(phone) { box, _ in box.core.withClient(of: link, id: id) { $0.subscribe(id, rate, .notification) } }
  world.run(for: .seconds(1))
  try body(&world, belt, phone, rate)
}
// end

// snippet 18
struct Rate: WireRecord {
  var beats: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) { try visit.value("Beats", &beats) }
}
struct RatesReport: WireRecord {
  var contact: UInt8 = 0
  var resistance: UInt16 = 0
  var rates = WireList<Rate>()
  var note = Octets()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Contact", &contact)
    try visit.value("Resistance", &resistance)
    try visit.list(countIn: "Num_Rates", "Rates", &rates)
    try visit.octets("Note", &note)
  }
}
// end

@Suite("Course: solutions", .hang) struct Solutions {
  @Test func page() throws {
    let path = Page.files.appending(path: "sensor.btsnoop").path
    try course("Solutions") { page in
      // snippet
      let packet: [UInt8] = [0x02, 0x41, 0x00, 0x07, 0x00, 0x03, 0x00, 0x04, 0x00, 0x0A, 0x02, 0x01]
      let acl = try ACLPacket(packet.span), pdu = Array(packet[9...])
      print(acl.handle.text, try ATTPDU(pdu.span).describe(in: pdu.span))
      page.shows()

      // snippet
      let reset: UInt16 = 0x0C03
      print("group", reset >> 10, "command", reset & 0x3FF)
      print(hex([UInt8((8 << 10 | 0x0D) & 0xFF), UInt8((8 << 10 | 0x0D) >> 8)]))
      page.shows()

      // snippet
      var configuration = ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301))
      configuration.commandCredits = 3
      var air = Air(configuration: .ideal), output = PacketBuffer()
      let controller = air.addController(configuration)
      var commands = Commands(waiting: Array(repeating: [0x01, 0x09, 0x10, 0x00], count: 7)), sent = 0
      var burst: [Int] = []
      while !commands.waiting.isEmpty {
        while let next = commands.next() {
          air.receive(next.span, at: controller, now: .zero)
          sent += 1
        }
        burst.append(sent)
        sent = 0
        while output.fill({ air.nextPacket(from: controller, into: &$0, now: .zero) }) {
          try commands.receive(output.bytes)
        }
      }
      print("commands before each answer:", burst)
      page.shows()

      // snippet
      var joiner = KindJoiner(limit: 64)
      let name = Array("Heart Rate Sensor in the kitchen".utf8)
      for packet in [fragments(name, .attribute, length: 20)[0], fragments([0x13], .attribute, length: 20)[0]] {
        let outcome = try joiner.receive(packet)
        print(outcome.fault.map { "\($0)" } ?? "no fault,", outcome.frame.map { hex($0.payload) } ?? "no frame")
      }
      let long = [UInt8](repeating: 0xEE, count: 600)
      let outcomes = try fragments(long, .attribute, length: 100).map { packet in
        let outcome = try joiner.receive(packet)
        guard joiner.kept <= 64 + 4 else { fatalError("\(joiner.kept)") }
        return outcome
      }
      print(outcomes.last!.fault!, "after", outcomes.count, "packets, kept", joiner.kept)
      page.shows()

      // snippet
      var builder = DatabaseBuilder()
      builder.genericAccess(name: "Heart Rate Sensor in the kitchen, 44 octets.")
      var sensor = Device(try builder.build()), whole: [UInt8] = []
      while true {
        let offset = UInt8(whole.count)
        let part = sensor.receive([0x0C, 0x03, 0x00, offset, 0x00])[0]
        print(part.count - 1, "octets from", offset)
        whole += part.dropFirst()
        if part.count < sensor.bearer.mtu { break }
      }
      print(String(decoding: whole, as: UTF8.self))
      page.shows()

      // snippet
      var phone = Device(Database())
      phone.client.read(RequestID(rawValue: 1), AttributeHandle(rawValue: 0x0003))
      let answer = sensor.receive(phone.sends()[0])[0]
      for _ in 1...2 { _ = phone.receive(answer) }
      while let effect = phone.bearer.nextEffect() {
        if case .violation(let violation) = effect { print(violation) }
      }
      page.shows()

      // snippet
      var battery = DatabaseBuilder()
      battery.service("180F") { $0.characteristic("2A19", [.read, .notify], value: [87]) }
      for row in try battery.build().allAttributes { print(row.handle.text, row.type, row.type.assignedName ?? "?") }
      page.shows()

      // snippet
      var ten = DatabaseBuilder()
      ten.genericAccess(name: "Belt")
      for number in 0..<10 {
        ten.service(.short(0xFF00 + UInt16(number))) { $0.characteristic(.short(0xFF80 + UInt16(number)), .read) }
      }
      var belt = Device(try ten.build()), visitor = Device(Database()), count = 0
      visitor.client.discoverAll(RequestID(rawValue: 1))
      var questions = visitor.sends()
      while let question = questions.first {
        count += 1
        questions = visitor.receive(belt.receive(question)[0])
      }
      print(count, "questions")
      page.shows()

      // snippet
      let advertised = AdvertisingData(localName: "Heart Rate Belt", serviceUUIDs: ["180D", "180F"])
      let packed = AdvertisingPacker(.standard).pack(advertised)
      print(packed.payloads.advertising.count, "of 31 octets; left out:", packed.leftOut)
      page.shows()

      // snippet
      let heard: [UInt8] = [0x02, 0x01, 0x06, 0x09, 0x09, 0x42]
      var place = 0
      while place < heard.count {
        let length = Int(heard[place]), left = heard.count - place - 1
        if length == 0 { break }  // the rest is padding
        guard length <= left else {
          print("the structure at octet", place, "says", length, "octets, and", left, "are left")
          break
        }
        print("type", hex([heard[place + 1]]))
        place += 1 + length
      }
      page.shows()

      // snippet
      let r1: UInt128 = 0x000F0E0D_0C0B0A09_11223344_55667788, r2: UInt128 = 0x01020304_05060708_99AABBCC_DDEEFF00
      let key = s1(SecurityKey(123456), r1, r2)
      print("after 123457 values of c1:", String(key.number, radix: 16))
      page.shows()

      // snippet
      var chance = SystemRandomNumberGenerator()
      let alice = P256KeyPair(using: &chance).publicKey, bob = P256KeyPair(using: &chance).publicKey
      func digits(_ initiator: P256PublicKey, _ responder: P256PublicKey) -> UInt32 {
        g2(initiator.x, responder.x, 1, 2) % 1_000_000
      }
      while true {
        let mallory = P256KeyPair(using: &chance).publicKey
        if digits(alice, mallory) / 10_000 == digits(mallory, bob) / 10_000 { break }
      }
      print("two of six digits are equal")
      page.shows()

      // snippet
      var file = try TraceFile(path: path), sink = DissectingSink(Share())
      try file.read(into: &sink)
      let all = sink.sink.counts.values.reduce(0) { $0 + $1.octets }
      for (opcode, share) in sink.sink.counts.sorted(by: { $0.key < $1.key }) {
        print(hex([opcode]), share.pdus, "PDUs,", share.octets, "of", all, "octets")
      }
      page.shows()

      // snippet
      try subscribedWorld { world, belt, phone, rate in
        world.air.setLoss(0.5)
        let start = world.now
        for beats in 70...74 as ClosedRange<UInt8> {
          world.withHost(belt) { box, _ in _ = box.core.notify([0x00, beats].span, of: rate, on: box.link!) }
        }
        world.run(for: .seconds(4)) { $0.readHost(phone) { $0.values.count < 5 } }
        print(world.readHost(phone) { $0.values.map(hex) }, "after", world.now - start)

        world.air.setLoss(0)
        world.separate(belt, phone)
        world.run(for: .seconds(60)) { $0.readHost(phone) { $0.link != nil } }
        world.reunite(belt, phone)
        let address = PeerAddress(DeviceAddress(0x0000_5E00_5301), .public)
        world.withHost(phone) { $0.core.connect(to: address, id: RequestID(rawValue: 4), now: $1) }
        world.run(for: .seconds(9)) { $0.readHost(phone) { $0.link == nil } }
        world.run(for: .seconds(1))
        let answer = world.withHost(belt) { box, _ in box.core.notify([0x00, 75].span, of: rate, on: box.link!) }
        print("connected again; the belt", answer == nil ? "may not notify" : "notifies")
      }
      page.shows()

      // snippet
      var arena: [UInt8] = [], report = RatesReport()
      report.rates = try WireList([70, 71, 72].map { beats in Rate.with { $0.beats = beats } }, in: &arena)
      let octets = try report.encoded(from: arena.span)
      print(hex(octets))
      print(try WireDecoder.decode(RatesReport.self, octets.span).description(in: octets.span))
      for _ in 0..<1000 {
        var arena: [UInt8] = []
        let report = RatesReport.arbitrary(using: &chance, in: &arena), octets = try report.encoded(from: arena.span)
        let again = try WireDecoder.decode(RatesReport.self, octets.span).encoded(from: octets.span)
        guard again == octets else { fatalError(hex(octets)) }
      }
      page.shows()
    }
  }
}
