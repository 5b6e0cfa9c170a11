import Foundation

/// The threads of this process that wait for a processor or use one.
///
/// They include a thread that the kernel preempted in the middle of a task; nothing else shows that the task has not
/// ended.
struct RunnableThreads {
  /// Thread number → nanoseconds that it has used a processor (proc(5), `schedstat`).
  private var used: [pid_t: UInt64] = [:]

  /// The current ones, including the caller's, which has used its processor by the next look. Empty if the system does
  /// not provide these figures.
  init() {
    guard let folder = unsafe opendir("/proc/self/task") else { return }
    defer { unsafe closedir(folder) }
    while let entry = unsafe readdir(folder) {
      let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
        unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe pid_t(String(cString: $0)) }
      }
      if let name, let time = Self.timeUsed(by: name) { used[name] = time }
    }
  }

  /// Keeps the threads that since then have neither used a processor nor stopped waiting for one.
  mutating func removeThoseThatRan() { used = used.filter { Self.timeUsed(by: $0.key) == $0.value } }
  var isEmpty: Bool { used.isEmpty }

  /// nil for a thread that is not runnable or has ended.
  private static func timeUsed(by thread: pid_t) -> UInt64? {
    // "1234 (name) R …"; the name may contain parentheses.
    guard let status = text("/proc/self/task/\(thread)/stat"), let end = status.lastIndex(of: ")"),
      status[end...].dropFirst(2).first == "R"
    else { return nil }
    return text("/proc/self/task/\(thread)/schedstat").flatMap { $0.split(separator: " ").first }.flatMap { UInt64($0) }
  }
  private static func text(_ path: String) -> String? {
    let file = unsafe open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var octets = [UInt8](repeating: 0, count: 512)
    let count = unsafe octets.withUnsafeMutableBytes { unsafe read(file, $0.baseAddress, $0.count) }
    return count > 0 ? String(decoding: octets[..<count], as: UTF8.self) : nil
  }
}
