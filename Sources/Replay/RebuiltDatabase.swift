import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneHCI

/// # RebuiltDatabase
/// **Overview**: the GATT database of the recorded host, as far as the trace shows it: what its answers to discovery,
/// reads and writes reveal, and which of its values it sent.
///
/// **Function**: `init` learns from all links. `build` makes a database with the same handles, and the changes of
/// services that the trace shows: a search that passes over a service's handle says that the service is not there. A
/// value is stored, and the replay sets it before each request to what the recorded answer contains, unless the
/// application refused one with an error of its own: then it decides each time.
struct RebuiltDatabase: Sendable {
  private struct Service {
    var end: UInt16
    var uuid: BluetoothUUID
    var kind: ServiceKind
    var isUUIDKnown = true
  }
  private struct Declaration {
    var properties: UInt8
    var value: UInt16
    var uuid: BluetoothUUID
  }
  /// What clients were allowed to do with an attribute, or were refused.
  private struct Access {
    var read: AttributePermissions.Access?, write: AttributePermissions.Access?
    var isDynamic = false
    /// The shortest value that was refused as too long.
    var tooLong: Int?
  }
  private var services: [UInt16: Service] = [:]
  private var declarations: [UInt16: Declaration] = [:]
  private var includes: [UInt16: UInt16] = [:]
  private var types: [UInt16: BluetoothUUID] = [:]
  private var access: [UInt16: Access] = [:]
  private var values: [UInt16: [UInt8]] = [:]
  /// Values that the host sent: 1 notifications, 2 indications.
  private var sent: [UInt16: UInt8] = [:]
  private var written: Set<UInt16> = []
  /// Handles that a client wrote a configuration to.
  private var configured: Set<UInt16> = []
  /// A search for primary services, in the order of the trace.
  private struct Search {
    var step: Int
    var range: ClosedRange<UInt16>
    /// Only services with this UUID.
    var uuid: BluetoothUUID?
    var found: Set<UInt16>
  }
  private var searches: [Search] = []
  /// Searches times services times indications that are compared, and changes: a trace of an attacker has many of all.
  private static var mostComparisons: Int { 1_000_000 }
  private static var mostChanges: Int { 256 }
  /// Service Changed indications: their steps and ranges. Vol 3, Part G, §7.1.
  private var indications: [(step: Int, value: UInt16, range: ClosedRange<UInt16>)] = []
  /// How many attributes were added without a declaration in the trace.
  private(set) var guesses = 0
  /// The link is encrypted whose packets teach.
  private var isEncrypted = false

  init(_ script: Script) {
    var encrypted: Set<Int> = []
    for (index, step) in script.steps.enumerated() {
      if case .event = step.kind, let link = step.link {
        let octets = script.packets[step.packets[0]].octets
        switch try? HCIEvent(octets.span) {
        case .encryptionChange(let event) where event.status == .success && event.encryptionEnabled != 0:
          encrypted.insert(link)
        case .encryptionChangeV2(let event) where event.status == .success && event.encryptionEnabled != 0:
          encrypted.insert(link)
        case .disconnectionComplete: encrypted.remove(link)
        default: break
        }
      }
      guard step.direction == .fromHost else { continue }
      isEncrypted = step.link.map { encrypted.contains($0) } ?? false
      switch step.stream {
      case .server:
        guard let request = step.partner else { continue }
        learn(from: script.steps[request].payload, script.steps[index].payload)
        learn(searchFrom: request, script.steps[request].payload, script.steps[index].payload)
      case .values:
        let pdu = step.payload
        learn(sent: pdu)
        if pdu.count == 7, pdu.opcode == HandleValueIndication.opcode, pdu.little16(3) > 0,
          pdu.little16(3) <= pdu.little16(5)
        {
          indications.append((index, pdu.little16(1), pdu.little16(3)...pdu.little16(5)))
        }
      case .client, .confirmations, .security, .signaling, .commands, nil: break
      }
    }
  }

  private mutating func learn(sent pdu: [UInt8]) {
    switch pdu.opcode {
    case HandleValueNotification.opcode where pdu.count >= 3: sent[pdu.little16(1), default: 0] |= 1
    case HandleValueIndication.opcode where pdu.count >= 3: sent[pdu.little16(1), default: 0] |= 2
    case MultipleHandleValueNotification.opcode: for (handle, _) in Self.tuples(pdu) { sent[handle, default: 0] |= 1 }
    default: break
    }
  }
  /// The tuples of a Multiple Handle Value Notification. Vol 3, Part F, §3.4.7.4.
  static func tuples(_ pdu: [UInt8]) -> [(handle: UInt16, value: [UInt8])] {
    var result: [(UInt16, [UInt8])] = [], at = 1
    while at + 4 <= pdu.count {
      let end = at + 4 + Int(pdu.little16(at + 2))
      guard end <= pdu.count else { break }
      result.append((pdu.little16(at), Array(pdu[(at + 4)..<end])))
      at = end
    }
    return result
  }

  private mutating func learn(from request: [UInt8], _ response: [UInt8]) {
    let opcode = request.opcode
    if response.opcode == ErrorResponse.opcode { return learn(refusal: response, of: request) }
    guard response.opcode == opcode.response else { return }
    switch opcode {
    case FindInformationRequest.opcode: learn(information: response)
    case FindByTypeValueRequest.opcode where request.little16(5) == 0x2800:
      let uuid = BluetoothUUID(wire: request[min(7, request.count)...])
      for at in stride(from: 1, to: response.count - 3, by: 4) {
        if let uuid { add(service: response.little16(at), response.little16(at + 2), uuid, .primary) }
      }
    case ReadByGroupTypeRequest.opcode: learn(groups: response, request)
    case ReadByTypeRequest.opcode: learn(list: response, BluetoothUUID(wire: request[min(5, request.count)...]))
    default:
      for (handle, value) in Self.values(request, response) {
        // The parts of a long value.
        if opcode == ReadBlobRequest.opcode {
          guard Int(request.little16(3)) == values[handle]?.count, !written.contains(handle) else { continue }
          values[handle]? += value
        }
        learn(value, of: handle)
      }
      if [WriteRequest.opcode, PrepareWriteRequest.opcode].contains(opcode), request.count >= 3 {
        written.insert(request.little16(1))
        access[request.little16(1), default: Access()].write = access[request.little16(1)]?.write ?? .open
        if opcode == WriteRequest.opcode, request.count == 5, request[3] <= 3, request[4] == 0 {
          configured.insert(request.little16(1))
        }
      }
    }
  }
  /// What a search for primary services has passed over: to the end of its range if it found nothing, else to the last
  /// service that it found. Vol 3, Part F, §3.4.3.4, §3.4.4.10.
  private mutating func learn(searchFrom step: Int, _ request: [UInt8], _ response: [UInt8]) {
    guard request.count >= 7, request.little16(1) > 0, request.little16(1) <= request.little16(3) else { return }
    var uuid: BluetoothUUID?, entry = 4, first = 1
    switch request.opcode {
    case ReadByGroupTypeRequest.opcode where request.count == 7 && request.little16(5) == 0x2800:
      entry = response.count > 1 ? max(Int(response[1]), 6) : 6
      first = 2
    case FindByTypeValueRequest.opcode where request.little16(5) == 0x2800:
      uuid = BluetoothUUID(wire: request[7...])
      if uuid == nil { return }
    default: return
    }
    var last = request.little16(3), found: Set<UInt16> = []
    if response.opcode == request.opcode.response {
      for at in stride(from: first, to: response.count - 3, by: entry) {
        found.insert(response.little16(at))
        last = response.little16(at + 2)
      }
    } else if response.count != 5 || response[4] != ATTError.attributeNotFound.rawValue {
      return
    }
    guard last >= request.little16(1) else { return }
    searches.append(Search(step: step, range: request.little16(1)...last, uuid: uuid, found: found))
  }
  private mutating func learn(_ value: [UInt8], of handle: UInt16) {
    if let service = services[handle] {
      if !service.isUUIDKnown, let uuid = BluetoothUUID(wire: value) { services[handle]?.uuid = uuid }
      return
    }
    if values[handle] == nil { values[handle] = value }
    access[handle, default: Access()].read = access[handle]?.read ?? .open
  }
  private mutating func learn(information pdu: [UInt8]) {
    let size = pdu.count > 1 && pdu[1] == 1 ? 4 : 18
    for at in stride(from: 2, to: pdu.count - size + 1, by: size) {
      types[pdu.little16(at)] = BluetoothUUID(wire: pdu[(at + 2)..<(at + size)])
    }
  }
  private mutating func learn(groups pdu: [UInt8], _ request: [UInt8]) {
    guard pdu.count > 1, pdu[1] >= 6, let type = BluetoothUUID(wire: request[min(5, request.count)...]) else { return }
    for at in stride(from: 2, to: pdu.count - Int(pdu[1]) + 1, by: Int(pdu[1])) {
      guard let uuid = BluetoothUUID(wire: pdu[(at + 4)..<(at + Int(pdu[1]))]) else { continue }
      add(service: pdu.little16(at), pdu.little16(at + 2), uuid, type == .secondaryService ? .secondary : .primary)
    }
  }
  private mutating func add(service handle: UInt16, _ end: UInt16, _ uuid: BluetoothUUID, _ kind: ServiceKind) {
    guard handle > 0, handle <= end else { return }
    services[handle] = Service(end: end, uuid: uuid, kind: kind)
  }
  private mutating func learn(list pdu: [UInt8], _ type: BluetoothUUID?) {
    guard pdu.count > 1, pdu[1] >= 2, let type else { return }
    for at in stride(from: 2, to: pdu.count - Int(pdu[1]) + 1, by: Int(pdu[1])) {
      let handle = pdu.little16(at), value = Array(pdu[(at + 2)..<(at + Int(pdu[1]))])
      switch type {
      case .characteristic:
        guard value.count >= 5, let uuid = BluetoothUUID(wire: value[3...]) else { continue }
        declarations[handle] = Declaration(properties: value[0], value: value.little16(1), uuid: uuid)
      case .include where value.count >= 4:
        includes[handle] = value.little16(0)
        guard services[value.little16(0)] == nil, value.little16(0) > 0, value.little16(0) <= value.little16(2) else {
          continue
        }
        // A service that no discovery of primary services shows; its UUID of 128 bits is in its declaration.
        let uuid = BluetoothUUID(wire: value[4...])
        services[value.little16(0)] = Service(
          end: value.little16(2), uuid: uuid ?? .short(0xFFFF), kind: .secondary, isUUIDKnown: uuid != nil)
      default:
        types[handle] = type
        learn(value, of: handle)
      }
    }
  }
  private static let writes = [WriteRequest.opcode, PrepareWriteRequest.opcode, ExecuteWriteRequest.opcode]
  private static let reads = [
    ReadRequest.opcode, ReadBlobRequest.opcode, ReadByTypeRequest.opcode, ReadMultipleRequest.opcode,
    ReadMultipleVariableRequest.opcode,
  ]
  private mutating func learn(refusal pdu: [UInt8], of request: [UInt8]) {
    guard pdu.count >= 5, request.count >= 3 else { return }
    let asked = request.opcode, isWrite = Self.writes.contains(asked)
    var handle = pdu.little16(2)
    // An error that names no handle is about that of a request with one.
    if handle == 0, [ReadRequest.opcode, ReadBlobRequest.opcode, WriteRequest.opcode].contains(asked) {
      handle = request.little16(1)
    }
    guard isWrite || Self.reads.contains(asked), handle > 0 else { return }
    let needed: AttributePermissions.Access?
    switch ATTError(rawValue: pdu[4]) {
    case .readNotPermitted, .writeNotPermitted: needed = AttributePermissions.Access.none
    // An encrypted link is not enough where the key is not authenticated. Vol 3, Part C, §10.3.1.
    case .insufficientAuthentication, .insufficientEncryption: needed = isEncrypted ? .authenticated : .encrypted
    case .encryptionKeySizeTooShort: needed = .open.withKey(of: 16)
    case .insufficientAuthorization: needed = .open.withAuthorization
    case .invalidAttributeValueLength where asked == WriteRequest.opcode:
      access[handle, default: Access()].tooLong = min(access[handle]?.tooLong ?? .max, request.count - 3)
      return
    // Errors of applications and of profiles: Vol 3, Part F, §3.4.1.1, Table 3.4.
    case let error
    where [.unlikelyError, .insufficientResources].contains(error) || 0x80...0x9F ~= error.rawValue
      || error.rawValue >= 0xE0:
      access[handle, default: Access()].isDynamic = true
      needed = nil
    default: return
    }
    guard let needed else { return }
    let known = isWrite ? access[handle]?.write : access[handle]?.read
    if needed == .encrypted, known == .authenticated { return }
    if isWrite {
      access[handle, default: Access()].write = needed
    } else {
      access[handle, default: Access()].read = needed
    }
  }

  /// The values in a response, and the handles of their attributes; of a long value its part alone.
  static func values(_ request: [UInt8], _ response: [UInt8]) -> [(handle: UInt16, value: [UInt8])] {
    guard response.opcode == request.opcode.response else { return [] }
    switch request.opcode {
    case ReadRequest.opcode where request.count == 3, ReadBlobRequest.opcode where request.count == 5:
      return [(request.little16(1), Array(response.dropFirst()))]
    case ReadByTypeRequest.opcode:
      guard response.count > 1, response[1] >= 2 else { return [] }
      let size = Int(response[1])
      return stride(from: 2, to: response.count - size + 1, by: size).map {
        (response.little16($0), Array(response[($0 + 2)..<($0 + size)]))
      }
    case ReadMultipleVariableRequest.opcode:
      var result: [(UInt16, [UInt8])] = [], at = 1
      for place in stride(from: 1, to: request.count - 1, by: 2) where at + 2 <= response.count {
        let end = min(response.count, at + 2 + Int(response.little16(at)))
        result.append((request.little16(place), Array(response[(at + 2)..<end])))
        at = end
      }
      return result
    default: return []
    }
  }
  // MARK: Building

  /// One attribute to be built.
  private enum Row {
    case include(UInt16)
    case declaration(Declaration)
    case descriptor(BluetoothUUID)
  }

  /// Services that come, or go, before a step is played.
  struct Change: Sendable {
    var step: Int
    var inserted = DatabaseBuilder()
    var removed: [UInt16] = []
  }
  /// The changes of a service's presence, and whether it is there at first.
  private func presence(
    of handle: UInt16, _ service: Service, _ indications: [(step: Int, value: UInt16, range: ClosedRange<UInt16>)]
  ) -> (isThere: Bool, changes: [Int]) {
    guard service.kind == .primary, service.isUUIDKnown,
      searches.count * services.count * max(indications.count, 1) <= Self.mostComparisons
    else { return (true, []) }
    var known: (step: Int, isThere: Bool)?, isFirst = true, changes: [Int] = []
    for search in searches where search.range.contains(handle) && (search.uuid ?? service.uuid) == service.uuid {
      let isThere = search.found.contains(handle)
      if let before = known, before.isThere != isThere {
        let told = indications.first {
          $0.step > before.step && $0.step < search.step && $0.range.contains(handle)
        }
        changes.append(told?.step ?? search.step)
      } else if known == nil {
        isFirst = isThere
      }
      known = (search.step, isThere)
    }
    return (isFirst, changes)
  }

  /// A database with everything learnt, as it is at first, and the changes in their order; attributes that contradict
  /// each other are left out. `whole`: with all services that are ever there.
  mutating func build() -> (first: Database, whole: Database, changes: [Change]) {
    let rows = self.rows(), handles = rows.keys.sorted(), starts = services.keys.sorted()
    var homes: [Home] = [], last: UInt16 = 0
    for (place, start) in starts.enumerated() {
      guard start > last, let service = services[start] else { continue }
      let end = place + 1 < starts.count ? min(service.end, starts[place + 1] - 1) : service.end
      homes.append(Home(start: start, end: end, service: service))
      last = end
    }
    homes = withGuesses(homes, for: handles)
    let targets = Set(homes.map(\.start))
    var builder = DatabaseBuilder(), place = 0, first = DatabaseBuilder(), changes: [Int: Change] = [:]
    let values = Set(declarations.values.lazy.filter { $0.uuid == .serviceChanged }.map(\.value))
    let told = indications.filter { values.contains($0.value) }
    for home in homes {
      var inside: [(UInt16, Row)] = []
      while place < handles.count, handles[place] <= home.end {
        if handles[place] > home.start, let row = rows[handles[place]] { inside.append((handles[place], row)) }
        place += 1
      }
      func add(to builder: inout DatabaseBuilder) {
        builder.service(
          home.service.uuid, home.service.kind, at: AttributeHandle(rawValue: home.start),
          end: AttributeHandle(rawValue: home.end)
        ) { fill(&$0, inside, through: home.end, targets) }
      }
      add(to: &builder)
      let presence = presence(of: home.start, home.service, told)
      var isThere = presence.isThere
      if isThere { add(to: &first) }
      for step in presence.changes {
        if isThere {
          changes[step, default: Change(step: step)].removed.append(home.start)
        } else {
          add(to: &changes[step, default: Change(step: step)].inserted)
        }
        isThere.toggle()
      }
    }
    do throws(DatabaseError) {
      let whole = try builder.build()
      if changes.isEmpty || changes.count > Self.mostChanges { return (whole, whole, []) }
      do throws(DatabaseError) {
        return (try first.build(), whole, changes.values.sorted { $0.step < $1.step })
      } catch { return (whole, whole, []) }
    } catch {
      guesses += 1
      return (Database(), Database(), [])
    }
  }

  /// A service and its handles.
  private struct Home {
    var start: UInt16, end: UInt16
    var service: Service
  }
  /// Adds a service of our own around what the trace does not assign to one.
  private mutating func withGuesses(_ homes: [Home], for handles: [UInt16]) -> [Home] {
    var result: [Home] = [], next = 0, last: UInt16 = 0
    for handle in handles where handle > 1 && handle > last {
      while next < homes.count, homes[next].start <= handle {
        last = homes[next].end
        result.append(homes[next])
        next += 1
      }
      guard handle > last, last + 1 < handle else { continue }
      let end = next < homes.count ? homes[next].start - 1 : 0xFFFF
      let service = Service(end: end, uuid: .short(0xFFFF), kind: .primary)
      result.append(Home(start: last + 1, end: end, service: service))
      guesses += 1
      last = end
    }
    return result + homes[next...]
  }

  private mutating func rows() -> [UInt16: Row] {
    var rows: [UInt16: Row] = [:]
    for (handle, target) in includes { rows[handle] = .include(target) }
    for (handle, declaration) in declarations where declaration.value > handle {
      rows[handle] = .declaration(declaration)
    }
    // Values that the trace shows without a declaration.
    let known = Set(declarations.values.map(\.value))
    let bare = Set(values.keys).union(sent.keys).union(access.keys).union(types.keys).union(configured)
    for handle in bare.sorted() where rows[handle] == nil && services[handle] == nil && !known.contains(handle) {
      // 0x0001 has no room for a service before it.
      guard handle > 1 else { continue }
      if configured.contains(handle) || types[handle] != nil {
        rows[handle] = .descriptor(types[handle] ?? .clientCharacteristicConfiguration)
        if types[handle] == nil { guesses += 1 }
      } else if access[handle] != nil || sent[handle] != nil {
        guesses += 1
        rows[handle] = .descriptor(.short(0xFFFF))
        let before = handle - 1
        if before > 1, rows[before] == nil, services[before] == nil, !known.contains(before) {
          let properties: UInt8 = 0x0A | ((sent[handle] ?? 0) & 1) << 4 | ((sent[handle] ?? 0) & 2) << 4
          rows[before] = .declaration(Declaration(properties: properties, value: handle, uuid: .short(0xFFFF)))
          rows[handle] = nil
          // Its configuration, if the trace shows none behind it.
          let after = handle &+ 1
          if sent[handle] != nil, after > handle, !configured.contains(after), !configured.contains(handle &+ 2),
            !configured.contains(handle &+ 3),
            !bare.contains(after), rows[after] == nil, services[after] == nil
          {
            rows[after] = .descriptor(.clientCharacteristicConfiguration)
          }
        }
      }
    }
    return rows
  }

  private func fill(
    _ service: inout ServiceBuilder, _ rows: [(UInt16, Row)], through end: UInt16, _ targets: Set<UInt16>
  ) {
    // The last handle that the service has: they must ascend.
    var last = service.handle.rawValue, properties: UInt8 = 0
    for (handle, row) in rows where handle > last {
      let at = AttributeHandle(rawValue: handle)
      switch row {
      case .include(let target):
        guard targets.contains(target) else { continue }
        service.include(AttributeHandle(rawValue: target), at: at)
        last = handle
      case .declaration(let declaration):
        guard declaration.value <= end else { continue }
        properties = declaration.properties
        service.characteristic(
          declaration.uuid, CharacteristicProperties(rawValue: properties),
          value: value(declaration.value, declaration.uuid), permissions: permissions(declaration.value, properties),
          configured: false, at: at, valueAt: AttributeHandle(rawValue: declaration.value))
        last = declaration.value
      case .descriptor(let uuid):
        if uuid == .clientCharacteristicConfiguration, properties & 0x30 != 0 {
          service.configuration(access[handle]?.write, at: at)
        } else {
          service.descriptor(
            uuid, value: value(handle, uuid),
            permissions: permissions(handle, access[handle]?.write == nil ? 0x02 : 0x0A),
            at: at)
        }
        last = handle
      }
    }
  }
  private func value(_ handle: UInt16, _ uuid: BluetoothUUID) -> AttributeValue {
    if uuid == .clientSupportedFeatures { return .clientSupportedFeatures }
    if access[handle]?.isDynamic == true { return .dynamic }
    let longest = min(AttributeValue.longest, max(0, (access[handle]?.tooLong ?? 513) - 1))
    return .stored(Array((values[handle] ?? []).prefix(longest)), upTo: longest)
  }
  /// What the trace shows, else what the properties announce. Vol 3, Part G, §3.3.1.1.
  private func permissions(_ handle: UInt16, _ properties: UInt8) -> AttributePermissions {
    AttributePermissions(
      read: access[handle]?.read ?? (properties & 0x02 != 0 ? .open : AttributePermissions.Access.none),
      write: access[handle]?.write ?? (properties & 0x0C != 0 ? .open : AttributePermissions.Access.none))
  }
}
