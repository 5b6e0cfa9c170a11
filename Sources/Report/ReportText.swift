import BindruneWire

/// Strings that are written once and named by their places. Place 0 is the empty string.
struct ReportStrings {
  private(set) var list: [String] = [""]
  private var places: [String: Int] = ["": 0]
  /// The longest text that a page shows of one thing, in characters.
  static var longest: Int { 2_000 }

  /// The place of `text`. Characters that act instead of being seen are escaped.
  mutating func place(_ text: String) -> Int {
    if let place = places[text] { return place }
    let shown = text.printable(limit: Self.longest)
    let place = places[shown] ?? list.count
    if place == list.count { list.append(shown) }
    places[text] = place
    places[shown] = place
    return place
  }
}

/// Writes JSON that may stand inside an HTML document: no string of it can end a script or begin a tag.
struct ReportJSON {
  private(set) var output: [UInt8] = []
  /// A value was written at this depth, so that the next one needs a comma.
  private var needsComma = false

  mutating func object(_ name: StaticString? = nil, _ body: (inout ReportJSON) -> Void) {
    nest(name, UInt8(ascii: "{"), UInt8(ascii: "}"), body)
  }
  mutating func list(_ name: StaticString? = nil, _ body: (inout ReportJSON) -> Void) {
    nest(name, UInt8(ascii: "["), UInt8(ascii: "]"), body)
  }
  private mutating func nest(
    _ name: StaticString?, _ open: UInt8, _ close: UInt8, _ body: (inout ReportJSON) -> Void
  ) {
    begin(name)
    output.append(open)
    needsComma = false
    body(&self)
    output.append(close)
    needsComma = true
  }
  mutating func add(_ name: StaticString? = nil, _ text: String) {
    begin(name)
    string(text)
  }
  mutating func add(_ name: StaticString? = nil, _ number: Int) {
    begin(name)
    decimal(number)
  }
  mutating func add(_ name: StaticString? = nil, _ numbers: some Sequence<Int>) {
    begin(name)
    output.append(UInt8(ascii: "["))
    var isFirst = true
    for number in numbers {
      if !isFirst { output.append(UInt8(ascii: ",")) }
      isFirst = false
      decimal(number)
    }
    output.append(UInt8(ascii: "]"))
  }
  mutating func add(_ name: StaticString? = nil, _ texts: [String]) {
    list(name) { json in for text in texts { json.add(nil, text) } }
  }
  /// The octets in base64. RFC 4648, §4.
  mutating func add(_ name: StaticString? = nil, base64 octets: [UInt8]) {
    begin(name)
    output.append(UInt8(ascii: "\""))
    output.append(contentsOf: base64(octets))
    output.append(UInt8(ascii: "\""))
  }

  private mutating func begin(_ name: StaticString?) {
    if needsComma { output.append(UInt8(ascii: ",")) }
    needsComma = true
    guard let name else { return }
    string("\(name)")
    output.append(UInt8(ascii: ":"))
  }
  private mutating func decimal(_ number: Int) {
    if number >= 0, number < 10 { return output.append(UInt8(ascii: "0") + UInt8(number)) }
    output.append(contentsOf: String(number).utf8)
  }
  private mutating func string(_ text: String) {
    output.append(UInt8(ascii: "\""))
    for octet in text.utf8 {
      switch octet {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"):
        output.append(UInt8(ascii: "\\"))
        output.append(octet)
      // `</script>`, `<!--` and `-->` would end the element.
      case 0..<0x20, 0x7F, UInt8(ascii: "<"), UInt8(ascii: ">"), UInt8(ascii: "&"):
        output.append(contentsOf: "\\u00".utf8)
        output.append(contentsOf: hexDigits(UInt64(octet), 2).utf8)
      default: output.append(octet)
      }
    }
    output.append(UInt8(ascii: "\""))
  }
}

/// RFC 4648, §4.
func base64(_ octets: [UInt8]) -> [UInt8] {
  let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
  var output: [UInt8] = []
  output.reserveCapacity((octets.count + 2) / 3 * 4)
  for start in stride(from: 0, to: octets.count, by: 3) {
    let count = min(3, octets.count - start)
    var group: UInt32 = 0
    for index in 0..<3 { group = group << 8 | (index < count ? UInt32(octets[start + index]) : 0) }
    for index in 0..<4 {
      output.append(index <= count ? digits[Int(group >> UInt32(18 - 6 * index) & 63)] : UInt8(ascii: "="))
    }
  }
  return output
}
