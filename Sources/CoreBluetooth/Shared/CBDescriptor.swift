import BindruneBroker
import Foundation

/// A descriptor of a characteristic: one that was found on a peripheral, or (`CBMutableDescriptor`) one of this device.
open class CBDescriptor: CBAttribute, @unchecked Sendable {
  // Under the lock.
  private weak var owner: CBCharacteristic?
  private var current: Any?
  /// Where it was found; nil for a descriptor of this device.
  let found: RemoteDescriptor?

  /// For a descriptor of this device.
  override init(uuid: CBUUID) {
    found = nil
    super.init(uuid: uuid)
  }
  init(_ found: RemoteDescriptor, of characteristic: CBCharacteristic) {
    self.found = found
    owner = characteristic
    super.init(uuid: CBUUID(found.uuid), guardedBy: characteristic.shared)
  }

  /// The characteristic that it belongs to.
  open weak var characteristic: CBCharacteristic? { shared.withLock { owner } }
  /// As it was read last; nil until then. A number (`NSNumber`) for Extended Properties and the configurations, a text
  /// (`String`) for a User Description, else `Data`.
  open var value: Any? { shared.withLock { current } }

  func setValue(_ value: Any?) { shared.withLock { current = value } }
  /// The octets that were read, as the descriptor's type says. Core Specification, Vol 3, Part G, §3.3.3.
  static func value(_ data: Data, of uuid: CBUUID) -> Any {
    switch uuid.uuidString {
    case CBUUIDCharacteristicExtendedPropertiesString, CBUUIDClientCharacteristicConfigurationString,
      CBUUIDServerCharacteristicConfigurationString:
      NSNumber(value: data.prefix(2).reversed().reduce(UInt16(0)) { $0 << 8 | UInt16($1) })
    case CBUUIDCharacteristicUserDescriptionString: String(decoding: data, as: UTF8.self)
    default: data
    }
  }

  open override var description: String {
    "\(Log.name(self).dropLast()), UUID = \(uuid), value = \(value.map { "\($0)" } ?? "(null)")>"
  }
}
