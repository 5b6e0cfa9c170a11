import Glibc
import Synchronization

/// Shows the output in the user's pager, if it is longer than the screen: `PAGER`, or `less`. The program's standard
/// output becomes the pager's input; the pager keeps the terminal.
enum Pager {
  private static let child = Mutex<pid_t?>(nil)

  /// Call it before the first output. Does nothing without a terminal, or if the pager does not start.
  static func begin() {
    // They are found out once, and then hold for what the pager shows.
    guard Console.isTerminal, Screen.size.rows > 0 else { return }
    _ = Console.hasColour
    let wanted = unsafe getenv("PAGER").map { unsafe String(cString: $0) } ?? ""
    // F: ends if all fits on one screen. R: colours. X: leaves the text on the terminal. S: cuts long lines.
    let command = wanted.isEmpty ? "less -FRXS" : wanted
    guard command != "cat" else { return }
    var ends: [CInt] = [0, 0], files = unsafe posix_spawn_file_actions_t(), attributes = posix_spawnattr_t()
    var signals = sigset_t(), pager: pid_t = 0
    guard unsafe pipe(&ends) == 0 else { return }
    unsafe posix_spawn_file_actions_init(&files)
    unsafe posix_spawnattr_init(&attributes)
    defer {
      unsafe posix_spawn_file_actions_destroy(&files)
      unsafe posix_spawnattr_destroy(&attributes)
    }
    unsafe posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO)
    unsafe posix_spawn_file_actions_addclose(&files, ends[0])
    unsafe posix_spawn_file_actions_addclose(&files, ends[1])
    // This program ignores SIGPIPE and handles interruptions; the pager begins as in a shell.
    unsafe sigfillset(&signals)
    unsafe posix_spawnattr_setsigdefault(&attributes, &signals)
    unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF))
    let words = ["sh", "-c", command]
    var arguments: [UnsafeMutablePointer<CChar>?] = unsafe words.map { unsafe strdup($0) } + [nil]
    let status = unsafe posix_spawn(&pager, "/bin/sh", &files, &attributes, &arguments, environ)
    for place in unsafe arguments.indices { unsafe free(arguments[place]) }
    close(ends[0])
    if status == 0 {
      dup2(ends[1], STDOUT_FILENO)
      child.withLock { $0 = pager }
    }
    close(ends[1])
  }

  /// Waits for the pager's end, once all output is written.
  static func finish() {
    guard let pager = child.withLock({ $0.take() }) else { return }
    close(STDOUT_FILENO)
    var status: CInt = 0
    while unsafe waitpid(pager, &status, 0) == -1, errno == EINTR {}
  }
}
