// B3: a request to its response, through bearer, server and database, as a connected client's requests go. The database
// is built as given, without automatic services; its responses are compared with the C bound's, octet by octet, before
// anything is measured.
import BindruneATT
import BindruneWire
import BindruneGATT

/// `services` × 30 attributes; every second service has 128-bit UUIDs. PERFORMANCE: 10 (100) services.
func database(services: Int) -> Database {
  func uuid(_ number: Int, isShort: Bool) -> BluetoothUUID {
    isShort
      ? .short(UInt16(number))
      : .long(low: 0xC7C6_C5C4_C3C2_C1C0, high: 0xD000_0000_CBCA_C9C8 | UInt64(number) << 32)
  }
  var builder = DatabaseBuilder()
  for s in 0..<services {
    let isShort = s.isMultiple(of: 2)
    builder.service(uuid(0xA000 + s, isShort: isShort)) { service in
      for c in 0..<10 {
        service.characteristic(
          uuid(0xB000 + 16 * s + c, isShort: isShort), c < 9 ? [.read, .write, .notify] : [.read, .write],
          value: .stored(Array(repeating: UInt8(c), count: c < 9 ? 20 : 200)))
      }
    }
  }
  do { return try builder.build() } catch { fail("\(error)") }
}

/// The client side of a bearer, without requests.
struct NoClient: AttributeClient, ~Copyable {
  mutating func nextRequest(
    on bearer: BearerID, after commands: UInt64, mtu: Int, into request: inout OutputRawSpan
  ) -> Bool { false }
  func hasRequest(on bearer: BearerID) -> Bool { false }
  func holdsCommands(on bearer: BearerID) -> Bool { false }
  mutating func receive(response: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, mtu: Int, now: Instant) {}
  mutating func receive(value: ATTPDU, in packet: Span<UInt8>, on bearer: BearerID, now: Instant) {}
  mutating func close(_ reason: BearerClosure, on bearer: BearerID) {}
}

/// One bearer and the server behind it.
struct ServerEnd: ~Copyable {
  var bearer: Bearer
  var server: Server
  var client = NoClient()

  init(services: Int, mtu: Int) {
    let id = BearerID(rawValue: 1)
    var configuration = BearerConfiguration()
    configuration.preferredMTU = mtu
    bearer = Bearer(id, configuration: configuration)
    server = Server(database: database(services: services))
    server.open(id)
    let exchange: [UInt8] = [0x02, UInt8(mtu & 0xFF), UInt8(mtu >> 8)]
    var answer = PacketBuffer()
    guard self.answer(exchange.span, into: &answer), bearer.mtu == mtu else { fail("no MTU of \(mtu)") }
  }
  /// One request to its response, and the server's effects.
  @inline(__always)
  mutating func answer(_ request: Span<UInt8>, into output: inout OutputRawSpan) -> Bool {
    bearer.receive(request, now: .zero, server: &server, client: &client)
    let isAnswered = bearer.nextPDU(into: &output, now: .zero, client: &client)
    while bearer.nextEffect() != nil {}
    while server.nextEffect() != nil {}
    return isAnswered
  }
  mutating func answer(_ request: Span<UInt8>, into answer: inout PacketBuffer) -> Bool {
    answer.fill { self.answer(request, into: &$0) }
  }
}

/// `B3.K5.300`: the requests of kind 5 against 300 attributes.
func server(_ id: String, _ workloads: String, _ repetitions: Int, _ batches: Int) {
  let parts = id.split(separator: ".")
  guard parts.count == 3, let kind = parts[1].last?.wholeNumberValue, let attributes = Int(parts[2]) else {
    fail("no row \(id)")
  }
  compareResponses(workloads, attributes)
  let requests = Requests(Corpus(workloads, "reqs_\(attributes).bin", tagged: true), kind: kind)
  var end = ServerEnd(services: attributes / 30, mtu: 247)
  // Once unmeasured, so that buffers have grown.
  _ = answer(requests, &end, 1)
  measure(id, items: requests.count, repetitions: repetitions, batches: batches) { answer(requests, &end, $0) }
}

/// The requests of one kind.
@safe struct Requests {
  let all: Corpus
  let indices: UnsafeMutablePointer<Int>
  let count: Int
  init(_ all: Corpus, kind: Int) {
    self.all = all
    unsafe indices = .allocate(capacity: all.count)
    var count = 0
    for i in 0..<all.count where unsafe Int(all.tag[i]) == kind {
      unsafe indices[count] = i
      count += 1
    }
    self.count = count
  }
}

@inline(never) func answer(_ requests: Requests, _ end: inout ServerEnd, _ repetitions: Int) -> UInt64 {
  var sum: UInt64 = 0
  let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 512, alignment: 64)
  defer { unsafe room.deallocate() }
  for _ in 0..<repetitions {
    for i in 0..<requests.count {
      let request = unsafe requests.all[requests.indices[i]].span
      var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
      _ = end.answer(request, into: &output)
      let count = unsafe output.finalize(for: room)
      sum &+= unsafe UInt64(count) &+ UInt64(room[0])
    }
  }
  return sum
}

/// All requests in their order, and the responses of the C bound.
func compareResponses(_ workloads: String, _ attributes: Int) {
  let requests = Corpus(workloads, "reqs_\(attributes).bin", tagged: true)
  let expected = Corpus(workloads, "resp_\(attributes).bin")
  guard requests.count == expected.count else { fail("\(requests.count) requests, \(expected.count) responses") }
  var end = ServerEnd(services: attributes / 30, mtu: 247), answer = PacketBuffer()
  for i in 0..<requests.count {
    let request = unsafe requests[i].span
    _ = end.answer(request, into: &answer)
    let isEqual = answer.withBytes { ours in
      unsafe ours.withUnsafeBufferPointer { unsafe $0.elementsEqual(expected[i]) }
    }
    guard isEqual else { fail("request \(i) of \(attributes) attributes: not the C bound's response") }
  }
}
