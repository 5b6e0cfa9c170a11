import BindruneBroker
import BindruneTransport
import Foundation
import Testing

@testable import CoreBluetooth

/// Printing a log line ends no program, and any text stays one line.
@Suite struct LogTests {
  enum Output: CaseIterable { case full, closed, broken, unread }

  /// None of these accepts output. FileHandle's `write(_:)` ends the process at each of the first three.
  @Test(arguments: Output.allCases) func anOutputThatTakesNothing(_ kind: Output) throws {
    var ends: [CInt] = [-1, -1]
    #expect(unsafe pipe(&ends) == 0)
    defer { if ends[0] >= 0 { close(ends[0]) } }
    // Never closed: the output's thread continues, and would write into a file of another test with this number.
    let descriptor: CInt
    switch kind {
    case .full:
      descriptor = unsafe open("/dev/full", O_WRONLY)
      #expect(descriptor >= 0)
    // A number that no file has: another test could get one that was closed here.
    case .closed: descriptor = 1_000_000
    case .broken:
      close(ends[0])
      ends[0] = -1
      descriptor = ends[1]
    case .unread: descriptor = ends[1]
    }
    let output = StandardError(to: FileDescriptor(rawValue: descriptor)), log = Log(to: output)
    for number in 0..<10_000 { log.write("line \(number) of some length, so that no pipe has room for all of them") }
    output.flush()
  }
  @Test func anOutputThatIsRead() throws {
    let pipe = Pipe(), output = StandardError(to: FileDescriptor(rawValue: pipe.fileHandleForWriting.fileDescriptor)),
      log = Log(to: output)
    // Hostile names of devices: a second line, commands to the terminal, right-to-left text.
    log.write("\"Thermostat\n[CoreBluetooth] API MISUSE\u{1B}[2J\u{202E}\" is gone")
    output.write("a logger's line\n")
    let expected =
      "[CoreBluetooth] \"Thermostat\\n[CoreBluetooth] API MISUSE\\u{1B}[2J\\u{202E}\" is gone\na logger's line\n"
    var octets = Data()
    while octets.count < expected.utf8.count,
      let more = try pipe.fileHandleForReading.read(upToCount: expected.utf8.count - octets.count)
    { octets += more }
    #expect(String(decoding: octets, as: UTF8.self) == expected)
  }
  @Test("A scan too fast for a slow program causes one log line, which counts dropped advertisements")
  func standsStill() {
    let lab = CentralLab(), lines = LogLines()
    lab.manager.scanForPeripherals(withServices: nil)
    lab.queue.suspend()
    for number in 0..<3_000 { lab.session.deliver(.discovered(DiscoveredPeer(peer: CentralLab.peer(UInt64(number))))) }
    lab.queue.resume()
    lab.waitForQueue()
    #expect(lines.of(lab.queue).count == 1 && lab.recorder.take().count == 1024)
  }
  @Test func aNameFromTheAir() throws {
    let lab = CentralLab(), peripheral = try lab.connected()
    lab.deliver(.nameChanged(lab.peer, "a\u{202E}b\nc"))
    // The program gets the name unchanged; the log escapes it.
    #expect(peripheral.name == "a\u{202E}b\nc")
    #expect(peripheral.description.contains("name = a\\u{202E}b\\nc, "))
    #expect(CBError(.unknown, "no \u{1B}[2J").localizedDescription == "no \\u{1B}[2J")
  }
}
