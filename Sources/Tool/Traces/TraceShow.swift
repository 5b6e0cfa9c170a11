import BindruneATT
import ArgumentParser
import BindruneCapture
import BindruneTrace
import BindruneWire
import Glibc
import BindruneHCI
import BindruneL2CAP

struct TraceShow: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "show",
    abstract: "Show the packets of a trace, a line each.",
    discussion: """
      → is from the host, ← to it. A packet that only carries a fragment says so; the line of the last fragment \
      describes the whole PDU. Names of attributes come from the discovery in the trace itself. Behind ! stands what \
      the packet breaks of the rules of `trace check`, which a later packet may show: then in a line of its own. \
      monitor: shows what the kernel sees of every adapter, live, beside bluetoothd and other programs; it needs \
      CAP_NET_RAW.

      With --json or --fields it reads several traces side by side, and folders, which stand for the traces in them \
      and below them. A bad file stops no other, and the status is then 2.

      Examples:
        bindrune trace show capture.btsnoop --layer att --handle 0x0003
        bindrune trace show capture.btsnoop --fields | cut -f 1,5,8
        bindrune trace show captures/ --json --layer smp > pairings.ndjson
        bindrune trace show monitor: -v
      """)

  @Argument(
    help: ArgumentHelp(
      """
      The trace; - is standard input, monitor: the kernel's packets, live. With --json or --fields also several, and \
      folders.
      """,
      valueName: "file"), completion: .file())
  var files: [String]
  @Flag(name: .shortAndLong, help: "Show every layer with all its fields, and the octets.")
  var verbose = false
  @Flag(help: "Print one JSON object per packet.")
  var json = false
  @Flag(
    help: """
      Print the ATT, SMP and signaling PDUs as tab-separated fields, after a line with their names. With several files \
      or a folder the first one is the file.
      """)
  var fields = false
  @Flag(help: "Wait at the end for records that are still being written.")
  var follow = false
  @Option(
    help: ArgumentHelp(
      "Only this layer: hci, l2cap, sig, att, smp, ll or note; several with commas.", valueName: "layer"))
  var layer: LayerList?
  @Option(help: ArgumentHelp("Only this connection handle, as 0x0040.", valueName: "handle"))
  var connection: [Number32] = []
  @Option(help: ArgumentHelp("Only PDUs about this attribute handle, as 0x0003.", valueName: "handle"))
  var handle: [Number16] = []
  @Option(help: ArgumentHelp("Only this opcode of the highest layer, or event code, as 0x1B.", valueName: "opcode"))
  var opcode: [Number16] = []
  @Option(help: ArgumentHelp("From this record on.", valueName: "number"))
  var from: Int?
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
  @OptionGroup var options: TraceOptions

  func validate() throws {
    if json, fields { throw ValidationError("--json and --fields are two formats: give one of them.") }
    if verbose, fields { throw ValidationError("--fields has one format: leave out --verbose.") }
    if files.count > 1 || TraceInputs.isFolder(files[0]) {
      let subject = files.count > 1 ? "Several files need" : "\(files[0].printable()) is a folder, which needs"
      if !json, !fields { throw ValidationError("\(subject) --json or --fields.") }
      if follow { throw ValidationError("--follow waits at the end of one file: name one.") }
      if files.contains(TraceOptions.monitor) {
        throw ValidationError("\(TraceOptions.monitor) has no end: give it alone.")
      }
      if files.count(where: { $0 == "-" }) > 1 { throw ValidationError("Standard input can be read once: give one -.") }
    }
    if let from, from < 1 { throw ValidationError("Records are numbered from 1: --from \(from) is none.") }
    if let from, let to, from > to { throw ValidationError("--from \(from) is after --to \(to).") }
  }

  private var filter: TraceFilter {
    var filter = TraceFilter()
    filter.layers = Set(layer?.layers ?? [])
    filter.connections = Set(connection.map(\.value))
    filter.handles = Set(handle.map(\.value))
    filter.opcodes = Set(opcode.map(\.value))
    filter.frames = (from ?? 1)...max(to ?? Int.max, from ?? 1)
    return filter
  }

  func run() async throws {
    let inputs = try TraceInputs(files), file = files[0]
    if Screen.isPossible, file != TraceOptions.monitor, !follow { Pager.begin() }
    defer { Console.drain() }
    if inputs.areSeveral { return try await showAll(inputs) }
    if fields {
      var sink = DissectingSink(FieldsOutput { Console.writeWaiting($0) })
      Console.write(TraceFields.header)
      try read(file, &sink)
      return Self.warn(ofEncrypted: sink.dissector.encryptedCount, file)
    }
    var sink = DissectingSink(lines(TraceInput(file, .named).name) { Console.writeWaiting($0) })
    try read(file, &sink)
    Self.warn(ofEncrypted: sink.dissector.encryptedCount, file)
  }
  private func lines(_ name: String, _ write: @escaping ([UInt8]) -> Void) -> MarkedLines<TracePrinter> {
    let identities = irk.enumerated().map { TraceNames.Identity(name: $1.name ?? "identity \($0 + 1)", irk: $1.key) }
    let printer = TracePrinter(isJSON: json, isVerbose: verbose, file: name, write: write)
    return MarkedLines(
      printer, filter: filter, identities: identities, isLive: follow || files[0] == TraceOptions.monitor)
  }
  /// A capture from the air has packets that only the key's owner can read.
  private static func warn(ofEncrypted count: Int, _ file: String) {
    if count == 0 { return }
    Console.warn(
      """
      \(file): \(counted(count, "link-layer packet")) \(count == 1 ? "is" : "are") encrypted: L2CAP is shown up to the \
      start of encryption.
      """
    )
  }

  private func showAll(_ inputs: TraceInputs) async throws {
    if fields { Console.write("file\t" + TraceFields.header) }
    let output = OrderedOutput { Console.writeWaiting($0) }, show = self
    var files = 0, records = 0, failures = 0
    try await TraceBatch.read(inputs, weight: { (_: ShowResult) in 0 }) { input, index, progress in
      defer { output.end(index) }
      let write: ([UInt8]) -> Void = { output.write($0, of: index) }
      return show.fields
        ? ShowResult(input, FieldsOutput(file: input.name, write: write), show.options, progress)
        : ShowResult(input, show.lines(input.name, write), show.options, progress)
    } receive: { result in
      files += 1
      records += result.records
      for warning in result.warnings { Console.warn(warning) }
      Self.warn(ofEncrypted: result.encrypted, result.path)
      guard let error = result.error else { return }
      failures += 1
      Console.error("Error: \(error)")
    }
    var words = "\(counted(files, "file")): \(counted(records, "record"))"
    if failures > 0 { words += "; \(counted(failures, "file")) could not be read to the end" }
    Console.error(words)
    if failures > 0 { throw ExitCode(TraceInputs.unreadable) }
  }

  private func read(_ file: String, _ sink: inout some CaptureSink & ~Copyable) throws {
    try options.read(file, into: &sink) {
      guard follow, Interruption.cause == nil else { return false }
      Console.drain()
      usleep(50_000)
      return true
    }
  }
}

/// `--layer att,smp`.
struct LayerList: ExpressibleByArgument {
  var layers: [TraceLayer]
  init?(argument: String) {
    let parts = argument.lowercased().split(separator: ",", omittingEmptySubsequences: false)
    layers = parts.compactMap { TraceLayer(rawValue: String($0)) }
    if layers.count < parts.count { return nil }
  }
}
/// 32 bits, as `64` or `0x40`.
struct Number32: ExpressibleByArgument {
  var value: UInt32
  init?(argument: String) {
    let isHex = argument.lowercased().hasPrefix("0x")
    guard let value = isHex ? UInt32(argument.dropFirst(2), radix: 16) : UInt32(argument) else { return nil }
    self.value = value
  }
}
/// `KEY` or `NAME=KEY`.
struct IdentityKey: ExpressibleByArgument {
  var name: String?
  var key: UInt128
  init?(argument: String) {
    let parts = argument.split(separator: "=", maxSplits: 1)
    guard let digits = parts.last, digits.utf8.count == 32, let key = UInt128(digits, radix: 16) else { return nil }
    self.key = key
    if parts.count == 2 { name = String(parts[0]).printable(limit: 40) }
  }
}

/// What remains of a file once its packets have been shown.
private struct ShowResult: Sendable {
  var path: String
  var records: Int
  /// Packets of the link layer that nobody can read without the key.
  var encrypted: Int
  /// Octets that were skipped.
  var warnings: [String]
  /// Why the file could not be read to its end.
  var error: String?

  /// nil: the file is not a trace.
  init?(_ input: TraceInput, _ sink: some TraceSink, _ options: TraceOptions, _ progress: TraceProgress) {
    var sink = MeteredSink(sink, progress), warnings: [String] = []
    defer { sink.end() }
    do { try options.read(input, into: &sink, warn: { warnings.append($0) }) } catch is NotATrace { return nil } catch {
      self.error = "\(error)"
    }
    path = input.path
    records = sink.records
    encrypted = sink.dissector.dissector.encryptedCount
    self.warnings = warnings
  }
}

/// Passes fields on in blocks.
private struct FieldsOutput: TraceSink {
  private var fields: TraceFields
  private let write: ([UInt8]) -> Void
  private var records = 0
  private(set) var wantsMore = true

  init(file: String? = nil, write: @escaping ([UInt8]) -> Void) {
    fields = TraceFields(file: file)
    self.write = write
  }
  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    if fields.output.count > 60_000 { flush() }
    fields.record(record, bytes)
    records &+= 1
    if records.isMultiple(of: 256) { wantsMore = Interruption.cause == nil }
  }
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    fields.frame(frame, payload, of: record)
  }
  mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    fields.enhancedPDU(frame, pdu, of: record)
  }
  mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {}
  mutating func pause() {
    flush()
    wantsMore = Interruption.cause == nil
  }
  private mutating func flush() {
    if fields.output.isEmpty { return }
    write(fields.output)
    fields.output.removeAll(keepingCapacity: true)
  }
}
