import BindruneATT
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import BindruneToolbox
import BindruneWire

/// What a script's PDUs belong to: one fixed channel, or all channels of a link (Vol 3, Part A, §2.1), each PDU with
/// its channel's number in front.
public enum Channel: String, Sendable, CaseIterable {
  case att, smp, l2cap
}

/// The half of the stack under test that a script examines.
public enum Side: String, Sendable, CaseIterable {
  case server, client
}

/// A conformance script: what a tester sends, and how the side under test must answer. `Fixtures/Scripts/FORMAT.md`.
public struct Script: Sendable {
  /// Its name in errors and results.
  public var file: String
  public var title = ""
  /// The section of the Specification that requires it.
  public var section = ""
  /// The path of the server's database, relative to the script.
  public var database: String?
  public var side: Side?
  public var channel = Channel.att
  /// Of a script for `smp`: the side under test, the addresses of the link, and the tester's key pair.
  public var pairing = PairingRoles()
  /// Of a script for `l2cap`: the side under test.
  public var linkRole = LinkRole.peripheral
  /// The values of this case, if the file has a list of cases: `01 04`.
  public var variant: String?
  public var steps: [Step] = []
}

/// Who pairs with whom in a script.
public struct PairingRoles: Sendable {
  /// Of the side under test; the tester has the other one.
  public var role: PairingRole?
  public var addresses = PairingAddresses(
    initiator: PairingAddress(DeviceAddress(0xC000_5E00_5301), isRandom: true),
    responder: PairingAddress(DeviceAddress(0x0000_5E00_5302), isRandom: false))
  public var testersKey = TestersKey.sample
  public init() {}
}

/// The tester's private key for LE Secure Connections, which everybody knows.
public enum TestersKey: String, Sendable, CaseIterable {
  /// The private key of device B in the sample data. Vol 2, Part G, §7.1.2.1.
  case sample
  /// The debug key. Vol 3, Part H, §2.3.5.6.1.
  case debug
}

/// One line of a script.
public struct Step: Sendable, Equatable {
  public var line: Int
  /// The line without its comment.
  public var text: String
  public var action: Action

  public init(line: Int, text: String, action: Action) {
    self.line = line
    self.text = text
    self.action = action
  }
}

public enum Action: Sendable, Equatable {
  /// `< 0A 03 00`: the tester sends a PDU.
  case send(OctetPattern)
  /// `> 0B 01 | 01 0A 03 00 0E`: the next PDU from the side under test is one of these.
  case expect([Expectation])
  /// `nothing 5s`: no PDU arrives within this time.
  case nothing(Duration)
  /// `wait 30s`: time passes. PDUs that arrive meanwhile are kept.
  case wait(Duration)
  /// `ignore 05 00 16 ...`: from here on, a PDU like this that no step expects is passed over.
  case ignore(OctetPattern)
  /// `closed`: the side under test has closed the bearer.
  case closed
  /// `reconnect`: the bearer ends, and a new one begins.
  case reconnect
  /// A command for the side under test.
  case command(Command)
  /// `result value 01 02`: how the last procedure ended.
  case result(ExpectedResult)
  /// `value notification 0x0012 01 02`: a value that the client under test passes to its application.
  case value(ValueKind, AttributeHandle, OctetPattern)
  /// `asks passkey`, `shows passkey {passkey:4}`: what the side under test asks its application or user, or tells them.
  case event(ApplicationEvent.Kind, OctetPattern)
  /// `key s1(00*16, {nr}, {ni})`: the key with which the side under test has its controller encrypt the link.
  case key(OctetPattern)
  /// `check {confirm} = f4(…)`, or `!=`: whether octets are equal.
  case check(OctetPattern, OctetPattern, isEqual: Bool)
  /// `let nonce = 01*16`: a name for octets.
  case define(String, OctetPattern)
  /// `repeat 20` … `end`.
  case repeated(Count, [Step])
  /// `either` … `or` … `end`: the branch whose first expectation matches the next PDU.
  case either([[Step]])
}

/// How often a block is repeated.
public enum Count: Sendable, Equatable {
  case fixed(Int)
  /// As often as these octets say, the least significant first: the credits that a PDU has given.
  case captured(String)
}

public enum Expectation: Sendable, Equatable {
  case pdu(OctetPattern)
  case nothing
  case closed
}

/// A command or a state for the side under test, which no PDU can express.
public enum Command: Sendable, Equatable {
  /// `mtu 64`: its receive MTU in an exchange. Before the first PDU only.
  case mtu(Int)
  /// `security encrypted 7`: the link's protection from here on, and the octets of its key.
  case security(BearerSecurity, keySize: Int)
  /// `signing 01 … 10 7 authenticated`: the key of signed writes; the counter of a client's next one, or the least that
  /// a server accepts; the key was distributed with protection against a man in the middle.
  case signing([UInt8], counter: UInt32, isAuthenticated: Bool)
  /// `authorized`, `unauthorized`: whether the application authorizes the client.
  case authorized(Bool)
  /// `set 0x0012 01 02`: the application changes a value.
  case set(AttributeHandle, [UInt8])
  /// `notify 0x0012 01 02`; `indicate …`. The side under test may refuse if the client has not subscribed. Several
  /// values go in one PDU to a client that supports it: Vol 3, Part G, §4.10.2.
  case notify([HandleOctets])
  case indicate(AttributeHandle, [UInt8])
  /// `insert FILE.json`: inserts the services of that file into the database.
  case insert(String)
  /// `remove 0x0030`: removes the service declared there.
  case remove(AttributeHandle)
  /// `call read 0x0012`: a procedure of the client.
  case call(ProcedureCall)
  /// `pairing io 0x04`: a setting of the side under test.
  case pairing(PairingOption)
  /// `pair`: the initiator starts. Vol 3, Part H, §2.3.
  case pair
  /// `request-security`: the responder asks for it. Vol 3, Part H, §2.4.6.
  case requestSecurity
  /// `answer passkey 123456`: the user of the side under test answers.
  case answer(UsersAnswer)
  /// `encryption on`: the controller of the side under test reports this.
  case encryption(Bool)
  /// `listen 0x0080 mtu 64 mps 64` and the like: what its application does with channels.
  case channels(ChannelCommand)
}

/// What the application of the side under test does with credit-based channels, and what its link does. A channel is
/// named by its number at the side under test, two octets, the least significant first.
public enum ChannelCommand: Sendable, Equatable {
  /// `listen 0x0080 mtu 64 mps 64 most 2 encrypted key16`: it accepts channels from here on.
  case listen(SPSM, ChannelOffer)
  /// `decide`: it answers the requests that wait for it.
  case decide
  /// `connect 0x0080 mtu 64 mps 64`, `connect 0x0027 mtu 64 mps 64 enhanced 5`: it asks for one channel, or for enhanced
  /// ones.
  case connect(SPSM, ChannelLengths, enhanced: Int?)
  /// `send {cid} 01 02`: an SDU.
  case send(OctetPattern)
  /// `close {cid}`: the channel ends when all SDUs have left; or the application no longer wants one that is not
  /// open.
  case close(OctetPattern)
  /// `reading off`: it takes no SDUs from here on.
  case reading(Bool)
  /// `reconfigure mtu 128 mps 64 {cid} {cid}`: the lengths that it accepts from here on.
  case reconfigure(ChannelLengths, OctetPattern)
  /// `fragments 7`: the tester's PDUs arrive in packets of this many octets.
  case fragments(Int)
  /// `parameters 24 40 0 500`: a peripheral asks for these connection parameters. Vol 3, Part A, §4.20.
  case parameters(ConnectionParameterUpdateRequest)
}

/// The longest SDU and the longest payload of a K-frame that one side of a channel accepts.
public struct ChannelLengths: Sendable, Equatable {
  public var mtu: UInt16
  public var mps: UInt16

  public init(mtu: UInt16, mps: UInt16) {
    self.mtu = mtu
    self.mps = mps
  }
}

/// What a listening application accepts.
public struct ChannelOffer: Sendable, Equatable {
  public var lengths: ChannelLengths
  /// The limit of channels that are open at the same time.
  public var most: Int?
  /// The protection of the link that it requires, `.none`, `.encrypted` or `.authenticated`, and the octets of the key.
  public var security = BearerSecurity.none
  public var keySize: Int?
  public var needsAuthorization = false
  /// Requests wait for `decide`.
  public var decidesLater = false

  public init(_ lengths: ChannelLengths) { self.lengths = lengths }
}

/// A setting of the side under test, before it pairs.
public enum PairingOption: Sendable, Equatable {
  case ioCapability(UInt8)
  case protection(PairingSettings.Protection)
  case secureConnections(PairingSettings.SecureConnections)
  case bonding(Bool)
  case keySizes(ClosedRange<Int>)
  case keypresses(Bool)
  /// The keys that it sends, and those that it wants.
  case sends(KeyDistribution)
  case takes(KeyDistribution)
  /// Its IRK and its identity address: 16 and 7 octets.
  case identity(OctetPattern)
  /// What the tester has given it out of band: the temporary key, or a confirm value and a random number.
  case peersData(OctetPattern)
  /// It makes data for the tester, and shows them.
  case ownData
  case requiresOutOfBand(Bool)
  case acceptsDebugKey(Bool)
  case accepts(Bool)
  case consents(Bool)
  /// A client: it secures the link when the server refuses a request for lack of security.
  case onDemand(Bool)
}

public enum UsersAnswer: Sendable, Equatable {
  case yes, no
  case passkey(UInt32)
  case keypress(UInt8)
}

/// A procedure of Vol 3, Part G, §4, by its name.
public enum ProcedureCall: Sendable, Equatable {
  case exchangeMTU
  case discoverAll
  case discoverServices(BluetoothUUID?)
  case discoverIncludes(HandleRange)
  case discoverCharacteristics(HandleRange, BluetoothUUID?)
  case discoverDescriptors(HandleRange)
  case read(AttributeHandle)
  case readLong(AttributeHandle)
  case readUUID(BluetoothUUID, HandleRange)
  case readMultiple([AttributeHandle])
  case readMultipleVariable([AttributeHandle])
  case write(AttributeHandle, [UInt8])
  case writeWithoutResponse(AttributeHandle, [UInt8])
  case writeSigned(AttributeHandle, [UInt8])
  case writeLong(AttributeHandle, [UInt8])
  case writeReliable([HandleOctets])
  case subscribe(AttributeHandle, ClientCharacteristicConfiguration)
  case unsubscribe(AttributeHandle)
  case readDatabaseHash
  /// Tells the server that the client supports robust caching and Multiple Handle Value Notifications, and subscribes
  /// to Service Changed.
  case followChanges
}

public struct HandleOctets: Sendable, Equatable {
  public var handle: AttributeHandle
  public var octets: [UInt8]

  public init(handle: AttributeHandle, octets: [UInt8]) {
    self.handle = handle
    self.octets = octets
  }
}

/// How a procedure must end.
public enum ExpectedResult: Sendable, Equatable {
  case done
  case value(OctetPattern)
  case values([Value])
  /// `result error 0x0A`, or with the handle in error.
  case error(ATTError, AttributeHandle?)
  /// Any failure: an ATT error, an invalid response, the end of the bearer.
  case failed
  /// No response within the time allowed: Vol 3, Part F, §3.3.3.
  case timeout
  /// `result services 0x0001-0x0005 1800, …`: everything found, in handle order.
  case found(Found, [String])
  /// `result paired passkey-entry legacy 16`.
  case paired(PairedBy)
  /// `result pairing-failed 0x04`: the reason in Pairing Failed, of either side. Vol 3, Part H, §3.5.5.
  case pairingFailed(PairingFailure)
  /// `result encrypted`: an earlier key protects the link.
  case encrypted

  public struct Value: Sendable, Equatable {
    public var handle: AttributeHandle
    public var octets: OctetPattern

    public init(handle: AttributeHandle, octets: OctetPattern) {
      self.handle = handle
      self.octets = octets
    }
  }
}

/// How a pairing has succeeded: the method, the kind, the octets of its key.
public struct PairedBy: Sendable, Equatable {
  public enum Method: String, Sendable, CaseIterable {
    case justWorks = "just-works"
    case numericComparison = "numeric-comparison"
    case passkeyEntry = "passkey-entry"
    case outOfBand = "out-of-band"
  }
  public var method: Method
  public var isSecureConnections: Bool
  public var keySize: Int

  public init(_ method: Method, isSecureConnections: Bool, keySize: Int) {
    self.method = method
    self.isSecureConnections = isSecureConnections
    self.keySize = keySize
  }
}

/// The kinds of items that a discovery finds, and their syntax.
public enum Found: String, Sendable, CaseIterable {
  /// `0x0001-0x0005 1800`: primary and secondary services.
  case services
  /// The same of secondary services only.
  case secondaryServices = "secondary-services"
  /// `0x0002 0x0010-0x0014 180F`: the declaration, the service included, its UUID.
  case includes
  /// `0x0003 0x0004 0x12 2A19`: the declaration, the value, the properties, the UUID.
  case characteristics
  /// `0x0005 2902`
  case descriptors
}

extension Script {
  /// Parses `text`; errors name `file`. Of a file with cases, the first one.
  public init(_ text: String, file: String) throws(FileError) {
    self = try Self.all(text, file: file)[0]
  }
  /// The script, or one script for each of its cases.
  public static func all(_ text: String, file: String) throws(FileError) -> [Script] {
    // A line may end with CR LF, which is one Character.
    let lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
    for (index, raw) in lines.enumerated() {
      var scanner = Scanner(String(raw), file: file, line: index + 1)
      scanner.skipSpace()
      if scanner.isAtEnd { continue }
      guard let (key, _) = try scanner.headLine() else { break }
      guard key == "each" else { continue }
      var scripts: [Script] = []
      for values in try scanner.cases() { scripts.append(try Script(lines, file, values)) }
      return scripts
    }
    return [try Script(lines, file, Case())]
  }

  /// Values of names, which stand for them wherever `{name}` is.
  fileprivate struct Case {
    var names: [String] = []
    var values: [String] = []

    func inserted(in line: Substring) -> String {
      var text = String(line)
      for (name, value) in zip(names, values) {
        text = text.split(separator: "{\(name)}", omittingEmptySubsequences: false).joined(separator: value)
      }
      return text
    }
  }

  private init(_ lines: [Substring], _ file: String, _ values: Case) throws(FileError) {
    self.file = file
    variant = values.names.isEmpty ? nil : values.values.joined(separator: " ")
    var isHead = true, seen: Set<String> = [], captured: Set<String> = [], role: Role?
    var blocks = Blocks()
    for (index, raw) in lines.enumerated() {
      var scanner = Scanner(isHead ? String(raw) : values.inserted(in: raw), file: file, line: index + 1)
      scanner.skipSpace()
      if scanner.isAtEnd { continue }
      if isHead, let (key, value) = try scanner.headLine() {
        guard seen.insert(key).inserted else {
          throw scanner.failure("\(key): is a duplicate; remove one", at: 0)
        }
        if key == "role" {
          role = Role(line: index + 1, word: try scanner.word(value, key, Role.words))
        } else {
          try take(key, value, scanner)
        }
        continue
      }
      if isHead {
        isHead = false
        try take(role)
        if channel == .smp { captured = Values.namesOfPairing }
        scanner = Scanner(values.inserted(in: raw), file: file, line: index + 1)
        scanner.skipSpace()
      }
      if try blocks.take(&scanner, &captured) { continue }
      let action = try Action(&scanner, captured: &captured)
      scanner.skipSpace()
      guard scanner.isAtEnd else { throw scanner.failure("the line should end here; remove the rest") }
      if action.comesFirst, blocks.steps.all.contains(where: \.action.isPDU) {
        throw scanner.failure("a PDU precedes it, and this cannot change later; move the line up", at: 0)
      }
      blocks.append(Step(line: index + 1, text: scanner.read(from: 0), action: action))
    }
    steps = try blocks.end(file)
    if title.isEmpty { throw FileError(file, line: 1, "no title; begin the file with \"title: …\"") }
    if steps.isEmpty {
      throw FileError(file, line: 1, "no steps; say what to send with <, and what must come back with >")
    }
    if channel == .smp, pairing.role == nil {
      throw FileError(file, line: 1, "no role under test; add \"role: initiator\" or \"role: responder\"")
    }
  }

  /// The value of `role:`, whose words depend on the channel.
  private struct Role {
    enum Word { case pairing(PairingRole), link(LinkRole) }
    var line: Int
    var word: Word
    static var words: [String: Word] {
      PairingRole.words.mapValues { .pairing($0) }.merging(LinkRole.words.mapValues { .link($0) }) { $1 }
    }
  }
  private mutating func take(_ role: Role?) throws(FileError) {
    guard let role else { return }
    switch (role.word, channel) {
    case (.pairing(let role), .att), (.pairing(let role), .smp): pairing.role = role
    case (.link(let role), .l2cap): linkRole = role
    case (.pairing, .l2cap), (.link, .att), (.link, .smp):
      let words = channel == .l2cap ? "central or peripheral" : "initiator or responder"
      throw FileError(file, line: role.line, "role: of the channel \(channel.rawValue) is \(words)")
    }
  }

  private mutating func take(_ key: String, _ value: String, _ scanner: Scanner) throws(FileError) {
    switch key {
    case "title": title = value
    case "section": section = value
    case "database": database = value
    case "each": break
    case "side": side = try scanner.word(value, key, ["server": .server, "client": .client])
    case "channel": channel = try scanner.word(value, key, ["att": .att, "smp": .smp, "l2cap": .l2cap])
    case "initiator": pairing.addresses.initiator = try scanner.address(value, key)
    case "responder": pairing.addresses.responder = try scanner.address(value, key)
    case "tester-key": pairing.testersKey = try scanner.word(value, key, ["sample": .sample, "debug": .debug])
    default:
      throw scanner.failure(
        "unknown key \(key):; the head has title:, section:, database:, side:, channel:, role:, initiator:, "
          + "responder:, tester-key:, each:", at: 0)
    }
  }
}

/// The blocks that are open while a script is parsed: `repeat` … `end`, `either` … `or` … `end`.
private struct Blocks {
  private enum Kind {
    case repeated(Count)
    case either([[Step]])
  }
  private var open: [(kind: Kind, line: Int, text: String, outer: [Step])] = []
  /// Of the innermost block, or of the script.
  private var current: [Step] = []
  /// All that the parser has seen.
  var steps: [Step] {
    open.flatMap { block in
      if case .either(let branches) = block.kind { block.outer + branches.flatMap(\.self) } else { block.outer }
    } + current
  }

  /// True if the line opens, divides or ends a block.
  mutating func take(_ scanner: inout Scanner, _ captured: inout Set<String>) throws(FileError) -> Bool {
    let start = scanner.at
    switch scanner.word() {
    case "repeat":
      let count = try scanner.count(&captured)
      captured.insert(Values.round)
      begin(.repeated(count), scanner)
    case "either": begin(.either([]), scanner)
    case "or":
      guard let block = open.last, case .either(let branches) = block.kind else {
        throw scanner.failure("or belongs between either and end", at: start)
      }
      open[open.count - 1].kind = .either(branches + [try branch(scanner)])
      current = []
    case "end":
      guard let block = open.popLast() else { throw scanner.failure("nothing is open that could end here", at: start) }
      let action: Action
      switch block.kind {
      case .repeated(let count):
        guard !current.isEmpty else { throw scanner.failure("no steps to repeat", at: start) }
        action = .repeated(count, current)
      case .either(let branches): action = .either(branches + [try branch(scanner)])
      }
      if !open.contains(where: { if case .repeated = $0.kind { true } else { false } }) {
        captured.remove(Values.round)
      }
      current = block.outer + [Step(line: block.line, text: block.text, action: action)]
    default:
      scanner.at = start
      return false
    }
    scanner.skipSpace()
    guard scanner.isAtEnd else { throw scanner.failure("the line should end here; remove the rest") }
    return true
  }
  mutating func append(_ step: Step) { current.append(step) }
  func end(_ file: String) throws(FileError) -> [Step] {
    if let block = open.last { throw FileError(file, line: block.line, "\(block.text): its end is missing") }
    return current
  }

  private mutating func begin(_ kind: Kind, _ scanner: Scanner) {
    open.append((kind, scanner.line, scanner.read(from: 0), current))
    current = []
  }
  private func branch(_ scanner: Scanner) throws(FileError) -> [Step] {
    guard case .expect = current.first?.action else {
      throw scanner.failure("a branch begins with the PDU that selects it, as in > 0A 03 00", at: 0)
    }
    return current
  }
}

extension [Step] {
  /// With the steps of all blocks.
  var all: [Step] {
    flatMap { step in
      switch step.action {
      case .repeated(_, let steps): [step] + steps.all
      case .either(let branches): [step] + branches.flatMap(\.all)
      default: [step]
      }
    }
  }
}

extension Scanner {
  /// How often a block is repeated: `20`, or `{credits}`.
  fileprivate mutating func count(_ captured: inout Set<String>) throws(FileError) -> Count {
    skipSpace()
    let start = at
    if next == "{" {
      let pattern = try OctetPattern(&self, wildcards: false, captured: &captured)
      guard pattern.parts.count == 1, case .captured(let name)? = pattern.parts.first else {
        throw failure("a block is repeated as often as one name says, as in repeat {credits}", at: start)
      }
      return .captured(name)
    }
    let count = try number("how often, as in repeat 20")
    guard 1...256 ~= count else { throw failure("a block is repeated 1 to 256 times", at: start) }
    return .fixed(count)
  }
}

extension LinkRole {
  static let words: [String: LinkRole] = ["central": .central, "peripheral": .peripheral]
  var script: String { self == .central ? "central" : "peripheral" }
}
extension PairingRole {
  static let words: [String: PairingRole] = ["initiator": .initiator, "responder": .responder]
  var script: String { self == .initiator ? "initiator" : "responder" }
}

extension Action {
  /// Whether the step sends, expects or forbids a PDU.
  var isPDU: Bool {
    switch self {
    case .send, .expect, .nothing: true
    default: false
    }
  }
  /// Whether the step must precede every PDU.
  var comesFirst: Bool {
    switch self {
    case .command(.mtu), .command(.pairing(.onDemand)): true
    default: false
    }
  }
  var isCommand: Bool { if case .command = self { true } else { false } }
}

extension Scanner {
  /// `key: value`; nil for any other line.
  fileprivate mutating func headLine() throws(FileError) -> (String, String)? {
    let start = at, key = word()
    guard !key.isEmpty, take(":") else {
      at = start
      return nil
    }
    skipSpace()
    let value = read(from: at)
    guard !value.isEmpty else { throw failure("\(key): has no value; write it after the colon") }
    return (key, value)
  }
  /// `a b = 00 01, 00 02`, after `each:`: names, and the values of each case.
  fileprivate mutating func cases() throws(FileError) -> [Script.Case] {
    var copy = self
    copy.at = 0
    _ = copy.word()
    _ = copy.take(":")
    var names: [String] = [], cases: [Script.Case] = []
    copy.skipSpace()
    while !copy.take("=") {
      let name = copy.word()
      guard !name.isEmpty, !names.contains(name) else {
        throw copy.failure("each: has names, then = and their values, as in each: a b = 00 01, 00 02")
      }
      names.append(name)
      copy.skipSpace()
    }
    repeat {
      var values: [String] = []
      while true {
        copy.skipSpace()
        let value = copy.word()
        if value.isEmpty { break }
        values.append(value)
      }
      guard values.count == names.count, !names.isEmpty else {
        throw copy.failure("a case has a value for each of \(names.joined(separator: ", "))")
      }
      cases.append(Script.Case(names: names, values: values))
    } while copy.take(",")
    guard copy.isAtEnd else { throw copy.failure("a case ends with a comma; its values are words") }
    return cases
  }
  fileprivate func word<Value>(_ word: String, _ key: String, _ words: [String: Value]) throws(FileError) -> Value {
    guard let value = words[word] else {
      throw failure("\(key): is \(words.keys.sorted(by: >).joined(separator: " or "))", at: 0)
    }
    return value
  }
  /// `C0:00:5E:00:53:01 random`, in the head.
  fileprivate func address(_ text: String, _ key: String) throws(FileError) -> PairingAddress {
    guard let address = PairingAddress(script: text) else {
      throw failure("\(key): is an address and its type, as C0:00:5E:00:53:01 random, or … public", at: 0)
    }
    return address
  }
  /// From `start` to the end of the line or its comment, without surrounding space. A # begins a comment at the
  /// beginning of the line or after white space, outside of quotes.
  fileprivate func read(from start: Int) -> String {
    var copy = self
    copy.at = start
    var text = "", isQuoted = false
    while let next = copy.next {
      if next == "\"", text.last != "\\" { isQuoted.toggle() }
      if next == "#", !isQuoted, text.isEmpty || text.last?.isWhitespace == true { break }
      text.append(next)
      copy.at += 1
    }
    while text.last?.isWhitespace == true { text.removeLast() }
    return String(text.drop(while: \.isWhitespace))
  }
}
