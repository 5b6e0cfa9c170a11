import BindruneWire
import BindruneHCI

/// An address on the air: TxAdd or RxAdd, and 48 bits. Vol 6, Part B, §1.3.
struct AirAddress: BitwiseCopyable, Equatable {
  var isRandom: Bool, value: DeviceAddress
  init(isRandom: Bool, _ value: DeviceAddress) {
    self.isRandom = isRandom
    self.value = value
  }
  /// The address in a command; identity types (2, 3) resolve to themselves without a resolving list.
  init(_ type: AddressType, _ value: DeviceAddress) { self.init(isRandom: type.rawValue & 1 == 1, value) }
  var type: AddressType { AddressType(rawValue: isRandom ? 1 : 0) }
  var isResolvablePrivate: Bool { isRandom && value.randomKind == .resolvablePrivate }
}

/// When a receiver is on, and on which channel: a window in every interval, each interval on the next channel.
/// Vol 6, Part B, §4.4.3.
struct Listening {
  var start = Instant.zero
  var interval = ScanInterval(rawValue: 0x0010), window = ScanInterval(rawValue: 0x0010)

  func hears(channel: Int, at time: Instant) -> Bool {
    guard interval.rawValue > 0, time >= start else { return false }
    let elapsed = UInt64((time - start).nanoseconds), length = UInt64(interval.rawValue) * 625_000
    return Int(elapsed / length % 3) == channel && elapsed % length < UInt64(window.rawValue) * 625_000
  }
}

extension ScanningFilterPolicy {
  var usesAcceptList: Bool { rawValue & 1 == 1 }
  var isExtended: Bool { rawValue & 2 == 2 }
}
/// The target of an advertisement that a scanner accepts.
enum AdvertisingTarget {
  /// Undirected.
  case anybody
  /// The scanner itself.
  case scanner(Identified)
  /// A resolvable private address that the scanner's controller cannot resolve.
  case unresolved(AirAddress)

  var isUnresolved: Bool { if case .unresolved = self { true } else { false } }
}

/// How a scanner listens on one primary PHY.
struct PHYScan { var isActive = false, listening = Listening() }

/// The scanning state. Vol 6, Part B, §4.4.3.
struct Scanner {
  var isEnabled = false, isExtended = false
  /// nil: no scanning on that PHY.
  var le1M: PHYScan? = PHYScan(), leCoded: PHYScan?
  var generation: UInt32 = 0
  var ownAddressType = OwnAddressType()
  var filterPolicy = ScanningFilterPolicy.basicUnfiltered
  var filtersDuplicates = false, forgetsEachPeriod = false
  /// For extended scanning; `nil`: until it is disabled.
  var duration: Duration?, period: Duration?
  /// In the part of a period after the duration.
  var isPausing = false
  /// What has been reported. Bounded: the oldest entry is dropped and reported again.
  private var seen: [Seen] = []

  init(generation: UInt32 = 0) { self.generation = generation }

  private struct Seen: Equatable {
    var address: AirAddress, isResponse: Bool, sid: UInt8, did: UInt16
  }
  mutating func start(extended: Bool, at now: Instant) {
    isEnabled = true
    isExtended = extended
    isPausing = false
    generation &+= 1
    le1M?.listening.start = now
    leCoded?.listening.start = now
    forget()
    duration = nil
    period = nil
    forgetsEachPeriod = false
  }
  mutating func stop() {
    isEnabled = false
    generation &+= 1
  }
  subscript(primary: PHY) -> PHYScan? { primary == .leCoded ? leCoded : le1M }
  mutating func forget() { seen.removeAll(keepingCapacity: true) }
  /// Whether to report this kind of PDU of this device. Vol 6, Part B, §4.4.3.5: the data do not matter for legacy
  /// PDUs; with extended ones SID and DID show whether they are new.
  mutating func admits(_ advertiser: Advertiser, _ address: AirAddress, isResponse: Bool) -> Bool {
    if !filtersDuplicates { return true }
    let entry = Seen(
      address: address, isResponse: isResponse, sid: advertiser.isLegacy ? 0xFF : advertiser.sid,
      did: advertiser.isLegacy ? 0 : advertiser.did)
    if seen.contains(entry) { return false }
    if seen.count == 512 { seen.removeFirst() }
    seen.append(entry)
    return true
  }
}

/// The initiating state. Vol 6, Part B, §4.4.4.
struct Initiator {
  /// `nil`: any device on the Filter Accept List.
  var peer: AirAddress?
  /// Whether it also receives extended PDUs.
  var isExtended: Bool
  var ownAddressType: OwnAddressType
  /// The primary PHYs on which it listens; nil: it does not.
  var le1M: Listening?, leCoded: Listening?
  /// Parameters of a link on each PHY; nil if the host has set none.
  var requests: (le1M: LinkRequest?, le2M: LinkRequest?, leCoded: LinkRequest?)

  subscript(primary: PHY) -> Listening? { primary == .leCoded ? leCoded : le1M }
  var isValid: Bool { [requests.le1M, requests.le2M, requests.leCoded].allSatisfy { $0?.isValid ?? true } }
  /// The initial parameters of a link on this PHY. If the host has set none for it, the first ones that it has set.
  func parameters(on phy: PHY) -> LinkParameters? {
    let own = phy == .le2M ? requests.le2M : phy == .leCoded ? requests.leCoded : requests.le1M
    return (own ?? requests.le1M ?? requests.le2M ?? requests.leCoded)?.chosen
  }
}
