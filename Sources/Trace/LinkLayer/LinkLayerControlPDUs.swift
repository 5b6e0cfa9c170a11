import BindruneHCI
import BindruneWire

// The control PDUs up to version 4.2; their names and fields are the Specification's. Vol 6, Part B, §2.4.2.

/// LL_CONNECTION_UPDATE_IND.
struct LLConnectionUpdateInd: LinkLayerControl {
  static var opcode: UInt8 { 0x00 }
  static var name: String { "LL_CONNECTION_UPDATE_IND" }
  var winSize: UInt8 = 0
  var winOffset: UInt16 = 0
  var interval = ConnectionInterval()
  var latency: UInt16 = 0
  var timeout = SupervisionTimeout()
  var instant: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("WinSize", &winSize)
    try visit.value("WinOffset", &winOffset)
    try visit.value("Interval", &interval)
    try visit.value("Latency", &latency)
    try visit.value("Timeout", &timeout)
    try visit.value("Instant", &instant)
  }
}

/// LL_CHANNEL_MAP_IND.
struct LLChannelMapInd: LinkLayerControl {
  static var opcode: UInt8 { 0x01 }
  static var name: String { "LL_CHANNEL_MAP_IND" }
  var chM = Octets()
  var instant: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("ChM", &chM, .exactly(5))
    try visit.value("Instant", &instant)
  }
}

/// LL_TERMINATE_IND.
struct LLTerminateInd: LinkLayerControl {
  static var opcode: UInt8 { 0x02 }
  static var name: String { "LL_TERMINATE_IND" }
  var errorCode = HCIStatus.success
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("ErrorCode", &errorCode)
  }
}

/// LL_ENC_REQ.
struct LLEncReq: LinkLayerControl {
  static var opcode: UInt8 { 0x03 }
  static var name: String { "LL_ENC_REQ" }
  var rand = Octets()
  var ediv: UInt16 = 0
  var skdC = Octets()
  var ivC: UInt32 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Rand", &rand, .exactly(8))
    try visit.value("EDIV", &ediv)
    try visit.octets("SKD_C", &skdC, .exactly(8))
    try visit.value("IV_C", &ivC)
  }
}

/// LL_ENC_RSP.
struct LLEncRsp: LinkLayerControl {
  static var opcode: UInt8 { 0x04 }
  static var name: String { "LL_ENC_RSP" }
  var skdP = Octets()
  var ivP: UInt32 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("SKD_P", &skdP, .exactly(8))
    try visit.value("IV_P", &ivP)
  }
}

/// LL_START_ENC_REQ.
struct LLStartEncReq: EmptyLinkLayerControl {
  static var opcode: UInt8 { 0x05 }
  static var name: String { "LL_START_ENC_REQ" }
  init() {}
}

/// LL_START_ENC_RSP.
struct LLStartEncRsp: EmptyLinkLayerControl {
  static var opcode: UInt8 { 0x06 }
  static var name: String { "LL_START_ENC_RSP" }
  init() {}
}

/// LL_UNKNOWN_RSP.
struct LLUnknownRsp: LinkLayerControl {
  static var opcode: UInt8 { 0x07 }
  static var name: String { "LL_UNKNOWN_RSP" }
  var unknownType: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("UnknownType", &unknownType)
  }
}

/// LL_FEATURE_REQ.
struct LLFeatureReq: LinkLayerControl {
  static var opcode: UInt8 { 0x08 }
  static var name: String { "LL_FEATURE_REQ" }
  var featureSet = LEFeatures()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("FeatureSet", &featureSet)
  }
}

/// LL_FEATURE_RSP.
struct LLFeatureRsp: LinkLayerControl {
  static var opcode: UInt8 { 0x09 }
  static var name: String { "LL_FEATURE_RSP" }
  var featureSet = LEFeatures()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("FeatureSet", &featureSet)
  }
}

/// LL_PAUSE_ENC_REQ.
struct LLPauseEncReq: EmptyLinkLayerControl {
  static var opcode: UInt8 { 0x0A }
  static var name: String { "LL_PAUSE_ENC_REQ" }
  init() {}
}

/// LL_PAUSE_ENC_RSP.
struct LLPauseEncRsp: EmptyLinkLayerControl {
  static var opcode: UInt8 { 0x0B }
  static var name: String { "LL_PAUSE_ENC_RSP" }
  init() {}
}

/// LL_VERSION_IND.
struct LLVersionInd: LinkLayerControl {
  static var opcode: UInt8 { 0x0C }
  static var name: String { "LL_VERSION_IND" }
  var version: UInt8 = 0
  var companyIdentifier: UInt16 = 0
  var subversion: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Version", &version)
    try visit.value("Company_Identifier", &companyIdentifier)
    try visit.value("Subversion", &subversion)
  }
}

/// LL_REJECT_IND.
struct LLRejectInd: LinkLayerControl {
  static var opcode: UInt8 { 0x0D }
  static var name: String { "LL_REJECT_IND" }
  var errorCode = HCIStatus.success
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("ErrorCode", &errorCode)
  }
}

/// LL_PERIPHERAL_FEATURE_REQ.
struct LLPeripheralFeatureReq: LinkLayerControl {
  static var opcode: UInt8 { 0x0E }
  static var name: String { "LL_PERIPHERAL_FEATURE_REQ" }
  var featureSet = LEFeatures()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("FeatureSet", &featureSet)
  }
}

/// LL_CONNECTION_PARAM_REQ.
struct LLConnectionParamReq: LinkLayerControl {
  static var opcode: UInt8 { 0x0F }
  static var name: String { "LL_CONNECTION_PARAM_REQ" }
  var intervalMin = ConnectionInterval()
  var intervalMax = ConnectionInterval()
  var latency: UInt16 = 0
  var timeout = SupervisionTimeout()
  var preferredPeriodicity: UInt8 = 0
  var referenceConnEventCount: UInt16 = 0
  var offset0: UInt16 = 0
  var offset1: UInt16 = 0
  var offset2: UInt16 = 0
  var offset3: UInt16 = 0
  var offset4: UInt16 = 0
  var offset5: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Interval_Min", &intervalMin)
    try visit.value("Interval_Max", &intervalMax)
    try visit.value("Latency", &latency)
    try visit.value("Timeout", &timeout)
    try visit.value("PreferredPeriodicity", &preferredPeriodicity)
    try visit.value("ReferenceConnEventCount", &referenceConnEventCount)
    try visit.value("Offset0", &offset0)
    try visit.value("Offset1", &offset1)
    try visit.value("Offset2", &offset2)
    try visit.value("Offset3", &offset3)
    try visit.value("Offset4", &offset4)
    try visit.value("Offset5", &offset5)
  }
}

/// LL_CONNECTION_PARAM_RSP.
struct LLConnectionParamRsp: LinkLayerControl {
  static var opcode: UInt8 { 0x10 }
  static var name: String { "LL_CONNECTION_PARAM_RSP" }
  var intervalMin = ConnectionInterval()
  var intervalMax = ConnectionInterval()
  var latency: UInt16 = 0
  var timeout = SupervisionTimeout()
  var preferredPeriodicity: UInt8 = 0
  var referenceConnEventCount: UInt16 = 0
  var offset0: UInt16 = 0
  var offset1: UInt16 = 0
  var offset2: UInt16 = 0
  var offset3: UInt16 = 0
  var offset4: UInt16 = 0
  var offset5: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Interval_Min", &intervalMin)
    try visit.value("Interval_Max", &intervalMax)
    try visit.value("Latency", &latency)
    try visit.value("Timeout", &timeout)
    try visit.value("PreferredPeriodicity", &preferredPeriodicity)
    try visit.value("ReferenceConnEventCount", &referenceConnEventCount)
    try visit.value("Offset0", &offset0)
    try visit.value("Offset1", &offset1)
    try visit.value("Offset2", &offset2)
    try visit.value("Offset3", &offset3)
    try visit.value("Offset4", &offset4)
    try visit.value("Offset5", &offset5)
  }
}

/// LL_REJECT_EXT_IND.
struct LLRejectExtInd: LinkLayerControl {
  static var opcode: UInt8 { 0x11 }
  static var name: String { "LL_REJECT_EXT_IND" }
  var rejectOpcode: UInt8 = 0
  var errorCode = HCIStatus.success
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("RejectOpcode", &rejectOpcode)
    try visit.value("ErrorCode", &errorCode)
  }
}

/// LL_PING_REQ.
struct LLPingReq: EmptyLinkLayerControl {
  static var opcode: UInt8 { 0x12 }
  static var name: String { "LL_PING_REQ" }
  init() {}
}

/// LL_PING_RSP.
struct LLPingRsp: EmptyLinkLayerControl {
  static var opcode: UInt8 { 0x13 }
  static var name: String { "LL_PING_RSP" }
  init() {}
}

/// LL_LENGTH_REQ.
struct LLLengthReq: LinkLayerControl {
  static var opcode: UInt8 { 0x14 }
  static var name: String { "LL_LENGTH_REQ" }
  var maxRxOctets: UInt16 = 0
  var maxRxTime: UInt16 = 0
  var maxTxOctets: UInt16 = 0
  var maxTxTime: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("MaxRxOctets", &maxRxOctets)
    try visit.value("MaxRxTime", &maxRxTime)
    try visit.value("MaxTxOctets", &maxTxOctets)
    try visit.value("MaxTxTime", &maxTxTime)
  }
}

/// LL_LENGTH_RSP.
struct LLLengthRsp: LinkLayerControl {
  static var opcode: UInt8 { 0x15 }
  static var name: String { "LL_LENGTH_RSP" }
  var maxRxOctets: UInt16 = 0
  var maxRxTime: UInt16 = 0
  var maxTxOctets: UInt16 = 0
  var maxTxTime: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("MaxRxOctets", &maxRxOctets)
    try visit.value("MaxRxTime", &maxRxTime)
    try visit.value("MaxTxOctets", &maxTxOctets)
    try visit.value("MaxTxTime", &maxTxTime)
  }
}
