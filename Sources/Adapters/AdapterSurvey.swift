import BindruneSystem
import BindruneWire
import SystemPackage

/// A Bluetooth adapter of this machine, as far as this process can see it: unknown properties are nil.
public struct BluetoothAdapter: Sendable, Equatable {
  /// N of hciN.
  public var number: UInt16
  /// nil also until the kernel has read it.
  public var address: DeviceAddress?
  /// USB, UART, virtual …
  public var bus: String?
  /// The driver's name, such as btusb.
  public var driver: String?
  /// Manufacturer, product and `vendor:product` in hex, for USB.
  public var product: String?
  /// Whether the kernel's own stack, or the owner of the user channel, has brought it up.
  public var isUp: Bool?
  /// Whether the kernel is bringing it up now.
  public var isStarting: Bool?
  /// Whether a socket has its user channel.
  public var hasUserChannel: Bool?
  public var radioSwitch: RadioSwitch?
  public var name: String { "hci\(number)" }

  public init(number: UInt16) { self.number = number }
}

/// An rfkill switch for Bluetooth: of one adapter, or of the computer.
public struct RadioSwitch: Sendable, Equatable {
  /// `hciN` for an adapter's own switch.
  public var name: String
  /// Off in software.
  public var isSoftBlocked: Bool
  /// Off by a switch or key that software cannot change.
  public var isHardBlocked: Bool
  public var isBlocked: Bool { isSoftBlocked || isHardBlocked }

  public init(name: String, isSoftBlocked: Bool, isHardBlocked: Bool) {
    self.name = name
    self.isSoftBlocked = isSoftBlocked
    self.isHardBlocked = isHardBlocked
  }
}

/// The Bluetooth of this machine, and the obstacles between an adapter's user channel and this process.
///
/// A snapshot, read from /proc, /sys and an HCI socket within some milliseconds. What cannot be seen leaves its
/// property nil and adds a line to ``unseen``; it is never an error.
public struct AdapterSurvey: Sendable, Equatable {
  public struct Kernel: Sendable, Equatable {
    /// The text of `uname -r`.
    public var release: String?
    /// Why there is no HCI socket; nil when there is one.
    public var socketError: Errno?
    /// `bluetooth` and the loaded modules that use it, sorted.
    public var modules: [String] = []
    /// Whether the kernel has Bluetooth, loaded or built in, regardless of this process's rights.
    public var hasBluetooth = false
    /// Whether its module is installed.
    public var isInstalled: Bool?
  }
  public struct Process: Sendable, Equatable {
    /// Whether CAP_NET_ADMIN is effective.
    public var hasCapability: Bool?
    /// Whether setcap and sudo cannot give it: the bounding set lacks it, or no_new_privs is set.
    public var isCapabilityWithheld = false
    /// Whether it is in a user namespace other than the initial one.
    public var isInUserNamespace: Bool?
    /// Whether it is in the host's network namespace.
    public var isInHostNetwork: Bool?
    /// Whether it sees the host's processes.
    public var seesHostProcesses: Bool?
    /// Whether a seccomp filter applies to its system calls.
    public var isFiltered = false
    /// The path of its program, for setcap.
    public var program = "PROGRAM"
  }

  public var kernel = Kernel()
  public var process = Process()
  /// By number.
  public var adapters: [BluetoothAdapter] = []
  /// Switches for Bluetooth.
  public var radioSwitches: [RadioSwitch] = []
  /// Processes with an HCI socket, this one included; bluetoothd has one, for management.
  public var holders: [HCISocketHolder] = []
  /// The process bluetoothd; nil if it was not seen.
  public var daemon: HCISocketHolder?
  /// Bluetooth interfaces on USB without a driver, `vendor:product` in hex.
  public var driverless: [String] = []
  /// What could not be seen, one phrase each.
  public var unseen: [String] = []

  /// Surveys this machine.
  public init() { self.init(Machine()) }
  /// Surveys the machine that `machine` describes.
  package init(_ machine: Machine) {
    // The socket first: opening it loads the kernel's module, and it must be closed before the search for its holders.
    let view = machine.socket()
    kernel = Kernel(machine, socketError: view.error)
    process = Process(machine, hasSocket: view.error == nil)
    radioSwitches = machine.radioSwitches()
    adapters = machine.adapters(view, radioSwitches)
    driverless = machine.driverlessInterfaces()
    if view.error != nil, !adapters.isEmpty {
      unseen.append("the adapters' addresses and states, without an HCI socket")
    }
    if process.hasCapability == nil { unseen.append("this process's rights, \(machine.proc)/self/status") }
    findHolders(of: machine.socketInodes(), in: machine)
  }

  /// Finds the holders of these sockets, and bluetoothd.
  private mutating func findHolders(of inodes: Sight<Set<String>>, in machine: Machine) {
    if case .hidden = inodes { unseen.append("the HCI sockets, \(machine.proc)/net/hci") }
    var closed = 0
    for name in machine.names(machine.proc).value ?? [] {
      guard let pid = Int32(name) else { continue }
      let folder = machine.proc.appending(name)
      // The process has ended.
      guard let command = machine.text(folder.appending("comm")).value?.withoutControls else { continue }
      let holder = HCISocketHolder(pid: pid, name: command)
      if command == "bluetoothd", daemon == nil { daemon = holder }
      guard let inodes = inodes.value, !inodes.isEmpty else { continue }
      switch machine.names(folder.appending("fd")) {
      case .absent: break
      // A kernel thread has no command line, and no sockets.
      case .hidden: if machine.text(folder.appending("cmdline")).value != "" { closed += 1 }
      case .seen(let descriptors):
        let holds = descriptors.contains { descriptor in
          guard case .seen(let target) = machine.link(folder.appending("fd/\(descriptor)")) else { return false }
          return target.hasPrefix("socket:[") && inodes.contains(String(target.dropFirst(8).dropLast()))
        }
        if holds { holders.append(holder) }
      }
    }
    holders.sort { $0.pid < $1.pid }
    if closed > 0 {
      unseen.append("the sockets of \(closed == 1 ? "1 process" : "\(closed) processes") of other users")
    }
    if process.seesHostProcesses == false { unseen.append("the processes outside this container") }
  }
}

// MARK: - The kernel and this process

extension AdapterSurvey.Kernel {
  fileprivate init(_ machine: Machine, socketError: Errno?) {
    release = machine.text(machine.proc.appending("sys/kernel/osrelease")).value?.withoutControls
    self.socketError = socketError
    let table = machine.text(machine.proc.appending("modules"))
    // name, size, uses, the modules that use it, …: proc_modules(5)
    for line in table.value?.split(separator: "\n") ?? [] {
      let words = line.split(separator: " ")
      guard words.count > 3, words[0] == "bluetooth" else { continue }
      modules = (["bluetooth"] + words[3].split(separator: ",").filter { $0 != "-" }.map(String.init)).sorted()
    }
    hasBluetooth =
      socketError == nil || !modules.isEmpty || machine.exists(machine.sys.appending("module/bluetooth"))
      || machine.exists(machine.sys.appending("class/bluetooth"))
    if table.isAbsent {
      isInstalled = false  // a kernel that loads no modules
    } else if let release, case .seen = machine.names(machine.modules.appending(release)) {
      let files = machine.names(machine.modules.appending("\(release)/kernel/net/bluetooth")).value ?? []
      isInstalled = files.contains { $0.hasPrefix("bluetooth.ko") }
    }
  }
}

extension AdapterSurvey.Process {
  /// include/linux/capability.h
  private static var networkAdministration: UInt64 { 1 << 12 }

  fileprivate init(_ machine: Machine, hasSocket: Bool) {
    let own = machine.proc.appending("self")
    let status = (machine.text(own.appending("status")).value ?? "").split(separator: "\n")
    func field(_ name: String) -> Substring? {
      status.first { $0.hasPrefix(name + ":") }?.dropFirst(name.utf8.count + 1).drop { $0 == "\t" || $0 == " " }
    }
    func capabilities(_ name: String) -> UInt64? { field(name).flatMap { UInt64($0, radix: 16) } }
    hasCapability = capabilities("CapEff").map { $0 & Self.networkAdministration != 0 }
    isCapabilityWithheld =
      capabilities("CapBnd").map { $0 & Self.networkAdministration == 0 } ?? false || field("NoNewPrivs") == "1"
    isFiltered = field("Seccomp").map { $0 != "0" } ?? false
    // The initial namespaces have fixed numbers (include/linux/proc_ns.h), the network's only since Linux 6.18.
    let user = machine.link(own.appending("ns/user"))
    isInUserNamespace = user.value.map { $0 != "user:[4026531837]" } ?? (user.isAbsent ? false : nil)
    seesHostProcesses = machine.link(own.appending("ns/pid")).value.map { $0 == "pid:[4026531836]" }
    let network = machine.link(own.appending("ns/net")).value
    if hasSocket || network == "net:[4026531833]" {
      isInHostNetwork = true
    } else if let network, seesHostProcesses == true, let first = machine.link(machine.proc.appending("1/ns/net")).value
    {
      isInHostNetwork = network == first
    }
    // If the program was rebuilt while it runs, its path ends in " (deleted)".
    if case .seen(let path) = machine.link(own.appending("exe")) {
      program = (path.hasSuffix(" (deleted)") ? String(path.dropLast(10)) : path).withoutControls
    }
  }
}

// MARK: - Adapters and switches

extension Machine {
  /// The adapters alone, without the search for processes: for a look once a second.
  package func adapters() -> [BluetoothAdapter] { adapters(socket(), radioSwitches()) }

  fileprivate func radioSwitches() -> [RadioSwitch] {
    let folder = sys.appending("class/rfkill")
    return (names(folder).value ?? []).compactMap { entry in
      guard text(folder.appending("\(entry)/type")).value == "bluetooth",
        let name = text(folder.appending("\(entry)/name")).value
      else { return nil }
      return RadioSwitch(
        name: name.withoutControls, isSoftBlocked: text(folder.appending("\(entry)/soft")).value == "1",
        isHardBlocked: text(folder.appending("\(entry)/hard")).value == "1")
    }
  }

  /// The adapters that the socket lists, completed from /sys; without a socket those in /sys.
  fileprivate func adapters(_ view: HCISocketView, _ switches: [RadioSwitch]) -> [BluetoothAdapter] {
    var found: [BluetoothAdapter]
    if view.error == nil {
      found = view.adapters.map { entry in
        var adapter = BluetoothAdapter(number: entry.number)
        adapter.address = entry.address
        adapter.bus = HCISocketView.busName(entry.bus)
        adapter.isUp = entry.isUp
        adapter.isStarting = entry.isStarting
        adapter.hasUserChannel = entry.hasUserChannel
        return adapter
      }
    } else {
      // The folder also contains an adapter's links, hci0:256.
      found = (names(sys.appending("class/bluetooth")).value ?? []).compactMap { name in
        name.hasPrefix("hci") ? UInt16(name.dropFirst(3)).map { BluetoothAdapter(number: $0) } : nil
      }
    }
    for place in found.indices {
      describe(&found[place])
      found[place].radioSwitch = switches.first { $0.name == found[place].name }
    }
    return found.sorted { $0.number < $1.number }
  }

  /// The last component of a symbolic link's target.
  private func nameOfTarget(_ path: FilePath) -> String? {
    link(path).value.flatMap { FilePath($0).lastComponent?.string }
  }

  private func describe(_ adapter: inout BluetoothAdapter) {
    let folder = sys.appending("class/bluetooth/\(adapter.name)")
    let device = folder.appending("device")
    adapter.driver = nameOfTarget(device.appending("driver"))
    if adapter.bus == nil {
      switch nameOfTarget(device.appending("subsystem")) {
      case "usb": adapter.bus = "USB"
      case "serial", "tty": adapter.bus = "UART"
      case let bus?: adapter.bus = bus
      case nil:
        // A search for text in a text would bring the standard library's regular expressions into each program: 1.3 MB.
        if let target = link(folder).value, FilePath(target).components.contains("virtual") { adapter.bus = "virtual" }
      }
    }
    // The device is an interface; the folder above is the USB device.
    let vendor = text(device.appending("../idVendor")).value, product = text(device.appending("../idProduct")).value
    guard let vendor, let product else { return }
    let words = ["manufacturer", "product"].compactMap { text(device.appending("../\($0)")).value?.withoutControls }
    adapter.product = (words + ["\(vendor):\(product)"]).joined(separator: " ")
  }

  /// Class E0, subclass 01, protocol 01: a Bluetooth programming interface, by the USB-IF's class codes.
  fileprivate func driverlessInterfaces() -> [String] {
    let folder = sys.appending("bus/usb/devices")
    var found: [String] = []
    for name in names(folder).value ?? [] {
      guard let colon = name.firstIndex(of: ":") else { continue }
      let interface = folder.appending(name), device = folder.appending(String(name[..<colon]))
      let codes = ["Class", "SubClass", "Protocol"].map { text(interface.appending("bInterface\($0)")).value }
      guard codes == ["e0", "01", "01"], link(interface.appending("driver")).isAbsent,
        let vendor = text(device.appending("idVendor")).value, let product = text(device.appending("idProduct")).value
      else { continue }
      let pair = "\(vendor):\(product)".withoutControls
      if !found.contains(pair) { found.append(pair) }  // an adapter has several interfaces
    }
    return found
  }

  /// The inodes of all HCI sockets of the host's network namespace.
  fileprivate func socketInodes() -> Sight<Set<String>> {
    let table: String
    switch text(proc.appending("net/hci")) {
    case .absent: return .absent
    case .hidden: return .hidden
    case .seen(let text): table = text
    }
    let lines = table.split(separator: "\n")
    guard let column = lines.first?.split(separator: " ").firstIndex(of: "Inode") else { return .seen([]) }
    // A socket without a descriptor has inode 0.
    return .seen(
      Set(
        lines.dropFirst().compactMap {
          let words = $0.split(separator: " ")
          return words.indices.contains(column) && words[column] != "0" ? String(words[column]) : nil
        }))
  }
}
