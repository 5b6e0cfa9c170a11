import Glibc

/// A terminal line that carries H4: eight data bits, no parity, one stop bit, RTS/CTS flow control, nothing interpreted.
/// Vol 4, Part A, §3.
enum SerialPort {
  /// What `serial:PATH` without a rate means, as with most controllers when they come up.
  static var usualBaud: Int { 115_200 }

  /// The system's numbers for all rates that it has. termios(3).
  private static let speeds: [Int: CInt] = [
    50: B50, 75: B75, 110: B110, 134: B134, 150: B150, 200: B200, 300: B300, 600: B600, 1200: B1200, 1800: B1800,
    2400: B2400, 4800: B4800, 9600: B9600, 19_200: B19200, 38_400: B38400, 57_600: B57600, 115_200: B115200,
    230_400: B230400, 460_800: B460800, 500_000: B500000, 576_000: B576000, 921_600: B921600, 1_000_000: B1000000,
    1_152_000: B1152000, 1_500_000: B1500000, 2_000_000: B2000000, 2_500_000: B2500000, 3_000_000: B3000000,
    3_500_000: B3500000, 4_000_000: B4000000,
  ]

  /// Opens and sets up the line; what it had received before is dropped. The descriptor is the caller's.
  static func open(_ path: String, baud: Int, for spec: TransportSpec) throws(TransportError) -> CInt {
    guard let speed = speeds[baud] else {
      let near = speeds.keys.sorted().map { "\($0)" }.joined(separator: ", ")
      throw .unsuitable(spec, "the rate is none of the system's, which are \(near)")
    }
    // Not the process's controlling terminal, and no waiting for a carrier.
    let descriptor = unsafe Glibc.open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
    guard descriptor >= 0 else { throw TransportError(errno: errno, at: spec) }
    do throws(TransportError) {
      try setUp(descriptor, speed_t(speed), spec)
    } catch {
      _ = Glibc.close(descriptor)
      throw error
    }
    return descriptor
  }

  private static func setUp(_ descriptor: CInt, _ speed: speed_t, _ spec: TransportSpec) throws(TransportError) {
    guard isatty(descriptor) == 1 else { throw .unsuitable(spec, "it is no serial port, correct the path") }
    var line = termios()
    unsafe tcgetattr(descriptor, &line)
    unsafe cfmakeraw(&line)
    line.c_cflag &= ~tcflag_t(CSTOPB)
    line.c_cflag |= tcflag_t(CREAD | CLOCAL) | tcflag_t(CRTSCTS)
    unsafe cfsetspeed(&line, speed)
    guard unsafe tcsetattr(descriptor, TCSANOW, &line) == 0 else { throw .system(spec, systemWords(errno)) }
    // It succeeds when any of it could be done.
    var found = termios()
    unsafe tcgetattr(descriptor, &found)
    guard unsafe cfgetospeed(&found) == speed else { throw .unsuitable(spec, "its driver does not take the rate") }
    guard found.c_cflag & tcflag_t(CRTSCTS) != 0 else {
      throw .unsuitable(spec, "its driver has no RTS/CTS flow control, without which H4 loses octets")
    }
    tcflush(descriptor, TCIOFLUSH)
  }
}
