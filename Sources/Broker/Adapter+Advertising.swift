// What sessions advertise: each its own advertising set (Vol 4, Part E, §7.8.53), packed as Core Bluetooth does it. A controller
// without sets advertises for one session at a time; another is told `.busy`.

extension Adapter {
  func startAdvertising(
    _ operation: OperationID, _ localName: String?, _ services: [BluetoothUUID], of session: AdapterSession,
    _ host: isolated Host
  ) {
    guard serving.advertising[session.id] == nil else {
      return session.complete(
        operation, .failure(BluetoothError(.busy, "This session advertises already: stop that first.")))
    }
    let set = serving.newSet()
    serving.advertising[session.id] = Serving.Advertising(set: set, operation: operation)
    let name = localName.flatMap { $0.isEmpty ? nil : $0 }
    do throws(BluetoothError) {
      // Goes on when a central has connected.
      let packed = try host.beginAdvertising(
        AdvertisingData(localName: name, serviceUUIDs: services), AdvertisingParameters(policy: .coreBluetooth), as: set
      )
      logger.debug("advertises \(packed)")
    } catch {
      serving.advertising[session.id] = nil
      session.complete(operation, .failure(error))
    }
  }
  func stopAdvertising(of session: AdapterSession, _ host: isolated Host) {
    guard let advertising = serving.advertising.removeValue(forKey: session.id) else { return }
    host.stopAdvertising(advertising.set)
    guard let operation = advertising.operation else { return }
    session.complete(operation, .failure(BluetoothError(.cancelled, "Advertising was stopped before it began.")))
  }

  func advertisingStarted(_ set: AdvertisingSetID) {
    guard let session = advertiser(of: set), let operation = serving.advertising[session.id]?.operation.take() else {
      // Again after a connection, or stopped since.
      return
    }
    session.complete(operation, .success(.done))
  }
  /// It did not begin, or is over without anybody's wish.
  func advertisingEnded(_ set: AdvertisingSetID, _ error: BluetoothError) {
    guard let session = advertiser(of: set), let advertising = serving.advertising.removeValue(forKey: session.id)
    else {
      return
    }
    if let operation = advertising.operation {
      session.complete(operation, .failure(error))
    } else {
      session.tell(.advertisingEnded(error))
    }
  }
  /// There is no host any more: what goes on has ended with it, which the adapter's state tells.
  func endAdvertising(_ error: BluetoothError) {
    let ended = serving.advertising
    serving.advertising = [:]
    for session in sessions {
      if let operation = ended[session.id]?.operation { session.complete(operation, .failure(error)) }
    }
  }
  private func advertiser(of set: AdvertisingSetID) -> AdapterSession? {
    sessions.first { serving.advertising[$0.id]?.set == set }
  }
}
