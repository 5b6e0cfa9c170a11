import BindruneBroker
import BindruneTransport
import Foundation
import Testing

@testable import CoreBluetooth

/// A line that is printed ends no program, and is a line whatever stands in it.
@Suite struct LogTests {
  enum Output: CaseIterable { case full, closed, broken, unread }

  /// None of these takes what it is given. FileHandle's `write(_:)` ends the process at each of the first three.
  @Test(arguments: Output.allCases) func anOutputThatTakesNothing(_ kind: Output) throws {
    var ends: [CInt] = [-1, -1]
    #expect(unsafe pipe(&ends) == 0)
    defer { if ends[0] >= 0 { close(ends[0]) } }
    // Never closed: the output's thread goes on trying, and would write into whatever file another test is given by this number.
    let descriptor: CInt
    switch kind {
    case .full:
      descriptor = unsafe open("/dev/full", O_WRONLY)
      #expect(descriptor >= 0)
    // Of a number that no file has: another test could be given one that was closed here.
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
    // What a device may call itself: another line, commands to the terminal, text that runs backwards.
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
  @Test("A scan that a slow program does not keep up with is one line, and what is dropped is counted")
  func standsStill() {
    let lab = CentralLab(), lines = LogLines()
    lab.manager.scanForPeripherals(withServices: nil)
    lab.queue.suspend()
    for number in 0..<3_000 { lab.session.tell(.discovered(DiscoveredPeer(peer: CentralLab.peer(UInt64(number))))) }
    lab.queue.resume()
    lab.settle()
    #expect(lines.of(lab.queue).count == 1 && lab.recorder.take().count == 1024)
  }
  @Test func aNameFromTheAir() throws {
    let lab = CentralLab(), peripheral = try lab.connected()
    lab.tell(.nameChanged(lab.peer, "a\u{202E}b\nc"))
    // As it is for the program, which may want it so; escaped where it is to be read.
    #expect(peripheral.name == "a\u{202E}b\nc")
    #expect(peripheral.description.contains("name = a\\u{202E}b\\nc, "))
    #expect(CBError(.unknown, "no \u{1B}[2J").localizedDescription == "no \\u{1B}[2J")
  }
}
