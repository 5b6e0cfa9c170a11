import DequeModule
import BindruneGAP
import BindruneL2CAP
import NIOCore
import Synchronization

/// Lets the ports of one host signal its event loop: the first port wakes it, and it serves all that have rung by then.
/// So a burst of offers, in any number of ports, costs one wake. The doorbell retains a port until the host fetches it.
final class Doorbell: Sendable {
  enum Port {
    case values(SendPort)
    /// That of a channel, which its link retains.
    case channel(ChannelID)
  }
  private let ports = Mutex(Deque<(port: Port, link: LinkID)>())
  private let eventLoop: any EventLoop
  // The host owns this.
  private weak let host: BluetoothHost?

  init(_ host: BluetoothHost) {
    self.host = host
    eventLoop = host.transport.eventLoop
  }

  /// `link`: whose port it is.
  func ring(_ port: Port, of link: LinkID) {
    let isFirst = ports.withLock { ports in
      ports.append((port, link))
      return ports.count == 1
    }
    if isFirst { eventLoop.execute { self.answer() } }
  }
  /// On the event loop.
  func answer() {
    // Without a host nothing can send: the ports are released.
    let host = host
    while let (port, link) = ports.withLock({ $0.first }) {
      host?.assumeIsolated { $0.fetch(port, of: link) }
      ports.withLock { _ = $0.popFirst() }
    }
    host?.assumeIsolated { $0.sendFromPorts() }
  }
}
