// swift-format-ignore-file
// Sources/GAP/GAP.docc/Course/07-pairing.md; BINDRUNE_RECORD=1 swift test --filter CourseTests writes it.

extension Course {
  static let page07 = #"""
# 7: Pairing, with the sums

**35 minutes.** After it you can say what a listener learns when two devices pair, and why you compare six digits.

Two strangers stand in a room full of spies. Everything that they say is heard by all. After a few sentences they share a number that no
spy knows. That sounds impossible, and until 1976 everybody thought that it was. First, though, the way in which Bluetooth did it until
2014, and why you should not.

## What the devices tell each other first

Pairing begins with a question about abilities: have you a display? A keyboard? Do you want to be sure who I am?

<!-- picture layout SMP_PAIRING_REQUEST -->
```picture
octet
  0     1     2     3     4     5     6     7
  ├─────┼─────┼─────┼─────┼─────┼─────┼─────┤
    │     │     │     │     │     │     └ Responder Key Distribution
    │     │     │     │     │     └ Initiator Key Distribution
    │     │     │     │     └ Maximum Encryption Key Size
    │     │     │     └ AuthReq
    │     │     └ OOB Data Flag
    │     └ IO Capability
    └ Code
```

```console
$ bindrune explain --as smp 01 04 00 0D 10 07 07
Pairing Request                                            Vol 3, Part H, §3.5.1
   0  01                      Code: Pairing Request (0x01)
   1  04                      IO Capability: KeyboardDisplay (0x04)
   2  00                      OOB Data Flag: not present (0x00)
   3  0D                      AuthReq: Bonding, MITM, SC (0x0D)
      .... ..01               Bonding_Flags: 0x01
      .... .1..               MITM: yes
      .... 1...               SC: LE Secure Connections: yes
      ...0 ....               Keypress: no
      ..0. ....               CT2: no
   4  10                      Maximum Encryption Key Size: 16
   5  07                      Initiator Key Distribution: EncKey, IdKey, SignKey
                              (0x07)
      .... ...1               EncKey: LTK, EDIV and Rand: yes
      .... ..1.               IdKey: IRK and identity address: yes
      .... .1..               SignKey: CSRK: yes
      .... 0...               LinkKey: no
   6  07                      Responder Key Distribution: EncKey, IdKey, SignKey
                              (0x07)
      .... ...1               EncKey: LTK, EDIV and Rand: yes
      .... ..1.               IdKey: IRK and identity address: yes
      .... .1..               SignKey: CSRK: yes
      .... 0...               LinkKey: no
```

From both answers each side looks up the *method* in a table: six digits to compare, six digits to type, or nothing at all (*Just Works*).
The methods differ in what the user does; the sums are nearly the same.

## The old way: a secret of nothing

LE legacy pairing makes a key from a *temporary key* and two random numbers, one from each side. The numbers travel in the clear. With
Just Works the temporary key is 0:

```swift
let r1: UInt128 = 0x000F0E0D_0C0B0A09_11223344_55667788
let r2: UInt128 = 0x01020304_05060708_99AABBCC_DDEEFF00
let shortTermKey = s1(SecurityKey(0), r1, r2)
print(String(shortTermKey.number, radix: 16))
```

```text
9a1fe1f0e8b0f49b5b4216ae796da062
```

These numbers are the Specification's own sample data (Vol 3, Part H, Appendix D), and so is the result. `s1` is one step of AES. Now
look at what the sum takes: a zero, and two numbers that the whole room has heard. *Every listener has the key.*

With six digits, typed by the user, the temporary key is those digits. Before the random numbers are shown, each side commits itself with
a *confirm value*, which travels in the clear as well:

```swift
let random: UInt128 = 0x5783D521_56AD6F0E_6388274E_C6702EE0
func confirm(_ passkey: UInt128) -> UInt128 {
  c1(
    SecurityKey(passkey), random, preq: 0x07071000000101, pres: 0x05000800000302, iat: 1, rat: 0,
    ia: 0xA1A2A3A4A5A6, ra: 0xB1B2B3B4B5B6)
}
print(String(confirm(0), radix: 16))

let heard = confirm(1912)  // what the listener has heard; the digits are secret
let found = (0...999_999).first { confirm($0) == heard }!
print("the digits are", found)
```

```text
1e1e3fef878988ead2a74dc5bef13b86
the digits are 1912
```

The first line is the sample data's. Below, a listener tries all digits until the confirm value fits. That is a million steps of AES at
most, less than a second for a laptop. Six digits are enough against somebody who guesses *once*, at the door. They are nothing against
somebody who takes a recording home.

## The new way: a lock that anybody can close

LE Secure Connections uses a curve, P-256. A private key is a number; the public key is the point on the curve which you reach by adding
a fixed point to itself that many times. Forward that is quick, backward nobody knows how. And it does not matter who adds first:

```swift
let alice = P256KeyPair.debug
let bob = P256KeyPair(
  privateKey: UInt256(
    high: 0x55188B3D_32F6BB9A_900AFCFB_EED4E72A, low: 0x59CB9AC2_F19D7CFB_6B4FDD49_F47FC5FD))!
let secret = try alice.dhKey(with: bob.publicKey)
print(try secret == bob.dhKey(with: alice.publicKey))
print(secret)
```

```text
true
(secret)
```

Alice has combined her private key with Bob's public key, Bob his with hers; the results are equal, and the spies have seen public keys
only. (The type prints `(secret)` and nothing else. A key in a log is a key on the internet.)

The shared number is then stirred with fresh random numbers and both addresses, so that each pairing has a key of its own:

```swift
let na: UInt128 = 0xD5CB8454_D177733E_FFFFB2EC_712BAEAB, nb: UInt128 = 0xA6E8E7CC_25A75F6E_216583F7_FF3DC4CF
let a: UInt64 = 0x00_5612_3737_BFCE, b: UInt64 = 0x00_A713_702D_CFC1
let keys = f5(secret, na, nb, a, b)
print(String(keys.ltk.number, radix: 16))
print(String(keys.macKey.number, radix: 16))
```

```text
6986791169d7cd23980522b594750a38
2965f176a1084a02fd3f6a20ce636e20
```

The first is the *long term key*, with which the controllers encrypt. The second proves to each side that the other has computed the same.

## The spy in the middle

Is that the end? Mallory does not listen; she *answers*. She pairs with Alice and says that she is Bob, and with Bob as Alice. Both links
are encrypted perfectly, and Mallory reads everything in between. The mathematics cannot help: Alice has never met Bob, so how would she
know his key?

The users can. Both devices compute six digits from both public keys, and show them:

```swift
func digits(_ initiator: P256PublicKey, _ responder: P256PublicKey) -> String {
  let number = g2(initiator.x, responder.x, na, nb) % 1_000_000
  return String("\(1_000_000 + number)".dropFirst())
}
print("Alice shows", digits(alice.publicKey, bob.publicKey))
print("Bob shows  ", digits(alice.publicKey, bob.publicKey))
```

```text
Alice shows 706570
Bob shows   706570
```

With Mallory in the middle, each side has computed with *her* key:

```swift
let mallory = P256KeyPair(privateKey: UInt256(low: 0x4D616C6C6F7279))!
print("Alice shows", digits(alice.publicKey, mallory.publicKey))
print("Bob shows  ", digits(mallory.publicKey, bob.publicKey))
```

```text
Alice shows 703160
Bob shows   978924
```

The digits differ, and the users say no. Mallory can try another key pair, but each attempt needs a person who presses "yes": she guesses
once, at the door, with a chance of one in a million. Here six digits suffice, because nothing can be taken home: a listener who records
everything and learns the digits later has learnt nothing.

## In which order

The order is half of the protocol. If Mallory saw Alice's random number before she had to choose her own, she could choose one that makes
the digits equal. So the responder commits itself first (`f4`), and only then do the numbers travel. These are the phases of the initiator,
from the table that its test writes:

<!-- picture phases security-manager-initiator: justWorks, 1 steps, unanswered > next of the peer | justWorks, 2 steps, unanswered > next of the peer | justWorks, 3 steps, unanswered > next of the peer | justWorks, 4 steps, unanswered > next of the peer -->
```picture
secureConnections awaitingPublicKey
  │ next of the peer
  ▼
secureConnections awaitingConfirm
  │ next of the peer   ⇒ sends Pairing Random
  ▼
secureConnections awaitingRandom
  │ next of the peer   ⇒ sends Pairing DHKey Check
  ▼
secureConnections awaitingCheck
  │ next of the peer   ⇒ encrypt((secret))
  ▼
awaitingEncryption
```

With digits to compare, one phase is different: the machine waits for the user before it proves anything.

<!-- picture phases security-manager-initiator: numericComparison, 4 steps, unanswered > confirm numbers -->
```picture
secureConnections awaitingComparison
  │ confirm numbers   ⇒ sends Pairing DHKey Check
  ▼
secureConnections awaitingCheck
```

The devices may keep the key: that is a *bond*. When they meet again, they only encrypt.

## Exercises

1. A listener has heard `r1`, `r2` and a confirm value, with the digits 123456. How many values of `c1` does it compute until it has the
   short term key? Compute the key. (10 minutes)
2. Try to be Mallory: take random key pairs until the digits that Alice sees begin with the same two digits as Bob's. How many do you
   need, and what follows for six? (10 minutes)

[Solutions](Solutions.md) · Next: [Read a trace](08-read-a-trace.md)
"""#
}
