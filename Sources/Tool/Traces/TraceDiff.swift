import ArgumentParser
import BindruneCapture
import BindruneTrace
import BindruneWire

struct TraceDiff: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "diff",
    abstract: "Show where two runs of the same thing part.",
    discussion: """
      Compares the commands, events and PDUs of two traces, stream by stream, and shows the first that differ side by \
      side. Connections are matched by peer and by what they do, and streams are aligned: a packet that only one trace \
      has is one difference. --free says what may differ: addresses, handles, random (keys and what chance makes), \
      times (also the order between streams, advertising reports and completed packets) and values (attribute values \
      and advertised data). An address or handle that is free must still stand for the same one throughout.

      Status 0: equal; 1: different; 2: a file could not be read to its end, nothing was compared, or nothing differs \
      but some packets are encrypted, cut or missing.

      --summary compares two versions of a device instead of two runs, packet by packet. It has status 1 if a database \
      differs, round trips differ significantly, or a parameter, an error or a broken rule is in one trace only.

      Examples:
        bindrune trace diff yesterday.btsnoop today.btsnoop
        bindrune trace diff version-1.btsnoop version-2.btsnoop --summary
        bindrune trace diff one.btsnoop two.btsnoop --free times
      """)

  @Argument(help: ArgumentHelp("The first trace.", valueName: "first"), completion: .file())
  var first: String
  @Argument(help: ArgumentHelp("The second trace.", valueName: "second"), completion: .file())
  var second: String
  @Option(
    help: ArgumentHelp(
      "What may differ: addresses, handles, random, times, values; several with commas, or none.", valueName: "list"))
  var free = FreedomList(freedoms: TraceFreedom.usual)
  @Flag(
    help: """
      Compare what two versions of a device do: GATT databases, round trips with a test of significance, parameters, \
      ATT errors, findings of check, throughput.
      """)
  var summary = false
  @Flag(
    help: "Print one JSON object for each stream that differs, and one for the comparison; with --summary one object.")
  var json = false
  @OptionGroup var options: TraceOptions

  func validate() throws {
    // The packets that differ are read again.
    if [first, second].contains(where: { $0 == "-" || $0 == TraceOptions.monitor }) {
      throw ValidationError("diff reads each file twice: name two files.")
    }
  }

  func run() async throws {
    Interruption.outputFailureStatus = 2
    do {
      if summary {
        try summarize()
      } else {
        let difference = TraceDifference(try outline(first), try outline(second))
        try json ? printObjects(difference) : printText(difference)
        try end(isDifferent: !difference.isEqual, difference.insufficiency)
      }
    } catch let failure as Failure {
      // 1 stands for a difference.
      Console.error("Error: \(failure)")
      throw ExitCode(2)
    }
  }
  /// `why`: what differs is not known.
  private func end(isDifferent: Bool, _ why: String?) throws {
    Console.drain()
    if isDifferent { throw ExitCode.failure }
    if let why { throw Failure(why) }
  }
  private func summarize() throws {
    func read(_ path: String) throws -> (summary: TraceSummary, encrypted: Int) {
      let progress = TraceProgress(1)
      defer { progress.end() }
      var sink = MeteredSink(TraceSummary(), progress)
      try options.read(path, into: &sink)
      if Interruption.cause != nil { throw CancellationError() }
      return (sink.dissector.sink, sink.dissector.dissector.encryptedCount)
    }
    let (one, other) = (try read(first), try read(second)), summary = DiffSummary(one.summary, other.summary)
    var why: String?
    if one.encrypted + other.encrypted > 0 {
      why = """
        \(one.encrypted) and \(other.encrypted) packets are encrypted, so what they show is not known; decrypt the \
        captures first.
        """
    }
    if summary.isEmpty {
      why = "Nothing was compared: the traces have nothing of this in common; compare traces of HCI."
    }
    if json { Console.line(summary.object([first, second], summary.isDifferent ? nil : why)) } else { summary.print() }
    try end(isDifferent: summary.isDifferent, why)
  }
  private func outline(_ path: String) throws -> TraceOutline {
    let progress = TraceProgress(1)
    defer { progress.end() }
    var sink = MeteredSink(TraceOutline(free: free.freedoms), progress)
    try options.read(path, into: &sink)
    if Interruption.cause != nil { throw CancellationError() }
    var outline = sink.dissector.sink
    outline.end(encrypted: sink.dissector.dissector.encryptedCount)
    return outline
  }

  /// The packet at `number` as `trace show` has it, its fields one below the other.
  private func packet(_ path: String, _ number: Int?, isAtEnd: Bool) throws -> [String] {
    guard let number else { return [isAtEnd ? "(nothing: the stream has ended)" : "(nothing)"] }
    var filter = TraceFilter()
    filter.frames = number...number
    var sink = DissectingSink(TraceLines(OneLine(), filter: filter))
    try options.read(path, into: &sink, warn: { _ in })
    guard let line = sink.sink.output.line else { return ["record \(number)"] }
    var lines = [line.name]
    if let meaning = line.meaning { lines.append(meaning.printable(limit: 80)) }
    lines += line.fields.split(separator: ", ").map { String($0).printable(limit: 1_000) }
    if let problem = line.problem { lines.append("! " + problem) }
    let shown = hexText(line.octets.prefix(64), separator: " ")
    return lines + [line.octets.count > 64 ? shown + " … (\(line.octets.count) octets)" : shown]
  }
  private struct OneLine: TraceLineSink {
    var line: TraceLine?
    mutating func receive(_ line: TraceLine) { self.line = line }
    mutating func flush() {}
  }

  // MARK: Output

  private static var mostShown: Int { 20 }
  private func printText(_ difference: TraceDifference) throws {
    for lonely in difference.unmatched.prefix(Self.mostShown) { Console.line(Self.sentence(lonely)) }
    if difference.unmatched.count > Self.mostShown {
      Console.line("and \(difference.unmatched.count - Self.mostShown) more connections that one trace lacks")
    }
    if let place = difference.places.first {
      Console.line("First difference: \(Self.name(place)), after \(counted(place.equal, "packet"))")
      func title(_ path: String, _ number: Int?) -> String {
        path.printable() + (number.map { ", record \($0)" } ?? "")
      }
      sideBySide(
        (title(first, place.first), try packet(first, place.first, isAtEnd: place.isAtEnd)),
        (title(second, place.second), try packet(second, place.second, isAtEnd: place.isAtEnd)))
      for hunk in place.hunks.dropFirst().prefix(Self.mostShown) { Console.line("  then \(Self.text(hunk))") }
      let more = place.hunkCount - 1 - Self.mostShown
      if more > 0 { Console.line("  and \(counted(more, "more difference"))") }
    }
    for place in difference.places.dropFirst().prefix(Self.mostShown) {
      var words = "Also \(Self.name(place)): "
      words += place.hunks.prefix(3).map(Self.text).joined(separator: "; ")
      if place.hunkCount > 3 { words += "; and \(place.hunkCount - 3) more" }
      Console.line(words)
    }
    if difference.places.count > Self.mostShown + 1 {
      Console.line("and \(difference.places.count - Self.mostShown - 1) more streams")
    }
    for place in difference.places where place.isCoarse {
      Console.line("\(Self.name(place)) differs in so much that a part of it was not aligned.")
    }
    let noun = difference.compared == 1 ? "packet" : "packets"
    var summary = "\(grouped(difference.equal)) of \(grouped(difference.compared)) \(noun) equal"
    if !difference.places.isEmpty { summary += ", \(counted(difference.places.count, "stream")) differ" }
    if !difference.unmatched.isEmpty {
      summary += ", \(counted(difference.unmatched.count, "connection")) in one trace only"
    }
    let ignored = difference.ignored.0 + difference.ignored.1
    if ignored > 0 { summary += "; not compared: \(grouped(ignored)) that time alone makes" }
    Console.line(
      Console.styled(summary, !difference.isEqual ? .red : difference.insufficiency == nil ? .green : .yellow))
    // Where nothing differs they are why the traces are not called equal.
    if !difference.isEqual { for words in difference.unknowns { Console.warn(words) } }
  }
  private static func name(_ place: TraceDifference.Place) -> String {
    var words = place.stream.description.printable()
    if let (one, other) = place.connections, one != other { words += " (of the second trace: connection \(other))" }
    return words
  }
  private static func text(_ hunk: TraceDifference.Hunk) -> String {
    func text(_ run: TraceDifference.Run) -> String {
      run.count == 1 ? "record \(run.first)" : "\(grouped(run.count)) of records \(run.first) … \(run.last)"
    }
    switch (hunk.first, hunk.second) {
    case (let one?, let other?): return "\(text(one)) against \(text(other))"
    case (let one?, nil): return "\(text(one)) only in the first"
    case (nil, let other?): return "\(text(other)) only in the second"
    case (nil, nil): return "nothing"
    }
  }
  private static func sentence(_ lonely: TraceDifference.Unmatched) -> String {
    let connection = lonely.connection
    var words = "Connection \(connection.ordinal) is only in the \(lonely.isOfFirst ? "first" : "second") trace: "
    if let role = connection.role { words += "\(role.text), " }
    if let peer = connection.peer { words += "peer \(peer.text), " }
    return words + "from record \(connection.firstRecord) on, \(counted(lonely.packets, "packet"))"
  }
  private func printObjects(_ difference: TraceDifference) throws {
    func object(_ run: TraceDifference.Run?) -> JSONLine? {
      run.map {
        var line = JSONLine()
        line.add("first", $0.first)
        line.add("last", $0.last)
        line.add("count", $0.count)
        return line
      }
    }
    for lonely in difference.unmatched {
      var line = JSONLine()
      line.add("connection", lonely.connection.ordinal)
      line.add("onlyIn", lonely.isOfFirst ? "first" : "second")
      line.add("peer", lonely.connection.peer?.text)
      line.add("record", lonely.connection.firstRecord)
      line.add("packets", lonely.packets)
      Console.line(line)
    }
    for (index, place) in difference.places.enumerated() {
      var line = JSONLine()
      line.add("stream", place.stream.description)
      line.add("equal", place.equal)
      line.add("equalInAll", place.equalInAll)
      line.add("first", place.first)
      line.add("second", place.second)
      line.add("onlyFirst", place.onlyFirst)
      line.add("onlySecond", place.onlySecond)
      line.add("differences", place.hunkCount)
      line.add(
        "list",
        place.hunks.map { hunk in
          var line = JSONLine()
          line.add("first", object(hunk.first))
          line.add("second", object(hunk.second))
          return line
        })
      line.add("isCoarse", place.isCoarse)
      if index == 0 {
        line.add("firstPacket", try packet(first, place.first, isAtEnd: place.isAtEnd))
        line.add("secondPacket", try packet(second, place.second, isAtEnd: place.isAtEnd))
      }
      Console.line(line)
    }
    var line = JSONLine()
    line.add("files", [first, second])
    line.add(
      "verdict", !difference.isEqual ? "different" : difference.insufficiency == nil ? "equal" : "not decided")
    line.add("why", difference.insufficiency)
    line.add("equal", difference.equal)
    line.add("compared", difference.compared)
    line.add("streams", difference.places.count)
    line.add("connections", difference.matched.count)
    line.add("unmatched", difference.unmatched.count)
    line.add("ignored", difference.ignored.0 + difference.ignored.1)
    line.add("unknown", difference.unknowns)
    Console.line(line)
  }
}

/// `addresses,times`, or `none`.
struct FreedomList: ExpressibleByArgument {
  var freedoms: Set<TraceFreedom>
  init(freedoms: Set<TraceFreedom>) { self.freedoms = freedoms }
  init?(argument: String) {
    let words = argument.lowercased().split(separator: ",", omittingEmptySubsequences: false)
    if words == ["none"] {
      freedoms = []
      return
    }
    let known = words.compactMap { TraceFreedom(rawValue: String($0)) }
    if known.count < words.count { return nil }
    freedoms = Set(known)
  }
  var defaultValueDescription: String { "addresses,handles,random,times" }
}
