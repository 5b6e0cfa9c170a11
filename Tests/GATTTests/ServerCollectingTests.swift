import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Lists over several values of the application: one request to it at a time, one response at the end. Vol 3, Part F,
/// §3.4.4.
@Suite struct ServerCollectingTests {
  /// Values of one type: stored, dynamic, dynamic, stored, dynamic, each at an even handle from 0x0004 on; and a
  /// protected one at 0x000E, then 0x0010 dynamic.
  let tester: ServerUnderTest
  init() throws { tester = try Self.tester() }
  static func tester(mtu: Int = 23) throws -> ServerUnderTest {
    var builder = DatabaseBuilder()
    builder.service("AA00") { service in
      service.reserve(1)
      for value in [[0xA0, 0xA1], nil, nil, [0xB0, 0xB1], nil] as [[UInt8]?] {
        service.characteristic("AA01", .read, value: value.map { .stored($0) } ?? .dynamic)
      }
      service.characteristic("AA01", .read, value: .dynamic, permissions: .init(read: .encrypted))
      service.characteristic("AA01", .read, value: .dynamic)
    }
    let tester = ServerUnderTest(try builder.build(), mtu: mtu)
    #expect(tester.server.database.lastHandle == handle(0x10))
    return tester
  }
  static let byType = "08 01 00 FF FF 01 AA"

  @Test func readByType() {
    #expect(tester.ask(Self.byType) == later)
    #expect(tester.effectTexts() == ["1 reads 0x0006+0 #1"])
    #expect(tester.answerRead(1, [0xC0, 0xC1]) == later)
    #expect(tester.effectTexts() == ["1 reads 0x0008+0 #2"])
    // A request cannot be answered twice; accepting a write does not answer a read.
    #expect(tester.answerRead(1, [0]) == "nobody waits: answeredAlready")
    #expect(tester.answerWrite(2) == "nobody waits: wrongKind")
    #expect(tester.answerRead(2, [0xD0, 0xD1]) == later)
    // The server keeps the fourth, and would request the fifth if it had room: 4 × 4 + 2 octets of 23, and 4 more.
    #expect(tester.effectTexts() == ["1 reads 0x000C+0 #3"])
    #expect(
      tester.answerRead(3, [0xE0, 0xE1])
        == "09 04 04 00 A0 A1 06 00 C0 C1 08 00 D0 D1 0A 00 B0 B1 0C 00 E0 E1")
    #expect(tester.effectTexts() == [])
    // From that handle on, the first value needs encryption.
    #expect(tester.ask("08 0D 00 FF FF 01 AA") == "01 08 0E 00 05")
    #expect(tester.ask("08 0F 00 FF FF 01 AA") == later)
    #expect(tester.answerRead(4, []) == "09 02 10 00")
  }

  /// A list ends before a value of another length, one that the client may not read, or one that the application
  /// refuses; an error for the first value is the answer.
  @Test func whereAListEnds() {
    #expect(tester.ask(Self.byType) == later && tester.answerRead(1, [1]) == "09 04 04 00 A0 A1")
    #expect(tester.ask("08 05 00 FF FF 01 AA") == later)
    #expect(tester.refuse(2, ATTError(rawValue: 0x80)) == "01 08 06 00 80")
    #expect(tester.ask("08 05 00 FF FF 01 AA") == later && tester.answerRead(3, [1, 2, 3]) == later)
    #expect(tester.refuse(4, ATTError(rawValue: 0x80)) == "09 05 06 00 01 02 03")
    #expect(tester.ask("08 0C 00 FF FF 01 AA") == later && tester.answerRead(5, [1]) == "09 03 0C 00 01")
    // A long first value leaves no room for a second, which the server does not request.
    #expect(tester.ask("08 05 00 FF FF 01 AA") == later)
    _ = tester.effectTexts()
    #expect(
      tester.answerRead(6, Array(repeating: 7, count: 600)) == "09 15 06 00 " + hex(Array(repeating: 7, count: 19)))
    #expect(tester.effectTexts() == [])
    // A range that ends at a dynamic value, and at the last handle.
    #expect(tester.ask("08 05 00 06 00 01 AA") == later && tester.answerRead(7, [1]) == "09 03 06 00 01")
  }

  @Test func readMultiple() {
    #expect(tester.ask("0E 04 00 06 00 08 00 0A 00 0C 00") == later)
    #expect(tester.answerRead(1, [1]) == later && tester.answerRead(2, []) == later)
    #expect(tester.effectTexts().count == 3)
    #expect(tester.answerRead(3, [2, 3]) == "0F A0 A1 01 B0 B1 02 03")
    #expect(tester.ask("20 06 00 04 00 08 00") == later && tester.answerRead(4, [1, 2, 3]) == later)
    #expect(tester.answerRead(5, []) == "21 03 00 01 02 03 02 00 A0 A1 00 00")
    // Any error is the answer: of the application, or of a later handle.
    #expect(tester.ask("0E 04 00 06 00") == later && tester.refuse(6, .unlikelyError) == "01 0E 00 00 0E")
    #expect(tester.ask("20 06 00 08 00") == later && tester.answerRead(7, [1]) == later)
    #expect(tester.refuse(8, ATTError(rawValue: 0x81)) == "01 20 08 00 81")
    #expect(tester.ask("0E 06 00 0E 00") == later && tester.answerRead(9, [1]) == "01 0E 0E 00 05")
    #expect(tester.ask("0E 06 00 77 00") == later && tester.answerRead(10, [1]) == "01 0E 77 00 01")
    // A full response needs no more values; the server still checks the later handles.
    _ = tester.effectTexts()
    let full = Array(repeating: UInt8(9), count: 30)
    #expect(tester.ask("0E 06 00 08 00 0C 00") == later && tester.answerRead(11, full) == "0F " + hex(full.prefix(22)))
    #expect(tester.ask("20 06 00 08 00 0C 00") == later)
    #expect(tester.answerRead(12, full) == "21 1E 00 " + hex(full.prefix(20)))
    #expect(tester.ask("0E 06 00 08 00 0E 00") == later && tester.answerRead(13, full) == "01 0E 0E 00 05")
    // A value of 18 octets leaves room for a length only.
    #expect(tester.ask("20 06 00 08 00") == later && tester.answerRead(14, Array(full.prefix(18))) == later)
    #expect(tester.answerRead(15, [1, 2]) == "21 12 00 " + hex(full.prefix(18)) + " 02 00")
  }

  /// The same value several times, as often as the request names it.
  @Test func sameHandleAgain() {
    #expect(tester.ask("0E 06 00 06 00 06 00") == later)
    #expect(tester.answerRead(1, [1]) == later && tester.answerRead(2, [2]) == later)
    #expect(tester.answerRead(3, [3]) == "0F 01 02 03")
  }

  /// The server checks permissions and the database again when the list continues.
  @Test func changesBetweenTheAnswers() throws {
    tester.server.setSecurity(.encrypted, of: tester.bearer)
    #expect(tester.ask("0E 0E 00 06 00") == later)
    tester.server.setSecurity(.keysAvailable, of: tester.bearer)
    #expect(tester.answerRead(1, [1]) == "01 0E 0E 00 0F")
    #expect(tester.ask("0E 06 00 0C 00") == later)
    try tester.server.remove(service: handle(1))
    #expect(tester.answerRead(2, [1]) == "01 0E 06 00 01")
    #expect(tester.ask(Self.byType) == "01 08 01 00 0A")
  }

  /// Vol 3, Part F, §3.4.2.2: the response uses the MTU of its request, even after an exchange meanwhile.
  @Test func largerMTUMeanwhile() {
    let value = Array(repeating: UInt8(5), count: 100)
    for (request, response) in [
      ("0A 06 00", "0B " + hex(value.prefix(22))), ("0C 06 00 00 00", "0D " + hex(value.prefix(22))),
      ("08 05 00 FF FF 01 AA", "09 15 06 00 " + hex(value.prefix(19))),
      ("0E 06 00 04 00", "0F " + hex(value.prefix(22))),
      ("20 06 00 04 00", "21 64 00 " + hex(value.prefix(20))),
    ] {
      tester.mtu = 23
      #expect(tester.ask(request) == later)
      tester.mtu = 247
      guard case .readRequested(let id, _, _, _)? = tester.effects().last else {
        Issue.record("not asked")
        return
      }
      #expect(tester.answerRead(id.rawValue, value) == response)
    }
  }

  /// If the client disconnects or the bearer answers for the application, the collected part is discarded, and not used
  /// in the next response.
  @Test func endsMeanwhile() {
    #expect(tester.ask(Self.byType) == later && tester.answerRead(1, [1, 2]) == later)
    tester.expire()
    #expect(tester.answerRead(2, [1]) == "nobody waits: tooLate")
    #expect(tester.ask("08 07 00 FF FF 01 AA") == later)
    #expect(tester.refuse(3, .readNotPermitted) == "01 08 08 00 02")
    #expect(tester.ask("0E 06 00 08 00") == later)
    tester.server.close(tester.bearer)
    #expect(tester.answerRead(4, [1]) == "nobody waits: disconnected")
    #expect(tester.effectTexts().suffix(1) == ["1 cancelled #4"])
  }

  /// Without room for another request to the application: Insufficient Resources, also in the middle of a list.
  @Test func boundedQuestions() throws {
    var configuration = ServerConfiguration()
    configuration.waitingEffects = 1
    var builder = DatabaseBuilder()
    builder.service("AA00") { service in
      service.characteristic("AA01", .read, value: .dynamic)
      service.characteristic("AA01", .read, value: .dynamic)
    }
    let tester = ServerUnderTest(try builder.build(), configuration: configuration)
    #expect(tester.ask("0E 03 00 05 00") == later)
    #expect(tester.answerRead(1, [1]) == "01 0E 00 00 11")
    _ = tester.effectTexts()
    #expect(tester.ask("0E 03 00 05 00") == later)
    _ = tester.effectTexts()
    #expect(tester.answerRead(2, [1]) == later)
    _ = tester.effectTexts()
    #expect(tester.answerRead(3, [1]) == "0F 01 01")
  }

  /// Several values of the application in one queue: written all or none, with one answer. Vol 3, Part F, §3.4.6.3.
  @Test func preparedForTheApplication() throws {
    var builder = DatabaseBuilder()
    builder.service("AA00") { service in
      service.characteristic("AA01", [.read, .write], value: .dynamic)
      service.characteristic("AA02", [.read, .write], value: [1])
      service.characteristic("AA03", [.read, .write], value: .dynamic)
    }
    let tester = ServerUnderTest(try builder.build())
    func prepare() {
      for part in ["03 00 00 00 0A", "05 00 00 00 0B", "07 00 02 00 0C", "03 00 01 00 0D"] {
        #expect(tester.ask("16 " + part) == "17 " + part)
      }
      #expect(tester.ask("18 01") == later)
    }
    prepare()
    #expect(
      tester.effectTexts() == [
        "1 writes 0x0003+0 #1: 0A and 2 more", "1 writes 0x0007+2 #1: 0C and 1 more", "1 writes 0x0003+1 #1: 0D",
      ])
    #expect(tester.server.database.value(handle(5)) == [1])
    #expect(tester.answerWrite(1) == "19" && tester.server.database.value(handle(5)) == [0x0B])
    #expect(tester.effectTexts() == ["1 wrote 0x0005+0: 0B"])
    #expect(tester.answerWrite(1) == "nobody waits: answeredAlready")
    #expect(tester.setValue(5, [1]))
    prepare()
    let about = tester.answer { server, output in
      server.refuse(ServerRequestID(rawValue: 2), ATTError(rawValue: 0x80), about: handle(7), into: &output)
    }
    #expect(about == "01 18 07 00 80" && tester.server.database.value(handle(5)) == [1])
    prepare()
    #expect(tester.refuse(3, ATTError(rawValue: 0x80)) == "01 18 03 00 80")
    #expect(tester.ask("18 01") == "19")
  }
}
