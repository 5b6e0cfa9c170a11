import BindruneTransport
import BindruneWire
import Foundation
import NIOCore
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

  @Test func aFileThatCannotBeWrittenSaysWhy() throws {
    let path = "/no/such/folder/a.btsnoop"
    #expect(throws: TransportError.trace(path: path, "No such file or directory")) { _ = try BTSnoopWriter(path: path) }
    // A full disk: the first octets do not fit either.
    #expect(throws: TransportError.trace(path: "/dev/full", "No space left on device")) {
      _ = try BTSnoopWriter(path: "/dev/full")
    }
  }

  /// Both directions of a pair, the file up to date while the transport is open.
  private func trace(into path: String, _ whileOpen: () throws -> Void) async throws {
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
      try whileOpen()
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
