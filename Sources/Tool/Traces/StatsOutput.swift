import BindruneTrace
import BindruneWire
import BindruneHCI

/// Prints what `bindrune trace stats` has counted, as text or as objects.
struct StatsOutput {
  private(set) var failures = 0
  private var files = 0, records = 0, connections = 0
  private let isJSON: Bool
  private var lines = ""

  init(isJSON: Bool) { self.isJSON = isJSON }

  mutating func print(_ result: StatsResult) {
    files += 1
    records += result.statistics.records
    connections += result.connections.count
    failures += result.error == nil ? 0 : 1
    if isJSON { printObjects(result) } else { printText(result) }
    flush()
    for warning in result.warnings { Console.warn(warning) }
    if let error = result.error { Console.error("Error: \(error)") }
  }
  /// After objects the sentence is no part of the output, so that outputs of several runs can be joined.
  mutating func printTotals() {
    var words = "\(counted(files, "file")): \(counted(records, "record")), \(counted(connections, "connection"))"
    if failures > 0 { words += "; \(counted(failures, "file")) could not be read to the end" }
    if isJSON { return Console.error(words) }
    line(Console.styled(words, failures > 0 ? .red : .green))
    flush()
  }

  private mutating func line(_ words: String) {
    lines += words + "\n"
    if lines.utf8.count > 60_000 { flush() }
  }
  private mutating func flush() {
    if lines.isEmpty { return }
    Console.waitForReader()
    Console.line(String(lines.dropLast()))
    lines = ""
  }

  // MARK: Text

  private mutating func printText(_ result: StatsResult) {
    let statistics = result.statistics, name = result.path.printable()
    // A file without a record has nothing to show but its error.
    if statistics.records == 0, result.error != nil { return }
    var words = [counted(statistics.records, "record")]
    for (count, noun) in [
      (statistics.commands, "command"), (statistics.events, "event"), (statistics.data, "data packet"),
      (statistics.synchronous, "synchronous packet"), (statistics.iso, "ISO packet"),
      (statistics.linkLayer, "link-layer packet"), (statistics.notes, "note"),
      (statistics.advertisingReports, "advertising report"),
    ] where count > 0 {
      words.append(counted(count, noun))
    }
    let span = Self.span(statistics).map { " in \(text(of: $0))" } ?? ""
    line("\(Console.styled(name, .bold)): \(words[0])\(span)" + words.dropFirst().map { ", " + $0 }.joined())
    for told in result.story.lines() { line(told) }
    if statistics.commandTimes.count > 0 { item("commands", Self.times(statistics.commandTimes, "answer")) }
    for connection in result.connections { printText(connection) }
    if statistics.uncounted > 0 {
      line("\(counted(statistics.uncounted, "packet")) of connections after the first \(grouped(connections))")
    }
  }
  /// A line with a heading on the left.
  private mutating func item(_ heading: String, _ words: String) {
    line("  " + Console.styled(heading.padded(12), .dim) + " " + words)
  }
  private static func span(_ statistics: TraceStatistics) -> Duration? {
    guard let first = statistics.firstTime, let last = statistics.lastTime else { return nil }
    let (difference, overflow) = last.subtractingReportingOverflow(first)
    return overflow ? nil : .nanoseconds(difference)
  }
  private static func times(_ times: Histogram, _ noun: String) -> String {
    var words = counted(times.count, noun)
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
      if let duration = times.percentile(share) { words += ", \(name) \(text(of: duration))" }
    }
    return words + ", max \(text(of: times.longest))"
  }

  private mutating func printText(_ link: ConnectionStatistics) {
    var head = link.adapter > 0 && link.adapter != .max ? "hci\(link.adapter) " : ""
    head += "link 0x" + hexDigits(UInt64(link.connection), link.connection > 0xFFFF ? 8 : 4)
    if let peer = link.peer, let role = link.role {
      head += ", \(role.text) to \(peer.text)" + (link.peerType.map { "/\($0.text)" } ?? "")
    }
    head += ", \(text(of: link.duration)), records \(link.firstRecord) … \(link.lastRecord)"
    head += link.ending.map { ", ended: \($0.text)" } ?? ""
    line(Console.styled(head, .cyan))
    amounts("sent", link, .fromHost)
    amounts("received", link, .fromController)
    amounts("on the air", link, nil)
    for (trip, times) in link.roundTrips.sorted(by: { Self.order($0.key) < Self.order($1.key) }) {
      item(trip.heading, Self.times(times, trip.isIndication ? "confirmation" : "response"))
    }
    if !link.changes.isEmpty { changes(link) }
    for channel in link.channels { printText(channel) }
    if link.uncountedChannels > 0 { item("channel", counted(link.uncountedChannels, "further channel")) }
    hints(link)
    for (kind, amount) in link.sortedKinds {
      let arrow =
        switch kind.direction {
        case .fromHost: Console.styled("→", .magenta)
        case .fromController: Console.styled("←", .cyan)
        case nil: " "
        }
      let octets = Console.styled(counted(amount.octets, "octet"), .dim)
      line("    \(arrow) \(kind.name.padded(42)) \(grouped(amount.count).leftPadded(8))  \(octets)")
    }
    if link.otherKinds > 0 { line("      \(counted(link.otherKinds, "PDU")) of further kinds") }
  }
  private static func order(_ trip: ConnectionStatistics.RoundTrip) -> Int {
    (trip.isIndication ? 2 : 0) + (trip.asker == .fromHost ? 0 : 1)
  }
  private mutating func amounts(_ heading: String, _ link: ConnectionStatistics, _ direction: HCIDirection?) {
    let frames = link.frames.of(direction), packets = link.packets.of(direction), series = link.throughput.of(direction)
    if frames.count == 0, packets.count == 0 { return }
    var words = counted(packets.count, "packet") + ", " + counted(frames.count, "frame")
    words += ", " + counted(frames.octets, "octet")
    let seconds = link.duration / .seconds(1)
    if frames.octets > 0, seconds > 0 {
      words += ", mean \(decimal(Double(frames.octets) / seconds / 1000, 2)) kB/s"
      words += ", peak \(decimal(series.peakPerSecond / 1000, 2)) kB/s in \(text(of: .nanoseconds(series.width)))"
    }
    if Console.isTerminal, series.bins.count > 1 { words += " " + Console.styled(sparkline(series.bins), .green) }
    item(heading, words)
  }
  private mutating func changes(_ link: ConnectionStatistics) {
    var last = ""
    for change in link.changes {
      let (heading, words) = change.value.words
      let time = text(of: .nanoseconds(max(0, change.time.subtractingReportingOverflow(link.firstTime).partialValue)))
      item(heading == last ? "" : heading, "\(words)  at \(time), record \(change.number)")
      last = heading
    }
    let more = link.changeCount - link.changes.count
    if more > 0 { item("", counted(more, "further change")) }
  }
  private mutating func printText(_ channel: ChannelStatistics) {
    item(
      "channel",
      "PSM 0x\(hexDigits(UInt64(channel.spsm), 4)), 0x\(hexDigits(UInt64(channel.host), 4)) to the peer's "
        + "0x\(hexDigits(UInt64(channel.peer), 4)), opened by the \(channel.asker.party), \(text(of: channel.duration)), "
        + "records \(channel.openedRecord) … \(channel.lastRecord)" + (channel.isClosed ? ", closed" : ""))
    for (name, stream) in [("sent", channel.sent), ("received", channel.received)] where stream.frames > 0 {
      var words = "\(name) \(counted(stream.sdus, "SDU")) in \(counted(stream.frames, "frame"))"
      words += ", \(counted(stream.octets, "octet"))"
      let seconds = channel.duration / .seconds(1)
      if seconds > 0 { words += ", mean \(decimal(Double(stream.octets) / seconds / 1000, 2)) kB/s" }
      words += "; \(counted(stream.creditPackets, "credit packet"))"
      if stream.waits > 0 {
        words += ", \(counted(stream.waits, "time")) without credit, \(text(of: stream.waited)) in all, "
        words += "\(text(of: stream.longestWait)) at most"
      }
      item("", words)
    }
  }
  private mutating func hints(_ link: ConnectionStatistics) {
    let hints = link.hints
    if hints.completion.count > 0 {
      item(
        "completion",
        Self.times(hints.completion, "event") + (hints.late > 0 ? "; \(grouped(hints.late)) late: retransmission?" : "")
      )
    }
    var words: [String] = []
    for (name, count) in [
      ("Central", hints.repeated.fromHost), ("Peripheral", hints.repeated.toHost),
    ] where count > 0 {
      words.append("\(counted(count, "retransmission")) of the \(name)")
    }
    if hints.violations > 0 { words.append("\(counted(hints.violations, "fragment")) without a frame") }
    if hints.unanswered > 0 { words.append("\(grouped(hints.unanswered)) unanswered") }
    if !words.isEmpty { item("hints", Console.styled(words.joined(separator: ", "), .yellow)) }
  }

  // MARK: JSON

  private mutating func printObjects(_ result: StatsResult) {
    for link in result.connections { line("\(Self.object(link, result.path))") }
    let statistics = result.statistics
    var object = JSONLine()
    object.add("file", result.path)
    object.add("records", statistics.records)
    object.add("seconds", Self.span(statistics).map { $0 / .seconds(1) })
    for (name, count) in [
      ("commands", statistics.commands), ("events", statistics.events), ("data", statistics.data),
      ("synchronous", statistics.synchronous), ("iso", statistics.iso), ("linkLayer", statistics.linkLayer),
      ("notes", statistics.notes), ("advertisingReports", statistics.advertisingReports),
      ("connections", result.connections.count), ("uncounted", statistics.uncounted),
    ] {
      object.add(name, count)
    }
    object.add("commandTimes", Self.object(statistics.commandTimes))
    object.add("stories", result.story.objects)
    if !result.story.troubles.isEmpty { object.add("troubles", result.story.troubles.map(StoryOutput.object)) }
    if let error = result.error { object.add("error", error) }
    line("\(object)")
  }
  private static func milliseconds(_ duration: Duration) -> Double { duration / .milliseconds(1) }
  private static func object(_ times: Histogram) -> JSONLine {
    var object = JSONLine()
    object.add("count", times.count)
    object.add("minMs", times.count == 0 ? nil : milliseconds(times.shortest))
    for (name, share) in [("p50Ms", 0.5), ("p90Ms", 0.9), ("p99Ms", 0.99)] {
      object.add(name, times.percentile(share).map(milliseconds))
    }
    object.add("maxMs", times.count == 0 ? nil : milliseconds(times.longest))
    return object
  }
  private static func object(_ channel: ChannelStatistics) -> JSONLine {
    var object = JSONLine()
    object.add("psm", Int(channel.spsm))
    object.add("enhanced", channel.isEnhanced)
    object.add("openedBy", channel.asker.party)
    object.add("host", "0x" + hexDigits(UInt64(channel.host), 4).lowercased())
    object.add("peer", "0x" + hexDigits(UInt64(channel.peer), 4).lowercased())
    object.add("firstFrame", channel.openedRecord)
    object.add("lastFrame", channel.lastRecord)
    object.add("seconds", channel.duration / .seconds(1))
    object.add("closed", channel.isClosed)
    for (name, stream) in [("sent", channel.sent), ("received", channel.received)] {
      var side = JSONLine()
      side.add(stream)
      side.add("creditPackets", stream.creditPackets)
      side.add("waits", stream.waits)
      side.add("waitedMs", milliseconds(stream.waited))
      side.add("longestWaitMs", milliseconds(stream.longestWait))
      object.add(name, side)
    }
    return object
  }
  private static func object(_ link: ConnectionStatistics, _ path: String) -> JSONLine {
    var object = JSONLine()
    object.add("file", path)
    object.add("adapter", Int(link.adapter))
    object.add("connection", "0x" + hexDigits(UInt64(link.connection), link.connection > 0xFFFF ? 8 : 4).lowercased())
    object.add("peer", link.peer?.text)
    object.add("peerType", link.peerType?.text)
    object.add("role", link.role?.text)
    object.add("firstFrame", link.firstRecord)
    object.add("lastFrame", link.lastRecord)
    object.add("time", Double(link.firstTime) / 1e9)
    object.add("seconds", link.duration / .seconds(1))
    object.add("ending", link.ending?.text)
    object.add("mtu", link.attMTU)
    for (name, direction) in [("sent", HCIDirection?.some(.fromHost)), ("received", .fromController), ("air", nil)] {
      let frames = link.frames.of(direction), packets = link.packets.of(direction)
      let series = link.throughput.of(direction)
      if direction == nil, frames.count == 0, packets.count == 0 { continue }
      var side = JSONLine()
      side.add("packets", packets.count)
      side.add("frames", frames.count)
      side.add("octets", frames.octets)
      side.add("binMs", Double(series.width) / 1e6)
      side.add("bins", series.bins)
      object.add(name, side)
    }
    object.add(
      "pdus",
      link.sortedKinds.map { kind, amount in
        var entry = JSONLine()
        entry.add("layer", kind.layer.rawValue)
        entry.add("opcode", "0x" + hexDigits(UInt64(kind.number), kind.layer == .l2cap ? 4 : 2).lowercased())
        entry.add("name", kind.name)
        entry.add("dir", kind.direction.map { $0 == .fromHost ? "S" : "R" })
        entry.add("count", amount.count)
        entry.add("octets", amount.octets)
        return entry
      })
    object.add(
      "roundTrips",
      link.roundTrips.sorted { order($0.key) < order($1.key) }.map { trip, times in
        var entry = Self.object(times)
        entry.add("of", trip.isIndication ? "indications" : "requests")
        entry.add("from", trip.asker.map { $0 == .fromHost ? "host" : "peer" })
        return entry
      })
    object.add(
      "changes",
      link.changes.map { change in
        var entry = JSONLine()
        entry.add("frame", change.number)
        entry.add("time", Double(change.time) / 1e9)
        entry.add("what", change.value.words.heading)
        entry.add("value", change.value.words.words)
        return entry
      })
    object.add("channels", link.channels.map { Self.object($0) })
    object.add("uncountedChannels", link.uncountedChannels)
    object.add("completion", Self.object(link.hints.completion))
    object.add("late", link.hints.late)
    object.add("retransmitted", link.hints.repeated.fromHost + link.hints.repeated.toHost)
    object.add("lostFragments", link.hints.violations)
    object.add("unanswered", link.hints.unanswered)
    return object
  }
}

/// `▁▂▃▅█`: a bar for each value, the greatest of full height; a space where there is none.
func sparkline(_ values: [Int]) -> String {
  let most = max(1, values.max() ?? 1), bars = Array("▁▂▃▄▅▆▇█")
  return String(values.map { $0 <= 0 ? " " : bars[min(7, Int(Double($0) / Double(most) * 7.999))] })
}

extension HCIDirection {
  /// Who sends.
  var party: String { self == .fromHost ? "host" : "peer" }
}
extension ConnectionStatistics.RoundTrip {
  fileprivate var heading: String {
    switch (isIndication, asker) {
    case (false, .fromHost): "our requests"
    case (false, .fromController): "requests"
    case (false, nil): "requests"
    case (true, .fromHost): "our indic."
    case (true, _): "indications"
    }
  }
}
extension ConnectionStatistics.Sides {
  fileprivate func of(_ direction: HCIDirection?) -> Value {
    switch direction {
    case .fromHost: fromHost
    case .fromController: toHost
    case nil: unknown
    }
  }
}
extension ConnectionStatistics.Change.Value {
  var words: (heading: String, words: String) {
    switch self {
    case .mtu(let mtu): ("MTU", "\(mtu)")
    case .parameters(let interval, let latency, let timeout):
      ("parameters", "interval \(text(of: interval)), latency \(latency), timeout \(text(of: timeout))")
    case .dataLength(let tx, let rx): ("data length", "\(tx) octets sent, \(rx) received")
    case .phy(let tx, let rx): ("PHY", "\(tx.text) sent, \(rx.text) received")
    case .encryption(let isOn): ("encryption", isOn ? "on" : "off")
    }
  }
}

extension JSONLine {
  /// What all objects have of one direction of a channel.
  mutating func add(_ stream: ChannelStatistics.Stream) {
    add("mtu", stream.mtu)
    add("mps", stream.mps)
    add("sdus", stream.sdus)
    add("frames", stream.frames)
    add("octets", stream.octets)
    add("credits", stream.credits)
  }
}
