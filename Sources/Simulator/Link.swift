import BasicContainers
import BindruneToolbox
import BindruneWire
import DequeModule
import BindruneHCI

/// A link of an `Air`; the index of a link that has ended is reused with a new generation.
struct LinkID: BitwiseCopyable, Sendable, Equatable {
  var index: Int, generation: UInt32
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
    /// The host's LE Read Remote Features.
    static var features: Unanswered { Unanswered(rawValue: 1) }
    /// The host's LE Connection Update.
    static var update: Unanswered { Unanswered(rawValue: 2) }
    /// LE Remote Connection Parameter Request, which the host must answer.
    static var parameterRequest: Unanswered { Unanswered(rawValue: 4) }
  }

  init(_ controller: ControllerID, _ handle: ConnectionHandle, _ phy: PHY) {
    self.controller = controller
    self.handle = handle
    self.phy = phy
  }
  var isOpen: Bool { if case .closed = phase { false } else { true } }
  /// The link has ended at this end.
  mutating func close() {
    phase = .closed
    data.removeAll()
    control.removeAll()
    flight = .nothing
    encryption = .idle
    (transmitKey, receiveKey) = (nil, nil)
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
  /// Chooses what to send next, control before data, at most `most` octets of it, unless a packet is in flight.
  mutating func choose(most: Int) {
    guard case .nothing = flight else { return }
    if canSendControl {
      flight = .underway(.control)
    } else if canSendData {
      flight = .underway(.data(min(data.frontCount - progress, most)))
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
  var event: UInt64 = 0
  /// LL_CONNECTION_UPDATE_IND has been received and takes effect with this event.
  var update: (parameters: LinkParameters, event: UInt64)?
  /// Data channels in use, and those of LL_CHANNEL_MAP_IND.
  var channels: ChannelMap
  var channelUpdate: (channels: ChannelMap, event: UInt64)?
  /// The same for LL_PHY_UPDATE_IND.
  var phyUpdate: (phys: PHYUpdate, event: UInt64)?
  let start: Instant
  /// Since when the ends have been out of each other's reach; only used without connection events.
  var silentSince: Instant?

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
  /// Sends LL_LENGTH_REQ to the other end, unless one is unanswered.
  mutating func startLengthUpdate(_ role: LinkRole) {
    guard self[role].lengthSent == nil else { return }
    let length = self[role].length
    self[role].lengthSent = length
    self[role].control.append(.lengthRequest(length))
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
}
