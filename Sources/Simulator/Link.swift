import BasicContainers
import BindruneToolbox
import BindruneWire
import DequeModule
import BindruneHCI

/// A link of an `Air`; the index of a link that has ended is reused with a new generation.
struct LinkID: BitwiseCopyable, Sendable, Equatable {
  var index: Int, generation: UInt32
}

/// One end of a link.
struct LinkPlace: BitwiseCopyable, Sendable {
  let link: LinkID, role: LinkRole
  init(_ link: LinkID, _ role: LinkRole) {
    self.link = link
    self.role = role
  }
  var other: LinkPlace { LinkPlace(link, role.other) }
}

/// The parameters that both ends of a link share. Vol 6, Part B, §4.5.
struct LinkParameters: BitwiseCopyable, Equatable {
  /// connInterval, connPeripheralLatency in events, connSupervisionTimeout.
  var interval: ConnectionInterval, latency: UInt16, timeout: SupervisionTimeout
  // Not `duration`: every connection event needs these, and a generic call of another module costs more than the
  // event's own arithmetic.
  var period: Duration { .microseconds(1250 * Int64(interval.rawValue)) }
  var supervision: Duration { .milliseconds(10 * Int64(timeout.rawValue)) }
}

/// The parameters that one end requests: a range of intervals.
struct LinkRequest: BitwiseCopyable, Equatable {
  var intervalMin: ConnectionInterval, intervalMax: ConnectionInterval, latency: UInt16, timeout: SupervisionTimeout

  /// The ranges and the rule of Vol 4, Part E, §7.8.12: the time-out exceeds twice the longest silence.
  var isValid: Bool {
    intervalMin.rawValue >= 6 && intervalMin <= intervalMax && intervalMax.rawValue <= 3200 && latency <= 499
      && (10...3200).contains(timeout.rawValue)
      // 10 ms × timeout > (1 + latency) × 1.25 ms × interval × 2
      && UInt32(timeout.rawValue) * 4 > (1 + UInt32(latency)) * UInt32(intervalMax.rawValue)
  }
  /// The link parameters with the least requested interval.
  var chosen: LinkParameters { LinkParameters(interval: intervalMin, latency: latency, timeout: timeout) }
}

/// The supported LL control PDUs. Vol 6, Part B, §2.4.2.
enum LLControl {
  case connectionUpdate(LinkParameters)
  case channelMap(ChannelMap)
  case terminate(HCIStatus)
  case unknown(type: UInt8)
  case featureRequest(LEFeatures), featureResponse(LEFeatures), peripheralFeatureRequest(LEFeatures)
  case featurePageRequest(FeaturePage), featurePageResponse(FeaturePage)
  case version(PeerVersion)
  case connectionParameterRequest(LinkRequest)
  case reject(type: UInt8, error: HCIStatus)
  case lengthRequest(DataLength), lengthResponse(DataLength)
  case phyRequest(RequestedPHYs), phyResponse(RequestedPHYs), phyUpdate(PHYUpdate)
  /// The key diversifiers are each end's half of SKD. The halves of IV are left out: nothing here depends on them.
  case encryptionRequest(random: LongTermKeyRand, diversifier: UInt16, keyDiversifier: UInt64)
  case encryptionResponse(keyDiversifier: UInt64)
  case startEncryptionRequest, startEncryptionResponse, pauseEncryptionRequest, pauseEncryptionResponse
  case pingRequest, pingResponse

  static var encryptionRequestType: UInt8 { 0x03 }
  static var peripheralFeatureRequestType: UInt8 { 0x0E }
  static var connectionParameterRequestType: UInt8 { 0x0F }
  static var lengthRequestType: UInt8 { 0x14 }
  static var phyRequestType: UInt8 { 0x16 }

  /// The PDU's type octet, for those that can be refused.
  var type: UInt8 {
    switch self {
    case .connectionUpdate: 0x00
    case .channelMap: 0x01
    case .terminate: 0x02
    case .encryptionRequest: 0x03
    case .encryptionResponse: 0x04
    case .startEncryptionRequest: 0x05
    case .startEncryptionResponse: 0x06
    case .unknown: 0x07
    case .featureRequest: 0x08
    case .featureResponse: 0x09
    case .pauseEncryptionRequest: 0x0A
    case .pauseEncryptionResponse: 0x0B
    case .version: 0x0C
    case .peripheralFeatureRequest: 0x0E
    case .connectionParameterRequest: 0x0F
    case .reject: 0x11
    case .pingRequest: 0x12
    case .pingResponse: 0x13
    case .lengthRequest: 0x14
    case .lengthResponse: 0x15
    case .phyRequest: 0x16
    case .phyResponse: 0x17
    case .phyUpdate: 0x18
    case .featurePageRequest: 0x2B
    case .featurePageResponse: 0x2C
    }
  }
  /// Whether it may be sent during the encryption procedures. Vol 6, Part B, §5.1.3.
  var passesEncryption: Bool {
    switch self {
    case .encryptionRequest, .encryptionResponse, .startEncryptionRequest, .startEncryptionResponse,
      .pauseEncryptionRequest, .pauseEncryptionResponse, .terminate:
      true
    case .reject(let type, _): type == Self.encryptionRequestType
    default: false
    }
  }
}

/// SK, the key of an encrypted link. Vol 6, Part B, §5.1.3.1.
///
/// Nobody eavesdrops on this air, so a packet's octets stay as they are; its receiver compares the sender's key with
/// its own where a real one checks the MIC.
struct SessionKey: BitwiseCopyable, Equatable {
  let number: UInt128
  /// SKD has the central's half in its least significant octets.
  init(_ longTermKey: AES128, central: UInt64, peripheral: UInt64) {
    number = longTermKey.encrypt(UInt128(peripheral) << 64 | UInt128(central))
  }
}

/// The contents of LL_FEATURE_EXT_REQ and LL_FEATURE_EXT_RSP: a page after page 0, and the sender's last page with a
/// feature. Vol 6, Part B, §5.1.4.3.
struct FeaturePage: BitwiseCopyable {
  var maxPage: UInt8, number: UInt8, words: [3 of UInt64]
  /// Page `number` of `pages`, which begin with page 1.
  init(_ number: UInt8, of pages: [UInt8]) {
    let pages = pages.prefix(Int(LEFeatures.furtherPages) * LEFeatures.octetsOfFurtherPage)
    let first = (Int(number) - 1) * LEFeatures.octetsOfFurtherPage
    self.number = number
    maxPage = UInt8(pages.lastIndex { $0 != 0 }.map { $0 / LEFeatures.octetsOfFurtherPage + 1 } ?? 0)
    words = .init { word in
      (0..<8).reduce(0) {
        let place = first + 8 * word + $1
        return $0 | (pages.indices.contains(place) ? UInt64(pages[place]) << UInt64(8 * $1) : 0)
      }
    }
  }
  var octets: [UInt8] {
    (0..<LEFeatures.octetsOfFurtherPage).map { UInt8(truncatingIfNeeded: words[$0 / 8] >> UInt64($0 % 8 * 8)) }
  }
}
/// The contents of LL_VERSION_IND. Vol 6, Part B, §2.4.2.13.
struct PeerVersion: BitwiseCopyable { var version: CoreVersion, company: CompanyIdentifier }
/// Data octets in one packet, as the sender of LL_LENGTH_REQ receives and transmits them. Vol 6, Part B, §2.4.2.21.
struct DataLength: BitwiseCopyable, Equatable {
  var receive: UInt16 = 27, transmit: UInt16 = 27
  /// The duration of a packet on LE 1M: preamble, access address, header, MIC and CRC add 14 octets.
  static func time(_ octets: UInt16) -> UInt16 { 8 * (octets + 14) }
  /// The same on another modulation: LE 2M has one octet of preamble more and half the time for each; LE Coded with S =
  /// 8 has 64 µs an octet and a constant 400 µs. Vol 6, Part B, §2.1, §2.2.
  static func time(_ octets: UInt16, on phy: PHY) -> UInt16 {
    switch phy {
    case .le2M: 4 * (octets + 15)
    case .leCoded: 400 + 64 * (octets + 9)
    default: time(octets)
    }
  }
  /// A host's request in octets and µs, converted to octets; `nil` outside the ranges of Vol 4, Part E, §7.8.33.
  static func octets(_ octets: UInt16, _ time: UInt16) -> UInt16? {
    guard (27...251).contains(octets), (328...17040).contains(time) else { return nil }
    return min(octets, time / 8 - 14)
  }
}

/// One end of a link: what its controller still has to send, and what it has received.
///
/// Vol 6, Part B, §4.5.9: one packet is in flight at a time; the other end's next packet acknowledges it. Until then it
/// is repeated, and the receiver recognizes it by its sequence number and accepts it once.
///
/// Phases: each procedure with phases has its own enumeration, because procedures run concurrently.
struct LinkEnd: ~Copyable {
  let controller: ControllerID, handle: ConnectionHandle
  var phase = Phase.open
  /// The host's packets, each with its packet boundary flag; the first one stays until all of it is acknowledged.
  var data = PacketQueue()
  /// Acknowledged octets of the first packet.
  var progress = 0
  var control = Deque<LLControl>()
  /// The packet in flight.
  var flight = Flight.nothing
  /// When this end last heard the other one; `nil` before the first packet. Vol 6, Part B, §4.5.2.
  var lastHeard: Instant?

  /// connMaxRxOctets and connMaxTxOctets of both ends, and the effective values. Vol 6, Part B, §4.5.10.
  var length = DataLength(), peerLength = DataLength(), effective = DataLength()
  /// The values of an unanswered LL_LENGTH_REQ.
  var lengthSent: DataLength?
  /// The PHY with which it sends.
  var phy: PHY
  var phyPreference = PHYPreference.none
  /// The strength of the last packet from the other end, in dBm; 127: none yet.
  var strength: Int8 = 127
  var version = VersionExchange.unsent
  var featureRead = FeatureRead.none
  var encryption = Encryption.idle
  /// The keys for its own packets and for those of the other end; nil: not encrypted.
  var transmitKey: SessionKey?, receiveKey: SessionKey?
  /// The current procedure response timer. Vol 6, Part B, §5.2.
  var procedureTimer: UInt32 = 0
  /// authenticatedPayloadTO, its current timer, and when the last packet with a valid MIC arrived. Vol 6, Part B, §5.4.
  var payloadTimeout = AuthenticatedPayloadTimeout.standard, payloadTimer: UInt32 = 0, lastAuthenticated = Instant.zero
  var unanswered: Unanswered = []

  /// From the beginning of the link to its end. Vol 6, Part B, §5.1.6.
  enum Phase {
    case open
    /// The host has requested the end, and LL_TERMINATE_IND is sent until it is acknowledged.
    case terminating
    /// LL_TERMINATE_IND has arrived: this end closes with its next packet, which acknowledges it, for this reason.
    case closing(HCIStatus)
    case closed
  }
  enum Flight {
    case nothing
    /// Repeated until the other end has it.
    case underway(Content)
    /// The other end has it; its acknowledgement is missing.
    case delivered(Content)

    enum Content {
      /// The first of `control`.
      case control
      /// This many octets of the first of `data`, after `progress`.
      case data(Int)
    }
    var isControl: Bool {
      switch self {
      case .underway(.control), .delivered(.control): true
      default: false
      }
    }
  }
  /// Versions are sent once in each direction. Vol 6, Part B, §5.1.5.
  enum VersionExchange {
    case unsent
    /// Sent at the host's request for the peer's version, which has not arrived.
    case awaitingPeer
    /// The peer's version is known; the event for the host has not been sent.
    case reporting(PeerVersion)
    case known(PeerVersion)
  }
  /// The host's request for the peer's features. Vol 6, Part B, §5.1.4.
  enum FeatureRead {
    case none
    /// LE Read Remote Features awaits page 0.
    case page0
    /// LE Read All Remote Features awaits page 0 first: the host wants so many further ones.
    case all(pages: UInt8)
    /// It has these octets of page 0 and further ones.
    case further(pages: UInt8, octets: [UInt8])
  }
  /// The modulations that the host requests on this link. Vol 6, Part B, §5.1.10.
  enum PHYPreference {
    /// The defaults for all links.
    case none
    /// LE Set PHY has caused no event yet.
    case requested(RequestedPHYs)
    case agreed(RequestedPHYs)

    var isRequested: Bool { if case .requested = self { true } else { false } }
    var preference: RequestedPHYs? {
      switch self {
      case .none: nil
      case .requested(let preference), .agreed(let preference): preference
      }
    }
  }
  /// The encryption start procedure, and the pause before it on an encrypted link. Vol 6, Part B, §5.1.3.
  enum Encryption {
    /// There is no procedure. The link is encrypted if there are keys.
    case idle
    /// At the central: LL_PAUSE_ENC_REQ has been sent.
    case awaitingPause(EncryptionRequest)
    /// At the central: LL_ENC_REQ has been sent.
    case awaitingResponse(EncryptionRequest)
    /// At the central: LL_ENC_RSP has arrived and made this key; LL_START_ENC_REQ follows when the peer's host has one.
    case awaitingStart(SessionKey, isRefresh: Bool)
    /// At the peripheral: LL_PAUSE_ENC_RSP has been sent, and LL_ENC_REQ follows.
    case pausing
    /// At the peripheral: its host has been asked for the key. Both halves of SKD.
    case awaitingHost(central: UInt64, peripheral: UInt64, isRefresh: Bool)
    /// At both: LL_START_ENC_RSP of the other end is missing.
    case starting(SessionKey, isRefresh: Bool)
  }
  /// Requests without phases or data, any of which may be pending.
  struct Unanswered: OptionSet {
    let rawValue: UInt8
    /// The host's LE Connection Update.
    static var update: Unanswered { Unanswered(rawValue: 1) }
    /// LE Remote Connection Parameter Request, which the host must answer.
    static var parameterRequest: Unanswered { Unanswered(rawValue: 2) }
  }

  init(_ controller: ControllerID, _ handle: ConnectionHandle, _ phy: PHY) {
    self.controller = controller
    self.handle = handle
    self.phy = phy
  }
  var isOpen: Bool { if case .closed = phase { false } else { true } }
  /// The link has ended at this end. False if it had before.
  @discardableResult mutating func close() -> Bool {
    guard isOpen else { return false }
    phase = .closed
    data.removeAll()
    control.removeAll()
    flight = .nothing
    encryption = .idle
    (transmitKey, receiveKey) = (nil, nil)
    return true
  }
  /// The reason with which the link ends here when the other end is silent. Vol 6, Part B, §4.5.2, §5.1.6.
  var reasonForSilence: HCIStatus {
    switch phase {
    case .open, .closed: .connectionTimeout
    case .terminating: .connectionTerminatedByLocalHost
    case .closing(let reason): reason
    }
  }
  /// An encryption procedure holds back data and other control PDUs. Vol 6, Part B, §5.1.3.
  var isPaused: Bool { if case .idle = encryption { false } else { true } }
  var canSendControl: Bool {
    guard let first = control.first else { return false }
    return !isPaused || first.passesEncryption
  }
  /// A procedure of the host begins. False if it runs already.
  mutating func begin(_ request: Unanswered) -> Bool { unanswered.insert(request).inserted }
  var canSendData: Bool { !data.isEmpty && !isPaused }
  /// New data needs neither a place in the queue nor a key.
  @inline(__always) var sendsAtOnce: Bool {
    guard data.isEmpty, control.isEmpty, !isPaused, transmitKey == nil else { return false }
    return !isBusy
  }
  /// Queues a control PDU. One that may be sent during encryption procedures goes before those that may not.
  mutating func enqueue(_ pdu: LLControl) {
    guard isPaused, pdu.passesEncryption else { return control.append(pdu) }
    var index = flight.isControl ? 1 : 0
    while index < control.count, control[index].passesEncryption { index += 1 }
    control.insert(pdu, at: index)
  }
  /// There is something to send or to acknowledge: MD, the "more data" bit.
  var isBusy: Bool {
    if canSendControl || canSendData { return true }
    if case .closing = phase { return true }
    if case .nothing = flight { return false }
    return true
  }
  /// The duration of the next packet and of the pause after it: T_IFS is 150 µs. Vol 6, Part B, §4.1.1.
  var airTime: Duration {
    var octets: UInt16 = 0
    if canSendControl {
      octets = 12
    } else if canSendData {
      octets = UInt16(min(data.frontCount - progress, Int(effective.transmit)))
    }
    return .microseconds(150 + Int64(DataLength.time(octets, on: phy)))
  }

  // MARK: Packets. Vol 6, Part B, §4.5.9

  /// Chooses what to send next, control before data, at most `most` octets of it, unless a packet is in flight. Returns
  /// the phase in which it is sent; nil if the link has ended here.
  mutating func beginPacket(most: Int) -> Phase? {
    guard isOpen else { return nil }
    guard case .nothing = flight else { return phase }
    if canSendControl {
      flight = .underway(.control)
    } else if canSendData {
      flight = .underway(.data(min(data.frontCount - progress, most)))
    }
    return phase
  }
  enum Acknowledged: BitwiseCopyable {
    case control, fragment
    /// The last fragment of a packet of the host.
    case packet
    /// LL_TERMINATE_IND.
    case termination
  }
  /// A packet of the other end has arrived, and acknowledges the packet in flight, if there is one.
  mutating func hear(now: Instant) -> Acknowledged? {
    lastHeard = now
    guard case .delivered(let content) = flight else { return nil }
    flight = .nothing
    switch content {
    case .control:
      switch control.popFirst() {
      case .terminate: return .termination
      case .startEncryptionRequest, .pauseEncryptionResponse: changeReceiveKey()
      default: break
      }
      return .control
    case .data(let count):
      progress += count
      guard progress >= data.frontCount else { return .fragment }
      progress = 0
      data.removeFirst()
      return .packet
    }
  }
}

/// LE Enable Encryption of a host. Vol 4, Part E, §7.8.24.
struct EncryptionRequest {
  var random: LongTermKeyRand, diversifier: UInt16, longTermKey: AES128
  /// The central's half of SKD.
  var keyDiversifier: UInt64
  /// The link is encrypted already.
  var isRefresh: Bool
}

/// Two connected controllers. Vol 6, Part B, §4.5.
struct Link: ~Copyable {
  let id: LinkID
  /// The central's and the peripheral's. In an array, and not two properties that a role chooses from: that would need
  /// a conditional accessor, which the compiler cannot inline, and each access would allocate.
  private(set) var ends = UniqueArray<LinkEnd>(minimumCapacity: 2)
  var parameters: LinkParameters
  /// connEventCount.
  private var event: UInt64 = 0
  /// LL_CONNECTION_UPDATE_IND has been received and takes effect with this event.
  private var update: (parameters: LinkParameters, event: UInt64)?
  /// Data channels in use, and those of LL_CHANNEL_MAP_IND.
  var channels: ChannelMap
  private var channelUpdate: (channels: ChannelMap, event: UInt64)?
  /// The same for LL_PHY_UPDATE_IND.
  private var phyUpdate: (phys: PHYUpdate, event: UInt64)?
  let start: Instant
  /// Since when the ends have been out of each other's reach; only used without connection events.
  private(set) var silentSince: Instant?

  init(
    _ id: LinkID, central: consuming LinkEnd, peripheral: consuming LinkEnd, _ parameters: LinkParameters,
    _ channels: ChannelMap, start: Instant
  ) {
    self.id = id
    self.channels = channels
    ends.append(central)
    ends.append(peripheral)
    self.parameters = parameters
    self.start = start
  }
  var isOpen: Bool { central.isOpen || peripheral.isOpen }
  /// The other end, if a packet of this end can be there without connection events.
  @inline(__always) func receiverAtOnce(from role: LinkRole) -> (controller: ControllerID, handle: ConnectionHandle)? {
    guard silentSince == nil, self[role].sendsAtOnce else { return nil }
    return (self[role.other].controller, self[role.other].handle)
  }
  @inline(__always) subscript(role: LinkRole) -> LinkEnd {
    _read { yield ends[Int(role.rawValue)] }
    _modify { yield &ends[Int(role.rawValue)] }
  }
  @inline(__always) var central: LinkEnd {
    _read { yield ends[0] }
    _modify { yield &ends[0] }
  }
  @inline(__always) var peripheral: LinkEnd {
    _read { yield ends[1] }
    _modify { yield &ends[1] }
  }
  /// The indexes of the controllers at this end and at the other one.
  func controllers(from role: LinkRole) -> (from: Int, to: Int) {
    (self[role].controller.index, self[role.other].controller.index)
  }

  // MARK: Connection events

  /// MD of either end.
  var isBusy: Bool { central.isBusy || peripheral.isBusy }
  /// The duration of the next two packets.
  var airTime: Duration { central.airTime + peripheral.airTime }
  /// Counts the event. Returns what takes effect with it, and is to be put into force.
  mutating func beginEvent() -> (parameters: LinkParameters?, phys: PHYUpdate?) {
    event += 1
    if let update = channelUpdate, update.event <= event { (channels, channelUpdate) = (update.channels, nil) }
    let parameters = update.flatMap { $0.event <= event ? $0.parameters : nil }
    return (parameters, phyUpdate.flatMap { $0.event <= event ? $0.phys : nil })
  }
  /// The connection event with which a change takes effect: at least six later. One that has passed (0x28) is
  /// impossible here: it is counted from now.
  private var instant: UInt64 { event + 6 }
  mutating func plan(_ parameters: LinkParameters) { update = (parameters, instant) }
  mutating func plan(_ channels: ChannelMap) { channelUpdate = (channels, instant) }
  mutating func plan(_ phys: PHYUpdate) { phyUpdate = (phys, instant) }
  /// Puts these into force. True if they are new.
  mutating func use(_ parameters: LinkParameters) -> Bool {
    defer { (self.parameters, update) = (parameters, nil) }
    return parameters != self.parameters
  }
  mutating func use(_ phys: PHYUpdate) -> Bool {
    defer { (central.phy, peripheral.phy, phyUpdate) = (phys.central, phys.peripheral, nil) }
    return phys != PHYUpdate(central: central.phy, peripheral: peripheral.phy)
  }

  enum Arrival {
    /// There is no packet, or it has no recipient.
    case nothing
    /// Its MIC is wrong.
    case wrongKey
    case control(LLControl)
    /// So many octets of the first of `data`.
    case data(Int)
  }
  /// What has arrived from this end, unless it is a duplicate. Data still has to be taken.
  mutating func arrival(from role: LinkRole, now: Instant) -> Arrival {
    guard self[role.other].isOpen, case .underway(let content) = self[role].flight else { return .nothing }
    let key = self[role].transmitKey
    if key != self[role.other].receiveKey { return .wrongKey }
    if key != nil { self[role.other].lastAuthenticated = now }
    switch content {
    case .control:
      guard let pdu = self[role].control.first else { return .nothing }
      self[role].flight = .delivered(content)
      return .control(pdu)
    case .data(let count): return .data(count)
    }
  }

  // MARK: Silence

  /// Why the link ends at this end, whose peer has been silent for too long. Vol 6, Part B, §4.5.2: the supervision
  /// time-out, or six intervals before the first packet.
  func reasonToEnd(_ role: LinkRole, now: Instant) -> HCIStatus? {
    guard self[role].isOpen else { return nil }
    guard let heard = self[role].lastHeard else {
      return now - start >= parameters.period * 6 ? .connectionFailedToBeEstablished : nil
    }
    return now - heard >= parameters.supervision ? self[role].reasonForSilence : nil
  }
  /// The ends cannot hear each other. Returns when the supervision time-out is over; nil if it runs already.
  mutating func fallSilent(now: Instant) -> Instant? {
    guard silentSince == nil else { return nil }
    silentSince = now
    return now + parameters.supervision
  }
  /// The ends hear each other. True if they have not until now.
  mutating func endSilence() -> Bool { silentSince.take() != nil }
}

/// All links of the air. Slots of ended links are reused.
struct LinkTable: ~Copyable {
  private(set) var slots = UniqueArray<Link>()
  private var generation: UInt32 = 0

  var count: Int { slots.count }
  func contains(_ id: LinkID) -> Bool { id.index < slots.count && slots[id.index].id == id && slots[id.index].isOpen }
  @inline(__always) subscript(_ id: LinkID) -> Link {
    _read { yield slots[id.index] }
    _modify { yield &slots[id.index] }
  }
  @inline(__always) subscript(_ end: LinkPlace) -> LinkEnd {
    _read { yield slots[end.link.index][end.role] }
    _modify { yield &slots[end.link.index][end.role] }
  }
  func id(at index: Int) -> LinkID? { slots[index].isOpen ? slots[index].id : nil }

  mutating func open(
    central: consuming LinkEnd, peripheral: consuming LinkEnd, _ parameters: LinkParameters, _ channels: ChannelMap,
    start: Instant
  ) -> LinkID {
    generation &+= 1
    var index = 0
    while index < slots.count, slots[index].isOpen { index += 1 }
    let id = LinkID(index: index, generation: generation)
    let link = Link(id, central: central, peripheral: peripheral, parameters, channels, start: start)
    if index < slots.count { slots[index] = link } else { slots.append(link) }
    return id
  }
}

extension LinkRole {
  var other: LinkRole { self == .central ? .peripheral : .central }
  static var both: [LinkRole] { [.central, .peripheral] }
}
