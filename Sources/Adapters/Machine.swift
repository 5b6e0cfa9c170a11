import BindruneSystem
import SystemPackage

/// The places that an `AdapterSurvey` reads: this machine, or a test's folders instead. It writes nothing.
package struct Machine: Sendable {
  /// Process and kernel information, proc(5).
  package var proc: FilePath = "/proc"
  /// Devices and modules, sysfs(5).
  package var sys: FilePath = "/sys"
  /// The kernels' modules, one folder for each release.
  package var modules: FilePath = "/lib/modules"
  /// Queries an HCI socket.
  package var socket: @Sendable () -> HCISocketView = HCISocketView.now

  package init() {}
}

/// The result of reading a file.
enum Sight<Value> {
  case seen(Value)
  /// It does not exist, or no longer: processes may end during the survey.
  case absent
  /// It exists, but this process may not read it.
  case hidden

  var value: Value? {
    if case .seen(let value) = self { value } else { nil }
  }
  var isAbsent: Bool {
    if case .absent = self { true } else { false }
  }
  init(_ look: () throws(Errno) -> Value) {
    do throws(Errno) { self = .seen(try look()) } catch {
      self =
        switch error {
        case .noSuchFileOrDirectory, .notDirectory, .noSuchProcess, .noSuchDevice, .noSuchAddressOrDevice: .absent
        default: .hidden
        }
    }
  }
}

extension Machine {
  /// The limit of octets read from a file.
  private static var bound: Int { 1 << 20 }

  /// A small file's text without surrounding white space; octets that are not UTF-8 are replaced.
  func text(_ path: FilePath) -> Sight<String> {
    Sight { () throws(Errno) in
      let file = try Errno.typed { try FileDescriptor.opened(path, .readOnly, options: [.nonBlocking]) }
      defer { try? file.close() }
      let octets = try file.readAll(upTo: Self.bound)
      let blank: (UInt8) -> Bool = { $0 == 0x20 || 0x09...0x0D ~= $0 }
      let end = octets.lastIndex { !blank($0) }.map { $0 + 1 } ?? 0
      return String(decoding: octets[..<end].drop(while: blank), as: UTF8.self)
    }
  }

  /// The target of a symbolic link, unresolved.
  func link(_ path: FilePath) -> Sight<String> { Sight { () throws(Errno) in try path.target() } }

  /// The names in a folder, sorted.
  func names(_ path: FilePath) -> Sight<[String]> { Sight { () throws(Errno) in try path.names() } }

  package func exists(_ path: FilePath) -> Bool { (try? path.stat()) != nil }
}

extension String {
  /// Safe for a terminal: a process may choose a name with control characters.
  var withoutControls: String {
    String(String.UnicodeScalarView(unicodeScalars.map { $0.value < 0x20 || 0x7F..<0xA0 ~= $0.value ? "·" : $0 }))
  }
}
