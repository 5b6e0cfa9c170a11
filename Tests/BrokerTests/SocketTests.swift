import BindruneControl
import BindruneTransport
import BindruneWire
import Foundation
import BindruneGATT
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneBroker

/// Frames of the socket between apps and the daemon.
@Suite struct FrameTests {
  private static let peer = UUID(PeerID(PeerAddress(DeviceAddress(0xC000_0000_0001), .random)))
  private static let id = OperationID(rawValue: .max)
  private static let handle = AttributeHandle(rawValue: 0xFFFF)
  private static let channel = ChannelDescription(number: 1, psm: 0x80, mtu: 2048, longestSDU: 23, credit: 8192)
  private static let found = FoundService(handle: handle, endHandle: handle, uuid: "180D", isPrimary: false)

  static let requests: [BrokerRequest] =
    ([
      .scan(services: ["180D", "A4E649F4-4BE5-11E5-885D-FEFF819CDC9F"], solicitedServices: [], allowsDuplicates: true),
      .stopScan,
      .connect(peer, ConnectOptions(startDelay: 0.25, reconnects: true, alerts: [.connection, .notification])),
      .cancelConnection(peer), .readRSSI(id, peer), .discoverServices(id, peer, nil),
      .discoverServices(id, peer, ["12345678"]), .discoverIncludedServices(id, peer, handle, []),
      .discoverCharacteristics(id, peer, handle, nil), .discoverDescriptors(id, peer, handle), .read(id, peer, handle),
      .write(id, peer, handle, Data((0...255).map { UInt8($0) })), .setNotifying(id, peer, handle, false),
      .openChannel(id, peer, psm: 0x80),
    ] as [BrokerRequest.Central]).map { .central($0) }
    + ([
      .addService(id, Pulse.description),
      .addService(
        id,
        ServiceDescription(
          uuid: "1805", isPrimary: false, includes: [handle],
          characteristics: [
            .init(
              uuid: "2A2B", properties: .read,
              permissions: AttributePermissions(
                read: .authenticated.withKey(of: 16).withAuthorization, write: .open.orSigned), configuring: .encrypted)
          ])),
      .removeService(handle), .removeAllServices, .setValue(handle, Data()),
      .respond(ServerRequest(rawValue: 1), central: peer, nil),
      .respond(ServerRequest(rawValue: 1).ofCommand, central: peer, Data([0])),
      .reject(ServerRequest(rawValue: 2), central: peer, .insufficientAuthorization),
      .startAdvertising(id, localName: "Rune \u{1F300}\u{0}\"", services: []), .stopAdvertising,
      .setDesiredLatency(peer, .high), .publishChannel(id, isEncrypted: true),
      .unpublishChannel(id, psm: .max),
    ] as [BrokerRequest.Peripheral]).map { .peripheral($0) }

  static let events: [BrokerEvent] = [
    .adapter(.unknown), .adapter(.poweredOn), .adapter(.poweredOff("It is off.")), .adapter(.resetting("")),
    .restored(
      {
        var state = RestoredState()
        state.scan = .init(services: ["180D"], solicitedServices: [], allowsDuplicates: false)
        state.peers = [
          .init(
            peer: peer, name: nil, isConnected: true, longestWrite: 20,
            services: [
              .init(
                service: found, isDiscovered: true, includes: [],
                characteristics: [
                  .init(
                    characteristic: FoundCharacteristic(
                      handle: handle, uuid: "2A37", properties: [.notify, .indicate]),
                    isNotifying: true, descriptors: [RemoteDescriptor(handle: handle, uuid: "2902")])
                ])
            ])
        ]
        state.services = [
          .init(
            description: Pulse.description, published: PublishedService(handle: handle),
            subscriptions: [.init(central: peer, handle: handle, longestUpdate: 512)])
        ]
        state.advertisement = .init(localName: nil, services: ["180D"])
        return state
      }()),
    .discovered(
      DiscoveredPeer(
        peer: peer, name: "N", rssi: -128, manufacturerData: Data([0x4C, 0]), overflowServices: ["180D"],
        serviceData: ["180F": Data([1])], txPower: 4, seconds: -1.5)),
    .scanFailed(BluetoothError(.att, "It says no.", operation: "scan", attError: .databaseOutOfSync, status: .success)),
    .connected(peer, name: nil, longestWrite: 514), .connectionFailed(peer, BluetoothError(.storage, "")),
    .disconnected(peer, nil, isReconnecting: true, seconds: 1e9), .nameChanged(peer, nil),
    .longestWriteChanged(peer, 0), .servicesChanged(peer, .all), .readyToWrite(peer),
    .linkedPeers([LinkedPeer(peer: peer, name: "", services: ["180D"])]), .completed(id, .success(.done)),
    .completed(id, .success(.rssi(nil))), .completed(id, .success(.value(Data([1])))),
    .completed(id, .success(.notifying(true))), .completed(id, .success(.services([found]))),
    .completed(id, .success(.includedServices([]))), .completed(id, .success(.characteristics([]))),
    .completed(id, .success(.descriptors([RemoteDescriptor(handle: handle, uuid: "2904")]))),
    .completed(id, .success(.published(PublishedService(handle: handle, characteristics: [.init(value: handle)])))),
    .completed(id, .success(.psm(0x80))), .completed(id, .failure(BluetoothError(.timedOut, "Too late."))),
    .subscribed(peer, handle, longestUpdate: 20),
    .unsubscribed(peer, handle), .longestUpdateChanged(peer, 512),
    .readRequested(ServerRequest(rawValue: .max), central: peer, handle, offset: 512, longestUpdate: 20),
    .writeRequested(
      ServerRequest(rawValue: 3), central: peer, [ServerWrite(handle: handle, offset: 0, value: Data())],
      longestUpdate: 20),
    .requestEnded(ServerRequest(rawValue: 3)), .readyToUpdate(peer), .advertisingEnded(BluetoothError(.busy, "Full.")),
    .values(peer, handle, [Data([1]), Data(), Data([2, 3])]),
  ]
  private static let manifest = AppManifest(
    identifier: "org.example.lock", backgroundModes: [.central], relaunch: ["/bin/true"])
  static let appMessages: [AppMessage] =
    requests.map { .request($0) } + [
      .hello(
        .init(
          manifest: manifest, manager: ManagerIdentity(.central, restoreIdentifier: "x"), adapter: "hci0",
          isReconnecting: true)),
      .hello(.init(manifest: AppManifest(identifier: "a", unit: "lock.service"))),
      .close, .value(port: 7, handle, ByteBuffer(bytes: [1, 2, 3])), .value(port: 0, handle, ByteBuffer()),
      .sdu(channel: 1, ByteBuffer(bytes: [1, 2, 3])), .sdu(channel: .max, ByteBuffer()),
      .sdusTaken(channel: 1, 2), .sdusTaken(channel: .max, .max), .closeChannel(1, dropping: false),
      .closeChannel(.max, dropping: true),
    ]
  static let daemonMessages: [DaemonMessage] =
    [
      .welcome(version: 2), .refused("It is off: switch it on."),
      .port(7, .notification, peer: peer, longest: 20, credit: 8192),
      .port(8, .command, peer: peer, longest: 20, credit: 8192), .portEnded(7), .credit(port: .max, octets: .max),
      .sdu(channel: 1, ByteBuffer(bytes: [1, 2, 3])), .sdu(channel: 2, ByteBuffer()),
      .sdusAccepted(channel: .max, octets: .max), .channelEnded(1, nil),
      .channelEnded(2, BluetoothError(.disconnected, "It is gone.")), .channel(id, channel),
      .channelAccepted(channel, central: peer, longestUpdate: 20),
    ] + events.map { .event($0) }
  /// Every message, and the frames of a control.
  static let frames: [[UInt8]] =
    appMessages.map { $0.frame } + daemonMessages.map { $0.frame }
    + [(DaemonFrameKind.control, DaemonControl.list.text), (.line, "a\tb"), (.end, ""), (.end, "Why.")].map {
      var writer = MessageWriter()
      writer.writeText($0.rawValue, $1)
      return Array(writer.buffer.readableBytesView)
    }

  /// Another implementation reads it.
  @Test("S20, S21, S22: a manifest as others write it") func aManifestAsOthersWriteIt() throws {
    for control in [
      DaemonControl.list, .move(app: "a.b", life: "suspended"), .log, .launched(app: "a.b"),
    ] {
      #expect(try DaemonControl(text: control.text) == control)
    }
    for bad in ["", "1", "0\tlist", "1\tlist\tx", "1\tmove\ta", "1\teject"] {
      #expect(throws: DaemonAnswerError.self) { try DaemonControl(text: bad) }
    }
    let row = AppRow(
      identifier: "a.b", user: 7, life: "awake", pid: nil, modes: ["bluetooth-central", "bluetooth-peripheral"],
      managers: 2, preserved: 1, canRelaunch: true)
    #expect(AppRow(text: row.text) == row && AppRow(text: "a") == nil)
    let text = #"{"UIBackgroundModes":["bluetooth-central","bluetooth-peripheral"],"identifier":"a.b","x":1}"#
    let manifest = try JSONDecoder().decode(AppManifest.self, from: Data(text.utf8))
    #expect(manifest == AppManifest(identifier: "a.b", backgroundModes: [.central, .peripheral]))
    for bad in [
      #"{"identifier":""}"#, #"{"identifier":"../x"}"#, #"{"identifier":"a/b"}"#, #"{"UIBackgroundModes":[]}"#,
      #"{"identifier":"a","UIBackgroundModes":["audio"]}"#, #"{"identifier":"a","relaunch":["lock"]}"#,
      #"{"identifier":"a","relaunch":[]}"#, #"{"identifier":"a","unit":"a b.service"}"#,
      #"{"identifier":"a","unit":"--now.service"}"#, #"{"identifier":"a","unit":"x.target"}"#,
      #"{"identifier":"a","unit":"x.service","relaunch":["/bin/x"]}"#,
    ] {
      #expect(throws: DecodingError.self, "\(bad)") { try JSONDecoder().decode(AppManifest.self, from: Data(bad.utf8)) }
    }
  }
  @Test("S19, S22: the manifest beside the executable, the one that the environment names, or none")
  func theProgramsManifest() throws {
    let text = #"{"identifier":"a.b","UIBackgroundModes":["bluetooth-central"],"unit":"lock@a.service"}"#
    let known = AppManifest(identifier: "a.b", backgroundModes: [.central], unit: "lock@a.service")
    func manifest(_ path: String, _ variables: [String: String] = [:], _ files: [String: String]) throws -> AppManifest
    {
      try AppManifest.ofProgram(at: path, environment: { variables[$0] }) { files[$0] }
    }
    #expect(try manifest("/usr/bin/lock", [:], ["/usr/bin/lock.bindrune.json": text]) == known)
    #expect(
      try manifest("/usr/bin/lock", ["BINDRUNE_MANIFEST": "/m"], ["/m": text, "/usr/bin/lock.bindrune.json": "x"])
        == known)
    #expect(try manifest("/opt/my lock!", [:], [:]) == AppManifest(identifier: "my_lock_"))
    #expect(try manifest("/opt/.hidden", [:], [:]).identifier == "app" && manifest("", [:], [:]).identifier == "app")
    for (variables, files) in [
      (["BINDRUNE_MANIFEST": "/m"], [:]), ([:], ["/x.bindrune.json": "{"]),
      ([:], ["/x.bindrune.json": #"{"identifier":1}"#]),
    ] {
      #expect(throws: FrameError.self) { try manifest("/x", variables, files) }
    }
    #expect(throws: FrameError("The manifest /x.bindrune.json cannot be read (ioError): mend or remove it.")) {
      try AppManifest.ofProgram(at: "/x", environment: { _ in nil }) { _ in throw Unreadable() }
    }
  }
  private struct Unreadable: Error, CustomStringConvertible { var description: String { "ioError" } }

  /// A prefix is incomplete; anything else is a frame or an error that says what is wrong.
  @Test func mutations() throws {
    for frame in Self.frames {
      for count in stride(from: 0, to: frame.count, by: max(1, frame.count / 64)) {
        var buffer = ByteBuffer(bytes: frame[..<count])
        #expect(try Frame.read(from: &buffer) == nil)
      }
    }
    var errors = 0, messages = 0
    for octets in Fuzz(Self.frames, longest: 2000) {
      var buffer = ByteBuffer(bytes: octets)
      do throws(FrameError) {
        while let frame = try Frame.read(from: &buffer) {
          if try AppMessage(frame) != nil { messages += 1 }
          if try DaemonMessage(frame) != nil { messages += 1 }
        }
      } catch {
        errors += 1
        #expect(!error.description.isEmpty)
      }
    }
    #expect(errors > Fuzz.cases / 10 && messages > 0)
  }
}

extension DeclaredMessage {
  /// As it is on the socket.
  var frame: [UInt8] {
    var writer = MessageWriter()
    writer.write(self)
    return Array(writer.buffer.readableBytesView)
  }
}
