@_exported import BindruneATT

/// Stands for Bindrune's: why a port is closed.
public enum BluetoothError: Error, Sendable, Equatable { case linkIsDown, closed, cancelled }

/// Stands for ATT's: the length that a value may have.
enum NotificationQueue { static let longestValue = 512 }
