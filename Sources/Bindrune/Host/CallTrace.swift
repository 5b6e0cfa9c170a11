import BindruneATT
import BindruneWire
import DequeModule
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP

/// # CallTrace
/// **Overview**: finds the call that caused each packet of a host, for a transport that records calls in its trace
/// (`HCITransport.recordsCalls`); without one a host has no `CallTrace`. Decision 0057.
///
/// **Function**: a call of the API is numbered when it enters the host. The number goes with what the call queues:
///
/// | packet | where its call's number waits |
/// |---|---|
/// | command | in the core: with the command, or in the machine of GAP that sends it later |
/// | ATT request | with the request, whose `RequestID` is in flight |
/// | notification, write command | here, in the order in which the link's queue accepted them |
/// | indication, response of the application | here: one at a time on a link |
/// | pairing, connection parameters over L2CAP | with the link's operation that is not completed |
///
/// A packet without a number is not of a call: it answers the peer or the controller, or follows from a timer. Further
/// fragments of a frame have no number either.
///
/// Everything is on the event loop.
final class CallTrace {
  /// A call's number, and the index of its name in the lowest 16 bits; 0: no call. Later calls are greater.
  typealias Call = UInt64

  /// What the queues of a link contain.
  private struct LinkCalls {
    /// In the order in which they were accepted.
    var values = Deque<Call>()
    var indication: Call = 0
    /// Of the request that the peer waits for.
    var answer: Call = 0
  }
  private var names: [StaticString] = []
  /// The same for `text(of:)`: made once.
  private var texts: [String] = []
  private var count: UInt64 = 0
  /// The outermost call that is being carried out; 0: none.
  private(set) var current: Call = 0
  private var links: [LinkID: LinkCalls] = [:]
  /// The call that closes the host; 0: none.
  var closing: Call = 0

  // MARK: Calls

  /// Begins a call, unless it is a part of another one. Pass the result to `leave`.
  func enter(_ name: StaticString) -> Bool {
    guard current == 0 else { return false }
    current = make(name)
    return true
  }
  func leave(_ isOutermost: Bool) { if isOutermost { current = 0 } }
  /// Interrupts the current call, for what happens by itself. Pass the result to `resume`.
  func interrupt() -> Call {
    defer { current = 0 }
    return current
  }
  func resume(_ call: Call) { current = call }

  private func make(_ name: StaticString) -> Call {
    count += 1
    // Only compared: two literals at one place are the same.
    let known = names.firstIndex {
      unsafe $0.utf8Start == name.utf8Start && $0.utf8CodeUnitCount == name.utf8CodeUnitCount
    }
    let index = known ?? names.count
    if known == nil {
      names.append(name)
      texts.append("\(name) #")
    }
    return count << 16 | UInt64(index)
  }
  /// As the trace shows it: `connect(to:) #2`.
  func text(of call: Call) -> String { texts[Int(call & 0xFFFF)] + String(call >> 16) }

  // MARK: What a link accepts

  /// The link's queue has accepted a value, of the current call or of a port, each of whose values is a call.
  func accepted(on link: LinkID, ofPort name: StaticString? = nil) {
    links[link, default: LinkCalls()].values.append(name.map { make($0) } ?? current)
  }
  func acceptedIndication(on link: LinkID, ofPort name: StaticString? = nil) {
    links[link, default: LinkCalls()].indication = name.map { make($0) } ?? current
  }
  /// The current call has answered the request of the link's client.
  func answered(on link: LinkID) { links[link, default: LinkCalls()].answer = current }
  func linkDown(_ link: LinkID) { links[link] = nil }

  // MARK: Packets

  /// Where a packet's call is found.
  enum Origin {
    case call(Call)
    /// With the request that now awaits its response.
    case request(RequestID)
    /// With an operation of the link that has not been completed.
    case pairing(LinkID), parameterUpdate(LinkID)
  }
  /// nil: no call. Call it once for each packet, when the core has written it.
  func origin(of packet: Span<UInt8>, _ core: borrowing HostCore) -> Origin? {
    guard packet.count > 0 else { return nil }
    switch HCIPacketType(rawValue: packet[0]) {
    case .command: return core.causeOfLastCommand == 0 ? nil : .call(core.causeOfLastCommand)
    case .acl: return frame(packet, core)
    default: return nil
    }
  }
  private func frame(_ packet: Span<UInt8>, _ core: borrowing HostCore) -> Origin? {
    let start = ACLPacket.headerCount + L2CAPFrame.headerCount
    guard packet.count > start else { return nil }
    let word = UInt16(packet[1]) | UInt16(packet[2]) << 8
    let flag = PacketBoundaryFlag(rawValue: UInt8(truncatingIfNeeded: word >> 12 & 3))
    guard flag != .continuing,
      let (link, request) = core.requestInFlight(on: ConnectionHandle(rawValue: word & 0x0FFF))
    else { return nil }
    switch ChannelID(rawValue: UInt16(packet[start - 2]) | UInt16(packet[start - 1]) << 8) {
    case .attribute: return attribute(ATTOpcode(rawValue: packet[start]), link, request)
    case .securityManager: return .pairing(link)
    case .leSignaling where packet[start] == ConnectionParameterUpdateRequest.code.rawValue:
      return .parameterUpdate(link)
    default: return nil
    }
  }
  private func attribute(_ opcode: ATTOpcode, _ link: LinkID, _ request: RequestID?) -> Origin? {
    func take(_ place: WritableKeyPath<LinkCalls, Call>) -> Origin? {
      guard let call = links[link]?[keyPath: place], call > 0 else { return nil }
      links[link]?[keyPath: place] = 0
      return .call(call)
    }
    switch opcode.kind {
    // The host itself exchanges the MTU.
    case .request: return opcode == ExchangeMTURequest.opcode ? nil : request.map { .request($0) }
    case .response: return take(\.answer)
    case .indication: return take(\.indication)
    case .notification, .command: return links[link]?.values.popFirst().flatMap { $0 == 0 ? nil : .call($0) }
    case .confirmation, nil: return nil
    }
  }
}

extension BluetoothHost {
  /// Until `endCall` the host's calls are parts of this one, for the trace: an interface on top of the host names its
  /// own calls. Pass the result to `endCall`.
  package func beginCall(_ name: StaticString) -> Bool { calls?.enter(name) ?? false }
  package func endCall(_ isOutermost: Bool) { calls?.leave(isOutermost) }

  /// Sends the packet that the core has written, the call that caused it before it.
  func send(_ calls: CallTrace, over transport: any HCITransport) {
    if let call = packet.withBytes({ call(of: $0, calls) }) { transport.willSend(becauseOf: calls.text(of: call)) }
    packet.withBytes { transport.send($0) }
    packet.removeAll()
  }
  private func call(of packet: Span<UInt8>, _ calls: CallTrace) -> CallTrace.Call? {
    let call: CallTrace.Call?
    switch calls.origin(of: packet, core) {
    case nil: call = nil
    case .call(let known): call = known
    case .request(let id): call = requests[id]?.call
    case .pairing(let link):
      call = oldest {
        switch $0 {
        case .pair(link, _), .encrypt(link): true
        default: false
        }
      }
    case .parameterUpdate(let link): call = oldest { if case .updateParameters(link, _) = $0 { true } else { false } }
    }
    return call == 0 ? nil : call
  }
  /// The oldest call whose operation has not been completed.
  private func oldest(where isMeant: (HostOperation) -> Bool) -> CallTrace.Call? {
    requests.values.filter { $0.operation.map(isMeant) ?? false }.map(\.call).min()
  }
}
