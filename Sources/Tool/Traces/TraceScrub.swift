import ArgumentParser
import BindruneCapture
import BindruneSystem
import BindruneTrace
import BindruneTransport
import BindruneWire
import Glibc
import SystemPackage

struct TraceScrub: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "scrub",
    abstract: "Write a copy of a trace without addresses, names and keys, to share it.",
    discussion: """
      Replaces addresses, names, serial numbers, keys and what chance made in pairings, each with octets of the same \
      length, the same original always with the same. Private addresses resolve to the replaced keys. What nothing \
      declares becomes zeros: a vendor's packets, data of BR/EDR and of other channels, audio, manufacturer and service \
      data, values of attributes that the trace does not name, notes of programs; --keep-unknown keeps it, and looks \
      for addresses, keys and names in it. Times, handles, UUIDs, lengths and errors stay, and so do mistakes: `trace \
      check` finds the same.

      The new file is read again, beside the old one: its packets have the same lengths and opcodes, `trace check` \
      finds the same, every address resolves as before, no original is left, and what nothing declares is zero.

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
  @Flag(
    help: "Keep what nothing declares, but for the addresses, keys and names in it; look at it before you share it.")
  var keepUnknown = false
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
    // A pipe can be read once, and three passes are needed.
    let source = try ScrubSource(file)
    var scrubber = TraceScrubber(seed: seed.map { UInt128($0) } ?? UInt128.random(in: 1...UInt128.max))
    scrubber.scrubsValues = values
    scrubber.keepsUnknown = keepUnknown
    scrubber.identities = irk.map(\.key)
    var isComplete = false
    let output = try create()
    defer {
      try? output.close()
      if !isComplete { try? FilePath(text: self.output).remove() }
    }

    var first = ScrubPass(ScrubOriginals(scrubber), "are read")
    try source.read(into: &first, options, warn: Console.warn)
    if first.sink.isFromAir {
      throw Failure("\(file) is a capture from the air, whose packets may be encrypted: scrub handles traces of HCI.")
    }
    if first.sink.hasTooMany {
      throw Failure(
        """
        \(file) has more than \(grouped(ScrubOriginals.most)) different addresses, keys or names: cut it with \
        `bindrune trace convert --from --to`.
        """
      )
    }
    let format = format ?? (first.needsMonitor ? .monitor : .btsnoop), plan = first.takePlan()
    var second = ScrubPass(ScrubWriter(plan, ScrubbedFile(output, format)), "are scrubbed")
    try source.read(into: &second, options)
    if let failure = second.sink.output.failure { throw Failure("Cannot write \(self.output): \(failure).") }
    let report = second.sink.report, left = second.sink.output.omitted
    let proof = try prove(source, format, report, plan.count)
    Console.status(nil)
    isComplete = true
    show(report, proof, left: left)
    if !proof.holds { throw ExitCode.failure }
  }

  private func create() throws -> FileDescriptor {
    do {
      return try FileDescriptor.opened(
        FilePath(text: output), .writeOnly, options: [.create, .exclusiveCreate], permissions: .ownerReadWrite)
    } catch { throw Failure("Cannot write \(output): \(error). scrub writes a new file.") }
  }

  /// Reads both files side by side, some records of each at a time.
  private func prove(
    _ source: borrowing ScrubSource, _ format: CaptureWriter.Format, _ report: ScrubReport, _ count: Int
  ) throws -> ScrubProof {
    var prover = ScrubProver(report), left = count, proved = 0
    do throws(TraceError) {
      var original = try TraceFile(path: source.path), scrubbed = try TraceFile(path: output)
      original.resynchronizes = options.resync
      while left > 0, Interruption.cause == nil {
        var batch = RecordBatch(min(left, 512), format), new = RecordBatch(.max, nil)
        try original.read(into: &batch)
        if batch.seen == 0 { break }
        left -= batch.seen
        new.most = batch.records.count
        if new.most > 0 { try scrubbed.read(into: &new) }
        for ((one, octets), (other, newOctets)) in zip(batch.records, new.records) {
          prover.receive(one, octets.span, other, newOctets.span)
        }
        proved += batch.seen
        if proved.isMultiple(of: 8_192) { Console.status("\(counted(proved, "record")) are read again") }
        if new.records.count < batch.records.count { break }
      }
    } catch { throw Failure(source.named(error.description)) }
    if Interruption.cause != nil { throw CancellationError() }
    var proof = prover.proof()
    if left > 0 { proof.isWhole = false }
    return proof
  }

  private func show(_ report: ScrubReport, _ proof: ScrubProof, left: Int) {
    Console.line(
      "Replaced: \(grouped(report.addressCount)) addresses, \(counted(report.keyCount, "key")), "
        + "\(counted(report.nameCount, "name"))")
    list("Fields", report.replaced)
    list("Found where no field is declared, and replaced", report.strays)
    list("Zeroed, because nothing declares it; --keep-unknown keeps it", report.zeroed)
    list(
      keepUnknown
        ? "Kept but for originals in it: look at it before you share the file"
        : "Kept but for originals in it; --values replaces it", report.kept)
    list("Cannot be verified any more", report.unverifiable)
    if report.shortNameCount > 0 {
      Console.line("  names of fewer than 4 octets, replaced but not searched for: \(report.shortNameCount)")
    }
    if left > 0 { Console.line("Left out, because the format does not hold them: \(counted(left, "record"))") }
    result(
      "The packets have the same lengths, opcodes and times",
      proof.changedRecords.map { "record \($0)" } + (proof.isWhole ? [] : ["a trace that ends early"]))
    result("trace check finds the same", proof.changedFindings)
    result(
      "Private addresses resolve as before (\(proof.resolved) fields)",
      proof.changedIdentities.map { "record \($0)" })
    result(
      "No original is left" + (keepUnknown ? "" : ", and what nothing declares is zero"),
      proof.remaining.map { "\($0.what), record \($0.number)" })
    Console.line(
      """
      Rely on lengths, times, opcodes, handles, UUIDs and errors, which are those of the original, and on which fields \
      are equal; not on what the replaced and zeroed octets say.
      """
    )
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

/// The trace, which is read three times: a file, or a copy of what cannot be read again.
private struct ScrubSource: ~Copyable {
  let path: String
  private let name: String
  private let copy: FileDescriptor?

  init(_ path: String) throws {
    var facts = stat()
    if path != "-", unsafe stat(path, &facts) != 0 || facts.st_mode & S_IFMT == S_IFREG {
      (self.path, name, copy) = (path, path, nil)
      return
    }
    name = path == "-" ? "standard input" : path
    do {
      let input = path == "-" ? .standardInput : try FileDescriptor.opened(FilePath(text: path), .readOnly)
      let folder = unsafe getenv("TMPDIR").map { unsafe String(cString: $0) } ?? "/tmp"
      let place = FilePath(text: folder).appending("bindrune-scrub-\(getpid())-\(UInt32.random(in: 0 ... .max))")
      // It has no name while it is used, so that nothing of it is left.
      let file = try FileDescriptor.opened(
        place, .readWrite, options: [.create, .exclusiveCreate], permissions: .ownerReadWrite)
      try place.remove()
      var buffer = [UInt8](repeating: 0, count: 1 << 16)
      while Interruption.cause == nil {
        let count = unsafe try buffer.withUnsafeMutableBytes { unsafe try input.read(into: $0) }
        if count == 0 { break }
        try file.writeAll(buffer[..<count])
      }
      if path != "-" { try input.close() }
      copy = file
      self.path = "/proc/self/fd/\(file.rawValue)"
    } catch { throw Failure("Cannot keep a copy of \(name), which is read three times: \(error).") }
  }
  deinit { try? copy?.close() }

  /// A sentence with the name that the user knows.
  func named(_ words: String) -> String { copy == nil ? words : words.replacing(path, with: name) }

  func read(
    into sink: inout some CaptureSink & ~Copyable, _ options: TraceOptions, warn: (String) -> Void = { _ in }
  ) throws {
    do { try options.read(path, into: &sink, warn: { warn(named($0)) }) } catch let error as Failure {
      throw Failure(named(error.description))
    }
    if Interruption.cause != nil { throw CancellationError() }
  }
}

/// A pass over the trace, with the status line and a look at interruptions.
private struct ScrubPass<Sink: CaptureSink & ~Copyable>: CaptureSink, ~Copyable {
  var sink: Sink
  private let verb: String
  private var count = 0
  private var isInterrupted = false
  /// A record that only the monitor's format holds.
  private(set) var needsMonitor = false

  init(_ sink: consuming Sink, _ verb: String) {
    self.sink = sink
    self.verb = verb
  }
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    if record.content != .packet || (record.adapter != 0 && record.adapter != .max) { needsMonitor = true }
    sink.receive(record, bytes)
    count += 1
    guard count.isMultiple(of: 8_192) else { return }
    Console.status("\(counted(count, "record")) \(verb)")
    isInterrupted = Interruption.cause != nil
  }
  var wantsMore: Bool { !isInterrupted && sink.wantsMore }
  mutating func pause() { sink.pause() }
}
extension ScrubPass where Sink == ScrubOriginals {
  consuming func takePlan() -> ScrubPlan { sink.plan() }
}

/// Writes scrubbed records.
private struct ScrubbedFile: CaptureSink {
  private var writer: CaptureWriter
  private let file: FileDescriptor
  private var octets: [UInt8] = []
  private(set) var failure: Errno?
  /// Records that the format does not hold.
  var omitted: Int { writer.omitted }

  init(_ file: FileDescriptor, _ format: CaptureWriter.Format) {
    self.file = file
    writer = CaptureWriter(format)
    writer.begin(&octets)
  }
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    writer.append(record, bytes, to: &octets)
    if octets.count > 1 << 18 { pause() }
  }
  var wantsMore: Bool { failure == nil }
  mutating func pause() {
    guard failure == nil else { return }
    do { try file.writeAll(octets) } catch { failure = error as? Errno ?? .ioError }
    octets.removeAll(keepingCapacity: true)
  }
}

/// Some records of a trace, as many as `most`: of those that a format holds, if one is given.
private struct RecordBatch: CaptureSink {
  var most: Int
  private var writer: CaptureWriter?
  private(set) var records: [(CaptureRecord, [UInt8])] = []
  /// Also those that the format does not hold.
  private(set) var seen = 0

  init(_ most: Int, _ format: CaptureWriter.Format?) {
    self.most = most
    writer = format.map { CaptureWriter($0) }
  }
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    seen += 1
    var ignored: [UInt8] = []
    if writer?.append(record, bytes, to: &ignored) == false { return }
    records.append((record, unsafe bytes.withUnsafeBufferPointer { unsafe Array($0) }))
  }
  var wantsMore: Bool { (writer == nil ? records.count : seen) < most }
}
