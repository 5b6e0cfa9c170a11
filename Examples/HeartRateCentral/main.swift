// Ten heart rates of the first sensor in reach, a line each:  swift run HeartRateCentral
import CoreBluetooth

final class HeartRateCentral: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate {
  static let heartRate = CBUUID(string: "180D")
  static let measurement = CBUUID(string: "2A37")

  private var central: CBCentralManager!
  /// The sensor that is used now; a manager keeps nobody alive whom it has only discovered.
  private var sensor: CBPeripheral?
  /// Those that say they are sensors, and are not.
  private var useless: Set<UUID> = []
  private var left: Int

  init(count: Int) {
    left = count
    super.init()
    central = CBCentralManager(delegate: self, queue: nil)
  }

  // MARK: Finding one

  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    switch central.state {
    case .poweredOn: scan()
    case .poweredOff: end("Bluetooth is off: switch it on, and start again.")
    case .unauthorized: end("This program may not use Bluetooth: give it the permission, and start again.")
    case .unsupported: end("There is no adapter for Bluetooth Low Energy here: connect one, and start again.")
    default: sensor = nil  // for a moment nothing is known, and all links are gone
    }
  }
  private func scan() {
    sensor = nil
    note("looking for a heart rate sensor")
    central.scanForPeripherals(withServices: [Self.heartRate])
  }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi: NSNumber
  ) {
    guard sensor == nil, !useless.contains(peripheral.identifier) else { return }
    central.stopScan()
    sensor = peripheral
    peripheral.delegate = self
    central.connect(peripheral)
  }

  // MARK: Its link

  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    note("connected to \(peripheral.name.map(plain) ?? "a sensor without a name")")
    peripheral.discoverServices([Self.heartRate])
  }
  func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?) {
    note("not connected: \(error?.localizedDescription ?? "the sensor gives no reason")")
    scan()
  }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) {
    if left == 0 { exit(EXIT_SUCCESS) }
    if !useless.contains(peripheral.identifier) {
      note("disconnected: \(error?.localizedDescription ?? "no reason given")")
    }
    scan()
  }
  /// The sensor has no use, so others are looked for.
  private func leave(_ peripheral: CBPeripheral, because reason: String) {
    note("\(peripheral.name.map(plain) ?? "The sensor") is no heart rate sensor: \(reason)")
    useless.insert(peripheral.identifier)
    central.cancelPeripheralConnection(peripheral)
  }

  // MARK: Its values

  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    guard let service = peripheral.services?.first(where: { $0.uuid == Self.heartRate }) else {
      return leave(peripheral, because: error?.localizedDescription ?? "it has no heart rate service")
    }
    peripheral.discoverCharacteristics([Self.measurement], for: service)
  }
  func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
    if invalidatedServices.contains(where: { $0.uuid == Self.heartRate }) {
      peripheral.discoverServices([Self.heartRate])
    }
  }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
  ) {
    guard let rate = service.characteristics?.first(where: { $0.uuid == Self.measurement }) else {
      return leave(peripheral, because: error?.localizedDescription ?? "it measures nothing")
    }
    peripheral.setNotifyValue(true, for: rate)
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    if let error { leave(peripheral, because: error.localizedDescription) }
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    guard left > 0, let rate = characteristic.value.flatMap(rate) else { return }
    left -= 1
    say("\(rate) bpm")
    if left == 0 { central.cancelPeripheralConnection(peripheral) }
  }
  /// Beats per minute. The first bit of the flags says whether they take one octet or two. Heart Rate Service 1.0,
  /// §3.1.1.
  private func rate(_ value: Data) -> Int? {
    let octets = [UInt8](value)
    guard let flags = octets.first, octets.count >= (flags & 1 == 0 ? 2 : 3) else { return nil }
    return flags & 1 == 0 ? Int(octets[1]) : Int(octets[1]) | Int(octets[2]) << 8
  }
}

/// Without the characters that steer a terminal or reorder a line: a name is whatever the device sends.
func plain(_ name: String) -> String {
  let kinds: Set<Unicode.GeneralCategory> = [.control, .format, .lineSeparator, .paragraphSeparator]
  return String(String.UnicodeScalarView(name.unicodeScalars.filter { !kinds.contains($0.properties.generalCategory) }))
}
/// A line on standard output, at once; nobody reads it any more: a good end.
func say(_ line: String) {
  do { try FileHandle.standardOutput.write(contentsOf: Data("\(line)\n".utf8)) } catch { exit(EXIT_SUCCESS) }
}
func note(_ line: String) { try? FileHandle.standardError.write(contentsOf: Data("\(line)\n".utf8)) }
func end(_ reason: String) -> Never {
  note(reason)
  exit(EXIT_FAILURE)
}

signal(SIGPIPE, SIG_IGN)  // a closed pipe is an error of `write`
let program = HeartRateCentral(count: 10)
RunLoop.main.run()
