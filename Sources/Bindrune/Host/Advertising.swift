import BindruneWire
import BindruneGAP
import BindruneHCI

/// The tasks that wait for one set.
struct AdvertisingState {
  let waiters = Waiters()
  /// Number of the last call.
  var turn = 0
}

extension BluetoothHost {
  /// Starts advertising, and returns when the controller advertises. `stopAdvertising` ends it, or, as `parameters`
  /// set, a link, a duration or a number of events; `events` reports `.advertisingStopped`. A later call with the same
  /// `id` replaces the set, without a gap if only the data differ. Cancelling this call cancels the start.
  /// `parameters.policy` decides what is sent and in which PDUs; the result describes both. By default the host sends
  /// all data: in legacy PDUs, which every scanner hears, if they fit; else in extended PDUs, if the controller has
  /// them; else the call throws.
  ///
  /// To advertise several things at once, give each its own `id`: a controller has `maximumAdvertisingSets`, and one
  /// more throws `.busy`.
  @discardableResult
  public func advertise(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters(),
    as id: AdvertisingSetID = .first
  ) async throws(BluetoothError) -> PackedAdvertisement {
    try await waitForAdvertising(id, "advertise", as: "advertise(_:_:as:)") { (core, now) throws(AdvertisingError) in
      try core.advertise(data, parameters, as: id, now: now)
    }
  }
  /// Advertises, as `advertise` does, while `body` runs, and stops the set when `body` returns, throws, or is
  /// cancelled. Returns when the set is off; a cancelled task does not wait for that.
  ///
  ///     try await host.withAdvertising(AdvertisingData(localName: "Lamp")) {
  ///       for try await event in await host.events { print(event) }
  ///     }
  ///
  /// `body` runs on the caller's executor. If the set stops earlier, by a link for example, `body` continues.
  nonisolated(nonsending) public func withAdvertising<Result>(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters(),
    as id: AdvertisingSetID = .first, _ body: nonisolated(nonsending) () async throws -> Result
  ) async throws -> Result {
    try await advertise(data, parameters, as: id)
    let result: Swift.Result<Result, any Error>
    do { result = .success(try await body()) } catch { result = .failure(error) }
    await endAdvertising(id)
    return try result.get()
  }
  /// Stops the set, and returns when it is off, or wanted again. So the end is reported before the caller can advertise
  /// anew: the core reports no outcome of a target that a later one replaces.
  private func endAdvertising(_ id: AdvertisingSetID) async {
    guard let state = advertising[id] else { return }
    stopAdvertising(id)
    do throws(BluetoothError) {
      try await state.waiters.wait { advertising[id]?.turn == state.turn ? nil : .success(()) }
    } catch {
      // Stopped, failed, cancelled, or the host has ended: off, or nobody waits any more.
    }
  }
  /// Changes the data, and returns when the controller has them. Everything else stays, including the time left. There
  /// is no gap on the air, unless the data exceed 251 octets.
  @discardableResult
  public func setAdvertisingData(
    _ data: AdvertisingData, of id: AdvertisingSetID = .first
  ) async throws(BluetoothError) -> PackedAdvertisement {
    try await waitForAdvertising(id, "change the advertising data", as: "setAdvertisingData(_:of:)") {
      (core, now) throws(AdvertisingError) in
      try core.setAdvertisingData(data, of: id, now: now)
    }
  }
  private func waitForAdvertising(
    _ id: AdvertisingSetID, _ operation: String, as call: StaticString,
    _ begin: (inout HostCore, Instant) throws(AdvertisingError) -> PackedAdvertisement
  ) async throws(BluetoothError) -> PackedAdvertisement {
    do throws(BluetoothError) { try check() } catch { throw error.during(operation) }
    var packed: PackedAdvertisement?
    let turn = takeTurn(id)
    do throws(BluetoothError) {
      try await turn.waiters.wait {
        do throws(BluetoothError) { packed = try take(turn, id, as: call, begin) } catch { return .failure(error) }
        return nil
      }
    } catch {
      if error.code == .cancelled, turn.number == advertising[id]?.turn { stopAdvertising(id) }
      throw error.during(operation)
    }
    guard let packed else { throw BluetoothError.cancelled.during(operation) }
    return packed
  }
  /// `advertise` without waiting: unless this throws, the observer receives `.advertisingStarted` or
  /// `.advertisingFailed`.
  @discardableResult
  public func beginAdvertising(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters(),
    as id: AdvertisingSetID = .first
  ) throws(BluetoothError) -> PackedAdvertisement {
    let background = parameters.isInBackground
    return try beginAdvertising([AdvertisingPacker.Source(data, isInBackground: background)], parameters, as: id)
  }
  /// The same for the data of several applications in one advertisement; `AdvertisingPacker.pack(_:)` says how they
  /// share it.
  @discardableResult
  public func beginAdvertising(
    _ sources: [AdvertisingPacker.Source], _ parameters: AdvertisingParameters, as id: AdvertisingSetID = .first
  ) throws(BluetoothError) -> PackedAdvertisement {
    do throws(BluetoothError) {
      try checkRunning()
      return try take(takeTurn(id), id, as: "beginAdvertising(_:_:as:)") { (core, now) throws(AdvertisingError) in
        try core.advertise(sources, parameters, as: id, now: now)
      }
    } catch {
      throw error.during("advertise")
    }
  }
  /// One call that advertises a set. Only cancelling the last call of a set stops it.
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
    _ turn: Turn, _ id: AdvertisingSetID, as call: StaticString,
    _ begin: (inout HostCore, Instant) throws(AdvertisingError) -> PackedAdvertisement
  ) throws(BluetoothError) -> PackedAdvertisement {
    let result = perform(as: call) { core, now -> Result<PackedAdvertisement, BluetoothError> in
      do throws(AdvertisingError) { return .success(try begin(&core, now)) } catch {
        return .failure(BluetoothError(error))
      }
    }
    // The core sent no command and will report nothing.
    if case .failure = result, turn.isNew { advertising[id] = nil }
    return try result.get()
  }
  /// Ends with `.advertisingStopped` in `events`.
  public func stopAdvertising(_ id: AdvertisingSetID = .first) {
    perform(as: "stopAdvertising(_:)") { core, now in core.stopAdvertising(id, now: now) }
  }
  /// How many sets this controller advertises at once.
  public var maximumAdvertisingSets: Int { core.maximumAdvertisingSets }

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
