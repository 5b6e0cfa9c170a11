import Glibc

/// Runs command lines with `/bin/sh`, as a shell on a terminal would: with the default effect of all signals.
enum Subshell {
  /// Starts `command`; `$1`, `$2` … in it are `arguments`. `input` becomes its standard input, and it does not inherit
  /// `closed`. nil: it did not start.
  static func start(
    _ command: String, _ arguments: [String] = [], input: CInt? = nil, closed: [CInt] = []
  ) -> pid_t? {
    var files = unsafe posix_spawn_file_actions_t(), attributes = posix_spawnattr_t()
    var signals = sigset_t(), child: pid_t = 0
    unsafe posix_spawn_file_actions_init(&files)
    unsafe posix_spawnattr_init(&attributes)
    defer {
      unsafe posix_spawn_file_actions_destroy(&files)
      unsafe posix_spawnattr_destroy(&attributes)
    }
    if let input { unsafe posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO) }
    for file in closed { unsafe posix_spawn_file_actions_addclose(&files, file) }
    // This program ignores SIGPIPE and handles interruptions.
    unsafe sigfillset(&signals)
    unsafe posix_spawnattr_setsigdefault(&attributes, &signals)
    unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGDEF))
    let words = ["sh", "-c", command, "sh"] + arguments
    var pointers: [UnsafeMutablePointer<CChar>?] = unsafe words.map { unsafe strdup($0) } + [nil]
    let status = unsafe posix_spawn(&child, "/bin/sh", &files, &attributes, &pointers, environ)
    for place in unsafe pointers.indices { unsafe free(pointers[place]) }
    return status == 0 ? child : nil
  }

  /// Waits for its end. Returns its exit status, 128 + n after signal n.
  @discardableResult static func wait(for child: pid_t) -> CInt {
    var status: CInt = 0
    while unsafe waitpid(child, &status, 0) == -1 {
      if errno != EINTR { return -1 }
    }
    let signal = status & 0x7F
    return signal == 0 ? status >> 8 & 0xFF : 128 + signal
  }
}
