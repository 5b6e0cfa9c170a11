import BindruneATT
import BindruneWire

/// # The text of a database
/// **Overview**: what a client knows of a server, as text, to keep from one connection to the next. The Database Hash
/// decides whether it is still valid (Vol 3, Part G, §2.5.2), so only a complete database with a hash has a text.
///
/// **Function**: one line for each declaration and descriptor; handles and properties are hexadecimal, each kind in
/// handle order. The last line counts the lines before it, so that a reader detects a truncated text.
///
///     bindrune-gatt 2
///     hash 00112233445566778899AABBCCDDEEFF
///     service 0001 0008 primary 1801
///     include 0011 0020 002F 180F
///     characteristic 0002 0003 0004 20 2A05
///     characteristic 0012 0013 0014 10 2A37
///     descriptor 0004 2902
///     descriptor 0014 -
///     end 8
///
/// A service: handle, last handle, `primary` or `secondary`, UUID. An include: handle, the service's first and last
/// handle, its UUID or `-`. A characteristic: handle, value handle, last handle, properties, UUID. A descriptor:
/// handle, UUID; `-` where the client has not asked for it yet.
///
/// Version 1 listed descriptors that were inferred like those that the server had named. Where one may have been
/// inferred, a reader takes it for one that the client has not asked for.
extension RemoteDatabase {
  /// Its text; `nil` unless it is complete and has a hash.
  public var cacheText: String? {
    guard isComplete, let hash else { return nil }
    var lines = ["bindrune-gatt 2", "hash \(hash)"]
    func digits(_ handle: AttributeHandle) -> String { hexDigits(UInt64(handle.rawValue), 4) }
    for service in services {
      let kind = service.isPrimary ? "primary" : "secondary"
      lines.append("service \(digits(service.handle)) \(digits(service.endHandle)) \(kind) \(service.uuid)")
    }
    for include in includes {
      let range = "\(digits(include.serviceHandle)) \(digits(include.endHandle))"
      lines.append("include \(digits(include.handle)) \(range) \(include.uuid.map { "\($0)" } ?? "-")")
    }
    for characteristic in characteristics {
      let range = "\(digits(characteristic.valueHandle)) \(digits(characteristic.endHandle))"
      let properties = hexDigits(UInt64(characteristic.properties.rawValue), 2)
      lines.append("characteristic \(digits(characteristic.handle)) \(range) \(properties) \(characteristic.uuid)")
    }
    var described = descriptors.map { (handle: $0.handle, uuid: "\($0.uuid)") }
    for characteristic in characteristics where !characteristic.descriptorsAreKnown {
      if let range = characteristic.descriptorRange { described.append((range.first, "-")) }
    }
    described.sort { $0.handle.rawValue < $1.handle.rawValue }
    for descriptor in described { lines.append("descriptor \(digits(descriptor.handle)) \(descriptor.uuid)") }
    return (lines + ["end \(lines.count)", ""]).joined(separator: "\n")
  }

  /// Parses `text`, also of version 1. Throws for any line that it does not understand, and for a truncated text.
  public init(cacheText text: String) throws(CacheTextError) {
    self.init()
    var line = 0, isOver = false, reading = Reading()
    for fields in text.split(separator: "\n", omittingEmptySubsequences: true).map({ $0.split(separator: " ") }) {
      line += 1
      guard !isOver else { throw CacheTextError(line: line, reason: .afterTheEnd) }
      isOver = try take(fields, line: line, &reading)
    }
    guard isOver else { throw CacheTextError(line: line + 1, reason: .noEnd) }
    isComplete = true
  }
  /// What the lines so far say about those that follow.
  private struct Reading {
    var version = 2
    var lastDescriptor: AttributeHandle?
  }

  /// Returns true for the last line.
  private mutating func take(
    _ fields: [Substring], line: Int, _ reading: inout Reading
  ) throws(CacheTextError) -> Bool {
    func handle(_ index: Int) throws(CacheTextError) -> AttributeHandle {
      guard fields[index].utf8.count == 4, let value = UInt16(fields[index], radix: 16), value > 0 else {
        throw CacheTextError(line: line, reason: .badHandle)
      }
      return AttributeHandle(rawValue: value)
    }
    func uuid(_ index: Int) throws(CacheTextError) -> BluetoothUUID {
      guard let uuid = BluetoothUUID(String(fields[index])) else { throw CacheTextError(line: line, reason: .badUUID) }
      return uuid
    }
    func ordered(_ handles: [AttributeHandle], after last: AttributeHandle?) throws(CacheTextError) {
      guard zip(handles, handles.dropFirst()).allSatisfy({ $0.rawValue <= $1.rawValue }),
        (last?.rawValue ?? 0) < handles[0].rawValue
      else { throw CacheTextError(line: line, reason: .handlesNotIncreasing) }
    }
    switch (fields.first ?? "", fields.count) {
    case ("bindrune-gatt", 2) where line == 1 && (fields[1] == "1" || fields[1] == "2"):
      reading.version = fields[1] == "1" ? 1 : 2
    case _ where line == 1: throw CacheTextError(line: 1, reason: .noHeading)
    case ("hash", 2):
      guard hash == nil, let value = DatabaseHash(String(fields[1])) else {
        throw CacheTextError(line: line, reason: .badHash)
      }
      hash = value
    case ("service", 5) where fields[3] == "primary" || fields[3] == "secondary":
      let service = RemoteService(
        handle: try handle(1), endHandle: try handle(2), uuid: try uuid(4), isPrimary: fields[3] == "primary")
      try ordered([service.handle, service.endHandle], after: services.last?.handle)
      services.append(service)
    case ("include", 5):
      var include = RemoteInclude(handle: try handle(1), serviceHandle: try handle(2), endHandle: try handle(3))
      include.uuid = fields[4] == "-" ? nil : try uuid(4)
      try ordered([include.handle], after: includes.last?.handle)
      try ordered([include.serviceHandle, include.endHandle], after: nil)
      includes.append(include)
    case ("characteristic", 6):
      guard let properties = UInt8(fields[4], radix: 16) else {
        throw CacheTextError(line: line, reason: .badProperties)
      }
      let characteristic = RemoteCharacteristic(
        handle: try handle(1), valueHandle: try handle(2), endHandle: try handle(3),
        properties: CharacteristicProperties(rawValue: properties), uuid: try uuid(5), isSearched: true)
      try ordered(
        [characteristic.handle, characteristic.valueHandle, characteristic.endHandle],
        after: characteristics.last?.handle)
      guard characteristic.handle != characteristic.valueHandle else {
        throw CacheTextError(line: line, reason: .handlesNotIncreasing)
      }
      characteristics.append(characteristic)
    case ("descriptor", 3):
      let at = try handle(1), type = fields[2] == "-" && reading.version > 1 ? nil : try uuid(2)
      try ordered([at], after: reading.lastDescriptor)
      reading.lastDescriptor = at
      let owner = indexOfCharacteristic(describedAt: at)
      if let type, reading.version > 1 || !mayBeInferred(type, of: owner) {
        descriptors.append(RemoteDescriptor(handle: at, uuid: type))
      } else if let owner {
        characteristics[owner].isSearched = false
      } else {
        throw CacheTextError(line: line, reason: .badHandle)
      }
    case ("end", 2):
      guard hash != nil, fields[1] == "\(line - 1)" else { throw CacheTextError(line: line, reason: .noEnd) }
      return true
    default: throw CacheTextError(line: line, reason: .unknownLine)
    }
    return false
  }
  /// Whether a discovery may have inferred a descriptor of this type.
  private func mayBeInferred(_ type: BluetoothUUID, of index: Int?) -> Bool {
    guard let index, let range = characteristics[index].descriptorRange else { return false }
    return range.first == range.last && characteristics[index].properties.onlyDescriptor == type
  }
}

/// Why a text does not describe a database.
public struct CacheTextError: Error, Sendable, Equatable {
  public enum Reason: Sendable, Equatable {
    /// The first line is neither `bindrune-gatt 1` nor `bindrune-gatt 2`: another format, or a later one.
    case noHeading
    /// The line is not a service, include, characteristic, descriptor or hash, or has another number of fields.
    case unknownLine
    case badHandle, badUUID, badHash, badProperties
    case handlesNotIncreasing
    /// The text is truncated, or has no hash.
    case noEnd
    case afterTheEnd
  }
  /// From 1; empty lines do not count.
  public var line: Int
  public var reason: Reason
  public init(line: Int, reason: Reason) {
    self.line = line
    self.reason = reason
  }
}
