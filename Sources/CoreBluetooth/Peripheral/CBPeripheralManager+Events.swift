import BindruneBroker
import Foundation

// How a peripheral manager handles its session's events, on its queue: it changes properties under the lock, and then
// calls its delegate without it.

extension CBPeripheralManager {
  func handle(_ event: BrokerEvent) {
    switch event {
    case .adapter(let state): adapterChanged(state)
    case .restored(let state): restored(state)
    case .completed(let id, let result): completed(id, result)
    case .subscribed(let peer, let handle, let longestUpdate): subscribed(peer, handle, longestUpdate)
    case .unsubscribed(let peer, let handle): unsubscribed(peer, handle)
    case .longestUpdateChanged(let peer, let count):
      lock.withLock { centrals[peer]?.central }?.setLongestUpdate(count)
    case .readRequested(let id, let peer, let handle, let offset, let longestUpdate):
      readRequested(id, peer, handle, offset, longestUpdate)
    case .writeRequested(let id, let peer, let writes, let longestUpdate):
      writeRequested(id, peer, writes, longestUpdate)
    case .requestEnded(let id): lock.withLock { _ = unanswered.remove(id) }
    case .readyToUpdate(let peer): ready(peer)
    case .advertisingEnded(let error):
      change { advertising = .idle }
      Log.note(self, "is not advertising any more: \(error)")
    case .channelAccepted(let channel, let peer, let longestUpdate):
      // Without a delegate it closes.
      let opener = lock.withLock { central(peer, longestUpdate: longestUpdate) }
      delegate?.peripheralManager(self, didOpen: ChannelLine.open(channel, to: opener), error: nil)
    case .discovered, .scanFailed, .connected, .connectionFailed, .disconnected, .nameChanged, .longestWriteChanged,
      .servicesChanged, .values, .readyToWrite, .linkedPeers:
      break  // The central's.
    }
  }

  // MARK: State

  private func adapterChanged(_ new: AdapterState) {
    let state = CBManagerState(new)
    var isNews = false
    var dropped: [Adding] = [], gone: [Published] = [], startsDropped = 0
    var unheard: [OperationID: Listening] = [:]
    change {
      isNews = currentState != state
      adapter = new
      currentState = state
      guard new != .poweredOn else {
        guard case .paused(let advertisement) = advertising else { return }
        let id = nextID()
        advertising = .starting(id, advertisement)
        session.send(.startAdvertising(id, localName: advertisement.localName, services: advertisement.services))
        return
      }
      // Every link has ended, and no pending operation will complete.
      unanswered = []
      (unheard, listening) = (listening, [:])
      refusing = []
      for characteristic in characteristics.values { characteristic.removeSubscribers() }
      centrals = [:]
      (dropped, adding) = (adding, [])
      for service in dropped where service.error == nil { service.tree?.release() }
      switch advertising {
      case .on(let advertisement): advertising = .paused(advertisement)
      // The app does not expect an answer if this start was to resume advertising.
      case .starting(let id, let advertisement): advertising = starts.contains(id) ? .idle : .paused(advertisement)
      case .idle, .paused: break
      }
      (startsDropped, starts) = (starts.count, [])
      if state != .poweredOff {
        advertising = .idle
        for service in published { forget(service) }
        (gone, published) = (published, [])
      }
    }
    // Released without the lock: a subclass of the program's may do anything in its deinitialiser.
    withExtendedLifetime(gone) {}
    if isNews {
      if showsPowerAlert, state == .poweredOff { Log.note(self, "needs Bluetooth: \(new.why)") }
      delegate?.peripheralManagerDidUpdateState(self)
    }
    for service in dropped {
      let error = service.error ?? CBError(.unknown, "The service is not published: \(new.why)")
      delegate?.peripheralManager(self, didAdd: service.service, error: error)
    }
    for (_, request) in unheard.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
      report(request, CBError(.unknown, "The adapter accepts no channels: \(new.why)"))
    }
    for _ in 0..<startsDropped {
      let error = CBError(.unknown, "It is not advertised: \(new.why)")
      delegate?.peripheralManagerDidStartAdvertising(self, error: error)
    }
  }

  /// The first event of a manager that was preserved.
  private func restored(_ state: RestoredState) {
    var known: [String: Any] = [:]
    let services = restoredServices(state.services)
    if !services.isEmpty { known[CBPeripheralManagerRestoredStateServicesKey] = services }
    if let advertisement = state.advertisement {
      change { advertising = .on(Advertisement(localName: advertisement.localName, services: advertisement.services)) }
      var data: [String: Any] = [:]
      data[CBAdvertisementDataLocalNameKey] = advertisement.localName
      if !advertisement.services.isEmpty {
        data[CBAdvertisementDataServiceUUIDsKey] = advertisement.services.map { CBUUID($0) }
      }
      known[CBPeripheralManagerRestoredStateAdvertisementDataKey] = data
    }
    delegate?.peripheralManager(self, willRestoreState: known)
  }
  /// New objects for services that are published already, with their subscribers.
  private func restoredServices(_ restored: [RestoredState.Published]) -> [CBMutableService] {
    var made: [AttributeHandle: CBMutableService] = [:]
    for restored in restored {
      let service = CBMutableService(
        restored.description, including: restored.description.includes.compactMap { made[$0] })
      made[restored.published.handle] = service
      guard let tree = try? ServiceTree(service), tree.claim(for: self) else { continue }
      lock.withLock {
        published.append(Published(tree: tree, handle: restored.published.handle))
        for (characteristic, place) in zip(tree.characteristics, restored.published.characteristics) {
          characteristic.publish(at: place.value)
          characteristics[place.value] = characteristic
        }
        for subscription in restored.subscriptions {
          let central = central(subscription.central, longestUpdate: subscription.longestUpdate)
          central.port = session.port(.notification, of: subscription.central)
          _ = characteristics[subscription.handle]?.addSubscriber(central, central.port)
        }
      }
    }
    return restored.compactMap { made[$0.published.handle] }
  }

  // MARK: Answers

  private func completed(_ id: OperationID, _ result: Result<BrokerAnswer, BluetoothError>) {
    if let request = lock.withLock({ listening.removeValue(forKey: id) }) {
      return report(request, result)
    }
    let (isRequested, isStarting) = lock.withLock {
      let isRequested = starts.remove(id) != nil
      if case .starting(id, _) = advertising { return (isRequested, true) }
      return (isRequested, false)
    }
    guard isRequested || isStarting else { return added(id, result) }
    let error = advertisingStarted(id, result)
    if isRequested {
      delegate?.peripheralManagerDidStartAdvertising(self, error: error)
    } else if let error {
      // It was to resume with the adapter: the app has not called `startAdvertising` for it.
      Log.note(self, "is not advertising any more: \(error.localizedDescription)")
    }
  }
  /// Nil: advertising has started.
  private func advertisingStarted(_ id: OperationID, _ result: Result<BrokerAnswer, BluetoothError>) -> (any Error)? {
    change {
      guard case .starting(id, let advertisement) = advertising else {
        return CBError(.operationCancelled, "Advertising was stopped before it began.")
      }
      if case .failure(let error) = result {
        advertising = .idle
        return error.facade
      }
      advertising = .on(advertisement)
      return nil
    }
  }

  // MARK: Channels

  private func report(_ request: Listening, _ result: Result<BrokerAnswer, BluetoothError>) {
    switch (request, result) {
    case (.publishing, .success(let answer)):
      guard case .psm(let psm) = answer else { return }
      delegate?.peripheralManager(self, didPublishL2CAPChannel: psm, error: nil)
    case (.unpublishing(let psm), .success):
      delegate?.peripheralManager(self, didUnpublishL2CAPChannel: psm, error: nil)
    case (let request, .failure(let error)): report(request, error.facade)
    }
  }
  private func report(_ request: Listening, _ error: any Error) {
    switch request {
    case .publishing: delegate?.peripheralManager(self, didPublishL2CAPChannel: 0, error: error)
    case .unpublishing(let psm): delegate?.peripheralManager(self, didUnpublishL2CAPChannel: psm, error: error)
    }
  }

  // MARK: Services

  /// Sends the next service to the session, unless one is being published. With the lock held.
  func publishNext() {
    guard let first = adding.first, !first.isSent else { return }
    adding[0].isSent = true
    let id = first.id
    if let description = describe(first) {
      session.send(.addService(id, description))
    } else {
      inTurn { $0.added(id, .failure(BluetoothError(.invalidArgument, "It cannot be published."))) }
    }
  }
  /// Nil: it cannot be published, and its error says why.
  private func describe(_ first: Adding) -> ServiceDescription? {
    guard first.error == nil, let tree = first.tree, var description = first.description else { return nil }
    for service in tree.included {
      guard let other = published.first(where: { $0.tree.service === service }) else {
        adding[0].error = .invalid(
          "The service \(first.service.uuid) includes \(service.uuid), which is not published here: add that first.")
        tree.release()
        return nil
      }
      description.includes.append(other.handle)
    }
    return description
  }

  private func added(_ id: OperationID, _ result: Result<BrokerAnswer, BluetoothError>) {
    let outcome: (service: CBMutableService, error: (any Error)?)? = lock.withLock {
      guard let first = adding.first, first.id == id else {
        // It was removed while the adapter published it.
        if case .success(.published(let place)) = result { session.send(.removeService(place.handle)) }
        return nil
      }
      adding.removeFirst()
      defer { publishNext() }
      switch (result, first.tree) {
      case (.success(.published(let place)), let tree?):
        if let error = first.error {
          session.send(.removeService(place.handle))
          return (first.service, error)
        }
        published.append(Published(tree: tree, handle: place.handle))
        for (characteristic, found) in zip(tree.characteristics, place.characteristics) {
          characteristic.publish(at: found.value)
          characteristics[found.value] = characteristic
        }
        return (first.service, nil)
      case (.failure(let error), _):
        if first.error == nil { first.tree?.release() }
        return (first.service, first.error ?? error.facade)
      default:
        if first.error == nil { first.tree?.release() }
        return (first.service, first.error ?? CBError(.unknown))
      }
    }
    guard let outcome else { return }
    delegate?.peripheralManager(self, didAdd: outcome.service, error: outcome.error)
  }

  // MARK: Centrals

  /// With the lock held. The same object for as long as the program holds it; a characteristic holds its subscribers.
  private func central(_ peer: UUID, longestUpdate: Int) -> CBCentral {
    if let central = centrals[peer]?.central {
      central.setLongestUpdate(longestUpdate)
      return central
    }
    let central = CBCentral(identifier: peer, longestUpdate: longestUpdate)
    centrals = centrals.filter { $0.value.central != nil }
    centrals[peer] = WeakCentral(central: central)
    return central
  }

  private func subscribed(_ peer: UUID, _ handle: AttributeHandle, _ longestUpdate: Int) {
    let port = session.port(.notification, of: peer)
    let new: (CBCentral, CBMutableCharacteristic)? = lock.withLock {
      guard let characteristic = characteristics[handle] else { return nil }
      let central = central(peer, longestUpdate: longestUpdate)
      central.port = port
      return characteristic.addSubscriber(central, port) ? (central, characteristic) : nil
    }
    if let (central, characteristic) = new {
      delegate?.peripheralManager(self, central: central, didSubscribeTo: characteristic)
    }
  }

  private func unsubscribed(_ peer: UUID, _ handle: AttributeHandle) {
    let (old, isReady): ((CBCentral, CBMutableCharacteristic)?, Bool) = lock.withLock {
      let central = centrals[peer]?.central, characteristic = characteristics[handle]
      var old: (CBCentral, CBMutableCharacteristic)?
      if let central, let characteristic, characteristic.removeSubscriber(central) { old = (central, characteristic) }
      let isSubscribed = characteristics.values.contains { $0.subscribedCentrals?.contains { $0 === central } == true }
      // Without a subscription the central's port may be gone with its link, and would never be ready.
      return (old, !isSubscribed && refusing.remove(peer) != nil && refusing.isEmpty)
    }
    if let (central, characteristic) = old {
      delegate?.peripheralManager(self, central: central, didUnsubscribeFrom: characteristic)
    }
    if isReady { delegate?.peripheralManagerIsReady(toUpdateSubscribers: self) }
  }

  // MARK: Requests

  private func readRequested(
    _ id: ServerRequest, _ peer: UUID, _ handle: AttributeHandle, _ offset: Int, _ longestUpdate: Int
  ) {
    let request: CBATTRequest? = lock.withLock {
      guard let characteristic = characteristics[handle] else { return nil }
      unanswered.insert(id)
      return CBATTRequest(
        from: central(peer, longestUpdate: longestUpdate), for: characteristic, offset: offset, value: nil,
        answer: ExpectedAnswer(id, of: peer, isRead: true, from: self))
    }
    guard let request else { return session.send(.reject(id, central: peer, .invalidHandle)) }
    guard let delegate else { return respond(to: request, withResult: .requestNotSupported) }
    delegate.peripheralManager(self, didReceiveRead: request)
  }

  private func writeRequested(_ id: ServerRequest, _ peer: UUID, _ writes: [ServerWrite], _ longestUpdate: Int) {
    let requests: [CBATTRequest] = lock.withLock {
      let targets = writes.compactMap { characteristics[$0.handle] }
      guard targets.count == writes.count, !writes.isEmpty else { return [] }
      unanswered.insert(id)
      let central = central(peer, longestUpdate: longestUpdate)
      let answer = ExpectedAnswer(id, of: peer, isRead: false, from: self)
      return zip(writes, targets).enumerated().map { index, part in
        CBATTRequest(
          from: central, for: part.1, offset: part.0.offset, value: part.0.value, answer: answer, isFirst: index == 0)
      }
    }
    guard let first = requests.first else { return session.send(.reject(id, central: peer, .invalidHandle)) }
    guard let delegate else { return respond(to: first, withResult: .requestNotSupported) }
    delegate.peripheralManager(self, didReceiveWrite: requests)
  }

  /// The program has released the requests, and can respond no more.
  func requestReleased(_ id: ServerRequest, of central: UUID, isReported: Bool) {
    guard lock.withLock({ unanswered.remove(id) != nil }) else { return }
    if isReported {
      Log.misuse(self, "has released a request without responding: the central receives unlikelyError.")
    }
    session.send(.reject(id, central: central, .unlikelyError))
  }

  // MARK: Updates

  /// With the lock held, so that what has been found to have room still has it when the value is offered.
  func send(
    _ value: Data, at handle: AttributeHandle, to subscribers: [CBMutableCharacteristic.Subscriber],
    of chosen: [CBCentral]?
  ) -> Bool {
    let octets = value.span
    // To look at a central, to which the manager has a weak reference, costs as much as the offer.
    if subscribers.count == 1, chosen == nil {
      guard subscribers[0].port?.offer(octets, to: handle) == false else { return true }
      refusing.insert(subscribers[0].central.identifier)
      return false
    }
    func isMeant(_ subscriber: CBMutableCharacteristic.Subscriber) -> Bool {
      chosen?.contains { $0 === subscriber.central } ?? true
    }
    let count = min(octets.count, 512)
    var isRefused = false
    // One refusal of several is found before anything is sent.
    if subscribers.count > 1 {
      for subscriber in subscribers where isMeant(subscriber) {
        guard let port = subscriber.port, !port.hasRoom(for: count + port.costOfValue) else { continue }
        refusing.insert(subscriber.central.identifier)
        isRefused = true
      }
      if isRefused { return false }
    }
    for subscriber in subscribers where isMeant(subscriber) {
      guard let port = subscriber.port, !port.offer(octets, to: handle) else { continue }
      refusing.insert(subscriber.central.identifier)
      isRefused = true
    }
    return !isRefused
  }

  private func ready(_ peer: UUID) {
    if lock.withLock({ refusing.remove(peer) != nil && refusing.isEmpty }) {
      delegate?.peripheralManagerIsReady(toUpdateSubscribers: self)
    }
  }
}
