package import BindruneBroker
public import Foundation

/// This machine as a peripheral: publishes services, advertises them, answers centrals and sends them updates.
///
/// The manager calls its delegate on its queue, in the order of the events. A call that cannot be carried out does not
/// end the program: the delegate receives an error where it has a method for that, and a line on standard error says
/// so.
///
/// | in a state other than `poweredOn` | |
/// |---|---|
/// | `add`, `startAdvertising` | answered with `CBError.unknown`, which says what is in the way |
/// | `updateValue` | false, and nothing follows |
/// | the others | a line on standard error |
///
/// Below `poweredOn` advertising pauses, and resumes by itself at the next `poweredOn`. Below `poweredOff` it ends, and
/// the published services are gone: add them again.
open class CBPeripheralManager: CBManager, @unchecked Sendable {
  // Sendable: everything that changes is guarded by the lock.

  /// The contents of an advertisement.
  struct Advertisement {
    var localName: String?
    var services: [BluetoothUUID] = []
  }
  enum Advertising {
    case idle
    case starting(OperationID, Advertisement)
    case on(Advertisement)
    /// The adapter is switched off.
    case paused(Advertisement)

    var isOn: Bool { if case .on = self { true } else { false } }
  }
  /// A service that is being published. One at a time: a service that includes another needs its handle.
  struct Adding {
    let id: OperationID
    let service: CBMutableService
    let tree: ServiceTree?
    var description: ServiceDescription?
    /// Why it is not published.
    var error: CBError?
    var isSent = false
  }
  struct Published {
    let tree: ServiceTree
    let handle: AttributeHandle
  }

  let delivery: Delivery
  let session: any BrokerSession
  let showsPowerAlert: Bool
  private weak var currentDelegate: (any CBPeripheralManagerDelegate)?
  private var lastID: UInt64 = 0

  // Guarded by the lock, under which the requests that follow from them are sent too: so the session gets these in the
  // order of the changes. The lock also orders the accesses: release builds do not check this one's for overlaps.
  #if !DEBUG
    @exclusivity(unchecked)
  #endif
  @safe var adapter = AdapterState.unknown
  var advertising = Advertising.idle
  /// Calls of `startAdvertising` that have not been answered.
  var starts: Set<OperationID> = []
  var adding: [Adding] = []
  var published: [Published] = []
  var characteristics: [AttributeHandle: CBMutableCharacteristic] = [:]
  /// The objects that the program still holds: see `central(_:longestUpdate:)`.
  var centrals: [UUID: WeakCentral] = [:]
  /// Requests of centrals that the program has not responded to.
  var unanswered: Set<ServerRequest> = []
  /// Requests to publish and unpublish channels that have not been answered.
  var listening: [OperationID: Listening] = [:]
  enum Listening {
    case publishing
    case unpublishing(CBL2CAPPSM)
  }
  /// Centrals for which `updateValue` has found no room: `peripheralManagerIsReady` waits for all of them.
  var refusing: Set<UUID> = []
  struct WeakCentral { weak var central: CBCentral? }

  /// A manager without a delegate, on the main queue.
  public convenience override init() { self.init(delegate: nil, queue: nil, options: nil) }
  /// `queue` nil: the main queue.
  public convenience init(delegate: (any CBPeripheralManagerDelegate)?, queue: DispatchQueue?) {
    self.init(delegate: delegate, queue: queue, options: nil)
  }
  /// `queue` nil: the main queue. `options`: `CBPeripheralManagerOptionShowPowerAlertKey`, a Bool: says on standard
  /// error that Bluetooth is off, if it is; `CBPeripheralManagerOptionRestoreIdentifierKey`, a String: the manager
  /// outlives the process, see `peripheralManager(_:willRestoreState:)`; `CBManagerOptionAdapterKey`, a String: which
  /// adapter. Values of other types are ignored.
  public init(delegate: (any CBPeripheralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil) {
    (delivery, session) = Delivery.opened(on: queue, options, for: .peripheral)
    showsPowerAlert = options?.bool(CBPeripheralManagerOptionShowPowerAlertKey) ?? false
    super.init()
    currentDelegate = delegate
    delivery.start(delegate: { [weak self] in self?.delegate }) { [weak self] event, _ in self?.handle(event) }
  }
  /// Over a session of the caller's, which puts its events into that queue.
  package convenience init(
    delegate: (any CBPeripheralManagerDelegate)?, queue: DispatchQueue?, options: [String: Any]? = nil,
    session open: @escaping (EventQueue) -> any BrokerSession
  ) {
    self.init(delegate: delegate, queue: queue, options: SessionOpener(open).added(to: options))
  }
  deinit {
    delivery.close()
    session.close()
    // What it has published is free again.
    for service in published { service.tree.release() }
    for service in adding where service.error == nil { service.tree?.release() }
  }

  open weak var delegate: (any CBPeripheralManagerDelegate)? {
    get { lock.withLock { currentDelegate } }
    set {
      lock.withLock { currentDelegate = newValue }
      delivery.delegateChanged()
    }
  }

  /// Whether the program may share data. Linux does not ask the user; missing permissions are the state `unauthorized`.
  @available(*, deprecated, message: "use CBManager.authorization")
  open class func authorizationStatus() -> CBPeripheralManagerAuthorizationStatus { .authorized }

  // MARK: Services

  /// Publishes a service with its characteristics and descriptors; `peripheralManager(_:didAdd:error:)` reports the
  /// result. Add the services that it includes before. More than one service may have the same UUID.
  ///
  /// Errors: `invalidParameters` for a tree that breaks a rule, which the error names, `uuidNotAllowed` for the
  /// services of the adapter itself, `outOfSpace`, `operationCancelled` for a service removed before it was published,
  /// and `unknown` in a state other than `poweredOn`.
  open func add(_ service: CBMutableService) {
    lock.withLock {
      let id = nextID()
      do throws(CBError) {
        try checkPower()
        let tree = try ServiceTree(service)
        guard tree.claim(for: self) else {
          throw .invalid(
            "The service \(service.uuid), or one of its characteristics, is published already: remove it first.")
        }
        do throws(CBError) {
          adding.append(Adding(id: id, service: service, tree: tree, description: try tree.describe()))
        } catch {
          tree.release()
          throw error
        }
      } catch {
        adding.append(Adding(id: id, service: service, tree: nil, description: nil, error: error))
      }
      publishNext()
    }
  }

  /// Removes a service of this manager from the database. A service that another one includes stays: remove the other
  /// first.
  open func remove(_ service: CBMutableService) {
    let (removed, misuse): (Published?, String?) = lock.withLock {
      if let misuse = powerMisuse { return (nil, misuse) }
      let waiting = adding.filter { $0.error == nil }.compactMap(\.tree)
      if let user = (waiting + published.map(\.tree)).first(where: { $0.included.contains { $0 === service } }) {
        return (nil, "cannot remove the service \(service.uuid): \(user.service.uuid) includes it, remove that first.")
      }
      if let index = adding.lastIndex(where: { $0.service === service && $0.error == nil }) {
        cancelAdding(index)
        return (nil, nil)
      }
      guard let index = published.firstIndex(where: { $0.tree.service === service }) else {
        return (nil, "cannot remove the service \(service.uuid): it has not been added here.")
      }
      let removed = published.remove(at: index)
      forget(removed)
      session.send(.removeService(removed.handle))
      return (removed, nil)
    }
    if let misuse { Log.misuse(self, misuse) }
    // Released without the lock: a subclass of the program's may do anything in its deinitialiser.
    withExtendedLifetime(removed) {}
  }

  /// Removes all services of this manager from the database.
  open func removeAllServices() {
    let (removed, misuse): ([Published], String?) = lock.withLock {
      if let misuse = powerMisuse { return ([], misuse) }
      for index in adding.indices where adding[index].error == nil { cancelAdding(index) }
      for service in published { forget(service) }
      session.send(.removeAllServices)
      defer { published = [] }
      return (published, nil)
    }
    if let misuse { Log.misuse(self, misuse) }
    // Released without the lock: a subclass of the program's may do anything in its deinitialiser.
    withExtendedLifetime(removed) {}
  }

  // MARK: Advertising

  /// Advertises: `CBAdvertisementDataLocalNameKey`, a String, and `CBAdvertisementDataServiceUUIDsKey`, an array of
  /// CBUUIDs. Other keys are ignored. `peripheralManagerDidStartAdvertising(_:error:)` reports the result.
  ///
  /// Errors: `alreadyAdvertising`, `invalidParameters` for a value of another type, `operationCancelled` if it was
  /// stopped before it began, and `unknown` in a state other than `poweredOn`.
  open func startAdvertising(_ advertisementData: [String: Any]?) {
    let supported = [CBAdvertisementDataLocalNameKey, CBAdvertisementDataServiceUUIDsKey]
    for key in (advertisementData ?? [:]).keys.sorted() where !supported.contains(key) {
      Log.misuse(self, "does not advertise \(key): it can advertise the local name and service UUIDs.")
    }
    let error: CBError? = lock.withLock {
      do throws(CBError) {
        try checkPower()
        guard case .idle = advertising else {
          throw CBError(.alreadyAdvertising, "Advertising is on already: stop it first.")
        }
        let id = nextID(), advertisement = try Advertisement(advertisementData ?? [:])
        advertising = .starting(id, advertisement)
        starts.insert(id)
        session.send(.startAdvertising(id, localName: advertisement.localName, services: advertisement.services))
        return nil
      } catch {
        return error
      }
    }
    if let error { inTurn { $0.delegate?.peripheralManagerDidStartAdvertising($0, error: error) } }
  }

  /// Stops advertising. Connections continue.
  open func stopAdvertising() {
    let misuse: String? = change {
      defer { advertising = .idle }
      switch advertising {
      case .idle: return powerMisuse
      // A paused advertisement is not on the adapter.
      case .paused: return nil
      case .starting, .on:
        session.send(.stopAdvertising)
        return powerMisuse
      }
    }
    if let misuse { Log.misuse(self, misuse) }
  }

  /// From the success of `startAdvertising` until it is stopped, except while the adapter is off.
  open var isAdvertising: Bool { lock.withLock { advertising.isOn } }

  // MARK: Centrals

  /// Requests another connection interval, which the central may refuse. Core Specification, Vol 3, Part A, §4.20.
  open func setDesiredConnectionLatency(_ latency: CBPeripheralManagerConnectionLatency, for central: CBCentral) {
    if let misuse = lock.withLock({ powerMisuse }) { return Log.misuse(self, misuse) }
    let wish: ConnectionLatency =
      switch latency {
      case .low: .low
      case .medium: .medium
      case .high: .high
      @unknown default: .medium
      }
    session.send(.setDesiredLatency(central.identifier, wish))
  }

  /// Answers a read, with the request's `value`, or all the writes that came together. Respond exactly once, and to the
  /// first of several writes; a response to another of them counts as one to the first. A second response, and one to
  /// another manager's request, are lines on standard error, and the central receives nothing. The manager answers
  /// requests that the program releases without a response with `unlikelyError`.
  open func respond(to request: CBATTRequest, withResult result: CBATTError.Code) {
    guard request.answer.isFrom(self) else {
      return Log.misuse(self, "cannot respond to a request of another manager: \(request)")
    }
    guard lock.withLock({ unanswered.remove(request.answer.id) != nil }) else {
      return Log.misuse(
        self,
        "has responded already, or the central has disconnected or waited too long: respond once, within 25 s: \(request)"
      )
    }
    if !request.isFirst { Log.misuse(self, "should respond to the first request of the array: \(request)") }
    let answer = request.answer
    if result != .success {
      let error = ATTError(rawValue: UInt8(truncatingIfNeeded: result.rawValue))
      session.send(.reject(answer.id, central: answer.central, error))
    } else {
      session.send(.respond(answer.id, central: answer.central, answer.isRead ? request.value ?? Data() : nil))
    }
  }

  /// Sends a value to those of `centrals` that have subscribed, or to all that have, as each has subscribed: by
  /// notification or indication. Core Specification, Vol 3, Part G, §4.10 and §4.11.
  ///
  /// True: it is on its way, to as many as there are, cut for each to its `maximumUpdateValueLength`. False: there is
  /// no room for one of them, and nobody gets it; `peripheralManagerIsReady(toUpdateSubscribers:)` is called once when
  /// there is. False, too, and without that call: the characteristic is not published here, or the state is not
  /// `poweredOn`, or falls below it before there is room.
  ///
  /// The characteristic's `value` stays as it is: it is the program's own. From any thread.
  @discardableResult
  open func updateValue(
    _ value: Data, for characteristic: CBMutableCharacteristic, onSubscribedCentrals centrals: [CBCentral]?
  ) -> Bool {
    let (isSent, misuse): (Bool, String?) = lock.withLock {
      guard case .poweredOn = adapter, let audience = characteristic.audience(of: self) else {
        let misuse = "cannot update the characteristic \(characteristic.uuid): it is not published here."
        return (false, powerMisuse ?? misuse)
      }
      return (send(value, at: audience.handle, to: audience.subscribers, of: centrals), nil)
    }
    if let misuse { Log.misuse(self, misuse) }
    return isSent
  }

  // MARK: L2CAP channels

  /// Accepts channels that centrals open, to a PSM that the adapter chooses among 0x0080 … 0x00FF:
  /// `peripheralManager(_:didPublishL2CAPChannel:error:)` reports it, and the app tells it to centrals, in the
  /// characteristic `CBUUIDL2CAPPSMCharacteristicString` for example. `peripheralManager(_:didOpen:error:)` brings each
  /// channel. Below `poweredOn` it ends: publish again. Core Specification, Vol 3, Part A, §4.22.
  ///
  /// With `encryptionRequired`, centrals that are not paired are asked to pair.
  open func publishL2CAPChannel(withEncryption encryptionRequired: Bool) {
    let error = listen(.publishing) { .publishChannel($0, isEncrypted: encryptionRequired) }
    if let error { inTurn { $0.delegate?.peripheralManager($0, didPublishL2CAPChannel: 0, error: error) } }
  }
  /// Accepts no more channels to this PSM; those that are open stay.
  open func unpublishL2CAPChannel(_ psm: CBL2CAPPSM) {
    let error = listen(.unpublishing(psm)) { .unpublishChannel($0, psm: psm) }
    if let error { inTurn { $0.delegate?.peripheralManager($0, didUnpublishL2CAPChannel: psm, error: error) } }
  }
  /// Nil: the answer follows.
  private func listen(_ request: Listening, _ make: (OperationID) -> BrokerRequest.Peripheral) -> CBError? {
    lock.withLock {
      do throws(CBError) { try checkPower() } catch { return error }
      let id = nextID()
      listening[id] = request
      session.send(make(id))
      return nil
    }
  }

  /// Calls the delegate on the queue, without an event of the session: see `Delivery.perform`.
  func inTurn(_ call: @escaping @Sendable (CBPeripheralManager) -> Void) {
    delivery.perform { [weak self] in
      if let self { call(self) }
    }
  }

  // MARK: With the lock held

  func nextID() -> OperationID {
    lastID += 1
    return OperationID(rawValue: lastID)
  }
  /// Why the manager accepts no call now; nil: it does.
  var powerMisuse: String? {
    adapter == .poweredOn ? nil : "can only accept this command while in the powered on state: \(adapter.why)"
  }
  private func checkPower() throws(CBError) {
    guard adapter != .poweredOn else { return }
    throw CBError(.unknown, "The peripheral manager is not powered on: \(adapter.why)")
  }
  /// The service is not published any more. Requests of centrals for it are refused.
  func forget(_ service: Published) {
    for characteristic in service.tree.characteristics {
      guard let (handle, _) = characteristic.audience(of: self) else { continue }
      characteristics[handle] = nil
    }
    service.tree.release()
  }
  /// `didAdd` reports an error. If the session publishes it all the same, it is removed then.
  private func cancelAdding(_ index: Int) {
    adding[index].error = CBError(.operationCancelled, "The service was removed before it was published.")
    adding[index].tree?.release()
  }
}

extension CBPeripheralManager.Advertisement {
  init(_ data: [String: Any]) throws(CBError) {
    self.init()
    if let name = data[CBAdvertisementDataLocalNameKey] {
      guard let name = name as? String else {
        throw .invalid("The local name to advertise is not a String.")
      }
      localName = name
    }
    if let uuids = data[CBAdvertisementDataServiceUUIDsKey] {
      guard let uuids = uuids as? [CBUUID] else {
        throw .invalid("The service UUIDs to advertise are not an array of CBUUIDs.")
      }
      services = uuids.map(\.uuid)
    }
  }
}

extension AdapterState {
  /// One sentence with the cause and the remedy.
  var why: String { hindrance ?? "The state is not known yet: wait for peripheralManagerDidUpdateState." }
}
