import BindruneSystem
import BindruneTransport
import Foundation

/// The thread that runs a manager's initialiser, watched from another one: whether it has returned from there.
///
/// Swift calls nothing when an initialiser has returned, and a queue does not show whether a thread has left a
/// function. But after this value's own initialiser a manager's has nothing left to do that waits or takes long. So the
/// thread has returned when it waits for something, has ended, or has used the processor for 5 ms since. A thread that
/// could run and is given no processor, however long, has not: elapsed time says nothing.
///
/// A subclass's own initialiser is covered as long as it does not wait and takes less than those 5 ms: Decision 0026.
struct InitialisingThread: Sendable {
  private let clock: clockid_t
  private let start: UInt64
  /// The path of the kernel's file on the thread: proc(5), "/proc/tid/stat".
  private let status: String?

  /// The current thread.
  init() {
    var clock = clockid_t()
    // The pointer is used during the call only.
    unsafe pthread_getcpuclockid(pthread_self(), &clock)
    self.clock = clock
    let folder = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/thread-self")
    status = folder.map { "/proc/\($0)/stat" }
    start = Self.time(of: clock) ?? 0
  }

  /// True on a system without this file.
  @Sendable func hasReturned() -> Bool {
    guard let time = Self.time(of: clock), time - start < 5_000_000 else { return true }
    // `1240 (name) S …`, where the name may have anything in it.
    guard let status, let text = octets(ofProcFile: status).map({ String(decoding: $0, as: UTF8.self) }),
      let end = text.lastIndex(of: ")")
    else { return true }
    return text[end...].dropFirst(2).first == "S"
  }

  /// Nanoseconds of processor time; nil: the thread has ended.
  private static func time(of clock: clockid_t) -> UInt64? {
    var time = timespec()
    // The pointer is used during the call only.
    guard unsafe clock_gettime(clock, &time) == 0 else { return nil }
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
  }
}
