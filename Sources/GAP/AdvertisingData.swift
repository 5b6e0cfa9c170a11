import BindruneWire

/// The type of an AD structure. Assigned Numbers, §2.3; formats in the Core Specification Supplement, Part A.
public struct ADType: OpenNumber, Hashable, ExpressibleByIntegerLiteral {
  public var rawValue: UInt8
  @inlinable public init(rawValue: UInt8) { self.rawValue = rawValue }
  @inlinable public init(integerLiteral value: UInt8) { rawValue = value }

  public static var flags: ADType { 0x01 }
  public static var incompleteServiceUUIDs16: ADType { 0x02 }
  public static var completeServiceUUIDs16: ADType { 0x03 }
  public static var incompleteServiceUUIDs32: ADType { 0x04 }
  public static var completeServiceUUIDs32: ADType { 0x05 }
  public static var incompleteServiceUUIDs128: ADType { 0x06 }
  public static var completeServiceUUIDs128: ADType { 0x07 }
  public static var shortenedLocalName: ADType { 0x08 }
  public static var completeLocalName: ADType { 0x09 }
  public static var txPowerLevel: ADType { 0x0A }
  public static var solicitationUUIDs16: ADType { 0x14 }
  public static var solicitationUUIDs128: ADType { 0x15 }
  public static var serviceData16: ADType { 0x16 }
  public static var appearance: ADType { 0x19 }
  public static var solicitationUUIDs32: ADType { 0x1F }
  public static var serviceData32: ADType { 0x20 }
  public static var serviceData128: ADType { 0x21 }
  public static var manufacturerData: ADType { 0xFF }
}

/// One AD structure of a packet: its type, and where its data lies. Vol 3, Part C, §11.
public struct ADStructure: BitwiseCopyable, Sendable {
  public var type: ADType
  public var data: Octets
}

/// What was wrong with advertising data; everything before it was sound and has been kept.
public enum ADFault: BitwiseCopyable, Sendable, Hashable {
  /// The structure at `offset` says that it has `needed` octets; `available` are left.
  case overrun(offset: Int, needed: Int, available: Int)
  /// A zero length ends the data (Vol 3, Part C, §11); octets other than zero follow at `offset`.
  case dataAfterEnd(offset: Int)
  /// The data of the structure at `offset` has a length that its type cannot have.
  case malformed(offset: Int, type: ADType)
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
/// One value for both directions: `init(decoding:)` and `merge` read it, `structures()` writes it.
public struct AdvertisingData: Sendable, Hashable {
  /// The Flags AD type, Supplement Part A, §1.3. Nil when absent.
  public var flags: UInt8?
  public var localName: String?
  /// True when `localName` was cut to fit (Shortened Local Name).
  public var isNameShortened = false
  public var serviceUUIDs: [BluetoothUUID] = []
  public var solicitedServiceUUIDs: [BluetoothUUID] = []
  public var serviceData: [ServiceData] = []
  /// Company identifier (two octets, little-endian) and data, as on the wire.
  public var manufacturerData: [UInt8]?
  /// dBm.
  public var txPowerLevel: Int8?
  public var appearance: UInt16?
  /// Structures of other types, kept as they came.
  public var other: [Structure] = []
  /// The first fault met; nil when all of it was sound.
  public private(set) var fault: ADFault?

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
    public var data: [UInt8]
    public init(type: ADType, data: [UInt8]) {
      self.type = type
      self.data = data
    }
    /// On the wire: length, type, data.
    public var count: Int { 2 + data.count }
  }

  /// LE General Discoverable Mode, BR/EDR not supported: what a connectable LE-only device says.
  public static var generalDiscoverableFlags: UInt8 { 0x06 }

  public init(
    localName: String? = nil, serviceUUIDs: [BluetoothUUID] = [],
    flags: UInt8? = AdvertisingData.generalDiscoverableFlags
  ) {
    self.localName = localName
    self.serviceUUIDs = serviceUUIDs
    self.flags = flags
  }
  /// Reads what is sound; `fault` says what was not.
  public init(decoding bytes: Span<UInt8>) {
    self.init(flags: nil)
    merge(bytes)
  }

  /// Adds the structures of `bytes`, a scan response for instance: single values are replaced, lists grow.
  public mutating func merge(_ bytes: Span<UInt8>) {
    var cursor = ADCursor(Octets(0, bytes.count))
    while let structure = cursor.next(in: bytes) {
      if !add(structure, in: bytes), fault == nil {
        fault = .malformed(offset: Int(structure.data.offset) - 2, type: structure.type)
      }
    }
    if fault == nil { fault = cursor.fault }
  }

  /// Takes over what `earlier` data of the same device says and this does not: a scan response comes and goes.
  public mutating func fill(from earlier: AdvertisingData) {
    if localName == nil || (isNameShortened && !earlier.isNameShortened && earlier.localName != nil) {
      localName = earlier.localName
      isNameShortened = earlier.isNameShortened
    }
    flags = flags ?? earlier.flags
    txPowerLevel = txPowerLevel ?? earlier.txPowerLevel
    appearance = appearance ?? earlier.appearance
    manufacturerData = manufacturerData ?? earlier.manufacturerData
    serviceUUIDs += earlier.serviceUUIDs.filter { !serviceUUIDs.contains($0) }
    solicitedServiceUUIDs += earlier.solicitedServiceUUIDs.filter { !solicitedServiceUUIDs.contains($0) }
    serviceData += earlier.serviceData.filter { entry in !serviceData.contains { $0.uuid == entry.uuid } }
    other += earlier.other.filter { entry in !other.contains { $0.type == entry.type } }
  }

  /// False when the data's length cannot be that of its type.
  private mutating func add(_ structure: ADStructure, in bytes: Span<UInt8>) -> Bool {
    let start = Int(structure.data.offset), count = Int(structure.data.count)
    func raw(_ from: Int) -> [UInt8] { (start + from..<start + count).map { bytes[$0] } }
    func number(_ from: Int, _ width: Int) -> UInt64 {
      (0..<width).reduce(0) { $0 | UInt64(bytes[start + from + $1]) << UInt64(8 * $1) }
    }
    func uuid(_ from: Int, _ width: Int) -> BluetoothUUID {
      switch width {
      case 2: .short(UInt16(number(from, 2)))
      case 4: BluetoothUUID(UInt32(number(from, 4)))
      default: .long(low: number(from, 8), high: number(from + 8, 8))
      }
    }
    func addUUIDs(_ width: Int, to list: inout [BluetoothUUID]) -> Bool {
      guard count % width == 0 else { return false }
      for from in stride(from: 0, to: count, by: width) where !list.contains(uuid(from, width)) {
        list.append(uuid(from, width))
      }
      return true
    }
    func addServiceData(_ width: Int) -> Bool {
      guard count >= width else { return false }
      serviceData.append(ServiceData(uuid: uuid(0, width), data: raw(width)))
      return true
    }
    switch structure.type {
    case .flags:
      guard count >= 1 else { return false }
      flags = bytes[start]
    case .incompleteServiceUUIDs16, .completeServiceUUIDs16: return addUUIDs(2, to: &serviceUUIDs)
    case .incompleteServiceUUIDs32, .completeServiceUUIDs32: return addUUIDs(4, to: &serviceUUIDs)
    case .incompleteServiceUUIDs128, .completeServiceUUIDs128: return addUUIDs(16, to: &serviceUUIDs)
    case .solicitationUUIDs16: return addUUIDs(2, to: &solicitedServiceUUIDs)
    case .solicitationUUIDs32: return addUUIDs(4, to: &solicitedServiceUUIDs)
    case .solicitationUUIDs128: return addUUIDs(16, to: &solicitedServiceUUIDs)
    case .serviceData16: return addServiceData(2)
    case .serviceData32: return addServiceData(4)
    case .serviceData128: return addServiceData(16)
    case .shortenedLocalName, .completeLocalName:
      // A complete name is not replaced by a shortened one.
      if structure.type == .shortenedLocalName && localName != nil && !isNameShortened { return true }
      localName = String(decoding: raw(0), as: UTF8.self)
      isNameShortened = structure.type == .shortenedLocalName
    case .txPowerLevel:
      guard count == 1 else { return false }
      txPowerLevel = Int8(bitPattern: bytes[start])
    case .appearance:
      guard count == 2 else { return false }
      appearance = UInt16(number(0, 2))
    case .manufacturerData:
      guard count >= 2 else { return false }
      manufacturerData = raw(0)
    default: other.append(Structure(type: structure.type, data: raw(0)))
    }
    return true
  }

  /// The AD structures in the order in which they are placed: what a scanner filters by comes first, the name last: it
  /// can be shortened to what the others leave.
  public func structures() -> [Structure] {
    var result: [Structure] = []
    func add(_ type: ADType, _ data: [UInt8]) { result.append(Structure(type: type, data: data)) }
    func octets(_ value: UInt64, _ width: Int) -> [UInt8] {
      (0..<width).map { UInt8(truncatingIfNeeded: value >> UInt64(8 * $0)) }
    }
    func octets(_ uuid: BluetoothUUID) -> [UInt8] {
      switch uuid.shortest {
      case .short(let value): octets(UInt64(value), 2)
      case .long(let low, let high): octets(low, 8) + octets(high, 8)
      }
    }
    func addUUIDs(_ list: [BluetoothUUID], _ short: ADType, _ long: ADType) {
      let encoded = list.map(octets)
      for (width, type) in [(2, short), (16, long)] {
        let data = encoded.filter { $0.count == width }.flatMap { $0 }
        if !data.isEmpty { add(type, data) }
      }
    }
    if let flags { add(.flags, [flags]) }
    addUUIDs(serviceUUIDs, .completeServiceUUIDs16, .completeServiceUUIDs128)
    addUUIDs(solicitedServiceUUIDs, .solicitationUUIDs16, .solicitationUUIDs128)
    if let txPowerLevel { add(.txPowerLevel, [UInt8(bitPattern: txPowerLevel)]) }
    if let appearance { add(.appearance, octets(UInt64(appearance), 2)) }
    for entry in serviceData {
      let uuid = octets(entry.uuid)
      add(uuid.count == 2 ? .serviceData16 : .serviceData128, uuid + entry.data)
    }
    if let manufacturerData { add(.manufacturerData, manufacturerData) }
    result += other
    if let localName { add(isNameShortened ? .shortenedLocalName : .completeLocalName, Array(localName.utf8)) }
    return result
  }

  /// What goes where, in PDUs of the kind that `parameters` ask for. `longestExtended`: the most octets that the controller
  /// takes for extended PDUs; nil: it has none.
  public func payloads(
    _ parameters: AdvertisingParameters, longestExtended: Int?
  ) throws(AdvertisingDataError) -> AdvertisingPayloads {
    guard parameters.pdus != .legacy, let longestExtended else {
      if parameters.pdus == .extended { throw .extendedUnavailable }
      return try legacyPayloads(parameters.kind)
    }
    if parameters.pdus == .automatic {
      do throws(AdvertisingDataError) { return try legacyPayloads(parameters.kind) } catch {}
    }
    return try extendedPayloads(parameters.kind, longest: longestExtended)
  }

  /// Each structure goes whole into the advertising data where it fits, else into the scan response where there is one; the
  /// name, where it fits nowhere, shortened to what is left. Vol 4, Part E, §7.8.7 and §7.8.8: 31 octets each.
  private func legacyPayloads(_ kind: AdvertisingParameters.Kind) throws(AdvertisingDataError) -> AdvertisingPayloads {
    var payloads = AdvertisingPayloads()
    for structure in structures() {
      let room = 31 - payloads.advertising.count
      // Flags belong into the advertising data: Supplement, Part A, §1.3.
      let responseRoom = kind == .nonconnectable || structure.type == .flags ? 0 : 31 - payloads.scanResponse.count
      var bytes = structure.octets
      if bytes.count > room, bytes.count > responseRoom {
        guard let shorter = structure.shortened(to: max(room, responseRoom)) else {
          throw .tooLong(structure.type, needed: bytes.count, available: max(room, responseRoom))
        }
        bytes = shorter.octets
      }
      if bytes.count <= room { payloads.advertising += bytes } else { payloads.scanResponse += bytes }
    }
    return payloads
  }
  /// All of it in one place: connectable extended advertisements have no scan response, scannable ones nothing else (Vol 4,
  /// Part E, §7.8.53). Connectable ones have it all in AUX_ADV_IND, where AdvMode, flags, AdvA and ADI leave 245 octets of
  /// 255 (§7.8.56; Vol 6, Part B, §2.3.4).
  private func extendedPayloads(
    _ kind: AdvertisingParameters.Kind, longest: Int
  ) throws(AdvertisingDataError) -> AdvertisingPayloads {
    let longest = kind == .connectable ? min(longest, 245) : longest
    var octets: [UInt8] = []
    for structure in structures() {
      // The length octet counts the type too.
      if structure.data.count > 254 { throw .tooLong(structure.type, needed: structure.count, available: 256) }
      octets += structure.octets
    }
    if octets.count > longest { throw .tooMuch(needed: octets.count, available: longest) }
    return kind == .scannable
      ? AdvertisingPayloads(scanResponse: octets, usesLegacyPDUs: false)
      : AdvertisingPayloads(advertising: octets, usesLegacyPDUs: false)
  }
}

/// What is advertised, octet by octet. Vol 3, Part C, §11.
public struct AdvertisingPayloads: Sendable, Hashable {
  public var advertising: [UInt8]
  public var scanResponse: [UInt8]
  /// Legacy PDUs, which every scanner hears; else the extended ones of Bluetooth 5.
  public var usesLegacyPDUs: Bool
  public init(advertising: [UInt8] = [], scanResponse: [UInt8] = [], usesLegacyPDUs: Bool = true) {
    self.advertising = advertising
    self.scanResponse = scanResponse
    self.usesLegacyPDUs = usesLegacyPDUs
  }
}

extension AdvertisingData.Structure {
  /// On the wire. At most 254 octets of data.
  fileprivate var octets: [UInt8] { [UInt8(truncatingIfNeeded: data.count + 1), type.rawValue] + data }
  /// A name cut to `count` octets with its header, at a character's end, and marked as cut; nil where nothing of it fits,
  /// and for everything else. Supplement, Part A, §1.2.
  fileprivate func shortened(to count: Int) -> AdvertisingData.Structure? {
    guard type == .completeLocalName || type == .shortenedLocalName else { return nil }
    var name = String(decoding: data, as: UTF8.self)
    while 2 + name.utf8.count > count, !name.isEmpty { name.removeLast() }
    return name.isEmpty ? nil : AdvertisingData.Structure(type: .shortenedLocalName, data: Array(name.utf8))
  }
}

extension ADType {
  fileprivate var words: String {
    switch self {
    case .completeServiceUUIDs16, .completeServiceUUIDs128: "the list of services"
    case .completeLocalName, .shortenedLocalName: "the name"
    case .manufacturerData: "the manufacturer data"
    case .serviceData16, .serviceData128: "the service data"
    default: "AD structure \(text)"
    }
  }
}

public enum AdvertisingDataError: Error, Sendable, Hashable, CustomStringConvertible {
  /// A structure of `needed` octets fits neither the advertising data nor the scan response.
  case tooLong(ADType, needed: Int, available: Int)
  /// All structures together have `needed` octets; in one place there are `available`.
  case tooMuch(needed: Int, available: Int)
  /// Extended PDUs or a number of events were asked for, and the host goes by the legacy commands: the controller lacks the
  /// others, or the configuration prefers these.
  case extendedUnavailable

  public var description: String {
    switch self {
    case .tooLong(let type, let needed, let available):
      "\(type.words) needs \(needed) octets and \(available) are free; advertise less data"
    case .tooMuch(let needed, let available):
      "it needs \(needed) octets and one advertisement of this controller has \(available); advertise less data"
    case .extendedUnavailable: "this controller has no extended advertising; advertise with legacy PDUs"
    }
  }
}
