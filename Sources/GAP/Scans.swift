import BindruneWire
import HCI

/// One PDU that the controller has heard, whole: an advertisement or a scan response.
struct AdvertisementReport: BitwiseCopyable {
  /// The device's identity address, where that is known; else `addressOnAir`, as it was heard.
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
/// **Overview**: the scans of all callers. Together they say how the controller scans; each PDU that it reports is told to
/// those whose filter it meets.
///
/// **Function**: *What the controller does* (`merged`): active if one caller wants it, the times of the one who listens most.
/// It filters duplicates only where every caller coalesces and none has a filter: the first that it reports of a device is
/// then all that anybody waits for, while a device that comes nearer or says something else would otherwise be missed.
///
/// *One discovery of two PDUs*: for active callers a scannable advertisement is held until its scan response comes, or the
/// next advertisement of its device, or 100 ms have passed: a response follows within a millisecond on the air, and what is
/// left is for slow wires and long data. Without one, the last that the device gave stands for it. A response without an
/// advertisement goes with the last one of its device. Passive callers get advertisements at once and no responses, whatever
/// the others want.
///
/// *Coalescing*: see ``Discovery``.
///
/// Bounded: `HeardDevices`, `heldAtMost` advertisements held, of which the oldest is told when one more comes, and an octet
/// for each device and scan.
struct Scans {
  static var patience: Duration { .milliseconds(100) }
  static var heldAtMost: Int { 32 }

  /// A discovery, its octets, and whose it is.
  struct Told {
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
    /// By slot of `devices`; those beyond its end have not been told.
    var told: [Telling] = []
  }
  /// What a coalescing scan knows of a device.
  fileprivate enum Telling: UInt8 { case nothing, inPart, whole }
  fileprivate enum Audience { case everybody, active, passive }
  private struct Held {
    var pdu: HeardPDU
    var until: Instant
  }

  private var scans: [Scan] = []
  /// In the order in which they are due.
  private var held: [Held] = []
  private(set) var devices = HeardDevices()
  private var discoveries: [Told] = []
  private var begun: UInt32 = 0

  var isEmpty: Bool { scans.isEmpty }
  var heldCount: Int { held.count }

  // MARK: Callers

  /// The scan begins, or begins anew.
  mutating func begin(_ id: ScanID, _ parameters: ScanParameters, _ filter: ScanFilter) {
    end(id)
    begun &+= 1
    scans.append(Scan(id: id, parameters: parameters, filter: filter))
  }
  mutating func end(_ id: ScanID) {
    scans.removeAll { $0.id == id }
    if scans.isEmpty { devices.removeAll() }
    if !scans.contains(where: \.parameters.isActive) { held = [] }
  }
  /// All of them end.
  mutating func removeAll() -> [ScanID] {
    let ids = scans.map(\.id)
    for id in ids { end(id) }
    return ids
  }
  /// The controller scans as it should: those that have waited for it.
  mutating func start() -> [ScanID] {
    var started: [ScanID] = []
    for index in scans.indices where !scans[index].isStarted {
      scans[index].isStarted = true
      started.append(scans[index].id)
    }
    return started
  }

  /// What all of them together want of the controller; nil: nothing.
  var merged: ControllerScan? {
    guard
      // More of the time; if that is the same, in shorter turns.
      let eager = scans.map(\.parameters).max(by: { a, b in
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
    if pdu.report.isScanResponse { return tell(earlier, pdu, to: .active) }
    if let earlier { tell(earlier, nil, to: .active) }
    guard pdu.report.isScannable else { return tell(pdu, nil, to: .everybody) }
    tell(pdu, nil, to: .passive)
    guard scans.contains(where: \.parameters.isActive) else { return }
    if held.count == Self.heldAtMost { tell(held.removeFirst().pdu, nil, to: .active) }
    held.append(Held(pdu: pdu, until: now + Self.patience))
  }
  var deadline: Instant? { held.first?.until }
  mutating func expire(now: Instant) {
    while let first = held.first, first.until <= now { tell(held.removeFirst().pdu, nil, to: .active) }
  }

  /// What is to be told, in order.
  mutating func takeDiscoveries() -> [Told] {
    defer { discoveries = [] }
    return discoveries
  }

  /// An advertisement, a scan response, or both. The active ones are told here of what has a scan response; what has none is
  /// for everybody.
  private mutating func tell(_ advertisement: HeardPDU?, _ response: HeardPDU?, to audience: Audience) {
    guard let latest = (response ?? advertisement)?.report, scans.contains(where: { $0.isOf(audience) }) else { return }
    let (slot, isNew) = devices.hear(latest.address)
    if isNew {
      for index in scans.indices where slot < scans[index].told.count { scans[index].told[slot] = .nothing }
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
      Told(
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
  /// Whether the device is still to be told, in which case it now has been.
  fileprivate mutating func wants(_ slot: Int, isWhole: Bool) -> Bool {
    guard parameters.isCoalescing else { return true }
    if told.count <= slot { told += [Scans.Telling](repeating: .nothing, count: slot + 1 - told.count) }
    if told[slot] == .whole || (told[slot] == .inPart && !isWhole) { return false }
    told[slot] = isWhole ? .whole : .inPart
    return true
  }
}
extension HeardPDU {
  fileprivate var ifShort: HeardPDU? { octets.count <= HeardDevices.longest ? self : nil }
}
