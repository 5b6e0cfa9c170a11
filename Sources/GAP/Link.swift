import BindruneATT
import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// What a function of the host remembers of a link while it changes other parts of the host.
struct LinkFacts: BitwiseCopyable {
  let id: LinkID
  let handle: ConnectionHandle
  let role: LinkRole
  let peer: PeerID
  /// The peer may reveal another one later: see `Link.address`.
  let address: PeerAddress
}

/// One link and everything that exists for its lifetime. What concerns one link alone is a method of it: Decision 0064.
struct Link: ~Copyable {
  enum Phase: BitwiseCopyable { case up, disconnecting }
  let id: LinkID
  let handle: ConnectionHandle
  let role: LinkRole
  let peer: PeerID
  /// The peer's identity address, if that is known; else the address with which the link came up.
  var address: PeerAddress
  /// The addresses with which the link came up: the peer's and ours, which may be that of an advertising set.
  let peerOnAir: PeerAddress
  var ownOnAir: PeerAddress
  var parameters: ConnectionParameters
  var phase = Phase.up
  var bearers: LinkBearers
  /// One client, for all bearers. `LinkProtection` secures the link for its requests.
  var client = Client(configuration: .repeating)
  var dataLength = LinkDataLength()
  var phys = LinkPHYs()
  /// The peer's, since a request has read them.
  var features: RemoteFeatures?
  var disconnectRequests: [RequestID] = []
  var requests = LinkRequests()
  var streams = LinkStreams()
  /// See `HostConfiguration.exchangesMTU`.
  var exchangesMTU = true
  var enhancedBearers = EnhancedBearers()
  var procedures = LinkProcedures()
  /// As peripheral: the link layer's procedure for parameter requests is unavailable.
  var asksOverL2CAP = false
  var protection: LinkProtection
  /// The last notification's handle, unless it is Service Changed's; 0x0000 after any other event on the link. Asking
  /// the client about each notification would cost 130 instructions.
  var plainHandle = AttributeHandle()

  var facts: LinkFacts { LinkFacts(id: id, handle: handle, role: role, peer: peer, address: address) }
  var isUp: Bool { phase == .up }

  /// When `expire` must act.
  @inline(__always) var deadline: Instant? {
    .earliest(.earliest(bearers.deadline, procedures.deadline), protection.deadline)
  }
  /// The channels of the bearers that have closed because the peer was too slow.
  mutating func expire(now: Instant, server: inout Server) -> [ChannelID] {
    var closed: [ChannelID] = []
    bearers.forEach {
      guard $0.bearer.closure == nil else { return }
      $0.bearer.expire(now: now, server: &server, client: &client)
      if $0.bearer.closure != nil { closed.append($0.channel) }
    }
    return closed
  }
  /// Closes the bearer of a channel that has ended. Returns its number; nil if the channel carries none.
  mutating func closeBearer(on channel: ChannelID) -> BearerID? {
    guard let place = bearers.place(of: channel) else { return nil }
    return bearers.with(place) {
      $0.bearer.close(client: &client)
      return $0.bearer.id
    }
  }
  mutating func close() { bearers.forEach { $0.bearer.close(client: &client) } }

  // MARK: Up and down

  /// The link came up over an advertising set with this address, before the first PDU of a pairing.
  mutating func cameUp(from own: PeerAddress) {
    guard role == .peripheral, own != ownOnAir else { return }
    ownOnAir = own
    protection.manager.addresses.responder = PairingAddress(own)
  }
  /// `id` awaits the end. Returns the handle for the command; nil: it has been sent.
  mutating func beginDisconnecting(for id: RequestID?) -> ConnectionHandle? {
    if let id { disconnectRequests.append(id) }
    guard phase == .up else { return nil }
    phase = .disconnecting
    return handle
  }
  /// The controller has refused to disconnect the link. Returns the requests that have awaited it.
  mutating func resume() -> [RequestID] {
    defer { disconnectRequests = [] }
    phase = .up
    return disconnectRequests
  }
  /// The peer has this identity address. Returns what was known of it before.
  mutating func identify(as identity: PeerAddress) -> LinkFacts {
    defer { address = identity }
    return facts
  }
  /// All that await a report of the controllers; for the end of the link.
  mutating func takeRequests() -> [RequestID] {
    defer { requests = LinkRequests() }
    let update = procedures.endParameterUpdate()?.id
    return (update.map { [$0] } ?? []) + requests.all + procedures.takeRequests() + streams.takeRequests()
  }
  /// True if `id` awaited a disconnection or a report of the controllers. What they do continues without it. A request
  /// of the client ends with an effect of the client.
  mutating func cancel(_ id: RequestID) -> Bool {
    if let place = disconnectRequests.firstIndex(of: id) {
      disconnectRequests.remove(at: place)
      return true
    }
    if procedures.cancel(id) || requests.remove(id) { return true }
    client.cancel(id)
    return false
  }

  // MARK: Client

  /// Has `body` make requests, with the security that they need. The central has asked for the MTU exchange when the link
  /// came up; on a link that the peer made, the exchange precedes the first request.
  @inline(__always) mutating func withClient(isHeld: Bool, _ body: (inout Client) -> Void) {
    if role == .peripheral, exchangesMTU { bearers.forEach { $0.bearer.exchangeMTUUnlessPeerHas() } }
    makeRequests(isHeld: isHeld)
    body(&client)
    demandSecurity()
  }
  /// The client's next requests use one bearer, after the commands that it has accepted. `isHeld`: after further
  /// commands, and they wait for `release`.
  mutating func makeRequests(isHeld: Bool) {
    bearers.with(for: .request) {
      client.makeRequests(on: $0.bearer.id, after: isHeld ? nil : $0.bearer.commandsTaken)
    }
  }
  /// The held request's bearer has accepted all commands that precede it.
  mutating func release(_ id: RequestID) {
    bearers.forEach { client.place(id, on: $0.bearer.id, after: $0.bearer.commandsTaken) }
  }
  /// The request of the client that awaits a response; nil for the client's own.
  var requestInFlight: RequestID? { client.requestInFlight(on: bearers.read(for: .request) { $0.bearer.id }) }
  /// See `AttributeClient.holdsCommands`.
  @inline(__always) var holdsCommands: Bool {
    client.holdsCommands(on: bearers.read(for: .command) { $0.bearer.id })
  }
  mutating func offer(command handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    bearers.with(for: .command) { $0.bearer.offer(command: handle, value, client: client) }
  }
  /// A signature proves on its own who has written: it does not await encryption.
  mutating func offer(signed handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    let awaitsEncryption = client.awaitsEncryption
    client.awaitsEncryption = false
    defer { client.awaitsEncryption = awaitsEncryption }
    return bearers.with(for: .command) { $0.bearer.offer(signed: handle, value, client: client) }
  }
  var signedWriteForm: SignedWriteForm {
    SignedWriteForm(
      isEncrypted: protection.security.key != nil, mtu: mtu(for: .command),
      longestValue: bearers.read(for: .command) { $0.bearer.longestValue })
  }
  /// Requests may have ended: see `Bearer.releaseCommands`.
  mutating func releaseCommands() { bearers.forEach { $0.bearer.releaseCommands(client: client) } }
  /// The client or a bearer has an effect.
  @inline(__always) var hasEffect: Bool {
    client.hasEffect || protection.manager.hasEffect || bearers.contains { $0.bearer.hasEffect }
  }

  // MARK: Bearers

  /// Sends our MTU to the peer on the bearer that has an exchange.
  mutating func exchangeMTU() { bearers.forEach { $0.bearer.exchangeMTU() } }
  /// The ATT_MTU of the bearer that `purpose` uses now.
  func mtu(for purpose: LinkBearers.Purpose) -> Int { bearers.read(for: purpose) { $0.bearer.mtu } }
  /// Nothing on the bearer that `purpose` uses prevents a value from being written at once.
  @inline(__always) func isQuiet(for purpose: LinkBearers.Purpose) -> Bool {
    bearers.read(for: purpose) { $0.bearer.isQuiet(client: client) }
  }
  @inline(__always) mutating func offer(notification handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    bearers.with(for: .notification) { $0.bearer.offer(notification: handle, value) }
  }

  // MARK: Server

  /// Notifies `values`: as `tuples`, if there are two or more of them, else each alone.
  mutating func send(
    _ tuples: [UInt8], _ values: ArraySlice<(handle: AttributeHandle, value: [UInt8])>, _ worst: SendAnswer
  ) -> SendAnswer {
    if values.count > 1, !tuples.isEmpty {
      return worst.worse(bearers.with(for: .notification) { $0.bearer.offer(multiple: tuples.span) })
    }
    return values.reduce(worst) { $0.worse(offer(notification: $1.handle, $1.value.span)) }
  }
  mutating func indicate(_ handle: AttributeHandle, _ value: Span<UInt8>) -> SendAnswer {
    bearers.with(for: .indication) { $0.indicate(handle, value) }
  }
  /// Another service may take these handles: drops their values. Adds the link to `unindicated` for each indication of
  /// the application that was dropped, and returns it if another one had been refused before.
  mutating func removeValues(in range: HandleRange, unindicated: inout [LinkID]) -> LinkID? {
    var isReady = false
    bearers.forEach {
      guard $0.removeValues(in: range) else { return }
      unindicated.append(id)
      if $0.isIndicationRefused { isReady = true }
      $0.isIndicationRefused = false
    }
    return isReady ? id : nil
  }
  /// Sends Service Changed as soon as a bearer has no other indication outstanding. Vol 3, Part G, §2.5.2.1.
  mutating func indicateServiceChanged(from server: inout Server) {
    bearers.visit {
      guard $0.bearer.canIndicate, let change = server.takeServiceChanged(on: $0.bearer.id) else { return false }
      _ = $0.bearer.indicate(change.handle, change.value.span)
      return true
    }
  }

  // MARK: Security

  enum SecurityProgress: BitwiseCopyable {
    case nothing
    /// The controllers encrypt the link with the bond's key, and nothing else is in progress.
    case encryptionWithBond
    case pairing
  }
  var securityProgress: SecurityProgress {
    if protection.delivery != nil || !protection.manager.isIdle { return .pairing }
    guard case .encryption(_, let source)? = procedures[.encryption] else { return .nothing }
    return source == .bond ? .encryptionWithBond : .pairing
  }
  var isSecurityIdle: Bool { securityProgress == .nothing }
  /// Neither a pairing nor an encryption is in progress, and one may begin.
  var maySecure: Bool { isSecurityIdle && isUp }
  /// The client has something to send over a link that must be encrypted first: `HostCore.secure` encrypts it, at once
  /// if nothing is in progress.
  mutating func demandSecurity() {
    guard client.awaitsEncryption, protection.refusal == nil, maySecure else { return }
    protection.refusal = .insufficientEncryption
  }
  /// Central: pairs; Peripheral: requests security. Returns why not.
  mutating func beginPairing(_ settings: PairingSettings, now: Instant) -> HostFailure? {
    protection.manager.settings = settings
    do throws(PairingRefusal) {
      if role == .central {
        try protection.manager.pair(now: now)
      } else {
        try protection.manager.requestSecurity(now: now)
      }
      return nil
    } catch {
      return error == .busy ? .busy : .pairingRefused(error)
    }
  }
  /// What has secured the link for requests of the client and for channels has ended.
  mutating func securityEnded(isSecured: Bool) {
    client.securityEnded(isSecured: isSecured)
    streams.securityEnded(isSecured: isSecured)
  }
  /// Ends the requests that have awaited the pairing, Security Request or encryption in progress; nil: the link is
  /// secured.
  mutating func securityEnded(_ failure: HostFailure?, into batch: inout HostBatch) {
    let result: HostResult = failure.map { .failed($0) } ?? .secured(protection.security)
    for id in protection.takeRequests() { batch.append(.completed(id, result)) }
    securityEnded(isSecured: failure == nil)
  }
  /// The controllers report that the link is encrypted now, or is not. Nil: with no key of ours, so what they mean is
  /// unknown.
  mutating func encryptionChanged(to isEncrypted: Bool) -> (isNew: Bool, provesBond: Bool)? {
    let before = protection.security
    var provesBond = false
    if !isEncrypted {
      protection.security.key = nil
    } else if case .encryption(let strength, let source)? = procedures[.encryption] {
      protection.security.key = strength
      provesBond = source == .bond
    } else {
      return nil
    }
    return (protection.security != before, provesBond)
  }
  enum EncryptionEnd: BitwiseCopyable {
    /// During a pairing, which goes on and ends by itself; or none was in progress.
    case ofPairing
    /// With the bond's key. `isIdle`: nor is a Security Request of ours in progress.
    case ofBond(isIdle: Bool)
  }
  /// The encryption in progress has ended.
  mutating func encryptionEnded(
    isEncrypted: Bool, now: Instant, using chance: inout HostChance
  ) -> EncryptionEnd {
    let wasPairing = protection.manager.isPairing, source = procedures.endEncryption()
    protection.manager.encryptionChanged(isEncrypted: isEncrypted, now: now, using: &chance)
    return source == .bond && !wasPairing ? .ofBond(isIdle: protection.manager.isIdle) : .ofPairing
  }
  /// The link has ended, and with it the encryption and the pairing in progress: with whose key, whether a pairing had
  /// only to be delivered, and what to remember of the peer's attempts to pair.
  mutating func closeProtection(
    now: Instant
  ) -> (source: LinkProcedure.KeySource?, hadDelivery: Bool, attempts: PairingAttempts) {
    let source = procedures.endEncryption(), hadDelivery = protection.close(now: now)
    return (source, hadDelivery, protection.manager.attempts)
  }
  /// The link is not encrypted, and can be with the bond's key.
  func awaitsEncryption(with bond: Bond) -> Bool {
    protection.security.key == nil && (role == .central ? bond.peers : bond.ours).longTermKey != nil
  }
  // MARK: Parameters

  /// The parameters in force are among those that are wanted.
  func meets(_ wanted: ConnectionParameterUpdateRequest) -> Bool {
    wanted.intervalMin <= parameters.interval && parameters.interval <= wanted.intervalMax
      && wanted.latency == parameters.latency && wanted.timeout == parameters.supervisionTimeout
  }
  /// The peer's request does not disturb an update in progress: there is none, or it is the central's answer to our
  /// own.
  func permits(_ request: ConnectionParameterUpdateRequest) -> Bool {
    procedures.parameterUpdate?.permits(request) ?? true
  }
  /// The same for a request over L2CAP. The peer may replace its own: no request of ours would take the wrong end for
  /// its own.
  var permitsRequestOverL2CAP: Bool {
    procedures.parameterUpdate.map { $0.way == .peers } ?? true
  }
  /// We accept the peer's request. It is a procedure if an event will end it: a peripheral gets none if nothing changes
  /// (Vol 4, Part E, §7.7.65.3).
  mutating func accept(_ request: ConnectionParameterUpdateRequest, now: Instant) {
    guard procedures.parameterUpdate == nil, role == .central || !meets(request) else { return }
    procedures.begin(.parameterUpdate(ParameterUpdate(id: nil, wanted: request, way: .peers)), now: now)
  }

  /// Our controller has refused the update, and will refuse others: a peripheral asks the central's host from now on.
  /// Nil: there was none.
  mutating func updateRefused() -> (continues: Bool, id: RequestID?, wanted: ConnectionParameterUpdateRequest)? {
    guard let update = procedures.parameterUpdate, update.way == .linkLayer else { return nil }
    if role == .peripheral { asksOverL2CAP = true }
    return (role == .peripheral, update.id, update.wanted)
  }
  /// The central has agreed to our update. True: its parameters came into force before the answer, or were in force
  /// already, and no event follows.
  mutating func updateGranted(now: Instant) -> Bool {
    guard var update = procedures.parameterUpdate else { return false }
    update.way = .granted
    procedures.begin(.parameterUpdate(update), now: now)
    return meets(update.wanted)
  }

  // MARK: In force

  mutating func use(_ parameters: ConnectionParameters) -> LinkID {
    self.parameters = parameters
    return id
  }
  mutating func use(_ length: LinkDataLength) -> LinkID {
    dataLength = length
    return id
  }
  /// Returns the link's number if the modulations are new.
  mutating func use(_ phys: LinkPHYs) -> LinkID? {
    if phys == self.phys { return nil }
    self.phys = phys
    return id
  }

  // MARK: What others learn

  /// Tells GATT's server and client what protects the link.
  mutating func tellSecurity(to server: inout Server, awaitsEncryption: Bool) {
    let security = protection.security
    server.setSecurity(security.bearer, keySize: security.key?.size.count ?? 16, of: bearers.client)
    if client.awaitsEncryption != awaitsEncryption { client.awaitsEncryption = awaitsEncryption }
  }
  /// The peer has encrypted the link with the bond's key, or has just made it: it is the bonded device.
  func hasProven(_ bond: Bond) -> Bool { bond.peer == peer && protection.hasProvenBond }
  /// The bearer whose client GATT's server is to know as the bonded one.
  mutating func restoreClient() -> BearerID {
    protection.isClientRestored = true
    return bearers.client
  }
  /// Nil if GATT's server knows it.
  mutating func restoreClientOnce() -> BearerID? { protection.isClientRestored ? nil : restoreClient() }
}

extension ClientConfiguration {
  fileprivate static var repeating: ClientConfiguration {
    var configuration = ClientConfiguration()
    configuration.repeatsWhenSecured = true
    return configuration
  }
}
extension SendAnswer {
  /// The worse of two answers: cut is worse than queued, refused is worse than both.
  fileprivate func worse(_ other: SendAnswer) -> SendAnswer {
    switch (self, other) {
    case (.closed, _), (_, .closed): .closed
    case (.full, _), (_, .full): .full
    case (.cut, _): self
    case (.queued, _): other
    }
  }
}
extension AttributeHandle {
  /// A tuple of a Multiple Handle Value Notification. Vol 3, Part F, §3.4.7.4.
  func tuple(of value: [UInt8]) -> [UInt8] {
    let count = value.count
    return [UInt8(rawValue & 0xFF), UInt8(rawValue >> 8), UInt8(count & 0xFF), UInt8(truncatingIfNeeded: count >> 8)]
      + value
  }
}
