// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
import BindruneTransport
import Foundation
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker
@testable import CoreBluetooth

/// A program as in the guide to the peripheral's tasks. It serves 2A37 (notified), 2A38 (cached), 2A39 (read and
/// written), and includes 180F.
private final class HeartRateSensor: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue.
  let steps: AsyncStream<String>
  let step: AsyncStream<String>.Continuation
  let measurement = CBMutableCharacteristic(
    type: CBUUID(string: "2A37"), properties: [.read, .notify], value: nil, permissions: .readable)
  let control = CBMutableCharacteristic(
    type: CBUUID(string: "2A39"), properties: [.read, .write], value: nil, permissions: [.readable, .writeable])
  private let battery = CBMutableService(type: CBUUID(string: "180F"), primary: true)
  private let heartRate = CBMutableService(type: CBUUID(string: "180D"), primary: true)
  private var next: UInt16 = 0
  let last: UInt16 = 8_000
  private(set) var refusals = 0
  override init() {
    (steps, step) = AsyncStream.makeStream(of: String.self)
    super.init()
    let location = CBMutableCharacteristic(
      type: CBUUID(string: "2A38"), properties: .read, value: Data([1]), permissions: .readable)
    location.descriptors = [CBMutableDescriptor(type: CBUUID(string: "2901"), value: "chest")]
    battery.characteristics = [
      CBMutableCharacteristic(
        type: CBUUID(string: "2A19"), properties: .read, value: Data([50]), permissions: .readable)
    ]
    heartRate.includedServices = [battery]
    heartRate.characteristics = [measurement, location, control]
  }

  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    guard peripheral.state == .poweredOn else { return }
    peripheral.add(battery)
    peripheral.add(heartRate)
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    step.yield("added \(service.uuid.uuidString) \(word(error))")
    guard service === heartRate else { return }
    control.value = Data((0..<600).map { UInt8(truncatingIfNeeded: $0) }.prefix(500))
    peripheral.startAdvertising([
      CBAdvertisementDataLocalNameKey: "Belt", CBAdvertisementDataServiceUUIDsKey: [heartRate.uuid],
    ])
  }
  func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
    step.yield("advertising \(word(error)) \(peripheral.isAdvertising)")
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    guard let value = request.characteristic.uuid == control.uuid ? control.value : Data([0]) else { return }
    if request.offset > value.count {
      peripheral.respond(to: request, withResult: .invalidOffset)
      return
    }
    request.value = value.subdata(in: request.offset..<value.count)
    peripheral.respond(to: request, withResult: .success)
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    var value = control.value ?? Data()
    for request in requests {
      guard let part = request.value, request.offset <= value.count, part.first != 0xFF else {
        peripheral.respond(to: requests[0], withResult: CBATTError.Code(rawValue: 0x80) ?? .unlikelyError)
        return
      }
      value = value.prefix(request.offset) + part
    }
    control.value = value
    step.yield("written \(value.count)")
    peripheral.respond(to: requests[0], withResult: .success)
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) {
    step.yield("subscribed \(characteristic.uuid.uuidString) \(central.maximumUpdateValueLength > 20)")
    peripheral.setDesiredConnectionLatency(.low, for: central)
    send(peripheral)
  }
  func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) { send(peripheral) }
  /// Every number from 1 on, until there is no room.
  private func send(_ peripheral: CBPeripheralManager) {
    while next < last {
      let number = [UInt8(truncatingIfNeeded: (next + 1) >> 8), UInt8(truncatingIfNeeded: next + 1)]
      let value = Data(number + [UInt8](repeating: 0, count: 18))
      guard peripheral.updateValue(value, for: measurement, onSubscribedCentrals: nil) else {
        refusals += 1
        return
      }
      next += 1
    }
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) {
    step.yield("unsubscribed \(characteristic.uuid.uuidString) \(measurement.subscribedCentrals?.count ?? -1)")
    peripheral.stopAdvertising()
    step.yield("stopped \(peripheral.isAdvertising)")
    step.finish()
  }
}

/// The other program: everything that a central can do with the sensor, in sequence.
private final class HeartRateApp: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue.
  let steps: AsyncStream<String>
  private let step: AsyncStream<String>.Continuation
  private let last: UInt16
  private var manager: CBCentralManager?
  private var peripheral: CBPeripheral?
  private var characteristics: [CBUUID: CBCharacteristic] = [:]
  private var seen: UInt16 = 0
  init(last: UInt16) {
    self.last = last
    (steps, step) = AsyncStream.makeStream(of: String.self)
  }
  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    guard central.state == .poweredOn else { return }
    manager = central
    central.scanForPeripherals(withServices: [CBUUID(string: "180D")])
  }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi: NSNumber
  ) {
    step.yield("discovered \(advertisementData[CBAdvertisementDataLocalNameKey] as? String ?? "")")
    self.peripheral = peripheral
    central.stopScan()
    central.connect(peripheral)
  }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    peripheral.delegate = self
    peripheral.discoverServices([CBUUID(string: "180D")])
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    guard let service = peripheral.services?.first else { return step.finish() }
    peripheral.discoverIncludedServices(nil, for: service)
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?) {
    step.yield("included \((service.includedServices ?? []).map(\.uuid.uuidString))")
    peripheral.discoverCharacteristics(nil, for: service)
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?) {
    for characteristic in service.characteristics ?? [] { characteristics[characteristic.uuid] = characteristic }
    step.yield("characteristics \((service.characteristics ?? []).map(\.uuid.uuidString))")
    guard let location = characteristics[CBUUID(string: "2A38")], let control = characteristics[CBUUID(string: "2A39")]
    else { return step.finish() }
    peripheral.readValue(for: location)
    peripheral.readValue(for: control)
    peripheral.writeValue(Data([0xFF]), for: control, type: .withResponse)
    peripheral.writeValue(Data(repeating: 3, count: 400), for: control, type: .withResponse)
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    guard characteristic.uuid == CBUUID(string: "2A37"), let value = characteristic.value, value.count == 20 else {
      step.yield("\(characteristic.uuid.uuidString) \(characteristic.value?.count ?? -1) \(word(error))")
      return
    }
    let number = UInt16(value[value.startIndex]) << 8 | UInt16(value[value.startIndex + 1])
    guard number == seen + 1 else {
      step.yield("\(number) after \(seen)")
      return step.finish()
    }
    seen = number
    guard seen == last else { return }
    step.yield("all in order")
    peripheral.setNotifyValue(false, for: characteristic)
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    let code = (error as? CBATTError)?.code.rawValue ?? 0
    step.yield("\(characteristic.uuid.uuidString) write \(code)")
    guard code == 0, let measurement = characteristics[CBUUID(string: "2A37")] else { return }
    peripheral.setNotifyValue(true, for: measurement)
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    step.yield("notifying \(characteristic.isNotifying) \(word(error))")
    if !characteristic.isNotifying { step.finish() }
  }
}

@Suite(.virtualTime, .hang) struct PeripheralOverTheAirTests {
  @Test("S74–S103, S137, S138, S150–S153: publish, advertise, serve, update, over a simulated radio")
  func wholeTask() async throws {
    let loop = VirtualLoop.current, radio = SimulatedRadio(on: loop, configuration: .ideal)
    let queues = (sensor: DispatchQueue(label: "sensor"), app: DispatchQueue(label: "app"))
    for queue in [queues.sensor, queues.app] { loop.follow(queue) }
    func adapter() -> BindruneBroker.Adapter {
      BindruneBroker.Adapter(on: radio.eventLoop) { _ async throws(TransportError) in radio.controller() }
    }
    let sensor = HeartRateSensor(), app = HeartRateApp(last: sensor.last)
    let recorder = CallRecorder(radio.controller())
    let peripheral = CBPeripheralManager(delegate: sensor, queue: queues.sensor) { events in
      DirectSession(
        on: BindruneBroker.Adapter(on: radio.eventLoop) { _ async throws(TransportError) in recorder }, events: events)
    }
    var served: [String] = []
    var serving = sensor.steps.makeAsyncIterator()
    while served.last?.hasPrefix("advertising") != true, let step = await serving.next() { served.append(step) }
    #expect(served == ["added 180F ok", "added 180D ok", "advertising ok true"])

    let central = CBCentralManager(delegate: app, queue: queues.app) { events in
      DirectSession(on: adapter(), events: events)
    }
    var steps: [String] = []
    for await step in app.steps { steps.append(step) }
    #expect(
      steps == [
        "discovered Belt", "included [\"180F\"]", "characteristics [\"2A37\", \"2A38\", \"2A39\"]", "2A38 1 ok",
        "2A39 500 ok", "2A39 write 128", "2A39 write 0", "notifying true ok", "all in order", "notifying false ok",
      ])
    served = []
    while let step = await serving.next() { served.append(step) }
    #expect(served == ["written 400", "subscribed 2A37 true", "unsubscribed 2A37 0", "stopped false"])
    // 48,000 octets, more than a port holds: it was full at times, and nothing was lost.
    #expect(sensor.refusals > 0)
    // Each response of the application, and each value, names its call; the server's own answers name none.
    let lines = try await recorder.lines()
    func words(_ call: String) -> Set<String> {
      Set(lines.filter { $0.hasPrefix(call + ": ") }.map { String($0.dropFirst(call.count + 2)) })
    }
    #expect(words("startAdvertising(_:)").isSuperset(of: ["2036", "2037", "2039"]))
    #expect(words("respond(to:withResult:)").isSuperset(of: ["B", "13", "1"]))
    #expect(words("updateValue(_:for:onSubscribedCentrals:)") == ["1B"])
    // After a connection the host itself advertises again.
    #expect(words("-").isDisjoint(with: ["1B", "2036", "2037"]))
    withExtendedLifetime((peripheral, central)) {}
  }
}
