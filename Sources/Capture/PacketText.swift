import BindruneWire
import BindruneHCI

// The text of btmon and hcidump. A packet begins with a line that has its direction in the first column, or behind a
// time; the lines below it are indented:
//
//     < HCI Command: Vendor (0x3f|0x001e) plen 2                 #1 [hci0] 0.000001
//             01 02                                            ..
//     > 04 0E 04 01 03 0C 00
//
// The first is btmon's or hcidump's: its octets are those of the packet behind its header, which the line names. The
// second is that of hcidump --raw: the octets are the packet. A packet of which not all octets are printed is missing.

extension CaptureParser {
  /// A line and its indented ones: a packet of 65,540 octets has 16 in a line of 80.
  private static var longestText: Int { 524_288 }

  enum TextKind { case packets, other, binary }
  /// What the beginning of a file is, of its first octets.
  static func text(_ bytes: Span<UInt8>) -> TextKind {
    for index in bytes.indices where bytes[index] < 0x20 && !isTextControl(bytes[index]) { return .binary }
    guard bytes.count > 0 else { return .binary }
    var line = 0
    while line < bytes.count {
      let end = Self.end(ofLine: line, bytes)
      let words = bytes.extracting(line..<end)
      if TextLine(words)?.hasPacket == true || words.starts(with: "Bluetooth monitor ver", at: 0)
        || words.starts(with: "HCI sniffer - Bluetooth packet analyzer", at: 0)
      {
        return .packets
      }
      line = end + 1
    }
    return .other
  }
  /// Tabulator, the ends of lines, and the colours of a terminal.
  private static func isTextControl(_ octet: UInt8) -> Bool { (0x09...0x0D).contains(octet) || octet == 0x1B }
  private static func end(ofLine start: Int, _ bytes: Span<UInt8>) -> Int {
    var at = start
    while at < bytes.count, bytes[at] != UInt8(ascii: "\n") { at += 1 }
    return at
  }

  /// The next packet with all its octets.
  mutating func text(_ span: Span<UInt8>, _ at: inout Int, _ isLast: Bool) throws(CaptureError) -> CaptureStep {
    while at < span.count {
      // The packet's text: up to the next line that is not indented.
      var end = at, hasEnd = false, lines = 0
      while end < span.count {
        let next = Self.end(ofLine: end, span)
        if lines > 0, end < span.count, next > end, span[end] != UInt8(ascii: " "), span[end] != UInt8(ascii: "\t") {
          hasEnd = true
          break
        }
        guard next < span.count else {
          end = next
          break
        }
        end = next + 1
        lines += 1
      }
      if !hasEnd, !isLast {
        guard span.count - at <= Self.longestText else {
          throw error(.implausibleLength("text", UInt32(clamping: span.count - at)))
        }
        return .needs(span.count - at + 1)
      }
      let first = Self.end(ofLine: at, span)
      if let line = TextLine(span.extracting(at..<min(first, end))), line.hasPacket {
        if let record = packet(line, span, first + 1, end) {
          advance(end - at, &at)
          return .record(record)
        }
        packetsWithoutOctets += 1
        hasSkipped = true
      }
      advance(end - at, &at)
    }
    guard isLast else { return .needs(1) }
    // A few packets have no octets but those of their header: they make no trace.
    if !hasPrintedOctets { throw error(packetsWithoutOctets > 0 || count > 0 ? .textWithoutOctets : .text) }
    return .end
  }

  /// nil: not all octets are printed.
  private mutating func packet(_ line: TextLine, _ bytes: Span<UInt8>, _ start: Int, _ end: Int) -> CaptureRecord? {
    var octets = line.octets, at = start
    let header = line.header
    while at < end {
      let next = min(Self.end(ofLine: at, bytes), end)
      octets += TextLine.octets(bytes.extracting(at..<next))
      at = next + 1
    }
    if !header.isEmpty, octets.count == line.bodyCount { octets = header + octets }
    // Without the type octet, or with it, the header may be among the octets.
    if !header.isEmpty, octets.count == line.bodyCount + header.count - 1 { octets = [header[0]] + octets }
    guard octets.count > 1, octets.starts(with: header),
      packetCount(octets[0], octets.span, 1, available: octets.count - 1) == octets.count - 1
    else { return nil }
    count += 1
    hasPrintedOctets = hasPrintedOctets || line.bodyCount > 0 || header.isEmpty
    if let stamp = line.time { time = stamp }
    var record = CaptureRecord(
      number: count, offset: offset, time: time, direction: line.direction, adapter: line.adapter,
      octets: Octets(0, octets.count))
    record.isAssembled = true
    record.setDirection(octets[0])
    assembled = octets
    return record
  }
}

/// A line that begins a packet, or something else that is not indented.
private struct TextLine {
  var direction: HCIDirection?
  /// Octets in the line itself.
  var octets: [UInt8] = []
  /// The packet's type octet and header, as the line's words have them.
  var header: [UInt8] = []
  var bodyCount = 0
  var adapter: UInt16 = 0
  /// Nanoseconds since 1970, or since the beginning.
  var time: Int64?
  var hasPacket: Bool { direction != nil && (!octets.isEmpty || !header.isEmpty) }

  /// nil: it is indented, or empty.
  init?(_ bytes: Span<UInt8>) {
    guard bytes.count > 2, bytes.count < 1_024, bytes[0] != UInt8(ascii: " "), bytes[0] != UInt8(ascii: "\t") else {
      return nil
    }
    var words = Self.words(bytes)
    // hcidump -t has the time before the direction.
    var stamp: [[UInt8]] = []
    while let word = words.first, word.first.map({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }) == true,
      stamp.count < 2
    {
      stamp.append(words.removeFirst())
    }
    guard let sign = words.first, sign.count == 1 else { return nil }
    switch sign[0] {
    case UInt8(ascii: "<"): direction = .fromHost
    case UInt8(ascii: ">"): direction = .fromController
    default: return nil
    }
    words.removeFirst()
    if let octets = Self.octets(words) {
      self.octets = octets
      time = Self.time(stamp)
      return
    }
    // btmon has `#12 [hci0] 1.234567` at the end, with -t or -T the time of day, or the date too.
    if let place = words.lastIndex(where: { $0.starts(with: "[hci".utf8) }) {
      adapter = UInt16(String(decoding: words[place].dropFirst(4).dropLast(), as: UTF8.self)) ?? 0
      stamp = Array(words[(place + 1)...])
      words.removeSubrange(place...)
    }
    time = Self.time(stamp)
    takeHeader(words)
  }

  /// The words of a line without the colours of a terminal.
  private static func words(_ bytes: Span<UInt8>) -> [[UInt8]] {
    var words: [[UInt8]] = [], word: [UInt8] = [], isColour = false
    for index in bytes.indices {
      let octet = bytes[index]
      if isColour {
        isColour = octet != UInt8(ascii: "m")
      } else if octet == 0x1B {
        isColour = true
      } else if octet <= 0x20 {
        if !word.isEmpty { words.append(word) }
        word = []
      } else {
        word.append(octet)
      }
    }
    if !word.isEmpty { words.append(word) }
    return words
  }
  private static func number(_ word: [UInt8]?) -> Int? {
    guard let word, word.count <= 8 else { return nil }
    let text = String(decoding: word, as: UTF8.self)
    return text.hasPrefix("0x") ? Int(text.dropFirst(2), radix: 16) : Int(text)
  }

  /// `HCI Command: Reset (0x03|0x0003) plen 0`, `HCI Event: Command Complete (0x0e) plen 4`,
  /// `ACL Data TX: Handle 64 flags 0x00 dlen 7`, and SCO and ISO data.
  private mutating func takeHeader(_ words: [[UInt8]]) {
    func value(_ label: String) -> Int? {
      guard let place = words.firstIndex(where: { $0.elementsEqual(label.utf8) }), place + 1 < words.count else {
        return nil
      }
      return Self.number(words[place + 1])
    }
    guard words.count >= 3, let length = value("plen") ?? value("dlen"), length >= 0 else { return }
    let kind = String(decoding: words[0], as: UTF8.self)
    let low = UInt8(truncatingIfNeeded: length), high = UInt8(truncatingIfNeeded: length >> 8)
    bodyCount = length
    switch kind {
    case "HCI":
      // The number in parentheses before the length: a name may have parentheses too.
      guard let place = words.firstIndex(where: { $0.elementsEqual("plen".utf8) }), place > 0, length <= 255 else {
        return
      }
      let parts = words[place - 1].dropFirst().dropLast().split(separator: UInt8(ascii: "|")).map { Array($0) }
      if parts.count == 2, let group = Self.number(parts[0]), let number = Self.number(parts[1]), group < 64,
        number < 1_024
      {
        header = [1, UInt8(number & 0xFF), UInt8(group << 2 | number >> 8), low]
      } else if parts.count == 1, let code = Self.number(parts[0]), code < 256 {
        header = [4, UInt8(code), low]
      }
    case "ACL", "SCO", "ISO":
      guard let handle = value("Handle") ?? value("handle"), let flags = value("flags"), handle < 4_096, flags < 16,
        length <= (kind == "SCO" ? 255 : 65_535)
      else { return }
      let word = [UInt8(handle & 0xFF), UInt8(handle >> 8 | flags << 4)]
      header =
        kind == "ACL" ? [2] + word + [low, high] : kind == "SCO" ? [3] + word + [low] : [5] + word + [low, high]
    default: break
    }
  }

  /// The octets of a line of two digits each. Text behind two spaces, and an offset before a colon, are left out.
  static func octets(_ bytes: Span<UInt8>) -> [UInt8] {
    var at = 0, octets: [UInt8] = []
    while at < bytes.count, bytes[at] == UInt8(ascii: " ") || bytes[at] == UInt8(ascii: "\t") { at += 1 }
    if at + 5 < bytes.count, bytes[at + 4] == UInt8(ascii: ":"), (at..<at + 4).allSatisfy({ digit(bytes[$0]) != nil }) {
      at += 5
      while at < bytes.count, bytes[at] == UInt8(ascii: " ") { at += 1 }
    }
    while at + 1 < bytes.count, let high = digit(bytes[at]), let low = digit(bytes[at + 1]) {
      guard at + 2 >= bytes.count || bytes[at + 2] <= 0x20 else { return [] }
      octets.append(high << 4 | low)
      at += 3
      if at < bytes.count, bytes[at] <= 0x20 { return octets }
    }
    // A word of another kind behind one space: it was no line of octets.
    return at >= bytes.count || octets.count == 16 ? octets : []
  }
  private static func octets(_ words: [[UInt8]]) -> [UInt8]? {
    guard !words.isEmpty else { return nil }
    var octets: [UInt8] = []
    for word in words {
      guard word.count == 2, let high = digit(word[0]), let low = digit(word[1]) else { return nil }
      octets.append(high << 4 | low)
    }
    return octets
  }
  private static func digit(_ octet: UInt8) -> UInt8? {
    switch octet {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): octet - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): octet - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): octet - UInt8(ascii: "A") + 10
    default: nil
    }
  }

  /// `1.234567`, `12:34:56.789012`, `2024-01-31 12:34:56.789012`, in nanoseconds.
  private static func time(_ words: [[UInt8]]) -> Int64? {
    guard let last = words.last else { return nil }
    let parts = last.split(separator: UInt8(ascii: "."))
    guard parts.count == 2, parts[1].count <= 9, let fraction = Int64(String(decoding: parts[1], as: UTF8.self)) else {
      return nil
    }
    var seconds: Int64 = 0
    for part in parts[0].split(separator: UInt8(ascii: ":")) {
      guard part.count <= 9, let number = Int64(String(decoding: part, as: UTF8.self)) else { return nil }
      seconds = seconds * 60 + number
    }
    if words.count > 1 {
      let date = words[words.count - 2].split(separator: UInt8(ascii: "-")).map {
        $0.count <= 4 ? Int(String(decoding: $0, as: UTF8.self)) ?? -1 : -1
      }
      if date.count == 3, (1...12).contains(date[1]), (1...31).contains(date[2]), date[0] >= 0 {
        seconds += Int64(days(date[0], date[1], date[2])) * 86_400
      }
    }
    let nano = (parts[1].count..<9).reduce(fraction) { value, _ in value * 10 }
    return seconds * 1_000_000_000 + nano
  }
  /// Days of the Gregorian calendar since 1970.
  private static func days(_ year: Int, _ month: Int, _ day: Int) -> Int {
    // A year that begins in March has its odd day at the end.
    let year = month > 2 ? year : year - 1, month = (month + 9) % 12
    return 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469
  }
}
