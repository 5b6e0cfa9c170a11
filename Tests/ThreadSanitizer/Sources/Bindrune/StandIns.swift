@_exported import ATT
@_exported import GAP

/// Stands for Bindrune's: why a port is closed.
public enum BluetoothError: Error, Sendable, Equatable { case linkIsDown, closed, cancelled }
