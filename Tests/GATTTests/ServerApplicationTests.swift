import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// The application's events and answers.
@Suite struct ServerApplicationTests {
  let tester: ServerUnderTest
  init() throws { tester = ServerUnderTest(try richDatabase()) }

  /// Vol 3, Part G, §3.3.3.3.
  @Test func subscribing() {
    #expect(tester.ask("12 13 00 01 00") == "13")
    #expect(tester.effectTexts() == ["1 subscribed 0x0012 1"])
    #expect(tester.ask("0A 13 00") == "0B 01 00")
    #expect(tester.server.configuration(of: handle(0x12), on: tester.bearer) == .notification)
    #expect(tester.server.subscribers(of: handle(0x12)) == [tester.bearer])
    // The same value again changes nothing.
    #expect(tester.ask("12 13 00 01 00") == "13")
    #expect(tester.effectTexts() == [])
    // Indications, which the properties do not permit: 0xFD. Reserved bits are ignored. One octet is the lower one.
    #expect(tester.ask("12 13 00 02 00") == "01 12 13 00 FD")
    #expect(tester.ask("12 13 00 03 00") == "01 12 13 00 FD")
    #expect(tester.ask("12 13 00 FD FF") == "13")
    #expect(tester.ask("0A 13 00") == "0B 01 00")
    #expect(tester.ask("12 13 00 00") == "13")
    #expect(tester.ask("12 13 00 00 00 00") == "01 12 13 00 0D")
    #expect(tester.ask("12 43 00 01 00") == "01 12 43 00 FD")
    #expect(tester.ask("12 43 00 02 00") == "13")
    #expect(tester.ask("12 46 00 03 00") == "13")
    #expect(
      tester.effectTexts() == ["1 subscribed 0x0012 0", "1 subscribed 0x0042 2", "1 subscribed 0x0045 3"])
    #expect(tester.server.subscribers(of: handle(0x12)) == [])
    #expect(tester.server.subscribers(of: handle(0x3E)) == [])
  }

  @Test func eachClientHasItsOwnConfiguration() {
    let first = tester.bearer, second = BearerID(rawValue: 2)
    tester.server.open(second)
    _ = tester.ask("12 13 00 01 00")
    tester.bearer = second
    #expect(tester.ask("0A 13 00") == "0B 00 00")
    _ = tester.ask("12 13 00 01 00")
    #expect(tester.server.subscribers(of: handle(0x12)) == [first, second])
    tester.server.close(first)
    #expect(
      tester.effectTexts() == ["1 subscribed 0x0012 1", "2 subscribed 0x0012 1", "1 subscribed 0x0012 0"])
    #expect(tester.server.subscribers(of: handle(0x12)) == [second])
    tester.server.open(first)
    tester.bearer = first
    #expect(tester.ask("0A 13 00") == "0B 00 00")
  }

  @Test func dynamicReads() {
    #expect(tester.ask("0A 3A 00") == later)
    #expect(tester.effectTexts() == ["1 reads 0x003A+0 #1"])
    #expect(tester.answerRead(1, [1, 2, 3]) == "0B 01 02 03")
    #expect(tester.answerRead(1, [1, 2, 3]) == "nobody waits: answeredAlready")
    #expect(tester.ask("0C 3A 00 16 00") == later)
    #expect(tester.effectTexts() == ["1 reads 0x003A+22 #2"])
    #expect(tester.answerWrite(2) == "nobody waits: wrongKind")
    #expect(tester.answerRead(2, Array(repeating: 5, count: 100)) == "0D " + hex(Array(repeating: 5, count: 22)))
    #expect(tester.ask("0C 3A 00 17 00") == later)
    #expect(tester.refuse(3, .invalidOffset) == "01 0C 3A 00 07")
    #expect(tester.refuse(3, .invalidOffset) == "nobody waits: answeredAlready")
    #expect(tester.refuse(4, .invalidOffset) == "nobody waits: unknown")
    // By type, with a dynamic first value: that one alone. A value too long for the length octet is cut.
    tester.mtu = 517
    #expect(tester.ask("08 01 00 FF FF " + customOctets(11)) == later)
    #expect(tester.answerRead(4, [7]) == "09 03 3A 00 07")
    #expect(tester.ask("08 01 00 FF FF " + customOctets(11)) == later)
    #expect(octets(tester.answerRead(5, Array(repeating: 5, count: 512))).count == 257)
    #expect(tester.ask("08 01 00 FF FF " + customOctets(11)) == later)
    #expect(tester.refuse(6, .readNotPermitted) == "01 08 3A 00 02")
  }

  @Test func dynamicWrites() {
    #expect(tester.ask("12 3A 00 01 02") == later)
    #expect(tester.effectTexts() == ["1 writes 0x003A+0 #1: 01 02"])
    #expect(tester.answerRead(1, []) == "nobody waits: wrongKind")
    #expect(tester.answerWrite(1) == "13")
    #expect(tester.answerWrite(1) == "nobody waits: answeredAlready")
    #expect(tester.ask("12 3A 00 03") == later)
    #expect(tester.refuse(2, ATTError(rawValue: 0x80)) == "01 12 3A 00 80")
    // An Unlikely Error names no attribute: Vol 3, Part F, §3.3.
    #expect(tester.ask("12 3A 00 01") == later && tester.refuse(3, .unlikelyError) == "01 12 00 00 0E")
    _ = tester.effectTexts()
    tester.command("52 3A 00 04")
    #expect(tester.effectTexts() == ["1 wrote 0x003A+0: 04"])
  }

  /// After 25 s the bearer answers for the application: the server reports the cancelled request once, and refuses the
  /// late answer.
  @Test func answeredForByTheBearer() {
    #expect(tester.ask("0A 3A 00") == later)
    tester.expire()
    tester.expire()
    #expect(tester.effectTexts() == ["1 reads 0x003A+0 #1", "1 cancelled #1"])
    #expect(tester.answerRead(1, [1]) == "nobody waits: tooLate")
    // The same for another request.
    #expect(tester.ask("0A 3A 00") == later)
    #expect(tester.ask("12 3A 00 01") == later)
    #expect(tester.effectTexts() == ["1 reads 0x003A+0 #2", "1 cancelled #2", "1 writes 0x003A+0 #3: 01"])
    #expect(tester.answerRead(2, [1]) == "nobody waits: tooLate")
    #expect(tester.answerWrite(3) == "13")
    // A queue that waits for the application's answer is dropped with the request.
    _ = tester.ask("16 3A 00 00 00 01")
    #expect(tester.ask("18 01") == later)
    #expect(tester.ask("16 34 00 00 00 AA") == "17 34 00 00 00 AA")
    _ = tester.effectTexts()
    #expect(tester.ask("18 01") == "19")
    #expect(tester.effectTexts() == ["1 wrote 0x0034+0: AA"])
  }

  @Test func closedWhileWaiting() {
    _ = tester.ask("0A 3A 00")
    tester.server.close(tester.bearer)
    tester.server.close(tester.bearer)
    #expect(tester.effectTexts() == ["1 reads 0x003A+0 #1", "1 cancelled #1"])
    #expect(tester.answerRead(1, [1]) == "nobody waits: disconnected")
  }

  /// Security can be lost between the request and the answer.
  @Test func permissionsCountAtTheAnswer() throws {
    var builder = DatabaseBuilder()
    builder.service("180D") { service in
      service.characteristic("2A37", .read, value: .dynamic, permissions: .init(read: .encrypted))
    }
    let tester = ServerUnderTest(try builder.build())
    tester.server.setSecurity(.encrypted, of: tester.bearer)
    #expect(tester.ask("0A 03 00") == later)
    tester.server.setSecurity(.keysAvailable, of: tester.bearer)
    #expect(tester.answerRead(1, [1]) == "01 0A 03 00 0F")
  }

  /// Effects waiting for the layer above are bounded: further requests are refused, commands dropped.
  @Test func boundedEffects() throws {
    var configuration = ServerConfiguration()
    configuration.waitingEffects = 4
    configuration.waitingOctets = 8
    let tester = ServerUnderTest(try richDatabase(), configuration: configuration)
    #expect(tester.ask("12 34 00 01 02 03 04 05 06") == "13")
    #expect(tester.ask("12 34 00 07 08 09") == "01 12 00 00 11")
    tester.command("52 34 00 07 08 09")
    #expect(tester.ask("0A 34 00") == "0B 01 02 03 04 05 06")
    _ = tester.ask("16 34 00 00 00 07 08 09")
    #expect(tester.ask("18 01") == "01 18 00 00 11")
    for value in ["01", "00", "01"] { #expect(tester.ask("12 13 00 \(value) 00") == "13") }
    #expect(tester.ask("12 13 00 00 00") == "01 12 00 00 11")
    #expect(tester.ask("0A 3A 00") == "01 0A 00 00 11")
    #expect(tester.effectTexts().count == 4)
    #expect(tester.ask("12 34 00 07 08 09") == "13")
    #expect(tester.effectTexts() == ["1 wrote 0x0034+0: 07 08 09"])
  }
}
