// B5: the discovery of a server of 300 attributes: services, included services, characteristics and descriptors; both
// ends in memory, MTU 23 and 517. The MTU exchange came before.
import BindruneATT
import BindruneWire
import BindruneGATT

/// A client's end of the bearer; its server has no attributes and gets no requests.
struct ClientEnd: ~Copyable {
  var bearer: Bearer
  var client = Client()
  var server = Server(database: Database())

  init(mtu: Int) {
    var configuration = BearerConfiguration()
    configuration.preferredMTU = mtu
    bearer = Bearer(BearerID(rawValue: 1), configuration: configuration)
    begin()
  }
  /// The client has discovered nothing.
  mutating func begin() {
    client = Client()
    client.open(bearer.id)
  }
}

@safe struct Pair: ~Copyable {
  var asker: ClientEnd
  var answerer: ServerEnd
  let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 600, alignment: 64)
  let answer = UnsafeMutableRawBufferPointer.allocate(byteCount: 600, alignment: 64)

  init(mtu: Int) {
    asker = ClientEnd(mtu: mtu)
    answerer = ServerEnd(services: 10, mtu: mtu)
    asker.bearer.exchangeMTU()
    // The server has answered one exchange already; a second one has no effect.
    guard roundTrip(), asker.bearer.mtu == mtu else { fail("no MTU of \(mtu)") }
  }
  /// One request and its response; false if the client has no request.
  @inline(__always) mutating func roundTrip() -> Bool {
    var output = unsafe OutputRawSpan(buffer: room, initializedCount: 0)
    guard asker.bearer.nextPDU(into: &output, now: .zero, client: &asker.client) else { return false }
    let asked = unsafe output.finalize(for: room)
    let request = unsafe UnsafeRawBufferPointer(rebasing: room[..<asked]).bindMemory(to: UInt8.self)
    output = unsafe OutputRawSpan(buffer: answer, initializedCount: 0)
    guard unsafe answerer.answer(request.span, into: &output) else { fail("no answer") }
    let answered = unsafe output.finalize(for: answer)
    let response = unsafe UnsafeRawBufferPointer(rebasing: answer[..<answered]).bindMemory(to: UInt8.self)
    unsafe asker.bearer.receive(response.span, now: .zero, server: &asker.server, client: &asker.client)
    while asker.bearer.nextEffect() != nil {}
    return true
  }
}

func discovery(_ id: String, _ repetitions: Int, _ batches: Int) {
  guard let mtu = Int(id.dropFirst(3)) else { fail("no row \(id)") }
  var pair = Pair(mtu: mtu), roundTrips = 0
  _ = discover(&pair, 1, &roundTrips)
  let count = roundTrips
  measure(id, items: 1, repetitions: repetitions, batches: batches, roundTrips: count) {
    discover(&pair, $0, &roundTrips)
  }
}

@inline(never) func discover(_ pair: inout Pair, _ repetitions: Int, _ roundTrips: inout Int) -> UInt64 {
  var sum: UInt64 = 0
  for _ in 0..<repetitions {
    pair.asker.begin()
    pair.asker.client.discoverAll(RequestID(rawValue: 1))
    while pair.roundTrip() { roundTrips &+= 1 }
    guard case .completed(_, .discovered) = pair.asker.client.nextEffect() else { fail("not discovered") }
    let found = pair.asker.client.remote
    // The types of these have been inferred: `remote` does not list them.
    var inferred = 0
    for characteristic in found.characteristics where !characteristic.descriptorsAreKnown { inferred += 1 }
    sum &+= UInt64(
      found.services.count * 1_000_000 + found.characteristics.count * 1_000 + found.descriptors.count + inferred)
  }
  return sum
}
