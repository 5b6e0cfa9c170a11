import BindruneATT
import BindruneWire

/// The attributes of a server: the table that GATT is. Vol 3, Part G, §2.6; Vol 3, Part F, §3.2.
///
/// `DatabaseBuilder` makes it. A value type: two adapters may start from one database and change their copies
/// separately.
///
/// ## How a request finds its attributes
///
/// | question | answered by | cost |
/// |---|---|---|
/// | which attribute has this handle, or the next one after it | `positions`, indexed by handle | one load |
/// | which attributes have this type | `uuids` (hashed), then its `types` in `grouped` | one probe + a binary search |
/// | which services have this UUID | the same, its `services` | one probe + a binary search |
///
/// Hence an answer costs the same in a database of 3,000 attributes as in one of 300.
public struct Database: Sendable {
  /// In handle order.
  var attributes: [Attribute] = []
  /// For every handle from 0 to the last: the position in `attributes` of the first whose handle is not below it.
  var positions: [UInt16] = []
  /// The stored values. A value that outgrows its room moves to the end, with twice the room: the array stays below
  /// twice the sum of the longest values.
  var values: [UInt8] = []
  /// Every UUID that is an attribute's type or a service's UUID, once, in its shortest form.
  var uuids: [UUIDEntry] = []
  /// Open addressing: position in `uuids` + 1, or 0. A power of two, at most half full.
  var hashed: [UInt32] = []
  /// Positions of attributes, grouped by UUID, ascending within a group: the attributes of that type, then the service
  /// declarations with that UUID.
  var grouped: [UInt16] = []
  /// The Client Characteristic Configuration descriptors: each has one slot in every client's session.
  var configurations: [Configuration] = []
  /// The highest handle that a service has ever had: the handles of a removed service are not assigned again, because
  /// clients may remember them. Vol 3, Part G, §2.5.2.
  var lastReserved = 0
  /// The permissions that the attributes of disabled services will have again.
  var disabled: [AttributeHandle: AttributePermissions] = [:]
  /// The handles of the values that GATT itself defines; 0x0000 where there are none.
  var special = SpecialHandles()
  /// The Database Hash: changes whenever services do. Vol 3, Part G, §7.3.
  public internal(set) var hash: UInt128 = 0

  /// No attributes: the database of a host that is a client only.
  public init() { hash = calculatedHash() }

  /// The number of attributes.
  public var count: Int { attributes.count }
  /// 0x0000 when there is no attribute.
  public var lastHandle: AttributeHandle { attributes.last?.handle ?? AttributeHandle() }

  /// The value of Service Changed, which the server itself indicates when services change; `nil` where there is none.
  /// Vol 3, Part G, §7.1.
  public var serviceChanged: AttributeHandle? {
    special.serviceChanged == AttributeHandle() ? nil : special.serviceChanged
  }

  /// Describes the attribute at `handle`; `nil` if there is none.
  public func attribute(_ handle: AttributeHandle) -> AttributeDescription? {
    position(of: handle).map(describe)
  }
  /// All attributes, in handle order. Allocates: for tools and tests.
  public var allAttributes: [AttributeDescription] { attributes.indices.map(describe) }
  /// The value stored at `handle`; `nil` if there is no attribute, or if the application or a client holds the value.
  public func value(_ handle: AttributeHandle) -> [UInt8]? {
    guard let position = position(of: handle), case .stored = attributes[position].kind else { return nil }
    return Array(values[attributes[position].range])
  }

  private func describe(_ position: Int) -> AttributeDescription {
    let attribute = attributes[position]
    return AttributeDescription(
      handle: attribute.handle, groupEnd: attribute.groupEnd, type: uuids[Int(attribute.type)].uuid,
      permissions: attribute.permissions, isDynamic: attribute.kind == .dynamic)
  }
}

/// One row of the table, as tools show it.
public struct AttributeDescription: Sendable, Equatable {
  public let handle: AttributeHandle
  /// The last handle of the group that a service or characteristic declaration opens; else the handle itself.
  public let groupEnd: AttributeHandle
  public let type: BluetoothUUID
  public let permissions: AttributePermissions
  /// The application answers each read and receives each write.
  public let isDynamic: Bool
}

/// An attribute as the server sees it.
struct Attribute: BitwiseCopyable, Sendable {
  enum Kind: UInt8, BitwiseCopyable, Sendable {
    /// `Database.values` holds the value.
    case stored
    /// The application supplies the value.
    case dynamic
    /// Each client has its own value: the Client Characteristic Configuration.
    case configuration
    /// Each client has its own value: the Client Supported Features.
    case features
  }
  var handle: AttributeHandle
  /// The end of the group for declarations (Vol 3, Part G, §2.5.3), else `handle`.
  var groupEnd: AttributeHandle
  /// Index in `Database.uuids`.
  var type: UInt16
  var kind: Kind
  /// A fixed length: a shorter write changes the first octets only. Vol 3, Part F, §3.4.5.1.
  var isFixed: Bool
  var permissions: AttributePermissions
  /// Where the value begins, its length, the room it has there, and its maximum length.
  var start: UInt32 = 0
  var count: UInt16 = 0
  var room: UInt16 = 0
  var maximum: UInt16
  /// Of a characteristic's value and of its configuration.
  var slot = ConfigurationSlot()

  var range: Range<Int> { Int(start)..<(Int(start) &+ Int(count)) }
}

/// The place of a characteristic in `Database.configurations`, and in the list that every client has beside it; or
/// none, as for a characteristic without a Client Characteristic Configuration. A type of its own, which no list takes
/// as an index: whoever looks something up must say what happens without a place.
struct ConfigurationSlot: BitwiseCopyable, Sendable {
  /// There are fewer configurations than handles: the greatest number is in no list.
  private var number: UInt16 = .max

  /// None.
  init() {}
  init(index: Int) { number = UInt16(index) }

  /// The index in a list of `count` configurations; nil if it has none.
  @inline(__always) func index(below count: Int) -> Int? {
    let index = Int(number)
    return index < count ? index : nil
  }
}

extension [ClientCharacteristicConfiguration] {
  /// Nothing for a characteristic without a configuration.
  @inline(__always) subscript(slot: ConfigurationSlot) -> ClientCharacteristicConfiguration {
    slot.index(below: count).map { self[$0] } ?? []
  }
}

/// A Client Characteristic Configuration descriptor and what it belongs to.
struct Configuration: BitwiseCopyable, Sendable, Equatable {
  /// 0x0000: the service has been removed, and the slot is free.
  var descriptor = AttributeHandle()
  var value = AttributeHandle()
  /// The bits that the characteristic's properties allow.
  var supported = ClientCharacteristicConfiguration()
  /// Neither the value nor the descriptor needs a protected link: subscribed values may be sent without a check.
  var isUnprotected = false
}

/// Values of the Generic Attribute service that the server maintains. Vol 3, Part G, §7.
struct SpecialHandles: BitwiseCopyable, Sendable {
  var serviceChanged = AttributeHandle()
  var databaseHash = AttributeHandle()
  /// The service of Service Changed and Database Hash.
  var service = HandleRange(AttributeHandle(), AttributeHandle())
  /// Vol 3, Part G, §2.5.2.1: a server with both supports robust caching.
  var supportRobustCaching: Bool { serviceChanged.rawValue != 0 && databaseHash.rawValue != 0 }
}

/// A UUID and its ranges of `grouped`.
struct UUIDEntry: Sendable {
  /// In its shortest form.
  let uuid: BluetoothUUID
  /// Its 128-bit form, by which UUIDs are compared.
  let low: UInt64, high: UInt64
  var types = 0..<0
  var services = 0..<0
  init(_ uuid: BluetoothUUID) {
    self.uuid = uuid.shortest
    low = uuid.low
    high = uuid.high
  }
}

// MARK: - Lookup

extension Database {
  @inline(__always)
  func position(of handle: AttributeHandle) -> Int? {
    let raw = Int(handle.rawValue)
    guard raw < positions.count else { return nil }
    let position = Int(positions[raw])
    return attributes[position].handle == handle ? position : nil
  }
  /// The position of the first attribute at or after `handle`; `count` when there is none.
  @inline(__always)
  func firstPosition(from handle: AttributeHandle) -> Int {
    let raw = Int(handle.rawValue)
    return raw < positions.count ? Int(positions[raw]) : attributes.count
  }
  /// The index in `uuids`, or nil for a type that no attribute has.
  func index(of uuid: BluetoothUUID) -> Int? {
    guard !hashed.isEmpty else { return nil }
    let low = uuid.low, high = uuid.high
    var probe = Self.hash(low, high) & (hashed.count &- 1)
    while hashed[probe] != 0 {
      let index = Int(hashed[probe]) &- 1
      if uuids[index].low == low, uuids[index].high == high { return index }
      probe = (probe &+ 1) & (hashed.count &- 1)
    }
    return nil
  }
  @inline(__always) static func hash(_ low: UInt64, _ high: UInt64) -> Int {
    let mixed = (low ^ (high &* 0x9E37_79B9_7F4A_7C15)) &* 0xD6E8_FEB8_6659_FD93
    return Int(truncatingIfNeeded: mixed >> 32)
  }
  /// The first index in `group`, a part of `grouped`, whose attribute is at or after `position`.
  @inline(__always)
  static func lowerBound(_ list: Span<UInt16>, _ group: Range<Int>, _ position: Int) -> Int {
    var low = group.lowerBound
    var high = group.upperBound
    while low < high {
      let middle = (low &+ high) &>> 1
      if Int(list[middle]) < position { low = middle &+ 1 } else { high = middle }
    }
    return low
  }
}

// MARK: - Values

extension Database {
  /// Replaces the value at `handle`. False, without a change, when the database stores no value there or `value` does
  /// not fit: at most 512 octets (Vol 3, Part F, §3.2.9), exactly the old number where the length is fixed.
  /// Declarations are not values: insert and remove services instead.
  public mutating func setValue(_ handle: AttributeHandle, to value: Span<UInt8>) -> Bool {
    guard let position = position(of: handle), attributes[position].kind == .stored else { return false }
    let attribute = attributes[position]
    switch uuids[Int(attribute.type)].uuid {
    case .primaryService, .secondaryService, .include, .characteristic: return false
    default: break
    }
    guard attribute.isFixed ? value.count == attribute.count : value.count <= attribute.maximum else { return false }
    replace(position, with: value)
    return true
  }

  /// Replaces the value; of a fixed-length value only its first octets. The caller has checked the length.
  @inline(__always)
  mutating func replace(_ position: Int, with value: Span<UInt8>) {
    write(position, at: 0, value)
    let attribute = attributes[position]
    if !attribute.isFixed, attribute.count != value.count {
      attributes[position].count = UInt16(truncatingIfNeeded: value.count)
    }
  }
  /// Writes `part` over the value from `offset` on, and extends the value if the part ends beyond it.
  @inline(__always)
  mutating func write(_ position: Int, at offset: Int, _ part: Span<UInt8>) {
    let end = offset &+ part.count
    if end > Int(attributes[position].room) { makeRoom(position, for: end) }
    let attribute = attributes[position]
    if end > Int(attribute.count) { attributes[position].count = UInt16(truncatingIfNeeded: end) }
    values.overwrite(at: Int(attribute.start) &+ offset, with: part)
  }
  @inline(never)
  private mutating func makeRoom(_ position: Int, for count: Int) {
    let attribute = attributes[position]
    let room = min(Int(attribute.maximum), max(count, 2 * Int(attribute.room), 16))
    attributes[position].start = UInt32(values.count)
    attributes[position].room = UInt16(room)
    values.reserveCapacity(values.count + room)
    for i in attribute.range { values.append(values[i]) }
    for _ in Int(attribute.count)..<room { values.append(0) }
  }
}

extension [UInt8] {
  /// Copies `bytes` over the elements from `offset` on, which exist (traps otherwise).
  @inline(__always)
  mutating func overwrite(at offset: Int, with bytes: Span<UInt8>) {
    precondition(offset >= 0 && offset &+ bytes.count <= count)
    unsafe withUnsafeMutableBytes { room in
      unsafe bytes.withUnsafeBytes { from in
        if let base = from.baseAddress, let to = room.baseAddress {
          unsafe to.advanced(by: offset).copyMemory(from: base, byteCount: from.count)
        }
      }
    }
  }
}
