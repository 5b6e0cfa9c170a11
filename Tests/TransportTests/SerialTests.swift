import BindruneWire
import Foundation
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import BindruneTransport

/// A pseudo terminal: the slave is the serial line, by its path; the master is the controller.
final class SerialLine: Sendable {
  let master: CInt
  let path: String

  init() throws {
    master = unsafe open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    // TIOCSPTLCK unlocks the slave, TIOCGPTN returns its number: ioctl_tty(2).
    var lock: CInt = 0, number: CInt = 0
    _ = unsafe ioctl(master, 0x4004_5431, &lock)
    _ = unsafe ioctl(master, 0x8004_5430, &number)
    path = "/dev/pts/\(number)"
  }
  deinit { close(master) }

  /// The settings of the line, which both ends share.
  func settings() -> termios {
    var found = termios()
    unsafe tcgetattr(master, &found)
    return found
  }
  /// The controller's end, on a descriptor of its own.
  func controller(on loop: any EventLoop) async throws -> H4Stream {
    let (input, output) = (fcntl(master, F_DUPFD_CLOEXEC, 0), fcntl(master, F_DUPFD_CLOEXEC, 0))
    return try await NIOPipeBootstrap(group: loop).channelOption(.autoRead, value: false)
      .takingOwnershipOfDescriptors(input: input, output: output) { channel in
        channel.eventLoop.makeCompletedFuture {
          try H4Stream.make(channel, incoming: .fromHost, limits: H4Framer.Limits())
        }
      }
  }
}

@Suite(.realTime, .hang) struct SerialTests {
  /// Every octet value, in both directions: nothing is interpreted.
  @Test func packetsGoBothWays() async throws {
    try await withLoop { loop in
      let line = try SerialLine()
      let stream = try await H4Stream.connect(to: .serial(path: line.path, baud: 1_000_000), on: loop)
      let controller = try await line.controller(on: loop)
      let (atHost, atController) = (Recorder(loop), Recorder(loop))
      let packets = (0..<200).map { number in
        [0x02, 0x40, 0x20, 0x00, 0x01] + (0..<256).map { UInt8(truncatingIfNeeded: $0 + number) }
      }
      try await loop.run {
        atController.onPacket = { _, packet in
          controller.send(packet)
          controller.flush()
        }
        controller.start(atController)
        stream.start(atHost)
        for packet in packets { stream.send(packet) }
        stream.flush()
      }
      try await atHost.wait { $0.packets.count == packets.count }
      try await loop.run {
        #expect(atController.packets == packets && atHost.packets == packets)
        stream.close()
      }
      try await stream.closeFuture.get()
      try await loop.run { controller.close() }
    }
  }

  @Test(arguments: [115_200, 50, 4_000_000]) func theLineIsRawWithFlowControl(baud: Int) async throws {
    try await withLoop { loop in
      let line = try SerialLine()
      let stream = try await H4Stream.connect(to: TransportSpec("serial:\(line.path),\(baud)"), on: loop)
      var found = line.settings()
      let speeds = unsafe [cfgetispeed(&found), cfgetospeed(&found)]
      let speed = speed_t([115_200: B115200, 50: B50, 4_000_000: B4000000][baud] ?? B0)
      #expect(speeds == [speed, speed])
      #expect(found.c_lflag & tcflag_t(ECHO | ICANON | ISIG | IEXTEN) == 0 && found.c_oflag & tcflag_t(OPOST) == 0)
      #expect(found.c_iflag & tcflag_t(IXON | ICRNL | INLCR | IGNCR | ISTRIP | BRKINT | PARMRK) == 0)
      #expect(found.c_cflag & tcflag_t(CSIZE) == tcflag_t(CS8) && found.c_cflag & tcflag_t(PARENB | CSTOPB) == 0)
      #expect(
        found.c_cflag & tcflag_t(CRTSCTS) != 0 && found.c_cflag & tcflag_t(CLOCAL | CREAD) == tcflag_t(CLOCAL | CREAD))
      try await loop.run { stream.close() }
      try await stream.closeFuture.get()
    }
  }

  @Test func otherFilesAreNotSerialPorts() async throws {
    try await withLoop { loop in
      func error(_ path: String, _ baud: Int = 115_200) async -> TransportError? {
        do throws(TransportError) {
          _ = try await H4Stream.connect(to: .serial(path: path, baud: baud), on: loop)
        } catch { return error }
        return nil
      }
      let nowhere = TransportSpec.serial(path: "/no/such/tty", baud: 115_200)
      #expect(await error("/no/such/tty") == .notFound(nowhere))
      #expect(TransportError.notFound(nowhere).description.contains("no device at serial:/no/such/tty"))
      for (path, baud, words) in [("/dev/null", 115_200, "not a serial port"), ("/dev/null", 123_456, "115200, ")] {
        guard case .unsuitable(_, let why) = await error(path, baud) else {
          Issue.record("\(path)")
          continue
        }
        #expect(why.contains(words))
      }
      let line = try SerialLine(), path = line.path
      for baud in [0, -1, 4_000_001, .max] {
        if case .unsuitable = await error(path, baud) {} else { Issue.record("\(baud)") }
      }
    }
  }

  /// The last packet is the reset that restores the controller; then the transport closes, even if nothing reads.
  @Test func theLastPacketArrivesAndAStalledLineCloses() async throws {
    try await withLoop { loop in
      let line = try SerialLine()
      let stream = try await H4Stream.connect(to: .serial(path: line.path, baud: 1_000_000), on: loop)
      try await loop.run {
        stream.send(octets("01 03 0C 00"))
        for number in 0..<1000 { stream.send(acl(number, count: 200)) }
        stream.close()
        #expect(!stream.isWritable)
        var first = [UInt8](repeating: 0, count: 4)
        let count = unsafe first.withUnsafeMutableBytes { unsafe read(line.master, $0.baseAddress, $0.count) }
        #expect(count == 4 && first == octets("01 03 0C 00"))
      }
      try await stream.closeFuture.get()
    }
  }

  @Test func aLineThatHangsUpIsClosed() async throws {
    try await withLoop { loop in
      let recorder = Recorder(loop)
      var line: SerialLine? = try SerialLine()
      let path = line?.path ?? ""
      let stream = try await H4Stream.connect(to: .serial(path: path, baud: 115_200), on: loop)
      try await loop.run { stream.start(recorder) }
      line = nil
      try await recorder.wait { $0.errors == [.closed] }
      try await stream.closeFuture.get()
    }
  }
}
