import BindruneWire
import BindruneGAP
import BindruneHCI
import NIOCore

/// A device that a scan has found: what it advertises, with its scan response if the scan is active and has received
/// it.
public struct Advertisement: Sendable {
  public var peer: PeerID
  /// The identity address, if known; else the same as `addressOnAir`.
  public var address: PeerAddress
  /// The address in the packet.
  public var addressOnAir: PeerAddress
  /// dBm; nil when the controller does not know.
  public var rssi: Int8?
  public var isConnectable: Bool
  /// It includes a scan response: of this advertisement, or the device's last one.
  public var hasScanResponse: Bool
  /// The controller could not deliver all of the data.
  public var isTruncated: Bool
  /// Advertising data and scan response data joined: of single values the advertisement's, and every manufacturer and
  /// service data of both.
  public var data: AdvertisingData
  /// Services in the scan's filter that the device may offer: their bits are set in its overflow area, where several
  /// services share a bit. `data` holds the services that the device names.
  public var matchedOverflow: [BluetoothUUID]
  public var name: String? { data.localName }

  /// For a test of code that takes advertisements. `addressOnAir` nil: `address`, which is no private one.
  public init(
    _ data: AdvertisingData, from address: PeerAddress, addressOnAir: PeerAddress? = nil, rssi: Int8? = nil,
    isConnectable: Bool = true, hasScanResponse: Bool = false, isTruncated: Bool = false,
    matchedOverflow: [BluetoothUUID] = []
  ) {
    peer = PeerID(address)
    self.address = address
    self.addressOnAir = addressOnAir ?? address
    self.rssi = rssi
    self.isConnectable = isConnectable
    self.hasScanResponse = hasScanResponse
    self.isTruncated = isTruncated
    self.data = data
    self.matchedOverflow = matchedOverflow
  }

  init(_ discovery: Discovery, in batch: borrowing HostBatch, filter: ScanFilter) {
    peer = discovery.peer
    address = discovery.address
    addressOnAir = discovery.addressOnAir
    rssi = discovery.rssi
    isConnectable = discovery.isConnectable
    hasScanResponse = discovery.scanResponse != nil
    isTruncated = discovery.isTruncated
    let advertising = batch.bytes(of: discovery.advertising)
    let scanResponse = batch.bytes(of: discovery.scanResponse ?? Octets())
    data = AdvertisingData(decoding: advertising.span)
    data.join(AdvertisingData(decoding: scanResponse.span))
    matchedOverflow = filter.overflowHits(advertising.span, scanResponse.span)
  }
}

/// Advertisements: the controller scans while at least one iterator lives.
/// 1,024 may wait for the reader; beyond that the oldest are dropped. Cancelling the task ends the sequence.
public typealias AdvertisementSequence = HostSequence<Advertisement>

extension HostSequence where Element == Advertisement {
  /// The first advertisement that `isWanted`; the scan ends with it. Throws `.timedOut` if none came within `limit`.
  ///
  ///     let belt = try await host.scan(services: ["180D"]).first(within: .seconds(10)) { $0.name == "Belt" }
  nonisolated(nonsending) public func first(
    within limit: Duration, where isWanted: (Advertisement) -> Bool = { _ in true }
  ) async throws(BluetoothError) -> Advertisement {
    for try await advertisement in bounded?(limit) ?? self where isWanted(advertisement) { return advertisement }
    throw BluetoothError.cancelled.during("scan")
  }
}

/// Ends its scan when the last iterator is released.
final class ScanHandle: Sendable {
  let mailbox: Mailbox<Advertisement>
  private let id: ScanID
  private let host: BluetoothHost
  /// Ends the scan at its bound.
  private let bound: Scheduled<Void>?
  init(mailbox: Mailbox<Advertisement>, id: ScanID, host: BluetoothHost, within limit: Duration?) {
    self.mailbox = mailbox
    self.id = id
    self.host = host
    bound = limit.map { limit in
      host.transport.eventLoop.scheduleTask(in: TimeAmount(limit)) {
        let cure = "bring the device into reach, check that it advertises, or allow more time"
        mailbox.finish(BluetoothError(.timedOut, "No device that is wanted was heard in \(limit): \(cure)."))
      }
    }
  }
  deinit {
    bound?.cancel()
    host.onEventLoop { [id] host in host.endScan(id) }
  }
}

/// One caller's scan.
struct Scan {
  let filter: ScanFilter
  /// nil: the observer's.
  var mailbox: Mailbox<Advertisement>?
}

extension BluetoothHost {
  /// Scans while a task iterates the sequence, beside other scans. `services`: only devices that name at least one of
  /// them, or have its bit in their overflow area; empty: all.
  public nonisolated func scan(
    _ parameters: ScanParameters = ScanParameters(), services: [BluetoothUUID] = []
  ) -> AdvertisementSequence {
    scan(parameters, filter: ScanFilter(services: services))
  }
  /// Scans for the devices that match `filter` while a task iterates the sequence, beside other scans.
  public nonisolated func scan(
    _ parameters: ScanParameters = ScanParameters(), filter: ScanFilter
  ) -> AdvertisementSequence {
    scan(parameters, filter, within: nil)
  }
  private nonisolated func scan(
    _ parameters: ScanParameters, _ filter: ScanFilter, within limit: Duration?
  ) -> AdvertisementSequence {
    HostSequence(
      opening: { [self] () async throws(BluetoothError) in
        if Task.isCancelled { return nil }
        let scan = try await openScan(parameters, filter, within: limit)
        return { () async throws(BluetoothError) in try await scan.mailbox.take() }
      }, bounded: { [self] limit in scan(parameters, filter, within: limit) })
  }

  func openScan(
    _ parameters: ScanParameters, _ filter: ScanFilter, within limit: Duration? = nil
  ) throws(BluetoothError) -> ScanHandle {
    do throws(BluetoothError) { try check() } catch { throw error.during("scan") }
    let mailbox = Mailbox<Advertisement>(capacity: 1024, overflow: .dropOldest, to: "scan")
    let id = ScanID(rawValue: newRequest().rawValue)
    try begin(Scan(filter: filter, mailbox: mailbox), parameters, as: id, "scan(_:filter:)")
    return ScanHandle(mailbox: mailbox, id: id, host: self, within: limit)
  }
  /// Scans until `endScan`, beside other scans: the observer receives `.discovered`, or `.scanFailed` if the controller
  /// refuses or stops. The scan also ends with the host.
  public func beginScan(_ parameters: ScanParameters, _ filter: ScanFilter) throws(BluetoothError) -> ScanID {
    let id = ScanID(rawValue: newRequest().rawValue)
    try beginScan(parameters, filter, as: id)
    return id
  }
  /// The same with a number that the caller chose: see `firstNumberOfObserver`.
  package func beginScan(
    _ parameters: ScanParameters, _ filter: ScanFilter, as id: ScanID
  ) throws(BluetoothError) {
    do throws(BluetoothError) { try checkRunning() } catch { throw error.during("scan") }
    try begin(Scan(filter: filter), parameters, as: id, "beginScan(_:_:)")
  }
  private func begin(
    _ scan: Scan, _ parameters: ScanParameters, as id: ScanID, _ call: StaticString
  ) throws(BluetoothError) {
    guard parameters.isValid else {
      throw BluetoothError(
        .invalidArgument,
        "A scan cannot listen \(parameters.window.text) of \(parameters.interval.text): both are 2.5 ms to 10.24 s, and the "
          + "window is at most the interval.", operation: "scan")
    }
    scans[id] = scan
    perform(as: call) { core, now in core.startScan(parameters, filter: scan.filter, id: id, now: now) }
  }
  /// Ends the scan and its events. Ignores a scan that has ended already.
  public func endScan(_ id: ScanID) {
    guard let scan = scans.removeValue(forKey: id) else { return }
    scan.mailbox?.abandon()
    if case .running = state { perform(as: "endScan(_:)") { core, now in core.stopScan(id: id, now: now) } }
  }
  func scanFailed(_ id: ScanID, _ error: BluetoothError) {
    guard let scan = scans.removeValue(forKey: id) else { return }
    let error = error.during("scan")
    if let mailbox = scan.mailbox { mailbox.finish(error) } else { report(.scanFailed(id, error)) }
  }
  func endScans(_ error: BluetoothError) {
    let ended = scans
    scans = [:]
    for scan in ended.values { scan.mailbox?.finish(error.during("scan")) }
  }

  func deliver(_ discovery: Discovery, in batch: borrowing HostBatch, to id: ScanID) {
    guard let scan = scans[id] else { return }
    let advertisement = Advertisement(discovery, in: batch, filter: scan.filter)
    if let mailbox = scan.mailbox { mailbox.put(advertisement) } else { report(.discovered(id, advertisement)) }
  }
}
