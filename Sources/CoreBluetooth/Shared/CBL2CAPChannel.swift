public import Foundation

/// A stream of octets between two devices, beside their attributes. Core Specification, Vol 3, Part A, §10.1.
///
/// The app keeps the channel as long as it needs it: the channel closes when the app releases it, or when both streams
/// have been closed. What was written by then is still sent, unless the link or the manager ends first: then the
/// streams of a channel that the app still keeps fail.
open class CBL2CAPChannel: NSObject, @unchecked Sendable {
  // Sendable: it never changes.
  private struct Ends {
    let peer: CBPeer
    let psm: CBL2CAPPSM
    let pipe: ChannelPipe
    let input: ChannelInputStream
    let output: ChannelOutputStream
  }
  /// Nil: a channel that an app has made.
  private let ends: Ends?

  /// A channel that leads nowhere, and has no streams.
  public override init() {
    ends = nil
    super.init()
  }
  package init(psm: CBL2CAPPSM, peer: CBPeer, pipe: ChannelPipe) {
    ends = Ends(
      peer: peer, psm: psm, pipe: pipe, input: ChannelInputStream(pipe), output: ChannelOutputStream(pipe))
    super.init()
  }
  deinit { ends?.pipe.close(.both) }

  /// The device at the other end: a `CBPeripheral` for a central, a `CBCentral` for a peripheral.
  open var peer: CBPeer! { ends?.peer }
  /// What the peer has sent: octets, without the boundaries of its SDUs. The peer is stopped while the app does not read
  /// them.
  open var inputStream: InputStream! { ends?.input }
  /// What to send to the peer. A write takes as many octets as there is room for; they are cut into SDUs, and several
  /// writes may share one.
  open var outputStream: OutputStream! { ends?.output }
  /// The number under which the listener can be reached.
  open var psm: CBL2CAPPSM { ends?.psm ?? 0 }
}
