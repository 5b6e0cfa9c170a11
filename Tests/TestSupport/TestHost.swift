import ATT
import BindruneSimulator
import BindruneWire
import GAP
import GATT
import HCI

/// A `HostCore` in a `World`, with everything it said kept for the test to look at.
public struct TestHost: ~Copyable, HCIHost {
  public var core: HostCore
  public private(set) var isStarted = false
  public private(set) var startFailure: StartFailure?
  public private(set) var advertisements: [Heard] = []
  public private(set) var links: [LinkID] = []
  /// Every link there ever was, with its peer and role.
  public private(set) var ups: [(link: LinkID, peer: PeerAddress, role: LinkRole)] = []
  public private(set) var downs: [(link: LinkID, reason: HCIStatus)] = []
  /// Every completion of every request: one each, if the core keeps its word.
  public private(set) var completions: [RequestID: [Ending]] = [:]
  public private(set) var values: [(link: LinkID, handle: AttributeHandle, value: [UInt8], isIndication: Bool)] = []
  public private(set) var written: [(handle: AttributeHandle, value: [UInt8])] = []
  public private(set) var questions: [(id: ServerRequestID, handle: AttributeHandle, value: [UInt8]?)] = []
  public private(set) var subscriptions: [(link: LinkID, handle: AttributeHandle, ClientCharacteristicConfiguration)] =
    []
  public private(set) var mtus: [LinkID: Int] = [:]
  public private(set) var readyEdges = 0
  public private(set) var confirmations = 0
  public private(set) var violations: [String] = []
  public private(set) var isScanning = false
  public private(set) var isAdvertising = false
  private var lastRequest: UInt64 = 0

  public struct Heard: Sendable {
    public var peer: PeerAddress
    public var isScanResponse: Bool
    public var data: AdvertisingData
  }
  public enum Ending: Sendable, Equatable {
    case linked(LinkID)
    case done
    case value([UInt8])
    case failed(String)
    public var isSuccess: Bool { if case .failed = self { false } else { true } }
  }

  public init(_ database: Database = Database(), _ configure: (inout HostConfiguration) -> Void = { _ in }) {
    var configuration = HostConfiguration()
    configure(&configuration)
    core = HostCore(configuration: configuration, database: database)
  }

  /// A number for a request.
  public mutating func newID() -> RequestID {
    lastRequest += 1
    return RequestID(rawValue: lastRequest)
  }
  /// How the request ended; nil while it has not.
  public func ending(_ id: RequestID) -> Ending? { completions[id]?.first }

  public mutating func receive(_ packet: Span<UInt8>, now: Instant) {
    core.receive(packet, now: now)
    drain()
  }
  public mutating func nextPacket(into output: inout OutputRawSpan, now: Instant) -> Bool {
    let wrote = core.nextPacket(into: &output, now: now)
    drain()
    return wrote
  }
  public var deadline: Instant? { core.deadline }
  public mutating func expire(now: Instant) {
    core.expire(now: now)
    drain()
  }
  /// Takes what the core has to say. Call it after calling the core directly.
  public mutating func drain() {
    while let effect = core.nextEffect() { take(effect) }
  }

  private mutating func take(_ effect: HostEffect) {
    switch effect {
    case .started: isStarted = true
    case .startFailed(let failure): startFailure = failure
    case .controllerFailed: isStarted = false
    case .scanStarted: isScanning = true
    case .scanStopped: isScanning = false
    case .scanFailed(let status): violations.append("scan: \(status)")
    case .advertisement(let report):
      let data = core.withBytes(of: report.data) { AdvertisingData(decoding: $0) }
      advertisements.append(Heard(peer: report.peer, isScanResponse: report.isScanResponse, data: data))
    case .advertisingStarted: isAdvertising = true
    case .advertisingStopped: isAdvertising = false
    case .advertisingFailed(let status): violations.append("advertising: \(status)")
    case .linkUp(let link, let peer, let role, _):
      links.append(link)
      ups.append((link, peer, role))
    case .linkDown(let link, let reason):
      links.removeAll { $0 == link }
      downs.append((link, reason))
    case .parametersChanged: break
    case .mtuChanged(let link, let mtu): mtus[link] = mtu
    case .completed(let id, let result): completions[id, default: []].append(ending(of: result))
    case .value(let link, let handle, let range, let isIndication):
      values.append((link, handle, core.bytes(of: range), isIndication))
    case .subscriptionChanged(let link, let handle, let configuration):
      subscriptions.append((link, handle, configuration))
    case .written(_, let handle, let range, _): written.append((handle, core.bytes(of: range)))
    case .readRequested(let id, _, let handle, _): questions.append((id, handle, nil))
    case .writeRequested(let id, _, let handle, let range, _): questions.append((id, handle, core.bytes(of: range)))
    case .requestCancelled(let id, _): questions.removeAll { $0.id == id }
    case .readyToSend: readyEdges += 1
    case .indicationConfirmed: confirmations += 1
    case .violation(_, let violation): violations.append("\(violation)")
    }
  }
  private func ending(of result: HostResult) -> Ending {
    switch result {
    case .connected(let link): .linked(link)
    case .disconnected, .gatt(.done), .gatt(.discovered): .done
    case .gatt(.value(let range)), .gatt(.values(let range)): .value(core.bytes(of: range))
    case .gatt(.failed(let error)): .failed("\(error)")
    case .failed(let failure): .failed("\(failure)")
    }
  }
}
