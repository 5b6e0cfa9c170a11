import ArgumentParser
import BindruneCapture
import BindruneSystem
import BindruneTrace
import BindruneTransport
import BindruneWire
import SystemPackage

struct TraceScrub: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "scrub",
    abstract: "Write a copy of a trace without addresses, names and keys, to share it.",
    discussion: """
      Replaces addresses, names, serial numbers, keys and what chance made in pairings, each with octets of the same \
      length, the same original always with the same. Private addresses resolve to the replaced keys. Times, handles, \
      UUIDs and errors stay. The new file is read again: its packets have the same lengths and opcodes, `trace check` \
      finds the same, every address resolves as before, and no original is left. What nothing is known of, such as a \
      vendor's packets, is listed: look at it before you share the file.

      Status 0: all that is shown; 1: something of it is not.

      Examples:
        bindrune trace scrub capture.btsnoop -o shared.btsnoop
        bindrune trace scrub capture.btsnoop -o shared.btsnoop --values --irk 0123…
      """)

  @Argument(help: ArgumentHelp("The trace; - is standard input.", valueName: "file"), completion: .file())
  var file: String
  @Option(name: .shortAndLong, help: ArgumentHelp("The new file, which must not exist.", valueName: "file"))
  var output: String
  @Option(help: ArgumentHelp("btsnoop, monitor or pcapng; the default holds what the trace has.", valueName: "format"))
  var format: CaptureWriter.Format?
  @Flag(help: "Also replace values of characteristics, and manufacturer and service data.")
  var values = false
  @Option(help: ArgumentHelp("Make the same replacements in another run; keep the number secret.", valueName: "number"))
  var seed: UInt64?
  @Option(
    help: ArgumentHelp(
      "An Identity Resolving Key that the trace does not hold, 32 hexadecimal digits, most significant first.",
      valueName: "key"))
  var irk: [IdentityKey] = []
  @OptionGroup var options: TraceOptions

  func validate() throws {
    if file == TraceOptions.monitor {
      throw ValidationError("scrub reads a file: record \(TraceOptions.monitor) with `bindrune trace convert` first.")
    }
  }

  func run() async throws {
    let trace = try read(file, options)
    if trace.records.contains(where: \.isFromAir) {
      throw Failure("\(file) is a capture from the air, whose packets may be encrypted: scrub handles traces of HCI.")
    }
    var scrubber = TraceScrubber(
      seed: seed.map { UInt128($0) } ?? UInt128.random(in: 1...UInt128.max))
    scrubber.scrubsValues = values
    scrubber.identities = irk.map(\.key)
    Console.status("\(counted(trace.records.count, "record")) are scrubbed")
    let (scrubbed, report) = scrubber.scrub(trace)
    let written = try write(scrubbed)
    Console.status("\(counted(trace.records.count, "record")) are read again")
    let again = try read(output, options)
    let proof = ScrubProof(trace.keeping(written), again, report)
    Console.status(nil)
    show(report, proof, left: trace.records.count - written.count)
    if !proof.holds { throw ExitCode.failure }
  }

  private func read(_ path: String, _ options: TraceOptions) throws -> CapturedTrace {
    var trace = CapturedTrace()
    try options.read(path, into: &trace)
    if Interruption.cause != nil { throw CancellationError() }
    if trace.isTooLarge {
      throw Failure("\(path) has more than a gibibyte of packets: cut it with `bindrune trace convert --from --to`.")
    }
    return trace
  }
  /// Returns the numbers of the records that the format holds.
  private func write(_ trace: CapturedTrace) throws -> Set<Int> {
    let needsMonitor = trace.records.contains { $0.content != .packet || ($0.adapter != 0 && $0.adapter != .max) }
    var writer = CaptureWriter(format ?? (needsMonitor ? .monitor : .btsnoop)), octets: [UInt8] = []
    var written: Set<Int> = []
    writer.begin(&octets)
    for record in trace.records where writer.append(record, trace.octets(of: record).span, to: &octets) {
      written.insert(record.number)
    }
    do {
      let file = try FileDescriptor.opened(
        FilePath(text: output), .writeOnly, options: [.create, .exclusiveCreate],
        permissions: .ownerReadWrite)
      try file.closeAfter { _ = try file.writeAll(octets) }
    } catch { throw Failure("Cannot write \(output): \(error). scrub writes a new file.") }
    return written
  }

  private func show(_ report: ScrubReport, _ proof: ScrubProof, left: Int) {
    Console.line(
      "Replaced: \(grouped(report.addressCount)) addresses, \(counted(report.keyCount, "key")), "
        + "\(counted(report.nameCount, "name"))")
    list("Fields", report.replaced)
    list("Found where no field is declared, and replaced", report.strays)
    list("Cannot be verified any more", report.unverifiable)
    list("Kept, because nothing is known of it: decide yourself", report.kept)
    if report.shortNameCount > 0 {
      Console.line("  names of fewer than 4 octets, replaced but not searched for: \(report.shortNameCount)")
    }
    if left > 0 { Console.line("Left out, because the format does not hold them: \(counted(left, "record"))") }
    result("The packets have the same lengths, opcodes and times", proof.changedRecords.map { "record \($0)" })
    result("trace check finds the same", proof.changedFindings)
    result(
      "Private addresses resolve as before (\(proof.resolved) fields)",
      proof.changedIdentities.map { "record \($0)" })
    result("No original is left", proof.remaining.map { "\($0.what), record \($0.number)" })
  }
  private func list(_ title: String, _ counts: [String: Int]) {
    if counts.isEmpty { return }
    Console.line(title)
    for (what, count) in counts.sorted(by: { $0.key < $1.key }) {
      Console.line("  \(what.printable()): \(grouped(count))")
    }
  }
  private func result(_ claim: String, _ exceptions: [String]) {
    if exceptions.isEmpty { return Console.line(Console.styled("Shown: \(claim).", .green)) }
    let shown = exceptions.prefix(10).joined(separator: "; ") + (exceptions.count > 10 ? "; …" : "")
    Console.line(Console.styled("NOT shown: \(claim): \(grouped(exceptions.count)) exceptions: \(shown)", .red))
  }
}

extension CaptureRecord {
  fileprivate var isFromAir: Bool { if case .linkLayer = content { true } else { false } }
}
