import BasicContainers
import BindruneWire
import DequeModule

/// What we accept on a credit-based channel, and how the layer above uses it.
public struct ChannelSettings: BitwiseCopyable, Sendable, Equatable {
  /// The longest SDU that we accept: at least 23 octets, 64 on an enhanced channel.
  public var mtu: UInt16
  /// The longest payload of a K-frame that we accept: 23 (or 64) … 65,533 octets. 247 fit into one packet of the link
  /// layer with the data length extension.
  public var mps: UInt16
  /// The longest SDU that the layer above sends, if the peer accepts it. It limits the channel's memory.
  public var longestSDU: UInt16
  /// The layer above keeps no SDU: its K-frames may be given back as credits as soon as `receive` returns. Otherwise
  /// `L2CAPLayer.taken` gives them back.
  public var takesAtOnce: Bool
  public init(mtu: UInt16, mps: UInt16 = 247, longestSDU: UInt16? = nil, takesAtOnce: Bool = false) {
    self.mtu = mtu
    self.mps = mps
    self.longestSDU = longestSDU ?? mtu
    self.takesAtOnce = takesAtOnce
  }
  /// Within the ranges of Vol 3, Part A, §4.22, or §4.25 on an enhanced channel.
  public func isValid(isEnhanced: Bool) -> Bool { ChannelSettings.areValid(mtu: mtu, mps: mps, isEnhanced: isEnhanced) }
  static func areValid(mtu: UInt16, mps: UInt16, isEnhanced: Bool) -> Bool {
    let least: UInt16 = isEnhanced ? 64 : 23
    return mtu >= least && (least...65_533).contains(mps)
  }
}

/// # CreditWindow
/// **Overview**: the credits that we give the peer of one channel. Each is memory for one K-frame.
///
/// **Function**: the peer begins with `size` credits: twice as many as the longest SDU has K-frames, at least 4. A
/// K-frame takes one; when the layer above has taken its SDU, the credit is owed to the peer, and at least half of
/// `size` are given back together, in one Flow Control Credit packet. So at most `size` K-frames wait here or above,
/// and a reader that stops reading stops the writer.
///
/// A peer may use more K-frames for an SDU than it needs. Memory for an SDU in progress is reserved by its length, so
/// those in excess are owed at once: otherwise the SDU could not be completed.
struct CreditWindow: ~Copyable {
  private(set) var size = 0
  /// K-frames of the longest SDU, each as long as allowed.
  private var framesOfLongest = 0
  /// Credits that the peer has not used.
  private(set) var atPeer = 0
  /// Credits to give back.
  private(set) var owed = 0
  /// K-frames of the SDU in progress that are not owed.
  private var inProgress = 0
  /// K-frames of each SDU that the layer above has not taken.
  private var untaken = Deque<UInt16>()

  init() {}
  /// Adapts the size to what we accept now. It never shrinks: the peer has the credits.
  mutating func resize(mtu: UInt16, mps: UInt16) {
    framesOfLongest = (Int(mtu) + CreditFrame.lengthCount + Int(mps) - 1) / Int(mps)
    let wanted = max(4, 2 * framesOfLongest)
    if wanted > size {
      owed += wanted - size
      size = wanted
    }
  }
  /// Enough is owed for a Flow Control Credit packet: half of all, or a quarter when the peer has not more than half.
  /// A peer that sends long SDUs would else have used all its credits before a second SDU is taken.
  var isDue: Bool { owed > 0 && (2 * owed >= size || 4 * owed >= size && 2 * atPeer <= size) }
  /// All that is owed: what the request or the response that opens the channel gives, or a Flow Control Credit packet.
  mutating func give() -> UInt16 {
    let credits = owed
    atPeer += credits
    owed = 0
    return UInt16(credits)
  }
  /// False if the peer had no credit.
  mutating func receiveFrame() -> Bool {
    guard atPeer > 0 else { return false }
    atPeer -= 1
    if inProgress < framesOfLongest { inProgress += 1 } else { owed += 1 }
    return true
  }
  /// An SDU has been handed to the layer above.
  mutating func endSDU(isTaken: Bool) {
    if isTaken { owed += inProgress } else { untaken.append(UInt16(inProgress)) }
    inProgress = 0
  }
  /// The layer above has taken the first `count` SDUs that it was handed.
  mutating func take(_ count: Int) {
    for _ in 0..<count {
      guard let frames = untaken.popFirst() else { return }
      owed += Int(frames)
    }
  }
}

/// # CreditChannel
/// **Overview**: one credit-based channel of a link (Vol 3, Part A, §10.1), opened by an LE request or by an enhanced
/// one (§10.2). Only the signals differ.
///
/// **Function**: the signaling channel tells it what was requested, answered or refused; `move` decides. While it is
/// open, it takes SDUs from the layer above, cuts them into K-frames, each for one of the peer's credits, and joins the
/// peer's K-frames into SDUs, for credits of its own (`CreditWindow`).
///
/// **Phases**: `move` has all transitions. The layer above knows the channel from `opening` or `answering` on, until
/// one report that the opening failed or that the channel is closed. The number is free again when the peer knows that,
/// too, or has not answered in time.
@usableFromInline struct CreditChannel: ~Copyable {
  /// The peer's end of the channel.
  struct Endpoint: BitwiseCopyable, Equatable {
    var cid = ChannelID()
    var mtu: UInt16 = 0
    var mps: UInt16 = 0
    /// K-frames that we may send when the channel opens.
    var credits: UInt16 = 0
  }
  enum Phase: BitwiseCopyable, Equatable {
    /// No channel has the number.
    case free
    /// Our request waits or is pending.
    case opening
    /// The same, but the layer above has given up.
    case abandoned
    /// The peer's request awaits the layer above.
    case requested(Endpoint)
    /// The layer above has accepted; the response waits.
    case answering(Endpoint)
    case open(Endpoint)
    /// The layer above has closed the channel; the rest of an SDU is still sent.
    case finishing(Endpoint, deadline: Instant)
    /// Our disconnection request waits or is pending. K-frames and credits are ignored. `isAwaited`: the layer above has
    /// closed the channel, and awaits the peer's answer, which shows that everything has arrived.
    case closing(ChannelID, isAwaited: Bool)
  }
  enum Event: BitwiseCopyable {
    /// The layer above asks for a channel.
    case open
    /// The peer asks for one.
    case requested(Endpoint)
    /// The response opens the channel.
    case opened(Endpoint)
    /// The response opens it with parameters that are not allowed. The peer believes it open.
    case openedWrongly(ChannelID)
    /// The response, or a reject, refuses it.
    case refused
    /// The layer above accepts the peer's request.
    case accepted
    /// The layer above refuses the peer's request.
    case declined
    case responseSent
    /// The layer above closes it. `deadline`: the rest of an SDU waits, to be sent until then.
    case close(deadline: Instant?)
    /// The rest of the SDU has been sent.
    case sent
    case violated
    /// The peer's disconnection request.
    case disconnectionRequested
    /// The answer to our disconnection request.
    case disconnected
    /// The time of an answer, or of the rest of an SDU, is over.
    case timeOver
    case linkDown
  }
  /// What the layer above learns.
  enum Report: BitwiseCopyable { case opened, notOpened, closed }
  struct Move: BitwiseCopyable {
    var phase: Phase
    /// The peer is asked to disconnect.
    var disconnects = false
    var report: Report?
    init(_ phase: Phase, _ report: Report? = nil) {
      self.phase = phase
      self.report = report
    }
    /// The layer above learns the end now by `report`, or by the peer's answer if it awaits that.
    static func disconnect(_ peer: ChannelID, isAwaited: Bool = false, _ report: Report? = nil) -> Move {
      var move = Move(.closing(peer, isAwaited: isAwaited), report)
      move.disconnects = true
      return move
    }
  }

  /// The longest K-frame that we send, whatever the peer accepts: others wait for it, and drivers have room for it.
  static var longestFrame: Int { 1_024 }

  @usableFromInline let id: ChannelID
  let isEnhanced: Bool
  /// The peer asked for it.
  let isIncoming: Bool
  let spsm: SPSM
  private(set) var phase = Phase.free
  /// K-frames that we may send now. Not inside `Phase`, which each K-frame would take apart and rebuild.
  private var credits = 0
  /// Of a channel that the peer asks for, valid from `accept` on.
  private(set) var settings: ChannelSettings
  /// The longest SDU and K-frame that we accept now: at least those of `settings`, and those of a reconfiguration in
  /// progress.
  private var accepts: (mtu: UInt16, mps: UInt16)
  private(set) var window = CreditWindow()
  @usableFromInline private(set) var joiner = SDUJoiner()
  private var cutter = SDUCutter()

  /// A channel that we ask for.
  init(_ id: ChannelID, spsm: SPSM, isEnhanced: Bool, _ settings: ChannelSettings) {
    self.id = id
    self.spsm = spsm
    self.isEnhanced = isEnhanced
    isIncoming = false
    self.settings = settings
    accepts = (settings.mtu, settings.mps)
    window.resize(mtu: settings.mtu, mps: settings.mps)
    _ = take(.open)
  }
  /// A channel that the peer asks for.
  init(_ id: ChannelID, spsm: SPSM, isEnhanced: Bool, peer: Endpoint) {
    self.id = id
    self.spsm = spsm
    self.isEnhanced = isEnhanced
    isIncoming = true
    settings = ChannelSettings(mtu: 0, mps: 0)
    accepts = (0, 0)
    _ = take(.requested(peer))
  }

  // MARK: Transitions

  /// Every transition; nil: the event leaves the phase as it is.
  static func move(from phase: Phase, on event: Event) -> Move? {
    switch (phase, event) {
    case (.free, .open): Move(.opening)
    case (.free, .requested(let peer)): Move(.requested(peer))

    case (.opening, .opened(let peer)): Move(.open(peer), .opened)
    case (.opening, .openedWrongly(let peer)): .disconnect(peer, .notOpened)
    case (.opening, .refused), (.opening, .timeOver), (.opening, .linkDown): Move(.free, .notOpened)
    case (.opening, .close): Move(.abandoned, .notOpened)

    // A late success opens nothing: the peer must know.
    case (.abandoned, .opened(let peer)): .disconnect(peer.cid)
    case (.abandoned, .openedWrongly(let peer)): .disconnect(peer)
    case (.abandoned, .refused), (.abandoned, .timeOver), (.abandoned, .linkDown): Move(.free)

    case (.requested(let peer), .accepted): Move(.answering(peer), .opened)
    case (.requested, .declined), (.requested, .linkDown): Move(.free)

    // The peer gets the response before anything of the channel.
    case (.answering(let peer), .responseSent): Move(.open(peer))
    case (.answering(let peer), .close): .disconnect(peer.cid, isAwaited: true)

    case (.open(let peer), .close(let deadline?)): Move(.finishing(peer, deadline: deadline))
    case (.open(let peer), .close(nil)): .disconnect(peer.cid, isAwaited: true)
    case (.open(let peer), .violated): .disconnect(peer.cid, .closed)
    case (.answering, .disconnectionRequested), (.answering, .linkDown): Move(.free, .closed)
    case (.open, .disconnectionRequested), (.open, .linkDown): Move(.free, .closed)

    case (.finishing(let peer, _), .sent): .disconnect(peer.cid, isAwaited: true)
    case (.finishing(let peer, _), .timeOver), (.finishing(let peer, _), .violated): .disconnect(peer.cid, .closed)
    case (.finishing, .disconnectionRequested), (.finishing, .linkDown): Move(.free, .closed)

    // A request of the peer that crosses ours is answered, and ours still gets its answer.
    case (.closing(_, let isAwaited), .disconnected), (.closing(_, let isAwaited), .timeOver),
      (.closing(_, let isAwaited), .linkDown):
      Move(.free, isAwaited ? .closed : nil)

    case (.free, _), (.opening, _), (.abandoned, _), (.requested, _), (.answering, _), (.open, _), (.finishing, _),
      (.closing, _):
      nil
    }
  }
  /// Returns what the move asks for; nil if the event leaves the phase as it is.
  mutating func take(_ event: Event) -> Move? {
    guard let move = CreditChannel.move(from: phase, on: event) else { return nil }
    phase = move.phase
    switch phase {
    case .open(let peer): credits = Int(peer.credits)
    case .closing, .free:
      credits = 0
      joiner = SDUJoiner()
      cutter = SDUCutter()
    case .finishing: joiner = SDUJoiner()
    case .opening, .abandoned, .requested, .answering: break
    }
    return move
  }

  // MARK: Facts

  /// The peer's end, while the layer above may use the channel.
  var peer: Endpoint? {
    switch phase {
    case .answering(let peer), .open(let peer): peer
    case .free, .opening, .abandoned, .requested, .finishing, .closing: nil
    }
  }
  /// The peer's number of the channel, as soon as we know it and as long as it may be in use.
  var peerCID: ChannelID? {
    switch phase {
    case .requested(let peer), .answering(let peer), .open(let peer), .finishing(let peer, _): peer.cid
    case .closing(let cid, _): cid
    case .free, .opening, .abandoned: nil
    }
  }
  /// The peer's number, as soon as the peer may disconnect the channel.
  var disconnectable: ChannelID? { if case .requested = phase { nil } else { peerCID } }
  /// K-frames of the peer are possible.
  var isEstablished: Bool {
    switch phase {
    case .open, .finishing, .closing: true
    case .free, .opening, .abandoned, .requested, .answering: false
    }
  }
  /// What the layer above knows of the channel that it may use.
  var facts: OpenChannel? {
    peer.map {
      OpenChannel(
        spsm: spsm, isEnhanced: isEnhanced, isIncoming: isIncoming, mtu: settings.mtu, peerMTU: $0.mtu,
        longestSDU: min($0.mtu, settings.longestSDU))
    }
  }
  var deadline: Instant? { if case .finishing(_, let deadline) = phase { deadline } else { nil } }
  /// The peer's end, while K-frames may be sent.
  private var receiver: Endpoint? {
    switch phase {
    case .open(let peer), .finishing(let peer, _): peer
    case .free, .opening, .abandoned, .requested, .answering, .closing: nil
    }
  }
  /// The next SDU of the layer above could be sent.
  var mayBegin: Bool { if case .open = phase { credits > 0 && !cutter.isBegun } else { false } }
  var isBegun: Bool { cutter.isBegun }
  /// The rest of the last SDU has been sent.
  var isFinished: Bool { if case .finishing = phase { !cutter.isBegun } else { false } }
  /// The rest of an SDU can be sent.
  var mayContinue: Bool { cutter.isBegun && credits > 0 }
  /// Credits should be given back.
  var owesCredits: Bool { if case .open = phase { window.isDue } else { false } }
  /// The longest K-frame that may be received.
  var longestReceived: Int { Int(accepts.mps) }
  /// The longest SDU that may be sent.
  var longestSent: Int { Int(min(peer?.mtu ?? 0, settings.longestSDU)) }

  // MARK: Signals

  /// The layer above accepts the channel with these settings.
  mutating func accept(_ settings: ChannelSettings) -> Move? {
    self.settings = settings
    accepts = (settings.mtu, settings.mps)
    window.resize(mtu: settings.mtu, mps: settings.mps)
    return take(.accepted)
  }
  /// For the request or the response that opens the channel, or a Flow Control Credit packet.
  mutating func creditsToGive() -> UInt16 { window.give() }
  /// The peer gives credits. False if they are too many.
  mutating func receive(credits: UInt16) -> Bool {
    guard receiver != nil else { return true }
    guard self.credits + Int(credits) <= 65_535 else { return false }
    self.credits += Int(credits)
    return true
  }
  /// The peer accepts other lengths from now on.
  mutating func reconfigurePeer(mtu: UInt16, mps: UInt16) {
    guard case .open(var peer) = phase else { return }
    peer.mtu = mtu
    peer.mps = mps
    phase = .open(peer)
  }
  /// We ask for other lengths: what the peer may already send, or may still send, is accepted.
  mutating func propose(mtu: UInt16, mps: UInt16) {
    accepts = (max(settings.mtu, mtu), max(settings.mps, mps))
  }
  /// The peer has accepted the other lengths, or not (nil).
  mutating func endProposal(_ accepted: (mtu: UInt16, mps: UInt16)?) {
    if let accepted {
      settings.mtu = accepted.mtu
      settings.mps = accepted.mps
      window.resize(mtu: accepted.mtu, mps: accepted.mps)
    }
    accepts = (settings.mtu, settings.mps)
  }

  // MARK: K-frames

  /// The payload of a K-frame of `length` octets, of which `payload` may be the beginning.
  @inline(__always)
  mutating func receive(_ payload: Span<UInt8>, length: Int, _ buffers: inout SDUBuffers) -> SDUJoiner.Outcome {
    guard case .open = phase else { return .incomplete }
    guard length <= longestReceived, payload.count == length else { return .fault(.frameTooLong(length: length)) }
    guard window.receiveFrame() else { return .fault(.noCredit) }
    return joiner.receive(payload, mtu: Int(accepts.mtu), &buffers)
  }
  /// The layer above has been handed an SDU.
  mutating func endSDU(_ buffers: inout SDUBuffers) {
    joiner.finish(&buffers)
    window.endSDU(isTaken: settings.takesAtOnce)
  }
  mutating func taken(_ count: Int) { window.take(count) }

  /// The longest K-frame that may be sent.
  private var longestFrame: Int { min(Int(receiver?.mps ?? 23), CreditChannel.longestFrame) }

  /// Appends the first K-frame of the SDU that `write` appends; false, without a K-frame, if `write` returns false.
  mutating func begin(
    into output: inout OutputRawSpan, _ buffers: inout SDUBuffers, _ write: (inout OutputRawSpan) -> Bool
  ) -> Bool {
    precondition(mayBegin)
    let start = output.byteCount, longest = longestSent
    if CreditFrame.lengthCount + longest <= output.freeCapacity {
      output.append(littleEndian: UInt16(0))
      guard write(&output) else {
        output.truncate(to: start)
        return false
      }
      precondition(output.byteCount - start - CreditFrame.lengthCount <= longest, "longer than the peer's MTU")
      cutter.begin(frameAt: start, longestFrame: longestFrame, &output, &buffers)
    } else {
      guard cutter.begin(capacity: longest, longestFrame: longestFrame, &output, &buffers, write) else { return false }
    }
    credits -= 1
    return true
  }
  /// Appends the next K-frame of the SDU that has begun.
  @inline(__always) mutating func writeNext(into output: inout OutputRawSpan, _ buffers: inout SDUBuffers) {
    precondition(mayContinue)
    cutter.writeNext(longestFrame: longestFrame, into: &output, &buffers)
    credits -= 1
  }
}
