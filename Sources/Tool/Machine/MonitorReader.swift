import BindruneAdapters
import BindruneCapture
import BindruneSystem
import BindruneTrace
import BindruneTransport
import BindruneWire

/// Reads the kernel's HCI monitor until the program is interrupted.
struct MonitorReader {
  private static var longest: Int { 65_541 + 6 }

  func read(into sink: inout some CaptureSink & ~Copyable) throws {
    let socket: MonitorSocket
    do throws(Errno) { socket = try MonitorSocket() } catch {
      let words =
        switch error {
        case .notPermitted, .permissionDenied:
          "Reading the kernel's HCI monitor needs CAP_NET_RAW: run as root, or setcap cap_net_raw,cap_net_admin+ep the tool."
        case .addressFamilyNotSupported:
          "This kernel has no Bluetooth: load the module bluetooth, or read a file."
        default: "The kernel's HCI monitor does not open: \(error)."
        }
      throw Failure(words)
    }
    var parser = CaptureParser(format: .monitor)
    let room = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: Self.longest)
    defer { unsafe room.deallocate() }
    defer { sink.pause() }
    while Interruption.cause == nil, sink.wantsMore {
      let count: Int
      do throws(Errno) {
        let octets = UnsafeMutableRawBufferPointer(room)
        if let read = unsafe try socket.read(into: octets, within: .zero) {
          count = read
        } else {
          // What the kernel had is passed on at once, however short the silence.
          sink.pause()
          guard let read = unsafe try socket.read(into: octets, within: .milliseconds(100)) else { continue }
          count = read
        }
      } catch { throw Failure("The kernel's HCI monitor ended: \(error).") }
      parser.time = Int64(clamping: wallClockMicroseconds()) * 1_000
      var bytes = unsafe MutableSpan(_unsafeElements: room[..<count]), at = 0
      // A read is one record; one that is not what its length says is left out.
      guard case .record(var record)? = try? parser.next(&bytes, at: &at, isLast: true) else { continue }
      let range = record.octets.range
      record.octets = Octets(0, range.count)
      sink.receive(record, bytes.span.extracting(range))
    }
  }
}
