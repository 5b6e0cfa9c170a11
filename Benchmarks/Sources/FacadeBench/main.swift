// FacadeBench B8|B8.daemon|x.read|x.read.daemon WORKLOADS REPETITIONS BATCHES: notifications of 244 octets a second,
// from CBPeripheralManager.updateValue to CBPeripheralDelegate.peripheral(_:didUpdateValueFor:error:), by the wall
// clock.
//
// Both managers are in this process, each on a queue and an adapter of its own; their two virtual controllers are on
// one radio in memory, on which a packet takes no time. The figure includes everything between the two applications:
// the facade and the broker twice, two hosts, two controllers, the radio, and all thread switches. Each value begins
// with its number, and the delegate checks each: none may be missing, none out of order.
//
// x.read: reads of a published value instead, each begun by the delegate call of the one before: the time of one is its
// latency.
//
// B8.daemon, x.read.daemon: the same, and each manager reaches its adapter through bindruned's socket. The server is in
// this process too, so that the figure includes both ends of both sockets.
//
// The line printed is Bench's, so that measure.py reads both.
import Bindrune
import BindruneBroker
import CoreBluetooth
import NIOPosix

let length = 244
let service = CBUUID(string: "180D"), measurement = CBUUID(string: "2A37"), valueOfReads = CBUUID(string: "2A38")

func fail(_ reason: String) -> Never {
  print(reason)
  exit(1)
}

/// Sends values until there is no room, and continues when there is.
final class Sender: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
  // Sendable: everything runs on `queue`.
  let queue = DispatchQueue(label: "sender")
  let isAdvertising = DispatchSemaphore(value: 0), hasSubscriber = DispatchSemaphore(value: 0)
  private let characteristic = CBMutableCharacteristic(
    type: measurement, properties: .notify, value: nil, permissions: .readable)
  private var manager: CBPeripheralManager!
  private var value = Data(repeating: 7, count: length)
  /// The number of the next value, and of the one to stop at.
  private var number: UInt32 = 0, end: UInt32 = 0

  init(_ adapter: String) {
    super.init()
    manager = CBPeripheralManager(delegate: self, queue: queue, options: [CBManagerOptionAdapterKey: adapter])
  }
  func begin(_ count: Int) {
    queue.async {
      self.end &+= UInt32(count)
      self.send(with: self.manager)
    }
  }
  private func send(with manager: CBPeripheralManager) {
    var number = number
    while number != end {
      value.withUnsafeMutableBytes { $0.storeBytes(of: number.littleEndian, as: UInt32.self) }
      guard manager.updateValue(value, for: characteristic, onSubscribedCentrals: nil) else { break }
      number &+= 1
    }
    self.number = number
  }

  func peripheralManagerDidUpdateState(_ manager: CBPeripheralManager) {
    guard manager.state == .poweredOn else { return }
    let mutable = CBMutableService(type: service, primary: true)
    let published = CBMutableCharacteristic(
      type: valueOfReads, properties: .read, value: Data(repeating: 7, count: length), permissions: .readable)
    mutable.characteristics = [characteristic, published]
    manager.add(mutable)
  }
  func peripheralManager(_ manager: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    if let error { fail("\(error)") }
    manager.startAdvertising([CBAdvertisementDataServiceUUIDsKey: [service.uuid]])
  }
  func peripheralManagerDidStartAdvertising(_ manager: CBPeripheralManager, error: (any Error)?) {
    if let error { fail("\(error)") }
    isAdvertising.signal()
  }
  func peripheralManager(
    _ manager: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) {
    hasSubscriber.signal()
  }
  func peripheralManagerIsReady(toUpdateSubscribers manager: CBPeripheralManager) { send(with: manager) }
}

/// Finds the sender, subscribes, and checks the values.
final class Receiver: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
  // Sendable: everything runs on `queue`.
  let queue = DispatchQueue(label: "receiver")
  let isSubscribed = DispatchSemaphore(value: 0), hasAll = DispatchSemaphore(value: 0)
  private var manager: CBCentralManager!
  private var sender: CBPeripheral?
  private var location: CBCharacteristic?
  private let isReading: Bool
  private var progress = Progress()
  private struct Progress {
    /// The number of the next value, and of the one to stop at.
    var next: UInt32 = 0, end: UInt32 = 0
    /// The checksum of all values so far.
    var sum: UInt64 = 0
    /// False if it is not the next value, or incomplete.
    mutating func take(_ value: Data) -> Bool {
      let value = value.bytes
      guard value.byteCount == length, UInt32(littleEndian: value.unsafeLoadUnaligned(as: UInt32.self)) == next else {
        return false
      }
      next &+= 1
      sum &+= UInt64(length) &+ UInt64(value.unsafeLoad(fromByteOffset: length - 1, as: UInt8.self))
      return true
    }
    /// False if it is not whole.
    mutating func takeRead(_ value: Data) -> Bool {
      next &+= 1
      sum &+= UInt64(value.count) &+ UInt64(value.last ?? 0)
      return value.count == length
    }
  }

  init(_ adapter: String, isReading: Bool) {
    self.isReading = isReading
    super.init()
    manager = CBCentralManager(delegate: self, queue: queue, options: [CBManagerOptionAdapterKey: adapter])
  }
  func expect(_ count: Int) { queue.sync { progress.end &+= UInt32(count) } }
  /// As many reads as are expected, one at a time.
  func read() { queue.async { if let location = self.location { self.sender?.readValue(for: location) } } }
  var sum: UInt64 { queue.sync { progress.sum } }

  func centralManagerDidUpdateState(_ manager: CBCentralManager) {
    if manager.state == .poweredOn { manager.scanForPeripherals(withServices: [service]) }
  }
  func centralManager(
    _ manager: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any], rssi: NSNumber
  ) {
    manager.stopScan()
    sender = peripheral
    peripheral.delegate = self
    manager.connect(peripheral)
  }
  func centralManager(_ manager: CBCentralManager, didConnect peripheral: CBPeripheral) {
    peripheral.discoverServices([service])
  }
  func centralManager(_ manager: CBCentralManager, didDisconnectPeripheral: CBPeripheral, error: (any Error)?) {
    fail("the link went down: \(error.map { "\($0)" } ?? "")")
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    guard let found = peripheral.services?.first else { fail("no service: \(error.map { "\($0)" } ?? "")") }
    peripheral.discoverCharacteristics([measurement, valueOfReads], for: found)
  }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
  ) {
    let found = service.characteristics ?? []
    guard let notified = found.first(where: { $0.uuid == measurement }) else {
      fail("no characteristic: \(error.map { "\($0)" } ?? "")")
    }
    location = found.first { $0.uuid == valueOfReads }
    peripheral.setNotifyValue(true, for: notified)
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    if let error { fail("\(error)") }
    isSubscribed.signal()
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    guard let value = characteristic.value, isReading ? progress.takeRead(value) : progress.take(value) else {
      fail("value \(progress.next) is missing, or not whole")
    }
    if isReading, progress.next != progress.end { peripheral.readValue(for: characteristic) }
    if progress.next == progress.end { hasAll.signal() }
  }
}

/// Blocks this thread: an `await` here would end the main thread, which valgrind does not survive.
func blocking<Result: Sendable>(_ body: @escaping @Sendable () async -> Result) -> Result {
  nonisolated(unsafe) var result: Result?
  let isDone = DispatchSemaphore(value: 0)
  Task {
    result = await body()
    isDone.signal()
  }
  isDone.wait()
  return result!
}

let arguments = CommandLine.arguments
guard arguments.count == 5, ["B8", "B8.daemon", "x.read", "x.read.daemon"].contains(arguments[1]),
  let repetitions = Int(arguments[3]),
  let batches = Int(arguments[4])
else {
  fail("usage: FacadeBench B8|B8.daemon|x.read|x.read.daemon WORKLOADS REPETITIONS BATCHES")
}
let isReading = arguments[1].hasPrefix("x.read"), items = isReading ? 500 : 20_000
let loop = MultiThreadedEventLoopGroup.singleton.next()
let radio = SimulatedRadio(on: loop, configuration: .ideal)
for name in ["sender", "receiver"] {
  DirectSession.provideAdapter(named: name, on: loop) { _ in radio.controller() }
}
let isRemote = arguments[1].hasSuffix(".daemon")
var daemon: AppDaemon?
if isRemote {
  let path = "/tmp/bindrune-bench-\(getpid()).socket"
  setenv("BINDRUNE_SOCKET", path, 1)
  daemon = blocking { try! await AppDaemon(sharing: ["sender", "receiver"], at: path) }
}
// A name that the program provides is that adapter of its own.
let sender = Sender(isRemote ? "broker:sender" : "sender")
sender.isAdvertising.wait()
let receiver = Receiver(isRemote ? "broker:receiver" : "receiver", isReading: isReading)
receiver.isSubscribed.wait()
sender.hasSubscriber.wait()

/// Seconds until `count` values have been sent and received.
func exchange(_ count: Int) -> Double {
  receiver.expect(count)
  let start = ContinuousClock.now
  if isReading { receiver.read() } else { sender.begin(count) }
  receiver.hasAll.wait()
  return (ContinuousClock.now - start) / .seconds(1)
}

_ = exchange(items)  // until everything is warm
var times: [Double] = []
let before = receiver.sum
for _ in 0..<batches { times.append(exchange(repetitions * items) * 1e9 / Double(repetitions * items)) }
// The best batch: other processes and bad scheduling can only lower the figure.
let best = Int((times.min() ?? 0) * 10)
let check = (receiver.sum - before) / UInt64(repetitions * batches)
if let daemon { blocking { await daemon.stop() } }
print("\(arguments[1]) ns \(best / 10).\(best % 10) check \(check) items \(items) per_second \(10_000_000_000 / best)")
exit(0)
