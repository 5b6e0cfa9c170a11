import Bindrune
import Synchronization
import TestSupport
import Testing

/// An observer that records its events, and may react to them at once.
final class Recorder: HostObserver {
  enum Report: Sendable {
    case event(HostEvent)
    case value([UInt8], AttributeHandle, isIndication: Bool, LinkID)
  }
  typealias Reaction = @Sendable (isolated BluetoothHost, Report) -> Void
  private struct State {
    var reports: [Report] = []
    var reaction: Reaction?
    var isCalling = false
  }
  private let state = Mutex(State())
  init(_ reaction: Reaction? = nil) { react(reaction) }

  func host(_ host: isolated BluetoothHost, did event: HostEvent) { keep(.event(event), host) }
  func host(
    _ host: isolated BluetoothHost, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool,
    on link: LinkID
  ) {
    keep(.value(value.indices.map { value[$0] }, handle, isIndication: isIndication, link), host)
  }
  private func keep(_ reports: Report, _ host: isolated BluetoothHost) {
    let (reaction, isCalling) = state.withLock { state in
      state.reports.append(reports)
      return (state.reaction, state.isCalling)
    }
    #expect(!isCalling, "called back from within a call: \(reports)")
    reaction?(host, reports)
  }

  /// From now on calls `reaction` with every event.
  func react(_ reaction: Reaction?) { state.withLock { $0.reaction = reaction } }
  /// Wraps a call to the host, during which the observer must receive nothing.
  @discardableResult func calling<Result, Failure: Error>(_ body: () throws(Failure) -> Result) throws(Failure)
    -> Result
  {
    state.withLock { $0.isCalling = true }
    defer { state.withLock { $0.isCalling = false } }
    return try body()
  }

  var reports: [Report] { state.withLock { $0.reports } }
  var events: [HostEvent] { reports.compactMap { if case .event(let event) = $0 { event } else { nil } } }
  /// How each request ended, in order.
  var completions: [(id: RequestID, result: Result<HostOutcome, BluetoothError>)] {
    events.compactMap { if case .completed(let id, let result) = $0 { (id, result) } else { nil } }
  }
  /// The first non-nil result of `match` over the events.
  func first<Found: Sendable>(
    at location: SourceLocation = #_sourceLocation, _ match: @escaping @Sendable (HostEvent) -> Found?
  ) async throws -> Found {
    try await within(at: location) {
      while true {
        if let found = self.events.lazy.compactMap(match).first { return found }
        await Task.yield()
      }
    }
  }
  /// How it ended.
  func result(
    of id: RequestID, at location: SourceLocation = #_sourceLocation
  ) async throws -> Result<HostOutcome, BluetoothError> {
    try await first(at: location) { if case .completed(id, let result) = $0 { result } else { nil } }
  }
  /// The first link that has come up.
  func link(at location: SourceLocation = #_sourceLocation) async throws -> Link {
    try await first(at: location) { if case .server(.connected(let link)) = $0 { link } else { nil } }
  }
}

extension BluetoothHost {
  /// Runs on the event loop, in one piece.
  func run<Value: Sendable, Failure: Error>(
    _ body: @Sendable (isolated BluetoothHost) throws(Failure) -> Value
  ) throws(Failure) -> Value { try body(self) }
  /// Begins it, and waits for its end.
  func end(of operation: HostOperation, _ recorder: Recorder) async throws -> HostOutcome {
    try await recorder.result(of: run { $0.begin(operation) }).get()
  }
}
/// What `body` throws; nil: nothing. For a reaction, which cannot throw.
func thrown(by body: () throws(BluetoothError) -> Void) -> BluetoothError? {
  do throws(BluetoothError) { try body() } catch { return error }
  return nil
}
extension Result where Failure == BluetoothError {
  var code: BluetoothError.Code? { if case .failure(let error) = self { error.code } else { nil } }
}
