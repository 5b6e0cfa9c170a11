import BindruneATT
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import BindruneWire

// The lines of a script, one after another. Each function parses from the scanner's position.

extension Action {
  init(_ scanner: inout Scanner, captured: inout Set<String>) throws(FileError) {
    let start = scanner.at
    if scanner.take("<") {
      self = .send(try OctetPattern(&scanner, wildcards: false, captured: &captured))
      return
    }
    if scanner.take(">") {
      self = .expect(try scanner.expectations(&captured))
      return
    }
    let word = scanner.word()
    switch word {
    case "nothing": self = .nothing(try scanner.duration(otherwise: .seconds(1)))
    case "wait": self = .wait(try scanner.duration(otherwise: nil))
    case "ignore":
      scanner.skipSpace()
      let at = scanner.at, pattern = try OctetPattern(&scanner, wildcards: true, captured: &captured)
      guard !pattern.parts.isEmpty else {
        throw scanner.failure("octets are missing; what is passed over is one PDU", at: at)
      }
      self = .ignore(pattern)
    case "closed": self = .closed
    case "reconnect": self = .reconnect
    case "result": self = .result(try scanner.result(&captured))
    case "value":
      let kind = try scanner.choice("how it came", ["notification": ValueKind.notification, "indication": .indication])
      let handle = try scanner.handle()
      self = .value(kind, handle, try OctetPattern(&scanner, wildcards: true, captured: &captured))
    case "asks":
      let kind = try scanner.choice("what it asks", ApplicationEvent.Kind.asked)
      self = .event(kind, try OctetPattern(&scanner, wildcards: true, captured: &captured))
    case "shows":
      let kind = try scanner.choice("what it shows", ApplicationEvent.Kind.shown)
      self = .event(kind, try OctetPattern(&scanner, wildcards: true, captured: &captured))
    case let word where ApplicationEvent.Kind.ofChannels[word] != nil:
      self = .event(
        ApplicationEvent.Kind.ofChannels[word] ?? .opened,
        try OctetPattern(&scanner, wildcards: true, captured: &captured))
    case "key": self = .key(try OctetPattern(&scanner, wildcards: true, captured: &captured))
    case "check":
      let left = try OctetPattern(&scanner, wildcards: false, captured: &captured)
      let isEqual = !scanner.take("!")
      guard scanner.take("=") else { throw scanner.failure("= or != is missing, as in check {a} = {b}") }
      self = .check(left, try OctetPattern(&scanner, wildcards: false, captured: &captured), isEqual: isEqual)
    case "let":
      scanner.skipSpace()
      let name = scanner.word()
      scanner.skipSpace()
      guard !name.isEmpty, scanner.take("=") else {
        throw scanner.failure("a name and its octets are missing, as in let nonce = 01*16")
      }
      self = .define(name, try OctetPattern(&scanner, wildcards: false, captured: &captured))
      captured.insert(name)
    default:
      scanner.at = start
      guard let command = try Command(&scanner, captured: &captured) else {
        throw scanner.failure(
          word.isEmpty
            ? "this does not begin a step; a PDU is sent with < and expected with >"
            : "\"\(word)\" is not a step; the steps are <, >, nothing, wait, ignore, closed, reconnect, result, value, asks, "
              + "shows, opened, failed, ended, received, key, check, let, repeat, either, or, end, "
              + Command.words.joined(separator: ", "), at: start)
      }
      self = .command(command)
    }
  }
}

extension Command {
  static let words =
    [
      "mtu", "security", "signing", "authorized", "unauthorized", "set", "notify", "indicate", "insert", "remove",
      "call",
      "pairing", "pair", "request-security", "answer", "encryption",
    ] + ChannelCommand.words

  /// nil if there is no command.
  init?(_ scanner: inout Scanner, captured: inout Set<String>) throws(FileError) {
    let start = scanner.at
    switch scanner.word() {
    case "mtu":
      scanner.skipSpace()
      let at = scanner.at, mtu = try scanner.number("the receive MTU in octets")
      guard Bearer.defaultMTU...Bearer.largestMTU ~= mtu else {
        throw scanner.failure(
          """
          an MTU is \(Bearer.defaultMTU) to \(Bearer.largestMTU) octets; a smaller one is not legal, a greater one has \
          no benefit
          """,
          at: at)
      }
      self = .mtu(mtu)
    case "security":
      let security = try scanner.choice("how the link is protected", BearerSecurity.words)
      scanner.skipSpace()
      let at = scanner.at, keySize = scanner.isAtEnd ? 16 : try scanner.number("the key's octets, 7 to 16")
      guard 7...16 ~= keySize else { throw scanner.failure("a key has 7 to 16 octets (Vol 3, Part H, §2.3.4)", at: at) }
      self = .security(security, keySize: keySize)
    case "signing":
      scanner.skipSpace()
      let at = scanner.at, key = try scanner.octets()
      guard key.count == 16 else { throw scanner.failure("a signature key has 16 octets", at: at) }
      guard scanner.take(",") else { throw scanner.failure("a comma and a counter are missing after the key") }
      scanner.skipSpace()
      let counter = try scanner.number("the counter of a signature")
      guard let counter = UInt32(exactly: counter) else {
        throw scanner.failure("a counter has 32 bits (Vol 3, Part H, §2.4.5)", at: at)
      }
      scanner.skipSpace()
      let isAuthenticated = scanner.isAtEnd ? false : try scanner.choice("how the key is", ["authenticated": true])
      self = .signing(key, counter: counter, isAuthenticated: isAuthenticated)
    case "authorized": self = .authorized(true)
    case "unauthorized": self = .authorized(false)
    case "set": self = .set(try scanner.handle(), try scanner.octets())
    case "notify": self = .notify(try scanner.handlesAndOctets())
    case "indicate": self = .indicate(try scanner.handle(), try scanner.octets())
    case "insert":
      let path = scanner.path()
      guard !path.isEmpty else { throw scanner.failure("a database file is missing, as more.json") }
      self = .insert(ScriptFile(path: scanner.file).neighbour(path))
    case "remove": self = .remove(try scanner.handle())
    case "call": self = .call(try ProcedureCall(&scanner))
    case "pairing": self = .pairing(try PairingOption(&scanner, captured: &captured))
    case "pair": self = .pair
    case "request-security": self = .requestSecurity
    case "answer": self = .answer(try UsersAnswer(&scanner))
    case "encryption": self = .encryption(try scanner.choice("on or off", onOrOff))
    default:
      scanner.at = start
      guard let command = try ChannelCommand(&scanner, captured: &captured) else { return nil }
      self = .channels(command)
    }
  }
  /// A command on a line of its own, as received over a control connection.
  public init?(line: String, file: String) throws(FileError) {
    var scanner = Scanner(line, file: file, line: 1), nothing: Set<String> = []
    scanner.skipSpace()
    try self.init(&scanner, captured: &nothing)
    scanner.skipSpace()
    guard scanner.isAtEnd else { throw scanner.failure("the line should end here") }
  }
}

private let onOrOff = ["on": true, "off": false]

extension ChannelCommand {
  static let words = [
    "listen", "decide", "connect", "send", "close", "reading", "reconfigure", "fragments", "parameters",
  ]

  /// nil if there is no such command.
  init?(_ scanner: inout Scanner, captured: inout Set<String>) throws(FileError) {
    switch scanner.word() {
    case "listen":
      let spsm = try scanner.spsm()
      self = .listen(spsm, try scanner.offer(try scanner.lengths(least: 23)))
    case "decide": self = .decide
    case "connect":
      let spsm = try scanner.spsm(), at = scanner.at
      let lengths = try scanner.lengths(least: 23)
      scanner.skipSpace()
      guard !scanner.isAtEnd else {
        self = .connect(spsm, lengths, enhanced: nil)
        return
      }
      _ = try scanner.choice("what kind", ["enhanced": true])
      scanner.skipSpace()
      let place = scanner.at, count = try scanner.number("how many channels, as in enhanced 5")
      guard 1...ChannelList.most ~= count else {
        throw scanner.failure("one to five channels are asked for at once (Vol 3, Part A, §4.25)", at: place)
      }
      guard lengths.mtu >= 64, lengths.mps >= 64 else {
        throw scanner.failure("an enhanced channel has an MTU and an MPS of 64 or more (Vol 3, Part A, §4.25)", at: at)
      }
      self = .connect(spsm, lengths, enhanced: count)
    case "send": self = .send(try scanner.channelAndOctets(&captured))
    case "close": self = .close(try scanner.channelAndOctets(&captured))
    case "reading": self = .reading(try scanner.choice("on or off", onOrOff))
    case "reconfigure":
      let lengths = try scanner.lengths(least: 64)
      self = .reconfigure(lengths, try scanner.channelAndOctets(&captured))
    case "fragments":
      scanner.skipSpace()
      let at = scanner.at, count = try scanner.number("the octets of a packet, as in fragments 27")
      guard 1...65_535 ~= count else { throw scanner.failure("a packet has 1 to 65535 octets", at: at) }
      self = .fragments(count)
    case "parameters":
      var numbers: [UInt16] = []
      for what in ["the least interval", "the greatest interval", "the latency", "the timeout"] {
        scanner.skipSpace()
        let at = scanner.at, number = try scanner.number("\(what), as in parameters 24 40 0 500")
        guard let number = UInt16(exactly: number) else { throw scanner.failure("\(what) has 16 bits", at: at) }
        numbers.append(number)
      }
      self = .parameters(
        ConnectionParameterUpdateRequest(
          intervalMin: ConnectionInterval(rawValue: numbers[0]), intervalMax: ConnectionInterval(rawValue: numbers[1]),
          latency: numbers[2], timeout: SupervisionTimeout(rawValue: numbers[3])))
    default: return nil
    }
  }
}

extension Scanner {
  /// `0x0080`.
  fileprivate mutating func spsm() throws(FileError) -> SPSM {
    skipSpace()
    let start = at, spsm = try number("the SPSM, as 0x0080")
    guard SPSM.all ~= UInt16(clamping: spsm) else {
      throw failure("an SPSM is 0x0001 to 0x00FF (Vol 3, Part A, §4.22)", at: start)
    }
    return SPSM(rawValue: UInt16(spsm))
  }
  /// `mtu 64 mps 64`.
  fileprivate mutating func lengths(least: Int) throws(FileError) -> ChannelLengths {
    var lengths: [UInt16] = []
    for (name, most) in [("mtu", 65_535), ("mps", 65_533)] {
      skipSpace()
      let start = at
      guard word() == name else { throw failure("the lengths are missing, as mtu 64 mps 64", at: start) }
      skipSpace()
      let place = at, length = try number("the octets, as in \(name) 64")
      guard least...most ~= length else {
        throw failure("the \(name) of a channel is \(least) to \(most) octets (Vol 3, Part A, §4.22, §4.25)", at: place)
      }
      lengths.append(UInt16(length))
    }
    return ChannelLengths(mtu: lengths[0], mps: lengths[1])
  }
  /// `most 2 encrypted authorized key16`.
  fileprivate mutating func offer(_ lengths: ChannelLengths) throws(FileError) -> ChannelOffer {
    var offer = ChannelOffer(lengths)
    skipSpace()
    while !isAtEnd {
      let start = at, word = word()
      switch word {
      case "most":
        skipSpace()
        offer.most = try number("how many channels, as in most 2")
      case "encrypted": offer.security = .encrypted
      case "authenticated": offer.security = .authenticated
      case "authorized": offer.needsAuthorization = true
      case "later": offer.decidesLater = true
      default:
        guard word.hasPrefix("key"), let size = Int(word.dropFirst(3)), 7...16 ~= size else {
          throw failure(
            "what may follow is most 2, encrypted, authenticated, authorized, key7 to key16, later", at: start)
        }
        offer.keySize = size
      }
      skipSpace()
    }
    return offer
  }
  /// The number of a channel, in two octets or a name, and what follows.
  fileprivate mutating func channelAndOctets(_ captured: inout Set<String>) throws(FileError) -> OctetPattern {
    skipSpace()
    let start = at, pattern = try OctetPattern(&self, wildcards: false, captured: &captured)
    guard !pattern.parts.isEmpty else { throw failure("the number of a channel is missing, as {cid}", at: start) }
    return pattern
  }
}

extension PairingOption {
  init(_ scanner: inout Scanner, captured: inout Set<String>) throws(FileError) {
    scanner.skipSpace()
    let start = scanner.at, name = scanner.word()
    func onOff() throws(FileError) -> Bool { try scanner.choice("on or off", onOrOff) }
    switch name {
    case "io":
      scanner.skipSpace()
      let at = scanner.at, io = try scanner.number("an IO capability, 0x00 to 0x04")
      guard 0...4 ~= io else {
        throw scanner.failure("an IO capability is 0x00 to 0x04 (Vol 3, Part H, §3.5.1)", at: at)
      }
      self = .ioCapability(UInt8(io))
    case "mitm":
      self = .protection(
        try scanner.choice("the protection", ["off": .notNeeded, "wanted": .wanted, "required": .required]))
    case "sc":
      self = .secureConnections(
        try scanner.choice("Secure Connections", ["off": .off, "supported": .supported, "only": .only]))
    case "key-size":
      var sizes: [Int] = []
      for _ in 0..<2 {
        scanner.skipSpace()
        let at = scanner.at, size = try scanner.number("the key's octets, as in pairing key-size 7 16")
        guard 7...16 ~= size, size >= sizes.first ?? 7 else {
          throw scanner.failure("a key has 7 to 16 octets, the shortest first (Vol 3, Part H, §2.3.4)", at: at)
        }
        sizes.append(size)
      }
      self = .keySizes(sizes[0]...sizes[1])
    case "sends": self = .sends(try scanner.keys())
    case "takes": self = .takes(try scanner.keys())
    case "identity": self = .identity(try OctetPattern(&scanner, wildcards: false, captured: &captured))
    case "oob-data": self = .peersData(try OctetPattern(&scanner, wildcards: false, captured: &captured))
    case "oob-own": self = .ownData
    case "bonding": self = .bonding(try onOff())
    case "keypresses": self = .keypresses(try onOff())
    case "oob-required": self = .requiresOutOfBand(try onOff())
    case "debug-key": self = .acceptsDebugKey(try onOff())
    case "accepts": self = .accepts(try onOff())
    case "consents": self = .consents(try onOff())
    case "on-demand": self = .onDemand(try onOff())
    default:
      throw scanner.failure(
        "\"\(name)\" is not a setting; the settings are io, mitm, sc, bonding, key-size, keypresses, sends, takes, "
          + "identity, oob-data, oob-own, oob-required, debug-key, accepts, consents, on-demand", at: start)
    }
  }
}

extension UsersAnswer {
  init(_ scanner: inout Scanner) throws(FileError) {
    scanner.skipSpace()
    let start = scanner.at
    switch scanner.word() {
    case "yes": self = .yes
    case "no": self = .no
    case "passkey":
      scanner.skipSpace()
      let at = scanner.at
      guard let passkey = UInt32(scanner.word()) else { throw scanner.failure("a passkey is six digits", at: at) }
      self = .passkey(passkey)
    case "keypress":
      scanner.skipSpace()
      let at = scanner.at, key = try scanner.number("a keypress, 0 to 4")
      guard 0...4 ~= key else { throw scanner.failure("a keypress is 0 to 4 (Vol 3, Part H, §3.5.8)", at: at) }
      self = .keypress(UInt8(key))
    default: throw scanner.failure("an answer is yes, no, passkey 123456 or keypress 1", at: start)
    }
  }
}

extension ProcedureCall {
  static let names = [
    "exchange-mtu", "discover-all", "discover-services", "discover-includes", "discover-characteristics",
    "discover-descriptors", "read", "read-long", "read-uuid", "read-multiple", "read-multiple-variable", "write",
    "write-without-response", "write-signed", "write-long", "write-reliable", "subscribe", "unsubscribe",
    "read-database-hash",
    "follow-changes",
  ]

  init(_ scanner: inout Scanner) throws(FileError) {
    scanner.skipSpace()
    let start = scanner.at, name = scanner.word()
    switch name {
    case "exchange-mtu": self = .exchangeMTU
    case "discover-all": self = .discoverAll
    case "discover-services": self = .discoverServices(try scanner.uuidIfAny())
    case "discover-includes": self = .discoverIncludes(try scanner.range())
    case "discover-characteristics": self = .discoverCharacteristics(try scanner.range(), try scanner.uuidIfAny())
    case "discover-descriptors": self = .discoverDescriptors(try scanner.range())
    case "read": self = .read(try scanner.handle())
    case "read-long": self = .readLong(try scanner.handle())
    case "read-uuid":
      guard let uuid = try scanner.uuidIfAny() else { throw scanner.failure("a UUID is missing, as in read-uuid 2A00") }
      scanner.skipSpace()
      self = .readUUID(uuid, scanner.isAtEnd ? .all : try scanner.range())
    case "read-multiple": self = .readMultiple(try scanner.handles())
    case "read-multiple-variable": self = .readMultipleVariable(try scanner.handles())
    case "write": self = .write(try scanner.handle(), try scanner.octets())
    case "write-without-response": self = .writeWithoutResponse(try scanner.handle(), try scanner.octets())
    case "write-signed": self = .writeSigned(try scanner.handle(), try scanner.octets())
    case "write-long": self = .writeLong(try scanner.handle(), try scanner.octets())
    case "write-reliable":
      self = .writeReliable(try scanner.handlesAndOctets())
    case "subscribe":
      let handle = try scanner.handle()
      self = .subscribe(
        handle,
        try scanner.choice("what to subscribe to", ["notifications": .notification, "indications": .indication]))
    case "unsubscribe": self = .unsubscribe(try scanner.handle())
    case "read-database-hash": self = .readDatabaseHash
    case "follow-changes": self = .followChanges
    default:
      throw scanner.failure(
        "\"\(name)\" is not a procedure; the procedures are \(Self.names.joined(separator: ", "))", at: start)
    }
  }
}

extension Scanner {
  fileprivate mutating func duration(otherwise: Duration?) throws(FileError) -> Duration {
    skipSpace()
    if isAtEnd, let otherwise { return otherwise }
    let start = at
    guard let duration = Duration(script: word()) else {
      throw failure("a time is missing, as 250ms or 30s, an hour at most", at: start)
    }
    return duration
  }
  fileprivate mutating func expectations(_ captured: inout Set<String>) throws(FileError) -> [Expectation] {
    var found: [Expectation] = []
    repeat {
      skipSpace()
      let start = at
      switch word() {
      case "nothing": found.append(.nothing)
      case "closed": found.append(.closed)
      default:
        at = start
        let pattern = try OctetPattern(&self, wildcards: true, captured: &captured)
        guard !pattern.parts.isEmpty else {
          throw failure("octets are missing; what must come back is one PDU", at: start)
        }
        found.append(.pdu(pattern))
      }
      skipSpace()
    } while take("|")
    return found
  }
  fileprivate mutating func choice<Value>(_ what: String, _ choices: [String: Value]) throws(FileError) -> Value {
    skipSpace()
    let start = at
    guard let value = choices[word()] else {
      throw failure("\(what) is missing: \(choices.keys.sorted().joined(separator: ", "))", at: start)
    }
    return value
  }
  /// `0x0012`.
  mutating func handle() throws(FileError) -> AttributeHandle {
    skipSpace()
    let start = at, word = word()
    guard word.hasPrefix("0x"), let raw = UInt16(word.dropFirst(2), radix: 16) else {
      throw failure("a handle is missing, as 0x0012", at: start)
    }
    return AttributeHandle(rawValue: raw)
  }
  fileprivate mutating func handles() throws(FileError) -> [AttributeHandle] {
    var handles: [AttributeHandle] = []
    repeat {
      handles.append(try handle())
      skipSpace()
    } while !isAtEnd
    return handles
  }
  /// `0x0012 01 02, 0x0015 03`.
  fileprivate mutating func handlesAndOctets() throws(FileError) -> [HandleOctets] {
    var values: [HandleOctets] = []
    repeat {
      values.append(HandleOctets(handle: try handle(), octets: try octets()))
    } while take(",")
    return values
  }
  /// Up to white space or the end of the line.
  fileprivate mutating func path() -> String {
    skipSpace()
    var path = ""
    while !isAtEnd, let next, !next.isWhitespace {
      path.append(next)
      at += 1
    }
    return path
  }
  /// `0x0001-0x0005`.
  fileprivate mutating func range() throws(FileError) -> HandleRange {
    skipSpace()
    let start = at, words = word().split(separator: "-", omittingEmptySubsequences: false)
    let numbers = words.compactMap { $0.hasPrefix("0x") ? UInt16($0.dropFirst(2), radix: 16) : nil }
    guard words.count == 2, numbers.count == 2 else {
      throw failure("a range of handles is missing, as 0x0001-0x0005", at: start)
    }
    return HandleRange(AttributeHandle(rawValue: numbers[0]), AttributeHandle(rawValue: numbers[1]))
  }
  fileprivate mutating func uuidIfAny() throws(FileError) -> BluetoothUUID? {
    skipSpace()
    if isAtEnd || next == "," { return nil }
    let start = at
    guard let uuid = BluetoothUUID(word()) else {
      throw failure("no UUID; a UUID is 180F or A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00", at: start)
    }
    return uuid
  }
  /// `enc id sign`, or `none`: keys to distribute. Vol 3, Part H, §3.6.1.
  fileprivate mutating func keys() throws(FileError) -> KeyDistribution {
    var keys: KeyDistribution = []
    skipSpace()
    if take("none") { return keys }
    repeat {
      let start = at, word = word()
      guard let key = KeyDistribution.words.first(where: { $0.word == word })?.key else {
        throw failure("the keys are enc, id and sign, or none", at: start)
      }
      keys.insert(key)
      skipSpace()
    } while !isAtEnd
    return keys
  }
  /// Octets without wildcards and names.
  fileprivate mutating func octets() throws(FileError) -> [UInt8] {
    var nothing: Set<String> = []
    let start = at
    guard let octets = try OctetPattern(&self, wildcards: false, captured: &nothing).octets else {
      throw failure("a function in the octets of a value; write the octets", at: start)
    }
    return octets
  }

  fileprivate mutating func result(_ captured: inout Set<String>) throws(FileError) -> ExpectedResult {
    skipSpace()
    let start = at, word = word()
    if let kind = Found(rawValue: word) { return .found(kind, try items(kind)) }
    switch word {
    case "done": return .done
    case "failed": return .failed
    case "timeout": return .timeout
    case "paired": return .paired(try paired())
    case "pairing-failed":
      skipSpace()
      let at = at, reason = try number("the reason, as in result pairing-failed 0x04")
      guard 1...255 ~= reason else { throw failure("a reason is 0x01 to 0xFF (Vol 3, Part H, §3.5.5)", at: at) }
      return .pairingFailed(PairingFailure(rawValue: UInt8(reason)))
    case "encrypted": return .encrypted
    case "value": return .value(try OctetPattern(&self, wildcards: true, captured: &captured))
    case "values":
      var values: [ExpectedResult.Value] = []
      repeat {
        let handle = try handle()
        values.append(
          ExpectedResult.Value(
            handle: handle, octets: try OctetPattern(&self, wildcards: true, captured: &captured)))
      } while take(",")
      return .values(values)
    case "error":
      skipSpace()
      let code = try number("the ATT error, as in result error 0x0A")
      guard 1...255 ~= code else { throw failure("an ATT error is 0x01 to 0xFF", at: start) }
      skipSpace()
      return .error(ATTError(rawValue: UInt8(code)), isAtEnd ? nil : try handle())
    default:
      throw failure(
        "\"\(word)\" is not a result; a result is done, value, values, error, failed, timeout, services, "
          + "secondary-services, includes, characteristics, descriptors, paired, pairing-failed or encrypted",
        at: start)
    }
  }
  /// `passkey-entry legacy 16`.
  private mutating func paired() throws(FileError) -> PairedBy {
    let methods = Dictionary(uniqueKeysWithValues: PairedBy.Method.allCases.map { ($0.rawValue, $0) })
    let method = try choice("the method", methods)
    let isSecureConnections = try choice("the kind", ["legacy": false, "secure-connections": true])
    skipSpace()
    let at = at, keySize = isAtEnd ? 16 : try number("the key's octets, 7 to 16")
    guard 7...16 ~= keySize else { throw failure("a key has 7 to 16 octets (Vol 3, Part H, §2.3.4)", at: at) }
    return PairedBy(method, isSecureConnections: isSecureConnections, keySize: keySize)
  }
  /// `none`, or items separated by commas.
  private mutating func items(_ kind: Found) throws(FileError) -> [String] {
    skipSpace()
    if take("none") { return [] }
    var items: [String] = []
    repeat {
      switch kind {
      case .services, .secondaryServices:
        let range = try range()
        items.append(kind.item(range: range, uuid: try uuidIfAny()))
      case .includes:
        let handle = try handle(), range = try range()
        items.append(kind.item(handle, range: range, uuid: try uuidIfAny()))
      case .characteristics:
        let handle = try handle(), value = try self.handle()
        skipSpace()
        let properties = try number("the properties, as 0x12")
        items.append(kind.item(handle, value, properties: UInt8(clamping: properties), uuid: try uuidIfAny()))
      case .descriptors:
        let handle = try handle()
        items.append(kind.item(handle, uuid: try uuidIfAny()))
      }
      skipSpace()
    } while take(",")
    return items
  }
}

extension Found {
  /// The only spelling of an item.
  public func item(
    _ handle: AttributeHandle? = nil, _ value: AttributeHandle? = nil, range: HandleRange? = nil,
    properties: UInt8? = nil, uuid: BluetoothUUID?
  ) -> String {
    var words: [String] = []
    if let handle { words.append(handle.script) }
    if let value { words.append(value.script) }
    if let range { words.append("\(range.first.script)-\(range.last.script)") }
    if let properties { words.append("0x" + hexDigits(UInt64(properties), 2)) }
    if let uuid { words.append(uuid.description) }
    return words.joined(separator: " ")
  }
}

extension AttributeHandle {
  /// In the syntax of scripts: `0x0012`.
  public var script: String { "0x" + hexDigits(UInt64(rawValue), 4) }
}
