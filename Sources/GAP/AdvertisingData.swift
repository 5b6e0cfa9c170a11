import BindruneWire

/// One AD structure of a packet: its type, and where its data lies. Vol 3, Part C, §11.
public struct ADStructure: BitwiseCopyable, Sendable {
  public var type: ADType
  public var data: Octets
}

/// What was wrong with advertising data; everything before it was sound and has been kept.
public enum ADFault: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
  /// The structure at `offset` says that it has `needed` octets; `available` are left.
  case overrun(offset: Int, needed: Int, available: Int)
  /// A zero length ends the data (Vol 3, Part C, §11); octets other than zero follow at `offset`.
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

/// Walks AD structures as far as they are sound.
public struct ADCursor {
  private var at: Int
  private let end: Int
  public private(set) var fault: ADFault?
  public init(_ data: Octets) {
    at = Int(data.offset)
    end = at + Int(data.count)
  }
  /// The next structure, or nil at the end or at a fault. `packet` is the packet the data lies in.
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

/// What a device says about itself: the advertising data and scan response data, joined.
///
/// One value for both directions: `init(decoding:)` and `merge` read it, `structures()` and `AdvertisingPacker` write it.
/// The values of most devices have properties of their own; those of the other types are read and written in `other` by
/// the properties of `ADValues.swift`, and nothing is lost of types that nobody knows. `Structure.list(decoding:)` is for who
/// wants the structures as they came.
public struct AdvertisingData: Sendable, Hashable {
  /// The Flags AD type, Supplement Part A, §1.3. Nil when absent. Flags of several octets, which no edition defines, are in
  /// `other`.
  public var flags: UInt8?
  /// The name's octets, as on the wire: they need not be UTF-8, and a name that was cut may end within a character.
  public var localNameOctets: [UInt8]?
  /// True when the name was cut to fit (Shortened Local Name).
  public var isNameShortened = false
  public var serviceUUIDs: [BluetoothUUID] = []
  public var solicitedServiceUUIDs: [BluetoothUUID] = []
  public var serviceData: [ServiceData] = []
  /// Each: company identifier (two octets, little-endian) and data, as on the wire.
  public var manufacturerDataList: [[UInt8]] = []
  /// dBm.
  public var txPowerLevel: Int8?
  public var appearance: UInt16?
  /// Structures of other types, and those of the types above that these cannot hold, kept as they came.
  public var other: [Structure] = []
  /// The first fault met; nil when all of it was sound.
  public private(set) var fault: ADFault?

  /// What is not UTF-8 in it reads U+FFFD; see `localNameOctets`.
  public var localName: String? {
    get { localNameOctets.map { String(decoding: $0, as: UTF8.self) } }
    set { localNameOctets = newValue.map { Array($0.utf8) } }
  }
  /// The first manufacturer's; setting it replaces all of them.
  public var manufacturerData: [UInt8]? {
    get { manufacturerDataList.first }
    set { manufacturerDataList = newValue.map { [$0] } ?? [] }
  }
  /// The service UUIDs of an iOS device that did not fit, or of its apps in the background.
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
    /// At most 254 octets go on the wire.
    public var data: [UInt8]
    public init(type: ADType, data: [UInt8]) {
      self.type = type
      self.data = data
    }
    /// On the wire: length, type, data.
    public var count: Int { 2 + data.count }
    /// On the wire.
    public var octets: [UInt8] { [UInt8(truncatingIfNeeded: data.count + 1), type.rawValue] + data }
    /// The structures of `bytes` one after another, as far as they are sound, and what ended that.
    public static func list(decoding bytes: Span<UInt8>) -> (structures: [Structure], fault: ADFault?) {
      var cursor = ADCursor(Octets(0, bytes.count)), structures: [Structure] = []
      while let next = cursor.next(in: bytes) {
        structures.append(Structure(type: next.type, data: next.data.range.map { bytes[$0] }))
      }
      return (structures, cursor.fault)
    }
  }

  /// LE General Discoverable Mode, BR/EDR not supported: what a connectable LE-only device says.
  public static var generalDiscoverableFlags: UInt8 { 0x06 }

  public init(
    localName: String? = nil, serviceUUIDs: [BluetoothUUID] = [],
    flags: UInt8? = AdvertisingData.generalDiscoverableFlags
  ) {
    self.serviceUUIDs = serviceUUIDs
    self.flags = flags
    self.localName = localName
  }
  /// Reads what is sound; `fault` says what was not.
  public init(decoding bytes: Span<UInt8>) {
    self.init(flags: nil)
    merge(bytes)
  }

  // MARK: Reading

  /// Adds the structures of `bytes`, a scan response for instance: single values are replaced, lists grow.
  public mutating func merge(_ bytes: Span<UInt8>) {
    let (structures, fault) = Structure.list(decoding: bytes)
    var offset = 0
    for structure in structures {
      if !add(structure), self.fault == nil { self.fault = .malformed(offset: offset, type: structure.type) }
      offset += structure.count
    }
    if self.fault == nil { self.fault = fault }
  }

  /// Takes over what `earlier` data of the same device says and this does not: a scan response comes and goes.
  public mutating func fill(from earlier: AdvertisingData) {
    if localNameOctets == nil || (isNameShortened && !earlier.isNameShortened && earlier.localNameOctets != nil) {
      localNameOctets = earlier.localNameOctets
      isNameShortened = earlier.isNameShortened
    }
    flags = flags ?? earlier.flags
    txPowerLevel = txPowerLevel ?? earlier.txPowerLevel
    appearance = appearance ?? earlier.appearance
    serviceUUIDs += earlier.serviceUUIDs.filter { !serviceUUIDs.contains($0) }
    solicitedServiceUUIDs += earlier.solicitedServiceUUIDs.filter { !solicitedServiceUUIDs.contains($0) }
    serviceData += earlier.serviceData.filter { entry in !serviceData.contains { $0.uuid == entry.uuid } }
    // Of one company the newer ones count.
    manufacturerDataList += earlier.manufacturerDataList.filter { entry in
      !manufacturerDataList.contains { $0.prefix(2) == entry.prefix(2) }
    }
    other += earlier.other.filter { entry in !other.contains { $0.type == entry.type } }
  }

  /// False when the data's length cannot be that of its type; kept in `other` then.
  private mutating func add(_ structure: Structure) -> Bool {
    let data = structure.data
    guard structure.type.accepts(octets: data.count) else {
      other.append(structure)
      return false
    }
    switch structure.type {
    case .flags where data.count == 1: flags = data[0]
    case .shortenedLocalName, .completeLocalName:
      // A complete name is not replaced by a shortened one.
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

  /// The AD structures in the order in which they are placed: what a scanner filters by comes first, the name last: it
  /// can be shortened to what the others leave. Lists are called complete; UUIDs have their shortest form, 16, 32 or 128 bits.
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

  /// A list's UUIDs have one width: 2, 4 or 16 octets. Only lists of services can say that they are not complete.
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
      let data = uuids.filter { $0.width == width }.flatMap(\.littleEndian)
      return data.isEmpty ? nil : AdvertisingData.Structure(type: type(width: width), data: data)
    }
  }
}

extension ADType {
  /// Of a list of UUIDs: what kind, and how wide they are.
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
  /// Octets in AD structures, which have UUIDs of 32 bits too: 2, 4 or 16.
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
