import BindruneWire

/// One of the 31 PDUs. Vol 3, Part F, §3.4. Its `fields` are the parameters; the opcode precedes them.
///
/// `Scripts/messages` writes the list of all from these declarations: `PDUList.swift`.
public protocol ATTMessage: WireMessage { static var opcode: ATTOpcode { get } }
extension ATTMessage {
  public static var messageNumber: UInt16 { UInt16(opcode.rawValue) }
  @inlinable @inline(__always) public static func identify(_ visit: inout some FieldVisitor) throws(WireError) {
    var opcode = opcode
    try visit.value("Opcode", &opcode)
  }
}
/// A request has one type of response. Vol 3, Part F, §3.4.9.
public protocol ATTRequest: ATTMessage { associatedtype Response: ATTMessage }

/// ATT_ERROR_RSP. Vol 3, Part F, §3.4.1.1.
public struct ErrorResponse: ATTMessage {
  public static var name: StaticString { "ATT_ERROR_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.1.1" }
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
public struct ExchangeMTURequest: ATTRequest {
  public typealias Response = ExchangeMTUResponse
  public static var name: StaticString { "ATT_EXCHANGE_MTU_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.2.1" }
  public static var opcode: ATTOpcode { 0x02 }
  public var clientRxMTU: UInt16 = 23
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Client Rx MTU", &clientRxMTU)
  }
}
/// ATT_EXCHANGE_MTU_RSP. Vol 3, Part F, §3.4.2.2.
public struct ExchangeMTUResponse: ATTMessage {
  public static var name: StaticString { "ATT_EXCHANGE_MTU_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.2.2" }
  public static var opcode: ATTOpcode { 0x03 }
  public var serverRxMTU: UInt16 = 23
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Server Rx MTU", &serverRxMTU)
  }
}
/// ATT_FIND_INFORMATION_REQ. Vol 3, Part F, §3.4.3.1.
public struct FindInformationRequest: ATTRequest {
  public typealias Response = FindInformationResponse
  public static var name: StaticString { "ATT_FIND_INFORMATION_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.3.1" }
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
  public static var name: StaticString { "ATT_FIND_INFORMATION_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.3.2" }
  public static var opcode: ATTOpcode { 0x05 }
  public var format = InformationFormat.short
  public var informationData = WireList<InformationData>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Format", &format)
    try visit.list("Information Data", &informationData, .each(format == .short ? 4 : 18))
  }
}
/// ATT_FIND_BY_TYPE_VALUE_REQ. Vol 3, Part F, §3.4.3.3.
public struct FindByTypeValueRequest: ATTRequest {
  public typealias Response = FindByTypeValueResponse
  public static var name: StaticString { "ATT_FIND_BY_TYPE_VALUE_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.3.3" }
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
  public static var name: StaticString { "ATT_FIND_BY_TYPE_VALUE_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.3.4" }
  public static var opcode: ATTOpcode { 0x07 }
  public var handlesInformationList = WireList<HandlesInformation>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Handles Information List", &handlesInformationList)
  }
}
/// ATT_READ_BY_TYPE_REQ. Vol 3, Part F, §3.4.4.1.
public struct ReadByTypeRequest: ATTRequest {
  public typealias Response = ReadByTypeResponse
  public static var name: StaticString { "ATT_READ_BY_TYPE_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.1" }
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
  public static var name: StaticString { "ATT_READ_BY_TYPE_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.2" }
  public static var opcode: ATTOpcode { 0x09 }
  public var attributeDataList = WireList<AttributeData>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(strideIn: "Length", "Attribute Data List", &attributeDataList)
  }
}
/// ATT_READ_REQ. Vol 3, Part F, §3.4.4.3.
public struct ReadRequest: ATTRequest {
  public typealias Response = ReadResponse
  public static var name: StaticString { "ATT_READ_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.3" }
  public static var opcode: ATTOpcode { 0x0A }
  public var attributeHandle = AttributeHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
  }
}
/// ATT_READ_RSP. Vol 3, Part F, §3.4.4.4.
public struct ReadResponse: ATTMessage {
  public static var name: StaticString { "ATT_READ_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.4" }
  public static var opcode: ATTOpcode { 0x0B }
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Attribute Value", &attributeValue)
  }
}
/// ATT_READ_BLOB_REQ. Vol 3, Part F, §3.4.4.5.
public struct ReadBlobRequest: ATTRequest {
  public typealias Response = ReadBlobResponse
  public static var name: StaticString { "ATT_READ_BLOB_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.5" }
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
  public static var name: StaticString { "ATT_READ_BLOB_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.6" }
  public static var opcode: ATTOpcode { 0x0D }
  public var partAttributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Part Attribute Value", &partAttributeValue)
  }
}
/// ATT_READ_MULTIPLE_REQ. Vol 3, Part F, §3.4.4.7.
public struct ReadMultipleRequest: ATTRequest {
  public typealias Response = ReadMultipleResponse
  public static var name: StaticString { "ATT_READ_MULTIPLE_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.7" }
  public static var opcode: ATTOpcode { 0x0E }
  public var setOfHandles = WireList<AttributeHandle>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Set Of Handles", &setOfHandles, .each(minimum: 2))
  }
}
/// ATT_READ_MULTIPLE_RSP. Vol 3, Part F, §3.4.4.8.
public struct ReadMultipleResponse: ATTMessage {
  public static var name: StaticString { "ATT_READ_MULTIPLE_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.8" }
  public static var opcode: ATTOpcode { 0x0F }
  public var setOfValues = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.octets("Set Of Values", &setOfValues)
  }
}
/// ATT_READ_BY_GROUP_TYPE_REQ. Vol 3, Part F, §3.4.4.9.
public struct ReadByGroupTypeRequest: ATTRequest {
  public typealias Response = ReadByGroupTypeResponse
  public static var name: StaticString { "ATT_READ_BY_GROUP_TYPE_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.9" }
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
  public static var name: StaticString { "ATT_READ_BY_GROUP_TYPE_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.10" }
  public static var opcode: ATTOpcode { 0x11 }
  public var attributeDataList = WireList<GroupData>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list(strideIn: "Length", "Attribute Data List", &attributeDataList)
  }
}
/// ATT_WRITE_REQ. Vol 3, Part F, §3.4.5.1.
public struct WriteRequest: ATTRequest {
  public typealias Response = WriteResponse
  public static var name: StaticString { "ATT_WRITE_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.5.1" }
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
  public static var name: StaticString { "ATT_WRITE_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.5.2" }
  public static var opcode: ATTOpcode { 0x13 }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}
/// ATT_PREPARE_WRITE_REQ. Vol 3, Part F, §3.4.6.1.
public struct PrepareWriteRequest: ATTRequest {
  public typealias Response = PrepareWriteResponse
  public static var name: StaticString { "ATT_PREPARE_WRITE_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.6.1" }
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
  public static var name: StaticString { "ATT_PREPARE_WRITE_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.6.2" }
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
public struct ExecuteWriteRequest: ATTRequest {
  public typealias Response = ExecuteWriteResponse
  public static var name: StaticString { "ATT_EXECUTE_WRITE_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.6.3" }
  public static var opcode: ATTOpcode { 0x18 }
  public var flags = ExecuteWriteFlags.cancel
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Flags", &flags)
  }
}
/// Whether to write or cancel the prepared values. Vol 3, Part F, §3.4.6.3; other numbers are reserved.
public struct ExecuteWriteFlags: OpenNumber, Hashable {
  public var rawValue: UInt8
  @inlinable @inline(__always) public init(rawValue: UInt8 = 0) { self.rawValue = rawValue }
  @inlinable @inline(__always) public static var cancel: ExecuteWriteFlags { ExecuteWriteFlags(rawValue: 0x00) }
  @inlinable @inline(__always) public static var write: ExecuteWriteFlags { ExecuteWriteFlags(rawValue: 0x01) }
  public var text: String { self == .cancel ? "cancel" : self == .write ? "write" : "0x" + hexDigits(wire, 2) }
}
/// ATT_EXECUTE_WRITE_RSP. Vol 3, Part F, §3.4.6.4.
public struct ExecuteWriteResponse: ATTMessage {
  public static var name: StaticString { "ATT_EXECUTE_WRITE_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.6.4" }
  public static var opcode: ATTOpcode { 0x19 }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}
/// ATT_HANDLE_VALUE_NTF. Vol 3, Part F, §3.4.7.1.
public struct HandleValueNotification: ATTMessage {
  public static var name: StaticString { "ATT_HANDLE_VALUE_NTF" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.7.1" }
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
  public static var name: StaticString { "ATT_HANDLE_VALUE_IND" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.7.2" }
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
  public static var name: StaticString { "ATT_HANDLE_VALUE_CFM" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.7.3" }
  public static var opcode: ATTOpcode { 0x1E }
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {}
}
/// ATT_READ_MULTIPLE_VARIABLE_REQ. Vol 3, Part F, §3.4.4.11.
public struct ReadMultipleVariableRequest: ATTRequest {
  public typealias Response = ReadMultipleVariableResponse
  public static var name: StaticString { "ATT_READ_MULTIPLE_VARIABLE_REQ" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.11" }
  public static var opcode: ATTOpcode { 0x20 }
  public var setOfHandles = WireList<AttributeHandle>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Set Of Handles", &setOfHandles, .each(minimum: 2))
  }
}
/// ATT_READ_MULTIPLE_VARIABLE_RSP. Vol 3, Part F, §3.4.4.12.
///
/// The list is cut at ATT_MTU − 1 octets, also in the middle of a tuple.
public struct ReadMultipleVariableResponse: ATTMessage {
  public static var name: StaticString { "ATT_READ_MULTIPLE_VARIABLE_RSP" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.4.12" }
  public static var opcode: ATTOpcode { 0x21 }
  public var lengthValueTupleList = WireList<LengthValueTuple>()
  /// The beginning of a last tuple that did not fit: at most two octets of length, which is the whole value's, then the
  /// beginning of the value. Usually empty.
  public var truncatedTuple = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Length Value Tuple List", &lengthValueTupleList, .each(minimum: 0, mayBeCut: true))
    try visit.octets("Truncated Length Value Tuple", &truncatedTuple, .cut)
  }
}
/// ATT_MULTIPLE_HANDLE_VALUE_NTF. Vol 3, Part F, §3.4.7.4.
public struct MultipleHandleValueNotification: ATTMessage {
  public static var name: StaticString { "ATT_MULTIPLE_HANDLE_VALUE_NTF" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.7.4" }
  public static var opcode: ATTOpcode { 0x23 }
  public var handleLengthValueTupleList = WireList<HandleLengthValueTuple>()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.list("Handle Length Value Tuple List", &handleLengthValueTupleList)
  }
}
/// ATT_WRITE_CMD. Vol 3, Part F, §3.4.5.3.
public struct WriteCommand: ATTMessage {
  public static var name: StaticString { "ATT_WRITE_CMD" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.5.3" }
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
  public static var name: StaticString { "ATT_SIGNED_WRITE_CMD" }
  public static var section: StaticString { "Vol 3, Part F, §3.4.5.4" }
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
    try visit.octets(lengthIn: "Value Length", UInt16.self, "Attribute Value", &attributeValue)
  }
}
/// An entry of ATT_MULTIPLE_HANDLE_VALUE_NTF.
public struct HandleLengthValueTuple: WireRecord {
  public var attributeHandle = AttributeHandle()
  public var attributeValue = Octets()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Attribute Handle", &attributeHandle)
    try visit.octets(lengthIn: "Value Length", UInt16.self, "Attribute Value", &attributeValue)
  }
}

extension ATTPDU {
  /// The PDU in `packet`, opcode first. Ranges in it refer to `packet`.
  ///
  /// Inlined into its consumer, because a call would cost more than the decoding does: have one consumer per bearer.
  @inlinable @inline(__always) public init(_ packet: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(packet) }
    var decoder = try unsafe WireDecoder(packet)
    var opcode = ATTOpcode()
    try decoder.value("Opcode", &opcode)
    try self.init(opcode, &decoder)
  }
  /// Appends the PDU, opcode first; ranges are copied from `source`. `output` is unchanged when this throws.
  @inlinable public func encode(into output: inout OutputRawSpan, from source: Span<UInt8>) throws(WireError) {
    defer { extendLifetime(source) }
    var encoder = unsafe WireEncoder(&output, source)
    try visit(&encoder)
    unsafe encoder.commit(&output)
  }

  private var facts: WireFacts {
    var facts = WireFacts()
    do throws(WireError) { try visit(&facts) } catch {}
    return facts
  }
  public var opcode: ATTOpcode { ATTOpcode(rawValue: UInt8(truncatingIfNeeded: facts.number)) }
  /// The Specification's name: `ATT_READ_REQ`.
  public var name: StaticString { facts.name }
  /// The fields, the opcode first.
  public var layout: [WireLayout.Field] {
    var layout = WireLayout()
    do throws(WireError) { try visit(&layout) } catch {}
    return layout.fields
  }
  /// The parameters as text; empty when there are none.
  public func describe(in packet: Span<UInt8>) -> String {
    defer { extendLifetime(packet) }
    var describer = unsafe WireDescriber(packet)
    do throws(WireError) { try visit(&describer) } catch {}
    return describer.text
  }
}
