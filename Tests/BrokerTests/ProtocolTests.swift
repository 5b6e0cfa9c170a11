import BindruneControl
import BindruneTransport
import BindruneWire
import Foundation
import BindruneGATT
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import SystemPackage
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// The versions of the messages that `Fixtures/Daemon` has recordings of.
private let releasedVersions = 2...3

/// The protocol between apps and the daemon, and how it grows. Decision 0066.
@Suite(.hang) struct ProtocolTests {
  private func read<Message: DeclaredMessage>(_ octets: [UInt8], as _: Message.Type = Message.self) throws -> Message? {
    var buffer = ByteBuffer(bytes: octets)
    guard let frame = try Frame.read(from: &buffer) else { return nil }
    return try Message(frame)
  }

  // MARK: Declarations

  @Test("Every number is used once, and its message begins with it")
  func numbers() throws {
    var numbers = [Frame.numberOfJSON] + [DaemonFrameKind.control, .line, .end].map(\.rawValue)
    func check<Message: DeclaredMessage>(_: Message.Type) throws {
      for number in Message.Number.allCases {
        #expect(try MessageLayout(of: Message.empty(number)).number == number.rawValue)
        numbers.append(number.rawValue)
      }
    }
    try check(AppMessage.self)
    try check(DaemonMessage.self)
    #expect(Set(numbers).count == numbers.count)
    let shown = FrameTests.appMessages.map(\.frame[4]) + FrameTests.daemonMessages.map(\.frame[4])
    #expect(Set(shown).union([1, 5, 6, 7]) == Set(numbers), "a sample of each message")
  }
  @Test("Every message comes back as it went")
  func roundTrips() throws {
    for message in FrameTests.appMessages {
      #expect(try read(message.frame) == message)
    }
    for message in FrameTests.daemonMessages {
      let back = try #require(try read(message.frame, as: DaemonMessage.self))
      #expect("\(back)" == "\(message)" && back.frame == message.frame)
    }
    #expect(DaemonFixtures.full == (try AppRecord(octets: DaemonFixtures.full.octets)))
  }
  @Test("A value that is lent is written as its message is")
  func lentValues() {
    for octets in [[], [1], [UInt8](repeating: 7, count: 512)] {
      var writer = MessageWriter()
      writer.writeValue(0x0102_0304, 0x0506, octets.span)
      #expect(
        Array(writer.buffer.readableBytesView)
          == AppMessage.value(port: 0x0102_0304, 0x0506, ByteBuffer(bytes: octets)).frame)
      writer.clear()
      writer.writeSDU(AppMessage.Number.sdu.rawValue, 0x0102_0304, octets.span)
      writer.writeSDU(DaemonMessage.Number.sdu.rawValue, 0x0102_0304, octets.span)
      let sdu = ByteBuffer(bytes: octets)
      #expect(
        Array(writer.buffer.readableBytesView)
          == AppMessage.sdu(channel: 0x0102_0304, sdu).frame + DaemonMessage.sdu(channel: 0x0102_0304, sdu).frame)
    }
  }
  @Test("Octets that the page shows")
  func byHand() throws {
    let hello = AppMessage.hello(.init(manifest: AppManifest(identifier: "a"), manager: ManagerIdentity(.central)))
    #expect(
      hello.frame == [
        0x31, 0, 0, 0, 8, 2, 0, 3, 0, 11, 0, 0, 0, 1, 0, 0, 0, 0x61, 0, 0, 0, 0, 0, 0,
        1, 22, 0, 0, 0, 17, 0, 0, 0,
      ] + Array("bluetooth-central".utf8) + [0, 0, 0])
    let stop = AppMessage.request(.central(.stopScan))
    #expect(stop.frame == [1, 0, 0, 0, 17])
  }

  // MARK: Growth

  @Test("Fields that a later version appends, to a message and to its records, are ignored")
  func trailingFields() throws {
    for message in FrameTests.appMessages {
      #expect(try read(LaterWriter.frame(message)) == message)
    }
    for message in FrameTests.daemonMessages {
      #expect("\(try read(LaterWriter.frame(message), as: DaemonMessage.self)!)" == "\(message)")
    }
  }
  @Test("Messages with unknown numbers are ignored")
  func unknownNumbers() throws {
    let known = Set(AppMessage.Number.allCases.map(\.rawValue) + DaemonMessage.Number.allCases.map(\.rawValue))
    for number in UInt8.min ... .max where !known.contains(number) {
      let octets: [UInt8] = [4, 0, 0, 0, number, 1, 2, 3]
      #expect(try read(octets, as: AppMessage.self) == nil && read(octets, as: DaemonMessage.self) == nil)
    }
  }
  @Test("Values that a later version may have more of: codes, states, latencies and modes")
  func unknownValues() throws {
    func changed(_ message: some DeclaredMessage, _ old: String, _ new: String) throws -> DaemonMessage? {
      let octets = message.frame, old = Array(old.utf8), new = Array(new.utf8)
      let place = try #require(octets.indices.first { octets[$0...].starts(with: old) })
      return try read(Array(octets[..<place]) + new + octets[(place + old.count)...])
    }
    let failed = DaemonMessage.event(.scanFailed(BluetoothError(.cancelled, "Why.")))
    guard case .event(.scanFailed(let error))? = try changed(failed, "cancelled", "confused!") else {
      Issue.record("no event")
      return
    }
    #expect(error == BluetoothError(.refused, "Why."))
    var octets = DaemonMessage.event(.adapter(.poweredOn)).frame
    octets[5] = 200
    guard case .event(.adapter(.unknown))? = try read(octets, as: DaemonMessage.self) else {
      Issue.record("no state")
      return
    }
    octets = AppMessage.request(.peripheral(.setDesiredLatency(UUID(), .low))).frame
    octets[octets.count - 1] = 9
    guard case .request(.peripheral(.setDesiredLatency(_, .medium)))? = try read(octets, as: AppMessage.self) else {
      Issue.record("no latency")
      return
    }
  }
  @Test(
    "Two programs speak the highest version that both have",
    arguments: [
      (2, 2, 2, 2, 2), (2, 2, 2, 9, 2), (1, 5, 3, 4, 4), (3, 9, 1, 3, 3), (2, 2, 3, 9, nil), (4, 5, 1, 3, nil),
    ] as [(UInt16, UInt16, UInt16, UInt16, UInt16?)])
  func versions(_ a: UInt16, _ b: UInt16, _ c: UInt16, _ d: UInt16, common: UInt16?) {
    let one = MessageVersions(lowest: a, highest: b), other = MessageVersions(lowest: c, highest: d)
    #expect(one.highest(with: other) == common && other.highest(with: one) == common)
  }

  // MARK: Hostile octets

  @Test("Every prefix of every message is an error that names a field, or a message without its last fields")
  func prefixes() {
    func check<Message: DeclaredMessage>(_ messages: [Message]) {
      for message in messages {
        let octets = message.frame
        for count in 1..<max(1, octets.count - 4) {
          let frame = Frame(number: octets[4], octets: ByteBuffer(bytes: octets[5..<4 + count]))
          #expect(throws: FrameError.self, "\(count) of \(octets)") { try Message(frame) }
        }
      }
    }
    check(FrameTests.appMessages)
    check(FrameTests.daemonMessages)
  }
  @Test("Every message with any one octet changed to any other: no trap, and never more than it has brought")
  func mutations() {
    func check<Message: DeclaredMessage>(_ messages: [Message]) -> Int {
      var accepted = 0
      for message in messages {
        var octets = Array(message.frame.dropFirst(5)), known = Set<UInt8>()
        let number = message.frame[4]
        for place in octets.indices {
          let old = octets[place]
          // Contents of a long value are alike.
          if place > 64, !known.insert(old).inserted { continue }
          for new in UInt8.min ... .max where new != old {
            octets[place] = new
            let frame = Frame(number: number, octets: ByteBuffer(bytes: octets))
            guard let read = try? Message(frame) else { continue }
            accepted += 1
            // Each octet that is no UTF-8 becomes three.
            if new & 0x1F == 0 { #expect(read.frame.count <= 3 * (octets.count + 5)) }
          }
          octets[place] = old
        }
      }
      return accepted
    }
    #expect(check(FrameTests.appMessages) > 10_000 && check(FrameTests.daemonMessages) > 10_000)
  }
  @Test("Lists, texts and records that claim more than there is are refused before memory is taken for them")
  func claims() {
    for octets in [
      [UInt8]([16]) + [0xFF, 0xFF, 0xFF, 0xFF], [16, 0xFF, 0xFF, 0xFF, 0x7F] + [UInt8](repeating: 1, count: 64),
      [8, 2, 0, 2, 0, 0xFF, 0xFF, 0xFF, 0xFF, 1], [10, 1, 0, 0, 0, 1, 0, 0xFF, 0xFF, 0xFF, 0xFF],
    ] {
      let frame = Frame(number: octets[0], octets: ByteBuffer(bytes: octets.dropFirst()))
      #expect(throws: FrameError.self) { try AppMessage(frame) }
    }
  }
  @Test("A greeting whose manifest is not valid, or whose numbers are none, is refused")
  func invalid() throws {
    for manifest in [
      AppManifest(identifier: ""), AppManifest(identifier: "../x"), AppManifest(identifier: "a", relaunch: ["lock"]),
      AppManifest(identifier: "a", unit: "x.target"),
      AppManifest(identifier: "a", relaunch: ["/bin/x"], unit: "x.service"),
    ] {
      let octets = AppMessage.hello(.init(manifest: manifest)).frame
      #expect(throws: FrameError.self) { try read(octets, as: AppMessage.self) }
      #expect(throws: FrameError.self) { try AppRecord(octets: AppRecord(user: 1, manifest: manifest).octets) }
    }
    for delay in [Double.nan, .infinity, -.infinity] {
      let octets = AppMessage.request(.central(.connect(UUID(), ConnectOptions(startDelay: delay)))).frame
      #expect(throws: FrameError.self) { try read(octets, as: AppMessage.self) }
    }
  }

  // MARK: Recorded sessions

  @Test("Every message of each released version is read as it was meant", arguments: releasedVersions)
  func recordedMessages(version: Int) throws {
    let name = "messages-\(version).txt"
    if DaemonFixtures.isRecording, version == releasedVersions.upperBound {
      try DaemonFixtures.record(
        FrameTests.appMessages.map { try .init(app: $0) } + FrameTests.daemonMessages.map { try .init(daemon: $0) },
        name,
        "Every message of version \(version), as its first release has written it.")
    }
    let lines = try DaemonFixtures.lines(name)
    #expect(lines.count > 60)
    for line in lines {
      let frame = try line.frame
      let text =
        line.sender == "app"
        ? try AppMessage(frame).map { try DaemonFixtures.Line.text($0) }
        : try DaemonMessage(frame).map { try DaemonFixtures.Line.text($0) }
      #expect(text == line.text)
    }
  }

  /// What the recorded app asks for. Its answers are the same in every run.
  private static func conversation(of version: Int) -> [BrokerRequest] {
    let peer = UUID(PeerID(PeerAddress(DeviceAddress(0xC000_0000_0001), .random)))
    func id(_ number: UInt64) -> OperationID { OperationID(rawValue: number) }
    let ofVersion2: [BrokerRequest] = [
      .peripheral(.addService(id(1), Pulse.description)),
      .peripheral(.startAdvertising(id(2), localName: "Rune", services: ["180D"])), .peripheral(.stopAdvertising),
      .central(.scan(services: ["180D"], solicitedServices: [], allowsDuplicates: false)), .central(.stopScan),
      .central(.readRSSI(id(3), peer)), .central(.read(id(4), peer, 3)),
      .central(.write(id(5), peer, 3, Data([1, 2, 3]))), .peripheral(.setDesiredLatency(peer, .high)),
      .peripheral(.removeAllServices), .central(.discoverServices(id(6), peer, ["180D"])),
    ]
    if version == 2 { return ofVersion2 }
    return ofVersion2 + [
      .peripheral(.publishChannel(id(7), isEncrypted: false)), .peripheral(.unpublishChannel(id(8), psm: 0x80)),
      .central(.openChannel(id(9), peer, psm: 0x80)),
    ]
  }
  private static let hello = AppMessage.Hello(
    manifest: AppManifest(identifier: "org.example.recorded", backgroundModes: [.central, .peripheral]))

  /// Whether it is in the recording: what happens at its own time, such as the adapter's states, is not.
  private static func isAnswer(_ frame: Frame) -> Bool { frame.number == 64 || frame.number >= 112 }

  @Test(
    "A recorded app of each released version, and the same app grown, get the recorded answers of the present daemon",
    arguments: releasedVersions, [false, true])
  func recordedApp(version: Int, isLater: Bool) async throws {
    let name = "session-\(version).txt"
    let isNew = DaemonFixtures.isRecording && version == releasedVersions.upperBound
    var octets: [UInt8] = [], expected: [DaemonFixtures.Line] = [], sent: [DaemonFixtures.Line] = []
    if isNew {
      sent = try ([.hello(Self.hello)] + Self.conversation(of: version).map { .request($0) }).map { try .init(app: $0) }
    } else {
      let lines = try DaemonFixtures.lines(name)
      (sent, expected) = (lines.filter { $0.sender == "app" }, lines.filter { $0.sender == "daemon" })
    }
    for line in sent {
      if isLater {
        let message = try #require(try AppMessage(try line.frame))
        octets += try LaterWriter.frame(message) + [6, 0, 0, 0, 250, 1, 2, 3, 4, 5]
      } else {
        octets += line.octets
      }
    }
    let lab = try await ServerLab(), gathered = Conversation(), wanted = isNew ? 10 : expected.count
    // Its adapter works before the app comes.
    let first = SocketApp(lab, AppManifest(identifier: "first"))
    try await first.state(.poweredOn)
    let channel = try await ClientBootstrap(group: lab.loop).channelInitializer { channel in
      channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(gathered) }
    }.connect(unixDomainSocketPath: lab.path).get()
    try await channel.writeAndFlush(ByteBuffer(bytes: octets)).get()
    while gathered.frames.filter(Self.isAnswer).count < wanted, channel.isActive { await Task.yield() }
    let answers = try gathered.frames.filter(Self.isAnswer).compactMap { try DaemonMessage($0) }
      .map { try DaemonFixtures.Line(daemon: $0) }
    if isNew {
      if !isLater {
        try DaemonFixtures.record(
          sent + answers, name,
          "A session of version \(version), as its first release has held it: "
            + "what the app writes, and the daemon's answers."
        )
      }
    } else {
      // The sentence of an error may change. The advertisement is stopped at once: on a slow machine the controller has
      // started it before the stop arrives, and then operation 2 has succeeded.
      func facts(_ lines: [DaemonFixtures.Line]) -> [String] {
        lines.map { $0.text.components(separatedBy: ", Diagnostics: ")[0] }
          .map { $0 == "113 Operation: 2" ? "112 Operation: 2, Error: {Code: \"cancelled\"" : $0 }
      }
      #expect(facts(answers) == facts(expected))
    }
    try? await channel.close()
    try await lab.close()
  }

  @Test(
    "A present app understands a recorded daemon of each released version, and the same daemon grown",
    arguments: releasedVersions, [false, true])
  func recordedDaemon(version: Int, isLater: Bool) async throws {
    let lines = try DaemonFixtures.lines("session-\(version).txt")
    let path = "/tmp/bindrune-recorded-\(UInt64.random(in: 0 ... .max)).socket"
    var octets: [UInt8] = [], texts: [String] = []
    for line in lines where line.sender == "daemon" {
      let message = try #require(try DaemonMessage(try line.frame))
      octets += isLater ? try LaterWriter.frame(message) + [3, 0, 0, 0, 251, 1, 2] : line.octets
      if case .event = message { texts.append(line.text) }
    }
    let gathered = Conversation(answer: octets), loop = MultiThreadedEventLoopGroup.singleton.next()
    let server = try await ServerBootstrap(group: loop).childChannelInitializer { channel in
      channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(gathered) }
    }.bind(unixDomainSocketPath: path).get()
    let stream = EventStream()
    let session = RemoteSession(to: path, Self.hello, events: stream.queue, on: loop, .standard)
    for request in Self.conversation(of: version) { session.send(request) }
    let asked = lines.filter { $0.sender == "app" }
    while gathered.frames.count < asked.count { await Task.yield() }
    let sent = try gathered.frames.compactMap { try AppMessage($0) }.map { try DaemonFixtures.Line(app: $0) }
    // A later version may greet with more.
    #expect(sent.dropFirst() == asked.dropFirst() && sent.first?.octets[4] == 8)
    var events: [String] = []
    for await event in stream.events {
      events.append(try DaemonFixtures.Line.text(DaemonMessage.event(event)))
      if events.count == texts.count { break }
    }
    #expect(events == texts)
    session.close()
    try? await server.close()
    try? FileManager.default.removeItem(atPath: path)
  }

  // MARK: Version 1

  @Test("An app of version 1, which wrote JSON, gets the sentence that it can show")
  func anAppOfVersion1() async throws {
    let line = try #require(try DaemonFixtures.lines("session-1.txt").first { $0.sender == "app" })
    let lab = try await ServerLab(), gathered = Conversation()
    let channel = try await ClientBootstrap(group: lab.loop).channelInitializer { channel in
      channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(gathered) }
    }.connect(unixDomainSocketPath: lab.path).get()
    try await channel.writeAndFlush(ByteBuffer(bytes: line.octets)).get()
    try await channel.closeFuture.get()
    let frame = try #require(gathered.frames.first)
    #expect(frame.number == 1)
    // As the JSON decoder of version 1 reads it.
    struct Refused: Decodable {
      struct Sentence: Decodable { var _0: String }
      var refused: Sentence
    }
    let read = try JSONDecoder().decode(Refused.self, from: Data(frame.octets.readableBytesView))
    #expect(
      read.refused._0
        == "This app has sent version 1 of the messages; bindruned has 2 … 3: install the same version of both.")
    try await lab.close()
  }
  @Test("A daemon of version 1 refuses this app in JSON, and the app says what to do")
  func aDaemonOfVersion1() async throws {
    let line = try #require(try DaemonFixtures.lines("session-1.txt").first { $0.sender == "daemon" })
    let path = "/tmp/bindrune-recorded-\(UInt64.random(in: 0 ... .max)).socket"
    let loop = MultiThreadedEventLoopGroup.singleton.next()
    let server = try await ServerBootstrap(group: loop).childChannelInitializer { channel in
      channel.eventLoop.makeCompletedFuture {
        try channel.pipeline.syncOperations.addHandler(Conversation(answer: line.octets))
      }
    }.bind(unixDomainSocketPath: path).get()
    let stream = EventStream()
    let session = RemoteSession(to: path, Self.hello, events: stream.queue, on: loop, .standard)
    for await event in stream.events {
      guard case .adapter(let state) = event else { continue }
      #expect(
        state
          == .unauthorized(
            "bindruned has sent version 1 of the messages; this app has 2 … 3: install the same version of both."))
      break
    }
    session.close()
    try? await server.close()
    try? FileManager.default.removeItem(atPath: path)
  }

  // MARK: The page

  private static var records: [any MessageRecord.Type] {
    [
      AppManifest.self, ManagerIdentity.self, ConnectOptions.self, ServiceDescription.self,
      ServiceDescription.Characteristic.self, ServiceDescription.Descriptor.self, BluetoothError.self,
      DiscoveredPeer.self, DiscoveredPeer.ServiceData.self, LinkedPeer.self, FoundService.self,
      FoundCharacteristic.self,
      RemoteDescriptor.self, PublishedService.self, PublishedService.Characteristic.self, ServerWrite.self,
      RestoredState.self, RestoredState.Scan.self, RestoredState.Peer.self, RestoredState.Service.self,
      RestoredState.Characteristic.self, RestoredState.Published.self, RestoredState.Subscription.self,
      RestoredState.Advertisement.self, ChannelDescription.self,
    ]
  }
  /// `BINDRUNE_RECORD=1` writes it.
  @Test("The page lists every message and record as they are declared")
  func page() throws {
    var named: Set<String> = []
    func row(_ cells: [String], _ fields: [String]) -> String {
      for field in fields {
        for part in field.split(separator: "`").enumerated() where part.offset % 2 == 1 {
          named.insert(String(part.element))
        }
      }
      return "| " + (cells + [fields.isEmpty ? "–" : fields.joined(separator: "; ")]).joined(separator: " | ") + " |"
    }
    func table<Message: DeclaredMessage>(_: Message.Type) throws -> [String] {
      ["| number | message | fields |", "|---|---|---|"]
        + (try Message.Number.allCases.map { number in
          row(["\(number.rawValue)", "\(number)"], try MessageLayout(of: Message.empty(number)).fields)
        })
    }
    func layout(_ record: any MessageRecord.Type) -> [String] {
      func open<Record: MessageRecord>(_: Record.Type) -> [String] { MessageLayout(of: Record.empty).fields }
      return open(record)
    }
    let tables = try [
      "app": table(AppMessage.self), "daemon": table(DaemonMessage.self),
      "records": ["| record | fields |", "|---|---|"]
        + Self.records.map { row(["`\($0.name)`"], layout($0)) },
    ]
    #expect(named == Set(Self.records.map { $0.name }))
    let url = VectorFile.fixtures.deletingLastPathComponent()
      .appending(path: "Sources/Broker/Broker.docc/Protocol.md")
    let page = try String(contentsOf: url, encoding: .utf8)
    var shown = page
    for (name, lines) in tables {
      let begin = "<!-- table \(name) -->\n", parts = shown.components(separatedBy: begin)
      try #require(parts.count == 2)
      let lost = parts[1].split(separator: "\n", omittingEmptySubsequences: false).drop { $0.hasPrefix("|") }
      shown = parts[0] + begin + (lines + lost.map(String.init)).joined(separator: "\n")
    }
    if DaemonFixtures.isRecording { try Data(shown.utf8).write(to: url) }
    #expect(shown == page || DaemonFixtures.isRecording)
  }
}

/// The other end of a socket: it gathers frames, and answers the first with what it is given.
private final class Conversation: ChannelInboundHandler, Sendable {
  typealias InboundIn = ByteBuffer
  private let box = NIOLockedValueBox((buffer: ByteBuffer(), frames: [Frame](), answer: [UInt8]()))
  var frames: [Frame] { box.withLockedValue { $0.frames } }
  init(answer: [UInt8] = []) { box.withLockedValue { $0.answer = answer } }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var new = unwrapInboundIn(data)
    let answer = box.withLockedValue { box -> [UInt8] in
      box.buffer.writeBuffer(&new)
      while let frame = try? Frame.read(from: &box.buffer) { box.frames.append(frame) }
      defer { if !box.frames.isEmpty { box.answer = [] } }
      return box.frames.isEmpty ? [] : box.answer
    }
    if !answer.isEmpty { context.writeAndFlush(NIOAny(ByteBuffer(bytes: answer)), promise: nil) }
  }
  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
