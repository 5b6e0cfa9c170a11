import BindruneSystem
import BindruneWire
import CBindruneSystem
import Glibc
import SystemPackage

/// The kernel's information about its adapters from an HCI socket. It needs no privilege and disturbs no other process,
/// including bluetoothd; a few system calls for each adapter, so suitable for polling.
public struct HCISocketView: Sendable, Equatable {
  /// Why there is no HCI socket; nil when there is one.
  public var error: Errno?
  public var adapters: [Entry]

  public struct Entry: Sendable, Equatable {
    public var number: UInt16
    /// nil until the kernel has read it.
    public var address: DeviceAddress?
    /// A number of ``busName(_:)``.
    public var bus: UInt8
    /// Bits: `bindrune_HCI_UP`, `bindrune_HCI_INIT` …
    public var flags: UInt32
    /// Whether a socket has its user channel; nil if that is unknown.
    public var hasUserChannel: Bool?
    /// Whether the kernel's management interface lists it; nil if that is unknown. It omits adapters whose user channel
    /// is open, and those whose set-up is unfinished, either in progress or abandoned.
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
    /// Also true while a socket has its user channel: check `hasUserChannel` first.
    public var isUp: Bool { flags & UInt32(bindrune_HCI_UP) != 0 }
    /// The kernel is bringing it up, or has not finished its set-up.
    public var isStarting: Bool {
      flags & UInt32(bindrune_HCI_INIT) != 0 || (isManaged == false && hasUserChannel == false)
    }
  }

  public init(error: Errno? = nil, adapters: [Entry] = []) {
    self.error = error
    self.adapters = adapters
  }

  /// Queries the kernel. An adapter that disappears meanwhile is omitted.
  public static func now() -> HCISocketView {
    let socket: FileDescriptor
    do throws(Errno) { socket = try .hciSocket() } catch { return HCISocketView(error: error) }
    defer { try? socket.close() }
    var list = bindrune_hci_dev_list()
    list.count = UInt16(bindrune_hci_dev_list_room)
    guard unsafe bindrune_hci_list(socket.rawValue, &list) == 0 else { return HCISocketView() }
    let numbers = (0..<CInt(min(Int(list.count), bindrune_hci_dev_list_room))).map {
      unsafe bindrune_hci_dev_list_device(&list, $0)
    }
    let managed = managedAdapters()
    return HCISocketView(
      adapters: numbers.sorted().compactMap { number in
        Entry(number, over: socket, isManaged: managed.map { $0.contains(number) })
      })
  }

  /// The numbers that the management interface lists (Read Extended Controller Index List); nil if it does not answer.
  private static func managedAdapters() -> [UInt16]? {
    guard let socket = try? FileDescriptor.hciSocket() else { return nil }
    defer { try? socket.close() }
    let command: [UInt8] = [0x3C, 0x00, 0xFF, 0xFF, 0x00, 0x00]  // opcode, no index, no parameters
    do {
      try socket.bind(toAdapter: UInt16(bindrune_HCI_DEV_NONE), channel: bindrune_HCI_CHANNEL_CONTROL)
      guard try unsafe command.withUnsafeBytes({ try unsafe socket.write($0) }) == command.count else { return nil }
    } catch { return nil }
    // The answer is available when `write` returns; other events of the interface may precede it.
    var packet = [UInt8](repeating: 0, count: 1024)
    for _ in 0..<64 {
      let count = unsafe recv(socket.rawValue, &packet, packet.count, CInt(MSG_DONTWAIT))
      guard count > 0 else { return nil }
      if let numbers = managedAdapters(in: packet[..<count]) { return numbers }
    }
    return nil
  }
  /// Decodes a Command Complete of Read Extended Controller Index List; nil for any other packet.
  static func managedAdapters(in packet: ArraySlice<UInt8>) -> [UInt16]? {
    let octets = Array(packet)
    func number(_ place: Int) -> UInt16 { UInt16(octets[place]) | UInt16(octets[place + 1]) << 8 }
    // Event, index, length; opcode, status, count; then four octets each: index, type, bus.
    guard octets.count >= 11, number(0) == 0x0001, number(6) == 0x003C, octets[8] == 0 else { return nil }
    let count = Int(number(9))
    guard octets.count >= 11 + 4 * count else { return nil }
    return (0..<count).map { number(11 + 4 * $0) }
  }

  /// Opens adapter `number`'s user channel and closes it.
  static func openUserChannel(_ number: UInt16) throws(Errno) {
    let socket = try FileDescriptor.hciSocket()
    defer { try? socket.close() }
    try socket.bind(toAdapter: number, channel: bindrune_HCI_CHANNEL_USER)
  }

  /// The name of a bus with this number in the kernel.
  public static func busName(_ number: UInt8) -> String {
    let names = ["virtual", "USB", "PC Card", "UART", "RS-232", "PCI", "SDIO", "SPI", "I2C", "SMD", "virtio", "IPC"]
    return names.indices.contains(Int(number)) ? names[Int(number)] : "bus \(number)"
  }
}

extension HCISocketView.Entry {
  fileprivate init?(_ number: UInt16, over socket: FileDescriptor, isManaged: Bool?) {
    var info = bindrune_hci_dev_info()
    info.device = number
    guard unsafe bindrune_hci_info(socket.rawValue, &info) == 0 else { return nil }
    let octets = unsafe withUnsafeBytes(of: info.address) { unsafe Array($0) }
    let address = octets.reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    self.init(
      number: number, address: address == 0 ? nil : DeviceAddress(address), bus: info.type & 0x0F, flags: info.flags,
      hasUserChannel: Self.hasUserChannel(number), isManaged: isManaged)
  }

  /// Bound to the raw channel, which the kernel grants to any process, beside other owners: an ioctl of a bound socket
  /// fails with EBUSY as long as the adapter's user channel is open, and for no other reason.
  private static func hasUserChannel(_ number: UInt16) -> Bool? {
    guard let socket = try? FileDescriptor.hciSocket() else { return nil }
    defer { try? socket.close() }
    do throws(Errno) { try socket.bind(toAdapter: number, channel: bindrune_HCI_CHANNEL_RAW) } catch { return nil }
    do throws(Errno) { try Errno.check { bindrune_hci_ask_user_channel(socket.rawValue) } } catch {
      return error == .resourceBusy
    }
    return false
  }
}
