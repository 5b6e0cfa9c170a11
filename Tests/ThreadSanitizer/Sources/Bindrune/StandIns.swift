@_exported import BindruneATT

/// Stands for Bindrune's: why a port is closed.
public enum BluetoothError: Error, Sendable, Equatable { case linkIsDown, closed, cancelled }
