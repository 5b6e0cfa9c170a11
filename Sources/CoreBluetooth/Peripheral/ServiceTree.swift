import BindruneBroker
import Foundation
import BindruneGATT

/// A service as it was when `CBPeripheralManager.add` was called, with the services that it includes and its
/// characteristics.
struct ServiceTree {
  let service: CBMutableService
  let included: [CBMutableService]
  let characteristics: [CBMutableCharacteristic]

  /// Throws where Apple raises an exception, or answers with an error; the error names the attribute and the rule.
  init(_ service: CBMutableService) throws(CBError) {
    let uuid = service.uuid
    // The adapter itself publishes these.
    guard !CBUUID.ofSystem.contains(uuid) else {
      throw CBError(.uuidNotAllowed, "The adapter itself publishes the service \(uuid): leave it out.")
    }
    var included: [CBMutableService] = []
    for other in service.includedServices ?? [] {
      guard let other = other as? CBMutableService else {
        throw .invalid("The service \(uuid) includes \(other.uuid), which is not a CBMutableService.")
      }
      included.append(other)
    }
    var characteristics: [CBMutableCharacteristic] = []
    for characteristic in service.characteristics ?? [] {
      guard let characteristic = characteristic as? CBMutableCharacteristic else {
        throw .invalid(
          "The service \(uuid) has a characteristic, \(characteristic.uuid), that is not a CBMutableCharacteristic.")
      }
      guard !characteristics.contains(where: { $0 === characteristic }) else {
        throw .invalid("The service \(uuid) has the same CBMutableCharacteristic, \(characteristic.uuid), twice.")
      }
      characteristics.append(characteristic)
    }
    self.service = service
    self.included = included
    self.characteristics = characteristics
  }

  /// The description without the included services, whose handles are known only when they are published. The tree is
  /// claimed, so it does not change.
  func describe() throws(CBError) -> ServiceDescription {
    var description = ServiceDescription(uuid: service.uuid.uuid, isPrimary: service.isPrimary)
    for characteristic in characteristics {
      description.characteristics.append(try ServiceDescription.Characteristic(characteristic))
    }
    return description
  }

  /// False: a manager has published a part of it already. Else all of it is `manager`'s from now on.
  func claim(for manager: CBPeripheralManager) -> Bool {
    guard service.claim(for: manager) else { return false }
    for (index, characteristic) in characteristics.enumerated() where !characteristic.claim(for: manager) {
      for claimed in characteristics[..<index] { claimed.release() }
      service.release()
      return false
    }
    return true
  }
  func release() {
    for characteristic in characteristics { characteristic.release() }
    service.release()
  }
}

extension ServiceDescription.Characteristic {
  init(_ characteristic: CBMutableCharacteristic) throws(CBError) {
    let uuid = characteristic.uuid, value = characteristic.value
    var properties = characteristic.properties
    let permissions = characteristic.permissions
    guard properties.isDisjoint(with: [.broadcast, .extendedProperties]) else {
      throw .invalid(
        "The characteristic \(uuid) is broadcast or has extended properties, which local characteristics cannot have.")
    }
    if let value {
      guard properties.isSubset(of: .read), permissions.isSubset(of: [.readable, .readEncryptionRequired]) else {
        throw .invalid(
          "The characteristic \(uuid) has a value, so it can only be read: remove the value, to answer requests"
            + " yourself, or all properties and permissions except reading.")
      }
      guard value.count <= 512 else {
        throw .invalid(
          "The value of the characteristic \(uuid) has \(value.count) octets; at most 512 are allowed. Vol 3, Part F, §3.2.9."
        )
      }
    }
    // A subscription that requires encryption is a subscription too.
    if properties.contains(.notifyEncryptionRequired) { properties.insert(.notify) }
    if properties.contains(.indicateEncryptionRequired) { properties.insert(.indicate) }
    let isProtected = !properties.isDisjoint(with: [.notifyEncryptionRequired, .indicateEncryptionRequired])
    self.init(
      uuid: uuid.uuid, properties: CharacteristicProperties(rawValue: UInt8(truncatingIfNeeded: properties.rawValue)),
      permissions: AttributePermissions(
        read: .init(permissions, open: .readable, encrypted: .readEncryptionRequired),
        write: .init(permissions, open: .writeable, encrypted: .writeEncryptionRequired)),
      configuring: isProtected ? .encrypted : .open, value: value)
    for descriptor in characteristic.descriptors ?? [] {
      descriptors.append(try ServiceDescription.Descriptor(descriptor, of: uuid))
    }
  }
}

extension AttributePermissions.Access {
  fileprivate init(
    _ permissions: CBAttributePermissions, open: CBAttributePermissions, encrypted: CBAttributePermissions
  ) {
    self = permissions.contains(encrypted) ? .encrypted : permissions.contains(open) ? .open : .none
  }
}

extension ServiceDescription.Descriptor {
  /// Any but those that the database makes itself: Extended Properties and the configurations. A User Description is a
  /// text, every other a `Data`.
  init(_ descriptor: CBDescriptor, of characteristic: CBUUID) throws(CBError) {
    let value: Data
    guard descriptor is CBMutableDescriptor else {
      throw .invalid("The descriptor \(descriptor.uuid) of \(characteristic) is not a CBMutableDescriptor.")
    }
    switch (descriptor.uuid.uuidString, descriptor.value) {
    case (CBUUIDCharacteristicUserDescriptionString, let text as String): value = Data(text.utf8)
    case (
      CBUUIDCharacteristicExtendedPropertiesString, _
    ), (CBUUIDClientCharacteristicConfigurationString, _), (CBUUIDServerCharacteristicConfigurationString, _):
      throw .invalid(
        "The descriptor \(descriptor.uuid) of \(characteristic) cannot be published: the adapter makes it itself.")
    case (CBUUIDCharacteristicUserDescriptionString, _):
      throw .invalid(
        "The descriptor 2901 of \(characteristic) has a value of the wrong type: 2901 is a String.")
    case (_, let octets as Data): value = octets
    default:
      throw .invalid(
        """
        The descriptor \(descriptor.uuid) of \(characteristic) has a value of the wrong type: \
        \(descriptor.uuid.uuidString) is a Data.
        """
      )
    }
    guard value.count <= 512 else {
      throw .invalid(
        "The descriptor \(descriptor.uuid) of \(characteristic) has \(value.count) octets; at most 512 are allowed."
          + " Vol 3, Part F, §3.2.9.")
    }
    self.init(uuid: descriptor.uuid.uuid, value: value)
  }
}

extension CBError {
  static func invalid(_ sentence: String) -> CBError { CBError(.invalidParameters, sentence) }
}

// From the description of a service that was preserved to objects that describe it the same way.

extension CBMutableService {
  convenience init(_ description: ServiceDescription, including included: [CBMutableService]) {
    self.init(type: CBUUID(description.uuid), primary: description.isPrimary)
    if !included.isEmpty { includedServices = included }
    characteristics = description.characteristics.map { CBMutableCharacteristic($0) }
  }
}

extension CBMutableCharacteristic {
  fileprivate convenience init(_ description: ServiceDescription.Characteristic) {
    var properties = CBCharacteristicProperties(rawValue: UInt(description.properties.rawValue))
    if description.configuring != .open {
      if properties.contains(.notify) { properties.insert(.notifyEncryptionRequired) }
      if properties.contains(.indicate) { properties.insert(.indicateEncryptionRequired) }
    }
    var permissions = CBAttributePermissions()
    permissions.add(description.permissions.read, open: .readable, encrypted: .readEncryptionRequired)
    permissions.add(description.permissions.write, open: .writeable, encrypted: .writeEncryptionRequired)
    self.init(
      type: CBUUID(description.uuid), properties: properties, value: description.value, permissions: permissions)
    if !description.descriptors.isEmpty {
      descriptors = description.descriptors.map { descriptor in
        let uuid = CBUUID(descriptor.uuid), isText = uuid.uuidString == CBUUIDCharacteristicUserDescriptionString
        return CBMutableDescriptor(
          type: uuid, value: isText ? String(decoding: descriptor.value, as: UTF8.self) : descriptor.value)
      }
    }
  }
}

extension CBAttributePermissions {
  fileprivate mutating func add(
    _ access: AttributePermissions.Access, open: CBAttributePermissions, encrypted: CBAttributePermissions
  ) {
    if access.needsEncryption { insert(encrypted) } else if access.isPermitted { insert(open) }
  }
}
