import BindruneToolbox
import BindruneWire
import BindruneHCI

// Commands of encryption: the central's host starts it, the peripheral's host provides its key.

extension LEEnableEncryption: LinkCommand {
  /// Refused while another procedure runs. An encrypted link is paused first, and gets a new key. Vol 6, Part B,
  /// §5.1.3.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else { return answer(.unknownConnectionIdentifier) }
    guard end.role == .central, !medium.links[end].isPaused else { return answer(.commandDisallowed) }
    let request = EncryptionRequest(
      random: randomNumber, diversifier: encryptedDiversifier,
      longTermKey: AES128(key: longTermKey.number),
      keyDiversifier: controller.addressChance.next(), isRefresh: medium.links[end].transmitKey != nil)
    if request.isRefresh {
      medium.links[end].encryption = .awaitingPause(request)
      medium.proceed(.pauseEncryptionRequest, end)
    } else {
      medium.requestEncryption(request, end)
    }
    medium.errands.append(.serve(end.link))
    return answer(.success)
  }
}
extension LELongTermKeyRequestReply: LinkCommand {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    guard let end = controller.end(connectionHandle) else { return answer(.unknownConnectionIdentifier) }
    guard case .awaitingHost(let central, let peripheral, let isRefresh) = medium.links[end].encryption else {
      return answer(.commandDisallowed)
    }
    let longTermKey = AES128(key: longTermKey.number)
    let key = SessionKey(longTermKey, central: central, peripheral: peripheral)
    medium.links[end].encryption = .starting(key, isRefresh: isRefresh)
    medium.proceed(.startEncryptionRequest, end)
    medium.errands.append(.serve(end.link))
    return answer(.success)
  }
}
extension LELongTermKeyRequestNegativeReply: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    guard medium.links[end].refuseKey() else { return answer(.commandDisallowed) }
    medium.errands.append(.serve(end.link))
    return answer(.success)
  }
}
extension ReadAuthenticatedPayloadTimeout.Return: LinkReturn {}
extension ReadAuthenticatedPayloadTimeout: LinkExecutable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    var result = answer(.success)
    result.authenticatedPayloadTimeout = medium.links[end].payloadTimeout
    return result
  }
}
extension WriteAuthenticatedPayloadTimeout: LinkExecutable {
  /// Not shorter than the peer's longest silence. Vol 4, Part E, §7.3.94.
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, at end: LinkPlace) -> Return {
    let parameters = medium.links[end.link].parameters
    guard authenticatedPayloadTimeout.rawValue > 0,
      authenticatedPayloadTimeout.duration >= parameters.period * (1 + Int(parameters.latency))
    else { return answer(.invalidHCICommandParameters) }
    medium.links[end].payloadTimeout = authenticatedPayloadTimeout
    if medium.links[end].receiveKey != nil { medium.startPayloadTimer(end) }
    return answer(.success)
  }
}
extension LEEncrypt: Simulated {
  /// Vol 4, Part E, §7.8.22: least significant octet first on the wire, the most significant one first in the cipher.
  func run(on controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) {
    let result = Return.with { $0.encryptedData = AES128(key: key.number).encrypt(plaintextData) }
    controller.complete(Self.self, result, now: medium.now)
  }
}
