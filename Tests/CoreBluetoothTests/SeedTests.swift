import BindruneBroker
import BindruneTransport
import CoreBluetooth
import NIOCore
import TestSupport
import Testing

/// Adapters on one virtual radio, in the test's own time: for a peripheral and its centrals in this process, with
/// delegates on the main queue.
struct Adapters {
  private let radio: SimulatedRadio
  /// As `CBManagerOptionAdapterKey` takes them.
  let central: String
  let peripheral: String
  let secondCentral: String

  init() {
    let loop = VirtualLoop.current, radio = SimulatedRadio(on: loop, seed: 7)
    loop.follow(.main)
    // All adapters of a process are shared, so each test has its own.
    let names = (0..<3).map { "\($0)-\(UUID())" }
    for name in names {
      DirectSession.provideAdapter(named: name, on: loop) { _ async throws(TransportError) in radio.controller() }
    }
    self.radio = radio
    (central, peripheral, secondCentral) = (names[0], names[1], names[2])
  }
  func close() async throws { try await radio.eventLoop.submit { [radio] in radio.close() }.get() }
}

/// The code of Apple's guides, over a simulated radio.
@MainActor @Suite("Seeds", .serialized, .virtualTime, .hang) struct SeedTests {
  /// Both roles, until the central has discovered everything.
  private func meet(
    _ body: (CentralTasks, PeripheralTasks) async throws -> Void
  ) async throws {
    let air = Adapters()
    do {
      let peripheral = PeripheralTasks(name: "Rune", options: [CBManagerOptionAdapterKey: air.peripheral])
      await peripheral.journal.wait(for: "advertising true")
      let central = CentralTasks(options: [CBManagerOptionAdapterKey: air.central])
      await central.journal.wait(for: "connected")
      let discovered = await central.journal.wait(for: "services")
      for uuid in discovered?.value as? [CBUUID] ?? [] {
        await central.journal.wait(for: "characteristics of \(uuid.uuidString)")
      }
      try await body(central, peripheral)
      withExtendedLifetime((central, peripheral)) {}
    }
    try await air.close()
  }

  @Test("S73–S75, S104, S105, S134: a manager is unknown, then reports its state, on the main queue") func state()
    async throws
  {
    let air = Adapters()
    let central = CentralTasks(options: [CBManagerOptionAdapterKey: air.central])
    let peripheral = PeripheralTasks(options: [CBManagerOptionAdapterKey: air.peripheral])
    #expect(central.myCentralManager.state == .unknown && peripheral.myPeripheralManager.state == .unknown)
    await central.journal.wait(for: "state 5")
    await peripheral.journal.wait(for: "state 5")
    #expect(central.myCentralManager.state == .poweredOn && peripheral.myPeripheralManager.state == .poweredOn)
    try await air.close()
  }

  @Test("S76–S88, S129, S133, S137, S149, S150: a tree is published and advertised, until it is stopped")
  func published() async throws {
    let air = Adapters()
    let peripheral = PeripheralTasks(options: [CBManagerOptionAdapterKey: air.peripheral])
    #expect(!peripheral.myPeripheralManager.isAdvertising && peripheral.myPeripheralManager.delegate === peripheral)
    for uuid in [peripheral.heartRateServiceUUID, peripheral.myCustomServiceUUID] {
      let added = await peripheral.journal.wait(for: "added \(uuid.uuidString)")
      #expect(added?.value == nil)
    }
    let started = await peripheral.journal.wait(for: "advertising")
    #expect(started?.text == "advertising true" && started?.value == nil)
    peripheral.advertise()
    let again = await peripheral.journal.wait(for: "advertising")
    #expect((again?.value as? CBError)?.code == .alreadyAdvertising)
    peripheral.myPeripheralManager.stopAdvertising()
    #expect(!peripheral.myPeripheralManager.isAdvertising)
    try await air.close()
  }

  @Test("S106–S111: a discovery, with name, services and RSSI", arguments: [nil, ["180D"]] as [[String]?])
  func discovery(_ services: [String]?) async throws {
    let air = Adapters()
    let peripheral = PeripheralTasks(name: "Rune", options: [CBManagerOptionAdapterKey: air.peripheral])
    await peripheral.journal.wait(for: "advertising true")
    let central = CentralTasks(
      services: services?.map { CBUUID(string: $0) }, options: [CBManagerOptionAdapterKey: air.central])
    let found = await central.journal.wait(for: "discovered Rune true")
    let data = try #require(found?.value as? [String: Any])
    #expect(data[CBAdvertisementDataLocalNameKey] as? String == "Rune")
    #expect((data[CBAdvertisementDataIsConnectable] as? NSNumber)?.boolValue == true)
    #expect(
      data[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID]
        == [peripheral.heartRateServiceUUID, peripheral.myCustomServiceUUID])
    #expect(!central.myCentralManager.isScanning)
    await central.journal.wait(for: "connected")
    try await air.close()
  }

  @Test("S107: a scan for other services finds nothing") func filtered() async throws {
    let air = Adapters()
    let peripheral = PeripheralTasks(name: "Rune", options: [CBManagerOptionAdapterKey: air.peripheral])
    await peripheral.journal.wait(for: "advertising true")
    let other = CentralTasks(
      services: [CBUUID(string: "1809")], options: [CBManagerOptionAdapterKey: air.central])
    let all = CentralTasks(wantedName: "nobody", options: [CBManagerOptionAdapterKey: air.central])
    await all.journal.wait(for: "discovered Rune")
    #expect(!other.journal.texts.contains { $0.hasPrefix("discovered") })
    withExtendedLifetime(other) {}
    try await air.close()
  }

  @Test("S112–S118, S122, S124, S128: everything is discovered, with its properties") func explored() async throws {
    try await meet { central, peripheral in
      let found = try #require(central.discoveredPeripheral)
      #expect(found.state == .connected && found.name == "Rune")
      let services = try #require(found.services)
      #expect(services.map(\.uuid).contains(peripheral.heartRateServiceUUID))
      #expect(services.allSatisfy { $0.isPrimary && $0.peripheral === found })
      let custom = try #require(central.interesting[peripheral.myCharacteristicUUID])
      #expect(custom.properties == [.read, .write, .writeWithoutResponse, .notify])
      #expect(custom.service?.uuid == peripheral.myCustomServiceUUID && custom.value == nil)
      #expect(central.interesting[CBUUID(string: "2A38")]?.properties == .read)
    }
  }

  @Test("S82, S119, S120: a cached value is read without the program's help") func cached() async throws {
    try await meet { central, peripheral in
      let location = try #require(central.interesting[CBUUID(string: "2A38")])
      central.read(location)
      #expect(await central.journal.wait(for: "value of 2A38")?.value as? Data == Data([1]))
      #expect(location.value == Data([1]))
      #expect(!peripheral.journal.texts.contains { $0.hasPrefix("read") })
    }
  }

  @Test("S90–S95: reads of a dynamic value, in parts") func dynamic() async throws {
    try await meet { central, peripheral in
      let value = Data((0..<512).map { UInt8(truncatingIfNeeded: $0 * 7) })
      peripheral.myCharacteristic.value = value
      let characteristic = try #require(central.interesting[peripheral.myCharacteristicUUID])
      central.read(characteristic)
      let first = await peripheral.journal.wait(for: "read \(peripheral.myCharacteristicUUID.uuidString) 0")
      #expect(first?.value == nil)
      let got = await central.journal.wait(for: "value of")
      #expect(got?.value as? Data == value && characteristic.value == value)
    }
  }

  @Test("S96–S98, S126, S127: writes with a response and without") func written() async throws {
    try await meet { central, peripheral in
      let characteristic = try #require(central.interesting[peripheral.myCharacteristicUUID])
      central.write(Data([1, 2, 3]), to: characteristic)
      let written = await central.journal.wait(for: "written")
      #expect(written?.value == nil && peripheral.myCharacteristic.value == Data([1, 2, 3]))
      // Longer than one request: several requests of one write.
      let long = Data((0..<512).map { UInt8(truncatingIfNeeded: $0) })
      central.write(long, to: characteristic)
      await central.journal.wait(for: "written")
      #expect(peripheral.myCharacteristic.value == long)

      let count = peripheral.journal.texts.filter { $0.hasPrefix("write") }.count
      central.write(Data([9]), to: characteristic, type: .withoutResponse)
      await peripheral.journal.wait(for: "write 1")
      while peripheral.journal.texts.filter({ $0.hasPrefix("write") }).count <= count {
        await peripheral.journal.wait(for: "write")
      }
      #expect(peripheral.myCharacteristic.value == Data([9]))
      #expect(central.journal.texts.filter { $0.hasPrefix("written") }.count == 2)
    }
  }

  @Test("S99–S103, S123, S125, S151: subscribed, updated beyond the queue's capacity, in order, and unsubscribed")
  func notified() async throws {
    try await meet { central, peripheral in
      let characteristic = try #require(central.interesting[peripheral.myCharacteristicUUID])
      central.subscribe(true, characteristic)
      let subscribed = await peripheral.journal.wait(for: "subscribed")
      #expect(subscribed?.value as? Int ?? 0 >= 20)
      let state = await central.journal.wait(for: "notifying")
      #expect(state?.text.hasSuffix("true") == true && state?.value == nil && characteristic.isNotifying)

      // Until the queue is full; a refused value is sent again when there is room.
      var values: [Data] = []
      var isFull = false
      while !isFull, values.count < 10_000 {
        values.append(Data((0..<100).map { _ in UInt8(truncatingIfNeeded: values.count) }))
        isFull = !peripheral.update(values[values.count - 1])
      }
      #expect(isFull, "the queue has no end")
      await peripheral.journal.wait(for: "ready")
      for value in values {
        let got = await central.journal.wait(for: "value of")
        guard got?.value as? Data == value else {
          Issue.record("out of order, or changed")
          break
        }
      }
      central.subscribe(false, characteristic)
      await peripheral.journal.wait(for: "unsubscribed")
      await central.journal.wait(for: "notifying \(characteristic.uuid.uuidString) false")
    }
  }

  @Test("S121, S123: a read without permission, or a subscription to a characteristic without any, gets an error")
  func refused() async throws {
    try await meet { central, peripheral in
      let location = try #require(central.interesting[CBUUID(string: "2A38")])
      central.subscribe(true, location)
      #expect(await central.journal.wait(for: "notifying 2A38 false")?.value != nil)
      central.write(Data([1]), to: location)
      let refused = await central.journal.wait(for: "written 2A38")
      #expect((refused?.value as? CBATTError)?.code == .writeNotPermitted)
    }
  }

  @Test("A requested disconnection has no error, and all others have one") func ended() async throws {
    try await meet { central, peripheral in
      let found = try #require(central.discoveredPeripheral)
      central.myCentralManager.cancelPeripheralConnection(found)
      await central.journal.wait(for: "disconnected true")
      #expect(found.state == .disconnected)
    }
  }

  @Test(
    "S57, S58, S65, S156, S157: options for restoration are accepted; with nothing to restore the state comes first")
  func restoration() async throws {
    let air = Adapters()
    let central = RestorableTasks()
    let manager = CBCentralManager(
      delegate: central, queue: nil,
      options: [
        CBCentralManagerOptionRestoreIdentifierKey: "myCentralManagerIdentifier",
        CBManagerOptionAdapterKey: air.central,
      ])
    await central.journal.wait(for: "state 5")
    let peripheral = CBPeripheralManager(
      delegate: central, queue: nil,
      options: [
        CBPeripheralManagerOptionRestoreIdentifierKey: "myPeripheralManagerIdentifier",
        CBPeripheralManagerOptionShowPowerAlertKey: true, CBManagerOptionAdapterKey: air.peripheral,
      ])
    await central.journal.wait(for: "state 5")
    #expect(!central.journal.texts.contains("restored"))
    withExtendedLifetime((manager, peripheral)) {}
    try await air.close()
  }
}

/// "Core Bluetooth Background Processing for iOS Apps": the code for a restoration.
@MainActor
final class RestorableTasks: NSObject, @preconcurrency CBCentralManagerDelegate,
  @preconcurrency CBPeripheralManagerDelegate
{
  let journal = Journal()
  let myServiceUUID = CBUUID(string: "180D")
  private var peripherals: [CBPeripheral] = []
  func centralManager(_ central: CBCentralManager, willRestoreState state: [String: Any]) {
    peripherals = state[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
    journal.note("restored")
  }
  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    journal.note("state \(central.state.rawValue)")
    for peripheral in peripherals {
      let serviceUUIDIndex = peripheral.services?.firstIndex { $0.uuid.isEqual(myServiceUUID) }
      if serviceUUIDIndex == nil { peripheral.discoverServices([myServiceUUID]) }
    }
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState state: [String: Any]) {
    journal.note("restored")
  }
  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    journal.note("state \(peripheral.state.rawValue)")
  }
}
