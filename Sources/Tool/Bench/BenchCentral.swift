import BindruneATT
import Bindrune
import BindruneWire
import BindruneGAP
import BindruneGATT

/// The central's end of `bench`: uses the bench service on a link, and counts.
///
/// Reads come first, on a quiet link. Notifications come last: those still in flight after the stop command would
/// disturb another measurement.
struct BenchCentral: Sendable {
  /// The limits of each measurement.
  struct Plan: Sendable {
    var limit: Seconds
    /// The most operations of each kind.
    var count: Int
    /// Octets of a value and of an SDU; nil: as many as one ATT PDU carries, or eight K-frames.
    var size: Int?
    /// Measure a channel, too.
    var usesChannel = false
  }
  let link: Link
  let plan: Plan
  private let size: Int
  let report: BenchReport
  let interval: Duration
  /// nil: no channel is to be measured.
  private let offer: BenchOffer?
  /// How long to wait for the next value that is still in flight.
  private var patience: Duration { max(.seconds(2), interval * 4) }
  private let stream: RemoteCharacteristic
  private let sample: AttributeHandle, sink: AttributeHandle, control: AttributeHandle, counters: AttributeHandle

  init(_ link: Link, _ plan: Plan, _ report: BenchReport) async throws {
    guard let service = try await link.discoverServices(BenchService.uuid).first else {
      throw Failure("\(link.peer) has no bench service: start `bindrune bench --role peripheral` there.")
    }
    let all = try await link.discoverCharacteristics(of: service)
    func characteristic(_ uuid: BluetoothUUID) throws -> RemoteCharacteristic {
      if let found = all.first(where: { $0.uuid == uuid }) { return found }
      throw Self.otherVersion(link.peer)
    }
    stream = try characteristic(BenchService.streamUUID)
    sample = try characteristic(BenchService.sampleUUID).valueHandle
    sink = try characteristic(BenchService.sinkUUID).valueHandle
    control = try characteristic(BenchService.controlUUID).valueHandle
    counters = try characteristic(BenchService.countersUUID).valueHandle
    _ = try await link.discoverDescriptors(of: stream)
    if plan.usesChannel {
      guard let channel = all.first(where: { $0.uuid == BenchService.channelUUID }) else {
        throw Failure(
          "\(link.peer) offers no channel: start this version of bindrune there, or leave out --channel.")
      }
      guard let offer = BenchOffer(try await link.read(channel.valueHandle)) else {
        throw Self.otherVersion(link.peer)
      }
      self.offer = offer
    } else {
      offer = nil
    }

    let mtu = await link.mtu, longest = min(mtu - 3, BenchService.sizes.upperBound)
    size = plan.size ?? longest
    guard size <= longest else {
      throw Failure("ATT_MTU \(mtu) carries \(longest) octets and --size is \(size): ask for \(longest) at most.")
    }
    interval = await link.parameters?.interval.duration ?? .zero
    self.link = link
    self.plan = plan
    self.report = report
  }
  static func otherVersion(_ peer: PeerID) -> Failure {
    Failure("\(peer) has the bench service of another version: start the same version of bindrune there.")
  }

  /// Runs the measurements in turn; the report keeps partial results if this throws.
  func run() async throws {
    try await report.measure(.reads(octets: BenchService.sampleSize), readSamples)
    try await report.measure(.writes(size: size), writeCommands)
    try await report.measure(.notifications(size: size, interval: interval), receiveNotifications)
    if let offer { try await measureChannel(offer) }
  }

  private func readSamples() async throws {
    try await forTheTime {
      report.update { $0.reads?.begin() }
      for _ in 0..<plan.count {
        _ = try await link.read(sample)
        report.update { $0.reads?.lap() }
      }
    }
  }

  private func writeCommands() async throws {
    let port = try await link.sendPort(.command, to: sink, capacity: BenchService.portCapacity)
    do {
      try await forTheTime {
        var value = [UInt8](repeating: 0, count: size), count = 0
        while count < plan.count {
          try Task.checkCancellation()
          number(&value, count)
          if port.offer(value.span) {
            count += 1
            report.update { $0.writes?.offered = count }
          } else {
            try await port.waitUntilReady()
          }
        }
      }
    } catch {
      // Even if interrupted: while the link is up, the count can still be read.
      _ = await Task { try await withLimit(.seconds(2)) { try await countArrivals() } }.result
      throw error
    }
    var progress = ContinuousClock.now, last = -1
    while true {
      let (arrived, offered) = try await countArrivals()
      if arrived >= offered { return }
      if arrived > last { (last, progress) = (arrived, .now) }
      if .now - progress > patience { return }
    }
  }
  @discardableResult
  private func countArrivals() async throws -> (arrived: Int, offered: Int) {
    let counters = try await readCounters()
    return report.update { results in
      results.writes?.arrived = counters.arrived
      return (counters.arrived.count, results.writes?.offered ?? 0)
    }
  }
  private func readCounters() async throws -> BenchCounters {
    guard let counters = BenchCounters(try await link.read(counters)) else { throw Self.otherVersion(link.peer) }
    return counters
  }

  private func receiveNotifications() async throws {
    let subscription = try await link.subscribe(to: stream)
    try await link.write(BenchOrder(size: size, count: plan.count).octets, to: control)
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask {
        for try await notification in subscription where report.received(notification.value) { return }
        try Task.checkCancellation()
        throw BluetoothError(.disconnected, "The subscription ended before the measurement did: connect again.")
      }
      group.addTask {
        try await Task.sleep(for: plan.limit.duration)
        try await link.write(BenchOrder.stop.octets, to: control)
        let sent = try await readCounters().sent
        report.update { $0.notifications?.sent = sent }
        // The remaining values are in flight.
        var last = -1
        while true {
          let count = report.results.notifications?.received.count ?? 0
          if count == last || count == report.results.notifications?.sent { return }
          last = count
          try await Task.sleep(for: patience)
        }
      }
      defer { group.cancelAll() }
      try await group.next()
    }
    try await subscription.end()
  }

  /// Cancels `body` when the time is over, which is not an error.
  func forTheTime(_ body: @escaping @Sendable () async throws -> Void) async throws {
    _ = try await withLimit(plan.limit.duration, body)
    try Task.checkCancellation()
  }
}
