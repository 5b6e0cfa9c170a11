// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
import Foundation
import NIOPosix
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker
@testable import CoreBluetooth

/// A client as in the guide to the central's tasks: only the stream that the test reads is ours.
private final class HeartRateApp: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue.
  let steps: AsyncStream<String>
  private let step: AsyncStream<String>.Continuation
  private var peripheral: CBPeripheral?
  private var characteristics: [CBUUID: CBCharacteristic] = [:]
  override init() { (steps, step) = AsyncStream.makeStream(of: String.self) }

  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    guard central.state == .poweredOn else { return }
    central.scanForPeripherals(withServices: [CBUUID(string: "180D")], options: nil)
  }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi RSSI: NSNumber
  ) {
    guard let name = advertisementData[CBAdvertisementDataLocalNameKey] as? String,
      advertisementData[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID] == [CBUUID(string: "180D")]
    else { return }
    step.yield("discovered \(name) \(peripheral.name ?? "") \(RSSI.intValue < 20)")
    self.peripheral = peripheral
    central.stopScan()
    central.connect(peripheral, options: nil)
  }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    step.yield("connected")
    peripheral.delegate = self
    peripheral.discoverServices(nil)
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    let own = peripheral.services ?? []
    step.yield("services \(own.map(\.uuid.uuidString))")
    for service in own where service.uuid == CBUUID(string: "180D") {
      peripheral.discoverCharacteristics(nil, for: service)
    }
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?) {
    for characteristic in service.characteristics ?? [] { characteristics[characteristic.uuid] = characteristic }
    step.yield("characteristics \((service.characteristics ?? []).map(\.uuid.uuidString))")
    guard let location = characteristics[CBUUID(string: "2A38")], let control = characteristics[CBUUID(string: "2A39")],
      let measurement = characteristics[CBUUID(string: "2A37")]
    else { return }
    peripheral.readValue(for: location)
    peripheral.readValue(for: measurement)
    peripheral.writeValue(Data([7]), for: control, type: .withResponse)
    peripheral.writeValue(Data([7]), for: location, type: .withResponse)
    peripheral.setNotifyValue(true, for: measurement)
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    let what =
      error.map { "error \(($0 as? CBATTError)?.code.rawValue ?? -1)" } ?? "\([UInt8](characteristic.value ?? Data()))"
    step.yield("\(characteristic.uuid.uuidString) \(what)")
    if characteristic.value == Data([60, 3]), let control = characteristics[CBUUID(string: "2A39")] {
      while peripheral.canSendWriteWithoutResponse, characteristic.isNotifying {
        peripheral.writeValue(Data([9]), for: control, type: .withoutResponse)
        break
      }
      peripheral.readValue(for: control)
    }
    if characteristic.value == Data([9]) {
      peripheral.setNotifyValue(false, for: characteristics[CBUUID(string: "2A37")]!)
    }
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    step.yield("\(characteristic.uuid.uuidString) written \((error as? CBATTError)?.code.rawValue ?? 0)")
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    step.yield("notifying \(characteristic.isNotifying)")
    if !characteristic.isNotifying { peripheral.readRSSI() }
  }
  func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?) {
    step.yield("rssi \(RSSI.intValue < 20)")
    finish?()
  }
  var finish: (() -> Void)?
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) {
    step.yield("disconnected \(error.map { "\($0)" } ?? "") \(peripheral.services == nil)")
    step.finish()
  }
}

/// Finds a device with 180D, connects to it, and discovers its services for an app.
private final class Finder: NSObject, CBCentralManagerDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue.
  private let app: any CBPeripheralDelegate
  private var peripheral: CBPeripheral?
  init(for app: any CBPeripheralDelegate) { self.app = app }

  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    if central.state == .poweredOn { central.scanForPeripherals(withServices: [CBUUID(string: "180D")], options: nil) }
  }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi RSSI: NSNumber
  ) {
    self.peripheral = peripheral
    central.stopScan()
    central.connect(peripheral, options: nil)
  }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    peripheral.delegate = app
    peripheral.discoverServices([CBUUID(string: "180D")])
  }
}

/// A client that subscribes to 2A37, and then looks at its descriptors and reads them.
private final class DescriptorApp: NSObject, CBPeripheralDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue.
  let steps: AsyncStream<String>
  private let step: AsyncStream<String>.Continuation
  override init() { (steps, step) = AsyncStream.makeStream(of: String.self) }

  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?) {
    for characteristic in service.characteristics ?? [] { peripheral.setNotifyValue(true, for: characteristic) }
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    let error = error as NSError?
    step.yield("notifying \(characteristic.isNotifying) \(error?.domain ?? "") \(error?.code ?? 0)")
    step.yield("descriptors \(characteristic.descriptors?.count ?? 0)")
    peripheral.discoverDescriptors(for: characteristic)
  }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    let descriptors = characteristic.descriptors ?? []
    step.yield("descriptors \(descriptors.map(\.uuid.uuidString))")
    for descriptor in descriptors { peripheral.readValue(for: descriptor) }
    if descriptors.isEmpty { step.finish() }
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
    step.yield("\(descriptor.uuid.uuidString) \(descriptor.value.map { "\($0)" } ?? "")")
    step.finish()
  }
}

/// Writes each packet when the one before has left, as mesh libraries do: none of its writes is refused.
private final class PacketApp: NSObject, CBPeripheralDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue.
  let steps: AsyncStream<String>
  private let step: AsyncStream<String>.Continuation
  private var control: CBCharacteristic?
  private var next = UInt8(0)
  override init() { (steps, step) = AsyncStream.makeStream(of: String.self) }

  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?) {
    control = service.characteristics?.first { $0.uuid == CBUUID(string: "2A39") }
    write(to: peripheral)
  }
  func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {
    step.yield("ready")
    write(to: peripheral)
  }
  private func write(to peripheral: CBPeripheral) {
    guard let control else { return }
    if next == 3 {
      // Behind all of them.
      return peripheral.readValue(for: control)
    }
    next += 1
    step.yield("write \(next) \(peripheral.canSendWriteWithoutResponse)")
    peripheral.writeValue(Data([next]), for: control, type: .withoutResponse)
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    step.yield("\([UInt8](characteristic.value ?? Data()))")
    step.finish()
  }
}

@Suite(.virtualTime, .hang) struct CentralOverTheAirTests {
  /// Apple's header has peripheralIsReady after a failed write; programs count on it after accepted ones, too.
  @Test("peripheralIsReady is called when accepted writes have left") func readyAfterAcceptedWrites() async throws {
    let loop = VirtualLoop.current, radio = SimulatedRadio(on: loop, configuration: .ideal)
    let adapter = BindruneBroker.Adapter(on: radio.eventLoop) { _ async throws(TransportError) in radio.controller() }
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "Belt")
    builder.service("180D") { service in
      _ = service.characteristic("2A39", [.read, .writeWithoutResponse], value: .stored([0]))
    }
    let host = BluetoothHost(radio.controller(), database: try builder.build())
    try await host.start()
    try await host.advertise(
      AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"]),
      AdvertisingParameters(interval: .every(.milliseconds(20))))
    let app = PacketApp(), finder = Finder(for: app), queue = DispatchQueue(label: "app")
    loop.follow(queue)
    let manager = CBCentralManager(delegate: finder, queue: queue) { events in
      DirectSession(on: adapter, events: events)
    }
    var steps: [String] = []
    for await step in app.steps { steps.append(step) }
    #expect(steps == ["write 1 true", "ready", "write 2 true", "ready", "write 3 true", "ready", "[3]"])
    withExtendedLifetime((manager, finder, host)) {}
  }

  /// After bluez/bluez#2383. Its only descriptor is read, and is not written to subscribe; or there is none.
  @Test("A characteristic without 2902: CBATTErrorDomain 10, and nothing is written", arguments: [true, false])
  func withoutConfiguration(hasStatus: Bool) async throws {
    let loop = VirtualLoop.current, radio = SimulatedRadio(on: loop, configuration: .ideal)
    let recorder = CallRecorder(radio.controller())
    let adapter = BindruneBroker.Adapter(on: radio.eventLoop) { _ async throws(TransportError) in recorder }
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "Belt")
    builder.service("180D") { service in
      _ = service.characteristic("2A37", .notify, configured: false)
      if hasStatus { service.userDescription("Status") }
    }
    let host = BluetoothHost(radio.controller(), database: try builder.build())
    try await host.start()
    try await host.advertise(
      AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"]),
      AdvertisingParameters(interval: .every(.milliseconds(20))))
    let app = DescriptorApp(), finder = Finder(for: app), queue = DispatchQueue(label: "app")
    loop.follow(queue)
    let manager = CBCentralManager(delegate: finder, queue: queue) { events in
      DirectSession(on: adapter, events: events)
    }
    var steps: [String] = []
    for await step in app.steps { steps.append(step) }
    let found = hasStatus ? ["descriptors [\"2901\"]", "2901 Status"] : ["descriptors []"]
    #expect(steps == ["notifying false CBATTErrorDomain 10", "descriptors 0"] + found)
    let words = try await recorder.lines().filter { $0.hasPrefix("setNotifyValue(_:for:): ") }
    #expect(words == (hasStatus ? ["setNotifyValue(_:for:): 4"] : []))
    withExtendedLifetime((manager, finder, host)) {}
  }

  @Test("S105–S128: scan, connect, discover, read, write, subscribe and disconnect, over a simulated radio")
  func wholeTask() async throws {
    let loop = VirtualLoop.current, radio = SimulatedRadio(on: loop, configuration: .ideal)
    let recorder = CallRecorder(radio.controller())
    let adapter = BindruneBroker.Adapter(on: radio.eventLoop) { _ async throws(TransportError) in recorder }
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "Belt")
    builder.genericAttribute()
    var measurement = AttributeHandle()
    builder.service("180D") { service in
      measurement = service.characteristic("2A37", .notify).value
      _ = service.characteristic("2A38", .read, value: [2])
      _ = service.characteristic("2A39", [.read, .write, .writeWithoutResponse], value: .stored([0]))
    }
    builder.service("180F") { service in _ = service.characteristic("2A19", .read, value: [50]) }
    let host = BluetoothHost(radio.controller(), database: try builder.build())
    try await host.start()
    try await host.advertise(
      AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"]),
      AdvertisingParameters(interval: .every(.milliseconds(20))))

    let app = HeartRateApp(), queue = DispatchQueue(label: "app")
    loop.follow(queue)
    let manager = CBCentralManager(delegate: app, queue: queue) { events in
      DirectSession(on: adapter, events: events)
    }
    app.finish = { [weak manager, weak app] in
      guard let manager,
        let peripheral = manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180D")]).first
      else { return }
      withExtendedLifetime(app) { manager.cancelPeripheralConnection(peripheral) }
    }
    var steps: [String] = []
    for await step in app.steps {
      steps.append(step)
      if step == "notifying true" {
        for beat in UInt8(1)...3 { await host.notify([60, beat], of: measurement) }
      }
    }
    #expect(
      steps == [
        "discovered Belt Belt true", "connected", "services [\"180D\", \"180F\"]",
        "characteristics [\"2A37\", \"2A38\", \"2A39\"]", "2A38 [2]", "2A37 error 2", "2A39 written 0",
        "2A38 written 3",
        "notifying true", "2A37 [60, 1]", "2A37 [60, 2]", "2A37 [60, 3]", "2A39 [9]", "notifying false", "rssi true",
        "disconnected  true",
      ])
    // The packets are those that the app's calls ask for, and name them. Vol 4, Part E, §7; Vol 3, Part F, §3.4.
    let lines = try await recorder.lines()
    func words(_ call: String) -> Set<String> {
      Set(lines.filter { $0.hasPrefix(call + ": ") }.map { String($0.dropFirst(call.count + 2)) })
    }
    #expect(words("scanForPeripherals(withServices:options:)") == ["2041", "2042"])
    #expect(words("stopScan()") == ["2042"])
    #expect(words("connect(_:options:)") == ["2043"])
    #expect(words("discoverServices(_:)").contains("10"), "\(lines)")
    #expect(words("discoverCharacteristics(_:for:)") == ["8"])
    #expect(words("readValue(for:)") == ["A"])
    #expect(words("writeValue(_:for:type:)") == ["12", "52"])
    #expect(words("setNotifyValue(_:for:)").contains("12"))
    #expect(words("readRSSI()") == ["1405"])
    #expect(words("cancelPeripheralConnection(_:)") == ["406"])
    // The host's own: the length of packets, the MTU.
    #expect(words("-").isSuperset(of: ["2022", "2"]) && words("-").isSubset(of: ["2022", "2", "1E"]))
    withExtendedLifetime((manager, host)) {}
  }
}
