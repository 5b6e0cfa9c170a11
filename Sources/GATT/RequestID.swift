import BindruneATT
import BindruneWire

/// A caller's name for its request; it returns in exactly one `ClientEffect.completed`.
///
/// The caller chooses the number and keeps it unique among the requests of one client that have not completed.
public struct RequestID: RawRepresentable, BitwiseCopyable, Sendable, Hashable {
  public var rawValue: UInt64
  @inlinable public init(rawValue: UInt64) { self.rawValue = rawValue }
}

/// What a `Client` reports to the layer above. `Octets` are ranges of the client's arena: read them with
/// `Client.withBytes` before the next call that changes the client.
public enum ClientEffect: BitwiseCopyable, Sendable, Equatable {
  /// A request ended. Every request ends once.
  case completed(RequestID, ClientResult)
  /// The server sent a value on its own initiative. One for 0x1B and 0x1D, one for each tuple of 0x23, in the packet's
  /// order.
  case value(AttributeHandle, Octets, ValueKind)
  /// The number of values that were dropped, because earlier effects had not been taken.
  case valuesLost(Int)
  /// The peer violated a rule in a way that the client tolerates; the request continues.
  case ignored(ResponseViolation)
  /// The server refuses a request for lack of security (0x05, 0x0C or 0x0F), and the request waits: secure the link if
  /// possible, and call `Client.securityEnded` in any case. Only if `ClientConfiguration.repeatsWhenSecured`.
  case securityNeeded(ATTError)
  /// The server's attributes in this range have changed: `remote` has forgotten them, waiting requests that refer to
  /// them have failed, subscriptions to them have ended. The server reported it by a Service Changed indication or by
  /// 0x12.
  case servicesChanged(HandleRange)
  /// The client has discovered a changed range again, and `remote` holds the result; or the error that prevented it.
  /// Follows `servicesChanged` if `remote` was complete.
  case rediscovered(HandleRange, ClientError?)
}

/// How a value arrived. Vol 3, Part G, §4.10 and §4.11.
public enum ValueKind: UInt8, BitwiseCopyable, Sendable {
  /// Handle Value Notification or Multiple Handle Value Notification.
  case notification
  /// Handle Value Indication; the bearer has confirmed it.
  case indication
}

/// How a request ended.
public enum ClientResult: BitwiseCopyable, Sendable, Equatable {
  /// Written, subscribed, unsubscribed.
  case done
  /// The value that was read. For Read Multiple, the values one after another: the caller knows their lengths.
  case value(Octets)
  /// Several values with their handles: `Client.values(of:)` separates them.
  case values(Octets)
  /// What was found is now part of `Client.remote`.
  case discovered
  /// The server's Database Hash; `nil` when it has none.
  case databaseHash(DatabaseHash?)
  case failed(ClientError)
}

/// Why a request failed.
public enum ClientError: Error, BitwiseCopyable, Sendable, Equatable {
  /// The server's answer: the error, the request it answers, and the handle it names.
  case att(ATTError, ATTOpcode, AttributeHandle)
  /// The bearer is closed.
  case bearerClosed(BearerClosure)
  /// The response violated a rule, so that the request cannot continue. The bearer stays open for the next request.
  case malformedResponse(ResponseViolation)
  /// `Client.cancel`.
  case cancelled
  /// `ClientConfiguration.maximumWaiting` requests already wait.
  case busy
  /// More than the 512 octets that a value may have (Vol 3, Part F, §3.2.9), or more handles than fit into the PDU.
  case valueTooLong
  /// No value, no handles, or a range that ends before it starts.
  case invalidRequest
  /// The database has changed since it was discovered, so that the handle may mean something else: discover again.
  /// Vol 3, Part G, §2.5.2.
  case databaseChanged
  /// `subscribe` to a handle that is not a characteristic value of `Client.remote`.
  case unknownCharacteristic
  /// The characteristic has no Client Characteristic Configuration descriptor. Vol 3, Part G, §3.3.3.3.
  case noConfigurationDescriptor
}

/// What was wrong with a response. A fatal violation fails the request alone.
public enum ResponseViolation: BitwiseCopyable, Sendable, Equatable {
  /// The response belongs to another request, or to none. Vol 3, Part F, §3.4.9.
  case unexpectedResponse
  /// Handles of a list do not increase, so that discovery would never end. Vol 3, Part F, §3.4.3.2, §3.4.4.2,
  /// §3.4.4.10.
  case handlesNotIncreasing(AttributeHandle)
  /// A handle outside of the requested range; or a value of the handle 0x0000, which no attribute has: Vol 3, Part F,
  /// §3.2.2.
  case handleOutOfRange(AttributeHandle)
  /// A group that ends before it starts. Vol 3, Part F, §3.4.4.10; Vol 3, Part G, §3.2.
  case groupEnd(AttributeHandle)
  /// A declaration with an impossible length. Vol 3, Part G, §3.1 … §3.3.
  case declarationLength(AttributeHandle, Int)
  /// A characteristic value before its declaration. Vol 3, Part G, §3.3.2.
  case valueHandle(AttributeHandle)
  /// The echo in a Prepare Write Response differs from what was sent. Vol 3, Part G, §4.9.5.
  case echo(AttributeHandle)
  /// A value of more than 512 octets, or more values than requested.
  case tooLong
  /// A Service Changed value that is not a range: the client takes everything as changed. Vol 3, Part G, §7.1.
  case changedRange
  /// A value of this attribute, from somebody who has not proven to be the bonded server: `Client.awaitsEncryption`.
  case notEncrypted(AttributeHandle)
}
