import BindruneCapture
import BindruneHCI

/// The part of a trace that is shown. An empty set of values permits all.
public struct TraceFilter: Sendable {
  public var layers: Set<TraceLayer> = []
  /// Connection handles, or access addresses of a link-layer capture.
  public var connections: Set<UInt32> = []
  /// Attribute handles: of the PDU itself, or of the request that it answers.
  public var handles: Set<UInt16> = []
  /// Opcodes of the packet's highest layer: of ATT, SMP or signaling PDUs, of commands, codes of events.
  public var opcodes: Set<UInt16> = []
  /// Record numbers.
  public var frames: ClosedRange<Int> = 1...Int.max

  public init() {}

  func permits(_ line: borrowing TraceLine) -> Bool {
    frames.contains(line.number) && (layers.isEmpty || layers.contains(line.layer))
      && (connections.isEmpty || line.connection.map { connections.contains($0) } ?? false)
      && (handles.isEmpty || line.handle.map { handles.contains($0) } ?? false)
      && (opcodes.isEmpty || line.opcode.map { opcodes.contains($0) } ?? false)
  }
}
