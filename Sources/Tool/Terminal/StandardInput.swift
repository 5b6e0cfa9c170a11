import Dispatch
import Glibc
import SystemPackage

/// Standard input. A separate thread reads only when a caller asks for more; until then a pipe's writer waits.
enum StandardInput {
  static let isTerminal = isatty(STDIN_FILENO) == 1
  private static let queue = DispatchQueue(label: "bindrune.input")

  /// The next octets, at least one; nil at the end of the input, and when the task is cancelled.
  static func next() async -> [UInt8]? {
    let (stream, continuation) = AsyncStream.makeStream(of: [UInt8].self)
    queue.async {
      if let octets = read() { continuation.yield(octets) }
      continuation.finish()
    }
    for await octets in stream { return octets }
    return nil
  }
  /// Treats an input that cannot be read as ended.
  private static func read() -> [UInt8]? {
    while true {
      var input = pollfd(fd: STDIN_FILENO, events: Int16(POLLIN), revents: 0)
      // The structure and the buffer live during the calls.
      if unsafe poll(&input, 1, -1) < 0, errno != EINTR { return nil }
      var buffer = [UInt8](repeating: 0, count: 4096)
      let count = unsafe Glibc.read(STDIN_FILENO, &buffer, buffer.count)
      if count > 0 { return Array(buffer.prefix(count)) }
      if count == 0 || errno != EINTR && errno != EAGAIN { return nil }
    }
  }
  /// The whole input; nil: it has more than `limit` octets.
  static func all(upTo limit: Int) async throws -> [UInt8]? {
    var octets: [UInt8] = []
    while octets.count <= limit, let more = await next() { octets += more }
    try Task.checkCancellation()
    return octets.count <= limit ? octets : nil
  }
}
