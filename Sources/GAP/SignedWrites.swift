import BindruneATT
import BasicContainers
import BindruneToolbox
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneSMP

/// What came of a signed write.
public enum SignedWriteAnswer: BitwiseCopyable, Sendable, Equatable {
  /// The command is queued.
  case queued
  /// There is no room: `.readyToSend` follows, as for `HostCore.write(command:)`.
  case full
  /// Nothing was sent. The bond has reserved counters that no stored bond has: store it, call `HostCore.stored` and try
  /// again.
  case storeBond
  /// There is no bond with the peer, or we have given it no signature key, or every counter has been used.
  case noSigningKey
  /// More than this many octets.
  case tooLong(limit: Int)
  /// The link is down.
  case closed
}

// Signed writes both ways. Vol 3, Part C, §10.4; Vol 3, Part H, §2.4.5; Decision 0048.
extension HostCore {
  /// Signed Write Without Response, in order with the link's other commands and requests. Over an encrypted link this
  /// is Write Without Response, as the Specification requires. Vol 3, Part G, §4.9.2.
  public mutating func write(
    signed value: Span<UInt8>, to handle: AttributeHandle, on link: LinkID
  ) -> SignedWriteAnswer {
    guard let index = upper.index(of: link) else { return .closed }
    let (peer, form) = self.link(at: index) { ($0.peer, $0.signedWriteForm) }
    guard value.count <= form.limit else { return .tooLong(limit: form.limit) }
    if !form.isSigned { return SignedWriteAnswer(write(command: value, to: handle, on: link)) }
    guard let key = bonds[peer]?.ours.csrk else { return .noSigningKey }
    guard let counter = bonds.signCounter(for: peer) else {
      return bonds.reserveSignCounters(for: peer) ? .storeBond : .noSigningKey
    }
    let octets = SignedWriteCommand.signed(value.indices.map { value[$0] }, for: handle, key, counter: counter)
    let answer = withLink(at: index) { $0.offer(signed: handle, octets.span) }
    if answer.isAccepted { bonds.signed(for: peer) }
    return SignedWriteAnswer(answer)
  }
  /// The store has this bond now: the counters that it reserves may sign.
  public mutating func stored(_ bond: Bond) { bonds.stored(bond) }

  // MARK: Server

  /// Has GATT's server verify the signatures of the link's client with the key of its bond, if there is one.
  mutating func verifySignatures(at index: Int) {
    let signing = bondOfPeer(at: index).flatMap { bond in
      bond.peers.csrk.map { key in
        ClientSigning(key: key, counter: bond.peersSignCounter, isAuthenticated: bond.strength.isAuthenticated)
      }
    }
    upper.server.setSigning(signing, of: upper.links[index].bearers.client)
  }
  /// A client has signed a write: the next one has this counter at least.
  mutating func signed(on bearer: BearerID, next counter: UInt32) {
    guard let index = upper.index(of: bearer) else { return }
    let peer = upper.links[index].peer
    bonds.change(peer) { $0.peersSignCounter = counter }
    emit(.bondChanged(peer))
  }
}

extension SignedWriteAnswer {
  fileprivate init(_ answer: SendAnswer) {
    self =
      switch answer {
      case .queued, .cut: .queued
      case .full: .full
      case .closed: .closed
      }
  }
}
