// A lock on a door, until SIGINT or SIGTERM:  swift run DoorLock
import CoreBluetooth

/// DoorLockApp has the same UUIDs.
let door = CBUUID(string: "6E1A0001-52C4-4D0B-9A3E-5A3C7B1D2F40")

@MainActor
final class DoorLock: NSObject, @preconcurrency CBPeripheralManagerDelegate {
  private var manager: CBPeripheralManager!
  /// 1 opens, 0 closes. Only a bonded phone may write it. Here every phone bonds that asks for it: a real lock has a
  /// button for that.
  private let command = CBMutableCharacteristic(
    type: CBUUID(string: "6E1A0002-52C4-4D0B-9A3E-5A3C7B1D2F40"), properties: .write, value: nil,
    permissions: .writeEncryptionRequired)
  /// 1: open. 0: closed.
  private let state = CBMutableCharacteristic(
    type: CBUUID(string: "6E1A0003-52C4-4D0B-9A3E-5A3C7B1D2F40"), properties: [.read, .notify], value: nil,
    permissions: .readable)
  private var isOpen = false
  /// The transmit queue had no room for the state.
  private var isUpdateDue = false

  override init() {
    super.init()
    manager = CBPeripheralManager(delegate: self, queue: nil)
  }

  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    switch peripheral.state {
    case .poweredOn:
      let service = CBMutableService(type: door, primary: true)
      service.characteristics = [command, state]
      peripheral.stopAdvertising()  // if it was switched off in between, nothing is left of before
      peripheral.removeAllServices()
      peripheral.add(service)
    case .poweredOff: note("Bluetooth is off: switch it on.")
    case .unauthorized: note("This program may not use Bluetooth: give it the permission.")
    case .unsupported: note("There is no adapter for Bluetooth Low Energy here: connect one.")
    default: break  // for a moment nothing is known, and all links are gone
    }
    if peripheral.state != .poweredOn { turn(open: false) }
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    if let error { end("The service could not be published: \(error.localizedDescription)") }
    peripheral.startAdvertising([CBAdvertisementDataLocalNameKey: "Door", CBAdvertisementDataServiceUUIDsKey: [door]])
  }
  func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
    if let error { end("It could not be advertised: \(error.localizedDescription)") }
    say("advertising")
  }

  // MARK: The door

  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    guard let first = requests.first else { return }
    guard requests.count == 1, first.characteristic == command, first.offset == 0,
      let value = first.value, value == Data([0]) || value == Data([1])
    else {
      return peripheral.respond(to: first, withResult: CBATTError.Code(rawValue: 0x80) ?? .requestNotSupported)
    }
    turn(open: value == Data([1]))
    peripheral.respond(to: first, withResult: .success)
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    guard request.offset <= 1 else { return peripheral.respond(to: request, withResult: .invalidOffset) }
    request.value = Data([isOpen ? 1 : 0]).dropFirst(request.offset)
    peripheral.respond(to: request, withResult: .success)
  }
  /// Nobody is there any more.
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) {
    if state.subscribedCentrals?.isEmpty ?? true { turn(open: false) }
  }
  private func turn(open: Bool) {
    guard isOpen != open else { return }
    isOpen = open
    say(open ? "open" : "closed")
    update()
  }
  private func update() {
    isUpdateDue = !manager.updateValue(Data([isOpen ? 1 : 0]), for: state, onSubscribedCentrals: nil)
  }
  func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) {
    if isUpdateDue { update() }
  }

  func stop() {
    if manager.state == .poweredOn {
      manager.stopAdvertising()
      manager.removeAllServices()
    }
    exit(EXIT_SUCCESS)
  }
}

/// A line on standard output, at once. A lock goes on when nobody reads it.
func say(_ line: String) { try? FileHandle.standardOutput.write(contentsOf: Data("\(line)\n".utf8)) }
func note(_ line: String) { try? FileHandle.standardError.write(contentsOf: Data("\(line)\n".utf8)) }
func end(_ reason: String) -> Never {
  note(reason)
  exit(EXIT_FAILURE)
}

signal(SIGPIPE, SIG_IGN)  // a closed pipe is an error of `write`
let lock = DoorLock()
let signals = [SIGINT, SIGTERM].map { number in
  signal(number, SIG_IGN)  // the source hears of it all the same
  let source = DispatchSource.makeSignalSource(signal: number, queue: .main)
  source.setEventHandler { MainActor.assumeIsolated { lock.stop() } }
  source.resume()
  return source
}
RunLoop.main.run()
