import BindruneATT
import Bindrune
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import Synchronization

/// The values that crossed a link in one direction.
struct Tally: Sendable, Equatable {
  private(set) var count = 0
  private(set) var octets = 0
  /// From one connection interval before the first value to the last: several values arrive in each connection event,
  /// and the first event takes an interval, too.
  private(set) var span = Duration.zero
  private var start: ContinuousClock.Instant?
  private let interval: Duration

  init(interval: Duration) { self.interval = interval }
  /// What is added from now on counts from now.
  mutating func begin(at now: ContinuousClock.Instant = .now) { start = now }
  /// As reported by the other end.
  init(count: Int = 0, octets: Int = 0, span: Duration = .zero) {
    (self.count, self.octets, self.span, interval) = (count, octets, span, .zero)
  }

  mutating func add(_ octets: Int, at now: ContinuousClock.Instant = .now) {
    count += 1
    self.octets += octets
    let start = start ?? now - interval
    self.start = start
    span = now - start
  }
  /// nil: the span is zero.
  var perSecond: Double? { span > .zero ? Double(count) / (span / .seconds(1)) : nil }
  var octetsPerSecond: Double? { span > .zero ? Double(octets) / (span / .seconds(1)) : nil }
}

/// The service that `bench` measures with, defined by this project. All numbers are little-endian.
///
/// | characteristic | properties | value |
/// |---|---|---|
/// | sample | read | 20 octets, for round trips |
/// | sink | write without response | the server counts the values written |
/// | stream | notify | values sent as fast as possible; their first four octets number them from 0 |
/// | control | write | octets of each value of the stream (16 bits), and how many to send (32 bits); 0 octets: stop |
/// | counters | read | `BenchCounters` of this link |
/// | channel | read | `BenchOffer`: the server's PSM (16 bits), and the longest K-frame that it accepts (16 bits) |
///
/// `BenchExchange` has what goes over the channel. Earlier versions have none.
///
/// The server handles commands and reads in order of arrival: the counters cover all commands that arrived before the
/// read.
struct BenchService: Sendable {
  static let uuid: BluetoothUUID = "B6E00001-F9FF-4FE8-B7C4-C6D0D9BB448A"
  static let sampleUUID: BluetoothUUID = "B6E00002-F9FF-4FE8-B7C4-C6D0D9BB448A"
  static let sinkUUID: BluetoothUUID = "B6E00003-F9FF-4FE8-B7C4-C6D0D9BB448A"
  static let streamUUID: BluetoothUUID = "B6E00004-F9FF-4FE8-B7C4-C6D0D9BB448A"
  static let controlUUID: BluetoothUUID = "B6E00005-F9FF-4FE8-B7C4-C6D0D9BB448A"
  static let countersUUID: BluetoothUUID = "B6E00006-F9FF-4FE8-B7C4-C6D0D9BB448A"
  static let channelUUID: BluetoothUUID = "B6E00007-F9FF-4FE8-B7C4-C6D0D9BB448A"

  /// Octets of a value: from its number alone to the most that ATT allows (Vol 3, Part F, §3.2.9).
  static let sizes = 4...512
  /// Short send queues at both ends: enough to fill any controller's buffers, and soon empty when the time is over.
  static var configuration: HostConfiguration {
    var configuration = HostConfiguration()
    configuration.queueCapacity = 8 * 1024
    return configuration
  }
  static let portCapacity = 2 * 1024

  /// Octets of the sample: one response carries them at any MTU.
  static let sampleSize = 20

  let database: Database
  let sink: AttributeHandle, stream: AttributeHandle, control: AttributeHandle, counters: AttributeHandle

  init(name: String) {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: name)
    builder.genericAttribute()
    (sink, stream, control, counters) = builder.service(Self.uuid) { service in
      service.characteristic(Self.sampleUUID, .read, value: .fixed([UInt8](0..<UInt8(Self.sampleSize))))
      let sink = service.characteristic(Self.sinkUUID, .writeWithoutResponse)
      let stream = service.characteristic(Self.streamUUID, .notify)
      let control = service.characteristic(Self.controlUUID, .write, value: .fixed([UInt8](repeating: 0, count: 6)))
      let counters = service.characteristic(Self.countersUUID, .read, value: .dynamic)
      service.characteristic(Self.channelUUID, .read, value: .fixed(BenchOffer.own.octets))
      return (sink.value, stream.value, control.value, counters.value)
    }
    do { database = try builder.build() } catch { preconditionFailure("the bench's own database: \(error)") }
  }
}

/// The server's counts of a link: write commands, their octets (48 bits), the microseconds that they took (48 bits:
/// `Tally.span`), and the stream values that it queued for sending. 20 octets: one response carries them.
struct BenchCounters: Equatable {
  var arrived: Tally
  var sent: Int

  init(arrived: Tally, sent: Int) {
    self.arrived = arrived
    self.sent = sent
  }
  var octets: [UInt8] {
    let span = UInt64(clamping: arrived.span.nanoseconds / 1000)
    return littleEndian(UInt64(UInt32(clamping: arrived.count)), 4) + littleEndian(UInt64(clamping: arrived.octets), 6)
      + littleEndian(span, 6) + littleEndian(UInt64(UInt32(clamping: sent)), 4)
  }
  init?(_ octets: [UInt8]) {
    guard octets.count == 20 else { return nil }
    func number(_ range: Range<Int>) -> Int { octets[range].reversed().reduce(0) { $0 << 8 | Int($1) } }
    arrived = Tally(count: number(0..<4), octets: number(4..<10), span: .microseconds(number(10..<16)))
    sent = number(16..<20)
  }
}

/// The value of the control characteristic, and a part of an order on a channel.
struct BenchOrder: Equatable {
  var size: Int
  var count: Int
  static let stop = BenchOrder(size: 0, count: 0)

  init(size: Int, count: Int) { (self.size, self.count) = (size, count) }
  var octets: [UInt8] { littleEndian(UInt64(size), 2) + littleEndian(UInt64(count), 4) }
  /// nil: not six octets. A size out of range is clamped.
  init?(_ octets: [UInt8], longest: Int = BenchService.sizes.upperBound) {
    guard octets.count == 6 else { return nil }
    size = Int(octets[0]) | Int(octets[1]) << 8
    count = octets[2...].reversed().reduce(0) { $0 << 8 | Int($1) }
    if size > 0 { size = min(max(size, BenchService.sizes.lowerBound), longest) }
  }
}

/// Writes the number into the first four octets of a value of the stream or for the sink.
func number(_ value: inout [UInt8], _ number: Int) {
  for octet in 0..<4 { value[octet] = UInt8(truncatingIfNeeded: number >> (8 * octet)) }
}
func littleEndian(_ value: UInt64, _ count: Int) -> [UInt8] {
  (0..<count).map { UInt8(truncatingIfNeeded: value >> UInt64(8 * $0)) }
}

/// The peripheral's end of `bench`: serves one central after another, and counts.
final class BenchServer: Sendable {
  /// A central that is, or was, connected.
  struct Client: Sendable {
    let link: Link
    /// Write commands.
    fileprivate(set) var arrived: Tally
    /// Notifications that were queued for sending.
    fileprivate(set) var sent: Tally
    /// It has opened a channel.
    var hasChannel = false
    /// Of the last measurements of its channel.
    var sdusArrived = Tally(interval: .zero), sdusSent = Tally(interval: .zero)
    fileprivate var isSubscribed = false
    fileprivate var order = BenchOrder.stop
    fileprivate var stream: Task<Void, Never>?
    fileprivate init(_ link: Link, interval: Duration) {
      self.link = link
      (arrived, sent) = (Tally(interval: interval), Tally(interval: interval))
    }
  }
  enum Event: Sendable {
    case connected(PeerAddress)
    /// nil: this end stopped, which ends the link.
    case served(Client, HCIStatus?)
  }

  static let defaultName = "Bindrune Bench"
  let service: BenchService
  private let name: String
  private let clients = Mutex<[LinkID: Client]>([:])
  init(name: String) {
    self.name = name
    service = BenchService(name: name)
  }
  var current: [Client] { clients.withLock { Array($0.values) } }

  /// Does not advertise during a connection: that would take air time. The name goes into the scan response, or a long
  /// one into extended PDUs.
  func advertise(on host: BluetoothHost) async throws {
    try await host.advertise(
      AdvertisingData(localName: name, serviceUUIDs: [BenchService.uuid]),
      AdvertisingParameters(interval: .fast, restartsAfterConnection: false))
  }

  /// Advertises and serves until cancelled or the host fails. Calls `begun` when centrals can connect.
  func run(
    on host: BluetoothHost, begun: @Sendable () async -> Void = {},
    _ report: @escaping @Sendable (Event) -> Void = { _ in }
  ) async throws {
    defer {
      for client in current {
        client.stream?.cancel()
        report(.served(client, nil))
      }
    }
    let events = await host.events, listener = try await host.listen(psm: BenchOffer.own.psm, mtu: BenchOffer.mtu)
    try await advertise(on: host)
    await begun()
    try await withThrowingDiscardingTaskGroup { group in
      group.addTask { [self] in
        await withDiscardingTaskGroup { channels in
          do {
            for try await channel in listener { channels.addTask { [self] in try? await serve(channel) } }
          } catch {}  // the host ended: the events have the reason
        }
      }
      defer { group.cancelAll() }
      try await serve(events, on: host, report)
    }
  }
  private func serve(
    _ events: HostSequence<ServerEvent>, on host: BluetoothHost, _ report: @escaping @Sendable (Event) -> Void
  ) async throws {
    for try await event in events {
      switch event {
      case .connected(let link):
        let interval = await link.parameters?.interval.duration ?? .zero
        clients.withLock { $0[link.id] = Client(link, interval: interval) }
        report(.connected(link.peer.firstAddress))
      case .disconnected(let link, let reason):
        if let client = clients.withLock({ $0.removeValue(forKey: link) }) {
          client.stream?.cancel()
          await client.stream?.value
          report(.served(client, reason))
        }
        try await advertise(on: host)
      case .written(let link, let handle, let value, _) where handle == service.sink:
        clients.withLock { $0[link]?.arrived.add(value.count) }
      case .written(let link, let handle, let value, _) where handle == service.control:
        await change(link) { $0.order = BenchOrder(value) ?? .stop }
      case .subscriptionChanged(let link, let handle, let configuration) where handle == service.stream:
        await change(link) { $0.isSubscribed = configuration.contains(.notification) }
      case .readRequested(let request):
        let client = clients.withLock { $0[request.link] }
        let counters = BenchCounters(arrived: client?.arrived ?? Tally(), sent: client?.sent.count ?? 0)
        // A client that has disconnected needs no answer.
        try? await request.respond(counters.octets)
      case .writeRequested(let request): try? await request.reject(.writeNotPermitted)
      case .advertisingStopped(_, let end): try end.check()
      case .subscriptionChanged, .written, .requestUnanswered: break
      }
    }
  }

  func note(_ id: LinkID, _ body: (inout Client) -> Void) {
    clients.withLock { clients in
      guard var client = clients[id] else { return }
      body(&client)
      clients[id] = client
    }
  }
  /// Ends the stream, which makes its count final, and begins another if the client wants one.
  private func change(_ id: LinkID, _ body: (inout Client) -> Void) async {
    let running = clients.withLock { $0[id]?.stream }
    running?.cancel()
    await running?.value
    clients.withLock { clients in
      guard var client = clients[id] else { return }
      body(&client)
      client.stream = nil
      if client.isSubscribed, client.order.size > 0 {
        let link = client.link, order = client.order
        client.stream = Task { [weak self] in try? await self?.stream(order, on: link) }
      }
      clients[id] = client
    }
  }
  private func stream(_ order: BenchOrder, on link: Link) async throws {
    let port = try await link.sendPort(.notification, to: service.stream, capacity: BenchService.portCapacity)
    var value = [UInt8](repeating: 0, count: order.size), count = 0
    while count < order.count, !Task.isCancelled {
      number(&value, count)
      if port.offer(value.span) {
        count += 1
        clients.withLock { $0[link.id]?.sent.add(value.count) }
      } else {
        try await port.waitUntilReady()
      }
    }
  }
}
