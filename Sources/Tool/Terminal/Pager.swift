import BindruneSystem
import BindruneTransport
import Glibc
import Synchronization

/// Shows the output in the user's pager, if it is longer than the screen: `PAGER`, or `less`. The program's standard
/// output becomes the pager's input; the pager keeps the terminal.
enum Pager {
  /// The pager, and the terminal that was standard output.
  private static let child = Mutex<(process: pid_t, terminal: CInt)?>(nil)

  /// The terminal that shows the output: while the pager runs, standard output is a pipe to it, which has no size.
  static var terminal: CInt { child.withLock { $0.map { $0.terminal } ?? STDOUT_FILENO } }

  /// Call it before the first output. Does nothing without a terminal, or if the pager does not start.
  static func begin() {
    // They are found out once, and then hold for what the pager shows.
    guard Console.isTerminal, Screen.size.rows > 0 else { return }
    _ = Console.hasColour
    let wanted = unsafe getenv("PAGER").map { unsafe String(cString: $0) } ?? ""
    // F: ends if all fits on one screen. R: colours. X: leaves the text on the terminal. S: cuts long lines.
    let command = wanted.isEmpty ? "less -FRXS" : wanted
    guard command != "cat" else { return }
    guard let ends = try? FileDescriptor.pipeEnds() else { return }
    let (input, output) = (ends.readEnd, ends.writeEnd)
    if let process = Subshell.start(command, input: input.rawValue, closed: [input.rawValue, output.rawValue]) {
      let terminal = (try? FileDescriptor.standardOutput.copied(from: 3))?.rawValue ?? -1
      output.replace(.standardOutput)
      child.withLock { $0 = (process, terminal) }
    }
    try? input.close()
    try? output.close()
  }

  /// Waits for the pager's end, once all output is written. Standard output is the terminal again.
  static func finish() {
    guard let pager = child.withLock({ $0.take() }) else { return }
    if pager.terminal < 0 {
      close(STDOUT_FILENO)
    } else {
      FileDescriptor(rawValue: pager.terminal).replace(.standardOutput)
      close(pager.terminal)
    }
    ChildProcess.wait(for: pager.process)
  }
}
