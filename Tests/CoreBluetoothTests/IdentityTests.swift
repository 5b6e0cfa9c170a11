// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
import Foundation
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker
@testable import CoreBluetooth

/// Connects to the first device that it finds, subscribes to its measurement, and connects to the same object again
/// after the link has gone down.
private final class Monitor: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue.
  let steps: AsyncStream<String>
  private let step: AsyncStream<String>.Continuation
  private var peripheral: CBPeripheral?, measurement: CBCharacteristic?
  override init() { (steps, step) = AsyncStream.makeStream(of: String.self) }

  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    if central.state == .poweredOn { central.scanForPeripherals(withServices: [CBUUID(string: "180D")]) }
  }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any], rssi: NSNumber
  ) {
    if self.peripheral != nil { return }
    self.peripheral = peripheral
    peripheral.delegate = self
    central.stopScan()
    central.connect(peripheral)
  }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    let known = central.retrievePeripherals(withIdentifiers: [peripheral.identifier])
    step.yield("connected \(peripheral === self.peripheral && known == [peripheral])")
    peripheral.discoverServices(nil)
  }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) {
    step.yield("disconnected \(peripheral === self.peripheral)")
    central.connect(peripheral)
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    for service in peripheral.services ?? [] where service.uuid == CBUUID(string: "180D") {
      peripheral.discoverCharacteristics(nil, for: service)
    }
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?) {
    measurement = service.characteristics?.first
    if let measurement { peripheral.setNotifyValue(true, for: measurement) }
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    step.yield("notifying \(characteristic.isNotifying)")
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    step.yield("\([UInt8](characteristic.value ?? Data())) \(characteristic === measurement)")
  }
}

@Suite(.virtualTime, .hang) struct IdentityTests {
  /// Pairing reveals the device's identity in the middle of a link. The app's object keeps its delegate, its identifier
  /// and its subscriptions, and still stands for the device when that comes back with another private address.
  @Test func anIdentityInTheMiddleOfALink() async throws {
    let loop = VirtualLoop.current, radio = SimulatedRadio(on: loop, configuration: .ideal)
    let adapter = BindruneBroker.Adapter(on: radio.eventLoop) { _ async throws(TransportError) in radio.controller() }
    let irk = IdentityResolvingKey(0xec0234a3_57c8ad05_341010a6_0a397d9b)
    var configuration = HostConfiguration(), builder = DatabaseBuilder(), measurement = AttributeHandle()
    configuration.addressPolicy = .resolvable(irk, rotation: .seconds(5))
    builder.genericAccess(name: "Belt")
    builder.service("180D") { measurement = $0.characteristic("2A37", .notify).value }
    let host = BluetoothHost(radio.controller(), configuration: configuration, database: try builder.build())
    try await host.start()
    var parameters = AdvertisingParameters(interval: .every(.milliseconds(20)))
    parameters.restartsAfterConnection = true
    try await host.advertise(AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"]), parameters)
    let identity = await host.identityAddress, before = await host.ownAddress
    #expect(before != identity && before.address.randomKind == .resolvablePrivate)

    let app = Monitor(), queue = DispatchQueue(label: "app")
    loop.follow(queue)
    let manager = CBCentralManager(delegate: app, queue: queue) { DirectSession(on: adapter, events: $0) }
    var steps: [String] = []
    for await step in app.steps {
      steps.append(step)
      switch steps.count {
      case 2:
        try await loop.submit {
          _ = adapter.host?.assumeIsolated { try? $0.identify(adapter.core.links.all[0].id, as: identity, irk: irk) }
        }.get()
        await host.notify([0, 61], of: measurement)
      case 3:
        // The device comes back with another address.
        await host.stopAdvertising()
        for link in await host.links { await host.begin(.disconnect(link.id)) }
        try await loop.scheduleTask(in: .seconds(6)) {}.futureResult.get()
        #expect(await host.ownAddress != before)
        try await host.advertise(AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"]), parameters)
      case 6: await host.notify([0, 62], of: measurement)
      default: break
      }
      if steps.count == 7 { break }
    }
    #expect(
      steps == [
        "connected true", "notifying true", "[0, 61] true", "disconnected true", "connected true", "notifying true",
        "[0, 62] true",
      ])
    withExtendedLifetime((manager, host)) {}
  }
}
