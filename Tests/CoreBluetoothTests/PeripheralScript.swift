import BindruneBroker
import BindruneWire
import CoreBluetooth
import Foundation
import BindruneGAP
import Testing

@testable import Bindrune
@testable import CoreBluetooth

/// A session that the test controls, and that records the manager's requests: the scripted peer of the facade.
final class PeripheralSession: BrokerSession, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock.
  private let lock = NSLock()
  private var sent: [BrokerRequest.Peripheral] = []
  private var ports: [UUID: SendPort] = [:]
  private var closed = false
  private let events: EventQueue

  init(_ events: EventQueue) {
    self.events = events
    events.put([.adapter(.unknown)])
  }
  /// Before a request is noted: sets the time at which another thread does something.
  var onSend: ((BrokerRequest.Peripheral) -> Void)?
  func send(_ request: BrokerRequest) {
    guard case .peripheral(let request) = request else {
      preconditionFailure("a peripheral manager asks a peripheral's requests")
    }
    onSend?(request)
    lock.withLock { sent.append(request) }
  }
  func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort? { lock.withLock { ports[peer] } }
  func close() { lock.withLock { closed = true } }

  func deliver(_ event: BrokerEvent) { events.put([event]) }
  func setPort(_ port: SendPort?, of peer: UUID) { lock.withLock { ports[peer] = port } }
  var isClosed: Bool { lock.withLock { closed } }
  /// The manager's requests since the last call.
  func takeRequests() -> [BrokerRequest.Peripheral] {
    lock.withLock {
      defer { sent = [] }
      return sent
    }
  }
}

/// Records every call as text, and runs the test's actions in some of them.
final class PeripheralDelegate: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
  // Sendable: what changes is guarded by the lock.
  private let lock = NSLock()
  private var calls: [String] = []
  private var requests: [CBATTRequest] = []
  private var centralsSeen: [CBCentral] = []
  var onCall: ((CBPeripheralManager, String) -> Void)?
  /// The action for a read request; nil: the delegate keeps the request.
  var onRead: ((CBPeripheralManager, CBATTRequest) -> Void)?
  var onWrite: ((CBPeripheralManager, [CBATTRequest]) -> Void)?

  private func note(_ peripheral: CBPeripheralManager, _ call: String) {
    lock.withLock { calls.append(call) }
    onCall?(peripheral, call)
  }
  /// The calls since the last call of this.
  func takeCalls() -> [String] {
    lock.withLock {
      defer { calls = [] }
      return calls
    }
  }
  func takeRequests() -> [CBATTRequest] {
    lock.withLock {
      defer { requests = [] }
      return requests
    }
  }
  var centrals: [CBCentral] { lock.withLock { centralsSeen } }

  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    note(peripheral, "state \(peripheral.state.rawValue)")
  }
  func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
    note(peripheral, "advertising \(word(error)) \(peripheral.isAdvertising)")
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    note(peripheral, "added \(service.uuid.uuidString) \(word(error))")
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) {
    lock.withLock { centralsSeen.append(central) }
    let count = (characteristic as? CBMutableCharacteristic)?.subscribedCentrals?.count ?? -1
    note(peripheral, "subscribed \(characteristic.uuid.uuidString) \(count)")
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) {
    let count = (characteristic as? CBMutableCharacteristic)?.subscribedCentrals?.count ?? -1
    note(peripheral, "unsubscribed \(characteristic.uuid.uuidString) \(count)")
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    note(peripheral, "read \(request.characteristic.uuid.uuidString) \(request.offset) \(request.value == nil)")
    if let onRead { onRead(peripheral, request) } else { lock.withLock { requests.append(request) } }
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    let words = requests.map { "\($0.characteristic.uuid.uuidString) \($0.offset) \([UInt8]($0.value ?? Data()))" }
    note(peripheral, "write " + words.joined(separator: ", "))
    if let onWrite { onWrite(peripheral, requests) } else { lock.withLock { self.requests += requests } }
  }
  func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) { note(peripheral, "ready") }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) {
    note(peripheral, "channel published \(psm) \(word(error))")
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) {
    note(peripheral, "channel unpublished \(psm) \(word(error))")
  }
}

/// The number of a `CBError`; `ok` for none.
func word(_ error: (any Error)?) -> String {
  guard let error else { return "ok" }
  return (error as? CBError).map { "CBError \($0.code.rawValue)" } ?? "\(error)"
}

/// A manager over a scripted session, its delegate, and the lines that it has logged.
final class PeripheralScript: @unchecked Sendable {
  // Sendable: what changes is guarded by the lock.
  let delegate = PeripheralDelegate()
  let queue = DispatchQueue(label: "peripheral")
  private(set) var manager: CBPeripheralManager!
  private(set) var session: PeripheralSession!
  private let lock = NSLock()
  private var lines: [String] = []

  /// `state` nil: nothing is known yet.
  init(_ state: AdapterState? = .poweredOn, options: [String: Any]? = nil) {
    Log.shared.listen { [weak self] line in self?.lock.withLock { self?.lines.append(line) } }
    manager = CBPeripheralManager(delegate: delegate, queue: queue, options: options) { events in
      let session = PeripheralSession(events)
      self.session = session
      return session
    }
    manager.delivery.waitForBegin()
    if let state {
      deliver(.adapter(state))
      _ = delegate.takeCalls()
    }
  }
  /// Waits until all events, and their consequences, have been delivered.
  func waitForQueue() { for _ in 0..<8 { queue.sync {} } }
  func deliver(_ event: BrokerEvent) {
    session.deliver(event)
    waitForQueue()
  }
  /// Of this manager, or of `object`.
  func misuses(of object: AnyObject? = nil) -> [String] {
    let name = Log.name(object ?? manager)
    return lock.withLock { lines.filter { $0.contains(name) } }
  }
  func releaseManager() { manager = nil }
  func calls() -> [String] {
    waitForQueue()
    return delegate.takeCalls()
  }

  /// Publishes a service whose characteristics have the handles `first` + 2, then + 3 or + 4 each, as a server assigns
  /// them.
  func publish(_ service: CBMutableService, at first: UInt16) throws {
    manager.add(service)
    waitForQueue()
    let request = try #require(session.takeRequests().last)
    guard case .addService(let id, let description) = request else {
      throw Surprise("\(request)")
    }
    var handle = first
    var place = PublishedService(handle: AttributeHandle(rawValue: handle))
    for characteristic in description.characteristics {
      let value = AttributeHandle(rawValue: handle + 2)
      place.characteristics.append(.init(value: value))
      handle += 2 + (characteristic.properties.isDisjoint(with: [.notify, .indicate]) ? 0 : 1)
    }
    deliver(.completed(id, .success(.published(place))))
    #expect(calls().contains("added \(service.uuid.uuidString) ok"))
  }
  /// A central with a port of `capacity` octets that waits until the test sends.
  func connect(_ peer: UUID, capacity: Int = 1_000, mtu: Int = 185) -> SendPort {
    let port = SendPort(
      handle: nil, kind: .notification, capacity: capacity, mtu: mtu,
      onReady: { [session] in session?.deliver(.readyToUpdate(peer)) }, wake: { _ in })
    session.setPort(port, of: peer)
    return port
  }
}
struct Surprise: Error {
  let text: String
  init(_ text: String) { self.text = text }
}

extension SendPort {
  /// Sends the waiting values, at most `count`.
  func drain(_ count: Int = .max) -> [(handle: AttributeHandle, value: [UInt8])] {
    let longest = longestValue
    var sent: [(AttributeHandle, [UInt8])] = []
    while sent.count < count {
      var isSent = false
      let (_, isEdge) = sendNext(now: .zero) { value, handle in
        // Cut as the host cuts it.
        sent.append((handle, (0..<min(value.count, longest)).map { value[$0] }))
        isSent = true
        return true
      }
      if isEdge { tellReady() }
      if !isSent { break }
    }
    return sent
  }
}

func handle(_ number: UInt16) -> AttributeHandle { AttributeHandle(rawValue: number) }
