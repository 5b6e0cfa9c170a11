import BindruneGAP
import BindruneL2CAP
import BindruneWire
import Synchronization

/// One channel above the core: what the link keeps of it, and what all references to its `LinkChannel` share.
final class ChannelState: @unchecked Sendable {
  // Sendable: only its host, isolated, uses the one variable.
  let id: ChannelID
  let channel: OpenChannel
  let port: ChannelPort
  /// Bounded by the credits that the peer has: L2CAP ends a channel that sends without.
  let inbox: Inbox<BoundedQueue<[UInt8]>>
  let ending = Ending<ChannelClosing>()
  /// SDUs that the reader has taken, and whose credits the core has not returned.
  let taken = Atomic(0)
  /// It closes when the port is empty.
  var isClosing = false
  /// Gets what happens on the channel, in place of `inbox` and the port's waiters.
  weak var receiver: (any ChannelReceiver)?

  init(_ id: ChannelID, _ channel: OpenChannel, capacity: Int, peer: String, wake: @escaping @Sendable () -> Void) {
    self.id = id
    self.channel = channel
    port = ChannelPort(longestSDU: Int(channel.longestSDU), capacity: capacity, wake: wake)
    inbox = Inbox(capacity: .max, overflow: .end, to: "receive on a channel of \(peer)")
  }
  /// Called once.
  func end(_ closing: ChannelClosing) {
    // First: who learns it from the port or the inbox finds the reason.
    ending.finish(closing)
    switch closing {
    case .here, .byPeer:
      port.close(.channelIsClosed)
      inbox.finish()
    case .failed(let error):
      port.close(error)
      inbox.finish(error)
    }
    receiver?.channelEnded(closing)
  }
}

/// An interface on top of the host that uses a channel without a task. The host calls it on its event loop; the methods
/// must not wait. See `LinkChannel.begin`.
package protocol ChannelReceiver: AnyObject, Sendable {
  /// An SDU of the peer. `LinkChannel.taken` returns its credits.
  func channelReceived(_ sdu: [UInt8])
  /// The port's ready edge.
  func channelIsReady()
  /// Called once, and nothing follows.
  func channelEnded(_ closing: ChannelClosing)
}

/// Who receives the channels that peers open to one PSM.
struct Listening {
  let acceptor: Acceptor
  let capacity: Int

  enum Acceptor {
    case mailbox(Mailbox<LinkChannel>)
    /// Called on the event loop.
    case call(@Sendable (LinkChannel) -> Void)
  }
  func accept(_ channel: LinkChannel) {
    switch acceptor {
    case .mailbox(let mailbox): mailbox.put(channel)
    case .call(let call): call(channel)
    }
  }
  func end(_ error: BluetoothError) {
    switch acceptor {
    case .mailbox(let mailbox): mailbox.finish(error)
    case .call: break
    }
  }
  func isOf(_ other: Mailbox<LinkChannel>) -> Bool {
    switch acceptor {
    case .mailbox(let mailbox): mailbox === other
    case .call: false
    }
  }
}

extension BluetoothHost {
  /// Listens for channels that peers open, in either role of a link, until the result is released.
  ///
  ///     let listener = try await host.listen(security: .encrypted)
  ///     print(listener.psm)                 // tell it to peers, in a characteristic for example
  ///     for try await channel in listener { serve(channel) }
  ///
  /// `psm`: 0x0001 … 0x007F are assigned to services by the Bluetooth SIG, 0x0080 … 0x00FF are for others; nil: the
  /// host chooses the least of the latter that is free. `security`: what must protect the link; a peer that asks
  /// without gets the reason, and can pair. `mtu`: the longest SDU that either side will send, 23 … 65,535 octets.
  /// `capacity`: octets that may wait to be sent on each channel, two for each SDU included. Vol 3, Part A, §4.22.
  public func listen(
    psm: SPSM? = nil, security: ChannelSecurity = .none, mtu: Int = 2048, capacity: Int = 16 * 1024
  ) throws(BluetoothError) -> ChannelListener {
    let mailbox = Mailbox<LinkChannel>(capacity: 64, overflow: .dropOldest, to: "receive channels")
    let psm = try listen(psm: psm, security: security, mtu: mtu, capacity: capacity, .mailbox(mailbox))
    return ChannelListener(holder: ChannelListener.Holder(psm, mailbox, self))
  }
  /// The same for an interface on top of the host, on the event loop: `accept` is called there with each channel, until
  /// `endListening`.
  package func beginListening(
    security: ChannelSecurity, mtu: Int = 2048, capacity: Int = 16 * 1024,
    _ accept: @escaping @Sendable (LinkChannel) -> Void
  ) throws(BluetoothError) -> SPSM {
    try listen(psm: nil, security: security, mtu: mtu, capacity: capacity, .call(accept))
  }
  package func endListening(_ psm: SPSM) {
    guard listening.removeValue(forKey: psm) != nil else { return }
    core.stopListening(psm)
  }
  private func listen(
    psm: SPSM?, security: ChannelSecurity, mtu: Int, capacity: Int, _ acceptor: Listening.Acceptor
  ) throws(BluetoothError) -> SPSM {
    let operation = psm.map { "listen on PSM \($0.text)" } ?? "listen for channels"
    do throws(BluetoothError) { try check() } catch { throw error.during(operation) }
    guard let settings = ChannelSettings(mtu: mtu), let psm = psm ?? core.freeSPSM,
      core.listen(psm, ChannelService(settings, security: security))
    else {
      throw BluetoothError(
        .invalidArgument,
        "The PSM is in use or not 0x0001 … 0x00FF, or the MTU is not 23 … 65,535: choose others.", operation: operation)
    }
    listening[psm] = Listening(acceptor: acceptor, capacity: capacity)
    return psm
  }
  func stopListening(_ psm: SPSM, _ mailbox: Mailbox<LinkChannel>) {
    mailbox.abandon()
    // Somebody else may have it by now.
    if listening[psm]?.isOf(mailbox) == true { endListening(psm) }
  }

  // MARK: Calls

  func openChannel(_ psm: SPSM, mtu: Int, on link: LinkID, id: RequestID) {
    perform { core, now in
      // The core refuses an MTU of 0, as it would this one.
      core.openChannel(psm, ChannelSettings(mtu: mtu) ?? ChannelSettings(mtu: 0), on: link, id: id, now: now)
    }
  }
  /// The outcome of an operation that opened a channel.
  func made(_ id: ChannelID, _ channel: OpenChannel, for operation: HostOperation?) -> RequestResult {
    guard case .openChannel(let link, _, _, let capacity)? = operation,
      let new = makeChannel(id, channel, on: link, capacity: capacity)
    else { return .failure(linkIsDown(operation?.link)) }
    return .success(.channel(new))
  }
  /// nil: the link is down.
  private func makeChannel(_ id: ChannelID, _ channel: OpenChannel, on link: LinkID, capacity: Int) -> LinkChannel? {
    guard let linkState = linkStates[link], let owner = self.link(link) else { return nil }
    let doorbell = doorbellOfPorts()
    let state = ChannelState(id, channel, capacity: capacity, peer: peerText(link)) {
      doorbell.ring(.channel(id), of: link)
    }
    linkState.add(state)
    return LinkChannel(state, of: owner)
  }
  /// The link still has it: its number may be another channel's by now.
  private func isOpen(_ state: ChannelState, on link: LinkID) -> Bool {
    linkStates[link]?.channels.contains { $0 === state } == true
  }
  /// Closes the channel when what was offered has left; `dropping`: at once.
  func close(_ state: ChannelState, of link: LinkID, dropping: Bool) {
    guard isOpen(state, on: link) else { return }
    if dropping {
      state.port.close(.channelIsClosed)
      return perform(as: "close()") { core, now in
        core.closeChannel(state.id, of: link, afterSending: false, now: now)
      }
    }
    state.port.end(.channelIsClosed)
    state.isClosing = true
    send(from: state, on: link)
  }
  /// Hands the core what the port has, as far as the core takes it.
  func send(from state: ChannelState, on link: LinkID) {
    let now = now
    perform(as: "send(_:)") { core, _ in
      let isEmpty = state.port.drain(now: now, ready: { state.receiver?.channelIsReady() }) { sdu in
        // A channel that has ended takes what its port still has.
        core.send(sdu, on: state.id, of: link) != .full
      }
      if isEmpty, state.isClosing {
        core.closeChannel(state.id, of: link, afterSending: true, now: now)
      }
    }
  }
  func returnCredits(of state: ChannelState, on link: LinkID) {
    let count = state.taken.exchange(0, ordering: .relaxed)
    guard isOpen(state, on: link) else { return }
    perform { core, _ in core.taken(count, on: state.id, of: link) }
  }

  // MARK: Effects

  func channelOpened(_ id: ChannelID, _ channel: OpenChannel, on link: LinkID) {
    // Nobody listens any more: nobody takes it, and it closes.
    let service = listening[channel.spsm]
    guard let new = makeChannel(id, channel, on: link, capacity: service?.capacity ?? 0) else { return }
    service?.accept(new)
  }
  func channelReceived(_ sdu: [UInt8], on id: ChannelID, of link: LinkID) {
    guard let state = linkStates[link]?.channel(id) else { return }
    if let receiver = state.receiver { receiver.channelReceived(sdu) } else { state.inbox.put(sdu) }
  }
  func channelReady(_ id: ChannelID, of link: LinkID) {
    if let state = linkStates[link]?.channel(id) { send(from: state, on: link) }
  }
  func channelClosed(_ id: ChannelID, of link: LinkID, _ end: ChannelEnd) {
    // The link takes its channels along: `LinkState.end` has the reason.
    if case .linkClosed = end { return }
    guard let state = linkStates[link]?.takeChannel(id) else { return }
    switch end {
    case .closedHere: state.end(.here)
    case .closedByPeer: state.end(.byPeer)
    case .refused, .notUnderstood, .invalidResponse, .timedOut, .fault, .linkClosed:
      state.end(.failed(BluetoothError(end).during("keep a channel of \(peerText(link))")))
    }
  }
}

extension ChannelSettings {
  /// nil: outside the range of Vol 3, Part A, §4.22.
  fileprivate init?(mtu: Int) {
    guard let mtu = UInt16(exactly: mtu) else { return nil }
    self.init(mtu: mtu)
    guard isValid(isEnhanced: false) else { return nil }
  }
}

extension BluetoothError {
  package static var channelIsClosed: BluetoothError {
    BluetoothError(.disconnected, "The channel has been closed: open another.")
  }
}
