public import Foundation

/// A peripheral manager calls these methods on its queue, in the order of the events.
///
/// All but the first are optional, as Apple's are: here by default implementations, which Swift does not override
/// through a superclass. A class that inherits its conformance and adds one of them has to declare the conformance
/// itself.
public protocol CBPeripheralManagerDelegate: NSObjectProtocol {
  /// `peripheral.state` has changed. Below `poweredOn` nothing is advertised and no central is connected; below
  /// `poweredOff` the published services are gone too, and have to be added again.
  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager)

  /// The first call of all in a program that was started again, if something was preserved of the manager. `dict` has
  /// the keys `CBPeripheralManagerRestoredState…`; the services are published, and their objects are new.
  func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any])

  /// Answers `startAdvertising`. `error` nil: the advertisement is on the air.
  func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?)

  /// Answers `add`. `error` nil: every connected central sees the service.
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?)

  /// A central wants the value's updates from now on.
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic)
  /// A central does not want them any more, or its connection has ended.
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic)

  /// A central reads a value that the program keeps: set the request's `value`, and respond exactly once. Without an
  /// implementation the answer is `requestNotSupported`.
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest)
  /// A central writes: all of the requests are to be carried out or none. Respond exactly once, to the first of them.
  /// Without an implementation the answer is `requestNotSupported`.
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest])

  /// After `updateValue` has returned false: there is room again.
  func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager)

  func peripheralManager(_ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?)
  func peripheralManager(
    _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?)
  func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?)
}

extension CBPeripheralManagerDelegate {
  public func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {}
  public func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {}
  public func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {}
  public func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) {}
  public func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) {}
  public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    peripheral.respond(to: request, withResult: .requestNotSupported)
  }
  public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    guard let first = requests.first else { return }
    peripheral.respond(to: first, withResult: .requestNotSupported)
  }
  public func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) {}
  public func peripheralManager(
    _ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) {}
  public func peripheralManager(
    _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) {}
  public func peripheralManager(
    _ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?
  ) {}
}
