import BindruneATT
import BasicContainers
import BindruneWire

/// What a bearer needs before it may read or write an attribute. Vol 3, Part F, §3.2.5.
public struct AttributePermissions: BitwiseCopyable, Sendable, Hashable {
  /// Access in one direction.
  ///
  ///     AttributePermissions(read: .encrypted, write: .authenticated.withKey(of: 16).withAuthorization)
  public struct Access: BitwiseCopyable, Sendable, Hashable {
    /// Bits 0 and 1: the level; bit 2: authorization; bit 3: a signature will do; bits 4 … 7: the least key size, less
    /// one.
    let rawValue: UInt8
    init(rawValue: UInt8) { self.rawValue = rawValue }

    /// 0x02 or 0x03: Read, Write Not Permitted.
    public static var none: Access { Access(rawValue: 0) }
    /// Of an attribute whose service is disabled. No other access has a least key size without a level.
    static var disabled: Access { Access(rawValue: 0x10) }
    public static var open: Access { Access(rawValue: 1) }
    /// An encrypted link. Without keys the answer is 0x05, with keys 0x0F: Vol 3, Part C, §10.3.1.
    public static var encrypted: Access { Access(rawValue: 2) }
    /// A link encrypted by a key that was exchanged with protection against a man in the middle.
    public static var authenticated: Access { Access(rawValue: 3) }

    /// The same, and the application must have authorized the client; otherwise 0x08. `Server.setAuthorized`.
    public var withAuthorization: Access { Access(rawValue: rawValue | 0x04) }
    /// The same with a key of at least `octets`, 7 … 16 (Vol 3, Part H, §2.3.4); otherwise 0x0C. A key requires
    /// encryption: `.open` becomes `.encrypted`.
    public func withKey(of octets: Int) -> Access {
      let level = self == .open ? 2 : rawValue & 0x0F
      return Access(rawValue: level | UInt8(min(max(octets, 1), 16) - 1) << 4)
    }

    /// For writing: the same, or a signed write by a client with a bond, and for `.authenticated` an authenticated one,
    /// over a link that is not encrypted. Vol 3, Part C, §10.2.2: LE security mode 2. `.open` becomes `.encrypted`.
    public var orSigned: Access { Access(rawValue: (rawValue & 0x03 == 1 ? rawValue + 1 : rawValue) | 0x08) }

    public var isPermitted: Bool { rawValue & 0x03 != 0 }
    public var needsEncryption: Bool { rawValue & 0x02 != 0 }
    public var needsAuthentication: Bool { rawValue & 0x03 == 3 }
    public var needsAuthorization: Bool { rawValue & 0x04 != 0 }
    public var acceptsSignature: Bool { rawValue & 0x08 != 0 }
    /// Octets; 1 if any key is long enough.
    public var leastKeySize: Int { Int(rawValue >> 4) + 1 }
  }
  public var read: Access
  public var write: Access
  public init(read: Access = .none, write: Access = .none) {
    self.read = read
    self.write = write
  }
  /// Readable by everyone, writable by none: declarations.
  public static var readable: Self { Self(read: .open) }
  public static var writable: Self { Self(write: .open) }
  public static var open: Self { Self(read: .open, write: .open) }
  public static var none: Self { Self() }
}

/// What protects a bearer's link: it decides which attributes the client may touch. Vol 3, Part C, §10.3.1.
public enum BearerSecurity: UInt8, BitwiseCopyable, Sendable, Comparable {
  /// Not encrypted, and no key that could do it: 0x05, Insufficient Authentication, asks the client to pair.
  case none
  /// Not encrypted, although both sides have a key: 0x0F, Insufficient Encryption, asks the client to use it.
  case keysAvailable
  case encrypted
  /// Encrypted by a key exchanged with protection against a man in the middle.
  case authenticated
  @inlinable public static func < (a: BearerSecurity, b: BearerSecurity) -> Bool { a.rawValue < b.rawValue }
}

extension Server {
  /// Sets what protects the link, after the Security Manager and the controller have changed it. `keySize` is the
  /// encryption key's, 7 … 16 octets, and counts while the link is encrypted.
  public mutating func setSecurity(_ security: BearerSecurity, keySize: Int = 16, of bearer: BearerID) {
    guard let client = client(of: bearer) else { return }
    clients[client].security = security
    clients[client].keySize = keySize
  }
  /// Records whether the user or the application has authorized the client, until its last bearer closes. Vol 3, Part
  /// C, §10.5.
  public mutating func setAuthorized(_ isAuthorized: Bool, of bearer: BearerID) {
    guard let client = client(of: bearer) else { return }
    clients[client].isAuthorized = isAuthorized
  }

  /// The index of the attribute that the client reads; throws the refusal.
  @inline(__always)
  mutating func readable(_ handle: AttributeHandle, _ session: Int) throws(Refusal) -> Int {
    guard let position = database.position(of: handle) else { throw Refusal(handle, .invalidHandle) }
    if let error = readError(position, session) { throw Refusal(handle, error) }
    return position
  }
  @inline(__always)
  mutating func writable(
    _ handle: AttributeHandle, _ session: Int, signature: BearerSecurity = .none
  ) throws(Refusal) -> Int {
    guard let position = database.position(of: handle) else { throw Refusal(handle, .invalidHandle) }
    let access = database.attributes[position].permissions.write
    if let error = error(access, .writeNotPermitted, session, signature) { throw Refusal(handle, error) }
    return position
  }
  @inline(__always)
  mutating func readError(_ position: Int, _ session: Int) -> ATTError? {
    error(database.attributes[position].permissions.read, .readNotPermitted, session)
  }
  @inline(__always)
  private mutating func error(
    _ access: AttributePermissions.Access, _ forbidden: ATTError, _ session: Int, _ signature: BearerSecurity = .none
  ) -> ATTError? {
    access == .open ? nil : protectedError(access, forbidden, session, signature)
  }
  /// Checks permission, authorization, authentication, encryption and key size, in the order that `Server` documents.
  /// Vol 3, Part C, §10.3.1: without a key the client must pair (0x05), with one it must encrypt (0x0F), and with a
  /// weak one on an encrypted link it must pair again (0x05).
  @inline(never)
  private mutating func protectedError(
    _ access: AttributePermissions.Access, _ forbidden: ATTError, _ session: Int, _ signature: BearerSecurity
  ) -> ATTError? {
    guard access.isPermitted else { return access == .disabled ? .unlikelyError : forbidden }
    let client = sessions[session].client
    if access.needsAuthorization, !clients[client].isAuthorized { return .insufficientAuthorization }
    guard access.needsEncryption else { return nil }
    let security = clients[client].security,
      least = access.needsAuthentication ? BearerSecurity.authenticated : .encrypted
    if access.acceptsSignature, signature >= least { return nil }
    if security < least {
      return security == .keysAvailable ? .insufficientEncryption : .insufficientAuthentication
    }
    return access.leastKeySize > clients[client].keySize ? .encryptionKeySizeTooShort : nil
  }
}
