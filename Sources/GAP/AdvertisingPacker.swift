import BindruneWire

/// Places advertised data, octet by octet: a pure function of the data, the policy and the controller's abilities. It
/// drops nothing silently: `PackedAdvertisement` has the placement of every item.
///
///     let packed = AdvertisingPacker(.coreBluetooth).pack(AdvertisingData(localName: "Fred", serviceUUIDs: ["C007"]))
///     packed.payloads.advertising  // 02 01 06 03 03 07 C0 05 09 46 72 65 64
public struct AdvertisingPacker: BitwiseCopyable, Sendable {
  /// Where data are sent, and which are left out. Decision 0009.
  public enum Policy: String, CaseIterable, BitwiseCopyable, Sendable {
    /// All data: by `standard` if that leaves nothing out (a name may be shortened), because every scanner hears legacy
    /// PDUs; else by `extended`. A host refuses to advertise data that exceed both, except for flags of a set that is
    /// not connectable.
    case everything
    /// As an iPhone advertises: flags, then 28 octets for service UUIDs in the caller's order and the name. UUIDs that
    /// do not fit go into the overflow area in the scan response, and up to 10 octets of the name, 8 beside the
    /// overflow area. In the background the name is omitted, and all UUIDs are in the overflow area in the advertising
    /// data.
    case coreBluetooth
    /// Legacy PDUs: 31 octets and, except for `nonconnectable`, 31 of scan response, any AD type.
    case standard
    /// Extended PDUs: up to the controller's limit, any AD type. By `standard` if the controller has none.
    case extended
  }
  public var policy: Policy
  public var kind: AdvertisingParameters.Kind
  /// The controller's limit of octets in extended PDUs; nil if it has none.
  public var longestExtended: Int?

  public init(_ policy: Policy, kind: AdvertisingParameters.Kind = .connectable, longestExtended: Int? = nil) {
    self.policy = policy
    self.kind = kind
    self.longestExtended = longestExtended
  }

  /// The data that one application advertises.
  public struct Source: Sendable, Hashable {
    public var data: AdvertisingData
    /// Whether the application is in the background; relevant to `Policy.coreBluetooth` only.
    public var isInBackground: Bool
    public init(_ data: AdvertisingData, isInBackground: Bool = false) {
      self.data = data
      self.isInBackground = isInBackground
    }
  }

  public func pack(_ data: AdvertisingData, isInBackground: Bool = false) -> PackedAdvertisement {
    pack([Source(data, isInBackground: isInBackground)])
  }

  /// Several applications' data in one advertisement: best effort, deterministic and fair.
  ///
  /// The applications take turns in the given order, an item each: first its service UUIDs, in its own order, then its
  /// solicited services, then its other data, its name last; earlier items take precedence. An item that several
  /// applications share is sent once. Flags, TX power, appearance and name can be sent only once: the first
  /// application's value is sent, applications in the foreground first, and the others are left out as `.alreadySaid`.
  ///
  /// Under `.coreBluetooth` the UUIDs of applications in the background go to the overflow area, which lies in the
  /// advertising data when all are in the background, else in the scan response. `PackedAdvertisement.placements(of:)`
  /// returns the placements of one application's items.
  public func pack(_ sources: [Source]) -> PackedAdvertisement {
    let items = Items(sources)
    switch policy {
    case .coreBluetooth: return packAsCoreBluetooth(items, isInBackground: sources.allSatisfy({ $0.isInBackground }))
    case .standard: return packLegacy(items)
    case .extended: return longestExtended.map { packExtended(items, longest: $0) } ?? packLegacy(items)
    case .everything:
      let legacy = packLegacy(items)
      guard let longestExtended, !legacy.missed.isEmpty else { return legacy }
      let extended = packExtended(items, longest: longestExtended)
      return extended.missed.count < legacy.missed.count ? extended : legacy
    }
  }

  // MARK: Policies

  private func packAsCoreBluetooth(_ items: Items, isInBackground: Bool) -> PackedAdvertisement {
    var packed = PackedAdvertisement(advertising: 31, scanResponse: kind == .nonconnectable ? 0 : 31)
    // An iPhone always sends flags, whatever the application passes.
    let flags = items.flags ?? .init(type: .flags, data: [AdvertisingData.generalDiscoverableFlags])
    packed.put(flags, in: .advertising, items.flags.map { [.structure($0)] } ?? [])
    for structure in items.structures { packed.leaveOut(.structure(structure), .notInThisPolicy) }

    var chosen: [BluetoothUUID] = [], overflow: [BluetoothUUID] = [], room = packed.room(.advertising)
    for uuid in items.serviceUUIDs {
      let cost = uuid.width + (chosen.contains { $0.width == uuid.width } ? 0 : 2)
      if !items.isInBackground(.serviceUUID(uuid)), cost <= room {
        chosen.append(uuid)
        room -= cost
      } else {
        overflow.append(uuid)
      }
    }
    for uuid in items.solicitedUUIDs { packed.leaveOut(.solicitedServiceUUID(uuid), .notInThisPolicy) }
    // A list is incomplete if UUIDs of its own width overflow. Supplement, Part A, §1.1.
    for width in [2, 4, 16] {
      packed.putList(
        .services, chosen.filter { $0.width == width }, in: .advertising,
        isComplete: !overflow.contains { $0.width == width })
    }
    if !overflow.isEmpty {
      let area = AdvertisingData.Structure(type: .manufacturerData, data: OverflowArea(overflow).manufacturerData)
      let place: PackedAdvertisement.Place = isInBackground ? .advertising : .scanResponse
      let overflowItems = overflow.map(AdvertisingItem.serviceUUID)
      if area.count <= packed.room(place) {
        packed.put(area, in: place, overflowItems, .overflow(place))
      } else {
        for item in overflowItems {
          packed.leaveOut(item, .noRoom(needed: area.count, available: packed.room(place)))
        }
      }
    }
    if let name = items.name {
      if items.isInBackground(.structure(name)) {
        packed.leaveOut(.structure(name), .inBackground)
      } else if name.shortened(to: packed.room(.advertising)) != nil {
        packed.putName(name, in: .advertising, room: packed.room(.advertising))
      } else {
        packed.putName(name, in: .scanResponse, room: min(packed.room(.scanResponse), 12))
      }
    }
    packed.leaveOut(items)
    return packed
  }

  /// Places each structure whole into the advertising data if it fits, else into the scan response; a list that fits
  /// neither is split. Vol 4, Part E, §7.8.7 and §7.8.8: 31 octets each.
  private func packLegacy(_ items: Items) -> PackedAdvertisement {
    var packed = PackedAdvertisement(advertising: 31, scanResponse: kind == .nonconnectable ? 0 : 31)
    packed.put(items, in: [.advertising, .scanResponse])
    return packed
  }
  /// Places everything in one payload: connectable extended advertisements have no scan response, scannable ones have
  /// only that (Vol 4, Part E, §7.8.53). Connectable ones have it all in AUX_ADV_IND, where AdvMode, flags, AdvA and
  /// ADI leave 245 octets of 255 (§7.8.56; Vol 6, Part B, §2.3.4).
  private func packExtended(_ items: Items, longest: Int) -> PackedAdvertisement {
    let longest = kind == .connectable ? min(longest, 245) : longest
    var packed =
      kind == .scannable
      ? PackedAdvertisement(advertising: 0, scanResponse: longest, usesLegacyPDUs: false)
      : PackedAdvertisement(advertising: longest, scanResponse: 0, usesLegacyPDUs: false)
    packed.put(items, in: [kind == .scannable ? .scanResponse : .advertising])
    return packed
  }
}

/// One piece of an application's data: a UUID of a list, or an AD structure.
public enum AdvertisingItem: Sendable, Hashable, CustomStringConvertible {
  case serviceUUID(BluetoothUUID)
  case solicitedServiceUUID(BluetoothUUID)
  /// Flags, name, data and all else; a name with its full length.
  case structure(AdvertisingData.Structure)

  public var description: String {
    switch self {
    case .serviceUUID(let uuid): "service \(uuid)"
    case .solicitedServiceUUID(let uuid): "solicited service \(uuid)"
    case .structure(let structure):
      switch structure.type {
      case .completeLocalName, .shortenedLocalName: "name"
      case .manufacturerData: "manufacturer data"
      case .serviceData16, .serviceData32, .serviceData128: "service data"
      case .flags: "flags"
      default: structure.type.description
      }
    }
  }
}

/// What goes on the air, and the placement of every item.
public struct PackedAdvertisement: Sendable, Hashable {
  public enum Place: BitwiseCopyable, Sendable, Hashable { case advertising, scanResponse }
  public enum Fate: BitwiseCopyable, Sendable, Hashable {
    case whole(Place)
    /// The name is sent with this many octets.
    case shortened(Place, octets: Int)
    /// A bit of the overflow area represents the UUID.
    case overflow(Place)
    case leftOut(Reason)
  }
  public enum Reason: BitwiseCopyable, Sendable, Hashable, CustomStringConvertible {
    /// The item needs this many octets, and at most this many are free in one place; of a UUID: in its list.
    case noRoom(needed: Int, available: Int)
    /// The policy sends only a name and services.
    case notInThisPolicy
    /// The name is not sent in the background.
    case inBackground
    /// A scan response cannot carry flags, and scannable extended advertisements have nothing else. Only connectable
    /// ones must send flags. Supplement, Part A, §1.3.
    case notInScanResponse
    /// Only one item of this kind can be sent, and an earlier one was.
    case alreadySaid
    /// The type has no data of this length: no scanner could decode it.
    case malformed

    /// A predicate for the item: "needs 4 octets and 2 are free".
    public var description: String {
      switch self {
      case .noRoom(let needed, let available):
        "needs \(needed) octets and \(available == 1 ? "1 is" : "\(available) are") free"
      case .notInThisPolicy: "is not sent by this policy, which sends a name and services"
      case .inBackground: "is not sent in the background"
      case .notInScanResponse: "cannot be in a scan response"
      case .alreadySaid: "is not sent, since another one is"
      case .malformed: "has a length that its type cannot have"
      }
    }
  }
  public struct Placement: Sendable, Hashable {
    public var item: AdvertisingItem
    public var fate: Fate
  }
  public struct LeftOut: Sendable, Hashable, CustomStringConvertible {
    public var item: AdvertisingItem
    public var reason: Reason
    public var description: String { "\(item) \(reason)" }
  }

  /// The structures of the advertising data, in wire order.
  public private(set) var advertising: [AdvertisingData.Structure] = []
  public private(set) var scanResponse: [AdvertisingData.Structure] = []
  /// Legacy PDUs, which every scanner hears; else the extended PDUs of Bluetooth 5.
  public let usesLegacyPDUs: Bool
  /// Every item of the input, once, and its placement.
  public private(set) var placements: [Placement] = []
  private let advertisingCapacity: Int
  private let scanResponseCapacity: Int

  public var payloads: AdvertisingPayloads {
    AdvertisingPayloads(
      advertising: advertising.flatMap { $0.octets }, scanResponse: scanResponse.flatMap { $0.octets },
      usesLegacyPDUs: usesLegacyPDUs)
  }
  /// The UUIDs in the overflow area.
  public var overflow: [BluetoothUUID] {
    placements.compactMap {
      if case .serviceUUID(let uuid) = $0.item, case .overflow = $0.fate { uuid } else { nil }
    }
  }
  public var isNameShortened: Bool { placements.contains { if case .shortened = $0.fate { true } else { false } } }
  public var leftOut: [LeftOut] {
    placements.compactMap {
      if case .leftOut(let reason) = $0.fate { LeftOut(item: $0.item, reason: reason) } else { nil }
    }
  }
  /// The items left out against the caller's intent: only connectable devices must send flags.
  var missed: [LeftOut] { leftOut.filter { $0.reason != .notInScanResponse } }
  /// The placements of one application's items, if several applications were packed.
  public func placements(of data: AdvertisingData) -> [Placement] {
    let wanted = Set(data.items)
    return placements.filter { wanted.contains($0.item) }
  }

  // MARK: Packing

  init(advertising: Int, scanResponse: Int, usesLegacyPDUs: Bool = true) {
    advertisingCapacity = advertising
    scanResponseCapacity = scanResponse
    self.usesLegacyPDUs = usesLegacyPDUs
  }

  fileprivate func room(_ place: Place) -> Int {
    switch place {
    case .advertising: advertisingCapacity - advertising.reduce(0) { $0 + $1.count }
    case .scanResponse: scanResponseCapacity - scanResponse.reduce(0) { $0 + $1.count }
    }
  }
  /// The length octet counts the type too: 256 octets are the longest structure.
  private func roomForOne(_ place: Place) -> Int { min(room(place), 256) }

  fileprivate mutating func put(
    _ structure: AdvertisingData.Structure, in place: Place, _ items: [AdvertisingItem], _ fate: Fate? = nil
  ) {
    if place == .advertising { advertising.append(structure) } else { scanResponse.append(structure) }
    placements += items.map { Placement(item: $0, fate: fate ?? .whole(place)) }
  }
  fileprivate mutating func leaveOut(_ item: AdvertisingItem, _ reason: Reason) {
    placements.append(Placement(item: item, fate: .leftOut(reason)))
  }
  /// For UUIDs of one width. Does nothing for an empty list.
  fileprivate mutating func putList(
    _ kind: UUIDListKind, _ uuids: [BluetoothUUID], in place: Place, isComplete: Bool
  ) {
    guard let width = uuids.first?.width else { return }
    let type = kind.type(width: width, isComplete: isComplete)
    put(.init(type: type, data: uuids.flatMap { $0.littleEndian }), in: place, uuids.map(kind.item))
  }
  /// Places the whole name, else as much as fits `room` octets with the header, marked as shortened.
  fileprivate mutating func putName(_ name: AdvertisingData.Structure, in place: Place, room: Int) {
    guard let shortened = name.shortened(to: room) else {
      return leaveOut(.structure(name), .noRoom(needed: name.count, available: max(0, room)))
    }
    put(
      shortened, in: place, [.structure(name)],
      shortened == name ? nil : .shortened(place, octets: shortened.data.count))
  }
  /// Records items that were not tried.
  fileprivate mutating func leaveOut(_ items: Items) { placements += items.refused }

  /// Places every item in the first place that has room.
  fileprivate mutating func put(_ items: Items, in places: [Place]) {
    if let flags = items.flags {
      if places.contains(.advertising) {
        put(flags, inOneOf: [.advertising])
      } else {
        leaveOut(.structure(flags), .notInScanResponse)
      }
    }
    for (kind, uuids) in [(UUIDListKind.services, items.serviceUUIDs), (.solicited, items.solicitedUUIDs)] {
      for width in [2, 4, 16] { putList(kind, uuids.filter { $0.width == width }, inOneOf: places) }
    }
    for structure in items.structures { put(structure, inOneOf: places) }
    if let name = items.name {
      let place = places.first { name.count <= roomForOne($0) } ?? places.max { roomForOne($0) < roomForOne($1) }
      if let place { putName(name, in: place, room: roomForOne(place)) }
    }
    leaveOut(items)
  }
  private mutating func put(_ structure: AdvertisingData.Structure, inOneOf places: [Place]) {
    if let place = places.first(where: { structure.count <= roomForOne($0) }) {
      put(structure, in: place, [.structure(structure)])
    } else {
      leaveOut(.structure(structure), .noRoom(needed: structure.count, available: places.map(roomForOne).max() ?? 0))
    }
  }
  /// For UUIDs of one width; splits the list only if no place holds it whole.
  private mutating func putList(_ kind: UUIDListKind, _ uuids: [BluetoothUUID], inOneOf places: [Place]) {
    guard let width = uuids.first?.width else { return }
    if let place = places.first(where: { 2 + width * uuids.count <= roomForOne($0) }) {
      return putList(kind, uuids, in: place, isComplete: true)
    }
    var rest = uuids[...], free = 0
    for place in places {
      let room = roomForOne(place) - 2, part = rest.prefix(max(0, room / width))
      putList(kind, Array(part), in: place, isComplete: false)
      rest = rest.dropFirst(part.count)
      free = max(free, room - width * part.count)
    }
    for uuid in rest { leaveOut(kind.item(uuid), .noRoom(needed: width, available: free)) }
  }
}

/// All items of several applications, each once, in order of precedence.
private struct Items {
  var flags: AdvertisingData.Structure?
  var name: AdvertisingData.Structure?
  var serviceUUIDs: [BluetoothUUID] = []
  var solicitedUUIDs: [BluetoothUUID] = []
  /// All other structures.
  var structures: [AdvertisingData.Structure] = []
  /// Items that no policy sends.
  var refused: [PackedAdvertisement.Placement] = []
  /// Every item, and whether only applications in the background have it.
  private var known: [AdvertisingItem: Bool] = [:]
  private var said: Set<ADType> = []

  init(_ sources: [AdvertisingPacker.Source]) {
    let lists = sources.map { $0.data.items }
    for isInBackground in [false, true] {
      for (source, list) in zip(sources, lists) where source.isInBackground == isInBackground {
        for item in list where item.isSaidOnce { add(item, isInBackground: isInBackground) }
      }
    }
    for turn in 0..<(lists.map({ $0.count }).max() ?? 0) {
      for (source, list) in zip(sources, lists) where turn < list.count {
        add(list[turn], isInBackground: source.isInBackground)
      }
    }
  }
  func isInBackground(_ item: AdvertisingItem) -> Bool { known[item] ?? false }

  private mutating func add(_ item: AdvertisingItem, isInBackground: Bool) {
    if let earlier = known[item] {
      known[item] = earlier && isInBackground
      return
    }
    known[item] = isInBackground
    switch item {
    case .serviceUUID(let uuid): serviceUUIDs.append(uuid)
    case .solicitedServiceUUID(let uuid): solicitedUUIDs.append(uuid)
    case .structure(let structure):
      let type = structure.type == .shortenedLocalName ? .completeLocalName : structure.type
      guard type.accepts(octets: structure.data.count) else { return refuse(item, .malformed) }
      if item.isSaidOnce, !said.insert(type).inserted { return refuse(item, .alreadySaid) }
      switch type {
      case .flags: flags = structure
      case .completeLocalName: name = structure
      default: structures.append(structure)
      }
    }
  }
  private mutating func refuse(_ item: AdvertisingItem, _ reason: PackedAdvertisement.Reason) {
    refused.append(.init(item: item, fate: .leftOut(reason)))
  }
}

extension AdvertisingData {
  /// Every item once, in order of precedence: flags, UUIDs in the caller's order, the rest as in `structures()`, the
  /// name last. Lists of UUIDs in `other` count as UUIDs.
  public var items: [AdvertisingItem] {
    var seen: Set<AdvertisingItem> = [], flags: [AdvertisingItem] = [], lists: [AdvertisingItem] = []
    var rest: [AdvertisingItem] = [], names: [AdvertisingItem] = []
    func add(_ item: AdvertisingItem, to list: inout [AdvertisingItem]) {
      if seen.insert(item).inserted { list.append(item) }
    }
    for uuid in serviceUUIDs { add(.serviceUUID(uuid), to: &lists) }
    for uuid in solicitedServiceUUIDs { add(.solicitedServiceUUID(uuid), to: &lists) }
    var others = self
    others.serviceUUIDs = []
    others.solicitedServiceUUIDs = []
    for structure in others.structures() {
      switch structure.type {
      case .flags: add(.structure(structure), to: &flags)
      case .completeLocalName, .shortenedLocalName: add(.structure(structure), to: &names)
      default:
        guard let list = structure.type.uuidList, !structure.data.isEmpty,
          structure.type.accepts(octets: structure.data.count)
        else {
          add(.structure(structure), to: &rest)
          continue
        }
        for uuid in list.uuids(structure.data) { add(list.kind.item(uuid), to: &lists) }
      }
    }
    // Its own name precedes one in `other`.
    return flags + lists + rest + names.reversed()
  }
}

extension UUIDListKind {
  fileprivate func item(_ uuid: BluetoothUUID) -> AdvertisingItem {
    switch self {
    case .services: .serviceUUID(uuid)
    case .solicited: .solicitedServiceUUID(uuid)
    }
  }
}

extension AdvertisingItem {
  /// Supplement, Part A, §1: at most once in a block. TX power may repeat, but `AdvertisingData` has one.
  fileprivate var isSaidOnce: Bool {
    guard case .structure(let structure) = self else { return false }
    return [.flags, .completeLocalName, .shortenedLocalName, .appearance, .txPowerLevel].contains(structure.type)
  }
}

extension AdvertisingData.Structure {
  /// The whole name if it fits `count` octets with its header; else cut at a character boundary and marked as cut; nil
  /// if no octet of it fits. Supplement, Part A, §1.2.
  fileprivate func shortened(to count: Int) -> AdvertisingData.Structure? {
    let room = min(count, 256) - 2
    if data.count <= room { return self }
    guard room > 0 else { return nil }
    // A character of UTF-8 has at most four octets, all but its first 10xxxxxx; a longer run is not UTF-8.
    let end = (max(0, room - 3)...room).last { data[$0] & 0xC0 != 0x80 } ?? room
    return end == 0 ? nil : AdvertisingData.Structure(type: .shortenedLocalName, data: Array(data[..<end]))
  }
}

/// What is advertised, octet by octet. Vol 3, Part C, §11.
public struct AdvertisingPayloads: Sendable, Hashable {
  public var advertising: [UInt8]
  public var scanResponse: [UInt8]
  /// Legacy PDUs, which every scanner hears; else the extended PDUs of Bluetooth 5.
  public var usesLegacyPDUs: Bool
  public init(advertising: [UInt8] = [], scanResponse: [UInt8] = [], usesLegacyPDUs: Bool = true) {
    self.advertising = advertising
    self.scanResponse = scanResponse
    self.usesLegacyPDUs = usesLegacyPDUs
  }
}

public enum AdvertisingDataError: Error, Sendable, Hashable, CustomStringConvertible {
  /// The policy was `AdvertisingPacker.Policy.everything`, and these items do not fit.
  case leftOut([PackedAdvertisement.LeftOut])
  /// The caller asked for a number of events, and the host uses the legacy commands: the controller lacks the others,
  /// or the configuration prefers these.
  case extendedUnavailable

  public var description: String {
    switch self {
    case .leftOut(let items):
      "the " + items.map { $0.description }.prefix(1).joined()
        + (items.count > 1 ? ", and \(items.count - 1) more" : "")
        + "; advertise less data"
    case .extendedUnavailable:
      "this controller has no extended advertising, which a number of events needs; give a duration instead"
    }
  }
}
