// swift-format-ignore-file: AlwaysUseLowerCamelCase
// Apple's names.
@_exported public import CBindruneCoreBluetooth
public import Foundation

/// The domain of `CBError`.
public let CBErrorDomain = "CBErrorDomain"
/// The domain of `CBATTError`.
public let CBATTErrorDomain = "CBATTErrorDomain"

/// Why something could not be done, above the Attribute Protocol.
public struct CBError: CustomNSError, CustomStringConvertible, Hashable, @unchecked Sendable {
  // Sendable, as Apple's: the values in `userInfo` are not changed after the error is made.
  #if hasAttribute(nonexhaustive)
    @nonexhaustive(warn)
  #endif
  public enum Code: Int, Sendable {
    case unknown = 0
    case invalidParameters = 1
    case invalidHandle = 2
    case notConnected = 3
    case outOfSpace = 4
    case operationCancelled = 5
    case connectionTimeout = 6
    case peripheralDisconnected = 7
    case uuidNotAllowed = 8
    case alreadyAdvertising = 9
    case connectionFailed = 10
    case connectionLimitReached = 11
    case unknownDevice = 12
    case operationNotSupported = 13
    case peerRemovedPairingInformation = 14
    case encryptionTimedOut = 15
    case tooManyLEPairedDevices = 16
    case leGattExceededBackgroundNotificationLimit = 17
    case leGattNearBackgroundNotificationLimit = 18
    @available(*, deprecated, renamed: "unknownDevice") public static var unkownDevice: Code { .unknownDevice }
  }
  public let code: Code
  /// Details of the error, by Foundation's keys.
  public let userInfo: [String: Any]
  public init(_ code: Code, userInfo: [String: Any] = [:]) {
    self.code = code
    self.userInfo = userInfo
  }
  /// Of an error that was bridged to Foundation's.
  public init(_nsError error: NSError) {
    self.init(Code(rawValue: error.code) ?? .unknown, userInfo: error.userInfo)
  }

  /// The same error as Foundation's.
  public var _nsError: NSError {
    NSError(domain: Self.errorDomain, code: errorCode, userInfo: errorUserInfo)
  }

  public static var errorDomain: String { CBErrorDomain }
  public var errorCode: Int { code.rawValue }
  public var errorUserInfo: [String: Any] { [NSLocalizedDescriptionKey: code.sentence].merging(userInfo) { $1 } }
  /// As Foundation's errors: `Error Domain=CBErrorDomain Code=7 "The device has ended the connection."`
  public var description: String { text(Self.errorDomain, errorCode, localizedDescription) }
  public static func == (a: CBError, b: CBError) -> Bool { a.code == b.code }
  public func hash(into hasher: inout Hasher) { hasher.combine(code) }

  public static var unknown: Code { .unknown }
  public static var invalidParameters: Code { .invalidParameters }
  public static var invalidHandle: Code { .invalidHandle }
  public static var notConnected: Code { .notConnected }
  public static var outOfSpace: Code { .outOfSpace }
  public static var operationCancelled: Code { .operationCancelled }
  public static var connectionTimeout: Code { .connectionTimeout }
  public static var peripheralDisconnected: Code { .peripheralDisconnected }
  public static var uuidNotAllowed: Code { .uuidNotAllowed }
  public static var alreadyAdvertising: Code { .alreadyAdvertising }
  public static var connectionFailed: Code { .connectionFailed }
  public static var connectionLimitReached: Code { .connectionLimitReached }
  public static var unknownDevice: Code { .unknownDevice }
  @available(*, deprecated, renamed: "unknownDevice") public static var unkownDevice: Code { .unknownDevice }
  public static var operationNotSupported: Code { .operationNotSupported }
  public static var peerRemovedPairingInformation: Code { .peerRemovedPairingInformation }
  public static var encryptionTimedOut: Code { .encryptionTimedOut }
  public static var tooManyLEPairedDevices: Code { .tooManyLEPairedDevices }
  public static var leGattExceededBackgroundNotificationLimit: Code { .leGattExceededBackgroundNotificationLimit }
  public static var leGattNearBackgroundNotificationLimit: Code { .leGattNearBackgroundNotificationLimit }
}

extension CBError.Code {
  /// `catch CBError.peripheralDisconnected`.
  public static func ~= (code: CBError.Code, error: any Error) -> Bool { (error as? CBError)?.code == code }

  var sentence: String {
    switch self {
    case .unknown: "Something unexpected went wrong."
    case .invalidParameters: "A parameter is invalid."
    case .invalidHandle: "There is no attribute with this handle."
    case .notConnected: "The device is not connected."
    case .outOfSpace: "There is not enough space."
    case .operationCancelled: "The operation was cancelled."
    case .connectionTimeout: "The device did not answer in time."
    case .peripheralDisconnected: "The device has ended the connection."
    case .uuidNotAllowed: "This UUID is not allowed here."
    case .alreadyAdvertising: "The peripheral manager is advertising already."
    case .connectionFailed: "The connection could not be made."
    case .connectionLimitReached: "The adapter has reached its limit of connections."
    case .unknownDevice: "The device is not known."
    case .operationNotSupported: "The operation is not supported."
    case .peerRemovedPairingInformation: "The device has forgotten the pairing."
    case .encryptionTimedOut: "The device did not encrypt the connection in time."
    case .tooManyLEPairedDevices: "The limit of paired devices is reached."
    case .leGattExceededBackgroundNotificationLimit: "The limit of notifications in the background is exceeded."
    case .leGattNearBackgroundNotificationLimit: "The limit of notifications in the background is nearly reached."
    }
  }
}

/// What the other side has answered. Core Specification, Vol 3, Part F, §3.4.1.1.
public struct CBATTError: CustomNSError, CustomStringConvertible, Hashable, @unchecked Sendable {
  // Sendable as `CBError`.
  public typealias Code = CBATTErrorCode
  public let code: Code
  /// Details of the error, by Foundation's keys.
  public let userInfo: [String: Any]
  public init(_ code: Code, userInfo: [String: Any] = [:]) {
    self.code = code
    self.userInfo = userInfo
  }
  /// Of an error that was bridged to Foundation's.
  public init(_nsError error: NSError) {
    self.init(Code(rawValue: error.code) ?? .unlikelyError, userInfo: error.userInfo)
  }

  /// The same error as Foundation's.
  public var _nsError: NSError {
    NSError(domain: Self.errorDomain, code: errorCode, userInfo: errorUserInfo)
  }

  public static var errorDomain: String { CBATTErrorDomain }
  public var errorCode: Int { code.rawValue }
  public var errorUserInfo: [String: Any] { [NSLocalizedDescriptionKey: code.sentence].merging(userInfo) { $1 } }
  /// As Foundation's errors: `Error Domain=CBATTErrorDomain Code=2 "The attribute cannot be read."`
  public var description: String { text(Self.errorDomain, errorCode, localizedDescription) }
  public static func == (a: CBATTError, b: CBATTError) -> Bool { a.code == b.code }
  public func hash(into hasher: inout Hasher) { hasher.combine(code) }

  public static var success: Code { .success }
  public static var invalidHandle: Code { .invalidHandle }
  public static var readNotPermitted: Code { .readNotPermitted }
  public static var writeNotPermitted: Code { .writeNotPermitted }
  public static var invalidPdu: Code { .invalidPdu }
  public static var insufficientAuthentication: Code { .insufficientAuthentication }
  public static var requestNotSupported: Code { .requestNotSupported }
  public static var invalidOffset: Code { .invalidOffset }
  public static var insufficientAuthorization: Code { .insufficientAuthorization }
  public static var prepareQueueFull: Code { .prepareQueueFull }
  public static var attributeNotFound: Code { .attributeNotFound }
  public static var attributeNotLong: Code { .attributeNotLong }
  public static var insufficientEncryptionKeySize: Code { .insufficientEncryptionKeySize }
  public static var invalidAttributeValueLength: Code { .invalidAttributeValueLength }
  public static var unlikelyError: Code { .unlikelyError }
  public static var insufficientEncryption: Code { .insufficientEncryption }
  public static var unsupportedGroupType: Code { .unsupportedGroupType }
  public static var insufficientResources: Code { .insufficientResources }
}

extension CBATTError.Code {
  /// `catch CBATTError.readNotPermitted`.
  public static func ~= (code: CBATTError.Code, error: any Error) -> Bool { (error as? CBATTError)?.code == code }

  var sentence: String {
    switch self {
    case .success: "The operation succeeded."
    case .invalidHandle: "There is no attribute with this handle."
    case .readNotPermitted: "The attribute cannot be read."
    case .writeNotPermitted: "The attribute cannot be written."
    case .invalidPdu: "The request was malformed."
    case .insufficientAuthentication: "The attribute requires an authenticated link."
    case .requestNotSupported: "The other side does not support this request."
    case .invalidOffset: "The offset is beyond the value's end."
    case .insufficientAuthorization: "The attribute requires authorization."
    case .prepareQueueFull: "Too many writes are queued."
    case .attributeNotFound: "There is no such attribute."
    case .attributeNotLong: "The attribute cannot be read in parts."
    case .insufficientEncryptionKeySize: "The link's key is too short for the attribute."
    case .invalidAttributeValueLength: "The attribute does not accept a value of this length."
    case .unlikelyError: "Something unlikely went wrong on the other side."
    case .insufficientEncryption: "The attribute requires an encrypted link."
    case .unsupportedGroupType: "The other side does not support this type of group."
    case .insufficientResources: "The other side has too few resources."
    @unknown default: "The other side answered with error 0x\(String(rawValue, radix: 16, uppercase: true))."
    }
  }
}

// With this, both `error as? NSError` and `nsError as? CBError` succeed, as on Apple's systems. `as` uses it too.
extension CBError: _ObjectiveCBridgeable {
  public func _bridgeToObjectiveC() -> NSError { _nsError }
  public static func _forceBridgeFromObjectiveC(_ source: NSError, result: inout CBError?) {
    _ = _conditionallyBridgeFromObjectiveC(source, result: &result)
  }
  public static func _conditionallyBridgeFromObjectiveC(_ source: NSError, result: inout CBError?) -> Bool {
    result = source.domain == errorDomain ? CBError(_nsError: source) : nil
    return result != nil
  }
  public static func _unconditionallyBridgeFromObjectiveC(_ source: NSError?) -> CBError {
    source.map { CBError(_nsError: $0) } ?? CBError(.unknown)
  }
}
extension CBATTError: _ObjectiveCBridgeable {
  public func _bridgeToObjectiveC() -> NSError { _nsError }
  public static func _forceBridgeFromObjectiveC(_ source: NSError, result: inout CBATTError?) {
    _ = _conditionallyBridgeFromObjectiveC(source, result: &result)
  }
  public static func _conditionallyBridgeFromObjectiveC(_ source: NSError, result: inout CBATTError?) -> Bool {
    result = source.domain == errorDomain ? CBATTError(_nsError: source) : nil
    return result != nil
  }
  public static func _unconditionallyBridgeFromObjectiveC(_ source: NSError?) -> CBATTError {
    source.map { CBATTError(_nsError: $0) } ?? CBATTError(.unlikelyError)
  }
}

private func text(_ domain: String, _ code: Int, _ sentence: String) -> String {
  "Error Domain=\(domain) Code=\(code) \"\(sentence)\""
}
