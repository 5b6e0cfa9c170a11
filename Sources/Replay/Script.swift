import BindruneATT
import BindruneCapture
import BindruneTrace
import BindruneWire
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// The kinds of packets that a host sends on a link; each is compared in its own order.
public enum ReplayStream: String, Sendable, CaseIterable {
  /// ATT requests and commands: the host is a client.
  case client
  /// ATT responses: the host is a server.
  case server
  /// ATT notifications and indications.
  case values
  /// ATT confirmations.
  case confirmations
  case security
  case signaling
  /// HCI commands about encryption and the end of the link.
  case commands

  /// nil: not compared.
  init?(_ channel: ChannelID, _ payload: [UInt8]) {
    switch channel {
    case .attribute: self = Self(att: payload.opcode)
    case .securityManager: self = .security
    case .leSignaling: self = .signaling
    default: return nil
    }
  }
  private init(att opcode: ATTOpcode) {
    self =
      switch opcode.kind {
      case .notification, .indication: .values
      case .confirmation: .confirmations
      case .response: .server
      case .request, .command, nil: .client
      }
  }
}

extension [UInt8] {
  /// Of an ATT PDU; 0, which no PDU has, if it is empty.
  var opcode: ATTOpcode { ATTOpcode(rawValue: first ?? 0) }
  /// Of a command, H4 packet type octet first.
  var commandOpcode: HCIOpcode { HCIOpcode(rawValue: little16(1)) }
  /// Of an SMP PDU; 0, which no PDU has, if it is empty.
  var code: SMPCode { SMPCode(rawValue: first ?? 0) }
}

/// One thing that happens in a trace: a frame with all packets that carry it, or another packet.
struct ReplayStep: Sendable {
  enum Kind: Sendable {
    /// An L2CAP frame on a link.
    case frame(ChannelID, [UInt8])
    case command, event
    /// Of a credit-based channel: `Script.leaveOutChannels`.
    case channel
  }
  var kind: Kind
  var direction: HCIDirection
  /// The link, by its place in `Script.links`; nil: no link is concerned.
  var link: Int?
  /// Indices in the list of packets: the fragments of a frame.
  var packets: [Int]
  /// The step that answers this one, or is answered by it: an ATT request and its response.
  var partner: Int?

  var payload: [UInt8] { if case .frame(_, let payload) = kind { payload } else { [] } }
  var stream: ReplayStream? {
    if case .frame(let channel, let payload) = kind { ReplayStream(channel, payload) } else { nil }
  }
}

/// A link of a trace, from its begin to its end.
struct ScriptLink: Sendable {
  var handle: UInt16
  var role: LinkRole?
  /// The step with the event that reports it; nil: the trace begins later.
  var begin: Int?
  var steps: [Int] = []
  /// nil: no transaction of the host times out.
  var death: BearerDeath?
}

/// # Script
/// **Overview**: one adapter's trace, as a play with parts: the steps in order, the links, and which response answers
/// which request. The replay looks ahead in it.
struct Script: Sendable {
  let packets: [ReplayPacket]
  var steps: [ReplayStep] = []
  var links: [ScriptLink] = []
  /// ATT, SMP and signaling frames.
  private(set) var frameCount = 0

  init(_ packets: [ReplayPacket]) {
    self.packets = packets
    var builder = ScriptBuilder(), dissector = Dissector()
    for (index, packet) in packets.enumerated() {
      builder.index = index
      dissector.receive(packet.record, packet.octets.span, into: &builder)
      builder.endPacket(packet)
    }
    steps = builder.steps
    links = builder.links
    for link in links.indices {
      leaveOutChannels(of: link)
      finish(link)
      links[link].death = death(of: link)
    }
  }

  /// Pairs requests with responses, and finds the host's role where no event tells it.
  private mutating func finish(_ link: Int) {
    var hosts: Int?, peers: Int?, role: LinkRole?
    for index in links[link].steps {
      guard let stream = steps[index].stream, !steps[index].payload.isEmpty else {
        if case .command = steps[index].kind,
          packets[steps[index].packets[0]].octets.commandOpcode == LEEnableEncryption.opcode
        {
          role = .central
        }
        if case .event = steps[index].kind {
          let octets = packets[steps[index].packets[0]].octets
          if case .leLongTermKeyRequest? = try? HCIEvent(octets.span) {
            role = .peripheral
          }
        }
        continue
      }
      frameCount += 1
      let isOurs = steps[index].direction == .fromHost, payload = steps[index].payload
      switch stream {
      case .client where payload.opcode.kind == .request:
        if isOurs { hosts = index } else { peers = index }
        // Only a guess: most clients are Centrals.
        if links[link].role == nil, role == nil { role = isOurs ? .central : .peripheral }
      case .server:
        guard let request = isOurs ? peers : hosts else { continue }
        if isOurs { peers = nil } else { hosts = nil }
        steps[request].partner = index
        steps[index].partner = request
      case .security where payload.code == PairingRequest.code: role = isOurs ? .central : .peripheral
      case .security where payload.code == SecurityRequest.code: role = isOurs ? .peripheral : .central
      case .signaling where payload.first == ConnectionParameterUpdateRequest.code.rawValue:
        role = isOurs ? .peripheral : .central
      case .client, .values, .confirmations, .security, .signaling, .commands: break
      }
    }
    if links[link].role == nil { links[link].role = role ?? .central }
  }

  /// How many steps of a link the replay looks ahead, so that a trace of an attacker takes no quadratic time.
  private static let farthest = 2_000
  /// The steps of a link from `step` on.
  func steps(from step: Int, on link: Int) -> ArraySlice<Int> {
    let list = links[link].steps
    var low = 0, high = list.count
    while low < high {
      let middle = (low + high) / 2
      if list[middle] < step { low = middle + 1 } else { high = middle }
    }
    return list[low...].prefix(Self.farthest)
  }
  /// The next step on the link after `step` that `body` accepts.
  func next(after step: Int, on link: Int, where body: (ReplayStep) -> Bool) -> Int? {
    steps(from: step + 1, on: link).first { body(steps[$0]) }
  }
  /// The last step on the link before `step` that `body` accepts.
  func previous(before step: Int, on link: Int, where body: (ReplayStep) -> Bool) -> Int? {
    let list = links[link].steps
    var low = 0, high = list.count
    while low < high {
      let middle = (low + high) / 2
      if list[middle] < step { low = middle + 1 } else { high = middle }
    }
    return list[..<low].suffix(Self.farthest).last { body(steps[$0]) }
  }
  /// The step of the first Exchange MTU Request that one of the two sends on the link; nil: it sends none.
  func firstExchange(on link: Int, of sender: HCIDirection? = nil) -> Int? {
    links[link].steps.first {
      guard case .frame(.attribute, let payload) = steps[$0].kind, payload.opcode == ExchangeMTURequest.opcode else {
        return false
      }
      return sender == nil || steps[$0].direction == sender
    }
  }
  /// The ATT_MTU that a link has before an exchange in the trace: 23, the default (Vol 3, Part F, §3.2.8); if the trace
  /// begins on the link, at least the length of its longest PDU until then.
  func mtuBefore(_ link: Int) -> UInt16 {
    guard links[link].begin == nil else { return 23 }
    let exchange = firstExchange(on: link) ?? .max
    let longest = links[link].steps.reduce(0) {
      if $1 < exchange, case .frame(.attribute, let payload) = steps[$1].kind { max($0, payload.count) } else { $0 }
    }
    return UInt16(min(max(longest, 23), 517))
  }
  /// The host's next ATT request.
  func nextRequest(after step: Int, on link: Int) -> Int? {
    next(after: step, on: link) {
      $0.direction == .fromHost && $0.stream == .client && $0.payload.opcode.kind == .request
    }
  }
}

/// Makes the steps from the dissector's calls.
private struct ScriptBuilder: TraceSink {
  var steps: [ReplayStep] = []
  var links: [ScriptLink] = []
  /// The packet that is dissected.
  var index = 0
  /// The links that are up, by handle.
  private var up: [UInt16: Int] = [:]
  /// Links of BR/EDR, which are left out.
  private var classic: Set<UInt16> = []
  /// Fragments without the end of their frame, by handle and direction.
  private var fragments: [UInt32: [Int]] = [:]
  private var hadFrame = false

  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) { hadFrame = false }
  mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {}

  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    guard let direction = frame.direction, frame.isWhole else { return }
    hadFrame = true
    let handle = UInt16(truncatingIfNeeded: frame.connection), key = key(handle, direction)
    let before = fragments.removeValue(forKey: key) ?? []
    guard !classic.contains(handle) else { return }
    let isFixed = [ChannelID.attribute, .leSignaling, .securityManager].contains(frame.channel)
    guard isFixed || up[handle] != nil else { return }
    append(
      ReplayStep(
        kind: .frame(frame.channel, payload.array), direction: direction, link: link(handle), packets: before + [index])
    )
  }
  private func key(_ handle: UInt16, _ direction: HCIDirection) -> UInt32 {
    UInt32(handle) << 1 | (direction == .fromHost ? 1 : 0)
  }
  /// The link with this handle; one that was up before the trace began.
  private mutating func link(_ handle: UInt16) -> Int {
    if let link = up[handle] { return link }
    return open(ScriptLink(handle: handle))
  }
  private mutating func open(_ link: ScriptLink) -> Int {
    links.append(link)
    up[link.handle] = links.count - 1
    return links.count - 1
  }
  private mutating func append(_ step: ReplayStep) {
    if let link = step.link { links[link].steps.append(steps.count) }
    steps.append(step)
  }

  /// The packet has been dissected: what is no frame becomes a step.
  mutating func endPacket(_ packet: ReplayPacket) {
    let octets = packet.octets
    switch octets.first.flatMap({ HCIPacketType(rawValue: $0) }) {
    case .acl:
      guard !hadFrame, let header = ACLHeader(octets.span) else { return }
      let key = key(header.handle.rawValue, packet.direction)
      // A first fragment ends what was incomplete.
      if header.packetBoundaryFlag != .continuing { fragments[key] = nil }
      if fragments.count < Dissector.mostAssemblies { fragments[key, default: []].append(index) }
    case .command:
      guard octets.count >= 4 else { return }
      append(ReplayStep(kind: .command, direction: .fromHost, link: subject(ofCommand: octets), packets: [index]))
    case .event: event(octets)
    case .synchronous, .iso, nil: break
    }
  }
  /// Commands about a link that the replay compares.
  private func subject(ofCommand octets: [UInt8]) -> Int? {
    (try? AnyCommand(octets.span))?.comparedLink.flatMap { up[$0.rawValue] }
  }
  private mutating func event(_ octets: [UInt8]) {
    var step = ReplayStep(kind: .event, direction: .fromController, packets: [index])
    let event: HCIEvent
    do throws(WireError) { event = try HCIEvent(octets.span) } catch { return }
    switch event {
    case .leConnectionComplete(let event) where event.status == .success:
      step.link = begin(event.connectionHandle, event.role)
    case .leEnhancedConnectionComplete(let event) where event.status == .success:
      step.link = begin(event.connectionHandle, event.role)
    case .disconnectionComplete(let event) where event.status == .success:
      classic.remove(event.connectionHandle.rawValue)
      step.link = up[event.connectionHandle.rawValue]
      append(step)
      up[event.connectionHandle.rawValue] = nil
      return
    case .encryptionChange(let event): step.link = up[event.connectionHandle.rawValue]
    case .encryptionChangeV2(let event): step.link = up[event.connectionHandle.rawValue]
    case .encryptionKeyRefreshComplete(let event): step.link = up[event.connectionHandle.rawValue]
    case .leLongTermKeyRequest(let event): step.link = up[event.connectionHandle.rawValue]
    case .leConnectionUpdateComplete(let event): step.link = up[event.connectionHandle.rawValue]
    case .lePHYUpdateComplete(let event): step.link = up[event.connectionHandle.rawValue]
    case .leDataLengthChange(let event): step.link = up[event.connectionHandle.rawValue]
    case .leReadRemoteFeaturesComplete(let event): step.link = up[event.connectionHandle.rawValue]
    case .leReadAllRemoteFeaturesComplete(let event): step.link = up[event.connectionHandle.rawValue]
    case .authenticatedPayloadTimeoutExpired(let event): step.link = up[event.connectionHandle.rawValue]
    case .leConnectionComplete, .leEnhancedConnectionComplete, .disconnectionComplete,
      .readRemoteVersionInformationComplete, .commandComplete, .commandStatus, .hardwareError,
      .numberOfCompletedPackets, .dataBufferOverflow, .leAdvertisingReport, .leRemoteConnectionParameterRequest,
      .leDirectedAdvertisingReport, .leExtendedAdvertisingReport, .leScanTimeout,
      .leAdvertisingSetTerminated, .leScanRequestReceived, .unknownLE, .vendor, .unknown:
      if let new = ClassicConnectionComplete(event, octets.span), new.status == .success {
        classic.insert(new.connectionHandle.rawValue)
      }
    }
    append(step)
  }
  private mutating func begin(_ handle: ConnectionHandle, _ role: LinkRole) -> Int {
    classic.remove(handle.rawValue)
    return open(ScriptLink(handle: handle.rawValue, role: role, begin: steps.count))
  }
}

extension AnyCommand {
  /// The link of a command that the replay compares: Disconnect, LE Enable Encryption, and the two replies to LE Long
  /// Term Key Request decide about a link's end and its protection. Vol 4, Part E, §7.1.6, §7.8.24 … §7.8.26.
  var comparedLink: ConnectionHandle? {
    switch self {
    case .disconnect(let command): command.connectionHandle
    case .leEnableEncryption(let command): command.connectionHandle
    case .leLongTermKeyRequestReply(let command): command.connectionHandle
    case .leLongTermKeyRequestNegativeReply(let command): command.connectionHandle
    default: nil
    }
  }
}
