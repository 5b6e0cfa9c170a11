// A heart rate sensor, until SIGINT or SIGTERM:  swift run HeartRatePeripheral
import CoreBluetooth

@MainActor
final class HeartRatePeripheral: NSObject, @preconcurrency CBPeripheralManagerDelegate {
  private var manager: CBPeripheralManager!
  private let rate = CBMutableCharacteristic(
    type: CBUUID(string: "2A37"), properties: .notify, value: nil, permissions: .readable)
  /// 1: the chest. Heart Rate Service 1.0, §3.2. It never changes, so that nobody asks for it.
  private let location = CBMutableCharacteristic(
    type: CBUUID(string: "2A38"), properties: .read, value: Data([1]), permissions: .readable)
  private let controlPoint = CBMutableCharacteristic(
    type: CBUUID(string: "2A39"), properties: .write, value: nil, permissions: .writeable)

  private var timer: Timer?
  /// What the transmit queue had no room for.
  private var waiting: Data?
  private var beatsPerMinute = 60
  /// Kilojoules since the start, or since a central has set them back.
  private var energy = 0.0

  override init() {
    super.init()
    manager = CBPeripheralManager(delegate: self, queue: nil)
  }

  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    switch peripheral.state {
    case .poweredOn:
      let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
      service.characteristics = [rate, location, controlPoint]
      peripheral.stopAdvertising()  // if it was switched off in between, nothing is left of before
      peripheral.removeAllServices()
      peripheral.add(service)
    case .poweredOff: pause("Bluetooth is off: switch it on.")
    case .unauthorized: pause("This program may not use Bluetooth: give it the permission.")
    case .unsupported: pause("There is no adapter for Bluetooth Low Energy here: connect one.")
    default: pause(nil)  // for a moment nothing is known, and all links are gone
    }
  }
  /// Goes on by itself when there is something to go on with.
  private func pause(_ reason: String?) {
    rest()
    if let reason { note(reason) }
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    if let error { end("The service could not be published: \(error.localizedDescription)") }
    peripheral.startAdvertising([
      CBAdvertisementDataLocalNameKey: "Heart Rate", CBAdvertisementDataServiceUUIDsKey: [service.uuid],
    ])
  }
  func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
    if let error { end("It could not be advertised: \(error.localizedDescription)") }
    say("advertising")
  }

  // MARK: Its values

  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) {
    say("subscribed: \(central.identifier)")
    if timer == nil {
      timer = Timer.scheduledTimer(withTimeInterval: 1, repeats: true) { [weak self] _ in
        MainActor.assumeIsolated { self?.beat() }
      }
    }
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) {
    say("unsubscribed: \(central.identifier)")
    if rate.subscribedCentrals?.isEmpty ?? true { rest() }
  }
  private func rest() {
    timer?.invalidate()
    timer = nil
    waiting = nil
  }
  /// One octet for the rate, and the energy expended behind it. Heart Rate Service 1.0, §3.1.1.
  private func beat() {
    beatsPerMinute = min(max(beatsPerMinute + Int.random(in: -2...3), 50), 180)
    energy = min(energy + Double(beatsPerMinute) / 600, 65_535)
    let kilojoules = UInt16(energy)
    send(Data([0x08, UInt8(beatsPerMinute), UInt8(kilojoules & 0xFF), UInt8(kilojoules >> 8)]))
  }
  /// An old rate is of no use: the newest waits.
  private func send(_ value: Data) {
    waiting = manager.updateValue(value, for: rate, onSubscribedCentrals: nil) ? nil : value
  }
  func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) {
    if let waiting { send(waiting) }
  }

  /// 1 sets the energy expended back; all else is not supported. Heart Rate Service 1.0, §3.3.1.
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    guard let first = requests.first else { return }
    guard requests.allSatisfy({ $0.characteristic == controlPoint && $0.offset == 0 && $0.value == Data([1]) }) else {
      return peripheral.respond(to: first, withResult: CBATTError.Code(rawValue: 0x80) ?? .requestNotSupported)
    }
    energy = 0
    peripheral.respond(to: first, withResult: .success)
  }

  func stop() {
    if manager.state == .poweredOn {
      manager.stopAdvertising()
      manager.removeAllServices()
    }
    exit(EXIT_SUCCESS)
  }
}

/// A line on standard output, at once. A sensor goes on when nobody reads it.
func say(_ line: String) { try? FileHandle.standardOutput.write(contentsOf: Data("\(line)\n".utf8)) }
func note(_ line: String) { try? FileHandle.standardError.write(contentsOf: Data("\(line)\n".utf8)) }
func end(_ reason: String) -> Never {
  note(reason)
  exit(EXIT_FAILURE)
}

signal(SIGPIPE, SIG_IGN)  // a closed pipe is an error of `write`
let sensor = HeartRatePeripheral()
let signals = [SIGINT, SIGTERM].map { number in
  signal(number, SIG_IGN)  // the source hears of it all the same
  let source = DispatchSource.makeSignalSource(signal: number, queue: .main)
  source.setEventHandler { MainActor.assumeIsolated { sensor.stop() } }
  source.resume()
  return source
}
RunLoop.main.run()
