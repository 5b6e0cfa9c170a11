import CBindruneSystem
import Glibc
import SystemPackage

/// Programs that this process starts, and their ends: the one caller of posix_spawn(3).
package enum ChildProcess {
  /// A descriptor of the child. Descriptors of this process that no step names are the child's too, unless they are
  /// closed in children, as all from `FileDescriptor.opened` and its like are.
  package enum File: Sendable {
    /// The child's descriptor `number` is that file.
    case copy(FileDescriptor, as: CInt)
    /// The child's descriptor `number` is /dev/null.
    case nothing(as: CInt)
    case closed(CInt)
    /// This one and all with a greater number are closed.
    case closedFrom(CInt)
  }
  /// What becomes of the signals that this process ignores.
  package enum Signals: Sendable {
    /// All have their default effect, as in a shell.
    case allDefault
    /// Only these have it.
    case defaults([CInt])
  }

  /// Starts the program at `path`. `files`: in this order; a descriptor without a step stays what it is here.
  /// `variables` are added to the process's environment, or take the place of those with their names. `hasOwnGroup`: it
  /// is a process group of its own, so that a signal of the terminal does not reach it.
  package static func start(
    _ path: String, _ arguments: [String], adding variables: [String: String] = [:], files steps: [File],
    signals: Signals = .allDefault, hasOwnGroup: Bool
  ) throws(Errno) -> pid_t {
    var files = unsafe posix_spawn_file_actions_t()
    var attributes = posix_spawnattr_t(), child: pid_t = 0
    unsafe posix_spawn_file_actions_init(&files)
    unsafe posix_spawnattr_init(&attributes)
    defer {
      unsafe posix_spawn_file_actions_destroy(&files)
      unsafe posix_spawnattr_destroy(&attributes)
    }
    for step in steps { unsafe add(step, to: &files) }
    set(signals, hasOwnGroup: hasOwnGroup, in: &attributes)

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
  /// A program that outlives the call that needs it: standard input is empty, standard output is `output` or the
  /// process's own, standard error is the process's own, and no other file stays open.
  package static func start(
    _ path: String, _ arguments: [String], adding variables: [String: String], output: FileDescriptor? = nil
  ) throws(Errno) -> pid_t {
    let files: [File] =
      [.nothing(as: STDIN_FILENO)] + (output.map { [.copy($0, as: STDOUT_FILENO)] } ?? [])
      + [.closedFrom(STDERR_FILENO + 1)]
    return try start(path, arguments, adding: variables, files: files, hasOwnGroup: true)
  }
  private static func add(_ step: File, to files: inout posix_spawn_file_actions_t) {
    switch step {
    case .copy(let file, let number): unsafe posix_spawn_file_actions_adddup2(&files, file.rawValue, number)
    case .nothing(let number): unsafe posix_spawn_file_actions_addopen(&files, number, "/dev/null", O_RDWR, 0)
    case .closed(let number): unsafe posix_spawn_file_actions_addclose(&files, number)
    case .closedFrom(let number): unsafe bindrune_close_from(&files, number)
    }
  }
  /// A worker thread blocks signals, and a program may ignore some: the child inherits neither unless it is meant to.
  private static func set(_ signals: Signals, hasOwnGroup: Bool, in attributes: inout posix_spawnattr_t) {
    var set = sigset_t()
    unsafe sigemptyset(&set)
    unsafe posix_spawnattr_setsigmask(&attributes, &set)
    switch signals {
    case .allDefault: unsafe sigfillset(&set)
    case .defaults(let numbers): for number in numbers { unsafe sigaddset(&set, number) }
    }
    unsafe posix_spawnattr_setsigdefault(&attributes, &set)
    unsafe posix_spawnattr_setpgroup(&attributes, 0)
    let flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (hasOwnGroup ? POSIX_SPAWN_SETPGROUP : 0)
    unsafe posix_spawnattr_setflags(&attributes, Int16(flags))
  }

  /// Nil: it runs. 128 + n: by signal n. A process that ignores the end of its children, or collects them itself, hides
  /// the status: 0.
  package static func status(of child: pid_t) -> CInt? {
    var status: CInt = 0
    let result = unsafe waitpid(child, &status, WNOHANG)
    if result == 0 || result < 0 && errno == EINTR { return nil }
    return result < 0 ? 0 : code(of: status)
  }
  /// Waits for its end. The status as above.
  @discardableResult package static func wait(for child: pid_t) -> CInt {
    var status: CInt = 0
    while unsafe waitpid(child, &status, 0) < 0 {
      if errno != EINTR { return 0 }
    }
    return code(of: status)
  }
  /// The macros of wait(2).
  private static func code(of status: CInt) -> CInt {
    let signal = status & 0x7F
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
