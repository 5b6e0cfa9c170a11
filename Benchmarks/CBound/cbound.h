// Common to all C bounds: a workload, a clock, a median and the command line.
//
//     PROGRAM ID WORKLOADS REPETITIONS BATCHES
//
// runs the work of row ID and prints one line: `ID ns MEDIAN check SUM items N`, behind which more `name value` pairs
// may follow. Bench (Swift) takes and prints the same. SUM is of one repetition, and the same on both sides. The C here
// is only the bound: no error details, no safety beyond what the work itself requires.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// A codec is a library: its compiler sees neither the callers nor their buffer sizes.
#define OWN_CALL __attribute__((noinline, noclone))

static inline uint16_t le16(const uint8_t *p) {
  uint16_t v;
  memcpy(&v, p, 2);
  return v;
}

static inline void put16(uint8_t *p, uint16_t v) { memcpy(p, &v, 2); }

static inline uint64_t nanoseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// A workload file, all little-endian: the number of items, then for each its length in two octets and its octets. In a
// file of requests the kind (0 for K0) stands before the length.
typedef struct {
  uint8_t *bytes;
  uint32_t count;
  uint32_t *offset;
  uint16_t *length;
  uint8_t *kind;
} corpus;

static inline corpus load(const char *folder, const char *name, int has_kinds) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  if (!file) {
    perror(path);
    exit(1);
  }
  fseek(file, 0, SEEK_END);
  size_t size = (size_t)ftell(file);
  rewind(file);
  corpus c;
  c.bytes = malloc(size);
  if (fread(c.bytes, 1, size, file) != size) exit(1);
  fclose(file);
  memcpy(&c.count, c.bytes, 4);
  c.offset = malloc(sizeof *c.offset * c.count);
  c.length = malloc(sizeof *c.length * c.count);
  c.kind = calloc(c.count, 1);
  for (uint32_t i = 0, at = 4; i < c.count; i++) {
    if (has_kinds) c.kind[i] = c.bytes[at++];
    c.length[i] = le16(c.bytes + at);
    c.offset[i] = at + 2;
    at += 2u + c.length[i];
  }
  return c;
}

static inline int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Without a line end: further figures of the row may follow.
static inline void report(const char *id, double *batch, int batches, uint64_t sum, uint32_t items) {
  qsort(batch, (size_t)batches, sizeof *batch, ascending);
  printf("%s ns %.2f check %llu items %u", id, batch[batches / 2], (unsigned long long)sum, items);
}

// One repetition of the row's work; gives the sum to check.
typedef uint64_t (*work)(void *context);

// Runs `work` in batches of `repetitions`, and reports the time per item. Sums differ only if the work does.
static inline void measure(const char *id, work once, void *context, uint32_t items, int repetitions, int batches) {
  double *batch = calloc((size_t)batches, sizeof *batch);
  uint64_t sum = 0;
  for (int b = 0; b < batches; b++) {
    uint64_t start = nanoseconds();
    for (int r = 0; r < repetitions; r++) sum = once(context);
    batch[b] = (double)(nanoseconds() - start) / ((double)repetitions * items);
  }
  report(id, batch, batches, sum, items);
  free(batch);
}
