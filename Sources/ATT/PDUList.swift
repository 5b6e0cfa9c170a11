// Written by Scripts/messages from the declarations of the messages: do not edit.

import BindruneWire

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

  /// The PDU of `opcode` with the parameters from `reader`; an opcode that is not in the Specification is a
  /// `WireError`.
  @inlinable @inline(__always)
  public init(_ opcode: ATTOpcode, _ reader: inout some WireMessageReader) throws(WireError) {
    switch opcode.rawValue {
    case 0x01: self = .errorResponse(try reader.read())
    case 0x02: self = .exchangeMTURequest(try reader.read())
    case 0x03: self = .exchangeMTUResponse(try reader.read())
    case 0x04: self = .findInformationRequest(try reader.read())
    case 0x05: self = .findInformationResponse(try reader.read())
    case 0x06: self = .findByTypeValueRequest(try reader.read())
    case 0x07: self = .findByTypeValueResponse(try reader.read())
    case 0x08: self = .readByTypeRequest(try reader.read())
    case 0x09: self = .readByTypeResponse(try reader.read())
    case 0x0A: self = .readRequest(try reader.read())
    case 0x0B: self = .readResponse(try reader.read())
    case 0x0C: self = .readBlobRequest(try reader.read())
    case 0x0D: self = .readBlobResponse(try reader.read())
    case 0x0E: self = .readMultipleRequest(try reader.read())
    case 0x0F: self = .readMultipleResponse(try reader.read())
    case 0x10: self = .readByGroupTypeRequest(try reader.read())
    case 0x11: self = .readByGroupTypeResponse(try reader.read())
    case 0x12: self = .writeRequest(try reader.read())
    case 0x13: self = .writeResponse(try reader.read())
    case 0x16: self = .prepareWriteRequest(try reader.read())
    case 0x17: self = .prepareWriteResponse(try reader.read())
    case 0x18: self = .executeWriteRequest(try reader.read())
    case 0x19: self = .executeWriteResponse(try reader.read())
    case 0x1B: self = .handleValueNotification(try reader.read())
    case 0x1D: self = .handleValueIndication(try reader.read())
    case 0x1E: self = .handleValueConfirmation(try reader.read())
    case 0x20: self = .readMultipleVariableRequest(try reader.read())
    case 0x21: self = .readMultipleVariableResponse(try reader.read())
    case 0x23: self = .multipleHandleValueNotification(try reader.read())
    case 0x52: self = .writeCommand(try reader.read())
    case 0xD2: self = .signedWriteCommand(try reader.read())
    default: throw .unknown("Opcode", Int(opcode.rawValue))
    }
  }

  /// Passes the message and its type to `visitor`.
  @inlinable @inline(__always) public func visit(_ visitor: inout some WireMessageVisitor) throws(WireError) {
    switch self {
    case .errorResponse(let message): try visitor.visit(message)
    case .exchangeMTURequest(let message): try visitor.visit(message)
    case .exchangeMTUResponse(let message): try visitor.visit(message)
    case .findInformationRequest(let message): try visitor.visit(message)
    case .findInformationResponse(let message): try visitor.visit(message)
    case .findByTypeValueRequest(let message): try visitor.visit(message)
    case .findByTypeValueResponse(let message): try visitor.visit(message)
    case .readByTypeRequest(let message): try visitor.visit(message)
    case .readByTypeResponse(let message): try visitor.visit(message)
    case .readRequest(let message): try visitor.visit(message)
    case .readResponse(let message): try visitor.visit(message)
    case .readBlobRequest(let message): try visitor.visit(message)
    case .readBlobResponse(let message): try visitor.visit(message)
    case .readMultipleRequest(let message): try visitor.visit(message)
    case .readMultipleResponse(let message): try visitor.visit(message)
    case .readByGroupTypeRequest(let message): try visitor.visit(message)
    case .readByGroupTypeResponse(let message): try visitor.visit(message)
    case .writeRequest(let message): try visitor.visit(message)
    case .writeResponse(let message): try visitor.visit(message)
    case .prepareWriteRequest(let message): try visitor.visit(message)
    case .prepareWriteResponse(let message): try visitor.visit(message)
    case .executeWriteRequest(let message): try visitor.visit(message)
    case .executeWriteResponse(let message): try visitor.visit(message)
    case .handleValueNotification(let message): try visitor.visit(message)
    case .handleValueIndication(let message): try visitor.visit(message)
    case .handleValueConfirmation(let message): try visitor.visit(message)
    case .readMultipleVariableRequest(let message): try visitor.visit(message)
    case .readMultipleVariableResponse(let message): try visitor.visit(message)
    case .multipleHandleValueNotification(let message): try visitor.visit(message)
    case .writeCommand(let message): try visitor.visit(message)
    case .signedWriteCommand(let message): try visitor.visit(message)
    }
  }
}

extension ATTOpcode {
  @inlinable public static var errorResponse: ATTOpcode { 0x01 }
  @inlinable public static var exchangeMTURequest: ATTOpcode { 0x02 }
  @inlinable public static var exchangeMTUResponse: ATTOpcode { 0x03 }
  @inlinable public static var findInformationRequest: ATTOpcode { 0x04 }
  @inlinable public static var findInformationResponse: ATTOpcode { 0x05 }
  @inlinable public static var findByTypeValueRequest: ATTOpcode { 0x06 }
  @inlinable public static var findByTypeValueResponse: ATTOpcode { 0x07 }
  @inlinable public static var readByTypeRequest: ATTOpcode { 0x08 }
  @inlinable public static var readByTypeResponse: ATTOpcode { 0x09 }
  @inlinable public static var readRequest: ATTOpcode { 0x0A }
  @inlinable public static var readResponse: ATTOpcode { 0x0B }
  @inlinable public static var readBlobRequest: ATTOpcode { 0x0C }
  @inlinable public static var readBlobResponse: ATTOpcode { 0x0D }
  @inlinable public static var readMultipleRequest: ATTOpcode { 0x0E }
  @inlinable public static var readMultipleResponse: ATTOpcode { 0x0F }
  @inlinable public static var readByGroupTypeRequest: ATTOpcode { 0x10 }
  @inlinable public static var readByGroupTypeResponse: ATTOpcode { 0x11 }
  @inlinable public static var writeRequest: ATTOpcode { 0x12 }
  @inlinable public static var writeResponse: ATTOpcode { 0x13 }
  @inlinable public static var prepareWriteRequest: ATTOpcode { 0x16 }
  @inlinable public static var prepareWriteResponse: ATTOpcode { 0x17 }
  @inlinable public static var executeWriteRequest: ATTOpcode { 0x18 }
  @inlinable public static var executeWriteResponse: ATTOpcode { 0x19 }
  @inlinable public static var handleValueNotification: ATTOpcode { 0x1B }
  @inlinable public static var handleValueIndication: ATTOpcode { 0x1D }
  @inlinable public static var handleValueConfirmation: ATTOpcode { 0x1E }
  @inlinable public static var readMultipleVariableRequest: ATTOpcode { 0x20 }
  @inlinable public static var readMultipleVariableResponse: ATTOpcode { 0x21 }
  @inlinable public static var multipleHandleValueNotification: ATTOpcode { 0x23 }
  @inlinable public static var writeCommand: ATTOpcode { 0x52 }
  @inlinable public static var signedWriteCommand: ATTOpcode { 0xD2 }
}

extension ATTOpcode {
  /// A command or a notification: no PDU answers or confirms it. Vol 3, Part F, §3.3.
  @inlinable @inline(__always) public var isUnanswered: Bool { isCommand || rawValue == 0x1B || rawValue == 0x23 }
  /// The type of PDU; `nil` for an undefined opcode. One without the Command Flag is answered with Request Not
  /// Supported (§3.3), so every undefined opcode counts as a command or a request.
  @inlinable public var kind: Kind? {
    switch rawValue {
    case _ where isCommand: .command
    case 0x1B, 0x23: .notification
    case 0x1D: .indication
    case 0x1E: .confirmation
    case 0x02, 0x04, 0x06, 0x08, 0x0A, 0x0C, 0x0E, 0x10, 0x12, 0x16, 0x18, 0x20: .request
    case 0x01, 0x03, 0x05, 0x07, 0x09, 0x0B, 0x0D, 0x0F, 0x11, 0x13, 0x17, 0x19, 0x21: .response
    default: nil
    }
  }
  /// True for the 31 opcodes of the Specification.
  @inlinable public var isKnown: Bool { isCommand ? rawValue == 0x52 || rawValue == 0xD2 : kind != nil }
}
