// The interface of this module uses it.
@_exported import struct SystemPackage.Errno
