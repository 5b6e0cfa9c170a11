import CoreBluetooth
import TestSupport
import Testing

/// Each method as the reference of CBPeripheralManager describes it, over a simulated radio.
@MainActor @Suite("Seed: CBPeripheralManager", .serialized, .virtualTime, .hang)
struct SeedReferenceTests {
  private func characteristic(_ uuid: String, _ value: Data? = Data([1])) -> CBMutableCharacteristic {
    CBMutableCharacteristic(
      type: CBUUID(string: uuid), properties: .read, value: value, permissions: .readable)
  }
  private func service(_ uuid: String, _ characteristics: [CBMutableCharacteristic]) -> CBMutableService {
    let service = CBMutableService(type: CBUUID(string: uuid), primary: true)
    service.characteristics = characteristics
    return service
  }

  @Test("S132: three initialisers: without the queue, without the options, with both") func initialisers() {
    let managers = [
      CBPeripheralManager(), CBPeripheralManager(delegate: nil, queue: nil),
      CBPeripheralManager(delegate: nil, queue: nil, options: [CBManagerOptionAdapterKey: "unix:/nonexistent/rune"]),
    ]
    #expect(managers.allSatisfy { $0.state == .unknown && $0.delegate == nil && !$0.isAdvertising })
  }

  @Test("S138–S140: an included service is published first and removed last; of two equal ones one is removed")
  func included() async throws {
    let air = Adapters()
    let tasks = PeripheralTasks(name: "Rune", options: [CBManagerOptionAdapterKey: air.peripheral])
    await tasks.journal.wait(for: "advertising true")
    let manager = try #require(tasks.myPeripheralManager)

    let battery = service("180F", [characteristic("2A19")]), user = service("1809", [])
    user.includedServices = [battery]
    manager.add(user)
    #expect(await tasks.journal.wait(for: "added 1809")?.value != nil, "what it includes is not published")
    manager.add(battery)
    #expect(await tasks.journal.wait(for: "added 180F")?.value == nil)
    manager.add(user)
    #expect(await tasks.journal.wait(for: "added 1809")?.value == nil)
    manager.remove(battery)  // is included, and stays
    let twins = [
      service("181A", [characteristic("2A6E", Data([1]))]), service("181A", [characteristic("2A6E", Data([2]))]),
    ]
    for twin in twins {
      manager.add(twin)
      #expect(await tasks.journal.wait(for: "added 181A")?.value == nil)
    }
    manager.remove(twins[0])

    let central = CentralTasks(options: [CBManagerOptionAdapterKey: air.central])
    let found = await central.journal.wait(for: "services")
    let uuids = (found?.value as? [CBUUID] ?? []).map(\.uuidString)
    #expect(uuids.filter { $0 == "181A" }.count == 1 && uuids.contains("180F") && uuids.contains("1809"), "\(uuids)")
    await central.journal.wait(for: "characteristics of 181A")
    let left = try #require(central.interesting[CBUUID(string: "2A6E")])
    central.read(left)
    #expect(await central.journal.wait(for: "value of 2A6E")?.value as? Data == Data([2]))
    withExtendedLifetime(manager) {}
    try await air.close()
  }

  @Test("S89, S100, S152–S154: two centrals, each with values cut to its own length; a desired latency")
  func twoCentrals()
    async throws
  {
    let air = Adapters()
    let tasks = PeripheralTasks(name: "Rune", options: [CBManagerOptionAdapterKey: air.peripheral])
    await tasks.journal.wait(for: "advertising true")
    var centrals: [CentralTasks] = []
    for spec in [air.central, air.secondCentral] {
      let central = CentralTasks(
        services: [tasks.heartRateServiceUUID], options: [CBManagerOptionAdapterKey: spec])
      centrals.append(central)
      await central.journal.wait(for: "characteristics of \(tasks.myCustomServiceUUID.uuidString)")
      let value = try #require(central.interesting[tasks.myCharacteristicUUID])
      central.subscribe(true, value)
      await central.journal.wait(for: "notifying \(value.uuid.uuidString) true")
      await tasks.journal.wait(for: "subscribed")
    }
    #expect(tasks.myCharacteristic.subscribedCentrals?.count == 2)
    let both = try #require(tasks.myCharacteristic.subscribedCentrals)
    #expect(Set(both.map(\.identifier)).count == 2)

    let long = Data((0..<700).map { UInt8(truncatingIfNeeded: $0) })
    tasks.update(long)
    for central in centrals {
      let got = await central.journal.wait(for: "value of")
      let value = try #require(got?.value as? Data)
      #expect(both.map(\.maximumUpdateValueLength).contains(value.count) && long.starts(with: value))
    }
    for central in both { tasks.myPeripheralManager.setDesiredConnectionLatency(.low, for: central) }
    // Only one of them: the other gets the next value, but not this one.
    #expect(
      tasks.myPeripheralManager.updateValue(Data([1]), for: tasks.myCharacteristic, onSubscribedCentrals: [both[0]]))
    #expect(tasks.myPeripheralManager.updateValue(Data([2]), for: tasks.myCharacteristic, onSubscribedCentrals: nil))
    var firsts: [Data?] = []
    for central in centrals { firsts.append(await central.journal.wait(for: "value of")?.value as? Data) }
    #expect(firsts.filter { $0 == Data([1]) }.count == 1 && firsts.filter { $0 == Data([2]) }.count == 1)
    withExtendedLifetime(centrals) {}
    try await air.close()
  }
}
