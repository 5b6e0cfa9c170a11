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
      side. --free says what may differ: addresses, handles, random (keys and what chance makes), times (also the \
      order between streams, advertising reports and completed packets) and values (attribute values and advertised \
      data). An address or handle that is free must still stand for the same one throughout.

      Status 0: equal; 1: different; 2: a file could not be read to its end.

      Examples:
        bindrune trace diff yesterday.btsnoop today.btsnoop
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
  @Flag(help: "Print one JSON object for each stream that differs, and one for the comparison.")
  var json = false
  @OptionGroup var options: TraceOptions

  func validate() throws {
    // The packets that differ are read again.
    if [first, second].contains(where: { $0 == "-" || $0 == TraceOptions.monitor }) {
      throw ValidationError("diff reads each file twice: name two files.")
    }
  }

  func run() async throws {
    let difference: TraceDifference
    do {
      difference = TraceDifference(try outline(first), try outline(second))
      try json ? printObjects(difference) : printText(difference)
    } catch let failure as Failure {
      // 1 stands for a difference.
      Console.error("Error: \(failure)")
      throw ExitCode(2)
    }
    if !difference.isEqual { throw ExitCode.failure }
  }
  private func outline(_ path: String) throws -> TraceOutline {
    let progress = TraceProgress(1)
    defer { progress.end() }
    var sink = MeteredSink(TraceOutline(free: free.freedoms), progress)
    try options.read(path, into: &sink)
    if Interruption.cause != nil { throw CancellationError() }
    return sink.dissector.sink
  }

  /// The packet at `number` as `trace show` has it, its fields one below the other.
  private func packet(_ path: String, _ number: Int?) throws -> [String] {
    guard let number else { return ["(nothing: the stream has ended)"] }
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

  private func printText(_ difference: TraceDifference) throws {
    if let place = difference.places.first {
      Console.line("First difference: \(place.stream.description.printable()), after \(counted(place.equal, "packet"))")
      func title(_ path: String, _ number: Int?) -> String {
        path.printable() + (number.map { ", record \($0)" } ?? "")
      }
      sideBySide(
        (title(first, place.first), try packet(first, place.first)),
        (title(second, place.second), try packet(second, place.second)))
    }
    for place in difference.places.dropFirst().prefix(20) {
      let words = [place.first, place.second].map { $0.map { "record \($0)" } ?? "the end" }
      Console.line("Also \(place.stream.description.printable()): \(words[0]) and \(words[1])")
    }
    if difference.places.count > 21 { Console.line("and \(difference.places.count - 21) more streams") }
    var summary = "\(grouped(difference.equal)) of \(counted(difference.compared, "packet")) equal"
    if !difference.isEqual { summary += ", \(counted(difference.places.count, "stream")) differ" }
    let ignored = difference.ignored.0 + difference.ignored.1
    if ignored > 0 { summary += "; not compared: \(grouped(ignored)) that time alone makes" }
    Console.line(Console.styled(summary, difference.isEqual ? .green : .red))
  }
  private func printObjects(_ difference: TraceDifference) throws {
    for (index, place) in difference.places.enumerated() {
      var object = JSONLine()
      object.add("stream", place.stream.description)
      object.add("equal", place.equal)
      object.add("first", place.first)
      object.add("second", place.second)
      if index == 0 {
        object.add("firstPacket", try packet(first, place.first))
        object.add("secondPacket", try packet(second, place.second))
      }
      Console.line(object)
    }
    var object = JSONLine()
    object.add("files", [first, second])
    object.add("equal", difference.equal)
    object.add("compared", difference.compared)
    object.add("streams", difference.places.count)
    object.add("ignored", difference.ignored.0 + difference.ignored.1)
    Console.line(object)
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
