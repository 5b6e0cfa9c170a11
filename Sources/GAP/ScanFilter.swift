import BindruneWire

/// Selects the devices of a scan: those that meet all conditions. Empty: all devices.
///
/// An advertisement and its scan response count as one. Faulty data are considered up to the fault.
public struct ScanFilter: Sendable, Hashable {
  /// Names at least one of these services, or has the bit of one in its overflow area. Services that share a bit cannot
  /// be distinguished: a device that offers another one with the same bit is found, too.
  public var services: [BluetoothUUID]
  /// Solicits at least one of these services: it looks for a device that offers it.
  public var solicitedServices: [BluetoothUUID]
  public var name: Name?
  /// In dBm. An unknown signal strength does not meet the condition.
  public var minimumRSSI: Int8?
  public var manufacturer: Manufacturer?
  public var isConnectableOnly: Bool

  public enum Name: Sendable, Hashable {
    /// The complete local name equals this one.
    case exact(String)
    /// The local name, complete or shortened, has this prefix.
    case prefix(String)
  }
  /// Manufacturer specific data of this company, with this prefix.
  public struct Manufacturer: Sendable, Hashable {
    /// Assigned Numbers, §7.1.
    public var companyIdentifier: UInt16
    public var dataPrefix: [UInt8]
    public init(companyIdentifier: UInt16, dataPrefix: [UInt8] = []) {
      self.companyIdentifier = companyIdentifier
      self.dataPrefix = dataPrefix
    }
  }

  public init(
    services: [BluetoothUUID] = [], solicitedServices: [BluetoothUUID] = [], name: Name? = nil,
    minimumRSSI: Int8? = nil,
    manufacturer: Manufacturer? = nil, isConnectableOnly: Bool = false
  ) {
    self.services = services
    self.solicitedServices = solicitedServices
    self.name = name
    self.minimumRSSI = minimumRSSI
    self.manufacturer = manufacturer
    self.isConnectableOnly = isConnectableOnly
  }
  /// True when all devices meet it.
  public var isEmpty: Bool { self == ScanFilter() }

  /// Those of `services` that a device does not name but may offer, because their bits are in its overflow area.
  public func overflowHits(_ advertising: Span<UInt8>, _ scanResponse: Span<UInt8> = Span()) -> [BluetoothUUID] {
    var found = MatchedFields(self)
    found.collect(from: advertising)
    found.collect(from: scanResponse)
    return services.filter { found.overflow.contains($0) && !found.named.contains($0) }
  }

  func isMet(
    rssi: Int8?, isConnectable: Bool, _ advertising: Span<UInt8>, _ scanResponse: Span<UInt8> = Span()
  ) -> Bool {
    if isConnectableOnly && !isConnectable { return false }
    if let minimumRSSI {
      guard let rssi, rssi >= minimumRSSI else { return false }
    }
    var found = MatchedFields(self)
    if found.isEnough { return true }
    found.collect(from: advertising)
    if found.isEnough { return true }
    found.collect(from: scanResponse)
    return found.isEnough
  }
}

/// Which of a filter's conditions a device's data meet.
private struct MatchedFields {
  let filter: ScanFilter
  /// Those of the filter's services that are named.
  var named: [BluetoothUUID] = []
  var overflow = OverflowArea()
  var hasSolicited: Bool
  var hasName: Bool
  var hasManufacturer: Bool

  init(_ filter: ScanFilter) {
    self.filter = filter
    hasSolicited = filter.solicitedServices.isEmpty
    hasName = filter.name == nil
    hasManufacturer = filter.manufacturer == nil
  }
  var isEnough: Bool {
    hasSolicited && hasName && hasManufacturer
      && (filter.services.isEmpty || !named.isEmpty || filter.services.contains { overflow.contains($0) })
  }

  mutating func collect(from data: Span<UInt8>) {
    var cursor = ADCursor(Octets(0, data.count))
    while let structure = cursor.next(in: data) {
      let octets = data.extracting(structure.data.range)
      switch structure.type {
      case .completeLocalName, .shortenedLocalName:
        collect(name: octets, isComplete: structure.type == .completeLocalName)
      case .manufacturerData: collect(manufacturerData: octets)
      default: if let list = structure.type.uuidList { collect(uuids: octets, list) }
      }
    }
  }
  /// A list that ends within a UUID is ignored.
  private mutating func collect(uuids octets: Span<UInt8>, _ list: ADType.UUIDList) {
    let wanted = list.kind == .services ? filter.services : filter.solicitedServices
    guard !wanted.isEmpty, octets.count % list.width == 0 else { return }
    let found = list.uuids(Octets(0, octets.count).array(in: octets)).filter(wanted.contains)
    switch list.kind {
    case .services: named += found
    case .solicited: if !found.isEmpty { hasSolicited = true }
    }
  }
  private mutating func collect(name octets: Span<UInt8>, isComplete: Bool) {
    switch filter.name {
    case .exact(let name):
      if isComplete, octets.count == name.utf8.count, octets.begins(name.utf8) { hasName = true }
    case .prefix(let prefix): if octets.begins(prefix.utf8) { hasName = true }
    case nil: break
    }
  }
  private mutating func collect(manufacturerData octets: Span<UInt8>) {
    if let wanted = filter.manufacturer, octets.count >= 2 {
      let company = UInt16(octets[0]) | UInt16(octets[1]) << 8
      if company == wanted.companyIdentifier, octets.extracting(2..<octets.count).begins(wanted.dataPrefix) {
        hasManufacturer = true
      }
    }
    if !filter.services.isEmpty, let area = OverflowArea(manufacturerData: Octets(0, octets.count).array(in: octets)) {
      for uuid in filter.services where area.contains(uuid) { overflow.insert(uuid) }
    }
  }
}

extension Span<UInt8> {
  fileprivate func begins(_ octets: some Collection<UInt8>) -> Bool {
    guard octets.count <= count else { return false }
    for (index, octet) in octets.enumerated() where self[index] != octet { return false }
    return true
  }
}
