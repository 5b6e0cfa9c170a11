import BindruneSystem
import CBindruneSystem
import Glibc
import SystemPackage

/// Linux's HCI sockets, which swift-system does not have.
extension FileDescriptor {
  package static func hciSocket(isNonBlocking: Bool = false) throws(Errno) -> FileDescriptor {
    try .socket(
      CInt(bindrune_AF_BLUETOOTH), .raw, CInt(bindrune_BTPROTO_HCI), isNonBlocking: isNonBlocking)
  }

  package func bind(toAdapter adapter: UInt16, channel: Int) throws(Errno) {
    try Errno.check { bindrune_hci_bind(rawValue, adapter, UInt16(channel)) }
  }

  /// Brings `adapter` up or down, through an unbound socket.
  package func power(adapter: UInt16, isUp: Bool) throws(Errno) {
    try Errno.check {
      isUp ? bindrune_hci_up(rawValue, CInt(adapter)) : bindrune_hci_down(rawValue, CInt(adapter))
    }
  }

  /// The octets that the kernel buffers until they are read. It counts its own bookkeeping, and so doubles the
  /// requested size. socket(7).
  package var receiveBuffer: Int {
    var value: CInt = 0, size = socklen_t(MemoryLayout<CInt>.size)
    return unsafe getsockopt(rawValue, SOL_SOCKET, SO_RCVBUF, &value, &size) == 0 ? Int(value) : 0
  }
  /// Requests a receive buffer of `octets`: beyond the system's limit if this process has the right, which a user
  /// channel needs too; otherwise up to it.
  package func setReceiveBuffer(_ octets: CInt) {
    var value = octets
    for option in [SO_RCVBUFFORCE, SO_RCVBUF] {
      if unsafe setsockopt(rawValue, SOL_SOCKET, option, &value, socklen_t(MemoryLayout<CInt>.size)) == 0 { return }
    }
  }
}
