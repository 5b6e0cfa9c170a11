import ATT
import BindruneWire
import GATT
import HCI

// How values of the lower layers are written in JSON: numbers as numbers, UUIDs as text. Decision 0053.

extension AttributeHandle: Codable {}
extension ATTError: Codable {}
extension HCIStatus: Codable {}
extension CharacteristicProperties: Codable {}
extension ConnectionLatency: Codable {}
extension BluetoothError.Code: Codable {}

extension BluetoothUUID: Codable {
  public init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer(), text = try container.decode(String.self)
    guard let uuid = BluetoothUUID(text) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "this is not a Bluetooth UUID")
    }
    self = uuid
  }
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(description)
  }
}

extension HandleRange: Codable {
  public init(from decoder: any Decoder) throws {
    var container = try decoder.unkeyedContainer()
    let first = try container.decode(AttributeHandle.self), last = try container.decode(AttributeHandle.self)
    guard first.rawValue > 0, first.rawValue <= last.rawValue else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "this is not a range of handles")
    }
    self.init(first, last)
  }
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.unkeyedContainer()
    try container.encode(first)
    try container.encode(last)
  }
}

extension AttributePermissions.Access: Codable {
  private enum Key: CodingKey { case level, authorization, signature, keySize }
  private static var levels: [(name: String, access: Self)] {
    [("none", .none), ("open", .open), ("encrypted", .encrypted), ("authenticated", .authenticated)]
  }
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Key.self), name = try container.decode(String.self, forKey: .level)
    guard var access = Self.levels.first(where: { $0.name == name })?.access else {
      throw DecodingError.dataCorruptedError(forKey: .level, in: container, debugDescription: "this is not an access")
    }
    if try container.decodeIfPresent(Bool.self, forKey: .authorization) == true { access = access.withAuthorization }
    if try container.decodeIfPresent(Bool.self, forKey: .signature) == true { access = access.orSigned }
    if let size = try container.decodeIfPresent(Int.self, forKey: .keySize) { access = access.withKey(of: size) }
    self = access
  }
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    let level = !isPermitted ? 0 : needsAuthentication ? 3 : needsEncryption ? 2 : 1
    try container.encode(Self.levels[level].name, forKey: .level)
    if needsAuthorization { try container.encode(true, forKey: .authorization) }
    if acceptsSignature { try container.encode(true, forKey: .signature) }
    if leastKeySize > 1 { try container.encode(leastKeySize, forKey: .keySize) }
  }
}

extension AttributePermissions: Codable {
  private enum Key: CodingKey { case read, write }
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Key.self)
    self.init(
      read: try container.decode(Access.self, forKey: .read), write: try container.decode(Access.self, forKey: .write))
  }
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    try container.encode(read, forKey: .read)
    try container.encode(write, forKey: .write)
  }
}

extension RemoteDescriptor: Codable {
  private enum Key: CodingKey { case handle, uuid }
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Key.self)
    self.init(
      handle: try container.decode(AttributeHandle.self, forKey: .handle),
      uuid: try container.decode(BluetoothUUID.self, forKey: .uuid))
  }
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    try container.encode(handle, forKey: .handle)
    try container.encode(uuid, forKey: .uuid)
  }
}

extension BluetoothError: Codable {
  private enum Key: CodingKey { case code, diagnostics, operation, attError, status }
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Key.self)
    self.init(
      try container.decode(Code.self, forKey: .code), try container.decode(String.self, forKey: .diagnostics),
      operation: try container.decodeIfPresent(String.self, forKey: .operation),
      attError: try container.decodeIfPresent(ATTError.self, forKey: .attError),
      status: try container.decodeIfPresent(HCIStatus.self, forKey: .status))
  }
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    try container.encode(code, forKey: .code)
    try container.encode(diagnostics, forKey: .diagnostics)
    try container.encodeIfPresent(operation, forKey: .operation)
    try container.encodeIfPresent(attError, forKey: .attError)
    try container.encodeIfPresent(status, forKey: .status)
  }
}

extension Result: @retroactive Decodable, @retroactive Encodable
where Success == BrokerAnswer, Failure == BluetoothError {
  private enum Key: CodingKey { case success, failure }
  public init(from decoder: any Decoder) throws {
    let container = try decoder.container(keyedBy: Key.self)
    if let error = try container.decodeIfPresent(BluetoothError.self, forKey: .failure) {
      self = .failure(error)
    } else {
      self = .success(try container.decode(BrokerAnswer.self, forKey: .success))
    }
  }
  public func encode(to encoder: any Encoder) throws {
    var container = encoder.container(keyedBy: Key.self)
    switch self {
    case .success(let answer): try container.encode(answer, forKey: .success)
    case .failure(let error): try container.encode(error, forKey: .failure)
    }
  }
}
