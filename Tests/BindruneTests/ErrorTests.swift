import BindruneAdapters
import BindruneTransport
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import SystemPackage
import TestSupport
import Testing

@testable import Bindrune

/// What an error prints: its reader learns what failed, with which peer, why, and what helps.
@Suite("Errors", .virtualTime, .hang) struct ErrorTests {
  private static let handle = AttributeHandle(rawValue: 3)
  private static let peer = PeerAddress(DeviceAddress(0xC000_0000_0001), .random)
  private static let link = LinkID(rawValue: 7)

  /// No error prints an enum case in Swift's notation: neither `name(payload)` nor `caseName`. Backticks enclose
  /// command lines.
  private func expectSentences(_ text: String, at location: SourceLocation = #_sourceLocation) {
    let words = text.split(separator: "`", omittingEmptySubsequences: false).enumerated().filter { $0.offset % 2 == 0 }
      .map(\.element).joined().replacing("dBm", with: "")
    #expect(!words.contains(/\w\(/) && !words.contains(/\b[a-z]+[A-Z]/), "\(text)", sourceLocation: location)
    #expect(!words.contains("Optional") && !words.contains("rawValue"), "\(text)", sourceLocation: location)
    #expect(text.hasSuffix(".") && !text.hasSuffix(".."), "\(text)", sourceLocation: location)
    // A controller's name, such as `hci0`, stays unchanged.
    let first = text.prefix { $0 != " " }
    #expect(first.first?.isLowercase == false || first.contains { $0.isNumber }, "\(text)", sourceLocation: location)
  }
  /// `all` contains each case, as `place` numbers them without a gap: a new case does not compile without a place.
  private func expect<Cause>(_ all: [Cause], _ error: (Cause) -> BluetoothError, places: (Cause) -> Int) {
    #expect(Set(all.map(places)) == Set(0...(all.map(places).max() ?? 0)))
    for cause in all { expectSentences("\(error(cause))") }
  }

  @Test func everyCauseIsASentence() {
    let (handle, status) = (Self.handle, HCIStatus.unspecifiedError)
    let violations: [ResponseViolation] = [
      .unexpectedResponse, .handlesNotIncreasing(handle), .handleOutOfRange(handle), .groupEnd(handle),
      .declarationLength(handle, 2), .valueHandle(handle), .echo(handle), .tooLong, .changedRange,
      .notEncrypted(handle),
    ]
    expect(violations, { BluetoothError(ClientError.malformedResponse($0)) }) {
      switch $0 {
      case .unexpectedResponse: 0
      case .handlesNotIncreasing: 1
      case .handleOutOfRange: 2
      case .groupEnd: 3
      case .declarationLength: 4
      case .valueHandle: 5
      case .echo: 6
      case .tooLong: 7
      case .changedRange: 8
      case .notEncrypted: 9
      }
    }
    let client: [ClientError] =
      (0...255).map { .att(ATTError(rawValue: $0), .readRequest, handle) } + [
        .bearerClosed(.timedOut), .bearerClosed(.disconnected), .malformedResponse(.tooLong), .cancelled, .busy,
        .valueTooLong, .invalidRequest, .databaseChanged, .unknownCharacteristic,
        .noConfigurationDescriptor,
      ]
    expect(client, { BluetoothError($0) }) {
      switch $0 {
      case .att: 0
      case .bearerClosed(.timedOut): 1
      case .bearerClosed(.disconnected): 2
      case .malformedResponse: 3
      case .cancelled: 4
      case .busy: 5
      case .valueTooLong: 6
      case .invalidRequest: 7
      case .databaseChanged: 8
      case .unknownCharacteristic: 9
      case .noConfigurationDescriptor: 10
      }
    }
    // Of a device that no longer has the key of its bond: a pairing is no cure while the bond is here.
    for number in UInt8.min...UInt8.max {
      let code = ATTError(rawValue: number)
      let error = BluetoothError(ClientError.att(code, .readRequest, handle), bondIsRejected: true)
      expectSentences("\(error)")
      // Vol 3, Part F, §3.4.1.1, table 3.4.
      let needsKey = [0x05, 0x0C, 0x0F].contains(number)
      #expect(error.attError == code && (error.status == .pinOrKeyMissing) == needsKey)
      #expect(error.diagnostics.contains("remove the bond") == needsKey, "\(error)")
    }
    for number in UInt8.min...UInt8.max {
      let status = HCIStatus(rawValue: number)
      expectSentences("\(BluetoothError.linkWentDown(status))")
      expectSentences("\(BluetoothError.refused(to: "scan", status))")
      expectSentences("\(BluetoothError.refusedByLink("scan", status))")
    }
    let tasks: [ControllerTask] = [
      .connect, .disconnect, .encrypt, .readRSSI, .readPHYs, .setPHYs, .setDefaultPHYs, .readFeatures, .send,
    ]
    let host: [HostFailure] =
      tasks.map { .refused($0, status) } + [
        .cancelled, .noSuchLink, .busy, .connectionLimitReached, .parametersRejected(status), .timedOut,
        .invalidParameters, .notStarted, .pairingFailed(.timedOut), .pairingRefused(.silent), .notBonded,
        .refused(.encrypt, .pinOrKeyMissing), .controllerIsSilent, .channel(.closedByPeer),
      ]
    expect(host, { BluetoothError($0) }) {
      switch $0 {
      case .cancelled: 0
      case .noSuchLink: 1
      case .busy: 2
      case .connectionLimitReached: 3
      case .parametersRejected: 4
      case .timedOut: 5
      case .invalidParameters: 6
      case .notStarted: 7
      case .refused(.connect, _): 8
      case .refused(.disconnect, _): 9
      case .refused(.readRSSI, _): 10
      case .refused(.readPHYs, _): 11
      case .refused(.setPHYs, _): 12
      case .refused(.setDefaultPHYs, _): 13
      case .refused(.send, _): 14
      case .refused(.encrypt, .pinOrKeyMissing): 15
      case .refused(.encrypt, _): 16
      case .pairingFailed: 17
      case .pairingRefused: 18
      case .notBonded: 19
      case .controllerIsSilent: 20
      case .channel: 21
      case .refused(.readFeatures, _): 22
      }
    }
    // All results, also those that no Specification has yet: Vol 3, Part A, §4.23, §4.26.
    let ends: [ChannelEnd] =
      (UInt16(0)...0x20).map { .refused(ChannelResult(rawValue: $0)) } + [
        .notUnderstood(.commandNotUnderstood), .invalidResponse, .timedOut, .closedHere, .closedByPeer, .linkClosed,
        .fault(.noCredit), .fault(.frameTooLong(length: 300)), .fault(.sduLengthMissing), .fault(.tooManyCredits),
        .fault(.sduTooLong(length: 300)), .fault(.sduOverrun(received: 5, expected: 4)),
      ]
    expect(ends, { BluetoothError($0) }) {
      switch $0 {
      case .refused: 0
      case .notUnderstood: 1
      case .invalidResponse: 2
      case .timedOut: 3
      case .closedHere: 4
      case .closedByPeer: 5
      case .fault: 6
      case .linkClosed: 7
      }
    }
    let failures = (0...UInt8.max).map { PairingFailure(rawValue: $0) }
    let pairings: [PairingError] =
      failures.map { .ours($0) } + failures.map { .peers($0) } + [.timedOut, .encryptionFailed, .linkClosed]
    expect(pairings, { BluetoothError($0) }) {
      switch $0 {
      case .ours: 0
      case .peers: 1
      case .timedOut: 2
      case .encryptionFailed: 3
      case .linkClosed: 4
      }
    }
    expect(
      [PairingRefusal.wrongRole, .busy, .tooEarly(until: .zero), .silent, .noRandomNumbers], { BluetoothError($0) }
    ) {
      switch $0 {
      case .wrongRole: 0
      case .busy: 1
      case .tooEarly: 2
      case .silent: 3
      case .noRandomNumbers: 4
      }
    }
    // Who has ended the pairing decides the cure.
    #expect(!BluetoothError(PairingError.ours(.pairingNotSupported)).diagnostics.contains("pairing mode"))
    #expect(BluetoothError(PairingError.peers(.pairingNotSupported)).diagnostics.contains("pairing mode"))
    // 0x22 of a controller is the peer's silence, whatever it was asked for.
    for task in [
      ControllerTask.connect, .disconnect, .encrypt, .readRSSI, .readPHYs, .setPHYs, .setDefaultPHYs, .readFeatures,
      .send,
    ] {
      let error = BluetoothError(.refused(task, .lmpOrLLResponseTimeout))
      #expect(error.diagnostics.contains("device did not answer") && error.status == .lmpOrLLResponseTimeout)
    }
    #expect(BluetoothError(HostFailure.controllerIsSilent).diagnostics.contains("controller did not answer"))
    // Only a connection finds a link that is up already.
    let link = LinkID(rawValue: 1)
    for operation in [HostOperation.pair(link, nil), .updateParameters(link, ConnectionParameterRange(.balanced))] {
      let error = BluetoothError(.busy, of: operation)
      #expect(error.code == .busy && !error.diagnostics.contains("up already"), "\(error)")
      expectSentences("\(error)")
    }
    let reset = HCIOpcode(rawValue: 0x0C03)
    let start: [StartFailure] = [
      .timedOut(reset), .tookTooLong(reset), .refused(HCIOpcode(rawValue: 0xFC01), status), .malformed(reset),
      .noBuffers,
    ]
    expect(start, { BluetoothError($0) }) {
      switch $0 {
      case .timedOut: 0
      case .tookTooLong: 1
      case .refused: 2
      case .malformed: 3
      case .noBuffers: 4
      }
    }
    let answers: [UnwantedAnswer] = [.answeredAlready, .tooLate, .disconnected, .wrongKind, .unknown]
    expect(answers, { BluetoothError($0) }) {
      switch $0 {
      case .answeredAlready: 0
      case .tooLate: 1
      case .disconnected: 2
      case .wrongKind: 3
      case .unknown: 4
      }
    }
  }

  @Test func everyRefusedArgumentIsASentence() throws {
    let handle = Self.handle
    let database: [DatabaseError] = [
      .handleOutOfRange(0), .handleOutOfRange(0x10000), .handleNotAscending(handle), .groupEndTooLow(handle),
      .valueTooLong(handle), .includeOfNothing(handle), .noSuchService(handle), .includedBy(handle),
      .permanentService(handle),
    ]
    expect(database, { BluetoothError($0) }) {
      switch $0 {
      case .handleOutOfRange: 0
      case .handleNotAscending: 1
      case .groupEndTooLow: 2
      case .valueTooLong: 3
      case .includeOfNothing: 4
      case .noSuchService: 5
      case .includedBy: 6
      case .permanentService: 7
      }
    }
    expect([IdentityError.notAnIdentityAddress(Self.peer), .ownAddress(Self.peer), .noKey], { BluetoothError($0) }) {
      switch $0 {
      case .notAnIdentityAddress: 0
      case .noKey: 1
      case .ownAddress: 2
      }
    }
    // The packer reports what it leaves out.
    var data = AdvertisingData(localName: "n")
    data.manufacturerData = [UInt8](repeating: 0xFF, count: 240)
    data.serviceUUIDs = ["180D", "0000FEED-0000-1000-8000-000000000000"]
    let leftOut = AdvertisingPacker(.coreBluetooth).pack(data).leftOut
    #expect(!leftOut.isEmpty)
    let advertising: [AdvertisingError] = [
      .data(.leftOut(leftOut)), .data(.extendedUnavailable), .tooManySets(available: 1), .tooManySets(available: 4),
      .notAdvertising(.first), .interval(.seconds(1), .milliseconds(1), allowed: .milliseconds(20)...(.seconds(10))),
      .interval(.milliseconds(1), .seconds(1), allowed: .milliseconds(20)...(.seconds(10))), .duration(.zero),
      .noEvents,
      .txPower(-128), .address(Self.peer.address), .directedExtended,
    ]
    expect(advertising, { BluetoothError($0) }) {
      switch $0 {
      case .data(.leftOut): 0
      case .data(.extendedUnavailable): 1
      case .tooManySets: 2
      case .notAdvertising: 3
      case .interval: 4
      case .duration: 5
      case .noEvents: 6
      case .txPower: 7
      case .address: 8
      case .directedExtended: 9
      }
    }
    for item in leftOut { expectSentences("\(BluetoothError(AdvertisingDataError.leftOut([item])))") }
    for error in [BluetoothError.cancelled, .closed, .linkIsDown, .overflow(64), .overflow(octets: 64)] {
      expectSentences("\(error)")
    }
  }

  @Test func everyTransportErrorIsASentence() throws {
    let spec = try TransportSpec("tcp:127.0.0.1:1"), system = "Connection reset by peer"
    var transport: [TransportError] = [
      .unsuitable(spec, "only an adapter has it"), .refused(spec), .notFound(spec),
      .notFound(try TransportSpec("serial:/dev/x")),
      .permissionDenied(spec), .permissionDenied(try TransportSpec("serial:/dev/x")),
      .noRadio(name: "a", path: "/run/a"),
      .unresolved(spec), .timedOut(spec, seconds: 3), .addressInUse(spec), .addressInUse(.radio(name: "a")), .closed,
      .unplugged(try TransportSpec("hci0")), .packetTooLong(limit: 1028),
      .framing(FramingError(.packetType, offset: 1, octet: 9)), .framing(FramingError(.length(9), offset: 1, octet: 4)),
      .framing(FramingError(.noResetAnswer(9), offset: 1, octet: 4)), .overflow(9),
      .adapter(.up(0, daemon: true)), .trace(path: "/tmp/t", system), .system(spec, system),
    ]
    do throws(TransportError) { _ = try TransportSpec("nonsense") } catch { transport.append(error) }
    expect(transport, { BluetoothError($0) }) {
      switch $0 {
      case .specification: 0
      case .unsuitable: 1
      case .refused: 2
      case .notFound: 3
      case .permissionDenied: 4
      case .noRadio: 5
      case .unresolved: 6
      case .timedOut: 7
      case .addressInUse: 8
      case .closed: 9
      case .unplugged: 10
      case .packetTooLong: 11
      case .framing: 12
      case .overflow: 13
      case .adapter: 14
      case .trace: 15
      case .system: 16
      }
    }
    let holder = HCISocketHolder(pid: 1, name: "btmon")
    let adapters: [AdapterError] = [
      .noKernelSupport(release: "6.1"), .notLoaded(release: "6.1", isInstalled: true),
      .notLoaded(release: "6.1", isInstalled: false), .foreignNetwork, .filtered,
      .notFound(1, present: [0, 2], hint: nil), .notFound(1, present: [], hint: nil),
      .notFound(1, present: [], hint: .withoutDriver("0a12:0001")),
      .notFound(1, present: [], hint: .switchedOff("phy0", isHard: true)),
      .notFound(1, present: [], hint: .switchedOff("phy0", isHard: false)), .up(0, daemon: true), .up(0, daemon: false),
      .taken(0, candidates: []), .taken(0, candidates: [holder, holder]), .inSetUp(0),
      .noCapability(program: "/usr/bin/a b", isWithheld: false), .noCapability(program: "a", isWithheld: true),
      .userNamespace, .blocked(0, isHard: true), .blocked(0, isHard: false), .system(0, .ioError),
      .system(nil, .ioError),
    ]
    expect(adapters, { BluetoothError(TransportError.adapter($0)) }) {
      switch $0 {
      case .noKernelSupport: 0
      case .notLoaded: 1
      case .foreignNetwork: 2
      case .filtered: 3
      case .notFound: 4
      case .up: 5
      case .taken: 6
      case .inSetUp: 7
      case .noCapability: 8
      case .userNamespace: 9
      case .blocked: 10
      case .system: 11
      }
    }
  }

  @Test func everyOperationIsNamed() async throws {
    let (link, handle, range) = (Self.link, Self.handle, HandleRange.all)
    let all: [HostOperation] = [
      .connect(PeerID(Self.peer), .fast), .connectToFirst([Self.peer], .fast, timeout: nil), .disconnect(link),
      .readRSSI(link), .updateParameters(link, ConnectionParameterRange(.fast)), .readPHYs(link),
      .setPHYs(link, PHYPreferences()), .setDefaultPHYs(PHYPreferences()), .readFeatures(link), .readDatabaseHash(link),
      .discoverAll(link),
      .discoverServices(link, "180D"), .discoverIncludedServices(link, range), .discoverCharacteristics(link, range),
      .discoverDescriptors(link, range), .followChanges(link), .read(link, handle), .readUUID(link, "2A00", range),
      .readMultiple(link, [handle]), .write(link, handle, []), .writeReliably(link, []), .subscribe(link, handle, nil),
      .unsubscribe(link, handle),
    ]
    let host = try await Lab().host()
    for operation in all {
      let error = await host.failure(.linkIsDown, of: operation)
      expectSentences("\(error)")
      let peer = operation.link.map { "\($0)" } ?? "\(Self.peer)"
      if case .setDefaultPHYs = operation { continue }
      #expect(error.operation?.contains(peer) == true, "\(error)")
    }
    await host.close()
  }

  /// As a program sees them.
  @Test func anErrorNamesOperationAndPeer() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral, link) = try await lab.linked(belt)
    let peer = await link.address
    func text(_ body: @escaping @Sendable () async throws(BluetoothError) -> Void) async throws -> String? {
      try await within {
        do throws(BluetoothError) { try await body() } catch { return "\(error)" }
        return nil
      }
    }
    let notifying = belt.notifying
    #expect(
      try await text { () async throws(BluetoothError) in _ = try await link.read(notifying) }
        == "Could not read attribute \(notifying.text) of \(peer). "
        + "The device answered Read Not Permitted (0x02) for attribute \(notifying.text).")
    let long = [UInt8](repeating: 0, count: 513)
    #expect(
      try await text { () async throws(BluetoothError) in try await link.write(long, to: belt.short) }
        == "Could not write attribute \(belt.short.text) of \(peer). "
        + "The value is longer than 512 octets, the most that an attribute has.")
    let absent = Self.peer
    #expect(
      try await text { () async throws(BluetoothError) in
        _ = try await central.connect(to: absent, timeout: .milliseconds(10))
      } == "Could not connect to \(absent). The time allowed was over before it was done: allow more.")
    await peripheral.close()
    let end = try await within { await link.closed }
    #expect(
      "\(end)" == "Could not keep the link to \(peer). "
        + "The link went down, 0x13 (Remote User Terminated Connection): connect again.")
    #expect(
      try await text { () async throws(BluetoothError) in _ = try await link.read(belt.short) }
        == "Could not read attribute \(belt.short.text) of \(link.id). "
        + "The link went down, 0x13 (Remote User Terminated Connection): connect again.")
    await central.close()
    #expect(
      try await text { () async throws(BluetoothError) in for try await _ in central.scan() {} }
        == "Could not scan. The host has been closed: open another.")
    let down = link.id
    #expect(
      try await text { () async throws(BluetoothError) in for try await _ in await link.events {} }
        == "Could not receive the events of \(down). "
        + "The link went down, 0x13 (Remote User Terminated Connection): connect again.")
    #expect(
      try await text { () async throws(BluetoothError) in try await central.start() }
        == "Could not start the controller. The host has been closed: open another.")
    #expect(
      try await text { () async throws(BluetoothError) in _ = try await BluetoothHost.open("hci") }?
        .hasPrefix("Could not open hci. ") == true)
  }
}
