// Opens the door whenever its lock comes into reach, also after this process has ended:  swift run DoorLockApp
import CoreBluetooth

/// DoorLock has the same UUIDs.
let door = CBUUID(string: "6E1A0001-52C4-4D0B-9A3E-5A3C7B1D2F40")
let command = CBUUID(string: "6E1A0002-52C4-4D0B-9A3E-5A3C7B1D2F40")
let state = CBUUID(string: "6E1A0003-52C4-4D0B-9A3E-5A3C7B1D2F40")

/// The system keeps its connection request when the process ends, and starts it again when the lock is connected: the
/// manager has a restoration identifier, and the manifest beside the executable says how to start it.
final class DoorLockApp: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate {
  private var central: CBCentralManager!
  private var lock: CBPeripheral?
  /// It has been asked for its services on this link.
  private var isAsked = false

  override init() {
    super.init()
    central = CBCentralManager(
      delegate: self, queue: nil, options: [CBCentralManagerOptionRestoreIdentifierKey: "door"])
  }

  /// Before the first state, if an earlier process has left something to do.
  func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
    guard let restored = (dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral])?.first else { return }
    say("restored: \(name(restored))")
    lock = restored
    restored.delegate = self
  }
  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    switch central.state {
    case .poweredOn: goOn()
    case .poweredOff: end("Bluetooth is off: switch it on, and start again.")
    case .unauthorized: end("This program may not use Bluetooth: give it the permission, and start again.")
    case .unsupported: end("There is no adapter for Bluetooth Low Energy here: connect one, and start again.")
    default:  // for a moment nothing is known, and all links are gone
      lock = nil
      isAsked = false
    }
  }
  private func goOn() {
    switch (lock, lock?.state) {
    case (nil, _):
      say("looking for the lock")
      central.scanForPeripherals(withServices: [door])
    case (let lock?, .connected): ask(lock)
    case (let lock?, .disconnected): central.connect(lock)
    default: break  // its connection request goes on
    }
  }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi: NSNumber
  ) {
    guard lock == nil else { return }
    central.stopScan()
    lock = peripheral
    peripheral.delegate = self
    central.connect(peripheral)
  }

  // MARK: Its link

  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    say("connected to \(name(peripheral))")
    ask(peripheral)
  }
  /// A request to connect has no time limit: it waits until the user comes home.
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) {
    say("out of reach: the lock is waited for")
    isAsked = false
    central.connect(peripheral)
  }
  func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?) {
    note("not connected: \(error?.localizedDescription ?? "the lock gives no reason")")
    central.connect(peripheral)
  }

  // MARK: The door

  private func ask(_ peripheral: CBPeripheral) {
    if isAsked { return }
    isAsked = true
    peripheral.discoverServices([door])
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    guard let service = peripheral.services?.first(where: { $0.uuid == door }) else {
      return note("not a lock: \(error?.localizedDescription ?? "it has no door")")
    }
    peripheral.discoverCharacteristics([command, state], for: service)
  }
  func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
    if invalidatedServices.contains(where: { $0.uuid == door }) { peripheral.discoverServices([door]) }
  }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
  ) {
    if let error { return note("not a lock: \(error.localizedDescription)") }
    // The lock closes the door when nobody is subscribed any more.
    for characteristic in service.characteristics ?? [] where characteristic.uuid == state {
      peripheral.setNotifyValue(true, for: characteristic)
    }
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    if let error { return note("the lock does not tell its state: \(error.localizedDescription)") }
    for other in characteristic.service?.characteristics ?? [] where other.uuid == command {
      peripheral.writeValue(Data([1]), for: other, type: .withResponse)
    }
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    if let error { note("the door stays closed: \(error.localizedDescription)") }
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    guard let value = characteristic.value, characteristic.uuid == state else { return }
    say(value == Data([1]) ? "the door is open" : "the door is closed")
  }
  private func name(_ peripheral: CBPeripheral) -> String { peripheral.name.map(plain) ?? "a lock without a name" }
}

/// Without the characters that steer a terminal or reorder a line: a name is whatever the device sends.
func plain(_ name: String) -> String {
  let kinds: Set<Unicode.GeneralCategory> = [.control, .format, .lineSeparator, .paragraphSeparator]
  return String(String.UnicodeScalarView(name.unicodeScalars.filter { !kinds.contains($0.properties.generalCategory) }))
}
/// A line on standard output, at once. The door opens also when nobody reads it.
func say(_ line: String) { try? FileHandle.standardOutput.write(contentsOf: Data("\(line)\n".utf8)) }
func note(_ line: String) { try? FileHandle.standardError.write(contentsOf: Data("\(line)\n".utf8)) }
func end(_ reason: String) -> Never {
  note(reason)
  exit(EXIT_FAILURE)
}

signal(SIGPIPE, SIG_IGN)  // a closed pipe is an error of `write`
let app = DoorLockApp()
RunLoop.main.run()
