import BindruneControl
import BindruneSystem
import BindruneTransport
import BindruneWire
import Foundation
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import SystemPackage
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// What the daemon keeps, whom it admits, and what it answers about its apps.
@Suite(.hang) struct DaemonStateTests {
  private static let manifest = AppManifest(
    identifier: "org.example.key", backgroundModes: [.central], relaunch: ["/bin/true"])

  private func folder() -> String { "/tmp/bindrune-state-\(UInt64.random(in: 0 ... .max))" }
  private func record(_ identifier: String, user: UInt32 = 1000) -> AppRecord {
    AppRecord(
      user: user, manifest: AppManifest(identifier: identifier), mayShareData: true,
      managers: [
        .init(
          adapter: "hci0",
          manager: PreservedManager(
            identity: ManagerIdentity(.central, restoreIdentifier: "x"),
            peers: [.init(identifier: UUID(), options: ConnectOptions())]))
      ])
  }

  // MARK: The store

  @Test func recordsSurvive() throws {
    let folder = folder(), store = AppStore(folder: folder, logger: .silent)
    #expect(try store.load().isEmpty)
    let records = ["a", "b", "c"].map { record($0) } + [record("a", user: 0)]
    for record in records { store.save(record) }
    let stopped = [StoppedProcess(pid: 5, user: 1000, start: 77), StoppedProcess(pid: 7, user: 0, start: 9)]
    store.saveStopped(Set(stopped))
    store.flush()
    var again = AppStore(folder: folder, logger: .silent)
    let back = try again.load()
    #expect(back.count == 4 && records.allSatisfy(back.contains) && again.loadStopped() == stopped)
    var empty = records[1]
    (empty.managers, empty.mayShareData) = ([], nil)
    store.save(empty)
    store.saveStopped([])
    store.flush()
    again = AppStore(folder: folder, logger: .silent)
    #expect(try again.load().count == 3 && again.loadStopped() == [])
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder).count == 3)
    try FileManager.default.removeItem(atPath: folder)
  }
  @Test("A record that is cut, changed, or of another app is set aside; the others are read")
  func damagedRecords() throws {
    let folder = folder(), store = AppStore(folder: folder, logger: .silent)
    _ = try store.load()
    for name in ["a", "b", "c", "d", "e"] { store.save(record(name)) }
    store.flush()
    func file(_ name: String) -> URL { URL(fileURLWithPath: "\(folder)/1000-\(name).record") }
    try Data(try Data(contentsOf: file("a")).dropLast(40)).write(to: file("a"))
    try Data("bindrune\u{3}\0".utf8).write(to: file("b"))
    try FileManager.default.copyItem(at: file("e"), to: file("f"))
    try FileManager.default.removeItem(at: file("c"))
    try FileManager.default.createDirectory(at: file("c"), withIntermediateDirectories: false)
    let read = try store.load().map(\.manifest.identifier).sorted()
    #expect(read == ["d", "e"])
    let names = try FileManager.default.contentsOfDirectory(atPath: folder).sorted()
    #expect(
      names == [
        "1000-a.record.damaged-1", "1000-b.record.damaged-1", "1000-c.record.damaged-1", "1000-d.record",
        "1000-e.record",
        "1000-f.record.damaged-1",
      ])
    // A new record of the same app, damaged as well, does not replace the first.
    try Data("x".utf8).write(to: file("a"))
    #expect(try store.load().count == 2)
    #expect(FileManager.default.fileExists(atPath: "\(folder)/1000-a.record.damaged-2"))
    try FileManager.default.removeItem(atPath: folder)
  }
  @Test("A record of the JSON form becomes one of the present form, once; one that is damaged is set aside")
  func migration() throws {
    let folder = folder(), files = FileManager.default
    try files.createDirectory(atPath: folder, withIntermediateDirectories: false)
    defer { try? files.removeItem(atPath: folder) }
    /// As a daemon of version 1 has written them.
    for (name, stored) in [("1000-org.example.lock", "state-1-full"), ("0-x", "state-1-small")] {
      let from = DaemonFixtures.folder.appending(path: "\(stored).json").path
      try files.copyItem(atPath: from, toPath: "\(folder)/\(name).json")
    }
    try Data(#"{"format":1}"#.utf8).write(to: URL(fileURLWithPath: "\(folder)/7-bad.json"))
    let store = AppStore(folder: folder, logger: .silent), read = try store.load()
    store.flush()
    func sorted(_ records: [AppRecord]) -> [AppRecord] { records.sorted { $0.user < $1.user } }
    #expect(sorted(read) == [DaemonFixtures.small, DaemonFixtures.full])
    let names = ["0-x.record", "1000-org.example.lock.record", "7-bad.json.damaged-1"]
    #expect(try files.contentsOfDirectory(atPath: folder).sorted() == names)
    #expect(try sorted(AppStore(folder: folder, logger: .silent).load()) == sorted(read))
    // The daemon has ended between writing one file and removing the other: the new one counts.
    var newer = DaemonFixtures.small
    newer.mayShareData = true
    store.save(newer)
    store.flush()
    try Data("x".utf8).write(to: URL(fileURLWithPath: "\(folder)/0-x.json"))
    #expect(try sorted(AppStore(folder: folder, logger: .silent).load()) == [newer, DaemonFixtures.full])
    #expect(try files.contentsOfDirectory(atPath: folder).sorted() == names)
  }
  @Test func aFolderThatCannotBeUsed() throws {
    let store = AppStore(folder: "/dev/null/apps", logger: .silent)
    #expect(throws: FrameError.self) { try store.load() }
  }
  @Test("A folder to which other users could bring records is refused, and a record of theirs is set aside")
  func aFolderOfOthers() throws {
    let parent = folder(), folder = "\(parent)/apps", files = FileManager.default
    try files.createDirectory(atPath: folder, withIntermediateDirectories: true)
    defer { try? files.removeItem(atPath: parent) }
    func set(_ mode: mode_t, _ path: String) { #expect(unsafe chmod(path, mode) == 0) }
    func records() throws -> [AppRecord] { try AppStore(folder: folder, logger: .silent).load() }
    for (own, above, isSafe) in [
      (0o700, 0o755, true), (0o755, 0o755, true), (0o777, 0o755, false), (0o775, 0o755, false), (0o1777, 0o755, false),
      (0o700, 0o777, false), (0o700, 0o1777, true),
    ] as [(mode_t, mode_t, Bool)] {
      set(own, folder)
      set(above, parent)
      if isSafe { #expect(try records() == []) } else { #expect(throws: FrameError.self) { try records() } }
    }
    // A link that is the user's own is followed, to a folder that is looked at.
    set(0o755, parent)
    let link = "\(parent)/link"
    try files.createSymbolicLink(atPath: link, withDestinationPath: folder)
    #expect(try AppStore(folder: link, logger: .silent).load() == [])
    set(0o777, folder)
    #expect(throws: FrameError.self) { try AppStore(folder: link, logger: .silent).load() }
    set(0o700, folder)
    let store = AppStore(folder: folder, logger: .silent)
    store.save(record("planted"))
    store.saveStopped([StoppedProcess(pid: 5, user: 1000, start: 77)])
    store.flush()
    #expect(store.loadStopped().count == 1)
    set(0o602, "\(folder)/stopped")
    #expect(store.loadStopped().isEmpty)
    set(0o602, "\(folder)/1000-planted.record")
    #expect(try records() == [] && files.fileExists(atPath: "\(folder)/1000-planted.record.damaged-1"))
    // Only root can give a file away.
    guard geteuid() == 0 else { return }
    store.save(record("planted"))
    store.flush()
    #expect(unsafe chown("\(folder)/1000-planted.record", 65_534, 65_534) == 0)
    #expect(try records() == [] && files.fileExists(atPath: "\(folder)/1000-planted.record.damaged-2"))
    for path in [folder, parent] {
      #expect(unsafe chown(path, 65_534, 65_534) == 0)
      #expect(throws: FrameError.self, "\(path)") { try records() }
      #expect(unsafe chown(path, 0, 0) == 0)
    }
    #expect(unsafe lchown(link, 65_534, 65_534) == 0)
    #expect(throws: FrameError.self) { try AppStore(folder: link, logger: .silent).load() }
  }
  /// Something is in the place of the draft: writing fails as on a full disk, until it is gone.
  @Test func aChangeThatCannotBeWrittenIsKept() throws {
    let folder = folder(), store = AppStore(folder: folder, logger: .silent)
    _ = try store.load()
    try FileManager.default.createDirectory(atPath: "\(folder)/1000-a.record.draft", withIntermediateDirectories: false)
    store.save(record("a"))
    store.save(record("b"))
    #expect(store.countOfFailures > 0)
    #expect(try store.load().map(\.manifest.identifier) == ["b"])
    try FileManager.default.removeItem(atPath: "\(folder)/1000-a.record.draft")
    store.save(record("c"))
    store.flush()
    #expect(Set(try store.load().map(\.manifest.identifier)) == ["a", "b", "c"])
    try FileManager.default.removeItem(atPath: folder)
  }

  // MARK: A restart

  @Test("S39, S41–S43, S59, S61, S62: what is preserved survives the daemon, which relaunches the app for it")
  func aPreservedManagerSurvivesTheDaemon() async throws {
    let folder = folder(), sensor = try Sensor(), identity = ManagerIdentity(.central, restoreIdentifier: "key")
    let lab = try await ServerLab(store: AppStore(folder: folder, logger: .silent))
    let device = try await lab.host(sensor.database), peer = UUID(PeerID(await device.ownAddress))
    let app = SocketApp(lab, Self.manifest, identity, reconnectsAfter: .hours(1))
    try await app.state(.poweredOn)
    app.session.send(.connect(peer, ConnectOptions()))
    // A second manager has nothing to do: it is not preserved, and the process is not told of it.
    let idle = SocketApp(
      lab, Self.manifest, ManagerIdentity(.central, restoreIdentifier: "idle"), reconnectsAfter: .hours(1))
    try await idle.state(.poweredOn)
    #expect(try await lab.lines(.launched(app: Self.manifest.identifier)) == [])
    try await lab.breakConnections()
    let file = "\(folder)/\(getuid())-\(Self.manifest.identifier).record"
    while !FileManager.default.fileExists(atPath: file) { await Task.yield() }
    await lab.server.close()

    let next = try await ServerLab(radio: lab.radio, store: AppStore(folder: folder, logger: .silent))
    #expect(try await next.life(of: Self.manifest.identifier) == .terminated)
    try await device.advertiseAsSensor()
    try await next.until("launch \(Self.manifest.identifier)")
    #expect(try await next.lines(.launched(app: Self.manifest.identifier)) == ["bluetooth-central\tkey"])
    let second = SocketApp(next, Self.manifest, identity)
    let restored = try await second.wait { if case .restored(let state) = $0 { state } else { nil } }
    #expect(restored.peers.map(\.peer) == [peer])
    try await second.state(.poweredOn)
    try await second.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
    // It is the process's now, and no longer on the disk.
    while FileManager.default.fileExists(atPath: file) { await Task.yield() }
    try await next.close()
    withExtendedLifetime((idle, device)) {}
    try await lab.close()
    try FileManager.default.removeItem(atPath: folder)
  }
  @Test("A process whose connection broke begins anew: it has heard of the reset, and nothing stays preserved")
  func aReconnectingProcessBeginsAnew() async throws {
    let lab = try await ServerLab(), identity = ManagerIdentity(.central, restoreIdentifier: "key"), peer = UUID()
    let app = SocketApp(lab, Self.manifest, identity)
    try await app.state(.poweredOn)
    app.session.send(.connect(peer, ConnectOptions()))
    _ = try? await app.ask { .readRSSI($0, peer) }
    try await lab.breakConnections()
    try await app.wait { if case .adapter(.resetting) = $0 { true } else { nil } }
    try await app.state(.poweredOn)
    #expect(!app.log.contains { if case .restored = $0 { true } else { false } })
    let row = try #require(try await lab.lines(.list).compactMap { AppRow(text: $0) }.first)
    #expect(row.managers == 1 && row.preserved == 0 && row.life == "foreground")
    try await lab.close()
  }
  @Test("S40: a relaunch that fails is named, tried again, and keeps the state")
  func aRelaunchThatFails() async throws {
    var limits = AppServer.Limits()
    (limits.core.firstRetry, limits.core.longestRetry) = (.milliseconds(1), .milliseconds(5))
    let lab = try await ServerLab(limits: limits) { () throws(FrameError) in throw FrameError("/x: no such file") }
    let sensor = try Sensor(), device = try await lab.host(sensor.database)
    let peer = UUID(PeerID(await device.ownAddress)), identity = ManagerIdentity(.central, restoreIdentifier: "key")
    let app = SocketApp(lab, Self.manifest, identity, reconnectsAfter: .hours(1))
    try await app.state(.poweredOn)
    app.session.send(.connect(peer, ConnectOptions()))
    _ = try? await app.ask { .readRSSI($0, UUID()) }
    let log = try await lab.log()
    try await lab.breakConnections()
    try await device.advertiseAsSensor()
    while lab.did.filter({ $0.hasPrefix("launch") }).count < 4 { await Task.yield() }
    #expect(try await lab.lines(.list).compactMap { AppRow(text: $0) }.map(\.preserved) == [1])
    while !log.lines.contains(where: { $0.contains("cannot be relaunched: /x: no such file") }) { await Task.yield() }
    // The user starts it.
    let second = SocketApp(lab, Self.manifest, identity)
    try await second.wait { if case .restored = $0 { true } else { nil } }
    try await second.wait { if case .connected(peer, _, _) = $0 { true } else { nil } }
    try await lab.close()
  }

  // MARK: Who may

  @Test("S136: the user is asked once whether an app may share data")
  func permissions() async throws {
    let asked = NIOLockedValueBox<[String]>([]), folder = folder()
    var policy = AppServer.Policy()
    policy.mayShareData = { app, user in
      asked.withLockedValue { $0.append(app) }
      #expect(user == getuid())
      return ["good": true, "bad": false][app]
    }
    let store = AppStore(folder: folder, logger: .silent), lab = try await ServerLab(policy: policy, store: store)
    func state(_ app: String, _ role: BackgroundMode) async throws -> AdapterState {
      let app = SocketApp(lab, AppManifest(identifier: app), ManagerIdentity(role))
      return try await app.wait { event in
        guard case .adapter(let state) = event else { return nil }
        switch state {
        case .poweredOn, .unauthorized: return state
        default: return nil
        }
      }
    }
    #expect(try await state("good", .peripheral) == .poweredOn)
    #expect(try await state("good", .peripheral) == .poweredOn)
    for _ in 0..<2 {
      guard case .unauthorized(let why) = try await state("bad", .peripheral) else {
        Issue.record("bad may")
        return
      }
      #expect(why.contains("may not share data"))
      // Without an answer it is asked again.
      guard case .unauthorized = try await state("absent", .peripheral) else {
        Issue.record("absent may")
        return
      }
    }
    #expect(try await state("bad", .central) == .poweredOn)
    #expect(asked.withLockedValue { $0 } == ["good", "bad", "absent", "absent"])
    try await lab.close()
    // A daemon that begins later knows the answers.
    store.flush()
    let records = try AppStore(folder: folder, logger: .silent).load()
    #expect(Set(records.map { "\($0.manifest.identifier) \($0.mayShareData ?? false)" }) == ["good true", "bad false"])
    try FileManager.default.removeItem(atPath: folder)
  }
  @Test(
    "An app that ends while its user is asked is not admitted afterwards, and may begin again",
    arguments: [false, true])
  func goneWhileAsked(isOrderly: Bool) async throws {
    let (answers, answer) = AsyncStream.makeStream(of: Bool.self),
      (questions, question) = AsyncStream.makeStream(of: Void.self)
    var policy = AppServer.Policy()
    policy.mayShareData = { _, _ in
      question.yield()
      for await answer in answers { return answer }
      return nil
    }
    let lab = try await ServerLab(policy: policy), manifest = AppManifest(identifier: "slow")
    let hello = AppMessage.Hello(manifest: manifest, manager: ManagerIdentity(.peripheral))
    let channel = try await ClientBootstrap(group: lab.loop).connect(unixDomainSocketPath: lab.path).get()
    for message in [AppMessage.hello(hello)] + (isOrderly ? [.close] : []) {
      try await channel.writeAndFlush(ByteBuffer(bytes: message.frame)).get()
    }
    for await _ in questions { break }
    try? await channel.close().get()
    // The loop learns of a later connection not before it has learned of that end.
    _ = try await lab.lines(.list)
    answer.yield(true)
    try await eventually { try await lab.loop.submit { [server = lab.server] in server.counters.refusals }.get() > 0 }
    let running = try await lab.loop.submit { [server = lab.server] in server.apps.values.compactMap(\.pid) }.get()
    #expect(running.isEmpty)
    let app = SocketApp(lab, manifest, ManagerIdentity(.peripheral))
    try await app.state(.poweredOn)
    try await lab.close()
  }
  @Test("S4, S14, S15, S16: an alert of a suspended app reaches its user")
  func alerts() async throws {
    let alerts = NIOLockedValueBox<[AppAlert]>([])
    var policy = AppServer.Policy()
    policy.alerted = { app, alert in
      #expect(app.identifier == "plain" && app.user == getuid())
      alerts.withLockedValue { $0.append(alert) }
    }
    let lab = try await ServerLab(policy: policy), sensor = try Sensor()
    let device = try await lab.host(sensor.database), peer = UUID(PeerID(await device.ownAddress))
    let app = SocketApp(lab, AppManifest(identifier: "plain"))
    try await app.state(.poweredOn)
    app.session.send(.connect(peer, ConnectOptions(alerts: [.connection, .disconnection])))
    _ = try? await app.ask { .readRSSI($0, UUID()) }
    try await lab.move("plain", to: .suspended)
    try await device.advertiseAsSensor()
    while alerts.withLockedValue({ $0.isEmpty }) { await Task.yield() }
    await device.close()
    while alerts.withLockedValue({ $0.count }) < 2 { await Task.yield() }
    let all = alerts.withLockedValue { $0 }
    guard case .connected(peer, _) = all[0], case .disconnected(peer, _) = all[1] else {
      Issue.record("\(all)")
      return
    }
    try await lab.close()
  }
  @Test func anAlertRunsACommand() async throws {
    let file = "\(folder()).alert"
    let command = ShellCommand(
      "echo $BINDRUNE_APP $BINDRUNE_USER: $BINDRUNE_ALERT >\(file).draft && mv \(file).draft \(file)")
    AlertCommand(command: command, logger: .silent).show(
      .notified(UUID(), name: "a\u{1B}[31m", count: 1), of: AppServer.Key(user: 7, identifier: "x"))
    while !FileManager.default.fileExists(atPath: file) { await Task.yield() }
    #expect(try String(contentsOfFile: file, encoding: .utf8) == "x 7: a\\u{1B}[31m has sent a notification\n")
    try FileManager.default.removeItem(atPath: file)
  }
  @Test func aForeignUser() async throws {
    var policy = AppServer.Policy()
    policy.admits = { $0.uid == getuid() ? "Not you." : nil }
    let lab = try await ServerLab(policy: policy)
    let app = SocketApp(lab, Self.manifest)
    #expect(try await app.wait { if case .adapter(.unauthorized(let why)) = $0 { why } else { nil } } == "Not you.")
    try await lab.close()
  }
  @Test("200 apps at once; the next beyond the limit is refused, and a place becomes free")
  func manyApps() async throws {
    var limits = AppServer.Limits()
    limits.apps = 200
    limits.sessions = 2
    let lab = try await ServerLab(limits: limits)
    var apps: [SocketApp] = []
    for number in 0..<200 {
      let app = SocketApp(lab, AppManifest(identifier: "app\(number)"))
      try await app.state(.poweredOn)
      app.session.send(.scan(services: [], solicitedServices: [], allowsDuplicates: false))
      apps.append(app)
    }
    #expect(try await lab.lines(.list).count == 200)
    func refusal(_ identifier: String) async throws -> String {
      let app = SocketApp(lab, AppManifest(identifier: identifier))
      return try await app.wait { if case .adapter(.unauthorized(let why)) = $0 { why } else { nil } }
    }
    #expect(try await refusal("one-more").contains("bindruned has 200 apps"))
    let second = SocketApp(lab, AppManifest(identifier: "app7"))
    try await second.state(.poweredOn)
    #expect(try await refusal("app7").contains("has 2 managers"))
    // All of them hear the same device.
    let sensor = try Sensor(), device = try await lab.host(sensor.database)
    try await device.advertiseAsSensor()
    for app in apps { try await app.wait { if case .discovered = $0 { true } else { nil } } }
    apps[3].session.close()
    while try await lab.lines(.list).count == 200 { await Task.yield() }
    let late = SocketApp(lab, AppManifest(identifier: "late"))
    try await late.state(.poweredOn)
    withExtendedLifetime(device) {}
    try await lab.close()
  }
  @Test("An app that sends requests and takes no answers is read no further; the others do not notice")
  func aFloodOfRequests() async throws {
    let lab = try await ServerLab(), app = SocketApp(lab, AppManifest(identifier: "calm"))
    try await app.state(.poweredOn)
    // A socket that is never read.
    let flood = try await ClientBootstrap(group: lab.loop).channelOption(.autoRead, value: false)
      .connect(unixDomainSocketPath: lab.path).get()
    let hello = AppMessage.hello(.init(manifest: AppManifest(identifier: "flood")))
    flood.writeAndFlush(ByteBuffer(bytes: hello.frame), promise: nil)
    while try await lab.lines(.list).count < 2 { await Task.yield() }
    let peer = UUID(), loops = 200
    for round in 0..<loops {
      var buffer = ByteBuffer()
      for number in 0..<100 {
        let id = OperationID(rawValue: UInt64(round * 100 + number + 1))
        buffer.writeBytes(AppMessage.request(.central(.readRSSI(id, peer))).frame)
      }
      flood.writeAndFlush(buffer, promise: nil)
      _ = try? await app.ask { .readRSSI($0, peer) }
    }
    let most = try await lab.loop.submit { [server = lab.server] in
      server.apps.values.flatMap(\.connections.values).map(\.countOfUnanswered).max() ?? 0
    }.get()
    // What one turn of the loop has read is carried out.
    #expect(most <= AppConnection.mostRequests + 4 * 65_536 / 60)
    try await flood.close()
    try await lab.close()
  }

  // MARK: Controls

  @Test("S1: bindrune apps moves apps; an unknown app, life and version are sentences")
  func controls() async throws {
    let lab = try await ServerLab(), app = SocketApp(lab, Self.manifest)
    try await app.state(.poweredOn)
    let name = Self.manifest.identifier
    let row = try #require(try await lab.lines(.list).compactMap { AppRow(text: $0) }.first)
    #expect(row.identifier == name && row.user == getuid() && row.pid == getpid() && row.canRelaunch)
    #expect(row.life == "foreground" && row.modes == ["bluetooth-central"] && row.managers == 1)
    let log = try await lab.log()
    for life in ["background", "suspended", "foreground"] {
      #expect(try await lab.lines(.move(app: name, life: life)) == [])
      #expect(try await lab.lines(.list).compactMap { AppRow(text: $0)?.life } == [life])
    }
    _ = try await lab.lines(.move(app: name, life: "terminated"))
    #expect(lab.did == ["stop", "resume", "kill"])
    while !log.lines.contains("info\t\(name)\tis suspended") { await Task.yield() }
    await #expect(throws: DaemonAnswerError("There is no app x: \"bindrune apps list\" names those that there are.")) {
      try await lab.lines(.move(app: "x", life: "suspended"))
    }
    await #expect(throws: DaemonAnswerError.self) { try await lab.lines(.move(app: name, life: "asleep")) }
    try await lab.close()
    await #expect(throws: DaemonAnswerError.self) { try await lab.lines(.list) }
  }
  @Test func counters() async throws {
    let lab = try await ServerLab(), app = SocketApp(lab, Self.manifest)
    try await app.state(.poweredOn)
    _ = try? await app.ask { .readRSSI($0, UUID()) }
    let text = await lab.server.metrics(failedWrites: 3)
    for line in [
      "bindrune_apps{life=\"foreground\"} 1", "bindrune_managers 1", "bindrune_adapter_up{adapter=\"sim\"} 1",
      "bindrune_requests_total 1", "bindrune_state_write_failures_total 3",
    ] {
      #expect(text.contains(line + "\n"), "\(line)")
    }
    try await lab.close()
  }
}
