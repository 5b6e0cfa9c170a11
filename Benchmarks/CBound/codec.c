// The bound of B1 (decode + walk) and B2 (encode): all 31 ATT PDUs, Vol 3, Part F, §3.4.
//
// `decode` checks what the Swift codec checks (lengths, strides, the information format, tuples that fit) and leaves a
// flat struct; `walk` visits every field and list entry; `encode` writes the struct back. A call each, as a C stack has
// it.
#include "cbound.h"

typedef struct {
  const uint8_t *bytes;
  uint32_t count;
} slice;

// `handle` is also the starting handle and the MTU; `second` the ending handle and the offset; `type` a 16-bit UUID.
typedef struct {
  uint8_t opcode, first, code, stride;
  uint16_t handle, second, type;
  slice rest, signature;
} pdu;

OWN_CALL int decode(const uint8_t *p, uint32_t n, pdu *o) {
  if (n < 1) return -1;
  o->opcode = p[0];
  switch (p[0]) {
  case 0x01:
    if (n != 5) return -1;
    o->first = p[1];
    o->handle = le16(p + 2);
    o->code = p[4];
    return 0;
  case 0x02: case 0x03: case 0x0A:
    if (n != 3) return -1;
    o->handle = le16(p + 1);
    return 0;
  case 0x04: case 0x0C:
    if (n != 5) return -1;
    o->handle = le16(p + 1);
    o->second = le16(p + 3);
    return 0;
  case 0x05:
    if (n < 2) return -1;
    o->first = p[1];
    if (p[1] == 1) o->stride = 4;
    else if (p[1] == 2) o->stride = 18;
    else return -1;
    if (n - 2 < o->stride || (n - 2) % o->stride) return -1;
    o->rest = (slice){p + 2, n - 2};
    return 0;
  case 0x06:
    if (n < 7) return -1;
    o->handle = le16(p + 1);
    o->second = le16(p + 3);
    o->type = le16(p + 5);
    o->rest = (slice){p + 7, n - 7};
    return 0;
  case 0x07:
    if (n < 5 || (n - 1) % 4) return -1;
    o->rest = (slice){p + 1, n - 1};
    return 0;
  case 0x08: case 0x10:
    if (n != 7 && n != 21) return -1;
    o->handle = le16(p + 1);
    o->second = le16(p + 3);
    o->rest = (slice){p + 5, n - 5};
    return 0;
  case 0x09:
    if (n < 4 || p[1] < 2 || (n - 2) % p[1]) return -1;
    o->stride = p[1];
    o->rest = (slice){p + 2, n - 2};
    return 0;
  case 0x11:
    if (n < 6 || p[1] < 4 || (n - 2) % p[1]) return -1;
    o->stride = p[1];
    o->rest = (slice){p + 2, n - 2};
    return 0;
  case 0x0B: case 0x0D: case 0x0F:
    o->rest = (slice){p + 1, n - 1};
    return 0;
  case 0x0E: case 0x20:
    if (n < 5 || (n - 1) % 2) return -1;
    o->rest = (slice){p + 1, n - 1};
    return 0;
  case 0x12: case 0x1B: case 0x1D: case 0x52:
    if (n < 3) return -1;
    o->handle = le16(p + 1);
    o->rest = (slice){p + 3, n - 3};
    return 0;
  case 0x13: case 0x19: case 0x1E:
    return n == 1 ? 0 : -1;
  case 0x16: case 0x17:
    if (n < 5) return -1;
    o->handle = le16(p + 1);
    o->second = le16(p + 3);
    o->rest = (slice){p + 5, n - 5};
    return 0;
  case 0x18:
    if (n != 2) return -1;
    o->first = p[1];
    return 0;
  case 0x21: case 0x23: {
    uint32_t at = 1, header = p[0] == 0x21 ? 2 : 4;
    while (at < n) {
      if (n - at < header) return -1;
      uint32_t length = le16(p + at + header - 2);
      at += header;
      if (n - at < length) return -1;
      at += length;
    }
    o->rest = (slice){p + 1, n - 1};
    return 0;
  }
  case 0xD2:
    if (n < 15) return -1;
    o->handle = le16(p + 1);
    o->rest = (slice){p + 3, n - 15};
    o->signature = (slice){p + n - 12, 12};
    return 0;
  }
  return -1;
}

static inline uint64_t touch(const uint8_t *p, uint32_t n) { return n + (n ? p[0] : 0); }
static inline uint64_t touch_slice(slice s) { return s.count + (s.count ? s.bytes[0] : 0); }
static inline uint64_t touch_uuid(slice s) { return s.count == 2 ? le16(s.bytes) : touch_slice(s); }

OWN_CALL uint64_t walk(const pdu *o) {
  uint64_t sum = o->opcode;
  const uint8_t *p, *end;
  switch (o->opcode) {
  case 0x01: return sum + o->first + o->handle + o->code;
  case 0x02: case 0x03: case 0x0A: return sum + o->handle;
  case 0x04: case 0x0C: return sum + o->handle + o->second;
  case 0x05:
    sum += o->first;
    for (p = o->rest.bytes, end = p + o->rest.count; p < end; p += o->stride)
      sum += le16(p) + (o->stride == 4 ? le16(p + 2) : touch(p + 2, 16));
    return sum;
  case 0x06: return sum + o->handle + o->second + o->type + touch_slice(o->rest);
  case 0x07:
    for (p = o->rest.bytes, end = p + o->rest.count; p < end; p += 4) sum += le16(p) + le16(p + 2);
    return sum;
  case 0x08: case 0x10: return sum + o->handle + o->second + touch_uuid(o->rest);
  case 0x09:
    for (p = o->rest.bytes, end = p + o->rest.count; p < end; p += o->stride) sum += le16(p) + touch(p + 2, o->stride - 2);
    return sum;
  case 0x11:
    for (p = o->rest.bytes, end = p + o->rest.count; p < end; p += o->stride)
      sum += le16(p) + le16(p + 2) + touch(p + 4, o->stride - 4);
    return sum;
  case 0x0B: case 0x0D: case 0x0F: return sum + touch_slice(o->rest);
  case 0x0E: case 0x20:
    for (p = o->rest.bytes, end = p + o->rest.count; p < end; p += 2) sum += le16(p);
    return sum;
  case 0x12: case 0x1B: case 0x1D: case 0x52: return sum + o->handle + touch_slice(o->rest);
  case 0x16: case 0x17: return sum + o->handle + o->second + touch_slice(o->rest);
  case 0x18: return sum + o->first;
  case 0x21:
    for (p = o->rest.bytes, end = p + o->rest.count; p < end;) {
      uint32_t length = le16(p);
      sum += touch(p + 2, length);
      p += 2 + length;
    }
    return sum;
  case 0x23:
    for (p = o->rest.bytes, end = p + o->rest.count; p < end;) {
      uint32_t length = le16(p + 2);
      sum += le16(p) + touch(p + 4, length);
      p += 4 + length;
    }
    return sum;
  case 0xD2: return sum + o->handle + touch_slice(o->rest) + touch_slice(o->signature);
  }
  return sum;
}

static inline uint32_t put_rest(const pdu *o, uint8_t *b, uint32_t at, uint32_t capacity) {
  if (capacity < at + o->rest.count) return 0;
  memcpy(b + at, o->rest.bytes, o->rest.count);
  return at + o->rest.count;
}

// The octets written; 0 if there is no room.
OWN_CALL uint32_t encode(const pdu *o, uint8_t *b, uint32_t capacity) {
  if (capacity < 7) return 0;
  b[0] = o->opcode;
  switch (o->opcode) {
  case 0x01:
    b[1] = o->first;
    put16(b + 2, o->handle);
    b[4] = o->code;
    return 5;
  case 0x02: case 0x03: case 0x0A: put16(b + 1, o->handle); return 3;
  case 0x04: case 0x0C:
    put16(b + 1, o->handle);
    put16(b + 3, o->second);
    return 5;
  case 0x05: b[1] = o->first; return put_rest(o, b, 2, capacity);
  case 0x06:
    put16(b + 1, o->handle);
    put16(b + 3, o->second);
    put16(b + 5, o->type);
    return put_rest(o, b, 7, capacity);
  case 0x08: case 0x10: case 0x16: case 0x17:
    put16(b + 1, o->handle);
    put16(b + 3, o->second);
    return put_rest(o, b, 5, capacity);
  case 0x09: case 0x11: b[1] = o->stride; return put_rest(o, b, 2, capacity);
  case 0x07: case 0x0B: case 0x0D: case 0x0E: case 0x0F: case 0x20: case 0x21: case 0x23:
    return put_rest(o, b, 1, capacity);
  case 0x12: case 0x1B: case 0x1D: case 0x52: put16(b + 1, o->handle); return put_rest(o, b, 3, capacity);
  case 0x13: case 0x19: case 0x1E: return 1;
  case 0x18: b[1] = o->first; return 2;
  case 0xD2: {
    uint32_t n = 3 + o->rest.count + o->signature.count;
    if (capacity < n) return 0;
    put16(b + 1, o->handle);
    memcpy(b + 3, o->rest.bytes, o->rest.count);
    memcpy(b + 3 + o->rest.count, o->signature.bytes, o->signature.count);
    return n;
  }
  }
  return 0;
}

// The work of the loop for each PDU. Every row chooses per PDU, inside the loop; row x.loop is the loop alone, for
// subtraction.
OWN_CALL int mode_of(const char *id) {
  static const char *const ids[] = {"x.loop", "x.decode", "B1", "B2", "x.copy", "x.owned"};
  for (int mode = 0; mode < 6; mode++)
    if (!strcmp(id, ids[mode])) return mode;
  fprintf(stderr, "no row %s\n", id);
  exit(2);
}

int main(int count, char **argument) {
  if (count != 5) return 2;
  int mode = mode_of(argument[1]), repetitions = atoi(argument[3]), batches = atoi(argument[4]);
  corpus c = load(argument[2], "corpus.bin", 0);
  static uint8_t out[1024];
  pdu *decoded = calloc(c.count, sizeof *decoded);
  for (uint32_t i = 0; i < c.count; i++) {
    const uint8_t *p = c.bytes + c.offset[i];
    if (decode(p, c.length[i], &decoded[i])) return printf("PDU %u does not decode\n", i), 1;
    if (encode(&decoded[i], out, sizeof out) != c.length[i] || memcmp(out, p, c.length[i]))
      return printf("PDU %u does not encode to what it was\n", i), 1;
  }
  double *batch = calloc((size_t)batches, sizeof *batch);
  uint64_t sum = 0;
  for (int b = 0; b < batches; b++) {
    sum = 0;
    uint64_t start = nanoseconds();
    for (int r = 0; r < repetitions; r++)
      for (uint32_t i = 0; i < c.count; i++) {
        const uint8_t *p = c.bytes + c.offset[i];
        uint32_t n = c.length[i];
        pdu o;
        switch (mode) {
        case 0: sum += p[0]; break;
        case 1:
          if (decode(p, n, &o)) abort();
          sum += o.opcode;
          break;
        case 2:
          if (decode(p, n, &o)) abort();
          sum += walk(&o);
          break;
        case 3: sum += encode(&decoded[i], out, sizeof out); break;
        case 4:
          memcpy(out, p, n);
          __asm__ volatile("" ::"r"(out) : "memory");
          sum += out[0];
          break;
        case 5: { // what it costs to own the bytes and the struct
          uint8_t *copy = malloc(n);
          pdu *owned = malloc(sizeof *owned);
          memcpy(copy, p, n);
          if (decode(copy, n, owned)) abort();
          sum += walk(owned);
          free(owned);
          free(copy);
          break;
        }
        }
      }
    batch[b] = (double)(nanoseconds() - start) / ((double)repetitions * c.count);
  }
  report(argument[1], batch, batches, sum / (uint64_t)repetitions, c.count);
  putchar('\n');
}
