import ArgumentParser
import BindruneCapture
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
      btsnoop (datalink 1002) is what Android and bindrune record; monitor (datalink 2001) is btmon's format, for several \
      adapters and the kernel's notes; pcapng (link type 201) is Wireshark's. All three open in Wireshark, the first \
      two in btmon.
      """)

  @Argument(
    help: ArgumentHelp(
      "The trace; - is standard input, monitor: records the kernel's packets until interrupted.", valueName: "file"),
    completion: .file())
  var file: String
  @Option(name: .shortAndLong, help: ArgumentHelp("The new file, which must not exist.", valueName: "file"))
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
    var sink = ConvertedFile(CaptureWriter(format), from...(to ?? Int.max))
    try sink.create(output)
    defer { sink.close() }
    // What was read before damage is kept.
    let result = Result { try options.read(file, into: &sink) }
    try sink.flush()
    if sink.writer.omitted > 0 {
      Console.warn(
        "\(sink.writer.omitted) records were left out: \(format.rawValue) holds HCI packets with a direction.")
    }
    Console.line("\(sink.count) records")
    try result.get()
  }
}
extension CaptureWriter.Format: ExpressibleByArgument {}

/// Writes the records that it receives.
private struct ConvertedFile: CaptureSink, ~Copyable {
  private(set) var writer: CaptureWriter
  private(set) var count = 0
  private let frames: ClosedRange<Int>
  private var octets: [UInt8] = []
  private var file: FileDescriptor?
  private var path = ""
  private var failure: Errno?
  private var isDone = false

  init(_ writer: CaptureWriter, _ frames: ClosedRange<Int>) {
    self.writer = writer
    self.frames = frames
    writer.begin(&octets)
  }
  var wantsMore: Bool { failure == nil && !isDone && Interruption.cause == nil }

  mutating func create(_ path: String) throws {
    self.path = path
    do {
      file = try FileDescriptor.open(
        FilePath(text: path), .writeOnly, options: [.create, .exclusiveCreate, .closeOnExec],
        permissions: .ownerReadWrite)
    } catch {
      throw Failure("Cannot create \(path): \(error).")
    }
  }
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    isDone = record.number >= frames.upperBound
    guard frames.contains(record.number), writer.append(record, bytes, to: &octets) else { return }
    count += 1
    if octets.count > 1 << 20 { write() }
  }
  private mutating func write() {
    guard failure == nil, let file else { return }
    do { try file.writeAll(octets) } catch { failure = error as? Errno ?? .ioError }
    octets.removeAll(keepingCapacity: true)
  }
  mutating func pause() { write() }
  mutating func flush() throws {
    write()
    if let failure { throw Failure("Cannot write \(path): \(failure).") }
  }
  mutating func close() { try? file?.close() }
}
