import Foundation
import NIOPosix
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker
@testable import CoreBluetooth

/// A device that an app updates: it records writes, and answers each read of `status` after updates of `progress`.
private final class Device: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue, and the test reads when that is quiet.
  let control = CBMutableCharacteristic(
    type: CBUUID(string: "FF01"), properties: [.read, .write, .writeWithoutResponse], value: nil,
    permissions: [.readable, .writeable])
  let progress = CBMutableCharacteristic(
    type: CBUUID(string: "FF02"), properties: .notify, value: nil, permissions: .readable)
  private(set) var written: [Int] = []
  private(set) var sent: [Int] = []
  private var next = 0, chance: SplitMix64
  init(seed: UInt64) { chance = SplitMix64(seed: seed) }

  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    guard peripheral.state == .poweredOn else { return }
    let service = CBMutableService(type: CBUUID(string: "FF00"), primary: true)
    service.characteristics = [control, progress]
    peripheral.add(service)
    peripheral.startAdvertising([CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "FF00")]])
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    for request in requests { written.append(Int(request.value?.prefix(2)) ?? -1) }
    // Updates before the answer and after it: the client gets them in this order.
    update(peripheral)
    peripheral.respond(to: requests[0], withResult: .success)
    update(peripheral)
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    update(peripheral)
    next += 1
    request.value = Data(next)
    peripheral.respond(to: request, withResult: .success)
    sent.append(next)
    update(peripheral)
  }
  private func update(_ peripheral: CBPeripheralManager) {
    for _ in 0..<Int.random(in: 0..<4, using: &chance) {
      guard peripheral.updateValue(Data(next + 1), for: progress, onSubscribedCentrals: nil) else { return }
      next += 1
      sent.append(next)
    }
  }
}

/// An updater: values without response as long as they are accepted, writes with one, and reads, at random.
private final class Updater: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue, and the test reads when that is quiet.
  let end: AsyncStream<Void>
  private let ended: AsyncStream<Void>.Continuation
  private(set) var wrote: [Int] = []
  private(set) var received: [Int] = []
  private var peripheral: CBPeripheral?, control: CBCharacteristic?
  private var chance: SplitMix64, number = 0, unanswered = 0
  private let count = 1_000
  init(seed: UInt64) {
    chance = SplitMix64(seed: seed)
    (end, ended) = AsyncStream.makeStream(of: Void.self)
  }

  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    if central.state == .poweredOn { central.scanForPeripherals(withServices: [CBUUID(string: "FF00")]) }
  }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any], rssi: NSNumber
  ) {
    if self.peripheral != nil { return }
    self.peripheral = peripheral
    central.stopScan()
    central.connect(peripheral)
  }
  func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?) {
    Issue.record("not connected: \(error as Any)")
    ended.finish()
  }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) {
    Issue.record("disconnected: \(error as Any), \(unanswered) of \(number) wait")
    ended.finish()
  }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    peripheral.delegate = self
    peripheral.discoverServices([CBUUID(string: "FF00")])
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    for service in peripheral.services ?? [] { peripheral.discoverCharacteristics(nil, for: service) }
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?) {
    control = service.characteristics?.first
    for characteristic in service.characteristics ?? [] where characteristic.properties.contains(.notify) {
      peripheral.setNotifyValue(true, for: characteristic)
    }
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    write(peripheral)
  }
  func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) { write(peripheral) }
  private func write(_ peripheral: CBPeripheral) {
    guard let control else { return }
    while number < count, unanswered < 100 {
      switch Int.random(in: 0..<10, using: &chance) {
      case 0:
        number += 1
        unanswered += 1
        wrote.append(number)
        peripheral.writeValue(Data(number), for: control, type: .withResponse)
      case 1:
        unanswered += 1
        peripheral.readValue(for: control)
      default:
        guard peripheral.canSendWriteWithoutResponse else { return }
        number += 1
        wrote.append(number)
        let filling = Data(repeating: 0, count: Int.random(in: 0..<200, using: &chance))
        peripheral.writeValue(Data(number) + filling, for: control, type: .withoutResponse)
      }
    }
    if number == count, unanswered == 0 { ended.finish() }
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    #expect(error == nil)
    unanswered -= 1
    write(peripheral)
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    #expect(error == nil)
    received.append(Int(characteristic.value?.prefix(2)) ?? -1)
    guard characteristic === control else { return }
    unanswered -= 1
    write(peripheral)
  }
}
extension Data {
  fileprivate init(_ number: Int) { self.init([UInt8(number >> 8), UInt8(number & 0xFF)]) }
}
extension Int {
  fileprivate init?(_ octets: Data?) {
    guard let octets, octets.count == 2 else { return nil }
    self = octets.reduce(0) { $0 << 8 | Int($1) }
  }
}

/// An app's order, in both roles, from one program's calls to the other's over a simulated radio.
@Suite(.virtualTime, .hang) struct OrderTests {
  @Test(arguments: UInt64(1)...5) func aSeededMix(seed: UInt64) async throws {
    let loop = VirtualLoop.current, radio = SimulatedRadio(on: loop, configuration: .ideal)
    func adapter() -> BindruneBroker.Adapter {
      BindruneBroker.Adapter(on: radio.eventLoop) { _ async throws(TransportError) in radio.controller() }
    }
    let device = Device(seed: seed), updater = Updater(seed: seed), queue = DispatchQueue(label: "updater")
    let serving = DispatchQueue(label: "device")
    for queue in [queue, serving] { loop.follow(queue) }
    let peripheral = CBPeripheralManager(delegate: device, queue: serving) {
      DirectSession(on: adapter(), events: $0)
    }
    let central = CBCentralManager(delegate: updater, queue: queue) { DirectSession(on: adapter(), events: $0) }
    for await _ in updater.end {}
    // The writes arrived in the order of the calls: the last one had a response, or a request after it did.
    let (wrote, received) = queue.sync { (updater.wrote, updater.received) }
    let (written, sent) = serving.sync { (device.written, device.sent) }
    #expect(
      written == Array(wrote.prefix(written.count)) && wrote.count - written.count < 60,
      "seed \(seed): \(written.count) of \(wrote.count) written")
    #expect(
      received == Array(sent.prefix(received.count)) && received.count > 100,
      "seed \(seed): \(received.count) of \(sent.count) received")
    withExtendedLifetime((peripheral, central)) {}
  }
}
