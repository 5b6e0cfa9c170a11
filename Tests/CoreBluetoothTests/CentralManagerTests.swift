// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
import BindruneBroker
import CoreBluetooth
import Foundation
import TestSupport
import Testing

@Suite struct CentralManagerTests {
  // MARK: State

  @Test("S105: the delegate gets the state once it is known, after the property has changed")
  func state() {
    let lab = CentralLab(nil)
    #expect(lab.manager.state == .unknown)
    lab.deliver(.adapter(.unknown))
    #expect(lab.recorder.calls.isEmpty)
    lab.deliver(.adapter(.poweredOff("It is off.")))
    lab.deliver(.adapter(.poweredOn), .adapter(.poweredOn))
    #expect(lab.recorder.values as? [CBManagerState] == [.poweredOff, .poweredOn])
    for (state, expected) in [
      (AdapterState.resetting(""), CBManagerState.resetting), (.unsupported(""), .unsupported),
      (.unauthorized(""), .unauthorized), (.unknown, .unknown),
    ] {
      lab.deliver(.adapter(state))
      #expect(lab.manager.state == expected)
    }
  }
  @Test("S104: without a queue the delegate is called on the main queue", .hang)
  func mainQueue() async {
    final class Delegate: NSObject, CBCentralManagerDelegate, @unchecked Sendable {
      static let key = DispatchSpecificKey<Bool>()
      let continuation: CheckedContinuation<Bool, Never>
      init(_ continuation: CheckedContinuation<Bool, Never>) { self.continuation = continuation }
      func centralManagerDidUpdateState(_ central: CBCentralManager) {
        continuation.resume(returning: DispatchQueue.getSpecific(key: Self.key) == true)
      }
    }
    final class Kept: @unchecked Sendable {
      var objects: [AnyObject] = []
    }
    let kept = Kept()
    DispatchQueue.main.setSpecific(key: Delegate.key, value: true)
    let isMain = await withCheckedContinuation { continuation in
      let delegate = Delegate(continuation)
      let manager = CBCentralManager(delegate: delegate, queue: nil) { events in
        let session = ScriptedSession(events)
        session.deliver(.adapter(.poweredOn))
        return session
      }
      kept.objects = [delegate, manager]
    }
    #expect(isMain)
    withExtendedLifetime(kept) {}
  }
  @Test("Calls on a manager that is not powered on are refused in the log, and do not reach the adapter")
  func notPoweredOn() throws {
    let lines = LogLines()
    let lab = CentralLab()
    let peripheral = try #require(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first)
    lab.deliver(.adapter(.poweredOff("It is off.")))
    lab.manager.scanForPeripherals(withServices: nil)
    lab.manager.stopScan()
    lab.manager.connect(peripheral)
    lab.manager.cancelPeripheralConnection(peripheral)
    #expect(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).isEmpty)
    #expect(lab.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180D")]).isEmpty)
    #expect(lab.asked().isEmpty)
    #expect(!lab.manager.isScanning)
    #expect(peripheral.state == .disconnected)
    #expect(lines.of(lab.manager).filter { $0.contains("API MISUSE") }.count == 6)
    #expect(!lines.of(lab.manager).contains { $0.contains("It is off.") })
  }
  @Test("Values by key: those that programs read, and nil with a log line for others")
  func valuesByKey() throws {
    let lines = LogLines(), lab = CentralLab(), peripheral = try lab.connected(longestWrite: 182)
    #expect(peripheral.value(forKey: "identifier") as? UUID == lab.peer)
    #expect((peripheral.value(forKey: "identifier") as? NSUUID)?.uuidString == lab.peer.uuidString)
    #expect(peripheral.value(forKey: "mtuLength") as? Int == 185)
    #expect(peripheral.value(forKey: "name") as? String == "Thermostat")
    #expect(peripheral.value(forKey: "state") as? Int == CBPeripheralState.connected.rawValue)
    #expect(lines.of(peripheral).isEmpty)
    #expect(peripheral.value(forKey: "BDAddress") == nil)
    #expect(lines.of(peripheral).count == 1)
  }
  @Test("The power alert is a log line, if it is requested and Bluetooth is off")
  func powerAlert() {
    let lines = LogLines()
    for (options, count) in [(nil, 0), (false, 0), (true, 1)] as [(Bool?, Int)] {
      let lab = CentralLab(nil, options: options.map { [CBCentralManagerOptionShowPowerAlertKey: $0] })
      lab.deliver(.adapter(.unsupported("There is none.")), .adapter(.poweredOff("It is off.")))
      #expect(lines.of(lab.manager).filter { $0.contains("It is off.") }.count == count)
      #expect(!lines.of(lab.manager).contains { $0.contains("There is none.") })
    }
  }
  @Test(
    "While the queue is blocked a device cannot fill the memory: its events are dropped, and one line reports that"
  )
  func standsStill() throws {
    let lines = LogLines(), lab = CentralLab()
    lab.manager.scanForPeripherals(withServices: nil)
    let (peripheral, _, characteristics) = try lab.explored()
    lab.queue.suspend()
    lab.session.deliver(.nameChanged(lab.peer, "before"))
    for number in 0..<2000 as Range<UInt64> {
      lab.session.deliver(.discovered(DiscoveredPeer(peer: CentralLab.peer(0xF000_0000_0000 + number))))
    }
    for number in 0..<70_000 { lab.session.deliver(.values(lab.peer, 0x12, [Data("\(number)".utf8)])) }
    lab.session.deliver(.nameChanged(lab.peer, "after"))
    lab.queue.resume()
    lab.waitForQueue()
    let calls = lab.recorder.take()
    #expect(calls.filter { $0 == "discover" }.count == 1023)
    #expect(calls.filter { $0 == "value" }.count == 65_536 - 1024)
    #expect(characteristics[0].value == Data("\(65_536 - 1024 - 1)".utf8))
    #expect(peripheral.name == "after")
    #expect(lines.of(lab.queue).count == 1)

    lab.deliver(.values(lab.peer, 0x12, [Data([1])]), .discovered(DiscoveredPeer(peer: lab.peer)))
    #expect(lab.recorder.take() == ["value", "discover"])
  }
  @Test("Below poweredOn scans and links end without further calls; below poweredOff the peripherals become invalid")
  func adapterIsGone() throws {
    let lab = CentralLab()
    let (peripheral, service, _) = try lab.explored()
    lab.manager.scanForPeripherals(withServices: nil)
    peripheral.readRSSI()
    let pending = lab.asked().last?.operation
    lab.deliver(.adapter(.poweredOff("It is off.")), .completed(try #require(pending), .success(.rssi(-3))))
    #expect(lab.recorder.take() == ["state"])
    #expect(!lab.manager.isScanning)
    #expect(peripheral.state == .disconnected)
    #expect(peripheral.services == nil)
    #expect(service.includedServices == nil)

    lab.deliver(.adapter(.poweredOn))
    #expect(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first === peripheral)
    lab.deliver(.adapter(.resetting("The controller restarts.")), .adapter(.poweredOn))
    #expect(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first !== peripheral)
    _ = (lab.asked(), lab.recorder.take())
    lab.manager.connect(peripheral)
    lab.waitForQueue()
    #expect(lab.asked().isEmpty)
    #expect((lab.recorder.errors.first as? CBError)?.code == .unknownDevice)
    #expect(lab.recorder.take() == ["fail"])
  }

  // MARK: Scanning

  @Test(
    "S106, S107: services and options of a scan; options of a wrong type are ignored; a scan replaces the one before")
  func scan() {
    let lab = CentralLab()
    lab.manager.scanForPeripherals(withServices: nil)
    lab.manager.scanForPeripherals(withServices: [], options: [:])
    lab.manager.scanForPeripherals(
      withServices: [CBUUID(string: "180D"), CBUUID(string: "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00")],
      options: [
        CBCentralManagerScanOptionAllowDuplicatesKey: true,
        CBCentralManagerScanOptionSolicitedServiceUUIDsKey: [CBUUID(string: "1805")],
      ])
    lab.manager.scanForPeripherals(
      withServices: nil,
      options: [
        CBCentralManagerScanOptionAllowDuplicatesKey: "yes", CBCentralManagerScanOptionSolicitedServiceUUIDsKey: 5,
      ])
    let all = BrokerRequest.Central.scan(services: [], solicitedServices: [], allowsDuplicates: false)
    #expect(
      lab.asked() == [
        all, all,
        .scan(
          services: ["180D", "A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00"], solicitedServices: ["1805"],
          allowsDuplicates: true), all,
      ])
    #expect(lab.manager.isScanning)
  }
  @Test("S108, S110: a discovery has Apple's keys and types, the RSSI and the name")
  func discovery() throws {
    let lab = CentralLab()
    lab.manager.scanForPeripherals(withServices: nil)
    lab.deliver(
      .discovered(
        DiscoveredPeer(
          peer: lab.peer, name: "Strap", rssi: -60, isConnectable: true, localName: "Strap",
          manufacturerData: Data([0x4C, 0x00, 1]), services: ["180D"], overflowServices: ["1001"],
          solicitedServices: ["1805"], serviceData: ["180F": Data([99])], txPower: -4)),
      .discovered(DiscoveredPeer(peer: CentralLab.peer(0xC0FF_EE00_0001), isConnectable: false)))
    #expect(lab.recorder.take() == ["discover", "discover"])
    let (peripheral, data, rssi) = lab.recorder.found[0]
    #expect(peripheral.identifier == lab.peer)
    #expect(peripheral.name == "Strap")
    #expect(peripheral.state == .disconnected)
    #expect(rssi == -60)
    #expect(data[CBAdvertisementDataLocalNameKey] as? String == "Strap")
    #expect(data[CBAdvertisementDataManufacturerDataKey] as? Data == Data([0x4C, 0x00, 1]))
    #expect(data[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID] == [CBUUID(string: "180D")])
    #expect(data[CBAdvertisementDataOverflowServiceUUIDsKey] as? [CBUUID] == [CBUUID(string: "1001")])
    #expect(data[CBAdvertisementDataSolicitedServiceUUIDsKey] as? [CBUUID] == [CBUUID(string: "1805")])
    #expect(data[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data] == [CBUUID(string: "180F"): Data([99])])
    #expect(data[CBAdvertisementDataTxPowerLevelKey] as? NSNumber == -4)
    #expect((data[CBAdvertisementDataIsConnectable] as? NSNumber)?.boolValue == true)
    #expect(data.count == 8)
    let other = lab.recorder.found[1]
    #expect(other.rssi == 127)
    #expect(other.peripheral.name == nil)
    #expect(other.data.keys.sorted() == [CBAdvertisementDataIsConnectable])
  }
  @Test(
    "S109: the app retains the peripheral, the manager does not; while it exists, it is the only one for its device")
  func peripheralsAreKeptByTheApp() {
    let lab = CentralLab()
    lab.manager.scanForPeripherals(withServices: nil)
    lab.recorder.keeps = false
    lab.deliver(.discovered(DiscoveredPeer(peer: lab.peer)))
    weak let gone = lab.recorder.found.first?.peripheral
    #expect(gone == nil)
    lab.recorder.keeps = true
    lab.deliver(.discovered(DiscoveredPeer(peer: lab.peer)), .discovered(DiscoveredPeer(peer: lab.peer)))
    #expect(lab.recorder.found.count == 2)
    #expect(lab.recorder.found[0].peripheral === lab.recorder.found[1].peripheral)
    #expect(lab.manager.retrievePeripherals(withIdentifiers: [lab.peer]).first === lab.recorder.found[0].peripheral)
  }
  @Test("S111: after stopScan nothing is discovered, not even what was received before")
  func stopScan() {
    let lab = CentralLab()
    lab.manager.scanForPeripherals(withServices: nil)
    lab.queue.suspend()
    lab.session.deliver(.discovered(DiscoveredPeer(peer: lab.peer)))
    lab.manager.stopScan()
    lab.queue.resume()
    lab.waitForQueue()
    #expect(lab.recorder.calls.isEmpty)
    #expect(!lab.manager.isScanning)
    #expect(lab.asked().last == .stopScan)
    lab.manager.scanForPeripherals(withServices: nil)
    lab.deliver(.scanFailed(BluetoothError(.controller, "The controller refuses.")))
    #expect(!lab.manager.isScanning)
  }

  // MARK: Retrieving

  @Test("Peripherals are retrieved by the identifiers of this machine alone")
  func retrieve() {
    let lab = CentralLab()
    let other = CentralLab.peer(0xC0FF_EE00_0001)
    let found = lab.manager.retrievePeripherals(withIdentifiers: [lab.peer, UUID(), other, lab.peer])
    #expect(found.map(\.identifier) == [lab.peer, other, lab.peer])
    #expect(found.first === found.last)
    #expect(lab.asked().isEmpty)
  }
  @Test("Connected peripherals are those of the machine that have one of the services")
  func retrieveConnected() {
    let lab = CentralLab()
    let other = CentralLab.peer(0xC0FF_EE00_0001)
    lab.deliver(
      .linkedPeers([
        LinkedPeer(peer: lab.peer, name: "Strap", services: ["180D", "180F"]), LinkedPeer(peer: other, services: []),
      ]))
    let found = lab.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180F")])
    #expect(found.map(\.identifier) == [lab.peer])
    #expect(found.first?.name == "Strap")
    #expect(found.first?.state == .disconnected)
    #expect(lab.manager.retrieveConnectedPeripherals(withServices: []).isEmpty)
    lab.deliver(.linkedPeers([]))
    #expect(lab.manager.retrieveConnectedPeripherals(withServices: [CBUUID(string: "180F")]).isEmpty)
  }
  @Test("Connection events come for devices and services that were registered for")
  func connectionEvents() {
    let lab = CentralLab()
    let other = CentralLab.peer(0xC0FF_EE00_0001)
    lab.deliver(.linkedPeers([LinkedPeer(peer: lab.peer)]))
    lab.manager.registerForConnectionEvents(options: [.serviceUUIDs: [CBUUID(string: "180D")]])
    lab.deliver(
      .linkedPeers([LinkedPeer(peer: lab.peer), LinkedPeer(peer: other)]),
      .linkedPeers([LinkedPeer(peer: lab.peer), LinkedPeer(peer: other, services: ["180D"])]), .linkedPeers([]))
    #expect(lab.recorder.calls == ["peer connected", "peer disconnected"])
    #expect(lab.recorder.values as? [UUID] == [other, other])
  }

  // MARK: Released delegates and managers

  @Test("A released delegate is not called; a new one is, from the next event on")
  func delegateVanishes() {
    let lab = CentralLab()
    do {
      let short = CentralRecorder()
      lab.manager.delegate = short
      lab.deliver(.adapter(.poweredOff("It is off.")))
      #expect(short.calls == ["state"])
    }
    #expect(lab.manager.delegate == nil)
    lab.deliver(.adapter(.poweredOn))
    lab.manager.delegate = lab.recorder
    lab.deliver(.adapter(.poweredOff("It is off.")))
    #expect(lab.recorder.calls == ["state"])
  }
  @Test("Releasing a manager closes its session and drops waiting events; its peripherals become invalid")
  func managerVanishes() throws {
    let lab = CentralLab()
    let (peripheral, service, characteristics) = try lab.explored()
    peripheral.readValue(for: characteristics[1])
    let id = try #require(lab.asked().last?.operation)
    lab.queue.suspend()
    lab.session.deliver(.completed(id, .success(.value(Data([1])))))
    lab.letManagerGo()
    #expect(lab.session.isClosed)
    lab.queue.resume()
    lab.deliver(.connected(lab.peer, name: nil, longestWrite: 20))
    #expect(lab.recorder.calls.isEmpty)
    #expect(peripheral.state == .disconnected)
    #expect(peripheral.services == nil)
    #expect(service.peripheral === peripheral)
    peripheral.readValue(for: characteristics[1])
    peripheral.discoverServices(nil)
    peripheral.writeValue(Data([1]), for: characteristics[2], type: .withoutResponse)
    #expect(!peripheral.canSendWriteWithoutResponse)
    lab.waitForQueue()
    #expect(lab.recorder.calls.isEmpty && lab.asked().isEmpty)
  }
  @Test("A manager released in its delegate's call makes no further call")
  func managerVanishesInACall() {
    let lab = CentralLab(nil)
    lab.recorder.then["state"] = { lab.letManagerGo() }
    lab.queue.suspend()
    for state in [AdapterState.poweredOn, .poweredOff("It is off."), .poweredOn] {
      lab.session.deliver(.adapter(state))
    }
    lab.queue.resume()
    lab.waitForQueue()
    #expect(lab.session.isClosed)
    #expect(lab.recorder.calls == ["state"])
  }
  @Test("Delegate methods may call everything")
  func reentrant() {
    let lab = CentralLab()
    lab.recorder.then["discover"] = {
      guard let peripheral = lab.recorder.found.last?.peripheral else { return }
      lab.manager.stopScan()
      lab.manager.connect(peripheral)
      lab.manager.cancelPeripheralConnection(peripheral)
      lab.manager.delegate = lab.manager.delegate
      _ = (lab.manager.isScanning, peripheral.state, peripheral.description, lab.manager.state)
    }
    lab.manager.scanForPeripherals(withServices: nil)
    lab.deliver(
      .discovered(DiscoveredPeer(peer: lab.peer)), .disconnected(lab.peer, nil, isReconnecting: false, seconds: 1))
    #expect(lab.recorder.calls == ["discover", "disconnect"])
    #expect(lab.asked().count == 4)
  }
  @Test("Many events cost few turns of the queue, and keep their order")
  func batches() {
    let lab = CentralLab()
    lab.manager.scanForPeripherals(withServices: nil)
    lab.queue.suspend()
    for rssi in 0..<1000 { lab.session.deliver(.discovered(DiscoveredPeer(peer: lab.peer, rssi: -rssi % 100))) }
    lab.queue.resume()
    lab.queue.sync {}  // one turn
    #expect(lab.recorder.found.map(\.rssi.intValue) == (0..<1000).map { -$0 % 100 })
  }
  @Test("The order holds on a concurrent queue, one call at a time", .realTime, .hang)
  func concurrentQueue() throws {
    final class Delegate: NSObject, CBCentralManagerDelegate, @unchecked Sendable {
      let lock = NSLock()
      var isIn = false
      var found: [Int] = []
      let all = DispatchSemaphore(value: 0)
      func centralManagerDidUpdateState(_ central: CBCentralManager) { all.signal() }
      func centralManager(
        _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
        rssi RSSI: NSNumber
      ) {
        #expect(
          lock.withLock { () -> Bool in
            defer { isIn = true }
            return !isIn
          })
        lock.withLock { found.append(-RSSI.intValue) }
        if RSSI.intValue == -999 { all.signal() }
        lock.withLock { isIn = false }
      }
    }
    let delegate = Delegate()
    var session: ScriptedSession?
    let manager = CBCentralManager(delegate: delegate, queue: .global()) { events in
      let made = ScriptedSession(events)
      session = made
      return made
    }
    let script = try #require(session)
    script.deliver(.adapter(.poweredOn))
    #expect(delegate.all.wait(timeout: .now() + Hang.seconds) == .success)
    manager.scanForPeripherals(withServices: nil)
    for rssi in 0..<1000 { script.deliver(.discovered(DiscoveredPeer(peer: CentralLab.peer(), rssi: -rssi))) }
    #expect(delegate.all.wait(timeout: .now() + Hang.seconds) == .success)
    #expect(delegate.lock.withLock { delegate.found } == Array(0..<1000))
  }
  @Test(
    "Eight threads request, connect, cancel and release while events come: nothing is lost, and nothing waits forever")
  func threads() throws {
    let lab = CentralLab()
    let (peripheral, service, characteristics) = try lab.explored()
    let others = (1...4).map { CentralLab.peer(0xC0FF_EE00_0000 + UInt64($0)) }
    DispatchQueue.concurrentPerform(iterations: 8) { thread in
      for turn in 0..<200 {
        switch (thread, turn % 4) {
        case (0, _): lab.session.deliver(.values(lab.peer, 0x12, [Data([UInt8(turn)])]))
        case (1, _): peripheral.readValue(for: characteristics[1])
        case (2, _):
          _ = (peripheral.services, service.characteristics, characteristics[0].value, characteristics[0].isNotifying)
          _ = (peripheral.state, peripheral.name, peripheral.description, service.peripheral, lab.manager.isScanning)
        case (3, 0): lab.manager.scanForPeripherals(withServices: nil)
        case (3, _):
          lab.session.deliver(.discovered(DiscoveredPeer(peer: others[turn % 4], name: "\(turn)", rssi: -turn)))
        case (4, 0): lab.session.deliver(.nameChanged(lab.peer, "\(turn)"))
        case (4, _): peripheral.delegate = turn % 4 == 1 ? nil : lab.recorder
        default:
          // Retrieved and released each time, which cancels its connection.
          guard let other = lab.manager.retrievePeripherals(withIdentifiers: [others[thread % 4]]).first else {
            continue
          }
          lab.manager.connect(other)
          lab.session.deliver(.connected(other.identifier, name: nil, longestWrite: 20))
          other.discoverServices(nil)
          if turn % 4 == 0 { lab.manager.cancelPeripheralConnection(other) }
          lab.session.deliver(.disconnected(other.identifier, nil, isReconnecting: false, seconds: 0))
        }
      }
    }
    lab.waitForQueue()
    let asked = lab.asked()
    #expect(asked.count { if case .read = $0 { true } else { false } } == 200)
    #expect(Set(asked.compactMap(\.operation)).count == asked.compactMap(\.operation).count)
    lab.letManagerGo()
    #expect(lab.session.isClosed)
  }
}
