// swift-format-ignore-file: AlwaysUseLowerCamelCase
// Apple's module brings these along, and client code relies on it: most of it imports CoreBluetooth alone.
@_exported public import Dispatch
@_exported public import Foundation

/// Seconds since the first instant of 2001, GMT. Core Foundation's type, which Foundation on Linux does not export.
public typealias CFAbsoluteTime = Double
/// Seconds. Core Foundation's type, as `CFAbsoluteTime`.
public typealias CFTimeInterval = Double

/// The time now.
@_disfavoredOverload  // for a program that imports CoreFoundation too, that one's
public func CFAbsoluteTimeGetCurrent() -> CFAbsoluteTime { Date.timeIntervalSinceReferenceDate }

/// The type's name in C, which older declarations of Apple's show.
public typealias dispatch_queue_t = DispatchQueue
