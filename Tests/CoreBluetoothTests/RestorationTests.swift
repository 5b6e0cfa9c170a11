// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
import Foundation
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker
@testable import CoreBluetooth

/// An app that restores its managers, and writes down what it is told.
private final class RestoringApp: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, CBPeripheralManagerDelegate,
  @unchecked Sendable
{
  // Sendable: everything runs on the main queue.
  let journal = Journal()
  var central: CBCentralManager!
  var manager: CBPeripheralManager!
  var peripherals: [CBPeripheral] = []

  init(central adapter: String) {
    super.init()
    central = CBCentralManager(
      delegate: self, queue: nil,
      options: [CBManagerOptionAdapterKey: adapter, CBCentralManagerOptionRestoreIdentifierKey: "door"])
  }
  init(peripheral adapter: String) {
    super.init()
    manager = CBPeripheralManager(
      delegate: self, queue: nil,
      options: [CBManagerOptionAdapterKey: adapter, CBPeripheralManagerOptionRestoreIdentifierKey: "door"])
  }

  func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
    journal.note("restore in state \(central.state.rawValue)", dict)
    peripherals = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
  }
  func centralManagerDidUpdateState(_ central: CBCentralManager) { journal.note("state \(central.state.rawValue)") }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    journal.note("connected", peripheral)
    peripheral.delegate = self
  }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) { journal.note("disconnected") }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?) {
    journal.note("characteristics of \(service.uuid.uuidString)")
    for characteristic in service.characteristics ?? [] where characteristic.uuid == CBUUID(string: "2A37") {
      peripheral.setNotifyValue(true, for: characteristic)
    }
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) { journal.note("notifying \(characteristic.isNotifying)") }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    journal.note("value \([UInt8](characteristic.value ?? Data()))")
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    journal.note("written \(error == nil)")
  }

  func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) {
    journal.note("restore in state \(peripheral.state.rawValue)", dict)
  }
  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    journal.note("state \(peripheral.state.rawValue)")
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    journal.note("added \(error == nil)")
  }
  func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
    journal.note("advertising \(error == nil)")
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) { journal.note("subscribed", (characteristic as? CBMutableCharacteristic)?.subscribedCentrals?.count) }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) { journal.note("unsubscribed", (characteristic as? CBMutableCharacteristic)?.subscribedCentrals?.count) }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    journal.note("read of \(request.characteristic.uuid.uuidString)")
    request.value = Data([42])
    peripheral.respond(to: request, withResult: .success)
  }
}

/// What a relaunched app gets from its managers.
@MainActor @Suite(.serialized, .virtualTime, .hang) struct RestorationTests {
  private let radio: SimulatedRadio
  private let adapter: BindruneBroker.Adapter
  private let name = "\(UUID())"

  init() {
    let loop = VirtualLoop.current, radio = SimulatedRadio(on: loop, configuration: .ideal)
    loop.follow(.main)
    self.radio = radio
    adapter = BindruneBroker.Adapter(on: loop, logger: .silent) { _ async throws(TransportError) in radio.controller() }
    adapter.register(.own, Set(BackgroundMode.allCases))
    AdapterRegistry.shared.provide(adapter, as: name)
  }
  /// The process ends without a word.
  private func terminate() async {
    await withCheckedContinuation { done in adapter.end(.own) { _ in done.resume() } }
    adapter.move(.own, to: .terminated)
  }
  private func relaunch() { adapter.move(.own, to: .awake) }

  @Test("S6, S43, S44, S57, S60, S63, S64, S66–S69, S71, S72: a central manager is restored before its state is known")
  func central() async throws {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "Lock")
    builder.genericAttribute()
    var measurement = AttributeHandle()
    builder.service("180D") { service in
      measurement = service.characteristic("2A37", .notify).value
      service.characteristic("2A38", .read, value: .stored([1]))
    }
    let lock = BluetoothHost(radio.controller(), database: try builder.build())
    try await lock.start()
    try await lock.advertise(AdvertisingData(localName: "Lock", serviceUUIDs: ["180D"]))
    let device = UUID(PeerID(await lock.ownAddress))

    let first = RestoringApp(central: name)
    await first.journal.wait(for: "state 5")
    let peripheral = try #require(first.central.retrievePeripherals(withIdentifiers: [device]).first)
    first.peripherals = [peripheral]
    first.central.connect(peripheral)
    await first.journal.wait(for: "connected")
    peripheral.discoverServices([CBUUID(string: "180D")])
    await first.journal.wait(for: "notifying true")
    let absent = UUID(PeerID(PeerAddress(DeviceAddress(0xC000_0000_0009), .random)))
    first.peripherals += first.central.retrievePeripherals(withIdentifiers: [absent])
    first.central.connect(first.peripherals[1])
    first.central.scanForPeripherals(
      withServices: [CBUUID(string: "1805")], options: [CBCentralManagerScanOptionAllowDuplicatesKey: true])
    await adapterSettles()

    await terminate()
    #expect(await lock.notify([9], of: measurement).isEmpty)
    await adapterSettles()
    relaunch()
    let second = RestoringApp(central: name)
    let restore = try #require(await second.journal.wait(for: "restore in state 0"))
    await second.journal.wait(for: "state 5")
    #expect(second.journal.texts.prefix(2) == ["restore in state 0", "state 5"])
    let known = try #require(restore.value as? [String: Any])
    #expect((known[CBCentralManagerRestoredStateScanServicesKey] as? [CBUUID]) == [CBUUID(string: "1805")])
    let options = known[CBCentralManagerRestoredStateScanOptionsKey] as? [String: Any]
    #expect(options?[CBCentralManagerScanOptionAllowDuplicatesKey] as? Bool == true)
    #expect(second.central.isScanning)
    #expect(second.peripherals.map(\.identifier) == [device, absent].sorted { $0 == device && $1 == absent })
    #expect(second.peripherals.map(\.state) == [.connected, .connecting])
    let restored = second.peripherals[0]
    #expect(restored.delegate == nil && restored.services?.map(\.uuid) == [CBUUID(string: "180D")])
    let characteristics = try #require(restored.services?.first?.characteristics)
    #expect(characteristics.map(\.isNotifying) == [true, false])
    // The value that came while there was no process, and a request on the restored tree.
    restored.delegate = second
    #expect(await lock.notify([10], of: measurement).isEmpty)
    await second.journal.wait(for: "value [10]")
    restored.readValue(for: characteristics[1])
    await second.journal.wait(for: "value [1]")
    // The objects of the ended process do nothing any more.
    first.central.cancelPeripheralConnection(peripheral)
    first.central = nil
    await adapterSettles()
    #expect(restored.state == .connected && !second.journal.texts.contains("disconnected"))
    withExtendedLifetime(first) {}
  }

  @Test("S6, S44, S58, S60, S63, S64, S70: a peripheral manager is restored with all that it served")
  func peripheral() async throws {
    let first = RestoringApp(peripheral: name)
    await first.journal.wait(for: "state 5")
    let base = CBMutableService(type: CBUUID(string: "180F"), primary: false)
    let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
    let measurement = CBMutableCharacteristic(
      type: CBUUID(string: "2A37"), properties: [.notify, .read], value: nil, permissions: .readable)
    measurement.descriptors = [
      CBMutableDescriptor(type: CBUUID(string: CBUUIDCharacteristicUserDescriptionString), value: "pulse")
    ]
    service.characteristics = [
      measurement,
      CBMutableCharacteristic(
        type: CBUUID(string: "2A38"), properties: .read, value: Data([1]), permissions: .readEncryptionRequired),
    ]
    service.includedServices = [base]
    for new in [base, service] {
      first.manager.add(new)
      await first.journal.wait(for: "added true")
    }
    first.manager.startAdvertising([
      CBAdvertisementDataLocalNameKey: "Lock", CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "180D")],
    ])
    await first.journal.wait(for: "advertising true")
    let phone = BluetoothHost(radio.controller(), database: Database())
    try await phone.start()
    let own = try await adapter.eventLoop.submit { [adapter] in adapter.host?.assumeIsolated { $0.ownAddress } }.get()
    let address = try #require(own)
    let link = try await phone.connect(to: address, .fast)
    let found = try await link.discover()
    let remote = try #require(found.characteristics.first { $0.uuid == "2A37" })
    let values = try await link.subscribe(to: remote)
    await first.journal.wait(for: "subscribed")

    await terminate()
    // The phone does not notice.
    let reading = Task { try await link.read(remote) }
    await adapterSettles()
    relaunch()
    let second = RestoringApp(peripheral: name)
    let restore = try #require(await second.journal.wait(for: "restore in state 0"))
    await second.journal.wait(for: "state 5")
    #expect(second.journal.texts.prefix(2) == ["restore in state 0", "state 5"])
    let known = try #require(restore.value as? [String: Any])
    let data = known[CBPeripheralManagerRestoredStateAdvertisementDataKey] as? [String: Any]
    #expect(data?[CBAdvertisementDataLocalNameKey] as? String == "Lock" && second.manager.isAdvertising)
    let services = try #require(known[CBPeripheralManagerRestoredStateServicesKey] as? [CBMutableService])
    #expect(services.map(\.uuid) == [base.uuid, service.uuid] && services.map(\.isPrimary) == [false, true])
    #expect(services[1].includedServices?.first === services[0])
    let characteristics = try #require(services[1].characteristics as? [CBMutableCharacteristic])
    #expect(characteristics.map(\.properties) == [[.notify, .read], .read])
    #expect(characteristics.map(\.permissions) == [.readable, .readEncryptionRequired])
    #expect(characteristics[0].descriptors?.first?.value as? String == "pulse")
    #expect(characteristics[0].subscribedCentrals?.count == 1)
    // The request that came meanwhile, and a value for the subscriber.
    #expect(try await reading.value == [42])
    #expect(second.manager.updateValue(Data([5]), for: characteristics[0], onSubscribedCentrals: nil))
    for try await value in values {
      #expect(value.value == [5])
      break
    }
    second.manager.removeAllServices()
    second.manager.stopAdvertising()
    await adapterSettles()
    #expect(adapter.core.serving.services.isEmpty && adapter.core.serving.advertising.isEmpty)
    withExtendedLifetime(first) {}
  }

  @Test("S61, S62: a program that its user has started was relaunched for no manager; BrokerTests has one that was")
  func launchIdentifiers() {
    #expect(CBCentralManager.launchRestoreIdentifiers == [] && CBPeripheralManager.launchRestoreIdentifiers == [])
  }

  /// The story of the seed's §"Performing Long-Term Actions in the Background", to the open door.
  @Test(
    "S39, S41–S43, S64, S67: the lock comes back days after the app was terminated, and the relaunched app opens it")
  func doorLock() async throws {
    var builder = DatabaseBuilder(), control = AttributeHandle()
    builder.genericAccess(name: "Lock")
    builder.genericAttribute()
    builder.service("180D") { service in control = service.characteristic("2A39", .write, value: .stored([0])).value }
    let lock = BluetoothHost(radio.controller(), database: try builder.build())
    try await lock.start()
    func advertise() async throws {
      try await lock.advertise(AdvertisingData(localName: "Lock", serviceUUIDs: ["180D"]))
    }
    try await advertise()
    let device = UUID(PeerID(await lock.ownAddress)), needs = Journal()
    adapter.whenAppNeeds { _, need in if case .run(let why) = need { needs.note("relaunched for \(why)") } }

    let first = RestoringApp(central: name)
    await first.journal.wait(for: "state 5")
    let peripheral = try #require(first.central.retrievePeripherals(withIdentifiers: [device]).first)
    first.peripherals = [peripheral]
    first.central.connect(peripheral)
    await first.journal.wait(for: "connected")
    // The user leaves the house.
    await lock.stopAdvertising()
    for link in await lock.links { await lock.begin(.disconnect(link.id)) }
    await first.journal.wait(for: "disconnected")
    first.central.connect(peripheral)
    await adapterSettles()
    await terminate()
    try await VirtualLoop.current.pass(.hours(120))
    #expect(needs.texts == [])

    try await advertise()
    await needs.wait(for: "relaunched for a connection")
    relaunch()
    let second = RestoringApp(central: name)
    await second.journal.wait(for: "connected")
    #expect(second.journal.texts == ["restore in state 0", "state 5", "connected"])
    let door = try #require(second.peripherals.first)
    #expect(second.peripherals.map(\.identifier) == [device] && door.state == .connected)
    door.discoverServices([CBUUID(string: "180D")])
    await second.journal.wait(for: "characteristics of 180D")
    let command = try #require(door.services?.first?.characteristics?.first)
    door.writeValue(Data([1]), for: command, type: .withResponse)
    await second.journal.wait(for: "written true")
    #expect(await lock.database.value(control) == [1])
    print(
      "the door lock, facade: \((first.journal.texts + needs.texts + second.journal.texts).joined(separator: ", "))")
    withExtendedLifetime(first) {}
  }

  @Test("S28, S42, S43, S52: a central that subscribes, or unsubscribes, while the app has no process")
  func subscriptions() async throws {
    let first = RestoringApp(peripheral: name)
    await first.journal.wait(for: "state 5")
    let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
    service.characteristics = ["2A37", "2A38"].map {
      CBMutableCharacteristic(type: CBUUID(string: $0), properties: .notify, value: nil, permissions: .readable)
    }
    first.manager.add(service)
    await first.journal.wait(for: "added true")
    first.manager.startAdvertising([:])
    await first.journal.wait(for: "advertising true")
    let phone = BluetoothHost(radio.controller(), database: Database())
    try await phone.start()
    let own = try await adapter.eventLoop.submit { [adapter] in adapter.host?.assumeIsolated { $0.ownAddress } }.get()
    let link = try await phone.connect(to: try #require(own), .fast), found = try await link.discover()
    func remote(_ uuid: BluetoothUUID) throws -> RemoteCharacteristic {
      try #require(found.characteristics.first { $0.uuid == uuid })
    }
    let before = try await link.subscribe(to: try remote("2A37"))
    await first.journal.wait(for: "subscribed")

    await terminate()
    let values = try await link.subscribe(to: try remote("2A38"))
    try await before.end()
    await adapterSettles()
    relaunch()
    let second = RestoringApp(peripheral: name)
    let restore = try #require(await second.journal.wait(for: "restore"))
    let known = try #require(restore.value as? [String: Any])
    let services = try #require(known[CBPeripheralManagerRestoredStateServicesKey] as? [CBMutableService])
    let began = await second.journal.wait(for: "subscribed"), ended = await second.journal.wait(for: "unsubscribed")
    #expect(began?.value as? Int == 1 && ended?.value as? Int == 0)
    #expect(second.journal.texts == ["restore in state 0", "state 5", "subscribed", "unsubscribed"])
    let characteristic = try #require(services[0].characteristics?[1] as? CBMutableCharacteristic)
    #expect(second.manager.updateValue(Data([5]), for: characteristic, onSubscribedCentrals: nil))
    for try await value in values {
      #expect(value.value == [5])
      break
    }
    withExtendedLifetime(first) {}
  }

  @Test("S56, S65: nothing is restored without an identifier, or without work")
  func nothing() async throws {
    let first = RestoringApp(central: name)
    await first.journal.wait(for: "state 5")
    await terminate()
    relaunch()
    let second = RestoringApp(central: name)
    await second.journal.wait(for: "state 5")
    #expect(second.journal.texts == ["state 5"])
  }

  private func adapterSettles() async {
    for _ in 0..<3 { try? await adapter.eventLoop.scheduleTask(in: .milliseconds(200)) {}.futureResult.get() }
  }
}
