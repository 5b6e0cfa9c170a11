import BindruneSystem
import BindruneTransport
import BindruneWire
import FoundationEssentials
import Glibc
import SystemPackage

/// Lines for the user of the program. A thread of its own writes them, so that an output that has no reader, that is
/// full or that is closed neither delays nor ends anything; lines without room are dropped and counted. Lines come back
/// when a full device has room again.
package final class StandardError: TextOutputStream, Sendable {
  /// The process's. Lines that wait when the process exits are written within half a second, or lost.
  package static let shared: StandardError = {
    atexit { StandardError.shared.flush() }
    // The next file that is opened, such as a controller, would get a closed descriptor's number.
    return StandardError(to: (try? FileDescriptor.standardError.stat()) == nil ? nil : .standardError)
  }()
  private let queue: OutputQueue?

  /// `descriptor` nil: there is no output.
  package init(to descriptor: FileDescriptor?) {
    queue = descriptor.map {
      OutputQueue(to: $0, limit: 1 << 18, waitsForRoom: true) { "[Bindrune] \($0) lines were dropped.\n" }
    }
  }
  /// Exactly one line: `text` is escaped, for it may contain names of devices.
  package func line(_ text: some StringProtocol) { _ = queue?.put("\(text.printable())\n".utf8) }
  /// For a logger: a line with its end.
  package func write(_ string: String) { line(string.hasSuffix("\n") ? string.dropLast() : string[...]) }
  package func flush() { _ = queue?.drain(within: .milliseconds(500)) }
}
