import BindruneATT
import BindruneHCI
import BindruneTrace
import BindruneWire

/// `bindrune trace diff --summary`: two versions of a device, by what their traces show of them.
struct DiffSummary {
  private let one: TraceSummary, other: TraceSummary
  private var sections: [Section] = []

  /// A comparison: its picture, a sentence, and what differs.
  private struct Section {
    enum Verdict: String { case alike, different, absent = "not shown" }
    var name: String
    var verdict: Verdict
    var picture = "", sentence: String
    var lines: [String] = []
    var objects: [JSONLine] = []
  }

  init(_ one: TraceSummary, _ other: TraceSummary) {
    (self.one, self.other) = (one, other)
    sections = [databases(), roundTrips(), parameters(), failures(), findings(), throughput()]
  }
  var isDifferent: Bool { sections.contains { $0.verdict == .different } }
  /// Nothing was compared.
  var isEmpty: Bool { sections.allSatisfy { $0.verdict == .absent } }

  /// A picture of all, then each comparison that shows something.
  func print() {
    for section in sections {
      let mark = section.verdict == .different ? "≠" : section.verdict == .alike ? "=" : "·"
      let text = "\(mark) \(section.name.padded(16)) \(section.picture.padded(Self.width)) \(section.sentence)"
      switch section.verdict {
      case .different: Console.line(Console.styled(text, .yellow))
      case .alike: Console.line(text)
      case .absent: Console.line(Console.styled(text, .dim))
      }
    }
    for section in sections where !section.lines.isEmpty {
      Console.line("")
      Console.line(Console.styled(section.name, .bold))
      for line in section.lines { Console.line("  " + line) }
    }
  }
  func object(_ files: [String], _ why: String?) -> JSONLine {
    var object = JSONLine()
    object.add("files", files)
    object.add("verdict", isDifferent ? "different" : why == nil ? "alike" : "not decided")
    object.add("why", why)
    for section in sections {
      var line = JSONLine()
      line.add("verdict", section.verdict.rawValue)
      line.add("sentence", section.sentence)
      line.add("list", section.objects)
      object.add(section.name, line)
    }
    return object
  }

  private static var width: Int { 24 }
  /// Parts of a whole as a bar; what is there has at least a column.
  private static func bar(_ parts: [(count: Int, sign: Character)]) -> String {
    let sum = parts.reduce(0) { $0 + $1.count }
    guard sum > 0 else { return "" }
    let text = parts.map { String(repeating: $0.sign, count: $0.count == 0 ? 0 : max(1, $0.count * width / sum)) }
      .joined()
    return String(text.prefix(width))
  }
  /// A bar for each of two numbers, on one scale.
  private static func bars(_ first: Double, _ second: Double) -> (String, String) {
    let most = max(first, second)
    func bar(_ value: Double) -> String {
      most > 0 ? String(repeating: "█", count: value > 0 ? max(1, Int(value / most * Double(width))) : 0) : ""
    }
    return (bar(first), bar(second))
  }

  // MARK: Databases

  private static func name(_ server: TraceSummary.Server) -> String {
    switch server {
    case .host: "the host"
    case .peer(let address): address.map { "the peer \($0.text)" } ?? "a peer of unknown address"
    }
  }
  private func databases() -> Section {
    var section = Section(name: "GATT databases", verdict: .absent, sentence: "no discovery in both traces")
    var (alike, changed, added, removed, unknown, count) = (0, 0, 0, 0, 0, 0)
    for (first, second) in TraceSummary.pairs(one, other) {
      guard let first, let second else {
        let name = (first ?? second).map(Self.name) ?? ""
        section.lines.append("of \(name): only in the \(first == nil ? "second" : "first") trace, not compared")
        continue
      }
      guard let a = one.databases[first], let b = other.databases[second] else { continue }
      let result = ShownDatabase.changes(a, b)
      count += 1
      alike += result.alike
      let title = first == second ? Self.name(first) : "\(Self.name(first)) and \(Self.name(second))"
      if !result.changes.isEmpty { section.lines.append("of \(title), \(counted(result.alike, "attribute")) alike:") }
      for change in result.changes {
        var line = JSONLine()
        line.add("database", title)
        line.add("attribute", change.name)
        line.add("first", change.first)
        line.add("second", change.second)
        line.add("change", Self.kind(change))
        section.objects.append(line)
        if change.isUnknown {
          unknown += 1
          let place = change.first == nil ? "first" : "second"
          section.lines.append(
            Console.styled(
              "? \(change.name)  \(change.first ?? change.second ?? "")  not searched in the \(place) trace", .dim))
          continue
        }
        switch (change.first, change.second) {
        case (nil, let text?):
          added += 1
          section.lines.append(Console.styled("+ \(change.name)  \(text)", .green))
        case (let text?, nil):
          removed += 1
          section.lines.append(Console.styled("− \(change.name)  \(text)", .red))
        case (let before?, let after?):
          changed += 1
          section.lines.append(Console.styled("~ \(change.name)  \(before)  →  \(after)", .yellow))
        case (nil, nil): break
        }
      }
    }
    guard count > 0 else { return section }
    section.verdict = changed + added + removed > 0 ? .different : .alike
    section.picture = Self.bar([(alike, "█"), (changed, "▓"), (removed, "▒"), (added, "░")])
    section.sentence = "█ \(alike) alike, ▓ \(changed) changed, ▒ \(removed) removed, ░ \(added) added"
    if unknown > 0 { section.sentence += ", \(unknown) in one trace and not searched in the other" }
    return section
  }
  private static func kind(_ change: ShownDatabase.Change) -> String {
    if change.isUnknown { return "not searched" }
    return change.first == nil ? "added" : change.second == nil ? "removed" : "changed"
  }

  // MARK: Times

  private func roundTrips() -> Section {
    var section = Section(name: "round trips", verdict: .absent, sentence: "no answered request in both traces")
    var tested = 0, significant = 0, few = 0
    for isIndication in [false, true] {
      for asker in [HCIDirection?.some(.fromHost), .fromController, nil] {
        let trip = ConnectionStatistics.RoundTrip(isIndication: isIndication, asker: asker)
        let (a, b) = (one.roundTrips(of: trip), other.roundTrips(of: trip))
        if a.count == 0 || b.count == 0 { continue }
        let test = RankTest(a, b), noun = isIndication ? "indications" : "requests"
        let title = noun + (asker.map { " of the \($0.party)" } ?? "")
        section.objects.append(Self.object(title, a, b, test))
        guard let shapes = Histogram.shapes([a, b], columns: Self.width) else { continue }
        section.lines.append(title)
        for (name, histogram, shape) in [("first", a, shapes.shapes[0]), ("second", b, shapes.shapes[1])] {
          section.lines.append(
            "  \(name.padded(6)) \(sparkline(shape).padded(Self.width)) \(Self.percentiles(histogram))")
        }
        let (from, to) = (text(of: shapes.from), text(of: shapes.to))
        section.lines.append(
          "         " + from.padded(max(from.count + 1, Self.width - to.count)) + to + "  (equal ratios)")
        section.lines.append("  " + Self.sentence(test, a, b))
        tested += test == nil ? 0 : 1
        few += test == nil ? 1 : 0
        significant += test?.isSignificant == true ? 1 : 0
        if section.picture.isEmpty { section.picture = sparkline(shapes.shapes[0]) }
      }
    }
    guard tested + few > 0 else { return section }
    section.verdict = significant > 0 ? .different : tested > 0 ? .alike : .absent
    section.sentence =
      tested == 0
      ? "fewer than \(RankTest.leastSamples) samples: no claim"
      : "\(significant) of \(tested) significantly different (p < \(decimal(RankTest.significance, 2)))"
    return section
  }
  private static func percentiles(_ times: Histogram) -> String {
    let list = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)].compactMap { name, share in
      times.percentile(share).map { "\(name) \(text(of: $0))" }
    }
    return list.joined(separator: ", ") + ", \(counted(times.count, "sample"))"
  }
  private static func sentence(_ test: RankTest?, _ one: Histogram, _ other: Histogram) -> String {
    guard let test else {
      return "No claim: \(one.count) and \(other.count) samples; the test needs \(RankTest.leastSamples) of each."
    }
    let p = test.p < 0.0001 ? "p < 0.0001" : "p = \(decimal(test.p, 4))"
    let words =
      test.isSignificant
      ? "significant: a time of the second is the \(test.share > 0.5 ? "longer" : "shorter") one in "
        + "\(decimal(100 * max(test.share, 1 - test.share), 0)) % of pairs"
      : "no significant difference"
    return
      "Mann–Whitney U, two-sided, normal approximation with ties: \(p), \(test.first) and \(test.second) samples; \(words)."
  }
  private static func object(_ title: String, _ a: Histogram, _ b: Histogram, _ test: RankTest?) -> JSONLine {
    func object(_ times: Histogram) -> JSONLine {
      var line = JSONLine()
      line.add("samples", times.count)
      for (name, share) in [("p50Ms", 0.5), ("p90Ms", 0.9), ("p99Ms", 0.99)] {
        line.add(name, times.percentile(share).map { $0 / .milliseconds(1) })
      }
      return line
    }
    var line = JSONLine()
    line.add("of", title)
    line.add("first", object(a))
    line.add("second", object(b))
    line.add("test", "Mann-Whitney U, two-sided, normal approximation with ties")
    line.add("leastSamples", RankTest.leastSamples)
    line.add("p", test?.p)
    line.add("secondIsLonger", test?.share)
    line.add("significant", test?.isSignificant)
    return line
  }

  // MARK: Counts

  /// Names with a number in each trace. It differs if a name is in one of them only.
  private func counts(
    _ name: String, _ noun: String, _ first: [String: Int], _ second: [String: Int], isShown: Bool
  ) -> Section {
    let names = Set(first.keys).union(second.keys).sorted()
    let only = (names.count { second[$0] == nil }, names.count { first[$0] == nil })
    var section = Section(
      name: name, verdict: !isShown ? .absent : only.0 + only.1 > 0 ? .different : .alike,
      picture: Self.bar([(names.count - only.0 - only.1, "█"), (only.0, "▒"), (only.1, "░")]),
      sentence: !isShown
        ? "no connection in both traces"
        : "█ \(names.count - only.0 - only.1) in both, ▒ \(only.0) only in the first, ░ \(only.1) only in the second")
    let width = min(60, names.reduce(0) { max($0, $1.count) })
    if !names.isEmpty {
      section.lines.append("\(noun.padded(width)) \("first".leftPadded(8)) \("second".leftPadded(8))")
    }
    for name in names {
      let (a, b) = (first[name], second[name])
      func number(_ count: Int?) -> String { (count.map { grouped($0) } ?? "–").leftPadded(8) }
      let text = "\(name.padded(width)) \(number(a)) \(number(b))"
      section.lines.append(a == nil || b == nil ? Console.styled(text, .yellow) : text)
      var line = JSONLine()
      line.add("name", name)
      line.add("first", a ?? 0)
      line.add("second", b ?? 0)
      section.objects.append(line)
    }
    return section
  }
  private var haveConnections: Bool {
    !one.statistics.connections.isEmpty && !other.statistics.connections.isEmpty
  }
  private func parameters() -> Section {
    func values(_ summary: TraceSummary) -> [String: Int] {
      var result: [String: Int] = [:]
      for change in summary.statistics.connections.flatMap(\.changes) {
        let (heading, words) = change.value.words
        result["\(heading): \(words)", default: 0] += 1
      }
      return result
    }
    return counts("parameters", "value", values(one), values(other), isShown: haveConnections)
  }
  private func failures() -> Section {
    func values(_ summary: TraceSummary) -> [String: Int] {
      var result: [String: Int] = [:]
      for (failure, count) in summary.failures {
        let request =
          failure.request.name.map { "\($0)" } ?? "opcode 0x" + hexDigits(UInt64(failure.request.rawValue), 2)
        result["\(failure.error.description) to \(request), by the \(failure.isHosts ? "host" : "peer")"] = count
      }
      return result
    }
    return counts("ATT errors", "error", values(one), values(other), isShown: haveConnections)
  }
  private func findings() -> Section {
    func values(_ summary: TraceSummary) -> [String: Int] {
      Dictionary(uniqueKeysWithValues: summary.findings.map { ("\($0.key.id) (\($0.key.section))", $0.value) })
    }
    let isShown = one.statistics.records > 0 && other.statistics.records > 0
    return counts("findings", "broken rule", values(one), values(other), isShown: isShown)
  }

  /// It decides nothing: how much an application sends is no property of a device.
  private func throughput() -> Section {
    var section = Section(name: "throughput", verdict: .absent, sentence: "no data in both traces")
    var pictures: [String] = []
    for (name, direction) in [
      ("from the host", HCIDirection?.some(.fromHost)), ("to the host", .fromController), ("air", nil),
    ] {
      let (a, b) = (one.traffic(direction), other.traffic(direction))
      if a.octets == 0 || b.octets == 0 { continue }
      let rates = (Self.rate(a), Self.rate(b)), bars = Self.bars(rates.0, rates.1)
      for (side, rate, bar, octets) in [("first", rates.0, bars.0, a.octets), ("second", rates.1, bars.1, b.octets)] {
        section.lines.append(
          "\(name.padded(13)) \(side.padded(6)) \(bar.padded(Self.width)) \(decimal(rate / 1000, 2)) kB/s, \(counted(octets, "octet"))"
        )
      }
      pictures.append("\(name) \(decimal(rates.0 / 1000, 2)) → \(decimal(rates.1 / 1000, 2)) kB/s")
      var line = JSONLine()
      line.add("of", name)
      line.add("firstPerSecond", rates.0)
      line.add("secondPerSecond", rates.1)
      line.add("firstOctets", a.octets)
      line.add("secondOctets", b.octets)
      section.objects.append(line)
    }
    if !pictures.isEmpty { section.sentence = pictures.joined(separator: ", ") + " (mean; decides nothing)" }
    return section
  }
  private static func rate(_ traffic: (octets: Int, duration: Duration)) -> Double {
    let seconds = traffic.duration / .seconds(1)
    return seconds > 0 ? Double(traffic.octets) / seconds : 0
  }
}
