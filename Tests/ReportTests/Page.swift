import BindruneCapture
import BindruneTrace
import BindruneWire
import Foundation
import BindruneHCI
import Testing

@testable import BindruneReport

/// A document, read back as its script reads it.
struct Page {
  let json: [String: Any]
  private let all: [UInt8]
  private var offsets: [Int] = [0]
  private let shapes: [[Int]], strings: [String]

  struct Row: Equatable {
    var kind: String, bit: Int, width: Int, label: String, text: String
    init(kind: String, bit: Int, width: Int, label: String, text: String) {
      (self.kind, self.bit, self.width, self.label, self.text) = (kind, bit, width, label, text)
    }
    init(_ row: Explanation.Row) {
      self.init(kind: row.kind.rawValue, bit: row.bit, width: row.width, label: row.label, text: row.text)
    }
  }

  init(_ document: [UInt8]) throws {
    let text = String(decoding: document, as: UTF8.self), mark = "<script type=\"application/json\" id=\"data\">"
    let from = try #require(text.range(of: mark)?.upperBound)
    let end = try #require(text.range(of: "</script>", range: from..<text.endIndex)?.lowerBound)
    json = try #require(
      try JSONSerialization.jsonObject(with: Data(String(text[from..<end]).utf8)) as? [String: Any])
    all = Array(try #require(Data(base64Encoded: json["octets"] as? String ?? "?")))
    shapes = try #require(json["shapes"] as? [[Int]])
    strings = try #require(json["strings"] as? [String])
    for count in try #require(json["counts"] as? [Int]) { offsets.append((offsets.last ?? 0) + count) }
    #expect(offsets.last == all.count)
  }
  init(path: String, frames: ClosedRange<Int> = 1...Int.max, replays: Bool) throws {
    var collector = ReportCollector(frames: frames, replays: replays)
    var file = try TraceFile(path: path)
    try file.read(into: &collector)
    try self.init(collector.page(title: path))
  }

  var count: Int { offsets.count - 1 }
  func numbers(_ name: String) -> [Int] { json[name] as? [Int] ?? [] }
  func objects(_ name: String) -> [[String: Any]] { json[name] as? [[String: Any]] ?? [] }
  func string(_ place: Int) -> String { strings[place] }
  func octets(_ place: Int) -> [UInt8] { Array(all[offsets[place]..<offsets[place + 1]]) }
  func split(_ place: Int) -> Int? {
    let list = numbers("splits")
    return stride(from: 0, to: list.count, by: 2).first { list[$0] == place }.map { list[$0 + 1] }
  }

  private static let kinds = ["layer", "entry", "field", "bits", "flag", "wrong", "problem"]
  /// The byte map, with the forms of the page's script.
  func rows(_ place: Int) -> [Row] {
    let shape = shapes[numbers("shapeOf")[place]], octets = octets(place)
    return stride(from: 0, to: shape.count, by: 6).map { at in
      let (bit, width) = (shape[at + 1], shape[at + 2])
      return Row(
        kind: Self.kinds[shape[at]], bit: bit, width: width, label: strings[shape[at + 3]],
        text: text(octets, bit, width, shape[at + 4], shape[at + 5]))
    }
  }
  private func text(_ octets: [UInt8], _ bit: Int, _ width: Int, _ form: Int, _ argument: Int) -> String {
    var value: UInt64 = 0
    if form != 7, form != 0, form != 5 {
      for place in 0..<width where octets[(bit + place) / 8] >> UInt8((bit + place) % 8) & 1 == 1 {
        value |= 1 << UInt64(place)
      }
    }
    switch form {
    case 1: return "0x" + hexDigits(value, argument)
    case 2: return "\(value)"
    case 3: return "\(Int8(bitPattern: UInt8(value))) dBm"
    case 4: return DeviceAddress(value).text
    case 5: return width == 8 ? "1 octet" : "\(width / 8) octets"
    case 6: return value == 1 ? "yes" : "no"
    case 7: return "\"" + String(decoding: octets[bit / 8..<(bit + width) / 8], as: UTF8.self) + "\""
    default: return strings[argument]
    }
  }
}

/// Keeps every record.
struct PacketSink: CaptureSink {
  var packets: [(CaptureRecord, [UInt8])] = []
  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) { packets.append((record, bytes.array)) }
}
struct Lines: TraceLineSink {
  var lines: [TraceLine] = []
  mutating func receive(_ line: TraceLine) { lines.append(line) }
  mutating func flush() {}
}

/// A trace, packet by packet.
struct Made {
  var packets: [(CaptureRecord, [UInt8])] = []
  mutating func packet(_ octets: [UInt8], _ direction: HCIDirection) { add(octets, direction, .packet) }
  mutating func event(_ octets: [UInt8]) { packet([4] + octets, .fromController) }
  mutating func note(_ octets: [UInt8]) { add(octets, nil, .note(0xFC)) }
  mutating func logging(_ octets: [UInt8]) { add(octets, nil, .monitor(.userLogging)) }
  mutating func att(_ pdu: [UInt8], fromHost: Bool, handle: UInt16 = 0x40) {
    let word = handle | (fromHost ? 0 : 0x2000), count = UInt8(pdu.count)
    packet(
      [2, UInt8(word & 0xFF), UInt8(word >> 8), count + 4, 0, count, 0, 4, 0] + pdu,
      fromHost ? .fromHost : .fromController)
  }
  private mutating func add(_ octets: [UInt8], _ direction: HCIDirection?, _ content: CaptureRecord.Content) {
    let number = packets.count + 1
    packets.append(
      (
        CaptureRecord(
          number: number, time: Int64(number) * 1_000_000, direction: direction, content: content,
          octets: Octets(0, octets.count)), octets
      ))
  }
  func document(title: String = "made", warnings: [String] = []) throws -> [UInt8] {
    var collector = ReportCollector(replays: false)
    for (record, octets) in packets { collector.receive(record, octets.span) }
    collector.pause()
    return collector.page(title: title, warnings: warnings)
  }
  func page() throws -> Page { try Page(document()) }
}
