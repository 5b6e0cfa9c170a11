/// Elements that a host receives, in order, for one task at a time. The sequence ends with an error if its source does;
/// cancelling the task ends it.
///
/// All sequences of a host are built on it: `Subscription`, `NotificationSequence` and `AdvertisementSequence` document
/// what they start and when that ends.
public struct HostSequence<Element: Sendable>: AsyncSequence, Sendable {
  public typealias Failure = BluetoothError
  /// Waits for the next element. The function retains what must live as long as a reader does.
  typealias Source = @Sendable () async throws(BluetoothError) -> Element?
  private let open: @Sendable () async throws(BluetoothError) -> Source?
  /// The same sequence, which ends with `.timedOut` after this time. nil: it has no bound.
  let bounded: (@Sendable (Duration) -> HostSequence)?

  init(_ source: @escaping Source) {
    open = { source }
    bounded = nil
  }
  /// Each iterator opens its own source at the first element; nil: the task was cancelled.
  init(
    opening open: @escaping @Sendable () async throws(BluetoothError) -> Source?,
    bounded: (@Sendable (Duration) -> HostSequence)? = nil
  ) {
    self.open = open
    self.bounded = bounded
  }
  /// The elements of a mailbox, which ends when the sequence and its iterators are released.
  init(_ mailbox: Mailbox<Element>) {
    let listener = Listener(mailbox: mailbox)
    self.init { () async throws(BluetoothError) in try await listener.mailbox.take() }
  }
  private final class Listener: Sendable {
    let mailbox: Mailbox<Element>
    init(mailbox: Mailbox<Element>) { self.mailbox = mailbox }
    deinit { mailbox.abandon() }
  }

  public func makeAsyncIterator() -> Iterator { Iterator(open: open) }

  public struct Iterator: AsyncIteratorProtocol {
    fileprivate let open: @Sendable () async throws(BluetoothError) -> Source?
    private var source: Source?
    fileprivate init(open: @escaping @Sendable () async throws(BluetoothError) -> Source?) { self.open = open }

    public mutating func next() async throws(BluetoothError) -> Element? { try await next(isolation: nil) }
    public mutating func next(isolation actor: isolated (any Actor)?) async throws(BluetoothError) -> Element? {
      if source == nil { source = try await open() }
      return try await source?()
    }
  }
}
