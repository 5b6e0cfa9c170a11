import BindruneSystem
import BindruneWire
import Foundation
import SystemPackage
import TestSupport
import Testing

@testable import BindruneAdapters

/// A simulated machine of folders, as Linux 6.1 shows it, in the formats of fs/proc, net/bluetooth/af_bluetooth.c
/// (bt_seq_show), net/rfkill/core.c and proc_modules(5). Each test removes its subject.
private final class FakeMachine {
  let root: URL
  var machine = Machine()

  init() throws {
    root = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)")
    machine.proc = FilePath(root.appending(path: "proc").path)
    machine.sys = FilePath(root.appending(path: "sys").path)
    machine.modules = FilePath(root.appending(path: "modules").path)
    machine.socket = { HCISocketView() }
    try write("proc/sys/kernel/osrelease", "6.1.0-56-amd64\n")
    try write(
      "proc/modules",
      """
      btusb 65536 0 - Live 0x0000000000000000
      bluetooth 958464 7 btusb,btintel,bnep, Live 0x0000000000000000
      ecdh_generic 16384 1 bluetooth, Live 0x0000000000000000

      """)
    try write("sys/module/bluetooth/parameters/disable_ertm", "N\n")
    try write("modules/6.1.0-56-amd64/kernel/net/bluetooth/bluetooth.ko", "")
    try status()
    try link("proc/self/ns/user", "user:[4026531837]")
    try link("proc/self/ns/pid", "pid:[4026531836]")
    try link("proc/self/ns/net", "net:[4026531840]")
    try link("proc/1/ns/net", "net:[4026531840]")
    try link("proc/self/exe", "/usr/local/bin/bindrune")
    try write("proc/net/hci", Self.sockets([]))
  }
  deinit { try? FileManager.default.removeItem(at: root) }

  func write(_ path: String, _ text: String) throws { try write(path, Data(text.utf8)) }
  func write(_ path: String, _ data: Data) throws {
    let file = root.appending(path: path)
    try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
    try data.write(to: file)
  }
  func link(_ path: String, _ target: String) throws {
    let file = root.appending(path: path)
    try FileManager.default.createDirectory(at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
    try? FileManager.default.removeItem(at: file)
    try FileManager.default.createSymbolicLink(atPath: file.path, withDestinationPath: target)
  }
  func remove(_ path: String) throws { try FileManager.default.removeItem(at: root.appending(path: path)) }
  /// Exists, but cannot be opened, even by root.
  func hide(_ path: String) throws {
    try link(path, URL(filePath: path).lastPathComponent)
  }

  /// bt_seq_show
  static func sockets(_ inodes: [Int]) -> String {
    "sk               RefCnt Rmem   Wmem   User   Inode  Parent\n"
      + inodes.map { "0000000000000000 2      0      0      0      \($0)  0     \n" }.joined()
  }
  /// CAP_NET_ADMIN is bit 12.
  func status(effective: String = "000001ffffffffff", bounding: String = "000001ffffffffff", more: String = "") throws {
    try write(
      "proc/self/status",
      "Name:\tbindrune\nCapInh:\t0000000000000000\nCapEff:\t\(effective)\nCapBnd:\t\(bounding)\n\(more)")
  }
  func process(_ pid: Int, _ name: String, sockets: [Int] = []) throws {
    try write("proc/\(pid)/comm", name + "\n")
    try link("proc/\(pid)/fd/0", "/dev/null")
    for (place, inode) in sockets.enumerated() { try link("proc/\(pid)/fd/\(place + 3)", "socket:[\(inode)]") }
  }
  func radioSwitch(_ number: Int, _ name: String, type: String = "bluetooth", soft: Int = 0, hard: Int = 0) throws {
    for (file, text) in [("name", name), ("type", type), ("soft", "\(soft)"), ("hard", "\(hard)")] {
      try write("sys/class/rfkill/rfkill\(number)/\(file)", text + "\n")
    }
  }
  /// An adapter on USB, as /sys has it: the class links to the device, and that to the interface that the driver has.
  func usb(_ number: Int) throws {
    let device = "sys/devices/usb1/1-8"
    for (file, text) in [
      ("idVendor", "8087"), ("idProduct", "0029"), ("manufacturer", "Intel Corp."), ("product", "AX200 Bluetooth"),
    ] { try write("\(device)/\(file)", text + "\n") }
    try link("\(device)/1-8:1.0/driver", "../../../../../bus/usb/drivers/btusb")
    try link("\(device)/1-8:1.0/subsystem", "../../../../../bus/usb")
    try link("\(device)/1-8:1.0/bluetooth/hci\(number)/device", "../../../1-8:1.0")
    try link("sys/class/bluetooth/hci\(number)", "../../devices/usb1/1-8/1-8:1.0/bluetooth/hci\(number)")
  }
  func socket(_ adapters: HCISocketView.Entry...) { machine.socket = { HCISocketView(adapters: adapters) } }
  func noSocket(_ error: Errno = .addressFamilyNotSupported) { machine.socket = { HCISocketView(error: error) } }

  var survey: AdapterSurvey { AdapterSurvey(machine) }
}

extension HCISocketView.Entry {
  /// HCI_UP is bit 0 of the flags, HCI_INIT bit 1; bus 1 is USB: include/net/bluetooth/hci.h.
  fileprivate static func adapter(_ number: UInt16, flags: UInt32 = 0, isTaken: Bool? = false) -> Self {
    Self(number: number, address: DeviceAddress(0x001A_7DDA_7113), bus: 1, flags: flags, hasUserChannel: isTaken)
  }
}

@Suite struct AdapterTests {
  // MARK: Survey

  @Test func everythingInOrder() throws {
    let fake = try FakeMachine()
    try fake.usb(0)
    try fake.radioSwitch(0, "phy0", type: "wlan", soft: 1)
    try fake.radioSwitch(1, "hci0")
    try fake.process(612, "sshd", sockets: [77])
    fake.socket(
      .adapter(0), HCISocketView.Entry(number: 1, address: nil, bus: 0, flags: 0, hasUserChannel: false))
    let survey = fake.survey
    #expect(
      survey.kernel.release == "6.1.0-56-amd64" && survey.kernel.hasBluetooth && survey.kernel.isInstalled == true)
    #expect(survey.kernel.modules == ["bluetooth", "bnep", "btintel", "btusb"])
    #expect(survey.process.hasCapability == true && survey.process.isInUserNamespace == false)
    #expect(survey.process.isInHostNetwork == true && !survey.process.isCapabilityWithheld)
    #expect(survey.process.program == "/usr/local/bin/bindrune")
    #expect(survey.adapters.map(\.name) == ["hci0", "hci1"])
    let first = survey.adapters[0]
    #expect(first.address?.text == "00:1A:7D:DA:71:13" && first.bus == "USB" && first.driver == "btusb")
    #expect(first.product == "Intel Corp. AX200 Bluetooth 8087:0029")
    #expect(first.isUp == false && first.hasUserChannel == false && first.radioSwitch?.isBlocked == false)
    #expect(survey.adapters[1].bus == "virtual" && survey.adapters[1].address == nil)
    #expect(survey.adapters[1].radioSwitch == nil && survey.adapters[1].driver == nil)
    #expect(survey.holders.isEmpty && survey.daemon == nil && survey.unseen.isEmpty)
    let checks = survey.processChecks + [survey.presenceCheck] + survey.checks(of: 0) + survey.checks(of: 1)
    #expect(checks.allSatisfy { $0.verdict == .passed }, "\(checks)")
    #expect(survey.obstacle(to: 0) == nil && survey.obstacle(to: 1) == nil)
  }

  /// Bus names for the numbers of include/net/bluetooth/hci.h.
  @Test func buses() {
    #expect([0, 1, 3, 6, 11].map(HCISocketView.busName) == ["virtual", "USB", "UART", "SDIO", "IPC"])
    #expect(HCISocketView.busName(200) == "bus 200")
  }

  /// A silent controller: after some seconds the kernel stops its start, and no flag shows that.
  @Test func setUpThatIsNotFinished() {
    func entry(_ isManaged: Bool?, owned: Bool?, flags: UInt32 = 0) -> HCISocketView.Entry {
      .init(number: 0, address: nil, bus: 0, flags: flags, hasUserChannel: owned, isManaged: isManaged)
    }
    #expect(entry(false, owned: false).isStarting)
    #expect(!entry(false, owned: true).isStarting, "one whose user channel is open is not listed either")
    #expect(!entry(true, owned: false).isStarting && !entry(nil, owned: false).isStarting)
    #expect(entry(nil, owned: nil, flags: 2).isStarting)
  }

  /// As BlueZ's doc/mgmt-api.txt describes the answer.
  @Test func managedAdapters() {
    let answer: [UInt8] = [
      0x01, 0x00, 0xFF, 0xFF, 0x0D, 0x00, 0x3C, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x03, 0x01, 0x01, 0x03,
    ]
    #expect(HCISocketView.managedAdapters(in: answer[...]) == [0, 0x0103])
    for count in 0..<answer.count { #expect(HCISocketView.managedAdapters(in: answer[..<count]) == nil) }
    var other = answer
    other[8] = 0x01  // Unknown Command: a kernel that is too old
    #expect(HCISocketView.managedAdapters(in: other[...]) == nil)
  }

  @Test func withoutASocket() throws {
    let fake = try FakeMachine()
    fake.noSocket()
    try fake.usb(0)
    try fake.link("sys/class/bluetooth/hci3", "../../devices/virtual/bluetooth/hci3")
    // Connections are in the same folder.
    try fake.link("sys/class/bluetooth/hci0:256", "../../devices/usb1/1-8/1-8:1.0/bluetooth/hci0/hci0:256")
    let survey = fake.survey
    #expect(survey.adapters.map(\.name) == ["hci0", "hci3"])
    #expect(survey.adapters.map(\.bus) == ["USB", "virtual"])
    #expect(survey.adapters[0].driver == "btusb" && survey.adapters[0].isUp == nil)
    #expect(survey.unseen == ["the adapters' addresses and states, without an HCI socket"])
    // An unknown fact is no obstacle; the missing socket is.
    #expect(survey.checks(of: 0).map(\.verdict).filter { $0 == .unknown }.count == 3)
    #expect(survey.obstacle(to: 0) == .foreignNetwork)
  }

  @Test func holders() throws {
    let fake = try FakeMachine()
    try fake.write("proc/net/hci", FakeMachine.sockets([31337, 4711, 0]))
    try fake.process(612, "bluetoothd", sockets: [4711])
    try fake.process(80, "btmon", sockets: [1, 31337])
    try fake.process(81, "tty", sockets: [313370, 0])
    // Vanished between listing and reading, twice; not a process.
    try fake.write("proc/900/comm", "gone\n")
    try fake.write("proc/901/status", "")
    try fake.write("proc/acpi/comm", "bluetoothd\n")
    // Another user's process, and a kernel thread, which has no command line.
    try fake.write("proc/902/comm", "root's\n")
    try fake.write("proc/902/cmdline", "root's\0--flag\0")
    try fake.hide("proc/902/fd")
    try fake.write("proc/903/comm", "kworker/0:1\n")
    try fake.write("proc/903/cmdline", "")
    try fake.hide("proc/903/fd")
    let survey = fake.survey
    #expect(
      survey.holders == [HCISocketHolder(pid: 80, name: "btmon"), HCISocketHolder(pid: 612, name: "bluetoothd")])
    #expect(survey.daemon?.pid == 612)
    #expect(survey.unseen == ["the sockets of 1 process of other users"])
  }

  /// A process chooses its own name, up to 15 octets, and a terminal would obey it.
  @Test func namesAreTamed() throws {
    let fake = try FakeMachine()
    try fake.write("proc/net/hci", FakeMachine.sockets([5]))
    try fake.process(80, "\u{1B}[2J\nbad", sockets: [5])
    try fake.link("proc/self/exe", "/tmp/a\nb")
    #expect(fake.survey.holders.map(\.name) == ["·[2J·bad"])
    #expect(fake.survey.process.program == "/tmp/a·b")
  }

  // MARK: Each cause

  @Test func noKernelSupport() throws {
    let fake = try FakeMachine()
    fake.noSocket()
    for path in ["sys/module", "proc/net/hci"] { try fake.remove(path) }
    try fake.write("proc/modules", "ext4 950272 1 - Live 0x0000000000000000\n")
    #expect(error(fake, .addressFamilyNotSupported) == .notLoaded(release: "6.1.0-56-amd64", isInstalled: true))
    // Debian's cloud kernel: modules, but none for Bluetooth.
    try fake.remove("modules/6.1.0-56-amd64/kernel/net/bluetooth")
    #expect(error(fake, .addressFamilyNotSupported) == .noKernelSupport(release: "6.1.0-56-amd64"))
    // A container rarely has the modules' folder.
    try fake.remove("modules")
    #expect(error(fake, .addressFamilyNotSupported) == .notLoaded(release: "6.1.0-56-amd64", isInstalled: false))
    // A kernel without modules has no list of them.
    try fake.remove("proc/modules")
    #expect(error(fake, .addressFamilyNotSupported) == .noKernelSupport(release: "6.1.0-56-amd64"))
    #expect(fake.survey.presenceCheck.verdict == .unknown)
    #expect(fake.survey.checks(of: 0).map(\.verdict) == [.unknown])
  }

  @Test func foreignNetwork() throws {
    let fake = try FakeMachine()
    fake.noSocket()
    try fake.link("proc/self/ns/net", "net:[4026532777]")
    #expect(fake.survey.process.isInHostNetwork == false)
    #expect(error(fake, .addressFamilyNotSupported) == .foreignNetwork)
    // Inside a container even process 1 is in the namespace, so there is nothing to compare with.
    try fake.link("proc/self/ns/pid", "pid:[4026532778]")
    try fake.link("proc/1/ns/net", "net:[4026532777]")
    #expect(fake.survey.process.isInHostNetwork == nil)
    #expect(fake.survey.unseen == ["the processes outside this container"])
    #expect(error(fake, .addressFamilyNotSupported) == .foreignNetwork)
  }

  @Test func filtered() throws {
    let fake = try FakeMachine()
    fake.noSocket()
    try fake.status(more: "NoNewPrivs:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n")
    #expect(error(fake, .addressFamilyNotSupported) == .filtered)
    // Since Linux 6.18 the host's namespace has a number of its own.
    try fake.remove("proc/1")
    try fake.link("proc/self/ns/net", "net:[4026531833]")
    #expect(error(fake, .addressFamilyNotSupported) == .filtered)
    fake.noSocket(.notPermitted)
    #expect(error(fake, .notPermitted) == .filtered)
    fake.noSocket(.tooManyOpenFiles)
    #expect(fake.survey.obstacle(to: 0) == .system(nil, .tooManyOpenFiles))
  }

  @Test func notFound() throws {
    let fake = try FakeMachine()
    fake.socket(.adapter(0), .adapter(2))
    #expect(error(fake, .noSuchDevice, 1) == .notFound(1, present: [0, 2], hint: nil))
    // It appeared between the two checks.
    #expect(AdapterError(.noSuchDevice, adapter: 2, survey: fake.survey) == .inSetUp(2))
    fake.socket()
    #expect(error(fake, .noSuchDevice, 1) == .notFound(1, present: [], hint: nil))
    #expect(fake.survey.presenceCheck.error == .notFound(0, present: [], hint: nil))

    // USB interfaces: a keyboard, Bluetooth with a driver, Bluetooth without.
    let folder = "sys/bus/usb/devices"
    for (device, codes, driver) in [("1-2", "03 01 01", ""), ("1-3", "e0 01 01", "btusb"), ("1-4", "e0 01 01", "")] {
      let words = codes.split(separator: " ")
      for interface in ["1.0", "1.1"] {
        for (file, text) in zip(["Class", "SubClass", "Protocol"], words) {
          try fake.write("\(folder)/\(device):\(interface)/bInterface\(file)", text + "\n")
        }
        if !driver.isEmpty {
          try fake.link("\(folder)/\(device):\(interface)/driver", "../../../../bus/usb/drivers/btusb")
        }
      }
      try fake.write("\(folder)/\(device)/idVendor", "0a12\n")
      try fake.write("\(folder)/\(device)/idProduct", "000\(device.suffix(1))\n")
    }
    #expect(fake.survey.driverless == ["0a12:0004"])
    #expect(error(fake, .noSuchDevice, 1) == .notFound(1, present: [], hint: .withoutDriver("0a12:0004")))
    // A device that is switched off is not on the bus, which is the closer cause.
    try fake.radioSwitch(0, "tpacpi_bluetooth_sw", soft: 1)
    #expect(
      error(fake, .noSuchDevice, 1)
        == .notFound(1, present: [], hint: .switchedOff("tpacpi_bluetooth_sw", isHard: false)))
    try fake.radioSwitch(0, "tpacpi_bluetooth_sw", soft: 1, hard: 1)
    #expect(
      error(fake, .noSuchDevice, 1)
        == .notFound(1, present: [], hint: .switchedOff("tpacpi_bluetooth_sw", isHard: true)))
  }

  @Test func theFirstThatCanBeOpened() throws {
    let fake = try FakeMachine()
    fake.socket(.adapter(0, flags: 0x5), .adapter(1), .adapter(2))
    #expect(try fake.survey.firstUsable().number == 1)
    fake.socket(.adapter(0, flags: 0x5), .adapter(1, isTaken: true))
    #expect(throws: AdapterError.up(0, daemon: false)) { try fake.survey.firstUsable() }
    fake.socket()
    #expect(throws: AdapterError.notFound(0, present: [], hint: nil)) { try fake.survey.firstUsable() }
    try fake.status(effective: "0")
    #expect(throws: AdapterError.noCapability(program: "/usr/local/bin/bindrune", isWithheld: false)) {
      try fake.survey.firstUsable()
    }
  }

  /// EBUSY has three causes.
  @Test func busy() throws {
    let fake = try FakeMachine()
    fake.socket(.adapter(0, flags: 0x5))
    #expect(error(fake, .resourceBusy) == .up(0, daemon: false))
    try fake.process(612, "bluetoothd")
    #expect(error(fake, .resourceBusy) == .up(0, daemon: true))

    // A taken adapter is up as well; bluetoothd's socket is for management.
    fake.socket(.adapter(0, flags: 0x5, isTaken: true))
    #expect(error(fake, .resourceBusy) == .taken(0, candidates: []))
    try fake.write("proc/net/hci", FakeMachine.sockets([10, 11, 12]))
    try fake.process(612, "bluetoothd", sockets: [10])
    try fake.process(700, "node", sockets: [11, 12])
    let candidates = [HCISocketHolder(pid: 700, name: "node")]
    #expect(error(fake, .resourceBusy) == .taken(0, candidates: candidates))
    #expect(AdapterError(.tooManyUsers, adapter: 0, survey: fake.survey) == .taken(0, candidates: candidates))
    #expect(fake.survey.checks(of: 0).compactMap(\.error).count == 1)

    // HCI_INIT; then the set-up phase that no flag shows.
    fake.socket(.adapter(0, flags: 0x2))
    #expect(error(fake, .resourceBusy) == .inSetUp(0))
    fake.socket(.adapter(0))
    #expect(AdapterError(.resourceBusy, adapter: 0, survey: fake.survey) == .inSetUp(0))
  }

  @Test func noCapability() throws {
    let fake = try FakeMachine()
    fake.socket(.adapter(0))
    // CAP_NET_RAW, bit 13, is not enough.
    try fake.status(effective: "0000000000002000")
    #expect(error(fake, .notPermitted) == .noCapability(program: "/usr/local/bin/bindrune", isWithheld: false))
    try fake.status(effective: "0000000000000000", bounding: "00000000a80425fb")  // Docker's
    #expect(error(fake, .notPermitted) == .noCapability(program: "/usr/local/bin/bindrune", isWithheld: true))
    try fake.status(effective: "0000000000000000", more: "NoNewPrivs:\t1\n")
    #expect(error(fake, .notPermitted) == .noCapability(program: "/usr/local/bin/bindrune", isWithheld: true))
    try fake.status(effective: "0000000000001000")
    #expect(fake.survey.obstacle(to: 0) == nil)
    #expect(AdapterError(.notPermitted, adapter: 0, survey: fake.survey) == .system(0, .notPermitted))
  }

  /// All capabilities, but without effect.
  @Test func userNamespace() throws {
    let fake = try FakeMachine()
    fake.socket(.adapter(0))
    try fake.link("proc/self/ns/user", "user:[4026532779]")
    #expect(error(fake, .notPermitted) == .userNamespace)
    // A kernel without user namespaces.
    try fake.remove("proc/self/ns/user")
    #expect(fake.survey.obstacle(to: 0) == nil && fake.survey.process.isInUserNamespace == false)
  }

  @Test func blocked() throws {
    let fake = try FakeMachine()
    fake.socket(.adapter(0), .adapter(1))
    try fake.radioSwitch(0, "hci1", soft: 1)
    try fake.radioSwitch(7, "hci0", type: "wlan", hard: 1)
    #expect(fake.survey.obstacle(to: 0) == nil)
    #expect(error(fake, .blockedByRadioSwitch, 1) == .blocked(1, isHard: false))
    try fake.radioSwitch(0, "hci1", soft: 1, hard: 1)
    #expect(error(fake, .blockedByRadioSwitch, 1) == .blocked(1, isHard: true))
    // Switched on again meanwhile.
    #expect(AdapterError(.blockedByRadioSwitch, adapter: 0, survey: fake.survey) == .blocked(0, isHard: false))
  }

  @Test func anythingElse() throws {
    let fake = try FakeMachine()
    fake.socket(.adapter(0))
    #expect(AdapterError(.ioError, adapter: 0, survey: fake.survey) == .system(0, .ioError))
  }

  /// The meaning of an errno, which is also the doctor's first obstacle.
  private func error(
    _ fake: FakeMachine, _ code: Errno, _ number: UInt16 = 0, _ location: SourceLocation = #_sourceLocation
  ) -> AdapterError {
    let survey = fake.survey
    let error = AdapterError(code, adapter: number, survey: survey)
    #expect(survey.obstacle(to: number) == error, sourceLocation: location)
    return error
  }

  // MARK: Sentences

  @Test(arguments: [
    (AdapterError.noKernelSupport(release: "6.1"), "Linux 6.1 has no Bluetooth"),
    (.notLoaded(release: "6.1", isInstalled: true), "run `sudo modprobe bluetooth`"),
    (.notLoaded(release: "6.1", isInstalled: false), "`sudo modprobe bluetooth` on the host"),
    (.foreignNetwork, "`--network host`"),
    (.filtered, "`RestrictAddressFamilies=AF_BLUETOOTH`"),
    (.notFound(3, present: [0, 2], hint: nil), "There is no hci3: use hci0 or hci2."),
    (.notFound(3, present: [], hint: nil), "no Bluetooth adapter on this machine"),
    (
      .notFound(3, present: [], hint: .withoutDriver("0a12:0001")), "0a12:0001 on USB has no driver: run `sudo modprobe"
    ),
    (
      .notFound(3, present: [], hint: .switchedOff("x_sw", isHard: false)),
      "x_sw is off in software: run `rfkill unblock"
    ),
    (
      .notFound(3, present: [], hint: .switchedOff("x_sw", isHard: true)),
      "x_sw is off in hardware: turn the radio switch"
    ),
    (.up(1, daemon: false), "hci1 is up: the kernel uses it: open it with `takesDown: true`"),
    (.up(1, daemon: false), "`sudo btmgmt --index 1 power off`"),
    (.up(1, daemon: true), "`bluetoothctl power off`"),
    (
      .taken(1, candidates: [HCISocketHolder(pid: 7, name: "node")]),
      "taken, perhaps by node (pid 7): end that process."
    ),
    (.taken(1, candidates: []), "`sudo bindrune doctor hci1`"),
    (.inSetUp(1), "still being set up by the kernel"),
    (.noCapability(program: "/opt/bin/a", isWithheld: false), "`sudo setcap cap_net_admin+ep /opt/bin/a`"),
    (.noCapability(program: "/o p/it's", isWithheld: false), #"cap_net_admin+ep '/o p/it'\''s'`"#),
    (.noCapability(program: "/opt/bin/a", isWithheld: true), "`--cap-add NET_ADMIN`"),
    (.userNamespace, "not even root"),
    (.blocked(1, isHard: false), "hci1 is switched off in software (rfkill): run `rfkill unblock bluetooth`."),
    (.blocked(1, isHard: true), "hci1 is switched off in hardware"),
    (.system(1, .ioError), "hci1 failed (Input/output error): run `bindrune doctor hci1`."),
    (.system(nil, .tooManyOpenFiles), "run `bindrune doctor`."),
  ])
  func sentence(error: AdapterError, words: String) {
    let text = error.description
    #expect(text.contains(words), "\(text)")
    #expect(text.hasSuffix(".") && !text.dropLast().contains(". ") && text == "\(error.cause): \(error.cure).")
    #expect(text.first?.isUppercase == true || text.hasPrefix("hci") || text.hasPrefix("CAP_"), "\(text)")
    #expect(text.count { $0 == "`" }.isMultiple(of: 2))
    #expect(error.description == text)
  }

  // MARK: Bad input

  /// An empty machine: the answer says so.
  @Test func emptyMachine() {
    var machine = Machine()
    machine.proc = "/no/proc"
    machine.sys = "/no/sys"
    machine.modules = "/no/modules"
    machine.socket = { HCISocketView(error: .addressFamilyNotSupported) }
    let survey = AdapterSurvey(machine)
    #expect(survey.adapters.isEmpty && survey.holders.isEmpty && survey.kernel.release == nil)
    #expect(survey.process.hasCapability == nil && survey.unseen.count == 1)
    #expect(survey.obstacle(to: 0) == .noKernelSupport(release: "?"))
  }

  /// Everything exists, and nothing is readable.
  @Test func hiddenMachine() throws {
    let fake = try FakeMachine()
    fake.socket(.adapter(0))
    try fake.radioSwitch(0, "hci0", soft: 1)
    for path in [
      "proc/self/status", "proc/modules", "proc/net/hci", "proc/sys/kernel/osrelease", "sys/class/rfkill/rfkill0/type",
      "modules/6.1.0-56-amd64",
    ] {
      try fake.remove(path)
      try fake.hide(path)
    }
    let survey = fake.survey
    #expect(survey.adapters.map(\.number) == [0] && survey.kernel.release == nil && survey.kernel.modules == [])
    #expect(survey.unseen.count == 2, "\(survey.unseen)")
    #expect(survey.processChecks.map(\.verdict) == [.passed, .passed, .unknown])
    #expect(survey.obstacle(to: 0) == nil)
  }

  /// With any octets in the files, the survey ends and names no adapter that does not exist.
  @Test func octetsOfChance() throws {
    let fake = try FakeMachine()
    fake.noSocket()
    try fake.usb(0)
    try fake.radioSwitch(0, "hci0")
    try fake.process(80, "node", sockets: [5])
    try fake.status(more: "NoNewPrivs:\t0\nSeccomp:\t2\n")
    let paths = [
      "proc/net/hci", "proc/self/status", "proc/modules", "proc/sys/kernel/osrelease", "proc/80/comm",
      "sys/class/rfkill/rfkill0/soft", "sys/class/rfkill/rfkill0/name", "sys/devices/usb1/1-8/product",
    ]
    let samples = try paths.map { try [UInt8](Data(contentsOf: fake.root.appending(path: $0))) }
    for (number, octets) in Fuzz(samples, cases: 600).enumerated() {
      try fake.write(paths[number % paths.count], Data(octets))
      let survey = fake.survey
      #expect(survey.adapters.map(\.number) == [0] && survey.processChecks.count == 3)
      #expect(survey.holders.allSatisfy { $0.pid == 80 })
    }
  }

  /// Endless files.
  @Test func bounded() throws {
    let fake = try FakeMachine()
    try fake.remove("proc/net/hci")
    try fake.link("proc/net/hci", "/dev/zero")
    try fake.remove("proc/modules")
    try fake.link("proc/modules", "/dev/zero")
    #expect(fake.survey.holders.isEmpty)
  }

  // MARK: This machine

  @Test func here() throws {
    let survey = AdapterSurvey()
    var name = utsname()
    #expect(unsafe uname(&name) == 0)
    let release = unsafe withUnsafeBytes(of: name.release) {
      unsafe String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
    }
    #expect(survey.kernel.release == release && survey.process.hasCapability != nil)
    #expect(
      URL(filePath: survey.process.program).lastPathComponent
        == URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().lastPathComponent)
    // On this machine the checks end, and each obstacle is a sentence.
    for adapter in survey.adapters { _ = survey.obstacle(to: adapter.number)?.description }
    if survey.kernel.socketError != nil { #expect(survey.obstacle(to: 0) != nil) }
  }
}
