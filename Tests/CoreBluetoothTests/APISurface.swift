// Every public symbol of Core Bluetooth, used with its exact type: this file does not compile if a name, a label or a
// type differs from Apple's. It imports the module alone, as a client does; other files test what types cannot express.
import CoreBluetooth
import Testing

// MARK: Methods and properties, by their types

@Suite struct APISurface {
  func manager(_ it: CBManager) {
    let state: CBManagerState = it.state
    let authorization: CBManagerAuthorization = CBManager.authorization
    let object: NSObject = it
    _ = (state, authorization, object)
  }

  func centralManager(_ it: CBCentralManager, _ delegate: any CBCentralManagerDelegate, _ queue: DispatchQueue) {
    let manager: CBManager = it
    let made: [() -> CBCentralManager] = [
      { CBCentralManager() },
      { CBCentralManager(delegate: delegate, queue: queue) },
      { CBCentralManager(delegate: nil, queue: nil) },
      { CBCentralManager(delegate: delegate, queue: nil, options: nil) },
      { CBCentralManager(delegate: delegate, queue: nil, options: [CBCentralManagerOptionShowPowerAlertKey: true]) },
    ]
    let current: (any CBCentralManagerDelegate)? = it.delegate
    it.delegate = current
    let isScanning: Bool = it.isScanning
    let retrieve: ([UUID]) -> [CBPeripheral] = it.retrievePeripherals(withIdentifiers:)
    let retrieveConnected: ([CBUUID]) -> [CBPeripheral] = it.retrieveConnectedPeripherals(withServices:)
    let scan: ([CBUUID]?, [String: Any]?) -> Void = it.scanForPeripherals(withServices:options:)
    it.scanForPeripherals(withServices: nil)
    let stop: () -> Void = it.stopScan
    let connect: (CBPeripheral, [String: Any]?) -> Void = it.connect(_:options:)
    let cancel: (CBPeripheral) -> Void = it.cancelPeripheralConnection(_:)
    let register: ([CBConnectionEventMatchingOption: Any]?) -> Void = it.registerForConnectionEvents(options:)
    it.registerForConnectionEvents()
    let supports: (CBCentralManager.Feature) -> Bool = CBCentralManager.supports(_:)
    let feature: CBCentralManager.Feature = .extendedScanAndConnect
    let raw: UInt = feature.rawValue
    _ = (manager, made, isScanning, retrieve, retrieveConnected, scan, stop, connect, cancel, register, supports, raw)
  }

  func peripheral(_ it: CBPeripheral, _ service: CBService) {
    let peer: CBPeer = it
    let identifier: UUID = peer.identifier
    let copy: Any = peer.copy()
    let current: (any CBPeripheralDelegate)? = it.delegate
    it.delegate = current
    let name: String? = it.name
    let state: CBPeripheralState = it.state
    let services: [CBService]? = it.services
    let can: Bool = it.canSendWriteWithoutResponse
    let ancs: Bool = it.ancsAuthorized
    let read: () -> Void = it.readRSSI
    let discover: ([CBUUID]?) -> Void = it.discoverServices(_:)
    let included: ([CBUUID]?, CBService) -> Void = it.discoverIncludedServices(_:for:)
    let characteristics: ([CBUUID]?, CBService) -> Void = it.discoverCharacteristics(_:for:)
    let readValue: (CBCharacteristic) -> Void = it.readValue(for:)
    let readDescriptor: (CBDescriptor) -> Void = it.readValue(for:)
    let longest: (CBCharacteristicWriteType) -> Int = it.maximumWriteValueLength(for:)
    let write: (Data, CBCharacteristic, CBCharacteristicWriteType) -> Void = it.writeValue(_:for:type:)
    let writeDescriptor: (Data, CBDescriptor) -> Void = it.writeValue(_:for:)
    let notify: (Bool, CBCharacteristic) -> Void = it.setNotifyValue(_:for:)
    let descriptors: (CBCharacteristic) -> Void = it.discoverDescriptors(for:)
    let open: (CBL2CAPPSM) -> Void = it.openL2CAPChannel(_:)
    _ = (identifier, copy, name, state, services, can, ancs, read, discover, included, characteristics, readValue)
    _ = (readDescriptor, longest, write, writeDescriptor, notify, descriptors, open)
  }

  func peripheralManager(
    _ it: CBPeripheralManager, _ delegate: any CBPeripheralManagerDelegate, _ queue: DispatchQueue
  ) {
    let manager: CBManager = it
    let made: [() -> CBPeripheralManager] = [
      { CBPeripheralManager() },
      { CBPeripheralManager(delegate: delegate, queue: queue) },
      { CBPeripheralManager(delegate: nil, queue: nil) },
      { CBPeripheralManager(delegate: delegate, queue: nil, options: nil) },
      { CBPeripheralManager(delegate: delegate, queue: nil, options: [CBPeripheralManagerOptionShowPowerAlertKey: 1]) },
    ]
    let current: (any CBPeripheralManagerDelegate)? = it.delegate
    it.delegate = current
    let isAdvertising: Bool = it.isAdvertising
    let start: ([String: Any]?) -> Void = it.startAdvertising(_:)
    let stop: () -> Void = it.stopAdvertising
    let latency: (CBPeripheralManagerConnectionLatency, CBCentral) -> Void = it.setDesiredConnectionLatency(_:for:)
    let add: (CBMutableService) -> Void = it.add(_:)
    let remove: (CBMutableService) -> Void = it.remove(_:)
    let removeAll: () -> Void = it.removeAllServices
    let respond: (CBATTRequest, CBATTError.Code) -> Void = it.respond(to:withResult:)
    let update: (Data, CBMutableCharacteristic, [CBCentral]?) -> Bool = it.updateValue(_:for:onSubscribedCentrals:)
    let publish: (Bool) -> Void = it.publishL2CAPChannel(withEncryption:)
    let unpublish: (CBL2CAPPSM) -> Void = it.unpublishL2CAPChannel(_:)
    _ = (
      manager, made, isAdvertising, start, stop, latency, add, remove, removeAll, respond, update, publish, unpublish
    )
  }

  func observing(
    _ manager: CBManager, _ central: CBCentralManager, _ peripheral: CBPeripheral, _ server: CBPeripheralManager
  ) {
    let observations: [NSKeyValueObservation] = [
      manager.observe(\.state) { (_: CBManager, _: NSKeyValueObservedChange<CBManagerState>) in },
      central.observe(\.isScanning, options: []) { (_: CBCentralManager, _: NSKeyValueObservedChange<Bool>) in },
      server.observe(\.isAdvertising, options: .new) { (_: CBPeripheralManager, change) in
        let kind: NSKeyValueObservedChange<Bool>.Kind = change.kind
        let all: [NSKeyValueChange] = [kind, .setting, .insertion, .removal, .replacement]
        let values: (Bool?, Bool?, IndexSet?, Bool) = (change.oldValue, change.newValue, change.indexes, change.isPrior)
        _ = (all, values)
      },
      peripheral.observe(\.name, options: [.initial, .old, .prior]) { (_: CBPeripheral, change) in
        let name: String?? = change.newValue
        _ = name
      },
    ]
    let object: NSObject? = observations.first
    let raw: UInt = NSKeyValueObservingOptions(rawValue: 1).rawValue
    let invalidate: (() -> Void)? = observations.first?.invalidate
    _ = (object, raw, invalidate)
  }

  func attributes(_ service: CBService, _ characteristic: CBCharacteristic, _ descriptor: CBDescriptor) {
    let all: [CBAttribute] = [service, characteristic, descriptor]
    let uuids: [CBUUID] = all.map(\.uuid)
    let peripheral: CBPeripheral? = service.peripheral
    let isPrimary: Bool = service.isPrimary
    let included: [CBService]? = service.includedServices
    let characteristics: [CBCharacteristic]? = service.characteristics
    let parent: CBService? = characteristic.service
    let properties: CBCharacteristicProperties = characteristic.properties
    let value: Data? = characteristic.value
    let descriptors: [CBDescriptor]? = characteristic.descriptors
    let isNotifying: Bool = characteristic.isNotifying
    let owner: CBCharacteristic? = descriptor.characteristic
    let content: Any? = descriptor.value
    _ = (uuids, peripheral, isPrimary, included, characteristics, parent, properties, value, descriptors, isNotifying)
    _ = (owner, content)
  }

  func requests(_ request: CBATTRequest, _ central: CBCentral, _ channel: CBL2CAPChannel) {
    let from: CBCentral = request.central
    let characteristic: CBCharacteristic = request.characteristic
    let offset: Int = request.offset
    let value: Data? = request.value
    request.value = value
    let peer: CBPeer = central
    let longest: Int = central.maximumUpdateValueLength
    let end: CBPeer! = channel.peer
    let input: InputStream! = channel.inputStream
    let output: OutputStream! = channel.outputStream
    let psm: CBL2CAPPSM = channel.psm
    let number: UInt16 = psm
    let objects: [NSObject] = [request, channel]
    _ = (from, characteristic, offset, peer, longest, end as Any, input as Any, output as Any, number, objects)
  }

  // MARK: Objects that a client makes

  @Test("S80–S84: services, characteristics and descriptors are made, and assigned to each other") func mutable() {
    let descriptor: CBMutableDescriptor = CBMutableDescriptor(
      type: CBUUID(string: CBUUIDCharacteristicUserDescriptionString), value: "Rate")
    let characteristic = CBMutableCharacteristic(
      type: CBUUID(string: "2A37"), properties: [.notify, .read], value: nil, permissions: [.readable])
    characteristic.descriptors = [descriptor]
    characteristic.value = Data([1])
    characteristic.value = nil
    characteristic.properties = [.notify]
    characteristic.permissions = [.readable, .writeable]
    let permissions: CBAttributePermissions = characteristic.permissions
    let subscribed: [CBCentral]? = characteristic.subscribedCentrals
    let included = CBMutableService(type: CBUUID(string: "180F"), primary: false)
    let service = CBMutableService(type: CBUUID(string: "180D"), primary: true)
    service.characteristics = [characteristic]
    service.includedServices = [included]

    let bases: (CBService, CBCharacteristic, CBDescriptor) = (service, characteristic, descriptor)
    #expect(bases.0.uuid == CBUUID(string: "180D") && bases.0.isPrimary && !included.isPrimary)
    #expect(bases.0.characteristics == [characteristic] && bases.0.includedServices == [included])
    #expect(bases.1.properties == .notify && permissions == [.readable, .writeable] && bases.1.value == nil)
    #expect(bases.1.descriptors == [descriptor] && bases.2.value as? String == "Rate")
    #expect(subscribed?.isEmpty ?? true)
  }

  @Test func uuids() {
    let long = UUID(uuidString: "71DA3FD1-7E10-41C1-B16F-4430B506CDE7")!
    let all: [CBUUID] = [
      CBUUID(string: long.uuidString), CBUUID(nsuuid: long), CBUUID(data: CBUUID(nsuuid: long).data),
    ]
    #expect(Set(all).count == 1)
    let text: String = all[0].uuidString
    let data: Data = all[0].data
    #expect(text == long.uuidString && data.count == 16)
    #expect((all[0].copy() as? CBUUID) == all[0])
    let coded: any NSCopying = all[0]
    _ = coded
  }

  // MARK: Numbers

  @Test("S155, S158, S159: raw values") func rawValues() {
    #expect(
      [.unknown, .resetting, .unsupported, .unauthorized, .poweredOff, .poweredOn].map(\CBManagerState.rawValue)
        == [0, 1, 2, 3, 4, 5])
    #expect(
      [.notDetermined, .restricted, .denied, .allowedAlways].map(\CBManagerAuthorization.rawValue) == [0, 1, 2, 3])
    #expect(
      [.disconnected, .connecting, .connected, .disconnecting].map(\CBPeripheralState.rawValue) == [0, 1, 2, 3])
    #expect([.withResponse, .withoutResponse].map(\CBCharacteristicWriteType.rawValue) == [0, 1])
    #expect([.low, .medium, .high].map(\CBPeripheralManagerConnectionLatency.rawValue) == [0, 1, 2])
    #expect([.peerDisconnected, .peerConnected].map(\CBConnectionEvent.rawValue) == [0, 1])
    #expect(CBCentralManager.Feature.extendedScanAndConnect.rawValue == 1)
    let properties: [CBCharacteristicProperties] = [
      .broadcast, .read, .writeWithoutResponse, .write, .notify, .indicate, .authenticatedSignedWrites,
      .extendedProperties, .notifyEncryptionRequired, .indicateEncryptionRequired,
    ]
    #expect(properties.map(\.rawValue) == (0..<10).map { UInt(1) << $0 })
    let permissions: [CBAttributePermissions] = [
      .readable, .writeable, .readEncryptionRequired, .writeEncryptionRequired,
    ]
    #expect(permissions.map(\.rawValue) == [1, 2, 4, 8])
  }

  @Test("A valid number makes the case, and an invalid one makes none") func fromRawValues() {
    #expect(CBManagerState(rawValue: 5) == .poweredOn && CBManagerAuthorization(rawValue: 2) == .denied)
    #expect(CBPeripheralState(rawValue: 3) == .disconnecting && CBConnectionEvent(rawValue: 1) == .peerConnected)
    #expect(CBCharacteristicWriteType(rawValue: 1) == .withoutResponse)
    #expect(CBPeripheralManagerConnectionLatency(rawValue: 1) == .medium)
    #expect(CBCharacteristicProperties(rawValue: 0x12) == [.read, .notify])
    #expect(CBAttributePermissions(rawValue: 3) == [.readable, .writeable])
    #expect(CBCentralManager.Feature(rawValue: 1) == .extendedScanAndConnect)
    #expect(CBConnectionEventMatchingOption(rawValue: "x").rawValue == "x")
    #expect(CBError.Code(rawValue: 7) == .peripheralDisconnected && CBATTError.Code(rawValue: 7) == .invalidOffset)
    let unknown = CBManagerState(rawValue: 99)
    #expect(unknown != .unknown && unknown != .poweredOn)
  }

  @Test func errorsOnceMore() {
    let info: [String: Any] = CBATTError(.unlikelyError, userInfo: [NSLocalizedDescriptionKey: "Why."]).errorUserInfo
    #expect(info[NSLocalizedDescriptionKey] as? String == "Why.")
    #expect(CBError(.notConnected).errorUserInfo[NSLocalizedDescriptionKey] is String)
    let codes: (CBError.Code, CBATTErrorCode) = (CBError(.unknown).code, CBATTError(.success).code)
    #expect(codes.0 == .unknown && codes.1 == .success)
    let bridged = CBATTError(.invalidOffset, userInfo: ["more": 1]) as NSError
    #expect(
      CBATTError(_nsError: bridged).code == .invalidOffset
        && CBATTError(_nsError: bridged).userInfo["more"] as? Int == 1)
    #expect(CBError(_nsError: CBError(.notConnected)._nsError).code == .notConnected)
    #expect(CBATTError(.invalidOffset)._nsError.domain == CBATTErrorDomain)
    let zone: Any = CBUUID(string: "180D").copy(with: nil)
    #expect((zone as? CBUUID)?.hash == CBUUID(string: "0000180D-0000-1000-8000-00805F9B34FB").hash)
    #expect(CBUUID() == CBUUID())
    let queue: dispatch_queue_t = .main
    #expect(queue.label == DispatchQueue.main.label)
    let now: CFAbsoluteTime = CFAbsoluteTimeGetCurrent(), minute: CFTimeInterval = 60
    #expect(abs(now - Date().timeIntervalSinceReferenceDate) < minute)
  }

  @Test("S135: deprecated members exist, and prompt no one") func deprecated() {
    let old: any OldNames = Old()
    old.check()
  }

  // MARK: Strings

  @Test("Keys have the text that logs and third-party code show") func keys() {
    let texts: [(String, String)] = [
      (CBAdvertisementDataLocalNameKey, "kCBAdvDataLocalName"),
      (CBAdvertisementDataManufacturerDataKey, "kCBAdvDataManufacturerData"),
      (CBAdvertisementDataServiceDataKey, "kCBAdvDataServiceData"),
      (CBAdvertisementDataServiceUUIDsKey, "kCBAdvDataServiceUUIDs"),
      (CBAdvertisementDataOverflowServiceUUIDsKey, "kCBAdvDataHashedServiceUUIDs"),
      (CBAdvertisementDataTxPowerLevelKey, "kCBAdvDataTxPowerLevel"),
      (CBAdvertisementDataIsConnectable, "kCBAdvDataIsConnectable"),
      (CBAdvertisementDataSolicitedServiceUUIDsKey, "kCBAdvDataSolicitedServiceUUIDs"),
      (CBCentralManagerScanOptionAllowDuplicatesKey, "kCBScanOptionAllowDuplicates"),
      (CBCentralManagerScanOptionSolicitedServiceUUIDsKey, "kCBScanOptionSolicitedServiceUUIDs"),
      (CBConnectPeripheralOptionNotifyOnConnectionKey, "kCBConnectOptionNotifyOnConnection"),
      (CBConnectPeripheralOptionNotifyOnDisconnectionKey, "kCBConnectOptionNotifyOnDisconnection"),
      (CBConnectPeripheralOptionNotifyOnNotificationKey, "kCBConnectOptionNotifyOnNotification"),
      (CBCentralManagerRestoredStatePeripheralsKey, "kCBRestoredPeripherals"),
      (CBCentralManagerRestoredStateScanServicesKey, "kCBRestoredScanServices"),
      (CBCentralManagerRestoredStateScanOptionsKey, "kCBRestoredScanOptions"),
      (CBPeripheralManagerRestoredStateServicesKey, "kCBRestoredServices"),
      (CBPeripheralManagerRestoredStateAdvertisementDataKey, "kCBRestoredAdvertisement"),
      (CBUUIDCharacteristicExtendedPropertiesString, "2900"),
      (CBUUIDCharacteristicUserDescriptionString, "2901"),
      (CBUUIDClientCharacteristicConfigurationString, "2902"),
      (CBUUIDServerCharacteristicConfigurationString, "2903"),
      (CBUUIDCharacteristicFormatString, "2904"),
      (CBUUIDCharacteristicAggregateFormatString, "2905"),
      (CBUUIDCharacteristicValidRangeString, "2906"),
      (CBUUIDCharacteristicObservationScheduleString, "2910"),
      (CBUUIDL2CAPPSMCharacteristicString, "ABDD3056-28FA-441D-A470-55A75A52553A"),
    ]
    for (key, text) in texts { #expect(key == text) }
    // At most one source shows their text: apps use the symbols.
    let others: [String] = [
      CBCentralManagerOptionShowPowerAlertKey, CBCentralManagerOptionRestoreIdentifierKey,
      CBCentralManagerOptionDeviceAccessForMedia, CBPeripheralManagerOptionShowPowerAlertKey,
      CBPeripheralManagerOptionRestoreIdentifierKey, CBConnectPeripheralOptionStartDelayKey,
      CBConnectPeripheralOptionEnableTransportBridgingKey, CBConnectPeripheralOptionRequiresANCS,
      CBConnectPeripheralOptionEnableAutoReconnect,
    ]
    let matching: [CBConnectionEventMatchingOption] = [.serviceUUIDs, .peripheralUUIDs]
    let all = texts.map(\.0) + others + matching.map(\.rawValue)
    #expect(all.allSatisfy { !$0.isEmpty })
    // A manager has the same option under both roles' names; all others are distinct.
    #expect(Set(all).count == all.count - 2)
  }
}

// MARK: Deprecated names, used in deprecated code to avoid warnings

private protocol OldNames { func check() }
private struct Old: OldNames {
  @available(*, deprecated) func check() {
    let states: (CBCentralManagerState, CBPeripheralManagerState) = (.poweredOn, .unsupported)
    #expect(states.0.rawValue == 5 && states.1.rawValue == 2)
    #expect(CBCentralManagerState(rawValue: 4) == .poweredOff && CBPeripheralManagerState(rawValue: 6) == nil)
    let status: CBPeripheralManagerAuthorizationStatus = CBPeripheralManager.authorizationStatus()
    #expect(status == .authorized)
    #expect(
      [.notDetermined, .restricted, .denied, .authorized].map(\CBPeripheralManagerAuthorizationStatus.rawValue)
        == [0, 1, 2, 3])
    #expect(CBPeripheralManagerAuthorizationStatus(rawValue: 3) == .authorized)
    let misspelt: [CBError.Code] = [CBError.unkownDevice, .unkownDevice]
    #expect(misspelt == [.unknownDevice, .unknownDevice])
  }
  @available(*, deprecated) func types(_ peripheral: CBPeripheral, _ value: CBCharacteristic, _ manager: CBManager) {
    let rssi: NSNumber? = peripheral.rssi
    let isBroadcasted: Bool = value.isBroadcasted
    let authorization: CBManagerAuthorization = manager.authorization
    let uuid = CBUUID.init(cfuuid:)  // its type is CoreFoundation's
    _ = (rssi, isBroadcasted, authorization, uuid)
  }
}

// MARK: Delegates that implement everything: a method that the protocol does not declare would not be called

/// The calls, by any of the three below.
class Witness: NSObject {
  private let lock = NSLock()
  private var names: [String] = []
  var called: [String] { lock.withLock { names } }
  func note(_ name: String = #function) { lock.withLock { names.append(name) } }
}

final class EveryCentralCall: Witness, CBCentralManagerDelegate {
  func centralManagerDidUpdateState(_ central: CBCentralManager) { note() }
  func centralManager(_ central: CBCentralManager, willRestoreState dict: [String: Any]) { note() }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi: NSNumber
  ) { note() }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) { note() }
  func centralManager(_ central: CBCentralManager, didFailToConnect peripheral: CBPeripheral, error: (any Error)?) {
    note()
  }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) { note() }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, timestamp: CFAbsoluteTime,
    isReconnecting: Bool, error: (any Error)?
  ) { note() }
  func centralManager(
    _ central: CBCentralManager, connectionEventDidOccur event: CBConnectionEvent, for peripheral: CBPeripheral
  ) { note() }
  func centralManager(_ central: CBCentralManager, didUpdateANCSAuthorizationFor peripheral: CBPeripheral) { note() }
}

final class EveryPeripheralCall: Witness, CBPeripheralDelegate {
  func peripheralDidUpdateName(_ peripheral: CBPeripheral) { note() }
  func peripheral(_ peripheral: CBPeripheral, didModifyServices invalidatedServices: [CBService]) { note() }
  func peripheralDidUpdateRSSI(_ peripheral: CBPeripheral, error: (any Error)?) { note() }
  func peripheral(_ peripheral: CBPeripheral, didReadRSSI rssi: NSNumber, error: (any Error)?) { note() }
  func peripheral(_ peripheral: CBPeripheral, didDiscoverServices error: (any Error)?) { note() }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverIncludedServicesFor service: CBService, error: (any Error)?
  ) { note() }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverCharacteristicsFor service: CBService, error: (any Error)?
  ) { note() }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    note("value")
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor characteristic: CBCharacteristic, error: (any Error)?) {
    note("written value")
  }
  func peripheral(
    _ peripheral: CBPeripheral, didUpdateNotificationStateFor characteristic: CBCharacteristic, error: (any Error)?
  ) { note() }
  func peripheral(
    _ peripheral: CBPeripheral, didDiscoverDescriptorsFor characteristic: CBCharacteristic, error: (any Error)?
  ) { note() }
  func peripheral(_ peripheral: CBPeripheral, didUpdateValueFor descriptor: CBDescriptor, error: (any Error)?) {
    note("descriptor")
  }
  func peripheral(_ peripheral: CBPeripheral, didWriteValueFor descriptor: CBDescriptor, error: (any Error)?) {
    note("written descriptor")
  }
  func peripheralIsReady(toSendWriteWithoutResponse peripheral: CBPeripheral) { note() }
  func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) { note() }
}

final class EveryPeripheralManagerCall: Witness, CBPeripheralManagerDelegate {
  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) { note() }
  func peripheralManager(_ peripheral: CBPeripheralManager, willRestoreState dict: [String: Any]) { note() }
  func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) { note() }
  func peripheralManager(_ peripheral: CBPeripheralManager, didAdd service: CBService, error: (any Error)?) { note() }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didSubscribeTo characteristic: CBCharacteristic
  ) { note() }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, central: CBCentral, didUnsubscribeFrom characteristic: CBCharacteristic
  ) { note() }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveRead request: CBATTRequest) { note() }
  func peripheralManager(_ peripheral: CBPeripheralManager, didReceiveWrite requests: [CBATTRequest]) { note() }
  func peripheralManagerIsReady(toUpdateSubscribers peripheral: CBPeripheralManager) { note() }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) { note() }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) { note() }
  func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
    note()
  }
}

/// The minimal delegates that compile.
final class LeastDelegate: NSObject, CBCentralManagerDelegate, CBPeripheralManagerDelegate, CBPeripheralDelegate {
  func centralManagerDidUpdateState(_ central: CBCentralManager) {}
  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {}
}
