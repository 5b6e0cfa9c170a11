import BindruneGATT

// From the description of a service to its attributes: the rules, and the handles.

extension ServiceDescription {
  /// Octets of a Characteristic Presentation Format: Vol 3, Part G, §3.3.3.5.
  private static var formatLength: Int { 7 }
  /// The longest attribute value: Vol 3, Part F, §3.2.9.
  private static var longestValue: Int { 512 }

  /// Throws the rule that the description breaks, whatever else is published.
  func check() throws(BluetoothError) {
    // Vol 3, Part C, §12; Vol 3, Part G, §7. A second one would contradict the adapter's own.
    if uuid == .genericAccess || uuid == .genericAttribute {
      throw impossible("the adapter itself publishes this service: leave it out")
    }
    for characteristic in characteristics {
      do throws(Impossible) { try characteristic.check() } catch {
        throw impossible("characteristic \(characteristic.uuid) \(error.why)")
      }
    }
  }
  private func impossible(_ why: String) -> BluetoothError {
    BluetoothError(.invalidArgument, "Service \(uuid) cannot be published: \(why).")
  }
  fileprivate struct Impossible: Error { let why: String }

  /// The number of handles that it takes.
  var handleCount: Int {
    characteristics.reduce(1 + includes.count) { count, characteristic in
      count + 2 + (characteristic.isSubscribable ? 1 : 0) + characteristic.descriptors.count
    }
  }

  /// Adds it to `builder`.
  func publish(in builder: inout DatabaseBuilder) -> PublishedService {
    builder.service(uuid, isPrimary ? .primary : .secondary) { service in
      for include in includes { service.include(include) }
      return PublishedService(
        handle: service.handle,
        characteristics: characteristics.map { characteristic in
          let value = service.characteristic(
            characteristic.uuid, characteristic.properties,
            value: characteristic.value.map { .stored(Array($0)) } ?? .dynamic,
            permissions: characteristic.permitted, configuring: characteristic.configuringPermitted
          ).value
          return PublishedService.Characteristic(
            value: value,
            descriptors: characteristic.descriptors.map {
              service.descriptor($0.uuid, value: .stored(Array($0.value)))
            })
        })
    }
  }

  /// The types of GATT's own declarations: Vol 3, Part G, §3.1 … §3.3.
  fileprivate static func isDeclaration(_ uuid: BluetoothUUID) -> Bool {
    [.primaryService, .secondaryService, .include, .characteristic].contains(uuid)
  }
}

extension ServiceDescription.Characteristic {
  private typealias Impossible = ServiceDescription.Impossible

  fileprivate func check() throws(ServiceDescription.Impossible) {
    if ServiceDescription.isDeclaration(uuid) { throw Impossible(why: "has the UUID of a declaration") }
    // Each needs a descriptor that the adapter does not make: Vol 3, Part G, §3.3.1.1.
    if !properties.isDisjoint(with: [.broadcast, .extendedProperties]) {
      throw Impossible(
        why: "is broadcast or has extended properties, which local characteristics cannot have: remove these properties"
      )
    }
    if let value {
      if value.count > ServiceDescription.longestValue {
        throw Impossible(why: "has a value of \(value.count) octets; at most 512 are allowed")
      }
      if permitted.write.isPermitted {
        throw Impossible(
          why: "has a value and can be written: make it read-only, or remove the value and answer requests yourself")
      }
    }
    if descriptors.filter({ $0.uuid == .characteristicUserDescription }).count > 1 {
      throw Impossible(why: "has two user descriptions; only one is allowed")
    }
    for descriptor in descriptors { try descriptor.check() }
  }

  var isSubscribable: Bool { !properties.isDisjoint(with: [.notify, .indicate]) }

  /// The access of clients: what both the permissions and the properties allow. Vol 3, Part G, §3.3.1.1.
  var permitted: AttributePermissions {
    var permitted = AttributePermissions(read: properties.contains(.read) ? permissions.read : .none)
    if !properties.isDisjoint(with: [.write, .writeWithoutResponse]) {
      permitted.write = permissions.write
    } else if properties.contains(.authenticatedSignedWrites) {
      permitted.write = permissions.write.orSigned
    }
    return permitted
  }
  /// A value that may be read only over a protected link is sent over no other. Vol 3, Part C, §10.3.1.1.
  var configuringPermitted: AttributePermissions.Access {
    configuring == .open && permissions.read.needsEncryption ? permissions.read : configuring
  }
}

extension ServiceDescription.Descriptor {
  fileprivate func check() throws(ServiceDescription.Impossible) {
    if ServiceDescription.isDeclaration(uuid) {
      throw ServiceDescription.Impossible(why: "has a descriptor with the UUID of a declaration")
    }
    switch uuid {
    case .characteristicExtendedProperties, .clientCharacteristicConfiguration, .serverCharacteristicConfiguration:
      throw ServiceDescription.Impossible(why: "has descriptor \(uuid), which the adapter makes itself")
    case .characteristicPresentationFormat where value.count != ServiceDescription.formatLength:
      throw ServiceDescription.Impossible(why: "has a format (2904) of \(value.count) octets instead of 7")
    case _ where value.count > ServiceDescription.longestValue:
      throw ServiceDescription.Impossible(why: "has a descriptor of \(value.count) octets; at most 512 are allowed")
    default: break
    }
  }
}
