import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneHCI
import NIOCore

// How the values in messages, and in the daemon's records, are written. Decision 0066.

// MARK: Numbers, texts, octets

extension FixedWidthInteger where Self: MessageField {
  static var empty: Self { 0 }
  static var layout: String { "\(isSigned ? "i" : "u")\(bitWidth)" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) { try visitor.integer(&self) }
}
extension UInt8: MessageField {}
extension UInt16: MessageField {}
extension UInt32: MessageField {}
extension UInt64: MessageField {}

extension Int: MessageField {
  static var layout: String { "i32" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var value = Int32(clamping: self)
    try visitor.integer(&value)
    self = Int(value)
  }
}
extension Bool: MessageField {
  static var empty: Bool { false }
  static var layout: String { "flag" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var value: UInt8 = self ? 1 : 0
    try visitor.integer(&value)
    self = value != 0
  }
}
extension Double: MessageField {
  static var empty: Double { 0 }
  static var layout: String { "f64" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var bits = bitPattern
    try visitor.integer(&bits)
    self = Double(bitPattern: bits)
    guard isFinite else { throw FrameError("a number of seconds that is infinite, or none") }
  }
}
extension String: MessageField {
  static var empty: String { "" }
  static var layout: String { "text" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) { try visitor.text(&self) }
}
extension Data: MessageField {
  static var empty: Data { Data() }
  static var layout: String { "octets" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) { try visitor.octets(&self) }
}
extension ByteBuffer: MessageField {
  static var empty: ByteBuffer { ByteBuffer() }
  static var layout: String { "octets" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) { try visitor.octets(&self) }
}
extension BrokerValues: MessageField {
  static var empty: BrokerValues { BrokerValues() }
  static var layout: String { "values" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) { try visitor.values(&self) }
}
extension UUID: MessageField {
  static var empty: UUID { UUID(uuid: (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)) }
  static var layout: String { "peer" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) { try visitor.uuid(&self) }
}
extension Optional: MessageField where Wrapped: MessageField {
  static var empty: Wrapped? { nil }
  static var layout: String { Wrapped.layout.contains(" ") ? "(\(Wrapped.layout))?" : "\(Wrapped.layout)?" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) { try visitor.optional(&self) }
}
extension Array: MessageField where Element: MessageField {
  static var empty: [Element] { [] }
  static var layout: String { "list of \(Element.layout)" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) { try visitor.list(&self) }
}

// MARK: Numbers with a meaning

/// A number of one octet, two or eight.
protocol NumberField: MessageField {
  associatedtype RawValue: MessageField
  var rawValue: RawValue { get }
  init(rawValue: RawValue)
}
extension NumberField {
  static var empty: Self { Self(rawValue: .empty) }
  static var layout: String { RawValue.layout }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var raw = rawValue
    try raw.visit(&visitor)
    self = Self(rawValue: raw)
  }
}
extension AttributeHandle: NumberField {}
extension ATTError: NumberField {}
extension HCIStatus: NumberField {}
extension CharacteristicProperties: NumberField {}
extension OperationID: NumberField {}
extension ServerRequest: NumberField {}
extension ConnectOptions.Alerts: NumberField {}

extension ConnectionLatency: MessageField {
  static var empty: ConnectionLatency { .medium }
  static var layout: String { "u8" }
  /// One that this version does not know is a balance.
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var number = UInt8(rawValue)
    try visitor.integer(&number)
    self = ConnectionLatency(rawValue: Int(number)) ?? .medium
  }
}
extension SendPort.Kind: MessageField {
  static var empty: SendPort.Kind { .command }
  static var layout: String { "u8" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var number: UInt8 =
      switch self {
      case .command: 0
      case .notification: 1
      }
    try visitor.integer(&number)
    switch number {
    case 0: self = .command
    case 1: self = .notification
    default: throw FrameError("a port of the unknown kind \(number)")
    }
  }
}
extension AdapterState: MessageField {
  static var empty: AdapterState { .unknown }
  static var layout: String { "u8, text" }
  /// One that this version does not know is `.unknown`.
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var number: UInt8 =
      switch self {
      case .unknown: 0
      case .resetting: 1
      case .unsupported: 2
      case .unauthorized: 3
      case .poweredOff: 4
      case .poweredOn: 5
      }
    var why = hindrance ?? ""
    try visitor.integer(&number)
    try visitor.text(&why)
    switch number {
    case 1: self = .resetting(why)
    case 2: self = .unsupported(why)
    case 3: self = .unauthorized(why)
    case 4: self = .poweredOff(why)
    case 5: self = .poweredOn
    default: self = .unknown
    }
  }
}
extension BackgroundMode: MessageField {
  static var empty: BackgroundMode { .central }
  static var layout: String { "text" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var text = rawValue
    try visitor.text(&text)
    guard let mode = BackgroundMode(rawValue: text) else {
      throw FrameError("a manager of the unknown role \(text.printable(limit: 40))")
    }
    self = mode
  }
}
extension BluetoothUUID: MessageField {
  static var empty: BluetoothUUID { BluetoothUUID() }
  static var layout: String { "uuid" }
  /// A 1 and two octets, or a 2 and sixteen.
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var form: UInt8 = if case .short = self { 1 } else { 2 }
    try visitor.integer(&form)
    switch form {
    case 1:
      var value: UInt16 = if case .short(let value) = self { value } else { 0 }
      try visitor.integer(&value)
      self = .short(value)
    case 2:
      var (low, high) = (self.low, self.high)
      try visitor.integer(&low)
      try visitor.integer(&high)
      self = .long(low: low, high: high)
    default: throw FrameError("a UUID of the unknown form \(form)")
    }
  }
}
extension HandleRange: MessageField {
  static var empty: HandleRange { .all }
  static var layout: String { "u16, u16" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try first.visit(&visitor)
    try last.visit(&visitor)
    guard first.rawValue > 0, first.rawValue <= last.rawValue else {
      throw FrameError("a range of handles without a handle")
    }
  }
}
extension AttributePermissions.Access: MessageField {
  static var empty: Self { .none }
  static var layout: String { "access" }
  /// Bits 0 and 1: none, open, encrypted, authenticated; bit 2: authorization; bit 3: a signature will do; bits 4 … 7:
  /// the least key size, less one.
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    let level: UInt8 = !isPermitted ? 0 : needsAuthentication ? 3 : needsEncryption ? 2 : 1
    var bits =
      level | (needsAuthorization ? 4 : 0) | (acceptsSignature ? 8 : 0) | UInt8(clamping: leastKeySize - 1) << 4
    try visitor.integer(&bits)
    var access: Self = [.none, .open, .encrypted, .authenticated][Int(bits & 3)]
    if bits & 4 != 0 { access = access.withAuthorization }
    if bits & 8 != 0 { access = access.orSigned }
    if bits >> 4 != 0 { access = access.withKey(of: Int(bits >> 4) + 1) }
    self = access
  }
}
extension AttributePermissions: MessageField {
  static var empty: AttributePermissions { .none }
  static var layout: String { "access, access" }
  mutating func visit(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try read.visit(&visitor)
    try write.visit(&visitor)
  }
}

// MARK: Records

extension BluetoothError: MessageRecord {
  static var empty: BluetoothError { BluetoothError(.refused, "") }
  /// A code that this version does not know is `.refused`; the sentence says more.
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    var name = code.rawValue
    try visitor.field("Code", &name)
    code = Code(rawValue: name) ?? .refused
    try visitor.field("Diagnostics", &diagnostics)
    try visitor.field("Operation", &operation)
    try visitor.field("ATT Error", &attError)
    try visitor.field("HCI Status", &status)
  }
}
extension RemoteDescriptor: MessageRecord {
  static var empty: RemoteDescriptor { RemoteDescriptor(handle: .empty, uuid: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Handle", &handle)
    try visitor.field("UUID", &uuid)
  }
}
extension FoundService: MessageRecord {
  static var empty: FoundService { FoundService(handle: .empty, endHandle: .empty, uuid: .empty, isPrimary: true) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Handle", &handle)
    try visitor.field("End Handle", &endHandle)
    try visitor.field("UUID", &uuid)
    try visitor.field("Primary", &isPrimary)
  }
}
extension FoundCharacteristic: MessageRecord {
  static var empty: FoundCharacteristic { FoundCharacteristic(handle: .empty, uuid: .empty, properties: []) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Handle", &handle)
    try visitor.field("UUID", &uuid)
    try visitor.field("Properties", &properties)
  }
}
extension PublishedService: MessageRecord {
  static var empty: PublishedService { PublishedService(handle: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Handle", &handle)
    try visitor.field("Characteristics", &characteristics)
  }
}
extension PublishedService.Characteristic: MessageRecord {
  static var empty: Self { Self(value: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Value", &value)
    try visitor.field("Descriptors", &descriptors)
  }
}
extension ServerWrite: MessageRecord {
  static var empty: ServerWrite { ServerWrite(handle: .empty, offset: 0, value: Data()) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Handle", &handle)
    try visitor.field("Offset", &offset)
    try visitor.field("Value", &value)
  }
}
extension LinkedPeer: MessageRecord {
  static var empty: LinkedPeer { LinkedPeer(peer: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Peer", &peer)
    try visitor.field("Name", &name)
    try visitor.field("Services", &services)
  }
}
extension DiscoveredPeer: MessageRecord {
  static var empty: DiscoveredPeer { DiscoveredPeer(peer: .empty) }
  /// The data of one service, for the list.
  struct ServiceData: MessageRecord {
    var service = BluetoothUUID.empty, data = Data()
    static var empty: Self { Self() }
    mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
      try visitor.field("Service", &service)
      try visitor.field("Data", &data)
    }
  }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Peer", &peer)
    try visitor.field("Name", &name)
    try visitor.field("RSSI", &rssi)
    try visitor.field("Connectable", &isConnectable)
    try visitor.field("Local Name", &localName)
    try visitor.field("Manufacturer Data", &manufacturerData)
    try visitor.field("Services", &services)
    try visitor.field("Overflow Services", &overflowServices)
    try visitor.field("Solicited Services", &solicitedServices)
    var list = serviceData.map { ServiceData(service: $0.key, data: $0.value) }
    if list.count > 1 { list.sort { ($0.service.high, $0.service.low) < ($1.service.high, $1.service.low) } }
    try visitor.field("Service Data", &list)
    serviceData = Dictionary(list.map { ($0.service, $0.data) }) { $1 }
    try visitor.field("TX Power", &txPower)
    try visitor.field("Seconds", &seconds)
  }
}
extension ConnectOptions: MessageRecord {
  static var empty: ConnectOptions { ConnectOptions() }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Start Delay", &startDelay)
    try visitor.field("Reconnects", &reconnects)
    try visitor.field("Alerts", &alerts)
  }
}
extension ServiceDescription: MessageRecord {
  static var empty: ServiceDescription { ServiceDescription(uuid: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("UUID", &uuid)
    try visitor.field("Primary", &isPrimary)
    try visitor.field("Includes", &includes)
    try visitor.field("Characteristics", &characteristics)
  }
}
extension ServiceDescription.Characteristic: MessageRecord {
  static var empty: Self { Self(uuid: .empty, properties: [], permissions: .none) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("UUID", &uuid)
    try visitor.field("Properties", &properties)
    try visitor.field("Permissions", &permissions)
    try visitor.field("Configuring", &configuring)
    try visitor.field("Value", &value)
    try visitor.field("Descriptors", &descriptors)
  }
}
extension ServiceDescription.Descriptor: MessageRecord {
  static var empty: Self { Self(uuid: .empty, value: Data()) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("UUID", &uuid)
    try visitor.field("Value", &value)
  }
}

// MARK: What is restored

extension RestoredState: MessageRecord {
  static var empty: RestoredState { RestoredState() }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Scan", &scan)
    try visitor.field("Peers", &peers)
    try visitor.field("Services", &services)
    try visitor.field("Advertisement", &advertisement)
  }
}
extension RestoredState.Scan: MessageRecord {
  static var empty: Self { Self(services: [], solicitedServices: [], allowsDuplicates: false) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Services", &services)
    try visitor.field("Solicited Services", &solicitedServices)
    try visitor.field("Allows Duplicates", &allowsDuplicates)
  }
}
extension RestoredState.Peer: MessageRecord {
  static var empty: Self { Self(peer: .empty, isConnected: false, longestWrite: 0) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Peer", &peer)
    try visitor.field("Name", &name)
    try visitor.field("Connected", &isConnected)
    try visitor.field("Longest Write", &longestWrite)
    try visitor.field("Services", &services)
  }
}
extension RestoredState.Service: MessageRecord {
  static var empty: Self { Self(service: .empty, isDiscovered: false) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Service", &service)
    try visitor.field("Discovered", &isDiscovered)
    try visitor.field("Includes", &includes)
    try visitor.field("Characteristics", &characteristics)
  }
}
extension RestoredState.Characteristic: MessageRecord {
  static var empty: Self { Self(characteristic: .empty, isNotifying: false) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Characteristic", &characteristic)
    try visitor.field("Notifying", &isNotifying)
    try visitor.field("Descriptors", &descriptors)
  }
}
extension RestoredState.Published: MessageRecord {
  static var empty: Self { Self(description: .empty, published: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Description", &description)
    try visitor.field("Published", &published)
    try visitor.field("Subscriptions", &subscriptions)
  }
}
extension RestoredState.Subscription: MessageRecord {
  static var empty: Self { Self(central: .empty, handle: .empty, longestUpdate: 0) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Central", &central)
    try visitor.field("Handle", &handle)
    try visitor.field("Longest Update", &longestUpdate)
  }
}
extension RestoredState.Advertisement: MessageRecord {
  static var empty: Self { Self(services: []) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Local Name", &localName)
    try visitor.field("Services", &services)
  }
}

// MARK: Apps

extension ManagerIdentity: MessageRecord {
  static var empty: ManagerIdentity { ManagerIdentity(.central) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Role", &role)
    try visitor.field("Restore Identifier", &restoreIdentifier)
  }
}
extension AppManifest: MessageRecord {
  static var empty: AppManifest { AppManifest(identifier: "") }
  /// A mode that this version does not know is left out.
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Identifier", &identifier)
    var modes = backgroundModes.map(\.rawValue).sorted()
    try visitor.field("Background Modes", &modes)
    backgroundModes = Set(modes.compactMap { BackgroundMode(rawValue: $0) })
    try visitor.field("Relaunch", &relaunch)
    try visitor.field("Unit", &unit)
    if let (_, mistake) = mistake { throw FrameError("a manifest that is not valid: \(mistake)") }
  }
}
extension PreservedManager: MessageRecord {
  static var empty: PreservedManager { PreservedManager(identity: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Identity", &identity)
    try visitor.field("Scan", &scan)
    try visitor.field("Peers", &peers)
    try visitor.field("Services", &services)
    try visitor.field("Advertisement", &advertisement)
  }
}
extension PreservedManager.Peer: MessageRecord {
  static var empty: Self { Self(identifier: .empty, options: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Identifier", &identifier)
    try visitor.field("Options", &options)
    try visitor.field("Name", &name)
  }
}
extension PreservedManager.Service: MessageRecord {
  static var empty: Self { Self(handle: .empty, description: .empty) }
  mutating func fields(_ visitor: inout some MessageVisitor) throws(FrameError) {
    try visitor.field("Handle", &handle)
    try visitor.field("Description", &description)
  }
}
