import BindruneConformance
import Testing

/// The functions of scripts with the Specification's sample data, which is written the most significant octet first.
@Suite struct PairingFunctionTests {
  /// In the order of scripts.
  static func octets(_ number: String) -> String {
    let digits = Array(number.filter { $0 != " " && $0 != "_" })
    return stride(from: digits.count - 2, through: 0, by: -2).map { String(digits[$0...$0 + 1]) }.joined(separator: " ")
  }
  static let u = octets("20b003d2 f297be2c 5e2c83a7 e9f9a5b9 eff49111 acf4fddb cc030148 0e359de6")
  static let uy = octets("dc809c49 652aeb6d 63329abf 5a52155c 766345c2 8fed3024 741c8ed0 1589d28b")
  static let v = octets("55188b3d 32f6bb9a 900afcfb eed4e72a 59cb9ac2 f19d7cfb 6b4fdd49 f47fc5fd")
  static let x = octets("d5cb8454 d177733e ffffb2ec 712baeab")
  static let y = octets("a6e8e7cc 25a75f6e 216583f7 ff3dc4cf")
  static let a1 = octets("00 561237 37bfce"), a2 = octets("00 a71370 2dcfc1")

  static let samples: [(section: String, call: String, result: String)] = [
    (
      "Vol 3, Part H, §2.2.3",
      "c1(00*16, \(octets("5783D521 56AD6F0E 6388274E C6702EE0")), 01 01 00 00 10 07 07, 02 03 00 00 08 00 05, "
        + "\(octets("A1A2A3A4A5A6")) 01, \(octets("B1B2B3B4B5B6")) 00)",
      octets("1e1e3fef 878988ea d2a74dc5 bef13b86")
    ),
    (
      "Vol 3, Part H, §2.2.4",
      "s1(00*16, \(octets("000F0E0D 0C0B0A09 11223344 55667788")), \(octets("01020304 05060708 99AABBCC DDEEFF00")))",
      octets("9a1fe1f0 e8b0f49b 5b4216ae 796da062")
    ),
    ("Appendix D.2", "f4(\(u), \(v), \(x), 00)", octets("f2c916f1 07a9bd1c f1eda1be a974872d")),
    (
      "Appendix D.4",
      "f6(\(octets("2965f176 a1084a02 fd3f6a20 ce636e20")), \(x), \(y), "
        + "\(octets("12a3343b b453bb54 08da42d2 0c2d0fc8")), \(octets("010102")), \(a1), \(a2))",
      octets("e3c47398 9cd0e8c5 d26c0b09 da958f61")
    ),
    // 0x2f9ed5ba, of which the lowest six decimal digits are 938554.
    ("Appendix D.5", "g2(\(u), \(v), \(x), \(y))", octets(String(938_554 + 1 << 32, radix: 16).suffix(8).description)),
    // f5 with the DHKey of the tester's private key, device B's, and of the debug public key: Vol 2, Part G, §7.1.2.1.
    (
      "Appendix D.3", "mackey(\(u) \(uy), \(x), \(y), \(a1), \(a2))", octets("2965f176 a1084a02 fd3f6a20 ce636e20")
    ),
    ("Appendix D.3", "ltk(\(u) \(uy), \(x), \(y), \(a1), \(a2))", octets("69867911 69d7cd23 980522b5 94750a38")),
    // 123456 is 0b11110001001000000.
    ("Vol 3, Part H, §2.3.5.6.3", "bit(40 E2 01 00, 05)", "80"),
    ("Vol 3, Part H, §2.3.5.6.3", "bit(40 E2 01 00, 06)", "81"),
    ("Vol 3, Part H, §2.3.5.6.3", "bit(40 E2 01 00, 10)", "81"),
    ("Vol 3, Part H, §2.3.5.6.3", "bit(40 E2 01 00, 11)", "80"),
    (
      "Vol 3, Part H, §2.3.4", "shortened(\(octets("12345678 9ABCDEF0 12345678 9ABCDEF0")), 07)",
      octets("3456789ABCDEF0") + " 00*9"
    ),
  ]
  private func outcome(_ line: String) throws -> Verdict.Outcome {
    let script = try Script("title: T\nchannel: smp\nrole: responder\n" + line, file: "s")
    return Runner.run(script, against: PairingTarget(script.pairing)).outcome
  }
  @Test(arguments: samples) func sampleData(_ section: String, _ call: String, _ result: String) throws {
    #expect(try outcome("check \(call) = \(result)") == .passed, "\(section)")
    guard case .failed = try outcome("check \(call) != \(result)") else {
      Issue.record("\(section)")
      return
    }
  }

  /// What cannot be computed fails the step, and the report says why.
  @Test(arguments: [
    ("check f4({pkx}, {pkx}, 00*15, 00) = 00", "15 octets for nonce in f4(own x:32, other x:32, nonce:16, bit:1)"),
    ("check ltk({pkx} 00*32, 00*16, 00*16, {A}, {B}) = 00", "a public key that is not on the curve"),
    ("check bit(00*4, 14) = 80", "round 20; a passkey has 20 bits"),
    ("check shortened(00*16, 11) = 80", "17 octets; a key has 16"),
    ("either\n> 05 {a:1}\nor\n> nothing\nend\n< {a}", "none: another alternative came"),
  ]) func notComputable(_ line: String, _ why: String) throws {
    guard case .failed(let failure) = try outcome(line) else {
      Issue.record("\(line) passes")
      return
    }
    #expect(failure.got == why)
  }
}
