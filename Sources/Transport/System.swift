// The few system calls that NIO does not have.
import Glibc

/// The system's words for an error number.
func systemWords(_ code: CInt) -> String {
  guard let words = unsafe strerror(code) else { return "error \(code)" }
  return unsafe String(cString: words)
}

/// Microseconds since 1970, by the system's clock.
func wallClockMicroseconds() -> UInt64 {
  var time = timespec()
  unsafe clock_gettime(CLOCK_REALTIME, &time)
  return UInt64(clamping: time.tv_sec) &* 1_000_000 &+ UInt64(clamping: time.tv_nsec / 1_000)
}
