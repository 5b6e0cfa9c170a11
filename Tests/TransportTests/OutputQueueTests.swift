import BindruneTransport
import Foundation
import Glibc
import TestSupport
import Testing

@Suite(.realTime, .hang) struct OutputQueueTests {
  private func pipe() -> (read: CInt, write: CInt) {
    var ends: [CInt] = [-1, -1]
    let status = unsafe Glibc.pipe(&ends)
    #expect(status == 0)
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    return (ends[0], ends[1])
  }
  /// What blocks a thread, on one of its own.
  private func blocking<Result: Sendable>(_ body: @escaping @Sendable () -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      Thread.detachNewThread { continuation.resume(returning: body()) }
    }
  }
  /// All octets up to the end, `piece` at a time.
  private func read(_ descriptor: CInt, piece: Int = 65_536) async -> [UInt8] {
    await blocking {
      defer { close(descriptor) }
      var all: [UInt8] = [], part = [UInt8](repeating: 0, count: piece)
      while true {
        let count = unsafe part.withUnsafeMutableBytes { unsafe Glibc.read(descriptor, $0.baseAddress, $0.count) }
        if count <= 0 { return all }
        all += part[..<count]
      }
    }
  }

  /// The writer never waits; what is read afterwards are whole lines, and where some are missing a line that says how many.
  @Test func nobodyReads() async {
    let (read, write) = pipe()
    // Full, so that nothing goes on before somebody reads.
    _ = fcntl(write, F_SETFL, O_NONBLOCK)
    let filling = [UInt8](repeating: UInt8(ascii: "\n"), count: 4096)
    while unsafe filling.withUnsafeBytes({ unsafe Glibc.write(write, $0.baseAddress, $0.count) }) > 0 {}
    _ = fcntl(write, F_SETFL, 0)
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

  /// A reader that reads on gets everything, whether the descriptor blocks or not.
  @Test(arguments: [0, O_NONBLOCK]) func slowReader(flags: CInt) async {
    let (read, write) = pipe()
    #expect(fcntl(write, F_SETFL, flags) == 0)
    let text = (0..<40_000).map { "line \($0)\n" }.joined()
    let queue = OutputQueue(to: write, limit: 1 << 20, closesDescriptor: true)
    #expect(queue.put(text.utf8))
    async let octets = self.read(read, piece: 1001)
    let isWritten = await blocking { queue.finish(within: .seconds(60)) }
    #expect(isWritten)
    let arrived = await octets
    #expect(arrived == Array(text.utf8))
  }

  /// More than the limit at once is taken when nothing waits, and only then.
  @Test func longerThanTheLimit() async {
    let (read, write) = pipe()
    let queue = OutputQueue(to: write, limit: 100, closesDescriptor: true)
    let long = [UInt8](repeating: 0x78, count: 200_000)
    #expect(queue.put(long) && !queue.put([0x79]))
    async let octets = self.read(read)
    let isWritten = await blocking { queue.finish(within: .seconds(60)) }
    #expect(isWritten)
    let arrived = await octets
    #expect(arrived == long)
  }

  /// The end is bounded, and takes the thread with it: the reader sees the end of the pipe.
  @Test func endWithoutReader() async {
    let (read, write) = pipe()
    let queue = OutputQueue(to: write, limit: 1 << 20, closesDescriptor: true)
    queue.put([UInt8](repeating: 0x78, count: 200_000))
    let isWritten = await blocking { queue.finish(within: .milliseconds(100)) }
    #expect(!isWritten)
    let octets = await self.read(read)
    #expect(octets.count < 200_000)
    let hasEnded = await blocking { queue.drain(within: .seconds(60)) }
    #expect(hasEnded)
  }

  /// The system's refusals end the queue: no signal, no trap, no loop.
  @Test(arguments: ["closed pipe", "full device", "closed descriptor", "read-only descriptor"])
  func refusals(kind: String) async {
    let descriptor: CInt, expected: CInt
    switch kind {
    case "closed pipe":
      let (read, write) = pipe()
      close(read)
      (descriptor, expected) = (write, EPIPE)
    case "full device": (descriptor, expected) = (unsafe open("/dev/full", O_WRONLY | O_CLOEXEC), ENOSPC)
    case "closed descriptor": (descriptor, expected) = (1 << 20, EBADF)  // above any limit of a test's process
    default: (descriptor, expected) = (unsafe open("/dev/null", O_RDONLY | O_CLOEXEC), EBADF)
    }
    let (codes, continuation) = AsyncStream.makeStream(of: CInt.self)
    let queue = OutputQueue(
      to: descriptor, limit: 1 << 20, closesDescriptor: true,
      failed: {
        continuation.yield($0)
        continuation.finish()
      })
    #expect(queue.put("a line\n".utf8))
    var heard: [CInt] = []
    for await code in codes { heard.append(code) }
    #expect(heard == [expected])
    #expect(queue.failure == expected && !queue.put("another\n".utf8))
    let isWritten = await blocking { queue.finish(within: .seconds(60)) }
    #expect(!isWritten)
  }

  /// A disk that is full and then is not: the lines come back, in order, with the count of those that had no room.
  @Test func aDeviceThatHasRoomAgain() async throws {
    let descriptor = unsafe open("/dev/full", O_WRONLY | O_CLOEXEC)
    let path = FileManager.default.temporaryDirectory.appending(path: "bindrune-\(UUID().uuidString)").path
    defer { try? FileManager.default.removeItem(atPath: path) }
    let queue = OutputQueue(to: descriptor, limit: 1000, closesDescriptor: true, waitsForRoom: true) {
      "dropped \($0)\n"
    }
    var kept: [String] = [], dropped = 0
    for number in 0..<500 {
      if queue.put("line \(number)\n".utf8) { kept.append("line \(number)") } else { dropped += 1 }
      // A drain waits for a reader, and not for a device: it returns after the first try.
      if number == 0 {
        let isDrained = await blocking { queue.drain(within: .seconds(600)) }
        #expect(!isDrained)
      }
    }
    #expect(dropped > 300 && queue.failure == nil)
    // From here on the same descriptor leads to a file, which is what a full device's writer sees when there is room again.
    let file = unsafe open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    #expect(file >= 0 && dup2(file, descriptor) == descriptor)
    close(file)
    while !queue.isDrained { try await Task.sleep(for: .milliseconds(20)) }
    #expect(queue.put("the last\n".utf8))
    let isWritten = await blocking { queue.finish(within: .seconds(600)) }
    let lines = String(decoding: try Data(contentsOf: URL(filePath: path)), as: UTF8.self).split(separator: "\n")
    #expect(isWritten && lines.map(String.init) == kept + ["dropped \(dropped)", "the last"])
  }

  /// The end is bounded there too.
  @Test func aDeviceThatStaysFull() async throws {
    let descriptor = unsafe open("/dev/full", O_WRONLY | O_CLOEXEC)
    let queue = OutputQueue(to: descriptor, limit: 1000, closesDescriptor: true, waitsForRoom: true)
    queue.put("a line\n".utf8)
    let isWritten = await blocking { queue.finish(within: .milliseconds(100)) }
    #expect(!isWritten)
    while !queue.isDrained { try await Task.sleep(for: .milliseconds(20)) }
    #expect(queue.failure == nil && !queue.put("another\n".utf8))
  }

  @Test func nothingWasPut() async {
    let (read, write) = pipe()
    #expect(OutputQueue(to: write, limit: 100, closesDescriptor: true).finish(within: .zero))
    let arrived = await self.read(read)
    #expect(arrived.isEmpty)
  }
}
