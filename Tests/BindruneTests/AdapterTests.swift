import BindruneAdapters
import Glibc
import Logging
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import Bindrune
@testable import BindruneTransport

/// Whole hosts over the transports of this machine's adapters: sockets that keep packets whole, and serial lines. The
/// controllers are virtual; Tests/Kernel has the real sockets.
@Suite("Adapters", .realTime, .hang) struct AdapterTests {
  /// Two ends of a socket that keeps packets whole.
  private func socketPair() throws -> (host: FileDescriptor, controller: FileDescriptor) {
    var ends: [CInt] = [-1, -1]
    try #require(unsafe socketpair(AF_UNIX, CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0)
    return (FileDescriptor(rawValue: ends[0]), FileDescriptor(rawValue: ends[1]))
  }
  /// A virtual controller of `lab` behind one end of such a socket, and the transport at the other.
  private func socket(_ lab: Lab, adapter: UInt16 = 0) async throws -> UserChannelSocket {
    let ends = try socketPair(), radio = lab.radio
    let far = try await UserChannelSocket.adopt(ends.controller, of: adapter, on: radio.eventLoop)
    _ = try await radio.eventLoop.submit { radio.attach(far) }.get()
    return try await UserChannelSocket.adopt(ends.host, of: adapter, on: RealTime.nextLoop())
  }

  /// Everything that two hosts do: find, connect, discover, long reads and writes, and 1,000 notifications in order.
  private func converse(_ central: BluetoothHost, _ peripheral: BluetoothHost, _ belt: Belt) async throws {
    var served = await peripheral.events.makeAsyncIterator()
    try await peripheral.advertiseFast()
    let found = try await within { try await central.find("Belt") }
    let link = try await central.connect(to: found.address, .fast)
    let measurement = try await link.discovered("2A37")
    #expect(try await link.read(belt.long) == Belt.longValue)
    try await link.write([7, 8, 9], to: belt.short)
    #expect(try await link.read(belt.short) == [7, 8, 9])

    let count = 1000
    let reader = Task {
      var next = 0
      for try await value in link.notifications(of: measurement) {
        #expect(value.value == [UInt8(next & 0xFF), UInt8(next >> 8)])
        next += 1
        if next == count { return next }
      }
      return next
    }
    var client: Link?
    while let event = try await served.next() {
      if case .connected(let link) = event { client = link }
      if case .subscriptionChanged(_, belt.notifying, _) = event { break }
    }
    let port = try await #require(client).sendPort(.notification, to: belt.notifying, capacity: 4096)
    for number in 0..<count {
      while !port.offer([UInt8(number & 0xFF), UInt8(number >> 8)]) { try await port.waitUntilReady() }
    }
    #expect(try await within { try await reader.value } == count)
    try await link.disconnect()
  }

  @Test func twoHostsOverPacketSockets() async throws {
    let lab = Lab.overSockets(), belt = try Belt()
    let central = BluetoothHost(try await socket(lab, adapter: 0))
    let peripheral = BluetoothHost(try await socket(lab, adapter: 1), database: belt.database)
    try await central.start()
    try await peripheral.start()
    try await converse(central, peripheral, belt)
    await central.close()
    await peripheral.close()
    try await eventually { try await lab.controllerCount() == 0 }
  }

  /// `serial:PATH,BAUD`, as a user spells it; the controller has the other end of a pseudo terminal.
  @Test func aHostOverASerialLine() async throws {
    let lab = Lab.overSockets(), belt = try Belt(), radio = lab.radio
    let peripheral = try await lab.host(belt.database)
    let master = unsafe open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    try #require(master >= 0)
    var lock: CInt = 0, number: CInt = 0
    _ = unsafe ioctl(master, 0x4004_5431, &lock)  // TIOCSPTLCK and TIOCGPTN: ioctl_tty(2)
    _ = unsafe ioctl(master, 0x8004_5430, &number)
    let far = try await NIOPipeBootstrap(group: radio.eventLoop).channelOption(.autoRead, value: false)
      .takingOwnershipOfDescriptor(inputOutput: master) { channel in
        channel.eventLoop.makeCompletedFuture {
          try H4Stream.make(channel, incoming: .fromHost, limits: H4Framer.Limits())
        }
      }
    _ = try await radio.eventLoop.submit { radio.attach(far) }.get()
    let spec = "serial:/dev/pts/\(number),1000000"
    let central = try await within { try await BluetoothHost.open(spec) }
    try await converse(central, peripheral, belt)
    await central.close()
    try await eventually { try await lab.controllerCount() == 1 }
    await peripheral.close()
  }

  // MARK: A removed adapter

  /// In mid-connection: every wait ends with a named error, and a host can be opened on the next adapter at once.
  @Test func unplugged() async throws {
    let lab = Lab.overSockets(), belt = try Belt(), ends = try socketPair(), radio = lab.radio
    let peripheral = try await lab.host(belt.database)
    var served = await peripheral.events.makeAsyncIterator()
    try await peripheral.advertiseFast()
    let far = try await UserChannelSocket.adopt(ends.controller, of: 0, on: radio.eventLoop)
    _ = try await radio.eventLoop.submit { radio.attach(far) }.get()
    let central = BluetoothHost(
      try await UserChannelSocket.adopt(ends.host, of: 0, on: RealTime.nextLoop()))
    try await central.start()
    let link = try await central.connect(to: peripheral.ownAddress, .fast)
    // A listener receives the read and does not answer: without a listener the host refuses it at once.
    let requests = await peripheral.events
    let read = Task { try await link.read(belt.dynamic) }
    while let event = try await served.next() { if case .readRequested = event { break } }
    let events = await central.events
    _ = try await radio.eventLoop.submit { far.close() }.get()
    let error = await #expect(throws: BluetoothError.self) { try await within { try await read.value } }
    #expect(error?.code == .transport)
    #expect(try await errorCode { () async throws(BluetoothError) in for try await _ in events {} } == .transport)
    await central.close()

    let next = BluetoothHost(try await socket(lab))
    try await next.start()
    await next.close()
    await peripheral.close()
    withExtendedLifetime(requests) {}
  }

  // MARK: A controller that stops answering

  /// Each command ends by its time-out, with a named error; the host still closes, and the next one on the same
  /// controller works.
  @Test func aSilentController() async throws {
    let lab = Lab.overSockets(), radio = lab.radio
    let relays = AsyncStream.makeStream(of: Relay.self)
    let server = try await H4Server.listen(on: .tcp(host: "127.0.0.1", port: 0), loop: radio.eventLoop) { stream in
      relays.continuation.yield(Relay(stream, radio.controller()))
    }
    var connected = relays.stream.makeAsyncIterator()
    let spec = "\(server.address)"
    let host = try await BluetoothHost.open(spec)
    let relay = try #require(await connected.next())
    try await relay.fallSilent()
    func error(_ body: @escaping @Sendable () async throws -> Void) async throws -> BluetoothError? {
      try await within { await #expect(throws: BluetoothError.self) { try await body() } }
    }
    async let scan = error { for try await _ in host.scan() {} }
    async let connect = error { _ = try await host.connect(to: PeerAddress(DeviceAddress(0xC0FF_EE00_0001), .random)) }
    async let advertise = error { try await host.advertise(AdvertisingData(localName: "Nobody")) }
    for error in try await [scan, connect, advertise] {
      #expect(error?.code == .controller, "\(error.map { "\($0)" } ?? "none")")
      #expect(error?.diagnostics.hasPrefix("The controller did not answer within 2 s: ") == true)
    }
    try await within { await host.close() }

    // The same spelling opens a new host.
    let again = try await within { try await BluetoothHost.open(spec) }
    let heard = try await lab.host()
    try await heard.advertiseFast()
    _ = try await within { try await again.find("Belt") }
    await again.close()
    await heard.close()
    await server.close()
  }

  // MARK: An adapter that is up

  /// A fake kernel: adapter 0 is up, and its socket leads to `descriptor`.
  private final class PaperKernel: Sendable {
    let isUp = Mutex(true)
    func kernel(_ descriptor: FileDescriptor) -> HCIKernel {
      var kernel = HCIKernel()
      kernel.socket = { descriptor }
      kernel.bind = { _, _ throws(Errno) in if self.isUp.withLock({ $0 }) { throw .resourceBusy } }
      kernel.power = { _, isUp in self.isUp.withLock { $0 = isUp } }
      kernel.view = {
        let flags: UInt32 = self.isUp.withLock { $0 } ? 1 : 0
        return HCISocketView(
          adapters: [.init(number: 0, address: nil, bus: 0, flags: flags, hasUserChannel: false)])
      }
      return kernel
    }
    func host(_ descriptor: FileDescriptor) async throws -> BluetoothHost {
      let loop = RealTime.nextLoop()
      let socket = try await UserChannelSocket.open(0, takesDown: true, on: loop, kernel(descriptor))
      #expect(!isUp.withLock { $0 })
      return BluetoothHost(socket)
    }
  }

  /// It is up again when `close` returns, however the host ended.
  @Test func anAdapterIsUpAgainAfterwards() async throws {
    let lab = Lab.overSockets(), radio = lab.radio, ends = try socketPair(), kernel = PaperKernel()
    let far = try await UserChannelSocket.adopt(ends.controller, of: 0, on: radio.eventLoop)
    _ = try await radio.eventLoop.submit { radio.attach(far) }.get()
    let host = try await kernel.host(ends.host)
    try await host.start()
    #expect(!kernel.isUp.withLock { $0 })
    await host.close()
    #expect(kernel.isUp.withLock { $0 })
  }
  /// HCI_Reset gets no answer.
  @Test func alsoWhenTheStartFails() async throws {
    let ends = try socketPair(), kernel = PaperKernel()
    defer { try? ends.controller.close() }
    let host = try await kernel.host(ends.host)
    #expect(try await errorCode { () async throws(BluetoothError) in try await host.start() } == .controller)
    await host.close()
    #expect(kernel.isUp.withLock { $0 })
  }
  @Test func alsoWhenTheStartIsCancelled() async throws {
    let ends = try socketPair(), kernel = PaperKernel()
    defer { try? ends.controller.close() }
    let host = try await kernel.host(ends.host)
    let start = Task { () -> BluetoothError.Code? in
      do throws(BluetoothError) { try await host.start() } catch {
        await host.close()
        return error.code
      }
      return nil
    }
    start.cancel()
    #expect(try await within { await start.value } == .cancelled)
    #expect(kernel.isUp.withLock { $0 })
  }
  /// Releasing the last reference closes it.
  @Test func alsoWhenTheHostIsLetGo() async throws {
    let ends = try socketPair(), kernel = PaperKernel()
    defer { try? ends.controller.close() }
    do { _ = try await kernel.host(ends.host) }
    try await eventually { kernel.isUp.withLock { $0 } }
  }

  @Test func onlyAnAdapterIsTakenDown() async throws {
    for spec in ["sim", "unix:/no/such.sock", "serial:/dev/null"] {
      let error = await #expect(throws: BluetoothError.self) { _ = try await BluetoothHost.open(spec, takesDown: true) }
      #expect(error?.code == .transport && error?.diagnostics.contains("only an adapter") == true)
    }
  }
}
