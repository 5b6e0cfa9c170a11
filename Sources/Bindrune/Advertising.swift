import BindruneWire
import GAP
import HCI

/// Whoever waits for one set.
struct AdvertisingState {
  let waiters = Waiters()
  /// The last call.
  var turn = 0
}

extension BluetoothHost {
  /// Advertises, and returns when the controller does. Ends with `stopAdvertising` or, if `parameters` say so, with a link,
  /// a time or a number of events: `events` tells `.advertisingStopped`. A later call with the same `id` replaces it,
  /// without a gap where only data are others. Cancelled before it has begun, it does not begin.
  /// What is sent, and where, is `parameters.policy`'s business; the result says it. By default all of it: in legacy PDUs,
  /// which every scanner hears, where they hold it; else in extended ones, if the controller has them; else it is refused.
  ///
  /// Whoever advertises several things at once gives each an `id` of its own; a controller has `maximumAdvertisingSets` of
  /// them, and one more is `.busy`.
  @discardableResult
  public func advertise(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters(),
    as id: AdvertisingSetID = .first
  ) async throws(BluetoothError) -> PackedAdvertisement {
    try await waitForAdvertising(id, "advertise") { (core, now) throws(AdvertisingError) in
      try core.advertise(data, parameters, as: id, now: now)
    }
  }
  /// Changes what is advertised, and returns when the controller has it. All else goes on as it is, also its time. On the
  /// air there is no gap, unless the data are longer than 251 octets.
  @discardableResult
  public func setAdvertisingData(
    _ data: AdvertisingData, of id: AdvertisingSetID = .first
  ) async throws(BluetoothError) -> PackedAdvertisement {
    try await waitForAdvertising(id, "change the advertising data") { (core, now) throws(AdvertisingError) in
      try core.setAdvertisingData(data, of: id, now: now)
    }
  }
  private func waitForAdvertising(
    _ id: AdvertisingSetID, _ operation: String,
    _ begin: (inout HostCore, Instant) throws(AdvertisingError) -> PackedAdvertisement
  ) async throws(BluetoothError) -> PackedAdvertisement {
    do throws(BluetoothError) { try check() } catch { throw error.during(operation) }
    var packed: PackedAdvertisement?
    let turn = takeTurn(id)
    do throws(BluetoothError) {
      try await turn.waiters.wait {
        do throws(BluetoothError) { packed = try take(turn, id, begin) } catch { return .failure(error) }
        return nil
      }
    } catch {
      if error.code == .cancelled, turn.number == advertising[id]?.turn { stopAdvertising(id) }
      throw error.during(operation)
    }
    guard let packed else { throw BluetoothError.cancelled.during(operation) }
    return packed
  }
  /// `advertise` without waiting: the observer is told `.advertisingStarted` or `.advertisingFailed`, unless this throws.
  @discardableResult
  public func beginAdvertising(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters(),
    as id: AdvertisingSetID = .first
  ) throws(BluetoothError) -> PackedAdvertisement {
    do throws(BluetoothError) {
      try checkRunning()
      return try take(takeTurn(id), id) { (core, now) throws(AdvertisingError) in
        try core.advertise(data, parameters, as: id, now: now)
      }
    } catch {
      throw error.during("advertise")
    }
  }
  /// One call that advertises something: the last one of a set is whose cancellation stops it.
  private struct Turn { let number: Int, isNew: Bool, waiters: Waiters }
  private func takeTurn(_ id: AdvertisingSetID) -> Turn {
    let isNew = advertising[id] == nil
    var state = advertising[id] ?? AdvertisingState()
    advertisingTurn += 1
    state.turn = advertisingTurn
    advertising[id] = state
    return Turn(number: advertisingTurn, isNew: isNew, waiters: state.waiters)
  }
  private func take(
    _ turn: Turn, _ id: AdvertisingSetID,
    _ begin: (inout HostCore, Instant) throws(AdvertisingError) -> PackedAdvertisement
  ) throws(BluetoothError) -> PackedAdvertisement {
    let result = perform { core, now -> Result<PackedAdvertisement, BluetoothError> in
      do throws(AdvertisingError) { return .success(try begin(&core, now)) } catch {
        return .failure(BluetoothError(error))
      }
    }
    // Nothing has been asked of the controller, and nothing will be told.
    if case .failure = result, turn.isNew { advertising[id] = nil }
    return try result.get()
  }
  /// Ends with `.advertisingStopped` in `events`.
  public func stopAdvertising(_ id: AdvertisingSetID = .first) {
    perform { core, now in core.stopAdvertising(id, now: now) }
  }
  /// How many things this controller advertises at once.
  public var maximumAdvertisingSets: Int { core.controller?.maximumAdvertisingSets ?? 1 }

  /// What `advertise` would send on this controller, and what it would leave out.
  public func pack(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) throws(BluetoothError) -> PackedAdvertisement {
    do throws(BluetoothError) { try check() } catch { throw error.during("pack the advertisement") }
    do throws(AdvertisingDataError) { return try core.pack(data, parameters) } catch {
      throw BluetoothError(error).during("pack the advertisement")
    }
  }
}
