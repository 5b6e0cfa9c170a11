import BindruneSystem
import Foundation
import Glibc
import SystemPackage
import TestSupport
import Testing

@Suite(.realTime, .hang) struct OutputQueueTests {
  private func pipe() throws -> (readEnd: FileDescriptor, writeEnd: FileDescriptor) {
    try FileDescriptor.pipe(options: .closeOnExec)
  }
  private func open(_ path: FilePath, _ mode: FileDescriptor.AccessMode) throws -> FileDescriptor {
    try .open(path, mode, options: .closeOnExec)
  }
  /// Runs blocking work on a thread of its own.
  private func blocking<Result: Sendable>(_ body: @escaping @Sendable () -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread { continuation.resume(returning: body()) }
    }
  }
  /// All octets up to the end, `piece` at a time.
  private func read(_ descriptor: FileDescriptor, piece: Int = 65_536) async -> [UInt8] {
    await blocking {
      defer { try? descriptor.close() }
      var all: [UInt8] = [], part = [UInt8](repeating: 0, count: piece)
      while let count = try? unsafe part.withUnsafeMutableBytes({ try unsafe descriptor.read(into: $0) }), count > 0 {
        all += part[..<count]
      }
      return all
    }
  }

  /// The writer never waits; the reader later gets whole lines, and a line with the count where some are missing.
  @Test func withoutAReader() async throws {
    let (read, write) = try pipe()
    // Full, so that nothing continues before the test reads.
    _ = fcntl(write.rawValue, F_SETFL, O_NONBLOCK)
    let filling = [UInt8](repeating: UInt8(ascii: "\n"), count: 4096)
    #expect(throws: Errno.resourceTemporarilyUnavailable) {
      while true { _ = try unsafe filling.withUnsafeBytes { try unsafe write.write($0) } }
    }
    _ = fcntl(write.rawValue, F_SETFL, 0)
    let queue = OutputQueue(to: write, limit: 10_000, closesDescriptor: true) { "dropped \($0)\n" }
    var refused = 0
    for number in 0..<50_000 where !queue.put("line \(number)\n".utf8) { refused += 1 }
    #expect(refused > 30_000 && !queue.drain(within: .zero))
    async let octets = self.read(read)
    let isDrained = await blocking { queue.drain(within: .seconds(60)) }
    #expect(isDrained && queue.put("the last\n".utf8))
    let isWritten = await blocking { queue.finish(within: .seconds(60)) }
    #expect(isWritten)
    #expect(queue.failure == nil && !queue.put("after the end\n".utf8))
    let lines = String(decoding: await octets, as: UTF8.self).split(separator: "\n")
    #expect(lines.last == "the last")
    var next = 0, missing = 0
    for line in lines.dropLast() {
      if line.hasPrefix("dropped ") {
        missing += Int(line.dropFirst("dropped ".count)) ?? 0
        next += Int(line.dropFirst("dropped ".count)) ?? 0
      } else {
        #expect(line == "line \(next)")
        next += 1
      }
    }
    #expect(next == 50_000 && missing == refused)
  }

  /// A slow reader gets everything, whether the descriptor blocks or not.
  @Test(arguments: [0, O_NONBLOCK]) func slowReader(flags: CInt) async throws {
    let (read, write) = try pipe()
    #expect(fcntl(write.rawValue, F_SETFL, flags) == 0)
    let text = (0..<40_000).map { "line \($0)\n" }.joined()
    let queue = OutputQueue(to: write, limit: 1 << 20, closesDescriptor: true)
    #expect(queue.put(text.utf8))
    async let octets = self.read(read, piece: 1001)
    let isWritten = await blocking { queue.finish(within: .seconds(60)) }
    #expect(isWritten)
    let arrived = await octets
    #expect(arrived == Array(text.utf8))
  }

  /// The queue accepts more than the limit at once only if it is empty.
  @Test func longerThanTheLimit() async throws {
    let (read, write) = try pipe()
    let queue = OutputQueue(to: write, limit: 100, closesDescriptor: true)
    let long = [UInt8](repeating: 0x78, count: 200_000)
    #expect(queue.put(long) && !queue.put([0x79]))
    async let octets = self.read(read)
    let isWritten = await blocking { queue.finish(within: .seconds(60)) }
    #expect(isWritten)
    let arrived = await octets
    #expect(arrived == long)
  }

  /// The end takes bounded time and stops the thread: the reader sees the end of the pipe.
  @Test func endWithoutReader() async throws {
    let (read, write) = try pipe()
    let queue = OutputQueue(to: write, limit: 1 << 20, closesDescriptor: true)
    queue.put([UInt8](repeating: 0x78, count: 200_000))
    let isWritten = await blocking { queue.finish(within: .milliseconds(100)) }
    #expect(!isWritten)
    let octets = await self.read(read)
    #expect(octets.count < 200_000)
    let hasEnded = await blocking { queue.drain(within: .seconds(60)) }
    #expect(hasEnded)
  }

  /// Errors of the system end the queue: no signal, no trap, no loop.
  @Test(arguments: ["closed pipe", "full device", "closed descriptor", "read-only descriptor"])
  func refusals(kind: String) async throws {
    let descriptor: FileDescriptor, expected: Errno
    switch kind {
    case "closed pipe":
      let (read, write) = try pipe()
      try read.close()
      (descriptor, expected) = (write, .brokenPipe)
    case "full device": (descriptor, expected) = (try open("/dev/full", .writeOnly), .noSpace)
    case "closed descriptor":  // above any limit of a test's process
      (descriptor, expected) = (FileDescriptor(rawValue: 1 << 20), .badFileDescriptor)
    default: (descriptor, expected) = (try open("/dev/null", .readOnly), .badFileDescriptor)
    }
    let (codes, continuation) = AsyncStream.makeStream(of: Errno.self)
    let queue = OutputQueue(
      to: descriptor, limit: 1 << 20, closesDescriptor: true,
      failed: {
        continuation.yield($0)
        continuation.finish()
      })
    #expect(queue.put("a line\n".utf8))
    var heard: [Errno] = []
    for await code in codes { heard.append(code) }
    #expect(heard == [expected])
    // The queue tells its error before its end.
    let isWritten = await blocking { queue.finish(within: .seconds(60)) }
    #expect(!isWritten && queue.failure == expected && !queue.put("another\n".utf8))
  }

  /// After a full disk has room again, lines are written again, in order, with the count of those dropped.
  @Test func aDeviceThatHasRoomAgain() async throws {
    let descriptor = try open("/dev/full", .writeOnly)
    let path = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    let queue = OutputQueue(to: descriptor, limit: 1000, closesDescriptor: true, waitsForRoom: true) {
      "dropped \($0)\n"
    }
    var kept: [String] = [], dropped = 0
    for number in 0..<500 {
      if queue.put("line \(number)\n".utf8) { kept.append("line \(number)") } else { dropped += 1 }
      // A drain waits for a reader, but not for a device: it returns after the first attempt.
      if number == 0 {
        let isDrained = await blocking { queue.drain(within: .seconds(600)) }
        #expect(!isDrained)
      }
    }
    #expect(dropped > 300 && queue.failure == nil)
    // From here on the same descriptor refers to a file, as if the full device had room again.
    let file = try FileDescriptor.open(
      FilePath(path), .writeOnly, options: [.create, .exclusiveCreate, .closeOnExec], permissions: .ownerReadWrite)
    #expect(try file.duplicate(as: descriptor) == descriptor)
    try file.close()
    while !queue.isDrained { try await Task.sleep(for: .milliseconds(20)) }
    #expect(queue.put("the last\n".utf8))
    let isWritten = await blocking { queue.finish(within: .seconds(600)) }
    let lines = String(decoding: try Data(contentsOf: URL(filePath: path)), as: UTF8.self).split(separator: "\n")
    #expect(isWritten && lines.map(String.init) == kept + ["dropped \(dropped)", "the last"])
  }

  /// The end is bounded there too.
  @Test func aDeviceThatStaysFull() async throws {
    let descriptor = try open("/dev/full", .writeOnly)
    let queue = OutputQueue(to: descriptor, limit: 1000, closesDescriptor: true, waitsForRoom: true)
    queue.put("a line\n".utf8)
    let isWritten = await blocking { queue.finish(within: .milliseconds(100)) }
    #expect(!isWritten)
    while !queue.isDrained { try await Task.sleep(for: .milliseconds(20)) }
    #expect(queue.failure == nil && !queue.put("another\n".utf8))
  }

  @Test func nothingWasPut() async throws {
    let (read, write) = try pipe()
    #expect(OutputQueue(to: write, limit: 100, closesDescriptor: true).finish(within: .zero))
    let arrived = await self.read(read)
    #expect(arrived.isEmpty)
  }
}
