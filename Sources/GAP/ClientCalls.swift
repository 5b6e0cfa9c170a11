import BindruneATT
import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI

// The application's calls to the GATT client of a link. Vol 3, Part G, §4.
extension HostCore {
  // MARK: Requests

  /// Starts a procedure of `link`'s GATT client; `body` hands `id` to it. Ends with `.completed(id, …)` in any case.
  /// The request leaves after the commands already written on the link. `isHeld`: more commands are to precede it; it
  /// and all later requests wait until `release`.
  public mutating func withClient(
    of link: LinkID, id: RequestID, isHeld: Bool = false, _ body: (inout Client) -> Void
  ) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    upper.links[index].withClient(isHeld: isHeld, body)
    collect(at: index)
  }
  /// Releases a held request: all commands that precede it have been written. Does nothing if it has ended.
  public mutating func release(_ id: RequestID, on link: LinkID) {
    guard let index = upper.index(of: link) else { return }
    upper.links[index].release(id)
    collect(at: index)
  }
  /// What the client has discovered so far; nil if there is no such link.
  public func remoteDatabase(of link: LinkID) -> RemoteDatabase? { self.link(link) { $0.client.remote } }
  /// Sets what `link`'s client knows to `database`: see `Client.restore`.
  public mutating func restore(_ database: RemoteDatabase, on link: LinkID) {
    guard let index = upper.index(of: link) else { return }
    withLink(at: index) { $0.client.restore(database) }
  }
  /// Sends our MTU to the peer, once on a link: for a host that does not by itself, `HostConfiguration.exchangesMTU`.
  package mutating func exchangeMTU(on link: LinkID) {
    guard let index = upper.index(of: link) else { return }
    withLink(at: index) { $0.exchangeMTU() }
    collect(at: index)
  }
  /// The ATT_MTU in force; nil if there is no such link.
  public func mtu(of link: LinkID) -> Int? { self.link(link) { $0.mtu(for: .request) } }

  // MARK: Commands

  /// Write Without Response: bounded, in order with the link's other commands and requests; `.full` also while an
  /// earlier request has not left. Vol 3, Part G, §4.9.1. `value` has at most MTU − 3 octets; a longer one is cut.
  public mutating func write(command value: Span<UInt8>, to handle: AttributeHandle, on link: LinkID) -> SendAnswer {
    guard let index = upper.index(of: link) else { return .closed }
    hci.credits.setWants(upper.links[index].handle, true)
    let answer = upper.links[index].offer(command: handle, value)
    if case .full = answer, upper.links[index].client.awaitsEncryption { withLink(at: index) { $0.demandSecurity() } }
    return answer
  }
  /// The same; if nothing waits before it and the controller has a buffer, the packet is written into `output` at once,
  /// and the driver sends it from there. This saves a copy. `output` as for `nextPacket`.
  public mutating func write(
    command value: Span<UInt8>, to handle: AttributeHandle, on link: LinkID, into output: inout OutputRawSpan
  ) -> SendAnswer {
    guard let index = upper.index(of: link) else { return .closed }
    guard !upper.links[index].holdsCommands, takeBuffer(for: .command, at: index) else {
      return write(command: value, to: handle, on: link)
    }
    var answer = SendAnswer.closed
    writePacket(for: .command, at: index, into: &output) { bearer, output in
      answer = bearer.write(command: handle, value, into: &output)
    }
    return answer
  }
}
