import BindruneBroker
import CoreBluetooth
import TestSupport
import Testing

/// The managers call each method that a delegate implements: the protocol declares every method, so a call through the
/// protocol alone finds it.
@Suite(.realTime, .hang) struct WitnessTests {
  let queue = DispatchQueue(label: "witness")
  /// A manager that is powered on, and a peripheral of it.
  func made() throws -> (CBCentralManager, CBPeripheral) {
    let state = FirstState()
    let manager = CBCentralManager(delegate: state, queue: queue) { SilentSession(events: $0) }
    #expect(state.hasState.wait(timeout: .now() + Hang.seconds) == .success)
    let peer = UUID(PeerID(PeerAddress(DeviceAddress(0xC000_0000_0001), .random)))
    return (manager, try #require(manager.retrievePeripherals(withIdentifiers: [peer]).first))
  }

  /// A manager without a delegate stays in the unknown state.
  private final class FirstState: NSObject, CBCentralManagerDelegate {
    let hasState = DispatchSemaphore(value: 0)
    func centralManagerDidUpdateState(_ central: CBCentralManager) { hasState.signal() }
  }

  @Test func central() throws {
    let every = EveryCentralCall()
    let delegate: any CBCentralManagerDelegate = every
    let (manager, peripheral) = try made()
    delegate.centralManagerDidUpdateState(manager)
    delegate.centralManager(manager, willRestoreState: [:])
    delegate.centralManager(manager, didDiscover: peripheral, advertisementData: [:], rssi: -40)
    delegate.centralManager(manager, didConnect: peripheral)
    delegate.centralManager(manager, didFailToConnect: peripheral, error: nil)
    delegate.centralManager(manager, didDisconnectPeripheral: peripheral, error: nil)
    delegate.centralManager(
      manager, didDisconnectPeripheral: peripheral, timestamp: 0, isReconnecting: false, error: nil)
    delegate.centralManager(manager, connectionEventDidOccur: .peerConnected, for: peripheral)
    delegate.centralManager(manager, didUpdateANCSAuthorizationFor: peripheral)
    #expect(Set(every.called).count == 9 && every.called.count == 9, "\(every.called)")
  }

  @Test func peripheral() throws {
    let every = EveryPeripheralCall()
    let delegate: any CBPeripheralDelegate = every
    let (manager, peripheral) = try made()
    defer { withExtendedLifetime(manager) {} }
    let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
    let characteristic = CBMutableCharacteristic(
      type: CBUUID(string: "2A37"), properties: .notify, value: nil, permissions: .readable)
    let descriptor = CBMutableDescriptor(type: CBUUID(string: CBUUIDCharacteristicUserDescriptionString), value: "Rate")
    delegate.peripheralDidUpdateName(peripheral)
    delegate.peripheral(peripheral, didModifyServices: [service])
    delegate.peripheral(peripheral, didReadRSSI: -40, error: nil)
    delegate.peripheral(peripheral, didDiscoverServices: nil)
    delegate.peripheral(peripheral, didDiscoverIncludedServicesFor: service, error: nil)
    delegate.peripheral(peripheral, didDiscoverCharacteristicsFor: service, error: nil)
    delegate.peripheral(peripheral, didUpdateValueFor: characteristic, error: nil)
    delegate.peripheral(peripheral, didWriteValueFor: characteristic, error: nil)
    delegate.peripheral(peripheral, didUpdateNotificationStateFor: characteristic, error: nil)
    delegate.peripheral(peripheral, didDiscoverDescriptorsFor: characteristic, error: nil)
    delegate.peripheral(peripheral, didUpdateValueFor: descriptor, error: nil)
    delegate.peripheral(peripheral, didWriteValueFor: descriptor, error: nil)
    delegate.peripheralIsReady(toSendWriteWithoutResponse: peripheral)
    delegate.peripheral(peripheral, didOpen: nil, error: nil)
    #expect(Set(every.called).count == 14 && every.called.count == 14, "\(every.called)")
  }

  /// Those with a central or a request, which a client cannot make, are called in `SeedTests`.
  @Test func peripheralManager() {
    let every = EveryPeripheralManagerCall()
    let delegate: any CBPeripheralManagerDelegate = every
    let manager = CBPeripheralManager(
      delegate: nil, queue: queue, options: [CBManagerOptionAdapterKey: "unix:/nonexistent/rune"])
    delegate.peripheralManagerDidUpdateState(manager)
    delegate.peripheralManager(manager, willRestoreState: [:])
    delegate.peripheralManagerDidStartAdvertising(manager, error: nil)
    delegate.peripheralManager(
      manager, didAdd: CBMutableService(type: CBUUID(string: "180D"), primary: true), error: nil)
    delegate.peripheralManagerIsReady(toUpdateSubscribers: manager)
    delegate.peripheralManager(manager, didReceiveWrite: [])
    delegate.peripheralManager(manager, didPublishL2CAPChannel: 0x80, error: nil)
    delegate.peripheralManager(manager, didUnpublishL2CAPChannel: 0x80, error: nil)
    delegate.peripheralManager(manager, didOpen: nil, error: nil)
    #expect(Set(every.called).count == 9 && every.called.count == 9, "\(every.called)")
  }

  @Test("Optional methods are called with a question mark, as Apple's are") func optionalCalls() throws {
    let (manager, peripheral) = try made()
    let central = EveryCentralCall(), other = EveryPeripheralCall(), server = EveryPeripheralManagerCall()
    let one: (any CBCentralManagerDelegate)? = central
    one?.centralManager?(manager, willRestoreState: [:])
    one?.centralManager?(manager, didDiscover: peripheral, advertisementData: [:], rssi: -40)
    one?.centralManager?(manager, didConnect: peripheral)
    one?.centralManager?(manager, didFailToConnect: peripheral, error: nil)
    one?.centralManager?(manager, didDisconnectPeripheral: peripheral, error: nil)
    one?.centralManager?(
      manager, didDisconnectPeripheral: peripheral, timestamp: 0, isReconnecting: false, error: nil)
    one?.centralManager?(manager, connectionEventDidOccur: .peerConnected, for: peripheral)
    one?.centralManager?(manager, didUpdateANCSAuthorizationFor: peripheral)
    #expect(Set(central.called).count == 8 && central.called.count == 8, "\(central.called)")

    let two: (any CBPeripheralDelegate)? = other
    let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
    let value = CBMutableCharacteristic(
      type: CBUUID(string: "2A37"), properties: .notify, value: nil, permissions: .readable)
    let descriptor = CBMutableDescriptor(type: CBUUID(string: CBUUIDCharacteristicUserDescriptionString), value: "Rate")
    two?.peripheralDidUpdateName?(peripheral)
    two?.peripheral?(peripheral, didModifyServices: [service])
    two?.peripheral?(peripheral, didReadRSSI: -40, error: nil)
    two?.peripheral?(peripheral, didDiscoverServices: nil)
    two?.peripheral?(peripheral, didDiscoverIncludedServicesFor: service, error: nil)
    two?.peripheral?(peripheral, didDiscoverCharacteristicsFor: service, error: nil)
    two?.peripheral?(peripheral, didUpdateValueFor: value, error: nil)
    two?.peripheral?(peripheral, didWriteValueFor: value, error: nil)
    two?.peripheral?(peripheral, didUpdateNotificationStateFor: value, error: nil)
    two?.peripheral?(peripheral, didDiscoverDescriptorsFor: value, error: nil)
    two?.peripheral?(peripheral, didUpdateValueFor: descriptor, error: nil)
    two?.peripheral?(peripheral, didWriteValueFor: descriptor, error: nil)
    two?.peripheralIsReady?(toSendWriteWithoutResponse: peripheral)
    two?.peripheral?(peripheral, didOpen: nil, error: nil)
    #expect(Set(other.called).count == 14 && other.called.count == 14, "\(other.called)")

    let three: (any CBPeripheralManagerDelegate)? = server
    let publisher = CBPeripheralManager(
      delegate: nil, queue: queue, options: [CBManagerOptionAdapterKey: "unix:/nonexistent/rune"])
    three?.peripheralManager?(publisher, willRestoreState: [:])
    three?.peripheralManagerDidStartAdvertising?(publisher, error: nil)
    three?.peripheralManager?(publisher, didAdd: service, error: nil)
    three?.peripheralManager?(publisher, didReceiveWrite: [])
    three?.peripheralManagerIsReady?(toUpdateSubscribers: publisher)
    three?.peripheralManager?(publisher, didPublishL2CAPChannel: 0x80, error: nil)
    three?.peripheralManager?(publisher, didUnpublishL2CAPChannel: 0x80, error: nil)
    three?.peripheralManager?(publisher, didOpen: nil, error: nil)
    #expect(Set(server.called).count == 8 && server.called.count == 8, "\(server.called)")
  }

  /// The newer method calls the older for a delegate that has only that.
  final class Older: Witness, CBCentralManagerDelegate {
    func centralManagerDidUpdateState(_ central: CBCentralManager) {}
    func centralManager(
      _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
    ) { note() }
  }
  @Test func theNewerDisconnectionCallsTheOlder() throws {
    let older = Older()
    let delegate: any CBCentralManagerDelegate = older
    let (manager, peripheral) = try made()
    delegate.centralManager(
      manager, didDisconnectPeripheral: peripheral, timestamp: 0, isReconnecting: false,
      error: CBError(.connectionTimeout))
    #expect(older.called.count == 1)
  }
}
