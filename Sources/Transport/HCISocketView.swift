import BindruneWire
import CBluetooth
import Glibc

/// What the kernel tells of its adapters over an HCI socket. It takes no privilege and disturbs nobody, bluetoothd
/// included; a few system calls for each adapter, so fit for waiting on one.
public struct HCISocketView: Sendable, Equatable {
  /// The error number of `socket()`; zero when there is one.
  public var error: CInt
  public var adapters: [Entry]

  public struct Entry: Sendable, Equatable {
    public var number: UInt16
    /// nil while the kernel has not read it.
    public var address: DeviceAddress?
    /// A number of ``busName(_:)``.
    public var bus: UInt8
    /// Bits: `bindrune_HCI_UP`, `bindrune_HCI_INIT` …
    public var flags: UInt32
    /// Whether somebody has its user channel; nil when the kernel would not say.
    public var hasUserChannel: Bool?
    /// Whether the kernel's management interface lists it; nil when that would not say. It leaves out those whose user
    /// channel is open, and those whose set-up has not been finished, be it under way or given up.
    public var isManaged: Bool?

    public init(
      number: UInt16, address: DeviceAddress?, bus: UInt8, flags: UInt32, hasUserChannel: Bool?, isManaged: Bool? = nil
    ) {
      self.number = number
      self.address = address
      self.bus = bus
      self.flags = flags
      self.hasUserChannel = hasUserChannel
      self.isManaged = isManaged
    }
    /// Also while somebody has its user channel: ask `hasUserChannel` first.
    public var isUp: Bool { flags & UInt32(bindrune_HCI_UP) != 0 }
    /// The kernel brings it up at this moment, or has not finished its set-up.
    public var isStarting: Bool {
      flags & UInt32(bindrune_HCI_INIT) != 0 || (isManaged == false && hasUserChannel == false)
    }
  }

  public init(error: CInt, adapters: [Entry] = []) {
    self.error = error
    self.adapters = adapters
  }

  /// Asks the kernel. An adapter that goes meanwhile is left out.
  public static func now() -> HCISocketView {
    let descriptor = socket()
    guard descriptor >= 0 else { return HCISocketView(error: errno) }
    defer { _ = Glibc.close(descriptor) }
    var list = bindrune_hci_dev_list()
    list.count = UInt16(bindrune_hci_dev_list_room)
    guard unsafe bindrune_hci_list(descriptor, &list) == 0 else { return HCISocketView(error: 0) }
    let numbers = (0..<CInt(min(Int(list.count), bindrune_hci_dev_list_room))).map {
      unsafe bindrune_hci_dev_list_device(&list, $0)
    }
    let managed = managedAdapters()
    return HCISocketView(
      error: 0,
      adapters: numbers.sorted().compactMap { number in
        Entry(number, over: descriptor, isManaged: managed.map { $0.contains(number) })
      })
  }

  /// The numbers that the management interface lists (Read Extended Controller Index List); nil when it would not say.
  private static func managedAdapters() -> [UInt16]? {
    let descriptor = socket()
    guard descriptor >= 0 else { return nil }
    defer { _ = Glibc.close(descriptor) }
    let none = UInt16(bindrune_HCI_DEV_NONE)
    guard bindrune_hci_bind(descriptor, none, UInt16(bindrune_HCI_CHANNEL_CONTROL)) == 0 else { return nil }
    let command: [UInt8] = [0x3C, 0x00, 0xFF, 0xFF, 0x00, 0x00]  // opcode, no index, no parameters
    guard unsafe write(descriptor, command, command.count) == command.count else { return nil }
    // The answer is there when `write` returns; other news of the interface may stand before it.
    var packet = [UInt8](repeating: 0, count: 1024)
    for _ in 0..<64 {
      let count = unsafe recv(descriptor, &packet, packet.count, CInt(MSG_DONTWAIT))
      guard count > 0 else { return nil }
      if let numbers = managedAdapters(in: packet[..<count]) { return numbers }
    }
    return nil
  }
  /// From a Command Complete of Read Extended Controller Index List; nil from anything else.
  static func managedAdapters(in packet: ArraySlice<UInt8>) -> [UInt16]? {
    let octets = Array(packet)
    func number(_ place: Int) -> UInt16 { UInt16(octets[place]) | UInt16(octets[place + 1]) << 8 }
    // Event, index, length; opcode, status, count; then four octets each: index, type, bus.
    guard octets.count >= 11, number(0) == 0x0001, number(6) == 0x003C, octets[8] == 0 else { return nil }
    let count = Int(number(9))
    guard octets.count >= 11 + 4 * count else { return nil }
    return (0..<count).map { number(11 + 4 * $0) }
  }

  fileprivate static func socket() -> CInt {
    Glibc.socket(
      CInt(bindrune_AF_BLUETOOTH), CInt(SOCK_RAW.rawValue | SOCK_CLOEXEC.rawValue),
      CInt(bindrune_BTPROTO_HCI))
  }

  /// Opens adapter `number`'s user channel and closes it: zero or the error number.
  static func openUserChannel(_ number: UInt16) -> CInt {
    let descriptor = socket()
    guard descriptor >= 0 else { return errno }
    defer { _ = Glibc.close(descriptor) }
    return bindrune_hci_bind(descriptor, number, UInt16(bindrune_HCI_CHANNEL_USER)) == 0 ? 0 : errno
  }

  /// The name of a bus by the kernel's number for it.
  public static func busName(_ number: UInt8) -> String {
    let names = ["virtual", "USB", "PC Card", "UART", "RS-232", "PCI", "SDIO", "SPI", "I2C", "SMD", "virtio", "IPC"]
    return names.indices.contains(Int(number)) ? names[Int(number)] : "bus \(number)"
  }
}

extension HCISocketView.Entry {
  fileprivate init?(_ number: UInt16, over descriptor: CInt, isManaged: Bool?) {
    var info = bindrune_hci_dev_info()
    info.device = number
    guard unsafe bindrune_hci_info(descriptor, &info) == 0 else { return nil }
    let octets = unsafe withUnsafeBytes(of: info.address) { unsafe Array($0) }
    let address = octets.reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    self.init(
      number: number, address: address == 0 ? nil : DeviceAddress(address), bus: info.type & 0x0F, flags: info.flags,
      hasUserChannel: Self.hasUserChannel(number), isManaged: isManaged)
  }

  /// Bound to the raw channel, which the kernel grants to anybody and beside everybody: it answers ioctls of a bound socket
  /// with EBUSY as long as the adapter's user channel is open, and for no other reason.
  private static func hasUserChannel(_ number: UInt16) -> Bool? {
    let descriptor = HCISocketView.socket()
    guard descriptor >= 0 else { return nil }
    defer { _ = Glibc.close(descriptor) }
    guard bindrune_hci_bind(descriptor, number, UInt16(bindrune_HCI_CHANNEL_RAW)) == 0 else { return nil }
    if bindrune_hci_ask_user_channel(descriptor) == 0 { return false }
    return errno == EBUSY
  }
}
