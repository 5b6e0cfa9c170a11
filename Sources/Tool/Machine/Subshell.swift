import BindruneSystem
import Glibc
import SystemPackage

/// Runs command lines with `/bin/sh`, as a shell on a terminal would: with the default effect of all signals.
enum Subshell {
  /// Starts `command`; `$1`, `$2` … in it are `arguments`. `input` becomes its standard input, and it does not inherit
  /// `closed`. nil: it did not start.
  static func start(
    _ command: String, _ arguments: [String] = [], input: CInt? = nil, closed: [CInt] = []
  ) -> pid_t? {
    var files: [ChildProcess.File] = closed.map { .closed($0) }
    if let input { files.insert(.copy(FileDescriptor(rawValue: input), as: STDIN_FILENO), at: 0) }
    // This program ignores SIGPIPE and handles interruptions.
    return try? ChildProcess.start(
      "/bin/sh", ["sh", "-c", command, "sh"] + arguments, files: files, hasOwnGroup: false)
  }
}
