import Glibc

/// Where an ``AdapterSurvey`` looks: this machine, or a test's folders in its place. Nothing is written.
public struct Machine: Sendable {
  /// Process and kernel information, proc(5).
  public var proc = "/proc"
  /// Devices and modules, sysfs(5).
  public var sys = "/sys"
  /// The kernels' modules, a folder for each release.
  public var modules = "/lib/modules"
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
  /// By the error number of what has failed just now.
  static func failure() -> Sight {
    switch errno {
    case ENOENT, ENOTDIR, ESRCH, ENODEV, ENXIO: .absent
    default: .hidden
    }
  }
}

extension Machine {
  /// The most that is read of a file.
  private static var bound: Int { 1 << 20 }

  /// A small file's text without the white space at its ends; octets that are no UTF-8 are replaced.
  func text(_ path: String) -> Sight<String> {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
    guard descriptor >= 0 else { return .failure() }
    defer { _ = Glibc.close(descriptor) }
    var octets: [UInt8] = []
    // Files of /proc and /sys have no size: read to the end.
    var part = [UInt8](repeating: 0, count: 16_384)
    while octets.count < Self.bound {
      let count = unsafe part.withUnsafeMutableBytes { unsafe read(descriptor, $0.baseAddress, $0.count) }
      if count < 0, errno == EINTR { continue }
      if count < 0 { return .failure() }
      if count == 0 { break }
      octets += part.prefix(count)
    }
    let blank: (UInt8) -> Bool = { $0 == 0x20 || 0x09...0x0D ~= $0 }
    let end = octets.lastIndex { !blank($0) }.map { $0 + 1 } ?? 0
    return .seen(String(decoding: octets[..<end].drop(while: blank), as: UTF8.self))
  }

  /// Where a symbolic link leads, as it is written in it.
  func link(_ path: String) -> Sight<String> {
    var octets = [UInt8](repeating: 0, count: Int(PATH_MAX))
    let count = unsafe octets.withUnsafeMutableBytes { octets in
      unsafe octets.withMemoryRebound(to: CChar.self) {
        unsafe readlink(path, $0.baseAddress.unsafelyUnwrapped, $0.count)
      }
    }
    if count < 0 { return .failure() }
    return .seen(String(decoding: octets.prefix(count), as: UTF8.self))
  }

  /// The names in a folder, sorted.
  func names(_ path: String) -> Sight<[String]> {
    guard let folder = unsafe opendir(path) else { return .failure() }
    defer { unsafe closedir(folder) }
    var names: [String] = []
    while let entry = unsafe readdir(folder) {
      let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
        unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
      }
      if name != ".", name != ".." { names.append(name) }
    }
    return .seen(names.sorted())
  }

  func exists(_ path: String) -> Bool { unsafe access(path, F_OK) == 0 }
}

extension String {
  /// What follows the last slash.
  var lastPathComponent: String { String(self[(lastIndex(of: "/").map(index(after:)) ?? startIndex)...]) }
  /// Fit for a terminal: names that a process chooses may hold control characters.
  var withoutControls: String {
    String(String.UnicodeScalarView(unicodeScalars.map { $0.value < 0x20 || 0x7F..<0xA0 ~= $0.value ? "·" : $0 }))
  }
}
