import CBindruneSystem
import Glibc
import Synchronization
import SystemPackage

/// # EndingSignals
/// **Overview**: SIGINT and SIGTERM of a program that leaves them at their default: the adapters are closed first, so
/// that scans and links end and an adapter that was taken down is up again. Decision 0028.
///
/// **Function**: a signal is caught only if its disposition is the default when the program's first adapter is opened,
/// and a program that sets its own later keeps that. The handler writes to a pipe. A thread reads from it and closes
/// everything, which takes 1.5 s at most; then the process ends by that same signal, so that its parent sees the cause.
/// A second signal ends the process at once.
package enum EndingSignals {
  private static let isWatching = Atomic<Bool>(false)

  /// Once for a process; later calls do nothing. `close` is called on a thread of its own.
  package static func watch(_ close: @escaping @Sendable () -> Void) {
    guard !isWatching.exchange(true, ordering: .sequentiallyConsistent) else { return }
    guard let pipe = try? FileDescriptor.pipeEnds() else { return }
    let caught = [SIGINT, SIGTERM].filter { bindrune_catch_signal($0, pipe.writeEnd.rawValue) != 0 }
    guard !caught.isEmpty else { return }
    try? detachThread {
      guard let octet = try? pipe.readEnd.readAll(upTo: 1).first else { return }
      close()
      bindrune_end_by_signal(CInt(octet))
    }
  }
}
