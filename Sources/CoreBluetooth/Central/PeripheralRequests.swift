import BindruneBroker
import Foundation

/// The state of a peripheral's link, and what was discovered on it.
struct PeripheralLink {
  var state = CBPeripheralState.disconnected
  var name: String?
  /// Octets of one write without response, ATT_MTU − 3; until a link says otherwise, of the least MTU.
  var longestWrite = 20
  var rssi: NSNumber?
  /// The services of the discoveries so far; nil: there was none.
  var services: [CBService]?
  /// Everything that was found, also services that are only included: by the handle of the declaration, or of the
  /// value.
  var foundServices: [AttributeHandle: CBService] = [:]
  var foundCharacteristics: [AttributeHandle: CBCharacteristic] = [:]
  /// How many ends are outstanding of connections that were cancelled before the present attempt.
  var endsAhead = 0
  /// False: the adapter was gone in between, and the app has to discover or retrieve the peripheral again.
  var isValid = true

  /// The link has ended: nothing that was found on it can be used any more. Under the lock.
  mutating func end() {
    for service in foundServices.values { service.invalidate() }
    (services, foundServices, foundCharacteristics, longestWrite) = (nil, [:], [:], 20)
  }
}

/// A request of the app to a peripheral. It decides which method of the delegate gets the answer.
enum PeripheralRequest {
  case rssi
  case services(isAll: Bool)
  case includedServices(CBService, isAll: Bool)
  case characteristics(CBService, isAll: Bool)
  case descriptors(CBCharacteristic)
  case read(CBCharacteristic)
  case readDescriptor(CBDescriptor)
  case write(CBCharacteristic)
  case writeDescriptor(CBDescriptor)
  case notify(CBCharacteristic)
  case openChannel
}

/// An empty list is no filter, as nil is.
func filter(_ uuids: [CBUUID]?) -> [BluetoothUUID]? {
  guard let uuids, !uuids.isEmpty else { return nil }
  return uuids.map(\.uuid)
}

extension CBPeripheral {
  // MARK: Requests

  func request(_ request: PeripheralRequest, _ make: (OperationID, UUID) -> BrokerRequest.Central) {
    guard let manager else { return Log.misuse(self, "belongs to no manager, or its manager is gone.") }
    guard !manager.begin(request, on: self, { make($0, peer) }) else { return }
    Log.misuse(self, "accepts requests only while it is connected.")
    fail(request, CBError(.notConnected, "The device is not connected: connect, and ask again."))
  }
  /// A request for an attribute that was found on this link. A value has at most 512 octets: Core Specification, Vol 3,
  /// Part F, §3.2.9.
  func request(
    _ request: PeripheralRequest, in attribute: CBAttribute, _ value: Data = Data(),
    _ make: (OperationID, UUID, AttributeHandle) -> BrokerRequest.Central
  ) {
    guard state == .connected else { return self.request(request) { make($0, $1, AttributeHandle()) } }
    switch handle(of: attribute) {
    case .failure(let error):
      Log.misuse(self, error.localizedDescription)
      fail(request, error)
    case .success where value.count > 512:
      fail(
        request,
        CBATTError(.invalidAttributeValueLength, "The value has \(value.count) octets; an attribute has at most 512."))
    case .success(let handle): self.request(request) { make($0, $1, handle) }
    }
  }
  /// Of a service its declaration's, of a characteristic its value's.
  private func handle(of attribute: CBAttribute) -> Result<AttributeHandle, CBError> {
    let service: CBService?
    let handle: AttributeHandle?
    switch attribute {
    case let found as CBService: (service, handle) = (found, found.found?.handle)
    case let found as CBCharacteristic: (service, handle) = (found.service, found.found?.handle)
    case let found as CBDescriptor: (service, handle) = (found.characteristic?.service, found.found?.handle)
    default: (service, handle) = (nil, nil)
    }
    guard let handle else {
      return .failure(
        CBError(.invalidParameters, "\(attribute.uuid) is an attribute of this machine, not of the device."))
    }
    guard let service, service.isValid else {
      return .failure(
        CBError(
          .invalidHandle, "\(attribute.uuid) was found on an earlier connection, or has changed: discover again."))
    }
    guard service.peripheral === self else {
      return .failure(CBError(.invalidParameters, "\(attribute.uuid) was found on another device."))
    }
    return .success(handle)
  }
  func writeWithoutResponse(_ data: Data, for characteristic: CBCharacteristic) {
    guard let manager else { return Log.misuse(self, "belongs to no manager, or its manager is gone.") }
    guard state == .connected else { return Log.misuse(self, "can only be written to while it is connected.") }
    guard case .success(let handle) = handle(of: characteristic) else {
      return Log.misuse(self, "cannot write \(characteristic), which was not found on this link.")
    }
    guard characteristic.properties.contains(.writeWithoutResponse) else {
      return Log.misuse(self, "cannot write \(characteristic.uuid) without a response: it does not have that property.")
    }
    _ = manager.session.port(.command, of: peer)?.offer([UInt8](data), to: handle)
  }

  /// Answers without a session, on the manager's queue.
  func fail(_ request: PeripheralRequest, _ error: any Error) {
    manager?.delivery.perform { [weak self] in self?.report(request, error) }
  }

  // MARK: Answers, on the manager's queue

  func complete(_ request: PeripheralRequest, _ result: Result<BrokerAnswer, BluetoothError>) {
    switch result {
    case .failure(let error): report(request, facadeError(error, of: request))
    // Without a delegate it closes.
    case .success(.channel(let channel)):
      delegate?.peripheral(self, didOpen: ChannelLine.open(channel, to: self), error: nil)
    case .success(let answer): report(request, take(answer, of: request) ? nil : CBError(.unknown))
    }
  }
  private func facadeError(_ error: BluetoothError, of request: PeripheralRequest) -> any Error {
    switch (error.code, request) {
    // The characteristic has no configuration: Apple reports that as an answer of the peer.
    case (.invalidArgument, .notify): CBATTError(.attributeNotFound, error.diagnostics)
    case (.disconnected, _): CBError(.notConnected, error.diagnostics)
    default: error.facade
    }
  }
  /// False: the answer does not fit the request.
  private func take(_ answer: BrokerAnswer, of request: PeripheralRequest) -> Bool {
    switch (request, answer) {
    case (.rssi, .rssi(let value)): withLink { $0.rssi = value.map { NSNumber(value: $0) } }
    case (.services(let isAll), .services(let found)):
      // As on Apple's systems, the services of the system itself are found only by their UUIDs.
      let services = objects(for: isAll ? found.filter { !CBUUID.ofSystem.contains(CBUUID($0.uuid)) } : found)
      changeLink { $0.services = merged(isAll ? nil : $0.services, services) { $0.found?.handle } }
    case (.includedServices(let service, let isAll), .includedServices(let found)):
      guard service.isValid else { return true }
      service.setIncludedServices(
        merged(isAll ? nil : service.includedServices, objects(for: found)) { $0.found?.handle })
    case (.characteristics(let service, let isAll), .characteristics(let found)):
      guard service.isValid else { return true }
      let characteristics = objects(for: found, of: service)
      service.setCharacteristics(merged(isAll ? nil : service.characteristics, characteristics) { $0.found?.handle })
    case (.descriptors(let characteristic), .descriptors(let found)):
      let known = characteristic.descriptors ?? []
      characteristic.setDescriptors(
        found.map { found in known.first { $0.found == found } ?? CBDescriptor(found, of: characteristic) })
    case (.read(let characteristic), .value(let value)): characteristic.setValue(value)
    case (.readDescriptor(let descriptor), .value(let value)):
      descriptor.setValue(CBDescriptor.value(value, of: descriptor.uuid))
    case (.notify(let characteristic), .notifying(let isNotifying)): characteristic.setNotifying(isNotifying)
    case (.write, .done), (.writeDescriptor, .done): break
    default: return false
    }
    return true
  }
  /// The link of a preserved manager, and what the manager had found on it.
  func restore(_ peer: RestoredState.Peer) {
    changeLink { link in
      link.name = peer.name ?? link.name
      link.state = peer.isConnected ? .connected : .connecting
      link.longestWrite = peer.longestWrite
    }
    let services = objects(for: peer.services.map(\.service))
    for (service, restored) in zip(services, peer.services) {
      if let includes = restored.includes { service.setIncludedServices(objects(for: includes)) }
      guard let found = restored.characteristics else { continue }
      let characteristics = objects(for: found.map(\.characteristic), of: service)
      for (characteristic, restored) in zip(characteristics, found) {
        characteristic.setNotifying(restored.isNotifying)
        guard let descriptors = restored.descriptors else { continue }
        characteristic.setDescriptors(descriptors.map { CBDescriptor($0, of: characteristic) })
      }
      service.setCharacteristics(characteristics)
    }
    let discovered = zip(services, peer.services).filter { $1.isDiscovered }.map(\.0)
    if !discovered.isEmpty { changeLink { $0.services = discovered } }
  }
  /// The same object for the same attribute, until the link ends or the attribute changes.
  private func objects(for found: [FoundService]) -> [CBService] {
    withLink { link in
      found.map { found in
        if let known = link.foundServices[found.handle], known.found?.uuid == found.uuid { return known }
        let service = CBService(found, of: self)
        link.foundServices[found.handle] = service
        return service
      }
    }
  }
  private func objects(for found: [FoundCharacteristic], of service: CBService) -> [CBCharacteristic] {
    withLink { link in
      found.map { found in
        if let known = link.foundCharacteristics[found.handle], known.found == found { return known }
        let characteristic = CBCharacteristic(found, of: service)
        link.foundCharacteristics[found.handle] = characteristic
        return characteristic
      }
    }
  }

  /// Passes the answer to the delegate.
  func report(_ request: PeripheralRequest, _ error: (any Error)?) {
    guard let delegate else { return }
    switch request {
    case .rssi:
      let known = error == nil ? withLink { $0.rssi } : nil
      delegate.peripheral(self, didReadRSSI: known ?? 127, error: error)
    case .services: delegate.peripheral(self, didDiscoverServices: error)
    case .includedServices(let service, _):
      delegate.peripheral(self, didDiscoverIncludedServicesFor: service, error: error)
    case .characteristics(let service, _):
      delegate.peripheral(self, didDiscoverCharacteristicsFor: service, error: error)
    case .descriptors(let characteristic):
      delegate.peripheral(self, didDiscoverDescriptorsFor: characteristic, error: error)
    case .read(let characteristic): delegate.peripheral(self, didUpdateValueFor: characteristic, error: error)
    case .readDescriptor(let descriptor): delegate.peripheral(self, didUpdateValueFor: descriptor, error: error)
    case .write(let characteristic): delegate.peripheral(self, didWriteValueFor: characteristic, error: error)
    case .writeDescriptor(let descriptor): delegate.peripheral(self, didWriteValueFor: descriptor, error: error)
    case .notify(let characteristic):
      delegate.peripheral(self, didUpdateNotificationStateFor: characteristic, error: error)
    case .openChannel: delegate.peripheral(self, didOpen: nil, error: error)
    }
  }

  // MARK: Events of the device, on the manager's queue

  /// Until the app ends the connection, or lets its manager go.
  func received(_ values: BrokerValues, of handle: AttributeHandle, during delivery: Delivery) {
    // What was found changes on the manager's queue only.
    guard let characteristic = withLink({ $0.foundCharacteristics[handle] }) else { return }
    values.visit { value in
      guard delivery.isOpen else { return false }
      if let delegate = take(value, of: characteristic) {
        delegate.peripheral(self, didUpdateValueFor: characteristic, error: nil)
      }
      return true
    }
  }
  func servicesChanged(_ range: HandleRange) {
    func isHit(_ service: CBService) -> Bool {
      guard let found = service.found else { return false }
      return found.handle.rawValue <= range.last.rawValue && found.endHandle.rawValue >= range.first.rawValue
    }
    let invalid = changeLink { link -> [CBService] in
      let invalid = link.foundServices.filter { isHit($0.value) }
      for case let (service, found?) in invalid.values.map({ ($0, $0.found) }) {
        service.invalidate()
        link.foundServices[found.handle] = nil
        for value in link.foundCharacteristics.keys
        where found.handle.rawValue < value.rawValue && value.rawValue <= found.endHandle.rawValue {
          link.foundCharacteristics[value] = nil
        }
      }
      link.services?.removeAll(where: isHit)
      return invalid.sorted { $0.key.rawValue < $1.key.rawValue }.map { $0.value }
    }
    delegate?.peripheral(self, didModifyServices: invalid)
  }
}

/// The union of what was known and what was found now, in the order of the handles.
private func merged<Object: AnyObject>(
  _ known: [Object]?, _ found: [Object], _ handle: (Object) -> AttributeHandle?
) -> [Object] {
  let others = (known ?? []).filter { known in !found.contains { $0 === known || handle($0) == handle(known) } }
  return (others + found).sorted { (handle($0)?.rawValue ?? 0) < (handle($1)?.rawValue ?? 0) }
}
