import BindruneATT
import BindruneGATT
import BindruneWire

/// # CheckDatabase
/// **Overview**: the attributes that a server shows to its client in one connection, and what the client has configured
/// there, for ``Checker``. Vol 3, Part G.
struct CheckDatabase {
  /// Attributes that are followed.
  private static var mostAttributes: Int { 4_096 }

  struct Characteristic {
    var declaration: UInt16
    var properties: CharacteristicProperties
    /// Descriptors that its properties demand and nothing has shown missing so far. Vol 3, Part G, §3.3.1.1.
    var undecided: [BluetoothUUID]
    /// The last of its attributes that is known, before which all are.
    var last: UInt16
  }
  var isFromStart = false
  /// The types of attributes.
  private var types: [UInt16: BluetoothUUID] = [:]
  /// By the handle of the value.
  private var characteristics: [UInt16: Characteristic] = [:]
  /// First and last handle.
  private var services: [(start: UInt16, end: UInt16)] = []
  /// The handle of each primary service that a server has once.
  private var singleServices: [BluetoothUUID: UInt16] = [:]
  /// Ranges of handles in which all attributes are known, in their order.
  private var exploredRanges: [ClosedRange<UInt16>] = []
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

  func type(of handle: UInt16) -> BluetoothUUID? { types[handle] }
  /// What a request is about: an attribute, or a type of attributes.
  func subject(of request: CheckClient.Request) -> BluetoothUUID? {
    if !request.isOfRange { return types[request.start] }
    return request.opcode == FindInformationRequest.opcode ? nil : request.type
  }

  // MARK: Discovery

  mutating func attribute(
    _ handle: UInt16, _ type: BluetoothUUID, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let known = types[handle]
    report.judge(
      .databaseStable, known == nil || known == type, by: party,
      seen: "\(code(handle, 4)) has the type \(type.text)", allowed: known?.text ?? "")
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
    _ handle: UInt16, _ end: UInt16, _ value: Span<UInt8>, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    guard types[handle]?.isService == true else { return }
    report.judge(
      .serviceShape, value.count == 2 || value.count == 16, by: party, seen: "\(value.count) octets",
      allowed: "2 or 16")
    service(handle, end, party, &report)
    declaration(handle, value, party, &report)
    if types[handle] == .primaryService { once(value.uuid(0..<value.count), handle, party, &report) }
  }
  /// A server has one Generic Access service and one Generic Attribute service. Vol 3, Part C, §12; Part G, §7.
  mutating func once(
    _ service: BluetoothUUID, _ handle: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    guard service == .genericAccess || service == .genericAttribute else { return }
    let first = singleServices[service] ?? handle
    report.judge(
      .serviceOnce, first == handle, by: party, seen: "\(service.text) at \(code(handle, 4)) also",
      allowed: "the one at \(code(first, 4))")
    singleServices[service] = first
  }
  /// An entry of Read By Type.
  mutating func declared(
    _ type: BluetoothUUID, _ handle: UInt16, _ value: Span<UInt8>, before next: UInt16?, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    switch type {
    case .include:
      // The service's UUID is there only if it has 16 bits.
      let include = [4, 6].contains(value.count) ? try? WireDecoder.decode(IncludeDeclaration.self, value) : nil
      let start = include?.includedServiceAttributeHandle.rawValue ?? 0, end = include?.endGroupHandle.rawValue ?? 0
      report.judge(
        .includeShape, include != nil && start != 0 && start <= end, by: party,
        seen: include != nil ? "\(code(start, 4)) to \(code(end, 4))" : "\(value.count) octets",
        allowed: "4 or 6 octets that begin with a range")
    case .characteristic:
      let characteristic = try? WireDecoder.decode(CharacteristicDeclaration.self, value)
      report.judge(
        .characteristicShape, characteristic != nil, by: party, seen: "\(value.count) octets", allowed: "5 or 19")
      guard let characteristic else { return }
      self.characteristic(handle, characteristic, before: next, party, &report)
      declaration(handle, value, party, &report)
    default: read(handle, value, party, &report)
    }
  }
  private mutating func characteristic(
    _ handle: UInt16, _ characteristic: CharacteristicDeclaration, before next: UInt16?, _ party: CheckFinding.Party,
    _ report: inout CheckReport
  ) {
    let place = characteristic.characteristicValueHandle.rawValue
    report.judge(
      .valueHandle, place > handle && (next.map { place < $0 || $0 <= handle } ?? true), by: party,
      seen: "the value of \(code(handle, 4)) at \(code(place, 4))",
      allowed: next.map { "between it and \(code($0, 4))" } ?? "behind it")
    attribute(place, characteristic.characteristicUUID, party, &report)
    guard characteristics.count < Self.mostAttributes else { return }
    guard characteristics[place]?.declaration != handle else { return }
    characteristics[place] = Characteristic(
      declaration: handle, properties: characteristic.characteristicProperties,
      undecided: Self.descriptors(characteristic.characteristicProperties), last: place)
    descriptors(of: place, party, &report)
  }
  private mutating func declaration(
    _ handle: UInt16, _ value: Span<UInt8>, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let octets = value.array
    guard let known = declarations[handle] else {
      if declarations.count < Self.mostAttributes { declarations[handle] = octets }
      return
    }
    report.judge(
      .declarationValue, known == octets, by: party, seen: hexText(octets.span), allowed: hexText(known.span))
  }

  // MARK: Descriptors

  /// The client knows all attributes from `start` to `end`.
  mutating func explored(
    _ start: UInt16, _ end: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    guard start <= end, types.count < Self.mostAttributes, exploredRanges.count < Self.mostAttributes else { return }
    var range = start...end
    exploredRanges.removeAll {
      guard Int($0.lowerBound) <= Int(range.upperBound) + 1, Int(range.lowerBound) <= Int($0.upperBound) + 1 else {
        return false
      }
      range = min($0.lowerBound, range.lowerBound)...max($0.upperBound, range.upperBound)
      return true
    }
    exploredRanges.append(range)
    // The others are as they were.
    let places = characteristics.keys.filter { range.contains($0) || ($0 < .max && range.contains($0 + 1)) }
    for place in places.sorted() { descriptors(of: place, party, &report) }
  }
  /// The server has no attribute that `asked` asks for in its range.
  mutating func notFound(_ asked: CheckClient.Request, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    if asked.opcode == FindInformationRequest.opcode { explored(asked.start, asked.end, party, &report) }
  }
  private static func descriptors(_ properties: CharacteristicProperties) -> [BluetoothUUID] {
    var types: [BluetoothUUID] = []
    if !properties.isDisjoint(with: [.notify, .indicate]) { types.append(.clientCharacteristicConfiguration) }
    if properties.contains(.broadcast) { types.append(.serverCharacteristicConfiguration) }
    if properties.contains(.extendedProperties) { types.append(.characteristicExtendedProperties) }
    return types
  }
  /// Judges which of the descriptors that its properties demand the characteristic has, as far as the attributes behind
  /// its value are known. It ends with its service, or where the next declaration is. Vol 3, Part G, §3.3.
  private mutating func descriptors(
    of place: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    guard var characteristic = characteristics[place], !characteristic.undecided.isEmpty else { return }
    let limit = services.first { $0.start <= place && place <= $0.end }?.end ?? .max
    var isEnded = false, known: ClosedRange<UInt16>?
    while characteristic.last < limit {
      let next = characteristic.last + 1
      if let type = types[next] {
        isEnded = type.isService || type == .include || type == .characteristic
        if isEnded { break }
        if let index = characteristic.undecided.firstIndex(of: type) {
          report.judge(.descriptorExists, true, by: party, seen: "", allowed: "")
          characteristic.undecided.remove(at: index)
        }
      } else {
        if known?.contains(next) != true { known = exploredRanges.first { $0.contains(next) } }
        if known == nil { break }
      }
      characteristic.last = next
    }
    if isEnded || characteristic.last >= limit {
      for type in characteristic.undecided {
        report.judge(
          .descriptorExists, false, by: party,
          seen: "no descriptor \(type.text) of the value at \(code(place, 4)), whose properties are "
            + code(characteristic.properties.rawValue),
          allowed: "the descriptor that the properties demand")
      }
      characteristic.undecided = []
    }
    characteristics[place] = characteristic
  }

  // MARK: Values

  /// The server has let the client read the attribute.
  mutating func reads(_ handle: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    guard let properties = characteristics[handle]?.properties else { return }
    report.judge(
      .readProperty, properties.contains(.read), by: party,
      seen: "the value at \(code(handle, 4)), whose properties are \(code(properties.rawValue))",
      allowed: "an error: properties without \(code(CharacteristicProperties.read.rawValue))")
  }
  /// The server has let the client write the attribute.
  mutating func writes(_ handle: UInt16, _ party: CheckFinding.Party, _ report: inout CheckReport) {
    guard let properties = characteristics[handle]?.properties else { return }
    report.judge(
      .writeProperty, properties.contains(.write), by: party,
      seen: "a write of the value at \(code(handle, 4)), whose properties are \(code(properties.rawValue))",
      allowed: "an error: properties without \(code(CharacteristicProperties.write.rawValue))")
  }

  /// The whole value of an attribute, or its beginning where a list has no room.
  mutating func read(
    _ handle: UInt16, _ value: Span<UInt8>, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    if declarations[handle] != nil { declaration(handle, value, party, &report) }
    func size(_ rule: CheckRule, _ count: Int, _ report: inout CheckReport) {
      report.judge(rule, value.count == count, by: party, seen: "\(value.count) octets", allowed: "\(count)")
    }
    switch types[handle] {
    case .clientCharacteristicConfiguration:
      size(.configurationShape, 2, &report)
      guard value.count == 2 else { return }
      let new = value.little16(0)
      if let known = configurations[handle] {
        report.judge(
          .configurationRead, known == new, by: party, seen: code(new, 4), allowed: "\(code(known, 4)), as written")
      }
      configurations[handle] = new
    case .databaseHash: size(.databaseHashShape, 16, &report)
    case .appearance: size(.profileValueShape, 2, &report)
    case .peripheralPreferredConnectionParameters: size(.profileValueShape, 8, &report)
    case .centralAddressResolution: size(.profileValueShape, 1, &report)
    default: break
    }
  }

  // MARK: Writes

  /// The client asks for a write.
  mutating func writing(
    _ handle: UInt16, _ value: Span<UInt8>, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    if value.count == 2 { hasConfigured = true }
    let type = types[handle]
    let features = ClientSupportedFeatures(rawValue: value.isEmpty ? 0 : value[0])
    if type == nil || (type == .clientSupportedFeatures && features.contains(.multipleHandleValueNotifications)) {
      asksMultiple = handle
    }
    guard type == .clientCharacteristicConfiguration else { return }
    let configuration = value.count == 2 ? ClientCharacteristicConfiguration(rawValue: value.little16(0)) : nil
    report.judge(
      .configurationWrite, configuration?.isSubset(of: [.notification, .indication]) == true, by: party,
      seen: configuration.map { code($0.rawValue, 4) } ?? "\(value.count) octets", allowed: "0x0000 to 0x0003")
  }
  /// The client writes a part of a value.
  mutating func prepares(_ handle: UInt16) {
    hasConfigured = true
    doubt(handle)
  }
  /// Whether the server answers this request, and how, is not known.
  mutating func doubt(_ request: CheckClient.Request) {
    if request.opcode == WriteRequest.opcode { written(request.start) }
  }
  private mutating func doubt(_ handle: UInt16) {
    configurations[handle] = nil
    if uncertain.count < Self.mostAttributes { uncertain.insert(handle) }
  }
  /// A write without a response: whether the server accepts it is not known.
  mutating func written(_ handle: UInt16) {
    if types[handle] == nil || types[handle] == .clientCharacteristicConfiguration { hasConfigured = true }
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
      case .clientCharacteristicConfiguration: return handle
      case nil, .primaryService, .secondaryService, .include, .characteristic: return nil
      default: if characteristics[handle] != nil { return nil }
      }
    }
    return nil
  }

  /// `writing`: what the client writes of two octets and the server has not confirmed, a write a bearer.
  mutating func notified(
    _ handle: UInt16, _ value: Span<UInt8>, isIndication: Bool, writing: [(handle: UInt16, value: UInt16)],
    _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let bit: ClientCharacteristicConfiguration = isIndication ? .indication : .notification
    let rule: CheckRule = isIndication ? .indicationEnabled : .notificationEnabled
    let verb = isIndication ? "an indication" : "a notification"
    if let type = types[handle] {
      report.judge(
        .notifiedHandle, !Self.isDescriptor(type), by: party, seen: "\(verb) of \(code(handle, 4)), type \(type.text)",
        allowed: "a characteristic's value")
    }
    if let characteristic = characteristics[handle] {
      let property: CharacteristicProperties = isIndication ? .indicate : .notify
      report.judge(
        isIndication ? .indicateProperty : .notifyProperty, characteristic.properties.contains(property), by: party,
        seen: "\(verb) of \(code(handle, 4)), properties \(code(characteristic.properties.rawValue))",
        allowed: "properties with \(code(property.rawValue))")
    }
    let place = configuration(of: handle)
    // The server may act on a write before it confirms it.
    if writing.contains(where: { $0.value & bit.rawValue != 0 && (place == nil || place == $0.handle) }) {
      report.judge(rule, true, by: party, seen: "", allowed: "")
    } else if let place, let state = configurations[place] {
      report.judge(
        rule, state & bit.rawValue != 0, by: party, seen: "\(verb) of \(code(handle, 4)), configured \(code(state, 4))",
        allowed: "one after the client has enabled it")
    } else if isFromStart, !mayBeBonded, place.map({ !uncertain.contains($0) }) ?? true {
      let holds = place == nil && hasConfigured
      report.attribute = types[handle]
      defer { report.attribute = nil }
      // A bond would show only when the link is encrypted.
      report.suspect(
        rule, holds, by: party, seen: "\(verb) of \(code(handle, 4)), which the client has not configured",
        allowed: "one after the client has enabled it", &suspects)
    }
    if isIndication, types[handle] == .serviceChanged { serviceChanged(value, party, &report) }
  }
  /// A declaration or a descriptor. Assigned Numbers, §3.6 and §3.7.
  private static func isDescriptor(_ type: BluetoothUUID) -> Bool {
    guard let number = type.shortValue else { return false }
    return (0x2800...0x2803).contains(number) || (0x2900...0x290F).contains(number)
  }
  private mutating func serviceChanged(
    _ value: Span<UInt8>, _ party: CheckFinding.Party, _ report: inout CheckReport
  ) {
    let change = try? WireDecoder.decode(ServiceChanged.self, value)
    let start = change?.startOfAffectedAttributeHandleRange.rawValue ?? 0
    let end = change?.endOfAffectedAttributeHandleRange.rawValue ?? 0
    report.judge(
      .serviceChangedShape, change != nil && start <= end, by: party,
      seen: change != nil ? "\(code(start, 4)) to \(code(end, 4))" : "\(value.count) octets",
      allowed: "4 octets, the lesser handle first")
    // The client discovers anew.
    types = [:]
    characteristics = [:]
    services = []
    declarations = [:]
    singleServices = [:]
    exploredRanges = []
  }
  mutating func notifiedMultiple(_ party: CheckFinding.Party, _ report: inout CheckReport) {
    guard isFromStart, !mayBeBonded else { return }
    report.suspect(
      .multipleNotificationEnabled, hasMultiple, by: party, seen: "Multiple Handle Value Notification",
      allowed: "Handle Value Notification", &suspects)
  }
}
