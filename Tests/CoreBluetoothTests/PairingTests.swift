// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
import Foundation
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker
@testable import CoreBluetooth

/// Reads the value of 2A19, and says what came.
private final class Reader: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue.
  let steps: AsyncStream<String>
  private let step: AsyncStream<String>.Continuation
  private var peripheral: CBPeripheral?
  override init() { (steps, step) = AsyncStream.makeStream(of: String.self) }

  func centralManagerDidUpdateState(_ central: CBCentralManager) {
    if central.state == .poweredOn { central.scanForPeripherals(withServices: [CBUUID(string: "180F")]) }
  }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi RSSI: NSNumber
  ) {
    self.peripheral = peripheral
    central.stopScan()
    central.connect(peripheral)
  }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    peripheral.delegate = self
    peripheral.discoverServices([CBUUID(string: "180F")])
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) {
    guard let service = peripheral.services?.first else { return step.finish() }
    peripheral.discoverCharacteristics(nil, for: service)
  }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?) {
    guard let characteristic = service.characteristics?.first else { return step.finish() }
    peripheral.readValue(for: characteristic)
  }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    let code = (error as? CBATTError)?.code
    step.yield(error == nil ? "value \([UInt8](characteristic.value ?? Data()))" : "error \(code?.rawValue ?? -1)")
    step.finish()
  }
}

/// Publishes 2A19, which links read only when they are encrypted.
private final class Battery: NSObject, CBPeripheralManagerDelegate, @unchecked Sendable {
  // Sendable: everything runs on the manager's queue.
  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    guard peripheral.state == .poweredOn else { return }
    let service = CBMutableService(type: CBUUID(string: "180F"), primary: true)
    service.characteristics = [
      CBMutableCharacteristic(
        type: CBUUID(string: "2A19"), properties: .read, value: Data([50]), permissions: .readEncryptionRequired)
    ]
    peripheral.add(service)
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) {
    peripheral.startAdvertising([CBAdvertisementDataServiceUUIDsKey: [service.uuid]])
  }
}

/// The agents of `BINDRUNE_AGENT`, by the value that needs encryption. Vol 3, Part C, §10.3.1.
@Suite(.virtualTime, .hang) struct PairingTests {
  private func read(by central: AgentChoice, from peripheral: AgentChoice) async throws -> [String] {
    let loop = VirtualLoop.current, radio = SimulatedRadio(on: loop, configuration: .ideal)
    func adapter(_ choice: AgentChoice) -> BindruneBroker.Adapter {
      BindruneBroker.Adapter(on: radio.eventLoop, logger: .silent, agent: choice.agent(.silent)) {
        _ async throws(TransportError) in radio.controller()
      }
    }
    let one = adapter(central), other = adapter(peripheral)
    let queue = DispatchQueue(label: "app")
    loop.follow(queue)
    let battery = Battery(), reader = Reader()
    let server = CBPeripheralManager(delegate: battery, queue: queue) { events in
      DirectSession(on: other, events: events)
    }
    let client = CBCentralManager(delegate: reader, queue: queue) { events in DirectSession(on: one, events: events) }
    var steps: [String] = []
    for await step in reader.steps { steps.append(step) }
    withExtendedLifetime((server, client, battery)) {}
    return steps
  }

  @Test func aReadThatNeedsEncryptionPairs() async throws {
    #expect(try await read(by: .accept, from: .accept) == ["value [50]"])
  }
  /// The server's own refusal: without a key, Insufficient Authentication.
  @Test(arguments: [(AgentChoice.refuse, AgentChoice.accept), (.accept, .refuse)])
  func aRefusalIsTheServers(central: AgentChoice, peripheral: AgentChoice) async throws {
    #expect(
      try await read(by: central, from: peripheral)
        == ["error \(CBATTError.Code.insufficientAuthentication.rawValue)"])
  }
  @Test func choices() {
    #expect(AgentChoice("") == .accept && AgentChoice("accept") == .accept && AgentChoice("refuse") == .refuse)
    #expect(AgentChoice("terminal") == .terminal && AgentChoice("echo yes") == .command("echo yes"))
  }
}
