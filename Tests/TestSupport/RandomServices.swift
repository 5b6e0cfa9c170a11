import BindruneATT
import BindruneWire
import BindruneGATT

/// Random services and requests: built once for a `DatabaseBuilder` and once for a `PlainServer`.
/// It chooses every handle, so that the two need not assign handles alike.
public struct RandomServices {
  public var chance: SplitMix64
  /// The groups of the present services, by handle.
  public private(set) var groups: [ClosedRange<Int>] = []
  /// Services that cannot be removed: those that others include, and the one with the client's features.
  private var permanent: Set<Int> = []
  private var hasFeatures = false
  private let lastHandle: Int

  public init(seed: UInt64) {
    chance = SplitMix64(seed: seed)
    lastHandle = 0xFFFF
  }

  // MARK: Services

  /// Up to some hundreds of attributes: mostly few, since the plain server is slow.
  public mutating func build(into plain: inout PlainServer) throws -> Database {
    let count =
      switch Int.random(in: 0..<20, using: &chance) {
      case 0: 0
      case 1: Int.random(in: 30...50, using: &chance)
      case 2...5: Int.random(in: 5...12, using: &chance)
      default: Int.random(in: 1...4, using: &chance)
      }
    // Sometimes it uses the last possible handle.
    var next = one(in: 12) ? 0xFFFF - Int.random(in: 0...300, using: &chance) : 1
    var builder = DatabaseBuilder()
    for _ in 0..<count where next <= lastHandle {
      next += one(in: 3) ? Int.random(in: 0...3, using: &chance) : one(in: 10) ? 40 : 0
      if next > lastHandle { break }
      plain.add(service(next...lastHandle, &builder, &plain))
      next = groups[groups.count - 1].upperBound + 1
    }
    return try builder.build()
  }
  /// Adds one or two services, in gaps or after the others.
  public mutating func insertion(into plain: inout PlainServer) -> DatabaseBuilder {
    var builder = DatabaseBuilder()
    for _ in 0..<(one(in: 3) ? 2 : 1) {
      var gaps: [ClosedRange<Int>] = [], free = 1
      for group in groups {
        if free < group.lowerBound { gaps.append(free...(group.lowerBound - 1)) }
        free = group.upperBound + 1
      }
      if free <= lastHandle { gaps.append(free...lastHandle) }
      guard let gap = gaps.randomElement(using: &chance) else { break }
      let first = Int.random(in: gap.lowerBound...min(gap.upperBound, gap.lowerBound + 20), using: &chance)
      plain.add(service(first...gap.upperBound, &builder, &plain))
    }
    return builder
  }
  /// Chooses a service to remove, and removes it from `plain`.
  public mutating func removal(from plain: inout PlainServer) -> AttributeHandle? {
    guard let group = groups.filter({ !permanent.contains($0.lowerBound) }).randomElement(using: &chance) else {
      return nil
    }
    groups.removeAll { $0 == group }
    plain.remove(group)
    return handle(group.lowerBound)
  }

  /// A service at the beginning of `room`, at most that long.
  private mutating func service(
    _ room: ClosedRange<Int>, _ builder: inout DatabaseBuilder, _ plain: inout PlainServer
  ) -> [PlainServer.Attribute] {
    let uuid = Self.types.randomElement(using: &chance) ?? PlainUUID(0xAA00), isPrimary = !one(in: 5)
    let first = room.lowerBound, wantsEnd = one(in: 4)
    var rows = [PlainServer.Attribute(first, PlainUUID(isPrimary ? 0x2800 : 0x2801), fixed(uuid.octets))]
    var next = first + 1, applications: [Int: PlainServer.Application] = [:]
    let others = groups
    let includable = others.filter { _ in one(in: 6) }.prefix(2)
    let characteristics = one(in: 12) ? 12 : Int.random(in: 0...4, using: &chance)
    let declarations = plain.attributes
    // `end:` is chosen before the contents are known: after all possible ones.
    let most = min(room.upperBound, first + 2 * includable.count + 16 * characteristics + 2)
    builder.service(
      form(uuid), isPrimary ? .primary : .secondary, at: handle(first), end: wantsEnd ? handle(most) : nil
    ) { service in
      for included in includable where next < room.upperBound {
        guard let declaration = declarations.first(where: { $0.handle == included.lowerBound }) else { continue }
        next += one(in: 8) ? 1 : 0
        service.include(handle(included.lowerBound), at: handle(next))
        permanent.insert(included.lowerBound)
        guard case .stored(let uuid, _, _) = declaration.value else { continue }
        // Vol 3, Part G, §3.2: the UUID is there only if it has 16 bits.
        let value = littleEndian(included.lowerBound) + littleEndian(included.upperBound)
        rows.append(.init(next, PlainUUID(0x2802), fixed(value + (uuid.count == 2 ? uuid : []))))
        next += 1
      }
      for _ in 0..<characteristics where next + 16 <= room.upperBound {
        characteristic(&service, &next, &rows, &applications, first)
      }
    }
    let last = wantsEnd ? most : rows[rows.count - 1].handle
    groups.append(first...last)
    groups.sort { $0.lowerBound < $1.lowerBound }
    // Vol 3, Part G, §2.5.3: a characteristic ends before the next, the last one with the service.
    var end = last
    for index in rows.indices.reversed() where rows[index].type == PlainUUID(0x2803) {
      rows[index].end = end
      end = rows[index].handle - 1
    }
    rows[0].end = last
    plain.application.merge(applications) { $1 }
    return rows
  }

  private mutating func characteristic(
    _ service: inout ServiceBuilder, _ next: inout Int, _ rows: inout [PlainServer.Attribute],
    _ applications: inout [Int: PlainServer.Application], _ first: Int
  ) {
    func gap() { next += one(in: 8) ? Int.random(in: 1...2, using: &chance) : 0 }
    gap()
    let declaration = next
    next += 1
    gap()
    let value = next
    next += 1
    let uuid = Self.types.randomElement(using: &chance) ?? PlainUUID(0xAA00)
    let isConfigured = one(in: 3), isIndicated = one(in: 2)
    var properties: CharacteristicProperties = [.read, .write]
    if isConfigured { properties.insert(isIndicated ? .indicate : .notify) }
    if isConfigured, one(in: 3) { properties.formUnion([.notify, .indicate]) }
    let read = access(), write = access()
    let content = contents(at: value, first, &applications)
    var configuration: Int?, configuring: PlainAccess?
    if isConfigured {
      gap()
      configuration = next
      configuring = one(in: 4) ? access() : nil
      next += 1
    }
    service.characteristic(
      form(uuid), properties, value: content.value,
      permissions: AttributePermissions(read: read.access, write: write.access), configuring: configuring?.access,
      at: handle(declaration), valueAt: handle(value), configurationAt: configuration.map(handle))
    rows.append(
      .init(
        declaration, PlainUUID(0x2803), fixed([properties.rawValue] + littleEndian(value) + uuid.octets)))
    rows.append(.init(value, uuid, content.row, read: read, write: write))
    if let configuration {
      var supported: UInt8 = properties.contains(.notify) ? 1 : 0
      if properties.contains(.indicate) { supported |= 2 }
      // A client that may read the value may subscribe to it.
      let writing = configuring ?? (read.level == .none ? .open : read)
      rows.append(
        .init(
          configuration, PlainUUID(0x2902), .configuration(of: value, supported: supported), write: writing))
    }
    for _ in 0..<(one(in: 3) ? Int.random(in: 1...2, using: &chance) : 0) {
      gap()
      let type = one(in: 2) ? PlainUUID(0x2901) : Self.types[Self.types.count - 1]
      let read = access(), write = access(), content = contents(at: next, first, &applications)
      service.descriptor(
        form(type), value: content.value, permissions: .init(read: read.access, write: write.access),
        at: handle(next))
      rows.append(.init(next, type, content.row, read: read, write: write))
      next += 1
    }
  }

  private mutating func contents(
    at handle: Int, _ service: Int, _ applications: inout [Int: PlainServer.Application]
  ) -> (value: AttributeValue, row: PlainServer.Attribute.Value) {
    switch Int.random(in: 0..<12, using: &chance) {
    case 0, 1:
      var application = PlainServer.Application()
      application.value = octets()
      let errors: [UInt8] = [0x07, 0x0E, 0x80, 0x11]
      if one(in: 5) { application.readError = errors.randomElement(using: &chance) }
      if one(in: 5) { application.writeError = errors.randomElement(using: &chance) }
      applications[handle] = application
      return (.dynamic, .dynamic)
    case 2 where !hasFeatures:
      hasFeatures = true
      permanent.insert(service)
      return (.clientSupportedFeatures, .features)
    case 3...5:
      let value = octets()
      return (.fixed(value), .stored(value, isFixed: true, maximum: value.count))
    default:
      let value = octets(), maximum = one(in: 2) ? 512 : Int.random(in: value.count...512, using: &chance)
      return (.stored(value, upTo: maximum), .stored(value, isFixed: false, maximum: maximum))
    }
  }
  private func fixed(_ value: [UInt8]) -> PlainServer.Attribute.Value {
    .stored(value, isFixed: true, maximum: value.count)
  }
  private mutating func access() -> PlainAccess {
    if !one(in: 3) { return .open }
    var access = PlainAccess(PlainAccess.Level.allCases.randomElement(using: &chance) ?? .none)
    access.needsAuthorization = one(in: 4)
    // A key needs encryption.
    if access.level.rawValue > PlainAccess.Level.open.rawValue, one(in: 2) {
      access.keySize = Int.random(in: 7...16, using: &chance)
    }
    return access
  }

  // MARK: Requests

  /// A client's PDU of at most `mtu` octets: for present attributes, for their neighbours, and for absent ones; a tenth
  /// are malformed.
  public mutating func request(to server: PlainServer, mtu: Int) -> [UInt8] {
    let requests: [UInt8] = [0x04, 0x06, 0x08, 0x0A, 0x0C, 0x0E, 0x10, 0x12, 0x16, 0x18, 0x20, 0x52]
    let opcode = one(in: 40) ? UInt8.random(in: 0...0xFF, using: &chance) : requests.randomElement(using: &chance) ?? 0
    let row = server.attributes.randomElement(using: &chance)
    var pdu = [opcode]
    switch opcode {
    case 0x04: pdu += range(row)
    case 0x06:
      let type = one(in: 3) ? PlainUUID(0x2800) : row?.type ?? PlainUUID(0x2801)
      // A row of that type, if any.
      let other = one(in: 3) ? row : server.attributes.filter { $0.type == type }.randomElement(using: &chance)
      pdu += range(row) + type.octets.prefix(2) + value(of: other)
    case 0x08, 0x10: pdu += range(row) + type(opcode == 0x10 || one(in: 3) ? nil : row)
    case 0x0A: pdu += littleEndian(near(row))
    case 0x0C: pdu += littleEndian(near(row)) + littleEndian(offset(row))
    case 0x0E, 0x20:
      for _ in 0..<Int.random(in: 2...6, using: &chance) {
        let row = server.attributes.randomElement(using: &chance)
        pdu += littleEndian(one(in: 20) ? near(row) : row?.handle ?? 1)
      }
    case 0x12, 0x52: pdu += littleEndian(near(row)) + written(row)
    case 0x16: pdu += littleEndian(near(row)) + littleEndian(one(in: 2) ? 0 : offset(row)) + written(row)
    case 0x18: pdu.append(one(in: 12) ? 2 : one(in: 4) ? 0 : 1)
    default: pdu += octets()
    }
    if one(in: 10) {
      switch Int.random(in: 0...2, using: &chance) {
      case 0: pdu[Int.random(in: 0..<pdu.count, using: &chance)] ^= 1 << UInt8.random(in: 0...7, using: &chance)
      case 1: pdu.removeLast(Int.random(in: 0..<pdu.count, using: &chance))
      default: pdu += octets().prefix(3)
      }
    }
    // The server does not handle PDUs for a client, nor those that change the ATT_MTU.
    switch pdu[0] {
    case 0x01, 0x02, 0x03, 0x05, 0x07, 0x09, 0x0B, 0x0D, 0x0F, 0x11, 0x13, 0x17, 0x19, 0x1B, 0x1D, 0x1E, 0x21, 0x23:
      pdu[0] = 0x0A
    default: break
    }
    return Array(pdu.prefix(mtu))
  }

  /// Two handles: near those of a row, the whole range, or any.
  private mutating func range(_ row: PlainServer.Attribute?) -> [UInt8] {
    let first = one(in: 3) ? 1 : near(row)
    switch Int.random(in: 0...5, using: &chance) {
    case 0: return littleEndian(first) + littleEndian(near(row))
    case 1: return littleEndian(first) + littleEndian(first)
    case 2: return littleEndian(first) + littleEndian(row?.end ?? 1)
    case 3: return littleEndian(first) + littleEndian(Int.random(in: 0...0xFFFF, using: &chance))
    default: return littleEndian(first) + littleEndian(0xFFFF)
    }
  }
  private mutating func near(_ row: PlainServer.Attribute?) -> Int {
    let handle = row?.handle ?? 1
    if one(in: 60) { return Int.random(in: 0...0xFFFF, using: &chance) }
    return one(in: 5) ? min(max(handle + Int.random(in: -3...3, using: &chance), 0), 0xFFFF) : handle
  }
  /// In either form.
  private mutating func type(_ row: PlainServer.Attribute?) -> [UInt8] {
    let declarations: [UInt16] = [0x2800, 0x2801, 0x2802, 0x2803, 0x2902, 0x2901]
    let chosen = PlainUUID(declarations.randomElement(using: &chance) ?? 0x2800)
    let type = row?.type ?? (one(in: 4) ? Self.types.randomElement(using: &chance) ?? chosen : chosen)
    return one(in: 4) ? type.long : type.octets
  }
  /// A value to compare: mostly the row's own.
  private mutating func value(of row: PlainServer.Attribute?) -> [UInt8] {
    guard let row, case .stored(let value, _, _) = row.value, !one(in: 5) else {
      return one(in: 2) ? [UInt8(Int.random(in: 0...3, using: &chance)), 0] : octets()
    }
    return one(in: 8) ? PlainUUID(value).long : one(in: 8) ? Array(value.dropLast()) : value
  }
  private mutating func offset(_ row: PlainServer.Attribute?) -> Int {
    var count = 4
    if case .stored(let value, _, _)? = row?.value { count = value.count }
    switch Int.random(in: 0...4, using: &chance) {
    case 0: return count
    case 1: return count + 1
    case 2: return Int.random(in: 0...0xFFFF, using: &chance)
    default: return Int.random(in: 0...count, using: &chance)
    }
  }
  /// A value to write: as long as the present one, as a configuration, or of any length.
  private mutating func written(_ row: PlainServer.Attribute?) -> [UInt8] {
    switch row?.value {
    case .stored(let value, _, let maximum)? where !one(in: 3):
      let counts = [value.count, maximum, maximum + 1, value.count / 2]
      return octets(counts.randomElement(using: &chance) ?? 0)
    case .configuration?, .features?:
      return (0..<(one(in: 3) ? Int.random(in: 0...3, using: &chance) : 2)).map { _ in
        UInt8.random(in: 0...3, using: &chance)
      }
    default: return octets()
    }
  }

  // MARK: Helpers

  private static let types: [PlainUUID] =
    [0x2A00, 0xAA01, 0xAA02, 0xAA03].map { PlainUUID($0) }
    + [1, 2, 3].map {
      PlainUUID([0, 0x0C, 0x1A, 0x5F, 0x0E, 0x6F, 0x5C, 0x8E, 0xBD, 0x4B, 0x1D, 0x1D, $0, 0, 0xB1, 0xA0])
    }

  /// True once in `count` times.
  public mutating func one(in count: Int) -> Bool { Int.random(in: 0..<count, using: &chance) == 0 }
  /// Also in the 128-bit form, if it has a 16-bit one.
  private mutating func form(_ uuid: PlainUUID) -> BluetoothUUID {
    let octets = one(in: 4) ? uuid.long : uuid.octets
    func word(_ at: Int) -> UInt64 { octets[at..<(at + 8)].reversed().reduce(0) { $0 << 8 | UInt64($1) } }
    return octets.count == 2
      ? .short(UInt16(octets[0]) | UInt16(octets[1]) << 8) : .long(low: word(0), high: word(8))
  }
  private func handle(_ raw: Int) -> AttributeHandle { AttributeHandle(rawValue: UInt16(raw)) }
  /// Up to 512 octets. Lengths and contents often repeat, so that lists have several entries and values are equal.
  private mutating func octets(_ given: Int? = nil) -> [UInt8] {
    let lengths = [0, 1, 2, 2, 2, 4, 4, 18, 19, 20, 20, 21, 22, 23]
    let count =
      given ?? (one(in: 10) ? Int.random(in: 0...512, using: &chance) : lengths.randomElement(using: &chance) ?? 2)
    let first = UInt8.random(in: 0...2, using: &chance), isEqual = one(in: 2)
    return (0..<count).map { isEqual ? first : UInt8(truncatingIfNeeded: $0 * 7) &+ first }
  }
}
