import BindruneATT
import BindruneGAP
import BindruneL2CAP
import BindruneWire
import BindruneGATT

/// A GATT database from a JSON file: exactly as written, nothing added. `Fixtures/Scripts/FORMAT.md` defines its
/// contents.
///
///     { "services": [
///         { "uuid": "180F", "handle": "0x0010", "characteristics": [
///             { "uuid": "2A19", "properties": ["read", "notify"], "value": "57",
///               "descriptors": [ { "uuid": "2902" } ] } ] } ] }
public struct DatabaseFile: Sendable {
  public let database: Database
  /// The same, for insertion into another database: `Server.insert`.
  public let services: DatabaseBuilder
  /// The values that the application holds, and how it answers.
  public let applicationValues: [AttributeHandle: ApplicationValue]
  /// The channels that the device offers beside its services.
  public let channels: [DatabaseChannel]
  /// The UUIDs of the primary services that the file describes, in its order.
  public let primaryServices: [BluetoothUUID]
  /// Contents that are legal in a script's database, but probably a mistake in one that is offered to clients.
  public let warnings: [FileError]

  /// No attributes at all.
  public init() {
    database = Database()
    services = DatabaseBuilder()
    applicationValues = [:]
    channels = []
    primaryServices = []
    warnings = []
  }

  /// Parses `text`; errors name `file`.
  ///
  /// With `name` a Generic Access service (Vol 3, Part C, §12) follows the last service of a file that has none, so
  /// that every central can use the database. Without it, nothing is added.
  ///
  /// The services are to be inserted into `existing`: a handle is by default the next one that it has never assigned,
  /// and `database` has the services of both.
  public init(
    _ text: String, file: String, genericAccessName name: String? = nil, after existing: Database = Database()
  ) throws(FileError) {
    var reader = DatabaseReader(file: file)
    reader.builder = DatabaseBuilder(after: existing)
    try reader.read(try JSON(text, file: file))
    if let name, !reader.hasGenericAccess { reader.builder.genericAccess(name: name) }
    services = reader.builder
    applicationValues = reader.applicationValues
    channels = reader.channels
    primaryServices = reader.primaryServices
    warnings = reader.warnings
    do throws(DatabaseError) {
      var whole = existing
      try whole.insert(reader.builder)
      database = whole
    } catch {
      throw reader.explain(error)
    }
  }
}

/// A credit-based channel that peers may open, any number of times. Vol 3, Part A, §4.22.
public struct DatabaseChannel: Sendable, Equatable {
  /// nil: the least dynamic one that is free.
  public var psm: SPSM?
  public var security: ChannelSecurity
  public var action: Action

  /// What becomes of an SDU.
  public enum Action: String, Sendable, CaseIterable { case discard, echo }

  public init(psm: SPSM?, security: ChannelSecurity, action: Action) {
    (self.psm, self.security, self.action) = (psm, security, action)
  }
}

/// A value of the application. The server asks for each read and write, and gets the answer after `delay`.
public struct ApplicationValue: Sendable, Equatable {
  public var value: [UInt8]
  /// The longest value that a write may produce, in octets.
  public var maximum: Int
  public var delay: Duration
  /// The errors with which reads and writes are refused.
  public var readError: ATTError?
  public var writeError: ATTError?

  public init(
    value: [UInt8], maximum: Int = AttributeValue.longest, delay: Duration = .zero, readError: ATTError? = nil,
    writeError: ATTError? = nil
  ) {
    self.value = value
    self.maximum = maximum
    self.delay = delay
    self.readError = readError
    self.writeError = writeError
  }

  /// The application's answer to a read.
  public enum Answer: Sendable, Equatable {
    case value([UInt8])
    case error(ATTError)
  }
  /// The octets from `offset` on.
  public func read(at offset: Int) -> Answer {
    if let readError { return .error(readError) }
    guard offset <= value.count else { return .error(.invalidOffset) }
    return .value(Array(value[offset...]))
  }
  /// Writes `part` at `offset`; nil, or the application's error. A part from the first octet on is the whole value, as
  /// for a Write Request: Vol 3, Part F, §3.4.5.1.
  public mutating func write(_ part: [UInt8], at offset: Int) -> ATTError? {
    if let writeError { return writeError }
    guard offset <= value.count else { return .invalidOffset }
    guard offset + part.count <= maximum else { return .invalidAttributeValueLength }
    value = value[..<offset] + part
    return nil
  }
}

/// Converts JSON into calls of the builder, and remembers the positions of declarations.
private struct DatabaseReader {
  let file: String
  var builder = DatabaseBuilder()
  var applicationValues: [AttributeHandle: ApplicationValue] = [:]
  var channels: [DatabaseChannel] = []
  var hasGenericAccess = false
  var primaryServices: [BluetoothUUID] = []
  var warnings: [FileError] = []
  private var places: [AttributeHandle: JSON.Place] = [:]
  private var last = JSON.Place(line: 1, column: 1)

  init(file: String) { self.file = file }

  mutating func read(_ json: JSON) throws(FileError) {
    let top = try Fields(json, "a database", ["title", "services", "channels"], file)
    _ = try top.string("title")
    for json in try top.required("services", try top.list("services")) {
      let fields = try Fields(
        json, "a service", ["uuid", "type", "handle", "end", "includes", "characteristics"], file)
      try service(fields)
    }
    for json in try top.list("channels") ?? [] {
      try channel(try Fields(json, "a channel", ["psm", "security", "action"], file))
    }
  }

  private mutating func channel(_ fields: Fields) throws(FileError) {
    let psm = try fields.number("psm", 0x0001...0x00FF).map { SPSM(rawValue: UInt16($0)) }
    if let psm, let member = fields.member("psm") {
      let place = member.value.place
      guard psm != .eatt else {
        throw FileError(file, line: place.line, column: place.column, "PSM \(psm.text) is that of ATT; choose another")
      }
      guard !channels.contains(where: { $0.psm == psm }) else {
        throw FileError(
          file, line: place.line, column: place.column, "PSM \(psm.text) is that of a channel above; choose another")
      }
    }
    let security = try fields.choice(
      "security", ["none": ChannelSecurity.none, "encrypted": .encrypted, "authenticated": .authenticated])
    let actions = Dictionary(uniqueKeysWithValues: DatabaseChannel.Action.allCases.map { ($0.rawValue, $0) })
    let action = try fields.required("action", try fields.choice("action", actions))
    channels.append(DatabaseChannel(psm: psm, security: security ?? .none, action: action))
  }

  private mutating func service(_ fields: Fields) throws(FileError) {
    let uuid = try fields.required("uuid", try fields.uuid("uuid"))
    let kind = try fields.choice("type", ["primary": ServiceKind.primary, "secondary": .secondary]) ?? .primary
    let handle = try fields.handle("handle"), end = try fields.handle("end")
    hasGenericAccess = hasGenericAccess || uuid == .genericAccess
    if kind == .primary { primaryServices.append(uuid) }
    // A closure of the builder cannot throw: the error is passed around it. The builder is moved out meanwhile, so that
    // the closure can change the reader without a copy.
    var builder = DatabaseBuilder(), failure: FileError?
    swap(&builder, &self.builder)
    builder.service(uuid, kind, at: handle, end: end) { service in
      places[service.handle] = fields.place
      do throws(FileError) { try contents(fields, &service) } catch { failure = error }
    }
    swap(&builder, &self.builder)
    last = fields.place
    if let failure { throw failure }
  }

  private mutating func contents(_ service: Fields, _ builder: inout ServiceBuilder) throws(FileError) {
    for json in try service.list("includes") ?? [] {
      let fields = try Fields(json, "an include", ["service", "handle"], file)
      let included = try fields.required("service", try fields.handle("service"))
      places[builder.include(included, at: try fields.handle("handle"))] = fields.place
    }
    for json in try service.list("characteristics") ?? [] {
      let fields = try Fields(
        json, "a characteristic", ["uuid", "properties", "handle", "valueHandle", "descriptors"] + Fields.ofValues,
        file)
      let properties = try self.properties(fields)
      let permissions = try self.permissions(
        fields, read: properties.contains(.read) ? .open : .none,
        write: properties.writeAccess)
      let (value, application) = try self.value(fields)
      let uuid = try fields.required("uuid", try fields.uuid("uuid"))
      let handles = builder.characteristic(
        uuid, properties, value: value, permissions: permissions,
        configured: false, at: try fields.handle("handle"), valueAt: try fields.handle("valueHandle"))
      places[handles.declaration] = fields.place
      places[handles.value] = fields.place
      applicationValues[handles.value] = application
      var isConfigurable = false
      for json in try fields.list("descriptors") ?? [] {
        if try descriptor(json, &builder) == .clientCharacteristicConfiguration { isConfigurable = true }
      }
      if !isConfigurable, !properties.isDisjoint(with: [.notify, .indicate]) {
        warnings.append(
          FileError(
            file, line: fields.place.line, column: fields.place.column,
            "\(uuid) notifies or indicates and has no descriptor 2902, so that no client can subscribe to it "
              + "(Vol 3, Part G, §3.3.3.3); add { \"uuid\": \"2902\" } to its descriptors"))
      }
    }
  }

  /// Returns its UUID.
  private mutating func descriptor(_ json: JSON, _ builder: inout ServiceBuilder) throws(FileError) -> BluetoothUUID {
    let fields = try Fields(json, "a descriptor", ["uuid", "handle"] + Fields.ofValues, file)
    let uuid = try fields.required("uuid", try fields.uuid("uuid")), at = try fields.handle("handle")
    let handle: AttributeHandle
    if uuid == .clientCharacteristicConfiguration {
      for key in Fields.ofValues where key != "write" {
        guard let member = fields.member(key) else { continue }
        throw FileError(
          file, line: member.place.line, column: member.place.column,
          "each client has its own Client Characteristic Configuration, readable, initially 0000; "
            + "remove \"\(key)\"")
      }
      handle = builder.configuration(try fields.access("write") ?? .open, at: at)
    } else {
      let (value, application) = try self.value(fields)
      handle = builder.descriptor(
        uuid, value: value, permissions: try permissions(fields, read: .open, write: .none), at: at)
      applicationValues[handle] = application
    }
    places[handle] = fields.place
    return uuid
  }

  private func properties(_ fields: Fields) throws(FileError) -> CharacteristicProperties {
    var properties = CharacteristicProperties()
    for json in try fields.required("properties", try fields.list("properties")) {
      guard case .string(let name) = json.value, let property = Self.properties[name] else {
        throw FileError(
          file, line: json.place.line, column: json.place.column,
          "no property; a property is one of \(Self.properties.keys.sorted().joined(separator: ", "))")
      }
      properties.insert(property)
    }
    return properties
  }
  private static let properties: [String: CharacteristicProperties] = [
    "broadcast": .broadcast, "read": .read, "writeWithoutResponse": .writeWithoutResponse, "write": .write,
    "notify": .notify, "indicate": .indicate, "authenticatedSignedWrites": .authenticatedSignedWrites,
    "extendedProperties": .extendedProperties,
  ]

  private func permissions(
    _ fields: Fields, read: AttributePermissions.Access, write: AttributePermissions.Access
  ) throws(FileError) -> AttributePermissions {
    AttributePermissions(read: try fields.access("read") ?? read, write: try fields.access("write") ?? write)
  }

  private func value(_ fields: Fields) throws(FileError) -> (AttributeValue, ApplicationValue?) {
    if let kept = try fields.choice("kept", Fields.kept) {
      for key in ["value", "fixed", "maximum", "delay", "readError", "writeError"] {
        guard let member = fields.member(key) else { continue }
        throw FileError(
          file, line: member.place.line, column: member.place.column,
          "the server itself maintains this value; remove \"\(key)\" or \"kept\"")
      }
      return (kept, nil)
    }
    let octets = try fields.octets("value"), isFixed = try fields.bool("fixed") ?? false
    let maximum = try fields.number("maximum", 0...AttributeValue.longest)
    if isFixed, let member = fields.member("maximum") {
      throw FileError(
        file, line: member.place.line, column: member.place.column,
        "a fixed value is always as long as \"value\"; remove \"maximum\" or \"fixed\"")
    }
    if octets.count > maximum ?? AttributeValue.longest, let member = fields.member("value") {
      throw FileError(
        file, line: member.place.line, column: member.place.column,
        "\(octets.count) octets where at most \(maximum ?? AttributeValue.longest) are allowed (Vol 3, Part F, §3.2.9: 512)"
      )
    }
    let delay = try fields.duration("delay")
    let readError = try fields.number("readError", 1...255), writeError = try fields.number("writeError", 1...255)
    guard delay != nil || readError != nil || writeError != nil else {
      return (isFixed ? .fixed(octets) : .stored(octets, upTo: maximum ?? AttributeValue.longest), nil)
    }
    let application = ApplicationValue(
      value: octets, maximum: isFixed ? octets.count : maximum ?? AttributeValue.longest, delay: delay ?? .zero,
      readError: readError.map { ATTError(rawValue: UInt8($0)) },
      writeError: writeError.map { ATTError(rawValue: UInt8($0)) })
    return (.dynamic, application)
  }

  /// The position and message of an error from the builder.
  func explain(_ error: DatabaseError) -> FileError {
    let (handle, words): (AttributeHandle?, String) =
      switch error {
      case .handleOutOfRange(let raw):
        (nil, raw == 0 ? "handle 0x0000 is reserved; begin at 0x0001" : "the handles end at 0xFFFF; use lower ones")
      case .handleNotAscending(let handle):
        (handle, "handle \(Fields.text(handle)) is taken or below the one before it; give it a higher one")
      case .groupEndTooLow(let end):
        (nil, "\"end\" \(Fields.text(end)) is below the last attribute of its service; raise it")
      case .valueTooLong(let handle): (handle, "the value at \(Fields.text(handle)) is too long")
      case .includeOfNothing(let handle):
        (handle, "no service is declared at the handle that the include at \(Fields.text(handle)) names")
      // A file builds a database and never removes from it.
      case .noSuchService(let handle), .includedBy(let handle), .permanentService(let handle):
        (handle, "cannot be removed")
      }
    let place = handle.flatMap { places[$0] } ?? last
    return FileError(file, line: place.line, column: place.column, words)
  }
}

/// The members of one object, requested by name; an unknown name is an error.
private struct Fields {
  static let ofValues = ["value", "kept", "fixed", "maximum", "read", "write", "delay", "readError", "writeError"]
  static let kept: [String: AttributeValue] = [
    "databaseHash": .databaseHash, "clientSupportedFeatures": .clientSupportedFeatures,
  ]
  private static let levels: [String: AttributePermissions.Access] = [
    "none": .none, "open": .open, "encrypted": .encrypted, "authenticated": .authenticated,
  ]
  static func text(_ handle: AttributeHandle) -> String { "0x" + hexDigits(UInt64(handle.rawValue), 4) }

  private let members: [JSON.Member]
  private let what: String
  private let file: String
  let place: JSON.Place

  init(_ json: JSON, _ what: String, _ known: [String], _ file: String) throws(FileError) {
    place = json.place
    self.what = what
    self.file = file
    guard case .object(let members) = json.value else {
      throw FileError(file, line: place.line, column: place.column, "\(json.kind) instead of \(what) in { }")
    }
    for member in members where !known.contains(member.key) {
      throw FileError(
        file, line: member.place.line, column: member.place.column,
        "unknown key \"\(member.key.printable(limit: 60))\"; \(what) has \(known.joined(separator: ", "))")
    }
    self.members = members
  }

  func member(_ key: String) -> JSON.Member? { members.first { $0.key == key } }
  private func wrong(_ member: JSON.Member, _ wanted: String) -> FileError {
    let place = member.value.place
    return FileError(
      file, line: place.line, column: place.column,
      "\"\(member.key)\" must be \(wanted), and this is \(member.value.kind)")
  }
  func required<Value>(_ key: String, _ value: Value?) throws(FileError) -> Value {
    guard let value else {
      throw FileError(file, line: place.line, column: place.column, "\(what) without \"\(key)\"; add it")
    }
    return value
  }

  func string(_ key: String) throws(FileError) -> String? {
    guard let member = member(key) else { return nil }
    guard case .string(let text) = member.value.value else { throw wrong(member, "a string in quotes") }
    return text
  }
  func bool(_ key: String) throws(FileError) -> Bool? {
    guard let member = member(key) else { return nil }
    guard case .bool(let value) = member.value.value else { throw wrong(member, "true or false") }
    return value
  }
  func list(_ key: String) throws(FileError) -> [JSON]? {
    guard let member = member(key) else { return nil }
    guard case .array(let elements) = member.value.value else { throw wrong(member, "a list, in [ ]") }
    return elements
  }
  /// `16`, `"16"` or `"0x0010"`.
  func number(_ key: String, _ range: ClosedRange<Int>) throws(FileError) -> Int? {
    guard let member = member(key) else { return nil }
    let text: String
    switch member.value.value {
    case .number(let digits), .string(let digits): text = digits
    default: throw wrong(member, "a number")
    }
    guard let number = text.hasPrefix("0x") ? Int(text.dropFirst(2), radix: 16) : Int(text), range.contains(number)
    else {
      let place = member.value.place
      throw FileError(
        file, line: place.line, column: place.column,
        "\"\(key)\" is a number from \(range.lowerBound) to \(range.upperBound), or in hex as \"0x0010\"")
    }
    return number
  }
  func handle(_ key: String) throws(FileError) -> AttributeHandle? {
    try number(key, 1...0xFFFF).map { AttributeHandle(rawValue: UInt16($0)) }
  }
  func uuid(_ key: String) throws(FileError) -> BluetoothUUID? {
    guard let member = member(key) else { return nil }
    guard case .string(let text) = member.value.value, let uuid = BluetoothUUID(text) else {
      let place = member.value.place
      throw FileError(
        file, line: place.line, column: place.column,
        "\"\(key)\" is a UUID: \"180F\", or \"A0B10000-1D1D-4BBD-8E5C-6F0E5F1A0C00\"")
    }
    return uuid
  }
  func octets(_ key: String) throws(FileError) -> [UInt8] {
    guard let member = member(key), let text = try string(key) else { return [] }
    return try OctetPattern.octets(text, file: file, place: member.value.place)
  }
  /// `"encrypted"`, or a list of requirements: `["authenticated", "authorized", "key16"]`.
  func access(_ key: String) throws(FileError) -> AttributePermissions.Access? {
    guard let member = member(key) else { return nil }
    var level: AttributePermissions.Access?, isAuthorized = false, isSigned = false, keySize: Int?
    let words = if case .array(let words) = member.value.value { words } else { [member.value] }
    for word in words {
      guard case .string(let text) = word.value else { throw wrong(member, "a word or a list of words") }
      if let named = Self.levels[text], level == nil {
        level = named
      } else if text == "authorized" {
        isAuthorized = true
      } else if text == "signed", key == "write" {
        isSigned = true
      } else if text.hasPrefix("key"), let size = Int(text.dropFirst(3)), 7...16 ~= size {
        keySize = size
      } else {
        throw FileError(
          file, line: word.place.line, column: word.place.column,
          "\"\(key)\" is one of \(Self.levels.keys.sorted().joined(separator: ", ")), or a list of one of them, "
            + "\"authorized\", \"key7\" to \"key16\", and of \"write\" \"signed\"")
      }
    }
    var access = level ?? .open
    if let keySize { access = access.withKey(of: keySize) }
    if isSigned { access = access.orSigned }
    return isAuthorized ? access.withAuthorization : access
  }
  func duration(_ key: String) throws(FileError) -> Duration? {
    guard let member = member(key), let text = try string(key) else { return nil }
    guard let duration = Duration(script: text) else {
      let place = member.value.place
      throw FileError(file, line: place.line, column: place.column, "\"\(key)\" is a time, as \"100ms\" or \"2s\"")
    }
    return duration
  }
  func choice<Value>(_ key: String, _ choices: [String: Value]) throws(FileError) -> Value? {
    guard let member = member(key) else { return nil }
    guard case .string(let text) = member.value.value, let value = choices[text] else {
      let place = member.value.place
      throw FileError(
        file, line: place.line, column: place.column,
        "\"\(key)\" is one of \(choices.keys.sorted().joined(separator: ", "))")
    }
    return value
  }
}

extension Duration {
  /// `250ms`, `30s`: a whole number of milliseconds or seconds, an hour at most.
  init?(script text: String) {
    let isMilliseconds = text.hasSuffix("ms")
    guard isMilliseconds || text.hasSuffix("s"),
      let number = Int(text.dropLast(isMilliseconds ? 2 : 1)), 0...(isMilliseconds ? 3_600_000 : 3600) ~= number
    else { return nil }
    self = .milliseconds(isMilliseconds ? number : number * 1000)
  }
  /// In the syntax of scripts.
  var script: String {
    let milliseconds = nanoseconds / 1_000_000
    return milliseconds.isMultiple(of: 1000) ? "\(milliseconds / 1000)s" : "\(milliseconds)ms"
  }
}
