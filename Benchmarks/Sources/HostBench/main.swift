// HostBench: notifications a second through `BluetoothHost`, from SendPort.offer to the receiver's loop, by the wall
// clock.
//
//   HostBench memory COUNT [FILE [calls]]
//                                   two hosts of this process on a radio in memory; prints `x.B7.Host per_second N`.
//                                   FILE: a trace of the sender, `calls`: with the calls that cause its packets
//   HostBench send SPEC COUNT       one host on a controller: serves, and notifies its first subscriber
//   HostBench receive SPEC COUNT    one host on a controller: connects, subscribes; prints `per_second N`
//
// Values have 244 octets, their number first, and the receiver checks each: none may be missing, none out of order.
import Bindrune
import BindruneSimulator
import Glibc
import NIOPosix
import Synchronization

let usage = "usage: HostBench memory COUNT [FILE [calls]] | send SPEC COUNT | receive SPEC COUNT"
let length = 244

func fail(_ reason: String) -> Never {
  print(reason)
  exit(1)
}

func served() throws -> (database: Database, handle: AttributeHandle) {
  var builder = DatabaseBuilder()
  builder.genericAccess(name: "sender")
  let handle = builder.service("180D") { $0.characteristic("2A37", .notify).value }
  return (try builder.build(), handle)
}

/// Advertises, waits for a subscriber, and sends it `count` values `rounds` times; `wait` comes before each round.
func send(
  _ host: BluetoothHost, _ handle: AttributeHandle, _ count: Int, rounds: Int, wait: () async throws -> Void
) async throws {
  var events = await host.events.makeAsyncIterator(), link: Link?, isSubscribed = false
  try await host.advertise(
    AdvertisingData(localName: "sender"), AdvertisingParameters(interval: .every(.milliseconds(20))))
  while !isSubscribed {
    switch try await events.next() {
    case .connected(let new): link = new
    case .subscriptionChanged: isSubscribed = true
    case nil: fail("the host has ended")
    default: break
    }
  }
  guard let port = try await link?.sendPort(.notification, to: handle, capacity: 64 * 1024) else { return }
  var value = [UInt8](repeating: 7, count: length)
  for _ in 0..<rounds {
    try await wait()
    for number in 0..<count {
      for place in 0..<4 { value[place] = UInt8(truncatingIfNeeded: number >> (8 * place)) }
      while !port.offer(value) { try await port.waitUntilReady() }
    }
  }
  // The receiver ends the link when it has all.
  while let event = try await events.next() { if case .disconnected = event { return } }
}

/// Connects to the device named "sender", and receives. Returns the median round's notifications a second.
func receive(_ host: BluetoothHost, _ count: Int, rounds: Int, next: () -> Void) async throws -> Double {
  var peer: PeerAddress?
  for try await advertisement in host.scan() where advertisement.name == "sender" {
    peer = advertisement.address
    break
  }
  guard let peer else { fail("nobody is called sender") }
  let link = try await host.connect(to: peer, .fast)
  guard let characteristic = try await link.discoverAll().characteristic("2A37") else { fail("no characteristic") }
  let values = try await link.subscribe(to: characteristic, capacity: (count + 1) * (length + 16))
  var batches = values.batches.makeAsyncIterator(), rates: [Double] = []
  for _ in 0..<rounds {
    next()
    var received = 0, start = ContinuousClock.now
    while received < count, let batch = try await batches.next() {
      if received == 0 { start = .now }
      for index in batch.indices {
        let isNext = batch.withValue(at: index) { value in
          value.count == length && Int(value[0]) | Int(value[1]) << 8 | Int(value[2]) << 16 == received
        }
        guard isNext else { fail("value \(received) is missing") }
        received += 1
      }
    }
    guard received == count else { fail("only \(received) of \(count)") }
    let time = (ContinuousClock.now - start).components
    rates.append(Double(count - 1) / (Double(time.seconds) + Double(time.attoseconds) * 1e-18))
  }
  try await link.disconnect()
  return rates.sorted()[rounds / 2]
}

/// Rounds of `count` values, each begun when the receiver has all of the last one, so that few values wait.
func memory(_ count: Int, trace: String?, tracesCalls: Bool) async throws {
  let loop = MultiThreadedEventLoopGroup.singleton.next(), radio = SimulatedRadio(on: loop, configuration: .ideal)
  let (database, handle) = try served()
  let sender = try await BluetoothHost.open(
    "sim", on: loop, radio: radio, database: database, trace: trace, tracesCalls: tracesCalls)
  let receiver = BluetoothHost(radio.controller())
  try await receiver.start()
  let rounds = 20
  let (begin, begun) = AsyncStream.makeStream(of: Void.self)
  async let sent: Void = {
    var turns = begin.makeAsyncIterator()
    try await send(sender, handle, count, rounds: rounds) { await turns.next() }
  }()
  let rate = try await receive(receiver, count, rounds: rounds) { begun.yield() }
  try await sent
  await receiver.close()
  await sender.close()
  print("x.B7.Host per_second \(Int(rate))")
}

@Sendable func run(_ arguments: [String]) async throws {
  switch arguments.first {
  case "memory":
    guard 2...4 ~= arguments.count, arguments.count < 4 || arguments[3] == "calls", let count = Int(arguments[1]) else {
      fail(usage)
    }
    try await memory(count, trace: arguments.count > 2 ? arguments[2] : nil, tracesCalls: arguments.count == 4)
  case "send":
    guard arguments.count == 3, let count = Int(arguments[2]) else { fail(usage) }
    let (database, handle) = try served()
    let host = try await BluetoothHost.open(arguments[1], database: database)
    try await send(host, handle, count, rounds: 1) {}
    await host.close()
  case "receive":
    guard arguments.count == 3, let count = Int(arguments[2]) else { fail(usage) }
    let host = try await BluetoothHost.open(arguments[1])
    print("per_second", Int(try await receive(host, count, rounds: 1) {}))
    await host.close()
  default: fail(usage)
  }
}

let arguments = Array(CommandLine.arguments.dropFirst())
Task.detached {
  do {
    try await run(arguments)
    exit(0)
  } catch { fail("\(error)") }
}
while true { pause() }
