import BindruneATT
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import BindruneWire
import TestSupport
import Testing

@testable import BindruneGAP

/// Enhanced bearers against a scripted controller and peer. The octets are those of Vol 3, Part A, §4.25, §4.26; the
/// rules those of Vol 3, Part G, §5.3, §5.4.
@Suite struct EnhancedBearersTests {
  private static let link = LinkID(rawValue: 1)

  private static func linked(
    _ role: LinkRole, _ database: consuming Database = Database(), bearers: Int = 3, isEncrypted: Bool = true
  ) -> Bench {
    var bench = Bench.started(database) { $0.enhancedBearers = bearers }
    if role == .central {
      bench.perform { core, now in core.connect(to: Bench.peer, id: RequestID(rawValue: 100), now: now) }
      bench.answerAll()
    }
    bench.receive(connectionComplete(0x40, role))
    bench.answerAll()
    bench.receive(completedPackets(0x40, 1))
    // The MTU exchange of the Central.
    bench.receive(data(0x40, [0x03, 23, 0]))
    bench.forget()
    if isEncrypted { encrypt(&bench) }
    return bench
  }
  private static func encrypt(_ bench: inout Bench, isOn: Bool = true) {
    bench.perform { core, now in
      core.upper.links[0].protection.security.key =
        isOn ? KeyStrength(isAuthenticated: false, isSecureConnections: true) : nil
      core.enhance(at: 0, now)
    }
  }
  /// One signal of the peer, on channel 0x0005.
  private static func signal(_ bench: inout Bench, _ text: String) {
    bench.receive(data(0x40, channel: 5, octets(text)))
  }
  /// What has been sent: the channel, and the payload. The controller has buffers for all of it.
  private static func sent(_ bench: inout Bench) -> [String] {
    var sent: [String] = []
    while !bench.sent.isEmpty {
      let packets = bench.sent.filter { $0.hasPrefix("02 40 00 ") }
      sent += packets.map { String($0.dropFirst(21).prefix(5) + ": " + $0.dropFirst(27)) }
      bench.forget()
      bench.receive(completedPackets(0x40, UInt16(packets.count)))
    }
    return sent
  }
  private static func bearers(_ bench: inout Bench) -> [Int] {
    bench.effects.compactMap { if case .bearersChanged(link, let count) = $0 { count } else { nil } }
  }
  private static func read(_ bench: inout Bench, _ handles: [UInt16]) {
    bench.perform { core, _ in
      for handle in handles {
        core.withClient(of: link, id: RequestID(rawValue: UInt64(handle))) {
          $0.read(RequestID(rawValue: UInt64(handle)), AttributeHandle(rawValue: handle))
        }
      }
    }
  }
  /// Three are open: 0x0050 … 0x0052 at the peer, 0x0040 … 0x0042 here, with an MTU of 100.
  private static func opened(_ database: consuming Database = Database()) -> Bench {
    var bench = linked(.central, database)
    #expect(sent(&bench) == ["05 00: 17 01 0E 00 27 00 05 02 F7 00 06 00 40 00 41 00 42 00"])
    signal(&bench, "18 01 0E 00 64 00 40 00 05 00 00 00 50 00 51 00 52 00")
    #expect(bearers(&bench) == [1, 2, 3])
    bench.forget()
    return bench
  }

  // MARK: Opening

  /// Not before the link is encrypted (§5.3.2), and nobody but the Central.
  @Test func theCentralOpensThem() {
    var bench = Self.linked(.central, isEncrypted: false)
    #expect(Self.sent(&bench) == [])
    Self.encrypt(&bench)
    #expect(Self.sent(&bench) == ["05 00: 17 01 0E 00 27 00 05 02 F7 00 06 00 40 00 41 00 42 00"])
    bench = Self.linked(.peripheral)
    #expect(Self.sent(&bench) == [])
    bench = Self.linked(.central, bearers: 0)
    #expect(Self.sent(&bench) == [])
  }
  /// §4.26: result 0x0004, some refused for lack of resources. Those that are open stay, and nothing more is asked.
  @Test func refusedInPart() {
    var bench = Self.linked(.central)
    _ = Self.sent(&bench)
    Self.signal(&bench, "18 01 0E 00 64 00 40 00 05 00 04 00 50 00 00 00 52 00")
    #expect(Self.bearers(&bench) == [1, 2])
    #expect(Self.sent(&bench) == [])
    Self.read(&bench, [1, 2, 3])
    #expect(
      Set(Self.sent(&bench)) == ["04 00: 0A 01 00", "50 00: 03 00 0A 02 00", "52 00: 03 00 0A 03 00"])
  }
  /// A peer without enhanced channels: Command Reject, 0x0000.
  @Test func notUnderstood() {
    var bench = Self.linked(.central)
    _ = Self.sent(&bench)
    Self.signal(&bench, "01 01 02 00 00 00")
    #expect(Self.sent(&bench) == [] && Self.bearers(&bench) == [])
    Self.read(&bench, [1])
    #expect(Self.sent(&bench) == ["04 00: 0A 01 00"])
  }
  /// §5.4: both sides ask, and both refuse for lack of resources. The Central asks again at once, and not for ever.
  @Test func requestsThatCross() {
    var bench = Self.linked(.central)
    for repetition in 0..<4 as Range<UInt8> {
      let identifier = hex([repetition + 1])
      var sent = Self.sent(&bench)
      #expect(sent == ["05 00: 17 \(identifier) 0E 00 27 00 05 02 F7 00 06 00 40 00 41 00 42 00"])
      Self.signal(&bench, "17 \(hex([0x11 + repetition])) 0A 00 27 00 64 00 40 00 05 00 50 00")
      sent = Self.sent(&bench)
      #expect(sent == ["05 00: 18 \(hex([0x11 + repetition])) 0A 00 00 00 00 00 00 00 04 00 00 00"])
      Self.signal(&bench, "18 \(identifier) 0E 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00")
    }
    #expect(Self.sent(&bench) == [])
    // Now there is room for the peer's.
    Self.signal(&bench, "17 21 0A 00 27 00 64 00 40 00 05 00 50 00")
    #expect(Self.bearers(&bench) == [1])
    #expect(Self.sent(&bench) == ["05 00: 18 21 0A 00 05 02 F7 00 06 00 00 00 40 00"])
  }
  /// Without requests that crossed, a refusal is final.
  @Test func refusedForLackOfResources() {
    var bench = Self.linked(.central)
    _ = Self.sent(&bench)
    Self.signal(&bench, "18 01 0E 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00")
    #expect(Self.sent(&bench) == [])
  }
  /// The peer opens them: on an encrypted link, with enhanced channels, as many as are configured.
  @Test func thePeerOpensThem() {
    var bench = Self.linked(.peripheral, isEncrypted: false)
    Self.signal(&bench, "17 01 0A 00 27 00 64 00 40 00 05 00 50 00")
    #expect(Self.sent(&bench) == ["05 00: 18 01 0A 00 00 00 00 00 00 00 05 00 00 00"], "insufficient authentication")
    Self.encrypt(&bench)
    Self.signal(&bench, "14 02 0A 00 27 00 50 00 64 00 40 00 05 00")
    #expect(Self.sent(&bench) == ["05 00: 15 02 0A 00 00 00 00 00 00 00 00 00 02 00"], "§5.3.2: enhanced channels")
    Self.signal(&bench, "17 03 0C 00 27 00 64 00 40 00 05 00 50 00 51 00")
    #expect(Self.bearers(&bench) == [1, 2])
    #expect(Self.sent(&bench) == ["05 00: 18 03 0C 00 05 02 F7 00 06 00 00 00 40 00 41 00"])
    Self.signal(&bench, "17 04 0C 00 27 00 64 00 40 00 05 00 52 00 53 00")
    #expect(Self.bearers(&bench) == [3])
    #expect(Self.sent(&bench) == ["05 00: 18 04 0C 00 05 02 F7 00 06 00 04 00 42 00 00 00"])
    bench = Self.linked(.peripheral, bearers: 0)
    Self.signal(&bench, "17 01 0A 00 27 00 64 00 40 00 05 00 50 00")
    #expect(Self.sent(&bench) == ["05 00: 18 01 0A 00 00 00 00 00 00 00 02 00 00 00"], "no such service")
  }

  // MARK: Use

  /// A request of the peer is answered on its bearer, however long another takes.
  @Test func answersOnTheirBearers() throws {
    var builder = DatabaseBuilder()
    builder.service("180F", at: AttributeHandle(rawValue: 1)) {
      $0.characteristic("2A19", [.read], value: .dynamic)
    }
    var bench = Self.opened(try builder.build())
    bench.receive(data(0x40, channel: 0x40, [3, 0, 0x0A, 3, 0]))
    let asked = bench.effects.compactMap { if case .readRequested(let id, _, _, _) = $0 { id } else { nil } }
    #expect(asked.count == 1 && Self.sent(&bench) == [])
    bench.receive(data(0x40, channel: 0x42, [3, 0, 0x0A, 1, 0]))
    bench.receive(data(0x40, [0x0A, 1, 0]))
    #expect(Set(Self.sent(&bench)) == ["52 00: 03 00 0B 0F 18", "04 00: 0B 0F 18"])
    bench.perform { core, now in _ = core.answerRead(asked[0], [77], now: now) }
    #expect(Self.sent(&bench) == ["50 00: 02 00 0B 4D"])
    // §4.2: the exchange is the fixed channel's alone.
    bench.receive(data(0x40, channel: 0x41, [3, 0, 0x02, 0x17, 0]))
    #expect(Self.sent(&bench) == ["51 00: 05 00 01 02 00 00 06"])
  }
  /// What has left first, a write or a read, was asked first.
  @Test func writesStayInOrder() {
    var bench = Self.opened()
    bench.perform { core, _ in
      let value: [UInt8] = [1]
      for (number, isWrite) in [(UInt64(1), true), (2, false), (3, true), (4, false)] {
        core.withClient(of: Self.link, id: RequestID(rawValue: number)) {
          if isWrite {
            $0.write(RequestID(rawValue: number), AttributeHandle(rawValue: 3), value.span)
          } else {
            $0.read(RequestID(rawValue: number), AttributeHandle(rawValue: 3))
          }
        }
      }
    }
    #expect(Self.sent(&bench) == ["04 00: 12 03 00 01", "50 00: 03 00 0A 03 00"])
    bench.receive(data(0x40, [0x13]))
    #expect(Self.sent(&bench) == ["04 00: 12 03 00 01", "51 00: 03 00 0A 03 00"])
  }

  /// §5.3.1: the peer accepts longer PDUs. The first bearer's MTU is another.
  @Test func thePeerReconfigures() {
    var bench = Self.opened()
    Self.signal(&bench, "19 09 08 00 C8 00 40 00 50 00 51 00")
    #expect(Self.sent(&bench) == ["05 00: 1A 09 02 00 00 00"])
    let mtus = (0..<4).map { bench.core.upper.mtu(of: BearerID(rawValue: $0), at: 0) }
    #expect(mtus == [23, 200, 200, 100])
    #expect(!bench.effects.contains { if case .mtuChanged = $0 { true } else { false } })
  }

  // MARK: Ends

  /// Vol 3, Part F, §3.3.3: the bearer is closed, and the link stays with the others.
  @Test func aTransactionTimesOut() {
    var bench = Self.opened()
    Self.read(&bench, [1, 2])
    #expect(Set(Self.sent(&bench)) == ["04 00: 0A 01 00", "50 00: 03 00 0A 02 00"])
    bench.receive(data(0x40, [0x0B, 1]))
    bench.forget()
    bench.wait(Bearer.transactionTimeout)
    let violations = bench.effects.compactMap { if case .violation(_, .bearerTimedOut) = $0 { 1 } else { nil } }
    #expect(violations.count == 1)
    #expect(bench.takeTexts().contains { $0.contains("2: bearer timedOut") })
    #expect(Self.sent(&bench) == ["05 00: 06 02 04 00 50 00 40 00"])
    Self.signal(&bench, "07 02 04 00 50 00 40 00")
    #expect(Self.bearers(&bench) == [2])
    Self.read(&bench, [3, 4])
    #expect(Set(Self.sent(&bench)) == ["04 00: 0A 03 00", "51 00: 03 00 0A 04 00"])
  }
  /// What waits on a bearer that the peer closes fails, once; its number is free again.
  @Test func thePeerCloses() {
    var bench = Self.opened()
    Self.read(&bench, [1, 2])
    _ = Self.sent(&bench)
    bench.forget()
    Self.signal(&bench, "06 09 04 00 40 00 50 00")
    #expect(Self.bearers(&bench) == [2])
    #expect(bench.takeTexts().filter { $0.hasPrefix("2: ") } == ["2: bearer disconnected"])
    #expect(Self.sent(&bench) == ["05 00: 07 09 04 00 40 00 50 00"])
    Self.signal(&bench, "17 0A 0A 00 27 00 64 00 40 00 05 00 55 00")
    #expect(Self.sent(&bench) == ["05 00: 18 0A 0A 00 05 02 F7 00 06 00 00 00 40 00"])
  }
  /// §5.3.2: the link must stay encrypted.
  @Test func encryptionEnds() {
    var bench = Self.opened()
    Self.encrypt(&bench, isOn: false)
    #expect(
      Self.sent(&bench) == [
        "05 00: 06 02 04 00 50 00 40 00", "05 00: 06 03 04 00 51 00 41 00", "05 00: 06 04 04 00 52 00 42 00",
      ])
    for (identifier, channel) in zip(["02", "03", "04"], ["50 00 40", "51 00 41", "52 00 42"]) {
      Self.signal(&bench, "07 \(identifier) 04 00 \(channel) 00")
    }
    #expect(Self.bearers(&bench) == [2, 1, 0])
    // Another encryption, and other bearers.
    bench.forget()
    Self.encrypt(&bench)
    #expect(Self.sent(&bench) == ["05 00: 17 05 0E 00 27 00 05 02 F7 00 06 00 40 00 41 00 42 00"])
  }
  /// Everything ends with the link.
  @Test func theLinkEnds() {
    var bench = Self.opened()
    Self.read(&bench, [1, 2, 3, 4, 5])
    bench.forget()
    bench.receive(disconnectionComplete(0x40))
    #expect(bench.takeTexts().filter { $0.contains("bearer disconnected") }.count == 5)
    #expect(bench.core.deadline == nil)
  }
}
