import ATT
import ArgumentParser
import BindruneCapture
import BindruneTrace
import BindruneWire
import Glibc
import HCI

struct TraceShow: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "show",
    abstract: "Show the packets of a trace, a line each.",
    discussion: """
      → is from the host, ← to it. A packet that only carries a fragment says so; the line of the last fragment \
      describes the whole PDU. Names of attributes come from the discovery in the trace itself. monitor: shows what \
      the kernel sees of every adapter, live, beside bluetoothd and other programs; it needs CAP_NET_RAW.

      Examples:
        bindrune trace show capture.btsnoop --layer att --handle 0x0003
        bindrune trace show capture.btsnoop --fields | cut -f 1,5,8
        bindrune trace show monitor: -v
      """)

  @Argument(
    help: ArgumentHelp("The trace; - is standard input, monitor: the kernel's packets, live.", valueName: "file"),
    completion: .file())
  var file: String
  @Flag(name: .shortAndLong, help: "Show every layer with all its fields, and the octets.")
  var verbose = false
  @Flag(help: "Print one JSON object per packet.")
  var json = false
  @Flag(help: "Print the ATT, SMP and signaling PDUs as tab-separated fields, after a line with their names.")
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
      "An Identity Resolving Key, 32 hexadecimal digits, most significant first, or NAME=KEY: addresses that it resolves are named.",
      valueName: "key"))
  var irk: [IdentityKey] = []
  @OptionGroup var options: TraceOptions

  func validate() throws {
    if json, fields { throw ValidationError("--json and --fields are two formats: give one of them.") }
    if verbose, fields { throw ValidationError("--fields has one format: leave out --verbose.") }
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
    if Screen.isPossible, file != TraceOptions.monitor, !follow { Pager.begin() }
    defer { Console.drain() }
    if fields {
      var sink = FieldsOutput()
      Console.write(TraceFields.header)
      try read(&sink)
      return warn(ofEncrypted: sink.sink.dissector.encryptedCount)
    }
    let printer = TracePrinter(isJSON: json, isVerbose: verbose)
    let identities = irk.enumerated().map { TraceNames.Identity(name: $1.name ?? "identity \($0 + 1)", irk: $1.key) }
    var sink = DissectingSink(TraceLines(printer, filter: filter, identities: identities))
    try read(&sink)
    warn(ofEncrypted: sink.dissector.encryptedCount)
  }
  /// A capture from the air has packets that only the key's owner can read.
  private func warn(ofEncrypted count: Int) {
    if count == 0 { return }
    Console.warn(
      "\(file): \(counted(count, "link-layer packet")) \(count == 1 ? "is" : "are") encrypted: L2CAP is shown up to the start of encryption."
    )
  }

  private func read(_ sink: inout some CaptureSink & ~Copyable) throws {
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

/// Passes fields to standard output in blocks.
private struct FieldsOutput: CaptureSink, ~Copyable {
  private(set) var sink = DissectingSink(TraceFields())
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    sink.receive(record, bytes)
    if sink.sink.output.count > 60_000 { flush() }
  }
  var wantsMore: Bool { Interruption.cause == nil }
  mutating func pause() { flush() }
  private mutating func flush() {
    Console.writeWaiting(sink.sink.output)
    sink.sink.output.removeAll(keepingCapacity: true)
  }
}
