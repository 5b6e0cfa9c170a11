import BindruneATT
import BindruneCapture
import BindruneToolbox
import BindruneTrace
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// # ReplayRun
/// **Overview**: one adapter's trace, played to one `HostCore`.
///
/// **Function**: goes through the steps in order. A step of the controller is fed to the core; a step of the host first
/// makes the application's operation, if it needs one, and is then compared with the first PDU of its stream that the
/// core has sent and that no step has taken. `ReplayRun+Client`, `+Server` and `+Security` hold the parts of each role.
///
/// Every loop over the core's packets and deadlines has a bound: a trace may be an attacker's.
struct ReplayRun: ~Copyable {
  /// A PDU that our host has sent, until a recorded one is compared with it.
  struct Sent {
    var stream: ReplayStream
    var pdu: [UInt8]
    var at: Instant
  }
  /// A link of the trace while it is up.
  struct Live {
    var id: LinkID
    var peer: PeerID
    var sent: [Sent] = []
    var pairing = PairingWatch()
    /// The handles of configurations whose values the trace shows.
    var configured: Set<UInt16> = []
    /// The recorded host has asked something on the link: if not first for the MTU, ours would have.
    var hasAsked = false
    /// The recorded host has sent HCI_Disconnect.
    var isEnding = false
    /// Ours has, and the recorded host has not.
    var hasEndedAlone = false
    /// Service Changed indications that one of the two hosts has sent and the other has not.
    var changes = ServiceChanges()
  }

  let script: Script
  let seed: UInt64?
  let adapter: UInt16
  var core: HostCore
  var result = ReplayResult()
  /// The links that are up, by their place in the script.
  var live: [Int: Live] = [:]
  /// Steps that are not fed, or not compared: their partner was left out.
  var skipped: Set<Int> = []
  /// The step that is played.
  var step = 0
  var now = Instant.zero
  var configuration: HostConfiguration
  /// With all services that are ever there.
  var database: Database
  /// The changes of services that are still to come.
  private var changes: ArraySlice<RebuiltDatabase.Change>
  /// The handles of its Client Characteristic Configuration descriptors, ascending.
  let configurations: [UInt16]
  /// The handles of declarations of services and characteristics.
  private let declarations: Set<UInt16>
  let isOwnAddressKnown: Bool
  /// All addresses of the recorded host that the trace shows.
  let ownAddresses: [PeerAddress]
  let resolvingList: ResolvingListWatch
  /// The peers with whose bonds the trace begins, and whose strength is unknown.
  var guessed: Set<PeerID> = []
  /// The steps at which bonds were made.
  var bonded: [PeerID: Int] = [:]
  var lastRequest: UInt64 = 0
  /// The link that comes up: its place in the script.
  private var rising: Int?
  private var controller: ScriptedController
  private var joiner = FrameJoiner()
  private var dissector = Dissector()
  private var packet = PacketBuffer(capacity: 1_100)
  private var start: Int64
  private var groups = ReplayGroups()
  /// Links whose peer confirms an indication of ours that it does not get in the trace at that time.
  private var confirmations: [Int] = []
  private static var mostPackets: Int { 10_000 }
  /// Nanoseconds within which a host sends the next PDU of a pairing, if the link does not end.
  private static var promptness: UInt64 { 1_000_000_000 }
  private static var mostDeadlines: Int { 200 }
  /// PDUs that our host may be ahead of the recorded one: a longer trace of nothing else takes no quadratic time.
  private static var mostWaiting: Int { 256 }

  init(_ script: Script, seed: UInt64?, adapter: UInt16) {
    self.script = script
    self.seed = seed
    self.adapter = adapter
    start = script.packets.first?.time ?? 0
    var rebuilt = RebuiltDatabase(script)
    let built = rebuilt.build()
    database = built.whole
    changes = built.changes[...]
    let attributes = database.allAttributes
    configurations = attributes.filter { $0.type == .clientCharacteristicConfiguration }.map(\.handle.rawValue)
    declarations = Set(
      attributes.filter { [.primaryService, .secondaryService, .characteristic].contains($0.type) }.map(
        \.handle.rawValue))
    let own = OwnAddress(script)
    isOwnAddressKnown = own.isKnown
    ownAddresses = own.all
    resolvingList = ResolvingListWatch(script)
    configuration = Self.configuration(script, own)
    var chance = ReplayChance(seed: seed ?? 0)
    core = HostCore(configuration: configuration, database: built.first, chance: &chance)
    controller = ScriptedController(script, address: own.publicAddress, usesRecords: true)
    if rebuilt.guesses > 0 {
      for _ in 0..<rebuilt.guesses { result.use(.database, at: script.packets.first?.number ?? 0) }
    }
    result.links = script.links.map { ReplayLink(adapter: adapter, handle: $0.handle, role: $0.role ?? .central) }
    boot()
    guard !core.isRunning else { return }
    // The recorded answers are not a controller's.
    controller = ScriptedController(script, address: own.publicAddress, usesRecords: false)
    boot()
  }
  private mutating func boot() {
    core.start(now: now)
    pump()
  }

  /// What the recorded host's packets show of its policy.
  private static func configuration(_ script: Script, _ own: OwnAddress) -> HostConfiguration {
    var configuration = HostConfiguration()
    // The application decides when to encrypt: at the recorded command.
    configuration.encryptsBondedLinks = false
    configuration.pairsOnDemand = false
    // When the recorded host has refused repeated attempts is its own policy.
    configuration.limitsPairings = false
    configuration.addressPolicy = .identity
    configuration.prefersExtendedCommands = false
    // When the MTU is exchanged is policy, but what is sent depends on it.
    configuration.exchangesMTU = false
    // The application's values are accepted when the trace has them, so that none is refused for lack of room.
    configuration.queueCapacity = 65_536
    if let random = own.randomAddress { configuration.randomStaticAddress = random }
    for step in script.steps where step.direction == .fromHost {
      let pdu = step.payload
      if step.stream == .server || step.stream == .client, pdu.count == 3, Self.isMTUExchange(pdu.opcode) {
        configuration.preferredMTU = min(max(Int(pdu.little16(1)), 23), 517)
        break
      }
    }
    configuration.pairing = PairingSettings(recordedIn: script)
    return configuration
  }

  // MARK: Playing

  mutating func play() {
    for index in script.steps.indices {
      step = index
      let current = script.steps[index]
      advance(to: script.packets[current.packets[current.packets.count - 1]].time)
      if !core.isRunning { boot() }
      while let change = changes.first, change.step <= index {
        changes.removeFirst()
        apply(change)
      }
      if let link = current.link, live[link] == nil { open(link) }
      if let link = current.link, isOffered(current) {
        result.offeredCount += 1
        if script.isDead(link, at: index) { playOnDeadBearer(current, link) }
      }
      switch (current.kind, current.direction) {
      case (.frame, _) where current.link.map { script.isDead($0, at: index) } == true: break
      case (.frame, .fromHost): playHost(current)
      case (.frame, .fromController): playPeer(current)
      case (.command, _): if let link = current.link { playCommand(current, link) }
      case (.event, _): if let link = current.link { playEvent(current, link) }
      case (.channel, .fromHost): result.pass(.channels, at: number)
      case (.channel, .fromController): result.use(.channels, at: number)
      }
    }
    step = max(script.steps.count - 1, 0)
    for link in live.keys.sorted() { close(link) }
  }
  /// A PDU or a command that a replay compares if it can.
  private func isOffered(_ step: ReplayStep) -> Bool {
    switch step.kind {
    case .frame: step.direction == .fromHost && step.stream != nil
    case .channel: step.direction == .fromHost
    case .command: true
    case .event: false
    }
  }
  /// The recorded host sends on a link whose bearer is dead: ours has ended the link. What may be sent no more is a
  /// divergence once; nothing else is compared.
  private mutating func playOnDeadBearer(_ current: ReplayStep, _ link: Int) {
    guard case .frame = current.kind else { return }
    let pdu = current.payload
    guard current.stream == .client || current.stream == .values, groups.accuse(link),
      let request = script.links[link].death?.step, let packet = script.steps[request].packets.last
    else { return result.pass(.deadBearer, at: number) }
    diverge(
      pdu, nil, current.stream ?? .client, link, isCompared: true,
      cause: .bearerDead(since: script.packets[packet].number))
  }
  /// The application changes its services.
  private mutating func apply(_ change: RebuiltDatabase.Change) {
    result.use(.servicesChanged, at: number)
    for link in live.keys { live[link]?.changes.forgetTheirs() }
    for handle in change.removed {
      do throws(DatabaseError) {
        try core.remove(service: AttributeHandle(rawValue: handle), andIncludes: true)
      } catch {}
    }
    do throws(DatabaseError) { try core.insert(change.inserted) } catch {}
    pump()
  }
  var number: Int {
    guard step < script.steps.count, let packet = script.steps[step].packets.last else { return 0 }
    return script.packets[packet].number
  }
  /// Moves the clock to the recorded time, through the core's deadlines.
  private mutating func advance(to time: Int64) {
    let elapsed = max(0, time.subtractingReportingOverflow(start).partialValue)
    let target = Instant(nanoseconds: 1_000_000_000 + UInt64(elapsed))
    var left = Self.mostDeadlines
    while let deadline = core.deadline, deadline <= target, left > 0 {
      now = max(now, deadline)
      core.expire(now: now)
      pump()
      left -= 1
    }
    now = max(now, target)
  }

  /// Takes everything that the core has to say, and answers its commands.
  mutating func pump() {
    var left = Self.mostPackets
    while left > 0 {
      left -= 1
      while let effect = core.nextEffect() { take(effect) }
      guard packet.fill({ core.nextPacket(into: &$0, now: now) }) else {
        if core.hasEffect { continue }
        guard let link = confirmations.popLast() else { return }
        return confirm(on: link)
      }
      let octets = packet.bytes
      if octets.first == HCIPacketType.command.rawValue {
        keep(command: octets)
        let answer = controller.answer(octets)
        core.receive(answer.span, now: now)
      } else if octets.first == HCIPacketType.acl.rawValue {
        let record = ReplayPacket(number: 1, direction: .fromHost, octets: octets).record
        dissector.receive(record, octets.span, into: &joiner)
        keepFrames()
        // Number Of Completed Packets. Vol 4, Part E, §7.7.19.
        let completed: [UInt8] = [4, 0x13, 5, 1] + (octets.little16(1) & 0x0FFF).littleOctets + [1, 0]
        core.receive(completed.span, now: now)
      }
    }
  }
  /// The peer confirms our host's indication.
  mutating func confirm(on link: Int) { feed([HandleValueConfirmation.opcode.rawValue], on: .attribute, of: link) }
  private mutating func keepFrames() {
    for frame in joiner.frames {
      guard let link = live.first(where: { script.links[$0.key].handle == frame.handle })?.key,
        let stream = ReplayStream(frame.channel, frame.payload)
      else { continue }
      if stream == .security {
        live[link]?.pairing.peer?.noteOurs(frame.payload)
        if frame.payload.code == PairingRequest.code { live[link]?.pairing.request = frame.payload }
        if frame.payload.code == PairingResponse.code { live[link]?.pairing.response = frame.payload }
      }
      keep(Sent(stream: stream, pdu: frame.payload, at: now), link)
    }
    joiner.frames = []
  }
  /// Keeps a PDU until a recorded one is compared with it. The recorded host has not sent the oldest of too many.
  private mutating func keep(_ sent: Sent, _ link: Int) {
    if sent.stream == .values, isServiceChange(sent.pdu), live[link]?.changes.hasTheirs(covering: sent.pdu) == true {
      // The recorded host has indicated it already, and the peer has confirmed it.
      result.use(.serviceChangedTime, at: number)
      confirmations.append(link)
      return
    }
    live[link]?.sent.append(sent)
    guard let waiting = live[link]?.sent.count, waiting > Self.mostWaiting, let oldest = live[link]?.sent.removeFirst()
    else { return }
    diverge(nil, oldest.pdu, oldest.stream, link)
  }
  private mutating func keep(command: [UInt8]) {
    guard let handle = (try? AnyCommand(command.span))?.comparedLink,
      let link = live.keys.first(where: { script.links[$0].handle == handle.rawValue })
    else { return }
    keep(Sent(stream: .commands, pdu: command, at: now), link)
  }
  /// Feeds the packets of the current step.
  mutating func feed() {
    for index in script.steps[step].packets {
      let octets = script.packets[index].octets
      core.receive(octets.span, now: now)
      pump()
    }
  }
  /// Feeds a PDU that the trace does not have.
  mutating func feed(_ pdu: [UInt8], on channel: ChannelID, of link: Int) {
    let count = UInt16(clamping: pdu.count)
    var octets: [UInt8] = [2] + (script.links[link].handle | 0x2000).littleOctets
    octets += (count &+ 4).littleOctets + count.littleOctets + channel.rawValue.littleOctets + pdu
    core.receive(octets.span, now: now)
    pump()
  }
  mutating func newID() -> RequestID {
    lastRequest += 1
    return RequestID(rawValue: lastRequest)
  }

  // MARK: Links

  /// Brings a link up: from its event, or, where the trace begins later, from one of ours.
  private mutating func open(_ link: Int) {
    let script = script.links[link]
    // The trace lacks the end of the link that had this handle.
    for other in live.keys.sorted() where self.script.links[other].handle == script.handle { close(other) }
    var peer = PeerAddress(DeviceAddress(0xC0DE_0000_0000 | UInt64(link & 0xFFFF)), .random)
    var event: [UInt8] = []
    if let begin = script.begin, begin == step {
      event = self.script.packets[self.script.steps[step].packets[0]].octets
      guard event.count >= 14 else { return }
      let address = (0..<6).reduce(UInt64(0)) { $0 | UInt64(event[9 + $1]) << UInt64(8 * $1) }
      peer = PeerAddress(DeviceAddress(address), AddressType(rawValue: event[8]))
    } else {
      guard script.begin == nil else { return }
      result.use(.connectionBefore, at: number)
      // LE Connection Complete: interval 30 ms, latency 0, supervision time-out 5 s. Vol 4, Part E, §7.7.65.1.
      event = [4, 0x3E, 19, 1, 0] + script.handle.littleOctets + [script.role == .peripheral ? 1 : 0, 1]
      event += (0..<6).map { UInt8(truncatingIfNeeded: peer.address.value >> (8 * $0)) }
      event += [24, 0, 0, 0, 0xF4, 1, 0]
    }
    if script.role != .peripheral {
      // The application wants this connection.
      core.connect(to: peer, id: newID(), now: now)
      pump()
    }
    if script.begin != nil { giveKeysBefore(link, to: PeerAddress(peer.address, peer.isRandom ? .random : .public)) }
    rising = link
    core.receive(event.span, now: now)
    pump()
    rising = nil
    guard script.begin == nil, let id = live[link]?.id, self.script.mtuBefore(link) > 23 else { return }
    // One of the two has exchanged the MTU before the trace.
    let mtu = self.script.mtuBefore(link).littleOctets
    if script.role == .peripheral || self.script.firstExchange(on: link, of: .fromHost) != nil {
      feed([ExchangeMTURequest.opcode.rawValue] + mtu, on: .attribute, of: link)
      take(.server, link)
    } else {
      core.exchangeMTU(on: id)
      pump()
      take(.client, link)
      feed([ExchangeMTUResponse.opcode.rawValue] + mtu, on: .attribute, of: link)
    }
  }
  /// What is left when a link ends.
  private mutating func close(_ link: Int) {
    guard let state = live[link] else { return }
    // Our Central would have sent its MTU when the link came up.
    if !state.hasAsked, script.links[link].begin != nil, result.links[link].role == .central {
      result.use(.mtuExchange, at: number)
    }
    // A client that has subscribed to Service Changed must get it. Vol 3, Part G, §7.1.
    for change in state.changes.ours { diverge(nil, change, .values, link) }
    let isDead = script.isDead(link, at: step)
    for sent in state.sent {
      switch sent.stream {
      case _ where isDead: result.use(.deadBearer, at: number)
      case .client where Self.isDiscovery(sent.pdu.opcode): result.use(.discovery, at: number)
      // Our host ended the link, or protected it, by itself.
      case .commands where sent.pdu.commandOpcode == Disconnect.opcode:
        diverge(nil, sent.pdu, .commands, link)
      // A pairing waits for nothing but the peer and the user, who has answered.
      case .security
      where sent.pdu.code != PairingFailed.code && now.nanoseconds &- sent.at.nanoseconds >= Self.promptness:
        diverge(nil, sent.pdu, .security, link)
      case .values where isServiceChange(sent.pdu):
        diverge(nil, sent.pdu, .values, link)
      default: result.use(.endOfLink, at: number)
      }
    }
    // Disconnection Complete, if the trace has none. Vol 4, Part E, §7.7.5.
    let ended: [UInt8] = [4, 5, 4, 0] + script.links[link].handle.littleOctets + [0x13]
    core.receive(ended.span, now: now)
    pump()
    live[link] = nil
  }
  private mutating func playEvent(_ current: ReplayStep, _ link: Int) {
    let octets = script.packets[current.packets[0]].octets
    if script.links[link].begin == step { return }
    switch try? HCIEvent(octets.span) {
    case .disconnectionComplete:
      if live[link] != nil { close(link) }
      return
    case .leLongTermKeyRequest: prepareKey(on: link, octets)
    default: break
    }
    feed()
  }

  // MARK: Comparing

  private mutating func playHost(_ current: ReplayStep) {
    guard let link = current.link, let stream = current.stream else { return }
    // Its request was kept from our host.
    if skipped.contains(step) { return permit(.optionalRequest, stream, link) }
    guard live[link] != nil else { return diverge(current.payload, nil, stream, link, isCompared: true) }
    switch stream {
    case .client: playClient(current.payload, link)
    case .values: playValue(current.payload, link)
    case .security: playSecurity(current.payload, link)
    case .signaling where Self.isRequest(current.payload): result.pass(.noCall, at: number)
    case .server, .confirmations, .signaling, .commands: compare(current.payload, stream, link)
    }
  }
  private mutating func playPeer(_ current: ReplayStep) {
    guard let link = current.link, live[link] != nil, !skipped.contains(step) else { return }
    switch current.stream {
    case .client where refusesOptional(current):
      if let partner = current.partner { skipped.insert(partner) }
      return
    case .client:
      prepareValues(for: current, link)
      playRequest(current, link)
      return answerUnrecordedRequests(link)
    case .security:
      guard let pdu = peersPDU(current.payload, link) else { return }
      if pdu != current.payload {
        feed(pdu, on: .securityManager, of: link)
        return answerUnrecordedRequests(link)
      }
    case .server where isDemand(current.payload): prepareForDemand(link)
    // Answers to what our host has not asked.
    case .signaling where Self.answersOurs(current.payload): return
    case .server, .values, .confirmations, .signaling, .commands, nil: break
    }
    feed()
    answerUnrecordedRequests(link)
  }

  /// A server has refused a request for lack of security. Vol 3, Part C, §10.3.2.
  func isDemand(_ pdu: [UInt8]) -> Bool {
    guard case .errorResponse(let error)? = try? ATTPDU(pdu.span) else { return false }
    return [.insufficientAuthentication, .encryptionKeySizeTooShort, .insufficientEncryption].contains(error.errorCode)
  }

  /// The first PDU of a stream that has not been compared.
  func front(_ stream: ReplayStream, _ link: Int) -> [UInt8]? { live[link]?.sent.first { $0.stream == stream }?.pdu }
  /// Takes it.
  @discardableResult mutating func take(_ stream: ReplayStream, _ link: Int) -> [UInt8]? {
    guard let index = live[link]?.sent.firstIndex(where: { $0.stream == stream }) else { return nil }
    return live[link]?.sent.remove(at: index).pdu
  }

  /// Compares a recorded PDU of the host with the next of ours.
  mutating func compare(_ recorded: [UInt8], _ stream: ReplayStream, _ link: Int) {
    result.links[link].compared[stream, default: 0] += 1
    let position = live[link]?.sent.firstIndex { $0.stream == stream }
    guard let ours = take(stream, link) else { return diverge(recorded, nil, stream, link) }
    if let position, position > 0 { result.use(.order, at: number) }
    if ours != recorded {
      guard let freedom = freedom(recorded, ours, stream, link) else { return diverge(recorded, ours, stream, link) }
      result.use(freedom, at: number)
    }
    countEqual(stream, link)
  }
  /// A recorded PDU that ours does not send, and need not.
  mutating func permit(_ freedom: ReplayFreedom, _ stream: ReplayStream, _ link: Int) {
    result.use(freedom, at: number)
    result.links[link].compared[stream, default: 0] += 1
    result.links[link].equal[stream, default: 0] += 1
  }
  /// A PDU that `compare` has not counted is equal, or differs as a freedom permits.
  mutating func countEqual(_ stream: ReplayStream, _ link: Int) {
    groups.agreed(in: stream, on: link)
    result.links[link].equal[stream, default: 0] += 1
  }
  mutating func diverge(
    _ recorded: [UInt8]?, _ ours: [UInt8]?, _ stream: ReplayStream, _ link: Int, isCompared: Bool = false,
    cause: ReplayDivergence.Cause? = nil
  ) {
    if isCompared { result.links[link].compared[stream, default: 0] += 1 }
    var cause = cause ?? (recorded == nil ? .extra : ours == nil ? .missing : .different)
    if cause == .missing, stream != .commands {
      // Our host has ended the link: that is the divergence from which this one follows.
      if let command = front(.commands, link), command.commandOpcode == Disconnect.opcode {
        take(.commands, link)
        diverge(nil, command, .commands, link)
        live[link]?.hasEndedAlone = true
      }
      if live[link]?.hasEndedAlone == true { cause = .linkEnded }
    }
    let place = groups.place(stream, recorded, ours, on: link, with: live[link]?.peer)
    result.groupCount = groups.count
    result.links[link].divergences += 1
    result.divergences.append(
      ReplayDivergence(
        number: number, adapter: adapter, handle: script.links[link].handle, role: result.links[link].role,
        stream: stream, recorded: recorded, ours: ours, cause: cause, group: place.group, isFirst: place.isFirst))
  }
  /// A pairing with the peer of the link has succeeded.
  mutating func agreed(with peer: PeerID) { groups.paired(with: peer) }
  private static func isMTUExchange(_ opcode: ATTOpcode) -> Bool {
    opcode == ExchangeMTURequest.opcode || opcode == ExchangeMTUResponse.opcode
  }
  /// A response to a request for channels that opens none: Vol 3, Part A, §4.23, §4.26.
  private static func refusesChannels(_ signal: [UInt8]) -> Bool {
    switch try? AnySignal(signal.span) {
    case .leCreditBasedConnectionResponse(let response): response.result != .success
    case .creditBasedConnectionResponse(let response): response.result != .success
    default: false
    }
  }
  /// A request that an application's call causes.
  private static func isRequest(_ signal: [UInt8]) -> Bool {
    let codes = [
      ConnectionParameterUpdateRequest.code, LECreditBasedConnectionRequest.code, CreditBasedConnectionRequest.code,
    ]
    return codes.contains { $0.rawValue == signal.first }
  }
  private static func answersOurs(_ signal: [UInt8]) -> Bool {
    [ConnectionParameterUpdateResponse.code, CommandRejectResponse.code].contains { $0.rawValue == signal.first }
  }
  /// A request that is not understood: Vol 3, Part A, §4.1.
  private static func rejects(_ signal: [UInt8]) -> Bool {
    if case .commandRejectResponse(let reject)? = try? AnySignal(signal.span) {
      reject.reason == .commandNotUnderstood
    } else {
      false
    }
  }
  /// What permits two PDUs to differ.
  private func freedom(
    _ recorded: [UInt8], _ ours: [UInt8], _ stream: ReplayStream, _ link: Int
  ) -> ReplayFreedom? {
    if stream == .server {
      if isBeginning(recorded, of: ours) { return .entries }
      if differInForm(recorded, ours, link) { return .uuidForm }
      if isNotLong(recorded, ours, link) { return .optionalRequest }
      if differInErrorHandle(recorded, ours) { return .errorHandle }
    }
    if stream == .signaling, Self.refusesChannels(ours), recorded.dropFirst().first == ours[1],
      Self.refusesChannels(recorded) || Self.rejects(recorded)
    {
      return .channelRefusal
    }
    guard recorded.first == ours.first, recorded.count == ours.count else { return nil }
    switch stream {
    // The signature of a key that the trace does not show; the counter is compared. Vol 3, Part H, §2.4.5.
    case .client where recorded.opcode == SignedWriteCommand.opcode && recorded.dropLast(8) == ours.dropLast(8):
      return live[link].map { guessed.contains($0.peer) } == true ? .randomValues : nil
    case .client where continuesBehindValue(recorded, ours, link): return .discovery
    // A host with several limits shows one of them in each exchange. Vol 3, Part F, §3.4.2.
    case .client, .server: return Self.isMTUExchange(recorded.opcode) ? .parameters : nil
    case .security: return securityFreedom(recorded, ours, link)
    // Connection Parameter Update Response, same identifier and length: the result. Vol 3, Part A, §4.21.
    case .signaling:
      return recorded[0] == ConnectionParameterUpdateResponse.code.rawValue && recorded.count == 6
        && recorded[1] == ours[1] ? .parameters : nil
    case .commands: return commandFreedom(recorded, ours, link)
    case .values: return coversServiceChange(recorded, ours) ? .servicesChanged : nil
    case .confirmations: return nil
    }
  }

  /// Two answers of a server to the request before, one with a short UUID in its long form.
  private func differInForm(_ recorded: [UInt8], _ ours: [UInt8], _ link: Int) -> Bool {
    guard let partner = script.steps[step].partner else { return false }
    let request = script.steps[partner].payload, isDeclaration = declarations.contains(request.little16(1))
    guard let one = UUIDForms.answer(recorded, to: request, isDeclaration: isDeclaration),
      let other = UUIDForms.answer(ours, to: request, isDeclaration: isDeclaration)
    else { return false }
    return UUIDForms.differInForm(one, other)
  }

  // MARK: Effects

  private mutating func take(_ effect: HostEffect) {
    switch effect {
    case .linkUp(let id, let peer, _, _): if let rising { live[rising] = Live(id: id, peer: peer) }
    case .readRequested(let id, let link, _, let offset): answerRead(id, link, offset)
    case .writeRequested(let id, let link, let handle, _, _, let following):
      if following == 0 { answerWrite(id, link, handle) }
    case .pairingAsked(let link, let question): ask(question, link)
    case .pairingEnded(let link, let error): pairingEnded(link, error)
    case .started, .startFailed, .controllerFailed, .scanStarted, .scanFailed, .discovered, .scanStopped,
      .advertisingStarted, .advertisingFailed, .advertisingStopped, .peerIdentified, .linkDown, .parametersChanged,
      .dataLengthChanged, .physChanged, .mtuChanged, .bearersChanged, .securityChanged, .bondChanged, .bondRemoved,
      .encryptionFailed, .completed, .value, .servicesChanged, .rediscovered, .subscriptionChanged, .written,
      .requestCancelled, .readyToSend, .indicationConfirmed, .violation:
      break
    // Our host neither listens nor asks for one.
    case .channelOpened, .channelReceived, .channelReady, .channelClosed: break
    }
  }
  /// The place of a link in the script.
  func place(of id: LinkID) -> Int? { live.first { $0.value.id == id }?.key }
}

/// Takes the frames of our host.
private struct FrameJoiner: TraceSink {
  var frames: [(handle: UInt16, channel: ChannelID, payload: [UInt8])] = []
  mutating func record(_ record: CaptureRecord, _ bytes: Span<UInt8>) {}
  mutating func frame(_ frame: TraceFrame, _ payload: Span<UInt8>, of record: CaptureRecord) {
    frames.append((UInt16(truncatingIfNeeded: frame.connection), frame.channel, payload.array))
  }
  mutating func violation(
    _ violation: L2CAPViolation, _ handle: ConnectionHandle, _ direction: HCIDirection?, of record: CaptureRecord
  ) {}
}

/// The address of the recorded host, from its commands and its controller's answer.
struct OwnAddress {
  var publicAddress = DeviceAddress()
  /// The one in use, where the host does not use the public one.
  var randomAddress: DeviceAddress?
  /// The trace shows it.
  var isKnown: Bool { publicAddress.value != 0 || randomAddress != nil }
  /// All that the trace shows, also private ones and those of advertising sets.
  private(set) var all: [PeerAddress] = []
  private static var most: Int { 64 }

  init(_ script: Script) {
    var random: DeviceAddress?, usesRandom = false
    for packet in script.packets {
      let octets = packet.octets
      switch octets.first.flatMap({ HCIPacketType(rawValue: $0) }) {
      case .command:
        switch try? AnyCommand(octets.span) {
        case .leSetRandomAddress(let command):
          random = random ?? command.randomAddress
          add(PeerAddress(command.randomAddress, .random))
        case .leSetAdvertisingSetRandomAddress(let command): add(PeerAddress(command.randomAddress, .random))
        case .leSetAdvertisingParameters(let command): usesRandom = usesRandom || command.ownAddressType.isRandom
        case .leSetExtendedAdvertisingParameters(let command):
          usesRandom = usesRandom || command.ownAddressType.isRandom
        case .leCreateConnection(let command): usesRandom = usesRandom || command.ownAddressType.isRandom
        case .leExtendedCreateConnection(let command): usesRandom = usesRandom || command.ownAddressType.isRandom
        default: break
        }
      case .event:
        switch try? HCIEvent(octets.span) {
        case .commandComplete(let event) where event.commandOpcode == ReadBDADDR.opcode:
          guard let answer = try? ReadBDADDR.decodeReturn(event.returnParameters, in: octets.span) else { break }
          publicAddress = answer.bdADDR
          add(PeerAddress(publicAddress, .public))
        case .leEnhancedConnectionComplete(let event):
          add(PeerAddress(event.localResolvablePrivateAddress, .random))
        default: break
        }
      case .acl, .synchronous, .iso, nil: break
      }
    }
    let hasPublic = publicAddress.isValidPublic
    if !hasPublic { publicAddress = DeviceAddress() }
    if let random, usesRandom || !hasPublic {
      randomAddress = random
      publicAddress = DeviceAddress()
    }
  }
  private mutating func add(_ address: PeerAddress) {
    if address.address.value != 0, all.count < Self.most, !all.contains(address) { all.append(address) }
  }
}
extension OwnAddressType {
  /// The random address, or a resolvable one with it in its place.
  fileprivate var isRandom: Bool { self == .random || self == .resolvableOrRandom }
}
