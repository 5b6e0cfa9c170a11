import BindruneATT
import BindruneWire
import BindruneToolbox

// From services to a database: the checks, the indexes, the Database Hash, and changes while clients are connected.

extension DatabaseBuilder {
  /// The database. Services may have been added in any order of their explicit handles.
  public func build() throws(DatabaseError) -> Database {
    var database = Database()
    try database.insert(self)
    return database
  }
}

// MARK: - Changes

extension Database {
  /// Adds services, in gaps or after the others. All or nothing. `Server.insert` also informs the clients.
  public mutating func insert(_ builder: DatabaseBuilder) throws(DatabaseError) {
    var changed = self
    let existing = attributes.filter(isService).map { HandleRange($0.handle, $0.groupEnd) }
    var previous = 0
    for service in builder.services.sorted(by: { $0.attributes[0].raw < $1.attributes[0].raw }) {
      try service.check(after: previous, beside: existing)
      previous = service.last
      for (attribute, end) in zip(service.attributes, service.groupEnds) {
        try changed.add(attribute, groupEnd: end, value: try bytes(of: attribute, in: service, builder))
      }
      changed.note(service)
    }
    changed.attributes.sort { $0.handle.rawValue < $1.handle.rawValue }
    changed.lastReserved = max(changed.lastReserved, previous)
    changed.lastReserved = max(changed.lastReserved, builder.next - 1)
    changed.index()
    self = changed
  }

  /// Removes the service declared at `handle`. Its handles are not assigned again, unless `at:` requests them. Throws
  /// `.includedBy` if another service includes it; with `andIncludes` those Include declarations are removed too.
  /// `Server.remove` also informs the clients.
  public mutating func remove(service handle: AttributeHandle, andIncludes: Bool = false) throws(DatabaseError) {
    guard let position = position(of: handle), isService(attributes[position]) else {
      throw .noSuchService(handle)
    }
    let range = HandleRange(handle, attributes[position].groupEnd)
    if special.service == range || attributes.contains(where: { $0.kind == .features && range.contains($0.handle) }) {
      throw .permanentService(handle)
    }
    let includes = includes(of: range)
    if !andIncludes, let include = includes.first { throw .includedBy(include) }
    var left = Database()
    left.lastReserved = lastReserved
    left.special = special
    left.disabled = disabled.filter { !range.contains($0.key) }
    left.configurations = configurations.map { range.contains($0.descriptor) ? Configuration() : $0 }
    for var attribute in attributes where !range.contains(attribute.handle) && !includes.contains(attribute.handle) {
      let value = attribute.kind == .stored ? values[attribute.range] : []
      attribute.type = UInt16(truncatingIfNeeded: left.intern(uuids[Int(attribute.type)].uuid))
      attribute.start = UInt32(left.values.count)
      attribute.room = UInt16(value.count)
      left.values += value
      left.attributes.append(attribute)
    }
    left.index()
    self = left
  }

  /// Disables or enables the contents of the service declared at `handle`. While they are disabled, clients discover
  /// the service as before, and every read or write of a value or descriptor is answered with Unlikely Error (0x0E).
  /// The Database Hash does not change, for it contains no permissions: Vol 3, Part G, §7.3.1. Has no effect where no
  /// service is declared.
  public mutating func setEnabled(_ isEnabled: Bool, service handle: AttributeHandle) {
    guard let first = position(of: handle), isService(attributes[first]) else { return }
    let end = attributes[first].groupEnd
    for position in first..<attributes.count where attributes[position].handle.rawValue <= end.rawValue {
      let attribute = attributes[position]
      if isEnabled {
        guard let permissions = disabled.removeValue(forKey: attribute.handle) else { continue }
        attributes[position].permissions = permissions
      } else if !isDeclaration(attribute), disabled[attribute.handle] == nil {
        disabled[attribute.handle] = attribute.permissions
        attributes[position].permissions = AttributePermissions(read: .disabled, write: .disabled)
      }
    }
  }
  private func isDeclaration(_ attribute: Attribute) -> Bool {
    [.primaryService, .secondaryService, .include, .characteristic].contains(uuids[Int(attribute.type)].uuid)
  }

  /// The first of `count` consecutive handles that no service has.
  func gap(of count: Int) -> Int? {
    var first = 1
    for attribute in attributes where isService(attribute) {
      if Int(attribute.handle.rawValue) - first >= count { return first }
      first = Int(attribute.groupEnd.rawValue) + 1
    }
    return first + count - 1 <= 0xFFFF ? first : nil
  }
  /// The Include declarations in other services that name the service of this range.
  private func includes(of service: HandleRange) -> [AttributeHandle] {
    attributes.filter { attribute in
      guard attribute.kind == .stored, attribute.count >= 2, !service.contains(attribute.handle),
        uuids[Int(attribute.type)].uuid == .include
      else { return false }
      let start = Int(attribute.start)
      return UInt16(values[start]) | UInt16(values[start + 1]) << 8 == service.first.rawValue
    }.map { $0.handle }
  }
  /// The attributes affected by removing the service at this range: its own, and all of each service that includes it.
  func range(concernedBy service: HandleRange) -> HandleRange {
    includes(of: service).reduce(service) { range, include in
      let owner = attributes.last { isService($0) && $0.handle.rawValue < include.rawValue }
      return owner.map { range.union(HandleRange($0.handle, $0.groupEnd)) } ?? range
    }
  }

  /// The initial octets of `attribute`.
  private func bytes(
    of attribute: PendingAttribute, in service: PendingService, _ builder: DatabaseBuilder
  ) throws(DatabaseError) -> [UInt8] {
    switch attribute.content {
    case .bytes(let bytes): return bytes
    case .dynamic, .configuration, .clientSupportedFeatures: return []
    case .databaseHash: return Array(repeating: 0, count: 16)
    case .characteristic(let properties, let uuid):
      var declaration = CharacteristicDeclaration()
      declaration.characteristicProperties = properties
      if let at = service.attributes.firstIndex(where: { $0.raw == attribute.raw }), at + 1 < service.attributes.count {
        declaration.characteristicValueHandle = service.attributes[at + 1].handle
      }
      declaration.characteristicUUID = uuid.shortest
      return declaration.bytes
    case .include(let handle):
      let end: Int, uuid: [UInt8]
      if let included = builder.services.first(where: { $0.attributes[0].handle == handle }) {
        end = included.last
        uuid = included.uuid.wireForm
      } else if let position = position(of: handle), isService(attributes[position]) {
        end = Int(attributes[position].groupEnd.rawValue)
        uuid = Array(values[attributes[position].range])
      } else {
        throw .includeOfNothing(attribute.handle)
      }
      let declaration = IncludeDeclaration.with {
        $0.includedServiceAttributeHandle = handle
        $0.endGroupHandle = AttributeHandle(rawValue: UInt16(truncatingIfNeeded: end))
      }
      // Vol 3, Part G, §3.2: the UUID is present only if it has 16 bits.
      return declaration.bytes + (uuid.count == 2 ? uuid : [])
    }
  }

  /// Records the handles of the values that the server itself maintains.
  private mutating func note(_ service: PendingService) {
    for (index, attribute) in service.attributes.enumerated() {
      if case .databaseHash = attribute.content { special.databaseHash = attribute.handle }
      if service.uuid == .genericAttribute, attribute.type == .serviceChanged, index > 0,
        case .characteristic(let properties, _) = service.attributes[index - 1].content, properties.contains(.indicate)
      {
        special.serviceChanged = attribute.handle
        special.service = HandleRange(raw: service.attributes[0].raw, service.last)
      }
    }
  }
}

extension PendingService {
  /// Checks that the handles ascend, are within bounds, and belong to no other service.
  func check(after previous: Int, beside existing: [HandleRange]) throws(DatabaseError) {
    var previous = previous
    for attribute in attributes {
      guard attribute.raw > 0, attribute.raw <= 0xFFFF else { throw .handleOutOfRange(attribute.raw) }
      guard attribute.raw > previous else { throw .handleNotAscending(attribute.handle) }
      previous = attribute.raw
    }
    if let end, Int(end.rawValue) < previous { throw .groupEndTooLow(end) }
    guard last <= 0xFFFF else { throw .handleOutOfRange(last) }
    for other in existing where attributes[0].raw <= Int(other.last.rawValue) && Int(other.first.rawValue) <= last {
      throw .handleNotAscending(attributes[0].handle)
    }
  }

  /// For each attribute the end of the group that it opens, or its own handle. A characteristic's group ends before the
  /// next characteristic, the last one's with the service: Vol 3, Part G, §2.5.3.
  var groupEnds: [AttributeHandle] {
    var ends = attributes.map { $0.handle }
    var end = last
    for i in attributes.indices.reversed() where attributes[i].type.shortest == .characteristic {
      ends[i] = AttributeHandle(rawValue: UInt16(truncatingIfNeeded: end))
      end = attributes[i].raw - 1
    }
    ends[0] = AttributeHandle(rawValue: UInt16(truncatingIfNeeded: last))
    return ends
  }
}

// MARK: - Tables

extension Database {
  mutating func add(_ pending: PendingAttribute, groupEnd: AttributeHandle, value: [UInt8]) throws(DatabaseError) {
    let maximum = pending.isFixed ? value.count : min(pending.maximum, AttributeValue.longest)
    guard value.count <= min(maximum, AttributeValue.longest) else { throw .valueTooLong(pending.handle) }
    var attribute = Attribute(
      handle: pending.handle, groupEnd: groupEnd, type: UInt16(truncatingIfNeeded: intern(pending.type)), kind: .stored,
      isFixed: pending.isFixed, permissions: pending.permissions, start: UInt32(values.count),
      count: UInt16(value.count), room: UInt16(value.count), maximum: UInt16(maximum))
    switch pending.content {
    case .dynamic: attribute.kind = .dynamic
    case .clientSupportedFeatures:
      attribute.kind = .features
      attribute.count = 1
      attribute.maximum = UInt16(ClientSupportedFeatures.longest)
    case .configuration(let valueHandle, let supported):
      attribute.kind = .configuration
      attribute.count = 2
      attribute.maximum = 2
      let free = configurations.firstIndex(of: Configuration()) ?? configurations.count
      if free == configurations.count { configurations.append(Configuration()) }
      attribute.slot = ConfigurationSlot(index: free)
      var isUnprotected = pending.permissions.write == .open
      if let owner = attributes.lastIndex(where: { $0.handle == valueHandle }) {
        attributes[owner].slot = attribute.slot
        let read = attributes[owner].permissions.read
        if read.isPermitted, read != .open { isUnprotected = false }
      }
      configurations[free] = Configuration(
        descriptor: pending.handle, value: valueHandle, supported: supported, isUnprotected: isUnprotected)
    case .bytes, .databaseHash, .include, .characteristic: break
    }
    values += value
    attributes.append(attribute)
  }
  mutating func intern(_ uuid: BluetoothUUID) -> Int {
    if 2 * uuids.count >= hashed.count { rehash(to: max(16, 4 * uuids.count)) }
    if let index = index(of: uuid) { return index }
    uuids.append(UUIDEntry(uuid))
    enter(uuids.count - 1)
    return uuids.count - 1
  }
  private mutating func rehash(to count: Int) {
    var size = 16
    while size < count { size *= 2 }
    hashed = Array(repeating: 0, count: size)
    for index in uuids.indices { enter(index) }
  }
  private mutating func enter(_ index: Int) {
    var probe = Self.hash(uuids[index].low, uuids[index].high) & (hashed.count - 1)
    while hashed[probe] != 0 { probe = (probe + 1) & (hashed.count - 1) }
    hashed[probe] = UInt32(index + 1)
  }

  /// Builds the indexes from `attributes`.
  mutating func index() {
    positions = []
    positions.reserveCapacity(Int(lastHandle.rawValue) + 1)
    for (position, attribute) in attributes.enumerated() {
      while positions.count <= Int(attribute.handle.rawValue) { positions.append(UInt16(position)) }
    }
    var types: [[UInt16]] = Array(repeating: [], count: uuids.count)
    var services: [[UInt16]] = types
    for (position, attribute) in attributes.enumerated() {
      types[Int(attribute.type)].append(UInt16(position))
      guard isService(attribute), let uuid = BluetoothUUID(values.span.extracting(attribute.range)) else { continue }
      let index = intern(uuid)
      while services.count < uuids.count { services.append([]) }
      services[index].append(UInt16(position))
    }
    while types.count < uuids.count { types.append([]) }
    grouped = []
    for index in uuids.indices {
      uuids[index].types = grouped.count..<(grouped.count + types[index].count)
      grouped += types[index]
      uuids[index].services = grouped.count..<(grouped.count + services[index].count)
      grouped += services[index]
    }
    hash = calculatedHash()
    if let position = position(of: special.databaseHash) {
      // A number, least significant octet first: Vol 3, Part G, §7.3.
      let octets = (0..<16).map { UInt8(truncatingIfNeeded: hash >> (8 * $0)) }
      values.overwrite(at: Int(attributes[position].start), with: octets.span)
    }
  }

  /// The Database Hash: AES-CMAC with key 0 over handle, type and value of declarations, and over handle and type of
  /// the descriptors that GATT defines. Vol 3, Part G, §7.3.1.
  func calculatedHash() -> UInt128 {
    var code = AESCMAC(key: 0)
    for attribute in attributes {
      guard case .short(let type) = uuids[Int(attribute.type)].uuid else { continue }
      let hasValue = 0x2800...0x2803 ~= type || type == 0x2900
      guard hasValue || 0x2901...0x2905 ~= type else { continue }
      let handle = attribute.handle.rawValue
      let head = [UInt8(handle & 0xFF), UInt8(handle >> 8), UInt8(type & 0xFF), UInt8(type >> 8)]
      code.update(head.span)
      if hasValue { code.update(values.span.extracting(attribute.range)) }
    }
    return code.finalize()
  }
  func isService(_ attribute: Attribute) -> Bool {
    let type = uuids[Int(attribute.type)].uuid
    return attribute.kind == .stored && (type == .primaryService || type == .secondaryService)
  }
}

extension WireRecord {
  /// The octets of a declaration that refers to no others.
  var bytes: [UInt8] {
    do throws(WireError) { return try encoded(from: Span<UInt8>()) } catch { return [] }
  }
}

extension BluetoothUUID {
  /// Two or sixteen octets, least significant first.
  var wireForm: [UInt8] {
    let declaration = ServiceDeclaration.with { $0.serviceUUID = shortest }
    return declaration.bytes
  }
}
