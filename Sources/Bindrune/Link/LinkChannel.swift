import BindruneGAP
import BindruneL2CAP
import BindruneWire
import Synchronization

/// A credit-based channel of a link: SDUs in both directions, whole and in order, beside the link's attributes. Vol 3,
/// Part A, §3.4, §10.1.
///
///     let channel = try await link.openChannel(psm: SPSM(rawValue: 0x0080))
///     try await channel.send(Array("hello".utf8))
///     for try await sdu in channel.received { print(sdu) }
///
/// Both directions push back. `send` waits, and `port` refuses, while the peer gives no credits. A reader that stops
/// reading gives none itself: at most two SDUs of `mtu` octets wait for it (or as many short ones as fit into the
/// K-frames of those two), and then the peer has to wait.
///
/// The channel closes when its last reference is released: SDUs that were accepted leave first.
public final class LinkChannel: Sendable, Identifiable {
  public let link: Link
  let state: ChannelState

  init(_ state: ChannelState, of link: Link) {
    self.state = state
    self.link = link
  }
  deinit { link.host.onEventLoop { [state, id = link.id] host in host.close(state, of: id, dropping: false) } }

  /// Its number on this side of the link, which a later channel may have again. Vol 3, Part A, §2.1.
  public var id: ChannelID { state.id }
  /// What the service is known by: Vol 3, Part A, §4.22.
  public var psm: SPSM { state.channel.spsm }
  /// The peer has opened it.
  public var isIncoming: Bool { state.channel.isIncoming }
  /// The longest SDU that the peer may send, in octets.
  public var mtu: Int { Int(state.channel.mtu) }
  /// The longest SDU that `send` and `port` take, in octets: the peer's MTU, or less if the channel was opened with
  /// less.
  public var longestSDU: Int { port.longestSDU }

  /// Accepts SDUs without waiting, from any thread.
  public var port: ChannelPort { state.port }
  /// Sends an SDU: returns when it is accepted, in order with those of `port`, and throws when the channel has ended or
  /// the task is cancelled, and then nothing was sent. What has been accepted leaves as the peer gives credits.
  public func send(_ sdu: [UInt8]) async throws(BluetoothError) {
    while try !port.offer(sdu) { try await port.waitUntilReady() }
  }

  /// The SDUs of the peer, in order. Ends when the channel is closed, by either side, after the SDUs that wait; throws
  /// after them if the link went down or the peer broke the protocol. For one task; cancelling that ends it.
  public var received: HostSequence<[UInt8]> {
    HostSequence { [self] () async throws(BluetoothError) in
      guard let sdu = try await state.inbox.take() else { return nil }
      taken(1)
      return sdu
    }
  }
  /// The reader has done with SDUs: the peer gets their credits. From any thread.
  package func taken(_ count: Int) {
    // One call returns the credits of all SDUs that are taken before the host carries it out.
    guard count > 0, state.taken.add(count, ordering: .relaxed).oldValue == 0 else { return }
    link.host.onEventLoop { [state, id = link.id] host in host.returnCredits(of: state, on: id) }
  }
  /// On the event loop, in the call that has brought the channel: `receiver`, which is not retained, gets what happens
  /// on it, in place of `received`.
  package func begin(_ receiver: any ChannelReceiver) { state.receiver = receiver }
  /// As `close`, without waiting for the end. From any thread.
  package func beginClosing(dropping: Bool) {
    link.host.onEventLoop { [state, id = link.id] host in host.close(state, of: id, dropping: dropping) }
  }

  /// Closes the channel: accepts nothing more, and returns when the channel has ended. If `closed` is `.here` then, the
  /// peer has got everything that was accepted. A peer that gives no credits delays that without limit; `dropping`, and
  /// cancelling the task, drop what waits.
  public func close(dropping: Bool = false) async {
    await link.host.close(state, of: link.id, dropping: dropping)
    do throws(BluetoothError) { _ = try await state.ending.wait() } catch {
      await link.host.close(state, of: link.id, dropping: true)
    }
  }
  /// Waits for the channel's end, and returns the reason. Any number of tasks may wait; a cancelled task gets
  /// `.failed(.cancelled)`, and the channel stays open.
  public var closed: ChannelClosing {
    get async {
      do throws(BluetoothError) { return try await state.ending.wait() } catch { return .failed(error) }
    }
  }
}

/// Why a `LinkChannel` has ended.
#if hasAttribute(nonexhaustive)
  @nonexhaustive(warn)
#endif
public enum ChannelClosing: Sendable, Equatable {
  /// By `LinkChannel.close`, or the last reference was released, and the peer has answered.
  case here
  case byPeer
  /// The link went down, the peer broke the protocol, or the host was closed.
  case failed(BluetoothError)
}

/// The channels that peers open to one of this host's services, in order: see `BluetoothHost.listen`.
///
/// Iterate it in one task. Of those that nobody has taken at most 64 wait; beyond that the oldest closes. The host
/// stops listening when the last copy and iterator are released, or at `end`; channels that were taken stay.
public struct ChannelListener: AsyncSequence, Sendable {
  public typealias Element = LinkChannel
  public typealias Failure = BluetoothError
  let holder: Holder

  /// What peers open channels to.
  public var psm: SPSM { holder.psm }
  /// Stops listening: the PSM is free when this returns.
  public func end() async { await holder.host.stopListening(holder.psm, holder.mailbox) }

  public typealias Iterator = HostSequence<LinkChannel>.Iterator
  public func makeAsyncIterator() -> Iterator {
    HostSequence { [holder] () async throws(BluetoothError) in try await holder.mailbox.take() }.makeAsyncIterator()
  }

  final class Holder: Sendable {
    let psm: SPSM
    let mailbox: Mailbox<LinkChannel>
    let host: BluetoothHost
    init(_ psm: SPSM, _ mailbox: Mailbox<LinkChannel>, _ host: BluetoothHost) {
      self.psm = psm
      self.mailbox = mailbox
      self.host = host
    }
    deinit { host.onEventLoop { [psm, mailbox] host in host.stopListening(psm, mailbox) } }
  }
}

extension Link {
  /// Opens a channel to the peer's service. If the peer wants a better protected link, the host secures it first, as
  /// for a request, and asks once more. `mtu`: the longest SDU that either side will send, 23 … 65,535 octets; the peer
  /// may accept less (`LinkChannel.longestSDU`). `capacity`: octets that may wait to be sent, two for each SDU included.
  ///
  /// Throws `.refused` if the peer has no such service or no room, `.pairing` if it wants more protection than there
  /// can be, `.timedOut` after 30 s without an answer, `.busy` if the link has all its 56 channels. Vol 3, Part A,
  /// §4.22, §4.23.
  public func openChannel(
    psm: SPSM, mtu: Int = 2048, capacity: Int = 16 * 1024
  ) async throws(BluetoothError) -> LinkChannel {
    try await host.request(.openChannel(id, psm, mtu: mtu, capacity: capacity), \.channel)
  }
}
