import BindruneBroker
import Foundation

/// A service of a peripheral: one that was found there, or (`CBMutableService`) one of this device.
open class CBService: CBAttribute, @unchecked Sendable {
  /// Under the lock.
  private weak var owner: CBPeripheral?
  private let primary: Bool
  private var included: [CBService]?
  private var contents: [CBCharacteristic]?
  private var valid = true
  /// Where it was found; nil for a service of this device.
  let found: FoundService?

  /// For a service of this device.
  override init(uuid: CBUUID) {
    primary = true
    found = nil
    super.init(uuid: uuid)
  }
  init(_ found: FoundService, of peripheral: CBPeripheral) {
    primary = found.isPrimary
    self.found = found
    owner = peripheral
    super.init(uuid: CBUUID(found.uuid), guardedBy: peripheral.shared)
  }

  /// The peripheral that it belongs to; nil when that is released, and for a service of this device.
  open weak var peripheral: CBPeripheral? { shared.withLock { owner } }
  /// Whether it is primary. A secondary service is only included by others.
  open var isPrimary: Bool { primary }
  /// Nil until they have been discovered.
  open var includedServices: [CBService]? { shared.withLock { included } }
  /// Nil until they have been discovered.
  open var characteristics: [CBCharacteristic]? { shared.withLock { contents } }

  func setIncludedServices(_ services: [CBService]?) { shared.withLock { included = services } }
  func setCharacteristics(_ characteristics: [CBCharacteristic]?) { shared.withLock { contents = characteristics } }
  /// False: the link on which it was found has ended, or the peripheral has changed its services.
  var isValid: Bool { shared.withLock { valid } }
  /// It cannot be used any more. Services may include each other, so it releases them. Under the lock.
  func invalidate() {
    valid = false
    included = nil
    for characteristic in contents ?? [] { characteristic.invalidate() }
  }

  open override var description: String {
    "\(Log.name(self).dropLast()), isPrimary = \(isPrimary ? "YES" : "NO"), UUID = \(uuid)>"
  }
}
