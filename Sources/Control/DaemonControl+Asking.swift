import BindruneSystem
import BindruneTransport
import BindruneWire
import Glibc
import SystemPackage

extension DaemonControl {
  /// Asks the daemon at `path`, and calls `line` with each line of its answer. It blocks its thread, so it is not for
  /// event loops. `limit`: seconds for each part of the answer; nil: any time.
  package func ask(at path: String, within limit: Int? = 5, line: (String) -> Void) throws(DaemonAnswerError) {
    if let planted = DaemonSocket.planted(path) { throw DaemonAnswerError(planted + ".") }
    let failure: String
    do throws(Errno) { failure = try converse(path, limit, line) } catch {
      let why =
        switch error {
        case .noSuchFileOrDirectory, .connectionRefused:
          "bindruned does not run here: start it, or set BINDRUNE_SOCKET to its socket"
        case .permissionDenied, .notPermitted: "you may not use it: have yourself added to the socket's group"
        case .resourceTemporarilyUnavailable: "bindruned does not answer: look at its log, and start it again"
        case .connectionReset, .brokenPipe: "bindruned has ended the connection: look at its log, and start it again"
        case .badMessage: "what listens there is not bindruned: correct BINDRUNE_SOCKET"
        default: "\(error)"
        }
      throw DaemonAnswerError("\(path.printable()): \(why).")
    }
    if !failure.isEmpty { throw DaemonAnswerError(failure) }
  }
  /// Returns the contents of the last frame.
  private func converse(_ path: String, _ limit: Int?, _ line: (String) -> Void) throws(Errno) -> String {
    let socket = try StreamSocket.connected(toPath: path, isNonBlocking: false)
    defer { try? socket.close() }
    if let limit { try socket.setTimeouts(seconds: limit) }
    let text = Array(text.utf8), length = UInt32(text.count + 1)
    try socket.send(
      (0..<4).map { UInt8(truncatingIfNeeded: length >> (8 * $0)) } + [DaemonFrameKind.control.rawValue] + text)
    while true {
      let header = try socket.readAll(upTo: 5)
      guard header.count == 5 else { throw header.isEmpty ? .connectionReset : .badMessage }
      let count = header[..<4].reversed().reduce(0) { $0 << 8 | Int($1) }
      guard (1...65_536).contains(count) else { throw .badMessage }
      let contents = try socket.readAll(upTo: count - 1)
      guard contents.count == count - 1 else { throw .badMessage }
      let text = String(decoding: contents, as: UTF8.self)
      switch DaemonFrameKind(rawValue: header[4]) {
      case .line: line(text)
      case .end: return text
      default: throw .badMessage
      }
    }
  }
}

extension FileDescriptor {
  fileprivate func setTimeouts(seconds: Int) throws(Errno) {
    var time = timeval(tv_sec: seconds, tv_usec: 0)
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
      try Errno.check {
        unsafe setsockopt(rawValue, SOL_SOCKET, option, &time, socklen_t(MemoryLayout<timeval>.size))
      }
    }
  }
  /// All of it. A closed socket is an error, and no signal.
  fileprivate func send(_ octets: [UInt8]) throws(Errno) {
    var rest = octets[...]
    while !rest.isEmpty {
      let count = try Errno.check {
        unsafe rest.withUnsafeBytes { unsafe Glibc.send(rawValue, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      }
      rest = rest.dropFirst(count)
    }
  }
}
