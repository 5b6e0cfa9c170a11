// B4: a notification from the call that offers it to the ACL packet for the controller, for 1, 8 and 32 links. B4.queue
// is the performance core alone: NotificationQueue, Fragmenter, DataCredits. B4.host is the same through the whole
// HostCore: the application's `notify`, the server's subscriptions, the drain loop, the controller's events.
//
// A value that nothing else precedes is written into its packet at once; the rows that begin with `x.` measure values
// without a buffer, which wait: as many as the controller has room for are offered, then sent.
//
// The controller has 8 buffers of 251 octets. As in the C bound, it returns all of them when the next notification
// would not fit, and at the end of each repetition.
import BindruneATT
import BindruneSimulator
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP

/// `B4.queue.244.8`: values of 244 octets, 8 links.
struct Grid {
  static let rounds = 1000, buffers = 8, aclLength = 251, mtu = 517
  let valueCount: Int
  let links: Int
  let areWaiting: Bool
  init(_ id: String) {
    let parts = id.split(separator: ".")
    guard parts.count == 4, let valueCount = Int(parts[2]), let links = Int(parts[3]) else { fail("no row \(id)") }
    self.valueCount = valueCount
    self.links = links
    areWaiting = parts[0] == "x"
  }
  /// Packets of one notification.
  var packets: Int { (valueCount + 7 + Grid.aclLength - 1) / Grid.aclLength }
}

/// Receives the packets: counts them and reads their last octets. A call, as the driver's write would be.
@safe struct Emitted {
  var packets: UInt64 = 0, octets: UInt64 = 0, last: UInt64 = 0
  /// Packets that the controller holds, by connection handle. Never freed, like the C bound's.
  let held = UnsafeMutablePointer<Int>.allocate(capacity: 256)
  init() { unsafe held.initialize(repeating: 0, count: 256) }

  @inline(never) mutating func take(_ packet: UnsafeRawBufferPointer) {
    packets &+= 1
    octets &+= UInt64(packet.count &- 1)
    last &+= unsafe UInt64(packet[packet.count &- 1])
    unsafe held[Int(packet[1])] &+= 1
  }
  var sum: UInt64 { packets &+ octets &+ last }
  /// The number of a link's packets in the controller, which it returns.
  mutating func giveBack(_ link: Int) -> Int {
    defer { unsafe held[link] = 0 }
    return unsafe held[link]
  }
  func holdsAny(_ links: Int) -> Bool {
    for link in 1...links where unsafe held[link] > 0 { return true }
    return false
  }
}

/// The measured part: the queue alone, or the whole host.
protocol NotifyingEnd: ~Copyable {
  var emitted: Emitted { get }
  /// Offers a value, and sends all packets that the controller accepts.
  mutating func notify(_ link: Int, _ value: Span<UInt8>)
  /// A value that waits.
  mutating func offer(_ link: Int, _ value: Span<UInt8>)
  mutating func drain()
  /// The controller completes all packets that it holds.
  mutating func giveBack()
}

func measure(_ id: String, _ grid: Grid, _ repetitions: Int, _ batches: Int, _ end: inout some NotifyingEnd & ~Copyable)
{
  let value = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: 512)
  unsafe value.initialize(repeating: 7)
  defer { unsafe value.deallocate() }
  let span = unsafe UnsafeBufferPointer(rebasing: value[..<grid.valueCount]).span
  // Once unmeasured, so that buffers have grown.
  _ = notify(grid, 1, span, &end)
  measure(id, items: Grid.rounds * grid.links, repetitions: repetitions, batches: batches) {
    grid.areWaiting ? wait(grid, $0, span, &end) : notify(grid, $0, span, &end)
  }
}
@inline(never)
func notify(_ grid: Grid, _ repetitions: Int, _ value: Span<UInt8>, _ end: inout some NotifyingEnd & ~Copyable)
  -> UInt64
{
  let before = end.emitted.sum
  for _ in 0..<repetitions {
    var out = 0
    for _ in 0..<Grid.rounds {
      for link in 1...grid.links {
        end.notify(link, value)
        out &+= grid.packets
        if out &+ grid.packets > Grid.buffers {
          end.giveBack()
          out = 0
        }
      }
    }
    while end.emitted.holdsAny(grid.links) { end.giveBack() }
  }
  return end.emitted.sum &- before
}
@inline(never)
func wait(_ grid: Grid, _ repetitions: Int, _ value: Span<UInt8>, _ end: inout some NotifyingEnd & ~Copyable) -> UInt64
{
  let before = end.emitted.sum
  for _ in 0..<repetitions {
    var out = 0
    for _ in 0..<Grid.rounds {
      for link in 1...grid.links {
        end.offer(link, value)
        out &+= grid.packets
        if out &+ grid.packets > Grid.buffers {
          end.drain()
          end.giveBack()
          out = 0
        }
      }
    }
    end.drain()
    while end.emitted.holdsAny(grid.links) { end.giveBack() }
  }
  return end.emitted.sum &- before
}

// MARK: - The queue alone

/// The parts of one link that turn values into packets.
struct QueueLink: ~Copyable {
  var queue = NotificationQueue(capacity: 16 * 1024)
  var fragmenter = Fragmenter(longestPayload: Grid.mtu)
}

@safe struct QueueEnd: ~Copyable, NotifyingEnd {
  let links: UnsafeMutablePointer<QueueLink>
  let count: Int
  var credits = DataCredits()
  var emitted = Emitted()
  let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 1100, alignment: 64)

  init(_ grid: Grid) {
    count = grid.links
    unsafe links = .allocate(capacity: count + 1)
    credits.configure(aclLength: Grid.aclLength, total: Grid.buffers)
    for link in 1...count {
      unsafe (links + link - 1).initialize(to: QueueLink())
      credits.open(ConnectionHandle(rawValue: UInt16(link)))
    }
  }

  @inline(__always) mutating func notify(_ link: Int, _ value: Span<UInt8>) {
    let handle = ConnectionHandle(rawValue: UInt16(truncatingIfNeeded: link))
    // As in HostCore: a value that nothing else precedes goes directly into its packet.
    if unsafe links[link &- 1].queue.isEmpty && links[link &- 1].fragmenter.isEmpty, credits.takeAtOnce(handle) {
      var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
      Fragmenter.begin(&output)
      _ = NotificationQueue.write(
        HandleValueNotification.opcode, AttributeHandle(rawValue: 3), value, limit: 512, into: &output)
      unsafe links[link &- 1].fragmenter.seal(
        from: 0, on: .attribute, of: handle, aclLength: credits.aclLength, &output)
      let count = unsafe output.finalize(for: room)
      unsafe emitted.take(UnsafeRawBufferPointer(rebasing: room[..<count]))
      if unsafe links[link &- 1].fragmenter.isEmpty { return }
      credits.setWants(handle, true)
      return drain()
    }
    offer(link, value)
    drain()
  }
  @inline(__always) mutating func offer(_ link: Int, _ value: Span<UInt8>) {
    let answer = unsafe links[link &- 1].queue.offer(
      HandleValueNotification.opcode, AttributeHandle(rawValue: 3), value, limit: 512)
    guard answer.isAccepted else { fail("the queue is full") }
    credits.setWants(ConnectionHandle(rawValue: UInt16(truncatingIfNeeded: link)), true)
  }
  @inline(__always) mutating func drain() {
    while let handle = credits.next() {
      let link = Int(handle.rawValue) &- 1
      var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
      if unsafe links[link].fragmenter.isEmpty {
        Fragmenter.begin(&output)
        _ = unsafe links[link].queue.pull(into: &output)
        unsafe links[link].fragmenter.seal(
          from: 0, on: .attribute, of: handle, aclLength: credits.aclLength, &output)
      } else {
        _ = unsafe links[link].fragmenter.writeNext(of: handle, aclLength: credits.aclLength, into: &output)
      }
      let isDone = unsafe links[link].fragmenter.isEmpty && links[link].queue.isEmpty
      credits.took(handle, wantsMore: !isDone)
      let count = unsafe output.finalize(for: room)
      unsafe emitted.take(UnsafeRawBufferPointer(rebasing: room[..<count]))
    }
  }
  mutating func giveBack() {
    for link in 1...count {
      let held = emitted.giveBack(link)
      if held > 0, credits.completed(ConnectionHandle(rawValue: UInt16(link)), held) != nil {
        fail("too many completed")
      }
    }
    drain()
  }
}

func queue(_ id: String, _ repetitions: Int, _ batches: Int) {
  let grid = Grid(id)
  var end = QueueEnd(grid)
  measure(id, grid, repetitions, batches, &end)
}

// MARK: - Through the host

/// A host with links to subscribed clients, and a scripted controller.
@safe struct HostEnd: ~Copyable, NotifyingEnd {
  var core: HostCore
  var links: [LinkID] = []
  var emitted = Emitted()
  let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 1100, alignment: 64)
  static let value = AttributeHandle(rawValue: 3), configuration = 4

  init(_ grid: Grid) {
    var builder = DatabaseBuilder(), chance = NoChance()
    builder.service("180D") { _ = $0.characteristic("2A37", .notify) }
    var configuration = HostConfiguration()
    configuration.queueCapacity = 16 * 1024  // x.host fills the queue with a batch of values
    do {
      core = HostCore(configuration: configuration, database: try builder.build(), chance: &chance)
    } catch { fail("\(error)") }
    // A virtual controller answers the commands of the start; events alone make the links.
    var air = Air(configuration: .ideal)
    var kind = ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301))
    kind.aclBufferCount = UInt8(Grid.buffers)
    kind.aclDataLength = UInt16(Grid.aclLength)
    let controller = air.addController(kind)
    core.start(now: .zero)
    converse(&air, controller)
    guard core.isRunning else { fail("the host does not start") }
    for link in 1...grid.links {
      let handle = UInt8(link)
      receive([
        0x04, 0x3E, 0x13, 0x01, 0x00, handle, 0x00, 0x01, 0x00, handle, 0x53, 0x00, 0x5E, 0x00, 0x00, 0x06, 0x00, 0x00,
        0x00, 0xF4, 0x01, 0x00,
      ])
      converse(&air, controller)
      request([0x02, UInt8(Grid.mtu & 0xFF), UInt8(Grid.mtu >> 8)], link)
      request([0x12, UInt8(HostEnd.configuration), 0x00, 0x01, 0x00], link)
    }
    guard links.count == grid.links else { fail("\(links.count) links") }
    emitted = Emitted()
  }
  private mutating func converse(_ air: inout Air, _ controller: ControllerID) {
    for effect in core.converse(&air, controller) { take(effect) }
  }
  private mutating func receive(_ packet: [UInt8]) {
    core.receive(packet.span, now: .zero)
    takeEffects()
  }
  /// A request of the client at the other end of a link, and its response to it.
  private mutating func request(_ pdu: [UInt8], _ link: Int) {
    let count = UInt8(pdu.count)
    receive([0x02, UInt8(link), 0x20, count + 4, 0x00, count, 0x00, 0x04, 0x00] + pdu)
    drain()
    giveBack()
  }
  @inline(__always) mutating func takeEffects() {
    while let effect = core.nextEffect() { take(effect) }
  }
  @inline(__always) private mutating func take(_ effect: HostEffect) {
    if case .linkUp(let link, _, _, _) = effect { links.append(link) }
  }

  @inline(__always) mutating func notify(_ link: Int, _ value: Span<UInt8>) {
    var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
    let answer = core.notify(value, of: HostEnd.value, on: links[link &- 1], into: &output)
    guard answer?.isAccepted == true else { fail("not taken") }
    let count = unsafe output.finalize(for: room)
    if count > 0 { unsafe emitted.take(UnsafeRawBufferPointer(rebasing: room[..<count])) }
    drain()
  }
  @inline(__always) mutating func offer(_ link: Int, _ value: Span<UInt8>) {
    guard core.notify(value, of: HostEnd.value, on: links[link &- 1])?.isAccepted == true else { fail("not taken") }
  }
  @inline(__always) mutating func drain() {
    while true {
      var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
      let wrote = core.nextPacket(into: &output, now: .zero)
      let count = unsafe output.finalize(for: room)
      takeEffects()
      guard wrote else { return }
      unsafe emitted.take(UnsafeRawBufferPointer(rebasing: room[..<count]))
    }
  }
  /// Number Of Completed Packets: all that the controller holds. Vol 4, Part E, §7.7.19.
  mutating func giveBack() {
    var event = InlineArray<40, UInt8>(repeating: 0), entries = 0
    for link in 1...links.count {
      let held = emitted.giveBack(link)
      guard held > 0 else { continue }
      event[4 &+ 4 &* entries] = UInt8(link)
      event[6 &+ 4 &* entries] = UInt8(held)
      entries &+= 1
    }
    guard entries > 0 else { return }
    event[0] = 0x04
    event[1] = 0x13
    event[2] = UInt8(1 &+ 4 &* entries)
    event[3] = UInt8(entries)
    core.receive(event.span.extracting(first: 4 &+ 4 &* entries), now: .zero)
    takeEffects()
    drain()
  }
}

func host(_ id: String, _ repetitions: Int, _ batches: Int) {
  let grid = Grid(id)
  var end = HostEnd(grid)
  measure(id, grid, repetitions, batches, &end)
}

/// x.core: the cost of a value that arrives, for a host with 1, 8 or 32 links: each link in turn receives one, and
/// after each the driver takes packets, effects and the deadline.
func core(_ id: String, _ repetitions: Int, _ batches: Int) {
  let grid = Grid(id)
  var end = HostEnd(grid)
  let value = [0x1B, UInt8(HostEnd.configuration), 0x00] + [UInt8](repeating: 7, count: grid.valueCount)
  let count = UInt8(value.count)
  let packets = (1...grid.links).map { [0x02, UInt8($0), 0x20, count + 4, 0x00, count, 0x00, 0x04, 0x00] + value }
  _ = arrive(1, packets, &end)
  measure(id, items: Grid.rounds * grid.links, repetitions: repetitions, batches: batches) { arrive($0, packets, &end) }
}
@inline(never) func arrive(_ repetitions: Int, _ packets: [[UInt8]], _ end: inout HostEnd) -> UInt64 {
  var sum: UInt64 = 0
  for _ in 0..<repetitions * Grid.rounds {
    for packet in packets {
      end.core.receive(packet.span, now: .zero)
      var output = unsafe OutputRawSpan(buffer: end.room, initializedCount: 0)
      if end.core.nextPacket(into: &output, now: .zero) { fail("nothing was to be sent") }
      _ = unsafe output.finalize(for: end.room)
      while let effect = end.core.nextEffect() {
        guard case .value(_, _, let range, _) = effect else { fail("no value has arrived") }
        sum &+= end.core.withBytes(of: range) { UInt64($0.count) &+ UInt64($0[0]) }
      }
      if end.core.deadline != nil { sum &+= 1 }
    }
  }
  return sum
}

/// Private addresses are not used here.
struct NoChance: RandomNumberGenerator {
  mutating func next() -> UInt64 { 4 }
}
