/// Elements that a host receives, in order, for one task at a time. The sequence ends with an error where its source does,
/// and a cancelled task ends it.
///
/// Every sequence of a host is one: `Subscription`, `NotificationSequence` and `AdvertisementSequence` say what they begin and
/// when that ends.
public struct HostSequence<Element: Sendable>: AsyncSequence, Sendable {
  public typealias Failure = BluetoothError
  /// Waits for the next element. What has to live as long as somebody reads is held by the function.
  typealias Source = @Sendable () async throws(BluetoothError) -> Element?
  private let open: @Sendable () async throws(BluetoothError) -> Source?

  init(_ source: @escaping Source) { open = { source } }
  /// Each iterator opens a source of its own when it is asked for an element; nil: the task has been cancelled.
  init(opening open: @escaping @Sendable () async throws(BluetoothError) -> Source?) { self.open = open }
  /// What is put into the mailbox, which ends when the sequence and its iterators are gone.
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
