import BindruneWire

/// One AD structure of a packet: its type, and the range of its data. Vol 3, Part C, §11.
public struct ADStructure: BitwiseCopyable, Sendable {
  public var type: ADType
  public var data: Octets
}

/// What was wrong with advertising data. Everything before the fault was decoded.
public enum ADFault: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// The structure at `offset` claims `needed` octets; `available` are left.
  case overrun(offset: Int, needed: Int, available: Int)
  /// A zero length ends the data (Vol 3, Part C, §11), but octets other than zero follow at `offset`.
  case dataAfterEnd(offset: Int)
  /// The data of the structure at `offset` has a length that its type cannot have: `AdvertisingData.other` keeps it.
  case malformed(offset: Int, type: ADType)

  public var description: String {
    switch self {
    case .overrun(let offset, let needed, let available):
      "the structure at octet \(offset) needs \(needed) octets and \(available) are left"
    case .dataAfterEnd(let offset): "the data ended with a zero length, and octet \(offset) is not zero"
    case .malformed(let offset, let type): "the \(type) at octet \(offset) has a length that this type cannot have"
    }
  }
}

/// Walks AD structures up to the first fault.
public struct ADCursor {
  private var at: Int
  private let end: Int
  public private(set) var fault: ADFault?
  public init(_ data: Octets) {
    at = Int(data.offset)
    end = at + Int(data.count)
  }
  /// The next structure, or nil at the end or at a fault. `packet` contains the data.
  public mutating func next(in packet: Span<UInt8>) -> ADStructure? {
    guard fault == nil, at < end else { return nil }
    let length = Int(packet[at])
    if length == 0 {
      // Early termination: the rest is the non-significant part, which is all zeros.
      for index in at..<end where packet[index] != 0 {
        fault = .dataAfterEnd(offset: index)
        break
      }
      at = end
      return nil
    }
    guard at + 1 + length <= end else {
      fault = .overrun(offset: at, needed: 1 + length, available: end - at)
      return nil
    }
    let structure = ADStructure(type: ADType(rawValue: packet[at + 1]), data: Octets(at + 2, length - 1))
    at += 1 + length
    return structure
  }
}

/// The data that a device advertises: advertising data and scan response data, joined.
///
/// One value for both directions: `init(decoding:)` and `merge` decode it, `structures()` and `AdvertisingPacker`
/// encode it. The values of most devices have properties here; `ADValues.swift` has properties for the other assigned
/// types, which are kept in `other`, as are unknown types. `Structure.list(decoding:)` returns the structures
/// unchanged.
public struct AdvertisingData: Sendable, Hashable {
  /// The Flags AD type, Supplement Part A, §1.3. Nil when absent. Flags of several octets, which no edition defines,
  /// are kept in `other`.
  public var flags: UInt8?
  /// The name's octets, as on the wire: they may not be UTF-8, and a name that was cut may end within a character.
  public var localNameOctets: [UInt8]?
  /// True when the name was cut to fit (Shortened Local Name).
  public var isNameShortened = false
  public var serviceUUIDs: [BluetoothUUID] = []
  public var solicitedServiceUUIDs: [BluetoothUUID] = []
  public var serviceData: [ServiceData] = []
  /// Each entry: company identifier (two octets, little-endian) and data, as on the wire.
  public var manufacturerDataList: [[UInt8]] = []
  /// In dBm.
  public var txPowerLevel: Int8?
  public var appearance: UInt16?
  /// Structures of other types, and malformed ones of the types above, unchanged.
  public var other: [Structure] = []
  /// The first fault; nil if there was none.
  public private(set) var fault: ADFault?

  /// Octets that are not UTF-8 read as U+FFFD; see `localNameOctets`.
  public var localName: String? {
    get { localNameOctets.map { String(decoding: $0, as: UTF8.self) } }
    set { localNameOctets = newValue.map { Array($0.utf8) } }
  }
  /// The first manufacturer's data; the setter replaces all of them.
  public var manufacturerData: [UInt8]? {
    get { manufacturerDataList.first }
    set { manufacturerDataList = newValue.map { [$0] } ?? [] }
  }
  /// The service UUIDs of an iOS device that exceeded its advertisement, or belong to its apps in the background.
  public var overflowArea: OverflowArea? {
    manufacturerDataList.lazy.compactMap(OverflowArea.init(manufacturerData:)).first
  }

  public struct ServiceData: Sendable, Hashable {
    public var uuid: BluetoothUUID
    public var data: [UInt8]
    public init(uuid: BluetoothUUID, data: [UInt8]) {
      self.uuid = uuid
      self.data = data
    }
  }
  /// One AD structure with its own bytes.
  public struct Structure: Sendable, Hashable {
    public var type: ADType
    /// At most 254 octets.
    public var data: [UInt8]
    public init(type: ADType, data: [UInt8]) {
      self.type = type
      self.data = data
    }
    /// Octets on the wire: length, type, data.
    public var count: Int { 2 + data.count }
    /// The octets on the wire.
    public var octets: [UInt8] { [UInt8(truncatingIfNeeded: data.count + 1), type.rawValue] + data }
    /// The structures of `bytes`, in order, up to the first fault.
    public static func list(decoding bytes: Span<UInt8>) -> (structures: [Structure], fault: ADFault?) {
      var cursor = ADCursor(Octets(0, bytes.count)), structures: [Structure] = []
      while let next = cursor.next(in: bytes) {
        structures.append(Structure(type: next.type, data: next.data.range.map { bytes[$0] }))
      }
      return (structures, cursor.fault)
    }
  }

  /// LE General Discoverable Mode, BR/EDR not supported: the flags of a connectable LE-only device.
  public static var generalDiscoverableFlags: UInt8 { 0x06 }

  public init(
    localName: String? = nil, serviceUUIDs: [BluetoothUUID] = [],
    flags: UInt8? = AdvertisingData.generalDiscoverableFlags
  ) {
    self.serviceUUIDs = serviceUUIDs
    self.flags = flags
    self.localName = localName
  }
  /// Decodes everything but faulty data, which `fault` describes.
  public init(decoding bytes: Span<UInt8>) {
    self.init(flags: nil)
    merge(bytes)
  }

  // MARK: Reading

  /// Adds the structures of `bytes`, for example of a scan response: single values are replaced, lists grow.
  public mutating func merge(_ bytes: Span<UInt8>) {
    let (structures, fault) = Structure.list(decoding: bytes)
    var offset = 0
    for structure in structures {
      if !add(structure), self.fault == nil { self.fault = .malformed(offset: offset, type: structure.type) }
      offset += structure.count
    }
    if self.fault == nil { self.fault = fault }
  }

  /// Adds the values of the scan response to this advertisement. A type that may occur several times in a block may
  /// occur in both (Supplement, Part A, §1): manufacturer data of one company (§1.4) and service data of one UUID
  /// (§1.11) are all kept, in their order on the air; only a value that is there already is not repeated. Of a type
  /// with one value the advertisement's prevails, except that a complete name replaces a shortened one.
  public mutating func join(_ response: AdvertisingData) {
    if localNameOctets == nil || (isNameShortened && !response.isNameShortened && response.localNameOctets != nil) {
      localNameOctets = response.localNameOctets
      isNameShortened = response.isNameShortened
    }
    flags = flags ?? response.flags
    txPowerLevel = txPowerLevel ?? response.txPowerLevel
    appearance = appearance ?? response.appearance
    serviceUUIDs += response.serviceUUIDs.filter { !serviceUUIDs.contains($0) }
    solicitedServiceUUIDs += response.solicitedServiceUUIDs.filter { !solicitedServiceUUIDs.contains($0) }
    serviceData += response.serviceData.filter { !serviceData.contains($0) }
    manufacturerDataList += response.manufacturerDataList.filter { !manufacturerDataList.contains($0) }
    other += response.other.filter { !other.contains($0) }
    fault = fault ?? response.fault
  }

  /// Returns false for a length that is invalid for the type; the structure then goes into `other`.
  private mutating func add(_ structure: Structure) -> Bool {
    let data = structure.data
    guard structure.type.accepts(octets: data.count) else {
      other.append(structure)
      return false
    }
    switch structure.type {
    case .flags where data.count == 1: flags = data[0]
    case .shortenedLocalName, .completeLocalName:
      // A shortened name does not replace a complete one.
      if structure.type == .shortenedLocalName && localNameOctets != nil && !isNameShortened { return true }
      localNameOctets = data
      isNameShortened = structure.type == .shortenedLocalName
    case .txPowerLevel: txPowerLevel = Int8(bitPattern: data[0])
    case .appearance: appearance = UInt16(number(data))
    case .manufacturerData: manufacturerDataList.append(data)
    default:
      if let width = structure.type.serviceDataWidth {
        serviceData.append(
          ServiceData(uuid: BluetoothUUID(littleEndian: data.prefix(width)), data: Array(data.dropFirst(width))))
      } else if let list = structure.type.uuidList, !data.isEmpty {
        for uuid in list.uuids(data) {
          switch list.kind {
          case .services: if !serviceUUIDs.contains(uuid) { serviceUUIDs.append(uuid) }
          case .solicited: if !solicitedServiceUUIDs.contains(uuid) { solicitedServiceUUIDs.append(uuid) }
          }
        }
      } else {
        other.append(structure)
      }
    }
    return true
  }

  // MARK: Writing

  /// The AD structures in the order of placement: those that scanners filter by come first, the name last, because it
  /// can be shortened to the remaining room. Lists are marked complete; UUIDs have their shortest form, 16, 32 or 128
  /// bits.
  public func structures() -> [Structure] {
    var result: [Structure] = []
    func add(_ type: ADType, _ data: [UInt8]) { result.append(Structure(type: type, data: data)) }
    if let flags { add(.flags, [flags]) }
    result += UUIDListKind.services.structures(serviceUUIDs) + UUIDListKind.solicited.structures(solicitedServiceUUIDs)
    if let txPowerLevel { add(.txPowerLevel, [UInt8(bitPattern: txPowerLevel)]) }
    if let appearance { add(.appearance, octets(UInt64(appearance), 2)) }
    for entry in serviceData {
      let uuid = entry.uuid.littleEndian
      add(.serviceData(width: uuid.count), uuid + entry.data)
    }
    for entry in manufacturerDataList { add(.manufacturerData, entry) }
    result += other
    if let localNameOctets { add(isNameShortened ? .shortenedLocalName : .completeLocalName, localNameOctets) }
    return result
  }
}

// MARK: Octets

/// The two kinds of lists of UUIDs. Supplement, Part A, §1.1 and §1.10.
enum UUIDListKind: BitwiseCopyable, CaseIterable {
  case services, solicited

  /// A list's UUIDs have one width: 2, 4 or 16 octets. Only lists of services have an incomplete form.
  func type(width: Int, isComplete: Bool = true) -> ADType {
    switch (self, width) {
    case (.services, 2): isComplete ? .completeServiceUUIDs16 : .incompleteServiceUUIDs16
    case (.services, 4): isComplete ? .completeServiceUUIDs32 : .incompleteServiceUUIDs32
    case (.services, _): isComplete ? .completeServiceUUIDs128 : .incompleteServiceUUIDs128
    case (.solicited, 2): .solicitationUUIDs16
    case (.solicited, 4): .solicitationUUIDs32
    case (.solicited, _): .solicitationUUIDs128
    }
  }
  func structures(_ uuids: [BluetoothUUID]) -> [AdvertisingData.Structure] {
    [2, 4, 16].compactMap { width in
      let data = uuids.filter { $0.width == width }.flatMap { $0.littleEndian }
      return data.isEmpty ? nil : AdvertisingData.Structure(type: type(width: width), data: data)
    }
  }
}

extension ADType {
  /// The kind of a list of UUIDs, and their width.
  struct UUIDList: BitwiseCopyable {
    var kind: UUIDListKind
    var width: Int
    func uuids(_ data: [UInt8]) -> [BluetoothUUID] {
      stride(from: 0, to: data.count, by: width).map {
        BluetoothUUID(littleEndian: data[$0..<min($0 + width, data.count)])
      }
    }
  }
  var uuidList: UUIDList? {
    switch self {
    case .incompleteServiceUUIDs16, .completeServiceUUIDs16: UUIDList(kind: .services, width: 2)
    case .incompleteServiceUUIDs32, .completeServiceUUIDs32: UUIDList(kind: .services, width: 4)
    case .incompleteServiceUUIDs128, .completeServiceUUIDs128: UUIDList(kind: .services, width: 16)
    case .solicitationUUIDs16: UUIDList(kind: .solicited, width: 2)
    case .solicitationUUIDs32: UUIDList(kind: .solicited, width: 4)
    case .solicitationUUIDs128: UUIDList(kind: .solicited, width: 16)
    default: nil
    }
  }
  var serviceDataWidth: Int? {
    switch self {
    case .serviceData16: 2
    case .serviceData32: 4
    case .serviceData128: 16
    default: nil
    }
  }
  static func serviceData(width: Int) -> ADType {
    width == 2 ? .serviceData16 : width == 4 ? .serviceData32 : .serviceData128
  }
}

extension BluetoothUUID {
  /// Octets in AD structures, which also have 32-bit UUIDs: 2, 4 or 16.
  var width: Int { shortValue.map { $0 <= 0xFFFF ? 2 : 4 } ?? 16 }
  /// In the shortest form.
  var littleEndian: [UInt8] { shortValue.map { octets(UInt64($0), width) } ?? octets(low, 8) + octets(high, 8) }
  /// Of 2, 4 or 16 octets.
  init(littleEndian data: ArraySlice<UInt8>) {
    switch data.count {
    case 2: self = .short(UInt16(number(data)))
    case 4: self.init(UInt32(number(data)))
    default: self = .long(low: number(data.prefix(8)), high: number(data.dropFirst(8)))
    }
  }
}

/// Least significant octet first; of more than eight octets the first eight count.
func number(_ data: some Collection<UInt8>) -> UInt64 { data.prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) } }
/// Least significant octet first.
func octets(_ value: UInt64, _ width: Int) -> [UInt8] {
  (0..<width).map { UInt8(truncatingIfNeeded: value >> UInt64(8 * $0)) }
}
