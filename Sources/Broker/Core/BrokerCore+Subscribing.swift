/// # NotifyState
/// **Overview**: one characteristic's configuration on one link, and the sessions that want its values. For the server
/// they are one client, so the configuration is written for the first session and after the last.
///
/// **Function**: there is one request to the server at a time, until the configuration is what the sessions want now.
/// Each operation is answered when its session has what it asked for, or with the server's refusal.
///
/// **Phases**: off → turningOn → on → turningOff → off.
struct NotifyState {
  enum Phase {
    case off
    case turningOn
    case on
    case turningOff
  }
  struct Waiting {
    let session: SessionID
    let id: OperationID
    let isOn: Bool
  }
  struct Reader: Equatable {
    let session: SessionID
    /// The identifier that the session uses for the peer while it is connected.
    let peer: UUID
  }
  var phase = Phase.off
  /// The sessions that get the values.
  var readers: [Reader] = []
  /// Operations that have not been answered, in order.
  var waiting: [Waiting] = []
}

extension BluetoothError {
  static func sharedConfiguration(_ uuid: BluetoothUUID) -> BluetoothError {
    let (name, cure) =
      switch uuid {
      case .serverCharacteristicConfiguration:
        (
          "The Server Characteristic Configuration is one for all clients of the device",
          "write it with BluetoothHost, in a program with an adapter of its own"
        )
      case .clientSupportedFeatures:
        (
          "Client Supported Features is one for all programs that use this link",
          "leave it to the adapter, which writes it"
        )
      default:
        (
          "The Client Characteristic Configuration is one for all programs that use this link",
          "turn notifications on or off instead of writing it"
        )
      }
    return BluetoothError(.invalidArgument, "\(name): \(cure).")
  }
}

extension CentralLink {
  /// The type of the attribute if a session's write of it would change what other sessions get. For the server all
  /// sessions are one client: the adapter subscribes for all of them (Vol 3, Part G, §3.3.3.3), and has one set of
  /// features (§7.2). What the device broadcasts (§3.3.3.4) is one for all its clients. In a characteristic with
  /// subscribers a descriptor whose type nobody has asked for counts as their configuration.
  func shared(at handle: AttributeHandle) -> BluetoothUUID? {
    switch database.descriptor(at: handle)?.uuid ?? database.characteristic(valueHandle: handle)?.uuid {
    case let uuid?:
      let shared: [BluetoothUUID] = [
        .clientCharacteristicConfiguration, .serverCharacteristicConfiguration, .clientSupportedFeatures,
      ]
      return shared.contains(uuid) ? uuid : nil
    case nil:
      let isOfSubscribers = subscriptions.keys.contains {
        database.characteristic(valueHandle: $0)?.descriptorRange?.contains(handle) == true
      }
      return isOfSubscribers ? .clientCharacteristicConfiguration : nil
    }
  }
}

extension BrokerCore {
  /// The link on which the session may use the attribute; without one the operation is over. An app of a daemon uses
  /// what it has found by its own discovery: handles that it guesses, or has from another app or an earlier link, may
  /// be other attributes now. The sessions of a program with an adapter of its own are one app.
  mutating func link(
    with handle: AttributeHandle, of peer: UUID, for session: SessionID, _ id: OperationID
  ) -> LinkID? {
    guard let link = link(of: peer, for: session, id) else { return nil }
    if sessions[session]?.app == .own || central.links[link]?.hasFound(handle, by: session) == true { return link }
    complete(id, of: session, .failure(.unknownAttribute(handle)))
    return nil
  }
  mutating func setNotifying(
    _ isOn: Bool, _ handle: AttributeHandle, _ id: OperationID, _ peer: UUID, _ session: SessionID
  ) {
    guard let link = link(of: peer, for: session, id), let known = central.links[link] else { return }
    var state = known.subscriptions[handle] ?? NotifyState()
    state.readers.removeAll { $0.session == session }
    if isOn {
      state.readers.append(NotifyState.Reader(session: session, peer: identifier(of: known.peer, for: session)))
    }
    state.waiting.append(NotifyState.Waiting(session: session, id: id, isOn: isOn))
    reconcile(state, handle, link)
  }
  mutating func releaseSubscriptions(on link: LinkID, by session: SessionID) {
    let subscriptions = central.links[link]?.subscriptions ?? [:]
    for (handle, state) in subscriptions.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
      var state = state
      state.readers.removeAll { $0.session == session }
      state.waiting.removeAll { $0.session == session }
      reconcile(state, handle, link)
    }
  }

  /// Answers the operations that can be answered, and begins the request that is needed next.
  private mutating func reconcile(_ state: NotifyState, _ handle: AttributeHandle, _ link: LinkID) {
    var state = state, answers: [(NotifyState.Waiting, Bool)] = []
    let isWanted = !state.readers.isEmpty
    switch state.phase {
    case .on where isWanted:
      answers = state.waiting.map { ($0, $0.isOn) }
      state.waiting = []
    // The adapter itself needs Service Changed, on behalf of all sessions.
    case .on where central.links[link]?.database.characteristic(valueHandle: handle)?.uuid == .serviceChanged:
      answers = state.waiting.map { ($0, $0.isOn) }
      state.waiting = []
      state.phase = .off
    case .on:
      let request = begin(.unsubscribe(link, handle))
      central.configurations[request] = (link, handle)
      answers = state.waiting.filter(\.isOn).map { ($0, true) }
      state.waiting.removeAll(where: \.isOn)
      state.phase = .turningOff
    case .off where isWanted:
      let request = begin(.subscribe(link, handle, nil))
      central.configurations[request] = (link, handle)
      answers = state.waiting.filter { !$0.isOn }.map { ($0, false) }
      state.waiting.removeAll { !$0.isOn }
      state.phase = .turningOn
    case .off:
      // The sessions that wanted values do not want them any more.
      answers = state.waiting.map { ($0, false) }
      state.waiting = []
    case .turningOn, .turningOff: break
    }
    if case .off = state.phase {
      central.links[link]?.subscriptions[handle] = nil
    } else {
      central.links[link]?.subscriptions[handle] = state
    }
    for (waiting, isOn) in answers { complete(waiting.id, of: waiting.session, .success(.notifying(isOn))) }
  }

  /// The server has answered.
  mutating func configured(
    _ handle: AttributeHandle, on link: LinkID, _ result: Result<HostAnswer, BluetoothError>
  ) {
    guard var state = central.links[link]?.subscriptions[handle] else { return }
    switch (state.phase, result) {
    case (_, .failure(let error)) where error.isEndOfLink: return
    case (.turningOn, .success): state.phase = .on
    case (.turningOn, .failure(let error)):
      state.phase = .off
      state.readers = []
      fail(&state, error) { $0.isOn }
    case (.turningOff, .success): state.phase = .off
    case (.turningOff, .failure(let error)):
      state.phase = .off
      fail(&state, error) { !$0.isOn }
    case (.on, _), (.off, _): break
    }
    reconcile(state, handle, link)
  }
  private mutating func fail(
    _ state: inout NotifyState, _ error: BluetoothError, where condition: (NotifyState.Waiting) -> Bool
  ) {
    let failed = state.waiting.filter(condition)
    state.waiting.removeAll(where: condition)
    for waiting in failed { complete(waiting.id, of: waiting.session, .failure(error)) }
  }
}
