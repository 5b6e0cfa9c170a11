import BindruneTransport
import BindruneHCI
import TestSupport
import Testing

/// Packets of every type, long and short, that a controller sends.
private let samples: [[UInt8]] = [
  octets("04 0E 04 01 03 0C 00"),
  octets("02 40 20 07 00 03 00 04 00 0A 03 00"),
  octets("04 13 05 01 40 00 02 00"),
  octets("03 01 00 00"),
  octets("03 01 00 02 AA BB"),
  octets("05 60 00 03 C0 01 02 03"),  // reserved bits of the length are set
  octets("02 41 20 00 00"),
  [0x04, 0x3E, 0xFF] + (0..<255).map { UInt8($0) },
  [0x02, 0x40, 0x20, 0x2C, 0x01] + (0..<300).map { UInt8(truncatingIfNeeded: $0) },
]

private struct Outcome: Equatable {
  var packets: [[UInt8]] = []
  var errors: [FramingError] = []
  /// Packets as ranges of the bytes.
  var uncopied = 0
}

/// The result of `framer` for `stream`, cut at the positions `cuts` (ascending).
private func frame(_ stream: [UInt8], cuts: [Int] = [], _ framer: consuming H4Framer) -> Outcome {
  var outcome = Outcome()
  var start = 0
  for cut in cuts + [stream.count] {
    let piece = Array(stream[start..<cut])
    start = cut
    var index = 0
    reading: while true {
      switch framer.next(in: piece.span, at: &index) {
      case .packet(let range):
        outcome.packets.append(Array(piece[range]))
        outcome.uncopied += 1
      case .assembled(let packet): outcome.packets.append(packet)
      case .needMore: break reading
      case .lost(let error): outcome.errors.append(error)
      }
    }
    #expect(index == piece.count)
  }
  return outcome
}

@Suite struct FramerTests {
  @Test func aWholeBufferIsNotCopied() {
    let outcome = frame(samples.flatMap { $0 }, H4Framer(.fromController))
    #expect(outcome == Outcome(packets: samples, uncopied: samples.count))
  }

  @Test func everySplitGivesTheSamePackets() {
    let short = Array(samples.prefix(7))
    let stream = short.flatMap { $0 }
    for first in 0...stream.count {
      for second in first...stream.count {
        #expect(frame(stream, cuts: [first, second], H4Framer(.fromController)).packets == short)
      }
    }
    let long = samples.flatMap { $0 }
    #expect(frame(long, cuts: Array(1..<long.count), H4Framer(.fromController)).packets == samples)
    for step in 2...40 {
      let cuts = Array(stride(from: step, to: long.count, by: step))
      #expect(frame(long, cuts: cuts, H4Framer(.fromController)).packets == samples)
    }
  }

  @Test func aPrefixIsNoPacketAndNoError() {
    for sample in samples {
      for count in 0..<sample.count {
        #expect(frame(Array(sample[..<count]), H4Framer(.fromController)) == Outcome())
      }
    }
  }

  @Test func theDirectionSaysWhichTypesCome() {
    let command = octets("01 03 0C 00")
    let event = octets("04 0E 04 01 03 0C 00")
    #expect(frame(command, H4Framer(.fromHost)).packets == [command])
    #expect(frame(event, H4Framer(.fromController)).packets == [event])
    #expect(frame(command, H4Framer(.fromController)).errors == [FramingError(.packetType, offset: 0, octet: 1)])
    #expect(frame(event, H4Framer(.fromHost)).errors == [FramingError(.packetType, offset: 0, octet: 4)])
  }

  @Test func lossIsReportedOnceWithItsPlaceForAnySplit() {
    let stream = samples[0] + samples[1] + octets("48 54 54 50") + samples[0]
    let place = UInt64(samples[0].count + samples[1].count)
    for cut in 0...stream.count {
      let outcome = frame(stream, cuts: [cut], H4Framer(.fromController))
      #expect(outcome.packets == [samples[0], samples[1]])
      #expect(outcome.errors == [FramingError(.packetType, offset: place, octet: 0x48)])
    }
  }

  @Test func anImpossibleLengthIsLossBeforeAnythingIsKept() {
    var limits = H4Framer.Limits()
    limits.acl = 1024
    let fits = [0x02, 0x40, 0x20, 0x00, 0x04] + [UInt8](repeating: 7, count: 1024)
    let tooLong = octets("02 40 20 01 04")
    #expect(frame(fits, H4Framer(.fromController, limits: limits)).packets == [fits])
    for cut in 0...tooLong.count {
      let outcome = frame(tooLong, cuts: [cut], H4Framer(.fromController, limits: limits))
      #expect(outcome == Outcome(errors: [FramingError(.length(1025), offset: 0, octet: 2)]))
    }
    #expect(
      frame(octets("05 60 00 FF 3F"), H4Framer(.fromHost)).errors
        == [FramingError(.length(0x3FFF), offset: 0, octet: 5)])
  }

  @Test func resynchroniseDropsEverythingUntilTheAnswerToReset() {
    let answer = octets("04 0E 04 05 03 0C 00")
    // Another command's answer, garbage, and a truncated answer.
    let noise = octets("04 0E 04 01 01 10 00 FF FF 04 0E 04 01 03 04 0E 04 04 0E")
    let stream = noise + answer + samples[1]
    for cut in 0...stream.count {
      var framer = H4Framer(.fromController)
      framer.resynchronise()
      let outcome = frame(stream, cuts: [cut], framer)
      #expect(outcome.packets == [answer, samples[1]])
      #expect(outcome.errors.isEmpty)
    }
    // In the middle of a packet, too.
    var framer = H4Framer(.fromController)
    var index = 0
    let head = Array(samples[8][..<100])
    let step = framer.next(in: head.span, at: &index)
    #expect(step == .needMore)
    framer.resynchronise()
    #expect(frame(answer, framer).packets == [answer])
    let (isAnswer, isNone) = (H4Framer.isResetAnswer(answer.span), H4Framer.isResetAnswer(head.span))
    #expect(isAnswer && !isNone)
  }

  @Test func theSearchIsBounded() {
    var limits = H4Framer.Limits()
    limits.search = 1000
    var framer = H4Framer(.fromController, limits: limits)
    framer.resynchronise()
    let outcome = frame([UInt8](repeating: 0x55, count: 3000), cuts: [999, 1001], framer)
    #expect(outcome == Outcome(errors: [FramingError(.noResetAnswer(1000), offset: 999, octet: 0x55)]))
  }

  @Test func badInputNeverTrapsAndSplitsNeverMatter() {
    var chance = SplitMix64(seed: Fuzz.seed)
    for stream in Fuzz(samples + [samples[0] + samples[1] + samples[2]]) {
      for direction in [HCIDirection.fromController, .fromHost] {
        let searching = Bool.random(using: &chance)
        func framer() -> H4Framer {
          var framer = H4Framer(direction)
          if searching { framer.resynchronise() }
          return framer
        }
        let whole = frame(stream, framer())
        let cuts = (0..<3).map { _ in Int.random(in: 0...stream.count, using: &chance) }.sorted()
        let pieces = frame(stream, cuts: cuts, framer())
        #expect(whole.packets == pieces.packets && whole.errors == pieces.errors)
        #expect(whole.errors.count <= 1)
        if !searching { #expect(stream.starts(with: whole.packets.joined())) }
      }
    }
  }
}

@Suite struct SpecTests {
  @Test(arguments: [
    ("tcp:127.0.0.1:9000", TransportSpec.tcp(host: "127.0.0.1", port: 9000)),
    ("tcp:localhost:0", .tcp(host: "localhost", port: 0)), ("tcp:[::1]:65535", .tcp(host: "::1", port: 65535)),
    ("unix:/run/hci.sock", .unix(path: "/run/hci.sock")), ("unix:a:b", .unix(path: "a:b")), ("sim", .sim),
    ("sim:desk", .radio(name: "desk")), ("sim:1", .radio(name: "1")), ("sim:A.b-c_9..", .radio(name: "A.b-c_9..")),
    ("hci0", .adapter(0)), ("hci65534", .adapter(65_534)),
    ("serial:/dev/ttyACM0", .serial(path: "/dev/ttyACM0", baud: 115_200)),
    ("serial:/dev/ttyACM0,1000000", .serial(path: "/dev/ttyACM0", baud: 1_000_000)),
    ("serial:a,b:c,115200", .serial(path: "a,b:c", baud: 115_200)),
  ]) func readsAndWritesBack(text: String, spec: TransportSpec) throws {
    #expect(try TransportSpec(text) == spec)
    #expect(spec.description == text)
  }

  @Test(arguments: [
    "", "tcp", "tcp:", "tcp:host", "tcp::9000", "tcp:host:", "tcp:host:65536", "tcp:host:-1", "tcp:host:+1",
    "tcp:host:x", "tcp:::1:9000", "tcp:[::1:9000", "unix", "unix:", "sim:", "sim:.desk", "sim:..", "sim:a/b", "sim:a b",
    "sim:a:b", "sim:bü", "usb:0", "hci", "hcix", "SIM",
    "unix:" + String(repeating: "x", count: 108), "serial", "hci-1", "hci+1", "hci00", "hci65535", "hci0:1", "hci 0",
    "serial:", "serial:,115200", "serial:/dev/ttyS0,", "serial:/dev/ttyS0,fast", "serial:/dev/ttyS0,-1",
    "serial:/dev/ttyS0,+9600", "serial:/dev/ttyS0,09600", "serial:/dev/ttyS0,99999999999",
  ]) func saysInOneSentenceWhatIsWrong(text: String) {
    let error = #expect(throws: TransportError.self) { try TransportSpec(text) }
    guard case .specification = error, let sentence = error?.description else {
      Issue.record("\(text): \(String(describing: error))")
      return
    }
    #expect(sentence.hasSuffix(".") && !sentence.contains("\n") && sentence.contains(":"))
  }

  @Test func theUsualRateIsNotWritten() throws {
    #expect(try TransportSpec("serial:/dev/ttyACM0,115200").description == "serial:/dev/ttyACM0")
  }
}
