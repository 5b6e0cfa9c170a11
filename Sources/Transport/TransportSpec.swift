/// Where a controller is: one spelling for every tool and every configuration file.
///
///     tcp:127.0.0.1:9000     H4 over TCP; IPv6 in brackets: tcp:[::1]:9000
///     unix:/run/hci.sock     H4 over a stream socket in the file system
///     sim                    a virtual controller in this process
///
/// More will follow (`hci0`, `serial:PATH,BAUD`): a switch over it keeps a `default`.
public enum TransportSpec: Sendable, Hashable, CustomStringConvertible {
  /// H4 over TCP. Port 0 is for listening: the system chooses one.
  case tcp(host: String, port: Int)
  /// H4 over a Unix stream socket. At most 107 octets of UTF-8.
  case unix(path: String)
  /// A fresh virtual controller on the process's own radio.
  case sim

  /// The longest path that fits `sockaddr_un` with its terminating zero.
  static var longestPath: Int { 107 }

  /// Reads the spelling above; the error says in one sentence what is wrong and what to write.
  public init(_ text: String) throws(TransportError) {
    let parts = text.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
    let rest = parts.count == 2 ? String(parts[1]) : nil
    switch (parts[0], rest) {
    case ("sim", nil): self = .sim
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
    case ("tcp", nil), ("unix", nil):
      throw .specification(#""\#(text)" says only the kind: write tcp:HOST:PORT or unix:PATH"#)
    case ("serial", .some): throw .notBuilt(text)
    case (let name, nil) where name.isAdapter: throw .notBuilt(text)
    default:
      throw .specification(#""\#(text)" is no transport: write tcp:HOST:PORT, unix:PATH or sim"#)
    }
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

  /// The spelling that gives this value back.
  public var description: String {
    switch self {
    case .tcp(let host, let port): host.contains(":") ? "tcp:[\(host)]:\(port)" : "tcp:\(host):\(port)"
    case .unix(let path): "unix:" + path
    case .sim: "sim"
    }
  }
}

extension Substring {
  /// `hci0` and its brothers.
  fileprivate var isAdapter: Bool { hasPrefix("hci") && UInt16(dropFirst(3)) != nil }
}
