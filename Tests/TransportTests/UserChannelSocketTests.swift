import BindruneCapture
import BindruneWire
import Foundation
import NIOCore
import TestSupport
import Testing

@testable import BindruneTransport

/// Tests over sockets that keep packets whole. Tests/Kernel shows that the kernel's own is one of them.
@Suite(.realTime, .hang) struct UserChannelSocketTests {
  private func withSocket(
    _ kind: PacketPair.Kind = .sequence,
    _ body: (any EventLoop, UserChannelSocket, Recorder, PacketPair) async throws -> Void
  ) async throws {
    try await withLoop { loop in
      let pair = PacketPair(kind)
      let socket = try await UserChannelSocket.adopt(FileDescriptor(rawValue: pair.host), of: 3, on: loop)
      try await body(loop, socket, Recorder(loop), pair)
      try await loop.run { socket.close() }
      try await socket.closeFuture.get()
      #expect(pair.hostDescriptors().isEmpty)
    }
  }

  /// The longest packet that the kernel accepts: the type octet, the header, 1,023 octets of data.
  private static let longest = 1023

  // MARK: Writing

  /// In one turn of the loop, without a reader: the case in which a stream would combine packets.
  @Test(arguments: PacketPair.Kind.allCases) func oneSendIsOnePacketForAReaderThatStalls(kind: PacketPair.Kind)
    async throws
  {
    try await withSocket(kind) { loop, socket, recorder, pair in
      let sent = try await loop.run {
        socket.start(recorder)
        var sent = 0
        while socket.isWritable, sent < 100_000 {
          socket.send(acl(sent, count: sent % (Self.longest + 1)))
          sent += 1
        }
        // Some more after the request to stop: they wait.
        for _ in 0..<300 {
          socket.send(acl(sent, count: sent % (Self.longest + 1)))
          sent += 1
        }
        socket.flush()
        #expect(recorder.writables == 0)
        return sent
      }
      #expect(sent > 300 && sent < 100_300)
      for number in 0..<sent { #expect(pair.receive() == acl(number, count: number % (Self.longest + 1))) }
      try await recorder.wait { $0.writables > 0 }
      try await loop.run {
        #expect(recorder.writables == 1 && socket.isWritable && recorder.errors.isEmpty)
        socket.send(acl(sent))
      }
      #expect(pair.receive() == acl(sent))
    }
  }

  /// A sender that stops and resumes on request: no packet ever waits here.
  @Test(arguments: PacketPair.Kind.allCases) func aSlowReaderGetsEveryPacketInOrder(kind: PacketPair.Kind) async throws
  {
    try await withSocket(kind) { loop, socket, recorder, pair in
      let count = 20_000
      let sender = Sender(socket, count)
      try await loop.run {
        recorder.onWritable = { sender.go() }
        socket.start(recorder)
        sender.go()
      }
      for number in 0..<count { #expect(pair.receive() == acl(number, count: number % 100)) }
      try await loop.run {
        #expect(sender.next == count && recorder.errors.isEmpty)
        #expect(recorder.writables > 0 && recorder.writables <= count)
      }
    }
  }
  private final class Sender: @unchecked Sendable {  // only used on the loop
    private let socket: UserChannelSocket
    private let count: Int
    var next = 0
    init(_ socket: UserChannelSocket, _ count: Int) { (self.socket, self.count) = (socket, count) }
    func go() {
      while socket.isWritable, next < count {
        socket.send(acl(next, count: next % 100))
        next += 1
      }
      socket.flush()
    }
  }

  @Test func aSenderThatNeverStopsIsStopped() async throws {
    try await withSocket { loop, socket, recorder, _ in
      try await loop.run {
        socket.start(recorder)
        for number in 0..<10_000 { socket.send(acl(number, count: 1000)) }
        #expect(recorder.errors.isEmpty)  // never from inside a call
      }
      try await recorder.wait { !$0.errors.isEmpty }
      try await loop.run {
        guard case .overflow(let octets)? = recorder.errors.first else {
          Issue.record("\(recorder.errors)")
          return
        }
        #expect((1 << 20...(1 << 20) + 1005).contains(octets) && recorder.errors.count == 1 && !socket.isWritable)
      }
    }
  }

  // MARK: Reading

  @Test(arguments: PacketPair.Kind.allCases) func oneReadIsOnePacket(kind: PacketPair.Kind) async throws {
    try await withSocket(kind) { loop, socket, recorder, pair in
      try await loop.run { socket.start(recorder) }
      let count = 5000
      for number in 0..<count { #expect(pair.send(acl(number, count: number % (Self.longest + 1)))) }
      try await recorder.wait { $0.packets.count == count }
      try await loop.run {
        #expect(recorder.packets.indices.allSatisfy { recorder.packets[$0] == acl($0, count: $0 % (Self.longest + 1)) })
        #expect(recorder.batches > 0)
      }
    }
  }

  /// Nothing is read before the start: the socket keeps it.
  @Test func packetsBeforeTheStartAreNotLost() async throws {
    try await withSocket { loop, socket, recorder, pair in
      var sent = 0
      while pair.send(acl(sent), waiting: false) { sent += 1 }
      let all = sent
      #expect(sent > 5)
      try await loop.run {
        #expect(recorder.packets.isEmpty)
        socket.start(recorder)
      }
      try await recorder.wait { $0.packets.count == all }
      #expect(pair.send(acl(all)))
      try await recorder.wait { $0.packets.count == all + 1 }
      try await loop.run { #expect(recorder.packets.indices.allSatisfy { recorder.packets[$0] == acl($0) }) }
    }
  }

  @Test func aPacketThatMayHaveBeenCutIsTheEnd() async throws {
    try await withSocket { loop, socket, recorder, pair in
      try await loop.run { socket.start(recorder) }
      #expect(pair.send(acl(1, count: 2042)) && pair.send(acl(2, count: 2043)))
      try await recorder.wait { !$0.errors.isEmpty }
      try await loop.run {
        #expect(recorder.packets == [acl(1, count: 2042)] && recorder.errors == [.packetTooLong(limit: 2047)])
      }
    }
  }

  @Test func resynchroniseDropsEverythingUntilTheAnswerToReset() async throws {
    try await withSocket { loop, socket, recorder, pair in
      let answer = octets("04 0E 04 01 03 0C 00")
      try await loop.run {
        socket.start(recorder)
        socket.resynchronise()
      }
      for packet in [acl(1), octets("04 0E 04 01 09 10 00"), answer, acl(2)] { #expect(pair.send(packet)) }
      try await recorder.wait { $0.packets == [answer, acl(2)] }
    }
  }

  @Test func answersFromInsideReceivedKeepTheirOrder() async throws {
    try await withSocket { loop, socket, recorder, pair in
      try await loop.run {
        recorder.onPacket = { _, packet in socket.send(packet) }
        socket.start(recorder)
      }
      for number in 0..<2000 {
        #expect(pair.send(acl(number)))
        #expect(pair.receive() == acl(number))
      }
    }
  }

  // MARK: Ends

  @Test func theOtherSideCloses() async throws {
    try await withSocket { loop, socket, recorder, pair in
      try await loop.run { socket.start(recorder) }
      #expect(pair.send(acl(1)))
      pair.hangUp()
      try await recorder.wait { $0.errors == [.closed] }
      try await loop.run {
        #expect(recorder.packets == [acl(1)] && !socket.isWritable)
        socket.send(acl(2))
        socket.flush()
      }
    }
  }

  @Test func anEndBeforeTheStartIsReportedAfterThePacketsBeforeIt() async throws {
    try await withSocket { loop, socket, recorder, pair in
      for number in 0..<5 { #expect(pair.send(acl(number))) }
      pair.hangUp()
      try await socket.closeFuture.get()
      try await loop.run { socket.start(recorder) }
      try await recorder.wait { $0.errors == [.closed] }
      try await loop.run { #expect(recorder.packets == (0..<5).map { acl($0) } && recorder.batches == 1) }
    }
  }

  /// EPIPE, the kernel's error for an unplugged adapter; here for a `send` inside `received`.
  @Test func aLostAdapterIsReportedOnceAndNeverInsideACall() async throws {
    try await withSocket { loop, socket, recorder, pair in
      try await loop.run {
        recorder.onPacket = { recorder, _ in
          socket.send(acl(1))
          socket.send(acl(2))
          #expect(recorder.errors.isEmpty)
        }
        socket.start(recorder)
      }
      pair.hangUp(Int(SHUT_RD))
      #expect(pair.send(acl(7)))
      try await recorder.wait { !$0.errors.isEmpty }
      try await loop.run {
        #expect(recorder.packets == [acl(7)] && recorder.errors == [.unplugged(.adapter(3))])
        #expect(recorder.errors.first?.description.hasPrefix("hci3 is unplugged: ") == true)
      }
    }
  }

  @Test func closeIsImmediateAndNothingFollows() async throws {
    try await withSocket { loop, socket, recorder, pair in
      let descriptors = pair.hostDescriptors()
      #expect(descriptors.count == 2 && !descriptors.contains { $0.isInherited })
      for number in 0..<5 { #expect(pair.send(acl(number))) }
      try await loop.run {
        recorder.onPacket = { recorder, _ in if recorder.packets.count == 2 { socket.close() } }
        socket.start(recorder)
      }
      try await recorder.wait { $0.packets.count == 2 }
      try await loop.run {
        #expect(pair.hostDescriptors().isEmpty)
        socket.send(acl(9))
        socket.close()
        #expect(recorder.packets.count == 2 && recorder.errors.isEmpty)
      }
      #expect(pair.receive() == nil)
    }
  }

  /// With a packet in the channel and others after it.
  @Test func closeInTheMiddleOfABurst() async throws {
    try await withSocket { loop, socket, recorder, pair in
      try await loop.run {
        socket.start(recorder)
        for number in 0..<900 { socket.send(acl(number, count: 1000)) }
        #expect(!socket.isWritable)
        socket.close()
      }
      var number = 0
      while let packet = pair.receive() {
        #expect(packet == acl(number, count: 1000))
        number += 1
      }
      #expect(number > 0 && number < 900)
      try await loop.run { #expect(recorder.errors.isEmpty && recorder.writables == 0) }
    }
  }

  @Test func theTraceHasEveryPacketAndTheTrueDirections() async throws {
    try await withSocket { loop, socket, recorder, pair in
      let path = "/tmp/bindrune-\(UInt64.random(in: 0 ... .max)).btsnoop"
      defer { try? FileManager.default.removeItem(atPath: path) }
      let traced = TracingTransport(socket, writer: try BTSnoopWriter(path: path))
      try await loop.run {
        traced.start(recorder)
        traced.send(octets("01 03 0C 00"))
        traced.flush()
      }
      #expect(pair.receive() == octets("01 03 0C 00"))
      #expect(pair.send(octets("04 0E 04 01 03 0C 00")))
      try await recorder.wait { $0.packets.count == 1 && $0.batches == 1 }
      try await loop.run { traced.close() }
      try await traced.closeFuture.get()
      let file = [UInt8](try Data(contentsOf: URL(filePath: path)))
      // Flags: bit 0 to the host, bit 1 command or event.
      let command = Array(file[16..<44]), event = Array(file[44...])
      #expect(command[8..<12] == [0, 0, 0, 2] && Array(command[24...]) == octets("01 03 0C 00"))
      #expect(event[8..<12] == [0, 0, 0, 3] && Array(event[24...]) == octets("04 0E 04 01 03 0C 00"))
      func time(_ record: [UInt8]) -> UInt64 { record[16..<24].reduce(0) { $0 << 8 | UInt64($1) } }
      let now = UInt64(Date().timeIntervalSince1970 * 1_000_000) + BTSnoop.microsecondsTo1970
      #expect(time(command) <= time(event) && time(event) <= now && now - time(command) < 60_000_000)
    }
  }
}
