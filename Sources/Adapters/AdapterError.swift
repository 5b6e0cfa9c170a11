import SystemPackage

/// Why an adapter cannot be opened: one case for each cause that a user can remedy. `description` is one sentence, the
/// cause and the cure.
///
/// The kernel returns only a number, and one number for several causes: EBUSY for an adapter that is up, taken, or in
/// set-up. ``init(_:adapter:survey:)`` examines the machine to distinguish them.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum AdapterError: Error, Sendable, Hashable, CustomStringConvertible {
  /// This kernel, of the given release, has no Bluetooth, and no module that could be loaded.
  case noKernelSupport(release: String)
  /// The kernel has no Bluetooth loaded; `isInstalled` if its module was found, false if that is unknown.
  case notLoaded(release: String, isInstalled: Bool)
  /// Linux supports Bluetooth in the host's network namespace only, and this process is in another.
  case foreignNetwork
  /// A seccomp filter, such as systemd's `RestrictAddressFamilies=`, blocks Bluetooth sockets.
  case filtered
  /// There is no such adapter. `present` are the existing ones; without any, `hint` may name the obstacle.
  case notFound(UInt16, present: [UInt16], hint: Hint?)
  /// The kernel's own Bluetooth stack uses it; `daemon` when bluetoothd runs.
  case up(UInt16, daemon: Bool)
  /// Another socket has its user channel. The kernel does not report whose: the `candidates` hold HCI sockets.
  case taken(UInt16, candidates: [HCISocketHolder])
  /// The kernel has not finished its set-up, which takes a fraction of a second.
  case inSetUp(UInt16)
  /// CAP_NET_ADMIN is missing. `isWithheld` if setcap and sudo could not give it either, as in a container.
  case noCapability(program: String, isWithheld: Bool)
  /// In a user namespace no capability applies to an adapter.
  case userNamespace
  /// Switched off by rfkill; `isHard` by a switch that software cannot change.
  case blocked(UInt16, isHard: Bool)
  /// Any other system error; without an adapter if creating the socket failed.
  case system(UInt16?, Errno)

  /// Why a machine with a Bluetooth adapter does not list it.
  #if hasAttribute(nonexhaustive)
    @nonexhaustive(warn)
  #endif
  public enum Hint: Sendable, Hashable {
    /// A USB adapter, `vendor:product` in hex, without a driver.
    case withoutDriver(String)
    /// This rfkill switch is off, which removes the adapter on many laptops.
    case switchedOff(String, isHard: Bool)
  }

  /// The first half of the sentence.
  public var cause: String {
    switch self {
    case .noKernelSupport(let release): "Linux \(release) has no Bluetooth here, and no module for it"
    case .notLoaded(let release, _): "Linux \(release) has no Bluetooth loaded"
    case .foreignNetwork: "Linux has no Bluetooth in this process's network namespace, only in the host's"
    case .filtered: "A seccomp filter blocks Bluetooth sockets for this process"
    case .notFound(let number, let present, _) where !present.isEmpty: "There is no hci\(number)"
    case .notFound(_, _, .withoutDriver(let product)): "The Bluetooth adapter \(product) on USB has no driver"
    case .notFound(_, _, .switchedOff(let name, true)):
      "There is no Bluetooth adapter, and the radio switch \(name) is off in hardware"
    case .notFound(_, _, .switchedOff(let name, false)):
      "There is no Bluetooth adapter, and the radio switch \(name) is off in software"
    case .notFound: "There is no Bluetooth adapter on this machine"
    case .up(let number, true): "hci\(number) is up: the kernel and bluetoothd use it"
    case .up(let number, false): "hci\(number) is up: the kernel uses it"
    case .taken(let number, let candidates) where candidates.isEmpty:
      "hci\(number) is taken by a process that this one cannot see"
    case .taken(let number, let candidates):
      "hci\(number) is taken, perhaps by " + candidates.map(\.description).joined(separator: " or ")
    case .inSetUp(let number): "hci\(number) is still being set up by the kernel"
    case .noCapability(_, false): "This process lacks CAP_NET_ADMIN"
    case .noCapability(_, true): "CAP_NET_ADMIN is withheld from this process and from all that it starts"
    case .userNamespace: "This process is in a user namespace, where not even root may open an adapter"
    case .blocked(let number, true): "hci\(number) is switched off in hardware (rfkill)"
    case .blocked(let number, false): "hci\(number) is switched off in software (rfkill)"
    case .system(let number?, let error): "hci\(number) failed (\(error))"
    case .system(nil, let error): "An HCI socket failed (\(error))"
    }
  }

  /// The second half: what to do, with the command line where there is one.
  public var cure: String { cure(takingDown: "open it with `takesDown: true`") }

  /// The same. `advice` tells the user how to have an adapter that is up taken down; a program that has an option for
  /// it names the option here.
  public func cure(takingDown advice: String) -> String {
    switch self {
    case .noKernelSupport:
      "boot a kernel with Bluetooth (a distribution's full one, not its cloud kernel), or use another controller "
        + "(tcp:HOST:PORT)"
    case .notLoaded(_, true): "run `sudo modprobe bluetooth`"
    case .notLoaded(_, false):
      "run `sudo modprobe bluetooth` on the host; if it knows no such module, boot a kernel that has it"
    case .foreignNetwork:
      "run it in the host's (docker, podman: `--network host`; else `sudo nsenter --target 1 --net`)"
    case .filtered: "let it have AF_BLUETOOTH (systemd: `RestrictAddressFamilies=AF_BLUETOOTH`)"
    case .notFound(_, let present, _) where !present.isEmpty:
      "use " + present.map { "hci\($0)" }.joined(separator: " or ")
    case .notFound(_, _, .withoutDriver): "run `sudo modprobe btusb`"
    case .notFound(_, _, .switchedOff(_, true)): "turn the radio switch on, or Bluetooth in the firmware's settings"
    case .notFound(_, _, .switchedOff(_, false)): "run `rfkill unblock bluetooth`"
    case .notFound:
      "plug one in (into a virtual machine: hand a USB one through), or look for one that failed: "
        + "`sudo dmesg | grep -i bluetooth`"
    case .up(_, true): "\(advice), which brings it up again at the end, or run `bluetoothctl power off` first"
    case .up(let number, false):
      "\(advice), which brings it up again at the end, or run `sudo btmgmt --index \(number) power off` first"
    case .taken(let number, let candidates) where candidates.isEmpty:
      "end that process, which `sudo bindrune doctor hci\(number)` can name"
    case .taken: "end that process"
    case .inSetUp:
      "try again in a moment; if it stays so, `sudo dmesg | grep -i bluetooth` shows what its driver waits for"
    case .noCapability(let program, false):
      "run `sudo setcap cap_net_admin+ep \(program.quotedForShell)` (again after each build), or the program with sudo"
    case .noCapability(_, true):
      "grant it where the process is confined (docker, podman: `--cap-add NET_ADMIN`; systemd: "
        + "`AmbientCapabilities=CAP_NET_ADMIN`)"
    case .userNamespace: "run it outside (podman and docker: not rootless; unshare: without --user)"
    case .blocked(_, true): "turn the radio switch on, or Bluetooth in the firmware's settings"
    case .blocked(_, false): "run `rfkill unblock bluetooth`"
    case .system(let number, _): "run `bindrune doctor\(number.map { " hci\($0)" } ?? "")`"
    }
  }

  public var description: String { "\(cause): \(cure)." }
}

/// A process that holds an HCI socket, and so perhaps an adapter's user channel; the kernel does not report which
/// sockets are.
public struct HCISocketHolder: Sendable, Hashable, CustomStringConvertible {
  public var pid: Int32
  /// The kernel's name for it: at most 15 octets, which the process itself may choose.
  public var name: String
  public init(pid: Int32, name: String) {
    self.pid = pid
    self.name = name
  }
  public var description: String { "\(name) (pid \(pid))" }
}

extension String {
  /// Quoted as one word for a shell.
  fileprivate var quotedForShell: String {
    let isPlain =
      !isEmpty
      && unicodeScalars.allSatisfy { $0.properties.isAlphabetic || "0123456789/._-+".unicodeScalars.contains($0) }
    return isPlain
      ? self : "'" + split(separator: "'", omittingEmptySubsequences: false).joined(separator: #"'\''"#) + "'"
  }
}
