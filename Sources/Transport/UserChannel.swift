import BindruneAdapters
import BindruneSystem
import CBindruneSystem
import BindruneHCI
import NIOCore
import NIOPosix
import SystemPackage

extension UserChannelSocket {
  /// Takes adapter `hciN` for this process alone, until it is closed. The kernel's own Bluetooth stack, and bluetoothd
  /// with it, lose the adapter for that time.
  ///
  /// The adapter must be down. With `takesDown` an adapter that is up is taken down first, which ends its activity, and
  /// is up again once `closeFuture` completes; a process that is killed leaves it down. Waits up to two seconds for an
  /// adapter that the kernel is still setting up; a cancelled task does not wait.
  ///
  /// Needs CAP_NET_ADMIN and the host's network namespace: `TransportError.adapter` names what is missing.
  public static func open(
    _ adapter: UInt16, takesDown: Bool = false, on loop: any EventLoop
  ) async throws(TransportError) -> UserChannelSocket {
    try await open(adapter, takesDown: takesDown, on: loop, HCIKernel())
  }

  static func open(
    _ adapter: UInt16, takesDown: Bool, on loop: any EventLoop, _ kernel: HCIKernel
  ) async throws(TransportError) -> UserChannelSocket {
    let channel = try UserChannel(adapter, kernel)
    let deadline = NIODeadline.now() + kernel.patience
    do throws(TransportError) {
      while true {
        // A driver may load a controller's firmware inside `bind`.
        switch await blocking({ channel.bind(takesDown: takesDown) }) {
        case .bound: return try await make(channel, on: loop)
        case .failed(let error): throw TransportError.adapter(kernel.error(error, adapter))
        case .inSetUp(let error):
          guard NIODeadline.now() < deadline, !Task.isCancelled else {
            throw TransportError.adapter(kernel.error(error, adapter))
          }
          try? await Task.sleep(for: .milliseconds(10))
        }
      }
    } catch {
      await blocking { try? channel.abandon() }
      throw error
    }
  }

  private static func blocking<Result: Sendable>(_ body: @escaping @Sendable () -> Result) async -> Result {
    await withCheckedContinuation { continuation in
      NIOThreadPool.singleton.submit { _ in continuation.resume(returning: body()) }
    }
  }
}

/// The system calls for an adapter, which a test replaces.
struct HCIKernel: Sendable {
  var socket: @Sendable () throws(Errno) -> FileDescriptor = Linux.socket
  var bind: @Sendable (_ socket: FileDescriptor, _ adapter: UInt16) throws(Errno) -> Void = Linux.bind
  var power: @Sendable (_ adapter: UInt16, _ isUp: Bool) throws(Errno) -> Void = Linux.power
  var view: @Sendable () -> HCISocketView = HCISocketView.now
  /// Whether the kernel is setting up this adapter, or has.
  var isPresent: @Sendable (_ adapter: UInt16) -> Bool = { Machine().exists(FilePath("/sys/class/bluetooth/hci\($0)")) }
  /// Determines the meaning of an error.
  var error: @Sendable (_ error: Errno, _ adapter: UInt16) -> AdapterError = { AdapterError($0, adapter: $1) }
  /// How long an adapter may be in set-up.
  var patience = TimeAmount.seconds(2)
}

private enum Linux {
  static func socket() throws(Errno) -> FileDescriptor { try .hciSocket(isNonBlocking: true) }
  static func bind(_ socket: FileDescriptor, _ adapter: UInt16) throws(Errno) {
    try socket.bind(toAdapter: adapter, channel: bindrune_HCI_CHANNEL_USER)
  }
  /// Through a separate socket: one that has the user channel is refused.
  static func power(_ adapter: UInt16, _ isUp: Bool) throws(Errno) {
    let socket = try socket()
    defer { try? socket.close() }
    try socket.power(adapter: adapter, isUp: isUp)
  }
}

/// A socket that is becoming an adapter's user channel.
final class UserChannel: @unchecked Sendable {
  // Sendable because calls are sequential, on whatever threads.
  let adapter: UInt16
  let descriptor: FileDescriptor
  let receiveBuffer: Int
  private let kernel: HCIKernel
  /// The adapter was up, and must be brought up again.
  private(set) var mustRestorePower = false

  /// Octets that the kernel should buffer for us: the traffic of a controller for a second and more, if this process is
  /// delayed.
  private static var wantedBuffer: CInt { 4 << 20 }

  init(_ adapter: UInt16, _ kernel: HCIKernel) throws(TransportError) {
    do throws(Errno) { descriptor = try kernel.socket() } catch { throw .adapter(kernel.error(error, adapter)) }
    self.adapter = adapter
    self.kernel = kernel
    // Before any packet can arrive.
    descriptor.setReceiveBuffer(Self.wantedBuffer)
    receiveBuffer = descriptor.receiveBuffer
  }

  /// For a socket that is already bound.
  init(_ adapter: UInt16, adopting descriptor: FileDescriptor) {
    self.adapter = adapter
    kernel = HCIKernel()
    self.descriptor = descriptor
    receiveBuffer = descriptor.receiveBuffer
  }

  enum Attempt: Sendable, Equatable {
    case bound
    /// Trying again would not help.
    case failed(Errno)
    case inSetUp(Errno)
  }

  /// EBUSY and ENODEV have several causes, one of which is temporary: the kernel sets an adapter up in steps, in which
  /// it is first missing, then busy with the controller's start.
  func bind(takesDown: Bool) -> Attempt {
    do throws(Errno) { try kernel.bind(descriptor, adapter) } catch {
      switch error {
      case .noSuchDevice: return kernel.isPresent(adapter) ? .inSetUp(error) : .failed(error)
      case .resourceBusy:
        guard let entry = kernel.view().adapters.first(where: { $0.number == adapter }) else { return .inSetUp(error) }
        // A taken adapter also reports that it is up. One in set-up does not.
        if entry.hasUserChannel == true { return .failed(error) }
        guard entry.isUp else { return .inSetUp(error) }
        return takesDown ? bindTakenDown() : .failed(error)
      default: return .failed(error)
      }
    }
    return .bound
  }

  private func bindTakenDown() -> Attempt {
    do throws(Errno) { try kernel.power(adapter, false) } catch { return .failed(error) }
    mustRestorePower = true
    // The process that brought it up may do so again: try only for the duration of a set-up.
    do throws(Errno) { try kernel.bind(descriptor, adapter) } catch { return .inSetUp(error) }
    return .bound
  }

  /// Closes a socket that did not become a transport.
  func abandon() throws {
    try? descriptor.close()
    try restorePower()
  }

  /// Brings up an adapter that was taken down, after the socket is closed.
  func restorePower() throws {
    guard mustRestorePower else { return }
    mustRestorePower = false
    do throws(Errno) { try kernel.power(adapter, true) } catch {
      switch error {
      // Another process has brought it up, or it is unplugged.
      case .alreadyInProcess, .noSuchDevice: return
      default: throw TransportError.adapter(kernel.error(error, adapter))
      }
    }
  }
}
