import Foundation
import Synchronization
import TestSupport
import Testing

/// SIGINT and SIGTERM of programs that use Core Bluetooth only: Decision 0028.
@Suite(.realTime, .hang) struct EndingSignalTests {
  /// Runs an example in the shell, after `before`, on a controller of the air.
  private func program(
    _ name: String, on spec: String, trace: URL, _ before: String = ""
  ) throws -> Tool {
    let path = Tool.folder.appending(path: name).path
    return try Tool.shell("\(before) BINDRUNE_HCI=\(spec) BINDRUNE_TRACE=\(trace.path) exec \(path) 2>&1")
  }
  /// How often the host has sent HCI_Reset: at its start, and at a graceful end. Vol 4, Part E, §7.3.2.
  private func resets(_ trace: URL) throws -> Int {
    let octets = [UInt8](try Data(contentsOf: trace))
    // btsnoop: 16 octets, then records: a header of 24 octets, whose second number is the length of the data.
    var at = 16, count = 0
    while at + 24 <= octets.count {
      let length = octets[at + 4..<at + 8].reduce(0) { $0 << 8 | Int($1) }
      if octets[(at + 24)...].prefix(length) == [0x01, 0x03, 0x0C, 0x00] { count += 1 }
      at += 24 + length
    }
    return count
  }

  @Test("The controller is left reset, and the process ends by the signal", arguments: [SIGINT, SIGTERM])
  func isClosed(number: Int32) async throws {
    try await withFolder { folder in
      let air = try await controllers(), trace = folder.appending(path: "trace.btsnoop")
      let scanner = try program("HeartRateCentral", on: air.spec, trace: trace)
      _ = try await scanner.line("looking for")
      scanner.signal(number)
      #expect(await scanner.end().status == 128 + number)
      #expect(try resets(trace) == 2)
      air.tool.signal(SIGTERM)
      _ = await air.tool.end()
    }
  }
  @Test("A program that ignores a signal continues to ignore it")
  func isIgnored() async throws {
    try await withFolder { folder in
      let air = try await controllers(), trace = folder.appending(path: "trace.btsnoop")
      let scanner = try program("HeartRateCentral", on: air.spec, trace: trace, "trap '' INT;")
      _ = try await scanner.line("looking for")
      scanner.signal(SIGINT)
      scanner.signal(SIGTERM)
      #expect(await scanner.end().status == 128 + SIGTERM)
      air.tool.signal(SIGTERM)
      _ = await air.tool.end()
    }
  }
  @Test("A program that handles a signal is left alone")
  func isHandled() async throws {
    try await withFolder { folder in
      let air = try await controllers(), trace = folder.appending(path: "trace.btsnoop")
      let sensor = try program("HeartRatePeripheral", on: air.spec, trace: trace)
      _ = try await sensor.line("advertising")
      sensor.signal(SIGTERM)
      #expect(await sensor.end().status == 0)
      air.tool.signal(SIGTERM)
      _ = await air.tool.end()
    }
  }
  @Test("With the feature switched off, a signal has its default effect, at once")
  func isSwitchedOff() async throws {
    try await withFolder { folder in
      let air = try await controllers(), trace = folder.appending(path: "trace.btsnoop")
      let scanner = try program("HeartRateCentral", on: air.spec, trace: trace, "BINDRUNE_SIGNALS=0")
      _ = try await scanner.line("looking for")
      scanner.signal(SIGINT)
      #expect(await scanner.end().status == 128 + SIGINT)
      #expect(try resets(trace) <= 1)
      air.tool.signal(SIGTERM)
      _ = await air.tool.end()
    }
  }

  /// While a silent controller delays the graceful end, for 1.5 s in a Core Bluetooth program and for 1 s in the tool,
  /// a second signal ends the program directly: the parent sees its number. If the machine is so busy that the second
  /// signal comes after the graceful end, the test tries again.
  @Test("A second signal ends the program at once", arguments: ["HeartRateCentral", "bindrune"])
  func isHurried(name: String) async throws {
    try await withFolder { folder in
      var statuses: [Int32] = []
      while statuses.count < 10, statuses.last != 128 + SIGTERM {
        let (scanning, begun) = AsyncStream.makeStream(of: Void.self), isSilent = Atomic(false),
          running = Mutex<Tool?>(nil)
        let air = try await Air { stream in
          Interceptor(stream) { packet, _ in
            // The graceful end follows now.
            if isSilent.load(ordering: .relaxed) {
              running.withLock { $0?.signal(SIGTERM) }
              return false
            }
            // LE Set Extended Scan Enable with Enable 1, Vol 4, Part E, §7.8.65: the last that is answered.
            if packet.starts(with: [0x01, 0x42, 0x20, 0x06, 0x01]) {
              isSilent.store(true, ordering: .relaxed)
              begun.yield()
            }
            return true
          }
        }
        let scanner =
          name == "bindrune"
          ? try Tool("scan", "--hci", air.spec)
          : try program(name, on: air.spec, trace: folder.appending(path: "trace.btsnoop"))
        running.withLock { $0 = scanner }
        for await _ in scanning { break }
        scanner.signal(SIGINT)
        statuses.append(await scanner.end().status)
        try await air.close()
      }
      #expect(statuses.last == 128 + SIGTERM, "\(statuses)")
    }
  }
}
