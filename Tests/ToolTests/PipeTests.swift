import Bindrune
import Foundation
import TestSupport
import Testing

/// `pipe`, between two programs, and with hosts of the library that know no end of an input.
@Suite("Tool: pipe", .realTime, .hang) struct PipeTests {
  /// A length that no SDU divides.
  private static let image = (0..<70_001).map { UInt8(truncatingIfNeeded: $0 &* $0 >> 3) }

  private func withRadio(_ body: (_ spec: String, _ folder: URL) async throws -> Void) async throws {
    let (radio, spec) = try await controllers()
    try await withFolder { folder in
      try Data(Self.image).write(to: folder.appending(path: "image"))
      try await body(spec, folder)
    }
    radio.signal(SIGTERM)
    _ = await radio.end()
  }

  /// Each side's input arrives whole at the other's output, also if both have one.
  @Test(arguments: ["< /dev/null", "< image", "--close < image"]) func twoPrograms(_ other: String) async throws {
    try await withRadio { spec, folder in
      let listener = try Tool.shell(
        "cd '\(folder.path)' && bindrune pipe --hci \(spec) --listen 0x80 --name Store \(other) > copy")
      _ = try await listener.errorLine("listening on PSM 0x0080 as Store, ")
      let sender = try await Tool.shell(
        "cd '\(folder.path)' && bindrune pipe --hci \(spec) --name Store --psm 128 --trace trace < image > back"
      ).end()
      let end = await listener.end()
      #expect(sender.status == 0 && sender.errors.isEmpty, "\(sender.errors)")
      #expect(end.status == 0, "\(end.errors)")
      // With --close the listener ends the channel as soon as its own input has been sent.
      if !other.contains("--close") { #expect(try contents(folder, "copy") == Self.image) }
      let back = other.contains("image") ? Self.image : []
      #expect(try contents(folder, "back") == back)
      try await isCounted(folder.appending(path: "trace").path, back.count)
    }
  }
  /// `trace stats` has the channel, with every octet.
  private func isCounted(_ trace: String, _ back: Int) async throws {
    let objects = try await Tool("trace", "stats", "--json", trace).end().objects()
    let channels = objects.compactMap { $0["channels"] as? [[String: any Sendable]] }.flatMap { $0 }
    let channel = try #require(channels.first)
    let sent = channel["sent"] as? [String: any Sendable], received = channel["received"] as? [String: any Sendable]
    #expect(channels.count == 1 && channel["psm"] as? Int == 0x80 && channel["openedBy"] as? String == "host")
    #expect(sent?["octets"] as? Int == Self.image.count && received?["octets"] as? Int == back)
    #expect(try #require(sent?["creditPackets"] as? Int) > 0)
    let text = try await Tool("trace", "stats", trace).end()
    let head = "  channel      PSM 0x0080, 0x0040 to the peer's 0x0040, opened by the host, "
    #expect(text.lines.contains { $0.hasPrefix(head) })
    #expect(text.output.contains("sent ") && text.output.contains(", 70,001 octets, mean "))
    // So does `watch`, whose seconds add nothing up.
    let seconds = try await Tool("watch", "--trace", trace, "--speed", "max", "--json").end().objects()
    let last = (seconds.last?["channels"] as? [[String: any Sendable]])?.first
    #expect((last?["sent"] as? [String: any Sendable])?["octets"] as? Int == Self.image.count)
    #expect(
      (last?["received"] as? [String: any Sendable])?["octets"] as? Int == back && last?["closed"] as? Bool == true)
  }
  private func contents(_ folder: URL, _ name: String) throws -> [UInt8] {
    [UInt8](try Data(contentsOf: folder.appending(path: name)))
  }

  /// A host of the library that takes one channel, and what it does with it.
  private func serve(
    _ spec: String, _ body: @escaping @Sendable (LinkChannel) async throws -> Void
  ) async throws -> Task<Void, any Error> {
    let host = try await BluetoothHost.open(spec), listener = try await host.listen(psm: SPSM(rawValue: 0x80))
    try await host.advertise(AdvertisingData(localName: "Peer"))
    return Task {
      for try await channel in listener {
        try await body(channel)
        // The tool ends the link.
        _ = await channel.link.closed
        break
      }
      await host.close()
    }
  }
  private func pipe(_ spec: String, _ folder: URL, _ rest: String) async throws -> Tool.End {
    try await Tool.shell("cd '\(folder.path)' && bindrune pipe --hci \(spec) --name Peer --psm 0x80 \(rest)").end()
  }

  /// The end of the input is an SDU without octets; what comes after it is still taken.
  @Test func anAnswerAfterTheEnd() async throws {
    try await withRadio { spec, folder in
      let peer = try await serve(spec) { channel in
        var received: [UInt8] = []
        for try await sdu in channel.received {
          if sdu.isEmpty { break }
          received += sdu
        }
        try await channel.send(Array("\(received.count)\n".utf8))
        await channel.close()
      }
      let end = try await pipe(spec, folder, "< image")
      #expect(end.status == 0 && end.output == "70001\n", "\(end.errors)")
      try await peer.value
    }
  }
  /// `--close` for a device that only knows the channel's end.
  @Test func closing() async throws {
    try await withRadio { spec, folder in
      let peer = try await serve(spec) { channel in
        var received: [UInt8] = []
        for try await sdu in channel.received { received += sdu }
        #expect(received == Self.image)
      }
      let end = try await pipe(spec, folder, "--close < image")
      #expect(end.status == 0 && end.errors.isEmpty, "\(end.errors)")
      try await peer.value
    }
  }
  /// The peer wants no more: the rest of the input is lost, and the status says so.
  @Test func closedTooEarly() async throws {
    try await withRadio { spec, folder in
      let peer = try await serve(spec) { channel in
        for try await _ in channel.received { break }
        await channel.close(dropping: true)
      }
      expectSentence(
        try await pipe(spec, folder, "< image"), "The device closed the channel before all of the input was sent")
      try await peer.value
    }
  }
  @Test func whatFails() async throws {
    try await withRadio { spec, folder in
      let host = try await BluetoothHost.open(spec)
      try await host.advertise(AdvertisingData(localName: "Peer"))
      expectSentence(try await pipe(spec, folder, "< image"), "The device has no service with this PSM", status: 4)
      await host.close()
      expectSentence(try await pipe(spec, folder, "--timeout 0.2 < image"), "was heard in 0.2 s", status: 2)
      let silent = try await Tool.run(["pipe", "--hci", spec, "--listen", "0x80", "--timeout", "0.2"])
      #expect(silent.status == 5 && silent.errors.contains("No device opened a channel in 0.2 s"), "\(silent.errors)")
    }
    for wrong in [
      ["--name", "Peer"], ["--listen", "0x80", "--psm", "0x80"], ["--psm", "0x80"],
      ["--psm", "0x100", "--name", "Peer"],
      ["--psm", "0", "--name", "Peer"], ["--listen", "0x80", "--address", "00:00:5E:00:53:01"],
      ["--psm", "0x80", "--name", "Peer", "--security", "encrypted"],
    ] {
      #expect(try await Tool.run(["pipe", "--hci", "sim"] + wrong).status == 64, "\(wrong)")
    }
  }
}
