import BindruneATT
import BindruneGAP
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import BindruneWire
import DequeModule

/// Our own L2CAP under test: the channels of one link, in virtual time, without a controller. A PDU is an L2CAP frame
/// without its length: the channel, then the payload.
///
/// It drives the layer as `HostCore` does: it drains packets and effects after every event, and decides on a request as
/// `ChannelService` does. The script is the application.
public final class ChannelTarget: VirtualTarget {
  /// The application's side of the channels.
  private struct Application: L2CAPUpper {
    struct Entry {
      var id: ChannelID
      var channel: OpenChannel
      /// SDUs that are to leave.
      var queue = Deque<[UInt8]>()
      /// The application closes it when all of them have left.
      var isClosing = false
    }
    var entries: [Entry] = []
    var arrived = Deque<(channel: ChannelID, sdu: [UInt8])>()

    func index(of id: ChannelID) -> Int? { entries.firstIndex { $0.id == id } }
    mutating func receive(_ payload: Span<UInt8>, on channel: ChannelID, of link: ConnectionHandle, now: Instant) {
      arrived.append((channel, payload.indices.map { payload[$0] }))
    }
    func waiting(of link: ConnectionHandle) -> ChannelSet {
      var waiting = ChannelSet()
      for entry in entries where !entry.queue.isEmpty { waiting.insert(entry.id) }
      return waiting
    }
    mutating func nextPayload(
      on channel: ChannelID, of link: ConnectionHandle, into output: inout OutputRawSpan, now: Instant
    ) -> Bool {
      guard let index = index(of: channel), let sdu = entries[index].queue.popFirst() else { return false }
      output.append(contentsOf: sdu.span)
      return true
    }
  }

  private let role: LinkRole
  private let link = ConnectionHandle(rawValue: 0x0001)
  private var layer = L2CAPLayer()
  private var application = Application()
  var now = Instant.zero
  private var packet = PacketBuffer()
  /// Data octets of a packet from the tester's controller.
  private var fragment = ChannelTarget.longestFragment
  private static var longestFragment: Int { 4_096 }

  private var offers: [(spsm: SPSM, offer: ChannelOffer)] = []
  /// Requests that wait for the application.
  private var undecided: [(identifier: UInt8, request: ChannelRequest)] = []
  private var security = LinkSecurity.none
  private var isAuthorized = false
  private var isReading = true
  private var unread = Deque<(channel: ChannelID, sdu: [UInt8])>()

  var outgoing = Deque<[UInt8]>()
  var events = Deque<ApplicationEvent>()
  var results = Deque<ProcedureResult>()

  public init(_ role: LinkRole) {
    self.role = role
    layer.open(link, role: role, channels: [], now: now)
  }

  // MARK: The tester's side

  public func send(_ pdu: [UInt8]) throws(TargetError) {
    guard (2...65_537).contains(pdu.count) else {
      throw .failed("a PDU of the channel l2cap is a channel, two octets, and its payload")
    }
    let count = pdu.count - 2
    var rest = ([UInt8(count & 0xFF), UInt8(count >> 8)] + pdu)[...], flag = PacketBoundaryFlag.first
    while !rest.isEmpty {
      let data = rest.prefix(fragment)
      receive(data, flag)
      rest = rest.dropFirst(fragment)
      flag = .continuing
    }
    pump()
  }
  private func receive(_ data: ArraySlice<UInt8>, _ flag: PacketBoundaryFlag) {
    var packet = PacketBuffer(capacity: ACLPacket.headerCount + data.count)
    _ = packet.fill { output in
      ACLPacket.writeHeader(link, flag, count: data.count, into: &output)
      output.append(contentsOf: Array(data).span)
      return true
    }
    packet.withBytes { bytes in
      do throws(WireError) {
        try layer.receive(ACLPacket(bytes), in: bytes, now: now, into: &application)
      } catch {
        preconditionFailure("this packet is well-formed: \(error)")
      }
    }
  }
  public func receive(within time: Duration) throws(TargetError) -> Received {
    nextPDU(within: time)
  }
  public func wait(_ time: Duration) throws(TargetError) { pass(time) }
  /// The link ends, and a new one begins. What the application offers remains.
  public func reconnect() throws(TargetError) {
    layer.close(link)
    pump()
    layer.open(link, role: role, channels: [], now: now)
    application = Application()
    undecided.removeAll()
    unread.removeAll()
    outgoing.removeAll()
    events.removeAll()
    results.removeAll()
    fragment = Self.longestFragment
    security = .none
    isAuthorized = false
    isReading = true
  }

  public func result(within time: Duration) throws(TargetError) -> ProcedureResult? {
    nextResult(within: time)
  }
  public func event(within time: Duration) throws(TargetError) -> ApplicationEvent? {
    nextEvent(within: time)
  }
  public func value(within time: Duration) throws(TargetError) -> ReceivedValue? {
    throw .unsupported("the channel l2cap carries no values")
  }
  public func key(within time: Duration) throws(TargetError) -> [UInt8]? {
    throw .unsupported("the channel l2cap has no key")
  }

  public var takesCommands: Bool { true }
  public func perform(_ command: Command) throws(TargetError) {
    switch command {
    case .channels(let command): try perform(command)
    case .security(let security, let keySize):
      let isEncrypted = security == .encrypted || security == .authenticated
      self.security = LinkSecurity(
        key: isEncrypted
          ? KeyStrength(
            isAuthenticated: security == .authenticated, isSecureConnections: true,
            size: EncryptionKeySize(keySize) ?? .longest) : nil,
        isBonded: security == .keysAvailable)
    case .authorized(let isAuthorized): self.isAuthorized = isAuthorized
    case .mtu, .signing, .set, .notify, .indicate, .insert, .remove, .call, .pairing, .pair, .requestSecurity, .answer,
      .encryption:
      throw .unsupported("the channel l2cap has no \"\(command.script)\"")
    }
    pump()
  }

  private func perform(_ command: ChannelCommand) throws(TargetError) {
    switch command {
    case .listen(let spsm, let offer):
      offers.removeAll { $0.spsm == spsm }
      offers.append((spsm, offer))
    case .decide:
      for (identifier, request) in undecided {
        layer.answerChannels(link, identifier: identifier, decision(request))
        drain()
      }
      undecided.removeAll()
    case .connect(let spsm, let lengths, let count):
      do throws(ChannelRefusal) {
        _ = try layer.openChannels(
          link, spsm, lengths.settings, count: count ?? 1, isEnhanced: count != nil, now: now)
      } catch { throw .failed("\(error)") }
    case .send(let pattern):
      let (index, sdu) = try entry(pattern)
      let longest = Int(application.entries[index].channel.longestSDU)
      guard sdu.count <= longest else { throw .failed("too long: at most \(longest) octets") }
      application.entries[index].queue.append(Array(sdu))
    case .close(let pattern):
      let octets = pattern.octets ?? [], id = try channel(octets[...])
      if let index = application.index(of: id) {
        application.entries[index].isClosing = true
      } else if !layer.closeChannel(link, id, now: now) {
        throw .failed("there is no channel \(hexText(octets.prefix(2)))")
      }
    case .reading(let isOn): isReading = isOn
    case .reconfigure(let lengths, let pattern):
      let octets = pattern.octets ?? []
      guard octets.count % 2 == 0, octets.count <= 2 * ChannelList.most else {
        throw .failed("one to five channels can be reconfigured, of two octets each")
      }
      var list = ChannelList()
      for at in stride(from: 0, to: octets.count, by: 2) { list.append(try channel(octets[at...])) }
      do throws(ChannelRefusal) {
        try layer.reconfigureChannels(link, list, mtu: lengths.mtu, mps: lengths.mps)
      } catch { throw .failed("\(error)") }
    case .fragments(let count): fragment = count
    case .parameters(let request):
      guard layer.requestParameterUpdate(link, request, now: now) else {
        throw .failed("not a peripheral, parameters out of range, or a request in progress")
      }
    }
  }
  /// The number at the front of `octets`, which one of our channels can have.
  private func channel(_ octets: ArraySlice<UInt8>) throws(TargetError) -> ChannelID {
    guard octets.count >= 2 else { throw .failed("the number of a channel has two octets") }
    let number = UInt16(octets[octets.startIndex]) | UInt16(octets[octets.startIndex + 1]) << 8
    guard ChannelID.dynamic.contains(number) else { throw .failed("no channel \(hexText(octets.prefix(2)))") }
    return ChannelID(rawValue: number)
  }
  /// The open channel that the octets name, and what follows.
  private func entry(_ pattern: OctetPattern) throws(TargetError) -> (index: Int, rest: ArraySlice<UInt8>) {
    let octets = pattern.octets ?? [], id = try channel(octets[...])
    guard let index = application.index(of: id), !application.entries[index].isClosing else {
      throw .failed("the channel \(hexText(octets.prefix(2))) is not open")
    }
    return (index, octets.dropFirst(2))
  }

  // MARK: Effects and time

  private func drain() { while let effect = nextEffect() { handle(effect) } }
  /// Repeats until nothing moves: effects, SDUs, and packets to send.
  private func pump() {
    while true {
      drain()
      if let (channel, sdu) = application.arrived.popFirst() {
        unread.append((channel, sdu))
      } else if isReading, let (channel, sdu) = unread.popFirst() {
        events.append(ApplicationEvent(.received, channel.octets + sdu))
        layer.taken(1, on: channel, of: link)
      } else if let index = application.entries.firstIndex(where: { $0.isClosing && $0.queue.isEmpty }) {
        let id = application.entries.remove(at: index).id
        layer.closeChannel(link, id, now: now)
      } else if packet.fill({ layer.nextPacket(for: link, aclLength: 2_048, into: &$0, now: now, from: &application) })
      {
        // A whole frame: nothing that this layer sends is longer.
        outgoing.append(Array(packet.bytes[(ACLPacket.headerCount + 2)...]))
      } else {
        return
      }
    }
  }
  /// See `PairingTarget.nextEffect`.
  @inline(never) private func nextEffect() -> L2CAPEffect? { layer.nextEffect() }

  private func handle(_ effect: L2CAPEffect) {
    switch effect {
    case .channelsRequested(_, let identifier, let request):
      guard offer(request)?.decidesLater != true else { return undecided.append((identifier, request)) }
      layer.answerChannels(link, identifier: identifier, decision(request))
    case .channelOpened(_, let id, let channel):
      application.entries.append(Application.Entry(id: id, channel: channel))
      events.append(ApplicationEvent(.opened, id.octets))
    case .channelNotOpened(_, let id, .refused(let result)):
      events.append(
        ApplicationEvent(.failed, id.octets + [UInt8(result.rawValue & 0xFF), UInt8(result.rawValue >> 8)]))
    case .channelNotOpened(_, let id, _): events.append(ApplicationEvent(.failed, id.octets))
    case .channelClosed(_, let id, _):
      if let index = application.index(of: id) { application.entries.remove(at: index) }
      unread.removeAll { $0.channel == id }
      events.append(ApplicationEvent(.ended, id.octets))
    case .channelReconfigured(_, let id, let channel):
      if let index = application.index(of: id) { application.entries[index].channel = channel }
    case .reconfigurationEnded(_, _, let outcome):
      switch outcome {
      case .accepted: results.append(.done)
      case .timedOut: results.append(.timeout)
      case .refused, .notUnderstood, .linkClosed: results.append(.failed("\(outcome)"))
      }
    case .parameterUpdateRequested(_, let identifier, _):
      layer.respondToParameterUpdate(link, identifier: identifier, accepted: true)
    case .parameterUpdateEnded(_, let outcome):
      switch outcome {
      case .accepted: results.append(.done)
      case .timedOut: results.append(.timeout)
      case .rejected, .notUnderstood, .linkClosed: results.append(.failed("\(outcome)"))
      }
    case .violation: break
    }
  }
  private func offer(_ request: ChannelRequest) -> ChannelOffer? {
    offers.first { $0.spsm == request.spsm }?.offer
  }
  private func decision(_ request: ChannelRequest) -> ChannelDecision {
    guard let offer = offer(request) else { return .refused(.spsmNotSupported) }
    let service = ChannelService(
      offer.lengths.settings,
      security: offer.security == .authenticated ? .authenticated : offer.security == .encrypted ? .encrypted : .none,
      leastKeySize: offer.keySize.flatMap { EncryptionKeySize($0) } ?? .shortest)
    guard case .accepted(let settings, _) = service.decision(on: security) else {
      return service.decision(on: security)
    }
    // The application's own: the host has no authorization, and no limit.
    if offer.needsAuthorization, !isAuthorized { return .refused(.insufficientAuthorization) }
    guard let most = offer.most else { return .accepted(settings) }
    let open = application.entries.count { $0.channel.isIncoming && $0.channel.spsm == request.spsm }
    return .accepted(settings, atMost: max(0, most - open))
  }

  var deadline: Instant? { layer.deadline(of: link) }
  func expire() {
    layer.expire(link, now: now)
    pump()
  }
}

extension ChannelID {
  /// In the order of PDUs.
  fileprivate var octets: [UInt8] { [UInt8(rawValue & 0xFF), UInt8(rawValue >> 8)] }
}
extension ChannelLengths {
  /// The application sends SDUs of any length that the tester accepts.
  fileprivate var settings: ChannelSettings { ChannelSettings(mtu: mtu, mps: mps, longestSDU: .max) }
}
