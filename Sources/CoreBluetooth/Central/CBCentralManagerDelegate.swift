// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
public import Foundation

/// A central manager calls these methods on its queue. Every method but the first has a default.
public protocol CBCentralManagerDelegate: NSObjectProtocol {
  /// The manager's state has changed. Only in `poweredOn` does it accept calls.
  func centralManagerDidUpdateState(_ central: CBCentralManager)
  /// Before everything else, when the system has started the app again: what the manager was doing before.
  func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any])
  /// The manager has received an advertisement. Keep a reference to the peripheral to use it: the manager keeps none.
  /// `advertisementData` has the keys `CBAdvertisementData…`; `RSSI` is in dBm, 127 means unknown.
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi RSSI: NSNumber
  )
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral)
  /// The connection could not be made, for a reason that does not pass by itself.
  func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?)
  /// The connection has ended. `error` is nil when the app has cancelled it.
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?)
  /// Called if the method before is not implemented: of a delegate with both, Apple's framework calls the older one,
  /// whatever its documentation says. `timestamp` is the time of the end, which may be earlier than
  /// now. `isReconnecting`: the manager reconnects; see `CBConnectPeripheralOptionEnableAutoReconnect`.
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
    isReconnecting: Bool, error: (any Error)?
  )
  /// Of iOS: see `CBCentralManager.registerForConnectionEvents`.
  func centralManager(
    _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral)
  /// Of iOS: never called here.
  func centralManager(_ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral)
}

// What Apple's framework does for a delegate that does not implement them. Swift on Linux has no optional requirements.
extension CBCentralManagerDelegate {
  public func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {}
  public func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi RSSI: NSNumber
  ) {}
  public func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {}
  public func centralManager(
    _ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?
  ) {}
  public func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) {
    guard let end = central.takeEnding(of: peripheral, for: self) else { return }
    centralManager(
      central, didDisconnectPeripheral: peripheral, timestamp: end.seconds, isReconnecting: end.isReconnecting,
      error: error)
  }
  public func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
    isReconnecting: Bool, error: (any Error)?
  ) {
    centralManager(central, didDisconnectPeripheral: peripheral, error: error)
  }
  public func centralManager(
    _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
  ) {}
  public func centralManager(_ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral) {}
}
