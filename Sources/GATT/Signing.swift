import BindruneATT
import BasicContainers
import BindruneToolbox
import BindruneWire
import DequeModule

/// What verifies the signed writes of a client. Vol 3, Part C, §10.4.2.
public struct ClientSigning: Sendable {
  /// The Connection Signature Resolving Key that the client has distributed.
  public var key: SecurityKey
  /// The least counter that is accepted: a signature with a lower one is a repetition.
  public var counter: UInt32
  /// The key was distributed with protection against a man in the middle.
  public var isAuthenticated: Bool
  public init(key: SecurityKey, counter: UInt32, isAuthenticated: Bool) {
    self.key = key
    self.counter = counter
    self.isAuthenticated = isAuthenticated
  }
}

/// Why the server has ignored a signed write.
public enum SignatureRefusal: BitwiseCopyable, Sendable, Equatable {
  /// There is no bond with the client, or it has distributed no signature key.
  case noKey
  /// Another key or other octets were signed.
  case wrongSignature
  /// The counter of an earlier signed write, or a lower one.
  case repeatedCounter
}

extension SignedWriteCommand {
  /// Octets of a signature: the counter and the MAC. Vol 3, Part H, §2.4.5.
  public static var signatureCount: Int { 12 }
  /// The value of a Signed Write Command, and its signature.
  public static func signed(
    _ value: [UInt8], for handle: AttributeHandle, _ key: SecurityKey, counter: UInt32
  ) -> [UInt8] {
    func octets(_ number: UInt64, _ count: Int) -> [UInt8] {
      (0..<count).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
    }
    let message = [opcode.rawValue] + octets(UInt64(handle.rawValue), 2) + value
    let mac = signature(key, message.span, counter: counter)
    return value + octets(UInt64(counter), 4) + octets(mac, 8)
  }
}

/// How a client writes a value that is to be signed. Vol 3, Part G, §4.9.2: over an encrypted link, which makes a
/// signature superfluous (Vol 3, Part C, §10.4), by a Write Command.
public struct SignedWriteForm: BitwiseCopyable, Sendable {
  public let isSigned: Bool
  /// The longest value.
  public let limit: Int
  /// `longestValue`: of a command on the bearer.
  public init(isEncrypted: Bool, mtu: Int, longestValue: Int) {
    isSigned = !isEncrypted
    limit = isEncrypted ? longestValue : min(longestValue, mtu - 3 - SignedWriteCommand.signatureCount)
  }
}

extension Server {
  /// Sets what verifies the client's signed writes; nil: they are ignored.
  public mutating func setSigning(_ signing: ClientSigning?, of bearer: BearerID) {
    if let client = client(of: bearer) { clients[client].signing = signing }
  }

  /// How strong the command's signature is; nil if it does not count, and the command with it. Vol 3, Part C, §10.4.2.
  mutating func verify(_ command: SignedWriteCommand, _ packet: Span<UInt8>, _ session: Int) -> BearerSecurity? {
    let client = sessions[session].client, bearer = sessions[session].bearer
    guard let signing = clients[client].signing else { return refuse(.noKey, command, bearer) }
    // Vol 3, Part H, §2.4.5: the counter, then the MAC.
    let fields = packet.extracting(command.authenticationSignature.range)
    var counter: UInt32 = 0, mac: UInt64 = 0
    for index in (0..<4).reversed() { counter = counter << 8 | UInt32(fields[index]) }
    for index in (4..<12).reversed() { mac = mac << 8 | UInt64(fields[index]) }
    let message = packet.extracting(0..<command.authenticationSignature.range.lowerBound)
    guard signature(signing.key, message, counter: counter) == mac else {
      return refuse(.wrongSignature, command, bearer)
    }
    // After the highest counter none would be left to accept.
    guard counter >= signing.counter, counter < .max else { return refuse(.repeatedCounter, command, bearer) }
    guard hasRoom(effects: 2, octets: 0) else { return nil }
    clients[client].signing?.counter = counter + 1
    effects.append(.signCounterChanged(bearer, counter + 1))
    return signing.isAuthenticated ? .authenticated : .encrypted
  }
  private mutating func refuse(
    _ refusal: SignatureRefusal, _ command: SignedWriteCommand, _ bearer: BearerID
  ) -> BearerSecurity? {
    if hasRoom(effects: 1, octets: 0) {
      effects.append(.signatureRefused(bearer, command.attributeHandle, refusal))
    }
    return nil
  }
}
