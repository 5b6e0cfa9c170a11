import SystemPackage

/// Where an ``AdapterSurvey`` looks: this machine, or a test's folders in its place. Nothing is written.
public struct Machine: Sendable {
  /// Process and kernel information, proc(5).
  public var proc: FilePath = "/proc"
  /// Devices and modules, sysfs(5).
  public var sys: FilePath = "/sys"
  /// The kernels' modules, a folder for each release.
  public var modules: FilePath = "/lib/modules"
  /// What an HCI socket tells.
  public var socket: @Sendable () -> HCISocketView = HCISocketView.now

  public init() {}
}

/// What a look at a file gives.
enum Sight<Value> {
  case seen(Value)
  /// It does not exist, or no longer: processes end while one looks.
  case absent
  /// It exists, and is not for this process.
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
  /// The most that is read of a file.
  private static var bound: Int { 1 << 20 }

  /// A small file's text without the white space at its ends; octets that are no UTF-8 are replaced.
  func text(_ path: FilePath) -> Sight<String> {
    Sight { () throws(Errno) in
      let file = try Errno.typed { try FileDescriptor.open(path, .readOnly, options: [.closeOnExec, .nonBlocking]) }
      defer { try? file.close() }
      let octets = try file.readAll(upTo: Self.bound)
      let blank: (UInt8) -> Bool = { $0 == 0x20 || 0x09...0x0D ~= $0 }
      let end = octets.lastIndex { !blank($0) }.map { $0 + 1 } ?? 0
      return String(decoding: octets[..<end].drop(while: blank), as: UTF8.self)
    }
  }

  /// Where a symbolic link leads, as it is written in it.
  func link(_ path: FilePath) -> Sight<String> { Sight { () throws(Errno) in try path.target() } }

  /// The names in a folder, sorted.
  func names(_ path: FilePath) -> Sight<[String]> { Sight { () throws(Errno) in try path.names() } }

  func exists(_ path: FilePath) -> Bool { (try? path.stat()) != nil }
}

extension String {
  /// Fit for a terminal: names that a process chooses may hold control characters.
  var withoutControls: String {
    String(String.UnicodeScalarView(unicodeScalars.map { $0.value < 0x20 || 0x7F..<0xA0 ~= $0.value ? "·" : $0 }))
  }
}
