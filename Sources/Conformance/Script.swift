import ATT
import BindruneWire
import GATT

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
  public var steps: [Step] = []
}

/// One line of a script.
public struct Step: Sendable, Equatable {
  public var line: Int
  /// The line without its comment.
  public var text: String
  public var action: Action
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

  public struct Value: Sendable, Equatable {
    public var handle: AttributeHandle
    public var octets: OctetPattern

    public init(handle: AttributeHandle, octets: OctetPattern) {
      self.handle = handle
      self.octets = octets
    }
  }
}

/// The kinds of items that a discovery finds, and their syntax.
public enum Found: String, Sendable, CaseIterable {
  /// `0x0001-0x0005 1800`
  case services
  /// `0x0002 0x0010-0x0014 180F`: the declaration, the service included, its UUID.
  case includes
  /// `0x0003 0x0004 0x12 2A19`: the declaration, the value, the properties, the UUID.
  case characteristics
  /// `0x0005 2902`
  case descriptors
}

extension Script {
  /// Parses `text`; errors name `file`.
  public init(_ text: String, file: String) throws(FileError) {
    self.file = file
    var isHead = true, seen: Set<String> = [], captured: Set<String> = []
    // A line may end with CR LF, which is one Character.
    let lines = text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
    for (index, raw) in lines.enumerated() {
      var scanner = Scanner(String(raw), file: file, line: index + 1)
      scanner.skipSpace()
      if scanner.isAtEnd { continue }
      if isHead, let (key, value) = try scanner.headLine() {
        guard seen.insert(key).inserted else {
          throw scanner.failure("\(key): is a duplicate; remove one", at: 0)
        }
        try take(key, value, scanner)
        continue
      }
      isHead = false
      let action = try Action(&scanner, captured: &captured)
      scanner.skipSpace()
      guard scanner.isAtEnd else { throw scanner.failure("the line should end here; remove the rest") }
      if case .command(.mtu) = action, steps.contains(where: \.action.isPDU) {
        throw scanner.failure("a PDU precedes it, and a receive MTU cannot change; move the line up", at: 0)
      }
      steps.append(Step(line: index + 1, text: scanner.read(from: 0), action: action))
    }
    if title.isEmpty { throw FileError(file, line: 1, "no title; begin the file with \"title: …\"") }
    if steps.isEmpty {
      throw FileError(file, line: 1, "no steps; say what to send with <, and what must come back with >")
    }
  }

  private mutating func take(_ key: String, _ value: String, _ scanner: Scanner) throws(FileError) {
    switch key {
    case "title": title = value
    case "section": section = value
    case "database": database = value
    case "side":
      guard let side = Side(rawValue: value) else { throw scanner.failure("side: is server or client", at: 0) }
      self.side = side
    default: throw scanner.failure("unknown key \(key):; the head has title:, section:, database:, side:", at: 0)
    }
  }
}

extension Action {
  /// Whether the step sends, expects or forbids a PDU.
  var isPDU: Bool {
    switch self {
    case .send, .expect, .nothing: true
    default: false
    }
  }
}

extension Action {
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
