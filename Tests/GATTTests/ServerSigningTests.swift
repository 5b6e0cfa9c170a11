import BindruneATT
import BindruneToolbox
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Signed Write Commands. Vol 3, Part F, §3.4.5.4; Vol 3, Part C, §10.4.2. The signatures are from OpenSSL's AES-CMAC.
@Suite struct ServerSigningTests {
  /// 0003 takes signed writes alone; 0005 also needs an authenticated key; 0007 an encrypted link; 0009 takes every
  /// write.
  private func tester(counter: UInt32 = 0, isAuthenticated: Bool = false) throws -> ServerUnderTest {
    var builder = DatabaseBuilder()
    builder.service("AA00") {
      $0.characteristic("AA01", .authenticatedSignedWrites, value: [0])
      $0.characteristic(
        "AA02", .authenticatedSignedWrites, value: [0], permissions: .init(write: .authenticated.orSigned))
      $0.characteristic(
        "AA03", [.write, .authenticatedSignedWrites], value: [0], permissions: .init(write: .encrypted))
      $0.characteristic("AA04", [.writeWithoutResponse, .authenticatedSignedWrites], value: [0])
    }
    let tester = ServerUnderTest(try builder.build())
    let key = SecurityKey(0x00010203_04050607_08090A0B_0C0D0E0F)
    tester.server.setSigning(
      ClientSigning(key: key, counter: counter, isAuthenticated: isAuthenticated), of: tester.bearer)
    return tester
  }
  private func effects(of command: String, _ tester: ServerUnderTest) -> [String] {
    tester.command(command)
    return tester.effectTexts()
  }

  @Test func aSignatureCountsOnce() throws {
    let tester = try tester()
    let first = "D2 03 00 09 00 00 00 00 53 9C 40 48 E4 61 CF 31",
      sixth = "D2 03 00 0A 05 00 00 00 45 9A 90 E1 CF 43 DD 83"
    #expect(effects(of: first, tester) == ["1 signs from 1", "1 wrote 0x0003+0: 09"])
    #expect(effects(of: first, tester) == ["1 signed 0x0003: repeatedCounter"])
    #expect(effects(of: sixth, tester) == ["1 signs from 6", "1 wrote 0x0003+0: 0A"])
    #expect(
      effects(of: "D2 03 00 0B 04 00 00 00 18 0F E8 87 A4 27 36 A8", tester) == ["1 signed 0x0003: repeatedCounter"])
    // The highest counter but one is the last: no counter would be left to accept after the highest.
    #expect(
      effects(of: "D2 03 00 0C FE FF FF FF AA 7B DC 14 27 5D 37 87", tester)
        == ["1 signs from 4294967295", "1 wrote 0x0003+0: 0C"])
    #expect(
      effects(of: "D2 03 00 0D FF FF FF FF C6 B0 A0 0F 2E 9A D1 FE", tester) == ["1 signed 0x0003: repeatedCounter"])
  }
  /// Each octet is signed: opcode, handle, value, counter and MAC.
  @Test func aChangedOctet() throws {
    let signed = octets("D2 03 00 09 00 00 00 00 53 9C 40 48 E4 61 CF 31")
    for index in 1..<signed.count {
      let tester = try tester()
      var changed = signed
      changed[index] ^= 0x10
      let handle = UInt16(changed[1]) | UInt16(changed[2]) << 8
      #expect(
        effects(of: hex(changed), tester) == ["1 signed \(AttributeHandle(rawValue: handle).text): wrongSignature"])
      // The true one still counts.
      #expect(effects(of: hex(signed), tester).count == 2)
    }
  }
  @Test func withoutAKey() throws {
    let tester = try tester(), signed = "D2 03 00 09 00 00 00 00 53 9C 40 48 E4 61 CF 31"
    tester.server.setSigning(nil, of: tester.bearer)
    #expect(effects(of: signed, tester) == ["1 signed 0x0003: noKey"])
    // A value that takes every write does not take a signed one that nobody has verified.
    #expect(effects(of: "D2 09 00 10 08 00 00 00 C1 1C 80 7C 91 82 AA A7", tester) == ["1 signed 0x0009: noKey"])
  }
  /// What a signature permits, and what an unencrypted link does not permit without one.
  @Test(arguments: [false, true]) func permissions(isAuthenticated: Bool) throws {
    let tester = try tester(isAuthenticated: isAuthenticated)
    for handle in ["03", "05", "07"] {
      #expect(effects(of: "52 \(handle) 00 01", tester) == [])
      #expect(tester.ask("12 \(handle) 00 01") == "01 12 \(handle) 00 05")
    }
    #expect(
      effects(of: "D2 05 00 0E 06 00 00 00 DB DA A2 CE 43 35 25 68", tester)
        == ["1 signs from 7"] + (isAuthenticated ? ["1 wrote 0x0005+0: 0E"] : []))
    #expect(effects(of: "D2 07 00 0F 07 00 00 00 CC 3F AE 2F 91 47 54 9B", tester) == ["1 signs from 8"])
    #expect(
      effects(of: "D2 09 00 10 08 00 00 00 C1 1C 80 7C 91 82 AA A7", tester)
        == ["1 signs from 9", "1 wrote 0x0009+0: 10"])
    // An encrypted link permits the plain write.
    tester.server.setSecurity(.authenticated, of: tester.bearer)
    for handle in ["03", "05", "07"] {
      #expect(effects(of: "52 \(handle) 00 01", tester) == ["1 wrote 0x00\(handle)+0: 01"])
    }
  }
  /// `.open.orSigned` asks for one of both, and nothing else changes.
  @Test func accessWithASignature() {
    typealias Access = AttributePermissions.Access
    #expect(Access.open.orSigned == .encrypted.orSigned && Access.open.orSigned.needsEncryption)
    #expect(!Access.none.orSigned.isPermitted && Access.authenticated.orSigned.needsAuthentication)
    let all = Access.open.withAuthorization.withKey(of: 12).orSigned
    #expect(all.needsEncryption && all.needsAuthorization && all.leastKeySize == 12 && all.acceptsSignature)
    #expect(Access.encrypted.orSigned.withKey(of: 12).acceptsSignature && !Access.encrypted.acceptsSignature)
  }
}
