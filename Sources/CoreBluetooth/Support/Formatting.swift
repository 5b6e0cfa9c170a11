import Foundation

// `NSLog("Discovered %@", service)`: on Apple's systems every object can be formatted. Foundation on Linux formats its
// own only, and others through this protocol of the standard library: what is shown is the description.

extension CBAttribute: _CVarArgObject {
  public var _cVarArgObject: any CVarArg { NSString(string: description) }
  public var _cVarArgEncoding: [Int] { NSString(string: description)._cVarArgEncoding }
}
extension CBPeer: _CVarArgObject {
  public var _cVarArgObject: any CVarArg { NSString(string: description) }
  public var _cVarArgEncoding: [Int] { NSString(string: description)._cVarArgEncoding }
}
extension CBManager: _CVarArgObject {
  public var _cVarArgObject: any CVarArg { NSString(string: description) }
  public var _cVarArgEncoding: [Int] { NSString(string: description)._cVarArgEncoding }
}
extension CBUUID: _CVarArgObject {
  public var _cVarArgObject: any CVarArg { NSString(string: description) }
  public var _cVarArgEncoding: [Int] { NSString(string: description)._cVarArgEncoding }
}
