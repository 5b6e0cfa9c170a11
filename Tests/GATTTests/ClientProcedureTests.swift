import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Vol 3, Part G, §4.8 … §4.12, octet for octet.
@Suite struct ClientProcedureTests {
  // MARK: Reading

  @Test func reading() {
    let dialogue = Dialogue()
    dialogue.client.read(1, 3)
    dialogue.client.read(2, 5)
    dialogue.client.read(3, 7)
    dialogue.play(
      """
      > 0A 0300
      < 0B 48 45 4C 4C 4F
      > 0A 0500
      < 01 0A 0500 02
      > 0A 0700
      < 0B
      """)
    #expect(dialogue.effects() == ["1 value 48 45 4C 4C 4F", "2 att 02 0A 05", "3 value "])
  }

  /// A value of `count` octets is read completely, however the server marks its end.
  @Test(arguments: [0, 1, 21, 22, 23, 43, 44, 45, 66, 506, 511, 512], ["", "07", "0B"])
  func readingLong(count: Int, end: String) {
    let value = (0..<count).map { UInt8(truncatingIfNeeded: $0) }
    let dialogue = Dialogue()
    dialogue.client.readLong(1, 3)
    var script = "> 0A 0300\n< 0B \(hex(value.prefix(22)))", offset = 22
    while offset <= count, offset < 512 {
      let low = hex([UInt8(offset & 0xFF), UInt8(offset >> 8)])
      let isAtEnd = offset == count && !end.isEmpty
      script += "\n> 0C 0300 \(low)\n< " + (isAtEnd ? "01 0C 0300 \(end)" : "0D " + hex(value[offset...].prefix(22)))
      offset += 22
    }
    dialogue.play(script)
    #expect(dialogue.effects() == ["1 value \(hex(value))"])
  }

  /// §4.8.3: a server without Read Blob says so after a value that filled the response to the Read, which is whole. Any
  /// other error leaves open what follows.
  @Test(arguments: ["01", "02", "04", "05", "06", "08", "0A", "0C", "0E", "0F", "11", "80"])
  func readBlobIsRefused(error: String) {
    let dialogue = Dialogue(), full = String(repeating: "55", count: 22)
    dialogue.client.readLong(1, 3)
    dialogue.client.readLong(2, 4)
    dialogue.play(
      """
      > 0A 0300
      < 0B \(full)
      > 0C 0300 1600
      < 01 0C 0300 \(error)
      > 0A 0400
      < 0B \(full)
      > 0C 0400 1600
      < 0D \(full)
      > 0C 0400 2C00
      < 01 0C 0400 \(error)
      """)
    let first = error == "06" ? "1 value \(hex(Array(repeating: 0x55, count: 22)))" : "1 att \(error) 0C 03"
    #expect(dialogue.effects() == [first, "2 att \(error) 0C 04"])
  }

  @Test func readingLongFails() {
    let dialogue = Dialogue()
    dialogue.client.readLong(1, 3)
    dialogue.client.readLong(2, 4)
    let full = String(repeating: "55", count: 22)
    dialogue.play(
      """
      > 0A 0300
      < 01 0A 0300 0B
      > 0A 0400
      < 0B \(full)
      > 0C 0400 1600
      < 01 0C 0400 05
      """)
    #expect(dialogue.effects() == ["1 att 0B 0A 03", "2 att 05 0C 04"])
  }

  @Test func aValueThatDoesNotEnd() {
    let dialogue = Dialogue()
    dialogue.client.readLong(1, 3)
    var requests = 0
    let full = [UInt8](repeating: 0x55, count: 22)
    while let request = dialogue.request() {
      dialogue.respond([request[0] + 1] + full)
      requests += 1
    }
    #expect(requests == 24)
    #expect(dialogue.effects() == ["1 malformedResponse(BindruneGATT.ResponseViolation.tooLong)"])
  }

  @Test func anMTUThatGrowsBetweenRequestAndResponse() {
    let dialogue = Dialogue()
    dialogue.client.readLong(1, 3)
    dialogue.play("> 0A 0300", isOver: false)
    dialogue.mtu = 64
    dialogue.respond([0x0B] + [UInt8](repeating: 1, count: 22))
    dialogue.play("> 0C 0300 1600\n< 0D 02")
    #expect(dialogue.effects() == ["1 value \(hex([UInt8](repeating: 1, count: 22) + [2]))"])
  }

  @Test func readingByUUID() {
    let dialogue = Dialogue()
    dialogue.client.read(1, uuid: "2A37")
    dialogue.client.read(2, uuid: "A0B10000-1D1D-4BBD-8E5C-6E5F1A5F0C00", in: HandleRange(2, 9))
    dialogue.client.read(3, uuid: "2A38")
    dialogue.client.read(4, uuid: "2A39", in: HandleRange(1, 9))
    dialogue.play(
      """
      > 08 0100 FFFF 372A
      < 09 04 0300 0102  0500 0304
      > 08 0600 FFFF 372A
      < 09 02 0800
      > 08 0900 FFFF 372A
      < 01 08 0900 0A
      > 08 0200 0900 000C 5F1A5F6E 5C8E BD4B 1D1D 0000 B1A0
      < 09 03 0900 07
      > 08 0100 FFFF 382A
      < 01 08 0100 0A
      > 08 0100 0900 392A
      < 09 03 0900 07 0900 07
      """)
    #expect(
      dialogue.effects() == [
        "1 values 3=01 02, 5=03 04, 8=", "2 values 9=07", "3 att 0A 08 01",
        "4 malformedResponse(BindruneGATT.ResponseViolation.handlesNotIncreasing(BindruneATT.AttributeHandle(rawValue: 9)))",
      ])
  }

  @Test func readingSeveral() {
    let dialogue = Dialogue()
    dialogue.client.readMultiple(1, [3, 5])
    dialogue.client.readMultipleVariable(2, [3, 5, 7])
    dialogue.client.readMultipleVariable(3, [3, 5])
    dialogue.client.readMultiple(4, [3])
    dialogue.client.readMultiple(5, (1...12).map { AttributeHandle(rawValue: $0) })
    dialogue.client.readMultiple(6, [1, 2])
    dialogue.play(
      """
      > 0E 0300 0500
      < 0F 010203
      > 20 0300 0500 0700
      < 21 0100 AA 0000
      > 20 0300 0500
      < 21 0000 0000 0000
      > 0E 0100 0200      # twelve handles do not fit
      < 01 0E 0200 01
      """)
    #expect(
      dialogue.effects() == [
        "4 invalidRequest", "1 value 01 02 03", "2 values 3=AA, 5=",
        "3 malformedResponse(BindruneGATT.ResponseViolation.tooLong)", "5 valueTooLong", "6 att 01 0E 02",
      ])
  }

  /// Vol 3, Part F, §3.4.4.12: the last value may be cut; its length is the whole one's.
  @Test(arguments: [
    ("21 0100 AA 0500 0102", "3=AA, 5=01 02…"), ("21 0100 AA 0500", "3=AA, 5=…"), ("21 0100 AA 05", "3=AA"),
    ("21 0100 AA 0000 0500 01", "3=AA, 5=, 7=01…"),
  ]) func aValueThatIsCut(response: String, values: String) {
    let dialogue = Dialogue()
    dialogue.client.readMultipleVariable(1, [3, 5, 7])
    dialogue.play("> 20 0300 0500 0700\n< \(response)")
    #expect(dialogue.effects() == ["1 values \(values)"])
  }

  // MARK: Writing

  @Test func writing() {
    let dialogue = Dialogue()
    dialogue.write(1, 3, octets("01 02"))
    dialogue.write(2, 3, [UInt8]())
    dialogue.write(3, 3, octets("01"))
    dialogue.write(4, 3, [UInt8](repeating: 0, count: 513))
    dialogue.play(
      """
      > 12 0300 01 02
      < 13
      > 12 0300
      < 13
      > 12 0300 01
      < 01 12 0300 80
      """)
    #expect(dialogue.effects() == ["4 valueTooLong", "1 done", "2 done", "3 att 80 12 03"])
  }

  @Test func writingMoreThanOnePDU() {
    let dialogue = Dialogue()
    let value = (0..<21).map { UInt8($0) }
    dialogue.write(1, 3, Array(value.prefix(20)))
    dialogue.write(2, 3, value)
    dialogue.writeLong(3, 3, octets("AB"))
    dialogue.writeLong(4, 3, [UInt8]())
    dialogue.play(
      """
      > 12 0300 \(hex(value.prefix(20)))
      < 13
      > 16 0300 0000 \(hex(value.prefix(18)))
      < 17 0300 0000 \(hex(value.prefix(18)))
      > 16 0300 1200 12 13 14
      < 17 0300 1200 12 13 14
      > 18 01
      < 19
      > 16 0300 0000 AB
      < 17 0300 0000 AB
      > 18 01
      < 19
      > 16 0300 0000
      < 17 0300 0000
      > 18 01
      < 19
      """)
    #expect(dialogue.effects() == ["1 done", "2 done", "3 done", "4 done"])
  }

  @Test func writingReliably() {
    let dialogue = Dialogue()
    dialogue.client.writeReliable(1, [(3, [1]), (5, [2, 3])])
    dialogue.client.writeReliable(2, [])
    dialogue.play(
      """
      > 16 0300 0000 01
      < 17 0300 0000 01
      > 16 0500 0000 0203
      < 17 0500 0000 0203
      > 18 01
      < 01 18 0500 0D
      """)
    #expect(dialogue.effects() == ["2 invalidRequest", "1 att 0D 18 05"])
  }

  @Test(arguments: ["17 0400 0000 01", "17 0300 0100 01", "17 0300 0000 02", "17 0300 0000 0101", "17 0300 0000"])
  func anEchoThatDiffers(echo: String) {
    let dialogue = Dialogue()
    dialogue.writeLong(1, 3, octets("01"))
    dialogue.client.read(2, 9)
    dialogue.play("> 16 0300 0000 01\n< \(echo)", isOver: false)
    #expect(
      dialogue.effects() == [
        "1 malformedResponse(BindruneGATT.ResponseViolation.echo(BindruneATT.AttributeHandle(rawValue: 3)))"
      ])
    dialogue.play("> 18 00\n< 19\n> 0A 0900\n< 0B 01")
    #expect(dialogue.effects() == ["2 value 01"])
  }

  @Test func aRefusedPart() {
    let dialogue = Dialogue()
    dialogue.client.writeReliable(1, [(3, [1]), (5, [2])])
    dialogue.client.writeReliable(2, [(3, [1]), (5, [2])])
    dialogue.play(
      """
      > 16 0300 0000 01
      < 01 16 0300 03
      > 16 0300 0000 01
      < 17 0300 0000 01
      > 16 0500 0000 02
      < 01 16 0500 09
      > 18 00             # only here the server holds something
      < 01 18 0000 0E
      """)
    #expect(dialogue.effects() == ["1 att 03 16 03", "2 att 09 16 05"])
  }

  // MARK: Subscribing, values

  @Test func subscribing() {
    let dialogue = Dialogue()
    dialogue.client.subscribe(1, 3)
    #expect(dialogue.effects() == ["1 unknownCharacteristic"])
    dialogue.client.discoverCharacteristics(2, in: HandleRange(1, 9))
    dialogue.client.subscribe(3, 3, .indication)
    dialogue.client.subscribe(4, 3, .notification)
    dialogue.client.unsubscribe(5, 3)
    dialogue.client.subscribe(6, 9)
    dialogue.play(
      """
      > 08 0100 0900 0328
      < 09 07 0200 30 0300 372A  0800 10 0900 382A
      > 04 0400 0700
      < 05 01 0400 0129  0500 0229
      > 04 0600 0700
      < 01 04 0600 0A
      > 12 0500 0200
      < 13
      > 12 0500 0100
      < 01 12 0500 05
      > 12 0500 0000
      < 13
      """)
    #expect(
      dialogue.effects() == ["2 discovered", "3 done", "4 att 05 12 05", "5 done", "6 noConfigurationDescriptor"])
  }

  @Test func values() {
    let dialogue = Dialogue()
    dialogue.client.read(1, 3)
    _ = dialogue.request()
    dialogue.send(octets("1B 0300 0102"))
    dialogue.send(octets("1D 0500"))
    dialogue.send(octets("23 0300 0100 07  0500 0200 0809"))
    dialogue.respond(octets("0B 33"))
    #expect(
      dialogue.effects() == [
        "notification 3: 01 02", "indication 5: ", "notification 3: 07", "notification 5: 08 09", "1 value 33",
      ])
  }

  /// Vol 3, Part F, §3.2.2: no attribute has the handle 0x0000.
  @Test func valuesOfNoAttribute() {
    let dialogue = Dialogue(), ignored = "ignored \(ResponseViolation.handleOutOfRange(AttributeHandle()))"
    for pdu in ["1B 0000 01", "1D 0000 02", "23 0000 0100 05  0A00 0100 06"] { dialogue.send(octets(pdu)) }
    #expect(dialogue.effects() == [ignored, ignored, ignored, "notification 10: 06"])
  }

  @Test func valuesWithoutASubscriber() {
    var configuration = ClientConfiguration()
    configuration.valueCapacity = 30
    let dialogue = Dialogue(configuration: configuration)
    for _ in 1...2 {
      for number in UInt8(1)...5 { dialogue.send([0x1B, number, 0, number, number]) }
      dialogue.send(octets("1B 0900"))
      #expect(
        dialogue.effects() == ["notification 1: 01 01", "notification 2: 02 02", "notification 3: 03 03", "lost 3"])
    }
  }

  // MARK: Ends

  @Test func cancelling() {
    let dialogue = Dialogue()
    dialogue.client.read(1, 3)
    dialogue.client.read(2, 5)
    dialogue.client.read(3, 7)
    dialogue.client.cancel(2)
    dialogue.client.cancel(9)
    #expect(dialogue.effects() == ["2 cancelled"])
    dialogue.play("> 0A 0300", isOver: false)
    dialogue.client.cancel(1)
    dialogue.client.cancel(1)
    #expect(dialogue.effects() == ["1 cancelled"])
    #expect(dialogue.request() == nil, "the bearer sends one request at a time")
    dialogue.respond(octets("0B 01"))
    dialogue.play("> 0A 0700\n< 0B 02")
    #expect(dialogue.effects() == ["3 value 02"])
    dialogue.client.read(4, 9)
    dialogue.client.cancel(4)
    #expect(dialogue.request() == nil)
    #expect(dialogue.effects() == ["4 cancelled"])
    dialogue.client.discoverAll(5)
    dialogue.play("> 10 0100 FFFF 0028", isOver: false)
    dialogue.client.cancel(5)
    dialogue.respond(octets("11 06 0100 0500 0018"))
    #expect(dialogue.request() == nil)
    #expect(dialogue.effects() == ["5 cancelled"])
  }

  /// After a long write is cancelled at any point, the server's queue is empty.
  @Test(arguments: 0...6) func cancellingALongWrite(after steps: Int) {
    let script = [
      "> 16 0300 0000 01", "< 17 0300 0000 01", "> 16 0500 0000 02", "< 17 0500 0000 02", "> 18 01", "< 19",
    ]
    let dialogue = Dialogue()
    dialogue.client.writeReliable(1, [(3, [1]), (5, [2])])
    dialogue.client.read(2, 9)
    dialogue.play(script.prefix(steps).joined(separator: "\n"), isOver: false)
    dialogue.client.cancel(1)
    #expect(dialogue.effects() == [steps == 6 ? "1 done" : "1 cancelled"])
    if !steps.isMultiple(of: 2) { dialogue.play(script[steps], isOver: false) }
    if 1...4 ~= steps { dialogue.play("> 18 00\n< 19", isOver: false) }
    dialogue.play("> 0A 0900\n< 0B")
    #expect(dialogue.effects() == ["2 value "])
  }

  @Test func closing() {
    let dialogue = Dialogue()
    dialogue.client.read(1, 3)
    dialogue.client.read(2, 3)
    _ = dialogue.request()
    dialogue.close(1, .timedOut)
    dialogue.close()
    dialogue.client.read(3, 3)
    dialogue.respond(octets("0B 01"))
    #expect(dialogue.request() == nil)
    #expect(
      dialogue.effects() == [
        "1 bearerClosed(BindruneATT.BearerClosure.timedOut)", "2 bearerClosed(BindruneATT.BearerClosure.timedOut)",
        "3 bearerClosed(BindruneATT.BearerClosure.timedOut)", "ignored unexpectedResponse",
      ])
  }

  @Test func tooManyRequests() {
    var configuration = ClientConfiguration()
    configuration.maximumWaiting = 2
    let dialogue = Dialogue(configuration: configuration)
    for id in 1...4 { dialogue.client.read(RequestID(rawValue: UInt64(id)), 3) }
    #expect(dialogue.effects() == ["4 busy"])
    dialogue.client.discoverCharacteristics(5, in: HandleRange(9, 3))
    dialogue.client.discoverDescriptors(6, in: HandleRange(0, 3))
    #expect(dialogue.effects() == ["5 invalidRequest", "6 invalidRequest"])
  }
}
