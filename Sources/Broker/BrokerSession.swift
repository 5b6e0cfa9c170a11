/// The interface of a facade's manager to everything below it: requests go down, events come up through the session's
/// `EventQueue`, and values leave through ports. A session behaves as if the adapter were its own; it shares it with
/// the other sessions of its process, or, over a socket, of the machine.
///
/// Requests and events are values with identifiers: no closures, no shared objects. A `SendPort` and a `SessionChannel`
/// are the exceptions, because admission is local: whether a value, or an SDU, is taken is answered on the caller's
/// thread.
public protocol BrokerSession: AnyObject, Sendable {
  /// From any thread; carried out in the order of the calls.
  func send(_ request: BrokerRequest)
  /// The port for values to a connected peer (`.command`) or a subscribed central (`.notification`), from its
  /// `.connected` or `.subscribed` until its link ends. From any thread.
  func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort?
  /// Ends everything that the session has begun: scans, links that no other session uses, advertising, published
  /// services. No event follows.
  func close()
}

extension BrokerSession {
  public func send(_ request: BrokerRequest.Central) { send(.central(request)) }
  public func send(_ request: BrokerRequest.Peripheral) { send(.peripheral(request)) }
}
