/// Fills a message with a random valid value, for property tests: value → bytes → value.
///
/// The caller passes the generator, so that a seed repeats a run. The bytes of octets and lists are in `arena`, from
/// which the message is then encoded:
///
///     var chance = SplitMix64(seed: 1)
///     var arena: [UInt8] = []
///     let response = ReadByTypeResponse.arbitrary(using: &chance, in: &arena)
///     let packet = try response.encoded(from: arena.span)
///
/// Valid means as the fields declare (lengths, closed sets, two octets of UUID or sixteen), not what a server would
/// answer.
public struct WireArbitrary<Chance: RandomNumberGenerator>: FieldVisitor {
  public var chance: Chance
  /// The bytes that ranges in the generated messages refer to.
  public internal(set) var arena: [UInt8]
  /// The longest generated field of free length, in octets.
  public var longest = 24
  /// In an entry of a list: the octets of the field that takes the rest, because all entries have one length.
  private var rest: Int?

  public init(_ chance: Chance, arena: [UInt8] = []) {
    self.chance = chance
    self.arena = arena
  }

  /// A random message. Throws only errors of its own `fields`.
  public mutating func message<M: WireRecord>(_: M.Type) throws(WireError) -> M {
    var message = M()
    try message.fields(&self)
    return message
  }

  /// Small numbers, large numbers, and any numbers of `width` bits: most mistakes are at limits.
  private mutating func number(_ width: Int) -> UInt64 {
    let all: UInt64 = width >= 64 ? .max : (1 << UInt64(width)) - 1
    switch UInt8.random(in: 0..<4, using: &chance) {
    case 0: return .random(in: 0...min(all, 8), using: &chance)
    case 1: return all - .random(in: 0...min(all, 8), using: &chance)
    default: return .random(in: 0...all, using: &chance)
    }
  }
  private mutating func octets(_ count: Int) -> Octets {
    let range = Octets(arena.count, count)
    for _ in 0..<count { arena.append(.random(in: 0...0xFF, using: &chance)) }
    return range
  }
  private mutating func valid<V: WireValue>(_ value: inout V, _ width: Int) {
    // A closed set may be sparse; if no random number is a member, the valid default stays.
    for _ in 0..<1_000 {
      if let found = V(wire: number(width)) {
        value = found
        return
      }
    }
  }

  public mutating func value<V: WireValue>(_ label: StaticString, _ value: inout V) { valid(&value, 8 * V.width) }
  public mutating func value<V: WireWideValue>(_ label: StaticString, _ value: inout V) {
    for index in 0..<V.words { value[word: index] = number(64) }
  }
  public mutating func bits<V: WireValue>(_ label: StaticString, _ value: inout V, _ width: Int) {
    valid(&value, width)
  }
  public mutating func octets<O: OctetsField>(_ label: StaticString, _ value: inout O, _ extent: WireExtent) {
    value.octets =
      switch extent {
      case .exactly(let count): octets(count)
      case .rest, .allBut: octets(rest ?? .random(in: 0...longest, using: &chance))
      // The cut part depends on the list before it; an empty one is always valid.
      case .cut: Octets(arena.count, 0)
      }
  }
  public mutating func octets<C: WireValue>(
    lengthIn lengthLabel: StaticString, _ length: C.Type, _ label: StaticString, _ value: inout Octets
  ) {
    value = octets(.random(in: 0...longest, using: &chance))
  }
  public mutating func uuid<U: UUIDField>(_ label: StaticString, _ value: inout U) {
    let isShort = rest.map { $0 == 2 } ?? .random(using: &chance)
    value.uuid = isShort ? .short(UInt16(number(16))) : .long(low: number(64), high: number(64))
  }

  public mutating func list<E>(_ label: StaticString, _ value: inout WireList<E>, _ shape: WireListShape)
    throws(WireError)
  {
    let measure = E.measure
    let open = max(0, shape.stride - measure.shortest) + (measure.hasUUID ? 2 : 0)
    let count = Int.random(in: shape.minimum...shape.minimum + 3, using: &chance)
    value = try entries(count, rest: measure.isOpen ? open : nil)
  }
  public mutating func list<E>(strideIn strideLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
  {
    let measure = E.measure
    // An entry has at least one octet.
    let least = measure.shortest == 0 ? 1 : 0
    let free = Int.random(in: least...max(least, longest), using: &chance)
    let open = measure.hasUUID ? (Bool.random(using: &chance) ? 2 : 16) : free
    value = try entries(.random(in: 1...4, using: &chance), rest: measure.isOpen ? open : nil)
  }
  public mutating func list<E>(countIn countLabel: StaticString, _ label: StaticString, _ value: inout WireList<E>)
    throws(WireError)
  {
    value = try entries(.random(in: 0...4, using: &chance), rest: nil)
  }
  private mutating func entries<E>(_ count: Int, rest: Int?) throws(WireError) -> WireList<E> {
    let outer = self.rest
    defer { self.rest = outer }
    self.rest = rest
    var entries: [E] = []
    for _ in 0..<count { entries.append(try message(E.self)) }
    return try WireList(entries, in: &arena)
  }
}

extension WireRecord {
  /// A random valid value; its ranges refer to the bytes that it appends to `arena`.
  public static func arbitrary(using chance: inout some RandomNumberGenerator, in arena: inout [UInt8]) -> Self {
    var arbitrary = WireArbitrary(chance, arena: arena)
    defer {
      chance = arbitrary.chance
      arena = arbitrary.arena
    }
    do throws(WireError) { return try arbitrary.message(Self.self) } catch { return Self() }
  }
}
