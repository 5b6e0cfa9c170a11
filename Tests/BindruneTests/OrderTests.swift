import Synchronization
import TestSupport
import Testing

@testable import Bindrune

/// The requests and values of one caller leave a link in the order of its calls, through ports and past them.
@Suite(.virtualTime, .hang) struct OrderTests {
  private struct Desk {
    let lab = Lab()
    let peripheral: BluetoothHost, central: BluetoothHost, link: Link
    let values: [AttributeHandle]

    /// `dynamic`: the peripheral's application answers.
    init(dynamic: Bool = false, observer: (any HostObserver)? = nil) async throws {
      var builder = DatabaseBuilder()
      values = builder.service("180D") { service in
        ["2A38", "2A39", "2A3A"].map {
          service.characteristic(
            $0, [.read, .write, .writeWithoutResponse, .notify], value: dynamic ? .dynamic : .stored([0, 0])
          ).value
        }
      }
      peripheral = try await lab.host(try builder.build())
      central = try await lab.host(observer: observer)
      try await peripheral.advertiseFast()
      link = try await central.connect(to: peripheral.ownAddress, .fast)
    }
    func close() async {
      await central.close()
      await peripheral.close()
    }
  }
  private static func octets(_ number: Int) -> [UInt8] { [UInt8(number >> 8), UInt8(number & 0xFF)] }

  /// A read sees an earlier write without response.
  @Test func aReadAfterCommands() async throws {
    let desk = try await Desk(), value = desk.values[0]
    let port = try await desk.link.sendPort(.command, to: value)
    try await within {
      var number = 0
      for round in 0..<20 {
        for _ in 0..<(round.isMultiple(of: 2) ? 20 : 100) {
          number += 1
          while !port.offer(Self.octets(number)) { try await port.waitUntilReady() }
        }
        #expect(try await desk.link.read(value) == Self.octets(number), "round \(round)")
      }
    }
    await desk.close()
  }

  /// A write with a response arrives after 3,000 commands that the port accepted as it had room.
  @Test func aWriteAfterFlowControlledCommands() async throws {
    let desk = try await Desk(), count = 3_000
    let port = try await desk.link.sendPort(.command, to: desk.values[0], capacity: 1_000)
    try await within {
      var events = await desk.peripheral.events.makeAsyncIterator()
      async let written: Void = {
        for number in 1...count {
          while !port.offer(Self.octets(number)) { try await port.waitUntilReady() }
        }
        try await desk.link.write([1], to: desk.values[1])
      }()
      var arrived = 0
      while case .written(_, let handle, _, _)? = try await nextWritten(&events), handle == desk.values[0] {
        arrived += 1
      }
      #expect(arrived == count)
      try await written
    }
    await desk.close()
  }
  private func nextWritten(_ events: inout ServerEventSequence.AsyncIterator) async throws -> ServerEvent? {
    while let event = try await events.next() { if case .written = event { return event } }
    return nil
  }

  /// An observer mixes requests with commands through two ports, in one turn of the loop or in many: they arrive in the
  /// order of the calls.
  @Test(arguments: UInt64(1)...12) func aSeededMix(seed: UInt64) async throws {
    let recorder = Recorder(), desk = try await Desk(observer: recorder), count = 300
    let ports = [
      try await desk.central.sendPort(.command, on: desk.link.id, capacity: 2_000),
      try await desk.link.sendPort(.command, to: desk.values[1], capacity: 600),
    ]
    try await within {
      var events = await desk.peripheral.events.makeAsyncIterator()
      async let made: [Int] = {
        var chance = SplitMix64(seed: seed), made: [Int] = [], number = 0
        while number < count {
          number += 1
          switch Int.random(in: 0..<8, using: &chance) {
          case 0:
            let long = [UInt8](repeating: 0, count: Int.random(in: 0..<2, using: &chance) * 400)
            let value = Self.octets(number) + long
            await desk.central.begin(.write(desk.link.id, desk.values[2], value))
            made.append(number)
          case 1:
            let read = await desk.central.begin(.read(desk.link.id, desk.values[0]))
            // 256 requests may wait.
            _ = try await recorder.result(of: read)
          case let which:
            // One port for a run of calls: the order of values in several ports is not defined.
            let port = ports[which % 2]
            if port.offer(Self.octets(number), to: desk.values[1]) {
              made.append(number)
            } else {
              try await port.waitUntilReady()
            }
            await desk.central.begin(.read(desk.link.id, desk.values[0]))
          }
        }
        await desk.central.begin(.write(desk.link.id, desk.values[2], Self.octets(0xFFFF)))
        return made
      }()
      var arrived: [Int] = []
      while case .written(_, _, let value, _)? = try await nextWritten(&events) {
        let number = Int(value[0]) << 8 | Int(value[1])
        if number == 0xFFFF { break }
        arrived.append(number)
      }
      let expected = try await made
      let place =
        zip(expected, arrived).enumerated().first { $1.0 != $1.1 }?.offset ?? min(expected.count, arrived.count)
      #expect(
        expected == arrived,
        "seed \(seed): \(arrived[place...].prefix(5)) arrived at \(place), not \(expected[place...].prefix(5))")
    }
    await desk.close()
  }

  /// A request without a place among the values waits only for the requests before it. Placed behind a request that is
  /// still on its way from the app's thread, it would deadlock with that.
  @Test func aRequestWithoutAPlace() async throws {
    let recorder = Recorder(), desk = try await Desk(observer: recorder), link = desk.link.id
    let port = try await desk.central.sendPort(.command, on: link)
    let requests = await desk.central.run { host in
      _ = port.offer(Self.octets(1), to: desk.values[0])
      let place = port.fence()
      _ = port.offer(Self.octets(2), to: desk.values[0])
      let ids = [1, 2].map { RequestID(rawValue: BluetoothHost.firstNumberOfObserver + $0) }
      host.begin(.read(link, desk.values[1]), as: ids[0], after: nil)
      host.begin(.read(link, desk.values[0]), as: ids[1], after: place)
      return ids
    }
    for (id, value) in zip(requests, [[0, 0], Self.octets(1)]) {
      guard case .value(let found) = try await recorder.result(of: id).get() else {
        Issue.record("no value")
        continue
      }
      #expect(found == value)
    }
    #expect(try await desk.link.read(desk.values[0]) == Self.octets(2))
    await desk.close()
  }

  /// An answer leaves after the notifications that the application offered before it, and before those offered later.
  @Test func anAnswerAmongNotifications() async throws {
    let recorder = Recorder(), desk = try await Desk(dynamic: true, observer: recorder)
    try await within {
      var events = await desk.peripheral.events.makeAsyncIterator()
      let database = try await desk.link.discover()
      let rate = try #require(database.characteristic(valueHandle: desk.values[0]))
      let subscription = try await desk.link.subscribe(to: rate)
      let server = try #require(await desk.peripheral.links.first?.id)
      let port = try await desk.peripheral.sendPort(.notification, on: server, capacity: 1_000)
      var expected: [String] = []
      for round in 0..<20 {
        let read = await desk.central.begin(.read(desk.link.id, desk.values[1]))
        while case let event? = try await events.next() {
          guard case .readRequested(let request) = event else { continue }
          for number in 0..<60 {
            let value = [UInt8(round), UInt8(number)]
            if number == 30 {
              try await request.respond([UInt8(round)])
              expected.append("answer \(round)")
            }
            while !port.offer(value, to: desk.values[0]) { try await port.waitUntilReady() }
            expected.append("\(value)")
          }
          break
        }
        _ = try await recorder.result(of: read)
      }
      let last = try #require(expected.last)
      let found = { @Sendable in
        recorder.reports.compactMap { reports -> String? in
          switch reports {
          case .value(let value, desk.values[0], _, _): "\(value)"
          case .event(.completed(_, .success(.value(let value)))): "answer \(value[0])"
          default: nil
          }
        }
      }
      try await eventually { found().last == last }
      #expect(found() == expected)
      try await subscription.end()
    }
    await desk.close()
  }

  /// A request ends once if it is cancelled, or its link ends, while it waits for values.
  @Test func endsWhileItWaits() async throws {
    let lab = Lab(), recorder = Recorder()
    var builder = DatabaseBuilder()
    let value = builder.service("180D") { $0.characteristic("2A39", [.read, .writeWithoutResponse], value: [0]).value }
    let peripheral = try await lab.host(try builder.build())
    let (central, relay) = try await lab.relayedHost(observer: recorder)
    try await peripheral.advertiseFast()
    try await within {
      let link = try await central.connect(to: peripheral.ownAddress, .fast)
      let port = try await central.sendPort(.command, on: link.id, capacity: 2_000)
      // The controller accepts nothing more: its buffers, the link's queue and the port fill up.
      try await relay.fallSilent()
      while await central.hasValues(.command, on: link.id) == false {
        while port.offer([UInt8](repeating: 1, count: 100), to: value) {}
      }
      let first = await central.begin(.read(link.id, value)), second = await central.begin(.read(link.id, value))
      await central.cancel(first)
      guard case .failure(let reason) = try await recorder.result(of: first), reason.code == .cancelled else {
        Issue.record("not cancelled")
        return
      }
      #expect(recorder.completions.map(\.id).contains(second) == false)
      await peripheral.close()
      guard case .failure(let reason) = try await recorder.result(of: second), reason.code == .disconnected else {
        Issue.record("not ended with its link")
        return
      }
      #expect(recorder.completions.map(\.id).filter { $0 == first || $0 == second } == [first, second])
    }
    await central.close()
  }
}
