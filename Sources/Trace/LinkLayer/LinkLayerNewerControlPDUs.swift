import BindruneHCI
import BindruneWire

// The control PDUs of versions 5.0 to 5.4. Vol 6, Part B, §2.4.2.

/// LL_PHY_REQ.
struct LLPHYReq: LinkLayerControl {
  static var opcode: UInt8 { 0x16 }
  static var name: String { "LL_PHY_REQ" }
  var txPHYS = PHYSet()
  var rxPHYS = PHYSet()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("TX_PHYS", &txPHYS)
    try visit.value("RX_PHYS", &rxPHYS)
  }
}

/// LL_PHY_RSP.
struct LLPHYRsp: LinkLayerControl {
  static var opcode: UInt8 { 0x17 }
  static var name: String { "LL_PHY_RSP" }
  var txPHYS = PHYSet()
  var rxPHYS = PHYSet()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("TX_PHYS", &txPHYS)
    try visit.value("RX_PHYS", &rxPHYS)
  }
}

/// LL_PHY_UPDATE_IND.
struct LLPHYUpdateInd: LinkLayerControl {
  static var opcode: UInt8 { 0x18 }
  static var name: String { "LL_PHY_UPDATE_IND" }
  var phyCToP = PHYSet()
  var phyPToC = PHYSet()
  var instant: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("PHY_C_TO_P", &phyCToP)
    try visit.value("PHY_P_TO_C", &phyPToC)
    try visit.value("Instant", &instant)
  }
}

/// LL_MIN_USED_CHANNELS_IND.
struct LLMinUsedChannelsInd: LinkLayerControl {
  static var opcode: UInt8 { 0x19 }
  static var name: String { "LL_MIN_USED_CHANNELS_IND" }
  var phys = PHYSet()
  var minUsedChannels: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("PHYS", &phys)
    try visit.value("MinUsedChannels", &minUsedChannels)
  }
}

/// LL_CTE_REQ.
struct LLCTEReq: LinkLayerControl {
  static var opcode: UInt8 { 0x1A }
  static var name: String { "LL_CTE_REQ" }
  var minCTELenReq: UInt8 = 0
  private var reserved: UInt8 = 0
  var cteTypeReq: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.bits("MinCTELenReq", &minCTELenReq, 5)
    try visit.bits("RFU", &reserved, 1)
    try visit.bits("CTETypeReq", &cteTypeReq, 2)
  }
}

/// LL_CTE_RSP.
struct LLCTERsp: EmptyLinkLayerControl {
  static var opcode: UInt8 { 0x1B }
  static var name: String { "LL_CTE_RSP" }
  init() {}
}

/// LL_PERIODIC_SYNC_IND.
struct LLPeriodicSyncInd: LinkLayerControl {
  static var opcode: UInt8 { 0x1C }
  static var name: String { "LL_PERIODIC_SYNC_IND" }
  var id: UInt16 = 0
  var syncInfo = Octets()
  var connEventCount: UInt16 = 0
  var lastPaEventCounter: UInt16 = 0
  var sid: UInt8 = 0
  var aType: UInt8 = 0
  var sca: UInt8 = 0
  var phy = PHYSet()
  var advA = DeviceAddress()
  var syncConnEventCount: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("ID", &id)
    try visit.octets("SyncInfo", &syncInfo, .exactly(18))
    try visit.value("connEventCount", &connEventCount)
    try visit.value("lastPaEventCounter", &lastPaEventCounter)
    try visit.bits("SID", &sid, 4)
    try visit.bits("AType", &aType, 1)
    try visit.bits("SCA", &sca, 3)
    try visit.value("PHY", &phy)
    try visit.value("AdvA", &advA)
    try visit.value("syncConnEventCount", &syncConnEventCount)
  }
}

/// LL_CLOCK_ACCURACY_REQ.
struct LLClockAccuracyReq: LinkLayerControl {
  static var opcode: UInt8 { 0x1D }
  static var name: String { "LL_CLOCK_ACCURACY_REQ" }
  var sca: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("SCA", &sca)
  }
}

/// LL_CLOCK_ACCURACY_RSP.
struct LLClockAccuracyRsp: LinkLayerControl {
  static var opcode: UInt8 { 0x1E }
  static var name: String { "LL_CLOCK_ACCURACY_RSP" }
  var sca: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("SCA", &sca)
  }
}

/// LL_CIS_REQ.
struct LLCISReq: LinkLayerControl {
  static var opcode: UInt8 { 0x1F }
  static var name: String { "LL_CIS_REQ" }
  var cigID: UInt8 = 0
  var cisID: UInt8 = 0
  var phyCToP = PHYSet()
  var phyPToC = PHYSet()
  var maxSDUCToP: UInt16 = 0
  private var reserved: UInt8 = 0
  var framed: UInt8 = 0
  var maxSDUPToC: UInt16 = 0
  var sduIntervalCToP: UInt32 = 0
  var sduIntervalPToC: UInt32 = 0
  var maxPDUCToP: UInt16 = 0
  var maxPDUPToC: UInt16 = 0
  var nse: UInt8 = 0
  var subInterval: UInt24 = 0
  var bnCToP: UInt8 = 0
  var bnPToC: UInt8 = 0
  var ftCToP: UInt8 = 0
  var ftPToC: UInt8 = 0
  var isoInterval: UInt16 = 0
  var cisOffsetMin: UInt24 = 0
  var cisOffsetMax: UInt24 = 0
  var connEventCount: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("CIG_ID", &cigID)
    try visit.value("CIS_ID", &cisID)
    try visit.value("PHY_C_To_P", &phyCToP)
    try visit.value("PHY_P_To_C", &phyPToC)
    try visit.bits("Max_SDU_C_To_P", &maxSDUCToP, 12)
    try visit.bits("RFU", &reserved, 3)
    try visit.bits("Framed", &framed, 1)
    try visit.bits("Max_SDU_P_To_C", &maxSDUPToC, 12)
    try visit.bits("RFU", &reserved, 4)
    try visit.bits("SDU_Interval_C_To_P", &sduIntervalCToP, 20)
    try visit.bits("RFU", &reserved, 4)
    try visit.bits("SDU_Interval_P_To_C", &sduIntervalPToC, 20)
    try visit.bits("RFU", &reserved, 4)
    try visit.value("Max_PDU_C_To_P", &maxPDUCToP)
    try visit.value("Max_PDU_P_To_C", &maxPDUPToC)
    try visit.value("NSE", &nse)
    try visit.value("Sub_Interval", &subInterval)
    try visit.bits("BN_C_To_P", &bnCToP, 4)
    try visit.bits("BN_P_To_C", &bnPToC, 4)
    try visit.value("FT_C_To_P", &ftCToP)
    try visit.value("FT_P_To_C", &ftPToC)
    try visit.value("ISO_Interval", &isoInterval)
    try visit.value("CIS_Offset_Min", &cisOffsetMin)
    try visit.value("CIS_Offset_Max", &cisOffsetMax)
    try visit.value("connEventCount", &connEventCount)
  }
}

/// LL_CIS_RSP.
struct LLCISRsp: LinkLayerControl {
  static var opcode: UInt8 { 0x20 }
  static var name: String { "LL_CIS_RSP" }
  var cisOffsetMin: UInt24 = 0
  var cisOffsetMax: UInt24 = 0
  var connEventCount: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("CIS_Offset_Min", &cisOffsetMin)
    try visit.value("CIS_Offset_Max", &cisOffsetMax)
    try visit.value("connEventCount", &connEventCount)
  }
}

/// LL_CIS_IND.
struct LLCISInd: LinkLayerControl {
  static var opcode: UInt8 { 0x21 }
  static var name: String { "LL_CIS_IND" }
  var aa: UInt32 = 0
  var cisOffset: UInt24 = 0
  var cigSyncDelay: UInt24 = 0
  var cisSyncDelay: UInt24 = 0
  var connEventCount: UInt16 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("AA", &aa)
    try visit.value("CIS_Offset", &cisOffset)
    try visit.value("CIG_Sync_Delay", &cigSyncDelay)
    try visit.value("CIS_Sync_Delay", &cisSyncDelay)
    try visit.value("connEventCount", &connEventCount)
  }
}

/// LL_CIS_TERMINATE_IND.
struct LLCISTerminateInd: LinkLayerControl {
  static var opcode: UInt8 { 0x22 }
  static var name: String { "LL_CIS_TERMINATE_IND" }
  var cigID: UInt8 = 0
  var cisID: UInt8 = 0
  var errorCode = HCIStatus.success
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("CIG_ID", &cigID)
    try visit.value("CIS_ID", &cisID)
    try visit.value("ErrorCode", &errorCode)
  }
}

/// LL_POWER_CONTROL_REQ.
struct LLPowerControlReq: LinkLayerControl {
  static var opcode: UInt8 { 0x23 }
  static var name: String { "LL_POWER_CONTROL_REQ" }
  var phy = PHYSet()
  var delta: Int8 = 0
  var txPower: Int8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("PHY", &phy)
    try visit.value("Delta", &delta)
    try visit.value("TxPower", &txPower)
  }
}

/// LL_POWER_CONTROL_RSP.
struct LLPowerControlRsp: LinkLayerControl {
  static var opcode: UInt8 { 0x24 }
  static var name: String { "LL_POWER_CONTROL_RSP" }
  var min: UInt8 = 0
  var max: UInt8 = 0
  private var reserved: UInt8 = 0
  var delta: Int8 = 0
  var txPower: Int8 = 0
  var apr: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.bits("Min", &min, 1)
    try visit.bits("Max", &max, 1)
    try visit.bits("RFU", &reserved, 6)
    try visit.value("Delta", &delta)
    try visit.value("TxPower", &txPower)
    try visit.value("APR", &apr)
  }
}

/// LL_POWER_CHANGE_IND.
struct LLPowerChangeInd: LinkLayerControl {
  static var opcode: UInt8 { 0x25 }
  static var name: String { "LL_POWER_CHANGE_IND" }
  var phy = PHYSet()
  var min: UInt8 = 0
  var max: UInt8 = 0
  private var reserved: UInt8 = 0
  var delta: Int8 = 0
  var txPower: Int8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("PHY", &phy)
    try visit.bits("Min", &min, 1)
    try visit.bits("Max", &max, 1)
    try visit.bits("RFU", &reserved, 6)
    try visit.value("Delta", &delta)
    try visit.value("TxPower", &txPower)
  }
}

/// LL_SUBRATE_REQ.
struct LLSubrateReq: LinkLayerControl {
  static var opcode: UInt8 { 0x26 }
  static var name: String { "LL_SUBRATE_REQ" }
  var subrateFactorMin: UInt16 = 0
  var subrateFactorMax: UInt16 = 0
  var maxLatency: UInt16 = 0
  var continuationNumber: UInt16 = 0
  var timeout = SupervisionTimeout()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("SubrateFactorMin", &subrateFactorMin)
    try visit.value("SubrateFactorMax", &subrateFactorMax)
    try visit.value("Max_Latency", &maxLatency)
    try visit.value("Continuation_Number", &continuationNumber)
    try visit.value("Timeout", &timeout)
  }
}

/// LL_SUBRATE_IND.
struct LLSubrateInd: LinkLayerControl {
  static var opcode: UInt8 { 0x27 }
  static var name: String { "LL_SUBRATE_IND" }
  var subrateFactor: UInt16 = 0
  var subrateBaseEvent: UInt16 = 0
  var latency: UInt16 = 0
  var continuationNumber: UInt16 = 0
  var timeout = SupervisionTimeout()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("SubrateFactor", &subrateFactor)
    try visit.value("Subrate_Base_Event", &subrateBaseEvent)
    try visit.value("Latency", &latency)
    try visit.value("Continuation_Number", &continuationNumber)
    try visit.value("Timeout", &timeout)
  }
}

/// LL_CHANNEL_REPORTING_IND.
struct LLChannelReportingInd: LinkLayerControl {
  static var opcode: UInt8 { 0x28 }
  static var name: String { "LL_CHANNEL_REPORTING_IND" }
  var enable: UInt8 = 0
  var minSpacing: UInt8 = 0
  var maxDelay: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Enable", &enable)
    try visit.value("Min_Spacing", &minSpacing)
    try visit.value("Max_Delay", &maxDelay)
  }
}

/// LL_CHANNEL_STATUS_IND.
struct LLChannelStatusInd: LinkLayerControl {
  static var opcode: UInt8 { 0x29 }
  static var name: String { "LL_CHANNEL_STATUS_IND" }
  var channelClassification = Octets()
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Channel_Classification", &channelClassification, .exactly(10))
  }
}

/// LL_PERIODIC_SYNC_WR_IND.
struct LLPeriodicSyncWithResponsesInd: LinkLayerControl {
  static var opcode: UInt8 { 0x2A }
  static var name: String { "LL_PERIODIC_SYNC_WR_IND" }
  var id: UInt16 = 0
  var syncInfo = Octets()
  var connEventCount: UInt16 = 0
  var lastPaEventCounter: UInt16 = 0
  var sid: UInt8 = 0
  var aType: UInt8 = 0
  var sca: UInt8 = 0
  var phy = PHYSet()
  var advA = DeviceAddress()
  var syncConnEventCount: UInt16 = 0
  var rspAA: UInt32 = 0
  var numSubevents: UInt8 = 0
  var subeventInterval: UInt8 = 0
  var responseSlotDelay: UInt8 = 0
  var responseSlotSpacing: UInt8 = 0
  init() {}
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("ID", &id)
    try visit.octets("SyncInfo", &syncInfo, .exactly(18))
    try visit.value("connEventCount", &connEventCount)
    try visit.value("lastPaEventCounter", &lastPaEventCounter)
    try visit.bits("SID", &sid, 4)
    try visit.bits("AType", &aType, 1)
    try visit.bits("SCA", &sca, 3)
    try visit.value("PHY", &phy)
    try visit.value("AdvA", &advA)
    try visit.value("syncConnEventCount", &syncConnEventCount)
    try visit.value("RspAA", &rspAA)
    try visit.value("numSubevents", &numSubevents)
    try visit.value("subeventInterval", &subeventInterval)
    try visit.value("responseSlotDelay", &responseSlotDelay)
    try visit.value("responseSlotSpacing", &responseSlotSpacing)
  }
}
