import BindruneWire
import BindruneGATT

// The records of format 1, which a daemon reads once: JSON of the types of that time, whose names stand here. Decision
// 0066.

extension AppRecord {
  /// Throws where the text is wrong, and what is wrong there.
  init(json text: [UInt8]) throws(FrameError) {
    do {
      let old = try JSONDecoder().decode(OldRecord.self, from: Data(text))
      guard old.format == 1 else { throw FrameError("it has format \(old.format)") }
      self.init(
        user: old.user, manifest: old.manifest, mayShareData: old.mayShareData,
        managers: try old.managers.map { Manager(adapter: $0.adapter, manager: try $0.manager.now) })
    } catch let error as FrameError { throw error } catch {
      throw FrameError(error.cause)
    }
  }
}

private struct OldRecord: Decodable {
  struct Manager: Decodable {
    var adapter: String
    var manager: OldManager
  }
  var format: Int
  var user: UInt32
  var manifest: AppManifest
  var mayShareData: Bool?
  var managers: [Manager]
}
private struct OldManager: Decodable {
  struct Identity: Decodable {
    var role: BackgroundMode
    var restoreIdentifier: String?
  }
  struct Scan: Decodable {
    var services: [OldUUID]
    var solicitedServices: [OldUUID]
    var allowsDuplicates: Bool
  }
  struct Options: Decodable {
    var startDelay: Double
    var reconnects: Bool
    var alerts: UInt8
  }
  struct Peer: Decodable {
    var identifier: UUID
    var options: Options
    var name: String?
  }
  struct Service: Decodable {
    var handle: UInt16
    var description: OldDescription
  }
  struct Advertisement: Decodable {
    var localName: String?
    var services: [OldUUID]
  }
  var identity: Identity
  var scan: Scan?
  var peers: [Peer]
  var services: [Service]
  var advertisement: Advertisement?

  var now: PreservedManager {
    get throws(FrameError) {
      var manager = PreservedManager(
        identity: ManagerIdentity(identity.role, restoreIdentifier: identity.restoreIdentifier))
      manager.scan = scan.map {
        RestoredState.Scan(
          services: $0.services.map(\.uuid), solicitedServices: $0.solicitedServices.map(\.uuid),
          allowsDuplicates: $0.allowsDuplicates)
      }
      manager.peers = peers.map {
        PreservedManager.Peer(
          identifier: $0.identifier,
          options: ConnectOptions(
            startDelay: $0.options.startDelay, reconnects: $0.options.reconnects,
            alerts: ConnectOptions.Alerts(rawValue: $0.options.alerts)), name: $0.name)
      }
      for service in services {
        manager.services.append(
          PreservedManager.Service(
            handle: AttributeHandle(rawValue: service.handle), description: try service.description.now))
      }
      manager.advertisement = advertisement.map {
        RestoredState.Advertisement(localName: $0.localName, services: $0.services.map(\.uuid))
      }
      return manager
    }
  }
}
private struct OldDescription: Decodable {
  struct Access: Decodable {
    var level: String
    var authorization: Bool?
    var signature: Bool?
    var keySize: Int?

    var now: AttributePermissions.Access {
      get throws(FrameError) {
        var access: AttributePermissions.Access =
          switch level {
          case "none": .none
          case "open": .open
          case "encrypted": .encrypted
          case "authenticated": .authenticated
          default: throw FrameError("\(level.printable(limit: 40)) is not an access")
          }
        if authorization == true { access = access.withAuthorization }
        if signature == true { access = access.orSigned }
        if let keySize { access = access.withKey(of: keySize) }
        return access
      }
    }
  }
  struct Permissions: Decodable { var read: Access, write: Access }
  struct Descriptor: Decodable { var uuid: OldUUID, value: Data }
  struct Characteristic: Decodable {
    var uuid: OldUUID
    var properties: UInt8
    var permissions: Permissions
    var configuring: Access
    var value: Data?
    var descriptors: [Descriptor]
  }
  var uuid: OldUUID
  var isPrimary: Bool
  var includes: [UInt16]
  var characteristics: [Characteristic]

  var now: ServiceDescription {
    get throws(FrameError) {
      var description = ServiceDescription(
        uuid: uuid.uuid, isPrimary: isPrimary, includes: includes.map { AttributeHandle(rawValue: $0) })
      for old in characteristics {
        description.characteristics.append(
          ServiceDescription.Characteristic(
            uuid: old.uuid.uuid, properties: CharacteristicProperties(rawValue: old.properties),
            permissions: AttributePermissions(
              read: try old.permissions.read.now, write: try old.permissions.write.now),
            configuring: try old.configuring.now, value: old.value,
            descriptors: old.descriptors.map { ServiceDescription.Descriptor(uuid: $0.uuid.uuid, value: $0.value) }))
      }
      return description
    }
  }
}
private struct OldUUID: Decodable {
  let uuid: BluetoothUUID
  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    guard let uuid = BluetoothUUID(try container.decode(String.self)) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "this is not a Bluetooth UUID")
    }
    self.uuid = uuid
  }
}
