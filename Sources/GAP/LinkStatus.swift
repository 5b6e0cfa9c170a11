import BasicContainers
import BindruneWire
import GATT
import HCI

/// The requests that await a report of the controller on a link.
struct LinkRequests {
  var rssi: [RequestID] = [], phys: [RequestID] = []
  /// An update of the modulation is in progress; and the request that awaits it, unless that was cancelled.
  var isUpdatingPHYs = false
  var phyUpdate: RequestID?

  var all: [RequestID] { rssi + phys + (phyUpdate.map { [$0] } ?? []) }
  /// True when `id` was waiting.
  mutating func remove(_ id: RequestID) -> Bool {
    guard all.contains(id) else { return false }
    rssi.removeAll { $0 == id }
    phys.removeAll { $0 == id }
    if phyUpdate == id { phyUpdate = nil }
    return true
  }
}

// The controller's data about a link: signal strength, modulation, packet length.
extension HostCore {
  /// The strength of the peer's last packets, in dBm. Ends with `.completed(id, .rssi)`; nil if the controller does not
  /// know it. Simultaneous requests share one answer. Vol 4, Part E, §7.5.4.
  public mutating func readRSSI(_ link: LinkID, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    upper.links[index].requests.rssi.append(id)
    guard upper.links[index].requests.rssi.count == 1 else { return }
    let command = ReadRSSI.with { $0.handle = upper.links[index].handle }
    hci.send(command, tag: Sender.rssi.tag(command.handle), now: now)
    drain(now)
  }
  /// The modulations in use. Ends with `.completed(id, .phys)`. Vol 4, Part E, §7.8.47.
  public mutating func readPHYs(_ link: LinkID, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    upper.links[index].requests.phys.append(id)
    guard upper.links[index].requests.phys.count == 1 else { return }
    let command = LEReadPHY.with { $0.connectionHandle = upper.links[index].handle }
    hci.send(command, tag: Sender.phys.tag(command.connectionHandle), now: now)
    drain(now)
  }
  /// Asks for other modulations. Ends with `.completed(id, .phys)`: those then in use, which may be unchanged, after a
  /// `.physChanged` if they are new. One such request at a time on a link, else `.busy`. Vol 4, Part E, §7.8.49.
  public mutating func setPHYs(_ link: LinkID, _ wanted: PHYPreferences, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    guard wanted.isValid else { return emit(.completed(id, .failed(.invalidParameters))) }
    guard !upper.links[index].requests.isUpdatingPHYs else { return emit(.completed(id, .failed(.busy))) }
    upper.links[index].requests.isUpdatingPHYs = true
    upper.links[index].requests.phyUpdate = id
    let command = LESetPHY.with {
      $0.connectionHandle = upper.links[index].handle
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
    let waiting = upper.links[index].requests.rssi
    upper.links[index].requests.rssi = []
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
    let waiting = upper.links[index].requests.phys
    upper.links[index].requests.phys = []
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
    let waiting = upper.links[index].requests.phyUpdate
    upper.links[index].requests.isUpdatingPHYs = false
    upper.links[index].requests.phyUpdate = nil
    if let waiting { emit(.completed(waiting, result)) }
  }
  /// LE PHY Update Complete: Vol 4, Part E, §7.7.65.12.
  mutating func phyUpdateComplete(_ event: LEPHYUpdateComplete) {
    guard let index = upper.index(of: event.connectionHandle) else { return }
    guard event.status == .success else {
      return phyUpdateEnded(event.connectionHandle, .failed(.refused(.setPHYs, event.status)))
    }
    let phys = LinkPHYs(transmit: event.txPHY, receive: event.rxPHY)
    if phys != upper.links[index].phys { emit(.physChanged(upper.links[index].id, phys)) }
    upper.links[index].phys = phys
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
    upper.links[index].dataLength = length
    emit(.dataLengthChanged(upper.links[index].id, length))
  }
}
