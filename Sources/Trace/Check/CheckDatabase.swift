import BindruneWire
import BindruneHCI

/// # CheckDatabase
/// **Overview**: the attributes that a server shows to its client in one connection, and what the client has configured
/// there, for ``Checker``. Vol 3, Part G.
struct CheckDatabase {
  /// Attributes that are followed.
  private static var mostAttributes: Int { 4_096 }

  struct Characteristic {
    var declaration: UInt16
    var properties: UInt8
  }
  var isFromStart = false
  /// The types of attributes.
  private var types: [UInt16: UInt128] = [:]
  /// By the handle of the value.
  private var characteristics: [UInt16: Characteristic] = [:]
  /// First and last handle.
  private var services: [(start: UInt16, end: UInt16)] = []
  /// The values of declarations.
  private var declarations: [UInt16: [UInt8]] = [:]
  /// The last values that the server has confirmed or shown of attributes of two octets, by handle.
  private var configurations: [UInt16: UInt16] = [:]
  /// Attributes that the client may have configured: it has written them without an answer, or in parts.
  private var uncertain: Set<UInt16> = []
  /// The client has written two octets, or prepared a write: it may have configured something.
  private var hasConfigured = false
  /// The client has set bit 2 of Client Supported Features, or may have; and the attribute that it is writing for that.
  private var hasMultiple = false
  private var asksMultiple: UInt16?
  /// A bond may have preserved the client's configuration.
  private var mayBeBonded = false
  /// Breaches unless the client turns out to be bonded.
  private var suspects: [CheckFinding] = []

  mutating func lose() { mayBeBonded = true }
  mutating func isBonded() {
    mayBeBonded = true
    suspects = []
  }
  mutating func end(_ report: inout CheckReport) {
    report.add(suspects)
    suspects = []
  }

  // MARK: Discovery

  mutating func attribute(
    _ handle: UInt16, _ type: UInt128, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let known = types[handle]
    report.judge(
      .databaseStable, known == nil || known == type, by: party,
      seen: "\(code(handle, 4)) has the type \(Self.text(type))", allowed: known.map { Self.text($0) } ?? "")
    if types.count < Self.mostAttributes { types[handle] = type }
  }
  mutating func service(
    _ start: UInt16, _ end: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let other = services.first { $0.start != start && $0.start <= end && start <= $0.end }
    report.judge(
      .servicesDisjoint, other == nil, by: party, seen: "\(code(start, 4)) to \(code(end, 4))",
      allowed: other.map { "none of \(code($0.start, 4)) to \(code($0.end, 4))" } ?? "")
    guard services.count < Self.mostAttributes, !services.contains(where: { $0.start == start }) else { return }
    services.append((start, end))
  }
  mutating func declaredService(
    _ handle: UInt16, _ end: UInt16, _ pdu: Span<UInt8>, _ value: Range<Int>, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    guard types[handle] == 0x2800 || types[handle] == 0x2801 else { return }
    report.judge(
      .serviceShape, value.count == 2 || value.count == 16, by: party, seen: "\(value.count) octets",
      allowed: "2 or 16")
    service(handle, end, party, &report)
    declaration(handle, pdu, value, party, &report)
  }
  /// An entry of Read By Type.
  mutating func declared(
    _ type: UInt128, _ handle: UInt16, _ pdu: Span<UInt8>, _ value: Range<Int>, before next: UInt16?,
    _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    switch type {
    case 0x2802:
      let isSound = value.count == 4 || value.count == 6
      let start = isSound ? pdu.little16(value.lowerBound) : 0, end = isSound ? pdu.little16(value.lowerBound + 2) : 0
      report.judge(
        .includeShape, isSound && start != 0 && start <= end, by: party,
        seen: isSound ? "\(code(start, 4)) to \(code(end, 4))" : "\(value.count) octets",
        allowed: "4 or 6 octets that begin with a range")
    case 0x2803:
      report.judge(
        .characteristicShape, value.count == 5 || value.count == 19, by: party, seen: "\(value.count) octets",
        allowed: "5 or 19")
      guard value.count == 5 || value.count == 19 else { return }
      characteristic(handle, pdu, value, before: next, party, &report)
      declaration(handle, pdu, value, party, &report)
    default: read(handle, pdu, value, party, &report)
    }
  }
  private mutating func characteristic(
    _ handle: UInt16, _ pdu: Span<UInt8>, _ value: Range<Int>, before next: UInt16?, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    let place = pdu.little16(value.lowerBound + 1)
    report.judge(
      .valueHandle, place > handle && (next.map { place < $0 || $0 <= handle } ?? true), by: party,
      seen: "the value of \(code(handle, 4)) at \(code(place, 4))",
      allowed: next.map { "between it and \(code($0, 4))" } ?? "behind it")
    attribute(place, pdu.uuid(value.lowerBound + 3..<value.upperBound), party, &report)
    guard characteristics.count < Self.mostAttributes else { return }
    characteristics[place] = Characteristic(declaration: handle, properties: pdu[value.lowerBound])
  }
  private mutating func declaration(
    _ handle: UInt16, _ pdu: Span<UInt8>, _ value: Range<Int>, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let octets = pdu.extracting(value).array
    guard let known = declarations[handle] else {
      if declarations.count < Self.mostAttributes { declarations[handle] = octets }
      return
    }
    report.judge(
      .declarationValue, known == octets, by: party, seen: hexText(octets.span), allowed: hexText(known.span))
  }

  // MARK: Values

  /// The whole value of an attribute, or its beginning where a list has no room.
  mutating func read(
    _ handle: UInt16, _ pdu: Span<UInt8>, _ value: Range<Int>, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    if declarations[handle] != nil { declaration(handle, pdu, value, party, &report) }
    func size(_ rule: CheckRule, _ count: Int, _ report: inout CheckReport) {
      report.judge(rule, value.count == count, by: party, seen: "\(value.count) octets", allowed: "\(count)")
    }
    switch types[handle] {
    case 0x2902:
      size(.configurationShape, 2, &report)
      guard value.count == 2 else { return }
      let new = pdu.little16(value.lowerBound)
      if let known = configurations[handle] {
        report.judge(
          .configurationRead, known == new, by: party, seen: code(new, 4), allowed: "\(code(known, 4)), as written")
      }
      configurations[handle] = new
    case 0x2B2A: size(.databaseHashShape, 16, &report)
    case 0x2A01: size(.profileValueShape, 2, &report)
    case 0x2A04: size(.profileValueShape, 8, &report)
    case 0x2AA6: size(.profileValueShape, 1, &report)
    default: break
    }
  }

  // MARK: Writes

  /// The client asks for a write.
  mutating func writing(
    _ handle: UInt16, _ pdu: Span<UInt8>, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    if pdu.count == 5 { hasConfigured = true }
    if types[handle] == nil || (types[handle] == 0x2B29 && pdu.count > 3 && pdu[3] & 4 != 0) { asksMultiple = handle }
    guard types[handle] == 0x2902 else { return }
    report.judge(
      .configurationWrite, pdu.count == 5 && pdu.little16(3) <= 3, by: party,
      seen: pdu.count == 5 ? code(pdu.little16(3), 4) : "\(pdu.count - 3) octets", allowed: "0x0000 to 0x0003")
  }
  /// The client writes a part of a value.
  mutating func prepares(_ handle: UInt16) {
    hasConfigured = true
    doubt(handle)
  }
  private mutating func doubt(_ handle: UInt16) {
    configurations[handle] = nil
    if uncertain.count < Self.mostAttributes { uncertain.insert(handle) }
  }
  /// A write without a response: whether the server accepts it is not known.
  mutating func written(_ handle: UInt16) {
    if types[handle] == nil || types[handle] == 0x2902 { hasConfigured = true }
    doubt(handle)
  }
  /// The server has confirmed a write of two octets.
  mutating func configured(_ handle: UInt16, _ value: UInt16) {
    guard configurations.count < Self.mostAttributes else { return }
    configurations[handle] = value
    uncertain.remove(handle)
  }
  /// The server has confirmed a write.
  mutating func confirmed(_ handle: UInt16) {
    if asksMultiple == handle { hasMultiple = true }
  }

  // MARK: Notifications

  /// The Client Characteristic Configuration of a characteristic, if all attributes between are known.
  private func configuration(of value: UInt16) -> UInt16? {
    var handle = value
    for _ in 0..<16 {
      guard handle < .max else { return nil }
      handle += 1
      switch types[handle] {
      case 0x2902: return handle
      case nil, 0x2800, 0x2801, 0x2802, 0x2803: return nil
      default: if characteristics[handle] != nil { return nil }
      }
    }
    return nil
  }

  mutating func notified(
    _ handle: UInt16, _ pdu: Span<UInt8>, isIndication: Bool, writing: (handle: UInt16, value: UInt16)?,
    _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let bit: UInt16 = isIndication ? 2 : 1, rule: CheckRule = isIndication ? .indicationEnabled : .notificationEnabled
    let verb = isIndication ? "an indication" : "a notification"
    if let type = types[handle] {
      let isDescriptor = (0x2800...0x2803).contains(type) || (0x2900...0x290F).contains(type)
      report.judge(
        .notifiedHandle, !isDescriptor, by: party, seen: "\(verb) of \(code(handle, 4)), type \(Self.text(type))",
        allowed: "a characteristic's value")
    }
    if let characteristic = characteristics[handle] {
      let property: UInt8 = isIndication ? 0x20 : 0x10
      report.judge(
        isIndication ? .indicateProperty : .notifyProperty, characteristic.properties & property != 0, by: party,
        seen: "\(verb) of \(code(handle, 4)), properties \(code(characteristic.properties))",
        allowed: "properties with \(code(property))")
    }
    let place = configuration(of: handle)
    // The server may act on a write before it confirms it.
    if let writing, writing.value & bit != 0, place == nil || place == writing.handle {
      report.judge(rule, true, by: party, seen: "", allowed: "")
    } else if let place, let state = configurations[place] {
      report.judge(
        rule, state & bit != 0, by: party, seen: "\(verb) of \(code(handle, 4)), configured \(code(state, 4))",
        allowed: "one after the client has enabled it")
    } else if isFromStart, !mayBeBonded, place.map({ !uncertain.contains($0) }) ?? true {
      let holds = place == nil && hasConfigured
      // A bond would show only when the link is encrypted.
      report.suspect(
        rule, holds, by: party, seen: "\(verb) of \(code(handle, 4)), which the client has not configured",
        allowed: "one after the client has enabled it", &suspects)
    }
    if isIndication, types[handle] == 0x2A05 { serviceChanged(pdu, party, &report) }
  }
  private mutating func serviceChanged(
    _ pdu: Span<UInt8>, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let isSound = pdu.count == 7 && pdu.little16(3) <= pdu.little16(5)
    report.judge(
      .serviceChangedShape, isSound, by: party,
      seen: pdu.count == 7 ? "\(code(pdu.little16(3), 4)) to \(code(pdu.little16(5), 4))" : "\(pdu.count - 3) octets",
      allowed: "4 octets, the lesser handle first")
    // The client discovers anew.
    types = [:]
    characteristics = [:]
    services = []
    declarations = [:]
  }
  mutating func notifiedMultiple(_ party: CheckFinding.Party, _ report: inout CheckReport) {
    guard isFromStart, !mayBeBonded else { return }
    report.suspect(
      .multipleNotificationEnabled, hasMultiple, by: party, seen: "Multiple Handle Value Notification",
      allowed: "Handle Value Notification", &suspects)
  }

  private static func text(_ type: UInt128) -> String {
    type <= 0xFFFF ? code(UInt16(type), 4) : code(type, 32)
  }
}
