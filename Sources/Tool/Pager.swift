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
    var ends: [CInt] = [0, 0]
    guard unsafe pipe(&ends) == 0 else { return }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    if let process = Subshell.start(command, input: ends[0], closed: ends) {
      let terminal = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
      dup2(ends[1], STDOUT_FILENO)
      child.withLock { $0 = (process, terminal) }
    }
    close(ends[0])
    close(ends[1])
  }

  /// Waits for the pager's end, once all output is written. Standard output is the terminal again.
  static func finish() {
    guard let pager = child.withLock({ $0.take() }) else { return }
    if pager.terminal < 0 {
      close(STDOUT_FILENO)
    } else {
      dup2(pager.terminal, STDOUT_FILENO)
      close(pager.terminal)
    }
    Subshell.wait(for: pager.process)
  }
}
