import DequeModule
import NIOConcurrencyHelpers
import NIOCore

/// # AppChannel
/// **Overview**: the daemon's end of a channel of L2CAP that an app has, between the adapter and the app's socket.
///
///     adapter ── received, hasRoom, ended ──▶ ┌────────────┐ ── sdu, sdusAccepted, channelEnded ──▶ app
///             ◀── offer, taken, close ─────── │ AppChannel │ ◀── sdu, sdusTaken, closeChannel ─────
///                                             └────────────┘
///
/// **Function**: an SDU of the peer goes to the app when the socket is writable, and counts as taken when the app says
/// so. Until then it is credit that the peer does not have: the peer's credits bound what waits here. An SDU of the app
/// waits while the adapter's channel has no room, within the credit that the app has for this channel. So neither end
/// fills the daemon's memory, and a channel that does not move delays nothing else on the socket.
///
/// **Phases**: open → closing (the app has closed it; what the app has sent leaves first) → closed. In each of them it
/// ends when the adapter's channel does.
final class AppChannel: NumberedPort, SessionChannelUser, @unchecked Sendable {
  // Sendable: the lock, or the event loop of the connection.
  private enum Phase { case open, closing, closed }
  private enum Arrival {
    case sdu([UInt8])
    case end(BluetoothError?)
  }
  /// Octets of SDUs that an app may have sent and that the adapter's channel has not accepted, with `Frame.costOfSDU`
  /// for each.
  static var credit: Int { 8192 }

  let number: UInt32
  private let channel: SessionChannel
  private let eventLoop: any EventLoop
  private weak let connection: AppConnection?

  // MARK: Under the lock
  private let lock = NIOLock()
  private var arrivals: [Arrival] = []

  // MARK: On the event loop
  private var phase = Phase.open
  /// What the app may send.
  private var credit = AppChannel.credit
  /// What the app has spent, and has not got back.
  private var spent = 0
  /// SDUs of the app for which there is no room, in order.
  private var waiting = Deque<[UInt8]>()
  /// SDUs that the app has got, and not taken.
  private var untaken = 0

  init(_ number: UInt32, _ channel: SessionChannel, of connection: AppConnection, on eventLoop: any EventLoop) {
    (self.number, self.channel, self.connection, self.eventLoop) = (number, channel, connection, eventLoop)
  }
  var description: ChannelDescription {
    ChannelDescription(
      number: number, psm: channel.psm, mtu: UInt16(clamping: channel.mtu),
      longestSDU: UInt16(clamping: channel.longestSDU), credit: UInt32(Self.credit))
  }

  // MARK: What the app says

  func receive(_ sdu: ByteBuffer) throws(FrameError) {
    let count = sdu.readableBytes, cost = count + Frame.costOfSDU
    guard case .open = phase else { throw FrameError("an SDU on channel \(number), which it has closed") }
    guard count <= channel.longestSDU else {
      throw FrameError("an SDU of \(count) octets on channel \(number), which takes at most \(channel.longestSDU)")
    }
    guard credit >= cost else { throw FrameError("more SDUs on channel \(number) than it has credit for") }
    credit -= cost
    waiting.append(Array(sdu.readableBytesView))
    offerWaiting()
  }
  func take(_ count: UInt32) throws(FrameError) {
    guard count <= untaken else {
      throw FrameError("\(count) SDUs taken of channel \(number), of which it has \(untaken)")
    }
    untaken -= Int(count)
    channel.taken(Int(count))
  }
  func close(dropping: Bool) {
    if dropping {
      waiting = []
      phase = .closed
      return channel.close(dropping: true)
    }
    guard case .open = phase else { return }
    phase = .closing
    offerWaiting()
  }

  private func offerWaiting() {
    while let first = waiting.first, channel.offer(first) {
      waiting.removeFirst()
      spent += first.count + Frame.costOfSDU
    }
    if waiting.isEmpty, case .closing = phase {
      phase = .closed
      channel.close()
    }
  }

  // MARK: What the app gets

  /// From now on it gets what happens on the channel.
  func begin() { channel.begin(self) }
  /// True: the channel has ended, and the message about that is the last one.
  func writeArrivals(to writer: inout MessageWriter) -> Bool {
    let arrivals = lock.withLock {
      defer { self.arrivals = [] }
      return self.arrivals
    }
    for arrival in arrivals {
      switch arrival {
      case .sdu(let sdu):
        untaken += 1
        writer.writeSDU(DaemonMessage.Number.sdu.rawValue, number, sdu.span)
      case .end(let error):
        writer.write(DaemonMessage.channelEnded(number, error))
        return true
      }
    }
    return false
  }
  /// Half of the credit in one message, or all of it when the app has not enough for the longest SDU.
  func writeCredit(to writer: inout MessageWriter) {
    guard spent >= Self.credit / 2 || (spent > 0 && credit < channel.longestSDU + Frame.costOfSDU) else { return }
    writer.write(DaemonMessage.sdusAccepted(channel: number, octets: UInt32(spent)))
    credit += spent
    spent = 0
  }

  // MARK: The adapter's channel, on the adapter's event loop

  func received(_ sdu: [UInt8]) { put(.sdu(sdu)) }
  func ended(_ error: BluetoothError?) { put(.end(error)) }
  private func put(_ arrival: Arrival) {
    let isFirst = lock.withLock {
      arrivals.append(arrival)
      return arrivals.count == 1
    }
    if isFirst { eventLoop.execute { self.connection?.channelsChanged() } }
  }
  func hasRoom() {
    eventLoop.execute { [self] in
      offerWaiting()
      connection?.returnCredit()
    }
  }
}
