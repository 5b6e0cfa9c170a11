import BasicContainers
import BindruneWire
import DequeModule
import BindruneHCI

/// A peer's request for credit-based channels, of which L2CAP refuses none but those it names to the peer. The layer
/// above decides by SPSM and by the link's security: answer with `L2CAPLayer.answer`.
public struct ChannelRequest: BitwiseCopyable, Sendable, Equatable {
  public var spsm: SPSM
  /// The channels that can be opened; at most 5.
  public var count: Int
  public var isEnhanced: Bool
  /// The longest SDU that the peer accepts.
  public var peerMTU: UInt16
  /// The longest payload of a K-frame that the peer accepts.
  public var peerMPS: UInt16
}

/// What the layer above decides about a request for channels.
public enum ChannelDecision: BitwiseCopyable, Sendable, Equatable {
  /// Opens the first `atMost` of the request's channels; the others are refused for lack of resources, and so are all
  /// if the request is an enhanced one, which the peer decides, and the settings are not for such a channel.
  case accepted(ChannelSettings, atMost: Int = ChannelList.most)
  /// All of them. L2CAP itself gives the results about identifiers and parameters.
  case refused(ChannelResult)
}

/// A credit-based channel that is open.
public struct OpenChannel: BitwiseCopyable, Sendable, Equatable {
  public var spsm: SPSM
  public var isEnhanced: Bool
  /// The peer asked for it.
  public var isIncoming: Bool
  /// The longest SDU that we accept.
  public var mtu: UInt16
  /// The longest SDU that the peer accepts.
  public var peerMTU: UInt16
  /// The longest SDU that `L2CAPUpper.nextPayload` may append: `peerMTU`, or less by `ChannelSettings.longestSDU`.
  public var longestSDU: UInt16
}

/// Why the opening of a channel failed, or why an open one ended.
public enum ChannelEnd: BitwiseCopyable, Sendable, Equatable {
  /// The peer's response refuses it.
  case refused(ChannelResult)
  /// The peer does not support the request, or rejected it as a whole.
  case notUnderstood(RejectReason)
  /// The peer's response has values that it must not have.
  case invalidResponse
  /// No response within 30 s, or no credits for the rest of an SDU of a channel that is being closed.
  case timedOut
  /// `L2CAPLayer.closeChannel`, and the peer has answered: it has got everything.
  case closedHere
  case closedByPeer
  /// The peer violated a rule that ends the channel.
  case fault(ChannelFault)
  case linkClosed
}

/// How `L2CAPLayer.reconfigureChannels` ended.
public enum ReconfigureOutcome: BitwiseCopyable, Sendable, Equatable {
  case accepted
  /// Nothing is changed, here and in the following cases.
  case refused(ReconfigureResult)
  case notUnderstood(RejectReason)
  case timedOut
  case linkClosed
}

/// Why `L2CAPLayer` does not begin a procedure with channels.
public enum ChannelRefusal: Error, BitwiseCopyable, Sendable, Equatable {
  /// The link is not open, or not with these channels.
  case notOpen
  /// Outside the ranges of Vol 3, Part A, §4.22, §4.25, §4.27.
  case invalidParameters
  /// The link has all its 56 channels.
  case noFreeChannel
  /// A reconfiguration of this link is in progress.
  case busy
}

/// The channels of one request, in order: those that are refused have the number 0.
@usableFromInline struct ChannelGroup: BitwiseCopyable, Equatable {
  var channels = ChannelList()
  var isEnhanced: Bool
  /// Of a peer's request: why some of its channels are refused.
  var result = ChannelResult.success
}
/// The response to a request for channels.
@usableFromInline struct ConnectionAnswer: BitwiseCopyable {
  var group: ChannelGroup
  var mtu: UInt16 = 0, mps: UInt16 = 0, credits: UInt16 = 0
  init(_ group: ChannelGroup) { self.group = group }
  /// Refuses all of them.
  init(refusing count: Int, isEnhanced: Bool, _ result: ChannelResult) {
    group = ChannelGroup(isEnhanced: isEnhanced, result: result)
    for _ in 0..<count { group.channels.append(ChannelID()) }
  }
}
/// The peer's numbers in a command, which may be any: at most 8.
struct ChannelNumbers: BitwiseCopyable {
  private var low: UInt64 = 0, high: UInt64 = 0
  private(set) var count = 0
  init() {}
  init(_ list: WireList<ChannelID>, in frame: Span<UInt8>) {
    var cursor = list.cursor
    while count < 8, let number = cursor.next(in: frame) {
      let shifted = UInt64(number.rawValue) << (16 * UInt64(count & 3))
      if count < 4 { low |= shifted } else { high |= shifted }
      count += 1
    }
  }
  subscript(index: Int) -> ChannelID {
    let word = index < 4 ? low : high
    return ChannelID(rawValue: UInt16(truncatingIfNeeded: word >> (16 * UInt64(index & 3))))
  }
}
extension ChannelList {
  /// As entries of a signaling command that is encoded from `numbers`.
  func wire(in numbers: inout [UInt8]) -> WireList<ChannelID> {
    do throws(WireError) { return try WireList((0..<count).map { self[$0] }, in: &numbers) } catch {
      preconditionFailure("eight numbers are no more than a list holds")
    }
  }
}
/// A command of the peer about channels.
struct ChannelCommand: BitwiseCopyable {
  let identifier: UInt8
  let code: SignalCode
  let link: ConnectionHandle
  let now: Instant
  var list = ChannelNumbers()
}

/// A number that the peer may assign on LE-U: Vol 3, Part A, §2.1, Table 2.2.
extension ChannelID { fileprivate var isPeersDynamic: Bool { (0x0040...0x007F).contains(rawValue) } }

// MARK: Procedures with channels

extension SignalingChannel {
  /// Moves a channel, and does what the move asks for. `end`: why, if that ends the channel or its opening.
  mutating func apply(
    _ event: CreditChannel.Event, to id: ChannelID, _ end: ChannelEnd, _ link: ConnectionHandle,
    _ channels: inout ChannelTable, _ effects: inout Deque<L2CAPEffect>
  ) {
    guard let index = channels.index(of: id), let move = channels.change(at: index, { $0.take(event) }) else { return }
    perform(move, at: index, end, link, &channels, &effects)
  }
  private mutating func perform(
    _ move: CreditChannel.Move, at index: Int, _ end: ChannelEnd, _ link: ConnectionHandle,
    _ channels: inout ChannelTable, _ effects: inout Deque<L2CAPEffect>
  ) {
    let id = channels.credit[index].id
    if move.disconnects, case .closing(let peer, _) = move.phase {
      waiting.append(.request(.disconnection(id, peer: peer)))
    }
    switch move.report {
    case .opened?:
      if let facts = channels.credit[index].facts { effects.append(.channelOpened(link, id, facts)) }
    case .notOpened?: effects.append(.channelNotOpened(link, id, end))
    case .closed?: effects.append(.channelClosed(link, id, end))
    case nil: break
    }
    if case .free = move.phase { channels.remove(at: index) }
  }
  /// A K-frame or credits that the channel does not allow.
  mutating func fail(
    _ id: ChannelID, _ fault: ChannelFault, _ link: ConnectionHandle, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    effects.report(.channel(id, fault), link)
    apply(.violated, to: id, .fault(fault), link, &channels, &effects)
  }

  /// A procedure of ours has ended without its own response.
  mutating func endChannels(
    _ procedure: SignalProcedure, _ ending: Ending, _ link: ConnectionHandle, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    let (event, end): (CreditChannel.Event, ChannelEnd) =
      switch ending {
      case .notUnderstood(let reason): (.refused, .notUnderstood(reason))
      case .timedOut: (.timeOver, .timedOut)
      case .linkClosed: (.linkDown, .linkClosed)
      }
    switch procedure {
    case .connection(let group):
      for place in 0..<group.channels.count { apply(event, to: group.channels[place], end, link, &channels, &effects) }
    case .disconnection(let id):
      // A peer that rejects our request does not have the channel.
      if case .notUnderstood = ending {
        apply(.disconnected, to: id, .closedHere, link, &channels, &effects)
      } else {
        apply(event, to: id, end, link, &channels, &effects)
      }
    case .reconfiguration(let list, _, _):
      let outcome: ReconfigureOutcome =
        switch ending {
        case .notUnderstood(let reason): .notUnderstood(reason)
        case .timedOut: .timedOut
        case .linkClosed: .linkClosed
        }
      endProposal(of: list, nil, outcome, link, &channels, &effects)
    case .parameterUpdate: break
    }
  }
  private func endProposal(
    of list: ChannelList, _ accepted: (mtu: UInt16, mps: UInt16)?, _ outcome: ReconfigureOutcome,
    _ link: ConnectionHandle, _ channels: inout ChannelTable, _ effects: inout Deque<L2CAPEffect>
  ) {
    for place in 0..<list.count {
      if let index = channels.index(of: list[place]) { channels.change(at: index) { $0.endProposal(accepted) } }
    }
    effects.append(.reconfigurationEnded(link, list, outcome))
  }

  // MARK: From above

  /// Asks the peer for channels.
  mutating func open(
    _ spsm: SPSM, _ settings: ChannelSettings, count: Int, isEnhanced: Bool, _ channels: inout ChannelTable
  ) throws(ChannelRefusal) -> ChannelList {
    guard settings.isValid(isEnhanced: isEnhanced), (1...0x00FF).contains(spsm.rawValue),
      (1...(isEnhanced ? ChannelList.most : 1)).contains(count)
    else { throw .invalidParameters }
    guard let list = channels.freeNumbers(count) else { throw .noFreeChannel }
    for place in 0..<list.count {
      channels.append(CreditChannel(list[place], spsm: spsm, isEnhanced: isEnhanced, settings))
    }
    waiting.append(.request(.connection(ChannelGroup(channels: list, isEnhanced: isEnhanced))))
    return list
  }
  /// Answers the peer's request: the channels that open; nil when there is no such request, or no longer.
  mutating func answer(
    identifier: UInt8, _ decision: ChannelDecision, _ link: ConnectionHandle, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) -> ChannelList? {
    guard case .connection(let group)? = received.procedure(of: identifier) else { return nil }
    _ = received.end(identifier)
    var answer = ConnectionAnswer(ChannelGroup(isEnhanced: group.isEnhanced, result: group.result))
    var accepted = ChannelList()
    for place in 0..<group.channels.count {
      let id = group.channels[place]
      switch decision {
      case .accepted(let settings, let limit)
      where accepted.count < limit && settings.isValid(isEnhanced: group.isEnhanced):
        (answer.mtu, answer.mps) = (settings.mtu, settings.mps)
        if let index = channels.index(of: id), let move = channels.change(at: index, { $0.accept(settings) }) {
          answer.credits = channels.change(at: index) { $0.creditsToGive() }
          answer.group.channels.append(id)
          accepted.append(id)
          perform(move, at: index, .closedHere, link, &channels, &effects)
          continue
        }
      case .accepted:
        if answer.group.result == .success { answer.group.result = .noResources }
      case .refused(let result): answer.group.result = result
      }
      apply(.declined, to: id, .closedHere, link, &channels, &effects)
      answer.group.channels.append(ChannelID())
    }
    // The request has had its place among the answers.
    waiting.append(.answer(identifier: identifier, .connection(answer)))
    return accepted
  }
  /// The layer above no longer uses the channel, or its opening. False if it is not the layer above's.
  mutating func close(
    _ id: ChannelID, _ link: ConnectionHandle, now: Instant, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) -> Bool {
    guard let index = channels.index(of: id) else { return false }
    let deadline = channels.credit[index].isBegun ? now + SignalingChannel.responseTimeout : nil
    guard let move = channels.change(at: index, { $0.take(.close(deadline: deadline)) }) else { return false }
    perform(move, at: index, .closedHere, link, &channels, &effects)
    forgetAbandonedRequest(of: id, link, &channels, &effects)
    return true
  }
  /// A request that has not left is not sent when all its channels have been abandoned.
  private mutating func forgetAbandonedRequest(
    of id: ChannelID, _ link: ConnectionHandle, _ channels: inout ChannelTable, _ effects: inout Deque<L2CAPEffect>
  ) {
    for place in waiting.indices {
      guard case .request(.connection(let group)) = waiting[place], group.channels.contains(id) else { continue }
      for place in 0..<group.channels.count {
        guard let index = channels.index(of: group.channels[place]), channels.credit[index].phase == .abandoned else {
          return
        }
      }
      waiting.remove(at: place)
      for place in 0..<group.channels.count {
        apply(.refused, to: group.channels[place], .closedHere, link, &channels, &effects)
      }
      return
    }
  }
  /// Tells the peer that we accept other lengths on enhanced channels.
  mutating func reconfigure(
    _ list: ChannelList, mtu: UInt16, mps: UInt16, _ channels: inout ChannelTable
  ) throws(ChannelRefusal) {
    guard (1...ChannelList.most).contains(list.count), ChannelSettings.areValid(mtu: mtu, mps: mps, isEnhanced: true)
    else { throw .invalidParameters }
    for place in 0..<list.count {
      guard let index = channels.index(of: list[place]), channels.credit[index].isEnhanced,
        case .open = channels.credit[index].phase
      else { throw .notOpen }
      let settings = channels.credit[index].settings
      guard mtu >= settings.mtu, mps >= settings.mps || list.count == 1 else { throw .invalidParameters }
    }
    let isBegun = begin(.reconfiguration(list, mtu: mtu, mps: mps)) {
      if case .reconfiguration = $0 { true } else { false }
    }
    guard isBegun else { throw .busy }
    for place in 0..<list.count {
      if let index = channels.index(of: list[place]) { channels.change(at: index) { $0.propose(mtu: mtu, mps: mps) } }
    }
  }

  // MARK: From the peer

  /// A request that may be answered: it does not repeat one that is pending (Vol 3, Part A, §4), and has a place.
  private func mayAnswer(_ command: ChannelCommand, _ effects: inout Deque<L2CAPEffect>) -> Bool {
    if received.contains(identifier: command.identifier) {
      effects.report(.unexpectedSignal(command.code, identifier: command.identifier), command.link)
      return false
    }
    guard hasRoomForConnectionAnswer else {
      effects.report(.tooManySignals(command.code), command.link)
      return false
    }
    return true
  }
  private mutating func refuse(
    _ result: ChannelResult, count: Int, isEnhanced: Bool, _ command: ChannelCommand,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    if result != .noResources { effects.report(.channelsRefused(result), command.link) }
    // `mayAnswer` has made sure of its place.
    let refusal = ConnectionAnswer(refusing: count, isEnhanced: isEnhanced, result)
    waiting.append(.answer(identifier: command.identifier, .connection(refusal)))
  }
  /// Adds a channel that the peer asks for; the result says why not.
  private func add(
    _ peer: CreditChannel.Endpoint, _ spsm: SPSM, isEnhanced: Bool, _ channels: inout ChannelTable
  ) -> (ChannelID, ChannelResult) {
    guard peer.cid.isPeersDynamic else { return (ChannelID(), .invalidSourceCID) }
    guard channels.index(ofPeer: peer.cid) == nil else { return (ChannelID(), .sourceCIDAlreadyAllocated) }
    guard let free = channels.freeNumbers(1) else { return (ChannelID(), .noResources) }
    channels.append(CreditChannel(free[0], spsm: spsm, isEnhanced: isEnhanced, peer: peer))
    return (free[0], .success)
  }

  mutating func receive(
    _ request: LECreditBasedConnectionRequest, _ command: ChannelCommand, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    guard mayAnswer(command, &effects) else { return }
    guard ChannelSettings.areValid(mtu: request.mtu, mps: request.mps, isEnhanced: false) else {
      return refuse(.unacceptableParameters, count: 1, isEnhanced: false, command, &effects)
    }
    let peer = CreditChannel.Endpoint(
      cid: request.sourceCID, mtu: request.mtu, mps: request.mps, credits: request.initialCredits)
    let (id, result) = add(peer, request.spsm, isEnhanced: false, &channels)
    guard result == .success else { return refuse(result, count: 1, isEnhanced: false, command, &effects) }
    var group = ChannelGroup(isEnhanced: false)
    group.channels.append(id)
    raise(group, 1, request.spsm, peer, command, &effects)
  }
  mutating func receive(
    _ request: CreditBasedConnectionRequest, _ command: ChannelCommand, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    guard mayAnswer(command, &effects) else { return }
    guard command.list.count <= ChannelList.most,
      ChannelSettings.areValid(mtu: request.mtu, mps: request.mps, isEnhanced: true)
    else { return refuse(.invalidParameters, count: command.list.count, isEnhanced: true, command, &effects) }
    var group = ChannelGroup(isEnhanced: true), count = 0, peer = CreditChannel.Endpoint()
    for place in 0..<command.list.count {
      peer = CreditChannel.Endpoint(
        cid: command.list[place], mtu: request.mtu, mps: request.mps, credits: request.initialCredits)
      let (id, result) = add(peer, request.spsm, isEnhanced: true, &channels)
      group.channels.append(id)
      if result == .success { count += 1 } else if group.result == .success { group.result = result }
    }
    guard count > 0 else {
      return refuse(group.result, count: group.channels.count, isEnhanced: true, command, &effects)
    }
    if group.result != .success, group.result != .noResources {
      effects.report(.channelsRefused(group.result), command.link)
    }
    raise(group, count, request.spsm, peer, command, &effects)
  }
  private mutating func raise(
    _ group: ChannelGroup, _ count: Int, _ spsm: SPSM, _ peer: CreditChannel.Endpoint, _ command: ChannelCommand,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    received.begin(.connection(group), command.identifier)
    let request = ChannelRequest(
      spsm: spsm, count: count, isEnhanced: group.isEnhanced, peerMTU: peer.mtu, peerMPS: peer.mps)
    effects.append(.channelsRequested(command.link, identifier: command.identifier, request))
  }

  /// The group of our pending request that a response of this kind answers.
  private func asked(
    _ command: ChannelCommand, isEnhanced: Bool, _ effects: inout Deque<L2CAPEffect>
  ) -> ChannelGroup? {
    if case .connection(let group)? = sent.procedure(of: command.identifier), group.isEnhanced == isEnhanced {
      return group
    }
    effects.report(.unexpectedSignal(command.code, identifier: command.identifier), command.link)
    return nil
  }
  mutating func receive(
    _ response: LECreditBasedConnectionResponse, _ command: ChannelCommand, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    guard let group = asked(command, isEnhanced: false, &effects) else { return }
    _ = sent.end(command.identifier)
    let peer = CreditChannel.Endpoint(
      cid: response.destinationCID, mtu: response.mtu, mps: response.mps, credits: response.initialCredits)
    if response.result != .success {
      return apply(.refused, to: group.channels[0], .refused(response.result), command.link, &channels, &effects)
    }
    if !opened(peer, group.channels[0], isEnhanced: false, command, &channels, &effects) {
      effects.report(.invalidResponse(command.code), command.link)
    }
  }
  mutating func receive(
    _ response: CreditBasedConnectionResponse, _ command: ChannelCommand, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    guard let group = asked(command, isEnhanced: true, &effects) else { return }
    if response.result.isPending { return sent.extend(command.identifier, until: command.now + Self.furtherTimeout) }
    _ = sent.end(command.identifier)
    let mayOpen = response.result == .success || response.result.isPartial
    var isValid = !mayOpen || command.list.count == group.channels.count
    for place in 0..<group.channels.count {
      let id = group.channels[place], cid = place < command.list.count ? command.list[place] : ChannelID()
      guard mayOpen, cid != ChannelID() else {
        // Success opens all of them: Vol 3, Part A, §4.26.
        let isWrong = response.result == .success
        if isWrong { isValid = false }
        apply(
          .refused, to: id, isWrong ? .invalidResponse : .refused(response.result), command.link, &channels, &effects)
        continue
      }
      let peer = CreditChannel.Endpoint(
        cid: cid, mtu: response.mtu, mps: response.mps, credits: response.initialCredits)
      if !opened(peer, id, isEnhanced: true, command, &channels, &effects) { isValid = false }
    }
    if !isValid { effects.report(.invalidResponse(command.code), command.link) }
  }
  /// The peer has opened a channel that we asked for. False if it must not open like this.
  private mutating func opened(
    _ peer: CreditChannel.Endpoint, _ id: ChannelID, isEnhanced: Bool, _ command: ChannelCommand,
    _ channels: inout ChannelTable, _ effects: inout Deque<L2CAPEffect>
  ) -> Bool {
    let other = channels.index(ofPeer: peer.cid).map { channels.credit[$0].id }
    // Neither of two channels with the same number may be used: Vol 3, Part A, §4.26.
    if let other, isEnhanced { apply(.violated, to: other, .invalidResponse, command.link, &channels, &effects) }
    let isNumberValid = peer.cid.isPeersDynamic && other == nil
    let isValid = isNumberValid && ChannelSettings.areValid(mtu: peer.mtu, mps: peer.mps, isEnhanced: isEnhanced)
    let event: CreditChannel.Event = isValid ? .opened(peer) : isNumberValid ? .openedWrongly(peer.cid) : .refused
    apply(event, to: id, .invalidResponse, command.link, &channels, &effects)
    return isValid
  }

  mutating func receive(
    _ request: CreditBasedReconfigureRequest, _ command: ChannelCommand, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    let (result, isFault) = judge(request, command.list, channels)
    guard answer(command.identifier, .reconfiguration(result)) else {
      return effects.report(.tooManySignals(command.code), command.link)
    }
    if isFault { effects.report(.reconfigurationRefused(result), command.link) }
    guard result == .success else { return }
    for place in 0..<command.list.count {
      guard let index = channels.index(ofPeer: command.list[place]) else { continue }
      channels.change(at: index) { $0.reconfigurePeer(mtu: request.mtu, mps: request.mps) }
      if let facts = channels.credit[index].facts {
        effects.append(.channelReconfigured(command.link, channels.credit[index].id, facts))
      }
    }
  }
  /// Vol 3, Part A, §4.27, §4.28. It is no fault of the peer that we are closing a channel.
  private func judge(
    _ request: CreditBasedReconfigureRequest, _ list: ChannelNumbers, _ channels: borrowing ChannelTable
  ) -> (ReconfigureResult, isFault: Bool) {
    guard list.count <= ChannelList.most, ChannelSettings.areValid(mtu: request.mtu, mps: request.mps, isEnhanced: true)
    else { return (.unacceptableParameters, true) }
    var seen = ChannelSet(), isMPSReduced = false
    for place in 0..<list.count {
      guard let index = channels.index(ofPeer: list[place]), channels.credit[index].isEnhanced,
        channels.credit[index].isEstablished, !seen.contains(channels.credit[index].id)
      else { return (.invalidDestinationCID, true) }
      seen.insert(channels.credit[index].id)
      guard case .open(let peer) = channels.credit[index].phase else { return (.invalidDestinationCID, false) }
      if request.mtu < peer.mtu { return (.mtuReduced, true) }
      if request.mps < peer.mps { isMPSReduced = true }
    }
    let isRefused = isMPSReduced && list.count > 1
    return (isRefused ? .mpsReduced : .success, isRefused)
  }
  mutating func receive(
    _ response: CreditBasedReconfigureResponse, _ command: ChannelCommand, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    guard case .reconfiguration(let list, let mtu, let mps)? = sent.procedure(of: command.identifier) else {
      return effects.report(.unexpectedSignal(command.code, identifier: command.identifier), command.link)
    }
    _ = sent.end(command.identifier)
    let isAccepted = response.result == .success
    endProposal(
      of: list, isAccepted ? (mtu, mps) : nil, isAccepted ? .accepted : .refused(response.result), command.link,
      &channels, &effects)
  }

  /// Vol 3, Part A, §4.6.
  mutating func receive(
    _ request: DisconnectionRequest, _ command: ChannelCommand, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    guard let index = channels.index(of: request.destinationCID), let peer = channels.credit[index].disconnectable
    else {
      let content = Answer.invalidCID(local: request.destinationCID, remote: request.sourceCID)
      let isAnswered = answer(command.identifier, content)
      return effects.report(isAnswered ? .rejectedSignal(command.code) : .tooManySignals(command.code), command.link)
    }
    guard peer == request.sourceCID else {
      return effects.report(.unexpectedSignal(command.code, identifier: command.identifier), command.link)
    }
    // A channel that is closing may be asked for again: one answer for each channel waits.
    let isAnswered = waiting.contains {
      if case .answer(_, .disconnection(let other)) = $0 {
        other.destinationCID == request.destinationCID
      } else {
        false
      }
    }
    if isAnswered {
      return effects.report(.unexpectedSignal(command.code, identifier: command.identifier), command.link)
    }
    waiting.append(.answer(identifier: command.identifier, .disconnection(request)))
    let id = request.destinationCID
    apply(.disconnectionRequested, to: id, .closedByPeer, command.link, &channels, &effects)
    // Our own request, if it has not left, has become superfluous.
    let place = waiting.firstIndex {
      if case .request(.disconnection(id, _)) = $0 { true } else { false }
    }
    if let place {
      waiting.remove(at: place)
      apply(.disconnected, to: id, .closedByPeer, command.link, &channels, &effects)
    }
  }
  /// Vol 3, Part A, §4.7: one whose numbers do not match is discarded.
  mutating func receive(
    _ response: DisconnectionResponse, _ command: ChannelCommand, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    let id = response.sourceCID
    guard sent.procedure(of: command.identifier) == .disconnection(id), let index = channels.index(of: id),
      channels.credit[index].disconnectable == response.destinationCID
    else { return effects.report(.unexpectedSignal(command.code, identifier: command.identifier), command.link) }
    _ = sent.end(command.identifier)
    apply(.disconnected, to: id, .closedHere, command.link, &channels, &effects)
  }
  mutating func receive(
    _ indication: FlowControlCreditIndication, _ command: ChannelCommand, _ channels: inout ChannelTable,
    _ effects: inout Deque<L2CAPEffect>
  ) {
    guard let index = channels.index(ofPeer: indication.cid), channels.credit[index].disconnectable != nil,
      indication.credits > 0
    else { return effects.report(.unexpectedCredits(indication.cid, credits: indication.credits), command.link) }
    let isValid = channels.change(at: index) { $0.receive(credits: indication.credits) }
    if !isValid { fail(channels.credit[index].id, .tooManyCredits, command.link, &channels, &effects) }
  }

  // MARK: To the peer

  /// A K-frame has been written: a channel that was closed before is disconnected behind its last one.
  mutating func finish(_ id: ChannelID, _ link: ConnectionHandle, _ channels: inout ChannelTable) {
    guard let index = channels.index(of: id), channels.credit[index].isFinished,
      let move = channels.change(at: index, { $0.take(.sent) }), case .closing(let peer, _) = move.phase
    else { return }
    waiting.append(.request(.disconnection(id, peer: peer)))
  }
  /// Our request for channels.
  func write(
    _ group: ChannelGroup, _ identifier: UInt8, into output: inout OutputRawSpan, _ channels: inout ChannelTable
  ) {
    var spsm = SPSM(), settings = ChannelSettings(mtu: 0, mps: 0), credits: UInt16 = 0
    for place in 0..<group.channels.count {
      guard let index = channels.index(of: group.channels[place]) else { continue }
      (spsm, settings) = (channels.credit[index].spsm, channels.credit[index].settings)
      credits = channels.change(at: index) { $0.creditsToGive() }
    }
    guard group.isEnhanced else {
      let request = LECreditBasedConnectionRequest.with {
        $0.spsm = spsm
        $0.sourceCID = group.channels[0]
        $0.mtu = settings.mtu
        $0.mps = settings.mps
        $0.initialCredits = credits
      }
      return write(.leCreditBasedConnectionRequest(request), identifier, into: &output)
    }
    var numbers: [UInt8] = []
    let request = CreditBasedConnectionRequest.with {
      $0.spsm = spsm
      $0.mtu = settings.mtu
      $0.mps = settings.mps
      $0.initialCredits = credits
      $0.sourceCIDs = group.channels.wire(in: &numbers)
    }
    write(.creditBasedConnectionRequest(request), identifier, numbers, into: &output)
  }
  /// The response to the peer's request. Its channels may be used as soon as it has left.
  func write(
    _ answer: ConnectionAnswer, _ identifier: UInt8, into output: inout OutputRawSpan, _ channels: inout ChannelTable
  ) {
    let list = answer.group.channels
    for place in 0..<list.count {
      if let index = channels.index(of: list[place]) { channels.change(at: index) { _ = $0.take(.responseSent) } }
    }
    guard answer.group.isEnhanced else {
      let response = LECreditBasedConnectionResponse.with {
        $0.destinationCID = list[0]
        $0.mtu = answer.mtu
        $0.mps = answer.mps
        $0.initialCredits = answer.credits
        $0.result = answer.group.result
      }
      return write(.leCreditBasedConnectionResponse(response), identifier, into: &output)
    }
    var numbers: [UInt8] = []
    let response = CreditBasedConnectionResponse.with {
      $0.mtu = answer.mtu
      $0.mps = answer.mps
      $0.initialCredits = answer.credits
      $0.result = answer.group.result
      $0.destinationCIDs = list.wire(in: &numbers)
    }
    write(.creditBasedConnectionResponse(response), identifier, numbers, into: &output)
  }
}

extension ChannelResult {
  /// Only some channels of an enhanced request are refused. Vol 3, Part A, §4.26.
  fileprivate var isPartial: Bool {
    self == .noResources || self == .invalidSourceCID || self == .sourceCIDAlreadyAllocated
  }
}
