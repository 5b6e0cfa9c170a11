import BindruneWire
import GAP
import HCI

/// What a scan found: one report, with the advertising data and the scan response of its device joined.
public struct Advertisement: Sendable {
  public var peer: PeerAddress
  /// dBm; nil when the controller does not know.
  public var rssi: Int?
  /// As the last advertisement said: scan responses do not.
  public var isConnectable: Bool
  /// This report was the scan response; `data` holds what came before it too.
  public var isScanResponse: Bool
  /// The controller could not deliver all of this report's data.
  public var isTruncated: Bool
  public var data: AdvertisingData
  public var name: String? { data.localName }
}

/// Advertisements, for as long as somebody iterates: the controller scans while at least one iterator lives.
/// 1,024 may wait for the reader; then the oldest go, because the newest says more. A cancelled task ends the sequence.
public struct AdvertisementSequence: AsyncSequence, Sendable {
  public typealias Element = Advertisement
  public typealias Failure = BluetoothError
  let host: Host
  let parameters: ScanParameters
  let services: [BluetoothUUID]

  public func makeAsyncIterator() -> Iterator { Iterator(sequence: self) }

  public struct Iterator: AsyncIteratorProtocol {
    let sequence: AdvertisementSequence
    private var scan: ScanHandle?

    init(sequence: AdvertisementSequence) { self.sequence = sequence }

    public mutating func next() async throws(BluetoothError) -> Advertisement? {
      try await next(isolation: nil)
    }
    public mutating func next(
      isolation actor: isolated (any Actor)?
    ) async throws(BluetoothError) -> Advertisement? {
      if scan == nil {
        if Task.isCancelled { return nil }
        scan = try await sequence.host.beginScan(sequence.parameters, services: sequence.services)
      }
      return try await scan?.mailbox.take()
    }
  }
}

/// Ends its scan when the last iterator lets go of it.
final class ScanHandle: Sendable {
  let mailbox: Mailbox<Advertisement>
  private let id: UInt64
  private let host: Host
  init(mailbox: Mailbox<Advertisement>, id: UInt64, host: Host) {
    self.mailbox = mailbox
    self.id = id
    self.host = host
  }
  deinit {
    host.onEventLoop { [id] host in host.endScan(id) }
  }
}

/// One caller's scan.
struct Scan {
  var parameters: ScanParameters
  var services: [BluetoothUUID]
  let mailbox = Mailbox<Advertisement>(capacity: 1024, overflow: .dropOldest)
  /// What each device has said so far, so that its advertisement and its scan response are told together. Bounded.
  private var heard: [PeerAddress: Heard] = [:]
  private static var capacity: Int { 1024 }
  private struct Heard {
    var advertisement = AdvertisingData(flags: nil)
    var scanResponse = AdvertisingData(flags: nil)
    var isConnectable = false
  }

  init(parameters: ScanParameters, services: [BluetoothUUID]) {
    self.parameters = parameters
    self.services = services
  }

  mutating func take(_ report: AdvertisementReport, _ bytes: Span<UInt8>) {
    var device = heard[report.peer] ?? Heard()
    if report.isScanResponse {
      device.scanResponse = AdvertisingData(decoding: bytes)
    } else {
      device.advertisement = AdvertisingData(decoding: bytes)
      device.isConnectable = report.isConnectable
    }
    if heard.count == Self.capacity, heard[report.peer] == nil { heard.removeAll(keepingCapacity: true) }
    heard[report.peer] = device

    var data = device.advertisement
    data.fill(from: device.scanResponse)
    guard services.isEmpty || services.contains(where: data.serviceUUIDs.contains) else { return }
    mailbox.put(
      Advertisement(
        peer: report.peer, rssi: report.rssi.map(Int.init), isConnectable: device.isConnectable,
        isScanResponse: report.isScanResponse, isTruncated: report.isTruncated, data: data))
  }
}

extension Host {
  /// Scans while the sequence is iterated. `services`: only devices that name at least one of them; empty: all.
  public nonisolated func scan(
    _ parameters: ScanParameters = ScanParameters(), services: [BluetoothUUID] = []
  ) -> AdvertisementSequence {
    AdvertisementSequence(host: self, parameters: parameters, services: services)
  }

  func beginScan(_ parameters: ScanParameters, services: [BluetoothUUID]) throws(BluetoothError) -> ScanHandle {
    try check()
    let id = newRequest().rawValue, scan = Scan(parameters: parameters, services: services)
    scans[id] = scan
    updateScan()
    return ScanHandle(mailbox: scan.mailbox, id: id, host: self)
  }
  func endScan(_ id: UInt64) {
    guard let scan = scans.removeValue(forKey: id) else { return }
    scan.mailbox.abandon()
    updateScan()
  }
  func endScans(_ error: BluetoothError) {
    let ended = scans
    scans = [:]
    for scan in ended.values { scan.mailbox.finish(error) }
  }

  /// One scan of the controller for all callers: active and unfiltered if one of them wants it so.
  private func updateScan() {
    guard case .running = phase else { return }
    guard var merged = scans.values.first?.parameters else {
      return perform { core, now in core.stopScan(now: now) }
    }
    for scan in scans.values {
      merged.isActive = merged.isActive || scan.parameters.isActive
      merged.filtersDuplicates = merged.filtersDuplicates && scan.parameters.filtersDuplicates
      if scan.parameters.window.rawValue > merged.window.rawValue {
        merged.interval = scan.parameters.interval
        merged.window = scan.parameters.window
      }
    }
    perform { core, now in core.startScan(merged, now: now) }
  }

  func deliver(_ report: AdvertisementReport) {
    for id in scans.keys { core.withBytes(of: report.data) { scans[id]?.take(report, $0) } }
  }
}
