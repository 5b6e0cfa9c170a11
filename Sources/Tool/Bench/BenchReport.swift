import Bindrune
import BindruneTrace
import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneL2CAP
import Synchronization

/// The results of `bench` as a central. Any task may update them; partial results are shown, too.
final class BenchReport: Sendable {
  enum Measurement: Sendable {
    case reads(octets: Int)
    case writes(size: Int)
    case notifications(size: Int, interval: Duration)
    /// SDUs of a channel: returned by the other end, to it, and from it.
    case echoes(octets: Int)
    case sdusOut(size: Int)
    case sdusIn(size: Int)
  }
  struct Results: Sendable {
    struct Reads: Sendable {
      var octets: Int
      var latency = Histogram()
      /// From the first request to the last response.
      var span = Duration.zero
      private var start = ContinuousClock.now, before = ContinuousClock.now
      var perSecond: Double? { span > .zero ? Double(latency.count) / (span / .seconds(1)) : nil }
      init(octets: Int) { self.octets = octets }
      /// The first round trip begins.
      mutating func begin(at now: ContinuousClock.Instant = .now) { (start, before) = (now, now) }
      /// A round trip ends, and the next one begins.
      mutating func lap(at now: ContinuousClock.Instant = .now) {
        latency.add(now - before)
        (before, span) = (now, now - start)
      }
    }
    struct Writes: Sendable {
      var size: Int
      var offered = 0
      /// The other end's count.
      var arrived: Tally?
    }
    struct Notifications: Sendable {
      var size: Int
      var received: Tally
      /// The other end's count, read after the stop command.
      var sent: Int?
      /// How often a value did not follow the one before it.
      var gaps = 0
      fileprivate var next: UInt32 = 0
      /// An SDU; number 0 only starts the time.
      mutating func receiveNumbered(_ sdu: [UInt8]) {
        let number = received.addNumbered(sdu)
        if number != next { gaps += 1 }
        next = number &+ 1
      }
    }
    /// A channel: the parameters and limits of both directions, out first, and what was measured on it.
    struct Channel: Sendable {
      var psm: SPSM
      var mtu: (out: Int, in: Int), mps: (out: Int, in: Int)
      /// Octets a second that the link layer carries; nil: unknown.
      var capacity: (out: Double?, in: Double?)
      var echoes: Reads?
      var out: Writes?
      var `in`: Notifications?
    }
    var reads: Reads?
    var writes: Writes?
    var notifications: Notifications?
    var channel: Channel?
    var isComplete = false
  }

  private let state = Mutex(Results())
  private let json: Bool
  private let plan: BenchCentral.Plan
  init(json: Bool, plan: BenchCentral.Plan) {
    self.json = json
    self.plan = plan
  }

  var results: Results { state.withLock { $0 } }
  @discardableResult
  func update<Result>(_ body: (inout Results) -> Result) -> Result { state.withLock { body(&$0) } }

  /// Returns true after the last value.
  func received(_ value: [UInt8]) -> Bool {
    update { results in
      guard var notifications = results.notifications.take() else { return true }
      defer { results.notifications = notifications }
      notifications.received.add(value.count)
      let number = value.prefix(4).reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
      if number != notifications.next { notifications.gaps += 1 }
      notifications.next = number &+ 1
      if notifications.received.count == plan.count { notifications.sent = plan.count }
      return notifications.received.count == notifications.sent
    }
  }

  /// Runs `body`, which takes this measurement; shows its rate on a terminal, then the result, even if it throws.
  func measure(_ measurement: Measurement, _ body: () async throws -> Void) async throws {
    update { results in
      switch measurement {
      case .reads(let octets): results.reads = Results.Reads(octets: octets)
      case .writes(let size): results.writes = Results.Writes(size: size)
      case .notifications(let size, let interval):
        results.notifications = Results.Notifications(size: size, received: Tally(interval: interval))
      case .echoes(let octets): results.channel?.echoes = Results.Reads(octets: octets)
      case .sdusOut(let size): results.channel?.out = Results.Writes(size: size)
      case .sdusIn(let size):
        results.channel?.in = Results.Notifications(size: size, received: Tally(interval: .zero))
      }
    }
    let start = ContinuousClock.now
    let ticker = Task {
      while !json, Console.isTerminal, !Task.isCancelled {
        Console.status(live(measurement, ContinuousClock.now - start))
        try? await Task.sleep(for: .milliseconds(250))
      }
    }
    let result: Result<Void, any Error>
    do { result = .success(try await body()) } catch { result = .failure(error) }
    ticker.cancel()
    await ticker.value
    Console.status(nil)
    if !json { for line in lines(measurement) { Console.line(line) } }
    try result.get()
  }

  /// A channel has opened.
  func begin(_ channel: Results.Channel) {
    update { $0.channel = channel }
    if !json { for line in channel.lines { Console.line(line) } }
  }

  // MARK: For people

  func live(_ measurement: Measurement, _ elapsed: Duration) -> String {
    let results = results
    func reads(_ words: String, _ reads: Results.Reads?) -> (String, Int, Double?) {
      (words, reads?.latency.count ?? 0, reads?.perSecond)
    }
    func writes(_ words: String, _ writes: Results.Writes?) -> (String, Int, Double?) {
      let offered = writes?.offered ?? 0
      return (words, offered, offered > 0 ? Double(offered) / (elapsed / .seconds(1)) : nil)
    }
    func notifications(_ words: String, _ notifications: Results.Notifications?) -> (String, Int, Double?) {
      (words, notifications?.received.count ?? 0, notifications?.received.perSecond)
    }
    let (words, count, rate) =
      switch measurement {
      case .reads: reads("reads", results.reads)
      case .writes: writes("write commands offered", results.writes)
      case .notifications: notifications("notifications", results.notifications)
      case .echoes: reads("SDUs echoed", results.channel?.echoes)
      case .sdusOut: writes("SDUs offered", results.channel?.out)
      case .sdusIn: notifications("SDUs in", results.channel?.in)
      }
    let time =
      elapsed < plan.limit.duration
      ? "\(decimal(elapsed / .seconds(1), 1)) of \(plan.limit)" : "waiting for the last"
    return "\(words): \(count)\(rate.map { ", \(rateText($0))" } ?? "") · \(time) …"
  }

  private func lines(_ measurement: Measurement) -> [String] {
    let results = results
    switch measurement {
    case .reads: return results.reads?.lines("reads of") ?? []
    case .writes: return results.writes.map { [$0.line("write commands of")] } ?? []
    case .notifications: return results.notifications.map { [$0.line("notifications of")] } ?? []
    case .echoes: return results.channel?.echoes?.lines("echoes of SDUs of") ?? []
    case .sdusOut: return results.channel.flatMap { $0.out?.line("SDUs out, of", $0.capacity.out) }.map { [$0] } ?? []
    case .sdusIn: return results.channel.flatMap { $0.in?.line("SDUs in, of", $0.capacity.in) }.map { [$0] } ?? []
    }
  }

  // MARK: For programs

  func add(to line: inout JSONLine) {
    let results = results
    line.add("complete", results.isComplete)
    line.add("reads", results.reads.map(\.json))
    line.add("writes", results.writes.map { $0.json() })
    line.add("notifications", results.notifications.map { $0.json() })
    if plan.usesChannel { line.add("channel", results.channel.map(\.json)) }
  }
}

extension BenchReport.Results.Reads {
  fileprivate func lines(_ words: String) -> [String] {
    let head = "\(words) \(octets) octets: \(latency.count) round trips"
    guard let rate = perSecond, let shares = latency.shares else { return [head] }
    let times = shares.map { "\($0.name) \(text(of: $0.duration))" }.joined(separator: ", ")
    return [head + " in \(text(of: span)), \(styledRate(rate))", "  " + times] + latency.lines
  }
  fileprivate var json: JSONLine {
    var line = JSONLine(), latencies = JSONLine()
    line.add("octets", octets)
    line.add("count", latency.count)
    line.add("seconds", span / .seconds(1))
    line.add("per_second", perSecond)
    for (name, duration) in latency.shares ?? [] { latencies.add(name, duration / .microseconds(1)) }
    line.add("latency_us", latencies)
    line.add(
      "histogram",
      latency.rows(atMost: .max).filter { $0.count > 0 }.map { row in
        var line = JSONLine()
        line.add("from_us", row.lower / .microseconds(1))
        line.add("to_us", row.upper / .microseconds(1))
        line.add("count", row.count)
        return line
      })
    return line
  }
}
extension BenchReport.Results.Writes {
  fileprivate func line(_ words: String, _ capacity: Double? = nil) -> String {
    let head = "\(words) \(size) octets: "
    guard let arrived else { return head + "\(offered) offered, and the other end did not report how many arrived" }
    return head + "\(arrived.count) of \(offered) arrived" + arrived.rateText + arrived.shareText(capacity)
  }
  fileprivate func json(_ capacity: Double? = nil) -> JSONLine {
    var line = JSONLine()
    line.add("size", size)
    line.add("offered", offered)
    line.add("arrived", arrived?.count)
    line.add(arrived)
    if capacity != nil { line.add("share", arrived?.share(of: capacity)) }
    return line
  }
}
extension BenchReport.Results.Notifications {
  fileprivate func line(_ words: String, _ capacity: Double? = nil) -> String {
    "\(words) \(size) octets: \(received.count)\(sent.map { " of \($0)" } ?? "") received" + received.rateText
      + received.shareText(capacity)
      + (gaps == 0 ? "" : "; \(gaps) not in order: the link, or an end of it, has a defect")
  }
  fileprivate func json(_ capacity: Double? = nil) -> JSONLine {
    var line = JSONLine()
    line.add("size", size)
    line.add("sent", sent)
    line.add("received", received.count)
    line.add("gaps", gaps)
    line.add(received)
    if capacity != nil { line.add("share", received.share(of: capacity)) }
    return line
  }
}
extension BenchReport.Results.Channel {
  fileprivate var lines: [String] {
    let head =
      "channel: PSM \(psm.text); SDUs of up to \(mtu.out) octets out, \(mtu.in) in; "
      + "K-frames of \(mps.out) out, \(mps.in) in"
    guard let out = capacity.out, let back = capacity.in else { return [head] }
    return [head, "  the link layer carries \(kilobytes(out)) out, or \(kilobytes(back)) in"]
  }
  fileprivate var json: JSONLine {
    var line = JSONLine()
    line.add("psm", Int(psm.rawValue))
    line.add("mtu_out", mtu.out)
    line.add("mtu_in", mtu.in)
    line.add("mps_out", mps.out)
    line.add("mps_in", mps.in)
    line.add("capacity_out", capacity.out)
    line.add("capacity_in", capacity.in)
    line.add("echoes", echoes.map(\.json))
    line.add("out", out.map { $0.json(capacity.out) })
    line.add("in", `in`.map { $0.json(capacity.in) })
    return line
  }
}
extension JSONLine {
  /// Everything but the count, whose key differs between the objects.
  mutating func add(_ tally: Tally?) {
    add("octets", tally?.octets)
    add("seconds", tally.map { $0.span / .seconds(1) })
    add("per_second", tally?.perSecond)
    add("octets_per_second", tally?.octetsPerSecond)
  }
}

// MARK: Text

extension Tally {
  /// ` in 5.00 s, 246.1/s, 126 kB/s`; empty where there is no rate.
  var rateText: String {
    guard let perSecond, let octetsPerSecond else { return "" }
    return " in \(text(of: span)), \(styledRate(perSecond)), \(kilobytes(octetsPerSecond))"
  }
  /// Of what the link layer carries, 0 … 1; nil: it is not known, or there is no rate.
  func share(of capacity: Double?) -> Double? {
    guard let capacity, let octetsPerSecond else { return nil }
    return octetsPerSecond / capacity
  }
  /// `, 98.3 %`; empty where there is no share.
  func shareText(_ capacity: Double?) -> String { share(of: capacity).map { ", \(decimal($0 * 100, 1)) %" } ?? "" }
}

extension Histogram {
  /// nil: the histogram is empty.
  fileprivate var shares: [(name: String, duration: Duration)]? {
    guard let p50 = percentile(0.5), let p90 = percentile(0.9), let p99 = percentile(0.99) else { return nil }
    return [("min", shortest), ("p50", p50), ("p90", p90), ("p99", p99), ("max", longest)]
  }
  /// A row for each range; on a terminal with a bar, the longest of 32 columns.
  fileprivate var lines: [String] {
    let rows = rows(atMost: 16), most = rows.map(\.count).max() ?? 0
    return rows.map { row in
      let range = "\(text(of: row.lower)) … \(text(of: row.upper))".leftPadded(24)
      if !Console.isTerminal { return range + ": \(row.count)" }
      let eighths = row.count == 0 ? 0 : max(1, row.count * 32 * 8 / most)
      let bar = String(repeating: "█", count: eighths / 8) + ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8]
      return range + " " + Console.styled(bar.padded(32), .cyan) + " \(row.count)"
    }
  }
}

private func kilobytes(_ octets: Double) -> String { decimal(octets / 1000, 1) + " kB/s" }
/// A number with `digits` digits after the point.
func decimal(_ value: Double, _ digits: Int) -> String {
  let scale = (0..<digits).reduce(1) { scale, _ in scale * 10 }
  let units = Int(min((abs(value) * Double(scale)).rounded(), 9e15)), fraction = String(units % scale)
  let rest = digits == 0 ? "" : "." + String(repeating: "0", count: digits - fraction.utf8.count) + fraction
  return (value < 0 && units > 0 ? "-" : "") + "\(units / scale)" + rest
}
private func rateText(_ perSecond: Double) -> String {
  decimal(perSecond, perSecond < 10 ? 2 : perSecond < 1000 ? 1 : 0) + "/s"
}
private func styledRate(_ perSecond: Double) -> String { Console.styled(rateText(perSecond), .bold) }
/// `873 µs`, `15.02 ms`, `5.00 s`.
func text(of duration: Duration) -> String {
  switch duration {
  case ..<Duration.milliseconds(1): decimal(duration / .microseconds(1), 0) + " µs"
  case ..<Duration.seconds(1): decimal(duration / .milliseconds(1), 2) + " ms"
  default: decimal(duration / .seconds(1), 2) + " s"
  }
}
