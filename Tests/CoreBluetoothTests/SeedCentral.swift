// "Performing Common Central Role Tasks", snippet by snippet, in Swift: a client, which imports the module alone.
// Minimal code replaces the text's omissions ("…"). The tests are in SeedTests.swift.
import CoreBluetooth

@MainActor
final class CentralTasks: NSObject, @preconcurrency CBCentralManagerDelegate, @preconcurrency CBPeripheralDelegate {
  var myCentralManager: CBCentralManager!
  var discoveredPeripheral: CBPeripheral?
  /// The services to scan for; nil: all.
  var services: [CBUUID]?
  /// The name of the device to connect to; nil: the first one.
  var wantedName: String?
  /// The characteristics to read, write or subscribe to, by UUID.
  var interesting: [CBUUID: CBCharacteristic] = [:]
  let journal = Journal()

  /// "Starting Up a Central Manager"; `options` choose the adapter.
  init(services: [CBUUID]? = nil, wantedName: String? = nil, options: [String: Any]? = nil) {
    self.services = services
    self.wantedName = wantedName
    super.init()
    myCentralManager = CBCentralManager(delegate: self, queue: nil, options: options)
  }
  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    journal.note("state \(central.state.rawValue)")
    guard central.state == .poweredOn else { return }
    myCentralManager.scanForPeripherals(withServices: services, options: nil)
  }

  // MARK: "Discovering Peripheral Devices That Are Advertising"

  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi: NSNumber
  ) {
    NSLog("Discovered %@", peripheral.name ?? "(null)")
    journal.note("discovered \(peripheral.name ?? "?") \(rssi.intValue < 0)", advertisementData)
    guard wantedName == nil || peripheral.name == wantedName else { return }
    discoveredPeripheral = peripheral
    myCentralManager.stopScan()
    myCentralManager.connect(peripheral, options: nil)
  }

  // MARK: "Connecting to a Peripheral Device After You've Discovered It"

  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    NSLog("Peripheral connected")
    journal.note("connected")
    peripheral.delegate = self
    peripheral.discoverServices(nil)
  }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) {
    journal.note("disconnected \(error == nil)")
  }

  // MARK: "Discovering the Services", "… the Characteristics"

  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    for service in peripheral.services ?? [] {
      NSLog("Discovered service %@", service)
      NSLog("Discovering characteristics for service %@", service)
      peripheral.discoverCharacteristics(nil, for: service)
    }
    journal.note("services", peripheral.services?.map(\.uuid))
  }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
  ) {
    for characteristic in service.characteristics ?? [] {
      NSLog("Discovered characteristic %@", characteristic)
      interesting[characteristic.uuid] = characteristic
    }
    journal.note("characteristics of \(service.uuid.uuidString)", service.characteristics?.map(\.uuid))
  }

  // MARK: "Retrieving the Value of a Characteristic"

  func read(_ interestingCharacteristic: CBCharacteristic) {
    NSLog("Reading value for characteristic %@", interestingCharacteristic)
    discoveredPeripheral?.readValue(for: interestingCharacteristic)
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    let data = characteristic.value
    journal.note("value of \(characteristic.uuid.uuidString)", error ?? data)
  }
  func subscribe(_ subscribed: Bool, _ interestingCharacteristic: CBCharacteristic) {
    discoveredPeripheral?.setNotifyValue(subscribed, for: interestingCharacteristic)
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    if let error { NSLog("Error changing notification state: %@", error.localizedDescription) }
    journal.note("notifying \(characteristic.uuid.uuidString) \(characteristic.isNotifying)", error)
  }

  // MARK: "Writing the Value of a Characteristic"

  func write(
    _ dataToWrite: Data, to interestingCharacteristic: CBCharacteristic, type: CBCharacteristicWriteType = .withResponse
  ) {
    NSLog("Writing value for characteristic %@", interestingCharacteristic)
    discoveredPeripheral?.writeValue(dataToWrite, for: interestingCharacteristic, type: type)
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    if let error { NSLog("Error writing characteristic value: %@", error.localizedDescription) }
    journal.note("written \(characteristic.uuid.uuidString)", error)
  }
}
