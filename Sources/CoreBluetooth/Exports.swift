// swift-format-ignore-file: AlwaysUseLowerCamelCase
// Apple's module brings these along, and client code relies on it: most of it imports CoreBluetooth alone.
@_exported public import Dispatch
@_exported public import Foundation

/// Seconds since the first instant of 2001, GMT. Core Foundation's type, which Foundation on Linux does not export.
public typealias CFAbsoluteTime = Double

/// The time now.
public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime { Date.timeIntervalSinceReferenceDate }
