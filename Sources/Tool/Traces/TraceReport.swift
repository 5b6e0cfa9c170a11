import ArgumentParser
import BindruneCapture
import BindruneReport
import BindruneSystem
import BindruneTrace
import BindruneTransport
import BindruneWire
import Glibc
import SystemPackage

struct TraceReport: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "report",
    abstract: "Write a trace as a page that a browser opens.",
    discussion: """
      One HTML file without network: the sequence of packets, each octet with its field and meaning, timelines, the \
      attributes with every value, pairings as stories, the findings of check and the divergences of replay. \
      A page has at most 200,000 records; --from and --to choose them. The page holds every octet of its packets, \
      keys and values too: share it as you would share the trace.

      Examples:
        bindrune trace report capture.btsnoop -o report.html
        bindrune trace report long.btsnoop --from 50000 --to 60000 -o part.html
      """)

  @Argument(help: ArgumentHelp("The trace; - is standard input.", valueName: "file"), completion: .file())
  var file: String
  @Option(
    name: .shortAndLong,
    help: ArgumentHelp("The page. An existing page is replaced, another file is not.", valueName: "file"),
    completion: .file(extensions: ["html"]))
  var output: String
  @Option(help: ArgumentHelp("From this record on.", valueName: "number"))
  var from = 1
  @Option(help: ArgumentHelp("Up to this record.", valueName: "number"))
  var to: Int?
  @Option(
    help: ArgumentHelp(
      """
      An Identity Resolving Key, 32 hexadecimal digits, most significant first, or NAME=KEY: addresses that it \
      resolves are named.
      """,
      valueName: "key"))
  var irk: [IdentityKey] = []
  @Flag(help: "Leave out the comparison with our host.")
  var noReplay = false
  @OptionGroup var options: TraceOptions

  func validate() throws {
    if from < 1 || from > to ?? Int.max { throw ValidationError("--from \(from) is not a record before --to.") }
    if file == TraceOptions.monitor {
      throw ValidationError("report reads files: record \(TraceOptions.monitor) with `bindrune trace convert` first.")
    }
  }

  func run() async throws {
    try checkOutput()
    let identities = irk.enumerated().map { TraceNames.Identity(name: $1.name ?? "identity \($0 + 1)", irk: $1.key) }
    var sink = CollectingSink(
      ReportCollector(frames: from...(to ?? Int.max), identities: identities, replays: !noReplay))
    var warnings: [String] = []
    // What was read before damage is shown.
    let result = Result { try options.read(file, into: &sink, warn: { warnings.append($0) }) }
    sink.progress.end()
    if Interruption.cause != nil { throw CancellationError() }
    if case .failure(let error) = result {
      if sink.collector.records == 0 { throw error }
      warnings.append("\(error)")
    }
    let records = sink.collector.records
    if sink.collector.isCut {
      Console.warn(
        """
        \(output.printable()) ends after \(grouped(records)) records, the most that a page holds: --from and --to \
        choose others.
        """
      )
    }
    let path = FilePath(text: file)
    let title = file == "-" ? "standard input" : path.lastComponent?.string ?? file
    if records > 20_000 { Console.status("writing \(output.printable())") }
    let page = sink.collector.page(
      title: title, warnings: warnings, tool: "bindrune \(BindruneCommand.configuration.version)")
    Console.status(nil)
    try write(page)
    Console.line("\(counted(records, "record")), \(grouped(page.count / 1_024)) KiB: \(output.printable())")
    try result.get()
  }

  /// A slip of the hand must not replace the trace.
  private func checkOutput() throws(Failure) {
    guard
      let old = try? FileDescriptor.opened(
        FilePath(text: output), .readOnly, options: [.nonBlocking, .noControllingTerminal])
    else { return }
    let beginning = Array("<!DOCTYPE html>".utf8)
    let isPage = try? old.closeAfter {
      var octets = [UInt8](repeating: 0, count: beginning.count)
      let count = try unsafe octets.withUnsafeMutableBytes { unsafe try old.read(into: $0) }
      return try old.stat().type == .regular && (count == 0 || octets == beginning)
    }
    if isPage != true {
      throw Failure("Cannot replace \(output.printable()), which is not a page: -o names a new file, or a page.")
    }
  }
  /// Under another name first, so that nobody opens a part of it.
  private func write(_ page: [UInt8]) throws(Failure) {
    let draft = FilePath(text: "\(output).\(getpid())")
    do {
      let file = try FileDescriptor.opened(
        draft, .writeOnly, options: [.create, .exclusiveCreate, .noFollow],
        permissions: [.ownerReadWrite, .groupRead, .otherRead])
      do {
        try file.closeAfter { _ = try file.writeAll(page) }
        try draft.rename(to: FilePath(text: output))
      } catch {
        try? draft.remove()
        throw error
      }
    } catch {
      throw Failure("Cannot write \(output.printable()): \(error). -o names a file in a folder that you may write.")
    }
  }
}

/// A collector that shows its progress, and ends when the user interrupts.
private struct CollectingSink: CaptureSink, ~Copyable {
  var collector: ReportCollector
  let progress = TraceProgress(1)
  private var records = 0
  private var isInterrupted = false
  init(_ collector: consuming ReportCollector) { self.collector = collector }
  var wantsMore: Bool { collector.wantsMore && !isInterrupted }
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    collector.receive(record, bytes)
    records += 1
    guard records.isMultiple(of: 1_024) else { return }
    progress.add(1_024)
    isInterrupted = Interruption.cause != nil
  }
  mutating func pause() { collector.pause() }
}
