import BindruneTransport
import BindruneWire
import Foundation
import NIOCore
import Synchronization
import TestSupport
import Testing

@Suite(.realTime, .hang) struct BTSnoopTests {
  private func withFile(_ body: (String) async throws -> Void) async throws {
    let path = NSTemporaryDirectory() + "bindrune-\(UInt64.random(in: 0 ... .max)).btsnoop"
    defer { try? FileManager.default.removeItem(atPath: path) }
    try await body(path)
  }

  /// The format as documented: header, then two records made at the first moment of the year 2000.
  @Test func theFileIsExactToTheOctet() async throws {
    let expected = octets(
      """
      62 74 73 6E 6F 6F 70 00  00 00 00 01  00 00 03 EA
      00 00 00 04  00 00 00 04  00 00 00 02  00 00 00 00  00 E0 3A B4 4A 67 60 00  01 03 0C 00
      00 00 00 07  00 00 00 07  00 00 00 03  00 00 00 00  00 E0 3A B4 4A 67 60 01  04 0E 04 01 03 0C 00
      00 00 00 05  00 00 00 05  00 00 00 00  00 00 00 00  00 E0 3A B4 4A 67 60 02  02 40 20 00 00
      00 00 00 05  00 00 00 05  00 00 00 01  00 00 00 00  00 E0 3A B4 4A 67 60 03  02 40 20 00 00
      """)
    try await withFile { path in
      do {
        var writer = try BTSnoopWriter(path: path)
        let time: UInt64 = 946_684_800_000_000
        writer.record(octets("01 03 0C 00").span, .fromHost, time: time)
        writer.record(octets("04 0E 04 01 03 0C 00").span, .fromController, time: time + 1)
        writer.flush()
        writer.record(octets("02 40 20 00 00").span, .fromHost, time: time + 2)
        writer.record(octets("02 40 20 00 00").span, .fromController, time: time + 3)
      }
      #expect([UInt8](try Data(contentsOf: URL(filePath: path))) == expected)
    }
  }

  /// With calls: datalink 2001, the adapter and BlueZ's opcode in the flags, packets without their type octet. The call
  /// is in the file together with its packet.
  @Test func calls() async throws {
    let expected = octets(
      """
      62 74 73 6E 6F 6F 70 00  00 00 00 01  00 00 07 D1
      00 00 00 16  00 00 00 16  00 00 00 0D  00 00 00 00  00 E0 3A B4 4A 67 60 00
      06 09 62 69 6E 64 72 75 6E 65 00 73 74 61 72 74 28 29 20 23 31 00
      00 00 00 03  00 00 00 03  00 00 00 02  00 00 00 00  00 E0 3A B4 4A 67 60 00  03 0C 00
      00 00 00 06  00 00 00 06  00 00 00 03  00 00 00 00  00 E0 3A B4 4A 67 60 01  0E 04 01 03 0C 00
      00 00 00 04  00 00 00 04  00 00 00 04  00 00 00 00  00 E0 3A B4 4A 67 60 02  40 20 00 00
      00 00 00 04  00 00 00 04  00 00 00 05  00 00 00 00  00 E0 3A B4 4A 67 60 03  40 20 00 00
      """)
    try await withFile { path in
      func file() throws -> [UInt8] { [UInt8](try Data(contentsOf: URL(filePath: path))) }
      var writer = try BTSnoopWriter(path: path, recordsCalls: true)
      let time: UInt64 = 946_684_800_000_000
      writer.record(call: "start() #1", time: time)
      #expect(try file().count == 16)
      writer.record(octets("01 03 0C 00").span, .fromHost, time: time)
      #expect(try file() == Array(expected.prefix(16 + 24 + 22 + 24 + 3)))
      writer.record(octets("04 0E 04 01 03 0C 00").span, .fromController, time: time + 1)
      writer.record(octets("02 40 20 00 00").span, .fromHost, time: time + 2)
      writer.record(octets("02 40 20 00 00").span, .fromController, time: time + 3)
      #expect(try file() == expected)
    }
  }

  /// btmon shows the call before its packet, and so does Wireshark from 4.2 on; an earlier one has the octets.
  @Test(arguments: ["btmon", "tshark"]) func otherProgramsShowCalls(_ program: String) async throws {
    guard
      let path = ["/usr/bin/", "/usr/local/bin/"].map({ $0 + program }).first(
        where: FileManager.default.isExecutableFile)
    else { return print("skipped: no \(program) here") }
    try await withFile { file in
      var writer = try BTSnoopWriter(path: file, recordsCalls: true)
      writer.record(call: "connect(_:options:) #12")
      writer.record(octets("01 03 0C 00").span, .fromHost)
      _ = consume writer
      let process = Process(), output = Pipe()
      process.executableURL = URL(filePath: path)
      process.arguments = program == "btmon" ? ["-r", file] : ["-n", "-P", "-x", "-r", file]
      process.standardOutput = output
      process.standardError = FileHandle.nullDevice
      try process.run()
      let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
      process.waitUntilExit()
      #expect(process.terminationStatus == 0)
      let lines = text.split(separator: "\n")
      if program == "btmon" {
        let call = try #require(lines.firstIndex { $0.hasPrefix("= bindrune: connect(_:options:) #12") }, "\(text)")
        #expect(lines[call + 1].hasPrefix("< HCI Command: Reset (0x03|0x0003)"))
      } else {
        #expect(lines.first?.contains("User Logging") == true && text.contains("HCI_CMD"), "\(text)")
        // The third column of `-x`.
        let characters = lines.prefix { !$0.contains("HCI_CMD") }.map { $0.dropFirst(56) }.joined()
        #expect(characters.contains("bindrune.connect(_:options:) #12"), "\(text)")
      }
    }
  }

  @Test func aFileThatCannotBeWrittenSaysWhy() throws {
    let path = "/no/such/folder/a.btsnoop"
    #expect(throws: TransportError.trace(path: path, "No such file or directory")) { _ = try BTSnoopWriter(path: path) }
    // A full disk: the first octets do not fit either.
    #expect(throws: TransportError.trace(path: "/dev/full", "No space left on device")) {
      _ = try BTSnoopWriter(path: "/dev/full")
    }
  }

  /// A trace has all that was read and written: only its owner may read it.
  @Test func onlyTheOwnerMayReadIt() async throws {
    try await withFile { path in
      _ = try BTSnoopWriter(path: path)
      let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
      #expect(mode == 0o600)
    }
  }

  /// A pipe without a reader, a folder, a block device: each is refused with a message, without blocking.
  @Test func otherKindsOfFilesAreRefused() async throws {
    try await withFile { path in
      #expect(unsafe mkfifo(path, 0o600) == 0)
      #expect(throws: TransportError.trace(path: path, "this pipe has no reader yet: start its reader first")) {
        _ = try BTSnoopWriter(path: path)
      }
    }
    let folder = NSTemporaryDirectory()
    #expect(throws: TransportError.trace(path: folder, "Is a directory")) { _ = try BTSnoopWriter(path: folder) }
  }

  /// Nothing waits for a reader that pauses, and the records have the number of packets missing before them.
  /// "Cumulative drops", RFC 1761, §3, whose format btsnoop is.
  @Test func drops() async throws {
    try await withFile { path in
      #expect(unsafe mkfifo(path, 0o600) == 0)
      let reader = unsafe open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
      _ = fcntl(reader, F_SETFL, 0)
      var writer = try BTSnoopWriter(path: path), number = 0
      func record(into writer: inout BTSnoopWriter) {
        let octets = [0x02] + (0..<4).map { UInt8(truncatingIfNeeded: number >> (8 * $0)) }
        writer.record((octets + [UInt8](repeating: 0, count: 995)).span, .fromHost, time: 0)
        number += 1
      }
      for _ in 0..<10_000 { record(into: &writer) }
      writer.flush()
      #expect(writer.failure?.description.contains("packets are missing: it could not be written fast enough") == true)
      // The reader continues, until it has the records after the gap: more than the 4 MiB that waited, and a pipe's.
      let (parts, continuation) = AsyncStream.makeStream(of: [UInt8].self), arrived = Atomic(0)
      Thread.detachNewThread {
        while true {
          var part = [UInt8](repeating: 0, count: 65_536)
          let count = unsafe part.withUnsafeMutableBytes { unsafe read(reader, $0.baseAddress, $0.count) }
          if count <= 0 { break }
          arrived.add(count, ordering: .relaxed)
          continuation.yield(Array(part[..<count]))
        }
        close(reader)
        continuation.finish()
      }
      while arrived.load(ordering: .relaxed) < 4_600_000 {
        record(into: &writer)
        writer.flush()
        try await Task.sleep(for: .milliseconds(1))
      }
      _ = consume writer
      var file: [UInt8] = []
      for await part in parts { file += part }
      var place = 16, position = 0, dropped = 0
      func word(_ place: Int) -> Int { file[place..<place + 4].reduce(0) { $0 << 8 | Int($1) } }
      while place < file.count {
        try #require(word(place) == 1000 && file.count >= place + 1024)
        dropped = word(place + 12)
        let found = (0..<4).reduce(0) { $0 | Int(file[place + 25 + $1]) << (8 * $1) }
        #expect(found == position + dropped)
        position += 1
        place += 1024
      }
      #expect(dropped > 0 && position + dropped == number)
    }
  }

  /// The last reference may go on an event loop: a pipe that nobody reads does not hold it.
  @Test(.hang) func aWriterIsReleasedWithoutWaiting() async throws {
    try await withFile { path in
      #expect(unsafe mkfifo(path, 0o600) == 0)
      let reader = unsafe open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
      defer { close(reader) }
      func full() throws -> BTSnoopWriter {
        var writer = try BTSnoopWriter(path: path)
        let packet = [0x02] + [UInt8](repeating: 0, count: 999)
        for _ in 0..<200 { writer.record(packet.span, .fromHost, time: 0) }
        writer.flush()
        return writer
      }
      let writer = try full()
      _ = consume writer
      // The rest waits for the reader meanwhile. Before, it was dropped after two seconds.
      var octets = 0, part = [UInt8](repeating: 0, count: 65_536)
      while octets < 16 + 200 * 1024 {
        let count = unsafe read(reader, &part, part.count)
        if count == 0 { break }
        if count > 0 { octets += count } else { try await Task.sleep(for: .milliseconds(1)) }
      }
      #expect(octets == 16 + 200 * 1024)
      // Who needs to know waits, but no thread of a task or a loop does.
      let empty = try BTSnoopWriter(path: path)
      #expect(await empty.close() == nil)
      let other = try full()
      let failure = await other.close()
      #expect(failure?.description.contains("its reader has not taken the last packets") == true)
    }
  }
  /// Both directions of a pair, the file up to date while the transport is open.
  private func trace(into path: String, _ whileOpen: () async throws -> Void) async throws {
    try await withLoop { loop in
      let (host, controller) = MemoryTransport.pair(on: loop)
      let traced = TracingTransport(host, writer: try BTSnoopWriter(path: path))
      let (atHost, atController) = (Recorder(loop), Recorder(loop))
      try await loop.run {
        traced.start(atHost)
        controller.start(atController)
        atController.onPacket = { _, _ in controller.send(octets("04 0E 04 01 03 0C 00")) }
        traced.send(octets("01 03 0C 00"))
        traced.flush()
      }
      try await atHost.wait { $0.packets.count == 1 && $0.batches == 1 }
      try await loop.run {}
      try await whileOpen()
      try await loop.run { controller.close() }
      try await atHost.wait { $0.errors == [.closed] }
      try await loop.run {
        #expect(traced.traceFailure == nil)
        traced.close()
      }
    }
  }

  @Test func aTracedTransportRecordsBothWays() async throws {
    try await withFile { path in
      try await trace(into: path) {
        // Without a flush or an end: a crash now would lose nothing.
        let file = [UInt8](try Data(contentsOf: URL(filePath: path)))
        #expect(file.count == 16 + 24 + 4 + 24 + 7)
        #expect(Array(file[40..<44]) == octets("01 03 0C 00"))
        #expect(file.suffix(7) == octets("04 0E 04 01 03 0C 00"))
        let year2024: UInt64 = 0x00E0_3AB4_4A67_6000 + 757_382_400_000_000
        #expect(file[32..<40].reduce(UInt64(0)) { $0 << 8 | UInt64($1) } > year2024)
      }
    }
  }

  @Test func tsharkOpensIt() async throws {
    guard let tshark = ["/usr/bin/tshark", "/usr/local/bin/tshark"].first(where: FileManager.default.isExecutableFile)
    else { return print("skipped: no tshark here") }
    try await withFile { path in
      try await trace(into: path) {}
      let process = Process()
      process.executableURL = URL(filePath: tshark)
      process.arguments = ["-n", "-r", path, "-T", "fields", "-e", "bthci_cmd.opcode", "-e", "bthci_evt.opcode"]
      let output = Pipe()
      process.standardOutput = output
      process.standardError = FileHandle.nullDevice
      try process.run()
      let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
      process.waitUntilExit()
      #expect(process.terminationStatus == 0)
      #expect(text == "0x0c03\t\n\t0x0c03\n")
    }
  }
}
