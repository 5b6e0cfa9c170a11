// The facade from several threads: properties are read, delegates swapped, requests made and managers released while
// the session delivers values and ends. `../run` compiles it, and the facade, under ThreadSanitizer. Status 1: an
// invariant is violated.
import BindruneBroker
@testable import CoreBluetooth

/// An adapter with one device that answers everything on a thread of its own.
final class Script: BrokerSession, @unchecked Sendable {
  // Sendable: everything runs on `air`.
  private let air = DispatchQueue(label: "air")
  private let events: EventQueue
  private var next: UInt32 = 0

  init(events: EventQueue) {
    self.events = events
    air.async { events.put([.adapter(.poweredOn)]) }
  }
  private func deliver(_ event: BrokerEvent) { events.put([event]) }
  static let peer = UUID(PeerID(PeerAddress(DeviceAddress(0xC000_0000_0001), .random)))
  static let value = AttributeHandle(rawValue: 3)
  func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort? { nil }
  func close() {}
  func send(_ request: BrokerRequest) {
    air.async {
      switch request {
      case .central(let request): self.answer(request)
      case .peripheral(let request): self.answer(request)
      }
    }
  }

  private func answer(_ request: BrokerRequest.Central) {
    let peer = Self.peer
    func complete(_ id: OperationID, _ answer: BrokerAnswer) { deliver(.completed(id, .success(answer))) }
    switch request {
    case .scan: for rssi in -90 ..< -40 { deliver(.discovered(DiscoveredPeer(peer: peer, name: "Rune", rssi: rssi))) }
    case .connect: deliver(.connected(peer, name: "Rune", longestWrite: 244))
    case .cancelConnection: deliver(.disconnected(peer, nil, isReconnecting: false, seconds: 0))
    case .readRSSI(let id, _): complete(id, .rssi(-40))
    case .discoverServices(let id, _, _):
      complete(
        id,
        .services([
          FoundService(
            handle: AttributeHandle(rawValue: 1), endHandle: AttributeHandle(rawValue: 9), uuid: "180D", isPrimary: true
          )
        ]))
    case .discoverCharacteristics(let id, _, _, _):
      complete(
        id, .characteristics([FoundCharacteristic(handle: Self.value, uuid: "2A37", properties: [.read, .notify])]))
    case .read(let id, _, _): complete(id, .value(Data([0])))
    case .setNotifying(let id, _, _, let isOn):
      complete(id, .notifying(isOn))
      if isOn { for _ in 0..<5 { air.async { self.notify() } } }
    case .stopScan, .discoverIncludedServices, .discoverDescriptors, .write, .openChannel: break
    }
  }
  private func answer(_ request: BrokerRequest.Peripheral) {
    let peer = Self.peer
    func complete(_ id: OperationID, _ answer: BrokerAnswer) { deliver(.completed(id, .success(answer))) }
    switch request {
    case .addService(let id, let service):
      complete(
        id,
        .published(
          PublishedService(
            handle: AttributeHandle(rawValue: 1),
            characteristics: service.characteristics.map { _ in .init(value: Self.value) })))
      deliver(.subscribed(peer, Self.value, longestUpdate: 100))
    case .startAdvertising(let id, _, _): complete(id, .done)
    default: break
    }
  }
  private func notify() {
    for _ in 0..<100 {
      next += 1
      deliver(.values(Self.peer, Self.value, [withUnsafeBytes(of: next) { Data($0) }]))
    }
  }
}

/// Makes the next request at each result, and checks the order of values.
final class Client: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, CBPeripheralManagerDelegate,
  @unchecked Sendable
{
  // Sendable: variables are used on the manager's queue, and after `isDone`; `found` under the lock.
  private(set) var last: UInt32 = 0
  private(set) var faults: [String] = []
  private let lock = Foundation.NSLock()  // not the module's, which `run` exchanges
  private var kept: CBPeripheral?
  private(set) var found: CBPeripheral? {
    get { lock.withLock { kept } }
    set { lock.withLock { kept = newValue } }
  }
  let count: UInt32
  let isDone = DispatchSemaphore(value: 0), isEchoed = DispatchSemaphore(value: 0)
  init(count: UInt32) { self.count = count }

  func centralManagerDidUpdateState(_ central: CBCentralManager) { central.scanForPeripherals(withServices: nil) }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi: NSNumber
  ) {
    guard found == nil else { return }
    found = peripheral
    peripheral.delegate = self
    central.connect(peripheral)
  }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    peripheral.discoverServices(nil)
    // The first that an adapter chooses.
    peripheral.openL2CAPChannel(0x80)
  }
  func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
    guard let channel else { return }
    let ends = Ends(channel), octets = (0..<20_000).map { UInt8(truncatingIfNeeded: $0) }
    onThread(ends) { _ = $0.write(octets) }
    onThread(ends) { [self] ends in
      var came: [UInt8] = []
      while came.count < octets.count, let next = ends.read() { came += next }
      if came == octets { isEchoed.signal() }
    }
  }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) { isDone.signal() }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
  }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
  ) {
    for characteristic in service.characteristics ?? [] { peripheral.setNotifyValue(true, for: characteristic) }
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    guard let value = characteristic.value, value.count == 4 else { return }
    let number = value.reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
    if number != last + 1 { faults.append("value \(number) after \(last)") }
    last = number
    if number == count { isDone.signal() }
  }
  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {}
}

/// The changes that an observer of a flag got.
final class Changes: @unchecked Sendable {
  // Sendable: the lock.
  private let lock = Foundation.NSLock()  // not the module's, which `run` exchanges
  private var count = 0
  /// How often it became true more than false.
  var balance: Int { lock.withLock { count } }
  func add(_ old: Bool?, _ new: Bool?) {
    if let old, let new, old != new { lock.withLock { count += new ? 1 : -1 } }
  }
}

func threads(_ count: Int, _ body: @escaping @Sendable (Int) -> Void) {
  DispatchQueue.concurrentPerform(iterations: count, execute: body)
}

@main struct Main {
  static func main() {
    var faults: [String] = []
    let client = Client(count: 500)
    let manager = CBCentralManager(delegate: client, queue: DispatchQueue(label: "client")) { Script(events: $0) }
    let other = CBCentralManager(delegate: nil, queue: DispatchQueue(label: "other")) { Script(events: $0) }
    let changes = Changes()
    let observation = other.observe(\.isScanning, options: [.old, .new]) { _, change in
      changes.add(change.oldValue, change.newValue)
    }
    threads(6) { thread in
      var short: Client?, gone: CBCentralManager?
      defer { withExtendedLifetime((short, gone)) {} }
      for turn in 0..<400 {
        let peripheral = manager.retrievePeripherals(withIdentifiers: [Script.peer]).first
        _ = (manager.state, manager.isScanning, manager.delegate != nil, peripheral?.name, peripheral?.state)
        _ = (peripheral?.canSendWriteWithoutResponse, peripheral?.maximumWriteValueLength(for: .withoutResponse))
        for characteristic in peripheral?.services?.first?.characteristics ?? [] {
          _ = (characteristic.value, characteristic.isNotifying, characteristic.descriptors, characteristic.service)
          if thread == 0 { peripheral?.readValue(for: characteristic) }
        }
        if thread == 1, turn % 50 == 0 { peripheral?.readRSSI() }
        if thread == 2 { other.delegate = turn.isMultiple(of: 2) ? client : nil }
        if thread == 3 { other.stopScan() }
        if thread == 5 { other.scanForPeripherals(withServices: nil) }
        if thread > 3, let peripheral {
          let observation = peripheral.observe(\.state, options: [.initial, .new]) { peripheral, _ in
            _ = peripheral.name
          }
          if turn.isMultiple(of: 2) { observation.invalidate() }
        }
        // Managers released with operations in flight.
        if thread == 4, turn % 10 == 0 {
          short = Client(count: .max)
          gone = CBCentralManager(delegate: short, queue: DispatchQueue(label: "gone")) { Script(events: $0) }
        }
      }
    }
    if client.isDone.wait(timeout: .now() + 60) == .timedOut {
      faults.append("\(client.last) of \(client.count) values")
    }
    for peripheral in manager.retrievePeripherals(withIdentifiers: [Script.peer]) {
      manager.cancelPeripheralConnection(peripheral)
    }
    if client.isDone.wait(timeout: .now() + 60) == .timedOut { faults.append("the end was not reported") }
    faults += client.faults
    if changes.balance != (other.isScanning ? 1 : 0) {
      faults.append("\(changes.balance) more beginnings than ends of scans")
    }
    observation.invalidate()
    faults += serve()
    faults += overTheAir()
    faults += overTheAir(daemon: "/tmp/bindrune-threads-\(getpid()).socket")
    for fault in faults { print(fault) }
    exit(faults.isEmpty ? 0 : 1)
  }

  /// The other role: values are updated and services added while centrals come.
  static func serve() -> [String] {
    let client = Client(count: 0), queue = DispatchQueue(label: "server")
    let manager = CBPeripheralManager(delegate: client, queue: queue) { Script(events: $0) }
    while manager.state != .poweredOn { queue.sync {} }
    let value = CBMutableCharacteristic(type: CBUUID(string: "2A37"), properties: .notify, value: nil, permissions: [])
    let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
    service.characteristics = [value]
    manager.add(service)
    threads(4) { thread in
      for _ in 0..<400 {
        _ = (manager.state, manager.isAdvertising, value.subscribedCentrals?.first?.maximumUpdateValueLength)
        if thread == 0 { _ = manager.updateValue(Data([1]), for: value, onSubscribedCentrals: nil) }
        if thread == 1 { manager.startAdvertising(nil) } else if thread == 2 { manager.stopAdvertising() }
        if thread == 3 { manager.delegate = client }
      }
    }
    queue.sync {}
    return []
  }
}
