import BindruneATT
import BindruneWire
import BindruneHCI
import BindruneSMP

/// Decodes a message like ``WireDecoder``, and records the place and the meaning of every field on the way.
///
/// A visitor of its own: the decoder forgets the places, and ``WireLayout`` knows only the fields before the first of
/// variable length. It stops at the first error, and every row before it stays.
struct ExplainRecorder: FieldVisitor {
  let packet: [UInt8]
  var at: Int
  var end: Int
  private var bit = 0
  var rows: [Explanation.Row] = []
  /// The values that the refused field could have had.
  private var allowed: String?
  /// The octets of the refused field.
  private var refused = 0
  /// The octets of fields with these labels are AD structures.
  private var advertises = false

  /// False: the rows have no texts, which take most of the time.
  let draws: Bool

  init(_ packet: [UInt8], draws: Bool = true) {
    self.packet = packet
    self.draws = draws
    at = 0
    end = packet.count
  }

  mutating func layer(_ name: StaticString, _ section: StaticString) {
    advertises =
      name.begins(with: "HCI_LE") && (name.contains("dvertising") || name.contains("Scan_Response"))
    rows.append(
      Explanation.Row(kind: .layer, bit: 8 * at, width: 0, name: name, text: draws ? section.description : ""))
  }
  /// A layer whose name no declaration has.
  mutating func layer(named name: @autoclosure () -> String?, else other: StaticString, _ section: StaticString) {
    layer(other, section)
    if draws, let name = name() { rows[rows.count - 1].label = name }
  }
  mutating func record<M: WireRecord>(_: M.Type) throws(WireError) {
    var message = M()
    try message.fields(&self)
    if at != end { throw .trailing("", end - at) }
  }
  mutating func add(_ kind: Explanation.Row.Kind, _ label: StaticString, _ text: String, octets count: Int) {
    rows.append(Explanation.Row(kind: kind, bit: 8 * at, width: 8 * count, name: label, text: text))
    at += count
  }
  func number(_ offset: Int, _ width: Int) -> UInt64 {
    (0..<width).reduce(0) { $0 | UInt64(packet[offset + $1]) << UInt64(8 * $1) }
  }
  private func need(_ count: Int, _ label: StaticString) throws(WireError) {
    if end - at < count { throw .truncated(label, needed: count, available: end - at) }
  }
  /// The least and the greatest octet of each run that `V` accepts.
  private func ranges<V: WireValue>(_: V.Type, bits: Int) -> String? {
    guard draws, bits <= 8 else { return nil }
    var runs: [(UInt64, UInt64)] = []
    for number in 0..<(UInt64(1) << UInt64(bits)) where V(wire: number) != nil {
      if let last = runs.last, last.1 + 1 == number {
        runs[runs.count - 1].1 = number
      } else {
        runs.append((number, number))
      }
    }
    return runs.map { $0 == $1 ? "\($0)" : "\($0) … \($1)" }.joined(separator: ", ")
  }

  // MARK: Fields

  mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) throws(WireError) {
    try need(V.width, label)
    let raw = number(at, V.width), start = 8 * at
    guard let found = V(wire: raw) else {
      allowed = ranges(V.self, bits: 8 * V.width)
      refused = V.width
      throw .invalid(label, raw)
    }
    value = found
    add(.field, label, draws ? meaning(of: found) : "", octets: V.width)
    if draws { flags(of: V.self, start, raw) }
  }
  mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) throws(WireError) {
    let count = (bit + width + 7) / 8
    try need(count, label)
    let raw = number(at, count) >> UInt64(bit) & (UInt64(1) << UInt64(width) - 1)
    guard let found = V(wire: raw) else {
      allowed = ranges(V.self, bits: width)
      throw .invalid(label, raw)
    }
    value = found
    rows.append(
      Explanation.Row(
        kind: .bits, bit: 8 * at + bit, width: width, name: label, text: draws ? meaning(of: found) : ""))
    bit += width
    at += bit / 8
    bit %= 8
  }
  mutating func value<V: WireWideValue>(_ label: StaticString, _ value: inout V) throws(WireError) {
    try need(V.width, label)
    for index in 0..<V.words { value[word: index] = number(at + 8 * index, 8) }
    data(label, V.width)
  }
  mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: WireExtent)
    throws(WireError)
  {
    let count: Int
    switch extent {
    case .rest, .cut: count = end - at
    case .exactly(let exact):
      try need(exact, label)
      count = exact
    case .allBut(let left): count = max(0, end - at - left)
    }
    value.octets = Octets(at, count)
    data(label, count)
  }
  mutating func octets<C: WireValue>(
    lengthIn lengthLabel: StaticString, _ length: C.Type, _ label: StaticString, _ value: inout Octets
  ) throws(WireError) {
    try need(C.width, lengthLabel)
    let count = Int(number(at, C.width))
    add(.field, lengthLabel, count, octets: C.width)
    try need(count, label)
    value = Octets(at, count)
    data(label, count)
  }
  mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) throws(WireError) {
    switch end - at {
    case 2: value.uuid = .short(UInt16(number(at, 2)))
    case 16: value.uuid = .long(low: number(at, 8), high: number(at + 8, 8))
    case let left where left < 2: throw .truncated(label, needed: 2, available: left)
    case let left: throw .wrongLength(label, left, expected: 16)
    }
    name(value.uuid, label, end - at)
  }
  mutating func name(_ uuid: BluetoothUUID, _ label: StaticString, _ count: Int) {
    add(.field, label, draws ? count == 2 ? "0x\(uuid)" : "\(uuid)" : "", octets: count)
    if draws { rows[rows.count - 1].uuid = "\(uuid)" }
  }

  /// Octets whose inside the declaration does not describe.
  private mutating func data(_ label: StaticString, _ count: Int) {
    if count == 0 { return }
    if advertises, label.isEqual(to: "Data") || label.contains("ing_Data") || label.contains("Response_Data") {
      let outer = end
      end = at + count
      structures(isPart: true)
      end = outer
    } else {
      add(.field, label, count, octets: count)
    }
  }
  /// A field whose text is a number of octets.
  mutating func add(_ kind: Explanation.Row.Kind, _ label: StaticString, _ stated: Int, octets count: Int) {
    add(kind, label, draws ? octetCount(stated) : "", octets: count)
  }

  // MARK: Lists

  private mutating func entry<E: WireRecord>(_: E.Type, _ label: StaticString, _ index: Int, to limit: Int?)
    throws(WireError)
  {
    rows.append(Explanation.Row(kind: .entry, bit: 8 * at, width: 0, name: label, text: ""))
    if draws { rows[rows.count - 1].label = "\(label) [\(index)]" }
    let outer = end
    if let limit { end = limit }
    var element = E()
    try element.fields(&self)
    if let limit, at != limit { throw .trailing("", limit - at) }
    end = outer
  }
  mutating func list<E>(_ label: StaticString, _ value: inout WireList<E>, _ shape: WireListShape) throws(WireError) {
    let measure = E.measure
    var index = 0
    if measure.isCounted && !measure.isOpen {
      try need(measure.shortest * shape.minimum, label)
      while at < end {
        let start = at, count = rows.count
        do throws(WireError) { try entry(E.self, label, index, to: nil) } catch {
          guard shape.mayBeCut, case .truncated = error.reason else { throw error }
          at = start
          rows.removeSubrange(count...)
          return
        }
        index += 1
      }
    } else {
      let stride = shape.stride == 0 ? measure.shortest : shape.stride
      try need(stride * shape.minimum, label)
      while at < end {
        try need(stride, label)
        try entry(E.self, label, index, to: at + stride)
        index += 1
      }
    }
  }
  mutating func list<E>(strideIn strideLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
  {
    try need(1, strideLabel)
    let measure = E.measure, stride = Int(packet[at]), least = max(measure.shortest, 1)
    if stride < least || (!measure.isOpen && stride != least) {
      throw .wrongLength(strideLabel, stride, expected: least)
    }
    add(.field, strideLabel, draws ? "\(octetCount(stride)) for each entry" : "", octets: 1)
    try need(stride, label)
    var index = 0
    while at < end {
      try need(stride, label)
      try entry(E.self, label, index, to: at + stride)
      index += 1
    }
  }
  mutating func list<E>(countIn countLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
  {
    try need(1, countLabel)
    let count = Int(packet[at])
    add(.field, countLabel, draws ? "\(count)" : "", octets: 1)
    for index in 0..<count { try entry(E.self, label, index, to: nil) }
  }

  // MARK: Errors

  /// Records the octets from the error to `limit`, and what is wrong with them.
  mutating func fail(_ error: WireError, to limit: Int) {
    // Bits before the refused ones have their rows: the others of their octet are wrong.
    if bit > 0, at < limit {
      rows.append(Explanation.Row(kind: .wrong, bit: 8 * at + bit, width: 8 - bit, label: "", text: "wrong bits"))
      at += 1
      bit = 0
    }
    let wrong = min(refused, limit - at)
    if wrong > 0 {
      add(.wrong, error.field, "wrong", octets: wrong)
      problem(draws ? sentence(error) : "")
      if at < limit { add(.wrong, "", "behind the error", octets: limit - at) }
    } else {
      if at < limit { add(.wrong, "", "not understood", octets: limit - at) }
      problem(draws ? sentence(error) : "")
    }
    refused = 0
  }
  mutating func problem(_ text: String) {
    rows.append(Explanation.Row(kind: .problem, bit: 8 * at, width: 0, label: "", text: text))
  }
  mutating func note(_ text: String) {
    rows.append(Explanation.Row(kind: .entry, bit: 8 * at, width: 0, label: text, text: ""))
  }
  private func sentence(_ error: WireError) -> String {
    let field = error.field.utf8CodeUnitCount == 0 ? "The message" : "\(error.field)"
    switch error.reason {
    case .truncated(let needed, let available):
      return "\(field) needs \(octetCount(Int(needed))); available: \(available)."
    case .invalid(let value):
      return "\(field) is \(value), which the Specification forbids." + (allowed.map { " Allowed: \($0)." } ?? "")
    case .wrongLength(let count, let expected):
      return "\(field) has or gives \(octetCount(Int(count))); expected: \(expected)."
    case .trailing(let count):
      return error.field.utf8CodeUnitCount == 0
        ? "\(octetCount(Int(count))) after the last field; expected: none."
        : "\(octetCount(Int(count))) more than \(field) says."
    case .unknown(let number):
      return "\(field) 0x\(hexDigits(UInt64(number), 2)) identifies no message that is known here."
    default: return "\(error)"
    }
  }
}

extension StaticString {
  func isEqual(to other: StaticString) -> Bool {
    utf8CodeUnitCount == other.utf8CodeUnitCount && contains(other)
  }
  func begins(with part: StaticString) -> Bool {
    withUTF8Buffer { all in part.withUTF8Buffer { unsafe all.starts(with: $0) } }
  }
  func contains(_ part: StaticString) -> Bool {
    withUTF8Buffer { all in
      part.withUTF8Buffer { part in
        guard part.count <= all.count else { return false }
        return (0...(all.count - part.count)).contains { start in
          part.indices.allSatisfy { unsafe all[start + $0] == part[$0] }
        }
      }
    }
  }
}

func octetCount(_ count: Int) -> String { count == 1 ? "1 octet" : "\(count) octets" }

extension ExplainRecorder: WireMessageVisitor, CommandVisitor, EventVisitor {
  mutating func visit<M: WireMessage>(_: M) throws(WireError) { try record(M.self) }
}
