import BindruneATT
import BindruneGATT

/// A server that follows Vol 3, Part F, §3.4 in the plainest way: each request walks a table of attributes from the
/// first to the last row, and octets are arrays. It shares no code with `Server`, whose table of errors it follows, nor
/// with `ATTPDU`: tests compare the answers of the two servers.
///
/// It has one client, and properties that describe the client's link. It has no robust caching.
public struct PlainServer {
  /// One row.
  public struct Attribute {
    public enum Value {
      case stored([UInt8], isFixed: Bool, maximum: Int)
      /// Held by the application: see `application`.
      case dynamic
      /// The client's configuration of the value at this handle; it may set these bits.
      case configuration(of: Int, supported: UInt8)
      /// The client's features.
      case features
    }
    public var handle: Int
    /// The last handle of the group that a declaration opens, else the handle.
    public var end: Int
    public var type: PlainUUID
    public var value: Value
    public var read: PlainAccess, write: PlainAccess
    public init(
      _ handle: Int, _ type: PlainUUID, _ value: Value, read: PlainAccess = .open, write: PlainAccess = PlainAccess()
    ) {
      self.handle = handle
      end = handle
      self.type = type
      self.value = value
      self.read = read
      self.write = write
    }
    var isDynamic: Bool { if case .dynamic = value { true } else { false } }
  }

  /// The application's constant answer for its value.
  public struct Application {
    public var value: [UInt8] = []
    /// It refuses, with these errors.
    public var readError: UInt8?, writeError: UInt8?
    public init() {}
    /// The value from `offset` on, or an error.
    public func read(from offset: Int) throws(PlainError) -> [UInt8] {
      if let readError { throw PlainError(0, readError) }
      if offset > value.count { throw PlainError(0, 0x07) }
      return Array(value[offset...])
    }
  }

  /// Reports to the layer above.
  public enum Event: Hashable {
    case subscribed(Int, UInt16)
    case written(Int, offset: Int, [UInt8])
    case reads(Int, offset: Int)
    case writes(Int, offset: Int, [UInt8], following: Int)
  }

  /// By handle.
  public var attributes: [Attribute] = []
  public var application: [Int: Application] = [:]
  public var security = BearerSecurity.none, keySize = 16, isAuthorized = false
  /// The client's configurations, by the handle of the descriptor.
  public var configurations: [Int: UInt16] = [:]
  public var features: UInt8 = 0
  public var events: [Event] = []
  /// The prepare queue. A part that continues the one before is merged with it.
  private var prepared: [(handle: Int, offset: Int, part: [UInt8])] = []
  /// The first attribute in the queue whose service was removed.
  private var removedHandle: Int?

  public init() {}

  /// Removes the service whose group is `range`, with the subscriptions to its values.
  public mutating func remove(_ range: ClosedRange<Int>) {
    events = []
    for row in attributes where range.contains(row.handle) {
      if case .configuration(let value, _) = row.value, configurations[row.handle] ?? 0 != 0 {
        events.append(.subscribed(value, 0))
      }
      configurations[row.handle] = nil
      application[row.handle] = nil
    }
    attributes.removeAll { range.contains($0.handle) }
    removedHandle = removedHandle ?? prepared.first { range.contains($0.handle) }?.handle
  }
  public mutating func add(_ more: [Attribute]) {
    attributes += more
    attributes.sort { $0.handle < $1.handle }
  }
  /// The application changes a value that the server keeps; false if it cannot.
  public mutating func setValue(_ handle: Int, _ value: [UInt8]) -> Bool {
    guard let index = attributes.firstIndex(where: { $0.handle == handle }),
      case .stored(let old, let isFixed, let maximum) = attributes[index].value,
      isFixed ? value.count == old.count : value.count <= maximum
    else { return false }
    attributes[index].value = .stored(value, isFixed: isFixed, maximum: maximum)
    return true
  }

  /// What the server may send to the client of the value at `handle`: what the client has configured, if its link meets
  /// the security for reading the value and writing the configuration. Vol 3, Part C, §10.3.1.1.
  public func mayBeSent(_ handle: Int) -> UInt16 {
    for row in attributes {
      guard case .configuration(handle, _) = row.value, let value = attributes.first(where: { $0.handle == handle })
      else { continue }
      let isReadable = value.read.level == .none || error(value.read, forbidden: 0x02) == nil
      return isReadable && error(row.write, forbidden: 0x03) == nil ? configurations[row.handle] ?? 0 : 0
    }
    return 0
  }

  // MARK: Requests. Vol 3, Part F, §3.4

  /// The response to one PDU from the client; nil for a command.
  public mutating func respond(to pdu: [UInt8], mtu: Int) -> [UInt8]? {
    events = []
    let opcode = pdu[0]
    if opcode & 0x40 != 0 {
      // §3.4.5.3: neither response nor error.
      do throws(PlainError) {
        if opcode == 0x52, pdu.count >= 3 { try write(number(pdu, 1), Array(pdu[3...]), isCommand: true) }
      } catch {}
      return nil
    }
    do throws(PlainError) {
      // §3.3: a PDU with a wrong length for its opcode, or that is not a request.
      guard try hasLength(pdu) else { throw PlainError(0, 0x04) }
      switch opcode {
      case 0x04: return try findInformation(range(pdu), mtu)
      case 0x06: return try findByTypeValue(range(pdu), PlainUUID(Array(pdu[5..<7])), Array(pdu[7...]), mtu)
      case 0x08: return try readByType(range(pdu), PlainUUID(Array(pdu[5...])), mtu)
      case 0x0A: return [0x0B] + (try readable(number(pdu, 1), from: 0)).prefix(mtu - 1)
      case 0x0C: return [0x0D] + (try readable(number(pdu, 1), from: number(pdu, 3))).prefix(mtu - 1)
      case 0x0E, 0x20: return try readMultiple(pdu, mtu)
      case 0x10: return try readByGroupType(range(pdu), PlainUUID(Array(pdu[5...])), mtu)
      case 0x12:
        try write(number(pdu, 1), Array(pdu[3...]), isCommand: false)
        return [0x13]
      case 0x16: return try prepare(pdu)
      default: return try execute(pdu[1])
      }
    } catch {
      return [0x01, opcode] + littleEndian(error.handle) + [error.code]
    }
  }

  private func hasLength(_ pdu: [UInt8]) throws(PlainError) -> Bool {
    switch pdu[0] {
    case 0x04, 0x0C: pdu.count == 5
    case 0x06: pdu.count >= 7
    case 0x08, 0x10: pdu.count == 7 || pdu.count == 21
    case 0x0A: pdu.count == 3
    case 0x0E, 0x20: pdu.count >= 5 && pdu.count % 2 == 1
    case 0x12: pdu.count >= 3
    case 0x16: pdu.count >= 5
    case 0x18: pdu.count == 2
    default: throw PlainError(0, 0x06)
    }
  }
  private func range(_ pdu: [UInt8]) throws(PlainError) -> ClosedRange<Int> {
    let first = number(pdu, 1), last = number(pdu, 3)
    guard first > 0, first <= last else { throw PlainError(first, 0x01) }
    return first...last
  }

  /// §3.4.3.1, §3.4.3.2.
  private func findInformation(_ range: ClosedRange<Int>, _ mtu: Int) throws(PlainError) -> [UInt8] {
    var response: [UInt8] = [], length = 0
    for attribute in attributes where range.contains(attribute.handle) {
      let type = attribute.type.octets
      if response.isEmpty {
        length = type.count
        response = [0x05, length == 2 ? 1 : 2]
      }
      if type.count != length || response.count + 2 + length > mtu { break }
      response += littleEndian(attribute.handle) + type
    }
    if response.isEmpty { throw PlainError(range.lowerBound, 0x0A) }
    return response
  }

  /// §3.4.3.3, §3.4.3.4. Skips a value that the client may not read or that the application holds.
  private func findByTypeValue(
    _ range: ClosedRange<Int>, _ type: PlainUUID, _ value: [UInt8], _ mtu: Int
  ) throws(PlainError) -> [UInt8] {
    var response: [UInt8] = [0x07]
    for attribute in attributes where range.contains(attribute.handle) && attribute.type == type {
      guard !attribute.isDynamic, error(attribute.read, forbidden: 0x02) == nil, kept(attribute) == value else {
        continue
      }
      if response.count + 4 > mtu { break }
      response += littleEndian(attribute.handle) + littleEndian(attribute.end)
    }
    if response.count == 1 { throw PlainError(range.lowerBound, 0x0A) }
    return response
  }

  /// §3.4.4.1, §3.4.4.2: an error of the first value is the answer, an error of a later one ends the list.
  private mutating func readByType(
    _ range: ClosedRange<Int>, _ type: PlainUUID, _ mtu: Int
  ) throws(PlainError) -> [UInt8] {
    var response: [UInt8] = [], length = 0
    for attribute in attributes where range.contains(attribute.handle) && attribute.type == type {
      // The server does not ask the application for a value that has no room.
      if attribute.isDynamic, !response.isEmpty, response.count + 2 + length > mtu,
        error(attribute.read, forbidden: 0x02) == nil
      {
        break
      }
      var value: [UInt8]
      do throws(PlainError) { value = try readable(attribute.handle, from: 0) } catch {
        if response.isEmpty { throw error }
        break
      }
      value = Array(value.prefix(253))
      if response.isEmpty {
        value = Array(value.prefix(mtu - 4))
        length = value.count
        response = [0x09, UInt8(2 + length)]
      } else if value.count != length || response.count + 2 + length > mtu {
        break
      }
      response += littleEndian(attribute.handle) + value
    }
    if response.isEmpty { throw PlainError(range.lowerBound, 0x0A) }
    return response
  }

  /// §3.4.4.7, §3.4.4.8; §3.4.4.11, §3.4.4.12. Also checks handles whose values have no room.
  private mutating func readMultiple(_ pdu: [UInt8], _ mtu: Int) throws(PlainError) -> [UInt8] {
    let isVariable = pdu[0] == 0x20
    var response = [pdu[0] + 1], isFull = false
    for at in stride(from: 1, to: pdu.count, by: 2) {
      if mtu - response.count < (isVariable ? 2 : 1) { isFull = true }
      let handle = number(pdu, at)
      if isFull {
        _ = try readableAttribute(handle)
        continue
      }
      let value = try readable(handle, from: 0)
      if isVariable { response += littleEndian(value.count) }
      response += value.prefix(mtu - response.count)
    }
    return response
  }

  /// §3.4.4.9, §3.4.4.10; Vol 3, Part G, §2.5.3: only services are groups here.
  private func readByGroupType(
    _ range: ClosedRange<Int>, _ type: PlainUUID, _ mtu: Int
  ) throws(PlainError) -> [UInt8] {
    guard type == PlainUUID(0x2800) || type == PlainUUID(0x2801) else { throw PlainError(range.lowerBound, 0x10) }
    var response: [UInt8] = [], length = 0
    for attribute in attributes where range.contains(attribute.handle) && attribute.type == type {
      let value = kept(attribute)
      if response.isEmpty {
        length = value.count
        response = [0x11, UInt8(4 + length)]
      }
      if value.count != length || response.count + 4 + length > mtu { break }
      response += littleEndian(attribute.handle) + littleEndian(attribute.end) + value
    }
    if response.isEmpty { throw PlainError(range.lowerBound, 0x0A) }
    return response
  }

  // MARK: Reading

  private func attribute(_ handle: Int) throws(PlainError) -> Int {
    guard let index = attributes.firstIndex(where: { $0.handle == handle }) else { throw PlainError(handle, 0x01) }
    return index
  }
  private func readableAttribute(_ handle: Int) throws(PlainError) -> Attribute {
    let found = attributes[try attribute(handle)]
    if let code = error(found.read, forbidden: 0x02) { throw PlainError(handle, code) }
    return found
  }
  private mutating func readable(_ handle: Int, from offset: Int) throws(PlainError) -> [UInt8] {
    let found = try readableAttribute(handle)
    guard !found.isDynamic else {
      events.append(.reads(handle, offset: offset))
      do throws(PlainError) { return try (application[handle] ?? Application()).read(from: offset) } catch {
        throw PlainError(handle, error.code)
      }
    }
    let value = kept(found)
    guard offset <= value.count else { throw PlainError(handle, 0x07) }
    return Array(value[offset...])
  }
  /// A value that the server holds.
  private func kept(_ attribute: Attribute) -> [UInt8] {
    switch attribute.value {
    case .stored(let value, _, _): value
    case .dynamic: []
    case .configuration: littleEndian(Int(configurations[attribute.handle] ?? 0))
    case .features: [features]
    }
  }
  /// Permission, authorization, encryption, key size: the order of `Server`'s table.
  private func error(_ access: PlainAccess, forbidden: UInt8) -> UInt8? {
    if access.level == .none { return forbidden }
    if access.needsAuthorization, !isAuthorized { return 0x08 }
    if access.level == .open { return nil }
    let suffices = access.level == .authenticated ? security == .authenticated : security >= .encrypted
    if !suffices { return security == .keysAvailable ? 0x0F : 0x05 }
    return keySize < access.keySize ? 0x0C : nil
  }

  // MARK: Writing

  /// §3.4.5.1, §3.4.5.3.
  private mutating func write(_ handle: Int, _ value: [UInt8], isCommand: Bool) throws(PlainError) {
    let index = try writable(handle)
    try check(index, value, at: 0)
    switch attributes[index].value {
    case .dynamic where isCommand: events.append(.written(handle, offset: 0, value))
    case .dynamic:
      events.append(.writes(handle, offset: 0, value, following: 0))
      if let code = application[handle]?.writeError { throw PlainError(handle, code) }
    case .stored(let old, let isFixed, let maximum):
      let new = isFixed ? value + old.dropFirst(value.count) : value
      attributes[index].value = .stored(new, isFixed: isFixed, maximum: maximum)
      events.append(.written(handle, offset: 0, value))
    case .configuration, .features: store(index, value, at: 0)
    }
  }
  private func writable(_ handle: Int) throws(PlainError) -> Int {
    let index = try attribute(handle)
    if let code = error(attributes[index].write, forbidden: 0x03) { throw PlainError(handle, code) }
    return index
  }
  /// Length, then value.
  private func check(_ index: Int, _ part: [UInt8], at offset: Int) throws(PlainError) {
    let handle = attributes[index].handle, first = offset == 0 ? part.first : nil
    let maximum: Int
    switch attributes[index].value {
    case .stored(_, _, let most): maximum = most
    case .dynamic: maximum = 512
    case .configuration: maximum = 2
    case .features: maximum = 16
    }
    guard offset + part.count <= maximum else { throw PlainError(handle, 0x0D) }
    switch attributes[index].value {
    case .stored, .dynamic: break
    case .configuration(_, let supported):
      if let first, first & 0x03 & ~supported != 0 { throw PlainError(handle, 0xFD) }
    case .features:
      // No bit that is set can be cleared: Vol 3, Part G, §7.2.
      if offset == 0, features & ~(first ?? 0) != 0 { throw PlainError(handle, 0x13) }
    }
  }
  /// Values that are each client's own.
  private mutating func store(_ index: Int, _ part: [UInt8], at offset: Int) {
    guard offset == 0, let first = part.first else { return }
    switch attributes[index].value {
    case .configuration(let value, _):
      let wanted = UInt16(first & 0x03), handle = attributes[index].handle
      if configurations[handle] ?? 0 != wanted { events.append(.subscribed(value, wanted)) }
      configurations[handle] = wanted
    default: features = first & 0x07
    }
  }

  // MARK: Queued writes. §3.4.6

  private mutating func prepare(_ pdu: [UInt8]) throws(PlainError) -> [UInt8] {
    let handle = number(pdu, 1), offset = number(pdu, 3), part = Array(pdu[5...])
    _ = try writable(handle)
    let limits = ServerConfiguration()
    let octets = prepared.reduce(part.count) { $0 + $1.part.count }
    guard octets <= limits.preparedOctets else { throw PlainError(handle, 0x09) }
    if let last = prepared.last, last.handle == handle, last.offset + last.part.count == offset {
      prepared[prepared.count - 1].part += part
    } else {
      guard prepared.count < limits.preparedRuns else { throw PlainError(handle, 0x09) }
      prepared.append((handle, offset, part))
    }
    return [0x17] + pdu[1...]
  }

  /// §3.4.6.3: all or nothing, and then the queue is empty.
  private mutating func execute(_ flags: UInt8) throws(PlainError) -> [UInt8] {
    guard flags <= 1 else { throw PlainError(0, 0x04) }
    let queue = prepared, gone = removedHandle
    prepared = []
    removedHandle = nil
    if flags == 0 { return [0x19] }
    if let gone { throw PlainError(gone, 0x12) }
    var ends: [Int: Int] = [:], asked: [(handle: Int, offset: Int, part: [UInt8])] = []
    for write in queue {
      let index = try writable(write.handle)
      if attributes[index].isDynamic {
        asked.append(write)
      } else if write.offset > max(kept(attributes[index]).count, ends[write.handle] ?? 0) {
        throw PlainError(write.handle, 0x07)
      }
      try check(index, write.part, at: write.offset)
      ends[write.handle] = max(ends[write.handle] ?? 0, write.offset + write.part.count)
    }
    for (index, write) in asked.enumerated() {
      let following = asked.count - 1 - index
      events.append(.writes(write.handle, offset: write.offset, write.part, following: following))
    }
    for write in asked {
      if let code = application[write.handle]?.writeError { throw PlainError(write.handle, code) }
    }
    for write in queue {
      let index = try attribute(write.handle)
      switch attributes[index].value {
      case .dynamic: break
      case .configuration, .features: store(index, write.part, at: write.offset)
      case .stored(var value, let isFixed, let maximum):
        let end = write.offset + write.part.count
        while value.count < end { value.append(0) }
        value.replaceSubrange(write.offset..<end, with: write.part)
        attributes[index].value = .stored(value, isFixed: isFixed, maximum: maximum)
        events.append(.written(write.handle, offset: write.offset, write.part))
      }
    }
    // A value of variable length, written from its beginning, ends after the written octets.
    for write in queue where write.offset == 0 {
      let index = try attribute(write.handle)
      guard case .stored(let value, false, let maximum) = attributes[index].value else { continue }
      let end = ends[write.handle] ?? 0
      attributes[index].value = .stored(Array(value.prefix(end)), isFixed: false, maximum: maximum)
    }
    return [0x19]
  }
}

/// The answer of an immediate application to one question of a `Server`.
public struct PlainAnswer {
  public let id: ServerRequestID
  /// The value of a read that is not refused.
  public private(set) var value: [UInt8]?
  public private(set) var refusal: (error: ATTError, about: AttributeHandle)?
  /// To a read.
  public init(
    _ id: ServerRequestID, _ handle: AttributeHandle, _ application: PlainServer.Application?, from offset: Int
  ) {
    self.id = id
    do throws(PlainError) { value = try (application ?? PlainServer.Application()).read(from: offset) } catch {
      refusal = (ATTError(rawValue: error.code), handle)
    }
  }
  /// To several writes: the first refused one decides.
  public init(_ id: ServerRequestID) { self.id = id }
  public mutating func write(_ handle: AttributeHandle, _ application: PlainServer.Application?) {
    if refusal == nil, let code = application?.writeError { refusal = (ATTError(rawValue: code), handle) }
  }
}

/// The last two fields of an Error Response. Vol 3, Part F, §3.4.1.1; two errors concern no attribute: §3.3.
public struct PlainError: Error {
  public var handle: Int
  public var code: UInt8
  public init(_ handle: Int, _ code: UInt8) {
    self.handle = code == 0x0E || code == 0x11 ? 0 : handle
    self.code = code
  }
}

/// A UUID by its 128 bits. Vol 3, Part B, §2.5.1.
public struct PlainUUID: Hashable, Sendable {
  var number: UInt128
  private static var base: UInt128 { 0x0000_0000_0000_1000_8000_0080_5F9B_34FB }
  public init(_ short: UInt16) { number = PlainUUID.base | UInt128(short) << 96 }
  /// Two octets or sixteen, least significant first.
  public init(_ octets: [UInt8]) {
    number = octets.reversed().reduce(0) { $0 << 8 | UInt128($1) }
    if octets.count == 2 { number = PlainUUID.base | number << 96 }
  }
  /// In the shorter of the two forms that ATT has.
  public var octets: [UInt8] {
    let isShort = number & ~(0xFFFF << 96) == PlainUUID.base
    return isShort ? Array(long[12..<14]) : long
  }
  /// All sixteen.
  public var long: [UInt8] { (0..<16).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) } }
}

/// What a client must have: the parts of `AttributePermissions.Access`.
public struct PlainAccess {
  public enum Level: Int, CaseIterable, Sendable { case none, open, encrypted, authenticated }
  public var level = Level.none, needsAuthorization = false, keySize = 1
  public init(_ level: Level = .none) { self.level = level }
  public static var open: PlainAccess { PlainAccess(.open) }
  public var access: AttributePermissions.Access {
    var access: AttributePermissions.Access =
      switch level {
      case .none: .none
      case .open: .open
      case .encrypted: .encrypted
      case .authenticated: .authenticated
      }
    if keySize > 1 { access = access.withKey(of: keySize) }
    return needsAuthorization ? access.withAuthorization : access
  }
}

func littleEndian(_ value: Int) -> [UInt8] { [UInt8(value & 0xFF), UInt8(value >> 8)] }
private func number(_ octets: [UInt8], _ at: Int) -> Int { Int(octets[at]) | Int(octets[at + 1]) << 8 }
