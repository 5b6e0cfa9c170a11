import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Two bearers of one client, and a third of another: shared state, and their own.
@Suite struct ServerBearersTests {
  private final class Bearers {
    var server: Server
    private var first: Bearer, second: Bearer, stranger: Bearer
    private var client = Client(), packet = PacketBuffer()
    private var now = Instant.zero

    init(_ database: Database) {
      server = Server(database: database)
      first = Bearer(BearerID(rawValue: 1))
      second = Bearer(BearerID(rawValue: 2))
      stranger = Bearer(BearerID(rawValue: 3))
      server.open(first.id)
      let isOpen = server.open(second.id, beside: first.id)
      #expect(isOpen)
      server.open(stranger.id)
    }
    private func with(_ number: UInt16, _ body: (inout Bearer, inout Server, inout Client) -> Void) {
      switch number {
      case 1: body(&first, &server, &client)
      case 2: body(&second, &server, &client)
      default: body(&stranger, &server, &client)
      }
    }
    /// The response on bearer `number`, or nothing.
    func ask(_ request: String, on number: UInt16) -> String {
      let request = octets(request)
      with(number) { bearer, server, client in
        bearer.receive(request.span, now: now, server: &server, client: &client)
      }
      return sent(on: number)
    }
    func sent(on number: UInt16) -> String {
      var response = ""
      with(number) { bearer, _, client in
        while bearer.nextEffect() != nil {}
        if packet.fill({ bearer.nextPDU(into: &$0, now: now, client: &client) }) { response = hex(packet.bytes) }
      }
      return response
    }
    func mtu(on number: UInt16) -> Int {
      var mtu = 0
      with(number) { bearer, _, _ in mtu = bearer.mtu }
      return mtu
    }
    /// The application answers a read or accepts a write; the bearer of the request gets the response.
    func answer(_ id: UInt32, _ value: [UInt8]? = nil) {
      var response = PacketBuffer(capacity: 23), outcome = AnswerOutcome.unwanted(.unknown)
      _ = response.fill { output in
        let id = ServerRequestID(rawValue: id)
        outcome =
          if let value { server.answerRead(id, with: value.span, into: &output) } else {
            server.answerWrite(id, into: &output)
          }
        return true
      }
      guard case .response(let ticket) = outcome else {
        Issue.record("nobody waits")
        return
      }
      with(ticket.bearer.rawValue) { bearer, server, _ in
        let isTaken = response.withBytes { bearer.respond(to: ticket, with: $0, now: now, server: &server) }
        #expect(isTaken)
      }
    }
    func close(_ number: UInt16) {
      with(number) { bearer, server, client in
        bearer.close(client: &client)
        server.close(bearer.id)
      }
    }
    func effectTexts() -> [String] { server.effectTexts() }
    func indication(on number: UInt16) -> String? {
      server.takeServiceChanged(on: BearerID(rawValue: number)).map { "\($0.handle.text) \(hex($0.value))" }
    }
    func confirm(on number: UInt16) { server.confirmed(on: BearerID(rawValue: number), now: now) }
    func mayNotify(_ raw: UInt16, on number: UInt16) -> Bool {
      server.mayNotify(handle(raw), to: BearerID(rawValue: number))
    }
  }

  /// Vol 3, Part G, §3.3.3.3: by client. It ends with the last bearer.
  @Test func configurationsAreTheClients() throws {
    let bearers = Bearers(try richDatabase())
    #expect(bearers.ask("12 13 00 01 00", on: 2) == "13")
    #expect(bearers.ask("0A 13 00", on: 1) == "0B 01 00")
    #expect(bearers.ask("0A 13 00", on: 3) == "0B 00 00")
    #expect(bearers.mayNotify(0x12, on: 1) && bearers.mayNotify(0x12, on: 2) && !bearers.mayNotify(0x12, on: 3))
    #expect(bearers.server.subscribers(of: handle(0x12)) == [BearerID(rawValue: 1)])
    bearers.close(1)
    #expect(bearers.effectTexts() == ["2 subscribed 0x0012 1"])
    #expect(bearers.ask("0A 13 00", on: 2) == "0B 01 00")
    #expect(bearers.server.subscribers(of: handle(0x12)) == [BearerID(rawValue: 2)])
    bearers.close(2)
    #expect(bearers.effectTexts() == ["2 subscribed 0x0012 0"])
    #expect(bearers.server.subscribers(of: handle(0x12)).isEmpty)
    #expect(bearers.ask("0A 13 00", on: 3) == "0B 00 00")
  }

  /// Vol 3, Part C, §10.3: the link's, hence of all its bearers.
  @Test func securityIsTheClients() throws {
    let bearers = Bearers(try richDatabase())
    #expect(bearers.ask("0A 36 00", on: 2) == "01 0A 36 00 05")
    bearers.server.setSecurity(.encrypted, of: BearerID(rawValue: 1))
    #expect(bearers.ask("0A 36 00", on: 2) == "0B 73 65 63 72 65 74")
    #expect(bearers.ask("0A 36 00", on: 3) == "01 0A 36 00 05")
  }

  /// Vol 3, Part F, §3.4.6: a client has a single queue; what is being executed is in it no more.
  @Test func prepareQueueIsTheClients() throws {
    let bearers = Bearers(try richDatabase())
    #expect(bearers.ask("16 34 00 00 00 AA", on: 1) == "17 34 00 00 00 AA")
    #expect(bearers.ask("16 34 00 01 00 BB", on: 2) == "17 34 00 01 00 BB")
    #expect(bearers.ask("18 01", on: 3) == "19" && bearers.ask("0A 34 00", on: 3) == "0B 01 02 03")
    #expect(bearers.ask("18 01", on: 2) == "19" && bearers.ask("0A 34 00", on: 3) == "0B AA BB")
    // While the application works on one queue, the next begins on the other bearer.
    #expect(bearers.ask("16 3A 00 00 00 01", on: 1) == "17 3A 00 00 00 01")
    #expect(bearers.ask("18 01", on: 1) == "")
    #expect(bearers.effectTexts() == ["2 wrote 0x0034+0: AA BB", "1 writes 0x003A+0 #1: 01"])
    #expect(bearers.ask("16 34 00 00 00 CC", on: 2) == "17 34 00 00 00 CC")
    #expect(bearers.ask("18 01", on: 2) == "19" && bearers.ask("0A 34 00", on: 3) == "0B CC")
    bearers.answer(1)
    #expect(bearers.sent(on: 1) == "19")
    // What has been prepared on a bearer that closes is the client's still.
    #expect(bearers.ask("16 34 00 00 00 DD", on: 1) == "17 34 00 00 00 DD")
    bearers.close(1)
    #expect(bearers.ask("18 01", on: 2) == "19" && bearers.ask("0A 34 00", on: 3) == "0B DD")
  }

  /// Vol 3, Part F, §3.3.2, §3.2.8: a request in flight and the MTU are a bearer's own.
  @Test func requestAndMTUAreTheBearers() throws {
    let bearers = Bearers(try richDatabase())
    #expect(bearers.ask("02 64 00", on: 2) == "03 05 02")
    #expect(bearers.mtu(on: 2) == 100 && bearers.mtu(on: 1) == 23)
    #expect(bearers.ask("0A 3A 00", on: 1) == "" && bearers.ask("0A 3A 00", on: 2) == "")
    #expect(bearers.effectTexts() == ["1 reads 0x003A+0 #1", "2 reads 0x003A+0 #2"])
    #expect(bearers.ask("0A 13 00", on: 3) == "0B 00 00")
    bearers.answer(2, [2])
    #expect(bearers.sent(on: 1) == "" && bearers.sent(on: 2) == "0B 02")
    #expect(bearers.ask("0A 13 00", on: 2) == "0B 00 00")
    bearers.close(2)
    #expect(bearers.effectTexts() == [])
    bearers.answer(1, [1])
    #expect(bearers.sent(on: 1) == "0B 01")
    #expect(bearers.ask("0A 3A 00", on: 1) == "")
    bearers.close(1)
    #expect(bearers.effectTexts() == ["1 reads 0x003A+0 #3", "1 cancelled #3"])
  }

  private func cache() throws -> Bearers {
    var builder = DatabaseBuilder()
    builder.genericAccess(name: "B")  // 0001 … 0005
    builder.genericAttribute()  // 0006 … 000D
    builder.service("180F", at: handle(0x20)) {
      $0.characteristic("2A19", [.read, .write, .notify], value: [1])  // 0020 … 0023
    }
    let bearers = Bearers(try builder.build())
    #expect(bearers.ask("12 0B 00 01", on: 1) == "13" && bearers.ask("12 09 00 02 00", on: 2) == "13")
    #expect(bearers.ask("12 23 00 01 00", on: 1) == "13")
    #expect(bearers.ask("0A 0B 00", on: 2) == "0B 01" && bearers.ask("0A 0B 00", on: 3) == "0B 00")
    try change(bearers)
    return bearers
  }
  private func change(_ bearers: Bearers) throws {
    var builder = DatabaseBuilder(after: bearers.server.database)
    builder.service("180A") { $0.characteristic("2A29", .read, value: .text("us")) }
    try bearers.server.insert(builder)
  }

  /// Vol 3, Part G, §2.5.2.1: features and awareness are the client's, 0x12 is sent once on each bearer, and only the
  /// Database Hash and another request, on any bearer, make a client with several of them aware.
  @Test func awarenessIsTheClients() throws {
    let bearers = try cache()
    for number in [UInt16(1), 2] {
      #expect(bearers.ask("0A 22 00", on: number) == "01 0A 22 00 12")
      #expect(bearers.ask("0A 22 00", on: number) == "0B 01")
      #expect(!bearers.mayNotify(0x22, on: 1) && !bearers.mayNotify(0x22, on: 2))
    }
    #expect(bearers.indication(on: 2) == "0x0008 06 00 26 00" && bearers.indication(on: 1) == nil)
    bearers.confirm(on: 1)
    bearers.confirm(on: 2)
    #expect(!bearers.mayNotify(0x22, on: 1))
    #expect(bearers.ask("08 01 00 FF FF 2A 2B", on: 1).hasPrefix("09 12 0D 00"))
    #expect(!bearers.mayNotify(0x22, on: 1))
    #expect(bearers.ask("0A 22 00", on: 2) == "0B 01")
    #expect(bearers.mayNotify(0x22, on: 1) && bearers.mayNotify(0x22, on: 2))
    // Another change: everything again.
    try change(bearers)
    for number in [UInt16(1), 2] { #expect(bearers.ask("0A 22 00", on: number) == "01 0A 22 00 12") }
  }

  /// Service Changed that was sent on a bearer that closes goes out on another; a client that is left with one bearer
  /// becomes aware by its confirmation.
  @Test func serviceChangedOutlivesItsBearer() throws {
    let bearers = try cache()
    #expect(bearers.indication(on: 1) == "0x0008 06 00 26 00" && bearers.indication(on: 2) == nil)
    bearers.close(1)
    #expect(bearers.indication(on: 2) == "0x0008 06 00 26 00")
    bearers.confirm(on: 2)
    #expect(bearers.mayNotify(0x22, on: 2))
  }

  @Test func openingBesideNothing() throws {
    let bearers = Bearers(try richDatabase()), one = BearerID(rawValue: 1), four = BearerID(rawValue: 4)
    let isOpen = [bearers.server.open(one, beside: one), bearers.server.open(four, beside: BearerID(rawValue: 9))]
    #expect(isOpen == [false, false])
    // A bearer that changes hands starts afresh.
    #expect(bearers.ask("12 13 00 01 00", on: 3) == "13")
    let isTaken = bearers.server.open(BearerID(rawValue: 3), beside: one)
    #expect(isTaken)
    #expect(bearers.effectTexts() == ["3 subscribed 0x0012 1", "3 subscribed 0x0012 0"])
    #expect(bearers.ask("0A 13 00", on: 3) == "0B 00 00")
  }
}
