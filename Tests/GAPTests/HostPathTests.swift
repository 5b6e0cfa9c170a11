import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneGAP

/// All layers as HostCore joins them, with two clients on a random database: packets from and to a controller are
/// compared with `PlainServer` and the plain path down.
@Suite("HostCore against the plain path") struct HostPathTests {
  static let shards = 4, steps = 250

  @Test(arguments: 0..<shards) func samePackets(shard: Int) throws {
    let worlds = (Fuzz.pdus / 5 - 1) / (Self.shards * Self.steps) + 1
    print("HostCore against the plain path: \(worlds) databases × \(Self.steps) steps, seed \(Fuzz.seed)")
    for number in 0..<worlds {
      let seed = Fuzz.seed &* 1_000_003 &+ UInt64(number * Self.shards + shard)
      let world = try HostWorld(seed: seed)
      for step in 0..<Self.steps {
        try world.step()
        if let difference = world.difference {
          Issue.record("seed \(seed), step \(step), \(difference)")
          return
        }
      }
    }
  }
}

private final class HostWorld {
  /// A client of our server: its state there, and its link.
  private struct Peer {
    var server: PlainServer
    var link: PlainLink
    var id: LinkID
    var events: [PlainServer.Event] = []
    var values: [Value] = []
  }
  private struct Value: Equatable {
    var handle: UInt16, octets: [UInt8], isIndication: Bool
  }

  private(set) var difference: String?
  private var services: RandomServices
  private var bench: Bench
  private var peers: [Peer] = []
  private var packet = PacketBuffer()
  /// A packet that a call returned.
  private var atOnce: [UInt8]?
  private let aclLength: Int

  init(seed: UInt64) throws {
    services = RandomServices(seed: seed)
    var plain = PlainServer(), controller = PaperController()
    let database = try services.build(into: &plain)
    let lengths = [27, 27, 251, 251, 1021, Int.random(in: 27...1023, using: &services.chance)]
    aclLength = lengths.randomElement(using: &services.chance) ?? 27
    let buffers = UInt8.random(in: 1...8, using: &services.chance)
    controller.buffers = [UInt8(aclLength & 0xFF), UInt8(aclLength >> 8), buffers]
    bench = Bench.started(database, controller: controller)
    bench.isReading = false
    bench.advertise("peers")
    bench.answerAll()
    for (handle, address) in [(0x40, Bench.peer), (0x41, Bench.otherPeer)] {
      bench.receive(connectionComplete(UInt16(handle), .peripheral, address))
      peers.append(Peer(server: plain, link: PlainLink(handle), id: LinkID(rawValue: bench.core.lastLink)))
    }
    bench.forget()
    for peer in peers.indices where services.one(in: 2) {
      let mtu = UInt16.random(in: 20...600, using: &services.chance)
      var said = Happenings()
      deliver([0x02] + little(mtu), to: peer)
      peers[peer].link.bearer.receive([0x02] + little(mtu), &said)
      try exchange("an MTU")
    }
  }

  func step() throws {
    let peer = Int.random(in: 0..<peers.count, using: &services.chance)
    switch Int.random(in: 0..<10, using: &services.chance) {
    case 0: value(to: peer)
    case 1: confirm(peer)
    case 2, 3:
      try notify(peer)
      if services.one(in: 3) { return }
      fallthrough
    default:
      let mtu = peers[peer].link.bearer.mtu
      let request = services.request(to: peers[peer].server, mtu: mtu)
      deliver(request, to: peer)
      if let response = peers[peer].server.respond(to: request, mtu: mtu) {
        peers[peer].link.bearer.responses.append(response)
        // The application's answer keeps its order among the notifications.
        let isApplication = peers[peer].server.events.contains {
          switch $0 {
          case .reads, .writes: true
          case .subscribed, .written: false
          }
        }
        peers[peer].link.bearer.responsePlace = isApplication ? peers[peer].link.bearer.notificationsTaken : 0
      }
      // One database for all of them.
      for other in peers.indices { peers[other].server.attributes = peers[peer].server.attributes }
      peers[peer].events += peers[peer].server.events
      return try exchange(hex(request))
    }
    try exchange("no request")
  }

  /// A frame in up to three fragments.
  private func deliver(_ pdu: [UInt8], to peer: Int) {
    let handle = UInt16(peers[peer].link.handle), frame = little(UInt16(pdu.count)) + little(4) + pdu
    var cuts = [0, frame.count]
    while services.one(in: 4), cuts.count < 4 { cuts.append(Int.random(in: 0...frame.count, using: &services.chance)) }
    cuts.sort()
    for index in 1..<cuts.count {
      let part = frame[cuts[index - 1]..<cuts[index]]
      let header = [2] + little(handle | (index == 1 ? 0x2000 : 0x1000)) + little(UInt16(part.count))
      let packet = header + part
      bench.core.receive(packet.span, now: bench.now)
    }
  }
  /// A notification or an indication for us.
  private func value(to peer: Int) {
    let isIndication = services.one(in: 2), count = Int.random(in: 0...20, using: &services.chance)
    let value = (0..<count).map { UInt8($0 * 3) }, handle = UInt16.random(in: 1...0xFFFF, using: &services.chance)
    let pdu = [isIndication ? 0x1D : 0x1B] + little(handle) + value
    deliver(pdu, to: peer)
    peers[peer].values.append(Value(handle: handle, octets: value, isIndication: isIndication))
    if isIndication { peers[peer].link.bearer.owesConfirmation = true }
  }
  private func confirm(_ peer: Int) {
    guard peers[peer].link.bearer.isIndicating else { return }
    peers[peer].link.bearer.isIndicating = false
    deliver([0x1E], to: peer)
  }
  /// Notifies some of this client's subscriptions.
  private func notify(_ peer: Int) throws {
    for row in peers[peer].server.attributes where services.one(in: 2) {
      guard case .configuration(let handle, _) = row.value else { continue }
      let attribute = AttributeHandle(rawValue: UInt16(handle)), link = peers[peer].id
      let value = (0..<Int.random(in: 0...60, using: &services.chance)).map { UInt8($0) }
      let wanted = peers[peer].server.mayBeSent(handle)
      let notified =
        services.one(in: 2)
        ? notifyAtOnce(peer, value, attribute) : bench.core.notify(value.span, of: attribute, on: link)
      let bearer = peers[peer].link.bearer
      if (notified != nil) != (wanted & 1 != 0) { difference = "notified: \(notified != nil)" }
      if notified?.isAccepted == true {
        peers[peer].link.bearer.queue.append(bearer.pdu(HandleValueNotification.opcode, attribute, value))
        try checkAtOnce(peer)
      }
      let indicated = bench.core.indicate(value.span, of: attribute, on: link)
      if (indicated != nil) != (wanted & 2 != 0) { difference = "indicated: \(indicated != nil)" }
      if indicated?.isAccepted == true {
        peers[peer].link.bearer.indication = bearer.pdu(HandleValueIndication.opcode, attribute, value)
        if bearer.indication != nil || bearer.isIndicating { difference = "a second indication" }
      }
    }
  }

  /// If nothing waits before it, the packet is written at once, and equals the next one of the plain path.
  private func notifyAtOnce(_ peer: Int, _ value: [UInt8], _ attribute: AttributeHandle) -> SendAnswer? {
    let link = peers[peer].id
    var answer: SendAnswer?
    let wrote = packet.fill { output in
      answer = bench.core.notify(value.span, of: attribute, on: link, into: &output)
      return output.byteCount > 0
    }
    if wrote { atOnce = packet.bytes }
    return answer
  }
  /// Checks that `atOnce` is the next packet on the link of `peer`, and frees its buffer.
  private func checkAtOnce(_ peer: Int) throws {
    guard let found = atOnce else { return }
    atOnce = nil
    var said = Happenings()
    let expected = try peers[peer].link.nextPacket(aclLength: aclLength, &said)
    if found != expected {
      difference = "peer \(peer) sends \(hex(found)) at once, not \(expected.map(hex) ?? "nothing")"
    }
    let completed = completedPackets(UInt16(peers[peer].link.handle), 1)
    bench.core.receive(completed.span, now: bench.now)
  }

  /// Runs until both sides are quiet, and compares effects and packets.
  private func exchange(_ what: String) throws {
    var events = peers.map { _ in [PlainServer.Event]() }, values = peers.map { _ in [Value]() }
    var sent = peers.map { _ in [[UInt8]]() }
    repeat {
      while let answer = takeEffects(&events, &values) {
        if let (error, handle) = answer.refusal {
          bench.core.refuse(answer.id, error, about: handle, now: bench.now)
        } else if let value = answer.value {
          bench.core.answerRead(answer.id, value, now: bench.now)
        } else {
          bench.core.answerWrite(answer.id, now: bench.now)
        }
      }
    } while nextPacket(&sent)
    for peer in peers.indices where difference == nil {
      var said = Happenings(), expected: [[UInt8]] = []
      while let packet = try peers[peer].link.nextPacket(aclLength: aclLength, &said) { expected.append(packet) }
      if events[peer] != peers[peer].events {
        difference = "peer \(peer), \(what)\ntells \(events[peer])\nnot \(peers[peer].events)"
      } else if values[peer] != peers[peer].values {
        difference = "peer \(peer), \(what)\nhears \(values[peer])\nnot \(peers[peer].values)"
      } else if sent[peer] != expected {
        difference = "peer \(peer), \(what)\nsends \(sent[peer].map(hex))\nnot \(expected.map(hex))"
      }
      peers[peer].events = []
      peers[peer].values = []
    }
  }
  private func nextPacket(_ sent: inout [[[UInt8]]]) -> Bool {
    guard packet.fill({ bench.core.nextPacket(into: &$0, now: bench.now) }) else { return false }
    take(packet.bytes, &sent)
    return true
  }
  /// The controller sends the packet and frees its buffer. Ignores commands.
  private func take(_ packet: [UInt8], _ sent: inout [[[UInt8]]]) {
    guard packet[0] == 2, let peer = peers.firstIndex(where: { $0.link.handle == Int(packet[1]) }) else { return }
    sent[peer].append(packet)
    let completed = completedPackets(UInt16(peers[peer].link.handle), 1)
    bench.core.receive(completed.span, now: bench.now)
  }
  private func takeEffects(
    _ events: inout [[PlainServer.Event]], _ values: inout [[Value]]
  ) -> PlainAnswer? {
    var answer: PlainAnswer?
    func peer(_ link: LinkID) -> Int { peers.firstIndex { $0.id == link } ?? 0 }
    while let effect = bench.core.nextEffect() {
      switch effect {
      case .subscriptionChanged(let link, let handle, let configuration):
        events[peer(link)].append(.subscribed(Int(handle.rawValue), configuration.rawValue))
      case .written(let link, let handle, let value, let offset):
        events[peer(link)].append(.written(Int(handle.rawValue), offset: offset, bench.core.bytes(of: value)))
      case .readRequested(let id, let link, let handle, let offset):
        events[peer(link)].append(.reads(Int(handle.rawValue), offset: offset))
        answer = PlainAnswer(id, handle, application(handle), from: offset)
      case .writeRequested(let id, let link, let handle, let value, let offset, let following):
        let octets = bench.core.bytes(of: value)
        events[peer(link)].append(.writes(Int(handle.rawValue), offset: offset, octets, following: following))
        if answer == nil { answer = PlainAnswer(id) }
        answer?.write(handle, application(handle))
      case .value(let link, let handle, let value, let isIndication):
        values[peer(link)].append(
          Value(handle: handle.rawValue, octets: bench.core.bytes(of: value), isIndication: isIndication))
      default: break
      }
    }
    return answer
  }
  private func application(_ handle: AttributeHandle) -> PlainServer.Application? {
    peers[0].server.application[Int(handle.rawValue)]
  }
}
