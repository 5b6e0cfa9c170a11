/// # ScrubSearch
/// **Overview**: finds originals where no field is declared: addresses, keys and names, in the forms in which programs
/// and devices write them.
///
/// | what | forms |
/// |---|---|
/// | addresses | six octets in both orders; with FF FE or FE FF in the middle (EUI-64, System ID); the lower three octets; all of these as hexadecimal digits, with and without separators |
/// | keys | both orders, and hexadecimal digits |
/// | names | their octets |
/// | text | UTF-8, and UTF-16 in both orders |
///
/// **Function**: a filter with a bit for the first three octets of each original passes few places on, so that the time
/// does not depend on the number of originals. What is so plain that a number may equal it by chance is not searched
/// for: see `isDistinctive`.
struct ScrubSearch {
  /// Shorter names are not searched for.
  static var shortestName: Int { 4 }

  enum What: String {
    case addresses, keys, names
    case parts = "parts of addresses"
  }
  struct Found {
    var range: Range<Int>
    var replacement: [UInt8]
    var what: What
    /// No number is this by chance: it may also be replaced within a declared field.
    var isCertain: Bool
  }

  private let addresses: [UInt64: UInt64]
  /// The lower three octets.
  private var lows: [UInt32: UInt32] = [:]
  private var keys: [UInt64: [(original: [UInt8], new: [UInt8])]] = [:]
  private var names: [UInt32: [(original: [UInt8], new: [UInt8])]] = [:]
  private var filter = [UInt64](repeating: 0, count: 1 << 14)

  init(addresses: [UInt64: UInt64], keys: [[UInt8]: [UInt8]], names: [[UInt8]: [UInt8]]) {
    self.addresses = addresses.filter { Self.weight($0.key) >= 2 }
    for (original, new) in self.addresses {
      for address in [original, original ^ 0x02 << 40] {
        let octets = Self.octets(address)
        pass(octets, 0)
        pass(octets.reversed(), 0)
      }
      let low = UInt32(truncatingIfNeeded: original & 0xFF_FFFF)
      guard Self.weight(UInt64(low)) == 3, low & 0xFF != low >> 8 & 0xFF else { continue }
      lows[low] = UInt32(truncatingIfNeeded: new & 0xFF_FFFF)
      pass(Self.octets(original), 0)
      pass([UInt8](Self.octets(original)[..<3].reversed()), 0)
    }
    for (original, new) in keys where original.count >= 16 {
      for (octets, new) in [(original, new), (original.reversed(), new.reversed())] {
        self.keys[Self.number(octets, 0, 8), default: []].append((octets, new))
        pass(octets, 0)
      }
    }
    for (original, new) in names where original.count >= Self.shortestName {
      self.names[UInt32(Self.number(original, 0, 4)), default: []].append((original, new))
      pass(original, 0)
    }
    // The longest first: a name may begin with another.
    for key in self.names.keys { self.names[key]?.sort { $0.original.count > $1.original.count } }
  }
  var isEmpty: Bool { addresses.isEmpty && keys.isEmpty && names.isEmpty }

  /// Octets that are neither 0x00 nor 0xFF, as small numbers and masks have.
  private static func weight(_ address: UInt64) -> Int { octets(address).count { $0 != 0 && $0 != 0xFF } }
  /// Whether a number of another meaning is hardly ever equal to it.
  static func isDistinctive(_ address: UInt64) -> Bool { weight(address) >= 4 }

  private static func octets(_ value: UInt64) -> [UInt8] {
    (0..<6).map { UInt8(truncatingIfNeeded: value >> UInt64(8 * $0)) }
  }
  private static func number(_ octets: [UInt8], _ at: Int, _ count: Int) -> UInt64 {
    (0..<count).reduce(0) { $0 | UInt64(octets[at + $1]) << UInt64(8 * $1) }
  }
  @inline(__always) private static func place(_ octets: [UInt8], _ at: Int) -> (word: Int, bit: UInt64) {
    let first = UInt32(octets[at]) | UInt32(octets[at + 1]) << 8 | UInt32(octets[at + 2]) << 16
    let hash = (first &* 0x9E37_79B1) >> 12
    return (Int(hash >> 6), 1 << UInt64(hash & 63))
  }
  private mutating func pass(_ octets: [UInt8], _ at: Int) {
    let (word, bit) = Self.place(octets, at)
    filter[word] |= bit
  }

  // MARK: Octets

  /// Originals as octets: of the forms that may stand anywhere, and where `isOpen`, of the others.
  func find(in octets: [UInt8], isOpen: Bool) -> [Found] {
    var found: [Found] = [], at = 0
    while at + 3 <= octets.count {
      let (word, bit) = Self.place(octets, at)
      guard filter[word] & bit != 0, let here = original(octets, at, isOpen: isOpen) else {
        at += 1
        continue
      }
      found.append(here)
      at = here.range.upperBound
    }
    return found
  }
  private func original(_ octets: [UInt8], _ at: Int, isOpen: Bool) -> Found? {
    let left = octets.count - at
    func found(_ new: [UInt8], _ what: What, isCertain: Bool = true) -> Found {
      Found(range: at..<at + new.count, replacement: new, what: what, isCertain: isCertain)
    }
    if left >= 16, !keys.isEmpty, let candidates = keys[Self.number(octets, at, 8)] {
      for (original, new) in candidates where octets[at...].starts(with: original) { return found(new, .keys) }
    }
    if isOpen, left >= 4, let candidates = names[UInt32(Self.number(octets, at, 4))] {
      for (original, new) in candidates where octets[at...].starts(with: original) {
        return found(new, .names, isCertain: false)
      }
    }
    if left >= 6 {
      let value = Self.number(octets, at, 6), reversed = value.byteSwapped >> 16
      if let new = addresses[value] {
        return found(Self.octets(new), .addresses, isCertain: Self.isDistinctive(value))
      }
      if let new = addresses[reversed] {
        return found(Self.octets(new).reversed(), .addresses, isCertain: Self.isDistinctive(reversed))
      }
    }
    guard isOpen else { return nil }
    if left >= 8, octets[at + 3] ^ octets[at + 4] == 1, octets[at + 3] | octets[at + 4] == 0xFF {
      let middle = [octets[at + 3], octets[at + 4]]
      let value = Self.number(octets, at, 3) | Self.number(octets, at + 5, 3) << 24
      // The second bit of an EUI-64 may be inverted. RFC 4291, Appendix A.
      for flip: UInt64 in [0, 0x02 << 40] {
        if let new = addresses[value ^ flip] {
          let octets = Self.octets(new ^ flip)
          return found(octets[..<3] + middle + octets[3...], .addresses, isCertain: false)
        }
        if let new = addresses[value.byteSwapped >> 16 ^ flip] {
          let octets = [UInt8](Self.octets(new ^ flip).reversed())
          return found(octets[..<3] + middle + octets[3...], .addresses, isCertain: false)
        }
      }
    }
    let low = UInt32(Self.number(octets, at, 3))
    if let new = lows[low] { return found(Array(Self.octets(UInt64(new))[..<3]), .parts, isCertain: false) }
    if let new = lows[low.byteSwapped >> 8] {
      return found(Self.octets(UInt64(new))[..<3].reversed(), .parts, isCertain: false)
    }
    return nil
  }

  // MARK: Text

  /// Replaces originals in `octets` where `isOpen`; where it is not, only those that are certain. `change` receives
  /// each place and its new octet.
  func replace(
    in octets: [UInt8], hasOpen: Bool, isOpen: (Int) -> Bool, _ change: (Int, UInt8) -> Void,
    count: (_ places: [Int], What) -> Void
  ) {
    for found in find(in: octets, isOpen: hasOpen) {
      guard found.isCertain || found.range.allSatisfy(isOpen) else { continue }
      for (place, octet) in zip(found.range, found.replacement) { change(place, octet) }
      count(Array(found.range), found.what)
    }
    guard hasOpen else { return }
    let all = Array(octets.indices)
    digits(octets, all, isOpen, change, count)
    // UTF-16: every other octet is zero.
    for start in [0, 1] {
      var places: [Int] = [], at = start
      func end() {
        if places.count >= Self.shortestName {
          let text = places.map { octets[$0] }
          for found in find(in: text, isOpen: true) where found.what == .names && places[found.range].allSatisfy(isOpen)
          {
            for (index, octet) in zip(found.range, found.replacement) { change(places[index], octet) }
            count(Array(places[found.range]), found.what)
          }
          digits(octets, places, isOpen, change, count)
        }
        places = []
      }
      while at < octets.count {
        let isZero = (at + 1 < octets.count && octets[at + 1] == 0) || (at > 0 && octets[at - 1] == 0)
        if octets[at] != 0, isZero { places.append(at) } else { end() }
        at += 2
      }
      end()
    }
  }
  /// Hexadecimal digits at `places`, with one character at most between two pairs.
  private func digits(
    _ octets: [UInt8], _ places: [Int], _ isOpen: (Int) -> Bool, _ change: (Int, UInt8) -> Void,
    _ count: (_ places: [Int], What) -> Void
  ) {
    var run: [Int] = [], gap = 0
    func end() {
      defer { run = [] }
      guard run.count >= 6 else { return }
      let isLower = run.contains { (0x61...0x66).contains(octets[$0]) }
      for start in [0, 1] {
        let numbers = stride(from: start, to: run.count - 1, by: 2).map {
          Self.digit(octets[run[$0]])! << 4 | Self.digit(octets[run[$0 + 1]])!
        }
        for found in find(in: numbers, isOpen: true) where found.what != .names {
          let own = found.range.flatMap { [run[start + 2 * $0], run[start + 2 * $0 + 1]] }
          guard own.allSatisfy(isOpen) else { continue }
          for (index, octet) in found.replacement.enumerated() {
            change(own[2 * index], Self.character(octet >> 4, isLower))
            change(own[2 * index + 1], Self.character(octet & 15, isLower))
          }
          count(own, found.what)
        }
      }
    }
    for place in places {
      if Self.digit(octets[place]) != nil {
        run.append(place)
        gap = 0
      } else if !run.isEmpty, gap == 0, Self.separators.contains(octets[place]) {
        gap = 1
      } else {
        end()
        gap = 0
      }
    }
    end()
  }
  private static let separators: Set<UInt8> = Set(":-._ ".utf8)
  private static func digit(_ character: UInt8) -> UInt8? {
    switch character {
    case 0x30...0x39: character - 0x30
    case 0x41...0x46: character - 0x37
    case 0x61...0x66: character - 0x57
    default: nil
    }
  }
  private static func character(_ digit: UInt8, _ isLower: Bool) -> UInt8 {
    digit < 10 ? 0x30 + digit : (isLower ? 0x57 : 0x37) + digit
  }
}
