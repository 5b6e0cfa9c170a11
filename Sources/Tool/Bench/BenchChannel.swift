import Bindrune
import BindruneGAP
import BindruneHCI
import BindruneL2CAP
import BindruneWire

/// What the ends of `bench --channel` do on a credit-based channel, one after another.
///
/// The central sends an order: the kind of exchange (8 bits) and a `BenchOrder`. SDUs follow, and one without octets
/// ends the exchange. The server answers that with one without octets, too, and then with `BenchCounters`.
///
/// The SDUs of `sink` and `source` begin with their numbers. Number 0 only starts the receiver's clock: an SDU takes
/// several packets, and the time of the first would be unknown.
enum BenchExchange: UInt8 {
  /// The server returns each SDU.
  case echo
  /// The server counts the SDUs.
  case sink
  /// The server sends the SDUs.
  case source
}

/// Where the server listens, and the longest K-frame that it accepts: the value of the channel characteristic.
struct BenchOffer: Equatable {
  var psm: SPSM
  var mps: Int

  /// The offer of this program.
  static let own = BenchOffer(psm: SPSM(rawValue: 0x0080), mps: Int(ChannelSettings(mtu: UInt16(mtu)).mps))
  /// The longest SDU at either end. It decides how many credits the other end has: enough for the packets of several
  /// connection events.
  static let mtu = 16 * 1024
  init(psm: SPSM, mps: Int) { (self.psm, self.mps) = (psm, mps) }
  var octets: [UInt8] { littleEndian(UInt64(psm.rawValue), 2) + littleEndian(UInt64(mps), 2) }
  init?(_ octets: [UInt8]) {
    guard octets.count == 4 else { return nil }
    psm = SPSM(rawValue: UInt16(octets[0]) | UInt16(octets[1]) << 8)
    mps = Int(octets[2]) | Int(octets[3]) << 8
  }
  /// Octets of an SDU that fills eight K-frames; its length takes two. Vol 3, Part A, §3.4.3.
  static func size(mps: Int) -> Int { 8 * mps - CreditFrame.lengthCount }
}

extension LinkChannel {
  /// Sends the numbered SDUs of an order, until the task is cancelled or the channel ends. `accepted` gets the count,
  /// without number 0.
  fileprivate func sendNumbered(_ order: BenchOrder, accepted: (Int) -> Void) async throws(BluetoothError) {
    var value = [UInt8](repeating: 0, count: order.size)
    for count in 0...order.count {
      number(&value, count)
      try await send(value)
      accepted(count)
    }
  }
}

// MARK: The peripheral's end

extension BenchServer {
  /// Carries out the orders of a channel until it ends, or one is unknown.
  func serve(_ channel: LinkChannel) async throws {
    note(channel.link.id) { $0.hasChannel = true }
    var sdus = channel.received.makeAsyncIterator()
    while let octets = try await sdus.next() {
      // The end that crossed ours.
      if octets.isEmpty { continue }
      guard let exchange = octets.first.flatMap(BenchExchange.init(rawValue:)),
        let order = BenchOrder(Array(octets.dropFirst()), longest: channel.longestSDU)
      else { return }
      var arrived = Tally(interval: .zero), sent = 0
      if exchange == .source {
        sent = try await withThrowingTaskGroup(of: Int.self) { group in
          group.addTask { [self] in
            var sent = 0
            try? await channel.sendNumbered(order) { count in
              sent = count
              if count > 0 { note(channel.link.id) { $0.sdusSent.add(order.size) } }
            }
            return sent
          }
          while let sdu = try await sdus.next(), !sdu.isEmpty {}
          group.cancelAll()
          return try await group.next() ?? 0
        }
      } else {
        while let sdu = try await sdus.next(), !sdu.isEmpty {
          if exchange == .echo {
            try await channel.send(sdu)
          } else {
            arrived.addNumbered(sdu)
            note(channel.link.id) { $0.sdusArrived = arrived }
          }
        }
      }
      try await channel.send([])
      try await channel.send(BenchCounters(arrived: arrived, sent: sent).octets)
    }
  }
}

extension Tally {
  /// Adds an SDU; number 0 only starts the time. Returns the number.
  @discardableResult
  mutating func addNumbered(_ sdu: [UInt8]) -> UInt32 {
    let number = sdu.prefix(4).reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
    if number == 0 { begin() } else { add(sdu.count) }
    return number
  }
}

// MARK: The central's end

extension BenchCentral {
  /// Measures a channel to the server.
  func measureChannel(_ offer: BenchOffer) async throws {
    let channel = try await link.openChannel(psm: offer.psm, mtu: BenchOffer.mtu)
    let own = BenchOffer.own
    let phys = try await link.readPHYs(), length = await link.dataLength
    let settings = BenchReport.Results.Channel(
      psm: offer.psm, mtu: (channel.longestSDU, channel.mtu), mps: (offer.mps, own.mps),
      capacity: (
        linkCapacity(Int(length.transmitOctets), on: phys.transmit, phys.receive, interval: interval),
        linkCapacity(Int(length.receiveOctets), on: phys.receive, phys.transmit, interval: interval)
      ))
    report.begin(settings)
    do {
      let size = plan.size ?? min(BenchOffer.size(mps: offer.mps), channel.longestSDU)
      try await report.measure(.echoes(octets: BenchService.sampleSize)) { try await echo(on: channel) }
      try await report.measure(.sdusOut(size: size)) { try await send(size, on: channel) }
      let back = plan.size ?? min(BenchOffer.size(mps: own.mps), channel.mtu)
      try await report.measure(.sdusIn(size: back)) { try await receive(back, on: channel) }
    } catch {
      try Task.checkCancellation()
      guard error is BluetoothError, case .byPeer? = try await withLimit(.seconds(1), { await channel.closed }) else {
        throw error
      }
      throw Failure("\(link.peer) closed the channel before the measurement had ended: look there for the reason.")
    }
    await channel.close()
  }

  private func echo(on channel: LinkChannel) async throws {
    let sample = [UInt8](0..<UInt8(BenchService.sampleSize))
    try await exchange(.echo, BenchOrder(size: sample.count, count: plan.count), on: channel) {
      report.update { $0.channel?.echoes?.begin() }
      try await channel.send(sample)
    } received: { _ in
      let isLast = report.update { results in
        results.channel?.echoes?.lap()
        guard let echoes = results.channel?.echoes else { return true }
        return echoes.latency.count == plan.count || echoes.span >= plan.limit.duration
      }
      try await channel.send(isLast ? [] : sample)
    }
  }
  private func send(_ size: Int, on channel: LinkChannel) async throws {
    let order = BenchOrder(size: size, count: plan.count)
    let counters = try await exchange(.sink, order, on: channel) {
      try await forTheTime {
        try await channel.sendNumbered(order) { count in report.update { $0.channel?.out?.offered = count } }
      }
      try await channel.send([])
    }
    report.update { $0.channel?.out?.arrived = counters.arrived }
  }
  private func receive(_ size: Int, on channel: LinkChannel) async throws {
    let order = BenchOrder(size: size, count: plan.count)
    let counters = try await exchange(.source, order, on: channel) {
      try await Task.sleep(for: plan.limit.duration)
      try await channel.send([])
    } received: { sdu in
      let count = report.update { results in
        results.channel?.in?.receiveNumbered(sdu)
        return results.channel?.in?.received.count
      }
      // The sleep may be over: a server ignores another end.
      if count == plan.count { try await channel.send([]) }
    }
    report.update { $0.channel?.in?.sent = counters.sent }
  }

  /// Sends the order, runs `body`, and passes on what the server sends until its end.
  @discardableResult
  private func exchange(
    _ exchange: BenchExchange, _ order: BenchOrder, on channel: LinkChannel,
    _ body: @escaping @Sendable () async throws -> Void,
    received: @escaping @Sendable ([UInt8]) async throws -> Void = { _ in }
  ) async throws -> BenchCounters {
    try await channel.send([exchange.rawValue] + order.octets)
    let limit = plan.limit.duration + .seconds(30)
    let counters = try await withLimit(limit) {
      try await withThrowingTaskGroup(of: Void.self) { group in
        group.addTask { try await body() }
        defer { group.cancelAll() }
        var sdus = channel.received.makeAsyncIterator()
        while let sdu = try await sdus.next(), !sdu.isEmpty { try await received(sdu) }
        if let last = try await sdus.next() { return BenchCounters(last) }
        try Task.checkCancellation()
        throw BluetoothError(.disconnected, "The channel ended before the measurement did: connect again.")
      }
    }
    switch counters {
    case let counters??: return counters
    case nil?: throw Self.otherVersion(link.peer)
    case nil: throw Failure("\(link.peer) did not answer on the channel for 30 s: start the bench there again.")
    }
  }
}

/// Octets a second that the link layer carries one way: in each connection interval as many packets of `octets` as fit,
/// each answered by an empty one, and T_IFS after each. nil: LE Coded, whose coding no command tells.
///
/// Vol 6, Part B, §2.1 (preamble, access address, header and CRC), §4.1.1 (150 µs), §4.5.1.
func linkCapacity(_ octets: Int, on phy: PHY, _ back: PHY, interval: Duration) -> Double? {
  func microseconds(_ octets: Int, _ phy: PHY) -> Int? {
    switch phy {
    case .le1M: 8 * (1 + 4 + 2 + octets + 3)
    case .le2M: 4 * (2 + 4 + 2 + octets + 3)
    default: nil
    }
  }
  guard interval > .zero, let data = microseconds(octets, phy), let empty = microseconds(0, back) else { return nil }
  let packets = max(1, Int(interval / .microseconds(data + 150 + empty + 150)))
  return Double(packets * octets) / (interval / .seconds(1))
}
