import BindruneBroker
public import Foundation

/// A service to publish with `CBPeripheralManager.add`. Once it is published it cannot be changed: an attempt has no
/// effect but a line on standard error.
open class CBMutableService: CBService, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock.
  private let lock = Lock()
  private let primary: Bool
  private var included: [CBService]?
  private var parts: [CBCharacteristic]?
  /// The manager that has published it, or is about to.
  private weak var owner: CBPeripheralManager?

  /// `isPrimary` false: it means something only in the services that include it. Core Specification, Vol 3, Part G,
  /// §2.6.1.
  public init(type UUID: CBUUID, primary isPrimary: Bool) {
    primary = isPrimary
    super.init(uuid: UUID)
  }

  open override var isPrimary: Bool { primary }
  /// Always nil: a local service belongs to no peripheral.
  open override weak var peripheral: CBPeripheral? { nil }
  /// Services of the same manager, each to be published before this one.
  open override var includedServices: [CBService]? {
    get { lock.withLock { included } }
    set { change("includedServices") { included = newValue } }
  }
  open override var characteristics: [CBCharacteristic]? {
    get { lock.withLock { parts } }
    set {
      guard change("characteristics", { parts = newValue }) else { return }
      for case let characteristic as CBMutableCharacteristic in newValue ?? [] { characteristic.setService(self) }
    }
  }
  @discardableResult
  private func change(_ property: String, _ body: () -> Void) -> Bool {
    let isFree = lock.withLock {
      guard owner == nil else { return false }
      body()
      return true
    }
    if !isFree { Log.misuse(self, "\(property) cannot be changed while the service is published.") }
    return isFree
  }

  /// False: another manager has published it. Else it is `manager`'s from now on.
  func claim(for manager: CBPeripheralManager) -> Bool {
    lock.withLock {
      guard owner == nil else { return false }
      owner = manager
      return true
    }
  }
  func release() { lock.withLock { owner = nil } }
}

/// A characteristic of a service to publish.
///
/// With a value it is *cached*: the database answers for it, and it can be read and nothing else. Without, it is
/// *dynamic*: every read and write becomes a request to the manager's delegate, and `value` is the program's own to
/// keep or not.
open class CBMutableCharacteristic: CBCharacteristic, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock.
  private let lock = Lock()
  private var currentProperties: CBCharacteristicProperties
  private var currentPermissions: CBAttributePermissions
  private var currentValue: Data?
  private var currentDescriptors: [CBDescriptor]?
  private weak var parent: CBService?
  /// The manager that has published it, or is about to; the handle; and whether the database keeps the value. The
  /// manager calls `release` before it ends. Loading a weak reference for each value would cost as much as the rest of
  /// `audience`.
  private var owner: ObjectIdentifier?
  private var handle: AttributeHandle?
  private var isCached = false
  // Release builds do not check that no two accesses to it overlap, as the lock sees to it.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe private var subscribers: [Subscriber] = []

  /// A central that has subscribed, and where its notifications are put; nil: its link has ended already.
  struct Subscriber {
    let central: CBCentral
    var port: SendPort?
  }

  public init(
    type UUID: CBUUID, properties: CBCharacteristicProperties, value: Data?, permissions: CBAttributePermissions
  ) {
    currentProperties = properties
    currentPermissions = permissions
    currentValue = value
    super.init(uuid: UUID)
  }

  open var permissions: CBAttributePermissions {
    get { lock.withLock { currentPermissions } }
    set { change("permissions") { currentPermissions = newValue } }
  }
  open override var properties: CBCharacteristicProperties {
    get { lock.withLock { currentProperties } }
    set { change("properties") { currentProperties = newValue } }
  }
  /// Of a dynamic characteristic, the value that the program has set: it may change it at any time, and centrals do not
  /// see it.
  open override var value: Data? {
    get { lock.withLock { currentValue } }
    set { change("value", ifDynamic: true) { currentValue = newValue } }
  }
  /// Any but Extended Properties (2900) and the configurations (2902, 2903), which the database makes.
  open override var descriptors: [CBDescriptor]? {
    get { lock.withLock { currentDescriptors } }
    set {
      guard change("descriptors", { currentDescriptors = newValue }) else { return }
      for case let descriptor as CBMutableDescriptor in newValue ?? [] { descriptor.setCharacteristic(self) }
    }
  }
  open override weak var service: CBService? { lock.withLock { parent } }
  /// The centrals that have subscribed to the value.
  open var subscribedCentrals: [CBCentral]? { lock.withLock { subscribers.map(\.central) } }

  @discardableResult
  private func change(_ property: String, ifDynamic: Bool = false, _ body: () -> Void) -> Bool {
    let isFree = lock.withLock {
      guard owner == nil || (ifDynamic && !isCached) else { return false }
      body()
      return true
    }
    if !isFree { Log.misuse(self, "\(property) cannot be changed while the characteristic is published.") }
    return isFree
  }
  func setService(_ service: CBService) { lock.withLock { parent = service } }

  func claim(for manager: CBPeripheralManager) -> Bool {
    lock.withLock {
      guard owner == nil else { return false }
      (owner, isCached) = (ObjectIdentifier(manager), currentValue != nil)
      return true
    }
  }
  func publish(at handle: AttributeHandle) { lock.withLock { self.handle = handle } }
  func release() { lock.withLock { (owner, handle, isCached, subscribers) = (nil, nil, false, []) } }

  /// The handle at which `manager` has published it, and its subscribers; nil: it has not published it.
  func audience(of manager: CBPeripheralManager) -> (handle: AttributeHandle, subscribers: [Subscriber])? {
    lock.withLock {
      guard owner == ObjectIdentifier(manager), let handle else { return nil }
      return (handle, subscribers)
    }
  }
  /// False: it has subscribed already, and has only another port now.
  func addSubscriber(_ central: CBCentral, _ port: SendPort?) -> Bool {
    lock.withLock {
      if let index = subscribers.firstIndex(where: { $0.central === central }) {
        subscribers[index].port = port
        return false
      }
      subscribers.append(Subscriber(central: central, port: port))
      return true
    }
  }
  /// False: it has not subscribed.
  func removeSubscriber(_ central: CBCentral) -> Bool {
    lock.withLock {
      guard let index = subscribers.firstIndex(where: { $0.central === central }) else { return false }
      subscribers.remove(at: index)
      return true
    }
  }
  func removeSubscribers() { lock.withLock { subscribers = [] } }
}

/// A descriptor of a characteristic to publish: its description (2901), a `String`, or another, such as its
/// presentation format (2904) or a Report Reference (2908), a `Data`. Core Specification, Vol 3, Part G, §3.3.3.
open class CBMutableDescriptor: CBDescriptor, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock.
  private let lock = Lock()
  private let content: Any?
  private weak var parent: CBCharacteristic?

  public init(type UUID: CBUUID, value: Any?) {
    content = value
    super.init(uuid: UUID)
  }

  open override var value: Any? { content }
  open override weak var characteristic: CBCharacteristic? { lock.withLock { parent } }
  func setCharacteristic(_ characteristic: CBCharacteristic) { lock.withLock { parent = characteristic } }
}
