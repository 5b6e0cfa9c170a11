// Written by Scripts/messages from the declarations of the messages: do not edit.

import BindruneWire

/// A signaling command that this stack supports, decoded. Vol 3, Part A, §4.
public enum AnySignal: BitwiseCopyable, Sendable {
  case commandRejectResponse(CommandRejectResponse)
  case disconnectionRequest(DisconnectionRequest)
  case connectionParameterUpdateRequest(ConnectionParameterUpdateRequest)
  case connectionParameterUpdateResponse(ConnectionParameterUpdateResponse)

  /// The command of `code` with the fields from `reader`; nil when this stack does not support the code.
  public init?(_ code: SignalCode, _ reader: inout some WireMessageReader) throws(WireError) {
    switch code.rawValue {
    case 0x01: self = .commandRejectResponse(try reader.read())
    case 0x06: self = .disconnectionRequest(try reader.read())
    case 0x12: self = .connectionParameterUpdateRequest(try reader.read())
    case 0x13: self = .connectionParameterUpdateResponse(try reader.read())
    default: return nil
    }
  }

  /// Passes the signal and its type to `visitor`.
  public func visit(_ visitor: inout some WireMessageVisitor) throws(WireError) {
    switch self {
    case .commandRejectResponse(let signal): try visitor.visit(signal)
    case .disconnectionRequest(let signal): try visitor.visit(signal)
    case .connectionParameterUpdateRequest(let signal): try visitor.visit(signal)
    case .connectionParameterUpdateResponse(let signal): try visitor.visit(signal)
    }
  }

  /// Passes each of the 4 signals, with its default parameters, to `visitor`.
  public static func each(_ visitor: inout some WireMessageVisitor) throws(WireError) {
    try visitor.visit(CommandRejectResponse())
    try visitor.visit(DisconnectionRequest())
    try visitor.visit(ConnectionParameterUpdateRequest())
    try visitor.visit(ConnectionParameterUpdateResponse())
  }
}
