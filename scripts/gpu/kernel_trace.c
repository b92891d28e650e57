// Writes a line for every kernel, memset and copy of a CUDA program: start and end in ns, stream, grid, block, name. The
// driver loads it into the program; it needs no change there and slows it down little.
//
//   gcc -O2 -shared -fPIC -I/usr/local/cuda/include scripts/gpu/kernel_trace.c -o kernel_trace.so -ldl
//   CUDA_INJECTION64_PATH=$PWD/kernel_trace.so KERNEL_TRACE=steps.tsv some bench train dense-match --device cuda
//   scripts/gpu/kernel_trace.py steps.tsv
//
// CUPTI_LIBRARY names CUPTI's library if it is not on the search path.
#include <cupti.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static CUptiResult (*enable)(CUpti_ActivityKind);
static CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc);
static CUptiResult (*next_record)(uint8_t*, size_t, CUpti_Activity**);
static CUptiResult (*flush)(uint32_t);
static FILE* out;

static void request(uint8_t** buffer, size_t* size, size_t* records) {
  *size = 8 << 20;
  *buffer = aligned_alloc(64, *size);
  *records = 0;
}

static void write_line(uint64_t start, uint64_t end, unsigned stream, const char* grid, int block, const char* name) {
  fprintf(out, "%llu\t%llu\t%u\t%s\t%d\t%s\n", (unsigned long long)start, (unsigned long long)end, stream, grid, block,
          name);
}

static void complete(CUcontext context, uint32_t stream, uint8_t* buffer, size_t size, size_t valid) {
  (void)context, (void)stream, (void)size;
  CUpti_Activity* record = NULL;
  char grid[64];
  while (out && next_record(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const CUpti_ActivityKernel10* kernel = (const CUpti_ActivityKernel10*)record;
      snprintf(grid, sizeof grid, "%d,%d,%d", kernel->gridX, kernel->gridY, kernel->gridZ);
      write_line(kernel->start, kernel->end, kernel->streamId, grid, kernel->blockX, kernel->name);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const CUpti_ActivityMemset4* set = (const CUpti_ActivityMemset4*)record;
      snprintf(grid, sizeof grid, "%llu", (unsigned long long)set->bytes);
      write_line(set->start, set->end, set->streamId, grid, 0, "memset");
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const CUpti_ActivityMemcpy6* copy = (const CUpti_ActivityMemcpy6*)record;
      snprintf(grid, sizeof grid, "%llu", (unsigned long long)copy->bytes);
      write_line(copy->start, copy->end, copy->streamId, grid, 0, "memcpy");
    }
  }
  free(buffer);
}

static void finish(void) {
  if (flush) flush(1);
  if (out) fclose(out);
  out = NULL;
}

int InitializeInjection(void) {  // the driver calls it
  const char *library = getenv("CUPTI_LIBRARY"), *path = getenv("KERNEL_TRACE");
  void* cupti = dlopen(library ? library : "libcupti.so", RTLD_NOW | RTLD_GLOBAL);
  if (!cupti) {
    fprintf(stderr, "kernel_trace: %s; set CUPTI_LIBRARY\n", dlerror());
    return 0;
  }
  *(void**)&enable = dlsym(cupti, "cuptiActivityEnable");
  *(void**)&register_callbacks = dlsym(cupti, "cuptiActivityRegisterCallbacks");
  *(void**)&next_record = dlsym(cupti, "cuptiActivityGetNextRecord");
  *(void**)&flush = dlsym(cupti, "cuptiActivityFlushAll");
  out = fopen(path ? path : "kernels.tsv", "w");
  if (!out || register_callbacks(request, complete) != CUPTI_SUCCESS ||
      enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS ||
      enable(CUPTI_ACTIVITY_KIND_MEMSET) != CUPTI_SUCCESS || enable(CUPTI_ACTIVITY_KIND_MEMCPY) != CUPTI_SUCCESS)
    fprintf(stderr, "kernel_trace: CUPTI refuses to record\n");
  atexit(finish);
  return 1;
}
