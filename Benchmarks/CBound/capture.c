// The bound of B6: a btsnoop file, read in blocks of a mebibyte; HCI, L2CAP with its fragments joined, ATT decoded and
// every field visited.
#pragma GCC diagnostic ignored "-Wreturn-type" // its main is not main here
#define main codec_main
#include "codec.c"
#undef main

static inline uint32_t be32(const uint8_t *p) {
  uint32_t v;
  memcpy(&v, p, 4);
  return __builtin_bswap32(v);
}

// One link, two directions.
static uint8_t joined[2][70000];
static uint32_t joined_count[2];

static uint64_t frame(const uint8_t *p, uint32_t n) {
  if (le16(p + 2) != 4) return 0;
  pdu o;
  if (decode(p + 4, n - 4, &o)) abort();
  return walk(&o);
}

static uint64_t data(int direction, const uint8_t *p, uint32_t n) {
  uint32_t count = n - 5;
  const uint8_t *fragment = p + 5;
  if (le16(p + 3) != count) abort();
  if ((p[2] >> 4 & 3) != 1) {
    if (count >= 4 && le16(fragment) + 4u == count) return frame(fragment, count);
    joined_count[direction] = 0;
  }
  memcpy(joined[direction] + joined_count[direction], fragment, count);
  joined_count[direction] += count;
  if (joined_count[direction] < 4 || le16(joined[direction]) + 4u != joined_count[direction]) return 0;
  return frame(joined[direction], joined_count[direction]);
}

static uint64_t run(const char *path, uint32_t *records) {
  static uint8_t block[1 << 20];
  FILE *file = fopen(path, "rb");
  if (!file) {
    perror(path);
    exit(1);
  }
  size_t have = fread(block, 1, sizeof block, file), at = 16;
  uint64_t sum = 0;
  *records = 0;
  for (;;) {
    if (have - at < 24 || have - at < 24 + be32(block + at + 4)) {
      memmove(block, block + at, have - at);
      have -= at;
      at = 0;
      have += fread(block + have, 1, sizeof block - have, file);
      if (have < 24) break;
    }
    uint32_t n = be32(block + at + 4);
    const uint8_t *p = block + at + 24;
    int direction = be32(block + at + 8) & 1;
    sum += p[0] == 2 ? data(direction, p, n) : p[1];
    ++*records;
    at += 24 + n;
  }
  fclose(file);
  return sum;
}

int main(int count, char **argument) {
  if (count != 5) return 2;
  int repetitions = atoi(argument[3]), batches = atoi(argument[4]);
  char path[4096];
  snprintf(path, sizeof path, "%s/capture.btsnoop", argument[2]);
  uint32_t records = 0;
  double *batch = calloc((size_t)batches, sizeof *batch);
  uint64_t sum = 0;
  for (int b = 0; b < batches; b++) {
    sum = 0;
    uint64_t start = nanoseconds();
    for (int r = 0; r < repetitions; r++) sum += run(path, &records);
    batch[b] = (double)(nanoseconds() - start) / ((double)repetitions * records);
  }
  report(argument[1], batch, batches, sum / (uint64_t)repetitions, records);
  putchar('\n');
}
