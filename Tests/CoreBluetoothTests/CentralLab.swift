// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
import BindruneBroker
import Foundation
import TestSupport

@testable import Bindrune
@testable import CoreBluetooth

/// The other end of a manager's session: records its requests, and delivers the test's events.
final class ScriptedSession: BrokerSession, @unchecked Sendable {
  // Sendable: the lock.
  private let lock = NSLock()
  private var log: [BrokerRequest.Central] = []
  private var closed = false
  private var ports: [UUID: SendPort] = [:]
  private let events: EventQueue
  init(_ events: EventQueue) { self.events = events }

  func send(_ request: BrokerRequest) {
    guard case .central(let request) = request else {
      preconditionFailure("a central manager asks a central's requests")
    }
    lock.withLock { log.append(request) }
  }
  func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort? {
    lock.withLock { kind == .command ? ports[peer] : nil }
  }
  func close() { lock.withLock { closed = true } }

  func deliver(_ event: BrokerEvent) { events.put([event]) }
  /// Requests since the last call.
  func asked() -> [BrokerRequest.Central] {
    lock.withLock {
      defer { log = [] }
      return log
    }
  }
  var isClosed: Bool { lock.withLock { closed } }
  func open(_ port: SendPort, to peer: UUID) { lock.withLock { ports[peer] = port } }
}

/// Records every call of a delegate by the name of its method; a test acts within a call by `then`.
final class CentralRecorder: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
  // Sendable: used on the lab's queue, or after `waitForQueue`.
  var calls: [String] = []
  var errors: [(any Error)?] = []
  var found: [(peripheral: CBPeripheral, data: [String: Any], rssi: NSNumber)] = []
  var invalidated: [CBService] = []
  var rssi: [NSNumber] = []
  var ends: [(timestamp: CFAbsoluteTime, isReconnecting: Bool)] = []
  /// The properties at each call.
  var values: [Any?] = []
  var then: [String: () -> Void] = [:]
  /// Peripherals are kept only if this is set.
  var keeps = true

  private func call(_ name: String, _ error: (any Error)? = nil, _ value: Any? = nil) {
    calls.append(name)
    errors.append(error)
    values.append(value)
    then[name]?()
  }
  /// Everything since the last call.
  func take() -> [String] {
    defer { (calls, errors, values) = ([], [], []) }
    return calls
  }

  func centralManagerDidUpdateState(_ central: CBCentralManager) { call("state", nil, central.state) }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi RSSI: NSNumber
  ) {
    if keeps { found.append((peripheral, advertisementData, RSSI)) }
    call("discover", nil, peripheral.name)
  }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    call("connect", nil, peripheral.state)
  }
  func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?) {
    call("fail", error, peripheral.state)
  }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
    isReconnecting: Bool, error: (any Error)?
  ) {
    ends.append((timestamp, isReconnecting))
    call("disconnect", error, peripheral.services)
  }
  func centralManager(
    _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
  ) {
    call(event == .peerConnected ? "peer connected" : "peer disconnected", nil, peripheral.identifier)
  }

  func peripheralDidUpdateName(_ peripheral: CBPeripheral) { call("name", nil, peripheral.name) }
  func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) {
    invalidated += invalidatedServices
    call("modify", nil, peripheral.services)
  }
  func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?) {
    rssi.append(RSSI)
    call("rssi", error, RSSI)
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    call("services", error, peripheral.services)
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?) {
    call("included", error, service.includedServices)
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?) {
    call("characteristics", error, service.characteristics)
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    call("value", error, characteristic.value)
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    call("write", error)
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    call("notify", error, characteristic.isNotifying)
  }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    call("descriptors", error, characteristic.descriptors)
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
    call("descriptor value", error, descriptor.value)
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?) {
    call("descriptor write", error)
  }
  func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) {
    call("ready", nil, peripheral.canSendWriteWithoutResponse)
  }
  func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
    call("channel", error, channel)
  }
}

/// A manager over a script, on a queue of its own. `waitForQueue` returns when the queue is empty.
final class CentralLab: @unchecked Sendable {
  // Sendable: used by one thread of the test, and by the queue that it waits for.
  let queue = DispatchQueue(label: "central")
  let recorder = CentralRecorder()
  private(set) var session: ScriptedSession!
  private(set) var manager: CBCentralManager!

  /// `state` nil: no state has been delivered yet.
  init(_ state: AdapterState? = .poweredOn, options: [String: Any]? = nil) {
    manager = CBCentralManager(delegate: recorder, queue: queue, options: options) { [unowned self] events in
      session = ScriptedSession(events)
      return session
    }
    manager.delivery.waitForBegin()
    if let state {
      deliver(.adapter(.unknown), .adapter(state))
      _ = (recorder.take(), asked())
    }
  }
  func deliver(_ events: BrokerEvent...) {
    for event in events { session.deliver(event) }
    waitForQueue()
  }
  /// A call may cause another turn of the queue, and that one more.
  func waitForQueue() { for _ in 0..<4 { queue.sync {} } }
  func asked() -> [BrokerRequest.Central] { session.asked() }
  func letManagerGo() { manager = nil }

  static func peer(_ number: UInt64 = 0xF0F1_F2F3_F4F5) -> UUID {
    UUID(PeerID(PeerAddress(DeviceAddress(number), .random)))
  }
  let peer = CentralLab.peer()

  /// A connected peripheral; the recorder is its delegate.
  func connected(_ peer: UUID? = nil, longestWrite: Int = 20) throws -> CBPeripheral {
    let peer = peer ?? self.peer
    guard let peripheral = manager.retrievePeripherals(withIdentifiers: [peer]).first else { throw CBError(.unknown) }
    manager.connect(peripheral)
    deliver(.connected(peer, name: "Thermostat", longestWrite: longestWrite))
    peripheral.delegate = recorder
    _ = (recorder.take(), asked())
    return peripheral
  }
  /// Answers the last request with `answer`, and returns the request.
  @discardableResult
  func answer(_ answer: BrokerAnswer) -> [BrokerRequest.Central] { complete(.success(answer)) }
  @discardableResult
  func complete(_ result: Result<BrokerAnswer, BluetoothError>) -> [BrokerRequest.Central] {
    let asked = asked()
    if let id = asked.last?.operation { deliver(.completed(id, result)) }
    return asked
  }

  static let heartRate = FoundService(handle: 0x10, endHandle: 0x1F, uuid: "180D", isPrimary: true)
  static let battery = FoundService(handle: 0x20, endHandle: 0x2F, uuid: "180F", isPrimary: true)
  static let measurement = FoundCharacteristic(handle: 0x12, uuid: "2A37", properties: [.notify])
  static let location = FoundCharacteristic(handle: 0x15, uuid: "2A38", properties: [.read])
  static let control = FoundCharacteristic(handle: 0x17, uuid: "2A39", properties: [.write, .writeWithoutResponse])

  /// A connected peripheral whose heart rate service is discovered.
  func explored() throws -> (CBPeripheral, CBService, [CBCharacteristic]) {
    let peripheral = try connected()
    peripheral.discoverServices(nil)
    answer(.services([Self.heartRate, Self.battery]))
    guard let service = peripheral.services?.first else { throw CBError(.unknown) }
    peripheral.discoverCharacteristics(nil, for: service)
    answer(.characteristics([Self.measurement, Self.location, Self.control]))
    _ = recorder.take()
    return (peripheral, service, service.characteristics ?? [])
  }
}

extension BrokerRequest.Central {
  var operation: OperationID? {
    switch self {
    case .readRSSI(let id, _), .discoverServices(let id, _, _), .discoverIncludedServices(let id, _, _, _),
      .discoverCharacteristics(let id, _, _, _), .discoverDescriptors(let id, _, _), .read(let id, _, _),
      .write(let id, _, _, _), .setNotifying(let id, _, _, _), .openChannel(let id, _, _):
      id
    default: nil
    }
  }
}

extension Delivery {
  /// Blocks the queue: later events are delivered in the turns that follow.
  func waitForBegin() {
    let end = ContinuousClock.now + .seconds(30)
    while !hasBegun, ContinuousClock.now < end { usleep(200) }
  }
}

/// Lines of the log that name an object.
final class LogLines: @unchecked Sendable {
  // Sendable: the lock.
  private let lock = NSLock()
  private var lines: [String] = []
  init() {
    Log.shared.listen { [weak self] line in self?.lock.withLock { self?.lines.append(line) } }
  }
  func of(_ object: AnyObject) -> [String] { lock.withLock { lines.filter { $0.contains(Log.name(object)) } } }
}

extension AttributeHandle: ExpressibleByIntegerLiteral {
  public init(integerLiteral value: UInt16) { self.init(rawValue: value) }
}
