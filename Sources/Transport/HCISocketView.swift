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

    public init(number: UInt16, address: DeviceAddress?, bus: UInt8, flags: UInt32, hasUserChannel: Bool?) {
      self.number = number
      self.address = address
      self.bus = bus
      self.flags = flags
      self.hasUserChannel = hasUserChannel
    }
    /// Also while somebody has its user channel: ask `hasUserChannel` first.
    public var isUp: Bool { flags & UInt32(bindrune_HCI_UP) != 0 }
    /// The kernel brings it up at this moment.
    public var isStarting: Bool { flags & UInt32(bindrune_HCI_INIT) != 0 }
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
    return HCISocketView(error: 0, adapters: numbers.sorted().compactMap { Entry($0, over: descriptor) })
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
  fileprivate init?(_ number: UInt16, over descriptor: CInt) {
    var info = bindrune_hci_dev_info()
    info.device = number
    guard unsafe bindrune_hci_info(descriptor, &info) == 0 else { return nil }
    let octets = unsafe withUnsafeBytes(of: info.address) { unsafe Array($0) }
    let address = octets.reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    self.init(
      number: number, address: address == 0 ? nil : DeviceAddress(address), bus: info.type & 0x0F, flags: info.flags,
      hasUserChannel: Self.hasUserChannel(number))
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
