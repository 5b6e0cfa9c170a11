import BindruneCapture
import BindruneReplay
import BindruneTrace
import BindruneWire

/// Collects a trace for a page, in one pass:
///
///     var collector = ReportCollector()
///     var file = try TraceFile(path: "capture.btsnoop")
///     try file.read(into: &collector)
///     let page = collector.page(title: "capture.btsnoop")
///
/// Memory is bounded by ``mostRecords`` and ``mostOctets``; a longer trace ends there, and the page says so.
public struct ReportCollector: CaptureSink, ~Copyable {
  /// Records of a page; further ones are left out.
  public static var mostRecords: Int { 200_000 }
  /// Octets of all packets of a page.
  public static var mostOctets: Int { 64 << 20 }

  private var sink: DissectingSink<ReportSink>
  private var replay: ReplayCollector?
  private let frames: ClosedRange<Int>
  /// Records that are shown so far.
  public private(set) var records = 0
  /// The trace has records after the last one that the page can hold.
  public private(set) var isCut = false
  private var isDone = false
  var limit = ReportCollector.mostRecords

  /// `frames`: the records that are shown; those before them are learnt from. `replays`: compare the trace's host with
  /// ours, which takes a second pass over the packets.
  public init(
    frames: ClosedRange<Int> = 1...Int.max, identities: [TraceNames.Identity] = [], replays: Bool = true
  ) {
    self.frames = frames
    sink = DissectingSink(ReportSink(frames, identities))
    replay = replays ? ReplayCollector() : nil
  }

  public var wantsMore: Bool { !isDone }
  public mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    if record.number > frames.upperBound {
      isDone = true
      return
    }
    if records >= limit || sink.sink.octets.count > Self.mostOctets {
      isDone = true
      isCut = true
      return
    }
    if record.number >= frames.lowerBound { records += 1 }
    sink.receive(record, bytes)
    if replay?.wantsMore == true { replay?.receive(record, bytes) }
  }
  public mutating func pause() { sink.pause() }

  /// The page, a whole HTML document. `warnings`: sentences about the reading, for its top.
  public consuming func page(title: String, warnings: [String] = [], tool: String = "bindrune") -> [UInt8] {
    var warnings = warnings
    if isCut {
      warnings.append(
        "The trace is longer than a page holds: it ends after \(records) records. --from and --to choose other records."
      )
    }
    var content = ReportContent(sink.sink, frames, title, tool, warnings)
    if let replay { content.compare(replay) }
    return ReportPage.document(content.json(), title: title)
  }
}

/// What the page's script is given.
struct ReportContent {
  private let sink: ReportSink
  private let first: Int
  private let title: String, tool: String, warnings: [String]
  private var strings: ReportStrings
  private var replay: Result<ReplayResult, ReplayError>?

  init(_ sink: ReportSink, _ frames: ClosedRange<Int>, _ title: String, _ tool: String, _ warnings: [String]) {
    self.sink = sink
    first = frames.lowerBound
    self.title = title
    self.tool = tool
    self.warnings = warnings
    strings = sink.strings
  }
  mutating func compare(_ collector: ReplayCollector) {
    do throws(ReplayError) { replay = .success(try Replay(collector).run()) } catch { replay = .failure(error) }
  }
  /// The place of a record among the rows; nil: it is not shown.
  private func place(_ record: Int) -> Int? {
    sink.rows.indices.contains(record - first) ? record - first : nil
  }

  mutating func json() -> [UInt8] {
    var json = ReportJSON(), strings = strings
    let rows = sink.rows
    json.object { json in
      json.add("file", title.printable(limit: 300))
      json.add("tool", tool)
      json.add("first", first)
      json.add("warnings", warnings.map { $0.printable(limit: 500) })
      // JavaScript's numbers hold microseconds until the year 2255.
      json.add("start", Int(rows.first?.time ?? 0))
      var last = rows.first?.time ?? 0
      json.add(
        "times",
        rows.map { row in
          defer { last = row.time }
          return Int(row.time.subtractingReportingOverflow(last).partialValue)
        })
      json.add("flags", rows.map(\.flags))
      json.add("links", rows.map(\.link))
      json.add("shapeOf", rows.map(\.shape))
      json.add("names", rows.map(\.name))
      json.add("meanings", rows.map(\.meaning))
      json.add("handles", rows.map(\.handle))
      json.add("answers", rows.map(\.answers))
      json.add("counts", rows.map(\.count))
      json.add("problems", sparse(rows, \.problem))
      json.add("splits", sparse(rows, \.split))
      json.add("adapters", sparse(rows) { Int($0.adapter) })
      json.add("octets", base64: sink.octets)
      json.list("shapes") { json in for shape in sink.shapes.list { json.add(nil, shape) } }
      write(links: &json, &strings)
      sink.attributes.write(into: &json, &strings, first: first)
      sink.pairings.write(into: &json, &strings, place)
      write(stories: &json)
      write(findings: &json, &strings)
      write(replay: &json, &strings)
      // Last: the others add to them.
      json.add("strings", strings.list)
    }
    return json.output
  }
  /// Place and value of those that are not 0.
  private func sparse(_ rows: [ReportRow], _ value: (ReportRow) -> Int) -> [Int] {
    rows.indices.flatMap { value(rows[$0]) == 0 ? [] : [$0, value(rows[$0])] }
  }

  private func write(links json: inout ReportJSON, _ strings: inout ReportStrings) {
    json.list("connections") { json in
      for link in sink.links.list {
        json.object { json in
          json.add("adapter", Int(link.adapter))
          json.add("handle", Int(link.handle))
          json.add("role", link.role.map { $0 == .central ? 1 : 2 } ?? 0)
          json.add("peer", strings.place(link.peer))
          json.add("name", strings.place(sink.links.name(of: link.peer)))
          json.add("first", place(link.first) ?? -1)
          json.add("last", link.last.flatMap(place) ?? -1)
          json.add("reason", strings.place(link.reason))
          json.add("air", link.isFromAir ? 1 : 0)
          json.add(
            "changes",
            link.story.flatMap { [place($0.record) ?? -1, strings.place($0.about), strings.place($0.text)] })
        }
      }
    }
    json.list("devices") { json in
      for device in sink.links.devices { json.add(nil, [strings.place(device.address), strings.place(device.name)]) }
    }
    json.add("strengths", shown(sink.links.strengths, 3))
    json.add("completed", shown(sink.links.completed, 3))
    json.add("buffers", sink.links.buffers)
  }
  /// Groups of `count` numbers whose first is a record, with its place instead.
  private func shown(_ numbers: [Int], _ count: Int) -> [Int] {
    var result: [Int] = []
    for start in stride(from: 0, to: numbers.count, by: count) {
      guard let place = place(numbers[start]) else { continue }
      result.append(place)
      result += numbers[start + 1..<start + count]
    }
    return result
  }

  /// What happened: of each connection its name, the sentence, and a record and a sentence for each trouble; troubles of
  /// no connection first.
  private func write(stories json: inout ReportJSON) {
    let story = sink.story
    func texts(_ troubles: [LinkStory.Trouble]) -> [String] {
      troubles.flatMap { [String($0.number), $0.sentence.printable()] }
    }
    json.list("stories") { json in
      if !story.troubles.isEmpty { json.add(nil, ["", ""] + texts(story.troubles)) }
      for link in story.links {
        let name = "0x" + hexDigits(UInt64(link.connection), link.connection > 0xFFFF ? 8 : 4)
        let adapter = link.adapter > 0 && link.adapter != .max ? "hci\(link.adapter) " : ""
        json.add(nil, [adapter + name, link.sentence.printable()] + texts(link.troubles))
      }
    }
    json.add("untold", story.untold)
  }
  private func write(findings json: inout ReportJSON, _ strings: inout ReportStrings) {
    let checker = sink.checker
    var rules: [CheckRule: Int] = [:], order: [CheckRule] = []
    json.list("findings") { json in
      for finding in checker.findings {
        guard let place = place(finding.number) else { continue }
        if rules[finding.rule] == nil {
          rules[finding.rule] = order.count
          order.append(finding.rule)
        }
        json.add(
          nil,
          [
            place, rules[finding.rule] ?? 0, strings.place(finding.party.rawValue), strings.place(finding.seen),
            strings.place(finding.allowed),
          ])
      }
    }
    json.list("rules") { json in
      for rule in order { json.add(nil, [rule.id, rule.section, rule.sentence]) }
    }
    json.add("judged", CheckRule.allCases.count { checker.judgements(of: $0) > 0 })
    json.add("ruleCount", CheckRule.allCases.count)
    json.add("findingCount", checker.findingCount)
  }

  /// Divergences that a page shows.
  private static var mostDivergences: Int { 100 }
  private func write(replay json: inout ReportJSON, _ strings: inout ReportStrings) {
    json.object("replay") { json in
      switch replay {
      case nil: json.add("problem", "The replay was left out.")
      case .failure(let error): json.add("problem", error.description)
      case .success(let result):
        json.add("compared", result.comparedCount)
        json.add("equal", result.equalCount)
        json.add("count", result.divergenceCount)
        json.list("divergences") { json in
          for divergence in result.divergences.prefix(Self.mostDivergences) {
            json.object { json in
              json.add("at", place(divergence.number) ?? -1)
              json.add("number", divergence.number)
              json.add("stream", divergence.stream.rawValue)
              json.add("reason", divergence.reason)
              json.add("recorded", ReplayDivergence.lines(divergence.recorded, divergence.stream))
              json.add("ours", ReplayDivergence.lines(divergence.ours, divergence.stream))
            }
          }
        }
        json.list("freedoms") { json in
          for freedom in ReplayFreedom.allCases {
            guard let use = result.freedoms[freedom] else { continue }
            json.add(nil, [freedom.rawValue, freedom.meaning, String(use.count)])
          }
        }
      }
    }
  }
}
