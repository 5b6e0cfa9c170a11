import NIOCore

/// Gets what happens on a `SessionChannel`, on the session's event loop: its methods must not wait.
public protocol SessionChannelUser: AnyObject, Sendable {
  /// An SDU of the peer. `SessionChannel.taken` returns its credits.
  func received(_ sdu: [UInt8])
  /// There is room for an SDU, after there was none.
  func hasRoom()
  /// `error` nil: either side has closed the channel. Called once; nothing follows.
  func ended(_ error: BluetoothError?)
}

/// What a `SessionChannel` stands for: a channel of a host in this process, or one of bindruned's at this end of its
/// socket. From any thread.
protocol ChannelCarrier: AnyObject, Sendable {
  var psm: SPSM { get }
  /// The longest SDU of the peer, in octets.
  var mtu: Int { get }
  var port: ChannelPort { get }
  func taken(_ count: Int)
  func beginClosing(dropping: Bool)
}
extension LinkChannel: ChannelCarrier {}

/// # SessionChannel
/// **Overview**: one channel of L2CAP that a session lends to its owner, as it lends ports for values. SDUs are
/// admitted on the caller's thread, and events come on the session's event loop: the adapter's, or that of its socket.
///
/// **Function**: what comes before `begin` waits; the peer's credits bound its SDUs. From `begin` until the end the
/// channel keeps its user, which may keep the channel.
///
/// **Phases**: waiting → begun → over; `begin` reports an end that came while it waited. A channel that is released
/// closes.
public final class SessionChannel: @unchecked Sendable {
  // Sendable: the phase is on the event loop.
  private enum Phase {
    /// `hasRoom`: the user is to learn that there is room again.
    case waiting([[UInt8]], hasRoom: Bool)
    case endedEarly([[UInt8]], BluetoothError?)
    case begun(any SessionChannelUser)
    case over
  }
  private let carrier: any ChannelCarrier
  private let eventLoop: any EventLoop
  private var phase = Phase.waiting([], hasRoom: false)

  /// The carrier's events are this object's: `ChannelReceiver`.
  init(_ carrier: any ChannelCarrier, on eventLoop: any EventLoop) {
    self.carrier = carrier
    self.eventLoop = eventLoop
  }
  /// On the event loop, in the call that has brought the channel.
  convenience init(_ channel: LinkChannel, on eventLoop: any EventLoop) {
    self.init(channel as any ChannelCarrier, on: eventLoop)
    channel.begin(self)
  }
  deinit { carrier.beginClosing(dropping: false) }

  // MARK: From any thread

  public var psm: UInt16 { carrier.psm.rawValue }
  /// The longest SDUs of the peer, and of this side, in octets.
  public var mtu: Int { carrier.mtu }
  public var longestSDU: Int { carrier.port.longestSDU }

  /// There is room for an SDU. If not, the user's `hasRoom` follows, unless the channel ends.
  public func isReady() -> Bool { carrier.port.isReady() }
  /// False: there is no room, or the channel has ended, or the SDU is longer than `longestSDU`.
  public func offer(_ sdu: [UInt8]) -> Bool {
    do throws(BluetoothError) { return try carrier.port.offer(sdu) } catch { return false }
  }
  /// The user has done with SDUs: the peer may send as many more.
  public func taken(_ count: Int) { carrier.taken(count) }
  /// Who gets what happens, also what has happened: called once.
  public func begin(_ user: any SessionChannelUser) {
    eventLoop.execute { [self] in
      switch phase {
      case .waiting(let sdus, let hasRoom):
        phase = .begun(user)
        for sdu in sdus { user.received(sdu) }
        if hasRoom { user.hasRoom() }
      case .endedEarly(let sdus, let error):
        phase = .over
        for sdu in sdus { user.received(sdu) }
        user.ended(error)
      case .begun, .over: break
      }
    }
  }
  /// Closes the channel when what it has accepted has been sent; `dropping`: at once.
  public func close(dropping: Bool = false) { carrier.beginClosing(dropping: dropping) }

  // MARK: On the event loop

  /// The session has ended, or uses the link no more.
  func abandon() {
    carrier.beginClosing(dropping: true)
    channelEnded(.failed(.abandoned))
  }
}
extension BluetoothError {
  static var abandoned: BluetoothError {
    BluetoothError(.disconnected, "The program has ended the connection, or released its manager.")
  }
}
extension SessionChannel: Equatable {
  public static func == (one: SessionChannel, other: SessionChannel) -> Bool { one === other }
}

extension SessionChannel: ChannelReceiver {
  package func channelReceived(_ sdu: [UInt8]) {
    switch phase {
    case .waiting(var sdus, let hasRoom):
      sdus.append(sdu)
      phase = .waiting(sdus, hasRoom: hasRoom)
    case .begun(let user): user.received(sdu)
    case .endedEarly, .over: break
    }
  }
  package func channelIsReady() {
    switch phase {
    case .waiting(let sdus, _): phase = .waiting(sdus, hasRoom: true)
    case .begun(let user): user.hasRoom()
    case .endedEarly, .over: break
    }
  }
  package func channelEnded(_ closing: ChannelClosing) {
    var error: BluetoothError?
    if case .failed(let failure) = closing { error = failure }
    switch phase {
    case .waiting(let sdus, _): phase = .endedEarly(sdus, error)
    case .begun(let user):
      phase = .over
      user.ended(error)
    case .endedEarly, .over: break
    }
  }
}
