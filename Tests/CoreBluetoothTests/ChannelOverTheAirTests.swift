// swift-format-ignore-file: AlwaysUseLowerCamelCase
// The names are Apple's.
import BindruneTransport
import Foundation
import TestSupport
import Testing

@testable import BindruneBroker
@testable import CoreBluetooth

/// Makes the session of a manager.
private typealias Opener = (BackgroundMode, EventQueue) -> any BrokerSession

/// One program of Core Bluetooth: notes what its delegate is told, and waits for it on a thread that may wait.
private final class ChannelApp: NSObject, CBPeripheralManagerDelegate, CBCentralManagerDelegate, CBPeripheralDelegate,
  @unchecked Sendable
{
  // Sendable: everything that changes is guarded by the condition, or by the test's one thread.
  private let condition = NSCondition()
  private var notes: [String] = []
  private var channels: [CBL2CAPChannel] = []
  private var psms: [CBL2CAPPSM] = []
  private(set) var errors: [any Error] = []
  private var peripheral: CBPeripheral?
  private let queue = DispatchQueue(label: "app")
  var publisher: CBPeripheralManager?
  var central: CBCentralManager?

  func note(_ text: String, _ change: () -> Void = {}) {
    condition.withLock {
      change()
      notes.append(text)
      condition.broadcast()
    }
  }
  /// Takes the next note with this text. False: it did not come within the bound.
  func wait(_ text: String, sourceLocation: SourceLocation = #_sourceLocation) -> Bool {
    condition.withLock {
      let limit = Date(timeIntervalSinceNow: Hang.seconds)
      while !notes.contains(text) {
        guard condition.wait(until: limit) else {
          Issue.record("\(text) did not come; there was \(notes)", sourceLocation: sourceLocation)
          return false
        }
      }
      notes.remove(at: notes.firstIndex(of: text)!)
      return true
    }
  }
  func channel() -> CBL2CAPChannel? { wait("opened") ? condition.withLock { channels.removeFirst() } : nil }
  func psm() -> CBL2CAPPSM { wait("published") ? condition.withLock { psms.removeFirst() } : 0 }
  var device: CBPeripheral? { condition.withLock { peripheral } }

  func publish(_ open: @escaping Opener) {
    publisher = CBPeripheralManager(delegate: self, queue: queue) { open(.peripheral, $0) }
    _ = wait("on")
  }
  func connect(_ open: @escaping Opener) {
    central = CBCentralManager(delegate: self, queue: queue) { open(.central, $0) }
    _ = wait("on")
    central?.scanForPeripherals(withServices: [CBUUID(string: "180D")])
    _ = wait("connected")
  }

  func peripheralManagerDidUpdateState(_ peripheral: CBPeripheralManager) {
    note(peripheral.state == .poweredOn ? "on" : "off")
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, didPublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) {
    if let error { return note("not published") { errors.append(error) } }
    note("published") { psms.append(psm) }
  }
  func peripheralManager(
    _ peripheral: CBPeripheralManager, didUnpublishL2CAPChannel psm: CBL2CAPPSM, error: (any Error)?
  ) {
    if let error { return note("not unpublished") { errors.append(error) } }
    note("unpublished \(psm)")
  }
  func peripheralManager(_ peripheral: CBPeripheralManager, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
    opened(channel, error)
  }
  func peripheralManagerDidStartAdvertising(_ peripheral: CBPeripheralManager, error: (any Error)?) {
    note("advertising")
  }
  func centralManagerDidUpdateState(_ central: CBCentralManager) { note(central.state == .poweredOn ? "on" : "off") }
  func centralManager(
    _ central: CBCentralManager, didDiscover peripheral: CBPeripheral, advertisementData: [String: Any],
    rssi RSSI: NSNumber
  ) {
    condition.withLock { self.peripheral = peripheral }
    peripheral.delegate = self
    central.stopScan()
    central.connect(peripheral)
  }
  func centralManager(_ central: CBCentralManager, didConnect peripheral: CBPeripheral) { note("connected") }
  func centralManager(
    _ central: CBCentralManager, didDisconnectPeripheral peripheral: CBPeripheral, error: (any Error)?
  ) { note("disconnected") }
  func peripheral(_ peripheral: CBPeripheral, didReadRSSI RSSI: NSNumber, error: (any Error)?) { note("rssi") }
  func peripheral(_ peripheral: CBPeripheral, didOpen channel: CBL2CAPChannel?, error: (any Error)?) {
    opened(channel, error)
  }
  private func opened(_ channel: CBL2CAPChannel?, _ error: (any Error)?) {
    if let channel { return note("opened") { channels.append(channel) } }
    note("refused") { if let error { errors.append(error) } }
  }
}

extension CBL2CAPChannel {
  /// On a thread of its own: writes all of it. The number of octets that were taken.
  fileprivate func writing(_ octets: [UInt8], _ count: Shared<Int> = Shared(0)) -> Worker<Int> {
    let stream = Shared(outputStream!)
    stream.value.open()
    return Worker {
      while count.value < octets.count {
        let written = stream.value.write(Array(octets[count.value...].prefix(3000)))
        if written <= 0 { break }
        count.value += written
      }
      return count.value
    }
  }
  /// On a thread of its own: reads this many octets, or up to the end.
  fileprivate func reading(_ count: Int) -> Worker<[UInt8]> {
    let stream = Shared(inputStream!)
    stream.value.open()
    return Worker {
      var octets: [UInt8] = []
      while octets.count < count, let read = stream.value.read(min(4096, count - octets.count)), !read.isEmpty {
        octets += read
      }
      return octets
    }
  }
}

/// Two programs, two adapters and the air between them, in one process and in real time: streams wait on threads. The
/// programs have their adapters to themselves, or share them through a daemon's socket.
@Suite(.serialized, .realTime, .hang) struct ChannelOverTheAirTests {
  enum Place: CaseIterable, Sendable { case adapter, daemon }

  private final class Air: @unchecked Sendable {
    // Sendable: used by the test's one thread.
    let radio: SimulatedRadio
    let names = (0..<2).map { "\($0)-\(UUID())" }
    let server = ChannelApp(), client = ChannelApp()
    private let path = "/tmp/bindrune-channels-\(UInt64.random(in: 0 ... .max)).socket"
    private var daemon: AppDaemon?

    init(_ place: Place) {
      let loop = EventLoops.next(), radio = SimulatedRadio(on: loop, seed: 7, configuration: .ideal)
      for name in names {
        DirectSession.provideAdapter(named: name, on: loop) { _ async throws(TransportError) in radio.controller() }
      }
      self.radio = radio
      if place == .daemon { startDaemon() }
    }
    func startDaemon() {
      let names = names, path = path
      daemon = Self.wait { try? await AppDaemon(sharing: names, at: path) }
      #expect(daemon != nil)
    }
    func stopDaemon() {
      if let daemon { Self.wait { await daemon.stop() } }
      daemon = nil
    }
    private static func wait<Value: Sendable>(_ body: @escaping @Sendable () async -> Value) -> Value {
      let isDone = DispatchSemaphore(value: 0), result = Shared<Value?>(nil)
      Task {
        result.value = await body()
        isDone.signal()
      }
      isDone.wait()
      return result.value!
    }
    /// The session of a program on the adapter of this number.
    func opener(_ number: Int, app: String) -> Opener {
      let name = names[number], path = path
      guard daemon != nil else { return { DirectSession(adapter: name, as: ManagerIdentity($0), events: $1) } }
      return { role, events in
        let hello = AppMessage.Hello(
          manifest: AppManifest(identifier: app), manager: ManagerIdentity(role), adapter: name)
        return RemoteSession(to: path, hello, events: events)
      }
    }
    /// The server publishes, and the client connects. The PSM.
    func meet(isEncrypted: Bool = false) -> CBL2CAPPSM {
      server.publish(opener(0, app: "server"))
      server.publisher?.publishL2CAPChannel(withEncryption: isEncrypted)
      let psm = server.psm()
      server.publisher?.startAdvertising([CBAdvertisementDataServiceUUIDsKey: [CBUUID(string: "180D")]])
      _ = server.wait("advertising")
      client.connect(opener(1, app: "client"))
      return psm
    }
    /// The client's end, and the server's.
    func open(_ psm: CBL2CAPPSM) -> (CBL2CAPChannel, CBL2CAPChannel)? {
      client.device?.openL2CAPChannel(psm)
      guard let near = client.channel(), let far = server.channel() else { return nil }
      return (near, far)
    }
    func close() {
      server.publisher = nil
      client.central = nil
      stopDaemon()
      radio.eventLoop.execute { [radio] in radio.close() }
    }
  }
  private static func meeting(
    _ place: Place, isEncrypted: Bool = false, _ body: @escaping @Sendable (Air, CBL2CAPPSM) -> Void
  ) async {
    await onThread {
      let air = Air(place)
      body(air, air.meet(isEncrypted: isEncrypted))
      air.close()
    }
  }

  @Test(arguments: Place.allCases, [false, true]) func octetsInBothDirections(_ place: Place, isEncrypted: Bool) async {
    await Self.meeting(place, isEncrypted: isEncrypted) { air, psm in
      #expect((0x80...0xFF).contains(psm))
      guard let (near, far) = air.open(psm) else { return }
      #expect(near.psm == psm && far.psm == psm)
      #expect(near.peer === air.client.device && far.peer is CBCentral)
      let up = ramp(100_000), down = ramp(100_000, from: 7)
      let readers = (far.reading(100_000), near.reading(100_000))
      let writers = (near.writing(up), far.writing(down))
      #expect(writers.0.value == 100_000 && writers.1.value == 100_000)
      #expect(readers.0.value == up && readers.1.value == down)
      // Both streams closed: the peer gets the end, after what was written.
      #expect(near.outputStream.write([1, 2, 3]) == 3)
      near.outputStream.close()
      near.inputStream.close()
      #expect(far.reading(10).value == [1, 2, 3])
      #expect(far.inputStream.streamStatus == .atEnd)
    }
  }

  @Test(arguments: Place.allCases) func aReaderThatStopsStopsTheWriter(_ place: Place) async {
    await Self.meeting(place) { air, psm in
      guard let (near, far) = air.open(psm) else { return }
      let octets = ramp(400_000), count = Shared(0)
      let writer = near.writing(octets, count)
      // What can move has moved when the link has answered requests; the writer could have had no room before, too.
      for _ in 0..<20 {
        air.client.device?.readRSSI()
        _ = air.client.wait("rssi")
      }
      // Two pipes, the ports' rings, the daemon's credit, GAP's queue, and the credits.
      #expect(count.value < 100_000)
      // Another channel of the same link moves.
      guard let (other, end) = air.open(psm) else { return }
      let moving = other.writing(ramp(50_000))
      #expect(end.reading(50_000).value == ramp(50_000) && moving.value == 50_000 && count.value < 100_000)
      #expect(far.reading(400_000).value == octets && writer.value == 400_000)
    }
  }

  @Test(arguments: Place.allCases) func unpublishedAndWrongPSMsAreRefused(_ place: Place) async {
    await Self.meeting(place) { air, psm in
      guard let (near, far) = air.open(psm) else { return }
      air.server.publisher?.unpublishL2CAPChannel(psm)
      #expect(air.server.wait("unpublished \(psm)"))
      for refused in [psm, 0xF0] {
        air.client.device?.openL2CAPChannel(refused)
        #expect(air.client.wait("refused"))
        #expect((air.client.errors.last as? CBError)?.code == .operationNotSupported)
      }
      air.server.publisher?.unpublishL2CAPChannel(psm)
      #expect(air.server.wait("not unpublished"))
      #expect((air.server.errors.last as? CBError)?.code == .invalidParameters)
      // The open channel stays.
      near.outputStream.open()
      #expect(near.outputStream.write([9]) == 1)
      #expect(far.reading(1).value == [9])
    }
  }

  @Test(arguments: Place.allCases) func theEndOfTheLinkIsAnError(_ place: Place) async {
    await Self.meeting(place) { air, psm in
      guard let (near, far) = air.open(psm), let device = air.client.device else { return }
      let readers = (near.reading(1), far.reading(1))
      air.client.central?.cancelPeripheralConnection(device)
      #expect(air.client.wait("disconnected"))
      #expect(readers.0.value == [] && readers.1.value == [])
      #expect(near.inputStream.streamStatus == .error && far.inputStream.streamStatus == .error)
      #expect((far.inputStream.streamError as? CBError)?.code == .peripheralDisconnected)
    }
  }

  @Test(arguments: Place.allCases) func whatIsReleasedCloses(_ place: Place) async {
    await Self.meeting(place) { air, psm in
      air.client.device?.openL2CAPChannel(psm)
      // The one that the client gets is released here.
      guard air.client.channel() != nil, let far = air.server.channel() else { return }
      #expect(far.reading(1).value == [] && far.inputStream.streamStatus == .atEnd)
      guard let (kept, other) = air.open(psm) else { return }
      let reader = kept.reading(1)
      air.server.publisher = nil
      #expect(reader.value == [] && kept.inputStream.streamStatus == .atEnd)
      withExtendedLifetime(other) {}
    }
  }

  @Test(arguments: Place.allCases) func eachManagerHasItsPSM(_ place: Place) async {
    await Self.meeting(place) { air, psm in
      let second = ChannelApp()
      second.publish(air.opener(0, app: "second"))
      second.publisher?.publishL2CAPChannel(withEncryption: false)
      let other = second.psm()
      #expect(other != psm)
      air.client.device?.openL2CAPChannel(other)
      guard let near = air.client.channel(), let far = second.channel() else { return }
      #expect(near.psm == other && far.psm == other)
      // One manager ends with its PSM and its channels.
      guard let (mine, yours) = air.open(psm) else { return }
      let end = near.reading(1)
      second.publisher = nil
      #expect(end.value == [])
      air.client.device?.openL2CAPChannel(other)
      #expect(air.client.wait("refused"))
      mine.outputStream.open()
      #expect(mine.outputStream.write([5]) == 1 && yours.reading(1).value == [5])
      withExtendedLifetime(far) {}
    }
  }

  /// The radio of both adapters is gone, and comes back: the streams fail, and what was published is gone.
  @Test(arguments: Place.allCases) func theLossOfTheRadioIsAnError(_ place: Place) async {
    await Self.meeting(place) { air, psm in
      guard let (near, far) = air.open(psm) else { return }
      let readers = (near.reading(1), far.reading(1))
      air.radio.eventLoop.execute { [radio = air.radio] in radio.close() }
      #expect(readers.0.value == [] && readers.1.value == [])
      #expect(near.inputStream.streamStatus == .error && far.inputStream.streamStatus == .error)
      #expect(air.client.wait("off") && air.server.wait("off"))
      air.client.device?.openL2CAPChannel(psm)
      #expect(air.client.wait("refused"))
      air.server.publisher?.unpublishL2CAPChannel(psm)
      #expect(air.server.wait("not unpublished"))
    }
  }

  /// The programs connect to the next daemon by themselves; channels of the former one have failed.
  @Test func theEndOfTheDaemonIsAnError() async {
    await Self.meeting(.daemon) { air, psm in
      guard let (near, far) = air.open(psm) else { return }
      // What the far end leaves unread stops the writer, so that it writes when the daemon ends, on any machine.
      let readers = (near.reading(1), far.reading(10_000)), writer = near.writing(ramp(400_000))
      air.stopDaemon()
      #expect(readers.0.value == [] && readers.1.value != nil && writer.value != 400_000)
      // What had arrived, and then the end.
      #expect(far.reading(400_000).value != nil)
      // The daemon may still tell one of them that the other has gone.
      #expect(near.inputStream.streamStatus == .error && [.error, .atEnd].contains(far.inputStream.streamStatus))
      #expect((near.inputStream.streamError as? CBError)?.code == .unknown)
      #expect(air.client.wait("off") && air.server.wait("off"))
      air.startDaemon()
      #expect(air.server.wait("on"))
      air.server.publisher?.publishL2CAPChannel(withEncryption: false)
      #expect(air.server.psm() == psm)
    }
  }
}
