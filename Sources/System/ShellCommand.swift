import Glibc
import SystemPackage

/// Runs `sh -c COMMAND`, for one line of its output. The command and all that it starts are one process group, which is
/// killed when the time is over or the task is cancelled. No thread waits for it.
package struct ShellCommand: Sendable {
  package enum Failure: Error, Equatable, CustomStringConvertible {
    case notStarted(Errno)
    /// It ended with this status; 128 + n: by signal n.
    case failed(status: CInt)
    case tooSlow(Duration)
    case cancelled

    package var description: String {
      switch self {
      case .notStarted(let error): "it could not be started, \(error)"
      case .failed(let status): "it ended with status \(status)"
      case .tooSlow(let limit): "it did not end within \(limit.components.seconds) s and was killed"
      case .cancelled: "it was no longer needed and was killed"
      }
    }
  }
  package let command: String
  package init(_ command: String) { self.command = command }

  /// The first line of its standard output, once it has ended with status 0; more than 256 octets are cut. Standard
  /// input is empty, standard error is the process's own. `variables` are added to the process's environment.
  package func run(_ variables: [String: String], within limit: Duration) async throws(Failure) -> String {
    let (reading, child) = try start(variables)
    var octets: [UInt8] = [], status: CInt?, deadline = limit
    while true {
      Self.read(reading, into: &octets)
      if let status {
        try? reading.close()
        guard status == 0 else { throw .failed(status: status) }
        return String(decoding: octets.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
      }
      status = ChildProcess.status(of: child)
      if status != nil { continue }  // for the last of its output
      do { try await Task.sleep(for: Self.pause) } catch { throw end(child, reading, .cancelled) }
      deadline -= Self.pause
      if deadline <= .zero { throw end(child, reading, .tooSlow(limit)) }
    }
  }
  private static var pause: Duration { .milliseconds(20) }

  private func start(_ variables: [String: String]) throws(Failure) -> (FileDescriptor, pid_t) {
    let ends: (readEnd: FileDescriptor, writeEnd: FileDescriptor)
    do throws(Errno) { ends = try FileDescriptor.pipeEnds() } catch {
      throw .notStarted(error)
    }
    let reading = ends.readEnd, writing = ends.writeEnd
    _ = fcntl(reading.rawValue, F_SETFL, O_NONBLOCK)
    defer { try? writing.close() }
    // The digits are in the environment, which other users cannot read, and not in an argument.
    do throws(Errno) {
      return (reading, try ChildProcess.start("/bin/sh", ["sh", "-c", command], adding: variables, output: writing))
    } catch {
      try? reading.close()
      throw .notStarted(error)
    }
  }

  /// Takes what is there, and keeps its beginning.
  private static func read(_ reading: FileDescriptor, into octets: inout [UInt8]) {
    var part = [UInt8](repeating: 0, count: 256)
    // A command that writes without end must not hold this call.
    for _ in 0..<64 {
      let count = unsafe Glibc.read(reading.rawValue, &part, part.count)
      guard count > 0 else { return }
      octets += part.prefix(min(count, 256 - octets.count))
    }
  }
  private func end(_ child: pid_t, _ reading: FileDescriptor, _ failure: Failure) -> Failure {
    kill(-child, SIGKILL)
    ChildProcess.wait(for: child)
    try? reading.close()
    return failure
  }
}
