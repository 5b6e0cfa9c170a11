/// The state of a `BluetoothHost`. States only advance, in this order: a closed host stays closed.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum HostState: Sendable, Equatable {
  /// `start` has not been called.
  case stopped
  /// The transport and the controller are starting.
  case starting
  case running
  /// `close` was called: links, scans and advertising are ending.
  case closing
  /// `.notStarted`: `close` was called. Any other error: the controller or the transport failed. Open another host.
  case closed(BluetoothError)
}

/// The state of a host, then each change of it. The sequence ends after `.closed`.
public typealias HostStateSequence = HostSequence<HostState>

extension BluetoothHost {
  /// The state, then each change of it; ends after `.closed`. Each call gives a sequence of its own, for one task.
  ///
  ///     for try await state in await host.states { print(state) }
  public var states: HostStateSequence {
    // A host passes through each of its five states at most once, so none is dropped.
    let mailbox = Mailbox<HostState>(capacity: 5, overflow: .end, to: "follow the state of the host")
    mailbox.report(state)
    stateReaders.append(mailbox)
    return HostStateSequence(mailbox)
  }
  func reportState() {
    stateReaders.removeAll { $0.isFinished }
    for mailbox in stateReaders { mailbox.report(state) }
  }
}

extension Mailbox where Waiting == BoundedQueue<HostState> {
  func report(_ state: HostState) {
    put(state)
    if case .closed = state { finish() }
  }
}
