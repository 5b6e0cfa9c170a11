import ArgumentParser
import BindruneCapture
import BindruneTrace
import BindruneWire

/// A file of a folder that is not a trace: nothing is wrong.
struct NotATrace: Error {}

/// How a trace is read.
struct TraceOptions: ParsableArguments {
  @Flag(help: "Continue behind damage with the next believable record, and report what was skipped.")
  var resync = false

  /// Stands for the kernel's packets, live.
  static let monitor = "monitor:"

  /// Reads a trace, or `monitor:`, into `sink`. Damage is an error once everything before it has been read; `warn`
  /// receives what was skipped. `isFound`: throws ``NotATrace`` for a file that is empty or has none of the formats.
  func read(
    _ path: String, into sink: inout some CaptureSink & ~Copyable, isFound: Bool = false,
    waiting wait: () -> Bool = { false }, warn: (String) -> Void = Console.warn
  ) throws {
    if path == Self.monitor { return try MonitorReader().read(into: &sink) }
    var file: TraceFile
    do throws(TraceError) { file = try TraceFile(path: path) } catch { throw Failure(error.description) }
    file.resynchronizes = resync
    do throws(TraceError) { try file.read(into: &sink, waiting: wait) } catch {
      if isFound, error.isNoTrace { throw NotATrace() }
      var words = error.description
      if case .damaged(_, let damage) = error, damage.offset > 0, !resync, !error.isNoTrace {
        // A file that ends within a record was cut, usually.
        let isCut = if case .truncated = damage.reason { true } else { false }
        words += isCut ? " If its length is wrong, --resync continues behind it." : " --resync continues behind it."
      }
      throw Failure(words)
    }
    for remark in file.remarks { warn("\(file.path): \(remark).") }
    for gap in file.gaps {
      warn("\(file.path): \(gap.count) octets were skipped at octet \(gap.error.offset): \(gap.error).")
    }
    if file.gapCount > file.gaps.count {
      warn("\(file.path): \(file.gapCount - file.gaps.count) more gaps were skipped.")
    }
  }
  /// Reads one of several traces.
  func read(
    _ input: TraceInput, into sink: inout some CaptureSink & ~Copyable, warn: (String) -> Void
  ) throws {
    switch input.origin {
    case .named: try read(input.path, into: &sink, warn: warn)
    case .found: try read(input.path, into: &sink, isFound: true, warn: warn)
    case .failed(let sentence): throw Failure(sentence)
    }
  }
}
