// The cryptographic functions of pairing. Vol 3, Part H, §2.2. Names, parameters and their order are the
// Specification's. An address of 56 bits is its type's octet (0 public, 1 random), then its 48 bits.

// MARK: LE legacy pairing

/// The confirm value function. Vol 3, Part H, §2.2.3.
///
/// `k` is the temporary key, `r` a random number; `preq` and `pres` are the Pairing Request and the Pairing Response,
/// of 56 bits, and `ia` and `ra` the addresses, of 48.
public func c1(
  _ k: SecurityKey, _ r: UInt128, preq: UInt64, pres: UInt64, iat: UInt8, rat: UInt8, ia: UInt64, ra: UInt64
) -> UInt128 {
  let p1 = UInt128(pres) << 72 | UInt128(preq) << 16 | UInt128(rat) << 8 | UInt128(iat)
  let p2 = UInt128(ia) << 48 | UInt128(ra)
  let e = AES128(key: k)
  return e.encrypt(e.encrypt(r ^ p1) ^ p2)
}

/// The key generation function: the short term key. Vol 3, Part H, §2.2.4.
public func s1(_ k: SecurityKey, _ r1: UInt128, _ r2: UInt128) -> SecurityKey {
  SecurityKey(AES128(key: k).encrypt(r1 << 64 | r2 & 0xFFFF_FFFF_FFFF_FFFF))
}

// MARK: LE Secure Connections

/// The confirm value function. Vol 3, Part H, §2.2.6.
public func f4(_ u: UInt256, _ v: UInt256, _ x: UInt128, _ z: UInt8) -> UInt128 {
  var code = AESCMAC(key: x)
  code.update(u)
  code.update(v)
  code.update(UInt128(z), octets: 1)
  return code.finalize()
}

/// The key generation function: MacKey and the long term key. Vol 3, Part H, §2.2.7.
public func f5(
  _ w: DHKey, _ n1: UInt128, _ n2: UInt128, _ a1: UInt64, _ a2: UInt64
) -> (macKey: SecurityKey, ltk: SecurityKey) {
  var salted = AESCMAC(key: 0x6C888391_AAF5A538_60370BDB_5A6083BE)
  salted.update(w)
  let t = SecurityKey(salted.finalize())
  func key(_ counter: UInt128) -> SecurityKey {
    var code = AESCMAC(key: t)
    code.update(counter, octets: 1)
    code.update(0x62746C65, octets: 4)  // "btle"
    code.update(n1)
    code.update(n2)
    code.update(UInt128(a1), octets: 7)
    code.update(UInt128(a2), octets: 7)
    code.update(256, octets: 2)
    return SecurityKey(code.finalize())
  }
  return (key(0), key(1))
}

/// The check value function. Vol 3, Part H, §2.2.8. `ioCap` has 24 bits.
public func f6(
  _ w: SecurityKey, _ n1: UInt128, _ n2: UInt128, _ r: UInt128, _ ioCap: UInt32, _ a1: UInt64, _ a2: UInt64
) -> UInt128 {
  var code = AESCMAC(key: w)
  code.update(n1)
  code.update(n2)
  code.update(r)
  code.update(UInt128(ioCap), octets: 3)
  code.update(UInt128(a1), octets: 7)
  code.update(UInt128(a2), octets: 7)
  return code.finalize()
}

/// The numeric comparison function: its lowest six decimal digits are compared. Vol 3, Part H, §2.2.9.
public func g2(_ u: UInt256, _ v: UInt256, _ x: UInt128, _ y: UInt128) -> UInt32 {
  var code = AESCMAC(key: x)
  code.update(u)
  code.update(v)
  code.update(y)
  return UInt32(truncatingIfNeeded: code.finalize())
}

// MARK: Signed data

/// The signing algorithm: the 64 bits of the MAC of a message with its counter. Vol 3, Part H, §2.4.5.
///
/// `m` has the octets as they are in the packet, least significant first, and AES-CMAC takes the most significant
/// first.
public func signature(_ k: SecurityKey, _ m: Span<UInt8>, counter: UInt32) -> UInt64 {
  var code = AESCMAC(key: k), reversed: [UInt8] = []
  for index in m.indices.reversed() { reversed.append(m[index]) }
  code.update(UInt128(counter), octets: 4)
  code.update(reversed.span)
  return UInt64(truncatingIfNeeded: code.finalize() >> 64)
}

// MARK: Keys for the other transport

/// The link key conversion function h6. Vol 3, Part H, §2.2.10.
public func h6(_ w: SecurityKey, _ keyID: UInt32) -> SecurityKey {
  var code = AESCMAC(key: w)
  code.update(UInt128(keyID), octets: 4)
  return SecurityKey(code.finalize())
}

/// The link key conversion function h7. Vol 3, Part H, §2.2.11.
public func h7(_ salt: UInt128, _ w: SecurityKey) -> SecurityKey {
  var code = AESCMAC(key: salt)
  code.update(w.number)
  return SecurityKey(code.finalize())
}
