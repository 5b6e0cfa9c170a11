import BindruneSystem
import BindruneWire
import NIOCore
import NIOPosix
import Synchronization
import SystemPackage

/// Listens for hosts. A connection is an `H4Stream` on the controller's side: it receives commands and sends events.
public final class H4Server: Sendable {
  /// Its address, with the port that the system chose.
  public let address: TransportSpec
  private let listener: StreamListener
  /// Of a socket's path; nil: TCP.
  private let lock: LockFile?
  private let isReleased = Atomic(false)

  private init(_ listener: StreamListener, _ address: TransportSpec, _ lock: LockFile? = nil) {
    self.listener = listener
    self.address = address
    self.lock = lock
  }

  /// Listens at `tcp:HOST:PORT` (port 0: the system chooses), `unix:PATH` or `sim:NAME`, on `loop`. It calls `accept`
  /// there for every connection, which `accept` must start; a connection is not read before. It replaces a socket file
  /// of a dead process, but neither one in use nor any other file. Of several processes that listen at one path or one
  /// `sim:NAME` exactly one succeeds: the one that has the path's `LockFile`.
  public static func listen(
    on spec: TransportSpec, loop: any EventLoop, limits: H4Framer.Limits = H4Framer.Limits(),
    accept: @escaping @Sendable (H4Stream) -> Void
  ) async throws(TransportError) -> H4Server {
    let take = { @Sendable (socket: FileDescriptor) in
      loop.execute {
        var bootstrap = ClientBootstrap(group: loop).channelOption(.autoRead, value: false)
        if case .tcp = spec { bootstrap = bootstrap.channelOption(.tcpOption(.tcp_nodelay), value: 1) }
        bootstrap = bootstrap.channelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            try H4Stream.make(channel, incoming: .fromHost, limits: limits, ready: accept)
          }
        }
        _ = bootstrap.withConnectedSocket(socket.rawValue)
      }
    }
    do {
      switch spec {
      case .tcp(let host, let port):
        let socket = try await NIOThreadPool.singleton.runIfActive {
          try StreamSocket.listening(atHost: host, port: port)
        }
        let listener = StreamListener(socket, accept: take)
        return H4Server(listener, .tcp(host: host, port: listener.port ?? port))
      case .unix(let path): return try await listen(FilePath(text: path), loop, for: spec, take)
      case .radio(let name): return try await listen(try SharedRadio(name).path(creates: true), loop, for: spec, take)
      case .sim, .adapter, .serial:
        throw TransportError.unsuitable(spec, "hosts connect to tcp:HOST:PORT, unix:PATH or sim:NAME")
      }
    } catch {
      throw TransportError(error, at: spec)
    }
  }

  /// Listens at a socket file, under its lock.
  private static func listen(
    _ path: FilePath, _ loop: any EventLoop, for spec: TransportSpec,
    _ take: @escaping @Sendable (FileDescriptor) -> Void
  ) async throws -> H4Server {
    let lock = try LockFile(ofSocket: path, for: spec)
    do {
      let socket = try await listeningLocked(path, loop, for: spec)
      let listener = StreamListener(socket, removing: path.string, accept: take)
      return H4Server(listener, spec, lock)
    } catch {
      lock.release()
      throw error
    }
  }

  private static func listeningLocked(
    _ path: FilePath, _ loop: any EventLoop, for spec: TransportSpec
  ) async throws -> FileDescriptor {
    do throws(Errno) { return try StreamSocket.listening(atPath: path.string, replaces: false) } catch {
      guard error == .addressInUse else { throw error }
      guard isSocket(path) else {
        throw TransportError.unsuitable(spec, "\(path) is not a socket, remove it or choose another address")
      }
      // From a program that does not use the lock.
      guard await isAbandoned(.unix(path: path.string), loop) else { throw error }
      return try StreamSocket.listening(atPath: path.string, replaces: true)
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
    await listener.close()
    if !isReleased.exchange(true, ordering: .relaxed) { lock?.release() }
  }
}
