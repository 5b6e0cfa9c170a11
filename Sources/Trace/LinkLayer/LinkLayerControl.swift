import BindruneHCI
import BindruneWire

/// A control PDU of the link layer: its opcode, then CtrData. Vol 6, Part B, §2.4.2.
protocol LinkLayerControl: WireRecord {
  static var opcode: UInt8 { get }
  static var name: String { get }
}
/// A control PDU without CtrData.
protocol EmptyLinkLayerControl: LinkLayerControl {}
extension EmptyLinkLayerControl {
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}

/// The list of control PDUs. Vol 6, Part B, §2.4.2, Table 2.18.
enum LinkLayerControls {
  static let all: [any LinkLayerControl.Type] = [
    LLConnectionUpdateInd.self, LLChannelMapInd.self, LLTerminateInd.self, LLEncReq.self, LLEncRsp.self,
    LLStartEncReq.self, LLStartEncRsp.self, LLUnknownRsp.self, LLFeatureReq.self, LLFeatureRsp.self, LLPauseEncReq.self,
    LLPauseEncRsp.self, LLVersionInd.self, LLRejectInd.self, LLPeripheralFeatureReq.self, LLConnectionParamReq.self,
    LLConnectionParamRsp.self, LLRejectExtInd.self, LLPingReq.self, LLPingRsp.self, LLLengthReq.self, LLLengthRsp.self,
    LLPHYReq.self, LLPHYRsp.self, LLPHYUpdateInd.self, LLMinUsedChannelsInd.self, LLCTEReq.self, LLCTERsp.self,
    LLPeriodicSyncInd.self, LLClockAccuracyReq.self, LLClockAccuracyRsp.self, LLCISReq.self, LLCISRsp.self,
    LLCISInd.self, LLCISTerminateInd.self, LLPowerControlReq.self, LLPowerControlRsp.self, LLPowerChangeInd.self,
    LLSubrateReq.self, LLSubrateInd.self, LLChannelReportingInd.self, LLChannelStatusInd.self,
    LLPeriodicSyncWithResponsesInd.self,
  ]
  static let byOpcode: [UInt8: any LinkLayerControl.Type] = Dictionary(
    uniqueKeysWithValues: all.map { ($0.opcode, $0) })

  /// The name and the fields of the PDU at this place of a packet; nil: its opcode is none.
  static func describe(
    _ packet: Span<UInt8>, _ place: Range<Int>
  ) throws(WireError) -> (name: String, fields: String)? {
    guard let type = byOpcode[packet[place.lowerBound]] else { return nil }
    return (type.name, try fields(of: type, packet, place.lowerBound + 1..<place.upperBound))
  }
  private static func fields<PDU: LinkLayerControl>(
    of _: PDU.Type, _ packet: Span<UInt8>, _ place: Range<Int>
  ) throws(WireError) -> String {
    try WireDecoder.decode(PDU.self, packet, from: place.lowerBound, to: place.upperBound).text(in: packet)
  }
}
extension WireRecord {
  /// The fields as text.
  func text(in packet: Span<UInt8>) -> String {
    defer { extendLifetime(packet) }
    var describer = unsafe WireDescriber(packet), record = self
    do throws(WireError) { try record.fields(&describer) } catch {}
    return describer.text
  }
}
