import Bindrune
import BindruneGATT

/// The database of `../database.py`, attribute by attribute, and the handles of values with special behaviour.
struct InteropDatabase {
  let database: Database
  let heartRate: AttributeHandle
  /// Accepts 01 only.
  let heartRateControl: AttributeHandle
  /// Reads back how many commands and octets were written to it.
  let commands: AttributeHandle
  let notified: AttributeHandle
  let indicated: AttributeHandle
  let control: AttributeHandle
  /// Refuses everything with the application's own errors.
  let errors: AttributeHandle

  static let name = "InteropPeer"

  static func uuid(_ number: UInt64) -> BluetoothUUID {
    .long(low: 0x8E5C_6F0E_5F1A_0C00, high: 0xA0B1_0000_1D1D_4BBD | number << 32)
  }

  init() throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: Self.name)
    builder.service(.genericAttribute) { service in
      service.characteristic(.serviceChanged, .indicate, value: .fixed([1, 0, 0xFF, 0xFF]))
      service.characteristic(.clientSupportedFeatures, [.read, .write], value: .fixed([0]))
      service.characteristic(.databaseHash, .read, value: .fixed(Self.hash))
    }
    (heartRate, heartRateControl) = builder.service("180D") { service in
      let measurement = service.characteristic("2A37", .notify)
      service.characteristic("2A38", .read, value: [2])
      return (measurement.value, service.characteristic("2A39", .write, value: .dynamic).value)
    }
    let battery = builder.service("180F") { service in
      service.characteristic("2A19", [.read, .notify], value: [0x57])
      return service.handle
    }
    let secondary = builder.service(Self.uuid(0x20), .secondary) { service in
      service.characteristic(Self.uuid(0x21), .read, value: .text("2nd"))
      return service.handle
    }
    (commands, notified, indicated, control, errors) = builder.service(Self.uuid(0)) { service in
      service.include(battery)
      service.include(secondary)
      service.characteristic(Self.uuid(1), .read, value: .text("HELLO"))
      service.characteristic(Self.uuid(2), [.read, .write])
      let commands = service.characteristic(Self.uuid(3), [.read, .writeWithoutResponse], value: .dynamic)
      let notified = service.characteristic(Self.uuid(4), [.read, .notify], value: [0, 0, 0, 0])
      let indicated = service.characteristic(Self.uuid(5), [.read, .indicate], value: [0, 0, 0, 0])
      service.characteristic(
        Self.uuid(6), [.read, .write], value: .stored((0..<512).map { UInt8(truncatingIfNeeded: $0) }))
      service.characteristic(
        Self.uuid(7), .read, value: .text("secret"), permissions: AttributePermissions(read: .encrypted))
      service.characteristic(
        Self.uuid(8), .read, value: .text("mitm-secret"), permissions: AttributePermissions(read: .authenticated))
      service.characteristic(Self.uuid(9), .read, value: .text("d"))
      service.userDescription("user description")
      service.descriptor(.characteristicPresentationFormat, value: .fixed([0x04, 0x00, 0xAD, 0x27, 0x01, 0x00, 0x00]))
      let control = service.characteristic(Self.uuid(10), .write, value: .dynamic)
      let errors = service.characteristic(Self.uuid(11), [.read, .write], value: .dynamic)
      service.characteristic(Self.uuid(12), .write)
      return (commands.value, notified.value, indicated.value, control.value, errors.value)
    }
    database = try builder.build()
  }

  /// Over exactly these handles and declarations: Vol 3, Part G, §7.3.
  private static let hash: [UInt8] = [
    0x6C, 0x21, 0x60, 0xB1, 0x14, 0xA9, 0xEC, 0xAE, 0x0E, 0xB2, 0xE2, 0x59, 0x0A, 0xE8, 0x5A, 0x0C,
  ]
}
