import BindruneATT
import BindruneWire

/// Names a bonded client across its connections. The caller chooses the numbers: GAP uses the client's `PeerID`.
public struct BondID: RawRepresentable, BitwiseCopyable, Sendable, Hashable {
  public var rawValue: UInt64
  @inlinable public init(rawValue: UInt64) { self.rawValue = rawValue }
}

/// What the server remembers of a bonded client between its connections. Vol 3, Part G, §2.5.2, §3.3.3.3, §7.2.
///
/// The server emits it as octets (`ServerEffect.store`) and takes it back as octets (`Server.restore`), so that the
/// layer that stores them needs no knowledge of their meaning. They begin with the number of their format.
public struct ClientRecord: Sendable, Equatable {
  public var features = ClientSupportedFeatures()
  /// The client knew the database that had `databaseHash`.
  public var isAware = true
  public var databaseHash: UInt128 = 0
  /// The Service Changed range that the client has not confirmed.
  public var unconfirmed: HandleRange?
  /// What the client has subscribed to.
  public var configurations: [Entry] = []

  /// One Client Characteristic Configuration.
  public struct Entry: Sendable, Equatable {
    public var descriptor: AttributeHandle
    /// The characteristic's type: in another database the handle may belong to another type.
    public var characteristic: BluetoothUUID
    public var value: ClientCharacteristicConfiguration
    public init(
      descriptor: AttributeHandle, characteristic: BluetoothUUID, value: ClientCharacteristicConfiguration
    ) {
      self.descriptor = descriptor
      self.characteristic = characteristic
      self.value = value
    }
  }

  public init() {}

  /// Decodes the octets of a `.store`.
  public init(_ octets: Span<UInt8>) throws(WireError) {
    let head = try WireDecoder.decode(Head.self, octets)
    guard head.format == Head.format else {
      throw .unknown("Format", Int(head.format))
    }
    features = head.features
    isAware = head.awareness != 0
    databaseHash = UInt128(head.hashLow) | UInt128(head.hashHigh) << 64
    if head.first.rawValue != 0 { unconfirmed = HandleRange(head.first, head.last) }
    let stride = Wire.count
    guard Int(head.entries.count).isMultiple(of: stride) else {
      throw .truncated("Configurations", needed: stride, available: Int(head.entries.count) % stride)
    }
    for at in Swift.stride(from: head.entries.range.lowerBound, to: head.entries.range.upperBound, by: stride) {
      let entry = try WireDecoder.decode(Wire.self, octets, from: at, to: at + stride)
      configurations.append(
        Entry(
          descriptor: entry.descriptor, characteristic: .long(low: entry.low, high: entry.high), value: entry.value))
    }
  }

  /// The octets of this record.
  public var octets: [UInt8] {
    var entries: [UInt8] = []
    for configuration in configurations {
      var entry = Wire()
      entry.descriptor = configuration.descriptor
      entry.value = configuration.value
      entry.low = configuration.characteristic.low
      entry.high = configuration.characteristic.high
      entries += entry.bytes
    }
    var head = Head()
    head.features = features
    head.awareness = isAware ? 1 : 0
    head.hashLow = UInt64(truncatingIfNeeded: databaseHash)
    head.hashHigh = UInt64(truncatingIfNeeded: databaseHash >> 64)
    head.first = unconfirmed?.first ?? AttributeHandle()
    head.last = unconfirmed?.last ?? AttributeHandle()
    return head.bytes + entries
  }

  /// The client's configuration of the characteristic with this slot.
  func configuration(slot: Int, in database: Database) -> ClientCharacteristicConfiguration {
    let descriptor = database.configurations[slot]
    guard descriptor.descriptor.rawValue != 0,
      let entry = configurations.first(where: { $0.descriptor == descriptor.descriptor }),
      entry.characteristic == database.type(of: descriptor.value)
    else { return [] }
    return entry.value.intersection(descriptor.supported)
  }

  private struct Head: WireRecord {
    static var format: UInt8 { 1 }
    var format = Head.format
    var features = ClientSupportedFeatures()
    var awareness: UInt8 = 0
    var hashLow: UInt64 = 0
    var hashHigh: UInt64 = 0
    var first = AttributeHandle()
    var last = AttributeHandle()
    var entries = Octets()
    mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Format", &format)
      try visit.value("Client Supported Features", &features)
      try visit.value("Awareness", &awareness)
      try visit.value("Database Hash, lower half", &hashLow)
      try visit.value("Database Hash, upper half", &hashHigh)
      try visit.value("Unconfirmed, first handle", &first)
      try visit.value("Unconfirmed, last handle", &last)
      try visit.octets("Configurations", &entries)
    }
  }
  private struct Wire: WireRecord {
    static var count: Int { 20 }
    var descriptor = AttributeHandle()
    var value = ClientCharacteristicConfiguration()
    var low: UInt64 = 0
    var high: UInt64 = 0
    mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Descriptor", &descriptor)
      try visit.value("Configuration", &value)
      try visit.value("Characteristic, lower half", &low)
      try visit.value("Characteristic, upper half", &high)
    }
  }
}

extension Database {
  /// The type of the attribute at `handle`, which exists.
  func type(of handle: AttributeHandle) -> BluetoothUUID {
    position(of: handle).map { uuids[Int(attributes[$0].type)].uuid } ?? BluetoothUUID()
  }
}
