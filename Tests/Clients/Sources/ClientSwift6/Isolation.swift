// Swift 6: isolation of delegates, and values that cross isolation boundaries.
@preconcurrency import CoreBluetooth

/// The most common: a view model on the main actor, whose delegate methods are nonisolated and called on the main
/// queue.
@MainActor public final class ViewModel: NSObject {
  public private(set) var peripherals: [CBPeripheral] = []
  public private(set) var values: [CBUUID: Data] = [:]
  public private(set) var isScanning = false
  private var central: CBCentralManager!
  private var observation: NSKeyValueObservation?
  static let service = CBUUID(string: "180D")
  public override init() {
    super.init()
    central = CBCentralManager(delegate: self, queue: .main)
    observation = central.observe(\.isScanning, options: .new) { [weak self] _, change in
      let isScanning = change.newValue ?? false
      Task { @MainActor in self?.isScanning = isScanning }
    }
  }
  func connect(_ peripheral: CBPeripheral) {
    peripheral.delegate = self
    central.connect(peripheral)
  }
}
extension ViewModel: CBCentralManagerDelegate {
  public nonisolated func centralManagerDidUpdateState(_ central: CBCentralManager) {
    let state = central.state
    Task { @MainActor in
      if state == .poweredOn { self.central.scanForPeripherals(withServices: [Self.service]) }
    }
  }
  public nonisolated func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi: NSNumber
  ) {
    MainActor.assumeIsolated {
      if !peripherals.contains(peripheral) { peripherals.append(peripheral) }
      connect(peripheral)
    }
  }
  public nonisolated func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    DispatchQueue.main.async { peripheral.discoverServices([CBUUID(string: "180D")]) }
  }
}
extension ViewModel: @preconcurrency CBPeripheralDelegate {
  public func peripheral(
    _ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?
  ) {
    values[characteristic.uuid] = characteristic.value
  }
}

/// Everything on a queue of its own, and a stream of events.
public final class Events: NSObject, CBCentralManagerDelegate, @unchecked Sendable {
  public enum Event: Sendable {
    case state(CBManagerState)
    case found(CBPeripheral, rssi: Int)
    case lost(CBPeripheral, CBError?)
  }
  public let stream: AsyncStream<Event>
  private let continuation: AsyncStream<Event>.Continuation
  private var central: CBCentralManager?
  public override init() {
    (stream, continuation) = AsyncStream.makeStream()
    super.init()
    central = CBCentralManager(delegate: self, queue: DispatchQueue(label: "events"), options: nil)
  }
  public func centralManagerDidUpdateState(_ central: CBCentralManager) { continuation.yield(.state(central.state)) }
  public func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi: NSNumber
  ) {
    continuation.yield(.found(peripheral, rssi: rssi.intValue))
  }
  public func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
    isReconnecting: Bool, error: (any Error)?
  ) {
    if !isReconnecting { continuation.yield(.lost(peripheral, error as? CBError)) }
  }
}

/// An actor that keeps peripherals.
public actor Registry {
  private var peripherals: [UUID: CBPeripheral] = [:]
  public init() {}
  public func insert(_ peripheral: CBPeripheral) { peripherals[peripheral.identifier] = peripheral }
  public func peripheral(_ identifier: UUID) -> CBPeripheral? { peripherals[identifier] }
}
public func keep(_ events: Events, in registry: Registry) async {
  for await case .found(let peripheral, _) in events.stream { await registry.insert(peripheral) }
}
public nonisolated func word(_ code: CBATTError.Code) -> String {
  switch code {
  case .success: "done"
  case .readNotPermitted, .writeNotPermitted: "not permitted"
  default: "ATT \(code.rawValue)"
  }
}
public nonisolated func word(_ state: CBPeripheralState) -> String {
  switch state {
  case .disconnected: "off"
  case .connecting: "soon"
  case .connected: "on"
  case .disconnecting: "ending"
  @unknown default: "?"
  }
}
