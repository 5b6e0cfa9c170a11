import BasicContainers
import BindruneWire
import DequeModule
import BindruneHCI

/// The layers above L2CAP, on the channels given to `L2CAPLayer.open`, and on the credit-based channels that are open.
/// A payload of a credit-based channel is an SDU.
public protocol L2CAPUpper: ~Copyable {
  /// A whole payload, of a length that the channel allows, lent for the duration of the call. An SDU may be empty.
  mutating func receive(_ payload: Span<UInt8>, on channel: ChannelID, of link: ConnectionHandle, now: Instant)
  /// The channels of the link on which `nextPayload` appends one now.
  func waiting(of link: ConnectionHandle) -> ChannelSet
  /// Those, and perhaps others that are tried in vain: cheaper to ask for, before each packet.
  func candidates(of link: ConnectionHandle) -> ChannelSet
  /// Appends the next payload to send on the channel; false when there is none. `output` has room for the longest
  /// payload of the channel; an SDU has at most `OpenChannel.longestSDU` octets.
  mutating func nextPayload(
    on channel: ChannelID, of link: ConnectionHandle, into output: inout OutputRawSpan, now: Instant
  ) -> Bool
}
extension L2CAPUpper where Self: ~Copyable {
  public func candidates(of link: ConnectionHandle) -> ChannelSet { waiting(of: link) }
}

/// What L2CAP reports to the layers above.
public enum L2CAPEffect: Sendable {
  /// The peripheral asks for other connection parameters, which are in range: answer with `respondToParameterUpdate`.
  case parameterUpdateRequested(ConnectionHandle, identifier: UInt8, ConnectionParameterUpdateRequest)
  /// Our `requestParameterUpdate` has ended.
  case parameterUpdateEnded(ConnectionHandle, ParameterUpdateOutcome)
  /// The peer asks for credit-based channels: answer with `answerChannels`.
  case channelsRequested(ConnectionHandle, identifier: UInt8, ChannelRequest)
  /// A credit-based channel is open: `L2CAPUpper` receives its SDUs, and is asked for them.
  case channelOpened(ConnectionHandle, ChannelID, OpenChannel)
  /// A channel of our `openChannels` does not open. It is not mentioned again.
  case channelNotOpened(ConnectionHandle, ChannelID, ChannelEnd)
  /// An open channel has ended. It is not mentioned again until its number is reused.
  case channelClosed(ConnectionHandle, ChannelID, ChannelEnd)
  /// The peer accepts other lengths on this channel.
  case channelReconfigured(ConnectionHandle, ChannelID, OpenChannel)
  /// Our `reconfigureChannels` has ended.
  case reconfigurationEnded(ConnectionHandle, ChannelList, ReconfigureOutcome)
  /// The peer violated a rule. The case documents the consequence; the link continues.
  case violation(ConnectionHandle, L2CAPViolation)
}

/// # L2CAPLayer
/// **Overview**: the Logical Link Control and Adaptation Protocol on LE links (Vol 3, Part A): it joins ACL packets
/// into payloads, cuts payloads into ACL packets, and assigns payloads to the link's channels.
///
/// **Function**: up, `receive` hands payloads of the upper layer's channels to it. L2CAP answers signaling commands
/// (0x0005) itself, except that requests for other connection parameters and for channels become effects, because the
/// layer above decides on them. Down, `nextPacket` writes one ACL packet for a link: the rest of a frame already begun,
/// else the next frame of the channel that has the turn (`ChannelTable`). On a credit-based channel that frame is a
/// part of an SDU, or all of it.
///
/// **Phases** of a link: closed → open → closed, by `open` and `close`.
public struct L2CAPLayer: ~Copyable {
  /// One link: its two directions, its channels, and the state of L2CAP's own channel.
  @usableFromInline struct Link: ~Copyable {
    @usableFromInline let handle: ConnectionHandle
    @usableFromInline var channels: ChannelTable
    @usableFromInline var recombiner: Recombiner
    @usableFromInline var fragmenter: Fragmenter
    @usableFromInline var signaling: SignalingChannel

    init(_ handle: ConnectionHandle, role: LinkRole, channels: [L2CAPChannel]) {
      self.handle = handle
      self.channels = ChannelTable(carried: channels)
      let longestPayload = self.channels.longestPayload
      recombiner = Recombiner(longestPayload: longestPayload)
      fragmenter = Fragmenter(longestPayload: longestPayload)
      signaling = SignalingChannel(role: role)
    }

    /// The layer above carries the frame's channel, which allows this length.
    @inlinable @inline(__always) func isForUpper(_ frame: Recombined.Frame) -> Bool {
      guard let channel = channels[frame.channel], case .fixed = channel.kind else { return false }
      return channel.lengths.contains(frame.length)
    }

    /// The channels with a frame that may be sent now: L2CAP's own, and those of `offered`, by the layer above.
    @inlinable @inline(__always) func ready(_ offered: ChannelSet) -> ChannelSet {
      var ready = offered.intersection(channels.mayCarry)
      if signaling.hasCommand { ready.insert(.leSignaling) }
      ready.formUnion(channels.hasFrame)
      return ready
    }
    @inlinable @inline(__always)
    mutating func nextPacket<Upper: L2CAPUpper & ~Copyable>(
      aclLength: Int, into output: inout OutputRawSpan, now: Instant, from upper: inout Upper,
      _ buffers: inout SDUBuffers
    ) -> Bool {
      if !fragmenter.isEmpty { return fragmenter.writeNext(of: handle, aclLength: aclLength, into: &output) }
      // With credit-based channels the exact set: a vain attempt on another channel before each frame costs more.
      var ready = ready(channels.credit.isEmpty ? upper.candidates(of: handle) : upper.waiting(of: handle))
      let start = output.byteCount
      Fragmenter.begin(&output)
      while let channel = channels.next(among: ready) {
        if let number = writeFrame(of: channel, into: &output, now: now, from: &upper, &buffers) {
          fragmenter.seal(from: start, on: number, of: handle, aclLength: aclLength, &output)
          return true
        }
        ready.remove(channel)
      }
      output.truncate(to: start)
      return false
    }
    /// A frame that changes nothing but its channel can be sent: the next K-frame of an SDU, or credits.
    @inlinable @inline(__always) var hasPart: Bool { !channels.continuing.isEmpty }
    /// The same for such a frame, if its channel has the turn among those with a frame.
    @inline(__always) mutating func nextPart(
      _ offered: ChannelSet, aclLength: Int, into output: inout OutputRawSpan, _ buffers: inout SDUBuffers
    ) -> Bool {
      var parts = channels.continuing
      if signaling.hasCommand { parts.remove(.leSignaling) }
      guard let channel = channels.next(among: ready(offered), ifContinuing: parts) else { return false }
      let start = output.byteCount
      Fragmenter.begin(&output)
      let number =
        channel == .leSignaling
        ? signaling.writeCredits(into: &output, &channels) : channels.writeNext(of: channel, into: &output, &buffers)
      guard let number else {
        output.truncate(to: start)
        return false
      }
      fragmenter.seal(from: start, on: number, of: handle, aclLength: aclLength, &output)
      return true
    }
    /// Appends the next frame's payload. Returns the channel's number at the peer; nil if there is no frame.
    @inlinable @inline(__always)
    mutating func writeFrame<Upper: L2CAPUpper & ~Copyable>(
      of channel: ChannelID, into output: inout OutputRawSpan, now: Instant, from upper: inout Upper,
      _ buffers: inout SDUBuffers
    ) -> ChannelID? {
      if channel == .leSignaling, signaling.hasCommand || channels.owesCredits {
        return signaling.writeCommand(of: handle, into: &output, now: now, &channels) ? channel : nil
      }
      if let index = channels.index(of: channel) {
        let handle = handle
        return writeCreditFrame(at: index, into: &output, &buffers) { room in
          upper.nextPayload(on: channel, of: handle, into: &room, now: now)
        }
      }
      return upper.nextPayload(on: channel, of: handle, into: &output, now: now) ? channel : nil
    }
    /// The next K-frame of the SDU that has begun, else the first one of the SDU that `write` appends.
    @usableFromInline mutating func writeCreditFrame(
      at index: Int, into output: inout OutputRawSpan, _ buffers: inout SDUBuffers,
      _ write: (inout OutputRawSpan) -> Bool
    ) -> ChannelID? {
      let id = channels.credit[index].id, peer = channels.credit[index].disconnectable
      let wrote = channels.change(at: index) { channel in
        if channel.mayContinue {
          channel.writeNext(into: &output, &buffers)
          return true
        }
        return channel.mayBegin && channel.begin(into: &output, &buffers, write)
      }
      guard wrote else { return nil }
      signaling.finish(id, handle, &channels)
      return peer
    }

    // MARK: Credit-based channels

    /// Processes a K-frame. After `.inFrame` and `.joined`, the caller hands up the SDU and calls `endSDU`.
    @usableFromInline mutating func receiveCreditFrame(
      _ frame: Recombined.Frame, in packet: Span<UInt8>, at index: Int, _ buffers: inout SDUBuffers,
      _ effects: inout Deque<L2CAPEffect>
    ) -> SDUJoiner.Outcome {
      guard channels.credit[index].isEstablished else {
        effects.report(.unknownChannel(frame.channel), handle)
        return .incomplete
      }
      let outcome =
        frame.isInPacket
        ? channels.receive(frame, in: packet, at: index, &buffers)
        : channels.receive(frame, in: recombiner, at: index, &buffers)
      if case .fault(let fault) = outcome { signaling.fail(frame.channel, fault, handle, &channels, &effects) }
      return outcome
    }
    /// The upper layer has returned from `receive`.
    @usableFromInline mutating func endSDU(at index: Int, _ buffers: inout SDUBuffers) {
      channels.endSDU(at: index, &buffers)
    }
    mutating func receiveSignal(_ frame: Span<UInt8>, now: Instant, _ effects: inout Deque<L2CAPEffect>) {
      signaling.receive(frame, from: handle, now: now, &channels, &effects)
    }
    mutating func expire(now: Instant, _ effects: inout Deque<L2CAPEffect>) {
      signaling.expire(now: now, of: handle, &channels, &effects)
    }
    mutating func close(_ effects: inout Deque<L2CAPEffect>) { signaling.close(handle, &channels, &effects) }
    mutating func openChannels(
      _ spsm: SPSM, _ settings: ChannelSettings, count: Int, isEnhanced: Bool
    ) throws(ChannelRefusal) -> ChannelList {
      let list = try signaling.open(spsm, settings, count: count, isEnhanced: isEnhanced, &channels)
      recombiner.reserve(longestPayload: Int(settings.mps))
      return list
    }
    mutating func answerChannels(
      identifier: UInt8, _ decision: ChannelDecision, _ effects: inout Deque<L2CAPEffect>
    ) -> ChannelList? {
      if case .accepted(let settings, _) = decision { recombiner.reserve(longestPayload: Int(settings.mps)) }
      return signaling.answer(identifier: identifier, decision, handle, &channels, &effects)
    }
    mutating func closeChannel(_ id: ChannelID, now: Instant, _ effects: inout Deque<L2CAPEffect>) -> Bool {
      signaling.close(id, handle, now: now, &channels, &effects)
    }
    mutating func reconfigureChannels(_ list: ChannelList, mtu: UInt16, mps: UInt16) throws(ChannelRefusal) {
      try signaling.reconfigure(list, mtu: mtu, mps: mps, &channels)
      recombiner.reserve(longestPayload: Int(mps))
    }
    mutating func taken(_ count: Int, on id: ChannelID) -> Bool {
      guard let index = channels.index(of: id) else { return false }
      channels.taken(count, at: index)
      return channels.owesCredits
    }
  }

  @usableFromInline var links = UniqueArray<Link>()
  /// Indexes of `links`, by connection handle (12 bits).
  @usableFromInline var places = PlaceTable()
  @usableFromInline var effects = Deque<L2CAPEffect>()
  /// Memory for SDUs, of all links.
  @usableFromInline var buffers = SDUBuffers()

  public init() {}

  // MARK: Links

  /// Opens a link, on which the layer above carries `channels`. An earlier link with this handle ends first. A handle
  /// of more than the 12 bits that a controller may assign (Vol 4, Part E, §5.4.2) is not opened: no ACL packet could
  /// name it.
  public mutating func open(_ link: ConnectionHandle, role: LinkRole, channels: [L2CAPChannel], now: Instant) {
    guard link.rawValue <= 0x0FFF else { return effects.report(.illegalHandle, link) }
    close(link)
    places.append(link.rawValue)
    links.append(Link(link, role: role, channels: channels))
  }
  /// Closes a link, and ends everything that waits on it.
  public mutating func close(_ link: ConnectionHandle) {
    guard let place = place(of: link) else { return }
    links[place].close(&effects)
    places.remove(link.rawValue)
    links.remove(at: place)
  }
  @inlinable @inline(__always) func place(of link: ConnectionHandle) -> Int? { places[link.rawValue] }

  // MARK: From the controller

  /// Processes one ACL packet; ranges in `acl` refer to `packet`. The result is a call of `upper`, a queued answer, an
  /// effect, or nothing. False if L2CAP itself has nothing new to send on the link, and no new deadline.
  @inlinable @discardableResult
  public mutating func receive<Upper: L2CAPUpper & ~Copyable>(
    _ acl: ACLPacket, in packet: Span<UInt8>, now: Instant, into upper: inout Upper
  ) -> Bool {
    guard let place = place(of: acl.handle) else {
      effects.report(.unknownLink, acl.handle)
      return false
    }
    let frame: Recombined.Frame
    if let whole = links[place].recombiner.whole(acl, in: packet) {
      frame = whole
    } else if links[place].recombiner.keeps(acl, in: packet) {
      return false
    } else {
      guard let collected = collect(acl, in: packet, at: place) else { return false }
      frame = collected
    }
    if let index = links[place].channels.index(of: frame.channel) {
      return receive(frame, in: packet, of: index, at: place, now: now, into: &upper)
    }
    guard links[place].isForUpper(frame) else {
      receive(frame, in: packet, at: place, now: now)
      return true
    }
    let start = Int(frame.payload.offset), end = start &+ frame.length
    if frame.isInPacket {
      upper.receive(packet.extracting(start..<end), on: frame.channel, of: acl.handle, now: now)
    } else {
      upper.receive(
        links[place].recombiner.bytes.span.extracting(start..<end), on: frame.channel, of: acl.handle, now: now)
    }
    return false
  }

  @usableFromInline
  mutating func collect(_ acl: ACLPacket, in packet: Span<UInt8>, at place: Int) -> Recombined.Frame? {
    let outcome = links[place].recombiner.collect(acl, in: packet)
    if let violation = outcome.violation { effects.report(violation, acl.handle) }
    return outcome.frame
  }

  /// Processes a frame of the credit-based channel at `index`.
  @inlinable
  mutating func receive<Upper: L2CAPUpper & ~Copyable>(
    _ frame: Recombined.Frame, in packet: Span<UInt8>, of index: Int, at place: Int, now: Instant,
    into upper: inout Upper
  ) -> Bool {
    let link = links[place].handle, start = Int(frame.payload.offset) &+ CreditFrame.lengthCount
    switch links[place].receiveCreditFrame(frame, in: packet, at: index, &buffers, &effects) {
    case .incomplete: return links[place].channels.owesCredits
    case .fault: return true
    case .inFrame where frame.isInPacket:
      upper.receive(
        packet.extracting(start..<Int(frame.payload.offset) &+ frame.length), on: frame.channel, of: link, now: now)
    case .inFrame:
      upper.receive(
        links[place].recombiner.bytes.span.extracting(start..<Int(frame.payload.offset) &+ frame.length),
        on: frame.channel, of: link, now: now)
    case .joined:
      upper.receive(
        links[place].channels.credit[index].joiner.bytes.span, on: frame.channel, of: link, now: now)
    }
    links[place].endSDU(at: index, &buffers)
    return links[place].channels.owesCredits
  }

  /// Processes a frame that is not handed up: of L2CAP's own channel, of an unknown one, or with a length that is not
  /// allowed.
  @usableFromInline
  mutating func receive(_ frame: Recombined.Frame, in packet: Span<UInt8>, at place: Int, now: Instant) {
    let link = links[place].handle
    let start = Int(frame.payload.offset), end = start + Int(frame.payload.count)
    guard let channel = links[place].channels[frame.channel] else {
      return effects.report(.unknownChannel(frame.channel), link)
    }
    guard frame.length >= channel.lengths.lowerBound else {
      return effects.report(.frameTooShort(channel.id, length: frame.length), link)
    }
    let longest = channel.lengths.upperBound
    if frame.isInPacket {
      let payload = packet.extracting(start..<end).extracting(first: longest)
      return receive(payload, of: frame, on: channel, at: place, now: now)
    }
    // Few commands come in several packets.
    var copy = UniqueArray<UInt8>(minimumCapacity: longest)
    copy.append(copying: links[place].recombiner.bytes.span.extracting(start..<end).extracting(first: longest))
    receive(copy.span, of: frame, on: channel, at: place, now: now)
  }
  /// `payload`: as much of the frame as the channel allows.
  private mutating func receive(
    _ payload: Span<UInt8>, of frame: Recombined.Frame, on channel: L2CAPChannel, at place: Int, now: Instant
  ) {
    let link = links[place].handle, isTooLong = frame.length > channel.lengths.upperBound
    switch channel.kind {
    case .signaling where isTooLong:
      effects.report(links[place].signaling.receive(tooLong: payload, length: frame.length), link)
    case _ where isTooLong:
      effects.report(.frameTooLong(channel.id, length: frame.length), link)
    case .signaling:
      links[place].receiveSignal(payload, now: now, &effects)
    case .fixed: break  // already handed up
    }
  }

  // MARK: To the controller

  /// True while `nextPacket` writes one.
  @inlinable @inline(__always)
  public func hasPacket<Upper: L2CAPUpper & ~Copyable>(for link: ConnectionHandle, upper: borrowing Upper) -> Bool {
    guard let place = place(of: link) else { return false }
    return !links[place].fragmenter.isEmpty || !links[place].channels.hasFrame.isEmpty
      || !links[place].ready(upper.waiting(of: link)).isEmpty
  }

  /// Appends one ACL packet for `link`, H4 packet type octet first, of at most `aclLength` data octets (at least 1);
  /// false when there is none. Call it when the controller has a free buffer for this link.
  ///
  /// `output` has room for nine octets of headers and the longest payload of the fixed channels, or 1,024 octets while a
  /// credit-based channel is open, whatever `aclLength` is: a frame is written whole, and what exceeds `aclLength` is
  /// kept for the next calls.
  @inlinable
  public mutating func nextPacket<Upper: L2CAPUpper & ~Copyable>(
    for link: ConnectionHandle, aclLength: Int, into output: inout OutputRawSpan, now: Instant, from upper: inout Upper
  ) -> Bool {
    guard let place = place(of: link) else { return false }
    return links[place].nextPacket(aclLength: aclLength, into: &output, now: now, from: &upper, &buffers)
  }

  /// The same for the rest of a frame alone, which changes nothing in the layer above; false when no frame has begun.
  @inlinable @inline(__always)
  public mutating func nextFragment(
    for link: ConnectionHandle, aclLength: Int, into output: inout OutputRawSpan
  ) -> Bool {
    guard let place = place(of: link) else { return false }
    return links[place].fragmenter.writeNext(of: link, aclLength: aclLength, into: &output)
  }

  /// A channel of this link has the rest of an SDU and credit to send it; or credits are owed.
  @inlinable @inline(__always) public func hasPart(for link: ConnectionHandle) -> Bool {
    guard let place = place(of: link) else { return false }
    return links[place].hasPart
  }
  /// As `nextPacket`, for one of these alone; false if another channel has the turn. `waiting`: those on which the layer
  /// above has a payload. This changes nothing in the layer above either, and no deadline.
  public mutating func nextPart(
    for link: ConnectionHandle, beside waiting: ChannelSet, aclLength: Int, into output: inout OutputRawSpan
  ) -> Bool {
    guard let place = place(of: link) else { return false }
    return links[place].nextPart(waiting, aclLength: aclLength, into: &output, &buffers)
  }

  /// The same for a payload of `channel` that `write` appends, while nothing waits on this link (traps otherwise).
  /// Returns whether fragments are left for `nextPacket`; nil, without writing, when the link is not open.
  @inlinable @inline(__always)
  public mutating func writePacket(
    for link: ConnectionHandle, on channel: ChannelID, aclLength: Int, into output: inout OutputRawSpan,
    _ write: (inout OutputRawSpan) -> Void
  ) -> Bool? {
    guard let place = place(of: link) else { return nil }
    precondition(links[place].fragmenter.isEmpty, "a frame is finished before the next begins")
    let start = output.byteCount
    Fragmenter.begin(&output)
    write(&output)
    links[place].fragmenter.seal(from: start, on: channel, of: link, aclLength: aclLength, &output)
    return !links[place].fragmenter.isEmpty
  }

  // MARK: Connection parameters

  /// As peripheral: asks the central for other connection parameters (Vol 3, Part A, §4.20). Ends with
  /// `.parameterUpdateEnded`. False, without an effect, when we are not the peripheral of such a link, the parameters
  /// are out of range, or a request is in progress.
  @discardableResult
  public mutating func requestParameterUpdate(
    _ link: ConnectionHandle, _ request: ConnectionParameterUpdateRequest, now: Instant
  ) -> Bool {
    guard let place = place(of: link) else { return false }
    return links[place].signaling.requestParameterUpdate(request)
  }
  /// As central: answers `.parameterUpdateRequested` (Vol 3, Part A, §4.21). A caller that accepts also commands the
  /// controller. False when the request is no longer pending.
  @discardableResult
  public mutating func respondToParameterUpdate(_ link: ConnectionHandle, identifier: UInt8, accepted: Bool) -> Bool {
    guard let place = place(of: link) else { return false }
    return links[place].signaling.respondToParameterUpdate(identifier: identifier, accepted: accepted)
  }

  // MARK: Credit-based channels

  /// Asks the peer for a channel (Vol 3, Part A, §4.22), or for up to five enhanced ones at once (§4.25). Each ends with
  /// `.channelOpened` or `.channelNotOpened`.
  public mutating func openChannels(
    _ link: ConnectionHandle, _ spsm: SPSM, _ settings: ChannelSettings, count: Int = 1, isEnhanced: Bool, now: Instant
  ) throws(ChannelRefusal) -> ChannelList {
    guard let place = place(of: link) else { throw .notOpen }
    return try links[place].openChannels(spsm, settings, count: count, isEnhanced: isEnhanced)
  }
  /// Answers `.channelsRequested`. Returns the channels that open, for which `.channelOpened` follows; nil when the
  /// request is no longer pending.
  @discardableResult
  public mutating func answerChannels(
    _ link: ConnectionHandle, identifier: UInt8, _ decision: ChannelDecision
  ) -> ChannelList? {
    guard let place = place(of: link) else { return nil }
    return links[place].answerChannels(identifier: identifier, decision, &effects)
  }
  /// Closes a channel (Vol 3, Part A, §4.6): `.channelClosed` follows when the peer has answered, 30 s later at most. An
  /// SDU of which a K-frame has been sent is completed before, for at most 30 s. Or gives up its opening:
  /// `.channelNotOpened` follows at once. False if the channel is not open.
  @discardableResult
  public mutating func closeChannel(_ link: ConnectionHandle, _ channel: ChannelID, now: Instant) -> Bool {
    guard let place = place(of: link) else { return false }
    return links[place].closeChannel(channel, now: now, &effects)
  }
  /// Accepts other lengths on up to five enhanced channels: an MTU that is not less than before, and an MPS that is not
  /// less either, unless it is for a single channel (Vol 3, Part A, §4.27). Ends with `.reconfigurationEnded`.
  public mutating func reconfigureChannels(
    _ link: ConnectionHandle, _ channels: ChannelList, mtu: UInt16, mps: UInt16
  ) throws(ChannelRefusal) {
    guard let place = place(of: link) else { throw .notOpen }
    try links[place].reconfigureChannels(channels, mtu: mtu, mps: mps)
  }
  /// The layer above has room again for the first `count` SDUs of those that it was handed: their credits are given back
  /// to the peer. Not for a channel with `ChannelSettings.takesAtOnce`. False if there is nothing to send for it now.
  @discardableResult
  public mutating func taken(_ count: Int, on channel: ChannelID, of link: ConnectionHandle) -> Bool {
    guard let place = place(of: link) else { return false }
    return links[place].taken(count, on: channel)
  }
  /// A payload of the layer above on this channel could be sent now: a credit-based one is open and has credit.
  public func mayCarry(_ channel: ChannelID, of link: ConnectionHandle) -> Bool {
    guard let place = place(of: link) else { return false }
    return links[place].channels.mayCarry.contains(channel)
  }

  // MARK: Time and effects

  /// When `expire` must act for this link.
  public func deadline(of link: ConnectionHandle) -> Instant? {
    place(of: link).flatMap { .earliest(links[$0].signaling.deadline, links[$0].channels.deadline) }
  }
  /// Ends overdue requests on this link, and channels that wait for credits to send the rest of an SDU.
  public mutating func expire(_ link: ConnectionHandle, now: Instant) {
    if let place = place(of: link) { links[place].expire(now: now, &effects) }
  }
  /// Buffers for SDUs that no channel uses.
  var keptBuffers: Int { buffers.count }
  /// True while `nextEffect` returns an effect.
  @inlinable @inline(__always) public var hasEffect: Bool { !effects.isEmpty }
  /// The next effect, in order.
  @inlinable public mutating func nextEffect() -> L2CAPEffect? { effects.popFirst() }
}

extension Deque<L2CAPEffect> {
  /// Adds a violation, unless the caller evidently does not take effects: a peer cannot exhaust our memory.
  @usableFromInline mutating func report(_ violation: L2CAPViolation, _ link: ConnectionHandle) {
    if count < 64 { append(.violation(link, violation)) }
  }
}
