import BindruneToolbox
import BindruneWire

/// A PDU that waits to be sent. A key stays a key until the controller has room for its octets.
enum Outgoing: Sendable {
  case pairingRequest(PairingFeatures)
  case pairingResponse(PairingFeatures)
  case pairingConfirm(UInt128)
  case pairingRandom(UInt128)
  case pairingFailed(PairingFailure)
  case encryptionInformation(SecurityKey)
  case centralIdentification(ediv: UInt16, rand: UInt64)
  case identityInformation(SecurityKey)
  case identityAddress(PairingAddress)
  case signingInformation(SecurityKey)
  case securityRequest(AuthReq)
  case pairingPublicKey(P256PublicKey)
  case dhKeyCheck(UInt128)
  case keypress(KeypressNotificationType)

  /// Appends the PDU. The caller guarantees room for ``SecurityManager/longestPDU`` octets.
  func write(into output: inout OutputRawSpan) {
    switch self {
    case .pairingRequest(let features): write(PairingRequest.with { $0.features = features }, &output)
    case .pairingResponse(let features): write(PairingResponse.with { $0.features = features }, &output)
    case .pairingConfirm(let value):
      write(PairingConfirm.with { $0.confirmValue = Octets(0, 16) }, &output, value.leastSignificantFirst.span)
    case .pairingRandom(let value):
      write(PairingRandom.with { $0.randomValue = Octets(0, 16) }, &output, value.leastSignificantFirst.span)
    case .pairingFailed(let reason): write(PairingFailed.with { $0.reason = reason }, &output)
    case .encryptionInformation(let key):
      let message = EncryptionInformation.with { $0.longTermKey.octets = Octets(0, 16) }
      write(message, &output, key.leastSignificantFirst.span)
    case .centralIdentification(let ediv, let rand):
      let message = CentralIdentification.with {
        $0.ediv = ediv
        $0.rand = rand
      }
      write(message, &output)
    case .identityInformation(let key):
      let message = IdentityInformation.with { $0.identityResolvingKey.octets = Octets(0, 16) }
      write(message, &output, key.leastSignificantFirst.span)
    case .identityAddress(let address):
      let message = IdentityAddressInformation.with {
        $0.addrType = address.isRandom ? .randomStatic : .public
        $0.bdADDR = address.address
      }
      write(message, &output)
    case .signingInformation(let key):
      let message = SigningInformation.with { $0.signatureKey.octets = Octets(0, 16) }
      write(message, &output, key.leastSignificantFirst.span)
    case .securityRequest(let authReq): write(SecurityRequest.with { $0.authReq = authReq }, &output)
    case .pairingPublicKey(let key):
      let (x, y) = (key.x.leastSignificantFirst, key.y.leastSignificantFirst)
      let octets = InlineArray<64, UInt8> { $0 < 32 ? x[$0] : y[$0 - 32] }
      let message = PairingPublicKey.with {
        $0.publicKeyX = Octets(0, 32)
        $0.publicKeyY = Octets(32, 32)
      }
      write(message, &output, octets.span)
    case .dhKeyCheck(let value):
      write(PairingDHKeyCheck.with { $0.dhKeyCheck = Octets(0, 16) }, &output, value.leastSignificantFirst.span)
    case .keypress(let type): write(PairingKeypressNotification.with { $0.notificationType = type }, &output)
    }
  }
  private func write(_ message: some SMPMessage, _ output: inout OutputRawSpan) {
    write(message, &output, InlineArray<0, UInt8>(repeating: 0).span)
  }
  private func write<M: SMPMessage>(_ message: M, _ output: inout OutputRawSpan, _ source: Span<UInt8>) {
    output.append(M.code.rawValue)
    do throws(WireError) { try message.encode(into: &output, from: source) } catch {
      preconditionFailure("the caller guarantees room: \(error)")
    }
  }
}
