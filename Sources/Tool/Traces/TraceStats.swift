import ArgumentParser
import BindruneCapture
import BindruneTrace
import BindruneWire

struct TraceStats: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "stats",
    abstract: "Count and time what a trace has of each connection.",
    discussion: """
      PDUs by kind, round trips with percentiles, throughput, the MTU and the link's parameters as they change, and \
      what suggests retransmissions. A folder stands for the traces in it and below it. Files are read side by side, \
      and a bad one stops no other.

      Status 0; 2: a file could not be read to its end.

      Examples:
        bindrune trace stats capture.btsnoop
        bindrune trace stats captures/ --json > connections.ndjson
      """)

  @Argument(
    help: ArgumentHelp("The traces, and folders of traces; - is standard input.", valueName: "file"),
    completion: .file())
  var files: [String]
  @Flag(help: "Print one JSON object per connection, and one per file.")
  var json = false
  @OptionGroup var options: TraceOptions

  func validate() throws {
    if files.contains(TraceOptions.monitor) {
      throw ValidationError("stats reads files: record \(TraceOptions.monitor) with `bindrune trace convert` first.")
    }
    if files.count(where: { $0 == "-" }) > 1 { throw ValidationError("Standard input can be read once: give one -.") }
  }

  func run() async throws {
    var output = StatsOutput(isJSON: json)
    let options = options, inputs = try TraceInputs(files)
    try await TraceBatch.read(inputs, weight: \.connections.count) { input, _, progress in
      StatsResult(input, options, progress)
    } receive: {
      output.print($0)
    }
    if inputs.areSeveral { output.printTotals() }
    if output.failures > 0 { throw ExitCode(TraceInputs.unreadable) }
  }
}

/// What was counted in one file.
struct StatsResult: Sendable {
  /// For people and programs: not escaped.
  var path: String
  var statistics: TraceStatistics
  var story: StoryOutput
  var connections: [ConnectionStatistics] { statistics.connections }
  /// Octets that were skipped.
  var warnings: [String]
  /// Why the file could not be read to its end.
  var error: String?

  /// nil: the file is not a trace.
  init?(_ input: TraceInput, _ options: TraceOptions, _ progress: TraceProgress) {
    var sink = MeteredSink(PairedSink(TraceStatistics(), TraceStory()), progress), warnings: [String] = []
    do { try options.read(input, into: &sink, warn: { warnings.append($0) }) } catch is NotATrace {
      sink.end()
      return nil
    } catch { self.error = "\(error)" }
    sink.end()
    path = input.name
    self.warnings = warnings
    statistics = sink.dissector.sink.first
    story = StoryOutput(sink.dissector.sink.second)
  }
}

/// Passes records on, reports the progress, and stops when the program is interrupted.
struct MeteredSink<Sink: TraceSink>: CaptureSink, ~Copyable {
  /// Records between two looks at the clock and at interruptions.
  private static var step: Int { 4096 }
  private(set) var dissector: DissectingSink<Sink>
  private(set) var records = 0
  private(set) var isFromAir = false
  private var isInterrupted = false
  private let progress: TraceProgress

  init(_ sink: Sink, _ progress: TraceProgress) {
    dissector = DissectingSink(sink)
    self.progress = progress
  }
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    dissector.receive(record, bytes)
    records += 1
    if case .linkLayer = record.content { isFromAir = true }
    guard records.isMultiple(of: Self.step) else { return }
    progress.add(Self.step)
    isInterrupted = Interruption.cause != nil
  }
  var wantsMore: Bool { !isInterrupted && dissector.wantsMore }
  mutating func pause() { dissector.pause() }
  /// The file is done.
  func end() { progress.add(records % Self.step, files: 1) }
}
