/// The address of a controller, in one spelling for all tools and configuration files.
///
///     hci0                         an adapter of this machine
///     serial:/dev/ttyACM0,1000000  H4 over a serial line; 115200 baud where no rate is given
///     tcp:127.0.0.1:9000           H4 over TCP; IPv6 in brackets: tcp:[::1]:9000
///     unix:/run/hci.sock           H4 over a stream socket in the file system
///     sim                          a virtual controller in this process
///     sim:desk                     one on a virtual radio that this user's processes share
///
/// More cases may follow: a switch of another package has an `@unknown default`.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum TransportSpec: Sendable, Hashable, CustomStringConvertible {
  /// The adapter with this number in Linux, through its HCI user channel.
  case adapter(UInt16)
  /// H4 over a serial line.
  case serial(path: String, baud: Int)
  /// H4 over TCP. Port 0, for listening only: the system chooses one.
  case tcp(host: String, port: Int)
  /// H4 over a Unix stream socket. At most 107 octets of UTF-8.
  case unix(path: String)
  /// A new virtual controller on the process's own radio.
  case sim
  /// A new virtual controller on the radio that a process of this user runs under this name (`bindrune controllers
  /// --name`): H4 over a Unix socket in the user's runtime folder. ASCII letters, digits, '-', '_' and '.', not
  /// beginning with '.'.
  case radio(name: String)

  var isSerial: Bool {
    if case .serial = self { true } else { false }
  }

  /// The longest path that fits `sockaddr_un` with its terminating zero.
  static var longestPath: Int { 107 }

  /// Parses the spelling above; the error says in one sentence what is wrong and what to write.
  public init(_ text: String) throws(TransportError) {
    let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
    let rest = parts.count == 2 ? String(parts[1]) : nil
    switch (parts[0], rest) {
    case ("sim", nil): self = .sim
    case ("sim", let name?):
      guard SharedRadio.isName(name) else { throw Self.badName(text) }
      self = .radio(name: name)
    case ("tcp", let rest?): self = try Self.tcp(rest, of: text)
    case ("unix", let path?):
      if path.isEmpty || path.utf8.contains(0) {
        throw .specification(#""\#(text)" names no path: write unix:PATH, for example unix:/run/hci.sock"#)
      }
      if path.utf8.count > Self.longestPath {
        throw .specification(
          "The socket path has \(path.utf8.count) octets and the system takes \(Self.longestPath): use a shorter one")
      }
      self = .unix(path: path)
    case ("serial", let rest?): self = try Self.serial(rest, of: text)
    case ("tcp", nil), ("unix", nil), ("serial", nil):
      throw .specification(#""\#(text)" says only the kind: write tcp:HOST:PORT, unix:PATH or serial:PATH"#)
    case ("broker", _):
      throw .specification(
        #""\#(text)" is an adapter of bindruned, for programs that import CoreBluetooth: name a controller here, such as hci0"#
      )
    case (let name, nil) where name.hasPrefix("hci"):
      // Only the kernel's own spelling. 65535 is its number for no adapter.
      guard let number = UInt16(name.dropFirst(3)), number < .max, name == "hci\(number)" else {
        throw .specification(#""\#(text)" names no adapter: write hci and its number, for example hci0"#)
      }
      self = .adapter(number)
    default:
      throw .specification(
        #""\#(text)" is not a transport: write hci0, serial:PATH, tcp:HOST:PORT, unix:PATH, sim or sim:NAME"#)
    }
  }

  static func badName(_ text: String) -> TransportError {
    .specification(
      #"The name in "\#(text)" is not valid: write sim:NAME with letters, digits, '-', '_' and '.', for example sim:desk"#
    )
  }

  /// The rate follows the last comma.
  private static func serial(_ rest: String, of text: String) throws(TransportError) -> TransportSpec {
    let comma = rest.lastIndex(of: ",")
    let path = comma.map { String(rest[..<$0]) } ?? rest
    if path.isEmpty || path.utf8.contains(0) {
      throw .specification(#""\#(text)" names no device: write serial:PATH, for example serial:/dev/ttyACM0"#)
    }
    guard let comma else { return .serial(path: path, baud: SerialPort.usualBaud) }
    let digits = rest[rest.index(after: comma)...]
    guard let baud = UInt32(digits), "\(baud)" == digits else {
      throw .specification(
        #"The rate of "\#(text)" is not a number: write serial:PATH,BAUD, for example serial:\#(path),115200"#)
    }
    return .serial(path: path, baud: Int(baud))
  }

  private static func tcp(_ rest: String, of text: String) throws(TransportError) -> TransportSpec {
    guard let colon = rest.lastIndex(of: ":"), colon > rest.startIndex else {
      throw .specification(#""\#(text)" needs a host and a port: write tcp:HOST:PORT, for example tcp:127.0.0.1:9000"#)
    }
    var host = String(rest[..<colon])
    let digits = rest[rest.index(after: colon)...]
    if host.hasPrefix("["), host.hasSuffix("]"), host.utf8.count > 2 {
      host = String(host.dropFirst().dropLast())
    } else if host.contains(where: { ":[]".contains($0) }) {
      throw .specification(#"The host of "\#(text)" has a colon: write an IPv6 address in brackets, tcp:[::1]:9000"#)
    }
    guard let port = UInt16(digits), digits.utf8.allSatisfy({ $0 != UInt8(ascii: "+") }) else {
      throw .specification(#"The port of "\#(text)" is not a number from 0 to 65535: write tcp:HOST:PORT"#)
    }
    return .tcp(host: host, port: Int(port))
  }

  /// The spelling that `init(_:)` parses to this value.
  public var description: String {
    switch self {
    case .adapter(let number): "hci\(number)"
    case .serial(let path, SerialPort.usualBaud) where !path.contains(","): "serial:" + path
    case .serial(let path, let baud): "serial:\(path),\(baud)"
    case .tcp(let host, let port): host.contains(":") ? "tcp:[\(host)]:\(port)" : "tcp:\(host):\(port)"
    case .unix(let path): "unix:" + path
    case .sim: "sim"
    case .radio(let name): "sim:" + name
    }
  }
}
