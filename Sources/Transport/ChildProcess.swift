import CBluetooth
import Glibc
import SystemPackage

/// Programs that this process starts. Each is a process group of its own, so that a signal of the terminal does not reach it.
package enum ChildProcess {
  /// Starts the program at `path`. Standard input is empty, standard output is `output` or the process's own, standard error is the process's
  /// own, and no other file stays open. `variables` are added to the process's environment, or take the place of those with their names.
  package static func start(
    _ path: String, _ arguments: [String], adding variables: [String: String], output: FileDescriptor? = nil
  ) throws(Errno) -> pid_t {
    var files = unsafe posix_spawn_file_actions_t()
    var attributes = posix_spawnattr_t(), signals = sigset_t(), child: pid_t = 0
    unsafe posix_spawn_file_actions_init(&files)
    unsafe posix_spawnattr_init(&attributes)
    defer {
      unsafe posix_spawn_file_actions_destroy(&files)
      unsafe posix_spawnattr_destroy(&attributes)
    }
    unsafe posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
    if let output { unsafe posix_spawn_file_actions_adddup2(&files, output.rawValue, STDOUT_FILENO) }
    unsafe bindrune_close_from(&files, STDERR_FILENO + 1)
    // A worker thread blocks signals, and a program may ignore some: the child begins as in a shell.
    unsafe sigemptyset(&signals)
    unsafe posix_spawnattr_setsigmask(&attributes, &signals)
    unsafe sigfillset(&signals)
    unsafe posix_spawnattr_setsigdefault(&attributes, &signals)
    unsafe posix_spawnattr_setpgroup(&attributes, 0)
    let flags = POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF
    unsafe posix_spawnattr_setflags(&attributes, Int16(flags))

    var arguments = unsafe copies(arguments)
    var environment = unsafe copies(Self.environment(without: variables) + variables.map { "\($0)=\($1)" })
    defer {
      for place in unsafe arguments.indices { unsafe free(arguments[place]) }
      for place in unsafe environment.indices { unsafe free(environment[place]) }
    }
    let error = unsafe posix_spawn(&child, path, &files, &attributes, &arguments, &environment)
    guard error == 0 else { throw Errno(rawValue: error) }
    return child
  }
  /// Nil: it runs. 128 + n: by signal n. A process that ignores the end of its children, or collects them itself, hides the status: 0.
  package static func status(of child: pid_t) -> CInt? {
    var status: CInt = 0
    let result = unsafe waitpid(child, &status, WNOHANG)
    if result == 0 || result < 0 && errno == EINTR { return nil }
    if result < 0 { return 0 }
    let signal = status & 0x7F  // the macros of wait(2)
    return signal == 0 ? status >> 8 & 0xFF : 128 + signal
  }
  /// A descriptor that can be read once the child has ended. Linux 5.3.
  package static func ending(of child: pid_t) throws(Errno) -> FileDescriptor {
    let descriptor = bindrune_open_process(child)
    guard descriptor >= 0 else { throw Errno(rawValue: errno) }
    return FileDescriptor(rawValue: descriptor)
  }

  /// The process's variables, but those of these names.
  private static func environment(without variables: [String: String]) -> [String] {
    var texts: [String] = []
    guard var place = unsafe bindrune_environment() else { return texts }
    while let pointer = unsafe place.pointee {
      let text = unsafe String(cString: pointer)
      if variables[String(text.prefix { $0 != "=" })] == nil { texts.append(text) }
      unsafe place += 1
    }
    return texts
  }
  /// As C takes a list of texts. The caller frees each.
  private static func copies(_ texts: [String]) -> [UnsafeMutablePointer<CChar>?] {
    var copies: [UnsafeMutablePointer<CChar>?] = unsafe []
    for text in texts { unsafe copies.append(strdup(text)) }
    unsafe copies.append(nil)
    return unsafe copies
  }
}
