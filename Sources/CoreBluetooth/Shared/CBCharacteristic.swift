import BindruneBroker
public import Foundation

/// A characteristic of a service: one that was found on a peripheral, or (`CBMutableCharacteristic`) one of this
/// device.
open class CBCharacteristic: CBAttribute, @unchecked Sendable {
  // Under the lock.
  private weak var owner: CBService?
  private let allowed: CBCharacteristicProperties
  // Release builds do not check that no two accesses overlap, which would cost 240 instructions for each value: the
  // lock sees to it.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var current: Data?
  private var contents: [CBDescriptor]?
  private var notifying = false
  /// Where its value was found; nil for a characteristic of this device.
  let found: FoundCharacteristic?

  /// For a characteristic of this device.
  override init(uuid: CBUUID) {
    allowed = []
    found = nil
    super.init(uuid: uuid)
  }
  init(_ found: FoundCharacteristic, of service: CBService) {
    allowed = CBCharacteristicProperties(rawValue: UInt(found.properties.rawValue))
    self.found = found
    owner = service
    super.init(uuid: CBUUID(found.uuid), guardedBy: service.shared)
  }

  /// The service that it belongs to.
  open weak var service: CBService? { shared.withLock { owner } }
  /// What can be done with its value.
  open var properties: CBCharacteristicProperties { allowed }
  /// As it was read or notified last; nil until then.
  open var value: Data? { shared.withLock { current } }
  /// Nil until they have been discovered.
  open var descriptors: [CBDescriptor]? { shared.withLock { contents } }
  @available(*, deprecated) open var isBroadcasted: Bool { false }
  /// Whether this app receives notifications or indications of the value.
  open var isNotifying: Bool { shared.withLock { notifying } }

  func setValue(_ value: Data?) { shared.withLock { current = value } }
  /// The same for a copy of `octets`, with the lock held. It is written over the value before, whose memory nobody else
  /// uses unless the program has kept that value: so a notification allocates nothing.
  func replace(with octets: Span<UInt8>) {
    guard var value = current.take(), value.count == octets.count else {
      current = unsafe octets.withUnsafeBufferPointer { unsafe Data(buffer: $0) }
      return
    }
    unsafe octets.withUnsafeBytes { octets in
      unsafe value.withUnsafeMutableBytes { unsafe $0.copyMemory(from: octets) }
    }
    current = value
  }
  func setDescriptors(_ descriptors: [CBDescriptor]?) { shared.withLock { contents = descriptors } }
  /// It cannot be used any more. Under the lock.
  func invalidate() { notifying = false }
  func setNotifying(_ isNotifying: Bool) { shared.withLock { notifying = isNotifying } }

  open override var description: String {
    let (properties, value, isNotifying) = (properties, value, isNotifying)
    return
      "\(Log.name(self).dropLast()), UUID = \(uuid), properties = 0x\(String(properties.rawValue, radix: 16, uppercase: true)), "
      + "value = \(value.map(octets) ?? "(null)"), notifying = \(isNotifying ? "YES" : "NO")>"
  }
}

/// `{length = 2, bytes = 0x0648}`, as Foundation prints data on Apple's platforms.
private func octets(_ data: Data) -> String {
  let digits = data.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  return "{length = \(data.count), bytes = 0x\(digits)}"
}
