// Written by Scripts/messages from the declarations of the messages: do not edit.

import BindruneWire

/// A signaling command that this stack supports, decoded. Vol 3, Part A, §4.
public enum AnySignal: BitwiseCopyable, Sendable {
  case commandRejectResponse(CommandRejectResponse)
  case disconnectionRequest(DisconnectionRequest)
  case disconnectionResponse(DisconnectionResponse)
  case connectionParameterUpdateRequest(ConnectionParameterUpdateRequest)
  case connectionParameterUpdateResponse(ConnectionParameterUpdateResponse)
  case leCreditBasedConnectionRequest(LECreditBasedConnectionRequest)
  case leCreditBasedConnectionResponse(LECreditBasedConnectionResponse)
  case flowControlCreditIndication(FlowControlCreditIndication)
  case creditBasedConnectionRequest(CreditBasedConnectionRequest)
  case creditBasedConnectionResponse(CreditBasedConnectionResponse)
  case creditBasedReconfigureRequest(CreditBasedReconfigureRequest)
  case creditBasedReconfigureResponse(CreditBasedReconfigureResponse)

  /// The command of `code` with the fields from `reader`; nil when this stack does not support the code.
  public init?(_ code: SignalCode, _ reader: inout some WireMessageReader) throws(WireError) {
    switch code.rawValue {
    case 0x01: self = .commandRejectResponse(try reader.read())
    case 0x06: self = .disconnectionRequest(try reader.read())
    case 0x07: self = .disconnectionResponse(try reader.read())
    case 0x12: self = .connectionParameterUpdateRequest(try reader.read())
    case 0x13: self = .connectionParameterUpdateResponse(try reader.read())
    case 0x14: self = .leCreditBasedConnectionRequest(try reader.read())
    case 0x15: self = .leCreditBasedConnectionResponse(try reader.read())
    case 0x16: self = .flowControlCreditIndication(try reader.read())
    case 0x17: self = .creditBasedConnectionRequest(try reader.read())
    case 0x18: self = .creditBasedConnectionResponse(try reader.read())
    case 0x19: self = .creditBasedReconfigureRequest(try reader.read())
    case 0x1A: self = .creditBasedReconfigureResponse(try reader.read())
    default: return nil
    }
  }

  /// Passes the signal and its type to `visitor`.
  public func visit(_ visitor: inout some WireMessageVisitor) throws(WireError) {
    switch self {
    case .commandRejectResponse(let signal): try visitor.visit(signal)
    case .disconnectionRequest(let signal): try visitor.visit(signal)
    case .disconnectionResponse(let signal): try visitor.visit(signal)
    case .connectionParameterUpdateRequest(let signal): try visitor.visit(signal)
    case .connectionParameterUpdateResponse(let signal): try visitor.visit(signal)
    case .leCreditBasedConnectionRequest(let signal): try visitor.visit(signal)
    case .leCreditBasedConnectionResponse(let signal): try visitor.visit(signal)
    case .flowControlCreditIndication(let signal): try visitor.visit(signal)
    case .creditBasedConnectionRequest(let signal): try visitor.visit(signal)
    case .creditBasedConnectionResponse(let signal): try visitor.visit(signal)
    case .creditBasedReconfigureRequest(let signal): try visitor.visit(signal)
    case .creditBasedReconfigureResponse(let signal): try visitor.visit(signal)
    }
  }

  /// Passes each of the 12 signals, with its default parameters, to `visitor`.
  public static func each(_ visitor: inout some WireMessageVisitor) throws(WireError) {
    try visitor.visit(CommandRejectResponse())
    try visitor.visit(DisconnectionRequest())
    try visitor.visit(DisconnectionResponse())
    try visitor.visit(ConnectionParameterUpdateRequest())
    try visitor.visit(ConnectionParameterUpdateResponse())
    try visitor.visit(LECreditBasedConnectionRequest())
    try visitor.visit(LECreditBasedConnectionResponse())
    try visitor.visit(FlowControlCreditIndication())
    try visitor.visit(CreditBasedConnectionRequest())
    try visitor.visit(CreditBasedConnectionResponse())
    try visitor.visit(CreditBasedReconfigureRequest())
    try visitor.visit(CreditBasedReconfigureResponse())
  }
}
