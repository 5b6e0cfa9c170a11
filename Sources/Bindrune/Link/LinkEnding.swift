import BindruneWire
import BindruneGAP
import Synchronization

/// The end of one link or channel, shared by all that refer to it: it lives as long as any of them.
final class Ending<Reason: Sendable>: Sendable {
  private let reason = Mutex<Reason?>(nil)
  private let waiters = Waiters()

  /// The first reason counts.
  func finish(_ new: Reason) {
    reason.withLock { reason in reason = reason ?? new }
    waiters.resume()
  }
  /// Throws if the task is cancelled first.
  func wait() async throws(BluetoothError) -> Reason {
    while true {
      if let reason = reason.withLock({ $0 }) { return reason }
      // Checked again: the end may have come before this task was registered.
      try await waiters.wait { reason.withLock { $0 == nil ? nil : .success(()) } }
    }
  }
}

extension Link {
  /// Waits until the link is down, and returns the reason, which each request that the end interrupted throws too:
  /// `.disconnected` or `.connectionTimedOut`, with the reason in `status`; or the error that ended the host.
  /// Any number of tasks may wait. A cancelled task gets `.cancelled`, and the link stays up.
  ///
  ///     async let reason = link.closed
  public var closed: BluetoothError {
    get async {
      do throws(BluetoothError) { return try await ending.wait() } catch { return error }
    }
  }
}

extension BluetoothHost {
  /// Connects, as `connect` does, and disconnects when `body` returns, throws, or is cancelled. Returns when the link
  /// is down, or when the controller refuses to disconnect.
  ///
  ///     let level = try await host.withLink(to: advertisement.peer) { link in
  ///       try await link.discover().characteristic("2A19").map { try await link.read($0) }
  ///     }
  ///
  /// `body` runs on the caller's executor. If the link goes down first, `body` continues: its requests throw.
  nonisolated(nonsending) public func withLink<Result>(
    to peer: PeerID, _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil,
    _ body: nonisolated(nonsending) (Link) async throws -> Result
  ) async throws -> Result {
    try await lend(try await connect(to: peer, parameters, timeout: timeout), body)
  }
  /// The same for the device with this address.
  nonisolated(nonsending) public func withLink<Result>(
    to address: PeerAddress, _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil,
    _ body: nonisolated(nonsending) (Link) async throws -> Result
  ) async throws -> Result {
    try await lend(try await connect(to: address, parameters, timeout: timeout), body)
  }
  /// The same for the one of `peers` that can be reached first.
  nonisolated(nonsending) public func withLink<Result>(
    to peers: [PeerAddress], _ parameters: ConnectionParameters = .balanced, timeout: Duration? = nil,
    _ body: nonisolated(nonsending) (Link) async throws -> Result
  ) async throws -> Result {
    try await lend(try await connect(to: peers, parameters, timeout: timeout), body)
  }
  nonisolated(nonsending) private func lend<Result>(
    _ link: Link, _ body: nonisolated(nonsending) (Link) async throws -> Result
  ) async throws -> Result {
    let result: Swift.Result<Result, any Error>
    do { result = .success(try await body(link)) } catch { result = .failure(error) }
    // An unstructured task: the link must end even if the caller's task is cancelled.
    await Task { try? await link.disconnect() }.value
    return try result.get()
  }
}
