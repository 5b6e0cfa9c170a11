import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneGATT

/// A notification, or an indication that the host has confirmed.
public struct ReceivedValue: Sendable, Hashable {
  public var handle: AttributeHandle
  public var value: [UInt8]
  public var isIndication: Bool
  public init(handle: AttributeHandle, value: [UInt8], isIndication: Bool) {
    self.handle = handle
    self.value = value
    self.isIndication = isIndication
  }
}

/// The values of one characteristic, in order and without gaps, from the moment the host requested them.
///
///     let rate = try await link.subscribe(to: measurement)        // the server has accepted
///     try await link.write([1], to: controlPoint)                 // the values this causes are not missed
///     for try await value in rate { print(value.value) }
///     try await rate.end()
///
/// Values wait for the reader up to the subscription's `capacity`; beyond that the sequence ends with `.overflow`,
/// after those that wait. It ends with `.servicesChanged` when the server changes the characteristic. Cancelling the
/// task ends it. One task reads at a time, value by value or in `batches`.
public struct Subscription: AsyncSequence, Sendable {
  public typealias Element = ReceivedValue
  public typealias Failure = BluetoothError
  let holder: SubscriptionHolder

  /// Unsubscribes, and returns when the server has accepted; at once while another subscriber is left. Drops the values
  /// not yet read. Without this call the subscription ends with its last copy or iterator, and the host does not report
  /// the server's answer.
  public func end() async throws(BluetoothError) {
    try await holder.host.endSubscription(holder.mailbox, of: holder.valueHandle, on: holder.link)
  }
  public typealias Iterator = HostSequence<ReceivedValue>.Iterator
  public func makeAsyncIterator() -> Iterator {
    HostSequence { [holder] () async throws(BluetoothError) in try await holder.mailbox.take() }.makeAsyncIterator()
  }

  /// The same values, in batches of all that have come since the last: for much data. A batch wakes its reader once,
  /// and costs no allocation per value.
  public var batches: Batches {
    HostSequence { [holder] () async throws(BluetoothError) in try await holder.mailbox.takeAll() }
  }
  public typealias Batches = HostSequence<ReceivedBatch>
}

/// The values of one characteristic for one loop: see `Link.notifications(of:)`.
public struct NotificationSequence: AsyncSequence, Sendable {
  public typealias Element = ReceivedValue
  public typealias Failure = BluetoothError
  let link: Link
  let characteristic: RemoteCharacteristic

  public typealias Iterator = HostSequence<ReceivedValue>.Iterator
  public func makeAsyncIterator() -> Iterator {
    HostSequence(opening: { () async throws(BluetoothError) in
      guard let holder = try await subscribe() else { return nil }
      return { () async throws(BluetoothError) in try await holder.mailbox.take() }
    }).makeAsyncIterator()
  }

  /// The same values, in batches of all that have come since the last: see `Subscription.batches`.
  public var batches: Batches {
    HostSequence(opening: { () async throws(BluetoothError) in
      guard let holder = try await subscribe() else { return nil }
      return { () async throws(BluetoothError) in try await holder.mailbox.takeAll() }
    })
  }
  public typealias Batches = HostSequence<ReceivedBatch>

  /// nil: the task was cancelled meanwhile.
  private func subscribe() async throws(BluetoothError) -> SubscriptionHolder? {
    do throws(BluetoothError) { return try await link.subscribe(to: characteristic).holder } catch {
      if error.code == .cancelled { return nil }
      throw error
    }
  }
}

/// Unsubscribes when its last reference is released.
final class SubscriptionHolder: Sendable {
  let mailbox: Inbox<ReceivedBatch>
  let host: BluetoothHost
  let link: LinkID
  let valueHandle: AttributeHandle
  init(mailbox: Inbox<ReceivedBatch>, host: BluetoothHost, link: LinkID, valueHandle: AttributeHandle) {
    self.mailbox = mailbox
    self.host = host
    self.link = link
    self.valueHandle = valueHandle
  }
  deinit {
    host.onEventLoop { [mailbox, link, valueHandle] host in host.unsubscribe(mailbox, of: valueHandle, on: link) }
  }
}

/// An event of a link or its server that this host did not request. `Link.events` reports it.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum LinkEvent: Sendable {
  /// A value without a subscriber here: an earlier connection enabled it, or the server sends it unasked.
  case value(ReceivedValue)
  /// The handles in the range are no longer valid: subscriptions to them have ended, requests to them fail.
  case servicesChanged(HandleRange)
  /// The host has discovered the changes: the server's current database. Follows `servicesChanged` after
  /// `Link.discover` or `Link.discoverAll`.
  case rediscovered(RemoteDatabase)
  /// The peer has distributed its identity address. `Link.peer` is unchanged.
  case peerIdentified(PeerAddress)
  /// The connection parameters in force, after an update by either side.
  case parametersChanged(ConnectionParameters)
  /// Octets in one packet on the air, after an update by either side.
  case dataLengthChanged(LinkDataLength)
  /// The modulations in use, after an update by either side.
  case physChanged(LinkPHYs)
  /// ATT_MTU in force, 23 … 517.
  case mtuChanged(Int)
  /// Enhanced bearers of ATT that the link has now: `HostConfiguration.enhancedBearers`.
  case bearersChanged(enhanced: Int)
  /// What protects the link now.
  case securityChanged(LinkSecurity)
}

/// The sequence that `Link.events` returns.
public typealias LinkEventSequence = HostSequence<LinkEvent>

extension BluetoothHost {
  func subscribe(
    to characteristic: RemoteCharacteristic, _ configuration: ClientCharacteristicConfiguration?, capacity: Int,
    on link: LinkID
  ) async throws(BluetoothError) -> Subscription {
    guard linkStates[link] != nil else {
      throw failure(linkIsDown(link), of: .subscribe(link, characteristic.valueHandle, nil))
    }
    let handle = characteristic.valueHandle
    let mailbox = Inbox(
      ReceivedBatch(handle, capacity: capacity),
      to: "receive the values of attribute \(handle.text) of \(peerText(link))")
    // Before the request: the first value may come before the server's answer.
    linkStates[link]?.values[handle, default: []].append(mailbox)
    do throws(BluetoothError) {
      try await request(.subscribe(link, handle, configuration))
    } catch {
      remove(mailbox, of: handle, on: link)
      throw error
    }
    return Subscription(
      holder: SubscriptionHolder(mailbox: mailbox, host: self, link: link, valueHandle: handle))
  }

  /// Unsubscribes without waiting. The client counts subscribers, and asks the server after the last one has gone.
  func unsubscribe(_ mailbox: Inbox<ReceivedBatch>, of handle: AttributeHandle, on link: LinkID) {
    mailbox.abandon()
    guard remove(mailbox, of: handle, on: link) else { return }
    let id = newRequest()
    ask(id, of: link, at: places(among: .command, on: link)) { $0.unsubscribe(id, handle) }
  }
  /// Asks the server even if the task is cancelled: nothing else would do so later.
  func endSubscription(
    _ mailbox: Inbox<ReceivedBatch>, of handle: AttributeHandle, on link: LinkID
  ) async throws(BluetoothError) {
    mailbox.abandon()
    guard remove(mailbox, of: handle, on: link) else { return }
    if Task.isCancelled {
      let id = newRequest()
      ask(id, of: link, at: places(among: .command, on: link)) { $0.unsubscribe(id, handle) }
      throw .cancelled
    }
    try await request(.unsubscribe(link, handle))
  }
  /// True if it was present: the link is up, and the characteristic unchanged.
  @discardableResult
  private func remove(_ mailbox: Inbox<ReceivedBatch>, of handle: AttributeHandle, on link: LinkID) -> Bool {
    guard let all = linkStates[link]?.values[handle] else { return false }
    let others = all.filter { $0 !== mailbox }
    linkStates[link]?.values[handle] = others.isEmpty ? nil : others
    return others.count < all.count
  }

  // MARK: Events

  func events(of link: LinkID) -> LinkEventSequence {
    let mailbox = Mailbox<LinkEvent>(
      capacity: 1024, overflow: .end, to: "receive the events of \(peerText(link))")
    guard linkStates[link] != nil else {
      mailbox.finish(linkIsDown(link))
      return LinkEventSequence(mailbox)
    }
    while let event = linkStates[link]?.unheard?.popFirst() { mailbox.put(event) }
    linkStates[link]?.unheard = nil
    linkStates[link]?.events.append(mailbox)
    return LinkEventSequence(mailbox)
  }
  /// Delivers the next values to their subscribers, which it wakes after the last one, and to the observer.
  func deliverValues(of batch: inout HostBatch, to observer: any HostObserver) {
    var readers: Readers?
    while let value = batch.nextValue() {
      if isClosed { continue }
      batch.withBytes(of: value.octets) { octets in
        if self.readers.links > 0, let state = linkStates[value.link], state.hasReaders {
          put(octets, value, state, &readers)
        }
        // The observer receives it as `.servicesChanged`.
        if value.isServiceChanged { return }
        observer.host(self, received: octets, of: value.handle, isIndication: value.isIndication, on: value.link)
      }
    }
    readers?.wake()
  }
  @inline(never)
  private func put(_ octets: Span<UInt8>, _ value: HostValue, _ state: LinkState, _ known: inout Readers?) {
    if known?.handle != value.handle || known?.link != value.link {
      known?.wake()
      known = Readers(link: value.link, handle: value.handle, inboxes: state.values[value.handle] ?? [])
    }
    guard let inboxes = known?.inboxes else { return }
    for inbox in inboxes { inbox.add { $0.append(octets, isIndication: value.isIndication) } }
    // Without a subscriber it becomes an event of the link.
    if inboxes.isEmpty, !value.isServiceChanged, state.hears {
      let octets = Octets(0, octets.count).array(in: octets)
      state.tell(.value(ReceivedValue(handle: value.handle, value: octets, isIndication: value.isIndication)))
    }
  }
  /// Subscribers of a characteristic: looked up, and woken, once for consecutive values.
  struct Readers {
    let link: LinkID, handle: AttributeHandle
    let inboxes: [Inbox<ReceivedBatch>]
    func wake() { for inbox in inboxes { inbox.wake() } }
  }
  func servicesChanged(_ range: HandleRange, on link: LinkID) {
    logger.info("\(link): services changed, \(range.first.text) to \(range.last.text)")
    for port in linkStates[link]?.servicesChanged(range) ?? [] { port.tellReady() }
    // The values that requests waited for may have been dropped.
    releaseHeld(on: link)
    linkStates[link]?.tell(.servicesChanged(range))
    report(.servicesChanged(link, range))
    remember(nil, of: link)
  }
  func rediscovered(_ error: ClientError?, on link: LinkID) {
    if let error { return logger.notice("\(link): services changed and could not be discovered: \(error)") }
    guard let database = core.remoteDatabase(of: link) else { return }
    linkStates[link]?.tell(.rediscovered(database))
    report(.rediscovered(link, database))
    remember(database, of: link)
  }

  // MARK: Cache

  /// The cached database of the peer, if it has this hash.
  func remembered(with hash: DatabaseHash, of peer: PeerID) async -> RemoteDatabase? {
    guard let peer = lasting(peer) else { return nil }
    await remembering?.value
    guard let database = await databaseCache.database(of: peer), database.isComplete, database.hash == hash else {
      return nil
    }
    return database
  }
  /// The peer's ID in every run, as the cache outlives this one; nil: its address does not last.
  private func lasting(_ peer: PeerID) -> PeerID? {
    let address = core.address(of: peer)
    return address.isLasting ? PeerID(address) : nil
  }
  /// Updates the cache without waiting, in order.
  func remember(_ database: RemoteDatabase?, of link: LinkID) {
    guard let state = linkStates[link], let peer = lasting(state.peer), database == nil || database?.hash != nil else {
      return
    }
    (state.cached, state.learned) = (database, nil)
    remembering = Task { [databaseCache, remembering] in
      await remembering?.value
      await databaseCache.keep(database, of: peer)
    }
  }
  func restore(_ database: RemoteDatabase, on link: LinkID) {
    linkStates[link]?.cached = database
    perform { core, _ in core.restore(database, on: link) }
  }
  /// These operations read types of descriptors that the cached database may lack.
  func learn(from operation: HostOperation) {
    switch operation {
    case .subscribe(let link, _, _), .discoverDescriptors(let link, _):
      guard let state = linkStates[link], state.cached != nil else { return }
      state.learned = core.remoteDatabase(of: link)
    default: break
    }
  }
  /// Updates the cache once, at the link's end, so that the next connection does not ask again.
  func rememberLearned(of link: LinkID) {
    guard let state = linkStates[link], let cached = state.cached, let learned = state.learned, learned.isComplete,
      learned.hash == cached.hash, learned.cacheText != cached.cacheText
    else { return }
    remember(learned, of: link)
  }
}
