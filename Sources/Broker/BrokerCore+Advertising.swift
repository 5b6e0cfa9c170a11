// What sessions advertise: each its own advertising set (Vol 4, Part E, §7.8.53), packed as Core Bluetooth does it. A controller
// without sets advertises for one session at a time; another session gets `.busy`.

extension BrokerCore {
  mutating func startAdvertising(
    _ operation: OperationID, _ localName: String?, _ services: [BluetoothUUID], of session: SessionID
  ) {
    guard serving.advertising[session] == nil else {
      return complete(
        operation, of: session,
        .failure(BluetoothError(.busy, "This session advertises already: stop that first.")))
    }
    let set = serving.newSet()
    serving.advertising[session] = Serving.Advertising(set: set, operation: operation)
    let name = localName.flatMap { $0.isEmpty ? nil : $0 }
    // It continues when a central has connected.
    command(
      .advertise(
        set, AdvertisingData(localName: name, serviceUUIDs: services), AdvertisingParameters(policy: .coreBluetooth)))
  }
  mutating func stopAdvertising(of session: SessionID) {
    guard let advertising = serving.advertising.removeValue(forKey: session) else { return }
    command(.stopAdvertising(advertising.set))
    guard let operation = advertising.operation else { return }
    complete(
      operation, of: session,
      .failure(BluetoothError(.cancelled, "Advertising was stopped before it began.")))
  }

  mutating func advertisingStarted(_ set: AdvertisingSetID) {
    guard let session = advertiser(of: set), let operation = serving.advertising[session]?.operation.take() else {
      // It has started again after a connection, or was stopped meanwhile.
      return
    }
    complete(operation, of: session, .success(.done))
  }
  /// Advertising did not begin, or ended without being stopped.
  mutating func advertisingEnded(_ set: AdvertisingSetID, _ error: BluetoothError) {
    guard let session = advertiser(of: set), let advertising = serving.advertising.removeValue(forKey: session)
    else {
      return
    }
    if let operation = advertising.operation {
      complete(operation, of: session, .failure(error))
    } else {
      deliver(to: session, .advertisingEnded(error))
    }
  }
  /// The host is gone, and advertising has ended with it. The adapter's state reports that; pending starts fail.
  mutating func endAdvertising(_ error: BluetoothError) {
    let ended = serving.advertising
    serving.advertising = [:]
    for session in sessions.ids {
      if let operation = ended[session]?.operation { complete(operation, of: session, .failure(error)) }
    }
  }
  private func advertiser(of set: AdvertisingSetID) -> SessionID? {
    sessions.ids.first { serving.advertising[$0]?.set == set }
  }
}
