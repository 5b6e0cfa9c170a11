import BindruneTransport
import BindruneWire
import Foundation
import SystemPackage

/// Lines for the user of the program. A thread of its own writes them, so that an output that nobody reads, that is full or
/// that is closed neither delays nor ends anything; lines without room are dropped and counted. Lines come back when a full
/// device has room again.
package final class StandardError: TextOutputStream, Sendable {
  /// The process's. What waits when the process exits is written within half a second, or lost.
  package static let shared: StandardError = {
    atexit { StandardError.shared.flush() }
    // A number that is free is given to the next file that is opened: a controller, for one.
    return StandardError(to: (try? FileDescriptor.standardError.stat()) == nil ? nil : .standardError)
  }()
  private let queue: OutputQueue?

  /// `descriptor` nil: there is no such output.
  package init(to descriptor: FileDescriptor?) {
    queue = descriptor.map {
      OutputQueue(to: $0, limit: 1 << 18, waitsForRoom: true) { "[Bindrune] \($0) lines were dropped.\n" }
    }
  }
  /// One line, whatever `text` has in it: names of devices are not the program's own text.
  package func line(_ text: some StringProtocol) { _ = queue?.put("\(text.printable())\n".utf8) }
  /// For a logger: a line with its end.
  package func write(_ string: String) { line(string.hasSuffix("\n") ? string.dropLast() : string[...]) }
  package func flush() { _ = queue?.drain(within: .milliseconds(500)) }
}
