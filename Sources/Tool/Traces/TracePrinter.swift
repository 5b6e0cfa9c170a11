import BindruneTrace
import BindruneWire
import BindruneHCI

/// Prints the packets of a trace: a line each, or an object each. Lines wait in a buffer, which is written when it is
/// full and when nothing more is to come at the moment.
struct TracePrinter: TraceLineSink {
  let isJSON: Bool
  let isVerbose: Bool
  private let width = Console.isTerminal ? Screen.size.columns : nil
  private var text = ""
  /// The name of the trace, for the objects.
  private let file: String
  private let write: ([UInt8]) -> Void

  init(isJSON: Bool, isVerbose: Bool, file: String, write: @escaping ([UInt8]) -> Void) {
    self.isJSON = isJSON
    self.isVerbose = isVerbose
    self.file = file
    self.write = write
    text.reserveCapacity(70_000)
  }

  mutating func receive(_ line: TraceLine) {
    if isJSON { text += "\(object(line))\n" } else { describe(line) }
    if text.utf8.count > 60_000 { flush() }
  }
  mutating func flush() {
    if text.isEmpty { return }
    write(Array(text.utf8))
    text.removeAll(keepingCapacity: true)
  }

  // MARK: Text

  private mutating func describe(_ line: TraceLine) {
    let arrow =
      switch line.direction {
      case .fromHost: Console.styled("→", .magenta)
      case .fromController: Console.styled("←", .cyan)
      case nil: " "
      }
    let link = line.connection.map { Self.hex($0) } ?? "      "
    let layer = line.layer.rawValue.uppercased()
    var start = "\(line.number)".leftPadded(7) + " " + Self.seconds(line.elapsed).leftPadded(13) + " \(arrow) "
    if line.adapter > 0, line.adapter != .max { start += "hci\(line.adapter) " }
    start += link + " " + Console.styled(layer.padded(5), line.layer.style) + " "
    var words: [(String, Console.Style?)] = [(line.name, nil)]
    if let bearer = line.bearer { words.append(("bearer \(Self.hex(UInt32(bearer)))", .dim)) }
    if let meaning = line.meaning { words.append((meaning.printable(limit: 80), .green)) }
    if let problem = line.problem { words.append(("! " + problem, .red)) }
    if !isVerbose, !line.fields.isEmpty { words.append((line.fields, .dim)) }
    // A packet of the link layer has it in its fields.
    if line.layer != .ll, let rssi = line.reception?.rssi { words.append(("RSSI: \(rssi) dBm", .dim)) }
    // A terminal shows a packet in one line; in a pipe nothing is cut.
    var room = width.map { isVerbose ? Int.max : max(20, $0 - 37 - (line.adapter > 0 ? 5 : 0)) } ?? Int.max
    var shown: [String] = []
    for (word, style) in words where room > 1 {
      let cut = room == Int.max ? word : word.cut(to: room)
      if room != Int.max { room -= cut.columns + 2 }
      shown.append(style.map { Console.styled(cut, $0) } ?? cut)
    }
    text += start + shown.joined(separator: "  ") + "\n"
    if isVerbose { describeLayers(line) }
  }
  private mutating func describeLayers(_ line: TraceLine) {
    let margin = String(repeating: " ", count: 24)
    for (depth, layer) in line.below.enumerated() {
      let name = (layer.name + " ").padded(9)
      text += margin + String(repeating: "  ", count: depth) + name + Console.styled(layer.fields, .dim) + "\n"
    }
    let indent = margin + String(repeating: "  ", count: line.below.count)
    if !line.fields.isEmpty { text += indent + Console.styled(line.fields, .dim) + "\n" }
    for start in stride(from: 0, to: line.octets.count, by: 16) {
      text += indent + hexText(line.octets[start..<min(start + 16, line.octets.count)], separator: " ") + "\n"
    }
  }

  /// `0x0040`, and an access address with eight digits.
  private static func hex(_ number: UInt32) -> String { "0x" + hexDigits(UInt64(number), number > 0xFFFF ? 8 : 4) }
  /// Seconds with six decimals.
  private static func seconds(_ nanoseconds: Int64) -> String {
    let micro = (nanoseconds / 1_000).magnitude
    let fraction = String(micro % 1_000_000)
    return (nanoseconds < 0 ? "-" : "") + "\(micro / 1_000_000)."
      + String(repeating: "0", count: 6 - fraction.utf8.count) + fraction
  }

  // MARK: JSON

  private func object(_ line: TraceLine) -> JSONLine {
    var object = JSONLine()
    object.add("file", file)
    object.add("frame", line.number)
    object.add("time", Double(line.time) / 1_000_000_000)
    object.add("dir", line.direction.map { $0 == .fromHost ? "S" : "R" })
    object.add("adapter", Int(line.adapter))
    object.add("conn", line.connection.map { Self.hex($0).lowercased() })
    object.add("layer", line.layer.rawValue)
    object.add("opcode", line.opcode.map { "0x" + hexDigits(UInt64($0), $0 > 0xFF ? 4 : 2).lowercased() })
    object.add("handle", line.handle.map { "0x" + hexDigits(UInt64($0), 4).lowercased() })
    object.add("bearer", line.bearer.map { "0x" + hexDigits(UInt64($0), 4).lowercased() })
    object.add("name", line.name)
    object.add("fields", line.fields)
    object.add("meaning", line.meaning)
    object.add("problem", line.problem)
    object.add("octets", hexText(line.octets).lowercased())
    if let reception = line.reception {
      object.add("rssi", reception.rssi.map { Int($0) })
      object.add("channel", reception.channel.map { Int($0) })
      object.add("crc", reception.isCRCValid)
    }
    if isVerbose {
      object.add(
        "below",
        line.below.map { layer in
          var object = JSONLine()
          object.add("name", layer.name)
          object.add("fields", layer.fields)
          return object
        })
    }
    return object
  }
}

extension TraceLayer {
  fileprivate var style: Console.Style {
    switch self {
    case .hci: .yellow
    case .l2cap, .sig: .blue
    case .att: .green
    case .smp: .magenta
    case .ll: .cyan
    case .note: .dim
    }
  }
}
