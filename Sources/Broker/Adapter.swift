import Foundation
import Logging
import NIOCore

/// One controller, and all sessions of this process that use it: owns the `Host`, opens it, opens it again, and shares its
/// links, scans and database among the sessions.
///
/// Everything happens on `eventLoop`, on which the host runs too: the adapter is the host's observer, and what it tells the
/// sessions is in the order of the air. No task is on that way; tasks open and close the host.
///
/// `AdapterRegistry` keeps it as long as it has sessions, and until its host has been closed after the last of them.
final class Adapter: HostObserver, @unchecked Sendable {
  // Sendable: everything is on the event loop.

  let eventLoop: any EventLoop
  /// The way to the controller, anew for each attempt.
  let open: @Sendable (any EventLoop) async throws(TransportError) -> any HCITransport
  let patience: AdapterPatience
  let logger: Logger
  /// Where it is kept; nil: whoever has made it keeps it.
  let registration: AdapterRegistry.Registration?

  /// In the order in which they came.
  private(set) var sessions: [AdapterSession] = []
  /// See `Adapter+State`.
  var phase = Phase.idle
  var state = AdapterState.unknown
  /// Attempts to open, and hosts, that have failed since it last worked for a while.
  var failures = 0
  /// The end of that while.
  var steadiness: Scheduled<Void>?
  /// It has worked, and the last end was no wish of ours.
  var isRestarting = false

  /// Who waits for the end of the host that is being closed.
  var whenClosed: [@Sendable () -> Void] = []

  /// Where the request that is being carried out stands among its session's values.
  var place: SendPort.Fence?

  var links = LinkTable()
  var central = Central()
  /// The peripheral's half: see `Adapter+Peripheral`.
  var serving = Serving()

  init(
    on eventLoop: any EventLoop, patience: AdapterPatience = AdapterPatience(), logger: Logger = .adapter,
    registration: AdapterRegistry.Registration? = nil,
    open: @escaping @Sendable (any EventLoop) async throws(TransportError) -> any HCITransport
  ) {
    self.eventLoop = eventLoop
    self.patience = patience
    self.logger = logger
    self.registration = registration
    self.open = open
  }

  // MARK: Sessions

  /// From any thread.
  func add(_ session: AdapterSession) {
    eventLoop.execute {
      self.sessions.append(session)
      if case .idle = self.phase { self.openHost() }
      session.tell(.adapter(self.state))
      self.tellLinks(to: session)
    }
  }
  /// What the session has asked for since the last time.
  func drain(_ session: AdapterSession) {
    for placed in session.takeRequests() where sessions.contains(where: { $0 === session }) {
      let request = placed.request
      place = placed.place
      defer { place = nil }
      let isDone = withHost { host in
        switch request {
        case .central(let request): self.perform(request, of: session, host)
        case .peripheral(let request): self.perform(request, of: session, host)
        }
      }
      if isDone { continue }
      switch request {
      case .central(let request): refuse(request, of: session)
      case .peripheral(let request): refuse(request, of: session)
      }
    }
  }
  func closed(_ session: AdapterSession) {
    guard sessions.contains(where: { $0 === session }) else { return }
    let isDone = withHost { host in
      self.endCentral(of: session, host)
      self.endServing(of: session, host)
    }
    if !isDone { endServing(of: session, nil) }
    sessions.removeAll { $0 === session }
    registration?.leave()
    if sessions.isEmpty { closeHost() }
  }

  // MARK: Host

  /// Runs `body` isolated to the host; false: there is none that runs.
  @discardableResult
  func withHost(_ body: @Sendable (isolated Host) -> Void) -> Bool {
    guard case .running(let host) = phase else { return false }
    host.assumeIsolated { body($0) }
    return true
  }
  /// Runs `body` on the event loop when so much time has passed.
  @discardableResult
  func schedule(after time: TimeAmount, _ body: @escaping @Sendable (Adapter) -> Void) -> Scheduled<Void> {
    eventLoop.scheduleTask(in: time) { [weak self] in
      if let self { body(self) }
    }
  }

  func host(_ host: isolated Host, did event: HostEvent) {
    // Of a host that is being closed nobody waits for anything any more.
    guard case .running(let current) = phase, current === host else {
      if case .opening = phase, case .failed(let error) = event { phase = .opening(error) }
      return
    }
    switch event {
    case .server(.connected(let link)):
      connected(link, host)
      serve(event, host)
      isUp(link.id, host)
    case .server(.disconnected(let link, let reason)):
      serve(event, host)
      disconnected(link, reason, host)
    case .mtuChanged(let link, let mtu):
      mtuChanged(link, mtu, host)
      serve(event, host)
    case .peerIdentified(let link, let address): identified(link, as: address, host)
    case .discovered(let scan, let advertisement): discovered(advertisement, by: scan)
    case .scanFailed(let scan, let error): scanFailed(scan, error, host)
    case .completed(let request, let result): if !completed(request, result, host) { serve(event, host) }
    case .servicesChanged(let link, let range):
      servicesChanged(range, on: link, host)
      serve(event, host)
    case .failed(let error):
      serve(event, host)
      failed(error)
    default: serve(event, host)
    }
  }
  func host(
    _ host: isolated Host, received value: Span<UInt8>, of handle: AttributeHandle, isIndication: Bool, on link: LinkID
  ) {
    guard let state = central.links[link], let readers = state.subscriptions[handle]?.sessions else { return }
    let data = unsafe value.withUnsafeBufferPointer { unsafe Data(buffer: $0) }
    for session in readers { session.tell(.value(session.identifier(of: state.peer), handle, data)) }
  }

  // MARK: Links

  /// The link to a peer, in whichever role.
  func link(of peer: UUID) -> LinkID? { self.peer(peer).flatMap { links[$0]?.id } }
  /// The peer that a session calls so; nil: the identifier comes from elsewhere, and names none.
  func peer(_ identifier: UUID) -> PeerID? { PeerID(identifier).map { central.aliases[$0] ?? $0 } }
  /// Who is at the other end.
  func identifier(of link: LinkID) -> UUID? { links[link].map { UUID($0.peer) } }
}

/// The links of the adapter, in either role, from before anybody is told that they are up until all have been told that they
/// are down.
struct LinkTable {
  private(set) var all: [Link] = []
  subscript(_ id: LinkID) -> Link? { all.first { $0.id == id } }
  subscript(_ peer: PeerID) -> Link? { all.first { $0.peer == peer } }
  mutating func add(_ link: Link) { all.append(link) }
  mutating func remove(_ id: LinkID) { all.removeAll { $0.id == id } }
}

extension BrokerRequest {
  /// The values that it keeps its order with: those that its session has offered before it leave before it.
  var line: (kind: SendPort.Kind, peer: UUID)? {
    switch self {
    case .central(let request): request.peerOfLine.map { (.command, $0) }
    case .peripheral(let request): request.centralOfLine.map { (.notification, $0) }
    }
  }
}
extension BrokerRequest.Central {
  fileprivate var peerOfLine: UUID? {
    switch self {
    case .discoverServices(_, let peer, _), .discoverIncludedServices(_, let peer, _, _),
      .discoverCharacteristics(_, let peer, _, _), .discoverDescriptors(_, let peer, _), .read(_, let peer, _),
      .write(_, let peer, _, _), .setNotifying(_, let peer, _, _):
      peer
    case .scan, .stopScan, .connect, .cancelConnection, .readRSSI: nil
    }
  }
}
extension BrokerRequest.Peripheral {
  fileprivate var centralOfLine: UUID? {
    switch self {
    case .respond(_, let central, _), .reject(_, let central, _): central
    case .addService, .removeService, .removeAllServices, .setValue, .startAdvertising, .stopAdvertising,
      .setDesiredLatency:
      nil
    }
  }
}
