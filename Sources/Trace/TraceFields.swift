import BindruneATT
import BindruneCapture
import BindruneWire
import BindruneHCI
import BindruneL2CAP

/// Writes the ATT, SMP and signaling PDUs of a trace as tab-separated fields, a line each, for programs:
///
///     frame  dir  conn    layer  opcode  handle  value_hex  pdu_hex
///     554    S    0x0040  att    0x0a    0x0003             0a0300
///
/// `dir`: S from the host, R to it, - not known. `handle`: of the PDU, and for a response or confirmation that has none
/// that of its request or indication. `value_hex`: the octets after the handle where the PDU is about one attribute,
/// else all its parameters.
public struct TraceFields: TraceSink {
  /// The lines so far; the owner takes them.
  public var output: [UInt8] = []
  private var pending = PendingHandles()
  /// The file's name and a tab, or nothing.
  private let prefix: [UInt8]

  /// `file` is the value of a first column, `file`, for lines of several files; control characters in it are escaped.
  public init(file: String? = nil) { prefix = file.map { Array("\($0.printable())\t".utf8) } ?? [] }
  /// The names of the columns, without `file`.
  public static var header: String { "frame\tdir\tconn\tlayer\topcode\thandle\tvalue_hex\tpdu_hex\n" }

  public mutating func record(_: CaptureRecord, _: Span<UInt8>) {}
  public mutating func violation(_: L2CAPViolation, _: ConnectionHandle, _: HCIDirection?, of _: CaptureRecord) {}

  public mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard payload.count > 0 else { return }
    switch frame.channel {
    case .attribute: attribute(frame, payload, record)
    case .securityManager: line(frame, record, "smp", nil, payload, value: 1)
    case .classicSignaling, .leSignaling: signals(frame, payload, record)
    default: break
    }
  }

  public mutating func enhancedPDU(_ frame: TraceFrame, _ pdu: Span<UInt8>, of record: CaptureRecord) {
    if !pdu.isEmpty { attribute(frame, pdu, record) }
  }

  private mutating func attribute(_ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord) {
    let handle = pending.handle(frame, payload)
    // The octets of a PDU about one attribute follow its handle.
    let value =
      switch ATTOpcode(rawValue: payload[0]) {
      case ReadRequest.opcode, ReadBlobRequest.opcode, WriteRequest.opcode, PrepareWriteRequest.opcode,
        PrepareWriteResponse.opcode, HandleValueNotification.opcode, HandleValueIndication.opcode, WriteCommand.opcode,
        SignedWriteCommand.opcode:
        min(3, payload.count)
      default: 1
      }
    line(frame, record, "att", handle, payload, value: value)
  }

  /// A frame of the signaling channel has several commands on BR/EDR, one on LE. Vol 3, Part A, §4.
  private mutating func signals(_ frame: TraceFrame, _ payload: Span<UInt8>, _ record: CaptureRecord) {
    var at = 0
    while at < payload.count {
      let count = payload.signalCount(at: at)
      line(frame, record, "sig", nil, payload.extracting(at..<at + count), value: 1)
      at += count
    }
  }

  private mutating func line(
    _ frame: TraceFrame, _ record: CaptureRecord, _ layer: StaticString, _ handle: UInt16?,
    _ pdu: Span<UInt8>, value: Int
  ) {
    if !prefix.isEmpty { output += prefix }
    output.appendDecimal(record.number)
    output.append(UInt8(ascii: "\t"))
    output.append(UInt8(ascii: frame.direction == nil ? "-" : frame.direction == .fromHost ? "S" : "R"))
    output.appendText("\t0x")
    output.appendHex(frame.connection, frame.connection > 0xFFFF ? 8 : 4)
    output.append(UInt8(ascii: "\t"))
    output.appendText(layer)
    output.appendText("\t0x")
    output.appendHex(UInt32(pdu[0]), 2)
    output.append(UInt8(ascii: "\t"))
    if let handle {
      output.appendText("0x")
      output.appendHex(UInt32(handle), 4)
    }
    output.append(UInt8(ascii: "\t"))
    output.appendHex(pdu.extracting(droppingFirst: value))
    output.append(UInt8(ascii: "\t"))
    output.appendHex(pdu)
    output.append(UInt8(ascii: "\n"))
  }
}

extension Span<UInt8> {
  @inline(__always) func little16(_ at: Int) -> UInt16 { UInt16(self[at]) | UInt16(self[at + 1]) << 8 }
  /// The octets of the signaling command that begins there: all the rest, if it is not whole.
  func signalCount(at place: Int) -> Int {
    let rest = count - place
    guard let header = SignalHeader(self, at: place..<place + SignalHeader.count) else { return rest }
    return min(rest, SignalHeader.count + Int(header.length))
  }
}

private let digits: StaticString = "0123456789abcdef"
extension [UInt8] {
  mutating func appendText(_ text: StaticString) {
    unsafe append(contentsOf: UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }
  mutating func appendDecimal(_ number: Int) {
    guard number >= 10 else { return append(UInt8(ascii: "0") &+ UInt8(truncatingIfNeeded: number)) }
    appendDecimal(number / 10)
    append(UInt8(ascii: "0") &+ UInt8(truncatingIfNeeded: number % 10))
  }
  /// Hexadecimal digits, lower case, `count` of them.
  mutating func appendHex(_ number: UInt32, _ count: Int) {
    for place in stride(from: 4 * (count - 1), through: 0, by: -4) {
      append(unsafe digits.utf8Start[Int(number >> UInt32(place) & 0xF)])
    }
  }
  mutating func appendHex(_ octets: Span<UInt8>) {
    for index in octets.indices {
      append(unsafe digits.utf8Start[Int(octets[index] >> 4)])
      append(unsafe digits.utf8Start[Int(octets[index] & 0xF)])
    }
  }
}
