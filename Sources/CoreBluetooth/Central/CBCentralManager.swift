package import BindruneBroker
public import Foundation

/// Finds devices that advertise, and connects to them.
///
///     let central = CBCentralManager(delegate: self, queue: nil)
///     func centralManagerDidUpdateState(_ central: CBCentralManager) {
///       if central.state == .poweredOn { central.scanForPeripherals(withServices: [CBUUID(string: "180D")]) }
///     }
///
/// The adapter is the one that the environment or the configuration file names, or `CBManagerOptionAdapterKey`.
open class CBCentralManager: CBManager, @unchecked Sendable {
  /// Of iOS: the argument of `supports`.
  public struct Feature: OptionSet, Sendable {
    public let rawValue: UInt
    public init(rawValue: UInt) { self.rawValue = rawValue }
    /// Scanning for extended advertisements, and connecting to the devices that send them.
    public static let extendedScanAndConnect = Self(rawValue: 1)
  }

  let delivery: Delivery
  let session: any BrokerSession
  private let showsPowerAlert: Bool
  // Under the lock. A weak reference is loaded under it only to be returned: releasing the last reference there would
  // deadlock.
  private weak var currentDelegate: (any CBCentralManagerDelegate)?
  var scanning = false
  private var peripherals: [UUID: Known] = [:]
  private var lastSerial: UInt64 = 0
  /// Peripherals of devices that `connect` got as another manager's peripheral: until the connection ends.
  private var kept: [UUID: CBPeripheral] = [:]
  /// The serial number of the peripheral that requested the link to a device.
  private var wishes: [UUID: UInt64] = [:]
  /// How many ends are outstanding of connections that were cancelled because the app released the peripheral. No
  /// delegate learns of them.
  private var abandonedEnds: [UUID: Int] = [:]
  private var requests: [OperationID: (peer: UUID, request: PeripheralRequest)] = [:]
  private var lastOperation: UInt64 = 0
  private var linked: [LinkedPeer] = []
  private var registration: ConnectionEventRegistration?
  /// While the delegate is told of it.
  private var ending: Ending?

  /// The app keeps the peripherals; the manager only finds them again.
  private struct Known {
    weak var peripheral: CBPeripheral?
    let serial: UInt64
  }

  /// A manager without a delegate, on the main queue.
  public convenience override init() { self.init(delegate: nil, queue: nil, options: nil) }
  /// The manager calls its delegate on `queue`; nil: the main queue.
  public convenience init(delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?) {
    self.init(delegate: delegate, queue: queue, options: nil)
  }
  /// The manager calls its delegate on `queue`; nil: the main queue. `options` have the keys `CBCentralManagerOption…`
  /// and `CBManagerOptionAdapterKey`.
  public init(delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil) {
    (delivery, session) = Delivery.opened(on: queue, options, for: .central)
    showsPowerAlert = options?.bool(CBCentralManagerOptionShowPowerAlertKey) ?? false
    super.init()
    currentDelegate = delegate
    delivery.start(delegate: { [weak self] in self?.delegate }) { [weak self] event, delivery in
      guard case .values(let peer, let handle, let values) = event else {
        self?.handle(event)
        return
      }
      // Without a reference to the manager: the app may release it within any of the calls.
      let peripheral = self?.known(peer)
      peripheral?.received(values, of: handle, during: delivery)
    }
  }
  /// Over the session that `open` returns. It puts its events into the queue that it is given.
  package convenience init(
    delegate: (any CBCentralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil,
    session open: @escaping (EventQueue) -> any BrokerSession
  ) {
    self.init(delegate: delegate, queue: queue, options: SessionOpener(open).added(to: options))
  }
  deinit {
    delivery.close()
    session.close()
    for peripheral in peripherals.values.compactMap(\.peripheral) { peripheral.lost(isValid: false) }
  }

  open weak var delegate: (any CBCentralManagerDelegate)? {
    get { lock.withLock { currentDelegate } }
    set {
      lock.withLock { currentDelegate = newValue }
      delivery.delegateChanged()
    }
  }
  /// Whether this manager scans.
  open var isScanning: Bool { lock.withLock { scanning } }
  /// Of iOS: false, because there is no adapter to ask before a manager has been made.
  open class func supports(_ features: Feature) -> Bool { features.isEmpty }

  // MARK: Known peripherals

  /// The peripherals with these identifiers, without those that no device can have. An identifier stands for the
  /// device's address, and is the same in every run of every program on this machine.
  open func retrievePeripherals(withIdentifiers identifiers: [UUID]) -> [CBPeripheral] {
    guard isPoweredOn("retrieve peripherals") else { return [] }
    return identifiers.filter { PeerID($0) != nil }.map(peripheral)
  }
  /// Devices that are connected to the adapter, by any manager or from their side, on which a manager has discovered
  /// one of the services. To use them, connect to them.
  open func retrieveConnectedPeripherals(withServices serviceUUIDs: [CBUUID]) -> [CBPeripheral] {
    guard isPoweredOn("retrieve connected peripherals") else { return [] }
    let wanted = Set(serviceUUIDs.map(\.uuid))
    let found = lock.withLock { linked.filter { !wanted.isDisjoint(with: $0.services) } }
    return found.map { found in
      let peripheral = peripheral(found.peer)
      if let name = found.name { peripheral.changeLink { $0.name = $0.name ?? name } }
      return peripheral
    }
  }

  // MARK: Scanning

  /// Starts a scan, instead of the one before.
  /// - Parameters:
  ///   - serviceUUIDs: devices that advertise one of these services; nil: every device.
  ///   - options: by the keys `CBCentralManagerScanOption…`. Values of other types are ignored.
  open func scanForPeripherals(withServices serviceUUIDs: [CBUUID]?, options: [String: Any]? = nil) {
    guard isPoweredOn("scan") else { return }
    let solicited = options?[CBCentralManagerScanOptionSolicitedServiceUUIDsKey] as? [CBUUID]
    let request = BrokerRequest.Central.scan(
      services: filter(serviceUUIDs) ?? [], solicitedServices: filter(solicited) ?? [],
      allowsDuplicates: options?.bool(CBCentralManagerScanOptionAllowDuplicatesKey) ?? false)
    change {
      scanning = true
      session.send(request)
    }
  }
  open func stopScan() {
    guard isPoweredOn("stop a scan") else { return }
    change {
      scanning = false
      session.send(.stopScan)
    }
  }

  // MARK: Connecting

  /// Connects to the device when it can be reached, without a time limit. To cancel this, call
  /// `cancelPeripheralConnection`, or release the peripheral.
  ///
  /// A peripheral of another manager stands for its device: the delegate gets this manager's own peripheral with that
  /// identifier, which the manager keeps until the connection ends.
  ///
  /// `options` have the keys `CBConnectPeripheralOption…`. A value of a wrong type is ignored.
  open func connect(_ peripheral: CBPeripheral, options: [String: Any]? = nil) {
    guard isPoweredOn("connect") else { return }
    let isForeign = peripheral.manager !== self
    guard let peripheral = own(peripheral), peripheral.withLink({ $0.isValid }) else {
      Log.misuse(self, "cannot connect \(peripheral), which it has not found since the adapter is on: find it again.")
      let error = CBError(.unknownDevice, "The device is not known to this manager: find or retrieve it with this one.")
      return delivery.perform { [weak self] in
        guard let self else { return }
        delegate?.centralManager(self, didFailToConnect: peripheral, error: error)
      }
    }
    var alerts = ConnectOptions.Alerts()
    if options?.bool(CBConnectPeripheralOptionNotifyOnConnectionKey) == true { alerts.insert(.connection) }
    if options?.bool(CBConnectPeripheralOptionNotifyOnDisconnectionKey) == true { alerts.insert(.disconnection) }
    if options?.bool(CBConnectPeripheralOptionNotifyOnNotificationKey) == true { alerts.insert(.notification) }
    let wish = ConnectOptions(
      startDelay: max(0, (options?[CBConnectPeripheralOptionStartDelayKey] as? NSNumber)?.doubleValue ?? 0),
      reconnects: options?.bool(CBConnectPeripheralOptionEnableAutoReconnect) ?? false, alerts: alerts)
    let isConnected = peripheral.change { () -> Bool in
      if isForeign { kept[peripheral.peer] = peripheral }
      if peripheral.link.state == .connected { return true }
      if peripheral.link.state == .disconnecting { peripheral.link.endsAhead += 1 }
      if peripheral.link.state != .connecting {
        peripheral.link.state = .connecting
        wishes[peripheral.peer] = peripheral.serial
        session.send(.connect(peripheral.peer, wish))  // under the lock, in the order of `wishes`
      }
      return false
    }
    guard isConnected else { return }
    delivery.perform { [weak self] in
      guard let self, peripheral.state == .connected else { return }
      delegate?.centralManager(self, didConnect: peripheral)
    }
  }
  /// Ends the connection for this app: the delegate learns of the end, without an error. The link itself ends when no
  /// app uses it any more.
  open func cancelPeripheralConnection(_ peripheral: CBPeripheral) {
    guard isPoweredOn("cancel a connection") else { return }
    let isOwn = peripheral.manager === self
    guard let peripheral = isOwn ? peripheral : known(peripheral.peer) else {
      return Log.misuse(self, "has not found \(peripheral).")
    }
    peripheral.change {
      guard [.connecting, .connected].contains(peripheral.link.state) else { return }
      peripheral.link.state = .disconnecting
      wishes[peripheral.peer] = nil
      session.send(.cancelConnection(peripheral.peer))
    }
  }
  /// The app has released the peripheral.
  func abandoned(_ peer: UUID, _ serial: UInt64, _ name: String) {
    let isCancelled = lock.withLock {
      if peripherals[peer]?.serial == serial { peripherals[peer] = nil }
      guard wishes[peer] == serial else { return false }
      wishes[peer] = nil
      requests = requests.filter { $0.value.peer != peer }
      abandonedEnds[peer, default: 0] += 1
      session.send(.cancelConnection(peer))
      return true
    }
    if isCancelled {
      Log.misuse(self, "cancels the connection of \(name), which the app has released: keep a reference to it.")
    }
  }

  /// Of iOS: from now on the delegate learns when one of the devices connects to this machine or disconnects, by
  /// whichever program or side.
  /// - Parameter options: nil: every device.
  open func registerForConnectionEvents(options: [CBConnectionEventMatchingOption: Any]? = nil) {
    let services = options?[.serviceUUIDs] as? [CBUUID], peers = options?[.peripheralUUIDs] as? [UUID]
    let registration = ConnectionEventRegistration(
      services: services.map { Set($0.map(\.uuid)) }, peers: peers.map(Set.init))
    lock.withLock { self.registration = registration }
  }

  // MARK: For peripherals

  /// The peripheral of a device: the existing object, or a new one.
  private func peripheral(_ peer: UUID) -> CBPeripheral {
    lock.withLock {
      if let known = peripherals[peer]?.peripheral { return known }
      lastSerial += 1
      let peripheral = CBPeripheral(peer, of: self, serial: lastSerial)
      peripherals[peer] = Known(peripheral: peripheral, serial: lastSerial)
      return peripheral
    }
  }
  /// Nil: it names no device.
  private func own(_ peripheral: CBPeripheral) -> CBPeripheral? {
    if peripheral.manager === self { return peripheral }
    return PeerID(peripheral.peer) == nil ? nil : self.peripheral(peripheral.peer)
  }
  private func known(_ peer: UUID) -> CBPeripheral? { lock.withLock { peripherals[peer]?.peripheral } }
  private func isPoweredOn(_ action: String) -> Bool {
    if state == .poweredOn { return true }
    Log.misuse(self, "cannot \(action) before it is powered on: wait for centralManagerDidUpdateState(_:).")
    return false
  }
  /// False: the peripheral is not connected, and nothing was asked.
  func begin(_ request: PeripheralRequest, on peripheral: CBPeripheral, _ make: (OperationID) -> BrokerRequest.Central)
    -> Bool
  {
    lock.withLock {
      guard peripheral.link.state == .connected else { return false }
      lastOperation += 1
      let id = OperationID(rawValue: lastOperation)
      requests[id] = (peripheral.peer, request)
      session.send(make(id))
      return true
    }
  }

  // MARK: Events of the session, on the queue

  private func handle(_ event: BrokerEvent) {
    switch event {
    case .adapter(let state): changed(state)
    case .restored(let state): restored(state)
    case .discovered(let found): discovered(found)
    case .scanFailed(let error):
      change { scanning = false }
      Log.note(self, "does not scan any more. \(error)")
    case .connected(let peer, let name, let longestWrite): connected(peer, name, longestWrite)
    case .connectionFailed(let peer, let error):
      guard let peripheral = ended(peer) else { return }
      delegate?.centralManager(self, didFailToConnect: peripheral, error: connecting(error))
    case .disconnected(let peer, let error, let isReconnecting, let seconds):
      disconnected(peer, error, isReconnecting, seconds)
    case .nameChanged(let peer, let name):
      guard let peripheral = known(peer) else { return }
      peripheral.changeLink { $0.name = name }
      peripheral.delegate?.peripheralDidUpdateName(peripheral)
    case .longestWriteChanged(let peer, let count): known(peer)?.withLink { $0.longestWrite = count }
    case .servicesChanged(let peer, let range): connectedPeripheral(peer)?.servicesChanged(range)
    case .values: break  // They go to the peripheral at once.
    case .readyToWrite(let peer):
      guard let peripheral = connectedPeripheral(peer) else { return }
      peripheral.delegate?.peripheralIsReady(toSendWriteWithoutResponse: peripheral)
    case .linkedPeers(let peers): linkedPeersChanged(peers)
    case .completed(let id, let result):
      guard let (peer, request) = lock.withLock({ requests.removeValue(forKey: id) }) else { return }
      known(peer)?.complete(request, result)
    case .subscribed, .unsubscribed, .longestUpdateChanged, .readRequested, .writeRequested, .requestEnded,
      .readyToUpdate, .advertisingEnded, .channelAccepted:
      break  // of the peripheral half
    }
  }
  private func connectedPeripheral(_ peer: UUID) -> CBPeripheral? {
    guard let peripheral = known(peer), peripheral.state == .connected else { return nil }
    return peripheral
  }

  /// Links and scans end with this state; the session reports none of them.
  private func changed(_ adapter: AdapterState) {
    let new = CBManagerState(adapter)
    guard new != state else { return }
    let isGone = new != .poweredOn && new != .poweredOff
    let lost = change { () -> [CBPeripheral] in
      currentState = new
      guard new != .poweredOn else { return [] }
      (scanning, requests, wishes, abandonedEnds, linked) = (false, [:], [:], [:], [])
      // With those of `kept`, so that none is released under the lock.
      let lost = peripherals.values.compactMap(\.peripheral)
      kept = [:]
      if isGone { peripherals = [:] }
      return lost
    }
    for peripheral in lost { peripheral.lost(isValid: !isGone) }
    if new == .poweredOff, showsPowerAlert, let why = adapter.hindrance { Log.note(self, "needs Bluetooth: \(why)") }
    delegate?.centralManagerDidUpdateState(self)
  }
  /// The first event of a manager that was preserved.
  private func restored(_ state: RestoredState) {
    var known: [String: Any] = [:]
    let peripherals = state.peers.map { peer in
      let peripheral = peripheral(peer.peer)
      peripheral.restore(peer)
      lock.withLock { wishes[peer.peer] = peripheral.serial }
      return peripheral
    }
    if !peripherals.isEmpty { known[CBCentralManagerRestoredStatePeripheralsKey] = peripherals }
    if let scan = state.scan {
      change { scanning = true }
      known[CBCentralManagerRestoredStateScanServicesKey] = scan.services.map { CBUUID($0) }
      var options: [String: Any] = [
        CBCentralManagerScanOptionAllowDuplicatesKey: NSNumber(value: scan.allowsDuplicates)
      ]
      if !scan.solicitedServices.isEmpty {
        options[CBCentralManagerScanOptionSolicitedServiceUUIDsKey] = scan.solicitedServices.map { CBUUID($0) }
      }
      known[CBCentralManagerRestoredStateScanOptionsKey] = options
    }
    delegate?.centralManager(self, willRestoreState: known)
    // The app that has kept none of them does not want them.
    withExtendedLifetime(peripherals) {}
  }
  private func discovered(_ found: DiscoveredPeer) {
    guard isScanning else { return }  // received before the scan was stopped
    let peripheral = peripheral(found.peer)
    if let name = found.name { peripheral.changeLink { $0.name = name } }
    delegate?.centralManager(
      self, didDiscover: peripheral, advertisementData: found.advertisementData,
      rssi: NSNumber(value: found.rssi ?? 127))
  }
  private func connected(_ peer: UUID, _ name: String?, _ longestWrite: Int) {
    guard let peripheral = known(peer), lock.withLock({ abandonedEnds[peer] == nil }) else { return }
    let isWanted = peripheral.changeLink { link in
      // Cancelled meanwhile: the end of the connection follows.
      guard link.state == .connecting, link.endsAhead == 0 else { return false }
      link.state = .connected
      link.longestWrite = longestWrite
      link.name = name ?? link.name
      return true
    }
    if isWanted { delegate?.centralManager(self, didConnect: peripheral) }
  }
  /// What the method of the delegate with the time of the end gets.
  struct Ending {
    let peripheral: CBPeripheral
    let seconds: Double
    let isReconnecting: Bool
  }
  /// The end that the manager reports now, if `delegate` is its delegate: once, because one that does not implement the
  /// older method gets the newer one instead.
  func takeEnding(of peripheral: CBPeripheral, for delegate: any CBCentralManagerDelegate) -> Ending? {
    guard self.delegate === delegate else { return nil }
    return lock.withLock {
      guard let ending, ending.peripheral === peripheral else { return nil }
      self.ending = nil
      return ending
    }
  }
  private func disconnected(_ peer: UUID, _ error: BluetoothError?, _ isReconnecting: Bool, _ seconds: Double) {
    let isCancelled = known(peer)?.withLink { $0.state == .disconnecting || $0.endsAhead > 0 } ?? false
    guard let peripheral = ended(peer, isReconnecting: isReconnecting) else { return }
    let error = isCancelled ? nil : error?.facade
    lock.withLock { ending = Ending(peripheral: peripheral, seconds: seconds, isReconnecting: isReconnecting) }
    delegate?.centralManager(self, didDisconnectPeripheral: peripheral, error: error)
    lock.withLock { ending = nil }
  }
  /// A link has ended, or could not be made. Returns the peripheral if the delegate is to learn of it.
  private func ended(_ peer: UUID, isReconnecting: Bool = false) -> CBPeripheral? {
    let peripheral = known(peer)
    let end = { [self] () -> Bool in
      if let ends = abandonedEnds[peer] {
        if !isReconnecting { abandonedEnds[peer] = ends > 1 ? ends - 1 : nil }
        return false
      }
      requests = requests.filter { $0.value.peer != peer }
      guard let peripheral, peripheral.link.state != .disconnected else { return false }
      peripheral.link.end()
      if isReconnecting {
        // Cancelled meanwhile: another end follows.
        if peripheral.link.state == .disconnecting || peripheral.link.endsAhead > 0 { return false }
        peripheral.link.state = .connecting
      } else if peripheral.link.endsAhead > 0 {
        peripheral.link.endsAhead -= 1
      } else {
        peripheral.link.state = .disconnected
        kept[peer] = nil  // `peripheral` still holds it here
        if wishes[peer] == peripheral.serial { wishes[peer] = nil }
      }
      return true
    }
    let isReported = peripheral?.change(end) ?? lock.withLock(end)
    return isReported ? peripheral : nil
  }
  private func connecting(_ error: BluetoothError) -> any Error {
    switch error.code {
    case .transport, .controller, .refused, .protocolViolation: CBError(.connectionFailed, error.diagnostics)
    default: error.facade
    }
  }
  private func linkedPeersChanged(_ peers: [LinkedPeer]) {
    let (before, registration) = lock.withLock {
      defer { linked = peers }
      return (linked, self.registration)
    }
    guard let registration else { return }
    for gone in before where registration.matches(gone) && !peers.contains(where: { $0.peer == gone.peer }) {
      delegate?.centralManager(self, connectionEventDidOccur: .peerDisconnected, for: peripheral(gone.peer))
    }
    // A device that matches only now that its services have been discovered is new to this app.
    for new in peers where registration.matches(new) {
      guard !before.contains(where: { $0.peer == new.peer && registration.matches($0) }) else { continue }
      delegate?.centralManager(self, connectionEventDidOccur: .peerConnected, for: peripheral(new.peer))
    }
  }
}

/// The devices of `registerForConnectionEvents`; nil: any service, any peer.
private struct ConnectionEventRegistration {
  var services: Set<BluetoothUUID>?
  var peers: Set<UUID>?
  func matches(_ peer: LinkedPeer) -> Bool {
    services.map { !$0.isDisjoint(with: peer.services) } ?? true && peers?.contains(peer.peer) ?? true
  }
}

extension CBPeripheral {
  /// The adapter or the manager is gone, and all links with it. The delegate gets no event for each link.
  func lost(isValid: Bool) {
    changeLink { link in
      link.state = .disconnected
      link.endsAhead = 0
      link.isValid = link.isValid && isValid
      link.end()
    }
  }
}

extension [String: Any] {
  /// A flag; a value that is not a number is ignored.
  func bool(_ key: String) -> Bool? { (self[key] as? NSNumber)?.boolValue }
}

extension DiscoveredPeer {
  /// With Apple's keys and types. There is a key only for what was advertised.
  ///
  /// A key has one value, as on Apple's systems since iOS 16.4: that of the advertisement, else the scan response's; of
  /// several in one of them the first. Earlier versions of iOS concatenated manufacturer data of both, which a program
  /// cannot take apart.
  var advertisementData: [String: Any] {
    var data: [String: Any] = [CBAdvertisementDataIsConnectable: NSNumber(value: isConnectable)]
    data[CBAdvertisementDataLocalNameKey] = localName
    data[CBAdvertisementDataManufacturerDataKey] = manufacturerData
    data[CBAdvertisementDataTxPowerLevelKey] = txPower.map { NSNumber(value: $0) }
    for (key, uuids) in [
      (CBAdvertisementDataServiceUUIDsKey, services), (CBAdvertisementDataOverflowServiceUUIDsKey, overflowServices),
      (CBAdvertisementDataSolicitedServiceUUIDsKey, solicitedServices),
    ] where !uuids.isEmpty {
      data[key] = uuids.map { CBUUID($0) }
    }
    if !serviceData.isEmpty {
      data[CBAdvertisementDataServiceDataKey] = Dictionary(
        uniqueKeysWithValues: serviceData.map { (CBUUID($0.key), $0.value) })
    }
    return data
  }
}
