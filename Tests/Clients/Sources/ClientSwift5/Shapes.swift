// How programs and libraries use Core Bluetooth, in Swift 5: nothing here may need a change to build on Linux.
import CoreBluetooth

// MARK: Protocols of a client's own that Apple's classes conform to, so that a test can stand in for them

public protocol CentralManaging: AnyObject {
  var delegate: CBCentralManagerDelegate? { get set }
  var state: CBManagerState { get }
  var isScanning: Bool { get }
  func scanForPeripherals(withServices serviceUUIDs: [CBUUID]?, options: [String: Any]?)
  func stopScan()
  func connect(_ peripheral: CBPeripheral, options: [String: Any]?)
  func cancelPeripheralConnection(_ peripheral: CBPeripheral)
  func retrievePeripherals(withIdentifiers identifiers: [UUID]) -> [CBPeripheral]
  func retrieveConnectedPeripherals(withServices serviceUUIDs: [CBUUID]) -> [CBPeripheral]
}
extension CBCentralManager: CentralManaging {}

public protocol PeripheralType: AnyObject {
  var delegate: CBPeripheralDelegate? { get set }
  var identifier: UUID { get }
  var name: String? { get }
  var state: CBPeripheralState { get }
  var services: [CBService]? { get }
  var canSendWriteWithoutResponse: Bool { get }
  func readRSSI()
  func discoverServices(_ serviceUUIDs: [CBUUID]?)
  func discoverIncludedServices(_ includedServiceUUIDs: [CBUUID]?, for service: CBService)
  func discoverCharacteristics(_ characteristicUUIDs: [CBUUID]?, for service: CBService)
  func discoverDescriptors(for characteristic: CBCharacteristic)
  func readValue(for characteristic: CBCharacteristic)
  func readValue(for descriptor: CBDescriptor)
  func writeValue(_ data: Data, for characteristic: CBCharacteristic, type: CBCharacteristicWriteType)
  func writeValue(_ data: Data, for descriptor: CBDescriptor)
  func setNotifyValue(_ enabled: Bool, for characteristic: CBCharacteristic)
  func maximumWriteValueLength(for type: CBCharacteristicWriteType) -> Int
  func openL2CAPChannel(_ psm: CBL2CAPPSM)
}
extension CBPeripheral: PeripheralType {}

public protocol PeripheralManaging: AnyObject {
  var delegate: CBPeripheralManagerDelegate? { get set }
  var isAdvertising: Bool { get }
  func startAdvertising(_ advertisementData: [String: Any]?)
  func stopAdvertising()
  func add(_ service: CBMutableService)
  func remove(_ service: CBMutableService)
  func removeAllServices()
  func respond(to request: CBATTRequest, withResult result: CBATTError.Code)
  func updateValue(_ value: Data, for characteristic: CBMutableCharacteristic, onSubscribedCentrals: [CBCentral]?)
    -> Bool
}
extension CBPeripheralManager: PeripheralManaging {}

// MARK: Conformances and members that a client adds

extension CBManagerState: CustomStringConvertible {
  public var description: String {
    switch self {
    case .unknown: return "unknown"
    case .resetting: return "resetting"
    case .unsupported: return "unsupported"
    case .unauthorized: return "unauthorized"
    case .poweredOff: return "off"
    case .poweredOn: return "on"
    @unknown default: return "?"
    }
  }
}
extension CBPeripheralState: CaseIterable {
  public static var allCases: [CBPeripheralState] { [.disconnected, .connecting, .connected, .disconnecting] }
}
extension CBPeripheral: Identifiable { public var id: UUID { identifier } }
extension CBUUID {
  static let heartRate = CBUUID(string: "180D")
  class var battery: CBUUID { CBUUID(string: "180F") }
  convenience init(number: UInt16) { self.init(string: String(format: "%04X", number)) }
}
extension CBCharacteristic {
  var canWrite: Bool { !properties.isDisjoint(with: [.write, .writeWithoutResponse]) }
}
extension CBATTError.Code {
  static var controlPointNotSupported: CBATTError.Code { CBATTError.Code(rawValue: 0x80)! }
}
extension CBATTError: LocalizedError { public var errorDescription: String? { "ATT \(code.rawValue)" } }

public func describe(_ error: Error?) -> String {
  guard let error = error else { return "none" }
  if let error = error as? CBError {
    switch error.code {
    case .connectionTimeout, .peripheralDisconnected: return "gone"
    case .unknown, .invalidParameters, .invalidHandle, .notConnected, .outOfSpace, .operationCancelled: return "ours"
    case CBError.connectionFailed: return "failed"
    default: return "other"
    }
  }
  let bridged = error as NSError
  switch (bridged.domain, bridged.code) {
  case (CBATTErrorDomain, CBATTError.Code.readNotPermitted.rawValue): return "no reading"
  case (CBATTErrorDomain, let code):
    switch CBATTError.Code(rawValue: code) {
    case .insufficientEncryption, .insufficientAuthentication: return "pair first"
    case .controlPointNotSupported: return "not supported"
    default: return "ATT \(code)"
    }
  case (CBErrorDomain, let code): return CBError.Code(rawValue: code).map { "CB \($0.rawValue)" } ?? "?"
  default: return bridged.localizedDescription
  }
}

// MARK: Subclasses

open class LoggingManager: CBCentralManager {
  public private(set) var log: [String] = []
  public override init(delegate: CBCentralManagerDelegate?, queue: DispatchQueue?, options: [String: Any]? = nil) {
    super.init(delegate: delegate, queue: queue, options: options)
  }
  open override func scanForPeripherals(withServices serviceUUIDs: [CBUUID]?, options: [String: Any]? = nil) {
    log.append("scan")
    super.scanForPeripherals(withServices: serviceUUIDs, options: options)
  }
  open override func connect(_ peripheral: CBPeripheral, options: [String: Any]? = nil) {
    log.append("connect")
    super.connect(peripheral, options: options)
  }
  open override var state: CBManagerState { super.state }
}
class NamedService: CBMutableService {
  var label = ""
}
// A class that overrides the designated initialiser inherits the others.
class CountingCentral: CBCentralManager {
  static var made: [CBCentralManager] { [CountingCentral(), CountingCentral(delegate: nil, queue: .main)] }
  override init(delegate: CBCentralManagerDelegate?, queue: DispatchQueue?, options: [String: Any]?) {
    super.init(delegate: delegate, queue: queue, options: options)
  }
}
class CountingPeripheral: CBPeripheralManager {
  static var made: [CBPeripheralManager] { [CountingPeripheral(), CountingPeripheral(delegate: nil, queue: .main)] }
  override init(delegate: CBPeripheralManagerDelegate?, queue: DispatchQueue?, options: [String: Any]?) {
    super.init(delegate: delegate, queue: queue, options: options)
  }
}
class KeepingCentral: CBCentralManager {
  convenience init() { self.init(delegate: nil, queue: nil) }
}
class FakeUUID: CBUUID {
  override init() { super.init() }
}
// Apple's are weak; either may be overridden.
class WeakPeripheral: CBPeripheral {
  private weak var kept: CBPeripheralDelegate?
  override weak var delegate: CBPeripheralDelegate? {
    get { kept }
    set { kept = newValue }
  }
}
class StrongPeripheral: CBPeripheral {
  private var kept: CBPeripheralDelegate?
  override var delegate: CBPeripheralDelegate? {
    get { kept }
    set { kept = newValue }
  }
}
class WeakService: CBService {
  override weak var peripheral: CBPeripheral? { super.peripheral }
}

// MARK: What programs read by name, and old states

func address(of peripheral: CBPeripheral) -> UUID? { peripheral.value(forKey: "identifier") as? UUID }
func mtu(of peripheral: CBPeripheral) -> Int? { (peripheral.value(forKey: "mtuLength") as? NSNumber)?.intValue }

@available(*, deprecated)
extension CBCentralManagerState: CustomStringConvertible {
  public var description: String { "central \(rawValue)" }
}
@available(*, deprecated)
extension CBPeripheralManagerState: CustomStringConvertible {
  public var description: String { "peripheral \(rawValue)" }
}

// MARK: A manager in a manager, by name, with closures

public final class Scanner: NSObject {
  public struct Found: Hashable {
    public let peripheral: CBPeripheral
    public let rssi: Int
    public let services: [CBUUID]
  }
  private lazy var manager = CBCentralManager(
    delegate: self, queue: DispatchQueue(label: "scanner", qos: .userInitiated),
    options: [CBCentralManagerOptionShowPowerAlertKey: false, CBCentralManagerOptionRestoreIdentifierKey: "scanner"])
  private var known: [UUID: CBPeripheral] = [:]
  private var readers: [CBUUID: (Result<Data, Error>) -> Void] = [:]
  private var pending: Set<CBPeripheral> = []
  public var found: ((Found) -> Void)?

  public func start() {
    guard CBCentralManager.authorization == .allowedAlways, manager.state == .poweredOn else { return }
    manager.scanForPeripherals(
      withServices: [.heartRate], options: [CBCentralManagerScanOptionAllowDuplicatesKey: NSNumber(value: true)])
    manager.scanForPeripherals(withServices: nil)
  }
  public func resume(_ identifiers: [UUID]) {
    for peripheral in manager.retrievePeripherals(withIdentifiers: identifiers)
    where peripheral.state != .connected && peripheral.state != .connecting {
      pending.insert(peripheral)
      manager.connect(
        peripheral,
        options: [
          CBConnectPeripheralOptionNotifyOnDisconnectionKey: true, CBConnectPeripheralOptionStartDelayKey: 1,
        ])
    }
  }
  public func read(_ uuid: CBUUID, of peripheral: CBPeripheral) async throws -> Data {
    guard
      let characteristic = peripheral.services?.flatMap({ $0.characteristics ?? [] }).first(where: { $0.uuid == uuid })
    else { throw CBError(.invalidHandle) }
    return try await withCheckedThrowingContinuation { continuation in
      readers[uuid] = { continuation.resume(with: $0) }
      peripheral.readValue(for: characteristic)
    }
  }
}

extension Scanner: CBCentralManagerDelegate {
  public func centralManagerDidUpdateState(_ central: CBCentralManager) {
    switch central.state {
    case .poweredOn: start()
    case .poweredOff, .resetting, .unauthorized, .unknown, .unsupported: known.removeAll()
    @unknown default: break
    }
  }
  public func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) {
    let peripherals = dict[CBCentralManagerRestoredStatePeripheralsKey] as? [CBPeripheral] ?? []
    let services = dict[CBCentralManagerRestoredStateScanServicesKey] as? [CBUUID]
    _ = services
    peripherals.forEach { $0.delegate = self }
  }
  public func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi: NSNumber
  ) {
    let name = advertisementData[CBAdvertisementDataLocalNameKey] as? String
    let connectable = (advertisementData[CBAdvertisementDataIsConnectable] as? NSNumber)?.boolValue
    let power = advertisementData[CBAdvertisementDataTxPowerLevelKey] as? Int
    let data = advertisementData[CBAdvertisementDataServiceDataKey] as? [CBUUID: Data]
    let maker = advertisementData[CBAdvertisementDataManufacturerDataKey] as? Data
    let overflow = advertisementData[CBAdvertisementDataOverflowServiceUUIDsKey] as? [CBUUID]
    _ = (name, connectable, power, data, maker, overflow)
    guard rssi.intValue != 127, known[peripheral.identifier] == nil else { return }
    known[peripheral.identifier] = peripheral
    let services = advertisementData[CBAdvertisementDataServiceUUIDsKey] as? [CBUUID] ?? []
    found?(Found(peripheral: peripheral, rssi: rssi.intValue, services: services))
  }
  public func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    peripheral.delegate = self
    peripheral.discoverServices([.heartRate, .battery])
  }
  public func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: Error?
  ) {
    if let code = (error as? CBError)?.code, code == .peripheralDisconnected { central.connect(peripheral) }
  }
}

extension Scanner: CBPeripheralDelegate {
  public func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: Error?) {
    peripheral.services?.forEach { peripheral.discoverCharacteristics(nil, for: $0) }
  }
  public func peripheral(_ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: Error?) {
    for characteristic in service.characteristics ?? [] where characteristic.properties.contains(.notify) {
      peripheral.setNotifyValue(true, for: characteristic)
      assert(characteristic.service?.peripheral === peripheral)
    }
  }
  public func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: Error?)
  {
    let reader = readers.removeValue(forKey: characteristic.uuid)
    if let error = error { reader?(.failure(error)) } else { reader?(.success(characteristic.value ?? Data())) }
  }
  public func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: Error?) {
    switch descriptor.uuid.uuidString {
    case CBUUIDCharacteristicUserDescriptionString: _ = descriptor.value as? String
    case CBUUIDClientCharacteristicConfigurationString: _ = (descriptor.value as? NSNumber)?.intValue
    default: _ = descriptor.value as? Data
    }
  }
}

// MARK: A server, and channels

public final class Server: NSObject, CBPeripheralManagerDelegate, StreamDelegate {
  public private(set) var manager: CBPeripheralManager!
  private var subscribers = Set<CBCentral>()
  private var channel: CBL2CAPChannel?
  private let value = CBMutableCharacteristic(
    type: CBUUID(number: 0x2A37), properties: [.read, .notify, .writeWithoutResponse], value: nil,
    permissions: [.readable, .writeable])

  public override init() {
    super.init()
    manager = CBPeripheralManager(
      delegate: self, queue: .main, options: [CBPeripheralManagerOptionShowPowerAlertKey: true])
  }
  public func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    guard peripheral.state == .poweredOn else { return }
    let service = NamedService(type: .heartRate, primary: true)
    value.descriptors = [
      CBMutableDescriptor(type: CBUUID(string: CBUUIDCharacteristicUserDescriptionString), value: "rate")
    ]
    service.characteristics = [value]
    peripheral.add(service)
    peripheral.publishL2CAPChannel(withEncryption: false)
  }
  public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) {
    guard request.characteristic.uuid == value.uuid, let data = value.value, request.offset <= data.count else {
      peripheral.respond(to: request, withResult: .invalidOffset)
      return
    }
    request.value = data.subdata(in: request.offset..<data.count)
    peripheral.respond(to: request, withResult: CBATTError.success)
  }
  public func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) {
    for request in requests { value.value = request.value }
    peripheral.respond(to: requests[0], withResult: .controlPointNotSupported)
  }
  public func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) {
    subscribers.insert(central)
    peripheral.setDesiredConnectionLatency(.low, for: central)
    let part = Data(count: central.maximumUpdateValueLength)
    guard let own = characteristic as? CBMutableCharacteristic else { return }
    _ = peripheral.updateValue(part, for: own, onSubscribedCentrals: Array(subscribers))
  }
  public func peripheralManager(
    _ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: Error?
  ) {
    print(psm, error?.localizedDescription ?? "")
  }
  public func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: Error?) {
    guard let channel = channel else { return }
    self.channel = channel
    channel.inputStream.delegate = self
    channel.inputStream.schedule(in: .main, forMode: .default)
    channel.inputStream.open()
    channel.outputStream.open()
    print(channel.peer.identifier, channel.psm)
  }
  public func stream(_ aStream: Stream, handle eventCode: Stream.Event) {}
}

// MARK: Proxies and queues

public final class DelegateProxy: NSObject, CBCentralManagerDelegate {
  weak var target: CBCentralManagerDelegate?
  public func centralManagerDidUpdateState(_ central: CBCentralManager) {
    target?.centralManagerDidUpdateState(central)
  }
  public func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    target?.centralManager?(central, didConnect: peripheral)
  }
}

/// A device that stands in for a real one.
open class FakePeripheral: CBPeripheral {
  private var fakeState = CBPeripheralState.disconnected
  open override var state: CBPeripheralState {
    get { fakeState }
    set { fakeState = newValue }
  }
  open override func discoverServices(_ serviceUUIDs: [CBUUID]?) {
    delegate?.peripheral?(self, didDiscoverServices: nil)
    delegate?.peripheralDidUpdateName?(self)
    if delegate?.peripheralIsReady?(toSendWriteWithoutResponse: self) == nil { state = .connected }
  }
}

/// Most delegates name their properties like the first words of Apple's methods.
open class Keeper: NSObject, CBCentralManagerDelegate, CBPeripheralDelegate, CBPeripheralManagerDelegate {
  public var centralManager: CBCentralManager!
  public lazy var peripheralManager = CBPeripheralManager(delegate: self, queue: nil)
  public private(set) var peripheral: CBPeripheral?

  public func centralManagerDidUpdateState(_ central: CBCentralManager) {
    guard central === centralManager, let manager = centralManager else { return }
    if manager.state == .poweredOn { centralManager.scanForPeripherals(withServices: nil) }
    if let peripheral { self.centralManager.connect(peripheral) }
    let kept = peripheral
    print(kept?.name ?? "", centralManager.isScanning, self[keyPath: \Keeper.peripheral]?.state == .connected)
  }
  public func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    peripheralManager.startAdvertising(nil)
  }
  public func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) {
    self.peripheral = peripheral
    centralManager(central, didDisconnectPeripheral: peripheral, error: CBError(_nsError: CBError(.unknown) as NSError))
  }
}

// MARK: Key-value observing

/// A model that follows what it observes.
public final class ObservingModel: NSObject {
  public private(set) var isScanning = false
  public private(set) var isOn = false
  public private(set) var connection = CBPeripheralState.disconnected
  private let manager: CBCentralManager
  private lazy var server = CBPeripheralManager()
  private var observation: NSKeyValueObservation?
  private var others = Set<NSKeyValueObservation>()
  public init(_ manager: CBCentralManager) {
    self.manager = manager
    super.init()
    observation = manager.observe(\.isScanning, options: [.old, .new]) { [weak self] _, change in
      if let value = change.newValue, value != change.oldValue { self?.isScanning = value }
    }
    others.insert(
      manager.observe(\CBCentralManager.state, options: .new) { [weak self] central, change in
        switch central.state {
        case .poweredOn: self?.isOn = true
        default: self?.isOn = false
        }
      })
    others.insert(server.observe(\.isAdvertising) { server, _ in print(server.isAdvertising) })
    let manager: CBManager = manager
    others.insert(manager.observe(\.state, options: [.initial], changeHandler: { print($0.state.rawValue, $1.kind) }))
  }
  deinit { observation?.invalidate() }
  public func follow(_ peripheral: CBPeripheral) {
    others.insert(
      peripheral.observe(\.state) { [weak self] (peripheral, _) in
        DispatchQueue.main.async { self?.connection = peripheral.state }
      })
    others.insert(peripheral.observe(\CBPeripheral.name, options: [.prior, .new], changeHandler: renamed))
  }
  private func renamed(_ peripheral: CBPeripheral, _ change: NSKeyValueObservedChange<String?>) {
    guard !change.isPrior, case .setting = change.kind, let name = change.newValue else { return }
    print(name ?? "no name", change.indexes?.count ?? 0)
  }
}

/// The same, from a protocol of the client's.
public protocol Peripheralled: CBPeripheralDelegate { var kept: CBPeripheral? { get } }
extension Peripheralled {
  public var peripheral: CBPeripheral? { kept }
  public func refresh() {
    let peripheral = self.peripheral
    peripheral?.delegate?.peripheral?(kept!, didModifyServices: peripheral?.services ?? [])
    print(self.peripheral?.name ?? "")
  }
}
