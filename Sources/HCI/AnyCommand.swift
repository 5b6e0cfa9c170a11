import BindruneWire

/// A command that this stack supports, decoded. Vol 4, Part E, §5.4.1 and §7.
///
/// The package's only switches over commands are the two here: a new command is one case and one line in each.
public enum AnyCommand: BitwiseCopyable, Sendable {
  case disconnect(Disconnect)
  case readRemoteVersionInformation(ReadRemoteVersionInformation)
  case setEventMask(SetEventMask)
  case reset(Reset)
  case readTransmitPowerLevel(ReadTransmitPowerLevel)
  case setControllerToHostFlowControl(SetControllerToHostFlowControl)
  case hostBufferSize(HostBufferSize)
  case hostNumberOfCompletedPackets(HostNumberOfCompletedPackets)
  case setEventMaskPage2(SetEventMaskPage2)
  case writeLEHostSupport(WriteLEHostSupport)
  case readAuthenticatedPayloadTimeout(ReadAuthenticatedPayloadTimeout)
  case writeAuthenticatedPayloadTimeout(WriteAuthenticatedPayloadTimeout)
  case readLocalVersionInformation(ReadLocalVersionInformation)
  case readLocalSupportedCommands(ReadLocalSupportedCommands)
  case readLocalSupportedFeatures(ReadLocalSupportedFeatures)
  case readBufferSize(ReadBufferSize)
  case readBDADDR(ReadBDADDR)
  case readRSSI(ReadRSSI)
  case leSetEventMask(LESetEventMask)
  case leReadBufferSize(LEReadBufferSize)
  case leReadLocalSupportedFeatures(LEReadLocalSupportedFeatures)
  case leSetRandomAddress(LESetRandomAddress)
  case leSetAdvertisingParameters(LESetAdvertisingParameters)
  case leReadAdvertisingPhysicalChannelTxPower(LEReadAdvertisingPhysicalChannelTxPower)
  case leSetAdvertisingData(LESetAdvertisingData)
  case leSetScanResponseData(LESetScanResponseData)
  case leSetAdvertisingEnable(LESetAdvertisingEnable)
  case leSetScanParameters(LESetScanParameters)
  case leSetScanEnable(LESetScanEnable)
  case leCreateConnection(LECreateConnection)
  case leCreateConnectionCancel(LECreateConnectionCancel)
  case leReadFilterAcceptListSize(LEReadFilterAcceptListSize)
  case leClearFilterAcceptList(LEClearFilterAcceptList)
  case leAddDeviceToFilterAcceptList(LEAddDeviceToFilterAcceptList)
  case leRemoveDeviceFromFilterAcceptList(LERemoveDeviceFromFilterAcceptList)
  case leConnectionUpdate(LEConnectionUpdate)
  case leSetHostChannelClassification(LESetHostChannelClassification)
  case leReadChannelMap(LEReadChannelMap)
  case leReadRemoteFeatures(LEReadRemoteFeatures)
  case leEncrypt(LEEncrypt)
  case leRand(LERand)
  case leEnableEncryption(LEEnableEncryption)
  case leLongTermKeyRequestReply(LELongTermKeyRequestReply)
  case leLongTermKeyRequestNegativeReply(LELongTermKeyRequestNegativeReply)
  case leReadSupportedStates(LEReadSupportedStates)
  case leReceiverTest(LEReceiverTest)
  case leTransmitterTest(LETransmitterTest)
  case leTestEnd(LETestEnd)
  case leRemoteConnectionParameterRequestReply(LERemoteConnectionParameterRequestReply)
  case leRemoteConnectionParameterRequestNegativeReply(LERemoteConnectionParameterRequestNegativeReply)
  case leSetDataLength(LESetDataLength)
  case leReadSuggestedDefaultDataLength(LEReadSuggestedDefaultDataLength)
  case leWriteSuggestedDefaultDataLength(LEWriteSuggestedDefaultDataLength)
  case leAddDeviceToResolvingList(LEAddDeviceToResolvingList)
  case leRemoveDeviceFromResolvingList(LERemoveDeviceFromResolvingList)
  case leClearResolvingList(LEClearResolvingList)
  case leReadResolvingListSize(LEReadResolvingListSize)
  case leReadPeerResolvableAddress(LEReadPeerResolvableAddress)
  case leReadLocalResolvableAddress(LEReadLocalResolvableAddress)
  case leSetAddressResolutionEnable(LESetAddressResolutionEnable)
  case leSetResolvablePrivateAddressTimeout(LESetResolvablePrivateAddressTimeout)
  case leReadMaximumDataLength(LEReadMaximumDataLength)
  case leReadPHY(LEReadPHY)
  case leSetDefaultPHY(LESetDefaultPHY)
  case leSetPHY(LESetPHY)
  case leReceiverTestV2(LEReceiverTestV2)
  case leTransmitterTestV2(LETransmitterTestV2)
  case leSetAdvertisingSetRandomAddress(LESetAdvertisingSetRandomAddress)
  case leSetExtendedAdvertisingParameters(LESetExtendedAdvertisingParameters)
  case leSetExtendedAdvertisingData(LESetExtendedAdvertisingData)
  case leSetExtendedScanResponseData(LESetExtendedScanResponseData)
  case leSetExtendedAdvertisingEnable(LESetExtendedAdvertisingEnable)
  case leReadMaximumAdvertisingDataLength(LEReadMaximumAdvertisingDataLength)
  case leReadNumberOfSupportedAdvertisingSets(LEReadNumberOfSupportedAdvertisingSets)
  case leRemoveAdvertisingSet(LERemoveAdvertisingSet)
  case leClearAdvertisingSets(LEClearAdvertisingSets)
  case leSetExtendedScanParameters(LESetExtendedScanParameters)
  case leSetExtendedScanEnable(LESetExtendedScanEnable)
  case leExtendedCreateConnection(LEExtendedCreateConnection)
  case leReadRFPathCompensation(LEReadRFPathCompensation)
  case leWriteRFPathCompensation(LEWriteRFPathCompensation)
  case leSetPrivacyMode(LESetPrivacyMode)
  case leReadBufferSizeV2(LEReadBufferSizeV2)
  /// Any other opcode, with its parameters.
  case unknown(HCIOpcode, Octets)

  /// A command with the parameters from `reader`; nil when this stack does not support the opcode.
  init?<R: CommandReader>(_ opcode: HCIOpcode, _ reader: inout R) throws(WireError) {
    switch opcode.rawValue {
    case 0x0406: self = .disconnect(try reader.read())
    case 0x041D: self = .readRemoteVersionInformation(try reader.read())
    case 0x0C01: self = .setEventMask(try reader.read())
    case 0x0C03: self = .reset(try reader.read())
    case 0x0C2D: self = .readTransmitPowerLevel(try reader.read())
    case 0x0C31: self = .setControllerToHostFlowControl(try reader.read())
    case 0x0C33: self = .hostBufferSize(try reader.read())
    case 0x0C35: self = .hostNumberOfCompletedPackets(try reader.read())
    case 0x0C63: self = .setEventMaskPage2(try reader.read())
    case 0x0C6D: self = .writeLEHostSupport(try reader.read())
    case 0x0C7B: self = .readAuthenticatedPayloadTimeout(try reader.read())
    case 0x0C7C: self = .writeAuthenticatedPayloadTimeout(try reader.read())
    case 0x1001: self = .readLocalVersionInformation(try reader.read())
    case 0x1002: self = .readLocalSupportedCommands(try reader.read())
    case 0x1003: self = .readLocalSupportedFeatures(try reader.read())
    case 0x1005: self = .readBufferSize(try reader.read())
    case 0x1009: self = .readBDADDR(try reader.read())
    case 0x1405: self = .readRSSI(try reader.read())
    case 0x2001: self = .leSetEventMask(try reader.read())
    case 0x2002: self = .leReadBufferSize(try reader.read())
    case 0x2003: self = .leReadLocalSupportedFeatures(try reader.read())
    case 0x2005: self = .leSetRandomAddress(try reader.read())
    case 0x2006: self = .leSetAdvertisingParameters(try reader.read())
    case 0x2007: self = .leReadAdvertisingPhysicalChannelTxPower(try reader.read())
    case 0x2008: self = .leSetAdvertisingData(try reader.read())
    case 0x2009: self = .leSetScanResponseData(try reader.read())
    case 0x200A: self = .leSetAdvertisingEnable(try reader.read())
    case 0x200B: self = .leSetScanParameters(try reader.read())
    case 0x200C: self = .leSetScanEnable(try reader.read())
    case 0x200D: self = .leCreateConnection(try reader.read())
    case 0x200E: self = .leCreateConnectionCancel(try reader.read())
    case 0x200F: self = .leReadFilterAcceptListSize(try reader.read())
    case 0x2010: self = .leClearFilterAcceptList(try reader.read())
    case 0x2011: self = .leAddDeviceToFilterAcceptList(try reader.read())
    case 0x2012: self = .leRemoveDeviceFromFilterAcceptList(try reader.read())
    case 0x2013: self = .leConnectionUpdate(try reader.read())
    case 0x2014: self = .leSetHostChannelClassification(try reader.read())
    case 0x2015: self = .leReadChannelMap(try reader.read())
    case 0x2016: self = .leReadRemoteFeatures(try reader.read())
    case 0x2017: self = .leEncrypt(try reader.read())
    case 0x2018: self = .leRand(try reader.read())
    case 0x2019: self = .leEnableEncryption(try reader.read())
    case 0x201A: self = .leLongTermKeyRequestReply(try reader.read())
    case 0x201B: self = .leLongTermKeyRequestNegativeReply(try reader.read())
    case 0x201C: self = .leReadSupportedStates(try reader.read())
    case 0x201D: self = .leReceiverTest(try reader.read())
    case 0x201E: self = .leTransmitterTest(try reader.read())
    case 0x201F: self = .leTestEnd(try reader.read())
    case 0x2020: self = .leRemoteConnectionParameterRequestReply(try reader.read())
    case 0x2021: self = .leRemoteConnectionParameterRequestNegativeReply(try reader.read())
    case 0x2022: self = .leSetDataLength(try reader.read())
    case 0x2023: self = .leReadSuggestedDefaultDataLength(try reader.read())
    case 0x2024: self = .leWriteSuggestedDefaultDataLength(try reader.read())
    case 0x2027: self = .leAddDeviceToResolvingList(try reader.read())
    case 0x2028: self = .leRemoveDeviceFromResolvingList(try reader.read())
    case 0x2029: self = .leClearResolvingList(try reader.read())
    case 0x202A: self = .leReadResolvingListSize(try reader.read())
    case 0x202B: self = .leReadPeerResolvableAddress(try reader.read())
    case 0x202C: self = .leReadLocalResolvableAddress(try reader.read())
    case 0x202D: self = .leSetAddressResolutionEnable(try reader.read())
    case 0x202E: self = .leSetResolvablePrivateAddressTimeout(try reader.read())
    case 0x202F: self = .leReadMaximumDataLength(try reader.read())
    case 0x2030: self = .leReadPHY(try reader.read())
    case 0x2031: self = .leSetDefaultPHY(try reader.read())
    case 0x2032: self = .leSetPHY(try reader.read())
    case 0x2033: self = .leReceiverTestV2(try reader.read())
    case 0x2034: self = .leTransmitterTestV2(try reader.read())
    case 0x2035: self = .leSetAdvertisingSetRandomAddress(try reader.read())
    case 0x2036: self = .leSetExtendedAdvertisingParameters(try reader.read())
    case 0x2037: self = .leSetExtendedAdvertisingData(try reader.read())
    case 0x2038: self = .leSetExtendedScanResponseData(try reader.read())
    case 0x2039: self = .leSetExtendedAdvertisingEnable(try reader.read())
    case 0x203A: self = .leReadMaximumAdvertisingDataLength(try reader.read())
    case 0x203B: self = .leReadNumberOfSupportedAdvertisingSets(try reader.read())
    case 0x203C: self = .leRemoveAdvertisingSet(try reader.read())
    case 0x203D: self = .leClearAdvertisingSets(try reader.read())
    case 0x2041: self = .leSetExtendedScanParameters(try reader.read())
    case 0x2042: self = .leSetExtendedScanEnable(try reader.read())
    case 0x2043: self = .leExtendedCreateConnection(try reader.read())
    case 0x204C: self = .leReadRFPathCompensation(try reader.read())
    case 0x204D: self = .leWriteRFPathCompensation(try reader.read())
    case 0x204E: self = .leSetPrivacyMode(try reader.read())
    case 0x2060: self = .leReadBufferSizeV2(try reader.read())
    default: return nil
    }
  }

  /// Passes the command to `visitor`, except `.unknown`.
  public func visit<V: CommandVisitor>(_ visitor: inout V) throws(WireError) {
    switch self {
    case .disconnect(let command): try visitor.visit(command)
    case .readRemoteVersionInformation(let command): try visitor.visit(command)
    case .setEventMask(let command): try visitor.visit(command)
    case .reset(let command): try visitor.visit(command)
    case .readTransmitPowerLevel(let command): try visitor.visit(command)
    case .setControllerToHostFlowControl(let command): try visitor.visit(command)
    case .hostBufferSize(let command): try visitor.visit(command)
    case .hostNumberOfCompletedPackets(let command): try visitor.visit(command)
    case .setEventMaskPage2(let command): try visitor.visit(command)
    case .writeLEHostSupport(let command): try visitor.visit(command)
    case .readAuthenticatedPayloadTimeout(let command): try visitor.visit(command)
    case .writeAuthenticatedPayloadTimeout(let command): try visitor.visit(command)
    case .readLocalVersionInformation(let command): try visitor.visit(command)
    case .readLocalSupportedCommands(let command): try visitor.visit(command)
    case .readLocalSupportedFeatures(let command): try visitor.visit(command)
    case .readBufferSize(let command): try visitor.visit(command)
    case .readBDADDR(let command): try visitor.visit(command)
    case .readRSSI(let command): try visitor.visit(command)
    case .leSetEventMask(let command): try visitor.visit(command)
    case .leReadBufferSize(let command): try visitor.visit(command)
    case .leReadLocalSupportedFeatures(let command): try visitor.visit(command)
    case .leSetRandomAddress(let command): try visitor.visit(command)
    case .leSetAdvertisingParameters(let command): try visitor.visit(command)
    case .leReadAdvertisingPhysicalChannelTxPower(let command): try visitor.visit(command)
    case .leSetAdvertisingData(let command): try visitor.visit(command)
    case .leSetScanResponseData(let command): try visitor.visit(command)
    case .leSetAdvertisingEnable(let command): try visitor.visit(command)
    case .leSetScanParameters(let command): try visitor.visit(command)
    case .leSetScanEnable(let command): try visitor.visit(command)
    case .leCreateConnection(let command): try visitor.visit(command)
    case .leCreateConnectionCancel(let command): try visitor.visit(command)
    case .leReadFilterAcceptListSize(let command): try visitor.visit(command)
    case .leClearFilterAcceptList(let command): try visitor.visit(command)
    case .leAddDeviceToFilterAcceptList(let command): try visitor.visit(command)
    case .leRemoveDeviceFromFilterAcceptList(let command): try visitor.visit(command)
    case .leConnectionUpdate(let command): try visitor.visit(command)
    case .leSetHostChannelClassification(let command): try visitor.visit(command)
    case .leReadChannelMap(let command): try visitor.visit(command)
    case .leReadRemoteFeatures(let command): try visitor.visit(command)
    case .leEncrypt(let command): try visitor.visit(command)
    case .leRand(let command): try visitor.visit(command)
    case .leEnableEncryption(let command): try visitor.visit(command)
    case .leLongTermKeyRequestReply(let command): try visitor.visit(command)
    case .leLongTermKeyRequestNegativeReply(let command): try visitor.visit(command)
    case .leReadSupportedStates(let command): try visitor.visit(command)
    case .leReceiverTest(let command): try visitor.visit(command)
    case .leTransmitterTest(let command): try visitor.visit(command)
    case .leTestEnd(let command): try visitor.visit(command)
    case .leRemoteConnectionParameterRequestReply(let command): try visitor.visit(command)
    case .leRemoteConnectionParameterRequestNegativeReply(let command): try visitor.visit(command)
    case .leSetDataLength(let command): try visitor.visit(command)
    case .leReadSuggestedDefaultDataLength(let command): try visitor.visit(command)
    case .leWriteSuggestedDefaultDataLength(let command): try visitor.visit(command)
    case .leAddDeviceToResolvingList(let command): try visitor.visit(command)
    case .leRemoveDeviceFromResolvingList(let command): try visitor.visit(command)
    case .leClearResolvingList(let command): try visitor.visit(command)
    case .leReadResolvingListSize(let command): try visitor.visit(command)
    case .leReadPeerResolvableAddress(let command): try visitor.visit(command)
    case .leReadLocalResolvableAddress(let command): try visitor.visit(command)
    case .leSetAddressResolutionEnable(let command): try visitor.visit(command)
    case .leSetResolvablePrivateAddressTimeout(let command): try visitor.visit(command)
    case .leReadMaximumDataLength(let command): try visitor.visit(command)
    case .leReadPHY(let command): try visitor.visit(command)
    case .leSetDefaultPHY(let command): try visitor.visit(command)
    case .leSetPHY(let command): try visitor.visit(command)
    case .leReceiverTestV2(let command): try visitor.visit(command)
    case .leTransmitterTestV2(let command): try visitor.visit(command)
    case .leSetAdvertisingSetRandomAddress(let command): try visitor.visit(command)
    case .leSetExtendedAdvertisingParameters(let command): try visitor.visit(command)
    case .leSetExtendedAdvertisingData(let command): try visitor.visit(command)
    case .leSetExtendedScanResponseData(let command): try visitor.visit(command)
    case .leSetExtendedAdvertisingEnable(let command): try visitor.visit(command)
    case .leReadMaximumAdvertisingDataLength(let command): try visitor.visit(command)
    case .leReadNumberOfSupportedAdvertisingSets(let command): try visitor.visit(command)
    case .leRemoveAdvertisingSet(let command): try visitor.visit(command)
    case .leClearAdvertisingSets(let command): try visitor.visit(command)
    case .leSetExtendedScanParameters(let command): try visitor.visit(command)
    case .leSetExtendedScanEnable(let command): try visitor.visit(command)
    case .leExtendedCreateConnection(let command): try visitor.visit(command)
    case .leReadRFPathCompensation(let command): try visitor.visit(command)
    case .leWriteRFPathCompensation(let command): try visitor.visit(command)
    case .leSetPrivacyMode(let command): try visitor.visit(command)
    case .leReadBufferSizeV2(let command): try visitor.visit(command)
    case .unknown: break
    }
  }
}

/// A source of a command's parameters.
protocol CommandReader { mutating func read<C: HCICommand>() throws(WireError) -> C }
extension WireDecoder: CommandReader {
  mutating func read<C: HCICommand>() throws(WireError) -> C { try message(C.self) }
}
/// The default parameters.
struct Defaults: CommandReader, EventReader {
  func read<C: HCICommand>() -> C { C() }
  func read<E: HCIEventMessage>() -> E { E() }
}
/// Receives one command and its type.
public protocol CommandVisitor { mutating func visit<C: HCICommand>(_ command: C) throws(WireError) }

extension AnyCommand {
  /// The command in `packet`, H4 packet type octet first. Ranges in it refer to `packet`.
  public init(_ packet: Span<UInt8>) throws(WireError) {
    let header = try WireDecoder.decode(CommandHeader.self, packet, to: min(packet.count, CommandHeader.count))
    let parameters = Octets(CommandHeader.count, packet.count - CommandHeader.count)
    defer { extendLifetime(packet) }
    var decoder = try unsafe WireDecoder(packet), skipped = CommandHeader()
    try skipped.fields(&decoder)
    self = try AnyCommand(header.opcode, &decoder) ?? .unknown(header.opcode, parameters)
    try checkTotalLength(header.parameterTotalLength, Int(parameters.count))
  }

  /// The command of `opcode` with default parameters; nil when this stack does not support it.
  public init?(default opcode: HCIOpcode) {
    var defaults = Defaults()
    do throws(WireError) {
      guard let command = try AnyCommand(opcode, &defaults) else { return nil }
      self = command
    } catch {
      return nil
    }
  }

  public var opcode: HCIOpcode { facts.opcode }
  /// `HCI_LE_Set_Scan_Enable`; `Unknown Command` for an opcode that this stack does not support.
  public var name: StaticString { facts.name }
  public var isAnsweredByStatus: Bool { facts.isAnsweredByStatus }
  /// See `HCICommand.isDispensable`.
  public var isDispensable: Bool { facts.isDispensable }
  /// Its bit of Read Local Supported Commands; nil for a command without one, and for `.unknown`.
  public var supportedBit: SupportedCommandBit? { facts.supportedBit }
  private var facts: Facts {
    var facts = Facts()
    if case .unknown(let opcode, _) = self { facts.opcode = opcode }
    do throws(WireError) { try visit(&facts) } catch {}
    return facts
  }

  /// Appends the packet, H4 packet type octet first; ranges are copied from `source`.
  public func writePacket(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    try output.appendAll { output, start throws(WireError) in
      try CommandHeader(opcode).encode(into: &output, from: source)
      var encoder = unsafe WireEncoder(&output, source)
      if case .unknown(_, var parameters) = self { try encoder.octets("Parameters", &parameters) }
      try visit(&encoder)
      unsafe encoder.commit(&output)
      try CommandHeader.close(&output, from: start)
    }
  }

  /// The parameters as text; empty when there are none.
  public func describe(in packet: Span<UInt8>) -> String {
    unsafe packet.withUnsafeBufferPointer { bytes in
      var text = unsafe Text(bytes)
      if case .unknown(_, let parameters) = self {
        text.text = unsafe UnknownParameters(parameters: parameters).description(in: bytes.span)
      }
      do throws(WireError) { try visit(&text) } catch {}
      return text.text
    }
  }
  /// The return parameters of a Command Complete for this command as text.
  public func describe(return parameters: Octets, in packet: Span<UInt8>) -> String {
    unsafe packet.withUnsafeBufferPointer { bytes in
      var text = unsafe ReturnText(bytes, parameters)
      text.text = unsafe UnknownParameters("Return_Parameters", parameters: parameters).description(in: bytes.span)
      // Parameters that do not decode stay hex.
      do throws(WireError) { try visit(&text) } catch {}
      return text.text
    }
  }
}

extension WireEncoder: CommandVisitor, EventVisitor {
  public mutating func visit<C: HCICommand>(_ command: C) throws(WireError) { try message(command) }
  public mutating func visit<E: HCIEventMessage>(_ event: E) throws(WireError) { try message(event) }
}
private struct Facts: CommandVisitor {
  var opcode = HCIOpcode(), name: StaticString = "Unknown Command", isAnsweredByStatus = false, isDispensable = false
  var supportedBit: SupportedCommandBit?
  mutating func visit<C: HCICommand>(_: C) {
    opcode = C.opcode
    name = C.name
    isAnsweredByStatus = C.isAnsweredByStatus
    isDispensable = C.isDispensable
    supportedBit = C.supportedBit
  }
}
@safe struct Text: CommandVisitor, EventVisitor {
  private let packet: UnsafeBufferPointer<UInt8>
  var text = ""
  init(_ packet: UnsafeBufferPointer<UInt8>) { unsafe self.packet = packet }
  mutating func visit<C: HCICommand>(_ command: C) { text = unsafe command.description(in: packet.span) }
  mutating func visit<E: HCIEventMessage>(_ event: E) { text = unsafe event.description(in: packet.span) }
}
@safe private struct ReturnText: CommandVisitor {
  private let packet: UnsafeBufferPointer<UInt8>
  private let parameters: Octets
  var text = ""
  init(_ packet: UnsafeBufferPointer<UInt8>, _ parameters: Octets) {
    unsafe self.packet = packet
    self.parameters = parameters
  }
  mutating func visit<C: HCICommand>(_: C) throws(WireError) {
    text = unsafe try C.decodeReturn(parameters, in: packet.span).description(in: packet.span)
  }
}
struct UnknownParameters: WireRecord {
  var label: StaticString = "Parameters", parameters = Octets()
  init() {}
  init(_ label: StaticString = "Parameters", parameters: Octets) {
    self.label = label
    self.parameters = parameters
  }
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    if !parameters.isEmpty { try visit.octets(label, &parameters) }
  }
}
