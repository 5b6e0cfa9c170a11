import BindruneWire
import BindruneHCI

/// One complete PDU that the controller has heard: an advertisement or a scan response.
struct AdvertisementReport: BitwiseCopyable {
  /// The device's identity address, if that is known; else `addressOnAir`, as it was heard.
  var address: PeerAddress
  var addressOnAir: PeerAddress
  var isConnectable: Bool
  var isScannable: Bool
  var isScanResponse: Bool
  var isDirected: Bool
  /// False for the extended PDUs of Bluetooth 5.
  var isLegacy: Bool
  /// The controller could not deliver all of the data.
  var isTruncated: Bool
  /// dBm; nil when the controller does not know.
  var rssi: Int8?
}
struct HeardPDU {
  var report: AdvertisementReport
  var octets: [UInt8]
}

/// # Scans
/// **Overview**: the scans of all callers. Together they determine how the controller scans; each PDU that it reports
/// goes to the callers whose filter it meets.
///
/// **Function**: *The controller's scan* (`merged`): active if one caller wants it, with the times of the caller that
/// listens most. The controller filters duplicates only if every caller coalesces and none has a filter: its first
/// report of a device is then sufficient; otherwise the host would miss a device that comes nearer or changes its data.
///
/// *One discovery from two PDUs*: for active callers a scannable advertisement is held until its scan response arrives,
/// or the next advertisement of its device, or 100 ms have passed: a response follows within a millisecond on the air;
/// the rest allows for slow wires and long data. Without a response, the device's last one is used. A response without
/// an advertisement is joined with the device's last one. Passive callers get advertisements at once and no responses,
/// whatever the others want.
///
/// *Coalescing*: see ``Discovery``.
///
/// Bounded: `HeardDevices`, `heldAtMost` held advertisements, of which the oldest is reported when one more arrives,
/// and an octet for each device and scan.
struct Scans {
  static var patience: Duration { .milliseconds(100) }
  static var heldAtMost: Int { 32 }

  /// A discovery, its octets, and its callers' scans.
  struct PendingDiscovery {
    var discovery: Discovery
    var advertising: [UInt8]
    var scanResponse: [UInt8]?
    var scans: [ScanID]
  }
  fileprivate struct Scan {
    let id: ScanID
    let parameters: ScanParameters
    let filter: ScanFilter
    var isStarted = false
    /// By slot of `devices`; slots beyond its end are unreported.
    var reported: [Reported] = []
  }
  /// How much of a device a coalescing scan has reported.
  fileprivate enum Reported: UInt8 { case nothing, inPart, whole }
  fileprivate enum Audience { case everybody, active, passive }
  private struct Held {
    var pdu: HeardPDU
    var until: Instant
  }

  private var scans: [Scan] = []
  /// In the order of their deadlines.
  private var held: [Held] = []
  private(set) var devices = HeardDevices()
  private var discoveries: [PendingDiscovery] = []
  private var begun: UInt32 = 0

  var isEmpty: Bool { scans.isEmpty }
  var heldCount: Int { held.count }

  // MARK: Callers

  /// Begins or restarts a scan.
  mutating func begin(_ id: ScanID, _ parameters: ScanParameters, _ filter: ScanFilter) {
    end(id)
    begun &+= 1
    scans.append(Scan(id: id, parameters: parameters, filter: filter))
  }
  mutating func end(_ id: ScanID) {
    scans.removeAll { $0.id == id }
    if scans.isEmpty { devices.removeAll() }
    if !scans.contains(where: { $0.parameters.isActive }) { held = [] }
  }
  /// Ends all scans.
  mutating func removeAll() -> [ScanID] {
    let ids = scans.map { $0.id }
    for id in ids { end(id) }
    return ids
  }
  /// The controller scans as wanted: returns the scans that have waited for it.
  mutating func start() -> [ScanID] {
    var started: [ScanID] = []
    for index in scans.indices where !scans[index].isStarted {
      scans[index].isStarted = true
      started.append(scans[index].id)
    }
    return started
  }

  /// What all scans together want of the controller; nil if there are none.
  var merged: ControllerScan? {
    guard
      // The larger fraction of time; if equal, the shorter interval.
      let eager = scans.map({ $0.parameters }).max(by: { a, b in
        let (one, other) = (
          UInt32(a.window.rawValue) * UInt32(b.interval.rawValue),
          UInt32(b.window.rawValue) * UInt32(a.interval.rawValue)
        )
        return one == other ? a.interval > b.interval : one < other
      })
    else { return nil }
    let filtersDuplicates = scans.allSatisfy { $0.parameters.isCoalescing && $0.filter.isEmpty }
    return ControllerScan(
      isActive: scans.contains { $0.parameters.isActive }, interval: eager.interval, window: eager.window,
      filtersDuplicates: filtersDuplicates, turn: filtersDuplicates ? begun : 0)
  }

  // MARK: The controller

  mutating func hear(_ pdu: HeardPDU, now: Instant) {
    let address = pdu.report.address, place = held.firstIndex { $0.pdu.report.address == address }
    let earlier = place.map { held.remove(at: $0).pdu }
    if pdu.report.isScanResponse { return report(earlier, pdu, to: .active) }
    if let earlier { report(earlier, nil, to: .active) }
    guard pdu.report.isScannable else { return report(pdu, nil, to: .everybody) }
    report(pdu, nil, to: .passive)
    guard scans.contains(where: { $0.parameters.isActive }) else { return }
    if held.count == Self.heldAtMost { report(held.removeFirst().pdu, nil, to: .active) }
    held.append(Held(pdu: pdu, until: now + Self.patience))
  }
  var deadline: Instant? { held.first?.until }
  mutating func expire(now: Instant) {
    while let first = held.first, first.until <= now { report(held.removeFirst().pdu, nil, to: .active) }
  }

  /// The discoveries to report, in order.
  mutating func takeDiscoveries() -> [PendingDiscovery] {
    defer { discoveries = [] }
    return discoveries
  }

  /// Reports an advertisement, a scan response, or both. Active scans get this report for PDUs that have a scan
  /// response; all scans get it for PDUs that have none.
  private mutating func report(_ advertisement: HeardPDU?, _ response: HeardPDU?, to audience: Audience) {
    guard let latest = (response ?? advertisement)?.report, scans.contains(where: { $0.isOf(audience) }) else { return }
    let (slot, isNew) = devices.hear(latest.address)
    if isNew {
      for index in scans.indices where slot < scans[index].reported.count { scans[index].reported[slot] = .nothing }
    }
    let heard = advertisement ?? devices[slot].advertisement
    let answer = audience == .active ? response ?? devices[slot].scanResponse : nil
    if audience == .active {
      if let advertisement { devices[slot].advertisement = advertisement.ifShort }
      if let response { devices[slot].scanResponse = response.ifShort }
    }

    let report = heard?.report ?? latest
    let isTruncated = heard?.report.isTruncated == true || answer?.report.isTruncated == true
    let isWhole = !isTruncated && (audience != .active || answer != nil)
    let advertising = heard?.octets ?? [], scanResponse = answer?.octets ?? []
    var listeners: [ScanID] = []
    for index in scans.indices where scans[index].isOf(audience) {
      let isMet = scans[index].filter.isMet(
        rssi: latest.rssi, isConnectable: report.isConnectable, advertising.span, scanResponse.span)
      if isMet, scans[index].wants(slot, isWhole: isWhole) { listeners.append(scans[index].id) }
    }
    if listeners.isEmpty { return }
    discoveries.append(
      PendingDiscovery(
        discovery: Discovery(
          peer: PeerID(latest.address), address: latest.address, addressOnAir: latest.addressOnAir, rssi: latest.rssi,
          isConnectable: report.isConnectable, isScannable: report.isScannable || answer != nil,
          isDirected: report.isDirected, isLegacy: report.isLegacy, isTruncated: isTruncated,
          advertising: Octets()),
        advertising: advertising, scanResponse: answer?.octets, scans: listeners))
  }
}

extension Scans.Scan {
  fileprivate func isOf(_ audience: Scans.Audience) -> Bool {
    switch audience {
    case .everybody: true
    case .active: parameters.isActive
    case .passive: !parameters.isActive
    }
  }
  /// Whether the device is unreported; marks it as reported.
  fileprivate mutating func wants(_ slot: Int, isWhole: Bool) -> Bool {
    guard parameters.isCoalescing else { return true }
    if reported.count <= slot { reported += [Scans.Reported](repeating: .nothing, count: slot + 1 - reported.count) }
    if reported[slot] == .whole || (reported[slot] == .inPart && !isWhole) { return false }
    reported[slot] = isWhole ? .whole : .inPart
    return true
  }
}
extension HeardPDU {
  fileprivate var ifShort: HeardPDU? { octets.count <= HeardDevices.longest ? self : nil }
}
