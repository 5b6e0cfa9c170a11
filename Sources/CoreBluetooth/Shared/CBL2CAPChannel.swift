public import Foundation

/// A stream of octets between two devices, beside their attributes. Core Specification, Vol 3, Part A, §10.1.
///
/// They are not supported yet: publishing or opening one fails with `CBError.operationNotSupported`.
open class CBL2CAPChannel: NSObject, @unchecked Sendable {
  // Sendable: it never changes.
  public override init() { super.init() }
  /// The device at the other end.
  open var peer: CBPeer! { nil }
  open var inputStream: InputStream! { nil }
  open var outputStream: OutputStream! { nil }
  open var psm: CBL2CAPPSM { 0 }
}
