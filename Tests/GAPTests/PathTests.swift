import BindruneATT
import BindruneWire
import BindruneHCI
import BindruneL2CAP
import TestSupport
import Testing

/// From a controller's packets to a bearer's calls, and from values to packets: for the same octets in, the layers with
/// all their shortcuts must give the same calls, errors and octets out as the plain path.
@Suite("The path of a PDU") struct PathTests {
  static let shards = 4

  /// Up: frames of all PDUs, cut anywhere, on alternating links, some of them damaged; and any other packet of a
  /// controller.
  @Test(arguments: 0..<shards) func up(shard: Int) throws {
    print("the way up against the plain one: \(Fuzz.pdus / Self.shards) packets, seed \(Fuzz.seed)")
    var chance = SplitMix64(seed: Fuzz.seed &* 1_000_003 &+ UInt64(shard))
    let both = try Both(), source = try PacketSource(seed: chance.next())
    for index in 0..<Fuzz.pdus / Self.shards {
      let packet = source.next(both.plain)
      both.receive(packet)
      if Int.random(in: 0..<4, using: &chance) > 0 {
        both.drain(source.handle(packet), aclLength: 251)
      }
      both.somethingElse(&chance, source)
      if both.isWrong("shard \(shard), packet \(index): \(hex(packet))") { return }
    }
  }

  /// Down: values, responses, requests and confirmations of several links, in packets of any length.
  @Test(arguments: 0..<shards) func down(shard: Int) throws {
    print("the way down against the plain one: \(Fuzz.pdus / Self.shards) PDUs, seed \(Fuzz.seed)")
    var chance = SplitMix64(seed: Fuzz.seed &* 1_000_033 &+ UInt64(shard)), both = try Both()
    let source = try PacketSource(seed: chance.next())
    var aclLength = 251
    for index in 0..<Fuzz.pdus / Self.shards {
      if index % 200 == 0 {
        both = try Both()
        let lengths = [1, 5, 9, 27, 27, 251, 251, 521, 1021, 1023]
        aclLength = lengths.randomElement(using: &chance) ?? 27
        if Bool.random(using: &chance) { aclLength = Int.random(in: 1...1023, using: &chance) }
        for handle in Both.handles where Bool.random(using: &chance) {
          both.receive(data(UInt16(handle), [0x02] + little(UInt16.random(in: 0...600, using: &chance))))
          both.drain(handle, aclLength: aclLength)
        }
      }
      let handle = Both.handles.randomElement(using: &chance) ?? 0
      both.offer(on: handle, isShort: aclLength < 20, &chance)
      if Int.random(in: 0..<6, using: &chance) == 0 { both.receive(source.answered(handle, both.plain)) }
      if Int.random(in: 0..<8, using: &chance) == 0 {
        both.receive(data(UInt16(handle), channel: 6, [0x01, 0x03, 0x00, 0x01, 0x10, 0x07, 0x07]))
      }
      for _ in 0..<Int.random(in: 0...3, using: &chance) {
        let length = index % 50 == 0 ? Int.random(in: 20...1023, using: &chance) : aclLength
        both.pull(Both.handles.randomElement(using: &chance) ?? 0, aclLength: length)
      }
      if index % 20 == 19 { for handle in Both.handles { both.drain(handle, aclLength: aclLength) } }
      if both.isWrong("shard \(shard), PDU \(index), ACL length \(aclLength)") { return }
    }
  }
}

/// The layers and the plain path, with the same input.
private final class Both {
  static let handles = [0x0000, 0x0040, 0x0041, 0x0EFF]

  private(set) var plain = PlainHost()
  private var hci = HCILayer(), l2cap = L2CAPLayer(), ends = Ends()
  private var packet = PacketBuffer()
  private let now = Instant.zero + .seconds(1)
  /// The differences between the two.
  private var differences: [String] = []

  init() throws {
    let controller = PaperController()
    hci.start(now: now)
    while !hci.isRunning, packet.fill({ hci.nextCommand(into: &$0, now: now) }) {
      let command = packet.bytes, opcode = HCIOpcode(rawValue: UInt16(command[1]) | UInt16(command[2]) << 8)
      guard let answer = controller.answer(opcode) else { break }
      _ = hci.receive(answer.span, now: now)
    }
    expect(hci.isRunning)
    for handle in Self.handles { open(handle) }
    receive(connectionComplete(0x40))
  }

  /// The link is new: nothing remains of the old one.
  func open(_ handle: Int) {
    plain.links[handle] = PlainLink(handle)
    ends.bearers[handle] = End(handle)
    l2cap.open(
      ConnectionHandle(rawValue: UInt16(handle)), role: .central,
      channels: [L2CAPChannel(.attribute, longestPayload: Bearer.largestMTU)], now: now)
  }

  func isWrong(_ place: String) -> Bool {
    let free = hci.credits.total - plain.outstanding.values.reduce(0, +)
    if hci.credits.free != free { differences.append("\(hci.credits.free) free buffers, not \(free)") }
    if differences.isEmpty { return false }
    Issue.record("seed \(Fuzz.seed), \(place)\n\(differences.joined(separator: "\n"))")
    return true
  }
  private func same(_ found: Happenings, _ expected: Happenings) {
    if found != expected { differences.append("is \(found)\nnot \(expected)") }
  }

  // MARK: Up

  func receive(_ packet: [UInt8]) {
    var said = Happenings()
    switch hci.receive(packet.span, now: now) {
    case .nothing: break
    case .acl(let acl): l2cap.receive(acl, in: packet.span, now: now, into: &ends)
    case .event: said.hci.append(Happening("event", octets: packet))
    case .violation(let violation): said.hci.append(happening(violation))
    case .command, .started, .startFailed: said.hci.append(Happening("of no command"))
    }
    collect(&said)
    same(said, plain.receive(packet))
  }
  private func collect(_ said: inout Happenings) {
    while let effect = l2cap.nextEffect() {
      if case .violation(let link, let violation) = effect, let effects = happening(violation, Int(link.rawValue)) {
        said.l2cap.append(effects)
      }
    }
    for handle in Self.handles { ends.bearers[handle]?.collect(&said) }
  }

  // MARK: Down

  /// One packet; nil when there is none.
  @discardableResult func pull(_ handle: Int, aclLength: Int) -> [UInt8]? {
    let link = ConnectionHandle(rawValue: UInt16(handle))
    var said = Happenings(), expectedSaid = Happenings(), found: [UInt8]?
    repeat {
      let wants = l2cap.hasPacket(for: link, upper: ends)
      found =
        packet.fill { l2cap.nextPacket(for: link, aclLength: aclLength, into: &$0, now: now, from: &ends) }
        ? packet.bytes : nil
      if wants != (found != nil) { differences.append("hasPacket says \(wants)") }
      // The plain path does not answer on the signaling channel.
    } while found.map { $0.count >= 9 && $0[2] >> 4 == 0 && $0[7] == 0x05 && $0[8] == 0 } == true
    collect(&said)
    var expected: [UInt8]?
    do { expected = try plain.links[handle]?.nextPacket(aclLength: aclLength, &expectedSaid) } catch {
      differences.append("\(error)")
    }
    if found != expected {
      differences.append("sends \(found.map(hex) ?? "nothing")\nnot \(expected.map(hex) ?? "nothing")")
    }
    same(said, expectedSaid)
    return found
  }
  func drain(_ handle: Int, aclLength: Int) {
    while differences.isEmpty, pull(handle, aclLength: aclLength) != nil {}
  }

  /// Adds one PDU to those that wait on a link, if there is room.
  func offer(on handle: Int, isShort: Bool, _ chance: inout SplitMix64) {
    guard let end = ends.bearers[handle], var link = plain.links[handle] else { return }
    let attribute = AttributeHandle(rawValue: .random(in: 0...0xFFFF, using: &chance))
    let lengths = [0, 1, 20, 20, link.bearer.mtu - 3, link.bearer.mtu - 2, .random(in: 0...600, using: &chance)]
    let count = isShort ? Int.random(in: 0...30, using: &chance) : lengths.randomElement(using: &chance) ?? 0
    let first = UInt8.random(in: 0...0xFF, using: &chance)
    let value = (0..<count).map { UInt8(truncatingIfNeeded: $0) &+ first }
    let limit = min(link.bearer.mtu - 3, 512), whole: SendAnswer = count > limit ? .cut(to: limit) : .queued
    var answer = whole
    switch Int.random(in: 0..<10, using: &chance) {
    case 0:
      let isFree = link.bearer.indication == nil && !link.bearer.isIndicating
      answer = end.bearer.indicate(attribute, value.span)
      if isFree { link.bearer.indication = link.bearer.pdu(HandleValueIndication.opcode, attribute, value) }
      if answer != (isFree ? whole : .full) { differences.append("indicate answers \(answer)") }
      answer = whole
    case 1:
      var tuples: [UInt8] = [], tuple = HandleLengthValueTuple()
      tuple.attributeHandle = attribute
      for count in [value.count / 3, value.count / 4] {
        tuple.attributeValue = Octets(0, count)
        tuples += (try? tuple.encoded(from: value.span)) ?? []
      }
      guard (8..<link.bearer.mtu).contains(tuples.count) else { break }
      answer = end.bearer.offer(multiple: tuples.span)
      if answer == .queued { link.bearer.queue.append([0x23] + tuples) }
      if answer != .full, answer != .queued { differences.append("multiple answers \(answer)") }
      answer = whole
    case 2, 3:
      answer = end.bearer.offer(command: attribute, value.span, client: end.client)
      if answer.isAccepted { link.bearer.queue.append(link.bearer.pdu(WriteCommand.opcode, attribute, value)) }
    default:
      answer = end.bearer.offer(notification: attribute, value.span)
      if answer.isAccepted {
        link.bearer.queue.append(link.bearer.pdu(HandleValueNotification.opcode, attribute, value))
      }
    }
    if answer == .full ? link.bearer.queue.isEmpty : answer != whole {
      differences.append("an offer answers \(answer)")
    }
    plain.links[handle] = link
  }

  /// Events other than packets.
  func somethingElse(_ chance: inout SplitMix64, _ source: PacketSource) {
    let handle = Self.handles.randomElement(using: &chance) ?? 0
    guard let end = ends.bearers[handle], var link = plain.links[handle] else { return }
    switch Int.random(in: 0..<24, using: &chance) {
    case 0...2 where link.bearer.requests.isEmpty:
      let request = source.request()
      link.bearer.requests.append(request)
      end.client.requests.append(request)
    case 3:
      if end.bearer.exchangeMTU() == link.hasAskedMTU { differences.append("exchangeMTU") }
      link.bearer.wantsMTU = link.bearer.wantsMTU || !link.hasAskedMTU
      link.hasAskedMTU = true
    case 4, 5: return offer(on: handle, isShort: false, &chance)
    case 6 where Int.random(in: 0..<20, using: &chance) == 0: return open(handle)
    case 7:
      for handle in plain.outstanding.keys { hci.credits.setWants(ConnectionHandle(rawValue: UInt16(handle)), true) }
      guard let granted = hci.credits.next() else { return }
      hci.credits.took(granted)
      plain.outstanding[Int(granted.rawValue), default: 0] += 1
    default: return
    }
    plain.links[handle] = link
  }

  // MARK: Effects as texts

  private func happening(_ violation: HCIViolation) -> Happening {
    switch violation {
    case .malformed(let error): Happening("malformed", error: error)
    case .unexpectedPacketType(let type): Happening("unexpected packet type", number: Int(type))
    case .unexpectedAnswer(let opcode): Happening("unexpected answer", number: Int(opcode.rawValue))
    case .completedPacketsOfUnknownLink(let link): Happening("completed of unknown link", Int(link.rawValue))
    case .tooManyCompletedPackets(let link, let count):
      Happening("too many completed", Int(link.rawValue), number: Int(count))
    case .handleInUse(let link): Happening("handle in use", Int(link.rawValue))
    }
  }
  private func happening(_ violation: L2CAPViolation, _ link: Int) -> Happening? {
    switch violation {
    case .unknownLink: Happening("unknown link", link)
    case .illegalHandle: Happening("illegal handle", link)
    case .illegalFlags: Happening("illegal flags", link)
    case .orphanFragment(let count): Happening("orphan", link, number: count)
    case .incompleteFrame(let received, let expected):
      Happening("incomplete", link, octets: little(UInt16(truncatingIfNeeded: received)), number: expected ?? 0)
    case .overlongFragment(let received, let expected):
      Happening("overlong", link, octets: little(UInt16(truncatingIfNeeded: received)), number: expected)
    case .frameTooLong(.leSignaling, _): nil
    case .frameTooLong(let channel, let length):
      Happening("too long", link, octets: little(channel.rawValue), number: length)
    case .frameTooShort(let channel, let length):
      Happening("too short", link, octets: little(channel.rawValue), number: length)
    case .unknownChannel(let channel): Happening("unknown channel", link, number: Int(channel.rawValue))
    case .malformedSignal, .illegalIdentifier, .rejectedSignal, .unexpectedSignal, .tooManySignals, .channel,
      .unexpectedCredits, .channelsRefused, .reconfigurationRefused, .invalidResponse:
      nil
    }
  }
}

/// The layer above L2CAP.
private struct Ends: L2CAPUpper {
  var bearers: [Int: End] = [:]
  mutating func receive(_ payload: Span<UInt8>, on channel: ChannelID, of link: ConnectionHandle, now: Instant) {
    guard channel == .attribute, let end = bearers[Int(link.rawValue)] else { return }
    end.bearer.receive(payload, now: now, server: &end.server, client: &end.client)
  }
  mutating func nextPayload(
    on channel: ChannelID, of link: ConnectionHandle, into output: inout OutputRawSpan, now: Instant
  ) -> Bool {
    guard channel == .attribute, let end = bearers[Int(link.rawValue)] else { return false }
    return end.bearer.nextPDU(into: &output, now: now, client: &end.client)
  }
  func waiting(of link: ConnectionHandle) -> ChannelSet {
    var waiting = ChannelSet()
    if let end = bearers[Int(link.rawValue)], end.bearer.hasPDU(client: end.client) { waiting.insert(.attribute) }
    return waiting
  }
}

/// A bearer with both halves, which write down their calls: the PDUs as they come out of their fields.
private final class End {
  var bearer: Bearer
  var server = Server(), client = Client()
  private let link: Int
  init(_ link: Int) {
    self.link = link
    bearer = Bearer(BearerID(rawValue: UInt16(link)))
  }

  struct Server: AttributeServer {
    var calls: [(String, [UInt8])] = []
    mutating func respond(
      to request: ATTPDU, in packet: Span<UInt8>, as ticket: RequestTicket, now: Instant, response: inout OutputRawSpan
    ) -> ServerAnswer {
      calls.append(("request", encoded(request, from: packet)))
      response.append(packet[0] + 1)
      return .now
    }
    mutating func expired(_ ticket: RequestTicket, now: Instant) { calls.append(("expired", [])) }
    mutating func receive(command: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant) {
      calls.append(("command", encoded(command, from: packet)))
    }
    mutating func confirmed(on bearer: BearerID, now: Instant) { calls.append(("confirmed", [])) }
  }
  struct Client: AttributeClient {
    var calls: [(String, [UInt8])] = []
    var requests: [[UInt8]] = []
    mutating func nextRequest(
      on bearer: BearerID, after commands: UInt64, mtu: Int, into request: inout OutputRawSpan
    ) -> Bool {
      guard !requests.isEmpty else { return false }
      let first = requests.removeFirst()
      request.append(contentsOf: first.span)
      return true
    }
    func hasRequest(on bearer: BearerID) -> Bool { !requests.isEmpty }
    func holdsCommands(on bearer: BearerID) -> Bool { false }
    mutating func receive(response: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, mtu: Int, now: Instant) {
      calls.append(("response", encoded(response, from: packet)))
    }
    mutating func receive(value: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant) {
      calls.append(("value", encoded(value, from: packet)))
    }
    mutating func close(_ reason: BearerClosure, on bearer: BearerID) { calls.append(("close", [])) }
  }

  func collect(_ said: inout Happenings) {
    for (name, octets) in server.calls + client.calls { said.upper.append(Happening(name, link, octets: octets)) }
    server.calls = []
    client.calls = []
    while let effect = bearer.nextEffect() {
      switch effect {
      case .mtuChanged(let mtu): said.att.append(Happening("MTU", link, number: mtu))
      // The queue's own tests check when there is room again.
      case .ready: break
      case .indicationConfirmed: said.att.append(Happening("confirmed", link))
      case .indicationFailed: said.att.append(Happening("indication failed", link))
      case .answeredForApplication: said.att.append(Happening("answered for", link))
      case .closed: said.att.append(Happening("closed", link))
      case .violation(let violation): said.att.append(happening(violation))
      }
    }
  }
  private func happening(_ violation: ATTViolation) -> Happening {
    switch violation {
    case .emptyPDU: Happening("empty", link)
    case .malformed(let opcode, let error): Happening("malformed", link, number: Int(opcode.rawValue), error: error)
    case .unknownOpcode(let opcode): Happening("unknown", link, number: Int(opcode.rawValue))
    case .unexpectedResponse(let opcode): Happening("unexpected response", link, number: Int(opcode.rawValue))
    case .errorForAnotherRequest(let opcode): Happening("error for another", link, number: Int(opcode.rawValue))
    case .unexpectedConfirmation: Happening("unexpected confirmation", link)
    case .requestBeforeResponse(let opcode): Happening("early request", link, number: Int(opcode.rawValue))
    case .requestDropped(let opcode): Happening("dropped", link, number: Int(opcode.rawValue))
    case .indicationBeforeConfirmation(let handle):
      Happening("early indication", link, number: Int(handle.rawValue))
    case .mtuExchangeUnsupported: Happening("MTU exchange unsupported", link)
    case .repeatedMTUExchange: Happening("repeated MTU exchange", link)
    case .mtuTooSmall(let mtu): Happening("MTU too small", link, number: Int(mtu))
    case .longerThanMTU(_, let count, _): Happening("longer than the MTU", link, number: count)
    }
  }
}

/// Random packets of a controller.
private final class PacketSource {
  private var chance: SplitMix64
  /// Valid PDUs by opcode, and events.
  private var pdus: [UInt8: [[UInt8]]] = [:]
  private let opcodes = ATTOpcode.all.map(\.rawValue)
  private let events: [[UInt8]]
  /// The fragments of each link still to send.
  private var waiting: [Int: [[UInt8]]] = [:]
  private var last: [UInt8] = []

  init(seed: UInt64) throws {
    chance = SplitMix64(seed: seed)
    events = try VectorFile("hci.txt").vectors.map(\.octets).filter { $0[0] == 4 }
    for opcode in ATTOpcode.all {
      for round in 0..<24 {
        var arbitrary = WireArbitrary(SplitMix64(seed: seed &+ UInt64(round)))
        if round % 4 == 0 { arbitrary.longest = 120 }
        let pdu = try ATTPDU(opcode, &arbitrary)
        pdus[opcode.rawValue, default: []].append(encoded(pdu, from: arbitrary.arena.span))
      }
    }
  }

  private func one(in count: Int) -> Bool { Int.random(in: 0..<count, using: &chance) == 0 }
  private func pdu(_ opcode: UInt8) -> [UInt8] { pdus[opcode]?.randomElement(using: &chance) ?? [opcode] }
  /// A request that fits any ATT_MTU.
  func request() -> [UInt8] {
    let opcodes: [UInt8] = [0x04, 0x08, 0x0A, 0x0C, 0x10]
    return Array(pdu(opcodes.randomElement(using: &chance) ?? 0x0A).prefix(23))
  }
  /// The link that a packet names.
  func handle(_ packet: [UInt8]) -> Int {
    packet.count > 2 && packet[0] == 2 ? Int(packet[1]) | Int(packet[2] & 0x0F) << 8 : 0x40
  }
  /// A frame that makes the bearer send something, in one packet: a request, an indication, a confirmation.
  func answered(_ handle: Int, _ plain: PlainHost) -> [UInt8] {
    let opcodes: [UInt8] = [0x0A, 0x08, 0x12, 0x1D, 0x1E, 0x04]
    return data(UInt16(handle), pdu(opcodes.randomElement(using: &chance) ?? 0x0A))
  }

  func next(_ plain: PlainHost) -> [UInt8] {
    var packet: [UInt8]
    switch Int.random(in: 0..<20, using: &chance) {
    case 0: packet = completed()
    case 1: packet = event()
    default: packet = fragment(plain)
    }
    if one(in: 25) { packet = damaged(one(in: 4) ? last : packet) }
    last = packet
    return packet
  }

  private func completed() -> [UInt8] {
    let count = Int.random(in: 0...3, using: &chance)
    var packet: [UInt8] = [4, 0x13, UInt8(1 + 4 * count), UInt8(count)]
    for _ in 0..<count {
      let handle = one(in: 6) ? UInt16.random(in: 0...0xFFFF, using: &chance) : one(in: 2) ? 0x40 : 0x41
      packet += little(handle) + little(UInt16.random(in: 0...(one(in: 8) ? 0xFFFF : 2), using: &chance))
    }
    return packet
  }
  private func event() -> [UInt8] {
    let handle: UInt16 = one(in: 2) ? 0x40 : 0x41
    switch Int.random(in: 0..<6, using: &chance) {
    case 0, 1: return connectionComplete(handle)
    case 2: return disconnectionComplete(handle)
    default: return events.randomElement(using: &chance) ?? [4, 0x10, 1, 0]
    }
  }

  /// The next fragment of a link that has some, or the first of a new frame.
  private func fragment(_ plain: PlainHost) -> [UInt8] {
    let handle = one(in: 40) ? 0x0123 : Both.handles.randomElement(using: &chance) ?? 0
    if waiting[handle, default: []].isEmpty { waiting[handle] = fragments(handle, frame(handle, plain)) }
    let packet = waiting[handle]?.removeFirst() ?? []
    switch Int.random(in: 0..<60, using: &chance) {
    // Lost or duplicated.
    case 0: waiting[handle] = Array((waiting[handle] ?? []).dropFirst())
    case 1: waiting[handle]?.insert(packet, at: 0)
    default: break
    }
    return packet
  }
  private func frame(_ handle: Int, _ plain: PlainHost) -> [UInt8] {
    var opcode = opcodes.randomElement(using: &chance) ?? 0x0A
    if let request = plain.links[handle]?.bearer.awaiting, one(in: 2) { opcode = one(in: 6) ? 0x01 : request + 1 }
    var payload = pdu(opcode)
    if opcode == 0x01, payload.count > 1, let request = plain.links[handle]?.bearer.awaiting, one(in: 2) {
      payload[1] = request
    }
    switch Int.random(in: 0..<16, using: &chance) {
    case 0: payload = damaged(payload)
    case 1: payload = Array(payload.dropLast(Int.random(in: 0...payload.count, using: &chance)))
    case 2: payload += (0..<Int.random(in: 1...20, using: &chance)).map { UInt8($0) }
    case 3: payload = (0..<Int.random(in: 0...40, using: &chance)).map { _ in .random(in: 0...0xFF, using: &chance) }
    default: break
    }
    if one(in: 60) {
      let counts = [516, 517, 518, 600, 1200]
      payload += Array(repeating: 7, count: max(0, (counts.randomElement(using: &chance) ?? 0) - payload.count))
    }
    let channels: [UInt16] = [0x0005, 0x0006, 0x0006, 0x0000, 0x0040, 0x0104]
    let channel = one(in: 25) ? channels.randomElement(using: &chance) ?? 4 : 0x0004
    let claimed = one(in: 40) ? UInt16.random(in: 0...80, using: &chance) : UInt16(payload.count)
    return little(claimed) + little(channel) + payload
  }
  /// Mostly whole, else cut anywhere, even into empty fragments.
  private func fragments(_ handle: Int, _ frame: [UInt8]) -> [[UInt8]] {
    var cuts = [0, frame.count]
    if one(in: 3) {
      for _ in 0..<Int.random(in: 1...4, using: &chance) {
        cuts.append(Int.random(in: 0...frame.count, using: &chance))
      }
      if one(in: 3) { cuts.append(Int.random(in: 0...min(5, frame.count), using: &chance)) }
    }
    cuts.sort()
    return zip(cuts, cuts.dropFirst()).enumerated().map { number, cut in
      var flags: UInt16 = number == 0 ? (one(in: 10) ? 0b00 : 0b10) : 0b01
      if one(in: 60) { flags = UInt16.random(in: 0...0xF, using: &chance) }
      return [2] + little(UInt16(handle) | flags << 12) + little(UInt16(cut.1 - cut.0)) + frame[cut.0..<cut.1]
    }
  }
  private func damaged(_ packet: [UInt8]) -> [UInt8] {
    var packet = packet
    switch Int.random(in: 0..<4, using: &chance) {
    case 0: return Array(packet.prefix(Int.random(in: 0...packet.count, using: &chance)))
    case 1: return packet + [UInt8.random(in: 0...0xFF, using: &chance)]
    default:
      guard !packet.isEmpty else { return [] }
      // Headers are at the beginning.
      let most = one(in: 2) ? min(9, packet.count) : packet.count
      packet[Int.random(in: 0..<most, using: &chance)] ^= 1 << UInt8.random(in: 0...7, using: &chance)
      return packet
    }
  }
}
