import BindruneBroker
import Foundation

/// # ChannelLine
/// **Overview**: carries octets between the pipe of an app's streams and the session's channel.
///
///     streams ── ChannelPipe ── ChannelLine ── SessionChannel
///
/// **Function**: outgoing octets leave in SDUs, as many octets at a time as wait and as one SDU holds, while the
/// channel has room; incoming SDUs go into the pipe, and their credits are returned when the app has read them.
///
/// **Phases**: from `open` until the channel's end. The channel keeps the line meanwhile; the pipe does not.
final class ChannelLine: ChannelPipeDriver, SessionChannelUser, @unchecked Sendable {
  // Sendable: the pipe is set once, before anybody else has the line.
  private let channel: SessionChannel
  private var pipe: ChannelPipe!
  /// Keeps the order of SDUs: the app's threads and the adapter's send.
  private let sending = Lock()

  private init(_ channel: SessionChannel) {
    self.channel = channel
    // The peer's credits are memory for two of its longest SDUs, in K-frames, of which none is longer than such an SDU
    // with its length: so an SDU always has room. What the app writes ahead waits here, and in the channel's port.
    pipe = ChannelPipe(
      inputCapacity: 4 * (channel.mtu + 2), outputCapacity: 4 * max(channel.longestSDU, 64), driver: self)
  }
  /// The app's object for the channel.
  static func open(_ channel: SessionChannel, to peer: CBPeer) -> CBL2CAPChannel {
    let line = ChannelLine(channel)
    let opened = CBL2CAPChannel(psm: channel.psm, peer: peer, pipe: line.pipe)
    channel.begin(line)
    return opened
  }

  private func send() {
    let isFinished = sending.withLock { () -> Bool in
      while channel.isReady() {
        var taken = ChannelPipe.Taken.nothing
        let sdu = [UInt8](capacity: channel.longestSDU) { taken = pipe.takeSDU(into: &$0) }
        switch taken {
        // False only if the channel has ended: the pipe learns of that.
        case .octets: _ = channel.offer(sdu)
        case .nothing: return false
        case .finished: return true
        }
      }
      return false
    }
    if isFinished { channel.close() }
  }

  // MARK: The pipe's calls

  func outputWaits(in pipe: ChannelPipe) { send() }
  func inputWasRead(in pipe: ChannelPipe) { channel.taken(pipe.takeReadCount()) }
  /// No SDU is refused: see `init`.
  func inputHasRoom(in pipe: ChannelPipe) {}
  func appHasClosed(_ pipe: ChannelPipe) { send() }

  // MARK: The channel's

  func received(_ sdu: [UInt8]) {
    guard !pipe.offer(sdu.span) else { return }
    channel.close(dropping: true)
    pipe.end(.failed(CBError(.unknown, "The device has sent more than it had credits for.")))
  }
  func hasRoom() { send() }
  func ended(_ error: BluetoothError?) { pipe.end(error.map { .failed($0.facade) } ?? .closed) }
}
