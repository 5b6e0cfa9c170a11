import BindruneToolbox
import BindruneWire

/// A PDU that waits to be sent. A key stays a ``SecurityKey``, which is wiped, until the controller has room for its
/// octets.
enum Outgoing: Sendable {
  case pdu(SMPPDU)
  case longTermKey(SecurityKey)
  case identityResolvingKey(SecurityKey)
  case signatureKey(SecurityKey)

  private var pdu: SMPPDU {
    switch self {
    case .pdu(let pdu): pdu
    case .longTermKey(let key): .encryptionInformation(EncryptionInformation(key))
    case .identityResolvingKey(let key): .identityInformation(IdentityInformation(key))
    case .signatureKey(let key): .signingInformation(SigningInformation(key))
    }
  }
  /// Appends the PDU. The caller guarantees room for ``SecurityManager/longestPDU`` octets.
  func write(into output: inout OutputRawSpan) {
    do throws(WireError) { try pdu.encode(into: &output, from: Span()) } catch {
      preconditionFailure("the caller guarantees room: \(error)")
    }
  }
}
