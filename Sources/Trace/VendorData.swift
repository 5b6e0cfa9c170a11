import BindruneCapture
import BindruneHCI
import BindruneWire

/// # VendorData
/// **Overview**: tells data that a controller logs for its manufacturer from data of connections. It comes as ACL
/// packets, on a handle that the controller gives to no connection: 0x0EDC is Qualcomm's; others use handles above
/// 0x0EFF, which connections cannot have (Vol 4, Part E, §5.4.2). Its octets are no L2CAP.
struct VendorData {
  static var qualcomm: UInt16 { 0x0EDC }
  static var leastHandle: UInt16 { qualcomm }
  /// Such handles that the trace shows in use by a connection, with their adapters.
  private var connections: Set<UInt32> = []

  /// Whether the octets behind the header of this ACL packet are the manufacturer's.
  mutating func takes(_ record: CaptureRecord, _ handle: UInt16) -> Bool {
    guard Self.isPossible(handle) else { return false }
    // A host that sends there has a connection.
    if record.direction == .fromHost { connections.insert(key(record, handle)) }
    return !connections.contains(key(record, handle))
  }
  /// An event that opens a connection.
  mutating func learn(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    guard bytes.count >= 7 else { return }
    let at: Int
    switch (bytes[1], bytes[3], bytes[4]) {
    // Connection Complete: status, handle.
    case (0x03, 0x00, _): at = 4
    // LE Connection Complete, LE Enhanced Connection Complete of both versions: subevent, status, handle.
    case (0x3E, 0x01, 0x00), (0x3E, 0x0A, 0x00), (0x3E, 0x29, 0x00): at = 5
    default: return
    }
    let handle = (UInt16(bytes[at]) | UInt16(bytes[at + 1]) << 8) & 0x0FFF
    if Self.isPossible(handle) { connections.insert(key(record, handle)) }
  }

  static func isPossible(_ handle: UInt16) -> Bool { handle == qualcomm || handle > 0x0EFF }
  private func key(_ record: CaptureRecord, _ handle: UInt16) -> UInt32 {
    UInt32(record.adapter) << 16 | UInt32(handle)
  }
}
