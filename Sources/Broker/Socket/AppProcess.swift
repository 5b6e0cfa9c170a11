import BindruneSystem
import BindruneTransport
import CBindruneSystem
import Glibc
import SystemPackage

/// A process of an app, held by a descriptor (pidfd_open(2)). Its number alone is not enough: once the process has
/// ended it may be another's, whom a daemon of root could stop or kill.
final class AppProcess: Sendable {
  let pid: Int32
  /// Who connected. A process that has become another user's since gets no signal.
  let user: UInt32
  /// Nil: the kernel is too old, or does not show whose the process is.
  private let descriptor: FileDescriptor?
  /// When it began, in ticks since the machine's start: with the number it names the process until the next start. Nil:
  /// not known.
  let start: UInt64?

  /// `descriptor`: of this process; the object closes it. Nil: it is opened by the number, and the process that has the
  /// number then must be `user`'s. Call this right after the process has connected.
  init(_ pid: Int32, of user: UInt32, _ descriptor: FileDescriptor? = nil) {
    (self.pid, self.user) = (pid, user)
    var held = descriptor
    if held == nil, pid > 1 { held = try? ChildProcess.ending(of: pid) }
    let start = held.flatMap { _ in Self.start(of: pid) }
    // What has been read by number is the process's if it runs afterwards.
    if let open = held, !Self.runs(open) || (descriptor == nil && !Self.belongs(pid, to: user)) {
      try? open.close()
      held = nil
    }
    self.descriptor = held
    self.start = held == nil ? nil : start
  }
  /// The process that had this number and this start, if it is still there.
  convenience init?(_ known: StoppedProcess) {
    self.init(known.pid, of: known.user)
    if start != known.start { return nil }
  }
  deinit { try? descriptor?.close() }

  var stopped: StoppedProcess? { start.map { StoppedProcess(pid: pid, user: user, start: $0) } }

  /// Does nothing to a process that has ended. Throws why it gets no signal.
  func signal(_ number: CInt) throws(FrameError) {
    // 0 is the whole process group, and the number of a process in another namespace.
    guard pid > 1, pid != getpid() else { throw FrameError("process \(pid) cannot be signalled") }
    guard let descriptor else {
      throw FrameError(
        "it is not certain which process has the number \(pid): update Linux to 6.5, or let bindruned read /proc")
    }
    if !Self.runs(descriptor) { return }
    // It may have executed a program of another user's since it connected. The kernel forbids signals to those, but not
    // to root.
    if user != geteuid(), !Self.belongs(pid, to: user) {
      // A process that has ended meanwhile belongs to nobody.
      if !Self.runs(descriptor) { return }
      throw FrameError(
        "process \(pid) is not user \(user)'s any more, or bindruned may not read /proc: let it, with ProtectProc=default"
      )
    }
    if bindrune_signal_process(descriptor.rawValue, number) == 0 || errno == ESRCH { return }
    throw FrameError("process \(pid) belongs to another user: give bindruned the capability CAP_KILL")
  }

  /// A descriptor can be read once its process has ended.
  private static func runs(_ descriptor: FileDescriptor) -> Bool {
    var entry = pollfd(fd: descriptor.rawValue, events: Int16(POLLIN), revents: 0)
    return unsafe poll(&entry, 1, 0) == 0
  }
  /// Real, effective, saved and file system user: proc_pid_status(5). Everybody may read them, unless /proc hides
  /// others' processes.
  private static func belongs(_ pid: Int32, to user: UInt32) -> Bool {
    guard let line = text(pid, "status").split(separator: "\n").first(where: { $0.hasPrefix("Uid:") }) else {
      return false
    }
    let users = line.split(whereSeparator: { $0 == "\t" || $0 == " " }).dropFirst().map { UInt32($0) }
    return users.count == 4 && users.allSatisfy { $0 == user }
  }
  /// Field 22 of proc_pid_stat(5). The name before it, in parentheses, may have any characters.
  private static func start(of pid: Int32) -> UInt64? {
    let text = text(pid, "stat")
    guard let end = text.lastIndex(of: ")") else { return nil }
    let fields = text[text.index(after: end)...].split(separator: " ")
    return fields.count > 19 ? UInt64(fields[19]) : nil
  }
  private static func text(_ pid: Int32, _ name: String) -> String {
    String(decoding: (try? FilePath("/proc/\(pid)/\(name)").contents(upTo: 65_536)) ?? [], as: UTF8.self)
  }
}

/// A process that the daemon has stopped, for a daemon that begins after a crash.
struct StoppedProcess: Hashable, Sendable {
  var pid: Int32
  var user: UInt32
  var start: UInt64

  var text: String { "\(pid) \(user) \(start)" }
  init(pid: Int32, user: UInt32, start: UInt64) { (self.pid, self.user, self.start) = (pid, user, start) }
  init?(text: some StringProtocol) {
    let words = text.split(separator: " ")
    guard words.count == 3, let pid = Int32(words[0]), let user = UInt32(words[1]), let start = UInt64(words[2]) else {
      return nil
    }
    self.init(pid: pid, user: user, start: start)
  }
}
