import BindruneWire
import BindruneHCI

/// HCI over USB (Vol 4, Part B, §2): commands are control transfers, events come from the interrupt endpoint, ACL data
/// from and to the bulk endpoints. A capture has the transfers of all devices: a device is Bluetooth once it was sent a
/// command, or has sent an event that only a controller sends.
///
/// A packet may need several transfers: an event as many as its endpoint's packets are small. Memory is bounded: the
/// devices and endpoints below, each with one incomplete packet.
struct USBDevices: Sendable {
  static var mostDevices: Int { 128 }
  static var mostIncomplete: Int { 64 }
  /// Bus and device.
  var bluetooth: Set<UInt32> = []
  /// A packet of a device's endpoint of which transfers are missing: its type octet first.
  var incomplete: [UInt64: [UInt8]] = [:]
  /// Devices whose setup packet for a command was recorded without the command: USBPcap's first versions.
  var commanded: Set<UInt32> = []
}

/// A transfer of a capture of USB.
private struct USBTransfer {
  enum Kind: UInt8 { case isochronous = 0, interrupt, control, bulk }
  var kind: Kind
  var device: UInt32
  /// Bit 7: to the host.
  var endpoint: UInt8
  /// The eight octets of a control transfer; nil if it has none, or another stage was recorded.
  var setup: Int?
  /// The data's first octet.
  var start: Int
  /// True: the data of a control transfer whose setup packet was recorded before.
  var isDataStage = false

  /// Linux: usb/usbmon.rst. Its numbers have the byte order of the capture; those used here are octets, and the bus,
  /// of which only its sameness matters.
  init?(linux bytes: Span<UInt8>, _ range: Range<Int>, _ header: Int) {
    let at = range.lowerBound
    guard range.count >= header, let kind = Kind(rawValue: bytes[at + 9]) else {
      return nil
    }
    // Data goes out with the submission, and comes with the completion.
    let isSubmission = bytes[at + 8] == UInt8(ascii: "S"), isCompletion = bytes[at + 8] == UInt8(ascii: "C")
    let isIn = bytes[at + 10] & 0x80 != 0
    guard bytes[at + 15] == 0, isIn ? isCompletion : isSubmission else { return nil }
    self.kind = kind
    device = UInt32(bytes.big16(at + 12)) << 8 | UInt32(bytes[at + 11])
    endpoint = bytes[at + 10]
    setup = kind == .control && bytes[at + 14] == 0 ? at + 40 : nil
    start = at + header
  }
  /// USBPcap: its header says its length; little-endian.
  init?(usbPcap bytes: Span<UInt8>, _ range: Range<Int>) {
    let at = range.lowerBound
    guard range.count >= 27, let kind = Kind(rawValue: bytes[at + 22]) else { return nil }
    let header = Int(bytes.little16(at))
    guard header >= 27, header <= range.count else { return nil }
    self.kind = kind
    device = UInt32(bytes.little16(at + 17)) << 16 | UInt32(bytes.little16(at + 19))
    endpoint = bytes[at + 21]
    start = at + header
    guard kind == .control else {
      // Data that comes is recorded on its way up, data that goes on its way down.
      if (bytes[at + 16] & 1 == 1) != (endpoint & 0x80 != 0) { return nil }
      return
    }
    guard header >= 28 else { return nil }
    switch bytes[at + 27] {
    case 0 where range.count >= header + 8: (setup, start) = (start, start + 8)
    case 1: isDataStage = true
    default: return nil
    }
  }
}

extension CaptureParser {
  /// Takes an HCI packet, or the last transfer of one. False: there is none here.
  @inline(never) mutating func takeFromUSB(
    _ type: PCAPLinkType, _ bytes: Span<UInt8>, _ record: inout CaptureRecord
  ) -> Bool {
    let range = record.octets.range
    let found =
      switch type {
      case .usbPcap: USBTransfer(usbPcap: bytes, range)
      case .usbLinux: USBTransfer(linux: bytes, range, 48)
      default: USBTransfer(linux: bytes, range, 64)
      }
    guard let transfer = found, transfer.start <= range.upperBound else { return false }
    let data = bytes.extracting(transfer.start..<range.upperBound)
    record.originalCount = max(data.count, record.originalCount - (transfer.start - range.lowerBound))
    let isCut = record.originalCount > data.count
    switch transfer.kind {
    case .control: return takeCommand(transfer, bytes, data, isCut, &record)
    case .interrupt where transfer.endpoint & 0x80 != 0:
      if !usb.bluetooth.contains(transfer.device) {
        // Command Complete, Command Status, Number Of Completed Packets, an LE Meta event.
        guard data.count >= 3, [0x0E, 0x0F, 0x13, 0x3E].contains(data[0]), Int(data[1]) == data.count - 2 else {
          return false
        }
        learn(transfer.device)
      }
      return join(.event, .fromController, transfer, data, isCut, &record)
    case .bulk where usb.bluetooth.contains(transfer.device):
      return join(
        .acl, transfer.endpoint & 0x80 != 0 ? .fromController : .fromHost, transfer, data, isCut, &record)
    case .interrupt, .bulk, .isochronous: return false
    }
  }
  private mutating func learn(_ device: UInt32) {
    if usb.bluetooth.count < USBDevices.mostDevices { usb.bluetooth.insert(device) }
  }

  /// A command is a class request to the device, or to its first interface, with request 0. Vol 4, Part B, §2.2.2.
  private mutating func takeCommand(
    _ transfer: USBTransfer, _ bytes: Span<UInt8>, _ data: Span<UInt8>, _ isCut: Bool, _ record: inout CaptureRecord
  ) -> Bool {
    guard transfer.endpoint & 0x7F == 0 else { return false }
    if let setup = transfer.setup {
      guard bytes[setup] == 0x20 || bytes[setup] == 0x21, bytes[setup + 1] == 0 || bytes[setup + 1] == 0xE0 else {
        return false
      }
      if data.isEmpty {
        if usb.commanded.count < USBDevices.mostDevices { usb.commanded.insert(transfer.device) }
        return false
      }
    } else if !transfer.isDataStage || usb.commanded.remove(transfer.device) == nil {
      return false
    }
    guard data.count >= 3, isCut || Int(data[2]) == data.count - 3 else { return false }
    learn(transfer.device)
    return pass([HCIPacketType.command.rawValue] + Self.array(data), .fromHost, &record)
  }

  /// Joins the transfers of a packet: it ends with the octets that its header counts.
  private mutating func join(
    _ type: HCIPacketType, _ direction: HCIDirection, _ transfer: USBTransfer, _ data: Span<UInt8>, _ isCut: Bool,
    _ record: inout CaptureRecord
  ) -> Bool {
    guard !data.isEmpty else { return false }
    let key = UInt64(transfer.device) << 8 | UInt64(transfer.endpoint)
    var packet = usb.incomplete.removeValue(forKey: key) ?? [type.rawValue]
    packet += Self.array(data)
    let declared = packetCount(type.rawValue, packet.span, 1, available: packet.count - 1)
    if let declared, packet.count == 1 + declared || (isCut && packet.count < 1 + declared) {
      record.originalCount = declared
      return pass(packet, direction, &record)
    }
    if let declared, packet.count > 1 + declared {
      // Not what was begun before: its end was not recorded. It may begin here.
      hasSkipped = true
      let own = packetCount(type.rawValue, data, 0, available: data.count)
      guard own == data.count else { return false }
      record.originalCount = data.count
      return pass([type.rawValue] + Self.array(data), direction, &record)
    }
    if usb.incomplete.count < USBDevices.mostIncomplete { usb.incomplete[key] = packet }
    return false
  }
  private mutating func pass(
    _ packet: [UInt8], _ direction: HCIDirection, _ record: inout CaptureRecord
  ) -> Bool {
    assembled = packet
    record.originalCount = max(record.originalCount + 1, packet.count)
    record.octets = Octets(0, packet.count)
    record.isAssembled = true
    record.direction = direction
    return true
  }
  static func array(_ bytes: Span<UInt8>) -> [UInt8] { unsafe bytes.withUnsafeBufferPointer { unsafe Array($0) } }
}
