/// What a manager of the facade sees of all that is below it: requests go down, events come up through the `EventQueue` that the
/// session was made with, and values leave through ports. A session behaves as if the adapter were its own; it shares it with
/// the other sessions of its process, or, over a socket, of the machine.
///
/// Requests and events are values with identifiers: no closures, no shared objects. A `SendPort` is the exception, because
/// admission is local: whether a value is taken is answered on the caller's thread.
public protocol BrokerSession: AnyObject, Sendable {
  /// From any thread; carried out in the order of the calls.
  func send(_ request: BrokerRequest)
  /// Where values for a connected peer (`.command`) or a subscribed central (`.notification`) are put, from its `.connected`
  /// or `.subscribed` on until its link ends. From any thread.
  func port(_ kind: SendPort.Kind, of peer: UUID) -> SendPort?
  /// Ends whatever the session has begun: scans, links that nobody else uses, what it advertises and has published. No event
  /// follows.
  func close()
}

extension BrokerSession {
  public func send(_ request: BrokerRequest.Central) { send(.central(request)) }
  public func send(_ request: BrokerRequest.Peripheral) { send(.peripheral(request)) }
}
