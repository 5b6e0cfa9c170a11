import BasicContainers
import BindruneWire
import BindruneHCI

// Advertisements of the application. Vol 3, Part C, §9.1.1, §9.2, §9.3.
extension HostCore {
  // MARK: From above

  /// How many sets this controller advertises at once: at most 16, by their SIDs.
  public var maximumAdvertisingSets: Int { advertiser.capacity }
  /// Advertises, concurrently with other numbers, up to `ControllerInfo.maximumAdvertisingSets` sets at once. Ends with
  /// `.advertisingStarted` or `.advertisingFailed`; `.advertisingStopped` follows at the end. Of several calls in a row
  /// for one number the last one prevails, and has the one outcome; a duration or a number of events restarts. If only
  /// data of up to 251 octets change, advertising continues without a gap. Returns what is sent and what is left out.
  @discardableResult
  public mutating func advertise(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters(),
    as id: AdvertisingSetID = .first, now: Instant
  ) throws(AdvertisingError) -> PackedAdvertisement {
    try advertise([parameters.source(of: data)], parameters, as: id, now: now)
  }
  /// The same for the data of several applications in one advertisement, which share its room. The sources say which of
  /// them are in the background, and `parameters` need not.
  @discardableResult
  public mutating func advertise(
    _ sources: [AdvertisingPacker.Source], _ parameters: AdvertisingParameters, as id: AdvertisingSetID = .first,
    now: Instant
  ) throws(AdvertisingError) -> PackedAdvertisement {
    try parameters.check(usesExtendedCommands: controller?.usesExtendedCommands == true)
    let packed = try packed(sources, parameters)
    guard phase == .running, privacy.permitsConnections || !parameters.kind.isConnectable else {
      emit(.advertisingFailed(id, .commandDisallowed))
      return packed
    }
    try advertiser.advertise(packed.payloads, parameters, as: id, hci: &hci, now: now)
    drain(now)
    return packed
  }
  /// Changes the data of an advertising set; its duration and its number of events continue. Ends as `advertise` does.
  @discardableResult
  public mutating func setAdvertisingData(
    _ data: AdvertisingData, of id: AdvertisingSetID = .first, now: Instant
  ) throws(AdvertisingError) -> PackedAdvertisement {
    guard let parameters = advertiser.parameters(of: id) else { throw .notAdvertising(id) }
    let packed = try packed([parameters.source(of: data)], parameters)
    advertiser.change(id, packed.payloads, hci: &hci, now: now)
    drain(now)
    return packed
  }
  /// Ends with `.advertisingStopped`.
  public mutating func stopAdvertising(_ id: AdvertisingSetID = .first, now: Instant) {
    advertiser.stop(id, hci: &hci, now: now)
    drain(now)
  }

  // MARK: Data

  private func packed(
    _ sources: [AdvertisingPacker.Source], _ parameters: AdvertisingParameters
  ) throws(AdvertisingError) -> PackedAdvertisement {
    do throws(AdvertisingDataError) { return try pack(sources, parameters) } catch { throw .data(error) }
  }
  /// What `advertise` would send on this controller, and what it would leave out.
  public func pack(
    _ data: AdvertisingData, _ parameters: AdvertisingParameters = AdvertisingParameters()
  ) throws(AdvertisingDataError) -> PackedAdvertisement {
    try pack([parameters.source(of: data)], parameters)
  }
  private func pack(
    _ sources: [AdvertisingPacker.Source], _ parameters: AdvertisingParameters
  ) throws(AdvertisingDataError) -> PackedAdvertisement {
    // ADV_DIRECT_IND has no data.
    if parameters.kind.peer != nil { return PackedAdvertisement(advertising: 0, scanResponse: 0) }
    let isExtended = controller?.usesExtendedCommands == true
    if !isExtended, parameters.maximumEvents != nil { throw .extendedUnavailable }
    let packer = AdvertisingPacker(
      parameters.policy, kind: parameters.kind,
      longestExtended: isExtended ? controller?.maximumAdvertisingDataLength : nil)
    let packed = packer.pack(sources)
    if parameters.policy == .everything, !packed.missed.isEmpty { throw .leftOut(packed.missed) }
    return packed
  }

  // MARK: Outcomes

  mutating func reportAdvertising() {
    while let (id, outcome) = advertiser.nextOutcome() {
      switch outcome {
      case .started: emit(.advertisingStarted(id))
      case .ended(let reason): emit(.advertisingStopped(id, reason))
      case .failed(let status): emit(.advertisingFailed(id, status))
      }
    }
  }
}
