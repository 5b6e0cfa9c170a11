import BindruneTrace
import BindruneWire
import BindruneGATT

/// # ReportShapes
/// **Overview**: the byte maps of all packets, each distinct one once.
///
/// **Function**: packets of one kind have the same fields at the same places; their values differ. So a shape holds the
/// rows of ``Explanation`` with, instead of a value, how the value's text follows from the octets: as hexadecimal
/// digits, as a number, as an address. The page forms these texts. A text that follows in none of these ways is part of
/// the shape. A form is used only if it gives exactly the text of the explanation.
struct ReportShapes {
  /// How the text of a row follows from its octets. The page has the same list.
  enum Form: Int {
    /// `argument` is the text's place.
    case literal = 0
    /// `0x` and `argument` hexadecimal digits.
    case hexadecimal
    case decimal
    /// A signed octet and `dBm`.
    case power
    case address
    /// The row's width in octets.
    case count
    /// `yes` or `no`.
    case truth
    /// The octets as ASCII, in quotes.
    case text
  }
  /// Kind, first bit, width in bits, label, form and argument of each row, in one list.
  private(set) var list: [[Int]] = []
  private var places: [[Int]: Int] = [:]

  /// Adds the rows that explain `octets`, `offset` octets further on, to `rows`.
  static func add(
    _ explanation: Explanation, at offset: Int, to rows: inout [Int], _ strings: inout ReportStrings
  ) {
    for row in explanation.rows {
      rows.append(kind(row.kind))
      rows.append(row.bit + 8 * offset)
      rows.append(row.width)
      rows.append(strings.place(row.label))
      let (form, argument) = form(of: row, explanation.octets, &strings)
      rows.append(form.rawValue)
      rows.append(argument)
    }
  }
  /// A row that no declaration describes.
  static func add(
    _ kind: Explanation.Row.Kind, bit: Int, width: Int, _ label: String, _ text: String, to rows: inout [Int],
    _ strings: inout ReportStrings
  ) {
    rows += [Self.kind(kind), bit, width, strings.place(label), Form.literal.rawValue, strings.place(text)]
  }
  mutating func place(_ rows: [Int]) -> Int {
    if let place = places[rows] { return place }
    places[rows] = list.count
    list.append(rows)
    return list.count - 1
  }

  private static func kind(_ kind: Explanation.Row.Kind) -> Int {
    switch kind {
    case .layer: 0
    case .entry: 1
    case .field: 2
    case .bits: 3
    case .flag: 4
    case .wrong: 5
    case .problem: 6
    }
  }

  private static func form(
    of row: Explanation.Row, _ octets: [UInt8], _ strings: inout ReportStrings
  ) -> (Form, Int) {
    var text = row.text
    if let uuid = row.uuid, let name = BluetoothUUID(uuid)?.assignedName { text += " (\(name))" }
    if text.isEmpty || row.width == 0 { return (.literal, strings.place(text)) }
    let utf8 = text.utf8
    if row.width % 8 == 0, text == octetCount(row.width / 8) { return (.count, 0) }
    if row.width <= 64 {
      let value = number(row, octets)
      if row.kind == .flag, row.width == 1, text == (value == 1 ? "yes" : "no") { return (.truth, 0) }
      if utf8.first == UInt8(ascii: "0"), utf8.count > 2, utf8.count <= 18,
        text == "0x" + hexDigits(value, utf8.count - 2)
      {
        return (.hexadecimal, utf8.count - 2)
      }
      if text == String(value) { return (.decimal, 0) }
      if row.width == 8, text == "\(Int8(truncatingIfNeeded: value)) dBm" { return (.power, 0) }
      if row.width == 48, text == DeviceAddress(value).text { return (.address, 0) }
    }
    let range = row.bit / 8..<(row.bit + row.width) / 8
    if utf8.count == range.count + 2, utf8.first == UInt8(ascii: "\""), utf8.last == UInt8(ascii: "\""),
      octets[range].allSatisfy({ (0x20..<0x7F).contains($0) }), utf8.dropFirst().dropLast().elementsEqual(octets[range])
    {
      return (.text, 0)
    }
    return (.literal, strings.place(text))
  }
  private static func number(_ row: Explanation.Row, _ octets: [UInt8]) -> UInt64 {
    let first = row.bit / 8, end = min((row.bit + row.width + 7) / 8, octets.count)
    var value: UInt128 = 0
    for place in (first..<max(first, end)).reversed() { value = value << 8 | UInt128(octets[place]) }
    return UInt64(truncatingIfNeeded: value >> UInt128(row.bit % 8) & (UInt128(1) << UInt128(row.width) - 1))
  }
}

func octetCount(_ count: Int) -> String { count == 1 ? "1 octet" : "\(count) octets" }
