import Bindrune
import BindruneWire
import Foundation
import Synchronization
import TestSupport
import Testing

/// Ports that a socket's writer drains instead of a host, for an adapter in another process.
@Suite(.hang) struct PortOverSocketTests {
  /// The frames that the application's process has written to its socket.
  enum Frame: Equatable, Sendable {
    case value(UInt16), request(UInt16)
  }
  enum Outcome: Equatable, Sendable {
    case written
    case failed(BluetoothError)
  }

  /// The writer of a socket in memory. The other process grants it credit, in octets of values. It writes requests too,
  /// each after the values that were offered before it.
  final class Writer: @unchecked Sendable {
    // Sendable: the lock, and what `drain`, `grant` and `close` change, which one thread calls at a time.
    private struct Request {
      let number: UInt16
      let place: SendPort.Fence
    }
    private let lock = NSLock()
    private var requests: [Request] = []
    private var ended: [UInt16: [Outcome]] = [:]
    private(set) var port: SendPort!
    private(set) var written: [Frame] = []
    private(set) var faults: [String] = []
    private(set) var isOutOfCredit = false
    private var credit = 0
    private var isClosed = false

    init(
      capacity: Int, mtu: Int, onReady: @escaping @Sendable () -> Void = {}, wake: @escaping @Sendable () -> Void
    ) {
      port = SendPort(handle: nil, kind: .command, capacity: capacity, mtu: mtu, onReady: onReady) { _ in wake() }
    }

    /// From any thread. The fence and the request are placed under one lock, so both queues have the same order.
    func put(_ number: UInt16) {
      let isTaken = lock.withLock {
        guard let place = port.fence() else { return false }
        requests.append(Request(number: number, place: place))
        return true
      }
      if !isTaken { end(number, .failed(.socketIsClosed)) }
    }
    private func end(_ number: UInt16, _ outcome: Outcome) {
      lock.withLock { ended[number, default: []].append(outcome) }
    }
    var outcomes: [UInt16: [Outcome]] { lock.withLock { ended } }

    func grant(_ octets: Int) {
      credit += octets
      if isOutOfCredit { drain() }
    }
    /// Writes as much as it has credit for.
    func drain() {
      if isClosed { return }
      isOutOfCredit = false
      while true {
        let isAny = writeRequest()
        let (left, isEdge) = port.sendNext(now: .zero) { value, handle in
          guard credit >= value.count else { return false }
          credit -= value.count
          let octets = value.indices.map { value[$0] }, number = UInt16(octets[0]) << 8 | UInt16(octets[1])
          if octets != PortOverSocketTests.value(number) || handle.rawValue != number % 5 + 1 {
            faults.append("value \(number) is torn")
          }
          written.append(.value(number))
          return true
        }
        if isEdge { port.tellReady() }
        if port.count > port.capacity { faults.append("\(port.count) octets wait") }
        switch left {
        case .more: continue
        case .refused:
          isOutOfCredit = true
          return
        case .nothing, .fenced: if !isAny, !isNextReached { return }
        }
      }
    }
    private var isNextReached: Bool { lock.withLock { requests.first?.place.isReached == true } }
    private func writeRequest() -> Bool {
      let next = lock.withLock { requests.first?.place.isReached == true ? requests.removeFirst() : nil }
      guard let next else { return false }
      written.append(.request(next.number))
      end(next.number, .written)
      // Releases its fence, which may wake the writer again.
      return true
    }
    /// The socket is closed, by either side.
    func close(_ error: BluetoothError) {
      isClosed = true
      port.close(error)
      let left = lock.withLock {
        defer { requests = [] }
        return requests
      }
      for request in left {
        if !request.place.isReached { faults.append("the place of request \(request.number) is not reached") }
        end(request.number, .failed(error))
      }
    }
  }

  /// A writer on a queue of its own. The other process grants credit whenever there is none left.
  final class WriterThread: @unchecked Sendable {
    // Sendable: the queue.
    let queue = DispatchQueue(label: "writer")
    private(set) var writer: Writer!
    private let last: Int

    /// Closes the socket after this many frames.
    init(closesAfter last: Int) {
      self.last = last
      writer = Writer(capacity: 1_000, mtu: 247) { [unowned self] in schedule() }
    }
    func schedule() { queue.async { self.drain() } }
    private func drain() {
      writer.drain()
      if writer.written.count > last {
        writer.close(.socketIsClosed)
      } else if writer.isOutOfCredit {
        queue.async {
          self.writer.grant(500)
          self.drain()
        }
      }
    }
  }

  /// 2 to 121 octets that contain their number.
  static func value(_ number: UInt16) -> [UInt8] {
    [UInt8(number >> 8), UInt8(number & 255)]
      + [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: Int(number) * 7 % 120)
  }
  private static func handle(of number: UInt16) -> AttributeHandle { AttributeHandle(rawValue: number % 5 + 1) }

  /// Stalls, partial credit, late wakes, and for every second seed an end in the middle.
  @Test("One thread's calls leave in order, with one ready edge for each run of refusals")
  func seeded() {
    for seed in UInt64(0)..<200 {
      var chance = SplitMix64(seed: seed), calls: [Frame] = [], requests: [UInt16] = []
      let wakes = Atomic(0), edges = Atomic(0)
      let writer = Writer(
        capacity: Int.random(in: 516...2_000, using: &chance), mtu: Int.random(in: 23...517, using: &chance),
        onReady: { edges.add(1, ordering: .relaxed) }, wake: { wakes.add(1, ordering: .relaxed) })
      var runs = 0, isRefused = false, compared = 0
      let end = seed.isMultiple(of: 2) ? Int.random(in: 0..<600, using: &chance) : .max
      for step in 0..<600 where step < end {
        let number = UInt16(step)
        switch Int.random(in: 0..<10, using: &chance) {
        case 0...5:
          let before = edges.load(ordering: .relaxed)
          if writer.port.offer(Self.value(number), to: Self.handle(of: number)) {
            calls.append(.value(number))
          } else {
            if !isRefused { runs += 1 }
            isRefused = true
          }
          #expect(edges.load(ordering: .relaxed) == before, "seed \(seed): a producer's call makes no edge")
        case 6:
          writer.put(number)
          requests.append(number)
          calls.append(.request(number))
          // As a session does if its queue was empty.
          if requests.count == 1 || writer.outcomes.count == requests.count - 1 { writer.drain() }
        case 7: writer.grant(Int.random(in: 0...400, using: &chance))
        default:
          if wakes.exchange(0, ordering: .relaxed) > 0 { writer.drain() }
        }
        if edges.load(ordering: .relaxed) == runs { isRefused = false }
        let written = writer.written[compared...]
        #expect(calls.dropFirst(compared).starts(with: written), "seed \(seed)")
        compared += written.count
        #expect(edges.load(ordering: .relaxed) >= runs - 1, "seed \(seed)")
        #expect(writer.port.readyEdges == edges.load(ordering: .relaxed), "seed \(seed)")
      }
      if end == .max {
        // A late wake and credit for everything must suffice for all that remains.
        writer.grant(1 << 20)
        while wakes.exchange(0, ordering: .relaxed) > 0 { writer.drain() }
        #expect(writer.written == calls && edges.load(ordering: .relaxed) == runs, "seed \(seed)")
      } else {
        let count = edges.load(ordering: .relaxed), written = writer.written
        writer.close(.socketIsClosed)
        writer.drain()
        writer.put(9999)
        requests.append(9999)
        #expect(!writer.port.offer([0, 0], to: Self.handle(of: 0)) && writer.port.count == 0)
        #expect(edges.load(ordering: .relaxed) == count && writer.written == written, "seed \(seed)")
      }
      let outcomes = writer.outcomes
      #expect(outcomes.count == requests.count && outcomes.values.allSatisfy { $0.count == 1 }, "seed \(seed)")
      #expect(
        requests.allSatisfy { outcomes[$0] == [.written] || end < .max && !writer.written.contains(.request($0)) },
        "seed \(seed)")
      #expect(writer.faults.isEmpty, "seed \(seed): \(writer.faults)")
    }
  }

  /// Two producers, the writer's thread, and the other process, which grants credit when there is none left; with an
  /// end in the middle, and without.
  @Test(
    "Producers on threads of their own wait for room and go on; each one's order is kept", arguments: [true, false])
  func threads(isClosed: Bool) async throws {
    let thread = WriterThread(closesAfter: isClosed ? 3_000 : .max), writer = thread.writer!, port = writer.port!
    let count = UInt16(4_000)
    // Each returns its calls, in order.
    let producers = (UInt16(0)..<2).map { producer in
      Task { () -> [Frame] in
        var calls: [Frame] = []
        for number in 0..<count {
          let number = number * 2 + producer
          if number % 20 < 2 {
            writer.put(number)
            calls.append(.request(number))
            thread.schedule()
            continue
          }
          while !port.offer(Self.value(number), to: Self.handle(of: number)) {
            do throws(BluetoothError) { try await port.waitUntilReady() } catch {
              if error != .socketIsClosed { Issue.record("\(error)") }
              return calls
            }
          }
          calls.append(.value(number))
        }
        return calls
      }
    }
    var calls: [[Frame]] = []
    for producer in producers { calls.append(await producer.value) }
    // When a request has been written, so has every value offered before it.
    writer.put(65_535)
    thread.schedule()
    while writer.outcomes[65_535] == nil {
      try Task.checkCancellation()
      thread.queue.sync {}
      await Task.yield()
    }

    let written = thread.queue.sync { writer.written }, outcomes = writer.outcomes
    for (producer, calls) in calls.enumerated() {
      let own = written.filter {
        switch $0 {
        case .value(let number), .request(let number): number != 65_535 && Int(number) % 2 == producer
        }
      }
      #expect(isClosed ? calls.starts(with: own) : own == calls && calls.count == Int(count))
      for case .request(let number) in calls {
        let expected: Outcome = own.contains(.request(number)) ? .written : .failed(.socketIsClosed)
        #expect(outcomes[number] == [expected], "request \(number)")
      }
    }
    #expect(outcomes[65_535] == [isClosed ? .failed(.socketIsClosed) : .written])
    #expect(thread.queue.sync { writer.faults } == [] && port.count == 0)
  }
}

extension BluetoothError {
  fileprivate static var socketIsClosed: BluetoothError { BluetoothError(.transport, "The socket is closed.") }
}
