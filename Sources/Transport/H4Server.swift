import BindruneWire
import NIOCore
import NIOPosix
import SystemPackage

/// Listens for hosts. A connection is an `H4Stream` on the controller's side: it receives commands and sends events.
public final class H4Server: Sendable {
  /// Its address, with the port that the system chose.
  public let address: TransportSpec
  private let channel: any Channel

  private init(_ channel: any Channel, _ address: TransportSpec) {
    self.channel = channel
    self.address = address
  }

  /// Listens at `tcp:HOST:PORT` (port 0: the system chooses), `unix:PATH` or `sim:NAME`, on `loop`. It calls `accept`
  /// there for every connection, which `accept` must start; a connection is not read before. It replaces a socket file
  /// of a dead process, but neither one in use nor any other file. Of several processes that listen at one path or one
  /// `sim:NAME` exactly one succeeds: the one that has the path's `LockFile`.
  public static func listen(
    on spec: TransportSpec, loop: any EventLoop, limits: H4Framer.Limits = H4Framer.Limits(),
    accept: @escaping @Sendable (H4Stream) -> Void
  ) async throws(TransportError) -> H4Server {
    let bootstrap = ServerBootstrap(group: loop, childGroup: loop)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .serverChannelOption(.backlog, value: 64)
      .serverChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.closeInChildren()
          try channel.pipeline.syncOperations.addHandler(AcceptPause())
        }
      }
      .childChannelOption(.autoRead, value: false)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try H4Stream.make(channel, incoming: .fromHost, limits: limits, ready: accept)
        }
      }
    do {
      switch spec {
      case .tcp(let host, let port):
        let channel = try await bootstrap.childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
          .bind(host: host, port: port).get()
        return H4Server(channel, .tcp(host: host, port: channel.localAddress?.port ?? port))
      case .unix(let path): return H4Server(try await bind(bootstrap, FilePath(text: path), loop, for: spec), spec)
      case .radio(let name):
        return H4Server(try await bind(bootstrap, try SharedRadio(name).path(creates: true), loop, for: spec), spec)
      case .sim, .adapter, .serial:
        throw TransportError.unsuitable(spec, "hosts connect to tcp:HOST:PORT, unix:PATH or sim:NAME")
      }
    } catch {
      throw TransportError(error, at: spec)
    }
  }

  /// Binds a socket file under its lock.
  private static func bind(
    _ bootstrap: ServerBootstrap, _ path: FilePath, _ loop: any EventLoop, for spec: TransportSpec
  ) async throws -> any Channel {
    let lock = try LockFile(ofSocket: path, for: spec)
    do {
      let channel = try await bindLocked(bootstrap, path, loop, for: spec)
      // NIO has removed the socket file by then.
      channel.closeFuture.whenComplete { _ in lock.release() }
      return channel
    } catch {
      lock.release()
      throw error
    }
  }

  private static func bindLocked(
    _ bootstrap: ServerBootstrap, _ path: FilePath, _ loop: any EventLoop, for spec: TransportSpec
  ) async throws -> any Channel {
    do {
      return try await bootstrap.bind(unixDomainSocketPath: path.string).get()
    } catch let error as IOError where Errno(rawValue: error.errnoCode) == .addressInUse {
      guard isSocket(path) else {
        throw TransportError.unsuitable(spec, "\(path) is not a socket, remove it or choose another address")
      }
      // From a program that does not use the lock.
      guard await isAbandoned(.unix(path: path.string), loop) else { throw error }
      return try await bootstrap.bind(unixDomainSocketPath: path.string, cleanupExistingSocketFile: true).get()
    }
  }

  /// The file itself, not the target of a symbolic link.
  private static func isSocket(_ path: FilePath) -> Bool {
    (try? path.stat(followTargetSymlink: false))?.type == .socket
  }
  /// A socket file that refuses connections.
  private static func isAbandoned(_ spec: TransportSpec, _ loop: any EventLoop) async -> Bool {
    do throws(TransportError) {
      let probe = try await H4Stream.connect(to: spec, on: loop)
      loop.execute { probe.close() }
      return false
    } catch { return error == .refused(spec) }
  }

  /// Stops listening, and removes a socket file. Connections stay open: the caller that accepted them closes them.
  public func close() async {
    try? await channel.close()
    // Waits for the clean-up of `bind`, so that the address is free for the next `listen`.
    try? await channel.closeFuture.get()
  }
}

/// Prevents a server from spinning while its process has no descriptor left for the waiting connection.
///
/// NIO's own backoff delays the next read; but after a failed `accept` the previous read is still pending, and the
/// selector reports the socket as readable again at once. So reading stops altogether for a moment.
private final class AcceptPause: ChannelInboundHandler {
  typealias InboundIn = any Channel
  /// Short for a waiting client, and without load.
  private static var pause: TimeAmount { .milliseconds(100) }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    guard error is IOError, let options = context.channel.syncOptions else { return context.fireErrorCaught(error) }
    let channel = context.channel
    // A closed channel accepts no options, and needs none.
    try? options.setOption(.autoRead, value: false)
    context.eventLoop.scheduleTask(in: Self.pause) { try? channel.syncOptions?.setOption(.autoRead, value: true) }
  }
}
