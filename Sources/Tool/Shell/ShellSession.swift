import BindruneATT
import Bindrune
import BindruneWire
import BindruneGAP
import BindruneGATT

/// The connection of `bindrune shell`, and its commands.
actor ShellSession {
  enum Outcome: Equatable, Sendable { case done, quit }

  private let host: BluetoothHost
  private let device: WantedDevice
  private let timeout: Seconds
  private var format: ValueFormat
  private var connection: Connection
  private enum Connection {
    /// `watch` waits for the end of the link.
    case up(Link, watch: Task<Void, Never>)
    case down(BluetoothError)
  }
  private(set) var database = RemoteDatabase()
  /// The device's own name.
  private(set) var name: String?
  private var subscriptions: [AttributeHandle: (title: String, reader: Task<Void, Never>)] = [:]
  /// The values received since the last `wait`, and the stream that wakes it.
  private var unawaited = 0
  private var arrival: AsyncStream<Void>.Continuation?
  /// Called when the link has gone down, or the device's services have changed.
  private let changed: @Sendable () -> Void

  init(
    _ link: Link, _ device: WantedDevice, format: ValueFormat, timeout: Seconds, changed: @escaping @Sendable () -> Void
  )
    async throws
  {
    (host, self.device, self.format, self.timeout, self.changed) = (link.host, device, format, timeout, changed)
    connection = .down(BluetoothError(.notStarted, "There is no link yet: connect."))
    try await use(link)
  }

  /// Discovers the device's database, and watches the link from now on.
  private func use(_ link: Link) async throws {
    let events = await link.events
    database = try await link.discoverAll()
    if let deviceName = database.characteristic("2A00"), let octets = try? await link.read(deviceName) {
      name = String(decoding: octets, as: UTF8.self).printable(limit: 24)
    }
    connection = .up(link, watch: Task { await watch(events) })
  }
  private func watch(_ events: LinkEventSequence) async {
    do throws(BluetoothError) {
      for try await event in events {
        switch event {
        case .servicesChanged: Console.line("The device has changed its services.")
        case .rediscovered(let database): self.database = database
        case .securityChanged(let security): Console.line("The link is \(security).")
        case .value, .peerIdentified, .parametersChanged, .dataLengthChanged, .physChanged, .mtuChanged,
          .bearersChanged:
          continue
        }
        changed()
      }
    } catch {
      guard case .up = connection else { return }
      connection = .down(error)
      endSubscriptions()
      arrival?.finish()
      Console.error("The link is gone. \(error.description)")
      changed()
    }
  }
  /// From now on the end of the link is not reported.
  func close() {
    if case .up(_, let watch) = connection { watch.cancel() }
    connection = .down(BluetoothError(.disconnected, "The shell is closing."))
    endSubscriptions()
  }
  var isConnected: Bool { if case .up = connection { true } else { false } }
  private var link: Link {
    get throws(BluetoothError) {
      switch connection {
      case .up(let link, _): return link
      case .down(let error): throw error
      }
    }
  }

  // MARK: Commands

  /// Runs the command of a line. Ignores empty lines, and comments from # on.
  func run(_ line: String) async throws -> Outcome {
    var words = try ShellWords.split(line)
    guard !words.isEmpty else { return .done }
    let verb = words.removeFirst()
    switch ShellVerb(rawValue: verb) {
    case .help?: try help(words)
    case .list?: try list(words)
    case .read?: try await read(try names(words, of: .read))
    case .write?: try await write(words)
    case .subscribe?: try await subscribe(words)
    case .unsubscribe?: try await unsubscribe(words)
    case .wait?: try await wait(words)
    case .format?: try setFormat(words)
    case .info?: try await info()
    case .connect?: try await connect()
    case .quit?: return .quit
    case nil: throw Failure("There is no command \(verb.printable(limit: 60)): `help` lists them.")
    }
    return .done
  }

  private func help(_ words: [String]) throws {
    guard let topic = words.first else { return Console.line(ShellHelp.overview) }
    guard let text = ShellHelp.text(topic, example: example) else {
      throw Failure("There is no help for \(topic.printable(limit: 60)): `help` lists the topics.")
    }
    Console.line(text)
  }
  /// An attribute of this device to try a command with.
  private func example(_ verb: ShellVerb) -> String? {
    let all = database.attributes.filter(verb.takes)
    // Prefer others to the generic services, which every device has.
    return (all.first { $0.owners[0] != "1800" && $0.owners[0] != "1801" } ?? all.first).map(database.spelling)
  }

  private func list(_ words: [String]) throws {
    var printer = DatabasePrinter(json: false), isFound = words.isEmpty
    for service in database.services where words.isEmpty || words.contains(where: { service.isNamed($0) }) {
      isFound = true
      printer.show(service)
      for include in database.includes(of: service) { printer.show(include) }
      for characteristic in database.characteristics(of: service) {
        printer.show(characteristic, nil)
        for descriptor in database.descriptors(of: characteristic) { printer.show(descriptor, nil) }
      }
    }
    if !isFound {
      throw Failure(
        "The device has no service \(words[0].printable(limit: 60)): `list` shows all.", status: .noAttribute)
    }
  }

  private func names(_ words: [String], of verb: ShellVerb) throws -> [AttributeName] {
    guard !words.isEmpty else { throw Failure("\(verb.rawValue) what? Write \(verb.usage).") }
    return try words.map(name)
  }
  private func name(_ word: String) throws -> AttributeName {
    guard let name = AttributeName(argument: word) else {
      throw Failure(
        "\"\(word.printable(limit: 60))\" is not an attribute: write a UUID, a name, or a handle such as 0x0012.")
    }
    return name
  }
  private func find(_ name: AttributeName) throws -> (handle: AttributeHandle, attribute: RemoteAttribute?) {
    if let handle = name.handle { return (handle, database.attributes.first(where: name.matches)) }
    let attribute = try database.attribute(name)
    return (attribute.handle, attribute)
  }

  private func read(_ names: [AttributeName]) async throws {
    for name in names {
      let (handle, attribute) = try find(name)
      let value = try await link.read(handle)
      format.show(value, of: handle, attribute, label: names.count > 1 ? name.description : nil)
    }
  }

  private func write(_ words: [String]) async throws {
    let isText = words.contains("--utf8"), isUnanswered = words.contains("--without-response")
    let rest = words.filter { $0 != "--utf8" && $0 != "--without-response" }
    guard rest.count > 1 else { throw Failure("Write \(ShellVerb.write.usage).") }
    let (handle, _) = try find(try name(rest[0])), value = rest.dropFirst().joined(separator: " ")
    let octets: [UInt8]
    do { octets = try (isText ? WrittenFormat.utf8 : .hex).octets(value) } catch {
      throw Failure("\"\(value.printable(limit: 60))\" is not hexadecimal digits: add --utf8 for text.")
    }
    if isUnanswered {
      try await link.confirm { try await link.writeWithoutResponse(octets, to: handle) }
    } else {
      try await link.write(octets, to: handle)
    }
  }

  // MARK: Values that the device sends by itself

  private func subscribe(_ words: [String]) async throws {
    let wanted: ClientCharacteristicConfiguration? = words.contains("--indications") ? .indication : nil
    for name in try names(words.filter { $0 != "--indications" }, of: .subscribe) {
      let (attribute, characteristic) = try find(name).attribute.subscribable(name)
      if subscriptions[attribute.handle] != nil { continue }
      let title = database.spelling(of: attribute)
      let values = try await link.subscribe(to: characteristic, wanted)
      let reader = Task { await self.follow(values, attribute, title) }
      subscriptions[attribute.handle] = (title, reader)
    }
  }
  private func follow(_ values: Subscription, _ attribute: RemoteAttribute, _ title: String) async {
    do throws(BluetoothError) {
      for try await value in values {
        format.show(
          value.value, of: value.handle, attribute, event: value.isIndication ? "indication" : "notification",
          label: title)
        unawaited += 1
        arrival?.finish()
      }
      try await values.end()
    } catch {
      // The end of the link is reported once, by `watch`.
      if isConnected, error.code != .cancelled { Console.error("\(title): \(error.description)") }
    }
    if !Task.isCancelled { subscriptions[attribute.handle] = nil }
  }
  private func unsubscribe(_ words: [String]) async throws {
    let handles = try words.isEmpty ? Array(subscriptions.keys) : words.map { try find(try name($0)).handle }
    for handle in handles {
      guard let (_, reader) = subscriptions.removeValue(forKey: handle) else {
        throw Failure("There is no subscription to attribute \(handle.text): `info` lists them.")
      }
      reader.cancel()
      await reader.value
    }
  }
  private func endSubscriptions() {
    for (_, reader) in subscriptions.values { reader.cancel() }
    subscriptions = [:]
  }

  private func wait(_ words: [String]) async throws {
    let count = words.isEmpty ? 1 : Int(words[0]) ?? 0,
      limit = words.count > 1 ? Seconds(argument: words[1]) : Seconds(10)
    guard count > 0, let limit, words.count <= 2 else { throw Failure("Write \(ShellVerb.wait.usage).") }
    if subscriptions.isEmpty, unawaited < count {
      throw Failure("There is no subscription, so no value will come: `subscribe` first.")
    }
    guard try await withLimit(limit.duration, { try await self.values(count) }) != nil else {
      throw Failure("\(unawaited) of \(count) values came within \(limit): wait longer.", status: .timeOver)
    }
  }
  private func values(_ count: Int) async throws {
    while unawaited < count {
      _ = try link
      let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
      arrival = continuation
      for await _ in stream {}
      try Task.checkCancellation()
    }
    unawaited -= count
  }

  // MARK: Other commands

  private func setFormat(_ words: [String]) throws {
    guard words.count == 1, let format = ValueFormat(rawValue: words[0]) else {
      throw Failure("Write \(ShellVerb.format.usage).")
    }
    self.format = format
  }
  private func info() async throws {
    let link = try link
    Console.line("\(await link.address)\(name.map { ", \"\($0)\"" } ?? "")")
    Console.line("ATT_MTU \(await link.mtu): a notification carries up to \(min(await link.mtu - 3, 512)) octets")
    if let parameters = await link.parameters { Console.line("\(parameters)") }
    let rssi = try? await link.readRSSI()
    if let rssi { Console.line("\(rssi) dBm") }
    for (title, _) in subscriptions.values.sorted(by: { $0.title < $1.title }) {
      Console.line("subscribed to \(title)")
    }
  }
  private func connect() async throws {
    if isConnected { throw Failure("The link is up already: `info` shows its state.") }
    // Anew: a device with private addresses, or one that was switched off, may have another address now.
    let peer = try await device.find(by: host, within: timeout)
    try await host.reach(peer, within: timeout) { @Sendable link in try await self.use(link) }
    changed()
  }
}

extension RemoteService {
  /// Accepts a UUID, a name or a handle.
  fileprivate func isNamed(_ word: String) -> Bool {
    BluetoothUUID(word) == uuid || uuid.assignedName.map(AttributeName.slug) == AttributeName.slug(word)
      || handle.text.lowercased() == word.lowercased()
  }
}

/// The commands of the shell.
enum ShellVerb: String, CaseIterable {
  case help, list, read, write, subscribe, unsubscribe, wait, format, info, connect, quit

  var usage: String {
    switch self {
    case .help: "help [TOPIC]"
    case .list: "list [SERVICE]"
    case .read: "read ATTRIBUTE…"
    case .write: "write ATTRIBUTE HEX [--without-response], or write ATTRIBUTE --utf8 TEXT"
    case .subscribe: "subscribe ATTRIBUTE… [--indications]"
    case .unsubscribe: "unsubscribe [ATTRIBUTE…]"
    case .wait: "wait [COUNT [SECONDS]]"
    case .format: "format text, hex, utf8 or json"
    case .info, .connect, .quit: rawValue
    }
  }
  var abstract: String {
    switch self {
    case .help: "show these lines, or explain a command or a Bluetooth term"
    case .list: "show the services of the device, and what is in them"
    case .read: "read values from the device"
    case .write: "write a value to the device"
    case .subscribe: "have the device send values by itself; they appear above the prompt"
    case .unsubscribe: "end subscriptions; without an attribute, all of them"
    case .wait: "wait for subscribed values, in scripts"
    case .format: "set how values are printed"
    case .info: "show the link and the subscriptions"
    case .connect: "connect again after the link has ended"
    case .quit: "disconnect and leave, as Ctrl-D does"
    }
  }
  /// Whether the command applies to the attribute.
  func takes(_ attribute: RemoteAttribute) -> Bool {
    let properties = attribute.characteristic?.properties
    return switch self {
    case .read: properties?.contains(.read) ?? true
    case .write: !(properties ?? .write).isDisjoint(with: [.write, .writeWithoutResponse])
    case .subscribe, .unsubscribe: !(properties ?? []).isDisjoint(with: [.notify, .indicate])
    case .help, .list, .wait, .format, .info, .connect, .quit: false
    }
  }
}

/// Splits a line at spaces, except in "quotation" 'marks', up to a # that begins a word.
enum ShellWords {
  static func split(_ line: String) throws(Failure) -> [String] {
    var words: [String] = [], word: String?, quote: Character?, isEscaped = false
    for character in line {
      if isEscaped {
        word = (word ?? "") + String(character)
        isEscaped = false
      } else if character == "\\", quote != "'" {
        isEscaped = true
      } else if let open = quote {
        if character == open { quote = nil } else { word?.append(character) }
      } else if character == "\"" || character == "'" {
        quote = character
        word = word ?? ""
      } else if character.isWhitespace {
        if let word { words.append(word) }
        word = nil
      } else if character == "#", word == nil {
        return words
      } else {
        word = (word ?? "") + String(character)
      }
    }
    if quote != nil || isEscaped { throw Failure("The line ends inside a quotation: close it.") }
    return words + (word.map { [$0] } ?? [])
  }
}
