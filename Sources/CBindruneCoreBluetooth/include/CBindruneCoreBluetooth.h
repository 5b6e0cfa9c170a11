// The one number of Core Bluetooth that peers invent: an attribute's answer, of which services define their own (0x80 to
// 0x9F) and later editions more. Apple's is an enumeration of C, which holds any number beside its named ones, and can still
// be switched over; an enumeration of Swift cannot. So this one is of C too.
#ifndef CCOREBLUETOOTH_H
#define CCOREBLUETOOTH_H

/// What the other side has answered. Core Specification, Vol 3, Part F, §3.4.1.1.
///
/// Other numbers are possible: `CBATTError.Code(rawValue: 0x80)`.
enum __attribute__((enum_extensibility(open))) CBATTErrorCode : long {
  /// It was done.
  CBATTErrorCodeSuccess = 0x00,
  CBATTErrorCodeInvalidHandle = 0x01,
  CBATTErrorCodeReadNotPermitted = 0x02,
  CBATTErrorCodeWriteNotPermitted = 0x03,
  CBATTErrorCodeInvalidPdu = 0x04,
  CBATTErrorCodeInsufficientAuthentication = 0x05,
  CBATTErrorCodeRequestNotSupported = 0x06,
  CBATTErrorCodeInvalidOffset = 0x07,
  CBATTErrorCodeInsufficientAuthorization = 0x08,
  CBATTErrorCodePrepareQueueFull = 0x09,
  CBATTErrorCodeAttributeNotFound = 0x0A,
  CBATTErrorCodeAttributeNotLong = 0x0B,
  CBATTErrorCodeInsufficientEncryptionKeySize = 0x0C,
  CBATTErrorCodeInvalidAttributeValueLength = 0x0D,
  CBATTErrorCodeUnlikelyError = 0x0E,
  CBATTErrorCodeInsufficientEncryption = 0x0F,
  CBATTErrorCodeUnsupportedGroupType = 0x10,
  CBATTErrorCodeInsufficientResources = 0x11,
};
typedef enum CBATTErrorCode CBATTErrorCode;

#endif
