import BindruneATT
import BindruneToolbox
import BindruneWire
import DequeModule
import BindruneGATT
import BindruneSMP

/// Our own stack under test: a bearer with a GATT server and a GATT client on it, in virtual time, without a
/// controller.
///
/// It drives them as `HostCore` does: it drains their effects after every PDU, and answers as the application for the
/// values that the database file gives a delay or an error.
public final class StackTarget: ServedTarget {
  private var server: Server
  private var client = Client()
  private var bearer = Bearer(BearerID(rawValue: 1))
  private var configuration = BearerConfiguration()
  private var applicationValues: [AttributeHandle: ApplicationValue]
  private var now = Instant.zero
  private var packet = PacketBuffer()

  private var outgoing = Deque<[UInt8]>()
  private var values = Deque<ReceivedValue>()
  private var events = Deque<ApplicationEvent>()
  private var answers: [Answer] = []
  /// Writes of one queue, until the last of them is reported.
  private var gathered: [Write] = []
  /// The running procedure, and the result of the last one.
  private var running: (id: RequestID, call: ProcedureCall)?
  private var lastID: UInt64 = 0
  private var ended: ProcedureResult?
  /// For a client: its key, and the counter of its next signed write.
  private var signing: ClientSigning?
  /// The key that encrypts the link; nil: it is not encrypted.
  private var key: KeyStrength?
  /// The pairings that a client may ask for: the tester can do whatever it takes.
  private var pairing: PairingSettings {
    var settings = PairingSettings()
    settings.ioCapability = .keyboardDisplay
    return settings
  }

  /// A future answer of the application.
  private struct Answer {
    var due: Instant
    var id: ServerRequestID
    var handle: AttributeHandle
    var offset: Int
    /// The values to write: several if a client has prepared them together. Nil for a read.
    var writes: [Write]?
  }
  private struct Write {
    var handle: AttributeHandle
    var offset: Int
    var octets: [UInt8]
  }

  public init(_ file: DatabaseFile = DatabaseFile()) {
    server = Server(database: file.database)
    applicationValues = file.applicationValues
    server.open(bearer.id)
    client.open(bearer.id)
  }

  // MARK: The tester's side

  public func send(_ pdu: [UInt8]) throws(TargetError) {
    guard bearer.closure == nil else { throw .failed("the bearer is closed") }
    bearer.receive(pdu.span, now: now, server: &server, client: &client)
    pump()
  }

  public func receive(within time: Duration) throws(TargetError) -> Received {
    let end = now + time
    while outgoing.isEmpty {
      if bearer.closure != nil { return .closed }
      guard step(until: end) else { return .nothing }
    }
    return .pdu(outgoing.removeFirst())
  }

  public func wait(_ time: Duration) throws(TargetError) {
    pass(time)
  }

  public func reconnect() throws(TargetError) {
    bearer.close(client: &client)
    server.close(bearer.id)
    pump()
    outgoing.removeAll()
    values.removeAll()
    events.removeAll()
    answers.removeAll()
    running = nil
    ended = nil
    key = nil
    client = Client(configuration: client.configuration)
    bearer = Bearer(BearerID(rawValue: 1), configuration: configuration)
    server.open(bearer.id)
    client.open(bearer.id)
  }

  public var takesCommands: Bool { true }
  public func perform(_ command: Command) throws(TargetError) {
    switch command {
    case .mtu(let mtu):
      configuration.preferredMTU = mtu
      bearer = Bearer(bearer.id, configuration: configuration)
    case .security(let security, let keySize):
      server.setSecurity(security, keySize: keySize, of: bearer.id)
      let isEncrypted = security == .encrypted || security == .authenticated
      key =
        isEncrypted
        ? KeyStrength(
          isAuthenticated: security == .authenticated, isSecureConnections: true,
          size: EncryptionKeySize(keySize) ?? .longest) : nil
      client.securityEnded(isSecured: isEncrypted)
    case .signing(let key, let counter, let isAuthenticated):
      let key = SecurityKey(leastSignificantFirst: key.span)
      signing = ClientSigning(key: key, counter: counter, isAuthenticated: isAuthenticated)
      server.setSigning(signing, of: bearer.id)
    case .authorized(let isAuthorized): server.setAuthorized(isAuthorized, of: bearer.id)
    case .set(let handle, let octets):
      if applicationValues[handle] != nil {
        applicationValues[handle]?.value = octets
      } else if !server.setValue(handle, to: octets) {
        throw .failed("\(handle.script) cannot have a value of that length")
      }
    case .notify(let values): notify(values)
    case .indicate(let handle, let octets):
      if server.mayBeSent(handle, to: bearer.id).contains(.indication) {
        _ = bearer.indicate(handle, octets.span)
      }
    case .insert(let path): try insert(path)
    case .remove(let handle):
      do throws(DatabaseError) { try server.remove(service: handle) } catch { throw .failed("\(error)") }
    case .call(let call): self.call(call)
    case .pairing(.onDemand(let isOn)):
      var configuration = ClientConfiguration()
      configuration.repeatsWhenSecured = isOn
      client = Client(configuration: configuration)
      client.open(bearer.id)
    case .pairing, .pair, .requestSecurity, .answer, .encryption, .channels:
      throw .unsupported("the channel att has no \"\(command.script)\"")
    }
    pump()
  }

  private func insert(_ path: String) throws(TargetError) {
    let file: DatabaseFile
    do throws(FileError) {
      file = try ScriptFile.database(path, after: server.database)
    } catch {
      throw .failed("\(error)")
    }
    do throws(DatabaseError) { try server.insert(file.services) } catch { throw .failed("\(error)") }
    applicationValues.merge(file.applicationValues) { $1 }
  }

  /// Sends them in one PDU if the client supports that and none is cut: Vol 3, Part G, §4.10.2; Vol 3, Part F,
  /// §3.4.7.4.
  private func notify(_ values: [HandleOctets]) {
    let values = values.filter { server.mayBeSent($0.handle, to: bearer.id).contains(.notification) }
    let tuples = values.flatMap { value -> [UInt8] in
      [value.handle.rawValue, UInt16(value.octets.count)].flatMap { [UInt8($0 & 0xFF), UInt8($0 >> 8)] } + value.octets
    }
    let isTaken = server.features(of: bearer.id).contains(.multipleHandleValueNotifications)
    if values.count > 1, tuples.count < bearer.mtu, isTaken {
      _ = bearer.offer(multiple: tuples.span)
    } else {
      for value in values { _ = bearer.offer(notification: value.handle, value.octets.span) }
    }
  }

  public func result(within time: Duration) throws(TargetError) -> ProcedureResult? {
    let end = now + time
    while ended == nil, step(until: end) {}
    return ended
  }

  public func value(within time: Duration) throws(TargetError) -> ReceivedValue? {
    let end = now + time
    while values.isEmpty, step(until: end) {}
    return values.popFirst()
  }

  public func event(within time: Duration) throws(TargetError) -> ApplicationEvent? {
    let end = now + time
    while events.isEmpty, step(until: end) {}
    return events.popFirst()
  }
  public func key(within time: Duration) throws(TargetError) -> [UInt8]? {
    throw .unsupported("the channel att has no key")
  }

  // MARK: For `StackServer`, which has the clock

  /// The time until the next event.
  var timeToDeadline: Duration? { Instant?.earliest(bearer.deadline, answers.map(\.due).min()).map { $0 - now } }
  func pass(_ time: Duration) {
    let end = now + time
    while step(until: end) {}
  }
  /// The next PDU, without waiting; nil: none.
  var ready: Received? {
    if let pdu = outgoing.popFirst() { return .pdu(pdu) }
    return bearer.closure == nil ? nil : .closed
  }
  func takeLines() -> [String] {
    defer { forgetLines() }
    let lines = values.map { "value \($0.kind) \($0.handle.script) \(hexText($0.octets))" } + events.map(\.description)
    return lines + (ended.take().map { $0.lines + ["end"] } ?? [])
  }
  func forgetLines() {
    values.removeAll()
    events.removeAll()
  }

  // MARK: Time

  /// Advances to the next event before `end`; returns false, at `end`, if there is none.
  private func step(until end: Instant) -> Bool {
    guard let due = Instant?.earliest(bearer.deadline, answers.map(\.due).min()), due <= end else {
      now = end
      return false
    }
    now = max(now, due)
    while let index = answers.firstIndex(where: { $0.due <= now }) { answer(answers.remove(at: index)) }
    bearer.expire(now: now, server: &server, client: &client)
    pump()
    return true
  }

  /// Repeats until nothing moves: PDUs to send, and effects.
  private func pump() {
    repeat {
      drain()
      while packet.fill({ bearer.nextPDU(into: &$0, now: now, client: &client) }) {
        outgoing.append(packet.bytes)
        drain()
      }
    } while bearer.hasPDU(client: client)
  }

  // MARK: Effects of the layers

  private func drain() {
    while let effect = bearer.nextEffect() {
      switch effect {
      case .mtuChanged: if running?.call == .exchangeMTU { end(.done) }
      case .closed(let closure):
        server.close(bearer.id)
        if running?.call == .exchangeMTU { end(closure == .timedOut ? .timeout : .failed("the bearer is closed")) }
      default: break
      }
    }
    while let effect = server.nextEffect() {
      switch effect {
      case .readRequested(let id, _, let handle, let offset):
        ask(Answer(due: now, id: id, handle: handle, offset: Int(offset)))
      case .writeRequested(let id, _, let handle, let offset, let octets, let following):
        gathered.append(Write(handle: handle, offset: Int(offset), octets: server.bytes(of: octets)))
        if following > 0 { continue }
        ask(Answer(due: now, id: id, handle: gathered[0].handle, offset: gathered[0].offset, writes: gathered))
        gathered = []
      case .written(_, let handle, let offset, let octets):
        _ = applicationValues[handle]?.write(server.bytes(of: octets), at: Int(offset))
      case .requestCancelled(let id, _): answers.removeAll { $0.id == id }
      default: break
      }
    }
    if bearer.canIndicate, let change = server.takeServiceChanged(on: bearer.id) {
      _ = bearer.indicate(change.handle, change.value.span)
    }
    while let effect = client.nextEffect() {
      switch effect {
      case .value(let handle, let octets, let kind):
        values.append(ReceivedValue(kind: kind, handle: handle, octets: client.bytes(of: octets)))
      case .completed(let id, let result): if id == running?.id { end(self.result(result)) }
      case .securityNeeded(let error):
        if pairing.canImprove(key, isTooShort: error == .encryptionKeySizeTooShort) {
          events.append(ApplicationEvent(.asksSecurity, [error.rawValue]))
        } else {
          client.securityEnded(isSecured: false)
        }
      default: break
      }
    }
  }

  // MARK: The application

  private func ask(_ answer: Answer) {
    var answer = answer
    answer.due = now + (applicationValues[answer.handle]?.delay ?? .zero)
    answers.append(answer)
  }
  private func answer(_ answer: Answer) {
    var response = PacketBuffer(capacity: bearer.mtu), outcome = AnswerOutcome.unwanted(.unknown)
    _ = response.fill { output in
      outcome = self.answer(answer, into: &output)
      return true
    }
    guard case .response(let ticket) = outcome else { return drain() }
    response.withBytes { _ = bearer.respond(to: ticket, with: $0, now: now, server: &server) }
  }
  private func answer(_ answer: Answer, into output: inout OutputRawSpan) -> AnswerOutcome {
    if let writes = answer.writes {
      // All or none: Vol 3, Part F, §3.4.6.3.
      var written = applicationValues
      for write in writes {
        if let error = written[write.handle]?.write(write.octets, at: write.offset) {
          return server.refuse(answer.id, error, about: write.handle, into: &output)
        }
      }
      applicationValues = written
      return server.answerWrite(answer.id, into: &output)
    }
    switch applicationValues[answer.handle]?.read(at: answer.offset) ?? .error(.unlikelyError) {
    case .value(let octets): return server.answerRead(answer.id, with: octets.span, into: &output)
    case .error(let error): return server.refuse(answer.id, error, into: &output)
    }
  }

  // MARK: The client's procedures

  private func end(_ result: ProcedureResult) {
    running = nil
    ended = result
  }

  private func call(_ call: ProcedureCall) {
    lastID += 1
    let id = RequestID(rawValue: lastID)
    ended = nil
    running = (id, call)
    client.makeRequests(on: bearer.id, after: bearer.commandsTaken)
    switch call {
    case .exchangeMTU: if !bearer.exchangeMTU() { end(.failed("exchanged before")) }
    case .discoverAll: client.discoverAll(id, infersDescriptors: false)
    case .discoverServices(let uuid): client.discoverPrimaryServices(id, uuid)
    case .discoverIncludes(let range): client.discoverIncludedServices(id, in: range)
    case .discoverCharacteristics(let range, _): client.discoverCharacteristics(id, in: range)
    case .discoverDescriptors(let range): client.discoverDescriptors(id, in: range)
    case .read(let handle): client.read(id, handle)
    case .readLong(let handle): client.readLong(id, handle)
    case .readUUID(let uuid, let range): client.read(id, uuid: uuid, in: range)
    case .readMultiple(let handles): client.readMultiple(id, handles)
    case .readMultipleVariable(let handles): client.readMultipleVariable(id, handles)
    case .write(let handle, let octets): client.write(id, handle, octets.span)
    case .writeWithoutResponse(let handle, let octets):
      end(writeCommand(octets, to: handle, limit: bearer.longestValue))
    case .writeSigned(let handle, let octets): end(writeSigned(octets, to: handle))
    case .writeLong(let handle, let octets): client.writeLong(id, handle, octets.span)
    case .writeReliable(let values): client.writeReliable(id, values.map { ($0.handle, $0.octets) })
    case .subscribe(let handle, let configuration): client.subscribe(id, handle, configuration)
    case .unsubscribe(let handle): client.unsubscribe(id, handle)
    case .readDatabaseHash: client.readDatabaseHash(id)
    case .followChanges: client.followChanges(id)
    }
  }

  /// A command is never cut: nobody would learn of it.
  private func writeCommand(_ value: [UInt8], to handle: AttributeHandle, limit: Int) -> ProcedureResult {
    guard value.count <= limit else { return .failed("too long: at most \(limit) octets") }
    return bearer.offer(command: handle, value.span, client: client).isAccepted ? .done : .failed("no room")
  }
  private func writeSigned(_ value: [UInt8], to handle: AttributeHandle) -> ProcedureResult {
    let form = SignedWriteForm(isEncrypted: key != nil, mtu: bearer.mtu, longestValue: bearer.longestValue)
    guard form.isSigned else { return writeCommand(value, to: handle, limit: form.limit) }
    guard value.count <= form.limit else { return .failed("too long: at most \(form.limit) octets") }
    guard let key = signing?.key, let counter = signing?.counter, counter < .max else { return .failed("no key") }
    let octets = SignedWriteCommand.signed(value, for: handle, key, counter: counter)
    guard bearer.offer(signed: handle, octets.span, client: client).isAccepted else { return .failed("no room") }
    signing?.counter += 1
    return .done
  }

  private func result(_ result: ClientResult) -> ProcedureResult {
    switch result {
    case .done: .done
    case .value(let octets): .value(client.bytes(of: octets))
    case .values(let octets):
      .values(client.values(of: octets).map { HandleOctets(handle: $0.handle, octets: client.bytes(of: $0.value)) })
    case .databaseHash(let hash): hash.map { .value($0.octets) } ?? .failed("no Database Hash")
    case .discovered: .found(running.map { client.remote.found(by: $0.call) } ?? [:])
    case .failed(.att(let error, _, let handle)): .error(error, handle)
    case .failed(.bearerClosed(.timedOut)): .timeout
    case .failed(let error): .failed("\(error)")
    }
  }
}

extension RemoteDatabase {
  /// What `call` searched for, from everything known.
  func found(by call: ProcedureCall) -> [Found: [String]] {
    let all: [Found: [String]]
    switch call {
    case .discoverServices(let uuid):
      all = [.services: services.filter { $0.isPrimary && (uuid == nil || $0.uuid == uuid) }.map(Found.service)]
    case .discoverIncludes(let range):
      all = [.includes: includes.filter { range.contains($0.handle) }.map(Found.include)]
    case .discoverCharacteristics(let range, let uuid):
      all = [
        .characteristics: characteristics.filter { range.contains($0.handle) && (uuid == nil || $0.uuid == uuid) }
          .map(Found.characteristic)
      ]
    case .discoverDescriptors(let range):
      all = [.descriptors: descriptors.filter { range.contains($0.handle) }.map(Found.descriptor)]
    default:
      all = [
        .services: services.map(Found.service),
        .secondaryServices: services.filter { !$0.isPrimary }.map(Found.service),
        .includes: includes.map(Found.include),
        .characteristics: characteristics.map(Found.characteristic), .descriptors: descriptors.map(Found.descriptor),
      ]
    }
    return all
  }
}

extension Found {
  fileprivate static func service(_ service: RemoteService) -> String {
    services.item(range: service.range, uuid: service.uuid)
  }
  fileprivate static func include(_ include: RemoteInclude) -> String {
    includes.item(include.handle, range: HandleRange(include.serviceHandle, include.endHandle), uuid: include.uuid)
  }
  fileprivate static func characteristic(_ characteristic: RemoteCharacteristic) -> String {
    characteristics.item(
      characteristic.handle, characteristic.valueHandle, properties: characteristic.properties.rawValue,
      uuid: characteristic.uuid)
  }
  fileprivate static func descriptor(_ descriptor: RemoteDescriptor) -> String {
    descriptors.item(descriptor.handle, uuid: descriptor.uuid)
  }
}
