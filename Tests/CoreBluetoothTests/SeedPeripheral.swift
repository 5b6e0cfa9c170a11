// "Performing Common Peripheral Role Tasks", snippet by snippet, in Swift: a client, which imports the module alone.
// Minimal code replaces the text's omissions ("…"). The tests are in SeedTests.swift.
import CoreBluetooth

@MainActor
final class PeripheralTasks: NSObject, @preconcurrency CBPeripheralManagerDelegate {
  var myPeripheralManager: CBPeripheralManager!
  let journal = Journal()

  // "Services and Characteristics Are Identified by UUIDs"
  let heartRateServiceUUID = CBUUID(string: "180D")
  let myCustomServiceUUID = CBUUID(string: "71DA3FD1-7E10-41C1-B16F-4430B506CDE7")
  let myCharacteristicUUID = CBUUID(string: "71DA3FD2-7E10-41C1-B16F-4430B506CDE7")

  // "Build Your Tree of Services and Characteristics"
  let myValue = Data([1])
  let cached: CBMutableCharacteristic
  let myCharacteristic: CBMutableCharacteristic
  let myFirstService: CBMutableService
  let mySecondService: CBMutableService
  private var published = 0
  /// The value of a call that returned NO.
  private var resent: [Data] = []
  private(set) var subscribers: [CBCentral] = []
  var name: String?

  /// "Starting Up a Peripheral Manager"; `options` choose the adapter.
  init(name: String? = nil, options: [String: Any]? = nil) {
    self.name = name
    cached = CBMutableCharacteristic(
      type: CBUUID(string: "2A38"), properties: .read, value: myValue, permissions: .readable)
    myCharacteristic = CBMutableCharacteristic(
      type: myCharacteristicUUID, properties: [.read, .write, .writeWithoutResponse, .notify], value: nil,
      permissions: [.readable, .writeable])
    myFirstService = CBMutableService(type: heartRateServiceUUID, primary: true)
    myFirstService.characteristics = [cached]
    mySecondService = CBMutableService(type: myCustomServiceUUID, primary: true)
    mySecondService.characteristics = [myCharacteristic]
    super.init()
    myPeripheralManager = CBPeripheralManager(delegate: self, queue: nil, options: options)
  }

  // MARK: "Publishing Your Services and Characteristics"

  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    journal.note("state \(peripheral.state.rawValue)")
    guard peripheral.state == .poweredOn else { return }
    myPeripheralManager.add(myFirstService)
    myPeripheralManager.add(mySecondService)
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    if let error { NSLog("Error publishing service: %@", error.localizedDescription) }
    journal.note("added \(service.uuid.uuidString)", error)
    published += 1
    if published == 2 { advertise() }
  }

  // MARK: "Advertising Your Services"

  func advertise() {
    var data: [String: Any] = [CBAdvertisementDataServiceUUIDsKey: [myFirstService.uuid, mySecondService.uuid]]
    data[CBAdvertisementDataLocalNameKey] = name
    myPeripheralManager.startAdvertising(data)
  }
  func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
    if let error { NSLog("Error advertising: %@", error.localizedDescription) }
    journal.note("advertising \(peripheral.isAdvertising)", error)
  }

  // MARK: "Responding to Read and Write Requests from a Central"

  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    journal.note("read \(request.characteristic.uuid.uuidString) \(request.offset)", request.value)
    if request.characteristic.uuid == myCharacteristic.uuid {
      let value = myCharacteristic.value ?? Data()
      if request.offset > value.count {
        myPeripheralManager.respond(to: request, withResult: .invalidOffset)
        return
      }
      request.value = value.subdata(in: request.offset..<value.count)
      myPeripheralManager.respond(to: request, withResult: .success)
    }
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    journal.note("write \(requests.count)", requests.map(\.value))
    var value = myCharacteristic.value ?? Data()
    for request in requests {
      guard request.offset <= value.count else {
        return myPeripheralManager.respond(to: requests[0], withResult: .invalidOffset)
      }
      value = value.prefix(request.offset) + (request.value ?? Data())
    }
    myCharacteristic.value = value
    myPeripheralManager.respond(to: requests[0], withResult: .success)
  }

  // MARK: "Sending Updated Characteristic Values to Subscribed Centrals"

  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) {
    NSLog("Central subscribed to characteristic %@", characteristic)
    subscribers.append(central)
    journal.note("subscribed", central.maximumUpdateValueLength)
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) {
    journal.note("unsubscribed")
  }
  /// True if it was sent at once.
  @discardableResult func update(_ updatedValue: Data) -> Bool {
    let didSendValue = myPeripheralManager.updateValue(updatedValue, for: myCharacteristic, onSubscribedCentrals: nil)
    if !didSendValue { resent.append(updatedValue) }
    return didSendValue
  }
  func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) {
    journal.note("ready")
    let waiting = resent
    resent = []
    for value in waiting { update(value) }
  }
}
