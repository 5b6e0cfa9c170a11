import NIOCore

/// What a session asks of channels of L2CAP. Each is answered once: by the event that it names, or by
/// `BrokerEvent.completed` with an error. The end of its link, or of the adapter's power, ends a request without an
/// answer.
public enum ChannelRequest: Equatable, Sendable {
  /// To a service of a connected peer. `SessionChannelEvent.opened` answers.
  case open(OperationID, UUID, psm: UInt16)
  /// Peers may open channels to this session from now on, until it is closed or the adapter is not powered on any more.
  /// `SessionChannelEvent.published` answers, with the PSM that the adapter has chosen.
  case publish(OperationID, isEncrypted: Bool)
  /// Channels that are open stay. `SessionChannelEvent.unpublished` answers.
  case unpublish(OperationID, psm: UInt16)

  public var operation: OperationID {
    switch self {
    case .open(let id, _, _), .publish(let id, _), .unpublish(let id, _): id
    }
  }
}

/// What happens with channels of L2CAP. A channel that nobody keeps closes.
public enum SessionChannelEvent: Sendable {
  case opened(OperationID, SessionChannel)
  case published(OperationID, psm: UInt16)
  case unpublished(OperationID, psm: UInt16)
  /// A peer has opened a channel to a PSM of this session.
  case accepted(SessionChannel, central: UUID, longestUpdate: Int)
}

/// Gets what happens on a `SessionChannel`, on the adapter's thread: its methods must not wait.
public protocol SessionChannelUser: AnyObject, Sendable {
  /// An SDU of the peer. `SessionChannel.taken` returns its credits.
  func received(_ sdu: [UInt8])
  /// There is room for an SDU, after there was none.
  func hasRoom()
  /// `error` nil: either side has closed the channel. Called once; nothing follows.
  func ended(_ error: BluetoothError?)
}

/// # SessionChannel
/// **Overview**: one channel of L2CAP that an adapter lends to a session's owner, as it lends ports for values. SDUs
/// are admitted on the caller's thread, and events come on the adapter's.
///
/// **Function**: SDUs that come before `begin` wait; the peer's credits bound them. From `begin` until the end the
/// channel keeps its user, which may keep the channel.
///
/// **Phases**: waiting → begun → over; `begin` reports an end that came while it waited. A channel that is released
/// closes.
public final class SessionChannel: @unchecked Sendable {
  // Sendable: the phase is on the event loop.
  private enum Phase {
    case waiting([[UInt8]])
    case endedEarly([[UInt8]], BluetoothError?)
    case begun(any SessionChannelUser)
    case over
  }
  private let channel: LinkChannel
  private let eventLoop: any EventLoop
  private var phase = Phase.waiting([])

  /// On the event loop, in the call that has brought the channel.
  init(_ channel: LinkChannel, on eventLoop: any EventLoop) {
    self.channel = channel
    self.eventLoop = eventLoop
    channel.begin(self)
  }

  // MARK: From any thread

  public var psm: UInt16 { channel.psm.rawValue }
  /// The longest SDUs of the peer, and of this side, in octets.
  public var mtu: Int { channel.mtu }
  public var longestSDU: Int { channel.longestSDU }

  /// There is room for an SDU. If not, the user's `hasRoom` follows, unless the channel ends.
  public func isReady() -> Bool { channel.port.isReady() }
  /// False: there is no room, or the channel has ended, or the SDU is longer than `longestSDU`.
  public func offer(_ sdu: [UInt8]) -> Bool {
    do throws(BluetoothError) { return try channel.port.offer(sdu) } catch { return false }
  }
  /// The user has done with SDUs: the peer may send as many more.
  public func taken(_ count: Int) { channel.taken(count) }
  /// Who gets what happens, also what has happened: called once.
  public func begin(_ user: any SessionChannelUser) {
    eventLoop.execute { [self] in
      switch phase {
      case .waiting(let sdus):
        phase = .begun(user)
        for sdu in sdus { user.received(sdu) }
      case .endedEarly(let sdus, let error):
        phase = .over
        for sdu in sdus { user.received(sdu) }
        user.ended(error)
      case .begun, .over: break
      }
    }
  }
  /// Closes the channel when what it has accepted has been sent; `dropping`: at once.
  public func close(dropping: Bool = false) { channel.beginClosing(dropping: dropping) }

  // MARK: On the event loop

  /// The session has ended, or uses the link no more.
  func abandon() {
    channel.beginClosing(dropping: true)
    let why = "The program has ended the connection, or released its manager."
    channelEnded(.failed(BluetoothError(.disconnected, why)))
  }
}

extension SessionChannel: ChannelReceiver {
  package func channelReceived(_ sdu: [UInt8]) {
    switch phase {
    case .waiting(var sdus):
      sdus.append(sdu)
      phase = .waiting(sdus)
    case .begun(let user): user.received(sdu)
    case .endedEarly, .over: break
    }
  }
  package func channelIsReady() { if case .begun(let user) = phase { user.hasRoom() } }
  package func channelEnded(_ closing: ChannelClosing) {
    var error: BluetoothError?
    if case .failed(let failure) = closing { error = failure }
    switch phase {
    case .waiting(let sdus): phase = .endedEarly(sdus, error)
    case .begun(let user):
      phase = .over
      user.ended(error)
    case .endedEarly, .over: break
    }
  }
}
