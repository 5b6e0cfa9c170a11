/// A session in this process, over a `Host` of its own or one that it shares with the other sessions of the same adapter.
public final class DirectSession: BrokerSession {
  /// `adapter`: as `TransportSpec` spells it, or `sim:NAME`; nil: what the environment or the configuration file says.
  /// `deliver` is called in order, never twice at a time, from the adapter's thread.
  public init(adapter: String? = nil, deliver: @escaping @Sendable (BrokerEvent) -> Void) {
    deliver(.adapter(.unknown))
  }
  public func send(_ request: BrokerRequest) {}
  public func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort? { nil }
  public func close() {}
}
