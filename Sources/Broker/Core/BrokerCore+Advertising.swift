// What sessions advertise, packed as Core Bluetooth does it: each in an advertising set of its own (Vol 4, Part E,
// §7.8.53) while the controller has one left, the others together in the last one. A controller without sets has one
// for all. What a session wants to advertise lasts while its app's life forbids it, and is on the air again afterwards.

extension BrokerCore {
  mutating func startAdvertising(
    _ operation: OperationID, _ localName: String?, _ services: [BluetoothUUID], of session: SessionID
  ) {
    guard serving.advertising[session] == nil else {
      return complete(
        operation, of: session,
        .failure(BluetoothError(.busy, "This session advertises already: stop that first.")))
    }
    let name = localName.flatMap { $0.isEmpty ? nil : $0 }
    serving.advertisers.append(session)
    serving.advertising[session] = Serving.Advertising(
      data: AdvertisingData(localName: name, serviceUUIDs: services), operation: operation)
    arrangeAdvertising()
  }
  mutating func stopAdvertising(of session: SessionID) {
    guard let advertising = forgetAdvertising(of: session) else { return }
    arrangeAdvertising()
    guard let operation = advertising.operation else { return }
    complete(
      operation, of: session,
      .failure(BluetoothError(.cancelled, "Advertising was stopped before it began.")))
  }
  private mutating func forgetAdvertising(of session: SessionID) -> Serving.Advertising? {
    serving.advertisers.removeAll { $0 == session }
    return serving.advertising.removeValue(forKey: session)
  }

  /// Makes the host advertise as the sessions want and the lives of their apps allow.
  mutating func arrangeAdvertising() {
    guard case .running = phase else { return }
    var sources: [AdvertisingSetID: [AdvertisingPacker.Source]] = [:], isForeground = false
    for session in serving.advertisers where permission(.peripheral, of: session) == .none {
      serving.advertising[session]?.set = nil
    }
    for session in serving.advertisers {
      let permission = permission(.peripheral, of: session)
      guard permission != .none, let advertising = serving.advertising[session] else { continue }
      let set = advertising.set ?? setForNewcomer()
      serving.advertising[session]?.set = set
      sources[set, default: []].append(.init(advertising.data, isInBackground: permission == .inBackground))
      if permission == .full { isForeground = true }
    }
    // More rarely if nobody in the foreground advertises (S33). It continues when a central has connected.
    let parameters = AdvertisingParameters(
      policy: .coreBluetooth, interval: isForeground || sources.isEmpty ? .balanced : .background)
    for set in serving.sets.keys.sorted(by: { $0.rawValue < $1.rawValue }) where sources[set] == nil {
      serving.sets[set] = nil
      command(.stopAdvertising(set))
    }
    for (set, sources) in sources.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
      let wanted = Serving.AdvertisedSet(sources: sources, parameters: parameters)
      if serving.sets[set] == wanted { continue }
      serving.sets[set] = wanted
      command(.advertise(set, sources, parameters))
    }
  }
  /// A new set, or the last one if the controller has no more.
  private mutating func setForNewcomer() -> AdvertisingSetID {
    let used = Set(serving.advertising.values.compactMap(\.set))
    guard used.count >= serving.mostSets, let last = used.max(by: { $0.rawValue < $1.rawValue }) else {
      return serving.newSet()
    }
    return last
  }

  mutating func advertisingStarted(_ set: AdvertisingSetID) {
    // Without an operation it has started again: after a connection, or with other data.
    for session in advertisers(of: set) {
      guard let operation = serving.advertising[session]?.operation.take() else { continue }
      complete(operation, of: session, .success(.done))
    }
  }
  /// Advertising did not begin, or ended without being stopped.
  mutating func advertisingEnded(_ set: AdvertisingSetID, _ error: BluetoothError) {
    guard serving.sets.removeValue(forKey: set) != nil else { return }
    for session in advertisers(of: set) {
      guard let advertising = forgetAdvertising(of: session) else { continue }
      if let operation = advertising.operation {
        complete(operation, of: session, .failure(error))
      } else {
        deliver(to: session, .advertisingEnded(error))
      }
    }
    arrangeAdvertising()
  }
  /// The host is gone, and advertising has ended with it. The adapter's state reports that; pending starts fail.
  mutating func endAdvertising(_ error: BluetoothError) {
    let ended = serving.advertising
    serving.advertising = [:]
    serving.advertisers = []
    serving.sets = [:]
    for session in sessions.ids {
      if let operation = ended[session]?.operation { complete(operation, of: session, .failure(error)) }
    }
  }
  private func advertisers(of set: AdvertisingSetID) -> [SessionID] {
    serving.advertisers.filter { serving.advertising[$0]?.set == set }
  }
}
