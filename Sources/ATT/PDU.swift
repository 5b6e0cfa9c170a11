import BindruneWire

public protocol ATTMessage: WireRecord { static var opcode: ATTOpcode { get } }

/// ATT_ERROR_RSP. Vol 3, Part F, §3.4.1.1.
public struct ErrorResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x01 }
  public var requestOpcodeInError = ATTOpcode()
  public var attributeHandleInError = AttributeHandle()
  public var errorCode = ATTError()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Request Opcode In Error", &requestOpcodeInError)
    try visit.value("Attribute Handle In Error", &attributeHandleInError)
    try visit.value("Error Code", &errorCode)
  }
}
/// ATT_EXCHANGE_MTU_REQ. Vol 3, Part F, §3.4.2.1.
public struct ExchangeMTURequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x02 }
  public var clientRxMTU: UInt16 = 23
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Client Rx MTU", &clientRxMTU)
  }
}
/// ATT_EXCHANGE_MTU_RSP. Vol 3, Part F, §3.4.2.2.
public struct ExchangeMTUResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x03 }
  public var serverRxMTU: UInt16 = 23
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Server Rx MTU", &serverRxMTU)
  }
}
/// ATT_FIND_INFORMATION_REQ. Vol 3, Part F, §3.4.3.1.
public struct FindInformationRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x04 }
  public var startingHandle = AttributeHandle()
  public var endingHandle = AttributeHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Starting Handle", &startingHandle)
    try visit.value("Ending Handle", &endingHandle)
  }
}
/// ATT_FIND_INFORMATION_RSP. Vol 3, Part F, §3.4.3.2.
public struct FindInformationResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x05 }
  public var format = InformationFormat.short
  public var informationData = List<InformationData>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Format", &format)
    try visit.list("Information Data", &informationData, .each(format == .short ? 4 : 18))
  }
}
/// ATT_FIND_BY_TYPE_VALUE_REQ. Vol 3, Part F, §3.4.3.3.
public struct FindByTypeValueRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x06 }
  public var startingHandle = AttributeHandle()
  public var endingHandle = AttributeHandle()
  public var attributeType = UUID16()
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Starting Handle", &startingHandle)
    try visit.value("Ending Handle", &endingHandle)
    try visit.value("Attribute Type", &attributeType)
    try visit.octets("Attribute Value", &attributeValue)
  }
}
/// ATT_FIND_BY_TYPE_VALUE_RSP. Vol 3, Part F, §3.4.3.4.
public struct FindByTypeValueResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x07 }
  public var handlesInformationList = List<HandlesInformation>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Handles Information List", &handlesInformationList)
  }
}
/// ATT_READ_BY_TYPE_REQ. Vol 3, Part F, §3.4.4.1.
public struct ReadByTypeRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x08 }
  public var startingHandle = AttributeHandle()
  public var endingHandle = AttributeHandle()
  public var attributeType = BluetoothUUID()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Starting Handle", &startingHandle)
    try visit.value("Ending Handle", &endingHandle)
    try visit.uuid("Attribute Type", &attributeType)
  }
}
/// ATT_READ_BY_TYPE_RSP. Vol 3, Part F, §3.4.4.2.
public struct ReadByTypeResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x09 }
  public var attributeDataList = List<AttributeData>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Length", "Attribute Data List", &attributeDataList)
  }
}
/// ATT_READ_REQ. Vol 3, Part F, §3.4.4.3.
public struct ReadRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x0A }
  public var attributeHandle = AttributeHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
  }
}
/// ATT_READ_RSP. Vol 3, Part F, §3.4.4.4.
public struct ReadResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x0B }
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Attribute Value", &attributeValue)
  }
}
/// ATT_READ_BLOB_REQ. Vol 3, Part F, §3.4.4.5.
public struct ReadBlobRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x0C }
  public var attributeHandle = AttributeHandle()
  public var valueOffset: UInt16 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.value("Value Offset", &valueOffset)
  }
}
/// ATT_READ_BLOB_RSP. Vol 3, Part F, §3.4.4.6.
public struct ReadBlobResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x0D }
  public var partAttributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Part Attribute Value", &partAttributeValue)
  }
}
/// ATT_READ_MULTIPLE_REQ. Vol 3, Part F, §3.4.4.7.
public struct ReadMultipleRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x0E }
  public var setOfHandles = List<AttributeHandle>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Set Of Handles", &setOfHandles, .each(minimum: 2))
  }
}
/// ATT_READ_MULTIPLE_RSP. Vol 3, Part F, §3.4.4.8.
public struct ReadMultipleResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x0F }
  public var setOfValues = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Set Of Values", &setOfValues)
  }
}
/// ATT_READ_BY_GROUP_TYPE_REQ. Vol 3, Part F, §3.4.4.9.
public struct ReadByGroupTypeRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x10 }
  public var startingHandle = AttributeHandle()
  public var endingHandle = AttributeHandle()
  public var attributeGroupType = BluetoothUUID()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Starting Handle", &startingHandle)
    try visit.value("Ending Handle", &endingHandle)
    try visit.uuid("Attribute Group Type", &attributeGroupType)
  }
}
/// ATT_READ_BY_GROUP_TYPE_RSP. Vol 3, Part F, §3.4.4.10.
public struct ReadByGroupTypeResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x11 }
  public var attributeDataList = List<GroupData>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Length", "Attribute Data List", &attributeDataList)
  }
}
/// ATT_WRITE_REQ. Vol 3, Part F, §3.4.5.1.
public struct WriteRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x12 }
  public var attributeHandle = AttributeHandle()
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.octets("Attribute Value", &attributeValue)
  }
}
/// ATT_WRITE_RSP. Vol 3, Part F, §3.4.5.2.
public struct WriteResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x13 }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}
/// ATT_PREPARE_WRITE_REQ. Vol 3, Part F, §3.4.6.1.
public struct PrepareWriteRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x16 }
  public var attributeHandle = AttributeHandle()
  public var valueOffset: UInt16 = 0
  public var partAttributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.value("Value Offset", &valueOffset)
    try visit.octets("Part Attribute Value", &partAttributeValue)
  }
}
/// ATT_PREPARE_WRITE_RSP. Vol 3, Part F, §3.4.6.2.
public struct PrepareWriteResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x17 }
  public var attributeHandle = AttributeHandle()
  public var valueOffset: UInt16 = 0
  public var partAttributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.value("Value Offset", &valueOffset)
    try visit.octets("Part Attribute Value", &partAttributeValue)
  }
}
/// ATT_EXECUTE_WRITE_REQ. Vol 3, Part F, §3.4.6.3.
public struct ExecuteWriteRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x18 }
  public var flags: UInt8 = 0
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Flags", &flags)
  }
}
/// ATT_EXECUTE_WRITE_RSP. Vol 3, Part F, §3.4.6.4.
public struct ExecuteWriteResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x19 }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}
/// ATT_HANDLE_VALUE_NTF. Vol 3, Part F, §3.4.7.1.
public struct HandleValueNotification: ATTMessage {
  public static var opcode: ATTOpcode { 0x1B }
  public var attributeHandle = AttributeHandle()
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.octets("Attribute Value", &attributeValue)
  }
}
/// ATT_HANDLE_VALUE_IND. Vol 3, Part F, §3.4.7.2.
public struct HandleValueIndication: ATTMessage {
  public static var opcode: ATTOpcode { 0x1D }
  public var attributeHandle = AttributeHandle()
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.octets("Attribute Value", &attributeValue)
  }
}
/// ATT_HANDLE_VALUE_CFM. Vol 3, Part F, §3.4.7.3.
public struct HandleValueConfirmation: ATTMessage {
  public static var opcode: ATTOpcode { 0x1E }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}
/// ATT_READ_MULTIPLE_VARIABLE_REQ. Vol 3, Part F, §3.4.4.11.
public struct ReadMultipleVariableRequest: ATTMessage {
  public static var opcode: ATTOpcode { 0x20 }
  public var setOfHandles = List<AttributeHandle>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Set Of Handles", &setOfHandles, .each(minimum: 2))
  }
}
/// ATT_READ_MULTIPLE_VARIABLE_RSP. Vol 3, Part F, §3.4.4.12.
public struct ReadMultipleVariableResponse: ATTMessage {
  public static var opcode: ATTOpcode { 0x21 }
  public var lengthValueTupleList = List<LengthValueTuple>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Length Value Tuple List", &lengthValueTupleList)
  }
}
/// ATT_MULTIPLE_HANDLE_VALUE_NTF. Vol 3, Part F, §3.4.7.4.
public struct MultipleHandleValueNotification: ATTMessage {
  public static var opcode: ATTOpcode { 0x23 }
  public var handleLengthValueTupleList = List<HandleLengthValueTuple>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Handle Length Value Tuple List", &handleLengthValueTupleList)
  }
}
/// ATT_WRITE_CMD. Vol 3, Part F, §3.4.5.3.
public struct WriteCommand: ATTMessage {
  public static var opcode: ATTOpcode { 0x52 }
  public var attributeHandle = AttributeHandle()
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.octets("Attribute Value", &attributeValue)
  }
}
/// ATT_SIGNED_WRITE_CMD. Vol 3, Part F, §3.4.5.4.
public struct SignedWriteCommand: ATTMessage {
  public static var opcode: ATTOpcode { 0xD2 }
  public var attributeHandle = AttributeHandle()
  public var attributeValue = Octets()
  public var authenticationSignature = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.octets("Attribute Value", &attributeValue, .allBut(12))
    try visit.octets("Authentication Signature", &authenticationSignature, .exactly(12))
  }
}

/// An entry of ATT_FIND_INFORMATION_RSP.
public struct InformationData: WireRecord {
  public var handle = AttributeHandle()
  public var uuid = BluetoothUUID()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Handle", &handle)
    try visit.uuid("UUID", &uuid)
  }
}
/// An entry of ATT_FIND_BY_TYPE_VALUE_RSP.
public struct HandlesInformation: WireRecord {
  public var foundAttributeHandle = AttributeHandle()
  public var groupEndHandle = AttributeHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Found Attribute Handle", &foundAttributeHandle)
    try visit.value("Group End Handle", &groupEndHandle)
  }
}
/// An entry of ATT_READ_BY_TYPE_RSP.
public struct AttributeData: WireRecord {
  public var attributeHandle = AttributeHandle()
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.octets("Attribute Value", &attributeValue)
  }
}
/// An entry of ATT_READ_BY_GROUP_TYPE_RSP.
public struct GroupData: WireRecord {
  public var attributeHandle = AttributeHandle()
  public var endGroupHandle = AttributeHandle()
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.value("End Group Handle", &endGroupHandle)
    try visit.octets("Attribute Value", &attributeValue)
  }
}
/// An entry of ATT_READ_MULTIPLE_VARIABLE_RSP.
public struct LengthValueTuple: WireRecord {
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Value Length", UInt16.self, "Attribute Value", &attributeValue)
  }
}
/// An entry of ATT_MULTIPLE_HANDLE_VALUE_NTF.
public struct HandleLengthValueTuple: WireRecord {
  public var attributeHandle = AttributeHandle()
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.octets("Value Length", UInt16.self, "Attribute Value", &attributeValue)
  }
}

/// One ATT PDU. Vol 3, Part F, §3.4.
public enum ATTPDU: BitwiseCopyable, Sendable {
  case errorResponse(ErrorResponse)
  case exchangeMTURequest(ExchangeMTURequest)
  case exchangeMTUResponse(ExchangeMTUResponse)
  case findInformationRequest(FindInformationRequest)
  case findInformationResponse(FindInformationResponse)
  case findByTypeValueRequest(FindByTypeValueRequest)
  case findByTypeValueResponse(FindByTypeValueResponse)
  case readByTypeRequest(ReadByTypeRequest)
  case readByTypeResponse(ReadByTypeResponse)
  case readRequest(ReadRequest)
  case readResponse(ReadResponse)
  case readBlobRequest(ReadBlobRequest)
  case readBlobResponse(ReadBlobResponse)
  case readMultipleRequest(ReadMultipleRequest)
  case readMultipleResponse(ReadMultipleResponse)
  case readByGroupTypeRequest(ReadByGroupTypeRequest)
  case readByGroupTypeResponse(ReadByGroupTypeResponse)
  case writeRequest(WriteRequest)
  case writeResponse(WriteResponse)
  case prepareWriteRequest(PrepareWriteRequest)
  case prepareWriteResponse(PrepareWriteResponse)
  case executeWriteRequest(ExecuteWriteRequest)
  case executeWriteResponse(ExecuteWriteResponse)
  case handleValueNotification(HandleValueNotification)
  case handleValueIndication(HandleValueIndication)
  case handleValueConfirmation(HandleValueConfirmation)
  case readMultipleVariableRequest(ReadMultipleVariableRequest)
  case readMultipleVariableResponse(ReadMultipleVariableResponse)
  case multipleHandleValueNotification(MultipleHandleValueNotification)
  case writeCommand(WriteCommand)
  case signedWriteCommand(SignedWriteCommand)

  @inlinable @inline(__always) public init(_ packet: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(packet) }
    var decoder = try unsafe Decoder(packet)
    var opcode = ATTOpcode()
    try decoder.value("Opcode", &opcode)
    switch opcode.rawValue {
    case 0x01: self = .errorResponse(try decoder.message(ErrorResponse.self))
    case 0x02: self = .exchangeMTURequest(try decoder.message(ExchangeMTURequest.self))
    case 0x03: self = .exchangeMTUResponse(try decoder.message(ExchangeMTUResponse.self))
    case 0x04: self = .findInformationRequest(try decoder.message(FindInformationRequest.self))
    case 0x05: self = .findInformationResponse(try decoder.message(FindInformationResponse.self))
    case 0x06: self = .findByTypeValueRequest(try decoder.message(FindByTypeValueRequest.self))
    case 0x07: self = .findByTypeValueResponse(try decoder.message(FindByTypeValueResponse.self))
    case 0x08: self = .readByTypeRequest(try decoder.message(ReadByTypeRequest.self))
    case 0x09: self = .readByTypeResponse(try decoder.message(ReadByTypeResponse.self))
    case 0x0A: self = .readRequest(try decoder.message(ReadRequest.self))
    case 0x0B: self = .readResponse(try decoder.message(ReadResponse.self))
    case 0x0C: self = .readBlobRequest(try decoder.message(ReadBlobRequest.self))
    case 0x0D: self = .readBlobResponse(try decoder.message(ReadBlobResponse.self))
    case 0x0E: self = .readMultipleRequest(try decoder.message(ReadMultipleRequest.self))
    case 0x0F: self = .readMultipleResponse(try decoder.message(ReadMultipleResponse.self))
    case 0x10: self = .readByGroupTypeRequest(try decoder.message(ReadByGroupTypeRequest.self))
    case 0x11: self = .readByGroupTypeResponse(try decoder.message(ReadByGroupTypeResponse.self))
    case 0x12: self = .writeRequest(try decoder.message(WriteRequest.self))
    case 0x13: self = .writeResponse(try decoder.message(WriteResponse.self))
    case 0x16: self = .prepareWriteRequest(try decoder.message(PrepareWriteRequest.self))
    case 0x17: self = .prepareWriteResponse(try decoder.message(PrepareWriteResponse.self))
    case 0x18: self = .executeWriteRequest(try decoder.message(ExecuteWriteRequest.self))
    case 0x19: self = .executeWriteResponse(try decoder.message(ExecuteWriteResponse.self))
    case 0x1B: self = .handleValueNotification(try decoder.message(HandleValueNotification.self))
    case 0x1D: self = .handleValueIndication(try decoder.message(HandleValueIndication.self))
    case 0x1E: self = .handleValueConfirmation(try decoder.message(HandleValueConfirmation.self))
    case 0x20: self = .readMultipleVariableRequest(try decoder.message(ReadMultipleVariableRequest.self))
    case 0x21: self = .readMultipleVariableResponse(try decoder.message(ReadMultipleVariableResponse.self))
    case 0x23: self = .multipleHandleValueNotification(try decoder.message(MultipleHandleValueNotification.self))
    case 0x52: self = .writeCommand(try decoder.message(WriteCommand.self))
    case 0xD2: self = .signedWriteCommand(try decoder.message(SignedWriteCommand.self))
    default: throw WireError(.unknown, "Opcode", needed: 1, available: Int(opcode.rawValue))
    }
  }

  @inlinable public func encode(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    var encoder = unsafe Encoder(&output, source)
    switch self {
    case .errorResponse(let m): try encoder.pdu(m)
    case .exchangeMTURequest(let m): try encoder.pdu(m)
    case .exchangeMTUResponse(let m): try encoder.pdu(m)
    case .findInformationRequest(let m): try encoder.pdu(m)
    case .findInformationResponse(let m): try encoder.pdu(m)
    case .findByTypeValueRequest(let m): try encoder.pdu(m)
    case .findByTypeValueResponse(let m): try encoder.pdu(m)
    case .readByTypeRequest(let m): try encoder.pdu(m)
    case .readByTypeResponse(let m): try encoder.pdu(m)
    case .readRequest(let m): try encoder.pdu(m)
    case .readResponse(let m): try encoder.pdu(m)
    case .readBlobRequest(let m): try encoder.pdu(m)
    case .readBlobResponse(let m): try encoder.pdu(m)
    case .readMultipleRequest(let m): try encoder.pdu(m)
    case .readMultipleResponse(let m): try encoder.pdu(m)
    case .readByGroupTypeRequest(let m): try encoder.pdu(m)
    case .readByGroupTypeResponse(let m): try encoder.pdu(m)
    case .writeRequest(let m): try encoder.pdu(m)
    case .writeResponse(let m): try encoder.pdu(m)
    case .prepareWriteRequest(let m): try encoder.pdu(m)
    case .prepareWriteResponse(let m): try encoder.pdu(m)
    case .executeWriteRequest(let m): try encoder.pdu(m)
    case .executeWriteResponse(let m): try encoder.pdu(m)
    case .handleValueNotification(let m): try encoder.pdu(m)
    case .handleValueIndication(let m): try encoder.pdu(m)
    case .handleValueConfirmation(let m): try encoder.pdu(m)
    case .readMultipleVariableRequest(let m): try encoder.pdu(m)
    case .readMultipleVariableResponse(let m): try encoder.pdu(m)
    case .multipleHandleValueNotification(let m): try encoder.pdu(m)
    case .writeCommand(let m): try encoder.pdu(m)
    case .signedWriteCommand(let m): try encoder.pdu(m)
    }
    unsafe encoder.commit(&output)
  }

  public func describe(in packet: Span<UInt8>) -> String {
    switch self {
    case .errorResponse(let m): m.description(in: packet)
    case .exchangeMTURequest(let m): m.description(in: packet)
    case .exchangeMTUResponse(let m): m.description(in: packet)
    case .findInformationRequest(let m): m.description(in: packet)
    case .findInformationResponse(let m): m.description(in: packet)
    case .findByTypeValueRequest(let m): m.description(in: packet)
    case .findByTypeValueResponse(let m): m.description(in: packet)
    case .readByTypeRequest(let m): m.description(in: packet)
    case .readByTypeResponse(let m): m.description(in: packet)
    case .readRequest(let m): m.description(in: packet)
    case .readResponse(let m): m.description(in: packet)
    case .readBlobRequest(let m): m.description(in: packet)
    case .readBlobResponse(let m): m.description(in: packet)
    case .readMultipleRequest(let m): m.description(in: packet)
    case .readMultipleResponse(let m): m.description(in: packet)
    case .readByGroupTypeRequest(let m): m.description(in: packet)
    case .readByGroupTypeResponse(let m): m.description(in: packet)
    case .writeRequest(let m): m.description(in: packet)
    case .writeResponse(let m): m.description(in: packet)
    case .prepareWriteRequest(let m): m.description(in: packet)
    case .prepareWriteResponse(let m): m.description(in: packet)
    case .executeWriteRequest(let m): m.description(in: packet)
    case .executeWriteResponse(let m): m.description(in: packet)
    case .handleValueNotification(let m): m.description(in: packet)
    case .handleValueIndication(let m): m.description(in: packet)
    case .handleValueConfirmation(let m): m.description(in: packet)
    case .readMultipleVariableRequest(let m): m.description(in: packet)
    case .readMultipleVariableResponse(let m): m.description(in: packet)
    case .multipleHandleValueNotification(let m): m.description(in: packet)
    case .writeCommand(let m): m.description(in: packet)
    case .signedWriteCommand(let m): m.description(in: packet)
    }
  }
}
extension Encoder {
  @inlinable @inline(__always) mutating func pdu<M: ATTMessage>(_ m: M) throws(WireError) {
    var opcode = M.opcode
    try value("Opcode", &opcode)
    try message(m)
  }
}
