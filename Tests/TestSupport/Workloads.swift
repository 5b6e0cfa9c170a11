import BindruneATT
import BindruneGATT
import BindruneWire

extension DatabaseBuilder {
  /// The services of the performance workloads: `count` × 30 attributes, every second one with 128-bit UUIDs.
  public mutating func addWorkload(services count: Int) {
    func uuid(_ number: Int, isShort: Bool) -> BluetoothUUID {
      isShort
        ? .short(UInt16(number))
        : .long(low: 0xC7C6_C5C4_C3C2_C1C0, high: 0xD000_0000_CBCA_C9C8 | UInt64(number) << 32)
    }
    for number in 0..<count {
      let isShort = number.isMultiple(of: 2)
      service(uuid(0xA000 + number, isShort: isShort)) { service in
        for place in 0..<10 {
          let octets = [UInt8](repeating: UInt8(place), count: place < 9 ? 20 : 200)
          service.characteristic(
            uuid(0xB000 + 16 * number + place, isShort: isShort),
            place < 9 ? [.read, .write, .notify] : [.read, .write], value: .stored(octets))
        }
      }
    }
  }
}
extension Database {
  /// See `addWorkload`.
  public static func workload(services: Int) throws -> Database {
    var builder = DatabaseBuilder()
    builder.addWorkload(services: services)
    return try builder.build()
  }
}
