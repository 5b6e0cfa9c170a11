import BindruneSystem
import Glibc
import SystemPackage

/// A terminal line that carries H4: eight data bits, no parity, one stop bit, RTS/CTS flow control, nothing
/// interpreted. Vol 4, Part A, §3.
enum SerialPort {
  /// The rate of `serial:PATH` without one, the default of most controllers.
  static var usualBaud: Int { 115_200 }

  /// The system's constants for all rates that it supports. termios(3).
  private static let speeds: [Int: CInt] = [
    50: B50, 75: B75, 110: B110, 134: B134, 150: B150, 200: B200, 300: B300, 600: B600, 1200: B1200, 1800: B1800,
    2400: B2400, 4800: B4800, 9600: B9600, 19_200: B19200, 38_400: B38400, 57_600: B57600, 115_200: B115200,
    230_400: B230400, 460_800: B460800, 500_000: B500000, 576_000: B576000, 921_600: B921600, 1_000_000: B1000000,
    1_152_000: B1152000, 1_500_000: B1500000, 2_000_000: B2000000, 2_500_000: B2500000, 3_000_000: B3000000,
    3_500_000: B3500000, 4_000_000: B4000000,
  ]

  /// Opens and configures the line; octets received before are dropped. The caller owns the descriptor.
  static func open(_ path: String, baud: Int, for spec: TransportSpec) throws(TransportError) -> FileDescriptor {
    guard let speed = speeds[baud] else {
      let near = speeds.keys.sorted().map { "\($0)" }.joined(separator: ", ")
      throw .unsuitable(spec, "the system does not support the rate, but only \(near)")
    }
    let descriptor: FileDescriptor
    do throws(Errno) {
      descriptor = try Errno.typed {
        // Do not wait for a carrier.
        try .opened(FilePath(text: path), .readWrite, options: [.noControllingTerminal, .nonBlocking])
      }
    } catch { throw TransportError(error, at: spec) }
    do throws(TransportError) {
      try setUp(descriptor.rawValue, speed_t(speed), spec)
    } catch {
      try? descriptor.close()
      throw error
    }
    return descriptor
  }

  private static func setUp(_ descriptor: CInt, _ speed: speed_t, _ spec: TransportSpec) throws(TransportError) {
    guard isatty(descriptor) == 1 else { throw .unsuitable(spec, "it is not a serial port, correct the path") }
    var line = termios()
    unsafe tcgetattr(descriptor, &line)
    unsafe cfmakeraw(&line)
    line.c_cflag &= ~tcflag_t(CSTOPB)
    line.c_cflag |= tcflag_t(CREAD | CLOCAL) | tcflag_t(CRTSCTS)
    unsafe cfsetspeed(&line, speed)
    do throws(Errno) { try Errno.check { unsafe tcsetattr(descriptor, TCSANOW, &line) } } catch {
      throw .system(spec, error.description)
    }
    // tcsetattr succeeds if any of the changes was possible.
    var found = termios()
    unsafe tcgetattr(descriptor, &found)
    guard unsafe cfgetospeed(&found) == speed else { throw .unsuitable(spec, "its driver does not support the rate") }
    guard found.c_cflag & tcflag_t(CRTSCTS) != 0 else {
      throw .unsuitable(spec, "its driver has no RTS/CTS flow control, without which H4 loses octets")
    }
    tcflush(descriptor, TCIOFLUSH)
  }
}
