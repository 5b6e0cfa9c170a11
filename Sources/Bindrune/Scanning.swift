import BindruneWire
import GAP
import HCI

/// What a scan found: one report, with the advertising data and the scan response of its device joined.
public struct Advertisement: Sendable {
  public var peer: PeerAddress
  /// dBm; nil when the controller does not know.
  public var rssi: Int?
  public var isConnectable: Bool
  /// This report was the scan response; `data` holds what came before it too.
  public var isScanResponse: Bool
  public var data: AdvertisingData
  public var name: String? { data.localName }
}

/// Advertisements, for as long as somebody iterates: the controller scans while at least one iterator lives.
/// 1,024 may wait for the reader; then the oldest go, because the newest says more.
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
      if scan == nil { scan = try await sequence.host.beginScan(sequence.parameters, services: sequence.services) }
      guard let scan else { return nil }
      return try await scan.mailbox.take().get()
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
  var mailbox: Mailbox<Advertisement>
  /// What each device has said so far, so that a scan response is told with its advertisement. Bounded.
  var seen: [PeerAddress: AdvertisingData] = [:]
  static var capacity: Int { 1024 }
}

extension Host {
  /// Scans while the sequence is iterated. `services`: only devices that name at least one of them; empty: all.
  public nonisolated func scan(
    _ parameters: ScanParameters = ScanParameters(), services: [BluetoothUUID] = []
  ) -> AdvertisementSequence {
    AdvertisementSequence(host: self, parameters: parameters, services: services)
  }

  func beginScan(_ parameters: ScanParameters, services: [BluetoothUUID]) throws(BluetoothError) -> ScanHandle {
    switch phase {
    case .closed(let error): throw error
    case .stopped, .starting: throw BluetoothError(.notStarted, "the host has not been started; call start() first")
    case .running: break
    }
    lastRequest += 1
    let id = lastRequest
    let mailbox = Mailbox<Advertisement>(capacity: Scan.capacity, overflow: .dropOldest)
    scans[id] = Scan(parameters: parameters, services: services, mailbox: mailbox)
    updateScan()
    return ScanHandle(mailbox: mailbox, id: id, host: self)
  }
  func endScan(_ id: UInt64) {
    guard let scan = scans.removeValue(forKey: id) else { return }
    scan.mailbox.finish()
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
    for id in scans.keys { deliver(report, to: id) }
  }
  private func deliver(_ report: AdvertisementReport, to id: UInt64) {
    core.withBytes(of: report.data) { bytes in
      let data: AdvertisingData
      if report.isScanResponse, var joined = scans[id]?.seen[report.peer] {
        joined.merge(bytes)
        data = joined
      } else if let known = scans[id]?.seen[report.peer], !report.isScanResponse {
        // What only the scan response says stays known.
        var joined = AdvertisingData(decoding: bytes)
        joined.fill(from: known)
        data = joined
      } else {
        data = AdvertisingData(decoding: bytes)
      }
      if scans[id]?.seen.count == Scan.capacity { scans[id]?.seen.removeAll(keepingCapacity: true) }
      scans[id]?.seen[report.peer] = data
      guard let scan = scans[id] else { return }
      guard scan.services.isEmpty || scan.services.contains(where: data.serviceUUIDs.contains) else { return }
      scan.mailbox.put(
        Advertisement(
          peer: report.peer, rssi: report.rssi.map(Int.init), isConnectable: report.isConnectable,
          isScanResponse: report.isScanResponse, data: data))
    }
  }
}
