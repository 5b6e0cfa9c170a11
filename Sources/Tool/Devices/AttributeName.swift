import BindruneATT
import ArgumentParser
import BindruneWire
import BindruneGATT

/// An attribute that has a value, as the user types it: by UUID (`2A37`), by the Bluetooth SIG's name for the UUID
/// (`heart-rate-measurement`; case, spaces and hyphens do not matter), or by handle (`0x0012`). A path selects one
/// inside a service or characteristic: `180F/2A19`, `heart-rate-measurement/2902`.
struct AttributeName: ExpressibleByArgument, Sendable, CustomStringConvertible {
  private enum Part: Sendable {
    case uuid(BluetoothUUID)
    case name(String)
  }
  private enum Content: Sendable {
    case handle(AttributeHandle)
    /// From the outermost to the attribute itself.
    case path([Part])
  }
  private let content: Content
  let description: String

  init?(argument: String) {
    description = argument
    if argument.lowercased().hasPrefix("0x"), argument.utf8.count <= 6 {
      guard let number = Number16(argument: argument)?.value, number > 0 else { return nil }
      content = .handle(AttributeHandle(rawValue: number))
    } else {
      let parts = argument.split(separator: "/", omittingEmptySubsequences: false).map { part in
        BluetoothUUID(String(part)).map { Part.uuid($0) } ?? .name(Self.slug(part))
      }
      if argument.split(separator: "/").count < parts.count { return nil }
      content = .path(parts)
    }
  }

  /// The handle, if the user typed one.
  var handle: AttributeHandle? {
    if case .handle(let handle) = content { handle } else { nil }
  }
  func matches(_ attribute: RemoteAttribute) -> Bool {
    switch content {
    case .handle(let handle): return attribute.handle == handle
    case .path(let parts):
      guard let last = parts.last, Self.matches(last, attribute.uuid) else { return false }
      var owners = attribute.owners[...]
      return parts.dropLast().allSatisfy { part in
        guard let place = owners.firstIndex(where: { Self.matches(part, $0) }) else { return false }
        owners = owners[(place + 1)...]
        return true
      }
    }
  }
  private static func matches(_ part: Part, _ uuid: BluetoothUUID) -> Bool {
    switch part {
    case .uuid(let wanted): uuid == wanted
    case .name(let name): uuid.assignedName.map(slug) == name
    }
  }
  /// Turns `Heart Rate Measurement` and `heart_rate_measurement` into `heart-rate-measurement`.
  static func slug(_ name: some StringProtocol) -> String {
    String(name.lowercased().map { $0 == " " || $0 == "_" ? "-" : $0 })
  }
  static let help: ArgumentHelp = ArgumentHelp(
    """
    The characteristic or descriptor: a UUID (2A37), a name (heart-rate-measurement), a handle (0x0012), or a path \
    from its service or characteristic (180F/2A19, 2A37/2902).
    """, valueName: "attribute")
}

/// A discovered attribute that has a value: a characteristic's, or a descriptor.
struct RemoteAttribute: Sendable {
  var handle: AttributeHandle
  var uuid: BluetoothUUID
  /// The UUID of the service, and for a descriptor that of the characteristic.
  var owners: [BluetoothUUID]
  /// The characteristic whose value it is; nil: it is a descriptor.
  var characteristic: RemoteCharacteristic?
  /// `Heart Rate Measurement`, or the UUID.
  var title: String { uuid.assignedName ?? uuid.description }
}

extension RemoteDatabase {
  /// All attributes that have a value, in the order of the declarations.
  var attributes: [RemoteAttribute] {
    services.flatMap { service in
      characteristics(of: service).flatMap { characteristic in
        let value = RemoteAttribute(
          handle: characteristic.valueHandle, uuid: characteristic.uuid, owners: [service.uuid],
          characteristic: characteristic)
        return [value]
          + descriptors(of: characteristic).map {
            RemoteAttribute(handle: $0.handle, uuid: $0.uuid, owners: [service.uuid, characteristic.uuid])
          }
      }
    }
  }

  func attribute(_ name: AttributeName) throws(Failure) -> RemoteAttribute {
    let found = attributes.filter(name.matches)
    if found.count == 1 { return found[0] }
    if found.isEmpty {
      throw Failure(
        "The device has no attribute \(name.description.printable()): `bindrune explore` lists all.",
        status: .noAttribute)
    }
    let places = found.prefix(8).map { attribute in
      "\(attribute.handle.text) of \(attribute.owners.last.map { $0.assignedName ?? $0.description } ?? "the device")"
    }
    throw Failure(
      """
      The device has \(found.count) attributes \(name.description.printable()), \(places.joined(separator: ", ")): \
      give the handle, or the service or characteristic and a slash before the name.
      """, status: .noAttribute)
  }

  /// The shortest name that selects only `attribute` on this device: its own, a path, or its handle.
  func spelling(of attribute: RemoteAttribute) -> String {
    let path = (attribute.owners + [attribute.uuid]).map { $0.assignedName.map(AttributeName.slug) ?? $0.description }
    let all = attributes
    for count in 1...path.count {
      let text = path.suffix(count).joined(separator: "/")
      if let name = AttributeName(argument: text), all.filter(name.matches).count == 1 { return text }
    }
    return attribute.handle.text
  }
}
