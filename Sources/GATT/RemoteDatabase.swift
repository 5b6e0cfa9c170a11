import BindruneATT
import BindruneWire

/// Handles from `first` to `last`, both included. 1 ≤ first ≤ last; the client passes any range on, and the server
/// refuses an invalid one with 0x01. Vol 3, Part F, §3.4.3.1.
public struct HandleRange: BitwiseCopyable, Sendable, Hashable {
  public var first: AttributeHandle
  public var last: AttributeHandle
  @inlinable public init(_ first: AttributeHandle, _ last: AttributeHandle) {
    self.first = first
    self.last = last
  }
  init(raw first: Int, _ last: Int) {
    self.init(AttributeHandle(rawValue: UInt16(clamping: first)), AttributeHandle(rawValue: UInt16(clamping: last)))
  }
  /// 0x0001 to 0xFFFF.
  @inlinable public static var all: HandleRange {
    HandleRange(AttributeHandle(rawValue: 0x0001), AttributeHandle(rawValue: 0xFFFF))
  }
  @inlinable public func contains(_ handle: AttributeHandle) -> Bool {
    first.rawValue <= handle.rawValue && handle.rawValue <= last.rawValue
  }
  var count: Int { Int(last.rawValue) - Int(first.rawValue) + 1 }
  func overlaps(_ other: HandleRange) -> Bool {
    first.rawValue <= other.last.rawValue && other.first.rawValue <= last.rawValue
  }
  /// The least range that holds both.
  public func union(_ other: HandleRange) -> HandleRange {
    HandleRange(
      raw: Int(min(first.rawValue, other.first.rawValue)), Int(max(last.rawValue, other.last.rawValue)))
  }
  var isValid: Bool { first.rawValue > 0 && first.rawValue <= last.rawValue }
  public func hash(into hasher: inout Hasher) {
    hasher.combine(first.rawValue)
    hasher.combine(last.rawValue)
  }
}

/// A service of the server. Vol 3, Part G, §3.1.
public struct RemoteService: BitwiseCopyable, Sendable, Hashable {
  public var handle: AttributeHandle
  /// The last handle of the service's group.
  public var endHandle: AttributeHandle
  public var uuid: BluetoothUUID
  /// False for a service that is only included by others, or known only from an include.
  public var isPrimary: Bool
  public var range: HandleRange { HandleRange(handle, endHandle) }
  public func hash(into hasher: inout Hasher) { hasher.combine(handle.rawValue) }
}

/// "This service includes that one." Vol 3, Part G, §3.2.
public struct RemoteInclude: BitwiseCopyable, Sendable, Hashable {
  public var handle: AttributeHandle
  /// The included service's declaration and the end of its group.
  public var serviceHandle: AttributeHandle
  public var endHandle: AttributeHandle
  /// `nil` when neither the include nor the service's own declaration contains it.
  public var uuid: BluetoothUUID?
  public func hash(into hasher: inout Hasher) { hasher.combine(handle.rawValue) }
}

/// A characteristic of the server. Vol 3, Part G, §3.3.
public struct RemoteCharacteristic: BitwiseCopyable, Sendable, Hashable {
  /// The declaration's handle.
  public var handle: AttributeHandle
  public var valueHandle: AttributeHandle
  /// The last handle that a descriptor of this characteristic can have.
  public var endHandle: AttributeHandle
  public var properties: CharacteristicProperties
  public var uuid: BluetoothUUID
  /// The client has searched `descriptorRange`.
  var isSearched = false
  /// The handles that descriptors can have, if there are any.
  public var descriptorRange: HandleRange? {
    guard valueHandle.rawValue < endHandle.rawValue else { return nil }
    return HandleRange(AttributeHandle(rawValue: valueHandle.rawValue + 1), endHandle)
  }
  /// The server has said which descriptors this characteristic has, or there is no handle for one. False: ask
  /// (`Client.discoverDescriptors`), because what its properties require may not be what is there.
  public var descriptorsAreKnown: Bool { isSearched || descriptorRange == nil }
  /// How much the client knows of a characteristic does not make it another one.
  public static func == (one: RemoteCharacteristic, other: RemoteCharacteristic) -> Bool {
    one.handle == other.handle && one.valueHandle == other.valueHandle && one.endHandle == other.endHandle
      && one.properties == other.properties && one.uuid == other.uuid
  }
  public func hash(into hasher: inout Hasher) { hasher.combine(handle.rawValue) }
}

/// A descriptor of the server. Vol 3, Part G, §3.3.3.
public struct RemoteDescriptor: BitwiseCopyable, Sendable, Hashable {
  public var handle: AttributeHandle
  public var uuid: BluetoothUUID
  public init(handle: AttributeHandle, uuid: BluetoothUUID) {
    self.handle = handle
    self.uuid = uuid
  }
  public func hash(into hasher: inout Hasher) { hasher.combine(handle.rawValue) }
}

/// What a client knows of a server's database: four lists, each in handle order. As on the server, the handles alone
/// assign a characteristic to its service and a descriptor to its characteristic.
///
///     for service in remote.services {
///       for characteristic in remote.characteristics(of: service) {
///         for descriptor in remote.descriptors(of: characteristic) { … }
///       }
///     }
public struct RemoteDatabase: Sendable, Hashable {
  public internal(set) var services: [RemoteService] = []
  public internal(set) var includes: [RemoteInclude] = []
  public internal(set) var characteristics: [RemoteCharacteristic] = []
  /// Those whose types the server has said; see `RemoteCharacteristic.descriptorsAreKnown`.
  public internal(set) var descriptors: [RemoteDescriptor] = []
  /// The Database Hash at the time of the discovery, if the server has one and the client has read it.
  public internal(set) var hash: DatabaseHash?
  /// True after `Client.discoverAll`: the whole database, not only parts of it. Types of descriptors that discovery has
  /// inferred may be missing.
  public internal(set) var isComplete = false
  public init() {}
  public var isEmpty: Bool { services.isEmpty && characteristics.isEmpty && descriptors.isEmpty }

  // MARK: From the whole to the part

  public func includes(of service: RemoteService) -> [RemoteInclude] {
    includes[indices(of: service.range, in: includes, by: { $0.handle })].filter {
      owner(of: $0.handle) == service.handle
    }
  }
  public func characteristics(of service: RemoteService) -> [RemoteCharacteristic] {
    characteristics[indices(of: service.range, in: characteristics, by: { $0.handle })]
      .filter { owner(of: $0.handle) == service.handle }
  }
  public func descriptors(of characteristic: RemoteCharacteristic) -> ArraySlice<RemoteDescriptor> {
    let value = characteristic.valueHandle
    let found = indices(of: HandleRange(value, characteristic.endHandle), in: descriptors, by: { $0.handle })
    return descriptors[found].drop { $0.handle == value }
  }

  // MARK: By UUID

  /// The services with this UUID; a server may have several.
  public func services(_ uuid: BluetoothUUID) -> [RemoteService] { services.filter { $0.uuid == uuid } }
  /// The first service with this UUID.
  public func service(_ uuid: BluetoothUUID) -> RemoteService? { services.first { $0.uuid == uuid } }
  /// The first characteristic with this UUID, in `service` or in any.
  public func characteristic(_ uuid: BluetoothUUID, in service: BluetoothUUID? = nil) -> RemoteCharacteristic? {
    guard let service else { return characteristics.first { $0.uuid == uuid } }
    for candidate in services where candidate.uuid == service {
      if let found = characteristics(of: candidate).first(where: { $0.uuid == uuid }) { return found }
    }
    return nil
  }
  public func descriptor(_ uuid: BluetoothUUID, of characteristic: RemoteCharacteristic) -> RemoteDescriptor? {
    descriptors(of: characteristic).first { $0.uuid == uuid }
  }

  // MARK: By handle

  /// The service whose declaration has this handle.
  public func service(at handle: AttributeHandle) -> RemoteService? {
    element(services, by: { $0.handle }, at: handle)
  }
  /// The service that contains `handle`: the innermost one, if the server nests services against the rules.
  public func service(containing handle: AttributeHandle) -> RemoteService? {
    var index = lowerBound(services, by: { $0.handle }, Int(handle.rawValue) + 1)
    while index > 0 {
      index -= 1
      if services[index].endHandle.rawValue >= handle.rawValue { return services[index] }
    }
    return nil
  }
  /// The characteristic whose declaration has this handle.
  public func characteristic(at handle: AttributeHandle) -> RemoteCharacteristic? {
    element(characteristics, by: { $0.handle }, at: handle)
  }
  /// The characteristic whose value has this handle, as a notification names it.
  public func characteristic(valueHandle: AttributeHandle) -> RemoteCharacteristic? {
    let index = lowerBound(characteristics, by: { $0.handle }, Int(valueHandle.rawValue))
    if index > 0, characteristics[index - 1].valueHandle == valueHandle { return characteristics[index - 1] }
    return characteristics.first { $0.valueHandle == valueHandle }
  }
  public func descriptor(at handle: AttributeHandle) -> RemoteDescriptor? {
    element(descriptors, by: { $0.handle }, at: handle)
  }

  private func owner(of handle: AttributeHandle) -> AttributeHandle? { service(containing: handle)?.handle }

  /// The place of the characteristic that a descriptor with this handle belongs to.
  func indexOfCharacteristic(describedAt handle: AttributeHandle) -> Int? {
    let index = lowerBound(characteristics, by: { $0.handle }, Int(handle.rawValue)) - 1
    guard index >= 0, characteristics[index].descriptorRange?.contains(handle) == true else { return nil }
    return index
  }
  /// Replaces the descriptors of `characteristic` by those that `found` has.
  mutating func learnDescriptors(of characteristic: RemoteCharacteristic, from found: RemoteDatabase) {
    guard let range = characteristic.descriptorRange,
      let index = indexOfCharacteristic(describedAt: range.first)
    else { return }
    characteristics[index].isSearched = true
    descriptors.removeAll { range.contains($0.handle) }
    let place = lowerBound(descriptors, by: { $0.handle }, Int(range.first.rawValue))
    descriptors.insert(contentsOf: found.descriptors(of: characteristic), at: place)
  }
  /// Whether this database is `before`, with descriptors at most that were not known by then.
  func extends(_ before: RemoteDatabase) -> Bool {
    guard services == before.services, includes == before.includes, characteristics == before.characteristics else {
      return false
    }
    func wasKnown(_ descriptor: RemoteDescriptor) -> Bool {
      before.indexOfCharacteristic(describedAt: descriptor.handle).map { before.characteristics[$0].isSearched } ?? true
    }
    return descriptors == before.descriptors
      || descriptors.filter(wasKnown) == before.descriptors.filter(wasKnown)
  }

  /// Forgets `range` and the services that overlap it, because their groups may end elsewhere now. Returns the range of
  /// all that was forgotten.
  @discardableResult mutating func forget(_ range: HandleRange) -> HandleRange {
    var range = range
    for service in services where service.range.overlaps(range) { range = range.union(service.range) }
    hash = nil
    isComplete = false
    services.removeAll { range.contains($0.handle) }
    includes.removeAll { range.contains($0.handle) }
    characteristics.removeAll { range.contains($0.handle) }
    descriptors.removeAll { range.contains($0.handle) }
    return range
  }
}

extension RemoteDatabase {
  /// Index of the first element whose handle is at least `handle`.
  func lowerBound<E>(_ list: [E], by key: (E) -> AttributeHandle, _ handle: Int) -> Int {
    var low = 0, high = list.count
    while low < high {
      let middle = (low + high) / 2
      if Int(key(list[middle]).rawValue) < handle { low = middle + 1 } else { high = middle }
    }
    return low
  }
  private func indices<E>(of range: HandleRange, in list: [E], by key: (E) -> AttributeHandle) -> Range<Int> {
    let start = lowerBound(list, by: key, Int(range.first.rawValue))
    return start..<max(start, lowerBound(list, by: key, Int(range.last.rawValue) + 1))
  }
  private func element<E>(_ list: [E], by key: (E) -> AttributeHandle, at handle: AttributeHandle) -> E? {
    let index = lowerBound(list, by: key, Int(handle.rawValue))
    return index < list.count && key(list[index]) == handle ? list[index] : nil
  }

  mutating func sort() {
    services.sort { $0.handle.rawValue < $1.handle.rawValue }
    includes.sort { $0.handle.rawValue < $1.handle.rawValue }
    characteristics.sort { $0.handle.rawValue < $1.handle.rawValue }
    descriptors.sort { $0.handle.rawValue < $1.handle.rawValue }
  }

  /// Sets the end of each characteristic in `range`: before the next declaration of a characteristic or service, at the
  /// end of its service, or, where the service is unknown, at the end of the range. All lists are in order. Returns
  /// true when each lies in a service.
  @discardableResult mutating func endCharacteristics(in range: HandleRange) -> Bool {
    var service = 0, areHoused = true
    for index in indices(of: range, in: characteristics, by: { $0.handle }) {
      let handle = characteristics[index].handle.rawValue
      while service < services.count, services[service].handle.rawValue <= handle { service += 1 }
      var end = range.last.rawValue
      if service > 0, services[service - 1].endHandle.rawValue >= handle {
        end = services[service - 1].endHandle.rawValue
      } else if let around = self.service(containing: characteristics[index].handle) {
        end = around.endHandle.rawValue
      } else {
        areHoused = false
      }
      if service < services.count { end = min(end, services[service].handle.rawValue - 1) }
      if index + 1 < characteristics.count { end = min(end, characteristics[index + 1].handle.rawValue - 1) }
      characteristics[index].endHandle.rawValue = max(end, characteristics[index].valueHandle.rawValue)
    }
    return areHoused
  }
}

extension RemoteDatabase {
  /// Whether a service that began at `handle` would lie inside the one before it.
  func nests(_ handle: AttributeHandle) -> Bool {
    let index = lowerBound(services, by: { $0.handle }, Int(handle.rawValue))
    return index > 0 && services[index - 1].endHandle.rawValue >= handle.rawValue
  }
  /// Drops whatever lies outside of all services.
  mutating func dropOrphans() {
    includes.removeAll { [self] in service(containing: $0.handle) == nil }
    characteristics.removeAll { [self] in service(containing: $0.handle) == nil }
    descriptors.removeAll { [self] in service(containing: $0.handle) == nil }
  }
}

extension RemoteDatabase: CustomStringConvertible {
  /// One line for each declaration and descriptor, in handle order:
  ///
  ///     0001-0005 primary 180D
  ///     0002-0004   characteristic 2A37 notify, value 0003
  ///     0004          descriptor 2902
  public var description: String {
    var lines: [String] = []
    for service in services {
      let kind = service.isPrimary ? "primary" : "secondary"
      lines.append("\(digits(service.handle))-\(digits(service.endHandle)) \(kind) \(service.uuid)")
      for include in includes(of: service) {
        let uuid = include.uuid.map { " \($0)" } ?? ""
        lines.append(
          "\(digits(include.handle))        include \(digits(include.serviceHandle))-\(digits(include.endHandle))\(uuid)"
        )
      }
      for characteristic in characteristics(of: service) {
        lines.append(
          "\(digits(characteristic.handle))-\(digits(characteristic.endHandle))   characteristic \(characteristic.uuid) "
            + "0x\(hexDigits(UInt64(characteristic.properties.rawValue), 2)), value \(digits(characteristic.valueHandle))"
        )
        for descriptor in descriptors(of: characteristic) {
          lines.append("\(digits(descriptor.handle))          descriptor \(descriptor.uuid)")
        }
      }
    }
    return lines.joined(separator: "\n")
  }
  private func digits(_ handle: AttributeHandle) -> String { hexDigits(UInt64(handle.rawValue), 4) }
}
