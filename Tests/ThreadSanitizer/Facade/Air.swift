// The same over the adapters of this process: two hosts on one virtual radio, and programs on threads of their
// own above them; also if these reach their adapters through the daemon's socket.
import Bindrune
import BindruneBroker
@testable import CoreBluetooth
import NIOPosix

/// Sends numbers, as many as there is room for, to its subscribers.
final class Sender: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
  // Sendable: variables are used on the manager's queue.
  let characteristic = CBMutableCharacteristic(
    type: CBUUID(string: "2A37"), properties: .notify, value: nil, permissions: .readable)
  let command = CBMutableCharacteristic(
    type: CBUUID(string: "2A39"), properties: [.write, .writeWithoutResponse], value: nil, permissions: .writeable)
  let isAdvertising = DispatchSemaphore(value: 0), isUnsubscribed = DispatchSemaphore(value: 0)
  private var last: UInt32 = 0

  func peripheralManagerDidUpdateState(_ manager: CBPeripheralManager) {
    guard manager.state == .poweredOn else { return }
    let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
    service.characteristics = [characteristic, command]
    manager.add(service)
    manager.publishL2CAPChannel(withEncryption: false)
    manager.startAdvertising([CBAdvertisementDataServiceUUIDsKey: [service.uuid]])
  }
  func peripheralManagerDidStartAdvertising(_ manager: CBPeripheralManager, error: (any Error)?) {
    isAdvertising.signal()
  }
  func peripheralManager(
    _ manager: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) {
    last = 0
    peripheralManagerIsReady(toUpdateSubscribers: manager)
  }
  func peripheralManager(
    _ manager: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) { isUnsubscribed.signal() }
  func peripheralManagerIsReady(toUpdateSubscribers manager: CBPeripheralManager) {
    while last < 500, manager.updateValue(octets(last + 1), for: characteristic, onSubscribedCentrals: nil) {
      last += 1
    }
  }
  private func octets(_ number: UInt32) -> Data { Data((0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }) }
  func peripheralManager(_ manager: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    manager.respond(to: requests[0], withResult: .success)
  }
  /// Sends back what comes, from a thread of its own.
  func peripheralManager(_ manager: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
    guard let channel else { return }
    onThread(Ends(channel)) { ends in
      while let octets = ends.read(), ends.write(octets) {}
      ends.close()
    }
  }
}

/// Both streams of a channel, each for one thread.
final class Ends: @unchecked Sendable {
  // Sendable: constants.
  private let channel: CBL2CAPChannel
  private let input: InputStream, output: OutputStream
  init(_ channel: CBL2CAPChannel) {
    (self.channel, input, output) = (channel, channel.inputStream, channel.outputStream)
    input.open()
    output.open()
  }
  /// Nil: the end.
  func read() -> [UInt8]? {
    var buffer = [UInt8](repeating: 0, count: 1000)
    let count = input.read(&buffer, maxLength: buffer.count)
    return count > 0 ? Array(buffer.prefix(count)) : nil
  }
  /// False: the channel has ended.
  func write(_ octets: [UInt8]) -> Bool {
    var written = 0
    while written < octets.count {
      let count = output.write(Array(octets[written...]), maxLength: octets.count - written)
      guard count > 0 else { return false }
      written += count
    }
    return true
  }
  func close() {
    input.close()
    output.close()
  }
}
func onThread(_ ends: Ends, _ body: @escaping @Sendable (Ends) -> Void) { Thread { body(ends) }.start() }

/// `daemon`: the path of the socket of a daemon that is to be between the managers and the adapters.
func overTheAir(daemon path: String? = nil) -> [String] {
  var faults: [String] = []
  let names = path == nil ? ["sender", "receiver"] : ["sender of the daemon", "receiver of the daemon"]
  let adapters = names.map { path == nil ? $0 : "broker:\($0)" }
  let loop = MultiThreadedEventLoopGroup.singleton.next(), radio = SimulatedRadio(on: loop, configuration: .ideal)
  for name in names { DirectSession.provideAdapter(named: name, on: loop) { _ in radio.controller() } }
  var daemon: AppDaemon?
  if let path {
    setenv("BINDRUNE_SOCKET", path, 1)
    daemon = waiting { try? await AppDaemon(sharing: names, at: path) }
    if daemon == nil { return ["the daemon does not begin"] }
  }
  defer { if let daemon { waiting { await daemon.stop() } } }
  let sender = Sender()
  let server = CBPeripheralManager(
    delegate: sender, queue: DispatchQueue(label: "sender"), options: [CBManagerOptionAdapterKey: adapters[0]])
  if sender.isAdvertising.wait(timeout: .now() + 60) == .timedOut { return ["it does not advertise"] }

  for round in 1...3 {
    let client = Client(count: 500)
    let manager = CBCentralManager(
      delegate: client, queue: DispatchQueue(label: "receiver"), options: [CBManagerOptionAdapterKey: adapters[1]])
    threads(5) { thread in
      for turn in 0..<200 {
        let peripheral = client.found
        _ = (manager.state, manager.isScanning, server.isAdvertising, peripheral?.name, peripheral?.state)
        _ = (peripheral?.canSendWriteWithoutResponse, peripheral?.maximumWriteValueLength(for: .withoutResponse))
        _ = sender.characteristic.subscribedCentrals?.first?.maximumUpdateValueLength
        for characteristic in peripheral?.services?.first?.characteristics ?? []
        where characteristic.properties.contains(.write) {
          let type = turn.isMultiple(of: 10) ? CBCharacteristicWriteType.withResponse : .withoutResponse
          peripheral?.writeValue(Data([UInt8(thread)]), for: characteristic, type: type)
        }
        if thread == 1 { peripheral?.readRSSI() }
        if thread == 2 {
          server.setDesiredConnectionLatency(.low, for: CBCentral(identifier: UUID(), longestUpdate: 20))
        }
        // A manager of the same adapter that is released with operations in flight.
        if thread == 3, turn.isMultiple(of: 20) {
          let gone = CBCentralManager(
            delegate: nil, queue: DispatchQueue(label: "gone"), options: [CBManagerOptionAdapterKey: adapters[1]])
          gone.scanForPeripherals(withServices: nil)
          if let peripheral = peripheral.flatMap({ gone.retrievePeripherals(withIdentifiers: [$0.identifier]) })?.first
          {
            gone.connect(peripheral)
          }
        }
      }
    }
    if client.isDone.wait(timeout: .now() + 60) == .timedOut {
      faults.append("round \(round): \(client.last) of \(client.count) values")
    }
    // A channel, beside it, whose octets come back.
    if client.isEchoed.wait(timeout: .now() + 60) == .timedOut {
      faults.append("round \(round): the octets of the channel did not come back")
    }
    client.found.map(manager.cancelPeripheralConnection)
    if client.isDone.wait(timeout: .now() + 60) == .timedOut {
      faults.append("round \(round): the end was not reported")
    }
    if sender.isUnsubscribed.wait(timeout: .now() + 60) == .timedOut {
      faults.append("round \(round): the end was not reported to the peripheral")
    }
    faults += client.faults
  }
  withExtendedLifetime(server) {}
  return faults
}

private func waiting<Result: Sendable>(_ body: @escaping @Sendable () async -> Result) -> Result {
  let isDone = DispatchSemaphore(value: 0), box = Box<Result>()
  Task {
    box.value = await body()
    isDone.signal()
  }
  isDone.wait()
  return box.value!
}
private final class Box<Value>: @unchecked Sendable {
  // Sendable: the semaphore orders its two accesses.
  var value: Value?
}
