// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
import BindruneBroker
import BindruneWire
public import Foundation

/// A device that a central manager has found or retrieved: its link, and its services.
///
/// Every request is answered by a call of the delegate, on the manager's queue, unless the link ends first: then the
/// manager's delegate learns of the end, and the requests get no answer. Services, and what was found in them, cannot
/// be used after the end of the link on which they were discovered.
///
/// The app keeps the peripheral: when the app releases it, its connection, or the attempt to make one, is cancelled.
open class CBPeripheral: CBPeer, _KeyValueCodingAndObserving, KeyValueObserved, @unchecked Sendable {
  /// The manager's lock. It guards the properties of this peripheral and of everything found on it.
  let shared: Lock
  /// Distinguishes the objects that the manager makes one after another for the same device.
  let serial: UInt64
  private weak var owner: CBCentralManager?
  private weak var currentDelegate: (any CBPeripheralDelegate)?
  var lock: Lock { shared }
  /// Under the lock, which orders all accesses: release builds do not check each value's for overlaps.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe var link = PeripheralLink()
  /// Under the lock.
  var observers: [KeyValueObserver] = []

  init(_ identifier: UUID, of manager: CBCentralManager, serial: UInt64) {
    shared = manager.lock
    self.serial = serial
    owner = manager
    super.init(identifier: identifier)
  }
  /// A peripheral without a manager, which answers no request: for subclasses that stand in for a device.
  public init() {
    shared = Lock()
    serial = 0
    super.init(identifier: UUID())
  }
  deinit { owner?.abandoned(peer, serial, Log.name(self)) }

  var manager: CBCentralManager? { owner }
  /// Under the lock of the manager.
  func withLink<Value>(_ body: (inout PeripheralLink) -> Value) -> Value { shared.withLock { body(&link) } }
  /// Changes what observers may see, and calls them.
  func changeLink<Value>(_ body: (inout PeripheralLink) -> Value) -> Value { change { body(&link) } }

  // MARK: Properties

  open weak var delegate: (any CBPeripheralDelegate)? {
    get { shared.withLock { currentDelegate } }
    set { shared.withLock { currentDelegate = newValue } }
  }
  /// The device's name, from its GAP service once that was read; until then from its advertisements.
  open var name: String? { withLink { $0.name } }
  open var state: CBPeripheralState { withLink { $0.state } }
  /// The discovered services; nil until then, and when the link has ended.
  open var services: [CBService]? { withLink { $0.services } }
  /// dBm, as `readRSSI()` has read it last.
  @available(*, deprecated, message: "use readRSSI()") open var rssi: NSNumber? { withLink { $0.rssi } }
  /// `mtuLength` is the ATT_MTU, an `NSNumber`, `name` a `String`, `state` an `NSNumber`.
  open override func value(forKey key: String) -> Any? {
    switch key {
    case "mtuLength": NSNumber(value: withLink { $0.longestWrite } + 3)
    case "name": name
    case "state": NSNumber(value: state.rawValue)
    default: super.value(forKey: key)
    }
  }
  /// Of iOS: whether the device may use Apple's notification service.
  open var ancsAuthorized: Bool { false }
  /// Whether there is room for a write without response. If not, `peripheralIsReady(toSendWriteWithoutResponse:)` is
  /// called when there is.
  open var canSendWriteWithoutResponse: Bool {
    guard state == .connected else { return false }
    return owner?.session.port(.command, of: peer)?.isReady() ?? false
  }
  /// The most octets of one write: 512 with a response, ATT_MTU − 3 without. Core Specification, Vol 3, Part F,
  /// §3.2.9 and §3.4.5.3.
  open func maximumWriteValueLength(for type: CBCharacteristicWriteType) -> Int {
    type == .withResponse ? 512 : withLink { min($0.longestWrite, 512) }
  }

  /// A value that the device has sent. Returns who is to be told of it.
  func take(_ value: Span<UInt8>, of characteristic: CBCharacteristic) -> (any CBPeripheralDelegate)? {
    shared.withLock {
      guard link.state == .connected else { return nil }
      characteristic.replace(with: value)
      return currentDelegate
    }
  }

  // MARK: Requests

  open func readRSSI() { request(.rssi) { .readRSSI($0, $1) } }

  /// - Parameter serviceUUIDs: the services to look for; nil: all, which takes longer.
  open func discoverServices(_ serviceUUIDs: [CBUUID]?) {
    let filter = filter(serviceUUIDs)
    request(.services(isAll: filter == nil)) { .discoverServices($0, $1, filter) }
  }
  open func discoverIncludedServices(_ includedServiceUUIDs: [CBUUID]?, for service: CBService) {
    let filter = filter(includedServiceUUIDs)
    request(.includedServices(service, isAll: filter == nil), in: service) {
      .discoverIncludedServices($0, $1, $2, filter)
    }
  }
  open func discoverCharacteristics(_ characteristicUUIDs: [CBUUID]?, for service: CBService) {
    let filter = filter(characteristicUUIDs)
    request(.characteristics(service, isAll: filter == nil), in: service) {
      .discoverCharacteristics($0, $1, $2, filter)
    }
  }
  open func discoverDescriptors(for characteristic: CBCharacteristic) {
    request(.descriptors(characteristic), in: characteristic) { .discoverDescriptors($0, $1, $2) }
  }

  open func readValue(for characteristic: CBCharacteristic) {
    request(.read(characteristic), in: characteristic) { .read($0, $1, $2) }
  }
  open func readValue(for descriptor: CBDescriptor) {
    request(.readDescriptor(descriptor), in: descriptor) { .read($0, $1, $2) }
  }

  /// With a response, `peripheral(_:didWriteValueFor:error:)` reports the result. Without one there is no result: a
  /// value for which there is no room is dropped, and a value longer than `maximumWriteValueLength` is cut.
  open func writeValue(_ data: Data, for characteristic: CBCharacteristic, type: CBCharacteristicWriteType) {
    guard type == .withResponse else { return writeWithoutResponse(data, for: characteristic) }
    request(.write(characteristic), in: characteristic, data) { .write($0, $1, $2, data) }
  }
  /// A Client Characteristic Configuration cannot be written so: use `setNotifyValue`.
  open func writeValue(_ data: Data, for descriptor: CBDescriptor) {
    guard descriptor.uuid != CBUUID(string: CBUUIDClientCharacteristicConfigurationString) else {
      Log.misuse(self, "A Client Characteristic Configuration cannot be written: use setNotifyValue(_:for:).")
      return fail(
        .writeDescriptor(descriptor),
        CBError(.invalidParameters, "A Client Characteristic Configuration is set by setNotifyValue(_:for:)."))
    }
    request(.writeDescriptor(descriptor), in: descriptor, data) { .write($0, $1, $2, data) }
  }

  /// Subscribes to notifications, or to indications if the characteristic has no notifications; or ends the
  /// subscription.
  open func setNotifyValue(_ enabled: Bool, for characteristic: CBCharacteristic) {
    guard
      !characteristic.properties.isDisjoint(with: [.notify, .indicate]) || characteristic.service?.peripheral !== self
    else {
      return fail(
        .notify(characteristic),
        CBATTError(
          .requestNotSupported, "\(characteristic.uuid) has neither notifications nor indications: read it instead."))
    }
    request(.notify(characteristic), in: characteristic) { .setNotifying($0, $1, $2, enabled) }
  }

  /// Opens a channel to the service of the device that has this PSM; `peripheral(_:didOpen:error:)` reports the result.
  /// If the device wants a better protected link, the devices pair first. Core Specification, Vol 3, Part A, §4.22.
  ///
  /// Errors: `notConnected`, `operationNotSupported` if the device refuses the channel, `connectionTimeout` for a device
  /// that does not answer within 30 s.
  open func openL2CAPChannel(_ PSM: CBL2CAPPSM) {
    request(.openChannel) { .openChannel($0, $1, psm: PSM) }
  }

  open override var description: String {
    let (name, state, mtu) = withLink { ($0.name, $0.state, $0.longestWrite + 3) }
    let states = ["disconnected", "connecting", "connected", "disconnecting"]
    return
      "\(Log.name(self).dropLast()), identifier = \(identifier), name = \(name?.printable() ?? "(null)"), mtu = \(mtu), "
      + "state = \(states.indices.contains(state.rawValue) ? states[state.rawValue] : "\(state.rawValue)")>"
  }
}
