/// # NotifyState
/// **Overview**: one characteristic's configuration on one link, and the sessions that want its values. The server knows one
/// client, so it is asked for the first session and after the last.
///
/// **Function**: what the sessions want now is the goal; there is one request to the server at a time. Each operation is
/// answered when what it asked for holds for its session, or with the server's refusal.
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
    let session: AdapterSession
    let id: OperationID
    let isOn: Bool
  }
  var phase = Phase.off
  /// Who wants the values, and gets them.
  var sessions: [AdapterSession] = []
  /// Operations that have not been answered, in order.
  var waiting: [Waiting] = []
}

extension Adapter {
  func setNotifying(
    _ isOn: Bool, _ handle: AttributeHandle, _ id: OperationID, _ peer: UUID, _ session: AdapterSession,
    _ host: isolated Host
  ) {
    guard let link = link(of: peer, for: session, id) else { return }
    var state = central.links[link]?.subscriptions[handle] ?? NotifyState()
    state.sessions.removeAll { $0 === session }
    if isOn { state.sessions.append(session) }
    state.waiting.append(NotifyState.Waiting(session: session, id: id, isOn: isOn))
    reconcile(state, handle, link, host)
  }
  func releaseSubscriptions(on link: LinkID, by session: AdapterSession, _ host: isolated Host) {
    for (handle, state) in central.links[link]?.subscriptions ?? [:] {
      var state = state
      state.sessions.removeAll { $0 === session }
      state.waiting.removeAll { $0.session === session }
      reconcile(state, handle, link, host)
    }
  }

  /// Answers what can be answered, and asks the server for what is missing.
  private func reconcile(_ state: NotifyState, _ handle: AttributeHandle, _ link: LinkID, _ host: isolated Host) {
    var state = state, answers: [(NotifyState.Waiting, Bool)] = []
    let isWanted = !state.sessions.isEmpty
    switch state.phase {
    case .on where isWanted:
      answers = state.waiting.map { ($0, $0.isOn) }
      state.waiting = []
    case .on:
      let request = host.begin(.unsubscribe(link, handle), after: place)
      central.configurations[request] = (link, handle)
      answers = state.waiting.filter(\.isOn).map { ($0, true) }
      state.waiting.removeAll(where: \.isOn)
      state.phase = .turningOff
    case .off where isWanted:
      let request = host.begin(.subscribe(link, handle, nil), after: place)
      central.configurations[request] = (link, handle)
      answers = state.waiting.filter { !$0.isOn }.map { ($0, false) }
      state.waiting.removeAll { !$0.isOn }
      state.phase = .turningOn
    case .off:
      // Whoever wanted it on has wanted it off since.
      answers = state.waiting.map { ($0, false) }
      state.waiting = []
    case .turningOn, .turningOff: break
    }
    if case .off = state.phase {
      central.links[link]?.subscriptions[handle] = nil
    } else {
      central.links[link]?.subscriptions[handle] = state
    }
    for (waiting, isOn) in answers { waiting.session.complete(waiting.id, .success(.notifying(isOn))) }
  }

  /// The server has answered.
  func configured(
    _ handle: AttributeHandle, on link: LinkID, _ result: Result<HostOutcome, BluetoothError>, _ host: isolated Host
  ) {
    guard var state = central.links[link]?.subscriptions[handle] else { return }
    switch (state.phase, result) {
    case (_, .failure(let error)) where error.isEndOfLink: return
    case (.turningOn, .success): state.phase = .on
    case (.turningOn, .failure(let error)):
      state.phase = .off
      state.sessions = []
      fail(&state, error) { $0.isOn }
    case (.turningOff, .success): state.phase = .off
    case (.turningOff, .failure(let error)):
      state.phase = .off
      fail(&state, error) { !$0.isOn }
    case (.on, _), (.off, _): break
    }
    reconcile(state, handle, link, host)
  }
  private func fail(
    _ state: inout NotifyState, _ error: BluetoothError, where condition: (NotifyState.Waiting) -> Bool
  ) {
    let failed = state.waiting.filter(condition)
    state.waiting.removeAll(where: condition)
    for waiting in failed { waiting.session.complete(waiting.id, .failure(error)) }
  }
}
