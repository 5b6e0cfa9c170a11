import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Prepare and Execute Write: Vol 3, Part F, §3.4.6.
@Suite struct ServerQueueTests {
  let tester: ServerUnderTest
  init() throws { tester = ServerUnderTest(try richDatabase()) }

  @Test func longWriteIsOneWrite() {
    let value = (0..<60).map { UInt8(200 - $0) }
    for start in stride(from: 0, to: 60, by: 18) {
      let part = value[start..<min(start + 18, 60)]
      let tail = "3E 00 \(hex([UInt8(start), 0])) \(hex(part))"
      #expect(tester.ask("16 " + tail) == "17 " + tail)
    }
    #expect(tester.server.database.value(handle(0x3E))?.count == 512)
    #expect(tester.effectTexts() == [])
    #expect(tester.ask("18 01") == "19")
    #expect(tester.effectTexts() == ["1 wrote 0x003E+0: \(hex(value))"])
    // Written from its first octet on, it replaces the whole value, as a Write Request does.
    #expect(tester.server.database.value(handle(0x3E)) == value)
  }

  @Test func partialWriteKeepsTheRest() {
    #expect(tester.ask("16 3E 00 FE 01 AA") == "17 3E 00 FE 01 AA")
    #expect(tester.ask("16 34 00 03 00 04 05") == "17 34 00 03 00 04 05")
    #expect(tester.ask("18 01") == "19")
    #expect(tester.ask("0C 3E 00 FD 01") == "0D FD AA FF")
    #expect(tester.ask("0A 34 00") == "0B 01 02 03 04 05")
    #expect(tester.effectTexts() == ["1 wrote 0x003E+510: AA", "1 wrote 0x0034+3: 04 05"])
  }

  @Test func partsInAnyOrder() {
    _ = tester.ask("16 34 00 02 00 AA BB")
    _ = tester.ask("16 34 00 00 00 CC DD")
    #expect(tester.ask("18 01") == "19")
    #expect(tester.ask("0A 34 00") == "0B CC DD AA BB")
  }

  @Test func cancelAndEmptyQueue() {
    #expect(tester.ask("18 01") == "19")
    _ = tester.ask("16 34 00 00 00 AA")
    #expect(tester.ask("18 02") == "01 18 00 00 04")
    #expect(tester.ask("18 00") == "19")
    #expect(tester.ask("18 01") == "19")
    #expect(tester.ask("0A 34 00") == "0B 01 02 03")
    #expect(tester.effectTexts() == [])
  }

  /// Vol 3, Part G, §3.3.3.1: neither has Characteristic Extended Properties, so neither has the Reliable Write bit.
  /// The server still writes both at once.
  @Test func severalValuesWithoutReliableWrite() {
    #expect(tester.ask("08 01 00 FF FF 00 29") == "01 08 01 00 0A")
    #expect(tester.ask("16 3E 00 00 00 01 02") == "17 3E 00 00 00 01 02")
    #expect(tester.ask("16 34 00 00 00 05") == "17 34 00 00 00 05")
    #expect(tester.ask("18 01") == "19")
    #expect(tester.effectTexts() == ["1 wrote 0x003E+0: 01 02", "1 wrote 0x0034+0: 05"])
  }

  /// The server checks permissions when a part is prepared, offset and length when the queue is executed.
  @Test func errorsOfPreparing() {
    #expect(tester.ask("16 06 00 00 00 AA") == "01 16 06 00 01")
    #expect(tester.ask("16 03 00 00 00 AA") == "01 16 03 00 03")
    #expect(tester.ask("16 36 00 00 00 AA") == "01 16 36 00 05")
    #expect(tester.ask("16 34 00 FF FF AA") == "17 34 00 FF FF AA")
    #expect(tester.ask("16 34 00 00") == "01 16 00 00 04")
  }

  /// All or nothing: the first write of each queue is valid, but must not be executed.
  @Test(arguments: [
    ("16 34 00 05 00 AA", "01 18 34 00 07"),  // behind the end
    // The 20th octet is the last that fits.
    ("16 34 00 02 00 " + hex(Array(repeating: 1, count: 18)), "19"),
    ("16 40 00 03 00 AA BB", "01 18 40 00 0D"),  // a fixed length
    ("16 40 00 05 00 AA", "01 18 40 00 07"),
    ("16 46 00 00 00 04 00", "19"),  // reserved bits are ignored
    ("16 13 00 00 00 02 00", "01 18 13 00 FD"),  // indications, which the battery level has not
  ])
  func allOrNothing(second: String, expected: String) {
    let isGood = expected == "19"
    #expect(tester.ask("16 3E 00 00 00 01 02 03") == "17 3E 00 00 00 01 02 03")
    #expect(tester.ask(second) == "17" + second.dropFirst(2))
    #expect(tester.ask("18 01") == expected)
    #expect(tester.server.database.value(handle(0x3E))?.count == (isGood ? 3 : 512))
    if !isGood { #expect(tester.effectTexts() == []) }
    // After an error the queue is empty, too.
    _ = tester.effectTexts()
    #expect(tester.ask("18 01") == "19")
    #expect(tester.effectTexts() == [])
  }

  @Test func lengthOfTheWholeValue() {
    _ = tester.ask("16 34 00 03 00 " + hex(Array(repeating: 1, count: 17)))
    _ = tester.ask("16 34 00 14 00 02")
    #expect(tester.ask("18 01") == "01 18 34 00 0D")
    #expect(tester.ask("0A 34 00") == "0B 01 02 03")
  }

  @Test func fullQueue() throws {
    var configuration = ServerConfiguration()
    configuration.preparedOctets = 10
    configuration.preparedRuns = 3
    let tester = ServerUnderTest(try richDatabase(), configuration: configuration)
    #expect(tester.ask("16 34 00 00 00 01 02 03 04 05 06") == "17 34 00 00 00 01 02 03 04 05 06")
    #expect(tester.ask("16 34 00 06 00 01 02 03 04 05") == "01 16 34 00 09")
    #expect(tester.ask("16 3E 00 00 00 01") == "17 3E 00 00 00 01")
    #expect(tester.ask("16 3E 00 00 00 01") == "17 3E 00 00 00 01")
    #expect(tester.ask("16 3E 00 00 00 01") == "01 16 3E 00 09")
    #expect(tester.ask("18 01") == "19")
    #expect(tester.ask("0A 34 00") == "0B 01 02 03 04 05 06")
  }

  @Test func eachClientHasItsOwn() {
    let first = tester.bearer, second = BearerID(rawValue: 2)
    tester.server.open(second)
    _ = tester.ask("16 34 00 00 00 AA")
    tester.bearer = second
    #expect(tester.ask("18 01") == "19")
    #expect(tester.ask("0A 34 00") == "0B 01 02 03")
    tester.bearer = first
    #expect(tester.ask("18 01") == "19")
    #expect(tester.ask("0A 34 00") == "0B AA")
  }

  @Test func closedWithPreparedWrites() {
    _ = tester.ask("16 34 00 00 00 AA")
    tester.server.close(tester.bearer)
    tester.server.open(tester.bearer)
    #expect(tester.ask("18 01") == "19")
    #expect(tester.ask("0A 34 00") == "0B 01 02 03")
  }

  /// The application accepts first; the server's own values are written together with its own, or not at all.
  @Test func dynamicValueInTheQueue() {
    for answer in ["19", "01 18 3A 00 80"] {
      _ = tester.ask("16 34 00 00 00 \(answer == "19" ? "11" : "22")")
      _ = tester.ask("16 3A 00 02 00 01 02")
      _ = tester.ask("16 3A 00 04 00 03")
      #expect(tester.ask("18 01") == later)
      let id: UInt32 = answer == "19" ? 1 : 2
      #expect(tester.effectTexts() == ["1 writes 0x003A+2 #\(id): 01 02 03"])
      #expect((answer == "19" ? tester.answerWrite(id) : tester.refuse(id, ATTError(rawValue: 0x80))) == answer)
      #expect(tester.ask("0A 34 00") == "0B 11")
      #expect(tester.effectTexts() == (answer == "19" ? ["1 wrote 0x0034+0: 11"] : []))
    }
    #expect(tester.ask("18 01") == "19")
    #expect(tester.effectTexts() == [])
    // Two writes of one dynamic value are one request to the application: `ServerCollectingTests`.
    _ = tester.ask("16 3A 00 00 00 01")
    _ = tester.ask("16 3A 00 00 00 02")
    #expect(tester.ask("18 01") == later)
    #expect(tester.effectTexts() == ["1 writes 0x003A+0 #3: 01 and 1 more", "1 writes 0x003A+0 #3: 02"])
    #expect(tester.answerWrite(3) == "19")
  }
}
