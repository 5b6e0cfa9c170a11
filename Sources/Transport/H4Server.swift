import BindruneWire
import Glibc
import NIOCore
import NIOPosix

/// Listens for hosts. A connection is an `H4Stream` seen from the controller: it receives commands, it sends events.
public final class H4Server: Sendable {
  /// Where it listens, with the port that the system chose.
  public let address: TransportSpec
  private let channel: any Channel

  private init(_ channel: any Channel, _ address: TransportSpec) {
    self.channel = channel
    self.address = address
  }

  /// Listens at `tcp:HOST:PORT` (port 0: the system chooses), `unix:PATH` or `sim:NAME`. Everything happens on `loop`: `accept` is
  /// called there for every connection and starts it; a connection that is not started is not read.
  /// A socket file that a dead process left behind is replaced, one that is in use is not.
  public static func listen(
    on spec: TransportSpec, loop: any EventLoop, limits: H4Framer.Limits = H4Framer.Limits(),
    accept: @escaping @Sendable (H4Stream) -> Void
  ) async throws(TransportError) -> H4Server {
    let bootstrap = ServerBootstrap(group: loop, childGroup: loop)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .serverChannelOption(.backlog, value: 64)
      .serverChannelInitializer { channel in channel.eventLoop.makeCompletedFuture { try channel.closeInChildren() } }
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
      case .unix(let path): return H4Server(try await bind(bootstrap, path, loop), spec)
      case .radio(let name):
        return H4Server(try await bind(bootstrap, try SharedRadio(name).path(creates: true), loop), spec)
      case .sim, .adapter, .serial:
        throw TransportError.unsuitable(spec, "hosts connect to tcp:HOST:PORT, unix:PATH or sim:NAME")
      }
    } catch {
      throw TransportError(error, at: spec)
    }
  }

  private static func bind(
    _ bootstrap: ServerBootstrap, _ path: String, _ loop: any EventLoop
  ) async throws -> any Channel {
    do {
      return try await bootstrap.bind(unixDomainSocketPath: path).get()
    } catch let error as IOError where error.errnoCode == EADDRINUSE {
      guard await isAbandoned(.unix(path: path), loop) else { throw error }
      return try await bootstrap.bind(unixDomainSocketPath: path, cleanupExistingSocketFile: true).get()
    }
  }

  /// A socket file that refuses connections.
  private static func isAbandoned(_ spec: TransportSpec, _ loop: any EventLoop) async -> Bool {
    do throws(TransportError) {
      let probe = try await H4Stream.connect(to: spec, on: loop)
      loop.execute { probe.close() }
      return false
    } catch { return error == .refused(spec) }
  }

  /// Stops listening; a socket file goes with it. Connections live on: whoever accepted them closes them.
  public func close() async { try? await channel.close() }
}
