import BindruneWire

/// The formats of trace files that can be read.
public enum CaptureFormat: BitwiseCopyable, Sendable, Equatable, CustomStringConvertible {
  /// btsnoop, version 1. All numbers are big-endian.
  case btsnoop(BTSnoopDatalink)
  /// Apple's PacketLogger, of either endianness. It has no file header.
  case packetLogger(isLittleEndian: Bool)
  /// libpcap; `ticks` a second: a million, or a thousand million.
  case pcap(PCAPLinkType, isLittleEndian: Bool, ticks: UInt32)
  /// pcapng: sections and interfaces with properties of their own.
  case pcapng
  /// Linux's HCI monitor, as its socket sends it: one record a read.
  case monitor
  /// Linux's HCI monitor on a serial line: `btmon --tty`, and Zephyr's console.
  case serialMonitor
  /// `hcidump -w`, before btsnoop: little-endian.
  case hcidump
  /// HCI packets one after the other, as on a UART: neither times nor directions.
  case h4Stream
  /// The ring of a phone's bug report, unpacked; its version.
  case btsnooz(UInt8)
  /// The output of btmon or hcidump, with the packets' octets.
  case text

  public var description: String {
    switch self {
    case .btsnoop(let datalink): "btsnoop, datalink \(datalink.rawValue)"
    case .packetLogger(let isLittleEndian): "PacketLogger, \(isLittleEndian ? "little" : "big")-endian"
    case .pcap(let type, _, _): "pcap, link type \(type.rawValue)"
    case .pcapng: "pcapng"
    case .monitor: "Linux's HCI monitor"
    case .serialMonitor: "Linux's HCI monitor on a serial line"
    case .hcidump: "hcidump"
    case .h4Stream: "HCI packets without a header (H4)"
    case .btsnooz(let version): "btsnooz, version \(version)"
    case .text: "text of btmon or hcidump"
    }
  }
}

/// btsnoop's datalink: how its records hold packets.
public enum BTSnoopDatalink: UInt32, BitwiseCopyable, Sendable {
  /// HCI packets without a type octet: the record's flags tell commands, events and data apart.
  case unencapsulated = 1001
  /// HCI packets, the H4 packet type octet first.
  case h4 = 1002
  /// Packets of the BlueCore Serial Protocol.
  case bcsp = 1003
  /// Packets of the three-wire transport. Vol 4, Part D.
  case threeWire = 1004
  /// Linux's monitor: the upper half of the flags is the adapter, the lower half the opcode.
  case monitor = 2001
}

/// The link types of pcap and pcapng that hold Bluetooth. https://www.tcpdump.org/linktypes.html
public enum PCAPLinkType: UInt16, BitwiseCopyable, Sendable {
  /// For private use: what it holds is guessed from each packet's lengths.
  case user0 = 147
  /// For private use, by Nordic's sniffer before 272.
  case nordicOld = 157
  case h4 = 187
  /// HCI over USB, as Linux records it: a header of 48 octets.
  case usbLinux = 189
  /// Per-Packet Information, with another link type inside.
  case ppi = 192
  /// Preceded by four octets with the direction.
  case h4WithDirection = 201
  /// HCI over USB, as Linux records it: a header of 64 octets.
  case usbLinuxMapped = 220
  /// HCI over USB, as USBPcap records it on Windows.
  case usbPcap = 249
  case leLinkLayer = 251
  /// Linux's monitor: preceded by adapter and opcode.
  case linuxMonitor = 254
  /// Preceded by ten octets about the reception.
  case leLinkLayerWithHeader = 256
  /// Nordic's sniffer.
  case nordic = 272
}

/// A trace that cannot be read, or not from here on.
public struct CaptureError: Error, BitwiseCopyable, Sendable, Equatable, CustomStringConvertible {
  public enum Reason: BitwiseCopyable, Sendable, Equatable {
    /// None of the formats.
    case unknownFormat
    /// None of them, but it can be told what the file is.
    case foreign(ForeignFile)
    /// Text without packets. A bug report may have them in a section far from its beginning.
    case text
    /// Text of btmon or hcidump in which no packet has its octets.
    case textWithoutOctets
    case empty
    case unsupportedVersion(StaticString, UInt32)
    case unsupportedDatalink(UInt32)
    case unsupportedLinkType(UInt16)
    /// The file ends within a record.
    case truncated(needed: Int, available: Int)
    /// A length that no packet has.
    case implausibleLength(StaticString, UInt32)
    /// Two lengths that must agree differ.
    case contradiction(StaticString, UInt32, UInt32)
    case unknownInterface(UInt32)
    public static func == (a: Reason, b: Reason) -> Bool { "\(a)" == "\(b)" }
  }
  /// Where in the file, in octets: the beginning of the record or header.
  public var offset: UInt64
  public var reason: Reason

  public var description: String {
    let place = "at octet \(offset)"
    return switch reason {
    case .unknownFormat:
      """
      this is not a trace: it begins like none of btsnoop, PacketLogger, pcap and pcapng, and is no sequence of HCI \
      packets
      """
    case .foreign(let file): "this is not a trace but \(file.name): \(file.remedy)"
    case .text:
      """
      this is not a trace but text without packets: a trace is a file of btmon -w, or Android's btsnoop_hci.log; a bug report needs its \
      section BTSNOOP_LOG_SUMMARY
      """
    case .textWithoutOctets:
      "this is not a trace but a program's text without the packets' octets: record a file with btmon -w, or hcidump -w"
    case .empty: "the file is empty"
    case .unsupportedVersion(let format, let version): "version \(version) of \(format) is not supported"
    case .unsupportedDatalink(let number):
      "datalink \(number) of btsnoop is not supported: 1001 to 1004 and 2001 are"
    case .unsupportedLinkType(let number):
      """
      link type \(number) is not one of Bluetooth's: 187, 201, 251, 254, 256 and 272 are, also USB's 189, 220 and 249, \
      and 147, 157 and 192 \(place)
      """
    case .truncated(let needed, let available):
      "the file ends within the record \(place), which needs \(needed) octets: \(available) are left"
    case .implausibleLength(let field, let length): "the \(field) of the record \(place) is implausible: \(length)"
    case .contradiction(let field, let one, let other):
      "the record \(place) contradicts itself: its \(field) is \(one) and \(other)"
    case .unknownInterface(let number): "the record \(place) belongs to interface \(number), which was not described"
    }
  }
}
