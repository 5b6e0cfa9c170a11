/// The adapters of this machine as they come and go: `.added` for each that is there, then each change.
///
/// The machine is looked at once in `period`, and only while a task waits for the next change; each look makes a few
/// system calls for an adapter. Changes that one look finds wait for the reader, at most two for each adapter. What
/// begins and ends between two looks is not reported. Cancelling the task ends the sequence.
///
///     for await change in AdapterChanges() {
///       if case .added(let adapter) = change { print(adapter.name) }
///     }
public struct AdapterChanges: AsyncSequence, Sendable {
  #if hasAttribute(nonexhaustive)
    @nonexhaustive(warn)
  #endif
  public enum Change: Sendable, Equatable {
    /// It was there at the first look, was plugged in, or its driver has been loaded.
    case added(BluetoothAdapter)
    /// A property is another one: it is up, taken, switched off …
    case changed(BluetoothAdapter)
    /// It was unplugged, or its driver is gone.
    case removed(BluetoothAdapter)
  }
  public typealias Element = Change
  public typealias Failure = Never

  private let look: @Sendable () -> [BluetoothAdapter]
  /// False: the task was cancelled.
  private let pause: @Sendable () async -> Bool

  public init(every period: Duration = .seconds(1)) {
    self.init {
      Machine().adapters()
    } pause: {
      (try? await Task.sleep(for: period)) != nil
    }
  }
  /// `look`: the adapters, by number. `pause`: waits until the next look.
  package init(
    _ look: @escaping @Sendable () -> [BluetoothAdapter], pause: @escaping @Sendable () async -> Bool
  ) {
    self.look = look
    self.pause = pause
  }

  public func makeAsyncIterator() -> Iterator { Iterator(look: look, pause: pause) }

  public struct Iterator: AsyncIteratorProtocol {
    private let look: @Sendable () -> [BluetoothAdapter]
    private let pause: @Sendable () async -> Bool
    /// As the last look found them; nil: there was none.
    private var known: [BluetoothAdapter]?
    /// The rest of the last look's, the last one first.
    private var waiting: [Change] = []
    fileprivate init(look: @escaping @Sendable () -> [BluetoothAdapter], pause: @escaping @Sendable () async -> Bool) {
      self.look = look
      self.pause = pause
    }

    public mutating func next() async -> Change? { await next(isolation: nil) }
    public mutating func next(isolation actor: isolated (any Actor)?) async -> Change? {
      while waiting.isEmpty {
        if Task.isCancelled { return nil }
        if known != nil, await !pause() { return nil }
        let found = look()
        waiting = Change.all(from: known ?? [], to: found).reversed()
        known = found
      }
      return waiting.popLast()
    }
  }
}

extension AdapterChanges.Change {
  /// What is gone, then what is there, by number. An adapter with another address is another one.
  fileprivate static func all(from old: [BluetoothAdapter], to new: [BluetoothAdapter]) -> [Self] {
    func isSame(_ before: BluetoothAdapter, _ after: BluetoothAdapter) -> Bool {
      before.number == after.number
        && (before.address == nil || after.address == nil || before.address == after.address)
    }
    let removed = old.filter { before in !new.contains { isSame(before, $0) } }
    return removed.map { .removed($0) }
      + new.compactMap { after in
        guard let before = old.first(where: { isSame($0, after) }) else { return .added(after) }
        return before == after ? nil : .changed(after)
      }
  }
}
