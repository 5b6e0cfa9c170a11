import BasicContainers
import BindruneWire
import BindruneHCI

// Scans of the application and what they hear. Vol 3, Part C, §9.2; Vol 6, Part B, §4.4.3.
extension HostCore {
  // MARK: From above

  /// Begins with `.scanStarted`, or ends with `.scanFailed`; `.discovered` follows for each device that meets `filter`.
  /// A call with the same id restarts the scan, and reports devices again. Scans with different ids run concurrently;
  /// each reports what its caller asked for, regardless of the others.
  public mutating func startScan(
    _ parameters: ScanParameters = ScanParameters(), filter: ScanFilter = ScanFilter(),
    id: ScanID = ScanID(rawValue: 0), now: Instant
  ) {
    if phase == .running, parameters.isValid {
      scans.begin(id, parameters, filter)
    } else {
      scans.end(id)
      emit(.scanFailed(id, phase == .running ? .invalidHCICommandParameters : .commandDisallowed))
    }
    scan(now)
  }
  /// Emits `.scanStopped`; no discovery of this scan follows.
  public mutating func stopScan(id: ScanID = ScanID(rawValue: 0), now: Instant) {
    scans.end(id)
    emit(.scanStopped(id))
    scan(now)
  }
  /// Brings the controller to the union of all scans.
  private mutating func scan(_ now: Instant) {
    guard phase == .running else { return }
    wantScan(now)
    drain(now)
  }
  mutating func wantScan(_ now: Instant) {
    report(scanner.want(scans.merged ?? (privacy.seeking == .scanning ? .seeking : nil), hci: &hci, now: now), now)
  }

  // MARK: From the controller

  mutating func report(_ outcome: Scanner.Outcome?, _ now: Instant) {
    switch outcome {
    case .started: for id in scans.start() { emit(.scanStarted(id)) }
    case .failed(let status):
      for id in scans.removeAll() { emit(.scanFailed(id, status)) }
      pauseSeeking(status, now)
    case nil: break
    }
  }
  mutating func hear(_ report: LEAdvertisingReport.Report, in packet: Span<UInt8>, _ now: Instant) {
    let type = report.eventType, names = identify(report.address, report.addressType, now)
    hear(
      AdvertisementReport(
        address: names.address, addressOnAir: names.onAir,
        isConnectable: type == .connectableScannableUndirected || type == .connectableDirected,
        isScannable: type == .connectableScannableUndirected || type == .scannableUndirected,
        isScanResponse: type == .scanResponse, isDirected: type == .connectableDirected, isLegacy: true,
        isTruncated: false, rssi: report.rssi == 127 ? nil : report.rssi),
      report.data.array(in: packet), now)
  }
  mutating func hear(_ report: LEExtendedAdvertisingReport.Report, in packet: Span<UInt8>, _ now: Instant) {
    guard let joined = scanner.joiner.take(report, in: packet) else { return }
    let names = identify(report.address, report.addressType, now)
    hear(
      AdvertisementReport(
        address: names.address, addressOnAir: names.onAir, isConnectable: report.connectable,
        isScannable: report.scannable,
        isScanResponse: report.scanResponse, isDirected: report.directed, isLegacy: report.legacy,
        isTruncated: joined.isTruncated, rssi: report.rssi == 127 ? nil : report.rssi),
      joined.earlier + joined.data.array(in: packet), now)
  }
  /// Receives every complete report.
  private mutating func hear(_ report: AdvertisementReport, _ octets: [UInt8], _ now: Instant) {
    // The report crossed the end of the last scan.
    if scans.isEmpty { return }
    scans.hear(HeardPDU(report: report, octets: octets), now: now)
    reportDiscoveries()
  }
  mutating func reportDiscoveries() {
    for pending in scans.takeDiscoveries() {
      let scanResponse = pending.scanResponse ?? [], split = pending.advertising.count
      let range = upper.batch.keep(pending.advertising.span, scanResponse.span)
      var discovery = pending.discovery
      discovery.peer = peers.id(of: discovery.address)
      discovery.advertising = Octets(Int(range.offset), split)
      discovery.scanResponse = pending.scanResponse.map { Octets(Int(range.offset) + split, $0.count) }
      for id in pending.scans { emit(.discovered(id, discovery)) }
    }
  }
}
