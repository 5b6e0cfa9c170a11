import NIOCore

/// A session in this process, over a `BluetoothHost` that it shares with the other sessions of the same adapter.
///
/// It is closed when it is released, at the latest.
public final class DirectSession: BrokerSession {
  private let adapter: Adapter
  private let session: AdapterSession

  /// `adapter`: a `TransportSpec`, or a name of `provideAdapter`; nil: the adapter of the environment or of a
  /// configuration file, see `AdapterChoice`. An invalid choice is the state `AdapterState.unsupported`.
  ///
  /// `events`: the session puts its events there, in batches, on the adapter's thread. The first event is the adapter's
  /// state.
  public convenience init(adapter: String? = nil, as identity: ManagerIdentity? = nil, events: EventQueue) {
    self.init(on: AdapterRegistry.shared.adapter(adapter), as: identity, events: events)
  }
  /// If a registry keeps `adapter`, it has already counted this session.
  init(on adapter: Adapter, of app: AppID = .own, as identity: ManagerIdentity? = nil, events: EventQueue) {
    session = AdapterSession(on: adapter.eventLoop, events: events)
    self.adapter = adapter
    adapter.add(session, of: app, as: identity)
  }
  deinit { close() }

  /// For programs that embed the stack: from now on there is an adapter of this name, for `init(adapter:events:)` and
  /// for the facade's option. `open` returns its controller, on `loop`: at the first session, and again after each
  /// failure.
  ///
  ///     let radio = SimulatedRadio(on: loop)
  ///     for name in ["left", "right"] { DirectSession.provideAdapter(named: name, on: loop) { _ in radio.controller() } }
  public static func provideAdapter(
    named name: String, on loop: any EventLoop,
    open: @escaping @Sendable (any EventLoop) async throws(TransportError) -> any HCITransport
  ) {
    AdapterRegistry.shared.provide(Adapter(on: loop, agent: AgentChoice.ofPrograms, open: open), as: name)
  }

  public func send(_ request: BrokerRequest) {
    if session.put(request) { adapter.eventLoop.execute { [adapter, session] in adapter.drain(session) } }
  }
  public func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort? { session.port(kind, of: peer) }
  public func close() {
    if session.close() { adapter.eventLoop.execute { [adapter, session] in adapter.closed(session) } }
  }
}
