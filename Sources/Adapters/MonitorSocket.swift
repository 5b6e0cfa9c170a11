import BindruneSystem
import CBindruneSystem
import Glibc
import SystemPackage

/// The kernel's HCI monitor: every packet of every adapter, as `btmon` reads them. It takes nothing away: adapters and
/// other programs stay as they are.
package struct MonitorSocket: ~Copyable {
  private let socket: FileDescriptor
  /// The number of the channel, and of no adapter in particular.
  private static var channel: Int { 2 }
  private static var allAdapters: UInt16 { 0xFFFF }

  /// Needs CAP_NET_RAW: `.notPermitted` without it. `.addressFamilyNotSupported`: the kernel has no Bluetooth.
  package init() throws(Errno) {
    let opened = try FileDescriptor.hciSocket()
    opened.setReceiveBuffer(1 << 20)
    do throws(Errno) { try opened.bind(toAdapter: Self.allAdapters, channel: Self.channel) } catch {
      try? opened.close()
      throw error
    }
    socket = opened
  }
  deinit { try? socket.close() }

  /// Reads one record, as ``CaptureFormat/monitor`` describes it; nil if none comes within `time`.
  package func read(into room: UnsafeMutableRawBufferPointer, within time: Duration) throws(Errno) -> Int? {
    var state = pollfd(fd: socket.rawValue, events: Int16(POLLIN), revents: 0)
    let milliseconds = CInt(time.components.seconds * 1_000 + time.components.attoseconds / 1_000_000_000_000_000)
    guard unsafe poll(&state, 1, milliseconds) > 0 else { return nil }
    return try Errno.typed { unsafe try socket.read(into: room) }
  }
}
