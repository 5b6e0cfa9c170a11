import BindruneTransport
import BindruneWire
import NIOCore
import TestSupport
import Testing

@Suite(.realTime, .hang) struct MemoryTests {
  /// A pair with a recorder at each end, both started.
  private func withPair(
    _ body: (any EventLoop, MemoryTransport, MemoryTransport, Recorder, Recorder) async throws -> Void
  ) async throws {
    try await withLoop { loop in
      let (host, controller) = MemoryTransport.pair(on: loop)
      let (atHost, atController) = (Recorder(loop), Recorder(loop))
      try await loop.run {
        host.start(atHost)
        controller.start(atController)
      }
      try await body(loop, host, controller, atHost, atController)
      try await loop.run {
        host.close()
        controller.close()
      }
    }
  }

  @Test func packetsKeepTheirOrderAndComeInBatches() async throws {
    try await withPair { loop, host, controller, atHost, atController in
      try await loop.run {
        for number in 0..<1000 { host.send(acl(number, count: number % 40)) }
        host.flush()
        controller.send(octets("04 0E 04 01 03 0C 00"))
        #expect(atController.packets.isEmpty)  // never from inside a call
      }
      try await atController.wait { $0.packets.count == 1000 && $0.batches == 1 }
      try await atHost.wait { $0.packets == [octets("04 0E 04 01 03 0C 00")] }
      let expected = (0..<1000).map { acl($0, count: $0 % 40) }
      try await loop.run { #expect(atController.packets == expected) }
    }
  }

  @Test func answersFromInsideReceivedKeepTheirOrder() async throws {
    try await withPair { loop, host, controller, atHost, atController in
      try await loop.run {
        // Ping-pong: each end answers at once, 20,000 times.
        atController.onPacket = { _, packet in controller.send(packet) }
        atHost.onPacket = { recorder, _ in if recorder.packets.count < 20_000 { host.send(acl(recorder.packets.count)) }
        }
        host.send(acl(0))
      }
      try await atHost.wait { $0.packets.count == 20_000 }
      try await loop.run { #expect(atHost.packets.indices.allSatisfy { atHost.packets[$0] == acl($0) }) }
    }
  }

  @Test func aFullInboxStopsTheSenderAndOneEdgeStartsItAgain() async throws {
    try await withPair { loop, host, _, atHost, atController in
      let sent = try await loop.run {
        var sent = 0
        while host.isWritable {
          host.send(acl(sent, count: 250))
          sent += 1
        }
        return sent
      }
      #expect((200...300).contains(sent))
      try await atHost.wait { $0.writables == 1 }
      try await atController.wait { $0.packets.count == sent }
      try await loop.run {
        #expect(host.isWritable)
        #expect(atHost.writables == 1)
      }
    }
  }

  @Test func aSenderThatNeverStopsFails() async throws {
    try await withPair { loop, host, controller, atHost, atController in
      try await loop.run {
        for number in 0..<10_000 { host.send(acl(number, count: 250)) }
        #expect(!host.isWritable)
      }
      try await atHost.wait { $0.errors.count == 1 }
      try await atController.wait { $0.errors == [.closed] }
      try await loop.run {
        if case .overflow(let octets) = atHost.errors[0] {
          #expect((1 << 20...(1 << 20) + 300).contains(octets))
        } else {
          Issue.record("\(atHost.errors)")
        }
        #expect(!controller.isWritable)
      }
    }
  }

  @Test func closeFollowsTheLastPacketAndNothingFollowsClose() async throws {
    try await withPair { loop, host, controller, atHost, atController in
      try await loop.run {
        controller.send(acl(9))  // on its way when the host closes: lost
        host.send(acl(1))
        host.send(acl(2))
        host.close()
        host.send(acl(3))
        host.close()
      }
      try await atController.wait { $0.errors == [.closed] }
      try await loop.run {
        controller.send(acl(4))
        #expect(!controller.isWritable && !host.isWritable)
      }
      try await loop.run {
        #expect(atController.packets == [acl(1), acl(2)])
        #expect(atController.errors == [.closed])
        #expect(atHost.packets.isEmpty && atHost.errors.isEmpty)
      }
    }
  }

  @Test func closingInsideReceivedEndsTheBatch() async throws {
    try await withPair { loop, host, controller, _, atController in
      try await loop.run {
        atController.onPacket = { recorder, _ in if recorder.packets.count == 2 { controller.close() } }
        for number in 0..<5 { host.send(acl(number)) }
      }
      try await atController.wait { $0.packets.count == 2 }
      try await loop.run { #expect(atController.packets.count == 2 && atController.batches == 0) }
    }
  }

  @Test func packetsWaitForTheStartAndResynchroniseDropsThem() async throws {
    try await withLoop { loop in
      let (host, controller) = MemoryTransport.pair(on: loop)
      let recorder = Recorder(loop)
      try await loop.run {
        controller.send(acl(1))
        controller.send(octets("04 0E 04 01 03 0C 00"))
        controller.send(acl(2))
      }
      try await loop.run {
        host.resynchronise()
        host.start(recorder)
      }
      try await recorder.wait { $0.packets == [octets("04 0E 04 01 03 0C 00"), acl(2)] }
      try await loop.run { host.close() }
    }
  }

  /// How `actor BluetoothHost` lives on a transport: its executor is the loop, its handler enters without a hop.
  @Test func anActorOnTheLoopReceivesWithoutAHop() async throws {
    actor Driver: HCIReceiver {
      let transport: MemoryTransport
      var count = 0
      init(_ transport: MemoryTransport) { self.transport = transport }
      nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe transport.eventLoop.executor.asUnownedSerialExecutor()
      }
      func start() { transport.start(self) }
      nonisolated func received(_ packet: Span<UInt8>) { assumeIsolated { $0.count += packet.count } }
      nonisolated func receivedAll() { assumeIsolated { $0.transport.send(acl($0.count)) } }
      nonisolated func writable() {}
      nonisolated func failed(_ error: TransportError) {}
    }
    try await withLoop { loop in
      let (host, controller) = MemoryTransport.pair(on: loop)
      let recorder = Recorder(loop)
      let driver = Driver(host)
      await driver.start()
      try await loop.run {
        controller.start(recorder)
        controller.send(acl(1, count: 15))
      }
      try await recorder.wait { $0.packets == [acl(20)] }
      try await loop.run { controller.close() }
    }
  }
}
