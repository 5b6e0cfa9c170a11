import ArgumentParser
import BindruneCapture
import BindruneSystem
import BindruneTrace
import BindruneTransport
import BindruneWire
import Glibc
import SystemPackage

struct TraceConvert: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "convert",
    abstract: "Write a trace, or a part of it, in another format.",
    discussion: """
      btsnoop (datalink 1002) is what Android and bindrune record; monitor (datalink 2001) is btmon's format, for \
      several adapters and the kernel's notes; pcapng (link type 201) is Wireshark's. All three open in Wireshark, the \
      first two in btmon.

      Examples:
        bindrune trace convert capture.pklg --format pcapng -o capture.pcapng
        bindrune trace convert monitor: --format pcapng -o - | tshark -i -
      """)

  @Argument(
    help: ArgumentHelp(
      "The trace; - is standard input, monitor: records the kernel's packets until interrupted.", valueName: "file"),
    completion: .file())
  var file: String
  @Option(
    name: .shortAndLong,
    help: ArgumentHelp("The new file, which must not exist; - is standard output.", valueName: "file"))
  var output: String
  @Option(help: ArgumentHelp("btsnoop, monitor or pcapng.", valueName: "format"))
  var format = CaptureWriter.Format.btsnoop
  @Option(help: ArgumentHelp("From this record on.", valueName: "number"))
  var from = 1
  @Option(help: ArgumentHelp("Up to this record.", valueName: "number"))
  var to: Int?
  @OptionGroup var options: TraceOptions

  func validate() throws {
    if from < 1 || from > to ?? Int.max { throw ValidationError("--from \(from) is not a record before --to.") }
  }

  func run() async throws {
    var sink = ConvertedFile(CaptureWriter(format), from...(to ?? Int.max), isLive: file == TraceOptions.monitor)
    try sink.create(output)
    defer { sink.close() }
    // What was read before damage is kept.
    let result = Result { try options.read(file, into: &sink) }
    try sink.flush()
    let omitted = sink.writer.omitted, reason = "\(format.rawValue) holds HCI packets with a direction"
    // A file without a record would only be in the way of the next attempt.
    if sink.count == 0, !sink.isLive { sink.remove() }
    if omitted > 0, sink.count > 0 {
      Console.warn("\(counted(omitted, "record")) \(omitted == 1 ? "was" : "were") left out: \(reason).")
    }
    if sink.mixesAdapters {
      Console.warn(
        "\(format.rawValue) has no adapters: the packets of several became those of one; see --format monitor.")
    }
    if sink.count > 0 || sink.isLive, output != ConvertedFile.standardOutput {
      Console.line(counted(sink.count, "record"))
    }
    try result.get()
    if sink.count == 0, !sink.isLive {
      throw Failure("There is no record to write: \(omitted > 0 ? reason : "the trace, or the range, is empty").")
    }
  }
}
extension CaptureWriter.Format: ExpressibleByArgument {}

/// Writes the records that it receives.
private struct ConvertedFile: CaptureSink, ~Copyable {
  private(set) var writer: CaptureWriter
  private(set) var count = 0
  /// Each record is written at once, so that a crash loses the last one at most.
  let isLive: Bool
  static let standardOutput = "-"
  private let frames: ClosedRange<Int>
  private var octets: [UInt8] = []
  private var file: FileDescriptor?
  private var path = ""
  private var failure: Errno?
  private var isDone = false
  private var adapter: UInt16?
  /// Packets of several adapters were written in a format that does not tell them apart.
  private(set) var mixesAdapters = false

  init(_ writer: CaptureWriter, _ frames: ClosedRange<Int>, isLive: Bool) {
    self.writer = writer
    self.frames = frames
    self.isLive = isLive
    writer.begin(&octets)
  }
  var wantsMore: Bool { failure == nil && !isDone && Interruption.cause == nil }

  mutating func create(_ path: String) throws {
    self.path = path
    if path == Self.standardOutput {
      self.path = "standard output"
      if Console.isTerminal { throw Failure("A trace is no text for a terminal: pass it to a file or a program.") }
      file = .standardOutput
      return
    }
    do {
      file = try FileDescriptor.opened(
        FilePath(text: path), .writeOnly, options: [.create, .exclusiveCreate],
        permissions: .ownerReadWrite)
    } catch {
      throw Failure("Cannot create \(path): \(error).")
    }
  }
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    isDone = record.number >= frames.upperBound
    guard frames.contains(record.number), writer.append(record, bytes, to: &octets) else { return }
    count += 1
    if writer.format != .monitor {
      if let adapter, adapter != record.adapter { mixesAdapters = true }
      adapter = record.adapter
    }
    if isLive || octets.count > 1 << 20 { write() }
  }
  private mutating func write() {
    guard failure == nil, let file else { return }
    do { try file.writeAll(octets) } catch { failure = error as? Errno ?? .ioError }
    octets.removeAll(keepingCapacity: true)
  }
  mutating func pause() { write() }
  mutating func flush() throws {
    write()
    // A reader that closes the pipe has seen enough.
    if let failure, file != .standardOutput || failure != .brokenPipe {
      throw Failure("Cannot write \(path): \(failure).")
    }
  }
  mutating func close() { if file != .standardOutput { try? file?.close() } }
  /// Removes the file that `create` made.
  mutating func remove() { if file != .standardOutput { try? FilePath(text: path).remove() } }
}
