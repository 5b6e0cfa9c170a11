import Foundation

// `delegate?.centralManager?(self, didConnect: peripheral)`: proxies, and programs that stand in for a manager, call an
// optional method of Apple's delegates so. Here the methods have defaults instead, and a method with a question mark
// behind it does not compile. So each base name is a property as well, of a value that is called with the same labels;
// it is never nil. A property of that name in the delegate itself, as most have one, takes precedence.

extension CBCentralManagerDelegate {
  @_disfavoredOverload public var centralManager: _CentralManagerCalls? { _CentralManagerCalls(delegate: self) }
}
public struct _CentralManagerCalls {
  let delegate: any CBCentralManagerDelegate
  public func callAsFunction(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
    delegate.centralManager(central, willRestoreState: dict)
  }
  public func callAsFunction(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any], rssi: NSNumber
  ) {
    delegate.centralManager(central, didDiscover: peripheral, advertisementData: advertisementData, rssi: rssi)
  }
  public func callAsFunction(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    delegate.centralManager(central, didConnect: peripheral)
  }
  public func callAsFunction(
    _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
  ) {
    delegate.centralManager(central, didFailToConnect: peripheral, error: error)
  }
  public func callAsFunction(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) {
    delegate.centralManager(central, didDisconnectPeripheral: peripheral, error: error)
  }
  public func callAsFunction(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
    isReconnecting: Bool, error: (any Error)?
  ) {
    delegate.centralManager(
      central, didDisconnectPeripheral: peripheral, timestamp: timestamp, isReconnecting: isReconnecting, error: error)
  }
  public func callAsFunction(
    _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
  ) {
    delegate.centralManager(central, connectionEventDidOccur: event, for: peripheral)
  }
  public func callAsFunction(_ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral) {
    delegate.centralManager(central, didUpdateANCSAuthorizationFor: peripheral)
  }
}

extension CBPeripheralDelegate {
  @_disfavoredOverload public var peripheralDidUpdateName: _PeripheralDidUpdateNameCalls? {
    _PeripheralDidUpdateNameCalls(delegate: self)
  }
  @available(*, deprecated, message: "use peripheral(_:didReadRSSI:error:)")
  @_disfavoredOverload public var peripheralDidUpdateRSSI: _PeripheralDidUpdateRSSICalls? {
    _PeripheralDidUpdateRSSICalls(delegate: self)
  }
  @_disfavoredOverload public var peripheral: _PeripheralCalls? { _PeripheralCalls(delegate: self) }
  @_disfavoredOverload public var peripheralIsReady: _PeripheralIsReadyCalls? {
    _PeripheralIsReadyCalls(delegate: self)
  }
}
public struct _PeripheralDidUpdateNameCalls {
  let delegate: any CBPeripheralDelegate
  public func callAsFunction(_ peripheral: CBPeripheral) {
    delegate.peripheralDidUpdateName(peripheral)
  }
}

@available(*, deprecated, message: "use peripheral(_:didReadRSSI:error:)")
public struct _PeripheralDidUpdateRSSICalls {
  let delegate: any CBPeripheralDelegate
  public func callAsFunction(_ peripheral: CBPeripheral, error: (any Error)?) {
    delegate.peripheralDidUpdateRSSI(peripheral, error: error)
  }
}

public struct _PeripheralCalls {
  let delegate: any CBPeripheralDelegate
  public func callAsFunction(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
    delegate.peripheral(peripheral, didModifyServices: invalidatedServices)
  }
  public func callAsFunction(_ peripheral: CBPeripheral, didReadRSSI rssi: NSNumber, error: (any Error)?) {
    delegate.peripheral(peripheral, didReadRSSI: rssi, error: error)
  }
  public func callAsFunction(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    delegate.peripheral(peripheral, didDiscoverServices: error)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
  ) {
    delegate.peripheral(peripheral, didDiscoverIncludedServicesFor: service, error: error)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
  ) {
    delegate.peripheral(peripheral, didDiscoverCharacteristicsFor: service, error: error)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    delegate.peripheral(peripheral, didUpdateValueFor: characteristic, error: error)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    delegate.peripheral(peripheral, didWriteValueFor: characteristic, error: error)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    delegate.peripheral(peripheral, didUpdateNotificationStateFor: characteristic, error: error)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    delegate.peripheral(peripheral, didDiscoverDescriptorsFor: characteristic, error: error)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?
  ) {
    delegate.peripheral(peripheral, didUpdateValueFor: descriptor, error: error)
  }
  public func callAsFunction(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?)
  {
    delegate.peripheral(peripheral, didWriteValueFor: descriptor, error: error)
  }
  public func callAsFunction(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
    delegate.peripheral(peripheral, didOpen: channel, error: error)
  }
}

public struct _PeripheralIsReadyCalls {
  let delegate: any CBPeripheralDelegate
  public func callAsFunction(toSendWriteWithoutResponse peripheral: CBPeripheral) {
    delegate.peripheralIsReady(toSendWriteWithoutResponse: peripheral)
  }
}

extension CBPeripheralManagerDelegate {
  @_disfavoredOverload public var peripheralManager: _PeripheralManagerCalls? {
    _PeripheralManagerCalls(delegate: self)
  }
  @_disfavoredOverload public var peripheralManagerDidStartAdvertising: _PeripheralManagerDidStartAdvertisingCalls? {
    _PeripheralManagerDidStartAdvertisingCalls(delegate: self)
  }
  @_disfavoredOverload public var peripheralManagerIsReady: _PeripheralManagerIsReadyCalls? {
    _PeripheralManagerIsReadyCalls(delegate: self)
  }
}
public struct _PeripheralManagerCalls {
  let delegate: any CBPeripheralManagerDelegate
  public func callAsFunction(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {
    delegate.peripheralManager(peripheral, willRestoreState: dict)
  }
  public func callAsFunction(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    delegate.peripheralManager(peripheral, didAdd: service, error: error)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) {
    delegate.peripheralManager(peripheral, central: central, didSubscribeTo: characteristic)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) {
    delegate.peripheralManager(peripheral, central: central, didUnsubscribeFrom: characteristic)
  }
  public func callAsFunction(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    delegate.peripheralManager(peripheral, didReceiveRead: request)
  }
  public func callAsFunction(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    delegate.peripheralManager(peripheral, didReceiveWrite: requests)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) {
    delegate.peripheralManager(peripheral, didPublishL2CAPChannel: psm, error: error)
  }
  public func callAsFunction(
    _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) {
    delegate.peripheralManager(peripheral, didUnpublishL2CAPChannel: psm, error: error)
  }
  public func callAsFunction(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
    delegate.peripheralManager(peripheral, didOpen: channel, error: error)
  }
}

public struct _PeripheralManagerDidStartAdvertisingCalls {
  let delegate: any CBPeripheralManagerDelegate
  public func callAsFunction(_ peripheral: CBPeripheralManager, error: (any Error)?) {
    delegate.peripheralManagerDidStartAdvertising(peripheral, error: error)
  }
}

public struct _PeripheralManagerIsReadyCalls {
  let delegate: any CBPeripheralManagerDelegate
  public func callAsFunction(toUpdateSubscribers peripheral: CBPeripheralManager) {
    delegate.peripheralManagerIsReady(toUpdateSubscribers: peripheral)
  }
}
