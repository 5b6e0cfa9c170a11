import BindruneTransport
import NIOCore

/// Keeps the calls that a host names for the packets it sends.
final class CallRecorder: ForwardingTransport, @unchecked Sendable {
  // Everything happens on the event loop.
  private var next: String?
  private var sent: [String] = []
  override var recordsCalls: Bool { true }
  override func willSend(becauseOf call: String) { next = call.split(separator: " ").first.map(String.init) }
  override func send(_ packet: Span<UInt8>) {
    let line = "\(next ?? "-"): \(Self.word(packet))"
    if sent.last != line { sent.append(line) }
    next = nil
    super.send(packet)
  }
  /// A command's opcode, an ATT opcode; `…` is a further fragment.
  private static func word(_ packet: Span<UInt8>) -> String {
    func hex(_ value: Int) -> String { String(value, radix: 16, uppercase: true) }
    if packet[0] == 0x01 { return hex(Int(packet[1]) | Int(packet[2]) << 8) }
    return packet[2] & 0x30 == 0x10 ? "…" : hex(Int(packet[9]))
  }
  /// `CALL: WORD`, without repetitions in a row; `-` is no call.
  func lines() async throws -> [String] { try await eventLoop.submit { self.sent }.get() }
}
