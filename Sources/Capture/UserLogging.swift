import BindruneWire

/// A line of a program's log in a trace: the record `MonitorOpcode.userLogging` of Linux's monitor.
///
///     priority │ identifier's length │ identifier … 0 │ message … 0
///
/// The length includes the identifier's zero. btmon shows the line as `identifier: message`, Wireshark from 4.2 on as
/// `hci_mon.ident` and `hci_mon.message`. Bindrune writes the call that causes a packet in this form, before the
/// packet.
public struct UserLogging: Sendable, Equatable {
  /// As in syslog: 3 is an error, 4 a warning, 6 information, 7 for debugging. btmon omits 7 unless told otherwise.
  public var priority: UInt8
  /// The program. Octets of a file may be anything: they are not made printable here.
  public var identifier: String
  public var message: String

  /// An identifier of more than 254 octets is cut.
  public init(priority: UInt8 = 6, identifier: String = "bindrune", message: String) {
    self.priority = priority
    self.identifier = identifier
    self.message = message
  }
  /// The octets of a record. nil: too few for the two lengths that it has. A text without its zero ends with the
  /// octets.
  public init?(_ octets: Span<UInt8>) {
    guard octets.count >= 2, octets.count - 2 >= Int(octets[1]) else { return nil }
    priority = octets[0]
    let end = 2 + Int(octets[1])
    identifier = Self.text(octets.extracting(2..<end))
    message = Self.text(octets.extracting(end..<octets.count))
  }
  private static func text(_ octets: Span<UInt8>) -> String {
    var text: [UInt8] = []
    for index in octets.indices {
      if octets[index] == 0 { break }
      text.append(octets[index])
    }
    return String(decoding: text, as: UTF8.self)
  }

  /// The octets of its record, without the file's header.
  public var octets: [UInt8] {
    let identifier = Array(identifier.utf8.prefix(254)) + [0]
    return [priority, UInt8(identifier.count)] + identifier + Array(message.utf8) + [0]
  }
}
