import Foundation
import Glibc

/// Two ends of a socket that keeps packets whole, as an HCI socket does: one becomes a transport, the other is a
/// scripted controller with blocking calls.
final class PacketPair: Sendable {
  /// The descriptor that a transport adopts and closes.
  let host: CInt
  private let peer: CInt
  /// The host's end, independent of its descriptors.
  private let inode: UInt

  enum Kind: CaseIterable { case sequence, datagram }

  init(_ kind: Kind = .sequence) {
    let type = CInt((kind == .sequence ? SOCK_SEQPACKET : SOCK_DGRAM).rawValue | SOCK_CLOEXEC.rawValue)
    var ends: [CInt] = [-1, -1]
    guard unsafe socketpair(AF_UNIX, type, 0, &ends) == 0 else { fatalError("socketpair: \(errno)") }
    (host, peer) = (ends[0], ends[1])
    var found = stat()
    unsafe fstat(host, &found)
    inode = found.st_ino
    // Every call of this end has a time-out.
    var limit = timeval(tv_sec: 10, tv_usec: 0)
    for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
      unsafe setsockopt(peer, SOL_SOCKET, option, &limit, socklen_t(MemoryLayout<timeval>.size))
    }
  }
  deinit { close(peer) }

  /// One packet with its true length; nil at the end, or after ten seconds of silence.
  func receive() -> [UInt8]? {
    var packet = [UInt8](repeating: 0, count: 65_536)
    let count = unsafe packet.withUnsafeMutableBytes { unsafe recv(peer, $0.baseAddress, $0.count, CInt(MSG_TRUNC)) }
    return count > 0 ? Array(packet[..<count]) : nil
  }
  /// False if the host's end accepts no more; with `waiting`, after ten seconds.
  @discardableResult func send(_ packet: [UInt8], waiting: Bool = true) -> Bool {
    let flags = CInt(MSG_NOSIGNAL) | (waiting ? 0 : CInt(MSG_DONTWAIT))
    return unsafe packet.withUnsafeBytes { unsafe Glibc.send(peer, $0.baseAddress, $0.count, flags) == packet.count }
  }
  func hangUp(_ how: Int = Int(SHUT_RDWR)) { _ = shutdown(peer, CInt(how)) }

  /// The descriptors of this process for the host's end, and whether a child process would inherit them.
  func hostDescriptors() -> [(descriptor: CInt, isInherited: Bool)] {
    openDescriptors().compactMap { descriptor in
      var found = stat()
      guard unsafe fstat(descriptor, &found) == 0, found.st_mode & S_IFMT == S_IFSOCK, found.st_ino == inode else {
        return nil
      }
      return (descriptor, fcntl(descriptor, F_GETFD) & FD_CLOEXEC == 0)
    }
  }
}

/// All of the process: beside other tests there may be thousands.
func openDescriptors() -> [CInt] {
  ((try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []).compactMap { CInt($0) }
}
