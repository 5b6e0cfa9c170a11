import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI

/// The features of a peer's link layer, as our controller has read them. Vol 6, Part B, §4.6.
///
/// Pages after page 0 are there if both controllers have the LL Extended Feature Set.
public struct RemoteFeatures: Sendable, Hashable, CustomStringConvertible {
  /// All pages, without the zeros at the end: 8 octets for page 0 and 24 for each further one.
  public let octets: [UInt8]

  public init(_ octets: [UInt8]) {
    self.octets = octets.lastIndex { $0 != 0 }.map { Array(octets[...$0]) } ?? []
  }
  public init(_ page0: LEFeatures) {
    self.init((0..<8).map { UInt8(truncatingIfNeeded: page0.rawValue >> (8 * $0)) })
  }

  public var page0: LEFeatures {
    LEFeatures(rawValue: octets.prefix(8).reversed().reduce(0) { $0 << 8 | UInt64($1) })
  }
  /// Whether each of these features of page 0 is supported.
  public func contains(_ features: LEFeatures) -> Bool { page0.isSuperset(of: features) }
  /// Whether the feature with this bit position is supported: 0 … 63 on page 0, 64 … 255 on page 1, and so on.
  public subscript(bit: Int) -> Bool {
    octets.indices.contains(bit / 8) && bit >= 0 && octets[bit / 8] >> (bit % 8) & 1 == 1
  }

  /// Page 0, and the bit positions of all features of further pages.
  public var description: String {
    (64..<max(64, 8 * octets.count)).filter { self[$0] }.reduce(page0.text) { "\($0), bit \($1)" }
  }
}

extension HostCore {
  /// The features of the link's peer. Ends with `.completed(id, .features)`; with a refusal, 0x1A, if the peer does not
  /// tell them, and 0x22 if the controller reports nothing for 40 s. The controllers exchange them for the first
  /// request on a link, the later ones have the same answer. Vol 6, Part B, §5.1.4; Vol 4, Part E, §7.8.21, §7.8.129.
  public mutating func readFeatures(_ link: LinkID, id: RequestID, now: Instant) {
    guard let index = upper.index(of: link) else { return emit(.completed(id, .failed(.noSuchLink))) }
    if let features = upper.links[index].features {
      return emit(.completed(id, .features(upper.batch.keep(features.octets.span))))
    }
    withLink(at: index) { _ = $0.requests.wait(id, for: .features) }
    if upper.links[index].procedures[.featureExchange] != nil { return }
    let handle = begin(.featureExchange, at: index, now), tag = Sender.features.tag(handle)
    if readsAllPages {
      hci.send(LEReadAllRemoteFeatures.with { $0.connectionHandle = handle }, tag: tag, now: now)
    } else {
      hci.send(LEReadRemoteFeatures.with { $0.connectionHandle = handle }, tag: tag, now: now)
    }
    drain(now)
  }
  /// The controller has the command for all pages, and sends its event.
  private var readsAllPages: Bool {
    guard let controller else { return false }
    return hci.supports(LEReadAllRemoteFeatures.opcode)
      && controller.leEventMask.contains(.readAllRemoteFeaturesComplete)
  }

  // MARK: From the controller

  /// LE Read Remote Features Complete, LE Read All Remote Features Complete. An application may have sent such a
  /// command: its answer may have fewer pages than ours.
  mutating func featuresRead(_ handle: ConnectionHandle, _ status: HCIStatus, _ features: RemoteFeatures) {
    guard let index = upper.index(of: handle), upper.links[index].procedures[.featureExchange] != nil else { return }
    guard status == .success else { return featuresEnded(.failed(.refused(.readFeatures, status)), at: index) }
    withLink(at: index) { $0.features = features }
    featuresEnded(.features(upper.batch.keep(features.octets.span)), at: index)
  }
  mutating func featuresRefused(_ outcome: CommandOutcome, _ handle: ConnectionHandle) {
    guard let index = upper.index(of: handle) else { return }
    featuresEnded(.failed(outcome.failure(of: .readFeatures)), at: index)
  }
  mutating func featuresEnded(_ result: HostResult, at index: Int) {
    let waiting = withLink(at: index) {
      $0.procedures.end(.featureExchange)
      return $0.requests.take(.features)
    }
    for id in waiting { emit(.completed(id, result)) }
  }
}
