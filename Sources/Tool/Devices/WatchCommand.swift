import ArgumentParser
import Bindrune
import BindruneCapture
import BindruneSystem
import BindruneTrace
import BindruneTransport
import BindruneWire
import BindruneGAP
import BindruneGATT
import Glibc
import Logging
import Synchronization

struct WatchCommand: AsyncParsableCommand, EventReporter {
  static let configuration = CommandConfiguration(
    commandName: "watch", abstract: "Show the air: devices, links, packets per second, credits, values.",
    discussion: """
      Listens to advertisers and follows every packet between the host and its controller. With --name or --address \
      it also connects to that device and subscribes to all that it sends. --trace follows a recording instead, at its \
      own speed or another, or with monitor: what the kernel sees of every adapter.
      On a terminal it shows a page, which q ends; in a pipe, a line for each change and for each second.

      Examples:
        bindrune watch --hci sim --name 'Virtual*'
        bindrune watch --trace capture.btsnoop --speed 10
        bindrune watch --trace capture.btsnoop --speed max --json
      """)

  @Option(
    help: ArgumentHelp("The controller, as for every verb: see bindrune --help.", valueName: "spec"),
    completion: .custom { _, _, _ in AdapterName.specs }, transform: TransportSpec.init(argument:))
  var hci: TransportSpec?
  @Flag(help: "Take the adapter down if it is up, and bring it up again at the end (not after SIGKILL).")
  var takeDown = false
  @Option(
    help: ArgumentHelp(
      "Follow this recording; - is standard input, monitor: the kernel's packets, live.", valueName: "file"),
    completion: .file())
  var trace: String?
  @Option(
    help: ArgumentHelp(
      "How fast the recording passes: 1 is its own speed, 0 or max as fast as possible, then its last page.",
      valueName: "times"), transform: WatchSpeed.init(argument:))
  var speed: WatchSpeed?
  @Option(
    help: ArgumentHelp(
      "Connect to this device: AA:BB:CC:DD:EE:FF/public or …/random; without a type the tool scans for it.",
      valueName: "address"))
  var address: WantedAddress?
  @Option(help: "Connect to the device with this name, or with this beginning of a name if it ends with *.")
  var name: String?
  @Flag(help: "Request scan responses, which often have the names.")
  var active = false
  @Option(
    help: ArgumentHelp("How long to watch, in the recording's own time; by default to the end.", valueName: "seconds"))
  var duration: Seconds?
  @Option(
    help: ArgumentHelp("Write every HCI packet of the controller to this file (btsnoop).", valueName: "file"),
    completion: .file())
  var record: String?
  @Flag(help: "Print one JSON object for each second.")
  var json = false
  @Flag(help: "Continue behind damage of the recording with the next believable record.")
  var resync = false
  @Option(help: ArgumentHelp("The least severe messages to show on standard error.", valueName: "level"))
  var logLevel: Logger.Level = .warning

  func validate() throws {
    if trace != nil {
      if hci != nil { throw ValidationError("--trace watches a recording, --hci a controller: give one of them.") }
      if address != nil || name != nil || active || record != nil || takeDown {
        throw ValidationError(
          "--address, --name, --active, --record and --take-down need a controller: leave out --trace.")
      }
      if speed != nil, trace == TraceOptions.monitor {
        throw ValidationError("monitor: is live and has no --speed: leave it out.")
      }
    } else {
      if speed != nil { throw ValidationError("--speed is that of a recording: add --trace FILE.") }
      if resync { throw ValidationError("--resync is for a recording: add --trace FILE.") }
    }
    if address != nil, name != nil { throw ValidationError("Select one device: either --address or --name.") }
  }

  func run() async throws {
    let isMax = speed?.times == nil && speed != nil
    let form: WatchFeed.Form = json ? .objects : Screen.isPossible || isMax ? .page : .lines
    if let trace { return try watch(trace, form, isMax: isMax) }
    try await watchController(form)
  }

  // MARK: A recording

  private func watch(_ path: String, _ form: WatchFeed.Form, isMax: Bool) throws {
    let keys = WatchKeys(isOn: Screen.isPossible && form == .page && path != "-")
    defer { keys.end() }
    var options = TraceOptions()
    options.resync = resync
    var sink = PacedFeed(
      WatchFeed(
        form,
        title: "watching \(path == "-" ? "standard input" : path.split(separator: "/").last.map(String.init) ?? path)"),
      speed: path == TraceOptions.monitor || isMax ? nil : speed?.times ?? 1,
      limit: duration.map { $0.duration / .nanoseconds(1) }, isLive: path == TraceOptions.monitor,
      draws: Screen.isPossible && form == .page, keys)
    defer {
      sink.feed.finish()
      Console.drain()
    }
    try options.read(path, into: &sink)
  }

  // MARK: A controller

  private func watchController(_ form: WatchFeed.Form) async throws {
    var common = CommonOptions()
    (common.trace, common.logLevel) = (record, logLevel)
    let options = HostOptions(hci: hci, takeDown: takeDown, common: common)
    let watched = WatchedHost(WatchFeed(form, title: "watching \(try options.choice().spec)"))
    let keys = WatchKeys(isOn: form == .page)
    defer { keys.end() }
    Interruption.watchOutput()
    let wanted = address.map { WantedDevice.address($0) } ?? name.map { .name($0) }
    let parameters = ScanParameters(isActive: active)
    do {
      try await BluetoothHost.using(options, observer: watched.observe) { host in
        try await untilInterrupted(duration) {
          try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { for try await _ in host.scan(parameters, filter: ScanFilter()) {} }
            group.addTask {
              while !keys.hasQuit {
                watched.show()
                try await Task.sleep(for: .milliseconds(250))
              }
            }
            if let wanted { group.addTask { try await follow(wanted, on: host) } }
            defer { group.cancelAll() }
            try await group.next()
          }
        }
      }
    } catch {
      watched.finish()
      throw error
    }
    watched.finish()
  }
}

/// Connects and subscribes to everything that the device sends by itself, until cancelled or until the link ends.
private func follow(_ wanted: WantedDevice, on host: BluetoothHost) async throws {
  let limit = Seconds(10), peer = try await wanted.find(by: host, within: limit)
  try await host.reach(peer, within: limit) { link in
    let database = try await link.discoverAll()
    let sending = database.services.flatMap { database.characteristics(of: $0) }
      .filter { !$0.properties.isDisjoint(with: [.notify, .indicate]) }
    try await withThrowingTaskGroup(of: Void.self) { group in
      for characteristic in sending {
        // One that is refused, for lack of encryption for example, does not end the others.
        group.addTask { do { for try await _ in link.notifications(of: characteristic) {} } catch is BluetoothError {} }
      }
      // The page stays after the link.
      group.addTask { while true { try await Task.sleep(for: .seconds(3_600)) } }
      for try await _ in group {}
    }
  }
}

/// `--speed`: a factor, or as fast as possible.
struct WatchSpeed {
  /// nil: as fast as possible.
  var times: Double?
  init(argument: String) throws {
    if argument == "max" { return }
    guard let value = Double(argument), value >= 0, value <= 1_000_000 else {
      throw ValidationError(
        "\"\(argument.printable())\" is not a speed: write a factor such as 1, 0.5 or 100, or max.")
    }
    times = value == 0 ? nil : value
  }
}

/// Whether somebody has typed q.
private final class WatchKeys: Sendable {
  private let quit = Atomic(false)
  private let isOn: Bool
  var hasQuit: Bool { quit.load(ordering: .relaxed) }

  init(isOn: Bool) {
    self.isOn = isOn && StandardInput.isTerminal
    guard self.isOn else { return }
    RawMode.begin(keepsSignals: true)
    Task.detached { [self] in
      while let octets = await StandardInput.next() {
        if octets.contains(where: { $0 == UInt8(ascii: "q") || $0 == UInt8(ascii: "Q") }) {
          return quit.store(true, ordering: .relaxed)
        }
      }
    }
  }
  func end() { if isOn { RawMode.end() } }
}

/// The model, and what is to be printed of it: records in, text out. It has no clock.
struct WatchFeed: ~Copyable {
  enum Form { case page, lines, objects }
  let form: Form
  private let title: String
  private var sink: DissectingSink<PairedSink<AirMonitor, TraceStory>>
  private var text = ""
  /// What went wrong last, for the page.
  private var troubles: [String] = []
  /// Nanoseconds between the first record and the newest, or the time that ``advance(to:)`` has come to.
  var now: Int64 { sink.sink.first.now }
  /// Nanoseconds since the first record, for nanoseconds since 1970.
  func elapsed(_ time: Int64) -> Int64 { sink.sink.first.elapsed(time) }

  init(_ form: Form, title: String) {
    (self.form, self.title) = (form, title)
    sink = DissectingSink(PairedSink(AirMonitor(keepsChanges: form == .lines), TraceStory()))
  }

  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    pass(sink.sink.first.elapsed(record.time))
    sink.receive(record, bytes)
    if form == .lines {
      for change in sink.sink.first.takeChanges() { text += AirText.line(change, sink.sink.first) + "\n" }
    }
    for link in sink.sink.second.takeEnded() { tell(link) }
  }
  private mutating func tell(_ link: LinkStory) {
    for trouble in link.troubles {
      let words = "\(AirText.handle(link.connection))  \(trouble.sentence.printable())"
      switch form {
      case .lines: text += AirText.line("trouble \(words)", at: sink.sink.first.now) + "\n"
      case .page:
        if troubles.count == Self.mostTroubles { troubles.removeFirst() }
        troubles.append(words)
      case .objects:
        var object = JSONLine(event: "trouble")
        object.add("time", Double(sink.sink.first.now) / 1_000_000_000)
        object.add("adapter", Int(link.adapter))
        object.add("connection", StoryOutput.name(link).lowercased())
        object.add("frame", trouble.number)
        object.add("what", trouble.sentence)
        text += "\(object)\n"
      }
    }
  }
  /// Lines of the page.
  private static var mostTroubles: Int { 3 }
  /// Time goes on without a record, to this many nanoseconds since the first one.
  mutating func advance(to elapsed: Int64) {
    pass(elapsed)
    sink.sink.first.advance(to: elapsed)
  }
  /// Reports the second that ends.
  private mutating func pass(_ elapsed: Int64) {
    if elapsed / 1_000_000_000 > Int64(sink.sink.first.second), sink.sink.first.records > 0 { report() }
  }
  private mutating func report() {
    switch form {
    case .page: break
    case .lines: if let line = AirText.rates(sink.sink.first) { text += line + "\n" }
    case .objects: text += "\(AirText.object(sink.sink.first))\n"
    }
  }

  /// The lines since the last call.
  mutating func takeText() -> String {
    defer { text = "" }
    return text
  }
  /// Text that waits.
  var waiting: Int { text.utf8.count }
  func page(in size: Screen.Size) -> [String] {
    AirPage(monitor: sink.sink.first, title: title, troubles: troubles, hasColour: Console.hasColour).lines(in: size)
  }
  /// Prints the last second, or the last page.
  mutating func finish() {
    Screen.close()
    if sink.sink.first.records > 0 { report() }
    if !text.isEmpty { Console.writeWaiting(takeText().utf8) }
    guard form == .page, sink.sink.first.records > 0 else { return }
    let size = Screen.Size(columns: Screen.size.columns, rows: AirPage.printedRows)
    for line in page(in: size) { Console.line(line) }
  }
}

/// Passes a recording on at a speed, and shows it meanwhile.
private struct PacedFeed: CaptureSink, ~Copyable {
  var feed: WatchFeed
  /// nil: as fast as possible.
  private let speed: Double?
  private let limit: Double?
  private let isLive: Bool
  private let draws: Bool
  private let keys: WatchKeys
  private let begin = ContinuousClock.now
  private var drawn: ContinuousClock.Instant?
  private var isOver = false

  init(
    _ feed: consuming WatchFeed, speed: Double?, limit: Double?, isLive: Bool, draws: Bool, _ keys: WatchKeys
  ) {
    self.feed = feed
    (self.speed, self.limit, self.isLive, self.draws, self.keys) = (speed, limit, isLive, draws, keys)
  }

  var wantsMore: Bool { !isOver && !keys.hasQuit && Interruption.cause == nil }

  mutating func receive(_ record: CaptureRecord, _ bytes: Span<UInt8>) {
    let elapsed = Double(feed.elapsed(record.time))
    wait(until: min(elapsed, limit ?? elapsed))
    if let limit, elapsed > limit { isOver = true }
    guard wantsMore else { return }
    feed.receive(record, bytes)
    if feed.waiting > 60_000 { Console.writeWaiting(feed.takeText().utf8) }
  }
  /// Waits until the recording has come to this time, in nanoseconds since its first record.
  private mutating func wait(until elapsed: Double) {
    show()
    guard let speed else { return }
    while wantsMore {
      let passed = (ContinuousClock.now - begin) / .nanoseconds(1) * speed
      if passed >= elapsed { return }
      feed.advance(to: Int64(min(passed, 9e18)))
      show()
      usleep(UInt32(max(1, min(50_000, (elapsed - passed) / speed / 1_000))))
    }
  }
  private mutating func show() {
    let now = ContinuousClock.now
    if let drawn, now - drawn < .milliseconds(250) { return }
    drawn = now
    if draws {
      let size = Screen.size
      Screen.draw(feed.page(in: size), in: size)
    } else if feed.waiting > 0 {
      Console.writeWaiting(feed.takeText().utf8)
    }
  }
  mutating func pause() {
    if isLive {
      feed.advance(to: feed.elapsed(Int64(clamping: wallClockMicroseconds()) * 1_000))
      if let limit, Double(feed.now) >= limit { isOver = true }
    }
    show()
  }
}

/// What a host and its controller exchange, for the page.
private final class WatchedHost: Sendable {
  private let feed: Mutex<WatchFeed>
  private let number = Atomic(0)
  init(_ feed: consuming sending WatchFeed) { self.feed = Mutex(feed) }

  private static var now: Int64 { Int64(clamping: wallClockMicroseconds()) * 1_000 }

  var observe: PacketObserver {
    { [self] packet, direction in
      let record = CaptureRecord(
        number: number.add(1, ordering: .relaxed).newValue, time: Self.now, direction: direction,
        octets: Octets(0, packet.count))
      feed.withLock { $0.receive(record, packet) }
    }
  }
  /// Draws the page, or prints what is new.
  func show() {
    let size = Screen.size
    let (lines, text) = feed.withLock { feed in
      feed.advance(to: feed.elapsed(Self.now))
      return (feed.form == .page ? feed.page(in: size) : [], feed.takeText())
    }
    if !lines.isEmpty { Screen.draw(lines, in: size) }
    if !text.isEmpty { Console.write(text) }
  }
  func finish() { feed.withLock { $0.finish() } }
}
