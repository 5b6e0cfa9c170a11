/// A packet, field by field: what `bindrune explain` draws.
///
///     let explanation = Explanation(of: [0x0A, 0x03, 0x00], as: .att)
///     for line in explanation.lines() { print(line.text) }
///
/// Every octet belongs to exactly one row that is a leaf: a field, a run of bits, or octets that were not understood.
public struct Explanation: Sendable, Equatable {
  /// What the octets are.
  public enum Form: String, Sendable, CaseIterable {
    /// An HCI packet, H4 packet type octet first.
    case hci
    /// A B-frame, Basic L2CAP header first.
    case l2cap
    /// An ATT PDU.
    case att
    /// A PDU of the Security Manager Protocol.
    case smp
    /// An L2CAP signaling command.
    case signaling
    /// AD structures.
    case ad
  }
  public struct Row: Sendable, Equatable {
    public enum Kind: String, Sendable {
      /// Begins a layer: `label` is the message's name, `text` its section of the Specification.
      case layer
      /// Begins an entry of a list, or says what was not understood, although it breaks no rule.
      case entry
      /// A field of whole octets.
      case field
      /// A field of some bits.
      case bits
      /// Some bits of the field above.
      case flag
      /// Octets that are wrong, or follow wrong ones.
      case wrong
      /// What is wrong.
      case problem
    }
    public var kind: Kind
    /// Offset from the beginning of the packet, in bits. Bit 0 of an octet is its least significant one.
    public var bit: Int
    /// Width in bits.
    public var width: Int
    /// The Specification's name of the field.
    public var label: String {
      get { ownLabel ?? name.description }
      set { ownLabel = newValue }
    }
    /// The label, where a declaration has it.
    private(set) var name: StaticString = ""
    private var ownLabel: String?
    /// The value, with its unit and meaning.
    public var text: String
    /// The UUID that the field holds, so that a caller can name it.
    public var uuid: String?
    /// True for the rows that partition the octets.
    public var isLeaf: Bool { kind == .field || kind == .bits || kind == .wrong }

    init(kind: Kind, bit: Int, width: Int, label: String, text: String) {
      (self.kind, self.bit, self.width, ownLabel, self.text) = (kind, bit, width, label, text)
    }
    init(kind: Kind, bit: Int, width: Int, name: StaticString, text: String) {
      (self.kind, self.bit, self.width, self.name, self.text) = (kind, bit, width, name, text)
    }
    public static func == (one: Row, other: Row) -> Bool {
      one.kind == other.kind && one.bit == other.bit && one.width == other.width && one.label == other.label
        && one.text == other.text && one.uuid == other.uuid
    }
  }
  public let octets: [UInt8]
  public let form: Form
  /// Other forms that the octets could have.
  public internal(set) var alternatives: [Form] = []
  /// True if nobody named the form, and octets of another form could look like these: no header states their length.
  public internal(set) var isGuess = false
  public internal(set) var rows: [Row] = []
  /// True if no part of the packet is wrong.
  public var isSound: Bool { !rows.contains { $0.kind == .problem } }

  /// One line of the picture.
  public struct Line: Sendable {
    public var kind: Row.Kind
    public var text: String
  }
  /// The picture, at most 80 columns wide. `name` gives the name of a UUID, or nil.
  public func lines(naming name: (String) -> String? = { _ in nil }) -> [Line] {
    rows.flatMap { row in
      var row = row
      if let uuid = row.uuid, let found = name(uuid) { row.text += " (\(found))" }
      return draw(row)
    }
  }
}

extension Explanation {
  /// Columns: offset 4, gap 2, octets or bits 24, the words 50.
  private static let margin = 30, width = 80

  private func draw(_ row: Row) -> [Line] {
    switch row.kind {
    case .layer:
      let room = Self.width - row.text.unicodeScalars.count - row.label.unicodeScalars.count
      let gap = String(repeating: " ", count: max(2, room))
      if room < 2 { return [Line(kind: .layer, text: row.label), Line(kind: .layer, text: "  " + row.text)] }
      return [Line(kind: .layer, text: row.text.isEmpty ? row.label : row.label + gap + row.text)]
    case .entry, .problem:
      let lead = row.kind == .problem ? "      ^^ " : "      -- "
      let words = row.label.isEmpty || row.text.isEmpty ? row.label + row.text : row.label + ": " + row.text
      return Self.wrap(words, Self.width - 9).enumerated().map {
        Line(kind: row.kind, text: ($0.offset == 0 ? lead : "         ") + $0.element)
      }
    case .field, .bits, .flag, .wrong:
      let words = row.text.isEmpty ? row.label : row.label.isEmpty ? row.text : row.label + ": " + row.text
      return columns(row, left(row), Self.wrap(words, Self.width - Self.margin))
    }
  }
  private func columns(_ row: Row, _ left: [String], _ right: [String]) -> [Line] {
    (0..<max(left.count, right.count, 1)).map { index in
      let place = row.kind == .flag || !left.indices.contains(index) ? "" : String(row.bit / 8 + 8 * index)
      let octets = left.indices.contains(index) ? left[index] : ""
      var text = Self.pad(
        String(repeating: " ", count: max(0, 4 - place.utf8.count)) + place + "  " + octets, Self.margin)
      if right.indices.contains(index) { text += right[index] }
      while text.last == " " { text.removeLast() }
      return Line(kind: row.kind, text: text)
    }
  }
  /// The octets, eight a line, or the bits among the others of their octets: `.... 0000 0100 0000`.
  private func left(_ row: Row) -> [String] {
    let first = row.bit / 8, end = (row.bit + row.width + 7) / 8
    guard row.kind == .bits || row.kind == .flag else {
      return stride(from: first, to: end, by: 8).map { start in
        (start..<min(start + 8, end)).map { Self.hex(octets[$0]) }.joined(separator: " ")
      }
    }
    let low = row.bit / 8 * 8
    let count = end - low / 8
    var text = ""
    for bit in (low..<low + 8 * count).reversed() {
      let isInside = bit >= row.bit && bit < row.bit + row.width
      text += isInside ? (octets[bit / 8] >> UInt8(bit % 8) & 1 == 1 ? "1" : "0") : "."
      if bit % 4 == 0, bit != low { text += " " }
    }
    return [text]
  }
  private static func hex(_ octet: UInt8) -> String {
    let text = String(octet, radix: 16, uppercase: true)
    return octet < 16 ? "0" + text : text
  }
  private static func pad(_ text: String, _ width: Int) -> String {
    text + String(repeating: " ", count: max(0, width - text.unicodeScalars.count))
  }
  /// Breaks at spaces, and within a word that has no room.
  private static func wrap(_ text: String, _ width: Int) -> [String] {
    var lines: [String] = [], line = ""
    for word in text.split(separator: " ") {
      var word = String(word)
      if !line.isEmpty, line.unicodeScalars.count + 1 + word.unicodeScalars.count <= width {
        line += " " + word
        continue
      }
      if !line.isEmpty { lines.append(line) }
      while word.unicodeScalars.count > width {
        lines.append(String(String.UnicodeScalarView(word.unicodeScalars.prefix(width))))
        word = String(String.UnicodeScalarView(word.unicodeScalars.dropFirst(width)))
      }
      line = word
    }
    return line.isEmpty ? lines : lines + [line]
  }
}
