import NIOCore
import Synchronization

/// # RemoteChannel
/// **Overview**: the app's end of a channel of L2CAP that bindruned's adapter has. The session's connection keeps it;
/// the app has a `SessionChannel` of it.
///
/// **Function**: SDUs that the app offers wait in a port of this process; the writer of the socket takes them while the
/// daemon has granted credit. SDUs of the peer are the app's at once, and the daemon learns when the app has done with
/// them: only then does the peer get their credits.
///
/// **Phases**: open → closing (the app has closed it; the daemon learns when the port is empty) → closed. In each of
/// them it ends when the daemon says so, or with the connection.
final class RemoteChannel: NumberedPort, ChannelCarrier, @unchecked Sendable {
  // Sendable: the port and the counter; the rest is on the event loop of the connection.
  enum Phase { case open, closing(dropping: Bool), closed(dropping: Bool) }

  let number: UInt32
  let psm: SPSM
  let mtu: Int
  let port: ChannelPort
  private let connection: any RemoteChannelWriter
  /// SDUs that the app has done with, and that the next `sdusTaken` counts.
  private let takenSDUs = Atomic(0)

  // MARK: On the event loop
  private var phase = Phase.open
  /// What the daemon takes.
  var credit: Int
  /// The app's; nil: the app has released it.
  weak var receiver: SessionChannel?

  init(_ announced: ChannelDescription, of connection: any RemoteChannelWriter) {
    number = announced.number
    psm = SPSM(rawValue: announced.psm)
    mtu = Int(announced.mtu)
    credit = Int(announced.credit)
    self.connection = connection
    port = ChannelPort(longestSDU: Int(announced.longestSDU), capacity: 4096) { [weak connection] in
      connection?.wake()
    }
  }

  // MARK: From any thread

  func taken(_ count: Int) {
    if count > 0, takenSDUs.add(count, ordering: .relaxed).oldValue == 0 { connection.wake() }
  }
  func beginClosing(dropping: Bool) { connection.eventLoop.execute { self.close(dropping: dropping) } }

  // MARK: On the event loop

  private func close(dropping: Bool) {
    switch (phase, dropping) {
    case (.open, _), (.closing(dropping: false), true), (.closed(dropping: false), true):
      if dropping { port.close(.channelIsClosed) } else { port.end(.channelIsClosed) }
      phase = .closing(dropping: dropping)
      connection.wake()
    case (.closing, _), (.closed, _): break
    }
  }
  /// As far as there is credit.
  func write(to writer: inout MessageWriter) {
    let taken = takenSDUs.exchange(0, ordering: .relaxed)
    if taken > 0 { writer.write(AppMessage.sdusTaken(channel: number, UInt32(taken))) }
    let isEmpty = port.drain(now: .zero, ready: { receiver?.channelIsReady() }) { sdu in
      let cost = sdu.count + Frame.costOfSDU
      guard credit >= cost else { return false }
      credit -= cost
      writer.writeSDU(AppMessage.Number.sdu.rawValue, number, sdu)
      return true
    }
    guard isEmpty, case .closing(let isDropping) = phase else { return }
    phase = .closed(dropping: isDropping)
    writer.write(AppMessage.closeChannel(number, dropping: isDropping))
  }
  /// `error` nil: either side has closed it. Called once.
  func end(_ error: BluetoothError?) {
    port.close(error ?? .channelIsClosed)
    receiver?.channelEnded(error.map { .failed($0) } ?? .byPeer)
  }
}

/// The connection of a session, for its channels.
protocol RemoteChannelWriter: AnyObject, Sendable {
  var eventLoop: any EventLoop { get }
  /// A channel has something to write. From any thread.
  func wake()
}
