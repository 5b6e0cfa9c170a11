/// A rule of the Specification that a trace can show kept or broken, for ``Checker``.
///
/// The table below has each rule's id, its section of the Bluetooth Core Specification 5.4 (CSS: the Supplement,
/// version 11), and what it demands, in one sentence. `Fixtures/Checks` has a trace that keeps it and one that breaks
/// it.
public enum CheckRule: UInt8, CaseIterable, Hashable, Sendable {
  // MARK: HCI
  case packetType, commandDirection, eventDirection, commandLength, eventLength, dataLength, commandParameters
  case eventParameters, returnParameters, commandCredits, resetAlone, replyMatches, replyKind
  case advertisingParametersBusy, scanParametersBusy, randomAddressBusy, resolvingListBusy, createConnectionBusy
  case legacyOrExtended, advertisingIntervals, scanWindow, connectionIntervals, supervisionTimeout, eventLengths
  case advertisingSetKnown, encryptionByCentral, keyRequestToPeripheral, keyReplyAsked, encryptionCause
  case handleRange, handleUnique, connectionCause, connectionParameters, eventConnection, dataConnection, dataFlags
  case dataSize, dataCredits, completedPackets, eventMask, eventMaskLE, reportWhileScanning, randomAddressKind
  case commandSupported, encryptionKeySize

  // MARK: L2CAP
  case fragmentOrder, frameComplete, frameOverlong, channelKnown, channelOpen, signalSingle, signalLength, signalCode
  case signalIdentifier, signalResponse, signalReuse, updateByPeripheral, updateParameters, updateTimeout
  case signalTimeout, channelPSM, channelRange, channelUnique, channelMinimum, channelFirstCredits, channelCount
  case channelCredits, channelCreditLimit, segmentSize, unitSize, reconfiguredChannel, reconfiguredMTU, reconfiguredMPS

  // MARK: ATT
  case attributeEmpty, attributeOpcode, attributeShape, attributeMTU, mtuOnce, mtuMinimum, mtuSymmetric
  case oneRequest, responseAsked, responseKind, errorRequest, errorHandle, errorCode, oneIndication
  case confirmationAsked, transactionTimeout, handleZero, handleRangeOrder, listInRange, listAscending, listUniform
  case informationFormat, groupEnd, multipleHandles, valueLength, prepareEcho, executeFlags
  case multipleNotification, foundGroupEnd, enhancedEncrypted, enhancedMTU, afterTimeout

  // MARK: GATT
  case groupingType, serviceShape, servicesDisjoint, includeShape, characteristicShape, valueHandle, databaseStable
  case declarationValue, configurationShape, configurationWrite, configurationRead, notificationEnabled
  case indicationEnabled, notifyProperty, indicateProperty, notifiedHandle, multipleNotificationEnabled
  case signedUnencrypted, serviceChangedShape, databaseHashShape, profileValueShape, descriptorExists, readProperty
  case writeProperty, serviceOnce

  // MARK: SMP
  case pairingCode, pairingLength, pairingValues, pairingRoles, pairingOrder, pairingAfterFailure, pairingFailureReason
  case pairingTimeout, pairingKeysOffered, keyAgreed, keyOrder, keyResponderFirst, keyEncrypted, keyIdentityAddress
  case publicKeyCurve, publicKeyOwn, confirmValue, encryptionAfterPairing, identifiersZero

  // MARK: Advertising
  case structureLength, structureEnd, structureSize, structureContext, flagsModes, flagsInScanResponse, structureOnce
  case uuidListShape, serviceDataShape, manufacturerShape, nameText, intervalRange

  /// The part of the stack whose packets a rule is about; the first part of its id.
  public enum Area: String, CaseIterable, Sendable { case hci, l2cap, att, gatt, smp, ad }
  public var area: Area {
    let prefix = id.prefix { $0 != "." }
    return Area.allCases.first { $0.rawValue == prefix } ?? .hci
  }
  /// What `--only` and reports call it: `att.mtu`.
  public var id: String { "\(definition.0)" }
  /// Where the Specification demands it: `Vol 3, Part F, §3.2.8`.
  public var section: String { "\(definition.1)" }
  /// What it demands, as one sentence.
  public var sentence: String { "\(definition.2)" }
  /// The rule with this id.
  public init?(id: some StringProtocol) {
    guard let rule = CheckRule.allCases.first(where: { $0.id == id }) else { return nil }
    self = rule
  }
}
