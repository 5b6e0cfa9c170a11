import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI

/// The requests that await the answer to a command about a link: those of one kind share an answer.
struct LinkRequests {
  enum Kind: BitwiseCopyable { case rssi, phys, features }
  private var waiting: [(kind: Kind, id: RequestID)] = []

  var all: [RequestID] { waiting.map { $0.id } }
  /// True if it is the first of its kind: the command must be sent.
  mutating func wait(_ id: RequestID, for kind: Kind) -> Bool {
    waiting.append((kind, id))
    return waiting.count { $0.kind == kind } == 1
  }
  mutating func take(_ kind: Kind) -> [RequestID] {
    defer { waiting.removeAll { $0.kind == kind } }
    return waiting.compactMap { $0.kind == kind ? $0.id : nil }
  }
  /// True when `id` was waiting.
  mutating func remove(_ id: RequestID) -> Bool {
    guard let place = waiting.firstIndex(where: { $0.id == id }) else { return false }
    waiting.remove(at: place)
    return true
  }
}

// The controller's data about a link: signal strength, modulation, packet length.
extension HostCore {
  /// The strength of the peer's last packets, in dBm. Ends with `.completed(id, .rssi)`; nil if the controller does not
  /// know it. Simultaneous requests share one answer. Vol 4, Part E, §7.5.4.
  public mutating func readRSSI(_ link: LinkID, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    guard let handle = withLink(at: index, { $0.requests.wait(id, for: .rssi) ? $0.handle : nil }) else { return }
    hci.send(ReadRSSI.with { $0.handle = handle }, tag: Sender.rssi.tag(handle), now: now)
    drain(now)
  }
  /// The modulations in use. Ends with `.completed(id, .phys)`. Vol 4, Part E, §7.8.47.
  public mutating func readPHYs(_ link: LinkID, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    guard let handle = withLink(at: index, { $0.requests.wait(id, for: .phys) ? $0.handle : nil }) else { return }
    hci.send(LEReadPHY.with { $0.connectionHandle = handle }, tag: Sender.phys.tag(handle), now: now)
    drain(now)
  }
  /// Asks for other modulations. Ends with `.completed(id, .phys)`: those then in use, which may be unchanged, after a
  /// `.physChanged` if they are new; with a refusal, 0x22, if the controller reports nothing for 40 s. One such request
  /// at a time on a link, else `.busy`. Vol 4, Part E, §7.8.49.
  public mutating func setPHYs(_ link: LinkID, _ wanted: PHYPreferences, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    guard wanted.isValid else { return emit(.completed(id, .failed(.invalidParameters))) }
    if upper.links[index].procedures[.phyUpdate] != nil { return emit(.completed(id, .failed(.busy))) }
    let handle = begin(.phyUpdate(id), at: index, now)
    let command = LESetPHY.with {
      $0.connectionHandle = handle
      $0.allPHYs = wanted.indifference
      $0.txPHYs = wanted.transmit ?? []
      $0.rxPHYs = wanted.receive ?? []
      $0.phyOptions = wanted.coding
    }
    hci.send(command, tag: Sender.phyUpdate.tag(command.connectionHandle), now: now)
    drain(now)
  }
  /// Sets the preferred modulations of future links; existing links are unaffected. Ends with `.completed(id, .done)`.
  /// Vol 4, Part E, §7.8.48.
  public mutating func setDefaultPHYs(_ wanted: PHYPreferences, id: RequestID, now: Instant) {
    guard phase == .running else { return emit(.completed(id, .failed(.notStarted))) }
    guard wanted.isValid else { return emit(.completed(id, .failed(.invalidParameters))) }
    defaultPHYRequests.append(id)
    let command = LESetDefaultPHY.with {
      $0.allPHYs = wanted.indifference
      $0.txPHYs = wanted.transmit ?? []
      $0.rxPHYs = wanted.receive ?? []
    }
    hci.send(command, tag: Sender.defaultPHYs.tag, now: now)
    drain(now)
  }
  /// Octets in one packet on the air; nil if there is no such link.
  public func dataLength(of link: LinkID) -> LinkDataLength? {
    self.link(link) { $0.dataLength }
  }
  /// The link's parameters; nil if there is no such link.
  public func parameters(of link: LinkID) -> ConnectionParameters? {
    self.link(link) { $0.parameters }
  }

  // MARK: From the controller

  mutating func rssiRead(_ outcome: CommandOutcome, _ handle: ConnectionHandle, in packet: Span<UInt8>) {
    guard let index = upper.index(of: handle) else { return }
    let waiting = withLink(at: index) { $0.requests.take(.rssi) }
    let result: HostResult
    do throws(WireError) {
      let answer = try ReadRSSI.decodeReturn(outcome.returnParameters, in: packet)
      result =
        outcome.status == .success
        ? .rssi(answer.rssi == 127 ? nil : answer.rssi) : .failed(outcome.failure(of: .readRSSI))
    } catch { result = .failed(outcome.failure(of: .readRSSI)) }
    for id in waiting { emit(.completed(id, result)) }
  }
  mutating func physRead(_ outcome: CommandOutcome, _ handle: ConnectionHandle, in packet: Span<UInt8>) {
    guard let index = upper.index(of: handle) else { return }
    let waiting = withLink(at: index) { $0.requests.take(.phys) }
    let result: HostResult
    // A controller without the command supports only LE 1M.
    if outcome.status == .unknownHCICommand {
      for id in waiting { emit(.completed(id, .phys(LinkPHYs()))) }
      return
    }
    do throws(WireError) {
      let answer = try LEReadPHY.decodeReturn(outcome.returnParameters, in: packet)
      let phys = LinkPHYs(transmit: answer.txPHY, receive: answer.rxPHY)
      result = outcome.status == .success ? .phys(phys) : .failed(outcome.failure(of: .readPHYs))
    } catch { result = .failed(outcome.failure(of: .readPHYs)) }
    for id in waiting { emit(.completed(id, result)) }
  }
  mutating func phyUpdateEnded(_ handle: ConnectionHandle, _ result: HostResult) {
    guard let index = upper.index(of: handle) else { return }
    let ended = withLink(at: index) { $0.procedures.end(.phyUpdate) }
    if let id = ended?.request { emit(.completed(id, result)) }
  }
  /// LE PHY Update Complete: Vol 4, Part E, §7.7.65.12.
  mutating func phyUpdateComplete(_ event: LEPHYUpdateComplete) {
    guard let index = upper.index(of: event.connectionHandle) else { return }
    guard event.status == .success else {
      return phyUpdateEnded(event.connectionHandle, .failed(.refused(.setPHYs, event.status)))
    }
    let phys = LinkPHYs(transmit: event.txPHY, receive: event.rxPHY)
    if let link = withLink(at: index, { $0.use(phys) }) { emit(.physChanged(link, phys)) }
    phyUpdateEnded(event.connectionHandle, .phys(phys))
  }
  mutating func defaultPHYsSet(_ outcome: CommandOutcome) {
    guard !defaultPHYRequests.isEmpty else { return }
    // Answers to the same command arrive in the order of the commands.
    let id = defaultPHYRequests.removeFirst()
    emit(.completed(id, outcome.status == .success ? .done : .failed(outcome.failure(of: .setDefaultPHYs))))
  }
  /// LE Data Length Change: Vol 4, Part E, §7.7.65.7.
  mutating func dataLengthChanged(_ event: LEDataLengthChange) {
    guard let index = upper.index(of: event.connectionHandle) else { return }
    var length = LinkDataLength()
    (length.transmitOctets, length.transmitTime) = (event.maxTXOctets, event.maxTXTime)
    (length.receiveOctets, length.receiveTime) = (event.maxRXOctets, event.maxRXTime)
    emit(.dataLengthChanged(withLink(at: index) { $0.use(length) }, length))
  }
}
