import BindruneSystem
import NIOCore
import NIOPosix
import SystemPackage

/// The event loops of all modules: NIO's, one for each processor.
///
/// NIO makes the epoll descriptor of a loop inheritable. It keeps no socket open in a child, but nobody needs it there,
/// so those that exist when the loops begin are closed in children from then on.
package enum EventLoops {
  private static let group: MultiThreadedEventLoopGroup = {
    let group = MultiThreadedEventLoopGroup.singleton
    for name in (try? FilePath("/proc/self/fd").names()) ?? [] {
      guard let number = CInt(name), (try? FilePath("/proc/self/fd/\(name)").target()) == "anon_inode:[eventpoll]"
      else { continue }
      FileDescriptor(rawValue: number).closeInChildren()
    }
    return group
  }()
  /// The next one, in turn.
  package static func next() -> any EventLoop { group.next() }
}
